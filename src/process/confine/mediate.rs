//! Level `landlock`: mediates calls that change modes, owners, times and extended attributes, and signals where Landlock
//! does not scope them ([`signals`]).
//!
//! Landlock does not cover changes of metadata, and a seccomp filter cannot see paths. So each such call of the command is
//! suspended, and if its target is in a place that the command may write, it is carried out here on a handle that was
//! checked. The original call is never continued, since its path could have been redirected after the check.
//!
//! A supervisor passes [`Mediator::answer`] every suspended call for which [`lines`] returns its action. Nothing else is
//! needed, so it does not matter which process holds the one listener that a tree can have.

use super::bpf::{EQUAL, RETURN, line};
use super::peek::TracedMemory;
use super::signals::{self, Answering};
use super::spec::Spec;
use crate::base::path::PATH_MAX;
use crate::process::SignalScope;
use crate::process::path_resolution;
use crate::process::seccomp_listener::{SeccompListener, SeccompNotification, SeccompReply};
use crate::process::write_guard::at;
use rustix::fs::{
    AtFlags, CWD, Gid, Mode, OFlags, ResolveFlags, Timespec, Timestamps, Uid, XattrFlags, chmodat, chownat, open,
    openat2, readlink, removexattr, setxattr, utimensat,
};
use rustix::io::{Errno, Result};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

/// Bytes of the value of an extended attribute; the kernel's own limit.
const MOST_VALUE: usize = 65_536;
const MOST_NAME: usize = 256;

const FCHMODAT2: i64 = 452;
const SETXATTRAT: i64 = 463;
const REMOVEXATTRAT: i64 = 466;
const FILE_SETATTR: i64 = 469;

/// Calls that every architecture has.
const COMMON: [i64; 7] = [
    libc::SYS_fchmod,
    libc::SYS_fchmodat,
    FCHMODAT2,
    libc::SYS_fchown,
    libc::SYS_fchownat,
    libc::SYS_utimensat,
    FILE_SETATTR,
];

/// Calls that set or remove extended attributes, among them access control lists, which would open files to other
/// users after the command. The attribute's name is in memory, which a filter cannot read: at `full` all are answered as
/// on a file system without attributes, at `landlock` they are mediated.
pub(super) const ATTRIBUTES: [i64; 8] = [
    libc::SYS_setxattr,
    libc::SYS_lsetxattr,
    libc::SYS_fsetxattr,
    libc::SYS_removexattr,
    libc::SYS_lremovexattr,
    libc::SYS_fremovexattr,
    SETXATTRAT,
    REMOVEXATTRAT,
];

/// Older calls that newer architectures do not have.
#[cfg(target_arch = "x86_64")]
const OLDER: [i64; 6] = [
    libc::SYS_chmod,
    libc::SYS_chown,
    libc::SYS_lchown,
    libc::SYS_utime,
    libc::SYS_utimes,
    libc::SYS_futimesat,
];
#[cfg(not(target_arch = "x86_64"))]
const OLDER: [i64; 0] = [];

/// The filter instructions that return `action` for the mediated calls and skip others. They expect that the number of
/// the call is loaded.
pub(super) fn lines(scope: SignalScope, action: u32) -> Vec<libc::sock_filter> {
    let mut lines = Vec::new();
    for call in OLDER.into_iter().chain(COMMON).chain(ATTRIBUTES) {
        lines.push(line(EQUAL, u32::try_from(call).unwrap_or(u32::MAX), 0, 1));
        lines.push(line(RETURN, action, 0, 0));
    }
    if scope == SignalScope::Mediated {
        lines.extend(signals::lines(action));
    }
    lines
}

/// Answers the mediated calls of one command.
#[derive(Debug)]
pub(crate) struct Mediator {
    places: Places,
    answering: Answering,
}

impl Mediator {
    /// The mediator for the command of this spec. `answering`: which process it runs in.
    pub fn of(spec: &Spec, answering: Answering) -> Self {
        Self {
            places: Places::of(spec),
            answering,
        }
    }

    /// Carries out a call if its target is within the command's reach. Returns how the suspended call ends.
    pub(in crate::process) fn answer(&self, listener: &SeccompListener, asked: &SeccompNotification) -> SeccompReply {
        let is_waiting = || listener.waits(asked);
        let done = match signals::is_taken(asked.call) {
            true => signals::answer(self.answering, asked, is_waiting),
            false => mediate(&self.places, asked, is_waiting).map(|()| SeccompReply::Succeed),
        };
        done.unwrap_or_else(SeccompReply::Fail)
    }
}

/// The places in which the command may make such changes.
#[derive(Debug)]
struct Places {
    writable: Vec<PathBuf>,
    hidden: Vec<PathBuf>,
}

impl Places {
    /// The places of one order, with links resolved.
    fn of(spec: &Spec) -> Self {
        let real = |path: &PathBuf| std::fs::canonicalize(path).ok();
        let mut writable: Vec<PathBuf> = spec.writable.iter().filter_map(real).collect();
        if let Some(workspace) = real(&spec.workspace) {
            match spec.reach.tree {
                true => writable.push(workspace),
                false => writable.extend(spec.reach.writable.iter().map(|path| workspace.join(path))),
            }
        }
        let hidden = spec.hidden.iter().filter_map(real).collect();
        Self { writable, hidden }
    }

    /// Whether the file of a handle is now in one of these places.
    fn hold(&self, handle: &OwnedFd) -> bool {
        let Ok(place) = readlink(at::own_link(handle), Vec::new()) else {
            return false;
        };
        let place = PathBuf::from(std::ffi::OsString::from_vec(place.into_bytes()));
        // An anonymous file in memory belongs to the process that has it open.
        place.as_os_str().as_bytes().starts_with(b"/memfd:")
            || (self.writable.iter().any(|dir| place.starts_with(dir))
                && !self.hidden.iter().any(|dir| place.starts_with(dir)))
    }
}

/// The file that a call changes.
enum Target {
    /// An open descriptor of the process.
    Open(u64),
    /// A path in the process's memory, relative to a descriptor or its working directory.
    Path {
        dir: u64,
        path: u64,
        follow: bool,
        empty: bool,
    },
}

/// What a call changes. Numbers are addresses in the process.
enum Act {
    Mode(u64),
    Owner(u64, u64),
    Times(Option<[Timespec; 2]>),
    SetAttribute {
        name: u64,
        value: u64,
        size: u64,
        flags: u64,
    },
    RemoveAttribute(u64),
}

/// Carries out a change of a file if the file is in one of `places`. `is_waiting` says whether the caller is still
/// suspended in this very call; it is checked after the caller was examined and before anything is changed.
fn mediate(places: &Places, asked: &SeccompNotification, is_waiting: impl Fn() -> bool) -> Result<()> {
    let process = asked.thread.unsigned_abs();
    let memory = TracedMemory::of(process)?;
    let (target, act) = read(asked.call, &asked.arguments, &memory)?;
    let handle = reach(&target, process, &memory)?;
    if !places.hold(&handle) {
        return Err(Errno::PERM);
    }
    let change = Change::of(act, &memory)?;
    if !is_waiting() {
        return Err(Errno::SRCH);
    }
    change.make(&handle)
}

/// Decodes a call.
fn read(call: i64, args: &[u64; 6], memory: &TracedMemory) -> Result<(Target, Act)> {
    let [one, two, three, four, five, _] = *args;
    let cwd = libc::AT_FDCWD as u64;
    let at = |dir: u64, path: u64, flags: u64| Target::Path {
        dir,
        path,
        follow: flags & libc::AT_SYMLINK_NOFOLLOW as u64 == 0,
        empty: flags & libc::AT_EMPTY_PATH as u64 != 0,
    };
    let no_follow = libc::AT_SYMLINK_NOFOLLOW as u64;
    let set = |name, value, size, flags| Act::SetAttribute {
        name,
        value,
        size,
        flags,
    };
    #[cfg(target_arch = "x86_64")]
    match call {
        libc::SYS_chmod => return Ok((at(cwd, one, 0), Act::Mode(two))),
        libc::SYS_chown => return Ok((at(cwd, one, 0), Act::Owner(two, three))),
        libc::SYS_lchown => return Ok((at(cwd, one, no_follow), Act::Owner(two, three))),
        libc::SYS_utime => return Ok((at(cwd, one, 0), Act::Times(memory.seconds(two)?))),
        libc::SYS_utimes => return Ok((at(cwd, one, 0), Act::Times(memory.times(two, 1_000)?))),
        libc::SYS_futimesat => return Ok((at(one, two, 0), Act::Times(memory.times(three, 1_000)?))),
        _ => {}
    }
    Ok(match call {
        libc::SYS_fchmod => (Target::Open(one), Act::Mode(two)),
        libc::SYS_fchmodat => (at(one, two, 0), Act::Mode(three)),
        FCHMODAT2 => (at(one, two, four), Act::Mode(three)),
        libc::SYS_fchown => (Target::Open(one), Act::Owner(two, three)),
        libc::SYS_fchownat => (at(one, two, five), Act::Owner(three, four)),
        libc::SYS_utimensat if two == 0 => (Target::Open(one), Act::Times(memory.times(three, 1)?)),
        libc::SYS_utimensat => (at(one, two, four), Act::Times(memory.times(three, 1)?)),
        libc::SYS_setxattr => (at(cwd, one, 0), set(two, three, four, five)),
        libc::SYS_lsetxattr => (at(cwd, one, no_follow), set(two, three, four, five)),
        libc::SYS_fsetxattr => (Target::Open(one), set(two, three, four, five)),
        libc::SYS_removexattr => (at(cwd, one, 0), Act::RemoveAttribute(two)),
        libc::SYS_lremovexattr => (at(cwd, one, no_follow), Act::RemoveAttribute(two)),
        libc::SYS_fremovexattr => (Target::Open(one), Act::RemoveAttribute(two)),
        // The C library falls back to the older calls.
        _ => return Err(Errno::NOSYS),
    })
}

/// Opens a handle of the call's target.
fn reach(target: &Target, process: u32, memory: &TracedMemory) -> Result<OwnedFd> {
    let (dir, path, follow, empty) = match target {
        Target::Open(fd) => return descriptor(process, *fd),
        Target::Path {
            dir,
            path,
            follow,
            empty,
        } => (*dir, memory.text(*path, PATH_MAX)?, *follow, *empty),
    };
    if path.is_empty() {
        return match empty {
            true if is_cwd(dir) => cwd(process),
            true => descriptor(process, dir),
            false => Err(Errno::NOENT),
        };
    }
    if let Some(fd) = named_descriptor(&path) {
        return descriptor(process, fd.into());
    }
    let path = Path::new(std::ffi::OsStr::from_bytes(&path));
    let base = match path.is_absolute() || is_cwd(dir) {
        true => cwd(process)?,
        false => descriptor(process, dir)?,
    };
    let mut flags = OFlags::PATH | OFlags::CLOEXEC;
    if !follow {
        flags |= OFlags::NOFOLLOW;
    }
    // A magic link of `/proc` would refer to this process, not to the caller.
    match openat2(&base, path, flags, Mode::empty(), ResolveFlags::NO_MAGICLINKS) {
        Err(error) if path_resolution::is_refused(error) => {
            let root = open(c"/", OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
            path_resolution::through_links(&root, Some(base), path.as_os_str().as_bytes(), follow)
        }
        opened => opened,
    }
}

fn is_cwd(dir: u64) -> bool {
    // A descriptor is an `int`; the kernel ignores the upper half of the register.
    dir as u32 == libc::AT_FDCWD as u32
}

fn cwd(process: u32) -> Result<OwnedFd> {
    open(
        format!("/proc/{process}/cwd"),
        OFlags::PATH | OFlags::CLOEXEC,
        Mode::empty(),
    )
}

fn descriptor(process: u32, fd: u64) -> Result<OwnedFd> {
    let opened = open(
        format!("/proc/{process}/fd/{}", fd as u32),
        OFlags::PATH | OFlags::CLOEXEC,
        Mode::empty(),
    );
    opened.map_err(|error| if error == Errno::NOENT { Errno::BADF } else { error })
}

/// The number in `/proc/self/fd/N`; the C library uses such paths as a fallback.
pub(in crate::process) fn named_descriptor(path: &[u8]) -> Option<u32> {
    let text = std::str::from_utf8(path).ok()?;
    let number = ["/proc/self/fd/", "/proc/thread-self/fd/", "/dev/fd/"]
        .iter()
        .find_map(|start| text.strip_prefix(start))?;
    number.parse().ok()
}

/// A change with all its values, read from the process.
enum Change {
    Mode(Mode),
    Owner(Option<Uid>, Option<Gid>),
    Times(Timestamps),
    SetAttribute(String, Vec<u8>, XattrFlags),
    RemoveAttribute(String),
}

impl Change {
    fn of(act: Act, memory: &TracedMemory) -> Result<Self> {
        let now = Timespec {
            tv_sec: 0,
            tv_nsec: libc::UTIME_NOW,
        };
        Ok(match act {
            // No file may get the mode bits set-user-ID or set-group-ID.
            Act::Mode(mode) if mode & 0o6000 != 0 => return Err(Errno::PERM),
            Act::Mode(mode) => Change::Mode(Mode::from_raw_mode((mode & 0o1777) as u32)),
            Act::Owner(user, group) => {
                let (user, group) = (user as u32, group as u32);
                Change::Owner(
                    (user != u32::MAX).then(|| Uid::from_raw(user)),
                    (group != u32::MAX).then(|| Gid::from_raw(group)),
                )
            }
            Act::Times(times) => {
                let [last_access, last_modification] = times.unwrap_or([now, now]);
                Change::Times(Timestamps {
                    last_access,
                    last_modification,
                })
            }
            Act::SetAttribute {
                name,
                value,
                size,
                flags,
            } => {
                let size = usize::try_from(size).map_err(|_| Errno::TOOBIG)?;
                if size > MOST_VALUE {
                    return Err(Errno::TOOBIG);
                }
                let flags = XattrFlags::from_bits(flags as u32).ok_or(Errno::INVAL)?;
                Change::SetAttribute(attribute(name, memory)?, memory.bytes(value, size)?, flags)
            }
            Act::RemoveAttribute(name) => Change::RemoveAttribute(attribute(name, memory)?),
        })
    }

    fn make(self, handle: &OwnedFd) -> Result<()> {
        let link = at::own_link(handle);
        match self {
            Change::Mode(mode) => at::set_mode(handle, mode.as_raw_mode()).or_else(|_| {
                // Lets the kernel report the reason of the failure.
                chmodat(CWD, &link, mode, AtFlags::empty())
            }),
            Change::Owner(user, group) => chownat(handle, "", user, group, AtFlags::EMPTY_PATH),
            Change::Times(times) => utimensat(CWD, &link, &times, AtFlags::empty()),
            Change::SetAttribute(name, value, flags) => setxattr(&link, name.as_str(), &value, flags),
            Change::RemoveAttribute(name) => removexattr(&link, name.as_str()),
        }
    }
}

/// The name of an attribute that a command may set or remove: only `user.*`, on which the kernel does not act. Access
/// control lists would open files to other users after the command; programs that copy them continue without them on
/// `ENOTSUP`, the answer of a file system that has none.
fn attribute(name: u64, memory: &TracedMemory) -> Result<String> {
    let name = String::from_utf8(memory.text(name, MOST_NAME)?).map_err(|_| Errno::PERM)?;
    match name.starts_with("system.posix_acl_") {
        true => Err(Errno::NOTSUP),
        false => name.starts_with("user.").then_some(name).ok_or(Errno::PERM),
    }
}
