//! The configuration of a server: how it is reached, with which limits and credentials.

use crate::base::grant::Writes;
use crate::base::secret::Redactor;
use crate::process::Confinement;
use crate::tools::notices::Notices;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Time limit for the start of a server whose recipe gives no limit.
pub const START: Duration = Duration::from_secs(60);
/// Time limit of one call to such a server.
pub const CALL: Duration = Duration::from_secs(600);

/// One server of the recipe, with variables expanded.
#[derive(Clone, Debug)]
pub struct Config {
    /// Name in the recipe; its tools are called `NAME__TOOL`.
    pub name: String,
    pub location: ServerLocation,
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
pub enum ServerLocation {
    /// A local program, over its stdin and stdout.
    Stdio(Box<ServerProgram>),
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
    /// The authorization server to which the credentials may be sent. `None`: one on the host of the MCP server.
    pub authority: Option<Authority>,
}

/// How the recipe names an authorization server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Authority {
    /// The URL of its issuer. The token endpoint that the MCP server names must have the same origin.
    Issuer(String),
    /// The token endpoint itself.
    TokenUrl(String),
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

/// Dependencies that all servers share.
#[derive(Clone)]
pub struct McpContext {
    pub redactor: Arc<Redactor>,
    pub notices: Notices,
    /// The wall-clock limit of the run.
    pub deadline: Instant,
}
