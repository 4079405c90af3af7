//! How the confined child reports: messages on the channel, errors with the name of the failed step, and its exit.

use super::spec::ChildMessage;
use crate::process::descriptor_socket;
use std::fs::File;
use std::io::{self, Write};
use std::os::fd::{AsFd, OwnedFd};

/// Sends one message. Errors are ignored: they mean that the parent has ended.
pub(super) fn send_message(channel: &OwnedFd, message: &ChildMessage) {
    let Ok(copy) = channel.try_clone() else { return };
    if let Ok(mut line) = serde_json::to_vec(message) {
        line.push(b'\n');
        let _ = File::from(copy).write_all(&line);
    }
}

/// Sends one message together with a descriptor.
pub(super) fn send_with_descriptor(channel: &OwnedFd, message: &ChildMessage, fd: &impl AsFd) -> io::Result<()> {
    let mut line = serde_json::to_vec(message)?;
    line.push(b'\n');
    Ok(descriptor_socket::send(channel, &line, &[fd.as_fd()])?)
}

/// Adds the name of the failed step to an error.
pub(super) fn step<T, E: std::fmt::Display>(what: impl std::fmt::Display, result: Result<T, E>) -> Result<T, String> {
    result.map_err(|error| format!("{what}: {error}"))
}

/// Ends a forked child without running the parent's exit handlers.
#[expect(unsafe_code, reason = "a forked copy must not run the exit handlers of its original")]
pub(super) fn leave(code: i32) -> ! {
    // SAFETY: ends the process; touches nothing.
    unsafe { libc::_exit(code) }
}
