//! Appends events to `journal.jsonl`. The only writer of a run directory's record; decides nothing about the run.

use super::behind::Behind;
use super::own::{self, Key};
use super::state::{self, HeadFile};
use super::{JournalError, format, place, reader};
use crate::base::event::{Event, EventKind};
use crate::base::ids::RunId;
use std::fs::{File, OpenOptions, TryLockError};
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

/// The file name of the record.
pub const FILE: &str = "journal.jsonl";
/// How often a lock is tried, and the pause after each try.
const LOCK_TRIES: u32 = 10;
const LOCK_PAUSE: std::time::Duration = std::time::Duration::from_millis(10);

/// An open journal, locked against other writers as long as it lives.
#[derive(Debug)]
pub struct Writer {
    path: PathBuf,
    file: File,
    chain: String,
    /// Lines.
    events: u64,
    key: Option<&'static Key>,
    /// Where this user's state directory tells the head.
    head: Option<HeadFile>,
    /// Why it tells nothing.
    headless: Option<String>,
    /// Whether something was appended since the last sync.
    dirty: bool,
    /// Started when it is first asked.
    behind: Option<Behind>,
}

impl Writer {
    /// Makes the run directory and its journal, which appears whole with `first` in it, or not at all.
    pub fn create(dir: &Path, first: &Event) -> Result<Self, JournalError> {
        let path = dir.join(FILE);
        let wrap = |source| JournalError::Write {
            path: path.display().to_string(),
            source,
        };
        std::fs::create_dir_all(dir).map_err(wrap)?;
        if path.exists() {
            return Err(JournalError::Held(dir.display().to_string()));
        }
        refuse_links(dir)?;
        place::write_new(&dir.join(".gitignore"), b"*\n").map_err(wrap)?;
        let draft = dir.join("journal.jsonl.new");
        let entry = serde_json::to_string(first).map_err(|error| wrap(error.into()))?;
        let key = own::key()?;
        let (line, chain) = format::encode("", &entry, key);
        let mut file = OpenOptions::new()
            .create(true)
            .truncate(true)
            .write(true)
            .custom_flags(libc::O_NOFOLLOW)
            .open(&draft)
            .map_err(wrap)?;
        lock(&file, dir)?;
        file.write_all(format!("{line}\n").as_bytes()).map_err(wrap)?;
        file.sync_data().map_err(wrap)?;
        std::fs::rename(&draft, &path).map_err(wrap)?;
        File::open(dir).and_then(|dir| dir.sync_all()).map_err(wrap)?;
        let run = match &first.kind {
            EventKind::RunStarted(started) => Some(&started.run),
            _ => None,
        };
        Ok(Self::over(path, file, (chain, 1), key, run))
    }

    fn over(
        path: PathBuf,
        file: File,
        (chain, events): (String, u64),
        key: Option<&'static Key>,
        run: Option<&RunId>,
    ) -> Self {
        let dir = path.parent().unwrap_or_else(|| Path::new("."));
        let opened = run.map_or_else(|| Err("it names no run".to_owned()), |run| HeadFile::open(run, dir));
        let (head, headless) = match opened {
            Ok(head) => (Some(head), None),
            Err(why) => (None, Some(why)),
        };
        Self {
            path,
            file,
            chain,
            events,
            key,
            head,
            headless,
            dirty: true,
            behind: None,
        }
    }

    /// Why this machine will not know the journal again: its head could not be told to the state directory.
    pub fn headless(&self) -> Option<&str> {
        self.headless.as_deref()
    }

    /// Opens a journal to go on with it. A torn last line (a crash in mid-write) is cut off; its events are returned.
    pub fn reopen(dir: &Path) -> Result<(Self, Vec<Event>), JournalError> {
        let path = dir.join(FILE);
        let file = OpenOptions::new()
            .append(true)
            .custom_flags(libc::O_NOFOLLOW)
            .open(&path)
            .map_err(|_| JournalError::Missing(dir.display().to_string()))?;
        lock(&file, dir)?;
        let journal = reader::read_strictly(dir)?;
        let key = own::key()?.filter(|_| journal.keyed);
        file.set_len(journal.whole_bytes)
            .map_err(|source| JournalError::Write {
                path: path.display().to_string(),
                source,
            })?;
        let end = (journal.chain.clone(), journal.events.len() as u64);
        let writer = Self::over(path, file, end, key, journal.run());
        Ok((writer, journal.events))
    }

    /// Goes on in another directory: the journal and all of the run's private files that lie beside it are moved there.
    pub fn move_to(&mut self, dir: &Path) -> Result<(), JournalError> {
        self.sync()?;
        // Started again for the file that is written from here on.
        self.behind = None;
        let from = self.path.parent().unwrap_or_else(|| Path::new(".")).to_owned();
        state::move_entries(&from, dir)?;
        self.path = dir.join(FILE);
        if let Some(head) = &mut self.head {
            head.move_to(dir);
        }
        self.dirty = true;
        let file = OpenOptions::new()
            .append(true)
            .custom_flags(libc::O_NOFOLLOW)
            .open(&self.path);
        let file = file.map_err(|source| self.write_error(source))?;
        // The lock is the open file's: after a rename it is held already, and a copy is nobody else's yet.
        let same = rustix::fs::fstat(&file).is_ok_and(|new| {
            rustix::fs::fstat(&self.file).is_ok_and(|old| (old.st_dev, old.st_ino) == (new.st_dev, new.st_ino))
        });
        if !same {
            lock(&file, dir)?;
            self.file = file;
        }
        self.sync()
    }

    /// Appends an event that is serialized already. It survives the process; `sync` makes it survive the machine.
    pub fn append(&mut self, entry: &str) -> Result<(), JournalError> {
        let (mut line, chain) = format::encode(&self.chain, entry, self.key);
        line.push('\n');
        self.file
            .write_all(line.as_bytes())
            .map_err(|source| self.write_error(source))?;
        self.chain = chain;
        self.events += 1;
        self.dirty = true;
        Ok(())
    }

    /// Returns when all that was appended is on the disk, and the state directory knows.
    pub fn sync(&mut self) -> Result<(), JournalError> {
        let settled = self.behind.as_mut().map_or(Ok(()), Behind::settle);
        settled.map_err(|source| self.write_error(source))?;
        if self.dirty {
            self.file.sync_data().map_err(|source| self.write_error(source))?;
            let told = self.head.as_ref().map_or(Ok(()), |head| head.write(&self.head_line()));
            told.map_err(|source| self.write_error(source))?;
            self.dirty = false;
        }
        Ok(())
    }

    fn head_line(&self) -> Vec<u8> {
        let head = self.head.as_ref();
        head.map(|head| head.line(self.events, &self.chain)).unwrap_or_default()
    }

    /// Takes away the heads of long ago. To be called once, at the end of a run.
    pub fn tidy(&self) {
        if self.head.is_some() {
            state::tidy();
        }
    }

    /// Sees to it that all that was appended gets to the disk soon, and does not wait for it: for records after an effect,
    /// where a loss is told as an interruption. A failure is told by the next sync of either kind.
    pub fn sync_behind(&mut self) -> Result<(), JournalError> {
        if !self.dirty {
            return Ok(());
        }
        let line = self.head_line();
        let asked = match &mut self.behind {
            Some(behind) => behind.sync(line),
            None => {
                let head = self.head.as_ref().map(HeadFile::try_clone).transpose();
                head.and_then(|head| Behind::start(&self.file, head))
                    .and_then(|mut behind| {
                        behind.sync(line)?;
                        self.behind = Some(behind);
                        Ok(())
                    })
            }
        };
        asked.map_err(|source| self.write_error(source))?;
        self.dirty = false;
        Ok(())
    }

    fn write_error(&self, source: std::io::Error) -> JournalError {
        JournalError::Write {
            path: self.path.display().to_string(),
            source,
        }
    }
}

/// Nothing of ours is a link: a tree may bring a directory of our names with it.
fn refuse_links(dir: &Path) -> Result<(), JournalError> {
    let ours = [FILE, "journal.jsonl.new", "blobs", "results", "git"];
    let link = ours.iter().map(|name| dir.join(name)).find(|path| path.is_symlink());
    link.map_or(Ok(()), |link| Err(JournalError::Link(link.display().to_string())))
}

/// Holds a directory or a run for this process; the lock ends with the file.
///
/// A process that was killed in the moment of starting a child leaves the lock to that child until it has become the
/// other program, so a lock that is held is tried again for a tenth of a second.
pub fn lock(file: &File, dir: &Path) -> Result<(), JournalError> {
    for _ in 0..LOCK_TRIES {
        match file.try_lock() {
            Ok(()) => return Ok(()),
            Err(TryLockError::WouldBlock) => std::thread::sleep(LOCK_PAUSE),
            Err(TryLockError::Error(source)) => {
                return Err(JournalError::Write {
                    path: dir.display().to_string(),
                    source,
                });
            }
        }
    }
    Err(JournalError::Held(dir.display().to_string()))
}
