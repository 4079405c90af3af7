//! Decides which environment variables a recipe may pass to servers, and which become secrets by that.

use super::grants::{self, VariableForm};
use crate::base::secret::{Redactor, is_model_key, is_secret_name, is_setting};
use crate::recipe::Plan;
use crate::recipe::plan::McpServer;
use std::cell::RefCell;
use std::path::Path;
use std::sync::OnceLock;

/// Variables that the system or a CI server sets for everybody to see. Their values are part of paths, addresses and
/// messages, so redacting them would spoil the records. Those of them with a secret name are redacted as any other.
const PUBLIC: [&str; 20] = [
    "PATH",
    "HOME",
    "USER",
    "LOGNAME",
    "SHELL",
    "LANG",
    "LANGUAGE",
    "TERM",
    "TZ",
    "TMPDIR",
    "PWD",
    "OLDPWD",
    "HOSTNAME",
    "NODE_ENV",
    "VIRTUAL_ENV",
    "JAVA_HOME",
    "CARGO_HOME",
    "GOPATH",
    "BUILD_ID",
    "BUILD_URL",
];
/// How the names of further such variables begin.
const PUBLIC_FAMILIES: [&str; 9] = [
    "LC_",
    "XDG_",
    "GITHUB_",
    "RUNNER_",
    "CI_",
    "GITLAB_",
    "BUILDKITE_",
    "JENKINS_",
    "OVERNIGHT_",
];

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
pub fn expanded(text: &str, form: VariableForm, trusted: bool, secrets: &Secrets) -> Result<String, String> {
    let (full, names) = filled(text, form, secrets);
    if let Some(why) = withheld(&full, &names, trusted, secrets) {
        return Err(why);
    }
    grants::expand(text, form, &|name| secrets.variable(name))
}

/// The text with variables expanded (unset ones as empty), and the names of the variables.
pub fn filled(text: &str, form: VariableForm, secrets: &Secrets) -> (String, Vec<String>) {
    let names = RefCell::new(Vec::new());
    let lookup = |name: &str| {
        names.borrow_mut().push(name.to_owned());
        Some(secrets.variable(name).unwrap_or_default())
    };
    let full = grants::expand(text, form, &lookup).unwrap_or_default();
    (full, names.into_inner())
}

/// The variables that the servers of a plan get in `headers`, `oauth`, `env` and imported command lines, with their values:
/// a server may repeat them in an answer, so they are redacted whatever their names.
pub fn sent(plan: &Plan, secrets: &Secrets) -> Vec<(String, String)> {
    let servers = plan.tools.mcp_servers.values();
    servers.flat_map(|server| sent_to(server, secrets)).collect()
}

/// Checks that the required servers of a plan can get their variables. Starts no server.
///
/// # Errors
/// The first variable that is not set or may not be used, with the name of the server.
pub fn lacking(plan: &Plan, trusted: bool, secrets: &Secrets) -> Result<(), String> {
    for (name, server) in plan.tools.mcp_servers.iter().filter(|(_, server)| server.required) {
        let url = server.url.iter().map(|text| (text, VariableForm::Any, false));
        for (text, form, _) in texts_of(server).chain(url) {
            expanded(text, form, trusted, secrets).map_err(|why| format!("MCP server {name}: {why}"))?;
        }
    }
    Ok(())
}

/// The texts of a server in which variables are expanded, except its address, each with whether it may be a path.
fn texts_of(server: &McpServer) -> impl Iterator<Item = (&String, VariableForm, bool)> {
    let oauth = server.oauth.iter().flat_map(|of| {
        let proof = of.client_secret.iter().chain(&of.private_key);
        proof.chain([&of.client_id])
    });
    let credentials = server.headers.values().chain(oauth);
    let credentials = credentials.map(|text| (text, VariableForm::Any, false));
    let given = server.env.values().map(|text| (text, VariableForm::Any, true));
    let words = server.command.iter().chain(&server.args);
    let words = words.filter(|_| server.expands_command);
    let words = words.map(|text| (text, VariableForm::Braced, true));
    credentials.chain(given).chain(words)
}

fn sent_to(server: &McpServer, secrets: &Secrets) -> Vec<(String, String)> {
    let mut found = Vec::new();
    for (text, form, may_be_place) in texts_of(server) {
        for name in filled(text, form, secrets).1 {
            let Some(value) = secrets.variable(&name) else {
                continue;
            };
            let place = may_be_place && Path::new(&value).is_absolute() && Path::new(&value).exists();
            if !is_public(&name) && !place && !is_setting(&value) {
                found.push((name, value.trim().to_owned()));
            }
        }
    }
    found
}

fn is_public(name: &str) -> bool {
    PUBLIC.contains(&name) || PUBLIC_FAMILIES.iter().any(|family| name.starts_with(family))
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

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    #[test]
    fn what_servers_get_is_secret_unless_everybody_sees_it() {
        let vars = [
            ("SRVX", "zebra-crossing-41"),
            ("INNER", "/no/such/place/4711"),
            ("HERE", "/usr"),
            ("MODE", "production"),
            ("GITHUB_REPOSITORY", "octo/example-repo"),
            ("UNUSED", "never-expanded-1"),
            ("ARG", "passed-on-0815"),
        ];
        let secrets = Secrets::of(vars.map(|(name, value)| (name.to_owned(), value.to_owned())).to_vec());
        let pairs = |all: &[(&str, &str)]| -> BTreeMap<String, String> {
            let all = all.iter().map(|(name, text)| ((*name).to_owned(), (*text).to_owned()));
            all.collect()
        };
        let server = McpServer {
            headers: pairs(&[("X-A", "Bearer ${SRVX}"), ("X-Repo", "$GITHUB_REPOSITORY")]),
            env: pairs(&[
                ("A", "$INNER"),
                ("B", "$HERE"),
                ("C", "${MODE:-test}"),
                ("D", "${NONE:-$SRVX}"),
            ]),
            args: vec!["--key=${ARG}".to_owned(), "$UNUSED".to_owned()],
            expands_command: true,
            ..McpServer::default()
        };
        let names = |server: &McpServer| {
            let mut names: Vec<String> = sent_to(server, &secrets).into_iter().map(|(name, _)| name).collect();
            names.sort();
            names.dedup();
            names
        };
        assert_eq!(names(&server), ["ARG", "INNER", "SRVX"]);
        let of_recipe = McpServer {
            expands_command: false,
            ..server
        };
        assert_eq!(names(&of_recipe), ["INNER", "SRVX"]);
    }
}
