//! Derives the limits of a command from the ruling on its call, and records the programs that it executed.

use super::command_judge::CommandJudge;
use super::deps::Deps;
use super::ledger::Ledger;
use super::run_error::RunError;
use crate::base::call::{ToolOrigin, ToolOutput};
use crate::base::event::{Decided, EventKind};
use crate::base::grant::{ExecJudge, Undone, Writes};
use crate::base::ids::{CallId, StepId};
use crate::base::ruling::PolicyInput;
use crate::policy::WishedLevel;
use std::sync::Arc;

/// The limits of a command while it runs.
pub struct Bounds {
    pub writes: Writes,
    pub judge: Option<Arc<dyn ExecJudge>>,
}

/// The limits for an allowed call: what the ruling granted, and a judge for its programs if programs can be judged in
/// this run. Any call other than a command of the built-in shell is limited only by the check of the patch.
pub fn bounds(deps: &Deps, decided: &Decided, asked: &PolicyInput<'_>) -> Bounds {
    let commands = !decided.access.commands.is_empty() && *asked.origin == ToolOrigin::Builtin;
    let confinement = deps.scope.confinement.get().filter(|_| commands);
    let Some(confinement) = confinement else {
        return Bounds {
            writes: match commands {
                true => decided.ruling.writes.clone(),
                false => Writes::Tree,
            },
            judge: None,
        };
    };
    let judge = || -> Arc<dyn ExecJudge> {
        let judge = CommandJudge::new(&deps.policies, &deps.workspace, confinement, asked, &decided.access);
        Arc::new(judge)
    };
    Bounds {
        writes: decided.ruling.writes.clone(),
        judge: confinement.witness.then(judge),
    }
}

/// Whether programs are judged at their `execve` in this run, as far as known yet.
pub fn is_witnessed(deps: &Deps) -> bool {
    match deps.scope.confinement.get() {
        Some(confinement) => confinement.witness,
        None => deps.policies.sandbox().level != WishedLevel::None,
    }
}

/// Upper limit for the undone changes that one event lists.
const MOST_UNDONE: usize = 1_000;

/// Records the programs of a call that were judged, and the changes of its command that were not granted.
pub fn record(ledger: &mut Ledger, call: &CallId, output: &ToolOutput) -> Result<(), RunError> {
    let judged = &output.judged;
    if !judged.execs.is_empty() || judged.omitted > 0 {
        ledger.record(EventKind::Executed {
            call: call.clone(),
            execs: judged.execs.clone(),
            omitted: judged.omitted,
        })?;
    }
    record_undone(ledger, (Some(call), None, false), &output.undone)
}

/// Records changes that were not granted, made by a call's command or by a command of the step, which may be a check.
/// Changes that could not be undone come first, then those that a deny rule forbids, so that the limit does not cut
/// them.
pub fn record_undone(
    ledger: &mut Ledger,
    (call, step, check): (Option<&CallId>, Option<&StepId>, bool),
    undone: &[Undone],
) -> Result<(), RunError> {
    if undone.is_empty() {
        return Ok(());
    }
    let mut undone = undone.to_vec();
    undone.sort_by_key(|one| (one.restored, one.code != "deny_rule"));
    let omitted = undone.len().saturating_sub(MOST_UNDONE) as u64;
    undone.truncate(MOST_UNDONE);
    Ok(ledger.record(EventKind::Undone {
        call: call.cloned(),
        step: step.cloned(),
        check,
        undone,
        omitted,
    })?)
}
