//! Gathers the tools of a run: built-in ones, those that the recipe's discovery command lists, and those of its MCP
//! servers. Starts the programs that are needed for that.

use super::bootstrap;
use super::environment;
use super::grants::{self, VariableForm};
use super::origin::{self, RecipeFile};
use super::preflight;
use super::refusal::Refusal;
use super::secrets::{self, Secrets};
use crate::base::event::{SERVER_MISSING, ServerStatus};
use crate::base::grant::Writes;
use crate::base::secret::Redactor;
use crate::policy::PolicySet;
use crate::process::private::{Private, RECIPE_VARIABLE};
use crate::process::sides::Side;
use crate::process::{Confinement, Network, SandboxLevel};
use crate::recipe::Plan;
use crate::recipe::lower::WALL_MS;
use crate::recipe::plan::McpServer;
use crate::tools::discovered::{self, Commands, DiscoveredTool};
use crate::tools::mcp::{
    self, Address, Authority, Config, Credentials, Proof, ServerLocation, ServerProgram, Servers, Started, Transport,
};
use crate::tools::notices::{Notices, ToolNotice};
use crate::tools::registry::Conflict;
use crate::tools::{Registry, Tool, words};
use crate::workspace::Workspace;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio_util::sync::CancellationToken;

/// Inputs for starting servers and discovery commands.
pub struct ServerContext<'a> {
    pub workspace: &'a Path,
    pub confinement: &'a Confinement,
    pub redactor: &'a Arc<Redactor>,
    pub cancel: &'a CancellationToken,
    /// The wall-clock limit of the run.
    pub deadline: Instant,
    /// Whether this is a replay: then nothing outside this machine is contacted.
    pub hermetic: bool,
    /// Whether the recipe is trusted to name paths outside the workspace and to use variables.
    pub trusted: bool,
    pub secrets: &'a Secrets,
}

/// All tools of a run.
#[derive(Default)]
pub struct Toolset {
    /// The tools that the recipe selects.
    pub tools: Registry,
    pub servers: Servers,
    pub notices: Notices,
    /// The start result of each server.
    pub status: Vec<ServerStatus>,
    /// Names of discovered tools.
    pub discovered: Vec<String>,
}

impl Toolset {
    /// The built-in tools alone, unfiltered: for a run that was interrupted before it began.
    ///
    /// # Errors
    /// As for [`bootstrap::registry`].
    pub fn bare(searches: bool) -> Result<Self, Refusal> {
        Ok(Self {
            tools: bootstrap::registry(searches)?,
            ..Self::default()
        })
    }

    /// Names of servers that did not start. Their tools must not be reported as unknown.
    pub fn absent(&self) -> Vec<String> {
        let failed = self.status.iter().filter(|status| status.status != "ready");
        failed.map(|status| status.name.clone()).collect()
    }
}

/// Whether the plan starts a program or server to get its tools.
pub fn starts_something(plan: &Plan) -> bool {
    plan.tools.discovery.is_some() || !plan.tools.mcp_servers.is_empty()
}

/// Gathers the tools; without `context`, only those that need no program or server. If the run cannot begin, everything
/// that was started is stopped.
///
/// # Errors
/// The discovery failed or a required server did not start (both exit code 8); a tool name is unknown (exit code 3).
pub async fn assemble(plan: &Plan, searches: bool, context: Option<&ServerContext<'_>>) -> Result<Toolset, Refusal> {
    let mut toolset = Toolset::bare(searches)?;
    let Some(context) = context else {
        toolset.tools = bootstrap::filtered(&toolset.tools, plan, &[])?;
        return Ok(toolset);
    };
    if let Some(discovery) = &plan.tools.discovery {
        let commands = Commands {
            list: beside_recipe(&discovery.command, context.confinement),
            call: beside_recipe(&discovery.call, context.confinement),
        };
        discover(&mut toolset, &commands, context).await?;
    }
    let failed = serve(&mut toolset, plan, context).await;
    let filtered = match failed {
        Some(refusal) => Err(refusal),
        None => bootstrap::filtered(&toolset.tools, plan, &toolset.absent()),
    };
    match filtered {
        Ok(tools) => {
            toolset.tools = tools;
            Ok(toolset)
        }
        Err(refusal) => {
            toolset.servers.close().await;
            Err(refusal)
        }
    }
}

async fn discover(toolset: &mut Toolset, commands: &Commands, context: &ServerContext<'_>) -> Result<(), Refusal> {
    let mut confinement = context.confinement.of_side(Side::Servers);
    if context.trusted {
        for text in [&commands.list, &commands.call] {
            let named = words::words(text).unwrap_or_default();
            grants::readable(&mut confinement, &named, context.workspace);
        }
    }
    let with = discovered::DiscoveryContext {
        workspace: context.workspace,
        confinement: &confinement,
        redactor: context.redactor,
        cancel: context.cancel,
        deadline: context.deadline,
    };
    let found = discovered::discover(commands, &with)
        .await
        .map_err(Refusal::Environment)?;
    for warning in found.warnings {
        toolset.notices.add("discovery", warning);
    }
    for tool in found.tools {
        let name = tool.spec().name.clone();
        let tool: DiscoveredTool = match toolset.tools.find(&name) {
            None => tool,
            Some(_) => {
                let message =
                    format!("a tool `{name}` already exists: the discovered one is called `discovered_tool_{name}`");
                toolset.notices.add("tool_name", message);
                tool.renamed()
            }
        };
        let name = tool.spec().name.clone();
        match toolset.tools.add(Arc::new(tool)) {
            Ok(()) => toolset.discovered.push(name),
            Err(conflict) => report_conflict(&toolset.notices, &conflict),
        }
    }
    Ok(())
}

fn report_conflict(notices: &Notices, conflict: &Conflict) {
    notices.add("tool_name", format!("{conflict}; the second is left out"));
}

/// Starts the servers. Returns the reason if the run cannot begin.
async fn serve(toolset: &mut Toolset, plan: &Plan, context: &ServerContext<'_>) -> Option<Refusal> {
    let mut configs = Vec::new();
    let mut started = Vec::new();
    for (name, server) in &plan.tools.mcp_servers {
        match config(name, server, context) {
            Ok(config) => configs.push(config),
            Err(why) => started.push(Started {
                name: name.clone(),
                required: server.required,
                outcome: Err(why),
            }),
        }
    }
    let with = mcp::McpContext {
        redactor: Arc::clone(context.redactor),
        notices: toolset.notices.clone(),
        deadline: context.deadline,
    };
    if !configs.is_empty() {
        let (servers, more) = tokio::select! {
            all = mcp::start(configs, &with) => all,
            () = context.cancel.cancelled() => {
                return Some(Refusal::Environment("the run was ended while its MCP servers were starting".to_owned()));
            }
        };
        toolset.servers = servers;
        started.extend(more);
    }
    started.sort_by(|a, b| a.name.cmp(&b.name));
    let mut refusal = None;
    for one in started {
        match one.outcome {
            Ok(tools) => {
                let status = added(toolset, one.name, tools);
                toolset.status.push(status);
            }
            Err(why) => {
                let message = format!("MCP server {}: {why}", one.name);
                if one.required && refusal.is_none() {
                    refusal = Some(Refusal::Environment(format!(
                        "a required server did not start: {message}"
                    )));
                }
                toolset
                    .notices
                    .add(SERVER_MISSING, format!("{message}; the run continues without it"));
                toolset.status.push(ServerStatus {
                    name: one.name,
                    status: "failed".to_owned(),
                    message: why,
                    tools: Vec::new(),
                });
            }
        }
    }
    refusal
}

fn added(toolset: &mut Toolset, name: String, tools: Vec<Arc<dyn Tool>>) -> ServerStatus {
    let mut names = Vec::new();
    for tool in tools {
        let name = tool.spec().name.clone();
        match toolset.tools.add(tool) {
            Ok(()) => names.push(name),
            Err(conflict) => report_conflict(&toolset.notices, &conflict),
        }
    }
    ServerStatus {
        name,
        status: "ready".to_owned(),
        message: String::new(),
        tools: names,
    }
}

/// The configuration of a server, with variables expanded.
fn config(name: &str, server: &McpServer, context: &ServerContext<'_>) -> Result<Config, String> {
    let location = match (&server.command, &server.url) {
        (Some(command), None) => ServerLocation::Stdio(Box::new(program(command, server, context)?)),
        (None, Some(url)) if context.hermetic && !is_here(url) => {
            return Err("a replay contacts no other machine".to_owned());
        }
        (None, Some(url)) => ServerLocation::Url(address(url, server, context)?),
        _ => return Err("it needs exactly one of `command` and `url`".to_owned()),
    };
    let call = server.timeout_ms.map_or(mcp::CALL, Duration::from_millis);
    Ok(Config {
        name: name.to_owned(),
        location,
        required: server.required,
        start: server.timeout_ms.map_or(mcp::START, Duration::from_millis),
        call,
        include: server.include_tools.clone(),
        exclude: server.exclude_tools.clone(),
    })
}

/// Whether the URL refers to this machine.
fn is_here(url: &str) -> bool {
    reqwest::Url::parse(url).is_ok_and(|url| url.host_str().is_some_and(crate::net::client::is_loopback))
}

fn expanded(text: &str, context: &ServerContext<'_>) -> Result<String, String> {
    secrets::expanded(text, VariableForm::Any, context.trusted, context.secrets)
}

/// A word of a server's command line. Variables in it are expanded only if the server was imported.
fn word(text: &str, server: &McpServer, context: &ServerContext<'_>) -> Result<String, String> {
    if !server.expands_command {
        return Ok(text.to_owned());
    }
    // That directory is no variable of this program's own environment.
    let text = beside_recipe(text, context.confinement);
    secrets::expanded(&text, VariableForm::Braced, context.trusted, context.secrets)
}

/// A word of a server's or a discovery's command line, with the variable for the directory of the files beside the
/// recipe expanded. No shell reads these command lines, so nothing else would expand it.
fn beside_recipe(word: &str, confinement: &Confinement) -> String {
    let given = confinement.env.iter().find(|(name, _)| name == RECIPE_VARIABLE);
    match given {
        Some((_, dir)) => preflight::with_recipe_dir(word, dir),
        None => word.to_owned(),
    }
}

fn program(command: &str, server: &McpServer, context: &ServerContext<'_>) -> Result<ServerProgram, String> {
    let dir = match &server.cwd {
        None => context.workspace.to_path_buf(),
        Some(dir) => context.workspace.join(dir),
    };
    let mut named = vec![grants::program(
        &word(command, server, context)?,
        &environment::variable("PATH").unwrap_or_default(),
    )];
    for text in &server.args {
        named.push(word(text, server, context)?);
    }
    let mut confinement = context.confinement.of_side(Side::Servers);
    confinement.network = match (confinement.level, server.network.is_empty()) {
        (SandboxLevel::None, _) => Network::Open,
        (_, true) => Network::None,
        _ if context.hermetic => Network::None,
        (_, false) => Network::Hosts(server.network.clone()),
    };
    let mut seen = named.clone();
    seen.push(dir.to_string_lossy().into_owned());
    if context.trusted {
        grants::readable(&mut confinement, &seen, context.workspace);
    }
    let env = server
        .env
        .iter()
        .map(|(name, value)| Ok((name.clone(), expanded(value, context)?)));
    Ok(ServerProgram {
        words: named.iter().map(|word| beside_recipe(word, &confinement)).collect(),
        dir,
        env: env.collect::<Result<_, String>>()?,
        confinement,
        writes: match server.writes_tree {
            true => Writes::Tree,
            false => Writes::Nothing,
        },
    })
}

fn address(url: &str, server: &McpServer, context: &ServerContext<'_>) -> Result<Address, String> {
    let headers = server
        .headers
        .iter()
        .map(|(name, value)| Ok((name.clone(), expanded(value, context)?)));
    let oauth = match &server.oauth {
        None => None,
        Some(oauth) => Some(Credentials {
            client_id: expanded(&oauth.client_id, context)?,
            proof: match (&oauth.client_secret, &oauth.private_key) {
                (Some(secret), None) => Proof::Secret(expanded(secret, context)?),
                (None, Some(key)) => Proof::Key(expanded(key, context)?),
                _ => return Err("`oauth` needs exactly one of `client_secret` and `private_key`".to_owned()),
            },
            scopes: oauth.scopes.clone(),
            authority: match (&oauth.token_url, &oauth.issuer) {
                (Some(url), _) => Some(Authority::TokenUrl(url.clone())),
                (None, issuer) => issuer.clone().map(Authority::Issuer),
            },
        }),
    };
    Ok(Address {
        url: expanded(url, context)?,
        kind: match server.transport.as_deref() {
            Some("http") => Transport::Http,
            Some("sse") => Transport::Sse,
            _ => Transport::Either,
        },
        headers: headers.collect::<Result<_, String>>()?,
        oauth,
    })
}

/// Tools that are gathered outside a run, with the resources that they need.
pub struct Standalone {
    pub toolset: Toolset,
    /// What was reported while the tools were gathered; it has been printed on stderr.
    pub warnings: Vec<ToolNotice>,
    /// Home and temporary directory of the programs that were started.
    _own: Option<Private>,
}

impl Standalone {
    /// The built-in tools.
    ///
    /// # Errors
    /// As for [`bootstrap::registry`].
    pub fn builtin(searches: bool) -> Result<Self, Refusal> {
        Ok(Self {
            toolset: Toolset::bare(searches)?,
            warnings: Vec::new(),
            _own: None,
        })
    }
}

/// Gathers the tools of a plan outside a run, in the sandbox of these policies.
///
/// # Errors
/// As for [`assemble`], or the sandbox is not available.
pub async fn standalone(
    (plan, beside): (&Plan, &[RecipeFile]),
    searches: bool,
    policies: &PolicySet,
    workspace: &Workspace,
    trusted: bool,
) -> Result<Standalone, Refusal> {
    if !starts_something(plan) {
        return Ok(Standalone {
            toolset: assemble(plan, searches, None).await?,
            warnings: Vec::new(),
            _own: None,
        });
    }
    let mut own = bootstrap::private(workspace.root())?;
    origin::give(&mut own, beside, plan)?;
    let made = bootstrap::confinement(policies, workspace.root(), &own, &[]).await;
    let (confinement, _) = made.map_err(Refusal::Environment)?;
    bootstrap::self_test(&confinement).await?;
    let wall = plan.budget.wall().unwrap_or(Duration::from_millis(WALL_MS));
    let secrets = Secrets::of(environment::variables());
    environment::add_secrets(secrets::sent(plan, &secrets));
    let redactor = environment::redactor();
    let context = ServerContext {
        workspace: workspace.root(),
        confinement: &confinement,
        redactor: &redactor,
        cancel: &CancellationToken::new(),
        deadline: Instant::now() + wall,
        hermetic: false,
        trusted,
        secrets: &secrets,
    };
    let toolset = assemble(plan, searches, Some(&context)).await?;
    let warnings = toolset.notices.take();
    for warning in &warnings {
        super::out::stderr(&format!("warning: {}", warning.message));
    }
    Ok(Standalone {
        toolset,
        warnings,
        _own: Some(own),
    })
}
