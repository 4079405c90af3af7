//! Finds a snippet in a file with different tolerances for whitespace.

use super::correct::plain_sign;
use super::tokens::is_word;
use std::ops::Range;

/// Which differences between two lines are ignored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Tolerance {
    /// Trailing whitespace.
    Ends,
    /// Leading and trailing whitespace.
    Indent,
    /// Leading and trailing whitespace, the width of gaps, and the form of quotes and dashes.
    Blanks,
    /// Like `Blanks`, and gaps next to punctuation may be missing.
    Gaps,
}

/// A line of the file without its end, and its start offset.
#[derive(Clone, Copy, Debug)]
pub(super) struct Line<'a> {
    pub(super) at: usize,
    pub(super) text: &'a str,
}

impl Line<'_> {
    pub(super) fn end(&self) -> usize {
        self.at + self.text.len()
    }
}

/// The lines of a text with their offsets.
pub(super) fn lines(text: &str) -> Vec<Line<'_>> {
    let mut at = 0;
    let mut found = Vec::new();
    for text in text.split_terminator('\n') {
        found.push(Line { at, text });
        at += text.len() + 1;
    }
    found
}

/// A match of a snippet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Hit {
    /// Range of line indices in the file.
    pub(super) lines: Range<usize>,
    /// Bytes of the first line before the match.
    pub(super) skip: usize,
    /// Bytes of the last line after the match.
    pub(super) spare: usize,
}

/// The compared form of a line, with the offset in the line of each of its bytes.
struct Key {
    text: String,
    from: Vec<usize>,
}

/// The compared form of a line.
pub(super) fn key(line: &str, tolerance: Tolerance) -> String {
    mapped(line, tolerance).text
}

fn mapped(line: &str, tolerance: Tolerance) -> Key {
    let indent = match tolerance {
        Tolerance::Ends => 0,
        _ => line.len() - line.trim_start().len(),
    };
    let mut key = Key {
        text: String::with_capacity(line.len()),
        from: Vec::with_capacity(line.len()),
    };
    let body = line.get(indent..).unwrap_or_default();
    if matches!(tolerance, Tolerance::Ends | Tolerance::Indent) {
        let body = body.trim_end();
        key.text.push_str(body);
        key.from.extend(indent..indent + body.len());
        return key;
    }
    let mut push = |at: usize, text: &str| {
        key.text.push_str(text);
        key.from.extend(std::iter::repeat_n(at, text.len()));
    };
    let mut gap = None;
    let mut last = None;
    let mut utf8 = [0; 4];
    for (at, c) in body.trim_end().char_indices() {
        let at = indent + at;
        let plain = plain_sign(c).unwrap_or_else(|| c.encode_utf8(&mut utf8));
        if plain.is_empty() {
            continue;
        }
        if plain.trim().is_empty() {
            gap.get_or_insert(at);
            continue;
        }
        if let Some(start) = gap.take()
            && (tolerance == Tolerance::Blanks || last.is_some_and(is_word) && plain.starts_with(is_word))
        {
            push(start, " ");
        }
        push(at, plain);
        last = plain.chars().next_back();
    }
    key
}

/// Every match of the snippet with whole lines of the file.
pub(super) fn whole_lines(file: &[Line<'_>], snippet: &[&str], tolerance: Tolerance) -> Vec<Hit> {
    let wanted: Vec<String> = snippet.iter().map(|line| key(line, tolerance)).collect();
    if wanted.iter().all(String::is_empty) {
        return Vec::new();
    }
    let keys: Vec<String> = file.iter().map(|line| key(line.text, tolerance)).collect();
    let windows = keys.windows(wanted.len()).enumerate();
    windows
        .filter(|(_, window)| *window == wanted.as_slice())
        .map(|(first, _)| Hit {
            lines: first..first + wanted.len(),
            skip: 0,
            spare: 0,
        })
        .collect()
}

/// Every match of the snippet that begins or ends inside a line. A snippet that begins with whitespace must match from
/// the start of a line.
pub(super) fn parts_of_lines(file: &[Line<'_>], snippet: &[&str], tolerance: Tolerance) -> Vec<Hit> {
    let wanted: Vec<String> = snippet.iter().map(|line| key(line, tolerance)).collect();
    let (Some(first), Some(last)) = (wanted.first(), wanted.last()) else {
        return Vec::new();
    };
    if first.is_empty() || last.is_empty() || snippet.first().is_some_and(|line| line.starts_with([' ', '\t'])) {
        return Vec::new();
    }
    let keys: Vec<Key> = file.iter().map(|line| mapped(line.text, tolerance)).collect();
    let mut hits = Vec::new();
    for (at, window) in keys.windows(wanted.len()).enumerate() {
        let (Some(head), Some(tail)) = (window.first(), window.last()) else {
            continue;
        };
        let middle = 1..wanted.len().saturating_sub(1).max(1);
        let same = window
            .get(middle.clone())
            .unwrap_or_default()
            .iter()
            .map(|key| &key.text);
        let fits = same.eq(wanted.get(middle).unwrap_or_default());
        if !fits {
            continue;
        }
        let lines = at..at + wanted.len();
        let last_length = file.get(lines.end - 1).map_or(0, |line| line.text.len());
        if wanted.len() == 1 {
            for (start, _) in head.text.match_indices(first.as_str()) {
                let end = start + first.len();
                if edge(&head.text, start) && edge(&head.text, end) {
                    let skip = head.from.get(start).copied().unwrap_or(0);
                    let stop = head.from.get(end).copied().unwrap_or(last_length);
                    hits.push(Hit {
                        lines: lines.clone(),
                        skip,
                        spare: last_length - stop,
                    });
                }
            }
        } else if head.text.ends_with(first.as_str()) && tail.text.starts_with(last.as_str()) {
            let start = head.text.len() - first.len();
            if edge(&head.text, start) && edge(&tail.text, last.len()) {
                let skip = if start == 0 {
                    0
                } else {
                    head.from.get(start).copied().unwrap_or(0)
                };
                let stop = tail.from.get(last.len()).copied().unwrap_or(last_length);
                hits.push(Hit {
                    lines,
                    skip,
                    spare: last_length - stop,
                });
            }
        }
    }
    hits
}

/// Whether `at` is not inside a word.
fn edge(text: &str, at: usize) -> bool {
    let before = text.get(..at).and_then(|head| head.chars().next_back());
    let after = text.get(at..).and_then(|tail| tail.chars().next());
    !(before.is_some_and(is_word) && after.is_some_and(is_word))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_forget_what_does_not_count() {
        assert_eq!(key("  a  b ", Tolerance::Ends), "  a  b");
        assert_eq!(key("  a  b ", Tolerance::Indent), "a  b");
        assert_eq!(key("\ta \t b ( c ) ", Tolerance::Blanks), "a b ( c )");
        assert_eq!(key("a b ( c , d )", Tolerance::Gaps), "a b(c,d)");
        assert_eq!(key("say(“x”)\u{a0}…", Tolerance::Blanks), "say(\"x\") ...");
    }

    #[test]
    fn parts_keep_what_stands_around_them() {
        let file = lines("x = foo( a,b ) + 1\n");
        let hits = parts_of_lines(&file, &["foo(a, b)"], Tolerance::Gaps);
        assert_eq!(
            hits,
            [Hit {
                lines: 0..1,
                skip: 4,
                spare: 3
            }]
        );
        assert!(parts_of_lines(&file, &["oo(a, b)"], Tolerance::Gaps).is_empty());
        let two = lines("  if a {\n      b();\n  }\n");
        let hits = parts_of_lines(&two, &["a {", "    b()"], Tolerance::Indent);
        assert_eq!(
            hits,
            [Hit {
                lines: 0..2,
                skip: 5,
                spare: 1
            }]
        );
    }
}
