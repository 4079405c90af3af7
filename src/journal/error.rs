//! Why a run directory cannot be used.

use std::io;
use std::path::Path;

/// Why a run directory cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum JournalError {
    /// It does not exist or is not a run directory: exit code 8.
    #[error("no journal in {0}")]
    Missing(String),
    /// What the user named is neither a run directory nor the id of a run: exit code 8.
    #[error("no journal in {0}: name a run directory, or one of the ids that `overnight runs list` shows")]
    Unknown(String),
    /// What the user named is the directory of a batch: exit code 8.
    #[error(
        "no journal in {dir}, which is the directory of a batch: its results are in junit.xml, summary.md, report.html and \
         result.json there; for one run, name the directory of the run, {run}"
    )]
    Batch { dir: String, run: String },
    /// A run that was refused before it had a journal: exit code 8.
    #[error(
        "the run in {dir} failed before it started ({verdict}), so nothing of it can be resumed, replayed, verified or delivered: \
         `overnight report {dir} --format result` says why"
    )]
    NeverBegan { dir: String, verdict: String },
    /// The directory of a run holds another run by now: exit code 8.
    #[error(
        "the run {run} is gone: its directory {dir} was used again and holds the run {other}; name {other} or that directory to \
         mean the newer run"
    )]
    Replaced { run: String, dir: String, other: String },
    /// A workspace has no runs: exit code 8.
    #[error("{0} has no runs (those of --sample do not count)")]
    NoRuns(String),
    /// A workspace that does not exist: exit code 8.
    #[error("{0} is not a directory")]
    NoDirectory(String),
    /// A new run finds a journal there: exit code 8.
    #[error("{0} already holds a run")]
    Taken(String),
    /// Another process has locked it: exit code 8.
    #[error("{0} is in use by another process")]
    Held(String),
    /// The journal needs a key or another key, or the key is invalid: exit code 8.
    #[error("{0}")]
    Key(String),
    /// A component of its path is a symbolic link in the workspace: exit code 8.
    #[error(
        "{0} is a symbolic link inside the workspace or a repository, and nothing is read or written through one: remove \
         it, or name another place"
    )]
    Link(String),
    /// The journal was changed or truncated: exit code 8.
    #[error("the journal {path} is damaged at line {line}: {why}")]
    Damaged { path: String, line: usize, why: String },
    /// An I/O error while writing: exit code 9.
    #[error("cannot write {path}: {source}")]
    Write { path: String, source: io::Error },
    /// An I/O error while reading: exit code 8.
    #[error("cannot read {path}: {source}")]
    Read { path: String, source: io::Error },
}

impl JournalError {
    /// Turns an I/O error into one of writing `path`.
    pub fn write(path: &Path) -> impl Fn(io::Error) -> Self + Copy {
        move |source| Self::Write {
            path: path.display().to_string(),
            source,
        }
    }

    /// Turns an I/O error into one of reading `path`.
    pub fn read(path: &Path) -> impl Fn(io::Error) -> Self + Copy {
        move |source| Self::Read {
            path: path.display().to_string(),
            source,
        }
    }
}
