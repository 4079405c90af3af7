//! Examines one name that is not a directory: detects whether it changed, and reads its content if it did.

use super::cache::{CachedEntry, FileStat, What};
use super::index::{GitIndex, SnapshotIndexEntry};
use super::object::{Digest, Id, ObjectKind};
use super::open::{open_file, open_searchable};
use super::scan_state::{LARGE, MOST_FILE, Scan, TICK};
use super::unknown::UnknownContent;
use crate::base::sync::lock;
use rustix::fs::FileType;
use rustix::io::Errno;
use std::ffi::CString;
use std::fs::File;
use std::io::Read;
use std::os::fd::BorrowedFd;

/// The result: the type, the metadata to detect the next change by, the object id.
type Made = (What, FileStat, Id);

/// A name with everything known about it.
pub(super) struct NameStatus<'a, 'b> {
    pub scan: &'a Scan<'b>,
    pub at: BorrowedFd<'a>,
    /// The path of its directory: empty, or ending in a slash.
    pub dir: &'a [u8],
    pub name: &'a CString,
    pub stat: &'a rustix::fs::Stat,
    /// Its entry in the last snapshot.
    pub old: Option<&'a CachedEntry>,
    /// Its entry in the first snapshot.
    pub first: Option<&'a CachedEntry>,
    /// The index, if it has an entry for the name; `seen` is that entry.
    pub index: Option<&'a GitIndex>,
    pub seen: usize,
}

impl NameStatus<'_, '_> {
    /// `None` if its type has changed since it was listed.
    ///
    /// # Errors
    /// Too many files are open, the file or link cannot be read for another reason than its permissions, or its content
    /// cannot be stored.
    pub fn at(&self, kind: FileType, refused: bool) -> Result<Option<Made>, String> {
        match kind {
            _ if refused => self.metadata(&UnknownContent::RefusedName),
            FileType::RegularFile => self.file(),
            FileType::Symlink => self.link(),
            FileType::Directory => match open_searchable(self.at, self.name) {
                Err(Errno::ACCESS | Errno::PERM) => self.metadata(&UnknownContent::Directory),
                _ => Ok(None),
            },
            FileType::Fifo => self.metadata(&UnknownContent::Pipe),
            FileType::Socket => self.metadata(&UnknownContent::Socket),
            _ => self.metadata(&UnknownContent::Device),
        }
    }

    /// Identifies it by type and time of change instead of its content.
    fn metadata(&self, why: &UnknownContent) -> Result<Option<Made>, String> {
        let stat = FileStat::of(self.stat);
        let mut text = format!("{why}\ninode {} mode {:o}\n", stat.inode, self.stat.st_mode);
        if FileType::from_raw_mode(self.stat.st_mode) == FileType::RegularFile {
            // The ctime changes with every modification, and no program can set it back.
            text.push_str(&format!(
                "bytes {} changed {} modified {}\n",
                stat.size, stat.changed, stat.modified
            ));
        }
        let id = self.scan.object(ObjectKind::Blob, text.as_bytes(), None)?;
        Ok(Some((What::Metadata, stat, id)))
    }

    /// Its path relative to the top of the repository.
    fn path(&self) -> Vec<u8> {
        [self.dir, self.name.as_bytes()].concat()
    }

    /// Whether metadata that is the same means content that is the same.
    fn is_exact(&self) -> bool {
        self.scan.exact == Some(self.stat.st_dev)
    }

    /// The metadata to detect a change by; none if the file is so new that it may change again within the same clock
    /// tick, or on a file system where it can change without a new time.
    fn known_by(&self, stat: FileStat) -> FileStat {
        match self.is_exact() && self.scan.now.saturating_sub(stat.changed.max(stat.modified)) > TICK {
            true => stat,
            false => FileStat::UNKNOWN,
        }
    }

    fn file(&self) -> Result<Option<Made>, String> {
        let stat = FileStat::of(self.stat);
        let what = match self.stat.st_mode & 0o100 {
            0 => What::File,
            _ => What::Executable,
        };
        if let Some(old) = self.old
            && self.is_exact()
            && old.stat == stat
            && (old.what == what || old.what == What::Metadata)
        {
            return Ok(Some((old.what, stat, old.id)));
        }
        let seen = self
            .index
            .and_then(|index| index.seen(self.seen))
            .filter(|seen| seen.stored);
        if let Some(seen) = &seen
            && self.index.is_some_and(|index| index.trusted)
            && self.is_exact()
            && unchanged(seen, what, &stat)
        {
            return Ok(Some((what, stat, seen.id)));
        }
        let file = match open_file(self.at, self.name) {
            Ok(file) => file,
            Err(Errno::ACCESS | Errno::PERM) => return self.metadata(&UnknownContent::File),
            Err(Errno::MFILE | Errno::NFILE) => return Err("too many open files".to_owned()),
            Err(_) => return Ok(None),
        };
        let trouble = |error: Errno| error.to_string();
        let opened = rustix::fs::fstat(&file).map_err(trouble)?;
        let before = FileStat::of(&opened);
        if FileType::from_raw_mode(opened.st_mode) != FileType::RegularFile || before.inode != stat.inode {
            return Ok(None);
        }
        let elsewhere = seen.map(|seen| seen.id);
        let id = match self.content(&file, before.size, elsewhere)? {
            Content::Known(id) => id,
            Content::Changing => return Ok(None),
            Content::Large => return self.metadata(&UnknownContent::TooLarge(MOST_FILE >> 20)),
        };
        let after = FileStat::of(&rustix::fs::fstat(&file).map_err(trouble)?);
        let by = if after == before {
            self.known_by(before)
        } else {
            FileStat::UNKNOWN
        };
        Ok(Some((what, by, id)))
    }

    fn content(&self, mut file: &File, size: u64, elsewhere: Option<Id>) -> Result<Content, String> {
        let trouble = |error: std::io::Error| error.to_string();
        let _one = match size > LARGE {
            true => Some(lock(&self.scan.large)),
            false => None,
        };
        if size <= MOST_FILE {
            // One more byte of capacity, to notice that a file grows.
            let mut content = Vec::with_capacity(size as usize + 1);
            let mut rest = file.take(MOST_FILE + 1);
            loop {
                let read = rest.by_ref().take(LARGE).read_to_end(&mut content).map_err(trouble)? as u64;
                self.scan.bound.check_read(read)?;
                if read < LARGE {
                    break;
                }
            }
            return match content.len() as u64 > MOST_FILE {
                true => Ok(Content::Changing),
                false => self.scan.content(&self.path(), &content, elsewhere).map(Content::Known),
            };
        }
        // A digest is useful only if content that is stored already may have the same one.
        let before = [self.old, self.first].into_iter().flatten();
        let before = before
            .filter(|entry| entry.what != What::Metadata)
            .map(|entry| entry.id);
        let known: Vec<Id> = before.chain(elsewhere).collect();
        if known.is_empty() {
            return Ok(Content::Large);
        }
        let mut digest = Digest::of(self.scan.format, ObjectKind::Blob, size);
        let mut buffer = vec![0; 1 << 18];
        let mut left = size;
        while left > 0 {
            let read = file.read(&mut buffer).map_err(trouble)?;
            if read == 0 || read as u64 > left {
                return Ok(Content::Changing);
            }
            digest.add(buffer.get(..read).unwrap_or_default());
            self.scan.bound.check_read(read as u64)?;
            left -= read as u64;
        }
        let id = digest.finish()?;
        Ok(match known.contains(&id) {
            true => Content::Known(id),
            false => Content::Large,
        })
    }

    fn link(&self) -> Result<Option<Made>, String> {
        let stat = FileStat::of(self.stat);
        if let Some(old) = self.old
            && old.stat == stat
            && old.what == What::Link
        {
            return Ok(Some((What::Link, stat, old.id)));
        }
        let target = match rustix::fs::readlinkat(self.at, self.name.as_c_str(), Vec::new()) {
            Ok(target) => target,
            Err(Errno::INVAL | Errno::NOENT) => return Ok(None),
            Err(error) => return Err(error.to_string()),
        };
        let seen = self
            .index
            .and_then(|index| index.seen(self.seen))
            .filter(|seen| seen.stored);
        let id = self
            .scan
            .content(&self.path(), target.as_bytes(), seen.map(|seen| seen.id))?;
        Ok(Some((What::Link, self.known_by(stat), id)))
    }
}

enum Content {
    Known(Id),
    Large,
    /// The size changed while the file was read.
    Changing,
}

/// Whether a file is as git saw it. If git recorded no fractions of a second, the file is read.
fn unchanged(seen: &SnapshotIndexEntry, what: What, now: &FileStat) -> bool {
    let short = |number: u64| number & u64::from(u32::MAX);
    seen.settled
        && seen.mode == what.mode()
        && (seen.stat.modified, seen.stat.changed) == (now.modified, now.changed)
        && (seen.stat.size, seen.stat.inode) == (short(now.size), short(now.inode))
}
