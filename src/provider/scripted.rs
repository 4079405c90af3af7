//! `script:FILE`: replies written by hand, given out in order. Reads no file: the text is handed in.
//!
//! ```yaml
//! replies:
//!   - text: I will look first.
//!     calls:
//!       - { tool: read_file, args: { file_path: src/lib.rs } }
//!   - text: Done.
//!     usage: { input: 10, output: 5 }
//!   - error: { class: unavailable, message: overloaded }
//!   - text: '{"summary": "x"}'
//! ```
//!
//! Keys of a reply, all optional, at least one of `text`, `thought`, `calls`, `error`, `stop` present:
//!
//! | key | meaning |
//! | --- | --- |
//! | `text` | what the model says |
//! | `thought` | reasoning that is shown |
//! | `calls` | a list of `{ tool, args }`; `args` is a mapping and may be left out |
//! | `usage` | `input`, `cached`, `cache_write`, `output`, `reasoning`; all 0 by default |
//! | `stop` | `end`, `calls`, `length` or `refused`; by default what `calls` suggests |
//! | `error` | `{ class, message }`: the provider fails so, with a class of [`ProviderClass`] |
//! | `expect` | a text that must occur in the last message; if it does not, the turn is a replay miss |
//! | `delay_ms` | how long the reply takes |

use super::{AskContext, ModelInfo, Provider, ProviderClass, ProviderError, Request};
use crate::base::call::ToolCall;
use crate::base::event::Live;
use crate::base::ids::CallId;
use crate::base::message::{Content, Message, Part, Reply, Stop, Usage};
use crate::net::wait::{Pause, pause};
use futures_util::future::BoxFuture;
use serde::Deserialize;
use serde_json::{Map, Value};
use std::time::Duration;

/// A model that says what a file says.
#[derive(Debug)]
pub struct Scripted {
    info: ModelInfo,
    replies: Vec<Line>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Script {
    replies: Vec<Line>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Line {
    text: Option<String>,
    thought: Option<String>,
    #[serde(default)]
    calls: Vec<LineCall>,
    #[serde(default)]
    usage: LineUsage,
    stop: Option<LineStop>,
    error: Option<LineError>,
    expect: Option<String>,
    #[serde(default)]
    delay_ms: u64,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct LineCall {
    tool: String,
    #[serde(default)]
    args: Map<String, Value>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct LineUsage {
    input: u64,
    cached: u64,
    cache_write: u64,
    output: u64,
    reasoning: u64,
}

#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(rename_all = "snake_case")]
enum LineStop {
    End,
    Calls,
    Length,
    Refused,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct LineError {
    class: ProviderClass,
    message: String,
}

impl Scripted {
    /// Reads a script. `id` is the model as the user named it (`script:FILE`).
    ///
    /// # Errors
    /// One sentence with line and column: unknown keys, wrong types, duplicate keys, a reply without content.
    pub fn parse(id: &str, text: &str) -> Result<Self, String> {
        let script: Script = serde_saphyr::from_str(text).map_err(|error| error.without_snippet().to_string())?;
        for (index, line) in script.replies.iter().enumerate() {
            let speaks = line.text.is_some() || line.thought.is_some() || !line.calls.is_empty() || line.stop.is_some();
            if line.error.is_some() == speaks {
                return Err(format!(
                    "reply {}: write either `error` or what the model says (`text`, `thought`, `calls`, `stop`)",
                    index + 1
                ));
            }
        }
        Ok(Self {
            info: ModelInfo {
                id: id.to_owned(),
                window: None,
                recorded: true,
            },
            replies: script.replies,
        })
    }

    async fn answer(&self, request: &Request<'_>, cx: AskContext<'_>) -> Result<Reply, ProviderError> {
        let index = usize::try_from(request.turn.saturating_sub(1)).unwrap_or(usize::MAX);
        let line = self.replies.get(index).ok_or_else(|| {
            miss(format!(
                "the script has {} replies, but turn {} was asked for",
                self.replies.len(),
                request.turn
            ))
        })?;
        if line.delay_ms > 0 {
            let end = pause(Duration::from_millis(line.delay_ms), cx.deadline, cx.cancel).await;
            if end != Pause::Over {
                return Err(ProviderError::new(
                    ProviderClass::Cancelled,
                    "cancelled while the reply was awaited",
                ));
            }
        }
        if cx.cancel.is_cancelled() {
            return Err(ProviderError::new(
                ProviderClass::Cancelled,
                "cancelled before the reply came",
            ));
        }
        if let Some(wanted) = &line.expect {
            expect(wanted, request)?;
        }
        if let Some(error) = &line.error {
            return Err(ProviderError::new(error.class, error.message.clone()));
        }
        let reply = line.reply(&self.info.id);
        tell(&reply, cx.live);
        Ok(reply)
    }
}

impl Provider for Scripted {
    fn info(&self) -> &ModelInfo {
        &self.info
    }

    fn ask<'a>(&'a self, request: &'a Request<'a>, cx: AskContext<'a>) -> BoxFuture<'a, Result<Reply, ProviderError>> {
        Box::pin(self.answer(request, cx))
    }
}

impl Line {
    fn reply(&self, model: &str) -> Reply {
        let mut parts = Vec::new();
        if let Some(text) = &self.thought {
            parts.push(Part::Thought { text: text.clone() });
        }
        if let Some(text) = &self.text {
            parts.push(Part::text(text.clone()));
        }
        for (index, call) in self.calls.iter().enumerate() {
            parts.push(Part::Call(ToolCall {
                id: CallId(format!("p{index}")),
                tool: call.tool.clone(),
                args: Value::Object(call.args.clone()),
                wire_id: None,
            }));
        }
        let stop = match self.stop {
            Some(LineStop::End) => Stop::End,
            Some(LineStop::Calls) => Stop::Calls,
            Some(LineStop::Length) => Stop::Length,
            Some(LineStop::Refused) => Stop::Refused {
                reason: self.text.clone().unwrap_or_else(|| "refused".to_owned()),
            },
            None if self.calls.is_empty() => Stop::End,
            None => Stop::Calls,
        };
        Reply {
            parts,
            stop,
            usage: Usage {
                input: self.usage.input,
                cached: self.usage.cached,
                cache_write: self.usage.cache_write,
                output: self.usage.output,
                reasoning: self.usage.reasoning,
            },
            model: model.to_owned(),
        }
    }
}

/// Shows a reply that is whole from the beginning.
pub(super) fn tell(reply: &Reply, live: &(dyn Fn(Live) + Send + Sync)) {
    for part in &reply.parts {
        match part {
            Part::Text { text } => live(Live::Text { delta: text.clone() }),
            Part::Thought { text } => live(Live::Thought { delta: text.clone() }),
            _ => {}
        }
    }
}

fn expect(wanted: &str, request: &Request<'_>) -> Result<(), ProviderError> {
    let seen = request.messages.last().map(readable).unwrap_or_default();
    if seen.contains(wanted) {
        return Ok(());
    }
    let shown: String = seen.chars().take(2_000).collect();
    Err(miss(format!(
        "turn {}: the script expects the last message to contain a text that is not there\n- {wanted}\n+ {}",
        request.turn,
        shown.replace('\n', "\n+ ")
    )))
}

fn miss(message: String) -> ProviderError {
    ProviderError::new(ProviderClass::ReplayMiss, message)
}

/// A message as lines that a person can read and compare: text, calls with their arguments, results.
pub(super) fn readable(message: &Message) -> String {
    let mut lines = Vec::new();
    for part in &message.parts {
        match part {
            Part::Text { text } => lines.push(text.clone()),
            Part::Thought { text } => lines.push(format!("(thought) {text}")),
            Part::Media(media) => lines.push(format!("({} of {} base64 bytes)", media.mime, media.data.len())),
            Part::Call(call) => lines.push(format!("(call {}) {} {}", call.id, call.tool, call.args)),
            Part::Result(result) => {
                let state = if result.is_error { "error" } else { "result" };
                lines.push(format!("({state} of {} {})", result.call, result.tool));
                lines.extend(result.content.iter().map(|content| match content {
                    Content::Text { text } => text.clone(),
                    Content::Media(media) => format!("({} of {} base64 bytes)", media.mime, media.data.len()),
                }));
            }
            Part::Opaque { vendor, model, .. } => lines.push(format!("(as received from {vendor} {model})")),
        }
    }
    lines.join("\n")
}

#[cfg(test)]
mod tests;
