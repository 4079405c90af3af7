//! Decides which results a replay takes from its recording because a second run could not reproduce them.
//!
//! A replay runs the tools for real, because their effects are the patch. The exceptions are calls that
//!
//! - reach the network (`web_fetch`, web searches, anything that takes URLs): a replay is hermetic;
//! - write outside the tree (`save_memory`): they would write twice;
//! - report what a background command has printed so far, which depends on timing;
//! - were interrupted when they were recorded: their effect is unknown.
//!
//! A command that starts in the background is run, and the model receives its first output as recorded.
//!
//! The output of other commands, checks and servers can differ from run to run (times, the order of parallel work,
//! names of temporary directories). They are run. If the output differs, the model receives the recorded output, so
//! that its recorded replies still fit, and a warning shows both texts. Whether a check passed, whether a call was
//! denied and how a command ended is never taken from the recording. With `--replay strict` all output must equal the
//! recorded output.

use crate::base::call::{Replayed, ToolKind, ToolOutput, ToolSpec};
use crate::base::ids::{CallId, StepId};
use crate::base::outcome::CheckResult;
use crate::provider::recorded_run::RecordedRun;
use crate::provider::replay::diff;
use crate::tools::{PreparedCall, ToolContext, ToolError, results};
use serde_json::Value;
use std::path::Path;

/// How a call of a replay is answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ResultSource {
    /// Run it and use its real result.
    Real,
    /// Run it, but give the model the recorded result.
    RunAndSubstitute,
    /// Do not run it; use the recorded result.
    Recorded,
    /// Run it; if its output differs, give the model the recorded one.
    Soft,
}

/// Code of the warning for output in a replay that differs from the recording.
pub const WARNING: &str = "replay";

/// `prepared`, with the recorded result in place of its work where a second run could not reproduce it.
pub fn prepared(
    recorded: Option<&RecordedRun>,
    id: &CallId,
    spec: &ToolSpec,
    args: &Value,
    prepared: PreparedCall,
) -> PreparedCall {
    let Some(recorded) = recorded else {
        return prepared;
    };
    let output = recorded.results.get(id).cloned();
    let kept = recorded.kept.clone();
    match answer(spec, args, !prepared.access.urls.is_empty(), output.as_ref()) {
        ResultSource::Real => prepared,
        ResultSource::Recorded => PreparedCall {
            work: Box::new(move |context| {
                Box::pin(async move {
                    let output = output.ok_or_else(missing)?;
                    results::carry(&kept, &output, &context)?;
                    Ok(output)
                })
            }),
            ..prepared
        },
        ResultSource::Soft if recorded.strict => prepared,
        ResultSource::Soft => {
            let (work, title) = (prepared.work, prepared.title.clone());
            PreparedCall {
                work: Box::new(move |context| {
                    Box::pin(async move {
                        let ran = results::fit(work(context.clone()).await?, &context)?;
                        softened(ran, output, &kept, &title, &context)
                    })
                }),
                ..prepared
            }
        }
        ResultSource::RunAndSubstitute => {
            let work = prepared.work;
            PreparedCall {
                work: Box::new(move |context| {
                    Box::pin(async move {
                        let ran = work(context).await?;
                        Ok(output.unwrap_or(ran))
                    })
                }),
                ..prepared
            }
        }
    }
}

/// The text that the model receives for a command that ran: the recorded one if both runs ended with a result.
fn softened(
    ran: ToolOutput,
    recorded: Option<ToolOutput>,
    kept: &Path,
    title: &str,
    context: &ToolContext,
) -> Result<ToolOutput, ToolError> {
    let kind = |output: &ToolOutput| output.error.as_ref().map(|failure| failure.kind.clone());
    let Some(recorded) = recorded.filter(|recorded| kind(recorded) == kind(&ran)) else {
        return Ok(ran);
    };
    if recorded.content == ran.content {
        return Ok(ran);
    }
    let (old, new) = (recorded.model_text(), ran.model_text());
    context
        .scope
        .notices
        .add(WARNING, differs(&format!("{}: {title}", context.call), &old, &new));
    results::carry(kept, &recorded, context)?;
    Ok(ToolOutput {
        content: recorded.content,
        kept: recorded.kept,
        ..ran
    })
}

/// The output of a step's command for later prompts, with a warning if it differs from the recording.
pub fn step_output(recorded: Option<&RecordedRun>, step: &StepId, printed: String) -> (String, Option<String>) {
    let old = recorded
        .filter(|recorded| !recorded.strict)
        .and_then(|recorded| recorded.steps.get(step));
    match old {
        Some(old) if *old != printed => {
            let warning = differs(&format!("step {step}"), old, &printed);
            (old.clone(), Some(warning))
        }
        _ => (printed, None),
    }
}

/// The result of a check as the model receives it, with a warning if its output differs from the recording. A check
/// that passes now and failed then, or the reverse, is not changed.
pub fn check(
    recorded: Option<&RecordedRun>,
    step: &StepId,
    attempt: u32,
    made: CheckResult,
) -> (CheckResult, Option<String>) {
    let key = (step.clone(), attempt, made.name.clone());
    let old = recorded
        .filter(|recorded| !recorded.strict)
        .and_then(|recorded| recorded.checks.get(&key));
    match old {
        Some(old) if old.passed == made.passed && (&old.output, &old.message) != (&made.output, &made.message) => {
            let text = |check: &CheckResult| format!("{}\n{}", check.message, check.output);
            let warning = differs(&format!("check {} of step {step}", made.name), &text(old), &text(&made));
            let told = CheckResult {
                message: old.message.clone(),
                output: old.output.clone(),
                ..made
            };
            (told, Some(warning))
        }
        _ => (made, None),
    }
}

fn differs(what: &str, old: &str, new: &str) -> String {
    format!(
        "{what} printed something different from the recording; the recorded output is used anyway\n{}",
        diff(old, new)
    )
}

fn missing() -> ToolError {
    ToolError::model(
        "replay",
        "a replay does not repeat this call, and the recording has no result for it",
    )
}

fn answer(spec: &ToolSpec, args: &Value, has_urls: bool, output: Option<&ToolOutput>) -> ResultSource {
    let failure = output.and_then(|output| output.error.as_ref());
    if failure.is_some_and(|failure| failure.kind == "interrupted") {
        return ResultSource::Recorded;
    }
    let is_background = || args.get("is_background").and_then(Value::as_bool) == Some(true);
    match spec.effects.replayed {
        _ if has_urls => ResultSource::Recorded,
        Replayed::Recorded => ResultSource::Recorded,
        Replayed::RunsSoftly if spec.kind == ToolKind::Execute && is_background() => ResultSource::RunAndSubstitute,
        Replayed::RunsSoftly => ResultSource::Soft,
        Replayed::Runs => ResultSource::Real,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn spec(name: &str) -> ToolSpec {
        if let Some(spec) = crate::tools::builtin_spec(name) {
            return spec.clone();
        }
        ToolSpec {
            name: name.to_owned(),
            display_name: String::new(),
            description: String::new(),
            kind: crate::base::call::ToolKind::Other,
            origin: crate::base::call::ToolOrigin::Discovered,
            parameters: json!({}),
            aliases: Vec::new(),
            effects: crate::base::call::ToolEffects::default(),
        }
    }

    #[test]
    fn what_cannot_be_done_twice_is_told_from_the_recording() {
        let told = |name: &str, args: Value| answer(&spec(name), &args, false, None);
        assert_eq!(told("read_file", json!({})), ResultSource::Real);
        assert_eq!(told("write_file", json!({})), ResultSource::Real);
        assert_eq!(told("grep_search", json!({})), ResultSource::Real);
        assert_eq!(told("google_web_search", json!({})), ResultSource::Recorded);
        assert_eq!(told("web_fetch", json!({})), ResultSource::Recorded);
        assert_eq!(told("save_memory", json!({})), ResultSource::Recorded);
        assert_eq!(told("read_background_output", json!({})), ResultSource::Recorded);
        assert_eq!(told("run_shell_command", json!({})), ResultSource::Soft);
        let background = json!({ "is_background": true });
        assert_eq!(told("run_shell_command", background), ResultSource::RunAndSubstitute);
        let remote = answer(&spec("docs__find"), &json!({}), true, None);
        assert_eq!(remote, ResultSource::Recorded);
        let interrupted = ToolOutput::failure("interrupted", "effect unknown");
        let again = answer(&spec("write_file"), &json!({}), false, Some(&interrupted));
        assert_eq!(again, ResultSource::Recorded, "nobody knows what it did");
    }

    fn made(passed: bool, output: &str) -> CheckResult {
        CheckResult {
            name: "tests".to_owned(),
            passed,
            what: "cargo test".to_owned(),
            message: format!("exit code {}", if passed { 0 } else { 101 }),
            output: output.to_owned(),
            exit: None,
            took_ms: 1,
            of_answer: false,
        }
    }

    #[test]
    fn output_of_checks_and_steps_is_compared_softly_and_their_verdicts_are_not() {
        let mut recorded = RecordedRun::default();
        let step = StepId::from("fix");
        recorded.steps.insert(step.clone(), "finished in 0.00s".to_owned());
        let key = (step.clone(), 1, "tests".to_owned());
        recorded.checks.insert(key, made(false, "1 failed in 0.01s"));
        let (text, warning) = step_output(Some(&recorded), &step, "finished in 0.01s".to_owned());
        assert_eq!(text, "finished in 0.00s");
        let warning = warning.unwrap();
        assert!(
            warning.contains("- finished in 0.00s\n+ finished in 0.01s"),
            "{warning}"
        );
        let (told, warning) = check(Some(&recorded), &step, 1, made(false, "1 failed in 0.02s"));
        assert_eq!((told.output.as_str(), warning.is_some()), ("1 failed in 0.01s", true));
        let (told, warning) = check(Some(&recorded), &step, 1, made(true, "ok"));
        assert_eq!(
            (told, warning),
            (made(true, "ok"), None),
            "a verdict is never taken from the recording"
        );
        let (told, _) = check(Some(&recorded), &step, 2, made(false, "x"));
        assert_eq!(told.output, "x", "of another attempt");
        recorded.strict = true;
        let (text, warning) = step_output(Some(&recorded), &step, "finished in 0.01s".to_owned());
        assert_eq!((text.as_str(), warning), ("finished in 0.01s", None));
        let (told, warning) = check(Some(&recorded), &step, 1, made(false, "other"));
        assert_eq!((told.output.as_str(), warning), ("other", None));
    }
}
