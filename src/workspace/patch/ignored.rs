//! Git's ignore rules (gitignore(5)): which untracked files are not part of a snapshot. A library parses and matches
//! the patterns; this file applies the order of precedence.

use gix_ignore::glob::Pattern;
use gix_ignore::glob::pattern::Case;
use gix_ignore::glob::wildmatch::Mode;
use std::ffi::CString;
use std::io::Read;
use std::os::fd::BorrowedFd;

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
