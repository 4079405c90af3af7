//! The protocols of the four model APIs, as pure functions: requests from messages, replies from responses.

pub mod anthropic;
mod calls;
pub mod gemini;
pub mod names;
pub mod openai_chat;
pub mod openai_responses;
pub mod schema;

use super::ModelRequest;
use super::fault::Fault;
use crate::base::event::ProgressEvent;
use crate::base::message::{CallResult, Media, Message, Part, Reply, StopReason, ToolContent, Usage};
use crate::net::client::RequestHeader;
use crate::net::sse::Frame;
use secrecy::SecretString;
use serde_json::Value;

/// The protocol of a model API.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wire {
    Gemini,
    OpenaiChat,
    OpenaiResponses,
    Anthropic,
}

/// The model that is addressed, and which optional features to leave out.
#[derive(Clone, Copy, Debug)]
pub struct Dialect<'a> {
    /// The model's name as the vendor knows it.
    pub model: &'a str,
    /// The service rejected the vendor-specific response schema: leave it out. The engine puts the schema into the
    /// prompt and validates the answer in any case.
    pub plain: bool,
    /// Limit of a reply that the user chose, in tokens.
    pub max_output_tokens: Option<u64>,
}

impl Wire {
    /// All wires, in the order in which they are listed for people.
    pub const ALL: [Wire; 4] = [Wire::Gemini, Wire::OpenaiChat, Wire::OpenaiResponses, Wire::Anthropic];

    /// The name in `Part::Opaque` and before the `/` of a model's id.
    pub fn vendor(self) -> &'static str {
        match self {
            Wire::Gemini => "gemini",
            Wire::OpenaiChat => "openai",
            Wire::OpenaiResponses => "openai-responses",
            Wire::Anthropic => "anthropic",
        }
    }

    /// The variables that may hold the key, in order of precedence.
    pub fn key_names(self) -> &'static [&'static str] {
        match self {
            Wire::Gemini => &["GEMINI_API_KEY", "GOOGLE_API_KEY"],
            Wire::OpenaiChat | Wire::OpenaiResponses => &["OPENAI_API_KEY"],
            Wire::Anthropic => &["ANTHROPIC_API_KEY"],
        }
    }

    /// The variable for another base URL, and the default base URL.
    pub fn base(self) -> (&'static str, &'static str) {
        match self {
            Wire::Gemini => ("GOOGLE_GEMINI_BASE_URL", "https://generativelanguage.googleapis.com"),
            Wire::OpenaiChat | Wire::OpenaiResponses => ("OPENAI_BASE_URL", "https://api.openai.com/v1"),
            Wire::Anthropic => ("ANTHROPIC_BASE_URL", "https://api.anthropic.com"),
        }
    }

    /// The version suffix of a base URL that the vendor's own clients add themselves.
    pub fn own_version(self) -> Option<&'static str> {
        match self {
            Wire::Gemini => Some("/v1beta"),
            Wire::Anthropic => Some("/v1"),
            Wire::OpenaiChat | Wire::OpenaiResponses => None,
        }
    }

    /// Whether self-hosted servers of this wire usually need no key.
    pub fn may_lack_key(self) -> bool {
        matches!(self, Wire::OpenaiChat | Wire::OpenaiResponses)
    }

    /// The headers of a request.
    pub fn headers(self, key: Option<&SecretString>) -> Vec<RequestHeader<'_>> {
        let mut headers = vec![RequestHeader::Plain("accept", "text/event-stream")];
        if self == Wire::Anthropic {
            headers.push(RequestHeader::Plain("anthropic-version", "2023-06-01"));
        }
        if let Some(key) = key {
            headers.push(match self {
                Wire::Gemini => RequestHeader::Secret("x-goog-api-key", "", key),
                Wire::OpenaiChat | Wire::OpenaiResponses => RequestHeader::Secret("authorization", "Bearer ", key),
                Wire::Anthropic => RequestHeader::Secret("x-api-key", "", key),
            });
        }
        headers
    }

    /// The request URL. `base` has no trailing slash.
    pub fn url(self, base: &str, model: &str) -> String {
        match self {
            Wire::Gemini => format!("{base}/v1beta/models/{model}:streamGenerateContent?alt=sse"),
            Wire::OpenaiChat => format!("{base}/chat/completions"),
            Wire::OpenaiResponses => format!("{base}/responses"),
            Wire::Anthropic => format!("{base}/v1/messages"),
        }
    }

    /// The request up to and including the bracket that opens the list of messages.
    pub fn head(self, dialect: Dialect<'_>, request: &ModelRequest<'_>) -> Vec<u8> {
        match self {
            Wire::Gemini => gemini::head(dialect, request),
            Wire::OpenaiChat => openai_chat::head(dialect, request),
            Wire::OpenaiResponses => openai_responses::head(dialect, request),
            Wire::Anthropic => anthropic::head(dialect, request),
        }
    }

    /// Appends the list elements that one message becomes, with commas.
    pub fn message(self, dialect: Dialect<'_>, message: &Message, out: &mut Vec<u8>) {
        match self {
            Wire::Gemini => gemini::message(dialect, message, out),
            Wire::OpenaiChat => openai_chat::message(dialect, message, out),
            Wire::OpenaiResponses => openai_responses::message(dialect, message, out),
            Wire::Anthropic => anthropic::message(dialect, message, out),
        }
    }

    /// The whole body from its parts. `marks` are the ends of messages that may get a cache mark.
    pub fn join(self, head: &[u8], messages: &[u8], marks: &[usize]) -> Vec<u8> {
        let mut body = Vec::with_capacity(head.len() + messages.len() + 128);
        body.extend_from_slice(head);
        // After a head that ends with the system message a comma is needed.
        if !messages.is_empty() && !body.ends_with(b"[") {
            body.push(b',');
        }
        match self {
            Wire::Anthropic => anthropic::join(&mut body, messages, marks),
            _ => body.extend_from_slice(messages),
        }
        body.extend_from_slice(b"]}");
        body
    }

    /// A decoder for one response. `turn` makes generated ids unique where a server sends none.
    pub fn decoder(self, model: &str, turn: u64) -> ReplyDecoder {
        match self {
            Wire::Gemini => ReplyDecoder::Gemini(gemini::reply::GeminiDecoder::new(model)),
            Wire::OpenaiChat => ReplyDecoder::OpenaiChat(Box::new(openai_chat::reply::ChatDecoder::new(model, turn))),
            Wire::OpenaiResponses => {
                ReplyDecoder::OpenaiResponses(openai_responses::reply::ResponsesDecoder::new(model))
            }
            Wire::Anthropic => ReplyDecoder::Anthropic(anthropic::reply::AnthropicDecoder::new(model)),
        }
    }
}

/// Builds the reply to one request from events.
#[derive(Debug)]
pub enum ReplyDecoder {
    Gemini(gemini::reply::GeminiDecoder),
    OpenaiChat(Box<openai_chat::reply::ChatDecoder>),
    OpenaiResponses(openai_responses::reply::ResponsesDecoder),
    Anthropic(anthropic::reply::AnthropicDecoder),
}

impl ReplyDecoder {
    /// Processes one event of the stream.
    ///
    /// # Errors
    /// The failure that the event reports, or [`Fault::unusable`] when it cannot be parsed.
    pub fn frame(&mut self, frame: &Frame, live: &dyn Fn(ProgressEvent)) -> Result<(), Fault> {
        match frame.data.trim() {
            "" => Ok(()),
            "[DONE]" => {
                if let ReplyDecoder::OpenaiChat(decoder) = self {
                    decoder.done();
                }
                Ok(())
            }
            data => self.document(data, live),
        }
    }

    /// Processes a complete response that was not streamed, or the JSON text of one event.
    ///
    /// # Errors
    /// As for [`ReplyDecoder::frame`].
    pub fn document(&mut self, text: &str, live: &dyn Fn(ProgressEvent)) -> Result<(), Fault> {
        let value: Value = serde_json::from_str(text).map_err(|_| {
            let start: String = text.chars().take(120).collect();
            Fault::unusable(format!("the service sent something that is not JSON: {start}"))
        })?;
        match self {
            ReplyDecoder::Gemini(decoder) => decoder.value(&value, live),
            ReplyDecoder::OpenaiChat(decoder) => decoder.value(&value, live),
            ReplyDecoder::OpenaiResponses(decoder) => decoder.value(&value, live),
            ReplyDecoder::Anthropic(decoder) => decoder.value(&value, live),
        }
    }

    /// Whether the response is complete, so that nothing more needs to be awaited.
    pub fn is_done(&self) -> bool {
        match self {
            ReplyDecoder::Gemini(_) => false,
            ReplyDecoder::OpenaiChat(decoder) => decoder.is_done(),
            ReplyDecoder::OpenaiResponses(decoder) => decoder.is_done(),
            ReplyDecoder::Anthropic(decoder) => decoder.is_done(),
        }
    }

    /// Whether the model has ended its reply; usage counts may still follow.
    pub fn is_ended(&self) -> bool {
        match self {
            ReplyDecoder::Gemini(decoder) => decoder.is_ended(),
            ReplyDecoder::OpenaiChat(decoder) => decoder.is_ended(),
            decoder => decoder.is_done(),
        }
    }

    /// The reply. An incomplete response is discarded.
    ///
    /// # Errors
    /// Cut, empty, malformed or blocked responses.
    pub fn finish(self) -> Result<Reply, Fault> {
        match self {
            ReplyDecoder::Gemini(decoder) => decoder.finish(),
            ReplyDecoder::OpenaiChat(decoder) => decoder.finish(),
            ReplyDecoder::OpenaiResponses(decoder) => decoder.finish(),
            ReplyDecoder::Anthropic(decoder) => decoder.finish(),
        }
    }
}

/// The content of an assistant message exactly as this vendor and model sent it.
fn received<'a>(vendor: &str, model: &str, message: &'a Message) -> Option<&'a Value> {
    message.parts.iter().find_map(|part| match part {
        Part::Opaque {
            vendor: from,
            model: by,
            json,
        } if from == vendor && by == model => Some(json),
        _ => None,
    })
}

/// The text of a result; media are named in it, so that a result is not empty without a reason.
fn result_text(result: &CallResult) -> String {
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
fn marked_text(result: &CallResult) -> String {
    let text = result_text(result);
    if result.is_error && !text.to_ascii_lowercase().starts_with("error") {
        format!("Error: {text}")
    } else {
        text
    }
}

/// The placeholder for media that a model cannot receive.
fn unshown(media: &Media) -> String {
    let name = media.name.as_deref().unwrap_or("an attachment");
    format!("[{name} of type {} cannot be shown to this model]", media.mime)
}

/// Appends text, merging it with the last part if that is of the same kind.
fn push_text(parts: &mut Vec<Part>, more: &str, thought: bool) {
    match (parts.last_mut(), thought) {
        _ if more.is_empty() => {}
        (Some(Part::Text { text }), false) | (Some(Part::Thought { text }), true) => text.push_str(more),
        (_, false) => parts.push(Part::text(more)),
        (_, true) => parts.push(Part::Thought { text: more.to_owned() }),
    }
}

/// Whether a reply was cut at its length limit.
#[derive(Debug, Default)]
struct Cut {
    /// The tool of the call that was cut.
    call: Option<String>,
}

/// A reply from its parts. A reply without text and calls is accepted: repeating the request would most likely give the
/// same, so the engine answers with a message instead.
fn whole(parts: Vec<Part>, cut: Option<Cut>, usage: Usage, model: String) -> Reply {
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

#[cfg(test)]
mod tests;
