//! Creates, replaces and removes files below one directory through handles; no component of a path is ever followed as
//! a link.

use super::names::open_dir;
use super::object::{EXECUTABLE, LINK};
use crate::workspace::fs::TEMP_PREFIX;
use rustix::fs::{AtFlags, FileType, Gid, Mode, OFlags, Stat, Uid};
use rustix::io::Errno;
use std::ffi::CString;
use std::fs::File;
use std::io::Write;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

static NEXT: AtomicU64 = AtomicU64::new(0);

/// An open directory below which files are written.
pub(super) struct Hands {
    top: OwnedFd,
}

/// The components of a path; an error if it could lead elsewhere.
fn parts(path: &[u8]) -> Result<Vec<CString>, String> {
    let part = |part: &[u8]| match part {
        b"" | b"." | b".." | b".git" => Err("not the path of a file".to_owned()),
        part => CString::new(part).map_err(|error| error.to_string()),
    };
    path.split(|byte| *byte == b'/').map(part).collect()
}

impl Hands {
    /// Opens the directory, following links.
    pub fn open(top: &Path) -> Result<Self, String> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let top = rustix::fs::open(top, flags, Mode::empty()).map_err(|error| format!("{}: {error}", top.display()))?;
        Ok(Self { top })
    }

    /// The parent directory of a path, and its last component. `None` if that directory does not exist and `make` is
    /// false.
    fn parent(&self, path: &[u8], make: bool) -> Result<Option<(OwnedFd, CString)>, String> {
        let mut parts = parts(path)?;
        let name = parts.pop().ok_or("not the path of a file")?;
        let mut here = self.top.try_clone().map_err(|error| error.to_string())?;
        for part in &parts {
            let mut below = open_dir(here.as_fd(), part);
            if below.as_ref().is_err_and(|error| *error == Errno::NOENT) {
                if !make {
                    return Ok(None);
                }
                match rustix::fs::mkdirat(&here, part.as_c_str(), Mode::from_raw_mode(0o777)) {
                    Ok(()) | Err(Errno::EXIST) => below = open_dir(here.as_fd(), part),
                    Err(error) => return Err(error.to_string()),
                }
            }
            here = match below {
                Ok(below) => below,
                Err(Errno::NOTDIR | Errno::LOOP) => {
                    return Err(format!("`{}` in the path is a link or a file", part.to_string_lossy()));
                }
                Err(error) => return Err(error.to_string()),
            };
        }
        Ok(Some((here, name)))
    }

    /// Removes a file, link or special file. A missing one is no error.
    pub fn remove(&self, path: &[u8]) -> Result<(), String> {
        let Some((dir, name)) = self.parent(path, false)? else {
            return Ok(());
        };
        match rustix::fs::unlinkat(&dir, name.as_c_str(), AtFlags::empty()) {
            Ok(()) | Err(Errno::NOENT) => Ok(()),
            Err(error) => Err(error.to_string()),
        }
    }

    /// Removes a directory if it is empty; returns whether it did.
    pub fn remove_empty(&self, path: &[u8]) -> bool {
        let Ok(Some((dir, name))) = self.parent(path, false) else {
            return false;
        };
        rustix::fs::unlinkat(&dir, name.as_c_str(), AtFlags::REMOVEDIR).is_ok()
    }

    /// Creates a directory with its parents.
    pub fn make_dir(&self, path: &[u8]) -> Result<(), String> {
        self.parent(&[path, b"/x"].concat(), true).map(|_| ())
    }

    /// Atomically puts a file or link with this mode in place of whatever is there. Returns its metadata.
    pub fn put(&self, path: &[u8], mode: u32, content: &[u8]) -> Result<Stat, String> {
        let trouble = |error: Errno| error.to_string();
        let (dir, name) = self.parent(path, true)?.ok_or("no directory")?;
        let old = rustix::fs::statat(&dir, name.as_c_str(), AtFlags::SYMLINK_NOFOLLOW).ok();
        let old = old.map(|stat| (FileType::from_raw_mode(stat.st_mode), stat));
        if let Some((FileType::Directory, _)) = &old {
            match rustix::fs::unlinkat(&dir, name.as_c_str(), AtFlags::REMOVEDIR) {
                Ok(()) | Err(Errno::NOENT) => {}
                Err(_) => return Err("a directory with other files is in its place".to_owned()),
            }
        }
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let temporary = CString::new(format!("{TEMP_PREFIX}{}-r{number}", std::process::id()));
        let temporary = temporary.map_err(|error| error.to_string())?;
        let made = match mode {
            LINK => {
                let target = CString::new(content).map_err(|error| error.to_string())?;
                rustix::fs::symlinkat(target.as_c_str(), &dir, temporary.as_c_str()).map_err(trouble)
            }
            _ => {
                let old = old
                    .filter(|(kind, _)| *kind == FileType::RegularFile)
                    .map(|(_, stat)| stat);
                write(&dir, &temporary, mode == EXECUTABLE, content, old)
            }
        };
        let moved = made.and_then(|()| {
            rustix::fs::renameat(&dir, temporary.as_c_str(), &dir, name.as_c_str()).map_err(trouble)?;
            rustix::fs::statat(&dir, name.as_c_str(), AtFlags::SYMLINK_NOFOLLOW).map_err(trouble)
        });
        if moved.is_err() {
            // The file may not have been created.
            let _ = rustix::fs::unlinkat(&dir, temporary.as_c_str(), AtFlags::empty());
        }
        moved
    }
}

/// Writes a new file with the permissions and owner of the `old` one.
fn write(dir: &OwnedFd, name: &CString, runs: bool, content: &[u8], old: Option<Stat>) -> Result<(), String> {
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let new = Mode::from_raw_mode(if runs { 0o777 } else { 0o666 });
    let file = rustix::fs::openat(dir, name.as_c_str(), flags, new).map_err(|error| error.to_string())?;
    let mut file = File::from(file);
    file.write_all(content).map_err(|error| error.to_string())?;
    if let Some(old) = old {
        let readable = old.st_mode & 0o777;
        let mode = match runs {
            true => readable | (readable & 0o444) >> 2 | 0o100,
            false => readable & !0o111,
        };
        // Only root may change the owner; for others the owner is already right.
        let _ = rustix::fs::fchown(&file, Some(Uid::from_raw(old.st_uid)), Some(Gid::from_raw(old.st_gid)));
        rustix::fs::fchmod(&file, Mode::from_raw_mode(mode)).map_err(|error| error.to_string())?;
    }
    Ok(())
}
