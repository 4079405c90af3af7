//! The wire of Gemini `streamGenerateContent`: builds requests from messages. Pure.

pub mod reply;

use super::names::wire_name;
use super::parts;
use super::protocol::{DecodeReply, EncodeOptions, Protocol, ServiceFacts};
use super::schema;
use crate::base::call::ToolCall;
use crate::base::content::{Media, ToolContent};
use crate::base::message::{CallResult, Message, Part, Role};
use crate::provider::ModelRequest;
use crate::provider::json::{comma, field, raw, value};
use serde_json::{Map, Value, json};

/// The name before the `/` of a model's id.
const VENDOR: &str = "gemini";

/// The wire of Gemini `generateContent`.
#[derive(Debug)]
pub struct Gemini;

impl Protocol for Gemini {
    fn service(&self) -> &'static ServiceFacts {
        &ServiceFacts {
            vendor: VENDOR,
            key_names: &["GEMINI_API_KEY", "GOOGLE_API_KEY"],
            base_variable: "GOOGLE_GEMINI_BASE_URL",
            default_base: "https://generativelanguage.googleapis.com",
            own_version: Some("/v1beta"),
            may_lack_key: false,
            key_header: ("x-goog-api-key", ""),
            headers: &[],
        }
    }

    fn url(&self, base: &str, model: &str) -> String {
        format!("{base}/v1beta/models/{model}:streamGenerateContent?alt=sse")
    }

    fn head(&self, options: EncodeOptions<'_>, request: &ModelRequest<'_>) -> Vec<u8> {
        head(options, request)
    }

    fn message(&self, options: EncodeOptions<'_>, sent: &Message, out: &mut Vec<u8>) {
        message(options, sent, out);
    }

    fn decoder(&self, model: &str, _: u64) -> Box<dyn DecodeReply> {
        Box::new(reply::GeminiDecoder::new(model))
    }
}

/// Everything before the contents.
fn head(options: EncodeOptions<'_>, request: &ModelRequest<'_>) -> Vec<u8> {
    let mut out = b"{".to_vec();
    if !request.system.is_empty() {
        field(
            &mut out,
            "systemInstruction",
            &json!({"parts": [{"text": request.system}]}),
        );
    }
    if !request.tools.is_empty() {
        let declarations: Vec<Value> = request
            .tools
            .iter()
            .map(|tool| {
                json!({
                    "name": wire_name(&tool.name),
                    "description": tool.description,
                    "parametersJsonSchema": schema::for_gemini(&tool.parameters),
                })
            })
            .collect();
        field(&mut out, "tools", &json!([{ "functionDeclarations": declarations }]));
    }
    let mut config = Map::new();
    if thinks(options.model) {
        config.insert("thinkingConfig".into(), json!({"includeThoughts": true}));
    }
    if let Some(most) = options.max_output_tokens {
        config.insert("maxOutputTokens".into(), json!(most));
    }
    // Models before the third generation refuse a response schema together with functions.
    let fits = request.tools.is_empty() || generation(options.model) >= 3;
    if let Some(wanted) = request.response.filter(|_| fits && !options.plain) {
        config.insert("responseMimeType".into(), json!("application/json"));
        config.insert("responseJsonSchema".into(), schema::for_gemini(wanted));
    }
    if !config.is_empty() {
        field(&mut out, "generationConfig", &config);
    }
    comma(&mut out);
    raw(&mut out, "\"contents\":[");
    out
}

/// The generation in a name such as `gemini-2.5-pro`; 0 when there is none. Names such as `gemini-flash-latest` always
/// mean the newest generation.
fn generation(model: &str) -> u32 {
    let Some(rest) = model.strip_prefix("gemini-") else {
        return 0;
    };
    let digits: String = rest.chars().take_while(char::is_ascii_digit).collect();
    match digits.parse() {
        Ok(number) => number,
        Err(_) if rest.ends_with("-latest") => 3,
        Err(_) => 0,
    }
}

fn thinks(model: &str) -> bool {
    (generation(model) >= 3 || model.starts_with("gemini-2.5")) && !model.contains("image")
}

/// Encodes one message as one content.
fn message(options: EncodeOptions<'_>, message: &Message, out: &mut Vec<u8>) {
    if let Some(received) = parts::received(VENDOR, options.model, message) {
        comma(out);
        value(out, received);
        return;
    }
    let start = out.len();
    let role = if message.role == Role::Assistant {
        "model"
    } else {
        "user"
    };
    comma(out);
    raw(out, &format!("{{\"role\":\"{role}\",\"parts\":["));
    let empty = out.len();
    let nests = generation(options.model) >= 3;
    let mut signed = generation(options.model) < 3;
    for part in &message.parts {
        match part {
            Part::Text { text } if !text.is_empty() => {
                comma(out);
                raw(out, "{");
                field(out, "text", text);
                raw(out, "}");
            }
            Part::Media(media) => inline(out, media),
            Part::Call(call) => {
                neutral_call(out, call, !signed);
                signed = true;
            }
            Part::Result(result) => function_response(out, result, nests),
            _ => {}
        }
    }
    // Media that a result cannot contain are placed after the last result.
    for part in &message.parts {
        let Part::Result(result) = part else { continue };
        let beside = media_of(result).filter(|media| !(nests && may_nest(media)));
        beside.for_each(|media| inline(out, media));
    }
    if out.len() == empty {
        out.truncate(start);
        return;
    }
    raw(out, "]}");
}

/// A call made by another model. The third generation validates signatures; this literal is the vendor's documented way
/// to say that there is none.
fn neutral_call(out: &mut Vec<u8>, call: &ToolCall, excuse: bool) {
    comma(out);
    raw(out, "{\"functionCall\":{");
    // The result echoes this id, whoever created it.
    if let Some(id) = &call.wire_id {
        field(out, "id", id);
    }
    field(out, "name", &wire_name(&call.tool));
    field(out, "args", &call.args);
    raw(out, "}");
    if excuse {
        field(out, "thoughtSignature", "skip_thought_signature_validator");
    }
    raw(out, "}");
}

fn function_response(out: &mut Vec<u8>, result: &CallResult, nests: bool) {
    let text = parts::result_text(result);
    comma(out);
    raw(out, "{\"functionResponse\":{");
    // An id is echoed when the vendor sent one, and never invented.
    if let Some(id) = &result.wire_id {
        field(out, "id", id);
    }
    field(out, "name", &wire_name(&result.tool));
    comma(out);
    raw(out, "\"response\":{");
    field(out, if result.is_error { "error" } else { "output" }, &text);
    raw(out, "}");
    let mut inside = media_of(result).filter(|media| nests && may_nest(media)).peekable();
    if inside.peek().is_some() {
        raw(out, ",\"parts\":[");
        inside.for_each(|media| inline(out, media));
        raw(out, "]");
    }
    raw(out, "}}");
}

fn media_of(result: &CallResult) -> impl Iterator<Item = &Media> {
    result.content.iter().filter_map(|content| match content {
        ToolContent::Media(media) => Some(media),
        ToolContent::Text { .. } => None,
    })
}

/// Older models accept no media inside a result; newer ones accept these types.
fn may_nest(media: &Media) -> bool {
    media.mime.starts_with("image/") || media.mime == "application/pdf"
}

fn inline(out: &mut Vec<u8>, media: &Media) {
    let kinds = ["image/", "audio/", "video/", "text/", "application/pdf"];
    comma(out);
    if !kinds.iter().any(|kind| media.mime.starts_with(kind)) {
        raw(out, "{");
        field(out, "text", &parts::unshown(media));
        raw(out, "}");
        return;
    }
    raw(out, "{\"inlineData\":{");
    field(out, "mimeType", &media.mime);
    field(out, "data", &media.data);
    raw(out, "}}");
}
