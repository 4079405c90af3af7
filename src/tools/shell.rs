//! The tool `run_shell_command`: runs one command line in the sandbox. Tools for background commands are in
//! `background`.

use super::args::{Args, invalid};
use super::background;
use super::builtin::{Builtin, OtherNames, ToolFacts};
use super::command_end::{ends, may_not_write, strictest, undone_failure};
use super::denial;
use super::results::{PREFIX, SHOWN};
use super::schema::{boolean, integer, object, string, undeclared};
use super::{PreparedCall, ToolContext, ToolError};
use crate::base::access::{Access, CommandAccess, PathStatus, ResolvedPath};
use crate::base::call::{ArgumentTarget, ExitInfo, Kept, Replayed, ToolEffects, ToolFailure, ToolKind, ToolOutput};
use crate::base::event::ProgressEvent;
use crate::base::grant::{JudgedPrograms, Writes};
use crate::base::quote::counted;
use crate::process::{Captured, Finished, Invocation, SandboxLevel, Spawn, SpawnError};
use crate::workspace::Workspace;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio_util::sync::CancellationToken;

/// Bytes reserved for the lines after the output.
const MARGIN: usize = 1_500;

/// Upper limit in bytes for a command line.
const LONGEST: usize = 100_000;

/// Default time in milliseconds for which the output of a new background command is collected.
const DELAY_MS: u64 = 200;

/// Time limit of a background command. It ends with its run anyway; this covers a run without a limit.
const BACKGROUND: Duration = Duration::from_secs(24 * 3600);

/// Its name.
pub const NAME: &str = "run_shell_command";

/// Defines the tool.
pub fn tool() -> Builtin {
    Builtin::new(
        &ToolFacts {
            name: NAME,
            display: "Shell",
            aliases: &[],
            kind: ToolKind::Execute,
            effects: ToolEffects {
                replayed: Replayed::RunsSoftly,
                ..ToolEffects::writes(ArgumentTarget::Commands)
            },
            other_names: OtherNames {
                renamed: &[("directory", "dir_path"), ("dir", "dir_path")],
                agents: &["bash", "shell", "local_shell", "execute_command", "execute_bash"],
                settings: &["ShellTool"],
                ..OtherNames::default()
            },
        },
        "Runs a command with `bash -c` and gives its output, and its exit code when not 0. stdin is empty. What it started is \
         ended with it: start servers and watchers with is_background.",
        object(
            [
                ("command", string("")),
                ("dir_path", string("")),
                ("description", string("")),
                ("is_background", boolean("")),
                (
                    "delay_ms",
                    undeclared(integer(
                        "With is_background: milliseconds to wait for first output, at most 30000.",
                        0,
                    )),
                ),
            ],
            &["command"],
        ),
        prepare,
    )
}

struct Asked {
    command: String,
    dir: ResolvedPath,
    background: Option<Duration>,
}

fn prepare(args: &Args<'_>, workspace: &Arc<Workspace>) -> Result<PreparedCall, ToolError> {
    let command = args.text("command")?;
    if command.trim().is_empty() {
        return Err(invalid("`command` must not be empty"));
    }
    if command.len() > LONGEST || command.contains('\0') {
        return Err(invalid(format!(
            "`command` must have at most {LONGEST} bytes and no NUL byte"
        )));
    }
    let delay = args.number("delay_ms").unwrap_or(DELAY_MS).min(30_000);
    let asked = Asked {
        command: command.to_owned(),
        dir: args.dir("dir_path", workspace),
        background: args.flag("is_background", false).then(|| Duration::from_millis(delay)),
    };
    Ok(PreparedCall {
        title: title(&asked),
        access: access(&asked),
        preview: None,
        work: Box::new(move |context| Box::pin(work(asked, context))),
    })
}

fn title(asked: &Asked) -> String {
    let first = asked.command.trim().lines().next().unwrap_or_default();
    let more = if asked.command.trim().contains('\n') {
        " …"
    } else {
        ""
    };
    let place = match asked.dir.shown() {
        "." => String::new(),
        dir => format!(" (in {dir})"),
    };
    let end = if asked.background.is_some() { " &" } else { "" };
    format!("run {first}{more}{end}{place}")
}

/// Starting outside the workspace counts as reading that directory, and is ruled on as such.
fn access(asked: &Asked) -> Access {
    Access {
        commands: vec![CommandAccess {
            text: asked.command.clone(),
            // For a directory outside, the path as the model wrote it: the model must not see its real path.
            dir: if asked.dir.inside {
                asked.dir.path.clone()
            } else {
                asked.dir.asked.clone()
            },
        }],
        reads: if asked.dir.inside {
            Vec::new()
        } else {
            vec![asked.dir.clone()]
        },
        ..Access::none()
    }
}

async fn work(asked: Asked, context: ToolContext) -> Result<ToolOutput, ToolError> {
    let name = asked.dir.shown();
    match (asked.dir.inside, asked.dir.found) {
        (true, PathStatus::Dir) => {}
        (true, PathStatus::Nothing) => {
            return Err(ToolError::model("file_not_found", format!("{name} does not exist")));
        }
        (true, _) => {
            return Err(ToolError::model(
                "path_is_not_a_directory",
                format!("{name} is not a directory"),
            ));
        }
        (false, _) => {
            let message = format!("{name} is outside the workspace");
            return Err(ToolError::model("path_not_in_workspace", message));
        }
    }
    let spawn = spawn(&asked, &context);
    let scope = &context.scope;
    if let Some(delay) = asked.background {
        if context.writes != Writes::Nothing {
            context.workspace.note_command(true);
        }
        let started = scope
            .jobs
            .start(
                (&context.call, asked.command.as_str()),
                spawn,
                scope.confinement()?,
                delay,
            )
            .await;
        return started.map(|job| background::started(&job)).map_err(not_started);
    }
    let cancelled = || ToolError::model("cancelled", "the command was ended because the run is ending");
    let tell = scope.notices.report_on_drop(&context.call);
    let finished = crate::process::run_reporting_changes(spawn, scope.confinement()?, Arc::clone(&tell.found))
        .await
        .map_err(|error| match context.cancel.is_cancelled() {
            true => cancelled(),
            false => not_started(error),
        })?;
    if context.writes != Writes::Nothing || !finished.granted.is_empty() {
        context.workspace.note_command(false);
    }
    // Changes that it had no right to make are recorded also if it was cut short.
    if context.cancel.is_cancelled() && finished.undone.is_empty() {
        return Err(cancelled());
    }
    let judged = JudgedPrograms::of(&finished.execs, finished.execs_omitted, finished.denied.as_ref());
    let masked = context.judge.as_ref().map(|judge| judge.masked()).unwrap_or_default();
    let bound = match scope.confinement()?.level {
        SandboxLevel::None => &Writes::Tree,
        _ => &context.writes,
    };
    Ok(ToolOutput {
        judged,
        ..output(finished, &masked, context.call.as_str(), bound)
    })
}

fn spawn(asked: &Asked, context: &ToolContext) -> Spawn {
    let live = context.live.clone();
    let call = context.call.clone();
    let remaining = context.deadline.saturating_duration_since(Instant::now());
    Spawn {
        program: Invocation::Shell(asked.command.clone()),
        dir: context.workspace.root().join(&asked.dir.path),
        env: Vec::new(),
        stdin: None,
        timeout: if asked.background.is_some() {
            BACKGROUND
        } else {
            remaining
        },
        cancel: if asked.background.is_some() {
            CancellationToken::new()
        } else {
            context.cancel.clone()
        },
        on_output: Some(Arc::new(move |chunk: &str| {
            live.send(ProgressEvent::Output {
                call: call.clone(),
                chunk: chunk.to_owned(),
            });
        })),
        keep: Some(context.scope.results.join(context.call.as_str())),
        shown: SHOWN - MARGIN,
        redactor: Arc::clone(&context.scope.redactor),
        writes: context.writes.clone(),
        judge: context.judge.clone(),
    }
}

fn not_started(error: SpawnError) -> ToolError {
    match error {
        SpawnError::Sandbox(reason) => ToolError::Fatal(format!("sandbox: {reason}")),
        SpawnError::NotFound { .. } => ToolError::Fatal("there is no bash on this machine".to_owned()),
        error @ SpawnError::NoDirectory { .. } => ToolError::model("file_not_found", error.to_string()),
        SpawnError::Limit(reason) => ToolError::model("limit:guard", format!("denied: {reason}")),
        error => ToolError::model("shell_execute_error", error.to_string()),
    }
}

/// The text for the model: the output, then a line for everything unusual.
fn output(finished: Finished, masked: &[String], call: &str, bound: &Writes) -> ToolOutput {
    let Finished {
        exit, stdout, undone, ..
    } = finished;
    let kept = kept(&stdout, call);
    let mut lines = vec![said(&stdout)];
    lines.extend(replaced(&stdout));
    lines.extend(kept.as_ref().map(rest_notice));
    let denied = finished.denied.as_ref();
    let denied = denied.map(|denied| denial::failure(denied, &finished.execs, finished.execs_omitted));
    match &denied {
        Some(denied) => lines.push(denied.message.clone()),
        None => {
            lines.extend(ends(&exit));
            lines.extend(may_not_write(&exit, &stdout.text, bound, !finished.granted.is_empty()));
        }
    }
    lines.extend(finished.locks.message().map(|told| format!("[{told}]")));
    let withheld = |why: &String| format!("[the sandbox withheld the secret content of a file: {why}]");
    lines.extend(masked.iter().map(withheld));
    let told = undone_failure(&undone);
    lines.extend(told.as_ref().map(|failure| failure.message.clone()));
    let failure = strictest(denied, told);
    ToolOutput {
        summary: match failure.as_ref().and_then(ToolFailure::denial) {
            Some(code) if finished.denied.is_some() => format!("denied ({code})"),
            _ => summary(&exit, stdout.bytes),
        },
        kept,
        exit: Some(exit),
        error: failure,
        undone,
        ..ToolOutput::text(lines.join("\n"), "")
    }
}

fn said(stdout: &Captured) -> String {
    if stdout.binary {
        return format!("[the output is binary: {} bytes, not shown]", stdout.bytes);
    }
    match stdout.text.trim_end_matches('\n') {
        "" => "(no output)".to_owned(),
        text => text.to_owned(),
    }
}

/// A note about replacement characters in the shown output.
fn replaced(stdout: &Captured) -> Option<String> {
    let noted = |count: u64, one: &str, many: &str| match count {
        0 => None,
        1 => Some(format!("1 {one}")),
        count => Some(format!("{count} {many}")),
    };
    let parts = [
        noted(stdout.nuls, "NUL byte", "NUL bytes"),
        noted(stdout.not_utf8, "byte that is not UTF-8", "bytes that are not UTF-8"),
    ];
    let parts: Vec<String> = parts.into_iter().flatten().filter(|_| !stdout.binary).collect();
    (!parts.is_empty()).then(|| format!("[{} of the output: shown as \u{fffd}]", parts.join(" and ")))
}

/// The kept output, unless the disk or the run's limit prevented it.
fn kept(stdout: &Captured, call: &str) -> Option<Kept> {
    let missing_everywhere = stdout.cut && stdout.omitted > 0 && stdout.omitted + SHOWN as u64 > stdout.bytes;
    (stdout.cut && !missing_everywhere).then(|| Kept {
        id: call.to_owned(),
        bytes: stdout.bytes,
        omitted: stdout.omitted,
    })
}

fn rest_notice(kept: &Kept) -> String {
    let gone = match kept.omitted {
        0 => String::new(),
        gone => format!(" ({gone} bytes of its middle were not kept)"),
    };
    format!(
        "[{} bytes of output; read_file with file_path \"{PREFIX}{}\" shows all of it{gone}]",
        kept.bytes, kept.id
    )
}

fn summary(exit: &ExitInfo, bytes: u64) -> String {
    let end = match exit.timed_out {
        true => "time ran out".to_owned(),
        false => exit.ending(),
    };
    format!("{end}, {} of output", counted(bytes, "byte"))
}

#[cfg(test)]
mod tests;
