//! Appends events to `journal.jsonl`. The only writer of a run directory's record; decides nothing about the run.

use super::behind::Behind;
use super::format;
use super::{JournalError, reader};
use crate::base::event::Event;
use std::fs::{File, OpenOptions, TryLockError};
use std::io::Write;
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
        std::fs::write(dir.join(".gitignore"), "*\n").map_err(wrap)?;
        let draft = dir.join("journal.jsonl.new");
        let entry = serde_json::to_string(first).map_err(|error| wrap(error.into()))?;
        let (line, chain) = format::encode("", &entry);
        let mut file = OpenOptions::new()
            .create(true)
            .truncate(true)
            .write(true)
            .open(&draft)
            .map_err(wrap)?;
        lock(&file, dir)?;
        file.write_all(format!("{line}\n").as_bytes()).map_err(wrap)?;
        file.sync_data().map_err(wrap)?;
        std::fs::rename(&draft, &path).map_err(wrap)?;
        File::open(dir).and_then(|dir| dir.sync_all()).map_err(wrap)?;
        Ok(Self {
            path,
            file,
            chain,
            dirty: false,
            behind: None,
        })
    }

    /// Opens a journal to go on with it. A torn last line (a crash in mid-write) is cut off; its events are returned.
    pub fn reopen(dir: &Path) -> Result<(Self, Vec<Event>), JournalError> {
        let path = dir.join(FILE);
        let file = OpenOptions::new()
            .append(true)
            .open(&path)
            .map_err(|_| JournalError::Missing(dir.display().to_string()))?;
        lock(&file, dir)?;
        let journal = reader::read(dir)?;
        file.set_len(journal.whole_bytes)
            .map_err(|source| JournalError::Write {
                path: path.display().to_string(),
                source,
            })?;
        let writer = Self {
            path,
            file,
            chain: journal.chain,
            dirty: false,
            behind: None,
        };
        Ok((writer, journal.events))
    }

    /// Appends an event that is serialized already. It survives the process; `sync` makes it survive the machine.
    pub fn append(&mut self, entry: &str) -> Result<(), JournalError> {
        let (mut line, chain) = format::encode(&self.chain, entry);
        line.push('\n');
        self.file
            .write_all(line.as_bytes())
            .map_err(|source| self.write_error(source))?;
        self.chain = chain;
        self.dirty = true;
        Ok(())
    }

    /// Returns when all that was appended is on the disk.
    pub fn sync(&mut self) -> Result<(), JournalError> {
        if self.dirty {
            self.file.sync_data().map_err(|source| self.write_error(source))?;
            self.dirty = false;
        }
        let settled = self.behind.as_mut().map_or(Ok(()), Behind::settle);
        settled.map_err(|source| self.write_error(source))
    }

    /// Sees to it that all that was appended gets to the disk soon, and does not wait for it: for records after an effect,
    /// where a loss is told as an interruption. A failure is told by the next sync of either kind.
    pub fn sync_behind(&mut self) -> Result<(), JournalError> {
        if !self.dirty {
            return Ok(());
        }
        let asked = match &mut self.behind {
            Some(behind) => behind.sync(),
            None => Behind::start(&self.file).and_then(|mut behind| {
                behind.sync()?;
                self.behind = Some(behind);
                Ok(())
            }),
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
