//! The size of the history: in bytes, and in the tokens that a service reported.

use crate::base::content::{Media, ToolContent};
use crate::base::message::{Message, Part};

/// Bytes counted for one image or document; services count them by pixels or pages.
const MEDIA_BYTES: u64 = 6_000;

/// Token count that a service reported for one request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reported {
    /// Bytes of the history in that request.
    pub bytes: u64,
    /// Input tokens of the whole request.
    pub input: u64,
}

/// The size of a message in bytes, as counted for the context window.
pub fn size(message: &Message) -> u64 {
    parts_size(&message.parts) + 20
}

/// The size of the parts of one message.
pub fn parts_size(parts: &[Part]) -> u64 {
    let said = parts.iter().map(|part| match part {
        Part::Text { text } => text.len() as u64,
        Part::Thought { .. } => 0,
        Part::Media(media) => media_size(media),
        Part::Call(call) => (call.tool.len() + call.args.to_string().len()) as u64,
        Part::Result(result) => result.content.iter().map(content_size).sum(),
        Part::Opaque { .. } => 0,
    });
    let said: u64 = said.sum();
    // If a message is kept as received (opaque), that form replaces all other parts and contains them.
    let opaque = parts.iter().map(|part| match part {
        Part::Opaque { json, .. } => json.to_string().len() as u64,
        _ => 0,
    });
    said.max(opaque.max().unwrap_or(0))
}

fn content_size(content: &ToolContent) -> u64 {
    match content {
        ToolContent::Text { text } => text.len() as u64,
        ToolContent::Media(media) => media_size(media),
    }
}

fn media_size(media: &Media) -> u64 {
    (media.data.len() as u64).min(MEDIA_BYTES)
}
