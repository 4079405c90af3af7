//! The data model of `result.json`, field by field.

use crate::base::event::{FileChange, ServerStatus, Unruled};
use crate::base::message::Usage;
use crate::base::outcome::Verdict;
use crate::base::source::RecipeSource;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::collections::BTreeMap;

/// The whole object. Times are RFC 3339, durations are milliseconds, costs are US dollars.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RunResult {
    pub schema: String,
    pub run: String,
    pub verdict: Verdict,
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
    pub denied: Vec<RuledOut>,
    pub suspended: Vec<Waiting>,
    /// Changes that no rule allows: reverted, or left out of the patch.
    #[serde(default)]
    pub unruled: Vec<Unruled>,
    /// Number of further ones that are not listed.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub unruled_omitted: u64,
    pub usage: UsageReport,
    /// US dollars; a lower bound when `unpriced`.
    pub cost: f64,
    pub unpriced: bool,
    pub steps: Vec<StepReport>,
    /// Path of the patch, null when nothing changed.
    pub patch: Option<String>,
    pub changes: Changes,
    /// The commit that the patch applies to, null outside a git repository.
    pub base: Option<String>,
    /// The tree at the start with its uncommitted changes; the patch is made against it.
    pub base_tree: Option<String>,
    pub artefacts: BTreeMap<String, String>,
    /// SHA-256 of each file of the run except journal and result, by its name in the run directory: `changes.patch`,
    /// `blobs/ID`, `results/ID`, ….
    #[serde(default)]
    pub digests: BTreeMap<String, String>,
    /// Length and head of the journal; null for a run without one.
    #[serde(default)]
    pub journal: Option<JournalHead>,
    /// `full`, `landlock` or `none`; null when no sandbox was chosen.
    pub sandbox: Option<String>,
    pub mcp_servers: Vec<ServerStatus>,
    pub warnings: Vec<ResultNotice>,
    /// Whether the replies came from a recording.
    pub recorded: bool,
    pub model: String,
    pub recipe: String,
    /// SHA-256 of the resolved plan without its model; null for a run without a journal.
    #[serde(default)]
    pub recipe_digest: Option<String>,
    /// The origin of the recipe, and whether it was trusted; null when unknown.
    #[serde(default)]
    pub recipe_source: Option<RecipeSource>,
    pub policies: Vec<PolicyName>,
    pub resumed: u32,
    pub started: Option<Timestamp>,
    pub ended: Option<Timestamp>,
    pub duration_ms: u64,
}

/// Links a result to its journal.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
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
pub struct RuledOut {
    pub call: String,
    pub tool: String,
    pub title: String,
    pub args: Value,
    pub rule: Option<String>,
    pub code: String,
    pub reason: String,
    pub fix: String,
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
pub struct RanProgram {
    pub argv: Vec<String>,
    pub cwd: String,
}

fn is_zero(number: &u64) -> bool {
    *number == 0
}

/// A call that waits for a person.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Waiting {
    pub call: String,
    pub tool: String,
    pub title: String,
    pub args: Value,
    pub rule: Option<String>,
    pub code: String,
    pub reason: String,
    pub fix: String,
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
pub struct UsageReport {
    pub turns: u64,
    #[serde(flatten)]
    pub tokens: Usage,
    /// Input and output tokens together.
    pub total: u64,
    /// Calls by tool.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub calls: BTreeMap<String, u64>,
}

/// One step.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct StepReport {
    pub id: String,
    /// `passed`, `failed`, `skipped`, `suspended`, `interrupted` or `not_started`.
    pub status: String,
    pub reason: String,
    pub message: String,
    /// The output that later steps see.
    pub output: String,
    pub changed: Option<bool>,
    pub attempts: u32,
    pub usage: UsageReport,
    pub cost: f64,
    pub checks: Vec<CheckReport>,
    pub duration_ms: u64,
}

/// The last run of one check.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CheckReport {
    pub name: String,
    pub passed: bool,
    pub what: String,
    pub message: String,
    /// Number of runs.
    pub runs: usize,
    pub exit_code: Option<i32>,
    pub duration_ms: u64,
}

/// The changes of the run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Changes {
    pub files: Vec<FileChange>,
    /// Lines in text files.
    pub added: u64,
    pub removed: u64,
}

/// Something that a person should know.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ResultNotice {
    pub code: String,
    pub message: String,
}

/// A policy file and its digest.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PolicyName {
    pub name: String,
    pub digest: String,
}
