//! Finds comparisons in conditions (`when`) that are always true or always false, for example of an `enum` parameter
//! with a text that is not one of its values, or with a status that does not exist. Only `==` and `!=` between a name
//! and a literal are examined; computed values are not.

use super::model::{Parameter, ParameterType};
use crate::diag::diagnostic::list;
use serde_json::Value;
use std::ops::Range;

/// The values that a condition can see in `steps.ID.status`. A failed step ends the run, so `failed` is not among them.
const STATUSES: [&str; 2] = ["passed", "skipped"];

/// A comparison that always has the same result.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settled {
    /// Byte range of the literal.
    pub range: Range<usize>,
    /// What is wrong.
    pub message: String,
    /// What to write instead.
    pub help: String,
}

/// The comparisons of a condition whose result does not depend on any parameter or step.
pub fn settled(text: &str, parameters: &[Parameter]) -> Vec<Settled> {
    let tokens = tokens(text);
    let mut found = Vec::new();
    for (at, (token, _)) in tokens.iter().enumerate() {
        let is_equal = match token {
            Token::Equal => true,
            Token::NotEqual => false,
            Token::Name(_) | Token::Literal(_) | Token::Other => continue,
        };
        let (Some(before), Some(after)) = (at.checked_sub(1), tokens.get(at + 1)) else {
            continue;
        };
        let ends_before = before.checked_sub(1).and_then(|at| tokens.get(at));
        let (path, literal, range) = match (&tokens[before].0, &after.0) {
            (Token::Name(path), Token::Literal(literal)) => (path, literal, after.1.clone()),
            (Token::Literal(literal), Token::Name(path)) => (path, literal, tokens[before].1.clone()),
            _ => continue,
        };
        // Both sides must be whole operands: not the end of `x | lower`, nor the beginning of `x + 1`.
        if !ends_before.is_none_or(|(token, _)| joins(token))
            || !tokens.get(at + 2).is_none_or(|(token, _)| joins(token))
        {
            continue;
        }
        if let Some((values, help)) = excluded(path, literal, parameters) {
            let outcome = if is_equal { "never holds" } else { "always holds" };
            found.push(Settled {
                range,
                message: format!("the comparison {outcome}: {values}"),
                help,
            });
        }
    }
    found
}

/// If the named value never equals the literal: the possible values, and what to write instead.
fn excluded(path: &[String], literal: &Value, parameters: &[Parameter]) -> Option<(String, String)> {
    let parts: Vec<&str> = path.iter().map(String::as_str).collect();
    match parts.as_slice() {
        ["steps", _, "status"] => {
            let known = literal.as_str().is_some_and(|text| STATUSES.contains(&text));
            (!known).then(|| {
                let values =
                    "the status of a step is `passed` or `skipped`; a step that failed ends the run".to_owned();
                let help = "set `allow_failure: true` on the step, and compare its `exit_code`".to_owned();
                (values, help)
            })
        }
        ["steps", _, "exit_code"] => literal.is_string().then(|| {
            let help = "write the number without quotes".to_owned();
            ("an exit code is a number".to_owned(), help)
        }),
        ["steps", _, "output"] => (!literal.is_string()).then(|| {
            let help = "write what it is compared with in quotes".to_owned();
            ("an output is a text".to_owned(), help)
        }),
        [name] => {
            let parameter = parameters.iter().find(|parameter| parameter.name.value == *name)?;
            of_parameter(parameter, literal)
        }
        _ => None,
    }
}

fn of_parameter(parameter: &Parameter, literal: &Value) -> Option<(String, String)> {
    let name = &parameter.name.value;
    if !parameter.choices.is_empty() {
        let shown: Vec<String> = parameter.choices.iter().map(ToString::to_string).collect();
        let shown: Vec<&str> = shown.iter().map(String::as_str).collect();
        let same =
            |choice: &Value| choice == literal || choice.as_f64().is_some() && choice.as_f64() == literal.as_f64();
        return (!parameter.choices.iter().any(same)).then(|| {
            (
                format!("`{name}` can only be {}", list(&shown)),
                "compare it with one of these".to_owned(),
            )
        });
    }
    let fits = match parameter.kind {
        ParameterType::String | ParameterType::Enum | ParameterType::Path => literal.is_string(),
        ParameterType::Number | ParameterType::Integer => literal.is_number() || literal.is_boolean(),
        ParameterType::Boolean => literal.is_boolean() || literal.is_number(),
        ParameterType::List => false,
    };
    (!fits).then(|| {
        let kind = parameter.kind.as_str();
        (
            format!("`{name}` is of the type `{kind}`"),
            match parameter.kind {
                ParameterType::Boolean => format!("write `{name}` or `not {name}`"),
                ParameterType::List => format!("write `\"TEXT\" in {name}`"),
                ParameterType::Number | ParameterType::Integer => "write the number without quotes".to_owned(),
                ParameterType::String | ParameterType::Enum | ParameterType::Path => {
                    "write what it is compared with in quotes".to_owned()
                }
            },
        )
    })
}

#[derive(Debug)]
enum Token {
    /// A name with the parts after its dots and in its brackets (`steps["a"].output`).
    Name(Vec<String>),
    /// A text, a number, `true` or `false`.
    Literal(Value),
    Equal,
    NotEqual,
    /// Anything else, such as `(` or `+`.
    Other,
}

/// Whether a token separates whole conditions, such as `and`.
fn joins(token: &Token) -> bool {
    matches!(token, Token::Name(path) if matches!(path.as_slice(), [word] if ["and", "or", "not", "if", "else"].contains(&word.as_str())))
}

/// The tokens of an expression, each with its byte range. Parentheses are left out, because they do not change which
/// operands are next to `==`; except those of a call, whose name is not an operand.
fn tokens(text: &str) -> Vec<(Token, Range<usize>)> {
    let mut found: Vec<(Token, Range<usize>)> = Vec::new();
    let bytes = text.as_bytes();
    let mut at = 0;
    while let Some(&byte) = bytes.get(at) {
        let start = at;
        let token = match byte {
            _ if byte.is_ascii_whitespace() => {
                at += 1;
                continue;
            }
            b'"' | b'\'' => {
                let (value, end) = quoted(text, at);
                at = end;
                value.map_or(Token::Other, |value| Token::Literal(Value::String(value)))
            }
            b'=' | b'!' if bytes.get(at + 1) == Some(&b'=') => {
                at += 2;
                if byte == b'=' { Token::Equal } else { Token::NotEqual }
            }
            _ if byte.is_ascii_digit() => {
                at += length(text, at, |byte| byte.is_ascii_digit() || byte == b'.');
                serde_json::from_str(text.get(start..at).unwrap_or_default()).map_or(Token::Other, Token::Literal)
            }
            _ if byte.is_ascii_alphabetic() || byte == b'_' => {
                let (path, end) = path(text, at);
                at = end;
                match path.as_slice() {
                    [word] if word.eq_ignore_ascii_case("true") => Token::Literal(Value::Bool(true)),
                    [word] if word.eq_ignore_ascii_case("false") => Token::Literal(Value::Bool(false)),
                    _ => Token::Name(path),
                }
            }
            _ => {
                at += text
                    .get(at..)
                    .and_then(|rest| rest.chars().next())
                    .map_or(1, char::len_utf8);
                Token::Other
            }
        };
        found.push((token, start..at));
    }
    found
}

fn length(text: &str, from: usize, fits: impl Fn(u8) -> bool) -> usize {
    let rest = text.as_bytes().get(from..).unwrap_or_default();
    rest.iter().take_while(|byte| fits(**byte)).count()
}

/// The value of a quoted text, and the position after it. A text with escapes has the value `None`, because escapes are
/// not decoded here.
fn quoted(text: &str, from: usize) -> (Option<String>, usize) {
    let bytes = text.as_bytes();
    let quote = bytes.get(from).copied().unwrap_or_default();
    let mut at = from + 1;
    let mut escaped = false;
    while let Some(&byte) = bytes.get(at).filter(|byte| **byte != quote) {
        escaped |= byte == b'\\';
        at += if byte == b'\\' { 2 } else { 1 };
    }
    let inner = text.get(from + 1..at).unwrap_or_default();
    ((!escaped).then(|| inner.to_owned()), (at + 1).min(text.len()))
}

/// A name with its parts, and the position after it.
fn path(text: &str, from: usize) -> (Vec<String>, usize) {
    let is_part = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
    let bytes = text.as_bytes();
    let mut at = from + length(text, from, is_part);
    let mut parts = vec![text.get(from..at).unwrap_or_default().to_owned()];
    loop {
        match (bytes.get(at), bytes.get(at + 1)) {
            (Some(b'.'), Some(next)) if is_part(*next) => {
                let end = at + 1 + length(text, at + 1, is_part);
                parts.push(text.get(at + 1..end).unwrap_or_default().to_owned());
                at = end;
            }
            (Some(b'['), Some(b'"' | b'\'')) => {
                let (Some(part), end) = quoted(text, at + 1) else {
                    return (parts, at);
                };
                if bytes.get(end) != Some(&b']') {
                    return (parts, at);
                }
                parts.push(part);
                at = end + 1;
            }
            _ => return (parts, at),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Parameter, ParameterType, settled};
    use crate::diag::{SourceFiles, Span, Spanned};
    use serde_json::Value;

    /// A span for values whose position does not matter.
    fn spot() -> Span {
        let mut files = SourceFiles::new();
        Span {
            file: files.add("recipe", "x"),
            start: 0,
            end: 0,
        }
    }

    fn parameter(name: &str, kind: ParameterType, choices: &[&str]) -> Parameter {
        Parameter {
            name: Spanned {
                value: name.to_owned(),
                span: spot(),
            },
            kind,
            description: String::new(),
            default: None,
            choices: choices.iter().map(|text| Value::from(*text)).collect(),
        }
    }

    #[test]
    fn comparisons_that_no_value_satisfies_are_found() {
        let parameters = [
            parameter("kind", ParameterType::Enum, &["bug", "feature"]),
            parameter("deep", ParameterType::Boolean, &[]),
            parameter("count", ParameterType::Integer, &[]),
            parameter("title", ParameterType::String, &[]),
        ];
        for (text, literals) in [
            ("kind == \"bugs\"", &["\"bugs\""][..]),
            ("'bugs' == kind and deep", &["'bugs'"]),
            ("kind != \"docs\" or kind == \"bug\"", &["\"docs\""]),
            ("deep == \"true\"", &["\"true\""]),
            ("count == \"3\"", &["\"3\""]),
            ("title == 3", &["3"]),
            ("steps.a.status == \"failed\"", &["\"failed\""]),
            ("steps[\"a-b\"].status == 'failure'", &["'failure'"]),
            ("steps.a.exit_code == \"0\"", &["\"0\""]),
            ("not steps.a.output == 1", &["1"]),
            ("kind == \"bug\"", &[]),
            ("kind | upper == \"BUG\"", &[]),
            ("\"BUG\" == kind | upper", &[]),
            ("title ~ kind == \"x\"", &[]),
            ("deep == true and count == 3 and title == \"3\"", &[]),
            ("steps.a.status == \"skipped\" and steps.a.exit_code != 0", &[]),
            ("steps.a.output == \"yes\" and input.kind == \"bugs\"", &[]),
            ("kind in [\"bugs\"]", &[]),
            ("title == \"a\\\"b\" and kind == none", &[]),
        ] {
            let found = settled(text, &parameters);
            let found: Vec<&str> = found.iter().map(|one| &text[one.range.clone()]).collect();
            assert_eq!(found, literals, "{text}");
        }
    }
}
