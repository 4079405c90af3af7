//! Words, blanks and signs of one line, and the merge of two changes of it. Knows no files.

use similar::{Algorithm, DiffTag, capture_diff_slices};
use std::ops::Range;

/// Splits a line: runs of word characters, runs of blanks, every other character alone.
pub(super) fn tokens(line: &str) -> Vec<&str> {
    let mut found = Vec::new();
    let mut rest = line;
    while let Some(first) = rest.chars().next() {
        let class = class_of(first);
        let end = match class {
            Class::Sign => first.len_utf8(),
            _ => rest.find(|c| class_of(c) != class).unwrap_or(rest.len()),
        };
        let (token, after) = rest.split_at(end);
        found.push(token);
        rest = after;
    }
    found
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Class {
    Word,
    Blank,
    Sign,
}

fn class_of(c: char) -> Class {
    if is_word(c) {
        Class::Word
    } else if c.is_whitespace() {
        Class::Blank
    } else {
        Class::Sign
    }
}

/// Whether `c` belongs to a word.
pub(super) fn is_word(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

/// How much two lines share, blanks left out: 0 nothing, 1 all.
pub(super) fn likeness(a: &str, b: &str) -> f64 {
    let solid = |line| {
        tokens(line)
            .into_iter()
            .filter(|token| !token.trim().is_empty())
            .collect::<Vec<_>>()
    };
    let (a, b) = (solid(a), solid(b));
    let weight = |tokens: &[&str]| tokens.iter().map(|token| token.len()).sum::<usize>();
    let total = weight(&a) + weight(&b);
    if total == 0 {
        return 1.0;
    }
    let shared: usize = capture_diff_slices(Algorithm::Myers, &a, &b)
        .iter()
        .filter(|op| op.tag() == DiffTag::Equal)
        .map(|op| weight(a.get(op.old_range()).unwrap_or_default()))
        .sum();
    2.0 * shared as f64 / total as f64
}

/// One side's change of a run of tokens.
struct Hunk {
    base: Range<usize>,
    side: Range<usize>,
}

fn hunks(base: &[&str], side: &[&str]) -> Vec<Hunk> {
    let changes = capture_diff_slices(Algorithm::Myers, base, side);
    let mut found: Vec<Hunk> = Vec::new();
    for op in changes.iter().filter(|op| op.tag() != DiffTag::Equal) {
        match found.last_mut() {
            Some(last) if last.base.end == op.old_range().start && last.side.end == op.new_range().start => {
                last.base.end = op.old_range().end;
                last.side.end = op.new_range().end;
            }
            _ => found.push(Hunk {
                base: op.old_range(),
                side: op.new_range(),
            }),
        }
    }
    found
}

/// What is asked for (`base` to `asked`) done to `file`, which differs from `base` in small ways.
///
/// `None` where both change the same words in different ways.
pub(super) fn merge(base: &str, file: &str, asked: &str) -> Option<String> {
    if base == file || file == asked {
        return Some(asked.to_owned());
    }
    if base == asked {
        return Some(file.to_owned());
    }
    let (base, file, asked) = (tokens(base), tokens(file), tokens(asked));
    let text = |tokens: &[&str], range: &Range<usize>| tokens.get(range.clone()).unwrap_or_default().concat();
    let theirs = hunks(&base, &asked);
    let mut changes: Vec<(Range<usize>, String)> = Vec::new();
    for our in hunks(&base, &file) {
        let real = text(&file, &our.side);
        let mut rivals = theirs.iter().filter(|their| touch(&our, their)).peekable();
        if rivals.peek().is_none() {
            changes.push((our.base, real));
            continue;
        }
        let harmless = soft(&text(&base, &our.base), &real);
        if rivals.any(|their| {
            let same = our.base == their.base && real == text(&asked, &their.side);
            !same && !(harmless && covers(&their.base, &our.base))
        }) {
            return None;
        }
    }
    changes.extend(
        theirs
            .iter()
            .map(|their| (their.base.clone(), text(&asked, &their.side))),
    );
    changes.sort_by_key(|(range, _)| (range.start, range.end));
    let mut out = String::new();
    let mut done = 0;
    for (range, new) in changes {
        out.push_str(&text(&base, &(done..range.start)));
        out.push_str(&new);
        done = range.end;
    }
    out.push_str(&text(&base, &(done..base.len())));
    Some(out)
}

fn touch(a: &Hunk, b: &Hunk) -> bool {
    let overlap = a.base.start < b.base.end && b.base.start < a.base.end;
    overlap || a.base == b.base
}

fn covers(outer: &Range<usize>, inner: &Range<usize>) -> bool {
    outer.start <= inner.start && inner.end <= outer.end
}

/// Whether the file differs from what the model copied in blanks or by a slip of the pen only.
fn soft(copied: &str, real: &str) -> bool {
    copied.trim().is_empty() && real.trim().is_empty() || super::fuzzy::is_slip(copied, real)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blanks_of_the_file_and_words_of_the_edit_meet() {
        let cases = [
            (
                "x = f(a, b) # c",
                "x = f(a,  b)  # c",
                "x = f(a, b2) # c",
                Some("x = f(a,  b2)  # c"),
            ),
            (
                "x = f(a, b) # c",
                "x = f(a,  b)  # c",
                "x = f(a,  b2)  # c",
                Some("x = f(a,  b2)  # c"),
            ),
            ("foo", "foo  ", "bar", Some("bar  ")),
            ("foo  ", "foo", "bar  ", Some("bar")),
            ("retrun value", "return value", "retrun other", Some("return other")),
            ("retrun value", "return value", "return other", Some("return other")),
            ("a b", "a  b", "a c", Some("a  c")),
            ("total = 1", "grand = 1", "other = 1", None),
        ];
        for (base, file, asked, merged) in cases {
            assert_eq!(merge(base, file, asked).as_deref(), merged, "{base} / {file} / {asked}");
        }
    }

    #[test]
    fn likeness_counts_shared_words() {
        assert!(likeness("let a = b;", "let  a = c;") > 0.7);
        assert!(likeness("return x", "for y in z:") < 0.1);
    }
}
