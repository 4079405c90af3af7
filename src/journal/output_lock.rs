//! Locks output files named by flags, so that two runs never write the same file. The locks are in the user's state
//! directory, because outputs are replaced by rename, which a lock on the file itself would not survive.

use super::{JournalError, chain_key, no_follow};
use crate::base::ids::sha256_hex;
use std::fs::{File, TryLockError};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

const LOCKS: &str = "locks";

/// Limit of lock files; beyond it, unheld ones are removed.
const KEPT: usize = 1_000;

/// Attempts to take a lock whose file is removed at the same time.
const TRIES: usize = 16;

/// Locks an output file until the result is dropped.
///
/// # Errors
/// [`JournalError::Held`] when another run writes it; [`JournalError::Write`] when no lock can be made.
pub fn hold(output: &Path) -> Result<File, JournalError> {
    let dir = directory()?;
    forget_unheld(&dir);
    let name = sha256_hex(&[no_follow::settled(output).as_os_str().as_bytes()]);
    let path = dir.join(name);
    for _ in 0..TRIES {
        let file = no_follow::open_private(&path).map_err(JournalError::write(&path))?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Err(JournalError::Held(output.display().to_string())),
            Err(TryLockError::Error(source)) => return Err(JournalError::write(&path)(source)),
        }
        if no_follow::is_at(&file, &path) {
            return Ok(file);
        }
    }
    Err(JournalError::Held(output.display().to_string()))
}

/// The directory of the locks: in the state directory, or if there is none, in a directory of this user below the
/// temporary directory.
fn directory() -> Result<PathBuf, JournalError> {
    let private = |dir: PathBuf| match no_follow::private_dir(&dir) {
        Ok(()) => Ok(dir),
        Err(error) => Err(JournalError::write(&dir)(error)),
    };
    let base = match chain_key::state() {
        Ok(state) => private(state.to_owned())?,
        Err(_) => {
            let user = rustix::process::geteuid().as_raw();
            private(std::env::temp_dir().join(format!("overnight-{user}")))?
        }
    };
    private(base.join(LOCKS))
}

/// Removes unheld lock files when there are many.
fn forget_unheld(dir: &Path) {
    let Ok(entries) = std::fs::read_dir(dir) else {
        return;
    };
    let all: Vec<PathBuf> = entries.filter_map(Result::ok).map(|entry| entry.path()).collect();
    if all.len() <= KEPT {
        return;
    }
    for path in all {
        if let Ok(file) = File::open(&path)
            && file.try_lock().is_ok()
        {
            // A lock file that cannot be removed does no harm.
            let _ = std::fs::remove_file(&path);
        }
    }
}
