//! What the last walk saw, so that the next one reads only what changed since. Held in memory; judges nothing.

use super::object::{self, DIRECTORY, EXECUTABLE, FILE, Format, Id, LINK, METADATA, TreeEntry, order};
use std::sync::Arc;

/// What changes when a file is changed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Stat {
    pub size: u64,
    /// Nanoseconds since 1970.
    pub modified: i64,
    /// Nanoseconds since 1970. No program can set it.
    pub changed: i64,
    pub inode: u64,
}

impl Stat {
    /// Equal to none that a file has: it must be read again.
    pub const UNKNOWN: Self = Self {
        size: u64::MAX,
        modified: 0,
        changed: 0,
        inode: 0,
    };

    pub fn of(stat: &rustix::fs::Stat) -> Self {
        let time = |seconds: i64, nanos: u64| {
            let nanos = i64::try_from(nanos).unwrap_or(0);
            seconds.saturating_mul(1_000_000_000).saturating_add(nanos)
        };
        Self {
            size: u64::try_from(stat.st_size).unwrap_or(0),
            modified: time(stat.st_mtime, stat.st_mtime_nsec),
            changed: time(stat.st_ctime, stat.st_ctime_nsec),
            // Another file system's file may have the same number.
            inode: stat.st_ino ^ stat.st_dev.rotate_left(32),
        }
    }
}

/// What an entry of a directory is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum What {
    File,
    Executable,
    Link,
    Dir,
    /// Known by its metadata only.
    Metadata,
}

impl What {
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
pub(super) struct Entry {
    /// Where the name lies among the directory's names.
    name: (u32, u16),
    pub what: What,
    pub stat: Stat,
    pub id: Id,
    pub below: Option<Arc<Dir>>,
}

/// A directory, its entries in git's order. Shared with the next state where nothing changed.
#[derive(Debug, Default)]
pub(super) struct Dir {
    /// The id of its tree; of no meaning when it is empty.
    pub id: Id,
    names: Box<[u8]>,
    entries: Box<[Entry]>,
}

/// An entry on its way into a directory.
pub(super) struct Found {
    pub name: Vec<u8>,
    pub what: What,
    pub stat: Stat,
    pub id: Id,
    pub below: Option<Arc<Dir>>,
}

impl Dir {
    pub fn entries(&self) -> impl Iterator<Item = (&[u8], &Entry)> {
        self.entries.iter().map(|entry| (self.name(entry), entry))
    }

    fn name(&self, entry: &Entry) -> &[u8] {
        let (start, len) = (entry.name.0 as usize, usize::from(entry.name.1));
        self.names.get(start..start + len).unwrap_or_default()
    }

    /// The entry of this name, a directory or not.
    pub fn find(&self, name: &[u8], dir: bool) -> Option<&Entry> {
        let search = |entry: &Entry| order((self.name(entry), entry.below.is_some()), (name, dir));
        let at = self.entries.binary_search_by(search).ok()?;
        self.entries.get(at)
    }

    /// A directory of these entries, which come in git's order, and the bytes of its tree.
    pub fn new(format: Format, found: Vec<Found>) -> (Self, Vec<u8>) {
        let mut names = Vec::with_capacity(found.iter().map(|found| found.name.len()).sum());
        let mut entries = Vec::with_capacity(found.len());
        let mut tree = Vec::with_capacity(found.len() * 48);
        for found in found {
            object::push_entry(&mut tree, format, &found.name, found.what.mode(), &found.id);
            entries.push(Entry {
                name: (names.len() as u32, found.name.len() as u16),
                what: found.what,
                stat: found.stat,
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
        let same = |(a, b): (&Entry, &Entry)| (a.name, a.what, a.id) == (b.name, b.what, b.id);
        self.entries.len() == other.entries.len()
            && self.names == other.names
            && self.entries.iter().zip(&other.entries).all(same)
    }

    /// Whether what was seen of two directories with the same tree is the same, times included.
    pub fn same(&self, other: &Self) -> bool {
        self.entries.iter().zip(&other.entries).all(|(a, b)| {
            let below = match (&a.below, &b.below) {
                (Some(a), Some(b)) => Arc::ptr_eq(a, b),
                (None, None) => true,
                _ => false,
            };
            below && a.stat == b.stat
        })
    }

    /// Whether a file or link has this path (with slashes).
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

    /// A directory as a tree tells it: names that are known, files that must all be read.
    pub fn of_tree(
        read: &mut dyn FnMut(&Id) -> Result<Vec<TreeEntry>, String>,
        id: &Id,
        depth: usize,
    ) -> Result<Self, String> {
        let mut found = Vec::new();
        let deeper = depth.checked_sub(1).ok_or("a tree nested too deep")?;
        for entry in read(id)? {
            let below = match entry.is_dir() {
                true => Some(Arc::new(Self::of_tree(read, &entry.id, deeper)?)),
                false => None,
            };
            found.push(Found {
                what: What::of(entry.mode),
                name: entry.name,
                stat: Stat::UNKNOWN,
                id: entry.id,
                below,
            });
        }
        // The bytes of the tree are the ones that it was read from.
        let (mut dir, _) = Self::new(Format::Sha256, found);
        dir.id = *id;
        Ok(dir)
    }
}
