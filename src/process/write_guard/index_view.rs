//! Git's index for commands from which files are hidden: the entries of hidden files have the `skip-worktree` bit, so that
//! git takes these files as unchanged, prints no contents of theirs as removed, and records none as empty. A command that
//! cannot write an index sees a marked copy of it. One that can write it gets the marks in the index itself; they are
//! removed when it has ended.

use super::at;
use crate::base::git_index;
use crate::base::sync::lock;
use crate::process::Confinement;
use crate::process::confine::spec::WorkspaceReach;
use crate::process::temporary::{self, Temporary};
use rustix::fs::{Mode, OFlags, openat};
use rustix::io::Errno;
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// The most bytes of an index: some four million files.
const MOST_BYTES: u64 = 512 << 20;
/// How often, and after which pauses, a locked index is tried again: another command of the run may hold it.
const LOCK_TRIES: usize = 20;
const LOCK_PAUSE: Duration = Duration::from_millis(25);
/// The most bytes of a `.git` file, which holds one path.
const MOST_POINTER: u64 = 8192;

/// The paths of hidden files, relative to the top of a repository.
type Names = BTreeSet<Vec<u8>>;

/// The indexes of a run's commands.
#[derive(Debug, Default)]
pub(super) struct IndexViews {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// Where the copies are; made with the first one.
    dir: Option<Temporary>,
    /// The newest copy of each index.
    copies: BTreeMap<PathBuf, MarkedCopy>,
    /// The number of copies made so far.
    made: u64,
    /// The indexes with marks, by their path in the workspace.
    marked: BTreeMap<PathBuf, InPlace>,
}

#[derive(Debug)]
struct MarkedCopy {
    of: FileState,
    names: Names,
    /// `None`: git tracks none of the hidden files.
    file: Option<PathBuf>,
}

/// The marks in one index.
#[derive(Debug, Default)]
struct InPlace {
    /// The running commands that need them.
    users: usize,
    /// The entries that had no mark before.
    names: Names,
}

/// What tells a file from what it was before.
#[derive(Debug, PartialEq, Eq)]
struct FileState {
    inode: u64,
    size: u64,
    modified: (i64, i64),
    changed: (i64, i64),
}

impl FileState {
    fn of(data: &std::fs::Metadata) -> Self {
        Self {
            inode: data.ino(),
            size: data.size(),
            modified: (data.mtime(), data.mtime_nsec()),
            changed: (data.ctime(), data.ctime_nsec()),
        }
    }
}

/// The marks that one command needs in indexes that it may write; removed on drop.
#[derive(Debug)]
pub(super) struct IndexMarks {
    views: Arc<IndexViews>,
    root: OwnedFd,
    indexes: Vec<PathBuf>,
}

impl Drop for IndexMarks {
    fn drop(&mut self) {
        let mut state = lock(&self.views.state);
        for index in &self.indexes {
            let Some(marked) = state.marked.get_mut(index) else {
                continue;
            };
            marked.users -= 1;
            if marked.users > 0 {
                continue;
            }
            if let Some(marked) = state.marked.remove(index) {
                // If this fails, the marks stay: git then overlooks changes of these files, and loses nothing.
                let _ = set(&self.root, index, &mut |name, now| now && !marked.names.contains(name));
            }
        }
    }
}

impl IndexViews {
    /// Lets a command see the indexes of the repositories that have `hidden` files with these files as unchanged. `None` if
    /// there is nothing to remove when it has ended.
    ///
    /// # Errors
    /// An index that cannot be read or marked: the command must not be started.
    pub fn show(
        self: &Arc<Self>,
        hidden: &[PathBuf],
        confinement: &Confinement,
        reach: &mut WorkspaceReach,
        may_write: impl Fn(&WorkspaceReach, &Path) -> bool,
    ) -> Result<Option<IndexMarks>, String> {
        let mut indexes = Vec::new();
        for (index, names) in repositories(hidden) {
            let said = |why: String| {
                format!(
                    "limit:hidden_files: {}: {why}, so git would take the files that commands must not read as changed",
                    index.display()
                )
            };
            let inside = index.strip_prefix(&confinement.workspace).ok();
            match inside.filter(|inside| may_write(reach, inside)) {
                Some(inside) => {
                    if self.mark(confinement, inside, &names).map_err(said)? {
                        indexes.push(inside.to_path_buf());
                    }
                }
                None => {
                    let copy = self.copy(&index, names).map_err(said)?;
                    reach.shown.extend(copy.map(|copy| (index.clone(), copy)));
                }
            }
        }
        if indexes.is_empty() {
            return Ok(None);
        }
        let root = at::root(&confinement.workspace).map_err(|error| error.to_string())?;
        Ok(Some(IndexMarks {
            views: Arc::clone(self),
            root,
            indexes,
        }))
    }

    /// The marked copy of an index; `None` if it needs no marks or does not exist.
    fn copy(&self, index: &Path, names: Names) -> Result<Option<PathBuf>, String> {
        let mut file = match File::open(index) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error.to_string()),
        };
        let data = file.metadata().map_err(|error| error.to_string())?;
        let of = FileState::of(&data);
        let mut state = lock(&self.state);
        if let Some(copy) = state.copies.get(index)
            && copy.of == of
            && copy.names == names
        {
            return Ok(copy.file.clone());
        }
        let bytes = marked(&mut file, &data, index.parent(), &mut |name, now| {
            now || names.contains(name)
        })?;
        let new = bytes.map(|bytes| state.new_copy(&bytes, of.modified)).transpose();
        let new = new.map_err(|error| temporary::why_not(&error))?;
        let copy = MarkedCopy {
            of,
            names,
            file: new.clone(),
        };
        if let Some(old) = state.copies.insert(index.to_path_buf(), copy).and_then(|old| old.file) {
            // Commands that still see it keep their mount.
            let _ = std::fs::remove_file(old);
        }
        Ok(new)
    }

    /// Marks an index of the workspace for one more command. Returns whether it has marks that must go again.
    fn mark(&self, confinement: &Confinement, index: &Path, names: &Names) -> Result<bool, String> {
        let root = at::root(&confinement.workspace).map_err(|error| error.to_string())?;
        let mut state = lock(&self.state);
        let mut new = Names::new();
        set(&root, index, &mut |name, now| {
            let is_hidden = names.contains(name);
            if is_hidden && !now {
                new.insert(name.to_vec());
            }
            now || is_hidden
        })?;
        let entry = state.marked.entry(index.to_path_buf()).or_default();
        entry.names.append(&mut new);
        if entry.users == 0 && entry.names.is_empty() {
            state.marked.remove(index);
            return Ok(false);
        }
        entry.users += 1;
        Ok(true)
    }
}

impl State {
    /// Writes a copy with the times of the original: git compares them with those of the files.
    fn new_copy(&mut self, bytes: &[u8], modified: (i64, i64)) -> io::Result<PathBuf> {
        let dir = match self.dir.take() {
            Some(dir) => dir,
            None => Temporary::make(temporary::GIT)?,
        };
        self.made += 1;
        let path = dir.path().join(format!("index-{}", self.made));
        self.dir = Some(dir);
        let mut file = File::create_new(&path)?;
        file.write_all(bytes)?;
        at::set_modified(&file, modified)?;
        Ok(path)
    }
}

/// The indexes of the repositories that contain these files, and the files relative to each repository's top.
fn repositories(hidden: &[PathBuf]) -> BTreeMap<PathBuf, Names> {
    let mut tops: BTreeMap<&Path, Option<(&Path, PathBuf)>> = BTreeMap::new();
    let mut indexes: BTreeMap<PathBuf, Names> = BTreeMap::new();
    for path in hidden {
        let Some(parent) = path.parent() else { continue };
        let found = tops
            .entry(parent)
            .or_insert_with(|| parent.ancestors().find_map(|top| Some((top, git_dir(top)?))));
        if let Some((top, git_dir)) = found
            && let Ok(name) = path.strip_prefix(top)
        {
            let names = indexes.entry(git_dir.join("index")).or_default();
            names.insert(name.as_os_str().as_bytes().to_vec());
        }
    }
    indexes
}

/// The git directory of the repository whose top is `top`.
fn git_dir(top: &Path) -> Option<PathBuf> {
    let git = top.join(".git");
    let data = std::fs::symlink_metadata(&git).ok()?;
    if data.is_dir() {
        return Some(git);
    }
    if !data.is_file() {
        return git.canonicalize().ok().filter(|git| git.is_dir());
    }
    let mut text = Vec::new();
    File::open(&git).ok()?.take(MOST_POINTER).read_to_end(&mut text).ok()?;
    let named = text.strip_prefix(b"gitdir:")?.trim_ascii();
    top.join(OsStr::from_bytes(named)).canonicalize().ok()
}

/// An index with marks; `None` if none changes.
fn marked(
    file: &mut File,
    data: &std::fs::Metadata,
    dir: Option<&Path>,
    is_marked: &mut dyn FnMut(&[u8], bool) -> bool,
) -> Result<Option<Vec<u8>>, String> {
    if !data.is_file() || data.len() > MOST_BYTES {
        return Err(format!("it is no file of at most {} MiB", MOST_BYTES >> 20));
    }
    let mut bytes = Vec::new();
    file.take(MOST_BYTES + 1)
        .read_to_end(&mut bytes)
        .map_err(|error| error.to_string())?;
    let not_read = |_| "it is no index of a version that is known (2 to 4)".to_owned();
    let rewritten = git_index::mark(&bytes, is_marked).map_err(not_read)?;
    if let Some(shared) = rewritten.shared {
        let path = dir.map(|dir| dir.join(&shared)).unwrap_or_default();
        let bytes = std::fs::read(&path).map_err(|error| format!("{shared}: {error}"))?;
        if git_index::mark(&bytes, is_marked).map_err(not_read)?.bytes.is_some() || rewritten.bytes.is_some() {
            return Err(
                "it is split, and entries of a split index cannot be marked (`git update-index --no-split-index`)"
                    .to_owned(),
            );
        }
    }
    Ok(rewritten.bytes)
}

/// Rewrites an index of the workspace, as git does: through `index.lock`, which also keeps git away. Follows no link.
fn set(root: &OwnedFd, index: &Path, is_marked: &mut dyn FnMut(&[u8], bool) -> bool) -> Result<(), String> {
    let said = |error: Errno| error.to_string();
    let (dir, name) = match at::parent(root, index) {
        Ok(found) => found,
        Err(Errno::NOENT) => return Ok(()),
        Err(error) => return Err(said(error)),
    };
    let mut lock_file = locked(&dir).map_err(said)?;
    let done = rewrite_locked(&dir, name, root, index, &mut lock_file, is_marked);
    if !matches!(done, Ok(true)) {
        let _ = at::remove(&dir, OsStr::new(LOCK_NAME));
    }
    done.map(drop)
}

const LOCK_NAME: &str = "index.lock";

fn locked(dir: &OwnedFd) -> Result<File, Errno> {
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    for _ in 1..LOCK_TRIES {
        match openat(dir, LOCK_NAME, flags, Mode::from_raw_mode(0o600)) {
            Err(Errno::EXIST) => std::thread::sleep(LOCK_PAUSE),
            opened => return opened.map(File::from),
        }
    }
    openat(dir, LOCK_NAME, flags, Mode::from_raw_mode(0o600)).map(File::from)
}

/// Returns whether the lock file has become the index.
fn rewrite_locked(
    dir: &OwnedFd,
    name: &OsStr,
    root: &OwnedFd,
    index: &Path,
    lock_file: &mut File,
    is_marked: &mut dyn FnMut(&[u8], bool) -> bool,
) -> Result<bool, String> {
    let mut file = match at::file(root, index) {
        Ok(file) => file,
        Err(Errno::NOENT) => return Ok(false),
        Err(error) => return Err(error.to_string()),
    };
    let data = file.metadata().map_err(|error| error.to_string())?;
    let beside = at::own_link(dir);
    let Some(bytes) = marked(&mut file, &data, Some(Path::new(&beside)), is_marked)? else {
        return Ok(false);
    };
    let mut write = || -> io::Result<()> {
        lock_file.write_all(&bytes)?;
        lock_file.set_permissions(data.permissions())?;
        at::set_modified(lock_file, (data.mtime(), data.mtime_nsec()))?;
        Ok(at::rename_over(dir, LOCK_NAME, name)?)
    };
    write().map_err(|error| error.to_string())?;
    Ok(true)
}
