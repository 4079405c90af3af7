//! Git's index for commands from which files are hidden: the entries of hidden files are marked, so that git takes these
//! files as unchanged, prints no contents of theirs as removed, and records none as empty. A command that cannot write an
//! index sees a marked copy of it. One that can write it gets the marks in the index itself; they are removed when it has
//! ended. Hidden files that git does not track are in the copy of `info/exclude` that a command sees, so that none is
//! added.

use super::at;
use crate::base::git_index::{self, IndexEntry};
use crate::base::sync::lock;
use crate::process::Confinement;
use crate::process::confine::spec::WorkspaceReach;
use crate::process::temporary::{self, Temporary};
use rustix::fs::{CWD, Mode, OFlags, openat};
use rustix::io::Errno;
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::fs::{File, Metadata};
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
/// The most bytes of `info/exclude`.
const MOST_EXCLUDE: u64 = 4 << 20;
/// Patterns for files that git does not track, in a git directory.
const EXCLUDE: &str = "info/exclude";
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
        // If this fails, it goes with its directory when the run ends.
        let _ = std::fs::remove_file(&self.0);
    }
}

/// The marks in one index.
#[derive(Debug, Default)]
struct InPlace {
    /// The running commands that need them.
    users: usize,
    /// The entries that had no mark before.
    added: Names,
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
    fn of(data: &Metadata) -> Self {
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
                let _ = set(&self.root, index, &mut |entry| {
                    entry.is_marked && !marked.added.contains(entry.path)
                });
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
        for (git_dir, names) in repositories {
            let exclude = git_dir.join(EXCLUDE);
            let copy = self.exclude(&exclude, &names).map_err(|why| {
                format!(
                    "limit:hidden_files: {}: {why}, so git would add the files that commands must not read",
                    exclude.display()
                )
            })?;
            if let Some(copy) = copy {
                reach.shown.push((exclude, copy.0.clone()));
                view.copies.push(copy);
            }
            let index = git_dir.join("index");
            // Git follows a link.
            let index = index.canonicalize().unwrap_or(index);
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
                    if let Some(copy) = self.copy(&index, &names).map_err(said)? {
                        reach.shown.push((index, copy.0.clone()));
                        view.copies.push(copy);
                    }
                }
            }
        }
        Ok(Some(view))
    }

    /// The marked copy of an index; `None` if it needs no marks or does not exist.
    fn copy(&self, index: &Path, names: &Names) -> Result<Option<Arc<CopyFile>>, String> {
        self.kept_copy(index, names, |file, data| {
            marked(file, data, index.parent(), &mut |entry| is_marked(entry, names))
        })
    }

    /// A copy of `info/exclude` that also names the hidden files; `None` if there is no such file.
    fn exclude(&self, path: &Path, names: &Names) -> Result<Option<Arc<CopyFile>>, String> {
        self.kept_copy(path, names, |file, data| {
            let mut bytes = contents(file, data, MOST_EXCLUDE)?;
            bytes.push(b'\n');
            for name in names.iter().filter(|name| !name.contains(&b'\n')) {
                bytes.extend(exact_pattern(name));
                bytes.push(b'\n');
            }
            Ok(Some(bytes))
        })
    }

    /// The copy of a file for these names: what `make` returns, as long as the file stays as it is. `None` if the file does
    /// not exist or `make` returns `None`.
    fn kept_copy(
        &self,
        path: &Path,
        names: &Names,
        make: impl FnOnce(&mut File, &Metadata) -> Result<Option<Vec<u8>>, String>,
    ) -> Result<Option<Arc<CopyFile>>, String> {
        let Some(mut file) = opened(path).map_err(|error| error.to_string())? else {
            return Ok(None);
        };
        let data = file.metadata().map_err(|error| error.to_string())?;
        let of = FileState::of(&data);
        let mut state = lock(&self.state);
        let known = state.copies.get(path).filter(|copies| copies.of == of);
        if let Some(copy) = known.and_then(|copies| copies.files.get(names)) {
            return Ok(copy.clone());
        }
        let copy = make(&mut file, &data)?.map(|bytes| state.new_copy(&bytes, of.modified));
        let copy = copy
            .transpose()
            .map_err(|error| temporary::why_not(&error))?
            .map(Arc::new);
        state.remember(path, of, names.clone(), copy.clone());
        Ok(copy)
    }

    /// Marks an index of the workspace for one more command. Returns whether it has marks that must go again.
    fn mark(&self, root: &OwnedFd, index: &Path, names: &Names) -> Result<bool, String> {
        let mut state = lock(&self.state);
        let mut conflict = None;
        let mut new = Names::new();
        rewritten(root, index, &mut |entry| {
            let is_hidden = names.contains(entry.path);
            if is_hidden && entry.in_conflict {
                conflict = Some(String::from_utf8_lossy(entry.path).into_owned());
            } else if is_hidden && !entry.is_marked {
                new.insert(entry.path.to_vec());
            }
            entry.is_marked
        })?;
        if let Some(path) = conflict {
            return Err(format!(
                "{path} is in a merge conflict, which a command that writes the index could not be kept from resolving; resolve it"
            ));
        }
        if !new.is_empty() {
            set(root, index, &mut |entry| is_marked(entry, names))?;
        }
        let entry = state.marked.entry(index.to_path_buf()).or_default();
        entry.added.append(&mut new);
        if entry.users == 0 && entry.added.is_empty() {
            state.marked.remove(index);
            return Ok(false);
        }
        entry.users += 1;
        Ok(true)
    }
}

impl State {
    /// Remembers the copy of a file in this state for these names.
    fn remember(&mut self, path: &Path, of: FileState, names: Names, copy: Option<Arc<CopyFile>>) {
        let is_current = self
            .copies
            .get(path)
            .is_some_and(|copies| copies.of == of && copies.files.len() < MOST_COPIES);
        if !is_current {
            let files = BTreeMap::new();
            self.copies.insert(path.to_path_buf(), MarkedCopies { of, files });
        }
        if let Some(copies) = self.copies.get_mut(path) {
            copies.files.insert(names, copy);
        }
    }

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

/// The git directories of the repositories that contain these files, and the files relative to each repository's top. Of
/// nested ones all count: whatever the inner one is, the outer one may track the file.
fn repositories(hidden: &[PathBuf]) -> BTreeMap<PathBuf, Names> {
    let mut dirs: BTreeMap<&Path, Option<PathBuf>> = BTreeMap::new();
    let mut found: BTreeMap<PathBuf, Names> = BTreeMap::new();
    for path in hidden {
        for top in path.ancestors().skip(1) {
            let dir = dirs.entry(top).or_insert_with(|| git_dir(top));
            if let Some(dir) = dir
                && let Ok(name) = path.strip_prefix(top)
            {
                let names = found.entry(dir.clone()).or_default();
                names.insert(name.as_os_str().as_bytes().to_vec());
            }
        }
    }
    found
}

/// Whether an entry has the mark where these files are hidden.
fn is_marked(entry: IndexEntry<'_>, hidden: &Names) -> bool {
    entry.is_marked || hidden.contains(entry.path)
}

/// The pattern of a `.gitignore` that fits this path from the top, and nothing else.
fn exact_pattern(path: &[u8]) -> Vec<u8> {
    let mut pattern = vec![b'/'];
    for byte in path {
        if b"\\*?[ ".contains(byte) {
            pattern.push(b'\\');
        }
        pattern.push(*byte);
    }
    pattern
}

/// The git directory of the repository whose top is `top`. Git takes none without these entries.
fn git_dir(top: &Path) -> Option<PathBuf> {
    let dir = named_git_dir(top)?;
    let has = |name: &str| std::fs::symlink_metadata(dir.join(name)).is_ok();
    (has("HEAD") && (has("objects") || has("commondir"))).then_some(dir)
}

/// The directory that is `.git` in `top`, or that this file or link names.
fn named_git_dir(top: &Path) -> Option<PathBuf> {
    let git = top.join(".git");
    let data = std::fs::symlink_metadata(&git).ok()?;
    if data.is_dir() {
        return Some(git);
    }
    if !data.is_file() {
        return git.canonicalize().ok().filter(|git| git.is_dir());
    }
    let mut text = Vec::new();
    opened(&git).ok()??.take(MOST_POINTER).read_to_end(&mut text).ok()?;
    let named = text.strip_prefix(b"gitdir:")?.trim_ascii();
    top.join(OsStr::from_bytes(named)).canonicalize().ok()
}

/// Opens what is at a path for reading; `None` if nothing is there. Never waits for a FIFO.
fn opened(path: &Path) -> io::Result<Option<File>> {
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    match openat(CWD, path, flags, Mode::empty()) {
        Ok(file) => Ok(Some(File::from(file))),
        Err(Errno::NOENT | Errno::NOTDIR) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// All bytes of a regular file of at most `most` bytes.
fn contents(file: &mut File, data: &Metadata, most: u64) -> Result<Vec<u8>, String> {
    let mut bytes = Vec::new();
    if data.is_file() {
        let read = file.take(most + 1).read_to_end(&mut bytes);
        read.map_err(|error| error.to_string())?;
    }
    match data.is_file() && bytes.len() as u64 <= most {
        true => Ok(bytes),
        false => Err(format!("it is no file of at most {} MiB", most >> 20)),
    }
}

/// An index with marks; `None` if none changes.
fn marked(
    file: &mut File,
    data: &Metadata,
    dir: Option<&Path>,
    is_marked: &mut dyn FnMut(IndexEntry<'_>) -> bool,
) -> Result<Option<Vec<u8>>, String> {
    let not_read = |_| "it is no index of a version that is known (2 to 4)".to_owned();
    let rewritten = git_index::mark(&contents(file, data, MOST_BYTES)?, is_marked).map_err(not_read)?;
    if let Some(shared) = rewritten.shared {
        let of_shared = |error: io::Error| format!("{shared}: {error}");
        let path = dir.map(|dir| dir.join(&shared)).unwrap_or_default();
        let mut file = opened(&path)
            .and_then(|file| file.ok_or_else(|| io::ErrorKind::NotFound.into()))
            .map_err(of_shared)?;
        let data = file.metadata().map_err(of_shared)?;
        let others = git_index::mark(&contents(&mut file, &data, MOST_BYTES)?, is_marked).map_err(not_read)?;
        if others.bytes.is_some() || rewritten.bytes.is_some() {
            return Err(
                "it is split, and entries of a split index cannot be marked (`git update-index --no-split-index`)"
                    .to_owned(),
            );
        }
    }
    Ok(rewritten.bytes)
}

/// Rewrites an index of the workspace, as git does: through `index.lock`, which also keeps git away. Follows no link.
fn set(root: &OwnedFd, index: &Path, is_marked: &mut dyn FnMut(IndexEntry<'_>) -> bool) -> Result<(), String> {
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
    old: Metadata,
}

/// An index of the workspace with other marks; `None` if none changes or it does not exist.
fn rewritten(
    root: &OwnedFd,
    index: &Path,
    is_marked: &mut dyn FnMut(IndexEntry<'_>) -> bool,
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
