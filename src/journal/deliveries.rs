//! `deliver.jsonl` in a run directory: the steps that deliveries of the run took, one line of JSON each, with a lock
//! against a second delivery.
//!
//! It is only a log: the state of the branch and of its request is read from the server every time.

use super::writer;
use super::{JournalError, state_dir};
use serde_json::Value;
use std::fs::{File, OpenOptions};
use std::io::{Read, Seek, SeekFrom, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

/// The file name.
pub const FILE: &str = "deliver.jsonl";
/// Size limit of what is read from the end of the file, in bytes.
const READ_BYTES: u64 = 4 << 20;

/// The open log, locked until it is dropped.
#[derive(Debug)]
pub struct DeliveryLog {
    path: PathBuf,
    file: File,
}

impl DeliveryLog {
    /// Opens the log of the run whose journal is in `home`, and returns its lines. A last line that a kill truncated is
    /// terminated with a newline and left out.
    ///
    /// # Errors
    /// [`JournalError::Held`] when another delivery of the run is active, [`JournalError::Write`] when the file cannot
    /// be opened.
    pub fn open(home: &Path) -> Result<(Self, Vec<Value>), JournalError> {
        let dir = state_dir::outputs_of(home)
            .filter(|dir| dir.is_dir())
            .unwrap_or_else(|| home.to_owned());
        let path = dir.join(FILE);
        let wrap = JournalError::write(&path);
        let mut file = OpenOptions::new()
            .create(true)
            .read(true)
            .append(true)
            .custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK)
            .open(&path)
            .map_err(wrap)?;
        writer::lock(&file, &dir)?;
        let size = file.metadata().map_err(wrap)?.len();
        file.seek(SeekFrom::Start(size.saturating_sub(READ_BYTES)))
            .map_err(wrap)?;
        let mut bytes = Vec::new();
        Read::by_ref(&mut file)
            .take(READ_BYTES)
            .read_to_end(&mut bytes)
            .map_err(wrap)?;
        let text = String::from_utf8_lossy(&bytes);
        let lines = text
            .lines()
            .filter_map(|line| serde_json::from_str(line).ok())
            .collect();
        if !bytes.is_empty() && !bytes.ends_with(b"\n") {
            file.write_all(b"\n").map_err(wrap)?;
        }
        Ok((Self { path, file }, lines))
    }

    /// Appends a line and syncs it to disk.
    ///
    /// # Errors
    /// [`JournalError::Write`] when the line cannot be written or synced.
    pub fn record(&mut self, line: &Value) -> Result<(), JournalError> {
        let text = format!("{line}\n");
        let written = self
            .file
            .write_all(text.as_bytes())
            .and_then(|()| self.file.sync_data());
        written.map_err(JournalError::write(&self.path))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn lines_are_kept_and_a_second_delivery_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        {
            let (mut log, lines) = DeliveryLog::open(dir.path()).unwrap();
            assert!(lines.is_empty());
            log.record(&json!({"step": "begun"})).unwrap();
            assert!(matches!(DeliveryLog::open(dir.path()), Err(JournalError::Held(_))));
        }
        // A line truncated by a kill.
        let path = dir.path().join(FILE);
        let mut text = std::fs::read_to_string(&path).unwrap();
        text.push_str("{\"step\":\"pus");
        std::fs::write(&path, &text).unwrap();
        let (mut log, lines) = DeliveryLog::open(dir.path()).unwrap();
        assert_eq!(lines, [json!({"step": "begun"})]);
        log.record(&json!({"step": "ended"})).unwrap();
        drop(log);
        let (_log, lines) = DeliveryLog::open(dir.path()).unwrap();
        assert_eq!(lines, [json!({"step": "begun"}), json!({"step": "ended"})]);
    }

    #[test]
    fn a_link_in_its_place_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let elsewhere = dir.path().join("elsewhere");
        std::fs::write(&elsewhere, "kept").unwrap();
        std::os::unix::fs::symlink(&elsewhere, dir.path().join(FILE)).unwrap();
        assert!(DeliveryLog::open(dir.path()).is_err());
        assert_eq!(std::fs::read_to_string(&elsewhere).unwrap(), "kept");
    }
}
