//! Renders what a reviewer needs to answer a suspended run: each call with its arguments, its diff, the rule, and the
//! commands to answer with.

use super::markdown::{code, escaped, fenced};
use super::result::{self, OutputFacts};
use super::summary::{CallSummary, RunSummary};
use super::text;
use crate::base::event::Decided;
use crate::base::quote::counted;
use serde_json::{Value, json};
use std::fmt::Write;

/// The value of `schema`.
pub const SCHEMA: &str = "overnight/suspension/v1";

/// For programs, as JSON: `schema`, `run`, `recipe`, `model` and `calls[]`, which is empty when no call waits.
pub fn json(sum: &RunSummary<'_>, ending: &OutputFacts) -> Value {
    let run = result::resume_name(sum, ending);
    let one = |call: &CallSummary<'_>| {
        let ruling = call.ruling();
        json!({
            "call": call.call.id,
            "tool": call.tool(),
            "title": call.title(),
            "args": call.args(),
            "step": sum.steps.get(call.step).map(|step| step.id),
            "rule": ruling.and_then(|ruling| ruling.rule.as_deref()),
            "code": ruling.map(|ruling| &ruling.code),
            "reason": ruling.map(|ruling| &ruling.reason),
            "fix": ruling.map(|ruling| &ruling.fix),
            "access": call.decided().map(|decided| &decided.access),
            "diff": preview(call).map(|diff| json!({"path": diff.path, "diff": diff.diff, "added": diff.added, "removed": diff.removed})),
            "said": text_before(sum, call),
            "digest": result::approval_digest(sum, call),
            "approve": result::approve(sum, call, &run),
            "deny": format!("overnight resume {run} --deny {}", call.call.id),
        })
    };
    json!({
        "schema": SCHEMA,
        "run": sum.run(),
        "recipe": sum.recipe(),
        "model": sum.model,
        "suspended": sum.ended,
        "calls": sum.suspended().map(one).collect::<Vec<_>>(),
    })
}

/// For people, as Markdown; untrusted text is never markup.
pub fn markdown(sum: &RunSummary<'_>, ending: &OutputFacts) -> String {
    let run = result::resume_name(sum, ending);
    let waiting = sum.suspended().count();
    let recipe = escaped(&text::line(sum.recipe(), 120));
    let mut out = format!("## {recipe}: {} for a person\n\n", verb(waiting));
    let _ = writeln!(out, "Run {}, model {}.\n", code(sum.run()), code(sum.model));
    for call in sum.suspended() {
        let id = &call.call.id;
        let _ = writeln!(
            out,
            "### {} {} {}\n",
            code(id.as_str()),
            code(call.tool()),
            code(call.title())
        );
        if let Some(ruling) = call.ruling() {
            let rule = ruling.rule.as_deref().unwrap_or("default");
            let reason = escaped(&text::line(&ruling.reason, 600));
            let _ = writeln!(out, "{reason} (rule {}, {})\n", code(rule), code(&ruling.code));
        }
        let said = text_before(sum, call);
        if !said.trim().is_empty() {
            let _ = writeln!(out, "The model said: {}\n", escaped(&text::line(&said, 1_000)));
        }
        fenced(&mut out, "json", &format!("{:#}", call.args()));
        if let Some(diff) = preview(call) {
            fenced(&mut out, "diff", &diff.diff);
        }
        fenced(
            &mut out,
            "sh",
            &format!(
                "{}\novernight resume {run} --deny {id}",
                result::approve(sum, call, &run)
            ),
        );
    }
    out
}

fn verb(waiting: usize) -> String {
    let s = if waiting == 1 { "s" } else { "" };
    format!("{} wait{s}", counted(waiting, "call"))
}

fn preview<'a>(call: &CallSummary<'a>) -> Option<&'a crate::base::call::FileDiff> {
    call.decided().and_then(|decided: &Decided| decided.preview.as_ref())
}

/// The model's text in the reply that made the call.
fn text_before(sum: &RunSummary<'_>, call: &CallSummary<'_>) -> String {
    let asked = |turn: &&super::summary::TurnSummary<'_>| {
        let mut calls = turn.reply.calls();
        calls.any(|asked| asked.id == call.call.id)
    };
    let turn = sum.turns.iter().rev().find(asked);
    turn.map(|turn| turn.reply.text()).unwrap_or_default()
}
