//! Finds the JSON document in an answer of a model. Pure.

use serde_json::Value;

/// The JSON of an answer: bare, in one fenced code block, or with text before or after it.
///
/// # Errors
/// The answer contains no JSON; the error is that of parsing the whole text.
pub fn json_of(answer: &str) -> Result<Value, serde_json::Error> {
    let answer = answer.trim();
    let whole = serde_json::from_str(answer);
    if whole.is_ok() {
        return whole;
    }
    if let Some(value) = fenced(answer) {
        return Ok(value);
    }
    // From the first to the last brace, for an answer with a sentence around the JSON.
    let inner = match (answer.find('{'), answer.rfind('}')) {
        (Some(start), Some(end)) if start < end => serde_json::from_str(&answer[start..=end]),
        _ => return whole,
    };
    inner.or(whole)
}

fn fenced(answer: &str) -> Option<Value> {
    let (_, rest) = answer.split_once("```")?;
    let (_, rest) = rest.split_once('\n')?;
    let (body, _) = rest.split_once("```")?;
    serde_json::from_str(body.trim()).ok()
}
