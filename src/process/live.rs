//! The registry of live commands of this process, so that they can be stopped while the changes of a finished command
//! are compared.

use super::process_tree::{Signs, living_of, send};
use super::stat::{StatFields, read_stat};
use crate::base::grant::Writes;
use crate::base::sync::lock;
use rustix::process::Signal;
use std::collections::{BTreeMap, BTreeSet};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard};
use std::time::{Duration, Instant};

/// The time that processes get to stop once each has the signal: one that waits for a disk or a network file system
/// stops late.
const STOP_TIME: Duration = Duration::from_secs(2);

#[derive(Debug)]
struct Registry {
    next: u64,
    commands: BTreeMap<u64, Command>,
    /// Stopped processes, each with the number of holds on it.
    stopped: BTreeMap<i32, usize>,
}

#[derive(Debug)]
struct Command {
    workspace: PathBuf,
    writes: Writes,
    /// Write grants of the commands that lived at some time together with it in the same workspace.
    seen: Vec<Writes>,
    /// What this process itself wrote meanwhile, relative to the workspace.
    written: OwnWrites,
    tree: Option<Signs>,
}

static REGISTRY: Mutex<Registry> = Mutex::new(Registry {
    next: 0,
    commands: BTreeMap::new(),
    stopped: BTreeMap::new(),
});

/// One command in the registry; dropping it removes the command.
#[derive(Debug)]
pub(super) struct Lived(u64);

/// Registers a command that may write.
pub(super) fn begin(workspace: &Path, writes: &Writes) -> Lived {
    let mut registry = registry();
    registry.next += 1;
    let number = registry.next;
    let mut seen = Vec::new();
    let beside = registry
        .commands
        .values_mut()
        .filter(|other| overlap(&other.workspace, workspace));
    for other in beside {
        add(&mut other.seen, writes);
        add(&mut seen, &other.writes);
    }
    registry.commands.insert(
        number,
        Command {
            workspace: workspace.to_path_buf(),
            writes: writes.clone(),
            seen,
            written: OwnWrites::new(),
            tree: None,
        },
    );
    Lived(number)
}

/// Files that this process itself wrote, each as it was then; `None` while it is written.
pub(super) type OwnWrites = BTreeMap<PathBuf, Option<Stamp>>;

/// What changes with every write to an entry: device, inode number, and the change time in seconds and nanoseconds. `None`
/// if there is nothing.
pub(super) type Stamp = Option<(u64, u64, i64, i64)>;

/// A write by this process itself, so that the change is not taken for one of a running command. Keep it until the write
/// is done.
#[must_use]
#[derive(Debug)]
pub struct OwnWrite(PathBuf);

/// Announces that this process writes or removes a file, given by its absolute path.
pub fn own_write(path: &Path) -> OwnWrite {
    note(path, None);
    OwnWrite(path.to_path_buf())
}

impl Drop for OwnWrite {
    fn drop(&mut self) {
        let data = std::fs::symlink_metadata(&self.0).ok();
        let stamp = data.map(|data| (data.dev(), data.ino(), data.ctime(), data.ctime_nsec()));
        note(&self.0, Some(stamp));
    }
}

fn note(path: &Path, stamp: Option<Stamp>) {
    for command in registry().commands.values_mut() {
        if let Ok(below) = path.strip_prefix(&command.workspace) {
            command.written.insert(below.to_path_buf(), stamp);
        }
    }
}

fn overlap(one: &Path, other: &Path) -> bool {
    one.starts_with(other) || other.starts_with(one)
}

fn add(seen: &mut Vec<Writes>, writes: &Writes) {
    if *writes != Writes::Nothing && !seen.contains(writes) && !seen.contains(&Writes::Tree) {
        seen.push(writes.clone());
    }
}

impl Lived {
    /// Sets its processes. Helper processes are never stopped: they must be able to kill the tree if this process dies.
    pub fn set_processes(&self, root: i32, mark: u64, helpers: u8) {
        if let Some(command) = registry().commands.get_mut(&self.0) {
            command.tree = Some(Signs { root, mark, helpers });
        }
    }

    /// Whether it was started, and its end was not recorded.
    pub fn has_processes(&self) -> bool {
        registry()
            .commands
            .get(&self.0)
            .is_some_and(|command| command.tree.is_some())
    }

    /// Records that its processes have ended.
    pub fn set_ended(&self) {
        if let Some(command) = registry().commands.get_mut(&self.0) {
            command.tree = None;
        }
    }

    /// Write grants of other commands that lived at some time together with it in the same workspace.
    pub fn seen(&self) -> Vec<Writes> {
        let registry = registry();
        let command = registry.commands.get(&self.0);
        command.map(|command| command.seen.clone()).unwrap_or_default()
    }

    /// What this process itself wrote while the command lived, relative to the workspace.
    pub fn written(&self) -> OwnWrites {
        let registry = registry();
        let command = registry.commands.get(&self.0);
        command.map(|command| command.written.clone()).unwrap_or_default()
    }

    /// Stops other commands that may write in the same workspace.
    pub fn freeze_others(&self) -> Frozen {
        let workspace = registry()
            .commands
            .get(&self.0)
            .map(|command| command.workspace.clone())
            .unwrap_or_default();
        hold(|command| overlap(&command.workspace, &workspace))
    }
}

impl Drop for Lived {
    fn drop(&mut self) {
        registry().commands.remove(&self.0);
    }
}

/// Whether a command that may write in the workspace has been started, and its changes were not yet compared.
pub(super) fn may_write(workspace: &Path) -> bool {
    let registry = registry();
    let mut commands = registry.commands.values();
    commands.any(|command| command.writes != Writes::Nothing && overlap(&command.workspace, workspace))
}

/// Keeps processes stopped while it lives. Holds are counted; dropping the last one lets a process continue.
#[derive(Debug)]
pub struct Frozen {
    held: BTreeSet<i32>,
    all: bool,
}

impl Frozen {
    /// Whether all processes stopped within two seconds.
    #[must_use]
    pub fn all(&self) -> bool {
        self.all
    }
}

impl Drop for Frozen {
    fn drop(&mut self) {
        let mut registry = registry();
        for pid in &self.held {
            let left = registry.stopped.get(pid).map_or(0, |holds| holds.saturating_sub(1));
            if left > 0 {
                registry.stopped.insert(*pid, left);
            } else if registry.stopped.remove(pid).is_some() {
                send(*pid, Signal::CONT);
            }
        }
    }
}

/// Stops every process of every command of this process that may write the workspace: background commands, servers, and
/// parallel commands. Costs nothing when there is none, otherwise some milliseconds.
#[must_use]
pub fn freeze() -> Frozen {
    hold(|_| true)
}

fn hold(which: impl Fn(&Command) -> bool) -> Frozen {
    let mut registry = registry();
    let trees: Vec<Signs> = registry
        .commands
        .values()
        .filter(|command| command.writes != Writes::Nothing && which(command))
        .filter_map(|command| command.tree)
        .collect();
    let (held, all) = stop(&trees, &registry.stopped);
    for pid in &held {
        *registry.stopped.entry(*pid).or_default() += 1;
    }
    Frozen { held, all }
}

/// Repeats until no new process appears and none runs. Processes that something else has stopped are left alone.
fn stop(trees: &[Signs], ours: &BTreeMap<i32, usize>) -> (BTreeSet<i32>, bool) {
    let mut held: BTreeSet<i32> = BTreeSet::new();
    if trees.is_empty() {
        return (held, true);
    }
    let mut until = None;
    loop {
        // One look at the processes of the machine for all trees: there can be many of both.
        let Some(living) = living_of(trees) else {
            return (held, false);
        };
        let mut calm = true;
        for pid in living {
            let still = stands_still(pid);
            if held.contains(&pid) {
                calm &= still;
            } else if ours.contains_key(&pid) {
                held.insert(pid);
            } else if !still {
                send(pid, Signal::STOP);
                held.insert(pid);
                calm = false;
            }
        }
        let until = *until.get_or_insert_with(|| Instant::now() + STOP_TIME);
        if calm || Instant::now() > until {
            return (held, calm);
        }
        std::thread::sleep(Duration::from_micros(300));
    }
}

/// Whether every thread of a process is stopped or has ended.
fn stands_still(pid: i32) -> bool {
    let Ok(threads) = std::fs::read_dir(format!("/proc/{pid}/task")) else {
        return true;
    };
    threads.flatten().all(|thread| {
        let Some(stat) = read_stat(thread.path().join("stat")) else {
            return true;
        };
        let state = StatFields::of(&stat).and_then(|stat| stat.state());
        matches!(state, Some("T" | "t" | "Z" | "X") | None)
    })
}

fn registry() -> MutexGuard<'static, Registry> {
    lock(&REGISTRY)
}
