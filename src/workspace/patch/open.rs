//! Opens a name of a directory without following a link, and lets the owner use a directory that is closed to them.

use rustix::fs::{AtFlags, Mode, OFlags, Stat};
use rustix::io::Errno;
use std::ffi::CString;
use std::fs::File;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

/// Opens a directory by its name, without following a link.
pub(super) fn open_dir(at: BorrowedFd<'_>, name: &CString) -> Result<OwnedFd, Errno> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    rustix::fs::openat(at, name.as_c_str(), flags, Mode::empty())
}

/// As [`open_dir`], and its status; an error also if its names cannot be examined.
pub(super) fn open_searchable(at: BorrowedFd<'_>, name: &CString) -> Result<(OwnedFd, Stat), Errno> {
    let dir = open_dir(at, name)?;
    let stat = rustix::fs::statat(&dir, c".", AtFlags::SYMLINK_NOFOLLOW)?;
    Ok((dir, stat))
}

/// As [`open_searchable`], of a directory that does not let its owner use it, by letting them first: with the mode that
/// is known of it, if any. By handle, because a link may have taken its place.
pub(super) fn open_closed_dir(at: BorrowedFd<'_>, name: &CString, mode: Option<u32>) -> Result<(OwnedFd, Stat), Errno> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let place = rustix::fs::openat(at, name.as_c_str(), flags, Mode::empty())?;
    open_up(place.as_fd(), mode)?;
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let dir = rustix::fs::openat(&place, c".", flags, Mode::empty())?;
    let stat = rustix::fs::fstat(&dir)?;
    Ok((dir, stat))
}

/// Lets the owner of a directory list, search and change it; `mode`: the mode that is known of it. An error if the owner
/// is not who runs this program, or may list and search it already.
pub(super) fn open_up(dir: BorrowedFd<'_>, mode: Option<u32>) -> Result<(), Errno> {
    let stat = rustix::fs::fstat(dir)?;
    if stat.st_uid != rustix::process::geteuid().as_raw() || stat.st_mode & 0o500 == 0o500 {
        return Err(Errno::ACCESS);
    }
    set_mode(dir, mode.unwrap_or(stat.st_mode) | 0o700)
}

/// Sets the mode of a handle's file. `fchmod` takes no `O_PATH` handle.
pub(super) fn set_mode(handle: BorrowedFd<'_>, mode: u32) -> Result<(), Errno> {
    let path = format!("/proc/self/fd/{}", handle.as_raw_fd());
    rustix::fs::chmod(path, Mode::from_raw_mode(mode))
}

/// Opens a file; does not block if it has become a FIFO.
pub(super) fn open_file(at: BorrowedFd<'_>, name: &CString) -> Result<File, Errno> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    rustix::fs::openat(at, name.as_c_str(), flags, Mode::empty()).map(File::from)
}
