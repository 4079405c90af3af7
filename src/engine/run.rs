//! The loop: asks `next` what to do, does it, records what happened, until the run is done.

use super::changes;
use super::deps::{Deps, StepLimit};
use super::effects;
use super::exec;
use super::ledger::Ledger;
use super::model_request::RequestContext;
use super::next::{Next, next};
use super::preconditions::Preconditions;
use super::run_error::RunError;
use super::scheduler;
use super::state::{Phase, RunState};
use crate::base::event::EventKind;
use crate::base::ids::CallId;
use crate::base::outcome::{RunOutcome, Verdict};
use crate::journal::JournalError;
use crate::process;

/// Runs to the end, from the recorded state.
///
/// # Errors
/// [`JournalError`] if the journal cannot be written. All other errors end the run with an outcome.
pub async fn run(
    deps: &Deps,
    ledger: &mut Ledger,
    mut preconditions: Preconditions,
) -> Result<RunOutcome, JournalError> {
    let mut turn = Turn {
        asking: RequestContext::new(deps),
        timed: None,
    };
    loop {
        if ledger.state.outcome.is_none() {
            exec::record_ended_jobs(deps, ledger)?;
        }
        let step = next(&ledger.state, &deps.plan);
        if let Next::Done(outcome) = step {
            return Ok(outcome);
        }
        turn.limit_step(deps, &ledger.state);
        let done = match deps.interrupted() {
            Some(outcome) => Err(RunError::Ended(outcome)),
            None => turn.perform(deps, ledger, &mut preconditions, step).await,
        };
        let done = match (done, process::survivors::message(deps.workspace.root())) {
            (Ok(()), Some(told)) => Err(RunError::Environment(told)),
            (done, _) => done,
        };
        match done {
            Ok(()) => {}
            Err(RunError::Journal(error)) => return Err(error),
            Err(RunError::Ended(outcome)) => effects::finish(deps, ledger, &mut preconditions, outcome).await?,
            Err(RunError::Environment(why)) => {
                // If the tree could not be read because the run's time is over, `finish` reports what is not recorded.
                let environment = || RunOutcome::new(Verdict::Environment, "environment", why);
                let outcome = deps.cut_off().unwrap_or_else(environment);
                effects::finish(deps, ledger, &mut preconditions, outcome).await?;
            }
        }
    }
}

/// Data that lasts from one turn to the next and is not recorded.
struct Turn {
    asking: RequestContext,
    /// Index of the step whose time runs.
    timed: Option<usize>,
}

impl Turn {
    /// Sets the wall-clock limit of a step that has begun, and removes that of one that has ended. All attempts and checks of
    /// a step share its time; in a resumed run the time of the current step begins again.
    fn limit_step(&mut self, deps: &Deps, state: &RunState) {
        let current = (state.phase != Phase::Between).then_some(state.step);
        if current == self.timed {
            return;
        }
        self.timed = current;
        let step = current.and_then(|index| deps.plan.steps.get(index));
        let wall = step.and_then(|step| Some((&step.id, step.budget.as_ref()?.wall_ms?)));
        deps.interrupt
            .limit_step(wall.and_then(|(id, wall_ms)| StepLimit::begin(id, wall_ms)));
    }

    async fn perform(
        &mut self,
        deps: &Deps,
        ledger: &mut Ledger,
        preconditions: &mut Preconditions,
        step: Next,
    ) -> Result<(), RunError> {
        match step {
            Next::Begin(index) => effects::begin(deps, ledger, index),
            Next::Run => effects::run_command(deps, ledger, preconditions).await,
            Next::Attempt(n, why) => {
                let step = ledger.state.step_id(&deps.plan);
                let fresh = n > 1 && deps.plan.steps.get(ledger.state.step).is_some_and(|step| step.fresh);
                Ok(ledger.record(EventKind::AttemptStarted { step, n, why, fresh })?)
            }
            Next::Prompt(why) => effects::record_prompt(deps, ledger, why),
            Next::Ask => {
                let asked = self.asking.ask(deps, ledger).await;
                // Determined while the first request is under way; a run that cannot have its sandbox stops here.
                preconditions.confine(deps, ledger).await?;
                asked
            }
            Next::Compact(how) => self.asking.compact(deps, ledger, &how, None).await,
            Next::Call(calls) => scheduler::settle(deps, ledger, preconditions, &calls).await,
            Next::Interrupted(call) => effects::interrupted(ledger, call),
            Next::Check(index) => effects::check(deps, ledger, preconditions, index).await,
            Next::Judge => effects::judge(deps, ledger),
            Next::Measure => effects::measure(deps, ledger, preconditions).await,
            Next::PutBack => changes::put_back(deps, ledger).await,
            Next::StepDone(result) => {
                let step = ledger.state.step_id(&deps.plan);
                Ok(ledger.record(EventKind::StepFinished { step, result })?)
            }
            Next::Suspend(calls) => {
                let names: Vec<&str> = calls.iter().map(CallId::as_str).collect();
                let message = format!("waiting for approval of {}", names.join(", "));
                ledger.record(EventKind::Suspended { calls })?;
                Err(RunError::Ended(RunOutcome::new(
                    Verdict::Suspended,
                    "approval",
                    message,
                )))
            }
            Next::Finish(outcome) | Next::Done(outcome) => Err(RunError::Ended(outcome)),
        }
    }
}
