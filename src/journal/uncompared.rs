//! A record, outside every workspace, that a command which may write the workspace is under way. If the process is
//! killed, the record stays: nothing has compared what the command changed at protected paths, and a later run can tell.
//!
//! ```text
//! uncompared/DIGEST   when the oldest such command began, in nanoseconds since 1970; empty while there is none
//! ```
//! The process and the helpers of its commands hold a lock on the file, so that the next run in the workspace begins only
//! when no process of a killed one is left.

use super::error::JournalError;
use super::no_follow::{is_at, open_private, settled};
use super::state_dir;
use crate::base::ids::sha256_hex;
use crate::process;
use std::fs::File;
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

const DIRECTORY: &str = "uncompared";
/// Upper limit for the records that are kept; beyond it, the oldest are removed.
const MOST_KEPT: usize = 1_000;
/// Upper limit for the bytes of a record.
const MOST_BYTES: u64 = 64;
/// How long the processes of a killed run may take to end: longer than its helpers try to kill them.
const WAIT: Duration = Duration::from_secs(35);
const PAUSE: Duration = Duration::from_millis(10);

/// The record of one workspace, held by this process. Dropping it gives it up; call that before another run may have the
/// workspace.
#[derive(Debug)]
pub struct Uncompared {
    path: PathBuf,
    file: File,
    since: Option<SystemTime>,
}

impl Uncompared {
    /// Takes the record of a workspace that this process has locked, and has it kept up to date from now on. Waits until
    /// no process of a killed run is left. `None` if there is no state directory.
    ///
    /// # Errors
    /// [`JournalError::Held`]: a command of a killed run is still alive.
    pub async fn take(workspace: &Path) -> Result<Option<Self>, JournalError> {
        let workspace = settled(workspace);
        let name = sha256_hex(&[workspace.as_os_str().as_bytes()]);
        let Ok(dir) = state_dir::directory(DIRECTORY) else {
            return Ok(None);
        };
        let path = dir.join(name);
        let until = tokio::time::Instant::now() + WAIT;
        let mut file = loop {
            let Ok(file) = open_private(&path) else { return Ok(None) };
            if file.try_lock().is_ok() {
                if is_at(&file, &path) {
                    break file;
                }
            } else if tokio::time::Instant::now() > until {
                return Err(JournalError::Held(format!(
                    "{}, in which processes of a killed run are still alive,",
                    workspace.display()
                )));
            } else {
                tokio::time::sleep(PAUSE).await;
            }
        };
        tidy(&dir, &path);
        let since = read(&mut file);
        if let Ok(file) = file.try_clone() {
            process::record_writers(&workspace, file);
        }
        Ok(Some(Self { path, file, since }))
    }

    /// When the oldest command began whose changes were never compared. `None` if the last run ended properly.
    #[must_use]
    pub fn since(&self) -> Option<SystemTime> {
        self.since
    }
}

impl Drop for Uncompared {
    fn drop(&mut self) {
        // One that says something stays for the next run.
        if self.file.metadata().is_ok_and(|data| data.len() == 0) {
            let _ = std::fs::remove_file(&self.path);
        }
        // Helpers that are about to end hold the same lock.
        let _ = self.file.unlock();
    }
}

fn read(file: &mut File) -> Option<SystemTime> {
    let mut text = String::new();
    file.take(MOST_BYTES).read_to_string(&mut text).ok()?;
    let nanoseconds = text.trim().parse::<u64>().ok()?;
    SystemTime::UNIX_EPOCH.checked_add(Duration::from_nanos(nanoseconds))
}

/// Removes the oldest records beyond the limit, except those of runs.
fn tidy(dir: &Path, own: &Path) {
    let entries = std::fs::read_dir(dir).into_iter().flatten().flatten();
    let mut all: Vec<(SystemTime, PathBuf)> = entries
        .filter_map(|entry| Some((entry.metadata().ok()?.modified().ok()?, entry.path())))
        .collect();
    if all.len() <= MOST_KEPT {
        return;
    }
    all.sort();
    let surplus = all.len() - MOST_KEPT;
    for (_, path) in all.into_iter().filter(|(_, path)| path != own).take(surplus) {
        if open_private(&path).is_ok_and(|file| file.try_lock().is_ok()) {
            let _ = std::fs::remove_file(path);
        }
    }
}
