//! Watches the memory of one command's tree: through its control group, or by polling if there is none. The caller
//! kills the tree.

use super::cgroup::Groups;
use std::time::{Duration, Instant};

/// Interval between polls. A process can allocate some 200 MB in that time.
const PERIOD: Duration = Duration::from_millis(100);
/// The machine's memory use must have grown by 1/`NOTICED` of the limit before processes are examined.
const NOTICED: u64 = 4;

/// Memory of the whole machine in bytes.
#[derive(Clone, Copy, Default)]
struct Machine {
    used: u64,
    /// Files in memory (tmpfs), which belong to no process.
    shared: u64,
}

impl Machine {
    fn now() -> Self {
        let text = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
        let field = |name: &str| {
            let line = text.lines().find_map(|line| line.strip_prefix(name))?;
            kilobytes(line)
        };
        let all = field("MemTotal:").unwrap_or(0);
        Self {
            used: all.saturating_sub(field("MemAvailable:").unwrap_or(all)),
            shared: field("Shmem:").unwrap_or(0),
        }
    }
}

/// Polls the memory use of a tree and records whether it exceeded the limit.
pub(super) struct MemoryWatch<'a> {
    groups: &'a Groups,
    limit: u64,
    before: Machine,
    next: Instant,
    over: bool,
}

impl<'a> MemoryWatch<'a> {
    /// `limit` is in bytes.
    pub fn begin(limit: u64, groups: &'a Groups) -> Self {
        Self {
            groups,
            limit,
            before: Machine::now(),
            next: Instant::now() + PERIOD,
            over: false,
        }
    }

    /// Time until the next poll.
    pub fn next(&self) -> Duration {
        self.next
            .saturating_duration_since(Instant::now())
            .max(Duration::from_millis(1))
    }

    /// Whether the limit was exceeded. Call it when the tree has ended.
    pub fn was_over(&self) -> bool {
        self.over || self.groups.ran_out()
    }

    /// Polls if it is time to. Calls `tree` for the processes only if the machine's memory use has grown by a part of
    /// the limit.
    pub fn look(&mut self, tree: impl Fn() -> Vec<i32>) -> bool {
        if Instant::now() < self.next {
            return false;
        }
        self.next = Instant::now() + PERIOD;
        // A process that cannot enter a group is polled nevertheless.
        if self.groups.ran_out() {
            self.over = true;
            return true;
        }
        let machine = Machine::now();
        if machine.used < self.before.used + self.limit / NOTICED {
            return false;
        }
        let files = machine.shared.saturating_sub(self.before.shared);
        let tree = tree();
        let seen: u64 = tree.iter().filter_map(|pid| resident(*pid)).sum();
        // Counts shared pages once (PSS), which takes the kernel longer to compute.
        self.over = files > self.limit
            || (seen > self.limit && tree.iter().filter_map(|pid| share(*pid)).sum::<u64>() > self.limit);
        self.over
    }
}

/// Resident bytes of a process (RSS).
fn resident(pid: i32) -> Option<u64> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/statm")).ok()?;
    let pages: u64 = text.split_ascii_whitespace().nth(1)?.parse().ok()?;
    Some(pages * rustix::param::page_size() as u64)
}

/// Proportional set size (PSS) in bytes: shared pages are divided among the processes that share them.
fn share(pid: i32) -> Option<u64> {
    let rollup = std::fs::read_to_string(format!("/proc/{pid}/smaps_rollup"));
    let share = rollup.ok().and_then(|text| {
        let line = text
            .lines()
            .find_map(|line| line.strip_prefix("Pss:").map(str::to_owned))?;
        kilobytes(&line)
    });
    share.or_else(|| resident(pid))
}

/// Parses `  123 kB` into bytes.
fn kilobytes(text: &str) -> Option<u64> {
    let number: u64 = text.split_ascii_whitespace().next()?.parse().ok()?;
    Some(number * 1024)
}
