//! Reads JSON Lines into trees with source positions, so that problems name file, line and column as those of a
//! manifest do. One object per line.

use crate::diag::{Diagnostic, MapEntry, Scalar, Shape, SourceFiles, SourceId, Span, YamlNode, json_lines, not_json};
use serde::de::{DeserializeSeed, Deserializer, MapAccess, SeqAccess, Visitor};
use std::cell::Cell;
use std::fmt;

/// Size limit of the text, in bytes.
pub const MAX_BYTES: usize = 64 << 20;
/// Nesting limit of lists and maps.
const MAX_DEPTH: usize = 32;

/// The object of each line that is not blank; lines that are not a JSON object or repeat a key become problems.
pub fn parse(files: &SourceFiles, file: SourceId) -> (Vec<YamlNode>, Vec<Diagnostic>) {
    let text = files.text(file);
    if text.len() > MAX_BYTES {
        let start = Span { file, start: 0, end: 0 };
        let problem = Diagnostic::error("file-too-large", start, format!("the file has {} bytes", text.len()));
        return (
            Vec::new(),
            vec![problem.help(format!("at most {MAX_BYTES} bytes are read"))],
        );
    }
    let mut lines = json_lines(files, file);
    let first = lines.next();
    let first = first.map_or("", |(_, line)| line.trim_start_matches('\u{feff}').trim());
    let is_array = first.starts_with('[') && (!first.ends_with(']') || lines.next().is_none());
    // Each of its lines would be a problem of its own.
    if is_array || first == "{" {
        let start = files.whole(file).point();
        return (Vec::new(), vec![not_lines(start)]);
    }
    let (mut nodes, mut problems) = (Vec::new(), Vec::new());
    for (span, content) in json_lines(files, file) {
        match object(content, span) {
            Ok(node) => nodes.push(node),
            Err(problem) => problems.push(*problem),
        }
    }
    (nodes, problems)
}

/// The problem of a text that is not one JSON object a line, such as an array or what `jq` prints without `-c`.
pub fn not_lines(start: Span) -> Diagnostic {
    let problem = Diagnostic::error(
        "not-lines",
        start,
        "a list has one JSON object a line, and this has not",
    );
    problem.help(
        "print one JSON object a line, such as {\"path\": \".\"}: `jq -c '.[]'` does so with an array, `jq -c .` with objects",
    )
}

fn object(text: &str, line: Span) -> Result<YamlNode, Box<Diagnostic>> {
    let seed = Seed {
        text,
        line,
        cursor: &Cell::new(0),
        depth: MAX_DEPTH,
    };
    let mut reader = serde_json::Deserializer::from_str(text);
    let read = seed
        .deserialize(&mut reader)
        .and_then(|node| reader.end().map(|()| node));
    match read {
        Ok(node) if matches!(node.shape, Shape::Map(_)) => Ok(node),
        Ok(_) => {
            let problem = Diagnostic::error("wrong-type", line.point(), "a line must be one JSON object");
            Err(Box::new(
                problem.help("write one job per line, for example {\"path\": \"../a\"}"),
            ))
        }
        Err(error) => Err(Box::new(
            not_json(line, text, &error).help("write one JSON object per line"),
        )),
    }
}

/// Builds a tree; finds the positions of keys and strings by searching the line for them in their order.
struct Seed<'a> {
    text: &'a str,
    line: Span,
    cursor: &'a Cell<usize>,
    depth: usize,
}

impl<'a> Seed<'a> {
    /// The position of the next string, if it occurs unescaped in the line.
    fn find(&self, wanted: &str) -> Span {
        let from = self.cursor.get();
        let found = self.text.get(from..).and_then(|rest| rest.find(wanted));
        let start = found.map_or(from, |at| from + at);
        let end = found.map_or(start, |_| start + wanted.len());
        self.cursor.set(end);
        Span {
            start: self.line.start + start,
            end: self.line.start + end,
            ..self.line
        }
    }

    fn scalar(&self, text: String, plain: bool) -> YamlNode {
        let span = match plain {
            true => self.find(&text),
            false => self.find(&format!("\"{text}\"")),
        };
        YamlNode {
            span,
            shape: Shape::Scalar(Scalar { text, plain }),
        }
    }

    fn deeper(&self) -> Option<Seed<'a>> {
        Some(Seed {
            depth: self.depth.checked_sub(1)?,
            ..*self
        })
    }

    fn here(&self) -> Span {
        let at = self.line.start + self.cursor.get();
        Span {
            start: at,
            end: at,
            ..self.line
        }
    }
}

impl<'de> DeserializeSeed<'de> for Seed<'_> {
    type Value = YamlNode;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<YamlNode, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Seed<'_> {
    type Value = YamlNode;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_unit<E>(self) -> Result<YamlNode, E> {
        Ok(self.scalar("null".to_owned(), true))
    }

    fn visit_bool<E>(self, value: bool) -> Result<YamlNode, E> {
        Ok(self.scalar(value.to_string(), true))
    }

    fn visit_i64<E>(self, value: i64) -> Result<YamlNode, E> {
        Ok(self.scalar(value.to_string(), true))
    }

    fn visit_u64<E>(self, value: u64) -> Result<YamlNode, E> {
        Ok(self.scalar(value.to_string(), true))
    }

    fn visit_f64<E>(self, value: f64) -> Result<YamlNode, E> {
        Ok(self.scalar(value.to_string(), true))
    }

    fn visit_str<E>(self, value: &str) -> Result<YamlNode, E> {
        Ok(self.scalar(value.to_owned(), false))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<YamlNode, A::Error> {
        let span = self.here();
        let mut list = Vec::new();
        loop {
            let deeper = self
                .deeper()
                .ok_or_else(|| serde::de::Error::custom("nested too deeply"))?;
            match items.next_element_seed(deeper)? {
                Some(node) => list.push(node),
                None => break,
            }
        }
        Ok(YamlNode {
            span,
            shape: Shape::List(list),
        })
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<YamlNode, A::Error> {
        let span = self.here();
        let mut entries: Vec<MapEntry> = Vec::new();
        while let Some(key) = map.next_key::<String>()? {
            let key_span = self.find(&format!("\"{key}\""));
            if entries.iter().any(|entry| entry.key == key) {
                return Err(serde::de::Error::custom(format!("`{key}` is written twice")));
            }
            let deeper = self
                .deeper()
                .ok_or_else(|| serde::de::Error::custom("nested too deeply"))?;
            let value = map.next_value_seed(deeper)?;
            entries.push(MapEntry { key, key_span, value });
        }
        Ok(YamlNode {
            span,
            shape: Shape::Map(entries),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_become_trees_with_places() {
        let mut files = SourceFiles::new();
        let text =
            "{\"id\": \"a\", \"params\": {\"n\": 3, \"t\": \"x\"}}\n\n{\"path\": \"b\", \"wrong\": [1, null, true]}\n";
        let file = files.add("jobs.jsonl", text);
        let (nodes, problems) = parse(&files, file);
        assert_eq!((nodes.len(), problems.len()), (2, 0));
        assert_eq!(
            nodes[0].to_json(),
            serde_json::json!({"id": "a", "params": {"n": 3, "t": "x"}})
        );
        let Shape::Map(entries) = &nodes[1].shape else { panic!() };
        assert_eq!(files.place(entries[1].key_span).to_string(), "jobs.jsonl:3:15");
    }

    #[test]
    fn every_bad_line_is_named() {
        let mut files = SourceFiles::new();
        let file = files.add("jobs.jsonl", "[1]\n{\"a\": 1, \"a\": 2}\n{\"a\":\n{\"ok\": 1}\n");
        let (nodes, problems) = parse(&files, file);
        assert_eq!(nodes.len(), 1);
        let lines: Vec<usize> = problems
            .iter()
            .map(|problem| files.place(problem.span.unwrap()).line)
            .collect();
        assert_eq!(lines, [1, 2, 3]);
    }
}
