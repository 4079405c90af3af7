//! Since when commands of a killed run may have made changes that were never compared, as far as its journal says.

use crate::base::call::CallState;
use crate::base::event::{Event, EventKind};
use crate::engine::next::{Next, next};
use crate::engine::state::RunState;
use crate::recipe::Plan;
use std::time::SystemTime;

/// The argument that makes a command continue in the background after its call.
const BACKGROUND: &str = "is_background";

/// The start time of the earliest command whose changes were never compared. `None` if no command was running when the
/// last session ended, or if that session ended properly, or `elsewhere`: it worked on another tree.
pub fn since((events, state, plan): (&[Event], &RunState, &Plan), elsewhere: bool) -> Option<SystemTime> {
    if elsewhere {
        return None;
    }
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
