//! What stands elsewhere in a command's view than on the machine, at level `full`: the private home, and caches of the machine below
//! a private layer that takes what the command writes. Pure data.

use serde::{Deserialize, Serialize};
use std::path::PathBuf;

/// All of it; empty at the other levels.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Placed {
    /// Directories that may be written: where each lies, and where the command sees it.
    pub writable: Vec<(PathBuf, PathBuf)>,
    /// Directories that may only be read, on top of all else.
    pub read_only: Vec<(PathBuf, PathBuf)>,
    pub layers: Vec<Layer>,
    /// Where the written parts of layers lie: a directory for each command that lives at one time.
    pub slots: PathBuf,
}

impl Placed {
    /// Places outside the workspace that the command may write, as it sees them.
    pub fn seen(&self) -> impl Iterator<Item = &PathBuf> {
        let written = self.writable.iter().map(|(_, to)| to);
        written.chain(self.layers.iter().map(|layer| &layer.place))
    }
}

/// A directory of the machine that the command reads, and that it seems to write.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Layer {
    /// Names its written part: letters, digits and dashes.
    pub name: String,
    /// What lies below, as it is on the machine. It need not exist.
    pub below: PathBuf,
    /// Where the command sees it.
    pub place: PathBuf,
    /// Whether the tool works with the written part alone, where the two cannot be joined. One that does not is read-only there.
    pub alone: bool,
    /// Whether only a command that may write the whole workspace writes it: it lies inside.
    pub of_tree: bool,
}
