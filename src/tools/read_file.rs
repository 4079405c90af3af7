//! The tool `read_file`: returns a page of a text, an image, a sound or a PDF; also reads kept results.

use super::args::{Args, failed, lines_from_offset};
use super::builtin::{Builtin, OtherNames, ToolFacts, blocking};
use super::page::{MAX_LINE, in_pieces, page};
use super::results::{self, PREFIX, SHOWN};
use super::schema::{integer, object, string};
use super::{PreparedCall, ToolContext, ToolError};
use crate::base::access::{Access, ResolvedPath};
use crate::base::call::{ArgumentTarget, Display, Location, ToolEffects, ToolKind, ToolOutput};
use crate::base::content::ToolContent as Part;
use crate::base::quote::counted;
use crate::workspace::Workspace;
use crate::workspace::content::{FileContent, MAX_MEDIA, classify, media};
use crate::workspace::fs::FsError;
use std::sync::Arc;

/// Upper limit in bytes for a file.
pub const MAX_FILE: u64 = 20 << 20;

/// Bytes reserved for notices in a result.
const MARGIN: usize = 1_000;

#[derive(Clone, Copy)]
struct Range {
    start: Option<u64>,
    end: Option<u64>,
}

/// Defines the tool.
pub fn tool() -> Builtin {
    Builtin::new(
        &ToolFacts {
            name: "read_file",
            display: "ReadFile",
            aliases: &[],
            kind: ToolKind::Read,
            effects: ToolEffects::shows(ArgumentTarget::File),
            other_names: OtherNames {
                renamed: &[("path", "file_path")],
                modernise: Some(lines_from_offset),
                agents: &["read"],
                settings: &["ReadFileTool"],
                programs: &["cat", "head", "tail", "less", "more", "bat", "nl", "sed"],
            },
        },
        "Reads a file: text as it is, at most 2000 lines or 40 kB at a time (a notice says where to go on), images, audio \
         and PDF as parts. Also reads kept results (overnight:result/ID).",
        object(
            [
                ("file_path", string("")),
                ("start_line", integer("From 1.", 1)),
                ("end_line", integer("", 1)),
            ],
            &["file_path"],
        ),
        prepare,
    )
}

fn prepare(args: &Args<'_>, workspace: &Arc<Workspace>) -> Result<PreparedCall, ToolError> {
    let range = Range {
        start: args.number("start_line"),
        end: args.number("end_line"),
    };
    if let Some(id) = args.text("file_path")?.strip_prefix(PREFIX) {
        results::check_name(id)?;
        let id = id.to_owned();
        return Ok(PreparedCall {
            title: format!("read {PREFIX}{id}"),
            access: Access::none(),
            preview: None,
            work: blocking(move |context| read_kept(&id, range, context)),
        });
    }
    let place = args.place("file_path", workspace)?;
    let name = place.shown();
    Ok(PreparedCall {
        title: match (range.start, range.end) {
            (None, None) => format!("read {name}"),
            (start, end) => format!(
                "read {name}:{}-{}",
                start.unwrap_or(1),
                end.map_or(String::new(), |end| end.to_string())
            ),
        },
        access: Access::read(place.clone()),
        preview: None,
        work: blocking(move |context| read(&place, range, context)),
    })
}

fn read_kept(id: &str, range: Range, context: &ToolContext) -> Result<ToolOutput, ToolError> {
    let bytes = results::kept(&context.scope.results, id)?;
    let text = String::from_utf8_lossy(&bytes);
    // Otherwise nothing could show the rest of a long line: unlike a file, a result cannot be searched.
    let (text, broken) = in_pieces(&text);
    let mut output = paged(&format!("{PREFIX}{id}"), &text, range)?;
    if broken > 0 {
        let note = format!(
            "[{} with more than {MAX_LINE} characters: shown and counted as lines of {MAX_LINE} characters]",
            counted(broken, "line")
        );
        output.content.insert(0, Part::text(note));
    }
    Ok(output)
}

fn read(place: &ResolvedPath, range: Range, context: &ToolContext) -> Result<ToolOutput, ToolError> {
    let workspace = &context.workspace;
    let bytes = workspace.read(place, MAX_FILE).map_err(|error| match error {
        FsError::TooLarge { size, limit } => ToolError::model(
            "file_too_large",
            format!(
                "{} has {size} bytes, more than the {limit} that are read; grep_search finds lines in it",
                place.shown()
            ),
        ),
        FsError::Directory => ToolError::model(
            "target_is_directory",
            format!("{} is a directory; list_directory shows what is in it", place.shown()),
        ),
        error => failed("read", place, error, workspace),
    })?;
    workspace.note_read(&place.path, &bytes);
    let output = match classify(&place.path, &bytes) {
        FileContent::Text(text) => {
            let mut output = paged(&place.path, &results::redacted(text.as_str(), context), range)?;
            if let Some(oddity) = text.oddity() {
                output.summary = format!("{} ({oddity})", output.summary);
            }
            output
        }
        FileContent::Media(mime) => seen(place, mime, &bytes)?,
        FileContent::Binary(mime) => {
            let what = mime.map(|mime| format!(" ({mime})")).unwrap_or_default();
            let message = format!("{} is a binary file{what} of {} bytes", place.path, bytes.len());
            return Err(ToolError::model("binary_file", message));
        }
    };
    let line = range.start;
    Ok(ToolOutput {
        locations: vec![Location {
            path: place.path.clone(),
            line,
        }],
        ..output
    })
}

fn paged(name: &str, text: &str, range: Range) -> Result<ToolOutput, ToolError> {
    if text.is_empty() {
        return Ok(ToolOutput::text(
            format!("[{name} is empty.]"),
            format!("{name}: empty"),
        ));
    }
    let page = page(text, range.start, range.end, SHOWN - MARGIN)
        .map_err(|message| ToolError::model("invalid_tool_params", format!("{name}: {message}")))?;
    let summary = if page.whole {
        format!("{name}: {}", counted(page.total, "line"))
    } else {
        format!("{name}: lines {}-{} of {}", page.first, page.last, page.total)
    };
    Ok(text_output(page.text, summary))
}

/// The model receives the text; people only see the summary.
fn text_output(text: String, summary: String) -> ToolOutput {
    ToolOutput {
        display: Display::Text { text: summary.clone() },
        content: vec![Part::text(text)],
        summary,
        ..ToolOutput::default()
    }
}

fn seen(place: &ResolvedPath, mime: &str, bytes: &[u8]) -> Result<ToolOutput, ToolError> {
    let size = bytes.len() as u64;
    if size > MAX_MEDIA {
        let message = format!(
            "{} ({mime}) has {size} bytes, more than the {MAX_MEDIA} that can be shown",
            place.path
        );
        return Err(ToolError::model("file_too_large", message));
    }
    let label = format!("{} ({mime}, {size} bytes)", place.path);
    Ok(ToolOutput {
        content: vec![Part::text(label.clone()), Part::Media(media(&place.path, mime, bytes))],
        ..ToolOutput::text(label.clone(), label)
    })
}
