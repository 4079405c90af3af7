//! A regular file in the workspace that is stdout: commands can write it at sandbox level `landlock`, and could so put
//! another result beside or in place of the one that is printed. What was written is compared with what the file holds at
//! the end.

use crate::base::sync::lock;
use crate::process::own_streams;
use rustix::fs::{SeekFrom, fstat, seek, stat};
use rustix::stdio;
use sha2::{Digest, Sha256};
use std::fs::File;
use std::io::{self, Read, Seek};
use std::os::fd::{AsRawFd, BorrowedFd};
use std::path::{Path, PathBuf};
use std::sync::Mutex;

/// What this process wrote into the file, on stdout and, if that is the same file, on stderr.
struct Written {
    path: PathBuf,
    /// Where the first byte was written, and where the next one goes, as offsets in bytes.
    first: u64,
    next: u64,
    /// The digest of all bytes between them.
    digest: Sha256,
    /// Whether something else wrote between two writes.
    is_shared: bool,
}

/// `None` if stdout is no file in the workspace.
static STDOUT: Mutex<Option<Written>> = Mutex::new(None);

/// From now on the file is compared, if stdout is one below this canonical path.
pub fn begin(root: &Path) {
    let begun = own_streams::stdout_inside(root).and_then(|path| {
        let end = end_of(stdio::stdout()).ok()?;
        Some(Written {
            path,
            first: end,
            next: end,
            digest: Sha256::new(),
            is_shared: false,
        })
    });
    *lock(&STDOUT) = begun;
}

/// Writes to stdout or stderr by `write`, which writes all of `bytes`.
///
/// # Errors
/// Those of `write`.
pub fn writing(stream: BorrowedFd<'_>, bytes: &[u8], write: impl FnOnce() -> io::Result<()>) -> io::Result<()> {
    let mut written = lock(&STDOUT);
    let Some(written) = written.as_mut().filter(|_| is_stdout(stream)) else {
        drop(written);
        return write();
    };
    let from = end_of(stdio::stdout());
    write()?;
    written.is_shared |= from.ok() != Some(written.next);
    written.next = end_of(stdio::stdout())?;
    written.digest.update(bytes);
    Ok(())
}

/// Whether a stream is the same file as stdout.
fn is_stdout(stream: BorrowedFd<'_>) -> bool {
    let identity = |stream: BorrowedFd<'_>| fstat(stream).map(|data| (data.st_dev, data.st_ino));
    identity(stream).is_ok_and(|one| identity(stdio::stdout()) == Ok(one))
}

/// Where the next byte goes.
fn end_of(stdout: BorrowedFd<'_>) -> io::Result<u64> {
    let appends = rustix::fs::fcntl_getfl(stdout)?.contains(rustix::fs::OFlags::APPEND);
    match appends {
        true => Ok(u64::try_from(fstat(stdout)?.st_size).unwrap_or_default()),
        false => Ok(seek(stdout, SeekFrom::Current(0))?),
    }
}

/// Compares the file with what was written.
///
/// # Errors
/// A sentence: something else wrote the file, or put another one in its place, or it cannot be read.
pub fn compare() -> Result<(), String> {
    let Some(written) = lock(&STDOUT).take() else {
        return Ok(());
    };
    let is_ours = holds_only(&written).map_err(|error| format!("stdout: {error}"))?;
    match is_ours {
        true => Ok(()),
        false => Err(format!(
            "stdout: {} is in the workspace, and something else has written it or put another file in its place: use the \
             files of the run directory, and redirect the output to a place outside the workspace",
            written.path.display()
        )),
    }
}

fn holds_only(written: &Written) -> io::Result<bool> {
    let identity = |data: rustix::fs::Stat| (data.st_dev, data.st_ino, data.st_size);
    let open = identity(fstat(stdio::stdout())?);
    let is_there = stat(&written.path).is_ok_and(|there| identity(there) == open);
    if written.is_shared || !is_there || u64::try_from(open.2).ok() != Some(written.next) {
        return Ok(false);
    }
    let mut file = File::open(format!("/proc/self/fd/{}", stdio::stdout().as_raw_fd()))?;
    file.seek(io::SeekFrom::Start(written.first))?;
    let mut found = Sha256::new();
    let mut rest = file.take(written.next.saturating_sub(written.first));
    let mut buffer = vec![0; 64 << 10];
    loop {
        match rest.read(&mut buffer)? {
            0 => break,
            count => found.update(&buffer[..count]),
        }
    }
    Ok(found.finalize() == written.digest.clone().finalize())
}
