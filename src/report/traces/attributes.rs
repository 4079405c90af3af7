//! Span attributes: their names, from the GenAI semantic conventions where those exist, and their length limits.

use crate::base::call::ExitInfo;
use crate::base::message::{StopReason, Usage};
use crate::base::model_name::is_played;
use opentelemetry::{Array, KeyValue, StringValue, Value};

/// Limit of a text, in bytes. A model can write a name of any length.
const LONGEST: usize = 256;

/// Attribute names with values.
#[derive(Default)]
pub(super) struct SpanAttributes(Vec<KeyValue>);

impl From<SpanAttributes> for Vec<KeyValue> {
    fn from(attributes: SpanAttributes) -> Self {
        attributes.0
    }
}

/// The model that was asked.
pub(super) struct Requested<'a> {
    provider: &'a str,
    pub(super) model: &'a str,
}

impl<'a> Requested<'a> {
    /// From `PROVIDER/NAME`. For a script, the id contains a file name, so the name in the reply is used.
    pub(super) fn of(id: &'a str, answered: &'a str) -> Self {
        if is_played(id) {
            let provider = id.split(':').next().unwrap_or_default();
            let model = if answered.is_empty() || answered == id {
                provider
            } else {
                answered
            };
            return Self { provider, model };
        }
        let (vendor, model) = id.split_once('/').unwrap_or(("", id));
        let provider = match vendor {
            "gemini" => "gcp.gemini",
            "openai-responses" => "openai",
            other => other,
        };
        Self {
            provider,
            model: clip(model),
        }
    }
}

impl SpanAttributes {
    pub(super) fn text(&mut self, name: &'static str, value: &str) {
        self.0.push(KeyValue::new(name, clip(value).to_owned()));
    }

    pub(super) fn flag(&mut self, name: &'static str, value: bool) {
        self.0.push(KeyValue::new(name, value));
    }

    pub(super) fn number(&mut self, name: &'static str, value: u64) {
        self.0
            .push(KeyValue::new(name, i64::try_from(value).unwrap_or(i64::MAX)));
    }

    pub(super) fn list(&mut self, name: &'static str, values: Vec<String>) {
        let values: Vec<StringValue> = values.into_iter().map(StringValue::from).collect();
        self.0.push(KeyValue::new(name, Value::Array(Array::String(values))));
    }

    pub(super) fn extend(&mut self, more: SpanAttributes) {
        self.0.extend(more.0);
    }

    /// The attributes of every model request and every agent.
    pub(super) fn operation(&mut self, name: &str, requested: &Requested<'_>, run: &str) {
        self.text("gen_ai.operation.name", name);
        self.text("gen_ai.provider.name", requested.provider);
        self.text("gen_ai.request.model", requested.model);
        self.text("gen_ai.conversation.id", run);
    }

    pub(super) fn usage(&mut self, usage: &Usage) {
        for (name, value) in [
            ("gen_ai.usage.input_tokens", usage.input),
            ("gen_ai.usage.output_tokens", usage.output),
            ("gen_ai.usage.cache_read.input_tokens", usage.cached),
            ("gen_ai.usage.cache_creation.input_tokens", usage.cache_write),
            ("gen_ai.usage.reasoning.output_tokens", usage.reasoning),
        ] {
            self.number(name, value);
        }
    }

    /// In US dollars; none when no price is known.
    pub(super) fn cost(&mut self, micros: Option<u64>) {
        if let Some(micros) = micros {
            self.0.push(KeyValue::new("overnight.cost.usd", micros as f64 / 1e6));
        }
    }

    pub(super) fn finish(&mut self, stop: &StopReason) {
        let reason = match stop {
            StopReason::End => "stop",
            StopReason::Calls => "tool_call",
            StopReason::Length { .. } => "length",
            StopReason::Paused => "pause",
            StopReason::Unknown { reason } => reason.as_str(),
            StopReason::Refused { .. } => "content_filter",
        };
        self.list("gen_ai.response.finish_reasons", vec![reason.to_owned()]);
    }

    /// How a command ended, if there was one.
    pub(super) fn exit(&mut self, exit: Option<&ExitInfo>) {
        if let Some(code) = exit.and_then(|exit| exit.code) {
            self.0.push(KeyValue::new("process.exit.code", i64::from(code)));
        }
    }
}

/// The first [`LONGEST`] bytes of a text, at most.
pub(super) fn clip(text: &str) -> &str {
    &text[..text.floor_char_boundary(LONGEST)]
}
