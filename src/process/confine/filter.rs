//! The seccomp filter of a confined command: the system calls that it may not make.

use super::mediate::ATTRIBUTES;
use super::report::step;
use super::spec::Spec;
use crate::process::SandboxLevel;
use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter, SeccompRule,
    TargetArch, apply_filter,
};
use std::collections::BTreeMap;
use std::io;
use std::os::fd::{FromRawFd, OwnedFd};

/// Denied whatever their arguments: other processes' memory, mounts, namespaces, kernel settings, and interfaces with a
/// large attack surface.
const REFUSED: &[i64] = &[
    libc::SYS_acct,
    libc::SYS_add_key,
    libc::SYS_adjtimex,
    libc::SYS_bpf,
    libc::SYS_chroot,
    libc::SYS_clock_adjtime,
    libc::SYS_clock_settime,
    libc::SYS_delete_module,
    libc::SYS_fanotify_init,
    libc::SYS_finit_module,
    libc::SYS_fsconfig,
    libc::SYS_fsmount,
    libc::SYS_fsopen,
    libc::SYS_fspick,
    libc::SYS_init_module,
    libc::SYS_io_uring_enter,
    libc::SYS_io_uring_register,
    libc::SYS_io_uring_setup,
    libc::SYS_kcmp,
    libc::SYS_kexec_file_load,
    libc::SYS_kexec_load,
    libc::SYS_keyctl,
    libc::SYS_mount,
    libc::SYS_mount_setattr,
    libc::SYS_move_mount,
    libc::SYS_name_to_handle_at,
    libc::SYS_open_by_handle_at,
    libc::SYS_open_tree,
    libc::SYS_perf_event_open,
    libc::SYS_pidfd_getfd,
    libc::SYS_pivot_root,
    libc::SYS_process_madvise,
    libc::SYS_process_vm_readv,
    libc::SYS_process_vm_writev,
    libc::SYS_ptrace,
    libc::SYS_quotactl,
    libc::SYS_reboot,
    libc::SYS_request_key,
    libc::SYS_setdomainname,
    libc::SYS_sethostname,
    libc::SYS_setns,
    libc::SYS_settimeofday,
    libc::SYS_swapoff,
    libc::SYS_swapon,
    libc::SYS_syslog,
    libc::SYS_umount2,
    libc::SYS_unshare,
    libc::SYS_userfaultfd,
    libc::SYS_vhangup,
];

/// Denied at `landlock`, where the command shares these with the machine: System V and POSIX shared memory, semaphores
/// and message queues.
const MACHINE_WIDE: &[i64] = &[
    libc::SYS_shmget,
    libc::SYS_shmat,
    libc::SYS_shmctl,
    libc::SYS_shmdt,
    libc::SYS_semget,
    libc::SYS_semop,
    libc::SYS_semctl,
    libc::SYS_semtimedop,
    libc::SYS_msgget,
    libc::SYS_msgsnd,
    libc::SYS_msgrcv,
    libc::SYS_msgctl,
    libc::SYS_mq_open,
    libc::SYS_mq_unlink,
    libc::SYS_mq_timedsend,
    libc::SYS_mq_timedreceive,
    libc::SYS_mq_notify,
    libc::SYS_mq_getsetattr,
];

/// Calls that set how a process is scheduled; the first argument is its PID.
const SCHEDULING: &[i64] = &[
    libc::SYS_sched_setaffinity,
    libc::SYS_sched_setattr,
    libc::SYS_sched_setparam,
    libc::SYS_sched_setscheduler,
    libc::SYS_migrate_pages,
    libc::SYS_move_pages,
];

/// `IOPRIO_WHO_PROCESS` of `linux/ioprio.h`.
const IOPRIO_WHO_PROCESS: u64 = 1;

/// `FS_IOC_SETFLAGS`, `FS_IOC32_SETFLAGS`, `FS_IOC_SETVERSION` and `FS_IOC_FSSETXATTR`.
const FILE_SETTINGS: &[u64] = &[0x4008_6602, 0x4004_6602, 0x4008_7602, 0x401c_5820];

#[cfg(target_arch = "x86_64")]
const REFUSED_HERE: &[i64] = &[libc::SYS_ioperm, libc::SYS_iopl, libc::SYS_modify_ldt, libc::SYS_uselib];
#[cfg(not(target_arch = "x86_64"))]
const REFUSED_HERE: &[i64] = &[];

/// The flags of `clone` that create a namespace.
const NEW_NAMESPACES: u64 = 0x7e02_0080;
/// The mode bits set-user-ID and set-group-ID.
const SET_ID: u64 = 0o6000;

type Rules = BTreeMap<i64, Vec<SeccompRule>>;

/// Installs the filters. Requires no-new-privileges.
pub(super) fn apply(spec: &Spec) -> Result<(), String> {
    let programs = step("building the filter", build(spec.level, spec.reach.sockets))?;
    for program in &programs {
        step("setting the filter", apply_filter(program))?;
    }
    Ok(())
}

/// `unix`: whether the command may create Unix sockets at `full`.
fn build(level: SandboxLevel, unix: bool) -> Result<Vec<BpfProgram>, seccompiler::Error> {
    let mut rules: Rules = REFUSED
        .iter()
        .chain(REFUSED_HERE)
        .map(|call| (*call, Vec::new()))
        .collect();
    rules.insert(libc::SYS_clone, masks(0, NEW_NAMESPACES)?);
    // These two ioctls can inject terminal input.
    rules.insert(libc::SYS_ioctl, vec![low(1, libc::TIOCSTI)?, low(1, libc::TIOCLINUX)?]);
    // This soft limit carries the mark of a tree.
    let locks = low(0, u64::from(libc::RLIMIT_LOCKS))?;
    rules.insert(libc::SYS_setrlimit, vec![locks]);
    let sets = SeccompCondition::new(2, SeccompCmpArgLen::Qword, SeccompCmpOp::Ne, 0)?;
    let of_locks = SeccompCondition::new(
        1,
        SeccompCmpArgLen::Dword,
        SeccompCmpOp::Eq,
        u64::from(libc::RLIMIT_LOCKS),
    )?;
    // The limits of another process may be read but not set. At `full` that process could be the one that reports how
    // the command ended.
    rules.insert(
        libc::SYS_prlimit64,
        vec![
            SeccompRule::new(vec![of_locks, sets.clone()])?,
            SeccompRule::new(vec![not(0, 0)?, sets])?,
        ],
    );
    modes(&mut rules)?;
    rules.insert(libc::SYS_socket, sockets(level, unix)?);
    if level == SandboxLevel::Landlock || !unix {
        rules.insert(libc::SYS_socketpair, datagram_pairs()?);
    }
    if level == SandboxLevel::Landlock {
        machine_wide(&mut rules)?;
    }
    let refuse = program(rules, libc::EPERM.unsigned_abs())?;
    // The flags of `clone3` and the mode of `openat2` are in memory, which a filter cannot read; after ENOSYS programs
    // fall back to `clone` and `openat`, as on older kernels.
    let unknown = BTreeMap::from([(libc::SYS_clone3, Vec::new()), (libc::SYS_openat2, Vec::new())]);
    // Numbers of the x32 ABI match no rule here; the last filter, in `notify`, kills a process that uses one.
    let mut programs = vec![refuse, program(unknown, libc::ENOSYS.unsigned_abs())?];
    if level == SandboxLevel::Full {
        let attributes = ATTRIBUTES.map(|call| (call, Vec::new()));
        programs.push(program(Rules::from(attributes), libc::ENOTSUP.unsigned_abs())?);
    }
    Ok(programs)
}

/// Restricts what namespaces separate at `full`: priorities, CPU affinity and limits of other processes, and the
/// machine's System V and POSIX objects. Also denies changing file settings through a descriptor that was opened only
/// for reading.
///
/// A process may name only itself, as 0. This keeps a thread from changing another thread of its own process, which
/// some libraries do to bind threads to CPUs; they continue without it.
fn machine_wide(rules: &mut Rules) -> Result<(), seccompiler::Error> {
    for call in MACHINE_WIDE {
        rules.insert(*call, Vec::new());
    }
    rules
        .entry(libc::SYS_prlimit64)
        .or_default()
        .push(SeccompRule::new(vec![not(0, 0)?])?);
    for call in SCHEDULING {
        rules.insert(*call, vec![SeccompRule::new(vec![not(0, 0)?])?]);
    }
    // Denied for a process group, a user, or another process.
    for (call, itself) in [
        (libc::SYS_setpriority, u64::from(libc::PRIO_PROCESS)),
        (libc::SYS_ioprio_set, IOPRIO_WHO_PROCESS),
    ] {
        let of_others = vec![
            SeccompRule::new(vec![not(0, itself)?])?,
            SeccompRule::new(vec![not(1, 0)?])?,
        ];
        rules.insert(call, of_others);
    }
    for setting in FILE_SETTINGS {
        rules.entry(libc::SYS_ioctl).or_default().push(low(1, *setting)?);
    }
    Ok(())
}

/// Denies the mode bits set-user-ID and set-group-ID.
fn modes(rules: &mut Rules) -> Result<(), seccompiler::Error> {
    let mut with_mode = vec![
        (libc::SYS_fchmod, 1),
        (libc::SYS_fchmodat, 2),
        // `fchmodat2`, for which the C library has no constant.
        (452, 2),
        (libc::SYS_openat, 3),
        (libc::SYS_mknodat, 2),
    ];
    #[cfg(target_arch = "x86_64")]
    with_mode.extend([
        (libc::SYS_chmod, 1),
        (libc::SYS_open, 2),
        (libc::SYS_creat, 1),
        (libc::SYS_mknod, 1),
    ]);
    for (call, argument) in with_mode.drain(..) {
        rules.insert(call, masks(argument, SET_ID)?);
    }
    Ok(())
}

/// Which sockets may be created. At `full` the network namespace is private and empty, so a test's server may listen
/// and be reached. At `landlock` the network is the machine's: no socket except a connected pair (`socketpair`, of which
/// [`datagram_pairs`] are refused).
fn sockets(level: SandboxLevel, unix: bool) -> Result<Vec<SeccompRule>, seccompiler::Error> {
    let allowed: &[i32] = match level {
        // Without a Unix socket the command cannot connect to a socket file in the workspace.
        SandboxLevel::Full if !unix => &[libc::AF_INET, libc::AF_INET6, libc::AF_NETLINK],
        SandboxLevel::Full | SandboxLevel::None => &[libc::AF_UNIX, libc::AF_INET, libc::AF_INET6, libc::AF_NETLINK],
        SandboxLevel::Landlock => &[],
    };
    let not = |domain: &i32| {
        let domain = u64::from(domain.unsigned_abs());
        SeccompCondition::new(0, SeccompCmpArgLen::Dword, SeccompCmpOp::Ne, domain)
    };
    let none_of: Vec<SeccompCondition> = allowed.iter().map(not).collect::<Result<_, _>>()?;
    if none_of.is_empty() {
        return Ok(Vec::new());
    }
    let raw = SeccompCondition::new(
        1,
        SeccompCmpArgLen::Dword,
        SeccompCmpOp::MaskedEq(0xf),
        u64::from(libc::SOCK_RAW.unsigned_abs()),
    )?;
    let internet = |domain: i32| {
        SeccompCondition::new(
            0,
            SeccompCmpArgLen::Dword,
            SeccompCmpOp::Eq,
            u64::from(domain.unsigned_abs()),
        )
    };
    Ok(vec![
        SeccompRule::new(none_of)?,
        SeccompRule::new(vec![internet(libc::AF_INET)?, raw.clone()])?,
        SeccompRule::new(vec![internet(libc::AF_INET6)?, raw])?,
    ])
}

/// Pairs of datagram sockets: either end could be sent from to any socket file. A pair of streams stays connected. For
/// `SOCK_RAW` the kernel makes a datagram socket too.
fn datagram_pairs() -> Result<Vec<SeccompRule>, seccompiler::Error> {
    let of_kind = |kind: i32| {
        let kind = u64::from(kind.unsigned_abs());
        let masked = SeccompCmpOp::MaskedEq(0xf);
        SeccompRule::new(vec![SeccompCondition::new(1, SeccompCmpArgLen::Dword, masked, kind)?])
    };
    Ok(vec![of_kind(libc::SOCK_DGRAM)?, of_kind(libc::SOCK_RAW)?])
}

/// One rule for each bit of `mask`: a filter condition can compare values, but cannot test for "any of these bits".
fn masks(argument: u8, mask: u64) -> Result<Vec<SeccompRule>, seccompiler::Error> {
    let bits = (0..32).map(|bit| 1_u64 << bit).filter(|bit| mask & bit != 0);
    bits.map(|bit| {
        let condition = SeccompCondition::new(argument, SeccompCmpArgLen::Dword, SeccompCmpOp::MaskedEq(bit), bit)?;
        Ok(SeccompRule::new(vec![condition])?)
    })
    .collect()
}

fn not(argument: u8, value: u64) -> Result<SeccompCondition, seccompiler::Error> {
    Ok(SeccompCondition::new(
        argument,
        SeccompCmpArgLen::Dword,
        SeccompCmpOp::Ne,
        value,
    )?)
}

fn low(argument: u8, value: u64) -> Result<SeccompRule, seccompiler::Error> {
    let condition = SeccompCondition::new(argument, SeccompCmpArgLen::Dword, SeccompCmpOp::Eq, value)?;
    Ok(SeccompRule::new(vec![condition])?)
}

fn program(rules: Rules, errno: u32) -> Result<BpfProgram, seccompiler::Error> {
    let arch = TargetArch::try_from(std::env::consts::ARCH)?;
    let filter = SeccompFilter::new(rules, SeccompAction::Allow, SeccompAction::Errno(errno), arch)?;
    Ok(filter.try_into()?)
}

/// Installs a filter program in this process. Returns the listener if `flags` ask for one.
#[expect(unsafe_code, reason = "the crate for filters does not support listeners")]
pub(super) fn install(program: &[libc::sock_filter], flags: libc::c_ulong) -> io::Result<Option<OwnedFd>> {
    let order = libc::sock_fprog {
        len: u16::try_from(program.len()).map_err(io::Error::other)?,
        filter: program.as_ptr().cast_mut(),
    };
    // SAFETY: `order` and the program that it points to live through the call, which only reads them.
    let done = unsafe {
        libc::syscall(
            libc::SYS_seccomp,
            libc::SECCOMP_SET_MODE_FILTER,
            flags,
            &raw const order,
        )
    };
    if done < 0 {
        return Err(io::Error::last_os_error());
    }
    if flags & libc::SECCOMP_FILTER_FLAG_NEW_LISTENER == 0 {
        return Ok(None);
    }
    let number = i32::try_from(done).map_err(io::Error::other)?;
    // SAFETY: the kernel has just created this descriptor, and nothing else owns it.
    Ok(Some(unsafe { OwnedFd::from_raw_fd(number) }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_level_has_a_filter_that_fits_the_kernel() {
        for level in [SandboxLevel::Full, SandboxLevel::Landlock] {
            for unix in [true, false] {
                let programs = build(level, unix).unwrap();
                assert_eq!(programs.len(), if level == SandboxLevel::Full { 3 } else { 2 });
                assert!(programs.iter().all(|program| program.len() < 4096));
            }
        }
    }

    #[test]
    fn a_mask_becomes_a_rule_a_bit() {
        assert_eq!(masks(0, SET_ID).unwrap().len(), 2);
        assert_eq!(masks(0, NEW_NAMESPACES).unwrap().len(), 8);
    }
}
