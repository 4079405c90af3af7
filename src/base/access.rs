//! What a call would touch, said before it runs. Judged by `policy`; made by tools; no I/O here.

use super::call::Origin;
use serde::{Deserialize, Serialize};

/// What one call would do to the world.
///
/// Paths are relative to the workspace (`""` is its root) where they lie inside, absolute where they do not.
/// A tool that touches nothing (a plan, a list of its own children) leaves all empty.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Access {
    /// Shell text that would be run. Reads and writes of a command are found by the policy, which parses it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub commands: Vec<CommandAccess>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub reads: Vec<Place>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub writes: Vec<Place>,
    /// URLs that would be asked for, as the caller wrote them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub urls: Vec<String>,
    pub origin: Origin,
}

impl Access {
    /// Touches nothing.
    pub fn none() -> Self {
        Self {
            commands: Vec::new(),
            reads: Vec::new(),
            writes: Vec::new(),
            urls: Vec::new(),
            origin: Origin::Builtin,
        }
    }

    /// Reads one place.
    pub fn read(place: Place) -> Self {
        Self {
            reads: vec![place],
            ..Self::none()
        }
    }

    /// Reads and writes one place.
    pub fn write(place: Place) -> Self {
        Self {
            writes: vec![place],
            ..Self::none()
        }
    }
}

/// A shell command and the directory it would start in (relative to the workspace).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CommandAccess {
    pub text: String,
    pub dir: String,
}

/// A path after links were followed and `.`/`..` were resolved.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Place {
    /// As it was asked for.
    pub asked: String,
    /// Relative to the workspace, `/`-separated, without `.` and `..`, when `inside`; else absolute.
    pub path: String,
    /// Whether the path, links followed, lies in the workspace.
    pub inside: bool,
    pub found: Found,
}

impl Place {
    /// A file of the workspace that is known by its path, links followed.
    pub fn of_tree(path: &str) -> Self {
        Self {
            asked: path.to_owned(),
            path: path.to_owned(),
            inside: true,
            found: Found::File,
        }
    }
}

/// What lies at a place now.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Found {
    Nothing,
    File,
    /// A file with more than one name: another name may lie outside.
    HardLinked,
    Dir,
    /// Nothing, and a command would make an empty directory there.
    NewDir,
    /// A socket, pipe or device.
    Special,
}

/// What the policy may ask about the tree while it judges a command's operands. Functions, so that `policy` does no I/O itself.
#[derive(Clone, Copy)]
pub struct Terrain<'a> {
    /// Resolves a path, absolute or relative to the workspace root; follows links.
    pub locate: &'a dyn Fn(&str) -> Place,
    /// The names that a shell glob (relative to the workspace root) matches now; at most 1,000.
    pub expand: &'a dyn Fn(&str) -> Vec<String>,
}
