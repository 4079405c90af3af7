//! Processes the calls of one reply: look up, validate, prepare, rule, run in waves. Records each step; nothing runs
//! without a ruling.

use super::changes::HeldServers;
use super::denial;
use super::deps::Deps;
use super::exec::{self, Bounds};
use super::ledger::Ledger;
use super::modify::{self, NotRewritten};
use super::next::{call_limit, ends_the_run};
use super::preconditions::Preconditions;
use super::repeated_read;
use super::replayed_results;
use super::run_error::RunError;
use super::state::CallRecord;
use crate::base::call::{CallState, ToolKind, ToolOrigin, ToolOutput};
use crate::base::event::{Decided, EventKind};
use crate::base::ids::CallId;
use crate::base::ruling::{Decision, PolicyInput, Ruling};
use crate::policy::{self, Uses};
use crate::tools::registry::FoundTool;
use crate::tools::{PreparedCall, Tool, ToolContext, ToolError, results};
use futures_util::future::join_all;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio_util::sync::CancellationToken;

/// Upper limit for read-only calls that run in parallel.
const WAVE: usize = 8;

/// Time limit for preparing one call, and for the ruling on it.
const TIMEOUT: Duration = Duration::from_secs(60);

/// A call that may run now.
struct Ready {
    id: CallId,
    prepared: PreparedCall,
    kind: ToolKind,
    builtin: bool,
    bounds: Bounds,
    /// The MCP server to which the call goes.
    server: Option<String>,
}

/// The state of a call after its ruling.
enum Ruled {
    Ready(Box<Ready>),
    /// It has its result already: an error or a denial.
    Settled,
    /// It waits for a reviewer, a limit was reached, or its denial ends the run: no later call may run.
    Barrier,
}

/// Settles the first wave of these open calls, which are in the order of the reply.
///
/// # Errors
/// [`RunError::Environment`] if the sandbox does not hold, there is no baseline, or no further call can work;
/// [`RunError::Ended`] if the run ended while a call was prepared or ruled on; [`RunError::Journal`]. A call that fails
/// is recorded, and that is no error.
pub async fn settle(
    deps: &Deps,
    ledger: &mut Ledger,
    preconditions: &mut Preconditions,
    calls: &[CallId],
) -> Result<(), RunError> {
    let mut wave: Vec<Ready> = Vec::new();
    for id in calls {
        let Some(record) = ledger.state.calls.get(id).cloned() else {
            continue;
        };
        if record.refused {
            finish(ledger, id, Ok(ToolOutput::failure("denied", denial::REFUSED)), 0)?;
            continue;
        }
        let Some(found) = deps.tools.find(&record.call.tool) else {
            finish(ledger, id, Err(deps.tools.unknown(&record.call.tool)), 0)?;
            continue;
        };
        let joins = found.tool.spec().kind.is_read_only() && !asks_to_wait(&record);
        if !wave.is_empty() && (!joins || wave.len() == WAVE) {
            break;
        }
        match rule(deps, ledger, preconditions, &record, found, wave.len()).await? {
            Ruled::Ready(ready) => {
                wave.push(*ready);
                if !joins {
                    break;
                }
            }
            Ruled::Settled => {}
            Ruled::Barrier => break,
        }
    }
    run(deps, ledger, preconditions, wave).await
}

fn asks_to_wait(record: &CallRecord) -> bool {
    record
        .call
        .args
        .get("wait_for_previous")
        .and_then(serde_json::Value::as_bool)
        == Some(true)
}

/// Rules on a call. A call that cannot be ruled on has its error as its result.
async fn rule(
    deps: &Deps,
    ledger: &mut Ledger,
    preconditions: &mut Preconditions,
    record: &CallRecord,
    found: FoundTool<'_>,
    in_wave: usize,
) -> Result<Ruled, RunError> {
    match ruled(deps, ledger, preconditions, record, found, in_wave).await? {
        Ok(ruled) => Ok(ruled),
        Err(error) => {
            finish(ledger, &record.call.id, Err(error), 0)?;
            Ok(Ruled::Settled)
        }
    }
}

/// The inner error is for the model.
async fn ruled(
    deps: &Deps,
    ledger: &mut Ledger,
    preconditions: &mut Preconditions,
    record: &CallRecord,
    found: FoundTool<'_>,
    in_wave: usize,
) -> Result<Result<Ruled, ToolError>, RunError> {
    let (id, tool) = (&record.call.id, found.tool);
    let asked = record.modified.as_ref().unwrap_or(&record.call.args);
    // An edit that was rewritten before a person or a kill interrupted it is a whole file now.
    let preparer = match &record.modified {
        Some(args) => modify::preparer(&deps.tools, found, args),
        None => found,
    };
    let mut args = match preparer.accept(asked) {
        Ok(accepted) => accepted.args,
        Err(error) => return Ok(Err(error)),
    };
    let mut prepared = match prepare(deps, preparer.tool, &args).await? {
        Ok(prepared) => prepared,
        Err(error) => return Ok(Err(error)),
    };
    let mut ruling = if record.secret && tool.spec().effects.sends_arguments {
        denial::secret()
    } else {
        judge(deps, ledger, id, tool, &args, &prepared).await?
    };
    if record.approved && ruling.decision == Decision::Suspend {
        ruling.decision = Decision::Allow;
        ruling.code = "approved".to_owned();
        "a reviewer approved this call".clone_into(&mut ruling.reason);
    }
    if ruling.decision == Decision::Modify && record.modified.is_none() {
        preconditions.prepare_for_commands(deps, ledger).await?;
        match modify::Pipe::of(deps)?.rewrite(tool, &args, &prepared, &ruling).await {
            Ok(rewritten) => {
                record_ruling(ledger, record, tool, &prepared, ruling, Some(rewritten.clone()))?;
                let preparer = modify::preparer(&deps.tools, found, &rewritten);
                args = match preparer.accept(&rewritten) {
                    Ok(accepted) => accepted.args,
                    Err(error) => return Ok(Err(error)),
                };
                prepared = match prepare(deps, preparer.tool, &args).await? {
                    Ok(prepared) => prepared,
                    Err(error) => return Ok(Err(error)),
                };
                ruling = judge(deps, ledger, id, tool, &args, &prepared).await?;
            }
            Err(NotRewritten::Denied(denial)) => ruling = *denial,
            // Also because the run has been interrupted.
            Err(NotRewritten::NotRun(why)) => {
                return Err(deps.interrupted().map_or(RunError::Environment(why), RunError::Ended));
            }
        }
    }
    // `Modify` after the rewriting means allowed: a `modify` rule applies only to calls that an allow rule covers.
    if ruling.decision == Decision::Modify {
        ruling.decision = Decision::Allow;
    }
    let decision = ruling.decision;
    let told = denial::denial_text(&ruling, deps.policies.names());
    let decided = record_ruling(ledger, record, tool, &prepared, ruling, None)?;
    match decision {
        Decision::Deny => {
            finish(ledger, id, Ok(ToolOutput::failure("denied", told)), 0)?;
            match ends_the_run(&ledger.state, &deps.plan) {
                true => Ok(Ok(Ruled::Barrier)),
                false => Ok(Ok(Ruled::Settled)),
            }
        }
        Decision::Suspend => Ok(Ok(Ruled::Barrier)),
        Decision::Allow | Decision::Modify => {
            let name = &tool.spec().name;
            if call_limit(&ledger.state, &deps.plan, name, in_wave as u64).is_some() {
                return Ok(Ok(Ruled::Barrier));
            }
            let recorded = deps.provider.recorded();
            Ok(Ok(Ruled::Ready(Box::new(Ready {
                id: id.clone(),
                prepared: replayed_results::prepared(recorded, id, tool.spec(), &args, prepared),
                kind: tool.spec().kind,
                builtin: tool.spec().origin == ToolOrigin::Builtin,
                server: match &tool.spec().origin {
                    ToolOrigin::Mcp(server) => Some(server.clone()),
                    ToolOrigin::Builtin | ToolOrigin::Discovered => None,
                },
                bounds: exec::bounds(
                    (&deps.policies, &deps.workspace),
                    deps.scope.confinement.get(),
                    (&PolicyInput::of(tool.spec(), &args), &decided.access),
                    &decided.ruling,
                ),
            }))))
        }
    }
}

/// Runs work without effects on another thread, so that the deadline and signals are obeyed meanwhile. `None`: it took
/// longer than [`TIMEOUT`].
///
/// # Errors
/// The run ended first.
async fn aside<T: Send + 'static>(
    deps: &Deps,
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<Option<T>, RunError> {
    let until = deps.deadline().min(Instant::now() + TIMEOUT);
    if let Some(done) = waited_for(until, &deps.interrupt.token, work).await {
        return Ok(Some(done));
    }
    deps.interrupted()
        .map_or(Ok(None), |outcome| Err(RunError::Ended(outcome)))
}

/// The result of work on another thread. `None`: it was not there at `until`, or waiting was cancelled. Then the work is
/// abandoned: nobody waits for it, and the process may end before it does.
async fn waited_for<T: Send + 'static>(
    until: Instant,
    cancel: &CancellationToken,
    work: impl FnOnce() -> T + Send + 'static,
) -> Option<T> {
    let task = tokio::task::spawn_blocking(work);
    tokio::select! {
        biased;
        done = task => match done.map_err(tokio::task::JoinError::try_into_panic) {
            Ok(done) => Some(done),
            Err(Ok(panic)) => std::panic::resume_unwind(panic),
            Err(Err(_)) => None,
        },
        () = cancel.cancelled() => None,
        () = tokio::time::sleep_until(until.into()) => None,
    }
}

/// What the tool says about a call; the error is for the model.
async fn prepare(
    deps: &Deps,
    tool: &Arc<dyn Tool>,
    args: &serde_json::Value,
) -> Result<Result<PreparedCall, ToolError>, RunError> {
    let (workspace, tool, args) = (Arc::clone(&deps.workspace), Arc::clone(tool), args.clone());
    let prepared = aside(deps, move || tool.prepare(&args, &workspace)).await?;
    Ok(prepared.unwrap_or_else(|| {
        let message = format!(
            "the call could not be prepared within {} s; nothing was done. Split it into several calls",
            TIMEOUT.as_secs()
        );
        Err(ToolError::model("timeout", message))
    }))
}

async fn judge(
    deps: &Deps,
    ledger: &Ledger,
    call: &CallId,
    tool: &Arc<dyn Tool>,
    args: &serde_json::Value,
    prepared: &PreparedCall,
) -> Result<Ruling, RunError> {
    let (policies, workspace, tool) = (
        Arc::clone(&deps.policies),
        Arc::clone(&deps.workspace),
        Arc::clone(tool),
    );
    let (args, access) = (args.clone(), prepared.access.clone());
    let uses = Uses {
        counts: ledger.state.uses_by_others(call),
    };
    let witness = exec::is_witnessed(&deps.policies, deps.scope.confinement.get());
    let ruling = aside(deps, move || {
        let asked = PolicyInput::of(tool.spec(), &args);
        workspace.with_fs_view(|fs_view| policy::decide_with(&policies, &asked, &access, fs_view, &uses, witness))
    });
    Ok(ruling.await?.unwrap_or_else(denial::too_slow))
}

fn record_ruling(
    ledger: &mut Ledger,
    record: &CallRecord,
    tool: &Arc<dyn Tool>,
    prepared: &PreparedCall,
    ruling: Ruling,
    modified: Option<serde_json::Value>,
) -> Result<Box<Decided>, RunError> {
    let spec = tool.spec();
    let decided = Box::new(Decided {
        call: record.call.id.clone(),
        tool: spec.name.clone(),
        title: prepared.title.clone(),
        access: prepared.access.clone(),
        read_only: spec.kind.is_read_only(),
        modified,
        preview: match ruling.decision {
            Decision::Suspend => prepared.preview.clone(),
            _ => None,
        },
        ruling,
    });
    ledger.record(EventKind::Decided(decided.clone()))?;
    Ok(decided)
}

async fn run(
    deps: &Deps,
    ledger: &mut Ledger,
    preconditions: &mut Preconditions,
    wave: Vec<Ready>,
) -> Result<(), RunError> {
    let Some(first) = wave.first() else {
        return Ok(());
    };
    if !first.builtin || matches!(first.kind, ToolKind::Execute) {
        preconditions.prepare_for_commands(deps, ledger).await?;
    } else if !first.kind.is_read_only() {
        preconditions.prepare_for_effects(ledger).await?;
    }
    let is_approved = ledger.state.calls.get(&first.id).is_some_and(|record| record.approved);
    if !is_approved || first.kind.is_read_only() {
        return started(deps, ledger, wave).await;
    }
    // A reviewer approved this call, so its changes need no rule, and servers must not write meanwhile. It is alone in
    // its wave.
    let held = HeldServers::hold(deps, ledger, preconditions, first.server.as_deref()).await?;
    let done = started(deps, ledger, wave).await;
    held.release(deps, ledger, preconditions, done).await
}

/// Starts these calls and records how they end.
async fn started(deps: &Deps, ledger: &mut Ledger, wave: Vec<Ready>) -> Result<(), RunError> {
    for ready in &wave {
        ledger.record(EventKind::CallStarted { call: ready.id.clone() })?;
    }
    if wave.iter().any(|ready| !ready.kind.is_read_only()) {
        ledger.sync()?;
    }
    let live = ledger.live();
    let running = wave.into_iter().map(|ready| {
        let context = ToolContext {
            call: ready.id.clone(),
            workspace: Arc::clone(&deps.workspace),
            scope: Arc::clone(&deps.scope),
            cancel: deps.interrupt.token.child_token(),
            deadline: deps.deadline().min(Instant::now() + deps.command_time),
            live: live.clone(),
            writes: ready.bounds.writes,
            judge: ready.bounds.judge,
        };
        async move {
            let begun = Instant::now();
            let reads = ready.builtin && matches!(ready.kind, ToolKind::Read | ToolKind::Search);
            let result = one(ready.prepared, context).await;
            (ready.id, result, begun.elapsed().as_millis() as u64, reads)
        }
    });
    for (id, result, took_ms, reads) in ledger.watch(join_all(running)).await {
        let result = match result {
            Ok(output) if reads => Ok(repeated_read::shortened(&ledger.state, &id, output)),
            result => result,
        };
        finish(ledger, &id, result, took_ms)?;
    }
    super::effects::notice(deps, ledger)?;
    Ok(ledger.sync_behind()?)
}

/// Runs one call. A tool that does not return soon after its cancellation is abandoned.
async fn one(prepared: PreparedCall, context: ToolContext) -> Result<ToolOutput, ToolError> {
    let deadline = context.deadline + Duration::from_secs(2);
    let cancel = context.cancel.clone();
    let fitted = context.clone();
    let work = (prepared.work)(context);
    tokio::select! {
        biased;
        done = work => results::fit(done?, &fitted),
        () = cancelled_for_long(&cancel) => Err(ToolError::model("cancelled", "the run was cancelled")),
        () = tokio::time::sleep_until(deadline.into()) => {
            Err(ToolError::model("timeout", "the call took too long and was abandoned"))
        }
    }
}

/// Waits a moment after the cancellation, so that a tool can end its child processes first.
async fn cancelled_for_long(cancel: &CancellationToken) {
    cancel.cancelled().await;
    tokio::time::sleep(Duration::from_secs(2)).await;
}

fn finish(
    ledger: &mut Ledger,
    id: &CallId,
    result: Result<ToolOutput, ToolError>,
    took_ms: u64,
) -> Result<(), RunError> {
    let (state, output) = match result {
        Ok(output) if output.error.is_none() => (CallState::Success, output),
        Ok(output) => (CallState::Error, output),
        Err(ToolError::Model {
            kind: "cancelled",
            message,
        }) => (CallState::Cancelled, ToolOutput::failure("cancelled", message)),
        Err(ToolError::Model { kind, message }) => (CallState::Error, ToolOutput::failure(kind, message)),
        Err(ToolError::Fatal(message)) => {
            let output = ToolOutput::failure("fatal", message.clone());
            ledger.record(EventKind::CallFinished {
                call: id.clone(),
                state: CallState::Error,
                output: Box::new(output),
                took_ms,
            })?;
            return Err(RunError::Environment(message));
        }
    };
    exec::record(ledger, id, &output)?;
    Ok(ledger.record(EventKind::CallFinished {
        call: id.clone(),
        state,
        output: Box::new(output),
        took_ms,
    })?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nobody_waits_for_work_beyond_the_deadline_or_a_signal() {
        const LONG: Duration = Duration::from_secs(20);
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        let slow = || std::thread::sleep(LONG);
        let (open, cancelled) = (CancellationToken::new(), CancellationToken::new());
        cancelled.cancel();
        let begun = Instant::now();
        let soon = begun + Duration::from_millis(50);
        assert_eq!(runtime.block_on(waited_for(soon, &open, slow)), None);
        assert_eq!(runtime.block_on(waited_for(begun + 10 * LONG, &cancelled, slow)), None);
        assert!(begun.elapsed() < LONG);
        // The control: work that ends in time.
        let done = runtime.block_on(waited_for(begun + 10 * LONG, &open, || 7));
        assert_eq!(done, Some(7));
        runtime.shutdown_background();
    }
}
