//! Handles exact matches, including those where `old_string` lacks the indentation of its first line.

use super::indent::{self, Style};
use super::tokens::{ALIKE, key, likeness};
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
        return Meaning::Shallow;
    }
    let ends_line = old.ends_with('\n') || tail.is_empty() || tail.starts_with('\n');
    match ends_line {
        true => of_line(line_start..at, end, (blanks, style), (old, new)),
        false => Meaning::Literal,
    }
}

/// As [`meaning`], for a match of one line up to its end.
fn of_line(lost: Range<usize>, end: usize, (blanks, style): (&str, Style), (old, new): (&str, &str)) -> Meaning {
    let solid: Vec<&str> = new.lines().filter(|line| !line.trim().is_empty()).collect();
    let Some((first, rest)) = solid.split_first() else {
        return Meaning::Literal;
    };
    let deep = |line: &&str| line.starts_with(blanks);
    let own = indent::of(first);
    if !own.is_empty() {
        let beside = rest.is_empty() || indent::opens(first) || rest.iter().any(|line| indent::of(line) == blanks);
        return match key(first) == key(old) {
            true if rest.is_empty() => Meaning::Literal,
            true if !beside => Meaning::Unclear(DEPTH),
            _ if own == blanks && rest.iter().all(deep) => Meaning::Instead(lost.start..end, new.to_owned()),
            _ => Meaning::Unclear(DEPTH),
        };
    }
    // A line after one that opens a block or continues is deeper. If its indentation only equals that of the file's
    // line, it is relative to `old_string`.
    let opens = indent::opens(first) || !indent::is_balanced(first);
    let inside = rest
        .first()
        .is_some_and(|line| indent::of(line).len() > blanks.len() || !opens);
    if rest.is_empty() || rest.iter().all(deep) && inside {
        return Meaning::Literal;
    }
    let one_step = opens && blanks.len() == style.step && rest.first().is_some_and(|line| indent::of(line) == blanks);
    let apart = new.trim_end().contains("\n\n") || !indent::is_balanced(new);
    if rest.iter().any(deep) && !one_step || is_flat(&solid) || apart {
        return Meaning::Unclear(DEPTH);
    }
    let lines = new.split('\n').enumerate();
    let deepened = lines.map(|(index, line)| match line.trim().is_empty() || index == 0 {
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
    match fresh.starts_with([' ', '\t', ',', ';', '.']) {
        true => Meaning::Literal,
        false => Meaning::Unclear(JOINED),
    }
}

/// Whether `old_string` lacks the punctuation at the end of its last line while the new text has it, so that it would
/// be doubled.
fn doubles(rest: &str, old: &str, new: &str) -> bool {
    let left = rest.lines().next().unwrap_or_default().trim_end();
    matches!(left, ";" | ",") && new.ends_with(left) && !old.ends_with(left)
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
        let inside = indent::opens(line) && !indent::closes(next) && !item(next);
        inside && indent::of(next).len() <= indent::of(line).len()
    })
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
            if result(file, old, new).as_deref() != expected {
                eprintln!("XX {old:?} {new:?} {expected:?} GOT {:?}", result(file, old, new));
            }
        }
    }
}
