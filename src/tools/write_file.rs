//! `write_file`: a whole file, new or in place of the old one. How text becomes bytes is `workspace::text`'s.

use super::args::{Args, failed, shown};
use super::builtin::{Builtin, Names, blocking};
use super::diff::{changed_lines, file_diff};
use super::read_file::MAX_FILE;
use super::schema::{object, string};
use super::{Prepared, ToolError, placeholder};
use crate::base::access::{Access, Found, Place};
use crate::base::call::{Display, FileDiff, Kind, Location, ToolOutput};
use crate::workspace::Workspace;
use crate::workspace::fs::FsError;
use crate::workspace::text::{Text, decode, plain_line_ends};
use std::sync::Arc;

/// Lines of the change that the model is shown.
const SHOWN_LINES: usize = 120;

/// The tool.
pub fn tool() -> Builtin {
    Builtin::new(
        &Names {
            name: "write_file",
            display: "WriteFile",
            aliases: &[],
        },
        Kind::Edit,
        "Writes a whole file: makes it, with its directories, or puts the content in place of the old one. Encoding and \
         line ends of an existing file are kept. Give the content complete: a placeholder for omitted parts is refused. \
         For a change of a few lines use replace.",
        object(
            [
                ("file_path", string("The file, relative to the workspace.")),
                ("content", string("The whole content.")),
            ],
            &["file_path", "content"],
        ),
        prepare,
    )
}

fn prepare(args: &Args<'_>, workspace: &Arc<Workspace>) -> Result<Prepared, ToolError> {
    let place = args.place("file_path", workspace)?;
    let content = args.text("content")?.to_owned();
    let before = match place.found {
        // What may not be read is not read for a preview either.
        Found::File | Found::HardLinked if place.inside && workspace.may_search(&place.path) => {
            old(&place, workspace).unwrap_or_default()
        }
        _ => None,
    };
    let before = before.as_deref().and_then(|bytes| decode(bytes).ok());
    refuse_placeholders(&content, before.as_ref())?;
    let verb = if place.found == Found::Nothing {
        "create"
    } else {
        "overwrite"
    };
    Ok(Prepared {
        title: format!("{verb} {}", shown(&place)),
        access: Access::write(place.clone()),
        preview: Some(diff(&place, before.as_ref(), &content)),
        work: blocking(move |context| write(&place, &content, &context.workspace)),
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

fn diff(place: &Place, before: Option<&Text>, content: &str) -> FileDiff {
    file_diff(shown(place), before.map(Text::as_str), &plain_line_ends(content))
}

/// The bytes there now; `None` when there is no file.
fn old(place: &Place, workspace: &Workspace) -> Result<Option<Vec<u8>>, ToolError> {
    match workspace.read(place, MAX_FILE) {
        Ok(bytes) => Ok(Some(bytes)),
        Err(FsError::Missing) => Ok(None),
        Err(error) => Err(failed("write", place, error, workspace)),
    }
}

fn write(place: &Place, content: &str, workspace: &Workspace) -> Result<ToolOutput, ToolError> {
    let path = &place.path;
    let before = old(place, workspace)?;
    if let Some(bytes) = &before
        && workspace.changed_since(path, bytes)
    {
        let message =
            format!("{path} was changed by something else since you read it; nothing was written. Read it again first");
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
            format!("{path} has this very content already; nothing was written."),
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
        let lines = content.lines().count();
        return Ok(done(
            place,
            format!("Created {path} with {lines} lines."),
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

fn done(place: &Place, told: String, summary: &str, diff: Option<FileDiff>) -> ToolOutput {
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
