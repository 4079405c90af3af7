//! Writes to pipes, terminals and devices with a time limit. One that stays open and that nobody reads would otherwise stop
//! the command, with its signals and its time limit.

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// How long an output that the caller asked for may take nothing. Then writing to it is an error.
pub const WAIT: Duration = Duration::from_secs(60);
/// The longest wait once the command has been asked to end.
const LAST_WAIT: Duration = Duration::from_secs(2);
/// Interval between checks whether the command has been asked to end.
const LOOK_EVERY: Duration = Duration::from_millis(50);
/// What a pipe that is ready takes without waiting, in bytes (`PIPE_BUF`).
const PART: usize = 4096;

/// Whether the command has been asked to end.
static ENDING: AtomicBool = AtomicBool::new(false);

/// Shortens the time that is waited for a reader: a signal has arrived, or the time limit is reached.
pub fn end_soon() {
    ENDING.store(true, Ordering::SeqCst);
}

/// Writes in parts that a ready pipe takes at once. Gives up when the stream has taken nothing for
/// `wait`, or with `None` only when the command has to end.
///
/// # Errors
/// I/O errors of the stream; [`io::ErrorKind::TimedOut`] if nobody reads it.
pub fn write(stream: BorrowedFd<'_>, mut bytes: &[u8], wait: Option<Duration>) -> io::Result<()> {
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

/// Writes to what has this path, which takes nothing for [`WAIT`] at most. For a pipe that includes the time until
/// somebody opens it to read.
///
/// # Errors
/// As for [`write`]; it cannot be opened.
pub fn write_to(path: &Path, bytes: &[u8]) -> io::Result<()> {
    write_within(path, bytes, WAIT)
}

fn write_within(path: &Path, bytes: &[u8], wait: Duration) -> io::Result<()> {
    let file = open(path, wait)?;
    write(file.as_fd(), bytes, Some(wait))
}

/// Opens a file to write. Opening a pipe in the ordinary way blocks until it has a reader.
fn open(path: &Path, wait: Duration) -> io::Result<File> {
    let mut options = File::options();
    options.write(true).create(true).truncate(true);
    options.custom_flags(libc::O_NONBLOCK);
    let start = Instant::now();
    loop {
        match options.open(path) {
            Err(error) if error.raw_os_error() == Some(libc::ENXIO) && is_named_pipe(path) => {}
            opened => return opened,
        }
        give_up_after(start, Some(wait))?;
        std::thread::sleep(LOOK_EVERY.min(wait));
    }
}

/// Whether somebody can still open this path to read. A pipe without a name never gets a new reader.
fn is_named_pipe(path: &Path) -> bool {
    let named = std::fs::canonicalize(path).and_then(std::fs::symlink_metadata);
    named.is_ok_and(|found| found.file_type().is_fifo())
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
        give_up_after(start, wait)?;
    }
}

/// An error if a wait since `start` for a reader has lasted long enough.
fn give_up_after(start: Instant, wait: Option<Duration>) -> io::Result<()> {
    let most = match ENDING.load(Ordering::SeqCst) {
        true => Some(wait.map_or(LAST_WAIT, |wait| wait.min(LAST_WAIT))),
        false => wait,
    };
    match most.filter(|most| start.elapsed() >= *most) {
        Some(most) => {
            let why = format!("nobody read it for {} s", most.as_secs());
            Err(io::Error::new(io::ErrorKind::TimedOut, why))
        }
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read;

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

    #[test]
    fn a_named_pipe_waits_for_its_reader_but_not_without_end() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("pipe");
        let mode = rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR;
        rustix::fs::mknodat(rustix::fs::CWD, &path, rustix::fs::FileType::Fifo, mode, 0).unwrap();
        let bytes = vec![7; 200_000];
        let error = write_within(&path, &bytes, Duration::from_millis(20)).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut, "nobody opens it");
        let stalled = File::options()
            .read(true)
            .custom_flags(libc::O_NONBLOCK)
            .open(&path)
            .unwrap();
        let error = write_within(&path, &bytes, Duration::from_millis(20)).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut, "nobody reads it");
        drop(stalled);
        let late = path.clone();
        let whole = std::thread::spawn(move || {
            std::thread::sleep(Duration::from_millis(60));
            std::fs::read(late)
        });
        write_within(&path, &bytes, Duration::from_secs(10)).unwrap();
        assert_eq!(whole.join().unwrap().unwrap(), bytes);
    }
}
