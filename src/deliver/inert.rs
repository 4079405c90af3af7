//! Escapes text of models and file names for forges, so that it mentions nobody, links to nothing, triggers no bot
//! command and skips no check.
//!
//! A zero-width space (U+200B) breaks each trigger, so that people see the same text.

use crate::report::inert::{self, LINKS};
use serde_json::Value;

/// The character that breaks a trigger.
const BREAK: char = '\u{200b}';
/// Bytes between `[` and `]` that are examined.
const BRACKET: usize = 40;

/// For a title, a commit message, or other plain text.
pub fn plain(text: &str) -> String {
    let text = inert::inert(text);
    let mut out = String::with_capacity(text.len() + 16);
    for line in text.split_inclusive('\n') {
        begin(line, &mut out);
        marks(line, &mut out);
    }
    out
}

/// For a description in Markdown: also removes HTML and images, which are loaded from other servers.
pub fn markdown(text: &str) -> String {
    let text = plain(text);
    let escaped = text.replace('&', "&amp;").replace('<', "&lt;");
    escaped.replace("![", &format!("!{BREAK}["))
}

/// Escapes every string in a JSON value.
pub fn value(value: &Value, of_text: fn(&str) -> String) -> Value {
    match value {
        Value::String(text) => Value::String(of_text(text)),
        Value::Array(items) => items.iter().map(|item| self::value(item, of_text)).collect(),
        Value::Object(entries) => {
            let entries = entries.iter();
            Value::Object(
                entries
                    .map(|(name, item)| (name.clone(), self::value(item, of_text)))
                    .collect(),
            )
        }
        other => other.clone(),
    }
}

/// Breaks line beginnings that have a meaning for `git am`: those that end the message, and headers, which set author,
/// date and title even at the top of a body.
fn begin(line: &str, out: &mut String) {
    let cuts = ["---", "diff -", "Index: ", "From ", ">From ", "-- "];
    let headers = ["from:", "date:", "subject:", "[patch]"];
    let lower = line
        .get(..line.floor_char_boundary(10))
        .unwrap_or_default()
        .to_ascii_lowercase();
    if cuts.iter().any(|cut| line.starts_with(cut)) || headers.iter().any(|header| lower.starts_with(header)) {
        out.push(BREAK);
    }
}

/// Whether the text up to a colon is the name of a trailer such as `Signed-off-by` or `Overnight-Patch`.
fn is_trailer(name: &str) -> bool {
    // Blanks may surround it.
    let name = name.trim();
    let letters = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-';
    name.contains('-') && !name.starts_with('-') && name.len() <= 40 && name.bytes().all(letters)
}

fn marks(line: &str, out: &mut String) {
    let indent = line.len() - line.trim_start().len();
    let mut name_ended = false;
    for (at, c) in line.char_indices() {
        let rest = &line[at + c.len_utf8()..];
        let next = rest.chars().next();
        let before = &line[..at];
        if c == ':' && !name_ended {
            name_ended = true;
            if is_trailer(before) {
                out.push(BREAK);
            }
        }
        out.push(c);
        let digit = next.is_some_and(|next| next.is_ascii_digit());
        let broken = match c {
            '@' | '#' => true,
            // Scissors line: `git am` drops everything above it.
            '8' | '%' if next == Some('<') => line.contains('-'),
            '>' if matches!(next, Some('8' | '%')) => line.contains('-'),
            '/' if at == indent => true,
            // Requests, epics, snippets and milestones of GitLab; `GH-1` of GitHub.
            '!' | '&' | '$' | '%' | '~' => digit,
            '-' => digit && before.to_ascii_lowercase().ends_with("gh"),
            '[' => skips(rest),
            '_' => before.to_ascii_lowercase().ends_with("***no") && rest.to_ascii_lowercase().starts_with("ci***"),
            _ => false,
        };
        let link = c == '/' && LINKS.iter().any(|link| line[..=at].ends_with(link));
        let checks = c == '-'
            && before.to_ascii_lowercase().ends_with("skip")
            && rest.to_ascii_lowercase().starts_with("checks");
        if broken || link || checks {
            out.push(BREAK);
        }
    }
}

/// Whether the text in brackets makes a CI system skip something: `[skip ci]`, `[ci skip]`, `[no ci]`, `[skip actions]`
/// and similar.
fn skips(rest: &str) -> bool {
    let rest = &rest[..rest.floor_char_boundary(BRACKET)];
    let Some((inner, _)) = rest.split_once(']') else {
        return false;
    };
    let inner = inner.to_ascii_lowercase();
    let words: Vec<&str> = inner.split(|c: char| !c.is_ascii_alphanumeric()).collect();
    words.contains(&"skip") || words.contains(&"ci") || words.contains(&"no")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Triggers of forges and CI systems; `B` stands for the breaking character.
    const CASES: &[(&str, &str)] = &[
        ("thanks @octocat", "thanks @Boctocat"),
        ("fixes #12", "fixes #B12"),
        ("/close", "/Bclose"),
        ("  /merge now", "  /Bmerge now"),
        ("a/b stays", "a/b stays"),
        ("[skip ci] x", "[Bskip ci] x"),
        ("x [CI SKIP]", "x [BCI SKIP]"),
        ("[no ci]", "[Bno ci]"),
        ("[skip actions]", "[Bskip actions]"),
        ("[skip azurepipelines]", "[Bskip azurepipelines]"),
        ("***NO_CI***", "***NO_BCI***"),
        ("skip-checks: true", "skip-BchecksB: true"),
        ("see [the list] here", "see [the list] here"),
        ("!12 and &3 and GH-4", "!B12 and &B3 and GH-B4"),
        ("Signed-off-by: A <a@b>", "Signed-off-byB: A <a@Bb>"),
        ("Overnight-Patch: sha256:0", "Overnight-PatchB: sha256:0"),
        ("Note: fine", "Note: fine"),
        (
            "closes https://h.org/o/n/issues/1",
            "closes https://h.org/o/n/issues/B1",
        ),
        ("---", "B---"),
        ("diff --git a/x b/x", "Bdiff --git a/x b/x"),
        ("From 0000 Mon", "BFrom 0000 Mon"),
        ("From: Linus <l@x>", "BFrom: Linus <l@Bx>"),
        ("subject: another title", "Bsubject: another title"),
        ("DATE: 1", "BDATE: 1"),
        ("[PATCH] x", "B[PATCH] x"),
        ("From there: x", "BFrom there: x"),
        ("Froms: x", "Froms: x"),
        ("Signed-off-by : A", "Signed-off-by B: A"),
        (" 8< - - cut", " 8B< - - cut"),
        ("- - >8 - -", "- - >B8 - -"),
        ("a > 8 and 8 < b", "a > 8 and 8 < b"),
    ];

    #[test]
    fn the_table_of_marks_holds() {
        for (written, expected) in CASES {
            assert_eq!(plain(written), expected.replace('B', "\u{200b}"), "{written}");
            let seen = plain(written).replace(BREAK, "");
            assert_eq!(seen, *written, "people read the same");
        }
    }

    #[test]
    fn descriptions_hold_no_html_and_no_images() {
        assert_eq!(
            markdown("<img src=x> ![a](http://x)"),
            "&lt;img src=x> !\u{200b}[a](http://x)"
        );
        assert_eq!(markdown("a && b < c"), "a &amp;&amp; b &lt; c");
    }

    proptest::proptest! {
        #[test]
        fn nothing_is_mentioned_or_commanded(text in "([@#/!&:\\[\\] \\n\\r\\t-]|skip|ci|a|1|gh|/issues/|\\x1b){0,40}") {
            let shown = plain(&text);
            for line in shown.split(['\n', '\r']) {
                proptest::prop_assert!(!line.trim_start().starts_with('/') || line.trim_start().starts_with("/\u{200b}"), "{shown:?}");
                for mark in ['@', '#'] {
                    for (at, _) in line.match_indices(mark) {
                        proptest::prop_assert!(line[at + 1..].starts_with(BREAK));
                    }
                }
                proptest::prop_assert!(!line.to_lowercase().contains("[skip ci]") && !line.to_lowercase().contains("[ci skip]"));
            }
        }
    }
}
