//! A server's prompts, each as a tool `server__prompt_NAME` that gives the prompt's text. Runs no prompt by itself.

use super::content;
use super::names::tool_name;
use super::server::{Ask, Server};
use super::tool::prepared;
use crate::base::call::{Kind, Origin, ToolOutput, ToolSpec};
use crate::base::message::Content;
use crate::tools::discovered::{DESCRIPTION, short};
use crate::tools::{Prepared, Tool, ToolError};
use crate::workspace::Workspace;
use rmcp::model::{GetPromptResult, Prompt, Role};
use serde_json::{Map, Value, json};
use std::sync::Arc;

/// One prompt.
pub struct PromptTool {
    spec: ToolSpec,
    name: String,
    server: Arc<Server>,
}

impl PromptTool {
    /// From the server's own definition.
    pub fn new(server: &Arc<Server>, prompt: &Prompt) -> Self {
        let name = tool_name(server.name(), &format!("prompt_{}", prompt.name));
        let about = prompt
            .description
            .as_deref()
            .or(prompt.title.as_deref())
            .unwrap_or(&prompt.name);
        Self {
            spec: ToolSpec {
                display_name: name.clone(),
                name,
                description: format!(
                    "Gives the text of the prompt `{}`: {}",
                    prompt.name,
                    short(about, DESCRIPTION)
                ),
                kind: Kind::Other,
                origin: Origin::Mcp(server.name().to_owned()),
                parameters: parameters(prompt),
                aliases: Vec::new(),
            },
            name: prompt.name.clone(),
            server: Arc::clone(server),
        }
    }
}

/// All arguments of a prompt are texts.
fn parameters(prompt: &Prompt) -> Value {
    let arguments = prompt.arguments.as_deref().unwrap_or_default();
    let properties: Map<String, Value> = arguments
        .iter()
        .map(|argument| {
            let about = argument.description.as_deref().unwrap_or_default();
            (
                argument.name.clone(),
                json!({ "type": "string", "description": short(about, 1_000) }),
            )
        })
        .collect();
    let required = arguments.iter().filter(|argument| argument.required == Some(true));
    let required: Vec<&str> = required.map(|argument| argument.name.as_str()).collect();
    json!({ "type": "object", "properties": properties, "required": required })
}

/// The messages of a prompt, each with who says it where that is not the user.
pub fn output(name: &str, result: GetPromptResult) -> ToolOutput {
    let parts = result.messages.into_iter().map(|message| {
        let part = content::block(message.content);
        match (part, message.role) {
            (Content::Text { text }, Role::Assistant) => Content::text(format!("assistant: {text}")),
            (part, _) => part,
        }
    });
    content::made(name, parts.collect(), false)
}

impl Tool for PromptTool {
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    fn prepare(&self, args: &Value, _: &Arc<Workspace>) -> Result<Prepared, ToolError> {
        Ok(prepared(&self.server, &self.spec, args, |args| {
            Ask::Prompt(self.name.clone(), args)
        }))
    }
}
