//! The child's side of the sandbox: what this program does when it is started as `overnight __confine`.
//!
//! ```text
//! overnight ─ spawns ─> outer ─ clone ─> init ─ fork ─> command
//!                       waits            pid 1          limits, Landlock, seccomp, then exec
//! ```
//! At `full` the outer process stays in the original namespaces, maps the users and waits; `init` builds the view of
//! the file system in new namespaces. At the other levels there is no outer process, and `init` is an ordinary process
//! that adopts orphans. In both cases `init` kills every process of the tree before it reports how the command ended.
//! When the parent dies, its end of the channel closes, and `init` does the same. If a step fails, nothing is run, and
//! the failure is reported through the channel.

pub(crate) mod cgroup;
mod filter;
mod init;
mod layers;
mod limits;
mod listener;
pub(crate) mod mediate;
mod memory;
pub(crate) mod notify;
mod peek;
mod piece;
mod report;
mod rules;
pub(crate) mod spec;
mod trial;
mod view;

use report::{leave, send_message, step};
pub(crate) use rules::SYSTEM;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::process::{Pid, PidfdFlags, Signal, WaitOptions, kill_process, pidfd_open, waitpid};
use spec::{ChildMessage, Spec};
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, FromRawFd, OwnedFd};
use std::process::ExitCode;

/// The first argument that selects this mode.
pub const ARGUMENT: &str = "__confine";

/// The entry point of the hidden command. Must be called while the program has one thread.
pub fn entry() -> ExitCode {
    let Some((spec, channel)) = inherited() else {
        return ExitCode::from(2);
    };
    // Created while the cgroup file systems are still visible; the command enters through open files.
    let groups = match (spec.level, &spec.task) {
        (super::SandboxLevel::Full | super::SandboxLevel::Landlock, spec::Task::Run { .. }) => {
            cgroup::Groups::make(spec.processes, spec.memory)
        }
        _ => cgroup::Groups::default(),
    };
    let done = match spec.level {
        super::SandboxLevel::Full => outer(&spec, &channel, &groups),
        super::SandboxLevel::Landlock | super::SandboxLevel::None => init::run(&spec, &channel, &groups),
    };
    drop(groups);
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            send_message(&channel, &ChildMessage::Failed(error));
            ExitCode::FAILURE
        }
    }
}

/// Takes over the order and the channel: two open descriptors whose numbers are the arguments after `ARGUMENT`.
#[expect(
    unsafe_code,
    reason = "descriptors that were left open through exec have no owner yet"
)]
fn inherited() -> Option<(Spec, OwnedFd)> {
    let mut numbers = std::env::args()
        .skip(2)
        .map(|text| text.parse::<i32>().ok().filter(|fd| *fd > 2));
    let (order, channel) = (numbers.next()??, numbers.next()??);
    for fd in [order, channel] {
        // SAFETY: asks about a number; closes and changes nothing but its own flag.
        if unsafe { libc::fcntl(fd, libc::F_SETFD, libc::FD_CLOEXEC) } < 0 {
            return None;
        }
    }
    if order == channel {
        return None;
    }
    // SAFETY: both numbers are open, as just seen, and nothing else in this fresh process owns them.
    let (mut order, channel) = unsafe { (File::from_raw_fd(order), OwnedFd::from_raw_fd(channel)) };
    let mut text = String::new();
    order.read_to_string(&mut text).ok()?;
    Some((serde_json::from_str(&text).ok()?, channel))
}

/// Starts `init` in new namespaces, maps its users, and waits for it or for the end of the parent.
fn outer(spec: &Spec, channel: &OwnedFd, groups: &cgroup::Groups) -> Result<(), String> {
    let (go_read, go_write) = step("pipe", io::pipe())?;
    init::block_signals();
    let flags = libc::CLONE_NEWUSER
        | libc::CLONE_NEWNS
        | libc::CLONE_NEWPID
        | libc::CLONE_NEWNET
        | libc::CLONE_NEWIPC
        | libc::CLONE_NEWUTS;
    let Some(inner) = step("new namespaces", clone(flags))? else {
        drop(go_write);
        let code = inside(spec, channel, groups, go_read);
        leave(code);
    };
    drop(go_read);
    if let Err(error) = step("mapping users", map_users(inner)) {
        let _ = kill_process(inner, Signal::KILL);
        let _ = waitpid(Some(inner), WaitOptions::empty());
        return Err(error);
    }
    let _ = (&go_write).write_all(b"g");
    drop(go_write);
    init::let_go_of_outputs();
    let gone = step("watching", pidfd_open(inner, PidfdFlags::empty()))?;
    let mut watched = [
        PollFd::new(&gone, PollFlags::IN),
        PollFd::from_borrowed_fd(channel.as_fd(), PollFlags::empty()),
    ];
    let _ = poll(&mut watched, None);
    // Either it has ended, or the parent has and it must end.
    let _ = kill_process(inner, Signal::KILL);
    let _ = waitpid(Some(inner), WaitOptions::empty());
    Ok(())
}

/// What `init` does in the new namespaces.
fn inside(spec: &Spec, channel: &OwnedFd, groups: &cgroup::Groups, mut go: impl Read) -> i32 {
    let mut word = [0];
    if !matches!(go.read(&mut word), Ok(1)) {
        return 1;
    }
    drop(go);
    let done = step(
        "death signal",
        rustix::process::set_parent_process_death_signal(Some(Signal::KILL)),
    )
    .and_then(|()| view::build(spec, channel))
    // Resources of the view are released when the last process of the tree has ended.
    .and_then(|_held| init::run(spec, channel, groups));
    match done {
        Ok(()) => 0,
        Err(error) => {
            send_message(channel, &ChildMessage::Failed(error));
            1
        }
    }
}

/// Like `fork`, into new namespaces. `None` in the child.
#[expect(unsafe_code, reason = "no safe call makes a process in new namespaces")]
fn clone(flags: i32) -> io::Result<Option<Pid>> {
    let flags = i64::from(flags | libc::SIGCHLD);
    // SAFETY: no new stack, so this is a fork; the process has one thread, so no lock is held in the child.
    let pid = unsafe { libc::syscall(libc::SYS_clone, flags, 0, 0, 0, 0) };
    if pid < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(i32::try_from(pid).ok().and_then(Pid::from_raw))
}

/// Maps every user id to itself. A privileged caller maps all ids that it has; any other only its own.
fn map_users(inner: Pid) -> io::Result<()> {
    let at = |name: &str| format!("/proc/{}/{name}", inner.as_raw_nonzero());
    let same = |own: &str| -> io::Result<String> {
        let own = std::fs::read_to_string(own)?;
        let lines = own.lines().filter_map(|line| {
            let mut fields = line.split_ascii_whitespace();
            let (first, count) = (fields.next()?, fields.nth(1)?);
            Some(format!("{first} {first} {count}\n"))
        });
        Ok(lines.collect())
    };
    if rustix::process::geteuid().is_root() {
        std::fs::write(at("uid_map"), same("/proc/self/uid_map")?)?;
        return std::fs::write(at("gid_map"), same("/proc/self/gid_map")?);
    }
    let (user, group) = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
    std::fs::write(at("setgroups"), "deny")?;
    std::fs::write(at("uid_map"), format!("{user} {user} 1\n"))?;
    std::fs::write(at("gid_map"), format!("{group} {group} 1\n"))
}
