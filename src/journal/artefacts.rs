//! Files that a run writes beside its journal: blobs named by hash and outputs named by path, each written to a
//! temporary name and renamed.

use super::error::JournalError;
use crate::base::ids::BlobId;
use std::io::Write;
use std::path::{Path, PathBuf};

/// Stores bytes under their SHA-256 in `blobs/`; equal bytes are stored once.
pub fn keep_blob(dir: &Path, bytes: &[u8]) -> Result<BlobId, JournalError> {
    let id = BlobId::of(bytes);
    let path = blob_path(dir, &id);
    // A file with this name and different content is replaced.
    if read_blob(dir, &id).is_err() {
        replace(&path, bytes)?;
    }
    Ok(id)
}

/// The path of a blob.
pub fn blob_path(dir: &Path, id: &BlobId) -> PathBuf {
    dir.join("blobs").join(id.as_str())
}

/// The bytes of a blob; an error when they do not match the name's hash.
pub fn read_blob(dir: &Path, id: &BlobId) -> Result<Vec<u8>, JournalError> {
    let path = blob_path(dir, id);
    let bytes = std::fs::read(&path).map_err(|source| JournalError::Read {
        path: path.display().to_string(),
        source,
    })?;
    if BlobId::of(&bytes) == *id {
        Ok(bytes)
    } else {
        Err(JournalError::Damaged {
            path: path.display().to_string(),
            line: 1,
            why: "its bytes do not have the hash that names them".to_owned(),
        })
    }
}

/// Writes a file that the user named, atomically, and creates its directories. A device or a pipe is written to
/// directly.
pub fn write(path: &Path, bytes: &[u8]) -> Result<(), JournalError> {
    // A device such as /dev/stdout or a pipe must not be replaced by a rename.
    if std::fs::metadata(path).is_ok_and(|found| !found.is_file()) {
        return std::fs::write(path, bytes).map_err(|source| JournalError::Write {
            path: path.display().to_string(),
            source,
        });
    }
    replace(path, bytes)
}

/// Writes a file atomically, replacing whatever has its name, and creates its directories.
pub fn replace(path: &Path, bytes: &[u8]) -> Result<(), JournalError> {
    let wrap = |source| JournalError::Write {
        path: path.display().to_string(),
        source,
    };
    let parent = match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    };
    std::fs::create_dir_all(parent).map_err(wrap)?;
    let mut draft = tempfile::NamedTempFile::new_in(parent).map_err(wrap)?;
    draft.write_all(bytes).map_err(wrap)?;
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o644);
    draft.as_file().set_permissions(mode).map_err(wrap)?;
    draft.persist(path).map_err(|error| wrap(error.error))?;
    Ok(())
}
