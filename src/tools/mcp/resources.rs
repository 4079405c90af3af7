//! The tools `list_mcp_resources` and `read_mcp_resource`, offered if a server has resources.

use super::limits::{LINE, LISTED};
use super::server::{RunningServer, ServerRequest, Servers};
use crate::base::access::Access;
use crate::base::call::{Offered, ToolEffects, ToolKind, ToolOrigin, ToolOutput, ToolSpec};
use crate::base::secret::shortened;
use crate::tools::args::invalid;
use crate::tools::builtin::OtherNames;
use crate::tools::{PreparedCall, Tool, ToolContext, ToolError, schema};
use crate::workspace::Workspace;
use serde_json::Value;
use std::sync::Arc;

/// Both tools, if a server has resources.
pub fn tools(servers: &Servers) -> Vec<Arc<dyn Tool>> {
    if !servers.all().iter().any(|server| server.has_resources()) {
        return Vec::new();
    }
    vec![
        Arc::new(List::new(servers.clone())),
        Arc::new(Read::new(servers.clone())),
    ]
}

/// The declarations of both tools, which policies know without a server, and their other names.
pub fn known() -> [(ToolSpec, OtherNames); 2] {
    let named = |settings: &'static [&'static str]| OtherNames {
        renamed: &[("serverName", "server")],
        settings,
        ..OtherNames::default()
    };
    [
        (list_spec(), named(&["ListMcpResourcesTool"])),
        (read_spec(), named(&["ReadMcpResourceTool"])),
    ]
}

fn list_spec() -> ToolSpec {
    let parameters = schema::object([("server", schema::string("Only the resources of this server."))], &[]);
    let about = "Lists the resources of the MCP servers: server, URI and name of each.";
    let effects = ToolEffects {
        sends_arguments: false,
        offered: Offered::WithResources,
        ..ToolEffects::default()
    };
    spec("list_mcp_resources", "ListMcpResources", about, parameters, effects)
}

fn read_spec() -> ToolSpec {
    let properties = [
        (
            "server",
            schema::string("The server, as list_mcp_resources names it. May be left out when there is only one."),
        ),
        ("uri", schema::string("The URI, as list_mcp_resources names it.")),
    ];
    let about = "Reads one resource of an MCP server.";
    let parameters = schema::object(properties, &["uri"]);
    let effects = ToolEffects {
        offered: Offered::WithResources,
        ..ToolEffects::default()
    };
    spec("read_mcp_resource", "ReadMcpResource", about, parameters, effects)
}

fn spec(name: &str, display_name: &str, description: &str, parameters: Value, effects: ToolEffects) -> ToolSpec {
    ToolSpec {
        name: name.to_owned(),
        display_name: display_name.to_owned(),
        description: description.to_owned(),
        kind: ToolKind::Read,
        origin: ToolOrigin::Builtin,
        parameters,
        aliases: Vec::new(),
        effects,
    }
}

struct List {
    spec: ToolSpec,
    servers: Servers,
}

impl List {
    fn new(servers: Servers) -> Self {
        Self {
            spec: list_spec(),
            servers,
        }
    }
}

struct Read {
    spec: ToolSpec,
    servers: Servers,
}

impl Read {
    fn new(servers: Servers) -> Self {
        Self {
            spec: read_spec(),
            servers,
        }
    }
}

/// The servers that a call refers to.
fn chosen(servers: &Servers, args: &Value) -> Result<Vec<Arc<RunningServer>>, ToolError> {
    let with: Vec<Arc<RunningServer>> = servers
        .all()
        .iter()
        .filter(|server| server.has_resources())
        .cloned()
        .collect();
    let Some(name) = args.get("server").and_then(Value::as_str) else {
        return Ok(with);
    };
    match with.iter().find(|server| server.name() == name) {
        Some(server) => Ok(vec![Arc::clone(server)]),
        None => {
            let names: Vec<&str> = with.iter().map(|server| server.name()).collect();
            let message = format!("no server `{name}` has resources; these have: {}", names.join(", "));
            Err(ToolError::model("mcp_resource_not_found", message))
        }
    }
}

impl Tool for List {
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    fn prepare(&self, args: &Value, _: &Arc<Workspace>) -> Result<PreparedCall, ToolError> {
        let servers = chosen(&self.servers, args)?;
        Ok(PreparedCall {
            title: "list MCP resources".to_owned(),
            access: Access::none(),
            preview: None,
            work: Box::new(move |context| Box::pin(list(servers, context))),
        })
    }
}

async fn list(servers: Vec<Arc<RunningServer>>, context: ToolContext) -> Result<ToolOutput, ToolError> {
    let mut text = String::new();
    let mut push = |line: &str| {
        text.push_str(shortened(&line.replace('\n', " "), LINE).trim_end());
        text.push('\n');
    };
    let mut count = 0;
    let mut failed = Vec::new();
    for server in &servers {
        let (resources, more) = match server.resources(&context).await {
            Ok(listed) => listed,
            Err(error) => {
                failed.push((server.name(), error));
                continue;
            }
        };
        for resource in resources {
            let about = resource.description.or(resource.mime_type).unwrap_or_default();
            push(&format!(
                "{}: {} ({}) {about}",
                server.name(),
                resource.uri,
                resource.name
            ));
            count += 1;
        }
        if more {
            push(&format!(
                "[{}: its list goes on; only the first {LISTED} resources or pages were read]",
                server.name()
            ));
        }
    }
    if failed.len() == servers.len()
        && let Some((_, error)) = failed.pop()
    {
        return Err(error);
    }
    if count == 0 {
        push("no resources");
    }
    for (name, error) in failed {
        push(&format!("[{name}: its resources cannot be listed: {error}]"));
    }
    Ok(ToolOutput::text(text, format!("{count} resources")))
}

impl Tool for Read {
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    fn prepare(&self, args: &Value, _: &Arc<Workspace>) -> Result<PreparedCall, ToolError> {
        let uri = args.get("uri").and_then(Value::as_str).unwrap_or_default().to_owned();
        if uri.trim().is_empty() {
            return Err(invalid("`uri` must not be empty: list_mcp_resources shows the URIs"));
        }
        let servers = chosen(&self.servers, args)?;
        let [server] = <[Arc<RunningServer>; 1]>::try_from(servers).map_err(|_| {
            ToolError::model(
                "invalid_tool_params",
                "several servers have resources: name one in `server`",
            )
        })?;
        Ok(PreparedCall {
            title: format!("read {uri} of {}", server.name()),
            access: Access::none(),
            preview: None,
            work: Box::new(move |context| {
                Box::pin(async move { server.ask(ServerRequest::Resource(uri.clone()), &uri, &context).await })
            }),
        })
    }
}
