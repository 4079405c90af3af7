//! Requests the prompts that steps take from MCP servers, before the first model request. Recorded prompts are not
//! requested again.

use super::refusal::Refusal;
use crate::base::event::GivenPrompt;
use crate::base::secret::Redactor;
use crate::engine::deps::Interrupt;
use crate::recipe::Plan;
use crate::recipe::plan::{McpPrompt, PlanStep, StepWork};
use crate::tools::mcp::Servers;
use crate::tools::mcp::prompts::{Missing, given};
use std::time::Instant;

/// Recorded prompts.
#[derive(Clone, Copy, Default)]
pub struct Recorded<'a> {
    /// In this run's journal, for a resume.
    pub here: &'a [GivenPrompt],
    /// In the journal that is replayed.
    pub there: &'a [GivenPrompt],
}

/// Requests the prompts that are not in this run's journal. If the run cannot begin, the servers are stopped; a run
/// that was interrupted meanwhile gets no prompts, and the loop reports the interruption. `deadline`: of the run.
///
/// # Errors
/// The server does not know the name or an argument (exit code 3); the server is missing or does not return the prompt
/// (exit code 8).
pub async fn gather(
    plan: &Plan,
    servers: &Servers,
    recorded: Recorded<'_>,
    redactor: &Redactor,
    interrupt: &Interrupt,
    deadline: Instant,
) -> Result<Vec<GivenPrompt>, Refusal> {
    let gathered = tokio::select! {
        gathered = gathered(plan, servers, recorded, redactor) => gathered,
        () = interrupt.token.cancelled() => Ok(Vec::new()),
    };
    interrupt.check_clock(deadline);
    match gathered {
        Err(_) if interrupt.outcome(plan).is_some() => Ok(Vec::new()),
        Err(refusal) => {
            servers.close().await;
            Err(refusal)
        }
        gathered => gathered,
    }
}

async fn gathered(
    plan: &Plan,
    servers: &Servers,
    recorded: Recorded<'_>,
    redactor: &Redactor,
) -> Result<Vec<GivenPrompt>, Refusal> {
    let mut gathered = Vec::new();
    for step in &plan.steps {
        let StepWork::Prompt { mcp: Some(wanted), .. } = &step.work else {
            continue;
        };
        let same = |given: &&GivenPrompt| {
            given.step == step.id
                && (&given.server, &given.name, &given.arguments) == (&wanted.server, &wanted.name, &wanted.arguments)
        };
        if recorded.here.iter().any(|given| same(&given)) {
            continue;
        }
        match recorded.there.iter().find(same) {
            Some(given) => gathered.push(given.clone()),
            None => gathered.push(ask(plan, step, wanted, servers, redactor).await?),
        }
    }
    Ok(gathered)
}

async fn ask(
    plan: &Plan,
    step: &PlanStep,
    wanted: &McpPrompt,
    servers: &Servers,
    redactor: &Redactor,
) -> Result<GivenPrompt, Refusal> {
    let wrong = |why: String| {
        Refusal::Invalid(format!(
            "{}:1:1: error[mcp-prompt]: step {}: {why}\nhelp: `overnight tools list --recipe FILE --format json` shows a \
             server's prompts and their arguments as `SERVER__prompt_NAME`",
            plan.name, step.id
        ))
    };
    for (name, value) in &wanted.arguments {
        if let Some(secret) = redactor.find(value.as_bytes()) {
            return Err(wrong(format!("the argument `{name}` holds the value of {secret}")));
        }
    }
    let Some(server) = servers.find(&wanted.server) else {
        let (name, server) = (&wanted.name, &wanted.server);
        let why = format!(
            "step {} needs the prompt `{name}` of the MCP server {server}, which is not available",
            step.id
        );
        return Err(Refusal::Environment(why));
    };
    match given(server, &wanted.name, &wanted.arguments).await {
        Ok(content) => Ok(GivenPrompt {
            step: step.id.clone(),
            server: wanted.server.clone(),
            name: wanted.name.clone(),
            arguments: wanted.arguments.clone(),
            content,
        }),
        Err(Missing::Wrong(why)) => Err(wrong(format!("MCP server {}: {why}", wanted.server))),
        Err(Missing::Failed(why)) => Err(Refusal::Environment(format!(
            "step {}: MCP server {}: {why}",
            step.id, wanted.server
        ))),
    }
}
