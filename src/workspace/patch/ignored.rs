//! Git's ignore rules: which untracked files are no part of a snapshot. Patterns are read and matched by a library; which file
//! of patterns counts, and in which order, is decided here.

use gix_ignore::glob::Pattern;
use gix_ignore::glob::pattern::Case;
use gix_ignore::glob::wildmatch::Mode;
use std::ffi::CString;
use std::io::Read;
use std::os::fd::BorrowedFd;

/// Bytes of one ignore file.
const MOST_PATTERNS: u64 = 4 << 20;

/// The `.gitignore` of a directory. A link, a directory or a pipe of this name is none, to git neither.
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

/// The patterns of one file, above those of the directories further up.
pub(super) struct Rules<'a> {
    above: Option<&'a Rules<'a>>,
    /// Bytes of the path of the directory that they are relative to, its slash included.
    base: usize,
    patterns: Vec<Pattern>,
}

impl<'a> Rules<'a> {
    /// The patterns of `text`, a file of the directory whose path (with its slash) has `base` bytes.
    pub fn new(above: Option<&'a Rules<'a>>, base: usize, text: &[u8]) -> Self {
        Self {
            above,
            base,
            patterns: gix_ignore::parse(text, false).map(|(pattern, ..)| pattern).collect(),
        }
    }

    /// Whether `path` (from the top of the repository) is ignored, no directory above it being so. The last pattern of the
    /// deepest file that fits decides.
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
