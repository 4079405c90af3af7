//! Warns about data on stdin that no option asked for, without reading it.

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{FileType, SeekFrom, fstat, seek};
use std::sync::atomic::{AtomicBool, Ordering};

static READ: AtomicBool = AtomicBool::new(false);

/// Notes that stdin is read because the command line asked for it. Returns whether it had been read before.
pub fn was_read() -> bool {
    READ.swap(true, Ordering::Relaxed)
}

/// The warning about unread data on stdin, if there is any. A terminal, an empty pipe and `/dev/null` have none.
pub fn warning() -> Option<String> {
    (!READ.load(Ordering::Relaxed) && waits()).then(|| {
        "stdin has data that was not read: pass it to the prompt with --stdin, to a recipe with --input -, or close it with < /dev/null"
            .to_owned()
    })
}

fn waits() -> bool {
    let stdin = std::io::stdin();
    let Ok(found) = fstat(&stdin) else {
        return false;
    };
    match FileType::from_raw_mode(found.st_mode) {
        FileType::RegularFile => seek(&stdin, SeekFrom::Current(0)).is_ok_and(|at| (at as i64) < found.st_size),
        FileType::Fifo | FileType::Socket => {
            let mut polled = [PollFd::new(&stdin, PollFlags::IN)];
            let now = Timespec { tv_sec: 0, tv_nsec: 0 };
            // `poll` also reports the end of a pipe as readable.
            poll(&mut polled, Some(&now)).is_ok_and(|ready| ready > 0)
                && rustix::io::ioctl_fionread(&stdin).is_ok_and(|bytes| bytes > 0)
        }
        _ => false,
    }
}
