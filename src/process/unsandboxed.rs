//! Runs trusted programs without a sandbox: git with a neutral environment, and commands from the user's own
//! environment. Every call has a time limit. Not for programs that a model or a recipe names.

use super::own_path::{self, own_path};
use super::supervised::{signal_child, tie};
use rustix::process::Signal;
use std::fs::File;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Output, Stdio};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt};
use tokio::process::{Child, Command};

/// The longest that one call of git may take.
pub const GIT_TIME: Duration = Duration::from_secs(300);
/// Bytes of what a command of the user prints on stderr that are kept.
const SAID: usize = 64 << 10;

/// What a program printed, and whether its exit code was 0.
#[derive(Debug)]
pub struct Printed {
    pub ok: bool,
    /// `None` if a signal ended it.
    pub code: Option<i32>,
    pub stdout: Vec<u8>,
    pub stderr: String,
}

impl From<Output> for Printed {
    fn from(output: Output) -> Self {
        Self {
            ok: output.status.success(),
            code: output.status.code(),
            stdout: output.stdout,
            stderr: String::from_utf8_lossy(&output.stderr).trim().to_owned(),
        }
    }
}

/// Runs `git` with `args` in `dir`, with an environment of only `PATH`, `GIT_NO_LAZY_FETCH=1`, `LC_ALL=C`, the settings
/// of [`neutral`] and `env`.
///
/// # Errors
/// One sentence, if git cannot be started or takes longer than [`GIT_TIME`]; it is killed then.
pub async fn git(args: &[&str], dir: &Path, env: &[(String, String)], stdin: Option<&[u8]>) -> Result<Printed, String> {
    let mut command = own_path::command("git");
    // As in `own_git::hold`.
    command.process_group(0);
    let mut command = Command::from(command);
    tie(&mut command, Signal::KILL, false);
    run_git(command, args, dir, &neutral_and(env), stdin, true).await
}

/// The message for a missing git: what to install, and which copies on the `PATH` were rejected and why.
#[must_use]
pub fn no_git() -> String {
    missing("git")
}

fn missing(program: &str) -> String {
    let text = format!("{program} is not on the PATH: install {program}");
    match own_path::left_out(program) {
        Some(left_out) => format!("{text} outside of the trees that you work on ({left_out})"),
        None => text,
    }
}

/// Whether a directory of `PATH` that is not in a tree has git.
#[must_use]
pub fn has_git() -> bool {
    own_path::has("git")
}

/// Why git could not be started, and what to do.
pub(super) fn not_started(error: &std::io::Error) -> String {
    match has_git() {
        true => format!("cannot start git: {error}"),
        false => no_git(),
    }
}

/// Like [`git`], with a prepared command and an environment of only `env`, `PATH`, `GIT_NO_LAZY_FETCH=1` and
/// `LC_ALL=C`, which keeps git's messages in English. `leads`: the child leads a process group, all of which is killed
/// when the result is dropped.
pub(super) async fn run_git(
    mut command: Command,
    args: &[&str],
    dir: &Path,
    env: &[(String, String)],
    stdin: Option<&[u8]>,
    leads: bool,
) -> Result<Printed, String> {
    command
        .args(args)
        .current_dir(dir)
        .env_clear()
        .env("PATH", own_path())
        .env("GIT_NO_LAZY_FETCH", "1")
        .envs(env.iter().map(|(name, value)| (name, value)))
        .env("LC_ALL", "C")
        .stdin(if stdin.is_some() { Stdio::piped() } else { Stdio::null() })
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(!leads);
    let child = command.spawn().map_err(|error| not_started(&error))?;
    let mut group = match leads {
        true => OwnGroup::of(&child),
        false => OwnGroup(None),
    };
    let what = format!("git {}", args.join(" "));
    let printed = finished(child, stdin.unwrap_or_default(), ChildLimits::of_git(GIT_TIME), &what).await?;
    group.0 = None;
    Ok(printed)
}

/// Limits of what a child may take: its time, and the bytes of stdout that it may print and of stderr that are kept.
struct ChildLimits {
    time: Duration,
    stdout: usize,
    stderr: usize,
}

impl ChildLimits {
    /// Git prints what this program asks for, whatever its length.
    fn of_git(time: Duration) -> Self {
        Self {
            time,
            stdout: usize::MAX,
            stderr: usize::MAX,
        }
    }
}

/// Feeds a child that was started with pipes, and waits for its end. `what`: what it is in errors.
async fn finished(mut child: Child, input: &[u8], limits: ChildLimits, what: &str) -> Result<Printed, String> {
    let (stdin, stdout, stderr) = (child.stdin.take(), child.stdout.take(), child.stderr.take());
    let failed = |error: std::io::Error| format!("waiting for {what} failed: {error}");
    let feed = async {
        if let Some(mut pipe) = stdin {
            // If the program needed the input, its exit code reports the failure.
            let _ = pipe.write_all(input).await;
        }
        Ok(())
    };
    let printed = async {
        match start_of(stdout, (limits.stdout, false)).await.map_err(failed)? {
            (bytes, true) => Ok(bytes),
            _ => Err(format!("{what} printed more than {} bytes", limits.stdout)),
        }
    };
    let said = async {
        // What follows is dropped, so that the child is not held up.
        let read = start_of(stderr, (limits.stderr, true)).await.map_err(failed);
        read.map(|(bytes, _)| bytes)
    };
    let all = async {
        let ((), stdout, stderr) = tokio::try_join!(feed, printed, said)?;
        let status = child.wait().await.map_err(failed)?;
        Ok(Printed::from(Output { status, stdout, stderr }))
    };
    let ended = tokio::time::timeout(limits.time, all).await;
    ended.map_err(|_| format!("{what} took longer than {} s", limits.time.as_secs()))?
}

/// Settings with which a repository's own configuration can neither run programs nor change bytes.
pub fn neutral() -> Vec<(String, String)> {
    let settings = [
        ("core.fsmonitor", "false"),
        ("core.hooksPath", "/dev/null"),
        ("core.autocrlf", "false"),
        ("core.attributesFile", "/dev/null"),
        ("core.quotePath", "true"),
        ("safe.directory", "*"),
        // A directory that only looks like a bare repository would bring its own settings.
        ("safe.bareRepository", "explicit"),
        ("core.pager", "cat"),
        ("core.editor", "false"),
        ("sequence.editor", "false"),
        ("core.askPass", "false"),
        ("core.sshCommand", "ssh"),
        ("core.gitProxy", "none"),
        ("credential.helper", ""),
        ("gpg.program", "false"),
        ("gpg.openpgp.program", "false"),
        ("gpg.x509.program", "false"),
        ("gpg.ssh.program", "false"),
        ("log.showSignature", "false"),
        ("init.templateDir", ""),
        ("uploadpack.packObjectsHook", ""),
        ("submodule.recurse", "false"),
        // Otherwise git removes the marks of `index_view` in a sparse checkout.
        ("sparse.expectFilesOutsideOfPatterns", "true"),
        ("protocol.ext.allow", "never"),
        ("gc.auto", "0"),
        ("maintenance.auto", "false"),
        ("advice.addEmbeddedRepo", "false"),
    ];
    let mut env = vec![
        ("GIT_CONFIG_NOSYSTEM".to_owned(), "1".to_owned()),
        ("GIT_CONFIG_GLOBAL".to_owned(), "/dev/null".to_owned()),
        ("GIT_TERMINAL_PROMPT".to_owned(), "0".to_owned()),
        ("GIT_OPTIONAL_LOCKS".to_owned(), "0".to_owned()),
    ];
    add_settings(
        &mut env,
        &settings.map(|(name, value)| (name.to_owned(), value.to_owned())),
    );
    env
}

/// Adds the variables that give git these settings.
pub(super) fn add_settings(env: &mut Vec<(String, String)>, settings: &[(String, String)]) {
    env.push(("GIT_CONFIG_COUNT".to_owned(), settings.len().to_string()));
    for (index, (name, value)) in settings.iter().enumerate() {
        env.push((format!("GIT_CONFIG_KEY_{index}"), name.clone()));
        env.push((format!("GIT_CONFIG_VALUE_{index}"), value.clone()));
    }
}

/// The settings of [`neutral`], and these variables.
pub(super) fn neutral_and(env: &[(String, String)]) -> Vec<(String, String)> {
    [neutral().as_slice(), env].concat()
}

/// A shell that runs its arguments, and with SIGTERM kills its process group, of which it is the leader.
const LEADER: &str = "trap 'kill -s KILL 0' TERM; \"$@\" & wait \"$!\"";

/// Kills a process group when it is dropped.
struct OwnGroup(Option<i32>);

impl OwnGroup {
    /// The group that this child leads.
    fn of(child: &Child) -> Self {
        Self(child.id().and_then(|pid| i32::try_from(pid).ok()))
    }
}

impl Drop for OwnGroup {
    fn drop(&mut self) {
        if let Some(pid) = self.0 {
            signal_child(pid, true);
        }
    }
}

/// A command to which git's arguments are added: all that git starts is killed when this process ends, also by a signal,
/// and when the group of the child is killed. The child is a [`LEADER`] without a terminal.
///
/// Start it on a thread that lives as long as the process, as [`super::supervised::start`].
///
/// # Errors
/// One sentence, if git or `sh` is missing.
pub(super) fn led_git() -> Result<Command, String> {
    // Checked here, because the shell could not say which copies were rejected.
    if let Some(program) = ["git", "sh"].into_iter().find(|program| !own_path::has(program)) {
        return Err(missing(program));
    }
    // Only a direct child gets the parent-death signal, but it is git's own children that wait for servers; so a shell that
    // leads the group passes it on.
    let mut command = Command::from(own_path::command("sh"));
    command.args(["-c", LEADER, "sh", "git"]);
    tie(&mut command, Signal::TERM, true);
    Ok(command)
}

/// Whether this process has a terminal, on which `ssh` may ask for a passphrase.
pub(super) fn has_terminal() -> bool {
    File::open("/dev/tty").is_ok()
}

/// Runs `git` on a repository that this program made, with the user's settings and credentials, to fetch from a URL
/// that the user names. Hooks, filters and prompts stay off. All its processes are killed when the result is dropped
/// and when this process ends, also by a signal; until then `lock` is held.
///
/// Call this on a thread that lives as long as the process, as [`super::supervised::start`].
///
/// # Errors
/// One sentence, if git cannot be started or takes longer than `time`; it is killed then.
pub async fn git_as_user(args: &[&str], time: Duration, lock: &File) -> Result<Printed, String> {
    // They would lead git to another repository, to other objects or to other programs.
    const ELSEWHERE: [&str; 12] = [
        "GIT_ALTERNATE_OBJECT_DIRECTORIES",
        "GIT_COMMON_DIR",
        "GIT_DIR",
        "GIT_EXEC_PATH",
        "GIT_GRAFT_FILE",
        "GIT_INDEX_FILE",
        "GIT_NAMESPACE",
        "GIT_OBJECT_DIRECTORY",
        "GIT_REPLACE_REF_BASE",
        "GIT_SHALLOW_FILE",
        "GIT_TEMPLATE_DIR",
        "GIT_WORK_TREE",
    ];
    let overrides = [
        "core.hooksPath=/dev/null",
        "core.fsmonitor=false",
        "protocol.ext.allow=never",
        "gc.auto=0",
        "maintenance.auto=false",
        "submodule.recurse=false",
        "fetch.recurseSubmodules=false",
        // A server that says nothing for so long, in seconds, has failed.
        "http.lowSpeedLimit=1",
        "http.lowSpeedTime=300",
    ];
    let mut command = led_git()?;
    for setting in overrides {
        command.args(["-c", setting]);
    }
    for name in ELSEWHERE {
        command.env_remove(name);
    }
    let lock = lock.try_clone().map_err(|error| format!("cannot start git: {error}"))?;
    command
        .args(args)
        .env("GIT_TERMINAL_PROMPT", "0")
        .env("LC_ALL", "C")
        // Only the shell has it: it is the last one that ends.
        .stdin(lock)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let child = command.spawn().map_err(|error| format!("cannot start git: {error}"))?;
    let mut group = OwnGroup::of(&child);
    let printed = finished(child, b"", ChildLimits::of_git(time), "git").await?;
    group.0 = None;
    Ok(printed)
}

/// Runs a shell command that the user names (a search, the list of a batch) in this directory, with the user's
/// environment and `input` on stdin. All processes of its group are killed when the result is dropped before it has ended.
///
/// # Errors
/// One sentence, if it cannot be started, takes longer than `time`, or prints more than `most` bytes on stdout; it is killed
/// then.
pub async fn own_command(
    dir: &Path,
    text: &str,
    input: &[u8],
    (time, most): (Duration, usize),
) -> Result<Printed, String> {
    let child = Command::from(own_path::command("sh"))
        .args(["-c", text])
        .current_dir(dir)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .process_group(0)
        .spawn()
        .map_err(|error| match own_path::has("sh") {
            true => format!("cannot start sh: {error}"),
            false => missing("sh"),
        })?;
    let mut group = OwnGroup::of(&child);
    let limits = ChildLimits {
        time,
        stdout: most,
        stderr: SAID,
    };
    let printed = finished(child, input, limits, "the command").await?;
    group.0 = None;
    Ok(printed)
}

/// Reads a pipe to its end, or without `drains` until it has more than `most` bytes. Returns the first `most`, and whether
/// these are all.
async fn start_of(
    pipe: Option<impl AsyncRead + Unpin>,
    (most, drains): (usize, bool),
) -> std::io::Result<(Vec<u8>, bool)> {
    let (mut kept, mut whole) = (Vec::new(), true);
    let Some(mut pipe) = pipe else {
        return Ok((kept, whole));
    };
    let mut piece = vec![0; 64 << 10];
    loop {
        let read = pipe.read(&mut piece).await?;
        if read == 0 {
            return Ok((kept, whole));
        }
        let room = most.saturating_sub(kept.len()).min(read);
        kept.extend_from_slice(piece.get(..room).unwrap_or_default());
        whole &= room == read;
        if !whole && !drains {
            return Ok((kept, whole));
        }
    }
}
