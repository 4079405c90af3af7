//! What the ruling on a call means for its command while it runs, and what is recorded of the programs that it executed.

use super::command_judge::CommandJudge;
use super::deps::Deps;
use super::effects::Stop;
use super::ledger::Ledger;
use crate::base::call::{Origin, ToolOutput};
use crate::base::event::{Decided, EventKind};
use crate::base::grant::{ExecJudge, Writes};
use crate::base::ids::CallId;
use crate::base::ruling::Asked;
use crate::policy::WishedLevel;
use std::sync::Arc;

/// What a command is bound by while it runs.
pub struct Bounds {
    pub writes: Writes,
    pub judge: Option<Arc<dyn ExecJudge>>,
}

/// The bounds of a call that was allowed: what the ruling granted, and a judge for the programs of its command where programs can be
/// judged. What is no command of the built-in shell is bound by the patch alone.
pub fn bounds(deps: &Deps, decided: &Decided, asked: &Asked<'_>) -> Bounds {
    let commands = !decided.access.commands.is_empty() && *asked.origin == Origin::Builtin;
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

/// Whether programs of commands are judged at their exec in this run, as far as is known.
pub fn is_witnessed(deps: &Deps) -> bool {
    match deps.scope.confinement.get() {
        Some(confinement) => confinement.witness,
        None => deps.policies.sandbox().level != WishedLevel::None,
    }
}

/// Records the programs of a call that were judged at their exec.
pub fn record(ledger: &mut Ledger, call: &CallId, output: &ToolOutput) -> Result<(), Stop> {
    let judged = &output.judged;
    if judged.execs.is_empty() && judged.omitted == 0 {
        return Ok(());
    }
    Ok(ledger.record(EventKind::Executed {
        call: call.clone(),
        execs: judged.execs.clone(),
        omitted: judged.omitted,
    })?)
}
