//! Tools that a discovery command of the recipe lists and a call command runs.

use super::schema_dialect::plain;
use super::words::words;
use super::{PreparedCall, Tool, ToolContext, ToolError};
use crate::base::access::Access;
use crate::base::call::{ToolEffects, ToolKind, ToolOrigin, ToolOutput, ToolSpec};
use crate::base::secret::{Redactor, shortened};
use crate::process::{self, Confinement, Finished, Invocation, Spawn};
use crate::workspace::Workspace;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio_util::sync::CancellationToken;

/// Upper limit in bytes for one output of either command.
const MOST: usize = 10 << 20;
/// Upper limit for the tools that one command may list.
const MOST_TOOLS: usize = 1_000;
/// Upper limit in characters for a description.
pub(super) const DESCRIPTION: usize = 8_000;
/// Time limit of a discovery.
const TIME: Duration = Duration::from_secs(60);

/// The two command lines, as the recipe has them.
#[derive(Clone, Debug)]
pub struct Commands {
    pub list: String,
    pub call: String,
}

/// The dependencies of a discovery.
pub struct DiscoveryContext<'a> {
    pub workspace: &'a Path,
    pub confinement: &'a Confinement,
    pub redactor: &'a Arc<Redactor>,
    pub cancel: &'a CancellationToken,
    pub deadline: Instant,
}

/// The tools that were found, and warnings about them.
#[derive(Default)]
pub struct Discovered {
    pub tools: Vec<DiscoveredTool>,
    pub warnings: Vec<String>,
}

/// Runs the discovery command and parses its output.
///
/// # Errors
/// A sentence for the user; the run must not begin.
pub async fn discover(commands: &Commands, with: &DiscoveryContext<'_>) -> Result<Discovered, String> {
    let list = words(&commands.list).map_err(|why| format!("the discovery command `{}`: {why}", commands.list))?;
    let call = words(&commands.call).map_err(|why| format!("the call command `{}`: {why}", commands.call))?;
    let failed = |why: String| format!("tool discovery failed: `{}` {why}", commands.list);
    let left = with.deadline.saturating_duration_since(Instant::now()).min(TIME);
    let spawn = Spawn {
        program: Invocation::Argv(list),
        dir: with.workspace.to_path_buf(),
        env: Vec::new(),
        stdin: None,
        timeout: left,
        cancel: with.cancel.clone(),
        on_output: None,
        keep: None,
        shown: MOST,
        redactor: Arc::clone(with.redactor),
        // Listing tools changes nothing; the changes of their calls are ruled on separately.
        writes: crate::base::grant::Writes::Nothing,
        judge: None,
    };
    let finished = process::run(spawn, with.confinement).await;
    let finished = finished.map_err(|error| failed(format!("was not run: {error}")))?;
    if finished.exit.timed_out {
        return Err(failed(format!("did not end within {} s", left.as_secs())));
    }
    if finished.exit.code != Some(0) {
        return Err(failed(format!(
            "ended with {}{}",
            finished.exit.ending(),
            said(&finished)
        )));
    }
    if finished.stdout.cut || finished.stderr.cut {
        return Err(failed("printed more than 10 MB".to_owned()));
    }
    let (declared, warnings) =
        declarations(&finished.stdout.text).map_err(|why| failed(format!("did not print a list of tools: {why}")))?;
    let call: Arc<[String]> = call.into();
    let root = with.confinement.readable.clone();
    let tools = declared
        .into_iter()
        .map(|declared| DiscoveredTool::new(declared, &call, &root));
    Ok(Discovered {
        tools: tools.collect(),
        warnings,
    })
}

fn said(finished: &Finished) -> String {
    let text = match finished.stderr.text.trim() {
        "" => finished.stdout.text.trim(),
        text => text,
    };
    let last: Vec<&str> = text.lines().rev().take(5).collect();
    let last: Vec<&str> = last.into_iter().rev().collect();
    match last.is_empty() {
        true => String::new(),
        false => format!(": {}", shortened(&last.join(" / "), 600)),
    }
}

/// A listed tool.
#[derive(Clone, Debug, PartialEq)]
struct Declared {
    name: String,
    description: String,
    parameters: Value,
}

/// Parses the output: an array of declarations or of `{functionDeclarations: […]}`, or one such object.
fn declarations(text: &str) -> Result<(Vec<Declared>, Vec<String>), String> {
    let value: Value = serde_json::from_str(text.trim_start_matches('\u{feff}')).map_err(|error| error.to_string())?;
    let items = match value {
        Value::Array(items) => items,
        object @ Value::Object(_) => vec![object],
        _ => return Err("a JSON array was expected".to_owned()),
    };
    let mut found = Vec::new();
    let mut warnings = Vec::new();
    let mut names = BTreeSet::new();
    for item in items {
        for one in flattened(item)? {
            let Some(declared) = declared(&one)? else {
                warnings.push(format!(
                    "a discovered tool without a name was left out: {}",
                    shortened(&one.to_string(), 80)
                ));
                continue;
            };
            if !names.insert(declared.name.clone()) {
                warnings.push(format!(
                    "the discovered tool `{}` is listed twice; the first one is used",
                    declared.name
                ));
                continue;
            }
            found.push(declared);
        }
    }
    match found.len() > MOST_TOOLS {
        true => Err(format!("more than {MOST_TOOLS} tools")),
        false => Ok((found, warnings)),
    }
}

fn flattened(item: Value) -> Result<Vec<Value>, String> {
    let Value::Object(mut object) = item else {
        return Err(format!("{} is not a tool", shortened(&item.to_string(), 80)));
    };
    let nested = ["functionDeclarations", "function_declarations"]
        .iter()
        .find_map(|key| object.shift_remove(*key));
    match nested {
        None => Ok(vec![Value::Object(object)]),
        Some(Value::Array(all)) => Ok(all),
        Some(_) => Err("function declarations must be an array".to_owned()),
    }
}

fn declared(value: &Value) -> Result<Option<Declared>, String> {
    let Some(name) = value
        .get("name")
        .and_then(Value::as_str)
        .filter(|name| !name.is_empty())
    else {
        return Ok(None);
    };
    let legal = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.' | ':');
    let starts = name.starts_with(|c: char| c.is_ascii_alphanumeric() || c == '_');
    if !starts || !name.chars().all(legal) || name.len() > 64 || name.contains("__") {
        return Err(format!(
            "`{}` is not a valid tool name: use at most 64 letters, digits, `-`, `.`, `:` and single `_`",
            shortened(name, 80).escape_debug()
        ));
    }
    let description = value.get("description").and_then(Value::as_str).unwrap_or_default();
    let parameters = ["parametersJsonSchema", "parameters_json_schema", "parameters"]
        .iter()
        .find_map(|key| value.get(key).filter(|schema| !schema.is_null()));
    let parameters = match parameters {
        Some(schema @ Value::Object(_)) => plain(schema.clone()),
        Some(_) => return Err(format!("the parameters of `{name}` are not a schema")),
        None => json!({ "type": "object", "properties": {} }),
    };
    Ok(Some(Declared {
        name: name.to_owned(),
        description: shortened(description, DESCRIPTION),
        parameters,
    }))
}

/// A discovered tool.
pub struct DiscoveredTool {
    spec: ToolSpec,
    /// The name that the call command expects.
    name: String,
    call: Arc<[String]>,
    /// Additional paths that the call command may read.
    readable: Vec<PathBuf>,
}

impl DiscoveredTool {
    fn new(declared: Declared, call: &Arc<[String]>, readable: &[PathBuf]) -> Self {
        let spec = ToolSpec {
            display_name: declared.name.clone(),
            description: declared.description,
            kind: ToolKind::Other,
            origin: ToolOrigin::Discovered,
            parameters: declared.parameters,
            effects: ToolEffects::default(),
            aliases: vec![long_name(&declared.name)],
            name: declared.name.clone(),
        };
        Self {
            spec,
            name: declared.name,
            call: Arc::clone(call),
            readable: readable.to_vec(),
        }
    }

    /// The same tool under its long name only, for when the short name is taken.
    pub fn renamed(mut self) -> Self {
        self.spec.name = long_name(&self.name);
        self.spec.display_name.clone_from(&self.spec.name);
        self.spec.aliases = Vec::new();
        self
    }
}

fn long_name(name: &str) -> String {
    format!("discovered_tool_{name}")
}

impl Tool for DiscoveredTool {
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    fn prepare(&self, args: &Value, workspace: &Arc<Workspace>) -> Result<PreparedCall, ToolError> {
        let mut words = self.call.to_vec();
        words.push(self.name.clone());
        let (name, input) = (self.name.clone(), args.to_string().into_bytes());
        let (dir, readable) = (workspace.root().to_path_buf(), self.readable.clone());
        Ok(PreparedCall {
            title: format!("{name} {}", shortened(&args.to_string(), 120)),
            access: Access {
                origin: ToolOrigin::Discovered,
                ..Access::none()
            },
            preview: None,
            work: Box::new(move |context| Box::pin(call(name, words, input, dir, readable, context))),
        })
    }
}

async fn call(
    name: String,
    words: Vec<String>,
    input: Vec<u8>,
    dir: PathBuf,
    readable: Vec<PathBuf>,
    context: ToolContext,
) -> Result<ToolOutput, ToolError> {
    let scope = &context.scope;
    let mut confinement = scope.confinement()?.clone();
    confinement.readable = readable;
    let spawn = Spawn {
        program: Invocation::Argv(words),
        dir,
        env: Vec::new(),
        stdin: Some(input),
        timeout: context.deadline.saturating_duration_since(Instant::now()),
        cancel: context.cancel.clone(),
        on_output: None,
        keep: None,
        shown: MOST,
        redactor: Arc::clone(&scope.redactor),
        writes: crate::base::grant::Writes::Tree,
        judge: None,
    };
    let failed = |message: String| ToolError::model("discovered_tool_execution_error", message);
    let tell = scope.notices.report_on_drop(&context.call);
    let ran = process::run_reporting_changes(spawn, &confinement, Arc::clone(&tell.found)).await;
    let finished = ran.map_err(|error| match error {
        process::SpawnError::Sandbox(why) => ToolError::Fatal(format!("sandbox: {why}")),
        // The command is the recipe's: nothing that the model does can help.
        error @ process::SpawnError::NotFound { .. } => ToolError::Fatal(format!(
            "the call command of the discovered tools: {error}; install it on this machine"
        )),
        error => failed(format!("{name} was not run: {error}")),
    })?;
    if context.cancel.is_cancelled() {
        return Err(ToolError::model(
            "cancelled",
            "the tool was ended because the run is ending",
        ));
    }
    if finished.exit.timed_out {
        return Err(ToolError::model(
            "timeout",
            format!("{name} took too long and was killed\n{}", report(&finished)),
        ));
    }
    if let Some(failure) = super::command_end::undone_failure(&finished.undone) {
        let message = format!("{name}: {}", failure.message);
        return Ok(ToolOutput {
            undone: finished.undone,
            ..ToolOutput::failure(&failure.kind, message)
        });
    }
    match finished.exit.code {
        Some(0) => Ok(ToolOutput {
            exit: Some(finished.exit.clone()),
            ..ToolOutput::text(finished.stdout.text, format!("{name} answered"))
        }),
        _ => Ok(ToolOutput {
            exit: Some(finished.exit.clone()),
            ..ToolOutput::failure(
                "discovered_tool_execution_error",
                format!("{name} failed\n{}", report(&finished)),
            )
        }),
    }
}

/// The complete output of a failed command.
fn report(finished: &Finished) -> String {
    let shown = |text: &str| match text.trim_end() {
        "" => "(empty)".to_owned(),
        text => text.to_owned(),
    };
    format!(
        "Stdout: {}\nStderr: {}\n{}",
        shown(&finished.stdout.text),
        shown(&finished.stderr.text),
        finished.exit.ending()
    )
}

#[cfg(test)]
mod tests;
