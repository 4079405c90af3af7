//! Runs one command to completion: captures its output, enforces its time limit and cancellation, and kills its whole
//! process tree at the end.

use super::capture::{Capture, OnOutput};
use super::channel::{Channel, set_status};
use super::confine::order::Streams;
use super::confine::spec::{PROXY_PORT, Task, WorkspaceReach};
use super::confined_command;
use super::fork::fork;
use super::git_locks;
use super::live;
use super::process_tree::ProcessTree;
use super::proxy;
use super::spawn_error::SpawnError;
use super::survivors::KILL_TIME;
use super::write_guard::{FoundOnDrop, Guarded};
use super::{Confinement, Finished, Invocation, Network, SandboxLevel, Spawn};
use crate::base::call::ExitInfo;
use crate::base::grant::Writes;
use rustix::process::Signal;
use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::process::ExitStatus;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::unix::pipe::Receiver;
use tokio::process::{Child, ChildStdin, Command};
use tokio_util::sync::CancellationToken;

/// Time between SIGTERM and SIGKILL.
const KILL_GRACE: Duration = Duration::from_millis(200);
/// How long outputs may stay open after the command has ended, for filters that are about to end too.
const PIPE_GRACE: Duration = Duration::from_millis(200);

/// Does ahead of the first command what it would otherwise wait for: starts its confined child, and searches the workspace.
/// Call it while a run waits for something else, on a thread of a runtime that may block. If it fails, the command does
/// the same, and reports the error.
pub fn prepare_ahead(confinement: &Confinement) {
    confined_command::prepare_ahead(confinement);
    Guarded::prepare_ahead(confinement);
}

/// Makes everything ready for a command, on another thread: examining or copying many files takes its time.
pub(super) async fn guarded(
    confinement: &Confinement,
    writes: &Writes,
    cancel: &CancellationToken,
) -> Result<(Guarded, WorkspaceReach), SpawnError> {
    let (confinement, writes, cancel) = (confinement.clone(), writes.clone(), cancel.clone());
    let ready = tokio::task::spawn_blocking(move || {
        confined_command::prepare_ahead(&confinement);
        confinement.open_side(&cancel)?;
        Guarded::take(&confinement, &writes)
    });
    match ready.await {
        Ok(ready) => ready.map_err(SpawnError::Limit),
        Err(error) => match error.try_into_panic() {
            Ok(panic) => std::panic::resume_unwind(panic),
            Err(error) => Err(SpawnError::Sandbox(format!("cannot be prepared: {error}"))),
        },
    }
}

/// Runs a command to completion. When this returns or the future is dropped, no process of its tree is alive.
///
/// # Errors
/// [`SpawnError`], if the command did not start or its sandbox failed. It is not an error if the command fails, times
/// out or is killed.
pub async fn run(spawn: Spawn, confinement: &Confinement) -> Result<Finished, SpawnError> {
    run_reporting_changes(spawn, confinement, FoundOnDrop::default()).await
}

/// Like [`run`]. `unfinished` gets the changes without a grant if the command was started and this returns an error or
/// the future is dropped.
///
/// # Errors
/// As for [`run`].
pub async fn run_reporting_changes(
    spawn: Spawn,
    confinement: &Confinement,
    unfinished: FoundOnDrop,
) -> Result<Finished, SpawnError> {
    let started = Instant::now();
    SpawnError::check_directory(&spawn.dir)?;
    // Declared first, so dropped last: an abandoned tree must be dead before its changes are compared.
    let (mut guard, reach) = guarded(confinement, &spawn.writes, &spawn.cancel).await?;
    guard.report_on_drop(unfinished);
    let (begun, cancel) = (SystemTime::now(), spawn.cancel.clone());
    let could_lock = git_locks::could_make(&spawn.writes, &*confinement.closed);
    let mut running = start(&spawn, confinement, reach)?;
    running.register(&guard, confinement);
    let program = argv(&spawn.program).swap_remove(0);
    let mut finished = supervise(spawn, &mut running).await;
    if let Some(seen) = running.channel.as_ref().and_then(Channel::witnessed) {
        seen.into_finished(&mut finished)?;
    }
    if let Some(channel) = running.channel {
        channel.judge(&program, &mut finished.exit)?;
    }
    guard.until_free().await;
    finished.undone = guard.compare(&finished.granted);
    if could_lock && (finished.was_killed() || cancel.is_cancelled()) {
        // Its own entry in the registry of live commands is no longer there.
        let is_alone = || !live::may_write(&confinement.workspace);
        finished.locks = git_locks::remove_left(&confinement.workspace, begun, is_alone).await;
    }
    finished.took = started.elapsed();
    Ok(finished)
}

/// A command that has been started.
pub(super) struct Running {
    pub child: Child,
    pub tree: ProcessTree,
    pub stdin: Option<ChildStdin>,
    pub stdout: Receiver,
    pub stderr: Option<Receiver>,
    /// Messages from the confined child; `None` when the command is a direct child of this process.
    pub channel: Option<Channel>,
}

impl Running {
    /// Registers the command's processes, so that comparisons for other commands can stop them.
    pub fn register(&self, guard: &Guarded, confinement: &Confinement) {
        let helpers = match (&self.channel, confinement.level) {
            (None, _) => 0,
            (Some(_), SandboxLevel::Full | SandboxLevel::Landlock) => 2,
            (Some(_), SandboxLevel::None) => 1,
        };
        let (root, mark) = self.tree.signs();
        guard.lives_as(root, mark, helpers);
    }
}

pub(super) fn start(spawn: &Spawn, confinement: &Confinement, reach: WorkspaceReach) -> Result<Running, SpawnError> {
    let argv = argv(&spawn.program);
    let name = argv.first().cloned().unwrap_or_default();
    let fail = |source| SpawnError::of_start(&name, source);
    let env = environment(spawn, confinement);
    let (pipes, streams) = Pipes::new(spawn).map_err(fail)?;
    let (child, tree, channel) = if confinement.level == SandboxLevel::None && !confined_command::has_helper() {
        let mut command = Command::new(&name);
        command.args(&argv[1..]).env_clear().envs(env).current_dir(&spawn.dir);
        command
            .stdin(streams.stdin)
            .stdout(streams.stdout)
            .stderr(streams.stderr)
            .kill_on_drop(true);
        let (child, mark) = fork(&mut command, Vec::new()).map_err(fail)?;
        let root = child.id().and_then(|id| i32::try_from(id).ok()).unwrap_or(0);
        (
            child,
            ProcessTree::new(root, mark, Arc::default(), &confinement.workspace),
            None,
        )
    } else {
        let dir = spawn.dir.clone();
        let task = Task::Run { argv, dir, env };
        let started = confined_command::start(confinement, reach, task, spawn.judge.clone(), &streams)?;
        (started.child, started.tree, Some(started.channel))
    };
    Ok(Running {
        child,
        tree,
        stdin: pipes.stdin,
        stdout: pipes.stdout,
        stderr: pipes.stderr,
        channel,
    })
}

/// This process's ends of a command's streams.
struct Pipes {
    stdin: Option<ChildStdin>,
    stdout: Receiver,
    stderr: Option<Receiver>,
}

impl Pipes {
    /// New pipes, and the command's ends of them. A reader sees the end of file only when these were closed here.
    fn new(spawn: &Spawn) -> io::Result<(Self, Streams)> {
        let (theirs_in, stdin) = match spawn.stdin {
            Some(_) => {
                let (read, write) = io::pipe()?;
                let write = std::process::ChildStdin::from(OwnedFd::from(write));
                (OwnedFd::from(read), Some(ChildStdin::from_std(write)?))
            }
            None => (File::open("/dev/null")?.into(), None),
        };
        let (out_read, out_write) = io::pipe()?;
        let (theirs_err, stderr) = match spawn.program {
            Invocation::Shell(_) => (out_write.try_clone()?, None),
            Invocation::ShellApart(_) | Invocation::Argv(_) => {
                let (err_read, err_write) = io::pipe()?;
                (err_write, Some(Receiver::from_owned_fd(OwnedFd::from(err_read))?))
            }
        };
        let ours = Self {
            stdin,
            stdout: Receiver::from_owned_fd(OwnedFd::from(out_read))?,
            stderr,
        };
        let streams = Streams {
            stdin: theirs_in,
            stdout: out_write.into(),
            stderr: theirs_err.into(),
        };
        Ok((ours, streams))
    }
}

/// The argument vector. A shell text that begins with a dash is not taken for an option.
pub(crate) fn argv(program: &Invocation) -> Vec<String> {
    match program {
        Invocation::Shell(text) | Invocation::ShellApart(text) => ["bash", "--noprofile", "--norc", "-c", "--", text]
            .map(str::to_owned)
            .to_vec(),
        Invocation::Argv(words) if words.is_empty() => vec![String::new()],
        Invocation::Argv(words) => words.clone(),
    }
}

/// The complete environment; if a name occurs twice, the later value wins. For a shell, variables that
/// name startup files are left out.
pub(crate) fn environment(spawn: &Spawn, confinement: &Confinement) -> Vec<(String, String)> {
    let shell = matches!(spawn.program, Invocation::Shell(_) | Invocation::ShellApart(_));
    let proxy = match (&confinement.network, confinement.level) {
        (Network::Hosts(_), SandboxLevel::Full) => proxy::variables(PROXY_PORT),
        _ => Vec::new(),
    };
    confinement
        .env
        .iter()
        .chain(&proxy)
        .chain(&spawn.env)
        .filter(|(name, _)| !(shell && matches!(name.as_str(), "BASH_ENV" | "ENV")))
        .cloned()
        .collect()
}

async fn supervise(spawn: Spawn, running: &mut Running) -> Finished {
    let separate = running.stderr.is_some();
    let tell: Option<OnOutput> = spawn.on_output.clone();
    let mut out = Capture::new(&spawn.redactor, spawn.shown, spawn.keep.clone(), tell.clone());
    let mut err = Capture::new(&spawn.redactor, spawn.shown, None, tell);
    let halt = running.channel.as_ref().map(Channel::halt).unwrap_or_default();
    let exit = {
        let outputs = pump(
            (running.stdin.take(), spawn.stdin.as_deref()),
            (&mut running.stdout, &mut out),
            (running.stderr.as_mut(), &mut err),
        );
        let words = async {
            if let Some(channel) = &mut running.channel {
                channel.listen().await;
            }
        };
        let pump = async {
            tokio::join!(outputs, words);
        };
        let limits = (spawn.timeout, &spawn.cancel, &halt);
        watch(&mut running.child, &mut running.tree, limits, pump).await
    };
    Finished {
        exit,
        stdout: out.finish(),
        stderr: if separate {
            err.finish()
        } else {
            super::Captured::default()
        },
        ..Finished::default()
    }
}

/// Waits for the end, the time limit, the cancellation or (third) a request to kill at once while `pump` runs; on
/// return no process of the tree is alive.
pub(super) async fn watch(
    child: &mut Child,
    tree: &mut ProcessTree,
    (timeout, cancel, halt): (Duration, &CancellationToken, &CancellationToken),
    pump: impl Future<Output = ()>,
) -> ExitInfo {
    let mut pump = std::pin::pin!(pump);
    let mut pumped = false;
    let mut exit = ExitInfo::default();
    let deadline = tokio::time::sleep(timeout);
    let mut deadline = std::pin::pin!(deadline);
    let status = loop {
        tokio::select! {
            () = &mut pump, if !pumped => {
                pumped = true;
                if tree.is_gone() {
                    // How the command ended is in the helper's report. The helper ends by itself, and the runtime reaps it.
                    break None;
                }
            }
            status = child.wait() => break status.ok(),
            () = &mut deadline => {
                exit.timed_out = true;
                break kill(child, tree, pump.as_mut(), &mut pumped).await;
            }
            () = halt.cancelled() => break tree.end_at_once(child).await,
            // Do not wait for the helper, which may itself wait for the processes that it could not end.
            () = tree.some_left() => break None,
            () = cancel.cancelled() => break kill(child, tree, pump.as_mut(), &mut pumped).await,
        }
    };
    tree.set_root_reaped();
    if !pumped {
        pumped = tokio::time::timeout(PIPE_GRACE, pump.as_mut()).await.is_ok();
    }
    tree.settle().await;
    exit.leftovers = u32::try_from(tree.end().await).unwrap_or(u32::MAX);
    if !pumped {
        // The writers are dead: the rest of the pipe is read at once, and nothing can keep it open.
        let _ = tokio::time::timeout(PIPE_GRACE, pump.as_mut()).await;
    }
    set_status(&mut exit, status);
    exit
}

/// Sends SIGTERM to the tree, then SIGKILL.
async fn kill(
    child: &mut Child,
    tree: &mut ProcessTree,
    mut pump: std::pin::Pin<&mut impl Future<Output = ()>>,
    pumped: &mut bool,
) -> Option<ExitStatus> {
    tree.signal(Signal::TERM);
    tree.signal(Signal::CONT);
    let grace = tokio::time::sleep(KILL_GRACE);
    let mut grace = std::pin::pin!(grace);
    loop {
        tokio::select! {
            status = child.wait() => return status.ok(),
            () = &mut pump, if !*pumped => *pumped = true,
            () = &mut grace => break,
        }
    }
    let _ = child.start_kill();
    tokio::time::timeout(KILL_TIME, child.wait()).await.ok()?.ok()
}

/// Writes the input and reads both outputs until they are closed.
async fn pump(
    (stdin, input): (Option<ChildStdin>, Option<&[u8]>),
    (stdout, out): (&mut Receiver, &mut Capture),
    (stderr, err): (Option<&mut Receiver>, &mut Capture),
) {
    let feed = async {
        if let (Some(mut stdin), Some(input)) = (stdin, input) {
            // It is no error if a program does not read its input.
            let _ = stdin.write_all(input).await;
            let _ = stdin.shutdown().await;
        }
    };
    let take_err = async {
        if let Some(stderr) = stderr {
            drain(stderr, err).await;
        }
    };
    tokio::join!(feed, drain(stdout, out), take_err);
}

pub(super) async fn drain(from: &mut Receiver, into: &mut Capture) {
    let mut buffer = vec![0; 64 << 10];
    loop {
        match from.read(&mut buffer).await {
            Ok(0) | Err(_) => return,
            Ok(count) => into.push(&buffer[..count]),
        }
    }
}

#[cfg(test)]
mod tests;
