//! The changes of a run: the baseline snapshot of the tree, and the patch against it. Uses its own directory walk and
//! object store: no program runs with the tree as its work tree, no setting, attribute, filter or hook of the tree is
//! used, and nothing is written to the repository's `.git`.

mod build_outputs;
mod cache;
mod checkout;
mod delta;
mod handle_writes;
mod ignored;
mod index;
mod line_ends;
mod loose;
mod name_status;
mod names;
mod object;
mod open;
mod pack;
mod packer;
mod patch_lines;
mod patch_names;
mod paths;
mod private_contents;
mod raw_diff;
mod repository;
mod restore;
mod scan;
mod scan_state;
mod snapshot_limits;
mod store;
mod trees;
mod unknown;

pub(super) use checkout::{STOPPED, checkout};
pub use delta::{Delta, Unpatched, changes};
pub use patch_lines::cr_lines;
pub use private_contents::PrivateContents;
pub use repository::text as regular_text;
pub use repository::{
    Repository, borrowed_text, head, is_bare, is_in_a_checkout, outer_git_dir, owners, repository, repository_at,
};
pub use restore::{Restored, Reversal};
pub use scan_state::MOST_FILE;

use crate::base::sync::lock;
use crate::process::change_times::exact_device;
use crate::process::own_git;
use cache::CachedDir;
use ignored::{Counting, IgnoreJudge, IgnoreRules, TrustedIgnoreFiles, read_patterns};
use index::GitIndex;
use object::{Id, ObjectFormat, ObjectKind};
use open::open_dir;
use pack::{trouble, write_synced};
use scan::STACK;
use scan_state::{Before, PrivateScan, Scan, WalkedDirectory};
use snapshot_limits::{RunEnd, SnapshotLimits, WorkTimes};
use std::collections::BTreeSet;
use std::ffi::CString;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicUsize};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime};
use store::Store;
use tokio_util::sync::CancellationToken;
use trees::ObjectReader;

/// A path relative to the top that is not part of a snapshot. With an identity (device and inode number) only the file that
/// was there at first: a command may put another one there, which is a change like any other.
type HiddenPath = (Vec<u8>, Option<(u64, u64)>);

/// The snapshots of one tree, in a separate object store.
#[derive(Clone, Debug)]
pub struct Shadow {
    /// A bare git directory for the objects, in the run directory.
    dir: PathBuf,
    /// Top of the repository, or the workspace if there is no repository.
    top: PathBuf,
    /// Path of the workspace relative to `top`: `""` or `sub/dir/`.
    prefix: String,
    repository: Option<Repository>,
    format: ObjectFormat,
    /// What is never part of a snapshot.
    hidden: Vec<HiddenPath>,
    /// Contents that are not kept in `dir`.
    private: Option<PrivateContents>,
    /// The end of the run, after which work on the tree is limited to a few seconds.
    end: RunEnd,
    state: Arc<Mutex<State>>,
}

#[derive(Debug)]
struct State {
    store: Store,
    /// The first snapshot of the workspace, and the last.
    base: Option<Arc<CachedDir>>,
    last: Option<Arc<CachedDir>>,
    /// The ignore files that count; `None` before the first snapshot.
    ignore_files: Option<TrustedIgnoreFiles>,
    /// The submodules that the index names, relative to the top of the repository; `None` before it was read for them.
    submodules: Option<BTreeSet<Vec<u8>>>,
    times: WorkTimes,
}

/// The state of the tree at one time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Snapshot {
    /// Object id of the git tree.
    pub tree: String,
}

/// How long a thread that was asked to stop is waited for. One that hangs in git or a file system is left alone.
pub(super) const STOP_TIME: Duration = Duration::from_millis(500);

/// The file in the store that names the tree of the first snapshot.
const BASELINE: &str = "baseline";

impl Shadow {
    /// Converts a path relative to the workspace to one relative to the top of the repository.
    pub fn at_top(&self, path: &str) -> String {
        format!("{}{path}", self.prefix)
    }

    /// The hidden paths at which still is what was there at first, or the others.
    fn hidden_now(&self, replaced: bool) -> impl Iterator<Item = &[u8]> {
        self.hidden.iter().filter_map(move |(path, file)| {
            let place = self.top.join(std::ffi::OsStr::from_bytes(path));
            let is_other = file.is_some_and(|file| {
                let now = place.symlink_metadata();
                now.is_ok_and(|now| (now.dev(), now.ino()) != file)
            });
            (is_other == replaced).then_some(path.as_slice())
        })
    }

    /// The hidden files in whose place another entry is, relative to the top of the repository.
    pub fn replaced_files(&self) -> BTreeSet<String> {
        self.hidden_now(true)
            .map(|path| String::from_utf8_lossy(path).into_owned())
            .collect()
    }

    /// Opens or creates the store in `dir` for the tree of `workspace`. Paths below `hidden` (the run directory, if it
    /// is in the tree) are never part of a snapshot; a file among them only as long as it is the same one.
    ///
    /// # Errors
    /// The store cannot be created or read.
    pub fn open(dir: &Path, workspace: &Path, hidden: &[PathBuf]) -> std::io::Result<Self> {
        let repository = repository(workspace);
        let top = repository.as_ref().map_or(workspace, |found| &found.top).to_owned();
        let prefix = match workspace.strip_prefix(&top) {
            Ok(below) if !below.as_os_str().is_empty() => format!("{}/", below.to_string_lossy()),
            _ => String::new(),
        };
        let format = repository.as_ref().map_or(ObjectFormat::Sha1, Repository::format);
        // A process that was killed may have left it incomplete.
        if !dir.join("HEAD").exists() {
            own_git::lay_out(dir, format == ObjectFormat::Sha256)?;
        }
        let below = |path: &PathBuf| {
            let below = path.strip_prefix(&top).ok()?.as_os_str().as_bytes().to_vec();
            let file = path.symlink_metadata().ok().filter(|data| !data.is_dir());
            Some((below, file.map(|data| (data.dev(), data.ino()))))
        };
        let store = Store::open(dir, format).map_err(std::io::Error::other)?;
        Ok(Self {
            dir: dir.to_owned(),
            hidden: hidden.iter().filter_map(below).collect(),
            top,
            prefix,
            repository,
            format,
            private: None,
            end: RunEnd::default(),
            state: Arc::new(Mutex::new(State {
                store,
                base: None,
                last: None,
                ignore_files: None,
                submodules: None,
                times: WorkTimes::default(),
            })),
        })
    }

    /// Keeps these contents apart from the others. To be called before the first snapshot.
    ///
    /// # Errors
    /// What an earlier process kept of them cannot be read.
    pub fn keeping(self, private: PrivateContents) -> std::io::Result<Self> {
        let mut state = lock(&self.state);
        let added = state.store.add_private(private.dir());
        drop(state);
        added.map_err(std::io::Error::other)?;
        Ok(Self {
            private: Some(private),
            ..self
        })
    }

    /// Gives up work on the tree shortly after `ended` is cancelled. A snapshot that does not take long is completed
    /// even then.
    #[must_use]
    pub fn until(self, ended: &CancellationToken) -> Self {
        Self {
            end: RunEnd::new(ended),
            ..self
        }
    }

    /// Whether a snapshot or a patch was given up because the run had ended.
    pub fn was_cut_off(&self) -> bool {
        self.end.was_cut_off()
    }

    /// Gives up work that is still under way, for example the first snapshot of a run that changed nothing, and waits
    /// shortly for its end: the process must not end while a git of it runs or its temporary files are there.
    pub async fn close(&self) {
        self.end.close();
        let state = Arc::clone(&self.state);
        let idle = tokio::task::spawn_blocking(move || drop(state.lock()));
        let _ = tokio::time::timeout(STOP_TIME, idle).await;
    }

    /// Continues in the directory that the store was moved to. No operation may be in progress.
    pub fn moved_to(&mut self, dir: &Path) {
        self.dir = dir.to_owned();
        let mut state = lock(&self.state);
        state.store.moved_to(dir);
    }

    /// Removes the store of a run that was killed before its journal began. Refuses any other directory of that name,
    /// because the tree itself may contain one.
    ///
    /// # Errors
    /// The directory is not such a store, or it cannot be read or removed.
    pub fn clear(dir: &Path) -> std::io::Result<()> {
        let found = match std::fs::symlink_metadata(dir) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(()),
            found => found?,
        };
        let ours = match std::fs::read(dir.join("HEAD")) {
            Ok(head) => head == own_git::HEAD.as_bytes(),
            // Incomplete.
            Err(_) if found.is_dir() => std::fs::read_dir(dir)?.flatten().all(|entry| {
                let name = entry.file_name();
                ["HEAD.lock", "config", "info", "objects", "refs"]
                    .iter()
                    .any(|known| name == *known)
            }),
            Err(_) => false,
        };
        match ours && found.is_dir() {
            true => std::fs::remove_dir_all(dir),
            false => Err(std::io::Error::other(format!(
                "{} already exists and was not created by this program",
                dir.display()
            ))),
        }
    }

    /// Runs blocking work on another thread, with exclusive access to the state.
    async fn beside<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Self, &mut State) -> Result<T, String> + Send + 'static,
    ) -> Result<T, String> {
        let shadow = self.clone();
        let done = tokio::task::spawn_blocking(move || {
            let state = Arc::clone(&shadow.state);
            let mut state = lock(&state);
            shadow.end.unless_closed()?;
            let state: &mut State = &mut state;
            // Recursion over deep directories needs a larger stack.
            std::thread::scope(|scope| {
                let work = || work(&shadow, state);
                let thread = std::thread::Builder::new().stack_size(STACK).spawn_scoped(scope, work);
                let thread = thread.map_err(|error| format!("cannot start a thread: {error}"))?;
                thread
                    .join()
                    .unwrap_or_else(|_| Err("the thread that works on the tree panicked".to_owned()))
            })
        });
        done.await.map_err(|error| error.to_string())?
    }

    fn objects<'a>(&self, store: &'a Store) -> ObjectReader<'a> {
        ObjectReader::new(self.format, store, self.repository.as_ref().map(Repository::objects))
    }

    fn id(&self, snapshot: &Snapshot) -> Result<Id, String> {
        let id = self.format.parse(&snapshot.tree);
        id.ok_or_else(|| format!("`{}` is not the id of a tree", snapshot.tree))
    }

    /// Takes the first snapshot. Uses the repository's index where that is safe, so that unchanged files are not read.
    ///
    /// # Errors
    /// A sentence: the tree cannot be read, or a limit is reached.
    pub async fn baseline(&self) -> Result<Snapshot, String> {
        self.beside(|shadow, state| {
            let index = shadow.index()?;
            state.submodules = Some(index.as_ref().map(GitIndex::submodules).unwrap_or_default());
            let snapshot = shadow.walk(state, index.as_ref(), None, true)?;
            let path = shadow.dir.join(BASELINE);
            let temporary = path.with_extension("new");
            write_synced(&temporary, snapshot.tree.as_bytes())
                .and_then(|()| std::fs::rename(&temporary, &path))
                .map_err(trouble(&path))?;
            Ok(snapshot)
        })
        .await
    }

    /// Takes a snapshot of the current tree.
    ///
    /// # Errors
    /// As [`Shadow::baseline`].
    pub async fn snapshot(&self) -> Result<Snapshot, String> {
        self.beside(|shadow, state| shadow.current(state, None, true)).await
    }

    /// Takes a snapshot of the current tree, and rules on the ignore files that were made or changed since the first
    /// one: from now on one counts if `may` allows a change of its path (relative to the workspace). One that is
    /// refused counts as it was before, and hides nothing. `exact`: whether times of files show every write of live
    /// processes; otherwise all contents are read.
    ///
    /// # Errors
    /// As [`Shadow::baseline`].
    pub async fn ruled_snapshot(
        &self,
        exact: bool,
        may: impl Fn(&str) -> bool + Send + Sync + 'static,
    ) -> Result<Snapshot, String> {
        self.beside(move |shadow, state| shadow.current(state, Some(&may), exact))
            .await
    }

    /// `exact`: whether the snapshot may go by the times of files.
    fn current(&self, state: &mut State, may: Option<IgnoreJudge<'_>>, exact: bool) -> Result<Snapshot, String> {
        if state.base.is_some() {
            return self.walk(state, None, may, exact);
        }
        // An earlier process took the baseline; its tree gives the known names.
        if let Ok(tree) = std::fs::read_to_string(self.dir.join(BASELINE)) {
            // Before anything of the state is set: without them, a second try would let all ignore files count.
            let ignore_files = TrustedIgnoreFiles::kept(&self.dir)?;
            let base = self.id(&Snapshot { tree })?;
            let mut objects = self.objects(&state.store);
            let dir = match objects.below(&base, self.prefix.as_bytes())? {
                Some(tree) => Some(CachedDir::of_tree(
                    &mut |id| objects.tree(id),
                    &tree,
                    scan::MOST_DEPTH + 1,
                )?),
                None => None,
            };
            state.base = Some(Arc::new(dir.unwrap_or_default()));
            state.last.clone_from(&state.base);
            state.ignore_files = ignore_files;
            return self.walk(state, None, may, exact);
        }
        // The index may be newer than the run, so only its names are used.
        let mut index = self.index()?;
        if let Some(index) = &mut index {
            index.trusted = false;
        }
        self.walk(state, index.as_ref(), may, exact)
    }

    fn index(&self) -> Result<Option<GitIndex>, String> {
        let Some(repository) = &self.repository else {
            return Ok(None);
        };
        let mut index = GitIndex::of(&repository.git_dir, self.format)?;
        if let Some(index) = &mut index {
            index.trusted &= !repository.bytes_may_differ(index.has_attributes());
        }
        Ok(index)
    }

    fn walk(
        &self,
        state: &mut State,
        index: Option<&GitIndex>,
        may: Option<IgnoreJudge<'_>>,
        exact: bool,
    ) -> Result<Snapshot, String> {
        let bound = state.times.begin(&self.end);
        let taken = self.walk_within(&bound, state, index, may, exact);
        state.times.finish(&bound);
        taken
    }

    fn walk_within(
        &self,
        bound: &SnapshotLimits,
        state: &mut State,
        index: Option<&GitIndex>,
        may: Option<IgnoreJudge<'_>>,
        exact: bool,
    ) -> Result<Snapshot, String> {
        let counting = match (&state.ignore_files, may) {
            (None, _) => Counting::First,
            (Some(_), None) => Counting::Unruled,
            (Some(_), Some(may)) => Counting::Ruled(may),
        };
        let hidden: Vec<Vec<u8>> = self.hidden_now(false).map(<[u8]>::to_vec).collect();
        let own = format!("{}.overnight", self.prefix).into_bytes();
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
        let scan = Scan {
            format: self.format,
            store: &state.store,
            packer: Mutex::new(state.store.packer()),
            private: self.private.as_ref().map(|contents| PrivateScan {
                contents,
                packer: Mutex::new(state.store.private_packer(contents.dir())),
            }),
            encoders: Mutex::default(),
            index,
            hidden: &hidden,
            prefix: &self.prefix,
            // A copy, because a walk that fails must not change which files count.
            ignore_files: Mutex::new(state.ignore_files.clone().unwrap_or_default()),
            counting,
            own: &[own],
            bound,
            now: now.map_or(0, |now| i64::try_from(now.as_nanos()).unwrap_or(i64::MAX)),
            exact: exact.then(|| exact_device(&self.top.join(&self.prefix))).flatten(),
            seen: AtomicUsize::new(0),
            free: AtomicBool::new(true),
            large: Mutex::new(()),
        };
        let before = Before {
            last: state.last.as_ref(),
            base: state.base.as_ref(),
            index: index.map_or(0..0, |index| index.below(self.prefix.as_bytes(), 0..index.len())),
        };
        let found = self.at_workspace(&mut |handle, rules, ignored| {
            let place = WalkedDirectory {
                handle,
                path: self.prefix.clone().into_bytes(),
                before: before.clone(),
                ignored,
                depth: 0,
            };
            scan.dir(place, rules)
        })?;
        let mut id = match &found {
            Some(dir) => dir.id,
            None => scan.object(ObjectKind::Tree, b"", None)?,
        };
        for name in self
            .prefix
            .split('/')
            .rev()
            .filter(|name| !name.is_empty() && found.is_some())
        {
            let mut tree = Vec::new();
            object::push_entry(&mut tree, self.format, name.as_bytes(), object::DIRECTORY, &id);
            id = scan.object(ObjectKind::Tree, &tree, None)?;
        }
        let packer = scan.packer.into_inner().unwrap_or_else(PoisonError::into_inner);
        let private = scan.private.map(|private| private.packer);
        let mut ignore_files = scan.ignore_files.into_inner().unwrap_or_else(PoisonError::into_inner);
        // First, because a tree that names them is in the other pack.
        if let Some(private) = private {
            let packer = private.into_inner().unwrap_or_else(PoisonError::into_inner);
            state.store.keep_private(packer)?;
        }
        state.store.keep(packer)?;
        ignore_files.end_walk();
        if ignore_files.is_new || state.ignore_files.is_none() {
            ignore_files.keep(&self.dir)?;
        }
        state.ignore_files = Some(ignore_files);
        let found = found.unwrap_or_default();
        state.base.get_or_insert_with(|| Arc::clone(&found));
        state.last = Some(found);
        Ok(Snapshot {
            tree: self.format.hex(&id),
        })
    }

    /// Opens the workspace from the top of the repository, and calls `then` with the ignore rules of its parent
    /// directories and whether they ignore it.
    fn at_workspace<T>(
        &self,
        then: &mut dyn FnMut(OwnedFd, &IgnoreRules<'_>, bool) -> Result<T, String>,
    ) -> Result<T, String> {
        let flags = rustix::fs::OFlags::RDONLY | rustix::fs::OFlags::DIRECTORY | rustix::fs::OFlags::CLOEXEC;
        let top = rustix::fs::open(&self.top, flags, rustix::fs::Mode::empty());
        let top = top.map_err(|error| format!("{}: {error}", self.top.display()))?;
        let excludes = self
            .repository
            .as_ref()
            .map(|found| found.common_dir.join("info/exclude"));
        let excludes = excludes.and_then(|path| repository::text(&path)).unwrap_or_default();
        let rules = IgnoreRules::new(None, 0, excludes.as_bytes());
        self.down(top, 0, &rules, false, then)
    }

    fn down<T>(
        &self,
        handle: OwnedFd,
        base: usize,
        rules: &IgnoreRules<'_>,
        ignored: bool,
        then: &mut dyn FnMut(OwnedFd, &IgnoreRules<'_>, bool) -> Result<T, String>,
    ) -> Result<T, String> {
        let Some((name, _)) = self.prefix.get(base..).and_then(|rest| rest.split_once('/')) else {
            return then(handle, rules, ignored);
        };
        let above = self.prefix.get(..base).unwrap_or_default();
        let text = read_patterns(handle.as_fd()).map_err(|why| format!("{above}.gitignore: {why}"))?;
        let rules = IgnoreRules::new(Some(rules), base, &text.unwrap_or_default());
        let end = base + name.len();
        let path = self.prefix.get(..end).unwrap_or_default();
        let ignored = ignored || rules.ignores(path.as_bytes(), true);
        let name = CString::new(name).map_err(|error| error.to_string())?;
        let below = open_dir(handle.as_fd(), &name).map_err(|error| format!("{path}: {error}"))?;
        self.down(below, end + 1, &rules, ignored, then)
    }
}
