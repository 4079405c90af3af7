//! An edit that was asked for again after it was made: said so, since the lines that are most like the old text lead nowhere.

use super::{Miss, Request};
use crate::base::access::Place;
use crate::base::call::ToolOutput;
use crate::tools::ToolError;
use crate::tools::args::shown;
use crate::tools::read_file::MAX_FILE;
use crate::workspace::Workspace;
use crate::workspace::text::{decode, plain_line_ends};

/// Characters of the new text, blanks left out, from which on it is taken for that very edit: shorter ones (`}`, `else`) stand in many
/// files anyway.
const LEAST: usize = 8;

/// The answer to an edit whose old text is nowhere in the file: that it is made already where the new text stands there, else `error`.
pub(super) fn made(
    place: &Place,
    request: &Request,
    workspace: &Workspace,
    error: ToolError,
) -> Result<ToolOutput, ToolError> {
    let nowhere = Miss::Nothing { closest: String::new() };
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

fn line_of_new(place: &Place, request: &Request, workspace: &Workspace) -> Option<usize> {
    let new = plain_line_ends(&request.new);
    let new = new.trim_matches('\n');
    let signs = new.chars().filter(|c| !c.is_whitespace()).count();
    // What is a part of the old text says nothing: it may have stood there before.
    if signs < LEAST || plain_line_ends(&request.old).contains(new) {
        return None;
    }
    let bytes = workspace.read(place, MAX_FILE).ok()?;
    let text = decode(&bytes).ok()?;
    let at = text.as_str().find(new)?;
    Some(text.as_str()[..at].matches('\n').count() + 1)
}
