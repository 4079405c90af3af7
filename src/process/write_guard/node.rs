//! The recorded state of one entry: its kind, its metadata, and its content if that is kept.

use super::{at, object};
use rustix::fs::{FileType, Stat};
use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, Read, Seek, Write};
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::{Duration, SystemTime};

/// Bytes of content that are kept in memory; more goes to an anonymous file.
const IN_MEMORY: u64 = 32 << 20;
/// Upper limit in bytes for all kept contents. If reached: `limit:guard_bytes`.
pub(super) const MOST_BYTES: u64 = 512 << 20;
/// Bytes that are copied at once.
const COPY_PART: usize = 64 << 10;
/// File timestamps advance in ticks of the clock: within this time an entry can change without a new timestamp.
const CLOCK_TICK: Duration = Duration::from_millis(50);

/// One file, link or directory.
#[derive(Clone, Debug)]
pub(super) struct TreeNode {
    pub kind: NodeKind,
    pub fingerprint: Fingerprint,
    /// When it was recorded, or shortly before.
    taken: SystemTime,
    /// Extended attributes that a command could change, including ACLs. Empty for a link.
    pub attributes: at::Attributes,
    /// The end of a file of git's object store that is not a loose object: the digest of the content before it.
    trailer: Option<object::Trailer>,
}

#[derive(Clone, Debug)]
pub(super) enum NodeKind {
    File(StoredContent),
    Link(Vec<u8>),
    Dir,
    /// A FIFO, socket or device.
    Other,
}

/// Where the content of a file is kept. Cheap to clone: guards of commands that overlap share it.
#[derive(Clone, Debug)]
pub(super) enum StoredContent {
    Memory(Arc<[u8]>),
    /// An anonymous file, and offset and length in it.
    Spilled(Arc<File>, u64, u64),
    /// Known only by size, time and inode number: git objects, whose content can be checked without a copy and is kept
    /// once per run, and files that exceed a limit.
    NotHeld,
}

/// The metadata that changes when an entry is changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Fingerprint {
    pub inode: u64,
    device: u64,
    pub size: u64,
    pub modified: (i64, i64),
    changed: (i64, i64),
    pub mode: u32,
    pub owner: (u32, u32),
    pub links: u64,
}

impl Fingerprint {
    /// From what stat(2) returned.
    #[expect(
        clippy::unnecessary_cast,
        clippy::useless_conversion,
        reason = "the widths differ between machines"
    )]
    pub fn of(data: &Stat) -> Self {
        Self {
            inode: data.st_ino as u64,
            device: data.st_dev as u64,
            size: u64::try_from(data.st_size).unwrap_or(0),
            modified: (data.st_mtime as i64, data.st_mtime_nsec as i64),
            changed: (data.st_ctime as i64, data.st_ctime_nsec as i64),
            mode: data.st_mode,
            owner: (data.st_uid, data.st_gid),
            links: u64::from(data.st_nlink),
        }
    }

    /// Whether both are equal and are precise enough to rule out a change. `exact`: the device on which the change time
    /// shows every write.
    fn surely_is(&self, before: &Self, taken: SystemTime, exact: Option<u64>) -> bool {
        let whole = u64::try_from(before.changed.0).unwrap_or(0);
        let part = u32::try_from(before.changed.1).unwrap_or(0);
        let changed = SystemTime::UNIX_EPOCH + Duration::new(whole, part);
        let is_settled = taken.duration_since(changed).is_ok_and(|age| age > CLOCK_TICK);
        self == before && is_settled && exact == Some(before.device)
    }

    /// Whether it is the same file or directory.
    pub fn is_same_entry(&self, before: &Self) -> bool {
        (self.device, self.inode) == (before.device, before.inode)
    }

    /// Whether it is the same file with the same size and modification time.
    pub fn is_same_content(&self, before: &Self) -> bool {
        (self.inode, self.size, self.modified) == (before.inode, before.size, before.modified)
    }

    /// Whether mode and owner are equal.
    pub fn same_rights(&self, before: &Self) -> bool {
        (self.mode, self.owner) == (before.mode, before.owner)
    }
}

/// The contents that are kept.
#[derive(Debug, Default)]
pub(super) struct HeldContents {
    file: Option<Arc<File>>,
    spilled: u64,
    memory: u64,
    /// Whether some content was not kept because the limit was reached.
    pub full: bool,
    /// Bytes of git objects that were digested for comparing.
    checked: AtomicU64,
}

impl HeldContents {
    /// Keeps the content of a file of this size. `NotHeld` if it cannot be read or exceeds the limit.
    pub fn take(&mut self, file: &File, size: u64) -> StoredContent {
        if self.memory + self.spilled + size > MOST_BYTES {
            self.full = true;
            return StoredContent::NotHeld;
        }
        if self.memory + size <= IN_MEMORY {
            let mut bytes = Vec::new();
            // Reading one byte more reveals that the file has grown.
            if file.take(size + 1).read_to_end(&mut bytes).is_err() || bytes.len() as u64 != size {
                return StoredContent::NotHeld;
            }
            self.memory += size;
            return StoredContent::Memory(bytes.into());
        }
        self.spill(file, size).unwrap_or(StoredContent::NotHeld)
    }

    /// Whether a file of this size may be kept that the command may change: an eighth of the limit is for these, so that
    /// what it may not change is always kept.
    pub fn has_room(&self, size: u64) -> bool {
        self.memory + self.spilled + size <= MOST_BYTES / 8
    }

    fn spill(&mut self, from: &File, size: u64) -> io::Result<StoredContent> {
        if self.file.is_none() {
            self.file = Some(Arc::new(tempfile::tempfile()?));
        }
        let Some(to) = &self.file else {
            return Ok(StoredContent::NotHeld);
        };
        let copied = io::copy(&mut from.take(size + 1), &mut to.as_ref())?;
        let at = self.spilled;
        self.spilled += copied;
        Ok(match copied == size {
            true => StoredContent::Spilled(Arc::clone(to), at, size),
            false => StoredContent::NotHeld,
        })
    }
}

impl StoredContent {
    /// Whether a file contains exactly these bytes. `None` if they were not kept.
    ///
    /// # Errors
    /// The file or the kept bytes cannot be read.
    pub fn equals(&self, file: &mut File) -> Option<io::Result<bool>> {
        match self {
            Self::NotHeld => None,
            Self::Memory(bytes) => {
                let mut now = Vec::new();
                let read = file.take(bytes.len() as u64 + 1).read_to_end(&mut now);
                Some(read.map(|_| now[..] == bytes[..]))
            }
            Self::Spilled(held, at, size) => Some(Self::equals_spilled(held, (*at, *size), file)),
        }
    }

    fn equals_spilled(held: &File, (at, size): (u64, u64), file: &mut File) -> io::Result<bool> {
        let (mut now, mut then) = (vec![0; 64 << 10], vec![0; 64 << 10]);
        let mut done = 0;
        loop {
            let got = file.read(&mut now)?;
            if got == 0 {
                return Ok(done == size);
            }
            if done + got as u64 > size {
                return Ok(false);
            }
            held.read_exact_at(&mut then[..got], at + done)?;
            if now[..got] != then[..got] {
                return Ok(false);
            }
            done += got as u64;
        }
    }

    /// Writes the bytes that were kept.
    ///
    /// # Errors
    /// `Unsupported` if the bytes were not kept; otherwise the error of reading them or of writing `to`.
    pub fn write(&self, to: &mut File) -> io::Result<()> {
        match self {
            Self::NotHeld => Err(io::ErrorKind::Unsupported.into()),
            Self::Memory(bytes) => to.write_all(bytes),
            Self::Spilled(held, at, size) => copy_range(held, (*at, *size), to),
        }
    }
}

/// Copies bytes of a file, given their offset and number.
pub(super) fn copy_range(from: &File, (offset, size): (u64, u64), to: &mut File) -> io::Result<()> {
    let mut buffer = vec![0; usize::try_from(size).unwrap_or(COPY_PART).min(COPY_PART)];
    let mut done = 0;
    while done < size {
        let now = usize::try_from(size - done).unwrap_or(COPY_PART).min(COPY_PART);
        from.read_exact_at(&mut buffer[..now], offset + done)?;
        to.write_all(&buffer[..now])?;
        done += now as u64;
    }
    Ok(())
}

impl TreeNode {
    /// Records the entry at `path`, including its content if `whole` is set and it is no git object.
    ///
    /// # Errors
    /// The entry or one of its parent directories is missing or cannot be opened, or its attributes cannot be read. A
    /// content that cannot be opened or read is not kept, and that is no error.
    pub fn take(root: &OwnedFd, path: &Path, held: &mut HeldContents, whole: bool) -> rustix::io::Result<Self> {
        if path.as_os_str().is_empty() {
            return Self::take_in(root, OsStr::new("."), path, held, whole);
        }
        let (dir, name) = at::parent(root, path)?;
        Self::take_in(&dir, name, path, held, whole)
    }

    /// As [`TreeNode::take`], where the directory of the entry is open.
    ///
    /// # Errors
    /// As for [`TreeNode::take`].
    pub fn take_in(
        dir: &OwnedFd,
        name: &OsStr,
        path: &Path,
        held: &mut HeldContents,
        whole: bool,
    ) -> rustix::io::Result<Self> {
        let entry = Path::new(name);
        let taken = SystemTime::now();
        let data = at::stat(dir, name)?;
        let mut open = None;
        let kind = match FileType::from_raw_mode(data.st_mode) {
            FileType::Directory => NodeKind::Dir,
            FileType::Symlink => NodeKind::Link(at::link(dir, name)?),
            FileType::RegularFile => {
                if whole && !(is_object(path) && object::is_sealed(path)) {
                    open = at::file(dir, entry).ok();
                }
                let size = u64::try_from(data.st_size).unwrap_or(0);
                NodeKind::File(match &open {
                    Some(file) => held.take(file, size),
                    None => StoredContent::NotHeld,
                })
            }
            _ => NodeKind::Other,
        };
        let attributes = match (&kind, &open) {
            (NodeKind::File(_), Some(file)) => at::attributes_of_open(file)?,
            (NodeKind::File(_) | NodeKind::Dir, _) => at::attributes(&at::handle(dir, entry)?)?,
            (NodeKind::Link(_) | NodeKind::Other, _) => at::Attributes::new(),
        };
        held.memory += attributes
            .iter()
            .map(|(name, value)| (name.len() + value.len()) as u64)
            .sum::<u64>();
        let fingerprint = Fingerprint::of(&data);
        let trailed = matches!(kind, NodeKind::File(StoredContent::NotHeld)) && is_object(path);
        Ok(Self {
            kind,
            fingerprint,
            taken,
            attributes,
            trailer: trailed.then(|| object::trailer(dir, path, fingerprint.size)).flatten(),
        })
    }

    /// Whether the metadata suffices to know that the entry is unchanged. `exact`: the device on which the change time shows
    /// every write.
    pub fn is_surely(&self, now: &Fingerprint, exact: Option<u64>) -> bool {
        now.surely_is(&self.fingerprint, self.taken, exact)
    }

    /// Whether it is an object of git whose content is not held here, but can be checked.
    pub fn is_sealed_object(&self, path: &Path) -> bool {
        matches!(self.kind, NodeKind::File(StoredContent::NotHeld)) && is_object(path) && object::is_sealed(path)
    }

    /// Whether `file` has the content that the name of this object or its earlier trailer says.
    ///
    /// # Errors
    /// The file has no position that can be set, or cannot be opened a second time. A content that cannot be read is
    /// `false`.
    pub fn is_content(&self, path: &Path, file: &mut File, held: &HeldContents) -> io::Result<bool> {
        file.rewind()?;
        Ok(object::is_content(file.try_clone()?, path, self.trailer, &held.checked))
    }

    /// Whether the attributes are unchanged. Attributes that cannot be read count as changed.
    fn has_same_attributes(&self, root: &OwnedFd, path: &Path) -> bool {
        match self.kind {
            NodeKind::File(_) | NodeKind::Dir => at::handle(root, path)
                .and_then(|handle| at::attributes(&handle))
                .is_ok_and(|now| now == self.attributes),
            NodeKind::Link(_) | NodeKind::Other => true,
        }
    }

    /// Whether the entry is unchanged. A new modification time with the same content does not count as a change, nor
    /// does a further hard link of a file whose content is kept or known by its name.
    pub fn is_unchanged(&self, root: &OwnedFd, path: &Path, held: &HeldContents, exact: Option<u64>) -> bool {
        let Ok(data) = at::stat_below(root, path) else {
            return false;
        };
        let now = Fingerprint::of(&data);
        if self.is_surely(&now, exact) {
            return true;
        }
        if !now.same_rights(&self.fingerprint) || !self.has_same_attributes(root, path) {
            return false;
        }
        match &self.kind {
            NodeKind::Dir => true,
            NodeKind::Link(target) => {
                let link = at::parent(root, path).and_then(|(dir, name)| at::link(&dir, name));
                link.is_ok_and(|now| now == *target)
            }
            NodeKind::File(StoredContent::NotHeld) => {
                // A process can set the modification time, but not the change time. Where that does not show every write,
                // it still counts for what is no object, since there is nothing else to compare.
                let is_object = is_object(path);
                let shows = exact == Some(self.fingerprint.device) || !is_object;
                let untouched =
                    shows && (now.modified, now.changed) == (self.fingerprint.modified, self.fingerprint.changed);
                // A new hard link updates the change time too. Git updates the times of an object instead of writing it
                // again, and a local clone shares its file. Then the content decides.
                let linked = now.modified == self.fingerprint.modified && now.links != self.fingerprint.links;
                let by_content = is_object && (linked || self.fingerprint.links > 1 || !shows);
                (now.inode, now.size) == (self.fingerprint.inode, self.fingerprint.size)
                    && (untouched || by_content && object::is_intact(root, path, self.trailer, &held.checked))
            }
            NodeKind::File(content) => {
                now.size == self.fingerprint.size
                    && at::file(root, path)
                        .ok()
                        .and_then(|mut file| content.equals(&mut file))
                        .is_some_and(|same| same.unwrap_or(false))
            }
            NodeKind::Other => now.inode == self.fingerprint.inode,
        }
    }
}

/// Whether a path is in git's object store, which is immutable by name, and large.
pub(super) fn is_object(path: &Path) -> bool {
    let parts: Vec<&str> = path.iter().filter_map(|part| part.to_str()).collect();
    parts.windows(2).any(|pair| pair == [".git", "objects"]) && !parts.contains(&"info")
}
