//! Receives seccomp notifications from the kernel and answers them (seccomp_unotify(2)).

use rustix::io::Errno;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

/// Buffer size in words of 8 bytes: the structures of a later kernel may be longer than those of `libc`.
const ROOM: usize = 64;

/// The listener of a filter: suspended calls are received from it and answered through it.
pub(super) struct SeccompListener(OwnedFd);

/// One thread that is suspended in a system call.
#[derive(Clone, Copy, Debug)]
pub(super) struct SeccompNotification {
    id: u64,
    /// The thread's id in the PID namespace of this process.
    pub thread: i32,
    pub call: i64,
    pub arguments: [u64; 6],
}

/// How a suspended call ends.
#[derive(Clone, Copy, Debug)]
pub(super) enum SeccompReply {
    /// It returns 0; the kernel does not execute it.
    Succeed,
    /// It fails with this error; the kernel does not execute it.
    Fail(Errno),
    /// The kernel executes it.
    GoOn,
}

impl AsFd for SeccompListener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl SeccompListener {
    /// Takes over a listener.
    ///
    /// # Errors
    /// This kernel's structures are longer than supported, or their sizes are not known.
    pub fn new(fd: OwnedFd) -> io::Result<Self> {
        let (question, answer) = sizes()?;
        let most = ROOM * size_of::<u64>();
        if question > most || answer > most {
            return Err(io::Error::other(
                "this kernel's seccomp notifications are longer than supported",
            ));
        }
        Ok(Self(fd))
    }

    /// The next notification; blocks while there is none. `None` when the caller was killed before it was received.
    ///
    /// # Errors
    /// The listener is unusable.
    #[expect(unsafe_code, reason = "notifications are received by ioctl")]
    pub fn receive(&self) -> io::Result<Option<SeccompNotification>> {
        let mut space = [0_u64; ROOM];
        // SAFETY: the kernel writes its structure, which fits as was checked at the start, into zeroed memory that
        // outlives the call.
        let done = unsafe {
            libc::ioctl(
                self.0.as_raw_fd(),
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
        Ok(Some(SeccompNotification {
            id: asked.id,
            thread: i32::try_from(asked.pid).unwrap_or(0),
            call: i64::from(asked.data.nr),
            arguments: asked.data.args,
        }))
    }

    /// Whether the caller is still suspended. If so, what was read of it in `/proc` did not belong to a later process
    /// with the same PID.
    #[expect(unsafe_code, reason = "notifications are checked by ioctl")]
    pub fn waits(&self, asked: &SeccompNotification) -> bool {
        // SAFETY: the call only reads the number.
        unsafe {
            libc::ioctl(
                self.0.as_raw_fd(),
                libc::SECCOMP_IOCTL_NOTIF_ID_VALID,
                &raw const asked.id,
            ) == 0
        }
    }

    /// Ends a suspended call.
    ///
    /// # Errors
    /// As for [`SeccompListener::go_on`].
    pub fn reply(&self, asked: &SeccompNotification, reply: SeccompReply) -> io::Result<()> {
        match reply {
            SeccompReply::Succeed => self.answer(asked, 0, 0),
            SeccompReply::Fail(error) => self.fail(asked, error.raw_os_error()),
            SeccompReply::GoOn => self.go_on(asked),
        }
    }

    /// Lets the call continue as if it had not been intercepted.
    ///
    /// # Errors
    /// The kernel rejects the answer. It is no error if the caller no longer waits for one.
    pub fn go_on(&self, asked: &SeccompNotification) -> io::Result<()> {
        self.answer(asked, 0, libc::SECCOMP_USER_NOTIF_FLAG_CONTINUE)
    }

    /// Makes the call fail with this error.
    ///
    /// # Errors
    /// As for [`SeccompListener::go_on`].
    pub fn fail(&self, asked: &SeccompNotification, errno: i32) -> io::Result<()> {
        self.answer(asked, -errno.abs().max(1), 0)
    }

    /// Makes the call return 0 or, if `error` is negative, fail with that errno; `flags` as in `seccomp_notif_resp`.
    #[expect(unsafe_code, reason = "notifications are answered by ioctl")]
    fn answer(&self, asked: &SeccompNotification, error: i32, flags: libc::c_ulong) -> io::Result<()> {
        let mut space = [0_u64; ROOM];
        let answer = space.as_mut_ptr().cast::<libc::seccomp_notif_resp>();
        // SAFETY: the space is larger than the structure and aligned for it; the kernel reads no more than fits, as was
        // checked at the start.
        let done = unsafe {
            (*answer).id = asked.id;
            (*answer).error = error;
            (*answer).flags = flags as u32;
            libc::ioctl(self.0.as_raw_fd(), libc::SECCOMP_IOCTL_NOTIF_SEND, answer)
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
