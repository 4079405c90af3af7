//! Makes untrusted text safe to print: no line of it is a command to a CI runner, and no character of it controls a
//! terminal.
//!
//! An invisible zero-width space (U+200B) inside its marker breaks a command: `:​:set-output`, `#​#vso[`. Control
//! characters are shown as control pictures (`␛`, `␍`), others by their code (`<U+009B>`).

use std::borrow::Cow;

/// The character that breaks a marker.
const BREAK: char = '\u{200b}';

/// Markers that count anywhere in a line, in lower case, each with the position of the break.
const ANYWHERE: [(&str, usize); 5] = [
    // GitHub's older syntax, and Azure's formatting commands.
    ("##[", 1),
    ("##vso[", 1),
    ("##teamcity[", 1),
    // GitLab's sections: the carriage return and the escape that belong to them are already shown as pictures.
    ("section_start:", 7),
    ("section_end:", 7),
];

/// Parts of addresses that close or link an issue or a request of a forge.
pub(crate) const LINKS: [&str; 5] = ["/issues/", "/pull/", "/pulls/", "/merge_requests/", "/work_items/"];

/// Breaks references to issues and requests that need no special character: addresses and `GH-1`. A forge would close
/// what follows `closes`, and would notify people about any other reference.
pub(crate) fn unlinked(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 16);
    for (at, c) in text.char_indices() {
        let (before, rest) = text.split_at(at + c.len_utf8());
        out.push(c);
        let broken = match c {
            '/' => LINKS.iter().any(|link| before.ends_with(link)),
            '-' => {
                let end = before.get(before.len().saturating_sub(3)..);
                rest.starts_with(|next: char| next.is_ascii_digit())
                    && end.is_some_and(|end| end.eq_ignore_ascii_case("gh-"))
            }
            _ => false,
        };
        if broken {
            out.push(BREAK);
        }
    }
    out
}

/// `text` made safe for a terminal or the log of a CI job. Newlines stay; `\r\n` counts as one.
pub fn inert(text: &str) -> Cow<'_, str> {
    match shown(text) {
        Cow::Borrowed(text) => broken(text),
        Cow::Owned(text) => Cow::Owned(broken(&text).into_owned()),
    }
}

/// Replaces control characters, bidirectional marks and invisible tag characters by visible text.
fn shown(text: &str) -> Cow<'_, str> {
    if !text.chars().any(|c| picture(c).is_some()) {
        return Cow::Borrowed(text);
    }
    let mut out = String::with_capacity(text.len() + 16);
    let mut chars = text.chars().peekable();
    while let Some(c) = chars.next() {
        match picture(c) {
            Some(_) if c == '\r' && chars.peek() == Some(&'\n') => {}
            Some(picture) => out.push_str(&picture),
            None => out.push(c),
        }
    }
    Cow::Owned(out)
}

/// The visible text for a character that is not printed itself; `None` for one that is.
fn picture(c: char) -> Option<String> {
    match c {
        '\n' | '\t' => None,
        '\0'..='\u{1f}' => char::from_u32(0x2400 + u32::from(c)).map(String::from),
        '\u{7f}' => Some("\u{2421}".to_owned()),
        // Some readers treat these as newlines; the others change the reading direction.
        '\u{80}'..='\u{9f}' | '\u{2028}' | '\u{2029}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' => {
            Some(format!("<U+{:04X}>", u32::from(c)))
        }
        _ => None,
    }
}

/// `text` with every command marker broken, line by line.
pub(crate) fn broken(text: &str) -> Cow<'_, str> {
    if !text.contains("::") && !text.contains("##") && !has_section(text) {
        return Cow::Borrowed(text);
    }
    let mut out = String::with_capacity(text.len() + 16);
    for line in text.split_inclusive('\n') {
        let begin = line.find(|c: char| !is_trimmed(c)).unwrap_or(line.len());
        let (blank, rest) = line.split_at(begin);
        out.push_str(blank);
        match rest.strip_prefix("::") {
            Some(rest) => {
                out.extend([':', BREAK, ':']);
                marks(rest, &mut out);
            }
            None => marks(rest, &mut out),
        }
    }
    Cow::Owned(out)
}

fn has_section(text: &str) -> bool {
    text.to_ascii_lowercase().contains("section_")
}

/// Characters that a runner may trim from the beginning of a line: white space and invisible characters.
fn is_trimmed(c: char) -> bool {
    c.is_whitespace()
        || c.is_control()
        || matches!(c, '\u{200b}'..='\u{200f}' | '\u{2060}'..='\u{2064}' | '\u{feff}' | '\u{ad}' | '\u{180e}')
}

fn marks(line: &str, out: &mut String) {
    let lower = line.to_ascii_lowercase();
    let mut at = 0;
    while at < line.len() {
        let here = lower.get(at..).unwrap_or_default();
        let mark = ANYWHERE.iter().find(|(mark, _)| here.starts_with(mark));
        let (whole, step) = match mark {
            Some((_, place)) => (true, *place),
            None => (false, here.chars().next().map_or(1, char::len_utf8)),
        };
        out.push_str(line.get(at..at + step).unwrap_or_default());
        if whole {
            out.push(BREAK);
        }
        at += step;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `fixtures/report/inert.txt`: pairs of lines with JSON escapes: the model's text, the printed text.
    #[test]
    fn the_table_of_cases_holds() {
        let table = include_str!("../../fixtures/report/inert.txt");
        let lines: Vec<&str> = table.lines().filter(|line| line.starts_with('"')).collect();
        assert!(lines.len() >= 60 && lines.len().is_multiple_of(2), "{}", lines.len());
        for pair in lines.chunks(2) {
            let text = |line: &str| serde_json::from_str::<String>(line).unwrap();
            let (written, expected) = (text(pair[0]), text(pair[1]));
            assert_eq!(inert(&written), expected, "{}", pair[0]);
            assert_eq!(inert(&expected), expected, "it stays as it is: {}", pair[0]);
            let seen = |text: &str| text.replace(BREAK, "");
            if !written.chars().any(|c| picture(c).is_some()) {
                assert_eq!(seen(&expected), seen(&written), "people see the same");
            }
        }
    }

    /// What the runners recognise, after their own trimming, in any printed line.
    fn is_command(text: &str) -> bool {
        text.split(['\n', '\r', '\u{85}', '\u{2028}', '\u{2029}']).any(|line| {
            let lower = line.to_lowercase();
            let marks = ["##[", "##vso[", "##teamcity[", "section_start:", "section_end:"];
            line.trim_start().starts_with("::") || marks.iter().any(|mark| lower.contains(mark))
        })
    }

    proptest::proptest! {
        #[test]
        fn no_text_is_a_command_or_moves_a_terminal(text in "([:# \\n\\r\\t]|::|##|\\[|vso|VSO|teamcity|section_start|section_end|a|\\x1b|\\u{85}|\\u{200b}|\\u{feff}|\\u{2028}){0,40}") {
            let shown = inert(&text);
            proptest::prop_assert!(!is_command(&shown), "{shown:?}");
            proptest::prop_assert!(!shown.chars().any(|c| c.is_control() && c != '\n' && c != '\t'));
        }
    }
}
