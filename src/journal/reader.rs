//! Reads a journal back: checks the chain, forgives a torn last line. Writes nothing.

use super::format;
use super::{JournalError, writer};
use crate::base::event::Event;
use std::path::Path;

/// What a journal holds.
#[derive(Debug)]
pub struct Journal {
    pub events: Vec<Event>,
    /// The chain after the last whole line.
    pub chain: String,
    /// Bytes up to and with the last whole line.
    pub whole_bytes: u64,
    /// Whether a torn last line was left out.
    pub torn: bool,
}

/// Reads the journal of a run directory.
pub fn read(dir: &Path) -> Result<Journal, JournalError> {
    let path = dir.join(writer::FILE);
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
        let (event, chain) = format::decode(&journal.chain, text).map_err(damaged)?;
        if event.seq != journal.events.len() as u64 {
            return Err(damaged(format!("event {} is missing", journal.events.len())));
        }
        journal.events.push(event);
        journal.chain = chain;
        journal.whole_bytes += line.len() as u64;
    }
    if journal.events.is_empty() {
        return Err(JournalError::Missing(dir.display().to_string()));
    }
    Ok(journal)
}
