//! Reuses the encoded prefix of requests: messages that were encoded once are not encoded again.

use super::ModelRequest;
use super::wire::{self, EncodeOptions, Wire};
use crate::base::call::ToolSpec;
use crate::base::message::{Message, Role};
use serde_json::Value;

/// The encoded beginning of the next request of a run.
#[derive(Debug, Default)]
pub struct RequestPrefix {
    opened: Option<Opened>,
    head: Vec<u8>,
    messages: Vec<u8>,
    /// Number of messages in `messages`, and the last of them.
    count: usize,
    last: Option<Message>,
    epoch: u64,
    /// Ends of the messages, where a wire may put a cache mark.
    marks: Vec<usize>,
    encoded: u64,
}

/// The inputs of the head.
#[derive(Debug, PartialEq)]
struct Opened {
    system: String,
    tools: Vec<ToolSpec>,
    response: Option<Value>,
    plain: bool,
    answer_only: bool,
}

impl Opened {
    fn fits(&self, options: EncodeOptions<'_>, request: &ModelRequest<'_>) -> bool {
        self.plain == options.plain
            && self.answer_only == request.answer_only
            && self.system == request.system
            && self.response.as_ref() == request.response
            && self.tools == request.tools
    }
}

impl RequestPrefix {
    /// The body of `request`. Encodes only the messages that are new since the last call, or all of them when the
    /// history is not the previous one with messages appended.
    pub fn body(&mut self, wire: Wire, options: EncodeOptions<'_>, request: &ModelRequest<'_>) -> Vec<u8> {
        if !self.opened.as_ref().is_some_and(|opened| opened.fits(options, request)) {
            self.head = wire.head(options, request);
            self.encoded += self.head.len() as u64;
            self.opened = Some(Opened {
                system: request.system.to_owned(),
                tools: request.tools.to_vec(),
                response: request.response.cloned(),
                plain: options.plain,
                answer_only: request.answer_only,
            });
        }
        if !self.continues(request) {
            self.messages.clear();
            self.marks.clear();
            self.count = 0;
            self.epoch = request.epoch;
        }
        for message in request.messages.iter().skip(self.count) {
            let before = self.messages.len();
            wire.message(options, message, &mut self.messages);
            self.encoded += (self.messages.len() - before) as u64;
            if self.messages.len() > before && message.role != Role::Assistant {
                self.marks.push(self.messages.len());
            }
        }
        self.count = request.messages.len();
        self.last = request.messages.last().cloned();
        wire::join(wire, &self.head, &self.messages, &self.marks)
    }

    /// Bytes encoded so far. A turn adds only its new messages, however long the history is.
    pub fn encoded(&self) -> u64 {
        self.encoded
    }

    fn continues(&self, request: &ModelRequest<'_>) -> bool {
        self.epoch == request.epoch
            && match self.count {
                0 => self.messages.is_empty(),
                count => request.messages.get(count - 1) == self.last.as_ref(),
            }
    }
}

#[cfg(test)]
mod tests;
