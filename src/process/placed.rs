//! What commands see at another path than the real one at level `full`: the private home, and caches of the machine
//! below a private writable layer. Pure data.

use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};

/// All such directories; empty at the other levels.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Placed {
    /// Writable directories: real path, and path that the command sees.
    pub writable: Vec<(PathBuf, PathBuf)>,
    /// Read-only directories, mounted on top of everything else.
    pub read_only: Vec<(PathBuf, PathBuf)>,
    /// Overlays over directories of the machine and of the workspace.
    pub layers: Vec<Layer>,
    /// Parent of the upper directories of layers: one directory for each concurrent command.
    pub slots: PathBuf,
    /// Another parent of this kind. Its first slot is a lower layer for these layers, so that they show what its
    /// commands have added.
    pub below: Option<PathBuf>,
    /// Like `slots`, for layers in the workspace, which belong to no home.
    pub tree_slots: PathBuf,
}

impl Placed {
    /// Paths outside the workspace that the command may write, as it sees them.
    pub fn seen(&self) -> impl Iterator<Item = &PathBuf> {
        let written = self.writable.iter().map(|(_, to)| to);
        written.chain(self.layers.iter().map(|layer| &layer.place))
    }
}

/// A directory of the user's tree that appears in an isolated one, below a private layer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Brought {
    /// Relative to both trees.
    pub path: PathBuf,
    /// Its real path.
    pub from: PathBuf,
    /// Whether commands see it through a layer of their own; otherwise it was copied.
    pub layered: bool,
}

/// Where a path in a directory that is brought as a layer is outside of the sandbox.
pub(super) fn below_layer(workspace: &Path, brought: &[Brought], path: &Path) -> Option<PathBuf> {
    let mut layered = brought.iter().filter(|brought| brought.layered);
    layered.find_map(|brought| {
        let rest = path.strip_prefix(workspace.join(&brought.path)).ok()?;
        Some(brought.from.join(rest))
    })
}

/// A directory of the machine as the lower layer of an overlay: the command reads it, and its writes go to a private
/// upper layer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Layer {
    /// Name of the upper directory: letters, digits and dashes.
    pub name: String,
    /// The lower directory on the machine. It need not exist.
    pub below: PathBuf,
    /// The path at which the command sees it.
    pub place: PathBuf,
    /// Whether the tool can work with the upper directory alone if an overlay cannot be mounted. If not, the directory
    /// is read-only then.
    pub alone: bool,
    /// Whether only commands that may write the whole workspace can write it, because it is inside the workspace.
    pub of_tree: bool,
}
