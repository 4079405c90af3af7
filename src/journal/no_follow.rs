//! Creates and checks directories component by component, without following symbolic links that the workspace contains.

pub use crate::process::own_path::settled;
use rustix::fs::{CWD, Mode, OFlags, mkdirat, openat};
use rustix::io::Errno;
use std::ffi::{OsStr, OsString};
use std::fs::{File, Metadata, OpenOptions};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Component, Path, PathBuf};

/// The most links that the kernel follows in one path.
const MOST_LINKS: usize = 40;

/// The first component of `path` inside `workspace` that is a symbolic link; `path` itself counts. Links above the
/// workspace belong to the machine, not to the tree.
pub fn link_inside(workspace: &Path, path: &Path) -> Option<PathBuf> {
    let root = std::fs::canonicalize(workspace).ok()?;
    let path = std::path::absolute(path).ok()?;
    let mut way = PathBuf::new();
    for part in path.components() {
        let inside = std::fs::canonicalize(&way).is_ok_and(|way| way.starts_with(&root));
        match part {
            // The component before `..` was checked; the kernel resolves `..` from there, too.
            Component::ParentDir => way = std::fs::canonicalize(&way).unwrap_or(way).join(".."),
            part => way.push(part),
        }
        if inside && std::fs::symlink_metadata(&way).is_ok_and(|data| data.is_symlink()) {
            return Some(way);
        }
    }
    None
}

/// The symbolic links through which a path leads, in the order in which the kernel follows them, each by the real path of
/// its directory: those of its directories, its last component, and those in what these lead to.
pub fn links_of(path: &Path) -> Vec<PathBuf> {
    let parts = |path: &Path| -> Vec<OsString> {
        let parts = path.components().rev();
        parts.map(|part| part.as_os_str().to_owned()).collect()
    };
    let mut left = std::path::absolute(path).map(|path| parts(&path)).unwrap_or_default();
    let (mut way, mut links) = (PathBuf::from("/"), Vec::new());
    while let Some(part) = left.pop() {
        if part == ".." {
            way.pop();
            continue;
        }
        // The root of an absolute path takes the place of the way.
        let next = way.join(&part);
        match std::fs::read_link(&next) {
            Ok(to) if links.len() < MOST_LINKS => {
                links.push(next);
                left.extend(parts(&to));
            }
            _ => way = next,
        }
    }
    links
}

/// Whether a path is in `workspace`, links above its last component resolved; the last one need not exist.
pub fn is_inside(workspace: &Path, path: &Path) -> bool {
    let Ok(root) = std::fs::canonicalize(workspace) else {
        return false;
    };
    std::path::absolute(path).is_ok_and(|path| path.parent().is_some_and(|parent| settled(parent).starts_with(&root)))
}

/// Creates a directory and its parents. Below `workspace` no link is followed, even if the tree changes at the same
/// time.
///
/// # Errors
/// Errors of the system; `ELOOP` or `ENOTDIR` for a link in the path.
pub fn make_dirs(workspace: &Path, dir: &Path) -> io::Result<()> {
    let root = std::fs::canonicalize(workspace)?;
    let (dir, asked) = (std::path::absolute(dir)?, std::path::absolute(workspace)?);
    let Ok(below) = dir.strip_prefix(&asked).or_else(|_| dir.strip_prefix(&root)) else {
        return std::fs::create_dir_all(&dir);
    };
    // No link is followed, so `..` can be resolved textually.
    let mut names = Vec::new();
    for part in below.components() {
        match part {
            Component::Normal(name) => names.push(name),
            Component::ParentDir if names.pop().is_none() => return std::fs::create_dir_all(&dir),
            _ => {}
        }
    }
    made_below(&root, names).map(drop)
}

/// Opens a directory by an absolute path without links, and creates what is missing of it.
///
/// # Errors
/// Errors of the system; `ELOOP` or `ENOTDIR` for a link in the path.
pub fn open_without_links(dir: &Path) -> io::Result<OwnedFd> {
    let mut names = Vec::new();
    for part in dir.components() {
        match part {
            Component::Normal(name) => names.push(name),
            // No link is followed, so it can be resolved textually.
            Component::ParentDir => drop(names.pop()),
            _ => {}
        }
    }
    made_below(Path::new("/"), names)
}

/// Opens the last of these directories, each in the one before it. A missing one is created, and no link is followed.
fn made_below(root: &Path, names: Vec<&OsStr>) -> io::Result<OwnedFd> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let mut at: OwnedFd = openat(CWD, root, flags, Mode::empty())?;
    let flags = flags | OFlags::NOFOLLOW;
    for name in names {
        at = match openat(&at, name, flags, Mode::empty()) {
            Err(Errno::NOENT) => {
                match mkdirat(&at, name, Mode::from_raw_mode(0o777)) {
                    Ok(()) | Err(Errno::EXIST) => {}
                    Err(error) => return Err(error.into()),
                }
                openat(&at, name, flags, Mode::empty())?
            }
            opened => opened?,
        };
    }
    Ok(at)
}

/// Writes a file that does not exist yet; an existing file stays, and a link is not followed.
///
/// # Errors
/// The file cannot be created or not be written to its end.
pub fn write_new(path: &Path, bytes: &[u8]) -> io::Result<()> {
    match std::fs::File::create_new(path) {
        Ok(mut file) => io::Write::write_all(&mut file, bytes),
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        Err(error) => Err(error),
    }
}

/// Opens a file of this program for reading and writing, which is created for this user only and never truncated. A link
/// is refused, and a pipe in its place is not waited for.
///
/// # Errors
/// I/O errors; `ELOOP` for a link.
pub fn open_private(path: &Path) -> io::Result<File> {
    OpenOptions::new()
        .create(true)
        .truncate(false)
        .read(true)
        .write(true)
        .mode(0o600)
        .custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK)
        .open(path)
}

/// Whether an open file is still the one at a path: it may have been removed between opening and locking, and its lock then
/// excludes nobody.
pub(super) fn is_at(file: &File, path: &Path) -> bool {
    let identity = |data: io::Result<Metadata>| data.map(|data| (data.dev(), data.ino())).ok();
    let there = identity(path.symlink_metadata());
    there.is_some() && there == identity(file.metadata())
}

/// Creates a directory that only this user can access. A link, or a directory of another user, is refused.
pub(super) fn private_dir(dir: &Path) -> io::Result<()> {
    if let Some(parent) = dir.parent() {
        std::fs::DirBuilder::new().recursive(true).mode(0o700).create(parent)?;
    }
    match std::fs::DirBuilder::new().mode(0o700).create(dir) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
        made => made?,
    }
    let data = std::fs::symlink_metadata(dir)?;
    let refused = |why: &str| Err(io::Error::other(format!("{} {why}", dir.display())));
    if !data.is_dir() {
        return refused("is a link or a file: put a directory in its place");
    }
    if data.uid() != rustix::process::geteuid().as_raw() {
        return refused("belongs to another user");
    }
    if data.mode() & 0o077 != 0 {
        std::fs::set_permissions(dir, std::os::unix::fs::PermissionsExt::from_mode(0o700))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_of_the_tree_are_found_and_those_above_it_are_not() {
        let dir = tempfile::tempdir().unwrap();
        let (real, ws) = (dir.path().join("real/ws"), dir.path().join("ws"));
        std::fs::create_dir_all(real.join("plain")).unwrap();
        std::os::unix::fs::symlink(&real, &ws).unwrap();
        std::os::unix::fs::symlink("../out", real.join("away")).unwrap();
        std::os::unix::fs::symlink("plain", real.join("within")).unwrap();
        std::os::unix::fs::symlink("nothing", real.join("broken")).unwrap();
        let link = |path: &str| link_inside(&ws, &ws.join(path));
        for (path, expected) in [
            ("away/runs/x", Some("away")),
            ("away", Some("away")),
            ("within/x", Some("within")),
            ("broken/x/y", Some("broken")),
            ("plain/../away/x", Some("away")),
            ("plain/runs/x", None),
            ("new/x", None),
            ("../out", None),
        ] {
            let found = link(path).map(|found| found.file_name().unwrap().to_string_lossy().into_owned());
            assert_eq!(found.as_deref(), expected, "{path}");
        }
        assert!(make_dirs(&ws, &ws.join("plain/a/b")).is_ok() && real.join("plain/a/b").is_dir());
        assert!(make_dirs(&ws, &dir.path().join("beside/x")).is_ok());
    }

    #[test]
    fn no_directory_is_made_through_a_link() {
        let dir = tempfile::tempdir().unwrap();
        let ws = dir.path().join("ws");
        std::fs::create_dir_all(&ws).unwrap();
        std::os::unix::fs::symlink("../out", ws.join("a")).unwrap();
        std::fs::create_dir_all(dir.path().join("out")).unwrap();
        for asked in ["a/b", "c/../a/b"] {
            assert!(make_dirs(&ws, &ws.join(asked)).is_err(), "{asked}");
        }
        assert!(!dir.path().join("out/b").exists());
        std::fs::remove_file(ws.join("a")).unwrap();
        make_dirs(&ws, &ws.join("c/../a/b")).unwrap();
        assert!(ws.join("a/b").is_dir() && !ws.join("c").exists());
    }
}
