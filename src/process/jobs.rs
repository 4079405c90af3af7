//! The background commands of a run.

use super::spawn::run_reporting_changes;
use super::spawn_error::SpawnError;
use super::write_guard::FoundOnDrop;
use super::{Confinement, Frozen, LeftLocks, Spawn};
use crate::base::call::ExitInfo;
use crate::base::grant::{ExecDenial, JudgedExec, JudgedPrograms, Undone, Writes};
use crate::base::ids::CallId;
use crate::base::sync::lock;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

/// Bytes of the latest output that are kept for each job.
const HELD: usize = 64 << 10;
/// Upper limit for the jobs of a run, including those that have ended.
const MOST: usize = 100;

/// The background commands of one run, named `job1`, `job2`, … in the order in which they were started. All are killed
/// when this is closed or dropped. Clones share the list.
#[derive(Clone, Default)]
pub struct Jobs {
    list: Arc<Mutex<Vec<Job>>>,
    closing: Closing,
}

/// Cancels all jobs when the last owner is dropped.
#[derive(Clone, Default)]
struct Closing(Arc<CancelOnDrop>);

#[derive(Default)]
struct CancelOnDrop(CancellationToken);

impl Drop for CancelOnDrop {
    fn drop(&mut self) {
        self.0.cancel();
    }
}

struct Job {
    /// The call that started it.
    call: CallId,
    command: String,
    /// Whether it may write the workspace.
    writes: bool,
    /// Cancelled when it must end.
    cancel: CancellationToken,
    shared: Arc<Mutex<Shared>>,
    /// What its write guard found if the command was abandoned.
    unfinished: FoundOnDrop,
    /// Whether its end was handed out.
    taken: bool,
    task: Option<JoinHandle<()>>,
}

#[derive(Default)]
struct Shared {
    output: String,
    /// Bytes of output that came before those in `output`.
    dropped: u64,
    end: Option<JobEnd>,
    /// What was done about lock files of git, if it was killed.
    locks: LeftLocks,
    /// Cancelled when it has ended.
    ended: CancellationToken,
}

/// What a job did that the record must show, handed out once when it has ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EndedJob {
    /// The call that started it.
    pub call: CallId,
    /// Whether it could write the workspace.
    pub writes: bool,
    /// Programs that were judged at their exec, including the denied one.
    pub judged: JudgedPrograms,
    /// Changes without a grant.
    pub undone: Vec<Undone>,
    /// What was done about lock files of git, if it was killed.
    pub locks: LeftLocks,
}

/// How a job ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum JobEnd {
    Exited {
        exit: ExitInfo,
        /// Changes without a grant, as in [`super::Finished`].
        undone: Vec<Undone>,
        /// Programs that were judged at their exec, as in [`super::Finished`].
        execs: Vec<JudgedExec>,
        execs_omitted: u64,
        /// The exec that was denied; the command was killed for it.
        denied: Option<Box<(JudgedExec, ExecDenial)>>,
    },
    /// It could not be started, and why.
    NotStarted(String),
    /// Its sandbox could not be built, and why.
    NoSandbox(String),
}

/// The current state of one job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JobState {
    /// Counted from 1.
    pub number: usize,
    pub command: String,
    /// `None` while it runs.
    pub end: Option<JobEnd>,
    /// The latest output, at most 64 KiB, redacted.
    pub output: String,
    /// Bytes of output that came before `output`.
    pub dropped: u64,
}

impl JobState {
    /// The name that the model sees.
    pub fn name(&self) -> String {
        format!("job{}", self.number)
    }
}

impl Jobs {
    /// Starts the command of a call, and returns its state after `delay`, or earlier if it ends. `spawn.on_output`,
    /// `spawn.keep`, `spawn.shown` and `spawn.cancel` are not used: a job outlives the call that started it.
    ///
    /// # Errors
    /// [`SpawnError::TooMany`] if 100 jobs were started already; [`SpawnError::Sandbox`] if its sandbox could not be built,
    /// and [`SpawnError::Background`] if the command failed to
    /// start, within `delay`.
    pub async fn start(
        &self,
        (call, command): (&CallId, &str),
        spawn: Spawn,
        confinement: &Confinement,
        delay: Duration,
    ) -> Result<JobState, SpawnError> {
        let shared = Arc::new(Mutex::new(Shared::default()));
        let cancel = self.closing.0.0.child_token();
        let number = {
            let mut list = lock(&self.list);
            if list.len() >= MOST {
                return Err(SpawnError::TooMany(MOST));
            }
            let writes = spawn.writes != Writes::Nothing;
            let unfinished = FoundOnDrop::default();
            let task = launch(
                spawn,
                confinement.clone(),
                (Arc::clone(&shared), Arc::clone(&unfinished)),
                cancel.clone(),
            );
            list.push(Job {
                call: call.clone(),
                command: command.to_owned(),
                writes,
                cancel,
                shared: Arc::clone(&shared),
                unfinished,
                taken: false,
                // Held here, so that the job is waited for even if nobody waits for this start any more.
                task: Some(task),
            });
            list.len()
        };
        let ended = lock(&shared).ended.clone();
        // Whether it has ended shows in its state.
        let _ = tokio::time::timeout(delay, ended.cancelled()).await;
        let Some(started) = self.get(number) else {
            return Err(SpawnError::TooMany(MOST));
        };
        match started.end {
            Some(JobEnd::NotStarted(reason)) => Err(SpawnError::Background(reason)),
            Some(JobEnd::NoSandbox(reason)) => Err(SpawnError::Sandbox(reason)),
            _ => Ok(started),
        }
    }

    /// The jobs that have ended since the last time, in the order in which they were started. Each is handed out once.
    pub fn take_ended(&self) -> Vec<EndedJob> {
        let mut list = lock(&self.list);
        let fresh = list.iter_mut().filter(|job| !job.taken);
        fresh.filter_map(ended).collect()
    }

    /// All jobs in the order in which they were started.
    pub fn list(&self) -> Vec<JobState> {
        let list = lock(&self.list);
        list.iter().enumerate().map(|(at, job)| state(at + 1, job)).collect()
    }

    /// One job by its number, counted from 1.
    pub fn get(&self, number: usize) -> Option<JobState> {
        let list = lock(&self.list);
        Some(state(number, list.get(number.checked_sub(1)?)?))
    }

    /// Stops all commands of this process that may write the workspace, including these, until the returned value is
    /// dropped: for comparing or snapshotting a tree that must not change meanwhile. Waits at most 30 seconds; see
    /// [`Frozen::all`].
    pub async fn freeze(&self) -> Frozen {
        super::live::freeze().await
    }

    /// Whether some job is still running.
    pub fn any_running(&self) -> bool {
        lock(&self.list).iter().any(|job| lock(&job.shared).end.is_none())
    }

    /// Whether some job is still running, or has ended and was not yet returned by [`Jobs::take_ended`], so that its
    /// changes are not yet accounted for.
    pub fn any_unreported(&self) -> bool {
        lock(&self.list).iter().any(|job| !job.taken)
    }

    /// Whether some job is still running that may write.
    pub fn any_writing(&self) -> bool {
        let is_writing = |job: &Job| job.writes && lock(&job.shared).end.is_none();
        lock(&self.list).iter().any(is_writing)
    }

    /// Kills all running jobs and waits for their end, at most three seconds. Returns how many were running. A job that
    /// is started afterwards is killed at once.
    pub async fn kill_all(&self) -> usize {
        self.closing.0.0.cancel();
        self.end(|_| true).await.len()
    }

    /// Kills the running jobs that may write the workspace, and waits for their end like [`Jobs::kill_all`]. Returns
    /// their numbers. Other jobs, and those that are started afterwards, continue.
    pub async fn kill_writing(&self) -> Vec<usize> {
        self.end(|job| job.writes).await
    }

    async fn end(&self, which: impl Fn(&Job) -> bool) -> Vec<usize> {
        let (mut tasks, mut running) = (Vec::new(), Vec::new());
        for (at, job) in lock(&self.list).iter_mut().enumerate() {
            if which(job) {
                // Checked before the cancellation: a job that ends because of it was still running.
                if lock(&job.shared).end.is_none() {
                    running.push(at + 1);
                }
                job.cancel.cancel();
                tasks.extend(job.task.take().map(|task| (task, Arc::clone(&job.shared))));
            }
        }
        let until = tokio::time::Instant::now() + Duration::from_secs(3);
        for (mut task, shared) in tasks {
            if tokio::time::timeout_at(until, &mut task).await.is_err() {
                // Dropping the future kills its tree at once, and its guard compares. Awaited, because what the guard
                // finds must be there when this returns.
                task.abort();
                let _ = task.await;
            }
            lock(&shared).finish(JobEnd::Exited {
                exit: ExitInfo {
                    signal: Some(libc::SIGKILL),
                    ..ExitInfo::default()
                },
                undone: Vec::new(),
                execs: Vec::new(),
                execs_omitted: 0,
                denied: None,
            });
        }
        running
    }
}

fn launch(
    mut spawn: Spawn,
    confinement: Confinement,
    (shared, unfinished): (Arc<Mutex<Shared>>, FoundOnDrop),
    cancel: CancellationToken,
) -> JoinHandle<()> {
    let heard = Arc::clone(&shared);
    spawn.on_output = Some(Arc::new(move |text: &str| lock(&heard).hear(text)));
    spawn.keep = None;
    spawn.shown = 0;
    spawn.cancel = cancel;
    tokio::spawn(async move {
        let mut ended = run_reporting_changes(spawn, &confinement, unfinished).await;
        if let Ok(finished) = &mut ended {
            lock(&shared).locks = std::mem::take(&mut finished.locks);
        }
        lock(&shared).finish(match ended {
            Ok(finished) => JobEnd::Exited {
                exit: finished.exit,
                undone: finished.undone,
                execs: finished.execs,
                execs_omitted: finished.execs_omitted,
                denied: finished.denied.map(Box::new),
            },
            Err(SpawnError::Sandbox(reason)) => JobEnd::NoSandbox(reason),
            Err(error) => JobEnd::NotStarted(error.to_string()),
        });
    })
}

impl Shared {
    /// Notes how it ended, unless that is known.
    fn finish(&mut self, end: JobEnd) {
        self.end.get_or_insert(end);
        self.ended.cancel();
    }

    fn hear(&mut self, text: &str) {
        self.output.push_str(text);
        if self.output.len() > 2 * HELD {
            let mut cut = self.output.len() - HELD;
            while !self.output.is_char_boundary(cut) {
                cut += 1;
            }
            self.dropped += cut as u64;
            self.output.drain(..cut);
        }
    }
}

/// What the record must show of a job that has ended.
fn ended(job: &mut Job) -> Option<EndedJob> {
    let end = lock(&job.shared).end.clone()?;
    job.taken = true;
    let (judged, mut undone) = match end {
        JobEnd::Exited {
            undone,
            execs,
            execs_omitted,
            denied,
            ..
        } => (JudgedPrograms::of(&execs, execs_omitted, denied.as_deref()), undone),
        JobEnd::NotStarted(_) | JobEnd::NoSandbox(_) => (JudgedPrograms::default(), Vec::new()),
    };
    undone.append(&mut lock(&job.unfinished));
    Some(EndedJob {
        call: job.call.clone(),
        writes: job.writes,
        judged,
        undone,
        locks: lock(&job.shared).locks.clone(),
    })
}

fn state(number: usize, job: &Job) -> JobState {
    let shared = lock(&job.shared);
    let mut from = shared.output.len().saturating_sub(HELD);
    while !shared.output.is_char_boundary(from) {
        from += 1;
    }
    JobState {
        number,
        command: job.command.clone(),
        end: shared.end.clone(),
        output: shared.output[from..].to_owned(),
        dropped: shared.dropped + from as u64,
    }
}
