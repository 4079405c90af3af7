//! The wire of OpenAI Chat Completions and compatible servers: builds requests from messages. Pure.

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
const VENDOR: &str = "openai";
static FACTS: ServiceFacts = ServiceFacts::openai(VENDOR);

/// The wire of OpenAI Chat Completions.
#[derive(Debug)]
pub struct OpenaiChat;

impl Protocol for OpenaiChat {
    fn service(&self) -> &'static ServiceFacts {
        &FACTS
    }

    fn url(&self, base: &str, _: &str) -> String {
        format!("{base}/chat/completions")
    }

    fn head(&self, options: EncodeOptions<'_>, request: &ModelRequest<'_>) -> Vec<u8> {
        head(options, request)
    }

    fn message(&self, options: EncodeOptions<'_>, sent: &Message, out: &mut Vec<u8>) {
        message(options, sent, out);
    }

    fn decoder(&self, model: &str, turn: u64) -> Box<dyn DecodeReply> {
        Box::new(reply::ChatDecoder::new(model, turn))
    }
}

/// Everything before the messages, and the system message as the first of them.
fn head(options: EncodeOptions<'_>, request: &ModelRequest<'_>) -> Vec<u8> {
    let mut out = b"{".to_vec();
    field(&mut out, "model", options.model);
    field(&mut out, "stream", &true);
    field(&mut out, "stream_options", &json!({"include_usage": true}));
    if let Some(most) = options.max_output_tokens {
        // OpenAI's reasoning models refuse `max_tokens`; Ollama and LM Studio document only that name, vLLM and
        // llama.cpp accept both.
        let name = if is_openai(options.model) {
            "max_completion_tokens"
        } else {
            "max_tokens"
        };
        field(&mut out, name, &most);
    }
    // Servers that constrain the whole reply by a grammar could then never call a tool, so the tools are omitted when
    // only the answer is wanted.
    let alone = request.answer_only && request.response.is_some() && !options.plain && !is_openai(options.model);
    let declares = !request.tools.is_empty() && !alone;
    if declares {
        let tools: Vec<Value> = request
            .tools
            .iter()
            .map(|tool| {
                json!({"type": "function", "function": {
                    "name": wire_name(&tool.name),
                    "description": tool.description,
                    "parameters": schema::for_object(&tool.parameters),
                }})
            })
            .collect();
        field(&mut out, "tools", &tools);
    }
    let fits = !declares || is_openai(options.model);
    if let Some(wanted) = request.response.filter(|_| fits && !options.plain) {
        let format = json!({"type": "json_schema", "json_schema": {
            "name": "answer",
            "schema": wanted,
            "strict": schema::is_strict(wanted),
        }});
        field(&mut out, "response_format", &format);
    }
    comma(&mut out);
    raw(&mut out, "\"messages\":[");
    if !request.system.is_empty() {
        value(&mut out, &json!({"role": "system", "content": request.system}));
    }
    out
}

/// Whether a name is one of OpenAI's own hosted models, also behind a gateway (`openai/gpt-5`).
fn is_openai(model: &str) -> bool {
    let name = model.rsplit('/').next().unwrap_or(model);
    let reasoning = ["o1", "o3", "o4"].iter().any(|short| {
        name.strip_prefix(short)
            .is_some_and(|rest| rest.is_empty() || rest.starts_with('-'))
    });
    reasoning || name.starts_with("chatgpt-") || name.starts_with("gpt-") && !name.starts_with("gpt-oss")
}

/// Encodes one message as one or, with results, as several messages.
fn message(options: EncodeOptions<'_>, message: &Message, out: &mut Vec<u8>) {
    if let Some(received) = parts::received(VENDOR, options.model, message) {
        comma(out);
        value(out, received);
        return;
    }
    match message.role {
        Role::User => user(&message.parts, out),
        Role::Assistant => assistant(&message.parts, out),
        Role::Tool => results(&message.parts, out),
    }
}

fn user(parts: &[Part], out: &mut Vec<u8>) {
    let texts: Vec<&str> = parts.iter().filter_map(text_of).collect();
    let media: Vec<&Media> = parts
        .iter()
        .filter_map(|part| match part {
            Part::Media(media) => Some(media),
            _ => None,
        })
        .collect();
    if media.is_empty() {
        if !texts.is_empty() {
            comma(out);
            value(out, &json!({"role": "user", "content": texts.join("\n")}));
        }
        return;
    }
    comma(out);
    raw(out, "{\"role\":\"user\",\"content\":[");
    for part in parts {
        match part {
            Part::Text { text } if !text.is_empty() => {
                comma(out);
                value(out, &json!({"type": "text", "text": text}));
            }
            Part::Media(media) => piece(out, media),
            _ => {}
        }
    }
    raw(out, "]}");
}

fn text_of(part: &Part) -> Option<&str> {
    match part {
        Part::Text { text } if !text.is_empty() => Some(text),
        _ => None,
    }
}

/// An image, audio or file as a content part.
fn piece(out: &mut Vec<u8>, media: &Media) {
    let url = || format!("data:{};base64,{}", media.mime, media.data);
    let sound = |format| json!({"type": "input_audio", "input_audio": {"data": media.data, "format": format}});
    let part = match media.mime.as_str() {
        mime if mime.starts_with("image/") => json!({"type": "image_url", "image_url": {"url": url()}}),
        "audio/wav" | "audio/x-wav" | "audio/wave" => sound("wav"),
        "audio/mpeg" | "audio/mp3" => sound("mp3"),
        "application/pdf" => {
            let name = media.name.as_deref().unwrap_or("attachment.pdf");
            json!({"type": "file", "file": {"filename": name, "file_data": url()}})
        }
        _ => json!({"type": "text", "text": parts::unshown(media)}),
    };
    comma(out);
    value(out, &part);
}

fn assistant(parts: &[Part], out: &mut Vec<u8>) {
    let text: String = parts.iter().filter_map(text_of).collect();
    let calls: Vec<Value> = parts
        .iter()
        .filter_map(|part| match part {
            Part::Call(call) => Some(json!({
                "id": call.wire_id.as_deref().unwrap_or(call.id.as_str()),
                "type": "function",
                "function": {"name": wire_name(&call.tool), "arguments": call.args.to_string()},
            })),
            _ => None,
        })
        .collect();
    if text.is_empty() && calls.is_empty() {
        return;
    }
    comma(out);
    raw(out, "{\"role\":\"assistant\"");
    field(out, "content", &(!text.is_empty()).then_some(text));
    if !calls.is_empty() {
        field(out, "tool_calls", &calls);
    }
    raw(out, "}");
}

/// A `tool` message for each result. Images in it are not portable, so they follow in a user message.
fn results(parts: &[Part], out: &mut Vec<u8>) {
    let results = || {
        parts.iter().filter_map(|part| match part {
            Part::Result(result) => Some(result),
            _ => None,
        })
    };
    for result in results() {
        comma(out);
        raw(out, "{\"role\":\"tool\"");
        field(
            out,
            "tool_call_id",
            result.wire_id.as_deref().unwrap_or(result.call.as_str()),
        );
        field(out, "content", &parts::marked_text(result));
        raw(out, "}");
    }
    let attached: Vec<(&CallResult, &Media)> = results()
        .flat_map(|result| {
            result.content.iter().filter_map(move |content| match content {
                ToolContent::Media(media) => Some((result, media)),
                ToolContent::Text { .. } => None,
            })
        })
        .collect();
    if attached.is_empty() {
        return;
    }
    comma(out);
    raw(out, "{\"role\":\"user\",\"content\":[");
    for (result, media) in attached {
        comma(out);
        let name = media.name.as_deref().unwrap_or(&media.mime);
        value(
            out,
            &json!({"type": "text", "text": format!("Attached to the result of {}: {name}", result.tool)}),
        );
        piece(out, media);
    }
    raw(out, "]}");
}
