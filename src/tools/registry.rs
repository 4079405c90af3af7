//! The tools of a run by name; finds a tool and checks arguments against its schema.

use super::args;
use super::schema::{Checker, declared};
use super::{Tool, ToolError};
use crate::base::call::{Offered, ToolOrigin, ToolSpec};
use crate::base::secret::shortened;
use serde_json::{Map, Value};
use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

/// Accepted for every tool but not declared to models; the scheduler uses it.
const WAIT: &str = "wait_for_previous";

/// The tools of a run.
#[derive(Clone, Default)]
pub struct Registry {
    tools: Vec<Arc<Entry>>,
    /// Names and aliases.
    names: HashMap<String, usize>,
    /// Tools that can be called but are not declared to the model.
    undeclared: BTreeSet<String>,
}

struct Entry {
    tool: Arc<dyn Tool>,
    checker: Checker,
}

/// A name that two tools claim.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the tool name `{name}` is taken: {} has it already, {} offers it again", origin(.has), origin(.offers))]
pub struct Conflict {
    pub name: String,
    pub has: ToolOrigin,
    pub offers: ToolOrigin,
}

fn origin(origin: &ToolOrigin) -> String {
    match origin {
        ToolOrigin::Builtin => "a built-in tool".to_owned(),
        ToolOrigin::Discovered => "a discovered tool".to_owned(),
        ToolOrigin::Mcp(server) => format!("the MCP server `{server}`"),
    }
}

/// The result of a lookup.
#[derive(Clone, Copy)]
pub struct FoundTool<'a> {
    pub tool: &'a Arc<dyn Tool>,
    entry: &'a Entry,
}

/// Arguments that match a tool's schema.
#[derive(Clone, Debug, PartialEq)]
pub struct Accepted {
    /// The arguments under their current names, without `wait_for_previous`.
    pub args: Value,
    /// Whether the call waits for earlier calls of the reply.
    pub wait: bool,
}

impl Registry {
    /// The tools that need only the tree.
    ///
    /// # Errors
    /// Two of them claim the same name.
    pub fn builtin() -> Result<Self, Conflict> {
        let mut registry = Self::default();
        for tool in super::builtins() {
            registry.add(tool)?;
        }
        Ok(registry)
    }

    /// Adds a tool.
    ///
    /// # Errors
    /// Its name or an alias is taken; then nothing is added.
    pub fn add(&mut self, tool: Arc<dyn Tool>) -> Result<(), Conflict> {
        let spec = tool.spec();
        let names: Vec<String> = std::iter::once(&spec.name).chain(&spec.aliases).cloned().collect();
        for name in &names {
            if let Some(found) = self.find(name) {
                return Err(Conflict {
                    name: name.clone(),
                    has: found.tool.spec().origin.clone(),
                    offers: spec.origin.clone(),
                });
            }
        }
        for name in names {
            self.names.insert(name, self.tools.len());
        }
        self.tools.push(Arc::new(Entry {
            tool,
            checker: Checker::default(),
        }));
        Ok(())
    }

    /// Finds a tool by name or alias.
    pub fn find(&self, name: &str) -> Option<FoundTool<'_>> {
        let entry = self.names.get(name).and_then(|n| self.tools.get(*n))?;
        Some(FoundTool {
            tool: &entry.tool,
            entry,
        })
    }

    /// The `tool_not_registered` error, with similar names.
    pub fn unknown(&self, name: &str) -> ToolError {
        let wanted = name.to_lowercase();
        let mut close: Vec<(f64, &str)> = self
            .names
            .iter()
            .filter_map(|(known, n)| {
                let score = strsim::jaro_winkler(&wanted, &known.to_lowercase());
                let tool = self.tools.get(*n)?;
                (score > 0.75).then_some((score, tool.tool.spec().name.as_str()))
            })
            .collect();
        close.sort_by(|a, b| b.0.total_cmp(&a.0).then_with(|| a.1.cmp(b.1)));
        let mut names: Vec<&str> = Vec::new();
        for (_, name) in close {
            if !names.contains(&name) && names.len() < 3 {
                names.push(name);
            }
        }
        let absent = ABSENT.iter().find(|(of, _)| match of.strip_suffix('*') {
            Some(start) => wanted.starts_with(start),
            None => wanted == *of,
        });
        let absent = lacking(&wanted).or_else(|| absent.map(|(_, instead)| *instead));
        let ours = super::field_names::meant(name).filter(|ours| self.find(ours).is_some());
        let hint = match (absent, ours, names.as_slice()) {
            (Some(instead), ..) => instead.to_owned(),
            (None, Some(ours), _) => format!("did you mean {ours}?"),
            (None, None, []) => {
                let all: Vec<&str> = self
                    .specs()
                    .into_iter()
                    .map(|spec| spec.name.as_str())
                    .take(40)
                    .collect();
                format!("the tools are {}", all.join(", "))
            }
            (None, None, names) => format!("did you mean {}?", names.join(" or ")),
        };
        let name = shortened(name, 100);
        ToolError::model("tool_not_registered", format!("there is no tool `{name}`; {hint}"))
    }

    /// All tools: built-in ones in the order in which they were added, because weak models prefer the first; then
    /// others by name.
    pub fn specs(&self) -> Vec<&ToolSpec> {
        let mut specs: Vec<&ToolSpec> = self.tools.iter().map(|entry| entry.tool.spec()).collect();
        // The sort is stable, so built-in tools keep their order.
        let place = |spec: &ToolSpec| match spec.origin {
            ToolOrigin::Builtin => None,
            ToolOrigin::Discovered | ToolOrigin::Mcp(_) => Some((spec.display_name.clone(), spec.name.clone())),
        };
        specs.sort_by_cached_key(|spec| place(spec));
        specs
    }

    /// The declarations that the model receives.
    pub fn declared(&self) -> Vec<ToolSpec> {
        let told = self
            .specs()
            .into_iter()
            .filter(|spec| !self.undeclared.contains(&spec.name));
        told.map(declared).collect()
    }

    /// The same tools, but only those that `wanted` selects are declared to the model. Others can still be called, and
    /// are ruled on as usual.
    #[must_use]
    pub fn declaring(self, wanted: impl Fn(&ToolSpec) -> bool) -> Self {
        let undeclared = self.specs().into_iter().filter(|spec| !wanted(spec));
        let undeclared = undeclared.map(|spec| spec.name.clone()).collect();
        Self { undeclared, ..self }
    }

    /// The tools that `include` selects (all if `None`) and `exclude` does not, and the patterns that match no tool. A
    /// pattern is a name, an alias, `*`, a name with a trailing `*`, `kind:KIND` or `origin:ORIGIN`.
    pub fn filtered(&self, include: Option<&[String]>, exclude: &[String]) -> (Self, Vec<String>) {
        let unmatched = include
            .into_iter()
            .flatten()
            .chain(exclude)
            .filter(|pattern| !self.tools.iter().any(|entry| names(pattern, entry.tool.spec())))
            .cloned()
            .collect();
        let mut kept = Self::default();
        for entry in &self.tools {
            let spec = entry.tool.spec();
            let wanted = include.is_none_or(|all| all.iter().any(|pattern| names(pattern, spec)));
            if wanted && !exclude.iter().any(|pattern| names(pattern, spec)) {
                for name in std::iter::once(&spec.name).chain(&spec.aliases) {
                    kept.names.insert(name.clone(), kept.tools.len());
                }
                kept.tools.push(Arc::clone(entry));
            }
        }
        (kept, unmatched)
    }
}

/// Why a run lacks one of the built-in tools, if it is offered only sometimes.
fn lacking(name: &str) -> Option<&'static str> {
    match super::builtin_called(name)?.effects.offered {
        Offered::WithSearch => Some("this run has no web search"),
        Offered::WithResources => Some("no MCP server of this run has resources"),
        Offered::Always | Offered::WithCommands => None,
    }
}

/// Tools that models know from elsewhere and that a run lacks, with what to use instead. Used only if no tool has the
/// name.
const ABSENT: [(&str, &str); 9] = [
    (
        "ask_user",
        "nobody is there to answer: decide yourself, and say in the final answer what you assumed",
    ),
    ("enter_plan_mode", NO_MODES),
    ("exit_plan_mode", NO_MODES),
    (
        "activate_skill",
        "the skills of this task are listed in the instructions: read the file of one with read_file",
    ),
    ("invoke_agent", "there are no other agents: do the work with the tools"),
    ("complete_task", "the task ends with a final answer that calls no tool"),
    ("update_topic", NO_NEED),
    ("get_internal_docs", NO_NEED),
    (
        "tracker_*",
        "there is no tracker: keep the open points in mind and go on",
    ),
];
const NO_MODES: &str = "there are no modes: each call is ruled on separately, so go on";
const NO_NEED: &str = "it is not needed here: continue with the task";

fn names(pattern: &str, spec: &ToolSpec) -> bool {
    if let Some(kind) = pattern.strip_prefix("kind:") {
        return kind == spec.kind.as_str();
    }
    if let Some(origin) = pattern.strip_prefix("origin:") {
        return match &spec.origin {
            ToolOrigin::Builtin => origin == "builtin",
            ToolOrigin::Discovered => origin == "discovered",
            ToolOrigin::Mcp(server) => origin == "mcp" || origin.strip_prefix("mcp:") == Some(server),
        };
    }
    let mut known = std::iter::once(&spec.name).chain(&spec.aliases);
    match pattern.strip_suffix('*') {
        Some(start) => known.any(|name| name.starts_with(start)),
        None => known.any(|name| name == pattern),
    }
}

impl FoundTool<'_> {
    /// Renames arguments to their current names and checks them against the schema.
    ///
    /// # Errors
    /// [`ToolError::Model`] (`invalid_tool_params`) if the arguments are no object or do not match the schema, or
    /// `wait_for_previous` is no boolean.
    pub fn accept(&self, args: &Value) -> Result<Accepted, ToolError> {
        let spec = self.tool.spec();
        let empty = Map::new();
        let given = match args {
            Value::Object(given) => given,
            // Some models send `null` for a tool without parameters.
            Value::Null => &empty,
            _ => {
                return Err(args::invalid(format!(
                    "{}: the arguments must be a JSON object",
                    spec.name
                )));
            }
        };
        let mut given = given.clone();
        let own = spec.parameters.pointer("/properties/wait_for_previous").is_some();
        let wait = match given.get(WAIT) {
            Some(value) if !own => {
                let wait = value
                    .as_bool()
                    .ok_or_else(|| args::invalid(format!("{}: `{WAIT}` must be a boolean", spec.name)))?;
                given.shift_remove(WAIT);
                wait
            }
            _ => false,
        };
        let current = match spec.origin {
            ToolOrigin::Builtin => args::current(spec, &given)?,
            ToolOrigin::Discovered | ToolOrigin::Mcp(_) => given,
        };
        let args = Value::Object(current);
        self.entry.checker.check(spec, &args)?;
        Ok(Accepted { args, wait })
    }
}

#[cfg(test)]
mod tests;
