//! File operations on the workspace through directory handles: each call names one entry of an open
//! directory and follows no link, so that a hostile process cannot redirect it by replacing a path component.
//! Errors are those of the system calls.

use crate::base::sync::lock;
use crate::process::path_resolution;
use rustix::buffer::spare_capacity;
use rustix::fs::{
    AtFlags, CWD, FileType, Mode, OFlags, RawDir, RawMode, RenameFlags, ResolveFlags, Stat, StatxFlags, Timespec,
    Timestamps, XattrFlags, chmodat, fchmod, flistxattr_query, fstat, futimens, getxattr, listxattr, mkdirat, open,
    openat, openat2, readlinkat, removexattr, renameat, renameat_with, setxattr, statat, statx, symlinkat, unlinkat,
};
use rustix::io::{Errno, Result, dup};
use std::collections::BTreeMap;
use std::ffi::{CStr, OsStr, OsString};
use std::fs::File;
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime};

/// Buffer size in bytes for directory entries.
const LIST_BYTES: usize = 64 << 10;
/// The depth to which a tree is removed in place; deeper parts are moved up first, so that few handles are open at the
/// same time.
const DEEPEST: usize = 64;
/// How often removing a directory is retried while another process keeps adding entries.
const REMOVE_TRIES: usize = 100;

/// How often a lookup within a root is tried while other processes rename directories.
const RESOLVE_TRIES: usize = 8;

const BENEATH: ResolveFlags = ResolveFlags::BENEATH
    .union(ResolveFlags::NO_SYMLINKS)
    .union(ResolveFlags::NO_MAGICLINKS);
const DIRECTORY: OFlags = OFlags::RDONLY
    .union(OFlags::DIRECTORY)
    .union(OFlags::NOFOLLOW)
    .union(OFlags::CLOEXEC);

/// Opens the directory itself, following links, because the user named it.
pub(crate) fn root(path: &Path) -> Result<OwnedFd> {
    open(
        path,
        OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC,
        Mode::empty(),
    )
}

/// Opens `path` below `root` without following any link.
fn beneath(root: &OwnedFd, path: &Path, flags: OFlags) -> Result<OwnedFd> {
    match openat2(root, or_dot(path), flags, Mode::empty(), BENEATH) {
        Err(error) if path_resolution::is_refused(error) => path_resolution::without_links(root, path, flags),
        opened => opened,
    }
}

/// Opens a directory below `root`; `""` is `root`.
pub(crate) fn dir(root: &OwnedFd, path: &Path) -> Result<OwnedFd> {
    beneath(root, path, DIRECTORY)
}

/// Opens an `O_PATH` handle of the entry at `path`, which can neither read nor write it.
pub(crate) fn handle(root: &OwnedFd, path: &Path) -> Result<OwnedFd> {
    beneath(root, path, OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC)
}

/// Opens an `O_PATH` handle of an absolute path as a process whose root directory is `root` would. Links are followed,
/// but lead nowhere above `root`.
pub(crate) fn handle_in_root(root: &OwnedFd, path: &Path) -> Result<OwnedFd> {
    let resolve = ResolveFlags::IN_ROOT | ResolveFlags::NO_MAGICLINKS;
    for _ in 0..RESOLVE_TRIES {
        match openat2(root, path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty(), resolve) {
            // A rename raced with the lookup.
            Err(Errno::AGAIN | Errno::INTR) => {}
            Err(error) if path_resolution::is_refused(error) => {
                return path_resolution::through_links(root, None, path.as_os_str().as_bytes(), true);
            }
            opened => return opened,
        }
    }
    Err(Errno::AGAIN)
}

/// Opens a regular file below `root` for reading. Never blocks on a FIFO.
pub(crate) fn file(root: &OwnedFd, path: &Path) -> Result<File> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    let file = beneath(root, path, flags)?;
    match FileType::from_raw_mode(fstat(&file)?.st_mode) {
        FileType::RegularFile => Ok(file.into()),
        _ => Err(Errno::INVAL),
    }
}

/// Opens the directory that contains `path`; also returns the last component.
pub(crate) fn parent<'a>(root: &OwnedFd, path: &'a Path) -> Result<(OwnedFd, &'a OsStr)> {
    let name = path.file_name().ok_or(Errno::INVAL)?;
    Ok((dir(root, path.parent().unwrap_or(Path::new("")))?, name))
}

/// Like [`parent`], but creates missing directories, and removes any entry in the path that is not a directory.
pub(crate) fn parent_made<'a>(root: &OwnedFd, path: &'a Path) -> Result<(OwnedFd, &'a OsStr)> {
    let name = path.file_name().ok_or(Errno::INVAL)?;
    Ok((dir_made(root, path.parent().unwrap_or(Path::new("")))?, name))
}

/// Like [`dir`], but creates missing directories, and removes any entry in the path that is not a directory.
pub(crate) fn dir_made(root: &OwnedFd, path: &Path) -> Result<OwnedFd> {
    let mut at = dir(root, Path::new(""))?;
    for part in path {
        let next = match openat(&at, part, DIRECTORY, Mode::empty()) {
            Ok(next) => next,
            Err(Errno::ACCESS) => opened_up(&at, part)?,
            Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => {
                let _opened = OpenedUp::of(dup(&at)?)?;
                // Another process may make the same directory at this moment.
                match unlinkat(&at, part, AtFlags::empty()) {
                    Ok(()) | Err(Errno::NOENT | Errno::ISDIR) => {}
                    Err(error) => return Err(error),
                }
                match mkdirat(&at, part, Mode::from_raw_mode(0o755)) {
                    Ok(()) | Err(Errno::EXIST) => {}
                    Err(error) => return Err(error),
                }
                openat(&at, part, DIRECTORY, Mode::empty())?
            }
            // This error does not show whether the entry exists.
            Err(error) => return Err(error),
        };
        at = next;
    }
    Ok(at)
}

/// A directory that this process may search and write. On drop it gets its mode back, if that was changed for this.
pub(crate) struct OpenedUp {
    pub dir: OwnedFd,
    mode: Option<RawMode>,
}

impl OpenedUp {
    /// Gives the owner of a directory the rights that are missing. A command could do the same with its own
    /// directories.
    pub fn of(dir: OwnedFd) -> Result<Self> {
        let data = fstat(&dir)?;
        let mode = data.st_mode & 0o7777;
        let is_mine = data.st_uid == rustix::process::geteuid().as_raw();
        let is_changed = is_mine && mode & 0o700 != 0o700;
        if is_changed {
            set_mode(&dir, mode | 0o700)?;
        }
        Ok(Self {
            dir,
            mode: is_changed.then_some(mode),
        })
    }
}

impl Drop for OpenedUp {
    fn drop(&mut self) {
        if let Some(mode) = self.mode {
            // If this fails, the owner has more rights there than before.
            let _ = set_mode(&self.dir, mode);
        }
    }
}

/// Like [`parent`], even if the mode of the directory, or of a directory in the path, denies access to its owner.
pub(crate) fn parent_opened_up<'a>(root: &OwnedFd, path: &'a Path) -> Result<(OpenedUp, &'a OsStr)> {
    match parent(root, path) {
        Err(Errno::ACCESS) => {
            let above = path.parent().unwrap_or(Path::new(""));
            let name = path.file_name().ok_or(Errno::INVAL)?;
            let (dir, mode) = opened_up_below(root, above)?.ok_or(Errno::ACCESS)?;
            let mode = Some(mode);
            Ok((OpenedUp { dir, mode }, name))
        }
        found => {
            let (dir, name) = found?;
            Ok((OpenedUp::of(dir)?, name))
        }
    }
}

/// Renames an entry to an unused name.
pub(crate) fn rename_to_free(from: (&OwnedFd, &OsStr), to: (&OwnedFd, &OsStr)) -> Result<()> {
    match renameat_with(from.0, from.1, to.0, to.1, RenameFlags::NOREPLACE) {
        // Some file systems do not know the flag.
        Err(Errno::INVAL) if matches!(stat(to.0, to.1), Err(Errno::NOENT)) => renameat(from.0, from.1, to.0, to.1),
        renamed => renamed,
    }
}

/// The status of an entry, without following a link.
pub(crate) fn stat(dir: &OwnedFd, name: &OsStr) -> Result<Stat> {
    statat(dir, name, AtFlags::SYMLINK_NOFOLLOW)
}

/// When an entry was created. `None` if the file system does not record it.
pub(crate) fn created(dir: &OwnedFd, name: &OsStr) -> Option<SystemTime> {
    let data = statx(dir, name, AtFlags::SYMLINK_NOFOLLOW, StatxFlags::BTIME).ok()?;
    let is_known = StatxFlags::from_bits_retain(data.stx_mask).contains(StatxFlags::BTIME);
    let whole = u64::try_from(data.stx_btime.tv_sec).ok().filter(|_| is_known)?;
    SystemTime::UNIX_EPOCH.checked_add(Duration::new(whole, data.stx_btime.tv_nsec))
}

/// The status of a path that is reached without links.
pub(crate) fn stat_below(root: &OwnedFd, path: &Path) -> Result<Stat> {
    if path.as_os_str().is_empty() {
        return fstat(root);
    }
    let (dir, name) = parent(root, path)?;
    stat(&dir, name)
}

pub(crate) fn link(dir: &OwnedFd, name: &OsStr) -> Result<Vec<u8>> {
    Ok(readlinkat(dir, name, Vec::new())?.into_bytes())
}

/// Like [`stat_below`], also where the mode of a directory on the way denies access to its owner.
pub(crate) fn stat_opened_up(root: &OwnedFd, path: &Path) -> Result<Stat> {
    match stat_below(root, path) {
        Err(Errno::ACCESS) => {
            let (opened, name) = parent_opened_up(root, path)?;
            stat(&opened.dir, name)
        }
        found => found,
    }
}

/// Calls `each` for each entry except `.` and `..`, with its name, type (may be unknown) and inode number.
pub(crate) fn list(dir: &OwnedFd, buffer: &mut Vec<u8>, mut each: impl FnMut(&CStr, FileType, u64)) -> Result<()> {
    buffer.clear();
    buffer.reserve(LIST_BYTES);
    let space: &mut [MaybeUninit<u8>] = buffer.spare_capacity_mut();
    let mut entries = RawDir::new(dir, space);
    while let Some(entry) = entries.next() {
        let entry = entry?;
        let name = entry.file_name();
        if name != c"." && name != c".." {
            each(name, entry.file_type(), entry.ino());
        }
    }
    Ok(())
}

/// The type of a listed entry, also on file systems that do not list it. `None` if the entry was removed meanwhile.
pub(crate) fn kind(dir: &OwnedFd, name: &OsStr, listed: FileType) -> Result<Option<FileType>> {
    if listed != FileType::Unknown {
        return Ok(Some(listed));
    }
    match stat(dir, name) {
        Ok(data) => Ok(Some(FileType::from_raw_mode(data.st_mode))),
        Err(Errno::NOENT) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Opens a directory even if its mode denies access to its owner, as a command could do. The caller must restore the
/// mode.
pub(crate) fn opened_up(dir: &OwnedFd, name: &OsStr) -> Result<OwnedFd> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let handle = openat(dir, name, flags, Mode::empty())?;
    let mode = fstat(&handle)?.st_mode & 0o7777;
    set_mode(&handle, mode | 0o700)?;
    openat(dir, name, DIRECTORY, Mode::empty())
}

/// Like [`opened_up`], for a directory below `root` that its own mode or that of a directory on the way closes. The
/// directories on the way get their modes back; that of the directory itself, which is returned with it, is for the caller
/// to restore. `None` if it, or one on the way, is closed and belongs to another user.
pub(crate) fn opened_up_below(root: &OwnedFd, path: &Path) -> Result<Option<(OwnedFd, RawMode)>> {
    // A second thread would take the mode of the moment for the one to restore.
    static ONE: Mutex<()> = Mutex::new(());
    let _one = lock(&ONE);
    let mut changed = Vec::new();
    let opened = descended(root, path, &mut changed);
    for (handle, mode) in changed.iter().rev() {
        set_mode(handle, *mode)?;
    }
    opened
}

fn descended(root: &OwnedFd, path: &Path, changed: &mut Vec<(OwnedFd, RawMode)>) -> Result<Option<(OwnedFd, RawMode)>> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let own = rustix::process::geteuid().as_raw();
    let mut foreign = false;
    let mut at = dir(root, Path::new(""))?;
    let mut parts = path.iter().peekable();
    while let Some(part) = parts.next() {
        let handle = match openat(&at, part, flags, Mode::empty()) {
            Err(Errno::ACCESS) if foreign => return Ok(None),
            handle => handle?,
        };
        let data = fstat(&handle)?;
        let mode = data.st_mode & 0o7777;
        let is_closed = mode & 0o700 != 0o700;
        let is_opened = is_closed && data.st_uid == own;
        foreign |= is_closed && !is_opened;
        if is_opened {
            set_mode(&handle, mode | 0o700)?;
        }
        if parts.peek().is_none() {
            let opened = openat(&at, part, DIRECTORY, Mode::empty());
            if opened.is_err() && is_opened {
                set_mode(&handle, mode)?;
            }
            return match opened {
                Err(Errno::ACCESS) if foreign => Ok(None),
                opened => Ok(Some((opened?, mode))),
            };
        }
        let below = openat(&at, part, flags, Mode::empty());
        if is_opened {
            changed.push((handle, mode));
        }
        at = below?;
    }
    Err(Errno::INVAL)
}

/// Sets the mode of a handle's file, even for an `O_PATH` handle.
pub(crate) fn set_mode(handle: &OwnedFd, mode: RawMode) -> Result<()> {
    let mode = Mode::from_raw_mode(mode & 0o7777);
    match fchmod(handle, mode) {
        Err(Errno::BADF) => through_link(chmodat(CWD, own_link(handle), mode, AtFlags::empty())),
        done => done,
    }
}

/// Extended attributes: names and values.
pub(crate) type Attributes = BTreeMap<String, Vec<u8>>;

/// Bytes of all names, and of one value; the kernel's own limit.
const ATTRIBUTE_BYTES: usize = 64 << 10;

/// The extended attributes that a command may change: `user.*` and ACLs. Empty if the file system supports none.
pub(crate) fn attributes(handle: &impl AsRawFd) -> Result<Attributes> {
    let link = own_link(handle);
    let mut names = Vec::with_capacity(256);
    match through_link(listxattr(link.as_str(), spare_capacity(&mut names))) {
        Ok(_) => {}
        Err(Errno::RANGE) => {
            names = Vec::with_capacity(ATTRIBUTE_BYTES);
            through_link(listxattr(link.as_str(), spare_capacity(&mut names)))?;
        }
        Err(Errno::NOTSUP) => return Ok(Attributes::new()),
        Err(error) => return Err(error),
    }
    let mut found = Attributes::new();
    for name in names
        .split(|byte| *byte == 0)
        .filter_map(|name| std::str::from_utf8(name).ok())
    {
        if !may_be_changed(name) {
            continue;
        }
        let mut value = Vec::with_capacity(ATTRIBUTE_BYTES);
        match through_link(getxattr(link.as_str(), name, spare_capacity(&mut value))) {
            Ok(_) => {}
            // Removed in the meantime, or a file whose attributes, like its content, this user cannot read.
            Err(Errno::NODATA | Errno::ACCESS) => continue,
            Err(error) => return Err(error),
        }
        value.shrink_to_fit();
        found.insert(name.to_owned(), value);
    }
    Ok(found)
}

/// Like [`attributes`], for a file that is open for reading. For most files, which have none, it takes one call.
pub(crate) fn attributes_of_open(file: &File) -> Result<Attributes> {
    match flistxattr_query(file) {
        Ok(0) | Err(Errno::NOTSUP) => Ok(Attributes::new()),
        _ => attributes(file),
    }
}

/// Restores the given attributes and removes all others.
pub(crate) fn set_attributes(handle: &OwnedFd, before: &Attributes) -> Result<()> {
    let now = attributes(handle)?;
    let link = own_link(handle);
    for name in now.keys().filter(|name| !before.contains_key(*name)) {
        removexattr(link.as_str(), name.as_str())?;
    }
    for (name, value) in before.iter().filter(|(name, value)| now.get(*name) != Some(value)) {
        setxattr(link.as_str(), name.as_str(), value, XattrFlags::empty())?;
    }
    Ok(())
}

fn may_be_changed(name: &str) -> bool {
    name.starts_with("user.") || name.starts_with("system.posix_acl_")
}

/// The `/proc/self/fd` link of a handle: it always refers to the handle's file.
pub(crate) fn own_link(handle: &impl AsRawFd) -> String {
    format!("/proc/self/fd/{}", handle.as_raw_fd())
}

/// The result of a call through [`own_link`]. The file of a handle is never missing, so what is missing is `/proc`: that
/// must not be taken for an entry that was removed.
fn through_link<T>(done: Result<T>) -> Result<T> {
    match done {
        Err(Errno::NOENT) => Err(Errno::NOSYS),
        done => done,
    }
}

/// Whether [`own_link`] leads to the file of a handle. It does not without `/proc`, or with that of other processes.
pub(crate) fn has_own_links(handle: &OwnedFd) -> bool {
    let identity = |data: Stat| (data.st_dev, data.st_ino);
    let here = fstat(handle).map(identity);
    here.is_ok() && here == statat(CWD, own_link(handle), AtFlags::empty()).map(identity)
}

/// Sets a file's modification time.
pub(crate) fn set_modified(file: &File, (seconds, nanos): (i64, i64)) -> Result<()> {
    let time = Timespec {
        tv_sec: seconds,
        tv_nsec: nanos,
    };
    futimens(
        file,
        &Timestamps {
            last_access: time,
            last_modification: time,
        },
    )
}

/// Creates a new file with an unused name in `dir` and opens it for writing.
pub(crate) fn new_file(dir: &OwnedFd) -> Result<(File, String)> {
    for _ in 0..1_000 {
        let name = fresh_name();
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        match openat(dir, &name, flags, Mode::from_raw_mode(0o600)) {
            Ok(file) => return Ok((file.into(), name)),
            Err(Errno::EXIST) => {}
            Err(error) => return Err(error),
        }
    }
    Err(Errno::EXIST)
}

/// A file name that no workspace uses.
pub(super) fn fresh_name() -> String {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let count = NEXT.fetch_add(1, Ordering::Relaxed);
    format!(".overnight-{}-{count}", std::process::id())
}

/// Renames an entry within a directory, replacing an existing entry that is not a directory.
pub(crate) fn rename_over(dir: &OwnedFd, from: &str, to: &OsStr) -> Result<()> {
    renameat(dir, from, dir, to)
}

pub(crate) fn make_dir(dir: &OwnedFd, name: &OsStr) -> Result<()> {
    mkdirat(dir, name, Mode::from_raw_mode(0o700))
}

pub(crate) fn make_link(dir: &OwnedFd, name: &OsStr, target: &[u8]) -> Result<()> {
    symlinkat(OsStr::from_bytes(target), dir, name)
}

/// Removes an entry, and a directory with everything below it. A missing entry is no error.
pub(crate) fn remove(dir: &OwnedFd, name: &OsStr) -> Result<()> {
    let mut moved = vec![name.to_owned()];
    let mut tries = 0;
    while let Some(name) = moved.pop() {
        match remove_once(dir, &name, (dir, &mut moved), 0) {
            Ok(()) | Err(Errno::NOENT) => {}
            // Some process still writes into it.
            Err(Errno::NOTEMPTY) if tries < REMOVE_TRIES => {
                tries += 1;
                moved.push(name);
            }
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

fn remove_once(dir: &OwnedFd, name: &OsStr, (top, moved): (&OwnedFd, &mut Vec<OsString>), depth: usize) -> Result<()> {
    match unlinkat(dir, name, AtFlags::empty()) {
        Err(Errno::ISDIR | Errno::PERM) => {}
        Err(Errno::ACCESS) => {
            // The containing directory may have been made unwritable.
            let mode = fstat(dir)?.st_mode & 0o7777;
            set_mode(dir, mode | 0o700)?;
            match unlinkat(dir, name, AtFlags::empty()) {
                Err(Errno::ISDIR | Errno::PERM) => {}
                done => return done,
            }
        }
        done => return done,
    }
    if unlinkat(dir, name, AtFlags::REMOVEDIR).is_ok() {
        return Ok(());
    }
    let inner = match openat(dir, name, DIRECTORY, Mode::empty()) {
        Err(Errno::ACCESS) => opened_up(dir, name)?,
        inner => inner?,
    };
    let mut names = Vec::new();
    list(&inner, &mut Vec::new(), |name, _, _| {
        names.push(OsStr::from_bytes(name.to_bytes()).to_owned());
    })?;
    for name in names {
        if depth < DEEPEST {
            match remove_once(&inner, &name, (top, moved), depth + 1) {
                Ok(()) | Err(Errno::NOENT) => {}
                Err(error) => return Err(error),
            }
        } else if unlinkat(&inner, &name, AtFlags::empty()).is_err() {
            let up = OsString::from(fresh_name());
            renameat(&inner, &name, top, &up)?;
            moved.push(up);
        }
    }
    unlinkat(dir, name, AtFlags::REMOVEDIR)
}

/// Removes what is at a path, also where the mode of a directory on the way denies access to its owner: these get their
/// modes back. A missing entry is no error.
pub(crate) fn remove_below(root: &OwnedFd, path: &Path) -> Result<()> {
    let (opened, name) = parent_opened_up(root, path)?;
    remove(&opened.dir, name)
}

pub(crate) fn is_dir(data: &Stat) -> bool {
    FileType::from_raw_mode(data.st_mode).is_dir()
}

fn or_dot(path: &Path) -> &Path {
    match path.as_os_str().is_empty() {
        true => Path::new("."),
        false => path,
    }
}
