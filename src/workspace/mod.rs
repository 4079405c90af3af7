//! Access to the repository's files; the only module that reads or writes the tree.

pub mod collect;
pub mod content;
pub mod context;
pub mod expand;
pub mod fs;
pub mod isolate;
pub mod patch;
pub mod pattern;
pub mod refs;
pub mod root;
pub mod terrain;
pub mod text;
pub mod toolchains;
mod unseen;
pub mod walk;
pub mod worktree;

pub use root::{Changed, Workspace};
