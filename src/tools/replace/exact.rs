//! Handles exact matches, including those where `old_string` lacks the indentation of its first line.

use super::find::{Tolerance, key};
use super::indent::{self, Style};
use super::infer_indent;
use super::tokens::{is_word, likeness};
use std::ops::Range;

/// Every position of `part` in `text`, including overlapping ones.
pub(super) fn overlapping(text: &str, part: &str) -> Vec<usize> {
    let mut found = Vec::new();
    let step = part.chars().next().map_or(1, char::len_utf8);
    let mut from = 0;
    while let Some(at) = text.get(from..).and_then(|rest| rest.find(part)) {
        found.push(from + at);
        from += at + step;
    }
    found
}

/// The edit that an exact match of `old` at `at` asks for.
pub(super) enum Meaning {
    /// Exactly what was written.
    Literal,
    /// This text in place of this range.
    Instead(Range<usize>, String),
    /// It is ambiguous. The reason for the model.
    Unclear(&'static str),
    /// `old_string` is indented less than the file: match its lines as whole lines instead.
    Shallow,
}

/// The new lines belong either at the indentation of the match or at the margin.
const DEPTH: &str = "it does not tell how deep the new lines stand: give whole lines with their indentation";
/// Lines less similar than this are not treated as one changed line.
const ALIKE: f64 = 0.6;
const JOINED: &str = "it begins with a line break and new_string does not, which would join the new line to the one above: begin both alike";
const TWICE: &str = "the line goes on with the sign that new_string ends with, and would have it twice: end both alike";

/// Decides about a match that begins after the indentation of a line without including it. If new lines would get an
/// unintended indentation, it is corrected.
pub(super) fn meaning(content: &str, style: Style, at: usize, old: &str, new: &str) -> Meaning {
    let end = at + old.len();
    let tail = content.get(end..).unwrap_or_default();
    if doubles(tail, old, new) {
        return Meaning::Unclear(TWICE);
    }
    let head = content.get(..at).unwrap_or_default();
    let line_start = head.rfind('\n').map_or(0, |end| end + 1);
    let blanks = head.get(line_start..).unwrap_or_default();
    if old.starts_with('\n') && !blanks.trim().is_empty() {
        return of_line_above(at..end, tail, old, new);
    }
    if blanks.is_empty() || indent::of(blanks) != blanks || old.starts_with('\n') {
        return Meaning::Literal;
    }
    if old.starts_with(char::is_whitespace) {
        // Lines added next to the first one are indented relative to `old_string`, which is indented less than the
        // file.
        let kept = |line: &str| line.trim().is_empty() || old.lines().skip(1).any(|old| old == line);
        let literal = indent::of(new) == indent::of(old) && new.lines().skip(1).all(kept);
        return if literal { Meaning::Literal } else { Meaning::Shallow };
    }
    if new.is_empty() {
        // The line is deleted; its indentation must not remain in front of the next line.
        return match old.ends_with('\n') {
            true => Meaning::Instead(line_start..end, String::new()),
            false => Meaning::Literal,
        };
    }
    if old.trim_end_matches('\n').contains('\n') {
        return of_block(line_start..at, end, old, (blanks, new));
    }
    let ends_line = old.ends_with('\n') || tail.is_empty() || tail.starts_with('\n');
    match ends_line {
        true => of_line(line_start..at, end, old, (blanks, new, style)),
        false => Meaning::Literal,
    }
}

/// As [`meaning`], for a match of one line up to its end.
fn of_line(lost: Range<usize>, end: usize, old: &str, (blanks, new, style): (&str, &str, Style)) -> Meaning {
    let solid: Vec<&str> = new.lines().filter(|line| !line.trim().is_empty()).collect();
    let Some((first, rest)) = solid.split_first() else {
        return Meaning::Literal;
    };
    let deep = |line: &&str| line.starts_with(blanks);
    if indent::of(first) == blanks && rest.iter().all(deep) {
        let same = key(first, Tolerance::Blanks) == key(old, Tolerance::Blanks);
        let beside = rest.iter().any(|line| indent::of(line) == blanks);
        return match same {
            true if rest.is_empty() => Meaning::Literal,
            true if !infer_indent::opens(first) && !beside => Meaning::Unclear(DEPTH),
            _ => Meaning::Instead(lost.start..end, new.to_owned()),
        };
    }
    let leaves = closed(new) > closed(old);
    if !indent::of(first).is_empty() && !rest.is_empty() {
        return match indent::of(first) == blanks && leaves {
            true => Meaning::Instead(lost.start..end, new.to_owned()),
            false => Meaning::Unclear(DEPTH),
        };
    }
    // A line after one that opens a block or continues is deeper. If its indentation only equals that of the file's
    // line, it is relative to `old_string`.
    let opens = infer_indent::opens(first) || !infer_indent::is_balanced(first);
    let own_terms = opens && rest.first().is_some_and(|line| indent::of(line) == blanks);
    if own_terms && blanks.len() != style.step {
        return Meaning::Unclear(DEPTH);
    }
    // A single space is the margin of a block comment, which deeper lines do not have.
    if blanks == " " && rest.iter().any(|line| indent::of(line).len() > 1) {
        return Meaning::Unclear(DEPTH);
    }
    let absolute = rest.first().is_none_or(|line| !own_terms && deep(line));
    if absolute || !indent::of(first).is_empty() || new.starts_with('\n') {
        return Meaning::Literal;
    }
    let either = !own_terms && rest.iter().any(deep);
    if either || leaves || new.trim_end().contains("\n\n") || mixed(blanks, rest) || is_flat(&solid) {
        return Meaning::Unclear(DEPTH);
    }
    let deepened = new
        .split('\n')
        .enumerate()
        .map(|(index, line)| match line.trim().is_empty() || index == 0 {
            true => line.to_owned(),
            false => format!("{blanks}{line}"),
        });
    Meaning::Instead(lost.end..end, deepened.collect::<Vec<_>>().join("\n"))
}

/// `old_string` begins with the line end of the line above. If the new text does not, the two lines would be joined.
fn of_line_above(hit: Range<usize>, after: &str, old: &str, new: &str) -> Meaning {
    let first = old.lines().find(|line| !line.trim().is_empty());
    let (Some(first), Some(fresh)) = (first, new.lines().next().filter(|line| !line.trim().is_empty())) else {
        let joined = new.is_empty() && first.is_some() && old.ends_with('\n') && !after.starts_with('\n');
        return match joined {
            true => Meaning::Instead(hit.start + 1..hit.end, String::new()),
            false => Meaning::Literal,
        };
    };
    let level = indent::of(fresh) == indent::of(first);
    if level && (!indent::of(first).is_empty() || likeness(first, fresh) >= ALIKE) {
        return Meaning::Instead(hit.start + 1..hit.end, new.to_owned());
    }
    match fresh.starts_with(is_word) {
        true => Meaning::Unclear(JOINED),
        false => Meaning::Literal,
    }
}

/// Whether `old_string` lacks the punctuation at the end of its last line while the new text has it, so that it would
/// be doubled.
fn doubles(rest: &str, old: &str, new: &str) -> bool {
    let left = rest.lines().next().unwrap_or_default().trim_end();
    matches!(left, ";" | ",") && new.ends_with(left) && !old.ends_with(left)
}

/// As [`meaning`], for several lines of which only the first lacks its indentation: the other lines, and possibly the
/// first line of the new text, show the indentation of the file.
fn of_block(lost: Range<usize>, end: usize, old: &str, (blanks, new): (&str, &str)) -> Meaning {
    let (olds, news): (Vec<&str>, Vec<&str>) = (old.lines().collect(), new.lines().collect());
    let (Some(first), Some(opening)) = (news.first(), olds.first()) else {
        return Meaning::Literal;
    };
    let same = |a: &str, b: &str| !a.trim().is_empty() && key(a, Tolerance::Blanks) == key(b, Tolerance::Blanks);
    let own = indent::of(first);
    if strays(&olds, &news) || own.is_empty() && has_flat(&olds, &news) {
        return Meaning::Unclear(DEPTH);
    }
    if first.trim().is_empty() {
        return Meaning::Instead(lost.start..end, new.to_owned());
    }
    if same(first, opening) {
        let stays = |new: &&str| {
            let depth = |old: &&&str| indent::of(old) == indent::of(new);
            let partners = || olds.iter().skip(1).filter(|old| same(old, new));
            partners().next().map(|_| partners().any(|old| depth(&old)))
        };
        let later: Vec<bool> = news.iter().skip(1).filter_map(stays).collect();
        let deeper = least(&news).is_some_and(|new| least(&olds).is_none_or(|old| new > old));
        let absolute = later.contains(&true) || later.is_empty() && !deeper;
        // All lines became deeper, and so does the first line.
        let all_deeper = || least(&news).is_some_and(|depth| depth >= blanks.len() + own.len());
        return match own {
            "" => Meaning::Literal,
            _ if own == blanks && absolute => Meaning::Instead(lost.start..end, new.to_owned()),
            _ if own == blanks && all_deeper() => Meaning::Literal,
            _ => Meaning::Unclear(DEPTH),
        };
    }
    if news
        .iter()
        .skip(1)
        .any(|line| indent::of(line).is_empty() && same(line, opening))
    {
        return Meaning::Unclear(DEPTH);
    }
    // The first line is deleted: the line in its place was another line before, or is new.
    let kept = olds.iter().skip(1).find(|old| same(old, first));
    match kept {
        _ if own.is_empty() && kept.is_none_or(|old| indent::of(old) == blanks) => Meaning::Literal,
        Some(old) if indent::of(old) == own => Meaning::Instead(lost.start..end, new.to_owned()),
        None if own.starts_with(blanks) => Meaning::Instead(lost.start..end, new.to_owned()),
        _ => Meaning::Unclear(DEPTH),
    }
}

/// Whether a new line is unindented although no unchanged line before it is: it may have lost its indentation like the
/// first line.
fn strays(olds: &[&str], news: &[&str]) -> bool {
    let mut at_margin = false;
    news.iter()
        .enumerate()
        .skip(1)
        .filter(|(_, line)| !line.trim().is_empty())
        .any(|(at, line)| {
            let stays = olds.iter().skip(1).any(|old| old == line) || olds.get(at) == Some(line);
            if stays {
                at_margin = indent::of(line).is_empty();
            }
            !stays && !at_margin && indent::of(line).is_empty() && !infer_indent::closes(line)
        })
}

/// The smallest indentation of the lines after the first.
fn least(lines: &[&str]) -> Option<usize> {
    let solid = lines.iter().skip(1).filter(|line| !line.trim().is_empty());
    solid.map(|line| indent::of(line).len()).min()
}

/// Whether a block is not indented, so that the indentation of its lines is unknown. `case` labels and list items may
/// have the indentation of their parent.
fn is_flat(lines: &[&str]) -> bool {
    let item = |line: &str| {
        ["- ", "case ", "default:"]
            .iter()
            .any(|mark| line.trim_start().starts_with(mark))
    };
    let pairs = lines.iter().zip(lines.iter().skip(1));
    pairs.into_iter().any(|(line, next)| {
        let inside = infer_indent::opens(line) && !infer_indent::closes(next) && !item(next);
        inside && indent::of(next).len() <= indent::of(line).len()
    })
}

/// Whether new lines form a block that is not indented, except for the first line, whose indentation is known.
fn has_flat(olds: &[&str], news: &[&str]) -> bool {
    let fresh = |line: &&str| !line.trim().is_empty() && !olds.contains(line);
    let rest: Vec<&str> = news
        .iter()
        .skip(1)
        .copied()
        .filter(|line| !line.trim().is_empty())
        .collect();
    rest.windows(2).any(|pair| pair.iter().any(fresh) && is_flat(pair))
}

/// Whether tabs and spaces are mixed, so that the width of a step is unknown.
fn mixed(blanks: &str, rest: &[&str]) -> bool {
    let first = blanks.chars().next();
    rest.iter()
        .flat_map(|line| indent::of(line).chars())
        .any(|c| Some(c) != first)
}

/// Number of closing brackets without an opening one: how many blocks the text leaves.
fn closed(text: &str) -> i64 {
    let (mut depth, mut least) = (0_i64, 0);
    for c in text.chars() {
        depth += match c {
            '(' | '[' | '{' => 1,
            ')' | ']' | '}' => -1,
            _ => 0,
        };
        least = depth.min(least);
    }
    -least
}

#[cfg(test)]
mod tests {
    use super::*;

    fn result(content: &str, old: &str, new: &str) -> Option<String> {
        let at = content.find(old).unwrap();
        let (range, text) = match meaning(content, Style::of(content), at, old, new) {
            Meaning::Literal => (at..at + old.len(), new.to_owned()),
            Meaning::Instead(range, text) => (range, text),
            Meaning::Unclear(_) | Meaning::Shallow => return None,
        };
        Some(format!("{}{text}{}", &content[..range.start], &content[range.end..]))
    }

    #[test]
    fn lost_blanks_are_given_back() {
        let file = "def f():\n    foo()\n    bar()\n";
        let cases = [
            ("foo()\n", "", Some("def f():\n    bar()\n")),
            (
                "foo()",
                "if x:\n    foo()",
                Some("def f():\n    if x:\n        foo()\n    bar()\n"),
            ),
            (
                "foo()\n",
                "a()\nfoo()\n",
                Some("def f():\n    a()\n    foo()\n    bar()\n"),
            ),
            ("foo()", "    baz()", Some("def f():\n    baz()\n    bar()\n")),
            ("foo()", "    foo()", Some("def f():\n        foo()\n    bar()\n")),
            (
                "foo()",
                "    foo()\n    b()",
                Some("def f():\n    foo()\n    b()\n    bar()\n"),
            ),
            ("foo()", "    foo()\n        b()", None),
            ("  foo()", "  foo()\n  b()", None),
            ("foo()", "a()\n    b()", Some("def f():\n    a()\n    b()\n    bar()\n")),
            ("foo()", "}\nfoo()", None),
            (
                "foo()",
                "    x()\n}\ny()",
                Some("def f():\n    x()\n}\ny()\n    bar()\n"),
            ),
            ("foo()", "    x()\ny()", None),
            ("foo()", "  x()\n  y()", None),
            ("bar()", "bar()\n\nX = 1", None),
            ("foo()\n    bar()", "    bar()", Some("def f():\n    bar()\n")),
            ("foo()\n    bar()", "bar()", Some("def f():\n    bar()\n")),
            (
                "foo()\n    bar()",
                "    x()\n    bar()",
                Some("def f():\n    x()\n    bar()\n"),
            ),
            (
                "foo()\n    bar()",
                "    foo()\n    bar(1)",
                Some("def f():\n    foo()\n    bar(1)\n"),
            ),
            (
                "foo()\n    bar()",
                "    foo()\n    x()\n    bar()",
                Some("def f():\n    foo()\n    x()\n    bar()\n"),
            ),
            (
                "foo()\n    bar()",
                "    foo()\n        bar()",
                Some("def f():\n        foo()\n        bar()\n"),
            ),
            ("foo()\n    bar()", "foo()\nx()\n    bar()", None),
            ("foo()\n    bar()", "    foo()", Some("def f():\n    foo()\n")),
            ("foo()\n    bar()", "\n    bar()", Some("def f():\n\n    bar()\n")),
            ("foo()\n    bar()", "  x()\n    bar()", None),
            ("\n    foo()", "    foo(1)", Some("def f():\n    foo(1)\n    bar()\n")),
            ("\n    foo()\n", "", Some("def f():\n    bar()\n")),
            ("\n    foo()", "", Some("def f():\n    bar()\n")),
            ("\n    foo()", "\n    x()", Some("def f():\n    x()\n    bar()\n")),
            ("\n    foo()", " foo()", Some("def f(): foo()\n    bar()\n")),
            ("\n    foo()", "x()", None),
            ("foo(", "foo(1, ", Some("def f():\n    foo(1, )\n    bar()\n")),
            ("foo", "a\nb", Some("def f():\n    a\nb()\n    bar()\n")),
        ];
        assert_eq!(result("  a,\n  b\n", "  a", "  c,"), None);
        assert_eq!(result("  a,\n  b\n", "  a,", "  c,").as_deref(), Some("  c,\n  b\n"));
        for (old, new, expected) in cases {
            assert_eq!(result(file, old, new).as_deref(), expected, "{old:?} {new:?}");
        }
    }
}
