//! The clock of one call of `overnight batch`: when it began, and the signals that came since.

use crate::base::exit::signal_name;
use crate::base::outcome::{RunOutcome, Verdict};
use crate::cli::refusal::Refusal;
use crate::cli::signals;
use std::time::Instant;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

/// The signals of a call and the begin of its wall clock.
pub struct CallClock {
    pub began: Instant,
    pub signals: UnboundedReceiver<i32>,
    /// Where signals are sent once they are watched; `None` if they are, or if they never shall be.
    sender: Option<UnboundedSender<i32>>,
}

impl CallClock {
    /// A clock that starts now. Without `is_watched` a signal ends the process at any time, as it does otherwise until
    /// [`CallClock::watch`].
    pub fn start(is_watched: bool) -> Self {
        let (sender, signals) = unbounded_channel();
        Self {
            began: Instant::now(),
            signals,
            sender: is_watched.then_some(sender),
        }
    }

    /// Sends signals to `signals` from now on, in place of ending the process.
    ///
    /// # Errors
    /// The system refuses a handler.
    pub fn watch(&mut self) -> Result<(), Refusal> {
        self.sender.take().map_or(Ok(()), signals::all)
    }

    /// Does `work` unless a signal comes first.
    ///
    /// # Errors
    /// Those of `work`; [`Refusal::Interrupted`].
    pub async fn unless_ended<T, E: Into<Refusal>>(
        &mut self,
        work: impl Future<Output = Result<T, E>>,
    ) -> Result<T, Refusal> {
        tokio::select! {
            biased;
            Some(signal) = self.signals.recv() => Err(cancelled(signal)),
            done = work => done.map_err(Into::into),
        }
    }
}

fn cancelled(signal: i32) -> Refusal {
    let message = format!("cancelled by {} before a job was started", signal_name(signal));
    let mut outcome = RunOutcome::new(Verdict::Cancelled, format!("signal:{signal}"), message);
    outcome.signal = Some(signal);
    Refusal::Interrupted(outcome)
}
