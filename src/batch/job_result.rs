//! The results of a call: how each of its jobs ended, and what was spent.

use super::budget::JobSpending;
use super::child::ChildEnd;
use super::evaluation::AttemptTotals;
use super::rows::RunRow;
use jiff::Timestamp;
use std::collections::HashMap;

/// The word for a job that passed earlier with the same inputs.
pub const UP_TO_DATE: &str = "up_to_date";
/// The state of a job that `--only` left out.
pub const SKIPPED: &str = "skipped";
/// The state of a job that should have been run and was not.
pub const NOT_RUN: &str = "not_run";

/// What a call does with a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum JobDisposition {
    Run,
    UpToDate,
    /// Left out by `--only`.
    Skipped,
}

impl JobDisposition {
    /// The word used in outputs.
    pub fn as_str(self) -> &'static str {
        match self {
            JobDisposition::Run => "run",
            JobDisposition::UpToDate => UP_TO_DATE,
            JobDisposition::Skipped => SKIPPED,
        }
    }
}

/// How a job ended in this call.
#[derive(Clone, Debug)]
pub struct JobResult {
    pub job: String,
    pub disposition: JobDisposition,
    /// Its last row, from this call or an earlier one.
    pub row: Option<RunRow>,
    /// For a job that will be resumed: how it was interrupted.
    pub interrupted: Option<ChildEnd>,
    /// Why it was not run.
    pub not_run: Option<String>,
}

/// The result of a call.
#[derive(Debug, Default)]
pub struct SupervisedCall {
    pub jobs: Vec<JobResult>,
    pub spent: JobSpending,
    pub unpriced: bool,
    /// Totals of the attempts at each job.
    pub attempts: HashMap<String, AttemptTotals>,
    /// Why no more jobs were started.
    pub stopped: Option<String>,
    pub signal: Option<i32>,
    pub started: Option<Timestamp>,
    pub ended: Option<Timestamp>,
}
