//! The object store: packs in git's format, without deltas, one for each snapshot with new objects. Objects are
//! verified against their ids when read, so that an altered file is an error and never wrong content.

use super::loose;
use super::object::{Id, MOST_OBJECT, ObjectFormat, ObjectKind};
use super::pack::{INDEX_SIGNATURE, Pack, trouble};
use super::packer::Packer;
use flate2::read::ZlibDecoder;
use std::collections::BTreeSet;
use std::fs::File;
use std::io::{BufReader, Read, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

/// The file in the store that lists the ids of contents that are kept apart from it.
const PRIVATE: &str = "private";

/// The packs in one `objects/pack` directory, and those that are kept apart from it.
#[derive(Debug)]
pub(super) struct Store {
    dir: PathBuf,
    format: ObjectFormat,
    packs: Vec<Pack>,
    /// Whether the store has loose objects, from an early version that had no packs.
    loose: bool,
}

/// Whether a file was still being written when its process was killed: a pack gets its final name last.
fn is_unfinished(file: &Path) -> bool {
    let name = file.file_name().map(|name| name.as_encoded_bytes());
    name.is_some_and(|name| name.starts_with(b"."))
}

impl Store {
    /// Opens the packs in the git directory `git_dir`.
    ///
    /// # Errors
    /// The directory of the packs cannot be created or listed, or a pack or its index cannot be read.
    pub fn open(git_dir: &Path, format: ObjectFormat) -> Result<Self, String> {
        let dir = git_dir.join("objects/pack");
        let mut store = Self {
            dir,
            format,
            packs: Vec::new(),
            loose: false,
        };
        if !store.dir.exists() {
            std::fs::create_dir(&store.dir).map_err(trouble(&store.dir))?;
        }
        store.loose = loose::any(&git_dir.join("objects"));
        store.packs = packs_in(&store.dir, format)?;
        Ok(store)
    }

    /// Adds the contents that are kept apart, in the git directory `git_dir`, which need not exist.
    ///
    /// # Errors
    /// The directory of the packs cannot be listed, or a pack or its index cannot be read.
    pub fn add_private(&mut self, git_dir: &Path) -> Result<(), String> {
        let dir = git_dir.join("objects/pack");
        if dir.is_dir() {
            self.packs.extend(packs_in(&dir, self.format)?);
        }
        Ok(())
    }

    /// Sets the directory that `git_dir` was moved to; open packs stay open.
    pub fn moved_to(&mut self, git_dir: &Path) {
        self.dir = git_dir.join("objects/pack");
    }

    /// Whether the object is in this store.
    pub fn contains(&self, id: &Id) -> bool {
        self.find(id).is_some() || self.loose_file(id).is_some()
    }

    fn find(&self, id: &Id) -> Option<(&File, u64)> {
        self.packs.iter().rev().find_map(|pack| {
            let at = pack.objects.binary_search_by(|(other, _)| other.cmp(id)).ok()?;
            Some((&pack.file, pack.objects.get(at)?.1))
        })
    }

    fn loose_file(&self, id: &Id) -> Option<PathBuf> {
        let objects = self.dir.parent().filter(|_| self.loose)?;
        Some(loose::path(objects, self.format, id)).filter(|file| file.is_file())
    }

    /// The content of an object; `None` if it is not in this store.
    ///
    /// # Errors
    /// The object cannot be read, is of another kind, or does not have the content of its id.
    pub fn read(&self, id: &Id, kind: ObjectKind) -> Result<Option<Vec<u8>>, String> {
        let content = match (self.find(id), self.loose_file(id)) {
            (Some((file, at)), _) => read_at(file, at, kind),
            (None, Some(file)) => loose::read(&file, kind),
            (None, None) => return Ok(None),
        };
        let name = self.format.hex(id);
        let broken = |why: &str| format!("object {name} of the run's own store: {why}");
        let content = content.map_err(|error| broken(&error.to_string()))?;
        match self.format.id_of(kind, &content)? == *id {
            true => Ok(Some(content)),
            false => Err(broken("it was altered")),
        }
    }

    /// Adds a tree or text to the pack in progress; returns its id. Writes nothing if the store has it already.
    ///
    /// # Errors
    /// The content was crafted to have the same SHA-1 as another, or the pack cannot be written.
    pub fn put(&self, packer: &mut Packer, kind: ObjectKind, content: &[u8]) -> Result<Id, String> {
        let id = self.format.id_of(kind, content)?;
        if !self.contains(&id) {
            packer.add(&id, kind, content)?;
        }
        Ok(id)
    }

    /// Starts a pack for new objects.
    pub fn packer(&self) -> Packer {
        Packer::new(self.dir.clone(), self.format)
    }

    /// Starts a pack for new contents that are kept apart, in the git directory `git_dir`.
    pub fn private_packer(&self, git_dir: &Path) -> Packer {
        Packer::new(git_dir.join("objects/pack"), self.format).making_directory()
    }

    /// Adds the contents of a finished pack that are kept apart, and lists them in the store.
    ///
    /// # Errors
    /// The pack, its index or the list cannot be written.
    pub fn keep_private(&mut self, packer: Packer) -> Result<(), String> {
        let Some(pack) = packer.finish()? else {
            return Ok(());
        };
        let list = self.private_list();
        let lines = pack.objects.iter().map(|(id, _)| self.format.hex(id) + "\n");
        let ids: String = lines.collect();
        let file = File::options().append(true).create(true).open(&list);
        file.and_then(|mut file| file.write_all(ids.as_bytes()))
            .map_err(trouble(&list))?;
        self.packs.push(pack);
        Ok(())
    }

    fn private_list(&self) -> PathBuf {
        self.dir.join("../..").join(PRIVATE)
    }

    /// The ids of all contents that were ever kept apart, also on another machine.
    pub fn private_ids(&self) -> BTreeSet<String> {
        let text = std::fs::read_to_string(self.private_list()).unwrap_or_default();
        text.lines().map(str::to_owned).collect()
    }

    /// Adds the objects of a finished pack.
    ///
    /// # Errors
    /// The pack or its index cannot be written.
    pub fn keep(&mut self, packer: Packer) -> Result<(), String> {
        self.packs.extend(packer.finish()?);
        Ok(())
    }
}

/// The finished packs in a directory.
fn packs_in(dir: &Path, format: ObjectFormat) -> Result<Vec<Pack>, String> {
    let listed = std::fs::read_dir(dir).map_err(trouble(dir))?;
    let mut names: Vec<PathBuf> = listed.flatten().map(|entry| entry.path()).collect();
    names.sort();
    let mut packs = Vec::new();
    for name in names
        .iter()
        .filter(|name| name.extension().is_some_and(|end| end == "idx") && !is_unfinished(name))
    {
        let bytes = std::fs::read(name).map_err(trouble(name))?;
        let objects =
            read_index(format, &bytes).ok_or_else(|| format!("{}: not the index of a pack", name.display()))?;
        let file = name.with_extension("pack");
        let file = File::open(&file).map_err(trouble(&file))?;
        packs.push(Pack { file, objects });
    }
    Ok(packs)
}

struct At<'a>(&'a File, u64);

impl Read for At<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        let read = self.0.read_at(buffer, self.1)?;
        self.1 += read as u64;
        Ok(read)
    }
}

fn read_at(file: &File, at: u64, kind: ObjectKind) -> std::io::Result<Vec<u8>> {
    let broken = || std::io::Error::from(std::io::ErrorKind::InvalidData);
    let mut reader = BufReader::new(At(file, at));
    let mut next = || -> std::io::Result<u8> {
        let mut byte = [0];
        reader.read_exact(&mut byte)?;
        Ok(byte[0])
    };
    let mut byte = next()?;
    let mut size = u64::from(byte & 15);
    let found = byte >> 4 & 7;
    let mut shift = 4;
    while byte & 128 != 0 {
        byte = next()?;
        size |= u64::from(byte & 127).checked_shl(shift).ok_or_else(broken)?;
        shift += 7;
    }
    if found != kind as u8 || size > MOST_OBJECT {
        return Err(broken());
    }
    let mut content = Vec::with_capacity(usize::try_from(size).map_err(|_| broken())?);
    ZlibDecoder::new(reader).take(size + 1).read_to_end(&mut content)?;
    if content.len() as u64 != size {
        return Err(broken());
    }
    Ok(content)
}

fn read_index(format: ObjectFormat, bytes: &[u8]) -> Option<Vec<(Id, u64)>> {
    let word = |at: usize| Some(u32::from_be_bytes(bytes.get(at..at + 4)?.try_into().ok()?));
    if !bytes.starts_with(INDEX_SIGNATURE) {
        return None;
    }
    let count = word(8 + 255 * 4)? as usize;
    let ids = 8 + 256 * 4;
    let offsets = ids + count.checked_mul(format.bytes() + 4)?;
    let far = offsets + count.checked_mul(4)?;
    let mut found = Vec::with_capacity(count.min(bytes.len()));
    for at in 0..count {
        let id = format.read(bytes.get(ids + at * format.bytes()..)?)?;
        let offset = word(offsets + at * 4)?;
        let offset = match offset >> 31 {
            0 => u64::from(offset),
            _ => {
                let at = far + (offset & 0x7fff_ffff) as usize * 8;
                u64::from_be_bytes(bytes.get(at..at + 8)?.try_into().ok()?)
            }
        };
        found.push((id, offset));
    }
    found.is_sorted().then_some(found)
}
