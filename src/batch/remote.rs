//! The bundle of a batch or shard in an object store: each job is uploaded as soon as it has ended, and a merge
//! downloads all of them.
//!
//! ```text
//! plan.json                            the plan; written when a call begins
//! jobs/JOB/DIGEST12[.ATTEMPT]/FILES12/ the files of an ended run, under a name made from their digests
//! ended/JOB/DIGEST12[.ATTEMPT].json    the row of that run and the digests of its files; created after them, and once
//! runs/FILE12.jsonl                    all rows, under a name made from their digest
//! bundle.json                          written when a call ends, removed when one begins
//! result.json, junit.xml, …            of the latest call, for people
//! ```
//!
//! What `bundle.json` and `ended/` name is never overwritten with something else, so two calls that write here at the
//! same time cannot leave a mixture of both. Of two that ran the same job, the one that created `ended/…` first wins.

use super::bundle::{self, BundleSeal};
use super::merge::{ALTERED, CUT, patch_of, problem};
use super::plan::{self, PlanFile, log_of, run_dir};
use super::record::{self, BatchEvent, STORE_FILE};
use super::rows::{self, RunRow, is_inside};
use super::sealed_file::{SealedFile, sealed_file};
use super::{BatchError, merge};
use crate::base::ids::sha256_hex;
use crate::journal::{artefacts, chain_key};
use crate::net::objects::{Expected, FetchedObject, ObjectError, Objects};
use futures_util::stream::{self, StreamExt, TryStreamExt};
use serde::{Deserialize, Serialize};
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::path::{Path, PathBuf};

/// The value of `schema` in the files below `ended/`.
pub const SCHEMA: &str = "overnight/ended-job/v1";
/// Limit of files of one run that are uploaded.
const MAX_FILES: usize = 100_000;
/// Depth limit of a run directory.
const MAX_DEPTH: usize = 32;
/// Size limit of a file below `ended/`, in bytes.
const MAX_ENDED: u64 = 64 << 20;
/// Limit of concurrent transfers of one job's objects, and of concurrently transferred jobs.
const AT_ONCE: usize = 6;
/// Limit of problems of one bundle that are shown.
const SHOWN: usize = 20;
/// The object that holds what the processes of a job printed.
const LOG: &str = "batch.log";
/// Outputs that are copied for people.
const OUTPUTS: [&str; 4] = ["junit.xml", "report.html", "summary.md", "result.json"];
/// Hexadecimal digits of digests in names.
const SHORT: usize = 12;
/// What to do about an incomplete bundle.
const COPY: &str = "run the shard again, or copy the bundle again";

/// An ended job in the store: a file below `ended/`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct EndedJob {
    schema: String,
    /// The run directory, relative to the bundle.
    run: String,
    /// The prefix of its files.
    place: String,
    files: BTreeMap<String, SealedFile>,
    log: Option<SealedFile>,
    row: RunRow,
}

/// Whose result of a job counts.
#[derive(Clone, Debug, PartialEq)]
pub enum RecordOwner {
    Ours,
    /// Another call ended the same job first.
    Theirs(Box<RunRow>),
}

/// Rows that only the store or only the working directory has.
#[derive(Debug, Default)]
pub struct UnmatchedRows {
    /// Rows of the store, in the order in which the jobs ended.
    pub here: Vec<RunRow>,
    /// Rows of the directory.
    pub there: Vec<RunRow>,
}

/// The place of one bundle.
#[derive(Debug)]
pub struct RemoteBundle {
    objects: Objects,
    /// Names of all files below `ended/`, as far as this process has seen them.
    ended: RefCell<BTreeSet<String>>,
}

/// The directory of the run that a row is about.
fn run_of(row: &RunRow) -> PathBuf {
    let digest = if row.digest.is_empty() {
        "unresolved"
    } else {
        &row.digest
    };
    run_dir(&row.job, digest, row.attempt)
}

/// The name of the file below `ended/` for a run directory.
fn marker(run: &Path) -> String {
    let run = run.strip_prefix("jobs").unwrap_or(run);
    format!("ended/{}.json", run.display())
}

fn cannot_read(error: ObjectError) -> BatchError {
    BatchError::Environment(error.to_string())
}

fn cannot_write(error: ObjectError) -> BatchError {
    BatchError::Output(error.to_string())
}

async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, BatchError> + Send + 'static,
) -> Result<T, BatchError> {
    match tokio::task::spawn_blocking(work).await {
        Ok(done) => done,
        // Only a panic leads here; the process then ends with the exit code of a bug.
        Err(error) => std::panic::resume_unwind(error.into_panic()),
    }
}

impl EndedJob {
    fn parse(bytes: &[u8], run: &Path) -> Result<Self, String> {
        let ended: Self = serde_json::from_slice(bytes).map_err(|error| format!("it is cut or altered: {error}"))?;
        let mut names = ended.files.keys().chain([&ended.place, &ended.run]);
        let fits = ended.schema == SCHEMA
            && Path::new(&ended.run) == run
            && run_of(&ended.row) == run
            && ended
                .row
                .patch
                .iter()
                .all(|patch| *patch == patch_of(&ended.row.job) && is_inside(patch))
            && names.all(|name| is_inside(name));
        drop(names);
        match fits {
            true => Ok(ended),
            false => Err("it is altered: its content does not match its name".to_owned()),
        }
    }
}

/// The regular files of a run directory with their digests. Symbolic links are left out, as they may lead anywhere.
fn sealed_files(dir: &Path) -> Result<BTreeMap<String, SealedFile>, BatchError> {
    sealed_within(dir, MAX_FILES)
}

/// As [`sealed_files`], with at most `most` files.
fn sealed_within(dir: &Path, most: usize) -> Result<BTreeMap<String, SealedFile>, BatchError> {
    let (mut files, mut open) = (BTreeMap::new(), vec![(dir.to_owned(), String::new(), 0)]);
    while let Some((place, prefix, depth)) = open.pop() {
        let entries = match std::fs::read_dir(&place) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => continue,
            entries => entries.map_err(|error| BatchError::read(&place, &error))?,
        };
        for entry in entries {
            let entry = entry.map_err(|error| BatchError::read(&place, &error))?;
            let path = entry.path();
            let kind = entry.file_type().map_err(|error| BatchError::read(&path, &error))?;
            let name = format!("{prefix}{}", entry.file_name().to_string_lossy());
            if kind.is_dir() && depth < MAX_DEPTH {
                open.push((path, format!("{name}/"), depth + 1));
            } else if kind.is_file() && files.len() < most {
                let sealed = sealed_file(&path).map_err(|error| BatchError::read(&path, &error))?;
                files.insert(name, sealed);
            } else if kind.is_dir() || kind.is_file() {
                let why = format!("{} has more than {most} files or {MAX_DEPTH} levels", dir.display());
                return Err(BatchError::Output(why));
            }
        }
    }
    Ok(files)
}

/// What is uploaded for an ended job.
fn collect(dir: &Path, run: &Path, row: RunRow) -> Result<EndedJob, BatchError> {
    let files = sealed_files(&dir.join(run))?;
    let log = log_of(&dir.join(run));
    let log = match sealed_file(&log) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => None,
        sealed => Some(sealed.map_err(|error| BatchError::read(&log, &error))?),
    };
    let text = serde_json::to_string(&(&files, &log)).unwrap_or_default();
    let digest = sha256_hex(&[text.as_bytes()]);
    let run = run.to_string_lossy().into_owned();
    Ok(EndedJob {
        schema: SCHEMA.to_owned(),
        place: format!("{run}/{}", digest.get(..SHORT).unwrap_or_default()),
        run,
        files,
        log,
        row,
    })
}

/// Renames the local run directory to make room for the run of the other call, unless their files are the same.
fn set_aside(dir: &Path, ended: &EndedJob) -> Result<(), BatchError> {
    let run = dir.join(&ended.run);
    if !run.is_dir() || sealed_files(&run)? == ended.files {
        return Ok(());
    }
    let free = (1_u64..).map(|n| {
        let mut name = run.file_name().unwrap_or_default().to_owned();
        name.push(format!(".unused-{n}"));
        run.with_file_name(name)
    });
    for to in free {
        if std::fs::symlink_metadata(&to).is_err() {
            let _ = std::fs::rename(log_of(&run), log_of(&to));
            return std::fs::rename(&run, &to).map_err(|error| BatchError::write(&to, &error));
        }
    }
    Ok(())
}

/// Why a run could not be downloaded.
enum FetchProblem {
    Store(ObjectError),
    /// Code and message.
    Bundle(&'static str, String),
    Local(BatchError),
}

impl From<ObjectError> for FetchProblem {
    fn from(error: ObjectError) -> Self {
        Self::Store(error)
    }
}

impl FetchProblem {
    fn into_error(self, objects: &Objects) -> BatchError {
        match self {
            Self::Store(error) => cannot_read(error),
            Self::Bundle(code, why) => BatchError::Invalid(problem(objects.url(), code, &why, COPY)),
            Self::Local(error) => error,
        }
    }
}

/// Downloads one object, unless the file already exists.
async fn bring(objects: &Objects, name: &str, to: &Path, sealed: &SealedFile) -> Result<(), FetchProblem> {
    let (path, wanted) = (to.to_owned(), sealed.clone());
    let there = blocking(move || {
        let same_size = std::fs::symlink_metadata(&path).is_ok_and(|data| data.is_file() && data.len() == wanted.bytes);
        Ok(same_size && sealed_file(&path).is_ok_and(|found| found == wanted))
    });
    if there.await.map_err(FetchProblem::Local)? {
        return Ok(());
    }
    let expected = Expected {
        bytes: sealed.bytes,
        sha256: &sealed.sha256,
    };
    match objects.fetch(name, to, expected).await? {
        FetchedObject::Whole => Ok(()),
        FetchedObject::Missing => Err(FetchProblem::Bundle(CUT, format!("{name} is missing"))),
        FetchedObject::Other(bytes) if bytes < sealed.bytes => Err(FetchProblem::Bundle(
            CUT,
            format!("{name} is cut: {bytes} of {} bytes", sealed.bytes),
        )),
        FetchedObject::Other(_) => Err(FetchProblem::Bundle(
            ALTERED,
            format!("{name} is altered: its size or digest is another"),
        )),
    }
}

/// Downloads the files of a run.
async fn bring_run(objects: &Objects, dir: &Path, ended: &EndedJob) -> Result<(), FetchProblem> {
    let (place, run) = (&ended.place, dir.join(&ended.run));
    let files = ended.files.iter().map(|(name, sealed)| {
        let to = run.join(name);
        async move { bring(objects, &format!("{place}/{name}"), &to, sealed).await }
    });
    let mut under_way = stream::iter(files).buffer_unordered(AT_ONCE);
    while let Some(done) = under_way.next().await {
        done?;
    }
    if let Some(sealed) = &ended.log {
        bring(objects, &format!("{place}/{LOG}"), &log_of(&run), sealed).await?;
    }
    Ok(())
}

/// Downloads the patch of a run to the path that its row names, or removes that of an earlier run if it names none.
async fn bring_patch(objects: &Objects, dir: &Path, ended: &EndedJob) -> Result<(), FetchProblem> {
    let Some(patch) = &ended.row.patch else {
        return merge::remove_patch(dir, &ended.row.job).map_err(FetchProblem::Local);
    };
    match ended.files.get("changes.patch") {
        Some(sealed) => {
            bring(
                objects,
                &format!("{}/changes.patch", ended.place),
                &dir.join(patch),
                sealed,
            )
            .await
        }
        None => Err(FetchProblem::Bundle(
            CUT,
            format!("{} has no patch although its row names one", ended.place),
        )),
    }
}

async fn read_ended(objects: &Objects, run: &Path) -> Result<Option<EndedJob>, FetchProblem> {
    let name = marker(run);
    let Some(bytes) = objects.get(&name, MAX_ENDED).await? else {
        return Ok(None);
    };
    let ended = EndedJob::parse(&bytes, run);
    ended
        .map(Some)
        .map_err(|why| FetchProblem::Bundle(ALTERED, format!("{name}: {why}")))
}

impl RemoteBundle {
    /// Lists which jobs have ended there.
    ///
    /// # Errors
    /// The store cannot be read.
    pub async fn open(objects: Objects) -> Result<Self, BatchError> {
        let ended = objects.list("ended").await.map_err(cannot_read)?;
        Ok(Self {
            objects,
            ended: RefCell::new(ended.into_iter().collect()),
        })
    }

    /// The address, for messages.
    pub fn url(&self) -> &str {
        self.objects.url()
    }

    /// Whether a run with this directory has ended there.
    pub fn knows(&self, run: &Path) -> bool {
        self.ended.borrow().contains(&marker(run))
    }

    /// The plan of the last call.
    ///
    /// # Errors
    /// It cannot be read, or is not a plan.
    pub async fn plan(&self) -> Result<Option<PlanFile>, BatchError> {
        let found = self
            .objects
            .get(plan::FILE, merge::MAX_PLAN)
            .await
            .map_err(cannot_read)?;
        let Some(bytes) = found else { return Ok(None) };
        let plan = serde_json::from_slice(&bytes).map_err(|error| {
            let why = format!("plan.json is cut or altered: {error}");
            let help = "name another prefix, or remove this one";
            BatchError::Invalid(problem(self.url(), ALTERED, &why, help))
        })?;
        Ok(Some(plan))
    }

    /// Binds a working directory to this store.
    ///
    /// # Errors
    /// It is the directory of a batch with another `--out`.
    pub fn bind(&self, dir: &Path, has_record: bool) -> Result<(), BatchError> {
        let path = dir.join(STORE_FILE);
        let text = match std::fs::read_to_string(&path) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => None,
            text => Some(text.map_err(|error| BatchError::read(&path, &error))?),
        };
        let text = text.as_deref().map(str::trim);
        if text == Some(self.url()) {
            return Ok(());
        }
        if has_record {
            let other = text.unwrap_or("no object store");
            return Err(BatchError::Environment(format!(
                "{} is the working directory of this batch with {other} as --out: use that, or remove the directory",
                dir.display()
            )));
        }
        artefacts::replace(&path, format!("{}\n", self.url()).as_bytes())?;
        Ok(())
    }

    /// Compares the record of a working directory with the store.
    ///
    /// # Errors
    /// One of them cannot be read.
    pub async fn lacking(&self, dir: &Path) -> Result<UnmatchedRows, BatchError> {
        let (mut known, mut lacking) = (BTreeSet::new(), UnmatchedRows::default());
        let missing: Vec<PathBuf> = {
            let ended = self.ended.borrow();
            record::read_lines(&dir.join(record::FILE), chain_key::key()?, |event| {
                if let BatchEvent::JobEnded { row } = event {
                    let name = marker(&run_of(&row));
                    if !ended.contains(&name) {
                        lacking.there.push(*row);
                    }
                    known.insert(name);
                }
            })?;
            let names = ended.iter().filter(|name| !known.contains(*name));
            let runs = names.filter_map(|name| name.strip_prefix("ended/")?.strip_suffix(".json"));
            runs.map(|run| Path::new("jobs").join(run)).collect()
        };
        let read = missing.into_iter().map(|run| async move {
            let ended = read_ended(&self.objects, &run).await;
            ended.map_err(|problem| problem.into_error(&self.objects))
        });
        let rows: Vec<Option<EndedJob>> = stream::iter(read).buffered(AT_ONCE).try_collect().await?;
        lacking.here = rows.into_iter().flatten().map(|ended| ended.row).collect();
        lacking.here.sort_by_key(|row| row.ended);
        Ok(lacking)
    }

    /// Downloads the patch of a job that ended in another call into the working directory. Its run directory stays in
    /// the store.
    ///
    /// # Errors
    /// The store cannot be read, or the directory not be written.
    pub async fn take_patch(&self, dir: &Path, row: &RunRow) -> Result<(), BatchError> {
        self.taken(dir, &run_of(row), false).await.map(drop)
    }

    /// Begins a call: removes `bundle.json`, so the bundle counts as incomplete until [`Self::end`].
    ///
    /// # Errors
    /// The store refuses the request.
    pub async fn begin(&self, dir: &Path) -> Result<(), BatchError> {
        let old = self
            .objects
            .get(bundle::FILE, bundle::MAX_BYTES)
            .await
            .map_err(cannot_read)?;
        if let Some(old) = old {
            self.objects.delete(bundle::FILE).await.map_err(cannot_write)?;
            let old: Option<BundleSeal> = serde_json::from_slice(&old).ok();
            if let Some(rows) = old.as_ref().and_then(|seal| seal.files.get(rows::FILE)) {
                self.objects.delete(&rows_name(rows)).await.map_err(cannot_write)?;
            }
        }
        self.send(plan::FILE, &dir.join(plan::FILE)).await
    }

    async fn send(&self, name: &str, from: &Path) -> Result<(), BatchError> {
        self.objects.put_file(name, from).await.map_err(cannot_write)
    }

    /// Sends an ended job, its files first. If another call ended the same job first, its files are downloaded and the
    /// local ones are renamed.
    ///
    /// # Errors
    /// The store refuses it: the job has not ended, and the same command sends it again.
    pub async fn keep(&self, dir: &Path, run: &Path, row: &RunRow) -> Result<RecordOwner, BatchError> {
        let (place, path, own) = (dir.to_owned(), run.to_owned(), row.clone());
        let ended = blocking(move || collect(&place, &path, own)).await?;
        let sends: Vec<_> = ended
            .files
            .keys()
            .map(|name| (format!("{}/{name}", ended.place), dir.join(run).join(name)))
            .chain(
                ended
                    .log
                    .iter()
                    .map(|_| (format!("{}/{LOG}", ended.place), log_of(&dir.join(run)))),
            )
            .map(|(name, from)| async move { self.send(&name, &from).await })
            .collect();
        let mut under_way = stream::iter(sends).buffer_unordered(AT_ONCE);
        while let Some(sent) = under_way.next().await {
            sent?;
        }
        let name = marker(run);
        let text = serde_json::to_vec(&ended).unwrap_or_default();
        let won = self.objects.create(&name, text.clone()).await.map_err(cannot_write)?;
        self.ended.borrow_mut().insert(name.clone());
        // If the response to the first request was lost, the retry finds the object that the first one created.
        if won || self.objects.get(&name, MAX_ENDED).await.map_err(cannot_read)? == Some(text) {
            return Ok(RecordOwner::Ours);
        }
        match self.ended_elsewhere(dir, run).await? {
            Some(row) => Ok(RecordOwner::Theirs(Box::new(row))),
            None => Err(BatchError::Output(format!(
                "cannot create {}/{name}: the store says that it exists, but it cannot be read",
                self.url()
            ))),
        }
    }

    /// Sends a job that this directory records as ended and the store lacks, for example after its objects expired.
    ///
    /// # Errors
    /// As [`Self::keep`], also when another call has ended it meanwhile.
    pub async fn send_again(&self, dir: &Path, row: &RunRow) -> Result<(), BatchError> {
        match self.keep(dir, &run_of(row), row).await? {
            RecordOwner::Ours => Ok(()),
            RecordOwner::Theirs(_) => Err(BatchError::Environment(format!(
                "{} ended in {} and in another call that writes to {}: remove the directory, and the same command continues \
                with what is in the store",
                row.job,
                dir.display(),
                self.url()
            ))),
        }
    }

    /// Downloads a run that ended in another call, with its files; `None` when there is none.
    ///
    /// # Errors
    /// The store cannot be read, or the directory not be written.
    pub async fn ended_elsewhere(&self, dir: &Path, run: &Path) -> Result<Option<RunRow>, BatchError> {
        let ended = self.taken(dir, run, true).await?;
        Ok(ended.map(|ended| ended.row))
    }

    /// Downloads the patch of a run that ended in another call, and with `with_files` its other files.
    async fn taken(&self, dir: &Path, run: &Path, with_files: bool) -> Result<Option<EndedJob>, BatchError> {
        let said = |problem: FetchProblem| problem.into_error(&self.objects);
        let Some(ended) = read_ended(&self.objects, run).await.map_err(said)? else {
            return Ok(None);
        };
        self.ended.borrow_mut().insert(marker(run));
        let (place, other) = (dir.to_owned(), ended.clone());
        blocking(move || set_aside(&place, &other)).await?;
        if with_files {
            bring_run(&self.objects, dir, &ended).await.map_err(said)?;
        }
        bring_patch(&self.objects, dir, &ended).await.map_err(said)?;
        Ok(Some(ended))
    }

    /// Ends a call: sends its outputs, its rows, and last the bundle file.
    ///
    /// # Errors
    /// The store refuses it, or there is no bundle in the directory.
    pub async fn end(&self, dir: &Path) -> Result<(), BatchError> {
        let read = bundle::read(dir).map_err(BatchError::Environment)?;
        let rows = read.as_ref().and_then(|seal| seal.files.get(rows::FILE));
        let Some(rows) = rows else {
            return Err(BatchError::Environment(format!("{} has no bundle", dir.display())));
        };
        for name in OUTPUTS {
            self.send(name, &dir.join(name)).await?;
        }
        self.send(&rows_name(rows), &dir.join(rows::FILE)).await?;
        self.send(bundle::FILE, &dir.join(bundle::FILE)).await
    }
}

fn rows_name(rows: &SealedFile) -> String {
    format!("runs/{}.jsonl", rows.sha256.get(..SHORT).unwrap_or(&rows.sha256))
}

/// The bundles at an address: the one there, and those of its shards.
///
/// # Errors
/// The store cannot be read, or there are none.
pub async fn bundles(objects: &Objects) -> Result<Vec<Objects>, BatchError> {
    let mut found = Vec::new();
    if objects.exists(plan::FILE).await.map_err(cannot_read)? {
        found.push(objects.clone());
    }
    let shards = objects.directories("shards").await.map_err(cannot_read)?;
    found.extend(shards.iter().map(|shard| objects.below(&format!("shards/{shard}"))));
    match found.is_empty() {
        false => Ok(found),
        true => Err(no_bundle(objects)),
    }
}

fn no_bundle(objects: &Objects) -> BatchError {
    BatchError::Invalid(problem(
        objects.url(),
        "no-bundle",
        "there is no bundle here",
        "name the --out of `overnight batch`",
    ))
}

/// Downloads a bundle into a directory, which a merge then reads as any other. Existing files are kept.
///
/// # Errors
/// The store cannot be read; or every part that is missing, cut or altered, at most 20.
pub async fn download(objects: &Objects, dir: &Path) -> Result<(), BatchError> {
    let said = |found: FetchProblem| found.into_error(objects);
    let altered = |why: &str| BatchError::Invalid(problem(objects.url(), ALTERED, why, COPY));
    std::fs::create_dir_all(dir).map_err(|error| BatchError::write(dir, &error))?;
    bundle::open(dir)?;
    let Some(seal_text) = objects
        .get(bundle::FILE, bundle::MAX_BYTES)
        .await
        .map_err(cannot_read)?
    else {
        // The shard has not ended. Its plan says whether it belongs to the others.
        let plan = objects.get(plan::FILE, merge::MAX_PLAN).await.map_err(cannot_read)?;
        return match plan {
            Some(plan) => Ok(artefacts::replace(&dir.join(plan::FILE), &plan)?),
            None => Err(no_bundle(objects)),
        };
    };
    let seal =
        bundle::parse(&seal_text, &format!("{}/{}", objects.url(), bundle::FILE)).map_err(|why| altered(&why))?;
    let (Some(plan), Some(rows)) = (seal.files.get(plan::FILE), seal.files.get(rows::FILE)) else {
        return Err(altered("bundle.json names no plan or no rows"));
    };
    if plan.bytes > merge::MAX_PLAN {
        return Err(altered("plan.json is too large"));
    }
    bring(objects, plan::FILE, &dir.join(plan::FILE), plan)
        .await
        .map_err(said)?;
    let rows_path = dir.join(rows::FILE);
    bring(objects, &rows_name(rows), &rows_path, rows).await.map_err(said)?;
    // The patch of a job is that of its last row.
    let (mut runs, mut last): (Vec<PathBuf>, HashMap<String, usize>) = Default::default();
    rows::each(&rows_path, |row| {
        let run = run_of(&row);
        if is_inside(&run.to_string_lossy()) {
            last.insert(row.job, runs.len());
            runs.push(run);
        }
    })?;
    let patched: BTreeSet<usize> = last.into_values().collect();
    let patched = &patched;
    let jobs = runs.iter().enumerate().map(|(at, run)| async move {
        let Some(ended) = read_ended(objects, run).await? else {
            let why = format!("{} is missing", marker(run));
            return Err(FetchProblem::Bundle(CUT, why));
        };
        bring_run(objects, dir, &ended).await?;
        match patched.contains(&at) {
            true => bring_patch(objects, dir, &ended).await,
            false => Ok(()),
        }
    });
    let (mut under_way, mut problems) = (stream::iter(jobs).buffer_unordered(AT_ONCE), BTreeSet::new());
    while let Some(done) = under_way.next().await {
        match done.map_err(said) {
            Ok(()) => {}
            Err(BatchError::Invalid(text)) => {
                problems.insert(text);
            }
            Err(other) => return Err(other),
        }
    }
    if !problems.is_empty() {
        let shown: Vec<String> = problems.into_iter().take(SHOWN).collect();
        return Err(BatchError::Invalid(shown.join("\n")));
    }
    artefacts::replace(&dir.join(bundle::FILE), &seal_text)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn store(dir: &Path) -> Objects {
        Objects::open(&format!("file://{}", dir.display()), &[]).unwrap()
    }

    fn row(job: &str, attempt: u64, message: &str) -> RunRow {
        RunRow {
            job: job.to_owned(),
            digest: "0123456789abcdef".to_owned(),
            attempt,
            verdict: "passed".to_owned(),
            message: message.to_owned(),
            ..RunRow::default()
        }
    }

    fn run(dir: &Path, row: &RunRow, text: &str) -> PathBuf {
        let run = run_of(row);
        std::fs::create_dir_all(dir.join(&run).join("blobs")).unwrap();
        std::fs::write(dir.join(&run).join("journal.jsonl"), text).unwrap();
        std::fs::write(dir.join(&run).join("blobs/b"), "blob").unwrap();
        std::fs::write(log_of(&dir.join(&run)), format!("log of {text}")).unwrap();
        run
    }

    #[test]
    fn names() {
        assert_eq!(marker(&run_of(&row("a", 1, ""))), "ended/a/0123456789ab.json");
        assert_eq!(marker(&run_of(&row("a", 2, ""))), "ended/a/0123456789ab.2.json");
    }

    #[test]
    fn a_run_with_too_many_files_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let place = dir.path().join(run(dir.path(), &row("j", 1, ""), "text"));
        std::os::unix::fs::symlink("/etc", place.join("link")).unwrap();
        assert_eq!(sealed_within(&place, 2).unwrap().len(), 2);
        let refused = sealed_within(&place, 1).unwrap_err().to_string();
        assert!(refused.contains("more than 1 files"), "{refused}");
    }

    #[tokio::test]
    async fn the_first_of_two_that_ran_the_same_job_wins() {
        let (up, a, b) = (
            tempfile::tempdir().unwrap(),
            tempfile::tempdir().unwrap(),
            tempfile::tempdir().unwrap(),
        );
        let (one, two) = (
            RemoteBundle::open(store(up.path())).await.unwrap(),
            RemoteBundle::open(store(up.path())).await.unwrap(),
        );
        let (mine, other) = (row("j", 1, "first"), row("j", 1, "second"));
        let place = run(a.path(), &mine, "first");
        run(b.path(), &other, "second");
        assert_eq!(one.keep(a.path(), &place, &mine).await.unwrap(), RecordOwner::Ours);
        // Sent again, as after a lost response.
        assert_eq!(one.keep(a.path(), &place, &mine).await.unwrap(), RecordOwner::Ours);
        let kept = two.keep(b.path(), &place, &other).await.unwrap();
        assert_eq!(kept, RecordOwner::Theirs(Box::new(mine)));
        let read = |name: &str| std::fs::read_to_string(b.path().join("jobs/j").join(name)).unwrap();
        assert_eq!(read("0123456789ab/journal.jsonl"), "first");
        assert_eq!(read("0123456789ab.log"), "log of first");
        assert_eq!(read("0123456789ab.unused-1/journal.jsonl"), "second");
        assert_eq!(read("0123456789ab.unused-1.log"), "log of second");
        assert!(two.knows(&place) && !two.knows(&run_of(&row("j", 2, ""))));
    }

    #[tokio::test]
    async fn what_a_killed_upload_leaves_is_not_taken_for_a_job() {
        let (up, a) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let bundle = RemoteBundle::open(store(up.path())).await.unwrap();
        let mine = row("j", 1, "");
        let place = run(a.path(), &mine, "text");
        let ended = collect(a.path(), &place, mine.clone()).unwrap();
        let part = format!("{}/journal.jsonl", ended.place);
        bundle.objects.put(&part, b"te".to_vec()).await.unwrap();
        let again = RemoteBundle::open(store(up.path())).await.unwrap();
        assert!(!again.knows(&place));
        assert_eq!(again.ended_elsewhere(a.path(), &place).await.unwrap(), None);
        // The same job sent again replaces the part.
        assert_eq!(again.keep(a.path(), &place, &mine).await.unwrap(), RecordOwner::Ours);
        assert_eq!(bundle.objects.get(&part, 99).await.unwrap().unwrap(), b"text");
    }

    #[tokio::test]
    async fn a_marker_that_names_other_places_is_refused() {
        let (up, a, b) = (
            tempfile::tempdir().unwrap(),
            tempfile::tempdir().unwrap(),
            tempfile::tempdir().unwrap(),
        );
        let bundle = RemoteBundle::open(store(up.path())).await.unwrap();
        let mine = row("j", 1, "");
        let place = run(a.path(), &mine, "text");
        let good = collect(a.path(), &place, mine).unwrap();
        let sealed = good.files["journal.jsonl"].clone();
        let escaping = EndedJob {
            files: BTreeMap::from([("../../../x".to_owned(), sealed)]),
            ..good.clone()
        };
        let elsewhere = EndedJob {
            run: "jobs/k/0123456789ab".to_owned(),
            ..good.clone()
        };
        let outside = EndedJob {
            row: RunRow {
                patch: Some("/etc/x".to_owned()),
                ..good.row.clone()
            },
            ..good
        };
        for wrong in [escaping, elsewhere, outside] {
            let text = serde_json::to_vec(&wrong).unwrap();
            bundle.objects.put(&marker(&place), text).await.unwrap();
            let error = bundle.ended_elsewhere(b.path(), &place).await.unwrap_err().to_string();
            assert!(error.contains("altered-bundle"), "{error}");
        }
        assert_eq!(std::fs::read_dir(b.path()).unwrap().count(), 0);
    }
}
