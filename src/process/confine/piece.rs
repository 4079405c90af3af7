//! A piece of the file system that a command sees: a mount cloned from the old root, or a new one.

use rustix::fs::CWD;
use rustix::mount::{OpenTreeFlags, open_tree};
use std::os::fd::OwnedFd;
use std::path::Path;

/// The attributes of what a command may only read.
pub(super) const READ_ONLY: u64 = libc::MOUNT_ATTR_RDONLY | libc::MOUNT_ATTR_NOSUID | libc::MOUNT_ATTR_NODEV;
/// The attributes of what a command may write.
pub(super) const WRITABLE: u64 = libc::MOUNT_ATTR_NOSUID | libc::MOUNT_ATTR_NODEV;

/// A mount cloned from the old root.
pub(super) struct Piece {
    pub tree: OwnedFd,
    pub dir: bool,
    pub attributes: u64,
}

impl Piece {
    /// Clones a directory or file, if it exists.
    pub fn of(from: &Path, attributes: u64) -> Option<Self> {
        let flags = OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC | OpenTreeFlags::AT_RECURSIVE;
        let tree = open_tree(CWD, from, flags).ok()?;
        Some(Self {
            tree,
            dir: from.is_dir(),
            attributes,
        })
    }

    /// Wraps a new mount of a directory.
    pub fn made(tree: OwnedFd, attributes: u64) -> Self {
        Self {
            tree,
            dir: true,
            attributes,
        }
    }
}
