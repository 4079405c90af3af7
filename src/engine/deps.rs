//! The dependencies of the loop, built by `cli`.

use crate::base::message::Usage;
use crate::base::moved::Moved;
use crate::base::outcome::{Outcome, Verdict};
use crate::base::secret::Redactor;
use crate::policy::PolicySet;
use crate::process::Confinement;
use crate::provider::Provider;
use crate::recipe::Plan;
use crate::tools::{Registry, Scope};
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
pub type Price = Box<dyn Fn(&str, Usage) -> Option<u64> + Send + Sync>;

/// The dependencies of one run.
pub struct Deps {
    pub plan: Plan,
    pub policies: Arc<PolicySet>,
    pub tools: Registry,
    pub provider: Arc<dyn Provider>,
    /// Price of a reply in millionths of a US dollar; `None` if the price of the model is not known.
    pub price: Price,
    pub workspace: Arc<Workspace>,
    pub scope: Arc<Scope>,
    pub redactor: Arc<Redactor>,
    /// Directory of journal, blobs and results; changes when they are moved out of reach of commands.
    pub run_dir: Moved<PathBuf>,
    pub shadow: Moved<Shadow>,
    /// Whether the recipe is trusted: then changes of its `run` steps are its author's, and need no allow rule.
    pub trusted: bool,
    /// The system prompt, including context files.
    pub system: String,
    pub interrupt: Arc<Interrupt>,
    /// When the wall clock of the run ends.
    pub deadline: Instant,
    /// How long one command may take.
    pub command_time: std::time::Duration,
}

impl Deps {
    /// The end that a signal or the wall clock brings, if one came. The clock is looked at here too: a wait that ends
    /// at the deadline may be over before the watcher of the clock had its turn.
    pub fn interrupted(&self) -> Option<Outcome> {
        if Instant::now() >= self.deadline {
            self.interrupt.wall();
        }
        self.interrupt.outcome(&self.plan)
    }
}

/// The baseline, taken beside the first request.
pub type Baseline = JoinHandle<Result<(Snapshot, bool), String>>;

/// Makes the sandbox of commands as soon as it is known what can be had; with the detail for the record.
pub type Sandbox = Box<dyn FnOnce() -> BoxFuture<'static, Result<(Confinement, String), String>> + Send>;

/// Why a run must stop, set from outside; the token wakes whoever waits.
#[derive(Debug, Default)]
pub struct Interrupt {
    pub token: CancellationToken,
    /// 0 nothing, negative the wall clock, positive a signal.
    cause: AtomicI32,
}

impl Interrupt {
    /// A signal came.
    pub fn signal(&self, number: i32) {
        let _ = self
            .cause
            .compare_exchange(0, number, Ordering::SeqCst, Ordering::SeqCst);
        self.token.cancel();
    }

    /// The wall clock has run out.
    pub fn wall(&self) {
        let _ = self.cause.compare_exchange(0, -1, Ordering::SeqCst, Ordering::SeqCst);
        self.token.cancel();
    }

    /// The end that this brings, if it came.
    pub fn outcome(&self, plan: &Plan) -> Option<Outcome> {
        match self.cause.load(Ordering::SeqCst) {
            0 => None,
            number if number > 0 => {
                let name = match number {
                    2 => "SIGINT",
                    15 => "SIGTERM",
                    1 => "SIGHUP",
                    _ => "a signal",
                };
                let mut outcome = Outcome::new(
                    Verdict::Cancelled,
                    format!("signal:{number}"),
                    format!("cancelled by {name}"),
                );
                outcome.signal = Some(number);
                Some(outcome)
            }
            _ => {
                let allowed = plan.budget.wall_ms.unwrap_or_default();
                let hit = crate::base::budget::LimitHit {
                    limit: "wall".to_owned(),
                    spent: allowed,
                    allowed,
                };
                Some(Outcome::limit(&hit))
            }
        }
    }
}
