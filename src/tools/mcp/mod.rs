//! MCP servers of a run: what a recipe says of them, starting them, and ending them. The protocol itself is rmcp's.

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
mod resources;
mod server;
mod sse;
mod tool;

pub use server::Server;

use super::Tool;
use super::notices::Notices;
use crate::base::grant::Writes;
use crate::base::secret::Redactor;
use crate::process::Confinement;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How long a server may take to start when nothing is said.
pub const START: Duration = Duration::from_secs(60);
/// How long one call may take when nothing is said.
pub const CALL: Duration = Duration::from_secs(600);

/// One server with every value filled in.
#[derive(Clone, Debug)]
pub struct Config {
    /// As the recipe names it; tools are `NAME__TOOL`.
    pub name: String,
    pub way: Way,
    pub required: bool,
    /// Until it has listed its tools.
    pub start: Duration,
    /// For one call.
    pub call: Duration,
    /// When set, only these of its tools, by the server's own names.
    pub include: Option<Vec<String>>,
    pub exclude: Vec<String>,
}

/// How a server is reached.
#[derive(Clone, Debug)]
pub enum Way {
    /// A program, talked with over its pipes.
    Stdio(Program),
    /// An address.
    Url(Address),
}

/// A program that is a server.
#[derive(Clone, Debug)]
pub struct Program {
    pub words: Vec<String>,
    pub dir: PathBuf,
    /// Added to the environment of confined commands.
    pub env: Vec<(String, String)>,
    /// Its own: with the hosts that it was granted.
    pub confinement: Confinement,
    /// What it may write in the workspace for as long as it runs.
    pub writes: Writes,
}

/// A server on the network, or on loopback.
#[derive(Clone, Debug)]
pub struct Address {
    pub url: String,
    pub kind: Transport,
    /// Names and values, variables filled in.
    pub headers: Vec<(String, String)>,
    pub oauth: Option<Credentials>,
}

/// What is spoken at an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transport {
    /// Streamable HTTP.
    Http,
    /// The HTTP and SSE transport of 2024-11-05.
    Sse,
    /// Streamable HTTP; where that is not spoken, SSE.
    Either,
}

/// OAuth client credentials, variables filled in.
#[derive(Clone)]
pub struct Credentials {
    pub client_id: String,
    pub proof: Proof,
    pub scopes: Vec<String>,
}

/// How a client shows that it is the one.
#[derive(Clone)]
pub enum Proof {
    /// A password.
    Secret(String),
    /// Statements signed with this key, in PEM form.
    Key(String),
}

impl std::fmt::Debug for Credentials {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Credentials")
            .field("client_id", &self.client_id)
            .finish_non_exhaustive()
    }
}

/// The servers that stay for a run. Clones share them; when the last is gone, all are killed.
#[derive(Clone, Default)]
pub struct Servers(Arc<Vec<Arc<Server>>>);

/// What all servers are started with.
#[derive(Clone)]
pub struct With {
    pub redactor: Arc<Redactor>,
    pub notices: Notices,
    /// When the run's wall clock ends.
    pub deadline: Instant,
}

/// How one server started.
pub struct Started {
    pub name: String,
    pub required: bool,
    /// Why it cannot be used, or what it offers.
    pub outcome: Result<Vec<Arc<dyn Tool>>, String>,
}

/// Starts all servers side by side. The order of the answers is that of `configs`.
pub async fn start(configs: Vec<Config>, with: &With) -> (Servers, Vec<Started>) {
    let starting = configs.into_iter().map(|config| async move {
        let (name, required) = (config.name.clone(), config.required);
        (name, required, Server::start(config, with.clone()).await)
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
        // The pair belongs to all servers that have resources, and is listed with the first of them.
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
    /// The server of a name.
    pub fn find(&self, name: &str) -> Option<&Arc<Server>> {
        self.0.iter().find(|server| server.name() == name)
    }

    /// All of them.
    pub fn all(&self) -> &[Arc<Server>] {
        &self.0
    }

    /// Ends all; none can be used after.
    pub async fn close(&self) {
        futures_util::future::join_all(self.0.iter().map(|server| server.close())).await;
    }
}
