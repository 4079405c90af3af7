//! The decoder of OpenAI Responses: builds a reply from stream events. Pure.

use super::super::calls::object;
use super::super::parts::{Ending, MOST_CALLS, broken_off, count, push_text, too_many_calls, whole};
use super::super::protocol::DecodeReply;

use crate::base::call::ToolCall;
use crate::base::event::ProgressEvent;
use crate::base::ids::CallId;
use crate::base::message::{Part, Reply, StopReason, Usage};
use crate::provider::fault::{self, Fault};
use crate::provider::{Discarded, ProviderClass};
use serde_json::{Value, json};

/// Builds a reply from events.
#[derive(Debug)]
pub struct ResponsesDecoder {
    asked: String,
    /// Finished output items as received, by index.
    items: Vec<(u64, Value)>,
    /// How many calls were received.
    calls: usize,
    usage: Usage,
    /// Bytes of text, reasoning and arguments so far.
    received: u64,
    end: Option<Ending>,
    model: String,
}

impl ResponsesDecoder {
    /// A decoder for a response of `model`.
    pub fn new(model: &str) -> Self {
        Self {
            asked: model.to_owned(),
            items: Vec::new(),
            calls: 0,
            usage: Usage::default(),
            received: 0,
            end: None,
            model: model.to_owned(),
        }
    }

    fn response(&mut self, response: &Value) -> Result<(), Fault> {
        if let Some(model) = response.get("model").and_then(Value::as_str) {
            model.clone_into(&mut self.model);
        }
        if let Some(usage) = response.get("usage").filter(|usage| usage.is_object()) {
            self.usage = read_usage(usage);
        }
        if self.items.is_empty() {
            let output = response.get("output").and_then(Value::as_array);
            if output.is_some_and(|items| items.iter().filter(|item| is_call(item)).count() > MOST_CALLS) {
                return Err(too_many_calls());
            }
            self.items = (0..).zip(output.into_iter().flatten().cloned()).collect();
        }
        let status = response.get("status").and_then(Value::as_str).unwrap_or("completed");
        let reason = response.pointer("/incomplete_details/reason").and_then(Value::as_str);
        match (status, reason) {
            ("failed", _) => return Err(fault::from_stream(response)),
            ("cancelled" | "in_progress" | "queued", _) => return Err(broken_off(status)),
            ("incomplete", Some("content_filter")) => {
                return Err(Fault::fatal(
                    ProviderClass::Blocked,
                    "the answer was blocked by a content filter",
                ));
            }
            ("incomplete", _) => self.end = Some(Ending::Length),
            ("completed", _) => self.end = Some(Ending::Complete),
            (word, _) => self.end = Some(Ending::unknown(word)),
        }
        Ok(())
    }
}

impl DecodeReply for ResponsesDecoder {
    fn is_done(&self) -> bool {
        self.end.is_some()
    }

    fn value(&mut self, event: &Value, live: &dyn Fn(ProgressEvent)) -> Result<(), Fault> {
        let kind = event.get("type").and_then(Value::as_str).unwrap_or_default();
        let delta = event.get("delta").and_then(Value::as_str).unwrap_or_default();
        if kind.ends_with(".delta") {
            self.received += delta.len() as u64;
        }
        match kind {
            "response.output_text.delta" => live(ProgressEvent::Text {
                delta: delta.to_owned(),
            }),
            "response.reasoning_summary_text.delta" | "response.reasoning_text.delta" => {
                live(ProgressEvent::Thought {
                    delta: delta.to_owned(),
                });
            }
            "response.output_item.done" => {
                let place = event.get("output_index").and_then(Value::as_u64);
                let place = place.unwrap_or(self.items.len() as u64);
                if let Some(item) = event.get("item") {
                    // Usually in order, so that nothing has to be searched.
                    if self.items.last().is_some_and(|(last, _)| *last >= place) {
                        self.items.retain(|(at, _)| *at != place);
                    }
                    self.items.push((place, item.clone()));
                    self.calls += usize::from(is_call(item));
                    if self.calls > MOST_CALLS {
                        return Err(too_many_calls());
                    }
                }
            }
            "response.completed" | "response.incomplete" | "response.failed" => {
                return self.response(event.get("response").unwrap_or(&Value::Null));
            }
            "error" => return Err(fault::from_stream(event)),
            "" if event.get("error").is_some_and(|error| !error.is_null()) && event.get("output").is_none() => {
                return Err(fault::from_stream(event));
            }
            "" if event.get("output").is_some() => return self.response(event),
            _ => {}
        }
        Ok(())
    }

    fn counted(&self) -> Option<Box<Discarded>> {
        Discarded::of(&self.model, self.usage, self.received)
    }

    fn finish(mut self: Box<Self>) -> Result<Reply, Fault> {
        let ending = self.end.take().ok_or_else(Fault::cut)?;
        let length = ending == Ending::Length;
        self.items.sort_by_key(|(place, _)| *place);
        let (mut parts, mut kept, mut refusal) = (Vec::new(), Vec::new(), String::new());
        let mut cut_call = None;
        let last = self.items.len().saturating_sub(1);
        for (at, (_, item)) in self.items.into_iter().enumerate() {
            let is_cut = length && is_unfinished_call(&item, at == last);
            if !is_cut && take(&item, length, &mut parts, &mut refusal)? {
                kept.push(item);
            } else {
                cut_call = item.get("name").and_then(Value::as_str).map(str::to_owned);
            }
        }
        // In a cut reply, reasoning must not be the last item: the service refuses it.
        while length
            && kept
                .last()
                .is_some_and(|item| item.get("type") == Some(&json!("reasoning")))
        {
            kept.pop();
        }
        if !kept.is_empty() {
            let received = Part::Opaque {
                vendor: super::VENDOR.to_owned(),
                model: self.asked,
                json: Value::Array(kept),
            };
            parts.insert(0, received);
        }
        let calls = parts.iter().any(|part| matches!(part, Part::Call(_)));
        if !refusal.is_empty() && !calls {
            push_text(&mut parts, &refusal, false);
            return Ok(Reply {
                parts,
                stop: StopReason::Refused { reason: refusal },
                usage: self.usage,
                model: self.model,
            });
        }
        whole(parts, (ending, cut_call), self.usage, self.model)
    }
}

fn is_call(item: &Value) -> bool {
    item.get("type").and_then(Value::as_str) == Some("function_call")
}

/// Whether this item of a reply that was cut at its length limit is a call that the service marks as incomplete, or the
/// last one without any arguments: it was cut before the first byte of them.
fn is_unfinished_call(item: &Value, last: bool) -> bool {
    let field = |key: &str| item.get(key).and_then(Value::as_str).unwrap_or_default();
    let is_unbegun = last && field("arguments").trim().is_empty();
    field("type") == "function_call" && (is_unbegun || field("status") == "incomplete")
}

/// Parses one item into neutral parts. Returns whether the item is complete and may be sent back.
fn take(item: &Value, length: bool, parts: &mut Vec<Part>, refusal: &mut String) -> Result<bool, Fault> {
    let text = |value: &Value, key: &str| value.get(key).and_then(Value::as_str).unwrap_or_default().to_owned();
    let list = |key: &str| item.get(key).and_then(Value::as_array).into_iter().flatten();
    match item.get("type").and_then(Value::as_str).unwrap_or_default() {
        "message" => {
            for content in list("content") {
                push_text(parts, &text(content, "text"), false);
                refusal.push_str(&text(content, "refusal"));
            }
        }
        "reasoning" => {
            for piece in list("summary").chain(list("content")) {
                push_text(parts, &text(piece, "text"), true);
            }
        }
        "function_call" => {
            let (name, arguments) = (text(item, "name"), text(item, "arguments"));
            let Some(args) = object(&arguments).filter(|_| !name.is_empty()) else {
                if length {
                    return Ok(false);
                }
                return Err(Fault::unusable(format!(
                    "the arguments of a call of `{name}` are not a JSON object"
                )));
            };
            let index = parts.iter().filter(|part| matches!(part, Part::Call(_))).count();
            parts.push(Part::Call(ToolCall {
                id: CallId(format!("p{index}")),
                tool: name,
                args,
                wire_id: Some(text(item, "call_id")).filter(|id| !id.is_empty()),
            }));
        }
        _ => {}
    }
    Ok(true)
}

fn read_usage(usage: &Value) -> Usage {
    let count = |path: &str| usage.pointer(path).and_then(count).unwrap_or(0);
    Usage {
        input: count("/input_tokens"),
        cached: count("/input_tokens_details/cached_tokens"),
        cache_write: count("/input_tokens_details/cache_write_tokens"),
        output: count("/output_tokens"),
        reasoning: count("/output_tokens_details/reasoning_tokens"),
        estimated: false,
    }
}
