//! The decoder of Anthropic Messages: builds a reply from stream events. Pure.

use super::super::parts::{Ending, MOST_CALLS, count, push_text, too_many_calls, whole};
use super::super::protocol::DecodeReply;
use crate::base::call::ToolCall;
use crate::base::event::ProgressEvent;
use crate::base::ids::CallId;
use crate::base::message::{Part, Reply, Usage};
use crate::provider::fault::{self, Fault};
use crate::provider::{Discarded, ProviderClass};
use serde_json::{Map, Value, json};

/// Builds a reply from events.
#[derive(Debug)]
pub struct AnthropicDecoder {
    asked: String,
    blocks: Vec<Block>,
    /// How many of the blocks are calls.
    calls: usize,
    usage: Usage,
    stop: Option<String>,
    done: bool,
    model: String,
}

/// A content block as received, and the JSON text of a call's input while it is incomplete.
#[derive(Debug)]
struct Block {
    index: u64,
    value: Map<String, Value>,
    input: String,
    closed: bool,
}

impl AnthropicDecoder {
    /// A decoder for a response of `model`.
    pub fn new(model: &str) -> Self {
        Self {
            asked: model.to_owned(),
            blocks: Vec::new(),
            calls: 0,
            usage: Usage::default(),
            stop: None,
            done: false,
            model: model.to_owned(),
        }
    }

    fn begin(&mut self, message: &Value) {
        if let Some(model) = message.get("model").and_then(Value::as_str) {
            model.clone_into(&mut self.model);
        }
        self.count(message.get("usage"));
    }

    fn open(&mut self, index: u64, block: &Value, closed: bool) -> Result<(), Fault> {
        self.calls += usize::from(block.get("type") == Some(&json!("tool_use")));
        if self.calls > MOST_CALLS {
            return Err(too_many_calls());
        }
        if let Some(value) = block.as_object() {
            self.blocks.push(Block {
                index,
                value: value.clone(),
                input: String::new(),
                closed,
            });
        }
        Ok(())
    }

    /// Later counts are cumulative and may omit unchanged values. This vendor counts cached tokens separately from the
    /// input; in [`Usage`] the input includes them.
    fn count(&mut self, usage: Option<&Value>) {
        let Some(usage) = usage else { return };
        let count = |key: &str| usage.get(key).and_then(count);
        let old = self.usage;
        let cached = count("cache_read_input_tokens").unwrap_or(old.cached);
        let cache_write = count("cache_creation_input_tokens").unwrap_or(old.cache_write);
        let fresh = count("input_tokens").unwrap_or(old.input.saturating_sub(old.cached + old.cache_write));
        self.usage = Usage {
            input: fresh + cached + cache_write,
            cached,
            cache_write,
            output: count("output_tokens").unwrap_or(old.output),
            reasoning: 0,
            estimated: false,
        };
    }
}

impl DecodeReply for AnthropicDecoder {
    fn is_done(&self) -> bool {
        self.done
    }

    fn value(&mut self, event: &Value, live: &dyn Fn(ProgressEvent)) -> Result<(), Fault> {
        let index = event.get("index").and_then(Value::as_u64).unwrap_or(0);
        match event.get("type").and_then(Value::as_str).unwrap_or_default() {
            "message_start" => self.begin(event.get("message").unwrap_or(&Value::Null)),
            "message" => {
                self.begin(event);
                let content = event.get("content").and_then(Value::as_array);
                for (index, block) in (0..).zip(content.into_iter().flatten()) {
                    self.open(index, block, true)?;
                }
                self.stop = event.get("stop_reason").and_then(Value::as_str).map(str::to_owned);
                self.done = true;
            }
            "content_block_start" => {
                return self.open(index, event.get("content_block").unwrap_or(&Value::Null), false);
            }
            "content_block_delta" => {
                let block = self.blocks.iter_mut().rev().find(|block| block.index == index);
                if let (Some(block), Some(delta)) = (block, event.get("delta")) {
                    block.grow(delta, live);
                }
            }
            "content_block_stop" => {
                if let Some(block) = self.blocks.iter_mut().rev().find(|block| block.index == index) {
                    block.closed = true;
                }
            }
            "message_delta" => {
                if let Some(reason) = event.pointer("/delta/stop_reason").and_then(Value::as_str) {
                    self.stop = Some(reason.to_owned());
                }
                self.count(event.get("usage"));
            }
            "message_stop" => self.done = true,
            "error" => return Err(fault::from_stream(event)),
            "" if event.get("error").is_some_and(|error| !error.is_null()) => return Err(fault::from_stream(event)),
            _ => {}
        }
        Ok(())
    }

    fn counted(&self) -> Option<Box<Discarded>> {
        let received: usize = self.blocks.iter().map(Block::written).sum();
        Discarded::of(&self.model, self.usage, received as u64)
    }

    fn finish(self: Box<Self>) -> Result<Reply, Fault> {
        if !self.done {
            return Err(Fault::cut());
        }
        let ending = match self.stop.as_deref() {
            Some("end_turn" | "stop_sequence") => Ending::Complete,
            Some("tool_use") => Ending::Calls,
            Some("max_tokens") => Ending::Length,
            Some("pause_turn") => Ending::Paused,
            Some("refusal") => {
                return Err(Fault::fatal(
                    ProviderClass::Blocked,
                    "the service refused to answer (refusal)",
                ));
            }
            Some("model_context_window_exceeded") => {
                return Err(Fault::fatal(
                    ProviderClass::ContextOverflow,
                    "the model's context window is full (model_context_window_exceeded)",
                ));
            }
            Some(word) => Ending::unknown(word),
            None => return Err(Fault::cut()),
        };
        let length = ending == Ending::Length;
        let (mut parts, mut kept) = (Vec::new(), Vec::new());
        let mut cut_call = None;
        let last = self.blocks.len().saturating_sub(1);
        for (at, block) in self.blocks.into_iter().enumerate() {
            let whole = block.closed || !length;
            let name = block.value.get("name").and_then(Value::as_str).map(str::to_owned);
            match block.finish(length, at == last)? {
                None => cut_call = name.filter(|name| !name.is_empty()),
                Some(value) => {
                    take(&value, &mut parts);
                    if whole {
                        kept.push(value);
                    }
                }
            }
        }
        // The service rejects text that is only white space when it is sent back.
        kept.retain(|block| {
            block.get("type") != Some(&json!("text"))
                || block
                    .get("text")
                    .and_then(Value::as_str)
                    .is_some_and(|text| !text.trim().is_empty())
        });
        if !kept.is_empty() {
            let received = Part::Opaque {
                vendor: super::VENDOR.to_owned(),
                model: self.asked,
                json: Value::Array(kept),
            };
            parts.insert(0, received);
        }
        whole(parts, (ending, cut_call), self.usage, self.model)
    }
}

impl Block {
    /// Bytes of content so far.
    fn written(&self) -> usize {
        let text = |key: &str| self.value.get(key).and_then(Value::as_str).map_or(0, str::len);
        text("text") + text("thinking") + self.input.len()
    }

    fn grow(&mut self, delta: &Value, live: &dyn Fn(ProgressEvent)) {
        let text = |key: &str| delta.get(key).and_then(Value::as_str).unwrap_or_default();
        match text("type") {
            "text_delta" => {
                self.append("text", text("text"));
                live(ProgressEvent::Text {
                    delta: text("text").to_owned(),
                });
            }
            "thinking_delta" => {
                self.append("thinking", text("thinking"));
                live(ProgressEvent::Thought {
                    delta: text("thinking").to_owned(),
                });
            }
            "signature_delta" => self.append("signature", text("signature")),
            "input_json_delta" => self.input.push_str(text("partial_json")),
            "citations_delta" => {
                let list = self.value.entry("citations").or_insert_with(|| json!([]));
                if let (Some(list), Some(one)) = (list.as_array_mut(), delta.get("citation")) {
                    list.push(one.clone());
                }
            }
            _ => {}
        }
    }

    fn append(&mut self, key: &str, more: &str) {
        match self.value.get_mut(key) {
            Some(Value::String(text)) => text.push_str(more),
            _ => {
                self.value.insert(key.to_owned(), json!(more));
            }
        }
    }

    /// The block with its input parsed; `None` for a call that was cut at the length limit. `last`: no block follows.
    ///
    /// The service ends a block that it cut like any other, so only its input shows the cut. The last call of a cut
    /// reply without any input was cut before the first byte of it.
    fn finish(mut self, length: bool, last: bool) -> Result<Option<Value>, Fault> {
        if !self.input.trim().is_empty() {
            match serde_json::from_str::<Value>(&self.input) {
                Ok(input) => {
                    self.value.insert("input".into(), input);
                }
                Err(_) if length => return Ok(None),
                Err(_) => return Err(Fault::unusable("the input of a call is not JSON")),
            }
        }
        let is_call = self.value.get("type") == Some(&json!("tool_use"));
        if is_call && length && (!self.closed || last && self.has_no_input()) {
            return Ok(None);
        }
        let named = self
            .value
            .get("name")
            .and_then(Value::as_str)
            .is_some_and(|name| !name.is_empty());
        if is_call && (!named || !self.value.get("input").is_some_and(Value::is_object)) {
            return Err(Fault::unusable(
                "the model sent a call without a name or with an input that is not an object",
            ));
        }
        Ok(Some(Value::Object(self.value)))
    }

    /// Whether nothing of a call's input was sent. An input that was streamed as `{}` was sent.
    fn has_no_input(&self) -> bool {
        let input = self.value.get("input").and_then(Value::as_object);
        self.input.trim().is_empty() && input.is_none_or(Map::is_empty)
    }
}

fn take(block: &Value, parts: &mut Vec<Part>) {
    let text = |key: &str| block.get(key).and_then(Value::as_str).unwrap_or_default();
    match text("type") {
        "text" => push_text(parts, text("text"), false),
        "thinking" => push_text(parts, text("thinking"), true),
        "tool_use" => {
            let index = parts.iter().filter(|part| matches!(part, Part::Call(_))).count();
            parts.push(Part::Call(ToolCall {
                id: CallId(format!("p{index}")),
                tool: text("name").to_owned(),
                args: block.get("input").cloned().unwrap_or_else(|| json!({})),
                wire_id: Some(text("id").to_owned()).filter(|id| !id.is_empty()),
            }));
        }
        _ => {}
    }
}
