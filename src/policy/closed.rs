//! Computes the paths that no command may write, for the sandbox: protected paths, the run's own files, and paths that
//! rules deny or suspend for writing. Called for every name of a tree, so the common case costs a few table look-ups
//! and one glob set, and no allocation. Only `is_ruled` and `why` cost more: they are asked about single paths, and
//! `is_ruled` asks every rule.

use super::bounds::TEST_HOOK;
use super::changes::{Author, ChangeRuling, rule_change};
use super::files::build;
use super::model::{PolicySet, Rule, RuleEffect, SHELL};
use super::name_folding::fold_path;
use super::protected::{self, ProtectedName};
use crate::base::access::ResolvedPath;
use crate::base::grant::ClosedPaths;
use globset::{GlobSet, GlobSetBuilder};
use std::cell::RefCell;
use std::collections::HashSet;
use std::sync::Arc;

impl PolicySet {
    /// The paths that commands must not write, whatever is granted.
    pub fn closed(&self) -> Arc<dyn ClosedPaths> {
        Arc::new(Closed::of(self))
    }
}

#[derive(Debug)]
struct Closed {
    set: PolicySet,
    names: Names,
    /// Whether a protected name may begin above the workspace.
    begins_above: bool,
    /// Folded paths of the run's own files and directories.
    own: Vec<String>,
    /// Whether some rule denies writing tests, so that files that control tests are closed too.
    freezes_tests: bool,
    /// Indices (file, rule) of the rules that close paths.
    rules: Vec<(usize, usize)>,
    /// Paths that any of these rules' patterns may match: globs for paths as written, and for folded ones. `None` means
    /// any path.
    touched: Option<(GlobSet, GlobSet)>,
}

thread_local! {
    static FOLDED: RefCell<String> = const { RefCell::new(String::new()) };
}

impl Closed {
    fn of(set: &PolicySet) -> Self {
        let mut rules = Vec::new();
        for (at, policy) in set.files.iter().enumerate() {
            let closing = policy.rules.iter().enumerate().filter(|(_, rule)| rule.closes_paths());
            rules.extend(closing.map(|(rule, _)| (at, rule)));
        }
        let own = set
            .protect
            .iter()
            .chain(&set.hidden)
            .map(|path| fold_path(path).join("/"));
        let names = Names::of(protected::LIST);
        let mut closed = Self {
            set: set.clone(),
            begins_above: set.above.iter().any(|name| names.may_be(name)),
            names,
            own: own.filter(|path| !path.is_empty()).collect(),
            freezes_tests: set.freezes_tests(),
            rules,
            touched: None,
        };
        closed.touched = closed.prefilter();
        closed
    }

    fn prefilter(&self) -> Option<(GlobSet, GlobSet)> {
        let (mut exact, mut folded) = (GlobSetBuilder::new(), GlobSetBuilder::new());
        for pattern in self.rules().flat_map(|rule| rule.paths.iter().flatten()) {
            let (as_written, fold) = pattern.glob_texts();
            for text in as_written {
                exact.add(build(&text).ok()?);
            }
            for text in fold {
                folded.add(build(&text).ok()?);
            }
        }
        Some((exact.build().ok()?, folded.build().ok()?))
    }

    fn rules(&self) -> impl Iterator<Item = &Rule> {
        let found = |(file, rule): &(usize, usize)| self.set.files.get(*file)?.rules.get(*rule);
        self.rules.iter().filter_map(found)
    }

    /// The rule that closes a path.
    fn rule(&self, path: &str, folded: &str, is_dir: bool) -> Option<&Rule> {
        if self.rules.is_empty() {
            return None;
        }
        if !is_dir
            && let Some((exact, fold)) = &self.touched
            && !exact.is_match(path)
            && !fold.is_match(folded)
        {
            return None;
        }
        self.rules().find(|rule| {
            let mut patterns = rule.paths.iter().flatten();
            let mut except = rule.except.paths.iter();
            match is_dir {
                true => {
                    patterns.any(|pattern| pattern.touches_tree(path, folded))
                        && !except.any(|pattern| pattern.is_all() || pattern.may_fit_below(path))
                }
                false => {
                    patterns.any(|pattern| pattern.touches_file(path, folded))
                        && !except.any(|pattern| pattern.covers_file(path))
                }
            }
        })
    }

    fn is_own(&self, folded: &str) -> bool {
        let below = |own: &String| {
            folded
                .strip_prefix(own.as_str())
                .is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
        };
        self.own.iter().any(below)
    }

    /// Whether one of the run's own paths is an entry of a directory.
    fn owns_a_name(&self, folded: &str) -> bool {
        self.own.iter().any(|own| match own.rsplit_once('/') {
            Some((dir, _)) => dir == folded,
            None => folded.is_empty(),
        })
    }

    /// Whether the path is a protected name or below one, and not opened by rules.
    fn is_protected(&self, path: &str, folded: &str, is_dir: bool) -> bool {
        if self.is_test_hook(path, folded) {
            return true;
        }
        if self.begins_above && !path.is_empty() && protected::entry_above(&self.set.above, path).is_some() {
            return true;
        }
        if !self.names.may_hold(folded) {
            return false;
        }
        let Some(entry) = protected::entry_of(path) else {
            return false;
        };
        !self.opens(entry, path, is_dir)
    }

    /// Whether the path controls frozen tests and no file names it literally for writing.
    fn is_test_hook(&self, path: &str, folded: &str) -> bool {
        let named = |pattern: &super::files::PathPattern| {
            pattern
                .spelled()
                .is_some_and(|text| text.to_ascii_lowercase().ends_with(TEST_HOOK))
                && pattern.covers_file(path)
        };
        let opened = || {
            self.set.files.iter().all(|policy| {
                policy
                    .allowing()
                    .any(|rule| rule.is_about_writing() && rule.paths.iter().flatten().any(named))
            })
        };
        self.freezes_tests && folded.rsplit('/').next() == Some(TEST_HOOK) && !opened()
    }

    /// Whether every file has an allow rule for writing that names the protected name literally and covers the path.
    /// For a directory it is enough that something below it may be opened.
    fn opens(&self, entry: &ProtectedName, path: &str, is_dir: bool) -> bool {
        let place = ResolvedPath::of_tree(path);
        self.set.files.iter().all(|policy| {
            policy.allowing().any(|rule| {
                let mut patterns = rule.paths.iter().flatten();
                if entry.path == ".git"
                    && rule.is_about_builtin(SHELL)
                    && patterns.clone().any(super::files::PathPattern::opens_repository)
                {
                    return opens_below_git(path);
                }
                rule.is_about_writing()
                    && patterns
                        .any(|pattern| pattern.names_protected(entry) && (is_dir || pattern.covers(&place, true)))
            })
        })
    }
}

/// Whether a rule that opens the git directory for git opens this path: configuration, and programs that git runs, stay
/// closed.
fn opens_below_git(path: &str) -> bool {
    const CLOSED: [&str; 6] = ["config", "config.worktree", "hooks", "info", "modules", "worktrees"];
    match path.split_once('/') {
        None => path == ".git",
        Some((".git", below)) => {
            let first = below.split('/').next().unwrap_or_default().to_ascii_lowercase();
            !CLOSED.contains(&first.as_str())
        }
        Some(_) => false,
    }
}

impl ClosedPaths for Closed {
    fn is_empty(&self) -> bool {
        false
    }

    fn closed(&self, path: &str, is_dir: bool) -> bool {
        folded(path, |folded| {
            self.is_protected(path, folded, is_dir) || self.is_own(folded) || self.rule(path, folded, is_dir).is_some()
        })
    }

    fn has_ordinary_names(&self, dir: &str) -> bool {
        if self.begins_above || (matches!(form(dir), Form::Odd) && !dir.is_empty()) {
            return false;
        }
        let by_rule = self.rules().flat_map(|rule| rule.paths.iter().flatten());
        folded(dir, |folded| {
            !self.names.may_hold(folded)
                && !self.owns_a_name(folded)
                && by_rule.into_iter().all(|pattern| pattern.fits_nothing_below(dir))
        })
    }

    fn is_ordinary(&self, name: &str) -> bool {
        match form(name) {
            Form::Odd => false,
            Form::Folded => !self.names.may_be(name),
            Form::Case => folded(name, |folded| !self.names.may_be(folded)),
        }
    }

    fn is_ruled(&self, path: &str) -> bool {
        rule_change(&self.set, path, Author::Call) == ChangeRuling::Allowed
    }

    fn why(&self, path: &str) -> (&'static str, Option<String>) {
        folded(path, |folded| {
            if self.is_protected(path, folded, false) || self.is_own(folded) {
                return ("protected_path", None);
            }
            let rule = self.rule(path, folded, false).or_else(|| self.rule(path, folded, true));
            match rule {
                Some(rule) if rule.effect == RuleEffect::Suspend => ("suspend_rule", Some(rule.name.clone())),
                Some(rule) => ("deny_rule", Some(rule.name.clone())),
                None => ("protected_path", None),
            }
        })
    }
}

/// Calls `with` with the folded form of a path. Most names equal their folded form; ASCII case is folded in a reused
/// buffer.
fn folded<T>(path: &str, with: impl FnOnce(&str) -> T) -> T {
    match form(path) {
        Form::Folded => with(path),
        Form::Case => FOLDED.with_borrow_mut(|buffer| {
            buffer.clear();
            buffer.push_str(path);
            buffer.make_ascii_lowercase();
            with(buffer)
        }),
        Form::Odd => with(&fold_path(path).join("/")),
    }
}

enum Form {
    /// Equal to its folded form.
    Folded,
    /// Differs only in the case of ASCII letters.
    Case,
    /// May contain anything else that folds.
    Odd,
}

fn form(path: &str) -> Form {
    let mut form = Form::Folded;
    // As if a separator preceded the first component.
    let mut before = b'/';
    for byte in path.bytes() {
        match byte {
            b'A'..=b'Z' => form = Form::Case,
            // Trailing characters that folding removes, and empty components.
            b'/' if matches!(before, b'/' | b'.' | b' ') => return Form::Odd,
            b' ' if before == b'/' => return Form::Odd,
            b'\\' | b':' | b'~' | 0..=31 | 127.. => return Form::Odd,
            _ => {}
        }
        before = byte;
    }
    match before {
        b'/' | b'.' | b' ' if !path.is_empty() => Form::Odd,
        _ => form,
    }
}

/// An index of the first components of protected names, so that most names are ruled out quickly.
#[derive(Debug)]
struct Names {
    /// By first byte: bit N is set if a complete name of N bytes begins with it.
    lengths: Box<[u128; 256]>,
    whole: HashSet<&'static str>,
    /// By first byte: names that are only prefixes.
    beginnings: Vec<Vec<&'static str>>,
    endings: Vec<&'static str>,
}

impl Names {
    fn of(list: &'static [ProtectedName]) -> Self {
        let mut names = Self {
            lengths: Box::new([0; 256]),
            whole: HashSet::new(),
            beginnings: vec![Vec::new(); 256],
            endings: list
                .iter()
                .filter(|entry| entry.ending)
                .map(|entry| entry.path)
                .collect(),
        };
        for entry in list {
            let (first, more) = match entry.path.split_once('/') {
                Some((first, _)) => (first, true),
                None => (entry.path, false),
            };
            let Some(byte) = first.bytes().next() else { continue };
            // A name that is too long for the mask is stored as a prefix, and prefixes are always compared.
            if (entry.prefix && !more) || first.len() > 127 {
                if let Some(list) = names.beginnings.get_mut(usize::from(byte)) {
                    list.push(first);
                }
            } else {
                names.whole.insert(first);
                if let Some(lengths) = names.lengths.get_mut(usize::from(byte)) {
                    *lengths |= 1 << first.len();
                }
            }
        }
        names
    }

    /// Whether a folded path may contain a protected name. No false negatives.
    fn may_hold(&self, folded: &str) -> bool {
        folded.split('/').any(|name| self.may_be(name))
    }

    /// Whether a folded name may be part of a protected one.
    fn may_be(&self, name: &str) -> bool {
        let Some(byte) = name.bytes().next() else { return false };
        let at = usize::from(byte);
        let lengths = self.lengths.get(at).copied().unwrap_or(0);
        if self.endings.iter().any(|ending| name.ends_with(ending)) {
            return true;
        }
        let whole = name.len() < 128 && lengths & (1 << name.len()) != 0 && self.whole.contains(name);
        whole
            || self
                .beginnings
                .get(at)
                .is_some_and(|list| list.iter().any(|beginning| name.starts_with(beginning)))
    }
}

#[cfg(test)]
mod tests;
