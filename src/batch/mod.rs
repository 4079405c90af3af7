//! Many jobs from one manifest: planned first, run as children of a supervisor, recorded, and reported as one result.
//!
//! `manifest` → [`plan::BatchPlan`] → `supervisor` (children, budget, breaker) → `record` → `outputs`. Each job is an
//! `overnight run` of its own, so a crash costs one job. Never imports the loop of a run.

pub mod breaker;
pub mod budget;
pub mod bundle;
pub mod child;
pub mod compare;
pub mod evaluation;
pub mod html;
pub mod junit;
pub mod lines;
pub mod manifest;
pub mod merge;
pub mod outputs;
pub mod plan;
pub mod progress;
pub mod record;
pub mod rows;
pub mod script;
pub mod shard;
pub mod sources;
pub mod summary;
pub mod supervisor;

use crate::journal::JournalError;
use std::path::Path;

/// Why a batch could not go on, and whose turn it is.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BatchError {
    /// The manifest or a bundle is wrong; every problem with its place: exit 3.
    #[error("{0}")]
    Invalid(String),
    /// Something outside is missing, or another batch holds the directory: exit 8.
    #[error("{0}")]
    Environment(String),
    /// Something could not be written: exit 9.
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
