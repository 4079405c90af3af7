//! A finished pack of the object store.

use super::object::Id;
use std::fs::File;
use std::io::Write;
use std::path::Path;

/// The first bytes of a pack's index, version 2.
pub(super) const INDEX_SIGNATURE: &[u8] = b"\xfftOc\0\0\0\x02";

/// A finished pack and the positions of its objects.
#[derive(Debug)]
pub(super) struct Pack {
    pub file: File,
    /// Object ids with their offsets, sorted by id.
    pub objects: Vec<(Id, u64)>,
}

/// Writes a file whose content is on the disk before it gets its final name: after a power loss, no name leads to an
/// incomplete file.
pub(super) fn write_synced(path: &Path, bytes: &[u8]) -> std::io::Result<()> {
    let mut file = File::create(path)?;
    file.write_all(bytes)?;
    file.sync_data()
}

/// Adds the file's path to an I/O error.
pub(super) fn trouble(path: &Path) -> impl Fn(std::io::Error) -> String + '_ {
    move |error| format!("{}: {error}", path.display())
}
