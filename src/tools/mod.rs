//! The tools of a model: the [`Tool`] trait, and one file for each tool. Independent of policy and journal.
#![doc = include_str!("compared.md")]

pub mod args;
pub mod background;
pub mod builtin;
mod command_end;
pub mod denial;
mod diff;
pub mod discovered;
pub mod field_names;
mod for_commands;
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
mod time_limit;
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

pub use command_end::undone_failure;
pub use for_commands::{CommandAccessKind, builtin_for, file_writers};
pub use registry::Registry;
pub use shell::NAME as SHELL;

use crate::base::access::Access;
use crate::base::call::{FileDiff, ToolOutput, ToolSpec};
use crate::base::event::ProgressEvent;
use crate::base::grant::{ExecJudge, Writes};
use crate::base::ids::CallId;
use crate::base::replaceable::ReplaceOnce;
use crate::base::secret::Redactor;
use crate::process::Confinement;
use crate::process::jobs::Jobs;
use crate::workspace::Workspace;
use builtin::OtherNames;
use futures_util::future::BoxFuture;
use serde_json::Value;
use std::path::PathBuf;
use std::sync::{Arc, LazyLock, OnceLock};
use std::time::Instant;
use tokio_util::sync::CancellationToken;

/// The declarations of all built-in tools, also of those that are registered only where a search or a server is
/// configured. Policies know tools from here.
pub fn builtin_specs() -> &'static [ToolSpec] {
    &table().0
}

/// The declaration of a built-in tool, by its name.
pub fn builtin_spec(name: &str) -> Option<&'static ToolSpec> {
    builtin_specs().iter().find(|spec| spec.name == name)
}

/// The declaration of a built-in tool, by its name or an older one.
pub fn builtin_called(name: &str) -> Option<&'static ToolSpec> {
    builtin_specs().iter().find(|spec| spec.is_called(name))
}

/// All built-in tools with what else they are called.
pub fn other_names() -> impl Iterator<Item = (&'static ToolSpec, &'static OtherNames)> {
    let (specs, others) = table();
    specs.iter().zip(others)
}

/// What else a built-in tool and its arguments are called.
fn other_names_of(spec: &ToolSpec) -> Option<&'static OtherNames> {
    other_names().find_map(|(tool, others)| (tool.name == spec.name).then_some(others))
}

/// The declarations and the other names of all built-in tools, in the same order.
fn table() -> &'static (Vec<ToolSpec>, Vec<OtherNames>) {
    static TABLE: LazyLock<(Vec<ToolSpec>, Vec<OtherNames>)> = LazyLock::new(|| {
        let mut tools = builtins();
        tools.push(Arc::new(web_search::tool()));
        let with_names = tools.iter().map(|tool| (tool.spec().clone(), tool.other_names()));
        with_names.chain(mcp::resources::known()).unzip()
    });
    &TABLE
}

/// The tools that need only the tree, in the order in which they are declared. A new tool needs its file, its lines here
/// and its fixtures.
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

/// A tool. It first reports what a call would access, without any effect; the call then runs at most once.
pub trait Tool: Send + Sync {
    /// Name, schema and kind.
    fn spec(&self) -> &ToolSpec;

    /// What else it and its arguments are called.
    fn other_names(&self) -> OtherNames {
        OtherNames::default()
    }

    /// Checks the values in `args` (which match the schema) and reports what the call would access. Has no effects.
    ///
    /// # Errors
    /// [`ToolError::Model`] if a value is wrong or the call cannot work; [`ToolError::Fatal`] if no further call can.
    fn prepare(&self, args: &Value, workspace: &Arc<Workspace>) -> Result<PreparedCall, ToolError>;
}

/// A call that is ready to be ruled on and, if allowed, to be run.
pub struct PreparedCall {
    /// One line that describes this call.
    pub title: String,
    pub access: Access,
    /// The change that an edit would make.
    pub preview: Option<FileDiff>,
    pub work: CallWork,
}

/// The effect of a call. `FnOnce`, so that it cannot run twice.
pub type CallWork = Box<dyn FnOnce(ToolContext) -> BoxFuture<'static, Result<ToolOutput, ToolError>> + Send>;

/// What a running call has access to.
#[derive(Clone)]
pub struct ToolContext {
    pub call: CallId,
    pub workspace: Arc<Workspace>,
    pub scope: Arc<ToolScope>,
    pub cancel: CancellationToken,
    /// The time limit of the call.
    pub deadline: Instant,
    pub live: LiveSender,
    /// What a command of this call may write in the workspace.
    pub writes: Writes,
    /// Decides about each program of this call's command at its `execve`.
    pub judge: Option<Arc<dyn ExecJudge>>,
}

/// What all calls of one run share.
pub struct ToolScope {
    /// Set before the first command; a run without commands does not wait for it.
    pub confinement: OnceLock<Confinement>,
    /// Commands in the background.
    pub jobs: Jobs,
    /// Directory of complete results: `results/` in the run directory.
    pub results: ReplaceOnce<PathBuf>,
    pub redactor: Arc<Redactor>,
    /// Directory of this repository's notes in the user's data directory, for `save_memory`.
    pub memory: PathBuf,
    pub web: web::Web,
    /// The MCP servers of the run.
    pub servers: mcp::Servers,
    /// Warnings from tools.
    pub notices: notices::Notices,
}

impl ToolScope {
    /// The sandbox of commands.
    ///
    /// # Errors
    /// [`ToolError::Fatal`] if it is not ready: without it no command may run.
    pub fn confinement(&self) -> Result<&Confinement, ToolError> {
        let missing = || ToolError::Fatal("the sandbox is not ready".to_owned());
        self.confinement.get().ok_or_else(missing)
    }
}

/// Sends progress events; drops them if the receiver is busy.
#[derive(Clone)]
pub struct LiveSender(Arc<dyn Fn(ProgressEvent) + Send + Sync>);

impl LiveSender {
    /// From a function that must not block.
    pub fn new(take: impl Fn(ProgressEvent) + Send + Sync + 'static) -> Self {
        Self(Arc::new(take))
    }

    /// Drops all events.
    pub fn none() -> Self {
        Self::new(|_| {})
    }

    /// Sends one event.
    pub fn send(&self, live: ProgressEvent) {
        (self.0)(live);
    }
}

/// Why a call failed, and who must act.
#[derive(Debug, thiserror::Error)]
pub enum ToolError {
    /// The model receives the error and can try something else.
    #[error("{message}")]
    Model {
        /// One of the error types in the tool documentation, for example `file_not_found`.
        kind: &'static str,
        message: String,
    },
    /// No further call can work, for example because the disk is full: the run ends with exit code 8.
    #[error("{0}")]
    Fatal(String),
}

impl ToolError {
    /// An error for the model.
    pub fn model(kind: &'static str, message: impl Into<String>) -> Self {
        Self::Model {
            kind,
            message: message.into(),
        }
    }
}
