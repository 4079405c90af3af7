//! Progress for people on stderr: one line for each event of interest. The live bar is in `live`.

mod live;

pub use live::LiveBar;

use super::text;
use crate::base::call::{CallState, ToolOutput};
use crate::base::event::{Decided, Event, EventKind, RunStarted, Sink};
use crate::base::grant::described;
use crate::base::ids::CallId;
use crate::base::message::Reply;
use crate::base::outcome::{COMMAND, RunOutcome, StepStatus};
use crate::base::quote::counted;
use crate::base::ruling::{Decision, Ruling};
use std::collections::{HashMap, HashSet};
use std::io::{self, Write};

/// The level of detail.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Verbosity {
    /// Only warnings, and the end of a run that did not pass.
    Quiet,
    #[default]
    Normal,
    /// Also the model's text, rulings that allow, and the usage of each turn.
    Verbose,
}

/// Turns events into lines. Keeps only what later lines refer to.
#[derive(Debug, Default)]
pub struct ProgressLines {
    level: Verbosity,
    /// The title of each open call.
    titles: HashMap<CallId, String>,
    /// Calls whose denial has a line of its own. Their end, which follows at once, would only say it again.
    denied: HashSet<CallId>,
    /// Whether the current step is a command of the recipe.
    step_is_command: bool,
    /// Whether the command of the current step failed, which its step may allow.
    command_failed: bool,
    tokens: u64,
    cost_micros: u64,
    turns: u64,
}

impl ProgressLines {
    /// Lines of this level.
    pub fn new(level: Verbosity) -> Self {
        Self {
            level,
            ..Self::default()
        }
    }

    /// Learns what an earlier session left open: the titles of its calls, and the kind of its step.
    pub fn recall(&mut self, event: &Event) {
        self.note_step(&event.kind);
        match &event.kind {
            EventKind::Replied { reply, .. } => self.name_calls(reply),
            EventKind::Decided(decided) => self.name_ruled(decided),
            EventKind::CallFinished { call, .. } => {
                self.titles.remove(call);
            }
            _ => {}
        }
    }

    fn note_step(&mut self, kind: &EventKind) {
        match kind {
            EventKind::StepStarted { run, .. } => {
                self.step_is_command = run.is_some();
                self.command_failed = false;
            }
            EventKind::Ran { exit, .. } => self.command_failed = exit.code != Some(0),
            _ => {}
        }
    }

    fn name_calls(&mut self, reply: &Reply) {
        for call in reply.calls() {
            self.titles.insert(call.id.clone(), text::line(&call.tool, 80));
        }
    }

    fn name_ruled(&mut self, decided: &Decided) {
        let named = decided.title.starts_with(&decided.tool) || decided.title.is_empty();
        let tool = if named { "" } else { decided.tool.as_str() };
        let title = text::line(&format!("{tool} {}", decided.title), 140);
        self.titles.insert(decided.call.clone(), title);
    }

    /// The lines for an event, without newlines. Control characters are removed.
    pub fn of(&mut self, event: &Event) -> Vec<String> {
        self.note_step(&event.kind);
        self.count(&event.kind);
        let normal = self.level >= Verbosity::Normal;
        match &event.kind {
            EventKind::Warned { code, message } if code == "replay" => {
                let mut lines = with_difference(message);
                if let Some(first) = lines.first_mut() {
                    *first = format!("warning[replay]: {first}");
                }
                lines
            }
            EventKind::Warned { code, message } => vec![format!(
                "warning[{}]: {}",
                text::line(code, 60),
                text::line(message, 400)
            )],
            EventKind::RunFinished { outcome, .. } => self.end(outcome),
            EventKind::Replied { reply, .. } => self.replied(reply),
            EventKind::Decided(decided) => {
                self.name_ruled(decided);
                if decided.ruling.decision == Decision::Deny {
                    self.denied.insert(decided.call.clone());
                }
                let told = match decided.ruling.decision {
                    Decision::Allow => self.level >= Verbosity::Verbose,
                    _ => normal,
                };
                let title = self.title(&decided.call);
                let line = format!("  {} {title}: {}", decided.call, ruled(&decided.ruling));
                let later = decided.ruling.deferred.iter().map(|deferred| {
                    let (program, why) = (text::line(&deferred.program, 80), text::line(&deferred.reason, 240));
                    format!("  {} {program} is ruled at exec: {why}", decided.call)
                });
                std::iter::once(line).chain(later).filter(|_| told).collect()
            }
            kind if normal => self.normal(kind),
            _ => Vec::new(),
        }
    }

    /// Adds what the model's replies cost: also requests for history summaries, and replies that were discarded. After
    /// a resume only the end of the run knows the figures of the sessions before.
    fn count(&mut self, kind: &EventKind) {
        let (turn, usage, cost_micros) = match kind {
            EventKind::Replied {
                turn,
                reply,
                cost_micros,
                ..
            } => (*turn, reply.usage, *cost_micros),
            EventKind::Compacted {
                summary: Some(summary), ..
            } => (summary.turn, summary.reply.usage, summary.cost_micros),
            EventKind::Retried {
                discarded: Some(discarded),
                ..
            } => (self.turns, discarded.usage, discarded.cost_micros),
            EventKind::RunFinished { spent, .. } => {
                self.turns = spent.turns;
                self.tokens = spent.tokens;
                self.cost_micros = spent.cost_micros;
                return;
            }
            _ => return,
        };
        self.turns = turn;
        self.tokens += usage.total();
        self.cost_micros += cost_micros.unwrap_or_default();
    }

    /// Lines that `--quiet` omits.
    fn normal(&mut self, kind: &EventKind) -> Vec<String> {
        match kind {
            EventKind::RunStarted(head) => begin(head),
            EventKind::Confined(confined) => vec![format!("sandbox: {}", text::line(&confined.level, 40))],
            EventKind::Equipped(equipped) => {
                let bad = equipped.servers.iter().filter(|server| server.status == "failed");
                bad.map(|server| {
                    let (name, why) = (text::line(&server.name, 60), text::line(&server.message, 300));
                    format!("warning[mcp_server_missing]: MCP server {name} is not available: {why}")
                })
                .collect()
            }
            EventKind::StepStarted {
                step,
                index,
                total,
                run,
                ..
            } => {
                let what = run.as_deref().and_then(text::one_line_command);
                let what = what.map(|run| format!(": {}", text::line(run, 160)));
                let step = text::line(step.as_str(), 80);
                vec![format!("step {}/{total} {step}{}", index + 1, what.unwrap_or_default())]
            }
            EventKind::AttemptStarted { n, why, .. } if *n > 1 => {
                let why = text::line(why, 200);
                vec![match why.strip_prefix("failed: ") {
                    Some(checks) => format!("  attempt {n} starts; failed checks: {checks}"),
                    None => format!("  attempt {n} starts: {why}"),
                }]
            }
            EventKind::Retried {
                discarded: Some(discarded),
                ..
            } if discarded.last => Vec::new(),
            EventKind::Retried {
                attempt,
                class,
                message,
                wait_ms,
                ..
            } => {
                let wait = match wait_ms {
                    0 => String::new(),
                    wait => format!(" in {}", text::duration(*wait)),
                };
                let (class, why) = (text::line(class, 40), text::line(message, 200));
                vec![format!("  request repeated{wait} ({attempt}, {class}): {why}")]
            }
            EventKind::Ran { exit, took_ms, .. } => {
                vec![format!("  {} ({})", super::text::exit(exit), text::duration(*took_ms))]
            }
            kind => self.course(kind),
        }
    }

    /// Lines for calls, checks, and their ends.
    fn course(&mut self, kind: &EventKind) -> Vec<String> {
        match kind {
            EventKind::CallFinished { call, .. } if self.denied.remove(call) => {
                self.titles.remove(call);
                Vec::new()
            }
            EventKind::CallFinished {
                call,
                state,
                output,
                took_ms,
            } => vec![self.call_ended(call, *state, output, *took_ms)],
            EventKind::Approved { call, allow, by } => {
                let word = if *allow { "approved" } else { "denied" };
                let title = match self.title(call) {
                    title if title.is_empty() => title,
                    title => format!("{title} "),
                };
                vec![format!("  {call} {title}{word} by {}", text::line(by, 60))]
            }
            EventKind::Checked { attempt, check, .. } => {
                // Checks before the model is asked decide nothing; those of a command have no attempt either, and do.
                let decides = *attempt > 0 || self.step_is_command;
                let word = match (check.passed, decides) {
                    (true, _) => "passed",
                    (false, false) => "does not pass yet",
                    (false, true) => "FAILED",
                };
                let why = Some(text::line(&check.message, 200)).filter(|why| !check.passed && !why.is_empty());
                let why = why.map(|why| format!(": {why}")).unwrap_or_default();
                let name = text::line(&check.name, 80);
                let line = format!("  check {name} {word}{why} ({})", text::duration(check.took_ms));
                let output = match (check.passed, decides) {
                    (false, true) => text::last_lines(&check.output),
                    _ => Vec::new(),
                };
                let output = output.into_iter().map(|line| format!("    | {line}"));
                std::iter::once(line).chain(output).collect()
            }
            EventKind::ResponseJudged { ok: false, errors, .. } => vec![format!(
                "  answer does not match the response schema: {}",
                text::line(&errors.join("; "), 200)
            )],
            EventKind::StepFinished { step, result } => {
                let word = match result.status {
                    StepStatus::Passed if self.command_failed => "finished (failure allowed)",
                    StepStatus::Passed => "passed",
                    StepStatus::Failed => "FAILED",
                    StepStatus::Skipped => "skipped",
                };
                let why = text::line(&result.message, 300);
                let why = if why.is_empty() { why } else { format!(": {why}") };
                let line = format!("step {} {word}{why}", text::line(step.as_str(), 80));
                let output = match result.status == StepStatus::Failed && result.reason == COMMAND {
                    true => text::last_lines(&result.output),
                    false => Vec::new(),
                };
                let output = output.into_iter().map(|line| format!("    | {line}"));
                std::iter::once(line).chain(output).collect()
            }
            EventKind::Compacted { why, .. } => vec![format!("  history shortened: {}", text::line(why, 200))],
            EventKind::Resumed { by, model, .. } => {
                vec![format!(
                    "resumed with {} by {}",
                    text::line(model, 100),
                    text::line(by, 60)
                )]
            }
            EventKind::Executed { call, execs, .. } => {
                let denied = execs.iter().filter_map(|exec| Some((exec, exec.denied.as_ref()?)));
                let whose = self.of_call(call);
                denied
                    .map(|(exec, denial)| {
                        let rule = denial.rule.as_deref().unwrap_or("default");
                        let argv = text::line(&exec.argv.join(" "), 140);
                        let (rule, reason) = (text::line(rule, 120), text::line(&denial.reason, 240));
                        format!("  {whose}: DENIED at exec by {rule} [{}] {argv}: {reason}", denial.code)
                    })
                    .collect()
            }
            // While a call runs, its result will show these changes; after its end they come from its background command.
            EventKind::Undone {
                call: Some(call),
                undone,
                ..
            } if !self.titles.contains_key(call) => {
                let what = text::line(&described(undone), 300);
                vec![format!("  {} was DENIED a change: {what}", self.of_call(call))]
            }
            EventKind::PatchTaken(patch) if patch.blob.is_some() => {
                vec![format!("patch: {} changed", counted(patch.files.len(), "file"))]
            }
            EventKind::PutBack(done) => match done.failed.len() {
                0 => vec!["changes that no rule allows were put back".to_owned()],
                more => vec![format!("{} could NOT be put back", counted(more, "file"))],
            },
            _ => Vec::new(),
        }
    }

    fn call_ended(&mut self, call: &CallId, state: CallState, output: &ToolOutput, took_ms: u64) -> String {
        let title = self.titles.remove(call).unwrap_or_default();
        let how = match (&output.exit, state) {
            (Some(exit), _) => text::exit(exit),
            (None, CallState::Success) => text::line(&output.summary, 120),
            (None, CallState::Cancelled) => "cancelled".to_owned(),
            (None, _) => format!("failed: {}", text::line(&output.summary, 160)),
        };
        // A command may have run to its end before what it did was denied.
        let denied = output
            .error
            .as_ref()
            .filter(|_| output.exit.is_some())
            .and_then(|error| {
                // Denials at an exec have a line of their own.
                let code = error.denial().filter(|code| !code.starts_with("exec_"))?;
                let code = text::line(code, 80);
                Some(format!(", DENIED [{code}]: {}", text::line(&error.message, 240)))
            });
        let (denied, took) = (denied.unwrap_or_default(), text::duration(took_ms));
        format!("  {call} {title}: {how} ({took}){denied}")
    }

    fn replied(&mut self, reply: &Reply) -> Vec<String> {
        self.name_calls(reply);
        if self.level < Verbosity::Verbose {
            return Vec::new();
        }
        let mut lines = vec![format!("  turn {}: {}", self.turns, self.figures())];
        let said = reply.text();
        lines.extend(
            said.lines()
                .take(40)
                .map(|said| format!("  | {}", text::line(said, 240))),
        );
        lines
    }

    fn end(&self, outcome: &RunOutcome) -> Vec<String> {
        if self.level == Verbosity::Quiet && outcome.verdict.is_success() {
            return Vec::new();
        }
        let (why, difference) = match outcome.reason.as_str() {
            "replay_miss" => {
                let mut lines = with_difference(&outcome.message);
                let first = if lines.is_empty() {
                    String::new()
                } else {
                    lines.remove(0)
                };
                (first, lines)
            }
            _ => (text::line(&outcome.message, 600), Vec::new()),
        };
        let why = if why.is_empty() { why } else { format!(": {why}") };
        let partial = if outcome.partial { " (partial)" } else { "" };
        let end = format!("{}{partial}{why} [{}]", outcome.verdict.as_str(), self.figures());
        // The line that scripts parse comes last.
        difference.into_iter().chain([end]).collect()
    }

    /// Turns, tokens and cost so far.
    pub fn figures(&self) -> String {
        let turns = usize::try_from(self.turns).unwrap_or(usize::MAX);
        format!(
            "{}, {} tokens, {}",
            counted(turns, "turn"),
            text::grouped(self.tokens),
            text::dollars(self.cost_micros)
        )
    }

    /// How a line names the command of a call. A call without a title has ended: only its background command still
    /// reports.
    fn of_call(&self, call: &CallId) -> String {
        match self.titles.get(call) {
            Some(title) => format!("{call} {title}"),
            None => format!("{call}: its command in the background"),
        }
    }

    fn title(&self, call: &CallId) -> String {
        self.titles.get(call).cloned().unwrap_or_default()
    }
}

/// Limit of lines of a difference; the rest is in the journal.
const DIFFERENCE_LINES: usize = 16;

/// A message with the difference below it, one line each, with signs and indentation kept.
fn with_difference(message: &str) -> Vec<String> {
    let mut lines = message.lines();
    let mut out = vec![text::line(lines.next().unwrap_or_default(), 400)];
    let signed = |line: &str| {
        let end = line
            .find(|c| !matches!(c, ' ' | '+' | '-'))
            .unwrap_or(line.len())
            .min(40);
        format!("  {}{}", &line[..end], text::line(&line[end..], 400))
    };
    let rest: Vec<&str> = lines.collect();
    out.extend(rest.iter().take(DIFFERENCE_LINES).map(|line| signed(line)));
    let more = rest.len().saturating_sub(DIFFERENCE_LINES);
    if more > 0 {
        out.push(format!("  … {}", counted(more, "more line")));
    }
    out
}

fn begin(head: &RunStarted) -> Vec<String> {
    let recorded = if head.recorded { ", RECORDED replies" } else { "" };
    let (recipe, model) = (text::line(&head.recipe, 100), text::line(&head.model, 100));
    vec![format!("run {} {recipe} ({model}{recorded})", head.run)]
}

fn ruled(ruling: &Ruling) -> String {
    let word = match ruling.decision {
        Decision::Allow => "allowed",
        Decision::Modify => "modified",
        Decision::Suspend => "SUSPENDED",
        Decision::Deny => "DENIED",
    };
    let rule = ruling.rule.as_deref().unwrap_or("default");
    let (rule, code) = (text::line(rule, 120), text::line(&ruling.code, 80));
    format!("{word} by {rule} [{code}] {}", text::line(&ruling.reason, 240))
}

/// Writes each line immediately, for logs and pipes. A closed stderr does not stop the run.
pub struct Plain<W> {
    lines: ProgressLines,
    out: W,
}

impl<W: Write + Send> Plain<W> {
    /// Writes to `out`.
    pub fn new(out: W, level: Verbosity) -> Self {
        Self {
            lines: ProgressLines::new(level),
            out,
        }
    }

    /// The writer.
    pub fn into_inner(self) -> W {
        self.out
    }
}

impl<W: Write + Send> Sink for Plain<W> {
    fn on_earlier(&mut self, event: &Event) {
        self.lines.recall(event);
    }

    fn on_event(&mut self, event: &Event) -> io::Result<()> {
        for line in self.lines.of(event) {
            // A failing log must not end the run.
            let _ = writeln!(self.out, "overnight: {line}");
        }
        Ok(())
    }
}
