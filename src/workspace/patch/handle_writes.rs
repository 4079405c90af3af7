//! Creates, replaces and removes files below one directory through handles; no component of a path is ever followed as
//! a link.

use super::cache::{CachedDir, FilePermissions};
use super::object::{EXECUTABLE, LINK};
use super::open::{open_dir, set_mode};
use crate::workspace::fs::TEMP_PREFIX;
use rustix::fs::{AtFlags, FileType, Gid, Mode, OFlags, Stat, Uid};
use rustix::io::Errno;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::ffi::CString;
use std::fs::File;
use std::io::Write;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::SystemTime;

static NEXT: AtomicU64 = AtomicU64::new(0);

/// An open directory below which files are written. Directories of this user whose mode closes them are opened up, until
/// [`HandleWriter::close_up`].
pub(super) struct HandleWriter {
    top: OwnedFd,
    known: KnownAccess,
    /// The paths that were opened up, with their modes before.
    opened: RefCell<Opened>,
}

/// Paths with their modes.
pub(super) type Opened = BTreeMap<Vec<u8>, u32>;

/// Who could use the files of an earlier state of the tree.
#[derive(Clone, Debug, Default)]
pub(super) struct KnownAccess {
    /// The states of the workspace, the latest one first.
    pub dirs: Vec<Arc<CachedDir>>,
    /// Path of the workspace relative to the top: empty, or ending in a slash.
    pub prefix: String,
    /// Whether a file of which nothing is known is only for its owner.
    pub private: bool,
}

impl KnownAccess {
    /// The access of the earliest state. Others get no more than in the latest one, because a file may have been made
    /// private since; but what is closed there even to its owner was closed by what is put back.
    fn of(&self, path: &[u8]) -> Option<FilePermissions> {
        let local = path.strip_prefix(self.prefix.as_bytes())?;
        let mut known = self.dirs.iter().filter_map(|dir| dir.access(local));
        let latest = known.next()?;
        let Some(first) = known.next_back() else {
            return Some(latest);
        };
        let mode = match latest.mode & 0o400 {
            0 => first.mode,
            _ => first.mode & (latest.mode | 0o700),
        };
        Some(FilePermissions { mode, ..first })
    }
}

/// The mode with which the owner can read a file, or use a directory.
fn usable(kind: FileType, mode: u32) -> u32 {
    match kind {
        FileType::Directory => mode | 0o700,
        _ => mode | 0o600,
    }
}

/// Changes the mode of a file or directory, following no link. Returns the mode before.
fn change_mode(dir: &OwnedFd, name: &CString, change: impl Fn(FileType, u32) -> u32) -> Result<u32, Errno> {
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let handle = rustix::fs::openat(dir, name.as_c_str(), flags, Mode::empty())?;
    let found = rustix::fs::fstat(&handle)?.st_mode;
    if !matches!(
        FileType::from_raw_mode(found),
        FileType::Directory | FileType::RegularFile
    ) {
        return Err(Errno::INVAL);
    }
    let old = found & 0o7777;
    let new = change(FileType::from_raw_mode(found), old);
    if new != old {
        set_mode(handle.as_fd(), new)?;
    }
    Ok(old)
}

/// The components of a path; an error if it could lead elsewhere.
fn parts(path: &[u8]) -> Result<Vec<CString>, String> {
    let part = |part: &[u8]| match part {
        b"" | b"." | b".." | b".git" => Err("not the path of a file".to_owned()),
        part => CString::new(part).map_err(|error| error.to_string()),
    };
    path.split(|byte| *byte == b'/').map(part).collect()
}

impl HandleWriter {
    /// Opens the directory, following links.
    ///
    /// # Errors
    /// It does not exist, is not a directory, or cannot be opened.
    pub fn open(top: &Path) -> Result<Self, String> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let top = rustix::fs::open(top, flags, Mode::empty()).map_err(|error| format!("{}: {error}", top.display()))?;
        Ok(Self {
            top,
            known: KnownAccess::default(),
            opened: RefCell::default(),
        })
    }

    /// Gives what is written the access that is known of it. `opened`: what was opened up before.
    pub fn knowing(self, known: KnownAccess, opened: Opened) -> Self {
        Self {
            known,
            opened: RefCell::new(opened),
            ..self
        }
    }

    /// Opens a directory at `path`, whose last component is `name`.
    fn enter(&self, at: &OwnedFd, name: &CString, path: &[u8]) -> Result<OwnedFd, Errno> {
        let closed = |mode: u32| mode & 0o700 != 0o700;
        match open_dir(at.as_fd(), name) {
            Ok(dir) if !closed(rustix::fs::fstat(&dir)?.st_mode) => Ok(dir),
            found @ (Ok(_) | Err(Errno::ACCESS)) => {
                match change_mode(at, name, usable) {
                    Ok(mode) => {
                        self.opened.borrow_mut().entry(path.to_vec()).or_insert(mode);
                        open_dir(at.as_fd(), name)
                    }
                    // It belongs to another user.
                    Err(_) => found,
                }
            }
            found => found,
        }
    }

    /// Lets the owner read a file, or use a directory, if that is possible.
    pub fn open_up(&self, path: &[u8]) {
        if let Ok(Some((dir, name))) = self.parent(path, false)
            && let Ok(mode) = change_mode(&dir, &name, usable)
        {
            self.opened.borrow_mut().entry(path.to_vec()).or_insert(mode);
        }
    }

    /// What was opened up.
    pub fn into_opened(self) -> Opened {
        self.opened.into_inner()
    }

    /// Gives what was opened up, and is still there, the mode that is known of it, or else the mode that it had.
    pub fn close_up(&self) {
        let opened = self.opened.take();
        // A directory is closed after everything below it.
        for (path, mode) in opened.iter().rev() {
            let mode = self.known.of(path).map_or(*mode, |known| known.mode);
            if let Ok(Some((dir, name))) = self.parent(path, false) {
                // One that nobody could read stays usable for its owner, as does one that cannot be closed: its content
                // would be hidden from the next snapshot.
                let is_read = mode & 0o400 != 0;
                let _ = change_mode(&dir, &name, |kind, _| if is_read { mode } else { usable(kind, mode) });
            }
        }
    }

    /// The parent directory of a path, and its last component. `None` if that directory does not exist and `make` is
    /// false.
    fn parent(&self, path: &[u8], make: bool) -> Result<Option<(OwnedFd, CString)>, String> {
        let mut parts = parts(path)?;
        let name = parts.pop().ok_or("not the path of a file")?;
        let mut here = self.top.try_clone().map_err(|error| error.to_string())?;
        let mut at = Vec::with_capacity(path.len());
        for part in &parts {
            if !at.is_empty() {
                at.push(b'/');
            }
            at.extend_from_slice(part.as_bytes());
            let mut below = self.enter(&here, part, &at);
            if below.as_ref().is_err_and(|error| *error == Errno::NOENT) {
                if !make {
                    return Ok(None);
                }
                match rustix::fs::mkdirat(&here, part.as_c_str(), Mode::from_raw_mode(0o777)) {
                    Ok(()) => {
                        below = open_dir(here.as_fd(), part);
                        if let (Ok(made), Some(known)) = (&below, self.known.of(&at)) {
                            give(made, known, known.mode).map_err(|error| error.to_string())?;
                            below = self.enter(&here, part, &at);
                        }
                    }
                    Err(Errno::EXIST) => below = self.enter(&here, part, &at),
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
    ///
    /// # Errors
    /// The path has a part that is empty, `.`, `..` or `.git`, a parent is a link or a file, or the system refuses to
    /// remove it, for example because it is a directory.
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

    /// When a directory was made, if the file system tells.
    pub fn made(&self, path: &[u8]) -> Option<SystemTime> {
        let (dir, name) = self.parent(path, false).ok()??;
        let dir = open_dir(dir.as_fd(), &name).ok()?;
        File::from(dir).metadata().ok()?.created().ok()
    }

    /// Creates a directory with its parents.
    ///
    /// # Errors
    /// The path has a part that is empty, `.`, `..` or `.git`, a part of it is a link or a file, or the system refuses
    /// to create a directory.
    pub fn make_dir(&self, path: &[u8]) -> Result<(), String> {
        self.parent(&[path, b"/x"].concat(), true).map(|_| ())
    }

    /// Atomically puts a file or link with this mode in place of whatever is there. Returns its metadata.
    ///
    /// # Errors
    /// The path has a part that is empty, `.`, `..` or `.git`, a parent is a link or a file, a directory with files is
    /// in its place, or the system refuses to write it.
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
                let old = old.filter(|(kind, _)| *kind == FileType::RegularFile);
                let old = old.map(|(_, stat)| FilePermissions::of(&stat));
                let access = self.known.of(path).or(old);
                write(
                    &dir,
                    &temporary,
                    (mode == EXECUTABLE, self.known.private),
                    content,
                    access,
                )
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

/// Gives a new file or directory its owner and this mode.
fn give(file: &impl AsFd, access: FilePermissions, mode: u32) -> Result<(), Errno> {
    // Only root may change the owner; for others the owner is already right.
    let _ = rustix::fs::fchown(file, Some(Uid::from_raw(access.uid)), Some(Gid::from_raw(access.gid)));
    rustix::fs::fchmod(file, Mode::from_raw_mode(mode))
}

/// Writes a new file with this access; without, it is for everybody whom the umask allows, or only for its owner.
fn write(
    dir: &OwnedFd,
    name: &CString,
    (runs, private): (bool, bool),
    content: &[u8],
    access: Option<FilePermissions>,
) -> Result<(), String> {
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let all = if runs { 0o777 } else { 0o666 };
    // Nobody may open it before it has the access that is known.
    let new = Mode::from_raw_mode(if private || access.is_some() { all & 0o700 } else { all });
    let file = rustix::fs::openat(dir, name.as_c_str(), flags, new).map_err(|error| error.to_string())?;
    let mut file = File::from(file);
    file.write_all(content).map_err(|error| error.to_string())?;
    if let Some(access) = access {
        let readable = access.mode & 0o777;
        let mode = match runs {
            true => readable | (readable & 0o444) >> 2 | 0o100,
            false => readable & !0o111,
        };
        give(&file, access, mode).map_err(|error| error.to_string())?;
    }
    Ok(())
}
