//! Ties a child to its parent, so that the kernel signals the child when the parent ends, and starts this program as
//! such a child, for a supervisor of several runs.

use rustix::process::{
    Pid, Signal, getpid, getppid, kill_process, kill_process_group, set_parent_process_death_signal, setsid,
};
use std::ffi::OsString;
use std::fs::File;
use std::io;
use std::path::Path;
use std::process::{ExitStatus, Stdio};
use tokio::process::{Child, Command};

/// A child that the kernel kills when the thread that started it ends.
#[derive(Debug)]
pub struct SupervisedChild {
    child: Child,
}

/// Starts `program` in its own process group, without stdin and stdout; stderr goes to `log`. The child gets the
/// complete environment of this process and `env`.
///
/// Call this on a thread that lives as long as the process: the kernel sends SIGKILL when that thread ends
/// (`PR_SET_PDEATHSIG`).
///
/// # Errors
/// The program cannot be started.
pub fn start(program: &Path, args: &[OsString], env: &[(String, String)], log: File) -> io::Result<SupervisedChild> {
    let mut command = Command::new(program);
    command
        .args(args)
        .envs(env.iter().map(|(name, value)| (name, value)))
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(log)
        .process_group(0)
        .kill_on_drop(true);
    tie(&mut command, Signal::KILL, false);
    Ok(SupervisedChild {
        child: command.spawn()?,
    })
}

/// Makes the kernel send `signal` to the child when the thread that starts it ends. `session`: the child leads a session
/// and a process group of its own, and has no terminal.
#[expect(
    unsafe_code,
    reason = "only a hook between fork and exec can tie the child to its parent"
)]
pub(super) fn tie(command: &mut Command, signal: Signal, session: bool) {
    let parent = getpid();
    let hook = move || {
        follow(parent, signal)?;
        match session {
            true => setsid().map(|_| ()).map_err(io::Error::from),
            false => Ok(()),
        }
    };
    // SAFETY: the hook makes system calls on plain numbers and allocates nothing.
    unsafe {
        command.pre_exec(hook);
    }
}

/// Makes the kernel send `signal` to this process, a child of `parent` before its exec, when the thread that started it
/// ends. Only system calls on plain numbers.
///
/// # Errors
/// The parent has already ended.
pub(super) fn follow(parent: Pid, signal: Signal) -> io::Result<()> {
    set_parent_process_death_signal(Some(signal))?;
    // The parent may have died before the line above took effect.
    match getppid() == Some(parent) {
        true => Ok(()),
        false => Err(io::Error::from_raw_os_error(libc::ESRCH)),
    }
}

impl SupervisedChild {
    /// Its PID, while it has not been reaped.
    pub fn pid(&self) -> Option<i32> {
        self.child.id().and_then(|pid| i32::try_from(pid).ok())
    }

    /// Waits for its end.
    ///
    /// # Errors
    /// I/O errors of `waitpid`.
    pub async fn wait(&mut self) -> io::Result<ExitStatus> {
        self.child.wait().await
    }
}

/// Sends SIGTERM to a supervised child, given by its PID, or with `kill` SIGKILL to its process group.
pub fn signal_child(pid: i32, kill: bool) {
    if let Some(pid) = Pid::from_raw(pid) {
        // A child that has ended already needs no signal.
        let _ = match kill {
            true => kill_process_group(pid, Signal::KILL),
            false => kill_process(pid, Signal::TERM),
        };
    }
}
