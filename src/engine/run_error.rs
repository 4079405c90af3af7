//! Why the loop stops early.

use crate::base::outcome::RunOutcome;
use crate::journal::JournalError;

/// Why the loop stops early.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// The journal cannot be written. The run ends at once with exit code 9.
    #[error(transparent)]
    Journal(#[from] JournalError),
    /// Something outside the run is missing or broken: exit code 8.
    #[error("{0}")]
    Environment(String),
    /// The run has ended with this outcome.
    #[error("{}", .0.message)]
    Ended(RunOutcome),
}
