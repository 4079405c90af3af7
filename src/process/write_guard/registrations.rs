//! Registrations of linked worktrees that others add to a repository of the workspace, or remove, while a command runs:
//! other runs with `--isolate`, jobs of a batch, or a person with `git worktree`. The git directory is closed to
//! commands, so without this module such a change would be undone as one of the command, and both the command and the
//! other party would fail.
//!
//! A registration belongs to others if its worktree is where the command cannot write and points back to the
//! registration: the command could not have made this pointer. If such a worktree no longer points back, others have
//! removed the registration. At level `none` commands can write everywhere, so there only the workspace and the private
//! directories count as writable by the command.

use super::node::{NodeKind, StoredContent};
use super::{WriteGuard, at};
use crate::base::git_dir::{OUR_WORKTREES, UNREGISTERED};
use crate::process::Confinement;
use rustix::fs::{AtFlags, CWD, FileType, statat};
use rustix::io::Errno;
use std::ffi::OsStr;
use std::fs::File;
use std::io::Read;
use std::ops::Bound;
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path, PathBuf};

/// The subdirectory of a git directory that contains a directory for each linked worktree.
const LIST: &str = "worktrees";
/// Upper limit in bytes for a file that contains a path.
const MOST_POINTER: u64 = 8 << 10;
/// The files of a registration that are only data: git reads and writes them, and nothing more.
const DATA_FILES: [&str; 7] = [
    "HEAD",
    "ORIG_HEAD",
    "gitdir",
    "locked",
    "index",
    "index.lock",
    "HEAD.lock",
];
/// The directories of a registration that contain only data.
const DATA_DIRS: [&str; 3] = ["logs", "refs", "reftable"];
/// The content of the file `commondir` of a registration.
const COMMON_DIR: &[u8] = b"../..";
/// The settings of a worktree. Git copies them from the repository when it creates one.
const SETTINGS: &str = "config.worktree";
/// Patterns of a sparse checkout, which git copies too.
const SPARSE: &str = "info/sparse-checkout";

/// Whether a new path belongs to a registration of others.
pub(super) enum Registered {
    /// It does, and is left as it is.
    OfOthers,
    /// It does, except for these entries in it, which the guard judges one by one.
    Except(Vec<PathBuf>),
    No,
}

/// The places outside the workspace that a command may write, as real paths.
pub(super) fn places_of(confinement: &Confinement) -> Vec<PathBuf> {
    let placed = &confinement.placed;
    let layers = [&placed.slots, &placed.tree_slots].into_iter().chain(&placed.below);
    let placed = placed.writable.iter().map(|(real, _)| real).chain(layers);
    let all = confinement.writable.iter().chain(placed);
    all.filter(|place| !place.as_os_str().is_empty()).cloned().collect()
}

/// Whether this is the directory `worktrees` of a git directory.
fn is_list(dir: &Path) -> bool {
    dir.file_name() == Some(OsStr::new(LIST)) && dir.parent().is_some_and(|git| git.iter().any(|part| part == ".git"))
}

/// The registration at or above a path.
fn at_or_above(path: &Path) -> Option<&Path> {
    path.ancestors().find(|dir| dir.parent().is_some_and(is_list))
}

/// Whether this is a registration of this program that is not yet, or no longer, in `worktrees`.
fn is_unlisted(dir: &Path) -> bool {
    let name = dir.file_name().and_then(OsStr::to_str).unwrap_or_default();
    let digits = name
        .strip_prefix(OUR_WORKTREES)
        .and_then(|name| UNREGISTERED.iter().find_map(|end| name.strip_suffix(end)));
    dir.parent().is_some_and(|git| git.ends_with(".git"))
        && digits.is_some_and(|digits| digits.bytes().all(|digit| digit.is_ascii_hexdigit()))
}

/// An absolute path without `.` and `..`.
fn plain(base: &Path, path: &Path) -> PathBuf {
    let mut made = PathBuf::new();
    for part in base.join(path).components() {
        match part {
            Component::ParentDir => {
                made.pop();
            }
            Component::CurDir => {}
            part => made.push(part),
        }
    }
    made
}

/// The path in a file of git that contains only a path and a line end.
fn path_in(bytes: &[u8]) -> Option<PathBuf> {
    let end = bytes.strip_suffix(b"\n").unwrap_or(bytes);
    (!end.is_empty() && !end.contains(&b'\n')).then(|| PathBuf::from(OsStr::from_bytes(end)))
}

fn read(file: &mut File) -> Option<Vec<u8>> {
    let mut bytes = Vec::new();
    file.take(MOST_POINTER + 1).read_to_end(&mut bytes).ok()?;
    (bytes.len() as u64 <= MOST_POINTER).then_some(bytes)
}

/// The registration that the `.git` file of a worktree names.
fn pointer_of(tree: &Path) -> Option<PathBuf> {
    let dir = at::root(tree).ok()?;
    let bytes = read(&mut at::file(&dir, Path::new(".git")).ok()?)?;
    let named = path_in(bytes.strip_prefix(b"gitdir:")?.trim_ascii_start())?;
    Some(plain(tree, &named))
}

impl WriteGuard {
    /// Judges a path that is new, or that is below a registration that was there before.
    pub(super) fn registered(&self, path: &Path) -> Registered {
        let Ok(data) = at::stat_below(&self.root, path) else {
            return Registered::No;
        };
        if let Some(admin) = at_or_above(path).filter(|admin| *admin != path && self.before.contains_key(*admin)) {
            // The registration was there already, and others still add to it: git writes the index last.
            return match self.is_data_below(admin, path, FileType::from_raw_mode(data.st_mode)) {
                true => Registered::OfOthers,
                false => Registered::No,
            };
        }
        if !at::is_dir(&data) {
            return Registered::No;
        }
        if is_list(path) {
            let Ok(listed) = self.entries(path) else {
                return Registered::No;
            };
            // Git creates the directory empty before it registers the first worktree.
            let is_empty = listed.is_empty();
            // The caller then judges each registration in it.
            let all: Vec<PathBuf> = listed.into_iter().map(|(path, ..)| path).collect();
            return match is_empty || all.iter().any(|admin| self.points_here(admin)) {
                true => Registered::Except(all),
                false => Registered::No,
            };
        }
        let is_one = path.parent().is_some_and(is_list);
        let is_theirs = is_unlisted(path) || is_one && self.points_here(path);
        if !is_theirs {
            return Registered::No;
        }
        match self.no_data_in(path) {
            Some(other) if is_one => Registered::Except(other),
            Some(other) if other.is_empty() => Registered::OfOthers,
            _ => Registered::No,
        }
    }

    /// Whether a recorded entry is missing because others have removed a worktree.
    pub(super) fn is_unregistered(&self, path: &Path) -> bool {
        if !matches!(at::stat_below(&self.root, path), Err(Errno::NOENT | Errno::NOTDIR)) {
            return false;
        }
        if is_list(path) {
            let below = (Bound::Excluded(path), Bound::Unbounded);
            let mut below = self.before.range::<Path, _>(below).map(|(below, _)| below.as_path());
            return below
                .by_ref()
                .take_while(|below| below.starts_with(path))
                .filter(|below| below.parent() == Some(path))
                .all(|admin| self.is_taken_off(admin));
        }
        let is_lock = |admin: &Path| path.extension() == Some(OsStr::new("lock")) && self.points_here(admin);
        at_or_above(path).is_some_and(|admin| self.is_taken_off(admin) || is_lock(admin))
            || path.ancestors().any(is_unlisted)
    }

    /// Whether the worktree of a recorded registration no longer points back to it.
    fn is_taken_off(&self, admin: &Path) -> bool {
        let recorded = self.before.get(&admin.join("gitdir")).map(|node| &node.kind);
        let Some(NodeKind::File(StoredContent::Memory(bytes))) = recorded else {
            return false;
        };
        let Some((top, tree)) = self.tree_of(admin, bytes) else {
            return false;
        };
        pointer_of(&tree).is_none_or(|named| named != top.join(admin))
    }

    /// Whether a registration names a worktree where the command cannot write, and that worktree points back to it.
    fn points_here(&self, admin: &Path) -> bool {
        let named = || {
            let bytes = read(&mut at::file(&self.root, &admin.join("gitdir")).ok()?)?;
            let (_, tree) = self.tree_of(admin, &bytes)?;
            // The command could have made a symbolic link in the path.
            (std::fs::canonicalize(&tree).ok()? == tree).then_some(())?;
            pointer_of(&tree)
        };
        let Some(named) = named() else { return false };
        let identity = |data: rustix::fs::Stat| (data.st_dev, data.st_ino);
        let there = statat(CWD, &named, AtFlags::SYMLINK_NOFOLLOW).map(identity);
        there.is_ok() && there == at::stat_below(&self.root, admin).map(identity)
    }

    /// The real path of the workspace, and the path of the worktree that the file `gitdir` of a registration names.
    /// `None` if the command may write there.
    fn tree_of(&self, admin: &Path, gitdir: &[u8]) -> Option<(PathBuf, PathBuf)> {
        let top = std::fs::read_link(at::own_link(&self.root)).ok()?;
        let pointer = plain(&top.join(admin), &path_in(gitdir)?);
        let tree = pointer.parent().filter(|_| pointer.ends_with(".git"))?.to_path_buf();
        let reaches = |place: &Path| tree.starts_with(place);
        let real = |place: &PathBuf| std::fs::canonicalize(place).unwrap_or_else(|_| place.clone());
        let is_reached = reaches(&top) || self.places.iter().any(|place| reaches(place) || reaches(&real(place)));
        (!is_reached).then_some((top, tree))
    }

    /// The entries of a registration that are not only data. `None` if it cannot be read.
    fn no_data_in(&self, admin: &Path) -> Option<Vec<PathBuf>> {
        let listed = self.entries(admin).ok()?.into_iter();
        let other = listed.filter(|(path, kind, _)| !self.is_data(admin, path, *kind));
        Some(other.map(|(path, ..)| path).collect())
    }

    fn is_data(&self, admin: &Path, path: &Path, kind: FileType) -> bool {
        let is_in = |names: &[&str]| names.iter().any(|name| path.ends_with(name));
        let text = |path: &Path| read(&mut at::file(&self.root, path).ok()?);
        match path.file_name().and_then(OsStr::to_str) {
            Some("commondir") => {
                kind.is_file() && text(path).is_some_and(|text| text.trim_ascii_end() == COMMON_DIR || text.is_empty())
            }
            Some(SETTINGS) => {
                let git = admin.parent().and_then(Path::parent);
                let of_repository = git.and_then(|git| text(&git.join(SETTINGS)));
                kind.is_file() && of_repository.is_some() && text(path) == of_repository
            }
            Some("info") => {
                let listed = self.entries(path).unwrap_or_default();
                kind.is_dir()
                    && listed
                        .iter()
                        .all(|(path, kind, _)| path.ends_with(SPARSE) && kind.is_file())
            }
            _ => kind.is_file() && is_in(&DATA_FILES) || kind.is_dir() && is_in(&DATA_DIRS),
        }
    }

    /// Whether an entry in or below a registration is only data, and the registration belongs to others.
    fn is_data_below(&self, admin: &Path, path: &Path, kind: FileType) -> bool {
        let is_data = match path.parent() {
            Some(parent) if parent == admin => self.is_data(admin, path, kind),
            _ => DATA_DIRS.iter().any(|name| path.starts_with(admin.join(name))) && (kind.is_file() || kind.is_dir()),
        };
        is_data && self.points_here(admin)
    }
}
