//! The four wires: what goes out and what comes in, as pure functions. Opens no connection.

pub mod gemini;
pub mod names;
pub mod schema;

use super::Request;
use super::fault::Fault;
use crate::base::event::Live;
use crate::base::message::{CallResult, Content, Message, Part, Reply, Stop, Usage};
use crate::net::client::Header;
use crate::net::sse::Frame;
use secrecy::SecretString;
use serde_json::Value;

/// A vendor's protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wire {
    Gemini,
}

/// Which model of a wire is spoken to, and how plainly.
#[derive(Clone, Copy, Debug)]
pub struct Dialect<'a> {
    /// The name as the vendor knows it.
    pub model: &'a str,
    /// The service refused the vendor's own form of a response schema: leave it out. The engine puts the
    /// schema into the prompt and judges the answer in any case.
    pub plain: bool,
}

impl Wire {
    /// All wires, in the order in which they are listed to people.
    pub const ALL: [Wire; 1] = [Wire::Gemini];

    /// The name in `Part::Opaque` and before the `/` of a model's id.
    pub fn vendor(self) -> &'static str {
        match self {
            Wire::Gemini => "gemini",
        }
    }

    /// The variables that may hold the key, the first one first.
    pub fn key_names(self) -> &'static [&'static str] {
        match self {
            Wire::Gemini => &["GEMINI_API_KEY", "GOOGLE_API_KEY"],
        }
    }

    /// The variable that names another base URL, and the usual one.
    pub fn base(self) -> (&'static str, &'static str) {
        match self {
            Wire::Gemini => ("GOOGLE_GEMINI_BASE_URL", "https://generativelanguage.googleapis.com"),
        }
    }

    /// Whether servers of one's own that speak this wire commonly want no key.
    pub fn may_lack_key(self) -> bool {
        false
    }

    /// The headers of a request.
    pub fn headers(self, key: Option<&SecretString>) -> Vec<Header<'_>> {
        let mut headers = vec![Header::Plain("accept", "text/event-stream")];
        if let Some(key) = key {
            headers.push(match self {
                Wire::Gemini => Header::Secret("x-goog-api-key", "", key),
            });
        }
        headers
    }

    /// Where the request goes. `base` has no slash at its end.
    pub fn url(self, base: &str, model: &str) -> String {
        match self {
            Wire::Gemini => format!("{base}/v1beta/models/{model}:streamGenerateContent?alt=sse"),
        }
    }

    /// The request up to and including the bracket that opens the list of messages.
    pub fn head(self, dialect: Dialect<'_>, request: &Request<'_>) -> Vec<u8> {
        match self {
            Wire::Gemini => gemini::head(dialect, request),
        }
    }

    /// Appends the elements that one message becomes, commas included.
    pub fn message(self, dialect: Dialect<'_>, message: &Message, out: &mut Vec<u8>) {
        match self {
            Wire::Gemini => gemini::message(dialect, message, out),
        }
    }

    /// The whole body from its pieces. `marks` are the ends of messages that may carry a cache mark.
    pub fn join(self, head: &[u8], messages: &[u8], _marks: &[usize]) -> Vec<u8> {
        let mut body = Vec::with_capacity(head.len() + messages.len() + 128);
        body.extend_from_slice(head);
        match self {
            Wire::Gemini => body.extend_from_slice(messages),
        }
        body.extend_from_slice(b"]}");
        body
    }

    /// A decoder for one answer. `turn` makes ids unique that a server left out.
    pub fn decoder(self, model: &str, _turn: u64) -> Decoder {
        match self {
            Wire::Gemini => Decoder::Gemini(gemini::Decoder::new(model)),
        }
    }
}

/// The answer of one request, built up event by event.
#[derive(Debug)]
pub enum Decoder {
    Gemini(gemini::Decoder),
}

impl Decoder {
    /// Takes one event of the stream.
    ///
    /// # Errors
    /// The failure that the event tells, or [`Fault::unusable`] when it cannot be read.
    pub fn frame(&mut self, frame: &Frame, live: &dyn Fn(Live)) -> Result<(), Fault> {
        let data = frame.data.trim();
        if data.is_empty() {
            return Ok(());
        }
        if data == "[DONE]" {
            self.done();
            return Ok(());
        }
        let value = serde_json::from_str(data).map_err(|_| unreadable(data))?;
        self.value(&frame.event, &value, live)
    }

    /// Takes a whole answer that came without a stream.
    ///
    /// # Errors
    /// As for [`Decoder::frame`].
    pub fn document(&mut self, text: &str, live: &dyn Fn(Live)) -> Result<(), Fault> {
        let value: Value = serde_json::from_str(text).map_err(|_| unreadable(text))?;
        match self {
            Decoder::Gemini(decoder) => decoder.value(&value, live),
        }
    }

    /// Whether the answer is complete, so that nothing more needs to be waited for.
    pub fn is_done(&self) -> bool {
        match self {
            Decoder::Gemini(_) => false,
        }
    }

    /// The reply. Nothing is kept of an answer that is not complete.
    ///
    /// # Errors
    /// Cut, empty, malformed or blocked answers.
    pub fn finish(self) -> Result<Reply, Fault> {
        match self {
            Decoder::Gemini(decoder) => decoder.finish(),
        }
    }

    fn value(&mut self, _event: &str, value: &Value, live: &dyn Fn(Live)) -> Result<(), Fault> {
        match self {
            Decoder::Gemini(decoder) => decoder.value(value, live),
        }
    }

    fn done(&mut self) {}
}

fn unreadable(text: &str) -> Fault {
    let start: String = text.chars().take(120).collect();
    Fault::unusable(format!("the service sent something that is not JSON: {start}"))
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

/// The text of a result; media are named in it, so that a result is never empty without a reason.
fn result_text(result: &CallResult) -> String {
    let mut texts: Vec<std::borrow::Cow<'_, str>> = Vec::new();
    for content in &result.content {
        texts.push(match content {
            Content::Text { text } => text.into(),
            Content::Media(media) => {
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

/// Adds text, to the last part where that is of the same kind.
fn push_text(parts: &mut Vec<Part>, more: &str, thought: bool) {
    match (parts.last_mut(), thought) {
        _ if more.is_empty() => {}
        (Some(Part::Text { text }), false) | (Some(Part::Thought { text }), true) => text.push_str(more),
        (_, false) => parts.push(Part::text(more)),
        (_, true) => parts.push(Part::Thought { text: more.to_owned() }),
    }
}

/// A reply from its parts. An answer without text and calls is none, unless it was cut at its length.
fn whole(parts: Vec<Part>, length: bool, usage: Usage, model: String) -> Result<Reply, Fault> {
    let calls = parts.iter().any(|part| matches!(part, Part::Call(_)));
    let says = parts
        .iter()
        .any(|part| matches!(part, Part::Text { text } if !text.trim().is_empty()));
    let stop = match (length, calls) {
        (true, _) => Stop::Length,
        (false, true) => Stop::Calls,
        (false, false) if says => Stop::End,
        (false, false) => return Err(Fault::unusable("the model sent an empty answer")),
    };
    Ok(Reply {
        parts,
        stop,
        usage,
        model,
    })
}
