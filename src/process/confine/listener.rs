//! The seccomp filter that suspends chosen system calls until they are answered, and the listener that answers them.

use super::bpf::{LOAD, NUMBER, RETURN, line};
use super::filter;
use super::mediate::{self, Mediator};
use super::report::step;
use crate::process::SignalScope;
use crate::process::descriptor_socket;
use crate::process::seccomp_listener::SeccompListener;
use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
use std::io;
use std::os::fd::{AsFd, OwnedFd};

/// The result of a suspended call where no listener is available.
const REFUSED: u32 = libc::SECCOMP_RET_ERRNO | libc::EPERM.unsigned_abs();

/// Passes the listener from the command, which creates it, to the process that answers.
pub(super) struct Handover {
    ours: OwnedFd,
    theirs: OwnedFd,
}

/// Reads and answers suspended calls.
pub(super) struct SyscallListener {
    calls: SeccompListener,
    mediator: Mediator,
}

impl Handover {
    /// A new socket pair for passing the listener.
    ///
    /// # Errors
    /// The system cannot create it, for example because too many files are open.
    pub fn new() -> io::Result<Self> {
        let (ours, theirs) = socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?;
        Ok(Self { ours, theirs })
    }

    /// The command's side: from now on its calls are suspended. If the kernel has no listener for this process (another
    /// supervisor has one, or the kernel is too old), the calls are refused instead.
    ///
    /// # Errors
    /// The listener cannot be handed over, or the kernel accepts neither the filter with a listener nor the one that
    /// refuses the calls.
    pub fn install(&self, scope: SignalScope) -> Result<(), String> {
        let asking = program(scope, libc::SECCOMP_RET_USER_NOTIF);
        let flags = libc::SECCOMP_FILTER_FLAG_NEW_LISTENER;
        let killable = flags | libc::SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV;
        match filter::install(&asking, killable).or_else(|_| filter::install(&asking, flags)) {
            Ok(Some(listener)) => step("handing over the listener", self.send(&listener)),
            Ok(None) | Err(_) => step(
                "setting the filter",
                filter::install(&program(scope, REFUSED), 0).map(|_| ()),
            ),
        }
    }

    fn send(&self, listener: &OwnedFd) -> io::Result<()> {
        Ok(descriptor_socket::send(&self.theirs, b"l", &[listener.as_fd()])?)
    }

    /// The other side: waits until the command has created its listener or continues without one.
    pub fn receive(self, mediator: Mediator) -> Option<SyscallListener> {
        drop(self.theirs);
        let (_, fds) = descriptor_socket::receive(&self.ours, &mut [0]).ok()?;
        let fd = fds.into_iter().next()?;
        let calls = SeccompListener::new(fd).ok()?;
        Some(SyscallListener { calls, mediator })
    }
}

impl AsFd for SyscallListener {
    fn as_fd(&self) -> std::os::fd::BorrowedFd<'_> {
        self.calls.as_fd()
    }
}

impl SyscallListener {
    /// Answers one suspended call. Call it when the descriptor is readable.
    pub fn answer(&self) {
        // A process that has been killed needs no answer.
        let Ok(Some(asked)) = self.calls.receive() else { return };
        let _ = self.calls.reply(&asked, self.mediator.answer(&self.calls, &asked));
    }
}

/// Returns `action` for the mediated calls and allows everything else.
fn program(scope: SignalScope, action: u32) -> Vec<libc::sock_filter> {
    let mut program = vec![line(LOAD, NUMBER, 0, 0)];
    program.extend(mediate::lines(scope, action));
    program.push(line(RETURN, libc::SECCOMP_RET_ALLOW, 0, 0));
    program
}
