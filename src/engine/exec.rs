//! What the ruling on a call means for its command while it runs, and what is recorded of the programs that it executed.

use super::deps::Deps;
use super::effects::Stop;
use super::ledger::Ledger;
use crate::base::call::ToolOutput;
use crate::base::event::{Decided, EventKind};
use crate::base::grant::{ExecJudge, Writes};
use crate::base::ids::CallId;
use std::sync::Arc;

/// What a command is bound by while it runs.
pub struct Bounds {
    pub writes: Writes,
    pub judge: Option<Arc<dyn ExecJudge>>,
}

/// The bounds of a call that was allowed.
pub fn bounds(_deps: &Deps, _decided: &Decided) -> Bounds {
    Bounds {
        writes: Writes::Tree,
        judge: None,
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
