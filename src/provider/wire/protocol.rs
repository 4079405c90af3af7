//! What every wire implements, and what all of them share: headers, bodies and the decoding of a stream. Pure.

use crate::base::event::ProgressEvent;
use crate::base::message::{Message, Reply};
use crate::base::secret::shortened;
use crate::net::client::RequestHeader;
use crate::net::sse::{self, Frame};
use crate::provider::fault::{self, Fault};
use crate::provider::{Discarded, ModelRequest};
use secrecy::SecretString;
use serde_json::Value;

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
    /// Name of the header for the key, and the prefix before the key in its value.
    pub key_header: (&'static str, &'static str),
    /// Further headers of each request.
    pub headers: &'static [(&'static str, &'static str)],
}

impl ServiceFacts {
    /// The service of OpenAI: its wires differ only in the name before the `/` of a model's id.
    pub(super) const fn openai(vendor: &'static str) -> Self {
        Self {
            vendor,
            key_names: &["OPENAI_API_KEY"],
            base_variable: "OPENAI_BASE_URL",
            default_base: "https://api.openai.com/v1",
            own_version: None,
            may_lack_key: true,
            key_header: ("authorization", "Bearer "),
            headers: &[],
        }
    }
}

/// The model that is addressed, and which optional features to leave out.
#[derive(Clone, Copy, Debug)]
pub struct EncodeOptions<'a> {
    /// The model's name as the vendor knows it.
    pub model: &'a str,
    /// The service rejected the vendor-specific response schema: leave it out. The engine puts the schema into the
    /// prompt and validates the answer in any case.
    pub plain: bool,
    /// Limit of a reply that the user chose, in tokens.
    pub max_output_tokens: Option<u64>,
}

/// One wire: requests from messages, and a decoder of replies. Pure.
pub trait Protocol: std::fmt::Debug + Send + Sync {
    /// The service that uses it.
    fn service(&self) -> &'static ServiceFacts;

    /// The request URL. `base` has no trailing slash.
    fn url(&self, base: &str, model: &str) -> String;

    /// The request up to and including the bracket that opens the list of messages.
    fn head(&self, options: EncodeOptions<'_>, request: &ModelRequest<'_>) -> Vec<u8>;

    /// Appends the list elements that one message becomes, with commas.
    fn message(&self, options: EncodeOptions<'_>, message: &Message, out: &mut Vec<u8>);

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

    /// What the service has counted so far, and the bytes of content that were received; `None` if there is neither. It
    /// charges for a reply that cannot be used, too.
    fn counted(&self) -> Option<Box<Discarded>>;

    /// The reply. An incomplete response is discarded.
    ///
    /// # Errors
    /// Cut, empty, malformed or blocked responses.
    fn finish(self: Box<Self>) -> Result<Reply, Fault>;
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
    let data = frame.data.trim();
    if frame.event == sse::ERROR {
        return Err(fault::from_event(data));
    }
    match data {
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
    let read = serde_json::from_str(text);
    let read = read.or_else(|error| whole_characters(text).map_or(Err(error), |text| serde_json::from_str(&text)));
    let value: Value = read.map_err(|_| {
        let start = shortened(text, 120);
        Fault::unusable(format!("the service sent something that is not JSON: {start}"))
    })?;
    decoder.value(&value, live)
}

/// JSON text with U+FFFD in place of each half of a character, which no JSON parser here takes: gateways that cut a text by
/// UTF-16 units send the two halves of an emoji in two events. `None`: there is none.
fn whole_characters(text: &str) -> Option<String> {
    let (mut whole, mut rest, mut has_half) = (String::with_capacity(text.len()), text, false);
    while let Some((before, escape)) = rest.find('\\').and_then(|at| rest.split_at_checked(at)) {
        whole.push_str(before);
        let unit = |from: usize| {
            let digits = escape.get(from..from + 6)?.strip_prefix("\\u")?;
            u16::from_str_radix(digits, 16).ok()
        };
        let length = match (unit(0), unit(6)) {
            (Some(0xD800..=0xDBFF), Some(0xDC00..=0xDFFF)) => 12,
            (Some(_), _) => 6,
            // The escaped character may be a backslash.
            (None, _) => escape.chars().take(2).map(char::len_utf8).sum(),
        };
        let (taken, after) = escape.split_at_checked(length)?;
        let is_half = length == 6 && matches!(unit(0), Some(0xD800..=0xDFFF));
        whole.push_str(if is_half { "\\ufffd" } else { taken });
        has_half |= is_half;
        rest = after;
    }
    whole.push_str(rest);
    has_half.then_some(whole)
}
