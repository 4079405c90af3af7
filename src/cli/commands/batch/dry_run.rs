//! The dry run of a batch, and what it refuses as the real call does: the directory or store of another batch.

use super::models::Models;
use super::{printed, to_run};
use crate::base::quote::counted;
use crate::batch::job_result::JobDisposition;
use crate::batch::plan::{self, PlanFile, PlannedJob};
use crate::batch::record::{self, BatchState};
use crate::batch::supervisor::{self, BatchCall, ReadyJob};
use crate::cli::args::{BatchArgs, TextOrJson};
use crate::cli::refusal::Refusal;
use crate::cli::{exit, out};
use crate::journal::chain_key;
use crate::report::text::line as line_of;
use serde_json::{Value, json};
use std::path::Path;
use tokio::sync::mpsc::UnboundedReceiver;

/// Length limit of the parameters in a line of a dry run.
const MAX_PARAMS: usize = 120;

/// Lists the jobs and whether each would run, and refuses what the real call refuses; a model that cannot be asked on
/// this machine is a warning. Runs none and writes nothing.
///
/// # Errors
/// [`Refusal::Invalid`]: it is another batch; [`Refusal::Environment`]: record or store cannot be read or trusted.
pub async fn dry_run(
    call: &BatchCall<'_>,
    models: &Models,
    args: &BatchArgs,
    signals: &mut UnboundedReceiver<i32>,
) -> Result<u8, Refusal> {
    let mut state = BatchState::default();
    let key = chain_key::key()?;
    record::refuse_tracked(call.dir, key)?;
    state.read(&call.dir.join(record::FILE), key)?;
    let now = call.plan.file();
    if let Some(store) = call.store {
        if let Some(old) = store.plan().await? {
            refuse_changed(store.url(), &old.manifest, Some(&old), &now, args.changed)?;
        }
        for row in store.lacking(call.dir).await?.here {
            state.learn(row);
        }
    }
    refuse_other(call.dir, &state, &now, args.changed)?;
    let (jobs, _) = supervisor::ready(call, &state, signals).await;
    if args.format == TextOrJson::Json {
        // Only one object is printed: a refusal has its own.
        preflight_models(models, &jobs)?;
        let rows: Vec<Value> = jobs.iter().map(row_of).collect();
        return printed(&format!("{}\n", json!({ "jobs": rows })));
    }
    let mut text: String = jobs.iter().map(line_of_job).collect();
    let count = |disposition| jobs.iter().filter(|job| job.disposition == disposition).count();
    text.push_str(&format!(
        "{}: {} to run, {} up to date, {} skipped\n",
        counted(jobs.len(), "job"),
        count(JobDisposition::Run),
        count(JobDisposition::UpToDate),
        count(JobDisposition::Skipped)
    ));
    printed(&text)?;
    preflight_models(models, &jobs)?;
    Ok(exit::PASSED)
}

/// The model that a job asks first.
fn model_of(job: &PlannedJob) -> Option<&str> {
    job.identity.model.as_deref().or(job.inputs.model.as_deref())
}

/// The object of a job in `--format json`.
fn row_of(job: &ReadyJob<'_>) -> Value {
    let identity = &job.planned.identity;
    let mut row = json!({
        "job": identity.job,
        "digest": job.digest,
        "recipe": identity.recipe,
        "target": identity.target,
        "ref": identity.git_ref,
        "params": identity.params,
        "model": model_of(job.planned),
        "trial": identity.trial,
        "state": job.disposition.as_str(),
    });
    if let (Err(why), JobDisposition::Run, Some(row)) = (&job.source, job.disposition, row.as_object_mut()) {
        row.insert("problem".to_owned(), json!(why));
    }
    row
}

/// The line of a job for people.
fn line_of_job(job: &ReadyJob<'_>) -> String {
    let identity = &job.planned.identity;
    let mut text = format!(
        "{:<10} {}  {}  {}",
        job.disposition.as_str(),
        identity.job,
        identity.target,
        model_of(job.planned).unwrap_or("(no model)")
    );
    let params = identity.param_texts();
    if !params.is_empty() {
        text.push_str(&format!("  {}", line_of(&params.join(" "), MAX_PARAMS)));
    }
    if let (Err(why), JobDisposition::Run) = (&job.source, job.disposition) {
        text.push_str(&format!("  problem: {why}"));
    }
    text.push('\n');
    text
}

/// As [`can_ask`](super::can_ask), for a dry run: what only this machine lacks, such as a key, is a warning.
fn preflight_models(models: &Models, jobs: &[ReadyJob<'_>]) -> Result<(), Refusal> {
    match models.check(to_run(jobs), "no job would be started here") {
        Err(Refusal::Environment(text)) => {
            out::stderr(&format!("warning[unusable-model]: {}", text.replace('\n', "; ")));
            Ok(())
        }
        checked => checked,
    }
}

/// Refuses the directory of a batch with other jobs, unless `changed` accepts it.
///
/// # Errors
/// [`Refusal::Invalid`] with the differences.
pub fn refuse_other(dir: &Path, state: &BatchState, now: &PlanFile, changed: bool) -> Result<(), Refusal> {
    let Some(known) = &state.manifest else { return Ok(()) };
    let old: Option<PlanFile> = std::fs::read(dir.join(plan::FILE))
        .ok()
        .and_then(|text| serde_json::from_slice(&text).ok());
    refuse_changed(&dir.display().to_string(), known, old.as_ref(), now, changed)
}

/// Refuses a manifest that defines other jobs than the one for which `place` was created, unless `changed` accepts it.
///
/// # Errors
/// As [`refuse_other`].
pub fn refuse_changed(
    place: &str,
    known: &str,
    old: Option<&PlanFile>,
    now: &PlanFile,
    changed: bool,
) -> Result<(), Refusal> {
    if known == now.manifest || changed {
        return Ok(());
    }
    let mut text = format!(
        "{place}:1:1: error[changed-manifest]: the manifest defines other jobs than the one for which this directory was created\n"
    );
    for line in old.map(|old| old.changes(now)).unwrap_or_default() {
        text.push_str(&format!("  {line}\n"));
    }
    text.push_str("help: accept it with --changed (results of jobs with the same name and digest are kept), or name another --out");
    Err(Refusal::Invalid(text))
}
