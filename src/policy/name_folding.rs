//! Folds file names so that two names that any common file system treats as equal have the same form.

use std::borrow::Cow;
use unicode_normalization::UnicodeNormalization;

/// Invisible characters that some file systems ignore when they compare names.
pub fn is_invisible(character: char) -> bool {
    matches!(character,
        '\u{ad}' | '\u{34f}' | '\u{61c}' | '\u{115f}' | '\u{1160}' | '\u{17b4}' | '\u{17b5}' | '\u{180b}'..='\u{180f}'
        | '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{3164}'
        | '\u{fe00}'..='\u{fe0f}' | '\u{feff}' | '\u{ffa0}' | '\u{e0000}'..='\u{e0fff}')
}

/// Characters that change the direction of displayed text.
fn is_bidi(character: char) -> bool {
    matches!(character, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

/// Whether a name contains characters that can mislead a reader: control, bidirectional or separator characters, or the one
/// that stands for bytes that are not UTF-8. A file may have another name than the text with that one.
pub fn is_deceptive(name: &str) -> bool {
    name.chars()
        .any(|c| c.is_control() || is_bidi(c) || matches!(c, '\u{2028}' | '\u{2029}' | char::REPLACEMENT_CHARACTER))
}

/// One component in its form for comparing: case-folded, NFKC, without invisible characters, trailing spaces and dots,
/// cut at an NTFS stream suffix (`.git::$INDEX_ALLOCATION`), and with short names (`git~1`) expanded.
///
/// Two names that some file system treats as equal have the same form. The reverse does not hold: use it to deny, never
/// to allow.
pub fn fold(component: &str) -> String {
    // The common case: Unicode normalisation does not change ASCII.
    if component.is_ascii() {
        return settle(&component.to_ascii_lowercase());
    }
    let visible: String = component.chars().filter(|c| !is_invisible(*c)).collect();
    let lower: String = visible.nfkc().flat_map(char::to_lowercase).nfkc().collect();
    let folded: String = lower
        .chars()
        .filter(|c| !is_invisible(*c) && *c != '\u{307}')
        .map(|c| match c {
            'ı' => 'i',
            'ſ' => 's',
            other => other,
        })
        .collect();
    settle(&folded)
}

fn settle(folded: &str) -> String {
    let plain = folded.split(':').next().unwrap_or_default();
    let trimmed = plain
        .trim_start()
        .trim_end_matches(|c: char| c == '.' || c.is_whitespace());
    match trimmed {
        "" => plain.trim().to_owned(),
        "git~1" | "git~2" | "git~3" | "git~4" => ".git".to_owned(),
        other if other.is_ascii() => other.to_owned(),
        other => other.replace('ß', "ss"),
    }
}

/// The folded components of a path; `\` separates like `/`, and `.` and empty components are dropped.
pub fn fold_path(path: &str) -> Vec<String> {
    let whole: Cow<'_, str> = match path.is_ascii() {
        true => Cow::Borrowed(path),
        false => Cow::Owned(path.nfkc().collect()),
    };
    whole
        .split(['/', '\\'])
        .filter(|component| !component.is_empty() && *component != ".")
        .map(fold)
        .collect()
}

/// A path without `.`, empty components and inner `..`; leading `..` remain.
pub fn tidy(path: &str) -> String {
    let mut parts: Vec<&str> = Vec::new();
    for part in path.split('/') {
        match part {
            "" | "." => {}
            ".." if parts.last().is_some_and(|last| *last != "..") => {
                parts.pop();
            }
            other => parts.push(other),
        }
    }
    parts.join("/")
}

/// Whether `text` matches a pattern in which only `*` is special and stands for any characters.
pub fn wild(pattern: &str, text: &str) -> bool {
    let mut pieces = pattern.split('*');
    let first = pieces.next().unwrap_or_default();
    let Some(mut rest) = text.strip_prefix(first) else {
        return false;
    };
    let mut pieces: Vec<&str> = pieces.collect();
    let Some(last) = pieces.pop() else {
        return rest.is_empty();
    };
    for piece in pieces {
        match rest.find(piece) {
            Some(at) => rest = rest.get(at + piece.len()..).unwrap_or_default(),
            None => return false,
        }
    }
    rest.ends_with(last)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_some_file_system_takes_for_git() {
        for name in [
            ".git",
            ".GIT",
            ".gIt",
            ".git.",
            ".git ",
            ".git. .",
            ".g\u{200c}it",
            ".git\u{feff}",
            "GIT~1",
            ".git::$INDEX_ALLOCATION",
            "．git",
            ".ｇｉｔ",
            " .git",
            ".gİt",
            ".gıt",
            ".git\u{fe0f}",
        ] {
            assert_eq!(fold(name), ".git", "{name:?}");
        }
        assert_ne!(fold(".gitignore"), ".git");
        assert_eq!(fold_path("a\\.GIT/./hooks"), ["a", ".git", "hooks"]);
    }

    #[test]
    fn stars_and_paths() {
        assert!(wild("docs__*", "docs__read"));
        assert!(!wild("docs__*", "doc__read"));
        assert!(wild("a*b*c", "aXbYc") && !wild("a*b*c", "ac") && wild("*", "") && !wild("ab", "abc"));
        assert!(!wild("ab*ba", "aba"));
        assert_eq!(tidy("./a//b/../c/."), "a/c");
        assert_eq!(tidy("../a"), "../a");
    }
}
