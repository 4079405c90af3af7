//! `result.json` of a batch or merge, and the reported state of each job. Pure.

use super::evaluation::{self, ModelScore};
use super::job_result::{JobDisposition, JobResult, NOT_RUN, SKIPPED, SupervisedCall};
use super::rows::RunRow;
use crate::base::exit;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The value of `schema`.
pub const SCHEMA: &str = "overnight/batch/v1";
/// Limit of jobs that `result.json` lists as not run.
const NAMED: usize = 10_000;

/// The reported state of one job.
#[derive(Clone, Debug)]
pub struct JobReport {
    pub job: String,
    pub disposition: JobDisposition,
    /// The verdict of its last run, or [`NOT_RUN`] or [`SKIPPED`].
    pub state: String,
    pub message: String,
    pub exit_code: u8,
    pub row: Option<RunRow>,
}

impl JobReport {
    /// Whether it has a result: it ended in this call, or in an earlier one with the same inputs.
    pub fn has_ended(&self) -> bool {
        !matches!(self.state.as_str(), SKIPPED | NOT_RUN | "cancelled" | "suspended")
    }
}

/// Totals over all jobs.
#[derive(Clone, Copy, Debug)]
pub struct ReportHead<'a> {
    pub name: &'a str,
    pub manifest: &'a str,
    pub shard: Option<&'a str>,
}

/// Number of jobs by outcome.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct JobCounts {
    /// Jobs of the manifest, or of the shard.
    pub total: u64,
    /// Run by this call.
    pub run: u64,
    /// Jobs that passed earlier with the same inputs.
    pub up_to_date: u64,
    /// Jobs that should have been run and were not.
    pub not_run: u64,
    /// Left out by `--only`.
    pub skipped: u64,
    /// Jobs that were run or were up to date.
    #[serde(flatten)]
    pub verdicts: BTreeMap<String, u64>,
}

/// Total usage of the runs of a call.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct BatchUsage {
    /// Input and output tokens together.
    pub tokens: u64,
    /// Replies of models.
    pub turns: u64,
}

/// A job that was not run or did not come to its end, and why.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct NotRun {
    /// The job's name.
    pub job: String,
    /// One sentence for people.
    pub reason: String,
}

/// `result.json` of a batch or merge. Money is in US dollars.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct BatchResult {
    /// The name of the format: `overnight/batch/v1`.
    pub schema: String,
    /// The name of the batch.
    pub name: String,
    /// The verdict of the strongest exit code.
    pub verdict: String,
    /// The strongest of the jobs' exit codes.
    pub exit_code: u8,
    /// Digest of the identities of the jobs that the manifest defines.
    pub manifest: String,
    pub jobs: JobCounts,
    /// Usage of the runs of this call.
    pub cost: f64,
    /// Whether `cost` is too low because a price is not known.
    #[serde(default)]
    pub unpriced: bool,
    pub usage: BatchUsage,
    /// The shard as `I/N`; null when the batch has no shards.
    pub shard: Option<String>,
    /// Jobs that were not run.
    pub not_run: Vec<NotRun>,
    /// Number of further jobs that are not listed.
    #[serde(default)]
    pub not_run_omitted: u64,
    /// Jobs that wait for a person or were cancelled, with what continues them.
    #[serde(default)]
    pub interrupted: Vec<NotRun>,
    /// Why no more jobs were started.
    pub stopped: Option<String>,
    /// Why the call could not begin; null when it did.
    #[serde(default)]
    pub message: Option<String>,
    /// Results for each recipe and model.
    pub evaluation: Vec<ModelScore>,
    /// When the call began.
    pub started: Option<jiff::Timestamp>,
    /// When the call ended.
    pub ended: Option<jiff::Timestamp>,
}

/// The reported state of each job of a call.
pub fn job_reports(call: &SupervisedCall) -> Vec<JobReport> {
    call.jobs.iter().map(job_report).collect()
}

fn job_report(job: &JobResult) -> JobReport {
    let report = |state: &str, message: &str, exit_code: u8, row: Option<&RunRow>| JobReport {
        job: job.job.clone(),
        disposition: job.disposition,
        state: state.to_owned(),
        message: message.to_owned(),
        exit_code,
        row: row.cloned(),
    };
    match (&job.not_run, &job.interrupted, &job.row, job.disposition) {
        (Some(reason), ..) => report(NOT_RUN, reason, exit::INCOMPLETE, job.row.as_ref()),
        (_, Some(end), row, _) => report(&end.verdict, &end.message, end.exit_code, row.as_ref()),
        (.., row, JobDisposition::Skipped) => report(SKIPPED, "", exit::PASSED, row.as_ref()),
        (_, _, Some(row), _) => report(&row.verdict, &row.message, row.exit_code, Some(row)),
        (_, _, None, _) => report(NOT_RUN, "it was not run", exit::INCOMPLETE, None),
    }
}

impl BatchResult {
    /// The result of a call that could not begin, so that a script finds the same keys whatever happened. The verdict is
    /// that of the exit code.
    pub fn unstarted(exit_code: u8, message: String) -> Self {
        Self {
            schema: SCHEMA.to_owned(),
            name: String::new(),
            verdict: exit::verdict(exit_code).as_str().to_owned(),
            exit_code,
            manifest: String::new(),
            jobs: JobCounts::default(),
            cost: 0.0,
            unpriced: false,
            usage: BatchUsage::default(),
            shard: None,
            not_run: Vec::new(),
            not_run_omitted: 0,
            interrupted: Vec::new(),
            stopped: None,
            message: Some(message),
            evaluation: Vec::new(),
            started: None,
            ended: None,
        }
    }

    /// The result of a call with these reports of its jobs.
    pub fn of(head: &ReportHead<'_>, jobs: &[JobReport], call: &SupervisedCall) -> Self {
        let mut counts = JobCounts {
            total: jobs.len() as u64,
            ..JobCounts::default()
        };
        let mut code = call.signal.map_or(exit::PASSED, exit::of_signal);
        let (mut not_run, mut interrupted) = (Vec::new(), Vec::new());
        for job in jobs {
            if matches!(job.state.as_str(), "suspended" | "cancelled") && interrupted.len() < NAMED {
                let what_next = match job.state.as_str() {
                    "cancelled" => "; start the batch again, which resumes it",
                    _ => "",
                };
                interrupted.push(NotRun {
                    job: job.job.clone(),
                    reason: format!("{}{what_next}", job.message),
                });
            }
            match (job.state.as_str(), job.disposition) {
                (NOT_RUN, _) => {
                    counts.not_run += 1;
                    if not_run.len() < NAMED {
                        not_run.push(NotRun {
                            job: job.job.clone(),
                            reason: job.message.clone(),
                        });
                    }
                }
                (SKIPPED, _) => counts.skipped += 1,
                (state, disposition) => {
                    counts.up_to_date += u64::from(disposition == JobDisposition::UpToDate);
                    counts.run += u64::from(disposition == JobDisposition::Run);
                    *counts.verdicts.entry(state.to_owned()).or_default() += 1;
                }
            }
            code = exit::stronger(code, job.exit_code);
        }
        let ended = jobs.iter().filter(|job| job.has_ended());
        let scored = ended.filter_map(|job| {
            let attempts = call.attempts.get(&job.job).copied().unwrap_or_default();
            Some((job.row.as_ref()?, attempts))
        });
        let only_no_change = counts.verdicts.keys().all(|word| word == "no_change") && !counts.verdicts.is_empty();
        Self {
            schema: SCHEMA.to_owned(),
            name: head.name.to_owned(),
            verdict: match only_no_change && code == exit::PASSED {
                true => "no_change".to_owned(),
                false => exit::verdict(code).as_str().to_owned(),
            },
            exit_code: code,
            manifest: head.manifest.to_owned(),
            not_run_omitted: counts.not_run.saturating_sub(not_run.len() as u64),
            jobs: counts,
            cost: crate::report::result::usd(call.spent.cost_micros),
            unpriced: call.unpriced,
            usage: BatchUsage {
                tokens: call.spent.tokens,
                turns: call.spent.turns,
            },
            shard: head.shard.map(str::to_owned),
            not_run,
            interrupted,
            stopped: call.stopped.clone(),
            message: None,
            evaluation: evaluation::scores(scored),
            started: call.started,
            ended: call.ended,
        }
    }
}
