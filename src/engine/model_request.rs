//! Sends one request to the model and records its reply; also shortens the history when it is too long.

use super::compact::{self, Compaction};
use super::deps::Deps;
use super::effects::since;
use super::history_size::{parts_size, size};
use super::ledger::Ledger;
use super::next;
use super::prompt::Digests;
use super::run_error::RunError;
use super::state::RunState;
use crate::base::budget::Spent;
use crate::base::call::ToolSpec;
use crate::base::event::{DiscardedReply, EventKind, Summarised};
use crate::base::ids::CallId;
use crate::base::message::{Message, Part, Reply, StopReason, Usage};
use crate::base::outcome::{RunOutcome, Verdict};
use crate::base::sync::lock;
use crate::provider::{AskContext, Discarded, FailedAttempt, ModelRequest, ProviderClass, ProviderError};
use crate::recipe::Plan;
use crate::tools::results;
use std::borrow::Cow;
use std::sync::Arc;
use std::sync::Mutex;
use std::time::Instant;

/// Code of the warning that another model of the list answers from here on.
const FALLBACK: &str = "model_fallback";
/// Code of the warning for a service that reports too few prompt tokens.
const SHORT_COUNT: &str = "prompt_tokens";
/// Code of the warning for a service that sends no usable counts of tokens.
const NO_COUNT: &str = "usage";
/// Code of the warning for a reply that ended with a reason this program does not know.
const UNKNOWN_END: &str = "finish_reason";
/// Upper bound for bytes per token, averaged over a whole request. Code and prose have 3 to 4.5.
const BYTES_A_TOKEN_AT_MOST: u64 = 8;

/// A request that the service refused for its length.
pub struct Refused {
    /// Digest of the request.
    digest: String,
    /// Context window of the model in tokens, if the service reported it.
    window: Option<u64>,
}

/// The parts of a request that stay the same for the whole run.
pub struct RequestContext {
    specs: Vec<ToolSpec>,
    digests: Digests,
    system: String,
    /// Bytes of the system prompt, and of the tool declarations as JSON.
    frame: (u64, u64),
}

impl RequestContext {
    /// Builds them from the tools and prompts of this run, without secrets: files of the repository are part of the
    /// system prompt, and servers and discovery commands, which know the secrets passed to them, describe their tools.
    pub fn new(deps: &Deps) -> Self {
        let mut specs: Vec<ToolSpec> = deps.tools.declared();
        let system = deps.redactor.redact(&deps.system).into_owned();
        for spec in &mut specs {
            if let Cow::Owned(redacted) = deps.redactor.redact(&spec.description) {
                spec.description = redacted;
            }
            deps.redactor.redact_json(&mut spec.parameters);
        }
        let digests = Digests::new(&system, &specs, deps.plan.response.as_ref());
        let declared: usize = specs
            .iter()
            .map(|spec| spec.name.len() + spec.description.len() + spec.parameters.to_string().len())
            .sum();
        let frame = (system.len() as u64, declared as u64);
        Self {
            specs,
            digests,
            system,
            frame,
        }
    }

    /// Sends one request and records the reply, or shortens the history if the request is too long.
    ///
    /// # Errors
    /// [`RunError::Ended`]: the model cannot be asked, the request stays too long, or the run was interrupted.
    pub async fn ask(&mut self, deps: &Deps, ledger: &mut Ledger) -> Result<(), RunError> {
        // The ledger is borrowed mutably while the request is under way, to show progress events.
        let history = Arc::clone(&ledger.state.history);
        let digest = self.digests.of(&history, ledger.state.epoch);
        let request = ModelRequest {
            turn: ledger.state.spent.turns + 1,
            system: &self.system,
            tools: &self.specs,
            messages: &history,
            epoch: ledger.state.epoch,
            response: deps.plan.response.as_ref(),
            answer_only: ledger.state.progress.replies.repairing,
            digest: &digest,
        };
        let bytes = self.bytes(&ledger.state);
        let answer = once(deps, ledger, &request, bytes).await;
        let turn = request.turn;
        // The last other owner: the reply is added to the history without copying it.
        drop(history);
        let mut given = match answer? {
            Ok(given) => given,
            Err(error) => {
                let overflow = error.class == ProviderClass::ContextOverflow;
                let first = overflow && ledger.state.overflows == 0;
                return match compact::forced(&ledger.state).filter(|_| first) {
                    Some(how) => {
                        let refused = Refused {
                            digest,
                            window: error.window,
                        };
                        self.compact(deps, ledger, &how, Some(refused)).await
                    }
                    None if overflow => Err(failure(deps, self.too_long(ledger, error))),
                    None => Err(failure(deps, error)),
                };
            }
        };
        let warnings = [
            (SHORT_COUNT, self.counted_short(deps, ledger, &given.reply)),
            (NO_COUNT, not_counted(deps, ledger, &given.reply)),
            (UNKNOWN_END, unknown_end(ledger, &given.reply)),
        ];
        number_calls(&mut given.reply, ledger.state.calls_asked);
        let secrets = calls_with_secrets(deps, &given.reply);
        ledger.record(EventKind::Replied {
            turn,
            reply: given.reply,
            asked: digest,
            took_ms: given.took_ms,
            cost_micros: given.cost_micros,
            secrets,
        })?;
        for (code, message) in warnings {
            if let Some(message) = message {
                ledger.warn(code, message)?;
            }
        }
        Ok(())
    }

    /// The size of a request with the whole history.
    fn bytes(&self, state: &RunState) -> u64 {
        let (system, declared) = self.frame;
        system + declared + state.bytes
    }

    /// The warning, made once per run, when the service reported far fewer prompt tokens than the request can have.
    fn counted_short(&self, deps: &Deps, ledger: &Ledger, reply: &Reply) -> Option<String> {
        let state = &ledger.state;
        let bytes = self.bytes(state);
        let told = reply.usage.input;
        let is_short = told > 0 && bytes / BYTES_A_TOKEN_AT_MOST > told;
        if !is_short || deps.provider.info().recorded || state.warned.contains(SHORT_COUNT) {
            return None;
        }
        Some(format!(
            "the service counted {told} prompt tokens for a request of {bytes} bytes, about {} tokens: either it cuts long requests \
             without saying so, or it counts only tokens that were not cached. Give the model a larger context (Ollama: \
             OLLAMA_CONTEXT_LENGTH or `num_ctx`) and set it as `window` in the OVERNIGHT_PRICES file",
            compact::estimate(bytes, None)
        ))
    }

    /// The error for a request that is too long although nothing can be left out: it says what takes up the space and
    /// what to do.
    fn too_long(&self, ledger: &Ledger, error: ProviderError) -> ProviderError {
        let state = &ledger.state;
        let tokens = |bytes: u64| compact::estimate(bytes, None);
        let (system, declared) = self.frame;
        let window = error.window.or(state.window);
        let window = window
            .map(|window| format!(" The model's context window is {window} tokens."))
            .unwrap_or_default();
        let message = format!(
            "{}. The request has about {} tokens: {} of system prompt, {} of {} tool declarations, {} of messages.{window} Declare \
             fewer tools (`tools.include` in the recipe, or --tools), shorten prompt and context files, or start the server with a \
             larger context",
            error.message,
            tokens(self.bytes(state)),
            tokens(system),
            tokens(declared),
            self.specs.len(),
            tokens(state.bytes),
        );
        ProviderError { message, ..error }
    }

    /// Shortens the history and records what replaces it. `refused`: the request that the service refused for its
    /// length.
    ///
    /// # Errors
    /// [`RunError::Environment`] if a full result cannot be kept; [`RunError::Journal`]; for a summary also the errors
    /// of a request to the model.
    pub async fn compact(
        &mut self,
        deps: &Deps,
        ledger: &mut Ledger,
        how: &Compaction,
        refused: Option<Refused>,
    ) -> Result<(), RunError> {
        let window = refused.as_ref().and_then(|refused| refused.window);
        let overflow = refused.map(|refused| refused.digest);
        let event = match how {
            Compaction::Shrink(from) => {
                let older = ledger.state.history.get(..*from).unwrap_or_default();
                let whole = compact::whole_results(older);
                for (id, text) in &whole {
                    results::keep_whole(&deps.scope.results, id.as_str(), text)
                        .map_err(|error| RunError::Environment(error.to_string()))?;
                }
                EventKind::Compacted {
                    history: compact::shrunk(older),
                    keep_from: *from,
                    why: format!("{} old results were shortened to head and tail", whole.len()),
                    summary: None,
                    overflow,
                    window,
                }
            }
            Compaction::Summarise(from) => {
                let older = ledger.state.history.get(..*from).unwrap_or_default().to_vec();
                let task = ledger
                    .state
                    .task_at
                    .filter(|at| at < from)
                    .and_then(|at| older.get(at))
                    .cloned();
                let summary = summarise(deps, ledger, &older, window).await?;
                EventKind::Compacted {
                    history: vec![compact::summarised(&older, task.as_ref(), &summary.reply.text())],
                    keep_from: *from,
                    why: format!("{from} older messages were replaced by a summary"),
                    summary: Some(Box::new(summary)),
                    overflow,
                    window,
                }
            }
        };
        Ok(ledger.record(event)?)
    }
}

/// Asks the model for a summary of these messages, in a separate request without tools.
async fn summarise(
    deps: &Deps,
    ledger: &mut Ledger,
    older: &[Message],
    told: Option<u64>,
) -> Result<Summarised, RunError> {
    let window = told.or(ledger.state.window).unwrap_or(compact::DEFAULT_WINDOW);
    // Assumes two bytes per token, so that the request for a summary fits in any language.
    let room = usize::try_from(window).unwrap_or(usize::MAX);
    let messages = [compact::summary_request(older, room)];
    let asked = Digests::new(compact::SUMMARY_SYSTEM, &[], None).of(&messages, 0);
    let request = ModelRequest {
        turn: ledger.state.spent.turns + 1,
        system: compact::SUMMARY_SYSTEM,
        tools: &[],
        messages: &messages,
        // No other request shares its prefix.
        epoch: u64::MAX,
        response: None,
        answer_only: false,
        digest: &asked,
    };
    let bytes = compact::SUMMARY_SYSTEM.len() as u64 + messages.iter().map(size).sum::<u64>();
    let given = once(deps, ledger, &request, bytes)
        .await?
        .map_err(|error| failure(deps, error))?;
    Ok(Summarised {
        turn: request.turn,
        reply: given.reply,
        asked: asked.clone(),
        took_ms: given.took_ms,
        cost_micros: given.cost_micros,
    })
}

/// The warning, made once per run, when the tokens are estimated.
fn not_counted(deps: &Deps, ledger: &Ledger, reply: &Reply) -> Option<String> {
    if !reply.usage.estimated || deps.provider.info().recorded || ledger.state.warned.contains(NO_COUNT) {
        return None;
    }
    Some(
        "the service sends no usable count of tokens (`usage`): tokens and cost are estimated from the bytes of requests and \
         replies, and limits of both apply to the estimate"
            .to_owned(),
    )
}

/// The warning, made once per run, when a reply counts as complete although the service says something unknown.
fn unknown_end(ledger: &Ledger, reply: &Reply) -> Option<String> {
    match &reply.stop {
        StopReason::Unknown { reason } if !ledger.state.warned.contains(UNKNOWN_END) => Some(format!(
            "the service ended a reply with the reason `{reason}`, which is not known here: it counts as a complete reply"
        )),
        _ => None,
    }
}

/// Replaces the counts that the service did not send by estimates: every request and every reply with content has
/// tokens. `bytes`: the size of the request.
fn estimate_missing(bytes: u64, reply: &mut Reply) {
    let tokens = |bytes: u64| compact::estimate(bytes, None).max(1);
    if reply.usage.input == 0 {
        reply.usage.input = tokens(bytes);
        reply.usage.estimated = true;
    }
    let thoughts = reply.parts.iter().map(|part| match part {
        Part::Thought { text } => text.len() as u64,
        _ => 0,
    });
    let written = parts_size(&reply.parts) + thoughts.sum::<u64>();
    if reply.usage.output == 0 && written > 0 {
        reply.usage.output = tokens(written);
        reply.usage.estimated = true;
    }
}

/// A reply with its duration and cost.
struct PaidReply {
    reply: Reply,
    took_ms: u64,
    cost_micros: Option<u64>,
}

/// The price of a reply from the model's name and usage, as in [`Deps::price`].
type Price<'a> = &'a (dyn Fn(&str, Usage) -> Option<u64> + Send + Sync);

/// What is needed to charge for a reply that was discarded.
#[derive(Clone, Copy)]
struct Charge<'a> {
    /// `None` for a recording, which has counts and cost.
    price: Option<Price<'a>>,
    /// The size of the request in bytes.
    bytes: u64,
}

impl Charge<'_> {
    /// The record of a discarded reply. A service that closes the connection early has counted nothing, or only
    /// the beginning, and charges nevertheless: the rest is estimated. `last`: the request was not repeated after it.
    fn of(self, discarded: &Discarded, last: bool) -> DiscardedReply {
        let mut usage = discarded.usage;
        let Some(price) = self.price else {
            return DiscardedReply {
                usage,
                cost_micros: discarded.cost_micros,
                last,
            };
        };
        let tokens = |bytes: u64| compact::estimate(bytes, None).max(1);
        if usage.input == 0 {
            usage.input = tokens(self.bytes);
            usage.estimated = true;
        }
        if discarded.received > 0 && tokens(discarded.received) > usage.output {
            usage.output = tokens(discarded.received);
            usage.estimated = true;
        }
        DiscardedReply {
            usage,
            cost_micros: price(&discarded.model, usage),
            last,
        }
    }

    /// The record of a failed attempt; `last` as in [`Self::of`].
    fn attempt(self, failed: FailedAttempt<'_>, last: bool) -> EventKind {
        EventKind::Retried {
            attempt: failed.attempt,
            class: failed.class.to_owned(),
            message: failed.message.to_owned(),
            wait_ms: failed.wait_ms,
            discarded: failed.discarded.map(|discarded| self.of(discarded, last)),
        }
    }
}

/// The outcome if, with these failed attempts and one more discarded reply, a limit leaves no room for another attempt.
fn no_room_after(
    plan: &Plan,
    (run, own, step): (&Spent, &Spent, usize),
    failed: &[EventKind],
    more: Option<&DiscardedReply>,
) -> Option<RunOutcome> {
    let step = plan.steps.get(step)?;
    let before = failed.iter().filter_map(|attempt| match attempt {
        EventKind::Retried { discarded, .. } => discarded.as_ref(),
        _ => None,
    });
    let lost: Vec<&DiscardedReply> = before.chain(more).collect();
    if lost.is_empty() {
        return None;
    }
    let (mut run, mut own) = (run.clone(), own.clone());
    for reply in lost {
        for spent in [&mut run, &mut own] {
            spent.charge(0, reply.usage.total(), reply.cost_micros);
        }
    }
    next::no_room(&run, &own, plan, step)
}

/// Sends one request and records its retries, and the tokens of replies that could not be used. `bytes`: the size of the
/// request. The run ends when these replies use up a limit before a usable one came.
async fn once(
    deps: &Deps,
    ledger: &mut Ledger,
    request: &ModelRequest<'_>,
    bytes: u64,
) -> Result<Result<PaidReply, ProviderError>, RunError> {
    let begun = Instant::now();
    let retries = Mutex::new(Vec::new());
    let price: Price<'_> = deps.price.as_ref();
    let charge = Charge {
        price: (!deps.provider.info().recorded).then_some(price),
        bytes,
    };
    let retried = |failed: FailedAttempt<'_>| lock(&retries).push(charge.attempt(failed, false));
    let reached = Mutex::new(None);
    let (run, own, step) = (
        ledger.state.spent.clone(),
        ledger.state.progress.spent.clone(),
        ledger.state.step,
    );
    let plan = &deps.plan;
    let has_room = |more: Option<&Discarded>| {
        let more = more.map(|discarded| charge.of(discarded, true));
        let outcome = no_room_after(plan, (&run, &own, step), &lock(&retries), more.as_ref());
        let has_room = outcome.is_none();
        *lock(&reached) = outcome;
        has_room
    };
    let live = ledger.live();
    let show = move |impression| live.send(impression);
    let context = AskContext {
        cancel: &deps.interrupt.token,
        deadline: deps.deadline(),
        live: &show,
        retried: &retried,
        has_room: &has_room,
    };
    let asked = deps.provider.info().id.clone();
    let mut answer = ledger.watch(deps.provider.ask(request, context)).await;
    if let Ok(reply) = &mut answer
        && !deps.provider.info().recorded
    {
        estimate_missing(bytes, reply);
    }
    let retries = retries.into_inner().unwrap_or_default();
    let attempt = u32::try_from(retries.len()).unwrap_or(u32::MAX).saturating_add(1);
    for retry in retries {
        ledger.record(retry)?;
    }
    let answering = &deps.provider.info().id;
    if answer.is_ok() && *answering != asked {
        let message = format!("{asked} failed, and {answering} answers from here on");
        ledger.warn(FALLBACK, message)?;
    }
    if let Err(error) = &answer
        && error.discarded.is_some()
    {
        let failed = FailedAttempt {
            attempt,
            class: error.class.as_str(),
            message: &error.message,
            wait_ms: 0,
            discarded: error.discarded.as_deref(),
        };
        ledger.record(charge.attempt(failed, true))?;
    }
    if let (Err(error), Some(mut outcome)) = (&answer, reached.into_inner().unwrap_or_default()) {
        outcome.message = format!("{}; {}", outcome.message, error.message);
        return Err(RunError::Ended(outcome));
    }
    Ok(answer.map(|reply| PaidReply {
        took_ms: since(begun),
        cost_micros: match deps.provider.info().recorded {
            true => deps.provider.charged(request.turn, request.digest),
            false => (deps.price)(&reply.model, reply.usage),
        },
        reply,
    }))
}

/// Gives the calls of a reply the ids that are unique in this run.
fn number_calls(reply: &mut Reply, before: u64) {
    let calls = reply.parts.iter_mut().filter_map(|part| match part {
        Part::Call(call) => Some(call),
        _ => None,
    });
    for (n, call) in (before + 1..).zip(calls) {
        call.id = CallId::nth(n);
    }
}

/// The calls whose arguments contain a secret, or did when the reply was recorded.
fn calls_with_secrets(deps: &Deps, reply: &Reply) -> Vec<CallId> {
    let known = |call: &CallId| {
        let recorded = deps.provider.recorded();
        recorded.is_some_and(|recorded| recorded.secrets.contains(call))
    };
    let empty = deps.redactor.is_empty();
    let holds = |args: &serde_json::Value| !empty && deps.redactor.find(args.to_string().as_bytes()).is_some();
    reply
        .calls()
        .filter(|call| known(&call.id) || holds(&call.args))
        .map(|call| call.id.clone())
        .collect()
}

fn failure(deps: &Deps, error: ProviderError) -> RunError {
    if error.class == ProviderClass::OutOfTime {
        deps.interrupt.out_of_time(deps.run_deadline);
    }
    if let Some(mut outcome) = deps.interrupted() {
        if error.class == ProviderClass::OutOfTime && outcome.verdict == Verdict::Budget {
            outcome.message = format!("{}; {}", outcome.message, error.message);
        }
        return RunError::Ended(outcome);
    }
    let verdict = match error.class {
        ProviderClass::ReplayMiss => Verdict::Failed,
        _ => Verdict::Provider,
    };
    RunError::Ended(RunOutcome::new(verdict, error.class.as_str(), error.message))
}
