//! The environment of this process: its variables, and paths relative to its current directory.

use crate::base::secret::Redactor;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError, RwLock};

/// What [`redactor`] returns, and the variables that are secret whatever their names.
type Known = (Option<Arc<Redactor>>, BTreeMap<String, String>);

static KNOWN: RwLock<Known> = RwLock::new((None, BTreeMap::new()));

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
pub fn redactor() -> Arc<Redactor> {
    if let Some(redactor) = &KNOWN.read().unwrap_or_else(PoisonError::into_inner).0 {
        return Arc::clone(redactor);
    }
    let mut known = KNOWN.write().unwrap_or_else(PoisonError::into_inner);
    let (redactor, more) = &mut *known;
    Arc::clone(redactor.get_or_insert_with(|| redactor_with(more)))
}

/// Redacts these variables too, whatever their names. Call it before [`redactor`] is handed to what records or sends.
pub fn add_secrets(vars: Vec<(String, String)>) {
    if vars.is_empty() {
        return;
    }
    let mut known = KNOWN.write().unwrap_or_else(PoisonError::into_inner);
    let (redactor, more) = &mut *known;
    more.extend(vars);
    *redactor = Some(redactor_with(more));
}

fn redactor_with(more: &BTreeMap<String, String>) -> Arc<Redactor> {
    let more = more.iter().map(|(name, value)| (name.clone(), value.clone()));
    Arc::new(Redactor::from_env_and(variables(), more.collect()))
}

/// The absolute path of the current directory as events record it. `None` if it was removed or its path is not UTF-8.
pub fn current_directory() -> Option<String> {
    std::env::current_dir().ok()?.into_os_string().into_string().ok()
}

/// The absolute path, whether it exists or not.
pub fn absolute(path: &Path) -> PathBuf {
    std::path::absolute(path).unwrap_or_else(|_| path.to_owned())
}
