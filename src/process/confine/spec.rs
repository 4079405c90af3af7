//! The messages between the parent and a confined child. Pure data.

use crate::process::SandboxLevel;
use crate::process::placed::Placed;
use serde::{Deserialize, Serialize};
use std::path::PathBuf;

/// The port on the confined loopback on which the proxy to granted hosts listens.
pub(crate) const PROXY_PORT: u16 = 3128;

/// What a confined child needs to know at its start, when it has no order yet. It is the same for all commands of a run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Preparation {
    pub level: SandboxLevel,
    /// Whether control groups are to be made: for commands, not for trials.
    pub grouped: bool,
    /// The most processes and threads at the same time.
    pub processes: u64,
    /// Bytes of memory that they may use together.
    pub memory: u64,
}

/// The order for a confined child: how to confine itself, and what to do then. Its level and limits are those of the
/// [`Preparation`].
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Spec {
    pub level: SandboxLevel,
    pub workspace: PathBuf,
    pub readable: Vec<PathBuf>,
    pub writable: Vec<PathBuf>,
    pub hidden: Vec<PathBuf>,
    /// What the command sees at another path than the real one; only at `full`.
    pub placed: Placed,
    /// What the command may write in the workspace.
    pub reach: WorkspaceReach,
    /// The private directory for temporary files.
    pub tmp: Option<PathBuf>,
    /// Whether commands may connect to the proxy; only at `full`.
    pub proxy: bool,
    /// The most processes and threads at the same time.
    pub processes: u64,
    /// Bytes of memory that they may use together.
    pub memory: u64,
    /// Whether the parent judges each program at its exec; never at level `none`.
    pub witness: bool,
    pub task: Task,
}

/// What a command may write and reach in the workspace. Paths are relative to it and contain no links.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct WorkspaceReach {
    /// Whether it may write everything except `read_only`.
    pub tree: bool,
    /// Directories and files that it may write while the rest is read-only.
    pub writable: Vec<PathBuf>,
    /// Existing files and directories that are read-only within writable ones; only at `full`.
    pub read_only: Vec<PathBuf>,
    /// Sockets that are covered so that they cannot be reached; only at `full`.
    pub covered: Vec<PathBuf>,
    /// Whether it may create Unix sockets other than a connected pair; only at `full`.
    pub sockets: bool,
}

/// What to do when the sandbox is in place.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Task {
    /// Nothing: reports whether the sandbox works, and whether programs can be judged at exec.
    Probe,
    Run {
        argv: Vec<String>,
        dir: PathBuf,
        env: Vec<(String, String)>,
    },
    /// Tries forbidden acts.
    Trial(Trial),
}

/// Targets outside the sandbox that a confined process must not reach. The parent creates all of them for this test.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Trial {
    /// A path in a directory outside the workspace; the file does not exist.
    pub write: PathBuf,
    /// A file outside the workspace.
    pub read: PathBuf,
    /// A port on which the parent listens.
    pub tcp: u16,
    /// The PID of the parent.
    pub process: i32,
}

/// The child's messages, one line of JSON each.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum ChildMessage {
    /// The sandbox could not be built; nothing was run.
    Failed(String),
    /// The sandbox was built, but the program could not be executed (errno).
    NotExecuted(i32),
    /// The forbidden acts that succeeded.
    Tried(Vec<String>),
    /// Comes with the proxy's listening socket.
    Listener,
    /// Comes with the listener for execs: from now on no exec succeeds without an answer.
    Witness,
    /// The sandbox was built; whether programs can be judged at exec, and if not, why.
    Witnessed(Result<(), String>),
    /// The command has ended: its wait status, and how many processes were still alive.
    Ended {
        status: i32,
        leftovers: u32,
        /// The memory limit in bytes for which it was killed.
        #[serde(default)]
        memory: Option<u64>,
    },
}
