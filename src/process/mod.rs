//! The door to processes. The only room that starts one; the only room that confines one.

#![expect(
    clippy::disallowed_methods,
    reason = "this is the door that the lint keeps others from"
)]

mod capture;
mod channel;
pub mod confine;
pub mod env;
mod exec_witness;
pub mod held;
pub mod jobs;
mod live;
mod own;
pub mod placed;
pub mod plain;
pub mod private;
pub mod proxy;
mod sandbox;
pub mod serve;
mod spawn;
pub mod supervised;
pub mod toolchains;
mod tree;
pub mod user_git;
pub mod venv;
mod write_guard;

pub use capture::OnOutput;
pub use live::{Frozen, freeze};
pub use own::close_to_others;
pub use sandbox::{Probe, choose, memory_is_bounded_by_kernel, probe, self_test, use_helper};
pub use spawn::{SpawnError, run};
pub use write_guard::names::Names;
pub use write_guard::within_reach;

use crate::base::call::ExitInfo;
use crate::base::grant::{ClosedPaths, ExecDenial, ExecJudge, JudgedExec, NothingClosed, Undone, WritePath, Writes};
use crate::base::secret::Redactor;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use tokio_util::sync::CancellationToken;

/// How children of a run are confined and what they see. Made once a run; pure data.
#[derive(Clone, Debug)]
pub struct Confinement {
    pub level: Level,
    /// The only tree that may be written, but for the private directories that we make.
    pub workspace: PathBuf,
    /// Further directories that may be read (tool caches, `toolchains`).
    pub readable: Vec<PathBuf>,
    /// Further directories that may be written (caches of `toolchains`).
    pub writable: Vec<PathBuf>,
    /// What commands see elsewhere than it lies; at level `full` only.
    pub placed: Arc<placed::Placed>,
    /// Never readable: run directories. Landlock cannot take a place out of one that it grants, so at that level this holds only
    /// for places outside `workspace`, `readable` and `writable`.
    pub hidden: Vec<PathBuf>,
    /// Paths of the workspace that no command may write, whatever it was granted.
    pub closed: Arc<dyn ClosedPaths>,
    /// Bytes of memory that the processes of one command may use together; `None` for three quarters of what this machine, or
    /// the control group of this process, has.
    pub memory: Option<u64>,
    pub network: Network,
    /// Whether programs can be judged at their exec here: whether a [`Spawn`] may have a judge.
    pub witness: bool,
    /// The whole environment of children.
    pub env: Vec<(String, String)>,
}

impl Confinement {
    /// No sandbox and an empty environment: for what starts no program, or must show what it does on its own.
    pub fn unconfined(workspace: &Path) -> Self {
        Self {
            level: Level::None,
            workspace: workspace.to_path_buf(),
            readable: Vec::new(),
            writable: Vec::new(),
            placed: Arc::default(),
            hidden: Vec::new(),
            closed: Arc::new(NothingClosed),
            memory: None,
            network: Network::Open,
            witness: false,
            env: Vec::new(),
        }
    }
}

/// The strength of the sandbox.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Level {
    /// Namespaces, Landlock and seccomp.
    Full,
    /// Landlock and seccomp.
    Landlock,
    /// Nothing; must have been asked for by name.
    None,
}

impl Level {
    /// The word used in policies and outputs.
    pub fn as_str(self) -> &'static str {
        match self {
            Level::Full => "full",
            Level::Landlock => "landlock",
            Level::None => "none",
        }
    }
}

/// What children may reach.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Network {
    None,
    /// Hosts (exact or `*.suffix`), through a loopback proxy in this process.
    Hosts(Vec<String>),
    /// Everything; only together with `Level::None`.
    Open,
}

/// One command to run to its end.
pub struct Spawn {
    pub program: Program,
    pub dir: PathBuf,
    /// Added to `Confinement::env`.
    pub env: Vec<(String, String)>,
    /// Bytes for its stdin; closed (`/dev/null`) when `None`.
    pub stdin: Option<Vec<u8>>,
    pub timeout: Duration,
    pub cancel: CancellationToken,
    /// Told each piece of output (redacted) as it comes; must not block.
    pub on_output: Option<OnOutput>,
    /// Where the whole output is kept (first and last 16 MiB, redacted) when it is longer than `shown` bytes.
    pub keep: Option<PathBuf>,
    /// Bytes of head and tail together that are held in memory and returned.
    pub shown: usize,
    pub redactor: Arc<Redactor>,
    /// What the command may write in the workspace.
    pub writes: Writes,
    /// Judges each program at its exec; `None` for commands of a recipe's author, which are only confined. At level `none` nobody
    /// is asked; elsewhere it is an error when programs cannot be judged (see [`Confinement::witness`]), and nothing runs.
    pub judge: Option<Arc<dyn ExecJudge>>,
}

/// What to run.
pub enum Program {
    /// `bash -c TEXT`, without start-up files.
    Shell(String),
    /// A program and its arguments, no shell.
    Argv(Vec<String>),
}

/// What came of a command.
#[derive(Clone, Debug, Default)]
pub struct Finished {
    pub exit: ExitInfo,
    pub stdout: Captured,
    /// Empty when the two were captured together (`Program::Shell`).
    pub stderr: Captured,
    /// Changes that were not granted; each was put back where that was possible.
    pub undone: Vec<Undone>,
    /// Programs that were judged at their exec, in order; at most 1,000, of each at most 100 words and 8 KiB. What programs below
    /// [`crate::base::grant::Starts::Anything`] execute is not among them.
    pub execs: Vec<JudgedExec>,
    /// Judged programs that are not in `execs`.
    pub execs_omitted: u64,
    /// The exec that was denied; the whole tree was killed for it.
    pub denied: Option<(JudgedExec, ExecDenial)>,
    /// Places that answers to execs granted, in addition to `Spawn::writes`; each once.
    pub granted: Vec<WritePath>,
    pub took: Duration,
}

/// A bounded part of an output.
#[derive(Clone, Debug, Default)]
pub struct Captured {
    /// Whole when it fits `shown`; else head, a notice that says how much is missing, and tail. Lossy UTF-8.
    pub text: String,
    /// Bytes produced.
    pub bytes: u64,
    /// Whether `text` is not the whole.
    pub cut: bool,
    /// Bytes that are neither in `keep` nor in `text`.
    pub omitted: u64,
    /// Whether the first 4 KiB are no text.
    pub binary: bool,
    /// NUL bytes; each is a replacement character in `text`.
    pub nuls: u64,
    /// Bytes that are no UTF-8.
    pub not_utf8: u64,
}
