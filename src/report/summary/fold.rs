//! Folds events into a summary: one pass, in order.

use super::{CallSummary, CheckRun, Moment, RunSummary, StepSummary, TurnSummary, Warning, between};
use crate::base::event::{DiscardedReply, Event, EventKind, PromptReason, RunStarted, Summarised, Unruled};
use crate::base::grant::Undone;
use crate::base::ids::CallId;
use crate::base::message::{Reply, Usage};
use crate::base::model_name::is_played;
use crate::base::outcome::{CheckResult, RunOutcome, Verdict};
use jiff::Timestamp;
use std::borrow::Cow;
use std::collections::{HashMap, HashSet};

impl<'a> RunSummary<'a> {
    /// Folds the events of a journal, complete or cut off anywhere.
    pub fn fold(events: &'a [Event]) -> Self {
        let mut fold = Fold {
            sum: empty(),
            index: HashMap::new(),
            open: None,
            undone: HashSet::new(),
        };
        for event in events {
            fold.apply(event);
        }
        fold.sum
    }
}

/// The summary so far, with indices of what is still open.
struct Fold<'a> {
    sum: RunSummary<'a>,
    index: HashMap<&'a CallId, usize>,
    /// The step that events belong to.
    open: Option<usize>,
    /// Paths that the sandbox reverted.
    undone: HashSet<String>,
}

fn empty<'a>() -> RunSummary<'a> {
    RunSummary {
        head: None,
        started: None,
        ended: None,
        idle_ms: 0,
        finished: false,
        outcome: cut_off(),
        model: "",
        sandbox: None,
        baseline: None,
        dirty: false,
        equipped: None,
        steps: Vec::new(),
        turns: Vec::new(),
        calls: Vec::new(),
        output: None,
        patch: None,
        unruled: Vec::new(),
        undone_omitted: 0,
        warnings: Vec::new(),
        resumed: 0,
        usage: Usage::default(),
        tokens: 0,
        cost_micros: 0,
        unpriced: false,
        summaries: 0,
        recorded: false,
    }
}

/// The outcome of a journal without an end.
fn cut_off() -> RunOutcome {
    RunOutcome::new(
        Verdict::Incomplete,
        "killed",
        "the run did not reach its end; `overnight resume` continues it",
    )
}

impl<'a> Fold<'a> {
    fn apply(&mut self, event: &'a Event) {
        let at = event.at;
        let before = self.sum.ended.replace(at);
        match &event.kind {
            EventKind::RunStarted(head) => self.begin(at, head),
            EventKind::Confined(confined) => self.sum.sandbox = Some(confined),
            EventKind::Baseline { tree, dirty } => {
                self.sum.baseline = Some(tree);
                self.sum.dirty = *dirty;
            }
            EventKind::Equipped(equipped) => self.sum.equipped = Some(equipped),
            EventKind::PatchTaken(patch) => {
                self.sum.patch = Some(patch);
                let undone = std::mem::take(&mut self.sum.unruled)
                    .into_iter()
                    .filter(|one| self.undone.contains(&one.path));
                let ruled: HashSet<&str> = patch.unruled.iter().map(|one| one.path.as_str()).collect();
                let undone: Vec<Cow<'_, Unruled>> = undone.filter(|one| !ruled.contains(one.path.as_str())).collect();
                self.sum.unruled = patch.unruled.iter().map(Cow::Borrowed).chain(undone).collect();
            }
            EventKind::Undone {
                call,
                server,
                undone,
                omitted,
                ..
            } => {
                self.sum.undone_omitted += omitted;
                for one in undone {
                    self.undone(call.is_none() && server.is_none(), one);
                }
                let place = call.as_ref().and_then(|id| self.index.get(id));
                if let Some(call) = place.and_then(|place| self.sum.calls.get_mut(*place))
                    && call.undone.is_empty()
                {
                    call.undone = undone;
                }
            }
            EventKind::PutBack(done) => {
                let listed = self.sum.patch.into_iter().flat_map(|patch| &patch.unruled);
                let ruled: HashSet<&str> = listed.map(|one| one.path.as_str()).collect();
                let failed: HashSet<&str> = done.failed.iter().map(String::as_str).collect();
                let due = self.sum.unruled.iter_mut().filter(|unruled| unruled.is_due());
                for unruled in due.filter(|unruled| ruled.contains(unruled.path.as_str())) {
                    let restored = !failed.contains(unruled.path.as_str());
                    unruled.to_mut().restored = restored;
                }
            }
            EventKind::Warned { code, message } => self.sum.warnings.push(Warning { code, message }),
            EventKind::RunFinished { outcome, spent } => {
                self.sum.finished = true;
                self.sum.outcome = outcome.clone();
                self.sum.unpriced |= spent.unpriced && !self.sum.invented();
                self.sum.cost_micros = self.sum.cost_micros.max(spent.cost_micros);
                self.sum.tokens = self.sum.tokens.max(spent.tokens);
            }
            EventKind::Resumed { by, model, .. } => self.resume((before, at), by, model),
            EventKind::Suspended { calls } => self.suspended(calls),
            EventKind::StepStarted { step, run, .. } => {
                self.enter(step.as_str(), run.as_deref(), at);
            }
            EventKind::StepFinished { step, result } => {
                self.step(step.as_str(), at).result = Some(result);
                self.open = None;
            }
            EventKind::Checked {
                step, attempt, check, ..
            } => self.check(step.as_str(), at, *attempt, check),
            kind => self.in_step(at, kind),
        }
    }

    /// A change that the sandbox did not grant counts as one that no rule allows; each path is listed once.
    fn undone(&mut self, by_author: bool, undone: &Undone) {
        self.undone.insert(undone.path.clone());
        let known = self.sum.unruled.iter_mut().find(|one| one.path == undone.path);
        if let Some(known) = known {
            if !undone.restored {
                known.to_mut().restored = false;
            }
            return;
        }
        self.sum.unruled.push(Cow::Owned(Unruled {
            path: undone.path.clone(),
            change: undone.change,
            rule: undone.rule.clone(),
            code: undone.code.clone(),
            denied: by_author && undone.code == "deny_rule",
            left: false,
            restored: undone.restored,
        }));
    }

    /// Events of a step.
    fn in_step(&mut self, at: Timestamp, kind: &'a EventKind) {
        match kind {
            EventKind::Ran {
                step,
                command,
                exit,
                output,
                took_ms,
                cut: _,
            } => self.step(step.as_str(), at).moments.push(Moment::Ran {
                at,
                command,
                exit,
                output,
                took_ms: *took_ms,
            }),
            EventKind::AttemptStarted { step, n, why, .. } => {
                let step = self.step(step.as_str(), at);
                step.attempts += 1;
                step.moments.push(Moment::Attempt { n: *n, why });
            }
            EventKind::Prompted { message, why } => {
                let why = reason(*why);
                self.here(at).moments.push(Moment::Prompted { at, message, why });
            }
            EventKind::Retried {
                class,
                message,
                wait_ms,
                discarded,
                ..
            } => {
                // After the last attempt nothing was asked again; the outcome says why.
                if discarded.as_ref().is_none_or(|discarded| !discarded.last) {
                    self.here(at).moments.push(Moment::Retried {
                        class,
                        message,
                        wait_ms: *wait_ms,
                    });
                }
                if let Some(discarded) = discarded {
                    self.discarded(at, discarded);
                }
            }
            EventKind::Replied {
                turn,
                reply,
                took_ms,
                cost_micros,
                ..
            } => self.reply(at, *turn, reply, *took_ms, *cost_micros),
            EventKind::ResponseJudged { ok, errors, output } => {
                self.sum.output = output.as_ref().filter(|_| *ok);
                let step = self.here(at);
                step.judged.push((*ok, errors));
                step.moments.push(Moment::Judged { ok: *ok, errors });
            }
            EventKind::Compacted { why, summary, .. } => {
                self.here(at).moments.push(Moment::Compacted { at, why });
                if let Some(summary) = summary {
                    self.summary(at, summary);
                }
            }
            kind => self.call(at, kind),
        }
    }

    /// Events of one call. Events of an unknown call are ignored.
    fn call(&mut self, at: Timestamp, kind: &'a EventKind) {
        let id = match kind {
            EventKind::Decided(decided) => &decided.call,
            EventKind::Approved { call, .. }
            | EventKind::Executed { call, .. }
            | EventKind::CallStarted { call }
            | EventKind::CallFinished { call, .. } => call,
            _ => return,
        };
        let Some(call) = self.index.get(id).and_then(|i| self.sum.calls.get_mut(*i)) else {
            return;
        };
        match kind {
            EventKind::Decided(decided) => call.rulings.push(decided),
            // Of two answers to a call that has not started, the denial holds.
            EventKind::Approved { allow, by, .. } if !matches!(call.approval, Some((false, _))) => {
                call.approval = Some((*allow, by));
            }
            EventKind::CallStarted { .. } => call.started = Some(at),
            EventKind::Executed { execs, omitted, .. } => (call.execs, call.execs_omitted) = (execs, *omitted),
            EventKind::CallFinished {
                state, output, took_ms, ..
            } => {
                call.state = Some(*state);
                call.output = Some(output);
                call.took_ms = *took_ms;
            }
            _ => {}
        }
        let step = call.step;
        self.touch(step, at);
    }

    /// An approval that was not used no longer counts once its call waits again.
    fn suspended(&mut self, calls: &[CallId]) {
        for id in calls {
            if let Some(call) = self.index.get(id).and_then(|i| self.sum.calls.get_mut(*i))
                && matches!(call.approval, Some((true, _)))
            {
                call.approval = None;
            }
        }
    }

    fn begin(&mut self, at: Timestamp, head: &'a RunStarted) {
        self.sum.started = Some(at);
        self.sum.model = &head.model;
        self.sum.head = Some(head);
        self.sum.recorded |= head.recorded;
    }

    /// `before`: the last event of the session before. Nothing ran from there on.
    fn resume(&mut self, (before, at): (Option<Timestamp>, Timestamp), by: &'a str, model: &'a str) {
        let idle_ms = before.map_or(0, |before| between(before, at));
        self.sum.idle_ms += idle_ms;
        self.sum.resumed += 1;
        self.sum.finished = false;
        self.sum.outcome = cut_off();
        if !model.is_empty() {
            self.sum.model = model;
        }
        // A run that failed in its last step continues there.
        if let Some(last) = self.sum.steps.len().checked_sub(1) {
            self.open.get_or_insert(last);
            let step = self.here(at);
            step.idle_ms += idle_ms;
            step.moments.push(Moment::Resumed { at, by, model });
        }
    }

    fn check(&mut self, step: &'a str, at: Timestamp, attempt: u32, result: &'a CheckResult) {
        let step = self.step(step, at);
        let begun = step
            .moments
            .iter()
            .any(|moment| matches!(moment, Moment::Attempt { .. } | Moment::Ran { .. } | Moment::Turn(_)));
        step.moments.push(Moment::Checked(step.checks.len()));
        step.checks.push(CheckRun {
            at,
            attempt,
            before: !begun,
            result,
        });
    }

    fn reply(&mut self, at: Timestamp, n: u64, reply: &'a Reply, took_ms: u64, cost_micros: Option<u64>) {
        let invented = self.sum.invented();
        self.sum.recorded |= is_played(&reply.model) || is_played(self.sum.model);
        let (first, turn) = (self.sum.calls.len(), self.sum.turns.len());
        let step = self.here(at);
        step.turns += 1;
        step.usage.add(reply.usage);
        step.cost_micros += cost_micros.unwrap_or_default();
        step.moments.push(Moment::Turn(turn));
        let step = self.open.unwrap_or_default();
        for call in reply.calls() {
            self.index.insert(&call.id, self.sum.calls.len());
            self.sum.calls.push(CallSummary {
                call,
                step,
                asked: at,
                rulings: Vec::new(),
                approval: None,
                started: None,
                state: None,
                output: None,
                took_ms: 0,
                execs: &[],
                execs_omitted: 0,
                undone: &[],
            });
        }
        self.sum.turns.push(TurnSummary {
            n,
            at,
            reply,
            took_ms,
            cost_micros,
            calls: first..self.sum.calls.len(),
        });
        self.sum.usage.add(reply.usage);
        self.sum.tokens += reply.usage.total();
        self.sum.cost_micros += cost_micros.unwrap_or_default();
        self.sum.unpriced |= cost_micros.is_none() && !invented;
    }

    /// A history summary is paid for like any other reply, but is not a turn of the conversation.
    fn summary(&mut self, at: Timestamp, summary: &Summarised) {
        self.here(at).turns += 1;
        self.sum.summaries += 1;
        self.charge(at, summary.reply.usage, summary.cost_micros);
    }

    /// A reply that could not be used is paid for, but is not a turn.
    fn discarded(&mut self, at: Timestamp, discarded: &DiscardedReply) {
        self.charge(at, discarded.usage, discarded.cost_micros);
    }

    /// Charges the active step and the run.
    fn charge(&mut self, at: Timestamp, usage: Usage, cost_micros: Option<u64>) {
        let cost = cost_micros.unwrap_or_default();
        let step = self.here(at);
        step.usage.add(usage);
        step.cost_micros += cost;
        self.sum.usage.add(usage);
        self.sum.tokens += usage.total();
        self.sum.cost_micros += cost;
        self.sum.unpriced |= cost_micros.is_none() && !self.sum.invented();
    }

    /// Opens a step, or continues one that was started before a resume.
    fn enter(&mut self, id: &'a str, run: Option<&'a str>, at: Timestamp) {
        let step = self.step(id, at);
        step.result = None;
        step.run = step.run.or(run);
    }

    /// The step of this name; started now if needed.
    fn step(&mut self, id: &'a str, at: Timestamp) -> &mut StepSummary<'a> {
        let known = self.sum.steps.iter().rposition(|step| step.id == id);
        let i = known.unwrap_or(self.sum.steps.len());
        if known.is_none() {
            self.sum.steps.push(StepSummary {
                id,
                run: None,
                started: at,
                ended: at,
                idle_ms: 0,
                attempts: 0,
                moments: Vec::new(),
                checks: Vec::new(),
                judged: Vec::new(),
                result: None,
                turns: 0,
                usage: Usage::default(),
                cost_micros: 0,
            });
        }
        self.open = Some(i);
        self.touch(i, at);
        &mut self.sum.steps[i]
    }

    /// The active step; between two steps the last one; if there is none, a new one named `prompt`.
    fn here(&mut self, at: Timestamp) -> &mut StepSummary<'a> {
        let open = self.open.or(self.sum.steps.len().checked_sub(1));
        let id = open
            .and_then(|i| self.sum.steps.get(i))
            .map_or("prompt", |step| step.id);
        self.step(id, at)
    }

    fn touch(&mut self, step: usize, at: Timestamp) {
        if let Some(step) = self.sum.steps.get_mut(step) {
            step.ended = step.ended.max(at);
        }
    }
}

fn reason(why: PromptReason) -> &'static str {
    match why {
        PromptReason::Task => "task",
        PromptReason::Feedback => "feedback",
        PromptReason::Repair => "repair",
        PromptReason::Nudge => "nudge",
        PromptReason::Retry => "retry",
        PromptReason::Echo => "echo",
        PromptReason::Idle => "idle",
        PromptReason::Printed => "printed",
        PromptReason::Empty => "empty",
    }
}
