//! `junit.xml`: one suite for each step of the plan, properties, totals. The cases are built in `cases`.
//!
//! The only failures of a run that passed are findings of level `error`, of type `finding`. A suspended run has a
//! skipped approval, and any other run at least one further failure or error. A denial that ended the run or failed its
//! verdict is a failure of type `policy.denied`; any other denial, and a change that no rule allows, is a property of
//! its suite.

mod cases;

use super::findings::{self, Finding};
use super::result::OutputFacts;
use super::summary::{RunSummary, StepSummary};
use super::text;
use crate::base::event::PolicyText;
use crate::base::outcome::Verdict;
use cases::{CaseFailure, SuiteWriter};
use quick_junit::{NonSuccessKind, Property, Report, SerializeError, TestCase, TestCaseStatus, TestSuite};
use std::time::Duration;

/// The report of a run with a journal, as XML.
///
/// # Errors
/// When the XML writer fails, which no input causes.
pub fn xml(sum: &RunSummary<'_>, ending: &OutputFacts) -> Result<String, SerializeError> {
    let mut report = Report::new(text::line(sum.recipe(), 200));
    report.set_time(Duration::from_millis(sum.duration_ms()));
    let planned = sum.planned();
    let last = sum.steps.len().checked_sub(1);
    let home = last.and_then(|i| sum.steps.get(i)).map(|step| step.id);
    // The outputs of the steps are parsed once for all suites.
    let (found, problems) = findings::by_step(sum);
    let mut suites = Vec::new();
    for id in &planned {
        suites.push(suite(sum, ending, id, &found));
    }
    if suites.is_empty() {
        suites.push(suite(sum, ending, sum.recipe(), &found));
    }
    let at = planned.iter().position(|id| Some(*id) == home).unwrap_or(0);
    if let Some(suite) = suites.get_mut(at) {
        warn(sum, &problems, suite);
        unruled(sum, suite);
    }
    ensure_failure_reported(sum, &mut suites, at);
    report.add_test_suites(suites);
    report.to_string().map(without_total)
}

/// The report of a run that ended before it had a journal: one suite named after the recipe (`run` when that is empty)
/// with an error in the case `completed`.
///
/// # Errors
/// As [`xml`].
pub fn unstarted(
    verdict: Verdict,
    recipe: &str,
    message: &str,
    ending: &OutputFacts,
) -> Result<String, SerializeError> {
    let name = if recipe.is_empty() { "run" } else { recipe };
    let mut suite = TestSuite::new(text::line(name, 200));
    suite.set_time(Duration::ZERO);
    property(&mut suite, "verdict", verdict.as_str());
    property(&mut suite, "exit_code", &ending.exit_code.to_string());
    let trouble = CaseFailure::new(NonSuccessKind::Error, verdict.as_str(), message);
    let mut case = TestCase::new("completed", trouble.status());
    case.set_classname(text::line(name, 200));
    case.set_time(Duration::ZERO);
    suite.add_test_case(case);
    let mut report = Report::new(text::line(name, 200));
    report.set_time(Duration::ZERO);
    report.add_test_suite(suite);
    report.to_string().map(without_total)
}

/// Removes the total of skipped cases: Jenkins' schema (`junit-10.xsd`) allows it in `testsuite`, but not in
/// `testsuites`.
fn without_total(mut xml: String) -> String {
    let Some(from) = xml.find("<testsuites ") else {
        return xml;
    };
    let to = xml[from..].find('>').map_or(xml.len(), |end| from + end);
    let found = xml[from..to].find(" skipped=\"").map(|at| from + at);
    if let Some(at) = found
        && let Some(end) = xml[at + 10..to].find('"')
    {
        xml.replace_range(at..at + 10 + end + 1, "");
    }
    xml
}

/// The suite of one step, started or not. `found`: the findings of all steps.
fn suite(sum: &RunSummary<'_>, ending: &OutputFacts, id: &str, found: &[(&str, Finding)]) -> TestSuite {
    let index = sum.steps.iter().position(|step| step.id == id);
    let step = index.and_then(|i| sum.steps.get(i));
    let mut suite = TestSuite::new(text::line(id, 200));
    suite.set_time(Duration::from_millis(step.map_or(0, StepSummary::duration_ms)));
    if let Some(step) = step {
        suite.extra.insert("timestamp".into(), rfc3339(step.started).into());
    }
    properties(sum, ending, step, &mut suite);
    let mut writer = SuiteWriter::new(sum, ending, id);
    match index.zip(step) {
        Some((index, step)) => writer.begun(index, step, found),
        None => writer.not_begun(id),
    }
    for (name, value) in writer.properties() {
        property(&mut suite, &name, &value);
    }
    suite.add_test_cases(writer.finish());
    suite
}

/// The time with an offset, which all JUnit readers parse, instead of `Z`.
fn rfc3339(at: jiff::Timestamp) -> String {
    at.strftime("%Y-%m-%dT%H:%M:%S%.3f+00:00").to_string()
}

fn properties(sum: &RunSummary<'_>, ending: &OutputFacts, step: Option<&StepSummary<'_>>, suite: &mut TestSuite) {
    let (turns, tokens, cost) = step.map_or((0, 0, 0), |step| (step.turns, step.usage.total(), step.cost_micros));
    property(suite, "run", sum.run());
    property(suite, "recipe", sum.recipe());
    property(suite, "model", sum.model);
    property(suite, "verdict", sum.outcome.verdict.as_str());
    property(suite, "exit_code", &ending.exit_code.to_string());
    property(suite, "exit_reason", &sum.outcome.reason);
    property(suite, "partial", &sum.outcome.partial.to_string());
    property(suite, "turns", &turns.to_string());
    property(suite, "tokens", &tokens.to_string());
    property(suite, "cost", &format!("{:.6}", super::result::usd(cost)));
    property(suite, "run.turns", &sum.replies().to_string());
    property(suite, "run.tokens", &sum.tokens.to_string());
    property(
        suite,
        "run.cost",
        &format!("{:.6}", super::result::usd(sum.cost_micros)),
    );
    property(suite, "recorded", &sum.recorded.to_string());
    let Some(head) = sum.head else { return };
    property(suite, "version", &head.version);
    property(suite, "plan", &head.plan_digest);
    property(suite, "base", head.base.commit.as_deref().unwrap_or("none"));
    property(
        suite,
        "sandbox",
        sum.sandbox.map_or("unknown", |confined| &confined.level),
    );
    for (at, policy) in head.policies.iter().enumerate() {
        // The recipe and `--policy` may name the same file.
        let same = |other: &PolicyText| (&other.name, &other.digest) == (&policy.name, &policy.digest);
        if !head.policies.iter().take(at).any(same) {
            property(suite, &format!("policy.{}", policy.name), &policy.digest);
        }
    }
    if sum.patch.is_some_and(|patch| patch.blob.is_some()) {
        let path = ending.artefacts.get("patch").map_or("changes.patch", String::as_str);
        property(suite, "patch", path);
    }
    if let Some(path) = ending.artefacts.get("transcript") {
        property(suite, "transcript", path);
    }
    for server in sum.servers().iter().filter(|server| server.status != "ready") {
        property(suite, &format!("mcp.{}", server.name), &server.status);
    }
}

fn property(suite: &mut TestSuite, name: &str, value: &str) {
    suite.add_property(Property::new(text::line(name, 200), text::line(value, 500)));
}

/// Limit of unruled changes that become properties.
const UNRULED: usize = 50;

/// Properties for changes that were reverted or left out of the patch.
fn unruled(sum: &RunSummary<'_>, suite: &mut TestSuite) {
    for unruled in sum.unruled.iter().take(UNRULED) {
        let how = match (unruled.left, unruled.restored) {
            (true, _) => "left out of the patch",
            (false, true) => "put back",
            (false, false) => "not put back",
        };
        let rule = unruled.rule.as_ref().map(|rule| format!(" by {rule}"));
        let value = format!(
            "{how}: {} ({}{})",
            unruled.change.as_str(),
            unruled.code,
            rule.unwrap_or_default()
        );
        property(suite, &format!("unruled.{}", unruled.path), &value);
    }
    let omitted = sum.unruled_omitted();
    let more = sum.unruled.len().saturating_sub(UNRULED) as u64 + omitted;
    if more > 0 {
        property(suite, "unruled", &format!("and {more} more"));
    }
}

/// Warnings and missing servers as the suite's error output.
fn warn(sum: &RunSummary<'_>, problems: &[String], suite: &mut TestSuite) {
    let mut lines = Vec::new();
    for warning in &sum.warnings {
        lines.push(format!(
            "warning[{}]: {}",
            text::line(warning.code, 80),
            text::line(warning.message, 500)
        ));
    }
    for server in sum.servers().iter().filter(|server| server.status == "failed") {
        let (name, why) = (text::line(&server.name, 80), text::line(&server.message, 500));
        lines.push(format!(
            "warning[mcp_server_missing]: MCP server `{name}` is not available: {why}"
        ));
    }
    for problem in problems {
        lines.push(format!("warning[finding]: {}", text::line(problem, 500)));
    }
    if !lines.is_empty() {
        suite.set_system_err(lines.join("\n"));
    }
}

/// A run that did not pass must not look like one that did: if no case reports it, the case `completed` of the suite
/// `at` does.
fn ensure_failure_reported(sum: &RunSummary<'_>, suites: &mut [TestSuite], at: usize) {
    let waits =
        |case: &TestCase| matches!(&case.status, TestCaseStatus::Skipped { ty: Some(ty), .. } if ty == "suspended");
    let told = suites.iter().any(|suite| {
        let waiting = sum.outcome.verdict == Verdict::Suspended && suite.test_cases.iter().any(waits);
        waiting || suite.test_cases.iter().any(cases::tells_of_run)
    });
    if told || sum.outcome.verdict.is_success() {
        return;
    }
    let Some(suite) = suites.get_mut(at) else { return };
    let mut cases = std::mem::take(&mut suite.test_cases);
    if let Some(case) = cases.iter_mut().find(|case| case.name == *"completed") {
        case.status = CaseFailure::of(&sum.outcome).status();
    }
    (suite.tests, suite.skipped) = (0, 0);
    suite.add_test_cases(cases);
}
