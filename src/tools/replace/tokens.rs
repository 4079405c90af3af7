//! Splits a line into words, blanks and punctuation, and merges two changes of the same line.

use similar::{Algorithm, DiffTag, capture_diff_slices};
use std::ops::Range;

/// Splits a line into runs of word characters, runs of blanks, and single other characters.
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

/// Similarity of two lines without blanks: 0 for nothing in common, 1 for equal.
pub(super) fn likeness(a: &str, b: &str) -> f64 {
    let (a, b) = (Row::of(a).solids, Row::of(b).solids);
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

/// A line as a list of words and punctuation ("solids"), and the gaps before, between and after them: one more gap than
/// solids.
struct Row<'a> {
    solids: Vec<&'a str>,
    gaps: Vec<&'a str>,
}

impl<'a> Row<'a> {
    fn of(line: &'a str) -> Self {
        let mut row = Self {
            solids: Vec::new(),
            gaps: Vec::new(),
        };
        let mut gap = "";
        for token in tokens(line) {
            if token.trim().is_empty() {
                gap = token;
            } else {
                row.gaps.push(std::mem::take(&mut gap));
                row.solids.push(token);
            }
        }
        row.gaps.push(gap);
        row
    }

    fn gap(&self, at: usize) -> &'a str {
        self.gaps.get(at).copied().unwrap_or_default()
    }

    /// The solids of a range with the gaps between them.
    fn text(&self, range: &Range<usize>) -> String {
        let solids = self.solids.get(range.clone()).unwrap_or_default();
        let mut out = String::new();
        for (at, solid) in range.clone().zip(solids) {
            if at > range.start {
                out.push_str(self.gap(at));
            }
            out.push_str(solid);
        }
        out
    }
}

/// A change by one side of a range of solids.
#[derive(Clone)]
struct Hunk {
    base: Range<usize>,
    side: Range<usize>,
}

/// One side's version of the base: its changes, and its gap for each remaining gap of the base.
struct Side<'a> {
    row: Row<'a>,
    hunks: Vec<Hunk>,
    gaps: Vec<Option<&'a str>>,
}

impl<'a> Side<'a> {
    fn of(base: &Row<'_>, line: &'a str) -> Self {
        let row = Row::of(line);
        let mut side = Self {
            hunks: Vec::new(),
            gaps: vec![None; base.gaps.len()],
            row,
        };
        for op in capture_diff_slices(Algorithm::Myers, &base.solids, &side.row.solids) {
            let hunk = Hunk {
                base: op.old_range(),
                side: op.new_range(),
            };
            if op.tag() == DiffTag::Equal {
                for (base, own) in hunk.base.clone().zip(hunk.side.clone()) {
                    side.know(base, own);
                }
                side.know(hunk.base.end, hunk.side.end);
                continue;
            }
            if !hunk.base.is_empty() {
                side.know(hunk.base.start, hunk.side.start);
                side.know(hunk.base.end, hunk.side.end);
            }
            match side.hunks.last_mut() {
                Some(last) if last.base.end == hunk.base.start && last.side.end == hunk.side.start => {
                    last.base.end = hunk.base.end;
                    last.side.end = hunk.side.end;
                }
                _ => side.hunks.push(hunk),
            }
        }
        if base.solids.is_empty() {
            side.know(0, 0);
        }
        side
    }

    /// Whether a character next to the gap changes between word and punctuation, or to other punctuation: then the gap
    /// is not comparable.
    fn bounds_change(&self, base: &Row<'_>, at: usize) -> bool {
        let alike = |a: Option<&&str>, b: Option<&&str>| match (a, b) {
            (Some(a), Some(b)) => a == b || a.starts_with(is_word) && b.starts_with(is_word),
            _ => false,
        };
        let solid = |row: &Row<'a>, at: usize| row.solids.get(at).copied();
        self.hunks
            .iter()
            .filter(|hunk| !hunk.base.is_empty() && !hunk.side.is_empty())
            .any(|hunk| {
                let head =
                    hunk.base.start == at && !alike(base.solids.get(at), solid(&self.row, hunk.side.start).as_ref());
                let last = (hunk.base.end - 1, hunk.side.end - 1);
                let tail = hunk.base.end == at && !alike(base.solids.get(last.0), solid(&self.row, last.1).as_ref());
                head || tail
            })
    }

    fn know(&mut self, base: usize, own: usize) {
        let gap = self.row.gap(own);
        if let Some(known) = self.gaps.get_mut(base) {
            *known = Some(gap);
        }
    }
}

/// Applies the edit from `base` to `asked` to `file`, which differs slightly from `base`.
///
/// A gap that the edit does not change has the width that it has in the file. `None` if both sides change the same
/// words differently.
pub(super) fn merge(base: &str, file: &str, asked: &str) -> Option<String> {
    if base == file || file == asked {
        return Some(asked.to_owned());
    }
    if base == asked {
        return Some(file.to_owned());
    }
    let base = Row::of(base);
    let (ours, theirs) = (Side::of(&base, file), Side::of(&base, asked));
    let changes = changes(&base, &ours, &theirs)?;
    let gap = |at: usize| {
        let (was, here) = (base.gap(at), ours.gaps.get(at).copied().flatten());
        let wish = theirs.gaps.get(at).copied().flatten();
        let here = here.filter(|_| wish.is_none() || !theirs.bounds_change(&base, at));
        wish.filter(|wish| *wish != was).or(here).unwrap_or(was)
    };
    let mut out = String::new();
    let mut changes = changes.into_iter().peekable();
    let mut at = 0;
    let mut open = true;
    loop {
        let insertion = changes.next_if(|(hunk, _)| hunk.base == (at..at));
        match insertion {
            Some((hunk, side)) => {
                let (left, right) = (side.row.gap(hunk.side.start), side.row.gap(hunk.side.end));
                let here = ours.gaps.get(at).copied().flatten().unwrap_or(base.gap(at));
                let text = side.row.text(&hunk.side);
                // Punctuation that the edit has added already is not added again from the file.
                if std::ptr::eq(side, &ours) && matches!(text.as_str(), ";" | ",") && out.ends_with(&text) {
                    open = false;
                    continue;
                }
                let closes = text.starts_with([')', ']', '}', ',', ';']);
                let first = left == base.gap(at) && right != here && !closes && at < base.solids.len();
                out.push_str(if first { here } else { left });
                out.push_str(&text);
                out.push_str(if !first && left != here && right == base.gap(at) {
                    here
                } else {
                    right
                });
            }
            None if open => out.push_str(gap(at)),
            None => {}
        }
        if let Some((hunk, side)) = changes.next_if(|(hunk, _)| hunk.base.start == at) {
            out.push_str(&side.row.text(&hunk.side));
            // After deleted words one gap remains, the one before them.
            open = !hunk.side.is_empty();
            at = hunk.base.end;
        } else if let Some(solid) = base.solids.get(at) {
            out.push_str(solid);
            open = true;
            at += 1;
        } else {
            return Some(out);
        }
    }
}

/// The changes of both sides in the order of the base; `None` if they conflict.
fn changes<'x, 'a>(base: &Row<'_>, ours: &'x Side<'a>, theirs: &'x Side<'a>) -> Option<Vec<(&'x Hunk, &'x Side<'a>)>> {
    let mut changes: Vec<(&Hunk, &Side<'_>)> = theirs.hunks.iter().map(|hunk| (hunk, theirs)).collect();
    for our in &ours.hunks {
        if theirs.hunks.iter().any(|their| brings(their, theirs, our, ours)) {
            continue;
        }
        let mut rivals = theirs.hunks.iter().filter(|their| touch(our, their)).peekable();
        if rivals.peek().is_none() {
            changes.push((our, ours));
            continue;
        }
        let harmless = super::fuzzy::is_slip(&base.text(&our.base), &ours.row.text(&our.side));
        let clash = |their: &Hunk| {
            let same = our.base == their.base && ours.row.text(&our.side) == theirs.row.text(&their.side);
            !(same || harmless && covers(&their.base, &our.base))
        };
        if rivals.any(clash) {
            return None;
        }
    }
    changes.sort_by_key(|(hunk, _)| (hunk.base.start, hunk.base.end));
    Some(changes)
}

fn touch(a: &Hunk, b: &Hunk) -> bool {
    let overlap = a.base.start < b.base.end && b.base.start < a.base.end;
    overlap || a.base == b.base
}

/// Whether a change begins or ends with text that the other side inserts at the same place.
fn brings(their: &Hunk, theirs: &Side<'_>, our: &Hunk, ours: &Side<'_>) -> bool {
    let part = |side: &Side<'_>, range: &Range<usize>| -> Vec<String> {
        let solids = side.row.solids.get(range.clone()).unwrap_or_default();
        solids.iter().map(|&solid| solid.to_owned()).collect()
    };
    let (whole, new) = (part(theirs, &their.side), part(ours, &our.side));
    let at_end = our.base.start == their.base.end && whole.ends_with(&new);
    let at_start = our.base.start == their.base.start && whole.starts_with(&new);
    our.base.is_empty() && (at_end || at_start)
}

fn covers(outer: &Range<usize>, inner: &Range<usize>) -> bool {
    outer.start <= inner.start && inner.end <= outer.end
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
            (
                "| `-` | less |",
                "| `-`  | less    |",
                "| `-`  | minus   |",
                Some("| `-`  | minus   |"),
            ),
            ("f(a,b)", "f(a, b)", "f(a,b,c)", Some("f(a, b,c)")),
            ("x = 1", "x = 1  ", "x = 1;", Some("x = 1;  ")),
            ("a b c", "a  b  c", "a c", Some("a  c")),
            ("", "  ", "x", Some("x  ")),
            ("a.b=null", "a.b = null", "a.b.c()", Some("a.b.c()")),
            (
                "f(a==b||c)",
                "f(a == b || c)",
                "f(g(a==b)||c)",
                Some("f(g(a == b) || c)"),
            ),
            ("go x=>{", "go x => {", "go (x) => {", Some("go (x) => {")),
            ("x = f(a, b)", "x = f(a, b),", "x = f(a,", Some("x = f(a,")),
            ("a = b", "a = b;", "a = c;", Some("a = c;")),
            ("a = b", "a = b;", "a = c", Some("a = c;")),
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
