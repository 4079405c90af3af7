//! Resource limits of a confined process, and dropping its capabilities.

use super::cgroup::Groups;
use super::report::step;
use super::spec::Spec;
use crate::process::SandboxLevel;
use rustix::process::{Resource, Rlimit, geteuid, getrlimit, setrlimit};
use rustix::thread::{CapabilitySet, CapabilitySets, remove_capability_from_bounding_set, set_capabilities};
use std::io;
use std::os::unix::fs::MetadataExt;

/// The largest file in bytes that a command may write.
const FILE_BYTES: u64 = 2 << 30;
/// Open descriptors per process.
const DESCRIPTORS: u64 = 65_536;
/// PIDs that the kernel reserves after wrap-around (`RESERVED_PIDS`).
const RESERVED: u64 = 300;

/// What limits the number of processes.
pub(super) enum Processes {
    /// The kernel already: `pid_max` of this PID namespace is that small.
    Table,
    /// The kernel, by this `RLIMIT_NPROC` of the user.
    User(u64),
    /// The kernel, by a control group.
    Grouped,
    /// `init`, by polling.
    Watched,
    /// Nothing: level `none`.
    Free,
}

/// Finds the strictest available means. Must run before `/proc` becomes read-only for this process; at `full` inside
/// its namespaces.
pub(super) fn processes(spec: &Spec, groups: &Groups) -> Result<Processes, String> {
    let root = geteuid().is_root();
    Ok(match spec.level {
        SandboxLevel::None => Processes::Free,
        // In a user namespace the kernel counts only the processes of that namespace.
        SandboxLevel::Full if !root => Processes::User(spec.processes),
        SandboxLevel::Full if table_is_small(spec) => Processes::Table,
        SandboxLevel::Landlock if !root => {
            Processes::User(step("counting processes", threads_of_user())? + spec.processes)
        }
        SandboxLevel::Landlock if groups.holds_processes => Processes::Grouped,
        SandboxLevel::Full | SandboxLevel::Landlock => Processes::Watched,
    })
}

/// Whether this PID namespace has its own `pid_max`, and a small one (Linux 6.14).
fn table_is_small(spec: &Spec) -> bool {
    std::fs::read_to_string("/proc/sys/kernel/pid_max")
        .ok()
        .and_then(|text| text.trim().parse::<u64>().ok())
        .is_some_and(|size| size <= spec.processes + RESERVED)
}

/// Lowers `pid_max` of a new PID namespace, if the kernel has one per namespace.
pub(super) fn shrink_table(spec: &Spec) {
    // A kernel with a single `pid_max` refuses; then `processes` finds another means.
    if is_6_14_or_newer() {
        let _ = std::fs::write("/proc/sys/kernel/pid_max", (spec.processes + RESERVED).to_string());
    }
}

/// Before 6.14 the file is the setting of the whole machine and must not be changed.
fn is_6_14_or_newer() -> bool {
    let release = rustix::system::uname().release().to_string_lossy().into_owned();
    let mut numbers = release
        .split(|sign: char| !sign.is_ascii_digit())
        .filter_map(|text| text.parse::<u32>().ok());
    (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0)) >= (6, 14)
}

/// Processes and threads of this user, as counted for `RLIMIT_NPROC`.
fn threads_of_user() -> std::io::Result<u64> {
    let me = geteuid().as_raw();
    let count = std::fs::read_dir("/proc")?
        .flatten()
        .filter(|item| {
            item.file_name()
                .to_str()
                .is_some_and(|name| name.parse::<u32>().is_ok())
        })
        .filter(|item| item.metadata().is_ok_and(|data| data.uid() == me))
        .filter_map(|item| Some(std::fs::read_dir(item.path().join("task")).ok()?.count() as u64))
        .sum();
    Ok(count)
}

/// The original soft limit on descriptors, to restore later.
pub(super) struct Descriptors(Rlimit);

/// Raises the limit so that this process can hold one descriptor for each mount.
pub(super) fn many_descriptors() -> rustix::io::Result<Descriptors> {
    let before = getrlimit(Resource::Nofile);
    let enough = before.maximum.map_or(DESCRIPTORS, |maximum| maximum.min(DESCRIPTORS));
    if before.current.is_some_and(|current| current < enough) {
        let more = Rlimit {
            current: Some(enough),
            maximum: before.maximum,
        };
        setrlimit(Resource::Nofile, more)?;
    }
    Ok(Descriptors(before))
}

impl Descriptors {
    /// Restores the original soft limit.
    ///
    /// # Errors
    /// The system refuses the limit.
    pub fn put_back(self) -> rustix::io::Result<()> {
        setrlimit(Resource::Nofile, self.0)
    }
}

/// Sets the limits for the command.
pub(super) fn apply(spec: &Spec, processes: &Processes, entered: io::Result<()>) -> Result<(), String> {
    // If no group is entered, memory is polled.
    if let (Err(error), Processes::Grouped) = (entered, processes) {
        return Err(format!("control group: {error}"));
    }
    step("core limit", lower(Resource::Core, 0))?;
    if spec.level == SandboxLevel::None {
        return Ok(());
    }
    step("file size limit", lower(Resource::Fsize, FILE_BYTES))?;
    step("descriptor limit", lower(Resource::Nofile, descriptors()))?;
    if let Processes::User(limit) = processes {
        step("process limit", lower(Resource::Nproc, *limit))?;
    }
    Ok(())
}

/// The limit for open descriptors. An ordinary user gets at most half of the hard limit: the kernel counts descriptors in
/// flight per user, so a command that may have all of them could keep this program from sending any (unix(7),
/// `ETOOMANYREFS`).
fn descriptors() -> u64 {
    match getrlimit(Resource::Nofile).maximum {
        Some(maximum) if !geteuid().is_root() => DESCRIPTORS.min(maximum / 2),
        _ => DESCRIPTORS,
    }
}

/// Never raises a limit: an ordinary user may not, and a stricter limit from outside stays.
fn lower(resource: Resource, to: u64) -> rustix::io::Result<()> {
    let now = getrlimit(resource);
    let least = |limit: Option<u64>| Some(limit.map_or(to, |limit| limit.min(to)));
    let new = Rlimit {
        current: least(now.current),
        maximum: least(now.maximum),
    };
    setrlimit(resource, new)
}

/// Root keeps only the capabilities needed to unpack and build in its own tree; any other user keeps none.
pub(super) fn give_up_capabilities(spec: &Spec) -> Result<(), String> {
    let mut keep = CapabilitySet::empty();
    if geteuid().is_root() {
        // At `landlock` the mediator changes owners and modes for the command, and only in its own places.
        if spec.level == SandboxLevel::Full {
            keep = CapabilitySet::CHOWN | CapabilitySet::FOWNER;
        }
        let foreign = std::fs::metadata(&spec.workspace).is_ok_and(|data| data.uid() != 0);
        if foreign {
            keep |= CapabilitySet::DAC_OVERRIDE;
        }
    }
    for bit in 0..41 {
        let one = CapabilitySet::from_bits_retain(1 << bit);
        if !keep.contains(one) {
            // A process that may not drop capabilities has none; a number that this kernel does not know is no
            // capability.
            let _ = remove_capability_from_bounding_set(one);
        }
    }
    let sets = CapabilitySets {
        effective: keep,
        permitted: keep,
        inheritable: CapabilitySet::empty(),
    };
    step("giving up privileges", set_capabilities(None, sets))
}
