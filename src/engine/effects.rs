//! Executes each `Next` of the loop as one effect and records it.

use super::changes::{self, HeldServers};
use super::checks::{self, AuthorCommand};
use super::deps::Deps;
use super::exec::{self, ChangedBy};
use super::ledger::Ledger;
use super::next;
use super::preconditions::{self, Preconditions};
use super::prompt;
use super::replayed_results;
use super::response::{self, InSentence};
use super::run_error::RunError;
use super::verdict;
use crate::base::access::ResolvedPath;
use crate::base::event::{EventKind, PromptReason, UNMEASURED};
use crate::base::grant::{codes, described};
use crate::base::ids::CallId;
use crate::base::message::{self, Message, Part, Role};
use crate::base::outcome::{CheckResult, RunOutcome, Verdict};
use crate::base::quote::counted;
use crate::base::secret::shortened;
use crate::journal::JournalError;
use crate::policy::Author;
use crate::process;
use crate::process::sides::Side;
use crate::recipe::plan::{CheckWhat, PlanStep, StepWork};
use crate::recipe::template;
use crate::tools::notices::LateAuthor;
use crate::workspace::at_references;
use std::time::{Duration, Instant, SystemTime};

/// Said of a run whose tree could not be read in the short time after its end.
const UNRECORDED: &str =
    "what changed since the last snapshot of the tree is in no patch and was not checked against the policy";

/// Records that a step begins.
///
/// # Errors
/// [`RunError::Environment`] if the plan has no step of this index; [`RunError::Journal`].
pub fn begin(deps: &Deps, ledger: &mut Ledger, index: usize) -> Result<(), RunError> {
    let step = step(deps, index)?;
    let wanted = next::condition_holds(&ledger.state, &deps.plan, step).unwrap_or(false);
    let run = match &step.work {
        StepWork::Run { .. } if !wanted => None,
        // If the command cannot be rendered, the error is reported when the command runs.
        StepWork::Run { command, .. } => {
            let filled = command_text(deps, ledger, &format!("step {}", step.id), command);
            Some(filled.unwrap_or_else(|_| command.clone()))
        }
        StepWork::Prompt { .. } => None,
    };
    Ok(ledger.record(EventKind::StepStarted {
        step: step.id.clone(),
        index,
        total: deps.plan.steps.len(),
        run,
    })?)
}

fn step(deps: &Deps, index: usize) -> Result<&PlanStep, RunError> {
    let step = deps.plan.steps.get(index);
    step.ok_or_else(|| RunError::Environment(format!("the plan has no step {index}")))
}

/// Upper limit in bytes for a command with its values filled in. It is below the kernel's limit for one argument
/// (`MAX_ARG_STRLEN`, 128 KiB), because the shell gets a little more than this text.
const COMMAND_BYTES: usize = 120 << 10;

/// A command's text with the outputs of earlier steps filled in, quoted for the shell.
///
/// # Errors
/// [`RunError::Ended`] if the text cannot be rendered, is too long for a shell, or is empty, which a shell would report
/// as success.
fn command_text(deps: &Deps, ledger: &Ledger, what: &str, text: &str) -> Result<String, RunError> {
    let filled = template::render_command(text, &deps.plan.scope(&ledger.state.outputs)).map_err(unrendered)?;
    if filled.len() > COMMAND_BYTES {
        let message = format!(
            "the command of {what} is longer than {} KiB with its values filled in, which no program can be started with: let the \
             earlier step write a file, and read that in the command (it begins `{}`)",
            COMMAND_BYTES >> 10,
            shortened(text.trim(), 60)
        );
        return Err(RunError::Ended(RunOutcome::new(Verdict::Invalid, "template", message)));
    }
    match template::is_empty_command(&filled) {
        true => Err(empty(&format!("the command of {what}"))),
        false => Ok(filled),
    }
}

/// The end of a run whose command or prompt is empty once its values are filled in.
fn empty(what: &str) -> RunError {
    let message =
        format!("{what} is empty once its values are filled in; write `when` so that the step is skipped then");
    RunError::Ended(RunOutcome::new(Verdict::Invalid, "template", message))
}

fn unrendered(error: template::TemplateError) -> RunError {
    RunError::Ended(RunOutcome::new(Verdict::Invalid, "template", error.to_string()))
}

/// Code of the warning about a step that may have waited for a stopped server.
const SERVERS_STOPPED: &str = "servers_stopped";

/// Runs the command of a `run` step.
///
/// # Errors
/// [`RunError::Environment`] if the step is not a `run` step, its command cannot be rendered, or the sandbox does not
/// hold; [`RunError::Ended`] if the run was interrupted or a program is missing; [`RunError::Journal`].
pub async fn run_command(deps: &Deps, ledger: &mut Ledger, preconditions: &mut Preconditions) -> Result<(), RunError> {
    let step = step(deps, ledger.state.step)?;
    let StepWork::Run {
        command,
        timeout_ms,
        allow_failure,
    } = &step.work
    else {
        return Err(RunError::Environment("a prompt step has no command".to_owned()));
    };
    preconditions.prepare_for_commands(deps, ledger).await?;
    let command = command_text(deps, ledger, &format!("step {}", step.id), command)?;
    let what = AuthorCommand {
        text: &command,
        time: Duration::from_millis(*timeout_ms),
        stdin: None,
        is_answer: step.checks_answer(),
        is_check: false,
    };
    let held = HeldServers::hold(deps, ledger, preconditions, None).await?;
    ledger.sync()?;
    let done = run_step(deps, ledger, step, what, (*allow_failure, held.names())).await;
    held.release(deps, ledger, preconditions, done).await
}

async fn run_step(
    deps: &Deps,
    ledger: &mut Ledger,
    step: &PlanStep,
    what: AuthorCommand<'_>,
    (allow_failure, stopped): (bool, Option<String>),
) -> Result<(), RunError> {
    let command = what.text.to_owned();
    let finished = checks::command(deps, ledger, what).await?;
    // The end of a command that was cut short is not recorded; what it wrote until then is in the patch nevertheless.
    ledger.state.wrote(Author::TrustedStep);
    let interrupted = deps.interrupted();
    if !finished.undone.is_empty() {
        let code = codes(&finished.undone).first().copied().unwrap_or_default();
        let message = format!("step {}: changed {}", step.id, described(&finished.undone));
        ledger.warn(code, message)?;
        let mut undone = finished.undone.clone();
        // A resume runs a command again that was cut short. Changes that could not be undone are recorded even then.
        undone.retain(|one| interrupted.is_none() || !one.restored);
        exec::record_undone(ledger, &ChangedBy::Step(&step.id), &undone)?;
    }
    if let Some(outcome) = interrupted {
        return Err(RunError::Ended(outcome));
    }
    if finished.exit.timed_out
        && let Some(names) = stopped
    {
        let message = format!("step {} ran out of time; {}", step.id, changes::may_have_waited(&names));
        ledger.warn(SERVERS_STOPPED, message)?;
    }
    stop_if_missing(deps, ledger, &format!("step {}", step.id), &command, &finished)?;
    let goes_on = allow_failure || finished.exit.code == Some(0);
    let cut = finished.stdout.cut || (finished.stderr.cut && !(step.checks_answer() && goes_on));
    let printed = match step.checks_answer() && goes_on {
        true => finished.stdout.text.clone(),
        // A failed step reports everything that was printed.
        false => format!("{}{}", finished.stdout.text, finished.stderr.text),
    };
    let (output, differs) = replayed_results::step_output(deps.provider.recorded(), &step.id, printed);
    warn_of(ledger, differs)?;
    let mut exit = finished.exit.clone();
    if !finished.undone.is_empty() {
        // A step that changed protected paths has failed, even if its exit code is 0.
        exit.code = exit.code.filter(|code| *code != 0).or(Some(126));
    }
    ledger.record(EventKind::Ran {
        step: step.id.clone(),
        command,
        exit,
        output,
        cut,
        took_ms: finished.took.as_millis() as u64,
    })?;
    Ok(ledger.sync_behind()?)
}

/// Code of the warning, made once per run, and reason of the outcome for a program that a command did not find.
const PROGRAM_MISSING: &str = "program_missing";

/// If a program of a command is missing, its end says nothing about the task: the run ends and names what to install or
/// allow. The result must not be recorded, so that a resume runs the command again. Where the author may have foreseen
/// it, there is only a warning. `what`: the name of the command for people; `text`: its text.
fn stop_if_missing(
    deps: &Deps,
    ledger: &mut Ledger,
    what: &str,
    text: &str,
    finished: &process::Finished,
) -> Result<(), RunError> {
    if !finished.undone.is_empty() {
        return Ok(());
    }
    let confinement = preconditions::confinement(deps)?.of_side(Side::Author);
    let finds = |name: &str| confinement.finds_program(name);
    let Some(program) = checks::program_missing(text, finished, &deps.workspace, &finds) else {
        return Ok(());
    };
    let name = program.name;
    if program.is_foreseen {
        if !ledger.state.warned.contains(PROGRAM_MISSING) {
            let message = format!("{what} did not find `{name}`; its result is that of what follows `||`");
            ledger.warn(PROGRAM_MISSING, message)?;
        }
        return Ok(());
    }
    let help = checks::local_program(name, deps.workspace.root()).unwrap_or_else(|| {
        "install it on this machine, name its toolchain under `sandbox.toolchains` in the policy, or for an isolated run its \
         directory under `isolate.keep` in the recipe"
            .to_owned()
    });
    let message = format!("{what} could not run: `{name}` is not available to commands, or cannot be executed; {help}");
    Err(RunError::Ended(RunOutcome::new(
        Verdict::Environment,
        PROGRAM_MISSING,
        message,
    )))
}

/// If the end of the run cut a wait short, the result is meaningless and must not be recorded.
fn stop_if_interrupted(deps: &Deps) -> Result<(), RunError> {
    match deps.interrupted() {
        Some(outcome) => Err(RunError::Ended(outcome)),
        None => Ok(()),
    }
}

/// Adds a message to the model and records it.
///
/// # Errors
/// [`RunError::Environment`] if the step is not a prompt step, or its prompt cannot be rendered or made;
/// [`RunError::Journal`].
pub fn record_prompt(deps: &Deps, ledger: &mut Ledger, why: PromptReason) -> Result<(), RunError> {
    let state = &ledger.state;
    let text = match why {
        PromptReason::Task => {
            let step = step(deps, state.step)?;
            let StepWork::Prompt { template, mcp } = &step.work else {
                return Err(RunError::Environment("a command step has no prompt".to_owned()));
            };
            let mut text = template::render(template, &deps.plan.scope(&state.outputs)).map_err(unrendered)?;
            if text.trim().is_empty() && mcp.is_none() {
                return Err(empty(&format!("the prompt of step {}", step.id)));
            }
            text.push_str(&prompt::answer_schemas(step));
            let author = template::render_author(template, &deps.plan.scope(&state.outputs)).map_err(unrendered)?;
            let given = state.prompts.iter().find(|given| given.step == step.id);
            let parts = prompt::task(mcp.as_ref(), given, text).map_err(RunError::Environment)?;
            return task(deps, ledger, parts, &author);
        }
        PromptReason::Feedback => {
            let unruled = state.patch.iter().flat_map(|patch| &patch.unruled);
            let back = unruled
                .filter(|unruled| unruled.restored)
                .map(|unruled| unruled.path.as_str());
            let back = back.collect::<Vec<_>>();
            let before = state.progress.replies.before.as_ref();
            let text = prompt::feedback(&state.progress.checks, &back, before, state.progress.fresh.is_some());
            if let Some(task) = &state.progress.fresh {
                let mut message = task.clone();
                message.parts.push(Part::text(text));
                return Ok(ledger.record(EventKind::Prompted { message, why })?);
            }
            text
        }
        PromptReason::Repair => {
            let errors = state.progress.judged.as_deref().unwrap_or_default();
            let printed = state.progress.replies.printed.as_deref();
            response::repair(
                errors,
                deps.plan.response.as_ref().unwrap_or(&serde_json::Value::Null),
                printed,
            )
        }
        PromptReason::Nudge => prompt::nudge(state),
        PromptReason::Printed => {
            let tool = state.progress.replies.printed.as_deref().unwrap_or_default();
            prompt::printed(tool, deps.plan.response.is_some())
        }
        PromptReason::Empty => prompt::EMPTY.to_owned(),
        PromptReason::Retry => {
            let call = match &state.stop {
                Some(message::StopReason::Length { call }) => call.as_deref(),
                _ => None,
            };
            prompt::shorter(call, state.progress.replies.output_tokens)
        }
        PromptReason::Echo => prompt::ECHO.to_owned(),
        PromptReason::Idle => prompt::idle(state.progress.idle),
    };
    Ok(ledger.record(EventKind::Prompted {
        message: Message::user(text),
        why,
    })?)
}

/// Gives the model its task, with the files that the author's text refers to.
fn task(deps: &Deps, ledger: &mut Ledger, mut parts: Vec<Part>, author: &str) -> Result<(), RunError> {
    let may_read = |place: &ResolvedPath| deps.policies.may_show(place);
    let attached = at_references::attach(&deps.workspace, author, &may_read);
    for message in attached.warnings {
        ledger.warn("reference", message)?;
    }
    parts.extend(attached.parts);
    let role = Role::User;
    Ok(ledger.record(EventKind::Prompted {
        message: Message { role, parts },
        why: PromptReason::Task,
    })?)
}

/// Records a warning if the output in a replay differs from the recording.
fn warn_of(ledger: &mut Ledger, differs: Option<String>) -> Result<(), RunError> {
    let Some(message) = differs else { return Ok(()) };
    Ok(ledger.warn(replayed_results::WARNING, message)?)
}

/// Measures the tree. Before checks, and at the end of the last step, background commands that may write the workspace are
/// killed first, so that the result does not depend on timing.
///
/// # Errors
/// As for [`changes::measure`].
pub async fn measure(deps: &Deps, ledger: &mut Ledger, preconditions: &mut Preconditions) -> Result<(), RunError> {
    if next::ends_writers(&ledger.state, &deps.plan) {
        end_writers(deps, ledger).await?;
    }
    changes::measure(deps, ledger, preconditions).await
}

/// Ends the background commands that may write the workspace, and records what they did. Returns whether the tree must be
/// measured again: one was running, or one has ended that is recorded only now.
async fn end_writers(deps: &Deps, ledger: &mut Ledger) -> Result<bool, RunError> {
    let ended = deps.scope.jobs.kill_writing().await;
    if !ended.is_empty() {
        let has_checks = step(deps, ledger.state.step).is_ok_and(|step| !step.checks.is_empty());
        let when = if has_checks {
            "before the checks"
        } else {
            "at the end of the run"
        };
        let names: Vec<String> = ended.iter().map(|number| format!("job{number}")).collect();
        let message = format!(
            "background commands that may write were ended {when}: {}",
            names.join(", ")
        );
        ledger.warn("jobs", message)?;
    }
    let wrote = exec::record_ended_jobs(deps, ledger)?;
    Ok(wrote || !ended.is_empty())
}

/// Performs the check with this index. Background commands that may write the workspace are ended before: one could show
/// a check another tree than the one that was measured. If there were any, the tree is measured again instead, and the
/// check is made next. What the check itself changes is put back when it has ended.
///
/// # Errors
/// [`RunError::Environment`] if there is no such step or check, its command cannot be rendered or started, or the tree
/// cannot be read; [`RunError::Ended`] if the run was interrupted, a program is missing, or what the check changed
/// could not be put back; [`RunError::Journal`]. A check that fails is no error.
pub async fn check(
    deps: &Deps,
    ledger: &mut Ledger,
    preconditions: &mut Preconditions,
    index: usize,
) -> Result<(), RunError> {
    let step = step(deps, ledger.state.step)?;
    let Some(check) = step.checks.get(index) else {
        return Err(RunError::Environment(format!("step {} has no check {index}", step.id)));
    };
    if end_writers(deps, ledger).await? {
        return changes::measure(deps, ledger, preconditions).await;
    }
    let (mut put_back, mut put_back_patch) = (None, None);
    let result = match &check.what {
        CheckWhat::Run { command, timeout_ms } | CheckWhat::AnswerRun { command, timeout_ms } => {
            preconditions.prepare_for_commands(deps, ledger).await?;
            let text = command_text(deps, ledger, &format!("check {}", check.name), command)?;
            let of_answer = check.what.is_of_answer();
            let what = AuthorCommand {
                text: &text,
                time: Duration::from_millis(*timeout_ms),
                stdin: of_answer.then(|| next::answer(&ledger.state, &deps.plan)),
                is_answer: false,
                is_check: true,
            };
            // Until its changes are put back, nothing else may write.
            let held = HeldServers::hold(deps, ledger, preconditions, None).await?;
            ledger.sync()?;
            let begun = SystemTime::now();
            let finished = checks::command(deps, ledger, what).await;
            // Also where the check did not finish.
            let changed = changes::undo_check(deps, &ledger.state, &check.name, begun).await;
            let changed = match changed {
                // The reason why the check did not finish has precedence.
                Err(_) if finished.is_err() => changes::RevertedTree::default(),
                changed => changed?,
            };
            let put_back_before = ledger.state.put_back_after.clone();
            // The end of a check that was cut short is not recorded.
            ledger
                .state
                .note_put_back(&check.name, &changed.paths, changed.patch.as_deref());
            let finished = finished?;
            (put_back, put_back_patch) = (Some(changed.paths), changed.patch);
            exec::record_undone(ledger, &ChangedBy::Check(&step.id), &finished.undone)?;
            stop_if_interrupted(deps)?;
            stop_if_missing(deps, ledger, &format!("check {}", check.name), &text, &finished)?;
            let made = CheckResult {
                of_answer,
                ..checks::of_command(&check.name, &text, &finished)
            };
            let mut made = checks::with_missing_file(made, &put_back_before, &deps.workspace);
            if finished.exit.timed_out
                && let Some(names) = held.names()
            {
                made.message
                    .push_str(&format!("; {}", changes::may_have_waited(&names)));
            }
            let attempt = ledger.state.progress.attempt;
            let (mut made, differs) = replayed_results::check(deps.provider.recorded(), &step.id, attempt, made);
            warn_of(ledger, differs)?;
            if let Some(woken) = held.woken() {
                made.passed = false;
                made.message = format!("{woken} while the check ran, so it says nothing about the tree");
            }
            made
        }
        CheckWhat::Changed(bounds) => checks::of_changes(&check.name, bounds, ledger.state.patch.as_ref()),
        CheckWhat::File { path, contains } => {
            let made = checks::of_file(&check.name, path, contains.as_deref(), &deps.workspace);
            checks::with_missing_file(made, &ledger.state.put_back_after, &deps.workspace)
        }
        CheckWhat::AnswerSchema { schema } => {
            checks::of_answer(&check.name, &next::answer(&ledger.state, &deps.plan), schema)
        }
    };
    ledger.record(EventKind::Checked {
        step: step.id.clone(),
        attempt: ledger.state.progress.attempt,
        check: result,
        put_back,
        put_back_patch,
    })?;
    Ok(ledger.sync_behind()?)
}

/// Validates the answer against the response schema.
///
/// # Errors
/// [`RunError::Journal`] only: an answer that does not match is recorded.
pub fn judge(deps: &Deps, ledger: &mut Ledger) -> Result<(), RunError> {
    let schema = deps.plan.response.as_ref().unwrap_or(&serde_json::Value::Bool(true));
    // A model that answers in a sentence even after it was told not to, or that is not asked again, has no other answer.
    let in_sentence = match ledger.state.progress.repairs > 0 || deps.plan.response_retries == 0 {
        true => InSentence::Accepted,
        false => InSentence::Refused,
    };
    let judged = response::judge(&ledger.state.answer, schema, in_sentence);
    Ok(ledger.record(EventKind::ResponseJudged {
        ok: judged.is_ok(),
        errors: judged.as_ref().err().cloned().unwrap_or_default(),
        output: judged.ok(),
    })?)
}

/// Settles a call that was running when the process ended: the model receives an error, and the call is never run
/// again.
///
/// # Errors
/// [`RunError::Journal`].
pub fn interrupted(ledger: &mut Ledger, call: CallId) -> Result<(), RunError> {
    let message = "interrupted; effect unknown. Check the current state before you repeat the call.";
    Ok(ledger.record(EventKind::CallFinished {
        call,
        state: crate::base::call::CallState::Error,
        output: Box::new(crate::base::call::ToolOutput::failure("interrupted", message)),
        took_ms: 0,
    })?)
}

/// Records the notices that tools made in addition to their results, and what MCP servers changed without a grant.
///
/// # Errors
/// [`JournalError`] if an event cannot be recorded.
pub fn notice(deps: &Deps, ledger: &mut Ledger) -> Result<(), JournalError> {
    for notice in deps.scope.notices.take() {
        ledger.warn(notice.code, notice.message)?;
    }
    for (by, undone) in deps.scope.notices.take_undone() {
        let by = match &by {
            LateAuthor::Server(name) => ChangedBy::Server(name),
            LateAuthor::Call(call) => ChangedBy::Call(call),
        };
        exec::record_undone(ledger, &by, &undone)?;
    }
    Ok(())
}

/// Ends the run: kills its background commands, records what they did, and measures its changes one last time.
///
/// # Errors
/// [`JournalError`] if an event cannot be recorded or the journal cannot be synced. All other errors become part of the
/// outcome.
pub async fn finish(
    deps: &Deps,
    ledger: &mut Ledger,
    preconditions: &mut Preconditions,
    outcome: RunOutcome,
) -> Result<(), JournalError> {
    // The time of a step does not cover the end of the run.
    deps.interrupt.limit_step(None);
    deps.scope.jobs.kill_all().await;
    deps.scope.servers.close().await;
    exec::record_ended_jobs(deps, ledger)?;
    notice(deps, ledger)?;
    let mut outcome = outcome;
    // A background command may have written since the last measurement, even if it has already ended.
    let wrote = !deps.scope.jobs.list().is_empty() || deps.plan.tools.starts_programs();
    match changes::settle(deps, ledger, preconditions, wrote).await {
        Ok(()) => {}
        Err(RunError::Journal(error)) => return Err(error),
        Err(RunError::Ended(other)) => outcome = outcome.and(other),
        Err(RunError::Environment(why)) => {
            let cut_off = deps.cut_off();
            let message = match &cut_off {
                Some(_) => format!("{UNRECORDED}: {why}"),
                None => why,
            };
            ledger.warn(UNMEASURED, message.clone())?;
            match cut_off {
                Some(ended) => {
                    outcome = outcome.and(ended);
                    outcome.message = format!("{}; {message}", outcome.message);
                }
                None => outcome = outcome.and(RunOutcome::new(Verdict::Environment, UNMEASURED, message)),
            }
        }
    }
    if outcome.verdict.is_success() && !ledger.state.stale() {
        outcome = verdict::outcome(&ledger.state, &deps.plan);
    }
    if let Some(told) = process::survivors::message(deps.workspace.root()) {
        outcome = outcome.and(RunOutcome::new(Verdict::Environment, "environment", told));
    }
    // What ended only now may have been denied, too.
    if let Some(ending) = verdict::early_end(&ledger.state, &deps.plan) {
        outcome = outcome.and(ending);
    }
    if outcome.verdict.is_success()
        && let Some(step) = verdict::skipped_answer(&ledger.state, &deps.plan)
    {
        let message = format!(
            "the answer that `response` describes is null: step {}, which gives it, was skipped by its `when`. Write the recipe so \
             that its last step with a `prompt` is never skipped, or let the reader of the answer expect null",
            step.id
        );
        ledger.warn("no_output", message)?;
    }
    let edits = ledger.state.edits;
    if outcome.verdict == Verdict::NoChange && edits.done == 0 && edits.failed > 0 {
        let calls = counted(edits.failed, "call");
        let message = format!("no edit succeeded: {calls} of tools that edit files failed, and nothing was changed");
        ledger.warn("edits_failed", message)?;
    }
    changes::warn_left_out_of_patch(deps, ledger, &mut outcome).await?;
    if let Some(warning) = (deps.last_warning)() {
        ledger.record(warning)?;
    }
    let spent = ledger.state.spent.clone();
    ledger.record(EventKind::RunFinished { outcome, spent })?;
    ledger.sync_with_head()
}

/// Elapsed time in milliseconds.
pub fn since(begun: Instant) -> u64 {
    begun.elapsed().as_millis() as u64
}
