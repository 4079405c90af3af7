//! Tests of the outputs for step summaries, annotations and reviewers.

use super::build::{self, Run, ruling};
use crate::base::call::FileDiff;
use crate::base::event::EventKind;
use crate::base::outcome::{RunOutcome, Verdict};
use crate::base::ruling::Decision;
use crate::report::export::{self, RenderContext, ReportFile};
use crate::report::markdown;
use crate::report::result::OutputFacts;
use crate::report::summary::RunSummary;
use crate::report::transcript::DeclaredPrompt;
use crate::report::{github, suspension};
use proptest::prelude::*;
use serde_json::json;

fn summary(run: &Run) -> String {
    markdown::summary(&RunSummary::fold(&run.events), &OutputFacts::default())
}

/// No line begins a workflow command, opens HTML, an image or a mention.
fn is_harmless(text: &str) {
    for line in text.lines() {
        assert!(!line.trim_start().starts_with("::"), "{line}");
        assert!(!line.contains("##["), "{line}");
    }
}

#[test]
fn the_summary_of_a_good_run() {
    build::snapshot("summary_good", &summary(&build::good()));
}

#[test]
fn the_summary_of_a_run_that_was_ruled_at_exec() {
    let text = summary(&build::at_exec());
    build::snapshot("summary_at_exec", &text);
    let line = text
        .lines()
        .find(|line| line.contains("Changes that no rule allows"))
        .unwrap();
    assert!(
        line.contains("put back, as no rule allows them: lib/\\*b\\*.rs"),
        "{line}"
    );
}

#[test]
fn the_summary_of_a_denied_run_names_rule_and_fix() {
    let text = summary(&build::denied());
    let line = "- `c1` `write_file` `.github/workflows/x.yml`: CI definitions are protected (rule `rust.yaml:7`, `protected_path`).";
    assert!(text.contains(line), "{text}");
    assert!(text.contains(" Fix: add \\`git push\\` to"), "{text}");
}

#[test]
fn the_summary_shows_what_a_failed_check_printed_last() {
    let mut run = Run::start();
    run.step("fix", None).attempt("fix", 1, "x");
    run.check("fix", 1, "tests", false, "```\nE   assert 1 == 2\n");
    run.finish(RunOutcome::new(Verdict::Failed, "check", "a check failed"));
    let text = summary(&run);
    is_harmless(&text);
    let block = "Last lines of `tests`:\n\n````text\n```\nE   assert 1 == 2\n````\n";
    assert!(text.contains(block), "{text}");
}

#[test]
fn marks_of_markdown_become_literal() {
    assert_eq!(
        markdown::escaped("<img src=x> ![a](b) @me #1 *x* `c`"),
        "\\<img src=x\\> \\!\u{200b}\\[a\\](b) @\u{200b}me \\#\u{200b}1 \\*x\\* \\`c\\`"
    );
    assert_eq!(markdown::code("a`b"), "`` a`b ``");
    assert_eq!(markdown::code("a\nb"), "`a b`");
}

#[test]
fn a_long_run_stays_under_the_limit() {
    let mut run = Run::start();
    run.step("fix", None).attempt("fix", 1, "x");
    for i in 0..400 {
        let ids = run.reply(&"word ".repeat(5_000), &[("glob", json!({}))]);
        let mut denial = ruling(Decision::Deny);
        denial.reason = "long ".repeat(200);
        run.decide(&ids[0], "glob", &format!("title {i} {}", "x".repeat(300)), denial);
    }
    run.reply(&"*@#<".repeat(20_000), &[]);
    run.finish(RunOutcome::new(Verdict::Denied, "", "m ".repeat(9_000)));
    let text = summary(&run);
    assert!(text.len() <= markdown::LIMIT, "{}", text.len());
    assert!(text.contains("and 350 more."));
    let lines = github::annotations(&RunSummary::fold(&run.events), &OutputFacts::default());
    let errors = lines.lines().filter(|line| line.starts_with("::error ")).count();
    assert_eq!(
        (errors, lines.lines().count()),
        (10, 11),
        "ten of the level, and how many are left out"
    );
}

#[test]
fn annotations_point_at_the_rule_and_are_escaped() {
    let mut run = build::denied();
    let Some(EventKind::RunFinished { outcome, .. }) = run.events.last_mut().map(|event| &mut event.kind) else {
        panic!("the run ends");
    };
    outcome.message = "50% done\n::error::x".to_owned();
    let text = github::annotations(&RunSummary::fold(&run.events), &OutputFacts::default());
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines[0], "::error title=fix-clippy%3A denied::50%25 done%0A::error::x");
    assert!(
        lines[1]
            .starts_with("::error file=rust.yaml,line=7,title=denied%3A c1 .github/workflows/x.yml::CI definitions")
    );
    assert_eq!(
        github::annotations(&RunSummary::fold(&build::suspended().events), &OutputFacts::default())
            .lines()
            .count(),
        2
    );
}

#[test]
fn the_annotation_of_a_failed_check_has_the_end_of_its_output() {
    let mut run = Run::start();
    run.step("fix", None).attempt("fix", 1, "x");
    run.check("fix", 1, "test", false, "first\nlast\n");
    let Some(EventKind::Checked { check, .. }) = run.events.last_mut().map(|event| &mut event.kind) else {
        panic!("a check is recorded");
    };
    check.what = "# A comment.\ncargo test\n".to_owned();
    run.check("fix", 1, "lint", false, "");
    run.finish(RunOutcome::new(Verdict::Failed, "", "checks failed"));
    let text = github::annotations(&RunSummary::fold(&run.events), &OutputFacts::default());
    for told in [
        "::error title=check failed%3A test::exit code 101%0Afirst%0Alast\n",
        "::error title=check failed%3A lint::cargo lint: exit code 101\n",
    ] {
        assert!(text.contains(told), "{text}");
    }
}

#[test]
fn a_reviewer_gets_arguments_diff_and_the_answer_to_type() {
    let mut run = Run::start();
    run.step("fix", None).attempt("fix", 1, "x");
    let ids = run.reply(
        "I write.",
        &[("write_file", json!({"file_path": "a.md", "content": "```\n::error::x"}))],
    );
    let mut decided = build::decided(&ids[0], "write_file", "a.md", ruling(Decision::Suspend));
    decided.preview = Some(FileDiff {
        path: "a.md".to_owned(),
        diff: "+```\n+x\n".to_owned(),
        original: None,
        new: None,
        added: 2,
        removed: 0,
    });
    run.push(EventKind::Decided(Box::new(decided)));
    run.push(EventKind::Suspended { calls: ids });
    run.finish(RunOutcome::new(Verdict::Suspended, "suspended", "1 call waits"));
    let sum = RunSummary::fold(&run.events);
    let ending = OutputFacts {
        exit_code: 5,
        artefacts: [("directory".to_owned(), "/tmp/my runs/r".to_owned())].into(),
        ..OutputFacts::default()
    };
    let text = suspension::markdown(&sum, &ending);
    is_harmless(&text);
    assert!(text.contains("1 call waits for a person"), "{text}");
    assert!(text.contains("````diff\n+```\n+x\n````"), "{text}");
    assert!(
        text.contains("overnight resume '/tmp/my runs/r' --approve c1"),
        "{text}"
    );
    let value = suspension::json(&sum, &ending);
    assert_eq!(value["calls"][0]["diff"]["added"], 2);
    assert_eq!(value["calls"][0]["args"]["file_path"], "a.md");
    assert_eq!(value["calls"][0]["said"], "I write.");
}

#[test]
fn every_format_has_a_name_and_gives_bytes() {
    let run = build::suspended();
    let sum = RunSummary::fold(&run.events);
    let beside = RenderContext {
        ending: &OutputFacts::default(),
        declared: DeclaredPrompt::default(),
        patch: Some(b"diff"),
    };
    for format in ReportFile::ALL {
        assert_eq!(ReportFile::named(format.as_str()), Some(format));
        assert!(!export::render(format, &sum, beside).unwrap().is_empty(), "{format:?}");
    }
    assert_eq!(ReportFile::named("pdf"), None);
}

proptest! {
    #[test]
    fn no_text_becomes_a_command(text in "(::error|##\\[x\\]|\n|\r| |@a|<b>|\\PC){0,12}") {
        let mut run = Run::start();
        run.step(&text, None).attempt(&text, 1, &text);
        let ids = run.reply(&text, &[(&text, json!({text.as_str(): text}))]);
        run.decide(&ids[0], &text, &text, ruling(Decision::Suspend));
        run.check(&text, 1, &text, false, &text);
        run.patch();
        run.reply(&text, &[]);
        run.finish(RunOutcome::new(Verdict::Suspended, text.as_str(), text.as_str()));
        let sum = RunSummary::fold(&run.events);
        let text = summary(&run);
        is_harmless(&text);
        is_harmless(&suspension::markdown(&sum, &OutputFacts::default()));
        for line in github::annotations(&sum, &OutputFacts::default()).lines() {
            prop_assert!(line.starts_with("::error ") || line.starts_with("::warning "));
        }
    }
}
