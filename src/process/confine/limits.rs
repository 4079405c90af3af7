//! What a confined process may use up, and the privileges that it gives up. No files, no system calls by name.

use super::cgroup::Groups;
use super::spec::Spec;
use super::step;
use crate::process::Level;
use rustix::process::{Resource, Rlimit, geteuid, getrlimit, setrlimit};
use rustix::thread::{CapabilitySet, CapabilitySets, remove_capability_from_bounding_set, set_capabilities};
use std::os::unix::fs::MetadataExt;

/// The largest file that a command may make.
const FILE_BYTES: u64 = 2 << 30;
/// Descriptors of one process.
const DESCRIPTORS: u64 = 65_536;
/// Numbers that a process table keeps back once it has gone round.
const RESERVED: u64 = 300;

/// Who holds the number of processes down.
pub(super) enum Processes {
    /// The kernel does already: the table of this process namespace is that small.
    Table,
    /// The kernel, by this limit on the user.
    User(u64),
    /// The kernel, for a control group.
    Grouped,
    /// We do, by looking.
    Watched,
    /// Nobody: level `none`.
    Free,
}

/// Finds the strictest means there is. Must run before `/proc` becomes read-only for this process, at `full` in its namespaces.
pub(super) fn processes(spec: &Spec, groups: &Groups) -> Result<Processes, String> {
    let root = geteuid().is_root();
    Ok(match spec.level {
        Level::None => Processes::Free,
        // In a user namespace the kernel counts this namespace's processes alone.
        Level::Full if !root => Processes::User(spec.processes),
        Level::Full if table_is_small(spec) => Processes::Table,
        Level::Landlock if !root => Processes::User(step("counting processes", threads_of_user())? + spec.processes),
        Level::Landlock if groups.holds_processes => Processes::Grouped,
        Level::Full | Level::Landlock => Processes::Watched,
    })
}

/// Whether this process namespace has a table of its own, and a small one (Linux 6.14).
fn table_is_small(spec: &Spec) -> bool {
    std::fs::read_to_string("/proc/sys/kernel/pid_max")
        .ok()
        .and_then(|text| text.trim().parse::<u64>().ok())
        .is_some_and(|size| size <= spec.processes + RESERVED)
}

/// Makes the process table of a new process namespace small, where the kernel keeps one for each.
pub(super) fn shrink_table(spec: &Spec) {
    // A kernel that has only one table refuses; then `processes` finds another means.
    if kernel_at_least(6, 14) {
        let _ = std::fs::write("/proc/sys/kernel/pid_max", (spec.processes + RESERVED).to_string());
    }
}

/// Before 6.14 the file is the whole machine's and must not be touched.
fn kernel_at_least(major: u32, minor: u32) -> bool {
    let release = rustix::system::uname().release().to_string_lossy().into_owned();
    let mut numbers = release
        .split(|sign: char| !sign.is_ascii_digit())
        .filter_map(|text| text.parse::<u32>().ok());
    (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0)) >= (major, minor)
}

/// Processes and threads of this user, as the kernel counts them for its limit.
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

/// The soft limit on descriptors, to be put back.
pub(super) struct Descriptors(Rlimit);

/// Lets this process hold a descriptor for each place that it mounts.
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
    pub fn put_back(self) -> rustix::io::Result<()> {
        setrlimit(Resource::Nofile, self.0)
    }
}

/// Sets the limits of the command.
pub(super) fn apply(spec: &Spec, processes: &Processes, groups: &Groups) -> Result<(), String> {
    // Memory is looked at where no group is entered.
    if let (Err(error), Processes::Grouped) = (groups.enter(), processes) {
        return Err(format!("control group: {error}"));
    }
    step("core limit", lower(Resource::Core, 0))?;
    if spec.level == Level::None {
        return Ok(());
    }
    step("file size limit", lower(Resource::Fsize, FILE_BYTES))?;
    step("descriptor limit", lower(Resource::Nofile, DESCRIPTORS))?;
    if let Processes::User(limit) = processes {
        step("process limit", lower(Resource::Nproc, *limit))?;
    }
    Ok(())
}

/// Never raises: an ordinary user may not, and a stricter limit from outside stays.
fn lower(resource: Resource, to: u64) -> rustix::io::Result<()> {
    let now = getrlimit(resource);
    let least = |limit: Option<u64>| Some(limit.map_or(to, |limit| limit.min(to)));
    let new = Rlimit {
        current: least(now.current),
        maximum: least(now.maximum),
    };
    setrlimit(resource, new)
}

/// A root user keeps only what it needs to unpack and build in its own tree; anybody else keeps nothing.
pub(super) fn give_up_capabilities(spec: &Spec) -> Result<(), String> {
    let mut keep = CapabilitySet::empty();
    if geteuid().is_root() {
        // At `landlock` owners and modes are changed in its stead, and only in its own places.
        if spec.level == Level::Full {
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
            // Only who may drop them has any to drop; a number that this kernel lacks is none.
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
