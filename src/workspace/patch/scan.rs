//! Walks the tree for a snapshot: through directory handles only, following no link and starting no program. Does not
//! write to the tree.

use super::cache::{CachedDir, FileStat, PendingEntry, What};
use super::ignored::{IgnoreRules, read_patterns};
use super::index::GitIndex;
use super::name_status::NameStatus;
use super::names::{ListedName, open_dir, refused};
use super::object::{Id, ObjectFormat, ObjectKind, order};
use super::packer::{Packer, packed};
use super::store::Store;
use rustix::fs::{AtFlags, FileType};
use rustix::io::Errno;
use std::ops::Range;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

/// Upper limit for the files and directories of a tree.
pub(super) const MOST_ENTRIES: usize = 2_000_000;
/// Upper limit for nested directories; each level holds an open handle.
pub(super) const MOST_DEPTH: usize = 256;
/// Upper limit in bytes for storing a file that git does not have; a larger one is identified by its metadata.
pub const MOST_FILE: u64 = 32 << 20;
/// Files larger than this many bytes are read by one thread at a time.
pub(super) const LARGE: u64 = 1 << 20;
/// Upper limit for retries of a name whose type changes meanwhile.
const TRIES: usize = 16;
/// Nanoseconds within which two changes of a file may get the same time; a file newer than that is read again.
pub(super) const TICK: i64 = 2_000_000_000;
/// Time limit of one walk.
const MOST_TIME: std::time::Duration = std::time::Duration::from_secs(300);
/// Stack size in bytes of a thread that walks [`MOST_DEPTH`] levels.
pub(super) const STACK: usize = 32 << 20;

/// The inputs of a walk.
pub(super) struct Scan<'a> {
    pub format: ObjectFormat,
    pub store: &'a Store,
    pub packer: Mutex<Packer>,
    pub index: Option<&'a GitIndex>,
    /// Paths that are never part of a snapshot, relative to the top of the repository.
    pub hidden: &'a [Vec<u8>],
    /// This program's own directories, which count as ignored.
    pub own: &'a [Vec<u8>],
    pub started: Instant,
    /// Nanoseconds since 1970.
    pub now: i64,
    pub seen: AtomicUsize,
    /// Whether a second thread may be started.
    pub free: AtomicBool,
    /// Held while a large file is in memory, so that at most one is.
    pub large: Mutex<()>,
}

/// What is known about a directory from earlier.
#[derive(Clone, Default)]
pub(super) struct Before<'a> {
    /// Its state in the last snapshot.
    pub last: Option<&'a Arc<CachedDir>>,
    /// Its state in the first snapshot: what git tracked then stays part of snapshots, ignored or not.
    pub base: Option<&'a Arc<CachedDir>>,
    /// Its entries in the index.
    pub index: Range<usize>,
}

impl<'a> Before<'a> {
    pub fn dirs(&self) -> impl Iterator<Item = &'a Arc<CachedDir>> {
        [self.last, self.base].into_iter().flatten()
    }

    /// Whether a name was part of an earlier snapshot.
    fn knows(&self, name: &[u8]) -> bool {
        self.dirs()
            .any(|dir| dir.find(name, false).or_else(|| dir.find(name, true)).is_some())
    }

    fn is_empty(&self) -> bool {
        self.last.is_none() && self.base.is_none() && self.index.is_empty()
    }
}

/// A directory to walk.
pub(super) struct WalkedDirectory<'a> {
    pub handle: OwnedFd,
    /// Relative to the top of the repository, with a trailing slash; empty for the top itself.
    pub path: Vec<u8>,
    pub before: Before<'a>,
    /// Whether an ignore rule matches it; then only known names count.
    pub ignored: bool,
    pub depth: usize,
}

/// A listed directory: its entries in the index, and whether it is ignored.
type Listed<'a> = (&'a ListedName, Range<usize>, bool);

/// An error message about a path.
pub(super) fn said(path: &[u8], why: impl std::fmt::Display) -> String {
    format!("{}: {why}", String::from_utf8_lossy(path))
}

impl Scan<'_> {
    fn packer(&self) -> MutexGuard<'_, Packer> {
        self.packer.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Walks a directory and everything below it. `None` if nothing in it is part of a snapshot.
    pub fn dir(&self, place: WalkedDirectory<'_>, rules: &IgnoreRules<'_>) -> Result<Option<Arc<CachedDir>>, String> {
        if place.depth > MOST_DEPTH {
            return Err(said(
                &place.path,
                format!("more than {MOST_DEPTH} directories within each other"),
            ));
        }
        if self.started.elapsed() > MOST_TIME {
            return Err(said(
                &place.path,
                format!("the tree was not read within {} s", MOST_TIME.as_secs()),
            ));
        }
        let mut names = match place.ignored {
            true => self.known(&place),
            false => self.list(&place)?,
        };
        if self.seen.fetch_add(names.len(), Ordering::Relaxed) + names.len() > MOST_ENTRIES {
            return Err(said(
                &place.path,
                format!("the tree has more than {MOST_ENTRIES} files"),
            ));
        }
        let own = match names.iter().any(|name| name.name.as_bytes() == b".gitignore") && !place.ignored {
            true => self.patterns(&place)?,
            false => None,
        };
        let own = own.map(|text| IgnoreRules::new(Some(rules), place.path.len(), &text));
        let rules = own.as_ref().unwrap_or(rules);
        names.sort_unstable_by(|a, b| {
            let key = |name: &'_ ListedName| name.kind == FileType::Directory;
            order((a.name.as_bytes(), key(a)), (b.name.as_bytes(), key(b)))
        });
        let mut found = Vec::with_capacity(names.len());
        let mut below = Vec::new();
        let mut at = place.before.index.start;
        let mut path = place.path.clone();
        for name in &names {
            let bytes = name.name.as_bytes();
            let is_dir = name.kind == FileType::Directory;
            let seen = self.advance(&place, &mut at, bytes, is_dir);
            path.truncate(place.path.len());
            path.extend_from_slice(bytes);
            if self.hidden.contains(&path) {
                continue;
            }
            let ignored = place.ignored || rules.ignores(&path, is_dir) || (is_dir && self.own.contains(&path));
            if is_dir {
                below.push((name, seen, ignored));
            } else if !ignored || !seen.is_empty() || place.before.knows(bytes) {
                found.extend(self.look(&place, rules, name, seen, ignored)?);
            }
        }
        drop(path);
        found.extend(self.descend(&place, rules, &below)?);
        self.finish(place.before.last, found)
    }

    /// Walks subdirectories, on two threads if the other one is idle.
    fn descend(
        &self,
        place: &WalkedDirectory<'_>,
        rules: &IgnoreRules<'_>,
        below: &[Listed<'_>],
    ) -> Result<Vec<PendingEntry>, String> {
        let next = AtomicUsize::new(0);
        let work = || {
            let mut made = Vec::new();
            while let Some((name, seen, ignored)) = below.get(next.fetch_add(1, Ordering::Relaxed)) {
                made.extend(self.look(place, rules, name, seen.clone(), *ignored)?);
            }
            Ok::<_, String>(made)
        };
        if below.len() < 2 || !self.free.swap(false, Ordering::AcqRel) {
            return work();
        }
        std::thread::scope(|scope| {
            let helper = || {
                let made = work();
                self.free.store(true, Ordering::Release);
                made
            };
            let other = std::thread::Builder::new()
                .stack_size(STACK)
                .spawn_scoped(scope, helper);
            let mut made = work()?;
            if let Ok(other) = other {
                made.extend(other.join().map_err(|_| "a thread of the walk failed".to_owned())??);
            }
            Ok(made)
        })
    }

    /// Examines one name, whatever its type is by now.
    fn look(
        &self,
        place: &WalkedDirectory<'_>,
        rules: &IgnoreRules<'_>,
        name: &ListedName,
        seen: Range<usize>,
        ignored: bool,
    ) -> Result<Option<PendingEntry>, String> {
        let bytes = name.name.as_bytes();
        let said = |why: String| said(&[&place.path, bytes].concat(), why);
        let mut kind = name.kind;
        for _ in 0..TRIES {
            if kind == FileType::Directory && !refused(bytes) {
                match open_dir(place.handle.as_fd(), &name.name) {
                    Ok(handle) => return self.enter(place, rules, bytes, handle, (seen, ignored)),
                    Err(Errno::MFILE | Errno::NFILE) => return Err(said("too many open files".to_owned())),
                    Err(_) => {}
                }
            }
            let stat = match rustix::fs::statat(&place.handle, name.name.as_c_str(), AtFlags::SYMLINK_NOFOLLOW) {
                Ok(stat) => stat,
                Err(Errno::NOENT) => return Ok(None),
                Err(error) => return Err(said(error.to_string())),
            };
            kind = FileType::from_raw_mode(stat.st_mode);
            let look = NameStatus {
                scan: self,
                at: place.handle.as_fd(),
                name: &name.name,
                stat: &stat,
                old: place.before.last.and_then(|dir| dir.find(bytes, false)),
                first: place.before.base.and_then(|dir| dir.find(bytes, false)),
                index: self.index.filter(|_| seen.len() == 1),
                seen: seen.start,
            };
            if let Some((what, stat, id)) = look.at(kind, refused(bytes)).map_err(said)? {
                let (name, below) = (bytes.to_vec(), None);
                return Ok(Some(PendingEntry {
                    name,
                    what,
                    stat,
                    id,
                    below,
                }));
            }
        }
        Err(said("it keeps changing while it is looked at".to_owned()))
    }

    fn enter(
        &self,
        place: &WalkedDirectory<'_>,
        rules: &IgnoreRules<'_>,
        name: &[u8],
        handle: OwnedFd,
        (index, ignored): (Range<usize>, bool),
    ) -> Result<Option<PendingEntry>, String> {
        fn child<'b>(dir: Option<&'b Arc<CachedDir>>, name: &[u8]) -> Option<&'b Arc<CachedDir>> {
            dir?.find(name, true)?.below.as_ref()
        }
        let path = [&place.path, name, b"/"].concat();
        let starts = self
            .index
            .is_some_and(|index_of| index_of.name(index.start).starts_with(&path));
        let before = Before {
            last: child(place.before.last, name),
            base: child(place.before.base, name),
            index: if starts { index } else { 0..0 },
        };
        if ignored && before.is_empty() {
            return Ok(None);
        }
        let below = self.dir(
            WalkedDirectory {
                handle,
                path,
                before,
                ignored,
                depth: place.depth + 1,
            },
            rules,
        )?;
        Ok(below.map(|below| PendingEntry {
            name: name.to_vec(),
            what: What::Dir,
            stat: FileStat::UNKNOWN,
            id: below.id,
            below: Some(below),
        }))
    }

    fn patterns(&self, place: &WalkedDirectory<'_>) -> Result<Option<Vec<u8>>, String> {
        read_patterns(place.handle.as_fd()).map_err(|why| said(&place.path, format!(".gitignore: {why}")))
    }

    fn finish(
        &self,
        last: Option<&Arc<CachedDir>>,
        mut found: Vec<PendingEntry>,
    ) -> Result<Option<Arc<CachedDir>>, String> {
        if found.is_empty() {
            return Ok(None);
        }
        found.sort_unstable_by(|a, b| order((&a.name, a.what == What::Dir), (&b.name, b.what == What::Dir)));
        let (mut dir, tree) = CachedDir::new(self.format, found);
        if let Some(last) = last.filter(|last| last.same_tree(&dir)) {
            if last.same(&dir) {
                return Ok(Some(Arc::clone(last)));
            }
            dir.id = last.id;
        } else {
            dir.id = self.object(ObjectKind::Tree, &tree, None)?;
        }
        Ok(Some(Arc::new(dir)))
    }

    /// Stores an object, unless the store has it already, or it is `elsewhere`, that is, in the repository.
    pub fn object(&self, kind: ObjectKind, content: &[u8], elsewhere: Option<Id>) -> Result<Id, String> {
        let id = self.format.id_of(kind, content)?;
        if elsewhere == Some(id) || self.store.contains(&id) || self.packer().contains(&id) {
            return Ok(id);
        }
        if content.len() as u64 > LARGE {
            self.packer().add(&id, kind, content)?;
        } else {
            let object = packed(kind, content)?;
            self.packer().append(&id, &object)?;
        }
        Ok(id)
    }
}
