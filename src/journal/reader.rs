//! Reads a journal: checks the chain, ignores a torn last line, and compares the journal with the head recorded in this
//! user's state directory, which also decides which lines after that head count. Writes nothing.

use super::chain_key::{self, JournalKey};
use super::error::JournalError;
use super::format::{self, LineRefused};
use super::state_dir::{self, Head};
use crate::base::event::{Event, EventKind};
use crate::base::ids::RunId;
use crate::base::quote::counted;
use std::path::Path;

/// The content of a journal.
#[derive(Debug)]
pub struct Journal {
    pub events: Vec<Event>,
    /// The hash of the last complete line: the head of the chain.
    pub chain: String,
    /// Bytes up to and including the last complete line.
    pub whole_bytes: u64,
    /// Whether a torn last line was ignored.
    pub torn: bool,
    /// Whether the chain is an HMAC; it was checked with the key of this process.
    pub keyed: bool,
    /// The hash of each line.
    pub links: Vec<String>,
    /// Number of last lines that do not count, because this machine did not record them.
    pub unrecorded: usize,
    /// For each line, the bytes up to and including it.
    ends: Vec<u64>,
}

impl Journal {
    /// The run's id, from its first event.
    pub fn run(&self) -> Option<&RunId> {
        self.events.iter().find_map(|event| match &event.kind {
            EventKind::RunStarted(started) => Some(&started.run),
            _ => None,
        })
    }

    /// Why this journal is not the recorded one, or a continuation of it: it lacks the recorded number of events, or its
    /// event of that number has another link than `head`. `None` if neither is so.
    pub fn lacks(&self, events: u64, head: &str) -> Option<String> {
        let count = usize::try_from(events).unwrap_or(usize::MAX);
        let link = count.checked_sub(1).and_then(|last| self.links.get(last));
        match link {
            Some(link) if link == head => None,
            Some(_) => Some(format!(
                "event {} differs from the one that was written",
                count.saturating_sub(1)
            )),
            None => Some(format!(
                "it was truncated: {} written, {} left",
                counted(count, "event"),
                self.events.len()
            )),
        }
    }

    /// Whether this user's state directory holds the head of exactly this journal, and the run began here, so that every
    /// line of it was written here.
    pub fn is_ours(&self) -> bool {
        let head = self.run().and_then(state_dir::head);
        head.is_some_and(|head| !head.adopted && head.events == self.events.len() as u64 && head.head == self.chain)
    }

    /// Leaves out what does not count after the recorded end, or says why it damages the journal.
    ///
    /// A process that is killed leaves lines whose head it could not record any more. But it records the head before it
    /// acts on an answer of a person, before it goes on after a resume, and before it reports an end. Therefore only
    /// the last of these events can be missing from the head, and they had no effect yet: they are ignored. Any other
    /// line after one of them, or after a recorded end, means that the journal was changed. With a key, its holder
    /// wrote every line.
    fn end_at(&mut self, head: &Head) -> Result<(), String> {
        let count = usize::try_from(head.events).unwrap_or(usize::MAX);
        let more = self.events.get(count..).unwrap_or_default();
        if self.keyed || more.is_empty() {
            return Ok(());
        }
        let last = count.checked_sub(1).and_then(|last| self.events.get(last));
        let has_ended = last.is_some_and(|event| matches!(event.kind, EventKind::RunFinished { .. }));
        let first = more.iter().position(|event| needs_record(&event.kind));
        let goes_on = head.open && first == Some(0);
        let rest = first.and_then(|first| more.get(first..)).unwrap_or_default();
        let of_a_kill = |event: &Event| needs_record(&event.kind) || matches!(event.kind, EventKind::Suspended { .. });
        if (has_ended && !goes_on) || !rest.iter().all(of_a_kill) {
            return Err(format!(
                "it continues after event {}, where this machine's record of the run ends: somebody appended to it, or the run was \
                 resumed on another machine. Take the run directory as it was left here; where a run goes from machine to machine, \
                 set {} on all of them",
                count.saturating_sub(1),
                chain_key::KEY_VARIABLE
            ));
        }
        if let Some(first) = first {
            self.unrecorded = rest.len();
            self.keep(count + first);
        }
        Ok(())
    }

    /// Drops all lines after the first `count`.
    fn keep(&mut self, count: usize) {
        self.events.truncate(count);
        self.links.truncate(count);
        self.ends.truncate(count);
        self.chain = self.links.last().cloned().unwrap_or_default();
        self.whole_bytes = self.ends.last().copied().unwrap_or_default();
    }
}

/// Whether an event has no effect before this machine has recorded it.
fn needs_record(kind: &EventKind) -> bool {
    matches!(
        kind,
        EventKind::Resumed { .. } | EventKind::Approved { .. } | EventKind::RunFinished { .. }
    )
}

/// Reads the journal of a run directory.
///
/// # Errors
/// As [`read_alone`]; [`JournalError::Damaged`] also if this user's state directory records that the journal was longer
/// or different, or had ended.
pub fn read(dir: &Path) -> Result<Journal, JournalError> {
    let mut journal = read_alone(dir, chain_key::key()?)?;
    let Some(head) = journal.run().and_then(state_dir::head) else {
        return Ok(journal);
    };
    if journal.lacks(head.events, &head.head).is_some() {
        // A running session may have appended more between the two reads.
        journal = read_alone(dir, chain_key::key()?)?;
    }
    let damaged = |line, why| JournalError::Damaged {
        path: dir.join(format::FILE).display().to_string(),
        line,
        why,
    };
    if let Some(why) = journal.lacks(head.events, &head.head) {
        let why = format!("{why}, according to the state directory of this user");
        return Err(damaged(journal.events.len(), why));
    }
    let next = usize::try_from(head.events).unwrap_or(usize::MAX).saturating_add(1);
    journal.end_at(&head).map_err(|why| damaged(next, why))?;
    Ok(journal)
}

/// Like [`read`], but when a key is set, the journal must have been written with it. For commands that verify.
///
/// # Errors
/// As [`read`]; [`JournalError::Key`] also if it was written without a key.
pub fn read_strictly(dir: &Path) -> Result<Journal, JournalError> {
    let journal = read(dir)?;
    match chain_key::key()? {
        Some(_) if !journal.keyed => Err(JournalError::Key(format!(
            "{} is set, and the journal in {} was written without a key: anybody could have written it. Unset the variable to \
             accept it anyway",
            chain_key::KEY_VARIABLE,
            dir.display()
        ))),
        _ => Ok(journal),
    }
}

/// Reads a journal without comparing it with the state directory.
///
/// # Errors
/// [`JournalError::Missing`]: there is no journal. [`JournalError::Read`]: it cannot be read.
/// [`JournalError::Damaged`]: the chain is broken. [`JournalError::Key`]: it needs a key that this process does not have.
pub fn read_alone(dir: &Path, key: Option<&JournalKey>) -> Result<Journal, JournalError> {
    let path = dir.join(format::FILE);
    let bytes = std::fs::read(&path).map_err(|source| match source.kind() {
        std::io::ErrorKind::NotFound | std::io::ErrorKind::NotADirectory => {
            JournalError::Missing(dir.display().to_string())
        }
        _ => JournalError::read(&path)(source),
    })?;
    parse(&path, &bytes, key)
}

/// The journal with this content. `path`: the file that errors name.
///
/// # Errors
/// As for [`read_alone`].
pub(super) fn parse(path: &Path, bytes: &[u8], key: Option<&JournalKey>) -> Result<Journal, JournalError> {
    let mut journal = Journal {
        events: Vec::new(),
        chain: String::new(),
        whole_bytes: 0,
        torn: false,
        keyed: false,
        links: Vec::new(),
        unrecorded: 0,
        ends: Vec::new(),
    };
    for (index, line) in bytes.split_inclusive(|byte| *byte == b'\n').enumerate() {
        let Some(text) = line.strip_suffix(b"\n") else {
            journal.torn = true;
            break;
        };
        let damaged = |why: String| JournalError::Damaged {
            path: path.display().to_string(),
            line: index + 1,
            why,
        };
        let text = std::str::from_utf8(text).map_err(|error| damaged(error.to_string()))?;
        let decoded = format::decode(&journal.chain, text, key).map_err(|refused| match refused {
            LineRefused::Damaged(why) => damaged(why),
            LineRefused::NoKey => JournalError::Key(format!(
                "the journal {} was written with a key: set {} to that key",
                path.display(),
                chain_key::KEY_VARIABLE
            )),
        })?;
        if decoded.event.seq != journal.events.len() as u64 {
            return Err(damaged(format!("event {} is missing", journal.events.len())));
        }
        if index > 0 && decoded.keyed != journal.keyed {
            return Err(damaged("some lines are written with a key and some are not".to_owned()));
        }
        journal.keyed = decoded.keyed;
        journal.events.push(decoded.event);
        journal.links.push(decoded.chain.clone());
        journal.chain = decoded.chain;
        journal.whole_bytes += line.len() as u64;
        journal.ends.push(journal.whole_bytes);
    }
    if journal.events.is_empty() {
        let dir = path.parent().unwrap_or(path);
        return Err(JournalError::Missing(dir.display().to_string()));
    }
    Ok(journal)
}
