//! The data model of `result.json`, field by field.

use crate::base::event::{FileChange, ServerStatus, Unruled};
use crate::base::grant::JudgedExec;
use crate::base::message::Usage;
use crate::base::outcome::Verdict;
use crate::base::source::RecipeSource;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::collections::BTreeMap;

/// The whole object. Times are RFC 3339, durations are milliseconds, costs are US dollars.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct RunResult {
    /// The name of the format: `overnight/result/v1`.
    pub schema: String,
    /// The run's id; empty for a run without a journal.
    pub run: String,
    pub verdict: Verdict,
    /// The exit code of the process.
    pub exit_code: i32,
    /// Whether work was cut off.
    pub partial: bool,
    /// A code narrower than the verdict, for scripts: `check`, `limit:turns`, `auth`, …; empty when the run passed.
    pub reason: String,
    /// One sentence for people.
    pub message: String,
    /// The final answer as text; may be empty.
    pub response: String,
    /// The final answer as validated JSON, or null.
    pub output: Value,
    /// Whether validated JSON was asked for. Not in the file. Where there is none, stdout has `null` if the run succeeded,
    /// because the step that gives it was skipped, and otherwise nothing.
    #[serde(skip)]
    pub wants_output: bool,
    /// Denied calls, in order.
    pub denied: Vec<RuledOut>,
    /// Calls that wait for a person, in order.
    pub suspended: Vec<Waiting>,
    /// The command that continues the run, where it has not come to its end; null for one that has, and for one that waits,
    /// whose commands are in `suspended`.
    #[serde(default)]
    pub resume: Option<String>,
    /// Changes that no rule allows: reverted, or left out of the patch.
    #[serde(default)]
    pub unruled: Vec<Unruled>,
    /// Number of further ones that are not listed.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub unruled_omitted: u64,
    pub usage: UsageReport,
    /// US dollars; a lower bound when `unpriced`.
    pub cost: f64,
    /// Whether `cost` is too low because no price is known for the model.
    pub unpriced: bool,
    /// The steps of the recipe, in order.
    pub steps: Vec<StepReport>,
    /// Path of the patch, null when nothing changed.
    pub patch: Option<String>,
    pub changes: Changes,
    /// The commit that the patch applies to, null outside a git repository.
    pub base: Option<String>,
    /// The tree at the start with its uncommitted changes; the patch is made against it, except for files that differ from
    /// those of the commit only in CRLF line ends: their patch has LF and is made against the commit.
    pub base_tree: Option<String>,
    /// From the name of an output (`patch`, `junit`, `transcript`, …) to its path; `directory` is the run directory.
    pub artefacts: BTreeMap<String, String>,
    /// SHA-256 of each file of the run except journal and result, by its name in the run directory: `changes.patch`,
    /// `blobs/ID`, `results/ID`, `put-back/N.patch`, ….
    #[serde(default)]
    pub digests: BTreeMap<String, String>,
    /// Length and head of the journal; null for a run without one.
    #[serde(default)]
    pub journal: Option<JournalHead>,
    /// `full`, `landlock` or `none`; null when no sandbox was chosen.
    pub sandbox: Option<String>,
    /// The MCP servers of the recipe.
    pub mcp_servers: Vec<ServerStatus>,
    /// What a person should know.
    pub warnings: Vec<ResultNotice>,
    /// Whether replies came from a script or a recorded run.
    pub recorded: bool,
    /// The model as `PROVIDER/NAME`.
    pub model: String,
    /// The recipe's name; `prompt` for a run of a prompt.
    pub recipe: String,
    /// SHA-256 of the resolved plan without its model; null for a run without a journal.
    #[serde(default)]
    pub recipe_digest: Option<String>,
    /// The origin of the recipe, and whether it was trusted; null when unknown.
    #[serde(default)]
    pub recipe_source: Option<RecipeSource>,
    /// The policies of the run with their digests.
    pub policies: Vec<PolicyName>,
    /// How often the run was resumed.
    pub resumed: u32,
    /// When the run began.
    pub started: Option<Timestamp>,
    /// When the run ended.
    pub ended: Option<Timestamp>,
    /// Time between start and end, without the time before a resume in which nothing ran.
    pub duration_ms: u64,
}

/// Links a result to its journal.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct JournalHead {
    /// The hash of the journal's last line: 64 hex digits.
    pub head: String,
    /// Number of lines.
    pub events: u64,
    /// With a key: HMAC-SHA256 over this object without this field, serialized as one line of JSON.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seal: Option<String>,
}

/// A denied call.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct RuledOut {
    /// The call's id: `c1`, `c2`, ….
    pub call: String,
    /// The canonical name of the tool.
    pub tool: String,
    /// A description of the call in one line.
    pub title: String,
    pub args: Value,
    /// The rule that decided: its `id`, or `FILE:LINE`; null when no rule matched.
    pub rule: Option<String>,
    /// A reason code, for example `no_rule`.
    pub code: String,
    /// One sentence for the model and for people.
    pub reason: String,
    /// One line: which rule would allow it, or what to do instead.
    pub fix: String,
    /// The step in which the call was made.
    pub step: String,
    /// `denied`.
    #[serde(default)]
    pub status: String,
    /// For a program that was denied at its exec: all its arguments.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub argv: Vec<String>,
    /// Its working directory, relative to the workspace if inside it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cwd: Option<String>,
    /// The programs of the same call that had run before; the last ones if there are many.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ran: Option<Vec<RanProgram>>,
}

/// A program that a call had run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct RanProgram {
    /// All its arguments; the first names the program.
    pub argv: Vec<String>,
    /// Its working directory, relative to the workspace if inside it.
    pub cwd: String,
}

impl From<&JudgedExec> for RanProgram {
    fn from(exec: &JudgedExec) -> Self {
        let cwd = match exec.cwd.as_str() {
            "" => ".",
            dir => dir,
        };
        Self {
            argv: exec.argv.clone(),
            cwd: cwd.to_owned(),
        }
    }
}

fn is_zero(number: &u64) -> bool {
    *number == 0
}

/// A call that waits for a person.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Waiting {
    /// The call's id: `c1`, `c2`, ….
    pub call: String,
    /// The canonical name of the tool.
    pub tool: String,
    /// A description of the call in one line.
    pub title: String,
    pub args: Value,
    /// The rule that decided: its `id`, or `FILE:LINE`; null when no rule matched.
    pub rule: Option<String>,
    /// A reason code, for example `no_rule`.
    pub code: String,
    /// One sentence for the model and for people.
    pub reason: String,
    /// One line: which rule would allow it, or what to do instead.
    pub fix: String,
    /// The step in which the call was made.
    pub step: String,
    /// SHA-256 of the subject of an approval: the effective call and the policies. `--approve CALL@` takes its first
    /// twelve or more hex digits.
    #[serde(default)]
    pub digest: String,
    /// The command line that approves it.
    #[serde(default)]
    pub approve: String,
    /// The command line that refuses it.
    #[serde(default)]
    pub deny: String,
}

/// Tokens, turns and calls of a run or a step.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct UsageReport {
    /// Replies of the model.
    pub turns: u64,
    #[serde(flatten)]
    pub tokens: Usage,
    /// Input and output tokens together.
    pub total: u64,
    /// Calls by tool that were started, answered without being started, or wait for a person.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub calls: BTreeMap<String, u64>,
}

/// One step.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct StepReport {
    /// The step's `id` in the recipe.
    pub id: String,
    /// `passed`, `failed`, `skipped`, `suspended`, `interrupted` or `not_started`.
    pub status: String,
    /// A code narrower than the status; empty when the step passed.
    pub reason: String,
    /// One sentence for people.
    pub message: String,
    /// The output that later steps see.
    pub output: String,
    /// Whether a command printed more than that: the output is its head and tail.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub cut: bool,
    /// Whether the step changed the tree; null if this was not examined.
    pub changed: Option<bool>,
    /// Number of attempts.
    pub attempts: u32,
    pub usage: UsageReport,
    /// US dollars.
    pub cost: f64,
    /// The checks of the step.
    pub checks: Vec<CheckReport>,
    /// Time that the step took.
    pub duration_ms: u64,
}

/// The last run of one check.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct CheckReport {
    /// The name of the check.
    pub name: String,
    /// Whether its last run passed.
    pub passed: bool,
    /// The command, or a description of what was compared.
    pub what: String,
    /// Why it failed, or what it found, in one sentence.
    pub message: String,
    /// Number of runs.
    pub runs: usize,
    /// For a check that failed: its output. Not in the file; the summary shows the last lines.
    #[serde(skip)]
    pub output: String,
    /// The exit code of its command; null if there is none.
    pub exit_code: Option<i32>,
    /// Time that its last run took.
    pub duration_ms: u64,
}

/// The changes of the run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Changes {
    /// The changed files.
    pub files: Vec<FileChange>,
    /// Lines in text files.
    pub added: u64,
    /// Lines in text files.
    pub removed: u64,
}

/// Something that a person should know.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct ResultNotice {
    /// A code for scripts.
    pub code: String,
    /// One sentence for people.
    pub message: String,
}

/// A policy file and its digest.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct PolicyName {
    /// As on the command line: a path, `builtin:NAME` or `git:REV:PATH`.
    pub name: String,
    /// SHA-256 of the policy with all that it extends.
    pub digest: String,
}
