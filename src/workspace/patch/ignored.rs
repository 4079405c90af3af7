//! Git's ignore rules (gitignore(5)): which untracked files are not part of a snapshot. A library parses and matches
//! the patterns; this file applies the order of precedence, and keeps which ignore files count: a change of one must not
//! hide other changes unless it is allowed itself.

use gix_ignore::glob::Pattern;
use gix_ignore::glob::pattern::Case;
use gix_ignore::glob::wildmatch::Mode;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::ffi::CString;
use std::io::Read;
use std::os::fd::BorrowedFd;
use std::path::Path;

/// Upper limit in bytes for one ignore file.
const MOST_PATTERNS: u64 = 4 << 20;

/// Reads the `.gitignore` of a directory. A link, directory or FIFO with this name does not count, as in git.
pub(super) fn read_patterns(dir: BorrowedFd<'_>) -> Result<Option<Vec<u8>>, String> {
    let Ok(file) = super::names::open_file(dir, &CString::from(c".gitignore")) else {
        return Ok(None);
    };
    if !file.metadata().is_ok_and(|data| data.is_file()) {
        return Ok(None);
    }
    let mut text = Vec::new();
    file.take(MOST_PATTERNS + 1)
        .read_to_end(&mut text)
        .map_err(|error| error.to_string())?;
    match text.len() as u64 > MOST_PATTERNS {
        true => Err(format!("more than {MOST_PATTERNS} bytes")),
        false => Ok(Some(text)),
    }
}

/// The file in the store that keeps [`IgnoreFiles`] for a later process.
const KEPT: &str = "ignore-files";

/// Whether the change of an ignore file is allowed; the path is relative to the workspace.
pub(super) type IgnoreJudge<'a> = &'a (dyn Fn(&str) -> bool + Sync);

/// Which ignore files of a walk count.
#[derive(Clone, Copy)]
pub(super) enum Counting<'a> {
    /// All, from now on: this is the first walk.
    First,
    /// All that were not refused before. New and changed ones are not ruled on yet.
    Unruled,
    /// Those of earlier walks, and from now on new and changed ones that are allowed.
    Ruled(IgnoreJudge<'a>),
}

/// The ignore files that count, by directory: its path from the top of the repository with a trailing slash.
#[derive(Clone, Debug, Default)]
pub(super) struct IgnoreFiles {
    files: BTreeMap<Vec<u8>, IgnoreFile>,
    /// Whether they differ from those that were kept last.
    pub is_new: bool,
}

#[derive(Clone, Debug, Default, Deserialize, Serialize)]
struct IgnoreFile {
    /// The text that counts; `None` if there is no file.
    counts: Option<Vec<u8>>,
    /// The last text that does not count, because it is not allowed.
    refused: Option<Vec<u8>>,
    /// Whether the text that counts is newer than the first walk.
    changed: bool,
}

impl IgnoreFiles {
    /// The text that counts in a directory whose ignore file has the text `now`, and whether the file differs from that
    /// of the first walk. `local`: its path from the workspace.
    pub fn counted(
        &mut self,
        dir: &[u8],
        local: &str,
        now: Option<Vec<u8>>,
        counting: Counting<'_>,
    ) -> (Option<Vec<u8>>, bool) {
        let known = self.files.get(dir).cloned().unwrap_or_default();
        if now == known.counts {
            return (now, known.changed);
        }
        let is_refused = now.is_some() && now == known.refused;
        let counts = match counting {
            Counting::First => true,
            // A file that is gone hides nothing, but without it files would appear that were there before.
            Counting::Unruled => return (if is_refused || now.is_none() { known.counts } else { now }, true),
            Counting::Ruled(may) => !is_refused && may(local),
        };
        if is_refused || (!counts && now.is_none()) {
            return (known.counts, true);
        }
        let changed = !matches!(counting, Counting::First);
        let file = match counts {
            true => IgnoreFile {
                counts: now,
                refused: None,
                changed,
            },
            false => IgnoreFile { refused: now, ..known },
        };
        let text = file.counts.clone();
        self.files.insert(dir.to_vec(), file);
        self.is_new = true;
        (text, changed)
    }

    /// What an earlier process kept in the store.
    pub fn kept(store: &Path) -> Option<Self> {
        let files: Vec<(Vec<u8>, IgnoreFile)> = serde_json::from_slice(&std::fs::read(store.join(KEPT)).ok()?).ok()?;
        Some(Self {
            files: files.into_iter().collect(),
            is_new: false,
        })
    }

    /// Keeps them in the store for a later process.
    pub fn keep(&mut self, store: &Path) -> Result<(), String> {
        let files: Vec<(&Vec<u8>, &IgnoreFile)> = self.files.iter().collect();
        let text = serde_json::to_vec(&files).map_err(|error| error.to_string())?;
        let (path, made) = (store.join(KEPT), store.join(format!("{KEPT}.new")));
        std::fs::write(&made, text)
            .and_then(|()| std::fs::rename(&made, &path))
            .map_err(|error| format!("{}: {error}", path.display()))?;
        self.is_new = false;
        Ok(())
    }
}

/// The patterns of one file, linked to those of the parent directories.
pub(super) struct IgnoreRules<'a> {
    above: Option<&'a IgnoreRules<'a>>,
    /// Length in bytes of the path that the patterns are relative to, including its slash.
    base: usize,
    patterns: Vec<Pattern>,
}

impl<'a> IgnoreRules<'a> {
    /// Parses `text`, the ignore file of the directory whose path (with its slash) has `base` bytes.
    pub fn new(above: Option<&'a IgnoreRules<'a>>, base: usize, text: &[u8]) -> Self {
        Self {
            above,
            base,
            patterns: gix_ignore::parse(text, false).map(|(pattern, ..)| pattern).collect(),
        }
    }

    /// Whether `path` (relative to the top of the repository) is ignored, given that no parent directory is. The last
    /// matching pattern of the deepest file decides.
    pub fn ignores(&self, path: &[u8], is_dir: bool) -> bool {
        let mut rules = Some(self);
        while let Some(here) = rules {
            let below = path.get(here.base..).unwrap_or_default();
            let name = memchr::memrchr(b'/', below).map(|slash| slash + 1);
            let fits = |pattern: &&Pattern| {
                pattern.matches_repo_relative_path(
                    below.into(),
                    name,
                    Some(is_dir),
                    Case::Sensitive,
                    Mode::NO_MATCH_SLASH_LITERAL,
                )
            };
            if let Some(pattern) = here.patterns.iter().rev().find(fits) {
                return !pattern.is_negative();
            }
            rules = here.above;
        }
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(text: &str) -> Option<Vec<u8>> {
        Some(text.as_bytes().to_vec())
    }

    #[test]
    fn a_later_ignore_file_counts_if_it_is_allowed() {
        let (yes, no) = (|_: &str| true, |path: &str| path != "src/.gitignore");
        let mut files = IgnoreFiles::default();
        let mut counted = |now: Option<Vec<u8>>, counting| files.counted(b"src/", "src/.gitignore", now, counting);
        assert_eq!(counted(text("a"), Counting::First), (text("a"), false));
        assert_eq!(counted(text("a"), Counting::Ruled(&no)), (text("a"), false));
        assert_eq!(
            counted(text("b"), Counting::Unruled),
            (text("b"), true),
            "not ruled yet"
        );
        assert_eq!(counted(text("b"), Counting::Ruled(&no)), (text("a"), true));
        assert_eq!(counted(text("b"), Counting::Unruled), (text("a"), true));
        assert_eq!(
            counted(text("b"), Counting::Ruled(&yes)),
            (text("a"), true),
            "it was refused"
        );
        assert_eq!(counted(None, Counting::Ruled(&no)), (text("a"), true));
        assert_eq!(counted(text("c"), Counting::Ruled(&yes)), (text("c"), true));
        assert_eq!(counted(text("c"), Counting::Unruled), (text("c"), true));
        assert_eq!(counted(None, Counting::Ruled(&yes)), (None, true));
        assert_eq!(counted(None, Counting::Unruled), (None, true));
    }

    #[test]
    fn a_later_process_knows_them() {
        let dir = tempfile::tempdir().unwrap();
        assert!(IgnoreFiles::kept(dir.path()).is_none());
        let mut files = IgnoreFiles::default();
        files.counted(b"\xff/", "\u{fffd}/.gitignore", text("a"), Counting::First);
        assert!(files.is_new);
        files.keep(dir.path()).unwrap();
        let mut again = IgnoreFiles::kept(dir.path()).unwrap();
        let now = again.counted(b"\xff/", "\u{fffd}/.gitignore", text("a"), Counting::Unruled);
        assert_eq!((now, again.is_new, files.is_new), ((text("a"), false), false, false));
    }
}
