//! Implements `overnight runs`: list, verify, prune.

use super::printed;
use crate::base::ids::RunId;
use crate::base::quote::counted;
use crate::cli::args::{RunsArgs, RunsCommand, TextOrJson};
use crate::cli::refusal::Refusal;
use crate::cli::{exit, out, verify};
use crate::journal::run_dirs;
use serde_json::{Value, json};
use std::path::{Path, PathBuf};

/// Runs the command.
///
/// # Errors
/// [`Refusal::Environment`] if the workspace or a named run is missing, or there is no run to verify;
/// [`Refusal::Output`] if stdout cannot be written. Problems that verifying finds are no errors.
pub fn runs(args: &RunsArgs) -> Result<u8, Refusal> {
    match &args.command {
        None => list(&args.workspace, TextOrJson::Text),
        Some(RunsCommand::List { format }) => list(&args.workspace, *format),
        Some(RunsCommand::Verify { last: true, format, .. }) => {
            verify_all(&[run_dirs::newest(&args.workspace)?], &args.workspace, *format)
        }
        Some(RunsCommand::Verify { runs, format, .. }) => verify_all(runs, &args.workspace, *format),
        Some(RunsCommand::Prune { keep, all, format }) => prune(&args.workspace, (*keep, *all), *format),
    }
}

/// Prints one line per removed run, and one on stderr per run that was kept although it is not among the newest; or
/// `{removed, kept: [{run, verdict}]}`.
fn prune(workspace: &Path, (keep, all): (usize, bool), format: TextOrJson) -> Result<u8, Refusal> {
    let pruned = run_dirs::prune(workspace, keep, all)?;
    if format == TextOrJson::Json {
        let removed: Vec<&str> = pruned.removed.iter().map(RunId::as_str).collect();
        let one = |run: &run_dirs::RunListing| json!({ "run": run.run.as_str(), "verdict": run.progress.as_str() });
        let kept: Vec<Value> = pruned.kept.iter().map(one).collect();
        return printed(&format!("{}\n", json!({ "removed": removed, "kept": kept })));
    }
    for run in &pruned.kept {
        let why = match run.is_open() && !all {
            true => "it is unfinished; --all removes it too",
            false => "a process works on it, or its journal cannot be opened",
        };
        out::stderr(&format!("kept: {} ({}): {why}", run.run, run.progress.as_str()));
    }
    printed(&pruned.removed.iter().map(|run| format!("{run}\n")).collect::<String>())
}

/// Prints one line per run, with its directory where `--out` named it, or `[{run, started, verdict, recipe, directory}]`.
fn list(workspace: &Path, format: TextOrJson) -> Result<u8, Refusal> {
    let runs = run_dirs::list(workspace)?;
    if format == TextOrJson::Json {
        let one = |run: &run_dirs::RunListing| {
            json!({
                "run": run.run.as_str(),
                "started": run.started,
                "verdict": run.progress.as_str(),
                "recipe": run.recipe,
                "directory": run.dir,
            })
        };
        let all: Vec<Value> = runs.iter().map(one).collect();
        return printed(&format!("{}\n", Value::from(all)));
    }
    if runs.is_empty() {
        // Nothing on stdout could also be a mistake in the directory.
        let place = workspace.join(run_dirs::RUNS);
        out::stderr(&format!("overnight: there are no runs in {}", place.display()));
    }
    let mut text = String::new();
    for run in runs {
        let started = run.started.map(|at| at.strftime("%Y-%m-%d %H:%M:%S").to_string());
        let out = run.out.map_or_else(String::new, |out| format!("  ({})", out.display()));
        text.push_str(&format!(
            "{}  {}  {:<12} {}{out}\n",
            run.run,
            started.unwrap_or_default(),
            run.progress.as_str(),
            run.recipe
        ));
    }
    printed(&text)
}

/// Prints each run with its problems, as text or as `[{directory, valid, events, head, keyed, torn, problems}]`.
fn verify_all(runs: &[String], workspace: &Path, format: TextOrJson) -> Result<u8, Refusal> {
    let dirs = if runs.is_empty() {
        let begun = run_dirs::list(workspace)?.into_iter().filter(|run| run.began);
        let begun: Vec<PathBuf> = begun.map(|run| run.dir).collect();
        if begun.is_empty() {
            // Nothing that was verified must not look like a success.
            return Err(Refusal::Environment(format!(
                "{} has no run to verify: name a run directory, or the directory of its runs with --workspace",
                workspace.display()
            )));
        }
        begun
    } else {
        let located = runs.iter().map(|run| run_dirs::locate(run, workspace));
        located.collect::<Result<Vec<_>, _>>()?
    };
    let mut code = exit::PASSED;
    let mut all = Vec::new();
    for dir in dirs {
        let name = dir.display().to_string();
        let (journal, problems) = match verify::run(&dir) {
            Ok(verified) => (Some(verified.journal), [verified.problems, verified.beside].concat()),
            Err(error) => (None, vec![error.to_string()]),
        };
        if !problems.is_empty() {
            code = exit::FAILED;
        }
        if format == TextOrJson::Json {
            all.push(json!({
                "directory": name,
                "valid": problems.is_empty(),
                "events": journal.as_ref().map(|journal| journal.events.len()),
                "head": journal.as_ref().map(|journal| journal.chain.clone()),
                "keyed": journal.as_ref().map(|journal| journal.keyed),
                "torn": journal.as_ref().map(|journal| journal.torn),
                "problems": problems,
            }));
            continue;
        }
        for problem in &problems {
            out::stderr(&format!("error: {name}: {problem}"));
        }
        if let Some(journal) = journal.filter(|_| problems.is_empty()) {
            let torn = if journal.torn { ", the last line is torn" } else { "" };
            let left = match journal.unrecorded {
                0 => String::new(),
                more => format!(", {} after the recorded end left out", counted(more, "event")),
            };
            let keyed = if journal.keyed { ", keyed" } else { "" };
            let head = journal.chain.get(..16).unwrap_or_default();
            printed(&format!(
                "{name}: {}, chain {head}{keyed}{torn}{left}\n",
                counted(journal.events.len(), "event")
            ))?;
        }
    }
    if format == TextOrJson::Json {
        printed(&format!("{}\n", Value::from(all)))?;
    }
    Ok(code)
}
