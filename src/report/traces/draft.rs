//! A span before it is placed in its trace, and the ids of a trace, which depend only on run and event.

use super::attributes::SpanAttributes;
use crate::base::ids::sha256_hex;
use jiff::Timestamp;
use opentelemetry::InstrumentationScope;
use opentelemetry::trace::{SpanContext, SpanId, SpanKind, Status, TraceFlags, TraceId, TraceState};
use opentelemetry_sdk::trace::{SpanData, SpanEvents, SpanLinks};
use std::time::SystemTime;

/// A span without parent and trace.
pub(super) struct SpanDraft {
    label: String,
    seq: u64,
    name: String,
    from: Timestamp,
    to: Timestamp,
    pub(super) kind: SpanKind,
    pub(super) attributes: SpanAttributes,
    /// Why the operation failed: one word, as in outcomes.
    pub(super) error: Option<String>,
}

impl SpanDraft {
    /// `label` and `seq` determine its id: no other span of the run has both.
    pub(super) fn new(label: &str, seq: u64, name: String, from: Timestamp, to: Timestamp) -> Self {
        Self {
            label: label.to_owned(),
            seq,
            name,
            from: from.min(to),
            to,
            kind: SpanKind::Internal,
            attributes: SpanAttributes::default(),
            error: None,
        }
    }
}

/// The values that all spans of a run share.
pub(super) struct Trace {
    run: String,
    id: TraceId,
    state: TraceState,
    parent: Option<SpanId>,
    scope: InstrumentationScope,
}

impl Trace {
    /// Part of the trace of `parent`, or else a new trace.
    pub(super) fn new(run: &str, parent: Option<&SpanContext>) -> Self {
        let own = || TraceId::from_hex(&sha256_hex(&[b"trace ", run.as_bytes()])[..32]).unwrap_or(TraceId::INVALID);
        Self {
            run: run.to_owned(),
            id: parent.map_or_else(own, SpanContext::trace_id),
            state: parent.map(|parent| parent.trace_state().clone()).unwrap_or_default(),
            parent: parent.map(SpanContext::span_id),
            scope: InstrumentationScope::builder("overnight")
                .with_version(env!("CARGO_PKG_VERSION"))
                .build(),
        }
    }

    /// The id of a span.
    pub(super) fn id(&self, label: &str, seq: u64) -> SpanId {
        let text = format!("{} {seq} {label}", self.run);
        SpanId::from_hex(&sha256_hex(&[text.as_bytes()])[..16]).unwrap_or(SpanId::INVALID)
    }

    /// The span, as a child of another.
    pub(super) fn span(&self, draft: SpanDraft, within: SpanId) -> SpanData {
        self.placed(draft, within, false)
    }

    /// The span, as a child of the caller's span.
    pub(super) fn root(&self, draft: SpanDraft) -> SpanData {
        self.placed(draft, self.parent.unwrap_or(SpanId::INVALID), self.parent.is_some())
    }

    fn placed(&self, mut draft: SpanDraft, within: SpanId, remote: bool) -> SpanData {
        let status = match draft.error {
            Some(error) => {
                draft.attributes.text("error.type", &error);
                Status::error(error)
            }
            None => Status::Unset,
        };
        SpanData {
            span_context: SpanContext::new(
                self.id,
                self.id(&draft.label, draft.seq),
                TraceFlags::SAMPLED,
                false,
                self.state.clone(),
            ),
            parent_span_id: within,
            parent_span_is_remote: remote,
            span_kind: draft.kind,
            name: draft.name.into(),
            start_time: SystemTime::from(draft.from),
            end_time: SystemTime::from(draft.to),
            attributes: draft.attributes.into(),
            dropped_attributes_count: 0,
            events: SpanEvents::default(),
            links: SpanLinks::default(),
            status,
            instrumentation_scope: self.scope.clone(),
        }
    }
}
