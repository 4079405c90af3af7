//! The texts that users wrote, and positions in them. Pure: texts are passed in.

use std::fmt;

/// Identifies one text among [`SourceFiles`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SourceId(u32);

/// A range of one text, in bytes. `start <= end`; an empty range marks a point.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Span {
    pub file: SourceId,
    /// Byte offset of its beginning.
    pub start: usize,
    /// Byte offset of its end, exclusive.
    pub end: usize,
}

impl Span {
    /// The point where this range begins.
    pub fn point(self) -> Self {
        Self {
            end: self.start,
            ..self
        }
    }
}

/// A value and where it was written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Spanned<T> {
    pub value: T,
    pub span: Span,
}

impl<T> Spanned<T> {
    /// Another value at the same position.
    pub fn map<U>(self, change: impl FnOnce(T) -> U) -> Spanned<U> {
        Spanned {
            value: change(self.value),
            span: self.span,
        }
    }
}

/// `FILE:LINE:COLUMN`; line and column count from 1, columns in characters.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct SourcePlace {
    pub file: String,
    pub line: usize,
    pub column: usize,
}

impl fmt::Display for SourcePlace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}:{}", self.file, self.line, self.column)
    }
}

/// All texts that diagnostics may refer to.
#[derive(Clone, Debug, Default)]
pub struct SourceFiles {
    files: Vec<SourceFile>,
}

#[derive(Clone, Debug)]
struct SourceFile {
    name: String,
    text: String,
    /// Byte offset of the first character of each line.
    lines: Vec<usize>,
}

impl SourceFiles {
    /// An empty collection.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a text under the name that people see: the path as the user gave it. A byte order mark is removed.
    pub fn add(&mut self, name: impl Into<String>, text: impl Into<String>) -> SourceId {
        let mut text: String = text.into();
        if text.starts_with('\u{feff}') {
            text.drain(..'\u{feff}'.len_utf8());
        }
        let breaks = text.bytes().enumerate().filter(|(_, byte)| *byte == b'\n');
        let lines = std::iter::once(0).chain(breaks.map(|(at, _)| at + 1)).collect();
        let id = SourceId(u32::try_from(self.files.len()).unwrap_or(u32::MAX));
        self.files.push(SourceFile {
            name: name.into(),
            text,
            lines,
        });
        id
    }

    /// The same files with the text of one of them replaced, for a reader that must see only a part of it. What remains
    /// must keep its byte offsets.
    pub fn with_text(&self, id: SourceId, text: String) -> Self {
        let mut files = self.clone();
        if let Some(file) = files.files.get_mut(id.0 as usize) {
            file.text = text;
        }
        files
    }

    fn file(&self, id: SourceId) -> Option<&SourceFile> {
        self.files.get(id.0 as usize)
    }

    /// The name under which a text was added; empty for an id of other `SourceFiles`.
    pub fn name(&self, id: SourceId) -> &str {
        self.file(id).map_or("", |file| &file.name)
    }

    /// A text; empty for an id of other `SourceFiles`.
    pub fn text(&self, id: SourceId) -> &str {
        self.file(id).map_or("", |file| &file.text)
    }

    /// The text of a span; empty when the span is outside its file.
    pub fn slice(&self, span: Span) -> &str {
        self.text(span.file).get(span.start..span.end).unwrap_or_default()
    }

    /// The span of a whole text.
    pub fn whole(&self, id: SourceId) -> Span {
        Span {
            file: id,
            start: 0,
            end: self.text(id).len(),
        }
    }

    /// Line and column where a span begins. An offset past the end counts as the end.
    pub fn place(&self, span: Span) -> SourcePlace {
        let Some(file) = self.file(span.file) else {
            return SourcePlace {
                file: String::new(),
                line: 1,
                column: 1,
            };
        };
        let line = file.line_at(span.start);
        let before = file.text.get(file.start_of(line)..span.start).unwrap_or_default();
        SourcePlace {
            file: file.name.clone(),
            line: line + 1,
            column: before.chars().count() + 1,
        }
    }

    /// The line in which a span begins, without its newline, and the bytes of the span in it.
    pub fn line(&self, span: Span) -> (&str, std::ops::Range<usize>) {
        let Some(file) = self.file(span.file) else {
            return ("", 0..0);
        };
        let line = file.line_at(span.start);
        let from = file.start_of(line);
        let until = file.lines.get(line + 1).copied().unwrap_or(file.text.len());
        let text = file.text.get(from..until).unwrap_or_default();
        let text = text.trim_end_matches(['\n', '\r']);
        let start = (span.start.saturating_sub(from)).min(text.len());
        let end = (span.end.saturating_sub(from)).clamp(start, text.len());
        (text, start..end)
    }
}

impl SourceFile {
    /// The index, from 0, of the line that contains a byte.
    fn line_at(&self, offset: usize) -> usize {
        self.lines.partition_point(|start| *start <= offset).saturating_sub(1)
    }

    fn start_of(&self, line: usize) -> usize {
        self.lines.get(line).copied().unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn span(file: SourceId, start: usize, end: usize) -> Span {
        Span { file, start, end }
    }

    #[test]
    fn places_count_characters_from_one() {
        let mut files = SourceFiles::new();
        let id = files.add("a.yaml", "ä: 1\r\nöö: ü\n");
        assert_eq!(files.place(span(id, 0, 2)).to_string(), "a.yaml:1:1");
        assert_eq!(files.place(span(id, 2, 3)).to_string(), "a.yaml:1:2");
        assert_eq!(files.place(span(id, 13, 15)).to_string(), "a.yaml:2:5");
        assert_eq!(files.line(span(id, 13, 15)), ("öö: ü", 6..8));
        assert_eq!(files.place(span(id, 999, 999)).line, 3);
    }

    #[test]
    fn a_span_over_lines_ends_with_its_first() {
        let mut files = SourceFiles::new();
        let id = files.add("a", "one\ntwo\n");
        assert_eq!(files.line(span(id, 1, 6)), ("one", 1..3));
        assert_eq!(files.slice(span(id, 1, 6)), "ne\ntw");
    }
}
