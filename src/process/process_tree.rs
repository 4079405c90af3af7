//! Finds, signals and kills all processes of one command, including daemons that detach themselves from it.
//!
//! Three marks identify a tree, since a process can lose any one of them: descent from the process that was started,
//! its session, and a random number in the soft limit `RLIMIT_LOCKS` (which only Linux 2.4.0 to 2.4.24 enforced; see
//! getrlimit(2)). The number survives `fork`, `exec` and `setsid` and does not appear in the environment. This program
//! is a subreaper (`PR_SET_CHILD_SUBREAPER`), so a process whose parent has died becomes its child: it stays visible
//! and can be reaped.

use super::stat::{StatFields, read_stat};
use super::survivors::{self, KILL_TIME};
use rustix::process::{Pid, Signal, WaitOptions, getpid, kill_process, set_child_subreaper, waitpid};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Once};
use std::time::{Duration, Instant};
use tokio_util::sync::CancellationToken;

/// Like [`KILL_TIME`], for a tree whose command nobody waits for any more. Shorter, because a drop blocks the thread.
const DROP_TIME: Duration = Duration::from_secs(2);
/// How many looks at a tree that is being killed are 3 ms apart. Further ones are 50 ms apart.
const QUICK_LOOKS: usize = 400;

/// A process as the kernel lists it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ProcessEntry {
    pub pid: i32,
    /// PID of its parent.
    pub parent: i32,
    session: i32,
    /// A zombie: ended with all its threads, but not yet waited for by its parent.
    pub zombie: bool,
}

/// All visible processes. Empty when `/proc` cannot be read.
pub(crate) fn table() -> Vec<ProcessEntry> {
    let Ok(dir) = std::fs::read_dir("/proc") else {
        return Vec::new();
    };
    dir.flatten()
        .filter_map(|item| item.file_name().to_str()?.parse::<i32>().ok())
        .filter_map(|pid| parse_stat(pid, &read_stat(format!("/proc/{pid}/stat"))?))
        .collect()
}

fn parse_stat(pid: i32, text: &[u8]) -> Option<ProcessEntry> {
    let stat = StatFields::of(text)?;
    // The state is that of the first thread; other threads may still live after it has ended. Field 20 is the number of
    // threads, including an ended first one.
    let has_ended = is_over(stat.state()?) && (stat.number(20) == Some(1) || !has_living_thread(pid));
    Some(ProcessEntry {
        pid,
        parent: stat.number(4)?,
        session: stat.number(6)?,
        zombie: has_ended,
    })
}

/// Whether the state is that of a thread that has ended.
fn is_over(state: &str) -> bool {
    matches!(state, "Z" | "X")
}

fn has_living_thread(pid: i32) -> bool {
    threads(pid).is_some_and(|states| states.iter().any(|(_, state)| !is_over(state)))
}

/// The threads of a process with the letters of their states. `None` when the process has ended.
pub(super) fn threads(pid: i32) -> Option<Vec<(i32, String)>> {
    let dir = std::fs::read_dir(format!("/proc/{pid}/task")).ok()?;
    let ids = dir
        .flatten()
        .filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
    let state = |id: i32| {
        let stat = read_stat(format!("/proc/{pid}/task/{id}/stat"))?;
        Some((id, StatFields::of(&stat)?.state()?.to_owned()))
    };
    Some(ids.filter_map(state).collect())
}

/// The processes below `roots`, including these, in the order of the table.
pub(crate) fn below(table: &[ProcessEntry], roots: impl IntoIterator<Item = i32>) -> Vec<ProcessEntry> {
    let mut inside: BTreeSet<i32> = roots.into_iter().collect();
    loop {
        let before = inside.len();
        for entry in table {
            if inside.contains(&entry.parent) {
                inside.insert(entry.pid);
            }
        }
        if inside.len() == before {
            break;
        }
    }
    table
        .iter()
        .filter(|entry| inside.contains(&entry.pid))
        .copied()
        .collect()
}

/// How the processes of a tree are found.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Signs {
    /// PID of the first process.
    pub root: i32,
    /// The number that every process of the tree has as the soft value of a resource limit.
    pub mark: u64,
    /// How many generations from the first are helper processes, at most two.
    pub helpers: u8,
}

/// The live processes of all these trees, without their helper processes. `None` when the processes cannot be seen.
pub(crate) fn living_of(trees: &[Signs]) -> Option<Vec<i32>> {
    let me = getpid().as_raw_nonzero().get();
    let table = table();
    // This process is always among them.
    (!table.is_empty()).then(|| living_in(&table, me, trees, mark_of))
}

fn living_in(table: &[ProcessEntry], me: i32, trees: &[Signs], mark_of: impl Fn(i32) -> Option<u64>) -> Vec<i32> {
    let helpers: BTreeMap<i32, u8> = trees.iter().map(|tree| (tree.root, tree.helpers)).collect();
    let marks: BTreeSet<u64> = trees.iter().map(|tree| tree.mark).collect();
    let is_top = |entry: &&ProcessEntry| {
        let is_known = helpers.contains_key(&entry.pid) || helpers.contains_key(&entry.session);
        entry.parent == me && (is_known || mark_of(entry.pid).is_some_and(|mark| marks.contains(&mark)))
    };
    let tops: Vec<i32> = table.iter().filter(is_top).map(|entry| entry.pid).collect();
    let has = |pid: i32, least: u8| helpers.get(&pid).is_some_and(|helpers| *helpers >= least);
    below(table, tops)
        .into_iter()
        .filter(|entry| !entry.zombie && !has(entry.pid, 1) && !has(entry.parent, 2))
        .map(|entry| entry.pid)
        .collect()
}

/// Sends a signal; a process that no longer exists is no error.
pub(crate) fn send(pid: i32, signal: Signal) {
    if let Some(pid) = Pid::from_raw(pid) {
        // The only errors are ESRCH and EPERM: in neither case is there anything left to do.
        let _ = kill_process(pid, signal);
    }
}

/// A mark that no other command on this machine has.
pub(crate) fn new_mark() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    static SUBREAPER: Once = Once::new();
    SUBREAPER.call_once(|| {
        // If this fails, orphans go to the machine's init, which reaps them; the marks still identify them.
        let _ = set_child_subreaper(Some(getpid()));
    });
    let count = NEXT.fetch_add(1, Ordering::Relaxed) & 0xff_ffff;
    (1 << 61) | (u64::from(getpid().as_raw_nonzero().get().unsigned_abs()) << 24) | count
}

/// A running tree. Dropping it before it has ended kills what is left.
#[derive(Debug)]
pub(crate) struct ProcessTree {
    root: i32,
    mark: u64,
    root_reaped: bool,
    ended: bool,
    report: Arc<TreeReport>,
    workspace: PathBuf,
}

/// What a helper process reports about the end of its tree.
#[derive(Debug, Default)]
pub(super) struct TreeReport {
    /// Whether the helper has ended the whole tree itself.
    pub all_gone: AtomicBool,
    /// Cancelled when the helper could not end the whole tree.
    pub some_left: CancellationToken,
}

impl ProcessTree {
    /// The tree of `root`, which was started with `mark` as the leader of a new session for a command in `workspace`.
    pub fn new(root: i32, mark: u64, report: Arc<TreeReport>, workspace: &Path) -> Self {
        Self {
            root,
            mark,
            root_reaped: false,
            ended: false,
            report,
            workspace: workspace.to_path_buf(),
        }
    }

    /// The PID of the first process, and the mark of the tree.
    pub fn signs(&self) -> (i32, u64) {
        (self.root, self.mark)
    }

    /// Records that the first process was reaped: its PID may now belong to another process.
    pub fn set_root_reaped(&mut self) {
        self.root_reaped = true;
    }

    /// The live processes of the tree. Reaps children of this process that have ended.
    pub fn living(&self) -> Vec<i32> {
        let me = getpid().as_raw_nonzero().get();
        let table = table();
        let tops: Vec<i32> = table
            .iter()
            .filter(|entry| entry.parent == me && self.owns(entry))
            .map(|entry| entry.pid)
            .collect();
        let members = below(&table, tops);
        for ended in members.iter().filter(|entry| entry.zombie && entry.parent == me) {
            if ended.pid != self.root || self.root_reaped {
                let _ = waitpid(Pid::from_raw(ended.pid), WaitOptions::NOHANG);
            }
        }
        members
            .into_iter()
            .filter(|entry| !entry.zombie)
            .map(|entry| entry.pid)
            .collect()
    }

    fn owns(&self, entry: &ProcessEntry) -> bool {
        (entry.pid == self.root && !self.root_reaped)
            || entry.session == self.root
            || mark_of(entry.pid) == Some(self.mark)
    }

    /// Sends a signal to all live processes; returns how many there were.
    pub fn signal(&self, signal: Signal) -> usize {
        let living = self.living();
        for pid in &living {
            send(*pid, signal);
        }
        living.len()
    }

    /// Sends SIGKILL to every live process; returns them. A large tree is stopped first, so that it cannot fork faster
    /// than it is killed.
    fn kill_all(&self) -> Vec<i32> {
        let mut living = self.living();
        if living.len() > 24 {
            for _ in 0..20 {
                for pid in &living {
                    send(*pid, Signal::STOP);
                }
                let now = self.living();
                if now.iter().all(|pid| living.contains(pid)) {
                    break;
                }
                living = now;
            }
        }
        for pid in &living {
            send(*pid, Signal::KILL);
        }
        living
    }

    /// Whether the helper has reported that no process of the tree is left. The helper itself then still removes control
    /// groups, and ends.
    pub fn is_gone(&self) -> bool {
        self.report.all_gone.load(Ordering::Acquire)
    }

    /// Returns when the helper has reported that it could not end all processes of the tree.
    pub async fn some_left(&self) {
        self.report.some_left.cancelled().await;
    }

    /// Gives processes that have closed their outputs a moment to exit.
    pub async fn settle(&self) {
        for _ in 0..10 {
            if self.is_gone() || self.living().is_empty() {
                return;
            }
            tokio::time::sleep(Duration::from_millis(4)).await;
        }
    }

    /// Kills all processes immediately; `child` is the first one. Returns its exit status.
    pub async fn end_at_once(&mut self, child: &mut tokio::process::Child) -> Option<std::process::ExitStatus> {
        self.end().await;
        // A process that cannot be killed is reported as a survivor.
        tokio::time::timeout(DROP_TIME, child.wait()).await.ok()?.ok()
    }

    /// Kills the remaining processes and waits for their end, at most [`KILL_TIME`]; those that are left then are
    /// recorded in [`survivors`]. Returns how many processes there were at the beginning.
    pub async fn end(&mut self) -> usize {
        if self.is_gone() {
            self.ended = true;
            return 0;
        }
        let until = Instant::now() + KILL_TIME;
        let mut left = self.kill_all();
        let found = left.len();
        let mut looks = 0;
        while !left.is_empty() && Instant::now() < until {
            let pause = if looks < QUICK_LOOKS { 3 } else { 50 };
            tokio::time::sleep(Duration::from_millis(pause)).await;
            left = self.kill_all();
            looks += 1;
        }
        survivors::add(&self.workspace, &left);
        self.ended = true;
        found
    }
}

impl Drop for ProcessTree {
    fn drop(&mut self) {
        if self.ended {
            return;
        }
        let until = Instant::now() + DROP_TIME;
        loop {
            let left = self.kill_all();
            if left.is_empty() {
                break;
            }
            if Instant::now() > until {
                survivors::add(&self.workspace, &left);
                break;
            }
            std::thread::sleep(Duration::from_millis(2));
            let root = Pid::from_raw(self.root);
            if !self.root_reaped && waitpid(root, WaitOptions::NOHANG).is_ok_and(|found| found.is_some()) {
                self.root_reaped = true;
            }
        }
    }
}

/// The soft limit that holds the mark.
fn mark_of(pid: i32) -> Option<u64> {
    let limits = std::fs::read_to_string(format!("/proc/{pid}/limits")).ok()?;
    let line = limits.lines().find(|line| line.starts_with("Max file locks"))?;
    line.split_ascii_whitespace().nth(3)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_needs_parent_and_session() {
        let entry = parse_stat(7, b"7 (a) S 3 4 5 0 -1").unwrap();
        assert_eq!((entry.parent, entry.session, entry.zombie), (3, 5, false));
        assert!(parse_stat(7, b"7 (a) S 1").is_none());
    }

    #[test]
    fn the_whole_subtree_is_found_whatever_the_order() {
        let entry = |pid, parent| ProcessEntry {
            pid,
            parent,
            session: 1,
            zombie: false,
        };
        let table = [entry(9, 8), entry(8, 5), entry(5, 1), entry(6, 1)];
        let found: Vec<i32> = below(&table, [5]).iter().map(|entry| entry.pid).collect();
        assert_eq!(found, [9, 8, 5]);
    }

    /// As many looks at the marks as there are children, however many trees.
    #[test]
    fn all_trees_are_found_in_one_look() {
        let entry = |pid, parent, session| ProcessEntry {
            pid,
            parent,
            session,
            zombie: false,
        };
        let mut table = vec![entry(1, 0, 1), entry(2, 1, 1)];
        let mut trees = Vec::new();
        for number in 0..50 {
            let root = 100 + 10 * number;
            // The helper, its own child, the command and what that started.
            table.extend((0..4).map(|depth| entry(root + depth, if depth == 0 { 2 } else { root + depth - 1 }, root)));
            // An orphan with a session of its own and the mark of the tree, and a child of this program without one.
            table.extend([entry(root + 5, 2, root + 5), entry(root + 6, 2, root + 6)]);
            trees.push(Signs {
                root,
                mark: u64::from(root.unsigned_abs()),
                helpers: 2,
            });
        }
        let looks = std::cell::Cell::new(0);
        let mark_of = |pid: i32| {
            looks.set(looks.get() + 1);
            (pid % 10 == 5).then(|| u64::from((pid - 5).unsigned_abs()))
        };
        let living = living_in(&table, 2, &trees, mark_of);
        let wanted = (0..50).flat_map(|number| [2, 3, 5].map(|one| 100 + 10 * number + one));
        assert_eq!(living, wanted.collect::<Vec<i32>>());
        assert_eq!(looks.get(), 100);
    }

    #[test]
    fn marks_differ() {
        assert_ne!(new_mark(), new_mark());
    }
}
