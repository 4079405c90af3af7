//! Declares, before a command is carried out, the directories in which `git` and `sh` are not looked up, because
//! somebody else may have written them: the trees that the command line names, and the current directory. Starts
//! nothing.

use super::args::{Command, PolicyCommand, RecipeCommand, ToolsCommand};
use super::{change_reach, environment};
use crate::process::own_path::{self, settled};
use std::path::{Path, PathBuf};

/// Directories of programs of the machine.
const SYSTEM: [&str; 6] = [
    "/bin",
    "/sbin",
    "/usr/bin",
    "/usr/sbin",
    "/usr/local/bin",
    "/usr/local/sbin",
];

/// Declares the trees of a command line. Trees that a record or a manifest names are declared where it is read.
pub fn declare(command: &Command) {
    let by_variables =
        ["OVERNIGHT_WORKSPACE", "GIT_WORK_TREE"].map(|name| environment::variable(name).map(PathBuf::from));
    let named: Vec<&Path> = named(command)
        .into_iter()
        .filter(|path| *path != Path::new("."))
        .collect();
    let others: Vec<PathBuf> = by_variables
        .into_iter()
        .chain([change_reach::source()])
        .flatten()
        .collect();
    let works_elsewhere = !named.is_empty() || !others.is_empty() || matches!(command, Command::Batch(_));
    // A home that is a repository of settings is not worked on if it is only the current directory of a command that
    // names another tree.
    if !works_elsewhere || !is_home(Path::new(".")) {
        tree(Path::new("."));
    }
    named.into_iter().for_each(tree);
    others.iter().for_each(|path| tree(path));
}

/// Declares one tree. Without effect on a directory that has the programs of the machine in it, and on the home unless
/// it is a repository: being there does not make them a tree that somebody else wrote.
pub fn tree(path: &Path) {
    let path = settled(path);
    let is_system = SYSTEM.iter().any(|dir| Path::new(dir).starts_with(&path));
    let has_home = home().is_some_and(|home| home.starts_with(&path));
    let is_repository = path.join(".git").symlink_metadata().is_ok();
    if !is_system && (is_repository || !has_home) {
        own_path::exclude_tree(&path);
    }
}

fn home() -> Option<PathBuf> {
    environment::variable("HOME").map(|home| settled(Path::new(&home)))
}

/// Whether this is the user's home.
pub fn is_home(path: &Path) -> bool {
    home().is_some_and(|home| home == settled(path))
}

fn named(command: &Command) -> Option<&Path> {
    match command {
        Command::Run(args) => args.shared.workspace.as_deref(),
        Command::Resume(args) => args.shared.workspace.as_deref(),
        Command::Deliver(args) => args.repo.as_deref(),
        Command::Report(args) => Some(&args.workspace),
        Command::Init(args) => Some(&args.dir),
        Command::Runs(args) => Some(&args.workspace),
        Command::Doctor(args) => Some(&args.workspace),
        Command::Policy(PolicyCommand::Test { workspace, .. } | PolicyCommand::Suggest { workspace, .. })
        | Command::Tools(ToolsCommand::List { workspace, .. }) => Some(workspace),
        Command::Policy(PolicyCommand::Explain(args)) => Some(&args.workspace),
        Command::Tools(ToolsCommand::Call(args)) => Some(&args.workspace),
        Command::Recipe(RecipeCommand::Check { workspace, .. }) => workspace.as_deref(),
        Command::Policy(PolicyCommand::Check { .. } | PolicyCommand::Import { .. })
        | Command::Recipe(_)
        | Command::Batch(_)
        | Command::Merge(_)
        | Command::Compare(_)
        | Command::Completions { .. }
        | Command::Man(_)
        | Command::Schema(_)
        | Command::McpProbe { .. } => None,
    }
}
