//! Which files of the workspace the sandbox must cover from commands. Covers none itself.

use crate::base::call::Kind;
use crate::policy::PolicySet;
use crate::workspace::Workspace;
use std::path::{Path, PathBuf};

/// The files that no command may read, and other names of the same files. A command may come upon them without naming them
/// (`grep -r`, `cat $(ls)`), so the sandbox covers them; git's own files are left to git.
///
/// # Errors
/// The workspace cannot be opened, or holds too many of them.
pub fn unreadable_files(policies: &PolicySet, root: &Path) -> Result<Vec<PathBuf>, String> {
    let workspace = Workspace::open(root).map_err(|error| format!("the workspace cannot be opened: {error}"))?;
    let secret = |path: &str| policies.unreadable("run_shell_command", Kind::Execute, path);
    let found = workspace.unseen(&secret, MOST_UNREADABLE);
    found.ok_or_else(|| {
        format!(
            "the workspace holds more than {MOST_UNREADABLE} files that commands must not read; \
             name those that they may read in a rule, or move them out"
        )
    })
}

/// Each costs a mount with every command.
const MOST_UNREADABLE: usize = 1000;
