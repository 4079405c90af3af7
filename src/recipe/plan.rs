//! The plan: a recipe with every value filled in, in the form that is run, journaled and resumed.

use crate::base::budget::Budget;
use crate::base::ids::{StepId, sha256_hex};
use crate::base::quote::counted;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::collections::BTreeMap;

/// What a run will do. Serialized into the journal and identified by its SHA-256.
///
/// A prompt (`template::render`) and the commands of steps and checks (`template::render_command`) stay templates until
/// they are used, because they may refer to earlier steps; [`Plan::scope`] has their variables. All else is filled in.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Plan {
    pub name: String,
    pub description: String,
    pub steps: Vec<PlanStep>,
    /// Limits of the whole run, defaults filled in.
    pub budget: Budget,
    pub on_deny: OnDeny,
    /// The change that the whole run is expected to make. A step's own `expect` is judged for that step as well.
    pub expect: Expect,
    /// Skill files or folders that are added to the context: paths relative to the workspace.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub skills: Vec<String>,
    /// Whether saved memory is added to the context.
    #[serde(default)]
    pub memory: bool,
    /// Context files to read before the first request, in order: paths relative to the workspace, `@` removed.
    pub context: Vec<String>,
    /// The context files without which the run does not begin.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub required_context: Vec<String>,
    pub tools: ToolPlan,
    /// JSON Schema of the final answer.
    pub response: Option<Value>,
    /// How often an answer that does not match is sent back.
    pub response_retries: u32,
    /// The recipe's model, as written; a flag takes precedence.
    pub model: Option<String>,
    /// Further models, in order, for when one fails permanently.
    #[serde(default)]
    pub fallback: Vec<String>,
    /// Settings of the requests to the models.
    #[serde(default, skip_serializing_if = "ModelSettings::is_default")]
    pub model_settings: ModelSettings,
    /// The parameters with their values, for display and for rendering step templates.
    pub values: BTreeMap<String, Value>,
    /// The value of `--input`: JSON, a list of the objects of JSON Lines, or text.
    pub input: Option<Value>,
    #[serde(default, skip_serializing_if = "InputFormat::is_json")]
    pub input_format: InputFormat,
    /// Ignored directories that `--isolate` copies or layers, relative to the workspace.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub isolate_keep: Vec<String>,
    /// How `overnight deliver` presents the change.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deliver: Option<DeliverPlan>,
}

/// How a change is presented: the recipe's `deliver` block. Texts are templates over `answer`, `result`, `summary` and
/// the parameters, rendered at delivery.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct DeliverPlan {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub title: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub body: Option<String>,
    /// The commit message without its trailers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub commit: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub branch: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub base: Option<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub labels: Vec<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub reviewers: Vec<String>,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub draft: bool,
}

impl Plan {
    /// Whether any step asks a model.
    pub fn asks(&self) -> bool {
        self.steps
            .iter()
            .any(|step| matches!(step.work, StepWork::Prompt { .. }))
    }

    /// SHA-256 of the plan's JSON in lower-case hex: the plan's identity in the journal.
    pub fn digest(&self) -> String {
        let json = serde_json::to_vec(self).unwrap_or_default();
        sha256_hex(&[&json])
    }
}

/// The format of the input.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum InputFormat {
    /// One JSON document.
    #[default]
    Json,
    /// One JSON object per line; templates see a list of them.
    Jsonl,
    /// Any text; templates see it as one string.
    Text,
}

impl InputFormat {
    /// The words in recipes.
    pub const WORDS: [(&'static str, InputFormat); 3] = [
        ("json", InputFormat::Json),
        ("jsonl", InputFormat::Jsonl),
        ("text", InputFormat::Text),
    ];

    /// Whether it is the default.
    pub fn is_json(&self) -> bool {
        *self == Self::Json
    }

    /// The name in messages.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Json => "JSON",
            Self::Jsonl => "JSON Lines",
            Self::Text => "text",
        }
    }

    /// The file name extension for such an input.
    pub fn extension(self) -> &'static str {
        match self {
            Self::Json => "json",
            Self::Jsonl => "jsonl",
            Self::Text => "txt",
        }
    }
}

/// Request settings from a recipe or a flag.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ModelSettings {
    /// Limit of a reply, in tokens; `None` leaves it to the service.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_output_tokens: Option<u64>,
    /// Time limit for the first byte of a response, in milliseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub first_byte_timeout_ms: Option<u64>,
}

impl ModelSettings {
    /// Whether nothing is set.
    pub fn is_default(&self) -> bool {
        *self == Self::default()
    }

    /// These settings, overridden by those set in `flags`.
    #[must_use]
    pub fn overridden(self, flags: ModelSettings) -> Self {
        Self {
            max_output_tokens: flags.max_output_tokens.or(self.max_output_tokens),
            first_byte_timeout_ms: flags.first_byte_timeout_ms.or(self.first_byte_timeout_ms),
        }
    }
}

/// A step: a prompt for the model, or a command.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PlanStep {
    pub id: StepId,
    /// An expression over parameters, input and earlier steps, evaluated when the step is reached; where it is false the
    /// step is skipped.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub when: Option<String>,
    pub work: StepWork,
    /// Whether the step's answer or output must be findings; the check `findings` verifies it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub findings: bool,
    pub checks: Vec<Check>,
    /// How often failing checks are sent back to the model.
    pub retries: u32,
    /// Whether a further attempt starts a new conversation with the task and the failed checks, without the earlier
    /// attempt's messages.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub fresh: bool,
    pub expect: Expect,
    pub skip_if_green: bool,
    /// Lowers the run's budget for this step.
    pub budget: Option<Budget>,
}

impl PlanStep {
    /// Whether a check is about the step's answer. If such a step is a command, its stdout is recorded separately and at
    /// greater length, because a program reads it.
    pub fn checks_answer(&self) -> bool {
        self.checks.iter().any(|check| check.what.is_of_answer())
    }
}

/// The action of a step.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StepWork {
    Prompt {
        /// Appended to the server's prompt, if there is one; may then be empty.
        template: String,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        mcp: Option<McpPrompt>,
    },
    Run {
        command: String,
        timeout_ms: u64,
        allow_failure: bool,
    },
}

/// A prompt of an MCP server, requested before the first step.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct McpPrompt {
    pub server: String,
    /// The server's name for the prompt.
    pub name: String,
    pub arguments: BTreeMap<String, String>,
}

/// A check that `overnight` makes itself.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Check {
    pub name: String,
    pub what: CheckWhat,
}

/// The kinds of checks.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CheckWhat {
    /// A command that must exit with 0.
    Run { command: String, timeout_ms: u64 },
    /// Limits on the run's changes so far.
    Changed(ChangeLimits),
    /// A file that must exist (`exists`), and may have to contain a text.
    File { path: String, contains: Option<String> },
    /// A command that gets the step's answer on stdin and must exit with 0.
    AnswerRun { command: String, timeout_ms: u64 },
    /// A JSON Schema that the step's answer must match.
    AnswerSchema { schema: Value },
}

impl CheckWhat {
    /// Whether the check is about the step's answer.
    pub fn is_of_answer(&self) -> bool {
        matches!(self, Self::AnswerRun { .. } | Self::AnswerSchema { .. })
    }
}

/// Limits on the run's changes.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ChangeLimits {
    /// Globs; every changed path must match one.
    pub only: Vec<String>,
    /// Globs that no changed path may match.
    pub never: Vec<String>,
    pub max_files: Option<u64>,
    /// Added and removed lines together.
    pub max_lines: Option<u64>,
}

impl ChangeLimits {
    /// The limits in one line, for people.
    pub fn described(&self) -> String {
        let mut parts = Vec::new();
        if !self.only.is_empty() {
            parts.push(format!("only {}", self.only.join(", ")));
        }
        if !self.never.is_empty() {
            parts.push(format!("never {}", self.never.join(", ")));
        }
        if let Some(files) = self.max_files {
            parts.push(format!("at most {}", counted(files, "file")));
        }
        if let Some(lines) = self.max_lines {
            parts.push(format!("at most {}", counted(lines, "line")));
        }
        format!("changes: {}", parts.join("; "))
    }
}

/// The effect of a denial on the run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OnDeny {
    /// The model gets the denial and continues.
    #[default]
    Tell,
    /// The run ends with exit code 4.
    Stop,
}

/// The change to the tree that is expected.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Expect {
    Change,
    NoChange,
    #[default]
    Any,
}

/// The available tools.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ToolPlan {
    /// When set, only these.
    pub include: Option<Vec<String>>,
    pub exclude: Vec<String>,
    pub mcp_servers: BTreeMap<String, McpServer>,
    pub discovery: Option<Discovery>,
    /// The recipe's additional ignore patterns, in `.gitignore` format.
    pub ignore: Vec<String>,
    /// When set, the only built-in tools; other tools are not affected.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub builtin: Option<Vec<String>>,
    /// Commands that the recipe's settings leave out; they narrow what policies allow.
    #[serde(default, skip_serializing_if = "ShellLimits::is_none")]
    pub shell: ShellLimits,
}

/// Limits on commands, as word prefixes.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ShellLimits {
    /// When set, no other commands.
    pub only: Option<Vec<String>>,
    pub never: Vec<String>,
}

impl ShellLimits {
    /// Whether nothing is limited.
    pub fn is_none(&self) -> bool {
        self.only.is_none() && self.never.is_empty()
    }
}

impl ToolPlan {
    /// Whether programs must be started to get the tools: a discovery command, or a server on this machine.
    pub fn starts_programs(&self) -> bool {
        self.discovery.is_some() || self.mcp_servers.values().any(|server| server.command.is_some())
    }
}

/// A discovery command, and the command that calls discovered tools.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Discovery {
    pub command: String,
    pub call: String,
}

/// An MCP server of the recipe. Exactly one of `command` and `url` is set.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct McpServer {
    pub command: Option<String>,
    pub args: Vec<String>,
    /// Whether `command` and `args` may contain `${NAME}` of the environment, as those of imported settings; expanded when
    /// the server is started.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub expands_command: bool,
    pub env: BTreeMap<String, String>,
    pub cwd: Option<String>,
    pub url: Option<String>,
    /// `http` or `sse`; `None` detects it from the response.
    pub transport: Option<String>,
    /// Values may contain `$NAME` or `${NAME}` of the environment; expanded when the server is started.
    pub headers: BTreeMap<String, String>,
    pub required: bool,
    pub timeout_ms: Option<u64>,
    pub include_tools: Option<Vec<String>>,
    pub exclude_tools: Vec<String>,
    /// Hosts that a stdio server may reach.
    pub network: Vec<String>,
    /// Whether a stdio server may write the workspace; otherwise it gets it read-only.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub writes_tree: bool,
    /// OAuth client credentials, when set.
    pub oauth: Option<ClientCredentials>,
}

/// OAuth client credentials; values may contain `$NAME`. Exactly one of `client_secret` and `private_key` is set.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ClientCredentials {
    pub client_id: String,
    #[serde(default)]
    pub client_secret: Option<String>,
    /// Private key in PEM format; signs the client assertion that replaces a secret (RFC 7523).
    #[serde(default)]
    pub private_key: Option<String>,
    pub scopes: Vec<String>,
    /// URL of the authorization server that may learn the secret. At most one of this and `token_url` is set.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub issuer: Option<String>,
    /// URL that the secret is sent to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub token_url: Option<String>,
}
