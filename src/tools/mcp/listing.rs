//! Reads what a server lists (tools, prompts, whether it has resources) within limits, and selects what the recipe
//! uses.

use super::config::Config;
use super::link::Link;
use super::names;
use crate::base::ids::sha256_hex;
use crate::base::secret::shortened;
use crate::net::client::innermost;
use rmcp::model::{PaginatedRequestParams, Prompt, Tool as Definition};
use rmcp::service::ServiceError;

/// Upper limit for the tools, prompts or resources of one server. A page counts as at least one of them, so that a list
/// of empty pages ends.
pub(super) const MOST: usize = 1_000;
/// Upper limit in bytes for the definition of one tool.
const DEFINITION: usize = 256 << 10;

/// What a server offers.
pub(super) struct ServerListing {
    pub tools: Vec<Definition>,
    pub prompts: Vec<Prompt>,
    /// Whether the server lists more prompts than these.
    pub more_prompts: bool,
    pub resources: bool,
}

pub(super) async fn listed(link: &Link) -> Result<ServerListing, String> {
    let info = link.running.peer().peer_info();
    let has = info.as_ref().map(|info| info.capabilities.clone()).unwrap_or_default();
    let tools = match has.tools.is_some() || info.is_none() {
        true => tools_of(link).await?,
        false => Vec::new(),
    };
    let (prompts, more_prompts) = match has.prompts.is_some() {
        true => prompts_of(link).await?,
        false => (Vec::new(), false),
    };
    Ok(ServerListing {
        tools,
        prompts,
        more_prompts,
        resources: has.resources.is_some(),
    })
}

pub(super) fn page(cursor: Option<String>) -> PaginatedRequestParams {
    PaginatedRequestParams::default().with_cursor(cursor)
}

pub(super) async fn tools_of(link: &Link) -> Result<Vec<Definition>, String> {
    let mut all = Vec::new();
    let (mut cursor, mut seen) = (None, 0);
    loop {
        let page = link.running.list_tools(Some(page(cursor))).await;
        let page = page.map_err(|error| format!("its tools cannot be listed: {}", error_text(&error)))?;
        seen += page.tools.len().max(1);
        all.extend(page.tools);
        cursor = page.next_cursor;
        if seen > MOST {
            return Err(format!("it lists more than {MOST} tools, or more pages of them"));
        }
        if cursor.is_none() {
            return Ok(all);
        }
    }
}

/// The prompts, and whether the server lists more.
async fn prompts_of(link: &Link) -> Result<(Vec<Prompt>, bool), String> {
    let mut all = Vec::new();
    let (mut cursor, mut seen) = (None, 0);
    loop {
        let page = link.running.list_prompts(Some(page(cursor))).await;
        let page = page.map_err(|error| format!("its prompts cannot be listed: {}", error_text(&error)))?;
        seen += page.prompts.len().max(1);
        all.extend(page.prompts);
        cursor = page.next_cursor;
        if cursor.is_none() || seen >= MOST {
            let more = cursor.is_some() || all.len() > MOST;
            all.truncate(MOST);
            return Ok((all, more));
        }
    }
}

/// The tools that the recipe selects, and why others are left out.
pub(super) fn chosen(config: &Config, tools: Vec<Definition>) -> (Vec<Definition>, Vec<String>) {
    let mut left_out = Vec::new();
    let mut kept: Vec<Definition> = Vec::new();
    for tool in tools {
        if !names::wanted(&tool.name, config.include.as_deref(), &config.exclude) {
            continue;
        }
        let bytes = serde_json::to_vec(&tool).map_or(usize::MAX, |json| json.len());
        let name = shortened(&tool.name, 80);
        if tool.name.is_empty() || tool.name.len() > 200 || tool.name.chars().any(char::is_control) {
            left_out.push(format!(
                "a tool was left out: `{}` is not a valid name",
                name.escape_debug()
            ));
        } else if bytes > DEFINITION {
            left_out.push(format!(
                "the tool `{name}` was left out: its definition is too large ({bytes} bytes)"
            ));
        } else if kept
            .iter()
            .any(|one| names::tool_name(&config.name, &one.name) == names::tool_name(&config.name, &tool.name))
        {
            left_out.push(format!("the tool `{name}` was left out: another one has its name"));
        } else {
            kept.push(tool);
        }
    }
    (kept, left_out)
}

pub(super) fn digest(tool: &Definition) -> String {
    sha256_hex(&[&serde_json::to_vec(tool).unwrap_or_default()])
}

pub(super) fn error_text(error: &ServiceError) -> String {
    match error {
        ServiceError::McpError(error) => error.message.to_string(),
        ServiceError::TransportSend(error) => innermost(error.error.as_ref()),
        error => error.to_string(),
    }
}
