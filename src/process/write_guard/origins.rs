//! Moves back entries that a command moved to a path where its changes are undone: removing or replacing them there
//! would destroy the only copy. If something else has taken the original place, the entry is kept under a new name.
//! Inode numbers show where an entry was before the command.

use super::node::{NodeKind, StoredContent, TreeNode};
use super::{Area, GrantMatch, WriteGuard, at};
use crate::base::sync::lock;
use rustix::fs::{FileType, Stat};
use rustix::io::Errno;
use std::ffi::OsStr;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// Beginning of the names of entries that are kept because they cannot be moved back.
const KEPT: &str = "overnight-kept";

/// The paths of all entries that were seen before the command, by their inode numbers.
#[derive(Debug)]
pub(super) struct Origins {
    /// Inode number, and which area, listing of the area and name of the listing; sorted.
    listed: Vec<(u64, usize, usize, usize)>,
    /// Those that are in no listing; sorted.
    others: Vec<(u64, PathBuf)>,
}

/// What was moved away from a path that must be free.
#[derive(Default)]
pub(super) struct MovedBack {
    /// The paths to which something was moved back, and whether each is that of a directory.
    pub paths: Vec<(PathBuf, bool)>,
    /// The name, at the top of the tree, of the directory or file with everything that could not be moved back.
    pub set_aside: Option<String>,
    /// Whether something could not be moved away at all.
    pub is_left: bool,
}

/// Where an entry was before the command.
enum Origin {
    Free(PathBuf),
    /// Something else is there now, or it cannot be found out whether the place is free.
    Taken,
}

impl Origins {
    fn of(guard: &WriteGuard) -> Self {
        let mut listed = Vec::new();
        let mut others: Vec<(u64, PathBuf)> = Vec::new();
        for (area, of_area) in guard.areas.iter().enumerate() {
            match of_area {
                Area::Closed(_, known) => {
                    for (listing, names) in known.listings.iter().enumerate() {
                        let numbers = names.numbers().enumerate();
                        listed.extend(numbers.map(|(name, number)| (number, area, listing, name)));
                    }
                }
                Area::Names(dir, numbers) => {
                    let path = |name: &[u8]| dir.join(OsStr::from_bytes(name));
                    others.extend(numbers.iter().map(|(name, number)| (*number, path(name))));
                }
                Area::Whole(_) => {}
            }
        }
        let recorded = guard.before.iter();
        others.extend(recorded.map(|(path, node)| (node.fingerprint.inode, path.clone())));
        listed.sort_unstable();
        others.sort_unstable();
        Self { listed, others }
    }

    /// The paths at which the file with this inode number was: several if it has hard links.
    fn paths(&self, guard: &WriteGuard, number: u64) -> Vec<PathBuf> {
        let first = self.listed.partition_point(|(listed, ..)| *listed < number);
        let same = self
            .listed
            .iter()
            .skip(first)
            .take_while(|(listed, ..)| *listed == number);
        let listed = same.filter_map(|(_, area, listing, name)| match guard.areas.get(*area)? {
            Area::Closed(_, known) => known.listings.get(*listing)?.path(*name),
            Area::Whole(_) | Area::Names(..) => None,
        });
        let first = self.others.partition_point(|(other, _)| *other < number);
        let same = self.others.iter().skip(first).take_while(|(other, _)| *other == number);
        listed.chain(same.map(|(_, path)| path.clone())).collect()
    }
}

impl WriteGuard {
    /// Moves back entries at or below a path, if the place where they were before does not exist now. If some cannot be
    /// moved back, everything at the path is moved to a new name at the top of the tree: a closed path must not keep
    /// it, and it may be the only copy. An entry that the command removed or replaced at a closed path is not moved but
    /// created again from its recorded content, if that was kept.
    pub(super) fn move_back_from(&self, path: &Path) -> MovedBack {
        let mut moved = MovedBack::default();
        let mut is_free = true;
        let mut waiting = vec![path.to_path_buf()];
        while let Some(path) = waiting.pop() {
            let is_done = match at::stat_opened_up(&self.root, &path) {
                Ok(data) => self.move_back_one(&path, &data, (&mut moved, &mut waiting)),
                Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => true,
                Err(_) => false,
            };
            is_free &= is_done;
        }
        if !is_free {
            // Moved as a whole, so that there is one name, however many entries there are.
            match self.set_aside(path) {
                Ok(name) => moved.set_aside = Some(name),
                Err(_) => moved.is_left = true,
            }
        }
        moved
    }

    /// `false` if the entry was elsewhere before, or may hold something that was, and cannot be moved back.
    fn move_back_one(&self, path: &Path, data: &Stat, (moved, waiting): (&mut MovedBack, &mut Vec<PathBuf>)) -> bool {
        let is_dir = at::is_dir(data);
        match self.origin_of(path, data) {
            Some(Origin::Free(origin)) => {
                let is_moved = self.move_to(path, &origin, data).is_ok();
                if is_moved {
                    moved.paths.push((origin, is_dir));
                }
                is_moved
            }
            None if is_dir => {
                let entries = self.entries(path);
                let is_listed = entries.is_ok();
                waiting.extend(entries.into_iter().flatten().map(|(path, ..)| path));
                is_listed
            }
            Some(Origin::Taken) => false,
            None => true,
        }
    }

    /// Where an entry was before the command. `None` if it is new, has not moved, or also exists at its old place: as
    /// another hard link, or because it is created again there from its recorded content.
    fn origin_of(&self, path: &Path, data: &Stat) -> Option<Origin> {
        let origins = self.origins.get_or_init(|| Origins::of(self));
        let paths = origins.paths(self, data.st_ino);
        if paths.is_empty() || paths.iter().any(|origin| origin == path) {
            return None;
        }
        // The inode number of a file that was removed may be used again.
        let created = at::parent_opened_up(&self.root, path)
            .ok()
            .and_then(|(opened, name)| at::created(&opened.dir, name));
        if created.is_some_and(|created| created >= self.taken) {
            return None;
        }
        let mut is_taken = false;
        for origin in paths {
            if self.is_own(&origin) || self.is_made_again(&origin, at::is_dir(data)) {
                continue;
            }
            match at::stat_opened_up(&self.root, &origin) {
                Ok(now) if now.st_ino == data.st_ino => return None,
                Err(Errno::NOENT) => return Some(Origin::Free(origin)),
                // Its entries can be moved back into the directory that is there now.
                Ok(now) if at::is_dir(&now) && at::is_dir(data) => {}
                // What the command replaces by its words, as `patch FILE` does, it need not keep.
                Ok(now) if !at::is_dir(&now) && !at::is_dir(data) && self.allowed().may_replace(&origin) => {}
                Ok(_) | Err(_) => is_taken = true,
            }
        }
        is_taken.then_some(Origin::Taken)
    }

    /// Whether the entry that was at a path before the command is, or will be, created again from its recorded content,
    /// or the command could never reach it.
    fn is_made_again(&self, path: &Path, is_dir: bool) -> bool {
        if matches!(self.grant_match(path, is_dir), GrantMatch::Granted) {
            return false;
        }
        let is_held = |node: &TreeNode| match &node.kind {
            NodeKind::File(StoredContent::NotHeld) => node.is_sealed_object(path),
            NodeKind::Other => false,
            NodeKind::File(_) | NodeKind::Link(_) | NodeKind::Dir => true,
        };
        let is_lost = lock(&self.lost).contains(path);
        self.before.get(path).is_none_or(is_held) && !is_lost
    }

    fn move_to(&self, path: &Path, origin: &Path, data: &Stat) -> rustix::io::Result<()> {
        let (from, from_name) = at::parent_opened_up(&self.root, path)?;
        let (to, to_name) = at::parent_made(&self.root, origin)?;
        let to = at::OpenedUp::of(to)?;
        renamed((&from.dir, from_name), data.st_mode, (&to.dir, to_name))
    }

    /// Moves an entry to a new name at the top of the tree, [`KEPT`] with a unique ending, and returns the name.
    pub(super) fn set_aside(&self, path: &Path) -> rustix::io::Result<String> {
        let (from, name) = at::parent_opened_up(&self.root, path)?;
        let to = at::OpenedUp::of(at::dir(&self.root, Path::new(""))?)?;
        let fresh = format!("{KEPT}{}", at::fresh_name().trim_start_matches(".overnight"));
        let mode = at::stat(&from.dir, name)?.st_mode;
        renamed((&from.dir, name), mode, (&to.dir, OsStr::new(&fresh)))?;
        Ok(fresh)
    }
}

/// Renames an entry of this mode to a name that is free.
fn renamed(from: (&OwnedFd, &OsStr), mode: u32, to: (&OwnedFd, &OsStr)) -> rustix::io::Result<()> {
    let is_closed = FileType::from_raw_mode(mode).is_dir() && mode & 0o700 != 0o700;
    if !is_closed {
        return at::rename_to_free(from, to);
    }
    // Only its owner's right to write lets a directory be moved.
    let handle = at::handle(from.0, Path::new(from.1))?;
    at::set_mode(&handle, mode | 0o700)?;
    let moved = at::rename_to_free(from, to);
    at::set_mode(&handle, mode)?;
    moved
}
