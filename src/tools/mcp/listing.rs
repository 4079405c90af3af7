//! Reads what a server lists (tools, prompts, whether it has resources) within limits, and selects what the recipe
//! uses.

use super::config::Config;
use super::connection::Connection;
use super::limits::{DEFINITION, DEFINITIONS, ERROR, LISTED, LISTING, SCHEMA_DEPTH, cut, named};
use super::names;
use crate::base::ids::sha256_hex;
use crate::base::secret::shortened;
use crate::net::client::innermost;
use rmcp::model::{PaginatedRequestParams, Prompt, Tool as Definition};
use rmcp::service::ServiceError;
use serde::Serialize;
use serde_json::Value;

/// What a server offers.
pub(super) struct ServerListing {
    pub tools: Vec<Definition>,
    /// Whether the server lists more tools than these.
    pub more_tools: bool,
    pub prompts: Vec<Prompt>,
    /// Whether the server lists more prompts than these.
    pub more_prompts: bool,
    pub resources: bool,
}

pub(super) async fn listed(connection: &Connection) -> Result<ServerListing, String> {
    let info = connection.running.peer().peer_info();
    let has = info.as_ref().map(|info| info.capabilities.clone()).unwrap_or_default();
    let (tools, more_tools) = match has.tools.is_some() || info.is_none() {
        true => tools_of(connection).await?,
        false => (Vec::new(), false),
    };
    let (prompts, more_prompts) = match has.prompts.is_some() {
        true => prompts_of(connection).await?,
        false => (Vec::new(), false),
    };
    Ok(ServerListing {
        tools,
        more_tools,
        prompts,
        more_prompts,
        resources: has.resources.is_some(),
    })
}

pub(super) fn page(cursor: Option<String>) -> PaginatedRequestParams {
    PaginatedRequestParams::default().with_cursor(cursor)
}

/// The pages of a list so far.
pub(super) struct Pages<T> {
    all: Vec<T>,
    seen: usize,
    bytes: usize,
}

impl<T: Serialize> Pages<T> {
    pub fn empty() -> Self {
        Self {
            all: Vec::new(),
            seen: 0,
            bytes: 0,
        }
    }

    /// Adds a page. Returns whether to read a next page, if there is one.
    pub fn takes(&mut self, page: Vec<T>) -> bool {
        self.seen += page.len().max(1);
        let sizes = page.iter().map(size);
        self.bytes = sizes.fold(self.bytes, usize::saturating_add);
        self.all.extend(page);
        self.seen < LISTED && self.bytes < LISTING
    }

    /// The entries, and whether the server lists more.
    pub fn done(mut self, has_next: bool) -> (Vec<T>, bool) {
        let more = has_next || self.all.len() > LISTED;
        self.all.truncate(LISTED);
        (self.all, more)
    }
}

/// The length of a value as JSON, in bytes.
fn size(value: &impl Serialize) -> usize {
    serde_json::to_vec(value).map_or(usize::MAX, |json| json.len())
}

/// The tools, and whether the server lists more.
pub(super) async fn tools_of(connection: &Connection) -> Result<(Vec<Definition>, bool), String> {
    let (mut pages, mut cursor) = (Pages::empty(), None);
    loop {
        let page = connection.running.list_tools(Some(page(cursor))).await;
        let page = page.map_err(|error| format!("its tools cannot be listed: {}", error_text(&error)))?;
        cursor = page.next_cursor;
        if !pages.takes(page.tools) || cursor.is_none() {
            return Ok(pages.done(cursor.is_some()));
        }
    }
}

/// The prompts, and whether the server lists more.
async fn prompts_of(connection: &Connection) -> Result<(Vec<Prompt>, bool), String> {
    let (mut pages, mut cursor) = (Pages::empty(), None);
    loop {
        let page = connection.running.list_prompts(Some(page(cursor))).await;
        let page = page.map_err(|error| format!("its prompts cannot be listed: {}", error_text(&error)))?;
        cursor = page.next_cursor;
        if !pages.takes(page.prompts) || cursor.is_none() {
            return Ok(pages.done(cursor.is_some()));
        }
    }
}

/// The selection from a server's list.
#[derive(Default)]
struct Kept {
    /// The length in bytes of the definitions that are kept so far.
    bytes: usize,
    /// For each tool or prompt that is left out, the reason.
    left_out: Vec<String>,
}

impl Kept {
    /// Whether to keep a tool or prompt with this name, whose definition is `bytes` long.
    fn takes(&mut self, what: &str, name: &str, bytes: usize) -> bool {
        let shown = shortened(name, 80);
        if name.is_empty() || name.len() > 200 || name.chars().any(char::is_control) {
            let why = format!("a {what} was left out: `{}` is not a valid name", shown.escape_debug());
            self.left_out.push(why);
        } else if bytes > DEFINITION {
            self.left_out.push(format!(
                "the {what} `{shown}` was left out: its definition is too large ({bytes} bytes; the limit is {DEFINITION})"
            ));
        } else if self.bytes + bytes > DEFINITIONS {
            self.left_out.push(format!(
                "the {what} `{shown}` was left out: the definitions of this server exceed {DEFINITIONS} bytes"
            ));
        } else {
            return true;
        }
        false
    }

    /// The warnings, as [`named`].
    fn told(self) -> Vec<String> {
        named(self.left_out, " tools or prompts were left out")
    }
}

/// The tools and prompts that the recipe selects, and the reasons why others are left out.
pub(super) fn chosen(
    config: &Config,
    tools: Vec<Definition>,
    prompts: Vec<Prompt>,
) -> (Vec<Definition>, Vec<Prompt>, Vec<String>) {
    let mut list = Kept::default();
    let mut kept: Vec<Definition> = Vec::new();
    for tool in tools {
        if !names::wanted(&tool.name, config.include.as_deref(), &config.exclude) {
            continue;
        }
        // Only these parts of a definition reach a model.
        let schema = size(&tool.input_schema);
        let about = tool.description.as_ref().map_or(0, |about| about.len());
        let bytes = schema.saturating_add(about + tool.name.len());
        if !list.takes("tool", &tool.name, bytes) {
            continue;
        }
        let name = shortened(&tool.name, 80);
        if tool
            .input_schema
            .values()
            .any(|value| is_deeper(value, SCHEMA_DEPTH - 1))
        {
            list.left_out.push(format!(
                "the tool `{name}` was left out: its schema has more than {SCHEMA_DEPTH} arrays and objects within each other"
            ));
        } else if kept
            .iter()
            .any(|one| names::tool_name(&config.name, &one.name) == names::tool_name(&config.name, &tool.name))
        {
            list.left_out
                .push(format!("the tool `{name}` was left out: another one has its name"));
        } else {
            list.bytes += bytes;
            kept.push(tool);
        }
    }
    let mut kept_prompts = Vec::new();
    for prompt in prompts {
        let arguments = size(&prompt.arguments);
        let about = prompt.description.as_ref().map_or(0, |about| about.len());
        let bytes = arguments.saturating_add(about + prompt.name.len());
        if list.takes("prompt", &prompt.name, bytes) {
            list.bytes += bytes;
            kept_prompts.push(prompt);
        }
    }
    (kept, kept_prompts, list.told())
}

/// Whether arrays and objects are nested more than `most` levels deep.
fn is_deeper(value: &Value, most: usize) -> bool {
    match (value, most) {
        (Value::Array(_) | Value::Object(_), 0) => true,
        (Value::Array(items), _) => items.iter().any(|item| is_deeper(item, most - 1)),
        (Value::Object(entries), _) => entries.values().any(|value| is_deeper(value, most - 1)),
        _ => false,
    }
}

pub(super) fn digest(tool: &Definition) -> String {
    sha256_hex(&[&serde_json::to_vec(tool).unwrap_or_default()])
}

/// The message of an error, cut.
pub(super) fn error_text(error: &ServiceError) -> String {
    let text = match error {
        ServiceError::McpError(error) => error.message.to_string(),
        ServiceError::TransportSend(error) => innermost(error.error.as_ref()),
        error => error.to_string(),
    };
    cut(&text, ERROR)
}
