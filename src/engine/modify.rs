//! Applies a `modify` rule: an external program rewrites the proposed file content, or the arguments as JSON.

use super::deps::Deps;
use super::preconditions;
use super::run_error::RunError;
use crate::base::ruling::{Decision, Ruling};
use crate::base::secret::Redactor;
use crate::process::sides::Side;
use crate::process::{self, Confinement, Invocation, Spawn};
use crate::tools::{PreparedCall, Registry, Tool};
use crate::workspace::Workspace;
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;
use tokio_util::sync::CancellationToken;

/// Time limit for a rewriting program.
const TIME: Duration = Duration::from_secs(60);
/// Upper limit in bytes for its output.
const SIZE: usize = 8 << 20;

/// Environment of a rewriting program.
pub struct Pipe<'a> {
    pub workspace: &'a Workspace,
    pub confinement: Confinement,
    pub redactor: &'a Arc<Redactor>,
    pub cancel: &'a CancellationToken,
}

impl<'a> Pipe<'a> {
    /// Built from the dependencies of the run.
    pub fn of(deps: &'a Deps) -> Result<Self, RunError> {
        Ok(Self {
            workspace: &deps.workspace,
            confinement: preconditions::confinement(deps)?.of_side(Side::Author),
            redactor: &deps.redactor,
            cancel: &deps.interrupt.token,
        })
    }

    /// The arguments after the rule's program has rewritten them.
    ///
    /// For a tool that writes a file, the program receives the whole proposed content and prints the new content; the
    /// call then writes the whole file. For any other tool, the program receives and prints the arguments as JSON.
    pub async fn rewrite(
        &self,
        tool: &Arc<dyn Tool>,
        args: &Value,
        prepared: &PreparedCall,
        ruling: &Ruling,
    ) -> Result<Value, String> {
        let program = ruling.pipe.as_deref().ok_or("the rule names no program")?;
        let proposed = prepared.preview.as_ref().and_then(|preview| preview.new.clone());
        let is_edit = tool.spec().kind == crate::base::call::ToolKind::Edit;
        let input = match &proposed {
            Some(content) if is_edit => content.clone(),
            _ if is_edit => return Err("the proposed content cannot be shown to the program".to_owned()),
            _ => args.to_string(),
        };
        let output = self.run(program, &input).await?;
        if !is_edit {
            return serde_json::from_str(&output).map_err(|error| format!("the program did not print JSON: {error}"));
        }
        if output == input {
            return Ok(args.clone());
        }
        let path = args.get("file_path").cloned().ok_or("the call names no file")?;
        Ok(json!({ "file_path": path, "content": output }))
    }

    async fn run(&self, program: &str, input: &str) -> Result<String, String> {
        let spawn = Spawn {
            program: Invocation::Shell(format!("{{ {program}\n}} 2>/dev/null")),
            dir: self.workspace.root().to_owned(),
            env: Vec::new(),
            stdin: Some(input.as_bytes().to_vec()),
            timeout: TIME,
            cancel: self.cancel.child_token(),
            on_output: None,
            keep: None,
            shown: SIZE,
            redactor: Arc::clone(self.redactor),
            writes: crate::base::grant::Writes::Tree,
            judge: None,
        };
        let finished = process::run(spawn, &self.confinement)
            .await
            .map_err(|error| error.to_string())?;
        if finished.exit.code != Some(0) {
            return Err(format!("`{program}` ended with {}", ended(finished.exit.code)));
        }
        if finished.stdout.cut {
            return Err(format!("`{program}` printed more than {SIZE} bytes"));
        }
        Ok(finished.stdout.text)
    }
}

fn ended(code: Option<i32>) -> String {
    code.map_or_else(|| "a signal".to_owned(), |code| format!("exit code {code}"))
}

/// The tool that prepares a rewritten call: `write_file` for an edit that became a whole file.
pub fn preparer(tools: &Registry, tool: &Arc<dyn Tool>, args: &Value) -> Arc<dyn Tool> {
    let whole = args.get("content").is_some() && tool.spec().name != "write_file";
    match tools.find("write_file") {
        Some(found) if whole => Arc::clone(found.tool),
        _ => Arc::clone(tool),
    }
}

/// If the rewriting fails, the call is denied.
pub fn failed(ruling: Ruling, why: &str) -> Ruling {
    Ruling {
        decision: Decision::Deny,
        code: "modify_failed".to_owned(),
        reason: format!("the rewriting program failed: {why}"),
        fix: "change the content so that the program accepts it, or fix the rule".to_owned(),
        ..ruling
    }
}
