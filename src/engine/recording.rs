//! Extracts the requests and replies of a recorded run from its journal, for replay.

use super::state::RunState;
use crate::base::call::ToolSpec;
use crate::base::event::{Event, EventKind};
use crate::provider::recorded_run::RecordedRun;
use crate::provider::replay::{RecordedRequest, RecordedTurn};
use std::sync::Arc;

/// Requests and replies of a journal.
pub struct Recording {
    events: Vec<Event>,
}

/// Extracts the recording from these events.
pub fn of(events: &[Event]) -> Recording {
    Recording {
        events: events.to_vec(),
    }
}

impl Recording {
    /// Each turn with its reply and the digest of its request.
    pub fn turns(&self) -> Vec<RecordedTurn> {
        let mut discarded = Vec::new();
        let turns = self.events.iter().filter_map(|event| match &event.kind {
            EventKind::Retried {
                class,
                discarded: Some(reply),
                ..
            } => {
                discarded.push((class.clone(), reply.clone()));
                None
            }
            EventKind::Replied {
                turn,
                reply,
                asked,
                cost_micros,
                ..
            } => Some(RecordedTurn {
                turn: *turn,
                asked: asked.clone(),
                reply: reply.clone(),
                cost_micros: *cost_micros,
                discarded: std::mem::take(&mut discarded),
            }),
            EventKind::Compacted {
                summary: Some(summary), ..
            } => Some(RecordedTurn {
                turn: summary.turn,
                asked: summary.asked.clone(),
                reply: summary.reply.clone(),
                cost_micros: summary.cost_micros,
                discarded: std::mem::take(&mut discarded),
            }),
            _ => None,
        });
        turns.collect()
    }

    /// What is recorded besides the turns: the model and the results of calls.
    pub fn beside(&self) -> RecordedRun {
        let mut beside = RecordedRun::default();
        for event in &self.events {
            match &event.kind {
                EventKind::RunStarted(head) => {
                    beside.model = head.replays.clone().unwrap_or_else(|| head.model.clone());
                }
                EventKind::Equipped(equipped) => {
                    beside.window = beside.window.or(equipped.window);
                    beside.prompts.extend(equipped.prompts.iter().cloned());
                }
                EventKind::Replied { secrets, .. } => beside.secrets.extend(secrets.iter().cloned()),
                EventKind::Compacted { overflow, window, .. } => {
                    beside
                        .overflows
                        .extend(overflow.clone().map(|digest| (digest, *window)));
                }
                EventKind::Ran { step, output, .. } => {
                    beside.steps.insert(step.clone(), output.clone());
                }
                EventKind::Checked {
                    step, attempt, check, ..
                } => {
                    let key = (step.clone(), *attempt, check.name.clone());
                    beside.checks.insert(key, check.clone());
                }
                EventKind::CallFinished { call, output, .. } => {
                    beside.results.insert(call.clone(), (**output).clone());
                }
                _ => {}
            }
        }
        beside
    }

    /// The request of a turn, rebuilt from the events before its reply.
    pub fn request(&self, turn: u64) -> Option<RecordedRequest> {
        let mut state = RunState::default();
        let mut told: (String, Option<Vec<ToolSpec>>) = (String::new(), None);
        for event in &self.events {
            match &event.kind {
                EventKind::Equipped(equipped) => told = (equipped.system.clone(), Some(equipped.tools.clone())),
                EventKind::Replied { turn: this, .. } if *this == turn => {
                    return Some(RecordedRequest {
                        system: told.0,
                        tools: told.1,
                        messages: Arc::unwrap_or_clone(state.history),
                    });
                }
                _ => {}
            }
            state.apply(&event.kind);
        }
        None
    }
}
