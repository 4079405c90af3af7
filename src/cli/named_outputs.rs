//! The rule for outputs that the user names: no symbolic link of a tree may lie in their paths, because a commit can bring
//! one that leads anywhere.

use crate::journal::{JournalError, artefacts, place};
use crate::workspace::patch::repository;
use std::path::{Path, PathBuf};

/// Refuses an output with a symbolic link below the top of the repository of `workspace` or of the current directory in its
/// path, or that leads through one. Links above and beside these are the user's own.
///
/// # Errors
/// [`JournalError::Link`] with the link.
pub fn refuse_link(workspace: &Path, path: &Path) -> Result<(), JournalError> {
    let here = std::env::current_dir().ok().and_then(|here| repository(&here));
    let tops = [Some(top(workspace)), here.map(|here| here.top)];
    for top in tops.into_iter().flatten() {
        let of_tree = |link: &PathBuf| place::is_inside(&top, link);
        let link = place::link_inside(&top, path).or_else(|| artefacts::links(path).into_iter().find(of_tree));
        if let Some(link) = link {
            return Err(JournalError::Link(link.display().to_string()));
        }
    }
    Ok(())
}

/// The top of the repository of a workspace, or the workspace.
fn top(workspace: &Path) -> PathBuf {
    let workspace = std::fs::canonicalize(workspace).unwrap_or_else(|_| workspace.to_owned());
    repository(&workspace).map_or(workspace, |found| found.top)
}
