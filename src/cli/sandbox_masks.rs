//! Says which files of the workspace the sandbox must hide from commands.

use crate::policy::PolicySet;
use crate::policy::secrets_like::{is_masked_by_name, is_masked_without_key};
use crate::process::SecretPaths;

/// The files that no command may read. A command can reach them without naming them (`grep -r`, `cat $(ls)`), so a check
/// of names is not enough.
#[derive(Debug)]
pub struct UnreadableFiles(pub PolicySet);

impl SecretPaths for UnreadableFiles {
    fn is_secret(&self, path: &str) -> bool {
        // Git must read its own files, whatever a rule says of them.
        let is_of_git = path.split('/').any(|part| part == ".git") && !is_masked_by_name(path);
        !is_of_git && self.0.masks(path, is_masked_by_name)
    }

    fn is_open_without_key(&self, path: &str) -> bool {
        !self.0.masks(path, is_masked_without_key)
    }
}
