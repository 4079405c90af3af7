//! What a model can do: the contract of a tool, and one file for each. Never sees the policy or the journal.
#![doc = include_str!("compared.md")]

pub mod args;
pub mod background;
pub mod builtin;
pub mod denial;
mod diff;
pub mod discovered;
pub mod glob;
pub mod grep_search;
pub mod list_directory;
pub mod mcp;
pub mod notices;
pub mod page;
pub mod placeholder;
pub mod read_file;
pub mod read_many_files;
pub mod registry;
pub mod replace;
pub mod results;
pub mod save_memory;
pub mod schema;
pub mod schema_dialect;
pub mod shell;
pub mod web;
pub mod web_fetch;
pub mod web_search;
pub mod words;
pub mod write_file;
pub mod write_todos;

#[cfg(test)]
mod cases;
#[cfg(test)]
pub(crate) mod testing;

pub use registry::Registry;

use crate::base::access::Access;
use crate::base::call::{FileDiff, ToolOutput, ToolSpec};
use crate::base::event::Live;
use crate::base::grant::{ExecJudge, Writes};
use crate::base::ids::CallId;
use crate::base::moved::Moved;
use crate::base::secret::Redactor;
use crate::process::Confinement;
use crate::process::jobs::Jobs;
use crate::workspace::Workspace;
use futures_util::future::BoxFuture;
use serde_json::Value;
use std::path::PathBuf;
use std::sync::{Arc, OnceLock};
use std::time::Instant;
use tokio_util::sync::CancellationToken;

/// The tools that need nothing but the tree, in order of use. A new one: its file, its line here, its fixtures.
fn builtins() -> Vec<Arc<dyn Tool>> {
    vec![
        Arc::new(list_directory::tool()),
        Arc::new(read_file::tool()),
        Arc::new(grep_search::tool()),
        Arc::new(glob::tool()),
        Arc::new(read_many_files::tool()),
        Arc::new(replace::tool()),
        Arc::new(write_file::tool()),
        Arc::new(shell::tool()),
        Arc::new(background::read_tool()),
        Arc::new(background::list_tool()),
        Arc::new(web_fetch::tool()),
        Arc::new(write_todos::tool()),
        Arc::new(save_memory::tool()),
    ]
}

/// A tool: says what a call would touch before anything happens, then does it at most once.
pub trait Tool: Send + Sync {
    /// Name, schema, kind.
    fn spec(&self) -> &ToolSpec;

    /// Checks the values of `args` (the schema was checked before) and says what the call would touch.
    /// Has no effects. An error is told to the model.
    fn prepare(&self, args: &Value, workspace: &Arc<Workspace>) -> Result<Prepared, ToolError>;
}

/// A call that is ready to be judged and, if allowed, run.
pub struct Prepared {
    /// What this one call does, in a line.
    pub title: String,
    pub access: Access,
    /// What an edit would change.
    pub preview: Option<FileDiff>,
    pub work: Work,
}

/// The effect. `FnOnce`: a second execution cannot be written.
pub type Work = Box<dyn FnOnce(ToolContext) -> BoxFuture<'static, Result<ToolOutput, ToolError>> + Send>;

/// What a running call is given.
#[derive(Clone)]
pub struct ToolContext {
    pub call: CallId,
    pub workspace: Arc<Workspace>,
    pub scope: Arc<Scope>,
    pub cancel: CancellationToken,
    /// When the call must have ended.
    pub deadline: Instant,
    pub live: LiveSender,
    /// What a command of this call may write in the workspace.
    pub writes: Writes,
    /// Judges each program of this call's command at its exec.
    pub judge: Option<Arc<dyn ExecJudge>>,
}

/// What all calls of one run share.
pub struct Scope {
    /// Known before the first command; a run that needs none does not wait for it.
    pub confinement: OnceLock<Confinement>,
    /// Commands that go on in the background.
    pub jobs: Jobs,
    /// Where whole results are kept: `results/` of the run directory.
    pub results: Moved<PathBuf>,
    pub redactor: Arc<Redactor>,
    /// The user's data directory of this repository, for `save_memory`.
    pub memory: PathBuf,
    pub web: web::Web,
    /// The MCP servers that stay for the run.
    pub servers: mcp::Servers,
    /// What tools must tell the run.
    pub notices: notices::Notices,
}

impl Scope {
    /// The sandbox of commands. None is run without one.
    pub fn confinement(&self) -> Result<&Confinement, ToolError> {
        let missing = || ToolError::Fatal("the sandbox is not ready".to_owned());
        self.confinement.get().ok_or_else(missing)
    }
}

/// Takes passing impressions; loses them when nobody has time.
#[derive(Clone)]
pub struct LiveSender(Arc<dyn Fn(Live) + Send + Sync>);

impl LiveSender {
    /// From a function that must not block.
    pub fn new(take: impl Fn(Live) + Send + Sync + 'static) -> Self {
        Self(Arc::new(take))
    }

    /// To nowhere.
    pub fn none() -> Self {
        Self::new(|_| {})
    }

    /// Passes one on.
    pub fn send(&self, live: Live) {
        (self.0)(live);
    }
}

/// Why a call failed, and who must act.
#[derive(Debug, thiserror::Error)]
pub enum ToolError {
    /// The model is told and can go another way.
    #[error("{message}")]
    Model {
        /// One of the names in the tool documentation, for example `file_not_found`.
        kind: &'static str,
        message: String,
    },
    /// Nothing further can work: the disk is full, the sandbox is gone. The run ends with code 8.
    #[error("{0}")]
    Fatal(String),
}

impl ToolError {
    /// A failure for the model.
    pub fn model(kind: &'static str, message: impl Into<String>) -> Self {
        Self::Model {
            kind,
            message: message.into(),
        }
    }
}
