//! Prepares the sandbox and the directory of journal and store before the journal begins, when a program must be
//! started to gather the tools.

use super::{Beginning, RunSession};
use crate::cli::refusal::Refusal;
use crate::cli::{bootstrap, toolset};
use crate::engine::journal_place;
use crate::journal::run_dirs;
use crate::process::private::Private;
use crate::process::{self, Confinement};
use crate::workspace::patch::Shadow;
use std::path::PathBuf;
use std::sync::Arc;

/// Builds and tests the sandbox now if a program must be started to gather the tools.
///
/// # Errors
/// [`Refusal::Environment`] if the sandbox cannot be built or does not hold.
pub async fn sandbox(session: &RunSession, own: &Arc<Private>) -> Result<Option<(Confinement, String)>, Refusal> {
    if !toolset::starts_something(&session.plan) {
        return Ok(None);
    }
    let hermetic = session.provider.recorded().is_some();
    let root = session.workspace.root();
    // The servers that are started next need it at once.
    let ahead = None::<std::future::Ready<()>>;
    let make = bootstrap::sandbox(&session.policies, root, own, &session.hidden, hermetic, ahead);
    let (made, detail) = make().await.map_err(Refusal::Environment)?;
    let level = made.level.as_str();
    process::self_test(&made)
        .await
        .map_err(|why| Refusal::Environment(format!("the sandbox level {level} does not hold here: {why}")))?;
    Ok(Some((made, detail)))
}

/// Chooses the directory of journal and store, out of reach of programs that start before the journal begins.
///
/// # Errors
/// [`Refusal::Environment`] if the store of a new run cannot be emptied, or commands could write the journal
/// everywhere; [`Refusal::Output`] if the files of a resumed run cannot be moved.
pub fn home_of(
    session: &RunSession,
    beginning: &Beginning,
    early: Option<&(Confinement, String)>,
) -> Result<PathBuf, Refusal> {
    let fresh = match beginning {
        Beginning::New(first) => Some(&first.run),
        Beginning::Resumed(_) => None,
    };
    if fresh.is_some() {
        let store = session.home.join("git");
        Shadow::clear(&store).map_err(|error| Refusal::Environment(format!("{error}: name another --out")))?;
    }
    let run = fresh.unwrap_or(&session.run);
    let to = match early {
        Some((made, _)) => journal_place::elsewhere(made, run, &session.home).map_err(Refusal::Environment)?,
        None => None,
    };
    match to {
        None => Ok(session.home.clone()),
        Some(to) => {
            if fresh.is_none() {
                run_dirs::move_run(&session.home, &to)?;
            }
            Ok(to)
        }
    }
}
