//! Parts of messages: words that a person copies, quoted for a shell or for YAML; names and things, counted; long texts,
//! shortened.

use std::borrow::Cow;
use std::fmt::{Display, Write as _};

/// A word of a command line, quoted if a POSIX shell would change it.
pub fn shell_word(word: &str) -> String {
    let plain = |c: char| c.is_alphanumeric() || "-_./:=,+@%".contains(c);
    match !word.is_empty() && word.chars().all(plain) {
        true => word.to_owned(),
        false => format!("'{}'", word.replace('\'', r"'\''")),
    }
}

/// Words that YAML does not read as a string.
const YAML_WORDS: [&str; 11] = [
    "true", "false", "null", "yes", "no", "on", "off", "y", "n", "nan", "inf",
];

/// A string of a YAML file in one line, quoted if it would be read as something else.
pub fn yaml_word(text: &str) -> String {
    let plain = |c: char| c.is_alphanumeric() || "-_./".contains(c);
    let begins = |c: char| c.is_alphabetic() || c == '_';
    let is_word = text.strip_prefix('.').unwrap_or(text).starts_with(begins) && text.chars().all(plain);
    let is_taken = YAML_WORDS.contains(&text.trim_start_matches('.').to_lowercase().as_str());
    match is_word && !is_taken {
        true => text.to_owned(),
        false => serde_json::Value::from(text).to_string(),
    }
}

/// A string of a YAML file in double quotes, or the plain word where no YAML reader takes it for something else.
pub fn yaml_string(text: &str) -> String {
    let word = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
    let begins = text.as_bytes().first().is_some_and(u8::is_ascii_alphabetic);
    if begins && text.len() > 5 && text.bytes().all(word) {
        return text.to_owned();
    }
    let mut out = String::from("\"");
    for character in text.chars() {
        match character {
            '"' | '\\' => out.extend(['\\', character]),
            c if c.is_control() || matches!(c, '\u{2028}' | '\u{2029}' | '\u{feff}') => {
                let _ = write!(out, "\\u{:04x}", u32::from(c));
            }
            c => out.push(c),
        }
    }
    out.push('"');
    out
}

/// The first names, and how many follow.
pub fn first_names<T: AsRef<str>>(names: &[T], most: usize) -> String {
    let first: Vec<&str> = names.iter().take(most).map(|name| name.as_ref()).collect();
    let first = first.join(", ");
    match names.len().saturating_sub(most) {
        0 => first,
        more => format!("{first} and {more} more"),
    }
}

/// `text`, or its head and tail of together at most `bytes` bytes, with a line between them that says how much is missing.
pub fn excerpt(text: &str, bytes: usize) -> Cow<'_, str> {
    if text.len() <= bytes {
        return Cow::Borrowed(text);
    }
    let (head, tail) = (
        text.floor_char_boundary(bytes / 2),
        text.ceil_char_boundary(text.len() - bytes / 2),
    );
    let missing = tail - head;
    Cow::Owned(format!(
        "{}\n[… {missing} bytes left out …]\n{}",
        &text[..head],
        &text[tail..]
    ))
}

/// A number with its noun, in the plural unless the number is 1.
pub fn counted<N: Display + PartialEq + From<u8>>(count: N, noun: &str) -> String {
    match noun.strip_suffix('y') {
        _ if count == N::from(1) => format!("{count} {noun}"),
        Some(stem) if !stem.ends_with(['a', 'e', 'i', 'o', 'u']) => format!("{count} {stem}ies"),
        _ if noun.ends_with('s') => format!("{count} {noun}es"),
        _ => format!("{count} {noun}s"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_quoted_only_where_they_would_be_read_differently() {
        for (word, shell, yaml) in [
            ("target/a-b.c", "target/a-b.c", "target/a-b.c"),
            ("ü", "ü", "ü"),
            ("o ü", "'o ü'", "\"o ü\""),
            ("it's", r"'it'\''s'", "\"it's\""),
            ("", "''", "\"\""),
            ("$x", "'$x'", "\"$x\""),
            ("a,b: c", "'a,b: c'", "\"a,b: c\""),
            (".venv", ".venv", ".venv"),
            (".5", ".5", "\".5\""),
            ("No", "No", "\"No\""),
            ("12", "12", "\"12\""),
            ("-x", "-x", "\"-x\""),
        ] {
            assert_eq!((shell_word(word), yaml_word(word)), (shell.to_owned(), yaml.to_owned()));
        }
    }

    #[test]
    fn names_are_counted_where_they_are_too_many() {
        assert_eq!(first_names(&["a", "b", "c"], 2), "a, b and 1 more");
        assert_eq!(first_names(&["a".to_owned()], 2), "a");
    }

    #[test]
    fn an_excerpt_keeps_head_and_tail_at_character_borders() {
        let text = format!("begin{}end", "ä".repeat(100));
        let short = excerpt(&text, 21);
        assert_eq!(short, "beginää\n[… 190 bytes left out …]\näääend");
        assert_eq!(excerpt("all", 10), "all");
    }

    #[test]
    fn nouns_agree_with_their_numbers() {
        assert_eq!([0, 1, 2].map(|n| counted(n, "job")), ["0 jobs", "1 job", "2 jobs"]);
        assert_eq!([1, 2].map(|n| counted(n, "entry")), ["1 entry", "2 entries"]);
        assert_eq!([1, 2].map(|n| counted(n, "key")), ["1 key", "2 keys"]);
        assert_eq!([1, 2].map(|n| counted(n, "process")), ["1 process", "2 processes"]);
    }
}
