//! Removes worktrees of `--isolate`, and other temporary directories of this program, whose process was killed; finds the
//! worktree of a killed run that is continued.

use crate::base::ids::RunId;
use crate::process::private;
use crate::process::temporary::{self, Temporary, WORKTREE};
use crate::workspace::patch;
use std::path::{Path, PathBuf};
use tokio_util::sync::CancellationToken;

/// The most registrations of a repository that are looked at.
const MOST_REGISTRATIONS: usize = 10_000;
/// The file beside a worktree that holds the id of the run that works in it.
const RUN: &str = "overnight.run";

/// A worktree of this program that a repository knows.
struct Registration {
    /// The directory in the repository.
    admin: PathBuf,
    /// The temporary directory that contains the worktree.
    dir: PathBuf,
}

/// Removes what killed processes left, and its registrations in the repository whose common directory is `common`. A
/// failure leaves it to the next run. What a living process uses stays, and so does the worktree of a run that is not
/// finished: it may have the only copy of the run's last changes.
pub(super) async fn remove(common: &Path, is_unfinished: fn(&RunId) -> bool, stop: &CancellationToken) {
    let (worktrees, stop) = (common.join("worktrees"), stop.clone());
    let removed = tokio::task::spawn_blocking(move || {
        let is_needed = |dir: &Path| run_of(dir).is_some_and(|run| is_unfinished(&run));
        for Registration { admin, dir } in registrations(&worktrees) {
            if stop.is_cancelled() {
                return;
            }
            if !is_needed(&dir) && temporary::remove_if_left(&dir) {
                // Not with `git worktree prune`: git keeps one that was killed while it was being made.
                let _ = private::remove(&admin);
            }
        }
        // Those of other repositories, those that were never registered, and other kinds.
        for dir in temporary::all() {
            if stop.is_cancelled() {
                return;
            }
            if !is_needed(&dir) {
                temporary::remove_if_left(&dir);
            }
        }
    });
    // A panic of the thread is no reason against the run.
    let _ = removed.await;
}

/// Removes the registration of the worktree in this temporary directory, whose name is unique. What cannot be removed is
/// left to the user's git.
pub(super) fn forget(common: &Path, dir: &Path) {
    let all = registrations(&common.join("worktrees"));
    for found in all.into_iter().filter(|found| found.dir.file_name() == dir.file_name()) {
        let _ = private::remove(&found.admin);
    }
}

/// Records which run works in the worktree of this temporary directory.
pub(super) fn record(dir: &Path, run: &RunId) -> std::io::Result<()> {
    std::fs::write(dir.join(RUN), run.as_str())
}

/// The run that works, or worked, in the worktree of this temporary directory.
pub(super) fn run_of(dir: &Path) -> Option<RunId> {
    let text = patch::regular_text(&dir.join(RUN)).filter(|_| is_worktree(dir))?;
    Some(RunId(text)).filter(|run| !run.as_str().is_empty())
}

/// Takes over the temporary directory of the worktree that a killed process of this run left. `None` if there is none, or
/// a living process has it.
pub(super) fn take_over(common: &Path, run: &RunId) -> Option<Temporary> {
    let all = registrations(&common.join("worktrees"));
    let mut own = all.into_iter().filter(|found| run_of(&found.dir).as_ref() == Some(run));
    own.find_map(|found| Temporary::take_over(&found.dir))
}

fn is_worktree(dir: &Path) -> bool {
    dir.file_name()
        .is_some_and(|name| name.as_encoded_bytes().starts_with(WORKTREE.as_bytes()))
}

/// The worktrees of this program among those of a repository.
fn registrations(worktrees: &Path) -> Vec<Registration> {
    let entries = std::fs::read_dir(worktrees).into_iter().flatten();
    let one = |admin: PathBuf| {
        let text = patch::regular_text(&admin.join("gitdir"))?;
        // `TMPDIR/overnight-worktree-XXXX/tree/.git`
        let dir = Path::new(text.trim()).parent()?.parent()?.to_owned();
        (dir.is_absolute() && is_worktree(&dir)).then_some(Registration { admin, dir })
    };
    entries
        .take(MOST_REGISTRATIONS)
        .flatten()
        .filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()))
        .filter_map(|entry| one(entry.path()))
        .collect()
}
