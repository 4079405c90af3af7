//! Worktrees that others register in a repository of the workspace, or take off again, while a command runs: other runs
//! with `--isolate`, jobs of a batch, a person with `git worktree`. The git directory is closed to commands, so these
//! would be undone as changes of the command, and both would fail.
//!
//! A registration is of others if its worktree is where the command cannot write and points back to it: the command could
//! not have made that. Such a worktree that points back no longer shows in the same way that others have removed the
//! registration. At level `none` commands can write everywhere, so there only the workspace and the private directories
//! count as places of the command.

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

/// The directory of a git directory that holds a directory for each linked worktree.
const LIST: &str = "worktrees";
/// The most bytes of a file that names a path.
const MOST_POINTER: u64 = 8 << 10;
/// The files of a registration that are data, which git only reads and writes.
const DATA_FILES: [&str; 7] = [
    "HEAD",
    "ORIG_HEAD",
    "gitdir",
    "locked",
    "index",
    "index.lock",
    "HEAD.lock",
];
/// Its directories that hold only data.
const DATA_DIRS: [&str; 3] = ["logs", "refs", "reftable"];
/// What `commondir` of a registration holds.
const COMMON_DIR: &[u8] = b"../..";
/// The settings of a worktree: git copies those of the repository when it makes one.
const SETTINGS: &str = "config.worktree";
/// Patterns of a sparse checkout, which git copies too.
const SPARSE: &str = "info/sparse-checkout";

/// What the guard does with a path because of a registration.
pub(super) enum Registered {
    /// Nothing: it is of others.
    OfOthers,
    /// It is of others, except for these entries in it.
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

/// Whether this is where a git directory holds its worktrees.
fn is_list(dir: &Path) -> bool {
    dir.file_name() == Some(OsStr::new(LIST)) && dir.parent().is_some_and(|git| git.iter().any(|part| part == ".git"))
}

/// The registration at or above a path.
fn at_or_above(path: &Path) -> Option<&Path> {
    path.ancestors().find(|dir| dir.parent().is_some_and(is_list))
}

/// Whether this is a registration of this program that is not yet, or no longer, among the others.
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

/// The path in a file of git that names one, without its line end.
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
    /// Judges what is new at a path.
    pub(super) fn registered(&self, path: &Path) -> Registered {
        let Ok(data) = at::stat_below(&self.root, path) else {
            return Registered::No;
        };
        if let Some(admin) = at_or_above(path).filter(|admin| *admin != path && self.before.contains_key(*admin)) {
            // It was there already, and gets what it lacked: the index comes last.
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
            // An empty one is made before the first worktree is registered.
            let is_empty = listed.is_empty();
            // Each of them is judged by itself then.
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

    /// Whether an entry that was there is missing because others have taken a worktree off.
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

    /// Whether the worktree of a registration that was recorded no longer points back to it.
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

    /// Whether a registration names a worktree where the command cannot write, and that worktree names it.
    fn points_here(&self, admin: &Path) -> bool {
        let named = || {
            let bytes = read(&mut at::file(&self.root, &admin.join("gitdir")).ok()?)?;
            let (_, tree) = self.tree_of(admin, &bytes)?;
            // A link on the way there could be one of the command.
            (std::fs::canonicalize(&tree).ok()? == tree).then_some(())?;
            pointer_of(&tree)
        };
        let Some(named) = named() else { return false };
        let identity = |data: rustix::fs::Stat| (data.st_dev, data.st_ino);
        let there = statat(CWD, &named, AtFlags::SYMLINK_NOFOLLOW).map(identity);
        there.is_ok() && there == at::stat_below(&self.root, admin).map(identity)
    }

    /// The real path of the workspace and the worktree that the file `gitdir` of a registration names. `None` if the command
    /// may write there.
    fn tree_of(&self, admin: &Path, gitdir: &[u8]) -> Option<(PathBuf, PathBuf)> {
        let top = std::fs::read_link(at::own_link(&self.root)).ok()?;
        let pointer = plain(&top.join(admin), &path_in(gitdir)?);
        let tree = pointer.parent().filter(|_| pointer.ends_with(".git"))?.to_path_buf();
        let reaches = |place: &Path| tree.starts_with(place);
        let real = |place: &PathBuf| std::fs::canonicalize(place).unwrap_or_else(|_| place.clone());
        let is_reached = reaches(&top) || self.places.iter().any(|place| reaches(place) || reaches(&real(place)));
        (!is_reached).then_some((top, tree))
    }

    /// The entries of a registration that are more than data. `None` if it cannot be read.
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

    /// Whether an entry in or below a registration of others is data.
    fn is_data_below(&self, admin: &Path, path: &Path, kind: FileType) -> bool {
        let is_data = match path.parent() {
            Some(parent) if parent == admin => self.is_data(admin, path, kind),
            _ => DATA_DIRS.iter().any(|name| path.starts_with(admin.join(name))) && (kind.is_file() || kind.is_dir()),
        };
        is_data && self.points_here(admin)
    }
}
