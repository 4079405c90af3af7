//! Searches all files below the start in parallel, with ripgrep's searcher.

use super::Query;
use crate::base::access::{PathStatus, ResolvedPath};
use crate::tools::page::cut_line;
use crate::workspace::Workspace;
use crate::workspace::walk::Visitor;
use grep_matcher::Matcher;
use grep_regex::RegexMatcher;
use grep_searcher::{BinaryDetection, MmapChoice, Searcher, SearcherBuilder, Sink, SinkContext, SinkMatch};
use std::io;
use std::sync::{Mutex, PoisonError};

/// Upper limit for matches in memory; above it, those that cannot be shown are dropped.
const MAX_HELD: usize = 20_000;

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
}

impl Hits {
    fn add(&mut self, hits: FileHits, enough: usize) {
        self.matches += hits.matches;
        self.files_matched += 1;
        self.held += hits.lines.iter().filter(|line| line.matched).count().max(1);
        self.files.push(hits);
        if self.held > MAX_HELD.max(enough.saturating_mul(4)) {
            self.keep(enough);
        }
    }

    /// Sorts by path and drops the files after the first `enough` matches.
    fn keep(&mut self, enough: usize) {
        self.files.sort_by(|a, b| a.path.cmp(&b.path));
        let mut held = 0;
        self.files.retain(|file| {
            let keep = held < enough;
            held += file.lines.iter().filter(|line| line.matched).count().max(1);
            keep
        });
        self.held = held.min(enough);
    }
}

/// Runs the search.
pub fn scan(query: &Query, workspace: &Workspace, stop: &(dyn Fn() -> bool + Sync)) -> Hits {
    let hits = Mutex::new(Hits::default());
    if query.start.found == PathStatus::Dir {
        let failed = workspace.each_file(&query.start.path, query.walk, &|| {
            visitor(query, workspace, &hits, stop)
        });
        let mut hits = hits.into_inner().unwrap_or_else(PoisonError::into_inner);
        hits.failed += failed as u64;
        hits.keep(query.total);
        return hits;
    }
    // A file that the call names was ruled on by its name; ignore files and globs do not apply.
    let with = (&query.matcher, &mut searcher(query));
    one_file(query, workspace, &query.start.path, with, (&hits, stop));
    hits.into_inner().unwrap_or_else(PoisonError::into_inner)
}

fn visitor<'v>(
    query: &'v Query,
    workspace: &'v Workspace,
    hits: &'v Mutex<Hits>,
    stop: &'v (dyn Fn() -> bool + Sync),
) -> Visitor<'v> {
    // Each thread gets a clone: threads that share a matcher contend for its memory.
    let (matcher, mut searcher) = (query.matcher.clone(), searcher(query));
    Box::new(move |path| {
        if stop() {
            return false;
        }
        if !included(query, path) {
            return true;
        }
        if workspace.may_search("grep_search", path) {
            one_file(query, workspace, path, (&matcher, &mut searcher), (hits, stop));
        } else {
            lock(hits).withheld += 1;
        }
        true
    })
}

fn included(query: &Query, path: &str) -> bool {
    let Some(include) = &query.include else { return true };
    let below = path
        .strip_prefix(query.start.path.as_str())
        .map_or(path, |rest| rest.trim_start_matches('/'));
    // A glob may be relative to the workspace or to dir_path.
    [path, below].iter().any(|path| {
        let fits = include.matched(path, false);
        fits.is_whitelist() || (fits.is_none() && include.num_whitelists() == 0)
    })
}

fn lock(hits: &Mutex<Hits>) -> std::sync::MutexGuard<'_, Hits> {
    hits.lock().unwrap_or_else(PoisonError::into_inner)
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

fn one_file(
    query: &Query,
    workspace: &Workspace,
    path: &str,
    (matcher, searcher): (&RegexMatcher, &mut Searcher),
    (hits, stop): (&Mutex<Hits>, &(dyn Fn() -> bool + Sync)),
) {
    let place = ResolvedPath {
        asked: String::new(),
        path: path.to_owned(),
        inside: true,
        found: PathStatus::File,
    };
    let mut gather = Gather {
        query,
        stop,
        file: FileHits::default(),
    };
    let searched = workspace
        .open_file(&place)
        .map_err(io::Error::other)
        .and_then(|file| searcher.search_file(matcher, &file, &mut gather));
    if searched.is_err() {
        lock(hits).failed += 1;
    }
    if gather.file.matches > 0 {
        gather.file.path = place.path;
        lock(hits).add(gather.file, query.total);
    }
}

/// Collects the lines of one file.
struct Gather<'q> {
    query: &'q Query,
    stop: &'q (dyn Fn() -> bool + Sync),
    file: FileHits,
}

impl Gather<'_> {
    fn hold(&mut self, number: Option<u64>, bytes: &[u8], matched: bool) {
        if self.query.names_only || self.file.matches > self.query.total as u64 {
            return;
        }
        let text = String::from_utf8_lossy(bytes);
        let text = text.trim_end_matches(['\n', '\r']);
        self.file.lines.push(MatchedLine {
            number: number.unwrap_or(0),
            text: cut_line(text).unwrap_or_else(|| text.to_owned()),
            matched,
        });
    }
}

impl Sink for Gather<'_> {
    type Error = io::Error;

    fn matched(&mut self, _searcher: &Searcher, found: &SinkMatch<'_>) -> Result<bool, io::Error> {
        if let Some(unwanted) = &self.query.unwanted {
            let line = found.bytes().strip_suffix(b"\n").unwrap_or(found.bytes());
            if unwanted.is_match(line).unwrap_or(false) {
                return Ok(true);
            }
            if self.query.per_file.is_some_and(|limit| self.file.matches >= limit) {
                return Ok(false);
            }
        }
        self.file.matches += 1;
        self.hold(found.line_number(), found.bytes(), true);
        Ok(!self.query.names_only && !(self.stop)())
    }

    fn context(&mut self, _searcher: &Searcher, context: &SinkContext<'_>) -> Result<bool, io::Error> {
        self.hold(context.line_number(), context.bytes(), false);
        Ok(true)
    }
}
