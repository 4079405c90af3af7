//! Restricts what a command may write in the workspace: its mounts and write rights before it runs, and afterwards
//! comparing the tree and undoing changes without a grant.
//!
//! | grant | level `full` | level `landlock` | compared afterwards |
//! |---|---|---|---|
//! | nothing | the workspace is mounted read-only | no write right | nothing: no look at the tree at all |
//! | paths | the granted files and directories are mounted writable, all else in those directories read-only | write rights on the directories | new names; at `landlock` all below the directories |
//! | ruled paths | the directories are mounted writable | write rights on the directories | all below the directories, each file by the rules |
//! | tree | closed paths are mounted read-only | write rights on the workspace | closed paths |
//!
//! At level `none` every grant counts as tree. Comparing and restoring use directory handles and follow no link, while
//! other commands of the run are stopped. Every limit has a name: if the surroundings of a command cannot be recorded
//! within the limits, the command is not started, and a limit that is reached afterwards ends the run.

pub(crate) mod at;
mod compare;
mod index_view;
mod known_names;
mod links;
mod masks;
mod moved;
#[cfg(test)]
mod names;
mod node;
mod object;
mod objects;
mod origins;
mod overlap;
mod prepare;
mod registrations;
mod unchecked;
mod walk;

use super::confine::spec::WorkspaceReach;
use super::live::{Frozen, LiveCommand, OwnWrites};
use super::{Confinement, SandboxLevel};
use crate::base::grant::{ClosedPaths, Undone, WriteKind, WritePath, Writes};
use crate::base::sync::lock;
use index_view::IndexView;
pub(super) use index_view::unmark_left;
pub use known_names::KnownNames;
pub use links::SeparatedLinks;
pub use masks::{Masks, SecretPaths};
use node::{HeldContents, TreeNode};
pub use objects::{KeptObjects, NOT_KEPT};
use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::{Duration, SystemTime};
pub use unchecked::closed_since;
use walk::{ExceededLimit, TreeWalk};

/// The most entries whose state is recorded. If reached, the command is not started (`limit:guard_entries`).
const MOST_HELD: usize = 200_000;
/// The most separate mounts for one command; places beyond that are compared instead.
const MOST_MOUNTS: usize = 1_000;

/// The recorded state and the checks for one command.
#[derive(Debug)]
pub(super) struct WriteGuard {
    root: OwnedFd,
    closed: Arc<dyn ClosedPaths>,
    /// Run directories, relative: this program writes them while a command runs.
    own: Vec<PathBuf>,
    writes: Writes,
    /// The places outside the workspace that the command may write, as real paths.
    places: Vec<PathBuf>,
    allowed: Allowed,
    /// What counts as allowed in the comparison.
    effective: OnceLock<Allowed>,
    areas: Vec<Area>,
    /// Closed paths that read-only mounts protect: they cannot have changed as long as the same file or directory is there.
    mounted: BTreeMap<PathBuf, TreeNode>,
    /// Every entry to compare, relative to the workspace.
    before: BTreeMap<PathBuf, TreeNode>,
    held: HeldContents,
    /// Git's objects, whose content is kept for all commands of the run.
    objects: Arc<KeptObjects>,
    /// The names of the workspace, as the last walk found them.
    names: Arc<KnownNames>,
    /// Open directories of repositories, which are moved back.
    repositories: BTreeMap<PathBuf, Arc<OwnedFd>>,
    /// The guards of commands that were live already when this guard was created. Empty afterwards.
    older: Vec<overlap::Older>,
    /// Entries that such a command had created without a grant, each with its guard.
    made_by_older: BTreeMap<PathBuf, overlap::OfOlder>,
    /// Entries that such a command had changed or removed without a grant, each with its guard.
    changed_by_older: BTreeMap<PathBuf, overlap::OfOlder>,
    taken: SystemTime,
    /// The device on which the change time of a file shows every write.
    exact: Option<u64>,
    /// Directories that could not be listed before the command. New entries in them cannot be recognised, which is
    /// reported.
    unlisted: BTreeSet<PathBuf>,
    most_names: u64,
    /// Paths of entries that could not be put back. If such an entry is elsewhere now, that is the only copy.
    lost: Mutex<BTreeSet<PathBuf>>,
    /// Where entries were before the command; computed when something is undone.
    origins: OnceLock<origins::Origins>,
    lived: LiveCommand,
}

/// What is examined when the command has ended.
#[derive(Debug)]
enum Area {
    /// Closed paths below this directory, and what the first walk recorded of it.
    Closed(PathBuf, Arc<walk::Known>),
    /// Everything below this directory.
    Whole(PathBuf),
    /// New names in this directory, given the names and inode numbers that it had.
    Names(PathBuf, BTreeMap<Vec<u8>, u64>),
}

/// What may be changed.
#[derive(Clone, Debug, Default)]
struct Allowed {
    tree: bool,
    paths: Vec<WritePath>,
    /// Files that this process itself wrote, also closed ones.
    by_tools: OwnWrites,
}

/// How a path relates to a grant.
enum GrantMatch {
    /// The path is granted, and for a directory everything below it that is not closed.
    Granted,
    /// A directory above a granted path.
    Ancestor,
    Not(String, Option<String>),
}

impl Allowed {
    fn add(&mut self, writes: &Writes) {
        match writes {
            Writes::Nothing => {}
            Writes::Tree => self.tree = true,
            Writes::Paths { paths, maybe } => {
                self.paths.extend(paths.iter().cloned());
                // Another command's guard undoes changes there that it was not granted.
                self.paths.extend(maybe.iter().map(|dir| WritePath {
                    path: dir.clone(),
                    kind: WriteKind::Entry,
                }));
            }
        }
    }

    /// How a path relates to what this process itself wrote.
    fn tool_match(&self, root: &OwnedFd, path: &Path, is_dir: bool) -> Option<GrantMatch> {
        match is_dir {
            false => self.is_by_tools(root, path).then_some(GrantMatch::Granted),
            true => self.holds_by_tools(path).then_some(GrantMatch::Ancestor),
        }
    }

    /// Whether the entry at a path is as this process itself wrote it.
    fn is_by_tools(&self, root: &OwnedFd, path: &Path) -> bool {
        let now = || {
            let data = at::stat_below(root, path).ok()?;
            Some((data.st_dev, data.st_ino, data.st_ctime, data.st_ctime_nsec as i64))
        };
        self.by_tools
            .get(path)
            .is_some_and(|written| written.is_none_or(|then| then == now()))
    }

    /// Whether this process itself wrote something at or below a path.
    fn holds_by_tools(&self, dir: &Path) -> bool {
        let from = (Bound::Included(dir), Bound::Unbounded);
        let next = self.by_tools.range::<Path, _>(from).next();
        next.is_some_and(|(path, _)| path.starts_with(dir))
    }

    fn grant_match(&self, path: &Path, is_dir: bool, closed: &dyn ClosedPaths) -> Option<GrantMatch> {
        if self.tree {
            return Some(GrantMatch::Granted);
        }
        let mut is_ancestor = false;
        for granted in &self.paths {
            let target = Path::new(&granted.path);
            let is_ruled = granted.kind == WriteKind::Ruled;
            // In a directory under rules, each file is judged separately.
            if !(is_ruled && is_dir) && (path == target && !is_ruled || holds(granted, path, closed)) {
                return Some(GrantMatch::Granted);
            }
            is_ancestor |= is_dir && (target.starts_with(path) || is_ruled && path.starts_with(target));
        }
        is_ancestor.then_some(GrantMatch::Ancestor)
    }

    /// Whether the grant names this very entry as one that the command may replace.
    fn may_replace(&self, path: &Path) -> bool {
        let names = |granted: &WritePath| granted.kind == WriteKind::Entry && path == Path::new(&granted.path);
        !self.tree && self.paths.iter().any(names)
    }
}

/// Whether a grant holds for a file below it, too.
fn holds(granted: &WritePath, path: &Path, closed: &dyn ClosedPaths) -> bool {
    match granted.kind {
        WriteKind::InPlace => false,
        WriteKind::Entry => path.starts_with(&granted.path),
        // A rule cannot match a name that is not UTF-8.
        WriteKind::Ruled => path.starts_with(&granted.path) && path.to_str().is_some_and(|path| closed.is_ruled(path)),
    }
}

/// Receives the changes that a guard finds if it is compared on drop.
pub type FoundOnDrop = Arc<Mutex<Vec<Undone>>>;

/// The pause between two looks at whether another tree is recorded.
const FREE_PAUSE: Duration = Duration::from_millis(2);

/// A guard that is compared on drop if its command was started and it was not compared before.
pub(super) struct Guarded {
    guard: Option<Arc<WriteGuard>>,
    found: Option<FoundOnDrop>,
    /// Kept until the command has ended.
    indexes: Option<IndexView>,
    /// Keeps other commands stopped during the comparison.
    still: Option<Frozen>,
}

impl Guarded {
    /// Does ahead of the first command that may write what it would otherwise wait for: searches the workspace for hard
    /// links to files outside and for closed paths. What the walks find counts only as far as directories have not
    /// changed since. Changes nothing; what cannot be done ahead is left to the command.
    pub fn prepare_ahead(confinement: &Confinement) {
        let Ok(hidden) = confinement.masks.current(confinement) else {
            return;
        };
        let mut seen = hidden.within(confinement);
        if let Cow::Owned(seen) = &mut seen {
            confinement.masks.show_made(confinement, &mut seen.hidden);
        }
        confinement.links.examine(&seen);
        if let Ok(root) = at::root(&seen.workspace)
            && (seen.level == SandboxLevel::Full || !seen.closed.is_empty())
        {
            let own = seen.hidden_inside();
            let walk = TreeWalk {
                leaves_modes: true,
                ..TreeWalk::new(&root, &*seen.closed, &own)
            };
            seen.names.find(&walk, &seen.closed);
        }
    }

    /// The guard of one command, and what the command may reach. Examines the tree only as far as the grant requires.
    ///
    /// # Errors
    /// The name of a limit that was reached, and what to do. The command must not be started.
    pub fn take(confinement: &Confinement, writes: &Writes) -> Result<(Self, WorkspaceReach), String> {
        let hidden = confinement.masks.current(confinement)?;
        let mut seen = hidden.within(confinement);
        if let Cow::Owned(seen) = &mut seen {
            confinement.masks.show_made(confinement, &mut seen.hidden);
        }
        let mut kept = Vec::new();
        if confinement.level != SandboxLevel::None {
            if *writes == Writes::Nothing {
                let mut reach = WorkspaceReach::default();
                hidden.add_to(&mut reach, writes);
                return Ok((Self::new(None, confinement, &mut reach)?, reach));
            }
            kept = confinement.links.separate(&seen)?;
        }
        let (guard, mut reach) = WriteGuard::take(&seen, writes)?;
        confinement.masks.changes();
        // Also where it is granted: it would be written outside too.
        reach.writable.retain(|path| !kept.contains(path));
        reach.read_only.extend(kept);
        hidden.add_to(&mut reach, writes);
        Ok((Self::new(guard, confinement, &mut reach)?, reach))
    }

    fn new(
        guard: Option<Arc<WriteGuard>>,
        confinement: &Confinement,
        reach: &mut WorkspaceReach,
    ) -> Result<Self, String> {
        confinement.masks.show_made_in(confinement, reach);
        Ok(Self {
            guard,
            found: None,
            still: None,
            indexes: confinement.masks.show_indexes(confinement, reach)?,
        })
    }

    /// Registers the processes of the command, so that comparisons for other commands can stop them.
    pub fn lives_as(&self, root: i32, mark: u64, helpers: u8) {
        if let Some(guard) = &self.guard {
            guard.lived.set_processes(root, mark, helpers);
        }
    }

    /// Sets where to report the changes that are found if this is dropped before the comparison.
    pub fn report_on_drop(&mut self, found: FoundOnDrop) {
        self.found = Some(found);
    }

    /// Records that the command is the MCP server with this name.
    pub fn is_server(&self, name: &str) {
        if let Some(guard) = &self.guard {
            guard.lived.set_server(name);
        }
    }

    /// Waits until no other tree is being recorded or compared, and stops other commands; both may take long. Await it
    /// before [`Guarded::compare`], which would otherwise block the thread that watches all commands, signals and
    /// limits.
    pub async fn until_free(&mut self) {
        while overlap::RECORDING.try_lock().is_err() {
            tokio::time::sleep(FREE_PAUSE).await;
        }
        if let Some(guard) = &self.guard {
            self.still = Some(guard.lived.freeze_others().await);
        }
        while overlap::RECORDING.try_lock().is_err() {
            tokio::time::sleep(FREE_PAUSE).await;
        }
    }

    /// Compares and restores. `at_exec`: grants that were added at exec. Call it when all processes of the command have
    /// ended.
    pub fn compare(&mut self, at_exec: &[WritePath]) -> Vec<Undone> {
        let _recording = lock(&overlap::RECORDING);
        // Done first, so that the guard of another command does not take the index for a change without a grant.
        let recorded = self.indexes.take().map(IndexView::end).unwrap_or_default();
        let guard = self.guard.take();
        let mut undone = guard.map(|guard| guard.compare(at_exec)).unwrap_or_default();
        undone.extend(recorded);
        self.still = None;
        undone
    }
}

impl Drop for Guarded {
    fn drop(&mut self) {
        // A command that was never started has changed nothing.
        if self.guard.as_ref().is_some_and(|guard| guard.lived.has_processes()) {
            let undone = self.compare(&[]);
            if let Some(found) = &self.found {
                lock(found).extend(undone);
            }
        }
    }
}

/// The hidden places (run directories) that commands can reach nevertheless: none at level `full`, where mounts cover
/// them; at `landlock` those in granted directories, since Landlock cannot exclude a place below one; at `none` all.
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
        SandboxLevel::Full => Vec::new(),
        SandboxLevel::Landlock => confinement.hidden.iter().filter(granted).cloned().collect(),
        SandboxLevel::None => confinement.hidden.clone(),
    }
}

impl WriteGuard {
    fn walk(&self) -> TreeWalk<'_> {
        TreeWalk {
            most_names: self.most_names,
            ..TreeWalk::new(&self.root, &*self.closed, &self.own)
        }
    }

    /// Whether a path is closed, granted, or neither.
    fn grant_match(&self, path: &Path, is_dir: bool) -> GrantMatch {
        if let Some(found) = self.allowed().tool_match(&self.root, path, is_dir) {
            return found;
        }
        let text = path.to_string_lossy();
        if self.closed.closed(&text, is_dir) {
            let (code, rule) = self.closed.why(&text);
            return GrantMatch::Not(code.to_owned(), rule);
        }
        self.allowed()
            .grant_match(path, is_dir, &*self.closed)
            .unwrap_or_else(|| GrantMatch::Not("not_granted".to_owned(), None))
    }

    fn allowed(&self) -> &Allowed {
        self.effective.get().unwrap_or(&self.allowed)
    }

    fn is_own(&self, path: &Path) -> bool {
        self.own.iter().any(|own| path.starts_with(own))
    }
}

/// The message when a limit keeps a command from starting.
fn limit_message(over: &ExceededLimit) -> String {
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
            "searching the workspace took more than 60 seconds",
            "run in a smaller directory",
        ),
        "limit:guard_path" => ("a path is longer than 4,000 bytes", "remove it"),
        "limit:guard_entries" => (
            "more than 200,000 entries would have to be compared afterwards",
            "write below a smaller directory, or grant `writes: tree`",
        ),
        "limit:guard_bytes" => (
            "more than 512 MiB would have to be kept for comparing",
            "write below a smaller directory, or grant `writes: tree`",
        ),
        _ => ("a file or directory cannot be read", "make it readable"),
    };
    format!(
        "{}: {what}{at}, so what the command writes could not be checked; {fix}",
        over.code
    )
}

#[cfg(test)]
mod tests;
