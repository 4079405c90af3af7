//! Moves parts of repositories back that a command has moved elsewhere in the workspace. The kernel tells where an open
//! directory is now, so nothing is searched. What was changed in them is left to the comparison, and what was moved out
//! of the workspace or removed is made again by it.

use super::{GrantMatch, WriteGuard, at};
use rustix::fs::{Stat, fstat, renameat};
use rustix::io::Errno;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The directories that are moved back: they hold what is much to make again.
const PARTS: [&str; 3] = [".git", ".git/objects", ".git/objects/pack"];
/// The most directories that are kept open for this; the contents of others are put back one by one.
const MOST_DIRS: usize = 96;

impl WriteGuard {
    /// Keeps a recorded directory open if it is part of a repository.
    pub(super) fn keep_place(&mut self, path: &Path) {
        if self.repositories.len() < MOST_DIRS && PARTS.iter().any(|part| path.ends_with(part)) {
            // If this fails, its contents are put back one by one.
            if let Ok(handle) = at::handle(&self.root, path) {
                self.repositories.insert(path.to_path_buf(), Arc::new(handle));
            }
        }
    }

    /// Moves the directories back, outer ones first. Returns the paths of those that were moved, and the names at the top
    /// under which is now what was at these paths.
    pub(super) fn restore_moved_repositories(&self) -> (Vec<PathBuf>, Vec<String>) {
        let mut moved = Vec::new();
        let mut displaced = Vec::new();
        for (path, handle) in &self.repositories {
            let Ok(data) = fstat(handle) else { continue };
            if self.is_left_to_older(path)
                || self.is_at(path, &data)
                || !matches!(self.grant_match(path, true), GrantMatch::Not(..))
            {
                continue;
            }
            let Some(now) = self.place_of(handle, &data) else {
                continue;
            };
            if self
                .move_back(path, (handle, data.st_mode), &now, &mut displaced)
                .is_ok()
            {
                moved.push(path.clone());
            }
        }
        (moved, displaced)
    }

    fn is_at(&self, path: &Path, data: &Stat) -> bool {
        at::stat_below(&self.root, path).is_ok_and(|now| (now.st_dev, now.st_ino) == (data.st_dev, data.st_ino))
    }

    /// Where a directory is in the workspace now. `None` if it was removed or is elsewhere.
    fn place_of(&self, handle: &OwnedFd, data: &Stat) -> Option<PathBuf> {
        let top = std::fs::read_link(at::own_link(&self.root)).ok()?;
        let now = std::fs::read_link(at::own_link(handle)).ok()?;
        let below = now.strip_prefix(&top).ok()?;
        self.is_at(below, data).then(|| below.to_path_buf())
    }

    /// What is at its place now is moved to a new name at the top, which is added to `displaced`.
    fn move_back(
        &self,
        path: &Path,
        (handle, mode): (&OwnedFd, u32),
        now: &Path,
        displaced: &mut Vec<String>,
    ) -> rustix::io::Result<()> {
        if mode & 0o700 != 0o700 {
            // Only its owner's right to write lets a directory be moved. The comparison restores the mode.
            at::set_mode(handle, mode | 0o700)?;
        }
        let (from, from_name) = at::parent(&self.root, now)?;
        // First to the top: it may now be below what is at its place.
        let fresh = at::fresh_name();
        renameat(&from, from_name, &self.root, &fresh)?;
        let placed = self.place_at(path, &fresh, displaced);
        if placed.is_err() {
            // Then it is at least as the command left it.
            let _ = renameat(&self.root, &fresh, &from, from_name);
        }
        placed
    }

    fn place_at(&self, path: &Path, fresh: &str, displaced: &mut Vec<String>) -> rustix::io::Result<()> {
        let (to, name) = at::parent_made(&self.root, path)?;
        let old = at::fresh_name();
        match renameat(&to, name, &self.root, &old) {
            Ok(()) => displaced.push(old),
            Err(Errno::NOENT) => {}
            Err(error) => return Err(error),
        }
        renameat(&self.root, fresh, &to, name)
    }
}
