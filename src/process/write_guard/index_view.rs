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
/// The most copies of one index: commands of steps, of servers and of the model may have different files hidden.
const MOST_COPIES: usize = 8;

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
    /// The copies of each index as it was last read, by the files that are hidden in it.
    copies: BTreeMap<PathBuf, MarkedCopies>,
    /// The number of copies made so far.
    made: u64,
    /// The indexes with marks, by their path in the workspace.
    marked: BTreeMap<PathBuf, InPlace>,
}

#[derive(Debug)]
struct MarkedCopies {
    of: FileState,
    /// `None`: git tracks none of the hidden files.
    files: BTreeMap<Names, Option<Arc<CopyFile>>>,
}

/// A file with a marked copy, removed when no command needs it any more.
#[derive(Debug)]
struct CopyFile(PathBuf);

impl Drop for CopyFile {
    fn drop(&mut self) {
        // The directory that it lies in is removed at the end in any case.
        let _ = std::fs::remove_file(&self.0);
    }
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

/// What one command needs of the indexes while it runs. On drop the marks that were made for it in indexes of the
/// workspace are removed.
#[derive(Debug)]
pub(super) struct IndexView {
    views: Arc<IndexViews>,
    root: OwnedFd,
    marked: Vec<PathBuf>,
    copies: Vec<Arc<CopyFile>>,
}

impl Drop for IndexView {
    fn drop(&mut self) {
        let mut state = lock(&self.views.state);
        for index in &self.marked {
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
    /// there is no such repository.
    ///
    /// # Errors
    /// An index that cannot be read or marked: the command must not be started.
    pub fn show(
        self: &Arc<Self>,
        hidden: &[PathBuf],
        confinement: &Confinement,
        reach: &mut WorkspaceReach,
        may_write: impl Fn(&WorkspaceReach, &Path) -> bool,
    ) -> Result<Option<IndexView>, String> {
        let repositories = repositories(hidden);
        if repositories.is_empty() {
            return Ok(None);
        }
        let mut view = IndexView {
            views: Arc::clone(self),
            root: at::root(&confinement.workspace).map_err(|error| error.to_string())?,
            marked: Vec::new(),
            copies: Vec::new(),
        };
        for (index, names) in repositories {
            let said = |why: String| {
                format!(
                    "limit:hidden_files: {}: {why}, so git would take the files that commands must not read as changed",
                    index.display()
                )
            };
            let inside = index.strip_prefix(&confinement.workspace).ok();
            match inside.filter(|inside| may_write(reach, inside)) {
                Some(inside) => {
                    if self.mark(&view.root, inside, &names).map_err(said)? {
                        view.marked.push(inside.to_path_buf());
                    }
                }
                None => {
                    if let Some(copy) = self.copy(&index, names).map_err(said)? {
                        reach.shown.push((index, copy.0.clone()));
                        view.copies.push(copy);
                    }
                }
            }
        }
        Ok(Some(view))
    }

    /// The marked copy of an index; `None` if it needs no marks or does not exist.
    fn copy(&self, index: &Path, names: Names) -> Result<Option<Arc<CopyFile>>, String> {
        let mut file = match File::open(index) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error.to_string()),
        };
        let data = file.metadata().map_err(|error| error.to_string())?;
        let of = FileState::of(&data);
        let mut state = lock(&self.state);
        let known = state.copies.get(index).filter(|copies| copies.of == of);
        if let Some(copy) = known.and_then(|copies| copies.files.get(&names)) {
            return Ok(copy.clone());
        }
        let bytes = marked(&mut file, &data, index.parent(), &mut |name, now| {
            now || names.contains(name)
        })?;
        let copy = bytes.map(|bytes| state.new_copy(&bytes, of.modified)).transpose();
        let copy = copy.map_err(|error| temporary::why_not(&error))?.map(Arc::new);
        let copies = state.copies.entry(index.to_path_buf()).or_insert_with(|| MarkedCopies {
            of,
            files: BTreeMap::new(),
        });
        let now = FileState::of(&data);
        if copies.of != now || copies.files.len() == MOST_COPIES {
            copies.of = now;
            copies.files.clear();
        }
        copies.files.insert(names, copy.clone());
        Ok(copy)
    }

    /// Marks an index of the workspace for one more command. Returns whether it has marks that must go again.
    fn mark(&self, root: &OwnedFd, index: &Path, names: &Names) -> Result<bool, String> {
        let mut state = lock(&self.state);
        let mut new = Names::new();
        set(root, index, &mut |name, now| {
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
    fn new_copy(&mut self, bytes: &[u8], modified: (i64, i64)) -> io::Result<CopyFile> {
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
        Ok(CopyFile(path))
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
    // Most indexes need no change, and then nobody is kept away.
    if rewritten(root, index, is_marked)?.is_none() {
        return Ok(());
    }
    let (dir, name) = at::parent(root, index).map_err(|error| error.to_string())?;
    let lock_file = locked(&dir).map_err(|error| format!("{LOCK_NAME}: {error}"))?;
    let done = rewritten(root, index, is_marked).and_then(|new| match new {
        Some(new) => replace(&dir, name, lock_file, &new)
            .map(|()| true)
            .map_err(|error| error.to_string()),
        None => Ok(false),
    });
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

/// A new content of an index, and the status of the old one.
struct NewIndex {
    bytes: Vec<u8>,
    old: std::fs::Metadata,
}

/// An index of the workspace with other marks; `None` if none changes or it does not exist.
fn rewritten(
    root: &OwnedFd,
    index: &Path,
    is_marked: &mut dyn FnMut(&[u8], bool) -> bool,
) -> Result<Option<NewIndex>, String> {
    let mut file = match at::file(root, index) {
        Ok(file) => file,
        Err(Errno::NOENT) => return Ok(None),
        Err(error) => return Err(error.to_string()),
    };
    let old = file.metadata().map_err(|error| error.to_string())?;
    let dir = at::dir(root, index.parent().unwrap_or(Path::new(""))).map_err(|error| error.to_string())?;
    let bytes = marked(&mut file, &old, Some(Path::new(&at::own_link(&dir))), is_marked)?;
    Ok(bytes.map(|bytes| NewIndex { bytes, old }))
}

/// Gives the lock file this content and makes it the index, with the time of the old one: git compares it with the times
/// of files.
fn replace(dir: &OwnedFd, name: &OsStr, mut lock_file: File, new: &NewIndex) -> io::Result<()> {
    lock_file.write_all(&new.bytes)?;
    lock_file.set_permissions(new.old.permissions())?;
    at::set_modified(&lock_file, (new.old.mtime(), new.old.mtime_nsec()))?;
    Ok(at::rename_over(dir, LOCK_NAME, name)?)
}
