//! Handles signals and the wall-clock limit: the first signal cancels what the command does, the second ends the
//! process.

use crate::engine::deps::Interrupt;
use std::sync::Arc;
use std::time::Instant;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};

/// SIGXFSZ.
const FILE_SIZE: i32 = 25;

/// Starts watching for signals and the wall-clock limit, in the background.
pub fn watch(interrupt: &Arc<Interrupt>, deadline: Instant) -> std::io::Result<()> {
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
        let mut clock_runs = true;
        loop {
            let number = tokio::select! {
                _ = term.recv() => 15,
                _ = int.recv() => 2,
                _ = hup.recv() => 1,
                () = tokio::time::sleep_until(deadline.into()), if clock_runs => {
                    clock_runs = false;
                    interrupt.wall();
                    continue;
                }
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

/// Starts watching for signals in the background, for a command without a run: the number of the first one is sent, the
/// second ends the process.
pub fn first() -> std::io::Result<UnboundedReceiver<i32>> {
    let mut term = signal(SignalKind::terminate())?;
    let mut int = signal(SignalKind::interrupt())?;
    let mut hup = signal(SignalKind::hangup())?;
    let (sender, receiver) = unbounded_channel();
    tokio::spawn(async move {
        let mut seen = false;
        loop {
            let number = tokio::select! {
                _ = term.recv() => 15,
                _ = int.recv() => 2,
                _ = hup.recv() => 1,
            };
            // Without a receiver the command has ended but for its last output.
            if seen || sender.send(number).is_err() {
                leave(128 + number);
            }
            seen = true;
        }
    });
    Ok(receiver)
}

#[expect(
    clippy::exit,
    reason = "a second signal must end the process at once; journals and logs are complete at any time"
)]
fn leave(code: i32) {
    std::process::exit(code);
}
