//! Responses in each wire's stream format: good, incomplete, failing, and complete but unusable.

use super::faults::Ends;
use crate::provider::ProviderClass::{Blocked, Unusable};
use crate::provider::wire::Wire;

/// A complete good response in each wire's stream format.
pub fn good(wire: Wire) -> String {
    match wire.vendor() {
        "gemini" => {
            r#"data: {"candidates":[{"content":{"parts":[{"text":"fine"}]},"finishReason":"STOP"}]}"#.to_owned()
                + "\n\n"
        }
        "openai" => {
            r#"data: {"choices":[{"index":0,"delta":{"content":"fine"},"finish_reason":"stop"}]}"#.to_owned()
                + "\n\ndata: [DONE]\n\n"
        }
        "openai-responses" => format!(
            "data: {}\n\n",
            r#"{"type":"response.completed","response":{"status":"completed","output":[{"type":"message","content":[{"type":"output_text","text":"fine"}]}]}}"#
        ),
        _ => anthropic(r#"{"type":"text","text":"fine"}"#, "end_turn"),
    }
}

fn anthropic(block: &str, stop: &str) -> String {
    format!(
        "data: {{\"type\":\"message_start\",\"message\":{{}}}}\n\ndata: {{\"type\":\"content_block_start\",\"index\":0,\"content_block\":{block}}}\n\n\
         data: {{\"type\":\"content_block_stop\",\"index\":0}}\n\ndata: {{\"type\":\"message_delta\",\"delta\":{{\"stop_reason\":\"{stop}\"}}}}\n\n\
         data: {{\"type\":\"message_stop\"}}\n\n"
    )
}

/// The beginning of a response that contains text and does not end.
pub fn half(wire: Wire) -> String {
    match wire.vendor() {
        "gemini" => r#"data: {"candidates":[{"content":{"parts":[{"text":"half"}]}}]}"#.to_owned() + "\n\n",
        "openai" => r#"data: {"choices":[{"index":0,"delta":{"content":"half"}}]}"#.to_owned() + "\n\n",
        "openai-responses" => r#"data: {"type":"response.output_text.delta","delta":"half"}"#.to_owned() + "\n\n",
        _ => {
            r#"data: {"type":"content_block_start","index":0,"content_block":{"type":"text","text":"half"}}"#.to_owned()
                + "\n\n"
        }
    }
}

/// An error as this wire reports it inside a stream.
pub fn error_inside(wire: Wire) -> String {
    let error = match wire.vendor() {
        "gemini" => r#"{"error":{"code":503,"message":"overloaded","status":"UNAVAILABLE"}}"#,
        "openai" => r#"{"error":{"message":"server error","type":"server_error"}}"#,
        "openai-responses" => {
            r#"{"type":"response.failed","response":{"status":"failed","error":{"code":"server_error","message":"failed"}}}"#
        }
        _ => r#"{"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}"#,
    };
    format!("data: {error}\n\n")
}

/// Responses that are complete but unusable.
pub fn odd(wire: Wire) -> [(String, Ends); 4] {
    let gemini = |parts: &str, reason: &str| {
        format!("data: {{\"candidates\":[{{\"content\":{{\"parts\":[{parts}]}},\"finishReason\":\"{reason}\"}}]}}\n\n")
    };
    let chat = |delta: &str, reason: &str| {
        format!(
            "data: {{\"choices\":[{{\"index\":0,\"delta\":{delta},\"finish_reason\":\"{reason}\"}}]}}\n\ndata: [DONE]\n\n"
        )
    };
    let responses = |status: &str, output: &str, reason: &str| {
        format!(
            "data: {{\"type\":\"response.{status}\",\"response\":{{\"status\":\"{status}\",\"output\":[{output}],\"incomplete_details\":{{\"reason\":\"{reason}\"}}}}}}\n\n"
        )
    };
    let said = r#"{"type":"message","content":[{"type":"output_text","text":"half"}]}"#;
    let (empty, malformed, blocked, length) = match wire.vendor() {
        "gemini" => (
            gemini("", "STOP"),
            gemini("", "MALFORMED_FUNCTION_CALL"),
            gemini("", "SAFETY"),
            gemini(r#"{"text":"half"}"#, "MAX_TOKENS"),
        ),
        "openai" => (
            chat("{}", "stop"),
            chat(
                r#"{"tool_calls":[{"index":0,"id":"a","function":{"name":"x","arguments":"{\"a\":"}}]}"#,
                "tool_calls",
            ),
            chat("{}", "content_filter"),
            chat(r#"{"content":"half"}"#, "length"),
        ),
        "openai-responses" => (
            responses("completed", "", ""),
            responses(
                "completed",
                r#"{"type":"function_call","name":"x","call_id":"a","arguments":"{"}"#,
                "",
            ),
            responses("incomplete", "", "content_filter"),
            responses("incomplete", said, "max_output_tokens"),
        ),
        _ => (
            anthropic(r#"{"type":"text","text":""}"#, "end_turn"),
            anthropic(r#"{"type":"tool_use","id":"a","name":"","input":{}}"#, "tool_use"),
            anthropic(r#"{"type":"text","text":"x"}"#, "refusal"),
            anthropic(r#"{"type":"text","text":"half"}"#, "max_tokens"),
        ),
    };
    [
        (empty, Ends::Empty),
        (malformed, Ends::In(Unusable)),
        (blocked, Ends::In(Blocked)),
        (length, Ends::Length),
    ]
}
