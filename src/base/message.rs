//! The conversation in a vendor-neutral form. The provider wires translate it to and from their formats.

use super::call::ToolCall;
use super::content::{Media, ToolContent};
use super::ids::CallId;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// The author of a message. `Tool` messages carry the results of the calls of the assistant message before them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Role {
    User,
    Assistant,
    Tool,
}

/// One message of the history.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Message {
    pub role: Role,
    /// Its pieces, in order.
    pub parts: Vec<Part>,
}

impl Message {
    /// A user message of one text.
    pub fn user(text: impl Into<String>) -> Self {
        Self {
            role: Role::User,
            parts: vec![Part::text(text)],
        }
    }

    /// All text parts concatenated without a separator; thoughts are left out.
    pub fn text(&self) -> String {
        text_of(&self.parts)
    }
}

/// A piece of a message.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum Part {
    Text {
        /// The text.
        text: String,
    },
    /// Reasoning that the model shows. Never sent back in this form; `Opaque` carries it back.
    Thought {
        /// The text.
        text: String,
    },
    Media(Media),
    Call(ToolCall),
    Result(CallResult),
    /// The complete assistant content as the vendor sent it, including thought signatures. The wire of the same vendor
    /// sends `json` in place of all other parts of the message; other wires ignore it.
    Opaque {
        /// The vendor whose form it is.
        vendor: String,
        /// The model that wrote it.
        model: String,
        json: Value,
    },
}

impl Part {
    /// A text part.
    pub fn text(text: impl Into<String>) -> Self {
        Self::Text { text: text.into() }
    }
}

/// All text among `parts`, concatenated without a separator; thoughts are left out.
pub fn text_of(parts: &[Part]) -> String {
    parts
        .iter()
        .filter_map(|part| match part {
            Part::Text { text } => Some(text.as_str()),
            _ => None,
        })
        .collect()
}

/// The result of one call.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct CallResult {
    pub call: CallId,
    /// The tool's name as the model wrote it.
    pub tool: String,
    /// The vendor's id of the call, echoed back if there was one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wire_id: Option<String>,
    /// What the model gets.
    pub content: Vec<ToolContent>,
    /// Whether the call failed.
    pub is_error: bool,
}

/// One complete reply of a model.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Reply {
    /// Its pieces, in order.
    pub parts: Vec<Part>,
    pub stop: StopReason,
    pub usage: Usage,
    /// The model that answered, as the vendor names it.
    pub model: String,
}

impl Reply {
    /// The calls that the model requests, in order.
    pub fn calls(&self) -> impl Iterator<Item = &ToolCall> {
        self.parts.iter().filter_map(|part| match part {
            Part::Call(call) => Some(call),
            _ => None,
        })
    }

    /// The visible text.
    pub fn text(&self) -> String {
        text_of(&self.parts)
    }
}

/// Why the model stopped.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(tag = "why", rename_all = "snake_case")]
pub enum StopReason {
    /// The reply is complete.
    End,
    /// The model waits for the results of its calls.
    Calls,
    /// The reply was cut at its length limit.
    Length {
        /// The tool of a call that was cut off; that call is not among the reply's calls.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        call: Option<String>,
    },
    /// The service paused and continues when the reply is sent back to it.
    Paused,
    /// The service ended the reply with a word that this program does not know.
    Unknown {
        /// The word.
        reason: String,
    },
    /// A safety filter or the model itself refused.
    Refused {
        /// What the service or the model said.
        reason: String,
    },
}

/// Tokens of one request as counted by the vendor, or as estimated.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Usage {
    /// Prompt tokens, including cached ones.
    pub input: u64,
    /// Of these, read from the vendor's cache.
    pub cached: u64,
    /// Of these, written to the vendor's cache.
    #[serde(default)]
    pub cache_write: u64,
    /// Output tokens, including reasoning.
    pub output: u64,
    /// Of these, reasoning.
    pub reasoning: u64,
    /// Whether the service sent no usable counts, so that input or output is estimated from the bytes sent and received.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub estimated: bool,
}

impl Usage {
    /// Input and output together.
    pub fn total(&self) -> u64 {
        self.input + self.output
    }

    /// Adds the figures of another request.
    pub fn add(&mut self, other: Usage) {
        self.input += other.input;
        self.cached += other.cached;
        self.cache_write += other.cache_write;
        self.output += other.output;
        self.reasoning += other.reasoning;
        self.estimated |= other.estimated;
    }
}
