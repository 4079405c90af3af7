//! The text of a file: characters with plain line ends for matching, and the way back to the very bytes. No I/O.

mod encoding;
mod splice;
#[cfg(test)]
mod tests;

pub use encoding::{Encoding, Undecodable, Unrepresentable};
pub use splice::SpliceError;

use std::ops::Range;

/// How a line ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LineEnd {
    Lf,
    CrLf,
    Cr,
}

impl LineEnd {
    /// Its characters.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Lf => "\n",
            Self::CrLf => "\r\n",
            Self::Cr => "\r",
        }
    }

    /// The name shown to people and models.
    pub fn name(self) -> &'static str {
        match self {
            Self::Lf => "LF",
            Self::CrLf => "CRLF",
            Self::Cr => "CR",
        }
    }
}

/// Where a line begins, in the plain text and in the bytes, and how it ends. The last one has no end; it may be empty.
#[derive(Clone, Copy, Debug)]
struct Line {
    at: usize,
    raw: usize,
    end: Option<LineEnd>,
}

/// A decoded file. Every line end is `\n` in [`Text::as_str`]; the byte order mark is not part of it.
#[derive(Clone, Debug)]
pub struct Text {
    raw: Vec<u8>,
    mark: usize,
    encoding: Encoding,
    content: String,
    lines: Vec<Line>,
}

/// Reads the bytes of a file as text: UTF-8, UTF-16 and UTF-32 with or without byte order mark, else byte by byte.
///
/// # Errors
/// Binary files, and files whose byte order mark is not true.
pub fn decode(bytes: &[u8]) -> Result<Text, Undecodable> {
    let decoded = encoding::decode(bytes)?;
    let mut text = Text {
        raw: bytes.to_vec(),
        mark: decoded.mark,
        encoding: decoded.encoding,
        content: String::with_capacity(decoded.text.len()),
        lines: Vec::new(),
    };
    text.break_lines(&decoded.text);
    Ok(text)
}

/// `text` with every CRLF and CR turned into LF.
pub fn plain_line_ends(text: &str) -> String {
    text.replace("\r\n", "\n").replace('\r', "\n")
}

impl Text {
    fn break_lines(&mut self, decoded: &str) {
        let mut raw = self.mark;
        let mut rest = decoded;
        loop {
            let length = memchr::memchr2(b'\r', b'\n', rest.as_bytes()).unwrap_or(rest.len());
            let (line, after) = rest.split_at(length);
            let end = if after.starts_with("\r\n") {
                Some(LineEnd::CrLf)
            } else if after.starts_with('\r') {
                Some(LineEnd::Cr)
            } else if after.starts_with('\n') {
                Some(LineEnd::Lf)
            } else {
                None
            };
            self.lines.push(Line {
                at: self.content.len(),
                raw,
                end,
            });
            self.content.push_str(line);
            let Some(end) = end else { return };
            self.content.push('\n');
            let (whole, next) = rest.split_at(length + end.as_str().len());
            raw += encoding::width(whole, self.raw.get(raw..).unwrap_or_default(), self.encoding);
            rest = next;
        }
    }

    /// The text with `\n` as its only line end, without byte order mark.
    pub fn as_str(&self) -> &str {
        &self.content
    }

    /// The bytes that were decoded.
    pub fn bytes(&self) -> &[u8] {
        &self.raw
    }

    /// How the file spells characters.
    pub fn encoding(&self) -> Encoding {
        self.encoding
    }

    /// Whether the file begins with a byte order mark.
    pub fn has_mark(&self) -> bool {
        self.mark > 0
    }

    /// Lines without their ends. A text that ends with a line end has no empty line after it.
    pub fn lines(&self) -> impl DoubleEndedIterator<Item = &str> {
        self.content.split_terminator('\n')
    }

    /// The number, from 1, of the line that holds the byte `at` of [`Text::as_str`].
    pub fn line_of(&self, at: usize) -> usize {
        self.lines.partition_point(|line| line.at <= at).max(1)
    }

    /// The line end that most lines have; the first one's in a draw; LF where there is none.
    pub fn usual_end(&self) -> LineEnd {
        let count = |end| self.lines.iter().filter(|line| line.end == Some(end)).count();
        let first = self.lines.first().and_then(|line| line.end).unwrap_or(LineEnd::Lf);
        [LineEnd::Lf, LineEnd::CrLf, LineEnd::Cr]
            .into_iter()
            .fold(first, |best, end| if count(end) > count(best) { end } else { best })
    }

    /// Whether lines end in different ways.
    pub fn mixed_ends(&self) -> bool {
        let mut ends = self.lines.iter().filter_map(|line| line.end);
        ends.next().is_some_and(|first| ends.any(|end| end != first))
    }

    /// What is unusual about the file, in a few words; `None` for UTF-8 without mark and with LF.
    pub fn oddity(&self) -> Option<String> {
        let mut words = Vec::new();
        match (self.encoding, self.has_mark()) {
            (Encoding::Utf8, false) => {}
            (encoding, false) => words.push(encoding.name().to_owned()),
            (encoding, true) => words.push(format!("{} with byte order mark", encoding.name())),
        }
        if self.mixed_ends() {
            words.push("mixed line ends".to_owned());
        } else if self.usual_end() != LineEnd::Lf {
            words.push(format!("{} line ends", self.usual_end().name()));
        }
        (!words.is_empty()).then(|| words.join(", "))
    }

    /// The bytes that a range of [`Text::as_str`] came from. `None` when the range does not lie on characters of it.
    pub fn raw_range(&self, range: Range<usize>) -> Option<Range<usize>> {
        self.content.get(range.clone())?;
        Some(self.raw_at(range.start)..self.raw_at(range.end))
    }

    fn line_index(&self, at: usize) -> usize {
        self.lines.partition_point(|line| line.at <= at).saturating_sub(1)
    }

    fn raw_at(&self, at: usize) -> usize {
        let Some(line) = self.lines.get(self.line_index(at)) else {
            return self.mark;
        };
        let before = self.content.get(line.at..at).unwrap_or_default();
        line.raw + encoding::width(before, self.raw.get(line.raw..).unwrap_or_default(), self.encoding)
    }
}
