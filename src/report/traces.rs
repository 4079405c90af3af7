//! Folds the events of one session of a run into OpenTelemetry spans (GenAI semantic conventions). Spans never contain
//! prompts, answers, arguments or results. Pure.

mod attributes;
mod draft;
mod open;

use crate::base::call::{CallState, ToolOutput};
use crate::base::event::{Event, EventKind, RunStarted};
use crate::base::ids::CallId;
use crate::base::message::Reply;
use crate::base::outcome::{CheckResult, RunOutcome, StepResult, StepStatus, Verdict};
use attributes::Requested;
use draft::{SpanDraft, Trace};
use jiff::Timestamp;
use open::{OpenCall, OpenSession, OpenStep, Retry};
use opentelemetry::trace::{SpanContext, SpanKind, TraceContextExt};
use opentelemetry_sdk::propagation::TraceContextPropagator;
use opentelemetry_sdk::trace::SpanData;
use std::collections::BTreeMap;

/// The span context of a `TRACEPARENT`; `None` for an invalid one.
pub fn parent(traceparent: &str) -> Option<SpanContext> {
    use opentelemetry::propagation::TextMapPropagator;
    let carrier = std::collections::HashMap::from([("traceparent".to_owned(), traceparent.to_owned())]);
    let context = TraceContextPropagator::new().extract(&carrier);
    let found = context.span().span_context().clone();
    found.is_valid().then_some(found)
}

/// The spans of the last session in these events, children before parents, and those of earlier sessions that were
/// killed and so could not send theirs. The same events give the same spans with the same ids.
pub fn spans(events: &[Event], parent: Option<&SpanContext>) -> Vec<SpanData> {
    let head = events.iter().find_map(|event| match &event.kind {
        EventKind::RunStarted(head) => Some(head),
        _ => None,
    });
    let Some((head, first)) = head.zip(events.first()) else {
        return Vec::new();
    };
    let mut fold = Fold {
        trace: Trace::new(head.run.as_str(), parent),
        head,
        model: &head.model,
        done: Vec::new(),
        session: OpenSession::new(first.seq, first.at),
        step: None,
        calls: BTreeMap::new(),
        before: first.at,
        answered: true,
    };
    for event in events {
        fold.apply(event);
        fold.before = event.at;
    }
    if !fold.session.finished {
        fold.cut_off();
    }
    fold.done
}

/// The verdict of a run that waits for a person, which is not an error.
const WAITS: &str = Verdict::Suspended.as_str();

struct Fold<'a> {
    trace: Trace,
    head: &'a RunStarted,
    model: &'a str,
    done: Vec<SpanData>,
    session: OpenSession,
    step: Option<OpenStep<'a>>,
    calls: BTreeMap<&'a CallId, OpenCall<'a>>,
    /// Time of the previous event.
    before: Timestamp,
    /// Whether the model has replied and got no message since.
    answered: bool,
}

impl<'a> Fold<'a> {
    fn apply(&mut self, event: &'a Event) {
        let at = event.at;
        match &event.kind {
            EventKind::Confined(confined) => self.session.more.text("overnight.sandbox", &confined.level),
            EventKind::StepStarted { step, .. } => {
                self.step = Some(OpenStep {
                    seq: event.seq,
                    from: at,
                    id: step.as_str(),
                });
            }
            EventKind::StepFinished { step, result } => self.step_done(at, step.as_str(), Ok(result)),
            EventKind::Resumed { model, .. } => self.resume(event, model),
            EventKind::Retried {
                class,
                wait_ms,
                discarded,
                ..
            } => {
                self.session.retries.push(Retry {
                    class: class.clone(),
                    wait_ms: *wait_ms,
                });
                if let Some(discarded) = discarded {
                    self.session.usage.add(discarded.usage);
                    self.session.cost_micros += discarded.cost_micros.unwrap_or_default();
                }
            }
            EventKind::Prompted { .. } => self.answered = false,
            EventKind::PatchTaken(patch) => {
                let lines = |of: fn(&crate::base::event::FileChange) -> Option<u64>| -> u64 {
                    patch.files.iter().filter_map(of).sum()
                };
                let more = &mut self.session.more;
                more.number("overnight.patch.files", patch.files.len() as u64);
                more.number("overnight.patch.added", lines(|file| file.added));
                more.number("overnight.patch.removed", lines(|file| file.removed));
            }
            EventKind::RunFinished { outcome, .. } => self.finish(at, event.seq, outcome),
            kind => self.in_step(event, kind),
        }
    }

    fn in_step(&mut self, event: &'a Event, kind: &'a EventKind) {
        let at = event.at;
        match kind {
            EventKind::Ran { exit, took_ms, .. } => {
                let mut draft = SpanDraft::new("command", event.seq, "command".to_owned(), back(at, *took_ms), at);
                draft.attributes.exit(Some(exit));
                draft.error = (exit.code != Some(0)).then(|| "command".to_owned());
                self.push(draft);
            }
            EventKind::Replied {
                reply,
                took_ms,
                cost_micros,
                ..
            } => {
                self.chat(event, reply, (*took_ms, *cost_micros), false);
                self.ask_for(event, reply);
                self.answered = true;
            }
            EventKind::Compacted { summary, .. } => {
                self.answered = false;
                if let Some(summary) = summary {
                    let spent = (summary.took_ms, summary.cost_micros);
                    self.chat(event, &summary.reply, spent, true);
                }
            }
            EventKind::Decided(decided) => {
                if let Some(call) = self.calls.get_mut(&decided.call) {
                    call.decided = Some(decided);
                }
            }
            EventKind::CallStarted { call } => {
                if let Some(call) = self.calls.get_mut(call) {
                    call.started = Some(at);
                }
            }
            EventKind::CallFinished {
                call, state, output, ..
            } => self.call_done(at, call, *state, output),
            EventKind::Checked { attempt, check, .. } => self.check(event, *attempt, check),
            EventKind::ResponseJudged { ok, .. } => {
                let mut draft = SpanDraft::new("judged", event.seq, "check response".to_owned(), at, at);
                draft.attributes.flag("overnight.check.passed", *ok);
                draft.error = (!ok).then(|| "response".to_owned());
                self.push(draft);
            }
            _ => {}
        }
    }

    /// A span within the active step, or else within the session.
    fn push(&mut self, draft: SpanDraft) {
        let within = match &self.step {
            Some(step) => self.trace.id("step", step.seq),
            None => self.trace.id("session", self.session.seq),
        };
        self.done.push(self.trace.span(draft, within));
    }

    fn chat(&mut self, event: &Event, reply: &Reply, (took_ms, cost_micros): (u64, Option<u64>), summary: bool) {
        let requested = Requested::of(self.model, &reply.model);
        let from = back(event.at, took_ms);
        let mut draft = SpanDraft::new("chat", event.seq, format!("chat {}", requested.model), from, event.at);
        draft.kind = SpanKind::Client;
        draft.attributes.operation("chat", &requested, self.head.run.as_str());
        draft.attributes.text("gen_ai.response.model", &reply.model);
        draft.attributes.finish(&reply.stop);
        draft.attributes.usage(&reply.usage);
        draft.attributes.cost(cost_micros);
        if summary {
            draft.attributes.text("overnight.purpose", "summary");
        }
        self.retries(&mut draft);
        self.push(draft);
        self.session.turns += 1;
        self.session.usage.add(reply.usage);
        self.session.cost_micros += cost_micros.unwrap_or_default();
    }

    fn retries(&mut self, draft: &mut SpanDraft) {
        let retries = std::mem::take(&mut self.session.retries);
        if retries.is_empty() {
            return;
        }
        let waited = retries.iter().map(|retry| retry.wait_ms).sum();
        draft.attributes.number("overnight.retry.count", retries.len() as u64);
        draft.attributes.number("overnight.retry.wait_ms", waited);
        let classes = retries.into_iter().map(|retry| retry.class);
        draft.attributes.list("overnight.retry.classes", classes.collect());
    }

    fn ask_for(&mut self, event: &'a Event, reply: &'a Reply) {
        for call in reply.calls() {
            let open = OpenCall {
                seq: event.seq,
                asked: event.at,
                tool: &call.tool,
                wire_id: call.wire_id.as_deref(),
                decided: None,
                started: None,
            };
            self.calls.insert(&call.id, open);
        }
    }

    fn call_done(&mut self, at: Timestamp, id: &'a CallId, state: CallState, output: &ToolOutput) {
        self.answered = false;
        let Some(call) = self.calls.remove(id) else { return };
        let tool = call.decided.map_or(call.tool, |decided| &decided.tool);
        let from = call.started.unwrap_or(call.asked).max(self.session.from);
        let name = format!("execute_tool {}", attributes::clip(tool));
        let mut draft = SpanDraft::new(&format!("call {id}"), call.seq, name, from, at);
        let has = &mut draft.attributes;
        has.text("gen_ai.operation.name", "execute_tool");
        has.text("gen_ai.tool.name", tool);
        has.text("gen_ai.tool.type", "function");
        has.text("gen_ai.tool.call.id", call.wire_id.unwrap_or(id.as_str()));
        has.text("overnight.call.id", id.as_str());
        has.exit(output.exit.as_ref());
        let mut error = output.error.as_ref().map(|failure| failure.kind.clone());
        if let Some(decided) = call.decided {
            let ruling = &decided.ruling;
            has.text("overnight.ruling.decision", ruling.decision.as_str());
            has.text("overnight.ruling.code", &ruling.code);
            if let Some(rule) = &ruling.rule {
                has.text("overnight.ruling.rule", rule);
            }
        }
        if state == CallState::Cancelled {
            error = Some("cancelled".to_owned());
        }
        draft.error = error;
        self.push(draft);
    }

    fn check(&mut self, event: &Event, attempt: u32, check: &CheckResult) {
        let name = format!("check {}", attributes::clip(&check.name));
        let mut draft = SpanDraft::new("check", event.seq, name, back(event.at, check.took_ms), event.at);
        draft.attributes.text("overnight.check.name", &check.name);
        draft.attributes.flag("overnight.check.passed", check.passed);
        draft.attributes.number("overnight.attempt", u64::from(attempt));
        draft.attributes.exit(check.exit.as_ref());
        draft.error = (!check.passed).then(|| "check".to_owned());
        self.push(draft);
    }

    /// Ends a step, with its result or with the word for its interruption.
    fn step_done(&mut self, at: Timestamp, id: &str, result: Result<&StepResult, &str>) {
        let Some(step) = self.step.take().filter(|step| step.id == id) else {
            return;
        };
        let name = format!("step {}", attributes::clip(id));
        let mut draft = SpanDraft::new("step", step.seq, name, step.from, at);
        draft.attributes.text("overnight.step.id", id);
        let status = match result.map(|result| result.status) {
            Ok(StepStatus::Passed) => "passed",
            Ok(StepStatus::Failed) => "failed",
            Ok(StepStatus::Skipped) => "skipped",
            Err(word) => word,
        };
        draft.attributes.text("overnight.step.status", status);
        draft.error = match result {
            Ok(result) => (result.status == StepStatus::Failed).then(|| result.reason.clone()),
            Err(word) => (word != WAITS).then(|| word.to_owned()),
        };
        self.push(draft);
    }

    fn resume(&mut self, event: &'a Event, model: &'a str) {
        let open = self.step.as_ref().map(|step| step.id);
        match self.session.finished {
            true => self.done.clear(),
            false => self.cut_off(),
        }
        if !model.is_empty() {
            self.model = model;
        }
        self.session = OpenSession::new(event.seq, event.at);
        self.answered = false;
        self.step = open.map(|id| OpenStep {
            seq: event.seq,
            from: event.at,
            id,
        });
    }

    /// Ends a session that was killed, at its last event.
    fn cut_off(&mut self) {
        if let Some(id) = self.step.as_ref().map(|step| step.id) {
            self.step_done(self.before, id, Err("interrupted"));
        }
        self.root(self.before, Some("interrupted".to_owned()));
    }

    fn finish(&mut self, at: Timestamp, seq: u64, outcome: &RunOutcome) {
        // A request that failed has no event of its own.
        if outcome.verdict == Verdict::Provider && !self.answered {
            let requested = Requested::of(self.model, "");
            let mut draft = SpanDraft::new("chat", seq, format!("chat {}", requested.model), self.before, at);
            draft.kind = SpanKind::Client;
            draft.attributes.operation("chat", &requested, self.head.run.as_str());
            draft.error = Some(outcome.reason.clone());
            self.retries(&mut draft);
            self.push(draft);
        }
        // A step that the end of the run interrupted continues in the next session.
        let open = self.step.as_ref().map(|step| step.id);
        if let Some(id) = open {
            self.step_done(at, id, Err(outcome.verdict.as_str()));
            self.step = Some(OpenStep { seq, from: at, id });
        }
        self.session.more.text("overnight.verdict", outcome.verdict.as_str());
        self.session.more.flag("overnight.partial", outcome.partial);
        self.session.finished = true;
        let reason = match outcome.reason.as_str() {
            "" => outcome.verdict.as_str(),
            reason => reason,
        };
        let fine = outcome.verdict.is_success() || outcome.verdict.as_str() == WAITS;
        self.root(at, (!fine).then(|| reason.to_owned()));
    }

    /// The span of the whole session.
    fn root(&mut self, at: Timestamp, error: Option<String>) {
        let requested = Requested::of(self.model, "");
        let recipe = attributes::clip(&self.head.recipe).to_owned();
        let session = &mut self.session;
        let name = format!("invoke_agent {recipe}");
        let mut draft = SpanDraft::new("session", session.seq, name, session.from, at);
        let has = &mut draft.attributes;
        has.operation("invoke_agent", &requested, self.head.run.as_str());
        has.text("gen_ai.agent.name", &recipe);
        has.usage(&session.usage);
        has.cost(Some(session.cost_micros));
        has.number("overnight.turns", session.turns);
        has.text("overnight.run.id", self.head.run.as_str());
        has.flag("overnight.recorded", self.head.recorded);
        if let Some(commit) = &self.head.base.commit {
            has.text("vcs.ref.head.revision", commit);
        }
        has.extend(std::mem::take(&mut session.more));
        draft.error = error;
        self.done.push(self.trace.root(draft));
    }
}

fn back(at: Timestamp, took_ms: u64) -> Timestamp {
    let took = jiff::SignedDuration::from_millis(i64::try_from(took_ms).unwrap_or(i64::MAX));
    at.checked_sub(took).unwrap_or(at)
}
