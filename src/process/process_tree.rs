//! Finds, signals and kills all processes of one command, including daemons that detach themselves from it.
//!
//! Three marks identify a tree, since a process can lose any one of them: descent from the process that was started,
//! its session, and a random number in the soft limit `RLIMIT_LOCKS` (which only Linux 2.4.0 to 2.4.24 enforced; see
//! getrlimit(2)). The number survives `fork`, `exec` and `setsid` and does not appear in the environment. This program
//! is a subreaper (`PR_SET_CHILD_SUBREAPER`), so a process whose parent has died becomes its child: it stays visible
//! and can be reaped.

use super::stat::{StatFields, read_stat};
use rustix::process::{Pid, Signal, WaitOptions, getpid, kill_process, set_child_subreaper, waitpid};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Once};
use std::time::Duration;

/// A process as the kernel lists it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ProcessEntry {
    pub pid: i32,
    /// PID of its parent.
    pub parent: i32,
    session: i32,
    /// A zombie: ended, but not yet waited for by its parent.
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
    Some(ProcessEntry {
        pid,
        parent: stat.number(4)?,
        session: stat.number(6)?,
        zombie: matches!(stat.state()?, "Z" | "X"),
    })
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
    /// Set when a helper process reports that it has ended the whole tree itself.
    all_gone: Arc<AtomicBool>,
}

impl ProcessTree {
    /// The tree of `root`, which was started with `mark` as the leader of a new session.
    pub fn new(root: i32, mark: u64, all_gone: Arc<AtomicBool>) -> Self {
        Self {
            root,
            mark,
            root_reaped: false,
            ended: false,
            all_gone,
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

    /// Sends SIGKILL to every live process; returns how many there were. A large tree is stopped first, so that it
    /// cannot fork faster than it is killed.
    fn kill_all(&self) -> usize {
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
        living.len()
    }

    /// Whether the helper has reported that no process of the tree is left. The helper itself then still removes control
    /// groups, and ends.
    pub fn is_gone(&self) -> bool {
        self.all_gone.load(Ordering::Acquire)
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
        child.wait().await.ok()
    }

    /// Kills what is left and waits until it is gone; gives up after 400 attempts, 3 ms apart. Returns how many
    /// processes were found first.
    pub async fn end(&mut self) -> usize {
        if self.is_gone() {
            self.ended = true;
            return 0;
        }
        let found = self.kill_all();
        let mut left = found;
        for _ in 0..400 {
            if left == 0 {
                break;
            }
            tokio::time::sleep(Duration::from_millis(3)).await;
            left = self.kill_all();
        }
        self.ended = true;
        found
    }
}

impl Drop for ProcessTree {
    fn drop(&mut self) {
        if self.ended {
            return;
        }
        for _ in 0..100 {
            if self.kill_all() == 0 {
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
        let entry = parse_stat(7, b"7 (a) Z 3 4 5 0 -1").unwrap();
        assert_eq!((entry.parent, entry.session, entry.zombie), (3, 5, true));
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
