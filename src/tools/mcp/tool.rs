//! A server's tool as a [`Tool`]. The server's own annotations (such as `readOnlyHint`) grant nothing, because they are
//! not trusted.

use super::names::tool_name;
use super::server::{RunningServer, ServerRequest};
use crate::base::access::Access;
use crate::base::call::{ToolEffects, ToolKind, ToolOrigin, ToolSpec};
use crate::base::secret::shortened;
use crate::tools::discovered::DESCRIPTION;
use crate::tools::{PreparedCall, Tool, ToolError};
use crate::workspace::Workspace;
use rmcp::model::{JsonObject, Tool as Definition};
use serde_json::Value;
use std::sync::Arc;

/// One tool of a server.
pub struct McpTool {
    spec: ToolSpec,
    /// The server's own name of the tool.
    name: String,
    server: Arc<RunningServer>,
}

impl McpTool {
    /// From the server's definition.
    pub fn new(server: &Arc<RunningServer>, tool: &Definition) -> Self {
        let name = tool_name(server.name(), &tool.name);
        let mut parameters = Value::Object((*tool.input_schema).clone());
        if let Some(object) = parameters.as_object_mut()
            && !object.contains_key("type")
        {
            object.insert("type".to_owned(), Value::from("object"));
        }
        Self {
            spec: ToolSpec {
                display_name: name.clone(),
                name,
                description: shortened(tool.description.as_deref().unwrap_or_default(), DESCRIPTION),
                kind: ToolKind::Other,
                origin: ToolOrigin::Mcp(server.name().to_owned()),
                parameters,
                effects: ToolEffects::default(),
                aliases: Vec::new(),
            },
            name: tool.name.to_string(),
            server: Arc::clone(server),
        }
    }
}

impl Tool for McpTool {
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    fn prepare(&self, args: &Value, _: &Arc<Workspace>) -> Result<PreparedCall, ToolError> {
        Ok(prepared(&self.server, &self.spec, args, |args| {
            ServerRequest::Tool(self.name.clone(), args)
        }))
    }
}

/// Prepares a call of something that a server offers.
pub fn prepared(
    server: &Arc<RunningServer>,
    spec: &ToolSpec,
    args: &Value,
    ask: impl FnOnce(JsonObject) -> ServerRequest,
) -> PreparedCall {
    let ask = ask(args.as_object().cloned().unwrap_or_default());
    let (server, label) = (Arc::clone(server), spec.name.clone());
    PreparedCall {
        title: format!("{label} {}", shortened(&args.to_string(), 120)),
        access: Access {
            origin: spec.origin.clone(),
            ..Access::none()
        },
        preview: None,
        work: Box::new(move |context| Box::pin(async move { server.ask(ask, &label, &context).await })),
    }
}
