//! Tests of scripts: what is parsed, what is rejected, and what is replied.

use super::*;
use crate::base::ids::CallId;
use crate::base::message::StopReason;
use crate::diag::render_all;
use std::time::Instant;
use tokio_util::sync::CancellationToken;

fn parse(text: &str) -> Result<Scripted, String> {
    let mut files = SourceFiles::new();
    let file = files.add("s.yaml", text);
    Scripted::parse("script:s.yaml", &files, file).map_err(|problems| render_all(&files, &problems))
}

fn ask(script: &Scripted, turn: u64, messages: &[Message]) -> Result<Reply, ProviderError> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    let request = ModelRequest {
        turn,
        system: "",
        tools: &[],
        messages,
        epoch: 0,
        response: None,
        answer_only: false,
        digest: "",
    };
    let cancel = CancellationToken::new();
    let cx = AskContext {
        cancel: &cancel,
        deadline: Instant::now() + Duration::from_secs(5),
        live: &|_| {},
        retried: &|_| {},
        has_room: &|_| true,
    };
    runtime.block_on(script.ask(&request, cx))
}

#[test]
fn gives_replies_in_order_of_turns() {
    let script = parse(
        "replies:\n  - text: look\n    calls:\n      - { tool: read_file, args: { file_path: a.rs } }\n  - text: done\n    usage: { input: 10, output: 5 }\n",
    )
    .unwrap();
    let first = ask(&script, 1, &[]).unwrap();
    assert_eq!(first.stop, StopReason::Calls);
    let call = first.calls().next().unwrap();
    assert_eq!((call.id.as_str(), call.tool.as_str()), ("p0", "read_file"));
    assert_eq!(call.args["file_path"], "a.rs");
    let second = ask(&script, 2, &[]).unwrap();
    assert_eq!((second.text().as_str(), second.usage.total()), ("done", 15));
    assert_eq!(second.stop, StopReason::End);
    let end = ask(&script, 3, &[]).unwrap_err();
    assert_eq!(end.class, ProviderClass::ReplayMiss);
    assert!(end.message.contains("2 replies"), "{end}");
    assert!(end.message.contains("turn 3"), "{end}");
}

#[test]
fn fails_and_stops_as_written() {
    let script = parse(
        "replies:\n  - error: { class: context_overflow, message: too long }\n  - text: half\n    stop: length\n  - text: no\n    stop: refused\n",
    )
    .unwrap();
    let error = ask(&script, 1, &[]).unwrap_err();
    assert_eq!(
        (error.class, error.message.as_str()),
        (ProviderClass::ContextOverflow, "too long")
    );
    assert_eq!(ask(&script, 2, &[]).unwrap().stop, StopReason::Length { call: None });
    assert_eq!(
        ask(&script, 3, &[]).unwrap().stop,
        StopReason::Refused { reason: "no".into() }
    );
}

#[test]
fn expectation_is_looked_for_in_results_too() {
    let script = parse("replies:\n  - text: ok\n    expect: needle\n").unwrap();
    let result = Message {
        role: crate::base::message::Role::Tool,
        parts: vec![Part::Result(crate::base::message::CallResult {
            call: CallId::nth(1),
            tool: "read_file".into(),
            wire_id: None,
            content: vec![ToolContent::text("hay needle hay")],
            is_error: false,
        })],
    };
    assert!(ask(&script, 1, &[result]).is_ok());
    let error = ask(&script, 1, &[Message::user("hay\nhay")]).unwrap_err();
    assert_eq!(error.class, ProviderClass::ReplayMiss);
    assert!(error.message.contains("\n- needle\n+ hay\n+ hay"), "{error}");
    let first = error.message.lines().next().unwrap();
    assert!(first.contains("to contain \"needle\""), "{error}");
}

#[test]
fn a_script_that_ended_says_why_more_was_asked_for() {
    let script = parse("replies:\n  - text: a\n").unwrap();
    let error = ask(&script, 2, &[Message::user("Your answer\nis not JSON")]).unwrap_err();
    assert_eq!(
        error.message,
        "the script has 1 reply, but turn 2 was asked for, after this message: Your answer is not JSON"
    );
}

#[test]
fn refuses_what_is_not_a_script() {
    for (text, place, part) in [
        ("replies:\n  - txt: a\n    text: b\n", "s.yaml:2:5: error", "txt"),
        ("replies:\n  - text: a\n    text: b\n", "s.yaml:3:5: error", "text"),
        (
            "replies:\n  - usage: { input: 1 }\n",
            "s.yaml:2:5: error",
            "an empty reply",
        ),
        (
            "replies:\n  - text: a\n    error: { class: auth, message: b }\n",
            "s.yaml:2:5: error",
            "either",
        ),
        (
            "replies:\n  - error: { class: weather, message: b }\n",
            "s.yaml:2:21: error",
            "weather",
        ),
        (
            "replies:\n  - error: { class: auth }\n",
            "s.yaml:2:14: error",
            "message",
        ),
        (
            "replies:\n  - calls: [{ tool: a, args: [1] }]\n",
            "s.yaml:2:30: error",
            "args",
        ),
        ("replies:\n  - calls: [{ args: {} }]\n", "s.yaml:2:15: error", "tool"),
        (
            "replies:\n  - text: a\n    stop: soon\n",
            "s.yaml:3:11: error",
            "length",
        ),
        (
            "replies:\n  - error: { class: auth, message: b }\n    usage: { inptu: 1 }\n",
            "s.yaml:3:14: error",
            "inptu",
        ),
        ("replies: 3\n", "s.yaml:1:10: error", "list"),
        ("reply: []\n", "s.yaml:1:1: error", "replies"),
        ("", "s.yaml:1:1: error", "the script"),
    ] {
        let error = parse(text).unwrap_err();
        assert!(error.contains(place) && error.contains(part), "{text:?}: {error}");
    }
}

#[test]
fn scalars_of_arguments_keep_their_types() {
    let script = parse("replies:\n  - calls: [{ tool: t, args: { n: 3, b: true, s: '3', l: [1.5] } }]\n").unwrap();
    let reply = ask(&script, 1, &[]).unwrap();
    let call = reply.calls().next().unwrap();
    assert_eq!(call.args, serde_json::json!({"n": 3, "b": true, "s": "3", "l": [1.5]}));
}
