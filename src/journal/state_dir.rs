//! The user's state directory: the head of every journal that this user's runs wrote, and the journals and stores of
//! runs whose directory commands could reach. No command can reach this directory.
//!
//! ```text
//! heads/RUN   {"run":ID,"events":N,"head":HEX,"dir":PATH,"adopted":true,"open":true,"copies":{"patch":PATH}}
//! contents/RUN/   what the store of the run must not hold; removed when the run can no longer be resumed
//! uncompared/DIGEST   see [`super::uncompared`]
//! runs/RUN/   journal.jsonl, blobs/, results/, git/, and `place`: the run directory for the outputs
//! ```

use super::artefacts;
use super::chain_key;
use super::error::JournalError;
use super::format;
use super::no_follow;
use crate::base::ids::RunId;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs::{File, OpenOptions};
use std::io::{self, Read};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// Note in a run directory whose journal is in the state directory.
pub const NOTE: &str = "journal.moved";
const HEADS: &str = "heads";
const MOVED: &str = "runs";
const CONTENTS: &str = "contents";
/// In `runs/RUN`: the path of the run directory.
pub const PLACE: &str = "place";
/// Limit of heads that are kept; beyond it, the oldest are removed.
const HEADS_KEPT: usize = 10_000;
/// Size limit of a state file that is read, in bytes.
const SMALL: u64 = 64 << 10;

/// The recorded length and hash of a journal.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Head {
    pub run: RunId,
    /// Number of lines.
    pub events: u64,
    /// The hash of the last line.
    pub head: String,
    /// The directory of the journal.
    #[serde(default)]
    pub dir: String,
    /// Whether the run began elsewhere and was resumed here: this machine vouches for what it appended, never for what
    /// the journal brought with it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub adopted: bool,
    /// Whether a process of this machine continues from here, so that lines after the head may follow that it had not
    /// recorded yet.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub open: bool,
    /// The absolute paths of the outputs that flags named: `patch`, `junit`, `transcript`; and under `stream:` with the path,
    /// which file of the workspace was stdout or stderr of the run.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub copies: BTreeMap<String, String>,
}

/// Whether a run's id is usable as a file name: a journal from elsewhere may contain anything.
pub fn is_plain(run: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_';
    !run.is_empty() && run.len() <= 64 && run.bytes().all(plain)
}

fn head_path(run: &RunId) -> Option<PathBuf> {
    let name = is_plain(run.as_str()).then_some(run.as_str())?;
    Some(chain_key::state().ok()?.join(HEADS).join(name))
}

/// Whether this machine began the run. A journal that was read is then one that it wrote, or a continuation of one: a
/// killed process may have appended lines after its last recorded head.
pub fn began(run: &RunId) -> bool {
    head(run).is_some_and(|head| !head.adopted)
}

/// The recorded head of a run.
pub fn head(run: &RunId) -> Option<Head> {
    let text = bounded(&head_path(run)?, SMALL).ok()?;
    // Bytes after the first line are left over from a longer one.
    let head: Head = serde_json::from_slice(text.split(|byte| *byte == b'\n').next()?).ok()?;
    (head.run == *run).then_some(head)
}

/// The heads of all runs whose id is not before this one, newest first: an id begins with the time.
pub(super) fn heads_since(since: &str) -> impl Iterator<Item = Head> {
    let entries = chain_key::state()
        .ok()
        .and_then(|dir| std::fs::read_dir(dir.join(HEADS)).ok());
    let names = entries.into_iter().flatten().filter_map(Result::ok);
    let names = names.filter_map(|entry| entry.file_name().into_string().ok());
    let mut names: Vec<String> = names.filter(|name| name.as_str() >= since).collect();
    names.sort_unstable_by(|one, other| other.cmp(one));
    names.into_iter().filter_map(|name| head(&RunId(name)))
}

/// Opens a file for reading. A link is refused, and a pipe is not waited for.
pub(super) fn open(path: &Path) -> io::Result<File> {
    OpenOptions::new()
        .read(true)
        .custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK)
        .open(path)
}

/// The first bytes of a file, opened with [`open`].
pub(super) fn bounded(path: &Path, limit: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    open(path)?.take(limit).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// The file that records the head of an active run.
#[derive(Debug)]
pub(super) struct HeadFile {
    file: File,
    /// What was recorded last, or is the same in every record.
    known: Head,
}

impl HeadFile {
    /// Opens it and creates its directories. `adopted` as in [`Head`].
    ///
    /// # Errors
    /// Why this machine will not recognise the run again: the id cannot be the name of a file, there is no state
    /// directory, or the file cannot be created there.
    pub fn open(run: &RunId, journal: &Path, adopted: bool) -> Result<Self, String> {
        if !is_plain(run.as_str()) {
            return Err(format!("{run} cannot be the name of a file"));
        }
        let dir = directory(HEADS)?;
        let path = dir.join(run.as_str());
        let file = no_follow::open_private(&path).map_err(|error| format!("{}: {error}", path.display()))?;
        let mut head = Self {
            file,
            known: Head {
                run: run.clone(),
                events: 0,
                head: String::new(),
                dir: String::new(),
                adopted,
                open: false,
                copies: self::head(run).map(|known| known.copies).unwrap_or_default(),
            },
        };
        head.move_to(journal);
        Ok(head)
    }

    /// Sets the directory of the journal after a move.
    pub fn move_to(&mut self, journal: &Path) {
        self.known.dir = no_follow::settled(journal).to_string_lossy().into_owned();
    }

    /// Adds the paths of outputs; one of the same name is replaced.
    pub fn remember(&mut self, copies: BTreeMap<String, String>) {
        self.known.copies.extend(copies);
    }

    /// The line that records the current length of the journal; `open` as in [`Head`].
    pub fn line(&mut self, events: u64, head: &str, open: bool) -> Vec<u8> {
        (self.known.events, self.known.open) = (events, open);
        head.clone_into(&mut self.known.head);
        // Strings and a number always serialize.
        let mut line = serde_json::to_vec(&self.known).unwrap_or_default();
        line.push(b'\n');
        line
    }

    /// Writes the line. Call it only after the journal itself is synced this far, so that a power loss never leaves the
    /// record ahead of the journal.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn write(&self, line: &[u8]) -> io::Result<()> {
        self.file.write_all_at(line, 0)
    }

    /// Returns when what was written is on the disk.
    ///
    /// # Errors
    /// The file cannot be synced.
    pub fn sync(&self) -> io::Result<()> {
        self.file.sync_data()
    }

    /// The same open file once more, for another thread.
    ///
    /// # Errors
    /// The process or the system has no more file descriptors.
    pub fn try_clone(&self) -> io::Result<File> {
        self.file.try_clone()
    }
}

/// Removes the oldest heads beyond the limit.
pub(super) fn tidy() {
    let Ok(dir) = chain_key::state().map(|dir| dir.join(HEADS)) else {
        return;
    };
    let Ok(entries) = std::fs::read_dir(&dir) else {
        return;
    };
    let mut names: Vec<OsString> = entries.filter_map(Result::ok).map(|entry| entry.file_name()).collect();
    if names.len() <= HEADS_KEPT {
        return;
    }
    // Ids begin with their time.
    names.sort();
    let surplus = names.len() - HEADS_KEPT;
    for name in names.into_iter().take(surplus) {
        // The next run removes what remains.
        let _ = std::fs::remove_file(dir.join(&name));
        if let Some(run) = name.into_string().ok().map(RunId) {
            forget_contents(&run);
        }
    }
}

/// Forgets the head of a run.
pub(super) fn forget(run: &RunId) {
    if let (true, Ok(state)) = (is_plain(run.as_str()), chain_key::state()) {
        // A file that remains does no harm.
        let _ = std::fs::remove_file(state.join(HEADS).join(run.as_str()));
        let _ = std::fs::remove_dir_all(state.join(MOVED).join(run.as_str()));
    }
    forget_contents(run);
}

/// The directory for contents that the store in the run directory must not hold. It is made for the first of them.
///
/// # Errors
/// A sentence: there is no state directory, or nothing can be made in it.
pub fn contents_of(run: &RunId) -> Result<PathBuf, String> {
    if !is_plain(run.as_str()) {
        return Err(format!("{run} cannot be the name of a directory"));
    }
    let state = chain_key::state()?;
    let access = rustix::fs::Access::WRITE_OK | rustix::fs::Access::EXEC_OK;
    no_follow::private_dir(state)
        .and_then(|()| Ok(rustix::fs::access(state, access)?))
        .map_err(|error| format!("the state directory {}: {error}", state.display()))?;
    Ok(state.join(CONTENTS).join(run.as_str()))
}

/// Removes these contents of a run that can no longer be resumed.
pub fn forget_contents(run: &RunId) {
    if let (true, Ok(state)) = (is_plain(run.as_str()), chain_key::state()) {
        // Mostly there are none. What remains is removed with the run.
        let _ = std::fs::remove_dir_all(state.join(CONTENTS).join(run.as_str()));
    }
}

/// A directory below the state directory, created for this user only; a link in the path is refused.
pub(super) fn directory(name: &str) -> Result<PathBuf, String> {
    let state = chain_key::state()?;
    let made = || -> io::Result<PathBuf> {
        no_follow::private_dir(state)?;
        let dir = state.join(name);
        no_follow::private_dir(&dir)?;
        Ok(dir)
    };
    made().map_err(|error| format!("the state directory {}: {error}", state.display()))
}

/// Creates the directory for the journal and store of a run that commands could reach in its own directory.
///
/// # Errors
/// The id cannot be the name of a directory, there is no state directory, or the directory or its file `place` cannot
/// be written.
pub fn directory_of(run: &RunId, out: &Path) -> Result<PathBuf, String> {
    if !is_plain(run.as_str()) {
        return Err(format!("{run} cannot be the name of a directory"));
    }
    let dir = directory(MOVED)?.join(run.as_str());
    let made = || -> io::Result<()> {
        no_follow::private_dir(&dir)?;
        std::fs::write(dir.join(PLACE), out.as_os_str().as_bytes())
    };
    made().map_err(|error| format!("{}: {error}", dir.display()))?;
    Ok(dir)
}

/// The run directory that receives the outputs of a journal directory, if the latter is in the state directory.
pub fn outputs_of(dir: &Path) -> Option<PathBuf> {
    let moved = chain_key::state().ok()?.join(MOVED);
    if dir.parent() != Some(&moved) {
        return None;
    }
    let text = bounded(&dir.join(PLACE), SMALL).ok()?;
    Some(PathBuf::from(OsString::from_vec(text)))
}

/// The directories in which the journal of a run may be: `dir`, the run directory or the journal's present one, and the one
/// to which it is moved if commands could reach it.
pub fn journals_of(run: &RunId, dir: &Path) -> Vec<PathBuf> {
    let state = chain_key::state().ok().filter(|_| is_plain(run.as_str()));
    let moved = state.map(|state| state.join(MOVED).join(run.as_str()));
    std::iter::once(dir.to_owned()).chain(moved).collect()
}

/// The directory of the journal of this run, if it was moved out of reach.
pub fn moved_run(run: &str) -> Option<PathBuf> {
    let dir = chain_key::state().ok()?.join(MOVED).join(is_plain(run).then_some(run)?);
    dir.join(format::FILE).is_file().then_some(dir)
}

/// The directory of the journal of the run with this run directory, if it was moved out of reach: the newest of
/// several.
pub fn moved_from(out: &Path) -> Option<PathBuf> {
    let out = no_follow::settled(out);
    let mut found: Vec<PathBuf> = moved()
        .into_iter()
        .filter(|(_, place)| no_follow::settled(place) == out)
        .map(|(dir, _)| dir)
        .collect();
    found.sort();
    found.pop()
}

/// All moved journals, each with its run directory.
pub fn moved() -> Vec<(PathBuf, PathBuf)> {
    let entries = chain_key::state()
        .ok()
        .and_then(|dir| std::fs::read_dir(dir.join(MOVED)).ok());
    let dirs = entries
        .into_iter()
        .flatten()
        .filter_map(Result::ok)
        .map(|entry| entry.path());
    dirs.filter(|dir| dir.join(format::FILE).is_file())
        .filter_map(|dir| Some((outputs_of(&dir)?, dir)))
        .map(|(place, dir)| (dir, place))
        .collect()
}

/// What is in the directory of a journal, and moves with it: no command may reach it.
pub const ENTRIES: [&str; 5] = [format::FILE, "blobs", "results", artefacts::PUT_BACK, "git"];

/// Moves those entries of a run directory that no command may reach. Open files stay open; where a rename is impossible
/// (another file system), the caller opens the copy.
pub(super) fn move_entries(from: &Path, to: &Path) -> Result<(), JournalError> {
    for name in ENTRIES {
        let (old, new) = (from.join(name), to.join(name));
        if std::fs::symlink_metadata(&old).is_ok() {
            move_entry(&old, &new).map_err(JournalError::write(&new))?;
        }
    }
    Ok(())
}

fn move_entry(old: &Path, new: &Path) -> io::Result<()> {
    match std::fs::rename(old, new) {
        Err(error) if error.kind() == io::ErrorKind::CrossesDevices => {
            copy(old, new)?;
            match std::fs::symlink_metadata(old)?.is_dir() {
                true => std::fs::remove_dir_all(old),
                false => std::fs::remove_file(old),
            }
        }
        moved => moved,
    }
}

/// Only directories and regular files are created here, so nothing else is moved.
fn copy(old: &Path, new: &Path) -> io::Result<()> {
    let data = std::fs::symlink_metadata(old)?;
    if data.is_dir() {
        no_follow::private_dir(new)?;
        for entry in std::fs::read_dir(old)? {
            let entry = entry?;
            copy(&entry.path(), &new.join(entry.file_name()))?;
        }
        return Ok(());
    }
    if !data.is_file() {
        return Err(io::Error::other(format!(
            "{} is neither a directory nor a regular file",
            old.display()
        )));
    }
    std::fs::copy(old, new).map(|_| ())
}
