//! Detects an edit that was made already, and says so. Without this, the model would be shown lines that are similar to
//! the old text and unrelated.

use super::{EditFailure, Request};
use crate::base::access::ResolvedPath;
use crate::base::call::ToolOutput;
use crate::tools::ToolError;
use crate::tools::args::shown;
use crate::tools::read_file::MAX_FILE;
use crate::workspace::Workspace;
use crate::workspace::text::{decode, plain_line_ends};

/// Shortest new text, in characters without blanks, that is recognised: shorter ones (`}`, `else`) occur in many files.
const LEAST: usize = 8;

/// The answer if the old text is not in the file: the edit is made already if the new text is in the file, else
/// `error`.
pub(super) fn made(
    place: &ResolvedPath,
    request: &Request,
    workspace: &Workspace,
    error: ToolError,
) -> Result<ToolOutput, ToolError> {
    let nowhere = EditFailure::Nothing { closest: String::new() };
    if !matches!(&error, ToolError::Model { kind, .. } if *kind == nowhere.kind()) {
        return Err(error);
    }
    let Some(line) = line_of_new(place, request, workspace) else {
        return Err(error);
    };
    let path = shown(place);
    let message = format!(
        "This edit is already made: old_string is not in {path} any more, and new_string stands at line {line}. Nothing was changed; \
         go on."
    );
    Ok(ToolOutput::text(message, format!("already made in {path}")))
}

fn line_of_new(place: &ResolvedPath, request: &Request, workspace: &Workspace) -> Option<usize> {
    let new = plain_line_ends(&request.new);
    let new = new.trim_matches('\n');
    let signs = new.chars().filter(|c| !c.is_whitespace()).count();
    // New text that is part of the old text proves nothing, because the file may have contained it before.
    if signs < LEAST || plain_line_ends(&request.old).contains(new) {
        return None;
    }
    let bytes = workspace.read(place, MAX_FILE).ok()?;
    let text = decode(&bytes).ok()?;
    let at = text.as_str().find(new)?;
    Some(text.as_str()[..at].matches('\n').count() + 1)
}
