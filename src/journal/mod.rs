//! Reads and writes run directories: the append-only journal of a run and the files beside it.

pub mod artefacts;
mod background_sync;
pub mod chain_key;
pub mod deliveries;
mod error;
pub mod format;
pub mod no_follow;
pub mod output_lock;
pub mod pipe;
pub mod reader;
pub mod run_dirs;
pub mod state_dir;
pub mod uncompared;
pub mod writer;

pub use error::JournalError;
pub use reader::{Journal, read, read_strictly};
pub use writer::JournalWriter;
