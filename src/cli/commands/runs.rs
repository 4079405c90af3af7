//! `overnight runs`: list, verify, prune.

use super::printed;
use crate::cli::args::{RunsArgs, RunsCommand};
use crate::cli::refusal::Refusal;
use crate::cli::{exit, out, verify};
use crate::journal::store;
use std::path::Path;

/// Carries it out.
pub fn runs(args: &RunsArgs) -> Result<u8, Refusal> {
    match &args.command {
        None | Some(RunsCommand::List) => list(&args.workspace),
        Some(RunsCommand::Verify { runs }) => verify_all(runs, &args.workspace),
        Some(RunsCommand::Prune { keep }) => {
            let removed = store::prune(&args.workspace, *keep)?;
            printed(&removed.iter().map(|run| format!("{run}\n")).collect::<String>())
        }
    }
}

fn list(workspace: &Path) -> Result<u8, Refusal> {
    let mut text = String::new();
    for run in store::list(workspace)? {
        let started = run.started.map(|at| at.strftime("%Y-%m-%d %H:%M:%S").to_string());
        text.push_str(&format!(
            "{}  {}  {:<12} {}\n",
            run.run,
            started.unwrap_or_default(),
            run.verdict,
            run.recipe
        ));
    }
    printed(&text)
}

fn verify_all(runs: &[String], workspace: &Path) -> Result<u8, Refusal> {
    let dirs = if runs.is_empty() {
        store::list(workspace)?.into_iter().map(|run| run.dir).collect()
    } else {
        let located = runs.iter().map(|run| store::locate(run, workspace));
        located.collect::<Result<Vec<_>, _>>()?
    };
    let mut code = exit::PASSED;
    for dir in dirs {
        let name = dir.display();
        match verify::run(&dir) {
            Ok(verified) if verified.problems.is_empty() => {
                let journal = verified.journal;
                let torn = if journal.torn { ", the last line is torn" } else { "" };
                let keyed = if journal.keyed { ", keyed" } else { "" };
                let head = journal.chain.get(..16).unwrap_or_default();
                printed(&format!(
                    "{name}: {} events, chain {head}{keyed}{torn}\n",
                    journal.events.len()
                ))?;
            }
            Ok(verified) => {
                for problem in verified.problems {
                    out::tell(&format!("error: {name}: {problem}"));
                }
                code = exit::FAILED;
            }
            Err(error) => {
                out::tell(&format!("error: {name}: {error}"));
                code = exit::FAILED;
            }
        }
    }
    Ok(code)
}
