//! Renders the timeline of the page: steps, prompts, turns, calls with their rulings, checks.

use super::{args, diff, safe};
use crate::base::call::{Display, Todo, ToolOutput};
use crate::base::content::ToolContent;
use crate::base::message::Part;
use crate::base::quote::{counted, excerpt};
use crate::report::summary::{CallSummary, CheckRun, Moment, RunSummary, StepSummary, TurnSummary};
use crate::report::text;
use crate::report::transcript::placeholder;
use maud::{Markup, html};

/// Limits of the outputs of calls, for all together and for each, in bytes.
const OUTPUTS: usize = 4 * 1024 * 1024;
const OUTPUT: std::ops::RangeInclusive<usize> = 2 * 1024..=16 * 1024;

/// All steps in the order of the plan.
pub(super) fn steps(sum: &RunSummary<'_>) -> Markup {
    let each = (OUTPUTS / sum.calls.len().max(1)).clamp(*OUTPUT.start(), *OUTPUT.end());
    html! {
        section #timeline {
            h2 { "Timeline" }
            @for id in sum.planned() {
                @match sum.steps.iter().find(|step| step.id == id) {
                    Some(one) => (step(sum, one, each)),
                    None => div.step { div.row { h3 { (safe(id)) } span.tag { "not started" } } },
                }
            }
        }
    }
}

fn step(sum: &RunSummary<'_>, step: &StepSummary<'_>, each: usize) -> Markup {
    let status = sum.status_of(step);
    let colour = match status {
        "passed" | "skipped" => "good",
        "failed" => "bad",
        _ => "wait",
    };
    html! {
        div.step {
            div.row {
                h3 { (safe(step.id)) }
                span class={ "tag " (colour) } { (status) }
                @if let Some(run) = step.run { code.soft { (text::line(run, 200)) } }
                span.soft.small.push { (text::duration(step.duration_ms())) }
            }
            @if let Some(result) = step.result.filter(|result| !result.message.is_empty()) { p.small { (safe(&result.message)) } }
            div.line { @for one in &step.moments { (moment(sum, step, one, each)) } }
        }
    }
}

fn moment(sum: &RunSummary<'_>, step: &StepSummary<'_>, moment: &Moment<'_>, each: usize) -> Markup {
    match moment {
        Moment::Turn(i) => html! { @if let Some(one) = sum.turns.get(*i) { (turn(sum, one, each)) } },
        Moment::Checked(i) => html! { @if let Some(run) = step.checks.get(*i) { (check(run)) } },
        Moment::Prompted { message, why, .. } => {
            let said = message.text();
            html! { div.note { details {
                summary { span.tag.info { (why) } " " span.soft { (text::line(&said, 110)) } }
                div.text.card { (safe(&excerpt(&said, 32 * 1024))) }
            } } }
        }
        Moment::Ran {
            command,
            exit,
            output,
            took_ms,
            ..
        } => html! { div.note { details {
            summary { code { "$ " (text::line(command, 200)) } " " span.soft.small { (text::exit(exit)) " · " (text::duration(*took_ms)) } }
            pre { (safe(&excerpt(output, each))) }
        } } },
        Moment::Attempt { n, why } => html! { @if *n > 1 { (note(&format!("Attempt {n}: {why}"))) } },
        Moment::Retried {
            class,
            message,
            wait_ms,
        } => note(&format!(
            "The model was asked again after {}: {class}: {message}",
            text::duration(*wait_ms)
        )),
        Moment::Judged { ok: true, .. } => note("The answer matches the response schema."),
        Moment::Judged { errors, .. } => note(&format!(
            "The answer does not match the response schema: {}",
            errors.join("; ")
        )),
        Moment::Compacted { why, .. } => note(&format!("The history was shortened: {why}")),
        Moment::Resumed { by, model, .. } => note(&format!("Resumed by {by} with {model}")),
    }
}

fn note(what: &str) -> Markup {
    html! { div.note.soft.small { (text::line(what, 1_000)) } }
}

fn check(run: &CheckRun<'_>) -> Markup {
    let check = run.result;
    let (class, tag, word) = if check.passed {
        ("ok", "good", "passed")
    } else {
        ("no", "bad", "failed")
    };
    html! {
        div class={ "check " (class) } {
            div.row {
                span class={ "tag " (tag) } { (word) }
                span { "check " b { (safe(&check.name)) } }
                code.soft { (text::line(&check.what, 160)) }
                @if run.before { span.tag { "before the first request" } }
                span.soft.small.push { (text::duration(check.took_ms)) }
            }
            @if !check.passed && !check.message.is_empty() { p.small { (safe(&check.message)) } }
            @if !check.output.trim().is_empty() { details { summary.small.soft { "output" } pre { (safe(&check.output)) } } }
        }
    }
}

fn turn(sum: &RunSummary<'_>, turn: &TurnSummary<'_>, each: usize) -> Markup {
    let usage = turn.reply.usage;
    let said = turn.reply.text();
    let thoughts: Vec<&str> = turn.reply.parts.iter().filter_map(thought).collect();
    html! {
        div.turn.card {
            div.row.soft.small {
                span { "Turn " (turn.n) }
                span { (text::grouped(usage.input)) " in, " (text::grouped(usage.output)) " out" }
                @if let Some(cost) = turn.cost_micros { span { (text::dollars(cost)) } }
                span.push { (text::duration(turn.took_ms)) }
            }
            @if !thoughts.is_empty() { details { summary.small.soft { "reasoning" } div.text.soft { (safe(&excerpt(&thoughts.join("\n"), each))) } } }
            @if !said.trim().is_empty() { div.text { (safe(&excerpt(&said, 32 * 1024))) } }
            @for one in sum.calls_of(turn) { (call(one, each)) }
        }
    }
}

fn thought(part: &Part) -> Option<&str> {
    match part {
        Part::Thought { text } => Some(text),
        _ => None,
    }
}

fn call(call: &CallSummary<'_>, each: usize) -> Markup {
    let (decision, status) = (call.decision(), call.status());
    let title = call.title();
    let told = decision.is_some_and(|decision| decision != "allow");
    let colour = match decision {
        Some("deny") => "bad",
        Some("suspend") => "wait",
        _ => "info",
    };
    html! {
        details.call id=(call.call.id) open[call.is_waiting()] {
            summary {
                code.soft { (call.call.id) }
                b { (safe(call.tool())) }
                @if title != call.tool() { span.what.mono { (text::line(title, 200)) } }
                @if let (true, Some(decision)) = (told, decision) { span class={ "tag " (colour) } { (decision) } }
                @if status != "success" && !matches!(decision, Some("deny" | "suspend")) { span.tag { (status.replace('_', " ")) } }
                span.soft.small.push { (outcome(call)) }
            }
            (ruled(call))
            @if call.modified().is_some() {
                p.small.soft { "as asked" } (args(&call.call.args))
                p.small.soft { "as rewritten" }
            }
            (args(call.args()))
            @if let Some(output) = call.output { (came_of(output, each)) }
            @else if let Some(preview) = call.decided().and_then(|decided| decided.preview.as_ref()) { (diff::lines(&preview.diff, 400)) }
        }
    }
}

/// The right-aligned end of a call's line.
fn outcome(call: &CallSummary<'_>) -> String {
    let Some(output) = call.output else {
        return String::new();
    };
    let how = match &output.exit {
        Some(exit) => text::exit(exit),
        None => text::line(&output.summary, 90),
    };
    format!("{how} · {}", text::duration(call.took_ms))
}

/// Limit of programs of one call that are listed.
const EXECS: usize = 200;

fn ruled(call: &CallSummary<'_>) -> Markup {
    let ruling = call.ruling();
    html! {
        @if let Some(denial) = call.denial() {
            p.small { "Denied by " code { (safe(denial.rule.unwrap_or("default"))) } " · " (safe(denial.code)) " · " (safe(denial.reason)) }
            @if !denial.fix.is_empty() { p.small.soft { (safe(denial.fix)) } }
        } @else if let Some(ruling) = ruling {
            p.small.soft { (ruling.decision.as_str()) " by " code { (safe(ruling.rule.as_deref().unwrap_or("default"))) } " · " (safe(&ruling.code)) " · " (safe(&ruling.reason)) }
        }
        @for deferred in ruling.iter().flat_map(|ruling| &ruling.deferred) {
            p.small.soft { "ruled at exec: " code { (safe(&deferred.program)) } " · " (safe(&deferred.reason)) }
        }
        @if !call.execs.is_empty() { details { summary.small.soft { (counted(call.execs.len(), "program")) " judged at exec" } ul {
            @for exec in call.execs.iter().take(EXECS) { li.small {
                code { (safe(&text::line(&exec.argv.join(" "), 300))) }
                @match &exec.denied {
                    None => { span.soft { " allowed" } },
                    Some(denial) => { span.tag.bad { "denied" } " " (safe(&denial.code)) },
                }
            } }
        } } }
        @if let Some((allow, by)) = call.approval {
            p.small { @if allow { "Approved" } @else { "Denied" } " by " (safe(by)) }
        }
    }
}

/// The result of a call: the display for people if there is one, otherwise the text for the model.
fn came_of(output: &ToolOutput, each: usize) -> Markup {
    html! {
        @match &output.display {
            Display::Diff(diff) => { (diff::lines(&diff.diff, 400)) },
            Display::Todos { todos } => { ul.todos { @for one in todos { li { (mark(one)) " " (safe(&one.description)) } } } },
            Display::Text { text } if !text.trim().is_empty() => { pre { (safe(&excerpt(text, each))) } },
            Display::Text { .. } => {
                @for content in &output.content { @match content {
                    ToolContent::Text { text } => { @if !text.trim().is_empty() { pre { (safe(&excerpt(text, each))) } } },
                    ToolContent::Media(media) => { p.small.soft { (placeholder(media)) } },
                } }
            },
        }
        @if let Some(kept) = &output.kept {
            p.small.soft { (text::grouped(kept.bytes)) " bytes in all, kept in the run directory as " code { "results/" (safe(&kept.id)) } }
        }
    }
}

fn mark(todo: &Todo) -> &'static str {
    match todo.status.as_str() {
        "completed" => "✓",
        "in_progress" => "▸",
        "cancelled" => "✗",
        "blocked" => "!",
        _ => "○",
    }
}
