//! Determines the outcome of a run whose steps are done or whose calls were denied; the strictest reason wins. Pure.

use super::state::{DeniedCall, RunState};
use crate::base::grant::{NOT_RESTORED, Undone, described};
use crate::base::outcome::{RunOutcome, StepResult, StepStatus, Verdict};
use crate::base::quote;
use crate::base::secret;
use crate::recipe::Plan;
use crate::recipe::plan::{CheckWhat, Expect, OnDeny, PlanStep, StepWork};

/// Upper limit in characters for a printed line of a step that is quoted in an outcome's message.
pub const MAX_LINE: usize = 300;

/// The outcome if a denial ends the run at once: a secret would have left the run, a change could not be undone, or
/// `on_deny: stop`.
pub fn denied_end(state: &RunState, plan: &Plan) -> Option<RunOutcome> {
    let ending = |denial: &&DeniedCall| denial.code == "secret_hit" || denial.code == NOT_RESTORED;
    let secret = state.denials.iter().find(ending);
    let first = match plan.on_deny {
        OnDeny::Stop => state.denials.first(),
        OnDeny::Tell => None,
    };
    let denial = secret.or(first)?;
    let reason = match secret {
        Some(_) if denial.code == NOT_RESTORED => "not_put_back",
        Some(_) => "secret_hit",
        None => "on_deny",
    };
    let message = format!("call {} of {} was denied: {}", denial.call, denial.tool, denial.reason);
    Some(RunOutcome::new(Verdict::Denied, reason, message))
}

/// The outcome if the measured changes end the run: a change that no tool was allowed to make violates a deny rule or a
/// protected path or could not be put back, the patch would contain a secret, or it cannot contain what was changed.
pub fn refused_end(state: &RunState) -> Option<RunOutcome> {
    if !state.not_put_back.is_empty() {
        let message = format!(
            "changes that no rule allows could not be put back: {}; look at these files before the tree is used",
            first_names(state.not_put_back.iter().map(String::as_str))
        );
        return Some(RunOutcome::new(Verdict::Denied, "not_put_back", message));
    }
    if let Some((who, _)) = state.refused_commands.first() {
        let undone: Vec<Undone> = state
            .refused_commands
            .iter()
            .map(|(_, undone)| undone.clone())
            .collect();
        let reason = match undone.iter().find(|undone| !undone.restored).or(undone.first()) {
            Some(first) if first.restored => first.code.clone(),
            _ => "not_put_back".to_owned(),
        };
        let message = format!("{who} changed what the policy denies: {}", described(&undone));
        return Some(RunOutcome::new(Verdict::Denied, reason, message));
    }
    let denied = || {
        let unruled = state.patch.iter().flat_map(|patch| &patch.unruled);
        unruled.filter(|unruled| unruled.denied)
    };
    let Some(first) = denied().next() else {
        return unusable_patch(state);
    };
    let by = match &first.rule {
        Some(rule) => format!("rule {rule} denies writing"),
        None => "the policy protects".to_owned(),
    };
    let message = format!(
        "the run changed {}, which {by}; the change was put back and is in no patch",
        first_names(denied().map(|unruled| unruled.path.as_str()))
    );
    Some(RunOutcome::new(Verdict::Denied, first.code.clone(), message))
}

/// The outcome if denials or measured changes end the run: all of it, the strictest first.
pub fn early_end(state: &RunState, plan: &Plan) -> Option<RunOutcome> {
    // Of two that rank equally `and` takes the later one.
    let endings = denied_end(state, plan).into_iter().chain(refused_end(state));
    endings.reduce(RunOutcome::and)
}

/// The outcome if the patch is withheld or incomplete.
fn unusable_patch(state: &RunState) -> Option<RunOutcome> {
    let patch = state.patch.as_ref()?;
    if let Some(name) = patch.withheld_for() {
        let message = format!("the changes contain the value of {name}; the patch is withheld");
        return Some(RunOutcome::new(Verdict::Denied, "secret_hit", message));
    }
    let why = patch.incomplete.clone()?;
    Some(RunOutcome::new(Verdict::Failed, "unpatched", why))
}

/// Upper limit for the file names in one sentence.
const NAMED: usize = 8;

/// The first of these names, and the number of further ones.
pub fn first_names<'a>(names: impl Iterator<Item = &'a str>) -> String {
    let all: Vec<&str> = names.collect();
    quote::first_names(&all, NAMED)
}

/// The first step that failed.
pub fn failed_step(state: &RunState) -> Option<(&str, &StepResult)> {
    let failed = state
        .results
        .iter()
        .find(|(_, result)| result.status == StepStatus::Failed);
    failed.map(|(step, result)| (step.as_str(), result))
}

/// Whether a step was skipped by its condition.
fn was_skipped(state: &RunState, step: &PlanStep) -> bool {
    let mut results = state.results.iter();
    results.any(|(id, result)| *id == step.id && result.is_condition_false())
}

/// The step that gives the answer for the response schema, if its condition skipped it.
pub fn skipped_answer<'a>(state: &RunState, plan: &'a Plan) -> Option<&'a PlanStep> {
    plan.response.as_ref()?;
    let mut last_first = plan.steps.iter().rev();
    let answers = last_first.find(|step| matches!(step.work, StepWork::Prompt { .. }))?;
    was_skipped(state, answers).then_some(answers)
}

/// Whether the plan asks a model, and the result of every step that would says so.
fn all_asking(state: &RunState, plan: &Plan, says: fn(&StepResult) -> bool) -> bool {
    let mut asking = plan
        .steps
        .iter()
        .filter(|step| matches!(step.work, StepWork::Prompt { .. }));
    let holds = |step: &PlanStep| state.results.iter().any(|(id, result)| *id == step.id && says(result));
    plan.asks() && asking.all(holds)
}

/// Whether every step that asks a model was skipped by its condition, so that nothing had to be done.
fn all_steps_skipped(state: &RunState, plan: &Plan) -> bool {
    all_asking(state, plan, StepResult::is_condition_false)
}

/// Whether every step that asks a model was skipped, by its condition or because its checks passed already.
fn no_model_was_needed(state: &RunState, plan: &Plan) -> bool {
    all_asking(state, plan, |result| result.status == StepStatus::Skipped)
}

/// The last line that a step printed before the first step that asks a model, with the step's id. The line usually says
/// why nothing had to be done.
fn last_line(state: &RunState) -> Option<(&str, String)> {
    let before = state
        .results
        .iter()
        .take_while(|(_, result)| !result.is_condition_false());
    let lines = before.filter_map(|(step, result)| {
        let line = secret::last_line(&result.output, MAX_LINE)?;
        Some((step.as_str(), line))
    });
    lines.last()
}

/// The outcome of a run whose steps are done and whose changes are measured; the strictest reason wins.
pub fn outcome(state: &RunState, plan: &Plan) -> RunOutcome {
    let denials = || state.denials.iter().filter(|denial| !denial.read);
    let refused_by = |denial: &DeniedCall, what: &str| {
        let message = format!(
            "{what}; call {} of {} was denied: {}",
            denial.call, denial.tool, denial.reason
        );
        RunOutcome::new(Verdict::Denied, "denied", message)
    };
    let refused = |what: &str| denials().next().map(|denial| refused_by(denial, what));
    if let Some((step, result)) = failed_step(state) {
        let what = format!("step {step}: {}", result.message);
        let failed = RunOutcome::new(Verdict::Failed, result.reason.clone(), what.clone());
        return refused(&what).unwrap_or(failed);
    }
    // These checks do not show that a denied action was not needed: those of an answer, which is only a claim of the model;
    // limits on the change, which hold for a run that changed nothing, too; those of a step that was skipped, or before
    // that of the call.
    let is_checked = |denial: &DeniedCall| {
        let later = plan.steps.iter().skip(denial.step);
        let mut checks = later
            .filter(|step| !was_skipped(state, step))
            .flat_map(|step| &step.checks);
        checks.any(|check| !check.what.is_of_answer() && !matches!(check.what, CheckWhat::Changed(_)))
    };
    if let Some(denial) = denials().find(|denial| !is_checked(denial)) {
        let what = match denial.step {
            0 => "no check shows that the task was done",
            _ => "no check of that step or a later one shows that the task was done",
        };
        return refused_by(denial, what);
    }
    if let Some(failure) = state.approved_failures.first() {
        let what = format!(
            "call {} of {} was approved and {}, and no check shows that the task was done",
            failure.call, failure.tool, failure.how
        );
        return RunOutcome::new(Verdict::Failed, "approved_call_failed", what);
    }
    match (plan.expect, state.changed()) {
        (Expect::Change, false) if !no_model_was_needed(state, plan) => {
            let what = "a change was expected and nothing changed";
            let failed = RunOutcome::new(Verdict::Failed, "expect", what);
            return refused(what).unwrap_or(failed);
        }
        (Expect::NoChange, true) => {
            let what = "no change was expected and files changed";
            return RunOutcome::new(Verdict::Failed, "expect", what);
        }
        _ => {}
    }
    match state.changed() {
        true => RunOutcome::new(Verdict::Passed, "", "every step and check passed"),
        // Such a run has no answer, though its recipe may promise one.
        false if all_steps_skipped(state, plan) => {
            let what = "no model was asked: the `when` of every step that asks one was false; nothing was changed";
            let printed =
                last_line(state).map_or(String::new(), |(step, line)| format!("; step {step} printed: {line}"));
            RunOutcome::new(Verdict::NoChange, "when", format!("{what}{printed}"))
        }
        false => RunOutcome::new(Verdict::NoChange, "", "passed; nothing was changed"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::budget::Budget;
    use crate::base::event::{EventKind, PatchTaken, PathChange};
    use crate::base::ids::CallId;
    use crate::engine::crash_tests::any_plan;

    fn undone(code: &str, restored: bool) -> Undone {
        Undone {
            path: "tests/a.py".to_owned(),
            code: code.to_owned(),
            rule: Some("p:4".to_owned()),
            restored,
            change: PathChange::Modified,
        }
    }

    fn end(call: Option<&str>, check: bool, undone: Undone) -> Option<String> {
        let mut state = RunState::default();
        state.apply(&EventKind::Undone {
            call: call.map(|_| CallId::nth(1)),
            step: call.is_none().then(|| "build".into()),
            server: None,
            check,
            undone: vec![undone],
            omitted: 0,
        });
        // Resuming the run does not clear it.
        state.apply(&EventKind::Resumed {
            by: "t".to_owned(),
            model: "m".to_owned(),
            policies: Vec::new(),
            limits: Budget::default(),
            directory: None,
        });
        refused_end(&state).map(|outcome| format!("{}: {}", outcome.reason, outcome.message))
    }

    #[test]
    fn what_an_authors_command_changed_against_a_deny_rule_ends_the_run() {
        assert_eq!(
            end(None, false, undone("deny_rule", true)).unwrap(),
            "deny_rule: step build changed what the policy denies: tests/a.py (deny_rule, rule p:4); this was undone"
        );
        let not_back = end(None, false, undone("protected_path", false)).unwrap();
        assert!(
            not_back.starts_with("not_put_back: ") && not_back.contains("could not be undone"),
            "{not_back}"
        );
        let protected = end(None, false, undone("protected_path", true)).unwrap();
        assert!(protected.starts_with("protected_path: "), "{protected}");
        assert_eq!(
            end(None, true, undone("protected_path", true)),
            None,
            "the check has failed"
        );
        assert_eq!(end(None, true, undone("deny_rule", true)), None, "the check has failed");
        assert!(end(None, true, undone("deny_rule", false)).is_some());
        assert_eq!(
            end(Some("c1"), false, undone("deny_rule", true)),
            None,
            "the call was denied"
        );
    }

    #[test]
    fn an_incomplete_patch_hides_no_change_that_could_not_be_undone() {
        let mut state = RunState::default();
        state.patch = Some(PatchTaken {
            incomplete: Some("the patch lacks a file".to_owned()),
            ..PatchTaken::default()
        });
        let plan = any_plan(1, 0);
        let told = |state: &RunState| early_end(state, &plan).map(|end| (end.verdict, end.reason));
        assert_eq!(told(&state), Some((Verdict::Failed, "unpatched".to_owned())));
        state.apply(&EventKind::Undone {
            call: Some(CallId::nth(1)),
            step: None,
            server: None,
            check: false,
            undone: vec![undone("deny_rule", false)],
            omitted: 0,
        });
        assert_eq!(told(&state), Some((Verdict::Denied, "not_put_back".to_owned())));
        // The message names both reasons.
        let message = early_end(&state, &plan).map(|end| end.message).unwrap();
        assert!(message.ends_with("; besides, the patch lacks a file"), "{message}");
    }

    #[test]
    fn what_a_server_changed_ends_the_run_only_if_it_could_not_be_undone() {
        let end = |restored| {
            let mut state = RunState::default();
            state.apply(&EventKind::Undone {
                call: None,
                step: None,
                server: Some("docs".to_owned()),
                check: false,
                undone: vec![undone("deny_rule", restored)],
                omitted: 0,
            });
            refused_end(&state).map(|outcome| (outcome.reason, outcome.message))
        };
        assert_eq!(end(true), None);
        let (reason, message) = end(false).unwrap();
        assert_eq!(reason, "not_put_back");
        assert!(
            message.starts_with("MCP server docs changed what the policy denies: tests/a.py"),
            "{message}"
        );
    }
}
