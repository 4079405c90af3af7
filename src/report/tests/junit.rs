//! Tests of the JUnit report: how it shows each outcome, and that every text gives valid XML.

use super::build::{self, Run};
use crate::base::call::{CallState, ToolOutput};
use crate::base::outcome::{RunOutcome, StepStatus, Verdict};
use crate::base::ruling::Decision;
use crate::report::junit;
use crate::report::result::OutputFacts;
use crate::report::summary::RunSummary;
use proptest::prelude::*;
use quick_junit::{Report, TestCase, TestCaseStatus};
use std::collections::HashSet;

fn xml(run: &Run) -> String {
    junit::xml(&RunSummary::fold(&run.events), &OutputFacts::default()).unwrap()
}

/// Reads the report back and checks what must hold for every report.
fn read(xml: &str) -> Report {
    let report = Report::deserialize_from_str(xml).unwrap();
    let mut names = HashSet::new();
    for suite in &report.test_suites {
        assert!(suite.time.is_some());
        assert!(suite.test_cases.iter().any(|case| case.name == *"completed"));
        for case in &suite.test_cases {
            assert!(case.time.is_some());
            assert!(
                names.insert((case.classname.clone(), case.name.clone())),
                "{case:?} twice"
            );
            if let TestCaseStatus::NonSuccess { ty, .. } = &case.status {
                assert!(ty.is_some(), "{case:?} has no type");
            }
        }
    }
    report
}

fn case<'a>(report: &'a Report, suite: &str, name: &str) -> &'a TestCase {
    let suite = report.test_suites.iter().find(|s| s.name == *suite).unwrap();
    suite.test_cases.iter().find(|c| c.name.starts_with(name)).unwrap()
}

fn property(report: &Report, suite: &str, name: &str) -> Option<String> {
    let suite = report.test_suites.iter().find(|s| s.name == *suite).unwrap();
    let property = suite.properties.iter().find(|property| property.name == *name)?;
    Some(property.value.to_string())
}

fn ty(case: &TestCase) -> Option<&str> {
    match &case.status {
        TestCaseStatus::NonSuccess { ty, .. } | TestCaseStatus::Skipped { ty, .. } => ty.as_deref(),
        TestCaseStatus::Success { .. } => None,
    }
}

#[test]
fn a_good_run_with_a_retry_is_flaky_and_green() {
    let text = xml(&build::good());
    build::snapshot("junit_good", &text);
    let report = read(&text);
    assert_eq!(report.failures + report.errors, 0);
    let TestCaseStatus::Success { flaky_runs } = &case(&report, "fix", "clippy").status else {
        panic!("clippy passed at last");
    };
    assert_eq!(flaky_runs.len(), 1);
    let lint = report.test_suites.iter().find(|suite| suite.name == *"lint").unwrap();
    assert_eq!(lint.tests, 1);
}

#[test]
fn a_denied_call_is_a_failure_of_its_own_type() {
    let text = xml(&build::denied());
    let report = read(&text);
    let denied = case(&report, "prompt", "denied c1");
    assert_eq!(ty(denied), Some("policy.denied"));
    assert_eq!((report.failures, report.errors), (1, 0));
}

#[test]
fn a_denial_on_the_way_to_a_pass_is_a_property() {
    let mut run = build::denied();
    run.events.truncate(run.events.len() - 2);
    run.end_step("prompt", StepStatus::Passed, "", "").passed();
    let report = read(&xml(&run));
    assert_eq!((report.failures, report.errors), (0, 0));
    let value = property(&report, "prompt", "denied.c1").unwrap();
    assert!(
        value.starts_with("denied by rust.yaml:7 (protected_path): CI definitions"),
        "{value}"
    );
    assert!(
        report.test_suites[0]
            .test_cases
            .iter()
            .all(|case| !case.name.starts_with("denied"))
    );
}

#[test]
fn only_the_denial_that_decided_is_a_failure() {
    let end = |reason: &str| {
        let mut run = Run::with_plan(serde_json::json!({"steps": [{"id": "prompt", "checks": []}]}));
        run.step("prompt", None).attempt("prompt", 1, "x");
        let tools = ["write_file", "write_file"].map(|tool| (tool, serde_json::json!({})));
        for (n, id) in run.reply("", &tools).iter().enumerate() {
            let mut ruling = build::ruling(Decision::Deny);
            ruling.code = ["no_rule", "secret_hit"][n].to_owned();
            run.decide(id, "write_file", "x", ruling);
            run.finish_call(id, CallState::Error, ToolOutput::failure("denied", "no"));
        }
        run.finish(RunOutcome::new(Verdict::Denied, reason, "it was denied"));
        let report = read(&xml(&run));
        let cases = report.test_suites[0].test_cases.iter();
        let failed = cases.filter(|case| ty(case) == Some("policy.denied"));
        failed.map(|case| case.name.to_string()).collect::<Vec<_>>()
    };
    assert_eq!(end("denied"), ["denied c1: x", "denied c2: x"]);
    assert_eq!(end("on_deny"), ["denied c1: x"]);
    assert_eq!(end("secret_hit"), ["denied c2: x"]);
}

#[test]
fn what_was_ruled_at_exec_and_in_the_patch_is_told() {
    let run = build::at_exec();
    let text = xml(&run);
    build::snapshot("junit_at_exec", &text);
    let report = read(&text);
    assert_eq!((report.failures, report.errors), (0, 0));
    for (name, value) in [
        (
            "denied.c1",
            "denied by rust.yaml:12 (exec_denied): write tests/<a>.rs is denied by rule rust.yaml:12: rg -l foo | xargs rm",
        ),
        ("unruled.lib/*b*.rs", "put back: modified (no_rule)"),
        ("unruled.out/", "left out of the patch: added (no_rule)"),
        ("unruled", "and 3 more"),
    ] {
        assert_eq!(property(&report, "prompt", name).as_deref(), Some(value));
    }
    let mut run = run;
    run.events.truncate(run.events.len() - 1);
    run.finish(RunOutcome::new(Verdict::Denied, "denied", "an action was denied"));
    let report = read(&xml(&run));
    let denied = case(&report, "prompt", "denied c1");
    let TestCaseStatus::NonSuccess { description, .. } = &denied.status else {
        panic!("it failed the run");
    };
    let body = description.as_deref().unwrap();
    assert!(
        body.contains("the program: [\"rm\", \"src/a.rs\", \"tests/<a>.rs\"]"),
        "{body}"
    );
    assert!(body.contains("had run before: [\"xargs\", \"rm\"]"), "{body}");
}

#[test]
fn a_suspended_call_is_skipped_and_nothing_fails() {
    let report = read(&xml(&build::suspended()));
    assert_eq!(ty(case(&report, "fix", "approval c1")), Some("suspended"));
    assert_eq!(ty(case(&report, "fix", "completed")), Some("suspended"));
    assert_eq!(ty(case(&report, "fix", "clippy")), Some("not_made"));
    assert_eq!((report.failures, report.errors), (0, 0));
}

#[test]
fn a_limit_is_a_failure_of_the_budget() {
    let mut run = Run::start();
    run.step("fix", None).attempt("fix", 1, "x");
    run.reply("", &[("glob", serde_json::json!({}))]);
    run.finish(RunOutcome::new(
        Verdict::Budget,
        "limit:turns",
        "budget reached: turns: 1 of 1 spent",
    ));
    let report = read(&xml(&run));
    assert_eq!(ty(case(&report, "fix", "budget")), Some("limit.turns"));
    assert_eq!((report.failures, report.errors), (1, 0));
}

#[test]
fn no_end_but_a_pass_looks_like_one() {
    use Verdict::*;
    for verdict in [
        Failed,
        Denied,
        Budget,
        Provider,
        Environment,
        Output,
        Incomplete,
        Cancelled,
        Bug,
    ] {
        let ends: [fn(&mut Run); 4] = [
            |_| {},
            |run| {
                run.step("fix", None).attempt("fix", 1, "x");
            },
            |run| {
                run.step("fix", None).end_step("fix", StepStatus::Passed, "", "");
            },
            |run| {
                run.step("fix", None)
                    .end_step("fix", StepStatus::Failed, "stuck", "no progress");
            },
        ];
        for end in ends {
            let mut run = Run::start();
            end(&mut run);
            run.finish(RunOutcome::new(verdict, "", "it went wrong"));
            let report = read(&xml(&run));
            assert_eq!(report.failures + report.errors, 1, "{verdict:?}: {}", xml(&run));
            let infrastructure = !matches!(verdict, Failed | Denied | Budget);
            assert_eq!(report.errors == 1, infrastructure, "{verdict:?}");
        }
    }
}

#[test]
fn a_killed_run_is_an_error() {
    let run = build::good();
    for n in 0..run.events.len() {
        let text = junit::xml(&RunSummary::fold(&run.events[..n]), &OutputFacts::default()).unwrap();
        let report = read(&text);
        assert!(report.errors > 0 || report.failures > 0, "after {n} events: {text}");
    }
}

#[test]
fn a_run_that_never_started_has_one_error() {
    let ending = OutputFacts {
        exit_code: 3,
        ..OutputFacts::default()
    };
    let report = read(&junit::unstarted(Verdict::Invalid, "", "recipe.yaml:3:1: unknown key", &ending).unwrap());
    assert_eq!((report.tests, report.errors), (1, 1));
    assert_eq!(report.test_suites[0].name, *"run");
}

#[test]
fn equal_and_reserved_check_names_stay_apart() {
    let mut run = Run::start();
    run.step("fix", None).attempt("fix", 1, "x");
    for name in ["completed", "budget", "a\u{0}", "a", "a ", ""] {
        run.check("fix", 1, name, true, "");
    }
    run.end_step("fix", StepStatus::Passed, "", "").passed();
    let report = read(&xml(&run));
    assert!(report.tests >= 8);
}

proptest! {
    #[test]
    fn any_text_gives_xml_that_reads_back(text in ".*", bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        let bytes = String::from_utf8_lossy(&bytes).into_owned();
        let mut run = Run::start();
        run.step(&text, None).attempt(&text, 1, &text);
        let ids = run.reply(&text, &[(&text, serde_json::json!({"x": bytes}))]);
        let denial = crate::base::ruling::Ruling { reason: bytes.clone(), fix: text.clone(), ..build::ruling(crate::base::ruling::Decision::Deny) };
        run.decide(&ids[0], &bytes, &text, denial);
        run.check(&text, 1, &bytes, false, &format!("{text}{bytes}"));
        run.end_step(&text, StepStatus::Failed, &text, &bytes);
        run.finish(RunOutcome::new(Verdict::Failed, bytes.as_str(), text.as_str()));
        let xml = xml(&run);
        read(&xml);
        prop_assert!(!xml.chars().any(|c| c.is_control() && c != '\n' && c != '\t'));
    }
}

#[test]
fn all_suites_together_have_only_the_totals_that_jenkins_knows() {
    let text = xml(&build::suspended());
    let head = text.find("<testsuites ").map(|at| &text[at..]).unwrap();
    let head = &head[..head.find('>').unwrap()];
    let names: Vec<&str> = head
        .split('"')
        .step_by(2)
        .filter_map(|part| part.trim().strip_suffix('='))
        .collect();
    let names: Vec<&str> = names.iter().map(|name| name.rsplit(' ').next().unwrap()).collect();
    // The attributes of `testsuites` in junit-10.xsd.
    let known = ["name", "time", "tests", "failures", "disabled", "errors"];
    assert!(
        names.len() > 3 && names.iter().all(|name| known.contains(name)),
        "{names:?}"
    );
    assert!(
        text.contains("<testsuite ") && text.contains(" skipped=\""),
        "a suite says it itself"
    );
}
