//! Where runs lie on the disk: naming, finding, listing and pruning run directories, and the lock of a workspace.

use super::{JournalError, reader, writer};
use crate::base::event::{Event, EventKind};
use crate::base::ids::RunId;
use jiff::Timestamp;
use std::fs::File;
use std::path::{Path, PathBuf};

/// The directory of a workspace that holds its runs.
pub const RUNS: &str = ".overnight/runs";

/// A new run id from the clock and the kernel's randomness.
pub fn new_run_id(now: Timestamp) -> RunId {
    let mut random = [0_u8; 3];
    // A clash is caught when the directory is made, so a failed read only makes one less unlikely.
    let _ = std::fs::File::open("/dev/urandom").and_then(|mut file| std::io::Read::read_exact(&mut file, &mut random));
    let stamp = now.strftime("%Y%m%d-%H%M%S");
    let [a, b, c] = random;
    RunId(format!("{stamp}-{a:02x}{b:02x}{c:02x}"))
}

/// The default directory of a run.
pub fn default_dir(workspace: &Path, run: &RunId) -> PathBuf {
    // `.overnight/…` reads better than `./.overnight/…` and is the same.
    let workspace = workspace.strip_prefix(".").unwrap_or(workspace);
    workspace.join(RUNS).join(run.as_str())
}

/// Makes `.overnight` invisible to git, as every directory of ours in a tree is.
pub fn ignore_runs(workspace: &Path) -> Result<(), JournalError> {
    let dir = workspace.join(".overnight");
    let file = dir.join(".gitignore");
    std::fs::create_dir_all(&dir)
        .and_then(|()| {
            if file.exists() {
                Ok(())
            } else {
                std::fs::write(&file, "*\n")
            }
        })
        .map_err(|source| JournalError::Write {
            path: file.display().to_string(),
            source,
        })
}

/// The directory of a run that is named by its directory or by its id in `workspace`.
pub fn locate(run: &str, workspace: &Path) -> Result<PathBuf, JournalError> {
    let candidates = [PathBuf::from(run), workspace.join(RUNS).join(run)];
    candidates
        .into_iter()
        .find(|dir| dir.join(writer::FILE).is_file())
        .ok_or_else(|| JournalError::Missing(run.to_owned()))
}

/// Holds a workspace for one run: a lock on the directory itself, so that nothing is written into it.
pub fn hold_workspace(workspace: &Path) -> Result<File, JournalError> {
    let dir = File::open(workspace).map_err(|source| JournalError::Read {
        path: workspace.display().to_string(),
        source,
    })?;
    writer::lock(&dir, workspace)?;
    Ok(dir)
}

/// A run as a listing shows it.
#[derive(Debug)]
pub struct Listed {
    pub dir: PathBuf,
    pub run: RunId,
    pub started: Option<Timestamp>,
    pub recipe: String,
    /// The verdict's word; `unfinished` without one, `damaged` when the journal cannot be read.
    pub verdict: String,
}

/// The runs of a workspace, oldest first.
pub fn list(workspace: &Path) -> Result<Vec<Listed>, JournalError> {
    let root = workspace.join(RUNS);
    let entries = match std::fs::read_dir(&root) {
        Ok(entries) => entries,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(source) => {
            return Err(JournalError::Read {
                path: root.display().to_string(),
                source,
            });
        }
    };
    let mut runs: Vec<Listed> = entries
        .filter_map(Result::ok)
        .map(|entry| entry.path())
        .filter(|dir| dir.join(writer::FILE).is_file())
        .map(|dir| describe(&dir))
        .collect();
    runs.sort_by(|a, b| a.run.cmp(&b.run));
    Ok(runs)
}

fn describe(dir: &Path) -> Listed {
    let name = dir.file_name().map(|name| name.to_string_lossy().into_owned());
    let mut listed = Listed {
        dir: dir.to_owned(),
        run: RunId(name.unwrap_or_default()),
        started: None,
        recipe: String::new(),
        verdict: "damaged".to_owned(),
    };
    if let Ok(journal) = reader::read(dir) {
        "unfinished".clone_into(&mut listed.verdict);
        listed.started = journal.events.first().map(|event| event.at);
        for event in &journal.events {
            note(&mut listed, event);
        }
    }
    listed
}

fn note(listed: &mut Listed, event: &Event) {
    match &event.kind {
        EventKind::RunStarted(started) => listed.recipe.clone_from(&started.recipe),
        EventKind::RunFinished { outcome, .. } => outcome.verdict.as_str().clone_into(&mut listed.verdict),
        EventKind::Resumed { .. } => "unfinished".clone_into(&mut listed.verdict),
        _ => {}
    }
}

/// Removes all but the newest `keep` runs that nobody holds. Returns the removed ones.
pub fn prune(workspace: &Path, keep: usize) -> Result<Vec<RunId>, JournalError> {
    let runs = list(workspace)?;
    let surplus = runs.len().saturating_sub(keep);
    let mut removed = Vec::new();
    for run in runs.into_iter().take(surplus) {
        let free = File::open(run.dir.join(writer::FILE)).is_ok_and(|file| file.try_lock().is_ok());
        if free {
            std::fs::remove_dir_all(&run.dir).map_err(|source| JournalError::Write {
                path: run.dir.display().to_string(),
                source,
            })?;
            removed.push(run.run);
        }
    }
    Ok(removed)
}
