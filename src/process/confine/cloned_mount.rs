//! A piece of the file system that a command sees: a mount cloned from the old root, or a new one.

use rustix::fs::{CWD, FileType, fstat};
use rustix::mount::{MoveMountFlags, OpenTreeFlags, move_mount, open_tree};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::Path;

/// The attributes of what a command may only read.
pub(super) const READ_ONLY: u64 = libc::MOUNT_ATTR_RDONLY | libc::MOUNT_ATTR_NOSUID | libc::MOUNT_ATTR_NODEV;
/// The attributes of what a command may write.
pub(super) const WRITABLE: u64 = libc::MOUNT_ATTR_NOSUID | libc::MOUNT_ATTR_NODEV;

/// A mount cloned from the old root.
pub(super) struct ClonedMount {
    pub tree: OwnedFd,
    pub dir: bool,
    pub attributes: u64,
}

impl ClonedMount {
    /// Clones a directory or file, if it exists.
    pub fn of(from: &Path, attributes: u64) -> Option<Self> {
        let flags = OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC | OpenTreeFlags::AT_RECURSIVE;
        let tree = open_tree(CWD, from, flags).ok()?;
        let dir = is_dir(&tree).ok()?;
        Some(Self { tree, dir, attributes })
    }

    /// Clones the directory or file of a handle.
    ///
    /// # Errors
    /// Those of the system calls.
    pub fn at(handle: &OwnedFd, attributes: u64) -> io::Result<Self> {
        let flags = OpenTreeFlags::OPEN_TREE_CLONE
            | OpenTreeFlags::OPEN_TREE_CLOEXEC
            | OpenTreeFlags::AT_RECURSIVE
            | OpenTreeFlags::AT_EMPTY_PATH;
        Ok(Self {
            tree: open_tree(handle, "", flags)?,
            dir: is_dir(handle)?,
            attributes,
        })
    }

    /// Attaches it at the file or directory of a handle: no path is resolved, so no process can redirect it.
    ///
    /// # Errors
    /// Those of the system calls.
    pub fn attach(&self, to: &OwnedFd) -> io::Result<()> {
        set_attributes(&self.tree, self.attributes, true)?;
        let flags = MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH | MoveMountFlags::MOVE_MOUNT_T_EMPTY_PATH;
        Ok(move_mount(&self.tree, "", to, "", flags)?)
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

fn is_dir(handle: &OwnedFd) -> io::Result<bool> {
    Ok(FileType::from_raw_mode(fstat(handle)?.st_mode).is_dir())
}

/// Adds attributes to a mount, and with `recursive` to the mounts below it.
///
/// # Errors
/// Those of the system call.
#[expect(unsafe_code, reason = "the crate for mounts lacks this call")]
pub(super) fn set_attributes(tree: &OwnedFd, attributes: u64, recursive: bool) -> io::Result<()> {
    #[repr(C)]
    struct MountAttr {
        set: u64,
        clear: u64,
        propagation: u64,
        user: u64,
    }
    let order = MountAttr {
        set: attributes,
        clear: 0,
        propagation: 0,
        user: 0,
    };
    let flags = libc::AT_EMPTY_PATH | if recursive { libc::AT_RECURSIVE } else { 0 };
    // SAFETY: the path is empty and ends in NUL; `order` has the size that is given and lives through the call.
    let done = unsafe {
        libc::syscall(
            libc::SYS_mount_setattr,
            tree.as_raw_fd(),
            c"".as_ptr(),
            flags,
            &raw const order,
            size_of::<MountAttr>(),
        )
    };
    if done < 0 {
        Err(io::Error::last_os_error())
    } else {
        Ok(())
    }
}
