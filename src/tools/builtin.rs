//! A built-in tool as data: its description and one function.

use super::args::Args;
use super::{CallWork, PreparedCall, Tool, ToolContext, ToolError, results};
use crate::base::call::{ToolKind, ToolOrigin, ToolOutput, ToolSpec};
use crate::workspace::Workspace;
use serde_json::Value;
use std::sync::Arc;

type Prepare = fn(&Args<'_>, &Arc<Workspace>) -> Result<PreparedCall, ToolError>;

/// A built-in tool.
pub struct Builtin {
    spec: ToolSpec,
    prepare: Prepare,
}

/// The names of a tool: for people, for models, and older ones (aliases).
pub struct ToolNames {
    pub name: &'static str,
    pub display: &'static str,
    pub aliases: &'static [&'static str],
}

impl Builtin {
    /// Builds a tool from its names, its description, its parameters (see `schema::object`) and its function.
    pub fn new(names: &ToolNames, kind: ToolKind, description: &str, parameters: Value, prepare: Prepare) -> Self {
        Self {
            spec: ToolSpec {
                name: names.name.to_owned(),
                display_name: names.display.to_owned(),
                description: description.to_owned(),
                kind,
                origin: ToolOrigin::Builtin,
                parameters,
                aliases: names.aliases.iter().map(|alias| (*alias).to_owned()).collect(),
            },
            prepare,
        }
    }
}

impl Tool for Builtin {
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    fn prepare(&self, args: &Value, workspace: &Arc<Workspace>) -> Result<PreparedCall, ToolError> {
        (self.prepare)(&Args::of(args)?, workspace)
    }
}

/// Runs blocking file access on its own thread, so that the reads of one wave overlap. A result that is too long for
/// the model is cut and kept (`results::fit`).
pub fn blocking(work: impl FnOnce(&ToolContext) -> Result<ToolOutput, ToolError> + Send + 'static) -> CallWork {
    Box::new(move |context| {
        Box::pin(async move {
            match tokio::task::spawn_blocking(move || results::fit(work(&context)?, &context)).await {
                Ok(done) => done,
                Err(error) => match error.try_into_panic() {
                    Ok(panic) => std::panic::resume_unwind(panic),
                    Err(_) => Err(ToolError::model("cancelled", "the run is ending")),
                },
            }
        })
    })
}
