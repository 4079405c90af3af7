//! Walks the tree for a snapshot: through directory handles only, following no link and starting no program. Writes
//! nothing to the tree, with one exception: a directory that an earlier snapshot could read and whose mode now denies it is
//! made readable for its owner again, because its files would count as deleted otherwise.

use super::cache::{CachedDir, FilePermissions, FileStat, PendingEntry, What};
use super::ignored::{CountedText, IgnoreRules, read_patterns};
use super::name_status::NameStatus;
use super::names::{ListedName, refused};
use super::object::{ObjectKind, order};
use super::open::{open_closed_dir, open_searchable, open_up};
use super::scan_state::{Before, MOST_ENTRIES, Scan, WalkedDirectory, about};
use crate::base::sync::lock;
use rustix::fs::{AtFlags, FileType, Stat};
use rustix::io::Errno;
use std::ops::Range;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Upper limit for nested directories; each level holds an open handle.
pub(super) const MOST_DEPTH: usize = 256;
/// Upper limit for retries of a name whose type changes while it is read.
const TRIES: usize = 16;
/// Why a snapshot ends at a directory that an earlier one has read.
const CLOSED_MEANWHILE: &str = "this directory was readable and no longer is, so its contents are unknown; let the \
    user who runs this program read it";
/// The name of git's ignore files.
const IGNORE_FILE: &[u8] = b".gitignore";
/// Stack size in bytes of a thread that walks [`MOST_DEPTH`] levels.
pub(super) const STACK: usize = 32 << 20;

/// A listed directory: its entries in the index, and whether it is ignored.
type Listed<'a> = (&'a ListedName, Range<usize>, bool);

impl Scan<'_> {
    /// Walks a directory and everything below it. `None` if nothing in it is part of a snapshot.
    ///
    /// # Errors
    /// The time for reading the tree is over, directories are nested too deeply, there are too many files, a directory,
    /// file or ignore file cannot be read, or its content cannot be stored. The error names the path.
    pub fn dir(&self, place: WalkedDirectory<'_>, rules: &IgnoreRules<'_>) -> Result<Option<Arc<CachedDir>>, String> {
        if place.depth > MOST_DEPTH {
            return Err(about(
                &place.path,
                format!("directories are nested more than {MOST_DEPTH} deep"),
            ));
        }
        self.bound.check().map_err(|why| about(&place.path, why))?;
        let mut names = match place.ignored {
            true => self.known(&place)?,
            false => self.list(&place)?,
        };
        if self.seen.fetch_add(names.len(), Ordering::Relaxed) + names.len() > MOST_ENTRIES {
            return Err(about(
                &place.path,
                format!("the tree has more than {MOST_ENTRIES} files"),
            ));
        }
        let has_own = names.iter().any(|name| name.name.as_bytes() == IGNORE_FILE);
        let (own, changed) = match place.ignored {
            true => (None, false),
            false => self.patterns(&place, has_own)?,
        };
        // A changed ignore file is shown even if it ignores itself, as those of caches do; such a directory is new.
        let shows_own = changed && place.before.base.is_some();
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
            // For every name, because matching it against many patterns and reading its content take time.
            self.bound.check().map_err(|why| about(&path, why))?;
            if self.hidden.contains(&path) {
                continue;
            }
            let is_shown = shows_own && !is_dir && bytes == IGNORE_FILE;
            let ignored =
                place.ignored || (!is_shown && rules.ignores(&path, is_dir)) || (is_dir && self.own.contains(&path));
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

    /// Examines one name, even if its type has changed since it was listed.
    fn look(
        &self,
        place: &WalkedDirectory<'_>,
        rules: &IgnoreRules<'_>,
        name: &ListedName,
        seen: Range<usize>,
        ignored: bool,
    ) -> Result<Option<PendingEntry>, String> {
        let bytes = name.name.as_bytes();
        let about = |why: String| about(&[&place.path, bytes].concat(), why);
        let mut kind = name.kind;
        for _ in 0..TRIES {
            if kind == FileType::Directory && !refused(bytes) {
                let known = place.before.known_dir(bytes);
                let opened = match (open_searchable(place.handle.as_fd(), &name.name), known) {
                    (Err(Errno::ACCESS | Errno::PERM), Some(known)) => {
                        let mode = known.access.map(|access| access.mode);
                        open_closed_dir(place.handle.as_fd(), &name.name, mode)
                    }
                    (opened, _) => opened,
                };
                match opened {
                    Ok(found) => return self.enter(place, rules, bytes, found, (seen, ignored)),
                    Err(Errno::MFILE | Errno::NFILE) => return Err(about("too many open files".to_owned())),
                    Err(Errno::ACCESS | Errno::PERM) if known.is_some() => match open_up(place.handle.as_fd(), None) {
                        Ok(()) => continue,
                        Err(_) => return Err(about(CLOSED_MEANWHILE.to_owned())),
                    },
                    Err(_) => {}
                }
            }
            let stat = match rustix::fs::statat(&place.handle, name.name.as_c_str(), AtFlags::SYMLINK_NOFOLLOW) {
                Ok(stat) => stat,
                Err(Errno::NOENT) => return Ok(None),
                Err(Errno::ACCESS | Errno::PERM) if open_up(place.handle.as_fd(), None).is_ok() => continue,
                Err(error) => return Err(about(error.to_string())),
            };
            kind = FileType::from_raw_mode(stat.st_mode);
            let look = NameStatus {
                scan: self,
                at: place.handle.as_fd(),
                dir: &place.path,
                name: &name.name,
                stat: &stat,
                old: place.before.last.and_then(|dir| dir.find(bytes, false)),
                first: place.before.base.and_then(|dir| dir.find(bytes, false)),
                index: self.index.filter(|_| seen.len() == 1),
                seen: seen.start,
            };
            let access = (kind == FileType::RegularFile).then(|| FilePermissions::of(&stat));
            if let Some((what, stat, id)) = look.at(kind, refused(bytes)).map_err(about)? {
                let (name, below) = (bytes.to_vec(), None);
                return Ok(Some(PendingEntry {
                    name,
                    what,
                    stat,
                    access,
                    id,
                    below,
                }));
            }
        }
        Err(about("it keeps changing while it is read".to_owned()))
    }

    fn enter(
        &self,
        place: &WalkedDirectory<'_>,
        rules: &IgnoreRules<'_>,
        name: &[u8],
        (handle, stat): (OwnedFd, Stat),
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
            access: Some(FilePermissions::of(&stat)),
            id: below.id,
            below: Some(below),
        }))
    }

    /// The text of the directory's ignore file that counts, and whether the file differs from that of the first walk.
    fn patterns(&self, place: &WalkedDirectory<'_>, has_own: bool) -> Result<CountedText, String> {
        let now = match has_own {
            true => {
                let path = || [&place.path, IGNORE_FILE].concat();
                read_patterns(place.handle.as_fd()).map_err(|why| about(&path(), why))?
            }
            false => None,
        };
        let whole = format!("{}.gitignore", String::from_utf8_lossy(&place.path));
        let local = whole.strip_prefix(self.prefix).unwrap_or(&whole);
        let mut files = lock(&self.ignore_files);
        files
            .counted(&place.path, local, now, self.counting)
            .map_err(|why| about(&place.path, why))
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
}
