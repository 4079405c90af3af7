//! `RunSummary`: the whole run in one structure that borrows from its events. All other outputs read it.

mod calls;
mod fold;

pub use calls::{CallSummary, DenialReason};

use crate::base::call::ExitInfo;
use crate::base::event::{Confined, PatchTaken, RunStarted, ServerStatus, ToolsetReady, Unruled};
use crate::base::message::{Message, Reply, StopReason, Usage};
use crate::base::outcome::{CheckResult, RunOutcome, StepResult, StepStatus, Verdict};
use jiff::Timestamp;
use serde_json::Value;
use std::borrow::Cow;
use std::ops::Range;

/// A whole run. Built by [`RunSummary::fold`] in one pass, without copying texts.
#[derive(Clone, Debug)]
pub struct RunSummary<'a> {
    /// `None` only for an empty journal.
    pub head: Option<&'a RunStarted>,
    pub started: Option<Timestamp>,
    /// Time of the last event.
    pub ended: Option<Timestamp>,
    /// Milliseconds before resumes in which nothing ran.
    pub idle_ms: u64,
    /// Whether the run reached its end. A killed run did not.
    pub finished: bool,
    /// The outcome; for a killed run the verdict is `incomplete`.
    pub outcome: RunOutcome,
    /// `PROVIDER/NAME`; after a resume, the model of the last one.
    pub model: &'a str,
    pub sandbox: Option<&'a Confined>,
    /// The tree that the patch is made against.
    pub baseline: Option<&'a str>,
    /// Whether the tree differed from the base commit at the start.
    pub dirty: bool,
    pub equipped: Option<&'a ToolsetReady>,
    /// The started steps, in order.
    pub steps: Vec<StepSummary<'a>>,
    pub turns: Vec<TurnSummary<'a>>,
    /// All calls, in the order in which the model made them.
    pub calls: Vec<CallSummary<'a>>,
    /// The validated JSON answer.
    pub output: Option<&'a Value>,
    pub patch: Option<&'a PatchTaken>,
    /// Changes that no rule allows, in their final state.
    pub unruled: Vec<Cow<'a, Unruled>>,
    /// Number of further changes that the sandbox reverted and that are not listed.
    pub undone_omitted: u64,
    pub warnings: Vec<Warning<'a>>,
    /// Number of resumes.
    pub resumed: u32,
    pub usage: Usage,
    /// Input and output tokens together, also of history summaries and of replies that were discarded, but not of web
    /// searches.
    pub tokens: u64,
    pub cost_micros: u64,
    /// Whether a price was unknown, so that the cost is too low.
    pub unpriced: bool,
    /// Requests for history summaries, in addition to `turns`.
    pub summaries: u64,
    /// Whether replies came from a script or a recorded run: the run may have begun with a model service, and continued
    /// with a fallback or another model.
    pub recorded: bool,
}

/// One started step.
#[derive(Clone, Debug)]
pub struct StepSummary<'a> {
    pub id: &'a str,
    /// The command of a step without a model.
    pub run: Option<&'a str>,
    pub started: Timestamp,
    /// Time of its last event.
    pub ended: Timestamp,
    /// Milliseconds before resumes in which nothing ran.
    pub idle_ms: u64,
    /// Number of started attempts.
    pub attempts: u32,
    /// What happened, in order.
    pub moments: Vec<Moment<'a>>,
    /// All checks of all attempts, in order.
    pub checks: Vec<CheckRun<'a>>,
    /// All validations of the final answer: whether it matches the schema, and what is wrong with it.
    pub judged: Vec<(bool, &'a [String])>,
    /// `None` while the step is active or if it was cut off.
    pub result: Option<&'a StepResult>,
    pub turns: u64,
    pub usage: Usage,
    pub cost_micros: u64,
}

/// One check of one attempt.
#[derive(Clone, Copy, Debug)]
pub struct CheckRun<'a> {
    pub at: Timestamp,
    pub attempt: u32,
    /// Made before the model was asked (`skip_if_green`); it is expected to fail.
    pub before: bool,
    pub result: &'a CheckResult,
}

/// One entry of a step's timeline.
#[derive(Clone, Debug)]
pub enum Moment<'a> {
    Attempt {
        n: u32,
        why: &'a str,
    },
    Prompted {
        at: Timestamp,
        message: &'a Message,
        /// A word for the [`PromptReason`](crate::base::event::PromptReason), as `fold::reason` writes it.
        why: &'static str,
    },
    Retried {
        class: &'a str,
        message: &'a str,
        wait_ms: u64,
    },
    /// Index into [`RunSummary::turns`].
    Turn(usize),
    Ran {
        at: Timestamp,
        command: &'a str,
        exit: &'a ExitInfo,
        output: &'a str,
        took_ms: u64,
    },
    /// Index into [`StepSummary::checks`].
    Checked(usize),
    Judged {
        ok: bool,
        errors: &'a [String],
    },
    Compacted {
        at: Timestamp,
        why: &'a str,
    },
    Resumed {
        at: Timestamp,
        by: &'a str,
        model: &'a str,
    },
}

/// One reply of the model and its calls.
#[derive(Clone, Debug)]
pub struct TurnSummary<'a> {
    pub n: u64,
    pub at: Timestamp,
    pub reply: &'a Reply,
    pub took_ms: u64,
    pub cost_micros: Option<u64>,
    /// Indices into [`RunSummary::calls`].
    pub calls: Range<usize>,
}

/// Something that a person should know.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Warning<'a> {
    pub code: &'a str,
    pub message: &'a str,
}

impl<'a> RunSummary<'a> {
    /// The run's id; empty for an empty journal.
    pub fn run(&self) -> &'a str {
        self.head.map_or("", |head| head.run.as_str())
    }

    /// The recipe's name, `prompt` for a run without one, `run` for an empty journal.
    pub fn recipe(&self) -> &'a str {
        self.head.map_or("run", |head| head.recipe.as_str())
    }

    /// The model that wrote the replies: the recorded one for a replay.
    pub fn speaker(&self) -> &'a str {
        let replayed = self.head.and_then(|head| head.replays.as_deref());
        replayed.unwrap_or(self.model)
    }

    /// Whether the replies come from a script and never had a price.
    pub(super) fn invented(&self) -> bool {
        self.head.is_some_and(|head| head.recorded && head.replays.is_none())
    }

    /// Milliseconds from the first event to the last, without the time before a resume in which nothing ran.
    pub fn duration_ms(&self) -> u64 {
        let whole = self.started.zip(self.ended).map_or(0, |(from, to)| between(from, to));
        whole.saturating_sub(self.idle_ms)
    }

    /// Number of the model's replies: the turns, and the requests for history summaries.
    pub fn replies(&self) -> u64 {
        self.turns.len() as u64 + self.summaries
    }

    /// The calls of one turn.
    pub fn calls_of(&self, turn: &TurnSummary<'a>) -> &[CallSummary<'a>] {
        self.calls.get(turn.calls.clone()).unwrap_or_default()
    }

    /// Denied calls, each with the reason.
    pub fn denied(&self) -> impl Iterator<Item = (&CallSummary<'a>, DenialReason<'a>)> {
        self.calls.iter().filter_map(|call| Some((call, call.denial()?)))
    }

    /// Whether the denial of a call ended the run or decided its verdict.
    pub fn denial_counts(&self, call: &CallSummary<'a>) -> bool {
        let Some(denial) = call.denial() else { return false };
        if self.outcome.verdict != Verdict::Denied {
            return false;
        }
        match self.outcome.reason.as_str() {
            "secret_hit" => denial.code == "secret_hit",
            "on_deny" => self
                .denied()
                .next()
                .is_some_and(|(first, _)| first.call.id == call.call.id),
            _ => !call.only_reads(),
        }
    }

    /// Number of changes that no rule allows and that are not listed.
    pub fn unruled_omitted(&self) -> u64 {
        self.patch.map_or(0, |patch| patch.unruled_omitted) + self.undone_omitted
    }

    /// A sentence about reverted changes and changes left out of the patch; empty when there are none.
    pub fn unruled_line(&self) -> String {
        let names = |wanted: &dyn Fn(&Unruled) -> bool| {
            let all: Vec<&str> = self
                .unruled
                .iter()
                .filter(|unruled| wanted(unruled))
                .map(|unruled| unruled.path.as_str())
                .collect();
            super::text::first_of(&all, 8)
        };
        let parts = [
            ("put back, as no rule allows them: ", names(&|unruled| unruled.restored)),
            ("new and left out of the patch: ", names(&|unruled| unruled.left)),
            ("NOT put back: ", names(&Unruled::is_due)),
        ];
        let said = parts.iter().filter(|(_, names)| !names.is_empty());
        let mut said: Vec<String> = said.map(|(what, names)| format!("{what}{names}")).collect();
        let omitted = self.patch.map_or(0, |patch| patch.unruled_omitted);
        if omitted > 0 {
            said.push(format!("{} more new files", super::text::grouped(omitted)));
        }
        if self.undone_omitted > 0 {
            said.push(format!(
                "{} more that were reverted",
                super::text::grouped(self.undone_omitted)
            ));
        }
        said.join("; ")
    }

    /// Calls that wait for a person.
    pub fn suspended(&self) -> impl Iterator<Item = &CallSummary<'a>> {
        self.calls.iter().filter(|call| call.is_waiting())
    }

    /// MCP servers in the order of the recipe.
    pub fn servers(&self) -> &'a [ServerStatus] {
        self.equipped.map_or(&[], |equipped| &equipped.servers)
    }

    /// `passed`, `failed` or `skipped`; for a step that was started but has not ended, `suspended` or `interrupted`.
    pub fn status_of(&self, step: &StepSummary<'a>) -> &'static str {
        match step.result.map(|result| result.status) {
            Some(StepStatus::Passed) => "passed",
            Some(StepStatus::Failed) => "failed",
            Some(StepStatus::Skipped) => "skipped",
            None => {
                let mut waiting = self.suspended().filter_map(|call| self.steps.get(call.step));
                let waits = waiting.any(|other| other.id == step.id);
                if waits { "suspended" } else { "interrupted" }
            }
        }
    }

    /// Ids of all steps of the plan, started or not.
    pub fn planned(&self) -> Vec<&'a str> {
        let steps = self.head.and_then(|head| head.plan.get("steps")?.as_array());
        let ids = steps.into_iter().flatten().filter_map(|step| step.get("id")?.as_str());
        let mut all: Vec<&str> = ids.collect();
        for step in &self.steps {
            if !all.contains(&step.id) {
                all.push(step.id);
            }
        }
        all
    }

    /// Whether the plan asks for an answer with a schema.
    pub fn wants_output(&self) -> bool {
        self.head
            .and_then(|head| head.plan.get("response"))
            .is_some_and(|schema| !schema.is_null())
    }

    /// The final answer of the last step with a model: its last reply without calls, or else its last text. Without
    /// any, the last step's output. May be empty.
    pub fn answer(&self) -> String {
        let step = self.steps.iter().rev().find(|step| step.turns > 0);
        let turns = step.into_iter().flat_map(|step| step.moments.iter().rev());
        let turns = turns.filter_map(|moment| match moment {
            Moment::Turn(i) => self.turns.get(*i),
            _ => None,
        });
        let said = turns.map(|turn| turn.reply).filter(|reply| !reply.text().is_empty());
        let ended = |reply: &&Reply| {
            let is_end = matches!(reply.stop, StopReason::End | StopReason::Unknown { .. });
            is_end && reply.calls().next().is_none()
        };
        let last = said.clone().find(ended).or_else(|| said.clone().next());
        last.map(Reply::text).unwrap_or_else(|| {
            let last = self.steps.iter().rev().find_map(|step| step.result);
            last.map(|result| result.output.clone()).unwrap_or_default()
        })
    }

    /// Lines added and removed in text files.
    pub fn changed_lines(&self) -> (u64, u64) {
        let files = self.patch.map_or(&[][..], |patch| &patch.files);
        files.iter().fold((0, 0), |(added, removed), file| {
            (
                added + file.added.unwrap_or_default(),
                removed + file.removed.unwrap_or_default(),
            )
        })
    }
}

impl<'a> StepSummary<'a> {
    /// Milliseconds from its first event to its last, without the time before a resume in which nothing ran.
    pub fn duration_ms(&self) -> u64 {
        between(self.started, self.ended).saturating_sub(self.idle_ms)
    }

    /// Each check by name with the runs that count, in the order of first appearance. Runs before the model was asked
    /// count only if there are no others.
    pub fn checks_by_name(&self) -> Vec<(&'a str, Vec<CheckRun<'a>>)> {
        let mut groups: Vec<(&str, Vec<CheckRun<'_>>)> = Vec::new();
        for run in &self.checks {
            match groups.iter_mut().find(|(name, _)| *name == run.result.name) {
                Some((_, runs)) => runs.push(*run),
                None => groups.push((&run.result.name, vec![*run])),
            }
        }
        for (_, runs) in &mut groups {
            if runs.iter().any(|run| !run.before) {
                runs.retain(|run| !run.before);
            }
        }
        groups
    }
}

/// Milliseconds from one instant to another; 0 when the clock went backwards.
fn between(from: Timestamp, to: Timestamp) -> u64 {
    u64::try_from(to.as_millisecond() - from.as_millisecond()).unwrap_or(0)
}
