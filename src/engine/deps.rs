//! The dependencies of the loop, built by `cli`.

use crate::base::budget::LimitHit;
use crate::base::event::EventKind;
use crate::base::exit;
use crate::base::ids::StepId;
use crate::base::message::Usage;
use crate::base::outcome::{RunOutcome, Verdict};
use crate::base::replaceable::ReplaceOnce;
use crate::base::secret::Redactor;
use crate::policy::PolicySet;
use crate::process::Confinement;
use crate::provider::Provider;
use crate::recipe::Plan;
use crate::tools::{Registry, ToolScope};
use crate::workspace::Workspace;
use crate::workspace::patch::{Shadow, Snapshot};
use futures_util::future::BoxFuture;
use std::path::PathBuf;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

/// Computes the price of a reply from the model's name and usage.
pub type PriceFunction = Box<dyn Fn(&str, Usage) -> Option<u64> + Send + Sync>;

/// The dependencies of one run.
pub struct Deps {
    pub plan: Plan,
    pub policies: Arc<PolicySet>,
    pub tools: Registry,
    pub provider: Arc<dyn Provider>,
    /// Price of a reply in millionths of a US dollar; `None` if the price of the model is not known.
    pub price: PriceFunction,
    pub workspace: Arc<Workspace>,
    pub scope: Arc<ToolScope>,
    pub redactor: Arc<Redactor>,
    /// Directory of journal, blobs and results; changes when they are moved out of reach of commands.
    pub run_dir: ReplaceOnce<PathBuf>,
    pub shadow: ReplaceOnce<Shadow>,
    /// Whether the recipe is trusted: then changes of its `run` steps are its author's, and need no allow rule.
    pub trusted: bool,
    /// The system prompt, including context files.
    pub system: String,
    pub interrupt: Arc<Interrupt>,
    /// When the wall-clock limit of the run is reached.
    pub run_deadline: Instant,
    /// Time limit of one command.
    pub command_time: Duration,
    /// A warning that is only known at the end of the run. `None`: nothing to report. Called once, before `RunFinished` is
    /// recorded.
    pub last_warning: Box<dyn Fn() -> Option<EventKind> + Send + Sync>,
}

impl Deps {
    /// When the wall-clock limit of the run or of the current step is reached, whichever comes first.
    pub fn deadline(&self) -> Instant {
        self.interrupt.deadline(self.run_deadline)
    }

    /// The outcome if a signal or the wall clock ended the run. Checks the clock too, see [`Interrupt::check_clock`].
    pub fn interrupted(&self) -> Option<RunOutcome> {
        self.interrupt.check_clock(self.run_deadline);
        self.interrupt.outcome(&self.plan)
    }

    /// The outcome if a signal or the wall clock ended the run so that reading the tree was given up.
    pub fn cut_off(&self) -> Option<RunOutcome> {
        self.shadow.was_cut_off().then(|| self.interrupted()).flatten()
    }
}

/// The task that takes the baseline while the first request is under way.
pub type Baseline = JoinHandle<Result<(Snapshot, bool), String>>;

/// Builds the sandbox of commands at the best available level; also returns the details for the record.
pub type SandboxMaker = Box<dyn FnOnce() -> BoxFuture<'static, Result<(Confinement, String), String>> + Send>;

/// The wall-clock limit of the current step. It counts from the beginning of the step in this session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StepLimit {
    pub step: StepId,
    pub wall_ms: u64,
    pub deadline: Instant,
}

impl StepLimit {
    /// The limit of a step that begins now. `None` if the clock cannot express when it is reached.
    pub fn begin(step: &StepId, wall_ms: u64) -> Option<Self> {
        Some(Self {
            step: step.clone(),
            wall_ms,
            deadline: Instant::now().checked_add(Duration::from_millis(wall_ms))?,
        })
    }
}

/// What stopped a run from outside.
#[derive(Debug)]
enum Cause {
    /// The signal with this number.
    Signal(i32),
    /// The wall-clock limit of the run.
    Wall,
    /// The wall-clock limit of a step.
    StepWall(StepLimit),
}

/// Why a run must stop, set from outside. Its token cancels whatever is waiting.
#[derive(Debug, Default)]
pub struct Interrupt {
    pub token: CancellationToken,
    /// The first one counts.
    cause: OnceLock<Cause>,
    /// The limit of the current step. The tasks that watch the clock are notified of a change.
    step: watch::Sender<Option<StepLimit>>,
}

impl Interrupt {
    /// Notes that a signal arrived.
    pub fn signal(&self, number: i32) {
        self.end(Cause::Signal(number));
    }

    /// Sets the limit of the current step; `None` if it has none, or when it has ended.
    pub fn limit_step(&self, limit: Option<StepLimit>) {
        self.step.send_replace(limit);
    }

    /// The limit of the current step, if its deadline comes before `of_run`, the deadline of the run.
    fn step_limit(&self, of_run: Instant) -> Option<StepLimit> {
        let limit = self.step.borrow().clone();
        limit.filter(|limit| limit.deadline < of_run)
    }

    /// The deadline of the current step if it comes before `of_run`, the deadline of the run; else `of_run`.
    pub fn deadline(&self, of_run: Instant) -> Instant {
        self.step_limit(of_run).map_or(of_run, |limit| limit.deadline)
    }

    /// Stops the run if its deadline, `of_run`, or that of the current step has passed. Returns whether one has. A wait
    /// that ends at the deadline may return before the task that watches the clock has run.
    pub fn check_clock(&self, of_run: Instant) -> bool {
        let limit = self.step_limit(of_run);
        let over = Instant::now() >= limit.as_ref().map_or(of_run, |limit| limit.deadline);
        if over {
            self.end(limit.map_or(Cause::Wall, Cause::StepWall));
        }
        over
    }

    /// Stops the run because the time until the earlier deadline, of the run (`of_run`) or of the current step, is over or
    /// too short for what has to be done.
    pub fn out_of_time(&self, of_run: Instant) {
        let limit = self.step_limit(of_run);
        self.end(limit.map_or(Cause::Wall, Cause::StepWall));
    }

    /// Waits until the deadline of the run, `of_run`, or of a step has passed, and stops the run then.
    pub async fn watch_clock(&self, of_run: Instant) {
        let mut changes = self.step.subscribe();
        while !self.check_clock(of_run) {
            changes.mark_unchanged();
            tokio::select! {
                () = tokio::time::sleep_until(self.deadline(of_run).into()) => {}
                _ = changes.changed() => {}
            }
        }
    }

    fn end(&self, cause: Cause) {
        let _ = self.cause.set(cause);
        self.token.cancel();
    }

    /// The outcome of the interruption, if there was one.
    pub fn outcome(&self, plan: &Plan) -> Option<RunOutcome> {
        self.ending(plan.budget.wall_ms.unwrap_or_default())
    }

    /// Like [`Interrupt::outcome`], with a wall-clock limit of the run of this many milliseconds.
    pub fn ending(&self, wall_ms: u64) -> Option<RunOutcome> {
        match self.cause.get()? {
            Cause::Signal(number) => {
                let mut outcome = RunOutcome::new(
                    Verdict::Cancelled,
                    format!("signal:{number}"),
                    format!("cancelled by {}", exit::signal_name(*number)),
                );
                outcome.signal = Some(*number);
                Some(outcome)
            }
            Cause::Wall => Some(RunOutcome::limit(&LimitHit::wall(wall_ms))),
            Cause::StepWall(limit) => {
                let hit = LimitHit::wall(limit.wall_ms).of_step(&limit.step);
                Some(RunOutcome::limit(&hit))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn limit(wall_ms: u64) -> Option<StepLimit> {
        StepLimit::begin(&StepId::from("a"), wall_ms)
    }

    fn told(interrupt: &Interrupt) -> Option<(String, String)> {
        // The part after the semicolon says how to raise the limit, and is left out here.
        let ended = interrupt.ending(9);
        ended.map(|outcome| {
            let what = outcome.message.split(';').next().unwrap_or_default();
            (outcome.reason, what.to_owned())
        })
    }

    fn of_step(wall_ms: u64) -> Option<(String, String)> {
        let allowed = Duration::from_millis(wall_ms).as_secs_f64();
        let message = format!("budget of step a reached: wall clock: {allowed} s allowed");
        Some(("limit:wall".to_owned(), message))
    }

    #[test]
    fn the_earlier_of_two_limits_ends_the_run() {
        let (now, late) = (Instant::now(), Instant::now() + Duration::from_secs(60));
        let interrupt = Interrupt::default();
        interrupt.limit_step(limit(0));
        assert!(interrupt.check_clock(late) && interrupt.token.is_cancelled());
        assert_eq!(told(&interrupt), of_step(0));
        let interrupt = Interrupt::default();
        interrupt.limit_step(limit(30_000));
        assert!(interrupt.check_clock(now));
        let message = "budget reached: wall clock: 0.009 s allowed".to_owned();
        assert_eq!(told(&interrupt), Some(("limit:wall".to_owned(), message)));
        // The first cause counts.
        interrupt.signal(15);
        assert_eq!(told(&interrupt).unwrap().0, "limit:wall");
    }

    #[test]
    fn a_wait_that_is_too_long_for_the_step_is_the_steps_limit() {
        let interrupt = Interrupt::default();
        interrupt.limit_step(limit(30_000));
        interrupt.out_of_time(Instant::now() + Duration::from_secs(60));
        assert_eq!(told(&interrupt), of_step(30_000));
    }

    #[test]
    fn the_clock_is_watched_for_limits_that_come_and_go() {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        let late = Instant::now() + Duration::from_secs(60);
        let interrupt = Interrupt::default();
        let steps = async {
            interrupt.limit_step(limit(40));
            tokio::task::yield_now().await;
            interrupt.limit_step(None);
            tokio::time::sleep(Duration::from_millis(80)).await;
            assert_eq!(told(&interrupt), None);
            interrupt.limit_step(limit(20));
        };
        runtime.block_on(async { tokio::join!(interrupt.watch_clock(late), steps) });
        assert_eq!(told(&interrupt), of_step(20));
    }
}
