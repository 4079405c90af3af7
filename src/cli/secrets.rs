//! Decides which environment variables a recipe may pass to servers.

use super::grants;
use crate::base::secret::{Redactor, is_model_key, is_secret_name};
use std::cell::RefCell;
use std::sync::OnceLock;

/// The environment and its secrets. Secrets are searched for on first use, because most runs do not need them.
pub struct Secrets {
    vars: Vec<(String, String)>,
    keys: OnceLock<Redactor>,
    all: OnceLock<Redactor>,
}

impl Secrets {
    /// From these variables.
    pub fn of(vars: Vec<(String, String)>) -> Self {
        Self {
            vars,
            keys: OnceLock::new(),
            all: OnceLock::new(),
        }
    }

    /// All variables.
    pub fn vars(&self) -> &[(String, String)] {
        &self.vars
    }

    fn keys(&self) -> &Redactor {
        self.keys
            .get_or_init(|| Redactor::of_model_keys(self.vars.iter().cloned()))
    }

    fn all(&self) -> &Redactor {
        self.all.get_or_init(|| Redactor::from_env(self.vars.iter().cloned()))
    }

    /// A variable, if it is set and not empty.
    pub fn variable(&self, name: &str) -> Option<String> {
        let found = self.vars.iter().find(|(have, _)| have == name);
        found.map(|(_, value)| value.clone()).filter(|value| !value.is_empty())
    }

    /// Which key of a model service the variable is or contains; a message fragment for people.
    pub fn model_key(&self, name: &str) -> Option<String> {
        if is_model_key(name) {
            return Some(format!("`{name}` is the key of a model service"));
        }
        let value = self.variable(name)?;
        let key = self.keys().find(value.as_bytes())?;
        Some(format!("`{name}` contains {key}, the key of a model service"))
    }

    /// Why a variable is secret, if it is.
    fn secret(&self, name: &str) -> Option<String> {
        if is_secret_name(name) {
            return Some(format!("`{name}` looks like a secret"));
        }
        let value = self.variable(name)?;
        let held = self.all().find(value.as_bytes())?;
        Some(format!("`{name}` holds the value of {held}"))
    }
}

/// Expands the variables in a text, if they may be used.
///
/// # Errors
/// A variable is not set or may not be used; a message fragment for people.
pub fn expanded(text: &str, trusted: bool, secrets: &Secrets) -> Result<String, String> {
    let (full, names) = filled(text, secrets);
    if let Some(why) = withheld(&full, &names, trusted, secrets) {
        return Err(why);
    }
    grants::expand(text, &|name| secrets.variable(name))
}

/// The text with variables expanded (unset ones as empty), and the names of the variables.
pub fn filled(text: &str, secrets: &Secrets) -> (String, Vec<String>) {
    let names = RefCell::new(Vec::new());
    let lookup = |name: &str| {
        names.borrow_mut().push(name.to_owned());
        Some(secrets.variable(name).unwrap_or_default())
    };
    let full = grants::expand(text, &lookup).unwrap_or_default();
    (full, names.into_inner())
}

/// Why a text may not be expanded.
pub fn withheld(full: &str, names: &[String], trusted: bool, secrets: &Secrets) -> Option<String> {
    if let Some(why) = names.iter().find_map(|name| secrets.model_key(name)) {
        return Some(why);
    }
    if let Some(key) = secrets.keys().find(full.as_bytes()) {
        return Some(format!("it holds the value of {key}, the key of a model service"));
    }
    if trusted {
        return None;
    }
    if let Some(why) = names.iter().find_map(|name| secrets.secret(name)) {
        return Some(why);
    }
    let held = secrets.all().find(full.as_bytes())?;
    Some(format!("it holds the value of {held}"))
}
