//! Finds the names in the tree that a shell glob matches. In doubt it returns too many names rather than too few.

use super::fs::EntryKind;
use super::root::{Workspace, join};
use crate::base::access::PathStatus;
use std::cell::{Cell, RefCell};
use std::collections::HashMap;

/// Upper limit for the names; if it is reached, there may be more.
pub const MAX_NAMES: usize = 1_000;

/// Upper limit for the names read from one directory.
const MAX_SCAN: usize = 50_000;

/// Upper limit for the names that are read from directories for all globs of one command.
const MAX_SCANNED: usize = 1_000_000;

/// Upper limit for the names that all globs of one command match together.
const MAX_GIVEN: usize = 30_000;

/// What a directory or a path that is looked up counts for, in names that are read.
const EACH_LOOK: usize = 16;

/// Characters of a pattern that make a name that is read count twice.
const PATTERN_CHARS: usize = 8;

impl Workspace {
    /// As [`Expander::expand`], for a single word.
    pub fn expand(&self, word: &str) -> Vec<String> {
        Expander::new(self).expand(word)
    }
}

/// Expands the globs of one command. A command may repeat a glob or have thousands of them, so results are kept, and
/// the work for all of them together is limited.
pub struct Expander<'a> {
    workspace: &'a Workspace,
    known: RefCell<HashMap<String, Vec<String>>>,
    /// How many names may still be read; `None` once a limit was exceeded.
    scans: Cell<Option<usize>>,
    /// How many names may still be returned; `None` once a limit was exceeded.
    names: Cell<Option<usize>>,
}

impl<'a> Expander<'a> {
    /// For one command.
    pub fn new(workspace: &'a Workspace) -> Self {
        Self {
            workspace,
            known: RefCell::default(),
            scans: Cell::new(Some(MAX_SCANNED)),
            names: Cell::new(Some(MAX_GIVEN)),
        }
    }

    /// Whether a limit was exceeded; then names are missing.
    pub fn is_over_limit(&self) -> bool {
        self.scans.get().is_none() || self.names.get().is_none()
    }

    /// The names that an unquoted shell word matches now, relative to the root like the word, sorted by bytes; at most
    /// `MAX_NAMES`. `*` and `?` do not match a leading dot. A bracket expression counts as any character, because its
    /// meaning depends on the locale. A backslash quotes the next character. Returns nothing for a word without a match
    /// or one that leads outside; the shell passes such a word on unchanged. Returns nothing either once a limit was
    /// exceeded.
    pub fn expand(&self, word: &str) -> Vec<String> {
        if word.starts_with('/') || word.contains('\0') || !word.contains(['*', '?', '[']) || self.is_over_limit() {
            return Vec::new();
        }
        let known = self.known.borrow().get(word).cloned();
        let found = known.unwrap_or_else(|| {
            let found = self.find(word);
            self.known.borrow_mut().insert(word.to_owned(), found.clone());
            found
        });
        match take(&self.names, found.len()) && !self.is_over_limit() {
            true => found,
            false => Vec::new(),
        }
    }

    fn find(&self, word: &str) -> Vec<String> {
        let mut found = vec![String::new()];
        let mut parts = word.split('/').peekable();
        while let Some(part) = parts.next() {
            let last = parts.peek().is_none();
            found = self.find_part(&found, part, last);
            if found.is_empty() {
                return found;
            }
        }
        if !take(&self.scans, found.len() * EACH_LOOK) {
            return Vec::new();
        }
        found.retain(|name| self.workspace.locate(name).found != PathStatus::Nothing);
        found.sort();
        found
    }

    fn find_part(&self, found: &[String], part: &str, last: bool) -> Vec<String> {
        let mut next = Vec::new();
        let pattern = parse(part);
        for dir in found {
            let Some(pattern) = &pattern else {
                next.push(join(dir, &part.replace('\\', "")));
                continue;
            };
            if !take(&self.scans, EACH_LOOK) {
                return Vec::new();
            }
            let place = self.workspace.locate(dir);
            let Ok((entries, rest)) = self.workspace.list(&place, MAX_SCAN) else {
                continue;
            };
            let each = 1 + pattern.len() / PATTERN_CHARS;
            if !take(&self.scans, (entries.len() + rest).saturating_mul(each)) {
                return Vec::new();
            }
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

/// Takes `count` from what is left; `false` if less is left, now or before.
fn take(left: &Cell<Option<usize>>, count: usize) -> bool {
    left.set(left.get().and_then(|left| left.checked_sub(count)));
    left.get().is_some()
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
    // Several stars in a row match what one does.
    tokens.dedup_by(|next, before| *next == Token::Many && *before == Token::Many);
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
    if pattern.iter().filter(|token| **token != Token::Many).count() > name.len() {
        return false;
    }
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

    #[test]
    fn the_globs_of_one_command_share_limits() {
        let dir = tempfile::tempdir().unwrap();
        for n in 0..100 {
            std::fs::create_dir(dir.path().join(format!("d{n}"))).unwrap();
            for m in 0..100 {
                std::fs::write(dir.path().join(format!("d{n}/f{m}")), "").unwrap();
            }
        }
        let workspace = Workspace::open(dir.path()).unwrap();
        // The same glob again is not read again, but its names count.
        let expander = Expander::new(&workspace);
        for _ in 0..MAX_GIVEN / MAX_NAMES {
            assert_eq!(expander.expand("*/*").len(), MAX_NAMES);
        }
        assert!(!expander.is_over_limit());
        assert!(expander.expand("*/*").is_empty() && expander.is_over_limit());
        // Different globs without a match: each is read.
        let expander = Expander::new(&workspace);
        let read = (0..1_000)
            .take_while(|n| {
                assert!(expander.expand(&format!("*/x{n}*")).is_empty());
                !expander.is_over_limit()
            })
            .count();
        assert!((50..150).contains(&read), "{read}");
        assert!(expander.expand("*/f1").is_empty());
        // The control: some globs of each kind.
        let expander = Expander::new(&workspace);
        for n in 0..20 {
            assert_eq!(expander.expand(&format!("*/f{n}")).len(), 100);
            assert_eq!(expander.expand("d1/*").len(), 100);
        }
        assert!(!expander.is_over_limit());
    }

    #[test]
    fn a_long_pattern_takes_no_longer_than_a_name() {
        let dir = tempfile::tempdir().unwrap();
        for n in 0..2_000 {
            std::fs::write(dir.path().join(format!("f{n}{}", "x".repeat(200))), "").unwrap();
        }
        let workspace = Workspace::open(dir.path()).unwrap();
        assert_eq!(workspace.expand(&"*".repeat(16_000)).len(), MAX_NAMES);
        let start = std::time::Instant::now();
        assert!(workspace.expand(&"*?".repeat(8_000)).is_empty());
        assert!(start.elapsed() < std::time::Duration::from_secs(10));
    }
}
