//! Warns at a resume about changes that commands may have made at protected paths if the process was killed. A write
//! guard would have undone these changes at the end of the command.

use crate::base::call::CallState;
use crate::base::event::{Event, EventKind};
use crate::engine::next::{Next, next};
use crate::engine::state::RunState;
use crate::engine::verdict::first_names;
use crate::policy::PolicySet;
use crate::process;
use crate::recipe::Plan;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

/// The argument that makes a command continue in the background after its call.
const BACKGROUND: &str = "is_background";

/// The start time of the earliest command whose changes were never compared. `None` if no command was running when the
/// last session ended, or if that session ended properly.
fn since(events: &[Event], state: &RunState, plan: &Plan) -> Option<SystemTime> {
    let begins = |event: &Event| matches!(event.kind, EventKind::RunStarted(_) | EventKind::Resumed { .. });
    let first = events.iter().rposition(begins)?;
    let session = events.get(first..)?;
    let ends = |event: &Event| matches!(event.kind, EventKind::RunFinished { .. } | EventKind::Suspended { .. });
    if session.iter().any(ends) {
        return None;
    }
    // Servers and discovered tools may run as long as the session, and their start is not recorded.
    if plan.tools.starts_programs() {
        return session.first().map(|event| event.at.into());
    }
    state.confined.as_ref()?;
    let mut calls = session.iter().filter_map(|event| match &event.kind {
        EventKind::CallStarted { call } => Some((event, call)),
        _ => None,
    });
    let may_live = |call: &crate::base::ids::CallId| {
        let finished = |event: &Event| match &event.kind {
            EventKind::CallFinished { call: ended, state, .. } => ended == call && *state != CallState::Executing,
            _ => false,
        };
        let stays = |event: &Event| match &event.kind {
            EventKind::Replied { reply, .. } => {
                reply.calls().any(|one| one.id == *call && one.args[BACKGROUND] == true)
            }
            _ => false,
        };
        !session.iter().any(finished) || events.iter().any(stays)
    };
    let call = calls.find(|(_, call)| may_live(call)).map(|(event, _)| event.at);
    let of_recipe = matches!(next(state, plan), Next::Check(_) | Next::Run);
    let began = call.or_else(|| session.last().map(|event| event.at).filter(|_| of_recipe));
    began.map(SystemTime::from)
}

/// The warning about protected paths that may have been changed by commands that were running when the process was
/// killed. `None` if there are no such paths.
pub async fn warning(
    (events, state): (&[Event], &RunState),
    plan: &Plan,
    policies: &PolicySet,
    (workspace, hidden): (&Path, &[PathBuf]),
) -> Option<String> {
    let since = since(events, state, plan)?;
    let own = hidden.iter().filter_map(|path| path.strip_prefix(workspace).ok());
    let own: Vec<PathBuf> = own.map(Path::to_path_buf).collect();
    let began = "the process was killed while a command may have been running, so what it changed at protected paths was neither \
                 compared nor undone";
    let (tree, closed) = (workspace.to_owned(), policies.closed());
    let looking = tokio::task::spawn_blocking(move || process::closed_since(&tree, &*closed, &own, since));
    let what = match looking.await.map_err(|error| error.to_string()).flatten() {
        Ok(changed) if changed.is_empty() => return None,
        Ok(changed) => format!(
            "changed since then: {}",
            first_names(changed.iter().map(String::as_str))
        ),
        Err(why) => format!("which ones have changed since then is not known: {why}"),
    };
    Some(format!(
        "{began}; {what}. Look at these, and restore what you did not change, before you use git or an editor here: they may start \
         what is written there (hooks, settings)"
    ))
}
