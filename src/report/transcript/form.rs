//! The data model of the parts of ATIF v1.7 that are written, field by field.

use jiff::Timestamp;
use serde::Serialize;
use serde_json::Value;

/// Additional data, under one name, for which the format has no field.
#[derive(Serialize)]
pub(super) struct Extra {
    pub(super) overnight: Value,
}

/// The document.
#[derive(Serialize)]
pub(super) struct Trajectory {
    pub(super) schema_version: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) session_id: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) trajectory_id: Option<String>,
    pub(super) agent: Agent,
    pub(super) steps: Vec<TranscriptStep>,
    pub(super) final_metrics: FinalMetrics,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) extra: Option<Extra>,
}

#[derive(Serialize)]
pub(super) struct Agent {
    pub(super) name: &'static str,
    pub(super) version: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) model_name: Option<String>,
    /// In the format of OpenAI's function tools.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) tool_definitions: Option<Vec<Value>>,
}

#[derive(Clone, Copy, PartialEq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Source {
    System,
    User,
    Agent,
}

/// One message. The fields from `model_name` to `metrics` are only for the agent's messages.
#[derive(Serialize)]
pub(super) struct TranscriptStep {
    /// From 1, without gaps.
    pub(super) step_id: usize,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) timestamp: Option<String>,
    pub(super) source: Source,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) model_name: Option<String>,
    pub(super) message: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) reasoning_content: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) tool_calls: Option<Vec<Call>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) observation: Option<Observation>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) metrics: Option<Metrics>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) llm_call_count: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) extra: Option<Extra>,
}

impl TranscriptStep {
    /// A step with only a message. `extra` may be null.
    pub(super) fn plain(source: Source, at: Option<Timestamp>, message: String, extra: Value) -> Self {
        Self {
            step_id: 0,
            // Older ISO 8601 parsers require exactly three or six fractional digits.
            timestamp: at.map(|at| at.strftime("%Y-%m-%dT%H:%M:%S%.3fZ").to_string()),
            source,
            model_name: None,
            message,
            reasoning_content: None,
            tool_calls: None,
            observation: None,
            metrics: None,
            llm_call_count: None,
            extra: super::extra(extra),
        }
    }
}

#[derive(Serialize)]
pub(super) struct Call {
    pub(super) tool_call_id: String,
    pub(super) function_name: String,
    pub(super) arguments: Value,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) extra: Option<Extra>,
}

#[derive(Serialize)]
pub(super) struct Observation {
    pub(super) results: Vec<Outcome>,
}

impl Observation {
    /// One result. `call`, if set, is a call of the same step.
    pub(super) fn of(call: Option<String>, content: String, extra: Option<Extra>) -> Self {
        Self {
            results: vec![Outcome {
                source_call_id: call,
                content,
                extra,
            }],
        }
    }
}

#[derive(Serialize)]
pub(super) struct Outcome {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) source_call_id: Option<String>,
    pub(super) content: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) extra: Option<Extra>,
}

#[derive(Serialize)]
pub(super) struct Metrics {
    /// Includes cached ones.
    pub(super) prompt_tokens: u64,
    pub(super) completion_tokens: u64,
    pub(super) cached_tokens: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) cost_usd: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) extra: Option<Extra>,
}

#[derive(Serialize)]
pub(super) struct FinalMetrics {
    pub(super) total_prompt_tokens: u64,
    pub(super) total_completion_tokens: u64,
    pub(super) total_cached_tokens: u64,
    pub(super) total_cost_usd: f64,
    pub(super) total_steps: usize,
}
