//! Candidates for shell completion: runs, their outputs and verdicts, recipes and policies.

use super::shipped;
use crate::base::outcome::Verdict;
use crate::journal::run_dirs;
use crate::policy::presets;
use crate::report::export::ReportFile;
use clap_complete::engine::{
    ArgValueCandidates, ArgValueCompleter, CompletionCandidate, PathCompleter, ValueCompleter,
};
use std::ffi::OsStr;
use std::path::Path;

/// Upper limit for the candidates of one kind.
const LIMIT: usize = 200;

/// Runs of the current directory, newest first.
pub fn runs() -> ArgValueCandidates {
    ArgValueCandidates::new(|| {
        let runs = run_dirs::list(Path::new(".")).unwrap_or_default();
        let newest = runs.into_iter().rev().take(LIMIT);
        newest
            .enumerate()
            .map(|(place, run)| {
                let what = format!("{} {}", run.progress.as_str(), run.recipe);
                CompletionCandidate::new(run.run.as_str())
                    .help(Some(what.into()))
                    .display_order(Some(place))
            })
            .collect()
    })
}

/// The outputs of a run.
pub fn outputs() -> ArgValueCandidates {
    ArgValueCandidates::new(|| {
        let all = ReportFile::ALL.iter().enumerate();
        all.map(|(place, output)| CompletionCandidate::new(output.as_str()).display_order(Some(place)))
            .collect()
    })
}

/// The verdicts with which a run is delivered only as an exception.
pub fn exceptions() -> ArgValueCandidates {
    ArgValueCandidates::new(|| {
        let all = Verdict::ALL.iter().filter(|verdict| !verdict.is_success());
        all.map(|verdict| CompletionCandidate::new(verdict.as_str())).collect()
    })
}

/// Recipe files.
pub fn recipes() -> ArgValueCompleter {
    ArgValueCompleter::new(|current: &OsStr| {
        let names: Vec<String> = shipped::names().iter().map(|name| format!("builtin:{name}")).collect();
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        with_files(current, &names, "recipes")
    })
}

/// Built-in policies and policy files.
pub fn policies() -> ArgValueCompleter {
    ArgValueCompleter::new(|current: &OsStr| {
        let names: Vec<&str> = presets::names().collect();
        with_files(current, &names, "recipes/policies")
    })
}

/// The given names, the YAML files in the directory that projects usually keep them in, and any path.
fn with_files(current: &OsStr, names: &[&str], dir: &str) -> Vec<CompletionCandidate> {
    let typed = current.to_string_lossy();
    let mut found: Vec<CompletionCandidate> = names
        .iter()
        .filter(|name| name.starts_with(&*typed))
        .map(|name| CompletionCandidate::new(*name))
        .collect();
    if typed.is_empty() {
        let files = std::fs::read_dir(dir).into_iter().flatten().filter_map(Result::ok);
        let files = files.map(|entry| entry.path()).filter(|path| {
            path.extension()
                .is_some_and(|extension| extension == "yaml" || extension == "yml")
        });
        found.extend(files.take(LIMIT).map(CompletionCandidate::new));
    }
    found.extend(PathCompleter::file().complete(current));
    found
}
