//! A list of names as [`ClosedPaths`], for unit tests; the closed paths of a run come from `policy/closed.rs`.

use crate::base::grant::ClosedPaths;
use std::borrow::Cow;

/// The parsed list. Compared without regard to case.
#[derive(Debug)]
pub struct NameSet {
    list: Vec<Name>,
    /// For each first byte (lower case) of a last component: the indices of the names that end with such a component.
    by_first: Vec<Vec<u16>>,
    /// Paths that a rule opened by naming them, in lower case.
    opened: Vec<String>,
}

#[derive(Debug)]
struct Name {
    /// The components before the last one, `/`-separated, without a trailing `/`; `""` for none.
    before: String,
    last: String,
    anywhere: bool,
    /// Whether the last component is only a prefix.
    prefix: bool,
}

impl NameSet {
    /// Syntax: `a/b` at the top, `**/a/b` below any directory, `…*` for a prefix, `!a/b` for an exception.
    #[must_use]
    pub fn new(words: &[String]) -> Self {
        let mut names = Self {
            list: Vec::new(),
            by_first: vec![Vec::new(); 256],
            opened: Vec::new(),
        };
        for word in words {
            let word = word.to_lowercase();
            if let Some(path) = word.strip_prefix('!') {
                let path = path.strip_suffix("/**").unwrap_or(path);
                names.opened.push(path.trim_matches('/').to_owned());
                continue;
            }
            let (anywhere, path) = word
                .strip_prefix("**/")
                .map_or((false, word.as_str()), |path| (true, path));
            let (prefix, path) = path.strip_suffix('*').map_or((false, path), |path| (true, path));
            let (before, last) = path.rsplit_once('/').unwrap_or(("", path));
            let Some(first) = last.bytes().next() else { continue };
            let (Ok(number), Some(bucket)) = (
                u16::try_from(names.list.len()),
                names.by_first.get_mut(usize::from(first)),
            ) else {
                continue;
            };
            bucket.push(number);
            names.list.push(Name {
                before: before.to_owned(),
                last: last.to_owned(),
                anywhere,
                prefix,
            });
        }
        names
    }

    /// Whether exactly this path (lower case) is named, not one above it.
    fn named(&self, path: &str) -> bool {
        let (before, last) = path.rsplit_once('/').unwrap_or(("", path));
        let Some(first) = last.bytes().next() else { return false };
        let candidates = self.by_first.get(usize::from(first)).map_or(&[][..], Vec::as_slice);
        candidates
            .iter()
            .filter_map(|number| self.list.get(usize::from(*number)))
            .any(|name| name.is(before, last))
    }

    fn opens(&self, path: &str) -> bool {
        self.opened.iter().any(|opened| lies_at(path, opened))
    }
}

impl Name {
    fn is(&self, before: &str, last: &str) -> bool {
        let fits = match self.prefix {
            true => last.starts_with(&self.last),
            false => last == self.last,
        };
        fits && match (self.anywhere, self.before.is_empty()) {
            (true, true) => true,
            (true, false) => before
                .strip_suffix(&self.before)
                .is_some_and(|rest| rest.is_empty() || rest.ends_with('/')),
            (false, _) => before == self.before,
        }
    }
}

impl ClosedPaths for NameSet {
    fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    fn closed(&self, path: &str, is_dir: bool) -> bool {
        let path = lower(path);
        let mut ends = path.match_indices('/').map(|(at, _)| at).chain([path.len()]);
        ends.any(|end| path.get(..end).is_some_and(|part| self.named(part)))
            && !self.opens(&path)
            && !(is_dir && self.opened.iter().any(|opened| lies_at(opened, &path)))
    }

    fn why(&self, _path: &str) -> (&'static str, Option<String>) {
        ("protected_path", None)
    }
}

/// Whether `path` is `above` or is below it.
fn lies_at(path: &str, above: &str) -> bool {
    path.strip_prefix(above)
        .is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

/// Lower case; copies only if necessary.
fn lower(path: &str) -> Cow<'_, str> {
    match path.bytes().any(|byte| byte.is_ascii_uppercase() || !byte.is_ascii()) {
        true => Cow::Owned(path.to_lowercase()),
        false => Cow::Borrowed(path),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_name_paths() {
        let words = [
            ".git",
            "**/.npmrc",
            "**/.cargo/config*",
            "jenkinsfile*",
            "!.git/config",
            ".github/workflows",
            "**/.ÄB",
        ];
        let names = NameSet::new(&words.map(str::to_owned));
        let cases = [
            (".git/hooks", true),
            (".GIT/x", true),
            ("a/.git", false),
            (".npmrc", true),
            ("a/b/.npmrc", true),
            ("a/.npmrc.bak", false),
            ("x/.cargo/config.toml", true),
            ("x.cargo/config.toml", false),
            ("Jenkinsfile.release", true),
            ("a/Jenkinsfile", false),
            (".github", false),
            (".github/workflows", true),
            (".github/workflows/ci.yml", true),
            (".git/config", false),
            ("d/.äb/x", true),
            ("", false),
        ];
        for (path, expected) in cases {
            assert_eq!(names.closed(path, false), expected, "{path}");
        }
        assert!(!names.closed(".git", true), "something below is open");
        assert!(names.closed(".git", false) && names.closed(".github/workflows", true));
    }
}
