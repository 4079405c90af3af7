//! Finds what a recipe asks for without being granted it: hosts, secrets and outside paths of an untrusted recipe, and
//! keys of model services of any recipe. Checks the plan before anything is started.

use super::environment;
use super::grants::{self, VariableForm};
use super::origin::Trust;
use super::secrets::{Secrets, filled, withheld};
use crate::base::model_name::is_played;
use crate::diag::{Diagnostic, Span, Spanned};
use crate::policy::PolicySet;
use crate::policy::hosts::{self, HostPattern};
use crate::process::{Confinement, program_search, toolchains};
use crate::recipe::model::ServerSpec;
use crate::recipe::plan::McpServer;
use crate::recipe::{Plan, Recipe};
use crate::tools::words;
use std::path::{Path, PathBuf};

/// The ways to make a recipe trusted.
const WAYS: &str =
    "run it as git:REV:PATH from the base branch, from a file outside the repository, or with `--trust recipe`";

/// System directories: their files are no secrets, and every command may read them.
const SYSTEM: [&str; 9] = [
    "/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/etc", "/dev", "/proc",
];

/// Inputs of the check.
pub struct RequestCheck<'a> {
    /// For source locations; `None` if only the plan is available.
    pub recipe: Option<&'a Recipe>,
    pub plan: &'a Plan,
    pub trust: &'a Trust,
    pub policies: &'a PolicySet,
    pub workspace: &'a Path,
    /// The model was given on the command line.
    pub model_given: bool,
    pub secrets: &'a Secrets,
}

impl RequestCheck<'_> {
    /// Everything that the recipe asks for and is not granted, in the order of the file.
    pub fn refused(&self) -> Vec<Diagnostic> {
        let mut found = Vec::new();
        for (name, server) in &self.plan.tools.mcp_servers {
            self.server(name, server, &mut found);
        }
        if !self.trust.trusted {
            self.discovery(&mut found);
            self.model(&mut found);
        }
        crate::diag::diagnostic::sort(&mut found);
        found
    }

    fn server(&self, name: &str, server: &McpServer, found: &mut Vec<Diagnostic>) {
        let recipe = self.recipe;
        let spec = recipe.and_then(|recipe| recipe.tools.mcp_servers.iter().find(|spec| spec.name.value == name));
        let imported = recipe.and_then(|recipe| recipe.tools.settings.as_ref().map(|path| path.span));
        let at = |pick: &dyn Fn(&ServerSpec) -> Option<Span>| match spec {
            Some(spec) => pick(spec).or(Some(spec.name.span)),
            None => imported,
        };
        let pair = |pairs: &[(String, Spanned<String>)], key: &str| {
            pairs.iter().find(|(name, _)| name == key).map(|(_, text)| text.span)
        };
        let any = Some(VariableForm::Any);
        let in_command = server.expands_command.then_some(VariableForm::Braced);
        let mut texts: Vec<(String, &str, Option<Span>, Option<VariableForm>)> = Vec::new();
        for (key, text) in &server.headers {
            let span = at(&|spec| pair(&spec.headers, key));
            texts.push((format!("the header `{key}`"), text, span, any));
        }
        for (key, text) in &server.env {
            let span = at(&|spec| pair(&spec.env, key));
            texts.push((format!("the variable `{key}`"), text, span, any));
        }
        if let Some(url) = &server.url {
            let span = at(&|spec| spec.url.as_ref().map(|text| text.span));
            texts.push(("the URL".to_owned(), url, span, any));
        }
        for (index, arg) in server.args.iter().enumerate() {
            let span = at(&|spec| spec.args.get(index).map(|text| text.span));
            texts.push(("an argument".to_owned(), arg, span, in_command));
        }
        if let Some(command) = server.command.as_ref().filter(|_| server.expands_command) {
            texts.push(("the command".to_owned(), command, imported, in_command));
        }
        let oauth = at(&|spec| spec.oauth.as_ref().map(|oauth| oauth.span));
        if let Some(of) = &server.oauth {
            let secret = of.client_secret.iter().chain(&of.private_key).chain([&of.client_id]);
            texts.extend(secret.map(|text| ("`oauth`".to_owned(), text.as_str(), oauth, any)));
        }
        for (what, text, span, form) in texts {
            self.text(&format!("{what} of the server `{name}`"), text, (span, form), found);
        }
        if self.trust.trusted {
            return;
        }
        if server.oauth.is_some() {
            let message = format!("`oauth` of the server `{name}`: the server names the host that credentials go to");
            found.push(self.untrusted("untrusted-oauth", oauth, &message, ""));
        }
        if let Some(url) = &server.url {
            let span = at(&|spec| spec.url.as_ref().map(|text| text.span));
            self.host(name, url, span, found);
        }
        for (index, host) in server.network.iter().enumerate() {
            let span = at(&|spec| spec.network.get(index).map(|text| text.span));
            self.network(name, host, span, found);
        }
        let mut words: Vec<(&String, Option<Span>)> = Vec::new();
        if let Some(command) = &server.command {
            let span = at(&|spec| spec.command.as_ref().map(|text| text.span));
            words.push((command, span));
        }
        for (index, arg) in server.args.iter().enumerate() {
            words.push((arg, at(&|spec| spec.args.get(index).map(|text| text.span))));
        }
        for (index, (word, span)) in words.into_iter().enumerate() {
            let command = index == 0 && server.command.is_some();
            let full = match in_command {
                Some(form) => filled(word, form, self.secrets).0,
                None => word.clone(),
            };
            if let Some(what) = self.leads_out(&full, command) {
                // Shows the word as written, because expanded variables may be secret.
                self.place(span, &format!("{what} `{word}` of the server `{name}`"), found);
            }
        }
        if let Some(dir) = &server.cwd
            && !inside(&self.workspace.join(dir), self.workspace)
        {
            let span = at(&|spec| spec.cwd.as_ref().map(|text| text.span));
            self.place(span, &format!("directory `{dir}` of the server `{name}`"), found);
        }
    }

    fn text(
        &self,
        what: &str,
        text: &str,
        (span, form): (Option<Span>, Option<VariableForm>),
        found: &mut Vec<Diagnostic>,
    ) {
        let (full, names) = match form {
            Some(form) => filled(text, form, self.secrets),
            None => (text.to_owned(), Vec::new()),
        };
        if let Some(why) = withheld(&full, &names, true, self.secrets) {
            let message = format!("{what}: {why}; such a key is only for this program and is sent nowhere else");
            let help = "give the server its own credential, in a separate variable";
            found.push(placed("model-key", span, message, help));
        } else if !self.trust.trusted
            && let Some(why) = withheld(&full, &names, false, self.secrets)
        {
            let message = format!("{what} asks for a secret: {why}");
            found.push(self.untrusted("untrusted-secret", span, &message, ""));
        }
    }

    fn host(&self, name: &str, url: &str, span: Option<Span>, found: &mut Vec<Diagnostic>) {
        let (full, _) = filled(url, VariableForm::Any, self.secrets);
        let Err(why) = hosts::judge(&full, &self.policies.network()) else {
            return;
        };
        let entry = hosts::target(&full).ok().map(|target| {
            let scheme = if target.secure { "" } else { "http://" };
            let port = match (target.secure, target.port) {
                (true, 443) | (false, 80) => String::new(),
                (_, port) => format!(":{port}"),
            };
            format!("{scheme}{}{port}", target.host)
        });
        // Shows the text as written, because expanded variables may be secret.
        let message = format!("the server `{name}` would reach `{url}`, and the policy does not name its host ({why})");
        found.push(self.untrusted("untrusted-host", span, &message, &to_grant(entry.as_deref())));
    }

    fn network(&self, name: &str, host: &str, span: Option<Span>, found: &mut Vec<Diagnostic>) {
        let granted = self.policies.network();
        let wanted = HostPattern::parse(host);
        if wanted
            .as_ref()
            .is_ok_and(|wanted| granted.iter().any(|one| one.includes(wanted)))
        {
            return;
        }
        let message = format!("the server `{name}` would reach `{host}`, which the policy does not name");
        found.push(self.untrusted("untrusted-host", span, &message, &to_grant(Some(host))));
    }

    fn discovery(&self, found: &mut Vec<Diagnostic>) {
        let Some(discovery) = &self.plan.tools.discovery else {
            return;
        };
        let recipe = self.recipe.map(|recipe| &recipe.tools);
        let written = recipe.and_then(|tools| tools.discovery.as_ref());
        let imported = recipe.and_then(|tools| tools.settings.as_ref().map(|path| path.span));
        let spans = match written {
            Some((list, call)) => [Some(list.span), Some(call.span)],
            None => [imported, imported],
        };
        for (text, span) in [&discovery.command, &discovery.call].into_iter().zip(spans) {
            for (index, word) in words::words(text).unwrap_or_default().iter().enumerate() {
                if let Some(what) = self.leads_out(word, index == 0) {
                    self.place(span, &format!("{what} `{word}` of the discovery"), found);
                }
            }
        }
    }

    /// Whether a word of a command line is outside the workspace, the system directories and the policy's toolchains: then
    /// what it is there.
    fn leads_out(&self, word: &str, is_command: bool) -> Option<&'static str> {
        let path = self.secrets.variable("PATH").unwrap_or_default();
        let full = match is_command {
            true => grants::program(word, &path),
            false => word.to_owned(),
        };
        let mut bare = Confinement::unconfined(self.workspace);
        bare.readable = SYSTEM.iter().map(PathBuf::from).collect();
        bare.readable.extend(self.toolchains());
        let before = bare.readable.len();
        grants::readable(&mut bare, std::slice::from_ref(&full), self.workspace);
        let what = if is_command { "command" } else { "argument" };
        let relative =
            !full.starts_with('/') && full.contains('/') && !inside(&self.workspace.join(&full), self.workspace);
        // A home directory and the like are never granted, but the recipe still asks for them, so this is an error.
        let absolute = full.starts_with('/')
            && !bare.readable.iter().any(|dir| Path::new(&full).starts_with(dir))
            && !inside(Path::new(&full), self.workspace)
            && Path::new(&full).exists();
        (bare.readable.len() > before || absolute || (relative && is_command)).then_some(what)
    }

    /// Directories that the policy's toolchains let commands read.
    fn toolchains(&self) -> Vec<PathBuf> {
        let home = self
            .secrets
            .variable("HOME")
            .unwrap_or_else(|| "/nonexistent".to_owned());
        let environments = program_search::environments(self.workspace, &[]);
        let homes = toolchains::HomePaths {
            home: Path::new(&home),
            private_home: Path::new("/nonexistent"),
            parent: self.secrets.vars(),
            network: false,
            layered: false,
            workspace: self.workspace,
            environments: &environments,
        };
        let granted = toolchains::grant(&self.policies.sandbox().toolchains, &homes);
        granted.map(|granted| granted.readable).unwrap_or_default()
    }

    fn place(&self, span: Option<Span>, what: &str, found: &mut Vec<Diagnostic>) {
        found.push(outside(what, span, self.trust));
    }

    /// An untrusted recipe must not choose recorded or scripted replies: they could produce any verdict.
    fn model(&self, found: &mut Vec<Diagnostic>) {
        let models = self.plan.model.iter().chain(&self.plan.fallback);
        for (index, model) in models.enumerate() {
            if !is_played(model) || self.model_given {
                continue;
            }
            let span = self
                .recipe
                .and_then(|recipe| recipe.models.get(index).map(|model| model.span));
            let message = format!("the recipe uses the prepared replies of `{model}` instead of a model");
            found.push(self.untrusted("untrusted-model", span, &message, "; or name the model with `--model`"));
        }
    }

    fn untrusted(&self, code: &'static str, span: Option<Span>, message: &str, more: &str) -> Diagnostic {
        untrusted((code, span), message, more, self.trust)
    }
}

fn untrusted((code, span): (&'static str, Option<Span>), message: &str, more: &str, trust: &Trust) -> Diagnostic {
    let message = format!("{message}; the recipe is not trusted: {}", trust.why);
    placed(code, span, message, &format!("{WAYS}{more}"))
}

/// The problem for an outside path that an untrusted recipe names.
pub fn outside(what: &str, span: Option<Span>, trust: &Trust) -> Diagnostic {
    let message = format!("the {what} is outside the workspace and the system directories");
    untrusted(("untrusted-path", span), &message, "", trust)
}

fn to_grant(host: Option<&str>) -> String {
    host.map_or_else(String::new, |host| {
        format!("; or grant the host in the policy of `--policy`: `sandbox: {{ network: [{host:?}] }}`")
    })
}

fn placed(code: &'static str, span: Option<Span>, message: String, help: &str) -> Diagnostic {
    let problem = match span {
        Some(span) => Diagnostic::error(code, span, message),
        None => Diagnostic::unplaced(code, message),
    };
    problem.help(help)
}

fn inside(path: &Path, workspace: &Path) -> bool {
    let real = |path: &Path| path.canonicalize().unwrap_or_else(|_| environment::absolute(path));
    let real_path = real(path);
    let climbs = real_path
        .components()
        .any(|part| part == std::path::Component::ParentDir);
    !climbs && real_path.starts_with(real(workspace))
}

/// Variables in `env: pass` that are, or contain, the key of a model service.
pub fn passed_keys(policies: &PolicySet, secrets: &Secrets) -> Vec<Diagnostic> {
    let refuse = |why: String| {
        let message = format!("`env: pass` of the policy would pass a key to commands: {why}");
        Diagnostic::unplaced("model-key", message)
            .help("remove it from `pass`: the key of a model service is only for this program")
    };
    let passed = policies.env_pass();
    passed
        .iter()
        .filter_map(|name| secrets.model_key(name))
        .map(refuse)
        .collect()
}
