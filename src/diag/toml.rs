//! Parses TOML of other programs into the same tree as YAML, so that one reader serves both. Pure.

use super::diagnostic::Diagnostic;
use super::source::{SourceFiles, SourceId, Span};
use super::tree::{MapEntry, Scalar, Shape, YamlNode};
use toml::Spanned;
use toml::de::{DeTable, DeValue};

/// The document of a file of `files`.
///
/// # Errors
/// Every syntax error that the parser finds, in file order.
pub fn parse_toml(files: &SourceFiles, file: SourceId) -> Result<YamlNode, Vec<Diagnostic>> {
    let (root, errors) = DeTable::parse_recoverable(files.text(file));
    let mut problems: Vec<Diagnostic> = errors
        .iter()
        .map(|error| {
            let range = error.span().unwrap_or(0..0);
            Diagnostic::error("toml-syntax", span(file, &range), error.message().to_owned())
                .help("check quotes, brackets and commas near this position")
        })
        .collect();
    super::diagnostic::sort(&mut problems);
    match problems.is_empty() {
        true => Ok(YamlNode {
            span: files.whole(file),
            shape: map(file, root.get_ref()),
        }),
        false => Err(problems),
    }
}

fn span(file: SourceId, range: &std::ops::Range<usize>) -> Span {
    Span {
        file,
        start: range.start,
        end: range.end,
    }
}

fn map(file: SourceId, table: &DeTable<'_>) -> Shape {
    let mut entries: Vec<MapEntry> = table
        .iter()
        .map(|(key, value)| MapEntry {
            key: key.get_ref().to_string(),
            key_span: span(file, &key.span()),
            value: node(file, value),
        })
        .collect();
    entries.sort_by_key(|entry| entry.key_span);
    Shape::Map(entries)
}

fn node(file: SourceId, value: &Spanned<DeValue<'_>>) -> YamlNode {
    let plain = |text: String| Shape::Scalar(Scalar { text, plain: true });
    let shape = match value.get_ref() {
        DeValue::String(text) => Shape::Scalar(Scalar {
            text: text.to_string(),
            plain: false,
        }),
        DeValue::Integer(number) => plain(number.to_string()),
        DeValue::Float(number) => plain(number.to_string()),
        DeValue::Boolean(flag) => plain(flag.to_string()),
        DeValue::Datetime(time) => Shape::Scalar(Scalar {
            text: time.to_string(),
            plain: false,
        }),
        DeValue::Array(items) => Shape::List(items.iter().map(|item| node(file, item)).collect()),
        DeValue::Table(table) => map(file, table),
    };
    YamlNode {
        span: span(file, &value.span()),
        shape,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_keep_their_places() {
        let mut files = SourceFiles::new();
        let text = "a = 1\n[[rule]]\nname = \"x\"\nlist = [true, 'y']\n";
        let file = files.add("p.toml", text);
        let root = parse_toml(&files, file).unwrap();
        assert_eq!(
            root.to_json(),
            serde_json::json!({"a": 1, "rule": [{"name": "x", "list": [true, "y"]}]})
        );
        let Shape::List(rules) = &root.get("rule").unwrap().shape else {
            panic!("no list")
        };
        let name = rules[0].get("name").unwrap();
        assert_eq!(files.slice(name.span), "\"x\"");
    }

    #[test]
    fn syntax_errors_have_their_places() {
        let mut files = SourceFiles::new();
        let file = files.add("p.toml", "a = \nb = 1\nc = [\n");
        let problems = parse_toml(&files, file).unwrap_err();
        assert!(!problems.is_empty());
        assert_eq!(files.place(problems[0].span.unwrap()).line, 1);
    }
}
