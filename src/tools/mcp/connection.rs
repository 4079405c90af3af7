//! Opens and closes one connection to a server, over the transport that its recipe names.

use super::config::{Address, Config, McpContext, ServerLocation, ServerProgram, Transport};
use super::host::Host;
use super::inbox::Inbox;
use super::limits::MESSAGE;
use super::stdio::Stdio;
use super::{http, oauth, sse};
use crate::net::client::innermost;
use crate::process::server_process::{self, Serve, Served, ServerExit};
use rmcp::model::ProtocolVersion;
use rmcp::service::{ClientInitializeError, ClientLifecycleMode, ClientServiceExt, RoleClient, RunningService};
use rmcp::transport::StreamableHttpClientTransport;
use rmcp::transport::auth::AuthClient;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// An open connection.
pub struct Connection {
    pub running: Arc<RunningService<RoleClient, Host>>,
    pub host: Host,
    /// The server's process, if this program started it.
    pub served: Option<Served>,
    /// Whether the connection ended because a message was longer than [`MESSAGE`].
    too_long: Arc<AtomicBool>,
}

/// How long a server may take to exit after its stdin is closed.
const SHUTDOWN_TIME: Duration = Duration::from_millis(500);

impl Connection {
    /// Connects and initializes. The caller sets the time limit.
    ///
    /// # Errors
    /// One sentence: the server cannot be started or reached, or does not initialize; with how its process ended.
    pub async fn open(config: &Config, with: &McpContext) -> Result<Self, String> {
        let host = Host::new(&config.name, &with.notices);
        let inbox = Inbox::new(&config.name, &with.notices);
        match &config.location {
            ServerLocation::Stdio(program) => stdio(&config.name, program, with, (host, inbox)).await,
            ServerLocation::Url(address) => url(address, (&host, &inbox)).await,
        }
    }

    /// Whether the server has closed the connection.
    pub fn is_closed(&self) -> bool {
        self.running.is_closed() || self.running.peer().is_transport_closed()
    }

    /// Ends the server: closes the connection, then kills its process tree. Returns how its process ended, if there is
    /// a process, or that the server's last message was too long.
    pub async fn close(self) -> Option<ServerExit> {
        let Self {
            running,
            served,
            too_long,
            ..
        } = self;
        match Arc::try_unwrap(running) {
            Ok(mut running) => {
                // The connection is abandoned in any case.
                let _ = running.close_with_timeout(SHUTDOWN_TIME).await;
            }
            Err(running) => running.cancellation_token().cancel(),
        }
        ended(served.as_ref(), &too_long).await
    }
}

/// How a server's process ended; a live process is killed. If a message was too long, that is given as the reason.
async fn ended(served: Option<&Served>, too_long: &AtomicBool) -> Option<ServerExit> {
    let end = match served {
        None => None,
        Some(served) => match served.wait(SHUTDOWN_TIME).await {
            Some(end) => Some(end),
            None => served.kill().await,
        },
    };
    match too_long.load(Ordering::Relaxed) {
        true => Some(ServerExit {
            failed: Some(format!("it sent a message of more than {} MiB", MESSAGE >> 20)),
            ..end.unwrap_or_default()
        }),
        false => end,
    }
}

async fn stdio(
    name: &str,
    program: &ServerProgram,
    with: &McpContext,
    (host, inbox): (Host, Inbox),
) -> Result<Connection, String> {
    let (notices, name) = (with.notices.clone(), name.to_owned());
    let what = Serve {
        name: name.clone(),
        words: program.words.clone(),
        dir: program.dir.clone(),
        env: program.env.clone(),
        redactor: Arc::clone(&with.redactor),
        writes: program.writes.clone(),
        on_undone: Box::new(move |undone| notices.add_undone(&name, undone)),
    };
    let serving = server_process::serve(what, &program.confinement).map_err(|error| error.to_string())?;
    let too_long = Arc::<AtomicBool>::default();
    let pipes = Stdio::new(serving.stdout, serving.stdin, inbox, Arc::clone(&too_long));
    match host
        .clone()
        .serve_with_lifecycle(pipes, ClientLifecycleMode::Initialize)
        .await
    {
        Ok(running) => Ok(Connection {
            running: Arc::new(running),
            host,
            served: Some(serving.served),
            too_long,
        }),
        Err(error) => {
            let end = ended(Some(&serving.served), &too_long).await;
            Err(format!(
                "{}{}",
                said(&error),
                end.map(|end| ending(&end)).unwrap_or_default()
            ))
        }
    }
}

/// How a process ended, as the end of a sentence.
pub fn ending(end: &ServerExit) -> String {
    if let Some(why) = &end.failed {
        return format!("; {why}");
    }
    let mut text = match end.exit.code.or(end.exit.signal) {
        Some(_) => format!("; it ended with {}", end.exit.ending()),
        None => String::new(),
    };
    let lines: Vec<&str> = end.stderr.lines().filter(|line| !line.trim().is_empty()).collect();
    if !lines.is_empty() {
        let tail = lines[lines.len().saturating_sub(8)..].join("\n");
        text.push_str(&format!("; its error output:\n{tail}"));
    }
    text
}

async fn url(address: &Address, ends: (&Host, &Inbox)) -> Result<Connection, String> {
    match address.kind {
        Transport::Http => streamable(address, ends).await.map_err(|(why, _)| why),
        Transport::Sse => legacy(address, ends).await,
        Transport::Either => match streamable(address, ends).await {
            Ok(connection) => Ok(connection),
            // The flag says that SSE would fail for the same reason, for example a missing authorization.
            Err((why, true)) => Err(why),
            Err((first, false)) => legacy(address, ends)
                .await
                .map_err(|second| format!("streamable HTTP: {first}; SSE: {second}")),
        },
    }
}

/// The mode that uses the protocol without a handshake if the server supports it, and otherwise the one with a
/// handshake.
fn either() -> ClientLifecycleMode {
    ClientLifecycleMode::Auto {
        preferred_versions: vec![ProtocolVersion::LATEST],
        legacy_version: Some(ProtocolVersion::LATEST_WITH_INITIALIZE),
    }
}

/// Connects over Streamable HTTP; the flag in the error says that another transport would fail too, for example because
/// the server requires authorization. If the server does not support the protocol without a handshake, the older one is
/// tried.
async fn streamable(address: &Address, (host, inbox): (&Host, &Inbox)) -> Result<Connection, (String, bool)> {
    let certain = |why: String| (why, true);
    let client = http::client(&address.url).await.map_err(certain)?;
    let headers = http::headers(&address.headers).map_err(certain)?;
    let config = http::config(&address.url, &headers);
    let manager = oauth::manager(client.clone(), &address.url, address.oauth.as_ref())
        .await
        .map_err(certain)?;
    let client = AuthClient::new(http::HttpClient::new(client, inbox.clone()), manager);
    let mut told = (String::new(), false);
    for mode in [either(), ClientLifecycleMode::Initialize] {
        let transport = StreamableHttpClientTransport::with_client(client.clone(), config.clone());
        match host.clone().serve_with_lifecycle(transport, mode).await {
            Ok(running) => {
                return Ok(Connection {
                    running: Arc::new(running),
                    host: host.clone(),
                    served: None,
                    too_long: Arc::default(),
                });
            }
            Err(error) if error.is_authorization_required() => return Err(certain(UNAUTHORIZED.to_owned())),
            Err(error) => told = (said(&error), false),
        }
    }
    Err(told)
}

/// The message if a server requires authorization.
const UNAUTHORIZED: &str =
    "the server requires authorization: set `headers: { Authorization: \"Bearer ${TOKEN}\" }` or `oauth`";

async fn legacy(address: &Address, (host, inbox): (&Host, &Inbox)) -> Result<Connection, String> {
    let client = http::client(&address.url).await?;
    let headers = http::headers(&address.headers)?;
    let too_long = Arc::<AtomicBool>::default();
    let transport = sse::Sse::connect(client, &address.url, headers, (inbox.clone(), Arc::clone(&too_long)))
        .await
        .map_err(|error| error.to_string())?;
    let running = host
        .clone()
        .serve_with_lifecycle(transport, ClientLifecycleMode::Initialize)
        .await;
    Ok(Connection {
        running: Arc::new(running.map_err(|error| said(&error))?),
        host: host.clone(),
        served: None,
        too_long,
    })
}

/// The innermost cause of an error, because outer ones only describe this program.
fn said(error: &ClientInitializeError) -> String {
    match error {
        ClientInitializeError::ConnectionClosed(_) => "the server closed the connection before it answered".to_owned(),
        ClientInitializeError::LegacyFallbackFailed { fallback, .. } => said(fallback),
        ClientInitializeError::TransportError { error, .. } => innermost(error.error.as_ref()),
        ClientInitializeError::JsonRpcError(error) => format!("the server answers with an error: {}", error.message),
        error => error.to_string(),
    }
}
