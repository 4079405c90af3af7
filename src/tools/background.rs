//! The tools `list_background_processes` and `read_background_output`: report on commands that run in the background.

use super::args::{Args, invalid};
use super::builtin::{Builtin, OtherNames, ToolFacts};
use super::command_end::{ends, strictest, undone_failure};
use super::denial;
use super::schema::{integer, object, string};
use super::{PreparedCall, ToolContext, ToolError};
use crate::base::access::Access;
use crate::base::call::{ArgumentTarget, Offered, Replayed, ToolEffects, ToolKind, ToolOutput};
use crate::process::jobs::{EndedJob, JobEnd, JobState};
use crate::workspace::Workspace;
use serde_json::Value;
use std::sync::Arc;
use std::time::Duration;

/// Default number of lines to read.
const LINES: u64 = 100;

/// Upper limit in bytes for the output in one result.
const BYTES: usize = 32 << 10;

/// Both tools: no rule is needed for them, and what they show depends on the moment.
const FOLLOWS_COMMANDS: ToolEffects = ToolEffects {
    replayed: Replayed::Recorded,
    offered: Offered::WithCommands,
    ..ToolEffects::reads(ArgumentTarget::Nothing)
};

/// Defines `list_background_processes`.
pub fn list_tool() -> Builtin {
    Builtin::new(
        &ToolFacts {
            name: "list_background_processes",
            display: "BackgroundProcesses",
            aliases: &[],
            kind: ToolKind::Read,
            effects: FOLLOWS_COMMANDS,
            other_names: OtherNames {
                settings: &["ListBackgroundProcessesTool"],
                ..OtherNames::default()
            },
        },
        "Lists the background commands and how they ended.",
        object([], &[]),
        |_, _| {
            Ok(PreparedCall {
                title: "list background commands".to_owned(),
                access: Access::none(),
                preview: None,
                work: Box::new(|context| Box::pin(async move { Ok(list(&context.scope.jobs.list())) })),
            })
        },
    )
}

/// Defines `read_background_output`.
pub fn read_tool() -> Builtin {
    Builtin::new(
        &ToolFacts {
            name: "read_background_output",
            display: "BackgroundOutput",
            aliases: &[],
            kind: ToolKind::Read,
            effects: FOLLOWS_COMMANDS,
            other_names: OtherNames::default(),
        },
        "Reads the last lines of a background command, and whether it still runs.",
        object(
            [
                ("pid", string("job1, job2, …")),
                ("lines", integer("Default: 100.", 1)),
                ("delay_ms", integer("Wait before reading.", 0)),
            ]
            .map(either_number),
            &["pid"],
        ),
        prepare_read,
    )
}

/// Also accepts a number, because models often write the name of a process as one.
fn either_number((name, mut schema): (&'static str, Value)) -> (&'static str, Value) {
    if name == "pid" {
        schema["type"] = serde_json::json!(["string", "integer"]);
    }
    (name, schema)
}

fn prepare_read(args: &Args<'_>, _workspace: &Arc<Workspace>) -> Result<PreparedCall, ToolError> {
    let number = number(args.value("pid"))?;
    let lines = args.number("lines").unwrap_or(LINES);
    let delay = Duration::from_millis(args.number("delay_ms").unwrap_or(0).min(30_000));
    Ok(PreparedCall {
        title: format!("read the output of job{number}"),
        access: Access::none(),
        preview: None,
        work: Box::new(move |context| Box::pin(read(number, lines, delay, context))),
    })
}

fn number(pid: Option<&Value>) -> Result<usize, ToolError> {
    let found = match pid {
        Some(Value::String(text)) => {
            let text = text.trim();
            text.strip_prefix("job").unwrap_or(text).parse().ok()
        }
        Some(value) => value.as_u64().and_then(|number| usize::try_from(number).ok()),
        None => None,
    };
    found.ok_or_else(|| invalid("`pid` must be a name such as job1"))
}

async fn read(number: usize, lines: u64, delay: Duration, context: ToolContext) -> Result<ToolOutput, ToolError> {
    tokio::select! {
        () = tokio::time::sleep(delay) => {}
        () = context.cancel.cancelled() => return Err(ToolError::model("cancelled", "the run is ending")),
    }
    let jobs = &context.scope.jobs;
    let Some(job) = jobs.get(number) else {
        let message = match jobs.list().len() {
            0 => "no command was started in the background".to_owned(),
            1 => format!("there is no job{number}; there is only job1"),
            many => format!("there is no job{number}; there are job1 to job{many}"),
        };
        return Err(ToolError::model("no_such_process", message));
    };
    let (text, before) = last_lines(&job, lines);
    let mut out: Vec<String> = Vec::new();
    if before {
        out.push("[earlier output is left out]".to_owned());
    }
    out.push(if text.is_empty() {
        "(no output)".to_owned()
    } else {
        text.to_owned()
    });
    out.extend(standing(&job));
    let summary = format!("{}: {}", job.name(), state(&job));
    Ok(ToolOutput::text(out.join("\n"), summary))
}

/// The last lines, and whether there is output before them.
fn last_lines(job: &JobState, lines: u64) -> (&str, bool) {
    let text = job.output.trim_end_matches('\n');
    let mut from = text.ceil_char_boundary(text.len().saturating_sub(BYTES));
    let wanted = usize::try_from(lines).unwrap_or(usize::MAX).saturating_sub(1);
    if let Some((at, _)) = text.rmatch_indices('\n').nth(wanted) {
        from = from.max(at + 1);
    }
    (text.get(from..).unwrap_or_default(), from > 0 || job.dropped > 0)
}

fn list(jobs: &[JobState]) -> ToolOutput {
    if jobs.is_empty() {
        return ToolOutput::text("(none)", "no background commands");
    }
    let lines: Vec<String> = jobs
        .iter()
        .map(|job| format!("{}: {}: {}", job.name(), state(job), job.command.trim()))
        .collect();
    let running = jobs.iter().filter(|job| job.end.is_none()).count();
    ToolOutput::text(
        lines.join("\n"),
        format!("{} background commands, {running} running", jobs.len()),
    )
}

fn state(job: &JobState) -> String {
    match &job.end {
        None => "running".to_owned(),
        Some(JobEnd::NotStarted(_) | JobEnd::NoSandbox(_)) => "not started".to_owned(),
        Some(JobEnd::Exited {
            denied: Some(denied), ..
        }) => format!("denied ({})", denied.1.code),
        Some(JobEnd::Exited { exit, .. }) => format!("ended with {}", exit.ending()),
    }
}

/// Lines about the state of the process, for the end of the result.
fn standing(job: &JobState) -> Vec<String> {
    match &job.end {
        None => vec![format!("[{} is running]", job.name())],
        Some(JobEnd::NotStarted(reason) | JobEnd::NoSandbox(reason)) => vec![format!("[not started: {reason}]")],
        Some(JobEnd::Exited {
            undone,
            execs,
            execs_omitted,
            denied: Some(denied),
            ..
        }) => {
            let mut lines = vec![denial::denial_text(denied, execs, *execs_omitted)];
            lines.extend(undone_failure(undone).map(|failure| failure.message));
            lines
        }
        Some(JobEnd::Exited { exit, undone, .. }) => {
            let mut lines = ends(exit);
            if lines.is_empty() {
                lines.push("[ended with exit code 0]".to_owned());
            }
            lines.extend(undone_failure(undone).map(|failure| failure.message));
            lines
        }
    }
}

/// Adds to the result of a call how its background command ended. For calls outside a run, which have no later event
/// that says so.
pub fn with_end(output: ToolOutput, ended: EndedJob) -> ToolOutput {
    let mut denied = ended.judged.execs.iter().rev();
    let denied = denied.find_map(|exec| Some((exec.clone(), exec.denied.clone()?)));
    let denied = denied.map(|denied| denial::failure(&denied, &ended.judged.execs, ended.judged.omitted));
    let failure = strictest(denied, undone_failure(&ended.undone));
    ToolOutput {
        error: output.error.or(failure),
        judged: ended.judged,
        undone: ended.undone,
        ..output
    }
}

/// The result of a command that has just been started in the background.
pub(super) fn started(job: &JobState) -> ToolOutput {
    let (text, _) = last_lines(job, LINES);
    let mut lines = Vec::new();
    if job.end.is_none() {
        lines.push(format!(
            "Running in the background as {name}; read_background_output with pid \"{name}\" reads from it. It ends with the run.",
            name = job.name()
        ));
    } else {
        lines.push(format!(
            "Started in the background as {}; it has ended already.",
            job.name()
        ));
    }
    lines.push(match text {
        "" => "(no output yet)".to_owned(),
        text => format!("First output:\n{text}"),
    });
    lines.extend(standing(job).into_iter().filter(|_| job.end.is_some()));
    ToolOutput::text(lines.join("\n"), format!("{}: {}", job.name(), state(job)))
}
