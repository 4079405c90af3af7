//! After a command: finds changes without a grant and undoes them, using only directory handles.

use super::node::{Fingerprint, NodeKind, StoredContent, TreeNode};
use super::registrations::Registered;
use super::{Area, GrantMatch, WriteGuard, at, holds, walk};
use crate::base::event::PathChange;
use crate::base::grant::{KEPT_ASIDE, Undone, WriteKind, WritePath};
use crate::base::sync::lock;
use rustix::fs::{AtFlags, FileType, Gid, Uid, chownat, unlinkat};
use rustix::io::Errno;
use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::ops::Bound;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// Upper limit for the changes that are listed; further ones are counted under `.`.
const MOST_NAMED: usize = 10_000;

impl WriteGuard {
    /// Undoes changes without a grant and returns them, sorted. No other command of this process writes meanwhile.
    pub(super) fn compare(&self, at_exec: &[WritePath]) -> Vec<Undone> {
        if self.areas.is_empty() && self.before.is_empty() && self.mounted.is_empty() {
            return Vec::new();
        }
        let mut undone = Undo::default();
        self.lived.set_ended();
        let stopped = self.lived.freeze_others_at_once();
        if !stopped.all() {
            undone.limit("limit:guard_freeze", Path::new(""), false);
        }
        let mut allowed = self.allowed.clone();
        allowed.paths.extend(at_exec.iter().cloned());
        allowed.by_tools = self.lived.written();
        // Changes to paths that another live command may write may have been made by that command.
        let others = self.lived.seen();
        for writes in &others {
            allowed.add(writes);
        }
        let _ = self.effective.set(allowed);
        let (restored, displaced) = self.restore_moved_repositories();
        for path in restored {
            undone.add(&path, self.reason(&path), PathChange::Deleted, true);
        }
        // Done last, because they may have contained directories that were moved back.
        for fresh in displaced.iter().map(Path::new) {
            let gone = self.move_back_contents(fresh, &mut undone) && at::remove_below(&self.root, fresh).is_ok();
            if !gone {
                undone.add(fresh, ("not_granted".to_owned(), None), PathChange::Added, false);
            }
        }
        let mut last = None;
        for (path, node) in &self.before {
            if !self.is_surely_unchanged(path, node, &mut last) {
                // An entry that is put back may replace the directory.
                last = None;
                self.old(path, node, &mut undone);
            }
        }
        self.mounts(&mut undone);
        for area in &self.areas {
            match area {
                Area::Closed(top, known) => self.closed_below(top, known, &mut undone),
                Area::Whole(top) => self.new_below(top, &mut undone),
                Area::Names(dir, numbers) => self.new_names(dir, numbers, &mut undone),
            }
        }
        if others.is_empty() {
            self.removals(&mut undone);
        }
        drop(stopped);
        undone.finish()
    }

    /// Whether the metadata of an entry suffices to know that it is unchanged. `last`: the directory of the entry before,
    /// which is mostly that of this one.
    fn is_surely_unchanged(&self, path: &Path, node: &TreeNode, last: &mut Option<(PathBuf, OwnedFd)>) -> bool {
        let (Some(parent), Some(name), Some(_)) = (path.parent(), path.file_name(), self.exact) else {
            return false;
        };
        if last
            .as_ref()
            .is_none_or(|(dir, _)| dir.as_os_str() != parent.as_os_str())
        {
            let opened = at::dir(&self.root, parent).ok();
            *last = opened.map(|handle| (parent.to_path_buf(), handle));
        }
        let data = last.as_ref().and_then(|(_, dir)| at::stat(dir, name).ok());
        data.is_some_and(|data| node.is_surely(&Fingerprint::of(&data), self.exact))
    }

    /// Compares an entry that existed before.
    fn old(&self, path: &Path, node: &TreeNode, undone: &mut Undo) {
        let now = at::stat_below(&self.root, path).ok();
        if node.is_unchanged(&self.root, path, &self.held, self.exact) {
            let now = now.map(|data| Fingerprint::of(&data));
            self.keep_time(path, node, now);
            self.keep_alone(path, node, now);
            return;
        }
        if self.is_left_to_older(path) || now.is_none() && self.is_unregistered(path) {
            return;
        }
        match self.grant_match(path, matches!(node.kind, NodeKind::Dir)) {
            GrantMatch::Granted if !self.allowed().tree && !self.entry(path) => {
                // Granted in place: its content may change, but it must stay a regular file.
                let file = now.is_some_and(|data| FileType::from_raw_mode(data.st_mode).is_file());
                if !file {
                    self.undo(path, node, ("not_granted".to_owned(), None), undone);
                }
            }
            GrantMatch::Granted => {}
            GrantMatch::Ancestor if now.is_none() && self.may_go(path) => {}
            GrantMatch::Ancestor => self.undo(path, node, ("not_granted".to_owned(), None), undone),
            GrantMatch::Not(code, rule) => self.undo(path, node, (code, rule), undone),
        }
    }

    /// Puts back everything that the command removed by its grant if any of its writes was undone, because it is not
    /// known which new file replaced which old one. `gzip a` under a grant of `a` alone would otherwise leave neither
    /// `a` nor `a.gz`.
    fn removals(&self, undone: &mut Undo) {
        let is_lost = |one: &Undone| {
            matches!(one.change, PathChange::Added | PathChange::Modified) && !one.code.starts_with("limit:")
        };
        if !undone.list.iter().any(is_lost) {
            return;
        }
        for (path, node) in &self.before {
            let gone = matches!(at::stat_below(&self.root, path), Err(Errno::NOENT | Errno::NOTDIR));
            // What is not held could not be put back, and its removal was granted.
            let held = !matches!(node.kind, NodeKind::Other | NodeKind::File(StoredContent::NotHeld));
            if gone
                && held
                && !matches!(
                    self.grant_match(path, matches!(node.kind, NodeKind::Dir)),
                    GrantMatch::Not(..)
                )
            {
                self.undo(path, node, ("not_granted".to_owned(), None), undone);
            }
        }
    }

    fn entry(&self, path: &Path) -> bool {
        let mut paths = self.allowed().paths.iter();
        self.allowed().is_by_tools(&self.root, path) || paths.any(|granted| holds(granted, path, &*self.closed))
    }

    /// Whether a directory below a place under rules may be removed: the rules allow to remove every file that was in
    /// it.
    fn may_go(&self, dir: &Path) -> bool {
        let mut paths = self.allowed().paths.iter();
        let below = (Bound::Excluded(dir), Bound::Unbounded);
        let below = self.before.range::<Path, _>(below);
        paths.any(|granted| granted.kind == WriteKind::Ruled && dir.starts_with(&granted.path))
            && below.take_while(|(path, _)| path.starts_with(dir)).all(|(path, node)| {
                matches!(node.kind, NodeKind::Dir) || matches!(self.grant_match(path, false), GrantMatch::Granted)
            })
    }

    /// Restores a file's modification time if nothing else changed. This is not reported as a change, but without it
    /// builds would start over.
    fn keep_time(&self, path: &Path, node: &TreeNode, now: Option<Fingerprint>) {
        let moved = now.is_some_and(|now| now.modified != node.fingerprint.modified);
        if moved
            && matches!(node.kind, NodeKind::File(_))
            && matches!(self.grant_match(path, false), GrantMatch::Not(..))
        {
            // If this fails, only the modification time differs.
            let _ = at::file(&self.root, path).and_then(|file| at::set_modified(&file, node.fingerprint.modified));
        }
    }

    /// Gives a closed file with a new hard link its own inode: the other link could be used to write it later, when
    /// nothing is compared.
    fn keep_alone(&self, path: &Path, node: &TreeNode, now: Option<Fingerprint>) {
        let held = matches!(
            &node.kind,
            NodeKind::File(StoredContent::Memory(_) | StoredContent::Spilled(..))
        );
        let named_anew = now.is_some_and(|now| now.links > node.fingerprint.links);
        if held && named_anew && self.closed.closed(&path.to_string_lossy(), false) {
            // If this fails, the content is still right, and the next comparison tries again.
            let _ = self.put_back(path, node);
        }
    }

    fn undo(&self, path: &Path, node: &TreeNode, (code, rule): (String, Option<String>), undone: &mut Undo) {
        let now = at::stat_below(&self.root, path).ok().map(|data| Fingerprint::of(&data));
        let change = match now {
            None => PathChange::Deleted,
            Some(now) if now.is_same_content(&node.fingerprint) => PathChange::Mode,
            Some(_) => PathChange::Modified,
        };
        // If another repository shares the object, the command may have written it through the other hard links, which
        // this process cannot restore.
        let is_shared = node.is_sealed_object(path) && node.fingerprint.links > 1;
        let is_replaced = now.is_some_and(|now| now.inode != node.fingerprint.inode);
        let is_free =
            (!is_replaced || self.move_back_contents(path, undone)) && self.move_back_blocking_file(path, undone);
        let is_back = is_free && self.put_back(path, node).is_ok();
        if !is_back {
            lock(&self.lost).insert(path.to_path_buf());
        }
        let restored = is_back && !is_shared;
        undone.add(path, (code, rule), change, restored);
    }

    /// Moves away entries at or below a path that were elsewhere before, because removing or replacing them would
    /// destroy them. `false` if that was not possible: then the path must stay as it is.
    fn move_back_contents(&self, path: &Path, undone: &mut Undo) -> bool {
        let moved = self.move_back_from(path);
        for (origin, is_dir) in &moved.paths {
            undone.add(origin, ("not_granted".to_owned(), None), PathChange::Deleted, true);
            if *is_dir && !self.closed.is_empty() {
                self.closed_below(origin, &walk::Known::default(), undone);
            }
        }
        if let Some(name) = &moved.set_aside {
            undone.add(Path::new(name), (KEPT_ASIDE.to_owned(), None), PathChange::Added, false);
        }
        !moved.is_left
    }

    /// Like [`WriteGuard::move_back_contents`], for a file that is now at the place of a parent directory of the path.
    fn move_back_blocking_file(&self, path: &Path, undone: &mut Undo) -> bool {
        if !matches!(at::parent(&self.root, path), Err(Errno::NOTDIR | Errno::LOOP)) {
            return true;
        }
        let is_in_the_way = |dir: &&Path| at::stat_below(&self.root, dir).is_ok_and(|now| !at::is_dir(&now));
        let blocking = path.ancestors().skip(1).find(is_in_the_way);
        blocking.is_none_or(|file| self.move_back_contents(file, undone))
    }

    fn put_back(&self, path: &Path, node: &TreeNode) -> io::Result<()> {
        let is_lost = matches!(node.kind, NodeKind::File(StoredContent::NotHeld)) && !node.is_sealed_object(path);
        if is_lost || matches!(node.kind, NodeKind::Other) {
            return Err(io::ErrorKind::Unsupported.into());
        }
        if path.as_os_str().is_empty() {
            own(&self.root, node)?;
            at::set_mode(&self.root, node.fingerprint.mode)?;
            return Ok(at::set_attributes(&self.root, &node.attributes)?);
        }
        let (dir, name) = at::parent_made(&self.root, path)?;
        let opened = at::OpenedUp::of(dir)?;
        let dir = &opened.dir;
        let is_dir = match at::stat(dir, name) {
            Ok(now) => at::is_dir(&now),
            Err(Errno::NOENT) => false,
            // This error does not show whether the entry exists, and a directory that is there must not be replaced.
            Err(error) => return Err(error.into()),
        };
        match &node.kind {
            NodeKind::Dir => {
                if !is_dir {
                    at::remove(dir, name)?;
                    at::make_dir(dir, name)?;
                }
                let handle = at::handle(dir, Path::new(name))?;
                own(&handle, node)?;
                at::set_mode(&handle, node.fingerprint.mode)?;
                Ok(at::set_attributes(&handle, &node.attributes)?)
            }
            NodeKind::Link(target) => {
                let fresh = at::fresh_name();
                at::make_link(dir, OsStr::new(&fresh), target)?;
                place(dir, &fresh, name, is_dir)
            }
            NodeKind::File(content) => {
                let (mut file, fresh) = at::new_file(dir)?;
                let written = self.write(path, content, node, &mut file);
                if written.is_err() {
                    let _ = at::remove(dir, OsStr::new(&fresh));
                }
                written.and_then(|()| place(dir, &fresh, name, is_dir))
            }
            NodeKind::Other => Err(io::ErrorKind::Unsupported.into()),
        }
    }

    fn write(&self, path: &Path, content: &StoredContent, node: &TreeNode, file: &mut File) -> io::Result<()> {
        match content {
            StoredContent::NotHeld => {
                self.objects.write(path, &node.fingerprint, file)?;
                if !node.is_content(path, file, &self.held)? {
                    return Err(io::ErrorKind::InvalidData.into());
                }
            }
            content => content.write(file)?,
        }
        let handle = OwnedFd::from(file.try_clone()?);
        own(&handle, node)?;
        at::set_mode(&handle, node.fingerprint.mode)?;
        at::set_attributes(&handle, &node.attributes)?;
        // Builds that compare times need not start over.
        Ok(at::set_modified(file, node.fingerprint.modified)?)
    }

    /// Handles closed paths that did not exist before, and new entries in those that did.
    fn closed_below(&self, top: &Path, known: &walk::Known, undone: &mut Undo) {
        let found = self.walk().find_again(top, known);
        for path in &found.closed {
            if self.mounted.contains_key(path) || self.is_own(path) {
                continue;
            }
            if self.before.contains_key(path) {
                self.new_below(path, undone);
            } else if known.is_closed(path) && !self.is_made_by_older(path) {
                self.unrecorded(path, undone);
            } else if self.allowed().holds_by_tools(path) {
                let is_dir = at::stat_below(&self.root, path).is_ok_and(|data| at::is_dir(&data));
                self.judge_new(path, is_dir, undone);
            } else if self.is_there(path) {
                self.remove(path, self.reason(path), undone);
            }
        }
        self.limits(found.over, undone);
    }

    /// Reports a closed path that was there before the command but was missing when it was to be recorded. If it is there
    /// again, nothing tells whether the command made it, so it stays, and the run ends.
    fn unrecorded(&self, path: &Path, undone: &mut Undo) {
        if self.is_there(path) {
            undone.add(path, self.reason(path), PathChange::Modified, false);
        }
    }

    /// Reports closed paths at which something else is than what was mounted, or nothing: the command may have written there,
    /// and nothing else was recorded of a directory.
    fn mounts(&self, undone: &mut Undo) {
        for (path, node) in &self.mounted {
            let change = match at::stat_below(&self.root, path).map(|data| Fingerprint::of(&data)) {
                _ if self.allowed().is_by_tools(&self.root, path) => continue,
                Ok(now) if now.is_same_entry(&node.fingerprint) => continue,
                Ok(_)
                    if !matches!(node.kind, NodeKind::Dir)
                        && node.is_unchanged(&self.root, path, &self.held, self.exact) =>
                {
                    continue;
                }
                Ok(_) => PathChange::Modified,
                Err(_) => PathChange::Deleted,
            };
            undone.add(path, self.reason(path), change, false);
        }
    }

    /// Whether something is at a path, as far as that is known.
    fn is_there(&self, path: &Path) -> bool {
        !matches!(
            at::stat_below(&self.root, path),
            Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP)
        )
    }

    /// Reports limits that were reached. A directory whose path is too long is removed: it is certainly new, since
    /// before the command there was none. One that cannot be read stays, even if it has a new name: the error may be
    /// temporary or in this process, and the directory may hold what was there before.
    fn limits(&self, over: Vec<walk::ExceededLimit>, undone: &mut Undo) {
        for over in over {
            let gone = over.code == walk::LONG_PATH
                && self.move_back_contents(&over.path, undone)
                && at::remove_below(&self.root, &over.path).is_ok();
            undone.limit(over.code, &over.path, gone);
        }
    }

    /// Handles unrecorded entries below a recorded directory.
    fn new_below(&self, top: &Path, undone: &mut Undo) {
        let mut waiting = vec![top.to_path_buf()];
        while let Some(dir) = waiting.pop() {
            let listed = match self.listed_before(&dir) {
                Ok(listed) => listed,
                Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => continue,
                Err(_) => {
                    undone.limit(walk::UNREADABLE, &dir, false);
                    continue;
                }
            };
            for (path, kind, _) in listed {
                if self.is_own(&path) {
                    continue;
                }
                if !self.before.contains_key(&path) {
                    self.judge_new(&path, kind.is_dir(), undone);
                } else if kind.is_dir() {
                    waiting.push(path);
                }
            }
        }
    }

    /// Handles new names in one directory.
    fn new_names(&self, dir: &Path, numbers: &BTreeMap<Vec<u8>, u64>, undone: &mut Undo) {
        let Ok(listed) = self.listed_before(dir) else {
            undone.limit(walk::UNREADABLE, dir, false);
            return;
        };
        for (path, kind, number) in listed {
            let name = path.file_name().map(OsStr::as_bytes).unwrap_or_default();
            let same = numbers.get(name) == Some(&number) || self.before.contains_key(&path);
            if same || self.is_own(&path) {
                continue;
            }
            match self.grant_match(&path, kind.is_dir()) {
                // The command could not replace it: others did, and nothing of what was here was recorded.
                GrantMatch::Not(code, rule) if numbers.contains_key(name) => {
                    undone.add(&path, (code, rule), PathChange::Modified, false);
                }
                _ => self.judge_new(&path, kind.is_dir(), undone),
            }
        }
    }

    /// Handles an entry that did not exist before.
    fn judge_new(&self, path: &Path, is_dir: bool, undone: &mut Undo) {
        match self.grant_match(path, is_dir) {
            GrantMatch::Granted if is_dir && !self.closed.is_empty() => {
                self.closed_below(path, &walk::Known::default(), undone)
            }
            GrantMatch::Granted => {}
            GrantMatch::Ancestor => match self.entries(path) {
                Ok(listed) => {
                    let before = undone.list.len();
                    for (path, kind, _) in listed {
                        self.judge_new(&path, kind.is_dir(), undone);
                    }
                    // A new directory does not outlast what was removed from it; one that holds more is not removed.
                    if undone.list.len() > before
                        && let Ok((dir, name)) = at::parent(&self.root, path)
                    {
                        let _ = unlinkat(&dir, name, AtFlags::REMOVEDIR);
                    }
                }
                Err(Errno::NOENT) => {}
                // It may hold what was there before under another name.
                Err(_) => undone.limit(walk::UNREADABLE, path, false),
            },
            GrantMatch::Not(code, rule) => self.remove(path, (code, rule), undone),
        }
    }

    fn remove(&self, path: &Path, reason: (String, Option<String>), undone: &mut Undo) {
        if self.is_left_to_older(path) {
            return;
        }
        match self.registered(path) {
            Registered::OfOthers => return,
            Registered::Except(others) => {
                for other in others {
                    self.remove(&other, reason.clone(), undone);
                }
                return;
            }
            Registered::No => {}
        }
        let gone = self.move_back_contents(path, undone) && at::remove_below(&self.root, path).is_ok();
        undone.add(path, reason, PathChange::Added, gone);
    }

    /// The code and the rule by which a path may not be changed.
    fn reason(&self, path: &Path) -> (String, Option<String>) {
        match self.grant_match(path, true) {
            GrantMatch::Not(code, rule) => (code, rule),
            _ => {
                let (code, rule) = self.closed.why(&path.to_string_lossy());
                (code.to_owned(), rule)
            }
        }
    }

    /// The entries of a directory whose earlier entries are known.
    fn listed_before(&self, dir: &Path) -> rustix::io::Result<Vec<(PathBuf, FileType, u64)>> {
        match self.unlisted.contains(dir) {
            true => Err(Errno::ACCESS),
            false => self.entries(dir),
        }
    }

    pub(super) fn entries(&self, dir: &Path) -> rustix::io::Result<Vec<(PathBuf, FileType, u64)>> {
        let handle = match at::dir(&self.root, dir) {
            // It stays open: what is new in it is removed by its path.
            Err(Errno::ACCESS) => at::opened_up_below(&self.root, dir)?.ok_or(Errno::ACCESS)?.0,
            handle => handle?,
        };
        let mut listed = Vec::new();
        let mut unknown = Ok(());
        at::list(&handle, &mut Vec::new(), |name, kind, number| {
            let name = OsStr::from_bytes(name.to_bytes());
            match at::kind(&handle, name, kind) {
                Ok(Some(kind)) => listed.push((dir.join(name), kind, number)),
                Ok(None) => {}
                Err(error) => unknown = Err(error),
            }
        })
        .and(unknown)?;
        Ok(listed)
    }
}

/// Moves a new entry to its place. If that fails, the new one is removed.
fn place(dir: &OwnedFd, fresh: &str, name: &OsStr, is_dir: bool) -> io::Result<()> {
    let cleared = match is_dir {
        true => at::remove(dir, name),
        false => Ok(()),
    };
    let placed = cleared.and_then(|()| at::rename_over(dir, fresh, name));
    if placed.is_err() {
        let _ = at::remove(dir, OsStr::new(fresh));
    }
    Ok(placed?)
}

/// Restores the owner if it has changed.
fn own(handle: &OwnedFd, node: &TreeNode) -> rustix::io::Result<()> {
    let now = rustix::fs::fstat(handle)?;
    let (user, group) = node.fingerprint.owner;
    if (now.st_uid, now.st_gid) == (user, group) {
        return Ok(());
    }
    let (user, group) = (Uid::from_raw(user), Gid::from_raw(group));
    chownat(handle, "", Some(user), Some(group), AtFlags::EMPTY_PATH)
}

/// The changes that were undone so far.
#[derive(Default)]
struct Undo {
    list: Vec<Undone>,
    omitted: usize,
    failed: bool,
}

impl Undo {
    fn add(&mut self, path: &Path, (code, rule): (String, Option<String>), change: PathChange, restored: bool) {
        self.failed |= !restored;
        if self.list.len() >= MOST_NAMED {
            self.omitted += 1;
            return;
        }
        self.list.push(Undone {
            path: match path.as_os_str().is_empty() {
                true => ".".to_owned(),
                false => path.to_string_lossy().into_owned(),
            },
            code,
            rule,
            restored,
            change,
        });
    }

    fn limit(&mut self, code: &str, path: &Path, restored: bool) {
        self.add(path, (code.to_owned(), None), PathChange::Modified, restored);
    }

    fn finish(mut self) -> Vec<Undone> {
        self.list.sort_by(|one, other| one.path.cmp(&other.path));
        self.list.dedup();
        if self.omitted > 0 {
            self.list.push(Undone {
                path: format!("{} more", self.omitted),
                code: "not_granted".to_owned(),
                rule: None,
                restored: !self.failed,
                change: PathChange::Modified,
            });
        }
        self.list
    }
}

#[cfg(test)]
mod tests {
    use super::super::names::NameSet;
    use super::*;
    use crate::base::grant::Writes;
    use crate::process::Confinement;
    use std::fs;
    use std::sync::Arc;

    /// A directory that cannot be read may be an old one under a new name, and the error may be this program's.
    #[test]
    fn what_cannot_be_read_afterwards_stays_and_what_has_too_long_a_path_goes() {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir_all(dir.path().join("old/sub")).unwrap();
        fs::write(dir.path().join("old/sub/kept"), "x").unwrap();
        let confinement = Confinement {
            closed: Arc::new(NameSet::new(&["**/.npmrc".to_owned()])),
            ..Confinement::unconfined(dir.path())
        };
        let (guard, _) = WriteGuard::take(&confinement, &Writes::Tree).unwrap();
        let guard = guard.unwrap();
        for name in ["new", "long"] {
            fs::create_dir(dir.path().join(name)).unwrap();
        }
        let over = |code, path: &str| walk::ExceededLimit {
            code,
            path: path.into(),
        };
        let found = ["old/sub", "new"].map(|path| over(walk::UNREADABLE, path));
        let mut undone = Undo::default();
        guard.limits(found.into(), &mut undone);
        guard.limits(vec![over(walk::LONG_PATH, "long")], &mut undone);
        let told = undone.finish();
        let told: Vec<_> = told.iter().map(|one| (one.path.as_str(), one.restored)).collect();
        assert_eq!(told, [("long", true), ("new", false), ("old/sub", false)]);
        assert!(dir.path().join("old/sub/kept").exists() && dir.path().join("new").exists());
        assert!(!dir.path().join("long").exists());
    }
}
