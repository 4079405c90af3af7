//! Which variables of the environment a recipe may fill into what it gives to servers. Reads no variable itself.

use super::grants;
use crate::base::secret::{Redactor, is_model_key, is_secret_name};
use std::cell::RefCell;
use std::sync::OnceLock;

/// The environment, and what in it is secret. Most runs ask nothing of it, so the searches are made when they are first used.
pub struct Secrets {
    vars: Vec<(String, String)>,
    keys: OnceLock<Redactor>,
    all: OnceLock<Redactor>,
}

impl Secrets {
    /// Of these variables.
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

    /// The key of a model service that a variable is or holds, by its own name; a fragment for people.
    pub fn model_key(&self, name: &str) -> Option<String> {
        if is_model_key(name) {
            return Some(format!("`{name}` is the key of a model service"));
        }
        let value = self.variable(name)?;
        let key = self.keys().find(value.as_bytes())?;
        Some(format!("`{name}` holds {key}, the key of a model service"))
    }

    /// Why a variable is secret.
    fn secret(&self, name: &str) -> Option<String> {
        if is_secret_name(name) {
            return Some(format!("`{name}` looks like a secret"));
        }
        let value = self.variable(name)?;
        let held = self.all().find(value.as_bytes())?;
        Some(format!("`{name}` holds the value of {held}"))
    }
}

/// A text with its variables filled in, for whom it may be.
///
/// # Errors
/// A variable that is not set, or that it may not have; a fragment for people.
pub fn expanded(text: &str, trusted: bool, secrets: &Secrets) -> Result<String, String> {
    let (full, names) = filled(text, secrets);
    if let Some(why) = withheld(&full, &names, trusted, secrets) {
        return Err(why);
    }
    grants::expand(text, &|name| secrets.variable(name))
}

/// The text with what the variables hold, nothing for those that are not set; and the names that it uses.
pub fn filled(text: &str, secrets: &Secrets) -> (String, Vec<String>) {
    let names = RefCell::new(Vec::new());
    let lookup = |name: &str| {
        names.borrow_mut().push(name.to_owned());
        Some(secrets.variable(name).unwrap_or_default())
    };
    let full = grants::expand(text, &lookup).unwrap_or_default();
    (full, names.into_inner())
}

/// Why a text may not be filled in.
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
