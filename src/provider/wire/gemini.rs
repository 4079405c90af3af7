//! Gemini `streamGenerateContent`: requests from messages, replies from chunks. Pure.

use super::Dialect;
use super::names::wire_name;
use super::schema;
use crate::base::call::ToolCall;
use crate::base::event::Live;
use crate::base::ids::CallId;
use crate::base::message::{CallResult, Content, Media, Message, Part, Reply, Role, Usage};
use crate::provider::fault::{self, Fault};
use crate::provider::json::{comma, field, raw, value};
use crate::provider::{ProviderClass, Request};
use serde_json::{Map, Value, json};

/// Everything before the contents.
pub fn head(dialect: Dialect<'_>, request: &Request<'_>) -> Vec<u8> {
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
    if thinks(dialect.model) {
        config.insert("thinkingConfig".into(), json!({"includeThoughts": true}));
    }
    // Models before the third generation refuse a response schema beside functions.
    let fits = request.tools.is_empty() || generation(dialect.model) >= 3;
    if let Some(wanted) = request.response.filter(|_| fits && !dialect.plain) {
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

/// The generation in a name such as `gemini-2.5-pro`; 0 when there is none. Names such as `gemini-flash-latest`
/// are always about the newest generation.
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

/// One message as one content.
pub fn message(dialect: Dialect<'_>, message: &Message, out: &mut Vec<u8>) {
    if let Some(received) = super::received("gemini", dialect.model, message) {
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
    let nests = generation(dialect.model) >= 3;
    let mut signed = generation(dialect.model) < 3;
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
    if !nests {
        // Older models take media only beside the results, after the last of them.
        for part in &message.parts {
            let Part::Result(result) = part else { continue };
            media_of(result).for_each(|media| inline(out, media));
        }
    }
    if out.len() == empty {
        out.truncate(start);
        return;
    }
    raw(out, "]}");
}

/// A call of another model's making. The third generation validates signatures; the literal is the vendor's own
/// way to say that there is none.
fn neutral_call(out: &mut Vec<u8>, call: &ToolCall, excuse: bool) {
    comma(out);
    raw(out, "{\"functionCall\":{");
    field(out, "name", &wire_name(&call.tool));
    field(out, "args", &call.args);
    raw(out, "}");
    if excuse {
        field(out, "thoughtSignature", "skip_thought_signature_validator");
    }
    raw(out, "}");
}

fn function_response(out: &mut Vec<u8>, result: &CallResult, nests: bool) {
    let text = super::result_text(result);
    comma(out);
    raw(out, "{\"functionResponse\":{");
    // An id is echoed when the vendor gave one, never made up.
    if let Some(id) = &result.wire_id {
        field(out, "id", id);
    }
    field(out, "name", &wire_name(&result.tool));
    comma(out);
    raw(out, "\"response\":{");
    field(out, if result.is_error { "error" } else { "output" }, &text);
    raw(out, "}");
    if nests && media_of(result).next().is_some() {
        raw(out, ",\"parts\":[");
        media_of(result).for_each(|media| inline(out, media));
        raw(out, "]");
    }
    raw(out, "}}");
}

fn media_of(result: &CallResult) -> impl Iterator<Item = &Media> {
    result.content.iter().filter_map(|content| match content {
        Content::Media(media) => Some(media),
        Content::Text { .. } => None,
    })
}

fn inline(out: &mut Vec<u8>, media: &Media) {
    comma(out);
    raw(out, "{\"inlineData\":{");
    field(out, "mimeType", &media.mime);
    field(out, "data", &media.data);
    raw(out, "}}");
}

/// Builds a reply from chunks.
#[derive(Debug)]
pub struct Decoder {
    asked: String,
    parts: Vec<Value>,
    usage: Usage,
    finish: Option<String>,
    finish_message: String,
    blocked: Option<String>,
    model: String,
}

impl Decoder {
    /// For an answer of `model`.
    pub fn new(model: &str) -> Self {
        Self {
            asked: model.to_owned(),
            parts: Vec::new(),
            usage: Usage::default(),
            finish: None,
            finish_message: String::new(),
            blocked: None,
            model: model.to_owned(),
        }
    }

    /// Takes a chunk, or a list of chunks.
    ///
    /// # Errors
    /// The error that the chunk tells.
    pub fn value(&mut self, chunk: &Value, live: &dyn Fn(Live)) -> Result<(), Fault> {
        if let Some(list) = chunk.as_array() {
            return list.iter().try_for_each(|chunk| self.value(chunk, live));
        }
        if chunk.get("error").is_some_and(|error| !error.is_null()) {
            return Err(fault::from_stream(chunk));
        }
        if let Some(model) = chunk.get("modelVersion").and_then(Value::as_str) {
            model.clone_into(&mut self.model);
        }
        if let Some(usage) = chunk.get("usageMetadata") {
            self.usage = read_usage(usage);
        }
        if let Some(reason) = chunk.pointer("/promptFeedback/blockReason").and_then(Value::as_str) {
            self.blocked = Some(reason.to_owned());
        }
        let Some(candidate) = chunk.pointer("/candidates/0") else {
            return Ok(());
        };
        let parts = candidate.pointer("/content/parts").and_then(Value::as_array);
        for part in parts.into_iter().flatten() {
            self.part(part, live);
        }
        if let Some(reason) = candidate.get("finishReason").and_then(Value::as_str) {
            self.finish = Some(reason.to_owned());
        }
        if let Some(message) = candidate.get("finishMessage").and_then(Value::as_str) {
            message.clone_into(&mut self.finish_message);
        }
        Ok(())
    }

    /// Keeps a part as received. Only pieces of plain text are put together, never one that has a signature.
    fn part(&mut self, part: &Value, live: &dyn Fn(Live)) {
        if let Some(delta) = part.get("text").and_then(Value::as_str) {
            let delta = delta.to_owned();
            live(if is_thought(part) {
                Live::Thought { delta }
            } else {
                Live::Text { delta }
            });
        }
        let more = plain_text(part);
        if let (Some(more), Some(last)) = (more, self.parts.last_mut())
            && plain_text(last).is_some()
            && is_thought(last) == is_thought(part)
            && let Some(Value::String(text)) = last.get_mut("text")
        {
            text.push_str(more);
            return;
        }
        self.parts.push(part.clone());
    }

    /// The reply.
    ///
    /// # Errors
    /// Blocked, cut, malformed and empty answers.
    pub fn finish(self) -> Result<Reply, Fault> {
        if let Some(reason) = self.blocked {
            return Err(Fault::fatal(
                ProviderClass::Blocked,
                format!("the prompt was blocked: {reason}"),
            ));
        }
        let Some(finish) = self.finish.as_deref() else {
            return Err(Fault::cut());
        };
        let told = match self.finish_message.as_str() {
            "" => finish.to_owned(),
            message => format!("{finish}: {message}"),
        };
        let length = match finish {
            "STOP" | "FINISH_REASON_UNSPECIFIED" => false,
            "MAX_TOKENS" => true,
            "SAFETY" | "PROHIBITED_CONTENT" | "BLOCKLIST" | "SPII" | "IMAGE_SAFETY" => {
                return Err(Fault::fatal(
                    ProviderClass::Blocked,
                    format!("the answer was blocked: {told}"),
                ));
            }
            "RECITATION" => {
                let mut fault = Fault::unusable(format!("the answer was blocked: {told}"));
                fault.class = ProviderClass::Blocked;
                return Err(fault);
            }
            _ => return Err(Fault::unusable(format!("the answer cannot be used: {told}"))),
        };
        let mut parts = vec![Part::Opaque {
            vendor: "gemini".to_owned(),
            model: self.asked,
            json: json!({"role": "model", "parts": &self.parts}),
        }];
        for part in &self.parts {
            neutral(part, &mut parts)?;
        }
        super::whole(parts, length, self.usage, self.model)
    }
}

fn is_thought(part: &Value) -> bool {
    part.get("thought").and_then(Value::as_bool) == Some(true)
}

/// The text of a part that is text and nothing else.
fn plain_text(part: &Value) -> Option<&str> {
    let object = part.as_object()?;
    let plain = object.keys().all(|key| key == "text" || key == "thought");
    object.get("text").filter(|_| plain)?.as_str()
}

fn neutral(part: &Value, parts: &mut Vec<Part>) -> Result<(), Fault> {
    if let Some(text) = part.get("text").and_then(Value::as_str) {
        super::push_text(parts, text, is_thought(part));
    }
    let Some(call) = part.get("functionCall") else {
        return Ok(());
    };
    let name = call.get("name").and_then(Value::as_str).unwrap_or_default();
    let args = match call.get("args") {
        None | Some(Value::Null) => json!({}),
        Some(args) => args.clone(),
    };
    if name.is_empty() || !args.is_object() {
        return Err(Fault::unusable(
            "the model sent a function call without a name or with bad arguments",
        ));
    }
    let index = parts.iter().filter(|part| matches!(part, Part::Call(_))).count();
    parts.push(Part::Call(ToolCall {
        id: CallId(format!("p{index}")),
        tool: name.to_owned(),
        args,
        wire_id: call
            .get("id")
            .and_then(Value::as_str)
            .filter(|id| !id.is_empty())
            .map(str::to_owned),
    }));
    Ok(())
}

fn read_usage(usage: &Value) -> Usage {
    let count = |key: &str| usage.get(key).and_then(Value::as_u64).unwrap_or(0);
    let reasoning = count("thoughtsTokenCount");
    Usage {
        input: count("promptTokenCount") + count("toolUsePromptTokenCount"),
        cached: count("cachedContentTokenCount"),
        cache_write: 0,
        output: count("candidatesTokenCount") + reasoning,
        reasoning,
    }
}
