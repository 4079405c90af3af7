//! Builds what a run works with; the only place that knows every concrete type. Runs nothing of the plan.

use super::inputs;
use super::refusal::Refusal;
use crate::base::call::{Kind, Origin};
use crate::base::secret::Redactor;
use crate::diag::Files;
use crate::net::addresses;
use crate::net::client::Limits;
use crate::net::retry::Schedule;
use crate::policy::hosts::{self, HostPattern};
use crate::policy::{self, PolicySet, WishedLevel};
use crate::process::private::{self, Private, Wishes};
use crate::process::{self, Confinement, Level, Network, proxy};
use crate::provider::Provider;
use crate::provider::open::{OpenError, OpenWith, open_all};
use crate::provider::pricing::Pricing;
use crate::provider::replay::Replay;
use crate::recipe::Plan;
use crate::tools::{Registry, Scope};
use crate::workspace::{Workspace, context, patch};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// A variable of the environment, if it is text.
pub fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|value| !value.is_empty())
}

/// The whole environment, as far as it is text.
pub fn environment() -> Vec<(String, String)> {
    let pairs = std::env::vars_os();
    pairs
        .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)))
        .collect()
}

/// Opens the tree; run directories in it are hidden.
pub fn workspace(dir: &Path, hidden: &[PathBuf], plan: Option<&Plan>) -> Result<Workspace, Refusal> {
    let mut workspace = Workspace::open(dir)
        .map_err(|error| Refusal::Environment(format!("the workspace {} cannot be opened: {error}", dir.display())))?;
    for path in hidden {
        workspace.hide(&absolute(path));
    }
    if let Some(plan) = plan {
        workspace.set_ignore(plan.tools.ignore.clone());
    }
    Ok(workspace)
}

/// The path as seen from the root, whether it exists or not.
pub fn absolute(path: &Path) -> PathBuf {
    std::path::absolute(path).unwrap_or_else(|_| path.to_owned())
}

/// Tells the policies what of the tree is ours: run directories are not seen, the run's own files are not written.
pub fn guard(policies: &mut PolicySet, workspace: &Workspace, hidden: &[PathBuf], own: &[PathBuf]) {
    let inside = |path: &PathBuf| {
        let place = workspace.locate(&absolute(path).to_string_lossy());
        (place.inside && !place.path.is_empty()).then_some(place.path)
    };
    policies.hide(hidden.iter().filter_map(inside));
    policies.protect(own.iter().filter(|path| path.exists()).filter_map(inside));
}

/// The tools of a run, and the names that a recipe or policy uses and no tool has.
pub fn registry(plan: Option<&Plan>) -> Result<Registry, Refusal> {
    let bug = |error: crate::tools::registry::Conflict| Refusal::Environment(error.to_string());
    let registry = Registry::builtin().map_err(bug)?;
    let Some(plan) = plan else {
        return Ok(registry);
    };
    let (filtered, unknown) = registry.filtered(plan.tools.include.as_deref(), &plan.tools.exclude);
    if unknown.is_empty() {
        return Ok(filtered);
    }
    Err(Refusal::Invalid(format!(
        "{}:1:1: error[unknown-tool]: no tool is called {}\nhelp: `overnight tools list` shows the names",
        plan.name,
        unknown.join(", ")
    )))
}

/// Checks names of tools in policies that could not be known when they were read.
pub fn check_names(policies: &PolicySet, tools: &Registry, files: &Files) -> Result<(), Refusal> {
    let names: Vec<(String, Kind, Origin)> = tools
        .specs()
        .into_iter()
        .map(|spec| (spec.name.clone(), spec.kind, spec.origin.clone()))
        .collect();
    let problems = policy::check_names(policies, &names);
    if problems.is_empty() {
        Ok(())
    } else {
        Err(super::settings::refuse(&problems, files))
    }
}

/// The sandbox of a run. `own` holds the home and the temporary files of its commands.
pub async fn confinement(
    policies: &PolicySet,
    workspace: &Workspace,
    own: &Private,
    hidden: &[PathBuf],
) -> Result<(Confinement, String), Refusal> {
    let wish = policies.sandbox();
    let wanted = match wish.level {
        WishedLevel::Auto => None,
        WishedLevel::Full => Some(Level::Full),
        WishedLevel::Landlock => Some(Level::Landlock),
        WishedLevel::None => Some(Level::None),
    };
    let network = match (wish.network.is_empty(), wanted) {
        (_, Some(Level::None)) => Network::Open,
        (true, _) => Network::None,
        (false, _) => Network::Hosts(wish.network.clone()),
    };
    let (level, detail) = match wanted {
        Some(Level::None) => (Level::None, "switched off by the policy".to_owned()),
        _ => {
            let probe = process::probe().await;
            let level = process::choose(probe, wanted, &network).map_err(Refusal::Environment)?;
            let detail = match level {
                Level::Full => probe.full.clone(),
                _ => probe.landlock.clone(),
            };
            (level, detail.unwrap_or_else(|why| why))
        }
    };
    let mut unseen: Vec<PathBuf> = hidden.iter().map(|path| absolute(path)).collect();
    if level == Level::Full {
        unseen.extend(unreadable_files(policies, workspace)?);
    }
    let wishes = Wishes {
        level,
        workspace: workspace.root(),
        hidden: &unseen,
        protected: &protected(policies),
        network: &network,
        toolchains: &wish.toolchains,
        pass: &policies.env_pass(),
        parent: &environment(),
    };
    let confinement = private::confinement(&wishes, own).map_err(Refusal::Environment)?;
    Ok((confinement, detail))
}

/// The files that no command may read, and other names of the same files. A command may come upon them without naming them
/// (`grep -r`, `cat $(ls)`), so the sandbox covers them; git's own files are left to git.
fn unreadable_files(policies: &PolicySet, workspace: &Workspace) -> Result<Vec<PathBuf>, Refusal> {
    let secret = |path: &str| policies.unreadable("run_shell_command", Kind::Execute, path);
    let found = workspace.unseen(&secret, MOST_UNREADABLE);
    found.ok_or_else(|| {
        Refusal::Environment(format!(
            "the workspace holds more than {MOST_UNREADABLE} files that commands must not read; \
             name those that they may read in a rule, or move them out"
        ))
    })
}

/// Each costs a mount with every command.
const MOST_UNREADABLE: usize = 1000;

/// The rules that the proxy of confined commands asks.
pub fn proxy_rules() -> proxy::Rules {
    proxy::Rules {
        host_fits: |host, port, patterns| {
            let patterns: Vec<HostPattern> = patterns
                .iter()
                .filter_map(|text| HostPattern::parse(text).ok())
                .collect();
            let scheme = if port == 80 { "http" } else { "https" };
            hosts::judge(&format!("{scheme}://{host}:{port}/"), &patterns).is_ok()
        },
        address_is_public: addresses::address_is_public,
    }
}

/// What all calls of a run share.
pub fn scope(confinement: Confinement, run_dir: &Path, workspace: &Workspace, redactor: &Arc<Redactor>) -> Scope {
    Scope {
        confinement,
        jobs: process::jobs::Jobs::default(),
        results: run_dir.join("results"),
        redactor: Arc::clone(redactor),
        memory: memory_dir(workspace.root()),
    }
}

/// The user's data directory of this repository.
fn memory_dir(root: &Path) -> PathBuf {
    let data = variable("XDG_DATA_HOME")
        .map(PathBuf::from)
        .filter(|path| path.is_absolute());
    let home = || PathBuf::from(variable("HOME").unwrap_or_else(|| "/".to_owned())).join(".local/share");
    let repository = patch::repository(root).map_or_else(|| root.to_owned(), |found| found.common_dir);
    let key = crate::base::ids::sha256_hex(&[repository.to_string_lossy().as_bytes()]);
    data.unwrap_or_else(home).join("overnight/memory").join(&key[..16])
}

/// Context files as blocks of the system prompt, and what is to be told of them.
pub fn context_blocks(plan: &Plan, workspace: &Workspace, policies: &PolicySet) -> (Vec<String>, Vec<String>) {
    let names: Vec<String> = plan.context.iter().chain(&plan.skills).cloned().collect();
    if names.is_empty() {
        return (Vec::new(), Vec::new());
    }
    let may_read =
        |place: &crate::base::access::Place| place.inside && !policies.unreadable("read_file", Kind::Read, &place.path);
    let gathered = context::gather(workspace, &names, &may_read);
    (gathered.render().into_iter().collect(), gathered.warnings)
}

/// The model of a run.
pub fn provider(plan: &Plan, base_url: Option<&str>, workspace: &Path) -> Result<Arc<dyn Provider>, Refusal> {
    let Some(model) = plan.model.as_deref() else {
        return Err(Refusal::Usage(
            "no model is named: write --model PROVIDER/NAME, as gemini/gemini-2.5-pro, or `model:` in the recipe"
                .to_owned(),
        ));
    };
    if let Some(run) = model.strip_prefix("replay:") {
        return replay(run, workspace);
    }
    let read = |path: &str| inputs::text(Path::new(path)).map_err(|error| error.to_string());
    let with = OpenWith {
        env: &variable,
        base_url,
        read: &read,
        limits: Limits::default(),
        schedule: Schedule::default(),
    };
    open_all(model, &plan.fallback, &with).map_err(|error| match error {
        OpenError::Name(why) => Refusal::Usage(why),
        OpenError::Environment(why) => Refusal::Environment(why),
        OpenError::Invalid(why) => Refusal::Invalid(why),
    })
}

/// The recorded replies of a run.
fn replay(run: &str, workspace: &Path) -> Result<Arc<dyn Provider>, Refusal> {
    let dir = crate::journal::store::locate(run, workspace)?;
    let events = crate::journal::read(&dir)?.events;
    let recording = crate::engine::recording::of(&events);
    let turns = recording.turns();
    let recall = Box::new(move |turn| recording.request(turn));
    Ok(Arc::new(Replay::new(&format!("replay:{run}"), turns, recall)))
}

/// The price of replies: the built-in table, and before it the rows of the file that `OVERNIGHT_PRICES` names.
pub fn pricing() -> Result<Pricing, Refusal> {
    match variable("OVERNIGHT_PRICES") {
        None => Ok(Pricing::default()),
        Some(path) => {
            let text = inputs::text(Path::new(&path))?;
            Pricing::with(&text).map_err(|why| Refusal::Invalid(format!("{path}:1:1: error[prices]: {why}")))
        }
    }
}

/// Searches pass over what the policy keeps unread.
pub fn hide_unreadable(workspace: &mut Workspace, policies: &PolicySet) {
    let policies = policies.clone();
    workspace.set_unreadable(Box::new(move |path| {
        policies.unreadable("grep_search", Kind::Search, path)
    }));
}

/// What the sandbox must keep unwritten, in the form that `process` reads.
fn protected(policies: &PolicySet) -> Vec<String> {
    let list = policies.protected();
    let each = |paths: &[String], before: &str, after: &str| -> Vec<String> {
        paths.iter().map(|path| format!("{before}{path}{after}")).collect()
    };
    [
        each(&list.paths, "", ""),
        each(&list.anywhere, "**/", ""),
        each(&list.beginnings, "", "*"),
        each(&list.beginnings_anywhere, "**/", "*"),
        each(&list.opened, "!", ""),
    ]
    .concat()
}
