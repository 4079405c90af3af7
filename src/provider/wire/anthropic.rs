//! The wire of Anthropic Messages: builds requests from messages, with cache marks. Pure.

pub mod reply;

use super::names::wire_name;
use super::parts;
use super::protocol::{DecodeReply, EncodeOptions, Protocol, ServiceFacts};
use super::schema;
use crate::base::content::{Media, ToolContent};
use crate::base::ids::CallId;
use crate::base::message::{CallResult, Message, Part, Role};
use crate::provider::json::{comma, field, raw};
use crate::provider::{ModelRequest, pricing};
use serde_json::{Value, json};

/// Reply limit, in tokens, of a model that the price table does not know.
const ANSWER: u64 = 32_000;
const MARK: &[u8] = b",\"cache_control\":{\"type\":\"ephemeral\"}";
/// The bytes after the last block's content of a message: the closing braces and bracket of block, list and message.
const CLOSING: usize = 3;

/// The name before the `/` of a model's id.
const VENDOR: &str = "anthropic";

/// The wire of Anthropic Messages.
#[derive(Debug)]
pub struct Anthropic;

impl Protocol for Anthropic {
    fn service(&self) -> &'static ServiceFacts {
        &ServiceFacts {
            vendor: VENDOR,
            key_names: &["ANTHROPIC_API_KEY"],
            base_variable: "ANTHROPIC_BASE_URL",
            default_base: "https://api.anthropic.com",
            own_version: Some("/v1"),
            may_lack_key: false,
            key_header: ("x-api-key", ""),
            headers: &[("anthropic-version", "2023-06-01")],
        }
    }

    fn url(&self, base: &str, _: &str) -> String {
        format!("{base}/v1/messages")
    }

    fn head(&self, options: EncodeOptions<'_>, request: &ModelRequest<'_>) -> Vec<u8> {
        head(options, request)
    }

    fn message(&self, options: EncodeOptions<'_>, sent: &Message, out: &mut Vec<u8>) {
        message(options, sent, out);
    }

    fn append_messages(&self, body: &mut Vec<u8>, messages: &[u8], marks: &[usize]) {
        append_marked(body, messages, marks);
    }

    fn decoder(&self, model: &str, _: u64) -> Box<dyn DecodeReply> {
        Box::new(reply::AnthropicDecoder::new(model))
    }
}

/// Everything before the messages. Cache marks are at the end of the system text and of the tools.
fn head(options: EncodeOptions<'_>, request: &ModelRequest<'_>) -> Vec<u8> {
    let mut out = b"{".to_vec();
    field(&mut out, "model", options.model);
    let known = pricing::known(&format!("anthropic/{}", options.model));
    let answer = known.and_then(|known| known.answer).unwrap_or(ANSWER);
    // The service requires a number.
    field(&mut out, "max_tokens", &options.max_output_tokens.unwrap_or(answer));
    field(&mut out, "stream", &true);
    let mark = json!({"type": "ephemeral"});
    if !request.tools.is_empty() {
        let mut tools: Vec<Value> = request
            .tools
            .iter()
            .map(|tool| {
                json!({
                    "name": wire_name(&tool.name),
                    "description": tool.description,
                    "input_schema": schema::for_object(&tool.parameters),
                })
            })
            .collect();
        if let (Some(Value::Object(last)), true) = (tools.last_mut(), request.system.is_empty()) {
            last.insert("cache_control".into(), mark.clone());
        }
        field(&mut out, "tools", &tools);
    }
    if !request.system.is_empty() {
        let system = json!([{"type": "text", "text": request.system, "cache_control": mark}]);
        field(&mut out, "system", &system);
    }
    if let Some(wanted) = request
        .response
        .filter(|wanted| !options.plain && schema::is_strict(wanted))
    {
        let format = json!({"format": {"type": "json_schema", "schema": wanted}});
        field(&mut out, "output_config", &format);
    }
    comma(&mut out);
    raw(&mut out, "\"messages\":[");
    out
}

/// The messages with a cache mark on the last block of the last two user turns, so that the next request finds what
/// this one wrote to the cache. The marks are inserted between reused bytes; nothing is encoded again.
fn append_marked(body: &mut Vec<u8>, messages: &[u8], marks: &[usize]) {
    let mut from = 0;
    for end in &marks[marks.len().saturating_sub(2)..] {
        let at = end.saturating_sub(CLOSING);
        if let Some(piece) = messages.get(from..at) {
            body.extend_from_slice(piece);
            body.extend_from_slice(MARK);
            from = at;
        }
    }
    body.extend_from_slice(messages.get(from..).unwrap_or_default());
}

/// Encodes one message as one message; results come first in it.
fn message(options: EncodeOptions<'_>, message: &Message, out: &mut Vec<u8>) {
    let role = if message.role == Role::Assistant {
        "assistant"
    } else {
        "user"
    };
    if let Some(received) = parts::received(VENDOR, options.model, message) {
        comma(out);
        raw(out, "{\"role\":\"assistant\"");
        field(out, "content", received);
        raw(out, "}");
        return;
    }
    let start = out.len();
    comma(out);
    raw(out, &format!("{{\"role\":\"{role}\",\"content\":["));
    let empty = out.len();
    for part in &message.parts {
        if let Part::Result(result) = part {
            tool_result(out, result);
        }
    }
    for part in &message.parts {
        match part {
            // The service refuses text of only white space.
            Part::Text { text } if !text.trim().is_empty() => text_block(out, text),
            Part::Media(media) => media_block(out, media),
            Part::Call(call) => {
                comma(out);
                raw(out, "{\"type\":\"tool_use\"");
                field(out, "id", &legal_id(call.wire_id.as_deref(), &call.id));
                field(out, "name", &wire_name(&call.tool));
                field(out, "input", &call.args);
                raw(out, "}");
            }
            _ => {}
        }
    }
    if out.len() == empty {
        out.truncate(start);
    } else {
        raw(out, "]}");
    }
}

fn text_block(out: &mut Vec<u8>, text: &str) {
    comma(out);
    raw(out, "{\"type\":\"text\"");
    field(out, "text", text);
    raw(out, "}");
}

fn media_block(out: &mut Vec<u8>, media: &Media) {
    let kind = match media.mime.as_str() {
        "image/png" | "image/jpeg" | "image/gif" | "image/webp" => "image",
        "application/pdf" => "document",
        _ => return text_block(out, &parts::unshown(media)),
    };
    comma(out);
    raw(out, &format!("{{\"type\":\"{kind}\",\"source\":{{\"type\":\"base64\""));
    field(out, "media_type", &media.mime);
    field(out, "data", &media.data);
    raw(out, "}}");
}

fn tool_result(out: &mut Vec<u8>, result: &CallResult) {
    comma(out);
    raw(out, "{\"type\":\"tool_result\"");
    field(out, "tool_use_id", &legal_id(result.wire_id.as_deref(), &result.call));
    if result.is_error {
        field(out, "is_error", &true);
    }
    comma(out);
    raw(out, "\"content\":[");
    for content in &result.content {
        match content {
            ToolContent::Text { text } if !text.trim().is_empty() => text_block(out, text),
            ToolContent::Text { .. } => {}
            ToolContent::Media(media) => media_block(out, media),
        }
    }
    raw(out, "]}");
}

/// Replaces characters that this vendor does not accept; ids of other vendors may contain them.
fn legal_id(wire_id: Option<&str>, ours: &CallId) -> String {
    let legal = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-');
    let id = wire_id.unwrap_or(ours.as_str());
    id.chars().map(|c| if legal(c) { c } else { '_' }).collect()
}
