//! The self-test's forbidden acts, tried by a confined process. An act that succeeds is a failure of the sandbox.

use super::spec::Trial;
use rustix::process::{Pid, getpid, getppid, test_kill_process};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::time::Duration;

/// Returns the acts that succeeded.
pub(super) fn succeeded(acts: &Trial) -> Vec<String> {
    let secret_of_parent = format!("/proc/{}/environ", acts.process);
    let outside = is_outside(acts.process);
    let tried = [
        ("write outside the workspace", std::fs::write(&acts.write, "x").is_ok()),
        ("read a file outside the workspace", std::fs::read(&acts.read).is_ok()),
        ("connect to a port of this machine", connects(acts.tcp)),
        (
            "read the environment of the parent",
            outside && std::fs::read(secret_of_parent).is_ok(),
        ),
        ("signal the parent", outside && may_signal(acts.process)),
        ("make a namespace", makes_namespace()),
        ("trace itself for a parent", asks_to_be_traced()),
    ];
    tried
        .into_iter()
        .filter(|(_, worked)| *worked)
        .map(|(act, _)| act.to_owned())
        .collect()
}

/// Whether this PID can belong to a process outside the sandbox. If `overnight` is one of the first processes in a
/// container, its PID is low, and in the PID namespace of the sandbox the same number may be that of this process or of
/// `init`, the only processes there.
fn is_outside(process: i32) -> bool {
    let process = Pid::from_raw(process);
    process != Some(getpid()) && process != getppid()
}

/// Whether a signal to this process is permitted. No signal is sent.
fn may_signal(process: i32) -> bool {
    Pid::from_raw(process).is_some_and(|process| test_kill_process(process).is_ok())
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
