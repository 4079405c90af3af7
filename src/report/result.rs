//! `result.json`: builds the object that scripts read and `--format json` prints.

mod shape;

pub use shape::{
    Changes, CheckReport, JournalHead, PolicyName, RanProgram, ResultNotice, RuledOut, RunResult, StepReport,
    UsageReport, Waiting,
};

use super::summary::{CallSummary, DenialReason, RunSummary, StepSummary};
use crate::base::event::{SERVER_LOST, SERVER_MISSING, ServerStatus};
use crate::base::grant::JudgedExec;
use crate::base::ids::sha256_hex;
use crate::base::outcome::{OF_STEP, RunOutcome, Verdict};
use crate::base::quote::shell_word;
use crate::base::source::RecipeSource;
use crate::journal::run_dirs::RUNS;
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::Path;

/// The value of `schema`.
pub const SCHEMA: &str = "overnight/result/v1";

/// The name of the run directory in `artefacts`, among those of the outputs.
pub const DIRECTORY: &str = "directory";

/// Facts that are not in the events: the exit code of the process and the paths of its files.
#[derive(Clone, Debug, Default)]
pub struct OutputFacts {
    pub exit_code: i32,
    /// From the name of an artefact (`patch`, `junit`, `transcript`, …) to its path. If `directory` is not the
    /// default place of the run, texts name the run by it.
    pub artefacts: BTreeMap<String, String>,
    /// SHA-256 of the run's files, by their names in the run directory.
    pub digests: BTreeMap<String, String>,
    /// Length and head of the journal.
    pub journal: Option<JournalHead>,
}

/// The result of a run with a journal.
pub fn result(sum: &RunSummary<'_>, ending: &OutputFacts) -> RunResult {
    let (added, removed) = sum.changed_lines();
    let changed = sum.patch.filter(|patch| patch.blob.is_some());
    let base = sum.head.map(|head| &head.base);
    RunResult {
        run: sum.run().to_owned(),
        partial: sum.outcome.partial,
        reason: sum.outcome.reason.clone(),
        response: sum.answer(),
        output: sum.output.cloned().unwrap_or(Value::Null),
        wants_output: sum.wants_output(),
        denied: denied(sum),
        suspended: suspended(sum, ending),
        resume: resume(sum, ending),
        unruled: sum.unruled.iter().map(|unruled| unruled.as_ref().clone()).collect(),
        unruled_omitted: sum.unruled_omitted(),
        usage: UsageReport {
            turns: sum.replies(),
            tokens: sum.usage,
            total: sum.tokens,
            calls: calls_by_tool(&sum.calls),
        },
        cost: usd(sum.cost_micros),
        unpriced: sum.unpriced,
        steps: steps(sum),
        patch: changed.map(|_| {
            let path = ending.artefacts.get("patch");
            path.cloned().unwrap_or_else(|| "changes.patch".to_owned())
        }),
        changes: Changes {
            files: changed.map(|patch| patch.files.clone()).unwrap_or_default(),
            added,
            removed,
        },
        base: base.and_then(|base| base.commit.clone()),
        base_tree: sum.baseline.map(str::to_owned),
        sandbox: sum.sandbox.map(|confined| confined.level.clone()),
        mcp_servers: servers(sum),
        warnings: warnings(sum),
        recorded: sum.recorded,
        model: sum.model.to_owned(),
        recipe_digest: sum.head.map(|head| head.plan_digest.clone()),
        recipe_source: sum
            .head
            .and_then(|head| head.source.clone())
            .map(|source| RecipeSource {
                files: Vec::new(),
                ..source
            }),
        policies: policies(sum),
        resumed: sum.resumed,
        started: sum.started,
        ended: sum.ended,
        duration_ms: sum.duration_ms(),
        ..unstarted(&sum.outcome, sum.recipe(), ending)
    }
}

/// The result of a run that ended before it had a journal. `recipe` may be empty.
pub fn unstarted(outcome: &RunOutcome, recipe: &str, ending: &OutputFacts) -> RunResult {
    RunResult {
        schema: SCHEMA.to_owned(),
        run: String::new(),
        verdict: outcome.verdict,
        exit_code: ending.exit_code,
        partial: outcome.partial,
        reason: outcome.reason.clone(),
        message: outcome.message.clone(),
        response: String::new(),
        output: Value::Null,
        wants_output: false,
        denied: Vec::new(),
        suspended: Vec::new(),
        resume: None,
        unruled: Vec::new(),
        unruled_omitted: 0,
        usage: UsageReport::default(),
        cost: 0.0,
        unpriced: false,
        steps: Vec::new(),
        patch: None,
        changes: Changes::default(),
        base: None,
        base_tree: None,
        artefacts: ending.artefacts.clone(),
        digests: ending.digests.clone(),
        journal: ending.journal.clone(),
        sandbox: None,
        mcp_servers: Vec::new(),
        warnings: Vec::new(),
        recorded: false,
        model: String::new(),
        recipe: recipe.to_owned(),
        recipe_digest: None,
        recipe_source: None,
        policies: Vec::new(),
        resumed: 0,
        started: None,
        ended: None,
        duration_ms: 0,
    }
}

/// The output of `--format text`. If the recipe asks for validated JSON: that JSON, `null` if the step for it was
/// skipped, or nothing if no answer was valid. Otherwise the final answer. Ends with a newline unless it is empty.
pub fn text(result: &RunResult) -> String {
    let mut text = match &result.output {
        // `response` is not validated: it is from an earlier step, or from a model that gave no valid answer.
        Value::Null if result.wants_output => match result.verdict.is_success() {
            true => Value::Null.to_string(),
            false => String::new(),
        },
        Value::Null => result.response.clone(),
        output => output.to_string(),
    };
    if !text.is_empty() && !text.ends_with('\n') {
        text.push('\n');
    }
    text
}

impl RunResult {
    /// One line of JSON with a newline.
    pub fn to_line(&self) -> String {
        format!("{}\n", self.to_value())
    }

    /// Indented JSON with a newline, as `result.json` holds it.
    pub fn to_pretty(&self) -> String {
        format!("{:#}\n", self.to_value())
    }

    /// The object.
    pub fn to_value(&self) -> Value {
        // Keys are strings and numbers are finite, so serializing cannot fail.
        serde_json::to_value(self).unwrap_or(Value::Null)
    }
}

/// Denied calls, in order.
pub(crate) fn denied(sum: &RunSummary<'_>) -> Vec<RuledOut> {
    let one = |(call, denial): (&CallSummary<'_>, DenialReason<'_>)| {
        let exec = denial.exec.map(RanProgram::from);
        RuledOut {
            call: call.call.id.to_string(),
            tool: call.tool().to_owned(),
            title: call.title().to_owned(),
            args: call.args().clone(),
            rule: denial.rule.map(str::to_owned),
            code: denial.code.to_owned(),
            reason: denial.reason.to_owned(),
            fix: denial.fix.to_owned(),
            step: step_of(sum, call),
            status: "denied".to_owned(),
            ran: exec.is_some().then(|| ran_before(call.execs)),
            cwd: exec.as_ref().map(|exec| exec.cwd.clone()),
            argv: exec.map(|exec| exec.argv).unwrap_or_default(),
        }
    };
    sum.denied().map(one).collect()
}

/// Limit of programs that are listed as run before a denial.
const RAN: usize = 100;

/// The programs of a call that were not denied, in order; the last ones if there are many.
pub fn ran_before(execs: &[JudgedExec]) -> Vec<RanProgram> {
    let all: Vec<&JudgedExec> = execs.iter().filter(|exec| exec.denied.is_none()).collect();
    let last = all.get(all.len().saturating_sub(RAN)..).unwrap_or_default();
    last.iter().map(|exec| RanProgram::from(*exec)).collect()
}

/// Calls that wait for a person, in order.
pub(crate) fn suspended(sum: &RunSummary<'_>, ending: &OutputFacts) -> Vec<Waiting> {
    let run = resume_name(sum, ending);
    let one = |call: &CallSummary<'_>| {
        let ruling = call.ruling();
        let text = |of: fn(&crate::base::ruling::Ruling) -> &String| ruling.map(of).cloned().unwrap_or_default();
        Waiting {
            call: call.call.id.to_string(),
            tool: call.tool().to_owned(),
            title: call.title().to_owned(),
            args: call.args().clone(),
            rule: ruling.and_then(|ruling| ruling.rule.clone()),
            code: text(|ruling| &ruling.code),
            reason: text(|ruling| &ruling.reason),
            fix: text(|ruling| &ruling.fix),
            step: step_of(sum, call),
            digest: approval_digest(sum, call),
            approve: approve(sum, call, &run),
            deny: format!("overnight resume {run} --deny {}", call.call.id),
        }
    };
    sum.suspended().map(one).collect()
}

/// The digest that an approval names: over the run, the call, its tool, its effective arguments, and the policies that
/// suspended it. So the approval holds for no other call.
pub fn approval_digest(sum: &RunSummary<'_>, call: &CallSummary<'_>) -> String {
    let policies: Vec<String> = policies(sum).into_iter().map(|policy| policy.digest).collect();
    let about = serde_json::json!({
        "run": sum.run(),
        "call": call.call.id,
        "tool": call.tool(),
        "args": call.call.args,
        "modified": call.modified(),
        "policies": policies,
    });
    sha256_hex(&[about.to_string().as_bytes()])
}

/// Hexadecimal digits of a digest in a command line.
pub const DIGEST_SHOWN: usize = 12;

/// The command line that approves a call; `run` is the run's name, quoted for a shell.
pub(crate) fn approve(sum: &RunSummary<'_>, call: &CallSummary<'_>, run: &str) -> String {
    let digest = approval_digest(sum, call);
    let shown = digest.get(..DIGEST_SHOWN).unwrap_or_default();
    format!("overnight resume {run} --approve {}@{shown}", call.call.id)
}

fn step_of(sum: &RunSummary<'_>, call: &CallSummary<'_>) -> String {
    let step = sum.steps.get(call.step);
    step.map(|step| step.id.to_owned()).unwrap_or_default()
}

fn steps(sum: &RunSummary<'_>) -> Vec<StepReport> {
    let one = |id: &str| match sum.steps.iter().position(|step| step.id == id) {
        Some(i) => begun(sum, i, &sum.steps[i]),
        None => StepReport {
            id: id.to_owned(),
            status: "not_started".to_owned(),
            reason: String::new(),
            message: String::new(),
            output: String::new(),
            cut: false,
            changed: None,
            attempts: 0,
            usage: UsageReport::default(),
            cost: 0.0,
            checks: Vec::new(),
            duration_ms: 0,
        },
    };
    sum.planned().into_iter().map(one).collect()
}

fn begun(sum: &RunSummary<'_>, index: usize, step: &StepSummary<'_>) -> StepReport {
    let result = step.result;
    let calls = sum.calls.iter().filter(|call| call.step == index);
    StepReport {
        id: step.id.to_owned(),
        status: sum.status_of(step).to_owned(),
        reason: result.map(|result| result.reason.clone()).unwrap_or_default(),
        message: result.map(|result| result.message.clone()).unwrap_or_default(),
        output: result.map(|result| result.output.clone()).unwrap_or_default(),
        cut: result.is_some_and(|result| result.cut),
        changed: result.and_then(|result| result.changed),
        attempts: step.attempts,
        usage: UsageReport {
            turns: step.turns,
            tokens: step.usage,
            total: step.usage.total(),
            calls: calls_by_tool(calls),
        },
        cost: usd(step.cost_micros),
        checks: checks(step),
        duration_ms: step.duration_ms(),
    }
}

fn checks(step: &StepSummary<'_>) -> Vec<CheckReport> {
    let groups = step.checks_by_name().into_iter();
    let one = |(name, runs): (&str, Vec<super::summary::CheckRun<'_>>)| {
        let last = runs.last()?.result;
        Some(CheckReport {
            name: name.to_owned(),
            passed: last.passed,
            what: last.what.clone(),
            message: last.message.clone(),
            runs: runs.len(),
            output: match last.passed {
                true => String::new(),
                false => last.output.clone(),
            },
            exit_code: last.exit.as_ref().and_then(|exit| exit.code),
            duration_ms: last.took_ms,
        })
    };
    groups.filter_map(one).collect()
}

fn calls_by_tool<'a, 'b: 'a>(calls: impl IntoIterator<Item = &'a CallSummary<'b>>) -> BTreeMap<String, u64> {
    let mut counts: BTreeMap<String, u64> = BTreeMap::new();
    for call in calls.into_iter().filter(|call| !call.was_left()) {
        match counts.get_mut(call.tool()) {
            Some(count) => *count += 1,
            None => {
                counts.insert(call.tool().to_owned(), 1);
            }
        }
    }
    counts
}

fn policies(sum: &RunSummary<'_>) -> Vec<PolicyName> {
    let policies = sum.head.map_or(&[][..], |head| &head.policies);
    let one = |policy: &crate::base::event::PolicyText| PolicyName {
        name: policy.name.clone(),
        digest: policy.digest.clone(),
    };
    policies.iter().map(one).collect()
}

/// The MCP servers, as they were at the end of the run.
fn servers(sum: &RunSummary<'_>) -> Vec<ServerStatus> {
    let mut servers = sum.servers().to_vec();
    for warning in sum.warnings.iter().filter(|warning| warning.code == SERVER_LOST) {
        let named = warning.message.strip_prefix("MCP server ").unwrap_or_default();
        let is_named = |server: &ServerStatus| {
            let rest = named.strip_prefix(server.name.as_str());
            rest.is_some_and(|rest| rest.starts_with(' '))
        };
        // A name may begin with another one and a blank.
        let lost = servers.iter_mut().filter(|server| is_named(server));
        let lost = lost.max_by_key(|server| server.name.len());
        if let Some(server) = lost {
            "lost".clone_into(&mut server.status);
            warning.message.clone_into(&mut server.message);
        }
    }
    servers
}

/// The run's warnings, and one for each MCP server that did not start.
pub(crate) fn warnings(sum: &RunSummary<'_>) -> Vec<ResultNotice> {
    let told = sum.warnings.iter().map(|warning| ResultNotice {
        code: warning.code.to_owned(),
        message: warning.message.to_owned(),
    });
    let missing = sum.servers().iter().filter(|server| server.status == "failed");
    let missing = missing.map(|server| ResultNotice {
        code: SERVER_MISSING.to_owned(),
        message: format!("MCP server `{}` is not available: {}", server.name, server.message),
    });
    told.chain(missing).collect()
}

/// The run's name for a command line: its id where that is found, in the default directory of its workspace or when no
/// directory is known, otherwise its directory, quoted for a shell.
pub(crate) fn resume_name(sum: &RunSummary<'_>, ending: &OutputFacts) -> String {
    let directory = ending.artefacts.get(DIRECTORY);
    let elsewhere = directory.filter(|directory| !Path::new(directory).ends_with(Path::new(RUNS).join(sum.run())));
    elsewhere.map_or_else(|| sum.run().to_owned(), |directory| shell_word(directory))
}

/// The command that continues the run. If a limit ended the run, it sets a higher one, because the same limit would end
/// the run again.
fn resume(sum: &RunSummary<'_>, ending: &OutputFacts) -> Option<String> {
    let outcome = &sum.outcome;
    let waits = matches!(outcome.verdict, Verdict::Suspended | Verdict::Output);
    if sum.head.is_none() || waits || outcome.verdict.is_final(&outcome.reason) {
        return None;
    }
    let command = format!("overnight resume {}", resume_name(sum, ending));
    // No flag raises the limits of a step or of the calls of a tool. The time limit of a step starts again at a resume.
    let is_of_step = outcome.message.starts_with(OF_STEP);
    match outcome.reason.strip_prefix("limit:") {
        None | Some("wall") => Some(command),
        Some("turns") if !is_of_step => Some(format!("{command} --max-turns {}", 2 * sum.replies())),
        Some("tokens") if !is_of_step => Some(format!("{command} --max-tokens {}", 2 * sum.usage.total())),
        Some("cost") if !is_of_step => Some(format!("{command} --max-cost {:.2}", usd(2 * sum.cost_micros) + 0.01)),
        Some(_) => None,
    }
}

/// US dollars from millionths.
pub(crate) fn usd(micros: u64) -> f64 {
    #[expect(clippy::cast_precision_loss, reason = "exact up to nine billion dollars")]
    let micros = micros as f64;
    micros / 1e6
}
