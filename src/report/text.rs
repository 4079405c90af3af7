//! Makes untrusted text safe and short: control codes, length, workflow commands.

use crate::base::call::ExitInfo;
use crate::base::quote::{self, counted};
use crate::base::secret;
use std::borrow::Cow;

/// `text` without terminal sequences, control characters (newline and tab stay) and bidirectional marks.
///
/// A carriage return counts as a newline.
pub(crate) fn plain(text: &str) -> Cow<'_, str> {
    if !text.chars().any(|c| c == '\r' || is_unwanted(c)) {
        return Cow::Borrowed(text);
    }
    let mut out = String::with_capacity(text.len());
    let mut chars = text.chars().peekable();
    while let Some(c) = chars.next() {
        match c {
            '\u{1b}' => skip_sequence(&mut chars),
            '\r' => {
                if chars.peek() != Some(&'\n') {
                    out.push('\n');
                }
            }
            c if is_unwanted(c) => {}
            c => out.push(c),
        }
    }
    Cow::Owned(out)
}

/// Control characters, bidirectional overrides, and the two code points that XML forbids.
fn is_unwanted(c: char) -> bool {
    (c.is_control() && c != '\n' && c != '\t')
        || matches!(c, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{fffe}' | '\u{ffff}')
}

/// Skips the rest of an escape sequence; an unterminated one at most to the end of its line.
fn skip_sequence(chars: &mut std::iter::Peekable<std::str::Chars<'_>>) {
    match chars.peek() {
        Some('[') => {
            chars.next();
            while let Some(&c) = chars.peek() {
                if c == '\n' {
                    return;
                }
                chars.next();
                if ('\u{40}'..='\u{7e}').contains(&c) {
                    return;
                }
            }
        }
        Some(']' | 'P' | '_' | '^' | 'X') => {
            while let Some(&c) = chars.peek() {
                if c == '\n' {
                    return;
                }
                chars.next();
                if c == '\u{7}' || c == '\u{9c}' {
                    return;
                }
                if c == '\u{1b}' {
                    chars.next_if_eq(&'\\');
                    return;
                }
            }
        }
        Some(c) if *c != '\n' => {
            chars.next();
        }
        _ => {}
    }
}

/// `text` as one safe line of at most `max` characters; `…` marks a cut.
pub(crate) fn line(text: &str, max: usize) -> String {
    // More bytes than `max` characters can take; avoids scanning the rest of a huge text.
    let room = max.saturating_mul(8).max(256);
    let is_long = text.len() > room;
    let start = match is_long {
        true => secret::start(text, room),
        false => Cow::Borrowed(text),
    };
    let clean = plain(head(&start, room));
    let words: Vec<&str> = clean.split_whitespace().collect();
    let mut out = words.join(" ");
    if is_long || out.char_indices().nth(max).is_some() {
        out = secret::start(&out, usize::MAX).into_owned();
        let last = out
            .char_indices()
            .nth(max.saturating_sub(1))
            .map_or(out.len(), |(last, _)| last);
        out.truncate(last);
        out.push('…');
    }
    defused(&out)
}

/// The beginning of `text`, at most `bytes` long.
pub(crate) fn head(text: &str, bytes: usize) -> &str {
    &text[..text.floor_char_boundary(bytes)]
}

/// The end of `text`, at most `bytes` long.
pub(crate) fn tail(text: &str, bytes: usize) -> &str {
    &text[text.ceil_char_boundary(text.len().saturating_sub(bytes))..]
}

/// Limits of what is shown of a failed check's output, in lines and in bytes.
const TAIL_LINES: usize = 20;
const TAIL_BYTES: usize = 4_000;

/// The last lines of a failed check's output, each safe to print. A first line says how much was cut, and where it is.
pub(crate) fn last_lines(output: &str) -> Vec<String> {
    let output = plain(output);
    let output = output.trim_end();
    let end = tail(output, TAIL_BYTES);
    let mut lines: Vec<&str> = end.lines().collect();
    if end.len() < output.len() && lines.len() > 1 {
        // Only a part of this line is left.
        lines.remove(0);
    }
    lines.drain(..lines.len().saturating_sub(TAIL_LINES));
    let shown: usize = lines.iter().map(|line| line.len() + 1).sum();
    let missing = (output.len() + 1).saturating_sub(shown);
    let notice = (missing > 0 && !lines.is_empty())
        .then(|| format!("… {missing} bytes before this are in junit.xml and report.html"));
    notice.into_iter().chain(lines.into_iter().map(defused)).collect()
}

/// A command that has one line. A longer one is a script, whose first line, often a comment, does not say what it does.
pub(crate) fn one_line_command(text: &str) -> Option<&str> {
    let text = text.trim();
    (!text.is_empty() && !text.contains('\n')).then_some(text)
}

/// Breaks the markers of CI commands in a log; see [`inert`](super::inert).
pub(crate) fn defused(text: &str) -> String {
    super::inert::broken(text).into_owned()
}

/// Milliseconds for people: `850 ms`, `12.3 s`, `4m 05s`, `1h 02m`.
pub(crate) fn duration(ms: u64) -> String {
    let seconds = ms / 1000;
    match ms {
        0..1_000 => format!("{ms} ms"),
        1_000..60_000 => format!("{}.{} s", seconds, ms % 1000 / 100),
        60_000..3_600_000 => format!("{}m {:02}s", seconds / 60, seconds % 60),
        _ => format!("{}h {:02}m", seconds / 3600, seconds / 60 % 60),
    }
}

/// Millionths of a US dollar for people: `$0.0123`.
pub(crate) fn dollars(micros: u64) -> String {
    let hundredths = micros.saturating_add(50) / 100;
    format!("${}.{:04}", hundredths / 10_000, hundredths % 10_000)
}

/// How a command ended, for people.
pub(crate) fn exit(exit: &ExitInfo) -> String {
    let how = match exit.memory_limit {
        Some(limit) => format!("memory limit of {} MiB reached", limit >> 20),
        None if exit.timed_out => "timed out".to_owned(),
        None => exit.ending(),
    };
    match exit.leftovers {
        0 => how,
        n => format!("{how}, {} killed", counted(n, "left-over process")),
    }
}

/// A number with thousands separators: `1,234,567`.
pub(crate) fn grouped(n: u64) -> String {
    let digits = n.to_string();
    let mut out = String::with_capacity(digits.len() + digits.len() / 3);
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

/// The first of these names, and the number of the rest; empty for none.
pub(crate) fn first_of(names: &[&str], most: usize) -> String {
    let shown: Vec<String> = names.iter().map(|name| line(name, 200)).collect();
    quote::first_names(&shown, most)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn terminal_sequences_and_controls_go() {
        assert_eq!(plain("\u{1b}[31mred\u{1b}[0m\0 \u{8}x"), "red x");
        assert_eq!(plain("\u{1b}]0;title\u{7}a\u{1b}]8;;http://x\u{1b}\\b"), "ab");
        assert_eq!(plain("a\r\nb\rc"), "a\nb\nc");
        assert_eq!(plain("\u{202e}abc\u{ffff}"), "abc");
        assert_eq!(
            plain("\u{1b}[999\nnext"),
            "\nnext",
            "an open sequence ends with its line"
        );
        assert!(matches!(plain("tab\there\n"), Cow::Borrowed(_)));
    }

    #[test]
    fn a_line_is_one_line_of_the_asked_length() {
        assert_eq!(line("a\n b\t c", 40), "a b c");
        assert_eq!(line("abcdef", 4), "abc…");
        assert_eq!(line("ab cdef", 5), "ab c…");
        assert_eq!(line(&"x ".repeat(5000), 9), "x x x x …");
        assert_eq!(line("##[error]x", 40), "#\u{200b}#[error]x");
        assert!(!line("::set-output name=a::b", 60).starts_with("::"));
    }

    #[test]
    fn the_last_lines_say_what_is_missing_and_are_safe() {
        assert_eq!(last_lines(""), Vec::<String>::new());
        assert_eq!(last_lines("  a\n\u{1b}[31mb\u{1b}[0m\n\n"), ["  a", "b"]);
        assert!(!last_lines("x\n::error::y")[1].starts_with("::"));
        let many: String = (0..30).map(|n| format!("line {n}\n")).collect();
        let lines = last_lines(&many);
        assert_eq!(lines.len(), TAIL_LINES + 1);
        assert_eq!(lines[0], "… 70 bytes before this are in junit.xml and report.html");
        assert_eq!((lines[1].as_str(), lines[20].as_str()), ("line 10", "line 29"));
        let lines = last_lines(&"ä".repeat(5_000));
        assert_eq!((lines.len(), lines[1].len()), (2, TAIL_BYTES));
    }

    #[test]
    fn figures_read_well() {
        assert_eq!(duration(850), "850 ms");
        assert_eq!(duration(12_340), "12.3 s");
        assert_eq!(duration(245_000), "4m 05s");
        assert_eq!(duration(3_725_000), "1h 02m");
        assert_eq!(dollars(12_345), "$0.0123");
        assert_eq!(dollars(2_000_000), "$2.0000");
        assert_eq!(grouped(1_234_567), "1,234,567");
        assert_eq!(grouped(999), "999");
    }

    #[test]
    fn no_cut_of_a_line_leaves_a_part_of_a_secret() {
        crate::base::secret::check_cut(200, |text| line(text, 200));
        let colored = |text: &str| line(&format!("\u{1b}[31m{text}"), 200);
        crate::base::secret::check_cut(200, colored);
        // The first bytes of a text with little to show.
        crate::base::secret::check_cut(1_600, |text| line(&format!("{}{text}", " ".repeat(40)), 200));
    }
}
