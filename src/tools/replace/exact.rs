//! Exact hits, and the one thing that goes wrong with them: a copy that lost the blanks its line begins with.

use super::between;
use super::find::{Tolerance, key};
use super::indent::{self, Style};
use super::tokens::{is_word, likeness};
use std::ops::Range;

/// Every place of `part` in `text`, overlapping ones too.
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

/// What an exact hit of `old` at `at` asks for.
pub(super) enum Meaning {
    /// Just what was written.
    Literal,
    /// This, in place of the range.
    Instead(Range<usize>, String),
    /// Two things can be meant. The reason, told to the model.
    Unclear(&'static str),
    /// The copy is less deep than the file: its lines are to be found as whole lines.
    Shallow,
}

/// The new lines belong either here or at the margin.
const DEPTH: &str = "it does not tell how deep the new lines stand: give whole lines with their indentation";
/// Lines less alike than this are not the same one changed.
const ALIKE: f64 = 0.6;
const JOINED: &str = "it begins with a line break and new_string does not, which would join the new line to the one above: begin both alike";
const TWICE: &str = "the line goes on with the sign that new_string ends with, and would have it twice: end both alike";

/// `old` hits after the blanks of a line and does not have them itself. Where that makes lines stand at a depth that
/// nobody asked for, the blanks are dealt with.
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
        // Lines that come beside the first one are told in terms of a copy that is less deep than the file.
        let kept = |line: &str| line.trim().is_empty() || old.lines().skip(1).any(|old| old == line);
        let literal = indent::of(new) == indent::of(old) && new.lines().skip(1).all(kept);
        return if literal { Meaning::Literal } else { Meaning::Shallow };
    }
    if new.is_empty() {
        // The line goes, and its blanks must not stay in front of the next.
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

/// As [`meaning`], for a copy of one line up to its end.
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
            true if !between::opens(first) && !beside => Meaning::Unclear(DEPTH),
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
    // Below a line that opens a block or goes on stands a deeper one: no deeper than the file's line is deep in the
    // copy's terms.
    let opens = between::opens(first) || !between::is_balanced(first);
    let own_terms = opens && rest.first().is_some_and(|line| indent::of(line) == blanks);
    if own_terms && blanks.len() != style.step {
        return Meaning::Unclear(DEPTH);
    }
    // One blank is the edge of a comment, and in no line that is deeper.
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

/// The copy begins with the end of the line above. Where the new text does not, the two lines would become one.
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

/// Whether the copy lacks the sign that its last line ends with, and the new text brings it.
fn doubles(rest: &str, old: &str, new: &str) -> bool {
    let left = rest.lines().next().unwrap_or_default().trim_end();
    matches!(left, ";" | ",") && new.ends_with(left) && !old.ends_with(left)
}

/// As [`meaning`], for a copy of several lines of which only the first has lost its blanks: the others say how deep the
/// file is, and so may the first line of the new text.
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
        // All stands deeper than it did, as the first line does then.
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
    // The first line goes: what stands there now was another line, or is new.
    let kept = olds.iter().skip(1).find(|old| same(old, first));
    match kept {
        _ if own.is_empty() && kept.is_none_or(|old| indent::of(old) == blanks) => Meaning::Literal,
        Some(old) if indent::of(old) == own => Meaning::Instead(lost.start..end, new.to_owned()),
        None if own.starts_with(blanks) => Meaning::Instead(lost.start..end, new.to_owned()),
        _ => Meaning::Unclear(DEPTH),
    }
}

/// Whether a line that is new stands at the margin, and no line before it that stays does: it may have lost its blanks
/// as the first line of the copy has.
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
            !stays && !at_margin && indent::of(line).is_empty() && !between::closes(line)
        })
}

/// The least indentation of the lines after the first.
fn least(lines: &[&str]) -> Option<usize> {
    let solid = lines.iter().skip(1).filter(|line| !line.trim().is_empty());
    solid.map(|line| indent::of(line).len()).min()
}

/// A block without depth: how deep its lines stand cannot be told. Cases and items stand as deep as what they are of.
fn is_flat(lines: &[&str]) -> bool {
    let item = |line: &str| {
        ["- ", "case ", "default:"]
            .iter()
            .any(|mark| line.trim_start().starts_with(mark))
    };
    let pairs = lines.iter().zip(lines.iter().skip(1));
    pairs.into_iter().any(|(line, next)| {
        let inside = between::opens(line) && !between::closes(next) && !item(next);
        inside && indent::of(next).len() <= indent::of(line).len()
    })
}

/// Whether new lines are a block without depth, the first line left out: its depth is known.
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

/// Tabs here and blanks there: how deep a step is cannot be told.
fn mixed(blanks: &str, rest: &[&str]) -> bool {
    let first = blanks.chars().next();
    rest.iter()
        .flat_map(|line| indent::of(line).chars())
        .any(|c| Some(c) != first)
}

/// How many brackets are closed that were not opened before: so many blocks does the text leave.
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
