//! The new root while it is built. Commands of the run could write parts of what is mounted in it (their home and
//! temporary directory, the workspace), so every place is found from the handle of the mount that contains it: no path
//! leads through a link that a command has put there, neither to another place of the view nor to the machine's own root.

use super::cloned_mount::{ClonedMount, READ_ONLY, WRITABLE};
use crate::process::write_guard::at;
use rustix::fs::{FileType, Mode, OFlags, Stat, fstat, mkdirat, openat};
use rustix::io::Errno;
use rustix::mount::{FsMountFlags, FsOpenFlags, MountAttrFlags, fsconfig_create, fsconfig_set_string, fsmount, fsopen};
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Write};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

/// How often a place is looked up that other processes replace meanwhile: programs of the machine in `/etc`, background
/// commands in the workspace.
const TRIES: usize = 20;

/// A directory or file of the workspace that becomes a mount of its own, at its place.
pub(super) struct TreePart {
    path: PathBuf,
    attributes: u64,
    /// Whether it is left out if it is no directory.
    only_dir: bool,
}

impl TreePart {
    /// `path`: in the workspace.
    pub fn new(path: &Path, attributes: u64) -> Self {
        Self {
            path: path.to_path_buf(),
            attributes,
            only_dir: false,
        }
    }

    /// Like [`TreePart::new`], but only for a directory.
    pub fn dir(path: &Path, attributes: u64) -> Self {
        Self {
            only_dir: true,
            ..Self::new(path, attributes)
        }
    }
}

/// How a symbolic link in the path of a covered place in the workspace is treated.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Links {
    /// It is followed within the new root, as a command would.
    Followed,
    /// It was created after the path was found to have no links: the command must not start.
    Refused,
}

/// What may be changed in a mount to create a mount point in it.
#[derive(Clone, Copy, PartialEq, Eq)]
enum MountPointScope {
    /// Private to this run: missing directories are created, and a link or file in the path is replaced.
    Private,
    /// The machine's: nothing can be created, and links are trusted.
    Machine,
    /// The workspace: nothing is created, and no link is followed.
    Workspace,
}

/// The new root and what has been attached in it so far.
pub(super) struct NewRoot {
    top: OwnedFd,
    /// The workspace in the old root.
    origin: OwnedFd,
    workspace: PathBuf,
    /// The mounts by their place.
    mounts: BTreeMap<PathBuf, (OwnedFd, MountPointScope)>,
}

impl NewRoot {
    /// Mounts an empty file system over the workspace, which becomes the new root.
    ///
    /// # Errors
    /// Those of the system calls.
    pub fn mount(workspace: &Path) -> io::Result<Self> {
        let origin = at::root(workspace)?;
        ClonedMount::made(empty_dir("16m")?, WRITABLE).attach(&origin)?;
        Ok(Self {
            top: at::root(workspace)?,
            origin,
            workspace: workspace.to_path_buf(),
            mounts: BTreeMap::new(),
        })
    }

    /// Attaches a piece at an absolute path. The mount that contains the path must have been attached before. A piece whose
    /// place is missing in a directory of the machine is left out.
    ///
    /// # Errors
    /// The place is in the workspace, and missing or reached through a link, or a system call fails.
    pub fn attach(&mut self, target: &Path, piece: ClonedMount) -> io::Result<()> {
        let (top, ground, inside) = self.nearest(target)?;
        let to = match ground {
            MountPointScope::Private => made(top, inside, piece.dir)?,
            MountPointScope::Workspace => match there(top, inside)? {
                Some((to, _)) => to,
                None => {
                    return Err(io::Error::other(
                        "it was removed from the workspace, or replaced by a link",
                    ));
                }
            },
            MountPointScope::Machine => match there(top, inside)? {
                Some((to, _)) => to,
                None => match at::handle_in_root(&self.top, target) {
                    Err(Errno::NOENT | Errno::NOTDIR) => return Ok(()),
                    to => to?,
                },
            },
        };
        piece.attach(&to)?;
        let ground = match piece.attributes & libc::MOUNT_ATTR_RDONLY {
            _ if target == self.workspace => MountPointScope::Workspace,
            // A layer of an isolated tree, whose upper directory is private.
            _ if target.starts_with(&self.workspace) => MountPointScope::Private,
            0 => MountPointScope::Private,
            _ => MountPointScope::Machine,
        };
        self.mounts.insert(target.to_path_buf(), (piece.tree, ground));
        Ok(())
    }

    /// Mounts a part of the workspace onto itself. A part that no longer exists, has become a link, or is hidden by a
    /// layer is left out.
    ///
    /// # Errors
    /// The part is replaced again and again, or a system call fails.
    pub fn attach_part(&self, part: &TreePart) -> io::Result<()> {
        let (_, ground, _) = self.nearest(&self.workspace.join(&part.path))?;
        if ground != MountPointScope::Workspace {
            return Ok(());
        }
        for _ in 0..TRIES {
            // The mount in the new root may be read-only; what is cloned from the old one has its own attributes.
            let Some((from, of)) = there(&self.origin, &part.path)? else {
                return Ok(());
            };
            let Some((to, now)) = there(self.workspace_top()?, &part.path)? else {
                return Ok(());
            };
            if part.only_dir && !at::is_dir(&of) {
                return Ok(());
            }
            if identity(&of) != identity(&now) {
                continue;
            }
            match ClonedMount::at(&from, part.attributes)?.attach(&to) {
                // Removed since it was opened.
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                attached => return attached,
            }
        }
        Err(io::Error::other("it is replaced again and again by another process"))
    }

    /// Creates a file with these contents in the root itself, where no rule lets a command open it.
    ///
    /// # Errors
    /// Those of the system calls.
    pub fn file(&self, name: &str, contents: &[u8]) -> io::Result<OwnedFd> {
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let mut file = File::from(openat(&self.top, name, flags, Mode::from_raw_mode(0o644))?);
        file.write_all(contents)?;
        Ok(file.into())
    }

    /// Covers a file with `empty`, or a directory with an empty one in which the `granted` places are mounted again. A
    /// missing entry needs no cover, and a link is not covered: its target is covered at its own path.
    ///
    /// # Errors
    /// The path had no links before and leads through one now, or a system call fails.
    pub fn hide(&mut self, path: &Path, links: Links, empty: &OwnedFd, granted: &[PathBuf]) -> io::Result<()> {
        let Some(to) = self.covered(path, links, empty, |kind| !kind.is_dir())? else {
            return Ok(());
        };
        let mut again = Vec::new();
        for place in granted {
            if let Some(handle) = self.found(place, Links::Followed)? {
                again.push((place, ClonedMount::at(&handle, WRITABLE)?));
            }
        }
        let cover = ClonedMount::made(empty_dir("1m")?, WRITABLE);
        cover.attach(&to)?;
        self.mounts
            .insert(path.to_path_buf(), (cover.tree, MountPointScope::Private));
        again
            .into_iter()
            .try_for_each(|(place, piece)| self.attach(place, piece))
    }

    /// Mounts `file` read-only over the regular file at a path, if there is one.
    ///
    /// # Errors
    /// The path leads through a link now, or a system call fails.
    pub fn show(&self, file: &OwnedFd, path: &Path) -> io::Result<()> {
        self.covered(path, Links::Refused, file, |kind| kind.is_file())
            .map(drop)
    }

    /// The device and inode number of the workspace.
    ///
    /// # Errors
    /// The workspace was not attached, or a system call fails.
    pub fn workspace_identity(&self) -> io::Result<(u64, u64)> {
        Ok(identity(&fstat(self.workspace_top()?)?))
    }

    fn workspace_top(&self) -> io::Result<&OwnedFd> {
        let workspace = self.mounts.get(&self.workspace).map(|(top, _)| top);
        workspace.ok_or_else(|| io::Error::other("the workspace is not mounted"))
    }

    /// Mounts `file` over the entry at a path, if its kind `fits`. Returns the handle of a directory that does not fit.
    fn covered(
        &self,
        path: &Path,
        links: Links,
        file: &OwnedFd,
        fits: impl Fn(FileType) -> bool,
    ) -> io::Result<Option<OwnedFd>> {
        for _ in 0..TRIES {
            let Some(to) = self.found(path, links)? else {
                return Ok(None);
            };
            let kind = kind(&to)?;
            if kind.is_symlink() || !fits(kind) {
                return Ok(kind.is_dir().then_some(to));
            }
            match ClonedMount::at(file, READ_ONLY)?.attach(&to) {
                // Removed since it was opened.
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                attached => return attached.map(|()| None),
            }
        }
        Err(io::Error::other("it is replaced again and again by another process"))
    }

    /// The handle of the entry at an absolute path, which is not followed if it is a link. `None` if it does not exist.
    fn found(&self, path: &Path, links: Links) -> io::Result<Option<OwnedFd>> {
        let (top, ground, inside) = self.nearest(path)?;
        let found = match at::handle(top, inside) {
            Err(Errno::LOOP) if links == Links::Followed || !path.starts_with(&self.workspace) => {
                at::handle_in_root(&self.top, path)
            }
            found => found,
        };
        match found {
            Err(Errno::NOENT | Errno::NOTDIR) => Ok(None),
            Err(Errno::LOOP) => Err(io::Error::other("a link was put on the way to it")),
            // Commands, which run as the same user, cannot open it either, nor change the modes of others' directories.
            Err(Errno::ACCESS) if ground == MountPointScope::Machine => Ok(None),
            found => Ok(Some(found?)),
        }
    }

    /// The nearest mount at or above an absolute path, and the rest of the path.
    fn nearest<'p>(&self, path: &'p Path) -> io::Result<(&OwnedFd, MountPointScope, &'p Path)> {
        let mounted = path.ancestors().find_map(|dir| Some((dir, self.mounts.get(dir)?)));
        let (dir, (top, ground)) = match mounted {
            Some((dir, (top, ground))) => (dir, (top, *ground)),
            None => (Path::new("/"), (&self.top, MountPointScope::Private)),
        };
        let inside = path.strip_prefix(dir).map_err(io::Error::other)?;
        Ok((top, ground, inside))
    }
}

/// The handle of a directory or empty file at `path` below `top`, which is created if it is missing or of another kind.
/// Commands that start at the same time may create the same entries in the private directories that they share.
fn made(top: &OwnedFd, path: &Path, is_dir: bool) -> io::Result<OwnedFd> {
    for _ in 1..TRIES {
        match made_once(top, path, is_dir) {
            Err(Errno::EXIST | Errno::ISDIR | Errno::NOENT) => {}
            made => return Ok(made?),
        }
    }
    Ok(made_once(top, path, is_dir)?)
}

/// Like [`made`], but fails with `EXIST`, `ISDIR` or `NOENT` if another process creates or removes the entry meanwhile.
fn made_once(top: &OwnedFd, path: &Path, is_dir: bool) -> Result<OwnedFd, Errno> {
    let (parent, name) = at::parent_made(top, path)?;
    let fits = |data| FileType::from_raw_mode(data).is_dir() == is_dir && !FileType::from_raw_mode(data).is_symlink();
    match at::stat(&parent, name) {
        Ok(data) if fits(data.st_mode) => {}
        Err(Errno::NOENT) => make(&parent, Path::new(name), is_dir)?,
        Ok(_) => {
            at::remove(&parent, name)?;
            make(&parent, Path::new(name), is_dir)?;
        }
        Err(error) => return Err(error),
    }
    at::handle(&parent, Path::new(name))
}

fn make(parent: &OwnedFd, name: &Path, is_dir: bool) -> Result<(), Errno> {
    if is_dir {
        return mkdirat(parent, name, Mode::from_raw_mode(0o755));
    }
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    openat(parent, name, flags, Mode::from_raw_mode(0o644))?;
    Ok(())
}

fn kind(handle: &OwnedFd) -> io::Result<FileType> {
    Ok(FileType::from_raw_mode(fstat(handle)?.st_mode))
}

/// A handle of the entry at `path` below `top`, and its status. `None` if it does not exist, or if it is a link or
/// reached through one.
fn there(top: &OwnedFd, path: &Path) -> io::Result<Option<(OwnedFd, Stat)>> {
    let handle = match at::handle(top, path) {
        Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => return Ok(None),
        handle => handle?,
    };
    let data = fstat(&handle)?;
    let is_link = FileType::from_raw_mode(data.st_mode).is_symlink();
    Ok((!is_link).then_some((handle, data)))
}

/// Device and inode number.
fn identity(data: &Stat) -> (u64, u64) {
    (data.st_dev, data.st_ino)
}

/// A mount of an empty directory that holds at most this many bytes, as `tmpfs` reads them.
fn empty_dir(size: &str) -> io::Result<OwnedFd> {
    let fs = fsopen("tmpfs", FsOpenFlags::FSOPEN_CLOEXEC)?;
    fsconfig_set_string(&fs, "mode", "755")?;
    fsconfig_set_string(&fs, "size", size)?;
    fsconfig_create(&fs)?;
    Ok(fsmount(&fs, FsMountFlags::FSMOUNT_CLOEXEC, MountAttrFlags::empty())?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::{Barrier, Mutex};

    #[test]
    fn places_are_made_by_several_commands_at_the_same_moment() {
        let dir = tempfile::tempdir().unwrap();
        let (start, failed) = (Barrier::new(4), Mutex::new(Vec::new()));
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    let top = at::root(dir.path()).unwrap();
                    for n in 0..200 {
                        start.wait();
                        let dir = made(&top, Path::new(&format!("{n}/above/place")), true);
                        let file = made(&top, Path::new(&format!("{n}/above/file")), false);
                        failed
                            .lock()
                            .unwrap()
                            .extend([dir.err(), file.err()].into_iter().flatten());
                    }
                });
            }
        });
        let failed = failed.into_inner().unwrap();
        assert!(failed.is_empty(), "{failed:?}");
    }
}
