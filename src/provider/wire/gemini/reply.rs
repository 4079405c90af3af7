//! The decoder of Gemini `streamGenerateContent`: builds a reply from chunks. Pure.

use super::super::parts::{Ending, MOST_CALLS, count, push_text, too_many_calls, whole};
use super::super::protocol::DecodeReply;
use crate::base::call::ToolCall;
use crate::base::event::ProgressEvent;
use crate::base::ids::CallId;
use crate::base::message::{Part, Reply, Usage};
use crate::provider::fault::{self, Fault};
use crate::provider::{Discarded, ProviderClass};
use serde_json::{Value, json};

/// Builds a reply from chunks.
#[derive(Debug)]
pub struct GeminiDecoder {
    asked: String,
    parts: Vec<Value>,
    /// How many of the parts are calls.
    calls: usize,
    usage: Usage,
    finish: Option<String>,
    finish_message: String,
    blocked: Option<String>,
    model: String,
}

impl GeminiDecoder {
    /// A decoder for a response of `model`.
    pub fn new(model: &str) -> Self {
        Self {
            asked: model.to_owned(),
            parts: Vec::new(),
            calls: 0,
            usage: Usage::default(),
            finish: None,
            finish_message: String::new(),
            blocked: None,
            model: model.to_owned(),
        }
    }

    /// Keeps a part as received. Merges only chunks of plain text, never one with a signature.
    fn part(&mut self, part: &Value, live: &dyn Fn(ProgressEvent)) {
        if let Some(delta) = part.get("text").and_then(Value::as_str) {
            let delta = delta.to_owned();
            live(if is_thought(part) {
                ProgressEvent::Thought { delta }
            } else {
                ProgressEvent::Text { delta }
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
}

impl DecodeReply for GeminiDecoder {
    fn is_done(&self) -> bool {
        // The usage comes with the last chunk, and no event says that it was the last.
        false
    }

    fn is_ended(&self) -> bool {
        self.finish.is_some()
    }

    fn value(&mut self, chunk: &Value, live: &dyn Fn(ProgressEvent)) -> Result<(), Fault> {
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
            self.calls += usize::from(part.get("functionCall").is_some());
            if self.calls > MOST_CALLS {
                return Err(too_many_calls());
            }
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

    fn counted(&self) -> Option<Box<Discarded>> {
        let received: usize = self.parts.iter().map(written).sum();
        Discarded::of(&self.model, self.usage, received as u64)
    }

    fn finish(self: Box<Self>) -> Result<Reply, Fault> {
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
        let ending = match finish {
            "STOP" | "FINISH_REASON_UNSPECIFIED" => Ending::Complete,
            "MAX_TOKENS" => Ending::Length,
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
        let mut parts = Vec::new();
        // The service refuses an empty content when it is sent back.
        if !self.parts.is_empty() {
            parts.push(Part::Opaque {
                vendor: super::VENDOR.to_owned(),
                model: self.asked,
                json: json!({"role": "model", "parts": &self.parts}),
            });
        }
        for part in &self.parts {
            neutral(part, &mut parts)?;
        }
        whole(parts, (ending, None), self.usage, self.model)
    }
}

fn is_thought(part: &Value) -> bool {
    part.get("thought").and_then(Value::as_bool) == Some(true)
}

/// Bytes of the text or the call in a part.
fn written(part: &Value) -> usize {
    let text = part.get("text").and_then(Value::as_str).map_or(0, str::len);
    text + part.get("functionCall").map_or(0, |call| call.to_string().len())
}

/// The text of a part that has no other field.
fn plain_text(part: &Value) -> Option<&str> {
    let object = part.as_object()?;
    let plain = object.keys().all(|key| key == "text" || key == "thought");
    object.get("text").filter(|_| plain)?.as_str()
}

fn neutral(part: &Value, parts: &mut Vec<Part>) -> Result<(), Fault> {
    if let Some(text) = part.get("text").and_then(Value::as_str) {
        push_text(parts, text, is_thought(part));
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
    let count = |key: &str| usage.get(key).and_then(count).unwrap_or(0);
    let reasoning = count("thoughtsTokenCount");
    Usage {
        input: count("promptTokenCount") + count("toolUsePromptTokenCount"),
        cached: count("cachedContentTokenCount"),
        cache_write: 0,
        output: count("candidatesTokenCount") + reasoning,
        reasoning,
        estimated: false,
    }
}
