//! The tool `replace`: edits a part of a file. Reads and writes through the workspace; `matcher` computes the change.
//!
//! In this module "the copy" is `old_string`: the model's copy of a part of the file, which often differs in
//! whitespace.

mod accents;
#[cfg(test)]
mod calls;
#[cfg(test)]
mod corpus;
mod correct;
mod exact;
mod failure;
mod find;
mod indent;
mod lines;
mod matcher;
mod merge;
mod parts;
#[cfg(test)]
mod tests;
mod tokens;

pub use correct::Correction;
pub use failure::EditFailure;
pub use find::Strategy;
pub use matcher::{FoundEdit, find_edit};

use super::args::{Args, failed, missing, multiple_from_count};
use super::builtin::{Builtin, OtherNames, ToolFacts, blocking};
use super::diff::{changed_lines, file_diff};
use super::read_file::MAX_FILE;
use super::schema::{integer, object, string, undeclared};
use super::write_file::refuse_large;
use super::{PreparedCall, ToolContext, ToolError, placeholder};
use crate::base::access::{Access, PathStatus, ResolvedPath};
use crate::base::call::{ArgumentTarget, Display, Location, ToolEffects, ToolKind, ToolOutput};
use crate::base::ids::sha256_hex;
use crate::base::quote::counted;
use crate::workspace::fs::FsError;
use crate::workspace::root::UNASKED;
use crate::workspace::text::{Text, decode, plain_line_ends};
use crate::workspace::{Changed, Workspace};
use serde_json::json;
use std::sync::Arc;

/// Upper limit for the changed lines that the model receives.
const SHOWN_LINES: usize = 120;

const DESCRIPTION: &str = "Replaces a part of a file. old_string is the text to replace as the file has it, with enough \
    lines around it to fit one place only; new_string is what stands there afterwards, complete. An empty old_string makes a \
    new file.";

/// Defines the tool.
pub fn tool() -> Builtin {
    let flag = json!({"type": "boolean"});
    Builtin::new(
        &ToolFacts {
            name: "replace",
            display: "Edit",
            aliases: &["edit"],
            kind: ToolKind::Edit,
            effects: ToolEffects::writes(ArgumentTarget::WrittenFile),
            other_names: OtherNames {
                renamed: &[("path", "file_path")],
                modernise: Some(multiple_from_count),
                agents: &[
                    "edit",
                    "multiedit",
                    "str_replace",
                    "str_replace_editor",
                    "str_replace_based_edit_tool",
                    "apply_patch",
                    "replace_in_file",
                    "edit_file",
                ],
                settings: &["EditTool", "SmartEditTool"],
                programs: &["patch"],
            },
        },
        DESCRIPTION,
        object(
            [
                ("file_path", string("")),
                ("old_string", string("")),
                ("new_string", string("")),
                ("allow_multiple", flag),
                (
                    "expected_replacements",
                    undeclared(integer(
                        "How many places must change; any other number is an error. More than 1 implies allow_multiple.",
                        1,
                    )),
                ),
                ("instruction", undeclared(string("What the edit is for."))),
            ],
            &["file_path", "old_string", "new_string"],
        ),
        prepare,
    )
}

/// The arguments for one file.
struct Request {
    old: String,
    new: String,
    multiple: bool,
    /// The expected number of matches, if given.
    expected: Option<u64>,
}

impl Request {
    /// Identifies what is replaced by what.
    fn digest(&self) -> String {
        let length = self.old.len().to_le_bytes();
        sha256_hex(&[length.as_slice(), self.old.as_bytes(), self.new.as_bytes()])
    }
}

/// The change that a request makes to the current file.
struct Change {
    before: Option<Text>,
    bytes: Vec<u8>,
    found_edit: Option<FoundEdit>,
    /// Whether a command of the model had changed the file since it was last read.
    reread: bool,
}

/// Added to errors if the file differs from what the model has read.
const REREAD: &str = "\n[a command of yours had changed the file since you read it, so it was read again: this is about its current text]";

/// Upper limit in bytes for `old_string`: finding a text that differs in several places costs the product of its length
/// and the file's.
const MAX_OLD: usize = 256 << 10;

fn prepare(args: &Args<'_>, workspace: &Arc<Workspace>) -> Result<PreparedCall, ToolError> {
    let place = args.place("file_path", workspace)?;
    let request = Request {
        old: args.text("old_string")?.to_owned(),
        new: args.text("new_string")?.to_owned(),
        multiple: args.flag("allow_multiple", false),
        expected: args.number("expected_replacements"),
    };
    refuse_large("new_string", request.new.len())?;
    if request.old.len() > MAX_OLD {
        let message = format!(
            "old_string has {} bytes, and at most {MAX_OLD} are compared; nothing was written. Edit smaller parts, or use write_file to replace the whole file",
            request.old.len()
        );
        return Err(ToolError::model("content_too_large", message));
    }
    // A file that must not be read is not read for a preview. A failed match is reported when the call runs, after the
    // ruling, because its message shows lines of the file.
    let readable = place.inside && workspace.may_search(UNASKED, &place.path);
    let preview = match place.found {
        PathStatus::Nothing if request.old.is_empty() => {
            Some(file_diff(place.shown(), None, &plain_line_ends(&request.new)))
        }
        // Here the error, which shows lines of the file, is dropped.
        PathStatus::File | PathStatus::HardLinked if readable => change(&place, &request, workspace)
            .ok()
            .map(|change| change.diff(&place)),
        _ => None,
    };
    let creates = place.found == PathStatus::Nothing && request.old.is_empty();
    let verb = if creates { "create" } else { "edit" };
    Ok(PreparedCall {
        title: format!("{verb} {}", place.shown()),
        access: Access::write(place.clone()),
        preview,
        work: blocking(move |context| edit(&place, &request, context)),
    })
}

impl Change {
    /// The new text. Inserted text has no CR, and the existing text was decoded without.
    fn after(&self) -> String {
        decode(&self.bytes).map_or_else(
            |_| String::from_utf8_lossy(&self.bytes).into_owned(),
            |text| text.as_str().to_owned(),
        )
    }

    fn diff(&self, place: &ResolvedPath) -> crate::base::call::FileDiff {
        file_diff(place.shown(), self.before.as_ref().map(Text::as_str), &self.after())
    }
}

/// The change that the request makes to the current file. Writes nothing.
fn change(place: &ResolvedPath, request: &Request, workspace: &Workspace) -> Result<Change, ToolError> {
    let path = place.shown();
    let bytes = match workspace.read(place, MAX_FILE) {
        Ok(bytes) => bytes,
        Err(FsError::Missing) if request.old.is_empty() => {
            refuse_placeholder(path, request)?;
            return Ok(Change {
                before: None,
                bytes: request.new.clone().into_bytes(),
                found_edit: None,
                reread: false,
            });
        }
        Err(FsError::Missing) => return Err(missing(place, workspace)),
        Err(error) => return Err(failed("edit", place, error, workspace)),
    };
    let changed = workspace.changed_since(&place.path, &bytes);
    if changed == Changed::ByOthers {
        let message =
            format!("{path} was changed by something else since you read it; nothing was written. Read it again first");
        return Err(ToolError::model("file_changed", message));
    }
    let reread = changed == Changed::ByCommand;
    let text =
        decode(&bytes).map_err(|error| ToolError::model("binary_file", format!("cannot edit {path}: {error}")))?;
    if !request.old.is_empty() {
        let found_edit = find_edit(&text, &request.old, &request.new, request.multiple)
            .and_then(|found_edit| as_often_as_expected(found_edit, request.expected))
            .map_err(|miss| {
                let read = if reread { REREAD } else { "" };
                ToolError::model(miss.kind(), format!("{}{read}", miss.message(path)))
            })?;
        // A file above the limit may be edited, but the edit may not add more text than one call may write.
        if found_edit.bytes.len() > bytes.len() {
            refuse_large("what the edit adds", found_edit.bytes.len() - bytes.len())?;
        }
        return Ok(Change {
            before: Some(text),
            bytes: found_edit.bytes.clone(),
            found_edit: Some(found_edit),
            reread,
        });
    }
    if !text.as_str().is_empty() {
        let message = format!(
            "{path} exists and is not empty; nothing was written. Give the text to replace as old_string, or use write_file to replace the whole file"
        );
        return Err(ToolError::model("attempt_to_create_existing_file", message));
    }
    refuse_placeholder(path, request)?;
    let bytes = text
        .rewrite(&request.new)
        .map_err(|error| ToolError::model("file_write_failure", format!("cannot write {path}: {error}")))?;
    Ok(Change {
        before: Some(text),
        bytes,
        found_edit: None,
        reread,
    })
}

fn as_often_as_expected(found_edit: FoundEdit, expected: Option<u64>) -> Result<FoundEdit, EditFailure> {
    let found = found_edit.edits.len() as u64;
    match expected {
        Some(expected) if expected != found => Err(EditFailure::Count { found, expected }),
        _ => Ok(found_edit),
    }
}

fn told(miss: &EditFailure, path: &str) -> ToolError {
    ToolError::model(miss.kind(), miss.message(path))
}

fn refuse_placeholder(path: &str, request: &Request) -> Result<(), ToolError> {
    let line = placeholder::first(&request.new, "");
    line.map_or(Ok(()), |line| {
        Err(told(&EditFailure::Placeholder(line.to_owned()), path))
    })
}

fn edit(place: &ResolvedPath, request: &Request, context: &ToolContext) -> Result<ToolOutput, ToolError> {
    let workspace = &*context.workspace;
    let path = &place.path;
    let change = match change(place, request, workspace) {
        Ok(change) => change,
        Err(error) => return already_made(place, request, workspace, error),
    };
    if change.before.is_some() && change.found_edit.is_none() && request.new.is_empty() {
        return Err(told(&EditFailure::Same, path));
    }
    workspace
        .write(place, &change.bytes)
        .map_err(|error| failed("write", place, error, workspace))?;
    if let (Some(before), Some(found_edit)) = (&change.before, &change.found_edit)
        && let Some((range, _)) = found_edit.edits.first()
    {
        let line = before.line_of(range.start);
        workspace.note_edit(path, request.digest(), &change.bytes, line);
    }
    let diff = change.diff(place);
    let counts = format!("+{} -{}", diff.added, diff.removed);
    let after = change.after();
    let (told, summary, line) = match (&change.before, &change.found_edit) {
        (Some(before), Some(found_edit)) => {
            let lines = changed_lines(before.as_str(), &after, SHOWN_LINES);
            let told = format!(
                "Edited {path} ({}; {counts} lines). Changed lines:\n{lines}",
                how(found_edit)
            );
            let line = found_edit
                .edits
                .first()
                .map(|(range, _)| before.line_of(range.start) as u64);
            (told, format!("edited {path} ({counts}, {})", found_edit.strategy), line)
        }
        (None, _) => {
            let told = format!("Created {path} with {}.", counted(after.lines().count(), "line"));
            (told, format!("created {path} ({counts})"), None)
        }
        (Some(_), None) => {
            let told = format!(
                "Wrote {} to {path}, which was empty.",
                counted(after.lines().count(), "line")
            );
            (told, format!("wrote {path} ({counts})"), None)
        }
    };
    let told = told + if change.reread { REREAD } else { "" };
    Ok(ToolOutput {
        display: Display::Diff(diff),
        locations: vec![Location {
            path: path.clone(),
            line,
        }],
        ..ToolOutput::text(told, summary)
    })
}

/// How the place was found, for the model.
fn how(found_edit: &FoundEdit) -> String {
    let places = match found_edit.edits.len() {
        1 => String::new(),
        places => format!(" at {places} places"),
    };
    let corrections = found_edit
        .corrections
        .iter()
        .map(|correction| format!(", {correction}"));
    format!(
        "{} match{places}{}",
        found_edit.strategy,
        corrections.collect::<String>()
    )
}

/// Shortest new text, in characters without whitespace, that counts as an edit already made when the last change of the
/// file was another one: shorter texts (`}`, `else`) occur in many files.
const RECOGNISED: usize = 8;

/// The answer if the old text is not in the file: the edit is made already if it changed the file last, or if the new text is
/// in the file, else `error`.
/// Without this, the model would be shown lines that are similar to the old text and unrelated.
fn already_made(
    place: &ResolvedPath,
    request: &Request,
    workspace: &Workspace,
    error: ToolError,
) -> Result<ToolOutput, ToolError> {
    let nowhere = EditFailure::Nothing { closest: Vec::new() };
    let line = match &error {
        ToolError::Model { kind, .. } if *kind == nowhere.kind() => line_of_new(place, request, workspace),
        _ => None,
    };
    let Some(line) = line else {
        return Err(error);
    };
    let path = place.shown();
    let found = match request.new.is_empty() {
        true => format!("it was at line {line}"),
        false => format!("new_string is at line {line}"),
    };
    let message = format!(
        "This edit is already made: old_string is not in {path} any more, and {found}. Nothing was changed; go on."
    );
    Ok(ToolOutput::text(message, format!("already made in {path}")))
}

fn line_of_new(place: &ResolvedPath, request: &Request, workspace: &Workspace) -> Option<usize> {
    let bytes = workspace.read(place, MAX_FILE).ok()?;
    if let Some(line) = workspace.line_of_edit(&place.path, &request.digest(), &bytes) {
        return Some(line);
    }
    let new = plain_line_ends(&request.new);
    let new = new.trim_matches('\n');
    let signs = new.chars().filter(|c| !c.is_whitespace()).count();
    // New text that is part of the old text proves nothing, because the file may have contained it before.
    if signs < RECOGNISED || plain_line_ends(&request.old).contains(new) {
        return None;
    }
    let text = decode(&bytes).ok()?;
    Some(text.line_of(text.as_str().find(new)?))
}
