//! Finds the JSON documents in an answer of a model. Pure.

use serde_json::Value;

/// A JSON document in an answer.
#[derive(Clone, Debug, PartialEq)]
pub struct Document<'a> {
    pub value: Value,
    pub text: &'a str,
    /// Whether other text is on its first or last line: the sentence may ask about it, or reject it.
    pub is_in_sentence: bool,
}

/// The JSON documents of an answer, at least one: the whole of it, else each fenced code block that is JSON, else the
/// text from the first `{` to the last `}`.
///
/// # Errors
/// The answer contains no JSON; the error is that of parsing the whole text.
pub fn documents_of(answer: &str) -> Result<Vec<Document<'_>>, serde_json::Error> {
    let answer = answer.trim();
    let of = |text, is_in_sentence| {
        serde_json::from_str(text).map(|value| Document {
            value,
            text,
            is_in_sentence,
        })
    };
    let error = match of(answer, false) {
        Ok(whole) => return Ok(vec![whole]),
        Err(error) => error,
    };
    let fenced: Vec<_> = fenced(answer).filter_map(|text| of(text, false).ok()).collect();
    if !fenced.is_empty() {
        return Ok(fenced);
    }
    let (Some(start), Some(end)) = (answer.find('{'), answer.rfind('}')) else {
        return Err(error);
    };
    let (before, text, after) = (answer.get(..start), answer.get(start..=end), answer.get(end + 1..));
    let last = before.and_then(|before| before.rsplit('\n').next());
    let first = after.and_then(|after| after.split('\n').next());
    let is_in_sentence = [last, first].into_iter().flatten().any(|line| !line.trim().is_empty());
    let inner = text.and_then(|text| of(text, is_in_sentence).ok());
    inner.map(|inner| vec![inner]).ok_or(error)
}

/// The texts of the fenced code blocks.
fn fenced(answer: &str) -> impl Iterator<Item = &str> {
    let mut rest = answer;
    std::iter::from_fn(move || {
        let (_, from) = rest.split_once("```")?;
        let (_, from) = from.split_once('\n')?;
        let (body, after) = from.split_once("```")?;
        rest = after;
        Some(body.trim())
    })
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
