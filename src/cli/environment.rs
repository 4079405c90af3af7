//! The environment of this process: its variables, and paths relative to its current directory.

use crate::base::secret::Redactor;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

/// The value of an environment variable, if it is set, UTF-8 and not empty.
pub fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|value| !value.is_empty())
}

/// The value of an environment variable if it is set, even if empty. A value that is not UTF-8 counts as empty.
pub fn set_variable(name: &str) -> Option<String> {
    std::env::var_os(name).map(|value| value.into_string().unwrap_or_default())
}

/// The environment, without entries that are not UTF-8.
pub fn variables() -> Vec<(String, String)> {
    let pairs = std::env::vars_os();
    pairs
        .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)))
        .collect()
}

/// Finds the secrets of this environment. Everything that this process writes, prints or sends is redacted by it.
pub fn redactor() -> &'static Arc<Redactor> {
    static REDACTOR: OnceLock<Arc<Redactor>> = OnceLock::new();
    REDACTOR.get_or_init(|| Arc::new(Redactor::from_env(variables())))
}

/// The absolute path, whether it exists or not.
pub fn absolute(path: &Path) -> PathBuf {
    std::path::absolute(path).unwrap_or_else(|_| path.to_owned())
}
