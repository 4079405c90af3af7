//! The decoder of OpenAI Chat Completions and compatible servers: builds a reply from chunks. Pure.

use super::super::calls::{Pieces, object};
use super::super::parts::{Ending, MOST_CALLS, broken_off, count, push_text, too_many_calls, whole};
use super::super::protocol::DecodeReply;

use crate::base::call::ToolCall;
use crate::base::event::ProgressEvent;
use crate::base::ids::CallId;
use crate::base::message::{Part, Reply, StopReason, Usage};
use crate::base::secret::shortened;
use crate::provider::fault::{self, Fault};
use crate::provider::{Discarded, ProviderClass};
use serde_json::{Map, Value, json};

/// Builds a reply from chunks.
#[derive(Debug)]
pub struct ChatDecoder {
    asked: String,
    turn: u64,
    text: String,
    thought: String,
    /// Whether the reasoning came in the key that such servers require back together with calls.
    returns_thought: bool,
    refusal: String,
    calls: Pieces,
    /// Unknown keys of the message, kept as received.
    extra: Map<String, Value>,
    usage: Usage,
    finish: Option<String>,
    done: bool,
    /// Whether a chunk came that is no part of a reply.
    has_strange: bool,
    model: String,
}

impl ChatDecoder {
    /// A decoder for a response of `model` in turn `turn`.
    pub fn new(model: &str, turn: u64) -> Self {
        Self {
            asked: model.to_owned(),
            turn,
            text: String::new(),
            thought: String::new(),
            returns_thought: false,
            refusal: String::new(),
            calls: Pieces::default(),
            extra: Map::new(),
            usage: Usage::default(),
            finish: None,
            done: false,
            has_strange: false,
            model: model.to_owned(),
        }
    }

    fn delta(&mut self, delta: &Map<String, Value>, live: &dyn Fn(ProgressEvent)) {
        for (key, value) in delta {
            match (key.as_str(), value) {
                (_, Value::Null) | ("role", _) => {}
                ("content", Value::String(more)) => {
                    self.text.push_str(more);
                    emit_progress(more, live, |delta| ProgressEvent::Text { delta });
                }
                ("content", Value::Array(parts)) => {
                    for more in parts.iter().filter_map(|part| part.get("text")?.as_str()) {
                        self.text.push_str(more);
                        emit_progress(more, live, |delta| ProgressEvent::Text { delta });
                    }
                }
                ("reasoning_content" | "reasoning", Value::String(more)) => {
                    // A server that sends both keys sends the same text twice.
                    self.returns_thought |= key == "reasoning_content";
                    if key == "reasoning_content" || !delta.contains_key("reasoning_content") {
                        self.thought.push_str(more);
                        emit_progress(more, live, |delta| ProgressEvent::Thought { delta });
                    }
                }
                ("refusal", Value::String(more)) => self.refusal.push_str(more),
                // One more than the limit is kept, which shows that it was exceeded.
                ("tool_calls", Value::Array(calls)) => {
                    for call in calls {
                        if self.calls.count() <= MOST_CALLS {
                            self.calls.add(call);
                        }
                    }
                }
                ("function_call", Value::Object(_)) => self.calls.add(&json!({"index": 0, "function": value})),
                _ => keep(&mut self.extra, key, value),
            }
        }
    }
}

impl DecodeReply for ChatDecoder {
    fn end_marker(&mut self) {
        self.done = true;
    }

    fn is_done(&self) -> bool {
        self.done
    }

    fn is_ended(&self) -> bool {
        self.finish.is_some()
    }

    fn value(&mut self, chunk: &Value, live: &dyn Fn(ProgressEvent)) -> Result<(), Fault> {
        let is_error = chunk.get("error").is_some_and(|error| !error.is_null());
        let is_strange = !is_chunk(chunk);
        if is_error || chunk.get("object").and_then(Value::as_str) == Some("error") || is_strange && says_error(chunk) {
            return Err(fault::from_stream(chunk));
        }
        self.has_strange |= is_strange;
        if let Some(model) = chunk
            .get("model")
            .and_then(Value::as_str)
            .filter(|name| !name.is_empty())
        {
            model.clone_into(&mut self.model);
        }
        if let Some(usage) = chunk.get("usage").filter(|usage| usage.is_object()) {
            self.usage = read_usage(usage).unwrap_or(self.usage);
        }
        let Some(choice) = chunk.pointer("/choices/0") else {
            return Ok(());
        };
        if let Some(error) = choice.get("error").filter(|error| !error.is_null()) {
            return Err(fault::from_stream(error));
        }
        if let Some(delta) = choice
            .get("delta")
            .or_else(|| choice.get("message"))
            .and_then(Value::as_object)
        {
            self.delta(delta, live);
        }
        if self.calls.count() > MOST_CALLS {
            return Err(too_many_calls());
        }
        // Some servers send an empty reason with every chunk.
        if let Some(reason) = choice
            .get("finish_reason")
            .and_then(Value::as_str)
            .filter(|reason| !reason.is_empty())
        {
            self.finish = Some(reason.to_owned());
        }
        Ok(())
    }

    fn counted(&self) -> Option<Box<Discarded>> {
        let said = self.text.len() + self.thought.len() + self.refusal.len();
        Discarded::of(&self.model, self.usage, (said + self.calls.written()) as u64)
    }

    fn finish(self: Box<Self>) -> Result<Reply, Fault> {
        let ending = match self.finish.as_deref() {
            Some(word) => ending(word)?,
            None if self.done && !self.has_strange => Ending::Complete,
            None => return Err(Fault::cut()),
        };
        let length = ending == Ending::Length;
        let ReadCalls {
            parts: calls,
            kept,
            cut,
        } = read_calls(self.calls, self.turn, length)?;
        let refused = !self.refusal.is_empty() && calls.is_empty();
        let mut parts = Vec::new();
        // The service refuses an empty message when it is sent back.
        if !self.text.is_empty() || !kept.is_empty() {
            let mut message = Map::new();
            message.insert("role".into(), json!("assistant"));
            message.insert("content".into(), json!((!self.text.is_empty()).then_some(&self.text)));
            if !kept.is_empty() {
                message.insert("tool_calls".into(), json!(kept));
                if self.returns_thought {
                    message.insert("reasoning_content".into(), json!(self.thought));
                }
            }
            message.extend(self.extra);
            parts.push(Part::Opaque {
                vendor: super::VENDOR.to_owned(),
                model: self.asked,
                json: Value::Object(message),
            });
        }
        push_text(&mut parts, &self.thought, true);
        push_text(&mut parts, &self.text, false);
        if refused {
            push_text(&mut parts, &self.refusal, false);
            return Ok(Reply {
                parts,
                stop: StopReason::Refused { reason: self.refusal },
                usage: self.usage,
                model: self.model,
            });
        }
        parts.extend(calls);
        whole(parts, (ending, cut), self.usage, self.model)
    }
}

/// Whether a chunk has what belongs to a reply.
fn is_chunk(chunk: &Value) -> bool {
    let has = |key: &str| chunk.get(key).is_some_and(|value| !value.is_null());
    has("choices") || has("usage")
}

/// Whether what is no chunk of a reply has the form of an error, in the words of compatible servers (FastAPI, Text
/// Generation Inference, gateways).
fn says_error(value: &Value) -> bool {
    let has = |key: &str| value.get(key).is_some_and(|value| !value.is_null());
    let is_typed = value.get("type").and_then(Value::as_str) == Some("error");
    is_typed
        || ["message", "detail", "errors", "error_type", "code"]
            .into_iter()
            .any(has)
}

/// What a `finish_reason` means: OpenAI's own words, and those of compatible servers (Mistral, DeepSeek, vLLM and SGLang,
/// Text Generation Inference, Cohere, Zhipu).
fn ending(word: &str) -> Result<Ending, Fault> {
    Ok(match word.to_ascii_lowercase().as_str() {
        "stop" | "stop_sequence" | "end_turn" | "eos" | "eos_token" | "complete" | "completed" => Ending::Complete,
        "tool_calls" | "tool_call" | "tool_use" | "function_call" => Ending::Calls,
        "length" | "max_tokens" | "model_length" => Ending::Length,
        "content_filter" | "sensitive" => {
            let message = "the answer was blocked by a content filter";
            return Err(Fault::fatal(ProviderClass::Blocked, message));
        }
        "error" | "abort" | "aborted" | "cancelled" | "insufficient_system_resource" | "network_error" => {
            return Err(broken_off(word));
        }
        _ => Ending::unknown(word),
    })
}

/// The calls of a reply.
#[derive(Default)]
struct ReadCalls {
    parts: Vec<Part>,
    /// In the form to send back.
    kept: Vec<Value>,
    /// The tool of a call that was cut at the length limit.
    cut: Option<String>,
}

/// A call that was cut at the length limit is left out. The last call of a cut reply without any arguments was cut before
/// the first byte of them.
fn read_calls(pieces: Pieces, turn: u64, length: bool) -> Result<ReadCalls, Fault> {
    let mut read = ReadCalls::default();
    let pieces = pieces.into_calls();
    let last = pieces.len().saturating_sub(1);
    for (index, mut call) in pieces.into_iter().enumerate() {
        let is_unbegun = length && index == last && call.arguments.trim().is_empty();
        let Some(args) = object(&call.arguments).filter(|_| !is_unbegun) else {
            if length {
                read.cut = Some(call.name.clone()).filter(|name| !name.is_empty());
                continue;
            }
            let start = shortened(&call.arguments, 200);
            return Err(Fault::unusable(format!(
                "the arguments of a call of `{}` are not a JSON object: {start}",
                call.name
            )));
        };
        if call.name.is_empty() {
            return Err(Fault::unusable("the model sent a function call without a name"));
        }
        let id = call.id.clone().unwrap_or_else(|| format!("call_{turn}_{index}"));
        call.id = Some(id.clone());
        read.parts.push(Part::Call(ToolCall {
            id: CallId(format!("p{}", read.parts.len())),
            tool: call.name.clone(),
            args,
            wire_id: Some(id),
        }));
        read.kept.push(call.into_value());
    }
    Ok(read)
}

fn emit_progress(more: &str, live: &dyn Fn(ProgressEvent), make: fn(String) -> ProgressEvent) {
    if !more.is_empty() {
        live(make(more.to_owned()));
    }
}

/// Accumulates an unknown key: strings and lists are appended, anything else is replaced.
fn keep(extra: &mut Map<String, Value>, key: &str, value: &Value) {
    // Metadata of the response, not part of the conversation: servers refuse it in requests.
    if matches!(key, "annotations" | "audio" | "logprobs" | "tool_call_id" | "name") {
        return;
    }
    match (extra.get_mut(key), value) {
        (Some(Value::String(old)), Value::String(more)) => old.push_str(more),
        (Some(Value::Array(old)), Value::Array(more)) => old.extend(more.iter().cloned()),
        _ => {
            extra.insert(key.to_owned(), value.clone());
        }
    }
}

fn read_usage(usage: &Value) -> Option<Usage> {
    let count = |path: &str| usage.pointer(path).and_then(count);
    let input = count("/prompt_tokens")?;
    let cached = count("/prompt_tokens_details/cached_tokens").or_else(|| count("/prompt_cache_hit_tokens"));
    Some(Usage {
        input,
        cached: cached.unwrap_or(0),
        cache_write: count("/prompt_tokens_details/cache_write_tokens").unwrap_or(0),
        output: count("/completion_tokens").unwrap_or(0),
        reasoning: count("/completion_tokens_details/reasoning_tokens").unwrap_or(0),
        estimated: false,
    })
}
