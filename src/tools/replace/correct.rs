//! Proposes corrections for typical copying errors of models: code fences, line numbers, escapes, typographic
//! characters. `land` tries them.

use serde::Serialize;
use std::fmt;

/// Upper limit for the variants of one request.
const READINGS: usize = 48;

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
    fn corrected(&self, by: Correction, mut old: String, mut new: String) -> Self {
        // The last line inside a fence has no line end; add one if the other text has one.
        if by == Correction::CodeFence && !new.is_empty() {
            let ends = |text: &str| text.len() - text.trim_end_matches('\n').len();
            if new == self.new && ends(&new) > ends(&old) {
                old.push('\n');
            } else if ends(&new) == 0 && ends(&old) > 0 {
                new.push('\n');
            }
        }
        if by == Correction::LineNumbers && !new.is_empty() {
            whole_lines((&self.old, &mut old), (&self.new, &mut new));
        }
        let corrections = self.corrections.iter().copied().chain([by]).collect();
        Self {
            old,
            new,
            corrections,
            doubt: self.doubt,
        }
    }
}

/// A listing with line numbers shows whole lines, so a text without a final line end gets one if the other has it.
fn whole_lines(old: (&str, &mut String), new: (&str, &mut String)) {
    let differ = old.0.ends_with('\n') != new.0.ends_with('\n') || old.1.ends_with('\n') != new.1.ends_with('\n');
    for (asked, text) in [old, new] {
        if differ && !asked.ends_with('\n') {
            text.push('\n');
        }
    }
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
        for reading in further {
            let known = readings
                .iter()
                .any(|known| known.old == reading.old && known.new == reading.new);
            if !known && !reading.old.trim().is_empty() {
                readings.push(reading);
            }
        }
        readings.truncate(READINGS);
    }
    readings.sort_by_key(|reading| reading.corrections.len());
    readings
}

fn fences(reading: &Reading) -> Vec<Reading> {
    let Some(old) = unfenced(&reading.old) else {
        return Vec::new();
    };
    let new = unfenced(&reading.new).unwrap_or_else(|| reading.new.clone());
    vec![reading.corrected(Correction::CodeFence, old, new)]
}

fn unfenced(text: &str) -> Option<String> {
    let body = text.trim_matches('\n').trim_start();
    let fence = if body.starts_with("```") { "```" } else { "~~~" };
    let (opening, rest) = body.split_once('\n')?;
    let info = opening.strip_prefix(fence)?;
    if info.contains(fence) {
        return None;
    }
    let inside = rest.trim_end().strip_suffix(fence)?;
    Some(inside.strip_suffix('\n').unwrap_or(inside).to_owned())
}

/// The number and the rest of a line with a prefix as in file listings: `  12: `, `12\t`, `L12: `, `12 | `, `+ 12: `.
fn numbered(line: &str) -> Option<(u64, &str, &str)> {
    let rest = line.trim_start_matches([' ', '+', '-', '>']);
    let rest = rest
        .strip_prefix('L')
        .or_else(|| rest.strip_prefix('l'))
        .unwrap_or(rest);
    let digits = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
    let (number, after) = rest.split_at(digits);
    let number = number.parse().ok()?;
    for separator in [":", "\t", "→", " | ", " |", "|", "│", "- "] {
        if let Some(text) = after.strip_prefix(separator) {
            let (kind, _) = after.split_at(separator.len());
            return Some((number, kind, text));
        }
    }
    // A listing whose trailing blanks were stripped shows an empty line as a bare number.
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
    let mut found = vec![false];
    let rests = || {
        let all = reading.old.lines().filter_map(numbered).map(|(_, _, rest)| rest);
        all.filter(|rest| !rest.trim().is_empty())
    };
    if rests().next().is_some() && rests().all(|rest| rest.starts_with(' ')) {
        found.insert(0, true);
    }
    found
        .into_iter()
        .map(|blank| {
            reading.corrected(
                Correction::LineNumbers,
                strip(&reading.old, blank),
                strip(&reading.new, blank),
            )
        })
        .collect()
}

fn escapes(reading: &Reading) -> Vec<Reading> {
    SETS.iter()
        .filter_map(|set| {
            let used = used(&reading.old, *set);
            if used.is_none() {
                return None;
            }
            let old = resolve(&reading.old, used);
            let new = resolve_like(&reading.new, used);
            let doubt = new
                .is_none()
                .then_some("the new text mixes escaped and plain line breaks or quotes");
            let mut found = reading.corrected(Correction::Escapes, old, new.unwrap_or_else(|| reading.new.clone()));
            found.doubt = found.doubt.or(doubt);
            Some(found)
        })
        .collect()
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

/// A set of kinds of escapes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Kinds {
    breaks: bool,
    tabs: bool,
    double: bool,
    single: bool,
    slashes: bool,
    /// Two backslashes that are meant as two.
    pairs: bool,
}

impl Kinds {
    fn is_none(self) -> bool {
        Self { pairs: false, ..self } == Self::default()
    }
}

const EVERY: Kinds = Kinds {
    breaks: true,
    tabs: true,
    double: true,
    single: true,
    slashes: true,
    pairs: false,
};

/// The sets to try, the full set first.
const SETS: [Kinds; 4] = [
    EVERY,
    Kinds {
        slashes: false,
        ..EVERY
    },
    Kinds {
        breaks: false,
        tabs: false,
        slashes: false,
        ..EVERY
    },
    Kinds {
        double: false,
        single: false,
        slashes: false,
        ..EVERY
    },
];

enum Piece {
    Plain(char),
    /// Two backslashes that are intended.
    Pair,
    /// The character that it stands for.
    Escape(char),
}

fn pieces(text: &str, set: Kinds) -> impl Iterator<Item = Piece> + '_ {
    let mut rest = text;
    std::iter::from_fn(move || {
        let mut chars = rest.chars();
        let first = chars.next()?;
        let meaning = match (first, chars.next()) {
            ('\\', Some('n')) if set.breaks => Some('\n'),
            ('\\', Some('r')) if set.breaks => Some('\r'),
            ('\\', Some('t')) if set.tabs => Some('\t'),
            ('\\', Some('"')) if set.double => Some('"'),
            ('\\', Some(quote @ ('\'' | '`'))) if set.single => Some(quote),
            ('\\', Some('\\')) if set.slashes => Some('\\'),
            _ => None,
        };
        let pair = meaning.is_none() && rest.starts_with("\\\\");
        let length = if meaning.is_some() || pair { 2 } else { first.len_utf8() };
        rest = rest.get(length..).unwrap_or_default();
        let plain = if pair { Piece::Pair } else { Piece::Plain(first) };
        Some(meaning.map_or(plain, Piece::Escape))
    })
}

/// The kinds of `set` that occur in `text`.
fn used(text: &str, set: Kinds) -> Kinds {
    let mut found = Kinds::default();
    for piece in pieces(text, set) {
        match piece {
            Piece::Escape('\n' | '\r') => found.breaks = true,
            Piece::Escape('\t') => found.tabs = true,
            Piece::Escape('\\') => found.slashes = true,
            Piece::Escape('"') => found.double = true,
            Piece::Escape(_) => found.single = true,
            Piece::Pair => found.pairs = true,
            Piece::Plain(_) => {}
        }
    }
    found
}

/// Resolves the escapes of `set` in `text`, in one pass.
fn resolve(text: &str, set: Kinds) -> String {
    let mut meaning = String::with_capacity(text.len());
    for piece in pieces(text, set) {
        match piece {
            Piece::Plain(c) | Piece::Escape(c) => meaning.push(c),
            Piece::Pair => meaning.push_str("\\\\"),
        }
    }
    meaning.replace("\r\n", "\n").replace('\r', "\n")
}

/// Applies the same correction to the new text: resolves it if it has the same error, leaves it if it does not, and
/// returns `None` if that is ambiguous. `slip`: the kinds that occurred in the old text.
fn resolve_like(text: &str, slip: Kinds) -> Option<String> {
    let inner_break = text.trim_matches('\n').contains('\n');
    let count = |meanings: &[char]| {
        let escapes = pieces(text, EVERY).filter(|piece| matches!(piece, Piece::Escape(c) if meanings.contains(c)));
        escapes.count()
    };
    let (double, single) = (count(&['"']), count(&['\'', '`']));
    let breaks = count(&['\n', '\r', '\t', '\\']);
    let bare = |sign: char, escaped: usize| text.matches(sign).count() > escaped;
    let escaped = slip.double && double > 0 || slip.single && single > 0;
    let plain = slip.double && bare('"', double) || slip.single && bare('\'', single);
    match (escaped, plain) {
        (true, true) => return None,
        // The quotes are escaped but there are real line breaks, while the old text had both escaped.
        (true, false) if slip.breaks && inner_break => return None,
        (false, true) => return Some(text.to_owned()),
        // With real line breaks, the escapes in the text are intended.
        (false, false) if slip.breaks && inner_break => return Some(text.to_owned()),
        (false, false) if !(slip.slashes || slip.breaks || slip.tabs) || breaks == 0 => return Some(text.to_owned()),
        _ => {}
    }
    // Double quotes that occur only with a backslash are escaped once too often as well.
    let double_too = double > 0 && !bare('"', double);
    let single_too = single > 0 && !bare('\'', single);
    // A line break between string literals cannot be part of one.
    let outside = (escaped || slip.tabs) && (breaks_outside(text) || breaks_lines(text));
    if outside && inner_break {
        return None;
    }
    // Without quotes it is unknown whether backslashes were doubled as well.
    if slip.breaks && !slip.slashes && count(&['\\']) > 0 && !text.contains('"') {
        return None;
    }
    let breaks = slip.breaks || outside;
    // Inside a line an escaped tab may be meant as one, unless quotes tell.
    if slip.breaks && !slip.tabs && !tabs_lead(text) && !text.contains(['"', '\'']) {
        return None;
    }
    let set = Kinds {
        breaks,
        tabs: slip.tabs || breaks && (escaped || tabs_lead(text)),
        double: slip.double || double_too,
        single: slip.single || single_too,
        slashes: slip.slashes || !slip.pairs && (slip.double || slip.single || double_too || single_too),
        pairs: false,
    };
    Some(resolve(text, set))
}

/// Whether an escaped line break occurs outside all strings in double quotes.
fn breaks_outside(text: &str) -> bool {
    let mut inside = false;
    pieces(text, EVERY).any(|piece| {
        inside ^= matches!(piece, Piece::Escape('"') | Piece::Plain('"'));
        !inside && matches!(piece, Piece::Escape('\n'))
    })
}

/// Whether an escaped line break is followed by the text's own indentation.
fn breaks_lines(text: &str) -> bool {
    let body = text.trim_start_matches(' ');
    let blanks = text.get(..text.len() - body.len()).unwrap_or_default();
    !blanks.is_empty() && body.contains(&format!("\\n{blanks}"))
}

/// Whether escaped tabs occur only at the start of lines.
fn tabs_lead(text: &str) -> bool {
    let mut leads = true;
    pieces(text, EVERY).all(|piece| {
        let tab = matches!(piece, Piece::Escape('\t'));
        let fine = !tab || leads;
        leads = matches!(piece, Piece::Escape('\n') | Piece::Plain('\n' | ' '))
            && (leads || !matches!(piece, Piece::Plain(' ')))
            || tab && leads;
        fine
    })
}

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
        has("  9: a\n 10:   b", "  9: a\n 10:   c\n 11: d", ("a\n  b", "a\n  c\nd"));
        has("L12: a\nL13: b", "x\ny", ("a\nb", "x\ny"));
        has("12\ta\n13\t\tb\n14\n15\tc", "12\ta", ("a\n\tb\n\nc", "a"));
        has("12: a\n13: b", "c\n", ("a\nb\n", "c\n"));
        has("12: a\n13: b", "12: c\n13: d\n", ("a\nb\n", "c\nd\n"));
        has("12: a\n13: b\n", "c", ("a\nb\n", "c\n"));
        has("12: a\n13:", "12: c", ("a\n\n", "c\n"));
        has("12:    a", "12:    b", ("    a", "    b"));
        has("+   12: a\n    13: b", "x", ("a\nb", "x"));
        assert_eq!(readings("1: a\n3: b", "x").len(), 1);
        assert_eq!(readings("a: 1\nb: 2", "x").len(), 1);
    }

    #[test]
    fn fences_and_signs_go() {
        has(
            "```rust\nfn a() {}\n```",
            "```rust\nfn b() {}\n```\n",
            ("fn a() {}", "fn b() {}"),
        );
    }

    #[test]
    fn one_level_goes() {
        assert_eq!(resolve(r#"printf(\"a\\n\");\nx"#, EVERY), "printf(\"a\\n\");\nx");
        assert_eq!(resolve(r"a\\d", EVERY), r"a\d");
        assert_eq!(used("plain", EVERY), Kinds::default());
    }

    #[test]
    fn the_new_text_follows_only_where_it_shows_the_slip() {
        let quotes = used(r#"say(\"hi\")"#, EVERY);
        assert_eq!(
            resolve_like(r#"say(\"a\n\")"#, quotes).as_deref(),
            Some("say(\"a\\n\")")
        );
        assert_eq!(
            resolve_like(r#"say(\"a\\n\")"#, quotes).as_deref(),
            Some("say(\"a\\n\")")
        );
        assert_eq!(resolve_like(r#"say("a\n")"#, quotes).as_deref(), Some(r#"say("a\n")"#));
        assert_eq!(resolve_like(r#"say("a", \"b\")"#, quotes), None);
        let breaks = used(r"a;\nb;", EVERY);
        assert_eq!(
            resolve_like("a;\nprintf(\"\\n\");", breaks).as_deref(),
            Some("a;\nprintf(\"\\n\");")
        );
        assert_eq!(
            resolve_like(r#"f(\"a\");\nc;"#, breaks).as_deref(),
            Some("f(\"a\");\nc;")
        );
        assert_eq!(resolve_like(r"a;\nc;", breaks).as_deref(), Some("a;\nc;"));
        assert_eq!(resolve_like(r"a;\n\tc;", breaks).as_deref(), Some("a;\n\tc;"));
        assert_eq!(
            resolve_like(r#"f("a\tb");\nc;"#, breaks).as_deref(),
            Some("f(\"a\\tb\");\nc;")
        );
        assert_eq!(
            resolve_like(r#"say(\"a\");\n\tsay(\"b\\n\");"#, quotes).as_deref(),
            Some("say(\"a\");\n\tsay(\"b\\n\");")
        );
    }
}
