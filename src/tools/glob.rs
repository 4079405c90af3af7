//! The tool `glob`: lists the files whose paths match a pattern.

use super::args::{Args, invalid, missing};
use super::builtin::{Builtin, OtherNames, ToolFacts, blocking};
use super::list_directory::filter_of;
use super::results::SHOWN;
use super::schema::{boolean, object, string, undeclared};
use super::{PreparedCall, ToolContext, ToolError};
use crate::base::access::{Access, PathStatus, ResolvedPath};
use crate::base::call::{ArgumentTarget, Location, ToolEffects, ToolKind, ToolOutput};
use crate::base::quote::counted;
use crate::workspace::Workspace;
use crate::workspace::pattern::WorkspacePattern;
use crate::workspace::root::printable;
use crate::workspace::walk::Filter;
use std::sync::Arc;

/// Upper limit for the listed paths.
const MAX_PATHS: usize = 1_000;

/// Its name.
const NAME: &str = "glob";

/// Defines the tool.
pub fn tool() -> Builtin {
    Builtin::new(
        &ToolFacts {
            name: NAME,
            display: "FindFiles",
            aliases: &[],
            kind: ToolKind::Search,
            effects: ToolEffects::reads(ArgumentTarget::Directory),
            other_names: OtherNames {
                renamed: &[("path", "dir_path")],
                agents: &["glob"],
                settings: &["GlobTool"],
                programs: &["find", "fd", "fdfind", "locate"],
                ..OtherNames::default()
            },
        },
        "Finds files by a glob (src/**/*.ts), dot files included, in byte order, at most 1000. `**` spans directories.",
        object(
            [
                ("pattern", string("")),
                ("dir_path", string("Default: all.")),
                ("case_sensitive", boolean("")),
                (
                    "respect_git_ignore",
                    undeclared(boolean("Honour .gitignore; true by default.")),
                ),
                (
                    "respect_gemini_ignore",
                    undeclared(boolean("Honour .geminiignore; true by default.")),
                ),
            ],
            &["pattern"],
        ),
        prepare,
    )
}

fn prepare(args: &Args<'_>, workspace: &Arc<Workspace>) -> Result<PreparedCall, ToolError> {
    let asked = args.text("pattern")?;
    if asked.trim().is_empty() {
        return Err(invalid("`pattern` must not be empty"));
    }
    let dir = args.dir("dir_path", workspace);
    let pattern = WorkspacePattern::parse(workspace, &dir.path, asked, args.flag("case_sensitive", false))
        .map_err(|error| invalid(format!("`pattern`: {error}")))?;
    let filter = filter_of(args);
    let mut reads = vec![dir.clone()];
    if pattern.start != dir {
        reads.push(pattern.start.clone());
    }
    Ok(PreparedCall {
        title: format!("find {asked} in {}", dir.shown()),
        access: Access {
            reads,
            ..Access::none()
        },
        preview: None,
        work: blocking(move |context| find(&pattern, &dir, filter, context)),
    })
}

fn find(
    pattern: &WorkspacePattern,
    dir: &ResolvedPath,
    filter: Filter,
    context: &ToolContext,
) -> Result<ToolOutput, ToolError> {
    let workspace = &context.workspace;
    match dir.found {
        PathStatus::Dir => {}
        PathStatus::Nothing => return Err(missing(dir, workspace)),
        _ => {
            let message = format!("{} is not a directory", dir.shown());
            return Err(ToolError::model("path_is_not_a_directory", message));
        }
    }
    if pattern.is_dir() {
        let message = format!(
            "`{}` is a directory; `{}/**` finds the files in it",
            pattern.asked,
            pattern.asked.trim_end_matches('/')
        );
        return Ok(ToolOutput::text(message, "a directory"));
    }
    let stop = || context.cancel.is_cancelled();
    let (files, withheld) = fitting(pattern, filter, workspace, &stop);
    let note = match withheld {
        0 => String::new(),
        n => format!("\n[{} withheld by the policy]", counted(n, "file")),
    };
    let head = format!("matching \"{}\" in \"{}\"", pattern.asked, dir.shown());
    if files.is_empty() {
        return Ok(ToolOutput::text(
            format!(
                "No files found {head}.{}{note}",
                wider(pattern, filter, workspace, &stop)
            ),
            "no files",
        ));
    }
    let mut text = format!("Found {} file(s) {head}, by path:", files.len());
    let mut count = 0;
    for path in files.iter().take(MAX_PATHS) {
        if text.len() + path.len() > SHOWN - 200 {
            break;
        }
        text.push('\n');
        text.push_str(&printable(path));
        count += 1;
    }
    if count < files.len() {
        text.push_str(&format!(
            "\n[{} more are not shown; narrow the pattern or dir_path]",
            files.len() - count
        ));
    }
    text.push_str(&note);
    Ok(ToolOutput {
        locations: files
            .iter()
            .take(100)
            .map(|path| Location {
                path: path.clone(),
                line: None,
            })
            .collect(),
        ..ToolOutput::text(text, counted(files.len(), "file"))
    })
}

/// The files that match, and the number of those that the policy withholds. A file that the call names was ruled on by
/// its name.
fn fitting(
    pattern: &WorkspacePattern,
    filter: Filter,
    workspace: &Workspace,
    stop: &(dyn Fn() -> bool + Sync),
) -> (Vec<String>, usize) {
    if pattern.is_exact() {
        let there = matches!(pattern.start.found, PathStatus::File | PathStatus::HardLinked);
        return (there.then(|| pattern.start.path.clone()).into_iter().collect(), 0);
    }
    let mut files = workspace.files_like(pattern, filter, stop).files;
    let all = files.len();
    files.retain(|path| workspace.may_search(NAME, path));
    let withheld = all - files.len();
    (files, withheld)
}

/// A hint about what a wider search would find: deeper, or without ignore files.
fn wider(
    pattern: &WorkspacePattern,
    filter: Filter,
    workspace: &Workspace,
    stop: &(dyn Fn() -> bool + Sync),
) -> String {
    if pattern.is_exact() {
        return String::new();
    }
    if !pattern.asked.contains('/') {
        let deep = WorkspacePattern::parse(workspace, &pattern.start.path, &format!("**/{}", pattern.asked), false);
        let below = deep.map_or(0, |deep| fitting(&deep, filter, workspace, stop).0.len());
        if below > 0 {
            return format!(" {below} file(s) below match **/{}.", pattern.asked);
        }
    }
    if !(filter.git || filter.gemini) {
        return String::new();
    }
    let all = Filter {
        git: false,
        gemini: false,
        hidden: true,
    };
    match fitting(pattern, all, workspace, stop).0.len() {
        0 => String::new(),
        n => format!(" {n} file(s) that ignore files leave out would match; respect_git_ignore: false shows them."),
    }
}
