//! Tests of the fold.

use super::build::{self, Run, ruling};
use crate::base::budget::Budget;
use crate::base::event::{DiscardedReply, EventKind, PatchTaken, PathChange, PutBack, Summarised, Unruled};
use crate::base::message::Usage;
use crate::base::outcome::{RunOutcome, Verdict};
use crate::base::ruling::Decision;
use crate::report::result::{self, OutputFacts};
use crate::report::summary::{Moment, RunSummary};
use crate::report::{html, junit};
use jiff::Timestamp;
use serde_json::json;
use std::time::Instant;

#[test]
fn a_whole_run_is_summed_up() {
    let run = build::good();
    let sum = RunSummary::fold(&run.events);
    assert!(sum.finished);
    assert_eq!(sum.outcome.verdict, Verdict::Passed);
    assert_eq!(sum.turns.len(), 5);
    assert_eq!(sum.calls.len(), 4);
    assert_eq!(sum.tokens, 5 * 1050);
    assert_eq!(sum.cost_micros, 5 * 1750);
    assert_eq!(sum.steps[1].attempts, 2);
    assert_eq!(sum.answer(), "Fixed the warning in `src/lib.rs`.");
    assert_eq!(sum.calls_of(&sum.turns[0]).len(), 2);
    assert_eq!(sum.changed_lines(), (2, 1));
}

#[test]
fn the_stored_journals_are_these_runs() {
    build::journal("good", &build::good());
    build::journal("denied", &build::denied());
    build::journal("suspended", &build::suspended());
    build::journal("at_exec", &build::at_exec());
}

#[test]
fn every_prefix_of_a_run_can_be_summed_up_and_is_incomplete() {
    let run = build::good();
    for n in 0..run.events.len() {
        let sum = RunSummary::fold(&run.events[..n]);
        assert_eq!(sum.outcome.verdict, Verdict::Incomplete, "after {n} events");
        assert!(sum.outcome.partial);
    }
}

#[test]
fn a_discarded_reply_is_paid_for_and_is_no_turn() {
    let mut run = Run::start();
    run.step("fix", None).attempt("fix", 1, "x");
    for last in [false, true] {
        run.push(EventKind::Retried {
            attempt: 1,
            class: "unusable".to_owned(),
            message: "no".to_owned(),
            wait_ms: 0,
            discarded: Some(DiscardedReply {
                usage: Usage {
                    input: 100,
                    output: 20,
                    ..Usage::default()
                },
                cost_micros: Some(7),
                last,
            }),
        });
    }
    let sum = RunSummary::fold(&run.events);
    assert_eq!((sum.tokens, sum.usage.input, sum.cost_micros), (240, 200, 14));
    assert_eq!((sum.steps[0].cost_micros, sum.steps[0].turns), (14, 0));
    let told = |moment: &&Moment<'_>| matches!(moment, Moment::Retried { .. });
    assert_eq!(sum.steps[0].moments.iter().filter(told).count(), 1);
}

/// Every output counts the request for a history summary as a turn, like the limit of turns.
#[test]
fn a_history_summary_counts_as_a_turn_in_every_output() {
    let mut run = Run::start();
    run.step("fix", None).attempt("fix", 1, "x");
    run.reply("half", &[]);
    let Some(EventKind::Replied { reply, .. }) = run.events.last().map(|event| event.kind.clone()) else {
        panic!("the last event is the reply");
    };
    run.push(EventKind::Compacted {
        history: Vec::new(),
        keep_from: 0,
        why: "too long".to_owned(),
        summary: Some(Box::new(Summarised {
            turn: 2,
            reply,
            asked: String::new(),
            took_ms: 1,
            cost_micros: Some(1),
        })),
        overflow: None,
        window: None,
    });
    let sum = RunSummary::fold(&run.events);
    let ending = OutputFacts::default();
    assert_eq!((sum.replies(), sum.steps[0].turns), (2, 2));
    assert_eq!(result::result(&sum, &ending).usage.turns, 2);
    let junit = junit::xml(&sum, &ending).unwrap();
    assert!(junit.contains("name=\"run.turns\" value=\"2\""), "{junit}");
    let page = html::page(&sum, &ending, None);
    assert!(page.contains("2 / 0"), "{page}");
}

#[test]
fn the_time_before_a_resume_in_which_nothing_ran_does_not_count() {
    let mut run = Run::start();
    run.step("fix", None).attempt("fix", 1, "x");
    run.reply("half", &[]);
    let resumed = run.events.len();
    run.push(EventKind::Resumed {
        by: "resume".to_owned(),
        model: "openai/gpt".to_owned(),
        policies: Vec::new(),
        limits: Budget::default(),
        directory: None,
    });
    run.reply("done", &[]);
    for event in &mut run.events[resumed..] {
        event.at = Timestamp::from_millisecond(event.at.as_millisecond() + 3_600_000).unwrap();
    }
    let sum = RunSummary::fold(&run.events);
    let gap = 250;
    assert_eq!(sum.idle_ms, 3_600_000 + gap);
    assert_eq!(sum.duration_ms(), 250 * (run.events.len() as u64 - 1) - gap);
    assert!(sum.steps[0].duration_ms() < 10_000, "{}", sum.steps[0].duration_ms());
}

#[test]
fn many_changes_that_were_put_back_fold_quickly() {
    let mut run = Run::start();
    let unruled = (0..10_000).map(|n| Unruled {
        path: format!("some/long/directory/of/the/tree/{n}"),
        change: PathChange::Modified,
        rule: None,
        code: "no_rule".to_owned(),
        denied: false,
        left: false,
        restored: false,
    });
    let patch = PatchTaken {
        unruled: unruled.collect(),
        ..PatchTaken::default()
    };
    let failed: Vec<String> = patch.unruled[..5_000].iter().map(|one| one.path.clone()).collect();
    run.push(EventKind::PatchTaken(patch));
    run.push(EventKind::PutBack(PutBack {
        tree: "t".to_owned(),
        failed,
    }));
    let begin = Instant::now();
    let sum = RunSummary::fold(&run.events);
    assert_eq!(sum.unruled.iter().filter(|one| one.restored).count(), 5_000);
    assert!(begin.elapsed().as_millis() < 400, "{:?}", begin.elapsed());
}

#[test]
fn an_approval_after_a_resume_lifts_the_suspension() {
    let mut run = build::suspended();
    let call = "c1".into();
    assert_eq!(RunSummary::fold(&run.events).suspended().count(), 1);
    run.push(EventKind::Resumed {
        by: "resume".to_owned(),
        model: "openai/gpt".to_owned(),
        policies: Vec::new(),
        limits: Budget::default(),
        directory: None,
    });
    assert_eq!(RunSummary::fold(&run.events).outcome.verdict, Verdict::Incomplete);
    run.push(EventKind::Approved {
        call: "c1".into(),
        allow: true,
        by: "flag".to_owned(),
    });
    run.push(EventKind::CallStarted { call });
    run.shell(&"c1".into(), "git push", "ok");
    run.passed();
    let sum = RunSummary::fold(&run.events);
    assert_eq!(sum.suspended().count(), 0);
    assert_eq!((sum.resumed, sum.model), (1, "openai/gpt"));
    assert_eq!(sum.outcome.verdict, Verdict::Passed);
    assert_eq!(sum.steps.len(), 2, "the step goes on, it does not begin again");
}

#[test]
fn a_call_that_a_person_denied_is_a_denial() {
    let mut run = build::suspended();
    run.push(EventKind::Approved {
        call: "c1".into(),
        allow: false,
        by: "flag".to_owned(),
    });
    let sum = RunSummary::fold(&run.events);
    let denials: Vec<(&str, &str)> = sum.denied().map(|(_, denial)| (denial.code, denial.fix)).collect();
    assert_eq!(denials, [("not_approved", "")]);
    assert_eq!(sum.suspended().count(), 0);
}

#[test]
fn checks_before_the_model_count_only_when_there_are_no_others() {
    let mut run = Run::start();
    run.step("fix", None);
    run.check("fix", 0, "clippy", false, "");
    let sum = RunSummary::fold(&run.events);
    assert_eq!(sum.steps[0].checks_by_name()[0].1.len(), 1);
    run.attempt("fix", 1, "x");
    run.check("fix", 1, "clippy", true, "");
    let sum = RunSummary::fold(&run.events);
    let runs = &sum.steps[0].checks_by_name()[0].1;
    assert_eq!(runs.len(), 1);
    assert!(runs[0].result.passed);
}

#[test]
fn the_answer_is_of_the_last_step_that_the_model_worked_on() {
    let mut run = Run::start();
    run.step("lint", None).attempt("lint", 1, "x");
    run.reply("first answer", &[]);
    run.step("fix", None).attempt("fix", 1, "y");
    assert_eq!(RunSummary::fold(&run.events).answer(), "first answer");
    run.reply("I look.", &[("glob", json!({}))]);
    assert_eq!(RunSummary::fold(&run.events).answer(), "I look.");
    run.reply("second answer", &[]);
    run.reply("", &[("glob", json!({}))]);
    assert_eq!(RunSummary::fold(&run.events).answer(), "second answer");
    let mut run = Run::start();
    run.command_step("lint", "ls", "");
    assert_eq!(RunSummary::fold(&run.events).answer(), "the step's output");
}

#[test]
fn a_modified_call_keeps_both_sets_of_arguments() {
    let mut run = Run::start();
    run.step("fix", None).attempt("fix", 1, "x");
    let ids = run.reply("", &[("write_file", json!({"content": "a"}))]);
    let mut decided = build::decided(&ids[0], "write_file", "a.rs", ruling(Decision::Modify));
    decided.modified = Some(json!({"content": "b"}));
    run.push(EventKind::Decided(Box::new(decided)));
    run.decide(&ids[0], "write_file", "a.rs", ruling(Decision::Allow));
    let sum = RunSummary::fold(&run.events);
    assert_eq!(sum.calls[0].args(), &json!({"content": "b"}));
    assert_eq!(sum.calls[0].call.args, json!({"content": "a"}));
    assert_eq!(sum.calls[0].decision(), Some("modify"));
}

#[test]
fn five_hundred_turns_fold_quickly() {
    let mut run = Run::start();
    run.step("fix", None).attempt("fix", 1, "x");
    for _ in 0..500 {
        let ids = run.reply("look", &[("read_file", json!({"file_path": "a"}))]);
        run.shell(&ids[0], "cat a", &"x".repeat(40_000));
    }
    run.finish(RunOutcome::new(Verdict::Budget, "limit:turns", "budget reached"));
    let begin = Instant::now();
    assert_eq!(RunSummary::fold(&run.events).calls.len(), 500);
    assert!(begin.elapsed().as_millis() < 100, "{:?}", begin.elapsed());
}
