//! Level `landlock` where Landlock does not scope signals (before Linux 6.12): suspends the calls that send a signal,
//! and lets them reach only the command's own process tree.
//!
//! A signal to the caller itself continues in the kernel: while the caller is suspended, its PID belongs to no other
//! process. Every other signal is sent by this process, through a descriptor of the process that was checked: if the
//! kernel looked up the PID again, it could by then belong to a process outside the tree. So the receiver sees this
//! process as the sender (`si_pid`), except after `sigqueue`, whose `siginfo_t` is passed on.
//!
//! A signal to a process group is sent to each member. SIGKILL is repeated until no new member is found; other signals
//! may miss a process that is forked meanwhile. A signal to a single thread of another process is refused.

use super::bpf::{EQUAL, LOAD, RETURN, SECOND_ARGUMENT, line};
use super::peek::TracedMemory;
use crate::process::process_tree::{below, table};
use crate::process::seccomp_listener::{SeccompNotification, SeccompReply};
use crate::process::stat::{StatFields, read_stat};
use crate::process::write_guard::at;
use rustix::fs::{Mode, OFlags, open};
use rustix::io::{Errno, Result};
use rustix::process::{Pid, getpid, test_kill_process_group};
use std::collections::BTreeSet;
use std::os::fd::{AsRawFd, OwnedFd};

/// Calls that send a signal.
const SENDING: [i64; 6] = [
    libc::SYS_kill,
    libc::SYS_tkill,
    libc::SYS_tgkill,
    libc::SYS_rt_sigqueueinfo,
    libc::SYS_rt_tgsigqueueinfo,
    libc::SYS_pidfd_send_signal,
];

/// Commands of `fcntl` that set the owner of a descriptor: the process to which the kernel sends SIGIO, SIGURG or the
/// signal of `F_SETSIG`.
const F_SETOWN: u32 = 8;
const F_SETOWN_EX: u32 = 15;
/// Requests of `ioctl` that set the owner too. These and `F_SETOWN_EX` take the PID from the caller's memory, where it
/// could change after a check.
const FIOSETOWN: u32 = 0x8901;
const SIOCSPGRP: u32 = 0x8902;

/// Size of `siginfo_t`.
const INFO_BYTES: usize = 128;
/// Upper limit for the steps from a process up to its ancestors.
const MOST_STEPS: usize = 65_536;
/// Upper limit for the searches for members of a group that were forked meanwhile and must be killed too.
const MOST_ROUNDS: usize = 100;

const REFUSED: u32 = libc::SECCOMP_RET_ERRNO | libc::EPERM.unsigned_abs();

/// Which process answers the suspended calls of a process tree.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Answering {
    /// `init`, the parent of the tree's first process.
    Init,
    /// The parent of the two helper processes, which are the outer one and its child `init`.
    Parent,
}

/// The filter instructions that return `action` for calls that [`answer`] handles, refuse those that read the new owner
/// from memory, and skip all others. They expect that the number of the call is loaded.
pub(super) fn lines(action: u32) -> Vec<libc::sock_filter> {
    let number = |call: i64| u32::try_from(call).unwrap_or(u32::MAX);
    let mut lines = Vec::new();
    for call in SENDING {
        lines.push(line(EQUAL, number(call), 0, 1));
        lines.push(line(RETURN, action, 0, 0));
    }
    lines.extend([
        line(EQUAL, number(libc::SYS_fcntl), 0, 6),
        line(LOAD, SECOND_ARGUMENT, 0, 0),
        line(EQUAL, F_SETOWN, 0, 1),
        line(RETURN, action, 0, 0),
        line(EQUAL, F_SETOWN_EX, 0, 1),
        line(RETURN, REFUSED, 0, 0),
        line(RETURN, libc::SECCOMP_RET_ALLOW, 0, 0),
        line(EQUAL, number(libc::SYS_ioctl), 0, 5),
        line(LOAD, SECOND_ARGUMENT, 0, 0),
        line(EQUAL, FIOSETOWN, 1, 0),
        line(EQUAL, SIOCSPGRP, 0, 1),
        line(RETURN, REFUSED, 0, 0),
        line(RETURN, libc::SECCOMP_RET_ALLOW, 0, 0),
    ]);
    lines
}

/// Whether [`answer`] handles this call.
pub(super) fn is_taken(call: i64) -> bool {
    SENDING.contains(&call) || call == libc::SYS_fcntl
}

/// Answers a call that the filter of [`lines`] has suspended. `is_waiting` says whether the caller is still suspended
/// in this very call.
pub(super) fn answer(
    answering: Answering,
    asked: &SeccompNotification,
    is_waiting: impl Fn() -> bool,
) -> Result<SeccompReply> {
    let caller = asked.thread;
    let own = thread_group(caller)?;
    // The kernel ignores the upper half of these arguments.
    let [one, two, three, four, ..] = asked.arguments.map(|argument| argument as u32 as i32);
    let memory = || TracedMemory::of(caller.unsigned_abs());
    let (target, signal, info) = match asked.call {
        // The owner is removed, or is the caller's process or the group that it leads, whose ID is the same number.
        libc::SYS_fcntl if three == 0 || three.unsigned_abs() == own.unsigned_abs() => return Ok(SeccompReply::GoOn),
        // The kernel checks that the thread belongs to the process.
        libc::SYS_tgkill | libc::SYS_rt_tgsigqueueinfo if one == own => return Ok(SeccompReply::GoOn),
        libc::SYS_kill | libc::SYS_rt_sigqueueinfo if one == own || one == caller => return Ok(SeccompReply::GoOn),
        libc::SYS_tkill if one == caller => return Ok(SeccompReply::GoOn),
        libc::SYS_tkill if thread_group(one)? == own => (Target::OwnThread(own, one), two, None),
        libc::SYS_kill => (Target::of_kill(one, caller)?, two, None),
        libc::SYS_rt_sigqueueinfo => {
            let mut info = memory()?.bytes(asked.arguments[2], INFO_BYTES)?;
            // The kernel sets `si_signo` like this too.
            info[..4].copy_from_slice(&two.to_ne_bytes());
            (Target::Process(HeldProcess::of(one)?), two, Some(info))
        }
        // Flags exist since Linux 6.9; before, the kernel refused them.
        libc::SYS_pidfd_send_signal if four == 0 => {
            let info = match asked.arguments[2] {
                0 => None,
                at => Some(memory()?.bytes(at, INFO_BYTES)?),
            };
            (Target::Process(of_descriptor(caller, one)?), two, info)
        }
        libc::SYS_pidfd_send_signal => return Err(Errno::INVAL),
        _ => return Err(Errno::PERM),
    };
    let tree = OwnTree::of(answering, caller)?;
    if let Target::Process(process) = &target
        && !tree.holds(process)
    {
        return Err(Errno::PERM);
    }
    // The caller may have ended, and what was read could be from a later process with its PID.
    if !is_waiting() {
        return Err(Errno::SRCH);
    }
    match target {
        Target::Process(process) => process.send(signal, info.as_deref())?,
        Target::OwnThread(process, thread) => send_to_thread(process, thread, signal)?,
        Target::Group(group) => match tree.send(signal, |member| member.group() == Ok(group)) {
            Some(sent) => sent?,
            // Like the kernel, distinguish a group outside the tree from one that does not exist.
            None => match Pid::from_raw(group).map(test_kill_process_group) {
                Some(Err(Errno::SRCH)) => return Err(Errno::SRCH),
                _ => return Err(Errno::PERM),
            },
        },
        // The kernel reports no error if the caller may signal none of them.
        Target::All => tree.send(signal, |member| member.pid != own).unwrap_or(Ok(()))?,
    }
    Ok(SeccompReply::Succeed)
}

/// The receivers of a signal, other than the caller itself.
enum Target {
    Process(HeldProcess),
    /// A thread of the caller's process: the process and the thread.
    OwnThread(i32, i32),
    /// The members of a process group.
    Group(i32),
    /// All processes except the caller's.
    All,
}

impl Target {
    /// The target for the first argument of `kill`.
    fn of_kill(to: i32, caller: i32) -> Result<Self> {
        Ok(match to {
            0 => Self::Group(HeldProcess::of(caller)?.group()?),
            -1 => Self::All,
            group if group < 0 => Self::Group(group.checked_neg().ok_or(Errno::SRCH)?),
            process => Self::Process(HeldProcess::of(process)?),
        })
    }
}

/// The processes of the caller's command.
struct OwnTree {
    /// The PIDs of the helper processes between the command and this process; the one nearest to the command is first.
    helpers: Vec<i32>,
}

impl OwnTree {
    /// The tree of a caller.
    ///
    /// # Errors
    /// The caller has ended, or does not descend from the helper processes.
    fn of(answering: Answering, caller: i32) -> Result<Self> {
        let helpers = match answering {
            Answering::Init => Vec::new(),
            Answering::Parent => {
                let line = HeldProcess::of(caller)?.ancestors().ok_or(Errno::PERM)?;
                let (_, helpers) = line.split_last_chunk::<2>().ok_or(Errno::PERM)?;
                helpers.to_vec()
            }
        };
        Ok(Self { helpers })
    }

    /// Whether a process is in the tree. A process cannot leave it: an orphan becomes a child of another process of the
    /// tree, or of `init`.
    fn holds(&self, process: &HeldProcess) -> bool {
        process.ancestors().is_some_and(|line| line.ends_with(&self.helpers))
    }

    /// Sends a signal to the processes of the tree for which `is_wanted` is true; SIGKILL also to those that were
    /// forked meanwhile. `None` if there are none; `Ok` if it could be sent to at least one of them.
    fn send(&self, signal: i32, is_wanted: impl Fn(&HeldProcess) -> bool) -> Option<Result<()>> {
        let top = self.helpers.first().copied().unwrap_or_else(this_process);
        let mut reached = BTreeSet::new();
        let mut sent: Option<Result<()>> = None;
        for _ in 0..MOST_ROUNDS {
            let before = reached.len();
            for entry in below(&table(), [top]) {
                let Ok(process) = HeldProcess::of(entry.pid) else {
                    continue;
                };
                if is_wanted(&process) && self.holds(&process) && reached.insert(process.pid) {
                    let done = process.send(signal, None);
                    sent = Some(sent.map_or(done, |earlier| earlier.or(done)));
                }
            }
            if signal != libc::SIGKILL || reached.len() == before {
                break;
            }
        }
        sent
    }
}

/// A process, referred to by a descriptor of its directory in `/proc`, which never refers to a later process with the
/// same PID.
struct HeldProcess {
    pid: i32,
    dir: OwnedFd,
}

impl HeldProcess {
    /// The process that has this PID now.
    ///
    /// # Errors
    /// `ESRCH`: there is none, or it cannot be seen.
    fn of(pid: i32) -> Result<Self> {
        let pid = Pid::from_raw(pid).ok_or(Errno::SRCH)?.as_raw_nonzero().get();
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let dir = open(format!("/proc/{pid}"), flags, Mode::empty()).map_err(|_| Errno::SRCH)?;
        Ok(Self { pid, dir })
    }

    /// A field of its `stat` file, counted as in proc_pid_stat(5).
    fn field(&self, at: usize) -> Result<i32> {
        let text = read_stat(format!("{}/stat", at::own_link(&self.dir))).ok_or(Errno::SRCH)?;
        StatFields::of(&text)
            .and_then(|stat| stat.number(at))
            .ok_or(Errno::SRCH)
    }

    fn parent(&self) -> Result<i32> {
        self.field(4)
    }

    fn group(&self) -> Result<i32> {
        self.field(5)
    }

    /// The PIDs of its ancestors up to, but without, this process; its parent is first. `None` if it does not descend
    /// from this process, or has ended.
    fn ancestors(&self) -> Option<Vec<i32>> {
        let me = this_process();
        let mut line = Vec::new();
        let mut held: Option<Self> = None;
        for _ in 0..MOST_STEPS {
            let Ok(parent) = held.as_ref().unwrap_or(self).parent() else {
                // An ancestor has ended, so its children have another parent now: start again.
                held.take()?;
                line.clear();
                continue;
            };
            if parent == me {
                return Some(line);
            }
            if parent <= 1 {
                return None;
            }
            let next = Self::of(parent).ok();
            // If it is still the parent after its directory was opened, the descriptor does not refer to a later
            // process with the same PID.
            let still = held.as_ref().unwrap_or(self).parent() == Ok(parent);
            match next {
                Some(next) if still => {
                    line.push(parent);
                    held = Some(next);
                }
                // The parent exists, but this process cannot see it.
                None if still => return None,
                _ => {}
            }
        }
        None
    }

    /// Sends a signal to this very process; `info`: a whole `siginfo_t`.
    #[expect(
        unsafe_code,
        reason = "there is no safe call that takes any signal and its information"
    )]
    fn send(&self, signal: i32, info: Option<&[u8]>) -> Result<()> {
        let info = match info {
            Some(info) => info.get(..INFO_BYTES).ok_or(Errno::INVAL)?.as_ptr(),
            None => std::ptr::null(),
        };
        // SAFETY: `info` is null or points to as many bytes as the kernel reads, which outlive the call.
        let done = unsafe { libc::syscall(libc::SYS_pidfd_send_signal, self.dir.as_raw_fd(), signal, info, 0) };
        result(done)
    }
}

/// Sends a signal to one thread of a process. The kernel checks that the thread belongs to the process.
#[expect(unsafe_code, reason = "there is no safe call for it")]
fn send_to_thread(process: i32, thread: i32, signal: i32) -> Result<()> {
    // SAFETY: all arguments are numbers.
    result(unsafe { libc::syscall(libc::SYS_tgkill, process, thread, signal) })
}

fn result(done: i64) -> Result<()> {
    match done {
        0 => Ok(()),
        _ => Err(Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::PERM)),
    }
}

fn this_process() -> i32 {
    getpid().as_raw_nonzero().get()
}

/// The PID of the process that a thread belongs to.
fn thread_group(thread: i32) -> Result<i32> {
    number_in(&format!("/proc/{thread}/status"), "Tgid:").ok_or(Errno::SRCH)
}

/// The process that a descriptor of the caller refers to.
fn of_descriptor(caller: i32, fd: i32) -> Result<HeldProcess> {
    // Not positive if the process has ended.
    let named = || number_in(&format!("/proc/{caller}/fdinfo/{fd}"), "Pid:");
    let pid = named().ok_or(Errno::BADF)?;
    let process = HeldProcess::of(pid)?;
    // If the descriptor still names this PID, `process` is the process that it refers to.
    (named() == Some(pid)).then_some(process).ok_or(Errno::SRCH)
}

/// The number after `key` in a file of `/proc` with a line for each value. A program cannot add a line through its own
/// name, because the kernel escapes line ends in it.
fn number_in(file: &str, key: &str) -> Option<i32> {
    let text = std::fs::read(file).ok()?;
    let text = String::from_utf8_lossy(&text);
    let value = text.lines().find_map(|line| line.strip_prefix(key))?;
    value.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    #[test]
    fn only_descendants_of_this_process_have_ancestors_below_it() {
        let mut shell = Command::new("sh");
        let mut shell = shell.args(["-c", "sleep 60 & echo $!; wait"]);
        shell = shell.stdout(std::process::Stdio::piped());
        let mut shell = shell.spawn().unwrap();
        let mut line = String::new();
        let out = shell.stdout.take().unwrap();
        std::io::BufRead::read_line(&mut std::io::BufReader::new(out), &mut line).unwrap();
        let (below, top) = (line.trim().parse().unwrap(), i32::try_from(shell.id()).unwrap());
        let of = |pid| HeldProcess::of(pid).unwrap();
        assert_eq!(of(below).ancestors(), Some(vec![top]));
        assert_eq!(of(top).ancestors(), Some(Vec::new()));
        for other in [
            1,
            this_process(),
            rustix::process::getppid().unwrap().as_raw_nonzero().get(),
        ] {
            assert_eq!(of(other).ancestors(), None);
        }
        let held = of(below);
        held.send(libc::SIGKILL, None).unwrap();
        shell.wait().unwrap();
        assert_eq!(thread_group(this_process()), Ok(this_process()));
    }
}
