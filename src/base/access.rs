//! What a call would read, write, run or fetch, computed by the tool before it runs and judged by `policy`. Pure: no
//! I/O.

use super::call::ToolOrigin;
use serde::{Deserialize, Serialize};
use std::path::Path;
use std::sync::Arc;

/// Names of directories in which package managers put the packages of one project, with their programs.
const PACKAGE_DIRS: [&str; 6] = [".tox", ".venv", ".virtualenvs", "node_modules", "venv", "virtualenvs"];

/// The first package directory (`node_modules`, `.venv` …) in a path.
pub fn package_dir(path: &Path) -> Option<&'static str> {
    path.components()
        .find_map(|part| PACKAGE_DIRS.into_iter().find(|dir| part.as_os_str() == *dir))
}

/// The effects of one call.
///
/// Paths are relative to the workspace (`""` is its root) if inside it, else absolute. A tool without such effects (a
/// plan, a list of its own children) leaves all fields empty.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Access {
    /// Shell text that would be run. The policy parses it and finds the command's reads and writes.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub commands: Vec<CommandAccess>,
    /// Paths that are read.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub reads: Vec<ResolvedPath>,
    /// Paths that are written.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub writes: Vec<ResolvedPath>,
    /// URLs that would be requested, as the caller wrote them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub urls: Vec<String>,
    pub origin: ToolOrigin,
}

impl Access {
    /// No effects.
    pub fn none() -> Self {
        Self {
            commands: Vec::new(),
            reads: Vec::new(),
            writes: Vec::new(),
            urls: Vec::new(),
            origin: ToolOrigin::Builtin,
        }
    }

    /// An access that reads one place.
    pub fn read(place: ResolvedPath) -> Self {
        Self {
            reads: vec![place],
            ..Self::none()
        }
    }

    /// An access that writes one place, which implies reading it.
    pub fn write(place: ResolvedPath) -> Self {
        Self {
            writes: vec![place],
            ..Self::none()
        }
    }
}

/// A shell command and the directory it would start in (relative to the workspace).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct CommandAccess {
    /// The command line.
    pub text: String,
    /// Its working directory, relative to the workspace.
    pub dir: String,
}

/// A path after links were followed and `.`/`..` were resolved.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct ResolvedPath {
    /// As the caller wrote it.
    pub asked: String,
    /// Relative to the workspace, `/`-separated, without `.` and `..`, when `inside`; else absolute.
    pub path: String,
    /// Whether the path, with links followed, is inside the workspace.
    pub inside: bool,
    pub found: PathStatus,
}

impl ResolvedPath {
    /// For people and models; the root of the workspace is `.`. A place outside is shown as the caller wrote it, so
    /// that no text reveals the path of the workspace.
    pub fn shown(&self) -> &str {
        match (self.inside, self.path.as_str()) {
            (true, "") => ".",
            (true, path) => path,
            (false, _) => &self.asked,
        }
    }

    /// A file of the workspace, given by its path with links followed.
    pub fn of_tree(path: &str) -> Self {
        Self {
            asked: path.to_owned(),
            path: path.to_owned(),
            inside: true,
            found: PathStatus::File,
        }
    }
}

/// The kind of file at a place at this moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum PathStatus {
    Nothing,
    File,
    /// A file with more than one hard link: another name of it may be outside the workspace.
    HardLinked,
    Dir,
    /// Nothing exists, and the command would create an empty directory.
    NewDir,
    /// A socket, FIFO or device.
    Special,
}

/// What the policy may look up in the tree while it judges a command's operands. Passed as functions so that `policy`
/// itself does no I/O.
#[derive(Clone, Copy)]
pub struct FsView<'a> {
    /// Resolves a path, absolute or relative to the workspace root; follows links. One that cannot be resolved (a NUL,
    /// a loop of links) counts as outside.
    pub locate: &'a dyn Fn(&str) -> ResolvedPath,
    /// The names that a shell glob (relative to the workspace root) matches at this moment; at most 1,000.
    pub expand: &'a dyn Fn(&str) -> Vec<String>,
    /// Whether the globs so far were too many to look up, so that names are missing; then nothing may be allowed.
    pub over_limit: &'a dyn Fn() -> bool,
    /// All paths below a directory (relative to the workspace root), links not followed; `None` if they are too many or
    /// not known.
    pub below: &'a dyn Fn(&str) -> Option<Arc<[String]>>,
}
