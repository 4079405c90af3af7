//! Work on what others wrote (a schema, a page), which may take any time: on a thread of its own, for a limited time.
//! Nothing waits for a thread that takes longer, not even the end of the process.

use crate::base::sync::lock;
use std::sync::mpsc;
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

/// Stack size in bytes: readers of nested documents recurse.
const STACK: usize = 64 << 20;
/// The most threads that took too long and still work. While there are as many, no other is started.
const MOST_LATE: usize = 4;

/// Those that took too long.
static LATE: Mutex<Vec<Weak<()>>> = Mutex::new(Vec::new());

/// Why there is no result of some work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Unfinished {
    /// It takes longer than its limit.
    TooLong,
    /// It was not started, or ended with a panic. This says nothing about how long it takes.
    NotDone,
}

/// What `work` returns.
///
/// # Errors
/// [`Unfinished::TooLong`] if it takes longer than `limit`, [`Unfinished::NotDone`] if it cannot be started or ends with
/// a panic.
pub(super) fn within<T: Send + 'static>(
    limit: Duration,
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, Unfinished> {
    {
        let mut late = lock(&LATE);
        late.retain(|work| work.strong_count() > 0);
        if late.len() >= MOST_LATE {
            return Err(Unfinished::NotDone);
        }
    }
    let working = Arc::new(());
    let own = Arc::clone(&working);
    let (told, done) = mpsc::sync_channel(1);
    let thread = std::thread::Builder::new().name("time-limit".to_owned());
    thread
        .stack_size(STACK)
        .spawn(move || {
            let _working = own;
            // Nobody may wait any more.
            let _ = told.send(work());
        })
        .map_err(|_| Unfinished::NotDone)?;
    done.recv_timeout(limit).map_err(|error| match error {
        mpsc::RecvTimeoutError::Timeout => {
            lock(&LATE).push(Arc::downgrade(&working));
            Unfinished::TooLong
        }
        mpsc::RecvTimeoutError::Disconnected => Unfinished::NotDone,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_takes_too_long_is_not_waited_for() {
        assert_eq!(within(Duration::from_secs(30), || 1), Ok(1));
        // Ends only when nobody waits for it any more.
        let (release, released) = mpsc::channel::<()>();
        let slow = move || {
            let _ = released.recv();
        };
        assert_eq!(within(Duration::from_millis(10), slow), Err(Unfinished::TooLong));
        drop(release);
        let fails = || -> u8 { std::panic::resume_unwind(Box::new(())) };
        assert_eq!(within(Duration::from_secs(30), fails), Err(Unfinished::NotDone));
    }
}
