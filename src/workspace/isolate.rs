//! Creates a temporary git worktree, so that the user's tree is not changed; removes it at the end. Also removes those of
//! processes that were killed, once their runs are finished; until then a resume takes them over.

mod keep;
mod stale_worktrees;

pub use keep::{BroughtFiles, KeepMessage, bring};
pub use stale_worktrees::IsNeeded;

use super::patch::{self, STOP_TIME, STOPPED};
use super::registration;
use crate::base::ids::RunId;
use crate::base::quote::{counted, first_names};
use crate::process::own_git::{self, GitAccess};
use crate::process::private;
use crate::process::temporary::{self, InUse, Temporary};
use std::path::{Path, PathBuf};
use tokio_util::sync::CancellationToken;

/// A temporary worktree.
#[derive(Debug)]
pub struct Isolated {
    /// Contains the worktree, and is removed together with it.
    dir: Temporary,
    workspace: PathBuf,
    repository: patch::Repository,
    /// Canonical path of the git directory that all worktrees of the repository share.
    common: PathBuf,
    pointers: usize,
    /// What the worktree lacks of the user's tree, as sentences.
    warnings: Vec<String>,
}

/// Limit of names in a warning.
const NAMED: usize = 8;

const NO_COMMIT: &str = "--isolate needs a commit, and the repository has none";

/// The canonical path of a workspace, and its repository.
fn tree_of(workspace: &Path) -> Result<(PathBuf, patch::Repository), String> {
    let root = std::fs::canonicalize(workspace).map_err(|error| format!("{}: {error}", workspace.display()))?;
    let repository =
        patch::repository(&root).ok_or("--isolate needs a git repository, and the workspace is not in one")?;
    Ok((root, repository))
}

/// Whether [`make`] has what it needs. Creates nothing.
///
/// # Errors
/// As for [`make`]: there is no repository or no commit, or git fails.
pub async fn preflight(workspace: &Path) -> Result<(), String> {
    let (_, repository) = tree_of(workspace)?;
    patch::head(&repository)
        .await?
        .map(|_| ())
        .ok_or_else(|| NO_COMMIT.to_owned())
}

/// Creates a worktree of `HEAD` for the repository of `workspace`. When `stop` is cancelled, removes what it has made.
///
/// # Errors
/// A sentence: there is no repository or no commit, git fails, a file cannot be written, or it was interrupted.
pub async fn make(workspace: &Path, is_needed: IsNeeded, stop: &CancellationToken) -> Result<Isolated, String> {
    let (root, repository) = tree_of(workspace)?;
    let common = std::fs::canonicalize(&repository.common_dir).unwrap_or_else(|_| repository.common_dir.clone());
    stale_worktrees::remove(&common, is_needed, stop).await;
    let dir = Temporary::make(temporary::WORKTREE).map_err(|error| temporary::why_not(&error))?;
    let mut isolated = Isolated::of(dir, &root, repository, common);
    let commit = stop.run_until_cancelled(patch::head(&isolated.repository)).await;
    let commit = commit.ok_or_else(|| STOPPED.to_owned())??;
    let commit = commit.ok_or(NO_COMMIT)?;
    let filled = isolated.fill(commit, stop).await;
    match filled.and_then(|lacks| isolated.is_inside().map(|()| lacks)) {
        Ok((pointers, submodules)) => {
            isolated.pointers = pointers;
            let Some(changes) = stop.run_until_cancelled(uncommitted(&isolated.repository)).await else {
                isolated.remove().await;
                return Err(STOPPED.to_owned());
            };
            isolated.warnings.extend(changes);
            isolated.warnings.extend(empty(&isolated.repository.top, &submodules));
            Ok(isolated)
        }
        Err(why) => {
            isolated.remove().await;
            Err(format!("cannot create a worktree: {why}"))
        }
    }
}

/// Takes over the worktree of the repository of `workspace` that a killed process of this run left, with all that the
/// run changed there. `None` if there is none.
///
/// # Errors
/// [`InUse`]: a living process works in it.
pub fn take_over(workspace: &Path, run: &RunId) -> Result<Option<Isolated>, InUse> {
    let place = || {
        let root = std::fs::canonicalize(workspace).ok()?;
        let repository = patch::repository(&root)?;
        let common = std::fs::canonicalize(&repository.common_dir).ok()?;
        Some((root, repository, common))
    };
    let Some((root, repository, common)) = place() else {
        return Ok(None);
    };
    let Some(dir) = stale_worktrees::take_over(&common, run)? else {
        return Ok(None);
    };
    let isolated = Isolated::of(dir, &root, repository, common);
    if isolated.is_inside().is_ok() {
        return Ok(Some(isolated));
    }
    isolated.leave();
    Ok(None)
}

fn tree_in(dir: &Temporary) -> PathBuf {
    dir.path().join("tree")
}

/// The run for which the worktree was made that contains `path`. `None` outside of all worktrees of isolated runs.
pub fn run_of(path: &Path) -> Option<RunId> {
    let path = std::fs::canonicalize(path).ok()?;
    let mut trees = path.ancestors().filter(|above| above.ends_with("tree"));
    trees.find_map(|tree| stale_worktrees::run_of(tree.parent()?))
}

impl Isolated {
    /// The worktree in `dir` for `root`, a directory of the user's tree.
    fn of(dir: Temporary, root: &Path, repository: patch::Repository, common: PathBuf) -> Self {
        let below = root.strip_prefix(&repository.top).unwrap_or_else(|_| Path::new(""));
        Self {
            workspace: tree_in(&dir).join(below),
            common,
            dir,
            repository,
            pointers: 0,
            warnings: Vec::new(),
        }
    }

    /// The top of the worktree.
    fn tree(&self) -> PathBuf {
        tree_in(&self.dir)
    }

    /// Records that `run` works in the worktree: if its process is killed, the worktree stays until the run is finished.
    /// To be called only when the worktree has all that the run has changed. `journals`: the absolute directories in which
    /// the run's journal may be.
    ///
    /// # Errors
    /// A sentence: the file cannot be written.
    pub fn record(&self, run: &RunId, journals: &[PathBuf]) -> Result<(), String> {
        let dir = self.dir.path();
        stale_worktrees::record(dir, run, journals).map_err(|error| format!("{}: {error}", dir.display()))
    }

    /// Whether it was recorded that this run works in the worktree.
    pub fn is_of(&self, run: &RunId) -> bool {
        stale_worktrees::run_of(self.dir.path()).is_some_and(|recorded| recorded == *run)
    }

    /// Removes the directories that an earlier process brought into the worktree, so that they are brought again. What
    /// the commit has stays.
    pub async fn remove_brought(&self, keep: &[String]) {
        let tree = self.tree();
        // HEAD of the worktree: that of the user's tree may have moved since.
        let Some(own) = patch::repository(&tree) else {
            return;
        };
        let git_dir = own.git_dir.to_string_lossy();
        let Ok(root) = std::fs::canonicalize(&self.workspace) else {
            return;
        };
        let workspace = self.workspace.strip_prefix(&tree).unwrap_or_else(|_| Path::new(""));
        for path in keep.iter().filter_map(|path| keep::relative(path).ok()) {
            let place = root.join(&path);
            let below = workspace.join(&path);
            let below = below.to_string_lossy();
            let args = [
                "--git-dir",
                git_dir.as_ref(),
                "ls-tree",
                "--full-tree",
                "HEAD",
                "--",
                below.as_ref(),
            ];
            let listed = own_git::git(&args, Path::new("/"), &[], None, GitAccess::Read).await;
            let is_brought = listed.is_ok_and(|listed| listed.ok && listed.stdout.is_empty());
            // A link on the way would lead out of the worktree.
            if is_brought && std::fs::canonicalize(&place).is_ok_and(|real| real == place) {
                let _ = private::remove(&place);
            }
        }
    }

    /// Registers the worktree and writes the files of the commit. Returns the number of Git LFS pointers, and the submodules.
    async fn fill(&self, commit: String, stop: &CancellationToken) -> Result<(usize, Vec<String>), String> {
        let (tree, common) = (self.tree(), self.common.clone());
        let repository = self.repository.clone();
        let stopped = stop.clone();
        let filled = tokio::task::spawn_blocking(move || {
            std::fs::create_dir(&tree).map_err(|error| format!("{}: {error}", tree.display()))?;
            registration::register(&common, &tree, &commit, None)?;
            let checkout = patch::checkout(&repository, &commit, &tree, &stopped)?;
            let own = patch::repository(&tree).ok_or("git created no worktree")?;
            registration::write_index(&own.git_dir, &checkout.index)?;
            Ok((checkout.pointers, checkout.submodules))
        });
        let too_long = async {
            stop.cancelled().await;
            tokio::time::sleep(STOP_TIME).await;
        };
        tokio::select! {
            filled = filled => filled.map_err(|error| error.to_string())?,
            () = too_long => Err(STOPPED.to_owned()),
        }
    }

    /// Rejects a workspace that is missing from the commit or is a symbolic link in it, even if it is a directory in
    /// the user's tree: the run would work in the target of the link.
    fn is_inside(&self) -> Result<(), String> {
        let tree = self.tree();
        let below = self.workspace.strip_prefix(&tree).unwrap_or(&self.workspace);
        let mut place = tree.clone();
        for part in below.components() {
            place.push(part);
            let shown = place.strip_prefix(&tree).unwrap_or(&place).display();
            match std::fs::symlink_metadata(&place) {
                Ok(data) if data.is_dir() => {}
                Ok(data) if data.is_symlink() => {
                    return Err(format!(
                        "{shown} is a symbolic link in the commit: commit the directory, or name it"
                    ));
                }
                _ => return Err(format!("{shown} is not a directory in the commit: commit it first")),
            }
        }
        Ok(())
    }

    /// The directory in the worktree that corresponds to the user's workspace.
    pub fn workspace(&self) -> &Path {
        &self.workspace
    }

    /// A note for people about missing content: filters do not run, so Git LFS files remain pointers.
    pub fn lacks(&self) -> Option<String> {
        (self.pointers > 0).then(|| {
            format!(
                "the worktree has Git LFS pointers in place of {}: filters of the repository do not run for --isolate",
                counted(self.pointers, "file")
            )
        })
    }

    /// Warnings about changes and submodules of the user's tree that the worktree does not have.
    pub fn warnings(&self) -> &[String] {
        &self.warnings
    }

    /// Leaves the worktree to a later process of its run, as if this one had been killed.
    pub fn leave(self) {
        self.dir.leave();
    }

    /// Removes the worktree and its registration in the repository.
    pub async fn remove(self) {
        let removed = tokio::task::spawn_blocking(move || {
            stale_worktrees::forget(&self.common, self.dir.path());
            drop(self.dir);
        });
        // A panic of the thread is no reason against the run; the next one removes what is left.
        let _ = removed.await;
    }
}

/// A warning about changes of tracked files that are not committed. Returns `None` if git fails: filters of the
/// repository may be needed, and none is started here. The Git LFS filter is disabled, because otherwise git fails at
/// the first LFS file that it has to compare. Git then compares the file with its pointer, so a file that was only
/// touched is named too.
async fn uncommitted(repository: &patch::Repository) -> Option<String> {
    let git_dir = repository.git_dir.to_string_lossy();
    let top = repository.top.to_string_lossy();
    let args = [
        "--no-optional-locks",
        // Threads are not allowed either.
        "-c",
        "core.preloadIndex=false",
        "-c",
        "index.threads=1",
        "-c",
        "filter.lfs.clean=",
        "-c",
        "filter.lfs.smudge=",
        "-c",
        "filter.lfs.process=",
        "-c",
        "filter.lfs.required=false",
        "--git-dir",
        git_dir.as_ref(),
        "--work-tree",
        top.as_ref(),
        "status",
        "--porcelain",
        "-z",
        "--untracked-files=no",
        "--no-renames",
        "--ignore-submodules=all",
    ];
    // As committed: a `.gitattributes` of the tree may be a named pipe. A git older than 2.41 reads those of the tree.
    let env = [("GIT_ATTR_SOURCE".to_owned(), "HEAD".to_owned())];
    let printed = own_git::git(&args, &repository.top, &env, None, GitAccess::Read)
        .await
        .ok()?;
    let text = String::from_utf8_lossy(&printed.stdout);
    // Two letters for the state and a space precede each path.
    let names: Vec<&str> = text.split('\0').filter_map(|line| line.get(3..)).collect();
    let count = match names.len() {
        _ if !printed.ok => return None,
        0 => return None,
        1 => "1 uncommitted change is".to_owned(),
        count => format!("{count} uncommitted changes are"),
    };
    Some(format!(
        "{count} not in the worktree of --isolate: {}; commit first if the run needs them",
        first_names(&names, NAMED)
    ))
}

/// A warning about submodules whose files the user's tree has.
fn empty(top: &Path, submodules: &[String]) -> Option<String> {
    let has_files =
        |name: &&String| std::fs::read_dir(top.join(name)).is_ok_and(|mut entries| entries.next().is_some());
    let names: Vec<&str> = submodules.iter().filter(has_files).map(String::as_str).collect();
    let are = match names.len() {
        0 => return None,
        1 => format!("submodule {} is", first_names(&names, NAMED)),
        _ => format!("submodules {} are", first_names(&names, NAMED)),
    };
    Some(format!(
        "{are} empty in the worktree of --isolate: run without --isolate if the run needs the files"
    ))
}
