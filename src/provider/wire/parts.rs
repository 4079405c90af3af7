//! The parts of messages and replies, in the forms that several wires share. Pure.

use crate::base::content::{Media, ToolContent};
use crate::base::message::{CallResult, Message, Part, Reply, StopReason, Usage};
use crate::base::secret::shortened;
use crate::provider::fault::Fault;
use serde_json::Value;

/// Characters of a service's word that are kept.
const WORD: usize = 80;
/// Limit of the calls in one reply. Models ask for a few at once, at most for some dozens; a reply with more has gone wrong,
/// and each call costs a ruling, a result and its place in all later requests.
pub(super) const MOST_CALLS: usize = 1_000;
/// A greater count of tokens is not believed.
const MOST_TOKENS: u64 = 1 << 40;

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

/// How a reply ended, as the service says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Ending {
    Complete,
    /// With calls.
    Calls,
    /// Cut at its length limit.
    Length,
    /// The service continues when the reply is sent back to it.
    Paused,
    /// With a word that this program does not know.
    Unknown(String),
}

impl Ending {
    /// For a word that this program does not know.
    pub fn unknown(word: &str) -> Self {
        Self::Unknown(shortened(word, WORD))
    }
}

/// The failure for a word that says that the service broke the reply off.
pub(super) fn broken_off(word: &str) -> Fault {
    let word = shortened(word, WORD);
    Fault {
        message: format!("the service broke off its reply ({word})"),
        ..Fault::cut()
    }
}

/// The failure for a reply with more than [`MOST_CALLS`] calls; another try may give a better one.
pub(super) fn too_many_calls() -> Fault {
    Fault::unusable(format!("the model asked for more than {MOST_CALLS} calls in one reply"))
}

/// A reply from its parts. `cut`: the tool of a call that was cut at the length limit. A reply without text and calls is
/// accepted: repeating the request would most likely give the same, so the engine sends the model a message instead.
///
/// # Errors
/// The service announces calls and sends none, or it sends more than [`MOST_CALLS`].
pub(super) fn whole(
    parts: Vec<Part>,
    (ending, cut): (Ending, Option<String>),
    usage: Usage,
    model: String,
) -> Result<Reply, Fault> {
    let calls = parts.iter().filter(|part| matches!(part, Part::Call(_))).count();
    if calls > MOST_CALLS {
        return Err(too_many_calls());
    }
    let stop = match (ending, calls > 0) {
        (Ending::Length, _) => StopReason::Length { call: cut },
        (_, true) => StopReason::Calls,
        (Ending::Complete, false) => StopReason::End,
        (Ending::Calls, false) => return Err(Fault::unusable("the service announced calls and sent none")),
        (Ending::Paused, false) => StopReason::Paused,
        (Ending::Unknown(reason), false) => StopReason::Unknown { reason },
    };
    Ok(Reply {
        parts,
        stop,
        usage,
        model,
    })
}

/// A count of tokens. Some servers send integers as floating-point numbers or as text. What cannot be a count is none.
pub(super) fn count(value: &Value) -> Option<u64> {
    let is_whole = |figure: &f64| figure.fract() == 0.0 && *figure >= 0.0;
    let figure = match value {
        Value::Number(number) => number
            .as_u64()
            // A figure beyond `u64` saturates in the cast.
            .or_else(|| number.as_f64().filter(is_whole).map(|figure| figure as u64)),
        Value::String(text) => text.trim().parse().ok(),
        _ => None,
    };
    figure.filter(|figure| *figure <= MOST_TOKENS)
}
