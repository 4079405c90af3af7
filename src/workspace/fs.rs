//! Reads, lists and writes files below one directory, through its handle.

use rustix::fs::{AtFlags, FileType, Mode, OFlags, Stat};
use rustix::io::Errno;
use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

/// Prefix of temporary files. A crash may leave one; they are never listed, walked or part of a patch.
pub const TEMP_PREFIX: &str = ".overnight-tmp-";

/// Why a file could not be read or written.
#[derive(Debug, thiserror::Error)]
pub enum FsError {
    #[error("it lies outside the workspace")]
    Outside,
    #[error("it does not exist")]
    Missing,
    #[error("it is a directory")]
    Directory,
    #[error("a part of the path is not a directory")]
    NotADirectory,
    #[error("it is neither a file nor a directory")]
    Special,
    /// A component became a link after the path was ruled on.
    #[error("a part of the path became a link while it was opened")]
    Moved,
    #[error("it has {size} bytes, more than the {limit} that may be read")]
    TooLarge { size: u64, limit: u64 },
    /// The system refuses it: permissions, or a read-only file system.
    #[error("permission denied")]
    Denied,
    /// The disk or the quota is full.
    #[error("no space left on the device")]
    NoSpace,
    /// Any other error of the system.
    #[error("{0}")]
    Io(std::io::Error),
}

impl From<std::io::Error> for FsError {
    fn from(error: std::io::Error) -> Self {
        match error.raw_os_error().map(Errno::from_raw_os_error) {
            Some(Errno::NOENT) => Self::Missing,
            Some(Errno::ISDIR) => Self::Directory,
            Some(Errno::NOTDIR) => Self::NotADirectory,
            Some(Errno::LOOP) => Self::Moved,
            Some(Errno::XDEV) => Self::Outside,
            Some(Errno::NXIO | Errno::NODEV) => Self::Special,
            Some(Errno::ACCESS | Errno::PERM | Errno::ROFS) => Self::Denied,
            Some(Errno::NOSPC | Errno::DQUOT) => Self::NoSpace,
            _ => Self::Io(error),
        }
    }
}

impl From<Errno> for FsError {
    fn from(errno: Errno) -> Self {
        Self::from(std::io::Error::from(errno))
    }
}

/// One directory entry. Links are not followed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DirEntry {
    pub name: String,
    pub kind: EntryKind,
    /// Size in bytes; 0 unless it is a regular file.
    pub size: u64,
}

/// The type of a directory entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EntryKind {
    File,
    Dir,
    Link,
    Special,
}

/// An open directory. Paths are relative to it and `/`-separated, without `.` and `..`; no component may be a link.
#[derive(Debug)]
pub struct DirHandle {
    handle: OwnedFd,
}

impl DirHandle {
    /// Opens the directory `path`, following links.
    ///
    /// # Errors
    /// The path does not exist, is not a directory, or cannot be opened.
    pub fn open(path: &Path) -> Result<Self, FsError> {
        let flags = OFlags::DIRECTORY | OFlags::RDONLY | OFlags::CLOEXEC;
        Ok(Self {
            handle: rustix::fs::open(path, flags, Mode::empty())?,
        })
    }

    /// Opens the directory `path` for this program's own data; creates it with missing parents (mode 0700).
    ///
    /// # Errors
    /// It cannot be created or opened.
    pub fn create(path: &Path) -> Result<Self, FsError> {
        use std::os::unix::fs::DirBuilderExt;
        std::fs::DirBuilder::new().recursive(true).mode(0o700).create(path)?;
        Self::open(path)
    }

    /// Opens a regular file for reading. Never blocks on a FIFO, never follows a link.
    ///
    /// # Errors
    /// [`FsError::Directory`] or [`FsError::Special`] for what is no regular file, [`FsError::Moved`] if a component is
    /// a link, or what keeps it from being opened.
    pub fn file(&self, path: &str) -> Result<File, FsError> {
        let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let file = beneath(self.handle.as_fd(), path, flags)?;
        match FileType::from_raw_mode(rustix::fs::fstat(&file)?.st_mode) {
            FileType::RegularFile => Ok(File::from(file)),
            FileType::Directory => Err(FsError::Directory),
            _ => Err(FsError::Special),
        }
    }

    /// Reads a regular file of at most `limit` bytes.
    ///
    /// # Errors
    /// As of [`DirHandle::file`], or [`FsError::TooLarge`].
    pub fn read(&self, path: &str, limit: u64) -> Result<Vec<u8>, FsError> {
        let file = self.file(path)?;
        let size = file.metadata()?.len();
        if size > limit {
            return Err(FsError::TooLarge { size, limit });
        }
        let mut bytes = Vec::with_capacity(usize::try_from(size).unwrap_or(0));
        // Limits the read even if the file grows during it.
        file.take(limit + 1).read_to_end(&mut bytes)?;
        let size = bytes.len() as u64;
        if size > limit {
            return Err(FsError::TooLarge { size, limit });
        }
        Ok(bytes)
    }

    /// The entries of a directory (`""` is this one), sorted by bytes, at most `cap`; the second value is the number of
    /// further ones. Names that begin with [`TEMP_PREFIX`] are left out.
    ///
    /// # Errors
    /// It is not a directory, [`FsError::Moved`] if a component is a link, or it cannot be read.
    pub fn list(&self, path: &str, cap: usize) -> Result<(Vec<DirEntry>, usize), FsError> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let dir = beneath(self.handle.as_fd(), path, flags)?;
        let mut names = Vec::new();
        for entry in rustix::fs::Dir::read_from(&dir)? {
            let entry = entry?;
            let name = entry.file_name().to_bytes();
            if name != b"." && name != b".." && !name.starts_with(TEMP_PREFIX.as_bytes()) {
                names.push(entry.file_name().to_owned());
            }
        }
        names.sort();
        let rest = names.len().saturating_sub(cap);
        names.truncate(cap);
        let entries = names
            .iter()
            .filter_map(|name| {
                let stat = rustix::fs::statat(&dir, name.as_c_str(), AtFlags::SYMLINK_NOFOLLOW).ok()?;
                Some(DirEntry {
                    name: name.to_string_lossy().into_owned(),
                    kind: entry_kind(&stat),
                    size: if entry_kind(&stat) == EntryKind::File {
                        u64::try_from(stat.st_size).unwrap_or(0)
                    } else {
                        0
                    },
                })
            })
            .collect();
        Ok((entries, rest))
    }

    /// Writes `bytes` to `path` atomically and creates missing parents. An existing file keeps its permission bits (but
    /// not set-id bits) and, if permitted, its owner; its hard links keep the old content. Returns whether the file is
    /// new.
    ///
    /// # Errors
    /// [`FsError::Directory`] or [`FsError::Special`] if something else has that name, [`FsError::Moved`] if a
    /// component is a link, or what keeps it from being written; an existing file is unchanged then.
    pub fn write(&self, path: &str, bytes: &[u8]) -> Result<bool, FsError> {
        let (parents, name) = path.rsplit_once('/').unwrap_or(("", path));
        let dir = self.make_dirs(parents)?;
        names(name)?.first().ok_or(FsError::Directory)?;
        let before = match rustix::fs::statat(&dir, name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) => match entry_kind(&stat) {
                EntryKind::File => Some(stat),
                EntryKind::Dir => return Err(FsError::Directory),
                EntryKind::Link => return Err(FsError::Moved),
                EntryKind::Special => return Err(FsError::Special),
            },
            Err(Errno::NOENT) => None,
            Err(error) => return Err(error.into()),
        };
        let temp = temp_name();
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let file = rustix::fs::openat(&dir, temp.as_str(), flags, Mode::from_raw_mode(0o666))?;
        let done = fill(File::from(file), bytes, before.as_ref())
            .and_then(|()| Ok(rustix::fs::renameat(&dir, temp.as_str(), &dir, name)?));
        if let Err(error) = done {
            // The first error is the one to report.
            let _unlinked = rustix::fs::unlinkat(&dir, temp.as_str(), AtFlags::empty());
            return Err(error);
        }
        Ok(before.is_none())
    }

    fn make_dirs(&self, path: &str) -> Result<OwnedFd, FsError> {
        let mut dir = step(self.handle.as_fd(), ".", DIR_FLAGS)?;
        for name in names(path)? {
            dir = match step(dir.as_fd(), name, DIR_FLAGS) {
                Err(FsError::Missing) => {
                    match rustix::fs::mkdirat(&dir, name, Mode::from_raw_mode(0o777)) {
                        Ok(()) | Err(Errno::EXIST) => {}
                        Err(error) => return Err(error.into()),
                    }
                    step(dir.as_fd(), name, DIR_FLAGS)?
                }
                other => other?,
            };
        }
        Ok(dir)
    }
}

const DIR_FLAGS: OFlags = OFlags::RDONLY
    .union(OFlags::DIRECTORY)
    .union(OFlags::NOFOLLOW)
    .union(OFlags::CLOEXEC);

fn entry_kind(stat: &Stat) -> EntryKind {
    match FileType::from_raw_mode(stat.st_mode) {
        FileType::RegularFile => EntryKind::File,
        FileType::Directory => EntryKind::Dir,
        FileType::Symlink => EntryKind::Link,
        _ => EntryKind::Special,
    }
}

fn fill(mut file: File, bytes: &[u8], before: Option<&Stat>) -> Result<(), FsError> {
    file.write_all(bytes)?;
    if let Some(stat) = before {
        let now = rustix::fs::fstat(&file)?;
        if (now.st_uid, now.st_gid) != (stat.st_uid, stat.st_gid) {
            let owner = Some(rustix::fs::Uid::from_raw(stat.st_uid));
            let group = Some(rustix::fs::Gid::from_raw(stat.st_gid));
            // Only root may change the owner; for others the file keeps the owner of the process.
            let _kept = rustix::fs::fchown(&file, owner, group);
        }
        rustix::fs::fchmod(&file, Mode::from_raw_mode(stat.st_mode & 0o777))?;
    }
    Ok(())
}

fn temp_name() -> String {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let n = NEXT.fetch_add(1, Ordering::Relaxed);
    format!("{TEMP_PREFIX}{}-{n}", std::process::id())
}

/// The components of a relative path; rejects any that could lead outside or be misread.
fn names(path: &str) -> Result<Vec<&str>, FsError> {
    if path.is_empty() {
        return Ok(Vec::new());
    }
    path.split('/')
        .map(|name| match name {
            "" | "." | ".." => Err(FsError::Outside),
            name if name.contains('\0') => Err(FsError::Missing),
            name => Ok(name),
        })
        .collect()
}

/// Opens `path` below `root` without following any link, so that the file that was ruled on is the one that is opened.
///
/// `openat2(2)` does this in one step. If the kernel (ENOSYS) or a container's seccomp filter (EPERM) refuses it, each
/// component is opened from the handle of the previous one with `O_NOFOLLOW`: slower, with the same guarantee.
fn beneath(root: BorrowedFd<'_>, path: &str, flags: OFlags) -> Result<OwnedFd, FsError> {
    let names = names(path)?;
    #[cfg(target_os = "linux")]
    {
        use rustix::fs::ResolveFlags;
        let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS | ResolveFlags::NO_SYMLINKS;
        let whole = if path.is_empty() { "." } else { path };
        for _ in 0..16 {
            match rustix::fs::openat2(root, whole, flags, Mode::empty(), resolve) {
                Ok(file) => return Ok(file),
                Err(Errno::AGAIN) => {}
                Err(Errno::NOSYS | Errno::PERM) => break,
                Err(error) => return Err(error.into()),
            }
        }
    }
    by_steps(root, &names, flags)
}

fn by_steps(root: BorrowedFd<'_>, names: &[&str], flags: OFlags) -> Result<OwnedFd, FsError> {
    let Some((last, parents)) = names.split_last() else {
        return step(root, ".", flags);
    };
    let mut dir = step(root, ".", DIR_FLAGS)?;
    for name in parents {
        dir = step(dir.as_fd(), name, DIR_FLAGS)?;
    }
    step(dir.as_fd(), last, flags)
}

fn step(dir: BorrowedFd<'_>, name: &str, flags: OFlags) -> Result<OwnedFd, FsError> {
    match rustix::fs::openat(dir, name, flags, Mode::empty()) {
        Ok(file) => Ok(file),
        // `O_DIRECTORY | O_NOFOLLOW` fails with ENOTDIR for a link, too.
        Err(Errno::NOTDIR) if is_link(dir, name) => Err(FsError::Moved),
        Err(error) => Err(error.into()),
    }
}

fn is_link(dir: BorrowedFd<'_>, name: &str) -> bool {
    rustix::fs::statat(dir, name, AtFlags::SYMLINK_NOFOLLOW).is_ok_and(|stat| entry_kind(&stat) == EntryKind::Link)
}

#[cfg(test)]
mod tests;
