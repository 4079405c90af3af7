//! Tests of the sinks: the event stream and the progress lines.

use super::build;
use crate::base::call::{CallState, ExitInfo, ToolOutput};
use crate::base::event::{EventKind, ProgressEvent, Sink};
use crate::base::grant::JudgedExec;
use crate::base::outcome::{RunOutcome, StepStatus, Verdict};
use crate::base::ruling::Decision;
use crate::report::progress::{LiveBar, Plain, Verbosity};
use crate::report::result::{self, OutputFacts};
use crate::report::stream::Stream;
use crate::report::summary::RunSummary;
use indicatif::ProgressDrawTarget;
use serde_json::Value;
use std::io::{self, Write};

fn plain(run: &build::Run, level: Verbosity) -> String {
    let mut sink = Plain::new(Vec::new(), level);
    for event in &run.events {
        sink.on_event(event).unwrap();
    }
    sink.finish().unwrap();
    String::from_utf8(sink.into_inner()).unwrap()
}

#[test]
fn the_lines_of_a_run_that_was_ruled_at_exec() {
    build::snapshot("progress_at_exec", &plain(&build::at_exec(), Verbosity::Verbose));
}

/// Its call has ended by then.
#[test]
fn the_line_of_a_program_that_a_background_command_was_denied() {
    let mut run = build::Run::start();
    run.step("fix", None).attempt("fix", 1, "x");
    let ids = run.reply("", &[("run_shell_command", Value::Null)]);
    run.shell(&ids[0], "make", "");
    run.push(EventKind::Executed {
        call: ids[0].clone(),
        execs: vec![JudgedExec::denied(&["rm", "a"])],
        omitted: 0,
    });
    let lines = plain(&run, Verbosity::Normal);
    let told = "c1: its command in the background: DENIED at exec by default [exec_denied] rm a: no";
    assert!(lines.contains(told), "{lines}");
}

/// It ran to its end, and what it did was undone.
#[test]
fn the_line_of_a_command_that_was_denied_after_it_ran() {
    let mut run = build::Run::start();
    run.step("fix", None).attempt("fix", 1, "x");
    let ids = run.reply("", &[("run_shell_command", Value::Null)]);
    let exit = Some(ExitInfo {
        code: Some(0),
        ..ExitInfo::default()
    });
    let output = ToolOutput {
        exit,
        ..ToolOutput::failure("denied:not_granted", "the command changed a.gz; this was undone")
    };
    run.finish_call(&ids[0], CallState::Error, output);
    let lines = plain(&run, Verbosity::Normal);
    let told = "exit code 0 (30 ms), DENIED [not_granted]: the command changed a.gz; this was undone";
    assert!(lines.contains(told), "{lines}");
}

/// The model gets the denial as the result of its call: for people it would be the same line again.
#[test]
fn a_denied_call_has_one_line() {
    let mut run = build::Run::start();
    run.step("fix", None).attempt("fix", 1, "x");
    let ids = run.reply("", &[("write_file", Value::Null), ("write_file", Value::Null)]);
    for id in &ids {
        run.decide(id, "write_file", "create a", build::ruling(Decision::Deny));
        let output = ToolOutput::failure("denied:rule_match", "Denied (rule_match): not a");
        run.finish_call(id, CallState::Error, output);
    }
    let lines = plain(&run, Verbosity::Normal);
    let about: Vec<_> = lines.lines().filter(|line| line.contains("create a")).collect();
    assert!(
        about.len() == 2 && about.iter().all(|line| line.contains("DENIED by")),
        "{lines}"
    );
}

#[test]
fn the_lines_of_a_good_run() {
    build::snapshot("progress_good", &plain(&build::good(), Verbosity::Normal));
}

#[test]
fn the_lines_of_a_suspended_run_name_rule_and_reason() {
    let lines = plain(&build::suspended(), Verbosity::Normal);
    assert!(
        lines.contains("c1 run_shell_command git push: SUSPENDED by rust.yaml:7 [rule_match] pushing needs a person"),
        "{lines}"
    );
    assert!(
        lines.contains("suspended (partial): 1 call waits for a person"),
        "{lines}"
    );
}

#[test]
fn the_lines_of_a_step_whose_command_may_fail() {
    let mut run = build::Run::start();
    run.step("test", Some("# A comment.\nmake\n"));
    run.push(EventKind::Ran {
        step: "test".into(),
        command: "make".to_owned(),
        exit: build::exit(1),
        output: String::new(),
        cut: false,
        took_ms: 20,
    });
    run.end_step("test", StepStatus::Passed, "", "");
    run.step("fix", None).attempt("fix", 1, "x").attempt("fix", 2, "x");
    let lines = plain(&run, Verbosity::Normal);
    assert!(lines.contains(" test\n"), "a script is not shown: {lines}");
    assert!(lines.contains("step test finished (failure allowed)"), "{lines}");
    assert!(lines.contains("  attempt 2 starts"), "{lines}");
}

#[test]
fn a_repeated_request_has_one_line() {
    let mut run = build::Run::start();
    run.step("fix", None).attempt("fix", 1, "x");
    run.push(EventKind::Retried {
        attempt: 1,
        class: "transport".to_owned(),
        message: "cannot connect to http://x.invalid/v1: no".to_owned(),
        wait_ms: 1_100,
        discarded: None,
    });
    let lines = plain(&run, Verbosity::Normal);
    let told = "request repeated in 1.1 s (1, transport): cannot connect to http://x.invalid/v1: no";
    assert!(lines.contains(told), "{lines}");
}

/// Scripts parse the last line: it has the figures of the whole run, although a resume sees only its own events.
#[test]
fn the_last_line_after_a_resume_has_the_figures_of_the_whole_run() {
    let run = build::good();
    let mut sink = Plain::new(Vec::new(), Verbosity::Normal);
    let half = run.events.len() / 2;
    for event in &run.events[half..] {
        sink.on_event(event).unwrap();
    }
    let lines = String::from_utf8(sink.into_inner()).unwrap();
    let last = lines.lines().last().unwrap_or_default();
    assert!(last.contains("[5 turns, 5"), "{lines}");
}

#[test]
fn quiet_tells_only_what_went_wrong() {
    assert_eq!(plain(&build::good(), Verbosity::Quiet), "");
    let lines = plain(&build::denied(), Verbosity::Quiet);
    assert_eq!(lines.lines().count(), 1, "{lines}");
    assert!(lines.starts_with("overnight: denied: an action"), "{lines}");
}

#[test]
fn verbose_tells_the_text_of_the_model_too() {
    let lines = plain(&build::good(), Verbosity::Verbose);
    assert!(lines.contains("| I look first."), "{lines}");
    assert!(
        lines.contains("c1 read_file src/lib.rs: allowed by rust.yaml:7"),
        "{lines}"
    );
}

#[test]
fn no_text_of_a_tool_reaches_the_terminal_raw() {
    let mut run = build::Run::start();
    run.step("fix", None).attempt("fix", 1, "x");
    let ids = run.reply("\u{1b}[2J##[error]x", &[("glob", Value::Null)]);
    run.shell(&ids[0], "echo\n::error::x \u{1b}]0;t\u{7}", "x");
    let lines = plain(&run, Verbosity::Verbose);
    assert!(!lines.contains('\u{1b}') && !lines.contains("##["), "{lines}");
    assert!(lines.lines().all(|line| line.starts_with("overnight: ")), "{lines}");
}

#[test]
fn the_live_bar_takes_everything() {
    let mut bar = LiveBar::on(ProgressDrawTarget::hidden(), Verbosity::Normal);
    for event in &build::good().events {
        bar.on_event(event).unwrap();
    }
    bar.on_live(&ProgressEvent::Text {
        delta: "ä".repeat(9000),
    });
    bar.on_live(&ProgressEvent::Tick);
    bar.finish().unwrap();
}

#[test]
fn the_stream_has_a_versioned_first_line_and_the_result_last() {
    let run = build::good();
    let mut stream = Stream::new(Vec::new());
    for event in &run.events {
        stream.on_event(event).unwrap();
    }
    let result = result::result(&RunSummary::fold(&run.events), &OutputFacts::default());
    stream.last(&result).unwrap();
    let text = String::from_utf8(stream.into_inner()).unwrap();
    let lines: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(lines.len(), run.events.len() + 2);
    assert_eq!(lines[0]["schema"], "overnight/stream/v1");
    assert_eq!(lines[1]["type"], "run_started");
    let middle = &lines[1..=run.events.len()];
    for (i, line) in middle.iter().enumerate() {
        assert_eq!(line["seq"], i);
        assert!(line["type"].is_string() && line["at"].is_string() && line["event"].is_null());
    }
    let last = lines.last().unwrap();
    assert_eq!(
        (&last["type"], &last["verdict"]),
        (&Value::from("result"), &Value::from("passed"))
    );
}

#[test]
fn a_stream_without_events_still_has_its_two_lines() {
    let mut stream = Stream::new(Vec::new());
    let result = result::unstarted(
        &RunOutcome::new(Verdict::Environment, "", "no key"),
        "x",
        &OutputFacts::default(),
    );
    stream.last(&result).unwrap();
    let text = String::from_utf8(stream.into_inner()).unwrap();
    assert_eq!(text.lines().count(), 2);
}

struct Closed(io::ErrorKind, usize);

impl Write for Closed {
    fn write(&mut self, _: &[u8]) -> io::Result<usize> {
        self.1 += 1;
        Err(io::Error::from(self.0))
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[test]
fn a_reader_that_went_away_does_not_stop_the_run_but_a_full_disk_is_told() {
    let run = build::good();
    let mut stream = Stream::new(Closed(io::ErrorKind::BrokenPipe, 0));
    for event in &run.events {
        stream.on_event(event).unwrap();
    }
    assert_eq!(stream.into_inner().1, 1, "nothing is written after the first failure");
    let mut stream = Stream::new(Closed(io::ErrorKind::StorageFull, 0));
    assert!(stream.on_event(&run.events[0]).is_err());
}
