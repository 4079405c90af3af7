//! Git's ignore rules (gitignore(5)): which untracked files are not part of a snapshot. A library parses and matches
//! the patterns; this file applies the order of precedence, and keeps which ignore files count: a change of one must not
//! hide other changes unless it is allowed itself.

use super::pack::{trouble, write_synced};
use crate::base::ids::sha256_hex;
use crate::workspace::ignore_files::{MAX_IGNORE_FILE, MAX_PATTERNS};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use gix_ignore::glob::Pattern;
use gix_ignore::glob::pattern::Case;
use gix_ignore::glob::wildmatch::Mode;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::CString;
use std::io::Read;
use std::os::fd::BorrowedFd;
use std::path::Path;
use std::sync::Arc;

/// Upper limit in bytes for all ignore files together, which are kept in memory.
const MOST_IGNORE_BYTES: u64 = 64 << 20;

/// Reads the `.gitignore` of a directory. A link, directory or FIFO with this name does not count, as in git.
pub(super) fn read_patterns(dir: BorrowedFd<'_>) -> Result<Option<Vec<u8>>, String> {
    let Ok(file) = super::open::open_file(dir, &CString::from(c".gitignore")) else {
        return Ok(None);
    };
    if !file.metadata().is_ok_and(|data| data.is_file()) {
        return Ok(None);
    }
    let mut text = Vec::new();
    file.take(MAX_IGNORE_FILE + 1)
        .read_to_end(&mut text)
        .map_err(|error| error.to_string())?;
    if text.len() as u64 > MAX_IGNORE_FILE {
        return Err(format!("more than {MAX_IGNORE_FILE} bytes"));
    }
    // Each name is matched against each pattern.
    let is_pattern = |line: &&[u8]| !line.trim_ascii().is_empty() && !line.starts_with(b"#");
    match text.split(|byte| *byte == b'\n').filter(is_pattern).count() > MAX_PATTERNS {
        true => Err(format!(
            "more than {MAX_PATTERNS} patterns: write patterns of directories instead of single files"
        )),
        false => Ok(Some(text)),
    }
}

/// The file in the store that keeps [`TrustedIgnoreFiles`] for a later process.
const KEPT: &str = "ignore-files";

/// Whether the change of an ignore file is allowed; the path is relative to the workspace.
pub(super) type IgnoreJudge<'a> = &'a (dyn Fn(&str) -> bool + Sync);

/// The text that counts in a directory, and whether the file there differs from that of the first walk.
pub(super) type CountedText = (Option<Arc<[u8]>>, bool);

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
pub(super) struct TrustedIgnoreFiles {
    /// Shared, since each walk works on a copy.
    files: Arc<BTreeMap<Vec<u8>, IgnoreFile>>,
    /// The bytes of all texts that count.
    bytes: u64,
    /// The directories whose ignore file is the refused one in this walk.
    still_refused: BTreeSet<Vec<u8>>,
    /// Whether they differ from those that were kept last.
    pub is_new: bool,
}

#[derive(Clone, Debug, Default)]
struct IgnoreFile {
    /// The text that counts; `None` if there is no file.
    counts: Option<Arc<[u8]>>,
    /// The SHA-256 in hex of the last text, if that does not count because it is not allowed.
    refused: Option<String>,
    /// Whether the text that counts is newer than the first walk.
    changed: bool,
}

/// An [`IgnoreFile`] as it is kept for a later process.
#[derive(Deserialize, Serialize)]
struct KeptFile {
    dir: KeptBytes,
    counts: Option<KeptBytes>,
    refused: Option<String>,
    changed: bool,
}

/// Bytes in JSON.
#[derive(Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
enum KeptBytes {
    Text(String),
    /// What is not UTF-8.
    Base64(String),
}

impl KeptBytes {
    fn of(bytes: &[u8]) -> Self {
        match std::str::from_utf8(bytes) {
            Ok(text) => Self::Text(text.to_owned()),
            Err(_) => Self::Base64(STANDARD.encode(bytes)),
        }
    }

    fn bytes(self) -> Result<Vec<u8>, String> {
        match self {
            Self::Text(text) => Ok(text.into_bytes()),
            Self::Base64(text) => STANDARD.decode(text).map_err(|error| error.to_string()),
        }
    }
}

impl TrustedIgnoreFiles {
    /// The text that counts in a directory whose ignore file has the text `now`, and whether the file differs from that
    /// of the first walk. `local`: its path from the workspace.
    ///
    /// # Errors
    /// A sentence: the texts that count would have more than [`MOST_IGNORE_BYTES`] together.
    pub fn counted(
        &mut self,
        dir: &[u8],
        local: &str,
        now: Option<Vec<u8>>,
        counting: Counting<'_>,
    ) -> Result<CountedText, String> {
        let known = self.files.get(dir).cloned().unwrap_or_default();
        if now.as_deref() == known.counts.as_deref() {
            return Ok((known.counts, known.changed));
        }
        let refused = |text: &Vec<u8>| {
            known
                .refused
                .as_ref()
                .is_some_and(|id| *id == sha256_hex(&[text.as_slice()]))
        };
        if now.as_ref().is_some_and(refused) {
            self.still_refused.insert(dir.to_vec());
            return Ok((known.counts, true));
        }
        let counts = match counting {
            Counting::First => true,
            // A file that is gone hides nothing, but without it files would appear that were there before.
            Counting::Unruled => return Ok((now.map(Arc::from).or(known.counts), true)),
            Counting::Ruled(may) => may(local),
        };
        if counts {
            let changed = !matches!(counting, Counting::First);
            let text = self.count(dir, &known, now, changed)?;
            return Ok((text, changed));
        }
        let Some(text) = now else {
            return Ok((known.counts, true));
        };
        let file = IgnoreFile {
            refused: Some(sha256_hex(&[text.as_slice()])),
            ..known
        };
        let counts = file.counts.clone();
        self.still_refused.insert(dir.to_vec());
        self.put(dir, file);
        Ok((counts, true))
    }

    /// Lets the text `now` count instead of the one of `known`.
    fn count(
        &mut self,
        dir: &[u8],
        known: &IgnoreFile,
        now: Option<Vec<u8>>,
        changed: bool,
    ) -> Result<Option<Arc<[u8]>>, String> {
        let before = known.counts.as_ref().map_or(0, |text| text.len() as u64);
        let bytes = self.bytes.saturating_sub(before) + now.as_ref().map_or(0, |text| text.len() as u64);
        if bytes > MOST_IGNORE_BYTES {
            return Err(format!(
                "the ignore files have more than {MOST_IGNORE_BYTES} bytes together"
            ));
        }
        let counts: Option<Arc<[u8]>> = now.map(Arc::from);
        let file = IgnoreFile {
            counts: counts.clone(),
            refused: None,
            changed,
        };
        self.bytes = bytes;
        self.put(dir, file);
        Ok(counts)
    }

    fn put(&mut self, dir: &[u8], file: IgnoreFile) {
        Arc::make_mut(&mut self.files).insert(dir.to_vec(), file);
        self.is_new = true;
    }

    /// Ends a walk. A refused text that was not found in it is forgotten: if it is there again, somebody has written it
    /// anew, who may be allowed to. One that is still there stays refused, whoever writes other files meanwhile.
    pub fn end_walk(&mut self) {
        let still = std::mem::take(&mut self.still_refused);
        let is_gone = |(dir, file): &(&Vec<u8>, &IgnoreFile)| file.refused.is_some() && !still.contains(dir.as_slice());
        let gone: Vec<Vec<u8>> = self.files.iter().filter(is_gone).map(|(dir, _)| dir.clone()).collect();
        for dir in gone {
            if let Some(file) = Arc::make_mut(&mut self.files).get_mut(&dir) {
                file.refused = None;
                self.is_new = true;
            }
        }
    }

    /// What an earlier process kept in the store; `None` if it was of a version that kept nothing.
    ///
    /// # Errors
    /// The file and what is wrong with it. Without it, ignore files that do not count would count.
    pub fn kept(store: &Path) -> Result<Option<Self>, String> {
        let path = store.join(KEPT);
        let text = match std::fs::read(&path) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
            text => text.map_err(trouble(&path))?,
        };
        let wrong = |why: String| format!("{}: {why}", path.display());
        let kept: Vec<KeptFile> = serde_json::from_slice(&text).map_err(|error| wrong(error.to_string()))?;
        let mut files = BTreeMap::new();
        let mut bytes = 0;
        for file in kept {
            let counts = file.counts.map(KeptBytes::bytes).transpose().map_err(wrong)?;
            bytes += counts.as_ref().map_or(0, |text| text.len() as u64);
            files.insert(
                file.dir.bytes().map_err(wrong)?,
                IgnoreFile {
                    counts: counts.map(Arc::from),
                    refused: file.refused,
                    changed: file.changed,
                },
            );
        }
        Ok(Some(Self {
            files: Arc::new(files),
            bytes,
            ..Self::default()
        }))
    }

    /// Keeps them in the store for a later process.
    ///
    /// # Errors
    /// The file in the store cannot be written.
    pub fn keep(&mut self, store: &Path) -> Result<(), String> {
        let kept = |(dir, file): (&Vec<u8>, &IgnoreFile)| KeptFile {
            dir: KeptBytes::of(dir),
            counts: file.counts.as_deref().map(KeptBytes::of),
            refused: file.refused.clone(),
            changed: file.changed,
        };
        let files: Vec<KeptFile> = self.files.iter().map(kept).collect();
        let text = serde_json::to_vec(&files).map_err(|error| error.to_string())?;
        let (path, made) = (store.join(KEPT), store.join(format!("{KEPT}.new")));
        write_synced(&made, &text)
            .and_then(|()| std::fs::rename(&made, &path))
            .map_err(trouble(&path))?;
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

    fn counted(
        files: &mut TrustedIgnoreFiles,
        now: Option<Vec<u8>>,
        counting: Counting<'_>,
    ) -> (Option<Vec<u8>>, bool) {
        let (counts, changed) = files.counted(b"src/", "src/.gitignore", now, counting).unwrap();
        (counts.map(|text| text.to_vec()), changed)
    }

    #[test]
    fn a_later_ignore_file_counts_if_it_is_allowed() {
        let (yes, no) = (|_: &str| true, |path: &str| path != "src/.gitignore");
        let mut files = TrustedIgnoreFiles::default();
        let mut counted = |now: Option<Vec<u8>>, counting| counted(&mut files, now, counting);
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
    fn a_refused_ignore_file_that_is_there_again_is_ruled_on_again() {
        let (yes, no) = (|_: &str| true, |_: &str| false);
        let mut files = TrustedIgnoreFiles::default();
        assert_eq!(counted(&mut files, text("b"), Counting::Ruled(&no)), (None, true));
        files.end_walk();
        assert_eq!(
            counted(&mut files, text("b"), Counting::Ruled(&yes)),
            (None, true),
            "it is still there"
        );
        files.end_walk();
        // A walk that does not find the directory.
        files.end_walk();
        assert_eq!(counted(&mut files, text("b"), Counting::Ruled(&yes)), (text("b"), true));
    }

    #[test]
    fn ignore_files_that_are_too_large_together_are_an_error() {
        let mut files = TrustedIgnoreFiles::default();
        let large = || Some(vec![b'#'; usize::try_from(MOST_IGNORE_BYTES).unwrap()]);
        assert!(files.counted(b"a/", "a/.gitignore", large(), Counting::First).is_ok());
        let error = files.counted(b"b/", "b/.gitignore", text("b"), Counting::First);
        assert!(error.unwrap_err().contains("67108864 bytes"));
    }

    #[test]
    fn a_later_process_knows_them() {
        let dir = tempfile::tempdir().unwrap();
        assert!(TrustedIgnoreFiles::kept(dir.path()).unwrap().is_none());
        let mut files = TrustedIgnoreFiles::default();
        let counts = |files: &mut TrustedIgnoreFiles, counting| {
            let now = Some(b"a\xff".to_vec());
            let (counts, changed) = files.counted(b"\xff/", "\u{fffd}/.gitignore", now, counting).unwrap();
            (counts.map(|text| text.to_vec()), changed)
        };
        counts(&mut files, Counting::First);
        assert!(files.is_new);
        files.keep(dir.path()).unwrap();
        let mut again = TrustedIgnoreFiles::kept(dir.path()).unwrap().unwrap();
        let now = counts(&mut again, Counting::Unruled);
        assert_eq!(now, (Some(b"a\xff".to_vec()), false));
        assert!(!again.is_new && !files.is_new);
        assert_eq!(again.bytes, 2);
    }

    #[test]
    fn kept_ignore_files_that_cannot_be_read_are_an_error() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join(KEPT), "[{").unwrap();
        let error = TrustedIgnoreFiles::kept(dir.path()).unwrap_err();
        assert!(error.contains("ignore-files: "), "{error}");
    }
}
