//! How long a delivery waits for services, all waits together. Knows no service.

use super::DeliverStop;
use crate::net::retry::{self, Next, Pace, Schedule, Steps};
use std::sync::Mutex;
use std::time::{Duration, Instant};

/// Attempts at one request, waits between them doubling.
const STEPS: Steps = Steps {
    attempts: 5,
    first: Duration::from_millis(500),
    most: Duration::from_secs(30),
};

/// What may be waited in one call of the command, and what was.
#[derive(Debug)]
pub struct Patience {
    /// All waits together.
    most: Duration,
    waited: Mutex<Duration>,
    /// Between two requests that change something on a forge, which count such requests apart from others.
    pace: Duration,
    last: Mutex<Option<Instant>>,
}

impl Patience {
    /// `most`: all waits together. `pace`: the least time between two changing requests.
    pub fn new(most: Duration, pace: Duration) -> Self {
        Self {
            most,
            waited: Mutex::new(Duration::ZERO),
            pace,
            last: Mutex::new(None),
        }
    }

    /// Waits before the next attempt, after `failed` of them. `asked` is what the service wants; `why` is said when it is too long.
    ///
    /// # Errors
    /// [`DeliverStop::Service`]: no attempt is left, or the wait would be too long.
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
            Next::Wait(wait) => wait,
            Next::Exhausted => return Err(DeliverStop::Service(format!("{why} ({failed} attempts)"))),
            Next::TooLong(wait) => {
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

    /// Keeps the pace of changing requests.
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
