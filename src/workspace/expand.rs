//! Finds the names in the tree that a shell glob matches. In doubt it returns too many names rather than too few.

use super::fs::EntryKind;
use super::root::{Workspace, join};
use crate::base::access::PathStatus;

/// Upper limit for the names; if it is reached, there may be more.
pub const MAX_NAMES: usize = 1_000;

/// Upper limit for the names read from one directory.
const MAX_SCAN: usize = 50_000;

impl Workspace {
    /// The names that an unquoted shell word matches now, relative to the root like the word, sorted by bytes; at most
    /// `MAX_NAMES`. `*` and `?` do not match a leading dot. A bracket expression counts as any character, because its
    /// meaning depends on the locale. A backslash quotes the next character. Returns nothing for a word without a match
    /// or one that leads outside; the shell passes such a word on unchanged.
    pub fn expand(&self, word: &str) -> Vec<String> {
        if word.starts_with('/') || word.contains('\0') || !word.contains(['*', '?', '[']) {
            return Vec::new();
        }
        let mut found = vec![String::new()];
        let mut parts = word.split('/').peekable();
        while let Some(part) = parts.next() {
            let last = parts.peek().is_none();
            found = self.expand_part(&found, part, last);
            if found.is_empty() {
                return found;
            }
        }
        found.retain(|name| self.locate(name).found != PathStatus::Nothing);
        found.sort();
        found
    }

    fn expand_part(&self, found: &[String], part: &str, last: bool) -> Vec<String> {
        let mut next = Vec::new();
        let pattern = parse(part);
        for dir in found {
            let Some(pattern) = &pattern else {
                next.push(join(dir, &part.replace('\\', "")));
                continue;
            };
            let place = self.locate(dir);
            let Ok((entries, _)) = self.list(&place, MAX_SCAN) else {
                continue;
            };
            for entry in entries {
                let fits = last || matches!(entry.kind, EntryKind::Dir | EntryKind::Link);
                if fits && matches(pattern, &entry.name) {
                    next.push(join(dir, &entry.name));
                }
                if next.len() == MAX_NAMES {
                    return next;
                }
            }
        }
        next
    }
}

#[derive(Debug, PartialEq, Eq)]
enum Token {
    Plain(char),
    One,
    Many,
}

/// `None` if the component has no wildcard.
fn parse(part: &str) -> Option<Vec<Token>> {
    let mut tokens = Vec::new();
    let mut rest = part.chars();
    while let Some(c) = rest.next() {
        tokens.push(match c {
            '\\' => Token::Plain(rest.next().unwrap_or('\\')),
            '*' => Token::Many,
            '?' => Token::One,
            '[' => match bracket_end(rest.as_str()) {
                Some(after) => {
                    rest = rest.as_str().get(after..).unwrap_or_default().chars();
                    Token::One
                }
                None => Token::Plain('['),
            },
            c => Token::Plain(c),
        });
    }
    let wild = tokens.iter().any(|token| !matches!(token, Token::Plain(_)));
    wild.then_some(tokens)
}

/// Length in bytes up to and including the `]` that closes a bracket expression; a `]` at its start is a member.
fn bracket_end(inner: &str) -> Option<usize> {
    let negated = usize::from(inner.starts_with(['!', '^']));
    let member = usize::from(inner.get(negated..)?.starts_with(']'));
    let from = negated + member;
    let mut classes = inner.get(from..)?;
    let mut at = from;
    loop {
        let close = classes.find(']')?;
        match classes.find("[:").filter(|open| *open < close) {
            Some(open) => {
                let after = open + classes.get(open..)?.find(":]")? + 2;
                at += after;
                classes = classes.get(after..)?;
            }
            None => return Some(at + close + 1),
        }
    }
}

fn matches(pattern: &[Token], name: &str) -> bool {
    if name.starts_with('.') && pattern.first() != Some(&Token::Plain('.')) {
        return false;
    }
    let name: Vec<char> = name.chars().collect();
    // One row of the dynamic-programming table: which prefixes of the name match the tokens so far.
    let mut row = vec![false; name.len() + 1];
    row[0] = true;
    for token in pattern {
        let mut next = vec![false; name.len() + 1];
        for (i, reached) in row.iter().enumerate() {
            match token {
                Token::Many => next[i] = *reached || (i > 0 && next[i - 1]),
                Token::One => next[i] = i > 0 && row[i - 1],
                Token::Plain(c) => next[i] = i > 0 && row[i - 1] && name[i - 1] == *c,
            }
        }
        row = next;
    }
    row[name.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_match_as_in_bash() {
        let dir = tempfile::tempdir().unwrap();
        for name in ["a.rs", "b.rs", ".hidden.rs", "[x", "sub/c.rs", "sub/d.txt", ".dot/e.rs"] {
            let path = dir.path().join(name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, "").unwrap();
        }
        std::os::unix::fs::symlink("/etc", dir.path().join("out")).unwrap();
        let workspace = Workspace::open(dir.path()).unwrap();
        let cases: [(&str, &[&str]); 12] = [
            ("*.rs", &["a.rs", "b.rs"]),
            ("./*.rs", &["./a.rs", "./b.rs"]),
            (".*.rs", &[".hidden.rs"]),
            ("?.rs", &["a.rs", "b.rs"]),
            ("[[:alpha:]].rs", &["a.rs", "b.rs"]),
            ("[]a].rs", &["a.rs", "b.rs"]),
            ("*/*.rs", &["sub/c.rs"]),
            ("**/*.txt", &["sub/d.txt"]),
            ("sub/../*.rs", &["sub/../a.rs", "sub/../b.rs"]),
            ("\\*.rs", &[]),
            ("out/*", &[]),
            ("../*", &[]),
        ];
        for (word, expected) in cases {
            assert_eq!(workspace.expand(word), expected, "{word}");
        }
    }

    #[test]
    fn a_full_count_is_bounded() {
        let dir = tempfile::tempdir().unwrap();
        for n in 0..=MAX_NAMES {
            std::fs::write(dir.path().join(format!("f{n}")), "").unwrap();
        }
        let workspace = Workspace::open(dir.path()).unwrap();
        assert_eq!(workspace.expand("f*").len(), MAX_NAMES);
    }
}
