//! Temporary directories of this program. Each has a lock that ends with its process, so that a later process can tell
//! and remove what a killed one left.

use super::{private, write_guard};
use std::fs::{File, TryLockError};
use std::io;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

/// Beginning of the names of temporary worktrees.
pub const WORKTREE: &str = "overnight-worktree-";
/// Beginning of the names of temporary git directories.
pub const GIT: &str = "overnight-git-";
/// Beginning of the names of copies of sample repositories.
pub const SAMPLE: &str = "overnight-sample-";
/// Beginning of the names of run directories of tested recipes.
pub const RECIPE_TEST: &str = "overnight-recipe-test-";

const PREFIXES: [&str; 4] = [WORKTREE, GIT, SAMPLE, RECIPE_TEST];

/// The file that is locked while the process lives. It is created first and removed last, so that the directory of a
/// killed process contains it or is empty.
const LOCK: &str = "overnight.lock";
/// Its name until it is locked: an unlocked file with the final name would mean that its process is dead.
const DRAFT: &str = "overnight.lock.new";

/// Upper limit for the examined entries of the directory for temporary files.
const MOST_ENTRIES: usize = 20_000;
/// How often a directory is created again, if another process removes it as abandoned before it is locked.
const MOST_TRIES: usize = 8;
/// The number of random characters at the end of a name.
const RANDOM: usize = 6;

/// An error means that another live process holds the directory's lock.
#[derive(Debug)]
pub struct InUse;

/// A temporary directory, removed on drop.
#[derive(Debug)]
pub struct Temporary {
    dir: PathBuf,
    /// Held until the directory is removed, so that no other process removes it at the same time.
    _lock: File,
}

impl Temporary {
    /// Creates one whose name begins with `prefix`.
    ///
    /// # Errors
    /// I/O errors.
    pub fn make(prefix: &str) -> io::Result<Self> {
        let mut tries = 1;
        loop {
            match Self::try_make(prefix) {
                Err(error) if error.kind() == io::ErrorKind::NotFound && tries < MOST_TRIES => tries += 1,
                made => return made,
            }
        }
    }

    fn try_make(prefix: &str) -> io::Result<Self> {
        let mode = std::fs::Permissions::from_mode(0o700);
        let mut builder = tempfile::Builder::new();
        let dir = builder.prefix(prefix).rand_bytes(RANDOM).permissions(mode).tempdir()?;
        let draft = dir.path().join(DRAFT);
        let lock = File::create_new(&draft)?;
        match lock.try_lock() {
            Ok(()) => std::fs::rename(&draft, dir.path().join(LOCK))?,
            // Another process takes the directory for an abandoned one, and removes it.
            Err(TryLockError::WouldBlock) => return Err(io::ErrorKind::NotFound.into()),
            // On a file system without locks the file keeps its first name, and no process removes the directory.
            Err(TryLockError::Error(_)) => {}
        }
        let dir = dir.keep();
        Ok(Self { dir, _lock: lock })
    }

    /// Takes over a directory whose process is dead, with its content. `None` if it belongs to another user or has no lock.
    ///
    /// # Errors
    /// [`InUse`].
    pub fn take_over(dir: &Path) -> Result<Option<Self>, InUse> {
        let Some(lock) = is_own(dir).then(|| opened(&dir.join(LOCK))).flatten() else {
            return Ok(None);
        };
        match lock.try_lock() {
            Ok(()) => Ok(Some(Self {
                dir: dir.to_owned(),
                _lock: lock,
            })),
            Err(TryLockError::WouldBlock) => Err(InUse),
            Err(TryLockError::Error(_)) => Ok(None),
        }
    }

    /// Its path.
    pub fn path(&self) -> &Path {
        &self.dir
    }

    /// Leaves the directory to a later process, as if this one had been killed. The lock ends with the process.
    pub fn leave(self) {
        std::mem::forget(self);
    }
}

impl Drop for Temporary {
    fn drop(&mut self) {
        // If this fails or the process ends now, a later process removes it.
        let _ = remove(&self.dir);
    }
}

/// Whether temporary directories can be made; an error says what to change.
///
/// # Errors
/// As of [`why_not`].
pub fn usable() -> Result<(), String> {
    tempfile::tempdir().map(drop).map_err(|error| why_not(&error))
}

/// The message for `error` when creating a temporary directory fails.
pub fn why_not(error: &io::Error) -> String {
    let dir = std::env::temp_dir();
    let dir = dir.display();
    match std::env::var_os("TMPDIR") {
        Some(_) => format!(
            "TMPDIR={dir} cannot hold temporary files ({error}): set TMPDIR to a directory that exists and can be written"
        ),
        None => format!("{dir} cannot hold temporary files ({error}): name a directory that can be written in TMPDIR"),
    }
}

/// Removes the content, then the lock, then the directory.
fn remove(dir: &Path) -> io::Result<()> {
    for entry in std::fs::read_dir(dir).into_iter().flatten() {
        let entry = entry?;
        if entry.file_name() == LOCK {
            continue;
        }
        let place = entry.path();
        if entry.file_type()?.is_dir() {
            private::remove(&place)?;
        } else {
            std::fs::remove_file(&place)?;
        }
    }
    private::remove(dir)
}

/// The directories for temporary files with a name that [`Temporary`] gives, in use or not.
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

/// Removes the directories whose names begin with `prefix` and whose processes are dead.
pub fn remove_left(prefix: &str) {
    let is_meant = |dir: &PathBuf| {
        let name = dir.file_name().unwrap_or_default();
        name.as_encoded_bytes().starts_with(prefix.as_bytes())
    };
    for dir in all().into_iter().filter(is_meant) {
        remove_if_left(&dir);
    }
}

/// Removes a directory of [`Temporary`] whose process is dead, and the marks in git's indexes that it names. Returns
/// whether it was removed. A directory that is in use or belongs to another user stays; so does one without a lock,
/// unless it is empty and has the name and mode of such a directory.
pub fn remove_if_left(dir: &Path) -> bool {
    if !is_own(dir) {
        return false;
    }
    if let Some(_held) = take(&dir.join(LOCK)) {
        return write_guard::unmark_left(dir) && remove(dir).is_ok();
    }
    // Its process ended after it had created the directory, or while it removed it.
    let is_private = std::fs::symlink_metadata(dir).is_ok_and(|found| found.mode() & 0o777 == 0o700);
    if !has_random_name(dir) || !is_private {
        return false;
    }
    let draft = dir.join(DRAFT);
    if let Some(_held) = take(&draft) {
        let _ = std::fs::remove_file(&draft);
    }
    std::fs::remove_dir(dir).is_ok()
}

/// Whether this is a directory, not a link to one, that belongs to this user.
fn is_own(dir: &Path) -> bool {
    let own = rustix::process::geteuid().as_raw();
    std::fs::symlink_metadata(dir).is_ok_and(|found| found.is_dir() && found.uid() == own)
}

/// Opens and locks the lock of a dead process.
fn take(lock: &Path) -> Option<File> {
    opened(lock).filter(|lock| lock.try_lock().is_ok())
}

fn opened(lock: &Path) -> Option<File> {
    let opened = File::options()
        .read(true)
        .write(true)
        .custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK)
        .open(lock);
    opened.ok()
}

fn has_random_name(dir: &Path) -> bool {
    let name = dir.file_name().unwrap_or_default().as_encoded_bytes();
    PREFIXES.iter().any(|prefix| {
        name.strip_prefix(prefix.as_bytes())
            .is_some_and(|rest| rest.len() == RANDOM && rest.iter().all(u8::is_ascii_alphanumeric))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What a killed process leaves: the directory, and an unlocked lock.
    fn killed(prefix: &str) -> PathBuf {
        let left = Temporary::make(prefix).unwrap();
        let path = left.dir.clone();
        // Closes the lock, and does not drop the rest.
        let mut left = std::mem::ManuallyDrop::new(left);
        left._lock = File::open("/dev/null").unwrap();
        path
    }

    /// A process that another test starts at this moment has the lock until its exec.
    fn is_removed(dir: &Path) -> bool {
        for _ in 0..500 {
            if remove_if_left(dir) {
                return !dir.exists();
            }
            std::thread::sleep(std::time::Duration::from_millis(10));
        }
        false
    }

    #[test]
    fn a_directory_stays_until_its_lock_is_free() {
        let living = Temporary::make("overnight-test-").unwrap();
        let path = living.path().to_owned();
        assert!(!remove_if_left(&path));
        assert!(path.is_dir());
        assert!(Temporary::take_over(&path).is_err());
        assert!(matches!(Temporary::take_over(&path.join("none")), Ok(None)));
        let left = killed("overnight-test-");
        std::fs::create_dir(left.join("tree")).unwrap();
        std::fs::write(left.join("tree/file"), "x").unwrap();
        assert!(is_removed(&left));
        drop(living);
        assert!(!path.exists());
    }

    #[test]
    fn a_directory_whose_process_ended_while_it_created_or_removed_it_is_removed() {
        // Removed until the lock, which is the last.
        let left = killed(WORKTREE);
        std::fs::remove_file(left.join(LOCK)).unwrap();
        assert!(is_removed(&left));
        // Created, and the lock not yet locked.
        let left = killed(WORKTREE);
        std::fs::rename(left.join(LOCK), left.join(DRAFT)).unwrap();
        assert!(is_removed(&left));
    }

    #[test]
    fn a_directory_of_somebody_else_stays() {
        // One with a file and no lock, though its name fits.
        let full = killed(WORKTREE);
        std::fs::rename(full.join(LOCK), full.join("notes")).unwrap();
        assert!(!remove_if_left(&full));
        assert!(full.join("notes").is_file());
        std::fs::remove_dir_all(&full).unwrap();
        // An empty one whose name or mode does not fit.
        let parent = tempfile::tempdir().unwrap();
        for (name, mode) in [
            ("overnight-worktree-backups", 0o700),
            ("overnight-worktree-backup", 0o755),
        ] {
            let dir = parent.path().join(name);
            std::fs::create_dir(&dir).unwrap();
            std::fs::set_permissions(&dir, std::fs::Permissions::from_mode(mode)).unwrap();
            assert!(!remove_if_left(&dir));
            assert!(dir.is_dir());
        }
    }
}
