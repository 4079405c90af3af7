//! Moves back what a command moved to a place at which it is undone: removing or replacing it there would destroy the
//! only copy. Inode numbers tell where an entry was before the command.

use super::{Area, GrantMatch, WriteGuard, at};
use rustix::fs::{Stat, renameat};
use rustix::io::Errno;
use std::ffi::OsStr;
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

/// What was moved back.
pub(super) struct MovedBack {
    /// The paths, and whether each is that of a directory.
    pub paths: Vec<(PathBuf, bool)>,
    /// Whether nothing is left that was elsewhere before.
    pub complete: bool,
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
    /// Moves back what is at or below a path, if the place where it was before is free and granted. What the command
    /// removed or replaced at a closed path is not moved but made again from its recorded content.
    pub(super) fn move_back_from(&self, path: &Path) -> MovedBack {
        let mut moved = MovedBack {
            paths: Vec::new(),
            complete: true,
        };
        let mut waiting = vec![path.to_path_buf()];
        while let Some(path) = waiting.pop() {
            let Ok(data) = at::stat_below(&self.root, &path) else {
                continue;
            };
            let is_dir = at::is_dir(&data);
            match self.origin_of(&path, &data) {
                Some(origin) if self.move_to(&path, &origin, &data).is_ok() => moved.paths.push((origin, is_dir)),
                Some(_) => moved.complete = false,
                None if is_dir => {
                    let entries = self.entries(&path).unwrap_or_default();
                    waiting.extend(entries.into_iter().map(|(path, ..)| path));
                }
                None => {}
            }
        }
        moved
    }

    /// Where an entry was before the command. `None` if it is new, is where it was, or that place is taken or closed.
    fn origin_of(&self, path: &Path, data: &Stat) -> Option<PathBuf> {
        let origins = self.origins.get_or_init(|| Origins::of(self));
        let paths = origins.paths(self, data.st_ino);
        if paths.is_empty() || paths.iter().any(|origin| origin == path) {
            return None;
        }
        // The inode number of a file that was removed may be used again.
        let created = at::parent(&self.root, path)
            .ok()
            .and_then(|(dir, name)| at::created(&dir, name));
        if created.is_some_and(|created| created >= self.taken) {
            return None;
        }
        paths.into_iter().find(|origin| {
            !self.is_own(origin)
                && matches!(self.grant_match(origin, at::is_dir(data)), GrantMatch::Granted)
                && matches!(at::stat_below(&self.root, origin), Err(Errno::NOENT))
        })
    }

    fn move_to(&self, path: &Path, origin: &Path, data: &Stat) -> rustix::io::Result<()> {
        let (from, from_name) = at::parent(&self.root, path)?;
        let (to, to_name) = at::parent_made(&self.root, origin)?;
        let mode = data.st_mode & 0o7777;
        let is_closed = at::is_dir(data) && mode & 0o700 != 0o700;
        if !is_closed {
            return renameat(&from, from_name, &to, to_name);
        }
        // Only its owner's right to write lets a directory be moved.
        let handle = at::handle(&from, Path::new(from_name))?;
        at::set_mode(&handle, mode | 0o700)?;
        let moved = renameat(&from, from_name, &to, to_name);
        at::set_mode(&handle, mode)?;
        moved
    }
}
