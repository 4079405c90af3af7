//! The parts of messages and replies, in the forms that several wires share. Pure.

use crate::base::content::{Media, ToolContent};
use crate::base::message::{CallResult, Message, Part, Reply, StopReason, Usage};
use serde_json::Value;

/// The content of an assistant message exactly as this vendor and model sent it.
pub(super) fn received<'a>(vendor: &str, model: &str, message: &'a Message) -> Option<&'a Value> {
    message.parts.iter().find_map(|part| match part {
        Part::Opaque {
            vendor: from,
            model: by,
            json,
        } if from == vendor && by == model => Some(json),
        _ => None,
    })
}

/// The text of a result. It names attached media, so that a result with only media is not empty.
pub(super) fn result_text(result: &CallResult) -> String {
    let mut texts: Vec<std::borrow::Cow<'_, str>> = Vec::new();
    for content in &result.content {
        texts.push(match content {
            ToolContent::Text { text } => text.into(),
            ToolContent::Media(media) => {
                let name = media.name.as_deref().unwrap_or("unnamed");
                format!("[attached: {name}, {}]", media.mime).into()
            }
        });
    }
    match texts.as_slice() {
        [only] => only.to_string(),
        many => many.join("\n"),
    }
}

/// The text of a result for wires without an error flag: the text itself says that the call failed.
pub(super) fn marked_text(result: &CallResult) -> String {
    let text = result_text(result);
    if result.is_error && !text.to_ascii_lowercase().starts_with("error") {
        format!("Error: {text}")
    } else {
        text
    }
}

/// The placeholder for media that a model cannot receive.
pub(super) fn unshown(media: &Media) -> String {
    let name = media.name.as_deref().unwrap_or("an attachment");
    format!("[{name} of type {} cannot be shown to this model]", media.mime)
}

/// Appends text, merging it with the last part if that is of the same kind.
pub(super) fn push_text(parts: &mut Vec<Part>, more: &str, thought: bool) {
    match (parts.last_mut(), thought) {
        _ if more.is_empty() => {}
        (Some(Part::Text { text }), false) | (Some(Part::Thought { text }), true) => text.push_str(more),
        (_, false) => parts.push(Part::text(more)),
        (_, true) => parts.push(Part::Thought { text: more.to_owned() }),
    }
}

/// Whether a reply was cut at its length limit.
#[derive(Debug, Default)]
pub(super) struct Cut {
    /// The tool of the call that was cut.
    pub call: Option<String>,
}

/// A reply from its parts. A reply without text and calls is accepted: repeating the request would most likely give the
/// same, so the engine sends the model a message instead.
pub(super) fn whole(parts: Vec<Part>, cut: Option<Cut>, usage: Usage, model: String) -> Reply {
    let calls = parts.iter().any(|part| matches!(part, Part::Call(_)));
    let stop = match (cut, calls) {
        (Some(cut), _) => StopReason::Length { call: cut.call },
        (None, true) => StopReason::Calls,
        (None, false) => StopReason::End,
    };
    Reply {
        parts,
        stop,
        usage,
        model,
    }
}
