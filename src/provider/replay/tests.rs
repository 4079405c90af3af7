//! Tests of replays: hits, and the message of a miss.

use super::*;
use crate::base::message::{Part, StopReason, Usage};
use std::time::{Duration, Instant};
use tokio_util::sync::CancellationToken;

fn reply(text: &str) -> Reply {
    Reply {
        parts: vec![Part::text(text)],
        stop: StopReason::End,
        usage: Usage::default(),
        model: "m".into(),
    }
}

fn replay() -> Replay {
    let turns = vec![
        RecordedTurn {
            turn: 1,
            asked: "d1".into(),
            reply: reply("one"),
            cost_micros: None,
            discarded: Vec::new(),
        },
        RecordedTurn {
            turn: 2,
            asked: "d2".into(),
            reply: reply("two"),
            cost_micros: None,
            discarded: Vec::new(),
        },
    ];
    let recall = |turn| {
        (turn == 2).then(|| RecordedRequest {
            system: "sys".into(),
            messages: vec![Message::user("task"), Message::user("a\nb\nc")],
            tools: Some(Vec::new()),
        })
    };
    Replay::new("replay:r", turns, RecordedRun::default(), Box::new(recall))
}

fn ask(turn: u64, digest: &str, system: &str, messages: &[Message]) -> Result<Reply, ProviderError> {
    let cancel = CancellationToken::new();
    let cx = AskContext {
        cancel: &cancel,
        deadline: Instant::now() + Duration::from_secs(5),
        live: &|_| {},
        retried: &|_| {},
        has_room: &|_| true,
    };
    let request = ModelRequest {
        turn,
        system,
        tools: &[],
        messages,
        epoch: 0,
        response: None,
        answer_only: false,
        digest,
    };
    replay().answer(&request, &cx)
}

#[test]
fn the_recorded_request_gets_the_recorded_reply() {
    assert_eq!(ask(1, "d1", "", &[]).unwrap().text(), "one");
    assert_eq!(ask(2, "d2", "", &[]).unwrap().text(), "two");
}

#[test]
fn misses_say_turn_and_difference() {
    let task = Message::user("task");
    for (turn, system, messages, wanted) in [
        (3, "sys", vec![], "the recording has 2 turns, but turn 3"),
        (1, "sys", vec![], "turn 1: the request is not the recorded one"),
        (
            2,
            "other",
            vec![],
            "turn 2: the system text is not the recorded one\n- sys\n+ other",
        ),
        (
            2,
            "sys",
            vec![task.clone(), Message::user("a\nB\nc")],
            "turn 2: message 2 (user) is not the recorded one\n  a\n- b\n+ B\n  c",
        ),
        (
            2,
            "sys",
            vec![task.clone()],
            "message 2 (user) is not the recorded one\n- a\n- b\n- c",
        ),
        (
            2,
            "sys",
            vec![task, Message::user("a\nb\nc")],
            "the tools declared or the response schema are not",
        ),
    ] {
        let error = ask(turn, "x", system, &messages).unwrap_err();
        assert_eq!(error.class, ProviderClass::ReplayMiss);
        assert!(error.message.contains(wanted), "{}", error.message);
    }
}

#[test]
fn differences_that_nobody_reads_are_shown_whole() {
    let signed = |json: &str| Message {
        role: Role::Assistant,
        parts: vec![Part::Opaque {
            vendor: "v".into(),
            model: "m".into(),
            json: serde_json::json!({ "signature": json }),
        }],
    };
    let shown = diff_messages(Some(&signed("old")), Some(&signed("new")));
    assert!(
        shown.lines().any(|line| line.starts_with("- ") && line.contains("old")),
        "{shown}"
    );
    assert!(
        shown.lines().any(|line| line.starts_with("+ ") && line.contains("new")),
        "{shown}"
    );
}

#[test]
fn long_differences_are_cut() {
    let lines = vec!["x".repeat(1_000); 200];
    let shown = diff("", &lines.join("\n"));
    assert_eq!(shown.lines().count(), LINES + 1);
    assert!(shown.lines().all(|line| line.chars().count() <= COLUMNS + 3));
}
