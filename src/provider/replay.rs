//! `replay:RUN`: returns the replies of a recorded run, each only for exactly the recorded request. Pure: the caller
//! folds the journal.

use super::recorded_run::RecordedRun;
use super::scripted::{emit_progress, readable};
use super::{AskContext, Discarded, FailedAttempt, ModelInfo, ModelRequest, Provider, ProviderClass, ProviderError};
use crate::base::call::ToolSpec;
use crate::base::event::DiscardedReply;
use crate::base::message::{Message, Reply, Role};
use crate::base::quote::counted;
use futures_util::future::BoxFuture;
use similar::{ChangeTag, TextDiff};

/// Limits of a shown difference: its lines, and the length of each.
const LINES: usize = 60;
const COLUMNS: usize = 400;

/// One recorded turn.
#[derive(Clone, Debug)]
pub struct RecordedTurn {
    pub turn: u64,
    /// The digest of the request, as `Replied` holds it.
    pub asked: String,
    pub reply: Reply,
    /// The cost of the reply when it was recorded; `None` when no price was known.
    pub cost_micros: Option<u64>,
    /// The replies that were discarded before this one, each with the class of its failure: they were paid for, so they
    /// count against the limits of the replay as well.
    pub discarded: Vec<(String, DiscardedReply)>,
}

/// A recorded request, rebuilt from the journal when a difference must be shown.
#[derive(Clone, Debug)]
pub struct RecordedRequest {
    pub system: String,
    pub messages: Vec<Message>,
    /// `None` where the journal does not contain the declarations.
    pub tools: Option<Vec<ToolSpec>>,
}

/// Returns the recorded request of a turn. Called only when a request differs.
pub type Recall = Box<dyn Fn(u64) -> Option<RecordedRequest> + Send + Sync>;

/// The replies of a recorded run.
pub struct Replay {
    info: ModelInfo,
    turns: Vec<RecordedTurn>,
    recorded: RecordedRun,
    recall: Recall,
}

impl Replay {
    /// A provider for a recording. `id` is the model as the user named it (`replay:RUN`). Several recordings of one
    /// turn (in a resumed run) are distinguished by their digests.
    pub fn new(id: &str, turns: Vec<RecordedTurn>, recorded: RecordedRun, recall: Recall) -> Self {
        Self {
            info: ModelInfo {
                id: id.to_owned(),
                window: recorded.window,
                recorded: true,
                nearby: false,
            },
            turns,
            recorded,
            recall,
        }
    }

    fn answer(&self, request: &ModelRequest<'_>, cx: &AskContext<'_>) -> Result<Reply, ProviderError> {
        if cx.cancel.is_cancelled() {
            let message = "cancelled before the reply came";
            return Err(ProviderError::new(ProviderClass::Cancelled, message));
        }
        if let Some(window) = self.recorded.overflows.get(request.digest) {
            let message = "the recorded request was longer than the model's window";
            return Err(ProviderError {
                window: *window,
                ..ProviderError::new(ProviderClass::ContextOverflow, message)
            });
        }
        let mut of_turn = self.turns.iter().filter(|turn| turn.turn == request.turn).peekable();
        if of_turn.peek().is_none() {
            return Err(miss(format!(
                "the recording has {}, but turn {} was asked for",
                counted(self.turns.len(), "turn"),
                request.turn
            )));
        }
        match of_turn.find(|turn| turn.asked == request.digest) {
            Some(turn) => {
                discard_again(turn, cx);
                emit_progress(&turn.reply, cx.live);
                Ok(turn.reply.clone())
            }
            None => Err(miss(self.difference(request))),
        }
    }

    fn difference(&self, request: &ModelRequest<'_>) -> String {
        let turn = request.turn;
        let Some(recorded) = (self.recall)(turn) else {
            return format!("turn {turn}: the request is not the recorded one, which cannot be shown");
        };
        if recorded.system != request.system {
            let shown = diff(&recorded.system, request.system);
            return format!("turn {turn}: the system text is not the recorded one\n{shown}");
        }
        let differing = recorded
            .messages
            .iter()
            .zip(request.messages)
            .position(|(old, new)| old != new)
            .or_else(|| {
                let shorter = recorded.messages.len().min(request.messages.len());
                (recorded.messages.len() != request.messages.len()).then_some(shorter)
            });
        if let Some(at) = differing {
            let (old, new) = (recorded.messages.get(at), request.messages.get(at));
            let shown = diff_messages(old, new);
            let who = role(old.or(new));
            return format!(
                "turn {turn}: message {} ({who}) is not the recorded one\n{shown}",
                at + 1
            );
        }
        match &recorded.tools {
            Some(tools) if tools.as_slice() != request.tools => {
                let shown = diff(&declarations(tools), &declarations(request.tools));
                format!("turn {turn}: the tools declared are not the recorded ones\n{shown}")
            }
            _ => format!(
                "turn {turn}: system text and messages are the recorded ones; the tools declared or the response schema are not"
            ),
        }
    }
}

impl Provider for Replay {
    fn info(&self) -> &ModelInfo {
        &self.info
    }

    fn recorded(&self) -> Option<&RecordedRun> {
        Some(&self.recorded)
    }

    fn charged(&self, turn: u64, digest: &str) -> Option<u64> {
        let same = |recorded: &&RecordedTurn| recorded.turn == turn && recorded.asked == digest;
        self.turns.iter().find(same)?.cost_micros
    }

    fn ask<'a>(
        &'a self,
        request: &'a ModelRequest<'a>,
        cx: AskContext<'a>,
    ) -> BoxFuture<'a, Result<Reply, ProviderError>> {
        Box::pin(async move { self.answer(request, &cx) })
    }
}

/// Reports the replies that were discarded before this one, with what they cost.
fn discard_again(turn: &RecordedTurn, cx: &AskContext<'_>) {
    for (attempt, (class, reply)) in (1..).zip(&turn.discarded) {
        let discarded = Discarded {
            model: turn.reply.model.clone(),
            usage: reply.usage,
            received: 0,
            cost_micros: reply.cost_micros,
        };
        (cx.retried)(FailedAttempt {
            attempt,
            class,
            message: "the recorded reply could not be used",
            wait_ms: 0,
            discarded: Some(&discarded),
        });
    }
}

fn miss(message: String) -> ProviderError {
    ProviderError::new(ProviderClass::ReplayMiss, message)
}

fn role(message: Option<&Message>) -> &'static str {
    match message.map(|message| message.role) {
        Some(Role::User) => "user",
        Some(Role::Assistant) => "assistant",
        Some(Role::Tool) => "tool results",
        None => "none",
    }
}

fn diff_messages(old: Option<&Message>, new: Option<&Message>) -> String {
    let text = |message: Option<&Message>| message.map(readable).unwrap_or_default();
    let (before, after) = (text(old), text(new));
    if before != after {
        return diff(&before, &after);
    }
    // The difference is not in readable text (but for example in a signature), so everything is shown.
    let whole = |message: Option<&Message>| {
        message
            .and_then(|message| serde_json::to_string_pretty(message).ok())
            .unwrap_or_default()
    };
    diff(&whole(old), &whole(new))
}

fn declarations(tools: &[ToolSpec]) -> String {
    let lines: Vec<String> = tools
        .iter()
        .map(|tool| format!("{}: {}\n{:#}", tool.name, tool.description, tool.parameters))
        .collect();
    lines.join("\n")
}

/// Changed lines with two lines of context: `-` recorded, `+` new. Limited in lines and columns.
pub fn diff(old: &str, new: &str) -> String {
    let diff = TextDiff::from_lines(old, new);
    let mut out = Vec::new();
    for group in diff.grouped_ops(2) {
        for change in group.iter().flat_map(|op| diff.iter_changes(op)) {
            let sign = match change.tag() {
                ChangeTag::Delete => '-',
                ChangeTag::Insert => '+',
                ChangeTag::Equal => ' ',
            };
            out.push(format!("{sign} {}", cut(change.value().trim_end_matches(['\n', '\r']))));
        }
    }
    let more = out.len().saturating_sub(LINES);
    out.truncate(LINES);
    if more > 0 {
        out.push(format!("  … {}", counted(more, "more line")));
    }
    out.join("\n")
}

fn cut(line: &str) -> String {
    match line.char_indices().nth(COLUMNS) {
        Some((end, _)) => format!("{}…", &line[..end]),
        None => line.to_owned(),
    }
}

#[cfg(test)]
mod tests;
