//! Registrations of linked worktrees that others add to a repository of the workspace, or remove, while a command runs:
//! other runs with `--isolate`, jobs of a batch, or a person with `git worktree`. The git directory is closed to
//! commands, so without this module such a change would be undone as one of the command, and both the command and the
//! other party would fail.
//!
//! A registration is of others if its worktree is where the command cannot write and points back to it: the command could
//! not have made that. Only files are accepted in it that git reads as data, and none that can be executed. Such a worktree
//! that is gone from its disk shows that others have removed the registration, unless they had locked it. At level `none` commands can write everywhere, so there only the workspace and the private directories
//! count as places of the command.

use super::node::{NodeKind, StoredContent};
use super::{WriteGuard, at};
use crate::base::git_dir::{OUR_WORKTREES, UNREGISTERED};
use crate::process::Confinement;
use rustix::fs::{AtFlags, CWD, FileType, Stat, statat};
use rustix::io::Errno;
use std::ffi::OsStr;
use std::fs::File;
use std::io::{ErrorKind, Read};
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
/// What git writes into a registration while it makes the index, which comes last.
const INDEX: [&str; 2] = ["index", "index.lock"];
/// The placeholder for references where they are in a reftable.
const NO_REFS: &[u8] = b"this repository uses the reftable format";
/// What `commondir` of a registration holds.
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
    listed_as(dir).is_some()
}

/// The path that such a registration has among the others, and whether it is on its way there.
fn listed_as(dir: &Path) -> Option<(PathBuf, bool)> {
    let name = dir.file_name().and_then(OsStr::to_str)?;
    let (name, end) = UNREGISTERED
        .iter()
        .find_map(|end| Some((name.strip_suffix(end)?, *end)))?;
    let digits = name.strip_prefix(OUR_WORKTREES)?;
    let git = dir.parent().filter(|git| git.ends_with(".git"))?;
    let is_ours = digits.bytes().all(|digit| digit.is_ascii_hexdigit());
    is_ours.then(|| (git.join(LIST).join(name), end == UNREGISTERED[0]))
}

/// Whether this is a regular file that nobody may execute.
fn is_plain(data: &Stat) -> bool {
    FileType::from_raw_mode(data.st_mode).is_file() && data.st_mode & 0o111 == 0
}

/// Whether nothing is at a path, as far as that is known.
fn is_missing(path: &Path) -> bool {
    path.symlink_metadata()
        .is_err_and(|error| error.kind() == ErrorKind::NotFound)
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
            // It was there already, and gets the index that it lacked: anything else could be the command's, for example a
            // lock that stops the git of others.
            let lacked = !self.before.contains_key(&admin.join("index"));
            let is_index = INDEX.iter().any(|name| path == admin.join(name));
            return match lacked && is_index && is_plain(&data) && self.points_here(admin) {
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
        if is_unlisted(path) {
            return match self.is_draft(path) {
                true => Registered::OfOthers,
                false => Registered::No,
            };
        }
        if !is_one || !self.points_here(path) {
            return Registered::No;
        }
        self.no_data_in(path).map_or(Registered::No, Registered::Except)
    }

    /// Whether a new directory beside the registrations is one of this program on its way there or back: only data is in
    /// it, and the worktree that it names is where the command cannot write. One on its way there is named by its
    /// worktree; one on its way back no longer is.
    fn is_draft(&self, path: &Path) -> bool {
        let Some((listed, is_new)) = listed_as(path) else {
            return false;
        };
        if self.no_data_in(path).is_none_or(|other| !other.is_empty()) {
            return false;
        }
        let Ok(entries) = self.entries(path) else { return false };
        let gitdir = at::file(&self.root, &path.join("gitdir")).ok();
        let gitdir = gitdir.and_then(|mut file| read(&mut file)).unwrap_or_default();
        if gitdir.is_empty() && is_new {
            // It has just been made: the name of the worktree is written first.
            return entries.iter().all(|(entry, ..)| entry.ends_with("gitdir"));
        }
        if !is_new && self.before.contains_key(&listed) {
            // It is being removed, in any order.
            return self.is_taken_off(&listed);
        }
        let Some((top, tree)) = self.tree_of(path, &gitdir) else {
            return false;
        };
        match is_new {
            true => {
                std::fs::canonicalize(&tree).is_ok_and(|real| real == tree)
                    && pointer_of(&tree).is_some_and(|named| named == top.join(&listed))
            }
            false => is_missing(&tree.join(".git")),
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

    /// Whether others have taken off a registration that was recorded. They do so with its worktree: that one is gone, but
    /// not with the disk that it was on, and nobody had locked its registration. This program locks registrations of its
    /// own, and takes the `.git` file of the worktree away before the registration, and a directory around the worktree
    /// after it.
    fn is_taken_off(&self, admin: &Path) -> bool {
        let recorded = self.before.get(&admin.join("gitdir")).map(|node| &node.kind);
        let Some(NodeKind::File(StoredContent::Memory(bytes))) = recorded else {
            return false;
        };
        let Some((top, tree)) = self.tree_of(admin, bytes) else {
            return false;
        };
        let name = admin.file_name().and_then(OsStr::to_str).unwrap_or_default();
        let is_ours = name.starts_with(OUR_WORKTREES);
        let mut around = tree.ancestors().skip(1).map(Path::is_dir);
        match (is_missing(&tree), is_ours) {
            (true, false) => around.next() == Some(true) && !self.before.contains_key(&admin.join("locked")),
            (true, true) => around.take(2).any(|is_there| is_there),
            (false, false) => false,
            (false, true) => {
                is_missing(&tree.join(".git")) || pointer_of(&tree).is_some_and(|named| named != top.join(admin))
            }
        }
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

    /// The entries in and below a registration that are more than data. `None` if it cannot be read.
    fn no_data_in(&self, admin: &Path) -> Option<Vec<PathBuf>> {
        let mut other = Vec::new();
        for (path, kind, _) in self.entries(admin).ok()? {
            if !kind.is_dir() {
                if !self.is_data(admin, &path) {
                    other.push(path);
                }
                continue;
            }
            let dir = path.file_name().and_then(OsStr::to_str).unwrap_or_default();
            match self.entries(&path) {
                Ok(listed) if ["logs", "refs", "reftable", "info"].contains(&dir) => {
                    let below = listed.into_iter().map(|(path, ..)| path);
                    other.extend(below.filter(|path| !self.is_data_in(dir, path)));
                }
                _ => other.push(path),
            }
        }
        Some(other)
    }

    /// Whether this is a file that nothing executes.
    fn is_plain(&self, path: &Path) -> bool {
        at::stat_below(&self.root, path).is_ok_and(|data| is_plain(&data))
    }

    fn text(&self, path: &Path) -> Option<Vec<u8>> {
        read(&mut at::file(&self.root, path).ok()?)
    }

    /// Whether an entry of a registration, which is no directory, is data.
    fn is_data(&self, admin: &Path, path: &Path) -> bool {
        if !self.is_plain(path) {
            return false;
        }
        match path.file_name().and_then(OsStr::to_str) {
            Some("commondir") => self
                .text(path)
                .is_some_and(|text| text.trim_ascii_end() == COMMON_DIR || text.is_empty()),
            Some(SETTINGS) => {
                let git = admin.parent().and_then(Path::parent);
                let of_repository = git.and_then(|git| self.text(&git.join(SETTINGS)));
                of_repository.is_some() && self.text(path) == of_repository
            }
            name => name.is_some_and(|name| DATA_FILES.contains(&name)),
        }
    }

    /// The same for an entry of one of its directories.
    fn is_data_in(&self, dir: &str, path: &Path) -> bool {
        let name = path.file_name().and_then(OsStr::to_str).unwrap_or_default();
        let is_named = match dir {
            "logs" => name == "HEAD",
            "info" => path.ends_with(SPARSE),
            "refs" => name == "heads" && self.text(path).is_some_and(|text| text.trim_ascii_end() == NO_REFS),
            "reftable" => ["tables.list", "tables.list.lock"].contains(&name) || name.ends_with(".ref"),
            _ => false,
        };
        is_named && self.is_plain(path)
    }
}
