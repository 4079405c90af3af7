//! Restores the tree to an earlier state. Saves the differences first as a patch, because a person may have made them.

use crate::base::quote::shell_word;
use crate::base::secret::Redactor;
use crate::engine::state::MOST_NAMED;
use crate::engine::verdict::first_names;
use crate::journal::artefacts;
use crate::workspace::patch::{Shadow, Snapshot};
use std::collections::BTreeSet;
use std::path::Path;
use std::time::SystemTime;

/// What was put back.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RevertedTree {
    /// The paths, at most [`MOST_NAMED`].
    pub paths: Vec<String>,
    /// The patch that restores them, relative to the run directory; `None` if no path had changed.
    pub patch: Option<String>,
}

/// Why the tree is not as it was.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NotReverted {
    /// The changes cannot be read. Nothing was put back.
    Unread(String),
    /// The changes cannot be saved. Nothing was put back.
    Unsaved(String),
    /// Paths that are not as they were, each with the reason, and how to get back what was put back.
    Failed(String),
}

/// Puts back every path that differs from `before`. What goes is first saved as a patch in the run directory; what no
/// patch can contain stays. `exact`: as for [`Shadow::ruled_snapshot`]; `begun`: as for [`Shadow::revert`].
///
/// # Errors
/// A path is not as it was.
pub async fn revert(
    shadow: &Shadow,
    (run_dir, redactor): (&Path, &Redactor),
    before: &Snapshot,
    (exact, begun): (bool, Option<SystemTime>),
) -> Result<RevertedTree, NotReverted> {
    let reversal = shadow.reversal(before, exact).await.map_err(NotReverted::Unread)?;
    let Some(reversal) = reversal else {
        return Ok(RevertedTree::default());
    };
    let patch = match saved(run_dir, redactor, &reversal.patch) {
        Ok(patch) => patch,
        Err(why) => {
            shadow.close_again(&reversal).map_err(NotReverted::Unread)?;
            return Err(NotReverted::Unsaved(why));
        }
    };
    let restored = shadow.revert(&reversal, begun).await.map_err(NotReverted::Unread)?;
    if restored.failed.is_empty() {
        let paths = restored.done.into_iter().take(MOST_NAMED).collect();
        return Ok(RevertedTree { paths, patch });
    }
    let failed = restored.failed.iter().map(|(path, why)| format!("{path} ({why})"));
    let failed: Vec<String> = failed.collect();
    let mut failed = first_names(failed.iter().map(String::as_str));
    if !restored.done.is_empty() {
        let done = first_names(restored.done.iter().map(String::as_str));
        failed.push_str(&format!("; put back was {done}"));
        if let Some(back) = how_to_get_back(run_dir, &patch.into_iter().collect()) {
            failed.push_str(&format!("; {back}"));
        }
    }
    Err(NotReverted::Failed(failed))
}

/// Saves what is to be put back. Returns the name of its patch; `None` if it is empty.
fn saved(run_dir: &Path, redactor: &Redactor, patch: &[u8]) -> Result<Option<String>, String> {
    if patch.is_empty() {
        return Ok(None);
    }
    if let Some(name) = redactor.find(patch) {
        return Err(format!("it contains the value of the secret {name}"));
    }
    let kept = artefacts::keep_put_back(run_dir, patch);
    kept.map(Some).map_err(|error| error.to_string())
}

/// How a person can restore what was reverted; `None` without a patch.
pub fn how_to_get_back(run_dir: &Path, patches: &BTreeSet<String>) -> Option<String> {
    let commands = patches.iter().map(|patch| {
        let path = run_dir.join(patch);
        format!("`git apply {}`", shell_word(&path.to_string_lossy()))
    });
    let commands: Vec<String> = commands.collect();
    let first = first_names(commands.iter().map(String::as_str));
    (!commands.is_empty()).then(|| format!("if somebody else made these changes, get them back with {first}"))
}
