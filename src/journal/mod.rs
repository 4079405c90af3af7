//! The door to the run directory: the append-only record of a run and what lies beside it. Knows no loop.

pub mod artefacts;
mod behind;
pub mod deliveries;
pub mod format;
pub mod output_lock;
pub mod own;
pub mod place;
pub mod reader;
pub mod state;
pub mod store;
pub mod writer;

pub use reader::{Journal, read, read_strictly};
pub use writer::Writer;

/// Why the run directory could not be used.
#[derive(Debug, thiserror::Error)]
pub enum JournalError {
    /// Nothing there, or not a run directory: exit 8.
    #[error("no journal in {0}")]
    Missing(String),
    /// Somebody else writes it: exit 8.
    #[error("another process holds the run in {0}")]
    Held(String),
    /// It needs a key, or another one, or the key is none: exit 8.
    #[error("{0}")]
    Key(String),
    /// A name on the way to it is a link that the tree holds: exit 8.
    #[error(
        "{0} is a symbolic link inside the workspace, and nothing is read or written through one: remove it, or name another place"
    )]
    Link(String),
    /// It was changed or cut: exit 8.
    #[error("the journal {path} is damaged at line {line}: {why}")]
    Damaged { path: String, line: usize, why: String },
    /// The disk said no: exit 9.
    #[error("cannot write {path}: {source}")]
    Write { path: String, source: std::io::Error },
    /// The disk said no: exit 8.
    #[error("cannot read {path}: {source}")]
    Read { path: String, source: std::io::Error },
}
