//! Renders a plan for people before a run: steps, checks, limits, tools. Pure.

use super::plan::{Check, CheckWhat, Expect, McpServer, OnDeny, Plan, PlanStep, StepWork};
use super::template::{self, StepOutputs, StepValues};
use crate::base::budget::Budget;
use crate::base::quote::counted;
use crate::diag::units::show_duration;
use serde_json::{Value, json};
use std::fmt::Write as _;

/// The plan as text. Outputs of steps do not exist yet and are shown as `{{ steps.ID.output }}`.
pub fn text(plan: &Plan) -> String {
    let mut out = format!("recipe {}\n", plan.name);
    if !plan.description.is_empty() {
        line(&mut out, "description", plan.description.trim());
    }
    if let Some(model) = &plan.model {
        let all: Vec<&str> = std::iter::once(model)
            .chain(&plan.fallback)
            .map(String::as_str)
            .collect();
        line(&mut out, "model", &all.join(", then "));
    }
    if let Some(most) = plan.model_settings.max_output_tokens {
        line(&mut out, "longest reply", &format!("{most} tokens"));
    }
    if let Some(ms) = plan.model_settings.first_byte_timeout_ms {
        line(&mut out, "first byte within", &show_duration(ms));
    }
    line(&mut out, "limits", &limits(&plan.budget));
    line(&mut out, "expects", expect(plan.expect));
    line(
        &mut out,
        "on a denial",
        match plan.on_deny {
            OnDeny::Tell => "the model gets the denial and continues",
            OnDeny::Stop => "the run ends",
        },
    );
    for (name, value) in &plan.values {
        line(&mut out, &format!("{name} ="), &super::params::show(value));
    }
    if plan.input.is_some() || !plan.input_format.is_json() {
        line(
            &mut out,
            "input",
            &super::input::described(plan.input.as_ref(), plan.input_format),
        );
    }
    list(&mut out, "context", &plan.context);
    list(&mut out, "skills", &plan.skills);
    list(&mut out, "kept by --isolate", &plan.isolate_keep);
    if let Some(only) = &plan.tools.include {
        list(&mut out, "only the tools", only);
    }
    if let Some(only) = &plan.tools.builtin {
        list(&mut out, "only the built-in tools", only);
    }
    list(&mut out, "without the tools", &plan.tools.exclude);
    if let Some(only) = &plan.tools.shell.only {
        list(&mut out, "only the commands", only);
    }
    list(&mut out, "without the commands", &plan.tools.shell.never);
    list(&mut out, "ignored paths", &plan.tools.ignore);
    for (name, server) in &plan.tools.mcp_servers {
        line(&mut out, &format!("MCP server {name}"), &server_line(server));
    }
    if let Some(discovery) = &plan.tools.discovery {
        line(
            &mut out,
            "discovery",
            &format!("{} (called by {})", discovery.command, discovery.call),
        );
    }
    for (step, rendered) in plan.steps.iter().zip(rendered(plan)) {
        step_text(&mut out, step, &rendered);
    }
    if plan.response.is_some() {
        line(&mut out, "answer", "JSON that matches the response schema");
    }
    out
}

/// The plan as JSON: as it is journaled, plus `rendered` with the text of each step.
pub fn json(plan: &Plan) -> Value {
    let steps: Vec<Value> = plan
        .steps
        .iter()
        .zip(rendered(plan))
        .map(|(step, rendered)| json!({"id": step.id, "work": rendered.work, "checks": rendered.checks}))
        .collect();
    let mut value = serde_json::to_value(plan).unwrap_or_default();
    if let Some(object) = value.as_object_mut() {
        object.insert("rendered".to_owned(), Value::Array(steps));
    }
    value
}

/// A step's texts with all values except the outputs of steps.
struct Rendered {
    work: String,
    /// For each check: its command, or its subject.
    checks: Vec<String>,
}

fn rendered(plan: &Plan) -> Vec<Rendered> {
    let mut outputs = StepOutputs::new();
    let mut all = Vec::new();
    for step in &plan.steps {
        let scope = plan.scope(&outputs);
        let command = |text: &str| template::render_command(text, &scope).unwrap_or_else(|_| text.to_owned());
        let work = match &step.work {
            StepWork::Prompt { template, .. } => {
                template::render(template, &scope).unwrap_or_else(|_| template.clone())
            }
            StepWork::Run { command: text, .. } => command(text),
        };
        let checks = step.checks.iter().map(|check| match &check.what {
            CheckWhat::Run { command: text, .. } => command(text),
            CheckWhat::AnswerRun { command: text, .. } => format!("the answer on stdin of: {}", command(text)),
            _ => check_what(check),
        });
        all.push(Rendered {
            work,
            checks: checks.collect(),
        });
        let output = format!("{{{{ steps.{}.output }}}}", step.id);
        outputs.insert(step.id.0.clone(), StepValues::of_output(output));
    }
    all
}

fn step_text(out: &mut String, step: &PlanStep, rendered: &Rendered) {
    let _ = writeln!(out, "step {}", step.id);
    if let Some(when) = &step.when {
        line(out, "only when", when);
    }
    match &step.work {
        StepWork::Prompt { mcp, .. } => {
            if let Some(mcp) = mcp {
                line(
                    out,
                    "prompt",
                    &format!("`{}` of the MCP server {}", mcp.name, mcp.server),
                );
                for (name, value) in &mcp.arguments {
                    line(out, &format!("argument {name}"), value);
                }
            }
            let name = if mcp.is_some() { "appended" } else { "prompt" };
            if mcp.is_none() || !rendered.work.is_empty() {
                line(out, name, rendered.work.trim_end());
            }
        }
        StepWork::Run {
            timeout_ms,
            allow_failure,
            ..
        } => {
            line(out, "run", rendered.work.trim_end());
            let failure = if *allow_failure { ", may fail" } else { "" };
            line(out, "time", &format!("at most {}{failure}", show_duration(*timeout_ms)));
        }
    }
    for (check, what) in step.checks.iter().zip(&rendered.checks) {
        line(out, &format!("check {}", check.name), what);
    }
    if step.retries > 0 {
        line(out, "retries", &step.retries.to_string());
    }
    if step.expect != Expect::Any {
        line(out, "expects", expect(step.expect));
    }
    if step.skip_if_green {
        line(out, "skipped", "when its checks pass before it");
    }
    if let Some(budget) = &step.budget {
        line(out, "limits", &limits(budget));
    }
}

fn check_what(check: &Check) -> String {
    match &check.what {
        CheckWhat::Run { command, .. } | CheckWhat::AnswerRun { command, .. } => command.clone(),
        CheckWhat::AnswerSchema { .. } if check.name == super::model::FINDINGS => {
            "the answer consists of findings".to_owned()
        }
        CheckWhat::AnswerSchema { .. } => "the answer matches its schema".to_owned(),
        CheckWhat::File { path, contains } => match contains {
            Some(text) => format!("{path} holds \"{text}\""),
            None => format!("{path} exists"),
        },
        CheckWhat::Changed(limits) => limits.described(),
    }
}

fn server_line(server: &McpServer) -> String {
    let required = if server.required { " (required)" } else { "" };
    let command = server
        .command
        .iter()
        .chain(&server.args)
        .cloned()
        .collect::<Vec<_>>()
        .join(" ");
    let writes = if server.writes_tree {
        " (may write the tree)"
    } else {
        ""
    };
    format!("{}{required}{writes}", server.url.as_ref().unwrap_or(&command))
}

fn expect(expect: Expect) -> &'static str {
    match expect {
        Expect::Change => "a change",
        Expect::NoChange => "no change",
        Expect::Any => "any outcome",
    }
}

fn limits(budget: &Budget) -> String {
    let mut parts = Vec::new();
    parts.extend(budget.turns.map(|turns| counted(turns, "turn")));
    parts.extend(budget.tokens.map(|tokens| counted(tokens, "token")));
    parts.extend(
        budget
            .cost_micros
            .map(|cost| format!("{}.{:02} USD", cost / 1_000_000, cost % 1_000_000 / 10_000)),
    );
    parts.extend(budget.wall_ms.map(|ms| format!("{} wall clock", show_duration(ms))));
    parts.extend(
        budget
            .calls
            .iter()
            .map(|(tool, limit)| format!("{} of {tool}", counted(*limit, "call"))),
    );
    parts.join(", ")
}

fn list(out: &mut String, name: &str, items: &[String]) {
    if !items.is_empty() {
        line(out, name, &items.join(", "));
    }
}

/// `  name: value`; further lines of the value are indented below it.
fn line(out: &mut String, name: &str, value: &str) {
    let colon = if name.ends_with('=') { "" } else { ":" };
    if value.contains('\n') {
        let _ = writeln!(out, "  {name}{colon}");
        for row in value.lines() {
            let _ = writeln!(out, "    {}", crate::diag::render::escape(row));
        }
    } else {
        let _ = writeln!(out, "  {name}{colon} {}", crate::diag::render::escape(value));
    }
}
