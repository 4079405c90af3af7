//! Checks the tree of a resumed run: it must be as the run left it or as the run found it.

use crate::base::call::{CallState, Display};
use crate::base::event::{Event, EventKind};
use crate::base::ids::RunId;
use crate::cli::environment;
use crate::cli::out;
use crate::cli::private_contents;
use crate::cli::refusal::Refusal;
use crate::engine::changes::{self, NotReverted};
use crate::engine::next::{Next, next};
use crate::engine::state::RunState;
use crate::engine::verdict::first_names;
use crate::recipe::Plan;
use crate::recipe::plan::CheckWhat;
use crate::workspace::patch::{Shadow, Snapshot};
use std::path::{Path, PathBuf};

/// Checks the tree. If it is as the run found it, the run's changes are applied again. `elsewhere`: it is another tree
/// than the one that the run began in. `hidden`: what of this program is in the tree.
///
/// # Errors
/// [`Refusal::Environment`] if the tree is neither as the run found it nor as it left it, or the run's store or the
/// tree cannot be read or written.
pub async fn restore_tree(
    (run, dir): (&RunId, &Path),
    (events, state): (&[Event], &RunState),
    plan: &Plan,
    (workspace, hidden): (&crate::workspace::Workspace, &[PathBuf]),
    elsewhere: bool,
) -> Result<(), Refusal> {
    let Some(baseline) = state.baseline.clone() else {
        // Nothing was changed yet.
        return Ok(());
    };
    let hidden: Vec<PathBuf> = hidden.iter().cloned().chain([dir.to_owned()]).collect();
    let shadow = private_contents::open_store(run, &dir.join("git"), workspace.root(), &hidden)
        .map_err(|error| Refusal::Environment(format!("{}: {error}", dir.display())))?;
    let now = shadow.snapshot().await.map_err(Refusal::Environment)?;
    let left = state
        .patch
        .as_ref()
        .map_or(baseline.clone(), |patch| patch.tree.clone());
    if state.touched {
        // The process ended before its last changes were measured, so there is no state to compare with. But if the
        // tree lacks them, the history in the model's prompt is wrong. A re-created tree lacks the earlier ones, too.
        let lacks = now.tree == left || elsewhere && now.tree == baseline;
        return match lacks && (elsewhere || edited_since(events)) {
            true => Err(Refusal::Environment(
                "the process ended before its changes were stored, and this tree does not have them: resume the run in the \
                 tree that it worked on, or start a new one"
                    .to_owned(),
            )),
            false => Ok(()),
        };
    }
    if now.tree == left {
        return Ok(());
    }
    let patch = state.patch.as_ref();
    let patch = patch.filter(|patch| patch.withheld_for().is_none() && patch.own_tree() != baseline);
    if now != (Snapshot { tree: baseline }) {
        // A process that ended while it put files back continues with that.
        let continues = state.checks_left_changes || state.due().next().is_some();
        if continues && !elsewhere {
            return Ok(());
        }
        // A check that was running when the process ended may have left files. It runs again, on the tree that it found.
        if !elsewhere && may_have_been_in_a_check(state, plan) {
            return undo_check(dir, &shadow, &Snapshot { tree: left }).await;
        }
        // The command of a `run` step that was running is repeated, and what it left is measured with its changes.
        if !elsewhere && may_have_been_in_a_run_step(state, plan) {
            out::stderr(
                "a `run` step was running when the process ended: what has changed since it began counts as its changes, and it runs \
                 again",
            );
            return Ok(());
        }
        let differs = shadow.changed_paths(&Snapshot { tree: left }, &now).await;
        let differs = differs.map_err(Refusal::Environment)?;
        return Err(Refusal::Environment(format!(
            "the tree is neither as the run left it nor as it found it: restore one of the two, or start a new run; it is not as the \
             run left it in {}",
            first_names(differs.iter().map(String::as_str))
        )));
    }
    if let Some(patch) = patch {
        let own = Snapshot {
            tree: patch.own_tree().to_owned(),
        };
        shadow
            .apply(&own)
            .await
            .map_err(|why| Refusal::Environment(format!("the run's changes cannot be applied again: {why}")))?;
        out::stderr("the earlier changes of the run were applied to the tree again");
    }
    Ok(())
}

/// Whether the command of a check may have been running when the process ended. Its beginning is not recorded; before the
/// sandbox was chosen, no command had run.
fn may_have_been_in_a_check(state: &RunState, plan: &Plan) -> bool {
    let Next::Check(index) = next(state, plan) else {
        return false;
    };
    let check = plan.steps.get(state.step).and_then(|step| step.checks.get(index));
    let runs = |what: &CheckWhat| matches!(what, CheckWhat::Run { .. } | CheckWhat::AnswerRun { .. });
    state.confined.is_some() && check.is_some_and(|check| runs(&check.what))
}

/// Whether the command of a `run` step may have been running when the process ended, as for a check.
fn may_have_been_in_a_run_step(state: &RunState, plan: &Plan) -> bool {
    state.confined.is_some() && matches!(next(state, plan), Next::Run)
}

/// Restores what has changed since a check began that was running when the process ended. What goes is saved before,
/// because a person may have made it since.
async fn undo_check(dir: &Path, shadow: &Shadow, before: &Snapshot) -> Result<(), Refusal> {
    let done = match changes::revert(shadow, (dir, &environment::redactor()), before, (true, None)).await {
        Ok(done) => done,
        Err(NotReverted::Unread(why)) => return Err(Refusal::Environment(why)),
        Err(NotReverted::Unsaved(why)) => {
            return Err(Refusal::Environment(format!(
                "a check was running when the process ended, and what has changed since was not put back, because it could not be \
                 saved before: {why}; restore the tree as the check found it, or start a new run"
            )));
        }
        Err(NotReverted::Failed(failed)) => {
            return Err(Refusal::Environment(format!(
                "a check was running when the process ended, and what has changed since cannot be put back: {failed}; restore these \
                 files"
            )));
        }
    };
    if !done.paths.is_empty() {
        let mut message = format!(
            "a check was running when the process ended: what has changed since it began was put back: {}",
            first_names(done.paths.iter().map(String::as_str))
        );
        if let Some(back) = changes::how_to_get_back(dir, &done.patch.into_iter().collect()) {
            message.push_str(&format!("; {back}"));
        }
        out::stderr(&message);
    }
    Ok(())
}

/// Whether a file was edited after the last stored patch.
fn edited_since(events: &[Event]) -> bool {
    let since = events
        .iter()
        .rev()
        .take_while(|event| !matches!(event.kind, EventKind::PatchTaken(_)));
    since.into_iter().any(|event| match &event.kind {
        EventKind::CallFinished { state, output, .. } => {
            *state == CallState::Success
                && matches!(&output.display, Display::Diff(diff) if diff.added + diff.removed > 0)
        }
        _ => false,
    })
}
