//! `report.html`: one self-contained page without scripts, fonts, images or requests. All text from outside is escaped.

mod diff;
mod timeline;

use super::html_head;
use super::result::{self, OutputFacts, RuledOut, Waiting};
use super::summary::{RunSummary, StepSummary};
use super::text;
use crate::base::outcome::Verdict;
use crate::base::quote::{counted, excerpt};
use maud::{DOCTYPE, Markup, html};
use serde_json::Value;

const STYLE: &str = include_str!("html/style.css");

/// The whole page. `patch` is the text of `changes.patch`, where there is one.
pub fn page(sum: &RunSummary<'_>, ending: &OutputFacts, patch: Option<&[u8]>) -> String {
    let title = format!("{}: {}", text::line(sum.recipe(), 80), sum.outcome.verdict.as_str());
    let page = html! {
        (DOCTYPE)
        html lang="en" {
            (html_head::head(&title, STYLE, None))
            body {
                (head(sum))
                main {
                    (attention(sum, ending))
                    (answer(sum))
                    (timeline::steps(sum))
                    (changes(sum, ending, patch))
                    (figures(sum))
                }
                (foot(sum, ending))
            }
        }
    };
    page.into_string()
}

/// The CSS class for a verdict's colour.
fn colour(verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::Passed | Verdict::NoChange => "good",
        Verdict::Suspended | Verdict::Incomplete | Verdict::Cancelled | Verdict::Budget => "wait",
        _ => "bad",
    }
}

/// Removes control characters from untrusted text; the HTML template escapes the markup.
fn safe(foreign: &str) -> String {
    text::plain(foreign).into_owned()
}

fn head(sum: &RunSummary<'_>) -> Markup {
    let verdict = sum.outcome.verdict;
    html! {
        header { div {
            div.title {
                h1 { (safe(sum.recipe())) }
                span class={ "pill " (colour(verdict)) } { (verdict.as_str().replace('_', " ")) }
                @if sum.outcome.partial { span.pill.wait { "partial" } }
                @if sum.recorded { span.pill.info { "recorded replies" } }
            }
            @if !sum.outcome.message.is_empty() { p.lead { (safe(&sum.outcome.message)) } }
            dl.facts {
                (fact("Model", &text::line(sum.model, 120)))
                (fact("Duration", &text::duration(sum.duration_ms())))
                (fact("Turns and calls", &format!("{} / {}", sum.replies(), sum.calls.len())))
                (fact("Tokens", &text::grouped(sum.tokens)))
                (fact("Cost", &cost(sum.cost_micros, sum.unpriced)))
                (fact("Changes", &changed(sum)))
                (fact("Sandbox", &sum.sandbox.map_or_else(|| "not determined".to_owned(), |level| text::line(&level.level, 40))))
                (fact("Base", &base(sum)))
                (fact("Started", &sum.started.map(|at| at.strftime("%Y-%m-%d %H:%M:%S UTC").to_string()).unwrap_or_default()))
                (fact("Run", sum.run()))
            }
            nav {
                @if sum.calls.iter().any(|call| call.denial().is_some() || call.is_waiting()) { a href="#attention" { "Rulings" } }
                a href="#answer" { "Answer" }
                a href="#timeline" { "Timeline" }
                a href="#changes" { "Changes" }
                a href="#figures" { "Tokens and cost" }
            }
        } }
    }
}

fn fact(name: &str, value: &str) -> Markup {
    html! { div { dt { (name) } dd { (value) } } }
}

fn cost(micros: u64, unpriced: bool) -> String {
    let dollars = text::dollars(micros);
    if unpriced {
        format!("at least {dollars}")
    } else {
        dollars
    }
}

fn changed(sum: &RunSummary<'_>) -> String {
    let Some(patch) = sum.patch.filter(|patch| patch.blob.is_some()) else {
        return "none".to_owned();
    };
    let (added, removed) = sum.changed_lines();
    format!("{}, +{added} −{removed}", counted(patch.files.len(), "file"))
}

fn base(sum: &RunSummary<'_>) -> String {
    let Some(base) = sum.head.map(|head| &head.base) else {
        return "unknown".to_owned();
    };
    match &base.commit {
        Some(commit) => text::head(commit, 12).to_owned(),
        None => "no commit".to_owned(),
    }
}

/// The section that a person must see first: waiting calls, denied calls, warnings, missing servers.
fn attention(sum: &RunSummary<'_>, ending: &OutputFacts) -> Markup {
    let (waiting, denied) = (result::suspended(sum, ending), result::denied(sum));
    let warnings = result::warnings(sum);
    html! {
        @if !waiting.is_empty() || !denied.is_empty() || !warnings.is_empty() || !sum.unruled.is_empty() { section #attention {
            @for call in &waiting { (waits(call)) }
            @for call in &denied { (ruled_out(call)) }
            @if !sum.unruled.is_empty() { (unruled(sum)) }
            @for warning in &warnings {
                div.card."edge-wait" { div.row {
                    span.tag.wait { "warning" }
                    span { (safe(&warning.message)) }
                    span.soft.small { (safe(&warning.code)) }
                } }
            }
        } }
    }
}

fn waits(call: &Waiting) -> Markup {
    html! {
        div.card."edge-wait" {
            div.row {
                span.tag.wait { "waits for a person" }
                a href={ "#" (call.call) } { code { (call.call) } }
                h2 { (safe(&call.title)) }
            }
            p { (safe(&call.reason)) " " span.soft.small { (safe(call.rule.as_deref().unwrap_or("default"))) " · " (safe(&call.code)) } }
            (args(&call.args))
            pre.do { (call.approve) }
        }
    }
}

fn ruled_out(call: &RuledOut) -> Markup {
    html! {
        div.card."edge-bad" {
            div.row {
                span.tag.bad { "denied" }
                a href={ "#" (call.call) } { code { (call.call) } }
                h2 { (safe(&call.title)) }
            }
            p { (safe(&call.reason)) " " span.soft.small { (safe(call.rule.as_deref().unwrap_or("default"))) " · " (safe(&call.code)) } }
            @if !call.fix.is_empty() { p.small { span.soft { "Fix: " } (safe(&call.fix)) } }
            @if let Some(ran) = &call.ran {
                p.small { span.soft { "Program: " } code { (safe(&call.argv.join(" "))) } " in " code { (safe(call.cwd.as_deref().unwrap_or("."))) } }
                @for ran in ran { p.small { span.soft { "Had run before: " } code { (safe(&ran.argv.join(" "))) } } }
            }
        }
    }
}

/// Limit of changes that are listed.
const UNRULED: usize = 200;

/// Changes that no rule allows.
fn unruled(sum: &RunSummary<'_>) -> Markup {
    html! {
        div.card."edge-wait" {
            div.row { span.tag.wait { "changes that no rule allows" } }
            p.small { (safe(&sum.unruled_line())) }
            details { summary.small.soft { "all of them" } ul {
                @for unruled in sum.unruled.iter().take(UNRULED) { li.small {
                    code { (safe(&unruled.path)) } " " (unruled.change.as_str()) ", "
                    @if unruled.left { "left out of the patch" } @else if unruled.restored { "put back" } @else { "NOT put back" }
                    span.soft { " · " (safe(unruled.rule.as_deref().unwrap_or("no rule"))) " · " (safe(&unruled.code)) }
                } }
            } }
        }
    }
}

/// Arguments of a call: short ones beside their names, long texts as blocks.
fn args(args: &Value) -> Markup {
    let Some(fields) = args.as_object() else {
        return html! { pre { (indented(args)) } };
    };
    html! {
        div.args { @for (name, value) in fields {
            div.key { (text::line(name, 80)) }
            @match value {
                Value::String(long) if long.len() > 120 || long.contains('\n') => { div {} pre { (safe(&excerpt(long, 8 * 1024))) } },
                Value::String(short) => { code.val { (safe(short)) } },
                Value::Array(_) | Value::Object(_) => { div {} pre { (indented(value)) } },
                plain => { code.val { (plain) } },
            }
        } }
    }
}

/// JSON indented for reading, limited in length.
fn indented(value: &Value) -> String {
    safe(&excerpt(&format!("{value:#}"), 8 * 1024))
}

fn answer(sum: &RunSummary<'_>) -> Markup {
    let answer = sum.answer();
    html! {
        section #answer {
            h2 { "Answer" }
            div.card {
                @if answer.is_empty() { p.soft { "There is no final answer." } }
                @else { div.text { (safe(&excerpt(&answer, 64 * 1024))) } }
                @if let Some(output) = sum.output {
                    details { summary { "Validated JSON" } pre { (indented(output)) } }
                }
            }
        }
    }
}

fn changes(sum: &RunSummary<'_>, ending: &OutputFacts, patch: Option<&[u8]>) -> Markup {
    let files = sum.patch.map_or(&[][..], |patch| &patch.files);
    html! {
        section #changes {
            h2 { "Changes" }
            @if files.is_empty() { p.soft { "The run changed nothing." } }
            @else {
                div.card.scroll { table {
                    thead { tr { th { "File" } th { "Change" } th.n { "Added" } th.n { "Removed" } } }
                    tbody { @for file in files { tr {
                        td.path { code { @if let Some(from) = &file.from { (safe(from)) " → " } (safe(&file.path)) } }
                        td { (safe(&file.kind)) }
                        @if let (Some(added), Some(removed)) = (file.added, file.removed) {
                            td.n.plus { "+" (added) }
                            td.n.minus { "−" (removed) }
                        } @else { td.n.soft colspan="2" { "binary" } }
                    } } }
                } }
                @if let Some(path) = ending.artefacts.get("patch") { p.small.soft { "Patch: " code { (safe(path)) } } }
                @if let Some(patch) = patch { (diff::patch(patch)) }
            }
        }
    }
}

fn figures(sum: &RunSummary<'_>) -> Markup {
    html! {
        section #figures {
            h2 { "Tokens and cost" }
            div.card.scroll { table {
                thead { tr { th { "Step" } th.n { "Turns" } th.n { "Input" } th.n { "Cached" } th.n { "Output" } th.n { "Reasoning" } th.n { "Cost" } th.n { "Time" } } }
                tbody {
                    @for step in &sum.steps { (figures_of(step)) }
                    tr.sum {
                        td { "Run" }
                        td.n { (sum.replies()) }
                        @for figure in [sum.usage.input, sum.usage.cached, sum.usage.output, sum.usage.reasoning] { td.n { (text::grouped(figure)) } }
                        td.n { (cost(sum.cost_micros, sum.unpriced)) }
                        td.n { (text::duration(sum.duration_ms())) }
                    }
                }
            } }
        }
    }
}

fn figures_of(step: &StepSummary<'_>) -> Markup {
    let usage = step.usage;
    html! { tr {
        td { (safe(step.id)) }
        td.n { (step.turns) }
        @for figure in [usage.input, usage.cached, usage.output, usage.reasoning] { td.n { (text::grouped(figure)) } }
        td.n { (text::dollars(step.cost_micros)) }
        td.n { (text::duration(step.duration_ms())) }
    } }
}

fn foot(sum: &RunSummary<'_>, ending: &OutputFacts) -> Markup {
    html! {
        footer {
            p { "overnight " (sum.head.map_or("", |head| &head.version)) " · exit code " (ending.exit_code) " · every line of this page comes from the run's journal" }
            @if let Some(head) = sum.head {
                p.mono { "plan " (head.plan_digest) }
                @for policy in &head.policies { p.mono { "policy " (safe(&policy.name)) " " (policy.digest) } }
            }
        }
    }
}
