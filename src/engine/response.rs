//! Validates the final answer against its JSON Schema, and builds the message to the model if it does not match. Pure.

use crate::base::answer::{changed_integer, document_of};
use crate::base::secret::shortened;
use serde_json::Value;

/// Upper limit for the errors that the message lists.
const MAX_ERRORS: usize = 10;

/// Characters of a number that a message shows.
const NUMBER: usize = 80;

/// Extracts the JSON of an answer that matches `schema`.
///
/// The answer may be bare JSON, JSON in one fenced code block, or JSON with text before or after it.
///
/// # Errors
/// The schema errors, or one error if the answer contains no JSON.
pub fn judge(answer: &str, schema: &Value) -> Result<Value, Vec<String>> {
    let (value, text) = document_of(answer).map_err(|error| vec![format!("the answer is not JSON: {error}")])?;
    if let Some(number) = changed_integer(text) {
        return Err(vec![format!(
            "the integer {} has more than 64 bits and cannot be kept as it is: write it as a string if the schema allows, \
             or as a smaller number",
            shortened(number, NUMBER)
        )]);
    }
    let validator =
        jsonschema::validator_for(schema).map_err(|error| vec![format!("the schema cannot be used: {error}")])?;
    let errors: Vec<String> = validator
        .iter_errors(&value)
        .take(MAX_ERRORS)
        .map(|error| {
            let place = error.instance_path().to_string();
            let place = if place.is_empty() {
                "the answer".to_owned()
            } else {
                place
            };
            format!("{place}: {error}")
        })
        .collect();
    if errors.is_empty() { Ok(value) } else { Err(errors) }
}

/// The message to the model when its answer does not match; `printed`: the tool of a call that it wrote as text
/// instead.
pub fn repair(errors: &[String], schema: &Value, printed: Option<&str>) -> String {
    let called = printed
        .map(|tool| format!("You wrote a call of `{tool}` as text; nothing was called. "))
        .unwrap_or_default();
    format!(
        "{called}Your final answer does not fit the required JSON Schema:\n- {}\n\nThe schema is:\n{schema}\n\n\
         Answer again with the JSON document alone: no other text, no code fence.",
        errors.join("\n- ")
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn json_is_found_bare_fenced_and_inside_text() {
        let schema = json!({"type": "object", "required": ["summary"]});
        for answer in [
            "{\"summary\": \"x\"}",
            "```json\n{\"summary\": \"x\"}\n```",
            "Here it is:\n```\n{\"summary\": \"x\"}\n```\nDone.",
            "Result: {\"summary\": \"x\"}.",
        ] {
            assert_eq!(judge(answer, &schema), Ok(json!({"summary": "x"})), "{answer}");
        }
    }

    #[test]
    fn an_integer_that_would_change_is_an_error() {
        let schema = json!({"type": "object"});
        let large = "123456789012345678901234567890";
        for answer in [
            format!("{{\"n\": {large}}}"),
            format!("Here: {{\"n\": [1, -{large}]}}."),
        ] {
            let errors = judge(&answer, &schema).unwrap_err();
            assert!(errors[0].contains(large) && errors[0].contains("64 bits"), "{errors:?}");
        }
        for exact in [
            "18446744073709551615",
            "-9223372036854775808",
            "1e30",
            "\"\\\"123456789012345678901234567890\"",
        ] {
            assert!(judge(&format!("{{\"n\": {exact}}}"), &schema).is_ok(), "{exact}");
        }
    }

    #[test]
    fn errors_name_the_place() {
        let schema = json!({"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n", "m"]});
        let errors = judge("{\"n\": \"one\"}", &schema).unwrap_err();
        assert_eq!(errors.len(), 2);
        assert!(errors.iter().any(|error| error.starts_with("/n: ")), "{errors:?}");
        assert!(judge("sorry", &schema).unwrap_err()[0].starts_with("the answer is not JSON"));
    }
}
