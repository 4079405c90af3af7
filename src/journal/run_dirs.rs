//! Names, creates, finds, lists and prunes run directories, and locks workspaces.

use super::{JournalError, format, no_follow, reader, state_dir, writer};
use crate::base::event::{Event, EventKind, RunStarted, UNMEASURED};
use crate::base::ids::RunId;
use crate::base::outcome::{RunOutcome, Verdict};
use jiff::Timestamp;
use jiff::civil::DateTime;
use jiff::tz::TimeZone;
use serde::Deserialize;
use serde::de::IgnoredAny;
use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The directory of a workspace that holds its runs.
pub const RUNS: &str = ".overnight/runs";

/// How long a run that this state directory does not know keeps its worktree: 30 days.
const UNKNOWN_KEPT: Duration = Duration::from_secs(30 * 24 * 60 * 60);

/// How long a run whose journal was removed or damaged keeps its worktree: one day.
const DAMAGED_KEPT: Duration = Duration::from_secs(24 * 60 * 60);

/// The time at the beginning of a run id.
const STAMP: &str = "%Y%m%d-%H%M%S";
/// The length of that time in bytes.
const STAMP_BYTES: usize = 15;

/// How the schema of a run's result begins; a batch has a `result.json` of another one.
const RESULT_SCHEMA: &str = "overnight/result/";

/// Size limit of the result of a refused run, in bytes.
const RESULT_BYTES: u64 = 1 << 20;

/// Size limit of the first line of a journal when only the workspace of the run is looked up, in bytes.
const FIRST_LINE: u64 = 64 << 20;

/// The record of a batch in its directory.
const BATCH_RECORD: &str = "batch.jsonl";
/// The rows of a batch in its directory, or in that of a merge.
const BATCH_ROWS: &str = "runs.jsonl";

/// A new run id, from the clock and the kernel's random numbers.
pub fn new_run_id(now: Timestamp) -> RunId {
    let mut random = [0_u8; 3];
    // Creating the directory detects a collision, so without random bytes one only becomes more likely.
    let _ = std::fs::File::open("/dev/urandom").and_then(|mut file| file.read_exact(&mut random));
    let stamp = now.strftime(STAMP);
    let [a, b, c] = random;
    RunId(format!("{stamp}-{a:02x}{b:02x}{c:02x}"))
}

/// The default directory of a run.
pub fn default_dir(workspace: &Path, run: &RunId) -> PathBuf {
    // `.overnight/…` means the same as `./.overnight/…` and reads better.
    let workspace = workspace.strip_prefix(".").unwrap_or(workspace);
    workspace.join(RUNS).join(run.as_str())
}

/// Creates `.overnight` with a `.gitignore`, so that git ignores it.
///
/// # Errors
/// [`JournalError::Link`]: a link of the tree is in the way. [`JournalError::Write`]: it cannot be written.
pub fn ignore_runs(workspace: &Path) -> Result<(), JournalError> {
    let dir = workspace.join(".overnight");
    let file = dir.join(".gitignore");
    refuse_link(workspace, &file)?;
    no_follow::make_dirs(workspace, &dir)
        .and_then(|()| no_follow::write_new(&file, b"*\n"))
        .map_err(JournalError::write(&file))
}

/// Refuses a path with a symbolic link of the tree in it.
///
/// # Errors
/// [`JournalError::Link`] with that link.
pub fn refuse_link(workspace: &Path, path: &Path) -> Result<(), JournalError> {
    match no_follow::link_inside(workspace, path) {
        Some(link) => Err(JournalError::Link(link.display().to_string())),
        None => Ok(()),
    }
}

/// The journal directory of a run, given by its directory or by its id in `workspace`. The state directory takes
/// precedence over the tree, where commands may have written.
///
/// # Errors
/// [`JournalError::Link`]: a link of the tree leads there. [`JournalError::NeverBegan`], [`JournalError::Batch`],
/// [`JournalError::Unknown`]: there is no journal.
pub fn locate(run: &str, workspace: &Path) -> Result<PathBuf, JournalError> {
    if let Some(moved) = state_dir::moved_run(run) {
        return Ok(moved);
    }
    for dir in [PathBuf::from(run), workspace.join(RUNS).join(run)] {
        if let Some(moved) = state_dir::moved_from(&dir) {
            return Ok(moved);
        }
        if dir.join(format::FILE).is_file() {
            refuse_link(workspace, &dir)?;
            return Ok(dir);
        }
    }
    for dir in [PathBuf::from(run), workspace.join(RUNS).join(run)] {
        if let Some(refused) = refused(&dir) {
            return Err(JournalError::NeverBegan {
                dir: dir.display().to_string(),
                verdict: refused.verdict.as_str().to_owned(),
            });
        }
    }
    let known = state_dir::is_plain(run)
        .then(|| state_dir::head(&RunId::from(run)))
        .flatten();
    let known = known
        .map(|head| PathBuf::from(head.dir))
        .filter(|dir| dir.join(format::FILE).is_file());
    if let Some(dir) = &known
        && let Some(other) = started_in(dir)
            .map(|first| first.run)
            .filter(|other| other.as_str() != run)
    {
        return Err(JournalError::Replaced {
            run: run.to_owned(),
            dir: dir.display().to_string(),
            other: other.to_string(),
        });
    }
    known.ok_or_else(|| {
        let dir = run.trim_end_matches('/');
        let has = |file: &str| Path::new(run).join(file).is_file();
        let one = match (has(BATCH_RECORD), has(BATCH_ROWS)) {
            (true, _) => format!("{dir}/jobs/JOB/DIGEST"),
            (false, true) => format!("as `run` in a line of {dir}/{BATCH_ROWS} gives it"),
            (false, false) => return JournalError::Unknown(run.to_owned()),
        };
        JournalError::Batch {
            dir: dir.to_owned(),
            run: one,
        }
    })
}

/// The directory of the newest run of a workspace, also of one that was refused before it began in the usual place; runs
/// of samples do not count, because they are not runs on it.
///
/// # Errors
/// The workspace has no runs, or they cannot be listed.
pub fn newest(workspace: &Path) -> Result<String, JournalError> {
    let mut runs = in_place(workspace)?;
    runs.retain(|run| !run.is_sample);
    // An id begins with the time at which its run began: older ones need not be looked at.
    let since = runs.last().and_then(|run| run.run.as_str().get(..STAMP_BYTES));
    let since = since.unwrap_or_default().to_owned();
    // Only the newest can follow, and those of the same second.
    let mut second: Option<String> = None;
    let is_of_newest_second = |run: &RunListing| {
        let of_run = run.run.as_str().get(..STAMP_BYTES).unwrap_or_default();
        second.get_or_insert_with(|| of_run.to_owned()) == of_run
    };
    runs.extend(elsewhere(workspace, &since).take_while(is_of_newest_second));
    let newest = in_order(runs).pop();
    newest
        .map(|run| run.dir.to_string_lossy().into_owned())
        .ok_or_else(|| JournalError::NoRuns(workspace.display().to_string()))
}

/// Moves the journal of a run that is not active, and the private files beside it.
///
/// # Errors
/// [`JournalError::Missing`]: it has no journal. [`JournalError::Held`]: the run is active. [`JournalError::Write`]: it
/// cannot be moved.
pub fn move_run(from: &Path, to: &Path) -> Result<(), JournalError> {
    let path = from.join(format::FILE);
    let file = File::open(&path).map_err(|_| JournalError::Missing(from.display().to_string()))?;
    writer::lock(&file, from)?;
    state_dir::move_entries(from, to)
}

/// Whether this directory already holds a run.
pub fn is_taken(dir: &Path) -> bool {
    dir.join(format::FILE).exists() || state_dir::moved_from(dir).is_some()
}

/// The locks of a run on its workspace and on the directories around it; dropping it releases them.
#[derive(Debug)]
pub struct HeldWorkspace {
    _locks: Vec<File>,
}

/// Locks a workspace for one run: with an exclusive lock on the workspace, and with shared locks on its parent
/// directories up to the top of the outermost repository. So a run excludes runs in directories above and below its
/// own, because one would take changes of the other for its own; runs in sibling directories do not exclude each other.
/// The directories themselves are locked, so that nothing is written into them.
///
/// # Errors
/// [`JournalError::Read`]: it cannot be opened. [`JournalError::Held`]: another run has it, or a directory above or below
/// it; it says which. [`JournalError::Write`]: it cannot be locked.
pub fn hold_workspace(workspace: &Path) -> Result<HeldWorkspace, JournalError> {
    let dir = File::open(workspace).map_err(JournalError::read(workspace))?;
    let settled = no_follow::settled(workspace);
    writer::lock(&dir, &settled).map_err(|error| match error {
        // Only runs below it share a lock on it. Which directory they have is not known.
        JournalError::Held(name) if dir.try_lock_shared().is_ok() => {
            JournalError::Held(format!("of a directory below {name}"))
        }
        error => error,
    })?;
    let mut locks = vec![dir];
    let is_repository = |dir: &&Path| dir.join(".git").symlink_metadata().is_ok();
    let top = settled.ancestors().filter(is_repository).last();
    let around = settled
        .ancestors()
        .skip(1)
        .take_while(|dir| top.is_some_and(|top| dir.starts_with(top)));
    for dir in around {
        // If this user cannot open a directory, no run of this user has locked it.
        if let Ok(file) = File::open(dir) {
            writer::lock_shared(&file, dir).map_err(|error| match error {
                JournalError::Held(name) => JournalError::Held(format!("{name}, which contains {}", settled.display())),
                error => error,
            })?;
            locks.push(file);
        }
    }
    Ok(HeldWorkspace { _locks: locks })
}

/// The progress of a run according to its journal or result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RunProgress {
    Ended(Verdict),
    /// It has no verdict yet, or was resumed since.
    Unfinished,
    /// The journal cannot be read.
    Damaged,
    /// The journal needs a key that is not set.
    Keyed,
}

impl RunProgress {
    /// The verdict's word, or `unfinished`, `damaged` or `keyed`.
    pub fn as_str(self) -> &'static str {
        match self {
            RunProgress::Ended(verdict) => verdict.as_str(),
            RunProgress::Unfinished => "unfinished",
            RunProgress::Damaged => "damaged",
            RunProgress::Keyed => "keyed",
        }
    }

    fn is_open(self) -> bool {
        match self {
            RunProgress::Unfinished | RunProgress::Keyed => true,
            RunProgress::Damaged => false,
            RunProgress::Ended(verdict) => match verdict {
                Verdict::Suspended | Verdict::Cancelled => true,
                Verdict::Passed
                | Verdict::NoChange
                | Verdict::Failed
                | Verdict::Denied
                | Verdict::Budget
                | Verdict::Provider
                | Verdict::Environment
                | Verdict::Output
                | Verdict::Invalid
                | Verdict::Usage
                | Verdict::Incomplete
                | Verdict::Bug => false,
            },
        }
    }
}

/// A run in a listing.
#[derive(Debug)]
pub struct RunListing {
    pub dir: PathBuf,
    pub run: RunId,
    pub started: Option<Timestamp>,
    pub recipe: String,
    pub progress: RunProgress,
    /// Whether it is a run of a recipe's sample.
    pub is_sample: bool,
    /// Whether it has a journal. Without one it was refused before it began.
    pub began: bool,
    /// The run directory, if that is not in the usual place: `--out` named it.
    pub out: Option<PathBuf>,
    /// Whether its last changes could not be measured when it ended: then only its tree has them.
    pub is_unmeasured: bool,
}

impl RunListing {
    /// Whether the run has not ended: it waits for a person, was interrupted or killed, or is active. One that
    /// cannot be read without a key counts too.
    pub fn is_open(&self) -> bool {
        self.began && self.progress.is_open()
    }

    fn may_lack_changes(&self) -> bool {
        self.is_unmeasured || !matches!(self.progress, RunProgress::Ended(_))
    }
}

/// Whether the tree of a run of this machine may have the only copy of changes: the run has no end, because it was
/// killed, broke off or is active; its journal was removed or damaged; or its last changes could not be measured.
pub fn may_lack_changes(run: &RunId) -> bool {
    of_this_machine(run).is_some_and(|found| found.may_lack_changes())
}

fn of_this_machine(run: &RunId) -> Option<RunListing> {
    let head = state_dir::head(run)?;
    let dir = Path::new(&head.dir);
    let mut found = describe(dir);
    if started_in(dir).is_some_and(|first| first.run != *run) {
        // Its directory now contains another run, so its own journal is gone.
        found.progress = RunProgress::Damaged;
        found.is_unmeasured = false;
    }
    Some(found)
}

/// Whether a run may be continued that works, or worked, in a worktree. `journals`: the directories in which its journal
/// may be, empty if they are not known; `age`: since it began to work there. A run that this state directory does not
/// know may be one of another home: it counts while its journal is there and has no end, and not for ever.
pub fn may_go_on(run: &RunId, journals: &[PathBuf], age: Duration) -> bool {
    match of_this_machine(run) {
        // What it worked on is no longer known.
        Some(found) if matches!(found.progress, RunProgress::Damaged) => return age < DAMAGED_KEPT,
        Some(found) => return found.may_lack_changes(),
        None => {}
    }
    let has_no_end = |dir: &PathBuf| match std::fs::symlink_metadata(dir.join(format::FILE)) {
        Ok(_) => !matches!(describe(dir).progress, RunProgress::Ended(_)),
        Err(error) => !matches!(
            error.kind(),
            std::io::ErrorKind::NotFound | std::io::ErrorKind::NotADirectory
        ),
    };
    age < UNKNOWN_KEPT && (journals.is_empty() || journals.iter().any(has_no_end))
}

/// The runs of a workspace, oldest first: those in the usual place, and those that this machine wrote into another
/// directory (`--out`), while it is there.
///
/// # Errors
/// [`JournalError::NoDirectory`]: there is no such workspace. [`JournalError::Link`]: a link of the tree leads to them.
/// [`JournalError::Read`]: they cannot be listed.
pub fn list(workspace: &Path) -> Result<Vec<RunListing>, JournalError> {
    let mut runs = in_place(workspace)?;
    runs.extend(elsewhere(workspace, ""));
    Ok(in_order(runs))
}

/// The newest runs of a workspace, newest first, as far as they are among the newest runs of this machine: at most `most`,
/// and no more than `most` journals in other directories are looked at.
///
/// # Errors
/// As of [`list`].
pub fn recent(workspace: &Path, most: usize) -> Result<Vec<RunListing>, JournalError> {
    let mut runs = in_place(workspace)?;
    runs.extend(elsewhere_of(workspace, state_dir::heads_since("").take(most)));
    let mut runs = in_order(runs);
    runs.reverse();
    runs.truncate(most);
    Ok(runs)
}

/// The runs of a workspace in the usual place, oldest first. Errors as of [`list`].
fn in_place(workspace: &Path) -> Result<Vec<RunListing>, JournalError> {
    if !workspace.is_dir() {
        return Err(JournalError::NoDirectory(workspace.display().to_string()));
    }
    let root = workspace.join(RUNS);
    refuse_link(workspace, &root)?;
    let entries = match std::fs::read_dir(&root) {
        Ok(entries) => entries,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(source) => {
            return Err(JournalError::read(&root)(source));
        }
    };
    let here = no_follow::settled(&root);
    let moved = state_dir::moved().into_iter();
    let moved = moved.filter(|(_, out)| out.parent().is_some_and(|parent| no_follow::settled(parent) == here));
    let moved: Vec<PathBuf> = moved.map(|(dir, _)| dir).collect();
    let known = |dir: &PathBuf| moved.iter().any(|moved| moved.file_name() == dir.file_name());
    let dirs: Vec<PathBuf> = entries
        .filter_map(Result::ok)
        .map(|entry| entry.path())
        .filter(|dir| !known(dir))
        .collect();
    let begun = dirs.iter().filter(|dir| dir.join(format::FILE).is_file());
    let begun = begun.chain(&moved).map(|dir| describe(dir));
    let refused = dirs.iter().filter_map(|dir| Some(describe_refused(dir, refused(dir)?)));
    Ok(in_order(begun.chain(refused).collect()))
}

fn in_order(mut runs: Vec<RunListing>) -> Vec<RunListing> {
    runs.sort_by_cached_key(|run| (began(run), run.run.clone()));
    runs
}

/// The runs on a workspace that began on this machine and whose directory `--out` named, from this id on, newest first. The
/// state directory knows them; runs of a batch belong to the batch.
fn elsewhere(workspace: &Path, since: &str) -> impl Iterator<Item = RunListing> {
    elsewhere_of(workspace, state_dir::heads_since(since))
}

/// [`elsewhere`], for these heads.
fn elsewhere_of<H: Iterator<Item = state_dir::Head>>(
    workspace: &Path,
    heads: H,
) -> impl Iterator<Item = RunListing> + use<H> {
    let here = no_follow::settled(workspace);
    let usual = here.join(RUNS);
    let heads = heads.filter_map(move |head| {
        let dir = PathBuf::from(head.dir);
        let out = state_dir::outputs_of(&dir).unwrap_or_else(|| dir.clone());
        let is_usual = out.ends_with(Path::new(RUNS).join(head.run.as_str())) || out.parent() == Some(&usual);
        // A directory that was reused contains another run, which has its own head.
        let is_own = |first: RunStarted| first.run == head.run && is_on(&first, &here);
        let is_other = head.adopted || is_usual || is_job(&out) || !started_in(&dir).is_some_and(is_own);
        (!is_other).then_some((head.run, dir, out))
    });
    heads.map(|(run, dir, out)| RunListing {
        run,
        out: Some(out),
        ..describe(&dir)
    })
}

/// Whether this is the directory of a run of a batch: `jobs/JOB/DIGEST` in the directory of the batch.
fn is_job(dir: &Path) -> bool {
    let jobs = dir
        .parent()
        .and_then(Path::parent)
        .filter(|jobs| jobs.ends_with("jobs"));
    jobs.and_then(Path::parent)
        .is_some_and(|batch| batch.join(BATCH_RECORD).is_file() || batch.join(BATCH_ROWS).is_file())
}

/// Whether a run began on this workspace, or on a worktree that was created from it, and is not a run of a sample.
fn is_on(first: &RunStarted, workspace: &Path) -> bool {
    let tree = first.isolated_from.as_ref().unwrap_or(&first.workspace);
    !first.sample && no_follow::settled(Path::new(tree)) == workspace
}

/// The `run_started` event of the journal in `dir`. Only the first line is read, and its chain is not checked.
fn started_in(dir: &Path) -> Option<RunStarted> {
    #[derive(Deserialize)]
    struct Line {
        entry: Event,
    }
    let file = state_dir::open(&dir.join(format::FILE)).ok()?;
    let mut line = Vec::new();
    BufReader::new(file)
        .take(FIRST_LINE)
        .read_until(b'\n', &mut line)
        .ok()?;
    match serde_json::from_slice(&line).map(|line: Line| line.entry.kind) {
        Ok(EventKind::RunStarted(first)) => Some(*first),
        _ => None,
    }
}

/// When a run of a listing began. The time in its id is of whole seconds, and so is that of a run without a readable
/// journal; one that was refused wrote its result at once, unless it was copied or rendered again since.
fn began(run: &RunListing) -> Timestamp {
    let started = run.started.or_else(|| stamped(run.run.as_str()));
    let started = started.unwrap_or(Timestamp::UNIX_EPOCH);
    if run.began {
        return started;
    }
    let written = std::fs::metadata(run.dir.join("result.json")).and_then(|found| found.modified());
    let written = written.ok().and_then(|at| Timestamp::try_from(at).ok());
    let is_of_then = |at: &Timestamp| (0..=1).contains(&(at.as_second() - started.as_second()));
    written.filter(is_of_then).unwrap_or(started)
}

/// The time with which a run id begins.
fn stamped(run: &str) -> Option<Timestamp> {
    let stamp = DateTime::strptime(STAMP, run.get(..STAMP_BYTES)?).ok()?;
    Some(stamp.to_zoned(TimeZone::UTC).ok()?.timestamp())
}

fn describe(dir: &Path) -> RunListing {
    let name = dir.file_name().map(|name| name.to_string_lossy().into_owned());
    let mut listed = RunListing {
        dir: dir.to_owned(),
        run: RunId(name.unwrap_or_default()),
        started: None,
        recipe: String::new(),
        progress: RunProgress::Damaged,
        is_sample: false,
        began: true,
        out: None,
        is_unmeasured: false,
    };
    let read = reader::read(dir);
    if let Err(JournalError::Key(_)) = read {
        listed.progress = RunProgress::Keyed;
    }
    if let Ok(journal) = read {
        listed.progress = RunProgress::Unfinished;
        listed.started = journal.events.first().map(|event| event.at);
        for event in &journal.events {
            note(&mut listed, event);
        }
    }
    listed
}

/// What the result of a run says that was refused before it began.
#[derive(Debug, Deserialize)]
pub struct RefusedRun {
    schema: String,
    pub verdict: Verdict,
    pub recipe: String,
    pub message: String,
    #[serde(default)]
    reason: String,
    #[serde(default)]
    partial: bool,
    exit_code: i32,
    /// A run that had a journal was not refused, even if the journal has been removed.
    #[serde(default)]
    journal: Option<IgnoredAny>,
}

impl RefusedRun {
    /// How it ended.
    pub fn outcome(&self) -> RunOutcome {
        RunOutcome {
            verdict: self.verdict,
            reason: self.reason.clone(),
            message: self.message.clone(),
            partial: self.partial,
            signal: (self.verdict == Verdict::Cancelled).then_some(self.exit_code - 128),
        }
    }
}

/// The refused run of this directory: it has a result and never had a journal.
pub fn refused(dir: &Path) -> Option<RefusedRun> {
    let has = |name: &str| std::fs::symlink_metadata(dir.join(name)).is_ok();
    if has(format::FILE) || has(state_dir::NOTE) {
        return None;
    }
    let bytes = state_dir::bounded(&dir.join("result.json"), RESULT_BYTES).ok()?;
    let refused: RefusedRun = serde_json::from_slice(&bytes).ok()?;
    (refused.schema.starts_with(RESULT_SCHEMA) && refused.journal.is_none()).then_some(refused)
}

fn describe_refused(dir: &Path, refused: RefusedRun) -> RunListing {
    let name = dir.file_name().unwrap_or_default().to_string_lossy().into_owned();
    RunListing {
        dir: dir.to_owned(),
        started: stamped(&name),
        run: RunId(name),
        recipe: refused.recipe,
        progress: RunProgress::Ended(refused.verdict),
        is_sample: false,
        began: false,
        out: None,
        is_unmeasured: false,
    }
}

fn note(listed: &mut RunListing, event: &Event) {
    match &event.kind {
        EventKind::RunStarted(started) => {
            listed.recipe.clone_from(&started.recipe);
            listed.is_sample = started.sample;
        }
        EventKind::RunFinished { outcome, .. } => listed.progress = RunProgress::Ended(outcome.verdict),
        EventKind::Resumed { .. } => {
            listed.progress = RunProgress::Unfinished;
            listed.is_unmeasured = false;
        }
        EventKind::Warned { code, .. } if code == UNMEASURED => listed.is_unmeasured = true,
        _ => {}
    }
}

/// What [`prune`] did with the runs that are not among the newest.
#[derive(Debug, Default)]
pub struct Pruned {
    pub removed: Vec<RunId>,
    /// Runs that were kept because they have not ended.
    pub kept: Vec<RunListing>,
}

/// Removes all but the newest `keep` runs in the usual place; a directory that `--out` named is its user's. Keeps those
/// that have not ended, unless `all` is set, and those that a process has locked.
///
/// # Errors
/// As [`list`]. [`JournalError::Write`]: a run cannot be removed; those before it are.
pub fn prune(workspace: &Path, keep: usize, all: bool) -> Result<Pruned, JournalError> {
    let runs = in_place(workspace)?;
    let surplus = runs.len().saturating_sub(keep);
    let mut pruned = Pruned::default();
    for run in runs.into_iter().take(surplus) {
        if !all && run.is_open() {
            pruned.kept.push(run);
            continue;
        }
        refuse_link(workspace, &run.dir)?;
        let journal = run.dir.join(format::FILE);
        let free = match run.began {
            true => File::open(journal).is_ok_and(|file| file.try_lock().is_ok()),
            // A run that has begun there since.
            false => !journal.exists(),
        };
        if free {
            let place = state_dir::outputs_of(&run.dir);
            let gone = |dir: &Path| match std::fs::remove_dir_all(dir) {
                Err(source) if source.kind() != std::io::ErrorKind::NotFound => Err(JournalError::write(dir)(source)),
                _ => Ok(()),
            };
            gone(&run.dir)?;
            place.map_or(Ok(()), |place| gone(&place))?;
            state_dir::forget(&run.run);
            pruned.removed.push(run.run);
        } else {
            pruned.kept.push(run);
        }
    }
    Ok(pruned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_that_is_not_known_here_may_go_on_while_its_journal_is_there_and_for_a_time() {
        let dir = tempfile::tempdir().unwrap();
        let (there, gone) = (dir.path().to_owned(), dir.path().join("gone"));
        std::fs::write(there.join(format::FILE), "x").unwrap();
        let run = RunId("20260101-000000-aaaaaa".to_owned());
        let may = |journals: &[PathBuf], age: Duration| may_go_on(&run, journals, age);
        assert!(may(&[gone.clone(), there.clone()], Duration::ZERO));
        assert!(may(&[], Duration::ZERO));
        assert!(!may(&[gone], Duration::ZERO));
        assert!(!may(&[there], UNKNOWN_KEPT));
    }
}
