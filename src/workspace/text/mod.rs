//! The text of a file with `\n` line ends for matching, and the conversion back to the exact bytes. No I/O.

mod encoding;
mod splice;
#[cfg(test)]
mod tests;

pub use encoding::{TextEncoding, Undecodable, Unrepresentable};
pub use splice::SpliceError;

/// The end of a line.
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

    /// Name for people and models.
    pub fn name(self) -> &'static str {
        match self {
            Self::Lf => "LF",
            Self::CrLf => "CRLF",
            Self::Cr => "CR",
        }
    }
}

/// Start of a line in the text and in the bytes, and its end. The last line has no end and may be empty.
#[derive(Clone, Copy, Debug)]
struct Line {
    at: usize,
    raw: usize,
    end: Option<LineEnd>,
}

/// A decoded file. Every line end is `\n` in [`Text::as_str`], and the byte order mark is not part of it.
#[derive(Clone, Debug)]
pub struct Text {
    raw: Vec<u8>,
    mark: usize,
    encoding: TextEncoding,
    content: String,
    lines: Vec<Line>,
}

/// Decodes the bytes of a file: UTF-8, or UTF-16 and UTF-32 with or without a byte order mark, else each byte as one
/// character.
///
/// # Errors
/// The file is binary, or its byte order mark contradicts the bytes.
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

    /// The encoding of the file.
    pub fn encoding(&self) -> TextEncoding {
        self.encoding
    }

    /// Whether the file begins with a byte order mark.
    pub fn has_mark(&self) -> bool {
        self.mark > 0
    }

    /// The lines without their ends. A final line end starts no further line.
    pub fn lines(&self) -> impl DoubleEndedIterator<Item = &str> {
        self.content.split_terminator('\n')
    }

    /// Number (from 1) of the line with the byte offset `at` in [`Text::as_str`].
    pub fn line_of(&self, at: usize) -> usize {
        self.lines.partition_point(|line| line.at <= at).max(1)
    }

    /// Byte offset in [`Text::as_str`] at which the line with the byte offset `at` begins.
    pub fn line_start(&self, at: usize) -> usize {
        self.lines.get(self.line_index(at)).map_or(0, |line| line.at)
    }

    /// The most frequent line end; the first line's in a tie; LF if there is none.
    pub fn usual_end(&self) -> LineEnd {
        let count = |end| self.lines.iter().filter(|line| line.end == Some(end)).count();
        let first = self.lines.first().and_then(|line| line.end).unwrap_or(LineEnd::Lf);
        [LineEnd::Lf, LineEnd::CrLf, LineEnd::Cr]
            .into_iter()
            .fold(first, |best, end| if count(end) > count(best) { end } else { best })
    }

    /// Whether different line ends occur.
    pub fn mixed_ends(&self) -> bool {
        let mut ends = self.lines.iter().filter_map(|line| line.end);
        ends.next().is_some_and(|first| ends.any(|end| end != first))
    }

    /// A short description of what is unusual about the file; `None` for UTF-8 with LF and without a byte order mark.
    pub fn oddity(&self) -> Option<String> {
        let mut words = Vec::new();
        match (self.encoding, self.has_mark()) {
            (TextEncoding::Utf8, false) => {}
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

    /// The range of bytes that a range of [`Text::as_str`] came from. `None` if the range does not end on character
    /// boundaries.
    #[cfg(test)]
    pub fn raw_range(&self, range: std::ops::Range<usize>) -> Option<std::ops::Range<usize>> {
        self.content.get(range.clone())?;
        Some(self.raw_at(range.start)..self.raw_at(range.end))
    }

    fn line_index(&self, at: usize) -> usize {
        self.lines.partition_point(|line| line.at <= at).saturating_sub(1)
    }

    /// As [`Text::raw_at`], counted from an earlier offset whose raw offset is known, unless a line begins in between:
    /// the start of a long line may be far away.
    fn raw_after(&self, (from, raw): (usize, usize), at: usize) -> usize {
        if self.line_start(at) > from {
            return self.raw_at(at);
        }
        let between = self.content.get(from..at).unwrap_or_default();
        raw + encoding::width(between, self.raw.get(raw..).unwrap_or_default(), self.encoding)
    }

    fn raw_at(&self, at: usize) -> usize {
        let Some(line) = self.lines.get(self.line_index(at)) else {
            return self.mark;
        };
        let before = self.content.get(line.at..at).unwrap_or_default();
        line.raw + encoding::width(before, self.raw.get(line.raw..).unwrap_or_default(), self.encoding)
    }
}
