//! Changes that the policy would not have let a tool make, and what became of them. Rules on nothing.

use super::event::PatchTaken;
use serde::{Deserialize, Serialize};

/// A changed path that the policy would not have let a tool write. Never part of the patch.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Unruled {
    /// Relative to the workspace. Where very many new files were found, a directory with a last `/`.
    pub path: String,
    pub change: Change,
    /// The rule that speaks against it; `None` when no rule allows it.
    pub rule: Option<String>,
    /// `no_rule`, `deny_rule`, `protected_path`, …: a reason code.
    pub code: String,
    /// Whether a deny rule or a protected path speaks against it: it ends the run.
    #[serde(default, skip_serializing_if = "is_false")]
    pub denied: bool,
    /// Whether it is a new file that stays in the tree, because nothing of the run's base is lost by it.
    #[serde(default, skip_serializing_if = "is_false")]
    pub left: bool,
    /// Whether the old state is back.
    pub restored: bool,
}

impl Unruled {
    /// Whether the old state must come back and has not.
    pub fn is_due(&self) -> bool {
        !self.left && !self.restored
    }
}

/// What happened to a path.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Change {
    Added,
    #[default]
    Modified,
    Deleted,
    /// Only the right to execute it.
    Mode,
}

impl Change {
    /// The word used in outputs.
    pub fn as_str(self) -> &'static str {
        match self {
            Change::Added => "added",
            Change::Modified => "modified",
            Change::Deleted => "deleted",
            Change::Mode => "mode",
        }
    }
}

/// What came of putting changes back.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PutBack {
    /// The tree afterwards.
    pub tree: String,
    /// Paths, relative to the workspace, that could not be put back. All others that were due are.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub failed: Vec<String>,
}

fn is_false(value: &bool) -> bool {
    !*value
}

impl PatchTaken {
    /// Marks what was put back.
    pub fn put_back(&mut self, done: &PutBack) {
        self.tree.clone_from(&done.tree);
        for unruled in self.unruled.iter_mut().filter(|unruled| unruled.is_due()) {
            unruled.restored = !done.failed.contains(&unruled.path);
        }
    }
}
