//! Text of others made inert for where it is shown: no line of it is a command to a CI runner, and no character of it moves a
//! terminal. Knows no layout.
//!
//! A command is broken by a zero-width space (U+200B) inside its mark, so that people read the same text and no runner knows it:
//! `:​:set-output`, `#​#vso[`. Control characters are shown by their pictures (`␛`, `␍`), the others by their code (`<U+009B>`).

use std::borrow::Cow;

/// What breaks a mark.
const BREAK: char = '\u{200b}';

/// Marks that count anywhere in a line, in lower case, each with the place of the break.
const ANYWHERE: [(&str, usize); 5] = [
    // GitHub's older form, and Azure's formatting commands.
    ("##[", 1),
    ("##vso[", 1),
    ("##teamcity[", 1),
    // GitLab: counted with the carriage return and the escape that follow, which are shown as pictures already.
    ("section_start:", 7),
    ("section_end:", 7),
];

/// `text` as it can be shown on a terminal or in the log of a CI job. Line ends stay; `\r\n` counts as one.
pub fn inert(text: &str) -> Cow<'_, str> {
    match shown(text) {
        Cow::Borrowed(text) => broken(text),
        Cow::Owned(text) => Cow::Owned(broken(&text).into_owned()),
    }
}

/// Control characters, reordering marks and invisible tags by something that can be seen.
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

/// What is shown for a character that is not shown itself; `None` for one that is.
fn picture(c: char) -> Option<String> {
    match c {
        '\n' | '\t' => None,
        '\0'..='\u{1f}' => char::from_u32(0x2400 + u32::from(c)).map(String::from),
        '\u{7f}' => Some("\u{2421}".to_owned()),
        // Line ends to some readers, and the marks that reorder what is read.
        '\u{80}'..='\u{9f}' | '\u{2028}' | '\u{2029}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' => {
            Some(format!("<U+{:04X}>", u32::from(c)))
        }
        _ => None,
    }
}

/// The same with every mark of a command broken, line by line.
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

/// What a runner may trim from the beginning of a line: blanks of any kind, and what cannot be seen.
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

    /// `fixtures/report/inert.txt`: pairs of lines, in the escapes of JSON: what a model wrote, what is shown.
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

    /// What the runners themselves look for, after their own trimming, in any line of what is shown.
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
