//! The files to which stdout and stderr of this process are redirected (`overnight run … > out.json`). In a workspace
//! they change during the run, but these changes are not made by the run's steps.

use rustix::fs::{FileType, fstat, stat};
use std::os::fd::{AsRawFd, BorrowedFd};
use std::path::{Path, PathBuf};

/// The regular files below `root`, a canonical path, that are this process's stdout or stderr, as canonical paths. A
/// file that was removed since it was opened is left out.
pub fn inside(root: &Path) -> Vec<PathBuf> {
    let stderr = file_inside(root, rustix::stdio::stderr());
    let mut found: Vec<PathBuf> = stdout_inside(root).into_iter().chain(stderr).collect();
    found.dedup();
    found
}

/// The same for stdout alone.
pub fn stdout_inside(root: &Path) -> Option<PathBuf> {
    file_inside(root, rustix::stdio::stdout())
}

fn file_inside(root: &Path, stream: BorrowedFd<'_>) -> Option<PathBuf> {
    let open = fstat(stream).ok()?;
    let is_file = FileType::from_raw_mode(open.st_mode).is_file();
    let path = std::fs::read_link(format!("/proc/self/fd/{}", stream.as_raw_fd()))
        .ok()
        .filter(|_| is_file)?;
    let path = path.canonicalize().ok()?;
    let there = stat(&path).ok()?;
    let is_it = (there.st_dev, there.st_ino) == (open.st_dev, open.st_ino);
    (is_it && path.starts_with(root)).then_some(path)
}
