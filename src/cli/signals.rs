//! Handles signals and the wall-clock limit: the first signal cancels the run, the second ends the process.

use super::refusal::Refusal;
use crate::engine::deps::Interrupt;
use std::sync::Arc;
use std::time::Instant;
use tokio::signal::unix::{SignalKind, signal};

/// SIGXFSZ.
const FILE_SIZE: i32 = 25;

/// Starts watching for signals, in the background. Must be called before a run makes anything that it has to remove.
///
/// # Errors
/// The system refuses a handler.
pub fn watch() -> Result<Arc<Interrupt>, Refusal> {
    let interrupt = Arc::new(Interrupt::default());
    follow(&interrupt).map_err(|error| Refusal::Environment(format!("signals cannot be watched: {error}")))?;
    Ok(interrupt)
}

fn follow(interrupt: &Arc<Interrupt>) -> std::io::Result<()> {
    let mut term = signal(SignalKind::terminate())?;
    let mut int = signal(SignalKind::interrupt())?;
    let mut hup = signal(SignalKind::hangup())?;
    // With a handler, exceeding the file size limit is a write error with its own exit code, instead of killing the
    // process.
    let file_size = signal(SignalKind::from_raw(FILE_SIZE))?;
    let interrupt = Arc::clone(interrupt);
    tokio::spawn(async move {
        let _kept = file_size;
        let mut seen = false;
        loop {
            let number = tokio::select! {
                _ = term.recv() => 15,
                _ = int.recv() => 2,
                _ = hup.recv() => 1,
            };
            if seen {
                leave(128 + number);
            }
            seen = true;
            interrupt.signal(number);
        }
    });
    Ok(())
}

/// Starts watching the wall-clock limit, in the background. Of several calls the earliest deadline counts.
pub fn limit(interrupt: &Arc<Interrupt>, deadline: Instant) {
    let interrupt = Arc::clone(interrupt);
    tokio::spawn(async move {
        tokio::time::sleep_until(deadline.into()).await;
        interrupt.wall();
    });
}

#[expect(
    clippy::exit,
    reason = "a second signal must end the process at once; the journal is complete at any time"
)]
fn leave(code: i32) {
    std::process::exit(code);
}
