//! The state of a walk for a snapshot: its inputs, its limits, and what it stores.

use super::cache::{CachedDir, CachedEntry};
use super::ignored::{Counting, TrustedIgnoreFiles};
use super::index::GitIndex;
use super::object::{Digest, Id, ObjectFormat, ObjectKind};
use super::packer::{Encoder, Packer};
use super::private_contents::PrivateContents;
use super::snapshot_limits::SnapshotLimits;
use super::store::Store;
use crate::base::sync::lock;
use std::ops::Range;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, AtomicUsize};
use std::sync::{Arc, Mutex, MutexGuard};

/// Upper limit for the files and directories of a tree.
pub(super) const MOST_ENTRIES: usize = 2_000_000;
/// Upper limit in bytes for storing a file that git does not have; a larger one is identified by its metadata.
pub const MOST_FILE: u64 = 32 << 20;
/// Files larger than this many bytes are read by one thread at a time, and in parts of this size.
pub(super) const LARGE: u64 = 1 << 20;
/// Nanoseconds within which two changes of a file may get the same time; a file newer than that is read again.
pub(super) const TICK: i64 = 2_000_000_000;

/// The inputs of a walk.
pub(super) struct Scan<'a> {
    pub format: ObjectFormat,
    pub store: &'a Store,
    pub packer: Mutex<Packer>,
    /// What is kept apart; `None` where nothing is.
    pub private: Option<PrivateScan<'a>>,
    /// Encoders that no thread uses at the moment.
    pub encoders: Mutex<Vec<Encoder>>,
    pub index: Option<&'a GitIndex>,
    /// Paths that are never part of a snapshot, relative to the top of the repository.
    pub hidden: &'a [Vec<u8>],
    /// Path of the workspace relative to the top of the repository: empty, or ending in a slash.
    pub prefix: &'a str,
    pub ignore_files: Mutex<TrustedIgnoreFiles>,
    pub counting: Counting<'a>,
    /// This program's own directories, which count as ignored.
    pub own: &'a [Vec<u8>],
    pub bound: &'a SnapshotLimits,
    /// Nanoseconds since 1970.
    pub now: i64,
    /// The device on which the change time of a file shows every write.
    pub exact: Option<u64>,
    pub seen: AtomicUsize,
    /// Whether a second thread may be started.
    pub free: AtomicBool,
    /// Held while a large file is in memory, so that at most one is.
    pub large: Mutex<()>,
}

/// The contents that are kept apart, and their pack in progress.
pub(super) struct PrivateScan<'a> {
    pub contents: &'a PrivateContents,
    pub packer: Mutex<Packer>,
}

/// What is known about a directory from earlier.
#[derive(Clone, Default)]
pub(super) struct Before<'a> {
    /// Its state in the last snapshot.
    pub last: Option<&'a Arc<CachedDir>>,
    /// Its state in the first snapshot: what git tracked then stays part of snapshots, ignored or not.
    pub base: Option<&'a Arc<CachedDir>>,
    /// Its entries in the index.
    pub index: Range<usize>,
}

impl<'a> Before<'a> {
    /// The directory in the last and in the first snapshot, where it was part of them.
    pub fn dirs(&self) -> impl Iterator<Item = &'a Arc<CachedDir>> {
        [self.last, self.base].into_iter().flatten()
    }

    /// Whether a name was part of an earlier snapshot.
    pub fn knows(&self, name: &[u8]) -> bool {
        self.dirs()
            .any(|dir| dir.find(name, false).or_else(|| dir.find(name, true)).is_some())
    }

    /// The directory of this name in an earlier snapshot.
    pub fn known_dir(&self, name: &[u8]) -> Option<&'a CachedEntry> {
        self.dirs().find_map(|dir| dir.find(name, true))
    }

    /// Whether no earlier snapshot and no entry of the index has it.
    pub fn is_empty(&self) -> bool {
        self.last.is_none() && self.base.is_none() && self.index.is_empty()
    }
}

/// A directory to walk.
pub(super) struct WalkedDirectory<'a> {
    pub handle: OwnedFd,
    /// Relative to the top of the repository, with a trailing slash; empty for the top itself.
    pub path: Vec<u8>,
    pub before: Before<'a>,
    /// Whether an ignore rule matches it; then only known names count.
    pub ignored: bool,
    pub depth: usize,
}

/// An error message about a path.
pub(super) fn about(path: &[u8], why: impl std::fmt::Display) -> String {
    format!("{}: {why}", String::from_utf8_lossy(path))
}

impl Scan<'_> {
    fn encoders(&self) -> MutexGuard<'_, Vec<Encoder>> {
        lock(&self.encoders)
    }

    /// Stores an object, unless the store has it already, or it is `elsewhere`, that is, in the repository.
    ///
    /// # Errors
    /// The time for reading the tree is over, the content was crafted to have the same SHA-1 as another, or the pack
    /// cannot be written.
    pub fn object(&self, kind: ObjectKind, content: &[u8], elsewhere: Option<Id>) -> Result<Id, String> {
        self.stored(kind, content, elsewhere, None)
    }

    /// As [`Scan::object`], of the file or link at `path`: a private content is kept apart.
    ///
    /// # Errors
    /// As for [`Scan::object`].
    pub fn content(&self, path: &[u8], content: &[u8], elsewhere: Option<Id>) -> Result<Id, String> {
        self.stored(ObjectKind::Blob, content, elsewhere, Some(path))
    }

    fn stored(
        &self,
        kind: ObjectKind,
        content: &[u8],
        elsewhere: Option<Id>,
        path: Option<&[u8]>,
    ) -> Result<Id, String> {
        let mut digest = Digest::of(self.format, kind, content.len() as u64);
        for part in content.chunks(LARGE as usize) {
            digest.add(part);
            self.bound.check()?;
        }
        let id = digest.finish()?;
        let private = self.private.as_ref();
        let is_kept_apart = || private.is_some_and(|private| lock(&private.packer).contains(&id));
        if elsewhere == Some(id) || self.store.contains(&id) || lock(&self.packer).contains(&id) || is_kept_apart() {
            return Ok(id);
        }
        let packer = match (private, path) {
            (Some(private), Some(path)) if private.contents.holds(path, content) => &private.packer,
            _ => &self.packer,
        };
        if content.len() as u64 > LARGE {
            lock(packer).add(&id, kind, content)?;
        } else {
            let mut encoder = self.encoders().pop().unwrap_or_default();
            let object = encoder.packed(kind, content)?;
            self.encoders().push(encoder);
            lock(packer).append(&id, &object)?;
        }
        Ok(id)
    }
}
