//! Lists the names of a directory: those that exist, and those known from earlier snapshots or the index.

use super::scan_state::{MOST_ENTRIES, Scan, WalkedDirectory, about};
use crate::workspace::fs::TEMP_PREFIX;
use rustix::fs::{AtFlags, FileType, Mode, OFlags, RawDir, Stat};
use rustix::io::Errno;
use std::ffi::{CStr, CString};
use std::fs::File;
use std::mem::MaybeUninit;
use std::ops::Range;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

/// A name in a directory, and its type when it was listed.
pub(super) struct ListedName {
    pub name: CString,
    pub kind: FileType,
}

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
/// is known of it, if any. By handle, because a link may take its place meanwhile.
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

/// The type of a name; `None` if there is no such name.
fn kind_of(at: BorrowedFd<'_>, name: &CStr) -> Result<Option<FileType>, Errno> {
    let look = || rustix::fs::statat(at, name, AtFlags::SYMLINK_NOFOLLOW);
    let stat = match look() {
        Err(Errno::ACCESS | Errno::PERM) if open_up(at, None).is_ok() => look(),
        stat => stat,
    };
    match stat {
        Ok(stat) => Ok(Some(FileType::from_raw_mode(stat.st_mode))),
        // The index may hold names that this file system cannot.
        Err(Errno::NOENT | Errno::NAMETOOLONG | Errno::INVAL | Errno::ILSEQ) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Opens a file; does not block if it has become a FIFO.
pub(super) fn open_file(at: BorrowedFd<'_>, name: &CString) -> Result<File, Errno> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    rustix::fs::openat(at, name.as_c_str(), flags, Mode::empty()).map(File::from)
}

/// Names that git refuses in every tree; a patch with one could not be applied.
pub(super) fn refused(name: &[u8]) -> bool {
    name.split(|byte| *byte == b'\\').any(|part| {
        let part = part.to_ascii_lowercase();
        let rest = part.strip_prefix(b".git").or_else(|| part.strip_prefix(b"git~1"));
        rest.is_some_and(|rest| {
            let end = rest.iter().position(|byte| !matches!(byte, b' ' | b'.'));
            end.is_none_or(|end| rest.get(end) == Some(&b':'))
        })
    })
}

impl Scan<'_> {
    /// The entries of the index for a name; advances `at` to them.
    pub(super) fn advance(&self, place: &WalkedDirectory<'_>, at: &mut usize, name: &[u8], dir: bool) -> Range<usize> {
        let Some(index) = self.index else { return 0..0 };
        let tail = |i: usize| index.name(i).get(place.path.len()..).unwrap_or_default();
        let end = place.before.index.end;
        let mut key = name.to_vec();
        if dir {
            key.push(b'/');
        }
        while *at < end && tail(*at) < key.as_slice() {
            *at += 1;
        }
        let start = *at;
        if dir {
            *at = index.below(&[&place.path, key.as_slice()].concat(), start..end).end;
        } else {
            while *at < end && tail(*at) == name {
                *at += 1;
            }
        }
        start..*at
    }

    /// The names of a directory that are known, whether or not they exist.
    pub(super) fn known(&self, place: &WalkedDirectory<'_>) -> Result<Vec<ListedName>, String> {
        let mut all = std::collections::BTreeSet::new();
        for dir in place.before.dirs() {
            all.extend(dir.entries().map(|(name, _)| name.to_vec()));
        }
        if let Some(index) = self.index {
            let mut at = place.before.index.start;
            while at < place.before.index.end {
                let tail = index.name(at).get(place.path.len()..).unwrap_or_default();
                let Some(slash) = memchr::memchr(b'/', tail) else {
                    all.insert(tail.to_vec());
                    at += 1;
                    continue;
                };
                let (name, _) = tail.split_at(slash);
                all.insert(name.to_vec());
                let prefix = [&place.path, name, b"/"].concat();
                at = index.below(&prefix, at..place.before.index.end).end.max(at + 1);
            }
        }
        let mut names = Vec::new();
        for name in all {
            let Ok(name) = CString::new(name) else { continue };
            // What cannot be looked at may exist: without it, it would count as deleted.
            let kind = kind_of(place.handle.as_fd(), &name)
                .map_err(|error| about(&[&place.path, name.as_bytes()].concat(), error))?;
            names.extend(kind.map(|kind| ListedName { name, kind }));
        }
        Ok(names)
    }

    /// All names of a directory that can be part of a snapshot.
    pub(super) fn list(&self, place: &WalkedDirectory<'_>) -> Result<Vec<ListedName>, String> {
        let mut names = Vec::new();
        let mut buffer = [MaybeUninit::<u8>::uninit(); 16 << 10];
        let mut listed = RawDir::new(&place.handle, &mut buffer);
        while let Some(entry) = listed.next() {
            let entry = entry.map_err(|error| about(&place.path, error))?;
            let name = entry.file_name();
            let bytes = name.to_bytes();
            if matches!(bytes, b"." | b".." | b".git") || bytes.starts_with(TEMP_PREFIX.as_bytes()) {
                continue;
            }
            let kind = match entry.file_type() {
                FileType::Unknown => {
                    let kind = kind_of(place.handle.as_fd(), name);
                    match kind.map_err(|error| about(&[&place.path, bytes].concat(), error))? {
                        Some(kind) => kind,
                        None => continue,
                    }
                }
                kind => kind,
            };
            names.push(ListedName {
                name: name.to_owned(),
                kind,
            });
            if names.len() > MOST_ENTRIES {
                return Err(about(
                    &place.path,
                    format!("more than {MOST_ENTRIES} names in a directory"),
                ));
            }
        }
        Ok(names)
    }
}
