//! The self-test's forbidden acts, tried by a confined process. An act that succeeds is a failure of the sandbox.

use super::spec::Trial;
use rustix::process::{Pid, getpid, getppid, test_kill_process};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::time::Duration;

/// Returns the acts that succeeded.
pub(super) fn succeeded(acts: &Trial) -> Vec<String> {
    let secret_of_parent = format!("/proc/{}/environ", acts.process);
    let tried = [
        ("write outside the workspace", std::fs::write(&acts.write, "x").is_ok()),
        ("read a file outside the workspace", std::fs::read(&acts.read).is_ok()),
        ("connect to a port of this machine", connects(acts.tcp)),
        (
            "read the environment of the parent",
            std::fs::read(secret_of_parent).is_ok(),
        ),
        ("signal the parent", signals(acts.process)),
        ("make a namespace", makes_namespace()),
        ("trace itself for a parent", asks_to_be_traced()),
    ];
    tried
        .into_iter()
        .filter(|(_, worked)| *worked)
        .map(|(act, _)| act.to_owned())
        .collect()
}

/// Whether a signal to this process is permitted; none is sent. In a namespace of processes the number may be that of
/// this process or of `init`.
fn signals(process: i32) -> bool {
    let target = Pid::from_raw(process);
    let inside = target == Some(getpid()) || target == getppid();
    !inside && target.is_some_and(|target| test_kill_process(target).is_ok())
}

fn connects(port: u16) -> bool {
    let to = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
    TcpStream::connect_timeout(&to, Duration::from_millis(300)).is_ok()
}

#[expect(unsafe_code, reason = "the act is a system call that must be refused")]
fn makes_namespace() -> bool {
    // SAFETY: changes only what this process may see, and it ends after the trial.
    unsafe { libc::unshare(libc::CLONE_NEWUSER) == 0 }
}

#[expect(unsafe_code, reason = "the act is a system call that must be refused")]
fn asks_to_be_traced() -> bool {
    // SAFETY: sets a flag of this process, which ends after the trial.
    unsafe { libc::ptrace(libc::PTRACE_TRACEME, 0, 0, 0) == 0 }
}
