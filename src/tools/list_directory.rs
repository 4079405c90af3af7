//! The tool `list_directory`: lists the names in one directory.

use super::args::{Args, failed, invalid};
use super::builtin::{Builtin, OtherNames, ToolFacts, blocking};
use super::schema::{object, string, strings, undeclared};
use super::{PreparedCall, ToolError};
use crate::base::access::{Access, PathStatus, ResolvedPath};
use crate::base::call::{ArgumentTarget, Location, ToolEffects, ToolKind, ToolOutput};
use crate::base::glob;
use crate::base::quote::counted;
use crate::workspace::Workspace;
use crate::workspace::fs::{DirEntry, EntryKind};
use crate::workspace::root::{join, printable};
use crate::workspace::walk::Filter;
use globset::{GlobBuilder, GlobSet, GlobSetBuilder};
use serde_json::{Value, json};
use std::fmt::Write;
use std::sync::Arc;

/// Upper limit for the names shown.
const MAX_ENTRIES: usize = 2_000;

/// Upper limit for the names read from the directory.
const MAX_SCAN: usize = 100_000;

/// Defines the tool.
pub fn tool() -> Builtin {
    Builtin::new(
        &ToolFacts {
            name: "list_directory",
            display: "ReadFolder",
            aliases: &["ls"],
            kind: ToolKind::Read,
            effects: ToolEffects::reads(ArgumentTarget::Directory),
            other_names: OtherNames {
                renamed: &[("path", "dir_path")],
                agents: &["ls", "list_files", "list_dir"],
                settings: &["LSTool", "ReadFolderTool"],
                programs: &["ls", "tree", "dir"],
                ..OtherNames::default()
            },
        },
        "Lists a directory: its directories first, then its files with their sizes. What ignore files leave out is counted.",
        object(
            [
                ("dir_path", string("")),
                ("ignore", strings("Name patterns (* and ?) to leave out.")),
                ("file_filtering_options", undeclared(filtering())),
            ],
            &["dir_path"],
        ),
        prepare,
    )
}

/// The schema of the options for ignore files.
pub fn filtering() -> Value {
    json!({
        "type": "object",
        "description": "Which ignore files to honour; all by default.",
        "properties": {
            "respect_git_ignore": { "type": "boolean" },
            "respect_gemini_ignore": { "type": "boolean" },
        },
        "additionalProperties": false,
    })
}

/// The given options for ignore files, at the top level or in `file_filtering_options`.
pub fn filter_of(args: &Args<'_>) -> Filter {
    let switch = |name: &str| {
        args.value("file_filtering_options")
            .and_then(|options| options.get(name))
            .and_then(Value::as_bool)
            .unwrap_or_else(|| args.flag(name, true))
    };
    Filter {
        git: switch("respect_git_ignore"),
        gemini: switch("respect_gemini_ignore"),
        hidden: true,
    }
}

fn prepare(args: &Args<'_>, workspace: &Arc<Workspace>) -> Result<PreparedCall, ToolError> {
    let place = args.dir("dir_path", workspace);
    let mut ignore = GlobSetBuilder::new();
    for pattern in args.list("ignore") {
        glob::check(pattern).map_err(|error| invalid(format!("`ignore`: {error}")))?;
        let glob = GlobBuilder::new(pattern)
            .empty_alternates(true)
            .build()
            .map_err(|error| invalid(format!("`ignore`: {error}")))?;
        ignore.add(glob);
    }
    let ignore = ignore.build().map_err(|error| invalid(format!("`ignore`: {error}")))?;
    let filter = filter_of(args);
    Ok(PreparedCall {
        title: format!("list {}", place.shown()),
        access: Access::read(place.clone()),
        preview: None,
        work: blocking(move |context| list(&place, &ignore, filter, &context.workspace)),
    })
}

fn list(
    place: &ResolvedPath,
    ignore: &GlobSet,
    filter: Filter,
    workspace: &Workspace,
) -> Result<ToolOutput, ToolError> {
    if matches!(
        place.found,
        PathStatus::File | PathStatus::HardLinked | PathStatus::Special
    ) {
        let message = format!("{} is not a directory; read_file shows files", place.shown());
        return Err(ToolError::model("path_is_not_a_directory", message));
    }
    let (all, unseen) = workspace
        .list(place, MAX_SCAN)
        .map_err(|error| failed("list", place, error, workspace))?;
    let mut visible = workspace.visible_names(&place.path, filter);
    let total = all.len();
    let mut entries: Vec<DirEntry> = all
        .into_iter()
        .filter(|entry| visible(&entry.name, entry.kind == EntryKind::Dir) && !ignore.is_match(&entry.name))
        .collect();
    let ignored = total - entries.len();
    entries.sort_by(|a, b| (a.kind != EntryKind::Dir, &a.name).cmp(&(b.kind != EntryKind::Dir, &b.name)));
    let rest = entries.len().saturating_sub(MAX_ENTRIES) + unseen;
    entries.truncate(MAX_ENTRIES);
    let text = render(place, &entries, ignored, rest, workspace);
    let summary = counted(entries.len() + rest, "entry");
    Ok(ToolOutput {
        locations: vec![Location {
            path: place.path.clone(),
            line: None,
        }],
        ..ToolOutput::text(text, summary)
    })
}

fn render(place: &ResolvedPath, entries: &[DirEntry], ignored: usize, rest: usize, workspace: &Workspace) -> String {
    let name = place.shown();
    let mut text = if entries.is_empty() && rest == 0 {
        format!("Directory {name} is empty.")
    } else {
        format!("Directory listing for {name}:")
    };
    for entry in entries {
        let label = printable(&entry.name);
        // Writing to a `String` cannot fail.
        let _infallible = match entry.kind {
            EntryKind::Dir => write!(text, "\n[DIR] {label}"),
            EntryKind::File => write!(text, "\n{label} ({})", counted(entry.size, "byte")),
            EntryKind::Link => write!(
                text,
                "\n{label} -> {}",
                target(&join(&place.path, &entry.name), workspace)
            ),
            EntryKind::Special => write!(text, "\n{label} (special file)"),
        };
    }
    if rest > 0 {
        let _infallible = write!(
            text,
            "\n\n({} not shown; use glob with a pattern to narrow down)",
            counted(rest, "more entry")
        );
    }
    if ignored > 0 {
        let _infallible = write!(text, "\n\n({ignored} ignored)");
    }
    text
}

/// The target of a link; for a target outside the root, nothing about it is revealed.
fn target(path: &str, workspace: &Workspace) -> String {
    let place = workspace.locate(path);
    match (place.inside, place.found) {
        (false, _) => "outside the workspace".to_owned(),
        (true, PathStatus::Nothing) => format!("{} (missing)", printable(&place.path)),
        (true, _) => printable(&place.path).into_owned(),
    }
}
