//! Writes to stdout and stderr that have a time limit while a run or batch is under way. A pipe that stays open and
//! that nobody reads would otherwise stop it, with its signals and its time limit. Other commands wait for their
//! reader, who may be a pager.

use crate::base::sync::lock;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::stdio;
use std::io;
use std::os::fd::BorrowedFd;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// How long stdout may take nothing while a run or batch is under way. Then writing to it is an error: its output is what
/// the caller asked for.
const STDOUT_WAIT: Duration = Duration::from_secs(60);
/// How long stderr may take nothing. Then its lines are left out until it takes some again.
const STDERR_WAIT: Duration = Duration::from_secs(5);
/// Both, once the command has been told to end.
const LAST_WAIT: Duration = Duration::from_secs(2);
/// Between two looks at whether the command has been told to end.
const LOOK_EVERY: Duration = Duration::from_millis(50);
/// What a pipe that is ready takes without waiting, in bytes (`PIPE_BUF`).
const PART: usize = 4096;

/// Whether a run or batch is under way, or has been in this process.
static UNDER_WAY: AtomicBool = AtomicBool::new(false);
/// Whether the command has been told to end.
static ENDING: AtomicBool = AtomicBool::new(false);
static STDOUT: Mutex<()> = Mutex::new(());
/// How many writes to stderr were left out since it last took one; `None` while it is read.
static STDERR: Mutex<Option<u64>> = Mutex::new(None);

/// From now on stdout has a time limit: a run or batch begins, with limits and locks that must not wait for a reader.
pub fn begin() {
    UNDER_WAY.store(true, Ordering::SeqCst);
}

/// Shortens the time that is waited for a reader: a signal has arrived, or the time limit is reached.
pub fn end_soon() {
    ENDING.store(true, Ordering::SeqCst);
}

/// Writes all of `bytes` to stdout.
///
/// # Errors
/// I/O errors of the stream; [`io::ErrorKind::TimedOut`] if nobody reads it while a run or batch is under way, or after
/// a signal.
pub fn stdout(bytes: &[u8]) -> io::Result<()> {
    let _alone = lock(&STDOUT);
    let wait = UNDER_WAY.load(Ordering::SeqCst).then_some(STDOUT_WAIT);
    write(stdio::stdout(), bytes, wait)
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
    match write(stdio::stderr(), &[&notice, bytes].concat(), Some(wait)) {
        Err(error) if error.kind() == io::ErrorKind::TimedOut => *left_out = Some(left_out.unwrap_or_default() + 1),
        _ => *left_out = None,
    }
}

/// Writes in parts that a ready pipe takes at once. `wait` is how long the stream may take nothing; `None`: until the
/// command is told to end.
fn write(stream: BorrowedFd<'_>, mut bytes: &[u8], wait: Option<Duration>) -> io::Result<()> {
    while !bytes.is_empty() {
        wait_until_ready(stream, wait)?;
        match rustix::io::write(stream, &bytes[..bytes.len().min(PART)]) {
            Ok(count) => bytes = &bytes[count..],
            Err(Errno::INTR | Errno::AGAIN) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

fn wait_until_ready(stream: BorrowedFd<'_>, wait: Option<Duration>) -> io::Result<()> {
    let start = Instant::now();
    loop {
        let mut ready = [PollFd::from_borrowed_fd(stream, PollFlags::OUT)];
        let look = wait.map_or(LOOK_EVERY, |wait| wait.min(LOOK_EVERY));
        let look = Timespec::try_from(look).map_err(io::Error::other)?;
        match poll(&mut ready, Some(&look)) {
            Ok(0) | Err(Errno::INTR) => {}
            // Also for an error of the stream, which the write returns.
            Ok(_) => return Ok(()),
            Err(error) => return Err(error.into()),
        }
        let most = match ENDING.load(Ordering::SeqCst) {
            true => Some(wait.map_or(LAST_WAIT, |wait| wait.min(LAST_WAIT))),
            false => wait,
        };
        if let Some(most) = most.filter(|most| start.elapsed() >= *most) {
            let why = format!("nobody read it for {} s", most.as_secs());
            return Err(io::Error::new(io::ErrorKind::TimedOut, why));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read;
    use std::os::fd::AsFd;

    #[test]
    fn a_pipe_that_nobody_reads_is_an_error_and_one_that_is_read_gets_everything() {
        let bytes = vec![7; 200_000];
        let (_reader, writer) = io::pipe().unwrap();
        let error = write(writer.as_fd(), &bytes, Some(Duration::from_millis(20))).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
        let (mut reader, writer) = io::pipe().unwrap();
        let whole = std::thread::spawn(move || {
            let mut read = Vec::new();
            reader.read_to_end(&mut read).map(|_| read)
        });
        write(writer.as_fd(), &bytes, Some(Duration::from_secs(10))).unwrap();
        drop(writer);
        assert_eq!(whole.join().unwrap().unwrap(), bytes);
    }

    #[test]
    fn without_a_limit_a_reader_may_come_late() {
        let bytes = vec![7; 200_000];
        let (mut reader, writer) = io::pipe().unwrap();
        let whole = std::thread::spawn(move || {
            std::thread::sleep(Duration::from_millis(120));
            let mut read = Vec::new();
            reader.read_to_end(&mut read).map(|_| read)
        });
        write(writer.as_fd(), &bytes, None).unwrap();
        drop(writer);
        assert_eq!(whole.join().unwrap().unwrap(), bytes);
    }

    #[test]
    fn a_closed_pipe_is_its_own_error() {
        let (reader, writer) = io::pipe().unwrap();
        drop(reader);
        let error = write(writer.as_fd(), b"x", Some(Duration::from_secs(10))).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::BrokenPipe);
    }
}
