//! The model services. Asks and returns whole replies; never executes anything.

pub mod fallback;
pub mod fault;
pub mod grounding;
pub mod http;
mod json;
pub mod open;
mod prefix;
pub mod pricing;
pub mod replay;
pub mod scripted;
pub mod unasked;
pub mod wire;

use crate::base::call::ToolSpec;
use crate::base::event::Live;
use crate::base::message::{Message, Reply};
use futures_util::future::BoxFuture;
use serde_json::Value;
use tokio_util::sync::CancellationToken;

/// A model that can be asked.
pub trait Provider: Send + Sync {
    /// What is known of the model before it is asked.
    fn info(&self) -> &ModelInfo;
    /// What a recording tells beside its replies; `None` where no recording is played again.
    fn recorded(&self) -> Option<&replay::Recorded> {
        None
    }
    /// What the reply to this request cost when it was recorded, in millionths of a US dollar.
    fn charged(&self, _turn: u64, _digest: &str) -> Option<u64> {
        Some(0)
    }
    /// One whole reply. Retries by itself within `cx.deadline`; what it tells through `cx.live` is display only.
    fn ask<'a>(&'a self, request: &'a Request<'a>, cx: AskContext<'a>) -> BoxFuture<'a, Result<Reply, ProviderError>>;
}

/// What is known of a model.
#[derive(Clone, Debug)]
pub struct ModelInfo {
    /// `PROVIDER/NAME`.
    pub id: String,
    /// Context window in tokens.
    pub window: Option<u64>,
    /// Whether replies come from a record and cost nothing.
    pub recorded: bool,
    /// Whether its server stands on this machine or in a private network: without a known price its replies cost nothing.
    pub nearby: bool,
}

/// What a user sets of the requests to a model.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RequestSettings {
    /// The longest reply, in tokens; `None` leaves it to the service.
    pub max_output_tokens: Option<u64>,
    /// How long the first byte of an answer is awaited; `None` for [`open::FIRST_BYTE`] or [`open::FIRST_BYTE_NEARBY`].
    pub first_byte_timeout: Option<std::time::Duration>,
}

/// One request. `messages` only ever grows at its end between two requests of a run, unless `epoch` changes.
#[derive(Clone, Copy, Debug)]
pub struct Request<'a> {
    /// Number of this turn in the run, from 1.
    pub turn: u64,
    pub system: &'a str,
    pub tools: &'a [ToolSpec],
    pub messages: &'a [Message],
    /// Counts rewritings of the history; a kept prefix of another epoch is worthless.
    pub epoch: u64,
    /// JSON Schema that the final answer must fit.
    pub response: Option<&'a Value>,
    /// Only the final answer is wanted now. Servers that constrain an answer by a grammar cannot call tools then, so that a wire may
    /// leave the tools out to be able to ask for the schema.
    pub answer_only: bool,
    /// SHA-256 over all of the above but `turn`, in hex.
    pub digest: &'a str,
}

/// How a request is made.
#[derive(Clone, Copy)]
pub struct AskContext<'a> {
    pub cancel: &'a CancellationToken,
    /// When the run's wall clock ends.
    pub deadline: std::time::Instant,
    pub live: &'a (dyn Fn(Live) + Send + Sync),
    /// Told of each retry: attempt, class, message, wait in milliseconds.
    pub retried: &'a (dyn Fn(u32, &str, &str, u64) + Send + Sync),
}

/// Why no reply came. `class` names are used in outcomes.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{class}: {message}")]
pub struct ProviderError {
    pub class: ProviderClass,
    pub message: String,
    /// For [`ProviderClass::ContextOverflow`]: tokens of the model's window, where the service told.
    pub window: Option<u64>,
}

impl ProviderError {
    /// A failure of a class, with a sentence that says who must act.
    pub fn new(class: ProviderClass, message: impl Into<String>) -> Self {
        Self {
            class,
            message: message.into(),
            window: None,
        }
    }
}

/// Classes of failure. All but the first three end a run with code 7.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProviderClass {
    /// The recorded run has no such request: exit 1. The message holds the diff.
    ReplayMiss,
    /// The run was cancelled while it waited.
    Cancelled,
    /// The service asks for a wait that is longer than the time which the run has left: exit 6.
    OutOfTime,
    /// Key refused.
    Auth,
    /// Quota used up for longer than we wait.
    Quota,
    /// Overloaded or failing after all retries.
    Unavailable,
    /// Connection, time-out, stream cut, after all retries.
    Transport,
    /// The request is not accepted: unknown model, bad argument.
    Rejected,
    /// The history is longer than the model's window.
    ContextOverflow,
    /// A safety block.
    Blocked,
    /// Answers that cannot be used (empty, malformed), after all retries.
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

    /// The name used in outcomes, for example `context_overflow`.
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
