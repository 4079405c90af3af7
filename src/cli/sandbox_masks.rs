//! Says which files of the workspace the sandbox must hide from commands.

use crate::base::call::ToolKind;
use crate::policy::PolicySet;
use crate::process::SecretPaths;

/// The files that no command may read. A command can reach them without naming them (`grep -r`, `cat $(ls)`), so a check
/// of names is not enough.
#[derive(Debug)]
pub struct UnreadableFiles(pub PolicySet);

impl SecretPaths for UnreadableFiles {
    fn is_secret(&self, path: &str) -> bool {
        self.0.unreadable("run_shell_command", ToolKind::Execute, path)
    }
}
