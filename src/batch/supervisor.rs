//! Runs the jobs of a plan as child processes: decides which are up to date or resumed, how many run at once, and when
//! to pause and stop. The only writer of the record.

use super::BatchError;
use super::breaker::CircuitBreaker;
use super::budget::{JobSpending, Reservation, ReservationAnswer, SharedBudget};
use super::bundle;
use super::child::{self, ChildEnd, ValueFiles};
use super::hung::{self, GracePeriods, Waited};
use super::job_result::{JobDisposition, JobResult, SupervisedCall};
use super::merge;
use super::plan::{BatchPlan, JobIdentity, PlannedJob, log_of, replies_of, run_dir, service_of};
use super::progress::BatchProgress;
use super::record::{self, BatchEvent, BatchRecord, OpenRun};
use super::remote::{RecordOwner, RemoteBundle};
use super::rows::{self, RunRow};
use super::sealed_file::sealed_file;
use super::shard::ShardSpec;
use super::sources::{self, ResolvedSource, SourceCache};
use crate::base::budget::Budget;
use crate::base::exit::{self, signal_name};
use crate::base::model_name::is_played;
use crate::base::secret::Redactor;
use crate::journal::artefacts;
use crate::net::gate::{self, RequestGate};
use crate::process::supervised;
use crate::workspace::worktree;
use futures_util::future::LocalBoxFuture;
use futures_util::stream::{FuturesUnordered, StreamExt};
use jiff::Timestamp;
use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::fs::{File, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::{Duration, Instant};
use tokio::sync::mpsc::UnboundedReceiver;
use tokio::sync::{Notify, OnceCell};

/// Time that children have to write their files after a signal, before they are killed. They can be resumed from their
/// journals.
const GRACE: Duration = Duration::from_secs(10);
/// Time that a killed process may take to release its locks on worktree and journal.
const RELEASED: Duration = Duration::from_secs(30);
/// How long the process of a job is waited for that does not end by itself.
const GRACE_PERIODS: GracePeriods = GracePeriods {
    beyond: Duration::from_secs(60),
    asked: GRACE,
    killed: RELEASED,
};
/// Interval at which pauses, the wall clock and progress are checked.
const TICK: Duration = Duration::from_millis(200);
/// Repositories that are resolved at the same time.
const RESOLVED_AT_ONCE: usize = 16;
/// The variable that gives a child process its own data directory.
const DATA_HOME: &str = "XDG_DATA_HOME";
/// Variables that replace flags of a run, emptied for the jobs: the batch reads them and passes on by arguments what its jobs
/// need, and two jobs must not write the same file. `OVERNIGHT_WORKSPACE` has no effect beside `--workspace`, and still
/// names a tree in which no program is looked up.
pub const EMPTIED: [&str; 12] = [
    "OVERNIGHT_MODEL",
    "OVERNIGHT_POLICY",
    "OVERNIGHT_OUT",
    "OVERNIGHT_PATCH",
    "OVERNIGHT_JUNIT",
    "OVERNIGHT_TRANSCRIPT",
    "OVERNIGHT_FORMAT",
    "OVERNIGHT_MAX_TURNS",
    "OVERNIGHT_MAX_TOKENS",
    "OVERNIGHT_MAX_COST",
    "OVERNIGHT_MAX_WALL",
    // The step's outputs are those of the batch.
    "OVERNIGHT_GITHUB",
];

/// Settings of a call.
pub struct BatchCall<'a> {
    /// The batch directory, absolute.
    pub dir: &'a Path,
    pub plan: &'a BatchPlan,
    /// The path of this program.
    pub program: &'a Path,
    /// Limit of jobs that run at the same time.
    pub jobs: usize,
    pub shard: Option<ShardSpec>,
    /// The names of the shard's jobs; `None` for all.
    pub of_shard: Option<&'a BTreeSet<String>>,
    /// Whether `--only` selects a job.
    pub only: &'a dyn Fn(&JobIdentity) -> bool,
    /// Whether up-to-date jobs are run too.
    pub again: bool,
    pub sources: &'a SourceCache,
    /// Where ended jobs are sent.
    pub store: Option<&'a RemoteBundle>,
    pub redactor: &'a Redactor,
    /// The limits that the environment sets for each run in place of its recipe's.
    pub limits: &'a Budget,
    /// When the call began; its wall clock is counted from then.
    pub began: Instant,
}

/// A job of this call, with its inputs as far as they are known.
pub struct ReadyJob<'a> {
    pub planned: &'a PlannedJob,
    pub disposition: JobDisposition,
    pub source: Result<ResolvedSource, String>,
    /// Empty where the target cannot be read or was not resolved.
    pub digest: String,
    /// The patch of its last success with these inputs.
    patch: PatchState,
}

/// What is left of the patch that the row of a job names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum PatchState {
    /// It is there, or the row names none.
    Whole,
    /// It is missing or altered, and the run directory or the store has it.
    Elsewhere,
    /// It is missing or altered, and nothing else has it.
    Nowhere,
}

/// Resolves base commits and digests of all jobs of this call, and determines which of them need no run. A signal and
/// the end of the wall clock end it: then some jobs are not resolved, and [`run`] starts none. Returns the signal, too.
/// `signals` receives the number of each signal.
pub async fn ready<'a>(
    call: &BatchCall<'a>,
    state: &record::BatchState,
    signals: &mut UnboundedReceiver<i32>,
) -> (Vec<ReadyJob<'a>>, Option<i32>) {
    let (plan, of_shard, only, sources) = (call.plan, call.of_shard, call.only, call.sources);
    let mut jobs: Vec<ReadyJob<'a>> = plan
        .jobs
        .iter()
        .filter(|job| of_shard.is_none_or(|names| names.contains(&job.identity.job)))
        .map(|planned| ReadyJob {
            planned,
            disposition: match only(&planned.identity) {
                true => JobDisposition::Run,
                false => JobDisposition::Skipped,
            },
            source: Err("the call ended before its repository and its base commit were known".to_owned()),
            digest: String::new(),
            patch: PatchState::Whole,
        })
        .collect();
    let asked: Vec<(usize, &'a PlannedJob)> = jobs
        .iter()
        .enumerate()
        .filter(|(_, job)| job.disposition == JobDisposition::Run)
        .map(|(at, job)| (at, job.planned))
        .collect();
    let replies: PlayedReplies<'a> = asked
        .iter()
        .map(|(_, planned)| *planned)
        .filter_map(|planned| planned.arguments.model.as_deref())
        .filter(|model| is_played(model))
        .map(|model| (model, OnceCell::new()))
        .collect();
    let replies = &replies;
    let resolving = asked.into_iter().map(move |(at, planned)| async move {
        let source = resolved(planned, sources).await;
        let digest = match &source {
            Ok(source) => planned.digest(source, replies_for(planned, replies).await),
            Err(_) => String::new(),
        };
        (at, source, digest)
    });
    let mut resolving = std::pin::pin!(futures_util::stream::iter(resolving).buffer_unordered(RESOLVED_AT_ONCE));
    let wall = plan.settings.budget.wall_ms;
    let until = wall.map(|ms| tokio::time::Instant::from_std(call.began + Duration::from_millis(ms)));
    let mut cancelled = None;
    loop {
        tokio::select! {
            biased;
            Some(signal) = signals.recv() => {
                cancelled = Some(signal);
                break;
            }
            found = resolving.next() => {
                let Some((at, source, digest)) = found else { break };
                if let Some(job) = jobs.get_mut(at) {
                    job.digest = digest;
                    job.source = source;
                }
            }
            () = tokio::time::sleep_until(until.unwrap_or_else(tokio::time::Instant::now)), if until.is_some() => break,
        }
    }
    for job in jobs.iter_mut().filter(|job| job.disposition == JobDisposition::Run) {
        let name = &job.planned.identity.job;
        let same = state
            .last_read(name)
            .filter(|row| row.digest == job.digest && row.is_success());
        let fresh = !call.again || (state.again_unfinished && state.ended_in_call.contains(name));
        let going_on = state.open.get(name).is_some_and(|open| open.digest == job.digest);
        if let Some(row) = same
            && fresh
            && !going_on
            && !job.digest.is_empty()
        {
            job.patch = patch_state(call, row);
            if job.patch != PatchState::Nowhere {
                job.disposition = JobDisposition::UpToDate;
            }
        }
    }
    (jobs, cancelled)
}

/// What is left of the patch that a row names.
fn patch_state(call: &BatchCall<'_>, row: &RunRow) -> PatchState {
    let (Some(patch), Some(digest)) = (&row.patch, &row.patch_digest) else {
        return PatchState::Whole;
    };
    if !rows::is_inside(patch) {
        return PatchState::Nowhere;
    }
    let place = call.dir.join(patch);
    if place.is_file() && std::fs::read(&place).is_ok_and(|bytes| bundle::is_patch(&bytes, digest)) {
        return PatchState::Whole;
    }
    match call.store.is_some() || patch_of_run(call.dir, row).is_some() {
        true => PatchState::Elsewhere,
        false => PatchState::Nowhere,
    }
}

/// The patch that a row names, from the run directory.
fn patch_of_run(dir: &Path, row: &RunRow) -> Option<Vec<u8>> {
    let run = row.run.as_deref().filter(|run| rows::is_inside(run))?;
    let (bytes, digest) = child::patch_of(&dir.join(run)).ok()??;
    (row.patch_digest.as_ref() == Some(&digest)).then_some(bytes)
}

/// When the last attempt of a job failed; `None` if it did not, or if the job is resumed.
fn failed_at(job: &ReadyJob<'_>, state: &record::BatchState) -> Option<Timestamp> {
    let name = &job.planned.identity.job;
    let row = state.last.get(name).filter(|row| !row.is_success())?;
    (!state.open.contains_key(name)).then(|| row.ended.unwrap_or_default())
}

/// Puts patches of up-to-date jobs back that are missing or altered, and says so; also says which jobs run again because
/// theirs is lost.
///
/// # Errors
/// A patch cannot be put back.
async fn restore_patches(
    call: &BatchCall<'_>,
    jobs: &[ReadyJob<'_>],
    state: &record::BatchState,
    progress: &mut BatchProgress,
) -> Result<(), BatchError> {
    for job in jobs.iter().filter(|job| job.patch != PatchState::Whole) {
        let name = &job.planned.identity.job;
        let Some(row) = state.last_read(name) else { continue };
        let patch = row.patch.as_deref().unwrap_or_default();
        if job.patch == PatchState::Nowhere {
            progress.note(&format!(
                "{name} runs again: {patch} is missing or altered, and its run directory does not have it"
            ));
            continue;
        }
        match (patch_of_run(call.dir, row), call.store) {
            (Some(bytes), _) => artefacts::replace(&call.dir.join(patch), &bytes)?,
            (None, Some(store)) => store.take_patch(call.dir, row).await?,
            (None, None) => {}
        }
        if patch_state(call, row) != PatchState::Whole {
            return Err(BatchError::Environment(format!(
                "{patch} is missing or altered, and neither the run directory of {name} nor the store has it: run the job again \
                 with --again and --only"
            )));
        }
        progress.note(&format!("{patch} was missing or altered: it was restored"));
    }
    Ok(())
}

/// Writes the rows of up-to-date jobs once more whose target could not be read the last time, because everywhere the last row
/// of a job counts.
fn repeat_rows(
    call: &BatchCall<'_>,
    jobs: &[ReadyJob<'_>],
    record: &mut BatchRecord,
    rows: &mut File,
) -> Result<(), BatchError> {
    for job in jobs.iter().filter(|job| job.disposition == JobDisposition::UpToDate) {
        let name = &job.planned.identity.job;
        let is_last = record.state.last.get(name).is_some_and(|row| !row.digest.is_empty());
        let Some(row) = record.state.last_read(name).filter(|_| !is_last).cloned() else {
            continue;
        };
        add_row(call, record, rows, row)?;
    }
    Ok(())
}

/// Records the end of a job, and adds its row to `runs.jsonl`.
fn add_row(call: &BatchCall<'_>, record: &mut BatchRecord, rows: &mut File, row: RunRow) -> Result<(), BatchError> {
    let line = row.to_line();
    record.append(BatchEvent::JobEnded { row: Box::new(row) })?;
    let path = call.dir.join(rows::FILE);
    rows.write_all(line.as_bytes())
        .map_err(|error| BatchError::write(&path, &error))
}

/// The replies of played models, by the model's name; each is read once for all of its jobs.
type PlayedReplies<'a> = HashMap<&'a str, OnceCell<Vec<u8>>>;

/// The replies of the job's model; empty if it is not played. A journal may be long, so another thread reads it.
async fn replies_for<'r>(planned: &PlannedJob, replies: &'r PlayedReplies<'_>) -> &'r [u8] {
    let Some(model) = planned.arguments.model.clone() else {
        return &[];
    };
    let Some(cell) = replies.get(model.as_str()) else {
        return &[];
    };
    let read = cell.get_or_init(move || async move {
        let read = tokio::task::spawn_blocking(move || replies_of(&model)).await;
        read.ok().flatten().unwrap_or_default()
    });
    read.await.as_slice()
}

/// The tree of a job and the commits that its recipe and policies name.
async fn resolved(planned: &PlannedJob, sources: &SourceCache) -> Result<ResolvedSource, String> {
    let names = std::iter::once(&planned.arguments.recipe).chain(&planned.arguments.policies);
    let revisions: Vec<&str> = names
        .filter_map(|name| name.strip_prefix("git:").and_then(|spec| spec.split_once(':')))
        .map(|(revision, _)| revision)
        // Paths relative to the checkout change with the base commit, which is part of the digest already.
        .filter(|revision| !revision.starts_with("HEAD") && !revision.starts_with('@'))
        .collect();
    let git_ref = planned.identity.git_ref.as_deref();
    sources.resolve(&planned.source, git_ref, &revisions).await
}

/// One attempt that is prepared or running.
struct Attempt {
    at: usize,
    number: u64,
    /// Relative to the batch directory.
    run: PathBuf,
    resumed: bool,
    reservation: Reservation,
    tree: PathBuf,
    workspace: PathBuf,
    files: ValueFiles,
    /// What is missing in its worktree, for people.
    warning: Option<String>,
    started: Timestamp,
    began: Instant,
    /// Seconds that its earlier processes took.
    before: f64,
    /// Whether its process has not ended although it was killed, and may still use the worktree.
    is_unended: bool,
}

impl Attempt {
    /// Wall-clock time of all its processes.
    fn seconds(&self) -> f64 {
        self.before + self.began.elapsed().as_secs_f64()
    }
}

enum Progressed {
    Prepared(Box<Attempt>, Result<(), String>),
    /// Its `JobStarted` is on the disk.
    Recorded(Box<Attempt>, std::io::Result<()>),
    Ended(Box<Attempt>, ChildEnd),
    /// The job is in the store, as this call or another call ran it.
    Sent(Box<Attempt>, Box<RunRow>, Result<RecordOwner, BatchError>),
    /// The store had the job before it was started here.
    Taken(Box<Attempt>, Result<Box<RunRow>, BatchError>),
    /// The worktree of an ended attempt is removed. Holds the job if it is tried again.
    Cleaned(Option<usize>),
}

/// The state of a running call.
struct Supervisor<'a, 'b> {
    call: &'b BatchCall<'a>,
    jobs: &'b [ReadyJob<'a>],
    record: &'b mut BatchRecord,
    rows: File,
    gate: RequestGate,
    budget: SharedBudget,
    breaker: CircuitBreaker,
    queue: VecDeque<usize>,
    /// What the runs that are resumed used in earlier calls, by job.
    spent_before: HashMap<usize, JobSpending>,
    /// Attempts of this call, by job.
    attempts: HashMap<usize, u64>,
    work: FuturesUnordered<LocalBoxFuture<'b, Progressed>>,
    /// Prepared or running attempts.
    active: usize,
    pids: BTreeMap<usize, i32>,
    /// Services that refused a key and models that have no quota left, with their messages.
    closed: HashMap<String, String>,
    results: BTreeMap<usize, JobResult>,
    result: SupervisedCall,
    progress: &'b mut BatchProgress,
    kill_at: Option<Instant>,
    /// Ends all waits for children that have not ended although they were killed, and for worktrees that are removed.
    give_up: Rc<Notify>,
    /// Whether it was said that the budget holds jobs back.
    budget_reported: bool,
    /// Targets of which it was said what is missing in their worktrees.
    tree_reported: BTreeSet<String>,
}

/// Runs the jobs of a call to their end. Takes what [`ready`] returned, and the same `signals`.
///
/// # Errors
/// The record could not be written: the children were ended, and the same command resumes them.
pub async fn run<'a>(
    call: &BatchCall<'a>,
    (jobs, cancelled): (Vec<ReadyJob<'a>>, Option<i32>),
    record: &mut BatchRecord,
    progress: &mut BatchProgress,
    signals: &mut UnboundedReceiver<i32>,
) -> Result<SupervisedCall, BatchError> {
    let mut rows = open_rows(call.dir, record)?;
    sweep(call.dir, &record.state).await;
    let gate_dir = call.dir.join("gate");
    let gate = RequestGate::make(&gate_dir, call.plan.settings.interval)
        .map_err(|error| BatchError::write(&gate_dir, &error))?;
    let mut queue: Vec<usize> = (0..jobs.len())
        .filter(|at| jobs.get(*at).is_some_and(|job| job.disposition == JobDisposition::Run))
        .collect();
    // A job that fails in every call must not keep the others from being run, so those that failed last start after them,
    // the latest failure at the end.
    queue.sort_by_key(|at| jobs.get(*at).and_then(|job| failed_at(job, &record.state)));
    record.append(BatchEvent::CallStarted {
        version: env!("CARGO_PKG_VERSION").to_owned(),
        manifest: call.plan.manifest.clone(),
        jobs: queue.len() as u64,
        shard: call.shard.map(|shard| shard.to_string()),
        again: call.again,
        at: Timestamp::now(),
    })?;
    progress.begin(queue.len(), jobs.len() - queue.len());
    repeat_rows(call, &jobs, record, &mut rows)?;
    restore_patches(call, &jobs, &record.state, progress).await?;
    let mut supervisor = Supervisor {
        budget: SharedBudget::new(&call.plan.settings.budget, call.began),
        breaker: CircuitBreaker::new(call.plan.settings.stop, queue.len() as u64),
        call,
        jobs: &jobs,
        record,
        rows,
        gate,
        queue: queue.into(),
        spent_before: HashMap::new(),
        attempts: HashMap::new(),
        work: FuturesUnordered::new(),
        active: 0,
        pids: BTreeMap::new(),
        closed: HashMap::new(),
        results: BTreeMap::new(),
        result: SupervisedCall {
            started: Some(Timestamp::now()),
            ..SupervisedCall::default()
        },
        progress,
        kill_at: None,
        give_up: Rc::default(),
        budget_reported: false,
        tree_reported: BTreeSet::new(),
    };
    let ended = supervisor.drive(cancelled, signals).await;
    if let Err(error) = ended {
        supervisor.end_children().await;
        return Err(error);
    }
    let mut result = supervisor.finished();
    result.ended = Some(Timestamp::now());
    Ok(result)
}

impl<'a, 'b> Supervisor<'a, 'b> {
    async fn drive(&mut self, cancelled: Option<i32>, signals: &mut UnboundedReceiver<i32>) -> Result<(), BatchError> {
        let mut tick = tokio::time::interval(TICK);
        tick.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        if let Some(signal) = cancelled {
            self.interrupt(signal)?;
        }
        loop {
            self.fill()?;
            let idle = self.active == 0 && (self.queue.is_empty() || self.result.stopped.is_some());
            if idle && self.work.is_empty() {
                return Ok(());
            }
            tokio::select! {
                biased;
                Some(signal) = signals.recv() => self.interrupt(signal)?,
                Some(done) = self.work.next(), if !self.work.is_empty() => self.progressed(done)?,
                _ = tick.tick() => self.look(),
            }
        }
    }

    /// The first signal asks the children to end, the second kills them. Those that come at once with the first are not
    /// sent here.
    fn interrupt(&mut self, signal: i32) -> Result<(), BatchError> {
        let again = self.result.signal.is_some();
        self.result.signal.get_or_insert(signal);
        for pid in self.pids.values() {
            supervised::signal_child(*pid, again);
        }
        self.kill_at.get_or_insert(Instant::now() + GRACE);
        self.stop(format!("cancelled by {}", signal_name(signal)))
    }

    fn stop(&mut self, reason: String) -> Result<(), BatchError> {
        if self.result.stopped.is_none() {
            self.progress.note(&format!("no more jobs are started: {reason}"));
            self.record.append(BatchEvent::QueueStopped {
                reason: reason.clone(),
                at: Timestamp::now(),
            })?;
            self.result.stopped = Some(reason);
        }
        Ok(())
    }

    fn look(&mut self) {
        if self.kill_at.is_some_and(|at| Instant::now() >= at) {
            for pid in self.pids.values() {
                supervised::signal_child(*pid, true);
            }
        }
        if self.kill_at.is_some_and(|at| Instant::now() >= at + RELEASED) {
            self.give_up.notify_waiters();
        }
        let waits = self.gate.services().into_iter().filter_map(|service| {
            let left = service.until.saturating_sub(gate::now_ms());
            (left > 0).then_some((service.model, left))
        });
        let pause = waits.max_by_key(|(_, left)| *left);
        self.progress
            .tick(self.active, self.queue.len(), self.budget.settled(), pause);
    }

    /// Starts jobs while the limits allow it.
    fn fill(&mut self) -> Result<(), BatchError> {
        if self.result.stopped.is_some() {
            return Ok(());
        }
        let services = self.gate.services();
        let now = gate::now_ms();
        for service in &services {
            if let Some(reason) = &service.closed {
                // Vendors count their quotas by model.
                let name = match service.of_model {
                    true => service.model.as_str(),
                    false => service_of(&service.model),
                };
                self.close(name, reason);
            }
        }
        let paused: BTreeSet<String> = services
            .iter()
            .filter(|service| service.until > now)
            .map(|service| service_of(&service.model).to_owned())
            .collect();
        let mut passed_over = VecDeque::new();
        let mut over = None;
        while self.active < self.call.jobs {
            let Some(at) = self.queue.pop_front() else { break };
            let Some(job) = self.jobs.get(at) else { continue };
            let name = job.planned.service();
            let closed = [name, job.planned.model()]
                .into_iter()
                .find_map(|name| Some((name, self.closed.get(name)?)));
            if let Some((name, reason)) = closed {
                let reason = format!("the service of {name} accepts no more requests: {reason}");
                self.leave_out(at, reason);
                continue;
            }
            if paused.contains(name) {
                passed_over.push_back(at);
                continue;
            }
            match self.grant(at, job) {
                ReservationAnswer::Start(reservation) => self.prepare(at, reservation),
                ReservationAnswer::Wait(limit) => {
                    if !self.budget_reported {
                        self.budget_reported = true;
                        self.progress.note(&format!(
                            "the budget of the batch (`{limit}`), not --jobs, holds jobs back: {} of at most {} run, and what is \
                             left of the budget does not cover the limit of one more until a job has ended; raise `budget` in \
                             the manifest, or give the recipe a lower one",
                            self.active, self.call.jobs
                        ));
                    }
                    passed_over.push_back(at);
                    break;
                }
                ReservationAnswer::Exhausted(limit) => {
                    passed_over.push_back(at);
                    over = Some(format!("the budget of the batch is used up: {limit}"));
                    break;
                }
            }
        }
        while let Some(at) = passed_over.pop_back() {
            self.queue.push_front(at);
        }
        match over {
            Some(reason) => self.stop(reason),
            None => Ok(()),
        }
    }

    /// Starts no more jobs of a service, as [`service_of`] names it, or of one model, by its whole name; an empty name is
    /// neither.
    fn close(&mut self, service: &str, reason: &str) {
        if service.is_empty() || self.closed.contains_key(service) {
            return;
        }
        let reason = self.call.redactor.redact(reason).into_owned();
        self.progress
            .note(&format!("no more jobs are started for {service}: {reason}"));
        self.closed.insert(service.to_owned(), reason);
    }

    fn grant(&mut self, at: usize, job: &ReadyJob<'a>) -> ReservationAnswer {
        let spent = match self.open_run(job) {
            // Read once: a job that waits for budget asks again at every tick.
            Some(open) => *self
                .spent_before
                .entry(at)
                .or_insert_with(|| child::spending_of_journal(&self.call.dir.join(&open.run)).unwrap_or_default()),
            None => JobSpending::default(),
        };
        self.budget.reserve(&job.planned.inputs.budget, spent, Instant::now())
    }

    /// The unfinished run of an earlier call that this job resumes.
    fn open_run(&self, job: &ReadyJob<'a>) -> Option<OpenRun> {
        let open = self.record.state.open.get(&job.planned.identity.job)?;
        (open.digest == job.digest).then(|| open.clone())
    }

    /// Records why a job was not run. A job that waits for another attempt has a result, which stays.
    fn leave_out(&mut self, at: usize, reason: String) {
        let Some(job) = self.jobs.get(at).filter(|_| !self.results.contains_key(&at)) else {
            return;
        };
        let name = job.planned.identity.job.clone();
        let row = self.record.state.last.get(&name).cloned();
        let result = JobResult {
            job: name,
            disposition: JobDisposition::Run,
            row,
            interrupted: None,
            not_run: Some(reason),
        };
        self.results.insert(at, result);
    }

    /// Creates the worktree of a job on another thread.
    fn prepare(&mut self, at: usize, reservation: Reservation) {
        let Some(job) = self.jobs.get(at) else { return };
        let name = job.planned.identity.job.as_str();
        let open = self.open_run(job);
        let (number, run) = match &open {
            Some(open) => (open.attempt, PathBuf::from(&open.run)),
            None => free_run_dir(self.call.dir, name, &job.digest, self.call.store),
        };
        let resumed = open.is_some() && child::has_journal(&self.call.dir.join(&run));
        let place = self.call.dir.join("work").join(name);
        let mut attempt = Attempt {
            at,
            number,
            run,
            resumed,
            reservation,
            tree: place.join("tree"),
            workspace: PathBuf::new(),
            files: ValueFiles::default(),
            warning: None,
            started: Timestamp::now(),
            began: Instant::now(),
            before: open.filter(|_| resumed).map_or(0.0, |open| open.seconds),
            is_unended: false,
        };
        self.active += 1;
        let source = job.source.clone();
        let out = self.call.dir.join(&attempt.run);
        let params = (!job.planned.identity.params.is_empty()).then(|| job.planned.identity.params.clone());
        let input = job.planned.input.clone();
        let (store, dir) = (self.call.store, self.call.dir);
        self.work.push(Box::pin(async move {
            if let Some(store) = store
                && !resumed
            {
                match store.ended_elsewhere(dir, &attempt.run).await {
                    Ok(None) => {}
                    Ok(Some(row)) => return Progressed::Taken(Box::new(attempt), Ok(Box::new(row))),
                    Err(error) => return Progressed::Taken(Box::new(attempt), Err(error)),
                }
            }
            let done = tokio::task::spawn_blocking(move || {
                let laid_out = source.and_then(|source| lay_out(&mut attempt, &place, &out, &source, params, input));
                (attempt, laid_out)
            });
            match done.await {
                Ok((attempt, laid_out)) => Progressed::Prepared(Box::new(attempt), laid_out),
                // Only a panic leads here; the process then ends with the exit code of a bug.
                Err(error) => std::panic::resume_unwind(error.into_panic()),
            }
        }));
    }

    fn progressed(&mut self, done: Progressed) -> Result<(), BatchError> {
        match done {
            Progressed::Prepared(attempt, Ok(())) => self.announce(attempt),
            Progressed::Recorded(attempt, Ok(())) => self.start(attempt),
            Progressed::Recorded(_, Err(error)) => Err(BatchError::write(&self.call.dir.join(record::FILE), &error)),
            Progressed::Prepared(attempt, Err(why)) => self.ended(attempt, ChildEnd::environment(why)),
            Progressed::Ended(attempt, end) => self.ended(attempt, end),
            Progressed::Sent(attempt, own, kept) => match kept? {
                RecordOwner::Ours => self.concluded(&attempt, *own),
                RecordOwner::Theirs(row) => self.concluded_elsewhere(&attempt, *row),
            },
            Progressed::Taken(attempt, row) => {
                self.budget.settle(&attempt.reservation, Some(JobSpending::default()));
                self.concluded_elsewhere(&attempt, *row?)
            }
            Progressed::Cleaned(again) => {
                self.queue.extend(again);
                Ok(())
            }
        }
    }

    /// Puts the job of an attempt that does not start any more back into the queue.
    fn give_back(&mut self, attempt: &Attempt) {
        self.active -= 1;
        self.budget.settle(&attempt.reservation, Some(JobSpending::default()));
        self.queue.push_front(attempt.at);
    }

    /// Records the start of a job. Another thread syncs the record, for several jobs at once.
    fn announce(&mut self, attempt: Box<Attempt>) -> Result<(), BatchError> {
        let Some(job) = self.jobs.get(attempt.at) else {
            return Ok(());
        };
        if self.result.signal.is_some() {
            self.give_back(&attempt);
            return Ok(());
        }
        let name = &job.planned.identity.job;
        if let Some(warning) = &attempt.warning
            && self.tree_reported.insert(job.planned.identity.target.clone())
        {
            self.progress.note(&format!("{name}: {warning}"));
        }
        self.record.append(BatchEvent::JobStarted {
            job: name.clone(),
            digest: job.digest.clone(),
            attempt: attempt.number,
            run: attempt.run.to_string_lossy().into_owned(),
            base: job
                .source
                .as_ref()
                .map(|source| source.commit.clone())
                .unwrap_or_default(),
            resumed: attempt.resumed,
            at: Timestamp::now(),
        })?;
        let record_path = self.call.dir.join(record::FILE);
        let file = self
            .record
            .handle()
            .map_err(|error| BatchError::write(&record_path, &error))?;
        self.work.push(Box::pin(async move {
            match tokio::task::spawn_blocking(move || file.sync_data()).await {
                Ok(synced) => Progressed::Recorded(attempt, synced),
                Err(error) => std::panic::resume_unwind(error.into_panic()),
            }
        }));
        Ok(())
    }

    /// Starts a job whose start is recorded. Must run on the main thread, because the kernel's parent-death signal is
    /// tied to the forking thread.
    fn start(&mut self, mut attempt: Box<Attempt>) -> Result<(), BatchError> {
        let Some(job) = self.jobs.get(attempt.at) else {
            return Ok(());
        };
        if self.result.signal.is_some() {
            self.give_back(&attempt);
            return Ok(());
        }
        let name = &job.planned.identity.job;
        let out = self.call.dir.join(&attempt.run);
        let log_path = log_of(&out);
        let log = log_path
            .parent()
            .map_or(Ok(()), std::fs::create_dir_all)
            .and_then(|()| OpenOptions::new().create(true).append(true).open(&log_path))
            .map_err(|error| BatchError::write(&log_path, &error))?;
        let limits = attempt.reservation.limits.within(self.call.limits);
        let args = match attempt.resumed {
            true => child::resume_arguments(&job.planned.arguments, &attempt.workspace, &out, limits),
            false => child::run_arguments(&job.planned.arguments, &attempt.files, &attempt.workspace, &out, limits),
        };
        let home = self.call.dir.join("work").join(name).join("home");
        let local = job.source.as_ref().ok().and_then(|source| source.local.as_ref());
        let source = local
            .map(|path| path.to_string_lossy().into_owned())
            .unwrap_or_default();
        let mut env = vec![
            (
                gate::VARIABLE.to_owned(),
                self.call.dir.join("gate").to_string_lossy().into_owned(),
            ),
            (DATA_HOME.to_owned(), home.to_string_lossy().into_owned()),
            (sources::VARIABLE.to_owned(), source),
        ];
        env.extend(EMPTIED.map(|name| (name.to_owned(), String::new())));
        let mut running = match supervised::start(self.call.program, &args, &env, log) {
            Ok(running) => running,
            Err(error) => {
                let why = format!("{} cannot be started: {error}", self.call.program.display());
                return self.ended(attempt, ChildEnd::environment(why));
            }
        };
        if let Some(pid) = running.pid() {
            self.pids.insert(attempt.at, pid);
        }
        self.progress.started(name, attempt.resumed);
        let wall = limits.wall_ms.or(job.planned.inputs.budget.wall_ms);
        let wall = wall.map(Duration::from_millis);
        let give_up = Rc::clone(&self.give_up);
        self.work.push(Box::pin(async move {
            let end = match hung::wait(&mut running, wall, &out, GRACE_PERIODS, &give_up).await {
                Ok(Waited { status, late }) => {
                    attempt.is_unended = status.is_none();
                    let end = match status {
                        Some(status) => child::end_of(&out, status, &log_path),
                        None => ChildEnd::unended(&out),
                    };
                    match late {
                        Some(wall) => end.after_wall(wall),
                        None => end,
                    }
                }
                Err(error) => ChildEnd::environment(format!("the job cannot be waited for: {error}")),
            };
            Progressed::Ended(attempt, end)
        }));
        Ok(())
    }

    fn ended(&mut self, attempt: Box<Attempt>, mut end: ChildEnd) -> Result<(), BatchError> {
        self.pids.remove(&attempt.at);
        let Some(job) = self.jobs.get(attempt.at) else {
            return Ok(());
        };
        // The exit status of a process that was killed after a signal says nothing about the job.
        if self.result.signal.is_some() && end.reason.starts_with("signal:") && end.verdict == "environment" {
            "cancelled".clone_into(&mut end.verdict);
            end.exit_code = exit::of_signal(libc::SIGTERM);
        }
        end.message = self.call.redactor.redact(&end.message).into_owned();
        self.budget.settle(&attempt.reservation, end.spending);
        self.result.unpriced |= end.unpriced;
        let name = job.planned.identity.job.clone();
        if end.is_interrupted() {
            // Its process got a signal of the batch, which may be another one than the batch itself.
            if let Some(signal) = self.result.signal.filter(|_| end.verdict == "cancelled") {
                end.message = format!("the batch was cancelled by {}", signal_name(signal));
            }
            self.active -= 1;
            self.record.append(BatchEvent::JobInterrupted {
                job: name.clone(),
                digest: job.digest.clone(),
                verdict: end.verdict.clone(),
                exit_code: end.exit_code,
                message: end.message.clone(),
                seconds: attempt.seconds(),
                at: Timestamp::now(),
            })?;
            let row = RunRow {
                seconds: attempt.seconds(),
                ..child::row(job.planned, &job.digest, attempt.number, &end)
            };
            self.progress.ended(&row);
            let result = JobResult {
                job: name,
                disposition: JobDisposition::Run,
                row: Some(row),
                interrupted: Some(end),
                not_run: None,
            };
            self.results.insert(attempt.at, result);
            return Ok(());
        }
        let row = Box::new(self.row(job, &attempt, end)?);
        let Some(store) = self.call.store else {
            return self.concluded(&attempt, *row);
        };
        // The job counts as running until it is sent, so that a slow store does not let ended jobs pile up.
        let dir = self.call.dir;
        self.work.push(Box::pin(async move {
            let kept = store.keep(dir, &attempt.run, &row).await;
            Progressed::Sent(attempt, row, kept)
        }));
        Ok(())
    }

    /// Another call ended the same job first: records that result.
    fn concluded_elsewhere(&mut self, attempt: &Attempt, mut row: RunRow) -> Result<(), BatchError> {
        row.message = self.call.redactor.redact(&row.message).into_owned();
        self.progress.note(&format!(
            "{} has already ended in another call; that result counts",
            row.job
        ));
        self.concluded(attempt, row)
    }

    /// Records the end of a job.
    fn concluded(&mut self, attempt: &Attempt, row: RunRow) -> Result<(), BatchError> {
        self.active -= 1;
        let Some(job) = self.jobs.get(attempt.at) else {
            return Ok(());
        };
        add_row(self.call, self.record, &mut self.rows, row.clone())?;
        self.progress.ended(&row);
        let is_closed = row.verdict == "provider" && matches!(row.reason.as_str(), "auth" | "quota");
        // The gate names each service that refused a request, which may be that of a fallback. A played model passes no
        // gate.
        let is_played = is_played(job.planned.service());
        if is_closed && is_played {
            self.close(job.planned.service(), &row.message);
        } else if is_closed && self.gate.services().iter().all(|service| service.closed.is_none()) {
            self.close(service_of(&row.model), &row.message);
        }
        let tries = self.attempts.entry(attempt.at).or_insert(0);
        *tries += 1;
        let rules = &self.call.plan.settings.retry;
        // A run whose tree is gone cannot be resumed and is started again.
        let cannot_resume = attempt.resumed && row.verdict == "environment" && row.reason == "no_result";
        let wanted = cannot_resume || (rules.on.contains(&row.verdict) && *tries <= rules.max && !is_closed);
        let wanted = wanted && !attempt.is_unended;
        let verdict = row.verdict.clone();
        if let Some(reason) = self.breaker.attempted(&verdict) {
            self.stop(reason)?;
        }
        let result = JobResult {
            job: row.job.clone(),
            disposition: JobDisposition::Run,
            row: Some(row),
            interrupted: None,
            not_run: None,
        };
        self.results.insert(attempt.at, result);
        let is_tried_again = wanted && self.result.stopped.is_none();
        // A file system that does not answer must not hold up the batch: a later call removes that worktree.
        if !attempt.is_unended {
            self.clean(job, attempt, is_tried_again.then_some(attempt.at));
        }
        if is_tried_again {
            return Ok(());
        }
        match self.breaker.ended(&verdict) {
            Some(reason) => self.stop(reason),
            None => Ok(()),
        }
    }

    /// Makes the row of a finished attempt and copies its patch beside the others. A job whose patch cannot be read has
    /// not succeeded, whatever its run says.
    fn row(&self, job: &ReadyJob<'a>, attempt: &Attempt, end: ChildEnd) -> Result<RunRow, BatchError> {
        let out = self.call.dir.join(&attempt.run);
        let name = &job.planned.identity.job;
        let (patch, end) = match child::patch_of(&out) {
            Ok(patch) => (patch, end),
            Err(why) => (None, end.in_environment(why)),
        };
        let mut row = child::row(job.planned, &job.digest, attempt.number, &end);
        if let Some((bytes, digest)) = patch {
            let beside = merge::patch_of(name);
            artefacts::replace(&self.call.dir.join(&beside), &bytes)?;
            row.patch = Some(beside);
            row.patch_digest = Some(digest);
        } else {
            merge::remove_patch(self.call.dir, name)?;
        }
        if let Some(warning) = &attempt.warning {
            row.message = match row.message.is_empty() {
                true => warning.clone(),
                false => format!("{}; {warning}", row.message),
            };
        }
        row.base = job.source.as_ref().ok().map(|source| source.commit.clone());
        row.source = job.source.as_ref().ok().map(|source| source.place(&job.planned.source));
        row.run = out.is_dir().then(|| attempt.run.to_string_lossy().into_owned());
        row.started = Some(attempt.started);
        row.ended = Some(Timestamp::now());
        row.seconds = attempt.seconds();
        row.shard = self.call.shard.map(|shard| shard.to_string());
        Ok(row)
    }

    /// Removes the worktree on another thread; what remains is removed when the job is run again. `again` is queued
    /// once it is removed, because the next attempt uses the same paths.
    fn clean(&mut self, job: &ReadyJob<'a>, attempt: &Attempt, again: Option<usize>) {
        let repository = job.source.as_ref().ok().map(|source| source.repository.clone());
        let (tree, place) = (
            attempt.tree.clone(),
            self.call.dir.join("work").join(&job.planned.identity.job),
        );
        let give_up = Rc::clone(&self.give_up);
        self.work.push(Box::pin(async move {
            let removing = tokio::task::spawn_blocking(move || {
                let _ = worktree::remove(repository.as_ref(), &tree);
                let _ = worktree::remove(None, &place);
            });
            tokio::select! {
                _ = removing => {}
                () = give_up.notified() => {}
            }
            Progressed::Cleaned(again)
        }));
    }

    /// Ends the children of a batch that cannot continue.
    async fn end_children(&mut self) {
        for pid in self.pids.values() {
            supervised::signal_child(*pid, false);
        }
        let until = Instant::now() + GRACE;
        while !self.work.is_empty() {
            let left = until.saturating_duration_since(Instant::now());
            match tokio::time::timeout(left, self.work.next()).await {
                Ok(Some(Progressed::Ended(attempt, _))) => {
                    self.pids.remove(&attempt.at);
                }
                Ok(Some(_)) => {}
                Ok(None) | Err(_) => break,
            }
        }
        for pid in self.pids.values() {
            supervised::signal_child(*pid, true);
        }
    }

    fn finished(mut self) -> SupervisedCall {
        let reason = self.result.stopped.clone().unwrap_or_default();
        while let Some(at) = self.queue.pop_front() {
            self.leave_out(at, reason.clone());
        }
        for (at, job) in self.jobs.iter().enumerate() {
            let name = &job.planned.identity.job;
            let known = || JobResult {
                job: name.clone(),
                disposition: job.disposition,
                row: self.record.state.last.get(name).cloned(),
                interrupted: None,
                not_run: None,
            };
            let result = self.results.remove(&at).unwrap_or_else(known);
            self.result.jobs.push(result);
        }
        self.result.spent = self.budget.settled();
        // Nothing reads them in the record any more.
        self.result.attempts = std::mem::take(&mut self.record.state.attempts);
        self.result
    }
}

/// Removes worktrees of jobs that ended at the moment in which an earlier call was killed.
async fn sweep(dir: &Path, state: &record::BatchState) {
    let entries = std::fs::read_dir(dir.join("work")).into_iter().flatten().flatten();
    let left: Vec<PathBuf> = entries
        .filter(|entry| {
            !entry
                .file_name()
                .to_str()
                .is_some_and(|job| state.open.contains_key(job))
        })
        .map(|entry| entry.path())
        .collect();
    // A failure is harmless here: a job that is run again recreates its worktree.
    let _ = tokio::task::spawn_blocking(move || {
        for place in left {
            let _ = worktree::remove(None, &place.join("tree"));
            let _ = worktree::remove(None, &place.join("again"));
            let _ = worktree::remove(None, &place);
        }
    })
    .await;
}

/// The first unused run directory for this job and digest, here and in the store.
fn free_run_dir(dir: &Path, job: &str, digest: &str, store: Option<&RemoteBundle>) -> (u64, PathBuf) {
    let digest = if digest.is_empty() { "unresolved" } else { digest };
    let mut number = 1;
    loop {
        let run = run_dir(job, digest, number);
        let place = dir.join(&run);
        let is_known = store.is_some_and(|store| store.knows(&run));
        if !is_known && std::fs::symlink_metadata(&place).is_err() && std::fs::symlink_metadata(log_of(&place)).is_err()
        {
            return (number, run);
        }
        number += 1;
    }
}

/// Waits until the child of a killed supervisor is gone: the kernel may take some time to end it.
fn wait_until_free(tree: &Path, out: &Path) -> Result<(), String> {
    let until = Instant::now() + RELEASED;
    loop {
        let is_free = |path: &Path| match File::open(path) {
            Ok(file) => file.try_lock().is_ok(),
            Err(_) => true,
        };
        if is_free(tree) && is_free(&out.join("journal.jsonl")) {
            return Ok(());
        }
        if Instant::now() >= until {
            return Err(format!("another process still works in {}", tree.display()));
        }
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Creates a worktree for a new run, or finds the one of a resumed run, and writes the job's values.
fn lay_out(
    attempt: &mut Attempt,
    place: &Path,
    out: &Path,
    source: &ResolvedSource,
    params: Option<serde_json::Map<String, serde_json::Value>>,
    input: Option<serde_json::Value>,
) -> Result<(), String> {
    if attempt.resumed {
        wait_until_free(&attempt.tree.join(&source.below), out)?;
    }
    let again = place.join("again");
    let said = |path: &Path, error: std::io::Error| format!("{}: {error}", path.display());
    if attempt.resumed {
        if again.join(".git").exists() {
            attempt.tree = again;
        } else if !attempt.tree.join(".git").exists() {
            // The worktree is gone: a new path makes the run apply its changes again there.
            attempt.warning = worktree::create(&source.repository, &source.commit, &again)?;
            attempt.tree = again;
        }
    } else {
        for tree in [&again, &attempt.tree] {
            worktree::remove(Some(&source.repository), tree).map_err(|error| said(tree, error))?;
        }
        attempt.warning = worktree::create(&source.repository, &source.commit, &attempt.tree)?;
        let write = |name: &str, value: &serde_json::Value| {
            let path = place.join(name);
            std::fs::write(&path, value.to_string()).map_err(|error| said(&path, error))?;
            Ok::<_, String>(Some(path.into_os_string()))
        };
        if let Some(params) = params {
            attempt.files.params = write("params.json", &serde_json::Value::Object(params))?;
        }
        if let Some(input) = input {
            attempt.files.input = write("input.json", &input)?;
        }
    }
    let home = place.join("home");
    std::fs::create_dir_all(&home).map_err(|error| said(&home, error))?;
    attempt.workspace = attempt.tree.join(&source.below);
    let missing = || format!("there is no {} in commit {}", source.below.display(), source.commit);
    // A symbolic link in the tree must not redirect the run to another place on this machine.
    let (real, tree) = (attempt.workspace.canonicalize(), attempt.tree.canonicalize());
    match (real, tree) {
        (Ok(real), Ok(tree)) if real.starts_with(&tree) && real.is_dir() => Ok(()),
        (Ok(_), Ok(_)) => Err(format!(
            "{} in commit {} leads out of the tree or is not a directory",
            source.below.display(),
            source.commit
        )),
        _ => Err(missing()),
    }
}

/// Opens `runs.jsonl` for appending; rewrites it when it does not hold the rows of the record.
fn open_rows(dir: &Path, record: &BatchRecord) -> Result<File, BatchError> {
    let path = dir.join(rows::FILE);
    let is_same = match sealed_file(&path) {
        Ok(held) => held.sha256 == record.state.rows_digest(),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => false,
        Err(error) => return Err(BatchError::read(&path, &error)),
    };
    if !is_same {
        let mut text = String::new();
        record::read_lines(&dir.join(record::FILE), crate::journal::chain_key::key()?, |event| {
            if let BatchEvent::JobEnded { row } = event {
                text.push_str(&row.to_line());
            }
        })?;
        artefacts::replace(&path, text.as_bytes())?;
    }
    OpenOptions::new()
        .create(true)
        .append(true)
        .open(&path)
        .map_err(|error| BatchError::write(&path, &error))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_that_differ_from_the_record_are_written_again() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join(rows::FILE);
        let mut record = BatchRecord::open(dir.path()).unwrap();
        open_rows(dir.path(), &record).unwrap();
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "");
        let mut text = String::new();
        for job in ["a", "b"] {
            let row = RunRow {
                job: job.to_owned(),
                verdict: "failed".to_owned(),
                seconds: 0.1 + 0.2,
                ..RunRow::default()
            };
            text.push_str(&row.to_line());
            record.append(BatchEvent::JobEnded { row: Box::new(row) }).unwrap();
        }
        let other = text.replacen("failed", "passed", 1);
        for held in ["", &text[..10], other.as_str(), text.as_str()] {
            std::fs::write(&path, held).unwrap();
            open_rows(dir.path(), &record).unwrap();
            assert_eq!(std::fs::read_to_string(&path).unwrap(), text);
        }
        // What a later call reads from the record is the same.
        drop(record);
        let record = BatchRecord::open(dir.path()).unwrap();
        let held = sealed_file(&path).unwrap();
        assert_eq!(held.sha256, record.state.rows_digest());
    }
}
