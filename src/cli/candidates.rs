//! Candidates for shell completion: runs, their outputs and verdicts, recipes and policies.

use super::shipped;
use crate::base::outcome::Verdict;
use crate::journal::run_dirs;
use crate::policy::presets;
use crate::report::export::ReportFile;
use crate::tools::builtin_specs;
use clap_complete::engine::{
    ArgValueCandidates, ArgValueCompleter, CompletionCandidate, PathCompleter, ValueCompleter,
};
use std::ffi::{OsStr, OsString};
use std::path::PathBuf;

/// Upper limit for the candidates of one kind.
const LIMIT: usize = 200;

/// Runs of the tree that the command line names, else of the current directory, newest first.
pub fn runs() -> ArgValueCandidates {
    ArgValueCandidates::new(|| {
        let typed: Vec<OsString> = std::env::args_os().collect();
        let newest = run_dirs::recent(&tree(&typed), LIMIT).unwrap_or_default();
        newest
            .into_iter()
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

/// The tree of the command line that is being completed: `-C` works as if started there, and the others are relative to
/// it.
fn tree(typed: &[OsString]) -> PathBuf {
    let value = |names: &[&str]| {
        let long = names.iter().filter(|name| name.starts_with("--"));
        let joined = long.map(|name| format!("{name}=")).collect::<Vec<_>>();
        let found = typed.iter().enumerate().find_map(|(at, word)| {
            if names.iter().any(|name| word == name) {
                return typed.get(at + 1).cloned();
            }
            let word = word.to_str()?;
            let value = joined.iter().find_map(|start| word.strip_prefix(start.as_str()));
            value.map(OsString::from)
        });
        found.map(PathBuf::from)
    };
    let start = value(&["-C"]).unwrap_or_else(|| PathBuf::from("."));
    match value(&["--workspace", "--repo"]) {
        Some(tree) => start.join(tree),
        None => start,
    }
}

/// The built-in tools.
pub fn tools() -> ArgValueCandidates {
    ArgValueCandidates::new(|| {
        let specs = builtin_specs().iter();
        specs.map(|spec| CompletionCandidate::new(spec.name.as_str())).collect()
    })
}

/// These words.
pub fn words(all: fn() -> Vec<String>) -> ArgValueCandidates {
    ArgValueCandidates::new(move || all().into_iter().map(CompletionCandidate::new).collect())
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_are_looked_up_in_the_tree_that_was_typed() {
        for (typed, expected) in [
            ("overnight report ", "."),
            ("overnight -C a report ", "a"),
            ("overnight report --workspace b ", "./b"),
            ("overnight report --workspace=b ", "./b"),
            ("overnight -C a deliver --repo b ", "a/b"),
            ("overnight -C a deliver --repo /b ", "/b"),
        ] {
            let words: Vec<OsString> = typed.split(' ').map(OsString::from).collect();
            assert_eq!(tree(&words), PathBuf::from(expected), "{typed}");
        }
    }
}
