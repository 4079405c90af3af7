//! The rule for outputs that the user names: no symbolic link of a tree may lie in their paths, because a commit can bring
//! one that leads anywhere.

use crate::cli::kept_out;
use crate::journal::{JournalError, artefacts, no_follow};
use crate::workspace::patch::repository;
use std::path::{Path, PathBuf};

/// Refuses an output whose path leads through a symbolic link below the top of the repository of `workspace` or of the
/// current directory, or of any other repository. Links above and beside these are the user's own, and so are those of a
/// repository at the user's home unless it is worked on.
///
/// # Errors
/// [`JournalError::Link`] with the link.
pub fn refuse_link(workspace: &Path, path: &Path) -> Result<(), JournalError> {
    let here = std::env::current_dir().ok().and_then(|here| repository(&here));
    let tops = [Some(top(workspace)), here.map(|here| here.top)];
    for top in tops.into_iter().flatten() {
        let of_tree = |link: &PathBuf| no_follow::is_inside(&top, link);
        let link = no_follow::link_inside(&top, path).or_else(|| artefacts::links(path).into_iter().find(of_tree));
        if let Some(link) = link {
            return Err(JournalError::Link(link.display().to_string()));
        }
    }
    match no_follow::links_of(path).into_iter().find(|link| is_in_a_tree(link)) {
        Some(link) => Err(JournalError::Link(link.display().to_string())),
        None => Ok(()),
    }
}

/// Whether a repository is around a link, which is named by its real directory. What its `.git` says does not count: that
/// could be part of the tree. One at the root of the machine does not count: all its links are in it.
fn is_in_a_tree(link: &Path) -> bool {
    let is_repository = |dir: &Path| dir.join(".git").symlink_metadata().is_ok();
    let is_top = |dir: &Path| dir.parent().is_some() && is_repository(dir) && !kept_out::is_home(dir);
    link.ancestors().skip(1).any(is_top)
}

/// The top of the repository of a workspace, or the workspace.
fn top(workspace: &Path) -> PathBuf {
    let workspace = std::fs::canonicalize(workspace).unwrap_or_else(|_| workspace.to_owned());
    repository(&workspace).map_or(workspace, |found| found.top)
}
