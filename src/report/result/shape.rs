//! The shape of the result object, field by field. Filled elsewhere.

use crate::base::event::{FileChange, ServerStatus, Unruled};
use crate::base::message::Usage;
use crate::base::outcome::Verdict;
use crate::base::source::RecipeSource;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::collections::BTreeMap;

/// The whole object. Times are RFC 3339, durations milliseconds, cost US dollars.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RunResult {
    pub schema: String,
    pub run: String,
    pub verdict: Verdict,
    pub exit_code: i32,
    /// Whether work was cut off.
    pub partial: bool,
    /// Narrower than the verdict, for scripts: `check`, `limit:turns`, `auth`, …; empty when the run passed.
    pub reason: String,
    /// One sentence for people.
    pub message: String,
    /// The final answer as text; empty when there is none.
    pub response: String,
    /// The final answer as validated JSON, or null.
    pub output: Value,
    pub denied: Vec<RuledOut>,
    pub suspended: Vec<Waiting>,
    /// Changes that no rule allows: put back, or left out of the patch.
    #[serde(default)]
    pub unruled: Vec<Unruled>,
    /// Further ones that are not listed.
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
    /// The tree at the start, uncommitted changes included: the patch is made against it.
    pub base_tree: Option<String>,
    pub artefacts: BTreeMap<String, String>,
    /// SHA-256 of each file of the run beside journal and result, by its name in the run directory: `changes.patch`, `blobs/ID`,
    /// `results/ID`, ….
    #[serde(default)]
    pub digests: BTreeMap<String, String>,
    /// How far the journal had come; null for a run that never came to one.
    #[serde(default)]
    pub journal: Option<JournalHead>,
    /// `full`, `landlock` or `none`; null when no sandbox was looked for.
    pub sandbox: Option<String>,
    pub mcp_servers: Vec<ServerStatus>,
    pub warnings: Vec<Notice>,
    /// Whether the replies are recorded ones.
    pub recorded: bool,
    pub model: String,
    pub recipe: String,
    /// SHA-256 of the resolved plan without its model; null for a run that never came to a journal.
    #[serde(default)]
    pub recipe_digest: Option<String>,
    /// Where the recipe came from, and whether it was trusted; null when that is not known.
    #[serde(default)]
    pub recipe_source: Option<RecipeSource>,
    pub policies: Vec<PolicyName>,
    pub resumed: u32,
    pub started: Option<Timestamp>,
    pub ended: Option<Timestamp>,
    pub duration_ms: u64,
}

/// What ties a result to its journal.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct JournalHead {
    /// The link of the journal's last line: 64 hex digits.
    pub head: String,
    /// Its lines.
    pub events: u64,
    /// Under a key: HMAC-SHA256 of this object without this field, as one line of JSON.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seal: Option<String>,
}

/// A call that was ruled out.
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
    /// The directory in which it was to run, relative to the workspace where it lies inside.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cwd: Option<String>,
    /// The programs of the same call that had run before, the last of them where they are many.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ran: Option<Vec<Ran>>,
}

/// A program that a call had run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ran {
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
    /// SHA-256 of what an approval is about: the call as it would run, and the policies. `--approve CALL@` takes its first
    /// twelve hex digits, or more.
    #[serde(default)]
    pub digest: String,
    /// The command line that lets it run.
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
    /// Input and output together.
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
    /// What later steps see as its output.
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
    /// How often it was made.
    pub runs: usize,
    pub exit_code: Option<i32>,
    pub duration_ms: u64,
}

/// The run's own changes.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Changes {
    pub files: Vec<FileChange>,
    /// Lines in text files.
    pub added: u64,
    pub removed: u64,
}

/// Something that a person should know.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Notice {
    pub code: String,
    pub message: String,
}

/// A policy file by its digest.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PolicyName {
    pub name: String,
    pub digest: String,
}
