//! The tool `grep_search`: its parameters and its result. The search itself is in `scan`.

mod scan;
mod show;

use super::args::{Args, invalid, missing};
use super::builtin::{Builtin, OtherNames, ToolFacts, blocking};
use super::schema::{boolean, integer, object, string, undeclared};
use super::{CallWork, PreparedCall, ToolContext, ToolError};
use crate::base::access::{Access, PathStatus, ResolvedPath};
use crate::base::call::{ArgumentTarget, ToolEffects, ToolKind, ToolOutput};
use crate::base::glob;
use crate::workspace::Workspace;
use crate::workspace::walk::Filter;
use grep_regex::{RegexMatcher, RegexMatcherBuilder};
use ignore::overrides::{Override, OverrideBuilder};
use serde_json::Value;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Default limit for the matches shown.
const USUAL_MATCHES: usize = 100;

/// Upper limit for the matches, whatever the call asks for.
const MAX_MATCHES: usize = 100_000;

/// Time limit of one search.
const LONGEST: Duration = Duration::from_secs(60);

/// Upper limit for the context lines.
const MAX_CONTEXT: u64 = 100;

/// Its name.
const NAME: &str = "grep_search";

/// Defines the tool.
pub fn tool() -> Builtin {
    Builtin::new(
        &ToolFacts {
            name: NAME,
            display: "SearchText",
            aliases: &["grep", "search_file_content"],
            kind: ToolKind::Search,
            effects: ToolEffects::shows(ArgumentTarget::Directory),
            other_names: OtherNames {
                renamed: &[("path", "dir_path"), ("include", "include_pattern")],
                agents: &["grep", "search_files"],
                settings: &["GrepTool", "RipGrepTool"],
                programs: &["grep", "egrep", "fgrep", "rg", "ag", "ack"],
                ..OtherNames::default()
            },
        },
        "Searches file contents, line by line, for a regular expression (Rust syntax). Ignored, binary and dot files are left \
         out unless dir_path names them.",
        parameters(),
        prepare,
    )
}

fn parameters() -> Value {
    object(
        [
            ("pattern", string("")),
            ("dir_path", string("A directory or file; default: all.")),
            ("include_pattern", string("Glob of the files to search (*.rs).")),
            (
                "exclude_pattern",
                undeclared(string(
                    "Leave out matching lines that also fit this regular expression.",
                )),
            ),
            ("names_only", boolean("Only paths of files with a match.")),
            ("case_sensitive", boolean("")),
            ("fixed_strings", boolean("The pattern is plain text.")),
            ("whole_word", boolean("")),
            ("context", integer("Lines around each match.", 0)),
            ("before", undeclared(integer("Lines shown before each match.", 0))),
            ("after", undeclared(integer("Lines shown after each match.", 0))),
            ("no_ignore", boolean("")),
            (
                "hidden",
                undeclared(boolean("Search names that begin with a dot, too.")),
            ),
            (
                "max_matches_per_file",
                undeclared(integer("Matching lines of one file at most.", 1)),
            ),
            ("total_max_matches", integer("Default: 100.", 1)),
        ],
        &["pattern"],
    )
}

/// A prepared search.
struct Query {
    asked: String,
    filter_asked: Option<String>,
    matcher: RegexMatcher,
    unwanted: Option<RegexMatcher>,
    start: ResolvedPath,
    include: Option<Override>,
    walk: Filter,
    names_only: bool,
    before: usize,
    after: usize,
    per_file: Option<u64>,
    total: usize,
}

fn prepare(args: &Args<'_>, workspace: &Arc<Workspace>) -> Result<PreparedCall, ToolError> {
    let query = query(args, workspace)?;
    Ok(PreparedCall {
        title: format!("search {} for {:?}", query.start.shown(), query.asked),
        access: Access::read(query.start.clone()),
        preview: None,
        work: bounded(query, LONGEST),
    })
}

/// Runs the search with a time limit, because a pattern could take very long.
fn bounded(query: Query, time: Duration) -> CallWork {
    Box::new(move |mut context| {
        Box::pin(async move {
            let time = time.min(context.deadline.saturating_duration_since(Instant::now()));
            context.cancel = context.cancel.child_token();
            let over = context.cancel.clone();
            let work = blocking(move |context| search(&query, context));
            tokio::select! {
                done = work(context) => done,
                () = tokio::time::sleep(time) => {
                    // A thread inside a very long line notices this only at the line's end; nothing waits for it.
                    over.cancel();
                    let message = format!(
                        "the search was stopped after {} s; search fewer files (dir_path, include_pattern), or for \
                         something simpler",
                        time.as_secs()
                    );
                    Err(ToolError::model("timeout", message))
                }
            }
        })
    })
}

fn query(args: &Args<'_>, workspace: &Workspace) -> Result<Query, ToolError> {
    let asked = args.text("pattern")?;
    if asked.is_empty() {
        return Err(invalid("`pattern` must not be empty"));
    }
    let reading = Reading {
        insensitive: !args.flag("case_sensitive", false),
        fixed: args.flag("fixed_strings", false),
        word: args.flag("whole_word", false),
    };
    let plain = Reading {
        fixed: false,
        word: false,
        ..reading
    };
    let include = args.optional("include_pattern").filter(|pattern| !pattern.is_empty());
    let lines = |name: &str| {
        let number = args.number(name).or_else(|| args.number("context")).unwrap_or(0);
        usize::try_from(number.min(MAX_CONTEXT)).unwrap_or(0)
    };
    let ignore = !args.flag("no_ignore", false);
    Ok(Query {
        asked: asked.to_owned(),
        filter_asked: include.map(str::to_owned),
        matcher: compile("pattern", asked, reading)?,
        unwanted: match args.optional("exclude_pattern").filter(|pattern| !pattern.is_empty()) {
            Some(pattern) => Some(compile("exclude_pattern", pattern, plain)?),
            None => None,
        },
        start: args.dir("dir_path", workspace),
        include: include.map(included).transpose()?,
        walk: Filter {
            git: ignore,
            gemini: ignore,
            hidden: args.flag("hidden", false) || include.is_some_and(names_dot),
        },
        names_only: args.flag("names_only", false),
        before: lines("before"),
        after: lines("after"),
        per_file: args.number("max_matches_per_file"),
        total: args.number("total_max_matches").map_or(USUAL_MATCHES, |total| {
            usize::try_from(total).unwrap_or(usize::MAX).min(MAX_MATCHES)
        }),
    })
}

/// How a pattern is to be interpreted.
#[derive(Clone, Copy)]
struct Reading {
    insensitive: bool,
    fixed: bool,
    word: bool,
}

/// Compiles a pattern with the settings that `rg` uses, except that `$` also matches before the CR of a CRLF.
fn compile(name: &str, pattern: &str, reading: Reading) -> Result<RegexMatcher, ToolError> {
    RegexMatcherBuilder::new()
        .case_insensitive(reading.insensitive)
        .fixed_strings(reading.fixed)
        .word(reading.word)
        .multi_line(true)
        .unicode(true)
        .octal(false)
        .crlf(true)
        // After `crlf`, which also sets the terminator: the searcher splits at LF, and a pattern may ask for a CR.
        .line_terminator(Some(b'\n'))
        .ban_byte(Some(b'\0'))
        .build(pattern)
        .map_err(|error| {
            let hint = match () {
                () if pattern.contains(['\n', '\r']) || pattern.contains("\\n") => {
                    "\n(files are searched line by line: ask for a part of one line)"
                }
                () if pattern.contains('\0') || pattern.contains("\\x00") => {
                    "\n(files that contain NUL bytes are binary and are not searched)"
                }
                () if reading.fixed || name != "pattern" => "",
                () => "\n(fixed_strings: true treats the pattern as plain text)",
            };
            let message = format!("`{name}` is not a pattern that can be searched: {error}{hint}");
            ToolError::model("grep_execution_error", message)
        })
}

/// A glob with the meaning of `rg --glob`: without a slash it matches names at any depth; with `!` it excludes.
fn included(pattern: &str) -> Result<Override, ToolError> {
    let refused = |error: String| invalid(format!("`include_pattern`: {error}"));
    glob::check(pattern).map_err(refused)?;
    let mut builder = OverrideBuilder::new("");
    builder
        .add(pattern.trim_start_matches("./"))
        .and_then(|builder| builder.build())
        .map_err(|error| refused(error.to_string()))
}

/// Whether a glob asks for names that begin with a dot.
fn names_dot(pattern: &str) -> bool {
    pattern
        .split('/')
        .any(|part| part.starts_with('.') && part != "." && part != "..")
}

fn search(query: &Query, context: &ToolContext) -> Result<ToolOutput, ToolError> {
    let workspace = &context.workspace;
    match query.start.found {
        PathStatus::Dir | PathStatus::File | PathStatus::HardLinked => {}
        PathStatus::Nothing => {
            return Err(match missing(&query.start, workspace) {
                ToolError::Model { message, .. } => ToolError::model("search_path_not_found", message),
                fatal @ ToolError::Fatal(_) => fatal,
            });
        }
        PathStatus::Special | PathStatus::NewDir => {
            let message = format!("{} is neither a file nor a directory", query.start.shown());
            return Err(ToolError::model("search_path_not_found", message));
        }
    }
    let stop = || context.cancel.is_cancelled();
    let hits = scan::scan(query, workspace, &stop);
    if stop() {
        return Err(ToolError::model("cancelled", "the search was stopped"));
    }
    Ok(show::show(query, hits))
}

#[cfg(test)]
mod tests;
