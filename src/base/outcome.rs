//! How a run, a step or a check ended. Verdict names are defined here; their exit codes are in `exit`.

use super::budget::LimitHit;
use super::call::ExitInfo;
use serde::{Deserialize, Serialize};

/// The result of a run in one word, as in `result.json`. Each verdict has one exit code.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    Passed,
    NoChange,
    Failed,
    Denied,
    Suspended,
    Budget,
    Provider,
    Environment,
    Output,
    Invalid,
    /// The command line was invalid.
    Usage,
    Incomplete,
    Cancelled,
    Bug,
}

impl Verdict {
    /// Every verdict.
    pub const ALL: [Verdict; 14] = [
        Verdict::Passed,
        Verdict::NoChange,
        Verdict::Failed,
        Verdict::Denied,
        Verdict::Suspended,
        Verdict::Budget,
        Verdict::Provider,
        Verdict::Environment,
        Verdict::Output,
        Verdict::Invalid,
        Verdict::Usage,
        Verdict::Incomplete,
        Verdict::Cancelled,
        Verdict::Bug,
    ];

    /// The word used in outputs.
    pub const fn as_str(self) -> &'static str {
        match self {
            Verdict::Passed => "passed",
            Verdict::NoChange => "no_change",
            Verdict::Failed => "failed",
            Verdict::Denied => "denied",
            Verdict::Suspended => "suspended",
            Verdict::Budget => "budget",
            Verdict::Provider => "provider",
            Verdict::Environment => "environment",
            Verdict::Output => "output",
            Verdict::Invalid => "invalid",
            Verdict::Usage => "usage",
            Verdict::Incomplete => "incomplete",
            Verdict::Cancelled => "cancelled",
            Verdict::Bug => "bug",
        }
    }

    /// Whether the run achieved its purpose.
    pub fn is_success(self) -> bool {
        matches!(self, Verdict::Passed | Verdict::NoChange)
    }

    /// Whether a run that ended so, with this reason, cannot be resumed.
    pub fn is_final(self, reason: &str) -> bool {
        match self {
            Verdict::Passed | Verdict::NoChange | Verdict::Denied | Verdict::Invalid => true,
            Verdict::Failed => !matches!(reason, "stuck" | "replay_miss"),
            _ => false,
        }
    }
}

/// How and why a run ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct RunOutcome {
    pub verdict: Verdict,
    /// A reason for scripts, narrower than the verdict: `check`, `expect`, `response`, `stuck`, `replay_miss`,
    /// `limit:turns`, `auth`, `signal:15`, `on_deny`, …. Empty when the run passed.
    #[serde(default)]
    pub reason: String,
    /// One sentence for people.
    pub message: String,
    /// Whether work was interrupted, so that patch and answer may be incomplete.
    #[serde(default)]
    pub partial: bool,
    /// The signal's number, if a signal ended the run; the exit code is 128 plus this.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub signal: Option<i32>,
}

impl StepResult {
    /// Whether the step was skipped because its `when` is false.
    pub fn is_condition_false(&self) -> bool {
        self.status == StepStatus::Skipped && self.reason == CONDITION_FALSE
    }
}

impl RunOutcome {
    /// An outcome with this verdict, reason and message.
    pub fn new(verdict: Verdict, reason: impl Into<String>, message: impl Into<String>) -> Self {
        Self {
            verdict,
            reason: reason.into(),
            message: message.into(),
            partial: !matches!(
                verdict,
                Verdict::Passed | Verdict::NoChange | Verdict::Failed | Verdict::Denied
            ),
            signal: None,
        }
    }

    /// The outcome of reaching a limit.
    pub fn limit(hit: &LimitHit) -> Self {
        let whose = match &hit.step {
            Some(step) => format!("{OF_STEP} {step}"),
            None => "budget".to_owned(),
        };
        Self::new(
            Verdict::Budget,
            format!("limit:{}", hit.limit),
            format!(
                "{whose} reached: {hit}; this limit ended the run, raise it {}",
                raised(hit)
            ),
        )
    }
}

/// Beginning of the message of an outcome if a limit of a step was reached.
pub const OF_STEP: &str = "budget of step";

/// The part of the message that says how to raise a limit.
fn raised(hit: &LimitHit) -> String {
    match (&hit.step, hit.limit.as_str()) {
        (Some(_), _) => "in the `budget` of the step".to_owned(),
        (None, "turns" | "tokens" | "cost" | "wall") => {
            format!("with --max-{}, or in the `budget` of the recipe", hit.limit)
        }
        (None, _) => "in the `budget` of the recipe".to_owned(),
    }
}

/// The result of one check.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct CheckResult {
    /// The name of the check.
    pub name: String,
    /// Whether it passed.
    pub passed: bool,
    /// The command, or a description of what was compared.
    pub what: String,
    /// Why it failed, or what it found, in one sentence.
    pub message: String,
    /// Head and tail of its output, at most 16 KiB.
    #[serde(default)]
    pub output: String,
    /// How its command ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exit: Option<ExitInfo>,
    /// Milliseconds.
    pub took_ms: u64,
    /// Whether the check is about the step's answer and not about the tree.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub of_answer: bool,
}

/// How a step ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum StepStatus {
    Passed,
    Failed,
    /// Its checks were green before the model was asked (`skip_if_green`), or its condition is false
    /// (reason `when`).
    Skipped,
}

/// The reason of a step that was skipped because its `when` is false.
pub const CONDITION_FALSE: &str = "when";

/// The reason of a step whose command failed.
pub const COMMAND: &str = "command";

/// The result of one step.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct StepResult {
    pub status: StepStatus,
    /// As in `RunOutcome::reason`.
    #[serde(default)]
    pub reason: String,
    /// One sentence for people.
    #[serde(default)]
    pub message: String,
    /// What later steps see as `steps.ID.output`: the answer, or the command's output.
    #[serde(default)]
    pub output: String,
    /// Whether the output is not all that the command printed, but head and tail of it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub cut: bool,
    /// Whether the step changed the tree; null if this was not examined.
    #[serde(default)]
    pub changed: Option<bool>,
}
