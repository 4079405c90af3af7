//! Commands that run at the same time. Changes of a command without a grant are undone only when it has ended, so the
//! guard of a command that starts meanwhile must not record them as the state to restore: it takes over what the guards
//! of the older commands recorded.

use super::{Allowed, Area, GrantMatch, WriteGuard, at};
use crate::base::grant::ClosedPaths;
use crate::base::sync::lock;
use crate::process::write_guard::node::{Fingerprint, NodeKind, TreeNode};
use rustix::fs::fstat;
use rustix::io::Errno;
use std::collections::BTreeMap;
use std::ffi::{CStr, OsStr};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path, PathBuf};
use std::sync::{Arc, Mutex, Weak};

/// Upper limit for the recorded entries that an older command created or changed.
const MOST_SEEN: usize = 1_000;

/// Held while a tree is recorded or compared: a guard that is recorded knows every command that may have written, and none
/// ends or starts meanwhile.
pub(super) static RECORDING: Mutex<()> = Mutex::new(());

/// The guards of commands that may write and were not compared yet, oldest first.
static UNCOMPARED: Mutex<Vec<Weak<WriteGuard>>> = Mutex::new(Vec::new());

/// The guard of a command that was started before another one.
#[derive(Debug)]
pub(super) struct Older {
    guard: Arc<WriteGuard>,
    /// What it and the commands that run at the same time may write, and what this process wrote meanwhile.
    allowed: Allowed,
}

/// What an older command has changed without a grant.
#[derive(Debug)]
pub(super) struct OfOlder {
    guard: Weak<WriteGuard>,
    /// What was there when the younger command started; `None`: more than is remembered.
    seen: Option<BTreeMap<PathBuf, Fingerprint>>,
}

/// What the guard of an older command knows about a path that this command may not write.
#[derive(Debug)]
enum Earlier {
    /// The state that it restores.
    Recorded(TreeNode, Weak<WriteGuard>),
    /// Something that it removes.
    New(Weak<WriteGuard>),
}

/// Adds a guard to the list of live guards.
pub(super) fn add(guard: &Arc<WriteGuard>) {
    let mut living = lock(&UNCOMPARED);
    living.retain(|other| other.strong_count() > 0);
    living.push(Arc::downgrade(guard));
}

impl Older {
    /// The live guards of this tree, oldest first.
    pub fn of(guard: &WriteGuard) -> Vec<Self> {
        let identity = |guard: &WriteGuard| fstat(&guard.root).map(|data| (data.st_dev, data.st_ino));
        let here = identity(guard);
        let living: Vec<Arc<WriteGuard>> = lock(&UNCOMPARED).iter().filter_map(Weak::upgrade).collect();
        let same = living
            .into_iter()
            .filter(|other| here.is_ok() && identity(other) == here);
        same.map(|guard| {
            let mut allowed = Allowed::default();
            allowed.add(&guard.writes);
            guard.lived.seen().iter().for_each(|writes| allowed.add(writes));
            allowed.by_tools = guard.lived.written();
            Self { guard, allowed }
        })
        .collect()
    }

    /// `None` if its command may write the path, or it knows nothing about it.
    fn earlier(&self, path: &Path, is_dir: bool) -> Option<Earlier> {
        let guard = &*self.guard;
        let is_unknown = |dir: &Path| guard.unlisted.contains(dir);
        let is_by_tools = match is_dir {
            true => self.allowed.holds_by_tools(path),
            false => self.allowed.is_by_tools(&guard.root, path),
        };
        if is_by_tools || guard.is_own(path) || path.ancestors().skip(1).any(is_unknown) {
            return None;
        }
        let recorded = guard.before.get(path);
        let is_dir = recorded.map_or(is_dir, |node| matches!(node.kind, NodeKind::Dir));
        let closed = topmost_closed(&*guard.closed, path, is_dir);
        match &closed {
            Some(top) if recorded.is_none() && guard.mounted.contains_key(top) => return None,
            Some(_) => {}
            None => {
                let granted = self.allowed.grant_match(path, is_dir, &*guard.closed);
                if let Some(GrantMatch::Granted | GrantMatch::Ancestor) = granted {
                    return None;
                }
            }
        }
        match recorded {
            Some(node) => Some(Earlier::Recorded(node.clone(), Arc::downgrade(&self.guard))),
            None => {
                let mut areas = guard.areas.iter();
                let is_new = areas.any(|area| guard.is_new_in(area, path, closed.as_deref()));
                is_new.then(|| Earlier::New(Arc::downgrade(&self.guard)))
            }
        }
    }
}

impl WriteGuard {
    /// Whether a path that was not recorded was not there when this guard was made, as far as an area tells.
    fn is_new_in(&self, area: &Area, path: &Path, closed: Option<&Path>) -> bool {
        match (area, closed) {
            (Area::Closed(top, known), Some(closed)) => {
                let is_recorded = self.before.contains_key(closed) || self.made_by_older.contains_key(closed);
                closed.starts_with(top) && (is_recorded || !known.is_closed(closed))
            }
            (Area::Closed(..), None) => false,
            (Area::Whole(top), _) => path.starts_with(top),
            (Area::Names(dir, numbers), _) => {
                let below = path.strip_prefix(dir).ok().and_then(|below| below.components().next());
                match below {
                    Some(Component::Normal(name)) => {
                        !numbers.contains_key(name.as_bytes()) && !self.before.contains_key(&dir.join(name))
                    }
                    _ => false,
                }
            }
        }
    }

    fn earlier(&self, path: &Path, is_dir: bool) -> Option<Earlier> {
        self.older.iter().find_map(|older| older.earlier(path, is_dir))
    }

    /// Whether an older command's guard restores or removes this path.
    pub(super) fn is_known_to_older(&self, path: &Path, is_dir: bool) -> bool {
        self.earlier(path, is_dir).is_some()
    }

    /// Takes over what an older command's guard knows about a path. `false` if none knows it; else nothing of it is to be
    /// recorded but, if it is a directory that was recorded, the entries below it.
    pub(super) fn take_over(&mut self, path: &Path) -> bool {
        if self.older.is_empty() {
            return false;
        }
        let now = at::stat_below(&self.root, path).ok();
        let is_dir = now.as_ref().is_some_and(at::is_dir);
        match self.earlier(path, is_dir) {
            None => return false,
            Some(Earlier::New(older)) => {
                let seen = seen_at(&self.root, path);
                self.made_by_older
                    .insert(path.to_path_buf(), OfOlder { guard: older, seen });
            }
            Some(Earlier::Recorded(node, older)) => {
                if now.map(|data| Fingerprint::of(&data)) != Some(node.fingerprint) {
                    let (guard, seen) = (older.clone(), entry_at(&self.root, path));
                    self.changed_by_older
                        .insert(path.to_path_buf(), OfOlder { guard, seen });
                }
                let place = older.upgrade().and_then(|older| older.repositories.get(path).cloned());
                if let Some(place) = place {
                    self.repositories.insert(path.to_path_buf(), place);
                }
                self.before.insert(path.to_path_buf(), node);
            }
        }
        true
    }

    /// Takes over what older commands have removed that this guard compares.
    pub(super) fn take_over_removed(&mut self) {
        let mut missing: Vec<PathBuf> = Vec::new();
        for older in &self.older {
            for (path, node) in &older.guard.before {
                if !self.before.contains_key(path) && self.compares(path, matches!(node.kind, NodeKind::Dir)) {
                    missing.push(path.clone());
                }
            }
        }
        for path in missing {
            self.take_over(&path);
        }
    }

    /// Whether a path is among what is compared, if it is no granted one.
    fn compares(&self, path: &Path, is_dir: bool) -> bool {
        self.areas.iter().any(|area| match area {
            Area::Whole(top) => path.starts_with(top),
            Area::Closed(top, _) => {
                let closed = topmost_closed(&*self.closed, path, is_dir);
                closed.is_some_and(|closed| closed.starts_with(top) && !self.mounted.contains_key(&closed))
            }
            Area::Names(..) => false,
        })
    }

    /// Whether a path was changed before this command started, by one that is not compared yet, and not since: that one's
    /// guard restores it, and reports it as its change.
    pub(super) fn is_left_to_older(&self, path: &Path) -> bool {
        let is_left = |older: &OfOlder, now: Option<BTreeMap<PathBuf, Fingerprint>>| {
            older.guard.strong_count() > 0 && now.is_some() && now == older.seen
        };
        let changed = self.changed_by_older.get(path);
        let mut made = path
            .ancestors()
            .filter_map(|path| Some((path, self.made_by_older.get(path)?)));
        changed.is_some_and(|older| is_left(older, entry_at(&self.root, path)))
            || made.any(|(path, older)| is_left(older, seen_at(&self.root, path)))
    }

    /// Whether an older command made this path.
    pub(super) fn is_made_by_older(&self, path: &Path) -> bool {
        self.made_by_older.contains_key(path)
    }

    /// Whether an older command made this name in a directory without a grant. If so, it is remembered as made by it.
    pub(super) fn is_name_made_by_older(&mut self, dir: &Path, name: &[u8]) -> bool {
        let path = dir.join(OsStr::from_bytes(name));
        let now = at::stat_below(&self.root, &path).ok();
        let Some(Earlier::New(guard)) = self.earlier(&path, now.as_ref().is_some_and(at::is_dir)) else {
            return false;
        };
        let seen = seen_at(&self.root, &path);
        self.made_by_older.insert(path, OfOlder { guard, seen });
        true
    }
}

/// What is at a path, by its metadata. `None` if it cannot be read.
fn entry_at(root: &OwnedFd, path: &Path) -> Option<BTreeMap<PathBuf, Fingerprint>> {
    match at::stat_below(root, path) {
        Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => Some(BTreeMap::new()),
        data => Some([(path.to_path_buf(), Fingerprint::of(&data.ok()?))].into()),
    }
}

/// What is at and below a path, by its metadata. `None` if it cannot be read or is too much.
fn seen_at(root: &OwnedFd, path: &Path) -> Option<BTreeMap<PathBuf, Fingerprint>> {
    let mut seen = BTreeMap::new();
    let mut left = vec![path.to_path_buf()];
    let mut buffer = Vec::new();
    while let Some(path) = left.pop() {
        let data = match at::stat_below(root, &path) {
            Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => continue,
            data => data.ok()?,
        };
        if at::is_dir(&data) {
            let dir = at::dir(root, &path).ok()?;
            let mut names = |name: &CStr, _, _| left.push(path.join(OsStr::from_bytes(name.to_bytes())));
            at::list(&dir, &mut buffer, &mut names).ok()?;
        }
        seen.insert(path, Fingerprint::of(&data));
        if seen.len() + left.len() > MOST_SEEN {
            return None;
        }
    }
    Some(seen)
}

/// The outermost closed path at or above a path.
fn topmost_closed(closed: &dyn ClosedPaths, path: &Path, is_dir: bool) -> Option<PathBuf> {
    let mut above: Vec<&Path> = path.ancestors().filter(|dir| !dir.as_os_str().is_empty()).collect();
    above.reverse();
    let found = above
        .into_iter()
        .find(|one| closed.closed(&one.to_string_lossy(), is_dir || *one != path));
    found.map(Path::to_path_buf)
}
