//! The limit on the time that all waits of a delivery for services take together.

use super::DeliverStop;
use crate::base::quote::counted;
use crate::net::retry::{self, Pace, RetryDecision, Schedule, Steps};
use std::sync::Mutex;
use std::time::{Duration, Instant};

/// Attempts at one request; the wait doubles between them.
const STEPS: Steps = Steps {
    attempts: 5,
    first: Duration::from_millis(500),
    most: Duration::from_secs(30),
};

/// The wait limit of one call of the command, and the time used.
#[derive(Debug)]
pub struct Patience {
    /// Limit of all waits together.
    most: Duration,
    waited: Mutex<Duration>,
    /// Minimum interval between two changing requests to a forge; forges limit those separately.
    pace: Duration,
    last: Mutex<Option<Instant>>,
}

impl Patience {
    /// `most`: limit of all waits together. `pace`: minimum interval between two changing requests.
    pub fn new(most: Duration, pace: Duration) -> Self {
        Self {
            most,
            waited: Mutex::new(Duration::ZERO),
            pace,
            last: Mutex::new(None),
        }
    }

    /// Waits before the next attempt, after `failed` of them. `asked` is the wait that the service requested; `why`
    /// goes into the error.
    ///
    /// # Errors
    /// [`DeliverStop::Service`]: no attempt is left, or the wait would exceed the limit.
    pub async fn before_retry(&self, failed: u32, asked: Option<Duration>, why: &str) -> Result<(), DeliverStop> {
        let waited = self.waited.lock().map(|waited| *waited).unwrap_or(self.most);
        let schedule = Schedule {
            connect: STEPS,
            service: STEPS,
            answer: STEPS,
            asked_most: self.most,
            total: self.most,
        };
        let wait = match schedule.next(Pace::Service, failed, asked, waited, retry::chance()) {
            RetryDecision::Wait(wait) => wait,
            RetryDecision::Exhausted => {
                return Err(DeliverStop::Service(format!("{why} ({})", counted(failed, "attempt"))));
            }
            RetryDecision::TooLong(wait) => {
                return Err(DeliverStop::Service(format!(
                    "{why}; waiting {} s more would exceed --max-wall ({} s)",
                    wait.as_secs().max(1),
                    self.most.as_secs()
                )));
            }
        };
        if let Ok(mut waited) = self.waited.lock() {
            *waited += wait;
        }
        tokio::time::sleep(wait).await;
        Ok(())
    }

    /// Waits until the next changing request may be sent.
    pub async fn before_change(&self) {
        let rest = self.last.lock().ok().and_then(|last| *last);
        let rest = rest.map(|last| self.pace.saturating_sub(last.elapsed()));
        if let Some(rest) = rest.filter(|rest| !rest.is_zero()) {
            tokio::time::sleep(rest).await;
        }
        if let Ok(mut last) = self.last.lock() {
            *last = Some(Instant::now());
        }
    }
}
