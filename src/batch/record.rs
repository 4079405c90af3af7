//! `batch.jsonl`: the append-only, hash-chained and locked record of a batch. A line survives the process, and after
//! [`BatchRecord::sync`] also a power loss; everything else in the directory is derived from it.

use super::BatchError;
use super::evaluation::{self, AttemptTotals};
use super::plan::log_of;
use super::rows::{RunRow, is_inside};
use crate::base::ids::hex;
use crate::journal::chain_key::{self, JournalKey};
use crate::journal::{format, writer};
use crate::workspace::patch::is_in_a_checkout;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use std::collections::{HashMap, HashSet};
use std::fs::{File, OpenOptions};
use std::io::{BufRead, BufReader, ErrorKind, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

/// The file name.
pub const FILE: &str = "batch.jsonl";
/// The file of a working directory that holds the address of its store.
pub const STORE_FILE: &str = "store.txt";

/// One line.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum BatchEvent {
    /// The command was called.
    CallStarted {
        version: String,
        manifest: String,
        jobs: u64,
        shard: Option<String>,
        again: bool,
        at: jiff::Timestamp,
    },
    /// The worktree exists; the child is started next.
    JobStarted {
        job: String,
        digest: String,
        attempt: u64,
        /// The run directory, relative to the batch directory.
        run: String,
        base: String,
        resumed: bool,
        at: jiff::Timestamp,
    },
    /// The job will not be continued.
    JobEnded { row: Box<RunRow> },
    /// The job was cancelled or suspended and will be resumed.
    JobInterrupted {
        job: String,
        digest: String,
        verdict: String,
        exit_code: u8,
        message: String,
        /// Wall-clock time of all processes of its attempt so far; 0 in records of early versions.
        #[serde(default)]
        seconds: f64,
        at: jiff::Timestamp,
    },
    /// No more jobs are started.
    QueueStopped { reason: String, at: jiff::Timestamp },
    /// The command ended by itself.
    CallEnded { exit_code: u8, at: jiff::Timestamp },
}

/// A run that was started and has not ended.
#[derive(Clone, Debug, PartialEq)]
pub struct OpenRun {
    pub digest: String,
    pub attempt: u64,
    /// Relative to the batch directory.
    pub run: String,
    pub base: String,
    /// Wall-clock time of its processes that were interrupted.
    pub seconds: f64,
}

/// The state of all jobs, folded from the record.
#[derive(Debug, Default)]
pub struct BatchState {
    /// Settings of the last call.
    pub manifest: Option<String>,
    /// The last row of each job.
    pub last: HashMap<String, RunRow>,
    /// Of jobs whose target could not be read the last time: the last row before that, with a digest.
    before_unread: HashMap<String, RunRow>,
    /// Totals of the attempts at each job.
    pub attempts: HashMap<String, AttemptTotals>,
    pub open: HashMap<String, OpenRun>,
    /// Jobs that ended since the last call began.
    pub ended_in_call: HashSet<String>,
    /// Whether the last call was to run everything again and did not finish.
    pub again_unfinished: bool,
    /// SHA-256 of all rows in order, as `runs.jsonl` holds them.
    rows: Sha256,
}

impl BatchState {
    /// Folds a record without locking it.
    ///
    /// # Errors
    /// As [`read_lines`].
    pub fn read(&mut self, path: &Path, key: Option<&JournalKey>) -> Result<(), BatchError> {
        read_lines(path, key, |event| self.apply(event)).map(|_| ())
    }

    /// The SHA-256 digest that `runs.jsonl` has if it holds the rows of the record.
    pub fn rows_digest(&self) -> String {
        hex(&self.rows.clone().finalize())
    }

    /// The last row of a job whose target could be read. A row without a digest says nothing of the job's inputs.
    pub fn last_read(&self, job: &str) -> Option<&RunRow> {
        let last = self.last.get(job).filter(|row| !row.digest.is_empty());
        last.or_else(|| self.before_unread.get(job))
    }

    /// Adds the row of a job that ended in another call, without recording it.
    pub fn learn(&mut self, row: RunRow) {
        self.apply(BatchEvent::JobEnded { row: Box::new(row) });
    }

    fn apply(&mut self, event: BatchEvent) {
        match event {
            BatchEvent::CallStarted { manifest, again, .. } => {
                self.manifest = Some(manifest);
                if !(again && self.again_unfinished) {
                    self.ended_in_call.clear();
                }
                self.again_unfinished = again;
            }
            BatchEvent::JobStarted {
                job,
                digest,
                attempt,
                run,
                base,
                ..
            } => {
                let before = self.open.get(&job).filter(|open| open.run == run);
                let open = OpenRun {
                    seconds: before.map_or(0.0, |open| open.seconds),
                    digest,
                    attempt,
                    run,
                    base,
                };
                self.open.insert(job, open);
            }
            BatchEvent::JobEnded { row } => {
                self.rows.update(row.to_line());
                self.open.remove(&row.job);
                self.ended_in_call.insert(row.job.clone());
                evaluation::count(&mut self.attempts, &mut self.last, &mut self.before_unread, *row);
            }
            BatchEvent::CallEnded { .. } => self.again_unfinished = false,
            BatchEvent::JobInterrupted { job, seconds, .. } => {
                if let Some(open) = self.open.get_mut(&job) {
                    open.seconds = seconds;
                }
            }
            BatchEvent::QueueStopped { .. } => {}
        }
    }
}

/// Refuses a batch without a key that is to be continued in a directory with tracked files. A new batch, without a
/// record and a store, takes nothing from such files.
///
/// # Errors
/// [`BatchError::Environment`] for such a directory.
pub fn refuse_tracked(dir: &Path, key: Option<&JournalKey>) -> Result<(), BatchError> {
    let is_continued = || {
        let has_record = std::fs::symlink_metadata(dir.join(FILE)).is_ok_and(|found| found.len() > 0);
        has_record || std::fs::symlink_metadata(dir.join(STORE_FILE)).is_ok()
    };
    if key.is_none() && is_continued() && is_in_a_checkout(dir) {
        return Err(BatchError::Environment(format!(
            "{} has files that the repository around it tracks, so they may be anybody's, and rows of jobs that never ran here \
             would count: name another --out, or keep batches under a key (OVERNIGHT_JOURNAL_KEY)",
            dir.display()
        )));
    }
    Ok(())
}

/// The open record of one batch directory.
#[derive(Debug)]
pub struct BatchRecord {
    path: PathBuf,
    file: File,
    chain: String,
    events: u64,
    key: Option<&'static JournalKey>,
    pub state: BatchState,
    dirty: bool,
}

impl BatchRecord {
    /// Opens the record of `dir`, creating it if needed, and locks it against other batches. A torn last line (a crash
    /// or a full disk during a write) is truncated.
    ///
    /// # Errors
    /// Another batch holds the lock, the record was changed, the directory has a symbolic link where jobs have their
    /// files, or an I/O error.
    pub fn open(dir: &Path) -> Result<Self, BatchError> {
        let path = dir.join(FILE);
        std::fs::create_dir_all(dir).map_err(|error| BatchError::write(dir, &error))?;
        refuse_links(dir)?;
        let file = OpenOptions::new()
            .read(true)
            .append(true)
            .create(true)
            .custom_flags(libc::O_NOFOLLOW)
            .open(&path)
            .map_err(|error| BatchError::write(&path, &error))?;
        writer::lock(&file, dir).map_err(|error| match error {
            crate::journal::JournalError::Held(dir) => BatchError::Environment(format!(
                "another batch is running in {dir}; wait for it, or name another --out"
            )),
            error => error.into(),
        })?;
        refuse_links_of_jobs(dir)?;
        let key = chain_key::key()?;
        refuse_tracked(dir, key)?;
        let mut state = BatchState::default();
        let read = read_lines(&path, key, |event| state.apply(event))?;
        for open in state.open.values() {
            refuse_links_to(dir, &open.run)?;
        }
        file.set_len(read.bytes)
            .map_err(|error| BatchError::write(&path, &error))?;
        Ok(Self {
            path,
            file,
            chain: read.chain,
            events: read.events,
            key,
            state,
            dirty: true,
        })
    }

    /// Appends an event.
    ///
    /// # Errors
    /// An I/O error; the caller must start no further job.
    pub fn append(&mut self, event: BatchEvent) -> Result<(), BatchError> {
        let entry = serde_json::to_string(&event).map_err(|error| BatchError::Output(error.to_string()))?;
        let (mut line, chain) = format::encode(&self.chain, &entry, self.key);
        line.push('\n');
        self.file
            .write_all(line.as_bytes())
            .map_err(|error| BatchError::write(&self.path, &error))?;
        self.chain = chain;
        self.events += 1;
        self.dirty = true;
        self.state.apply(event);
        Ok(())
    }

    /// Returns once everything appended so far is on the disk.
    ///
    /// # Errors
    /// As [`Self::append`].
    pub fn sync(&mut self) -> Result<(), BatchError> {
        if self.dirty {
            self.file
                .sync_data()
                .map_err(|error| BatchError::write(&self.path, &error))?;
            self.dirty = false;
        }
        Ok(())
    }

    /// A handle of the file, for a thread that syncs what was appended so far.
    ///
    /// # Errors
    /// The handle cannot be duplicated.
    pub fn handle(&self) -> std::io::Result<File> {
        self.file.try_clone()
    }

    /// The chain hash of the last line, and the number of lines.
    pub fn head(&self) -> (&str, u64) {
        (&self.chain, self.events)
    }
}

/// Refuses symbolic links: a repository may contain a directory with these names.
fn refuse_links(dir: &Path) -> Result<(), BatchError> {
    let ours = [
        FILE,
        "runs.jsonl",
        "plan.json",
        "bundle.json",
        "result.json",
        "junit.xml",
        "report.html",
        "summary.md",
        "jobs",
        "logs",
        "patches",
        "work",
        "gate",
        STORE_FILE,
    ];
    ours.iter().try_for_each(|name| refuse_link(&dir.join(name)))
}

/// Refuses symbolic links in `jobs`, in `work`, and in the directory that each job has there: new runs and worktrees
/// are made at these paths, and what a killed call left there is removed.
fn refuse_links_of_jobs(dir: &Path) -> Result<(), BatchError> {
    for path in entries(&dir.join("jobs"))? {
        refuse_link(&path)?;
    }
    for place in entries(&dir.join("work"))? {
        refuse_link(&place)?;
        for path in entries(&place)? {
            refuse_link(&path)?;
        }
    }
    Ok(())
}

/// Refuses symbolic links on the way to a run directory, which is relative to `dir`, and in place of its log.
fn refuse_links_to(dir: &Path, run: &str) -> Result<(), BatchError> {
    let mut way = dir.to_owned();
    for part in Path::new(run).components() {
        way.push(part);
        refuse_link(&way)?;
    }
    refuse_link(&log_of(&way))
}

fn refuse_link(path: &Path) -> Result<(), BatchError> {
    match path.is_symlink() {
        true => Err(BatchError::Environment(format!(
            "{} is a symbolic link, and links are not followed here: remove it, or name another --out",
            path.display()
        ))),
        false => Ok(()),
    }
}

/// The paths of what a directory holds; none where there is no directory.
fn entries(dir: &Path) -> Result<Vec<PathBuf>, BatchError> {
    let found: std::io::Result<Vec<PathBuf>> =
        std::fs::read_dir(dir).and_then(|all| all.map(|entry| entry.map(|entry| entry.path())).collect());
    match found {
        Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => Ok(Vec::new()),
        found => found.map_err(|error| BatchError::read(dir, &error)),
    }
}

/// How far a record could be read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ReadRecord {
    /// Bytes of complete lines.
    pub bytes: u64,
    pub events: u64,
    /// The chain hash of the last line.
    pub chain: String,
    /// Whether bytes follow the last complete line.
    pub torn: bool,
}

/// Reads a record one line at a time. A missing file counts as empty.
///
/// # Errors
/// A line was changed or names a run outside the batch directory, or a key is set for a record without one, or missing
/// for a record with one.
pub fn read_lines(
    path: &Path,
    key: Option<&JournalKey>,
    mut take: impl FnMut(BatchEvent),
) -> Result<ReadRecord, BatchError> {
    let file = match File::open(path) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(ReadRecord::default()),
        file => file.map_err(|error| BatchError::read(path, &error))?,
    };
    let mut reader = BufReader::new(file);
    let (mut read, mut line) = (ReadRecord::default(), Vec::new());
    loop {
        line.clear();
        let length = reader
            .read_until(b'\n', &mut line)
            .map_err(|error| BatchError::read(path, &error))?;
        if !line.ends_with(b"\n") {
            read.torn = length > 0;
            return Ok(read);
        }
        let damaged = |why: String| {
            let number = read.events + 1;
            BatchError::Environment(format!("{} is damaged at line {number}: {why}", path.display()))
        };
        let text = std::str::from_utf8(&line).map_err(|error| damaged(error.to_string()))?;
        let decoded =
            format::decode_line(&read.chain, text.trim_end_matches('\n'), key).map_err(|refused| match refused {
                format::LineRefused::NoKey => {
                    damaged("it was written with a key: set OVERNIGHT_JOURNAL_KEY".to_owned())
                }
                format::LineRefused::Damaged(why) => damaged(why),
            })?;
        if key.is_some() && !decoded.keyed {
            return Err(damaged(
                "OVERNIGHT_JOURNAL_KEY is set and this line was written without a key".to_owned(),
            ));
        }
        let event: BatchEvent =
            serde_json::from_str(decoded.entry).map_err(|error| damaged(format!("unknown event: {error}")))?;
        // Files are written there when the run is resumed.
        if let BatchEvent::JobStarted { run, .. } = &event
            && !is_inside(run)
        {
            return Err(damaged(format!(
                "the run directory {run:?} is not in the batch directory"
            )));
        }
        let chain = decoded.chain.to_owned();
        take(event);
        read.chain = chain;
        read.events += 1;
        read.bytes += length as u64;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ended(job: &str, verdict: &str) -> BatchEvent {
        BatchEvent::JobEnded {
            row: Box::new(RunRow {
                job: job.to_owned(),
                verdict: verdict.to_owned(),
                ..RunRow::default()
            }),
        }
    }

    #[test]
    fn it_goes_on_after_a_cut_at_every_byte() {
        let dir = tempfile::tempdir().unwrap();
        let mut record = BatchRecord::open(dir.path()).unwrap();
        for n in 0..5 {
            record.append(ended(&format!("j{n}"), "passed")).unwrap();
        }
        drop(record);
        let whole = std::fs::read(dir.path().join(FILE)).unwrap();
        for cut in 0..=whole.len() {
            std::fs::write(dir.path().join(FILE), &whole[..cut]).unwrap();
            let mut record = BatchRecord::open(dir.path()).unwrap();
            let lines = whole[..cut].iter().filter(|byte| **byte == b'\n').count();
            assert_eq!(record.state.last.len(), lines);
            record.append(ended("more", "failed")).unwrap();
            drop(record);
            let record = BatchRecord::open(dir.path()).unwrap();
            assert_eq!(record.state.last.len(), lines + 1);
        }
    }

    #[test]
    fn a_changed_line_is_refused_and_a_second_batch_too() {
        let dir = tempfile::tempdir().unwrap();
        let mut record = BatchRecord::open(dir.path()).unwrap();
        record.append(ended("a", "failed")).unwrap();
        record.append(ended("b", "passed")).unwrap();
        assert!(
            matches!(BatchRecord::open(dir.path()), Err(BatchError::Environment(_))),
            "held"
        );
        drop(record);
        let path = dir.path().join(FILE);
        let text = std::fs::read_to_string(&path).unwrap().replacen("failed", "passed", 1);
        std::fs::write(&path, text).unwrap();
        let error = BatchRecord::open(dir.path()).unwrap_err().to_string();
        assert!(error.contains("damaged at line 1"), "{error}");
    }

    #[test]
    fn a_target_that_cannot_be_read_leaves_the_row_before_it() {
        let row = |digest: &str, verdict: &str| RunRow {
            job: "a".to_owned(),
            digest: digest.to_owned(),
            verdict: verdict.to_owned(),
            ..RunRow::default()
        };
        let mut state = BatchState::default();
        for (new, read) in [
            (row("", "environment"), None),
            (row("d", "passed"), Some("passed")),
            (row("", "environment"), Some("passed")),
            (row("", "environment"), Some("passed")),
            (row("e", "failed"), Some("failed")),
            (row("", "environment"), Some("failed")),
        ] {
            let verdict = new.verdict.clone();
            state.learn(new);
            assert_eq!(state.last["a"].verdict, verdict);
            assert_eq!(state.last_read("a").map(|row| row.verdict.as_str()), read);
        }
    }

    /// The row of an up-to-date job is repeated after a night in which its target could not be read.
    #[test]
    fn a_target_that_cannot_be_read_leaves_the_totals_of_the_attempts() {
        let row = |digest: &str, run: &str, verdict: &str| RunRow {
            job: "a".to_owned(),
            digest: digest.to_owned(),
            run: Some(run.to_owned()).filter(|run| !run.is_empty()),
            verdict: verdict.to_owned(),
            seconds: 1.0,
            ..RunRow::default()
        };
        let mut state = BatchState::default();
        for (new, seconds) in [
            (row("d", "1", "failed"), 1.0),
            (row("", "", "environment"), 1.0),
            (row("d", "2", "failed"), 2.0),
            (row("d", "3", "passed"), 3.0),
            (row("", "", "environment"), 3.0),
            (row("d", "3", "passed"), 3.0),
            (row("e", "4", "failed"), 1.0),
        ] {
            state.learn(new.clone());
            assert!((state.attempts["a"].seconds - seconds).abs() < f64::EPSILON, "{new:?}");
        }
    }

    fn started(run: &str) -> BatchEvent {
        BatchEvent::JobStarted {
            job: "a".to_owned(),
            digest: "d".to_owned(),
            attempt: 1,
            run: run.to_owned(),
            base: String::new(),
            resumed: false,
            at: jiff::Timestamp::now(),
        }
    }

    #[test]
    fn a_resumed_run_keeps_the_time_of_its_earlier_processes() {
        let dir = tempfile::tempdir().unwrap();
        let mut record = BatchRecord::open(dir.path()).unwrap();
        let interrupted = BatchEvent::JobInterrupted {
            job: "a".to_owned(),
            digest: "d".to_owned(),
            verdict: "cancelled".to_owned(),
            exit_code: 143,
            message: String::new(),
            seconds: 3.5,
            at: jiff::Timestamp::now(),
        };
        for event in [started("jobs/a/d"), interrupted, started("jobs/a/d")] {
            record.append(event).unwrap();
        }
        drop(record);
        let mut record = BatchRecord::open(dir.path()).unwrap();
        assert!((record.state.open["a"].seconds - 3.5).abs() < 1e-9);
        // Another attempt begins at 0.
        record.append(started("jobs/a/d.2")).unwrap();
        assert!(record.state.open["a"].seconds < 1e-9);
        // A line of an early version has no time.
        let old = r#"{"type":"job_interrupted","job":"a","digest":"d","verdict":"cancelled","exit_code":143,"message":"","at":"2026-11-21T12:00:00Z"}"#;
        assert!(serde_json::from_str::<BatchEvent>(old).is_ok());
    }

    #[test]
    fn a_run_that_is_elsewhere_is_not_resumed() {
        for run in ["/tmp/run", "jobs/../../run", ""] {
            let dir = tempfile::tempdir().unwrap();
            BatchRecord::open(dir.path()).unwrap().append(started(run)).unwrap();
            let error = BatchRecord::open(dir.path()).unwrap_err().to_string();
            assert!(error.contains("is not in the batch directory"), "{run}: {error}");
        }
        for link in ["jobs", "jobs/a", "jobs/a/d", "jobs/a/d.log"] {
            let dir = tempfile::tempdir().unwrap();
            BatchRecord::open(dir.path())
                .unwrap()
                .append(started("jobs/a/d"))
                .unwrap();
            let path = dir.path().join(link);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            // The control: without the link it is opened.
            BatchRecord::open(dir.path()).unwrap();
            std::os::unix::fs::symlink("/tmp", &path).unwrap();
            let error = BatchRecord::open(dir.path()).unwrap_err().to_string();
            assert!(error.contains(&format!("{link} is a symbolic link")), "{link}: {error}");
        }
    }
}
