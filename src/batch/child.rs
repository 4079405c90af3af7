//! One job as a child process: builds the command line of `overnight run` or `resume`, and reads the run's files after
//! it has ended.

use super::budget::{JobSpending, RunLimits};
use super::plan::{PlannedJob, RunArguments};
use super::rows::RunRow;
use crate::base::exit;
use crate::base::ids::sha256_hex;
use crate::diag::units::show_duration;
use crate::journal::{self, Journal, JournalError};
use crate::report::result::RunResult;
use crate::report::summary::RunSummary;
use std::ffi::OsString;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::ExitStatus;
use std::time::Duration;

/// Size limit of a `result.json` that is read, in bytes.
const MAX_RESULT: u64 = 256 << 20;

/// Files in which a job's parameter values are passed to its command line.
#[derive(Clone, Debug, Default)]
pub struct ValueFiles {
    pub params: Option<OsString>,
    pub input: Option<OsString>,
}

/// The arguments that start a new run.
pub fn run_arguments(
    arguments: &RunArguments,
    files: &ValueFiles,
    tree: &Path,
    out: &Path,
    limits: RunLimits,
) -> Vec<OsString> {
    let mut args: Vec<OsString> = vec!["run".into(), recipe_argument(&arguments.recipe)];
    let mut push = |flag: &str, value: OsString| args.extend([flag.into(), value]);
    if let Some(file) = &files.params {
        push("--params", file.clone());
    }
    if let Some(file) = &files.input {
        push("--input-value", file.clone());
    }
    push("--out", out.into());
    args.extend(shared_arguments(arguments, tree, limits));
    args
}

/// Prefixes `./` where a file name begins with a dash, so that it is not taken for a flag.
fn recipe_argument(recipe: &str) -> OsString {
    match recipe.starts_with('-') {
        true => format!("./{recipe}").into(),
        false => recipe.into(),
    }
}

/// The arguments that resume a run.
pub fn resume_arguments(arguments: &RunArguments, tree: &Path, out: &Path, limits: RunLimits) -> Vec<OsString> {
    let mut args: Vec<OsString> = vec!["resume".into(), out.into()];
    args.extend(shared_arguments(arguments, tree, limits));
    args
}

fn shared_arguments(arguments: &RunArguments, tree: &Path, limits: RunLimits) -> Vec<OsString> {
    let mut args: Vec<OsString> = vec!["--workspace".into(), tree.into()];
    for policy in &arguments.policies {
        args.extend(["--policy".into(), policy.into()]);
    }
    if let Some(model) = &arguments.model {
        args.extend(["--model".into(), model.into()]);
    }
    let mut limit = |flag: &str, value: Option<String>| {
        args.extend(value.into_iter().flat_map(|value| [OsString::from(flag), value.into()]));
    };
    limit("--max-turns", limits.turns.map(|turns| turns.to_string()));
    limit("--max-tokens", limits.tokens.map(|tokens| tokens.to_string()));
    let dollars = |micros: u64| format!("{}.{:06}", micros / 1_000_000, micros % 1_000_000);
    limit("--max-cost", limits.cost_micros.map(dollars));
    limit("--max-wall", limits.wall_ms.map(|ms| format!("{ms}ms")));
    args
}

/// How a child process ended.
#[derive(Clone, Debug, Default)]
pub struct ChildEnd {
    pub verdict: String,
    /// The exit code that goes with the verdict.
    pub exit_code: u8,
    pub reason: String,
    pub message: String,
    /// `None` when it is not known.
    pub spending: Option<JobSpending>,
    pub unpriced: bool,
    /// The model that was asked; empty when not known.
    pub model: String,
    pub recipe: String,
}

impl ChildEnd {
    /// The ending of a job that could not be started.
    pub fn environment(message: String) -> Self {
        let nothing = Self {
            spending: Some(JobSpending::default()),
            ..Self::default()
        };
        nothing.in_environment(message)
    }

    /// This ending, if what the run left cannot be used on this machine.
    pub fn in_environment(self, message: String) -> Self {
        Self {
            verdict: "environment".to_owned(),
            exit_code: exit::ENVIRONMENT,
            reason: "environment".to_owned(),
            message,
            ..self
        }
    }

    /// The ending of a job whose process has not ended although it was killed.
    pub fn unended(run_dir: &Path) -> Self {
        Self {
            verdict: "environment".to_owned(),
            exit_code: exit::ENVIRONMENT,
            reason: format!("signal:{}", libc::SIGKILL),
            message: "the process of the job was killed and has still not ended; it may be waiting for a file system"
                .to_owned(),
            spending: spending_of_journal(run_dir),
            ..Self::default()
        }
    }

    /// This ending of a process that had to be ended because it hung after its wall-clock limit. What a run says that
    /// came to its end counts.
    #[must_use]
    pub fn after_wall(self, wall: Duration) -> Self {
        // A cancelled run was asked to end because it hung; one that is suspended came to its end.
        let is_cut = self.verdict == "cancelled" || self.reason == "no_result" || self.reason.starts_with("signal:");
        if !is_cut {
            return self;
        }
        let wall = show_duration(u64::try_from(wall.as_millis()).unwrap_or(u64::MAX));
        let message = format!(
            "the process of the job did not end by itself at its wall-clock limit of {wall}, and was ended: {}",
            self.message
        );
        Self {
            verdict: "budget".to_owned(),
            exit_code: exit::BUDGET,
            reason: "limit:wall".to_owned(),
            message,
            ..self
        }
    }

    /// Whether a later call resumes the job.
    pub fn is_interrupted(&self) -> bool {
        matches!(self.verdict.as_str(), "cancelled" | "suspended")
    }
}

/// Reads what a process left in its run directory and compares it with the exit code.
pub fn end_of(run_dir: &Path, status: ExitStatus, log: &Path) -> ChildEnd {
    let code = status.code();
    match read_result(run_dir) {
        // `result.json` may be from an earlier session; its exit code then differs from the process's.
        Some(result) if code == Some(result.exit_code) => ChildEnd {
            verdict: result.verdict.as_str().to_owned(),
            exit_code: u8::try_from(result.exit_code).unwrap_or(exit::BUG),
            reason: result.reason,
            message: match result.suspended.first() {
                Some(call) => format!(
                    "{}; answer with `{}`, then start the batch again",
                    result.message, call.approve
                ),
                None => result.message,
            },
            spending: Some(JobSpending {
                turns: result.usage.turns,
                tokens: result.usage.total,
                cost_micros: crate::base::budget::micros(result.cost),
            }),
            unpriced: result.unpriced,
            model: result.model,
            recipe: result.recipe,
        },
        _ => {
            let (verdict, exit_code, reason) = by_status(status);
            ChildEnd {
                verdict: verdict.to_owned(),
                exit_code,
                reason,
                message: match status.signal() {
                    Some(signal) => killed(signal, &last_line(log)),
                    None => last_line(log),
                },
                spending: spending_of_journal(run_dir),
                ..ChildEnd::default()
            }
        }
    }
}

/// What happened to a process that a signal ended, after the last line of its log.
fn killed(signal: i32, last: &str) -> String {
    let cause = match signal {
        libc::SIGKILL => " (as the kernel does when memory runs out)",
        _ => "",
    };
    let after = match last.is_empty() {
        true => String::new(),
        false => format!("; the last line of its log: {last}"),
    };
    format!("the process of the job was killed by signal {signal}{cause}{after}")
}

/// The verdict of a process that left no result.
fn by_status(status: ExitStatus) -> (&'static str, u8, String) {
    if let Some(signal) = status.signal() {
        return ("environment", exit::ENVIRONMENT, format!("signal:{signal}"));
    }
    let code = status.code().and_then(|code| u8::try_from(code).ok());
    let code = code.unwrap_or(exit::BUG);
    let (verdict, code) = match code {
        exit::USAGE | exit::INVALID => ("invalid", exit::INVALID),
        exit::ENVIRONMENT => ("environment", code),
        exit::OUTPUT => ("output", code),
        129.. => ("cancelled", code),
        // A run that ends with any other code has written its result.
        _ => ("bug", exit::BUG),
    };
    (verdict, code, "no_result".to_owned())
}

fn read_result(run_dir: &Path) -> Option<RunResult> {
    let path = run_dir.join("result.json");
    let size = std::fs::symlink_metadata(&path)
        .ok()
        .filter(|data| data.is_file())?
        .len();
    if size > MAX_RESULT {
        return None;
    }
    serde_json::from_slice(&std::fs::read(&path).ok()?).ok()
}

/// The journal of a run; `None` when there is none.
///
/// # Errors
/// It cannot be read.
pub fn journal_of(run_dir: &Path) -> Result<Option<Journal>, JournalError> {
    match journal::run_dirs::locate(&run_dir.to_string_lossy(), Path::new("/")) {
        Ok(home) => journal::read(&home).map(Some),
        Err(_) => Ok(None),
    }
}

/// What a run has used so far, according to its journal; `None` when that cannot be read.
pub fn spending_of_journal(run_dir: &Path) -> Option<JobSpending> {
    let Some(journal) = journal_of(run_dir).ok()? else {
        // Nothing was recorded, so nothing was asked.
        return Some(JobSpending::default());
    };
    let sum = RunSummary::fold(&journal.events);
    Some(JobSpending {
        turns: sum.replies(),
        tokens: sum.tokens,
        cost_micros: sum.cost_micros,
    })
}

/// Whether a run was started in this directory, so that it must be resumed instead of started again.
pub fn has_journal(run_dir: &Path) -> bool {
    journal::run_dirs::is_taken(run_dir)
}

/// The last line of a log that is not blank.
fn last_line(log: &Path) -> String {
    const TAIL: u64 = 16 << 10;
    let read = || -> std::io::Result<String> {
        use std::io::{Read, Seek, SeekFrom};
        let mut file = std::fs::File::open(log)?;
        let size = file.metadata()?.len();
        file.seek(SeekFrom::Start(size.saturating_sub(TAIL)))?;
        let mut bytes = Vec::new();
        file.take(TAIL).read_to_end(&mut bytes)?;
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    };
    let text = read().unwrap_or_default();
    let mut lines = text
        .lines()
        .map(str::trim)
        .filter(|line| !line.is_empty() && !line.starts_with("help:"));
    lines.next_back().unwrap_or_default().chars().take(500).collect()
}

/// The bytes of a run's patch and their digest; `None` when nothing changed.
///
/// # Errors
/// A sentence: there is a patch and it cannot be read.
pub fn patch_of(run_dir: &Path) -> Result<Option<(Vec<u8>, String)>, String> {
    let path = run_dir.join("changes.patch");
    match std::fs::read(&path) {
        Ok(bytes) => {
            let digest = sha256_hex(&[&bytes]);
            Ok(Some((bytes, digest)))
        }
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(format!("cannot read {}: {error}", path.display())),
    }
}

/// The row of an attempt, without patch and times.
pub fn row(job: &PlannedJob, digest: &str, attempt: u64, end: &ChildEnd) -> RunRow {
    let identity = &job.identity;
    let spending = end.spending.unwrap_or_default();
    let known = |own: &str, planned: &str| {
        if own.is_empty() {
            planned.to_owned()
        } else {
            own.to_owned()
        }
    };
    let planned = identity
        .model
        .as_deref()
        .or(job.inputs.model.as_deref())
        .unwrap_or_default();
    RunRow {
        job: identity.job.clone(),
        digest: digest.to_owned(),
        id: identity.id.clone(),
        name: identity.name.clone(),
        recipe: known(&job.inputs.recipe, &end.recipe),
        target: identity.target.clone(),
        target_kind: Some(job.source.key().to_owned()),
        git_ref: identity.git_ref.clone(),
        params: identity.params.clone(),
        input: identity.input.clone(),
        model: known(planned, &end.model),
        trial: identity.trial,
        attempt,
        verdict: end.verdict.clone(),
        exit_code: end.exit_code,
        reason: end.reason.clone(),
        message: end.message.clone(),
        cost: crate::report::result::usd(spending.cost_micros),
        unpriced: end.unpriced,
        tokens: spending.tokens,
        turns: spending.turns,
        ..RunRow::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_killed_process_says_so() {
        let dir = tempfile::tempdir().unwrap();
        let log = dir.path().join("log");
        let end = || end_of(dir.path(), ExitStatus::from_raw(9), &log);
        let start = "the process of the job was killed by signal 9 ";
        assert!(end().message.starts_with(start) && !end().message.contains("log"));
        std::fs::write(&log, "overnight: patch: 1 file changed\n").unwrap();
        assert!(end().message.starts_with(start) && end().message.ends_with("log: overnight: patch: 1 file changed"));
        assert_eq!(end().reason, "signal:9");
    }

    #[test]
    fn a_process_that_hung_has_used_up_its_time_unless_its_run_ended() {
        let dir = tempfile::tempdir().unwrap();
        let log = dir.path().join("log");
        let wall = Duration::from_secs(8);
        for end in [
            end_of(dir.path(), ExitStatus::from_raw(9), &log),
            end_of(dir.path(), ExitStatus::from_raw(143 << 8), &log),
            ChildEnd::unended(dir.path()),
        ] {
            let end = end.after_wall(wall);
            assert_eq!(
                (end.verdict.as_str(), end.exit_code, end.reason.as_str()),
                ("budget", exit::BUDGET, "limit:wall")
            );
            assert!(end.message.contains("limit of 8s") && !end.is_interrupted());
        }
        for (verdict, reason) in [("failed", "checks"), ("suspended", "approval")] {
            let end = ChildEnd {
                verdict: verdict.to_owned(),
                reason: reason.to_owned(),
                ..ChildEnd::default()
            };
            assert_eq!(end.after_wall(wall).verdict, verdict);
        }
    }

    #[test]
    fn only_a_patch_that_does_not_exist_means_that_nothing_changed() {
        let dir = tempfile::tempdir().unwrap();
        let patch = dir.path().join("changes.patch");
        assert_eq!(patch_of(dir.path()), Ok(None));
        std::fs::write(&patch, "diff").unwrap();
        let (bytes, _) = patch_of(dir.path()).unwrap().unwrap();
        assert_eq!(bytes, b"diff");
        std::fs::remove_file(&patch).unwrap();
        std::fs::create_dir(&patch).unwrap();
        let why = patch_of(dir.path()).unwrap_err();
        assert!(why.contains("changes.patch"), "{why}");
    }
}
