//! Handles signals and the wall-clock limit: the first signal cancels what the command does, a later one ends the
//! process. They are handled on a thread of their own, so that a blocked command cannot delay its own end.

use super::out::bounded;
use super::refusal::Refusal;
use crate::base::exit;
use crate::engine::deps::Interrupt;
use crate::journal::pipe;
use std::io;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};
use tokio::runtime::Runtime;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio_util::sync::CancellationToken;

/// SIGXFSZ.
const FILE_SIZE: i32 = 25;
/// Signals that come this soon after the first one count as that one: `timeout` signals a process and then its group, a
/// terminal signals the group, and launchers pass on what they get. Each of them reaches the process more than once.
const SAME_SIGNAL: Duration = Duration::from_secs(1);

/// Starts watching for signals, in the background: the first one interrupts the run, a later one ends the process (see
/// [`SAME_SIGNAL`]). Must be called before a run creates anything that it must remove.
///
/// # Errors
/// The system refuses a handler.
pub fn watch() -> Result<Arc<Interrupt>, Refusal> {
    let interrupt = Arc::new(Interrupt::default());
    let told = Arc::clone(&interrupt);
    let mut seen = false;
    each(move |number| {
        if seen {
            leave(number);
        }
        seen = true;
        told.signal(number);
        true
    })?;
    Ok(interrupt)
}

/// Starts watching for signals, in the background, for a command without a run: the number of the first one is sent,
/// a later one ends the process (see [`SAME_SIGNAL`]).
///
/// # Errors
/// As for [`watch`].
pub fn first() -> Result<UnboundedReceiver<i32>, Refusal> {
    let (sender, receiver) = unbounded_channel();
    let mut seen = false;
    each(move |number| {
        // Without a receiver the command has ended but for its last output.
        if seen || sender.send(number).is_err() {
            leave(number);
        }
        seen = true;
        true
    })?;
    Ok(receiver)
}

/// Starts sending the number of every signal, in the background, for a batch that begins.
///
/// # Errors
/// As for [`watch`].
pub fn all(sender: UnboundedSender<i32>) -> Result<(), Refusal> {
    bounded::begin();
    each(move |number| sender.send(number).is_ok())
}

/// Calls `told` with the number of every signal that asks the process to end, until it returns false, but for those
/// within [`SAME_SIGNAL`] after the first one. A signal that whoever started the process ignores, as `nohup` does with
/// SIGHUP, stays ignored.
fn each(mut told: impl FnMut(i32) -> bool + Send + 'static) -> Result<(), Refusal> {
    let wanted =
        |kind| signal(kind).map_err(|error| Refusal::Environment(format!("signals cannot be watched: {error}")));
    let runtime = runtime()?;
    let _registered_there = runtime.enter();
    let ignored = ignored_signals();
    let unless_ignored = |kind: SignalKind| match ignored >> (kind.as_raw_value() - 1) & 1 {
        0 => wanted(kind).map(Some),
        _ => Ok(None),
    };
    let mut term = wanted(SignalKind::terminate())?;
    let mut int = unless_ignored(SignalKind::interrupt())?;
    let mut hup = unless_ignored(SignalKind::hangup())?;
    // With a handler, exceeding the file size limit is a write error with its own exit code, instead of killing the
    // process.
    let file_size = wanted(SignalKind::from_raw(FILE_SIZE))?;
    runtime.spawn(async move {
        let _kept = file_size;
        let mut first: Option<Instant> = None;
        loop {
            let number = tokio::select! {
                _ = term.recv() => 15,
                () = next(&mut int) => 2,
                () = next(&mut hup) => 1,
            };
            if first.is_some_and(|at| at.elapsed() < SAME_SIGNAL) {
                continue;
            }
            first.get_or_insert_with(Instant::now);
            pipe::end_soon();
            if !told(number) {
                return;
            }
        }
    });
    Ok(())
}

/// The runtime of the thread that waits for signals and time limits.
fn runtime() -> Result<&'static Runtime, Refusal> {
    static RUNTIME: OnceLock<io::Result<Runtime>> = OnceLock::new();
    let made = RUNTIME.get_or_init(|| {
        let mut builder = tokio::runtime::Builder::new_multi_thread();
        builder.worker_threads(1).enable_all().build()
    });
    made.as_ref()
        .map_err(|error| Refusal::Environment(format!("signals cannot be watched: {error}")))
}

/// Waits for the next of these signals; for ever if it is ignored.
async fn next(signal: &mut Option<Signal>) {
    match signal {
        Some(signal) => {
            signal.recv().await;
        }
        None => std::future::pending().await,
    }
}

/// The mask of the signals that this process ignores, from `/proc`: bit N is signal N + 1. 0 if it cannot be read.
fn ignored_signals() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mut lines = status.lines();
    let mask = lines.find_map(|line| line.strip_prefix("SigIgn:"));
    mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok())
        .unwrap_or(0)
}

/// Starts watching the wall-clock limits of the run and of its steps, in the background. `deadline`: of the run. Of several
/// calls the earliest counts.
pub fn limit(interrupt: &Arc<Interrupt>, deadline: Instant) {
    limit_until(interrupt, deadline, CancellationToken::new());
}

/// Like [`limit`], but gives the limit up once `replaced` is cancelled.
pub fn limit_until(interrupt: &Arc<Interrupt>, deadline: Instant, replaced: CancellationToken) {
    bounded::begin();
    let interrupt = Arc::clone(interrupt);
    let wait = async move {
        if replaced
            .run_until_cancelled(interrupt.watch_clock(deadline))
            .await
            .is_some()
        {
            pipe::end_soon();
        }
    };
    match runtime() {
        Ok(runtime) => drop(runtime.spawn(wait)),
        // Those who watch for signals have been notified.
        Err(_) => drop(tokio::spawn(wait)),
    }
}

#[expect(
    clippy::exit,
    reason = "a later signal must end the process at once; journals and logs are complete at any time"
)]
fn leave(signal: i32) {
    std::process::exit(i32::from(exit::of_signal(signal)));
}
