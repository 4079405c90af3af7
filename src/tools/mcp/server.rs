//! One MCP server of a run: starts it, sends requests, restarts it once if it dies, and withdraws tools whose
//! definitions change.

use super::config::{Config, McpContext};
use super::connection::{Connection, ending};
use super::host::Host;
use super::limits::LISTED;
use super::listing::{Pages, chosen, digest, error_text, listed, page, tools_of};
use super::{content, http, names};
use crate::base::call::ToolOutput;
use crate::base::event::SERVER_LOST;
use crate::tools::{ToolContext, ToolError};
use rmcp::model::{
    CallToolRequestParams, GetPromptRequestParams, GetPromptResult, JsonObject, Prompt, ReadResourceRequestParams,
    Resource, Tool as Definition,
};
use rmcp::service::{RoleClient, RunningService, ServiceError};
use std::collections::BTreeMap;
use std::future::Future;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::{Mutex, MutexGuard};

/// Time limit for listing the tools of a server again after it reported a change.
const LOOK: Duration = Duration::from_secs(20);

/// The running servers of a run. Clones share them; when the last clone is dropped, all are killed.
#[derive(Clone, Default)]
pub struct Servers(Arc<Vec<Arc<RunningServer>>>);

impl Servers {
    /// These servers.
    pub fn new(servers: Vec<Arc<RunningServer>>) -> Self {
        Self(Arc::new(servers))
    }

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

/// A started server.
pub struct RunningServer {
    config: Config,
    with: McpContext,
    /// SHA-256 of each tool's definition at the start, by the server's own names.
    definitions: BTreeMap<String, String>,
    prompts: Vec<Prompt>,
    resources: bool,
    /// Held by the running request, so that there is only one at a time: progress notifications belong to it, and a
    /// lost connection is closed before the next request opens another.
    turn: Mutex<()>,
    connection: Mutex<State>,
}

struct State {
    connection: Option<Connection>,
    restarted: bool,
    /// Whether it was reported that the server is not started again.
    lost: bool,
    closed: bool,
    /// Tools whose definition has changed, with the reason.
    withdrawn: BTreeMap<String, &'static str>,
}

/// A request of the model to a server.
pub enum ServerRequest {
    Tool(String, JsonObject),
    Prompt(String, JsonObject),
    Resource(String),
}

impl RunningServer {
    /// Starts the server and lists what it offers. Returns the definitions of the tools that the recipe uses.
    ///
    /// # Errors
    /// One sentence: it cannot be started or reached, or does not list what it offers in time.
    pub async fn start(config: Config, with: McpContext) -> Result<(Arc<Self>, Vec<Definition>), String> {
        let left = with.deadline.saturating_duration_since(Instant::now());
        let time = config.start.min(left);
        let started = async {
            let connection = Connection::open(&config, &with).await?;
            match listed(&connection).await {
                Ok(listed) => Ok((connection, listed)),
                Err(why) => {
                    let end = connection.close().await;
                    Err(format!("{why}{}", end.map(|end| ending(&end)).unwrap_or_default()))
                }
            }
        };
        let (connection, listed) = match tokio::time::timeout(time, started).await {
            Ok(started) => started?,
            Err(_) => return Err(unanswered(time)),
        };
        let (tools, prompts, left_out) = chosen(&config, listed.tools, listed.prompts);
        for why in left_out {
            with.notices
                .add("mcp_tool", format!("MCP server {}: {why}", config.name));
        }
        for (more, code, what) in [
            (listed.more_tools, "mcp_tool", "tools"),
            (listed.more_prompts, "mcp_prompt", "prompts"),
        ] {
            if more {
                let message = format!(
                    "MCP server {}: its list of {what} goes on; only the first {LISTED} {what} or pages were read",
                    config.name
                );
                with.notices.add(code, message);
            }
        }
        let definitions = tools.iter().map(|tool| (tool.name.to_string(), digest(tool))).collect();
        let server = Arc::new(Self {
            definitions,
            prompts,
            resources: listed.resources,
            turn: Mutex::new(()),
            connection: Mutex::new(State {
                connection: Some(connection),
                restarted: false,
                lost: false,
                closed: false,
                withdrawn: BTreeMap::new(),
            }),
            config,
            with,
        });
        Ok((server, tools))
    }

    /// Its name in the recipe.
    pub fn name(&self) -> &str {
        &self.config.name
    }

    /// The prompts that it listed at the start.
    pub fn prompts(&self) -> &[Prompt] {
        &self.prompts
    }

    /// A prompt's messages, requested before the run begins; the server is not restarted for it.
    ///
    /// # Errors
    /// One sentence: it is not connected, refuses the request, or does not answer in time.
    pub async fn prompt(&self, name: &str, args: JsonObject) -> Result<GetPromptResult, String> {
        let running = match &self.connection.lock().await.connection {
            Some(connection) => Arc::clone(&connection.running),
            None => return Err("it is no longer connected".to_owned()),
        };
        let left = self.with.deadline.saturating_duration_since(Instant::now());
        let time = self.config.call.min(left);
        let asked = running.get_prompt(GetPromptRequestParams::new(name).with_arguments(args));
        match tokio::time::timeout(time, asked).await {
            Ok(answer) => answer.map_err(|error| error_text(&error)),
            Err(_) => Err(unanswered(time)),
        }
    }

    /// Whether the server offers resources.
    pub fn has_resources(&self) -> bool {
        self.resources
    }

    /// Ends the server.
    pub async fn close(&self) {
        let mut state = self.connection.lock().await;
        state.closed = true;
        match state.connection.take() {
            Some(connection) => drop(connection.close().await),
            // Lost in its last call: the next one would have started it again.
            None => self.give_up(&mut state, "was lost and was not started again"),
        }
    }

    /// Sends one request. Requests to one server run one at a time.
    ///
    /// # Errors
    /// For the model: `mcp_server_lost` for a server that ended, `mcp_tool_changed` for a tool that is withdrawn,
    /// `mcp_tool_error` for a request that it refuses, `timeout` and `cancelled`.
    pub async fn ask(&self, what: ServerRequest, label: &str, context: &ToolContext) -> Result<ToolOutput, ToolError> {
        let _turn = self.turn(label, context).await?;
        let until = self.until(context);
        let running = self.connected(label, Some(&what), (until, context)).await?;
        let asked = async {
            match what {
                ServerRequest::Tool(name, args) => {
                    let result = running
                        .call_tool(CallToolRequestParams::new(name).with_arguments(args))
                        .await?;
                    Ok(content::output(label, result))
                }
                ServerRequest::Prompt(name, args) => {
                    let result = running
                        .get_prompt(GetPromptRequestParams::new(name).with_arguments(args))
                        .await?;
                    Ok(content::prompt_output(label, result))
                }
                ServerRequest::Resource(uri) => {
                    let result = running.read_resource(ReadResourceRequestParams::new(uri)).await?;
                    let parts = result.contents.into_iter().map(content::resource).collect();
                    Ok(content::made(label, parts, false))
                }
            }
        };
        let answer = bounded(label, asked, until, context).await;
        drop(running);
        self.answered(label, answer).await
    }

    /// The time until which a request that begins now must be answered.
    fn until(&self, context: &ToolContext) -> Instant {
        let own = Instant::now().checked_add(self.config.call);
        own.map_or(context.deadline, |own| own.min(context.deadline))
    }

    /// The open connection, which reports progress to the call of `context`. `what`: the request; a tool may be withdrawn.
    async fn connected(
        &self,
        label: &str,
        what: Option<&ServerRequest>,
        (until, context): (Instant, &ToolContext),
    ) -> Result<Arc<RunningService<RoleClient, Host>>, ToolError> {
        let mut state = self.connection.lock().await;
        self.ensure(&mut state, (label, until, context)).await?;
        if let Some(ServerRequest::Tool(name, _)) = what
            && let Some(why) = state.withdrawn.get(name)
        {
            let message = format!("{label}: the server has {why} this tool since the run began; it cannot be used");
            return Err(ToolError::model("mcp_tool_changed", message));
        }
        let Some(connection) = &state.connection else {
            return Err(gone(self.name(), ""));
        };
        connection
            .host
            .listen_for(Some((context.call.clone(), context.live.clone())));
        Ok(Arc::clone(&connection.running))
    }

    /// The response, or the error for the model. Closes a lost connection, so that it is not used any more.
    async fn answered<T>(&self, label: &str, answer: Result<T, Failed>) -> Result<T, ToolError> {
        let error = match answer {
            Ok(output) => return Ok(output),
            Err(Failed::Told(error)) => return Err(error),
            Err(Failed::Service(error)) => error,
        };
        if let ServiceError::TransportSend(error) = &error
            && let Some(refusal) = http::StatusRefusal::of(error.error.as_ref())
        {
            // The server still runs; only this request failed.
            if refusal.is_access() {
                let message = format!("MCP server {}: {}", self.name(), refusal.text());
                self.with.notices.add("mcp_server", message);
            }
            let message = format!("{label}: {}", refusal.text());
            return Err(ToolError::model("mcp_tool_error", message));
        }
        if matches!(error, ServiceError::TransportClosed | ServiceError::TransportSend(_)) {
            return Err(self.lost(label).await);
        }
        let message = format!("{label}: {}", error_text(&error));
        Err(ToolError::model("mcp_tool_error", message))
    }

    /// Waits until no other request to this server is running.
    async fn turn(&self, label: &str, context: &ToolContext) -> Result<MutexGuard<'_, ()>, ToolError> {
        let left = context.deadline.saturating_duration_since(Instant::now());
        tokio::select! {
            biased;
            () = context.cancel.cancelled() => {
                Err(ToolError::model("cancelled", "the call was ended because the run is ending"))
            }
            turn = self.turn.lock() => Ok(turn),
            () = tokio::time::sleep(left) => {
                let message = format!("{label}: other requests to the server took all of the call's time");
                Err(ToolError::model("timeout", message))
            }
        }
    }

    /// The server's resources, and whether it lists more than are returned.
    ///
    /// # Errors
    /// As [`Self::ask`].
    pub async fn resources(&self, context: &ToolContext) -> Result<(Vec<Resource>, bool), ToolError> {
        let _turn = self.turn(self.name(), context).await?;
        let until = self.until(context);
        let running = self.connected(self.name(), None, (until, context)).await?;
        let asked = async {
            let (mut pages, mut cursor) = (Pages::empty(), None);
            loop {
                let page = running.list_resources(Some(page(cursor))).await?;
                cursor = page.next_cursor;
                if !pages.takes(page.resources) || cursor.is_none() {
                    return Ok(pages.done(cursor.is_some()));
                }
            }
        };
        let answer = bounded(self.name(), asked, until, context).await;
        drop(running);
        self.answered(self.name(), answer).await
    }

    /// The error for a server that died during a call.
    async fn lost(&self, label: &str) -> ToolError {
        let mut state = self.connection.lock().await;
        let end = match state.connection.take() {
            Some(connection) => connection.close().await,
            None => None,
        };
        let how = end.as_ref().map(ending).unwrap_or_default();
        if state.restarted {
            self.give_up(
                &mut state,
                &format!("was lost in the middle of a call for the second time{how}"),
            );
        } else {
            let message = format!("MCP server {} was lost in the middle of a call{how}", self.name());
            self.with.notices.add("mcp_server", message);
        }
        ToolError::model(
            "mcp_server_lost",
            format!("{label}: the server was lost in the middle of the call; its effect is unknown{how}"),
        )
    }

    /// Ensures an open connection, and that withdrawn tools are not called.
    async fn ensure(
        &self,
        state: &mut State,
        (label, until, context): (&str, Instant, &ToolContext),
    ) -> Result<(), ToolError> {
        if state.closed {
            return Err(gone(self.name(), ": the run is ending"));
        }
        if state.connection.as_ref().is_none_or(Connection::is_closed) {
            self.restart(state, context).await?;
            // The new process may have other tools.
            return self.compare(state, (label, self.until(context), context)).await;
        }
        if state
            .connection
            .as_ref()
            .is_some_and(|connection| connection.host.tools_changed())
        {
            self.compare(state, (label, until, context)).await?;
        }
        Ok(())
    }

    async fn restart(&self, state: &mut State, context: &ToolContext) -> Result<(), ToolError> {
        if let Some(connection) = state.connection.take() {
            connection.close().await;
        }
        if state.restarted {
            self.give_up(state, "ended again after it was restarted once");
            return Err(gone(self.name(), ": it was already restarted once"));
        }
        state.restarted = true;
        let time = self
            .config
            .start
            .min(context.deadline.saturating_duration_since(Instant::now()));
        let opened = tokio::select! {
            opened = tokio::time::timeout(time, Connection::open(&self.config, &self.with)) => opened,
            () = context.cancel.cancelled() => return Err(ToolError::model("cancelled", "the run is ending")),
        };
        match opened {
            Ok(Ok(connection)) => {
                self.with.notices.add(
                    "mcp_server",
                    format!("MCP server {} ended and was restarted", self.name()),
                );
                state.connection = Some(connection);
                Ok(())
            }
            Ok(Err(why)) => Err(self.not_again(state, &why)),
            Err(_) => Err(self.not_again(state, "it did not answer in time")),
        }
    }

    fn not_again(&self, state: &mut State, why: &str) -> ToolError {
        self.give_up(state, &format!("ended and cannot be restarted: {why}"));
        gone(self.name(), &format!(": {why}"))
    }

    /// Reports once that the server is no longer used. The message begins with the server's name, as [`SERVER_LOST`]
    /// requires.
    fn give_up(&self, state: &mut State, why: &str) {
        if !std::mem::replace(&mut state.lost, true) {
            let message = format!("MCP server {} {why}", self.name());
            self.with.notices.add(SERVER_LOST, message);
        }
    }

    /// Compares the tools with those at the start. This takes time away from the request `label`, which waits for it.
    ///
    /// # Errors
    /// `timeout` and `cancelled`, as [`Self::ask`]; the next request compares them again.
    async fn compare(
        &self,
        state: &mut State,
        (label, until, context): (&str, Instant, &ToolContext),
    ) -> Result<(), ToolError> {
        let Some(connection) = &state.connection else {
            return Ok(());
        };
        let listed = async { Ok(tools_of(connection).await) };
        let left = until.saturating_duration_since(Instant::now()).min(LOOK);
        let now = match bounded(label, listed, Instant::now() + left, context).await {
            Ok(Ok((tools, _))) => tools.iter().map(|tool| (tool.name.to_string(), digest(tool))).collect(),
            // If listing fails, all tools count as removed.
            Ok(Err(_)) | Err(Failed::Service(_)) => BTreeMap::new(),
            Err(Failed::Told(error)) => {
                connection.host.report_tools_changed();
                if context.cancel.is_cancelled() {
                    return Err(error);
                }
                let message = format!(
                    "{label}: the server may have other tools now; asked for them, {}: the call was not made",
                    unanswered(left)
                );
                return Err(ToolError::model("timeout", message));
            }
        };
        for (name, digest) in &self.definitions {
            let why = match now.get(name) {
                Some(same) if same == digest => continue,
                Some(_) => "changed",
                None => "removed",
            };
            if state.withdrawn.insert(name.clone(), why).is_none() {
                let tool = names::tool_name(self.name(), name);
                let message = format!(
                    "MCP server {} has {why} its tool {tool}: it is no longer used",
                    self.name()
                );
                self.with.notices.add("mcp_tool_changed", message);
            }
        }
        Ok(())
    }
}

/// The message that a server did not answer within this time, which is shown to a tenth of a second.
fn unanswered(time: Duration) -> String {
    format!(
        "it did not answer within {} s",
        (time.as_secs_f32() * 10.0).round() / 10.0
    )
}

fn gone(name: &str, why: &str) -> ToolError {
    ToolError::model(
        "mcp_server_lost",
        format!("the MCP server {name} is no longer available{why}"),
    )
}

enum Failed {
    Told(ToolError),
    Service(ServiceError),
}

/// The response, or the timeout or cancellation if that comes first. The server is notified of both.
async fn bounded<T>(
    label: &str,
    asked: impl Future<Output = Result<T, ServiceError>>,
    until: Instant,
    context: &ToolContext,
) -> Result<T, Failed> {
    let left = until.saturating_duration_since(Instant::now());
    tokio::select! {
        biased;
        () = context.cancel.cancelled() => {
            Err(Failed::Told(ToolError::model("cancelled", "the call was ended because the run is ending")))
        }
        answer = asked => answer.map_err(Failed::Service),
        () = tokio::time::sleep(left) => {
            let message = format!("{label}: {}; the call was cancelled", unanswered(left));
            Err(Failed::Told(ToolError::model("timeout", message)))
        }
    }
}
