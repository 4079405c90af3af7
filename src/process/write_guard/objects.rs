//! Keeps git's objects for putting back. They are many and large, so the guard of a single command holds no content of
//! them. Once per run, small ones are copied into an anonymous file, and large ones are kept open: what is removed or
//! replaced by its name can then be read still. The copies have no name that a command could open, nothing remains if
//! the run is killed, and the repository itself is not touched.

use super::at;
use super::node::{Fingerprint, copy_range};
use crate::base::sync::lock;
use std::collections::HashMap;
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard};
use std::time::{Duration, Instant};

/// An object of more bytes is kept open rather than copied. A command that writes it in place destroys it.
const MOST_EACH: u64 = 16 << 20;
/// Upper limit in bytes for the copies in one run. Objects beyond that are kept open.
const MOST_COPIED: u64 = 512 << 20;
/// Time limit for the copies in one run: objects that are not in the page cache can take long.
const MOST_TIME: Duration = Duration::from_secs(10);
/// Upper limit for the objects that are kept open; the usual limit of open files of a process is 1,024.
const MOST_OPEN: usize = 128;

/// The code of the warning about objects beyond these limits.
pub const NOT_KEPT: &str = "limit:guard_objects";

/// The objects of git that are kept in one run.
#[derive(Debug, Default)]
pub struct KeptObjects(Mutex<Kept>);

#[derive(Debug, Default)]
struct Kept {
    objects: HashMap<PathBuf, KeptObject>,
    /// The anonymous file that holds the copies.
    copies: Option<File>,
    copied: u64,
    spent: Duration,
    open: usize,
    /// The first object that could not be kept.
    left: Option<PathBuf>,
    told: bool,
}

#[derive(Debug)]
struct KeptObject {
    fingerprint: Fingerprint,
    place: KeptPlace,
}

#[derive(Debug)]
enum KeptPlace {
    /// Copied, at this offset in the file of the copies.
    Copied(u64),
    Open(File),
}

impl KeptObject {
    /// Whether it is this file. Objects are not changed after they were made.
    fn is(&self, fingerprint: &Fingerprint) -> bool {
        fingerprint.is_same_content(&self.fingerprint)
    }
}

impl KeptObjects {
    /// Keeps an object, if it is not kept already.
    pub(super) fn keep(&self, root: &OwnedFd, path: &Path, fingerprint: &Fingerprint) {
        let mut kept = self.lock();
        if kept.objects.get(path).is_some_and(|object| object.is(fingerprint)) {
            return;
        }
        if let Some(KeptObject {
            place: KeptPlace::Open(_),
            ..
        }) = kept.objects.remove(path)
        {
            kept.open -= 1;
        }
        let place = match fingerprint.size > MOST_EACH {
            true => kept
                .opened(root, path)
                .or_else(|| kept.copy(root, path, fingerprint.size)),
            false => kept
                .copy(root, path, fingerprint.size)
                .or_else(|| kept.opened(root, path)),
        };
        match place {
            Some(place) => {
                let fingerprint = *fingerprint;
                kept.objects
                    .insert(path.to_path_buf(), KeptObject { fingerprint, place });
            }
            None if kept.left.is_none() => kept.left = Some(path.to_path_buf()),
            None => {}
        }
    }

    /// Writes the content of an object into a file. The caller must check that it is unchanged: a command may have
    /// written an object in place that was only kept open.
    ///
    /// # Errors
    /// I/O errors; `NotFound` if the object is not kept.
    pub(super) fn write(&self, path: &Path, fingerprint: &Fingerprint, to: &mut File) -> io::Result<()> {
        let kept = self.lock();
        let object = kept.objects.get(path).filter(|object| object.is(fingerprint));
        let object = object.ok_or(io::ErrorKind::NotFound)?;
        match (&object.place, &kept.copies) {
            (KeptPlace::Open(file), _) => copy_range(file, (0, fingerprint.size), to),
            (KeptPlace::Copied(offset), Some(copies)) => copy_range(copies, (*offset, fingerprint.size), to),
            (KeptPlace::Copied(_), None) => Err(io::ErrorKind::NotFound.into()),
        }
    }

    /// A warning, once per run, if objects could not be kept.
    #[must_use]
    pub fn warning(&self) -> Option<String> {
        let mut kept = self.lock();
        let left = kept.left.clone().filter(|_| !kept.told)?;
        kept.told = true;
        Some(format!(
            "{} and perhaps further objects of git could not be kept: if a command removes one, it cannot be put back; \
             pack them (`git gc`), or run with --isolate",
            left.display()
        ))
    }

    fn lock(&self) -> MutexGuard<'_, Kept> {
        lock(&self.0)
    }
}

impl Kept {
    /// `None` if a limit was reached, or the object cannot be read or has another size now.
    fn copy(&mut self, root: &OwnedFd, path: &Path, size: u64) -> Option<KeptPlace> {
        if self.spent > MOST_TIME || self.copied + size > MOST_COPIED {
            return None;
        }
        let begun = Instant::now();
        let copied = self.copy_whole(root, path, size);
        self.spent += begun.elapsed();
        copied.ok().flatten()
    }

    fn copy_whole(&mut self, root: &OwnedFd, path: &Path, size: u64) -> io::Result<Option<KeptPlace>> {
        let from = at::file(root, path)?;
        if self.copies.is_none() {
            self.copies = Some(tempfile::tempfile()?);
        }
        let Some(to) = &mut self.copies else {
            return Ok(None);
        };
        let offset = self.copied;
        // An earlier copy may have failed on the way.
        to.seek(SeekFrom::Start(offset))?;
        // Reading one byte more reveals that the file has grown.
        if io::copy(&mut from.take(size + 1), to)? != size {
            return Ok(None);
        }
        self.copied += size;
        Ok(Some(KeptPlace::Copied(offset)))
    }

    fn opened(&mut self, root: &OwnedFd, path: &Path) -> Option<KeptPlace> {
        if self.open >= MOST_OPEN {
            return None;
        }
        let file = at::file(root, path).ok()?;
        self.open += 1;
        Some(KeptPlace::Open(file))
    }
}
