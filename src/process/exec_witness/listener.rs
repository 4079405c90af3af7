//! Receives seccomp notifications from the kernel and answers them (seccomp_unotify(2)).

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::pipe::PipeFlags;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::time::Duration;

/// Buffer size in words of 8 bytes: the structures of a later kernel may be longer than those of `libc`.
const ROOM: usize = 64;

/// `SECCOMP_IOCTL_NOTIF_SET_FLAGS` and `SECCOMP_USER_NOTIF_FD_SYNC_WAKE_UP`, which `libc` does not have.
const SET_FLAGS: libc::Ioctl = 0x4008_2104;
const SYNC_WAKE_UP: u64 = 1;

/// The listener for one tree's notifications.
pub(super) struct ExecListener {
    fd: OwnedFd,
    /// Closed when no more answers are needed.
    stop: OwnedFd,
}

/// One thread that is suspended in a system call.
#[derive(Clone, Copy, Debug)]
pub(super) struct ExecNotification {
    id: u64,
    /// The thread's id in the PID namespace of this process.
    pub thread: i32,
    pub call: i64,
    pub arguments: [u64; 6],
}

/// The result of waiting.
pub(super) enum ListenerEvent {
    Asked(ExecNotification),
    /// No notification came within the given time.
    Quiet,
    /// No process of the tree is left, or the listener was stopped.
    Over,
}

impl ExecListener {
    /// Takes over a listener. Dropping the second value stops it.
    pub fn new(fd: OwnedFd) -> io::Result<(Self, OwnedFd)> {
        let (question, answer) = sizes()?;
        let most = ROOM * size_of::<u64>();
        if question > most || answer > most {
            return Err(io::Error::other(
                "this kernel's seccomp notifications are longer than supported",
            ));
        }
        wake_in_place(&fd);
        let (stop, stopper) = rustix::pipe::pipe_with(PipeFlags::CLOEXEC)?;
        Ok((Self { fd, stop }, stopper))
    }

    /// Waits for the next notification, at most `patience`.
    pub fn next(&self, patience: Option<Duration>) -> io::Result<ListenerEvent> {
        let mut fds = [
            PollFd::new(&self.fd, PollFlags::IN),
            PollFd::new(&self.stop, PollFlags::empty()),
        ];
        let timeout = patience.and_then(|time| Timespec::try_from(time).ok());
        match poll(&mut fds, timeout.as_ref()) {
            Ok(0) | Err(rustix::io::Errno::INTR) => return Ok(ListenerEvent::Quiet),
            Ok(_) => {}
            Err(error) => return Err(error.into()),
        }
        let [asked, stopped] = fds.map(|fd| fd.revents());
        if stopped.intersects(PollFlags::HUP | PollFlags::ERR) {
            return Ok(ListenerEvent::Over);
        }
        if asked.contains(PollFlags::IN) {
            return Ok(self.receive()?.map_or(ListenerEvent::Quiet, ListenerEvent::Asked));
        }
        Ok(ListenerEvent::Over)
    }

    /// Waits until the listener is stopped or no process of the tree is left.
    pub fn hold(&self) {
        let mut fds = [
            PollFd::new(&self.stop, PollFlags::empty()),
            PollFd::new(&self.fd, PollFlags::empty()),
        ];
        while matches!(poll(&mut fds, None), Ok(0) | Err(rustix::io::Errno::INTR)) {}
    }

    /// `None` when the caller was killed meanwhile.
    #[expect(unsafe_code, reason = "notifications are received by ioctl")]
    fn receive(&self) -> io::Result<Option<ExecNotification>> {
        let mut space = [0_u64; ROOM];
        // SAFETY: the kernel writes its structure, which fits as was checked at the start, into zeroed memory that
        // outlives the call.
        let done = unsafe {
            libc::ioctl(
                self.fd.as_raw_fd(),
                libc::SECCOMP_IOCTL_NOTIF_RECV,
                space.as_mut_ptr().cast::<libc::seccomp_notif>(),
            )
        };
        if done != 0 {
            let error = io::Error::last_os_error();
            return match error.raw_os_error() {
                Some(libc::ENOENT | libc::EINTR | libc::EAGAIN) => Ok(None),
                _ => Err(error),
            };
        }
        // SAFETY: the space is larger than the structure, aligned for it, and all bit patterns are valid numbers.
        let asked = unsafe { &*space.as_ptr().cast::<libc::seccomp_notif>() };
        Ok(Some(ExecNotification {
            id: asked.id,
            thread: i32::try_from(asked.pid).unwrap_or(0),
            call: i64::from(asked.data.nr),
            arguments: asked.data.args,
        }))
    }

    /// Whether the caller is still suspended. If so, what was read of it in `/proc` did not belong to a later process
    /// with the same PID.
    #[expect(unsafe_code, reason = "notifications are checked by ioctl")]
    pub fn waits(&self, asked: &ExecNotification) -> bool {
        // SAFETY: the call only reads the number.
        unsafe {
            libc::ioctl(
                self.fd.as_raw_fd(),
                libc::SECCOMP_IOCTL_NOTIF_ID_VALID,
                &raw const asked.id,
            ) == 0
        }
    }

    /// Lets the call continue as if it had not been intercepted.
    pub fn go_on(&self, asked: &ExecNotification) -> io::Result<()> {
        self.answer(asked, 0, libc::SECCOMP_USER_NOTIF_FLAG_CONTINUE)
    }

    /// Makes the call return 0 without executing it.
    pub fn succeed(&self, asked: &ExecNotification) -> io::Result<()> {
        self.answer(asked, 0, 0)
    }

    /// Makes the call fail with this error.
    pub fn fail(&self, asked: &ExecNotification, errno: i32) -> io::Result<()> {
        self.answer(asked, -errno.abs().max(1), 0)
    }

    #[expect(unsafe_code, reason = "notifications are answered by ioctl")]
    fn answer(&self, asked: &ExecNotification, error: i32, flags: libc::c_ulong) -> io::Result<()> {
        let mut space = [0_u64; ROOM];
        let answer = space.as_mut_ptr().cast::<libc::seccomp_notif_resp>();
        // SAFETY: the space is larger than the structure and aligned for it; the kernel reads no more than fits, as was
        // checked at the start.
        let done = unsafe {
            (*answer).id = asked.id;
            (*answer).error = error;
            (*answer).flags = flags as u32;
            libc::ioctl(self.fd.as_raw_fd(), libc::SECCOMP_IOCTL_NOTIF_SEND, answer)
        };
        if done == 0 {
            return Ok(());
        }
        let error = io::Error::last_os_error();
        match error.raw_os_error() {
            // The caller was killed, or a signal interrupted the call (before Linux 5.19), which is then notified
            // again.
            Some(libc::ENOENT) => Ok(()),
            _ => Err(error),
        }
    }
}

/// Asks the kernel to run this thread at once on the CPU of the process that asks, and back (Linux 6.6): the one waits for
/// the other, and waking another CPU takes longer than the answer. On an older kernel nothing changes.
#[expect(unsafe_code, reason = "the setting is made by ioctl")]
fn wake_in_place(fd: &OwnedFd) {
    // SAFETY: the argument is a number, not a pointer.
    unsafe {
        libc::ioctl(fd.as_raw_fd(), SET_FLAGS, SYNC_WAKE_UP);
    }
}

/// Sizes in bytes of the kernel's notification and response structures.
#[expect(unsafe_code, reason = "sizes are queried by a system call")]
fn sizes() -> io::Result<(usize, usize)> {
    let mut sizes = libc::seccomp_notif_sizes {
        seccomp_notif: 0,
        seccomp_notif_resp: 0,
        seccomp_data: 0,
    };
    // SAFETY: the kernel fills the structure, which lives through the call.
    let done = unsafe { libc::syscall(libc::SYS_seccomp, libc::SECCOMP_GET_NOTIF_SIZES, 0, &raw mut sizes) };
    if done != 0 {
        return Err(io::Error::last_os_error());
    }
    Ok((usize::from(sizes.seccomp_notif), usize::from(sizes.seccomp_notif_resp)))
}
