//! `junit.xml` of a batch: one suite with one case for each job, in the form of Jenkins' JUnit schema. Written in
//! chunks, so that memory does not grow with the batch. Jobs that were not run or were cancelled are skipped; if no other job
//! is counted, a suite of the batch itself has the error, so that a batch that did nothing is not green.

use super::result::{BatchResult, JobReport};
use crate::base::exit;
use crate::report::text;
use quick_junit::{NonSuccessKind, Property, Report, TestCase, TestCaseStatus, TestSuite};
use std::io::{self, Write};
use std::time::Duration;

/// Suites held in memory at once.
const PIECE: usize = 500;

/// Writes the report.
///
/// # Errors
/// Write errors of `out`.
pub fn write(out: &mut dyn Write, result: &BatchResult, jobs: &[JobReport]) -> io::Result<()> {
    let failures = jobs
        .iter()
        .filter(|job| kind(job) == Some(NonSuccessKind::Failure))
        .count();
    let errors = jobs
        .iter()
        .filter(|job| kind(job) == Some(NonSuccessKind::Error))
        .count();
    let whole = (failures + errors == 0).then(|| of_batch(result)).flatten();
    let errors = errors + usize::from(whole.is_some());
    let name = escaped(&text::line(&result.name, 200));
    let tests = jobs.len() + usize::from(whole.is_some());
    let time = jobs
        .iter()
        .filter_map(|job| job.row.as_ref())
        .map(|row| row.seconds)
        .sum::<f64>();
    writeln!(out, "<?xml version=\"1.0\" encoding=\"UTF-8\"?>")?;
    writeln!(
        out,
        "<testsuites name=\"{name}\" tests=\"{tests}\" failures=\"{failures}\" errors=\"{errors}\" time=\"{time:.3}\">"
    )?;
    let pieces = jobs
        .chunks(PIECE)
        .map(|piece| piece.iter().map(suite).collect::<Vec<_>>());
    for suites in pieces.chain(whole.map(|suite| vec![suite])) {
        let mut report = Report::new("piece");
        report.add_test_suites(suites);
        let xml = report.to_string().map_err(io::Error::other)?;
        // Only the suites of this chunk, without the enclosing `testsuites` element.
        let from = xml.find("<testsuite ").unwrap_or(xml.len());
        let until = xml.rfind("</testsuites>").unwrap_or(xml.len());
        // Jenkins' schema names this attribute `skipped`. Quotation marks in attribute values are escaped.
        let suites = xml
            .get(from..until)
            .unwrap_or_default()
            .replace(" disabled=\"", " skipped=\"");
        out.write_all(suites.as_bytes())?;
    }
    writeln!(out, "</testsuites>")
}

/// The suite of a batch whose exit code no job's case shows. One that only waits for a person is skipped, as its jobs are.
fn of_batch(result: &BatchResult) -> Option<TestSuite> {
    if matches!(result.exit_code, exit::PASSED | exit::SUSPENDED) {
        return None;
    }
    let why = [&result.message, &result.stopped].into_iter().flatten().next();
    let why = why.map_or_else(|| result.verdict.replace('_', " "), |why| text::line(why, 500));
    let mut status = TestCaseStatus::non_success(NonSuccessKind::Error);
    status.set_type(result.verdict.clone());
    status.set_message(why);
    let name = format!("batch {}", text::line(&result.name, 200));
    let mut suite = TestSuite::new(name.clone());
    let mut case = TestCase::new("completed", status);
    case.set_classname(name);
    suite.add_test_case(case);
    Some(suite)
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('"', "&quot;")
}

/// How a job is counted; `None` when it passed or was skipped.
fn kind(job: &JobReport) -> Option<NonSuccessKind> {
    match job.state.as_str() {
        "passed" | "no_change" | "suspended" | "cancelled" | "not_run" | "skipped" => None,
        "failed" | "denied" | "budget" => Some(NonSuccessKind::Failure),
        _ => Some(NonSuccessKind::Error),
    }
}

fn suite(job: &JobReport) -> TestSuite {
    let mut suite = TestSuite::new(text::line(&job.job, 200));
    let seconds = job.row.as_ref().map_or(0.0, |row| row.seconds.max(0.0));
    let time = Duration::try_from_secs_f64(seconds).unwrap_or_default();
    suite.set_time(time);
    let mut property = |name: &str, value: &str| {
        suite.add_property(Property::new(name.to_owned(), text::line(value, 500)));
    };
    property("verdict", &job.state);
    // A job that was not run has none: its verdict says so.
    if job.state != "not_run" {
        property("standing", job.disposition.as_str());
    }
    if let Some(row) = &job.row {
        property("recipe", &row.recipe);
        property("target", &row.target);
        property("model", &row.model);
        property("trial", &row.trial.to_string());
        property("attempt", &row.attempt.to_string());
        property("cost", &format!("{:.6}", row.cost));
        property("tokens", &row.tokens.to_string());
        property("turns", &row.turns.to_string());
        if let Some(run) = &row.run {
            property("run", run);
        }
        if let Some(patch) = &row.patch {
            property("patch", patch);
        }
    }
    let message = match job.message.is_empty() {
        true => job.state.replace('_', " "),
        false => text::line(&job.message, 500),
    };
    let status = match kind(job) {
        Some(kind) => {
            let mut status = TestCaseStatus::non_success(kind);
            status.set_type(job.state.clone());
            status.set_message(message);
            status
        }
        None if matches!(job.state.as_str(), "passed" | "no_change") => TestCaseStatus::success(),
        None => {
            let mut status = TestCaseStatus::skipped();
            status.set_message(message);
            status
        }
    };
    let mut case = TestCase::new("completed", status);
    case.set_classname(text::line(&job.job, 200));
    case.set_time(time);
    suite.add_test_case(case);
    suite
}
