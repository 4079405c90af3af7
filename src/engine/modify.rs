//! Applies a `modify` rule: an external program rewrites the proposed file content, or the arguments as JSON.

use super::deps::Deps;
use super::preconditions;
use super::run_error::RunError;
use crate::base::call::ToolKind;
use crate::base::grant::{Writes, described};
use crate::base::ruling::{Decision, Ruling};
use crate::base::secret::Redactor;
use crate::process::{self, Confinement, Invocation, Spawn};
use crate::tools::registry::FoundTool;
use crate::tools::{CommandAccessKind, PreparedCall, Registry, Tool, builtin_for};
use crate::workspace::Workspace;
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;
use tokio_util::sync::CancellationToken;

/// Time limit for a rewriting program.
const TIME: Duration = Duration::from_secs(60);
/// What the shell does before the program. If a program in a pipe fails, the output may be incomplete, so the whole pipe
/// must fail (`pipefail`). Only in `cat | head`, where the last program has all that it wants and succeeds, may those
/// before it be ended by `SIGPIPE` (141), and only by that.
const BEFORE: &str = r#"set -o pipefail
exec 2>/dev/null
trap 's=$? p=("${PIPESTATUS[@]}")
if [ "$s" = 141 ] && [ "${#p[@]}" -gt 1 ] && [ "${p[-1]}" = 0 ]; then
  for s in "${p[@]}"; do case $s in 0 | 141) ;; *) exit "$s" ;; esac; done
  exit 0
fi
exit "$s"' EXIT
"#;
/// Upper limit in bytes for its output.
const SIZE: usize = 8 << 20;

/// Why a call was not rewritten.
pub enum NotRewritten {
    /// The denial of the call.
    Denied(Box<Ruling>),
    /// The program could not be run, which says nothing about the call: a sentence.
    NotRun(String),
}

/// Why there is no rewritten call.
enum Failure {
    Program(String),
    NotRun(String),
}

impl From<String> for Failure {
    fn from(why: String) -> Self {
        Self::Program(why)
    }
}

/// Environment of a rewriting program.
pub struct Pipe<'a> {
    pub workspace: &'a Workspace,
    pub confinement: Confinement,
    pub redactor: &'a Arc<Redactor>,
    pub cancel: &'a CancellationToken,
}

impl<'a> Pipe<'a> {
    /// Built from the dependencies of the run.
    ///
    /// # Errors
    /// As for [`preconditions::confinement`].
    pub fn of(deps: &'a Deps) -> Result<Self, RunError> {
        Ok(Self {
            workspace: &deps.workspace,
            confinement: preconditions::confinement(deps)?.clone(),
            redactor: &deps.redactor,
            cancel: &deps.interrupt.token,
        })
    }

    /// The arguments after the rule's program has rewritten them.
    ///
    /// For a tool that writes a file, the program receives the whole proposed content and prints the new content; the
    /// call then writes the whole file. For any other tool, the program receives and prints the arguments as JSON. The
    /// program sees the workspace read-only.
    ///
    /// # Errors
    /// [`NotRewritten::Denied`] if the program, or one of a pipe, failed, or printed nothing for a text, or what it printed contains a secret, which could only be recorded
    /// redacted; [`NotRewritten::NotRun`] if its private copy of the home cannot be made or removed, or it cannot be
    /// started.
    pub async fn rewrite(
        &self,
        tool: &Arc<dyn Tool>,
        args: &Value,
        prepared: &PreparedCall,
        ruling: &Ruling,
    ) -> Result<Value, NotRewritten> {
        let rewritten = self.rewritten(tool, args, prepared, ruling).await;
        let rewritten = rewritten.map_err(|failure| match failure {
            Failure::NotRun(why) => NotRewritten::NotRun(format!("the rewriting program could not be run: {why}")),
            Failure::Program(why) => {
                let reason = format!("the rewriting program failed: {why}");
                let fix = "change the content so that the program accepts it, or fix the rule";
                denied(ruling, "modify_failed", reason, fix)
            }
        })?;
        match self.redactor.find(rewritten.to_string().as_bytes()) {
            None => Ok(rewritten),
            Some(_) => {
                let reason = "what the rewriting program printed contains a secret value of this run's environment";
                let fix = "change no file that holds a secret value, or fix the rule: its program must print none";
                Err(denied(ruling, "secret_hit", reason.to_owned(), fix))
            }
        }
    }

    async fn rewritten(
        &self,
        tool: &Arc<dyn Tool>,
        args: &Value,
        prepared: &PreparedCall,
        ruling: &Ruling,
    ) -> Result<Value, Failure> {
        let program = ruling.pipe.as_deref();
        let program = program.ok_or_else(|| "the rule names no program".to_owned())?;
        let proposed = prepared.preview.as_ref().and_then(|preview| preview.new.clone());
        let is_edit = tool.spec().kind == ToolKind::Edit;
        let input = match &proposed {
            Some(content) if is_edit => content.clone(),
            _ if is_edit => return Err("the proposed content cannot be shown to the program".to_owned().into()),
            _ => args.to_string(),
        };
        let output = self.run(program, &input).await?;
        if is_edit && output.is_empty() && !input.trim().is_empty() {
            // A program that does not end with an error where it should would empty the file.
            return Err(format!("`{program}` printed nothing").into());
        }
        if !is_edit {
            return serde_json::from_str(&output)
                .map_err(|error| format!("the program did not print JSON: {error}").into());
        }
        if output == input {
            return Ok(args.clone());
        }
        let path = args.get("file_path").cloned();
        let path = path.ok_or_else(|| "the call names no file".to_owned())?;
        Ok(json!({ "file_path": path, "content": output }))
    }

    async fn run(&self, program: &str, input: &str) -> Result<String, Failure> {
        let spawn = Spawn {
            program: Invocation::Shell(format!("{BEFORE}{program}\n")),
            dir: self.workspace.root().to_owned(),
            env: Vec::new(),
            stdin: Some(input.as_bytes().to_vec()),
            timeout: TIME,
            cancel: self.cancel.child_token(),
            on_output: None,
            keep: None,
            shown: SIZE,
            // The text is written as the program printed it, or not at all.
            redactor: Arc::new(Redactor::default()),
            // It must not change the tree: it is neither a call nor a step, so a change could not be attributed.
            writes: Writes::Nothing,
            judge: None,
        };
        // The program may execute what the model wrote, so nothing that it leaves may decide a check or another call.
        let (confinement, own) = self
            .confinement
            .of_rewriting(self.cancel)
            .await
            .map_err(Failure::NotRun)?;
        let done = process::run(spawn, &confinement).await;
        if let Some(own) = own {
            own.end().await.map_err(Failure::NotRun)?;
        }
        let finished = done.map_err(|error| Failure::NotRun(error.to_string()))?;
        if !finished.undone.is_empty() {
            // Possible only without a sandbox, where only the guard protects closed paths.
            return Err(format!("`{program}` changed {}", described(&finished.undone)).into());
        }
        if finished.exit.code != Some(0) {
            return Err(format!("`{program}` ended with {}", finished.exit.ending()).into());
        }
        if finished.stdout.cut {
            return Err(format!("`{program}` printed more than {SIZE} bytes").into());
        }
        if finished.stdout.nuls + finished.stdout.not_utf8 > 0 {
            // The captured text has replacement characters in their place.
            return Err(
                format!("`{program}` printed bytes that are not text: NUL bytes, or bytes that are not UTF-8").into(),
            );
        }
        Ok(finished.stdout.text)
    }
}

/// The tool that prepares a rewritten call: the one that writes whole files for an edit that became one.
pub fn preparer<'a>(tools: &'a Registry, found: FoundTool<'a>, args: &Value) -> FoundTool<'a> {
    let is_edit = found.tool.spec().kind == ToolKind::Edit;
    let writes = builtin_for(CommandAccessKind::Writes);
    let whole = is_edit && args.get("content").is_some();
    tools.find(&writes.name).filter(|_| whole).unwrap_or(found)
}

/// The denial of a call that cannot be rewritten.
fn denied(ruling: &Ruling, code: &str, reason: String, fix: &str) -> NotRewritten {
    NotRewritten::Denied(Box::new(Ruling {
        decision: Decision::Deny,
        code: code.to_owned(),
        reason,
        fix: fix.to_owned(),
        ..ruling.clone()
    }))
}
