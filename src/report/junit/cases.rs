//! The cases of one JUnit suite: completed, checks, response, budget, approvals and denials.

use crate::base::outcome::{COMMAND, CheckResult, RunOutcome, StepStatus, Verdict};
use crate::base::quote::excerpt;
use crate::report::findings::{Finding, FindingLevel};
use crate::report::result::{self, OutputFacts};
use crate::report::summary::{CallSummary, CheckRun, DenialReason, RunSummary, StepSummary};
use crate::report::text;
use quick_junit::{NonSuccessKind, TestCase, TestCaseStatus, TestRerun};
use serde_json::Value;
use std::collections::HashSet;
use std::time::Duration;

/// Limit of the body of a case, in bytes.
const BODY: usize = 16 * 1024;
/// Limit of an attribute, in characters.
const ATTRIBUTE: usize = 500;

/// Limit of the findings of one step that become cases.
const FINDINGS: usize = 1_000;
/// The type of the failure of a finding.
const FINDING: &str = "finding";

/// Whether a case reports a failure of the run itself, and not a finding.
pub(super) fn tells_of_run(case: &TestCase) -> bool {
    match &case.status {
        TestCaseStatus::NonSuccess { ty, .. } => ty.as_ref().is_none_or(|ty| ty != FINDING),
        _ => false,
    }
}

/// A failure or error of a case.
pub(super) struct CaseFailure {
    kind: NonSuccessKind,
    ty: String,
    message: String,
    body: String,
}

impl CaseFailure {
    pub(super) fn new(kind: NonSuccessKind, ty: &str, message: &str) -> Self {
        Self {
            kind,
            ty: text::line(if ty.is_empty() { "failed" } else { ty }, 100),
            message: text::line(message, ATTRIBUTE),
            body: excerpt(&text::plain(message), BODY).into_owned(),
        }
    }

    /// The failure for a run's outcome.
    pub(super) fn of(outcome: &RunOutcome) -> Self {
        let verdict = outcome.verdict;
        let word = verdict.as_str();
        let kind = match verdict {
            Verdict::Passed | Verdict::NoChange | Verdict::Failed | Verdict::Denied | Verdict::Budget => {
                NonSuccessKind::Failure
            }
            _ => NonSuccessKind::Error,
        };
        let reason = outcome.reason.as_str();
        let ty = match verdict {
            Verdict::Budget => limit_type(reason),
            Verdict::Denied => "policy.denied".to_owned(),
            Verdict::Failed if !reason.is_empty() => reason.to_owned(),
            _ if reason.is_empty() || reason == word => word.to_owned(),
            _ => format!("{word}.{}", reason.replace(':', ".")),
        };
        Self::new(kind, &ty, &outcome.message)
    }

    pub(super) fn status(&self) -> TestCaseStatus {
        let mut status = TestCaseStatus::non_success(self.kind);
        status.set_type(&self.ty).set_message(&self.message);
        status.set_description(&self.body);
        status
    }

    /// Without its time: Jenkins' schema (`junit-10.xsd`) allows none here, and refuses a whole report that has one.
    fn rerun(&self) -> TestRerun {
        let mut rerun = TestRerun::new(self.kind);
        rerun.set_type(&self.ty).set_message(&self.message);
        rerun.set_stack_trace(&self.body);
        rerun
    }
}

/// `limit:calls:x` → `limit.calls.x`.
fn limit_type(reason: &str) -> String {
    format!(
        "limit.{}",
        reason.strip_prefix("limit:").unwrap_or("budget").replace(':', ".")
    )
}

fn skipped(ty: &str, message: &str) -> TestCaseStatus {
    let mut status = TestCaseStatus::skipped();
    status.set_type(ty).set_message(text::line(message, ATTRIBUTE));
    status
}

/// Collects the cases of one suite and keeps their names unique.
pub(super) struct SuiteWriter<'a, 'b> {
    sum: &'b RunSummary<'a>,
    /// The run's name for a command line.
    resume: String,
    step: &'b str,
    classname: String,
    names: HashSet<String>,
    cases: Vec<TestCase>,
    /// Properties of the suite: name and value.
    properties: Vec<(String, String)>,
}

impl<'a, 'b> SuiteWriter<'a, 'b> {
    pub(super) fn new(sum: &'b RunSummary<'a>, ending: &OutputFacts, step: &'b str) -> Self {
        Self {
            sum,
            resume: result::resume_name(sum, ending),
            step,
            classname: format!("{}.{}", text::line(sum.recipe(), 200), text::line(step, 200)),
            names: ["completed", "response", "budget"].map(str::to_owned).into(),
            cases: Vec::new(),
            properties: Vec::new(),
        }
    }

    /// The properties.
    pub(super) fn properties(&mut self) -> Vec<(String, String)> {
        std::mem::take(&mut self.properties)
    }

    /// The cases: first those about the run, then `completed`, then findings.
    pub(super) fn finish(self) -> Vec<TestCase> {
        self.cases
    }

    /// Adds a step that the run did not reach.
    pub(super) fn not_begun(&mut self, id: &str) {
        let sum = self.sum;
        let why = if sum.steps.is_empty() && !sum.outcome.verdict.is_success() && sum.planned().first() == Some(&id) {
            CaseFailure::of(&sum.outcome).status()
        } else {
            skipped("not_started", "the run ended before this step")
        };
        for name in self.planned_checks() {
            self.add_unique(name, skipped("not_started", "the run ended before this check"), 0);
        }
        self.add("completed", why, 0);
    }

    /// Adds a step that was started. `found`: the findings of all steps.
    pub(super) fn begun(&mut self, index: usize, step: &StepSummary<'a>, found: &[(&str, Finding)]) {
        let sum = self.sum;
        self.checks(step);
        for call in sum.calls.iter().filter(|call| call.step == index) {
            self.call(call);
        }
        self.response(index, step);
        self.budget(index, step);
        self.completed(index, step);
        self.findings(step, found);
    }

    /// Adds a case for each finding of the step, after all others. A finding of level `error` is a failure; it is about
    /// the examined code, not about the run.
    fn findings(&mut self, step: &StepSummary<'a>, found: &[(&str, Finding)]) {
        let own = found.iter().filter(|(id, _)| *id == step.id);
        let mut omitted = 0_u64;
        for (number, (_, finding)) in own.enumerate() {
            if number >= FINDINGS {
                omitted += 1;
                continue;
            }
            let name = format!("{} {}:{}", finding.rule, finding.path, finding.line);
            let status = match finding.level {
                FindingLevel::Error => CaseFailure::new(NonSuccessKind::Failure, FINDING, &finding.message).status(),
                FindingLevel::Warning | FindingLevel::Note => TestCaseStatus::success(),
            };
            let at = self.add_unique(&name, status, 0);
            if let (Some(case), true) = (self.cases.get_mut(at), finding.level != FindingLevel::Error) {
                let told = format!("{}: {}", finding.level.as_str(), finding.message);
                case.set_system_out(excerpt(&text::plain(&told), BODY).as_ref());
            }
        }
        if omitted > 0 {
            self.properties
                .push(("findings.omitted".to_owned(), omitted.to_string()));
        }
    }

    fn checks(&mut self, step: &StepSummary<'a>) {
        let groups = step.checks_by_name();
        for (name, runs) in &groups {
            let Some(last) = runs.last() else { continue };
            let i = self.add_unique(name, check_status(runs), last.result.took_ms);
            let output = text::plain(&last.result.output);
            if let (Some(case), false) = (self.cases.get_mut(i), output.is_empty()) {
                case.set_system_out(excerpt(&output, BODY).as_ref());
            }
        }
        for name in self.planned_checks() {
            if !groups.iter().any(|(made, _)| *made == name) {
                self.add_unique(name, skipped("not_made", "the step ended before this check"), 0);
            }
        }
    }

    /// Names of the checks that the plan has for this step.
    fn planned_checks(&self) -> Vec<&'a str> {
        let steps = self.sum.head.and_then(|head| head.plan.get("steps")?.as_array());
        let this = |step: &&'a Value| step.get("id").and_then(Value::as_str) == Some(self.step);
        let checks = steps
            .into_iter()
            .flatten()
            .find(this)
            .and_then(|step| step.get("checks")?.as_array());
        let names = checks
            .into_iter()
            .flatten()
            .filter_map(|check| check.get("name")?.as_str());
        names.collect()
    }

    fn call(&mut self, call: &CallSummary<'a>) {
        let (id, title) = (&call.call.id, call.title());
        let status = if let Some(denial) = call.denial() {
            if !self.sum.denial_counts(call) {
                let value = format!("{}: {title}", said(&denial));
                self.properties.push((format!("denied.{id}"), value));
                if !call.needs_approval() {
                    return;
                }
                skipped("not_approved", &said(&denial))
            } else {
                denied(call, denial)
            }
        } else if call.is_waiting() {
            let reason = call.ruling().map(|ruling| ruling.reason.as_str()).unwrap_or_default();
            let mut status = skipped("suspended", &format!("waits for a person: {reason}"));
            let run = &self.resume;
            let fix = call.ruling().map(|ruling| ruling.fix.as_str()).unwrap_or_default();
            let approve = result::approve(self.sum, call, run);
            let body = format!("{}\n{fix}\n{approve}", asked(call));
            status.set_description(excerpt(&text::plain(&body), BODY).as_ref());
            status
        } else if call.needs_approval() {
            TestCaseStatus::success()
        } else {
            return;
        };
        let word = if call.needs_approval() { "approval" } else { "denied" };
        self.add_unique(&format!("{word} {id}: {title}"), status, call.took_ms);
    }

    /// The case of the final answer, in the suite of the step that gave it.
    fn response(&mut self, index: usize, step: &StepSummary<'a>) {
        let judged_elsewhere = self.sum.steps.iter().any(|step| !step.judged.is_empty());
        let Some((ok, errors)) = step.judged.last() else {
            let last = index + 1 == self.sum.steps.len();
            if last && !judged_elsewhere && self.sum.wants_output() {
                self.add("response", skipped("not_made", "there was no final answer to judge"), 0);
            }
            return;
        };
        let trouble = |errors: &[String]| {
            let message = format!("the answer does not match the response schema: {}", errors.join("; "));
            CaseFailure::new(NonSuccessKind::Failure, "response", &message)
        };
        let mut status = if *ok {
            TestCaseStatus::success()
        } else {
            trouble(errors).status()
        };
        let earlier = &step.judged[..step.judged.len() - 1];
        let failed = earlier.iter().filter(|(ok, _)| !ok);
        status.add_reruns(failed.map(|(_, errors)| trouble(errors).rerun()));
        self.add("response", status, 0);
    }

    fn budget(&mut self, index: usize, step: &StepSummary<'a>) {
        let outcome = &self.sum.outcome;
        let last = index + 1 == self.sum.steps.len();
        let own = step.result.filter(|result| result.reason.starts_with("limit:"));
        let hit = if let Some(result) = own {
            Some((limit_type(&result.reason), result.message.as_str()))
        } else if last && outcome.verdict == Verdict::Budget {
            Some((limit_type(&outcome.reason), outcome.message.as_str()))
        } else {
            None
        };
        let status = match hit {
            Some((ty, message)) => CaseFailure::new(NonSuccessKind::Failure, &ty, message).status(),
            None if step.turns == 0 => return,
            None => TestCaseStatus::success(),
        };
        self.add("budget", status, 0);
    }

    /// The case `completed`: whether the step reached its end. A failure that another case reports is not repeated.
    fn completed(&mut self, index: usize, step: &StepSummary<'a>) {
        let outcome = &self.sum.outcome;
        let last = index + 1 == self.sum.steps.len();
        let failing = |case: &TestCase| matches!(case.status, TestCaseStatus::NonSuccess { .. });
        let told = self.cases.iter().any(failing);
        let end = step.result.map(|result| result.status);
        if let Some(result) = step.result.filter(|result| result.is_condition_false()) {
            self.add("completed", skipped("when", &result.message), step.duration_ms());
            return;
        }
        let trouble = match step.result {
            Some(result) if result.status != StepStatus::Failed => None,
            _ if last && !outcome.verdict.is_success() => Some(CaseFailure::of(outcome)),
            Some(result) => Some(CaseFailure::new(
                NonSuccessKind::Failure,
                &result.reason,
                &result.message,
            )),
            None => Some(CaseFailure::new(
                NonSuccessKind::Error,
                "interrupted",
                "the step did not reach its end",
            )),
        };
        let status = match trouble {
            None => TestCaseStatus::success(),
            Some(_) if last && outcome.verdict == Verdict::Suspended => skipped("suspended", &outcome.message),
            Some(trouble) if told && trouble.kind == NonSuccessKind::Failure => match end {
                Some(_) => TestCaseStatus::success(),
                None => skipped("cut_off", &outcome.message),
            },
            Some(trouble) => trouble.status(),
        };
        let at = self.add("completed", status, step.duration_ms());
        let failed = step
            .result
            .filter(|result| result.status == StepStatus::Failed && result.reason == COMMAND);
        let printed = failed.map(|result| text::plain(&result.output)).unwrap_or_default();
        if let (Some(case), false) = (self.cases.get_mut(at), printed.trim().is_empty()) {
            case.set_system_out(excerpt(&printed, BODY).as_ref());
        }
    }

    /// Adds a case with a reserved name.
    fn add(&mut self, name: &str, status: TestCaseStatus, ms: u64) -> usize {
        let mut case = TestCase::new(name, status);
        case.set_classname(&self.classname);
        case.set_time(Duration::from_millis(ms));
        self.cases.push(case);
        self.cases.len() - 1
    }

    /// Adds a case with an untrusted name: cleaned, shortened, and numbered if it is taken.
    fn add_unique(&mut self, name: &str, status: TestCaseStatus, ms: u64) -> usize {
        let clean = text::line(name, 200);
        let clean = if clean.is_empty() { "unnamed".to_owned() } else { clean };
        let mut unique = clean.clone();
        let mut n = 2;
        while !self.names.insert(unique.clone()) {
            unique = format!("{clean} ({n})");
            n += 1;
        }
        self.add(&unique, status, ms)
    }
}

/// If the last run passed: a success with each earlier failure as a flaky failure. Otherwise: a failure with the
/// earlier ones as reruns.
fn check_status(runs: &[CheckRun<'_>]) -> TestCaseStatus {
    let Some((last, earlier)) = runs.split_last() else {
        return TestCaseStatus::skipped();
    };
    let mut status = if last.result.passed {
        TestCaseStatus::success()
    } else {
        check_trouble(last.result).status()
    };
    let failed = earlier.iter().filter(|run| !run.result.passed);
    status.add_reruns(failed.map(|run| check_trouble(run.result).rerun()));
    status
}

fn check_trouble(check: &CheckResult) -> CaseFailure {
    let timed_out = check.exit.as_ref().is_some_and(|exit| exit.timed_out);
    let ty = if timed_out { "check.timeout" } else { "check" };
    let mut trouble = CaseFailure::new(NonSuccessKind::Failure, ty, &check.message);
    let body = format!("{}\n{}\n{}", check.what, check.message, check.output);
    trouble.body = excerpt(&text::plain(&body), BODY).into_owned();
    trouble
}

fn said(denial: &DenialReason<'_>) -> String {
    let rule = denial.rule.unwrap_or("default");
    format!("denied by {rule} ({}): {}", denial.code, denial.reason)
}

/// Adds a denial that ended the run or failed its verdict.
fn denied(call: &CallSummary<'_>, denial: DenialReason<'_>) -> TestCaseStatus {
    let message = said(&denial);
    let mut trouble = CaseFailure::new(NonSuccessKind::Failure, "policy.denied", &message);
    let asked = asked(call);
    let lines = [message.as_str(), denial.fix, &asked].into_iter();
    let mut body = lines.filter(|line| !line.is_empty()).collect::<Vec<_>>().join("\n");
    if let Some(exec) = denial.exec {
        body.push_str(&format!("\nthe program: {:?} in {}", exec.argv, exec.cwd));
        for ran in call.ran() {
            body.push_str(&format!("\nhad run before: {:?} in {}", ran.argv, ran.cwd));
        }
    }
    trouble.body = excerpt(&text::plain(&body), BODY).into_owned();
    trouble.status()
}

/// The call for a person: tool and arguments.
fn asked(call: &CallSummary<'_>) -> String {
    format!("{} {:#}", call.tool(), call.args())
}
