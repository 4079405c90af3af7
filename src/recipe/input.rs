//! Reads the input of a run in the format that the recipe declares. Pure: the caller reads the file.

use super::plan::InputFormat;
use crate::base::quote::counted;
use crate::diag::reader::Problems;
use crate::diag::{self, Diagnostic, Shape, SourceFiles, SourceId, Span, YamlNode, json_lines, not_json};
use serde_json::Value;
use std::borrow::Cow;

/// Limit of an input of format `text`, in bytes: what one template may render.
const MAX_TEXT: usize = 4 << 20;
/// Limit of the lines of an input of format `jsonl`.
pub const MAX_LINES: usize = 100_000;
/// Limit of reported lines with a problem.
const MAX_LISTED: usize = 20;

/// An input that was read.
#[derive(Clone, Debug, Default)]
pub struct ReadInput {
    pub value: Value,
    /// The position of the whole input; for JSON Lines, of each element of the list.
    pub lines: Vec<Span>,
}

/// The input in a file of `files`. Every problem is added to `problems`, with its position in that file.
pub fn read(files: &SourceFiles, file: SourceId, format: InputFormat, problems: &mut Problems) -> Option<ReadInput> {
    let text = files.text(file);
    let whole = |value| ReadInput {
        value,
        lines: vec![files.whole(file)],
    };
    match format {
        InputFormat::Json => match serde_json::from_str(text) {
            Ok(value) => Some(whole(value)),
            Err(error) => {
                let problem = not_json(files.whole(file), text, &error);
                problems.push(problem.help(match looks_like_lines(text) {
                    true => "--input takes one JSON document; for one object per line write `input: { format: jsonl }` in the recipe",
                    false => "--input takes one JSON document; for other text write `input: { format: text }` in the recipe",
                }));
                None
            }
        },
        InputFormat::Jsonl => lines(files, file, problems),
        InputFormat::Text if text.len() > MAX_TEXT => {
            let message = format!("the text has {} bytes", text.len());
            let problem = Diagnostic::error("too-large", files.whole(file).point(), message);
            problems.push(problem.help(format!(
                "at most {MAX_TEXT} bytes are accepted: give only its end, for example with `tail -c {MAX_TEXT}`"
            )));
            None
        }
        InputFormat::Text => Some(whole(Value::String(text.to_owned()))),
    }
}

/// Whether the first line alone is a JSON document and more text follows.
fn looks_like_lines(text: &str) -> bool {
    let mut lines = text.lines().filter(|line| !line.trim().is_empty());
    let first = lines.next().unwrap_or_default();
    lines.next().is_some() && serde_json::from_str::<Value>(first).is_ok()
}

fn lines(files: &SourceFiles, file: SourceId, problems: &mut Problems) -> Option<ReadInput> {
    let before = problems.len();
    let (mut values, mut places) = (Vec::new(), Vec::new());
    for (span, content) in json_lines(files, file) {
        if values.len() >= MAX_LINES {
            let problem = Diagnostic::error("too-large", span, format!("the input has more than {MAX_LINES} lines"));
            problems.push(problem.help("split it, or run one job for each line with `inputs` in a batch manifest"));
            break;
        }
        match serde_json::from_str::<Value>(content) {
            Ok(value @ Value::Object(_)) => {
                values.push(value);
                places.push(span);
            }
            Ok(other) => {
                let message = format!("a line of JSON Lines must be an object, and this is {}", kind(&other));
                problems.push(Diagnostic::error("wrong-type", span, message).help("write one JSON object per line"));
            }
            Err(error) => {
                problems.push(not_json(span, content, &error).help("write one JSON object per line"));
            }
        }
        if problems.len() - before >= MAX_LISTED {
            break;
        }
    }
    (problems.len() == before).then_some(ReadInput {
        value: Value::Array(values),
        lines: places,
    })
}

/// The position of a value in a JSON text: a scalar, or the beginning of a list or an object. `path` is its JSON
/// pointer. If the value is not found, the beginning of the text.
pub fn place_of(files: &SourceFiles, text: Span, path: &str) -> Span {
    let mut own = SourceFiles::new();
    let id = own.add("", files.slice(text));
    let found = match path.is_empty() {
        true => None,
        // JSON is YAML, except for details that only lose the position here.
        false => diag::parse(&own, id).ok().and_then(|root| below(&root, path)),
    };
    found.map_or(text.point(), |span| Span {
        start: text.start + span.start,
        end: text.start + span.end,
        ..text
    })
}

fn below(root: &YamlNode, path: &str) -> Option<Span> {
    let mut node = root;
    for part in path.split('/').skip(1) {
        let part = part.replace("~1", "/").replace("~0", "~");
        node = match &node.shape {
            Shape::List(items) => items.get(part.parse::<usize>().ok()?)?,
            _ => node.get(&part)?,
        };
    }
    Some(match &node.shape {
        Shape::Scalar(_) => node.span,
        _ => node.span.point(),
    })
}

/// The type of a value, for messages.
pub fn kind(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "true or false",
        Value::Number(_) => "a number",
        Value::String(_) => "a string",
        Value::Array(_) => "a list",
        Value::Object(_) => "an object",
    }
}

/// Converts a value to the format. For JSON Lines, an object becomes a list of one, because a job of a batch gets one
/// line.
///
/// # Errors
/// What is wrong with the value, in one sentence.
pub fn of_format(value: &Value, format: InputFormat) -> Result<Cow<'_, Value>, String> {
    match (format, value) {
        (InputFormat::Json, _) => Ok(Cow::Borrowed(value)),
        (InputFormat::Jsonl, Value::Object(_)) => Ok(Cow::Owned(Value::Array(vec![value.clone()]))),
        (InputFormat::Jsonl, Value::Array(items)) if items.iter().all(Value::is_object) => Ok(Cow::Borrowed(value)),
        (InputFormat::Text, Value::String(text)) if text.len() <= MAX_TEXT => Ok(Cow::Borrowed(value)),
        (InputFormat::Text, Value::String(text)) => {
            Err(format!("the text has {} bytes, more than {MAX_TEXT}", text.len()))
        }
        (InputFormat::Jsonl, _) => Err(format!(
            "the recipe takes a list of objects, but the input is {}",
            kind(value)
        )),
        (InputFormat::Text, _) => Err(format!("the recipe takes text, but the input is {}", kind(value))),
    }
}

/// The input as a program reads it from a file: the text itself, one object per line, or one JSON document.
pub fn written(value: &Value, format: InputFormat) -> String {
    match (format, value) {
        (InputFormat::Text, Value::String(text)) => text.clone(),
        (InputFormat::Jsonl, Value::Array(items)) => items.iter().map(|item| format!("{item}\n")).collect(),
        _ => format!("{value}\n"),
    }
}

/// A short description of the input, for people.
pub fn described(value: Option<&Value>, format: InputFormat) -> String {
    match (format, value) {
        (InputFormat::Text, Some(Value::String(text))) => format!("text, {}", counted(text.len(), "byte")),
        (InputFormat::Jsonl, Some(Value::Array(items))) => format!("JSON Lines, {}", counted(items.len(), "object")),
        _ => format.as_str().to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn told(text: &str, format: InputFormat) -> Result<ReadInput, Vec<String>> {
        let mut files = SourceFiles::new();
        let file = files.add("in", text);
        let mut problems = Vec::new();
        let read = read(&files, file, format, &mut problems);
        let one = |problem: &Diagnostic| {
            assert!(problem.help.is_some(), "{problem:?}");
            problem
                .span
                .map_or_else(String::new, |span| files.place(span).to_string())
        };
        read.ok_or_else(|| problems.iter().map(one).collect())
    }

    #[test]
    fn each_format_is_read_as_what_it_is() {
        assert_eq!(told("{\"a\": 1}\n", InputFormat::Json).unwrap().value, json!({"a": 1}));
        let read = told("{\"a\": 1}\n\n{\"a\": 2}\r\n", InputFormat::Jsonl).unwrap();
        assert_eq!((read.value, read.lines.len()), (json!([{"a": 1}, {"a": 2}]), 2));
        assert_eq!(told("", InputFormat::Jsonl).unwrap().value, json!([]));
        assert_eq!(
            told("<a>&\n", InputFormat::Text).unwrap().value,
            json!("<a>&\n"),
            "nothing is parsed"
        );
    }

    #[test]
    fn every_bad_line_is_named() {
        let bad = told("{\"a\": 1}\n[1]\nö x\n{\"b\":\n", InputFormat::Jsonl).unwrap_err();
        assert_eq!(bad, ["in:2:1", "in:3:1", "in:4:5"]);
        assert_eq!(
            told("{\"a\": 1}\n{\"a\": 2}\n", InputFormat::Json).unwrap_err(),
            ["in:2:1"]
        );
        assert_eq!(
            told(&"x".repeat(MAX_TEXT + 1), InputFormat::Text).unwrap_err(),
            ["in:1:1"]
        );
        assert!(told(&"{}\n".repeat(MAX_LINES + 1), InputFormat::Jsonl).is_err());
        assert_eq!(
            told(&"x\n".repeat(100), InputFormat::Jsonl).unwrap_err().len(),
            MAX_LISTED
        );
    }

    #[test]
    fn a_value_is_found_in_its_text() {
        let mut files = SourceFiles::new();
        let file = files.add("in", "# other\n{\"a/b\": [1, {\"c\": \"d\"}]}\n");
        let text = Span {
            start: 8,
            ..files.whole(file)
        };
        for (path, place) in [
            ("", "in:2:1"),
            ("/a~1b", "in:2:9"),
            ("/a~1b/0", "in:2:10"),
            ("/a~1b/1/c", "in:2:19"),
            ("/a~1b/9", "in:2:1"),
            ("/none", "in:2:1"),
        ] {
            assert_eq!(files.place(place_of(&files, text, path)).to_string(), place, "{path}");
        }
    }

    #[test]
    fn a_value_is_brought_into_the_format_or_refused() {
        let one = json!({"n": 1});
        assert_eq!(*of_format(&one, InputFormat::Jsonl).unwrap(), json!([{"n": 1}]));
        assert!(of_format(&json!([1]), InputFormat::Jsonl).is_err());
        assert!(of_format(&one, InputFormat::Text).is_err());
        assert_eq!(written(&json!([{"n": 1}, {}]), InputFormat::Jsonl), "{\"n\":1}\n{}\n");
        assert_eq!(written(&json!("a\nb"), InputFormat::Text), "a\nb");
        assert_eq!(written(&one, InputFormat::Json), "{\"n\":1}\n");
    }
}
