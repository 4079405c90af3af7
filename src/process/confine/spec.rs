//! What parent and confined child tell each other. Pure data.

use crate::process::Level;
use crate::process::placed::Placed;
use serde::{Deserialize, Serialize};
use std::path::PathBuf;

/// The port on the confined loopback where the proxy to granted hosts listens.
pub(crate) const PROXY_PORT: u16 = 3128;

/// An order: how to confine, what to do then.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Spec {
    #[serde(with = "level")]
    pub level: Level,
    pub workspace: PathBuf,
    pub readable: Vec<PathBuf>,
    pub writable: Vec<PathBuf>,
    pub hidden: Vec<PathBuf>,
    /// What stands elsewhere than on the machine; at `full` only.
    pub placed: Placed,
    /// What the command may write in the workspace.
    pub reach: Reach,
    /// The private directory for temporary files.
    pub tmp: Option<PathBuf>,
    /// Whether commands may talk to the proxy; only at `full`.
    pub proxy: bool,
    /// Processes and threads at once.
    pub processes: u64,
    /// Bytes of memory that they may use together.
    pub memory: u64,
    /// Whether the parent judges each program at its exec; never at level `none`.
    pub witness: bool,
    pub task: Task,
}

/// What a command may write and reach in the workspace. Paths are relative to it and hold no link.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Reach {
    /// All of it, but for `read_only`.
    pub tree: bool,
    /// Directories and files that it may write where the rest is read-only.
    pub writable: Vec<PathBuf>,
    /// Existing files and directories that are read-only in what it may write; at `full` only.
    pub read_only: Vec<PathBuf>,
    /// Sockets that are out of reach; at `full` only.
    pub covered: Vec<PathBuf>,
    /// Whether it may make Unix sockets that are no connected pair; at `full` only.
    pub sockets: bool,
}

/// What is done when all is in place.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Task {
    /// Nothing: it was asked whether it can be done, and whether programs can be judged at exec.
    Probe,
    Run {
        argv: Vec<String>,
        dir: PathBuf,
        env: Vec<(String, String)>,
    },
    /// Tries what must not work.
    Trial(Trial),
}

/// Things outside that a confined process must not reach. All are made by the parent for this one purpose.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Trial {
    /// A name in a directory outside the workspace that does not exist yet.
    pub write: PathBuf,
    /// A file outside the workspace.
    pub read: PathBuf,
    /// A port on which the parent listens.
    pub tcp: u16,
    /// The parent.
    pub process: i32,
}

/// What the child says, one line of JSON each.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Message {
    /// The sandbox could not be built; nothing was run.
    Failed(String),
    /// Built; the program could not be executed (the error's number).
    NotExecuted(i32),
    /// The forbidden acts that succeeded.
    Tried(Vec<String>),
    /// The proxy's listening socket comes with this message.
    Listener,
    /// The listener for execs comes with this message: from here on none succeeds without an answer.
    Witness,
    /// Built; whether programs can be judged at exec, and why not.
    Witnessed(Result<(), String>),
    /// The command has ended: the kernel's status word, and how many processes were still alive.
    Ended {
        status: i32,
        leftovers: u32,
        /// The limit on memory, in bytes, for which it was killed.
        #[serde(default)]
        memory: Option<u64>,
    },
}

mod level {
    use super::Level;
    use serde::{Deserialize, Deserializer, Serializer, de::Error};

    pub fn serialize<S: Serializer>(level: &Level, out: S) -> Result<S::Ok, S::Error> {
        out.serialize_str(level.as_str())
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Level, D::Error> {
        let word = String::deserialize(from)?;
        [Level::Full, Level::Landlock, Level::None]
            .into_iter()
            .find(|level| level.as_str() == word)
            .ok_or_else(|| D::Error::custom("unknown level"))
    }
}
