//! A built-in tool as data: its description, its other names and one function.

use super::args::Args;
use super::{CallWork, PreparedCall, Tool, ToolContext, ToolError, results};
use crate::base::call::{ToolEffects, ToolKind, ToolOrigin, ToolOutput, ToolSpec};
use crate::workspace::Workspace;
use serde_json::{Map, Value};
use std::sync::Arc;

type Prepare = fn(&Args<'_>, &Arc<Workspace>) -> Result<PreparedCall, ToolError>;

/// Rewrites arguments in an older form to the current one.
type Modernise = fn(&mut Map<String, Value>) -> Result<(), ToolError>;

/// A built-in tool.
pub struct Builtin {
    spec: ToolSpec,
    other_names: OtherNames,
    prepare: Prepare,
}

/// The names of a tool (for models, for people, and older ones) and what it does.
pub struct ToolFacts {
    pub name: &'static str,
    pub display: &'static str,
    pub aliases: &'static [&'static str],
    pub kind: ToolKind,
    pub effects: ToolEffects,
    pub other_names: OtherNames,
}

/// What else a tool and its arguments are called, here in older versions and in other programs. None of it is declared.
#[derive(Clone, Copy, Default)]
pub struct OtherNames {
    /// Older names of arguments, each with the current one.
    pub renamed: &'static [(&'static str, &'static str)],
    /// For arguments whose older form differs in more than the name.
    pub modernise: Option<Modernise>,
    /// What other agents call the tool, in lower case. For messages only: such a name is no alias.
    pub agents: &'static [&'static str],
    /// What `tools.core` and `tools.exclude` of a `settings.json` call it, besides its name and aliases.
    pub settings: &'static [&'static str],
    /// Programs whose job it does.
    pub programs: &'static [&'static str],
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
            other_names: facts.other_names,
            prepare,
        }
    }
}

impl Tool for Builtin {
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    fn other_names(&self) -> OtherNames {
        self.other_names
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
