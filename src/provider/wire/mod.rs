//! The protocols of the four model APIs, as pure functions: requests from messages, replies from responses.

pub mod anthropic;
mod calls;
pub mod gemini;
pub mod names;
pub mod openai_chat;
pub mod openai_responses;
mod parts;
mod protocol;
pub mod schema;

pub use protocol::{
    DecodeReply, EncodeOptions, Protocol, ServiceFacts, Wire, decode_document, decode_frame, headers, join,
};

/// All wires, in the order in which they are listed for people. A new one needs its file, a line here and its fixtures.
pub static ALL: [Wire; 4] = [
    &gemini::Gemini,
    &openai_chat::OpenaiChat,
    &openai_responses::OpenaiResponses,
    &anthropic::Anthropic,
];

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

#[cfg(test)]
mod tests;
