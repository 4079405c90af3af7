//! Finds the JSON document in an answer of a model. Pure.

use serde_json::Value;

/// The JSON of an answer: bare, in one fenced code block, or with text before or after it.
///
/// # Errors
/// The answer contains no JSON; the error is that of parsing the whole text.
pub fn json_of(answer: &str) -> Result<Value, serde_json::Error> {
    document_of(answer).map(|(value, _)| value)
}

/// The JSON of an answer, as in [`json_of`], and its text.
///
/// # Errors
/// As [`json_of`].
pub fn document_of(answer: &str) -> Result<(Value, &str), serde_json::Error> {
    let answer = answer.trim();
    let error = match serde_json::from_str(answer) {
        Ok(whole) => return Ok((whole, answer)),
        Err(error) => error,
    };
    // From the first to the last brace, for an answer with a sentence around the JSON.
    let inner = match (answer.find('{'), answer.rfind('}')) {
        (Some(start), Some(end)) if start < end => answer.get(start..=end),
        _ => None,
    };
    [fenced(answer), inner]
        .into_iter()
        .flatten()
        .find_map(|text| Some((serde_json::from_str(text).ok()?, text)))
        .ok_or(error)
}

fn fenced(answer: &str) -> Option<&str> {
    let (_, rest) = answer.split_once("```")?;
    let (_, rest) = rest.split_once('\n')?;
    let (body, _) = rest.split_once("```")?;
    Some(body.trim())
}

/// The first integer of a JSON document that has more than 64 bits, so that reading it has changed it.
pub fn changed_integer(document: &str) -> Option<&str> {
    let mut rest = document;
    while let Some(at) = rest.find(|c: char| c == '"' || c == '-' || c.is_ascii_digit()) {
        rest = rest.get(at..)?;
        if let Some(text) = rest.strip_prefix('"') {
            rest = after_string(text);
            continue;
        }
        let end = rest
            .find(|c: char| !(c.is_ascii_digit() || matches!(c, '-' | '+' | '.' | 'e' | 'E')))
            .unwrap_or(rest.len());
        let (number, more) = rest.split_at(end);
        let is_integer = !number.contains(['.', 'e', 'E']);
        if is_integer && number.parse::<i64>().is_err() && number.parse::<u64>().is_err() {
            return Some(number);
        }
        rest = more;
    }
    None
}

/// What follows the closing quote of a string.
fn after_string(text: &str) -> &str {
    let mut is_escaped = false;
    for (at, c) in text.char_indices() {
        match c {
            _ if is_escaped => is_escaped = false,
            '\\' => is_escaped = true,
            '"' => return text.get(at + 1..).unwrap_or_default(),
            _ => {}
        }
    }
    ""
}
