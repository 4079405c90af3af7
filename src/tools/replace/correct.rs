//! Proposes corrections for typical copying errors of models: code fences, line numbers, escapes, typographic
//! characters. `matcher` tries them.

use crate::workspace::text::plain_line_ends;
use serde::Serialize;
use std::fmt;

/// A correction of the request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Correction {
    CodeFence,
    LineNumbers,
    Escapes,
}

impl fmt::Display for Correction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::CodeFence => "code fence removed",
            Self::LineNumbers => "line numbers removed",
            Self::Escapes => "escapes resolved",
        })
    }
}

/// A variant of a request: its texts after some corrections.
#[derive(Clone, Debug)]
pub(super) struct Reading {
    pub(super) old: String,
    pub(super) new: String,
    pub(super) corrections: Vec<Correction>,
    /// Why the corrected new text is ambiguous, if it is.
    pub(super) doubt: Option<&'static str>,
}

impl Reading {
    fn corrected(&self, by: Correction, old: String, new: String) -> Self {
        let corrections = self.corrections.iter().copied().chain([by]).collect();
        Self {
            old,
            new,
            corrections,
            doubt: self.doubt,
        }
    }
}

/// The text with a final line end, because fences and listings contain whole lines.
fn whole(text: &str) -> String {
    let end = if text.is_empty() || text.ends_with('\n') {
        ""
    } else {
        "\n"
    };
    format!("{text}{end}")
}

/// All variants, the unchanged request first, then those with fewer corrections before those with more.
pub(super) fn readings(old: &str, new: &str) -> Vec<Reading> {
    let plain = Reading {
        old: old.to_owned(),
        new: new.to_owned(),
        corrections: Vec::new(),
        doubt: None,
    };
    let mut readings = vec![plain];
    for step in [escapes, fences, line_numbers] {
        let further: Vec<Reading> = readings.iter().flat_map(step).collect();
        readings.extend(further);
    }
    readings.sort_by_key(|reading| reading.corrections.len());
    readings
}

fn fences(reading: &Reading) -> Vec<Reading> {
    let Some(old) = unfenced(&reading.old) else {
        return Vec::new();
    };
    let new = unfenced(&reading.new).unwrap_or_else(|| whole(&reading.new));
    vec![reading.corrected(Correction::CodeFence, old, new)]
}

fn unfenced(text: &str) -> Option<String> {
    let body = text.trim_matches('\n').trim_start();
    let (opening, rest) = body.split_once('\n')?;
    opening.strip_prefix("```")?;
    let inside = rest.trim_end().strip_suffix("```")?;
    Some(whole(inside))
}

/// The number and the rest of a line with a prefix as in file listings: `  12: `, `12\t`, `L12: `, `12 | `, `+ 12: `.
fn numbered(line: &str) -> Option<(u64, &str, &str)> {
    let rest = line.trim_start_matches([' ', '+', '-', '>', 'L', 'l']);
    let digits = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
    let (number, after) = rest.split_at(digits);
    let number = number.parse().ok()?;
    for separator in [":", "\t", "→", " | ", " |", "|", "│", "- "] {
        if let Some(text) = after.strip_prefix(separator) {
            return Some((number, separator, text));
        }
    }
    // A listing whose trailing spaces were stripped shows an empty line as a bare number.
    after.is_empty().then_some((number, "", ""))
}

fn line_numbers(reading: &Reading) -> Vec<Reading> {
    let Some(first) = reading
        .old
        .lines()
        .find(|line| !line.trim().is_empty())
        .and_then(numbered)
    else {
        return Vec::new();
    };
    let begun = reading.old.lines().skip_while(|line| line.trim().is_empty());
    for (expected, line) in (first.0..).zip(begun) {
        match numbered(line) {
            Some((number, kind, _)) if number == expected && (kind == first.1 || kind.is_empty()) => {}
            None if line.trim().is_empty() => {}
            _ => return Vec::new(),
        }
    }
    let most = reading.old.lines().count() + reading.new.lines().count();
    let range = first.0..=first.0.saturating_add(most as u64);
    let strip = |text: &str, blank: bool| {
        let text = whole(text);
        let lines = text.split('\n').map(|line| match numbered(line) {
            Some((number, kind, rest)) if range.contains(&number) && (kind == first.1 || kind.is_empty()) => {
                if blank {
                    rest.strip_prefix(' ').unwrap_or(rest)
                } else {
                    rest
                }
            }
            _ => line,
        });
        lines.collect::<Vec<_>>().join("\n")
    };
    let mut rests = reading.old.lines().filter_map(numbered).map(|(_, _, rest)| rest);
    let spaced = rests.all(|rest| rest.trim().is_empty() || rest.starts_with(' '));
    [true, false]
        .into_iter()
        .filter(|blank| spaced || !blank)
        .map(|blank| {
            reading.corrected(
                Correction::LineNumbers,
                strip(&reading.old, blank),
                strip(&reading.new, blank),
            )
        })
        .collect()
}

/// Everything that is escaped in a JSON string.
const ALL: &str = "\n\r\t\"\\";
const QUOTES: &str = "\"";
const BREAKS: &str = "\n\r";

fn escapes(reading: &Reading) -> Vec<Reading> {
    let all = [ALL, QUOTES, BREAKS].into_iter();
    let resolved = all.map(|signs| (signs, resolved(&reading.old, signs)));
    resolved
        .filter(|(_, old)| *old != reading.old)
        .map(|(signs, old)| {
            let set = shown(&reading.old, &reading.new, signs);
            let new = self::resolved(&reading.new, set.unwrap_or_default());
            let mut found = reading.corrected(Correction::Escapes, old, new);
            let doubt = "the new text mixes escaped and plain line breaks or quotes";
            found.doubt = found.doubt.or(set.is_none().then_some(doubt));
            found
        })
        .collect()
}

/// The parts of a text: characters, and escapes with the character that each stands for.
fn pieces(text: &str) -> impl Iterator<Item = (&str, Option<char>)> {
    let mut rest = text;
    std::iter::from_fn(move || {
        let mut chars = rest.chars();
        let first = chars.next()?;
        let sign = match (first, chars.next()) {
            ('\\', Some('n')) => Some('\n'),
            ('\\', Some('r')) => Some('\r'),
            ('\\', Some('t')) => Some('\t'),
            ('\\', Some(sign @ ('"' | '\\'))) => Some(sign),
            _ => None,
        };
        let (piece, after) = rest.split_at(if sign.is_some() { 2 } else { first.len_utf8() });
        rest = after;
        Some((piece, sign))
    })
}

/// Resolves one level of the escapes for `signs`. Where only line breaks are escaped, tabs after them are as well.
fn resolved(text: &str, signs: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for (piece, sign) in pieces(text) {
        match sign {
            Some(sign) if signs.contains(sign) || signs == BREAKS && sign == '\t' && out.ends_with(['\n', '\t']) => {
                out.push(sign)
            }
            _ => out.push_str(piece),
        }
    }
    plain_line_ends(&out)
}

/// The characters that the new text escapes once too often, like the old text; `""` if none, `None` if it is ambiguous.
/// `signs`: the characters to consider, which are escaped in the old text.
fn shown(old: &str, new: &str, signs: &'static str) -> Option<&'static str> {
    let escapes = |text: &str, of: &str| {
        let mut all = pieces(text).filter_map(|(_, sign)| sign);
        all.any(|sign| signs.contains(sign) && of.contains(sign))
    };
    let (quotes, breaks) = (escapes(old, QUOTES), escapes(old, BREAKS));
    let (wrong, right) = (escapes(new, QUOTES), pieces(new).any(|(piece, _)| piece == QUOTES));
    let lines = new.trim_matches('\n').contains('\n');
    let outside = wrong && breaks_outside(new);
    if quotes && wrong && right || wrong && lines && (breaks || outside) {
        return None;
    }
    // With real line breaks, the escapes in the text are intended.
    if quotes && right || breaks && lines || quotes && !wrong && !breaks {
        return Some("");
    }
    match signs {
        ALL if outside || breaks && (quotes || wrong) || escapes(old, "\t\\") => Some(ALL),
        ALL if quotes && !has_other_escape(new) => Some("\"\\"),
        // It is unknown whether backslashes are escaped as well.
        ALL if escapes(new, "\\") => None,
        ALL => Some(BREAKS),
        _ => Some(signs),
    }
}

/// Whether an escaped backslash begins no escape that strings of most languages have: `\\.` may stand for `\.` or for itself.
fn has_other_escape(text: &str) -> bool {
    let mut pieces = pieces(text).peekable();
    while let Some((_, sign)) = pieces.next() {
        let next = pieces.peek().and_then(|(piece, _)| piece.chars().next());
        if sign == Some('\\') && !next.is_some_and(|next| "nrt\\\"".contains(next)) {
            return true;
        }
    }
    false
}

/// Whether an escaped line break occurs outside all strings in double quotes.
fn breaks_outside(text: &str) -> bool {
    let mut inside = false;
    pieces(text).any(|(piece, sign)| {
        inside ^= sign == Some('"') || piece == QUOTES;
        !inside && sign == Some('\n')
    })
}

/// `text` with ordinary spaces for typographic ones at the start of lines, and without zero-width characters.
pub(super) fn plain_margins(text: &str) -> String {
    let plain = |line: &str| {
        let line = line.replace(WIDTHLESS, "");
        let body = line.trim_start();
        let margin = line.get(..line.len() - body.len()).unwrap_or_default();
        let sign = |c: char| if c == '\t' { c } else { ' ' };
        margin.chars().map(sign).collect::<String>() + body
    };
    text.split('\n').map(plain).collect::<Vec<_>>().join("\n")
}

/// Zero-width characters.
const WIDTHLESS: [char; 3] = ['\u{200b}', '\u{feff}', '\u{2060}'];

#[cfg(test)]
mod tests {
    use super::*;

    fn has(old: &str, new: &str, expected: (&str, &str)) {
        let found = readings(old, new);
        let there = found
            .iter()
            .any(|reading| (reading.old.as_str(), reading.new.as_str()) == expected);
        assert!(there, "{old:?} -> {new:?}: {found:#?}");
    }

    #[test]
    fn line_numbers_go_from_both() {
        has(
            "  9: a\n 10:   b",
            "  9: a\n 10:   c\n 11: d",
            ("a\n  b\n", "a\n  c\nd\n"),
        );
        has("L12: a\nL13: b", "x\ny", ("a\nb\n", "x\ny\n"));
        has("12\ta\n13\t\tb\n14\n15\tc", "12\ta", ("a\n\tb\n\nc\n", "a\n"));
        has("12: a\n13: b", "c\n", ("a\nb\n", "c\n"));
        has("12: a\n13: b", "12: c\n13: d\n", ("a\nb\n", "c\nd\n"));
        has("12: a\n13: b\n", "c", ("a\nb\n", "c\n"));
        has("12: a\n13:", "12: c", ("a\n\n", "c\n"));
        has("12:    a", "12:    b", ("    a\n", "    b\n"));
        has("+   12: a\n    13: b", "x", ("a\nb\n", "x\n"));
        assert_eq!(readings("1: a\n3: b", "x").len(), 1);
        assert_eq!(readings("a: 1\nb: 2", "x").len(), 1);
    }

    #[test]
    fn fences_and_signs_go() {
        has(
            "```rust\nfn a() {}\n```",
            "```rust\nfn b() {}\n```\n",
            ("fn a() {}\n", "fn b() {}\n"),
        );
    }

    /// The new text where the old one is escaped; `None` if it is ambiguous.
    fn alike(old: &str, new: &str) -> Option<String> {
        let mut all = readings(old, new).into_iter();
        let reading = all.find(|reading| reading.corrections == [Correction::Escapes])?;
        reading.doubt.is_none().then_some(reading.new)
    }

    #[test]
    fn one_level_goes() {
        assert_eq!(resolved(r#"printf(\"a\\n\");\nx"#, ALL), "printf(\"a\\n\");\nx");
        assert_eq!(resolved(r"a\\d", ALL), r"a\d");
        assert_eq!(resolved(r"a\n\tb\tc", BREAKS), "a\n\tb\\tc");
        assert_eq!(readings("plain", "x").len(), 1);
    }

    #[test]
    fn the_new_text_follows_only_where_it_shows_the_slip() {
        let quotes = r#"say(\"hi\")"#;
        assert_eq!(alike(quotes, r#"say(\"a\n\")"#).as_deref(), Some("say(\"a\\n\")"));
        assert_eq!(alike(quotes, r#"say(\"a\\n\")"#).as_deref(), Some("say(\"a\\n\")"));
        assert_eq!(alike(quotes, r#"say("a\n")"#).as_deref(), Some(r#"say("a\n")"#));
        assert_eq!(alike(quotes, r#"say("a", \"b\")"#), None);
        assert_eq!(
            alike(quotes, r#"say(\"a\");\n\tsay(\"b\\n\");"#).as_deref(),
            Some("say(\"a\");\n\tsay(\"b\\n\");")
        );
        let breaks = r"a;\nb;";
        let printed = "a;\nprintf(\"\\n\");";
        assert_eq!(alike(breaks, printed).as_deref(), Some(printed));
        assert_eq!(alike(breaks, r#"f(\"a\");\nc;"#).as_deref(), Some("f(\"a\");\nc;"));
        assert_eq!(alike(breaks, r"a;\nc;").as_deref(), Some("a;\nc;"));
        assert_eq!(alike(breaks, r"a;\n\tc;").as_deref(), Some("a;\n\tc;"));
        assert_eq!(alike(breaks, r#"f("a\tb");\nc;"#).as_deref(), Some("f(\"a\\tb\");\nc;"));
    }
}
