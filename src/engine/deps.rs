//! The dependencies of the loop, built by `cli`.

use crate::base::event::EventKind;
use crate::base::exit;
use crate::base::message::Usage;
use crate::base::outcome::{RunOutcome, Verdict};
use crate::base::replaceable::Moved;
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
use std::sync::Arc;
use std::sync::atomic::{AtomicI32, Ordering};
use std::time::Instant;
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
    pub run_dir: Moved<PathBuf>,
    pub shadow: Moved<Shadow>,
    /// Whether the recipe is trusted: then changes of its `run` steps are its author's, and need no allow rule.
    pub trusted: bool,
    /// The system prompt, including context files.
    pub system: String,
    pub interrupt: Arc<Interrupt>,
    /// When the wall-clock limit of the run is reached.
    pub deadline: Instant,
    /// Time limit of one command.
    pub command_time: std::time::Duration,
    /// A warning that is only known at the end of the run. `None`: nothing to report. Called once, before `RunFinished` is
    /// recorded.
    pub last_warning: Box<dyn Fn() -> Option<EventKind> + Send + Sync>,
}

impl Deps {
    /// The outcome if a signal or the wall clock ended the run. Checks the clock too, because a wait that ends at the
    /// deadline may return before the task that watches the clock has run.
    pub fn interrupted(&self) -> Option<RunOutcome> {
        if Instant::now() >= self.deadline {
            self.interrupt.wall();
        }
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

/// Why a run must stop, set from outside. Its token cancels whatever is waiting.
#[derive(Debug, Default)]
pub struct Interrupt {
    pub token: CancellationToken,
    /// 0: none; negative: the wall clock; positive: a signal number.
    cause: AtomicI32,
}

impl Interrupt {
    /// Notes that a signal arrived.
    pub fn signal(&self, number: i32) {
        let _ = self
            .cause
            .compare_exchange(0, number, Ordering::SeqCst, Ordering::SeqCst);
        self.token.cancel();
    }

    /// Notes that the wall-clock limit is reached.
    pub fn wall(&self) {
        let _ = self.cause.compare_exchange(0, -1, Ordering::SeqCst, Ordering::SeqCst);
        self.token.cancel();
    }

    /// The outcome of the interruption, if there was one.
    pub fn outcome(&self, plan: &Plan) -> Option<RunOutcome> {
        self.ending(plan.budget.wall_ms.unwrap_or_default())
    }

    /// Like [`Interrupt::outcome`], with a wall-clock limit of this many milliseconds.
    pub fn ending(&self, wall_ms: u64) -> Option<RunOutcome> {
        match self.cause.load(Ordering::SeqCst) {
            0 => None,
            number if number > 0 => {
                let mut outcome = RunOutcome::new(
                    Verdict::Cancelled,
                    format!("signal:{number}"),
                    format!("cancelled by {}", exit::signal_name(number)),
                );
                outcome.signal = Some(number);
                Some(outcome)
            }
            _ => {
                let hit = crate::base::budget::LimitHit {
                    limit: "wall".to_owned(),
                    spent: wall_ms,
                    allowed: wall_ms,
                };
                Some(RunOutcome::limit(&hit))
            }
        }
    }
}
