//! Converts the results of an MCP server to tool results.

use super::limits::MEDIA;
use crate::base::call::{Display, ToolFailure, ToolOutput};
use crate::base::content::{Media, ToolContent};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use rmcp::model::{CallToolResult, ContentBlock, GetPromptResult, ResourceContents, Role};

/// Converts the result of a call.
pub fn output(name: &str, result: CallToolResult) -> ToolOutput {
    let mut content: Vec<ToolContent> = result.content.into_iter().map(block).collect();
    let has_text = content
        .iter()
        .any(|one| matches!(one, ToolContent::Text { text } if !text.trim().is_empty()));
    if let (false, Some(structured)) = (has_text, result.structured_content) {
        content.push(ToolContent::text(format!("{structured:#}")));
    }
    if content.is_empty() {
        content.push(ToolContent::text("(no content)"));
    }
    made(name, content, result.is_error == Some(true))
}

/// The messages of a prompt, with the role unless it is the user.
pub fn prompt_output(name: &str, result: GetPromptResult) -> ToolOutput {
    made(name, prompt_parts(result), false)
}

/// The messages of a prompt as contents.
pub fn prompt_parts(result: GetPromptResult) -> Vec<ToolContent> {
    let parts = result.messages.into_iter().map(|message| {
        let part = block(message.content);
        match (part, message.role) {
            (ToolContent::Text { text }, Role::Assistant) => ToolContent::text(format!("assistant: {text}")),
            (part, _) => part,
        }
    });
    parts.collect()
}

/// A tool result from these contents.
pub fn made(name: &str, content: Vec<ToolContent>, failed: bool) -> ToolOutput {
    let mut output = ToolOutput {
        content,
        ..ToolOutput::default()
    };
    let media = output.content.iter().filter_map(|content| match content {
        ToolContent::Media(media) => Some(format!("[{}]", media.mime)),
        ToolContent::Text { .. } => None,
    });
    let media: Vec<String> = media.collect();
    let text = output.model_text();
    let shown: Vec<&str> = std::iter::once(text.as_str())
        .chain(media.iter().map(String::as_str))
        .filter(|part| !part.is_empty())
        .collect();
    output.display = Display::Text { text: shown.join("\n") };
    if failed {
        let message = if text.is_empty() {
            "the server says that the call failed".to_owned()
        } else {
            text
        };
        output.summary = format!("{name} failed");
        output.error = Some(ToolFailure {
            kind: "mcp_tool_error".to_owned(),
            message,
        });
    } else {
        output.summary = format!("{name} answered");
    }
    output
}

/// Converts one content block.
pub fn block(block: ContentBlock) -> ToolContent {
    match block {
        ContentBlock::Text(text) => ToolContent::text(text.text),
        ContentBlock::Image(image) => media(image.mime_type, image.data, None),
        ContentBlock::Audio(audio) => media(audio.mime_type, audio.data, None),
        ContentBlock::Resource(embedded) => resource(embedded.resource),
        ContentBlock::ResourceLink(connection) => {
            let about = [connection.mime_type, connection.description]
                .into_iter()
                .flatten()
                .collect::<Vec<_>>()
                .join(": ");
            let about = if about.is_empty() { about } else { format!(" ({about})") };
            ToolContent::text(format!("resource {}: {}{about}", connection.name, connection.uri))
        }
        _ => ToolContent::text("[content of an unknown type]"),
    }
}

/// Converts one resource.
pub fn resource(contents: ResourceContents) -> ToolContent {
    match contents {
        ResourceContents::TextResourceContents { uri, text, .. } => {
            ToolContent::text(format!("resource {uri}:\n{text}"))
        }
        ResourceContents::BlobResourceContents {
            uri, mime_type, blob, ..
        } => {
            let mime = mime_type.unwrap_or_else(|| "application/octet-stream".to_owned());
            let shows = mime.starts_with("image/") || mime.starts_with("audio/") || mime == "application/pdf";
            match shows {
                true => media(mime, blob, Some(uri)),
                false => ToolContent::text(format!("resource {uri}: {} bytes of {mime}", blob.len() / 4 * 3)),
            }
        }
        _ => ToolContent::text("[a resource of an unknown type]"),
    }
}

fn media(mime: String, data: String, name: Option<String>) -> ToolContent {
    if data.len() / 4 * 3 > MEDIA {
        return ToolContent::text(format!("[{mime}: left out, larger than {} MB]", MEDIA >> 20));
    }
    match STANDARD.decode(data.as_bytes()) {
        Ok(_) => ToolContent::Media(Media { mime, data, name }),
        Err(_) => ToolContent::text(format!("[{mime}: left out, not valid base64]")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn of(result: serde_json::Value) -> ToolOutput {
        output("s__t", serde_json::from_value(result).unwrap())
    }

    #[test]
    fn every_kind_of_content_arrives() {
        let output = of(json!({ "content": [
            { "type": "text", "text": "hello" },
            { "type": "image", "data": "AAAA", "mimeType": "image/png" },
            { "type": "audio", "data": "AAAA", "mimeType": "audio/wav" },
            { "type": "resource", "resource": { "uri": "r:1", "text": "inside" } },
            { "type": "resource", "resource": { "uri": "r:2", "blob": "AAAA", "mimeType": "application/pdf" } },
            { "type": "resource", "resource": { "uri": "r:3", "blob": "AAAAAAAA", "mimeType": "application/zip" } },
            { "type": "resource_link", "name": "four", "uri": "r:4", "mimeType": "text/plain" },
            { "type": "image", "data": "!", "mimeType": "image/png" } ] }));
        let mimes: Vec<&str> = output
            .content
            .iter()
            .filter_map(|content| match content {
                ToolContent::Media(media) => Some(media.mime.as_str()),
                ToolContent::Text { .. } => None,
            })
            .collect();
        assert_eq!(mimes, ["image/png", "audio/wav", "application/pdf"]);
        assert_eq!(
            output.model_text(),
            "hello\nresource r:1:\ninside\nresource r:3: 6 bytes of application/zip\nresource four: r:4 (text/plain)\n\
             [image/png: left out, not valid base64]"
        );
        assert_eq!(output.error, None);
    }

    #[test]
    fn structured_content_is_used_if_there_is_no_text() {
        assert_eq!(
            of(json!({ "content": [], "structuredContent": { "n": 1 } })).model_text(),
            "{\n  \"n\": 1\n}"
        );
        let both = json!({ "content": [{ "type": "text", "text": "one" }], "structuredContent": { "n": 1 } });
        assert_eq!(of(both).model_text(), "one");
        assert_eq!(of(json!({ "content": [] })).model_text(), "(no content)");
    }

    #[test]
    fn an_error_of_the_server_is_an_error_of_the_tool() {
        let output = of(json!({ "content": [{ "type": "text", "text": "no such page" }], "isError": true }));
        assert_eq!(
            output.error.unwrap(),
            ToolFailure {
                kind: "mcp_tool_error".to_owned(),
                message: "no such page".to_owned()
            }
        );
    }
}
