//! Checks files of git's object store against their own digests, so that no copies must be kept: a loose object is
//! named by its digest, and a pack, its index and similar files end with the digest of the content before it.

use super::at;
use crate::base::ids::{hex, is_object_id};
use flate2::read::ZlibDecoder;
use sha1_checked::{Digest as _, Sha1};
use sha2::{Digest as _, Sha256};
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

/// Bytes at the end of a file that hold its digest, SHA-256 or SHA-1.
const TRAILER: usize = 32;
/// Bytes of a SHA-1.
const SHA1: usize = 20;
/// Upper limit in bytes, after decompression, for the contents that are digested in one comparison: a rewritten object
/// can be small and still decompress to a very large content. Files beyond that count as changed.
const MOST_CHECKED: u64 = 8 << 30;

/// The last bytes of a file.
pub(super) type Trailer = [u8; TRAILER];

/// The end of a file of this size. `None` for a loose object, which needs none, and for a file that is shorter or
/// cannot be read.
pub(super) fn trailer(dir: &OwnedFd, path: &Path, size: u64) -> Option<Trailer> {
    if loose_id(path).is_some() {
        return None;
    }
    let offset = size.checked_sub(TRAILER as u64)?;
    let mut end = [0; TRAILER];
    let file = at::file(dir, Path::new(path.file_name()?)).ok()?;
    file.read_exact_at(&mut end, offset).ok()?;
    Some(end)
}

/// Whether a file has the content that its name or its earlier trailer says. `false` in case of doubt. `checked` counts
/// the bytes of one comparison.
pub(super) fn is_intact(root: &OwnedFd, path: &Path, trailer: Option<Trailer>, checked: &AtomicU64) -> bool {
    at::file(root, path).is_ok_and(|file| is_content(file, path, trailer, checked))
}

/// Whether an open file has the content that this path or the trailer says.
pub(super) fn is_content(file: File, path: &Path, trailer: Option<Trailer>, checked: &AtomicU64) -> bool {
    let intact = match (loose_id(path), trailer) {
        (Some(id), _) => is_named_by(file, &id, checked),
        (None, Some(trailer)) => is_sealed_by(file, &trailer, checked),
        (None, None) => Ok(false),
    };
    intact.unwrap_or(false)
}

/// Whether the content of a file of the store can be checked. Other files (`.promisor`, `.keep`, temporary files) have
/// no digest.
pub(super) fn is_sealed(path: &Path) -> bool {
    let kinds = ["pack", "idx", "rev", "bitmap", "mtimes"];
    let kind = path.extension().and_then(|kind| kind.to_str());
    let is_index = path.file_name().is_some_and(|name| name == "multi-pack-index");
    loose_id(path).is_some() || is_index || kind.is_some_and(|kind| kinds.contains(&kind))
}

/// The object id that the path of a loose object spells: `…/ab/cdef…`.
fn loose_id(path: &Path) -> Option<String> {
    let dir = path.parent()?.file_name()?.to_str()?;
    let id = format!("{dir}{}", path.file_name()?.to_str()?);
    (dir.len() == 2 && is_object_id(&id)).then_some(id)
}

fn is_named_by(file: File, id: &str, checked: &AtomicU64) -> io::Result<bool> {
    let mut content = ZlibDecoder::new(file);
    if id.len() == 2 * SHA1 {
        let mut digest = Sha1::new();
        each_part(&mut content, checked, |part| digest.update(part))?;
        let found = digest.try_finalize();
        return Ok(!found.has_collision() && hex(found.hash()) == id);
    }
    let mut digest = Sha256::new();
    each_part(&mut content, checked, |part| digest.update(part))?;
    Ok(hex(&digest.finalize()) == id)
}

/// Computes both digests, because a file does not say with which of them it ends.
fn is_sealed_by(mut file: File, trailer: &Trailer, checked: &AtomicU64) -> io::Result<bool> {
    let Some(length) = file.metadata()?.len().checked_sub(TRAILER as u64) else {
        return Ok(false);
    };
    let (mut short, mut long) = (Sha1::new(), Sha256::new());
    each_part(&mut file.by_ref().take(length), checked, |part| {
        short.update(part);
        long.update(part);
    })?;
    let mut end = [0; TRAILER];
    file.read_exact(&mut end)?;
    if end != *trailer {
        return Ok(false);
    }
    let (rest, sum) = end.split_at(TRAILER - SHA1);
    short.update(rest);
    let short = short.try_finalize();
    let is_short = !short.has_collision() && hex(short.hash()) == hex(sum);
    Ok(is_short || hex(&long.finalize()) == hex(&end))
}

fn each_part(from: &mut impl Read, checked: &AtomicU64, mut each: impl FnMut(&[u8])) -> io::Result<()> {
    let mut part = vec![0; 64 << 10];
    loop {
        let got = from.read(&mut part)?;
        if got == 0 {
            return Ok(());
        }
        if checked.fetch_add(got as u64, Ordering::Relaxed) > MOST_CHECKED {
            return Err(io::ErrorKind::FileTooLarge.into());
        }
        each(&part[..got]);
    }
}
