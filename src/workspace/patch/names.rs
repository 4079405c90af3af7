//! Lists the names of a directory: those that exist, and those known from earlier snapshots or the index.

use super::open::open_up;
use super::scan_state::{MOST_ENTRIES, Scan, WalkedDirectory, about};
use crate::workspace::fs::TEMP_PREFIX;
use rustix::fs::{AtFlags, FileType, RawDir};
use rustix::io::Errno;
use std::ffi::{CStr, CString};
use std::mem::MaybeUninit;
use std::ops::Range;
use std::os::fd::{AsFd, BorrowedFd};

/// A name in a directory, and its type when it was listed.
pub(super) struct ListedName {
    pub name: CString,
    pub kind: FileType,
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
