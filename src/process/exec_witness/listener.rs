//! Waits for the notifications of one command's execs.

use crate::process::seccomp_listener::{SeccompListener, SeccompNotification};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::pipe::PipeFlags;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::time::Duration;

/// `SECCOMP_IOCTL_NOTIF_SET_FLAGS` and `SECCOMP_USER_NOTIF_FD_SYNC_WAKE_UP`, which `libc` does not have.
const SET_FLAGS: libc::Ioctl = 0x4008_2104;
const SYNC_WAKE_UP: u64 = 1;

/// The listener for one tree's notifications.
pub(super) struct ExecListener {
    /// Receives and answers.
    pub calls: SeccompListener,
    /// Closed when no more answers are needed.
    stop: OwnedFd,
}

/// The result of waiting.
pub(super) enum ListenerEvent {
    Asked(SeccompNotification),
    /// No notification came within the given time.
    Quiet,
    /// No process of the tree is left, or the listener was stopped.
    Over,
}

impl ExecListener {
    /// Takes over a listener. Dropping the second value stops it.
    ///
    /// # Errors
    /// The kernel's notifications are longer than supported, it does not tell their size, or no pipe can be created.
    pub fn new(fd: OwnedFd) -> io::Result<(Self, OwnedFd)> {
        let calls = SeccompListener::new(fd)?;
        wake_in_place(calls.as_fd());
        let (stop, stopper) = rustix::pipe::pipe_with(PipeFlags::CLOEXEC)?;
        Ok((Self { calls, stop }, stopper))
    }

    /// Waits for the next notification, at most `patience`.
    ///
    /// # Errors
    /// The listener can no longer be polled or read.
    pub fn next(&self, patience: Option<Duration>) -> io::Result<ListenerEvent> {
        let mut fds = [
            PollFd::new(&self.calls, PollFlags::IN),
            PollFd::new(&self.stop, PollFlags::empty()),
        ];
        let timeout = patience.and_then(|time| Timespec::try_from(time).ok());
        match poll(&mut fds, timeout.as_ref()) {
            Ok(0) | Err(Errno::INTR) => return Ok(ListenerEvent::Quiet),
            Ok(_) => {}
            Err(error) => return Err(error.into()),
        }
        let [asked, stopped] = fds.map(|fd| fd.revents());
        if stopped.intersects(PollFlags::HUP | PollFlags::ERR) {
            return Ok(ListenerEvent::Over);
        }
        if asked.contains(PollFlags::IN) {
            return Ok(self.calls.receive()?.map_or(ListenerEvent::Quiet, ListenerEvent::Asked));
        }
        Ok(ListenerEvent::Over)
    }

    /// Waits until the listener is stopped or no process of the tree is left.
    pub fn hold(&self) {
        let mut fds = [
            PollFd::new(&self.stop, PollFlags::empty()),
            PollFd::new(&self.calls, PollFlags::empty()),
        ];
        while matches!(poll(&mut fds, None), Ok(0) | Err(Errno::INTR)) {}
    }
}

/// Asks the kernel to run this thread at once on the CPU of the process that asks, and back (Linux 6.6): the one waits for
/// the other, and waking another CPU takes longer than the answer. On an older kernel nothing changes.
#[expect(unsafe_code, reason = "the setting is made by ioctl")]
fn wake_in_place(fd: BorrowedFd<'_>) {
    // SAFETY: the argument is a number, not a pointer.
    unsafe {
        libc::ioctl(fd.as_raw_fd(), SET_FLAGS, SYNC_WAKE_UP);
    }
}
