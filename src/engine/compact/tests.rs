//! Tests of when and how the history is shortened.

use super::*;
use crate::base::call::ToolCall;
use crate::base::event::{EventKind, PromptReason};
use crate::base::message::CallResult;
use proptest::prelude::*;
use serde_json::json;
use std::sync::Arc;

fn turn(n: u64, result: usize) -> [Message; 2] {
    let call = ToolCall {
        id: CallId::nth(n),
        tool: "read_file".to_owned(),
        args: json!({ "file_path": format!("f{n}") }),
        wire_id: None,
    };
    let asked = Message {
        role: Role::Assistant,
        parts: vec![Part::text(format!("step {n}")), Part::Call(call)],
    };
    let told = Message {
        role: Role::Tool,
        parts: vec![Part::Result(CallResult {
            call: CallId::nth(n),
            tool: "read_file".to_owned(),
            wire_id: None,
            content: vec![ToolContent::text(format!("begin{n} {} end{n}", "x".repeat(result)))],
            is_error: false,
        })],
    };
    [asked, told]
}

fn state(window: u64, results: &[usize]) -> RunState {
    let mut state = RunState::default();
    state.window = Some(window);
    state.apply(&EventKind::Prompted {
        message: Message::user("the task"),
        why: PromptReason::Task,
    });
    for (n, result) in results.iter().enumerate() {
        Arc::make_mut(&mut state.history).extend(turn(n as u64 + 1, *result));
    }
    state.bytes = state.history.iter().map(size).sum();
    state
}

fn apply(state: &mut RunState, how: &Compaction) {
    let (history, keep_from) = match how {
        Compaction::Shrink(from) => (shrunk(&state.history[..*from]), *from),
        Compaction::Summarise(from) => {
            let task = state.task_at.filter(|at| at < from).map(|at| state.history[at].clone());
            let message = summarised(&state.history[..*from], task.as_ref(), "notes");
            (vec![message], *from)
        }
    };
    state.apply(&EventKind::Compacted {
        history,
        keep_from,
        why: String::new(),
        summary: None,
        overflow: None,
        window: None,
    });
}

#[test]
fn a_short_history_stays_as_it_is() {
    assert_eq!(due(&state(100_000, &[1_000; 20])), None);
    assert_eq!(due(&state(100_000, &[])), None);
}

#[test]
fn old_results_shrink_first_and_the_newest_stay() {
    let mut state = state(10_000, &[4_000; 8]);
    let how = due(&state).unwrap();
    let Compaction::Shrink(from) = how else {
        panic!("{how:?}")
    };
    let newest = state.history[from..].to_vec();
    assert!(newest.len() >= 2, "the last turn stays");
    apply(&mut state, &how);
    assert_eq!(state.history.len(), 17, "no message is gone");
    assert_eq!(&state.history[from..], newest.as_slice());
    let first = text_only_of(&state.history[2]);
    assert!(first.starts_with("begin1 ") && first.ends_with("end1"), "{first}");
    assert!(
        first.contains("read_file with file_path \"overnight:result/c1\""),
        "{first}"
    );
    assert_eq!(due(&state), None, "once is enough");
    assert_eq!(state.epoch, 1);
}

fn text_only_of(message: &Message) -> String {
    match &message.parts[0] {
        Part::Result(result) => text_only(&result.content[0]).unwrap().to_owned(),
        other => panic!("{other:?}"),
    }
}

#[test]
fn what_cannot_shrink_is_summarised_and_the_task_stays() {
    let mut state = state(10_000, &[1_500; 25]);
    let how = due(&state).unwrap();
    assert!(matches!(how, Compaction::Summarise(_)), "{how:?}");
    apply(&mut state, &how);
    let first = &state.history[0];
    assert_eq!(
        (first.role, first.parts[0].clone()),
        (Role::User, Part::text("the task"))
    );
    assert!(first.text().ends_with("notes"), "{}", first.text());
    assert_eq!(state.history[1].role, Role::Assistant, "results follow their calls");
    assert_eq!(state.task_at, Some(0));
    assert_eq!(due(&state), None);
}

#[test]
fn what_the_service_reports_counts_more_than_bytes() {
    assert_eq!(estimate(4_000, None), 1_000);
    let reported = Some(Reported {
        bytes: 4_000,
        input: 3_000,
    });
    assert_eq!(estimate(4_000, reported), 3_000);
    assert_eq!(estimate(8_000, reported), 4_000);
    assert_eq!(estimate(2_000, reported), 2_500);
    let mut long = state(100_000, &[4_000; 20]);
    assert_eq!(due(&long), None);
    long.reported = Some(Reported {
        bytes: long.bytes,
        input: 75_000,
    });
    assert!(due(&long).is_some(), "its tokens are many, whatever its bytes");
}

#[test]
fn an_overflow_is_answered_where_there_is_something_to_leave_out() {
    assert_eq!(forced(&state(100_000, &[])), None);
    assert!(forced(&state(100_000, &[500; 6])).is_some());
}

#[test]
fn a_summary_that_is_empty_gives_way_to_the_list_of_calls() {
    let state = state(10_000, &[10; 3]);
    let message = summarised(&state.history, None, " \n");
    assert!(
        message.text().contains("called read_file {\"file_path\":\"f2\"}"),
        "{}",
        message.text()
    );
}

proptest! {
    #[test]
    fn results_always_follow_their_calls(results in prop::collection::vec(0..6_000_usize, 0..30), window in 500..20_000_u64) {
        let mut state = state(window, &results);
        for _ in 0..4 {
            let Some(how) = due(&state) else { break };
            let before = state.bytes;
            apply(&mut state, &how);
            prop_assert!(state.bytes < before, "{how:?} made it longer");
        }
        prop_assert_eq!(due(&state), None, "it comes to rest");
        for pair in state.history.windows(2) {
            prop_assert!(pair[1].role != Role::Tool || pair[0].role == Role::Assistant);
        }
        prop_assert!(state.history.first().is_some_and(|first| first.role == Role::User));
        prop_assert!(state.history[0].text().starts_with("the task"));
    }
}
