//! Tracks properties of a step's replies other than the answer: empty, cut, a call written as text; and whether an
//! attempt repeats the one before. Pure.

use crate::base::event::PromptReason;
use crate::base::ids::sha256_hex;
use crate::base::message::{Part, Reply, StopReason};
use crate::engine::printed_call::printed_call;
use std::collections::BTreeSet;

/// Text in the history in place of an empty reply.
pub const NOTHING: &str = "(no reply)";

/// The replies of the current step.
#[derive(Clone, Debug, Default)]
pub struct Replies {
    /// Whether the last reply had neither text nor calls.
    pub is_empty: bool,
    /// The tool of a call that the last reply wrote as text.
    pub printed: Option<String>,
    /// Output tokens of the last reply.
    pub output_tokens: u64,
    /// Whether the last request only asks the model to correct its answer.
    pub repairing: bool,
    /// Whether the model was warned about an empty reply since its last call.
    pub warned_empty: bool,
    pub warned_printed_call: bool,
    /// Whether the model was warned that its reply was cut, since the last reply that was not.
    pub warned_cut: bool,
    /// The current attempt and the previous one.
    pub attempt: Attempt,
    pub before: Option<Attempt>,
}

/// One attempt at a step.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Attempt {
    /// SHA-256 over the texts and calls of the replies, in order.
    pub said: String,
    /// Number of calls in the replies.
    pub calls: u64,
    /// The tool of a call that its last reply wrote as text.
    pub printed: Option<String>,
    /// The tree at the end of the attempt.
    pub tree: Option<String>,
}

impl Replies {
    /// Begins an attempt; the tree is as the previous one left it.
    pub fn open_attempt(&mut self, n: u32, tree: Option<String>) {
        let attempt = std::mem::take(self).attempt;
        if n > 1 {
            self.before = Some(Attempt { tree, ..attempt });
        }
    }

    pub(super) fn prompted(&mut self, why: PromptReason) {
        self.repairing = why == PromptReason::Repair;
        match why {
            PromptReason::Empty => self.warned_empty = true,
            PromptReason::Printed => self.warned_printed_call = true,
            PromptReason::Retry => self.warned_cut = true,
            _ => {}
        }
    }

    pub(super) fn replied(&mut self, reply: &Reply, tools: &BTreeSet<String>) {
        let text = reply.text();
        let calls = reply.calls().count() as u64;
        // A paused reply must be sent back as it is, also without text.
        let is_paused = reply.stop == StopReason::Paused;
        self.is_empty = calls == 0 && !is_paused && matches!(text.trim(), "" | NOTHING);
        self.printed = match calls {
            0 => printed_call(&text, tools),
            _ => None,
        };
        // Messages name only a number that the service counted.
        self.output_tokens = match reply.usage.estimated {
            true => 0,
            false => reply.usage.output,
        };
        if calls > 0 {
            self.warned_empty = false;
            self.warned_printed_call = false;
        }
        if !matches!(reply.stop, StopReason::Length { .. }) {
            self.warned_cut = false;
        }
        self.attempt.calls += calls;
        self.attempt.printed.clone_from(&self.printed);
        let mut said = format!("{}\0{text}", self.attempt.said);
        for part in &reply.parts {
            if let Part::Call(call) = part {
                said.push_str(&format!("\0{}\0{}", call.tool, call.args));
            }
        }
        self.attempt.said = sha256_hex(&[said.as_bytes()]);
    }

    /// Whether the current attempt gave the same replies as the previous one, and the tree is unchanged since.
    pub fn repeats(&self, tree: Option<&str>) -> bool {
        let before = self.before.as_ref();
        before.is_some_and(|before| before.said == self.attempt.said && before.tree.as_deref() == tree)
    }
}
