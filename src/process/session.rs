//! A program that is talked to while it runs, as an MCP server is: confined like a command, ended with all that it started.

use super::channel::Channel;
use super::seal::Seal;
use super::spawn::{Running, Sealed, SpawnError, start, watch};
use super::tree::Tree;
use super::{Confinement, Program, Spawn};
use crate::base::call::ExitInfo;
use crate::base::secret::Redactor;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::unix::pipe::Receiver;
use tokio::process::{Child, ChildStdin};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

/// What to start.
#[derive(Clone, Debug)]
pub struct Opening {
    /// Program and arguments.
    pub argv: Vec<String>,
    pub dir: PathBuf,
    /// Added to `Confinement::env`.
    pub env: Vec<(String, String)>,
}

/// A running program and its three streams, which the caller takes. Dropped, it is killed with its whole tree.
pub struct Session {
    pub stdin: Option<ChildStdin>,
    pub stdout: Option<Receiver>,
    pub stderr: Option<Receiver>,
    argv: Vec<String>,
    child: Child,
    tree: Tree,
    words: Option<JoinHandle<Channel>>,
    // After `tree`: fields are dropped in order, and the tree must be dead when the seal is compared.
    sealed: Sealed,
}

/// How a session ended.
#[derive(Clone, Debug, Default)]
pub struct Closed {
    /// `timed_out` when it did not end by itself once its input was closed.
    pub exit: ExitInfo,
    /// Protected paths that it changed; each was put back.
    pub undone: Vec<String>,
}

impl Session {
    /// Starts a program. A sandbox that cannot be built, and a confined program that is not there, show only as an early end of
    /// its output; `close` then says why.
    pub async fn open(opening: Opening, confinement: &Confinement) -> Result<Self, SpawnError> {
        if !opening.dir.is_dir() {
            return Err(SpawnError::NoDirectory(opening.dir.display().to_string()));
        }
        let seal = Seal::take(confinement);
        let frozen = seal.frozen();
        let sealed = Sealed::new(seal);
        let spawn = Spawn {
            program: Program::Argv(opening.argv.clone()),
            dir: opening.dir,
            env: opening.env,
            stdin: Some(Vec::new()),
            timeout: Duration::MAX,
            cancel: CancellationToken::new(),
            on_output: None,
            keep: None,
            shown: 0,
            redactor: Arc::new(Redactor::default()),
        };
        let running = start(&spawn, confinement, frozen)?;
        let Running {
            child,
            tree,
            stdin,
            stdout,
            stderr,
            channel,
        } = running;
        let words = channel.map(|mut channel| {
            tokio::spawn(async move {
                channel.listen().await;
                channel
            })
        });
        Ok(Self {
            stdin,
            stdout: Some(stdout),
            stderr,
            argv: opening.argv,
            child,
            tree,
            words,
            sealed,
        })
    }

    /// Closes its input when that was not taken, gives it `grace` to end, and ends it with all that it started.
    ///
    /// Errors: it had never begun; the reason.
    pub async fn close(mut self, grace: Duration) -> Result<Closed, SpawnError> {
        self.stdin = None;
        let never = CancellationToken::new();
        let mut exit = watch(&mut self.child, &mut self.tree, (grace, &never), async {}).await;
        let undone = self.sealed.mend();
        if let Some(words) = self.words.take()
            && let Ok(Ok(channel)) = tokio::time::timeout(Duration::from_secs(1), words).await
        {
            let program = self.argv.first().map_or("", String::as_str);
            channel.judge(program, &mut exit)?;
        }
        Ok(Closed { exit, undone })
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        if let Some(words) = &self.words {
            words.abort();
        }
    }
}
