//! The state of a run, folded from its events. Only `apply` changes it; `next` (in `next.rs`) reads it. Pure.

mod calls;
mod changes;
pub mod replies;

use super::compact::{Reported, size};
use super::sameness::{Sameness, echoes};
use crate::base::budget::Spent;
use crate::base::call::{CallState, ToolCall, ToolOutput, ToolSpec};
use crate::base::event::{Event, EventKind, GivenPrompt, PatchTaken, PromptReason, RunStarted};
use crate::base::grant::{ExecDenial, Undone};
use crate::base::ids::{CallId, StepId};
use crate::base::message::{Message, Part, Reply, Role, Stop};
use crate::base::outcome::{CheckResult, Outcome, StepResult, StepStatus};
use crate::policy::Author;
use crate::recipe::Plan;
use indexmap::IndexMap;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};

/// Where a run stands between two events.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Phase {
    /// Before the first step or between two.
    #[default]
    Between,
    /// A step began; its command, or the check whether it is green already, comes next.
    Opened,
    /// An attempt began; the model has not been told yet.
    Prompting,
    /// The model is to be asked.
    Asking,
    /// Calls of the last reply are not all settled.
    Calling,
    /// The last reply asked for no call.
    Answered,
    /// A plain command has ended.
    Ran,
}

/// One call of the last reply.
#[derive(Clone, Debug)]
pub struct CallRecord {
    pub call: ToolCall,
    pub state: CallState,
    /// The canonical tool name, once ruled.
    pub tool: Option<String>,
    pub read_only: bool,
    /// Whether it may change the tree, once ruled.
    pub may_write: bool,
    /// A reviewer said yes.
    pub approved: bool,
    /// A reviewer said no: it gets that as its answer and never runs.
    pub refused: bool,
    /// The arguments after a `modify` rule.
    pub modified: Option<Value>,
    pub output: Option<ToolOutput>,
    /// The program that was denied at its exec.
    pub exec_denied: Option<ExecDenial>,
}

/// A denied call, for the verdict.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Denial {
    pub call: CallId,
    pub tool: String,
    pub code: String,
    pub reason: String,
    pub rule: Option<String>,
    /// Whether it would only have read.
    pub read: bool,
}

/// A call that a reviewer approved and that failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ApprovedFailure {
    pub call: CallId,
    pub tool: String,
    /// SHA-256 of tool and arguments: the same call that works later takes the failure back.
    pub digest: String,
    /// How it ended, for people.
    pub how: String,
}

/// All that decides what comes next.
#[derive(Clone, Debug, Default)]
pub struct State {
    pub started: Option<Box<RunStarted>>,
    pub phase: Phase,
    /// Index of the step that runs or comes next.
    pub step: usize,
    /// Attempt of the step, from 1; 0 while it is looked at whether it is green already.
    pub attempt: u32,
    pub history: Vec<Message>,
    /// Bytes that the history counts for.
    pub bytes: u64,
    /// Where in the history the task of the step stands.
    pub task_at: Option<usize>,
    /// What the service told of the last request.
    pub reported: Option<Reported>,
    /// Tokens that the model's window holds, as far as known.
    pub window: Option<u64>,
    /// Requests in a row that were too long for the model.
    pub overflows: u32,
    /// Counts rewritings of the history.
    pub epoch: u64,
    /// The calls of the last reply in the order asked.
    pub calls: IndexMap<CallId, CallRecord>,
    /// Calls asked for so far in the run; the next id is one more.
    pub calls_asked: u64,
    pub spent: Spent,
    pub step_spent: Spent,
    /// The last reply's text and how it ended.
    pub answer: String,
    pub stop: Option<Stop>,
    /// The last judgement of the answer: errors, empty when it fits.
    pub judged: Option<Vec<String>>,
    pub repairs: u32,
    pub nudged: bool,
    /// What the model's replies say beside their answer.
    pub replies: replies::Replies,
    /// Names and aliases of the tools that the model was told of.
    pub tools: BTreeSet<String>,
    /// The task of the step, to be told again at the beginning of a fresh attempt.
    pub fresh: Option<Message>,
    /// Warnings that are made once a run and have been made.
    pub warned: BTreeSet<String>,
    pub outputs: BTreeMap<String, String>,
    /// What MCP servers gave as prompts of steps.
    pub prompts: Vec<GivenPrompt>,
    pub results: Vec<(StepId, StepResult)>,
    /// Checks of this attempt so far.
    pub checks: Vec<CheckResult>,
    pub ran: Option<(crate::base::call::ExitInfo, String)>,
    pub denials: Vec<Denial>,
    /// Calls that a reviewer approved and that failed, with no checks since that passed.
    pub approved_failures: Vec<ApprovedFailure>,
    /// Uses of rules with `times`.
    pub uses: BTreeMap<String, u64>,
    pub baseline: Option<String>,
    /// The tree when the step began, as far as known.
    pub step_tree: Option<String>,
    pub patch: Option<PatchTaken>,
    /// Files that edit tools changed, relative to the workspace.
    pub edited: BTreeSet<String>,
    /// Whether something ran since the tree was looked at last that may have changed it.
    pub touched: bool,
    /// Whose it is what changed since then.
    pub author: Option<Author>,
    /// Changes that could not be put back.
    pub not_put_back: Vec<String>,
    /// Changes of the author's own commands that end the run: what a deny rule closes, and what could not be undone.
    pub refused_commands: Vec<(StepId, Undone)>,
    /// Whether checks ran since then: what changed meanwhile is theirs.
    pub littered: bool,
    /// How often in a row the same calls gave the same results.
    pub repeats: u32,
    sameness: Sameness,
    /// Replies in a row that say the same over and over.
    pub echoes: u32,
    /// Turns since the tree was last seen to change, in this step.
    pub idle: u64,
    /// Whether the model was told that it changes nothing.
    pub idle_told: bool,
    pub confined: Option<String>,
    pub outcome: Option<Outcome>,
}

impl State {
    /// The state after these events.
    pub fn fold<'a>(events: impl IntoIterator<Item = &'a Event>) -> Self {
        let mut state = Self::default();
        for event in events {
            state.apply(&event.kind);
        }
        state
    }

    /// Takes in one event. Total: an event that does not fit changes nothing it should not.
    pub fn apply(&mut self, event: &EventKind) {
        match event {
            EventKind::RunStarted(started) => self.started = Some(started.clone()),
            EventKind::Confined(confined) => self.confined = Some(confined.level.clone()),
            EventKind::Baseline { tree, .. } => {
                self.baseline = Some(tree.clone());
                self.step_tree = Some(tree.clone());
            }
            EventKind::StepStarted { index, .. } => self.open_step(*index),
            EventKind::Ran { exit, output, .. } => {
                self.ran = Some((exit.clone(), output.clone()));
                self.wrote(Author::TrustedStep);
                self.phase = Phase::Ran;
            }
            EventKind::AttemptStarted { n, fresh, .. } => {
                // The checks of the attempt before stay until the model was told of them.
                self.attempt = *n;
                self.phase = Phase::Prompting;
                let tree = self.own_tree().map(str::to_owned);
                self.replies.open_attempt(*n, tree);
                if *fresh {
                    self.forget_attempt();
                }
            }
            EventKind::Prompted { message, why } => self.prompted(message, *why),
            EventKind::Replied { reply, cost_micros, .. } => self.replied(reply, *cost_micros),
            EventKind::Decided(decided) => self.decided(decided),
            EventKind::Approved { call, allow, .. } => self.approved(call, *allow),
            EventKind::CallStarted { call } => self.call_started(call),
            EventKind::CallFinished {
                call, state, output, ..
            } => self.call_finished(call, *state, output),
            EventKind::Checked { check, .. } => {
                self.littered |= check.exit.is_some();
                self.checks.push(check.clone());
            }
            EventKind::ResponseJudged { errors, .. } => self.judged = Some(errors.clone()),
            EventKind::StepFinished { step, result } => self.step_finished(step, result),
            EventKind::Compacted {
                history,
                keep_from,
                summary,
                overflow,
                window,
                ..
            } => {
                self.compacted(history, *keep_from, overflow.is_some());
                // What the service says of itself goes before what was known of it.
                self.window = window.or(self.window);
                if let Some(summary) = summary {
                    self.charge(&summary.reply, summary.cost_micros);
                }
            }
            EventKind::PatchTaken(patch) => {
                if self.own_tree() != Some(patch.own_tree()) {
                    self.idle = 0;
                    self.idle_told = false;
                }
                self.patch = Some(patch.clone());
                self.touched = false;
                self.littered = false;
                self.author = None;
                // What is still as it must not be stands in the new list, and is tried again.
                self.not_put_back.clear();
            }
            EventKind::PutBack(done) => self.put_back(done),
            EventKind::Undone {
                call: None,
                step: Some(step),
                check,
                undone,
                ..
            } => self.undone(step, *check, undone),
            EventKind::RunFinished { outcome, .. } => self.outcome = Some(outcome.clone()),
            EventKind::Resumed { .. } => self.outcome = None,
            EventKind::Equipped(equipped) => {
                self.window = equipped.window;
                self.touched |= equipped.programs;
                let names = |tool: &ToolSpec| std::iter::once(tool.name.clone()).chain(tool.aliases.clone());
                self.tools = equipped.tools.iter().flat_map(names).collect();
                self.prompts.extend(equipped.prompts.iter().cloned());
            }
            EventKind::Executed { call, execs, .. } => {
                if let Some(record) = self.calls.get_mut(call) {
                    record.exec_denied = execs.iter().rev().find_map(|exec| exec.denied.clone());
                }
            }
            EventKind::Warned { code, .. } => {
                self.warned.insert(code.clone());
            }
            EventKind::Undone { .. } | EventKind::Retried { .. } | EventKind::Suspended { .. } => {}
        }
    }

    fn open_step(&mut self, index: usize) {
        self.step = index;
        self.attempt = 0;
        self.phase = Phase::Opened;
        self.checks.clear();
        self.ran = None;
        self.step_spent = Spent::default();
        self.repairs = 0;
        self.nudged = false;
        self.replies = replies::Replies::default();
        self.fresh = None;
        self.judged = None;
        self.idle = 0;
        self.idle_told = false;
        self.step_tree = self.own_tree().map(str::to_owned);
    }

    fn compacted(&mut self, history: &[Message], keep_from: usize, overflowed: bool) {
        let keep_from = keep_from.min(self.history.len());
        let kept = self.history.split_off(keep_from);
        // Shrunk messages stand one for one; a summary stands for all.
        self.task_at = self.task_at.map(|at| match at < keep_from {
            true if history.len() == keep_from => at,
            true => 0,
            false => at - keep_from + history.len(),
        });
        self.history = history.to_vec();
        self.history.extend(kept);
        self.bytes = self.history.iter().map(size).sum();
        self.overflows += u32::from(overflowed);
        self.epoch += 1;
    }

    fn push(&mut self, message: Message) {
        self.bytes += size(&message);
        self.history.push(message);
    }

    fn charge(&mut self, reply: &Reply, cost_micros: Option<u64>) {
        for spent in [&mut self.spent, &mut self.step_spent] {
            spent.turns += 1;
            spent.tokens += reply.usage.total();
            spent.cost_micros += cost_micros.unwrap_or(0);
            spent.unpriced |= cost_micros.is_none();
        }
    }

    /// Leaves out of the history what was said since the step's task; the task is told again with what the checks found.
    fn forget_attempt(&mut self) {
        let Some(at) = self.task_at.take().filter(|at| *at < self.history.len()) else {
            return;
        };
        self.fresh = self.history.get(at).cloned();
        self.history.truncate(at);
        self.bytes = self.history.iter().map(size).sum();
        self.reported = None;
        self.epoch += 1;
    }

    fn prompted(&mut self, message: &Message, why: PromptReason) {
        if why == PromptReason::Task || self.fresh.take().is_some() {
            self.task_at = Some(self.history.len());
        }
        self.push(message.clone());
        match why {
            PromptReason::Idle => self.idle_told = true,
            PromptReason::Repair => self.repairs += 1,
            PromptReason::Nudge => {
                self.nudged = true;
            }
            PromptReason::Task
            | PromptReason::Feedback
            | PromptReason::Retry
            | PromptReason::Echo
            | PromptReason::Printed
            | PromptReason::Empty => {}
        }
        self.replies.prompted(why);
        self.judged = None;
        self.checks.clear();
        self.phase = Phase::Asking;
    }

    fn replied(&mut self, reply: &Reply, cost_micros: Option<u64>) {
        self.charge(reply, cost_micros);
        self.idle += 1;
        self.overflows = 0;
        self.reported = match reply.usage.input {
            0 => None,
            input => Some(Reported {
                bytes: self.bytes,
                input,
            }),
        };
        self.answer = reply.text();
        self.replies.replied(reply, &self.tools);
        self.echoes = if echoes(&self.answer) { self.echoes + 1 } else { 0 };
        self.stop = Some(reply.stop.clone());
        self.judged = None;
        self.calls = reply
            .calls()
            .map(|call| {
                let record = CallRecord {
                    call: call.clone(),
                    state: CallState::Validating,
                    tool: None,
                    read_only: false,
                    may_write: true,
                    approved: false,
                    refused: false,
                    modified: None,
                    output: None,
                    exec_denied: None,
                };
                (call.id.clone(), record)
            })
            .collect();
        self.calls_asked += self.calls.len() as u64;
        // Services refuse a message of nothing, and some templates two messages of the user in a row.
        let parts = match self.replies.is_empty {
            true => vec![Part::text(replies::NOTHING)],
            false => reply.parts.clone(),
        };
        self.push(Message {
            role: Role::Assistant,
            parts,
        });
        self.phase = if self.calls.is_empty() {
            Phase::Answered
        } else {
            Phase::Calling
        };
    }

    fn step_finished(&mut self, step: &StepId, result: &StepResult) {
        if result.status == StepStatus::Passed
            && !self.checks.is_empty()
            && self.checks.iter().all(|check| check.passed)
        {
            self.approved_failures.clear();
        }
        self.outputs.insert(step.0.clone(), result.output.clone());
        self.results.push((step.clone(), result.clone()));
        self.step += 1;
        self.phase = Phase::Between;
    }

    /// The tree as it was looked at last: the patch's, else the baseline's.
    pub fn tree(&self) -> Option<&str> {
        self.patch
            .as_ref()
            .map(|patch| patch.tree.as_str())
            .or(self.baseline.as_deref())
    }

    /// The same without what checks left behind.
    pub fn own_tree(&self) -> Option<&str> {
        self.patch
            .as_ref()
            .map(PatchTaken::own_tree)
            .or(self.baseline.as_deref())
    }

    /// Whether the tree may be another than when it was looked at last.
    pub fn stale(&self) -> bool {
        self.touched || self.littered
    }

    /// Whether the run changed something, as far as was looked. Without a baseline nothing ever ran.
    pub fn changed(&self) -> bool {
        self.patch.as_ref().is_some_and(|patch| patch.blob.is_some())
    }

    /// The id of the step that runs.
    pub fn step_id(&self, plan: &Plan) -> StepId {
        plan.steps
            .get(self.step)
            .map_or_else(|| StepId::from("end"), |step| step.id.clone())
    }

    /// Whether a step was green before the model was asked, which ends the run.
    pub fn was_green(&self) -> bool {
        self.results
            .iter()
            .any(|(_, result)| result.status == StepStatus::Skipped)
    }
}
