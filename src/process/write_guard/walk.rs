//! A fast parallel search of a tree for closed paths and sockets. It uses directory handles, does not stat files whose
//! name is sufficient, and on the second walk skips directories that have not changed.

use super::at;
use super::node::{Fingerprint, is_object};
use crate::base::grant::ClosedPaths;
use crate::base::sync::lock;
use rustix::fs::{AtFlags, FileType, Stat, fstat, fstatfs, statat};
use rustix::io::Errno;
use std::collections::{HashMap, HashSet};
use std::ffi::{CStr, OsStr};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Condvar, Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// Upper limit for the names in one tree. If reached: `limit:guard_names`.
pub(super) const MOST_NAMES: u64 = 5_000_000;
/// The time limit of one walk. If reached: `limit:guard_time`.
pub(super) const MOST_TIME: Duration = Duration::from_secs(60);
/// Upper limit in bytes for a path that is searched: the kernel's own limit, with room for names that are created
/// below. If reached: `limit:guard_path`.
pub(super) const MOST_WALKED_PATH: usize = 4_000;
/// The name of the limit on paths.
pub(super) const LONG_PATH: &str = "limit:guard_path";
/// The code for a directory or file that cannot be read.
pub(super) const UNREADABLE: &str = "limit:guard_unreadable";
/// How often opening a directory is tried again after an error that may pass, and the time between two tries.
const OPEN_TRIES: usize = 5;
const OPEN_PAUSE: Duration = Duration::from_millis(20);
/// Upper limit for the names of files with several hard links, without git's objects. If reached: [`LINKS`].
const MOST_LINKED: usize = 500_000;
/// The name of the limit on files that are hard-linked outside.
pub(super) const LINKS: &str = "limit:guard_links";
/// Upper limit for the threads of a walk; more would wait for locks in the kernel.
const MOST_THREADS: usize = 4;
/// Directories that one thread keeps for itself before it starts other threads or passes work to them.
const KEPT: usize = 16;

/// Upper limit for the directories that are remembered for the second walk; in a larger tree all are listed again.
const MOST_KNOWN: usize = 100_000;
/// A directory that changed within this time before it was listed may change again without a new timestamp: the
/// kernel's clock for files ticks in steps of up to 10 ms.
const SETTLED: Duration = Duration::from_millis(100);
/// Local file systems that update a directory's change time with every new name, and where no process can set that
/// time: ext4, XFS, Btrfs, tmpfs and F2FS (`linux/magic.h`). On network file systems and FUSE all directories are
/// listed again.
const EXACT: [u64; 5] = [0xef53, 0x5846_5342, 0x9123_683e, 0x0102_1994, 0xf2f5_2010];

/// A limit that was reached, and at which path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ExceededLimit {
    pub code: &'static str,
    /// Relative path; empty for the whole tree.
    pub path: PathBuf,
}

/// The result of a walk.
#[derive(Debug, Default)]
pub(super) struct WalkResult {
    /// The topmost closed paths, sorted; nothing below them is searched.
    pub closed: Vec<PathBuf>,
    /// Sockets that are not closed, sorted.
    pub sockets: Vec<PathBuf>,
    /// Names of files with several hard links, if they are searched.
    pub linked: Vec<Linked>,
    /// Likewise each such name in git's object store, as device and inode number: they are many.
    pub objects: Vec<(u64, u64)>,
    /// Limits that were reached: the result is incomplete.
    pub over: Vec<ExceededLimit>,
    /// The listed directories, if they are to be remembered.
    dirs: Vec<(Vec<u8>, Option<Stamp>)>,
    /// The names in them, if they are to be kept.
    listings: Vec<Listing>,
}

/// The names in one directory and their inode numbers, in as few allocations as possible: a tree may have millions.
#[derive(Debug)]
pub(super) struct Listing {
    dir: Vec<u8>,
    /// Each name with a NUL at its end.
    names: Vec<u8>,
    /// For each name, where it begins.
    entries: Vec<(u64, usize)>,
}

impl Listing {
    fn new(dir: &[u8]) -> Self {
        Self {
            dir: dir.to_vec(),
            names: Vec::new(),
            entries: Vec::new(),
        }
    }

    fn add(&mut self, name: &CStr, number: u64) {
        self.entries.push((number, self.names.len()));
        self.names.extend_from_slice(name.to_bytes_with_nul());
    }

    /// The inode numbers, in the order of the names.
    pub fn numbers(&self) -> impl Iterator<Item = u64> {
        self.entries.iter().map(|(number, _)| *number)
    }

    /// The path of the name with this index, relative to the root of the walk.
    pub fn path(&self, index: usize) -> Option<PathBuf> {
        let (_, start) = self.entries.get(index)?;
        let name = CStr::from_bytes_until_nul(self.names.get(*start..)?).ok()?;
        Some(Path::new(OsStr::from_bytes(&self.dir)).join(OsStr::from_bytes(name.to_bytes())))
    }
}

/// One name of a file with several hard links.
#[derive(Debug)]
pub(super) struct Linked {
    pub path: PathBuf,
    device: u64,
    pub fingerprint: Fingerprint,
}

impl Linked {
    /// Identifies the file: device and inode number.
    pub fn file(&self) -> (u64, u64) {
        (self.device, self.fingerprint.inode)
    }
}

/// Identifies a directory and its set of names as unchanged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Stamp {
    inode: u64,
    changed: (i64, u64),
}

impl Stamp {
    fn of(data: &Stat) -> Self {
        Self {
            inode: data.st_ino,
            changed: (data.st_ctime, data.st_ctime_nsec),
        }
    }
}

/// What a first walk records for a second one.
#[derive(Debug, Default)]
pub(super) struct Known {
    /// Each listed directory; `None` if its names can change without a change of its stamp.
    dirs: HashMap<Vec<u8>, Option<Stamp>>,
    closed: Vec<PathBuf>,
    sockets: Vec<PathBuf>,
    device: u64,
    /// All names that the first walk saw, if it was to keep them.
    pub listings: Vec<Listing>,
}

impl Known {
    /// Whether the first walk found this closed path.
    pub fn is_closed(&self, path: &Path) -> bool {
        self.closed
            .binary_search_by(|closed| closed.as_path().cmp(path))
            .is_ok()
    }

    /// Whether a later walk can leave out directories that have not changed.
    pub fn is_reusable(&self) -> bool {
        !self.dirs.is_empty()
    }

    /// The number of all names, if they were kept.
    pub fn names(&self) -> usize {
        self.listings.iter().map(|listing| listing.entries.len()).sum()
    }
}

/// Decides which directories can be remembered.
struct Exact {
    device: u64,
    /// Changes before this have a distinct timestamp (seconds and nanoseconds since 1970).
    settled: (i64, u64),
}

impl Exact {
    fn of(root: &OwnedFd) -> Option<Self> {
        let system = fstatfs(root).ok()?.f_type as u64;
        let settled = SystemTime::now()
            .checked_sub(SETTLED)?
            .duration_since(UNIX_EPOCH)
            .ok()?;
        EXACT.contains(&system).then_some(Self {
            device: fstat(root).ok()?.st_dev,
            settled: (
                i64::try_from(settled.as_secs()).ok()?,
                u64::from(settled.subsec_nanos()),
            ),
        })
    }

    fn stamp(&self, dir: &OwnedFd) -> Option<Stamp> {
        let data = fstat(dir).ok()?;
        let stamp = Stamp::of(&data);
        (data.st_dev == self.device && stamp.changed < self.settled).then_some(stamp)
    }
}

/// The parameters of a search.
pub(super) struct TreeWalk<'a> {
    pub root: &'a OwnedFd,
    pub closed: &'a dyn ClosedPaths,
    /// Directories of this program, which are not searched.
    pub own: &'a [PathBuf],
    pub most_names: u64,
    pub most_time: Duration,
    /// Whether files with several hard links are searched too, for which each file is looked at.
    pub links: bool,
    /// Whether [`TreeWalk::find`] and [`TreeWalk::find_anew`] keep all names that they see.
    pub listings: bool,
    /// Whether a closed directory of this user is an error instead of being opened up for a moment: this program may end
    /// in that moment.
    pub leaves_modes: bool,
}

impl<'a> TreeWalk<'a> {
    /// A search for closed paths and sockets within the limits of all walks.
    pub fn new(root: &'a OwnedFd, closed: &'a dyn ClosedPaths, own: &'a [PathBuf]) -> Self {
        Self {
            root,
            closed,
            own,
            most_names: MOST_NAMES,
            most_time: MOST_TIME,
            links: false,
            listings: false,
            leaves_modes: false,
        }
    }
}

/// State shared by the threads.
struct Shared {
    waiting: Mutex<Vec<Vec<u8>>>,
    more: Condvar,
    /// Number of threads that still have directories to search.
    busy: AtomicUsize,
    idle: AtomicUsize,
    names: AtomicU64,
    stop: AtomicBool,
    until: Instant,
}

impl TreeWalk<'_> {
    /// Searches everything below `top`, which is no closed path itself, and remembers the directories.
    pub fn find(&self, top: &Path) -> (WalkResult, Known) {
        let exact = Exact::of(self.root);
        let top = vec![top.as_os_str().as_bytes().to_vec()];
        let mut found = self.find_in(top, exact.as_ref(), None);
        let dirs = std::mem::take(&mut found.dirs);
        let known = Known {
            device: exact.map_or(0, |exact| exact.device),
            closed: found.closed.clone(),
            sockets: found.sockets.clone(),
            listings: std::mem::take(&mut found.listings),
            dirs: match dirs.len() > MOST_KNOWN {
                true => HashMap::new(),
                false => dirs.into_iter().collect(),
            },
        };
        (found, known)
    }

    /// Searches the whole tree for files with several hard links.
    pub fn find_linked(&self) -> WalkResult {
        self.find_in(vec![Vec::new()], None, None)
    }

    /// Searches below `top` again, but only directories that are new or have changed. Reports the closed paths of the
    /// first walk again, whether they still exist or not.
    pub fn find_again(&self, top: &Path, known: &Known) -> WalkResult {
        if known.dirs.is_empty() {
            return self.find_in(vec![top.as_os_str().as_bytes().to_vec()], None, None);
        }
        let mut found = self.find_in(self.changed(known), None, Some(known));
        found.closed.extend_from_slice(&known.closed);
        found.closed.sort();
        found.closed.dedup();
        found
    }

    /// The files with several hard links, given the result of an earlier search for them: in a tree that had none, only
    /// directories are searched that are new or have changed since. A link that was made since from outside the tree to
    /// one of its files is not seen; that one is not seen during the rest of a run either.
    pub fn find_linked_again(&self, earlier: WalkResult, known: &Known) -> WalkResult {
        if !known.is_reusable() {
            return self.find_linked();
        }
        let changed = self.changed(known);
        if changed.is_empty() {
            return earlier;
        }
        let has_none =
            |found: &WalkResult| found.linked.is_empty() && found.objects.is_empty() && found.over.is_empty();
        if has_none(&earlier) {
            let found = self.find_in(changed, None, Some(known));
            if has_none(&found) {
                return found;
            }
        }
        self.find_linked()
    }

    /// As [`TreeWalk::find_again`], but reports only closed paths and sockets that still exist, all of them, and remembers
    /// the directories for the next walk.
    pub fn find_anew(&self, top: &Path, known: Known) -> (WalkResult, Known) {
        let exact = Exact::of(self.root).filter(|exact| exact.device == known.device);
        let Some(exact) = exact.filter(|_| !known.dirs.is_empty()) else {
            return self.find(top);
        };
        let changed = self.changed(&known);
        let mut found = self.find_in(changed.clone(), Some(&exact), Some(&known));
        let Known {
            mut dirs,
            closed,
            sockets,
            mut listings,
            ..
        } = known;
        for dir in &changed {
            dirs.remove(dir);
        }
        let listed: HashSet<&Vec<u8>> = found.dirs.iter().map(|(dir, _)| dir).collect();
        let gone: HashSet<&[u8]> = changed
            .iter()
            .filter(|dir| !listed.contains(dir))
            .map(Vec::as_slice)
            .collect();
        if !gone.is_empty() {
            // A link in place of one may lead to where its directories are now: they were found there.
            dirs.retain(|dir, _| !is_below_any(dir, &gone));
        }
        listings.retain(|listing| dirs.contains_key(&listing.dir));
        listings.append(&mut found.listings);
        // What was in the other directories has just been found again.
        let is_kept = |path: &PathBuf| {
            let parent = path.parent().map(|parent| parent.as_os_str().as_bytes());
            parent.is_some_and(|parent| dirs.contains_key(parent))
        };
        found.closed.extend(closed.into_iter().filter(is_kept));
        found.sockets.extend(sockets.into_iter().filter(is_kept));
        dirs.extend(std::mem::take(&mut found.dirs));
        found.closed.retain(|path| {
            !matches!(
                at::stat_below(self.root, path),
                Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP)
            )
        });
        for paths in [&mut found.closed, &mut found.sockets] {
            paths.sort();
            paths.dedup();
        }
        if dirs.len() > MOST_KNOWN {
            dirs.clear();
        }
        let known = Known {
            dirs,
            closed: found.closed.clone(),
            sockets: found.sockets.clone(),
            device: exact.device,
            listings,
        };
        (found, known)
    }

    /// Remembered directories that were replaced or whose names may have changed.
    fn changed(&self, known: &Known) -> Vec<Vec<u8>> {
        let all: Vec<(&Vec<u8>, &Option<Stamp>)> = known.dirs.iter().collect();
        let changed = |part: &[(&Vec<u8>, &Option<Stamp>)]| -> Vec<Vec<u8>> {
            let is_same = |dir: &[u8], stamp: &Option<Stamp>| {
                // A link in the path may be followed: its target is the same directory or has another inode number.
                let path = if dir.is_empty() { b"." } else { dir };
                let data = statat(self.root, path, AtFlags::SYMLINK_NOFOLLOW);
                let now = data.ok().filter(|data| data.st_dev == known.device);
                stamp.is_some() && now.map(|data| Stamp::of(&data)) == *stamp
            };
            let other = part.iter().filter(|(dir, stamp)| !is_same(dir, stamp));
            other.map(|(dir, _)| (*dir).clone()).collect()
        };
        let part = all.len().div_ceil(threads()).max(KEPT * KEPT);
        std::thread::scope(|scope| {
            let mut parts = all.chunks(part);
            let first = parts.next().unwrap_or_default();
            let others: Vec<_> = parts.map(|part| scope.spawn(|| changed(part))).collect();
            let mut found = changed(first);
            for other in others {
                // If a thread failed, all remembered directories are listed again.
                found.extend(other.join().unwrap_or_else(|_| known.dirs.keys().cloned().collect()));
            }
            found
        })
    }

    fn find_in(&self, dirs: Vec<Vec<u8>>, exact: Option<&Exact>, known: Option<&Known>) -> WalkResult {
        let shared = Shared {
            waiting: Mutex::default(),
            more: Condvar::new(),
            busy: AtomicUsize::new(1),
            idle: AtomicUsize::new(0),
            names: AtomicU64::new(0),
            stop: AtomicBool::new(false),
            until: Instant::now() + self.most_time,
        };
        let memory = Memory { exact, known };
        let mut look = WalkThread::new(self, &shared, memory);
        look.dirs = dirs;
        // A small tree is finished before another thread could have started.
        while look.dirs.len() < KEPT && look.next() {}
        let mut found = if look.dirs.is_empty() {
            look.found
        } else {
            std::thread::scope(|scope| {
                let others: Vec<_> = (1..threads())
                    .map(|_| {
                        shared.idle.fetch_add(1, Ordering::SeqCst);
                        scope.spawn(|| WalkThread::new(self, &shared, memory).help())
                    })
                    .collect();
                look.work();
                let mut found = look.found;
                for other in others {
                    match other.join() {
                        Ok(more) => found.add(more),
                        Err(_) => found.over.push(ExceededLimit::whole("limit:guard_names")),
                    }
                }
                found
            })
        };
        found.closed.sort();
        found.sockets.sort();
        found
    }
}

impl ExceededLimit {
    /// A limit of the whole tree.
    pub fn whole(code: &'static str) -> Self {
        Self {
            code,
            path: PathBuf::new(),
        }
    }
}

impl WalkResult {
    fn add(&mut self, mut more: WalkResult) {
        self.closed.append(&mut more.closed);
        self.sockets.append(&mut more.sockets);
        self.linked.append(&mut more.linked);
        self.objects.append(&mut more.objects);
        self.over.append(&mut more.over);
        self.dirs.append(&mut more.dirs);
        self.listings.append(&mut more.listings);
    }
}

/// What to remember for a second walk, and what a first walk remembered.
#[derive(Clone, Copy)]
struct Memory<'a> {
    exact: Option<&'a Exact>,
    known: Option<&'a Known>,
}

/// The state of one thread.
struct WalkThread<'a> {
    walk: &'a TreeWalk<'a>,
    shared: &'a Shared,
    memory: Memory<'a>,
    dirs: Vec<Vec<u8>>,
    found: WalkResult,
    buffer: Vec<u8>,
    path: Vec<u8>,
}

impl<'a> WalkThread<'a> {
    fn new(walk: &'a TreeWalk<'a>, shared: &'a Shared, memory: Memory<'a>) -> Self {
        Self {
            walk,
            shared,
            memory,
            dirs: Vec::new(),
            found: WalkResult::default(),
            buffer: Vec::new(),
            path: Vec::new(),
        }
    }

    /// A further thread: waits for directories until all are done.
    fn help(mut self) -> WalkResult {
        loop {
            {
                let mut waiting = lock(&self.shared.waiting);
                loop {
                    if !waiting.is_empty() {
                        let half = waiting.len().div_ceil(2);
                        self.dirs = waiting.split_off(half.saturating_sub(1));
                        self.shared.busy.fetch_add(1, Ordering::SeqCst);
                        self.shared.idle.fetch_sub(1, Ordering::SeqCst);
                        break;
                    }
                    if self.shared.busy.load(Ordering::SeqCst) == 0 {
                        return self.found;
                    }
                    waiting = self.shared.more.wait(waiting).unwrap_or_else(PoisonError::into_inner);
                }
            }
            self.empty();
            self.rest();
        }
    }

    /// The first thread: searches its own directories, then the remaining ones.
    fn work(&mut self) {
        loop {
            self.empty();
            let mut waiting = lock(&self.shared.waiting);
            if waiting.is_empty() {
                drop(waiting);
                self.rest();
                return;
            }
            self.dirs = std::mem::take(&mut waiting);
        }
    }

    fn empty(&mut self) {
        while self.next() {
            if self.dirs.len() > KEPT && self.shared.idle.load(Ordering::Relaxed) > 0 {
                let give = self.dirs.drain(..self.dirs.len() / 2).collect::<Vec<_>>();
                lock(&self.shared.waiting).extend(give);
                self.shared.more.notify_one();
            }
        }
    }

    fn rest(&self) {
        let waiting = lock(&self.shared.waiting);
        self.shared.busy.fetch_sub(1, Ordering::SeqCst);
        self.shared.idle.fetch_add(1, Ordering::SeqCst);
        drop(waiting);
        self.shared.more.notify_all();
    }

    /// Searches one directory. `false` when none is left.
    fn next(&mut self) -> bool {
        let Some(dir) = self.dirs.pop() else { return false };
        if self.shared.stop.load(Ordering::Relaxed) {
            self.dirs.clear();
            return false;
        }
        if dir.len() > MOST_WALKED_PATH {
            let path = PathBuf::from(OsStr::from_bytes(&dir));
            self.found.over.push(ExceededLimit { code: LONG_PATH, path });
            return true;
        }
        match self.list(&dir) {
            // Removed in the meantime, or replaced by something else.
            Ok(()) | Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => {}
            Err(_) => {
                self.unreadable(&dir);
                self.count(0);
            }
        }
        true
    }

    fn unreadable(&mut self, path: &[u8]) {
        self.found.over.push(ExceededLimit {
            code: UNREADABLE,
            path: PathBuf::from(OsStr::from_bytes(path)),
        });
    }

    /// Counts further names, and ends the walk at its limits.
    fn count(&mut self, more: u64) {
        let names = self.shared.names.fetch_add(more, Ordering::Relaxed) + more;
        let over = match (names > self.walk.most_names, Instant::now() > self.shared.until) {
            (true, _) => Some("limit:guard_names"),
            (_, true) => Some("limit:guard_time"),
            _ => None,
        };
        if let Some(code) = over {
            self.shared.stop.store(true, Ordering::Relaxed);
            self.found.over.push(ExceededLimit::whole(code));
        }
    }

    /// Opens a directory. An error that says nothing about the directory may pass within a moment.
    fn opened(&self, path: &Path) -> rustix::io::Result<OwnedFd> {
        for _ in 0..OPEN_TRIES {
            match at::dir(self.walk.root, path) {
                Err(
                    Errno::MFILE | Errno::NFILE | Errno::NOMEM | Errno::INTR | Errno::AGAIN | Errno::IO | Errno::STALE,
                ) => std::thread::sleep(OPEN_PAUSE),
                opened => return opened,
            }
        }
        at::dir(self.walk.root, path)
    }

    fn list(&mut self, dir: &[u8]) -> rustix::io::Result<()> {
        let path = Path::new(OsStr::from_bytes(dir));
        let (handle, mode) = match self.opened(path) {
            Err(Errno::ACCESS) if self.walk.leaves_modes => return Err(Errno::ACCESS),
            Err(Errno::ACCESS) => match at::opened_up_below(self.walk.root, path)? {
                Some((handle, mode)) => (handle, Some(mode)),
                // No process of this user can read or write there.
                None => {
                    if self.memory.exact.is_some() {
                        // Another user may change its mode, which does not change the directory that it is in.
                        self.found.dirs.push((dir.to_vec(), None));
                    }
                    return Ok(());
                }
            },
            handle => (handle?, None),
        };
        if let Some(exact) = self.memory.exact {
            // Taken before the names are read: a name that is added meanwhile changes the timestamp again.
            self.found.dirs.push((dir.to_vec(), exact.stamp(&handle)));
        }
        let mut buffer = std::mem::take(&mut self.buffer);
        self.path.clear();
        self.path.extend_from_slice(dir);
        if !dir.is_empty() {
            self.path.push(b'/');
        }
        let before = self.path.len();
        let mut count = 0;
        let ordinary = std::str::from_utf8(dir).is_ok_and(|dir| self.walk.closed.has_ordinary_names(dir));
        let inside = dir.iter().filter(|byte| **byte == b'/').count() + usize::from(!dir.is_empty());
        let own = self.walk.own.iter().any(|own| own.components().count() == inside + 1);
        let mut listing = self.walk.listings.then(|| Listing::new(dir));
        let listed = at::list(&handle, &mut buffer, |name, kind, number| {
            count += 1;
            if let Some(listing) = &mut listing {
                listing.add(name, number);
            }
            // The common case: a file that no closed path can match here.
            let passed =
                ordinary && std::str::from_utf8(name.to_bytes()).is_ok_and(|name| self.walk.closed.is_ordinary(name));
            if passed && kind.is_file() {
                return;
            }
            self.path.truncate(before);
            self.path.extend_from_slice(name.to_bytes());
            let kind = match at::kind(&handle, OsStr::from_bytes(name.to_bytes()), kind) {
                Ok(Some(kind)) => kind,
                Ok(None) => return,
                // It may be a directory with closed paths.
                Err(_) => {
                    let path = self.path.clone();
                    self.unreadable(&path);
                    return;
                }
            };
            if self.walk.links && kind.is_file() {
                self.file(&handle, name);
            }
            self.entry(kind, passed, own);
        });
        self.buffer = buffer;
        if let Some(mode) = mode {
            at::set_mode(&handle, mode)?;
        }
        self.found.listings.extend(listing);
        listed?;
        self.count(count);
        Ok(())
    }

    /// Records a file, whose path is in `self.path`, if it has several hard links.
    fn file(&mut self, dir: &OwnedFd, name: &CStr) {
        let data = match statat(dir, name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(data) => data,
            // Removed in the meantime.
            Err(Errno::NOENT) => return,
            Err(_) => {
                let path = self.path.clone();
                self.unreadable(&path);
                return;
            }
        };
        let fingerprint = Fingerprint::of(&data);
        if fingerprint.links < 2 || !FileType::from_raw_mode(data.st_mode).is_file() {
            return;
        }
        if is_object(Path::new(OsStr::from_bytes(&self.path))) {
            self.found.objects.push((data.st_dev, fingerprint.inode));
            return;
        }
        if self.found.linked.len() >= MOST_LINKED {
            self.shared.stop.store(true, Ordering::Relaxed);
            self.found.over.push(ExceededLimit::whole(LINKS));
            return;
        }
        self.found.linked.push(Linked {
            path: PathBuf::from(OsStr::from_bytes(&self.path)),
            device: data.st_dev,
            fingerprint,
        });
    }

    /// Handles one name, whose path is in `self.path`. `passed`: it is known not to be closed; `own`: it may be a
    /// directory of this program.
    fn entry(&mut self, kind: FileType, passed: bool, own: bool) {
        let path = || PathBuf::from(OsStr::from_bytes(&self.path));
        if own && self.walk.own.contains(&path()) {
            return;
        }
        if !passed
            && self
                .walk
                .closed
                .closed(&String::from_utf8_lossy(&self.path), kind.is_dir())
        {
            self.found.closed.push(path());
        } else if kind.is_dir() {
            let is_known = |known: &Known| known.dirs.contains_key(&self.path);
            if !self.memory.known.is_some_and(is_known) {
                self.dirs.push(self.path.clone());
            }
        } else if kind == FileType::Socket {
            self.found.sockets.push(path());
        }
    }
}

/// Whether a directory is below one of others.
fn is_below_any(dir: &[u8], others: &HashSet<&[u8]>) -> bool {
    let slashes = dir.iter().enumerate().filter(|(_, byte)| **byte == b'/');
    slashes.into_iter().any(|(at, _)| others.contains(&dir[..at]))
}

/// One thread per CPU, but at least two: while one waits for the disk, the other continues.
fn threads() -> usize {
    static THREADS: OnceLock<usize> = OnceLock::new();
    *THREADS.get_or_init(|| std::thread::available_parallelism().map_or(2, |count| count.get().clamp(2, MOST_THREADS)))
}

#[cfg(test)]
mod tests {
    use super::super::names::NameSet;
    use super::*;
    use proptest::prelude::*;
    use rustix::fs::{CWD, RenameFlags, renameat_with};
    use std::fs;

    /// Applies one random change to a tree; errors are ignored.
    fn act(root: &Path, act: &(u8, usize, usize)) {
        const DIRS: [&str; 8] = ["a", "a/b", "a/b/c", "d", "d/e", "d/e/f", "g", "new/deep"];
        let (kind, one, other) = act;
        let (one, other) = (root.join(DIRS[one % DIRS.len()]), root.join(DIRS[other % DIRS.len()]));
        match kind % 12 {
            0 => drop(fs::write(one.join(".npmrc"), "x")),
            1 => drop(fs::create_dir_all(&one)),
            2 => drop(fs::rename(&one, &other)),
            3 => drop(renameat_with(CWD, &one, CWD, &other, RenameFlags::EXCHANGE)),
            4 => drop(fs::remove_dir_all(&one)),
            5 => drop(fs::write(one.join("file.rs"), "x")),
            6 => drop(std::os::unix::fs::symlink(&one, &other)),
            7 => drop(fs::create_dir_all(one.join(".git"))),
            8 => drop(fs::remove_file(one.join(".npmrc"))),
            9 => drop(std::os::unix::net::UnixListener::bind(one.join("socket"))),
            10 => {
                // A link in its place leads to where it is now.
                let away = root.join(format!("moved{}", fs::read_dir(root).unwrap().count()));
                drop(fs::rename(&one, &away));
                drop(std::os::unix::fs::symlink(&away, &one));
            }
            _ => {
                // Moved away and replaced by another entry.
                drop(fs::rename(&one, root.join("moved")));
                drop(fs::create_dir_all(one.join("sub")));
                drop(fs::write(one.join("sub/.npmrc"), "x"));
            }
        }
    }

    fn there(root: &Path, found: &[PathBuf]) -> Vec<PathBuf> {
        let exists = |path: &&PathBuf| root.join(path).symlink_metadata().is_ok();
        // A link that was put into the path can make a missing path seem to exist.
        let real = |path: &&PathBuf| {
            let parent = root.join(path.parent().unwrap());
            parent.canonicalize().is_ok_and(|real| real == parent)
        };
        found.iter().filter(exists).filter(real).cloned().collect()
    }

    /// All names that a walk kept, with their inode numbers, sorted.
    fn names(known: &Known) -> Vec<(PathBuf, u64)> {
        let listed = |listing: &Listing| -> Vec<(PathBuf, u64)> {
            let numbers = listing.numbers().enumerate();
            numbers
                .map(|(at, number)| (listing.path(at).unwrap(), number))
                .collect()
        };
        let mut names: Vec<_> = known.listings.iter().flat_map(listed).collect();
        names.sort();
        names
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(24))]
        #[test]
        fn the_second_look_finds_what_a_first_would(acts in prop::collection::vec(any::<(u8, usize, usize)>(), 1..8)) {
            let dir = tempfile::tempdir().unwrap();
            let root_path = dir.path().canonicalize().unwrap();
            for name in ["a/b/c", "d/e/f", "g", "h/i"] {
                fs::create_dir_all(root_path.join(name)).unwrap();
            }
            fs::write(root_path.join("a/b/.npmrc"), "x").unwrap();
            std::thread::sleep(SETTLED * 2);
            let root = at::root(&root_path).unwrap();
            let closed = NameSet::new(&["**/.npmrc", "**/.git"].map(str::to_owned));
            let walk = TreeWalk {
                listings: true,
                ..TreeWalk::new(&root, &closed, &[])
            };
            let (_, known) = walk.find(Path::new(""));
            acts.iter().for_each(|one| act(&root_path, one));
            let again = walk.find_again(Path::new(""), &known);
            let (anew, known) = walk.find_anew(Path::new(""), known);
            let (fresh, seen) = walk.find(Path::new(""));
            prop_assert_eq!(there(&root_path, &again.closed), &fresh.closed[..]);
            prop_assert_eq!(&anew.closed, &fresh.closed);
            prop_assert_eq!(&anew.sockets, &fresh.sockets);
            prop_assert_eq!(names(&known), names(&seen));
            prop_assert_eq!(again.over, fresh.over);
            acts.iter().rev().for_each(|one| act(&root_path, one));
            let (anew, known) = walk.find_anew(Path::new(""), known);
            let (fresh, seen) = walk.find(Path::new(""));
            prop_assert_eq!(anew.closed, fresh.closed);
            prop_assert_eq!(anew.sockets, fresh.sockets);
            prop_assert_eq!(names(&known), names(&seen));
        }
    }

    #[test]
    fn a_directory_that_did_not_change_is_not_listed_again() {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir_all(dir.path().join("a/b")).unwrap();
        std::thread::sleep(SETTLED * 2);
        let root = at::root(dir.path()).unwrap();
        if Exact::of(&root).is_none() {
            return;
        }
        let closed = NameSet::new(&["**/.npmrc".to_owned()]);
        let walk = TreeWalk::new(&root, &closed, &[]);
        let (_, known) = walk.find(Path::new(""));
        assert_eq!(known.dirs.len(), 3);
        assert!(walk.changed(&known).is_empty());
        fs::write(dir.path().join("a/b/x"), "x").unwrap();
        assert_eq!(walk.changed(&known), [b"a/b".to_vec()]);
    }
}
