//! The child's side of the sandbox: what this program does when it is started as `overnight __confine`.
//!
//! ```text
//! overnight ─ spawns ─> outer ─ clone ─> init ─ fork ─> command
//!                       waits            pid 1          limits, Landlock, seccomp, then exec
//! ```
//! At `full` and `landlock` the outer process makes control groups, waits, and removes them. At `full` it stays in the
//! original namespaces and maps the users, while `init` builds the view of the file system in new namespaces. At `none`
//! there is no outer process. `init` adopts orphans, and kills every process of the tree before it reports how the
//! command ended. When the parent dies, its end of the channel closes, and every process of the tree ends. If a step
//! fails, nothing is run, and the failure is reported through the channel.
//!
//! What does not depend on the command (starting this program, namespaces, entering control groups, for which the
//! kernel waits up to 10 ms) is done before the order arrives, so that a child can be started ahead of its command.

mod bpf;
pub(crate) mod cgroup;
mod cloned_mount;
mod filter;
mod init;
mod layers;
mod limits;
mod listener;
pub(crate) mod mediate;
mod memory;
mod new_root;
pub(crate) mod notify;
pub(crate) mod order;
mod peek;
mod report;
mod rules;
pub(crate) mod signals;
pub(crate) mod spec;
mod trial;
mod view;

use super::SandboxLevel;
use report::{leave, send_message, step};
pub(crate) use rules::SYSTEM;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::process::{
    Pid, PidfdFlags, Signal, WaitOptions, getpid, kill_process, pidfd_open, set_child_subreaper, waitpid,
};
use spec::{ChildMessage, Preparation};
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, FromRawFd, OwnedFd};
use std::process::ExitCode;

/// The first argument that selects this mode.
pub const ARGUMENT: &str = "__confine";

/// The entry point of the hidden command. Must be called while the program has one thread.
pub fn entry() -> ExitCode {
    let Some((preparation, channel)) = inherited() else {
        return ExitCode::from(2);
    };
    let done = match preparation.level {
        SandboxLevel::Full | SandboxLevel::Landlock => outer(&preparation, &channel),
        SandboxLevel::None => obey(&channel, &cgroup::Groups::default()),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            send_message(&channel, &ChildMessage::Failed(error));
            ExitCode::FAILURE
        }
    }
}

/// The two arguments after `ARGUMENT`: the preparation as JSON, and the number of an open descriptor, the channel.
#[expect(
    unsafe_code,
    reason = "a descriptor that was left open through exec has no owner yet"
)]
fn inherited() -> Option<(Preparation, OwnedFd)> {
    let mut words = std::env::args().skip(2);
    let preparation = serde_json::from_str(&words.next()?).ok()?;
    let channel = words.next()?.parse::<i32>().ok().filter(|fd| *fd > 2)?;
    // SAFETY: asks about a number; closes and changes nothing but its own flag.
    if unsafe { libc::fcntl(channel, libc::F_SETFD, libc::FD_CLOEXEC) } < 0 {
        return None;
    }
    // A lock may be inherited too, which is held until the tree has ended. No command may have it.
    // SAFETY: closes nothing; changes the flag of open descriptors.
    unsafe { libc::syscall(libc::SYS_close_range, 3_u32, u32::MAX, libc::CLOSE_RANGE_CLOEXEC) };
    // SAFETY: the number is open, as just seen, and nothing else in this fresh process owns it.
    Some((preparation, unsafe { OwnedFd::from_raw_fd(channel) }))
}

/// Starts `init`, at `full` in new namespaces, and waits for it or for the end of the parent.
fn outer(preparation: &Preparation, channel: &OwnedFd) -> Result<(), String> {
    let full = preparation.level == SandboxLevel::Full;
    // Created while the file systems of control groups are visible. They are entered later through open files.
    let mut groups = match preparation.grouped {
        true => cgroup::Groups::make(preparation.processes, preparation.memory),
        false => cgroup::Groups::default(),
    };
    let (go_read, go_write) = step("pipe", io::pipe())?;
    init::block_signals();
    // If `init` is killed, its children become children of this process.
    step("adopting orphans", set_child_subreaper(Some(getpid())))?;
    let namespaces = match full {
        true => {
            libc::CLONE_NEWUSER
                | libc::CLONE_NEWNS
                | libc::CLONE_NEWPID
                | libc::CLONE_NEWNET
                | libc::CLONE_NEWIPC
                | libc::CLONE_NEWUTS
        }
        false => 0,
    };
    let Some(inner) = step("new namespaces", clone(namespaces))? else {
        drop(go_write);
        leave(inside(channel, &mut groups, go_read));
    };
    drop(go_read);
    if full && let Err(error) = step("mapping users", map_users(inner)) {
        let _ = kill_process(inner, Signal::KILL);
        let _ = waitpid(Some(inner), WaitOptions::empty());
        return Err(error);
    }
    let _ = (&go_write).write_all(b"g");
    drop(go_write);
    if full {
        let gone = step("watching", pidfd_open(inner, PidfdFlags::empty()))?;
        let mut watched = [
            PollFd::new(&gone, PollFlags::IN),
            PollFd::from_borrowed_fd(channel.as_fd(), PollFlags::empty()),
        ];
        let _ = poll(&mut watched, None);
        // Either `init` has ended, or the parent has, and then `init` must end. The kernel then kills all processes of
        // its namespace.
        let _ = kill_process(inner, Signal::KILL);
    }
    // At `landlock`, only `init` itself can kill all processes of the tree; it does so when the parent has ended.
    let ended = loop {
        match waitpid(Some(inner), WaitOptions::empty()) {
            Err(rustix::io::Errno::INTR) => {}
            ended => break ended.ok().flatten(),
        }
    };
    if ended.is_some_and(|(_, status)| status.signaled()) {
        // The kernel killed it for lack of memory, or another process killed it. The tree must not outlive it.
        let killed = init::end_all(inner, &mut None, init::HAND_OVER);
        if groups.ran_out() {
            let ended = ChildMessage::Ended {
                status: libc::SIGKILL,
                leftovers: killed.found,
                memory: Some(preparation.memory),
                left: killed.left,
            };
            send_message(channel, &ended);
        }
    }
    Ok(())
}

/// The first part of `init`, which does not depend on the order.
fn inside(channel: &OwnedFd, groups: &mut cgroup::Groups, mut go: impl Read) -> i32 {
    let mut word = [0];
    if !matches!(go.read(&mut word), Ok(1)) {
        return 1;
    }
    drop(go);
    let done = step(
        "death signal",
        rustix::process::set_parent_process_death_signal(Some(Signal::KILL)),
    )
    .and_then(|()| {
        groups.enter_ahead();
        obey(channel, groups)
    });
    match done {
        Ok(()) => 0,
        Err(error) => {
            send_message(channel, &ChildMessage::Failed(error));
            1
        }
    }
}

/// Waits for the order and carries it out. Without an order there is nothing to do.
fn obey(channel: &OwnedFd, groups: &cgroup::Groups) -> Result<(), String> {
    let Some((spec, outputs)) = step("the order", order::receive(channel))? else {
        return Ok(());
    };
    step("inputs and outputs", outputs.take_over())?;
    // Resources of the view are released when the last process of the tree has ended.
    let _held = match spec.level {
        SandboxLevel::Full => view::build(&spec, channel)?,
        SandboxLevel::Landlock | SandboxLevel::None => Vec::new(),
    };
    init::run(&spec, channel, groups)
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
