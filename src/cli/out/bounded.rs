//! Writes to stdout and stderr that have a time limit while a run or batch is under way. Other commands wait for their
//! reader, who may be a pager.

use super::own_file;
use crate::base::sync::lock;
use crate::journal::pipe;
use rustix::stdio;
use std::io;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// How long stderr may take nothing. Then its lines are left out until it takes some again.
const STDERR_WAIT: Duration = Duration::from_secs(5);

/// Whether a run or batch is under way, or has been in this process.
static UNDER_WAY: AtomicBool = AtomicBool::new(false);
static STDOUT: Mutex<()> = Mutex::new(());
/// How many writes to stderr were left out since it last took one; `None` while it is read.
static STDERR: Mutex<Option<u64>> = Mutex::new(None);

/// From now on stdout has a time limit: a run or batch begins, with limits and locks that must not wait for a reader.
pub fn begin() {
    UNDER_WAY.store(true, Ordering::SeqCst);
}

/// Writes all of `bytes` to stdout.
///
/// # Errors
/// I/O errors of the stream; [`io::ErrorKind::TimedOut`] if nobody reads it while a run or batch is under way, or after
/// a signal.
pub fn stdout(bytes: &[u8]) -> io::Result<()> {
    let _alone = lock(&STDOUT);
    let wait = UNDER_WAY.load(Ordering::SeqCst).then_some(pipe::WAIT);
    own_file::writing(stdio::stdout(), bytes, || pipe::write(stdio::stdout(), bytes, wait))
}

/// Writes all of `bytes` to stderr, or leaves it out if nobody reads it. Errors are ignored: there is nowhere to report
/// them.
pub fn stderr(bytes: &[u8]) {
    let mut left_out = lock(&STDERR);
    let wait = if left_out.is_some() {
        Duration::ZERO
    } else {
        STDERR_WAIT
    };
    let notice = left_out.map_or(Vec::new(), |count| {
        format!("\n[overnight: {count} messages are left out here, because nobody read stderr]\n").into_bytes()
    });
    let bytes = [&notice, bytes].concat();
    match own_file::writing(stdio::stderr(), &bytes, || {
        pipe::write(stdio::stderr(), &bytes, Some(wait))
    }) {
        Err(error) if error.kind() == io::ErrorKind::TimedOut => *left_out = Some(left_out.unwrap_or_default() + 1),
        _ => *left_out = None,
    }
}
