//! Tests of the reused prefix: the same bytes as if everything were encoded again, at a cost proportional to what is
//! new.

use super::*;
use crate::base::call::ToolCall;
use crate::base::content::ToolContent;
use crate::base::ids::CallId;
use crate::base::message::{CallResult, Part};
use proptest::prelude::*;
use serde_json::json;

fn request<'a>(messages: &'a [Message], system: &'a str, epoch: u64) -> ModelRequest<'a> {
    ModelRequest {
        turn: 1,
        system,
        tools: &[],
        messages,
        epoch,
        response: None,
        answer_only: false,
        digest: "",
    }
}

const OPTIONS: EncodeOptions<'_> = EncodeOptions {
    model: "m",
    plain: false,
    max_output_tokens: None,
};

/// A turn: the model calls, the tool answers with `size` bytes.
fn turn(n: usize, size: usize) -> [Message; 2] {
    let id = CallId(format!("c{n}"));
    let call = ToolCall {
        id: id.clone(),
        tool: "read_file".into(),
        args: json!({"n": n}),
        wire_id: None,
    };
    let result = CallResult {
        call: id,
        tool: "read_file".into(),
        wire_id: None,
        content: vec![ToolContent::text("x".repeat(size))],
        is_error: false,
    };
    [
        Message {
            role: Role::Assistant,
            parts: vec![Part::text("a"), Part::Call(call)],
        },
        Message {
            role: Role::Tool,
            parts: vec![Part::Result(result)],
        },
    ]
}

#[test]
fn cost_of_a_turn_does_not_grow() {
    for wire in wire::ALL {
        let mut prefix = RequestPrefix::default();
        let mut messages = vec![Message::user("go")];
        let mut costs = Vec::new();
        for n in 100..400 {
            messages.extend(turn(n, 2_000));
            let before = prefix.encoded();
            prefix.body(wire, OPTIONS, &request(&messages, "s", 0));
            costs.push(prefix.encoded() - before);
        }
        assert!(costs[1..].iter().all(|cost| *cost == costs[1]), "{wire:?}: {costs:?}");
        // Repeating a request encodes nothing.
        let before = prefix.encoded();
        prefix.body(wire, OPTIONS, &request(&messages, "s", 0));
        assert_eq!(prefix.encoded(), before);
    }
}

#[test]
fn rewritten_histories_are_encoded_anew() {
    for wire in wire::ALL {
        let mut prefix = RequestPrefix::default();
        let long: Vec<Message> = std::iter::once(Message::user("go")).chain(turn(1, 9)).collect();
        let other = vec![Message::user("stop"), Message::user("b"), Message::user("c")];
        for (messages, system, epoch) in [
            (&long, "s", 0),
            (&other, "s", 0),
            (&long, "s", 1),
            (&long, "t", 1),
            (&other, "t", 2),
        ] {
            let request = request(messages, system, epoch);
            let kept = prefix.body(wire, OPTIONS, &request);
            assert_eq!(kept, RequestPrefix::default().body(wire, OPTIONS, &request), "{wire:?}");
        }
    }
}

proptest! {
    #[test]
    fn kept_bytes_are_the_bytes(wire in 0usize..4, sizes in prop::collection::vec((0usize..50, any::<bool>()), 0..12), system in "[a-z]{0,3}") {
        let wire = wire::ALL[wire];
        let mut prefix = RequestPrefix::default();
        let mut messages = Vec::new();
        for (n, (size, ask)) in sizes.into_iter().enumerate() {
            messages.push(Message::user("é\"\n".repeat(size % 3)));
            messages.extend(turn(n, size));
            if ask {
                let request = request(&messages, &system, 0);
                let kept = prefix.body(wire, OPTIONS, &request);
                prop_assert!(serde_json::from_slice::<Value>(&kept).is_ok());
                prop_assert_eq!(kept, RequestPrefix::default().body(wire, OPTIONS, &request));
            }
        }
    }
}
