//! The root of the tree and the only way from a name to a place in it.

use std::path::{Path, PathBuf};

/// The tree that a run works on.
#[derive(Debug)]
pub struct Workspace {
    root: PathBuf,
}

impl Workspace {
    /// The canonical path of the root. Never shown to the model.
    pub fn root(&self) -> &Path {
        &self.root
    }
}
