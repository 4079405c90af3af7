//! The first process of a confined tree: starts the command, reaps orphans, kills all processes at the end, and reports
//! how the command ended.

use super::cgroup::Groups;
use super::listener::{Handover, SyscallListener};
use super::mediate::Mediator;
use super::memory::MemoryWatch;
use super::report::{leave, send_message, step};
use super::signals::Answering;
use super::spec::{ChildMessage, Spec, Task};
use super::{filter, limits, notify, rules, trial};
use crate::process::process_tree::{below, send, table};
use crate::process::survivors::KILL_TIME;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, Signal, WaitOptions, getpid, pidfd_open, set_child_subreaper, wait};
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

/// clone3(2): create the process in the group of `cgroup`. The constant of `libc` is too narrow for it.
const CLONE_INTO_CGROUP: u64 = 0x2_0000_0000;
/// How long background processes of the command may continue after it has ended.
const GRACE: Duration = Duration::from_millis(200);
/// How long this process tries to kill all others before it reports to the parent, which then continues to kill them.
pub(super) const HAND_OVER: Duration = Duration::from_secs(1);

/// Starts the command and supervises the tree to its end.
pub(super) fn run(spec: &Spec, channel: &OwnedFd, groups: &Groups) -> Result<(), String> {
    step("adopting orphans", set_child_subreaper(Some(getpid())))?;
    block_signals();
    let limit = limits::processes(spec, groups)?;
    // A tree can have only one listener: if a witness judges execs, it also answers these calls.
    let mediated = spec.level == crate::process::SandboxLevel::Landlock && !spec.witness;
    let handover = step("socket pair", mediated.then(Handover::new).transpose())?;
    let (command, in_spawn_group) = step("fork", fork_into(groups))?;
    let Some(command) = command else {
        leave(command_process(
            spec,
            channel,
            (&limit, groups, in_spawn_group),
            handover,
        ));
    };
    close_outputs();
    let mut supervisor = Supervisor {
        command,
        gone: pidfd_open(command, PidfdFlags::empty()).ok(),
        channel,
        watched: matches!(limit, limits::Processes::Watched).then(|| Watch::begin(spec.processes)),
        memory: MemoryWatch::begin(spec.memory, groups),
        listener: handover.and_then(|handover| handover.receive(Mediator::of(spec, Answering::Init))),
        status: None,
    };
    let (status, killed) = supervisor.run();
    let memory = supervisor.memory.was_over().then_some(spec.memory);
    let ended = ChildMessage::Ended {
        status,
        leftovers: killed.found,
        memory,
        left: killed.left,
    };
    send_message(channel, &ended);
    Ok(())
}

/// The command's process: drops privileges, then executes the program.
fn command_process(
    spec: &Spec,
    channel: &OwnedFd,
    (limit, groups, in_spawn_group): (&limits::Processes, &Groups, bool),
    handover: Option<Handover>,
) -> i32 {
    let confined = confine(spec, limit, groups.enter(in_spawn_group))
        .and_then(|()| handover.map_or(Ok(()), |handover| handover.install(spec.signals)));
    match confined {
        Ok(()) => {}
        Err(error) => {
            send_message(channel, &ChildMessage::Failed(error));
            return 126;
        }
    }
    match &spec.task {
        Task::Probe => {
            send_message(
                channel,
                &ChildMessage::Witnessed(notify::trial((spec.level, spec.signals), channel)),
            );
            0
        }
        Task::Trial(acts) => {
            send_message(channel, &ChildMessage::Tried(trial::succeeded(acts)));
            0
        }
        Task::Run { argv, dir, env } => {
            let (name, words) = argv
                .split_first()
                .map_or(("", argv.as_slice()), |(name, rest)| (name.as_str(), rest));
            // Uses the system's shell, not one from a directory of `PATH` that the tree provides.
            let shells = ["/usr/bin/bash", "/bin/bash"].into_iter().filter(|_| name == "bash");
            let file = shells
                .into_iter()
                .find(|place| Path::new(place).is_file())
                .unwrap_or(name);
            let mut program = Command::new(file);
            program
                .arg0(name)
                .args(words)
                .env_clear()
                .envs(env.iter().map(|(name, value)| (name, value)));
            if let Err(error) = notify::apply((spec.level, spec.signals), spec.witness, channel) {
                send_message(channel, &ChildMessage::Failed(error));
                return 126;
            }
            // Entered here, so that a missing directory is not reported as a missing program.
            let error = match std::env::set_current_dir(dir) {
                Ok(()) => program.exec(),
                Err(error) => {
                    let dir = dir.display().to_string();
                    send_message(channel, &ChildMessage::NoDirectory(dir, errno(&error)));
                    return 127;
                }
            };
            send_message(channel, &ChildMessage::NotExecuted(errno(&error)));
            127
        }
    }
}

fn errno(error: &io::Error) -> i32 {
    error.raw_os_error().unwrap_or(libc::EINVAL)
}

fn confine(spec: &Spec, limit: &limits::Processes, entered: io::Result<()>) -> Result<(), String> {
    unblock_signals();
    let _ = rustix::process::setsid();
    limits::apply(spec, limit, entered)?;
    if spec.level == crate::process::SandboxLevel::None {
        return Ok(());
    }
    // For want of memory the kernel then kills a process of the command, not `init`, which is in the same group. A value
    // may always be raised; where it cannot be, the order of sizes decides.
    let _ = std::fs::write("/proc/self/oom_score_adj", "500");
    step("no new privileges", rustix::thread::set_no_new_privs(true))?;
    limits::give_up_capabilities(spec)?;
    rules::apply(spec)?;
    filter::apply(spec)
}

/// Supervises the tree to its end.
struct Supervisor<'a> {
    command: Pid,
    gone: Option<OwnedFd>,
    channel: &'a OwnedFd,
    watched: Option<Watch>,
    memory: MemoryWatch<'a>,
    listener: Option<SyscallListener>,
    status: Option<i32>,
}

impl Supervisor<'_> {
    /// Waits for the command, gives its remaining processes a moment, then kills them. Returns the wait status, and how
    /// many processes had to be killed.
    fn run(&mut self) -> (i32, Killed) {
        while !reap(self.command, &mut self.status) && self.status.is_none() {
            let patience = if self.watched.is_some() { 5 } else { 250 };
            let here = self.wait(Duration::from_millis(patience).min(self.memory.next()), true);
            let over = self.watched.as_ref().is_some_and(Watch::is_over) || self.memory.look(others);
            if !here || over {
                // Without a parent, no other process continues to kill them.
                let time = if here { HAND_OVER } else { KILL_TIME };
                return (libc::SIGKILL, end_all(self.command, &mut self.status, time));
            }
        }
        let until = Instant::now() + GRACE;
        while !reap(self.command, &mut self.status) && Instant::now() < until {
            self.wait(Duration::from_millis(4), false);
        }
        let killed = end_all(self.command, &mut self.status, HAND_OVER);
        (self.status.unwrap_or(libc::SIGKILL), killed)
    }

    /// Waits for a while, or until the command ends if `for_end`, and answers calls. `false` when the parent has died.
    fn wait(&self, patience: Duration, for_end: bool) -> bool {
        let mut fds = vec![PollFd::from_borrowed_fd(self.channel.as_fd(), PollFlags::empty())];
        fds.extend(
            self.listener
                .as_ref()
                .map(|listener| PollFd::new(listener, PollFlags::IN)),
        );
        fds.extend(
            self.gone
                .as_ref()
                .filter(|_| for_end)
                .map(|gone| PollFd::new(gone, PollFlags::IN)),
        );
        let timeout = Timespec {
            tv_sec: 0,
            tv_nsec: i64::from(patience.subsec_nanos()),
        };
        let _ = poll(&mut fds, Some(&timeout));
        let asks = fds.get(1).is_some_and(|fd| fd.revents().contains(PollFlags::IN));
        let here = !fds
            .first()
            .is_some_and(|fd| fd.revents().intersects(PollFlags::HUP | PollFlags::ERR));
        drop(fds);
        if let Some(listener) = self.listener.as_ref().filter(|_| asks) {
            listener.answer();
        }
        here
    }
}

/// Reaps all children that have ended. `true` when no child is left.
fn reap(command: Pid, status: &mut Option<i32>) -> bool {
    loop {
        match wait(WaitOptions::NOHANG) {
            Ok(Some((pid, ended))) => {
                if pid == command {
                    *status = Some(ended.as_raw());
                }
            }
            Ok(None) => return false,
            Err(rustix::io::Errno::INTR) => {}
            Err(_) => return true,
        }
    }
}

fn others() -> Vec<i32> {
    let me = getpid().as_raw_nonzero().get();
    below(&table(), [me])
        .into_iter()
        .filter(|entry| entry.pid != me && !entry.zombie)
        .map(|entry| entry.pid)
        .collect()
}

/// Limits the number of processes by polling where the kernel does not.
struct Watch {
    limit: u64,
    /// Processes and threads of the machine at the start.
    before: u64,
}

impl Watch {
    fn begin(limit: u64) -> Self {
        // A fork bomb must not starve the process that kills it. Only trees of root are polled, and root may raise its
        // priority.
        let _ = rustix::process::setpriority_process(None, -15);
        Self {
            limit,
            before: machine(),
        }
    }

    /// Reading the count of the whole machine is cheap; the tree is counted only when that has grown enough.
    fn is_over(&self) -> bool {
        machine() > self.before + self.limit && others().len() as u64 > self.limit
    }
}

/// Number of processes and threads of the machine; 0 if it is unknown.
fn machine() -> u64 {
    let text = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    let total = text
        .split_ascii_whitespace()
        .nth(3)
        .and_then(|field| field.split('/').nth(1)?.parse().ok());
    total.unwrap_or(0)
}

/// Counts of the processes that had to be killed at the end.
#[derive(Clone, Copy, Default)]
pub(super) struct Killed {
    /// How many processes there were.
    pub found: u32,
    /// How many of them still existed when the time was up.
    pub left: u32,
}

/// Kills every process below this one, and waits for their end, at most `time`.
pub(super) fn end_all(command: Pid, status: &mut Option<i32>, time: Duration) -> Killed {
    let until = Instant::now() + time;
    let count = |pids: &[i32]| u32::try_from(pids.len()).unwrap_or(u32::MAX);
    let mut killed = Killed::default();
    while !reap(command, status) {
        let others = others();
        killed.found = killed.found.max(count(&others));
        if others.len() > 24 {
            others.iter().for_each(|pid| send(*pid, Signal::STOP));
        }
        others.iter().for_each(|pid| send(*pid, Signal::KILL));
        if Instant::now() > until {
            killed.left = count(&others);
            break;
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    killed
}

/// Closes the outputs here: only the command's tree should keep them open.
fn close_outputs() {
    let null = std::fs::File::options().read(true).write(true).open("/dev/null");
    if let Ok(null) = null {
        let _ = rustix::stdio::dup2_stdin(&null);
        let _ = rustix::stdio::dup2_stdout(&null);
        let _ = rustix::stdio::dup2_stderr(&null);
    }
}

/// Blocks termination signals: they are meant for the command, and this process ends after it.
#[expect(unsafe_code, reason = "the mask of a process has no safe interface")]
pub(super) fn block_signals() {
    // SAFETY: the set is a local that is filled before it is used.
    unsafe {
        let mut set: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&raw mut set);
        for signal in [libc::SIGTERM, libc::SIGINT, libc::SIGHUP, libc::SIGQUIT, libc::SIGPIPE] {
            libc::sigaddset(&raw mut set, signal);
        }
        libc::sigprocmask(libc::SIG_BLOCK, &raw const set, std::ptr::null_mut());
    }
}

#[expect(unsafe_code, reason = "the mask of a process has no safe interface")]
fn unblock_signals() {
    // SAFETY: the set is a local that is filled before it is used.
    unsafe {
        let mut set: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&raw mut set);
        libc::sigprocmask(libc::SIG_SETMASK, &raw const set, std::ptr::null_mut());
        libc::signal(libc::SIGPIPE, libc::SIG_DFL);
    }
}

/// Like `fork`: `None` in the child. The second value says whether the child was created in its group of cgroup v2. If
/// the kernel or the group does not allow that, the child moves itself there.
#[expect(unsafe_code, reason = "the command must be a child that confines itself before exec")]
pub(super) fn fork_into(groups: &Groups) -> io::Result<(Option<Pid>, bool)> {
    if let Some(group) = groups.spawn_group() {
        // SAFETY: all fields are numbers, and 0 means that a field is not used.
        let mut order: libc::clone_args = unsafe { std::mem::zeroed() };
        order.flags = CLONE_INTO_CGROUP;
        order.exit_signal = libc::SIGCHLD as u64;
        order.cgroup = group.as_raw_fd() as u64;
        // SAFETY: no new stack, so this is a fork; the process has one thread, so no lock is held in the child.
        let pid = unsafe { libc::syscall(libc::SYS_clone3, &raw const order, size_of::<libc::clone_args>()) };
        if pid >= 0 {
            return Ok((i32::try_from(pid).ok().and_then(Pid::from_raw), true));
        }
    }
    // SAFETY: the process has one thread, so no lock is held in the child.
    match unsafe { libc::fork() } {
        -1 => Err(io::Error::last_os_error()),
        pid => Ok((Pid::from_raw(pid), false)),
    }
}
