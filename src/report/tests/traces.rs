//! Spans of runs: the tree of a complete run, the spans of a resumed session, and that they contain no conversation.

use super::build::{self, Run};
use crate::base::budget::Budget;
use crate::base::event::EventKind;
use crate::base::outcome::{RunOutcome, StepStatus, Verdict};
use crate::report::traces::{parent, spans};
use opentelemetry::trace::{SpanId, Status};
use opentelemetry_sdk::trace::SpanData;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::time::SystemTime;

/// The spans as a tree, with everything except ids.
fn tree(spans: &[SpanData]) -> String {
    let mut children: BTreeMap<String, Vec<&SpanData>> = BTreeMap::new();
    let known: BTreeSet<String> = spans
        .iter()
        .map(|span| span.span_context.span_id().to_string())
        .collect();
    for span in spans {
        let above = span.parent_span_id.to_string();
        let above = if known.contains(&above) { above } else { String::new() };
        children.entry(above).or_default().push(span);
    }
    let zero = spans
        .iter()
        .map(|span| span.start_time)
        .min()
        .unwrap_or(SystemTime::UNIX_EPOCH);
    let mut text = String::new();
    show(&mut text, &children, "", 0, zero);
    text
}

fn show(text: &mut String, all: &BTreeMap<String, Vec<&SpanData>>, above: &str, depth: usize, zero: SystemTime) {
    let mut here = all.get(above).cloned().unwrap_or_default();
    here.sort_by_key(|span| span.start_time);
    for span in here {
        let ms = |time: SystemTime| time.duration_since(zero).unwrap().as_millis();
        let pad = "    ".repeat(depth);
        let status = match &span.status {
            Status::Error { description } => format!(" ERROR {description}"),
            _ => String::new(),
        };
        let (from, to) = (ms(span.start_time), ms(span.end_time));
        writeln!(
            text,
            "{pad}{} ({:?}) {from}..{to} ms{status}",
            span.name, span.span_kind
        )
        .unwrap();
        for pair in &span.attributes {
            writeln!(text, "{pad}  - {} = {:?}", pair.key, pair.value.as_str()).unwrap();
        }
        show(text, all, &span.span_context.span_id().to_string(), depth + 1, zero);
    }
}

#[test]
fn a_whole_run_is_one_tree() {
    build::snapshot("traces_good", &tree(&spans(&build::good().events, None)));
}

#[test]
fn a_denied_call_and_a_waiting_run_are_told() {
    build::snapshot("traces_denied", &tree(&spans(&build::denied().events, None)));
    let waits = spans(&build::suspended().events, None);
    let root = waits.last().unwrap();
    assert_eq!(
        (root.name.as_ref(), &root.status),
        ("invoke_agent fix-clippy", &Status::Unset)
    );
}

#[test]
fn the_same_run_has_the_same_spans_and_no_id_twice() {
    let events = build::good().events;
    let all = spans(&events, None);
    assert_eq!(all, spans(&events, None));
    let ids: BTreeSet<String> = all.iter().map(|span| span.span_context.span_id().to_string()).collect();
    assert_eq!(ids.len(), all.len());
    assert!(all.iter().all(|span| span.span_context.is_valid()));
    assert!(all.iter().all(|span| span.start_time <= span.end_time));
}

#[test]
fn a_run_of_a_traced_pipeline_hangs_below_its_job() {
    let job = parent("00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01").unwrap();
    let all = spans(&build::good().events, Some(&job));
    assert!(all.iter().all(|span| span.span_context.trace_id() == job.trace_id()));
    let root = all.last().unwrap();
    assert_eq!((root.parent_span_id, root.parent_span_is_remote), (job.span_id(), true));
    assert!(
        !parent("00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-00")
            .unwrap()
            .is_sampled()
    );
    for wrong in ["", "x", "00-00000000000000000000000000000000-00f067aa0ba902b7-01"] {
        assert_eq!(parent(wrong), None, "{wrong}");
    }
}

#[test]
fn nothing_of_the_conversation_is_told() {
    let all = format!("{:?}", spans(&build::good().events, None));
    for words in [
        "I look first",
        "1 + 0",
        "src/lib.rs",
        "Fix these warnings",
        "still <there>",
        "cargo clippy",
        "needless",
    ] {
        assert!(!all.contains(words), "{words}");
    }
}

fn resumed(run: &mut Run) {
    run.push(EventKind::Resumed {
        by: "overnight resume".to_owned(),
        model: "anthropic/claude-sonnet-4-5".to_owned(),
        policies: Vec::new(),
        limits: Budget::default(),
        directory: None,
    });
}

#[test]
fn a_resumed_session_tells_only_of_itself() {
    let mut run = build::suspended();
    let before = spans(&run.events, None);
    resumed(&mut run);
    run.reply("Now it is done.", &[]);
    run.end_step("fix", StepStatus::Passed, "", "");
    run.passed();
    let after = spans(&run.events, None);
    let names: Vec<&str> = after.iter().map(|span| span.name.as_ref()).collect();
    assert_eq!(names, ["chat claude-sonnet-4-5", "step fix", "invoke_agent fix-clippy"]);
    let old: Vec<SpanId> = before.iter().map(|span| span.span_context.span_id()).collect();
    assert!(after.iter().all(|span| !old.contains(&span.span_context.span_id())));
    assert_eq!(after[0].span_context.trace_id(), before[0].span_context.trace_id());
}

#[test]
fn what_a_killed_session_could_not_send_is_sent_by_the_next() {
    let mut run = Run::start();
    run.step("fix", None).attempt("fix", 1, "Fix it.");
    run.reply("half", &[]);
    resumed(&mut run);
    run.reply("whole", &[]);
    run.end_step("fix", StepStatus::Passed, "", "");
    run.passed();
    let all = spans(&run.events, None);
    let names: Vec<&str> = all.iter().map(|span| span.name.as_ref()).collect();
    let once = ["step fix", "invoke_agent fix-clippy"];
    assert_eq!(names[0], "chat gemini-2.5-pro");
    assert_eq!(names[1..3], once);
    assert_eq!(all[2].status, Status::error("interrupted"));
    assert_eq!(names[3..], ["chat claude-sonnet-4-5", once[0], once[1]]);
}

#[test]
fn a_request_that_came_to_nothing_is_a_failed_one() {
    let mut run = Run::start();
    run.step("fix", None).attempt("fix", 1, "Fix it.");
    run.push(EventKind::Retried {
        attempt: 1,
        class: "unavailable".to_owned(),
        message: "secret words of the service".to_owned(),
        wait_ms: 1500,
        discarded: None,
    });
    run.finish(RunOutcome::new(Verdict::Provider, "unavailable", "overloaded"));
    let all = spans(&run.events, None);
    let names: Vec<&str> = all.iter().map(|span| span.name.as_ref()).collect();
    assert_eq!(names, ["chat gemini-2.5-pro", "step fix", "invoke_agent fix-clippy"]);
    assert_eq!(all[0].status, Status::error("unavailable"));
    let told = format!("{all:?}");
    assert!(told.contains("overnight.retry.wait_ms") && !told.contains("secret words"));
}
