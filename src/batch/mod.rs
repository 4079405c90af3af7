//! Runs many jobs from one manifest: plans them, runs each as a child process, records them and reports one result.
//!
//! `manifest` → [`plan::BatchPlan`] → `supervisor` (children, budget, breaker) → `record` → `outputs`. Each job is its
//! own `overnight run` process, so a crash costs one job. This room never imports the engine.

pub mod breaker;
pub mod budget;
pub mod bundle;
pub mod child;
pub mod compare;
pub mod evaluation;
pub mod html;
pub mod hung;
pub mod job_result;
pub mod junit;
pub mod lines;
pub mod manifest;
pub mod merge;
pub mod outputs;
pub mod plan;
pub mod progress;
pub mod record;
pub mod remote;
pub mod result;
pub mod rows;
pub mod script;
pub mod sealed_file;
pub mod shard;
pub mod sources;
pub mod summary;
pub mod supervisor;

use crate::journal::JournalError;
use std::path::Path;

/// Why a batch could not continue, and who must act.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BatchError {
    /// The manifest or a bundle is wrong; holds every problem with its position. Exit code 3.
    #[error("{0}")]
    Invalid(String),
    /// Something outside is missing, or another process holds the directory. Exit code 8.
    #[error("{0}")]
    Environment(String),
    /// A file could not be written. Exit code 9.
    #[error("{0}")]
    Output(String),
}

impl BatchError {
    /// An output that could not be written.
    pub fn write(path: &Path, error: &std::io::Error) -> Self {
        Self::Output(format!("cannot write {}: {error}", path.display()))
    }

    /// A file that could not be read.
    pub fn read(path: &Path, error: &std::io::Error) -> Self {
        Self::Environment(format!("cannot read {}: {error}", path.display()))
    }
}

impl From<JournalError> for BatchError {
    fn from(error: JournalError) -> Self {
        match error {
            JournalError::Write { .. } => Self::Output(error.to_string()),
            _ => Self::Environment(error.to_string()),
        }
    }
}
