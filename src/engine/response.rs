//! Validates the final answer against its JSON Schema, and builds the message to the model if it does not match. Pure.

use crate::base::answer::{Document, changed_integer, documents_of};
use crate::base::secret::shortened;
use serde_json::Value;

/// Upper limit for the errors that the message lists.
const MAX_ERRORS: usize = 10;

/// Characters of a number that a message shows.
const NUMBER: usize = 80;

/// Whether JSON inside a sentence is an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InSentence {
    Refused,
    Accepted,
}

/// Extracts the JSON of an answer that matches `schema`.
///
/// The answer may be bare JSON, or JSON with text around it, as [`documents_of`] finds it. Of several documents one may
/// match.
///
/// # Errors
/// The schema errors, or one error if the answer contains no JSON, several documents that match, or JSON in a sentence.
pub fn judge(answer: &str, schema: &Value, in_sentence: InSentence) -> Result<Value, Vec<String>> {
    let documents = documents_of(answer).map_err(|error| vec![format!("the answer is not JSON: {error}")])?;
    if in_sentence == InSentence::Refused && documents.iter().any(|document| document.is_in_sentence) {
        return Err(vec![
            "the JSON is inside a sentence, which may say something else".to_owned(),
        ]);
    }
    let mut found: Option<Value> = None;
    let mut errors = Vec::new();
    for document in documents {
        match fits(document, schema) {
            Err(wrong) => errors = wrong,
            Ok(value) if found.as_ref().is_some_and(|other| *other != value) => {
                return Err(vec![
                    "the answer contains several different JSON documents that match the schema".to_owned(),
                ]);
            }
            Ok(value) => found = Some(value),
        }
    }
    found.ok_or(errors)
}

fn fits(document: Document<'_>, schema: &Value) -> Result<Value, Vec<String>> {
    let Document { value, text, .. } = document;
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
            "Here it is:\n\n{\n\"summary\": \"x\"\n}\n\nDone.",
            "The log says:\n```\n{\"level\": 3}\n```\nSo:\n```json\n{\"summary\": \"x\"}\n```",
            "```\n{\"summary\": \"x\"}\n```\nOnce more:\n```\n{\"summary\": \"x\"}\n```",
        ] {
            assert_eq!(
                judge(answer, &schema, InSentence::Refused),
                Ok(json!({"summary": "x"})),
                "{answer}"
            );
        }
    }

    #[test]
    fn it_must_be_clear_which_json_is_the_answer() {
        let schema =
            json!({"type": "object", "required": ["kind"], "properties": {"kind": {"enum": ["bug", "question"]}}});
        let two =
            "They write:\n```json\n{\"kind\": \"question\"}\n```\nThat is wrong:\n```json\n{\"kind\": \"bug\"}\n```";
        for in_sentence in [InSentence::Refused, InSentence::Accepted] {
            let errors = judge(two, &schema, in_sentence).unwrap_err();
            assert!(errors[0].contains("several different JSON documents"), "{errors:?}");
        }
        let asks = "I cannot tell. Should I answer {\"kind\": \"bug\"}, or do you give me the log first?";
        assert!(judge(asks, &schema, InSentence::Refused).unwrap_err()[0].contains("inside a sentence"));
        assert_eq!(judge(asks, &schema, InSentence::Accepted), Ok(json!({"kind": "bug"})));
    }

    #[test]
    fn an_integer_that_would_change_is_an_error() {
        let schema = json!({"type": "object"});
        let large = "123456789012345678901234567890";
        for answer in [
            format!("{{\"n\": {large}}}"),
            format!("Here: {{\"n\": [1, -{large}]}}."),
        ] {
            let errors = judge(&answer, &schema, InSentence::Accepted).unwrap_err();
            assert!(errors[0].contains(large) && errors[0].contains("64 bits"), "{errors:?}");
        }
        for exact in [
            "18446744073709551615",
            "-9223372036854775808",
            "1e30",
            "\"\\\"123456789012345678901234567890\"",
        ] {
            assert!(
                judge(&format!("{{\"n\": {exact}}}"), &schema, InSentence::Accepted).is_ok(),
                "{exact}"
            );
        }
    }

    #[test]
    fn errors_name_the_place() {
        let schema = json!({"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n", "m"]});
        let errors = judge("{\"n\": \"one\"}", &schema, InSentence::Accepted).unwrap_err();
        assert_eq!(errors.len(), 2);
        assert!(errors.iter().any(|error| error.starts_with("/n: ")), "{errors:?}");
        assert!(judge("sorry", &schema, InSentence::Accepted).unwrap_err()[0].starts_with("the answer is not JSON"));
    }
}
