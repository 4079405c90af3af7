//! Handles exact matches: those where `old_string` lacks the indentation of its first line, and those whose new text is
//! indented with tabs where the file uses spaces, or the reverse.

use super::failure::MANY;
use super::indent::IndentMap;
use super::lines::{Style, closes, indent_of, is_balanced, opens};
use super::parts::align;
use super::tokens::{ALIKE, key, likeness};
use crate::workspace::text::Text;
use memchr::memmem::Finder;
use std::cell::OnceCell;
use std::ops::Range;

/// The positions of `part` in `text`, including overlapping ones; at most one more than `MANY`, because each costs up
/// to the length of `part`.
pub(super) fn overlapping(text: &str, part: &str) -> Vec<usize> {
    let finder = Finder::new(part.as_bytes());
    let mut found = Vec::new();
    let step = part.chars().next().map_or(1, char::len_utf8);
    let mut from = 0;
    while found.len() <= MANY
        && let Some(at) = text.as_bytes().get(from..).and_then(|rest| finder.find(rest))
    {
        found.push(from + at);
        from += at + step;
    }
    found
}

/// As [`overlapping`], only the positions at which a line begins.
pub(super) fn at_line_starts(text: &str, part: &str) -> Vec<usize> {
    let first = text.starts_with(part).then_some(0);
    let below = overlapping(text, &format!("\n{part}")).into_iter().map(|at| at + 1);
    first.into_iter().chain(below).collect()
}

/// The file of an edit, and how it is indented.
pub(super) struct Lines<'a> {
    text: &'a Text,
    pub(super) style: Style,
    /// How many lines are indented with tabs, and with spaces.
    uses: OnceCell<(usize, usize)>,
}

impl<'a> Lines<'a> {
    pub(super) fn of(text: &'a Text) -> Self {
        Self {
            text,
            style: Style::of(text.as_str()),
            uses: OnceCell::new(),
        }
    }

    /// How many lines have `sign`, a tab or two spaces, in their indentation. Counted once for all matches.
    fn uses(&self, sign: &str) -> usize {
        let content = self.text.as_str();
        let (tabs, spaces) = *self.uses.get_or_init(|| (uses(content, "\t"), uses(content, "  ")));
        if sign == "\t" { tabs } else { spaces }
    }
}

/// How many lines of a text have `sign` in their indentation.
fn uses(text: &str, sign: &str) -> usize {
    let solid = text.lines().filter(|line| !line.trim().is_empty());
    solid.filter(|line| indent_of(line).contains(sign)).count()
}

/// What an edit with an exact match of `old_string` means.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Meaning {
    /// Exactly what was written.
    Literal,
    /// This text in place of this range.
    Instead(Range<usize>, String),
    /// It is ambiguous. The reason for the model.
    Unclear(String),
    /// `old_string` is indented less than the file: match its lines as whole lines instead.
    Shallow,
}

/// The new lines belong either at the indentation of the match or at the margin.
const DEPTH: &str = "it does not show how deep the new lines are indented: give whole lines with their indentation";
const JOINED: &str = "it begins with a line break and new_string does not, which would join the new line to the one above: begin both the same way";
const TWICE: &str =
    "the line continues with the character that new_string ends with, which would be doubled: end both the same way";

/// Decides about a match that begins after the indentation of a line without including it. If new lines would get an
/// unintended indentation, it is corrected.
pub(super) fn meaning(file: &Lines<'_>, at: usize, old: &str, new: &str) -> Meaning {
    let content = file.text.as_str();
    let end = at + old.len();
    let tail = content.get(end..).unwrap_or_default();
    if doubles(tail, old, new) {
        return Meaning::Unclear(TWICE.to_owned());
    }
    let line_start = file.text.line_start(at);
    let blanks = content.get(line_start..at).unwrap_or_default();
    let ends_line = old.ends_with('\n') || tail.is_empty() || tail.starts_with('\n');
    if blanks.is_empty() && ends_line {
        return of_lines(file, at..end, old, new);
    }
    if old.starts_with('\n') && !blanks.trim().is_empty() {
        return of_line_above(at..end, tail, old, new);
    }
    if blanks.is_empty() || indent_of(blanks) != blanks || old.starts_with('\n') {
        return Meaning::Literal;
    }
    if old.starts_with(char::is_whitespace) {
        return Meaning::Shallow;
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
    match ends_line {
        true => of_line(line_start..at, end, blanks, (old, new)),
        false => Meaning::Literal,
    }
}

/// As [`meaning`], for a match of one line up to its end.
fn of_line(lost: Range<usize>, end: usize, blanks: &str, (old, new): (&str, &str)) -> Meaning {
    let solid: Vec<&str> = new.lines().filter(|line| !line.trim().is_empty()).collect();
    let Some((first, rest)) = solid.split_first() else {
        return Meaning::Literal;
    };
    let deep = |line: &&str| line.starts_with(blanks);
    let own = indent_of(first);
    if !own.is_empty() {
        let beside = rest.is_empty() || opens(first) || rest.iter().any(|line| indent_of(line) == blanks);
        return match key(first) == key(old) {
            true if rest.is_empty() => Meaning::Literal,
            true if !beside => Meaning::Unclear(DEPTH.to_owned()),
            _ if own == blanks && rest.iter().all(deep) => Meaning::Instead(lost.start..end, new.to_owned()),
            _ => Meaning::Unclear(DEPTH.to_owned()),
        };
    }
    // A line after one that opens a block or continues is deeper. If its indentation only equals that of the file's
    // line, it is relative to `old_string`.
    let opens = opens(first) || !is_balanced(first);
    let inside = rest
        .first()
        .is_some_and(|line| indent_of(line).len() > blanks.len() || !opens);
    if rest.is_empty() || rest.iter().all(deep) && inside {
        return Meaning::Literal;
    }
    if is_flat(&solid) || new.trim_end().contains("\n\n") || !is_balanced(new) {
        return Meaning::Unclear(DEPTH.to_owned());
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
    let level = indent_of(fresh) == indent_of(first);
    if level && (!indent_of(first).is_empty() || likeness(first, fresh) >= ALIKE) {
        return Meaning::Instead(hit.start + 1..hit.end, new.to_owned());
    }
    match fresh.starts_with([' ', '\t', ',', ';']) {
        true => Meaning::Literal,
        false => Meaning::Unclear(JOINED.to_owned()),
    }
}

/// Whether `old_string` lacks the punctuation at the end of its last line while the new text has it, so that it would
/// be doubled.
fn doubles(rest: &str, old: &str, new: &str) -> bool {
    let sign = rest.chars().next().filter(|sign| matches!(sign, ';' | ','));
    let Some(sign) = sign.filter(|sign| new.ends_with(*sign) && !old.ends_with(*sign)) else {
        return false;
    };
    let after = rest.strip_prefix(sign).unwrap_or_default();
    let after = after.trim_start_matches(|c: char| c != '\n' && c.is_whitespace());
    after.is_empty() || after.starts_with('\n')
}

/// Whether a block is not indented, so that the indentation of its lines is unknown.
fn is_flat(lines: &[&str]) -> bool {
    let pairs = lines.iter().zip(lines.iter().skip(1));
    pairs.into_iter().any(|(line, next)| {
        let inside = opens(line) && !closes(next);
        inside && indent_of(next).len() <= indent_of(line).len()
    })
}

/// Number of indented lines that show how a file is indented.
const SHOWN: usize = 3;

/// As [`meaning`], for whole lines. They are replaced byte by byte, unless the new ones are indented with tabs and the
/// file only with spaces, or the reverse: then their indentation is converted, as inferred from the first line that the
/// edit keeps.
fn of_lines(file: &Lines<'_>, hit: Range<usize>, old: &str, new: &str) -> Meaning {
    let signs = [("tabs", "\t", "spaces", "  "), ("spaces", "  ", "tabs", "\t")];
    let strange = |(_, own, _, other): &(&str, &str, &str, &str)| {
        uses(new, other) > 0 && uses(old, other) == 0 && file.uses(other) == 0 && file.uses(own) >= SHOWN
    };
    let Some((own, _, other, sign)) = signs.into_iter().find(strange) else {
        return Meaning::Literal;
    };
    let (olds, news): (Vec<&str>, Vec<&str>) = (old.split('\n').collect(), new.split('\n').collect());
    let keys = |lines: &[&str]| {
        lines
            .iter()
            .map(|line| key(line))
            .filter(|key| !key.is_empty())
            .collect::<Vec<_>>()
    };
    // An edit that changes only whitespace is intended.
    if keys(&olds) == keys(&news) {
        return Meaning::Literal;
    }
    let partners = news.iter().zip(align(&olds, &news));
    let mut pairs: Vec<(&str, &str)> = partners
        .filter_map(|(new, partner)| Some((*new, *olds.get(partner?)?)))
        .filter(|(new, old)| !indent_of(new).is_empty() && likeness(new, old) >= ALIKE)
        .map(|(new, old)| (indent_of(new), indent_of(old)))
        .take(1)
        .collect();
    pairs.push(("", ""));
    let solid = news.iter().filter(|line| !line.trim().is_empty());
    let map = IndentMap::learn(
        &pairs,
        &solid.map(|line| indent_of(line)).collect::<Vec<_>>(),
        file.style,
    );
    let line = |line: &&str| match line.trim().is_empty() {
        true => Some((*line).to_owned()),
        false => Some(map.image(indent_of(line))? + line.trim_start_matches([' ', '\t'])),
    };
    match news.iter().map(line).collect::<Option<Vec<_>>>() {
        Some(lines) if pairs.len() > 1 => Meaning::Instead(hit, lines.join("\n")),
        _ => {
            let line = news
                .iter()
                .find(|line| indent_of(line).contains(sign))
                .map_or("", |line| line.trim());
            Meaning::Unclear(format!(
                "the file indents with {own} only and the new line `{line}` with {other}: write it with {own}"
            ))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workspace::text::decode;

    fn result(content: &str, old: &str, new: &str) -> Option<String> {
        let found_edit = super::super::find_edit(&decode(content.as_bytes()).unwrap(), old, new, false).ok()?;
        Some(String::from_utf8(found_edit.bytes).unwrap())
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
            (
                "  foo()",
                "  foo()\n  b()",
                Some("def f():\n    foo()\n    b()\n    bar()\n"),
            ),
            ("foo()", "a()\n    b()", Some("def f():\n    a()\n    b()\n    bar()\n")),
            ("foo()", "}\nfoo()", None),
            ("foo()", "    x()\n}\ny()", None),
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
            ("foo()\n    bar()", "    foo()\n        bar()", None),
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

    fn judged(file: &str, old: &str, new: &str) -> Meaning {
        let text = decode(file.as_bytes()).unwrap();
        meaning(&Lines::of(&text), file.find(old).unwrap(), old, new)
    }

    const RUST: &str = "fn f() {\n    if a {\n        b();\n        c();\n    }\n    e();\n}\n";
    const GO: &str = "func f() {\n\tif a {\n\t\tb()\n\t}\n}\n";

    #[test]
    fn whole_lines_are_taken_at_their_word() {
        for (old, new) in [
            ("        c();\n", "c(1);\n"),
            ("    if a {\n        b();\n", "if a {\nb(1);\n"),
            ("        c();\n", "        if x {\n          c();\n        }\n"),
            ("        c();\n", "\t\tc();\n"),
        ] {
            assert_eq!(judged(RUST, old, new), Meaning::Literal, "{new:?}");
        }
        assert_eq!(judged("a:\n\tb\n", "\tb\n", "    c\n"), Meaning::Literal);
        assert_eq!(judged(GO, "\t\tb()\n", "\t\t// * a\n"), Meaning::Literal);
    }

    #[test]
    fn the_other_kind_of_blanks_becomes_that_of_the_file() {
        let ours = |file, old, new| match judged(file, old, new) {
            Meaning::Instead(_, text) => text,
            other => panic!("{other:?}"),
        };
        let new = "\tif a {\n\t\tb(1);\n\t\tif d {\n\t\t\tc();\n";
        let asked = "    if a {\n        b(1);\n        if d {\n            c();\n";
        assert_eq!(ours(RUST, "    if a {\n        b();\n        c();\n", new), asked);
        assert_eq!(ours(GO, "\t\tb()\n", "    b(1)\n"), "\t\tb(1)\n");
        for (file, old, new) in [
            (RUST, "        c();\n", "\t\twholly_other(x);\n"),
            (RUST, "        c();\n", "\t\tc(1);\n        d();\n"),
            (GO, "\tif a {\n\t\tb()\n", "  if x {\n\t\tb(1)\n"),
            (RUST, "        b();\n", "\t\tif d {\n\t\t\tb();\n\t\t}\n"),
        ] {
            assert!(matches!(judged(file, old, new), Meaning::Unclear(_)), "{new:?}");
        }
    }
}
