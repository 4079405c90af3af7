//! Gemini's `streamGenerateContent` as scripted: the chunks of its streams.

pub use super::service::{Answer, Service as Gemini};
use serde_json::{Value, json};

/// The flags of a run that asks this service.
pub fn flags(service: &Gemini) -> [&str; 4] {
    ["--model", "gemini/gemini-2.5-pro", "--base-url", &service.url]
}

/// A reply that only says something.
pub fn says(text: &str) -> Answer {
    Answer::Stream(vec![chunk(json!([{"text": text}]), Some("STOP"), 100)])
}

/// A reply that asks for one call.
pub fn calls(tool: &str, args: &Value) -> Answer {
    let part = json!([{"functionCall": {"name": tool, "args": args}, "thoughtSignature": "c2lnbmVk"}]);
    Answer::Stream(vec![chunk(part, Some("STOP"), 100)])
}

/// One chunk of a stream.
pub fn chunk(parts: Value, finish: Option<&str>, tokens: u64) -> Value {
    let mut candidate = json!({"content": {"role": "model", "parts": parts}, "index": 0});
    if let Some(finish) = finish {
        candidate["finishReason"] = json!(finish);
    }
    json!({
        "candidates": [candidate],
        "usageMetadata": {"promptTokenCount": tokens, "candidatesTokenCount": 10, "totalTokenCount": tokens + 10},
        "modelVersion": "gemini-2.5-pro",
    })
}
