//! Waits that end early at the run's deadline or by cancellation.

use std::future::Future;
use std::time::{Duration, Instant};
use tokio_util::sync::CancellationToken;

/// How a wait ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pause {
    /// The full time has passed.
    Over,
    /// The run's deadline came first.
    Deadline,
    Cancelled,
}

/// Waits for `length`, but at most until `deadline`.
pub async fn pause(length: Duration, deadline: Instant, cancel: &CancellationToken) -> Pause {
    match bounded(tokio::time::sleep(length), deadline, cancel).await {
        Ok(()) => Pause::Over,
        Err(end) => end,
    }
}

/// Runs `work`, but at most until `deadline`.
///
/// # Errors
/// [`Pause::Deadline`] or [`Pause::Cancelled`], never [`Pause::Over`].
pub async fn bounded<T>(
    work: impl Future<Output = T>,
    deadline: Instant,
    cancel: &CancellationToken,
) -> Result<T, Pause> {
    tokio::select! {
        biased;
        () = cancel.cancelled() => Err(Pause::Cancelled),
        done = work => Ok(done),
        () = tokio::time::sleep_until(deadline.into()) => Err(Pause::Deadline),
    }
}
