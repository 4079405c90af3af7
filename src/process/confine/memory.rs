//! The memory of one command's tree: what the kernel says of its control group, and where there is none, held down by looking.
//! Kills nothing itself.

use super::cgroup::Groups;
use std::time::{Duration, Instant};

/// How often memory is looked at. A process fills some 200 MB in that time.
const PERIOD: Duration = Duration::from_millis(100);
/// The part of the limit by which the machine's use must have grown before processes are looked at.
const NOTICED: u64 = 4;

/// Bytes of the whole machine.
#[derive(Clone, Copy, Default)]
struct Machine {
    used: u64,
    /// Files in memory, which belong to no process.
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

/// Looks at what a tree uses, and remembers that it was too much.
pub(super) struct Memory<'a> {
    groups: &'a Groups,
    limit: u64,
    before: Machine,
    next: Instant,
    over: bool,
}

impl<'a> Memory<'a> {
    /// `limit` in bytes.
    pub fn begin(limit: u64, groups: &'a Groups) -> Self {
        Self {
            groups,
            limit,
            before: Machine::now(),
            next: Instant::now() + PERIOD,
            over: false,
        }
    }

    /// How long until the next look.
    pub fn next(&self) -> Duration {
        self.next
            .saturating_duration_since(Instant::now())
            .max(Duration::from_millis(1))
    }

    /// Whether the limit was exceeded. Call it when the tree has ended.
    pub fn was_over(&self) -> bool {
        self.over || self.groups.ran_out()
    }

    /// Looks when it is time to. The processes are asked for only when the machine uses more than before by a part of the limit.
    pub fn look(&mut self, tree: impl Fn() -> Vec<i32>) -> bool {
        if Instant::now() < self.next {
            return false;
        }
        self.next = Instant::now() + PERIOD;
        // A process that cannot enter a group is looked at all the same.
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
        // Pages that several processes share count once, which takes longer to find out.
        self.over = files > self.limit
            || (seen > self.limit && tree.iter().filter_map(|pid| share(*pid)).sum::<u64>() > self.limit);
        self.over
    }
}

/// Bytes that a process has in memory.
fn resident(pid: i32) -> Option<u64> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/statm")).ok()?;
    let pages: u64 = text.split_ascii_whitespace().nth(1)?.parse().ok()?;
    Some(pages * rustix::param::page_size() as u64)
}

/// The same, with its share of what it has together with others.
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

/// `  123 kB` in bytes.
fn kilobytes(text: &str) -> Option<u64> {
    let number: u64 = text.split_ascii_whitespace().next()?.parse().ok()?;
    Some(number * 1024)
}
