//! Tool calls: the declaration of a tool, the states of a call, and its result.

use super::content::ToolContent;
use super::grant::{JudgedPrograms, Undone};
use super::ids::CallId;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// A call as the model requested it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct ToolCall {
    pub id: CallId,
    /// The name as the model wrote it, which may be an alias.
    pub tool: String,
    /// A JSON object.
    pub args: Value,
    /// The vendor's id of the call, echoed in the result.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wire_id: Option<String>,
}

/// What a tool does. Policies refer to it as `kind:read`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum ToolKind {
    Read,
    Search,
    Edit,
    Execute,
    Fetch,
    Plan,
    Other,
}

impl ToolKind {
    /// Whether calls of this kind may run in parallel and may be repeated after an interruption.
    pub fn is_read_only(self) -> bool {
        matches!(self, ToolKind::Read | ToolKind::Search | ToolKind::Fetch)
    }

    /// The word used in policies and listings.
    pub fn as_str(self) -> &'static str {
        match self {
            ToolKind::Read => "read",
            ToolKind::Search => "search",
            ToolKind::Edit => "edit",
            ToolKind::Execute => "execute",
            ToolKind::Fetch => "fetch",
            ToolKind::Plan => "plan",
            ToolKind::Other => "other",
        }
    }
}

/// Where a tool comes from. Policies refer to it as `origin:discovered`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum ToolOrigin {
    Builtin,
    Discovered,
    /// An MCP server, by its name in the recipe.
    Mcp(String),
}

/// What the arguments of a built-in tool name, which determines how a policy rule can narrow it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ArgumentTarget {
    /// Nothing that a rule can narrow.
    #[default]
    Nothing,
    /// A directory that is read.
    Directory,
    /// A file that is read.
    File,
    /// Paths or glob patterns of files that are read.
    Patterns,
    /// A file that is written.
    WrittenFile,
    /// Shell text.
    Commands,
    /// URLs.
    Urls,
}

impl ArgumentTarget {
    /// Whether `paths` of a rule can narrow it.
    pub fn is_path(self) -> bool {
        !matches!(
            self,
            ArgumentTarget::Nothing | ArgumentTarget::Commands | ArgumentTarget::Urls
        )
    }
}

/// What a replay does with a call of a tool.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Replayed {
    /// It runs, and its result must equal the recorded one.
    Runs,
    /// It runs. If its output differs, the model receives the recorded one and a warning shows both.
    #[default]
    RunsSoftly,
    /// It does not run, because it depends on the outside or on the moment; the recorded result is used.
    Recorded,
}

/// When a built-in tool is offered to the model.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Offered {
    /// In each run whose policies could allow a call.
    #[default]
    Always,
    /// Whenever commands are: it only shows commands that this run started itself, and needs no rule.
    WithCommands,
    /// If a web search is configured.
    WithSearch,
    /// If an MCP server has resources.
    WithResources,
}

/// What policy, secret detection and replay must know about a tool. The default is for tools that are not built in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ToolEffects {
    pub touches: ArgumentTarget,
    /// Whether the arguments leave the run, in files, commands or requests. Such a call is denied if they contain a
    /// secret.
    pub sends_arguments: bool,
    pub replayed: Replayed,
    /// Whether the model receives contents of the files that the arguments name: a rule that denies such a tool a path
    /// denies it to commands too.
    pub shows_contents: bool,
    pub offered: Offered,
}

impl Default for ToolEffects {
    fn default() -> Self {
        Self {
            touches: ArgumentTarget::Nothing,
            sends_arguments: true,
            replayed: Replayed::RunsSoftly,
            shows_contents: false,
            offered: Offered::Always,
        }
    }
}

impl ToolEffects {
    /// A tool that only reads what it touches in the tree.
    pub const fn reads(touches: ArgumentTarget) -> Self {
        Self {
            touches,
            sends_arguments: false,
            replayed: Replayed::Runs,
            shows_contents: false,
            offered: Offered::Always,
        }
    }

    /// A tool that gives the model contents of the files that it reads in the tree.
    pub const fn shows(touches: ArgumentTarget) -> Self {
        Self {
            shows_contents: true,
            ..Self::reads(touches)
        }
    }

    /// A tool that writes its arguments into a file of the tree.
    pub const fn writes(touches: ArgumentTarget) -> Self {
        Self {
            sends_arguments: true,
            ..Self::reads(touches)
        }
    }

    /// A tool that reaches the outside: a replay takes its recorded result.
    pub const fn reaches_outside(touches: ArgumentTarget) -> Self {
        Self {
            replayed: Replayed::Recorded,
            ..Self::writes(touches)
        }
    }

    /// Whether a call can change files of the tree: by itself, or by the commands that it runs.
    pub fn can_write(&self) -> bool {
        matches!(self.touches, ArgumentTarget::WrittenFile | ArgumentTarget::Commands)
    }
}

/// The declaration of a tool for the model and for listings.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct ToolSpec {
    /// The canonical name.
    pub name: String,
    /// The name for people.
    pub display_name: String,
    /// What the model is told about it.
    pub description: String,
    pub kind: ToolKind,
    pub origin: ToolOrigin,
    /// JSON Schema of the arguments; an object.
    pub parameters: Value,
    /// Older names that are also accepted.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub aliases: Vec<String>,
    #[serde(skip)]
    pub effects: ToolEffects,
}

impl ToolSpec {
    /// Whether it is its name or one of its older names.
    pub fn is_called(&self, name: &str) -> bool {
        self.name == name || self.aliases.iter().any(|alias| alias == name)
    }
}

/// The seven states of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
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
    /// Whether no other state can follow.
    pub fn is_final(self) -> bool {
        matches!(self, Self::Success | Self::Error | Self::Cancelled)
    }
}

/// The result of a call: content for the model, a display for people, and the places that it touched.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct ToolOutput {
    /// For the model.
    pub content: Vec<ToolContent>,
    /// For people.
    pub display: Display,
    /// One line for people.
    pub summary: String,
    /// Places that were touched, relative to the workspace.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub locations: Vec<Location>,
    /// The failure if the tool failed; its message is also in `content`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<ToolFailure>,
    /// The complete text, if `content` shows only a part of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kept: Option<Kept>,
    /// For commands: how the command ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exit: Option<ExitInfo>,
    /// For commands: programs that were judged at their exec. Recorded in a separate event.
    #[serde(skip)]
    pub judged: JudgedPrograms,
    /// For commands: changes without a grant that were undone. Recorded in a separate event.
    #[serde(skip)]
    pub undone: Vec<Undone>,
}

impl ToolOutput {
    /// A text result with the same text for model and people.
    pub fn text(text: impl Into<String>, summary: impl Into<String>) -> Self {
        let text = text.into();
        Self {
            content: vec![ToolContent::text(text.clone())],
            display: Display::Text { text },
            summary: summary.into(),
            ..Self::default()
        }
    }

    /// A failure that is reported to the model.
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
                ToolContent::Text { text } => Some(text.as_str()),
                ToolContent::Media(_) => None,
            })
            .collect();
        texts.join("\n")
    }
}

fn first_line(text: &str) -> String {
    text.lines().next().unwrap_or_default().to_owned()
}

/// What people see.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum Display {
    Text {
        /// The text.
        text: String,
    },
    Diff(FileDiff),
    Todos {
        /// The list.
        todos: Vec<Todo>,
    },
}

impl Default for Display {
    fn default() -> Self {
        Self::Text { text: String::new() }
    }
}

/// The complete change of one file. Texts over 256 KiB are left out, and only `diff` remains.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct FileDiff {
    /// Relative to the workspace.
    pub path: String,
    /// Unified diff, for reading.
    pub diff: String,
    /// Null for a new file.
    pub original: Option<String>,
    /// Null if left out because of its size.
    pub new: Option<String>,
    /// Lines added.
    pub added: u64,
    /// Lines removed.
    pub removed: u64,
}

/// An item of the model's own plan.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Todo {
    /// What is to be done.
    pub description: String,
    /// `pending`, `in_progress`, `completed`, `cancelled` or `blocked`.
    pub status: String,
}

/// A place in the workspace.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Location {
    /// The path, relative to the workspace if inside it.
    pub path: String,
    /// The line, from 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub line: Option<u64>,
}

/// A failure of the tool.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct ToolFailure {
    /// One of the names in the tool documentation, for example `file_not_found`.
    pub kind: String,
    /// What went wrong, and what to do instead.
    pub message: String,
}

impl ToolFailure {
    /// The reason code if the call was denied while it ran: a change that was undone, or a redirect to a host that no
    /// rule lists.
    pub fn denial(&self) -> Option<&str> {
        match self.kind.as_str() {
            kind @ ("denied" | "protected_path" | "secret_hit") => Some(kind),
            kind => kind.strip_prefix("denied:"),
        }
    }
}

/// Where the complete result is stored: `results/<id>` in the run directory, which the model reads as
/// `overnight:result/<id>`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Kept {
    /// The name under which it is kept.
    pub id: String,
    /// Bytes that the tool produced.
    pub bytes: u64,
    /// Bytes of these that were not stored.
    pub omitted: u64,
}

/// How a command ended.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct ExitInfo {
    /// Null if a signal ended it.
    pub code: Option<i32>,
    /// The signal that ended it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub signal: Option<i32>,
    /// Whether its time was up.
    #[serde(default)]
    pub timed_out: bool,
    /// Number of processes of its tree that were still alive at the end and were killed.
    #[serde(default)]
    pub leftovers: u32,
    /// The memory limit of its tree in bytes, if it was killed for exceeding it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory_limit: Option<u64>,
}

impl ExitInfo {
    /// How the command ended: `exit code 1`, `signal 9`, or `no exit code`. Says nothing of its limits.
    pub fn ending(&self) -> String {
        match (self.code, self.signal) {
            (Some(code), _) => format!("exit code {code}"),
            (None, Some(signal)) => format!("signal {signal}"),
            (None, None) => "no exit code".to_owned(),
        }
    }
}
