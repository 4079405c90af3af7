//! Starts confined children: this program again, which prepares itself and then waits for its order on a channel. One
//! child is kept ready for the next command of a run.

use super::channel::Channel;
use super::confine::ARGUMENT;
use super::confine::mediate::Mediator;
use super::confine::order::Streams;
use super::confine::signals::Answering;
use super::confine::spec::{Preparation, Spec, Task, WorkspaceReach};
use super::exec_witness::Order;
use super::fork::fork;
use super::process_tree::ProcessTree;
use super::proxy::{self, ProxyRules};
use super::spawn_error::SpawnError;
use super::{Confinement, Network, SandboxLevel};
use crate::base::grant::ExecJudge;
use crate::base::sync::lock;
use std::fmt;
use std::io;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;
use tokio::process::{Child, Command};

/// Processes and threads that one command may have, and how many more for each CPU of a large machine.
const PROCESSES: u64 = 512;
const PROCESSES_EACH: u64 = 64;
/// From the start of a command to the preparation of the next child.
const REFILL_AFTER: Duration = Duration::from_millis(10);

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

/// A confined child that has been started.
pub(super) struct StartedChild {
    pub child: Child,
    pub tree: ProcessTree,
    pub channel: Channel,
}

/// A confined child that waits for its order. When it is dropped its channel closes, and it ends by itself.
struct Waiting {
    preparation: Preparation,
    child: Child,
    mark: u64,
    channel: Channel,
}

impl Waiting {
    fn start(helper: &Path, preparation: Preparation) -> io::Result<Self> {
        let (channel, theirs) = Channel::new()?;
        let mut command = Command::new(helper);
        command
            .arg(ARGUMENT)
            .arg(serde_json::to_string(&preparation)?)
            .arg(theirs.as_raw_fd().to_string())
            .env_clear()
            .current_dir("/")
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        let (child, mark) = fork(&mut command, vec![theirs.as_raw_fd()])?;
        Ok(Self {
            preparation,
            child,
            mark,
            channel,
        })
    }

    /// The child after its order was sent.
    fn ordered(mut self, order: Ordered) -> StartedChild {
        self.channel.expect(order.hosts, order.witness);
        let root = self.child.id().and_then(|id| i32::try_from(id).ok()).unwrap_or(0);
        let tree = ProcessTree::new(root, self.mark, self.channel.report(), &order.spec.workspace);
        StartedChild {
            child: self.child,
            tree,
            channel: self.channel,
        }
    }
}

/// The child that is kept ready for the next command of a run, at most one. Starting this program, making namespaces
/// and entering control groups take several times as long as everything else that a sandbox costs a command.
#[derive(Default)]
pub struct SpareChild(Mutex<Option<Waiting>>);

impl fmt::Debug for SpareChild {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("SpareChild")
    }
}

impl SpareChild {
    /// The waiting child, if it was prepared in this way and has not ended.
    fn take(&self, preparation: &Preparation) -> Option<Waiting> {
        let mut spare = lock(&self.0).take()?;
        let usable = spare.preparation == *preparation && matches!(spare.child.try_wait(), Ok(None));
        usable.then_some(spare)
    }

    /// Starts a child for the next command, unless there is one. If that fails, the next command starts its own and
    /// reports the error.
    fn refill(&self, helper: &Path, preparation: Preparation) {
        let mut spare = lock(&self.0);
        if spare.is_none() {
            *spare = Waiting::start(helper, preparation).ok();
        }
    }
}

/// Refills on another thread, and only when a short command is over, which it would slow down. Does nothing if the run
/// has ended by then.
fn refill_later(spare: &Arc<SpareChild>, helper: &'static Path, preparation: Preparation) {
    let spare = Arc::downgrade(spare);
    tokio::spawn(async move {
        tokio::time::sleep(REFILL_AFTER).await;
        let refill = move || {
            if let Some(spare) = spare.upgrade() {
                spare.refill(helper, preparation);
            }
        };
        // If this fails, the next command starts its own child.
        let _ = tokio::task::spawn_blocking(refill).await;
    });
}

/// An order, and what its channel has to serve.
struct Ordered {
    spec: Spec,
    hosts: Option<(Vec<String>, ProxyRules)>,
    witness: Option<Order>,
}

/// Starts the child for the next command, unless there is one. It prepares itself while its command's sandbox is determined,
/// or while the run waits.
pub(super) fn prepare_ahead(confinement: &Confinement) {
    if let Some(helper) = HELPER.get()
        && confinement.level != SandboxLevel::None
    {
        confinement.spare.refill(helper, preparation(confinement, true));
    }
}

/// How a child prepares itself before its order arrives.
fn preparation(confinement: &Confinement, is_command: bool) -> Preparation {
    Preparation {
        level: confinement.level,
        grouped: is_command,
        processes: processes(),
        memory: confinement.memory.unwrap_or_else(memory),
    }
}

/// Starts a confined child for a task. If there is a judge, it decides every exec of the command, except at level
/// `none`.
pub(super) fn start(
    confinement: &Confinement,
    reach: WorkspaceReach,
    task: Task,
    judge: Option<Arc<dyn ExecJudge>>,
    streams: &Streams,
) -> Result<StartedChild, SpawnError> {
    let sandbox = |error: io::Error| SpawnError::Sandbox(format!("cannot be prepared: {error}"));
    let Some(helper) = HELPER.get() else {
        return Err(SpawnError::Sandbox("this program cannot start itself again".to_owned()));
    };
    let is_command = matches!(task, Task::Run { .. });
    let order = ordered(confinement, reach, task, judge)?;
    let preparation = preparation(confinement, is_command);
    let kept = is_command && order.spec.level != SandboxLevel::None;
    let spare = kept.then(|| confinement.spare.take(&preparation)).flatten();
    // One that has just ended takes no order, and a new one is started.
    let started = match spare.filter(|spare| spare.channel.send_order(&order.spec, streams).is_ok()) {
        Some(spare) => spare,
        None => {
            let child = Waiting::start(helper, preparation.clone()).map_err(sandbox)?;
            child.channel.send_order(&order.spec, streams).map_err(sandbox)?;
            child
        }
    };
    if kept {
        refill_later(&confinement.spare, helper, preparation);
    }
    Ok(started.ordered(order))
}

fn ordered(
    confinement: &Confinement,
    reach: WorkspaceReach,
    task: Task,
    judge: Option<Arc<dyn ExecJudge>>,
) -> Result<Ordered, SpawnError> {
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
        signals: confinement.signals,
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
    let mediator = || (confinement.level == SandboxLevel::Landlock).then(|| Mediator::of(&spec, Answering::Parent));
    let witness = match (&spec.task, judge) {
        _ if !asks => None,
        (Task::Probe, _) => Some(Order::Trial),
        (_, judge) => judge.map(|judge| Order::Judge {
            judge,
            workspace: confinement.workspace.clone(),
            mediator: mediator(),
        }),
    };
    Ok(Ordered {
        spec,
        hosts: proxy,
        witness,
    })
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
