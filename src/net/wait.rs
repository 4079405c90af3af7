//! Waits that end early at the run's deadline or by cancellation.

use std::future::Future;
use std::time::{Duration, Instant};
use tokio_util::sync::CancellationToken;

/// How a wait ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WaitEnd {
    /// The full time has passed.
    Over,
    /// The run's deadline came first.
    Deadline,
    Cancelled,
}

/// Waits for `length`, but at most until `deadline`.
pub async fn pause(length: Duration, deadline: Instant, cancel: &CancellationToken) -> WaitEnd {
    match bounded(tokio::time::sleep(length), deadline, cancel).await {
        Ok(()) => WaitEnd::Over,
        Err(end) => end,
    }
}

/// Runs `work`, but at most until `deadline`.
///
/// # Errors
/// [`WaitEnd::Deadline`] or [`WaitEnd::Cancelled`], never [`WaitEnd::Over`].
pub async fn bounded<T>(
    work: impl Future<Output = T>,
    deadline: Instant,
    cancel: &CancellationToken,
) -> Result<T, WaitEnd> {
    tokio::select! {
        biased;
        () = cancel.cancelled() => Err(WaitEnd::Cancelled),
        done = work => Ok(done),
        () = tokio::time::sleep_until(deadline.into()) => Err(WaitEnd::Deadline),
    }
}
