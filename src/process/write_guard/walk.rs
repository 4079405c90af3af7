//! The names of a tree, as fast as the kernel tells them: closed paths and sockets among them. A few threads, directory handles,
//! no look at a file whose name says enough. Changes nothing.

use super::at;
use crate::base::grant::ClosedPaths;
use rustix::fs::FileType;
use rustix::io::Errno;
use std::ffi::OsStr;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

/// Names of one tree. Reached: `limit:guard_names`.
pub(super) const MOST_NAMES: u64 = 5_000_000;
/// How long one walk may take. Reached: `limit:guard_time`.
pub(super) const MOST_TIME: Duration = Duration::from_secs(60);
/// Bytes of a path; the kernel opens none of 4,096. Reached: `limit:guard_path`.
pub(super) const MOST_PATH: usize = 4_000;
/// Threads of a walk at most; more of them wait for each other in the kernel.
const MOST_THREADS: usize = 4;
/// Directories that one thread keeps for itself before others are started or fed.
const KEPT: usize = 16;

/// A limit that was reached, and where.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Over {
    pub code: &'static str,
    /// Relative; empty when it is the whole tree.
    pub path: PathBuf,
}

/// What a walk found.
#[derive(Debug, Default)]
pub(super) struct Found {
    /// The tops of closed paths, sorted; what lies below a top is not looked at.
    pub closed: Vec<PathBuf>,
    /// Sockets that are not closed, sorted.
    pub sockets: Vec<PathBuf>,
    /// Limits that were reached: what was found is not all.
    pub over: Vec<Over>,
}

/// What is looked for.
pub(super) struct Walk<'a> {
    pub root: &'a OwnedFd,
    pub closed: &'a dyn ClosedPaths,
    /// Directories that are not entered: our own.
    pub own: &'a [PathBuf],
    pub most_names: u64,
    pub most_time: Duration,
}

/// What the threads share.
struct Shared {
    waiting: Mutex<Vec<Vec<u8>>>,
    more: Condvar,
    /// Threads that have directories to look at.
    busy: AtomicUsize,
    idle: AtomicUsize,
    names: AtomicU64,
    stop: AtomicBool,
    until: Instant,
}

impl Walk<'_> {
    /// Looks at all below `top`, which is no closed path itself.
    pub fn find(&self, top: &Path) -> Found {
        let shared = Shared {
            waiting: Mutex::default(),
            more: Condvar::new(),
            busy: AtomicUsize::new(1),
            idle: AtomicUsize::new(0),
            names: AtomicU64::new(0),
            stop: AtomicBool::new(false),
            until: Instant::now() + self.most_time,
        };
        let mut look = Look::new(self, &shared);
        look.dirs.push(top.as_os_str().as_bytes().to_vec());
        // A small tree is done before another thread would have begun.
        while look.dirs.len() < KEPT && look.next() {}
        let mut found = if look.dirs.is_empty() {
            look.found
        } else {
            std::thread::scope(|scope| {
                let others: Vec<_> = (1..threads())
                    .map(|_| {
                        shared.idle.fetch_add(1, Ordering::SeqCst);
                        scope.spawn(|| Look::new(self, &shared).help())
                    })
                    .collect();
                look.work();
                let mut found = look.found;
                for other in others {
                    match other.join() {
                        Ok(more) => found.add(more),
                        Err(_) => found.over.push(Over::whole("limit:guard_names")),
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

impl Over {
    pub fn whole(code: &'static str) -> Self {
        Self {
            code,
            path: PathBuf::new(),
        }
    }
}

impl Found {
    fn add(&mut self, mut more: Found) {
        self.closed.append(&mut more.closed);
        self.sockets.append(&mut more.sockets);
        self.over.append(&mut more.over);
    }
}

/// One thread's part.
struct Look<'a> {
    walk: &'a Walk<'a>,
    shared: &'a Shared,
    dirs: Vec<Vec<u8>>,
    found: Found,
    buffer: Vec<u8>,
    path: Vec<u8>,
}

impl<'a> Look<'a> {
    fn new(walk: &'a Walk<'a>, shared: &'a Shared) -> Self {
        Self {
            walk,
            shared,
            dirs: Vec::new(),
            found: Found::default(),
            buffer: Vec::new(),
            path: Vec::new(),
        }
    }

    /// Another thread: waits for directories until all are done.
    fn help(mut self) -> Found {
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

    /// The first thread: its own directories, then what is left over.
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

    /// Looks at one directory. `false` when there is none left.
    fn next(&mut self) -> bool {
        let Some(dir) = self.dirs.pop() else { return false };
        if self.shared.stop.load(Ordering::Relaxed) {
            self.dirs.clear();
            return false;
        }
        if dir.len() > MOST_PATH {
            let path = PathBuf::from(OsStr::from_bytes(&dir));
            self.found.over.push(Over {
                code: "limit:guard_path",
                path,
            });
            return true;
        }
        match self.list(&dir) {
            // Removed meanwhile, or no directory any more.
            Ok(()) | Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => {}
            Err(_) => {
                let path = PathBuf::from(OsStr::from_bytes(&dir));
                self.found.over.push(Over {
                    code: "limit:guard_unreadable",
                    path,
                });
            }
        }
        true
    }

    fn list(&mut self, dir: &[u8]) -> rustix::io::Result<()> {
        let path = Path::new(OsStr::from_bytes(dir));
        let (handle, mode) = match at::dir(self.walk.root, path) {
            Err(Errno::ACCESS) => match closed_to_its_owner(self.walk.root, path)? {
                Some((handle, mode)) => (handle, Some(mode)),
                // Nobody of this user can look or write there.
                None => return Ok(()),
            },
            handle => (handle?, None),
        };
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
        let listed = at::list(&handle, &mut buffer, |name, kind, _| {
            count += 1;
            // Most names: a file that no path can close here.
            let passed =
                ordinary && std::str::from_utf8(name.to_bytes()).is_ok_and(|name| self.walk.closed.is_ordinary(name));
            if passed && kind.is_file() {
                return;
            }
            self.path.truncate(before);
            self.path.extend_from_slice(name.to_bytes());
            let kind = match kind {
                FileType::Unknown => at::stat(&handle, OsStr::from_bytes(name.to_bytes()))
                    .map_or(FileType::Unknown, |data| FileType::from_raw_mode(data.st_mode)),
                kind => kind,
            };
            self.entry(kind, passed, own);
        });
        self.buffer = buffer;
        if let Some(mode) = mode {
            at::set_mode(&handle, mode)?;
        }
        listed?;
        let names = self.shared.names.fetch_add(count, Ordering::Relaxed) + count;
        let over = match (names > self.walk.most_names, Instant::now() > self.shared.until) {
            (true, _) => Some("limit:guard_names"),
            (_, true) => Some("limit:guard_time"),
            _ => None,
        };
        if let Some(code) = over {
            self.shared.stop.store(true, Ordering::Relaxed);
            self.found.over.push(Over::whole(code));
        }
        Ok(())
    }

    /// One name, which lies in `self.path`. `passed`: it is known not to be closed; `own`: it may be one of our own directories.
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
            self.dirs.push(self.path.clone());
        } else if kind == FileType::Socket {
            self.found.sockets.push(path());
        }
    }
}

/// A directory of this user that its mode closes to it: a command could open it, so we look, and its mode to put back.
fn closed_to_its_owner(root: &OwnedFd, path: &Path) -> rustix::io::Result<Option<(OwnedFd, u32)>> {
    let (parent, name) = at::parent(root, path)?;
    let data = at::stat(&parent, name)?;
    if data.st_uid != rustix::process::geteuid().as_raw() {
        return Ok(None);
    }
    Ok(Some((at::opened_up(&parent, name)?, data.st_mode & 0o7777)))
}

/// One for each processor, two at least: while one waits for the disk the other goes on.
fn threads() -> usize {
    static THREADS: OnceLock<usize> = OnceLock::new();
    *THREADS.get_or_init(|| std::thread::available_parallelism().map_or(2, |count| count.get().clamp(2, MOST_THREADS)))
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
