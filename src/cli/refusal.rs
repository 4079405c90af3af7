//! The reasons why a command cannot start, and their exit codes.

use super::exit;
use crate::base::outcome::{RunOutcome, Verdict};
use crate::diag::{self, Diagnostic, SourceFiles};
use crate::journal::JournalError;
use serde::Serialize;
use serde_json::Value;

/// A command that cannot be carried out.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// The command line is wrong: exit code 2.
    #[error("{0}")]
    Usage(String),
    /// A file of the user is wrong or missing; the text lists every problem with its location: exit code 3.
    #[error("{0}")]
    Invalid(String),
    /// Something outside is missing: exit code 8.
    #[error("{0}")]
    Environment(String),
    /// Something could not be written: exit code 9.
    #[error("{0}")]
    Output(String),
    /// A signal or the wall-clock limit came before the run began: the code of that outcome.
    #[error("{}", .0.message)]
    Interrupted(RunOutcome),
}

impl Refusal {
    /// The problems of the user's files, rendered.
    pub fn of_problems(problems: &[Diagnostic], files: &SourceFiles) -> Self {
        Self::Invalid(diag::render_all(files, problems))
    }

    /// The problems of a recipe and the values given to it, rendered. An error without a position is a mistake in a
    /// flag such as `--param`. If there are no errors beside those, the command line is wrong and all files are right.
    /// A parameter without a value is placed in the recipe, but beside a mistake in a flag it follows from that: its
    /// name is misspelt.
    pub fn of_values(problems: &[Diagnostic], files: &SourceFiles) -> Self {
        let errors = || problems.iter().filter(|problem| problem.is_error());
        let is_typed = errors().any(|problem| problem.span.is_none());
        let is_all = errors().all(|problem| problem.span.is_none() || problem.code == "missing-parameter");
        match is_typed && is_all {
            true => Self::Usage(diag::render_all(files, problems)),
            false => Self::of_problems(problems, files),
        }
    }

    /// The exit code.
    pub fn code(&self) -> u8 {
        match self {
            Refusal::Usage(_) => exit::USAGE,
            Refusal::Invalid(_) => exit::INVALID,
            Refusal::Environment(_) => exit::ENVIRONMENT,
            Refusal::Output(_) => exit::OUTPUT,
            Refusal::Interrupted(outcome) => exit::code(outcome),
        }
    }

    /// The verdict in `result.json`.
    pub fn verdict(&self) -> Verdict {
        match self {
            Refusal::Usage(_) => Verdict::Usage,
            Refusal::Invalid(_) => Verdict::Invalid,
            Refusal::Environment(_) => Verdict::Environment,
            Refusal::Output(_) => Verdict::Output,
            Refusal::Interrupted(outcome) => outcome.verdict,
        }
    }

    /// How a run that could not start ended; `message`: the text of this refusal as it may be shown.
    pub fn outcome(&self, message: &str) -> RunOutcome {
        let message = message.to_owned();
        match self {
            Refusal::Interrupted(outcome) => RunOutcome {
                message,
                ..outcome.clone()
            },
            _ => RunOutcome {
                partial: false,
                ..RunOutcome::new(self.verdict(), self.verdict().as_str(), message)
            },
        }
    }
}

/// The value of `schema` in the object of a refused command whose own output has no such key.
const SCHEMA: &str = "overnight/error/v1";

/// What a command with `--format json` prints on stdout in place of its output.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct RefusalObject {
    /// The name of the format: `overnight/error/v1`.
    schema: String,
    /// The kind of the error in one word: `usage`, `invalid`, `environment` or `output`. Each has its exit code.
    verdict: String,
    /// The exit code of the process.
    exit_code: u8,
    /// What is wrong and what to do, for people. Problems of files begin with their position; there may be several.
    message: String,
}

impl Refusal {
    /// The object of `--format json`, as a value.
    pub fn object(&self) -> Value {
        let object = RefusalObject {
            schema: SCHEMA.to_owned(),
            verdict: self.verdict().as_str().to_owned(),
            exit_code: self.code(),
            message: self.to_string(),
        };
        // Keys are strings and the number is whole, so serializing cannot fail.
        serde_json::to_value(object).unwrap_or_default()
    }
}

impl From<JournalError> for Refusal {
    fn from(error: JournalError) -> Self {
        match error {
            JournalError::Write { .. } => Refusal::Output(error.to_string()),
            _ => Refusal::Environment(error.to_string()),
        }
    }
}
