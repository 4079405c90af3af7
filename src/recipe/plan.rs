//! The plan: a recipe with every value filled in, as it is run, journaled and resumed. Knows no YAML.

use crate::base::budget::Budget;
use crate::base::ids::StepId;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use sha2::{Digest, Sha256};
use std::collections::BTreeMap;

/// What a run will do. Serialized into the journal; its SHA-256 names it.
///
/// A prompt (`template::render`) and the commands of steps and checks (`template::render_command`) are templates until
/// their turn comes, because they may speak of earlier steps; [`Plan::scope`] has the names. All else is filled in.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Plan {
    pub name: String,
    pub description: String,
    pub steps: Vec<PlanStep>,
    /// Limits of the whole run, defaults filled in.
    pub budget: Budget,
    pub on_deny: OnDeny,
    /// What the whole run is expected to do. A step's own `expect` is judged for that step besides.
    pub expect: Expect,
    /// Skill files or folders to read with them: paths relative to the workspace.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub skills: Vec<String>,
    /// Whether saved memory is read with them.
    #[serde(default)]
    pub memory: bool,
    /// Context files to read before the first request, in order: paths relative to the workspace, `@` removed.
    pub context: Vec<String>,
    /// Those of them without which the run does not begin.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub required_context: Vec<String>,
    pub tools: ToolPlan,
    /// JSON Schema of the final answer.
    pub response: Option<Value>,
    /// How often an answer that does not fit is sent back.
    pub response_retries: u32,
    /// The model the recipe asks for, as written; a flag wins.
    pub model: Option<String>,
    /// Further models, in order, when one fails for good.
    #[serde(default)]
    pub fallback: Vec<String>,
    /// Settings of the requests to the models.
    #[serde(default, skip_serializing_if = "ModelSettings::is_default")]
    pub model_settings: ModelSettings,
    /// The parameters with their values, for people and for rendering step templates.
    pub values: BTreeMap<String, Value>,
    /// JSON from `--input`.
    pub input: Option<Value>,
    /// Directories that git ignores and that `--isolate` brings along, relative to the workspace.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub isolate_keep: Vec<String>,
    /// How `overnight deliver` offers the change.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deliver: Option<DeliverPlan>,
}

/// How a change is offered: the recipe's `deliver` block. Texts are templates over `answer`, `result`, `summary` and the parameters,
/// rendered when the run is delivered.
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

    /// SHA-256 of the plan's JSON in lower-case hex: the plan's name in the journal.
    pub fn digest(&self) -> String {
        let json = serde_json::to_vec(self).unwrap_or_default();
        let hash = Sha256::digest(&json);
        hash.iter().map(|byte| format!("{byte:02x}")).collect()
    }
}

/// What a recipe or a flag sets of the requests to a model.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ModelSettings {
    /// The longest reply, in tokens; `None` leaves it to the service.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_output_tokens: Option<u64>,
    /// How long the first byte of an answer is awaited, in milliseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub first_byte_timeout_ms: Option<u64>,
}

impl ModelSettings {
    /// Whether nothing is set.
    pub fn is_default(&self) -> bool {
        *self == Self::default()
    }

    /// These settings where `flags` sets none.
    #[must_use]
    pub fn overridden(self, flags: ModelSettings) -> Self {
        Self {
            max_output_tokens: flags.max_output_tokens.or(self.max_output_tokens),
            first_byte_timeout_ms: flags.first_byte_timeout_ms.or(self.first_byte_timeout_ms),
        }
    }
}

/// A step: a prompt for the model, or a plain command.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PlanStep {
    pub id: StepId,
    pub work: StepWork,
    pub checks: Vec<Check>,
    /// How often failing checks go back to the model.
    pub retries: u32,
    /// Whether a further attempt begins with the task and what the checks found, without what was said in the attempt before.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub fresh: bool,
    pub expect: Expect,
    pub skip_if_green: bool,
    /// Lowers the run's budget for this step.
    pub budget: Option<Budget>,
}

/// What a step does.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StepWork {
    Prompt {
        /// Stands below what the server gives, where there is both; may then be empty.
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

/// A prompt of an MCP server, asked for before the first step.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct McpPrompt {
    pub server: String,
    /// As the server names it.
    pub name: String,
    pub arguments: BTreeMap<String, String>,
}

/// A check that `overnight` makes itself.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Check {
    pub name: String,
    pub what: CheckWhat,
}

/// What is checked.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CheckWhat {
    /// A command that must end with 0.
    Run { command: String, timeout_ms: u64 },
    /// The run's changes so far.
    Changed(Changed),
    /// A file that must be there (`exists`), and may have to hold a text.
    File { path: String, contains: Option<String> },
}

/// Bounds on the run's changes.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Changed {
    /// Globs; every changed path must match one.
    pub only: Vec<String>,
    /// Globs that no changed path may match.
    pub never: Vec<String>,
    pub max_files: Option<u64>,
    /// Added and removed lines together.
    pub max_lines: Option<u64>,
}

/// What a denial does to the run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OnDeny {
    /// The model is told and goes on.
    #[default]
    Tell,
    /// The run ends with code 4.
    Stop,
}

/// What the run is expected to do to the tree.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Expect {
    Change,
    NoChange,
    #[default]
    Any,
}

/// Which tools there are.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ToolPlan {
    /// When set, only these.
    pub include: Option<Vec<String>>,
    pub exclude: Vec<String>,
    pub mcp_servers: BTreeMap<String, McpServer>,
    pub discovery: Option<Discovery>,
    /// The recipe's own ignore patterns, in `.gitignore` form.
    pub ignore: Vec<String>,
}

impl ToolPlan {
    /// Whether programs are started to get the tools: a discovery, or a server on this machine.
    pub fn starts_programs(&self) -> bool {
        self.discovery.is_some() || self.mcp_servers.values().any(|server| server.command.is_some())
    }
}

/// A discovery command and the command that calls what it found.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Discovery {
    pub command: String,
    pub call: String,
}

/// One MCP server as the recipe names it. Exactly one of `command` and `url` is set.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct McpServer {
    pub command: Option<String>,
    pub args: Vec<String>,
    pub env: BTreeMap<String, String>,
    pub cwd: Option<String>,
    pub url: Option<String>,
    /// `http` or `sse`; `None` lets the answer decide.
    pub transport: Option<String>,
    /// Values may hold `$NAME` or `${NAME}` of the environment; expanded when the server is started.
    pub headers: BTreeMap<String, String>,
    pub required: bool,
    pub timeout_ms: Option<u64>,
    pub include_tools: Option<Vec<String>>,
    pub exclude_tools: Vec<String>,
    /// Hosts that a stdio server may reach.
    pub network: Vec<String>,
    /// Whether a stdio server may write the workspace; otherwise it is read-only for it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub writes_tree: bool,
    /// OAuth client credentials, when set.
    pub oauth: Option<ClientCredentials>,
}

/// OAuth client credentials; values may hold `$NAME`. Exactly one of `client_secret` and `private_key` is set.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ClientCredentials {
    pub client_id: String,
    #[serde(default)]
    pub client_secret: Option<String>,
    /// In PEM form; signs what is said in place of a password.
    #[serde(default)]
    pub private_key: Option<String>,
    pub scopes: Vec<String>,
}
