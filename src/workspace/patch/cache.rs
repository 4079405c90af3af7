//! The result of the last walk, held in memory, so that the next walk reads only changed files.

use super::object::{self, DIRECTORY, EXECUTABLE, FILE, Id, LINK, METADATA, ObjectFormat, TreeEntry, order};
use std::sync::Arc;

/// The metadata by which a change of a file is detected.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct FileStat {
    pub size: u64,
    /// Nanoseconds since 1970.
    pub modified: i64,
    /// The ctime, in nanoseconds since 1970. No program can set it.
    pub changed: i64,
    pub inode: u64,
}

impl FileStat {
    /// Differs from that of any file, so the file is read again.
    pub const UNKNOWN: Self = Self {
        size: u64::MAX,
        modified: 0,
        changed: 0,
        inode: 0,
    };

    /// From what stat(2) returned.
    pub fn of(stat: &rustix::fs::Stat) -> Self {
        let time = |seconds: i64, nanos: u64| {
            let nanos = i64::try_from(nanos).unwrap_or(0);
            seconds.saturating_mul(1_000_000_000).saturating_add(nanos)
        };
        Self {
            size: u64::try_from(stat.st_size).unwrap_or(0),
            modified: time(stat.st_mtime, stat.st_mtime_nsec),
            changed: time(stat.st_ctime, stat.st_ctime_nsec),
            // The inode number is unique only within one file system.
            inode: stat.st_ino ^ stat.st_dev.rotate_left(32),
        }
    }
}

/// Who may use an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct FilePermissions {
    /// The permissions, with setuid, setgid and sticky.
    pub mode: u32,
    pub uid: u32,
    pub gid: u32,
}

impl FilePermissions {
    /// From what stat(2) returned.
    pub fn of(stat: &rustix::fs::Stat) -> Self {
        Self {
            mode: stat.st_mode & 0o7777,
            uid: stat.st_uid,
            gid: stat.st_gid,
        }
    }
}

/// The type of an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum What {
    File,
    Executable,
    Link,
    Dir,
    /// Identified by its metadata only.
    Metadata,
}

impl What {
    /// The mode of its tree entry.
    pub fn mode(self) -> u32 {
        match self {
            What::File => FILE,
            What::Executable => EXECUTABLE,
            What::Link => LINK,
            What::Dir => DIRECTORY,
            What::Metadata => METADATA,
        }
    }

    fn of(mode: u32) -> Self {
        match mode {
            EXECUTABLE => What::Executable,
            LINK => What::Link,
            DIRECTORY => What::Dir,
            METADATA => What::Metadata,
            _ => What::File,
        }
    }
}

/// One name of a directory.
#[derive(Clone, Debug)]
pub(super) struct CachedEntry {
    /// Position of the name in the directory's buffer of names.
    name: (u32, u16),
    pub what: What,
    pub stat: FileStat,
    /// Only of files and directories; `None` for those that were read from a tree object.
    pub access: Option<FilePermissions>,
    pub id: Id,
    pub below: Option<Arc<CachedDir>>,
}

/// A directory with its entries in git's order. Unchanged directories are shared between snapshots.
#[derive(Debug, Default)]
pub(super) struct CachedDir {
    /// Object id of its tree; meaningless if it is empty.
    pub id: Id,
    names: Box<[u8]>,
    entries: Box<[CachedEntry]>,
}

/// An entry to be added to a directory.
pub(super) struct PendingEntry {
    pub name: Vec<u8>,
    pub what: What,
    pub stat: FileStat,
    pub access: Option<FilePermissions>,
    pub id: Id,
    pub below: Option<Arc<CachedDir>>,
}

impl CachedDir {
    /// The entries with their names, in the order of the tree object.
    pub fn entries(&self) -> impl Iterator<Item = (&[u8], &CachedEntry)> {
        self.entries.iter().map(|entry| (self.name(entry), entry))
    }

    fn name(&self, entry: &CachedEntry) -> &[u8] {
        let (start, len) = (entry.name.0 as usize, usize::from(entry.name.1));
        self.names.get(start..start + len).unwrap_or_default()
    }

    /// The entry with this name that is, or is not, a directory.
    pub fn find(&self, name: &[u8], dir: bool) -> Option<&CachedEntry> {
        let search = |entry: &CachedEntry| order((self.name(entry), entry.below.is_some()), (name, dir));
        let at = self.entries.binary_search_by(search).ok()?;
        self.entries.get(at)
    }

    /// Builds a directory from entries in git's order; also returns the bytes of its tree object.
    pub fn new(format: ObjectFormat, found: Vec<PendingEntry>) -> (Self, Vec<u8>) {
        let mut names = Vec::with_capacity(found.iter().map(|found| found.name.len()).sum());
        let mut entries = Vec::with_capacity(found.len());
        let mut tree = Vec::with_capacity(found.len() * 48);
        for found in found {
            object::push_entry(&mut tree, format, &found.name, found.what.mode(), &found.id);
            entries.push(CachedEntry {
                name: (names.len() as u32, found.name.len() as u16),
                what: found.what,
                stat: found.stat,
                access: found.access,
                id: found.id,
                below: found.below,
            });
            names.extend_from_slice(&found.name);
        }
        let dir = Self {
            id: [0; 32],
            names: names.into_boxed_slice(),
            entries: entries.into_boxed_slice(),
        };
        (dir, tree)
    }

    /// Whether both have the same tree.
    pub fn same_tree(&self, other: &Self) -> bool {
        let same = |(a, b): (&CachedEntry, &CachedEntry)| (a.name, a.what, a.id) == (b.name, b.what, b.id);
        self.entries.len() == other.entries.len()
            && self.names == other.names
            && self.entries.iter().zip(&other.entries).all(same)
    }

    /// Whether two directories with the same tree also have the same metadata, including times.
    pub fn same(&self, other: &Self) -> bool {
        self.entries.iter().zip(&other.entries).all(|(a, b)| {
            let below = match (&a.below, &b.below) {
                (Some(a), Some(b)) => Arc::ptr_eq(a, b),
                (None, None) => true,
                _ => false,
            };
            below && a.stat == b.stat && a.access == b.access
        })
    }

    /// Whether there is a file or link with this path (with slashes).
    pub fn has(&self, path: &[u8]) -> bool {
        match memchr::memchr(b'/', path) {
            None => self.find(path, false).is_some(),
            Some(slash) => {
                let (name, rest) = path.split_at(slash);
                let below = self.find(name, true).and_then(|entry| entry.below.as_ref());
                below.is_some_and(|below| below.has(rest.get(1..).unwrap_or_default()))
            }
        }
    }

    /// Who may use the file, link or directory with this path (with slashes), if known.
    pub fn access(&self, path: &[u8]) -> Option<FilePermissions> {
        match memchr::memchr(b'/', path) {
            None => self.find(path, false).or_else(|| self.find(path, true))?.access,
            Some(slash) => {
                let (name, rest) = path.split_at(slash);
                let below = self.find(name, true)?.below.as_ref()?;
                below.access(rest.get(1..).unwrap_or_default())
            }
        }
    }

    /// Builds a directory from a tree object: its names are known, but all files must be read.
    ///
    /// # Errors
    /// The error of `read`, or directories are nested more than `depth` deep.
    pub fn of_tree(
        read: &mut dyn FnMut(&Id) -> Result<Vec<TreeEntry>, String>,
        id: &Id,
        depth: usize,
    ) -> Result<Self, String> {
        let mut found = Vec::new();
        let deeper = depth.checked_sub(1).ok_or("a tree is nested too deeply")?;
        for entry in read(id)? {
            let below = match entry.is_dir() {
                true => Some(Arc::new(Self::of_tree(read, &entry.id, deeper)?)),
                false => None,
            };
            found.push(PendingEntry {
                what: What::of(entry.mode),
                name: entry.name,
                stat: FileStat::UNKNOWN,
                access: None,
                id: entry.id,
                below,
            });
        }
        // The tree's bytes are those that it was read from.
        let (mut dir, _) = Self::new(ObjectFormat::Sha256, found);
        dir.id = *id;
        Ok(dir)
    }
}
