//! A throw-away git worktree, so that the user's tree is left alone. Gone at the end.

use super::patch;
use crate::process::plain;
use std::path::{Path, PathBuf};

/// A worktree of our own.
#[derive(Debug)]
pub struct Isolated {
    /// Holds the worktree; removed with it.
    dir: tempfile::TempDir,
    workspace: PathBuf,
    git_dir: PathBuf,
    top: PathBuf,
}

/// Makes a worktree of `HEAD` for the repository that `workspace` lies in.
pub async fn make(workspace: &Path) -> Result<Isolated, String> {
    let root = std::fs::canonicalize(workspace).map_err(|error| format!("{}: {error}", workspace.display()))?;
    let repository =
        patch::repository(&root).ok_or("--isolate needs a git repository, and the workspace is in none")?;
    let dir = tempfile::Builder::new()
        .prefix("overnight-worktree-")
        .tempdir()
        .map_err(|error| format!("no temporary directory: {error}"))?;
    let tree = dir.path().join("tree");
    let git_dir = repository.git_dir.clone();
    let name = tree.to_string_lossy();
    let own = git_dir.to_string_lossy();
    let args = [
        "--git-dir",
        own.as_ref(),
        "worktree",
        "add",
        "--quiet",
        "--detach",
        name.as_ref(),
        "HEAD",
    ];
    let made = plain::git(&args, &repository.top, &[], None).await?;
    if !made.ok {
        return Err(format!("no worktree could be made: {}", made.stderr));
    }
    let below = root.strip_prefix(&repository.top).unwrap_or_else(|_| Path::new(""));
    Ok(Isolated {
        workspace: tree.join(below),
        dir,
        git_dir,
        top: repository.top,
    })
}

impl Isolated {
    /// The directory of the worktree that stands for the user's workspace.
    pub fn workspace(&self) -> &Path {
        &self.workspace
    }

    /// Removes the worktree and what git knows of it.
    pub async fn remove(self) {
        let tree = self.dir.path().join("tree");
        let name = tree.to_string_lossy().into_owned();
        let own = self.git_dir.to_string_lossy().into_owned();
        let args = [
            "--git-dir",
            own.as_str(),
            "worktree",
            "remove",
            "--force",
            name.as_str(),
        ];
        // What git cannot remove, the removal of the directory and a prune do.
        let _ = plain::git(&args, &self.top, &[], None).await;
        drop(self.dir);
        let _ = plain::git(&["--git-dir", own.as_str(), "worktree", "prune"], &self.top, &[], None).await;
    }
}
