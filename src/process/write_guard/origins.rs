//! Moves back what a command moved to a place at which it is undone: removing or replacing it there would destroy the
//! only copy. Inode numbers tell where an entry was before the command.

use super::{Area, GrantMatch, WriteGuard, at};
use rustix::fs::{FileType, Stat};
use rustix::io::Errno;
use std::ffi::OsStr;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

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
    /// The names at the top of what could not be moved back.
    pub set_aside: Vec<String>,
    /// Whether something could not be moved away at all.
    pub is_left: bool,
}

/// Where an entry was before the command.
enum Origin {
    Free(PathBuf),
    /// Nothing tells whether the place is free.
    Unknown,
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
        others.extend(recorded.map(|(path, node)| (node.print.inode, path.clone())));
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
    /// Moves back what is at or below a path, if the place where it was before does not exist now and is granted. What cannot
    /// be moved back gets a name at the top: a closed path must not keep it, and it may be the only copy. What the command
    /// removed or replaced at a closed path is not moved but made again from its recorded content.
    pub(super) fn move_back_from(&self, path: &Path) -> MovedBack {
        let mut moved = MovedBack::default();
        let mut waiting = vec![path.to_path_buf()];
        while let Some(path) = waiting.pop() {
            let is_done = match at::stat_opened_up(&self.root, &path) {
                Ok(data) => self.move_back_one(&path, &data, (&mut moved, &mut waiting)),
                Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => true,
                Err(_) => false,
            };
            if !is_done {
                match self.set_aside(&path) {
                    Ok(name) => moved.set_aside.push(name),
                    Err(_) => moved.is_left = true,
                }
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
            Some(Origin::Unknown) => false,
            None if is_dir => {
                let entries = self.entries(path);
                let is_listed = entries.is_ok();
                waiting.extend(entries.into_iter().flatten().map(|(path, ..)| path));
                is_listed
            }
            None => true,
        }
    }

    /// Where an entry was before the command. `None` if it is new, is where it was, or that place is taken or closed.
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
        paths.into_iter().find_map(|origin| {
            let is_granted =
                !self.is_own(&origin) && matches!(self.grant_match(&origin, at::is_dir(data)), GrantMatch::Granted);
            match at::stat_opened_up(&self.root, &origin) {
                _ if !is_granted => None,
                Ok(_) | Err(Errno::NOTDIR | Errno::LOOP) => None,
                Err(Errno::NOENT) => Some(Origin::Free(origin)),
                Err(_) => Some(Origin::Unknown),
            }
        })
    }

    fn move_to(&self, path: &Path, origin: &Path, data: &Stat) -> rustix::io::Result<()> {
        let (from, from_name) = at::parent_opened_up(&self.root, path)?;
        let (to, to_name) = at::parent_made(&self.root, origin)?;
        let to = at::OpenedUp::of(to)?;
        renamed((&from.dir, from_name), data.st_mode, (&to.dir, to_name))
    }

    /// Moves an entry to a new name at the top, and returns the name.
    pub(super) fn set_aside(&self, path: &Path) -> rustix::io::Result<String> {
        let (from, name) = at::parent_opened_up(&self.root, path)?;
        let to = at::OpenedUp::of(at::dir(&self.root, Path::new(""))?)?;
        let fresh = at::fresh_name();
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
