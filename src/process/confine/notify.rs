//! The last seccomp filter of a confined command: suspends each `execve` and `execveat` until the parent has answered.

use super::bpf::{AT_LEAST, EQUAL, LOAD, NUMBER, RETURN, line};
use super::filter;
use super::mediate;
use super::report::{send_with_descriptor, step};
use super::spec::ChildMessage;
use crate::process::{SandboxLevel, SignalScope};
use std::ffi::CStr;
use std::io;
use std::os::fd::OwnedFd;

#[cfg(target_arch = "x86_64")]
const ARCHITECTURE: u32 = 0xc000_003e;
#[cfg(target_arch = "aarch64")]
const ARCHITECTURE: u32 = 0xc000_00b7;

/// System call numbers from here on belong to the x32 ABI, which uses the same architecture number as x86-64.
const X32: u32 = 0x4000_0000;

/// Further offsets in `struct seccomp_data`; both supported architectures are little-endian, so the low half of an
/// argument comes first.
const ARCH: u32 = 4;
const FIRST_ARGUMENT: u32 = 16;

/// The parent's answers to the first exec of a trial: it could read the arguments, or it could not.
pub(crate) const TRIAL_READ: i32 = libc::EXDEV;
pub(crate) const TRIAL_NOT_READ: i32 = libc::EIO;
/// The path in the trial's exec. No machine has this program.
pub(crate) const TRIAL_PROGRAM: &CStr = c"/overnight-exec-trial/nothing";
pub(crate) const TRIAL_WORD: &CStr = c"is this read?";

/// Installs the filter and passes the listener to the parent. With `asks`, execs are suspended; otherwise the filter
/// only denies foreign system call tables and changes of the memory map's bounds. Requires no-new-privileges and must
/// be the last step before the command is executed.
pub(super) fn apply((level, scope): (SandboxLevel, SignalScope), asks: bool, channel: &OwnedFd) -> Result<(), String> {
    if level == SandboxLevel::None {
        return Ok(());
    }
    if !asks {
        return step("setting the last filter", filter::install(&program(false, &[]), 0)).map(|_| ());
    }
    let mediated = match level {
        SandboxLevel::Landlock => mediate::lines(scope, libc::SECCOMP_RET_USER_NOTIF),
        SandboxLevel::Full | SandboxLevel::None => Vec::new(),
    };
    let listener = step("judging programs at exec", listen(&mediated))?;
    // This copy is closed on return: if it stayed open, an exec would wait forever for the answer of a dead parent.
    step(
        "handing over the listener",
        send_with_descriptor(channel, &ChildMessage::Witness, &listener),
    )
}

/// Tests the whole mechanism: filter, listener, a notification, the parent reading this process's memory, and both
/// kinds of answer.
pub(super) fn trial(way: (SandboxLevel, SignalScope), channel: &OwnedFd) -> Result<(), String> {
    apply(way, true, channel)?;
    let answer = exec_nothing();
    if answer == TRIAL_NOT_READ {
        return Err("the parent cannot read the arguments of a confined process".to_owned());
    }
    if answer != TRIAL_READ {
        return Err(format!(
            "the parent did not answer: {}",
            io::Error::from_raw_os_error(answer)
        ));
    }
    match exec_nothing() {
        libc::ENOENT => Ok(()),
        other => Err(format!(
            "an exec cannot be continued: {}",
            io::Error::from_raw_os_error(other)
        )),
    }
}

/// Tries to execute a program that does not exist; returns the errno.
#[expect(unsafe_code, reason = "the act is a system call that must fail in a certain way")]
fn exec_nothing() -> i32 {
    let words = [TRIAL_PROGRAM.as_ptr(), TRIAL_WORD.as_ptr(), std::ptr::null()];
    let none = [std::ptr::null()];
    // SAFETY: all texts end with NUL, both lists with a null pointer, and all outlive the call.
    unsafe {
        libc::execve(TRIAL_PROGRAM.as_ptr(), words.as_ptr(), none.as_ptr());
    }
    io::Error::last_os_error().raw_os_error().unwrap_or(0)
}

fn listen(mediated: &[libc::sock_filter]) -> io::Result<OwnedFd> {
    let program = program(true, mediated);
    let plain = libc::SECCOMP_FILTER_FLAG_NEW_LISTENER;
    // Before Linux 5.19 (without this flag) a handled signal makes a suspended exec fail visibly.
    let listener = filter::install(&program, plain | libc::SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV).or_else(|error| {
        match error.raw_os_error() {
            Some(libc::EINVAL) => filter::install(&program, plain),
            _ => Err(error),
        }
    });
    let listener = listener.map_err(|error| match error.raw_os_error() {
        Some(libc::EBUSY) => io::Error::other("another supervisor already handles the system calls of this process"),
        Some(libc::EINVAL) => io::Error::other("this kernel does not support seccomp user notification"),
        _ => error,
    })?;
    listener.ok_or_else(|| io::Error::other("the kernel returned no listener"))
}

/// `mediated`: the filter instructions for the mediated calls, see [`mediate::lines`].
fn program(asks: bool, mediated: &[libc::sock_filter]) -> Vec<libc::sock_filter> {
    let number = |call: i64| u32::try_from(call).unwrap_or(u32::MAX);
    let on_exec = if asks {
        libc::SECCOMP_RET_USER_NOTIF
    } else {
        libc::SECCOMP_RET_ALLOW
    };
    let mut program = vec![
        line(LOAD, ARCH, 0, 0),
        line(EQUAL, ARCHITECTURE, 1, 0),
        line(RETURN, libc::SECCOMP_RET_KILL_PROCESS, 0, 0),
        line(LOAD, NUMBER, 0, 0),
        line(AT_LEAST, X32, 0, 1),
        line(RETURN, libc::SECCOMP_RET_KILL_PROCESS, 0, 0),
    ];
    for call in [libc::SYS_execve, libc::SYS_execveat] {
        program.push(line(EQUAL, number(call), 0, 1));
        program.push(line(RETURN, on_exec, 0, 0));
    }
    program.extend(mediated);
    program.extend([
        line(EQUAL, number(libc::SYS_prctl), 0, 3),
        line(LOAD, FIRST_ARGUMENT, 0, 0),
        // The witness identifies a process by the bounds of its memory map; only an exec may change them.
        line(EQUAL, libc::PR_SET_MM.unsigned_abs(), 0, 1),
        line(RETURN, libc::SECCOMP_RET_ERRNO | libc::EPERM.unsigned_abs(), 0, 0),
        line(RETURN, libc::SECCOMP_RET_ALLOW, 0, 0),
    ]);
    program
}

#[cfg(test)]
mod tests {
    use super::super::bpf::SECOND_ARGUMENT;
    use super::*;

    /// The filter's result for one call.
    fn verdict(asks: bool, arch: u32, number: u32, (first, second): (u32, u32)) -> u32 {
        let mediated = mediate::lines(SignalScope::Mediated, libc::SECCOMP_RET_USER_NOTIF);
        let program = program(asks, if asks { &mediated } else { &[] });
        let (mut at, mut loaded) = (0, 0);
        loop {
            let now = &program[at];
            at += 1;
            let jump = |taken: bool| usize::from(if taken { now.jt } else { now.jf });
            match u32::from(now.code) {
                LOAD => {
                    loaded = match now.k {
                        NUMBER => number,
                        ARCH => arch,
                        FIRST_ARGUMENT => first,
                        SECOND_ARGUMENT => second,
                        other => panic!("no such field: {other}"),
                    }
                }
                EQUAL => at += jump(loaded == now.k),
                AT_LEAST => at += jump(loaded >= now.k),
                RETURN => return now.k,
                other => panic!("no such code: {other}"),
            }
        }
    }

    #[test]
    fn execs_ask_and_foreign_calls_die() {
        let number = |call: i64| u32::try_from(call).unwrap();
        let of = |number, first| verdict(true, ARCHITECTURE, number, (first, 0));
        assert_eq!(of(number(libc::SYS_execve), 0), libc::SECCOMP_RET_USER_NOTIF);
        assert_eq!(of(number(libc::SYS_execveat), 9), libc::SECCOMP_RET_USER_NOTIF);
        assert_eq!(of(number(libc::SYS_fchmod), 0), libc::SECCOMP_RET_USER_NOTIF);
        assert_eq!(of(number(libc::SYS_read), 35), libc::SECCOMP_RET_ALLOW);
        let refused = libc::SECCOMP_RET_ERRNO | 1;
        assert_eq!(of(number(libc::SYS_prctl), libc::PR_SET_MM.unsigned_abs()), refused);
        assert_eq!(of(number(libc::SYS_prctl), 15), libc::SECCOMP_RET_ALLOW);
        for call in [libc::SYS_kill, libc::SYS_tkill, libc::SYS_pidfd_send_signal] {
            assert_eq!(of(number(call), 7), libc::SECCOMP_RET_USER_NOTIF);
        }
        let owner = |call, way| verdict(true, ARCHITECTURE, number(call), (3, way));
        let set_fd = libc::F_SETFD.unsigned_abs();
        for (call, way, wanted) in [
            (libc::SYS_fcntl, 8, libc::SECCOMP_RET_USER_NOTIF),
            (libc::SYS_fcntl, 15, refused),
            (libc::SYS_fcntl, set_fd, libc::SECCOMP_RET_ALLOW),
            (libc::SYS_ioctl, 0x8901, refused),
            (libc::SYS_ioctl, 0x8902, refused),
            (libc::SYS_ioctl, 0x5401, libc::SECCOMP_RET_ALLOW),
        ] {
            assert_eq!(owner(call, way), wanted, "{call} {way}");
        }
        for call in [X32, X32 | 520, X32 | 62, u32::MAX] {
            assert_eq!(of(call, 0), libc::SECCOMP_RET_KILL_PROCESS);
        }
        assert_eq!(verdict(true, 0x4000_0003, 11, (0, 0)), libc::SECCOMP_RET_KILL_PROCESS);
        assert_eq!(
            verdict(false, ARCHITECTURE, number(libc::SYS_execve), (0, 0)),
            libc::SECCOMP_RET_ALLOW
        );
    }
}
