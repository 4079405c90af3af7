//! A temporary tree with a workspace, for tests of tools.

use super::{LiveSender, Registry, ToolContext, ToolError, ToolScope};
use crate::base::access::Access;
use crate::base::call::{FileDiff, ToolOutput};
use crate::base::ids::CallId;
use crate::base::secret::Redactor;
use crate::process::Confinement;
use crate::process::jobs::Jobs;
use crate::workspace::Workspace;
use serde_json::Value;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio_util::sync::CancellationToken;

/// A temporary tree with a workspace; results and memory are stored beside it.
pub struct TestWorkspace {
    pub dir: tempfile::TempDir,
    pub workspace: Arc<Workspace>,
    pub registry: Registry,
    runtime: tokio::runtime::Runtime,
}

/// A call that was prepared and run.
pub struct RanCall {
    pub title: String,
    pub access: Access,
    pub preview: Option<FileDiff>,
    pub result: Result<ToolOutput, ToolError>,
}

impl TestWorkspace {
    pub fn new(files: &[(&str, &[u8])]) -> Self {
        Self::with(files, |_| {})
    }

    pub fn with(files: &[(&str, &[u8])], set_up: impl FnOnce(&mut Workspace)) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().join("tree");
        std::fs::create_dir(&root).unwrap();
        for (path, bytes) in files {
            let path = root.join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, bytes).unwrap();
        }
        let mut workspace = Workspace::open(&root).unwrap();
        set_up(&mut workspace);
        Self {
            dir,
            workspace: Arc::new(workspace),
            registry: Registry::builtin().unwrap(),
            runtime: tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build()
                .unwrap(),
        }
    }

    /// On an existing tree.
    pub fn on(workspace: Workspace) -> Self {
        Self {
            workspace: Arc::new(workspace),
            ..Self::new(&[])
        }
    }

    pub fn path(&self, path: &str) -> std::path::PathBuf {
        self.workspace.root().join(path)
    }

    pub fn context(&self, call: u64) -> ToolContext {
        let beside = |name: &str| self.dir.path().join(name);
        ToolContext {
            call: CallId::nth(call),
            workspace: Arc::clone(&self.workspace),
            scope: Arc::new(ToolScope {
                confinement: Confinement::unconfined(self.workspace.root()).into(),
                jobs: Jobs::default(),
                results: beside("results").into(),
                redactor: Arc::new(Redactor::default()),
                memory: beside("memory/project"),
                web: crate::tools::web::Web::default(),
                servers: crate::tools::mcp::Servers::default(),
                notices: crate::tools::notices::Notices::default(),
            }),
            cancel: CancellationToken::new(),
            deadline: Instant::now() + Duration::from_secs(60),
            live: LiveSender::none(),
            writes: crate::base::grant::Writes::Tree,
            judge: None,
        }
    }

    /// Looks up, checks, prepares and runs a call; everything but the ruling.
    pub fn run(&self, tool: &str, args: &Value) -> Result<RanCall, ToolError> {
        let found = self.registry.find(tool).ok_or_else(|| self.registry.unknown(tool))?;
        let args = found.accept(args)?.args;
        let prepared = found.tool.prepare(&args, &self.workspace)?;
        let context = self.context(1);
        Ok(RanCall {
            title: prepared.title,
            access: prepared.access,
            preview: prepared.preview,
            result: self.runtime.block_on((prepared.work)(context)),
        })
    }

    /// The text for the model, or `KIND: MESSAGE`.
    pub fn text_of(&self, tool: &str, args: &Value) -> String {
        let told = |error: ToolError| match error {
            ToolError::Model { kind, message } => format!("{kind}: {message}"),
            ToolError::Fatal(message) => format!("fatal: {message}"),
        };
        match self.run(tool, args) {
            Ok(ran) => ran.result.map_or_else(told, |output| output.model_text()),
            Err(error) => told(error),
        }
    }
}
