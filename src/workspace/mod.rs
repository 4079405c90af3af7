//! The door to the repository's files. The only room that reads or writes the tree.

pub mod patch;
pub mod root;
pub mod text;
pub mod expand;
pub mod fs;
pub mod walk;

pub use root::Workspace;
