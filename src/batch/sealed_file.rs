//! The size and digest of a file of a batch directory, by which a truncated or altered copy of it is noticed.

use crate::base::ids::hex;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use std::fs::File;
use std::io::Read;
use std::path::Path;

/// A file as it was when its bundle was closed: its length in bytes and its SHA-256 digest as hexadecimal digits.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SealedFile {
    pub bytes: u64,
    pub sha256: String,
}

/// The size and SHA-256 digest of a file, read in chunks.
///
/// # Errors
/// The file cannot be read.
pub fn sealed_file(path: &Path) -> std::io::Result<SealedFile> {
    let mut file = File::open(path)?;
    let (mut digest, mut bytes, mut piece) = (Sha256::new(), 0, vec![0; 1 << 16]);
    loop {
        let read = file.read(&mut piece)?;
        if read == 0 {
            let sha256 = hex(&digest.finalize());
            return Ok(SealedFile { bytes, sha256 });
        }
        digest.update(piece.get(..read).unwrap_or_default());
        bytes += read as u64;
    }
}
