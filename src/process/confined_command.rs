//! Builds the command that starts a confined child: this program again, with its order in a file and a channel.

use super::channel::Channel;
use super::confine::ARGUMENT;
use super::confine::mediate::Places;
use super::confine::spec::{Spec, Task, WorkspaceReach};
use super::exec_witness::Order;
use super::proxy;
use super::spawn_error::SpawnError;
use super::{Confinement, Network, SandboxLevel};
use crate::base::grant::ExecJudge;
use rustix::fs::MemfdFlags;
use std::fs::File;
use std::io::{self, Seek, Write};
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::{Arc, OnceLock};
use tokio::process::Command;

/// Processes and threads that one command may have, and how many more for each CPU of a large machine.
const PROCESSES: u64 = 512;
const PROCESSES_EACH: u64 = 64;

/// The path of this program, for `exec`.
static HELPER: OnceLock<PathBuf> = OnceLock::new();

/// Sets the program that is started as the confined child: this one, which runs `confine::entry` when its first
/// argument is `confine::ARGUMENT`. Call it once, early. Without it only level `none` is available, and if the parent
/// is killed, its commands keep running.
pub fn use_helper(program: impl Into<PathBuf>) {
    // A second call passes the same program.
    let _ = HELPER.set(program.into());
}

pub(super) fn has_helper() -> bool {
    HELPER.get().is_some()
}

/// The helper command with its order, and the parent's end of its channel. The caller sets its outputs. If there is a
/// judge, it decides every exec of the command, except at level `none`.
pub(super) fn build(
    confinement: &Confinement,
    reach: WorkspaceReach,
    task: Task,
    judge: Option<Arc<dyn ExecJudge>>,
) -> Result<(Command, Channel), SpawnError> {
    let sandbox = |error: io::Error| SpawnError::Sandbox(format!("cannot be prepared: {error}"));
    let Some(helper) = HELPER.get() else {
        return Err(SpawnError::Sandbox("this program cannot start itself again".to_owned()));
    };
    let proxy = match (&confinement.network, confinement.level) {
        (Network::None, _) | (_, SandboxLevel::None) => None,
        (Network::Hosts(hosts), SandboxLevel::Full) => {
            let rules = proxy::rules();
            let rules = rules.ok_or_else(|| SpawnError::Sandbox("there are no rules for network hosts".to_owned()))?;
            Some((hosts.clone(), rules))
        }
        (Network::Hosts(_), SandboxLevel::Landlock) => {
            return Err(SpawnError::Sandbox("network hosts need level `full`".to_owned()));
        }
        (Network::Open, _) => {
            return Err(SpawnError::Sandbox("an open network needs level `none`".to_owned()));
        }
    };
    // If processes can change each other's memory, arguments could change after they were judged.
    let asks = confinement.level != SandboxLevel::None && (matches!(task, Task::Probe) || judge.is_some());
    let spec = Spec {
        level: confinement.level,
        workspace: confinement.workspace.clone(),
        readable: confinement.readable.clone(),
        writable: confinement.writable.clone(),
        hidden: confinement.hidden.clone(),
        placed: confinement.placed.as_ref().clone(),
        reach,
        tmp: private_tmp(confinement),
        proxy: proxy.is_some(),
        processes: processes(),
        memory: confinement.memory.unwrap_or_else(memory),
        witness: asks,
        task,
    };
    let places = || (confinement.level == SandboxLevel::Landlock).then(|| Places::of(&spec));
    let witness = match (&spec.task, judge) {
        _ if !asks => None,
        (Task::Probe, _) => Some(Order::Trial),
        (_, judge) => judge.map(|judge| Order::Judge {
            judge,
            workspace: confinement.workspace.clone(),
            places: places(),
        }),
    };
    let order = order(&spec).map_err(sandbox)?;
    let channel = Channel::new(order, proxy, witness).map_err(sandbox)?;
    let mut command = Command::new(helper);
    command.arg(ARGUMENT).env_clear().current_dir("/");
    command.args(channel.handed().iter().map(i32::to_string));
    Ok((command, channel))
}

/// `TMPDIR` of the children, if it is one of the directories that they may write.
fn private_tmp(confinement: &Confinement) -> Option<PathBuf> {
    let (_, tmp) = confinement.env.iter().find(|(name, _)| name == "TMPDIR")?;
    let tmp = PathBuf::from(tmp);
    confinement
        .writable
        .iter()
        .any(|dir| tmp.starts_with(dir))
        .then_some(tmp)
}

fn processes() -> u64 {
    let processors = std::thread::available_parallelism().map_or(1, |count| count.get() as u64);
    PROCESSES.max(PROCESSES_EACH * processors)
}

/// Three quarters of the memory that this process could use. Read once, because the limit of a control group seldom
/// changes.
fn memory() -> u64 {
    static MEMORY: OnceLock<u64> = OnceLock::new();
    *MEMORY.get_or_init(|| {
        let machine = rustix::system::sysinfo();
        let machine = (machine.totalram as u64).saturating_mul(u64::from(machine.mem_unit));
        let own = std::fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
        let group = own.lines().filter_map(group_memory).min().unwrap_or(u64::MAX);
        machine.min(group) / 4 * 3
    })
}

/// The memory limit that one line of `/proc/self/cgroup` leads to.
fn group_memory(line: &str) -> Option<u64> {
    let mut fields = line.splitn(3, ':');
    let (_, controllers, path) = (fields.next()?, fields.next()?, fields.next()?);
    let (root, file) = match controllers {
        "" => ("/sys/fs/cgroup", "memory.max"),
        list if list.split(',').any(|name| name == "memory") => ("/sys/fs/cgroup/memory", "memory.limit_in_bytes"),
        _ => return None,
    };
    let inside = PathBuf::from(root).join(path.trim_start_matches('/'));
    // Inside a container the path may be the host's, and the container's own group is mounted at the root.
    let limits = [inside.join(file), PathBuf::from(root).join(file)];
    let read = |path: &PathBuf| std::fs::read_to_string(path).ok()?.trim().parse().ok();
    limits.iter().filter_map(read).min()
}

/// The order in an anonymous file.
fn order(spec: &Spec) -> io::Result<OwnedFd> {
    let mut file = File::from(rustix::fs::memfd_create("order", MemfdFlags::CLOEXEC)?);
    file.write_all(&serde_json::to_vec(spec)?)?;
    file.rewind()?;
    Ok(file.into())
}
