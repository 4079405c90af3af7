//! `transcript.json`: the run in the Agent Trajectory Interchange Format (ATIF) v1.7. Data without a field in the
//! format is under `extra.overnight`. Media are named, never embedded. The transcript of a replay equals that of the
//! recorded run except for times and the run's id; `result.json` says that its replies were recorded.

mod form;

use super::result::{self, OutputFacts};
use super::summary::{CallSummary, Moment, RunSummary, StepSummary, TurnSummary};
use super::text;
use crate::base::call::{Display, ToolSpec};
use crate::base::content::{Media, ToolContent};
use crate::base::message::{Message, Part};
use form::{Agent, Call, Extra, FinalMetrics, Metrics, Observation, Outcome, Source, Trajectory, TranscriptStep};
use serde_json::{Value, json};

/// The system prompt and the declared tools. They are not in the events: the ledger stores them as a blob.
#[derive(Clone, Copy, Debug, Default)]
pub struct DeclaredPrompt<'a> {
    /// The system prompt.
    pub system: Option<&'a str>,
    pub tools: &'a [ToolSpec],
}

/// The whole document, indented, with a newline.
pub fn json(sum: &RunSummary<'_>, declared: DeclaredPrompt<'_>, ending: &OutputFacts) -> String {
    let steps = steps(sum, declared);
    let document = Trajectory {
        schema_version: "ATIF-v1.7",
        session_id: some(sum.run()),
        trajectory_id: some(sum.run()),
        agent: agent(sum, declared),
        final_metrics: FinalMetrics {
            total_prompt_tokens: sum.usage.input,
            total_completion_tokens: sum.usage.output,
            total_cached_tokens: sum.usage.cached,
            total_cost_usd: result::usd(sum.cost_micros),
            total_steps: steps.len(),
        },
        extra: extra(whole(sum, ending)),
        steps,
    };
    // Keys are strings and numbers are finite, so serializing cannot fail.
    let mut text = serde_json::to_string_pretty(&document).unwrap_or_default();
    text.push('\n');
    text
}

fn agent(sum: &RunSummary<'_>, declared: DeclaredPrompt<'_>) -> Agent {
    let tool = |spec: &ToolSpec| {
        json!({
            "type": "function",
            "function": {"name": spec.name, "description": spec.description, "parameters": spec.parameters},
        })
    };
    Agent {
        name: "overnight",
        version: sum.head.map_or("unknown", |head| &head.version).to_owned(),
        model_name: some(sum.speaker()),
        tool_definitions: Some(declared.tools.iter().map(tool).collect::<Vec<_>>()).filter(|all| !all.is_empty()),
    }
}

/// Data of the whole run for which the format has no field.
fn whole(sum: &RunSummary<'_>, ending: &OutputFacts) -> Value {
    let result = result::result(sum, ending);
    json!({
        "verdict": result.verdict,
        "reason": result.reason,
        "message": result.message,
        "exit_code": result.exit_code,
        "partial": result.partial,
        "recipe": result.recipe,
        "plan": sum.head.map(|head| head.plan_digest.as_str()),
        "policies": result.policies,
        "tool_definitions": sum.equipped.map(|equipped| equipped.definitions.as_str()),
        "base": result.base,
        "base_tree": result.base_tree,
        "tree": sum.patch.map(|patch| patch.own_tree()),
        "patch": sum.patch.and_then(|patch| patch.blob.as_ref()).map(|blob| json!({
            "path": "changes.patch",
            "sha256": blob,
        })),
        "changes": result.changes,
        "sandbox": result.sandbox,
        "mcp_servers": result.mcp_servers,
        "steps": result.steps,
        "denied": result.denied,
        "suspended": result.suspended,
        "unruled": result.unruled,
        "warnings": result.warnings,
        "unpriced": result.unpriced,
        "output": result.output,
    })
}

fn extra(value: Value) -> Option<Extra> {
    let empty = value.as_object().is_none_or(serde_json::Map::is_empty);
    (!empty).then_some(Extra { overnight: value })
}

fn some(text: &str) -> Option<String> {
    (!text.is_empty()).then(|| text.to_owned())
}

/// All steps of the document. A step of the format is a message; the recipe's step is named in `extra.overnight.step`.
fn steps(sum: &RunSummary<'_>, declared: DeclaredPrompt<'_>) -> Vec<TranscriptStep> {
    let mut steps = Vec::new();
    let started = sum.started.or(sum.ended);
    if let Some(system) = declared.system {
        steps.push(TranscriptStep::plain(
            Source::System,
            started,
            system.to_owned(),
            Value::Null,
        ));
    }
    for step in &sum.steps {
        for moment in &step.moments {
            steps.extend(said(sum, step, moment));
        }
    }
    if steps.is_empty() {
        // The format requires at least one step; here it says how a run ended that made no request.
        steps.push(TranscriptStep::plain(
            Source::System,
            started,
            sum.outcome.message.clone(),
            Value::Null,
        ));
    }
    for (i, step) in steps.iter_mut().enumerate() {
        step.step_id = i + 1;
    }
    steps
}

/// The step for one timeline entry, if it is a message or an action.
fn said(sum: &RunSummary<'_>, step: &StepSummary<'_>, moment: &Moment<'_>) -> Option<TranscriptStep> {
    let id = step.id;
    match moment {
        Moment::Prompted { at, message, why } => {
            let extra = json!({"step": id, "why": why});
            Some(TranscriptStep::plain(Source::User, Some(*at), spoken(message), extra))
        }
        Moment::Turn(i) => sum.turns.get(*i).map(|turn| agent_step(sum, id, turn)),
        Moment::Ran {
            at,
            command,
            exit,
            output,
            took_ms,
        } => {
            let extra = json!({"step": id, "command": command, "exit": exit, "took_ms": took_ms});
            let mut ran = TranscriptStep::plain(Source::System, Some(*at), format!("$ {command}"), extra);
            ran.observation = Some(Observation::of(None, (*output).to_owned(), None));
            Some(ran)
        }
        Moment::Checked(i) => step.checks.get(*i).map(|run| {
            let check = run.result;
            let word = if check.passed { "passed" } else { "failed" };
            let message = format!("check {} {word}: {}", check.name, check.message);
            let extra = json!({"step": id, "check": check.name, "passed": check.passed, "attempt": run.attempt,
                "what": check.what, "exit": check.exit, "took_ms": check.took_ms});
            let mut made = TranscriptStep::plain(Source::System, Some(run.at), message, extra);
            if !check.output.is_empty() {
                made.observation = Some(Observation::of(None, check.output.clone(), None));
            }
            made
        }),
        Moment::Compacted { at, why } => {
            let extra = json!({"step": id, "compacted": why});
            let message = format!("the history was shortened: {why}");
            Some(TranscriptStep::plain(Source::System, Some(*at), message, extra))
        }
        Moment::Resumed { at, by, model } => {
            let extra = json!({"step": id, "resumed_by": by, "model": model});
            Some(TranscriptStep::plain(
                Source::System,
                Some(*at),
                "the run was resumed".to_owned(),
                extra,
            ))
        }
        Moment::Attempt { .. } | Moment::Retried { .. } | Moment::Judged { .. } => None,
    }
}

/// One reply with its calls and their results.
fn agent_step(sum: &RunSummary<'_>, id: &str, turn: &TurnSummary<'_>) -> TranscriptStep {
    let usage = turn.reply.usage;
    let extra = json!({"step": id, "turn": turn.n, "stop": turn.reply.stop, "took_ms": turn.took_ms});
    let mut step = TranscriptStep::plain(Source::Agent, Some(turn.at), words(&turn.reply.parts), extra);
    let thoughts: Vec<&str> = turn.reply.parts.iter().filter_map(thought).collect();
    step.reasoning_content = some(&thoughts.join("\n"));
    step.model_name = some(&turn.reply.model);
    step.llm_call_count = Some(1);
    step.metrics = Some(Metrics {
        prompt_tokens: usage.input,
        completion_tokens: usage.output,
        cached_tokens: usage.cached,
        cost_usd: turn.cost_micros.map(result::usd),
        extra: extra_figures(usage.reasoning, usage.cache_write),
    });
    let calls = sum.calls_of(turn);
    if !calls.is_empty() {
        step.tool_calls = Some(calls.iter().map(asked).collect());
    }
    let results: Vec<Outcome> = calls.iter().filter_map(came_of).collect();
    if !results.is_empty() {
        step.observation = Some(Observation { results });
    }
    step
}

fn extra_figures(reasoning: u64, cache_write: u64) -> Option<Extra> {
    extra(json!({"reasoning_tokens": reasoning, "cache_write_tokens": cache_write}))
}

fn thought(part: &Part) -> Option<&str> {
    match part {
        Part::Thought { text } => Some(text),
        _ => None,
    }
}

fn asked(call: &CallSummary<'_>) -> Call {
    let ruling = call.ruling();
    let arguments = match &call.call.args {
        Value::Object(_) => call.call.args.clone(),
        // The format requires an object; a model may write anything.
        other => json!({"value": other}),
    };
    Call {
        tool_call_id: call.call.id.to_string(),
        function_name: call.call.tool.clone(),
        arguments,
        extra: extra(json!({
            "tool": call.tool(),
            "title": call.title(),
            "decision": call.decision(),
            "rule": ruling.map(|ruling| &ruling.rule),
            "code": ruling.map(|ruling| &ruling.code),
            "reason": ruling.map(|ruling| &ruling.reason),
            "fix": ruling.map(|ruling| &ruling.fix),
            "words": ruling.map(|ruling| &ruling.words),
            "access": call.decided().map(|decided| &decided.access),
            "modified": call.modified(),
            "writes": ruling.map(|ruling| &ruling.writes),
            "deferred": ruling.map(|ruling| &ruling.deferred).filter(|deferred| !deferred.is_empty()),
            "execs": Some(call.execs).filter(|execs| !execs.is_empty()),
            "execs_omitted": Some(call.execs_omitted).filter(|omitted| *omitted > 0),
            "approved": call.approval.map(|(allow, by)| json!({"allow": allow, "by": by})),
        })),
    }
}

/// What the model got as the result of a call; nothing for one that has not ended.
fn came_of(call: &CallSummary<'_>) -> Option<Outcome> {
    let id = call.call.id.to_string();
    let Some(output) = call.output else {
        let denial = call.denial()?;
        return Some(Outcome {
            source_call_id: Some(id),
            content: format!("denied: {}", denial.reason),
            extra: extra(json!({"status": call.status()})),
        });
    };
    let diff = match &output.display {
        Display::Diff(diff) => Some(json!({"path": diff.path, "diff": diff.diff})),
        _ => None,
    };
    let texts: Vec<String> = output.content.iter().map(content).collect();
    Some(Outcome {
        source_call_id: Some(id),
        content: texts.join("\n"),
        extra: extra(json!({
            "status": call.status(),
            "summary": output.summary,
            "exit": output.exit,
            "error": output.error,
            "kept": output.kept,
            "locations": output.locations,
            "patch": diff,
            "took_ms": call.took_ms,
        })),
    })
}

fn spoken(message: &Message) -> String {
    words(&message.parts)
}

/// Text parts unchanged, media as a line that names them.
fn words(parts: &[Part]) -> String {
    let mut out = String::new();
    for part in parts {
        match part {
            Part::Text { text } => out.push_str(text),
            Part::Media(media) => out.push_str(&placeholder(media)),
            Part::Thought { .. } | Part::Call(_) | Part::Result(_) | Part::Opaque { .. } => {}
        }
    }
    out
}

fn content(content: &ToolContent) -> String {
    match content {
        ToolContent::Text { text } => text.clone(),
        ToolContent::Media(media) => placeholder(media),
    }
}

/// `[image/png, 1,234 bytes: logo.png]`
pub(crate) fn placeholder(media: &Media) -> String {
    let bytes = media.data.len() / 4 * 3;
    let size = text::grouped(u64::try_from(bytes).unwrap_or(u64::MAX));
    let mime = text::line(&media.mime, 60);
    match &media.name {
        Some(name) => format!("[{mime}, about {size} bytes: {}]", text::line(name, 200)),
        None => format!("[{mime}, about {size} bytes]"),
    }
}
