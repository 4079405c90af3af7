//! The ignore files of the tree (`.gitignore`, `.ignore`, `.geminiignore`). They are read through a directory handle:
//! regular files of limited size only, because a file of the tree may be a link to a device or to a file outside, or a
//! FIFO. A library parses and matches the patterns; this file applies the order of precedence.

use super::fs::{DirHandle, FsError};
use super::root::join;
use crate::base::glob;
use crate::base::sync::lock;
use ignore::Match;
use ignore::gitignore::{Gitignore, GitignoreBuilder};
use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, Mutex, PoisonError, RwLock};

/// Upper limit in bytes for one ignore file. A longer one does not apply here; for a snapshot it is an error.
pub(super) const MAX_IGNORE_FILE: u64 = 4 << 20;

/// Upper limit for the patterns of one ignore file. The further ones do not apply here; for a snapshot, of which they
/// could not be left out, such a file is an error.
pub(super) const MAX_PATTERNS: usize = 20_000;

/// Upper limit for the directories whose rules are kept in memory. If it is reached, all are forgotten and read again
/// when they are needed.
const MAX_KEPT: usize = 1_000;

/// The ignore files of one directory, in order of precedence.
const NAMES: [&str; 3] = [".geminiignore", ".ignore", ".gitignore"];

/// What a walk leaves out. `.git`, this program's own directories and the recipe's ignore patterns are always left out,
/// and links are never followed. Settings of one machine (`.git/info/exclude`, the user's global ignore file, ignore
/// files above the root) are never read.
#[derive(Clone, Copy, Debug)]
pub struct Filter {
    /// Apply `.gitignore`, also outside a git repository, and `.ignore`.
    pub git: bool,
    /// Apply `.geminiignore`.
    pub gemini: bool,
    /// Include names that begin with a dot.
    pub hidden: bool,
}

impl Filter {
    /// Applies all ignore files; includes names that begin with a dot.
    pub fn all() -> Self {
        Self {
            git: true,
            gemini: true,
            hidden: true,
        }
    }
}

/// The ignore files that apply to a tree or to a part of it. They are read when they are first needed.
pub(super) struct IgnoreFiles {
    handle: Arc<DirHandle>,
    /// The directory whose ignore files and those below it apply, relative to the root.
    top: String,
    /// For each of `NAMES`, whether it applies.
    wanted: [bool; 3],
    kept: RwLock<HashMap<String, Arc<DirRules>>>,
    /// Paths of the ignore files that could not be read, or not completely.
    failed: Mutex<BTreeSet<String>>,
}

/// The rules of one directory, linked to those of the directory above.
struct DirRules {
    above: Option<Arc<DirRules>>,
    /// For each of `NAMES`.
    files: [Gitignore; 3],
}

impl IgnoreFiles {
    /// The ignore files of the directory `top` (relative to the root) and of those below it.
    pub(super) fn new(handle: Arc<DirHandle>, top: &str, filter: Filter) -> Self {
        Self {
            handle,
            top: top.to_owned(),
            wanted: [filter.gemini, filter.git, filter.git],
            kept: RwLock::default(),
            failed: Mutex::default(),
        }
    }

    /// Whether a path below `top` (relative to the root) is ignored, given that no directory above it is.
    ///
    /// A kind of file decides before the next kind, wherever the two are; among the files of one kind, the deepest
    /// decides, and in a file the last matching pattern.
    pub(super) fn ignores(&self, path: &str, is_dir: bool) -> bool {
        if path == self.top || self.wanted == [false; 3] {
            return false;
        }
        let rules = self.rules(parent(path));
        let decided = (0..NAMES.len()).find_map(|kind| rules.decides(kind, path, is_dir));
        decided.unwrap_or(false)
    }

    /// Whether a directory or one above it is ignored.
    pub(super) fn hides(&self, dir: &str) -> bool {
        let ends = dir.match_indices('/').map(|(at, _)| at).chain([dir.len()]);
        ends.filter_map(|end| dir.get(..end))
            .any(|above| !above.is_empty() && self.ignores(above, true))
    }

    /// The number of ignore files so far that could not be read, or not completely.
    pub(super) fn failed(&self) -> usize {
        lock(&self.failed).len()
    }

    fn rules(&self, dir: &str) -> Arc<DirRules> {
        if let Some(known) = self.known(dir) {
            return known;
        }
        let mut missing = vec![dir];
        let mut at = dir;
        let mut rules = loop {
            if at == self.top || at.is_empty() {
                break Arc::new(DirRules::none());
            }
            at = parent(at);
            match self.known(at) {
                Some(known) => break known,
                None => missing.push(at),
            }
        };
        for dir in missing.into_iter().rev() {
            rules = self.below(&rules, dir);
            let mut kept = self.kept.write().unwrap_or_else(PoisonError::into_inner);
            if kept.len() >= MAX_KEPT {
                kept.clear();
            }
            kept.insert(dir.to_owned(), Arc::clone(&rules));
        }
        rules
    }

    fn known(&self, dir: &str) -> Option<Arc<DirRules>> {
        let kept = self.kept.read().unwrap_or_else(PoisonError::into_inner);
        kept.get(dir).cloned()
    }

    /// The rules of a directory, given those of the directory above.
    fn below(&self, above: &Arc<DirRules>, dir: &str) -> Arc<DirRules> {
        let mut files = DirRules::none().files;
        for ((file, name), wanted) in files.iter_mut().zip(NAMES).zip(self.wanted) {
            if wanted {
                *file = self.read(dir, name);
            }
        }
        if files.iter().all(Gitignore::is_empty) {
            return Arc::clone(above);
        }
        Arc::new(DirRules {
            above: Some(Arc::clone(above)),
            files,
        })
    }

    fn read(&self, dir: &str, name: &str) -> Gitignore {
        let path = join(dir, name);
        let (rules, complete) = match rules_of(&self.handle, dir, &path) {
            Ok(Some(read)) => read,
            Ok(None) => return Gitignore::empty(),
            Err(_) => (Gitignore::empty(), false),
        };
        if !complete {
            lock(&self.failed).insert(path);
        }
        rules
    }
}

impl DirRules {
    fn none() -> Self {
        Self {
            above: None,
            files: [Gitignore::empty(), Gitignore::empty(), Gitignore::empty()],
        }
    }

    /// Whether the files of one kind ignore a path; `None` if no pattern matches.
    fn decides(&self, kind: usize, path: &str, is_dir: bool) -> Option<bool> {
        let mut rules = Some(self);
        while let Some(here) = rules {
            match here.files.get(kind).map(|file| file.matched(path, is_dir)) {
                Some(Match::Ignore(_)) => return Some(true),
                Some(Match::Whitelist(_)) => return Some(false),
                Some(Match::None) | None => rules = here.above.as_deref(),
            }
        }
        None
    }
}

/// The directory that contains a path.
fn parent(path: &str) -> &str {
    path.rsplit_once('/').map_or("", |(dir, _)| dir)
}

/// The rules in the ignore file `path`, which apply to `dir` (both relative to the handle), and whether all of its
/// lines apply. `None` if there is no such file.
///
/// # Errors
/// It is not a regular file, it is too large, or it cannot be read.
pub(super) fn rules_of(handle: &DirHandle, dir: &str, path: &str) -> Result<Option<(Gitignore, bool)>, FsError> {
    let text = match handle.read(path, MAX_IGNORE_FILE) {
        Ok(text) => text,
        Err(FsError::Missing | FsError::Directory | FsError::NotADirectory) => return Ok(None),
        Err(error) => return Err(error),
    };
    let mut builder = GitignoreBuilder::new(dir);
    let complete = add_lines(&mut builder, &text);
    Ok(Some(match builder.build() {
        Ok(rules) => (rules, complete),
        Err(_) => (Gitignore::empty(), false),
    }))
}

/// Adds the lines of an ignore file; a line that is no pattern has no effect. Returns whether all lines are within the
/// limits.
fn add_lines(builder: &mut GitignoreBuilder, text: &[u8]) -> bool {
    let text = text.strip_prefix("\u{feff}".as_bytes()).unwrap_or(text);
    let mut complete = true;
    let mut patterns = 0;
    for line in text.split(|byte| *byte == b'\n') {
        let Ok(line) = std::str::from_utf8(line) else {
            continue;
        };
        let line = line.strip_suffix('\r').unwrap_or(line);
        if line.trim().is_empty() || line.starts_with('#') {
            continue;
        }
        patterns += 1;
        if patterns > MAX_PATTERNS {
            return false;
        }
        complete &= add_pattern(builder, line);
    }
    complete
}

/// Adds one pattern in `.gitignore` format, if it is within the limits and valid; returns whether it is within the
/// limits.
pub(super) fn add_pattern(builder: &mut GitignoreBuilder, pattern: &str) -> bool {
    if glob::check(pattern).is_err() {
        return false;
    }
    // As in git, a line that is no pattern has no effect.
    let _added = builder.add_line(None, pattern);
    true
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    fn tree(files: &[(&str, &str)]) -> tempfile::TempDir {
        let dir = tempfile::tempdir().unwrap();
        for (path, text) in files {
            let path = dir.path().join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        }
        dir
    }

    fn files(dir: &Path, top: &str, filter: Filter) -> IgnoreFiles {
        IgnoreFiles::new(Arc::new(DirHandle::open(dir).unwrap()), top, filter)
    }

    #[test]
    fn kinds_then_depth_then_lines_decide() {
        let dir = tree(&[
            (".gitignore", "*.log\n!a.log\n/only-top\n"),
            (".ignore", "*.tmp\n!keep.log\n"),
            (".geminiignore", "\u{feff}secret\r\n!sub/b.tmp\n"),
            ("sub/.gitignore", "!c.log\nsecret\nkeep.log\n"),
            ("sub/.geminiignore", "d\n"),
        ]);
        let all = files(dir.path(), "", Filter::all());
        let cases = [
            ("x.log", true),
            ("a.log", false),
            ("sub/x.log", true),
            ("sub/c.log", false),
            ("only-top", true),
            ("sub/only-top", false),
            // `.ignore` decides before `.gitignore`, although that is deeper.
            ("sub/keep.log", false),
            ("b.tmp", true),
            ("sub/b.tmp", false),
            ("secret", true),
            ("sub/secret", true),
            ("d", false),
            ("sub/d", true),
        ];
        for (path, ignored) in cases {
            assert_eq!(all.ignores(path, false), ignored, "{path}");
        }
        assert_eq!(all.failed(), 0);
        let git = Filter {
            gemini: false,
            ..Filter::all()
        };
        assert!(!files(dir.path(), "", git).ignores("secret", false));
        let below = files(dir.path(), "sub", Filter::all());
        assert!(below.ignores("sub/d", false) && !below.ignores("sub/x.log", false));
    }

    #[test]
    fn what_is_below_an_ignored_directory_is_hidden() {
        let dir = tree(&[(".gitignore", "/a/b/\n"), ("a/b/.gitignore", "!*\n")]);
        let all = files(dir.path(), "", Filter::all());
        assert!(all.hides("a/b") && all.hides("a/b/c"));
        assert!(!all.hides("a") && !all.hides(""));
    }

    #[test]
    fn only_regular_files_of_limited_size_are_read() {
        for name in NAMES {
            let dir = tree(&[("x/patterns", "*\n"), ("y/a", "")]);
            let at = |dir_name: &str| dir.path().join(dir_name).join(name);
            let check = |what: &str| {
                let all = files(dir.path(), "", Filter::all());
                assert!(!all.ignores("x/a", false), "{name}: {what}");
                assert_eq!(all.failed(), 1, "{name}: {what}");
                std::fs::remove_file(at("x")).unwrap();
            };
            for target in ["patterns", "/dev/zero", "../../outside"] {
                std::os::unix::fs::symlink(target, at("x")).unwrap();
                check(target);
            }
            rustix::fs::mknodat(
                rustix::fs::CWD,
                at("x"),
                rustix::fs::FileType::Fifo,
                rustix::fs::Mode::from_raw_mode(0o600),
                0,
            )
            .unwrap();
            check("a pipe");
            let file = std::fs::File::create(at("x")).unwrap();
            file.set_len(MAX_IGNORE_FILE + 1).unwrap();
            check("a large file");
            // The control: an ordinary file applies, and a missing one is no failure.
            std::fs::write(at("x"), "*\n").unwrap();
            let all = files(dir.path(), "", Filter::all());
            assert!(all.ignores("x/a", false) && !all.ignores("y/a", false), "{name}");
            assert_eq!(all.failed(), 0, "{name}");
        }
    }

    #[test]
    fn a_line_beyond_the_limits_is_skipped() {
        let deep = format!("{}a{}", "{".repeat(20_000), "}".repeat(20_000));
        let dir = tree(&[(".gitignore", &format!("one\n{deep}\ntwo\n"))]);
        let all = files(dir.path(), "", Filter::all());
        assert!(all.ignores("one", false) && all.ignores("two", false) && !all.ignores("a", false));
        assert_eq!(all.failed(), 1);
        let many: String = (0..=MAX_PATTERNS).map(|n| format!("f{n}\n")).collect();
        let dir = tree(&[(".gitignore", &many)]);
        let all = files(dir.path(), "", Filter::all());
        let last = format!("f{MAX_PATTERNS}");
        assert!(all.ignores("f0", false) && !all.ignores(&last, false));
        assert_eq!(all.failed(), 1);
    }

    #[test]
    fn rules_that_were_forgotten_are_read_again() {
        let dir = tree(&[(".gitignore", "x\n"), ("d0/.gitignore", "!x\n")]);
        let all = files(dir.path(), "", Filter::all());
        for n in 0..2 * MAX_KEPT {
            assert_eq!(all.ignores(&format!("d{n}/x"), false), n != 0, "{n}");
        }
        assert!(!all.ignores("d0/x", false));
    }
}
