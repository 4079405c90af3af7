//! The limit on the time that deliveries wait for services: for pauses between attempts, and for attempts. All runs of
//! one command share it for pauses and attempts that fail, so that a batch may be large; for a single run answers count
//! too. No attempt may take longer than what is left.

use super::DeliverStop;
use crate::base::quote::counted;
use crate::net::retry::{self, Backoff, RetryDecision, RetryKind, Schedule};
use std::sync::Mutex;
use std::time::{Duration, Instant};

/// Attempts at one request; the wait doubles between them.
const STEPS: Backoff = Backoff {
    attempts: 5,
    first: Duration::from_millis(500),
    most: Duration::from_secs(30),
};

/// The wait limit of one call of the command, and the time used.
#[derive(Debug)]
pub struct WaitBudget {
    /// Limit of the waits of all runs together, and of the waits and answers of one run.
    most: Duration,
    clock: Mutex<Clock>,
    /// Minimum interval between two changing requests to a forge; forges limit those separately.
    pace: Duration,
    last: Mutex<Option<Instant>>,
}

/// The time used.
#[derive(Debug, Default)]
struct Clock {
    /// Pauses and failed attempts of all runs.
    waited: Duration,
    /// Pauses and attempts of the current run.
    of_run: Duration,
}

impl WaitBudget {
    /// `most`: limit of all waits together. `pace`: minimum interval between two changing requests.
    pub fn new(most: Duration, pace: Duration) -> Self {
        Self {
            most,
            clock: Mutex::default(),
            pace,
            last: Mutex::new(None),
        }
    }

    /// Starts the clock of the next run.
    pub fn begin(&self) {
        if let Ok(mut clock) = self.clock.lock() {
            clock.of_run = Duration::ZERO;
        }
    }

    /// The time that is used: by the current run, or by the waits of all runs if that is more.
    fn used(&self) -> Duration {
        let clock = self.clock.lock();
        clock.map_or(self.most, |clock| clock.waited.max(clock.of_run))
    }

    /// The time limit of the next attempt at `who`: `most`, or what is left if that is less.
    ///
    /// # Errors
    /// [`DeliverStop::Service`]: nothing is left.
    pub fn limit(&self, most: Duration, who: &str) -> Result<Duration, DeliverStop> {
        // `--max-wall 0s` allows no second attempt; the first one has its own limit.
        if self.most.is_zero() {
            return Ok(most);
        }
        let rest = self.most.saturating_sub(self.used());
        if rest.is_zero() {
            return Err(DeliverStop::Service(format!(
                "{who} was not asked: the time of --max-wall ({} s) is used up",
                self.most.as_secs()
            )));
        }
        Ok(rest.min(most))
    }

    /// Counts the time of an attempt or of a pause before the next one. `in_vain`: the attempt got no answer.
    pub fn charge(&self, took: Duration, in_vain: bool) {
        if let Ok(mut clock) = self.clock.lock() {
            clock.of_run = clock.of_run.saturating_add(took);
            if in_vain {
                clock.waited = clock.waited.saturating_add(took);
            }
        }
    }

    /// Waits before the next attempt, after `failed` of them. `asked` is the wait that the service requested; `why`
    /// goes into the error.
    ///
    /// # Errors
    /// [`DeliverStop::Service`]: no attempt is left, or the wait would exceed the limit.
    pub async fn before_retry(&self, failed: u32, asked: Option<Duration>, why: &str) -> Result<(), DeliverStop> {
        let schedule = Schedule {
            connect: STEPS,
            service: STEPS,
            answer: STEPS,
            asked_most: self.most,
            total: self.most,
        };
        let wait = match schedule.next(RetryKind::Service, failed, asked, self.used(), retry::chance()) {
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
        self.charge(wait, true);
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_attempt_gets_more_than_what_is_left() {
        let second = Duration::from_secs(1);
        let wait_budget = WaitBudget::new(second * 100, Duration::ZERO);
        assert_eq!(wait_budget.limit(second * 60, "x"), Ok(second * 60));
        wait_budget.charge(second * 50, true);
        wait_budget.charge(second * 20, false);
        assert_eq!(wait_budget.limit(second * 60, "x"), Ok(second * 30));
        // What all runs waited stays counted; answers do not.
        wait_budget.begin();
        assert_eq!(wait_budget.limit(second * 60, "x"), Ok(second * 50));
        wait_budget.charge(second * 50, true);
        let told = wait_budget.limit(second * 60, "the server").unwrap_err().to_string();
        assert_eq!(
            told,
            "the server was not asked: the time of --max-wall (100 s) is used up"
        );
        // Without a limit on waits there is no second attempt, but a first one.
        let none = WaitBudget::new(Duration::ZERO, Duration::ZERO);
        assert_eq!(none.limit(second, "x"), Ok(second));
    }
}
