//! Changes that no rule would have let a tool make, and whether they were undone. Data only.

use serde::{Deserialize, Serialize};

/// A changed path that the policy would not have let a tool write. Never part of the patch.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Unruled {
    /// Relative to the workspace. For what a build left (`build_output`) its directory, and if there are too many new files
    /// to list their top-level directory, with a trailing `/`.
    pub path: String,
    pub change: PathChange,
    /// The rule that forbids it; null when no rule allows it.
    pub rule: Option<String>,
    /// `no_rule`, `deny_rule`, `protected_path`, …: a reason code.
    pub code: String,
    /// Whether a deny rule or a protected path forbids it; this ends the run.
    #[serde(default, skip_serializing_if = "is_false")]
    pub denied: bool,
    /// Whether it is a new file that stays in the tree, because keeping it overwrites nothing of the run's base.
    #[serde(default, skip_serializing_if = "is_false")]
    pub left: bool,
    /// Whether the previous state was restored.
    pub restored: bool,
}

impl Unruled {
    /// Whether the previous state must be restored and has not been yet.
    pub fn is_due(&self) -> bool {
        !self.left && !self.restored
    }
}

/// What happened to a path.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum PathChange {
    Added,
    #[default]
    Modified,
    Deleted,
    /// Only the executable bit.
    Mode,
}

impl PathChange {
    /// The word used in outputs.
    pub fn as_str(self) -> &'static str {
        match self {
            PathChange::Added => "added",
            PathChange::Modified => "modified",
            PathChange::Deleted => "deleted",
            PathChange::Mode => "mode",
        }
    }
}

/// The result of restoring changed paths.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct PutBack {
    /// The tree afterwards.
    pub tree: String,
    /// Paths, relative to the workspace, that could not be restored. All other due paths were.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub failed: Vec<String>,
}

fn is_false(value: &bool) -> bool {
    !*value
}
