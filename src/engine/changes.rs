//! Measures what the run changed: takes the patch, checks every change against the policy, and reports what no patch
//! contains.

mod ruled;
mod undo;

pub use undo::{NotReverted, RevertedTree, how_to_get_back, revert};

use super::deps::Deps;
use super::exec;
use super::ledger::Ledger;
use super::preconditions::Preconditions;
use super::run_error::RunError;
use super::state::RunState;
use super::verdict::first_names;
use crate::base::event::{EventKind, PatchTaken, PutBack};
use crate::base::outcome::{RunOutcome, Verdict};
use crate::journal::{JournalError, artefacts};
use crate::policy::{Author, ChangeRuling, rule_change};
use crate::process::{self, Frozen, NOT_KEPT, change_times};
use crate::workspace::patch::Snapshot;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

/// The time limit of writing what processes have changed through mappings.
const MOST_FLUSH: Duration = Duration::from_secs(10);

/// Takes a snapshot, checks the changes against the policy, and records the patch of those that are allowed.
///
/// # Errors
/// [`RunError::Environment`] if the tree cannot be read or there is no baseline; [`RunError::Ended`] if the patch would
/// contain a change that must stay out of it; [`RunError::Journal`].
pub async fn measure(deps: &Deps, ledger: &mut Ledger, preconditions: &mut Preconditions) -> Result<(), RunError> {
    preconditions.prepare_for_effects(ledger).await?;
    let Some(baseline) = &preconditions.baseline else {
        return Err(no_baseline());
    };
    // Background commands are stopped meanwhile, so that the tree does not change between snapshot and ruling.
    let _still = still(deps).await?;
    // Record the background commands that have ended, so that their changes are not attributed to whoever writes next.
    // One that ends later is found by `Jobs::any_unreported`.
    exec::record_ended_jobs(deps, ledger)?;
    let now = ruled_snapshot(deps, &ledger.state).await?;
    let left = left_behind(deps, &ledger.state, baseline, &now)
        .await
        .map_err(environment_error)?;
    let before = snapshot(ledger.state.own_tree(), baseline);
    let ruled = ruled::rule(deps, &ledger.state, baseline, (&before, &now), &left).await?;
    let out: BTreeSet<String> = left.union(&ruled.out).cloned().collect();
    let own = match out.is_empty() {
        true => now.clone(),
        false => deps
            .shadow
            .without(&now, &before, &out)
            .await
            .map_err(environment_error)?,
    };
    let started = ledger.state.started.as_ref();
    let commit = started.and_then(|started| started.base.commit.as_deref());
    let delta = deps
        .shadow
        .delta_on(commit, baseline, &own)
        .await
        .map_err(environment_error)?;
    ruled.check(deps, &delta)?;
    ruled.check_own(deps, &before, &own).await?;
    // A pipe or socket has no content to lose. A changed regular file that the patch cannot contain makes the patch
    // incomplete, so the run fails.
    let lacking = delta.unpatched.iter().find(|one| one.lacks_content);
    let incomplete = lacking.map(|one| {
        format!(
            "{} was changed and is {}, which a patch cannot contain",
            one.path, one.why
        )
    });
    if !delta.unpatched.is_empty() {
        let told: BTreeSet<String> = delta
            .unpatched
            .iter()
            .map(|one| format!("{} ({})", one.path, one.why))
            .collect();
        ledger.warn(
            "unpatched",
            format!(
                "changed, but a patch cannot contain it: {}",
                first_names(told.iter().map(String::as_str))
            ),
        )?;
    }
    let secret = deps.redactor.find(&delta.patch).map(str::to_owned);
    let blob = match (delta.patch.is_empty(), &secret) {
        (false, None) => Some(artefacts::keep_blob(&deps.run_dir, &delta.patch)?),
        _ => None,
    };
    let mut warnings = ruled.warnings(&ledger.state);
    warnings.extend(submodule_warning(&ledger.state, &delta.submodules));
    warnings.extend(replaced_warning(deps, &ledger.state));
    let objects = deps.scope.confinement.get().map(|confinement| &confinement.objects);
    if let Some(message) = objects.and_then(|objects| objects.warning()) {
        warnings.push((NOT_KEPT, message));
    }
    let (unruled, unruled_omitted) = ruled.listed(&ledger.state);
    ledger.record(EventKind::PatchTaken(PatchTaken {
        blob,
        bytes: delta.patch.len() as u64,
        own: (own != now).then_some(own.tree),
        tree: now.tree,
        files: delta.files,
        cr_lines: delta.cr_lines,
        left,
        unruled,
        unruled_omitted,
        secret,
        incomplete,
    }))?;
    for (code, message) in warnings {
        ledger.warn(code, message)?;
    }
    Ok(())
}

/// The current tree. What git ignores is not in the patch, so an ignore file counts only if its own change is allowed.
async fn ruled_snapshot(deps: &Deps, state: &RunState) -> Result<Snapshot, RunError> {
    // If flushing fails, contents are compared instead.
    let exact = !has_live_writers(deps) || flush(deps).await;
    let (policies, by) = (Arc::clone(&deps.policies), ruled::author_of_ignore_files(deps, state));
    let may = move |path: &str| rule_change(&policies, path, by) == ChangeRuling::Allowed;
    deps.shadow.ruled_snapshot(exact, may).await.map_err(environment_error)
}

/// Stops everything that may write the tree until the returned value is dropped.
async fn still(deps: &Deps) -> Result<Frozen, RunError> {
    stopped(deps.scope.jobs.freeze().await)
}

fn stopped(frozen: Frozen) -> Result<Frozen, RunError> {
    match frozen.all() {
        true => Ok(frozen),
        false => Err(RunError::Environment(format!(
            "{}, so that the changes cannot be read",
            frozen.why_not()
        ))),
    }
}

/// Code of the warning about a server that ran although it had been stopped.
const SERVER_WOKE: &str = "server_woke";

/// MCP servers that are stopped while a command runs whose changes count as those of the author or of a reviewer.
pub struct HeldServers(Frozen);

impl HeldServers {
    /// Stops the servers that may write the tree, except the one with the name `except`. Then measures what they have
    /// changed since the last measurement, and puts back what no rule allows.
    ///
    /// # Errors
    /// As for [`measure`] and [`put_back`]; [`RunError::Environment`] if a server does not stop.
    pub async fn hold(
        deps: &Deps,
        ledger: &mut Ledger,
        preconditions: &mut Preconditions,
        except: Option<&str>,
    ) -> Result<Self, RunError> {
        let held = Self(stopped(process::freeze_servers(deps.workspace.root(), except).await)?);
        // Measured even if such a server has ended since, or is not stopped.
        if deps.plan.tools.mcp_servers.values().any(|server| server.writes_tree) {
            preconditions.prepare_for_effects(ledger).await?;
            let now = ruled_snapshot(deps, &ledger.state).await?;
            if ledger.state.tree() != Some(now.tree.as_str()) {
                measure(deps, ledger, preconditions).await?;
                if ledger.state.due().next().is_some() {
                    put_back(deps, ledger).await?;
                }
            }
        }
        Ok(held)
    }

    /// Measures what the command changed, and lets the servers continue. `done`: how the command ended. If it is an
    /// error, nothing is measured, and the changes are attributed to the model.
    ///
    /// # Errors
    /// `done`, if it is an error; otherwise as for [`measure`].
    pub async fn release(
        self,
        deps: &Deps,
        ledger: &mut Ledger,
        preconditions: &mut Preconditions,
        done: Result<(), RunError>,
    ) -> Result<(), RunError> {
        if self.0.is_empty() {
            return done;
        }
        if done.is_err() {
            ledger.state.wrote(Author::Call);
            return done;
        }
        // A server can use a timer to be continued. Then its changes cannot be told from those of the command.
        let still = still(deps).await?;
        if let Some(woken) = self.woken() {
            ledger.state.wrote(Author::Call);
            ledger.warn(
                SERVER_WOKE,
                format!("{woken} while a command ran, so what changed meanwhile counts as the model's"),
            )?;
            drop(still);
            return measure(deps, ledger, preconditions).await;
        }
        measure(deps, ledger, preconditions).await?;
        match self.woken() {
            None => Ok(()),
            Some(woken) => Err(RunError::Environment(format!(
                "{woken} while the changes of a command were measured, so that they cannot be told apart"
            ))),
        }
    }

    /// Says which servers did something although they were stopped. `None` if none did.
    pub fn woken(&self) -> Option<String> {
        self.0.has_woken().then(|| match self.names() {
            Some(names) => format!("an MCP server that was stopped may have gone on or ended by itself ({names})"),
            None => "an MCP server that was stopped may have gone on or ended by itself".to_owned(),
        })
    }

    /// The names of the servers that are stopped. `None` if there are none.
    pub fn names(&self) -> Option<String> {
        let names = self.0.servers();
        (!names.is_empty()).then(|| first_names(names.into_iter()))
    }
}

/// Why a command may have run out of time beside servers with these names.
pub fn may_have_waited(servers: &str) -> String {
    format!("MCP servers that may write the tree were stopped meanwhile, and it may have waited for one: {servers}")
}

/// The warning about the file to which stdout or stderr of this program was redirected, if a command put another one in its
/// place since the last patch.
fn replaced_warning(deps: &Deps, state: &RunState) -> Option<(&'static str, String)> {
    let mut replaced = deps.shadow.replaced_files();
    let known = state.patch.iter().flat_map(|patch| &patch.files);
    for file in known {
        replaced.remove(&file.path);
    }
    (!replaced.is_empty()).then(|| {
        let message = format!(
            "the file to which output of overnight is redirected was replaced, so what has its name is no output of overnight: {}; \
             redirect it to a place outside the tree",
            first_names(replaced.iter().map(String::as_str))
        );
        ("own_output_replaced", message)
    })
}

/// The warning about submodules whose files were changed for the first time since the last measurement.
fn submodule_warning(state: &RunState, submodules: &BTreeSet<String>) -> Option<(&'static str, String)> {
    let known = |submodule: &str| {
        let mut files = state.patch.iter().flat_map(|patch| &patch.files);
        files.any(|file| {
            let rest = file.path.strip_prefix(submodule);
            rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
        })
    };
    let new: Vec<&str> = submodules
        .iter()
        .map(String::as_str)
        .filter(|submodule| !known(submodule))
        .collect();
    if new.is_empty() {
        return None;
    }
    let message = format!(
        "changed files belong to a submodule, which is a repository of its own, so the patch does not fit the commit that the run \
         began with: {}; make the change in a run whose workspace is a clone of that repository",
        first_names(new.into_iter())
    );
    Some(("submodule", message))
}

/// Whether processes may write the tree that were started before this snapshot and live on after it.
fn has_live_writers(deps: &Deps) -> bool {
    let mut servers = deps.plan.tools.mcp_servers.values();
    deps.scope.jobs.any_writing() || servers.any(|server| server.writes_tree)
}

/// Makes the next write of live processes show in the times of files, by which the next snapshot finds what has changed.
/// `false` if the file system could not, or not in time.
async fn flush(deps: &Deps) -> bool {
    let root = deps.workspace.root().to_owned();
    let flushed = tokio::task::spawn_blocking(move || change_times::flush(&root));
    matches!(tokio::time::timeout(MOST_FLUSH, flushed).await, Ok(Ok(Ok(()))))
}

/// Restores the files whose changes are not allowed, then verifies that they are restored.
///
/// # Errors
/// [`RunError::Environment`] if the tree cannot be read afterwards; [`RunError::Journal`]. A file that cannot be
/// restored is recorded, and that is no error.
pub async fn put_back(deps: &Deps, ledger: &mut Ledger) -> Result<(), RunError> {
    if let Some(confinement) = deps.scope.confinement.get() {
        // Restoring may re-create files that commands must not read.
        confinement.masks.changes();
    }
    let due: BTreeSet<String> = ledger.state.due().map(|unruled| unruled.path.clone()).collect();
    let Some(tree) = ledger.state.own_tree() else {
        return Ok(());
    };
    let own = Snapshot { tree: tree.to_owned() };
    let _still = still(deps).await?;
    let mut failed: BTreeSet<String> = match deps.shadow.restore(&own, &due).await {
        Ok(restored) => restored.failed.into_keys().collect(),
        Err(message) => {
            ledger.warn("put_back", message)?;
            due.clone()
        }
    };
    let now = deps.shadow.snapshot().await.map_err(environment_error)?;
    let differ = deps.shadow.changed_paths(&own, &now).await.map_err(environment_error)?;
    failed.extend(
        due.into_iter()
            .filter(|path| differ.contains(&deps.shadow.at_top(path))),
    );
    ledger.record(EventKind::PutBack(PutBack {
        tree: now.tree,
        failed: failed.into_iter().collect(),
    }))?;
    Ok(ledger.sync_behind()?)
}

/// Restores what has changed in the tree while the command of a check ran, so that the next check and the verdict see the
/// tree that is delivered. What goes is saved before. Nothing else of the run may have run since the last measurement.
/// `begun`: when the command was started, or shortly before.
///
/// # Errors
/// [`RunError::Environment`] if the tree cannot be read; [`RunError::Ended`] with `not_put_back` if what changed could
/// not be saved or put back.
pub async fn undo_check(
    deps: &Deps,
    state: &RunState,
    check: &str,
    begun: SystemTime,
) -> Result<RevertedTree, RunError> {
    let Some(tree) = state.tree() else {
        return Err(no_baseline());
    };
    let before = Snapshot { tree: tree.to_owned() };
    let _still = still(deps).await?;
    let exact = !has_live_writers(deps) || flush(deps).await;
    let message = match undo::revert(
        &deps.shadow,
        (&deps.run_dir, &deps.redactor),
        &before,
        (exact, Some(begun)),
    )
    .await
    {
        Ok(reverted) => return Ok(reverted),
        Err(NotReverted::Unread(why)) => return Err(environment_error(why)),
        Err(NotReverted::Unsaved(why)) => format!(
            "what changed while check {check} ran was not put back, because it could not be saved before: {why}; look at the tree \
             before it is used, and let git ignore what the check is meant to leave"
        ),
        Err(NotReverted::Failed(failed)) => format!(
            "files that changed while check {check} ran could not be put back: {failed}; look at these files before the tree is used, \
             and let git ignore them if the check is meant to write them"
        ),
    };
    Err(RunError::Ended(RunOutcome::new(
        Verdict::Denied,
        "not_put_back",
        message,
    )))
}

/// At the end of the run: restores what is not allowed and takes the final patch. `wrote`: something that the record
/// does not show may have written to the tree.
///
/// # Errors
/// As for [`put_back`] and [`measure`].
pub async fn settle(
    deps: &Deps,
    ledger: &mut Ledger,
    preconditions: &mut Preconditions,
    wrote: bool,
) -> Result<(), RunError> {
    if ledger.state.due().next().is_some() {
        put_back(deps, ledger).await?;
    }
    if wrote || ledger.state.stale() {
        let measured = measure(deps, ledger, preconditions).await;
        if ledger.state.due().next().is_some() {
            put_back(deps, ledger).await?;
        }
        measured?;
    }
    Ok(())
}

fn no_baseline() -> RunError {
    RunError::Environment("there is no baseline to compare the tree with".to_owned())
}

fn environment_error(why: String) -> RunError {
    RunError::Environment(format!("the changes cannot be read: {why}"))
}

fn snapshot(tree: Option<&str>, base: &Snapshot) -> Snapshot {
    tree.map_or_else(|| base.clone(), |tree| Snapshot { tree: tree.to_owned() })
}

/// Whether nothing but checks of an earlier version ran since the last measurement, which put nothing back.
fn only_checks_ran(deps: &Deps, state: &RunState) -> bool {
    state.checks_left_changes && !state.touched && !deps.scope.jobs.any_unreported()
}

/// The paths in `now` that only checks of an earlier version changed, in a run that began with it: changed while nothing
/// but checks ran, and not changed by the run before or after. If a background command runs beside the checks, all
/// changes count as the run's.
async fn left_behind(
    deps: &Deps,
    state: &RunState,
    base: &Snapshot,
    now: &Snapshot,
) -> Result<BTreeSet<String>, String> {
    let shadow = &deps.shadow;
    let mut left = state.patch.as_ref().map(|patch| patch.left.clone()).unwrap_or_default();
    let theirs = only_checks_ran(deps, state);
    if !theirs && left.is_empty() {
        return Ok(left);
    }
    let changed = shadow.changed_paths(&snapshot(state.tree(), base), now).await?;
    if !theirs {
        left.retain(|path| !changed.contains(path));
        return Ok(left);
    }
    if !changed.is_empty() {
        let own = shadow.changed_paths(base, &snapshot(state.own_tree(), base)).await?;
        left.extend(changed.into_iter().filter(|path| !own.contains(path)));
        // If the check itself undid its change, nothing is left behind.
        let differ = shadow.changed_paths(base, now).await?;
        left.retain(|path| differ.contains(path));
    }
    Ok(left)
}

/// Warns at the end about what the patch leaves out: what checks changed, and files that the run edited although git
/// ignores them.
///
/// # Errors
/// [`JournalError`] if a warning cannot be recorded.
pub async fn warn_left_out_of_patch(
    deps: &Deps,
    ledger: &mut Ledger,
    outcome: &mut RunOutcome,
) -> Result<(), JournalError> {
    let left = ledger
        .state
        .patch
        .as_ref()
        .map(|patch| patch.left.clone())
        .unwrap_or_default();
    if !left.is_empty() {
        let message = format!(
            "files that only checks changed are left out of the patch: {}",
            first_names(left.iter().map(String::as_str))
        );
        ledger.warn("left_by_checks", message)?;
    }
    let back = &ledger.state.put_back_after;
    if !back.is_empty() {
        let checks: BTreeSet<&str> = back.values().map(String::as_str).collect();
        let message = format!(
            "what changed while checks ran ({}) was put back when they ended: {}; {}let git ignore what checks are meant to leave, or \
             make it in a `run` step",
            first_names(checks.into_iter()),
            first_names(back.keys().map(String::as_str)),
            undo::how_to_get_back(&deps.run_dir, &ledger.state.put_back_patches)
                .map(|back| format!("{back}; "))
                .unwrap_or_default()
        );
        ledger.warn("left_by_checks", message)?;
    }
    // If git fails, this warning is omitted: the run has ended, and the patch does not depend on it.
    let ignored = deps.shadow.ignored(&ledger.state.edited).await.unwrap_or_default();
    if !ignored.is_empty() {
        let message = format!(
            "files that the run wrote but git ignores are left out of the patch: {}",
            first_names(ignored.iter().map(String::as_str))
        );
        outcome.message.push_str("; ");
        outcome.message.push_str(&message);
        ledger.warn("ignored", message)?;
    }
    Ok(())
}
