//! Level `landlock` where Landlock does not scope signals (before Linux 6.12): suspends the calls that send a signal,
//! and lets them reach only the command's own process tree.
//!
//! A signal to the caller itself continues in the kernel: while the caller is suspended, its PID belongs to no other
//! process. Every other signal is sent here, through a descriptor of the process that was checked. If the kernel were to
//! look the PID up again, it could by then belong to a process outside. So the receiver sees this process as the sender
//! (`si_pid`), except after `sigqueue`, whose values are passed on.
//!
//! A process group is sent to member by member. SIGKILL is repeated until no member is left; of other signals, a
//! process that is forked meanwhile may get none. A single thread of another process cannot be sent to.

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

/// Of `fcntl`: the owner of a descriptor, to whom the kernel sends SIGIO, SIGURG or the signal of `F_SETSIG`.
const F_SETOWN: u32 = 8;
const F_SETOWN_EX: u32 = 15;
/// Of `ioctl`: the same. Here, and with `F_SETOWN_EX`, the PID is in memory, where it could change after a check.
const FIOSETOWN: u32 = 0x8901;
const SIOCSPGRP: u32 = 0x8902;

/// Size of `siginfo_t`.
const INFO_BYTES: usize = 128;
/// How many steps up a process's ancestors are followed.
const MOST_STEPS: usize = 65_536;
/// How often the members of a group are looked for again, to kill those that were forked meanwhile.
const MOST_ROUNDS: usize = 100;

const REFUSED: u32 = libc::SECCOMP_RET_ERRNO | libc::EPERM.unsigned_abs();

/// Which process answers the calls of a tree.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Answering {
    /// `init`, the parent of the tree's first process.
    Init,
    /// The parent of the helper processes: the outer one and its child `init`.
    Parent,
}

/// The instructions that return `action` for calls that [`answer`] takes, refuse those that set an owner by an address,
/// and skip all others. They expect the number of the call to be loaded.
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

/// Whether [`answer`] takes this call.
pub(super) fn is_taken(call: i64) -> bool {
    SENDING.contains(&call) || call == libc::SYS_fcntl
}

/// Answers one of the calls for which [`lines`] returns its action. `is_waiting` says whether the caller is still
/// suspended in this very call.
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
        // No owner; this process, or the group that it leads, which has its number.
        libc::SYS_fcntl if three == 0 || three.unsigned_abs() == own.unsigned_abs() => return Ok(SeccompReply::GoOn),
        // The kernel checks that the thread belongs to the process.
        libc::SYS_tgkill | libc::SYS_rt_tgsigqueueinfo if one == own => return Ok(SeccompReply::GoOn),
        libc::SYS_kill | libc::SYS_rt_sigqueueinfo if one == own || one == caller => return Ok(SeccompReply::GoOn),
        libc::SYS_tkill if one == caller => return Ok(SeccompReply::GoOn),
        libc::SYS_tkill if thread_group(one)? == own => (Target::OwnThread(own, one), two, None),
        libc::SYS_kill => (Target::of_kill(one, caller)?, two, None),
        libc::SYS_rt_sigqueueinfo => {
            let mut info = memory()?.bytes(asked.arguments[2], INFO_BYTES)?;
            // As the kernel does it.
            info[..4].copy_from_slice(&two.to_ne_bytes());
            (Target::Process(HeldProcess::of(one)?), two, Some(info))
        }
        // Without flags, as before Linux 6.9.
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
    // What was read of the caller did not belong to a later process with its PID.
    if !is_waiting() {
        return Err(Errno::SRCH);
    }
    match target {
        Target::Process(process) => process.send(signal, info.as_deref())?,
        Target::OwnThread(process, thread) => send_to_thread(process, thread, signal)?,
        Target::Group(group) => match tree.send(signal, |member| member.group() == Ok(group)) {
            Some(sent) => sent?,
            // Whether there is such a group outside.
            None => match Pid::from_raw(group).map(test_kill_process_group) {
                Some(Err(Errno::SRCH)) => return Err(Errno::SRCH),
                _ => return Err(Errno::PERM),
            },
        },
        // The kernel reports no error if it may send to none of them.
        Target::All => tree.send(signal, |member| member.pid != own).unwrap_or(Ok(()))?,
    }
    Ok(SeccompReply::Succeed)
}

/// Whom a call signals, apart from the caller.
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
    /// The first argument of `kill`.
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
    /// The helper processes between the command and this process, that of the command first.
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

    /// Whether a process is in the tree. It then stays in it: an orphan becomes a child of another process of the tree,
    /// or of `init`.
    fn holds(&self, process: &HeldProcess) -> bool {
        process.ancestors().is_some_and(|line| line.ends_with(&self.helpers))
    }

    /// Sends a signal to the processes of the tree for which `is_wanted` holds, and SIGKILL to those that were forked
    /// meanwhile too. `None` if there are none; otherwise whether it could be sent to one of them.
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

/// A process, held by its directory in `/proc`, which does not pass to another process with the same PID.
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

    /// A field of its `stat`, see proc_pid_stat(5).
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

    /// Its ancestors below this process, its parent first. `None` if it does not descend from this process, or has ended.
    fn ancestors(&self) -> Option<Vec<i32>> {
        let me = this_process();
        let mut line = Vec::new();
        let mut held: Option<Self> = None;
        for _ in 0..MOST_STEPS {
            let Ok(parent) = held.as_ref().unwrap_or(self).parent() else {
                // An ancestor that has ended: what was below it has another parent now.
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
            // Only if it is the parent after it was opened too is it the parent that is held, and not a later process
            // with its PID.
            let still = held.as_ref().unwrap_or(self).parent() == Ok(parent);
            match next {
                Some(next) if still => {
                    line.push(parent);
                    held = Some(next);
                }
                // It cannot be seen.
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

/// Sends a signal to one thread of a process. The kernel checks that the one belongs to the other.
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

/// The process that a thread belongs to.
fn thread_group(thread: i32) -> Result<i32> {
    number_in(&format!("/proc/{thread}/status"), "Tgid:").ok_or(Errno::SRCH)
}

/// The process that a descriptor of the caller refers to.
fn of_descriptor(caller: i32, fd: i32) -> Result<HeldProcess> {
    // Not positive if the process has ended.
    let named = || number_in(&format!("/proc/{caller}/fdinfo/{fd}"), "Pid:");
    let pid = named().ok_or(Errno::BADF)?;
    let process = HeldProcess::of(pid)?;
    // If the process has not ended since, it is the one that is held.
    (named() == Some(pid)).then_some(process).ok_or(Errno::SRCH)
}

/// The number after `key` in a file of `/proc` with a line for each value. In the name of a program, which is among
/// them, the kernel replaces line ends.
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
    fn only_what_descends_from_this_process_is_held_to_be_below_it() {
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
