//! Writes packs in git's format (gitformat-pack(5)).

use super::object::{Digest, Id, ObjectFormat, ObjectKind};
use super::pack::{INDEX_SIGNATURE, Pack, trouble, write_synced};
use crate::base::ids::hex;
use flate2::write::ZlibEncoder;
use flate2::{Compress, Compression, Crc, FlushCompress, Status};
use std::collections::HashMap;
use std::fs::File;
use std::io::{BufWriter, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{DirBuilderExt, FileExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

/// Upper limit in bytes for the compressed new contents of one snapshot.
const MOST_STORED: u64 = 16 << 30;

/// Numbers the unfinished packs.
static NEXT: AtomicU64 = AtomicU64::new(0);

const SIGNATURE: &[u8] = b"PACK\0\0\0\x02";

/// Larger objects are compressed into the file directly, without a copy in memory.
const MOST_COPIED: usize = 1 << 20;
/// The least space in bytes for compressed bytes in one step.
const LEAST_SPACE: usize = 1 << 10;

/// A pack in progress. Without objects it leaves no file.
pub(super) struct Packer {
    dir: PathBuf,
    format: ObjectFormat,
    /// Whether the directory is made for the first object.
    makes_directory: bool,
    open: Option<(PathBuf, BufWriter<File>)>,
    at: u64,
    bytes: u64,
    made: HashMap<Id, (u64, u32)>,
    encoder: Encoder,
}

/// An object in the format of a pack.
pub(super) struct Packed(Vec<u8>);

/// Compresses one object after the other. The state of a compressor takes about 370 KB: if each object had its own, gaps of
/// that size would remain among what the walk keeps, and with many objects they would double the memory of this program.
#[derive(Default)]
pub(super) struct Encoder {
    blobs: Option<Compress>,
    others: Option<Compress>,
}

impl Encoder {
    /// Compresses an object.
    ///
    /// # Errors
    /// The compression was not finished.
    pub fn packed(&mut self, kind: ObjectKind, content: &[u8]) -> Result<Packed, String> {
        let slot = match kind {
            ObjectKind::Blob => &mut self.blobs,
            _ => &mut self.others,
        };
        let compress = slot.get_or_insert_with(|| Compress::new(level(kind), true));
        compress.reset();
        let mut bytes = header(kind, content.len() as u64);
        loop {
            let rest = usize::try_from(compress.total_in())
                .ok()
                .and_then(|done| content.get(done..))
                .unwrap_or_default();
            bytes.reserve(rest.len().max(LEAST_SPACE));
            match compress.compress_vec(rest, &mut bytes, FlushCompress::Finish) {
                Ok(Status::StreamEnd) => return Ok(Packed(bytes)),
                Ok(Status::Ok) => {}
                Ok(Status::BufError) => return Err("an object cannot be compressed".to_owned()),
                Err(error) => return Err(error.to_string()),
            }
        }
    }
}

/// Trees consist mostly of ids, which do not compress.
fn level(kind: ObjectKind) -> Compression {
    match kind {
        ObjectKind::Blob => Compression::fast(),
        _ => Compression::none(),
    }
}

fn header(kind: ObjectKind, size: u64) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut byte = (kind as u8) << 4 | (size & 15) as u8;
    let mut rest = size >> 4;
    while rest > 0 {
        bytes.push(byte | 128);
        byte = (rest & 127) as u8;
        rest >>= 7;
    }
    bytes.push(byte);
    bytes
}

/// Counts and hashes the bytes that are written.
struct Counted<'a> {
    to: &'a mut BufWriter<File>,
    sum: Crc,
    bytes: u64,
}

impl Write for Counted<'_> {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.to.write_all(bytes)?;
        self.sum.update(bytes);
        self.bytes += bytes.len() as u64;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

impl Packer {
    /// Starts a pack in the directory `dir`; nothing is written before the first object.
    pub fn new(dir: PathBuf, format: ObjectFormat) -> Self {
        Self {
            dir,
            format,
            makes_directory: false,
            open: None,
            at: 0,
            bytes: 0,
            made: HashMap::new(),
            encoder: Encoder::default(),
        }
    }

    /// Makes the directory for the first object, for this user only.
    pub fn making_directory(mut self) -> Self {
        self.makes_directory = true;
        self
    }

    /// Whether the object was added.
    pub fn contains(&self, id: &Id) -> bool {
        self.made.contains_key(id)
    }

    fn writer(&mut self) -> Result<&mut BufWriter<File>, String> {
        if self.open.is_none() {
            if self.makes_directory {
                let mut builder = std::fs::DirBuilder::new();
                let made = builder.recursive(true).mode(0o700).create(&self.dir);
                made.map_err(trouble(&self.dir))?;
            }
            let number = NEXT.fetch_add(1, Ordering::Relaxed);
            let path = self.dir.join(format!(".making-{}-{number}", std::process::id()));
            let file = File::options()
                .read(true)
                .write(true)
                .create(true)
                .truncate(true)
                .open(&path);
            let mut file = BufWriter::with_capacity(1 << 16, file.map_err(trouble(&path))?);
            // The number of objects is written at the end.
            file.write_all(SIGNATURE)
                .and_then(|()| file.write_all(&[0; 4]))
                .map_err(trouble(&path))?;
            self.at = 12;
            self.open = Some((path, file));
        }
        match &mut self.open {
            Some((_, file)) => Ok(file),
            None => Err("no pack".to_owned()),
        }
    }

    /// Adds an object from [`Encoder::packed`].
    ///
    /// # Errors
    /// The pack cannot be created or written, or it has become larger than a store may be.
    pub fn append(&mut self, id: &Id, object: &Packed) -> Result<(), String> {
        if self.contains(id) {
            return Ok(());
        }
        let mut sum = Crc::new();
        sum.update(&object.0);
        self.writer()?.write_all(&object.0).map_err(|error| error.to_string())?;
        self.note(id, object.0.len() as u64, sum.sum())
    }

    /// Adds an object.
    ///
    /// # Errors
    /// As for [`Encoder::packed`] and [`Packer::append`].
    pub fn add(&mut self, id: &Id, kind: ObjectKind, content: &[u8]) -> Result<(), String> {
        if self.contains(id) {
            return Ok(());
        }
        if content.len() <= MOST_COPIED {
            let object = self.encoder.packed(kind, content)?;
            return self.append(id, &object);
        }
        let head = header(kind, content.len() as u64);
        let mut counted = Counted {
            to: self.writer()?,
            sum: Crc::new(),
            bytes: 0,
        };
        let written = counted.write_all(&head).and_then(|()| {
            let mut encoder = ZlibEncoder::new(&mut counted, level(kind));
            encoder.write_all(content)?;
            encoder.finish().map(|_| ())
        });
        let (bytes, sum) = (counted.bytes, counted.sum.sum());
        written.map_err(|error| error.to_string())?;
        self.note(id, bytes, sum)
    }

    fn note(&mut self, id: &Id, bytes: u64, sum: u32) -> Result<(), String> {
        self.made.insert(*id, (self.at, sum));
        self.at += bytes;
        self.bytes += bytes;
        match self.bytes > MOST_STORED {
            true => Err(format!(
                "more than {} GiB of the tree are not in git: add files that are not source code to .gitignore",
                MOST_STORED >> 30
            )),
            false => Ok(()),
        }
    }

    /// Completes the pack; `None` if it is empty.
    ///
    /// # Errors
    /// The pack or its index cannot be written; then the pack is removed.
    pub fn finish(mut self) -> Result<Option<Pack>, String> {
        let Some((path, file)) = self.open.take() else {
            return Ok(None);
        };
        let done = self.seal(&path, file);
        if done.is_err() {
            // A file without an index does not count as a pack.
            let _ = std::fs::remove_file(&path);
        }
        done.map(Some)
    }

    fn seal(&self, path: &Path, file: BufWriter<File>) -> Result<Pack, String> {
        let trouble = trouble(path);
        let count = u32::try_from(self.made.len()).map_err(|_| "too many objects for a pack".to_owned())?;
        let mut file = file.into_inner().map_err(|error| trouble(error.into_error()))?;
        file.write_all_at(&count.to_be_bytes(), 8).map_err(&trouble)?;
        file.seek(SeekFrom::Start(0)).map_err(&trouble)?;
        let mut digest = Digest::new(self.format);
        let mut buffer = vec![0; 1 << 16];
        loop {
            let read = file.read(&mut buffer).map_err(&trouble)?;
            if read == 0 {
                break;
            }
            digest.add(buffer.get(..read).unwrap_or_default());
        }
        let sum = digest.finish()?;
        let sum = sum.get(..self.format.bytes()).unwrap_or_default();
        file.write_all(sum).map_err(&trouble)?;
        let mut made: Vec<(Id, u64, u32)> = self.made.iter().map(|(id, (at, crc))| (*id, *at, *crc)).collect();
        made.sort_unstable();
        let index = self.index(&made, sum)?;
        let name = hex(sum);
        let pack = self.dir.join(format!("pack-{name}.pack"));
        let temporary = path.with_extension("idx");
        // The journal that names these objects is synced. Packs are few: one for a measurement of the tree.
        file.sync_data().map_err(&trouble)?;
        write_synced(&temporary, &index).map_err(&trouble)?;
        std::fs::rename(path, &pack).map_err(&trouble)?;
        // Renamed last, because the presence of the index marks the pack as complete.
        std::fs::rename(temporary, pack.with_extension("idx")).map_err(&trouble)?;
        Ok(Pack {
            file,
            objects: made.into_iter().map(|(id, at, _)| (id, at)).collect(),
        })
    }

    fn index(&self, made: &[(Id, u64, u32)], sum: &[u8]) -> Result<Vec<u8>, String> {
        let mut index = Vec::with_capacity(1100 + made.len() * (self.format.bytes() + 8));
        index.extend_from_slice(INDEX_SIGNATURE);
        for first in 0..=255_u8 {
            let count = made.partition_point(|(id, ..)| id[0] <= first) as u32;
            index.extend_from_slice(&count.to_be_bytes());
        }
        for (id, ..) in made {
            index.extend_from_slice(id.get(..self.format.bytes()).unwrap_or_default());
        }
        for (.., crc) in made {
            index.extend_from_slice(&crc.to_be_bytes());
        }
        let mut far = Vec::new();
        for (_, at, _) in made {
            let near = u32::try_from(*at).ok().filter(|at| at >> 31 == 0).unwrap_or_else(|| {
                far.extend_from_slice(&at.to_be_bytes());
                0x8000_0000 | (far.len() / 8 - 1) as u32
            });
            index.extend_from_slice(&near.to_be_bytes());
        }
        index.extend_from_slice(&far);
        index.extend_from_slice(sum);
        let mut digest = Digest::new(self.format);
        digest.add(&index);
        index.extend_from_slice(digest.finish()?.get(..self.format.bytes()).unwrap_or_default());
        Ok(index)
    }
}

impl Drop for Packer {
    fn drop(&mut self) {
        if let Some((path, _)) = self.open.take() {
            // Nothing refers to an unfinished pack.
            let _ = std::fs::remove_file(path);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use flate2::read::ZlibDecoder;

    #[test]
    fn one_encoder_compresses_many_objects() {
        let mut encoder = Encoder::default();
        let mixed: Vec<u8> = (0..300_000_u32)
            .map(|n| (n.wrapping_mul(2_654_435_761) >> 13) as u8)
            .collect();
        for kind in [ObjectKind::Blob, ObjectKind::Tree, ObjectKind::Blob, ObjectKind::Tree] {
            let line = b"a line\n".repeat(40_000);
            for content in [
                b"".as_slice(),
                b"a".as_slice(),
                line.as_slice(),
                mixed.as_slice(),
                b"z".as_slice(),
            ] {
                let Packed(bytes) = encoder.packed(kind, content).unwrap();
                let head = header(kind, content.len() as u64);
                assert!(bytes.starts_with(&head));
                let mut read = Vec::new();
                let mut decoder = ZlibDecoder::new(&bytes[head.len()..]);
                decoder.read_to_end(&mut read).unwrap();
                assert_eq!(read, content);
                assert_eq!(decoder.total_in(), (bytes.len() - head.len()) as u64);
            }
        }
    }
}
