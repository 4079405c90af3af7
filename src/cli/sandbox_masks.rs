//! Lists the files of the workspace that the sandbox must hide from commands.

use crate::base::call::ToolKind;
use crate::policy::PolicySet;
use crate::workspace::Workspace;
use std::path::{Path, PathBuf};

/// The files that no command may read, and their hard links. A command can reach them without naming them (`grep -r`,
/// `cat $(ls)`), so a check of names is not enough. Git's own files are excluded, because git must read them.
///
/// # Errors
/// The workspace cannot be opened, or contains too many such files.
pub fn unreadable_files(policies: &PolicySet, root: &Path) -> Result<Vec<PathBuf>, String> {
    let workspace = Workspace::open(root).map_err(|error| format!("the workspace cannot be opened: {error}"))?;
    let secret = |path: &str| policies.unreadable("run_shell_command", ToolKind::Execute, path);
    let found = workspace.unseen(&secret, MOST_UNREADABLE);
    found.ok_or_else(|| {
        format!(
            "the workspace contains more than {MOST_UNREADABLE} files that commands must not read; \
             name those that they may read in a rule, or move them out"
        )
    })
}

/// Upper limit, because each file costs a mount in every command.
const MOST_UNREADABLE: usize = 1000;
