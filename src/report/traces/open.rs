//! The state while spans are built: the open session, step, calls and request.

use super::attributes::SpanAttributes;
use crate::base::event::Decided;
use crate::base::message::Usage;
use jiff::Timestamp;

/// Usage of one session.
pub(super) struct OpenSession {
    pub(super) seq: u64,
    pub(super) from: Timestamp,
    pub(super) finished: bool,
    pub(super) usage: Usage,
    pub(super) cost_micros: u64,
    pub(super) turns: u64,
    pub(super) retries: Vec<Retry>,
    pub(super) more: SpanAttributes,
}

impl OpenSession {
    pub(super) fn new(seq: u64, from: Timestamp) -> Self {
        Self {
            seq,
            from,
            finished: false,
            usage: Usage::default(),
            cost_micros: 0,
            turns: 0,
            retries: Vec::new(),
            more: SpanAttributes::default(),
        }
    }
}

/// A request that had to be repeated.
pub(super) struct Retry {
    pub(super) class: String,
    pub(super) wait_ms: u64,
}

/// An active step.
pub(super) struct OpenStep<'a> {
    pub(super) seq: u64,
    pub(super) from: Timestamp,
    pub(super) id: &'a str,
}

/// A call that was made and has not ended.
pub(super) struct OpenCall<'a> {
    pub(super) seq: u64,
    pub(super) asked: Timestamp,
    pub(super) tool: &'a str,
    pub(super) wire_id: Option<&'a str>,
    pub(super) decided: Option<&'a Decided>,
    pub(super) started: Option<Timestamp>,
}
