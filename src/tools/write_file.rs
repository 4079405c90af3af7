//! The tool `write_file`: writes a whole file, new or existing. `workspace::text` keeps encoding and line ends.

use super::args::{Args, check_new_name, failed, invalid};
use super::builtin::{Builtin, OtherNames, ToolFacts, blocking};
use super::diff::{changed_lines, file_diff};
use super::read_file::MAX_FILE;
use super::results::PREFIX;
use super::schema::{object, string};
use super::{PreparedCall, ToolContext, ToolError, placeholder};
use crate::base::access::{Access, PathStatus, ResolvedPath};
use crate::base::call::{ArgumentTarget, Display, FileDiff, Location, ToolEffects, ToolKind, ToolOutput};
use crate::base::quote::counted;
use crate::workspace::fs::FsError;
use crate::workspace::root::UNASKED;
use crate::workspace::text::{Text, decode, plain_line_ends};
use crate::workspace::{Changed, Workspace};
use std::sync::Arc;

/// Upper limit for the changed lines that the model receives.
const SHOWN_LINES: usize = 120;

/// Upper limit in bytes for the text of one call. More is a mistake, or an attempt to fill the disk.
pub const MAX_WRITE: usize = 8 << 20;

/// Checks that a call does not write more than [`MAX_WRITE`] bytes.
///
/// # Errors
/// [`ToolError::Model`] (`content_too_large`) if it may not.
pub fn refuse_large(what: &str, bytes: usize) -> Result<(), ToolError> {
    if bytes <= MAX_WRITE {
        return Ok(());
    }
    let message = format!(
        "{what} has {bytes} bytes, and one call writes at most {MAX_WRITE} ({} MiB); nothing was written. Write less, or in parts",
        MAX_WRITE >> 20
    );
    Err(ToolError::model("content_too_large", message))
}

/// Defines the tool.
pub fn tool() -> Builtin {
    Builtin::new(
        &ToolFacts {
            name: "write_file",
            display: "WriteFile",
            aliases: &[],
            kind: ToolKind::Edit,
            effects: ToolEffects::writes(ArgumentTarget::WrittenFile),
            other_names: OtherNames {
                renamed: &[("path", "file_path")],
                agents: &["write", "write_to_file", "create_file"],
                settings: &["WriteFileTool"],
                programs: &["tee", "touch", "cp"],
                ..OtherNames::default()
            },
        },
        "Writes a whole file, with its directories. Give the content complete: placeholders are refused. For a change of a \
         few lines use replace.",
        object(
            [("file_path", string("")), ("content", string(""))],
            &["file_path", "content"],
        ),
        prepare,
    )
}

fn prepare(args: &Args<'_>, workspace: &Arc<Workspace>) -> Result<PreparedCall, ToolError> {
    let place = args.place("file_path", workspace)?;
    check_new_name(&place)?;
    let asked = args.text("file_path")?;
    if asked.starts_with(PREFIX) {
        let message = format!("{PREFIX}… names kept results: they can be read, not written");
        return Err(invalid(message));
    }
    if asked.ends_with('/') {
        let message =
            format!("`{asked}` names a directory: give the path of a file; directories are created as needed");
        return Err(invalid(message));
    }
    let content = args.text("content")?.to_owned();
    refuse_large("the content", content.len())?;
    let before = match place.found {
        // A file that must not be read is not read for a preview either.
        PathStatus::File | PathStatus::HardLinked if place.inside && workspace.may_search(UNASKED, &place.path) => {
            old(&place, workspace).unwrap_or_default()
        }
        _ => None,
    };
    let before = before.as_deref().and_then(|bytes| decode(bytes).ok());
    refuse_placeholders(&content, before.as_ref())?;
    let verb = if place.found == PathStatus::Nothing {
        "create"
    } else {
        "overwrite"
    };
    Ok(PreparedCall {
        title: format!("{verb} {}", place.shown()),
        access: Access::write(place.clone()),
        preview: Some(diff(&place, before.as_ref(), &content)),
        work: blocking(move |context| write(&place, &content, context)),
    })
}

fn refuse_placeholders(content: &str, before: Option<&Text>) -> Result<(), ToolError> {
    let Some(line) = placeholder::first(content, before.map_or("", Text::as_str)) else {
        return Ok(());
    };
    let message = format!(
        "the content has the placeholder `{line}` in place of text; nothing was written. Give the whole content, or \
         change the lines in question with replace"
    );
    Err(ToolError::model("omission_placeholder", message))
}

fn diff(place: &ResolvedPath, before: Option<&Text>, content: &str) -> FileDiff {
    file_diff(place.shown(), before.map(Text::as_str), &plain_line_ends(content))
}

/// The current bytes; `None` if there is no file.
fn old(place: &ResolvedPath, workspace: &Workspace) -> Result<Option<Vec<u8>>, ToolError> {
    match workspace.read(place, MAX_FILE) {
        Ok(bytes) => Ok(Some(bytes)),
        Err(FsError::Missing) => Ok(None),
        Err(error) => Err(failed("write", place, error, workspace)),
    }
}

fn write(place: &ResolvedPath, content: &str, context: &ToolContext) -> Result<ToolOutput, ToolError> {
    let workspace = &context.workspace;
    let path = &place.path;
    let before = old(place, workspace)?;
    let changed = before
        .as_ref()
        .map_or(Changed::No, |bytes| workspace.changed_since(path, bytes));
    if changed != Changed::No {
        let by = match changed {
            Changed::ByCommand => "by a command of yours",
            _ => "by something else",
        };
        let message = format!("{path} was changed {by} since you read it; nothing was written. Read it again first");
        return Err(ToolError::model("file_changed", message));
    }
    let text = before.as_deref().and_then(|bytes| decode(bytes).ok());
    refuse_placeholders(content, text.as_ref())?;
    let bytes = match &text {
        Some(text) => text
            .rewrite(content)
            .map_err(|error| ToolError::model("file_write_failure", format!("cannot write {path}: {error}")))?,
        None => content.as_bytes().to_vec(),
    };
    if before.as_deref() == Some(&bytes) {
        workspace.note_read(path, &bytes);
        return Ok(done(
            place,
            format!("{path} already has this content; nothing was written."),
            "unchanged",
            None,
        ));
    }
    let created = workspace
        .write(place, &bytes)
        .map_err(|error| failed("write", place, error, workspace))?;
    let diff = diff(place, text.as_ref(), content);
    let counts = format!("+{} -{}", diff.added, diff.removed);
    if created {
        let lines = counted(content.lines().count(), "line");
        return Ok(done(
            place,
            format!("Created {path} with {lines}."),
            &format!("created {path} ({counts})"),
            Some(diff),
        ));
    }
    let lines = match &text {
        Some(text) => changed_lines(text.as_str(), &plain_line_ends(content), SHOWN_LINES),
        None => "(the old content was not text)".to_owned(),
    };
    let told = format!("Overwrote {path} ({counts} lines). Changed lines:\n{lines}");
    Ok(done(place, told, &format!("overwrote {path} ({counts})"), Some(diff)))
}

fn done(place: &ResolvedPath, told: String, summary: &str, diff: Option<FileDiff>) -> ToolOutput {
    let output = ToolOutput::text(told, summary);
    ToolOutput {
        display: diff.map_or(output.display, Display::Diff),
        content: output.content,
        summary: output.summary,
        locations: vec![Location {
            path: place.path.clone(),
            line: None,
        }],
        ..ToolOutput::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tools::testing::TestWorkspace;
    use serde_json::json;

    #[test]
    fn a_file_that_others_changed_is_not_overwritten() {
        let bench = TestWorkspace::new(&[("a.txt", b"one\n")]);
        let write = json!({ "file_path": "a.txt", "content": "mine\n" });
        bench.text_of("read_file", &json!({ "file_path": "a.txt" }));
        std::fs::write(bench.path("a.txt"), "theirs\n").unwrap();
        assert!(
            bench
                .text_of("write_file", &write)
                .starts_with("file_changed: a.txt was changed")
        );
        assert_eq!(std::fs::read(bench.path("a.txt")).unwrap(), b"theirs\n");
        bench.text_of("read_file", &json!({ "file_path": "a.txt" }));
        assert!(bench.text_of("write_file", &write).starts_with("Overwrote a.txt"));
        assert!(
            bench
                .text_of("write_file", &json!({ "file_path": "a.txt", "content": "again\n" }))
                .starts_with("Overwrote")
        );
    }

    #[test]
    fn nothing_happens_before_the_ruling_and_the_preview_shows_the_change() {
        let bench = TestWorkspace::with(&[("a.txt", b"one\n"), ("key.pem", b"secret\n")], |workspace| {
            workspace.set_unreadable(Box::new(|_, path| path.ends_with(".pem")));
        });
        let prepare = |path: &str| {
            let found = bench.registry.find("write_file").unwrap();
            let args = found
                .accept(&json!({ "file_path": path, "content": "two\n" }))
                .unwrap()
                .args;
            found.tool.prepare(&args, &bench.workspace).unwrap()
        };
        let prepared = prepare("new/b.txt");
        assert_eq!(
            (prepared.title.as_str(), prepared.access.writes[0].path.as_str()),
            ("create new/b.txt", "new/b.txt")
        );
        assert!(!bench.path("new").exists());
        let preview = prepare("a.txt").preview.unwrap();
        assert_eq!(
            (preview.original.as_deref(), preview.added, preview.removed),
            (Some("one\n"), 1, 1)
        );
        assert_eq!(prepare("key.pem").preview.unwrap().original, None);
        assert!(!prepare("../out.txt").access.writes[0].inside);
    }

    #[test]
    fn more_than_the_limit_is_the_models_error() {
        let bench = TestWorkspace::new(&[("a.txt", b"one\n".repeat(1024).as_slice())]);
        let told = |tool: &str, args: serde_json::Value| bench.text_of(tool, &args);
        let (most, more) = ("x".repeat(MAX_WRITE), "x".repeat(MAX_WRITE + 1));
        let refused = told("write_file", json!({ "file_path": "b.txt", "content": more }));
        assert!(
            refused.starts_with("content_too_large: ") && refused.contains("8 MiB"),
            "{refused}"
        );
        assert!(!bench.path("b.txt").exists());
        let refused = told(
            "replace",
            json!({ "file_path": "b.txt", "old_string": "", "new_string": more }),
        );
        assert!(
            refused.starts_with("content_too_large: ") && !bench.path("b.txt").exists(),
            "{refused}"
        );
        bench.text_of("read_file", &json!({ "file_path": "a.txt" }));
        let many = json!({ "file_path": "a.txt", "old_string": "one", "new_string": "x".repeat(16 << 10), "allow_multiple": true });
        assert!(told("replace", many).starts_with("content_too_large: "));
        assert_eq!(std::fs::read(bench.path("a.txt")).unwrap(), b"one\n".repeat(1024));
        assert!(told("write_file", json!({ "file_path": "b.txt", "content": most })).starts_with("Created"));
    }

    #[test]
    fn people_get_a_diff() {
        let bench = TestWorkspace::new(&[("a.txt", b"one\ntwo\n")]);
        let ran = bench
            .run("write_file", &json!({ "file_path": "a.txt", "content": "one\n2\n" }))
            .unwrap();
        let output = ran.result.unwrap();
        let Display::Diff(diff) = &output.display else {
            panic!("no diff")
        };
        assert!(diff.diff.contains("-two\n+2\n"));
        assert_eq!(output.summary, "overwrote a.txt (+1 -1)");
    }
}
