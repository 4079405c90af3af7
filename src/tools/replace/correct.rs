//! Proposes corrections for typical copying errors of models: code fences, line numbers, escapes, typographic
//! characters. `land` tries them.

use super::escape;
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
    Typography,
}

impl fmt::Display for Correction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::CodeFence => "code fence removed",
            Self::LineNumbers => "line numbers removed",
            Self::Escapes => "escapes resolved",
            Self::Typography => "typographic signs made plain",
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
    escape::SETS
        .iter()
        .filter_map(|set| {
            let used = escape::used(&reading.old, *set);
            if used.is_none() {
                return None;
            }
            let old = escape::resolve(&reading.old, used);
            let new = escape::resolve_like(&reading.new, used);
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
}
