//! Path patterns of rules: what they cover for allow rules and what they touch for deny rules. Pure: no file system
//! access.

use super::name_folding::fold_path;
pub use super::name_folding::tidy;
use super::protected::ProtectedName;
use super::secrets_like::secret_like;
use crate::base::access::{PathStatus, ResolvedPath};
use globset::{Glob, GlobBuilder, GlobMatcher};
use std::sync::OnceLock;

/// One entry of `paths` or `except`.
///
/// A glob relative to the workspace: `*` and `?` match within a component, `**` crosses components, `[…]` and `{a,b}`
/// work as usual. `dir/` means `dir/**`. A pattern that ends in `/**` also matches the directory itself when it is
/// listed or searched. Where it restricts (`deny`, `suspend`, `except` of an allow rule), a pattern also matches
/// everything below what it matches, as in `.gitignore`: a name does not show whether it is a directory's.
#[derive(Clone, Debug)]
pub struct PathPattern {
    /// As it was written, without a leading `./`.
    text: String,
    exact: Matcher,
    folded: Matcher,
    /// For a pattern `X/**`: the pattern `X`, as written and folded.
    base: Option<(Matcher, Matcher)>,
    /// For any other pattern: what lies below what it matches, as written and folded.
    below: Option<(Matcher, Matcher)>,
    all: bool,
    /// Whether it was written as `dir/`.
    dir: bool,
}

impl PathPattern {
    /// Parses a pattern from a policy file.
    ///
    /// # Errors
    /// Why it is invalid or can match nothing; a phrase for people.
    pub fn parse(written: &str) -> Result<Self, String> {
        let mut text = written;
        while let Some(rest) = text.strip_prefix("./") {
            text = rest;
        }
        if text.is_empty() {
            return Err("the pattern is empty; write `.` for the workspace itself".to_owned());
        }
        if text.starts_with('/') || text.starts_with('~') {
            return Err("patterns are relative to the workspace; nothing outside it can be allowed".to_owned());
        }
        if text.starts_with('!') {
            return Err("`!` has no meaning here; use `except`".to_owned());
        }
        if text.split('/').any(|part| part == "..") {
            return Err("`..` leads outside the workspace; nothing outside it can be allowed".to_owned());
        }
        if text.len() > MAX_BYTES {
            return Err(format!("the pattern is longer than {MAX_BYTES} bytes"));
        }
        if text.matches('{').count() > MAX_BRACES {
            return Err(format!("the pattern has more than {MAX_BRACES} braces"));
        }
        if text.chars().any(char::is_control) {
            return Err("the pattern contains a control character".to_owned());
        }
        let dir = text.ends_with('/');
        let text = match text.strip_suffix('/') {
            Some(dir) => format!("{}/**", dir.trim_end_matches('/')),
            None => text.to_owned(),
        };
        let base = match text.strip_suffix("/**") {
            Some(base) => Some((glob(base)?, glob(&fold_pattern(base))?)),
            None => None,
        };
        let all = text.split('/').all(|part| part == "**") || text == "**/*";
        let below = match (&base, below_text(&text)) {
            (None, Some(below)) => Some((glob(&below)?, glob(&fold_pattern(&below))?)),
            _ => None,
        };
        Ok(Self {
            exact: glob(if text == "." { "" } else { &text })?,
            folded: glob(&fold_pattern(&text))?,
            base,
            below,
            all,
            dir,
            text,
        })
    }

    /// As it was written.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Whether it matches every path.
    pub fn is_all(&self) -> bool {
        self.all
    }

    /// Whether it matches only one path.
    pub fn is_literal(&self) -> bool {
        !self.text.contains(WILD)
    }

    /// For an allow rule: whether the resolved path matches as it is. A directory that is written to must match with
    /// everything below it.
    pub fn covers(&self, place: &ResolvedPath, writing: bool) -> bool {
        let dir = matches!(place.found, PathStatus::Dir | PathStatus::NewDir);
        if dir && writing {
            return self.covers_tree(&place.path);
        }
        self.covers_path(&place.path, dir)
    }

    fn covers_path(&self, path: &str, dir: bool) -> bool {
        let below = dir && self.base.as_ref().is_some_and(|(base, _)| base.is_match(path));
        self.all || self.exact.is_match(path) || below
    }

    /// Whether everything below a directory matches.
    fn covers_tree(&self, dir: &str) -> bool {
        let Some((base, _)) = &self.base else {
            return self.all;
        };
        self.all || ancestors(dir).any(|above| base.is_match(above))
    }

    /// For a deny rule: whether the path, as written or as resolved, may match on some file system (case,
    /// normalisation), or lies below a match. A directory that is written to matches if something below it may match; a
    /// directory that is only created has nothing below it.
    pub fn touches(&self, place: &ResolvedPath, writing: bool) -> bool {
        self.touches_with(place, writing, None)
    }

    /// Like [`PathPattern::touches`], with the paths below a directory that is written to, if they are known: then it
    /// matches only if one of them does.
    pub(super) fn touches_with(&self, place: &ResolvedPath, writing: bool, below: Option<&[String]>) -> bool {
        if self.touches_itself(place) {
            return true;
        }
        writing
            && place.found == PathStatus::Dir
            && match below {
                Some(paths) => self.first_of(paths).is_some(),
                None => self.may_fit_below(&place.path),
            }
    }

    /// Whether it touches the place by its own path, whatever lies below.
    pub(super) fn touches_itself(&self, place: &ResolvedPath) -> bool {
        let asked = tidy(&place.asked);
        let hits = |path: &str| self.touches_file(path, &fold_path(path).join("/"));
        self.all || hits(&place.path) || hits(&asked)
    }

    /// The first of these paths of the tree that it touches.
    pub(super) fn first_of<'p>(&self, paths: &'p [String]) -> Option<&'p str> {
        let touched = |path: &&String| self.touches_file(path, &fold_path(path).join("/"));
        paths.iter().find(touched).map(String::as_str)
    }

    /// Like [`PathPattern::touches`] for a file of a tree whose path is already normalised and folded.
    pub(super) fn touches_file(&self, path: &str, folded: &str) -> bool {
        self.all || self.hits(path, false) || self.hits(folded, true)
    }

    /// Like [`PathPattern::covers`] for a file.
    pub(super) fn covers_file(&self, path: &str) -> bool {
        self.covers_path(path, false)
    }

    /// For a deny rule: whether it matches a directory with everything below it, by the directory's own path.
    pub(super) fn touches_tree(&self, dir: &str, folded: &str) -> bool {
        self.touches_file(dir, folded)
    }

    /// Globs for a prefilter: every path that it touches matches one of the first list, or its folded form one of the
    /// second.
    pub(super) fn glob_texts(&self) -> (Vec<String>, Vec<String>) {
        let base = self.text.strip_suffix("/**").map(ToOwned::to_owned);
        let more: Vec<String> = base.or_else(|| below_text(&self.text)).into_iter().collect();
        let own = if self.text == "." { "" } else { &self.text };
        let exact = std::iter::once(own.to_owned()).chain(more.iter().cloned()).collect();
        let folded = std::iter::once(own)
            .chain(more.iter().map(String::as_str))
            .map(fold_pattern)
            .collect();
        (exact, folded)
    }

    /// Whether it matches the path, the directory that `X/**` is about, or what lies below a match.
    fn hits(&self, path: &str, folded: bool) -> bool {
        let form = |(exact, fold): &(Matcher, Matcher)| {
            if folded {
                fold.is_match(path)
            } else {
                exact.is_match(path)
            }
        };
        let whole = if folded { &self.folded } else { &self.exact };
        whole.is_match(path) || self.base.as_ref().is_some_and(form) || self.below.as_ref().is_some_and(form)
    }

    /// Whether the pattern could match a directory or some path below it, judged by its literal prefix.
    pub(super) fn may_fit_below(&self, dir: &str) -> bool {
        let dir = fold_path(dir);
        let lead = fold_path(self.lead());
        lead.iter().zip(&dir).all(|(a, b)| a == b)
    }

    /// Whether it begins with a wildcard, so that no directory is certainly without a match.
    pub(super) fn fits_anywhere(&self) -> bool {
        self.text.contains(WILD) && self.lead().is_empty()
    }

    /// Whether neither the directory nor any path below it can match on any file system. No false positives.
    pub(super) fn fits_nothing_below(&self, dir: &str) -> bool {
        !self.text.contains('\\') && !self.may_fit_below(dir)
    }

    /// The longest literal directory that contains every matching path; `""` for the workspace.
    pub fn directory(&self) -> String {
        match self.text.contains(WILD) {
            true => self.lead().to_owned(),
            false => self.text.rsplit_once('/').map_or("", |(dir, _)| dir).to_owned(),
        }
    }

    /// The components before the first one with a wildcard.
    fn lead(&self) -> &str {
        match self.text.find(WILD) {
            None => &self.text,
            Some(at) => {
                let before = self.text.get(..at).unwrap_or_default();
                before.rsplit_once('/').map_or("", |(lead, _)| lead)
            }
        }
    }

    /// The literal path: the whole pattern, or what follows a leading `**/`. `dir/` is literal, `dir/**` is not.
    pub fn spelled(&self) -> Option<&str> {
        let text = if self.dir {
            self.text.strip_suffix("/**").unwrap_or(&self.text)
        } else {
            &self.text
        };
        let text = text.strip_prefix("**/").unwrap_or(text);
        (!text.contains(WILD)).then_some(text)
    }

    /// Whether it names a protected path literally: no wildcard except a leading `**/`, and the protected name is
    /// spelled out.
    pub fn names_protected(&self, entry: &ProtectedName) -> bool {
        self.spelled().is_some_and(|text| entry.holds(&fold_path(text)))
    }

    /// Whether it opens the git directory for git itself, which writes the index, refs and objects there.
    pub fn opens_repository(&self) -> bool {
        self.text == ".git/**"
    }

    /// Whether it names a secret-like file or directory literally: no wildcard except a leading `**/`.
    pub fn names_secret(&self) -> bool {
        self.spelled().is_some_and(|text| secret_like(text).is_some())
    }
}

/// The most bytes of a pattern.
pub const MAX_BYTES: usize = 512;

/// The deepest nesting of braces; deeper ones would not compile to a regular expression.
pub const MAX_BRACES: usize = 32;

const WILD: [char; 6] = ['*', '?', '[', '{', ']', '}'];

/// The pattern of what lies below everything that a pattern matches; `None` if that is the pattern itself.
fn below_text(text: &str) -> Option<String> {
    match text {
        "." => Some("**".to_owned()),
        text if text == "**" || text.ends_with("/**") => None,
        text => Some(format!("{text}/**")),
    }
}

fn ancestors(dir: &str) -> impl Iterator<Item = &str> {
    let cuts = dir.match_indices('/').filter_map(|(at, _)| dir.get(..at));
    cuts.chain(std::iter::once(dir))
}

/// A compiled pattern. Most need no regular expression; the others compile it at first use.
#[derive(Clone, Debug)]
enum Matcher {
    Literal(String),
    /// `X/**` with a literal `X`, stored with its trailing slash.
    Below(String),
    Glob(Box<Glob>, OnceLock<GlobMatcher>),
}

impl Matcher {
    fn is_match(&self, path: &str) -> bool {
        match self {
            Matcher::Literal(text) => path == text,
            Matcher::Below(dir) => path.strip_prefix(dir.as_str()).is_some_and(|rest| !rest.is_empty()),
            Matcher::Glob(glob, ready) => ready.get_or_init(|| glob.compile_matcher()).is_match(path),
        }
    }
}

fn glob(text: &str) -> Result<Matcher, String> {
    let special = |text: &str| text.contains(WILD) || text.contains('\\');
    if !special(text) {
        return Ok(Matcher::Literal(text.to_owned()));
    }
    if let Some(dir) = text
        .strip_suffix("**")
        .filter(|dir| dir.ends_with('/') && !special(dir))
    {
        return Ok(Matcher::Below(dir.to_owned()));
    }
    build(text)
        .map(|glob| Matcher::Glob(Box::new(glob), OnceLock::new()))
        .map_err(|error| format!("not a path pattern: {}", error.kind()))
}

/// Compiles a glob with the options of path patterns.
pub(super) fn build(text: &str) -> Result<Glob, globset::Error> {
    GlobBuilder::new(text)
        .literal_separator(true)
        .backslash_escape(true)
        .empty_alternates(true)
        .build()
}

/// Folds the literal components of a pattern like names; components with wildcards only in case.
fn fold_pattern(text: &str) -> String {
    let parts = text.split('/').map(|part| match part {
        "." => String::new(),
        part if part.contains(WILD) || part.contains('\\') => part.to_lowercase(),
        part => super::name_folding::fold(part),
    });
    parts.collect::<Vec<_>>().join("/")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(path: &str, found: PathStatus) -> ResolvedPath {
        ResolvedPath {
            asked: path.to_owned(),
            path: path.to_owned(),
            inside: true,
            found,
        }
    }

    fn pattern(text: &str) -> PathPattern {
        PathPattern::parse(text).unwrap()
    }

    #[test]
    fn what_is_covered() {
        for (text, path, covered) in [
            ("src/**", "src/a/b.rs", true),
            ("src/**", "src-evil/a.rs", false),
            ("src/*.rs", "src/a/b.rs", false),
            ("**/*.rs", "b.rs", true),
            ("src/", "src/x", true),
            ("./src/x", "src/x", true),
            ("Src/x", "src/x", false),
            ("*", ".git", true),
            ("**", "a", true),
        ] {
            assert_eq!(
                pattern(text).covers(&place(path, PathStatus::File), true),
                covered,
                "{text} {path}"
            );
        }
    }

    #[test]
    fn directories() {
        assert!(pattern("src/**").covers(&place("src", PathStatus::Dir), false));
        assert!(pattern("src/**").covers(&place("src/a", PathStatus::Dir), true));
        assert!(!pattern("src/*").covers(&place("src/a", PathStatus::Dir), true));
        assert!(pattern("**").covers(&place("", PathStatus::Dir), false));
        assert!(pattern(".").covers(&place("", PathStatus::Dir), false));
        assert!(pattern("src/gen/**").touches(&place("src", PathStatus::Dir), true));
        assert!(!pattern("src/gen/**").touches(&place("src", PathStatus::Dir), false));
        assert!(!pattern("src/gen/**").touches(&place("src", PathStatus::NewDir), true));
        assert!(pattern("src/gen/**").touches(&place("src/gen", PathStatus::NewDir), true));
        assert!(pattern("src/**").covers(&place("src/a", PathStatus::NewDir), true));
        assert!(!pattern("docs/**").touches(&place("src", PathStatus::Dir), true));
    }

    #[test]
    fn a_restriction_holds_below_what_it_names() {
        for (text, path, touched) in [
            ("priv", "priv", true),
            ("priv", "priv/a/b", true),
            ("priv", "private", false),
            ("priv", "a/priv/b", false),
            ("Priv", "priv/A", true),
            ("**/priv", "a/priv/b", true),
            ("*", "a/b", true),
            ("src/*", "src/a/b", true),
            ("src/*", "src", false),
            ("*.d", "x.d/y", true),
            ("{a,b}", "b/c", true),
            (".", "a/b", true),
            ("src/**", "src", true),
            ("src/**/*.rs", "src/a.rs/b", true),
            ("src/**/*.rs", "src/a", false),
        ] {
            let pattern = pattern(text);
            assert_eq!(
                pattern.touches(&place(path, PathStatus::File), false),
                touched,
                "{text} {path}"
            );
            let folded = fold_path(path).join("/");
            assert_eq!(pattern.touches_tree(path, &folded), touched, "{text} {path}");
            let (exact, fold) = pattern.glob_texts();
            let passes = |texts: &[String], path: &str| {
                let mut globs = texts.iter().map(|text| build(text).unwrap().compile_matcher());
                globs.any(|glob| glob.is_match(path))
            };
            assert!(
                !touched || passes(&exact, path) || passes(&fold, &folded),
                "{text} {path}"
            );
            assert!(
                !pattern.covers(&place(path, PathStatus::File), false) || touched,
                "{text} {path}"
            );
        }
        assert!(!pattern("priv").covers(&place("priv/a", PathStatus::File), false));
    }

    #[test]
    fn what_lies_below_a_written_directory_is_known_or_supposed() {
        let dir = place("src", PathStatus::Dir);
        let keys = pattern("**/*.pem");
        assert!(keys.touches(&dir, true) && !keys.touches(&dir, false));
        assert!(!keys.touches_with(&dir, true, Some(&["src/a.rs".to_owned()])));
        assert!(keys.touches_with(&dir, true, Some(&["src/K.PEM".to_owned()])));
        assert!(pattern("src").touches_with(&dir, true, Some(&[])));
    }

    #[test]
    fn denials_fold_names() {
        assert!(pattern("secrets/**").touches(&place("Secrets/a", PathStatus::File), false));
        assert!(pattern("**/*.pem").touches(&place("a/K.PEM", PathStatus::File), false));
        assert!(pattern("a.txt").touches(&place("a.txt.", PathStatus::Nothing), true));
    }

    #[test]
    fn refused_patterns() {
        for text in ["", "/etc/x", "../x", "a/../../x", "!x", "~/x", "a[", "{a"] {
            assert!(PathPattern::parse(text).is_err(), "{text}");
        }
    }
}
