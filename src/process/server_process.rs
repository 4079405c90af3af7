//! Long-running child programs (such as MCP servers): their pipes, their end, and killing their whole process tree.

use super::capture::Capture;
use super::channel::Channel;
use super::process_tree::ProcessTree;
use super::spawn::{Running, argv, drain, start, watch};
use super::spawn_error::SpawnError;
use super::survivors::KILL_TIME;
use super::write_guard::Guarded;
use super::{Confinement, Invocation, Spawn};
use crate::base::call::ExitInfo;
use crate::base::grant::{Undone, Writes};
use crate::base::secret::Redactor;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::unix::pipe::Receiver;
use tokio::process::{Child, ChildStdin};
use tokio::sync::watch as hold;
use tokio_util::sync::CancellationToken;

/// Bytes of its stderr that are kept, head and tail together.
const STDERR: usize = 8 << 10;

/// Receives the changes that a program made without a grant.
pub type OnUndone = Box<dyn FnOnce(Vec<Undone>) + Send>;

/// What to start.
pub struct Serve {
    /// The name of the server in the run.
    pub name: String,
    /// Program and arguments.
    pub words: Vec<String>,
    pub dir: PathBuf,
    /// Added to `Confinement::env`.
    pub env: Vec<(String, String)>,
    pub redactor: Arc<Redactor>,
    /// What it may write in the workspace while it runs.
    pub writes: Writes,
    /// Receives the changes without a grant, as in [`super::Finished`], when the program has ended, even if nothing
    /// waits for its end.
    pub on_undone: OnUndone,
}

/// A running program. When this and all clones of its `Served` are dropped, it is killed with its tree.
pub struct Serving {
    /// Its stdin; closing it asks the program to end.
    pub stdin: ChildStdin,
    pub stdout: Receiver,
    pub served: Served,
}

/// How the program ended.
#[derive(Clone, Debug, Default)]
pub struct ServerExit {
    pub exit: ExitInfo,
    /// Head and tail of its stderr, redacted.
    pub stderr: String,
    /// Why it never ran.
    pub failed: Option<String>,
}

/// A handle to a running program.
#[derive(Clone)]
pub struct Served {
    end: hold::Receiver<Option<ServerExit>>,
    kill: Arc<KillOnDrop>,
}

struct KillOnDrop(CancellationToken);

impl Drop for KillOnDrop {
    fn drop(&mut self) {
        self.0.cancel();
    }
}

impl Served {
    /// Its end, if it ends within `patience`.
    pub async fn wait(&self, patience: Duration) -> Option<ServerExit> {
        let mut end = self.end.clone();
        let ended = tokio::time::timeout(patience, end.wait_for(Option::is_some)).await;
        ended.ok()?.ok()?.clone()
    }

    /// Kills the process tree and waits for its end, at most two seconds longer than the time after which processes count
    /// as survivors (`KILL_TIME`).
    pub async fn kill(&self) -> Option<ServerExit> {
        self.kill.0.cancel();
        self.wait(KILL_TIME + Duration::from_secs(2)).await
    }
}

/// Starts a long-running program. Must be called within a Tokio runtime.
///
/// # Errors
/// [`SpawnError`]. A missing program may be reported only at the end, in [`ServerExit::failed`].
pub fn serve(what: Serve, confinement: &Confinement) -> Result<Serving, SpawnError> {
    SpawnError::check_directory(&what.dir)?;
    let kill = CancellationToken::new();
    let spawn = Spawn {
        program: Invocation::Argv(what.words),
        dir: what.dir,
        env: what.env,
        // Any value but `None` makes stdin a pipe; the caller writes to it.
        stdin: Some(Vec::new()),
        timeout: Duration::MAX,
        cancel: kill.clone(),
        on_output: None,
        keep: None,
        shown: STDERR,
        redactor: what.redactor,
        writes: what.writes,
        judge: None,
    };
    let (guard, reach) = Guarded::take(confinement, &spawn.writes).map_err(SpawnError::Limit)?;
    guard.is_server(&what.name);
    let running = start(&spawn, confinement, reach)?;
    running.register(&guard, confinement);
    let Running {
        child,
        tree,
        stdin: Some(stdin),
        stdout,
        stderr: Some(stderr),
        channel,
        ..
    } = running
    else {
        return Err(SpawnError::Sandbox("a pipe is missing".to_owned()));
    };
    let running = (child, tree, channel);
    let on_undone = what.on_undone;
    let (tell, end) = hold::channel(None);
    tokio::spawn(async move {
        let ended = supervise(spawn, (guard, on_undone), running, stderr).await;
        // It is not an error if nothing waits for it any more.
        let _ = tell.send(Some(ended));
    });
    let served = Served {
        end,
        kill: Arc::new(KillOnDrop(kill)),
    };
    Ok(Serving { stdin, stdout, served })
}

async fn supervise(
    spawn: Spawn,
    (mut guard, on_undone): (Guarded, OnUndone),
    (mut child, mut tree, mut channel): (Child, ProcessTree, Option<Channel>),
    mut stderr: Receiver,
) -> ServerExit {
    let program = argv(&spawn.program).swap_remove(0);
    let mut err = Capture::new(&spawn.redactor, spawn.shown, None, None);
    let halt = channel.as_ref().map(Channel::halt).unwrap_or_default();
    let mut exit = {
        let words = async {
            if let Some(channel) = &mut channel {
                channel.listen().await;
            }
        };
        let errors = drain(&mut stderr, &mut err);
        let pump = async {
            tokio::join!(errors, words);
        };
        watch(&mut child, &mut tree, (spawn.timeout, &spawn.cancel, &halt), pump).await
    };
    guard.until_free().await;
    on_undone(guard.compare(&[]));
    let judged = channel.map(|channel| channel.judge(&program, &mut exit));
    ServerExit {
        exit,
        stderr: err.finish().text,
        failed: judged.and_then(Result::err).map(|error| error.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    fn confinement(dir: &std::path::Path) -> Confinement {
        Confinement {
            env: vec![("PATH".to_owned(), "/usr/bin:/bin".to_owned())],
            ..Confinement::unconfined(dir)
        }
    }

    fn start(dir: &std::path::Path, words: &[&str]) -> Serving {
        let what = Serve {
            name: "tested".to_owned(),
            words: words.iter().map(|word| (*word).to_owned()).collect(),
            dir: dir.to_path_buf(),
            env: Vec::new(),
            redactor: Arc::new(Redactor::from_env([])),
            writes: Writes::Tree,
            on_undone: Box::new(|_| {}),
        };
        serve(what, &confinement(dir)).unwrap()
    }

    #[tokio::test]
    async fn it_answers_and_ends_when_its_input_is_closed() {
        let dir = tempfile::tempdir().unwrap();
        let mut serving = start(dir.path(), &["bash", "-c", "echo oops >&2; exec cat"]);
        serving.stdin.write_all(b"hello").await.unwrap();
        let mut answer = [0; 5];
        serving.stdout.read_exact(&mut answer).await.unwrap();
        assert_eq!(&answer, b"hello");
        drop(serving.stdin);
        let end = serving.served.wait(Duration::from_secs(5)).await.unwrap();
        assert_eq!((end.exit.code, end.stderr.as_str()), (Some(0), "oops\n"));
    }

    #[tokio::test]
    async fn it_is_killed_with_its_children() {
        let dir = tempfile::tempdir().unwrap();
        let mut serving = start(dir.path(), &["bash", "-c", "sleep 300 & echo $!; wait"]);
        let mut pid = Vec::new();
        while !pid.ends_with(b"\n") {
            pid.push(serving.stdout.read_u8().await.unwrap());
        }
        let end = serving.served.kill().await.unwrap();
        assert!(end.exit.code != Some(0), "{end:?}");
        let pid = String::from_utf8(pid).unwrap();
        assert!(!std::path::Path::new(&format!("/proc/{}", pid.trim())).exists());
    }
}
