//! The MCP servers of a run: their configuration, start and end. The protocol is implemented by rmcp.

mod assertion;
mod content;
mod elicit;
mod host;
mod http;
mod link;
mod listing;
mod names;
mod oauth;
pub mod prompts;
pub mod resources;
mod server;
mod sse;
mod tool;

pub use server::RunningServer;

use super::Tool;
use super::notices::Notices;
use crate::base::grant::Writes;
use crate::base::secret::Redactor;
use crate::process::Confinement;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Default time limit for the start of a server.
pub const START: Duration = Duration::from_secs(60);
/// Default time limit of one call.
pub const CALL: Duration = Duration::from_secs(600);

/// One server of the recipe, with variables expanded.
#[derive(Clone, Debug)]
pub struct Config {
    /// Name in the recipe; its tools are called `NAME__TOOL`.
    pub name: String,
    pub way: Way,
    pub required: bool,
    /// Time limit until the server has listed its tools.
    pub start: Duration,
    /// Time limit of one call.
    pub call: Duration,
    /// If set, only these tools are used; names as the server reports them.
    pub include: Option<Vec<String>>,
    pub exclude: Vec<String>,
}

/// How a server is reached.
#[derive(Clone, Debug)]
pub enum Way {
    /// A local program, over its stdin and stdout.
    Stdio(ServerProgram),
    /// A URL.
    Url(Address),
}

/// A program that is an MCP server.
#[derive(Clone, Debug)]
pub struct ServerProgram {
    pub words: Vec<String>,
    pub dir: PathBuf,
    /// Additional environment variables.
    pub env: Vec<(String, String)>,
    /// The server's own sandbox, with the hosts that it was granted.
    pub confinement: Confinement,
    /// What the server may write in the workspace.
    pub writes: Writes,
}

/// A server at a URL.
#[derive(Clone, Debug)]
pub struct Address {
    pub url: String,
    pub kind: Transport,
    /// Header names and values, with variables expanded.
    pub headers: Vec<(String, String)>,
    pub oauth: Option<Credentials>,
}

/// The transport at a URL.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transport {
    /// Streamable HTTP.
    Http,
    /// The HTTP with SSE transport of protocol version 2024-11-05.
    Sse,
    /// Streamable HTTP; if the server does not support it, SSE.
    Either,
}

/// OAuth 2.0 client credentials, with variables expanded.
#[derive(Clone)]
pub struct Credentials {
    pub client_id: String,
    pub proof: Proof,
    pub scopes: Vec<String>,
}

/// How a client authenticates.
#[derive(Clone)]
pub enum Proof {
    /// A client secret.
    Secret(String),
    /// Assertions signed with this key (PEM).
    Key(String),
}

impl std::fmt::Debug for Credentials {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Credentials")
            .field("client_id", &self.client_id)
            .finish_non_exhaustive()
    }
}

/// The running servers of a run. Clones share them; when the last clone is dropped, all are killed.
#[derive(Clone, Default)]
pub struct Servers(Arc<Vec<Arc<RunningServer>>>);

/// Dependencies that all servers share.
#[derive(Clone)]
pub struct McpContext {
    pub redactor: Arc<Redactor>,
    pub notices: Notices,
    /// The wall-clock limit of the run.
    pub deadline: Instant,
}

/// The result of starting one server.
pub struct Started {
    pub name: String,
    pub required: bool,
    /// Its tools, or why it cannot be used.
    pub outcome: Result<Vec<Arc<dyn Tool>>, String>,
}

/// Starts all servers in parallel. The results are in the order of `configs`.
pub async fn start(configs: Vec<Config>, with: &McpContext) -> (Servers, Vec<Started>) {
    let starting = configs.into_iter().map(|config| async move {
        let (name, required) = (config.name.clone(), config.required);
        (name, required, RunningServer::start(config, with.clone()).await)
    });
    let mut servers = Vec::new();
    let mut started = Vec::new();
    for (name, required, outcome) in futures_util::future::join_all(starting).await {
        let outcome = outcome.map(|(server, tools)| {
            servers.push(server);
            tools
        });
        started.push(Started {
            name,
            required,
            outcome,
        });
    }
    let servers = Servers(Arc::new(servers));
    for pair in resources::tools(&servers) {
        // The two resource tools serve all servers with resources, and are listed with the first of them.
        let owner = servers.0.iter().find(|server| server.has_resources());
        let first = started
            .iter_mut()
            .find(|one| owner.is_some_and(|owner| owner.name() == one.name));
        if let Some(Started { outcome: Ok(tools), .. }) = first {
            tools.push(pair);
        }
    }
    (servers, started)
}

impl Servers {
    /// The server with this name.
    pub fn find(&self, name: &str) -> Option<&Arc<RunningServer>> {
        self.0.iter().find(|server| server.name() == name)
    }

    /// All servers.
    pub fn all(&self) -> &[Arc<RunningServer>] {
        &self.0
    }

    /// Ends all servers.
    pub async fn close(&self) {
        futures_util::future::join_all(self.0.iter().map(|server| server.close())).await;
    }
}
