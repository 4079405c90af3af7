//! Temporary directories of this program. Each has a lock that ends with its process, so that a later process can tell
//! and remove what a killed one left.

use super::private;
use std::fs::File;
use std::io;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use tempfile::TempDir;

/// Beginning of the names of temporary worktrees.
pub const WORKTREE: &str = "overnight-worktree-";
/// Beginning of the names of temporary git directories.
pub const GIT: &str = "overnight-git-";
/// Beginning of the names of copies of sample repositories.
pub const SAMPLE: &str = "overnight-sample-";
/// Beginning of the names of run directories of tested recipes.
pub const RECIPE_TEST: &str = "overnight-recipe-test-";

const PREFIXES: [&str; 4] = [WORKTREE, GIT, SAMPLE, RECIPE_TEST];

/// The file that is locked while the process lives.
const LOCK: &str = "overnight.lock";

/// The most entries of the directory for temporary files that are looked at.
const MOST_ENTRIES: usize = 20_000;

/// A temporary directory, removed on drop.
#[derive(Debug)]
pub struct Temporary {
    // Dropped before the lock, so that nobody else removes it at the same time.
    dir: TempDir,
    _lock: File,
}

impl Temporary {
    /// Creates one whose name begins with `prefix`.
    ///
    /// # Errors
    /// I/O errors.
    pub fn make(prefix: &str) -> io::Result<Self> {
        let dir = tempfile::Builder::new().prefix(prefix).tempdir()?;
        // Locked before it has its name: with its name and no lock it would look left behind.
        let draft = dir.path().join("overnight.lock.new");
        let lock = File::create_new(&draft)?;
        // On a file system without locks it keeps the other name, and nobody removes the directory.
        if lock.try_lock().is_ok() {
            std::fs::rename(&draft, dir.path().join(LOCK))?;
        }
        Ok(Self { dir, _lock: lock })
    }

    /// Its path.
    pub fn path(&self) -> &Path {
        self.dir.path()
    }
}

/// The directories in the directory for temporary files whose names such a directory has, in use or not.
pub fn all() -> Vec<PathBuf> {
    let entries = std::fs::read_dir(std::env::temp_dir()).into_iter().flatten();
    let named = entries.take(MOST_ENTRIES).flatten().filter(|entry| {
        let name = entry.file_name();
        PREFIXES
            .iter()
            .any(|prefix| name.as_encoded_bytes().starts_with(prefix.as_bytes()))
    });
    named.map(|entry| entry.path()).collect()
}

/// Removes a directory of [`Temporary`] whose process is dead. Returns whether it is gone. One that is in use, belongs
/// to another user or has no lock stays.
pub fn remove_if_left(dir: &Path) -> bool {
    let own = rustix::process::geteuid().as_raw();
    if !std::fs::symlink_metadata(dir).is_ok_and(|found| found.is_dir() && found.uid() == own) {
        return false;
    }
    let opened = File::options()
        .read(true)
        .write(true)
        .custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK)
        .open(dir.join(LOCK));
    let Ok(lock) = opened else { return false };
    // Held until the directory is gone, so that no other process removes it at the same time.
    lock.try_lock().is_ok() && private::remove(dir).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_stays_until_its_lock_is_free() {
        let living = Temporary::make("overnight-test-").unwrap();
        let path = living.path().to_owned();
        assert!(!remove_if_left(&path));
        assert!(path.is_dir());
        // A killed process leaves its files and no lock.
        let Temporary { dir, _lock: lock } = living;
        let left = dir.keep();
        std::fs::create_dir(left.join("tree")).unwrap();
        drop(lock);
        // A process that another test starts at this moment has the lock until its exec.
        for _ in 0..500 {
            if remove_if_left(&left) {
                break;
            }
            std::thread::sleep(std::time::Duration::from_millis(10));
        }
        assert!(!left.exists());
    }

    #[test]
    fn a_directory_without_a_lock_stays() {
        let dir = tempfile::Builder::new().prefix(WORKTREE).tempdir().unwrap();
        assert!(!remove_if_left(dir.path()));
        assert!(dir.path().is_dir());
    }
}
