//! Derives the limits of a command from the ruling on its call, and records the programs that it executed.

use super::command_judge::CommandJudge;
use super::deps::Deps;
use super::ledger::Ledger;
use super::run_error::RunError;
use crate::base::access::Access;
use crate::base::call::{ToolOrigin, ToolOutput};
use crate::base::event::EventKind;
use crate::base::grant::{ExecJudge, JudgedPrograms, Undone, Writes};
use crate::base::ids::{CallId, StepId};
use crate::base::ruling::{PolicyInput, Ruling};
use crate::journal::JournalError;
use crate::policy::{Author, PolicySet, RequestedLevel};
use crate::process::Confinement;
use crate::workspace::Workspace;
use std::collections::HashSet;
use std::sync::Arc;

/// The limits of a command while it runs.
pub struct Bounds {
    pub writes: Writes,
    pub judge: Option<Arc<dyn ExecJudge>>,
}

/// The limits for an allowed call: what the ruling granted, and a judge for its programs if programs can be judged in
/// this sandbox. Any call other than a command of the built-in shell is limited only by the check of the patch.
pub fn bounds(
    (policies, workspace): (&Arc<PolicySet>, &Arc<Workspace>),
    confinement: Option<&Confinement>,
    (asked, access): (&PolicyInput<'_>, &Access),
    ruling: &Ruling,
) -> Bounds {
    let commands = !access.commands.is_empty() && *asked.origin == ToolOrigin::Builtin;
    let Some(confinement) = confinement.filter(|_| commands) else {
        return Bounds {
            writes: match commands {
                true => ruling.writes.clone(),
                false => Writes::Tree,
            },
            judge: None,
        };
    };
    let judge = || -> Arc<dyn ExecJudge> {
        let judge = CommandJudge::new(policies, workspace, confinement, asked, access);
        Arc::new(judge)
    };
    Bounds {
        writes: ruling.writes.clone(),
        judge: confinement.witness.then(judge),
    }
}

/// Whether programs are judged at their `execve`, as far as known yet. `None`: the sandbox is not built yet.
pub fn is_witnessed(policies: &PolicySet, confinement: Option<&Confinement>) -> bool {
    match confinement {
        Some(confinement) => confinement.witness,
        None => policies.sandbox().level != RequestedLevel::None,
    }
}

/// Code of the warning about lock files that a killed git left.
pub const GIT_LOCKS: &str = "git_locks";

/// Upper limit for the undone changes that one event lists.
const MOST_UNDONE: usize = 1_000;

/// Records the programs of a call that were judged, and the changes of its command that were not granted.
///
/// # Errors
/// [`RunError::Journal`].
pub fn record(ledger: &mut Ledger, call: &CallId, output: &ToolOutput) -> Result<(), RunError> {
    record_executed(ledger, call, &output.judged)?;
    Ok(record_undone(ledger, &ChangedBy::Call(call), &output.undone)?)
}

/// Records, under the calls that started them, the results of background commands that have ended since the last call of
/// this function. Returns whether one of them had write access; the tree must then be measured again.
///
/// # Errors
/// [`JournalError`] if an event cannot be recorded.
pub fn record_ended_jobs(deps: &Deps, ledger: &mut Ledger) -> Result<bool, JournalError> {
    let mut wrote = false;
    for mut job in deps.scope.jobs.take_ended() {
        // A loop in the command may have run any number of times before it was killed, so equal execs are recorded once.
        let mut seen = HashSet::new();
        let execs = &mut job.judged.execs;
        execs.retain(|exec| {
            exec.denied.is_some() || seen.insert((exec.path.clone(), exec.argv.clone(), exec.cwd.clone()))
        });
        record_executed(ledger, &job.call, &job.judged)?;
        record_undone(ledger, &ChangedBy::Call(&job.call), &job.undone)?;
        if let Some(told) = job.locks.message() {
            ledger.warn(GIT_LOCKS, told)?;
        }
        if job.writes {
            wrote = true;
            let approved = ledger.state.calls.get(&job.call).is_some_and(|record| record.approved);
            ledger
                .state
                .wrote(if approved { Author::Approved } else { Author::Call });
        }
    }
    Ok(wrote)
}

fn record_executed(ledger: &mut Ledger, call: &CallId, judged: &JudgedPrograms) -> Result<(), JournalError> {
    if judged.execs.is_empty() && judged.omitted == 0 {
        return Ok(());
    }
    ledger.record(EventKind::Executed {
        call: call.clone(),
        execs: judged.execs.clone(),
        omitted: judged.omitted,
    })
}

/// Who made changes that were not granted.
pub enum ChangedBy<'a> {
    /// The command of a call.
    Call(&'a CallId),
    /// The command of a `run` step.
    Step(&'a StepId),
    /// The command of a check of this step.
    Check(&'a StepId),
    /// An MCP server.
    Server(&'a str),
}

/// Records changes that were not granted. Changes that could not be undone come first, then those that a deny rule
/// forbids, so that the limit does not cut them.
///
/// # Errors
/// [`JournalError`] if the event cannot be recorded.
pub fn record_undone(ledger: &mut Ledger, by: &ChangedBy<'_>, undone: &[Undone]) -> Result<(), JournalError> {
    if undone.is_empty() {
        return Ok(());
    }
    let mut undone = undone.to_vec();
    undone.sort_by_key(|one| (one.restored, one.code != "deny_rule"));
    let omitted = undone.len().saturating_sub(MOST_UNDONE) as u64;
    undone.truncate(MOST_UNDONE);
    let (mut call, mut step, mut server, mut check) = (None, None, None, false);
    match by {
        ChangedBy::Call(id) => call = Some((*id).clone()),
        ChangedBy::Step(id) => step = Some((*id).clone()),
        ChangedBy::Check(id) => (step, check) = (Some((*id).clone()), true),
        ChangedBy::Server(name) => server = Some((*name).to_owned()),
    }
    ledger.record(EventKind::Undone {
        call,
        step,
        server,
        check,
        undone,
        omitted,
    })
}
