//! Hard links that lead out of the workspace. Package managers link files of environments from their caches: such a
//! file is the same file there, and a command that writes it in place would change it there too. So before the first
//! command of a run that may write, each such file of the workspace becomes a copy, which no other place shares.

use super::node::{Print, is_object};
use super::walk::{self, Linked, MOST_NAMES, MOST_TIME, TreeWalk};
use super::{at, limit_message};
use crate::base::grant::NothingClosed;
use crate::process::Confinement;
use rustix::fs::{
    Access, AtFlags, Gid, Timespec, Timestamps, Uid, accessat, chownat, fstat, futimens, ioctl_ficlone, linkat,
};
use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs::{File, Metadata};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

/// The most bytes that are copied. If exceeded, no command that may write is started (`limit:guard_links`).
const MOST_BYTES: u64 = 8 << 30;

/// Whether the files of a run's workspace were separated from those outside; done once per run.
#[derive(Debug, Default)]
pub struct SeparatedLinks(OnceLock<Result<(), String>>);

impl SeparatedLinks {
    /// Separates them, unless that was done.
    ///
    /// # Errors
    /// The name of a limit that was reached, and what to do; the same for each later command. No command that may write
    /// must be started.
    pub(super) fn separate(&self, confinement: &Confinement) -> Result<(), String> {
        self.0.get_or_init(|| separate_all(confinement)).clone()
    }
}

fn separate_all(confinement: &Confinement) -> Result<(), String> {
    let root = at::root(&confinement.workspace).map_err(|error| format!("the workspace cannot be opened: {error}"))?;
    let own: Vec<PathBuf> = confinement
        .hidden
        .iter()
        .filter_map(|dir| dir.strip_prefix(&confinement.workspace).ok())
        .map(Path::to_path_buf)
        .collect();
    let walk = TreeWalk {
        root: &root,
        closed: &NothingClosed,
        own: &own,
        most_names: MOST_NAMES,
        most_time: MOST_TIME,
        links: true,
    };
    let found = walk.find_linked();
    match found.over.into_iter().next() {
        Some(over) if over.code == walk::LINKS => Err(message("more names are linked than can be examined")),
        Some(over) => Err(limit_message(&over)),
        None => separate_files(&root, found.linked, MOST_BYTES, MOST_TIME),
    }
}

/// `most_bytes` and `most_time` limit the copies.
pub(super) fn separate_files(
    root: &OwnedFd,
    linked: Vec<Linked>,
    most_bytes: u64,
    most_time: Duration,
) -> Result<(), String> {
    let files = leading_out(linked);
    let bytes: u64 = files
        .iter()
        .filter_map(|names| names.first())
        .map(|name| name.print.size)
        .sum();
    if bytes > most_bytes {
        return Err(message(&format!("{bytes} bytes would have to be copied")));
    }
    let until = Instant::now() + most_time;
    for names in files {
        if Instant::now() > until {
            return Err(message("copying took too long"));
        }
        if let Err((path, error)) = separate_file(root, &names) {
            return Err(message(&format!("{} cannot be copied: {error}", path.display())));
        }
    }
    Ok(())
}

fn message(why: &str) -> String {
    format!(
        "{}: files of the workspace have hard links outside, which a command could write through, and they cannot be \
         separated: {why}; copy them (for example `uv sync --link-mode=copy`, or `pnpm install \
         --package-import-method=copy`), or run with --isolate",
        walk::LINKS
    )
}

/// The files that have more names than those in the workspace, each with its names there. Objects of git are left to
/// the comparison after each command: they are many, and no command may write them.
fn leading_out(linked: Vec<Linked>) -> Vec<Vec<Linked>> {
    let mut files: BTreeMap<(u64, u64), Vec<Linked>> = BTreeMap::new();
    for name in linked {
        files.entry(name.file()).or_default().push(name);
    }
    let leads_out = |names: &Vec<Linked>| names.iter().any(|name| name.print.links > names.len() as u64);
    let mut files: Vec<Vec<Linked>> = files.into_values().filter(leads_out).collect();
    files
        .iter_mut()
        .for_each(|names| names.retain(|name| !is_object(&name.path)));
    files
}

/// Replaces a file at all its names in the workspace. An error comes with the name at which it occurred.
fn separate_file<'a>(root: &OwnedFd, names: &'a [Linked]) -> Result<(), (&'a Path, io::Error)> {
    let mut copied: Option<&Path> = None;
    for name in names {
        match replace(root, name, copied) {
            Ok(true) => copied = copied.or(Some(name.path.as_path())),
            Ok(false) => {}
            // Removed meanwhile.
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err((name.path.as_path(), error)),
        }
    }
    Ok(())
}

/// Replaces one name of a file by a link to its copy at another name, or by a new copy. `false` if it was left: it has
/// been replaced meanwhile, or no process of this user can write the file.
fn replace(root: &OwnedFd, linked: &Linked, copied: Option<&Path>) -> io::Result<bool> {
    let (dir, name) = at::parent(root, &linked.path)?;
    let now = at::stat(&dir, name)?;
    if (now.st_dev, now.st_ino) != linked.file() || is_foreign(&dir, name, now.st_uid) {
        return Ok(false);
    }
    let before = Print::of(&fstat(&dir)?).modified;
    let fresh = match copied.and_then(|path| link(root, path, &dir).ok()) {
        Some(fresh) => fresh,
        None => copy(&at::file(&dir, Path::new(name))?, &dir)?,
    };
    let placed = at::rename_over(&dir, &fresh, name);
    if placed.is_err() {
        let _ = at::remove(&dir, OsStr::new(&fresh));
    }
    // Builds that compare the times of directories need not start over; a failure does no harm.
    let _ = at::set_modified(&File::from(dir), before);
    placed?;
    Ok(true)
}

/// Whether a file belongs to another user and cannot be written by this one.
fn is_foreign(dir: &OwnedFd, name: &OsStr, owner: u32) -> bool {
    let me = rustix::process::geteuid();
    !me.is_root() && owner != me.as_raw() && accessat(dir, name, Access::WRITE_OK, AtFlags::EACCESS).is_err()
}

/// Gives the file at `path` a new name in `dir`, and returns that.
fn link(root: &OwnedFd, path: &Path, dir: &OwnedFd) -> rustix::io::Result<String> {
    let (from, name) = at::parent(root, path)?;
    let fresh = at::fresh_name();
    linkat(&from, name, dir, fresh.as_str(), AtFlags::empty())?;
    Ok(fresh)
}

/// Copies a file to a new name in `dir`, and returns that.
fn copy(source: &File, dir: &OwnedFd) -> io::Result<String> {
    let (mut to, fresh) = at::new_file(dir)?;
    let filled = fill(source, &mut to);
    if filled.is_err() {
        let _ = at::remove(dir, OsStr::new(&fresh));
    }
    filled.map(|()| fresh)
}

/// Copies content, owner, mode, attributes and times. File systems that can share the blocks of both files do so.
fn fill(mut source: &File, to: &mut File) -> io::Result<()> {
    let data = source.metadata()?;
    if ioctl_ficlone(&*to, source).is_err() && io::copy(&mut source, to)? != data.len() {
        return Err(io::Error::other("it has changed meanwhile"));
    }
    let made = to.metadata()?;
    let handle = OwnedFd::from(to.try_clone()?);
    if (made.uid(), made.gid()) != (data.uid(), data.gid()) {
        let (user, group) = (Uid::from_raw(data.uid()), Gid::from_raw(data.gid()));
        chownat(&handle, "", Some(user), Some(group), AtFlags::EMPTY_PATH)?;
    }
    at::set_mode(&handle, data.mode())?;
    at::set_attributes(&handle, &at::attributes(&OwnedFd::from(source.try_clone()?))?)?;
    Ok(futimens(&*to, &times(&data))?)
}

fn times(data: &Metadata) -> Timestamps {
    let time = |seconds: i64, nanos: i64| Timespec {
        tv_sec: seconds,
        tv_nsec: nanos,
    };
    Timestamps {
        last_access: time(data.atime(), data.atime_nsec()),
        last_modification: time(data.mtime(), data.mtime_nsec()),
    }
}
