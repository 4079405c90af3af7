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

/// All wires, in the order in which they are listed for people. A new one needs its file, a line here and its fixtures.
pub static ALL: [Wire; 4] = [
    &gemini::Gemini,
    &openai_chat::OpenaiChat,
    &openai_responses::OpenaiResponses,
    &anthropic::Anthropic,
];

/// The protocol of a model API.
pub type Wire = &'static dyn Protocol;

/// What is known of a model service before anything is sent.
#[derive(Debug)]
pub struct ServiceFacts {
    /// The name in `Part::Opaque` and before the `/` of a model's id.
    pub vendor: &'static str,
    /// The variables that may hold the key, in order of precedence.
    pub key_names: &'static [&'static str],
    /// The variable for another base URL.
    pub base_variable: &'static str,
    pub default_base: &'static str,
    /// The version suffix of a base URL that the vendor's own clients add themselves.
    pub own_version: Option<&'static str>,
    /// Whether self-hosted servers of this wire usually need no key.
    pub may_lack_key: bool,
    /// Name of the header that holds the key, and what stands before the key in it.
    pub key_header: (&'static str, &'static str),
    /// Further headers of each request.
    pub headers: &'static [(&'static str, &'static str)],
}

/// One wire: requests from messages, and a decoder of replies. Pure.
pub trait Protocol: std::fmt::Debug + Send + Sync {
    /// The service that speaks it.
    fn service(&self) -> &'static ServiceFacts;

    /// The request URL. `base` has no trailing slash.
    fn url(&self, base: &str, model: &str) -> String;

    /// The request up to and including the bracket that opens the list of messages.
    fn head(&self, dialect: Dialect<'_>, request: &ModelRequest<'_>) -> Vec<u8>;

    /// Appends the list elements that one message becomes, with commas.
    fn message(&self, dialect: Dialect<'_>, message: &Message, out: &mut Vec<u8>);

    /// Appends the encoded messages to the body. `marks` are the ends of messages that may get a cache mark.
    fn append_messages(&self, body: &mut Vec<u8>, messages: &[u8], _marks: &[usize]) {
        body.extend_from_slice(messages);
    }

    /// A decoder for one response. `turn` makes generated ids unique where a server sends none.
    fn decoder(&self, model: &str, turn: u64) -> Box<dyn DecodeReply>;

    /// As in [`ServiceFacts::vendor`].
    fn vendor(&self) -> &'static str {
        self.service().vendor
    }
}

/// Builds the reply to one request from the events of its stream.
pub trait DecodeReply: std::fmt::Debug + Send {
    /// Processes one event, or a complete response that was not streamed.
    ///
    /// # Errors
    /// The failure that the event reports.
    fn value(&mut self, value: &Value, live: &dyn Fn(ProgressEvent)) -> Result<(), Fault>;

    /// Processes the event `[DONE]`, with which some services end a stream.
    fn end_marker(&mut self) {}

    /// Whether the response is complete, so that nothing more needs to be awaited.
    fn is_done(&self) -> bool;

    /// Whether the model has ended its reply; usage counts may still follow.
    fn is_ended(&self) -> bool {
        self.is_done()
    }

    /// The reply. An incomplete response is discarded.
    ///
    /// # Errors
    /// Cut, empty, malformed or blocked responses.
    fn finish(self: Box<Self>) -> Result<Reply, Fault>;
}

/// The wire with this name before the `/` of a model's id.
pub fn find(vendor: &str) -> Option<Wire> {
    ALL.into_iter().find(|wire| wire.vendor() == vendor)
}

/// A wire that exists, for tests.
#[cfg(test)]
#[allow(clippy::expect_used, reason = "a test may fail")]
pub fn named(vendor: &str) -> Wire {
    find(vendor).expect("a wire")
}

/// The headers of a request.
pub fn headers(wire: Wire, key: Option<&SecretString>) -> Vec<RequestHeader<'_>> {
    let service = wire.service();
    let mut headers = vec![RequestHeader::Plain("accept", "text/event-stream")];
    headers.extend(
        service
            .headers
            .iter()
            .map(|(name, value)| RequestHeader::Plain(name, value)),
    );
    if let Some(key) = key {
        let (name, before) = service.key_header;
        headers.push(RequestHeader::Secret(name, before, key));
    }
    headers
}

/// The whole body from its parts. `marks` are the ends of messages that may get a cache mark.
pub fn join(wire: Wire, head: &[u8], messages: &[u8], marks: &[usize]) -> Vec<u8> {
    let mut body = Vec::with_capacity(head.len() + messages.len() + 128);
    body.extend_from_slice(head);
    // After a head that ends with the system message a comma is needed.
    if !messages.is_empty() && !body.ends_with(b"[") {
        body.push(b',');
    }
    wire.append_messages(&mut body, messages, marks);
    body.extend_from_slice(b"]}");
    body
}

/// Passes one event of the stream to the decoder.
///
/// # Errors
/// The failure that the event reports, or [`Fault::unusable`] when it cannot be parsed.
pub fn decode_frame(decoder: &mut dyn DecodeReply, frame: &Frame, live: &dyn Fn(ProgressEvent)) -> Result<(), Fault> {
    match frame.data.trim() {
        "" => Ok(()),
        "[DONE]" => {
            decoder.end_marker();
            Ok(())
        }
        data => decode_document(decoder, data, live),
    }
}

/// Passes a complete response that was not streamed, or the JSON text of one event, to the decoder.
///
/// # Errors
/// As for [`decode_frame`].
pub fn decode_document(decoder: &mut dyn DecodeReply, text: &str, live: &dyn Fn(ProgressEvent)) -> Result<(), Fault> {
    let value: Value = serde_json::from_str(text).map_err(|_| {
        let start: String = text.chars().take(120).collect();
        Fault::unusable(format!("the service sent something that is not JSON: {start}"))
    })?;
    decoder.value(&value, live)
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
