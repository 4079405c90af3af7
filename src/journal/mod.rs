//! Reads and writes run directories: the append-only journal of a run and the files beside it.

pub mod artefacts;
mod background_sync;
pub mod chain_key;
pub mod deliveries;
mod error;
pub mod format;
pub mod output_lock;
pub mod place;
pub mod reader;
pub mod state;
pub mod store;
pub mod writer;

pub use error::JournalError;
pub use reader::{Journal, read, read_strictly};
pub use writer::JournalWriter;
