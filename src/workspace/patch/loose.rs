//! Reads loose objects, one file each, in which early versions of this program stored snapshots. Nothing writes them
//! any more.

use super::object::{Id, MOST_OBJECT, ObjectFormat, ObjectKind};
use flate2::read::ZlibDecoder;
use std::fs::File;
use std::io::{BufReader, Error, ErrorKind, Read};
use std::path::{Path, PathBuf};

/// Length limit of an object's header: kind, size and a zero byte.
const HEADER: usize = 32;

/// Whether an object directory holds any.
pub(super) fn any(objects: &Path) -> bool {
    let of_objects =
        |name: &std::ffi::OsStr| name.len() == 2 && name.as_encoded_bytes().iter().all(u8::is_ascii_hexdigit);
    let listed = std::fs::read_dir(objects).into_iter().flatten().flatten();
    listed.into_iter().any(|entry| of_objects(&entry.file_name()))
}

/// The file of an object.
pub(super) fn path(objects: &Path, format: ObjectFormat, id: &Id) -> PathBuf {
    let hex = format.hex(id);
    let (first, rest) = hex.split_at(2);
    objects.join(first).join(rest)
}

/// The content of the object in `file`.
pub(super) fn read(file: &Path, kind: ObjectKind) -> std::io::Result<Vec<u8>> {
    let broken = || Error::from(ErrorKind::InvalidData);
    let mut reader = BufReader::new(ZlibDecoder::new(BufReader::new(File::open(file)?)));
    let mut header = Vec::new();
    let mut byte = [0];
    loop {
        reader.read_exact(&mut byte)?;
        match byte[0] {
            0 => break,
            _ if header.len() == HEADER => return Err(broken()),
            next => header.push(next),
        }
    }
    let header = String::from_utf8(header).map_err(|_| broken())?;
    let (word, size) = header.split_once(' ').ok_or_else(broken)?;
    let size: u64 = size.parse().map_err(|_| broken())?;
    if word != kind.word() || size > MOST_OBJECT {
        return Err(broken());
    }
    let mut content = Vec::with_capacity(usize::try_from(size).map_err(|_| broken())?);
    reader.take(size + 1).read_to_end(&mut content)?;
    match content.len() as u64 == size {
        true => Ok(content),
        false => Err(broken()),
    }
}
