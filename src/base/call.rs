//! Tool calls: what a tool is, the life of one call, and what comes back. Knows no tool.

use super::grant::{Judged, Undone};
use super::ids::CallId;
use super::message::Content;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// A call as the model asked for it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ToolCall {
    pub id: CallId,
    /// The name as the model wrote it; an alias stays an alias.
    pub tool: String,
    /// A JSON object.
    pub args: Value,
    /// The vendor's own id, echoed in the result.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wire_id: Option<String>,
}

/// What a tool does to the world. Policies name it as `kind:read`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    Read,
    Search,
    Edit,
    Execute,
    Fetch,
    Plan,
    Other,
}

impl Kind {
    /// Whether calls of this kind may run side by side and may be run again after an interruption.
    pub fn is_read_only(self) -> bool {
        matches!(self, Kind::Read | Kind::Search | Kind::Fetch)
    }

    /// The word used in policies and listings.
    pub fn as_str(self) -> &'static str {
        match self {
            Kind::Read => "read",
            Kind::Search => "search",
            Kind::Edit => "edit",
            Kind::Execute => "execute",
            Kind::Fetch => "fetch",
            Kind::Plan => "plan",
            Kind::Other => "other",
        }
    }
}

/// Where a tool comes from. Policies name it as `origin:discovered`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Origin {
    Builtin,
    Discovered,
    /// An MCP server, by the name the recipe gives it.
    Mcp(String),
}

/// What the model and the listings are told of a tool.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ToolSpec {
    pub name: String,
    pub display_name: String,
    pub description: String,
    pub kind: Kind,
    pub origin: Origin,
    /// JSON Schema of the arguments: an object.
    pub parameters: Value,
    /// Older names that are accepted too.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub aliases: Vec<String>,
}

/// The seven states of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CallState {
    Validating,
    AwaitingApproval,
    Scheduled,
    Executing,
    Success,
    Error,
    Cancelled,
}

impl CallState {
    /// Whether nothing follows.
    pub fn is_final(self) -> bool {
        matches!(self, Self::Success | Self::Error | Self::Cancelled)
    }

    /// Whether `next` may follow. A read found `Executing` after a crash is ruled again, and waits or runs
    /// again.
    pub fn may_become(self, next: Self) -> bool {
        use CallState::{AwaitingApproval, Cancelled, Error, Executing, Scheduled, Success, Validating};
        match self {
            Validating => matches!(next, AwaitingApproval | Scheduled | Error | Cancelled),
            AwaitingApproval => matches!(next, Scheduled | Error | Cancelled),
            Scheduled => matches!(next, Executing | Error | Cancelled),
            Executing => matches!(next, AwaitingApproval | Scheduled | Success | Error | Cancelled),
            Success | Error | Cancelled => false,
        }
    }
}

/// What came of a call: one text for the model, one for people, and where it went.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ToolOutput {
    /// What the model reads.
    pub content: Vec<Content>,
    /// What a person reads.
    pub display: Display,
    /// One line.
    pub summary: String,
    /// Places touched, relative to the workspace.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub locations: Vec<Location>,
    /// Set when the tool failed; the message is the one in `content`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<ToolFailure>,
    /// The whole text, where `content` shows only a part of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kept: Option<Kept>,
    /// For commands: how it ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exit: Option<ExitInfo>,
    /// For commands: programs that were judged at their exec. They have an event of their own.
    #[serde(skip)]
    pub judged: Judged,
    /// For commands: changes that were not granted and were undone. They have an event of their own.
    #[serde(skip)]
    pub undone: Vec<Undone>,
}

impl ToolOutput {
    /// A text result: the same for model and person.
    pub fn text(text: impl Into<String>, summary: impl Into<String>) -> Self {
        let text = text.into();
        Self {
            content: vec![Content::text(text.clone())],
            display: Display::Text { text },
            summary: summary.into(),
            ..Self::default()
        }
    }

    /// A failure that the model is told.
    pub fn failure(kind: impl Into<String>, message: impl Into<String>) -> Self {
        let message = message.into();
        Self {
            error: Some(ToolFailure {
                kind: kind.into(),
                message: message.clone(),
            }),
            ..Self::text(message.clone(), first_line(&message))
        }
    }

    /// All text of `content`, joined by newlines.
    pub fn model_text(&self) -> String {
        let texts: Vec<&str> = self
            .content
            .iter()
            .filter_map(|content| match content {
                Content::Text { text } => Some(text.as_str()),
                Content::Media(_) => None,
            })
            .collect();
        texts.join("\n")
    }
}

fn first_line(text: &str) -> String {
    text.lines().next().unwrap_or_default().to_owned()
}

/// What a person is shown.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum Display {
    Text { text: String },
    Diff(FileDiff),
    Todos { todos: Vec<Todo> },
}

impl Default for Display {
    fn default() -> Self {
        Self::Text { text: String::new() }
    }
}

/// A change of one file, whole. Texts over 256 KiB are left out and `diff` alone remains.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct FileDiff {
    /// Relative to the workspace.
    pub path: String,
    /// Unified diff, for reading.
    pub diff: String,
    /// `None` for a new file.
    pub original: Option<String>,
    /// `None` when left out for its size.
    pub new: Option<String>,
    pub added: u64,
    pub removed: u64,
}

/// A line of the model's own plan.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Todo {
    pub description: String,
    /// `pending`, `in_progress`, `completed`, `cancelled` or `blocked`.
    pub status: String,
}

/// A place in the workspace.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Location {
    pub path: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub line: Option<u64>,
}

/// A tool's own failure.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ToolFailure {
    /// One of the names in the tool documentation, for example `file_not_found`.
    pub kind: String,
    pub message: String,
}

impl ToolFailure {
    /// The reason code, when the call was denied while it ran: a change that was undone, a redirect to a host that no rule lists.
    pub fn denial(&self) -> Option<&str> {
        match self.kind.as_str() {
            kind @ ("denied" | "protected_path" | "secret_hit") => Some(kind),
            kind => kind.strip_prefix("denied:"),
        }
    }
}

/// Where the whole of a result lies: `results/<id>` in the run directory, for the model `overnight:result/<id>`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Kept {
    pub id: String,
    /// Bytes that the tool produced.
    pub bytes: u64,
    /// Bytes of these that were not kept.
    pub omitted: u64,
}

/// How a command ended.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExitInfo {
    /// `None` when a signal ended it.
    pub code: Option<i32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub signal: Option<i32>,
    #[serde(default)]
    pub timed_out: bool,
    /// Processes of its tree that were still alive at the end and were killed.
    #[serde(default)]
    pub leftovers: u32,
    /// The limit on the memory of its tree, in bytes, for which it was killed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory_limit: Option<u64>,
}
