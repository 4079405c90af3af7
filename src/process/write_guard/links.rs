//! Hard links to files outside the workspace. Package managers hard-link files of environments from their caches, so a
//! command that writes such a file in place would change it in the cache too. Before the first command of a run that
//! may write, each such file of the workspace is replaced by a copy. If that is impossible, level `full` mounts the
//! file read-only, and at the other levels no such command is started.

use super::node::Fingerprint;
use super::walk::{self, Known, Linked, MOST_TIME, TreeWalk, WalkResult};
use super::{MOST_MOUNTS, at, limit_message};
use crate::base::grant::NothingClosed;
use crate::base::sync::lock;
use crate::process::{Confinement, SandboxLevel};
use rustix::fs::{
    Access, AtFlags, Gid, StatVfsMountFlags, StatxAttributes, StatxFlags, Timespec, Timestamps, Uid, accessat, chownat,
    fstat, fstatvfs, futimens, ioctl_ficlone, linkat, statx,
};
use rustix::io::Errno;
use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs::{File, Metadata};
use std::io::{self, Read};
use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::time::{Duration, Instant};

/// Upper limit in bytes for the copies. If exceeded, no command that may write is started (`limit:guard_links`).
const MOST_BYTES: u64 = 8 << 30;

/// Bytes that are copied between two checks of the time limit.
const PART: u64 = 16 << 20;

/// Whether the files of a run's workspace were separated from those outside; done once per run.
#[derive(Debug, Default)]
pub struct SeparatedLinks(Mutex<LinkState>);

#[derive(Debug, Default)]
enum LinkState {
    #[default]
    Unknown,
    /// The names were searched, and nothing was separated yet.
    Examined(Box<Examined>),
    /// The paths that could not be separated and are to be mounted read-only.
    Done(Vec<PathBuf>),
}

/// The result of a search ahead of the first command.
#[derive(Debug)]
struct Examined {
    /// The directories that it left out.
    own: Vec<PathBuf>,
    found: WalkResult,
    known: Known,
}

impl SeparatedLinks {
    /// Searches the files ahead of the first command that may write. Changes nothing.
    pub(super) fn examine(&self, confinement: &Confinement) {
        let mut state = lock(&self.0);
        if confinement.level == SandboxLevel::None || !matches!(*state, LinkState::Unknown) {
            return;
        }
        let Ok(root) = at::root(&confinement.workspace) else {
            return;
        };
        let own = confinement.hidden_inside();
        let walk = TreeWalk {
            leaves_modes: true,
            ..linked(&root, &own)
        };
        let (found, known) = walk.find(Path::new(""));
        if found.over.is_empty() && known.is_reusable() {
            *state = LinkState::Examined(Box::new(Examined { own, found, known }));
        }
    }

    /// Separates the files, if that was not done before, and returns the paths that must be mounted read-only. If it
    /// fails, it is tried again for the next command, because the cause may not last.
    ///
    /// # Errors
    /// The name of a limit that was reached, and what to do. No command that may write must be started.
    pub(super) fn separate(&self, confinement: &Confinement) -> Result<Vec<PathBuf>, String> {
        let mut state = lock(&self.0);
        let examined = match std::mem::take(&mut *state) {
            LinkState::Done(kept) => {
                *state = LinkState::Done(kept.clone());
                return Ok(kept);
            }
            LinkState::Examined(examined) => Some(*examined),
            LinkState::Unknown => None,
        };
        let kept = separate_all(confinement, examined)?;
        *state = LinkState::Done(kept.clone());
        Ok(kept)
    }
}

/// The walk that searches the workspace for files with several hard links.
fn linked<'a>(root: &'a OwnedFd, own: &'a [PathBuf]) -> TreeWalk<'a> {
    TreeWalk {
        links: true,
        ..TreeWalk::new(root, &NothingClosed, own)
    }
}

fn separate_all(confinement: &Confinement, examined: Option<Examined>) -> Result<Vec<PathBuf>, String> {
    let root = at::root(&confinement.workspace)
        .map_err(|error| format!("{}: the workspace cannot be opened: {error}", walk::LINKS))?;
    let own = confinement.hidden_inside();
    let walk = linked(&root, &own);
    let found = match examined.filter(|examined| examined.own == own) {
        Some(examined) => walk.find_linked_again(examined.found, &examined.known),
        None => walk.find_linked(),
    };
    match found.over.first() {
        Some(over) if over.code == walk::LINKS => Err(message("more names are linked than can be examined")),
        Some(over) => Err(limit_message(over)),
        None => separate_files(&root, found, confinement.level, (MOST_BYTES, MOST_TIME)),
    }
}

/// `most_bytes` and `most_time` limit the copies. Returns the paths that must be mounted read-only.
pub(super) fn separate_files(
    root: &OwnedFd,
    found: WalkResult,
    level: SandboxLevel,
    (most_bytes, most_time): (u64, Duration),
) -> Result<Vec<PathBuf>, String> {
    let mut files = leading_out(found);
    if size(&files) > most_bytes {
        // Files that are left as they are take no space. This opens each directory, so it is not done for every tree.
        files.retain(|names| {
            !names
                .iter()
                .all(|name| place(root, name).is_ok_and(|found| found.is_none()))
        });
    }
    let bytes = size(&files);
    if bytes > most_bytes {
        return Err(message(&format!("{bytes} bytes would have to be copied")));
    }
    let until = Instant::now() + most_time;
    let mut kept = Vec::new();
    for names in files {
        if Instant::now() > until {
            return Err(message(TOO_LONG));
        }
        let blocked = separate_file(root, &names, until).map_err(|failed| one_message(&failed))?;
        for failed in blocked {
            if level != SandboxLevel::Full || kept.len() >= MOST_MOUNTS {
                return Err(one_message(&failed));
            }
            kept.push(failed.0.to_path_buf());
        }
    }
    Ok(kept)
}

/// A name of a file that could not be replaced, and why.
type Failed<'a> = (&'a Path, io::Error);

/// Why copying ended at its time limit.
const TOO_LONG: &str = "copying took too long";

/// The bytes of all files, each with its names.
fn size(files: &[Vec<Linked>]) -> u64 {
    let firsts = files.iter().filter_map(|names| names.first());
    firsts.map(|name| name.fingerprint.size).sum()
}

fn message(why: &str) -> String {
    format!(
        "{}: files of the workspace have hard links outside, which a command could write through, and they cannot be \
         separated: {why}; copy them (for example `uv sync --link-mode=copy`, or `pnpm install \
         --package-import-method=copy`), or run with --isolate",
        walk::LINKS
    )
}

/// The message when one file could not be separated.
fn one_message((path, error): &Failed<'_>) -> String {
    format!(
        "{}: {} has a hard link outside the workspace, which a command could write through, and cannot be replaced by a \
         copy: {error}; copy it yourself, or run with --isolate",
        walk::LINKS,
        path.display()
    )
}

/// The files that have more names than those in the workspace, each with its names there. Objects of git are left to
/// the comparison after each command: they are many, and no command may write them.
fn leading_out(found: WalkResult) -> Vec<Vec<Linked>> {
    // Each file with its names, and how many more names it has among git's objects.
    let mut files: BTreeMap<(u64, u64), (Vec<Linked>, u64)> = BTreeMap::new();
    for name in found.linked {
        files.entry(name.file()).or_default().0.push(name);
    }
    for object in found.objects {
        if let Some((_, objects)) = files.get_mut(&object) {
            *objects += 1;
        }
    }
    let leads_out = |(names, objects): &(Vec<Linked>, u64)| {
        let inside = names.len() as u64 + objects;
        names.iter().any(|name| name.fingerprint.links > inside)
    };
    let files = files.into_values().filter(leads_out);
    files.map(|(names, _)| names).collect()
}

/// Replaces a file at all its names in the workspace. Returns the names at which that is impossible: the file or its
/// directory is locked, or the file is a mount point.
fn separate_file<'a>(root: &OwnedFd, names: &'a [Linked], until: Instant) -> Result<Vec<Failed<'a>>, Failed<'a>> {
    let mut copied: Option<&Path> = None;
    let mut blocked = Vec::new();
    for name in names {
        match replace(root, name, copied, until) {
            Ok(true) => copied = copied.or(Some(name.path.as_path())),
            Ok(false) => {}
            // Removed since.
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            // Another user's file that this one may write but not replace, for example in a sticky directory.
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied && is_others(name.fingerprint.owner.0) => {}
            Err(error)
                if matches!(
                    error.kind(),
                    io::ErrorKind::PermissionDenied | io::ErrorKind::ResourceBusy
                ) =>
            {
                blocked.push((name.path.as_path(), error));
            }
            Err(error) => return Err((name.path.as_path(), error)),
        }
    }
    Ok(blocked)
}

/// Replaces one name of a file by a link to its copy at another name, or by a new copy. `false` if it was left.
fn replace(root: &OwnedFd, linked: &Linked, copied: Option<&Path>, until: Instant) -> io::Result<bool> {
    let Some((dir, name)) = place(root, linked)? else {
        return Ok(false);
    };
    let before = Fingerprint::of(&fstat(&dir)?).modified;
    let fresh = match copied.and_then(|path| link(root, path, &dir).ok()) {
        Some(fresh) => fresh,
        None => match copy(&at::file(&dir, Path::new(name))?, &dir, until)? {
            Some(fresh) => fresh,
            None => {
                let _ = at::set_modified(&File::from(dir), before);
                return Ok(false);
            }
        },
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

/// The directory and the name of a file that is to be replaced. `None` if it is left: it has been replaced meanwhile,
/// or no process of this user can write it there.
fn place<'a>(root: &OwnedFd, linked: &'a Linked) -> io::Result<Option<(OwnedFd, &'a OsStr)>> {
    let (dir, name) = at::parent(root, &linked.path)?;
    let now = at::stat(&dir, name)?;
    let left = (now.st_dev, now.st_ino) != linked.file()
        || is_read_only(&dir)?
        || is_foreign(&dir, name, now.st_uid)
        || is_immutable(&dir, name);
    Ok((!left).then_some((dir, name)))
}

/// Whether a directory is on a read-only mount.
fn is_read_only(dir: &OwnedFd) -> rustix::io::Result<bool> {
    Ok(fstatvfs(dir)?.f_flag.contains(StatVfsMountFlags::RDONLY))
}

/// Whether a file is immutable, so that writing it needs a privilege that no command has. File systems that do not
/// report this attribute do not have it.
fn is_immutable(dir: &OwnedFd, name: &OsStr) -> bool {
    statx(dir, name, AtFlags::SYMLINK_NOFOLLOW, StatxFlags::empty())
        .is_ok_and(|data| data.stx_attributes.contains(StatxAttributes::IMMUTABLE))
}

/// Whether an owner is not this user, who is not root.
fn is_others(owner: u32) -> bool {
    let me = rustix::process::geteuid();
    !me.is_root() && owner != me.as_raw()
}

/// Whether a file belongs to another user and cannot be written by this one.
fn is_foreign(dir: &OwnedFd, name: &OsStr, owner: u32) -> bool {
    is_others(owner) && accessat(dir, name, Access::WRITE_OK, AtFlags::EACCESS).is_err()
}

/// Gives the file at `path` a new name in `dir`, and returns that.
fn link(root: &OwnedFd, path: &Path, dir: &OwnedFd) -> rustix::io::Result<String> {
    let (from, name) = at::parent(root, path)?;
    let fresh = at::fresh_name();
    linkat(&from, name, dir, fresh.as_str(), AtFlags::empty())?;
    Ok(fresh)
}

/// Copies a file to a new name in `dir`, and returns that. `None` if this user cannot make an equal file.
fn copy(source: &File, dir: &OwnedFd, until: Instant) -> io::Result<Option<String>> {
    let (mut to, fresh) = at::new_file(dir)?;
    let filled = fill(source, &mut to, until);
    if !matches!(filled, Ok(true)) {
        let _ = at::remove(dir, OsStr::new(&fresh));
    }
    Ok(filled?.then_some(fresh))
}

/// Copies content, owner, mode, attributes and times. The blocks are shared if the file system can do so. `false` if
/// the group cannot be set and the mode makes a difference between groups.
fn fill(source: &File, to: &mut File, until: Instant) -> io::Result<bool> {
    let data = source.metadata()?;
    let handle = OwnedFd::from(to.try_clone()?);
    // First, since a file that is left need not be read.
    if !give(&handle, &to.metadata()?, &data)? {
        return Ok(false);
    }
    if ioctl_ficlone(&*to, source).is_err() && copy_parts(source, to, until)? != data.len() {
        return Err(io::Error::other("it has changed meanwhile"));
    }
    at::set_mode(&handle, data.mode())?;
    at::set_attributes(&handle, &at::attributes(&OwnedFd::from(source.try_clone()?))?)?;
    futimens(&*to, &times(&data))?;
    Ok(true)
}

/// Copies the content, and returns its length in bytes.
fn copy_parts(source: &File, to: &mut File, until: Instant) -> io::Result<u64> {
    let mut copied = 0;
    loop {
        let part = io::copy(&mut source.take(PART), to)?;
        copied += part;
        if part < PART {
            return Ok(copied);
        }
        if Instant::now() > until {
            return Err(io::Error::new(io::ErrorKind::TimedOut, TOO_LONG));
        }
    }
}

/// Gives the file `made` the owner and group of `data`. A user who is not root can give no file away; then the copy is
/// this user's own, if the group keeps the rights that the mode gives it. `false` if it would not.
fn give(handle: &OwnedFd, made: &Metadata, data: &Metadata) -> io::Result<bool> {
    if (made.uid(), made.gid()) == (data.uid(), data.gid()) {
        return Ok(true);
    }
    let (user, group) = (Uid::from_raw(data.uid()), Gid::from_raw(data.gid()));
    let own = |user| chownat(handle, "", user, Some(group), AtFlags::EMPTY_PATH);
    // `EINVAL`: an owner that does not exist in this user namespace.
    match own(Some(user)) {
        Err(Errno::PERM | Errno::INVAL) => {}
        done => return Ok(done.map(|()| true)?),
    }
    // A set-user-ID or set-group-ID program would run as another user.
    if data.mode() & 0o6000 != 0 {
        return Ok(false);
    }
    match own(None) {
        Err(Errno::PERM | Errno::INVAL) => Ok(group_is_as_others(data.mode())),
        done => Ok(done.map(|()| true)?),
    }
}

/// Whether a mode gives the group the same rights as all others, so that it does not matter which group it is.
fn group_is_as_others(mode: u32) -> bool {
    (mode >> 3) & 0o7 == mode & 0o7
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_copy_ends_at_its_time_limit_within_a_file() {
        let dir = tempfile::tempdir().unwrap();
        let from = File::create_new(dir.path().join("from")).unwrap();
        from.set_len(2 * PART).unwrap();
        let from = File::open(dir.path().join("from")).unwrap();
        let mut to = File::create_new(dir.path().join("to")).unwrap();
        let error = copy_parts(&from, &mut to, Instant::now()).unwrap_err();
        assert_eq!(error.to_string(), TOO_LONG);
        assert_eq!(to.metadata().unwrap().len(), PART);
        let later = Instant::now() + MOST_TIME;
        assert_eq!(copy_parts(&from, &mut to, later).unwrap(), PART);
    }

    #[test]
    fn a_group_that_cannot_be_given_matters_only_if_it_has_rights_of_its_own() {
        assert!(group_is_as_others(0o100_644) && group_is_as_others(0o100_666));
        assert!(!group_is_as_others(0o100_664) && !group_is_as_others(0o100_604));
    }
}
