//! Appends events to `journal.jsonl`. The only writer of that file.

use super::background_sync::BackgroundSync;
use super::chain_key::{self, JournalKey};
use super::error::JournalError;
use super::reader::{self, Journal};
use super::state_dir::{self, HeadFile};
use super::{artefacts, format};
use crate::base::event::{Event, EventKind};
use crate::base::ids::RunId;
use std::collections::BTreeMap;
use std::fs::{File, OpenOptions, TryLockError};
use std::io::{self, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

/// Attempts to take a lock, and the pause between them.
const LOCK_TRIES: u32 = 10;
const LOCK_PAUSE: std::time::Duration = std::time::Duration::from_millis(10);

/// An open journal, locked against other writers until it is dropped.
#[derive(Debug)]
pub struct JournalWriter {
    path: PathBuf,
    file: File,
    chain: String,
    /// Number of lines.
    events: u64,
    key: Option<&'static JournalKey>,
    /// The head file in this user's state directory.
    head: Option<HeadFile>,
    /// Why there is no head file.
    headless: Option<String>,
    /// Number of lines with which an existing journal was opened.
    opened_at: Option<u64>,
    /// Whether something was appended since the last sync.
    dirty: bool,
    /// Started on first use.
    background: Option<BackgroundSync>,
}

impl JournalWriter {
    /// Creates the run directory and its journal with `first`; the journal appears complete or not at all.
    ///
    /// # Errors
    /// [`JournalError::Taken`]: there is a journal. [`JournalError::Link`]: a link has the name of one of its files.
    /// [`JournalError::Held`]: another process has it. [`JournalError::Key`]: the key is not valid.
    /// [`JournalError::Write`]: it cannot be written.
    pub fn create(dir: &Path, first: &Event) -> Result<Self, JournalError> {
        let path = dir.join(format::FILE);
        let wrap = JournalError::write(&path);
        if path.exists() {
            return Err(JournalError::Taken(dir.display().to_string()));
        }
        refuse_links(dir)?;
        artefacts::make_run_dir(dir)?;
        let draft = dir.join("journal.jsonl.new");
        let entry = serde_json::to_string(first).map_err(|error| wrap(error.into()))?;
        let key = chain_key::key()?;
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
        let run = match &first.kind {
            EventKind::RunStarted(started) => Some(&started.run),
            _ => None,
        };
        let mut writer = Self::over(path.clone(), file, (chain, 1), key, (run, false));
        // Before the journal has its name: a process that is killed in between leaves a head without a journal, which
        // nothing reads, and never a journal that this machine does not recognise.
        writer.write_head().map_err(wrap)?;
        std::fs::rename(&draft, &path).map_err(wrap)?;
        File::open(dir).and_then(|dir| dir.sync_all()).map_err(wrap)?;
        Ok(writer)
    }

    fn over(
        path: PathBuf,
        file: File,
        (chain, events): (String, u64),
        key: Option<&'static JournalKey>,
        (run, adopted): (Option<&RunId>, bool),
    ) -> Self {
        let dir = path.parent().unwrap_or_else(|| Path::new("."));
        let opened = run.map_or_else(
            || Err("it names no run".to_owned()),
            |run| HeadFile::open(run, dir, adopted),
        );
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
            opened_at: None,
            dirty: true,
            background: None,
        }
    }

    /// Why this machine will not recognise the journal again: its head could not be written to the state directory.
    pub fn headless(&self) -> Option<&str> {
        self.headless.as_deref()
    }

    /// Opens a journal to append to it. A torn last line (a crash during a write) is truncated; the events are
    /// returned.
    ///
    /// # Errors
    /// [`JournalError::Missing`]: there is no journal. [`JournalError::Held`]: another process has it.
    /// [`JournalError::Write`]: it cannot be written. Otherwise as [`reader::read_strictly`].
    pub fn reopen(dir: &Path) -> Result<(Self, Vec<Event>), JournalError> {
        let path = dir.join(format::FILE);
        let file = OpenOptions::new()
            .append(true)
            .custom_flags(libc::O_NOFOLLOW)
            .open(&path)
            .map_err(|_| JournalError::Missing(dir.display().to_string()))?;
        lock(&file, dir)?;
        let journal = reader::read_strictly(dir)?;
        let key = chain_key::key()?.filter(|_| journal.keyed);
        file.set_len(journal.whole_bytes).map_err(JournalError::write(&path))?;
        let end = (journal.chain.clone(), journal.events.len() as u64);
        let adopted = !journal.keyed && !journal.run().is_some_and(state_dir::began);
        let mut writer = Self::over(path, file, end, key, (journal.run(), adopted));
        if let Some(why) = &writer.headless
            && !journal.keyed
            && journal.run().and_then(state_dir::head).is_some()
        {
            // The lines of this session would come after the recorded end: they would be ignored, or count as a change
            // by somebody else.
            return Err(JournalError::write(&writer.path)(std::io::Error::other(format!(
                "its recorded end cannot be moved: {why}"
            ))));
        }
        // Before the first line: a process that is killed afterwards leaves a journal whose head says that more lines
        // may follow.
        writer.opened_at = Some(writer.events);
        writer.sync_with_head()?;
        Ok((writer, journal.events))
    }

    /// Moves the journal and the run's private files beside it to another directory, and continues there.
    ///
    /// # Errors
    /// [`JournalError::Write`]: the events cannot be synced, or a file cannot be moved or opened.
    /// [`JournalError::Held`]: another process has the copy.
    pub fn move_to(&mut self, dir: &Path) -> Result<(), JournalError> {
        self.sync()?;
        // A new thread is started for the file that is written from here on.
        self.background = None;
        let from = self.path.parent().unwrap_or_else(|| Path::new(".")).to_owned();
        state_dir::move_entries(&from, dir)?;
        self.path = dir.join(format::FILE);
        if let Some(head) = &mut self.head {
            head.move_to(dir);
        }
        self.dirty = true;
        let file = OpenOptions::new()
            .append(true)
            .custom_flags(libc::O_NOFOLLOW)
            .open(&self.path);
        let file = file.map_err(JournalError::write(&self.path))?;
        // The lock belongs to the open file: a renamed file is still locked, and nobody else can have locked a copy
        // yet.
        let same = rustix::fs::fstat(&file).is_ok_and(|new| {
            rustix::fs::fstat(&self.file).is_ok_and(|old| (old.st_dev, old.st_ino) == (new.st_dev, new.st_ino))
        });
        if !same {
            lock(&file, dir)?;
            self.file = file;
        }
        self.sync()
    }

    /// Appends an event: a JSON object without a line break, which would end the line and break the chain. The line
    /// survives the process; after `sync` it survives a power loss.
    ///
    /// # Errors
    /// [`JournalError::Write`]: it cannot be written.
    pub fn append(&mut self, entry: &str) -> Result<(), JournalError> {
        let (mut line, chain) = format::encode(&self.chain, entry, self.key);
        line.push('\n');
        self.file
            .write_all(line.as_bytes())
            .map_err(JournalError::write(&self.path))?;
        self.chain = chain;
        self.events += 1;
        self.dirty = true;
        Ok(())
    }

    /// What this process has written, even if the file has since been removed. `None` if it cannot be read.
    pub fn written(&self) -> Option<Journal> {
        let open = format!("/proc/self/fd/{}", self.file.as_raw_fd());
        let bytes = std::fs::read(open).ok()?;
        reader::parse(&self.path, &bytes, self.key).ok()
    }

    /// Returns when everything appended is on the disk and the head is in the state directory.
    ///
    /// # Errors
    /// [`JournalError::Write`]: this sync failed, or an earlier one in the background.
    pub fn sync(&mut self) -> Result<(), JournalError> {
        let settled = self.background.as_mut().map_or(Ok(()), BackgroundSync::settle);
        settled.map_err(JournalError::write(&self.path))?;
        if self.dirty {
            if rustix::fs::fstat(&self.file).is_ok_and(|data| data.st_nlink == 0) {
                let removed = io::Error::new(io::ErrorKind::NotFound, "it was removed while the run worked");
                return Err(JournalError::write(&self.path)(removed));
            }
            self.file.sync_data().map_err(JournalError::write(&self.path))?;
            self.write_head().map_err(JournalError::write(&self.path))?;
            self.dirty = false;
        }
        Ok(())
    }

    /// Like `sync`, and the head survives a power loss, too. Called for events that count only once they are recorded.
    ///
    /// # Errors
    /// [`JournalError::Write`], as [`JournalWriter::sync`].
    pub fn sync_with_head(&mut self) -> Result<(), JournalError> {
        self.sync()?;
        let told = self.head.as_ref().map_or(Ok(()), HeadFile::sync);
        told.map_err(JournalError::write(&self.path))
    }

    /// Records where the outputs are that flags named, by the names of [`state_dir::Head::copies`], with the next sync.
    pub fn remember(&mut self, copies: BTreeMap<String, String>) {
        if let Some(head) = &mut self.head {
            head.remember(copies);
            self.dirty = true;
        }
    }

    fn head_line(&mut self) -> Vec<u8> {
        let open = self.opened_at == Some(self.events);
        let head = self.head.as_mut();
        head.map(|head| head.line(self.events, &self.chain, open))
            .unwrap_or_default()
    }

    fn write_head(&mut self) -> std::io::Result<()> {
        let line = self.head_line();
        self.head.as_ref().map_or(Ok(()), |head| head.write(&line))
    }

    /// Removes old heads. To be called once, at the end of a run.
    pub fn tidy(&self) {
        if self.head.is_some() {
            state_dir::tidy();
        }
    }

    /// Requests a sync without waiting for it, for events after an effect: if one is lost, the effect counts as
    /// interrupted. The next call of either sync function reports a failure.
    ///
    /// # Errors
    /// [`JournalError::Write`]: an earlier sync failed, or no thread can be started.
    pub fn sync_in_background(&mut self) -> Result<(), JournalError> {
        if !self.dirty {
            return Ok(());
        }
        let line = self.head_line();
        let asked = match &mut self.background {
            Some(background) => background.sync(line),
            None => {
                let head = self.head.as_ref().map(HeadFile::try_clone).transpose();
                head.and_then(|head| BackgroundSync::start(&self.file, head))
                    .and_then(|mut background| {
                        background.sync(line)?;
                        self.background = Some(background);
                        Ok(())
                    })
            }
        };
        asked.map_err(JournalError::write(&self.path))?;
        self.dirty = false;
        Ok(())
    }
}

/// Refuses symbolic links: a tree may contain a directory with these names.
fn refuse_links(dir: &Path) -> Result<(), JournalError> {
    let ours = state_dir::ENTRIES.into_iter().chain(["journal.jsonl.new"]);
    let link = ours.map(|name| dir.join(name)).find(|path| path.is_symlink());
    link.map_or(Ok(()), |link| Err(JournalError::Link(link.display().to_string())))
}

/// Locks a directory or a run for this process; closing the file releases the lock.
///
/// If a process is killed while forking, the child holds the lock until it executes its program, so taking a held lock
/// is retried for a tenth of a second.
///
/// # Errors
/// [`JournalError::Held`]: another process has it. [`JournalError::Write`]: the file system has no locks.
pub fn lock(file: &File, dir: &Path) -> Result<(), JournalError> {
    tried(|| file.try_lock(), dir)
}

/// Like [`lock`], with a shared lock.
///
/// # Errors
/// [`JournalError::Held`]: another process has an exclusive lock. [`JournalError::Write`]: as for [`lock`].
pub fn lock_shared(file: &File, dir: &Path) -> Result<(), JournalError> {
    tried(|| file.try_lock_shared(), dir)
}

fn tried(lock: impl Fn() -> Result<(), TryLockError>, dir: &Path) -> Result<(), JournalError> {
    for _ in 0..LOCK_TRIES {
        match lock() {
            Ok(()) => return Ok(()),
            Err(TryLockError::WouldBlock) => std::thread::sleep(LOCK_PAUSE),
            Err(TryLockError::Error(source)) => {
                return Err(JournalError::write(dir)(source));
            }
        }
    }
    Err(JournalError::Held(dir.display().to_string()))
}
