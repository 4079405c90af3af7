//! Model services: providers send requests and return complete replies. They never execute anything.

pub mod fallback;
pub mod fault;
pub mod grounding;
pub mod http;
mod json;
pub mod no_provider;
pub mod open;
mod prefix;
pub mod pricing;
pub mod recorded_run;
pub mod replay;
pub mod scripted;
pub mod wire;

use crate::base::call::ToolSpec;
use crate::base::event::ProgressEvent;
use crate::base::message::{Message, Reply, Usage};
use futures_util::future::BoxFuture;
use recorded_run::RecordedRun;
use serde_json::Value;
use tokio_util::sync::CancellationToken;

/// A model that can be asked.
pub trait Provider: Send + Sync {
    /// Properties of the model that are known before the first request.
    fn info(&self) -> &ModelInfo;
    /// The recorded data besides the replies; `None` unless a recording is replayed.
    fn recorded(&self) -> Option<&RecordedRun> {
        None
    }
    /// The recorded cost of the reply to this request, in millionths of a US dollar.
    fn charged(&self, _turn: u64, _digest: &str) -> Option<u64> {
        Some(0)
    }
    /// Returns one complete reply. Retries by itself within `cx.deadline`; what it sends to `cx.live` is for display
    /// only.
    ///
    /// # Errors
    /// [`ProviderError`]: no complete reply came within the deadline, or the service refused the request.
    fn ask<'a>(
        &'a self,
        request: &'a ModelRequest<'a>,
        cx: AskContext<'a>,
    ) -> BoxFuture<'a, Result<Reply, ProviderError>>;
}

/// Properties of a model.
#[derive(Clone, Debug)]
pub struct ModelInfo {
    /// `PROVIDER/NAME`.
    pub id: String,
    /// Context window in tokens.
    pub window: Option<u64>,
    /// Whether replies come from a recording and cost nothing.
    pub recorded: bool,
    /// Whether its server is on this machine or in a private network; without a known price its replies then cost
    /// nothing.
    pub nearby: bool,
}

/// Settings of the requests that a user can choose.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RequestSettings {
    /// Limit of a reply, in tokens; `None` leaves it to the service.
    pub max_output_tokens: Option<u64>,
    /// Time limit for the first byte of a response; `None` for [`open::FIRST_BYTE`] or [`open::FIRST_BYTE_NEARBY`].
    pub first_byte_timeout: Option<std::time::Duration>,
}

/// One request. Between two requests of a run, `messages` only grows at its end, unless `epoch` changes.
#[derive(Clone, Copy, Debug)]
pub struct ModelRequest<'a> {
    /// Number of this turn in the run, from 1.
    pub turn: u64,
    pub system: &'a str,
    pub tools: &'a [ToolSpec],
    pub messages: &'a [Message],
    /// Number of times the history was rewritten; an encoded prefix of another epoch is invalid.
    pub epoch: u64,
    /// JSON Schema of the final answer.
    pub response: Option<&'a Value>,
    /// Only the final answer is wanted now. Servers that constrain output by a grammar cannot call tools at the same
    /// time, so a wire may omit the tools to be able to send the schema.
    pub answer_only: bool,
    /// SHA-256 over `system`, `tools`, `messages` and `response`, in hex.
    pub digest: &'a str,
}

/// Context of one request.
#[derive(Clone, Copy)]
pub struct AskContext<'a> {
    pub cancel: &'a CancellationToken,
    /// Deadline of the run's wall clock.
    pub deadline: std::time::Instant,
    pub live: &'a (dyn Fn(ProgressEvent) + Send + Sync),
    /// Called when an attempt failed and another one follows, also by the next model of a fallback (then with attempt
    /// 0).
    pub retried: &'a (dyn Fn(FailedAttempt<'_>) + Send + Sync),
    /// Whether the run's limits of tokens and cost leave room for another attempt. `Some`: the reply that the failed
    /// attempt discarded, which is not in `retried` yet.
    pub has_room: &'a (dyn Fn(Option<&Discarded>) -> bool + Send + Sync),
}

/// A failed attempt at a request.
#[derive(Clone, Copy, Debug)]
pub struct FailedAttempt<'a> {
    /// Number of the attempt, from 1; 0 when another model is asked.
    pub attempt: u32,
    /// The class of the error.
    pub class: &'a str,
    pub message: &'a str,
    /// Time until the next attempt, in milliseconds.
    pub wait_ms: u64,
    pub discarded: Option<&'a Discarded>,
}

/// A reply that could not be used: the service charges for it too.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Discarded {
    /// The model's name, as in [`Reply`].
    pub model: String,
    /// What the service counted.
    pub usage: Usage,
    /// Bytes of content that were received and that the counts may not include; 0 if the counts are final.
    pub received: u64,
    /// For a recorded reply: its recorded cost, in millionths of a US dollar.
    pub cost_micros: Option<u64>,
}

impl Discarded {
    /// `None` if nothing was counted and no content was received.
    fn of(model: &str, usage: Usage, received: u64) -> Option<Box<Self>> {
        let discarded = Self {
            model: model.to_owned(),
            usage,
            received,
            cost_micros: None,
        };
        (usage.total() > 0 || received > 0).then(|| Box::new(discarded))
    }
}

/// Why no reply came. Outcomes contain the `class` names.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{class}: {message}")]
pub struct ProviderError {
    pub class: ProviderClass,
    pub message: String,
    /// For [`ProviderClass::ContextOverflow`]: the model's context window in tokens, if the service named it.
    pub window: Option<u64>,
    /// The reply of the last attempt, if it was discarded.
    pub discarded: Option<Box<Discarded>>,
}

impl ProviderError {
    /// A failure of a class, with a sentence that says who must act.
    pub fn new(class: ProviderClass, message: impl Into<String>) -> Self {
        Self {
            class,
            message: message.into(),
            window: None,
            discarded: None,
        }
    }
}

/// Classes of failure. All except the first three end a run with exit code 7.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProviderClass {
    /// The recorded run has no such request: exit code 1. The message contains the diff.
    ReplayMiss,
    /// The run was cancelled during a wait.
    Cancelled,
    /// The service asks for a wait that is longer than the time left in the run: exit code 6.
    OutOfTime,
    /// The key was refused.
    Auth,
    /// The quota is used up for longer than the wait limit.
    Quota,
    /// Overloaded or failing after all retries.
    Unavailable,
    /// No connection, time-out or cut stream, after all retries.
    Transport,
    /// The request is not accepted: unknown model, invalid argument.
    Rejected,
    /// The history exceeds the model's context window.
    ContextOverflow,
    /// Blocked by a safety filter.
    Blocked,
    /// Responses that cannot be used, such as malformed ones, after all retries. An empty answer is a reply.
    Unusable,
}

impl ProviderClass {
    /// All classes.
    pub const ALL: [ProviderClass; 11] = [
        Self::ReplayMiss,
        Self::Cancelled,
        Self::OutOfTime,
        Self::Auth,
        Self::Quota,
        Self::Unavailable,
        Self::Transport,
        Self::Rejected,
        Self::ContextOverflow,
        Self::Blocked,
        Self::Unusable,
    ];

    /// The name in outcomes, for example `context_overflow`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::ReplayMiss => "replay_miss",
            Self::Cancelled => "cancelled",
            Self::OutOfTime => "out_of_time",
            Self::Auth => "auth",
            Self::Quota => "quota",
            Self::Unavailable => "unavailable",
            Self::Transport => "transport",
            Self::Rejected => "rejected",
            Self::ContextOverflow => "context_overflow",
            Self::Blocked => "blocked",
            Self::Unusable => "unusable",
        }
    }
}

impl std::fmt::Display for ProviderClass {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.as_str())
    }
}
