//! The wire of OpenAI Responses, used without server-side state: builds requests from messages. Pure.

pub mod reply;

use super::names::wire_name;
use super::parts;
use super::protocol::{DecodeReply, EncodeOptions, Protocol, ServiceFacts};
use super::schema;
use crate::base::content::{Media, ToolContent};
use crate::base::message::{CallResult, Message, Part, Role};
use crate::provider::ModelRequest;
use crate::provider::json::{comma, field, raw, value};
use serde_json::{Value, json};

/// The name before the `/` of a model's id.
const VENDOR: &str = "openai-responses";
static FACTS: ServiceFacts = ServiceFacts::openai(VENDOR);

/// The wire of OpenAI Responses.
#[derive(Debug)]
pub struct OpenaiResponses;

impl Protocol for OpenaiResponses {
    fn service(&self) -> &'static ServiceFacts {
        &FACTS
    }

    fn url(&self, base: &str, _: &str) -> String {
        format!("{base}/responses")
    }

    fn head(&self, options: EncodeOptions<'_>, request: &ModelRequest<'_>) -> Vec<u8> {
        head(options, request)
    }

    fn message(&self, options: EncodeOptions<'_>, sent: &Message, out: &mut Vec<u8>) {
        message(options, sent, out);
    }

    fn decoder(&self, model: &str, _: u64) -> Box<dyn DecodeReply> {
        Box::new(reply::ResponsesDecoder::new(model))
    }
}

/// Everything before the items.
fn head(options: EncodeOptions<'_>, request: &ModelRequest<'_>) -> Vec<u8> {
    let mut out = b"{".to_vec();
    field(&mut out, "model", options.model);
    field(&mut out, "stream", &true);
    // The service stores nothing; it returns reasoning encrypted, and the next request sends that back.
    field(&mut out, "store", &false);
    if reasons(options.model) {
        field(&mut out, "include", &["reasoning.encrypted_content"]);
    }
    if let Some(most) = options.max_output_tokens {
        field(&mut out, "max_output_tokens", &most);
    }
    if !request.system.is_empty() {
        field(&mut out, "instructions", request.system);
    }
    if !request.tools.is_empty() {
        let tools: Vec<Value> = request
            .tools
            .iter()
            .map(|tool| {
                json!({
                    "type": "function",
                    "name": wire_name(&tool.name),
                    "description": tool.description,
                    "parameters": schema::for_object(&tool.parameters),
                    "strict": false,
                })
            })
            .collect();
        field(&mut out, "tools", &tools);
    }
    if let Some(wanted) = request.response.filter(|_| !options.plain) {
        let format = json!({"format": {
            "type": "json_schema",
            "name": "answer",
            "schema": wanted,
            "strict": schema::is_strict(wanted),
        }});
        field(&mut out, "text", &format);
    }
    comma(&mut out);
    raw(&mut out, "\"input\":[");
    out
}

/// Models without reasoning refuse a request for reasoning content.
fn reasons(model: &str) -> bool {
    let name = model.rsplit('/').next().unwrap_or(model);
    !["gpt-3", "gpt-4", "chatgpt-4"].iter().any(|old| name.starts_with(old))
}

/// Encodes one message as items.
fn message(options: EncodeOptions<'_>, message: &Message, out: &mut Vec<u8>) {
    if let Some(Value::Array(items)) = parts::received(VENDOR, options.model, message) {
        for item in items {
            comma(out);
            value(out, item);
        }
        return;
    }
    if message.role == Role::Assistant {
        for part in &message.parts {
            assistant(part, out);
        }
        return;
    }
    let start = out.len();
    comma(out);
    raw(out, "{\"type\":\"message\",\"role\":\"user\",\"content\":[");
    let empty = out.len();
    for part in &message.parts {
        match part {
            Part::Text { text } if !text.is_empty() => input_text(out, text),
            Part::Media(media) => input_media(out, media),
            _ => {}
        }
    }
    if out.len() == empty {
        out.truncate(start);
    } else {
        raw(out, "]}");
    }
    for part in &message.parts {
        if let Part::Result(result) = part {
            output(out, result);
        }
    }
}

fn assistant(part: &Part, out: &mut Vec<u8>) {
    let item = match part {
        Part::Text { text } if !text.is_empty() => json!({
            "type": "message",
            "role": "assistant",
            "content": [{"type": "output_text", "text": text}],
        }),
        Part::Call(call) => json!({
            "type": "function_call",
            "call_id": call.wire_id.as_deref().unwrap_or(call.id.as_str()),
            "name": wire_name(&call.tool),
            "arguments": call.args.to_string(),
        }),
        _ => return,
    };
    comma(out);
    value(out, &item);
}

fn input_text(out: &mut Vec<u8>, text: &str) {
    comma(out);
    raw(out, "{\"type\":\"input_text\"");
    field(out, "text", text);
    raw(out, "}");
}

fn input_media(out: &mut Vec<u8>, media: &Media) {
    let url = || format!("data:{};base64,{}", media.mime, media.data);
    let part = match media.mime.as_str() {
        mime if mime.starts_with("image/") => json!({"type": "input_image", "image_url": url(), "detail": "auto"}),
        "application/pdf" => {
            let name = media.name.as_deref().unwrap_or("attachment.pdf");
            json!({"type": "input_file", "filename": name, "file_data": url()})
        }
        _ => return input_text(out, &parts::unshown(media)),
    };
    comma(out);
    value(out, &part);
}

fn output(out: &mut Vec<u8>, result: &CallResult) {
    comma(out);
    raw(out, "{\"type\":\"function_call_output\"");
    field(
        out,
        "call_id",
        result.wire_id.as_deref().unwrap_or(result.call.as_str()),
    );
    comma(out);
    raw(out, "\"output\":");
    if result
        .content
        .iter()
        .all(|content| matches!(content, ToolContent::Text { .. }))
    {
        value(out, &parts::marked_text(result));
    } else {
        raw(out, "[");
        if result.is_error {
            input_text(out, "Error:");
        }
        for content in &result.content {
            match content {
                ToolContent::Text { text } => input_text(out, text),
                ToolContent::Media(media) => input_media(out, media),
            }
        }
        raw(out, "]");
    }
    raw(out, "}");
}
