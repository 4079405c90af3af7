//! Access to the repository's files; the only module that reads or writes the tree.

pub mod at_references;
pub mod collect;
pub mod content;
pub mod context;
pub mod context_file;
mod descendants;
pub mod fs;
pub mod fs_view;
mod ignore_files;
pub mod isolate;
pub mod patch;
pub mod pattern;
mod registration;
pub mod root;
pub mod shell_glob;
pub mod skills;
pub mod text;
pub mod toolchains;
pub mod walk;
pub mod worktree;

pub use root::{Changed, Workspace};
