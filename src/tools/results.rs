//! Cuts results that are too long for the model, and keeps the full text in a file. Files themselves are paged, not
//! cut.

use super::{ToolContext, ToolError};
use crate::base::call::{Display, Kept, ToolOutput};
use crate::base::content::ToolContent;
use crate::workspace::fs::{DirHandle, FsError};
use std::borrow::Cow;
use std::path::Path;

/// Upper limit in bytes for one result that the model receives.
pub const SHOWN: usize = 40_000;

/// Bytes that are kept of the beginning, and of the end, of one result.
const KEPT_EACH: usize = 16 << 20;

/// Upper limit in bytes for all kept results of a run.
const KEPT_RUN: u64 = 64 << 20;

/// Prefix of the name under which the model reads a kept result.
pub const PREFIX: &str = "overnight:result/";

/// Limits the text of `output` to `SHOWN` bytes: head, a notice, tail. The full text is kept for `read_file`.
///
/// # Errors
/// [`ToolError::Fatal`] if the full text cannot be kept.
pub fn fit(mut output: ToolOutput, context: &ToolContext) -> Result<ToolOutput, ToolError> {
    // Redacts before cutting, because half a secret would not be found afterwards.
    if let Display::Text { text } = &mut output.display
        && text.len() > SHOWN
    {
        let cut = head_and_tail(&redacted(text, context), SHOWN, None);
        *text = cut;
    }
    let texts: usize = output.content.iter().map(text_len).sum();
    if texts <= SHOWN {
        return Ok(output);
    }
    let whole = redacted(&output.model_text(), context).into_owned();
    if output.kept.is_none() {
        output.kept = Some(keep(&whole, context)?);
    }
    let kept = output.kept.as_ref().map(|kept| kept.id.as_str());
    let cut = head_and_tail(&whole, SHOWN, kept);
    output
        .content
        .retain(|content| matches!(content, ToolContent::Media(_)));
    output.content.insert(0, ToolContent::text(cut));
    if let Some(failure) = &mut output.error {
        let cut = head_and_tail(&redacted(&failure.message, context), SHOWN, kept);
        failure.message = cut;
    }
    Ok(output)
}

/// `text` with secrets redacted; call this before a text is cut.
pub fn redacted<'a>(text: &'a str, context: &ToolContext) -> Cow<'a, str> {
    let redactor = &context.scope.redactor;
    if redactor.is_empty() {
        Cow::Borrowed(text)
    } else {
        redactor.redact(text)
    }
}

fn text_len(content: &ToolContent) -> usize {
    match content {
        ToolContent::Text { text } => text.len() + 1,
        ToolContent::Media(_) => 0,
    }
}

/// The beginning and end of `text` in about `room` bytes, at line breaks if that loses little, with a notice between.
pub fn head_and_tail(text: &str, room: usize, kept: Option<&str>) -> String {
    if text.len() <= room {
        return text.to_owned();
    }
    let half = room.saturating_sub(200) / 2;
    let head = head(text, half);
    let tail = tail(text, half);
    let gone = text.len() - head.len() - tail.len();
    let whole = kept
        .map(|id| format!("; read_file with file_path \"{PREFIX}{id}\" shows all of it"))
        .unwrap_or_default();
    format!(
        "{head}\n[{gone} of {} bytes are left out here{whole}]\n{tail}",
        text.len()
    )
}

fn head(text: &str, room: usize) -> &str {
    let head = text.get(..text.floor_char_boundary(room)).unwrap_or_default();
    match head.rfind('\n') {
        Some(end) if end > room - room / 8 => head.get(..end).unwrap_or(head),
        _ => head,
    }
}

fn tail(text: &str, room: usize) -> &str {
    let tail = text
        .get(text.ceil_char_boundary(text.len() - room)..)
        .unwrap_or_default();
    match tail.find('\n') {
        Some(start) if start < room / 8 => tail.get(start + 1..).unwrap_or(tail),
        _ => tail,
    }
}

/// Keeps the full text of a result that is about to be shrunk in the history, unless it is kept already.
///
/// # Errors
/// [`ToolError::Fatal`] if it cannot be kept.
pub fn keep_whole(results: &Path, id: &str, text: &str) -> Result<(), ToolError> {
    if kept(results, id).is_ok() {
        return Ok(());
    }
    keep_as(results, id, text).map(|_| ())
}

/// Keeps a text (its first and last 16 MiB, if the run's limit allows) under the call's id.
fn keep(text: &str, context: &ToolContext) -> Result<Kept, ToolError> {
    keep_as(&context.scope.results, context.call.as_str(), text)
}

fn keep_as(results: &Path, id: &str, text: &str) -> Result<Kept, ToolError> {
    let fatal = |error: FsError| ToolError::Fatal(format!("cannot keep the result of {id}: {error}"));
    let dir = DirHandle::create(results).map_err(fatal)?;
    let (others, _) = dir.list("", 100_000).map_err(fatal)?;
    let used: u64 = others.iter().map(|entry| entry.size).sum();
    let room = usize::try_from(KEPT_RUN.saturating_sub(used)).unwrap_or(usize::MAX);
    let each = KEPT_EACH.min(room / 2);
    let kept = if text.len() <= 2 * each {
        text.to_owned()
    } else {
        let start = text.get(..text.floor_char_boundary(each)).unwrap_or_default();
        let end = text
            .get(text.ceil_char_boundary(text.len() - each)..)
            .unwrap_or_default();
        let gone = text.len() - start.len() - end.len();
        format!("{start}\n[{gone} bytes were not kept]\n{end}")
    };
    dir.write(id, kept.as_bytes()).map_err(fatal)?;
    Ok(Kept {
        id: id.to_owned(),
        bytes: text.len() as u64,
        omitted: text.len().saturating_sub(kept.len()) as u64,
    })
}

/// Copies the full text of a recorded result to the results of this run.
///
/// # Errors
/// [`ToolError::Model`] if the recorded run does not have it; [`ToolError::Fatal`] if it cannot be written here.
pub fn carry(from: &Path, output: &ToolOutput, context: &ToolContext) -> Result<(), ToolError> {
    let Some(whole) = &output.kept else {
        return Ok(());
    };
    let fatal = |error: FsError| ToolError::Fatal(format!("cannot keep the result of {}: {error}", whole.id));
    let bytes = kept(from, &whole.id)?;
    let dir = DirHandle::create(&context.scope.results).map_err(fatal)?;
    dir.write(&whole.id, &bytes).map_err(fatal)?;
    Ok(())
}

/// Whether an `id`, which comes from the model, may be that of a result: only letters, digits and `-`.
///
/// # Errors
/// It is not.
pub fn check_name(id: &str) -> Result<(), ToolError> {
    let plain = !id.is_empty() && id.len() <= 64 && id.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-');
    match plain {
        true => Ok(()),
        false => Err(ToolError::model(
            "file_not_found",
            format!("{PREFIX}{id} is not the name of a result"),
        )),
    }
}

/// The bytes of a kept result.
///
/// # Errors
/// [`ToolError::Model`] (`file_not_found`) if `id` is not the name of a result, or it is missing or cannot be read.
pub fn kept(results: &Path, id: &str) -> Result<Vec<u8>, ToolError> {
    check_name(id)?;
    let read = || DirHandle::open(results)?.read(id, 2 * KEPT_EACH as u64 + 4_096);
    read().map_err(|_| ToolError::model("file_not_found", format!("{PREFIX}{id} does not exist")))
}

#[cfg(test)]
mod tests;
