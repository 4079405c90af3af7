//! Starts this program as a child that the kernel kills when the parent ends, for a supervisor of several runs.

use rustix::process::{
    Pid, Signal, getpid, getppid, kill_process, kill_process_group, set_parent_process_death_signal,
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
#[expect(
    unsafe_code,
    reason = "only a hook between fork and exec can tie the child to its parent"
)]
pub fn start(program: &Path, args: &[OsString], env: &[(String, String)], log: File) -> io::Result<SupervisedChild> {
    let parent = getpid();
    let hook = move || {
        set_parent_process_death_signal(Some(Signal::KILL))?;
        // The parent may have died before the line above took effect.
        match getppid() == Some(parent) {
            true => Ok(()),
            false => Err(io::Error::from_raw_os_error(libc::ESRCH)),
        }
    };
    let mut command = Command::new(program);
    command
        .args(args)
        .envs(env.iter().map(|(name, value)| (name, value)))
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(log)
        .process_group(0)
        .kill_on_drop(true);
    // SAFETY: the hook makes two system calls on plain numbers and allocates nothing.
    unsafe {
        command.pre_exec(hook);
    }
    Ok(SupervisedChild {
        child: command.spawn()?,
    })
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
