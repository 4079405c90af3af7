//! A finished pack of the object store.

use super::object::Id;
use std::fs::File;
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

/// Adds the file's path to an I/O error.
pub(super) fn trouble(path: &Path) -> impl Fn(std::io::Error) -> String + '_ {
    move |error| format!("{}: {error}", path.display())
}
