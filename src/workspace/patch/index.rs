//! Reads a repository's index: the tracked names, and the metadata of their files that git last saw. Treats it as
//! untrusted data.

use super::cache::FileStat;
use super::object::{Digest, EXECUTABLE, FILE, Id, LINK, METADATA, ObjectFormat};
use crate::base::path::PATH_MAX;
use std::collections::BTreeSet;
use std::fs::File;
use std::io::Read;
use std::path::Path;

/// Upper limit in bytes for an index.
const MOST_INDEX: u64 = 1 << 30;
/// All names of an index of version 4 may take this many times the bytes of the file, plus `NAMES_MORE`. That version stores
/// only the difference to the name before, so a small file could expand to gigabytes.
const NAMES_TIMES: usize = 8;
const NAMES_MORE: usize = 64 << 20;

const ASSUME_OR_EXTENDED: u16 = 0x4000;
const STAGE: u16 = 0x3000;
const INTENT_TO_ADD: u16 = 0x2000;

/// An index, its entries in git's order (by the bytes of the whole path).
#[derive(Debug)]
pub(super) struct GitIndex {
    raw: Vec<u8>,
    format: ObjectFormat,
    /// For each entry, its offset in `raw`, and the offset and length of its name: in `raw` or, for version 4, in
    /// `names`.
    at: Vec<(u32, u32, u16)>,
    names: Option<Vec<u8>>,
    /// Offset in `raw` of the extensions, which follow the entries.
    extensions: usize,
    /// Time of writing, in nanoseconds since 1970; a later change of a file within the same clock tick cannot be
    /// detected.
    written: i64,
    /// Whether the object ids of files with unchanged metadata may be used without reading the files.
    pub trusted: bool,
}

/// One file as git last saw it.
pub(super) struct SnapshotIndexEntry {
    pub id: Id,
    pub mode: u32,
    pub stat: FileStat,
    /// Whether its object was stored.
    pub stored: bool,
    /// Whether the file was older than the index when it was recorded.
    pub settled: bool,
}

fn word(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_be_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
}

/// Parses a number in git's variable-length encoding; returns it and its length in bytes.
fn offset(bytes: &[u8]) -> Option<(usize, usize)> {
    let mut used = 1;
    let mut byte = *bytes.first()?;
    let mut value = usize::from(byte & 127);
    while byte & 128 != 0 {
        byte = *bytes.get(used)?;
        used += 1;
        value = (value.checked_add(1)?.checked_mul(128)?).checked_add(usize::from(byte & 127))?;
    }
    Some((value, used))
}

impl GitIndex {
    /// Reads the index in `git_dir`; `None` if there is none. A split index is merged with its shared index, names
    /// only.
    ///
    /// # Errors
    /// The index or its shared index is no regular file, too large, not sorted, or has a format that this program
    /// cannot read. The error names the file.
    pub fn of(git_dir: &Path, format: ObjectFormat) -> Result<Option<Self>, String> {
        let Some(mut index) = Self::load(&git_dir.join("index"), format)? else {
            return Ok(None);
        };
        if let Some(shared) = index.shared() {
            let path = git_dir.join(format!("sharedindex.{shared}"));
            if let Some(base) = Self::load(&path, format)? {
                index = index.joined(&base);
            }
            index.trusted = false;
        }
        match index.is_sorted() {
            true => Ok(Some(index)),
            false => Err(format!("{}: the index is not sorted", git_dir.join("index").display())),
        }
    }

    fn load(path: &Path, format: ObjectFormat) -> Result<Option<Self>, String> {
        use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
        let failed = |error: std::io::Error| format!("{}: {error}", path.display());
        let flags = rustix::fs::OFlags::NONBLOCK.bits().cast_signed();
        let file = match File::options().read(true).custom_flags(flags).open(path) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
            file => file.map_err(failed)?,
        };
        let data = file.metadata().map_err(failed)?;
        let mut raw = Vec::new();
        if data.is_file() {
            file.take(MOST_INDEX + 1).read_to_end(&mut raw).map_err(failed)?;
        }
        if !data.is_file() || raw.len() as u64 > MOST_INDEX {
            return Err(format!(
                "{}: not a regular file of at most {MOST_INDEX} bytes",
                path.display()
            ));
        }
        let written = data
            .mtime()
            .saturating_mul(1_000_000_000)
            .saturating_add(data.mtime_nsec());
        let index = Self::parse(raw, format, written);
        index.map(Some).ok_or_else(|| {
            format!(
                "{}: this program cannot read the index, or it has paths of more than {PATH_MAX} bytes, or paths that are together \
                 far larger than the file: `git update-index --index-version 2` writes it in a form that it can",
                path.display()
            )
        })
    }

    /// Parses the bytes of an index file of version 2 to 4; `None` if they are not an index, or if its names are too long,
    /// each or together. `written`: the time of its last change, in nanoseconds since 1970.
    pub fn parse(raw: Vec<u8>, format: ObjectFormat, written: i64) -> Option<Self> {
        let version = word(&raw, 4)?;
        if !raw.starts_with(b"DIRC") || !(2..=4).contains(&version) || u32::try_from(raw.len()).is_err() {
            return None;
        }
        let count = word(&raw, 8)? as usize;
        let mut at = Vec::with_capacity(count.min(raw.len() / 40));
        let mut names = (version == 4).then(Vec::new);
        let mut here = 12;
        let mut before: (usize, usize) = (0, 0);
        for _ in 0..count {
            let flags_at = here + 40 + format.bytes();
            let flags = u16::from_be_bytes(raw.get(flags_at..flags_at + 2)?.try_into().ok()?);
            let extended = version > 2 && flags & ASSUME_OR_EXTENDED != 0;
            let name_at = flags_at + if extended { 4 } else { 2 };
            let rest = raw.get(name_at..)?;
            if let Some(names) = &mut names {
                let (strip, used) = offset(rest)?;
                let tail = rest.get(used..)?;
                let end = memchr::memchr(0, tail)?;
                let keep = before.1.checked_sub(strip)?;
                let start = names.len();
                let most = raw.len().saturating_mul(NAMES_TIMES).saturating_add(NAMES_MORE);
                if keep + end > PATH_MAX || start + keep + end > most {
                    return None;
                }
                names.extend_from_within(before.0..before.0 + keep);
                names.extend_from_slice(tail.get(..end)?);
                before = (start, names.len() - start);
                at.push((here as u32, u32::try_from(start).ok()?, u16::try_from(before.1).ok()?));
                here = name_at + used + end + 1;
            } else {
                let end = memchr::memchr(0, rest)?;
                at.push((here as u32, name_at as u32, u16::try_from(end).ok()?));
                here += (name_at + end - here + 8) & !7;
            }
        }
        Some(Self {
            raw,
            format,
            at,
            names,
            extensions: here,
            written,
            trusted: true,
        })
    }

    fn is_sorted(&self) -> bool {
        (1..self.len()).all(|i| self.name(i - 1) <= self.name(i))
    }

    /// Number of entries.
    pub fn len(&self) -> usize {
        self.at.len()
    }

    /// The full path of an entry.
    pub fn name(&self, i: usize) -> &[u8] {
        let Some((_, start, len)) = self.at.get(i).copied() else {
            return &[];
        };
        let names = self.names.as_deref().unwrap_or(&self.raw);
        names
            .get(start as usize..start as usize + usize::from(len))
            .unwrap_or_default()
    }

    /// The metadata of an entry; `None` for conflicts and sparse directories.
    pub fn seen(&self, i: usize) -> Option<SnapshotIndexEntry> {
        let (at, ..) = *self.at.get(i)?;
        let entry = self.raw.get(at as usize..)?;
        let flags_at = 40 + self.format.bytes();
        let flags = u16::from_be_bytes(entry.get(flags_at..flags_at + 2)?.try_into().ok()?);
        let extended = match flags & ASSUME_OR_EXTENDED {
            0 => 0,
            _ => u16::from_be_bytes(entry.get(flags_at + 2..flags_at + 4)?.try_into().ok()?),
        };
        let mode = word(entry, 24)?;
        if flags & STAGE != 0 || ![FILE, EXECUTABLE, LINK].contains(&mode) {
            return None;
        }
        let time = |at: usize| Some(i64::from(word(entry, at)?) * 1_000_000_000 + i64::from(word(entry, at + 4)?));
        let stat = FileStat {
            changed: time(0)?,
            modified: time(8)?,
            inode: u64::from(word(entry, 20)?),
            size: u64::from(word(entry, 36)?),
        };
        // As git does ("racily clean"): a file written in the same clock tick as the index may have changed since.
        let settled = stat.modified < self.written && stat.changed < self.written;
        Some(SnapshotIndexEntry {
            id: self.format.read(entry.get(40..)?)?,
            mode,
            stat,
            stored: extended & INTENT_TO_ADD == 0,
            settled,
        })
    }

    /// The paths of submodules; none of a split index.
    pub fn submodules(&self) -> BTreeSet<Vec<u8>> {
        let is_one = |i: &usize| {
            let at = self.at.get(*i).map_or(usize::MAX, |(at, ..)| *at as usize);
            at.checked_add(24).and_then(|at| word(&self.raw, at)) == Some(METADATA)
        };
        let found = (0..self.len()).filter(is_one);
        found.map(|i| self.name(i).to_vec()).collect()
    }

    /// Whether a `.gitattributes` file is tracked.
    pub fn has_attributes(&self) -> bool {
        let names = self.names.as_deref().unwrap_or(&self.raw);
        memchr::memmem::find(names, b".gitattributes").is_some()
    }

    /// The entries in `range` whose path begins with `prefix`.
    pub fn below(&self, prefix: &[u8], range: std::ops::Range<usize>) -> std::ops::Range<usize> {
        let first = |after: &dyn Fn(&[u8]) -> bool| {
            let (mut low, mut high) = (range.start, range.end);
            while low < high {
                let middle = low + (high - low) / 2;
                match after(self.name(middle)) {
                    true => high = middle,
                    false => low = middle + 1,
                }
            }
            low
        };
        let start = first(&|name| name >= prefix);
        let end = first(&|name| name >= prefix && !name.starts_with(prefix));
        start..end
    }

    /// The id of the shared index that a split index refers to.
    fn shared(&self) -> Option<String> {
        // A checksum follows the last extension.
        let end = self.raw.len().checked_sub(self.format.bytes())?;
        let mut at = self.extensions;
        while at + 8 <= end {
            if self.raw.get(at..at + 4)? == b"link" {
                let id = self.format.read(self.raw.get(at + 8..)?)?;
                return (id != [0; 32]).then(|| self.format.hex(&id));
            }
            let size = word(&self.raw, at + 4)? as usize;
            at = at.checked_add(8)?.checked_add(size)?;
        }
        None
    }

    /// The names of both, without metadata. An entry of a split index that replaces one of the shared index has no
    /// name.
    fn joined(&self, base: &Self) -> Self {
        let mut all: Vec<&[u8]> = (0..self.len()).map(|i| self.name(i)).collect();
        all.extend((0..base.len()).map(|i| base.name(i)));
        all.retain(|name| !name.is_empty());
        all.sort_unstable();
        all.dedup();
        let mut names = Vec::new();
        let mut at = Vec::new();
        for name in all {
            // An offset past the end means: no metadata.
            at.push((u32::MAX, names.len() as u32, name.len() as u16));
            names.extend_from_slice(name);
        }
        Self {
            raw: Vec::new(),
            format: self.format,
            at,
            names: Some(names),
            extensions: 0,
            written: 0,
            trusted: false,
        }
    }
}

/// An entry of a new index.
pub(super) struct NewIndexEntry {
    pub path: Vec<u8>,
    pub mode: u32,
    pub id: Id,
    /// `None` for a submodule: git compares nothing of its directory.
    pub stat: Option<rustix::fs::Stat>,
}

/// The bytes of an index (version 2) with these files, which are sorted by path.
pub(super) fn bytes_of(format: ObjectFormat, files: &[NewIndexEntry]) -> Result<Vec<u8>, String> {
    let mut bytes = b"DIRC\0\0\0\x02".to_vec();
    let count = u32::try_from(files.len()).map_err(|_| "too many files for an index".to_owned())?;
    bytes.extend_from_slice(&count.to_be_bytes());
    for file in files {
        let start = bytes.len();
        let mut words = file.stat.as_ref().map_or([0; 10], |stat| {
            [
                stat.st_ctime as u32,
                stat.st_ctime_nsec as u32,
                stat.st_mtime as u32,
                stat.st_mtime_nsec as u32,
                stat.st_dev as u32,
                stat.st_ino as u32,
                0,
                stat.st_uid,
                stat.st_gid,
                stat.st_size as u32,
            ]
        });
        words[6] = file.mode;
        for word in words {
            bytes.extend_from_slice(&word.to_be_bytes());
        }
        bytes.extend_from_slice(file.id.get(..format.bytes()).unwrap_or_default());
        bytes.extend_from_slice(&(file.path.len().min(0xfff) as u16).to_be_bytes());
        bytes.extend_from_slice(&file.path);
        let length = (bytes.len() - start + 8) & !7;
        bytes.resize(start + length, 0);
    }
    let mut digest = Digest::new(format);
    digest.add(&bytes);
    let sum = digest.finish()?;
    bytes.extend_from_slice(sum.get(..format.bytes()).unwrap_or_default());
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::super::object::{self, ObjectKind};
    use super::*;
    use proptest::prelude::*;

    const FORMATS: [ObjectFormat; 2] = [ObjectFormat::Sha1, ObjectFormat::Sha256];

    /// A valid index with some files.
    fn real(format: ObjectFormat, names: &[String]) -> Vec<u8> {
        let top = tempfile::tempdir().unwrap();
        std::fs::write(top.path().join("f"), "x").unwrap();
        let stat = rustix::fs::stat(top.path().join("f")).unwrap();
        let id = format.id_of(ObjectKind::Blob, b"x").unwrap();
        let files: Vec<NewIndexEntry> = names
            .iter()
            .map(|name| NewIndexEntry {
                path: name.clone().into_bytes(),
                mode: FILE,
                id,
                stat: Some(stat),
            })
            .collect();
        bytes_of(format, &files).unwrap()
    }

    /// Reads everything in an index; must not panic.
    fn look_at(index: &GitIndex) {
        for i in 0..index.len() + 1 {
            let (name, seen) = (index.name(i), index.seen(i));
            assert!(i < index.len() || name.is_empty() && seen.is_none());
        }
        let _ = index.submodules();
        let _ = index.has_attributes();
        let _ = index.shared();
    }

    #[test]
    fn what_is_written_is_read() {
        for format in FORMATS {
            let names = ["a".to_owned(), "b/c d".to_owned(), "z".repeat(5_000)];
            let index = GitIndex::parse(real(format, &names), format, i64::MAX).unwrap();
            let read: Vec<&[u8]> = (0..index.len()).map(|i| index.name(i)).collect();
            assert_eq!(read, names.each_ref().map(|name| name.as_bytes()));
            assert!((0..3).all(|i| index.seen(i).is_some_and(|seen| seen.mode == FILE)));
        }
    }

    /// Each name but the first is a few bytes of the file.
    #[test]
    fn names_of_version_4_do_not_grow_without_a_limit() {
        let index = |length: usize, count: u32| {
            let mut raw = [&b"DIRC\0\0\0\x04"[..], &count.to_be_bytes()].concat();
            for number in 0..count {
                let name = if number == 0 { "a".repeat(length) } else { String::new() };
                raw.extend([&[0; 60][..], &[0x0f, 0xff, 0], name.as_bytes(), &[0]].concat());
            }
            GitIndex::parse(raw, ObjectFormat::Sha1, 0)
        };
        assert_eq!(index(PATH_MAX, 2).map(|index| index.name(1).len()), Some(PATH_MAX));
        assert!(index(PATH_MAX + 1, 2).is_none());
        assert!(index(PATH_MAX, 30_000).is_none(), "117 MiB of names in 2 MB");
    }

    #[test]
    fn only_an_extension_names_a_shared_index() {
        for format in FORMATS {
            let mut raw = real(format, &["link".to_owned(), "z".to_owned()]);
            let read = |raw: &[u8]| GitIndex::parse(raw.to_vec(), format, 0).unwrap().shared();
            assert_eq!(read(&raw), None);
            let sum = raw.split_off(raw.len() - format.bytes());
            raw.extend_from_slice(b"TREE\0\0\0\x06link\0\0");
            assert_eq!(read(&[raw.as_slice(), &sum].concat()), None);
            let id = [7; 32];
            raw.extend_from_slice(b"link\0\0\0");
            raw.push(format.bytes() as u8);
            raw.extend_from_slice(&id[..format.bytes()]);
            let expected = "07".repeat(format.bytes());
            assert_eq!(read(&[raw.as_slice(), &sum].concat()), Some(expected));
        }
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_or_refused(
            bytes in prop::collection::vec(any::<u8>(), 0..400),
            version in 1_u8..6,
            count in prop_oneof![0_u32..6, any::<u32>()],
        ) {
            let mut headed = [b"DIRC\0\0\0".as_slice(), &[version], &count.to_be_bytes()].concat();
            headed.extend_from_slice(&bytes);
            for format in FORMATS {
                for raw in [bytes.clone(), headed.clone()] {
                    if let Some(index) = GitIndex::parse(raw, format, 0) {
                        look_at(&index);
                    }
                }
            }
        }

        #[test]
        fn a_damaged_index_is_read_or_refused(
            names in prop::collection::btree_set("[a-z/]{1,40}", 1..6),
            at in any::<prop::sample::Index>(),
            byte in any::<u8>(),
            cut in any::<prop::sample::Index>(),
        ) {
            let names: Vec<String> = names.into_iter().collect();
            for format in FORMATS {
                let mut raw = real(format, &names);
                let at = at.index(raw.len());
                raw[at] = byte;
                raw.truncate(cut.index(raw.len()) + 1);
                if let Some(index) = GitIndex::parse(raw, format, 0) {
                    look_at(&index);
                }
            }
        }

        #[test]
        fn any_bytes_are_a_tree_or_refused(bytes in prop::collection::vec(prop_oneof![Just(b' '), Just(0), b'0'..=b'9', any::<u8>()], 0..200)) {
            for format in FORMATS {
                if let Ok(entries) = object::entries(format, &bytes) {
                    prop_assert!(entries.iter().all(|entry| !entry.name.is_empty() && !entry.name.contains(&0)));
                }
            }
        }
    }
}
