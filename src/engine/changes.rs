//! What the run changed: the patch, and what must be told because it is in none. Judges nothing.

use super::deps::Deps;
use super::effects::{Ground, Stop};
use super::ledger::Ledger;
use super::state::State;
use crate::base::event::{EventKind, PatchTaken};
use crate::base::outcome::{Outcome, Verdict};
use crate::journal::{JournalError, artefacts};
use crate::workspace::patch::Snapshot;
use std::collections::BTreeSet;

/// How many files a warning names.
const NAMED: usize = 8;

/// Looks what the run has changed so far, and keeps the patch.
pub async fn measure(deps: &Deps, ledger: &mut Ledger, ground: &mut Ground) -> Result<(), Stop> {
    ground.prepare_for_effects(deps, ledger).await?;
    let Some(baseline) = &ground.baseline else {
        return Err(Stop::Environment(
            "there is no baseline to compare the tree with".to_owned(),
        ));
    };
    let trouble = |why: String| Stop::Environment(format!("the changes cannot be read: {why}"));
    let now = deps.shadow.snapshot().await.map_err(trouble)?;
    let left = left_behind(deps, &ledger.state, baseline, &now)
        .await
        .map_err(trouble)?;
    let own = match left.is_empty() {
        true => now.clone(),
        false => deps.shadow.without(&now, baseline, &left).await.map_err(trouble)?,
    };
    let delta = deps.shadow.delta(baseline, &own).await.map_err(trouble)?;
    if !delta.unpatched.is_empty() {
        let told: BTreeSet<String> = delta
            .unpatched
            .iter()
            .map(|one| format!("{} ({})", one.path, one.why))
            .collect();
        ledger.record(EventKind::Warned {
            code: "unpatched".to_owned(),
            message: format!("changed, and no patch can hold it: {}", names(&told)),
        })?;
    }
    let secret = deps.redactor.find(&delta.patch).map(str::to_owned);
    let blob = match (delta.patch.is_empty(), &secret) {
        (false, None) => Some(artefacts::keep_blob(&deps.run_dir, &delta.patch)?),
        _ => None,
    };
    ledger.record(EventKind::PatchTaken(PatchTaken {
        blob,
        bytes: delta.patch.len() as u64,
        own: (own != now).then_some(own.tree),
        tree: now.tree,
        files: delta.files,
        left,
        unruled: Vec::new(),
    }))?;
    match secret {
        Some(name) => Err(Stop::Ended(Outcome::new(
            Verdict::Denied,
            "secret_hit",
            format!("the changes hold the value of {name}; the patch is withheld"),
        ))),
        None => Ok(()),
    }
}

/// The paths of `now` that are as checks left them: changed while nothing but checks ran, and not by the run before or after.
/// A background command that runs beside the checks makes all of it the run's.
async fn left_behind(deps: &Deps, state: &State, base: &Snapshot, now: &Snapshot) -> Result<BTreeSet<String>, String> {
    let shadow = &deps.shadow;
    let snapshot = |tree: Option<&str>| tree.map_or_else(|| base.clone(), |tree| Snapshot { tree: tree.to_owned() });
    let mut left = state.patch.as_ref().map(|patch| patch.left.clone()).unwrap_or_default();
    let theirs = state.littered && !state.touched && !deps.scope.jobs.any_running();
    if !theirs && left.is_empty() {
        return Ok(left);
    }
    let changed = shadow.changed_paths(&snapshot(state.tree()), now).await?;
    if !theirs {
        left.retain(|path| !changed.contains(path));
        return Ok(left);
    }
    if !changed.is_empty() {
        let own = shadow.changed_paths(base, &snapshot(state.own_tree())).await?;
        left.extend(changed.into_iter().filter(|path| !own.contains(path)));
        // What a check itself took away again is as it was.
        let differ = shadow.changed_paths(base, now).await?;
        left.retain(|path| differ.contains(path));
    }
    Ok(left)
}

/// Tells at the end what the patch cannot hold: files that only checks changed, and files that the run edited although git
/// ignores them.
pub async fn unseen(deps: &Deps, ledger: &mut Ledger, outcome: &mut Outcome) -> Result<(), JournalError> {
    let left = ledger
        .state
        .patch
        .as_ref()
        .map(|patch| patch.left.clone())
        .unwrap_or_default();
    if !left.is_empty() {
        let message = format!(
            "checks changed what the run did not, and the patch leaves it out: {}",
            names(&left)
        );
        ledger.record(EventKind::Warned {
            code: "left_by_checks".to_owned(),
            message,
        })?;
    }
    // Where git cannot say, nothing is told: the run is at its end, and the patch is what it is.
    let ignored = deps.shadow.ignored(&ledger.state.edited).await.unwrap_or_default();
    if !ignored.is_empty() {
        let message = format!(
            "git ignores what the run wrote, and the patch leaves it out: {}",
            names(&ignored)
        );
        outcome.message.push_str("; ");
        outcome.message.push_str(&message);
        ledger.record(EventKind::Warned {
            code: "ignored".to_owned(),
            message,
        })?;
    }
    Ok(())
}

fn names(paths: &BTreeSet<String>) -> String {
    let first: Vec<&str> = paths.iter().take(NAMED).map(String::as_str).collect();
    match paths.len() - first.len() {
        0 => first.join(", "),
        more => format!("{} and {more} more", first.join(", ")),
    }
}
