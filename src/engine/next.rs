//! Decides what comes next, as a pure function of the plan and the state.

use super::compact::{self, Compaction};
use super::prompt;
use super::response::{self, InSentence};
use super::state::{Phase, RunState};
use super::verdict::{MAX_LINE, denied_end, failed_step, outcome, refused_end};
use crate::base::budget::{LimitHit, Spent};
use crate::base::call::CallState;
use crate::base::event::PromptReason;
use crate::base::ids::CallId;
use crate::base::message::StopReason;
use crate::base::outcome::{COMMAND, CONDITION_FALSE, RunOutcome, StepResult, StepStatus, Verdict};
use crate::base::secret::{last_line, shortened};
use crate::policy::Author;
use crate::recipe::Plan;
use crate::recipe::plan::{CheckWhat, Expect, PlanStep, StepWork};
use crate::recipe::template::{self, TemplateError};

/// The model is warned after this many identical calls with identical results in a row.
pub const REPEATS_NOTED: u32 = 5;
/// After this many, the run ends as stuck.
pub const REPEATS_ENDED: u32 = 10;

/// A model that is expected to change files is warned after this many turns without a change in the tree.
pub const IDLE_NOTED: u64 = 25;
/// After this many, the run ends as stuck.
pub const IDLE_ENDED: u64 = 60;
/// After this many replies in a row that only repeat themselves, the run ends as stuck.
pub const ECHOES_ENDED: u32 = 3;

/// Upper limit in characters for a command that is quoted in the message of its step.
const COMMAND_SHOWN: usize = 80;

/// The next action of the loop.
#[derive(Clone, Debug, PartialEq)]
pub enum Next {
    /// Begin the step with this index.
    Begin(usize),
    /// Run the command of a `run` step.
    Run,
    /// Begin the attempt with this number; the text is the reason.
    Attempt(u32, String),
    /// Add a message to the model.
    Prompt(PromptReason),
    /// Send a request to the model.
    Ask,
    /// Shorten the history first.
    Compact(Compaction),
    /// Run the first wave of these calls.
    Call(Vec<CallId>),
    /// Settle a call that was running when the process ended, and that must not run again.
    Interrupted(CallId),
    /// Perform the check with this index.
    Check(usize),
    /// Validate the answer against the response schema.
    Judge,
    /// Measure what the run has changed so far.
    Measure,
    /// Put back the changes that no rule allows.
    PutBack,
    /// End the step.
    StepDone(StepResult),
    /// Suspend the run until these calls are approved.
    Suspend(Vec<CallId>),
    /// End the run with this outcome.
    Finish(RunOutcome),
    /// The run has ended with this outcome.
    Done(RunOutcome),
}

/// The next action.
pub fn next(state: &RunState, plan: &Plan) -> Next {
    if let Some(outcome) = &state.outcome {
        return Next::Done(outcome.clone());
    }
    if state.due().next().is_some() {
        return Next::PutBack;
    }
    if let Some(outcome) = refused_end(state).or_else(|| denied_end(state, plan)) {
        return Next::Finish(outcome);
    }
    if state.touched && state.author == Some(Author::Approved) && !executing(state) {
        // Changes of an approved call are ruled on differently, so they are measured before any others are made.
        return Next::Measure;
    }
    let Some(step) = plan.steps.get(state.step) else {
        return finish(state, plan);
    };
    match state.phase {
        Phase::Between if failed_step(state).is_some() => finish(state, plan),
        Phase::Between => Next::Begin(state.step),
        Phase::Opened => open(state, plan, step),
        Phase::Prompting => match state.progress.attempt {
            0 | 1 => Next::Prompt(PromptReason::Task),
            _ => Next::Prompt(PromptReason::Feedback),
        },
        Phase::Asking => ask(state, plan, step),
        Phase::Calling => call(state, plan),
        Phase::Answered => answered(state, plan, step),
        Phase::Ran => ran(state, step),
    }
}

/// Ends a run whose steps are done. If the tree may have changed, it is measured first.
fn finish(state: &RunState, plan: &Plan) -> Next {
    match state.stale() {
        true => Next::Measure,
        false => Next::Finish(outcome(state, plan)),
    }
}

fn executing(state: &RunState) -> bool {
    let mut calls = state.calls.values();
    calls.any(|record| record.state == CallState::Executing)
}

/// Whether an earlier denial ends the run at once.
pub fn ends_the_run(state: &RunState, plan: &Plan) -> bool {
    denied_end(state, plan).is_some()
}

/// Whether the condition of a step holds, given what earlier steps left.
///
/// # Errors
/// The condition cannot be evaluated with these values.
pub fn condition_holds(state: &RunState, plan: &Plan, step: &PlanStep) -> Result<bool, TemplateError> {
    match &step.when {
        None => Ok(true),
        Some(when) => template::condition(when, &plan.scope(&state.outputs)),
    }
}

fn open(state: &RunState, plan: &Plan, step: &PlanStep) -> Next {
    // Once something of the step was done, its condition is not evaluated again.
    let untouched = state.progress.attempt == 0 && state.progress.checks.is_empty();
    if let (true, Some(when)) = (untouched, &step.when) {
        match condition_holds(state, plan, step) {
            Ok(true) => {}
            Ok(false) => {
                return Next::StepDone(StepResult {
                    status: StepStatus::Skipped,
                    reason: CONDITION_FALSE.to_owned(),
                    message: format!("its condition does not hold: {}", when.trim()),
                    output: String::new(),
                    cut: false,
                    changed: Some(false),
                });
            }
            Err(error) => {
                let message = format!("`when` of step {}: {error}", step.id);
                return Next::Finish(RunOutcome::new(Verdict::Invalid, "template", message));
            }
        }
    }
    if let StepWork::Run { .. } = step.work {
        // Changes of the step count as the author's, so the changes made before it are measured first.
        return if state.stale() { Next::Measure } else { Next::Run };
    }
    if step.skip_if_green && !step.checks.is_empty() {
        let red = state.progress.checks.iter().find(|check| !check.passed);
        if red.is_none() {
            return match state.progress.checks.len() {
                done if done < step.checks.len() => check(state, step, done),
                _ if state.stale() => Next::Measure,
                _ => Next::StepDone(StepResult {
                    status: StepStatus::Skipped,
                    reason: "green".to_owned(),
                    message: "all checks passed before the model was asked".to_owned(),
                    output: String::new(),
                    cut: false,
                    changed: Some(false),
                }),
            };
        }
    }
    match state.stale() {
        true => Next::Measure,
        false => Next::Attempt(1, "first attempt".to_owned()),
    }
}

/// Performs the check with this index. Before the first check, the tree is measured and changes that no rule allows are
/// put back. What the check itself changes is put back when it ends, so that each one sees the tree that is delivered.
fn check(state: &RunState, step: &PlanStep, index: usize) -> Next {
    let look = match step.checks.get(index).map(|check| &check.what) {
        Some(CheckWhat::Changed(_) | CheckWhat::Run { .. } | CheckWhat::File { .. } | CheckWhat::AnswerRun { .. }) => {
            state.stale()
        }
        Some(CheckWhat::AnswerSchema { .. }) | None => false,
    };
    if look { Next::Measure } else { Next::Check(index) }
}

/// Whether background commands that may write are ended before the tree is measured now: checks come next, or the run's
/// last step has ended.
pub fn ends_writers(state: &RunState, plan: &Plan) -> bool {
    let Some(step) = plan.steps.get(state.step) else {
        return true;
    };
    let has_more = state.progress.checks.len() < step.checks.len();
    match state.phase {
        Phase::Opened => {
            let is_red = state.progress.checks.iter().any(|check| !check.passed);
            matches!(step.work, StepWork::Prompt { .. }) && step.skip_if_green && has_more && !is_red
        }
        Phase::Answered => {
            // The model is asked again, or the run ends without checks.
            let is_cut = matches!(state.stop, Some(StopReason::Length { .. } | StopReason::Paused));
            let goes_on = is_cut || asks_back(state, plan, step);
            !goes_on && (has_more || state.step + 1 == plan.steps.len())
        }
        Phase::Ran => has_more || state.step + 1 == plan.steps.len(),
        _ => false,
    }
}

fn ask(state: &RunState, plan: &Plan, step: &PlanStep) -> Next {
    if let Some(next) = stuck(state, plan, step) {
        return next;
    }
    match no_room(&state.spent, &state.progress.spent, plan, step) {
        Some(outcome) => Next::Finish(outcome),
        None => compact::due(state).map_or(Next::Ask, Next::Compact),
    }
}

/// The outcome if a limit leaves no room for another request. `run` and `own`: what the run and its step have spent.
pub fn no_room(run: &Spent, own: &Spent, plan: &Plan, step: &PlanStep) -> Option<RunOutcome> {
    let capped = plan.budget.cost_micros.is_some() || step.budget.as_ref().is_some_and(|b| b.cost_micros.is_some());
    if capped && run.unpriced {
        let message = "budget reached: a model without a known price answered, and the cost is limited; add its price to \
                       the OVERNIGHT_PRICES file";
        return Some(RunOutcome::new(Verdict::Budget, "limit:cost", message));
    }
    let of_step = step.budget.as_ref().and_then(|budget| own.exhausted(budget));
    let of_step = of_step.map(|hit| hit.of_step(&step.id));
    run.exhausted(&plan.budget)
        .or(of_step)
        .map(|hit| RunOutcome::limit(&hit))
}

/// A model that repeats itself is warned once; then the run ends.
fn stuck(state: &RunState, plan: &Plan, step: &PlanStep) -> Option<Next> {
    let end = |message: String| Some(Next::Finish(RunOutcome::new(Verdict::Failed, "stuck", message)));
    if state.repeats >= REPEATS_ENDED {
        return end(format!(
            "the same calls gave the same results {} times in a row",
            state.repeats
        ));
    }
    if state.repeats == REPEATS_NOTED && !state.progress.nudged {
        return Some(Next::Prompt(PromptReason::Nudge));
    }
    if state.echoes >= ECHOES_ENDED {
        let how = match state.answer.trim() {
            "" => "were empty",
            _ => "only repeated the same text",
        };
        return end(format!("{} replies in a row {how}", state.echoes));
    }
    if !must_change(state, plan, step) || state.progress.idle < IDLE_NOTED {
        return None;
    }
    let decides = state.progress.idle >= IDLE_ENDED || !state.progress.warned_idle;
    match (decides, state.touched) {
        (false, _) => None,
        (true, true) => Some(Next::Measure),
        (true, false) if state.progress.idle >= IDLE_ENDED => end(format!(
            "a change was expected, and nothing changed in {} turns",
            state.progress.idle
        )),
        (true, false) => Some(Next::Prompt(PromptReason::Idle)),
    }
}

/// Whether the current step must leave a change in the tree.
fn must_change(state: &RunState, plan: &Plan, step: &PlanStep) -> bool {
    step.expect == Expect::Change || (plan.expect == Expect::Change && is_last_prompt(state, plan))
}

fn call(state: &RunState, plan: &Plan) -> Next {
    let mut waiting = state.calls.values().filter(|record| !record.state.is_final());
    let Some(first) = waiting.next() else {
        return Next::Ask;
    };
    match first.state {
        CallState::Executing if !first.read_only => Next::Interrupted(first.call.id.clone()),
        CallState::AwaitingApproval => Next::Suspend(vec![first.call.id.clone()]),
        CallState::Scheduled if first.approved && state.touched => Next::Measure,
        CallState::Scheduled if !first.refused && (first.approved || first.tool.is_some()) => {
            let tool = first.tool.as_deref().unwrap_or(&first.call.tool);
            match call_limit(state, plan, tool, 0) {
                Some(hit) => Next::Finish(RunOutcome::limit(&hit)),
                None => Next::Call(unsettled(state)),
            }
        }
        _ => Next::Call(unsettled(state)),
    }
}

/// The limit that one more call of `tool` would exceed; `more`: calls of this batch that are about to start already.
pub fn call_limit(state: &RunState, plan: &Plan, tool: &str, more: u64) -> Option<LimitHit> {
    let own = plan
        .steps
        .get(state.step)
        .and_then(|step| Some((step, step.budget.as_ref()?)));
    let of_run = (&state.spent, &plan.budget, None);
    let of_step = own.map(|(step, budget)| (&state.progress.spent, budget, Some(&step.id)));
    [Some(of_run), of_step]
        .into_iter()
        .flatten()
        .find_map(|(spent, budget, step)| {
            let allowed = *budget.calls.get(tool)?;
            let spent = spent.calls.get(tool).copied().unwrap_or(0) + more;
            (spent >= allowed).then(|| LimitHit {
                limit: format!("calls:{tool}"),
                spent,
                allowed,
                step: step.cloned(),
            })
        })
}

fn unsettled(state: &RunState) -> Vec<CallId> {
    let open = state.calls.values().filter(|record| !record.state.is_final());
    open.map(|record| record.call.id.clone()).collect()
}

fn answered(state: &RunState, plan: &Plan, step: &PlanStep) -> Next {
    match &state.stop {
        Some(StopReason::Length { .. }) if state.echoes > 0 => {
            return match stuck(state, plan, step) {
                Some(next) => next,
                None => Next::Prompt(PromptReason::Echo),
            };
        }
        Some(StopReason::Length { .. }) if !state.progress.replies.warned_cut => {
            return Next::Prompt(PromptReason::Retry);
        }
        Some(StopReason::Length { call }) => {
            let message = format!(
                "{} again after a warning; raise the limit with --max-output-tokens, or `model_settings: {{ max_output_tokens: … }}` \
                 in the recipe, or at the server",
                prompt::cut(call.as_deref(), state.progress.replies.output_tokens)
            );
            return Next::Finish(RunOutcome::new(Verdict::Provider, "length", message));
        }
        Some(StopReason::Refused { reason }) => {
            let message = format!("the model service refused: {reason}");
            return Next::Finish(RunOutcome::new(Verdict::Provider, "blocked", message));
        }
        // The service documents that it continues when its reply is sent back.
        Some(StopReason::Paused) => return ask(state, plan, step),
        Some(StopReason::End | StopReason::Calls | StopReason::Unknown { .. }) | None => {}
    }
    if asks_back(state, plan, step) {
        if state.touched {
            return Next::Measure;
        }
        if !changed_in_step(state) {
            return Next::Prompt(PromptReason::Nudge);
        }
    }
    if state.progress.replies.is_empty && !state.progress.replies.warned_empty {
        return Next::Prompt(PromptReason::Empty);
    }
    let wants_json = plan.response.is_some() && is_last_prompt(state, plan);
    let printed = state.progress.replies.printed.is_some() && !state.progress.replies.warned_printed_call;
    if !wants_json && let Some(next) = no_answer(state, step, printed) {
        return next;
    }
    if wants_json {
        match &state.progress.judged {
            None => return Next::Judge,
            Some(errors) if errors.is_empty() => {}
            // The response schema may ask for JSON that looks like a call, so the answer is validated first.
            Some(_) if printed => return Next::Prompt(PromptReason::Printed),
            Some(_) if state.progress.repairs < plan.response_retries => return Next::Prompt(PromptReason::Repair),
            Some(errors) => {
                let message = format!("the answer does not fit the response schema: {}", errors.join("; "));
                return done(state, StepStatus::Failed, "response", message);
            }
        }
    }
    checked(state, step)
}

/// Whether the answer is a question, the step must change files, and the model has not been told yet that nobody will
/// answer.
fn asks_back(state: &RunState, plan: &Plan, step: &PlanStep) -> bool {
    must_change(state, plan, step) && !state.progress.nudged && is_question(&state.answer)
}

/// What follows a reply that is no answer: a call written as text, or an empty reply. The model is warned once. If it
/// happens again, the attempt ends: its checks decide, and without checks its changes are kept.
fn no_answer(state: &RunState, step: &PlanStep, printed: bool) -> Option<Next> {
    if printed {
        return Some(Next::Prompt(PromptReason::Printed));
    }
    let lacks_answer = state.progress.replies.is_empty || state.progress.replies.printed.is_some();
    if !lacks_answer || !step.checks.is_empty() {
        return None;
    }
    if state.touched {
        return Some(Next::Measure);
    }
    if changed_in_step(state) {
        return None;
    }
    Some(match &state.progress.replies.printed {
        Some(tool) => {
            let message = format!(
                "the model writes its calls as text (`{tool}`), so that nothing was called: its server does not read them as calls, or \
                 the model has no tools. vLLM needs `--enable-auto-tool-choice --tool-call-parser NAME`, llama-server `--jinja`, Ollama \
                 and LM Studio a model with tools"
            );
            done(state, StepStatus::Failed, "printed_call", message)
        }
        None => {
            let message = "the model sent two empty replies and changed nothing";
            Next::Finish(RunOutcome::new(Verdict::Provider, "unusable", message))
        }
    })
}

/// Performs the remaining checks, then ends the attempt.
fn checked(state: &RunState, step: &PlanStep) -> Next {
    if state.progress.checks.len() < step.checks.len() {
        return check(state, step, state.progress.checks.len());
    }
    if state.stale() {
        return Next::Measure;
    }
    let red: Vec<&str> = state
        .progress
        .checks
        .iter()
        .filter(|c| !c.passed)
        .map(|c| c.name.as_str())
        .collect();
    if !red.is_empty() {
        let why = format!("failed: {}", red.join(", "));
        let is_prompt = matches!(step.work, StepWork::Prompt { .. });
        let repeats = is_prompt && state.progress.replies.repeats(state.own_tree());
        if repeats {
            let message = format!(
                "checks {why}; attempt {} gave the same replies as the one before and left the tree as it was, so that no further \
                 attempt was made",
                state.progress.attempt
            );
            return done(state, StepStatus::Failed, "check", message);
        }
        if is_prompt && state.progress.attempt <= step.retries {
            return Next::Attempt(state.progress.attempt + 1, why);
        }
        return done(state, StepStatus::Failed, "check", format!("checks {why}"));
    }
    match (step.expect, changed_in_step(state)) {
        (Expect::Change, false) => {
            let message = "a change was expected and nothing changed".to_owned();
            done(state, StepStatus::Failed, "expect", message)
        }
        (Expect::NoChange, true) => {
            let message = "no change was expected and files changed".to_owned();
            done(state, StepStatus::Failed, "expect", message)
        }
        _ => done(state, StepStatus::Passed, "", String::new()),
    }
}

fn ran(state: &RunState, step: &PlanStep) -> Next {
    let StepWork::Run {
        command, allow_failure, ..
    } = &step.work
    else {
        return done(
            state,
            StepStatus::Failed,
            "plan",
            "a prompt step has no command".to_owned(),
        );
    };
    let ended = state.progress.ran.as_ref().map(|(exit, _)| exit);
    if let Some(exit) = ended
        && exit.code != Some(0)
        && (!allow_failure || exit.timed_out)
    {
        let how = match exit.timed_out {
            true => "ran out of time".to_owned(),
            false => format!("ended with {}", exit.ending()),
        };
        let first = command.trim().lines().next().unwrap_or_default();
        let printed = state.progress.ran.as_ref();
        let printed = printed.and_then(|(_, output)| last_line(output, MAX_LINE));
        let last = printed.map_or(String::new(), |line| format!(": {line}"));
        let message = format!("the command `{}` {how}{last}", shortened(first, COMMAND_SHOWN));
        return done(state, StepStatus::Failed, COMMAND, message);
    }
    checked(state, step)
}

fn done(state: &RunState, status: StepStatus, reason: &str, message: String) -> Next {
    let output = match &state.progress.ran {
        Some((_, output)) => output.clone(),
        None => state.answer.clone(),
    };
    Next::StepDone(StepResult {
        status,
        reason: reason.to_owned(),
        message,
        output,
        cut: state.progress.ran.is_some() && state.progress.ran_cut,
        changed: (!state.touched).then(|| changed_in_step(state)),
    })
}

fn changed_in_step(state: &RunState) -> bool {
    match (&state.patch, &state.progress.tree) {
        (Some(patch), Some(before)) => patch.own_tree() != before,
        (Some(patch), None) => patch.blob.is_some(),
        (None, _) => false,
    }
}

/// The answer of the current step, as checks and programs read it: what a command printed; where the response schema
/// applies, the JSON document alone; otherwise the text of the last reply.
pub fn answer(state: &RunState, plan: &Plan) -> String {
    if let Some((_, output)) = &state.progress.ran {
        return output.clone();
    }
    let schema = plan.response.as_ref().filter(|_| is_last_prompt(state, plan));
    let judged = schema.and_then(|schema| response::judge(&state.answer, schema, InSentence::Accepted).ok());
    judged.map_or_else(|| state.answer.clone(), |value| value.to_string())
}

fn is_last_prompt(state: &RunState, plan: &Plan) -> bool {
    let later = plan.steps.iter().skip(state.step + 1);
    !later
        .into_iter()
        .any(|step| matches!(step.work, StepWork::Prompt { .. }))
}

fn is_question(answer: &str) -> bool {
    answer.trim_end().ends_with('?')
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::crash_tests::{any_plan, replied};

    #[test]
    fn a_service_that_only_pauses_ends_the_run() {
        let plan = any_plan(1, 0);
        let mut state = RunState::default();
        state.phase = Phase::Asking;
        let pause = replied(Vec::new(), StopReason::Paused);
        for _ in 1..ECHOES_ENDED {
            state.apply(&pause);
            assert_eq!(next(&state, &plan), Next::Ask);
        }
        state.apply(&pause);
        let Next::Finish(outcome) = next(&state, &plan) else {
            panic!("{:?}", next(&state, &plan));
        };
        assert_eq!(outcome.reason, "stuck");
        assert_eq!(outcome.message, "3 replies in a row were empty");
    }

    /// The model is asked again; what it started in the background still runs then.
    #[test]
    fn a_cut_reply_ends_no_background_command() {
        let plan = any_plan(1, 0);
        let mut state = RunState::default();
        state.phase = Phase::Answered;
        state.stop = Some(StopReason::End);
        assert!(ends_writers(&state, &plan));
        for stop in [StopReason::Length { call: None }, StopReason::Paused] {
            state.stop = Some(stop);
            assert!(!ends_writers(&state, &plan));
        }
    }
}
