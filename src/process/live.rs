//! The registry of live commands of this process, so that they can be stopped while the changes of a finished command
//! are compared.

use super::process_tree::{Signs, living_of, send, threads};
use super::stat::{StatFields, read_stat};
use crate::base::grant::Writes;
use crate::base::sync::lock;
use rustix::process::Signal;
use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard};
use std::time::{Duration, Instant, SystemTime};

/// The time that processes get to stop: one that waits for a disk or a network file system stops late.
const STOP_TIME: Duration = Duration::from_secs(30);
/// Like [`STOP_TIME`], where waiting blocks the thread.
const STOP_AT_ONCE: Duration = Duration::from_secs(2);
/// The pause between two looks at whether the processes have stopped.
const STOP_PAUSE: Duration = Duration::from_micros(300);
/// The pause after the first [`QUICK_LOOKS`] looks.
const LONG_PAUSE: Duration = Duration::from_millis(10);
/// How many looks are made before the pauses become longer.
const QUICK_LOOKS: usize = 100;

#[derive(Debug)]
struct Registry {
    next: u64,
    commands: BTreeMap<u64, Command>,
    /// Stopped processes, each with the number of holds on it.
    stopped: BTreeMap<i32, usize>,
    record: Option<WritersRecord>,
}

/// A file that says since when commands are live that may write a workspace and were not compared.
#[derive(Debug)]
struct WritersRecord {
    workspace: PathBuf,
    file: File,
    /// Whether a time of this process is in it.
    is_set: bool,
}

impl Registry {
    /// Writes the present time into the record when a first command is live, and empties it when none is.
    fn update_record(&mut self) {
        let Some(record) = &mut self.record else { return };
        let writes =
            |command: &Command| command.writes != Writes::Nothing && overlap(&command.workspace, &record.workspace);
        let is_live = self.commands.values().any(writes);
        // If the file cannot be written, the next run only tells less.
        match (is_live, record.is_set) {
            (true, false) => {
                let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
                let text = now.unwrap_or_default().as_nanos().to_string();
                let _ = record.file.write_all_at(text.as_bytes(), 0);
                let _ = record.file.set_len(text.len() as u64);
                record.is_set = true;
            }
            (false, true) => {
                let _ = record.file.set_len(0);
                record.is_set = false;
            }
            _ => {}
        }
    }
}

/// Keeps this file, which the caller has locked, up to date for a workspace: its content is the time, in nanoseconds since
/// 1970, at which the oldest command began that may write the workspace and was not compared; it is empty while there is
/// none. The helpers of commands inherit it.
pub fn record_writers(workspace: &Path, file: File) {
    registry().record = Some(WritersRecord {
        workspace: workspace.to_path_buf(),
        file,
        is_set: false,
    });
}

/// Empties the record of what an earlier process has left: it was told.
pub fn forget_recorded_writers() {
    if let Some(record) = registry().record.as_ref().filter(|record| !record.is_set) {
        let _ = record.file.set_len(0);
    }
}

/// The open file of the record, for a helper to inherit.
pub(super) fn recorded_in() -> Option<i32> {
    registry().record.as_ref().map(|record| record.file.as_raw_fd())
}

#[derive(Debug)]
struct Command {
    workspace: PathBuf,
    writes: Writes,
    /// Write grants of the commands that were live in the same workspace at some time during this command.
    seen: Vec<Writes>,
    /// What this process itself wrote while the command was live, relative to the workspace.
    written: OwnWrites,
    tree: Option<Signs>,
    /// The name of the MCP server, if the command is one.
    server: Option<String>,
}

static REGISTRY: Mutex<Registry> = Mutex::new(Registry {
    next: 0,
    commands: BTreeMap::new(),
    stopped: BTreeMap::new(),
    record: None,
});

/// One command in the registry; dropping it removes the command.
#[derive(Debug)]
pub(super) struct LiveCommand(u64);

/// Registers a command that may write.
pub(super) fn begin(workspace: &Path, writes: &Writes) -> LiveCommand {
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
            server: None,
        },
    );
    registry.update_record();
    LiveCommand(number)
}

/// Files that this process itself wrote, each with its stamp after the write; `None` while it is being written.
pub(super) type OwnWrites = BTreeMap<PathBuf, Option<Stamp>>;

/// Values that change with every write to an entry: device, inode number, and the change time in seconds and
/// nanoseconds. `None` if the entry does not exist.
pub(super) type Stamp = Option<(u64, u64, i64, i64)>;

/// A write by this process itself. While a command runs, the change is then not attributed to the command. Keep it
/// until the write is done.
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

impl LiveCommand {
    /// Sets its processes. Helper processes are never stopped: they must be able to kill the tree if this process dies.
    pub fn set_processes(&self, root: i32, mark: u64, helpers: u8) {
        if let Some(command) = registry().commands.get_mut(&self.0) {
            command.tree = Some(Signs { root, mark, helpers });
        }
    }

    /// Sets that it is the MCP server with this name.
    pub fn set_server(&self, name: &str) {
        if let Some(command) = registry().commands.get_mut(&self.0) {
            command.server = Some(name.to_owned());
        }
    }

    /// Whether the command was started and its end was not yet recorded.
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

    /// Write grants of other commands that were live in the same workspace at some time during this command.
    pub fn seen(&self) -> Vec<Writes> {
        let registry = registry();
        let command = registry.commands.get(&self.0);
        command.map(|command| command.seen.clone()).unwrap_or_default()
    }

    /// The files that this process itself wrote while the command was live, relative to the workspace.
    pub fn written(&self) -> OwnWrites {
        let registry = registry();
        let command = registry.commands.get(&self.0);
        command.map(|command| command.written.clone()).unwrap_or_default()
    }

    /// Stops other commands that may write in the same workspace, within [`STOP_TIME`].
    pub async fn freeze_others(&self) -> Frozen {
        stopped(self.are_others(), STOP_TIME).await
    }

    /// Like [`LiveCommand::freeze_others`], but blocks the thread, and waits at most [`STOP_AT_ONCE`].
    pub fn freeze_others_at_once(&self) -> Frozen {
        let which = self.are_others();
        let mut frozen = Frozen::default();
        let until = Instant::now() + STOP_AT_ONCE;
        while !frozen.go_on(&which) && Instant::now() < until {
            std::thread::sleep(STOP_PAUSE);
        }
        frozen
    }

    fn are_others(&self) -> impl Fn(u64, &Command) -> bool + Send + use<> {
        let own = self.0;
        let workspace = registry()
            .commands
            .get(&own)
            .map(|command| command.workspace.clone())
            .unwrap_or_default();
        move |number, command| number != own && overlap(&command.workspace, &workspace)
    }
}

impl Drop for LiveCommand {
    fn drop(&mut self) {
        let mut registry = registry();
        registry.commands.remove(&self.0);
        registry.update_record();
    }
}

/// Whether some command that may write in the workspace is live, or has ended and its changes were not yet compared.
pub(super) fn may_write(workspace: &Path) -> bool {
    let registry = registry();
    let mut commands = registry.commands.values();
    commands.any(|command| command.writes != Writes::Nothing && overlap(&command.workspace, workspace))
}

/// Keeps processes stopped until it is dropped. Holds are counted; dropping the last hold lets a process continue.
#[derive(Debug, Default)]
pub struct Frozen {
    held: BTreeSet<i32>,
    /// The processes that had not stopped at the last look.
    running: BTreeSet<i32>,
    /// Whether the processes could be seen at the last look.
    seen: bool,
    /// All that stood still at the last look, whoever stopped them.
    marks: Marks,
    /// Whether two looks found the same marks.
    settled: bool,
    /// The names of the MCP servers among the commands.
    servers: BTreeSet<String>,
}

/// What shows whether a stopped process did anything: the living threads of each process.
type Marks = BTreeMap<i32, Vec<ThreadMark>>;

/// A thread, its start time, and how often it left a processor. A thread that goes on and stops again has left one more
/// often, whatever let it go on: a process can have a timer send it `SIGCONT`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct ThreadMark {
    id: i32,
    started: u64,
    /// `None` if this kernel does not tell.
    left: Option<u64>,
}

/// The marks of the threads of a process. `None` if they cannot be read.
fn marks_of(pid: i32) -> Option<Vec<ThreadMark>> {
    let living = threads(pid)?
        .into_iter()
        .filter(|(_, state)| !matches!(state.as_str(), "Z" | "X"));
    let mark = |id: i32| {
        let place = format!("/proc/{pid}/task/{id}");
        // The kernel answers when the thread has left the processor; its state says so earlier.
        let _ = std::fs::read(format!("{place}/syscall"));
        let started = StatFields::of(&read_stat(format!("{place}/stat"))?)?.number(22)?;
        let status = std::fs::read_to_string(format!("{place}/status")).ok()?;
        let count = |name: &str| {
            let mut lines = status.lines();
            lines.find_map(|line| line.strip_prefix(name)?.trim().parse::<u64>().ok())
        };
        let (wished, forced) = (count("voluntary_ctxt_switches:"), count("nonvoluntary_ctxt_switches:"));
        let left = wished.and_then(|wished| wished.checked_add(forced?));
        Some(ThreadMark { id, started, left })
    };
    let mut marks: Vec<ThreadMark> = living.map(|(id, _)| mark(id)).collect::<Option<_>>()?;
    marks.sort_unstable();
    Some(marks)
}

impl Frozen {
    /// Whether all processes have stopped.
    #[must_use]
    pub fn all(&self) -> bool {
        self.seen && self.running.is_empty() && self.settled
    }

    /// Whether no process is stopped.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.held.is_empty() && self.marks.is_empty()
    }

    /// Whether a process has run since all were stopped, has ended, or cannot be examined.
    #[must_use]
    pub fn has_woken(&self) -> bool {
        let is_still = |(pid, then): (&i32, &Vec<ThreadMark>)| {
            let is_known = then.iter().all(|thread| thread.left.is_some());
            is_known && activity(*pid) != ProcessActivity::Runs && marks_of(*pid).as_ref() == Some(then)
        };
        !self.marks.iter().all(is_still)
    }

    /// The names of the stopped MCP servers.
    #[must_use]
    pub fn servers(&self) -> Vec<&str> {
        self.servers.iter().map(String::as_str).collect()
    }

    /// Why not all processes have stopped, as a sentence.
    #[must_use]
    pub fn why_not(&self) -> String {
        let time = STOP_TIME.as_secs();
        match self.seen {
            false => "the processes of this machine cannot be seen in `/proc`".to_owned(),
            true if self.running.is_empty() => {
                format!("processes of a command did not stay stopped within {time} s")
            }
            true => {
                let pids: Vec<String> = self.running.iter().map(i32::to_string).collect();
                format!(
                    "processes of a command did not stop within {time} s: {}",
                    pids.join(", ")
                )
            }
        }
    }

    /// Sends SIGSTOP to processes that still run, and returns whether all have stopped. Processes that something else
    /// has stopped are left alone.
    fn go_on(&mut self, which: &impl Fn(u64, &Command) -> bool) -> bool {
        let mut registry = registry();
        let commands = registry.commands.iter();
        let mut trees: Vec<Signs> = Vec::new();
        for (_, command) in commands.filter(|(number, of)| of.writes != Writes::Nothing && which(**number, of)) {
            if let Some(tree) = command.tree {
                trees.push(tree);
                self.servers.extend(command.server.clone());
            }
        }
        // One look at the processes of the machine for all trees: there can be many of both.
        let living = match trees.is_empty() {
            true => Some(Vec::new()),
            false => living_of(&trees),
        };
        self.seen = living.is_some();
        self.running.clear();
        let mut marks = Marks::new();
        let mut is_marked = true;
        for pid in living.unwrap_or_default() {
            let stand = activity(pid);
            let is_held = self.held.contains(&pid);
            if !is_held && (stand != ProcessActivity::Still || registry.stopped.contains_key(&pid)) {
                send(pid, Signal::STOP);
                self.held.insert(pid);
                *registry.stopped.entry(pid).or_default() += 1;
            }
            // A process that has just got the signal must be looked at again.
            if stand == ProcessActivity::Runs || (!is_held && stand != ProcessActivity::Still) {
                self.running.insert(pid);
            }
            match self.running.is_empty().then(|| marks_of(pid)) {
                Some(Some(of_process)) => {
                    marks.insert(pid, of_process);
                }
                _ => is_marked = false,
            }
        }
        self.settled = is_marked && (marks.is_empty() || marks == self.marks);
        self.marks = marks;
        self.all()
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

/// Stops every process of every command of this process that may write a workspace: background commands, servers, and
/// parallel commands. Takes no time when there is none, otherwise some milliseconds, at most [`STOP_TIME`]; see
/// [`Frozen::all`].
pub(super) async fn freeze() -> Frozen {
    stopped(|_, _| true, STOP_TIME).await
}

/// Like [`freeze`], for the MCP servers that may write in this workspace, except the one with the name `except`.
pub async fn freeze_servers(workspace: &Path, except: Option<&str>) -> Frozen {
    let (workspace, except) = (workspace.to_path_buf(), except.map(str::to_owned));
    let which = move |_, command: &Command| {
        command.server.is_some() && command.server != except && overlap(&command.workspace, &workspace)
    };
    stopped(which, STOP_TIME).await
}

/// Stops the processes of the commands for which `which` is true, until no new process appears and none runs, or the
/// time is up.
async fn stopped(which: impl Fn(u64, &Command) -> bool, time: Duration) -> Frozen {
    let mut frozen = Frozen::default();
    let until = Instant::now() + time;
    let mut looks = 0;
    while !frozen.go_on(&which) && Instant::now() < until {
        let pause = if looks < QUICK_LOOKS { STOP_PAUSE } else { LONG_PAUSE };
        tokio::time::sleep(pause).await;
        looks += 1;
    }
    frozen
}

/// Whether a process can still write.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum ProcessActivity {
    /// Every thread is stopped or has ended.
    Still,
    /// Like `Still`, but some threads wait in the kernel for a child that they created with `vfork`. Such a wait lasts
    /// as long as the child is stopped, and the pending stop takes effect before the thread does anything else.
    Waits,
    Runs,
}

fn activity(pid: i32) -> ProcessActivity {
    let states = threads(pid).unwrap_or_default();
    let of_thread = |(id, state): &(i32, String)| match state.as_str() {
        "T" | "t" | "Z" | "X" => ProcessActivity::Still,
        "D" if waits_for_child(pid, *id) => ProcessActivity::Waits,
        _ => ProcessActivity::Runs,
    };
    states.iter().map(of_thread).max().unwrap_or(ProcessActivity::Still)
}

/// Whether a thread is in a system call that creates a process. Such a call writes no file.
fn waits_for_child(pid: i32, thread: i32) -> bool {
    #[cfg(target_arch = "x86_64")]
    const MAKING: [i64; 3] = [libc::SYS_clone, libc::SYS_clone3, libc::SYS_vfork];
    #[cfg(not(target_arch = "x86_64"))]
    const MAKING: [i64; 2] = [libc::SYS_clone, libc::SYS_clone3];
    let call = std::fs::read_to_string(format!("/proc/{pid}/task/{thread}/syscall")).unwrap_or_default();
    let number = call
        .split_ascii_whitespace()
        .next()
        .and_then(|number| number.parse::<i64>().ok());
    number.is_some_and(|number| MAKING.contains(&number))
}

fn registry() -> MutexGuard<'static, Registry> {
    lock(&REGISTRY)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stop(pid: i32) -> Vec<ThreadMark> {
        send(pid, Signal::STOP);
        while activity(pid) != ProcessActivity::Still {
            std::thread::sleep(STOP_PAUSE);
        }
        // The thread may still be on its way off the processor.
        let mut marks = marks_of(pid).unwrap();
        loop {
            std::thread::sleep(LONG_PAUSE);
            let now = marks_of(pid).unwrap();
            if now == marks {
                return now;
            }
            marks = now;
        }
    }

    #[test]
    fn a_process_that_went_on_meanwhile_is_noticed() {
        let mut child = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        let pid = i32::try_from(child.id()).unwrap();
        let mut frozen = Frozen::default();
        frozen.marks.insert(pid, stop(pid));
        assert!(!frozen.has_woken() && !frozen.is_empty());
        // A second stop wakes nothing.
        stop(pid);
        assert!(!frozen.has_woken());
        send(pid, Signal::CONT);
        while activity(pid) == ProcessActivity::Still {
            std::thread::sleep(STOP_PAUSE);
        }
        assert!(frozen.has_woken());
        stop(pid);
        assert!(frozen.has_woken(), "{:?} {:?}", frozen.marks, marks_of(pid));
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(frozen.has_woken());
        assert!(!Frozen::default().has_woken());
    }
}
