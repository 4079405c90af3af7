//! What must be ready before anything may change the tree: the baseline, and for commands also the sandbox.

use super::deps::{Baseline, Deps, SandboxMaker};
use super::journal_place;
use super::ledger::Ledger;
use super::run_error::RunError;
use crate::base::event::{Confined, EventKind};
use crate::process::{self, Confinement};
use crate::workspace::patch::Snapshot;

/// What must be ready before anything may change the tree: the baseline, and for commands also the sandbox.
pub struct Preconditions {
    pending: Option<Baseline>,
    pub(super) baseline: Option<Snapshot>,
    sandbox: Option<SandboxMaker>,
    tested: bool,
}

/// The sandbox of commands.
///
/// # Errors
/// [`RunError::Environment`] if it is not ready yet.
pub fn confinement(deps: &Deps) -> Result<&Confinement, RunError> {
    let missing = || RunError::Environment("the sandbox is not ready".to_owned());
    deps.scope.confinement.get().ok_or_else(missing)
}

impl Preconditions {
    /// For a new run, whose baseline is still being taken.
    pub fn new(pending: Baseline, sandbox: SandboxMaker) -> Self {
        Self {
            pending: Some(pending),
            baseline: None,
            sandbox: Some(sandbox),
            tested: false,
        }
    }

    /// For a resumed run, with the baseline from the record.
    pub fn resumed(tree: String, sandbox: SandboxMaker) -> Self {
        Self {
            pending: None,
            baseline: Some(Snapshot { tree }),
            sandbox: Some(sandbox),
            tested: false,
        }
    }

    /// Waits until the baseline is taken and recorded.
    ///
    /// # Errors
    /// [`RunError::Environment`]: git could not take it.
    pub async fn prepare_for_effects(&mut self, ledger: &mut Ledger) -> Result<(), RunError> {
        let Some(pending) = self.pending.take() else {
            return Ok(());
        };
        let taken = match pending.await {
            Ok(taken) => taken,
            Err(error) => Err(error.to_string()),
        };
        let (snapshot, dirty) =
            taken.map_err(|why| RunError::Environment(format!("no baseline of the tree: {why}")))?;
        ledger.record(EventKind::Baseline {
            tree: snapshot.tree.clone(),
            dirty,
        })?;
        self.baseline = Some(snapshot);
        Ok(())
    }

    /// Waits until the sandbox of commands is chosen and recorded.
    ///
    /// # Errors
    /// [`RunError::Environment`]: the wanted level is not available, or the journal cannot be moved out of its reach.
    pub async fn confine(&mut self, deps: &Deps, ledger: &mut Ledger) -> Result<(), RunError> {
        let Some(make) = self.sandbox.take() else {
            return Ok(());
        };
        let (confinement, detail) = make().await.map_err(RunError::Environment)?;
        let run = ledger.state.started.as_ref().map(|started| started.run.clone());
        if let Some(run) = run
            && let Some(to) =
                journal_place::elsewhere(&confinement, &run, &deps.run_dir).map_err(RunError::Environment)?
        {
            // Background work must not use the old directory while it is moved.
            self.prepare_for_effects(ledger).await?;
            journal_place::move_out(deps, ledger, &to)?;
        }
        ledger.record(EventKind::Confined(Confined {
            level: confinement.level.as_str().to_owned(),
            detail,
        }))?;
        // `set` cannot fail: only this function sets it, and it runs once.
        let _ = deps.scope.confinement.set(confinement);
        Ok(())
    }

    /// Waits for baseline and sandbox, and for the sandbox's self-test.
    ///
    /// # Errors
    /// As for the two, or [`RunError::Environment`]: the self-test failed.
    pub async fn prepare_for_commands(&mut self, deps: &Deps, ledger: &mut Ledger) -> Result<(), RunError> {
        self.prepare_for_effects(ledger).await?;
        if self.tested {
            return Ok(());
        }
        self.confine(deps, ledger).await?;
        let confinement = confinement(deps)?;
        let level = confinement.level.as_str();
        process::self_test(confinement)
            .await
            .map_err(|why| RunError::Environment(format!("the sandbox level {level} does not hold here: {why}")))?;
        self.tested = true;
        Ok(())
    }
}
