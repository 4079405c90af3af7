//! Child processes: the only module that starts and confines them.

#![expect(
    clippy::disallowed_methods,
    reason = "this module is the only one that may make the calls that the lint forbids"
)]

mod capture;
pub mod change_times;
mod channel;
pub mod confine;
mod confined_command;
mod descriptor_socket;
pub mod env;
mod exec_witness;
mod fork;
mod git_dir;
mod git_locks;
mod granted_parts;
pub mod jobs;
mod live;
pub mod own_git;
pub mod own_path;
pub mod own_streams;
mod path_resolution;
pub mod placed;
pub mod private;
mod process_tree;
mod program_lookup;
pub mod program_search;
pub mod proxy;
mod sandbox;
mod seccomp_listener;
mod self_protection;
pub mod server_process;
pub mod sides;
mod spawn;
mod spawn_error;
mod stat;
pub mod supervised;
pub mod survivors;
pub mod temporary;
pub mod toolchains;
pub mod unsandboxed;
pub mod user_git;
pub mod venv;
mod write_guard;

pub use capture::OnOutput;
pub use confined_command::{SpareChild, use_helper};
pub use git_dir::is_git_dir;
pub use git_locks::LeftLocks;
pub use live::{Frozen, OwnWrite, forget_recorded_writers, freeze_servers, own_write, record_writers};
pub use sandbox::{Probe, choose, memory_is_bounded_by_kernel, probe, self_test};
pub use self_protection::close_to_others;
pub use spawn::{prepare_ahead, run, run_reporting_changes};
pub use spawn_error::SpawnError;
pub use write_guard::{
    FoundOnDrop, KeptObjects, KnownNames, Masks, NOT_KEPT, SecretPaths, SeparatedLinks, closed_since, within_reach,
};

use crate::base::call::ExitInfo;
use crate::base::grant::{ClosedPaths, ExecDenial, ExecJudge, JudgedExec, NothingClosed, Undone, WritePath, Writes};
use crate::base::secret::Redactor;
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use tokio_util::sync::CancellationToken;

/// How the children of a run are confined and what they can see. Built once per run; pure data, except for the child
/// that is kept ready and what is done once.
#[derive(Clone, Debug)]
pub struct Confinement {
    pub level: SandboxLevel,
    /// What keeps the signals of a command in its own process tree at level `landlock`.
    pub signals: SignalScope,
    /// The only tree that children may write, apart from the run's private directories.
    pub workspace: PathBuf,
    /// Further directories that children may read (tool caches, `toolchains`).
    pub readable: Vec<PathBuf>,
    /// Further directories that children may write (caches of `toolchains`).
    pub writable: Vec<PathBuf>,
    /// What commands see at another path than the real one; only at level `full`.
    pub placed: Arc<placed::Placed>,
    /// Never readable: run directories. Landlock cannot exclude a path below a granted directory, so at that level this
    /// works only for places outside `workspace`, `readable` and `writable`.
    pub hidden: Vec<PathBuf>,
    /// Files that commands cannot read at level `full`, wherever they are in the tree when a command starts.
    pub masks: Arc<Masks>,
    /// Paths of the workspace that no command may write, whatever its grant.
    pub closed: Arc<dyn ClosedPaths>,
    /// Bytes of memory that the processes of one command may use together; `None` means three quarters of the memory of
    /// this machine or of the control group of this process.
    pub memory: Option<u64>,
    pub network: Network,
    /// Whether this system can judge programs at their exec, that is, whether a [`Spawn`] may have a judge.
    pub witness: bool,
    /// The complete environment of children.
    pub env: Vec<(String, String)>,
    /// The child that is ready for the next command.
    pub spare: Arc<SpareChild>,
    /// Whose home and temporary directory are among `writable`, `placed` and `env`; `None` if there are none.
    pub side: Option<sides::OwnSide>,
    /// Whether the workspace still shares files with places outside.
    pub links: Arc<SeparatedLinks>,
    /// Git's objects of the workspace, for putting them back.
    pub objects: Arc<KeptObjects>,
    /// The names in the workspace, as they were before the last command.
    pub names: Arc<KnownNames>,
}

impl Confinement {
    /// No sandbox and an empty environment: for code that starts no program, or that sets the other fields
    /// itself.
    pub fn unconfined(workspace: &Path) -> Self {
        Self {
            level: SandboxLevel::None,
            signals: SignalScope::of_kernel(),
            workspace: workspace.to_path_buf(),
            readable: Vec::new(),
            writable: Vec::new(),
            placed: Arc::default(),
            hidden: Vec::new(),
            masks: Arc::default(),
            closed: Arc::new(NothingClosed),
            memory: None,
            network: Network::Open,
            witness: false,
            env: Vec::new(),
            spare: Arc::default(),
            side: None,
            links: Arc::default(),
            objects: Arc::default(),
            names: Arc::default(),
        }
    }

    /// The hidden places in the workspace, relative to it.
    pub(crate) fn hidden_inside(&self) -> Vec<PathBuf> {
        let inside = self
            .hidden
            .iter()
            .filter_map(|dir| dir.strip_prefix(&self.workspace).ok());
        inside.map(Path::to_path_buf).collect()
    }
}

/// The strength of the sandbox.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SandboxLevel {
    /// Namespaces, Landlock and seccomp.
    Full,
    /// Landlock and seccomp.
    Landlock,
    /// No sandbox; only on explicit request.
    None,
}

impl SandboxLevel {
    /// The word used in policies and outputs.
    pub fn as_str(self) -> &'static str {
        match self {
            SandboxLevel::Full => "full",
            SandboxLevel::Landlock => "landlock",
            SandboxLevel::None => "none",
        }
    }
}

/// What keeps the signals of a command in its own process tree at level `landlock`. At `full` a PID namespace does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SignalScope {
    /// Landlock (ABI 6, Linux 6.12).
    Kernel,
    /// Each call that sends a signal is suspended and carried out by this program, or refused.
    Mediated,
}

/// What children may reach over the network.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Network {
    None,
    /// These hosts (exact or `*.suffix`), through a loopback proxy in this process.
    Hosts(Vec<String>),
    /// Everything; only with `SandboxLevel::None`.
    Open,
}

/// A command to run to completion.
pub struct Spawn {
    pub program: Invocation,
    /// The existing directory in which it starts.
    pub dir: PathBuf,
    /// Added to `Confinement::env`.
    pub env: Vec<(String, String)>,
    /// Bytes for its stdin; `None` connects stdin to `/dev/null`.
    pub stdin: Option<Vec<u8>>,
    /// Counted from the start of the program. When it is reached, the process tree gets SIGTERM, and what lives 200 ms
    /// later SIGKILL.
    pub timeout: Duration,
    pub cancel: CancellationToken,
    /// Called with each piece of output, redacted, as it arrives; must not block.
    pub on_output: Option<OnOutput>,
    /// File for the complete output (first and last 16 MiB, redacted), written when it is longer than `shown` bytes.
    pub keep: Option<PathBuf>,
    /// Bytes of head and tail together that are kept in memory and returned.
    pub shown: usize,
    pub redactor: Arc<Redactor>,
    /// What the command may write in the workspace.
    pub writes: Writes,
    /// Judges each program at its exec; `None` for commands of a recipe's author, which are confined but not judged.
    /// Ignored at level `none`. At other levels it is an error, and nothing runs, if programs cannot be judged (see
    /// [`Confinement::witness`]).
    pub judge: Option<Arc<dyn ExecJudge>>,
}

/// What to run.
pub enum Invocation {
    /// `bash -c TEXT`, without startup files; both streams are captured together.
    Shell(String),
    /// The same, with the streams captured apart.
    ShellApart(String),
    /// A program and its arguments, without a shell.
    Argv(Vec<String>),
}

/// The result of a command.
#[derive(Clone, Debug, Default)]
pub struct Finished {
    pub exit: ExitInfo,
    pub stdout: Captured,
    /// Empty when both streams were captured together ([`Invocation::Shell`]).
    pub stderr: Captured,
    /// Changes without a grant; each was undone where possible.
    pub undone: Vec<Undone>,
    /// Programs that were judged at their exec, in order: at most 1,000, each with at most 100 words and 8 KiB. Does
    /// not include what programs below [`crate::base::grant::Starts::Anything`] execute.
    pub execs: Vec<JudgedExec>,
    /// Number of judged programs that are missing from `execs`.
    pub execs_omitted: u64,
    /// The exec that was denied, and for which the whole tree was killed.
    pub denied: Option<(JudgedExec, ExecDenial)>,
    /// Places granted by exec judgements in addition to `Spawn::writes`, without duplicates.
    pub granted: Vec<WritePath>,
    /// What was done about git lock files, if the command was killed.
    pub locks: LeftLocks,
    /// The wall-clock time of all of it: preparing the sandbox, the command, and comparing the tree afterwards.
    pub took: Duration,
}

impl Finished {
    /// Whether a process of the command was killed, as far as that is known.
    fn was_killed(&self) -> bool {
        let exit = &self.exit;
        exit.timed_out
            || exit.signal.is_some()
            || exit.leftovers > 0
            || exit.memory_limit.is_some()
            || self.denied.is_some()
    }
}

/// A bounded part of a command's output.
#[derive(Clone, Debug, Default)]
pub struct Captured {
    /// The complete output if it fits into `shown` bytes; otherwise head, a notice with the number of missing bytes,
    /// and tail. Lossy UTF-8.
    pub text: String,
    /// Bytes produced.
    pub bytes: u64,
    /// Whether `text` is incomplete.
    pub cut: bool,
    /// Bytes that are neither in `keep` nor in `text`.
    pub omitted: u64,
    /// Whether the first 4 KiB look like binary data.
    pub binary: bool,
    /// Number of NUL bytes; each is a replacement character in `text`.
    pub nuls: u64,
    /// Number of bytes that are not valid UTF-8.
    pub not_utf8: u64,
}
