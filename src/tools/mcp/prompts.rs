//! Offers each prompt of a server as a tool `server__prompt_NAME` that returns the prompt's text, and as the prompt of
//! a step.

use super::content;
use super::limits::PROMPT;
use super::names::tool_name;
use super::server::{RunningServer, ServerRequest};
use super::tool::prepared;
use crate::base::call::{ToolEffects, ToolKind, ToolOrigin, ToolSpec};
use crate::base::content::ToolContent;
use crate::base::secret::shortened;
use crate::tools::discovered::DESCRIPTION;
use crate::tools::{PreparedCall, Tool, ToolError};
use crate::workspace::Workspace;
use rmcp::model::Prompt;
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;
use std::sync::Arc;

/// One prompt as a tool.
pub struct PromptTool {
    spec: ToolSpec,
    name: String,
    server: Arc<RunningServer>,
}

impl PromptTool {
    /// From the server's definition.
    pub fn new(server: &Arc<RunningServer>, prompt: &Prompt) -> Self {
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
                    shortened(about, DESCRIPTION)
                ),
                kind: ToolKind::Other,
                origin: ToolOrigin::Mcp(server.name().to_owned()),
                parameters: parameters(prompt),
                effects: ToolEffects::default(),
                aliases: Vec::new(),
            },
            name: prompt.name.clone(),
            server: Arc::clone(server),
        }
    }
}

/// The schema of a prompt's arguments, which are all strings.
fn parameters(prompt: &Prompt) -> Value {
    let arguments = prompt.arguments.as_deref().unwrap_or_default();
    let properties: Map<String, Value> = arguments
        .iter()
        .map(|argument| {
            let about = argument.description.as_deref().unwrap_or_default();
            (
                argument.name.clone(),
                json!({ "type": "string", "description": shortened(about, 1_000) }),
            )
        })
        .collect();
    let required = arguments.iter().filter(|argument| argument.required == Some(true));
    let required: Vec<&str> = required.map(|argument| argument.name.as_str()).collect();
    json!({ "type": "object", "properties": properties, "required": required })
}

/// Why a prompt that a recipe names is not available.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Missing {
    /// The recipe is wrong: the server has no such prompt, or it takes other arguments.
    #[error("{0}")]
    Wrong(String),
    /// The server failed to return it.
    #[error("{0}")]
    Failed(String),
}

/// A prompt of a server for a step.
///
/// # Errors
/// See [`Missing`]; the size of the prompt is limited.
pub async fn given(
    server: &RunningServer,
    name: &str,
    arguments: &BTreeMap<String, String>,
) -> Result<Vec<ToolContent>, Missing> {
    let listed = server.prompts().iter().find(|prompt| prompt.name == name);
    let Some(prompt) = listed else {
        let known: Vec<&str> = server
            .prompts()
            .iter()
            .map(|prompt| prompt.name.as_str())
            .take(20)
            .collect();
        return Err(Missing::Wrong(match known.is_empty() {
            true => format!("it has no prompt `{name}` and no others"),
            false => format!("it has no prompt `{name}`; it has {}", known.join(", ")),
        }));
    };
    let declared = prompt.arguments.as_deref().unwrap_or_default();
    if let Some(extra) = arguments
        .keys()
        .find(|key| declared.iter().all(|one| one.name != **key))
    {
        let known: Vec<&str> = declared.iter().map(|one| one.name.as_str()).collect();
        let takes = if known.is_empty() {
            "none".to_owned()
        } else {
            known.join(", ")
        };
        return Err(Missing::Wrong(format!(
            "its prompt `{name}` has no argument `{extra}`; it accepts {takes}"
        )));
    }
    let required = declared.iter().filter(|one| one.required == Some(true));
    if let Some(lacking) = required.into_iter().find(|one| !arguments.contains_key(&one.name)) {
        return Err(Missing::Wrong(format!(
            "its prompt `{name}` needs the argument `{}`",
            lacking.name
        )));
    }
    let values = arguments
        .iter()
        .map(|(name, value)| (name.clone(), Value::from(value.as_str())));
    let result = server.prompt(name, values.collect()).await;
    let result = result.map_err(|why| Missing::Failed(format!("its prompt `{name}`: {why}")))?;
    let content = content::prompt_parts(result);
    let size = |one: &ToolContent| match one {
        ToolContent::Text { text } => text.len(),
        ToolContent::Media(media) => media.data.len(),
    };
    let bytes: usize = content.iter().map(size).sum();
    if content.is_empty() || bytes > PROMPT {
        let why = if content.is_empty() {
            "nothing".to_owned()
        } else {
            format!("{bytes} bytes; the limit is {PROMPT}")
        };
        return Err(Missing::Failed(format!("its prompt `{name}` contains {why}")));
    }
    Ok(content)
}

impl Tool for PromptTool {
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    fn prepare(&self, args: &Value, _: &Arc<Workspace>) -> Result<PreparedCall, ToolError> {
        Ok(prepared(&self.server, &self.spec, args, |args| {
            ServerRequest::Prompt(self.name.clone(), args)
        }))
    }
}
