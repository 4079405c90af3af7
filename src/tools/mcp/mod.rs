//! The MCP servers of a run: their configuration, start and end. The protocol is implemented by rmcp.

mod assertion;
mod config;
mod connection;
mod content;
mod elicit;
mod host;
mod http;
mod inbox;
mod limits;
mod listing;
mod names;
mod oauth;
mod outline;
pub mod prompts;
mod repair;
pub mod resources;
mod server;
mod sse;
mod stdio;
mod tool;

pub use config::{
    Address, Authority, CALL, Config, Credentials, McpContext, Proof, START, ServerLocation, ServerProgram, Transport,
};
pub use server::{RunningServer, Servers};

use super::Tool;
use super::notices::Notices;
use limits::{ALL_DEFINITIONS, named};
use prompts::PromptTool;
use std::sync::Arc;
use tool::McpTool;

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
    let mut bytes = 0;
    for (name, required, outcome) in futures_util::future::join_all(starting).await {
        let outcome = outcome.map(|(server, definitions)| {
            let tools = definitions
                .iter()
                .map(|tool| Arc::new(McpTool::new(&server, tool)) as Arc<dyn Tool>);
            let prompts = server.prompts().iter();
            let prompts = prompts.map(|prompt| Arc::new(PromptTool::new(&server, prompt)) as Arc<dyn Tool>);
            let offered = tools.chain(prompts).collect();
            servers.push(server);
            within_total(&name, offered, &mut bytes, &with.notices)
        });
        started.push(Started {
            name,
            required,
            outcome,
        });
    }
    let servers = Servers::new(servers);
    for pair in resources::tools(&servers) {
        // The two resource tools serve all servers with resources, and are listed with the first of them.
        let owner = servers.all().iter().find(|server| server.has_resources());
        let first = started
            .iter_mut()
            .find(|one| owner.is_some_and(|owner| owner.name() == one.name));
        if let Some(Started { outcome: Ok(tools), .. }) = first {
            tools.push(pair);
        }
    }
    (servers, started)
}

/// Leaves out, with a warning, the tools and prompts of a server whose definitions would exceed the limit for all servers
/// together. `bytes` is the length of the definitions that are kept so far.
fn within_total(server: &str, offered: Vec<Arc<dyn Tool>>, bytes: &mut usize, notices: &Notices) -> Vec<Arc<dyn Tool>> {
    let mut left_out: Vec<String> = Vec::new();
    let mut fits = |tool: &Arc<dyn Tool>| {
        let spec = tool.spec();
        let schema = serde_json::to_vec(&spec.parameters).map_or(usize::MAX, |json| json.len());
        let with_this = bytes
            .saturating_add(schema)
            .saturating_add(spec.description.len() + spec.name.len());
        if with_this > ALL_DEFINITIONS {
            left_out.push(format!("`{}`", spec.name));
            return false;
        }
        *bytes = with_this;
        true
    };
    let kept: Vec<Arc<dyn Tool>> = offered.into_iter().filter(|tool| fits(tool)).collect();
    if !left_out.is_empty() {
        let message = format!(
            "MCP server {server}: left out {}: the definitions of all servers together exceed {ALL_DEFINITIONS} bytes; \
             select tools with `include_tools`",
            named(left_out, "").join(", ")
        );
        notices.add("mcp_tool", message);
    }
    kept
}
