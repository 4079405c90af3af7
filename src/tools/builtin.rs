//! A built-in tool as data: its description and one function.

use super::args::Args;
use super::{CallWork, PreparedCall, Tool, ToolContext, ToolError, results};
use crate::base::call::{ToolEffects, ToolKind, ToolOrigin, ToolOutput, ToolSpec};
use crate::workspace::Workspace;
use serde_json::Value;
use std::sync::Arc;

type Prepare = fn(&Args<'_>, &Arc<Workspace>) -> Result<PreparedCall, ToolError>;

/// A built-in tool.
pub struct Builtin {
    spec: ToolSpec,
    prepare: Prepare,
}

/// The names of a tool (for models, for people, and older ones) and what it does.
pub struct ToolFacts {
    pub name: &'static str,
    pub display: &'static str,
    pub aliases: &'static [&'static str],
    pub kind: ToolKind,
    pub effects: ToolEffects,
}

impl Builtin {
    /// Builds a tool from its facts, its description, its parameters (see `schema::object`) and its function.
    pub fn new(facts: &ToolFacts, description: &str, parameters: Value, prepare: Prepare) -> Self {
        Self {
            spec: ToolSpec {
                name: facts.name.to_owned(),
                display_name: facts.display.to_owned(),
                description: description.to_owned(),
                kind: facts.kind,
                origin: ToolOrigin::Builtin,
                parameters,
                aliases: facts.aliases.iter().map(|alias| (*alias).to_owned()).collect(),
                effects: facts.effects,
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
