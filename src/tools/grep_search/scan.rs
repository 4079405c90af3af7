//! Searches all files below the start in parallel, with ripgrep's searcher.

use super::{NAME, Query};
use crate::base::access::{PathStatus, ResolvedPath};
use crate::base::secret::start;
use crate::base::sync::lock;
use crate::tools::page::{MAX_LINE, cut_line};
use crate::workspace::Workspace;
use crate::workspace::walk::Visitor;
use grep_matcher::Matcher;
use grep_regex::RegexMatcher;
use grep_searcher::{BinaryDetection, MmapChoice, Searcher, SearcherBuilder, Sink, SinkContext, SinkMatch};
use std::io;
use std::sync::{Mutex, PoisonError};

/// Upper limit for matches in memory; above it, those that cannot be shown are dropped.
const MAX_HELD: usize = 20_000;

/// Upper limit in bytes for the lines in memory, of all files and of one; above it, those that cannot be shown are
/// dropped.
const MAX_BYTES: usize = 32 << 20;
const MAX_BYTES_OF_FILE: usize = 4 << 20;

/// Memory limit for the lines of one file; a file with a longer line counts as unreadable.
const MAX_HEAP: usize = 64 << 20;

/// The matches of one file.
#[derive(Debug, Default)]
pub struct FileHits {
    /// Relative to the root.
    pub path: String,
    /// Shown lines in order, context included.
    pub lines: Vec<MatchedLine>,
    /// Number of matching lines, including those that are not kept.
    pub matches: u64,
    /// Bytes of memory that the lines take.
    bytes: usize,
}

/// One line of a file.
#[derive(Debug)]
pub struct MatchedLine {
    pub number: u64,
    pub text: String,
    pub matched: bool,
}

/// The result of a search.
#[derive(Debug, Default)]
pub struct Hits {
    /// Sorted by path. If there are more matches than can be shown, later paths may be missing.
    pub files: Vec<FileHits>,
    pub matches: u64,
    pub files_matched: u64,
    /// Number of files that a search must not show.
    pub withheld: u64,
    /// Number of files and directories that could not be read.
    pub failed: u64,
    held: usize,
    bytes: usize,
}

impl Hits {
    fn add(&mut self, hits: FileHits, enough: usize) {
        self.matches += hits.matches;
        self.files_matched += 1;
        self.held += hits.lines.iter().filter(|line| line.matched).count().max(1);
        self.bytes += hits.bytes;
        self.files.push(hits);
        if self.held > MAX_HELD.max(enough.saturating_mul(4)) || self.bytes > MAX_BYTES {
            self.keep(enough);
        }
    }

    /// Sorts by path and drops the files after the first `enough` matches, or after far more bytes than can be shown.
    fn keep(&mut self, enough: usize) {
        self.files.sort_by(|a, b| a.path.cmp(&b.path));
        let (mut held, mut bytes) = (0, 0);
        self.files.retain(|file| {
            let keep = held < enough && bytes < MAX_BYTES / 2;
            held += file.lines.iter().filter(|line| line.matched).count().max(1);
            bytes += file.bytes;
            keep
        });
        self.held = held.min(enough);
        self.bytes = self.files.iter().map(|file| file.bytes).sum();
    }
}

/// A search that is running.
struct Search<'s> {
    query: &'s Query,
    workspace: &'s Workspace,
    hits: &'s Mutex<Hits>,
    stop: &'s (dyn Fn() -> bool + Sync),
}

/// Runs the search. Secrets are redacted in lines that are cut.
pub fn scan(query: &Query, workspace: &Workspace, stop: &(dyn Fn() -> bool + Sync)) -> Hits {
    let hits = Mutex::new(Hits::default());
    let search = Search {
        query,
        workspace,
        hits: &hits,
        stop,
    };
    if query.start.found == PathStatus::Dir {
        let failed = workspace.each_file(&query.start.path, query.walk, &|| visitor(&search));
        let mut hits = hits.into_inner().unwrap_or_else(PoisonError::into_inner);
        hits.failed += failed as u64;
        hits.keep(query.total);
        return hits;
    }
    // A file that the call names was ruled on by its name; ignore files and globs do not apply.
    one_file(&search, &query.start.path, &query.matcher, &mut searcher(query));
    hits.into_inner().unwrap_or_else(PoisonError::into_inner)
}

fn visitor<'v>(search: &'v Search<'v>) -> Visitor<'v> {
    // Each thread gets a clone: threads that share a matcher contend for its memory.
    let (matcher, mut searcher) = (search.query.matcher.clone(), searcher(search.query));
    Box::new(move |path| {
        if (search.stop)() {
            return false;
        }
        if !included(search.query, path) {
            return true;
        }
        if search.workspace.may_search(NAME, path) {
            one_file(search, path, &matcher, &mut searcher);
        } else {
            lock(search.hits).withheld += 1;
        }
        true
    })
}

fn included(query: &Query, path: &str) -> bool {
    let Some(include) = &query.include else { return true };
    let below = path
        .strip_prefix(query.start.path.as_str())
        .map_or(path, |rest| rest.trim_start_matches('/'));
    // A glob may be relative to the workspace or to dir_path. One with `!` excludes what either fits.
    let mut fits = [path, below].into_iter().map(|path| include.matched(path, false));
    match include.num_whitelists() {
        0 => !fits.any(|fits| fits.is_ignore()),
        _ => fits.any(|fits| fits.is_whitelist()),
    }
}

fn searcher(query: &Query) -> Searcher {
    let limit = match (&query.unwanted, query.names_only) {
        (None, true) => Some(1),
        (None, false) => query.per_file,
        // The searcher's limit would count unwanted lines too, so `Gather` counts.
        (Some(_), _) => None,
    };
    SearcherBuilder::new()
        .line_number(true)
        .memory_map(MmapChoice::never())
        .heap_limit(Some(MAX_HEAP))
        .binary_detection(BinaryDetection::quit(b'\0'))
        .before_context(if query.names_only { 0 } else { query.before })
        .after_context(if query.names_only { 0 } else { query.after })
        .max_matches(limit)
        .build()
}

fn one_file(search: &Search<'_>, path: &str, matcher: &RegexMatcher, searcher: &mut Searcher) {
    let place = ResolvedPath {
        asked: String::new(),
        path: path.to_owned(),
        inside: true,
        found: PathStatus::File,
    };
    let mut gather = Gather {
        search,
        file: FileHits::default(),
    };
    let searched = search
        .workspace
        .open_file(&place)
        .map_err(io::Error::other)
        .and_then(|file| searcher.search_file(matcher, &file, &mut gather));
    if searched.is_err() {
        lock(search.hits).failed += 1;
    }
    if gather.file.matches > 0 {
        gather.file.path = place.path;
        lock(search.hits).add(gather.file, search.query.total);
    }
}

/// Collects the lines of one file.
struct Gather<'s> {
    search: &'s Search<'s>,
    file: FileHits,
}

impl Gather<'_> {
    fn hold(&mut self, number: Option<u64>, bytes: &[u8], matched: bool) {
        let query = self.search.query;
        let full = self.file.bytes > MAX_BYTES_OF_FILE;
        if query.names_only || full || self.file.matches > query.total as u64 {
            return;
        }
        let text = String::from_utf8_lossy(bytes);
        let line = MatchedLine {
            number: number.unwrap_or(0),
            text: shortened(text.trim_end_matches(['\n', '\r'])),
            matched,
        };
        self.file.bytes += line.text.len() + size_of::<MatchedLine>();
        self.file.lines.push(line);
    }
}

/// A line, or its beginning. Redacts before cutting, because half a secret would not be found afterwards.
fn shortened(line: &str) -> String {
    if line.len() <= MAX_LINE {
        return line.to_owned();
    }
    let safe = start(line, usize::MAX);
    cut_line(&safe).unwrap_or_else(|| safe.into_owned())
}

impl Sink for Gather<'_> {
    type Error = io::Error;

    fn matched(&mut self, _searcher: &Searcher, found: &SinkMatch<'_>) -> Result<bool, io::Error> {
        let query = self.search.query;
        if let Some(unwanted) = &query.unwanted {
            let line = found.bytes().strip_suffix(b"\n").unwrap_or(found.bytes());
            if unwanted.is_match(line).unwrap_or(false) {
                return Ok(true);
            }
            if query.per_file.is_some_and(|limit| self.file.matches >= limit) {
                return Ok(false);
            }
        }
        self.file.matches += 1;
        self.hold(found.line_number(), found.bytes(), true);
        Ok(!query.names_only && !(self.search.stop)())
    }

    fn context(&mut self, _searcher: &Searcher, context: &SinkContext<'_>) -> Result<bool, io::Error> {
        self.hold(context.line_number(), context.bytes(), false);
        Ok(true)
    }
}
