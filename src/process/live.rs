//! The commands of this process that live, so that one that has ended can be compared while the others stand still. Starts nothing.

use super::tree::{living_below, send};
use crate::base::grant::Writes;
use rustix::process::Signal;
use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// How long processes may take to stand still: one that waits for a disk or a network file system does so late.
const STOP_TIME: Duration = Duration::from_secs(2);

#[derive(Debug, Default)]
struct Registry {
    next: u64,
    commands: BTreeMap<u64, Command>,
    /// How many hold the others stopped.
    holds: usize,
    /// What was stopped by the first hold.
    stopped: Vec<i32>,
    all_stopped: bool,
}

#[derive(Debug)]
struct Command {
    writes: Writes,
    /// What those may write that lived at some time together with it.
    seen: Vec<Writes>,
    /// The first process, the tree's mark, and how many generations from the first are our own helpers.
    tree: Option<(i32, u64, u8)>,
}

static REGISTRY: Mutex<Registry> = Mutex::new(Registry {
    next: 0,
    commands: BTreeMap::new(),
    holds: 0,
    stopped: Vec::new(),
    all_stopped: true,
});

/// One command in the list; it leaves when this is dropped.
#[derive(Debug)]
pub(super) struct Lived(u64);

/// Puts a command that may write into the list.
pub(super) fn begin(writes: &Writes) -> Lived {
    let mut registry = lock();
    registry.next += 1;
    let number = registry.next;
    let mut seen = Vec::new();
    for other in registry.commands.values_mut() {
        add(&mut other.seen, writes);
        add(&mut seen, &other.writes);
    }
    registry.commands.insert(
        number,
        Command {
            writes: writes.clone(),
            seen,
            tree: None,
        },
    );
    Lived(number)
}

fn add(seen: &mut Vec<Writes>, writes: &Writes) {
    if *writes != Writes::Nothing && !seen.contains(writes) && !seen.contains(&Writes::Tree) {
        seen.push(writes.clone());
    }
}

impl Lived {
    /// Its processes: the first, the mark, and how many generations from the first are helpers of ours, which are never stopped:
    /// they end the tree when this process is gone.
    pub fn is(&self, root: i32, mark: u64, helpers: u8) {
        if let Some(command) = lock().commands.get_mut(&self.0) {
            command.tree = Some((root, mark, helpers));
        }
    }

    /// Its processes have ended.
    pub fn is_gone(&self) {
        if let Some(command) = lock().commands.get_mut(&self.0) {
            command.tree = None;
        }
    }

    /// What others may write that lived at some time together with it.
    pub fn seen(&self) -> Vec<Writes> {
        lock()
            .commands
            .get(&self.0)
            .map(|command| command.seen.clone())
            .unwrap_or_default()
    }
}

impl Drop for Lived {
    fn drop(&mut self) {
        lock().commands.remove(&self.0);
    }
}

/// While this lives, no process of a command that may write runs. Holds add up; the last one lets all go on.
#[derive(Debug)]
pub struct Frozen {
    all: bool,
}

impl Frozen {
    /// Whether all stood still within two seconds.
    #[must_use]
    pub fn all(&self) -> bool {
        self.all
    }
}

impl Drop for Frozen {
    fn drop(&mut self) {
        let mut registry = lock();
        registry.holds = registry.holds.saturating_sub(1);
        if registry.holds == 0 {
            for pid in std::mem::take(&mut registry.stopped) {
                send(pid, Signal::CONT);
            }
        }
    }
}

/// Stops every process of every command of this process that may write the workspace: background commands, servers, and commands
/// that run beside this one. Costs nothing when there is none, else some milliseconds.
#[must_use]
pub fn freeze() -> Frozen {
    let mut registry = lock();
    registry.holds += 1;
    if registry.holds == 1 {
        let trees: Vec<(i32, u64, u8)> = registry
            .commands
            .values()
            .filter(|command| command.writes != Writes::Nothing)
            .filter_map(|command| command.tree)
            .collect();
        let (stopped, all) = stop(&trees);
        registry.stopped = stopped;
        registry.all_stopped = all;
    }
    Frozen {
        all: registry.all_stopped,
    }
}

/// Stops until nobody new appears and nobody runs.
fn stop(trees: &[(i32, u64, u8)]) -> (Vec<i32>, bool) {
    let mut stopped: Vec<i32> = Vec::new();
    if trees.is_empty() {
        return (stopped, true);
    }
    let until = Instant::now() + STOP_TIME;
    loop {
        let living: Vec<i32> = trees
            .iter()
            .flat_map(|(root, mark, helpers)| living_below(*root, *mark, *helpers))
            .collect();
        let mut calm = true;
        for pid in living {
            if !stopped.contains(&pid) {
                if stands_still(pid) {
                    // It stopped itself, or somebody did; it is not ours to wake.
                    continue;
                }
                send(pid, Signal::STOP);
                stopped.push(pid);
                calm = false;
            } else if !stands_still(pid) {
                calm = false;
            }
        }
        if calm {
            return (stopped, true);
        }
        if Instant::now() > until {
            return (stopped, false);
        }
        std::thread::sleep(Duration::from_micros(300));
    }
}

/// Whether every thread of a process is stopped or gone.
fn stands_still(pid: i32) -> bool {
    let Ok(threads) = std::fs::read_dir(format!("/proc/{pid}/task")) else {
        return true;
    };
    threads.flatten().all(|thread| {
        let Ok(stat) = std::fs::read(thread.path().join("stat")) else {
            return true;
        };
        let state = stat
            .iter()
            .rposition(|byte| *byte == b')')
            .and_then(|end| stat.get(end + 2));
        matches!(state, Some(b'T' | b't' | b'Z' | b'X') | None)
    })
}

fn lock() -> MutexGuard<'static, Registry> {
    REGISTRY.lock().unwrap_or_else(PoisonError::into_inner)
}
