//! Removes worktrees of `--isolate`, and other temporary directories of this program, whose process was killed; finds the
//! worktree of a killed run that is continued.

use crate::base::ids::RunId;
use crate::process::temporary::{self, InUse, Temporary, WORKTREE};
use crate::workspace::{patch, registration};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::time::Duration;
use tokio_util::sync::CancellationToken;

/// The most registrations of a repository that are looked at.
const MOST_REGISTRATIONS: usize = 10_000;
/// The file beside a worktree that holds the id of the run that works in it and, a line each, the absolute directories in
/// which the run's journal may be.
const RUN: &str = "overnight.run";

/// A worktree of this program that a repository knows.
struct Registration {
    /// The directory in the repository.
    admin: PathBuf,
    /// The temporary directory that contains the worktree.
    dir: PathBuf,
}

/// Whether the worktree that a killed process of a run left may still be needed. The directories are those in which the
/// run's journal may be, empty if they are not known; the time is that since the run began to work in the worktree.
pub type IsNeeded = fn(&RunId, &[PathBuf], Duration) -> bool;

/// What is recorded beside a worktree.
struct Record {
    run: RunId,
    journals: Vec<PathBuf>,
    age: Duration,
}

/// Removes what killed processes left, and its registrations in the repository whose common directory is `common`. A
/// failure leaves it to the next run. What a living process uses stays, and so does the worktree of a run that is not
/// finished: it may have the only copy of the run's last changes.
pub(super) async fn remove(common: &Path, is_needed: IsNeeded, stop: &CancellationToken) {
    let (common, stop) = (common.to_path_buf(), stop.clone());
    let removed = tokio::task::spawn_blocking(move || {
        let is_needed = |dir: &Path| record_of(dir).is_some_and(|of| is_needed(&of.run, &of.journals, of.age));
        for Registration { admin, dir } in registrations(&common.join("worktrees")) {
            if stop.is_cancelled() {
                return;
            }
            let is_gone = || std::fs::symlink_metadata(&dir).is_err_and(|error| error.kind() == ErrorKind::NotFound);
            if !is_needed(&dir) && (temporary::remove_if_left(&dir) || is_gone()) {
                let _ = registration::remove(&admin);
            }
        }
        registration::remove_left(&common);
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
        let _ = registration::remove(&found.admin);
    }
}

/// Records which run works in the worktree of this temporary directory, and in which directories its journal may be.
pub(super) fn record(dir: &Path, run: &RunId, journals: &[PathBuf]) -> std::io::Result<()> {
    let line = |path: &PathBuf| path.to_str().filter(|text| !text.contains('\n')).map(str::to_owned);
    // A path that is no line is not known, and then none is.
    let lines: Option<Vec<String>> = journals.iter().map(line).collect();
    let mut text = run.as_str().to_owned();
    for path in lines.unwrap_or_default() {
        text.push('\n');
        text.push_str(&path);
    }
    std::fs::write(dir.join(RUN), text)
}

fn record_of(dir: &Path) -> Option<Record> {
    let file = dir.join(RUN);
    let text = patch::regular_text(&file).filter(|_| is_worktree(dir))?;
    let mut lines = text.lines();
    let run = lines.next().filter(|run| !run.is_empty())?;
    let since = std::fs::symlink_metadata(&file).and_then(|found| found.modified());
    Some(Record {
        run: RunId(run.to_owned()),
        journals: lines.map(PathBuf::from).collect(),
        // A clock that was set back makes it younger.
        age: since.ok().and_then(|since| since.elapsed().ok()).unwrap_or_default(),
    })
}

/// The run that works, or worked, in the worktree of this temporary directory.
pub(super) fn run_of(dir: &Path) -> Option<RunId> {
    record_of(dir).map(|record| record.run)
}

/// Takes over the temporary directory of the worktree that a killed process of this run left. `None` if there is none.
pub(super) fn take_over(common: &Path, run: &RunId) -> Result<Option<Temporary>, InUse> {
    let all = registrations(&common.join("worktrees"));
    let own = all.into_iter().filter(|found| run_of(&found.dir).as_ref() == Some(run));
    let mut is_used = false;
    for found in own {
        match Temporary::take_over(&found.dir) {
            Ok(Some(taken)) => return Ok(Some(taken)),
            Ok(None) => {}
            Err(InUse) => is_used = true,
        }
    }
    if is_used { Err(InUse) } else { Ok(None) }
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
