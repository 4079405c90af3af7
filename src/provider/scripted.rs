//! `script:FILE`: returns hand-written replies in order. Pure: the caller reads the file.
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
//! | `error` | `{ class, message }`: the provider fails with this class of [`ProviderClass`] |
//! | `expect` | a text that must occur in the last message; if it does not, the turn is a replay miss |
//! | `delay_ms` | how long the reply takes |

mod read;

use super::{AskContext, ModelInfo, ModelRequest, Provider, ProviderClass, ProviderError};
use crate::base::content::ToolContent;
use crate::base::event::ProgressEvent;
use crate::base::message::{Message, Part, Reply};
use crate::base::quote::counted;
use crate::base::secret::shortened;
use crate::diag::{Diagnostic, SourceFiles, SourceId};
use crate::net::wait::{WaitEnd, pause};
use futures_util::future::BoxFuture;
use std::time::Duration;

/// How many characters of the last message are shown when the script has no further reply.
const LAST: usize = 200;

/// A model whose replies come from a script.
#[derive(Debug)]
pub struct Scripted {
    info: ModelInfo,
    replies: Vec<Line>,
}

/// One reply of a script.
#[derive(Debug)]
struct Line {
    says: Result<Reply, ProviderError>,
    expect: Option<String>,
    delay: Duration,
}

impl Scripted {
    /// Parses a script. `id` is the model as the user named it (`script:FILE`).
    ///
    /// # Errors
    /// Every problem with its position: unknown keys, wrong types, duplicate keys, a reply without content.
    pub fn parse(id: &str, files: &SourceFiles, file: SourceId) -> Result<Self, Vec<Diagnostic>> {
        Ok(Self {
            info: ModelInfo {
                id: id.to_owned(),
                window: None,
                recorded: true,
                nearby: false,
            },
            replies: read::script(id, files, file)?,
        })
    }

    async fn answer(&self, request: &ModelRequest<'_>, cx: AskContext<'_>) -> Result<Reply, ProviderError> {
        let index = usize::try_from(request.turn.saturating_sub(1)).unwrap_or(usize::MAX);
        let line = self.replies.get(index).ok_or_else(|| {
            let has = counted(self.replies.len(), "reply");
            // What the model was to answer says why there was another turn.
            let last = request.messages.last().map(readable).unwrap_or_default();
            let last = last.split_whitespace().collect::<Vec<_>>().join(" ");
            miss(format!(
                "the script has {has}, but turn {} was asked for, after this message: {}",
                request.turn,
                shortened(&last, LAST)
            ))
        })?;
        let end = match line.delay {
            Duration::ZERO if cx.cancel.is_cancelled() => WaitEnd::Cancelled,
            Duration::ZERO => WaitEnd::Over,
            delay => pause(delay, cx.deadline, cx.cancel).await,
        };
        if end != WaitEnd::Over {
            let message = "cancelled while waiting for the reply";
            return Err(ProviderError::new(ProviderClass::Cancelled, message));
        }
        if let Some(wanted) = &line.expect {
            expect(wanted, request)?;
        }
        let reply = line.says.clone()?;
        emit_progress(&reply, cx.live);
        Ok(reply)
    }
}

impl Provider for Scripted {
    fn info(&self) -> &ModelInfo {
        &self.info
    }

    fn ask<'a>(
        &'a self,
        request: &'a ModelRequest<'a>,
        cx: AskContext<'a>,
    ) -> BoxFuture<'a, Result<Reply, ProviderError>> {
        Box::pin(self.answer(request, cx))
    }
}

/// Sends a complete reply to the live display.
pub(super) fn emit_progress(reply: &Reply, live: &(dyn Fn(ProgressEvent) + Send + Sync)) {
    for part in &reply.parts {
        match part {
            Part::Text { text } => live(ProgressEvent::Text { delta: text.clone() }),
            Part::Thought { text } => live(ProgressEvent::Thought { delta: text.clone() }),
            _ => {}
        }
    }
}

fn expect(wanted: &str, request: &ModelRequest<'_>) -> Result<(), ProviderError> {
    let seen = request.messages.last().map(readable).unwrap_or_default();
    if seen.contains(wanted) {
        return Ok(());
    }
    let shown: String = seen.chars().take(2_000).collect();
    // One line, which stands alone where only the first line of a message is shown.
    let named: String = wanted.chars().take(200).collect();
    Err(miss(format!(
        "turn {}: the script expects the last message to contain {named:?}, which is not there\n- {wanted}\n+ {}",
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
                    ToolContent::Text { text } => text.clone(),
                    ToolContent::Media(media) => format!("({} of {} base64 bytes)", media.mime, media.data.len()),
                }));
            }
            Part::Opaque { vendor, model, .. } => lines.push(format!("(as received from {vendor} {model})")),
        }
    }
    lines.join("\n")
}

#[cfg(test)]
mod tests;
