//! Git's index for commands from which files are hidden: the entries of hidden files are marked, so that git treats
//! these files as unchanged, does not print their contents as removed, and does not record them as empty. A command
//! that cannot write an index sees a marked copy of it. For a command that can write it, the marks are set in the index
//! itself and removed when the command has ended. Hidden files that git does not track are added to the copy of
//! `info/exclude` that a command sees, or, if there is none, to the patterns in the private home, so that git does not
//! add them. A file that is added nevertheless is removed from the index when the command has ended.

use super::at;
use crate::base::event::PathChange;
use crate::base::git_index::{self, IndexEntry, NextEntry};
use crate::base::grant::{ADDED_EMPTY, Undone};
use crate::base::sync::lock;
use crate::process::confine::spec::WorkspaceReach;
use crate::process::temporary::{self, Temporary};
use crate::process::{Confinement, SandboxLevel, is_git_dir};
use rustix::fs::{CWD, FileType, Mode, OFlags, openat};
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

/// Upper limit in bytes for an index: some four million files.
const MOST_BYTES: u64 = 512 << 20;
/// How often, and after which pauses, a locked index is tried again: another command of the run may hold it.
const LOCK_TRIES: usize = 20;
const LOCK_PAUSE: Duration = Duration::from_millis(25);
/// Upper limit in bytes for a `.git` file, which contains one path.
const MOST_POINTER: u64 = 8192;
/// Upper limit in bytes for `info/exclude`.
const MOST_EXCLUDE: u64 = 4 << 20;
/// The file with ignore patterns, in a git directory.
const EXCLUDE: &str = "info/exclude";
/// The index, in a git directory.
const INDEX: &str = "index";
/// The file with ignore patterns, in the home: git reads it if no setting names another file.
const USER_EXCLUDE: &str = ".config/git/ignore";
/// Beginning of the names of files that say which marks must be removed from an index. A killed process leaves them.
const MARKS: &str = "marks-";
/// Upper limit for the copies of one index: different files may be hidden from commands of steps, of servers and of the
/// model.
const MOST_COPIES: usize = 8;

/// Paths relative to the top of a repository.
type Names = BTreeSet<Vec<u8>>;

/// The files of a repository that a command does not see.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
struct Unseen {
    names: Names,
    /// The top of the repository.
    top: PathBuf,
    /// If the workspace is a subdirectory of the repository: its path, with a slash at the end. Nothing else of the tree is
    /// mounted.
    only_below: Option<Vec<u8>>,
}

impl Unseen {
    /// Conflicts outside the workspace stay visible.
    fn has(&self, entry: &IndexEntry<'_>) -> bool {
        let is_outside = |dir: &Vec<u8>| !entry.in_conflict && !entry.path.starts_with(dir);
        self.names.contains(entry.path) || self.only_below.as_ref().is_some_and(is_outside)
    }
}

/// The indexes of a run's commands.
#[derive(Debug, Default)]
pub(super) struct IndexViews {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// The directory of the copies, created with the first one.
    dir: Option<Temporary>,
    /// The copies of each index in its last read state, by the files that are hidden in it.
    copies: BTreeMap<PathBuf, MarkedCopies>,
    /// The number of copies made so far.
    made: u64,
    /// The indexes with marks, by their path in the workspace.
    marked: BTreeMap<PathBuf, InPlace>,
    /// Whether the marks of killed processes were removed.
    is_clean: bool,
}

#[derive(Debug)]
struct MarkedCopies {
    of: FileState,
    /// `None`: git tracks none of the hidden files.
    files: BTreeMap<Unseen, Option<Arc<CopyFile>>>,
}

/// A file for commands, such as a marked copy, removed when none needs it any more.
#[derive(Debug)]
struct CopyFile(PathBuf);

impl Drop for CopyFile {
    fn drop(&mut self) {
        // If this fails, it is removed with its directory when the run ends.
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
    /// The files in which these entries are recorded.
    records: Vec<CopyFile>,
}

/// Metadata that shows whether a file has changed.
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

/// The copies and marks of indexes that one command needs while it runs. On drop, the marks that were set for it in
/// indexes of the workspace are removed.
#[derive(Debug)]
pub(super) struct IndexView {
    views: Arc<IndexViews>,
    workspace: PathBuf,
    root: OwnedFd,
    places: Arc<Places>,
    marked: Vec<PathBuf>,
    writable: Vec<WritableIndex>,
    copies: Vec<Arc<CopyFile>>,
}

/// An index that a command may write.
#[derive(Debug)]
struct WritableIndex {
    /// Its path in the workspace.
    path: PathBuf,
    git_dir: GitDir,
    unseen: Unseen,
    /// The hidden files that were empty in it before.
    empty: Names,
    /// The commit that it was based on before.
    head: Head,
}

impl WritableIndex {
    /// Whether the command recorded a hidden file as empty.
    fn is_recorded(&self, entry: &IndexEntry<'_>) -> bool {
        entry.is_empty && self.unseen.names.contains(entry.path) && !self.empty.contains(entry.path)
    }
}

impl IndexView {
    /// Call it when the command has ended. Removes entries from the indexes that the command recorded for hidden files,
    /// which are empty for it. Returns these files.
    pub fn end(self) -> Vec<Undone> {
        self.writable.iter().flat_map(|index| self.taken_out(index)).collect()
    }

    fn taken_out(&self, index: &WritableIndex) -> Vec<Undone> {
        let mut found = Names::new();
        // If it cannot be read here, git cannot read it either.
        let _ = rewritten(&self.root, &index.path, &mut |entry| {
            if index.is_recorded(&entry) {
                found.insert(entry.path.to_vec());
            }
            NextEntry::marked_if(entry.is_marked)
        });
        let of_tree = |name: &[u8]| {
            let path = index.unseen.top.join(OsStr::from_bytes(name));
            path.strip_prefix(&self.workspace)
                .map(Path::to_path_buf)
                .unwrap_or(path)
        };
        // If the file is really empty, it was recorded correctly.
        found.retain(|name| {
            let data = at::stat_below(&self.root, &of_tree(name));
            !data.is_ok_and(|data| data.st_size == 0)
        });
        if found.is_empty() {
            return Vec::new();
        }
        let out = set(&self.root, &index.path, &mut |entry| match found.contains(entry.path)
            && index.is_recorded(&entry)
        {
            true => NextEntry::Removed,
            false => NextEntry::marked_if(entry.is_marked),
        });
        // A commit that the command made may contain these files too.
        let restored = out.is_ok() && Head::of(&self.places, &index.git_dir) == index.head;
        let undone = found.iter().map(|name| Undone {
            path: of_tree(name).to_string_lossy().into_owned(),
            code: ADDED_EMPTY.to_owned(),
            rule: None,
            restored,
            change: PathChange::Added,
        });
        undone.collect()
    }
}

/// The content of the files that determine the current commit of a repository: `HEAD`, and the branch that it names.
#[derive(Debug, PartialEq, Eq)]
struct Head(Vec<Option<Vec<u8>>>);

impl Head {
    fn of(places: &Places, git_dir: &GitDir) -> Self {
        let read = |dir: &GitDir, name: &Path| {
            let mut bytes = Vec::new();
            let file = dir.file(name).ok()??;
            file.take(MOST_POINTER).read_to_end(&mut bytes).ok()?;
            Some(bytes)
        };
        let text = |bytes: &[u8]| PathBuf::from(OsStr::from_bytes(bytes.trim_ascii()));
        let head = read(git_dir, Path::new("HEAD"));
        // A linked worktree has its branches elsewhere.
        let common = read(git_dir, Path::new("commondir")).map(|dir| git_dir.path().join(text(&dir)));
        let common = common.and_then(|dir| places.git_dir(&dir.canonicalize().ok()?));
        let common = common.as_ref().unwrap_or(git_dir);
        let branch = head.as_deref().and_then(|head| head.strip_prefix(b"ref:"));
        let branch = branch.and_then(|branch| read(common, &text(branch)));
        // In this format a branch is not a file.
        let tables = read(common, Path::new("reftable/tables.list"));
        Self(vec![head, branch, tables])
    }
}

/// The directories in which commands see git directories: the workspace, and those that they may read. A git directory
/// elsewhere is ignored, even if a file or link in the workspace leads to it.
#[derive(Debug)]
struct Places(Vec<(PathBuf, Arc<OwnedFd>)>);

impl Places {
    fn of(confinement: &Confinement) -> Result<Self, Errno> {
        let workspace = (
            confinement.workspace.clone(),
            Arc::new(at::root(&confinement.workspace)?),
        );
        let outside = confinement
            .readable
            .iter()
            .filter(|dir| !dir.starts_with(&confinement.workspace));
        let outside = outside.filter_map(|dir| Some((dir.canonicalize().ok()?, Arc::new(at::root(dir).ok()?))));
        Ok(Self(std::iter::once(workspace).chain(outside).collect()))
    }

    /// The git directory at a canonical path.
    fn git_dir(&self, path: &Path) -> Option<GitDir> {
        self.0.iter().find_map(|(top, root)| {
            Some(GitDir {
                top: top.clone(),
                root: Arc::clone(root),
                inside: path.strip_prefix(top).ok()?.to_path_buf(),
            })
        })
    }
}

/// A git directory whose files are opened without following links, which a command may have put there.
#[derive(Clone, Debug)]
struct GitDir {
    /// The absolute path of `root`.
    top: PathBuf,
    root: Arc<OwnedFd>,
    /// Its path below `root`.
    inside: PathBuf,
}

impl GitDir {
    fn path(&self) -> PathBuf {
        self.top.join(&self.inside)
    }

    /// Opens a file of it for reading. `None` if nothing or a link is there, or a link on the way.
    fn file(&self, name: &Path) -> Result<Option<File>, Errno> {
        match at::file(&self.root, &self.inside.join(name)) {
            Ok(file) => Ok(Some(file)),
            Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Its index as a directory and a name. Git follows a link; a link that leads out of `root` leads to nothing that a
    /// command sees.
    fn index(&self) -> (GitDir, PathBuf) {
        let path = self.path().join(INDEX);
        let real = path.canonicalize().unwrap_or(path);
        let parent = real.parent().and_then(|dir| dir.strip_prefix(&self.top).ok());
        match (parent, real.file_name()) {
            (Some(inside), Some(name)) => {
                let dir = Self {
                    inside: inside.to_path_buf(),
                    ..self.clone()
                };
                (dir, PathBuf::from(name))
            }
            _ => (self.clone(), PathBuf::from(INDEX)),
        }
    }
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
                // If this fails, the marks stay: git then does not notice changes of these files, but no data is lost.
                let _ = set(&self.root, index, &mut |entry| {
                    NextEntry::marked_if(entry.is_marked && !marked.added.contains(entry.path))
                });
            }
        }
    }
}

impl IndexViews {
    /// Prepares the indexes of the repositories with `hidden` files, so that a command sees these files as unchanged.
    /// If the workspace is a subdirectory of a repository, its index also shows everything outside the workspace as
    /// unchanged. `None` if there is no such repository.
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
        let mut repositories = repositories(hidden);
        if let Some((git_dir, workspace)) = outer(confinement) {
            repositories.entry(git_dir).or_default().only_below = Some(workspace);
        }
        if repositories.is_empty() {
            return Ok(None);
        }
        self.clean();
        let places = Arc::new(Places::of(confinement).map_err(|error| error.to_string())?);
        let mut view = IndexView {
            views: Arc::clone(self),
            workspace: confinement.workspace.clone(),
            root: at::root(&confinement.workspace).map_err(|error| error.to_string())?,
            places: Arc::clone(&places),
            marked: Vec::new(),
            writable: Vec::new(),
            copies: Vec::new(),
        };
        let mut without_exclude = Names::new();
        for (git_dir, unseen) in repositories {
            let Some(git_dir) = git_dir.canonicalize().ok().and_then(|dir| places.git_dir(&dir)) else {
                continue;
            };
            let exclude = git_dir.path().join(EXCLUDE);
            let would_add = |place: &Path, why: String| {
                format!(
                    "limit:hidden_files: {}: {why}, so git would add the files that commands must not read",
                    place.display()
                )
            };
            match self
                .exclude(&git_dir, &unseen)
                .map_err(|why| would_add(&exclude, why))?
            {
                Some(copy) => {
                    reach.shown.push((exclude, copy.0.clone()));
                    view.copies.push(copy);
                }
                None => without_exclude.extend(unseen.names.iter().cloned()),
            }
            let (index_dir, name) = git_dir.index();
            let index = index_dir.path().join(&name);
            let said = |why: String| {
                format!(
                    "limit:hidden_files: {}: {why}, so git would take the files that commands must not read as changed",
                    index.display()
                )
            };
            let inside = index.strip_prefix(&confinement.workspace).ok();
            match inside.filter(|inside| may_write(reach, inside)) {
                Some(inside) => {
                    let head = Head::of(&places, &git_dir);
                    let (has_marks, empty) = self.mark(&view, inside, &unseen).map_err(said)?;
                    if has_marks {
                        view.marked.push(inside.to_path_buf());
                    }
                    view.writable.push(WritableIndex {
                        path: inside.to_path_buf(),
                        git_dir,
                        unseen,
                        empty,
                        head,
                    });
                }
                None => {
                    let copy = match self.copy(&index_dir, &name, &unseen) {
                        // Nothing is hidden; git only says that files outside the workspace are deleted.
                        Err(_) if unseen.names.is_empty() => None,
                        copy => copy.map_err(said)?,
                    };
                    if let Some(copy) = copy {
                        reach.shown.push((index, copy.0.clone()));
                        view.copies.push(copy);
                    }
                }
            }
        }
        if !without_exclude.is_empty() {
            // Files that are added nevertheless are removed from the index when the command has ended.
            if let Ok(Some((place, copy))) = self.user_exclude(confinement, &without_exclude) {
                reach.shown.push((place, copy.0.clone()));
                view.copies.push(Arc::new(copy));
            }
        }
        Ok(Some(view))
    }

    /// A list of these files for repositories without `info/exclude`, and the path of the user's ignore file in the
    /// private home, over which it is mounted. `None` without a private home.
    fn user_exclude(&self, confinement: &Confinement, names: &Names) -> io::Result<Option<(PathBuf, CopyFile)>> {
        let home = confinement.env.iter().find(|(name, _)| name == "HOME");
        let mut places = confinement.placed.writable.iter();
        let Some((home, seen)) = home.and_then(|(_, home)| places.find(|(_, seen)| *seen == Path::new(home))) else {
            return Ok(None);
        };
        // A mount needs an existing file. An entry that commands left there is replaced, and no link is followed.
        let (dir, name) = at::parent_made(&at::root(home)?, Path::new(USER_EXCLUDE))?;
        let is_file = at::stat(&dir, name).is_ok_and(|data| FileType::from_raw_mode(data.st_mode).is_file());
        if !is_file {
            at::remove(&dir, name)?;
            let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            openat(&dir, name, flags, Mode::from_raw_mode(0o600))?;
        }
        let mut bytes = Vec::new();
        add_patterns(&mut bytes, names);
        let copy = lock(&self.state).new_copy(&bytes, (0, 0))?;
        Ok(Some((seen.join(USER_EXCLUDE), copy)))
    }

    /// Removes, once, the marks that killed processes left: they would be taken for marks of the user.
    fn clean(&self) {
        let mut state = lock(&self.state);
        if !std::mem::replace(&mut state.is_clean, true) {
            temporary::remove_left(temporary::GIT);
        }
    }

    /// The marked copy of an index; `None` if it needs no marks or does not exist.
    fn copy(&self, dir: &GitDir, name: &Path, unseen: &Unseen) -> Result<Option<Arc<CopyFile>>, String> {
        self.kept_copy(dir, name, unseen, |file, data| {
            let place = (&*dir.root, dir.inside.as_path());
            marked(file, data, place, &mut |entry| marked_too(entry, unseen))
        })
    }

    /// A copy of `info/exclude` that also names the hidden files; `None` if there is no such file.
    fn exclude(&self, git_dir: &GitDir, unseen: &Unseen) -> Result<Option<Arc<CopyFile>>, String> {
        if unseen.names.is_empty() {
            return Ok(None);
        }
        self.kept_copy(git_dir, Path::new(EXCLUDE), unseen, |file, data| {
            let mut bytes = contents(file, data, MOST_EXCLUDE)?;
            bytes.push(b'\n');
            add_patterns(&mut bytes, &unseen.names);
            Ok(Some(bytes))
        })
    }

    /// The copy of a file for these hidden files. `make` creates it, again whenever the file has changed. `None` if the
    /// file does not exist or `make` returns `None`.
    fn kept_copy(
        &self,
        dir: &GitDir,
        name: &Path,
        unseen: &Unseen,
        make: impl FnOnce(&mut File, &Metadata) -> Result<Option<Vec<u8>>, String>,
    ) -> Result<Option<Arc<CopyFile>>, String> {
        let not_opened = |error| match error {
            Errno::INVAL => "it is no regular file".to_owned(),
            error => error.to_string(),
        };
        let Some(mut file) = dir.file(name).map_err(not_opened)? else {
            return Ok(None);
        };
        let path = &dir.path().join(name);
        let data = file.metadata().map_err(|error| error.to_string())?;
        let of = FileState::of(&data);
        let mut state = lock(&self.state);
        let known = state.copies.get(path).filter(|copies| copies.of == of);
        if let Some(copy) = known.and_then(|copies| copies.files.get(unseen)) {
            return Ok(copy.clone());
        }
        let copy = make(&mut file, &data)?.map(|bytes| state.new_copy(&bytes, of.modified));
        let copy = copy
            .transpose()
            .map_err(|error| temporary::why_not(&error))?
            .map(Arc::new);
        state.remember(path, of, unseen.clone(), copy.clone());
        Ok(copy)
    }

    /// Marks an index of the workspace for one more command. Returns whether it has marks that must be removed later,
    /// and which hidden files are empty in it.
    fn mark(&self, view: &IndexView, index: &Path, unseen: &Unseen) -> Result<(bool, Names), String> {
        let root = &view.root;
        let mut state = lock(&self.state);
        let mut conflict = None;
        let mut new = Names::new();
        let mut empty = Names::new();
        rewritten(root, index, &mut |entry| {
            let is_hidden = unseen.has(&entry);
            if entry.is_empty && is_hidden {
                empty.insert(entry.path.to_vec());
            }
            if is_hidden && entry.in_conflict {
                conflict = Some(String::from_utf8_lossy(entry.path).into_owned());
            } else if is_hidden && !entry.is_marked {
                new.insert(entry.path.to_vec());
            }
            NextEntry::marked_if(entry.is_marked)
        })?;
        if let Some(path) = conflict {
            return Err(format!(
                "{path} is in a merge conflict, which a command that writes the index could not be kept from resolving; resolve it"
            ));
        }
        let mut record = None;
        if !new.is_empty() {
            // Recorded first, so that no mark is ever without a record.
            let made = state.new_record(&view.workspace, index, &new);
            record = Some(made.map_err(|error| temporary::why_not(&error))?);
            set(root, index, &mut |entry| marked_too(entry, unseen))?;
        }
        let entry = state.marked.entry(index.to_path_buf()).or_default();
        entry.added.append(&mut new);
        entry.records.extend(record);
        if entry.users == 0 && entry.added.is_empty() {
            state.marked.remove(index);
            return Ok((false, empty));
        }
        entry.users += 1;
        Ok((true, empty))
    }
}

impl State {
    /// Remembers the copy of a file in this state for these hidden files.
    fn remember(&mut self, path: &Path, of: FileState, unseen: Unseen, copy: Option<Arc<CopyFile>>) {
        let is_current = self
            .copies
            .get(path)
            .is_some_and(|copies| copies.of == of && copies.files.len() < MOST_COPIES);
        if !is_current {
            let files = BTreeMap::new();
            self.copies.insert(path.to_path_buf(), MarkedCopies { of, files });
        }
        if let Some(copies) = self.copies.get_mut(path) {
            copies.files.insert(unseen, copy);
        }
    }

    /// Writes a copy with the times of the original: git compares them with those of the files.
    fn new_copy(&mut self, bytes: &[u8], modified: (i64, i64)) -> io::Result<CopyFile> {
        let (file, copy) = self.new_file("index-", bytes)?;
        at::set_modified(&file, modified)?;
        Ok(copy)
    }

    /// Records the marks that this process makes, for [`unmark_left`]: the workspace, the index in it, and the entries, each
    /// with a NUL byte at its end.
    fn new_record(&mut self, workspace: &Path, index: &Path, names: &Names) -> io::Result<CopyFile> {
        let paths = [workspace, index].map(|path| path.as_os_str().as_bytes());
        let mut bytes = Vec::new();
        for part in paths.into_iter().chain(names.iter().map(Vec::as_slice)) {
            bytes.extend_from_slice(part);
            bytes.push(0);
        }
        Ok(self.new_file(MARKS, &bytes)?.1)
    }

    fn new_file(&mut self, prefix: &str, bytes: &[u8]) -> io::Result<(File, CopyFile)> {
        let dir = match self.dir.take() {
            Some(dir) => dir,
            None => Temporary::make(temporary::GIT)?,
        };
        self.made += 1;
        let path = dir.path().join(format!("{prefix}{}", self.made));
        self.dir = Some(dir);
        let mut file = File::create_new(&path)?;
        let made = CopyFile(path);
        file.write_all(bytes)?;
        Ok((file, made))
    }
}

/// Removes the marks that a killed process recorded in its temporary directory. `false` if an index is locked or cannot be
/// written, so that a later process has to try again.
pub(in crate::process) fn unmark_left(dir: &Path) -> bool {
    let entries = std::fs::read_dir(dir).into_iter().flatten().flatten();
    let records = entries.filter(|entry| entry.file_name().as_bytes().starts_with(MARKS.as_bytes()));
    records.filter(|record| !unmark(&record.path())).count() == 0
}

fn unmark(record: &Path) -> bool {
    let read = || {
        let mut file = opened(record).ok()??;
        let data = file.metadata().ok()?;
        contents(&mut file, &data, MOST_BYTES).ok()
    };
    let bytes = read().unwrap_or_default();
    let mut parts = bytes.split(|byte| *byte == 0);
    let (Some(workspace), Some(index)) = (parts.next(), parts.next()) else {
        return true;
    };
    let names: BTreeSet<&[u8]> = parts.collect();
    let index = Path::new(OsStr::from_bytes(index));
    // If the workspace or its repository no longer exists, there are no marks.
    let Ok(root) = at::root(Path::new(OsStr::from_bytes(workspace))) else {
        return true;
    };
    let unmarked = |entry: IndexEntry<'_>| NextEntry::marked_if(entry.is_marked && !names.contains(entry.path));
    at::stat_below(&root, index).is_err() || set(&root, index, &mut { unmarked }).is_ok()
}

/// The git directories of the repositories that contain these files, and the files relative to each repository's top.
/// For nested repositories all count, because the outer one may track the file too.
fn repositories(hidden: &[PathBuf]) -> BTreeMap<PathBuf, Unseen> {
    let mut dirs: BTreeMap<&Path, Option<PathBuf>> = BTreeMap::new();
    let mut found: BTreeMap<PathBuf, Unseen> = BTreeMap::new();
    for path in hidden {
        for top in path.ancestors().skip(1) {
            let dir = dirs.entry(top).or_insert_with(|| git_dir(top));
            if let Some(dir) = dir
                && let Ok(name) = path.strip_prefix(top)
            {
                let unseen = found.entry(dir.clone()).or_default();
                unseen.top = top.to_path_buf();
                unseen.names.insert(name.as_os_str().as_bytes().to_vec());
            }
        }
    }
    found
}

/// The git directory of the repository of which the workspace is a subdirectory, if commands see it, and the path of the
/// workspace in that repository with a slash at the end. At level `landlock` commands see the rest of the tree.
fn outer(confinement: &Confinement) -> Option<(PathBuf, Vec<u8>)> {
    if confinement.level != SandboxLevel::Full {
        return None;
    }
    let workspace = &confinement.workspace;
    let mut dirs = workspace.ancestors().map(|top| (top, git_dir(top)));
    let (top, dir) = dirs.find_map(|(top, dir)| Some((top, dir?)))?;
    let below = workspace.strip_prefix(top).ok()?.as_os_str().as_bytes();
    let is_seen = confinement.readable.iter().any(|seen| dir.starts_with(seen));
    (!below.is_empty() && is_seen).then(|| (dir, [below, b"/"].concat()))
}

/// The entry, marked if it has a mark already or is one of these hidden files.
fn marked_too(entry: IndexEntry<'_>, unseen: &Unseen) -> NextEntry {
    NextEntry::marked_if(entry.is_marked || unseen.has(&entry))
}

/// Adds a line with the pattern of each path. A name with a line break has no pattern.
fn add_patterns(bytes: &mut Vec<u8>, names: &Names) {
    for name in names.iter().filter(|name| !name.contains(&b'\n')) {
        bytes.extend(exact_pattern(name));
        bytes.push(b'\n');
    }
}

/// The `.gitignore` pattern that matches only this path, from the top of the repository.
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

/// The git directory of the repository whose top is `top`. Git does not accept one without these entries.
fn git_dir(top: &Path) -> Option<PathBuf> {
    let dir = named_git_dir(top)?;
    is_git_dir(&dir).then_some(dir)
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

/// Opens the entry at a path for reading, without following it if it is a link. `None` if it does not exist. Never
/// waits for a FIFO.
fn opened(path: &Path) -> io::Result<Option<File>> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    match openat(CWD, path, flags, Mode::empty()) {
        Ok(file) => Ok(Some(File::from(file))),
        Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => Ok(None),
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

/// An index with other entries; `None` if none changes. `dir`: its directory, below an open one.
fn marked(
    file: &mut File,
    data: &Metadata,
    (root, dir): (&OwnedFd, &Path),
    next: &mut dyn FnMut(IndexEntry<'_>) -> NextEntry,
) -> Result<Option<Vec<u8>>, String> {
    let not_read = |_| "it is no index of a version that is known (2 to 4)".to_owned();
    let rewritten = git_index::change(&contents(file, data, MOST_BYTES)?, next).map_err(not_read)?;
    if let Some(shared) = rewritten.shared {
        let of_shared = |error: io::Error| format!("{shared}: {error}");
        let mut file = at::file(root, &dir.join(&shared)).map_err(|error| of_shared(error.into()))?;
        let data = file.metadata().map_err(of_shared)?;
        let others = git_index::change(&contents(&mut file, &data, MOST_BYTES)?, next).map_err(not_read)?;
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
fn set(root: &OwnedFd, index: &Path, next: &mut dyn FnMut(IndexEntry<'_>) -> NextEntry) -> Result<(), String> {
    let (dir, name) = at::parent(root, index).map_err(|error| error.to_string())?;
    let lock_file = locked(&dir).map_err(|error| format!("{LOCK_NAME}: {error}"))?;
    let done = rewritten(root, index, next).and_then(|new| match new {
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

/// An index of the workspace with other entries; `None` if none changes or it does not exist.
fn rewritten(
    root: &OwnedFd,
    index: &Path,
    next: &mut dyn FnMut(IndexEntry<'_>) -> NextEntry,
) -> Result<Option<NewIndex>, String> {
    let mut file = match at::file(root, index) {
        Ok(file) => file,
        Err(Errno::NOENT) => return Ok(None),
        Err(error) => return Err(error.to_string()),
    };
    let old = file.metadata().map_err(|error| error.to_string())?;
    let dir = index.parent().unwrap_or(Path::new(""));
    let bytes = marked(&mut file, &old, (root, dir), next)?;
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
