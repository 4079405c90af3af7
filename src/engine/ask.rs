//! One request to the model and its reply, recorded. Runs no call and judges no answer.

use super::deps::Deps;
use super::effects::{Stop, since};
use super::ledger::Ledger;
use super::prompt::Digests;
use crate::base::call::ToolSpec;
use crate::base::event::EventKind;
use crate::base::ids::CallId;
use crate::base::message::{Part, Reply};
use crate::base::outcome::{Outcome, Verdict};
use crate::provider::{AskContext, ProviderClass, ProviderError, Request};
use std::collections::BTreeSet;
use std::sync::Mutex;
use std::time::Instant;

/// What stays the same from one request of a run to the next.
pub struct Asking {
    specs: Vec<ToolSpec>,
    digests: Digests,
}

impl Asking {
    /// For the tools and prompts of this run.
    pub fn new(deps: &Deps) -> Self {
        let specs: Vec<ToolSpec> = deps.tools.specs().into_iter().cloned().collect();
        let digests = Digests::new(&deps.system, &specs, deps.plan.response.as_ref());
        Self { specs, digests }
    }

    /// Asks once and records the reply. Returns the calls whose arguments hold a secret.
    pub async fn ask(&mut self, deps: &Deps, ledger: &mut Ledger) -> Result<BTreeSet<CallId>, Stop> {
        let begun = Instant::now();
        let turn = ledger.state.spent.turns + 1;
        // Taken out for the time of the request, so that the ledger can show what comes meanwhile.
        let history = std::mem::take(&mut ledger.state.history);
        let digest = self.digests.of(&history, ledger.state.epoch);
        let request = Request {
            turn,
            system: &deps.system,
            tools: &self.specs,
            messages: &history,
            epoch: ledger.state.epoch,
            response: deps.plan.response.as_ref(),
            digest: &digest,
        };
        let retries = Mutex::new(Vec::new());
        let retried = |attempt: u32, class: &str, message: &str, wait_ms: u64| {
            let retry = EventKind::Retried {
                attempt,
                class: class.to_owned(),
                message: message.to_owned(),
                wait_ms,
            };
            if let Ok(mut retries) = retries.lock() {
                retries.push(retry);
            }
        };
        let live = ledger.live();
        let show = move |impression| live.send(impression);
        let context = AskContext {
            cancel: &deps.interrupt.token,
            deadline: deps.deadline,
            live: &show,
            retried: &retried,
        };
        let answer = ledger.watch(deps.provider.ask(&request, context)).await;
        ledger.state.history = history;
        for retry in retries.into_inner().unwrap_or_default() {
            ledger.record(retry)?;
        }
        let mut reply = answer.map_err(|error| failure(deps, error))?;
        number_calls(&mut reply, ledger.state.calls_asked);
        let secret = calls_with_secrets(deps, &reply);
        let cost_micros = match deps.provider.info().recorded {
            true => deps.provider.charged(turn, &digest),
            false => (deps.price)(&reply.model, reply.usage),
        };
        ledger.record(EventKind::Replied {
            turn,
            reply,
            asked: digest,
            took_ms: since(begun),
            cost_micros,
        })?;
        Ok(secret)
    }
}

/// Gives the calls of a reply the ids that they have in this run.
fn number_calls(reply: &mut Reply, before: u64) {
    let calls = reply.parts.iter_mut().filter_map(|part| match part {
        Part::Call(call) => Some(call),
        _ => None,
    });
    for (n, call) in (before + 1..).zip(calls) {
        call.id = CallId::nth(n);
    }
}

fn calls_with_secrets(deps: &Deps, reply: &Reply) -> BTreeSet<CallId> {
    if deps.redactor.is_empty() {
        return BTreeSet::new();
    }
    let holds = |args: &serde_json::Value| deps.redactor.find(args.to_string().as_bytes()).is_some();
    reply
        .calls()
        .filter(|call| holds(&call.args))
        .map(|call| call.id.clone())
        .collect()
}

fn failure(deps: &Deps, error: ProviderError) -> Stop {
    if let Some(outcome) = deps.interrupted() {
        return Stop::Ended(outcome);
    }
    let verdict = match error.class {
        ProviderClass::ReplayMiss => Verdict::Failed,
        _ => Verdict::Provider,
    };
    Stop::Ended(Outcome::new(verdict, error.class.as_str(), error.message))
}
