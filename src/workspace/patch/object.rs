//! Git objects: ids, digests, and trees. No I/O.

use crate::base::ids::hex;
use sha1_checked::Digest as _;

/// Upper limit in bytes for one object in memory.
pub(super) const MOST_OBJECT: u64 = 512 << 20;

/// The object format of a repository.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ObjectFormat {
    Sha1,
    Sha256,
}

/// An object id; with `Sha1` the last 12 bytes are zero.
pub(super) type Id = [u8; 32];

/// The type of an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ObjectKind {
    Commit = 1,
    Tree = 2,
    Blob = 3,
}

impl ObjectKind {
    /// Its name in the header of an object.
    pub fn word(self) -> &'static str {
        match self {
            ObjectKind::Commit => "commit",
            ObjectKind::Tree => "tree",
            ObjectKind::Blob => "blob",
        }
    }
}

/// Modes of tree entries.
pub(super) const FILE: u32 = 0o100_644;
pub(super) const EXECUTABLE: u32 = 0o100_755;
pub(super) const LINK: u32 = 0o120_000;
pub(super) const DIRECTORY: u32 = 0o040_000;
/// In git, a submodule. In the trees of this store, where submodules are directories, an entry that is identified by
/// its metadata only: its id is that of a text that describes them.
pub(super) const METADATA: u32 = 0o160_000;

enum State {
    /// With collision detection, as in git: two contents with the same id would hide a change.
    Sha1(Box<sha1_checked::Sha1>),
    Sha256(Box<sha2::Sha256>),
}

/// A digest in progress.
pub(super) struct Digest(State);

impl Digest {
    /// A digest of no bytes yet.
    pub fn new(format: ObjectFormat) -> Self {
        Self(match format {
            ObjectFormat::Sha1 => State::Sha1(Box::new(sha1_checked::Sha1::new())),
            ObjectFormat::Sha256 => State::Sha256(Box::new(<sha2::Sha256 as sha2::Digest>::new())),
        })
    }

    /// Starts the digest of an object of this kind with `size` bytes.
    pub fn of(format: ObjectFormat, kind: ObjectKind, size: u64) -> Self {
        let mut digest = Self::new(format);
        digest.add(format!("{} {size}\0", kind.word()).as_bytes());
        digest
    }

    /// Adds these bytes.
    pub fn add(&mut self, bytes: &[u8]) {
        match &mut self.0 {
            State::Sha1(digest) => digest.update(bytes),
            State::Sha256(digest) => sha2::Digest::update(digest.as_mut(), bytes),
        }
    }

    /// The id of all that was added.
    ///
    /// # Errors
    /// With SHA-1, the content was crafted to have the same digest as another.
    pub fn finish(self) -> Result<Id, String> {
        let mut id = [0; 32];
        match self.0 {
            State::Sha1(digest) => {
                let found = digest.try_finalize();
                if found.has_collision() {
                    return Err("content that was crafted to have the same SHA-1 as other content".to_owned());
                }
                id[..20].copy_from_slice(found.hash());
            }
            State::Sha256(digest) => id.copy_from_slice(&sha2::Digest::finalize(*digest)),
        }
        Ok(id)
    }
}

impl ObjectFormat {
    /// Length of an id in bytes.
    pub fn bytes(self) -> usize {
        match self {
            ObjectFormat::Sha1 => 20,
            ObjectFormat::Sha256 => 32,
        }
    }

    /// The id in lower-case hex digits, 40 or 64.
    pub fn hex(self, id: &Id) -> String {
        hex(id.get(..self.bytes()).unwrap_or_default())
    }

    /// Reads an id from hex digits; `None` unless there are exactly as many as this format has.
    pub fn parse(self, hex: &str) -> Option<Id> {
        let hex = hex.as_bytes();
        if hex.len() != self.bytes() * 2 {
            return None;
        }
        let mut id = [0; 32];
        for (byte, pair) in id.iter_mut().zip(hex.chunks_exact(2)) {
            let digit = |c: u8| (c as char).to_digit(16).and_then(|digit| u8::try_from(digit).ok());
            *byte = digit(*pair.first()?)? << 4 | digit(*pair.get(1)?)?;
        }
        Some(id)
    }

    /// Reads an id from the start of `bytes`.
    pub fn read(self, bytes: &[u8]) -> Option<Id> {
        let mut id = [0; 32];
        id.get_mut(..self.bytes())?.copy_from_slice(bytes.get(..self.bytes())?);
        Some(id)
    }

    /// The id of an object of this kind and content.
    ///
    /// # Errors
    /// As for [`Digest::finish`].
    pub fn id_of(self, kind: ObjectKind, content: &[u8]) -> Result<Id, String> {
        let mut digest = Digest::of(self, kind, content.len() as u64);
        digest.add(content);
        digest.finish()
    }
}

/// One entry of a tree.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct TreeEntry {
    pub name: Vec<u8>,
    pub mode: u32,
    pub id: Id,
}

impl TreeEntry {
    /// Whether it is a directory; a submodule is none.
    pub fn is_dir(&self) -> bool {
        self.mode == DIRECTORY
    }
}

/// Git's order of tree entries: directories sort as if a slash followed their names.
pub(super) fn order(a: (&[u8], bool), b: (&[u8], bool)) -> std::cmp::Ordering {
    let (name, dir) = a;
    let (other, other_dir) = b;
    let common = name.len().min(other.len());
    let slash = |name: &[u8], dir: bool| name.get(common).copied().or(dir.then_some(b'/'));
    name[..common]
        .cmp(&other[..common])
        .then_with(|| slash(name, dir).cmp(&slash(other, other_dir)))
        .then_with(|| name.len().cmp(&other.len()))
}

/// Appends an entry to the bytes of a tree; entries must come in git's order.
pub(super) fn push_entry(tree: &mut Vec<u8>, format: ObjectFormat, name: &[u8], mode: u32, id: &Id) {
    tree.extend_from_slice(format!("{mode:o} ").as_bytes());
    tree.extend_from_slice(name);
    tree.push(0);
    tree.extend_from_slice(id.get(..format.bytes()).unwrap_or_default());
}

/// The mode as git reads it: early versions of git stored others, for example 100664.
fn canonical(mode: u32) -> u32 {
    match mode & 0o170_000 {
        0o100_000 if mode & 0o100 != 0 => EXECUTABLE,
        0o100_000 => FILE,
        DIRECTORY => DIRECTORY,
        _ => mode,
    }
}

/// Parses the entries of a tree.
pub(super) fn entries(format: ObjectFormat, mut bytes: &[u8]) -> Result<Vec<TreeEntry>, String> {
    let broken = || "a malformed tree object".to_owned();
    let mut found = Vec::new();
    while !bytes.is_empty() {
        let blank = memchr::memchr(b' ', bytes).ok_or_else(broken)?;
        let (mode, rest) = bytes.split_at(blank);
        let end = memchr::memchr(0, rest).ok_or_else(broken)?;
        let mode = str::from_utf8(mode)
            .ok()
            .and_then(|mode| u32::from_str_radix(mode, 8).ok());
        let name = rest.get(1..end).filter(|name| !name.is_empty()).ok_or_else(broken)?;
        let rest = rest.get(end + 1..).ok_or_else(broken)?;
        found.push(TreeEntry {
            name: name.to_vec(),
            mode: canonical(mode.ok_or_else(broken)?),
            id: format.read(rest).ok_or_else(broken)?,
        });
        bytes = rest.get(format.bytes()..).ok_or_else(broken)?;
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn historic_modes_are_read_as_git_reads_them() {
        let format = ObjectFormat::Sha1;
        let mut tree = Vec::new();
        let modes = [
            0o100_664, 0o100_775, 0o100_600, FILE, EXECUTABLE, 0o040_755, LINK, METADATA,
        ];
        for mode in modes {
            push_entry(&mut tree, format, b"name", mode, &[7; 32]);
        }
        let read: Vec<u32> = entries(format, &tree).unwrap().iter().map(|entry| entry.mode).collect();
        assert_eq!(
            read,
            [FILE, EXECUTABLE, FILE, FILE, EXECUTABLE, DIRECTORY, LINK, METADATA]
        );
    }
}
