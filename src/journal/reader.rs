//! Reads a journal: checks the chain, ignores a torn last line, and compares the journal with the head recorded in this
//! user's state directory. Writes nothing.

use super::chain_key::{self, JournalKey};
use super::error::JournalError;
use super::format::{self, LineRefused};
use super::state::{self, Head};
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
}

impl Journal {
    /// The run's id, from its first event.
    pub fn run(&self) -> Option<&RunId> {
        self.events.iter().find_map(|event| match &event.kind {
            EventKind::RunStarted(started) => Some(&started.run),
            _ => None,
        })
    }

    /// Why this journal cannot be the one that once had this head; `None` when it can.
    pub fn lacks(&self, head: &Head) -> Option<String> {
        let count = usize::try_from(head.events).unwrap_or(usize::MAX);
        let link = count.checked_sub(1).and_then(|last| self.links.get(last));
        match link {
            Some(link) if *link == head.head => None,
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
}

/// Reads the journal of a run directory. An error when the chain is broken, when it needs a key that this process does
/// not have, or when this user's state directory records that the journal was longer or different.
pub fn read(dir: &Path) -> Result<Journal, JournalError> {
    let mut journal = read_alone(dir, chain_key::key()?)?;
    let Some(head) = journal.run().and_then(state::head) else {
        return Ok(journal);
    };
    if journal.lacks(&head).is_some() {
        // A running session may have appended more between the two reads.
        journal = read_alone(dir, chain_key::key()?)?;
    }
    if let Some(why) = journal.lacks(&head) {
        return Err(JournalError::Damaged {
            path: dir.join(format::FILE).display().to_string(),
            line: journal.events.len(),
            why: format!("{why}, according to the state directory of this user"),
        });
    }
    Ok(journal)
}

/// Like [`read`], but when a key is set, the journal must have been written with it. For commands that verify.
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
pub fn read_alone(dir: &Path, key: Option<&JournalKey>) -> Result<Journal, JournalError> {
    let path = dir.join(format::FILE);
    let bytes = std::fs::read(&path).map_err(|source| match source.kind() {
        std::io::ErrorKind::NotFound | std::io::ErrorKind::NotADirectory => {
            JournalError::Missing(dir.display().to_string())
        }
        _ => JournalError::Read {
            path: path.display().to_string(),
            source,
        },
    })?;
    let mut journal = Journal {
        events: Vec::new(),
        chain: String::new(),
        whole_bytes: 0,
        torn: false,
        keyed: false,
        links: Vec::new(),
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
    }
    if journal.events.is_empty() {
        return Err(JournalError::Missing(dir.display().to_string()));
    }
    Ok(journal)
}
