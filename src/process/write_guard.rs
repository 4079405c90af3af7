//! What a command may write, before and after it: the view that it gets, what is recorded of the tree, and what is put back.
//!
//! | grant | level `full` | level `landlock` | compared afterwards |
//! |---|---|---|---|
//! | nothing | the workspace is mounted read-only | no write right | nothing: no look at the tree at all |
//! | paths | the granted files and directories are mounted writable, all else in those directories read-only | write rights on the directories | new names; at `landlock` all below the directories |
//! | tree | closed paths are mounted read-only | write rights on the workspace | closed paths |
//!
//! At level `none` every grant counts as tree. Looking and putting back go through directory handles and follow no link, with
//! other commands of the run stopped meanwhile. Every limit is named; a command whose surroundings cannot be recorded within
//! them is not started, and a limit that is reached afterwards ends the run. Starts nothing.

pub(crate) mod at;
mod compare;
pub mod names;
mod node;
mod prepare;
mod walk;

use super::confine::spec::Reach;
use super::live::Lived;
use super::{Confinement, Level};
use crate::base::grant::{ClosedPaths, Undone, WriteKind, WritePath, Writes};
use node::{Held, Node};
use std::collections::{BTreeMap, BTreeSet};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;
use walk::{Over, Walk};

/// Entries whose state is held. Reached before a command: it is not started (`limit:guard_entries`).
const MOST_HELD: usize = 200_000;
/// Places of the workspace that are mounted on their own for one command; what is more is compared.
const MOST_MOUNTS: usize = 1_000;

/// What guards the tree of one command.
#[derive(Debug)]
pub(super) struct Guard {
    root: OwnedFd,
    closed: Arc<dyn ClosedPaths>,
    /// Run directories, relative: this program writes them itself while a command runs.
    own: Vec<PathBuf>,
    allowed: Allowed,
    areas: Vec<Area>,
    /// Closed paths that mounts hold: they cannot have changed.
    mounted: BTreeSet<PathBuf>,
    /// Each entry that is compared, relative to the workspace.
    before: BTreeMap<PathBuf, Node>,
    held: Held,
    taken: SystemTime,
    most_names: u64,
    lived: Lived,
}

/// What is looked at when the command has ended.
#[derive(Debug)]
enum Area {
    /// Closed paths below this directory, and what is known of it.
    Closed(PathBuf, walk::Known),
    /// Everything below this directory.
    Whole(PathBuf),
    /// The names of this directory that are new, with the numbers of those that were there.
    Names(PathBuf, BTreeMap<Vec<u8>, u64>),
}

/// What may be changed.
#[derive(Clone, Debug, Default)]
struct Allowed {
    tree: bool,
    paths: Vec<WritePath>,
}

/// What a grant says of one path.
enum Word {
    /// It and, for a directory, all below it that is not closed.
    Granted,
    /// A directory that leads to a granted path.
    OnTheWay,
    Not(String, Option<String>),
}

impl Allowed {
    fn add(&mut self, writes: &Writes) {
        match writes {
            Writes::Nothing => {}
            Writes::Tree => self.tree = true,
            Writes::Paths { paths, maybe } => {
                self.paths.extend(paths.iter().cloned());
                // Another command's guard undoes what it was not granted there.
                self.paths.extend(maybe.iter().map(|dir| WritePath {
                    path: dir.clone(),
                    kind: WriteKind::Entry,
                }));
            }
        }
    }

    fn word(&self, path: &Path, is_dir: bool) -> Option<Word> {
        if self.tree {
            return Some(Word::Granted);
        }
        let mut way = false;
        for granted in &self.paths {
            let target = Path::new(&granted.path);
            let entry = granted.kind == WriteKind::Entry;
            if path == target || (entry && path.starts_with(target)) {
                return Some(Word::Granted);
            }
            way |= is_dir && target.starts_with(path);
        }
        way.then_some(Word::OnTheWay)
    }
}

/// A guard that is compared even when nobody waits for the command any more.
pub(super) struct Guarded(Option<Guard>);

impl Guarded {
    /// The guard of one command, and what it may reach. Looks at the tree only as far as the grant needs it.
    ///
    /// # Errors
    /// A limit was reached: its name and what to do. The command must not be started.
    pub fn take(confinement: &Confinement, writes: &Writes) -> Result<(Self, Reach), String> {
        if confinement.level != Level::None && *writes == Writes::Nothing {
            return Ok((Self(None), Reach::default()));
        }
        let (guard, reach) = Guard::take(confinement, writes)?;
        Ok((Self(guard), reach))
    }

    /// The processes of the command, so that another command's comparison can stop them.
    pub fn lives_as(&self, root: i32, mark: u64, helpers: u8) {
        if let Some(guard) = &self.0 {
            guard.lived.is(root, mark, helpers);
        }
    }

    /// Compares and puts back. `at_exec` is granted beside what was known at the beginning. Call it when the tree is dead.
    pub fn compare(&mut self, at_exec: &[WritePath]) -> Vec<Undone> {
        self.0.take().map(|guard| guard.compare(at_exec)).unwrap_or_default()
    }
}

impl Drop for Guarded {
    fn drop(&mut self) {
        self.compare(&[]);
    }
}

/// Run directories and other hidden places that lie in the workspace and so within reach of commands: Landlock cannot take a
/// place out of one that it grants. Empty at level `full`, where they are covered.
#[must_use]
pub fn within_reach(confinement: &Confinement) -> Vec<PathBuf> {
    let granted = |dir: &&PathBuf| {
        dir.starts_with(&confinement.workspace)
            || [&confinement.readable, &confinement.writable]
                .into_iter()
                .flatten()
                .any(|granted| dir.starts_with(granted))
    };
    match confinement.level {
        Level::Full => Vec::new(),
        Level::Landlock => confinement.hidden.iter().filter(granted).cloned().collect(),
        Level::None => confinement.hidden.clone(),
    }
}

impl Guard {
    fn walk(&self) -> Walk<'_> {
        Walk {
            root: &self.root,
            closed: &*self.closed,
            own: &self.own,
            most_names: self.most_names,
            most_time: walk::MOST_TIME,
        }
    }

    /// Whether a path is closed, granted, or neither.
    fn word(&self, path: &Path, is_dir: bool) -> Word {
        let text = path.to_string_lossy();
        if self.closed.closed(&text, is_dir) {
            let (code, rule) = self.closed.why(&text);
            return Word::Not(code.to_owned(), rule);
        }
        self.allowed
            .word(path, is_dir)
            .unwrap_or_else(|| Word::Not("not_granted".to_owned(), None))
    }

    fn is_own(&self, path: &Path) -> bool {
        self.own.iter().any(|own| path.starts_with(own))
    }
}

/// What the caller is told when a limit keeps a command from starting.
fn told(over: &Over) -> String {
    let at = match over.path.as_os_str().is_empty() {
        true => String::new(),
        false => format!(" at {}", over.path.display()),
    };
    let (what, fix) = match over.code {
        "limit:guard_names" => (
            "the workspace has more than 5,000,000 names",
            "run in a smaller directory",
        ),
        "limit:guard_time" => (
            "looking at the workspace took more than 60 seconds",
            "run in a smaller directory",
        ),
        "limit:guard_path" => ("a path is longer than 4,000 bytes", "remove it"),
        "limit:guard_entries" => (
            "more than 200,000 entries would have to be compared afterwards",
            "write below a smaller directory, or grant `writes: tree`",
        ),
        "limit:guard_bytes" => (
            "more than 512 MiB would have to be held for comparing",
            "write below a smaller directory, or grant `writes: tree`",
        ),
        _ => ("a directory cannot be read", "make it readable or remove it"),
    };
    format!(
        "{}: {what}{at}, so what the command writes could not be checked; {fix}",
        over.code
    )
}

#[cfg(test)]
mod tests;
