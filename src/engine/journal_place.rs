//! Chooses the directory of journal and store: the run directory or, if commands could write there, the user's state
//! directory.

use super::deps::Deps;
use super::ledger::Ledger;
use super::run_error::RunError;
use crate::base::event::EventKind;
use crate::journal::{chain_key, no_follow, state_dir};
use crate::process::{Confinement, SandboxLevel};
use std::path::{Path, PathBuf};

/// Directory in a workspace that is protected so that no command can rename it.
const OWN_DIR: &str = ".overnight";

/// Whether commands in this sandbox could write to `dir`, or put another directory in its place.
///
/// At level `full` a mount covers the run directory. The mount does not protect its parents: if a command renames one,
/// the run directory moves with it. Without a sandbox the answer is `false`: every directory is within reach, so moving
/// it would not help.
pub fn within_reach(confinement: &Confinement, dir: &Path) -> bool {
    let dir = no_follow::settled(dir);
    let writable = || confinement.writable.iter().any(|place| dir.starts_with(place));
    let below = dir.strip_prefix(&confinement.workspace);
    match confinement.level {
        SandboxLevel::None => false,
        SandboxLevel::Landlock => {
            below.is_ok() || writable() || confinement.readable.iter().any(|place| dir.starts_with(place))
        }
        SandboxLevel::Full => {
            let mut names = below.into_iter().flat_map(Path::components);
            let first = names.next().map(|name| name.as_os_str().to_owned());
            writable() || (first.is_some_and(|first| first != OWN_DIR) && names.next().is_some())
        }
    }
}

/// Refuses a state directory inside one of these places, where sandboxed commands may write.
///
/// # Errors
/// A sentence that says which variable to set.
pub fn check_state<'a>(places: impl IntoIterator<Item = &'a Path>) -> Result<(), String> {
    let Ok(dir) = chain_key::state() else {
        return Ok(());
    };
    let settled = no_follow::settled(dir);
    match places.into_iter().find(|place| settled.starts_with(place)) {
        Some(place) => Err(format!(
            "the state directory {} is inside {}, where the commands of a run may write: set XDG_STATE_HOME to a directory outside of it",
            dir.display(),
            place.display()
        )),
        None => Ok(()),
    }
}

/// Creates another directory for journal and store if commands could reach `dir`.
///
/// # Errors
/// The state directory is where commands may write, or it cannot take the journal although `dir` cannot keep it either.
pub fn elsewhere(
    confinement: &Confinement,
    run: &crate::base::ids::RunId,
    dir: &Path,
) -> Result<Option<PathBuf>, String> {
    if confinement.level != SandboxLevel::None {
        let places = confinement.writable.iter().chain([&confinement.workspace]);
        check_state(places.map(PathBuf::as_path))?;
    }
    if !within_reach(confinement, dir) {
        return Ok(None);
    }
    state_dir::directory_of(run, dir).map(Some).map_err(|why| {
        format!(
            "at sandbox level `{}` commands could write the run directory {}, and its journal cannot be kept elsewhere: {why}; choose \
             an --out outside the workspace, or set XDG_STATE_HOME to a directory that can be written",
            confinement.level.as_str(),
            dir.display()
        )
    })
}

/// The event that records the new directory.
pub fn moved_event(home: &Path) -> EventKind {
    EventKind::Warned {
        code: "journal_moved".to_owned(),
        message: format!(
            "commands could reach the run directory at this sandbox level: journal and store are in {}",
            home.display()
        ),
    }
}

/// Moves journal, blobs, results and store out of reach of commands, before the first command. The baseline must be
/// taken, so that nothing uses the old directory.
///
/// # Errors
/// [`RunError::Journal`] if the files cannot be moved or the move cannot be recorded.
pub fn move_out(deps: &Deps, ledger: &mut Ledger, to: &Path) -> Result<(), RunError> {
    ledger.move_to(to)?;
    let mut shadow = (*deps.shadow).clone();
    shadow.moved_to(&to.join("git"));
    deps.shadow.replace(shadow);
    deps.scope.results.replace(to.join("results"));
    deps.run_dir.replace(to.to_owned());
    Ok(ledger.record(moved_event(to))?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_commands_can_reach_depends_on_the_level() {
        let reach = |level, dir: &str| {
            let confinement = Confinement {
                level,
                writable: vec![PathBuf::from("/nonexistent/tmp")],
                ..Confinement::unconfined(Path::new("/nonexistent/ws"))
            };
            within_reach(&confinement, Path::new(dir))
        };
        for (dir, full, landlock) in [
            ("/nonexistent/ws/.overnight/runs/x", false, true),
            ("/nonexistent/ws/out", false, true),
            ("/nonexistent/ws/build/out", true, true),
            ("/nonexistent/tmp/out", true, true),
            ("/nonexistent/out", false, false),
            ("/nonexistent/wsx", false, false),
        ] {
            assert_eq!(reach(SandboxLevel::Full, dir), full, "{dir}");
            assert_eq!(reach(SandboxLevel::Landlock, dir), landlock, "{dir}");
            assert!(!reach(SandboxLevel::None, dir), "{dir}");
        }
    }
}
