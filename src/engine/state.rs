//! The state of a run, folded from its events by `apply`; `next` (in `next.rs`) reads it.
//!
//! The effects change it directly in two cases, before the event is recorded: that a command may have written (`wrote`),
//! and what the undo of a check put back (`note_put_back`). If the command is cut short, that event is missing.

mod calls;
mod changes;
pub mod replies;

pub use changes::MOST_NAMED;

use super::history_size::{Reported, size};
use super::stuck_detection::{RepetitionDetector, echoes};
use crate::base::budget::Spent;
use crate::base::call::{CallState, ToolCall, ToolOutput, ToolSpec};
use crate::base::event::{Event, EventKind, GivenPrompt, PatchTaken, PromptReason, RunStarted};
use crate::base::grant::{ExecDenial, Undone};
use crate::base::ids::{CallId, StepId};
use crate::base::message::{Message, Part, Reply, Role, StopReason, Usage};
use crate::base::outcome::{CheckResult, RunOutcome, StepResult, StepStatus};
use crate::policy::Author;
use crate::recipe::{Plan, StepOutputs, StepValues};
use indexmap::IndexMap;
use replies::Replies;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// The point that a run has reached between two events.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Phase {
    /// Before the first step or between two steps.
    #[default]
    Between,
    /// A step began; next is its command, or the check whether it already passes.
    Opened,
    /// An attempt began; the model has not received its prompt yet.
    Prompting,
    /// The next action is a request to the model.
    Asking,
    /// Not all calls of the last reply are settled.
    Calling,
    /// The last reply contained no call.
    Answered,
    /// The command of a `run` step has ended.
    Ran,
}

/// One call of the last reply.
#[derive(Clone, Debug)]
pub struct CallRecord {
    pub call: ToolCall,
    /// Whether the arguments contained a secret; `call` has them redacted.
    pub secret: bool,
    pub state: CallState,
    /// The canonical tool name, known once ruled.
    pub tool: Option<String>,
    pub read_only: bool,
    /// Whether the call may change the tree, known once ruled.
    pub may_write: bool,
    /// A reviewer approved the call.
    pub approved: bool,
    /// A reviewer refused the call: the model receives the refusal, and the call never runs.
    pub refused: bool,
    /// The arguments after a `modify` rule rewrote them.
    pub modified: Option<Value>,
    /// The rules with `times` that the last ruling used.
    pub uses: Vec<String>,
    pub output: Option<ToolOutput>,
    /// The program that was denied at its `execve`.
    pub exec_denied: Option<ExecDenial>,
}

/// A denied call, kept for the verdict.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeniedCall {
    pub call: CallId,
    /// Index of the step that made the call.
    pub step: usize,
    pub tool: String,
    pub code: String,
    pub reason: String,
    pub rule: Option<String>,
    /// Whether the call only reads.
    pub read: bool,
}

/// A call that a reviewer approved and that failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ApprovedFailure {
    pub call: CallId,
    pub tool: String,
    /// SHA-256 of tool and arguments; if the same call succeeds later, the failure is cleared.
    pub digest: String,
    /// How the call ended, for people.
    pub how: String,
}

/// How the calls of tools that edit files ended; denied ones are not counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EditCalls {
    pub done: u64,
    pub failed: u64,
}

/// The progress of the current step. A new step begins with a new value.
#[derive(Clone, Debug, Default)]
pub struct StepProgress {
    /// Attempt of the step, from 1; 0 while checking whether the step already passes.
    pub attempt: u32,
    /// What the step has used of its budget.
    pub spent: Spent,
    /// Results of the checks of this attempt so far.
    pub checks: Vec<CheckResult>,
    /// Schema errors of the last answer; empty if it is valid.
    pub judged: Option<Vec<String>>,
    /// How often the answer was sent back because it does not match its schema.
    pub repairs: u32,
    /// Whether the model was nudged because it repeated itself or asked a question.
    pub nudged: bool,
    /// Properties of the model's replies other than the answer.
    pub replies: Replies,
    /// The task of the step, repeated at the start of a fresh attempt.
    pub fresh: Option<Message>,
    /// How the command of a `run` step ended, and its output.
    pub ran: Option<(crate::base::call::ExitInfo, String)>,
    /// Whether that output is only head and tail of what was printed.
    pub ran_cut: bool,
    /// Turns of this step since the tree last changed.
    pub idle: u64,
    /// Whether the model was warned that it changes nothing.
    pub warned_idle: bool,
    /// The tree when the step began, if known.
    pub tree: Option<String>,
}

/// Everything that decides what comes next.
#[derive(Clone, Debug, Default)]
pub struct RunState {
    pub started: Option<Box<RunStarted>>,
    pub phase: Phase,
    /// Index of the current or next step.
    pub step: usize,
    pub progress: StepProgress,
    /// Shared with the request that is under way.
    pub history: Arc<Vec<Message>>,
    /// Size of the history in bytes, as `history_size` counts it.
    pub bytes: u64,
    /// Index of the step's task in the history.
    pub task_at: Option<usize>,
    /// Token count that the service reported for the last request.
    pub reported: Option<Reported>,
    /// Context window of the model in tokens, as far as known.
    pub window: Option<u64>,
    /// Requests in a row that the service refused as too long.
    pub overflows: u32,
    /// Number of times that the history was rewritten.
    pub epoch: u64,
    /// The calls of the last reply, in its order.
    pub calls: IndexMap<CallId, CallRecord>,
    /// Calls so far in the run; the next call id is one more.
    pub calls_asked: u64,
    /// Index of the step of each call so far. A command in the background may outlast the step of its call.
    step_of_call: IndexMap<CallId, usize>,
    pub spent: Spent,
    /// Text of the last reply and how it ended.
    pub answer: String,
    pub stop: Option<StopReason>,
    /// Names and aliases of the tools that were declared to the model.
    pub tools: BTreeSet<String>,
    /// Codes of warnings that are made once per run and have been made.
    pub warned: BTreeSet<String>,
    /// What templates and conditions see of the steps that ended.
    pub outputs: StepOutputs,
    /// Prompts that MCP servers supplied for steps.
    pub prompts: Vec<GivenPrompt>,
    pub results: Vec<(StepId, StepResult)>,
    pub denials: Vec<DeniedCall>,
    /// Approved calls that failed, if no step's checks have passed since.
    pub approved_failures: Vec<ApprovedFailure>,
    /// Number of uses of each rule with `times`.
    pub uses: BTreeMap<String, u64>,
    pub baseline: Option<String>,
    pub patch: Option<PatchTaken>,
    /// How the calls of tools that edit files ended.
    pub edits: EditCalls,
    /// Files that edit tools changed, relative to the workspace.
    pub edited: BTreeSet<String>,
    /// Whether something that may have changed the tree ran since the last measurement.
    pub touched: bool,
    /// Who made the changes since the last measurement.
    pub author: Option<Author>,
    /// Paths whose changes could not be put back.
    pub not_put_back: Vec<String>,
    /// Changes of the author's own commands and of MCP servers that end the run, each with the one who made it: denied
    /// ones, and those that could not be undone.
    pub refused_commands: Vec<(String, Undone)>,
    /// Whether checks ran since the last measurement that may have left changes in the tree, as those of earlier versions
    /// did; changes made meanwhile are attributed to them.
    pub checks_left_changes: bool,
    /// What checks changed in the tree and was put back, each path with the last of these checks; at most 1,000.
    pub put_back_after: BTreeMap<String, String>,
    /// The patches in the run directory that bring this back.
    pub put_back_patches: BTreeSet<String>,
    /// How often in a row the same calls had the same results.
    pub repeats: u32,
    repetition: RepetitionDetector,
    /// Replies in a row that only repeat themselves.
    pub echoes: u32,
    pub confined: Option<String>,
    pub outcome: Option<RunOutcome>,
}

impl RunState {
    /// The state after these events.
    pub fn fold<'a>(events: impl IntoIterator<Item = &'a Event>) -> Self {
        let mut state = Self::default();
        for event in events {
            state.apply(&event.kind);
        }
        state
    }

    /// Applies one event. Accepts any event in any state: one that does not fit does no harm.
    pub fn apply(&mut self, event: &EventKind) {
        match event {
            EventKind::RunStarted(started) => self.started = Some(started.clone()),
            EventKind::Confined(confined) => self.confined = Some(confined.level.clone()),
            EventKind::Baseline { tree, .. } => {
                self.baseline = Some(tree.clone());
                self.progress.tree = Some(tree.clone());
            }
            EventKind::StepStarted { index, .. } => self.open_step(*index),
            EventKind::Ran { exit, output, cut, .. } => {
                self.progress.ran = Some((exit.clone(), output.clone()));
                self.progress.ran_cut = *cut;
                self.wrote(Author::TrustedStep);
                self.phase = Phase::Ran;
            }
            EventKind::AttemptStarted { n, fresh, .. } => {
                // The checks of the previous attempt are kept until the model has received their results.
                self.progress.attempt = *n;
                self.phase = Phase::Prompting;
                let tree = self.own_tree().map(str::to_owned);
                self.progress.replies.open_attempt(*n, tree);
                if *fresh {
                    self.forget_repeats();
                    self.forget_attempt();
                }
            }
            EventKind::Prompted { message, why } => self.prompted(message, *why),
            EventKind::Replied {
                reply,
                cost_micros,
                secrets,
                ..
            } => self.replied(reply, *cost_micros, secrets),
            EventKind::Decided(decided) => self.decided(decided),
            EventKind::Approved { call, allow, .. } => self.approved(call, *allow),
            EventKind::CallStarted { call } => self.call_started(call),
            EventKind::CallFinished {
                call, state, output, ..
            } => self.call_finished(call, *state, output),
            EventKind::Checked {
                check,
                put_back,
                put_back_patch,
                ..
            } => {
                self.checks_left_changes |= check.exit.is_some() && put_back.is_none();
                let paths = put_back.as_deref().unwrap_or_default();
                self.note_put_back(&check.name, paths, put_back_patch.as_deref());
                self.progress.checks.push(check.clone());
            }
            EventKind::ResponseJudged { errors, .. } => self.progress.judged = Some(errors.clone()),
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
                // The window that the service reports replaces an earlier value.
                self.window = window.or(self.window);
                if let Some(summary) = summary {
                    self.charge(1, summary.reply.usage, summary.cost_micros);
                }
            }
            EventKind::PatchTaken(patch) => {
                if self.own_tree() != Some(patch.own_tree()) {
                    self.progress.idle = 0;
                    self.progress.warned_idle = false;
                }
                self.patch = Some(patch.clone());
                self.touched = false;
                self.checks_left_changes = false;
                self.author = None;
                // Files that still have a denied change are in the new list, and are restored again.
                self.not_put_back.clear();
            }
            EventKind::PutBack(done) => self.put_back(done),
            EventKind::Undone {
                call: None,
                step: Some(step),
                check,
                undone,
                ..
            } => self.undone_of_step(step, *check, undone),
            EventKind::Undone {
                call: None,
                step: None,
                server: Some(server),
                undone,
                ..
            } => self.undone_of_server(server, undone),
            EventKind::Undone {
                call: Some(call),
                undone,
                ..
            } => self.undone_of_call(call, undone),
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
                self.executed(call, execs.iter().rev().find_map(|exec| exec.denied.as_ref()));
            }
            EventKind::Warned { code, .. } => {
                self.warned.insert(code.clone());
            }
            EventKind::Retried {
                discarded: Some(discarded),
                ..
            } => self.charge(0, discarded.usage, discarded.cost_micros),
            EventKind::Suspended { calls } => self.suspended(calls),
            EventKind::Undone { .. } | EventKind::Retried { .. } => {}
        }
    }

    fn open_step(&mut self, index: usize) {
        self.step = index;
        self.forget_repeats();
        self.phase = Phase::Opened;
        self.progress = StepProgress {
            tree: self.own_tree().map(str::to_owned),
            ..StepProgress::default()
        };
    }

    /// What repeated itself before is not held against a new task or a fresh attempt.
    fn forget_repeats(&mut self) {
        self.repeats = 0;
        self.repetition = RepetitionDetector::default();
        self.echoes = 0;
    }

    fn compacted(&mut self, history: &[Message], keep_from: usize, overflowed: bool) {
        let keep_from = keep_from.min(self.history.len());
        let kept = self.history.get(keep_from..).unwrap_or_default();
        let whole = [history, kept].concat();
        // Shrinking keeps the number of messages; a summary replaces all the older ones.
        self.task_at = self.task_at.map(|at| match at < keep_from {
            true if history.len() == keep_from => at,
            true => 0,
            false => at - keep_from + history.len(),
        });
        self.history = Arc::new(whole);
        self.bytes = self.history.iter().map(size).sum();
        self.overflows += u32::from(overflowed);
        self.epoch += 1;
    }

    fn push(&mut self, message: Message) {
        self.bytes += size(&message);
        Arc::make_mut(&mut self.history).push(message);
    }

    /// Charges run and step. A reply that was discarded is no turn.
    fn charge(&mut self, turns: u64, usage: Usage, cost_micros: Option<u64>) {
        for spent in [&mut self.spent, &mut self.progress.spent] {
            spent.charge(turns, usage.total(), cost_micros);
        }
    }

    /// Removes from the history everything since the step's task; the task is repeated together with the results of the
    /// checks.
    fn forget_attempt(&mut self) {
        let Some(at) = self.task_at.take().filter(|at| *at < self.history.len()) else {
            return;
        };
        self.progress.fresh = self.history.get(at).cloned();
        Arc::make_mut(&mut self.history).truncate(at);
        self.bytes = self.history.iter().map(size).sum();
        self.reported = None;
        self.epoch += 1;
    }

    fn prompted(&mut self, message: &Message, why: PromptReason) {
        if why == PromptReason::Task || self.progress.fresh.take().is_some() {
            self.task_at = Some(self.history.len());
        }
        self.push(message.clone());
        match why {
            PromptReason::Idle => self.progress.warned_idle = true,
            PromptReason::Repair => self.progress.repairs += 1,
            PromptReason::Nudge => {
                self.progress.nudged = true;
            }
            PromptReason::Task
            | PromptReason::Feedback
            | PromptReason::Retry
            | PromptReason::Echo
            | PromptReason::Printed
            | PromptReason::Empty => {}
        }
        self.progress.replies.prompted(why);
        self.progress.judged = None;
        self.progress.checks.clear();
        self.phase = Phase::Asking;
    }

    fn replied(&mut self, reply: &Reply, cost_micros: Option<u64>, secrets: &[CallId]) {
        self.charge(1, reply.usage, cost_micros);
        self.progress.idle += 1;
        self.overflows = 0;
        self.reported = match reply.usage.input {
            0 => None,
            input => Some(Reported {
                bytes: self.bytes,
                input,
            }),
        };
        self.answer = reply.text();
        self.progress.replies.replied(reply, &self.tools);
        // A service that pauses again and again without saying anything makes no progress either.
        let is_blank = |part: &Part| matches!(part, Part::Text { text, .. } if text.trim().is_empty());
        let is_empty_pause = reply.stop == StopReason::Paused && reply.parts.iter().all(is_blank);
        self.echoes = match is_empty_pause || echoes(&self.answer) {
            true => self.echoes + 1,
            false => 0,
        };
        self.stop = Some(reply.stop.clone());
        self.progress.judged = None;
        self.calls = reply
            .calls()
            .map(|call| {
                let record = CallRecord {
                    call: call.clone(),
                    secret: secrets.contains(&call.id),
                    state: CallState::Validating,
                    tool: None,
                    read_only: false,
                    may_write: true,
                    approved: false,
                    refused: false,
                    modified: None,
                    uses: Vec::new(),
                    output: None,
                    exec_denied: None,
                };
                (call.id.clone(), record)
            })
            .collect();
        self.calls_asked += self.calls.len() as u64;
        let step = self.step;
        self.step_of_call
            .extend(reply.calls().map(|call| (call.id.clone(), step)));
        // Services reject an empty message, and some chat templates two user messages in a row.
        let parts = match self.progress.replies.is_empty {
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
            && self.progress.checks.iter().any(|check| !check.of_answer)
            && self.progress.checks.iter().all(|check| check.passed)
        {
            self.approved_failures.clear();
        }
        let values = StepValues {
            exit_code: self.progress.ran.as_ref().and_then(|(exit, _)| exit.code),
            status: match result.status {
                StepStatus::Passed => "passed",
                StepStatus::Failed => "failed",
                StepStatus::Skipped => "skipped",
            },
            output: result.output.clone(),
            cut: result.cut,
            is_printed: self.progress.ran.is_some(),
        };
        self.outputs.insert(step.0.clone(), values);
        self.results.push((step.clone(), result.clone()));
        self.step += 1;
        self.phase = Phase::Between;
    }

    /// Id of the tree at the last measurement, or of the baseline.
    pub fn tree(&self) -> Option<&str> {
        self.patch
            .as_ref()
            .map(|patch| patch.tree.as_str())
            .or(self.baseline.as_deref())
    }

    /// Like [`RunState::tree`], without the changes that checks left behind.
    pub fn own_tree(&self) -> Option<&str> {
        self.patch
            .as_ref()
            .map(PatchTaken::own_tree)
            .or(self.baseline.as_deref())
    }

    /// Whether the tree may have changed since the last measurement.
    pub fn stale(&self) -> bool {
        self.touched || self.checks_left_changes
    }

    /// Whether the run has changed files, as of the last measurement. Without a baseline nothing that could change a
    /// file has run.
    pub fn changed(&self) -> bool {
        self.patch.as_ref().is_some_and(|patch| patch.blob.is_some())
    }

    /// Id of the current step.
    pub fn step_id(&self, plan: &Plan) -> StepId {
        plan.steps
            .get(self.step)
            .map_or_else(|| StepId::from("end"), |step| step.id.clone())
    }
}
