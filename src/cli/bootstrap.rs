//! Builds the dependencies of a run; the only place that knows every concrete type.

use super::args::{Replaying, RunFlags};
use super::environment;
use super::git_credentials;
use super::inputs;
use super::out;
use super::preflight;
use super::refusal::Refusal;
use super::sandbox_masks::UnreadableFiles;
use super::search;
use crate::base::access::{Access, FsView, PathStatus, ResolvedPath};
use crate::base::call::{Offered, ToolKind, ToolOrigin, ToolSpec};
use crate::base::event::EventKind;
use crate::base::model_name::{REPLAY, SCRIPT, is_played};
use crate::base::ruling::{Decision, PolicyInput};
use crate::base::secret::{Redactor, is_model_key};
use crate::diag::SourceFiles;
use crate::engine::deps::SandboxMaker;
use crate::net::addresses;
use crate::net::client::Limits;
use crate::net::retry::Schedule;
use crate::policy::hosts::{self, HostPattern};
use crate::policy::{self, PolicySet, RequestedLevel, Uses};
use crate::process::private::{self, Private, SandboxRequest};
use crate::process::{self, Confinement, Masks, Network, SandboxLevel, proxy, temporary, venv};
use crate::provider::no_provider::NoProvider;
use crate::provider::open::{OpenError, OpenWith, check_name, open_all};
use crate::provider::pricing::Pricing;
use crate::provider::replay::Replay;
use crate::provider::{Provider, RequestSettings};
use crate::recipe::Plan;
use crate::tools::mcp::Servers;
use crate::tools::notices::Notices;
use crate::tools::web::{Search, Web};
use crate::tools::{
    CommandAccessKind, Registry, SHELL, ToolScope, builtin_called, builtin_for, builtin_spec, builtin_specs,
    save_memory, web_search,
};
use crate::workspace::isolate::{self, BroughtFiles, KeepMessage};
use crate::workspace::root::UNASKED;
use crate::workspace::{Workspace, context, patch, skills};
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use tokio_util::sync::CancellationToken;

/// Opens the tree and hides run directories in it. The redactor learns the credentials in git's configuration here, so that
/// no command reads the tree without it.
///
/// # Errors
/// [`Refusal::Environment`] if the workspace cannot be opened, or a file of git's configuration is too long to be
/// searched for credentials.
pub fn workspace(dir: &Path, hidden: &[PathBuf], plan: Option<&Plan>) -> Result<Workspace, Refusal> {
    let mut workspace = Workspace::open(dir)
        .map_err(|error| Refusal::Environment(format!("the workspace {} cannot be opened: {error}", dir.display())))?;
    environment::add_secrets(git_credentials::of(workspace.root()).map_err(Refusal::Environment)?);
    for path in hidden {
        workspace.hide(&environment::absolute(path));
    }
    if let Some(plan) = plan {
        workspace.set_ignore(plan.tools.ignore.clone());
    }
    Ok(workspace)
}

/// Sets the path of the workspace inside its repository in the policies: protected names also match from the
/// repository's top.
fn place(policies: &mut PolicySet, workspace: &Workspace) {
    let root = workspace.root();
    let top = patch::repository(root).map(|found| found.top);
    let below = top.as_deref().and_then(|top| root.strip_prefix(top).ok());
    policies.place_in_repository(&below.map(Path::to_string_lossy).unwrap_or_default());
}

/// Excludes this program's own files in the policies: run directories are invisible, and the run's own files must not
/// be written, neither at their real path nor where a link to them is. Names that are protected from the top of the
/// repository are protected in a workspace below it, too.
pub fn guard(policies: &mut PolicySet, workspace: &Workspace, hidden: &[PathBuf], own: &[String]) {
    place(policies, workspace);
    let inside = |path: &Path| {
        let place = workspace.locate(&environment::absolute(path).to_string_lossy());
        (place.inside && !place.path.is_empty()).then_some(place.path)
    };
    let named = |path: &Path| {
        let dir = environment::absolute(path).parent()?.canonicalize().ok()?;
        let named = dir.join(path.file_name()?);
        let below = named.strip_prefix(workspace.root()).ok()?;
        Some(below.to_string_lossy().into_owned()).filter(|below| !below.is_empty())
    };
    policies.hide(hidden.iter().filter_map(|path| inside(path)));
    let own = own.iter().map(Path::new);
    policies.protect(own.flat_map(|path| [inside(path), named(path)]).flatten());
}

/// Applies what a plan itself restricts: commands that its settings leave out, and the files of its skills, which are
/// never written.
///
/// # Errors
/// A limit on commands is not a list of plain words.
pub fn restrict(policies: &mut PolicySet, plan: &Plan, workspace: &Workspace) -> Result<(), Refusal> {
    policies.protect(skills::places(workspace, &plan.skills));
    let limits = &plan.tools.shell;
    if limits.is_none() {
        return Ok(());
    }
    policies
        .limit_commands(limits.only.as_deref(), &limits.never)
        .map_err(|why| {
            Refusal::Invalid(format!(
                "{}:1:1: error[settings]: `tools.core` and `tools.exclude` of the settings: {why}\n\
                 help: write the first words of one command, for example `{SHELL}(git status)`",
                plan.name
            ))
        })
}

/// The built-in tools. `searches`: whether a search is configured, so that the tool for it is offered.
///
/// # Errors
/// [`Refusal::Environment`] if two tools claim the same name.
pub fn registry(searches: bool) -> Result<Registry, Refusal> {
    let bug = |error: crate::tools::registry::Conflict| Refusal::Environment(error.to_string());
    let mut registry = Registry::builtin().map_err(bug)?;
    if searches {
        registry.add(Arc::new(web_search::tool())).map_err(bug)?;
    }
    Ok(registry)
}

/// Whether it is the name of a tool that needs a configured search.
fn is_search(name: &str) -> bool {
    builtin_called(name).is_some_and(|tool| tool.effects.offered == Offered::WithSearch)
}

/// The tools that a plan selects. The tools of `absent` servers are not known; any other name must be a tool's.
///
/// # Errors
/// [`Refusal::Invalid`] with every name that no tool has.
pub fn filtered(registry: &Registry, plan: &Plan, absent: &[String]) -> Result<Registry, Refusal> {
    let mut exclude = plan.tools.exclude.clone();
    if let Some(kept) = &plan.tools.builtin {
        let own = registry.specs();
        let left_out = own
            .iter()
            .filter(|spec| spec.origin == ToolOrigin::Builtin && !kept.contains(&spec.name));
        exclude.extend(left_out.map(|spec| spec.name.clone()));
    }
    let (filtered, mut unknown) = registry.filtered(plan.tools.include.as_deref(), &exclude);
    // A recipe may name the search tool whether or not a search is configured.
    unknown.retain(|name| !is_search(name));
    unknown.retain(|name| !absent.iter().any(|server| preflight::may_select_of(name, server)));
    if unknown.is_empty() {
        return Ok(filtered);
    }
    // The names of the recipe that need no server and no discovery were checked at their positions.
    let known: Vec<&str> = registry.specs().iter().map(|spec| spec.name.as_str()).collect();
    let line = |name: &String| {
        let help = preflight::tool_help(name, known.iter().copied());
        format!("error[unknown-tool]: no tool of this run is called `{name}`\nhelp: {help}")
    };
    let lines: Vec<String> = unknown.iter().map(line).collect();
    Err(Refusal::Invalid(lines.join("\n")))
}

/// Checks tool names in policies that were not known yet when the policies were parsed.
///
/// # Errors
/// [`Refusal::Invalid`] with the problems and their positions.
pub fn check_names(
    policies: &PolicySet,
    tools: &Registry,
    absent: &[String],
    files: &SourceFiles,
) -> Result<(), Refusal> {
    let names: Vec<(String, ToolKind, ToolOrigin)> = tools
        .specs()
        .into_iter()
        .map(|spec| (spec.name.clone(), spec.kind, spec.origin.clone()))
        .collect();
    let problems = policy::check_names(policies, &names, absent);
    if problems.is_empty() {
        Ok(())
    } else {
        Err(Refusal::of_problems(&problems, files))
    }
}

/// Protects from writes what is started later: the directories in the workspace that `PATH` and `VIRTUAL_ENV` name,
/// because the checks run programs from them, and this program, which people start again. No program of our own is taken
/// from `origin`.
pub fn guard_programs(policies: &mut PolicySet, workspace: &Workspace, origin: Option<&Path>) {
    let active = venv::active(workspace.root(), origin, &environment::variables());
    let dirs = active
        .programs
        .iter()
        .filter_map(|dir| dir.strip_prefix(workspace.root()).ok());
    policies.protect(dirs.map(|dir| dir.to_string_lossy().into_owned()));
    let own = std::env::current_exe().and_then(|own| own.canonicalize()).ok();
    let own = own.as_deref().and_then(|own| own.strip_prefix(workspace.root()).ok());
    policies.protect(own.map(|own| own.to_string_lossy().into_owned()));
    origin.into_iter().for_each(process::own_path::exclude_tree);
}

/// The directories that commands have besides the workspace; the same for every run in a repository.
///
/// # Errors
/// [`Refusal::Environment`] if the directory for temporary files is not usable.
pub fn private(root: &Path) -> Result<Private, Refusal> {
    // The trial of the sandbox needs one; without this look a model would be asked before it.
    temporary::usable().map_err(Refusal::Environment)?;
    let home = || environment::variable("HOME").map(|home| PathBuf::from(home).join(".cache"));
    let cache = environment::variable("XDG_CACHE_HOME").map(PathBuf::from).or_else(home);
    let cache = cache.filter(|cache| cache.is_absolute() && !environment::absolute(cache).starts_with(root));
    let cache = cache.map(|cache| cache.join("overnight").join(repository_key(root)));
    let mut private =
        Private::create(cache.as_deref()).map_err(|error| Refusal::Environment(temporary::why_not(&error)))?;
    private.git_dir = patch::outer_git_dir(root, Path::new(&environment::variable("HOME").unwrap_or_default()));
    Ok(private)
}

/// Brings the directories that the recipe keeps into an isolated worktree, and reports which of them exist. Gives up when
/// `stop` is cancelled.
///
/// # Errors
/// [`Refusal::Environment`] if a directory cannot be brought, or `stop` was cancelled.
pub async fn bring(
    origin: &Path,
    tree: &Path,
    keep: &[String],
    policies: &PolicySet,
    quiet: bool,
    stop: &CancellationToken,
) -> Result<BroughtFiles, Refusal> {
    let layers = match policies.sandbox().level {
        RequestedLevel::Auto | RequestedLevel::Full => process::probe().await.full.is_ok(),
        RequestedLevel::Landlock | RequestedLevel::None => false,
    };
    let (origin, tree, keep, stop) = (origin.to_owned(), tree.to_owned(), keep.to_vec(), stop.clone());
    let brought = tokio::task::spawn_blocking(move || isolate::bring(&origin, &tree, &keep, layers, &stop)).await;
    let (brought, told) = brought
        .map_err(|error| error.to_string())
        .flatten()
        .map_err(Refusal::Environment)?;
    for told in told {
        match told {
            KeepMessage::Note(_) if quiet => {}
            KeepMessage::Note(text) => out::stderr(&text),
            KeepMessage::Warning(text) => out::stderr(&format!("warning: {text}")),
        }
    }
    Ok(brought)
}

/// A key for the workspace's repository, or for the workspace if it has none; the same for all worktrees.
fn repository_key(root: &Path) -> String {
    let repository = patch::repository(root).map_or_else(|| root.to_owned(), |found| found.common_dir);
    let repository = repository.canonicalize().unwrap_or(repository);
    let mut key = crate::base::ids::sha256_hex(&[repository.to_string_lossy().as_bytes()]);
    key.truncate(16);
    key
}

/// The sandbox of a run. `own`: home and temporary directory of its commands.
///
/// # Errors
/// A sentence: the level or the hosts that the policy asks for are not available here, a toolchain is unknown, a
/// directory cannot be prepared, or the tree cannot be searched for files that commands must not read.
pub async fn confinement(
    policies: &PolicySet,
    root: &Path,
    own: &Private,
    hidden: &[PathBuf],
) -> Result<(Confinement, String), String> {
    let requested = policies.sandbox();
    let wanted = match requested.level {
        RequestedLevel::Auto => None,
        RequestedLevel::Full => Some(SandboxLevel::Full),
        RequestedLevel::Landlock => Some(SandboxLevel::Landlock),
        RequestedLevel::None => Some(SandboxLevel::None),
    };
    let network = match (requested.network.is_empty(), wanted) {
        (_, Some(SandboxLevel::None)) => Network::Open,
        (true, _) => Network::None,
        (false, _) => Network::Hosts(requested.network.clone()),
    };
    let (level, detail, witness) = match wanted {
        Some(SandboxLevel::None) => (SandboxLevel::None, "switched off by the policy".to_owned(), false),
        _ => {
            let probe = process::probe().await;
            let level = process::choose(probe, wanted, &network)?;
            let detail = match level {
                SandboxLevel::Full => probe.full.clone(),
                _ => probe.landlock.clone(),
            };
            let detail = detail.unwrap_or_else(|why| why);
            match probe.witness(level) {
                Ok(()) => (level, detail, true),
                Err(why) => (
                    level,
                    format!("{detail}; programs cannot be judged at exec: {why}"),
                    false,
                ),
            }
        }
    };
    let unseen: Vec<PathBuf> = hidden.iter().map(|path| environment::absolute(path)).collect();
    let closed = policies.closed();
    let request = SandboxRequest {
        level,
        workspace: root,
        hidden: &unseen,
        closed: &closed,
        network: &network,
        witness,
        toolchains: &requested.toolchains,
        credentials: crate::policy::secrets_like::holds_credentials,
        keep_caches: requested.keep_caches,
        pass: &policies.env_pass(),
        parent: &without_model_keys(environment::variables()),
    };
    let mut confinement = private::confinement(&request, own)?;
    confinement.masks = Arc::new(Masks::of(Arc::new(UnreadableFiles(policies.clone()))));
    if level == SandboxLevel::Full {
        let looking = confinement.clone();
        // This walks the whole tree.
        let looked = tokio::task::spawn_blocking(move || looking.masks.look(&looking)).await;
        looked.map_err(|error| error.to_string())??;
    }
    Ok((confinement, detail))
}

/// Tests that this sandbox holds, before anything runs in it.
///
/// # Errors
/// It does not (exit code 8).
pub async fn self_test(confinement: &Confinement) -> Result<(), Refusal> {
    let tested = process::self_test(confinement).await;
    tested.map_err(|why| Refusal::Environment(format!("the sandbox does not hold here: {why}")))
}

/// The variables without keys of model services, under whatever name.
fn without_model_keys(vars: Vec<(String, String)>) -> Vec<(String, String)> {
    let keys = Redactor::of_model_keys(vars.iter().cloned());
    let held = |(name, value): &(String, String)| is_model_key(name) || keys.find(value.as_bytes()).is_some();
    vars.into_iter().filter(|var| !held(var)).collect()
}

/// The rules of the proxy for confined commands.
pub fn proxy_rules() -> proxy::ProxyRules {
    proxy::ProxyRules {
        host_fits: |host, port, patterns| {
            let patterns: Vec<HostPattern> = patterns
                .iter()
                .filter_map(|text| HostPattern::parse(text).ok())
                .collect();
            hosts::grants_port(host, port, &patterns)
        },
        address_is_public: addresses::address_is_public,
    }
}

/// As above, but built in the background. A hermetic run (a replay) has no network, whatever the policy grants. `ahead`: the
/// first command is prepared too, when this resolves; meanwhile the run waits for its first answer.
pub fn sandbox(
    policies: &PolicySet,
    root: &Path,
    own: &Arc<Private>,
    hidden: &[PathBuf],
    hermetic: bool,
    ahead: Option<impl Future<Output = ()> + Send + 'static>,
) -> SandboxMaker {
    let (policies, own) = (policies.clone(), Arc::clone(own));
    let (root, hidden) = (root.to_owned(), hidden.to_vec());
    let make = async move {
        let (mut made, detail) = confinement(&policies, &root, &own, &hidden).await?;
        if hermetic && made.level != SandboxLevel::None {
            made.network = Network::None;
        }
        if let Some(ahead) = ahead {
            let made = made.clone();
            tokio::spawn(async move {
                ahead.await;
                // A command that comes earlier waits for what has begun.
                let _ = tokio::task::spawn_blocking(move || process::prepare_ahead(&made)).await;
            });
        }
        Ok((made, detail))
    };
    let making = tokio::spawn(make);
    Box::new(move || Box::pin(async move { making.await.map_err(|error| error.to_string())? }))
}

/// What all calls of a run share, except the sandbox.
pub fn scope(run_dir: &Path, workspace: &Workspace, redactor: &Arc<Redactor>, web: Web) -> ToolScope {
    ToolScope {
        confinement: OnceLock::new(),
        jobs: process::jobs::Jobs::default(),
        results: run_dir.join("results").into(),
        redactor: Arc::clone(redactor),
        memory: memory_dir(workspace.root()),
        web,
        servers: Servers::default(),
        notices: Notices::default(),
    }
}

/// Network access of a run. Each redirect is ruled on like a call with that URL.
pub fn web(policies: &PolicySet, redactor: &Arc<Redactor>, search: Option<Search>) -> Web {
    let (policies, redactor) = (policies.clone(), Arc::clone(redactor));
    let judge = move |url: &str| {
        if redactor.find(url.as_bytes()).is_some() {
            return Err("the URL contains a secret".to_owned());
        }
        let args = serde_json::json!({ "url": url });
        let asked = PolicyInput::of(builtin_for(CommandAccessKind::Fetches), &args);
        let access = Access {
            urls: vec![url.to_owned()],
            ..Access::none()
        };
        // The tree does not matter for the ruling on a URL.
        let fs_view = FsView {
            locate: &|path| ResolvedPath {
                asked: path.to_owned(),
                path: path.to_owned(),
                inside: false,
                found: PathStatus::Nothing,
            },
            expand: &|_| Vec::new(),
            over_limit: &|| false,
            below: &|_| None,
        };
        let ruling = policy::decide(&policies, &asked, &access, &fs_view, &Uses::default());
        match ruling.decision {
            Decision::Allow => Ok(()),
            Decision::Deny | Decision::Suspend | Decision::Modify => Err(ruling.reason),
        }
    };
    Web {
        judge: Some(Arc::new(judge)),
        search,
        ..Web::default()
    }
}

/// The search of a run. A replay offers one if the recorded run did, so that its requests are the same.
pub fn search(model: Option<&str>, base_url: Option<&str>, workspace: &Path) -> Option<Search> {
    let Some(run) = model.and_then(|model| model.strip_prefix(REPLAY)) else {
        return search::of(model, base_url);
    };
    let dir = crate::journal::run_dirs::locate(run, workspace).ok()?;
    let events = crate::journal::read(&dir).ok()?.events;
    let offered = events.iter().any(|event| match &event.kind {
        EventKind::Equipped(equipped) => equipped.tools.iter().any(|tool| is_search(&tool.name)),
        _ => false,
    });
    offered.then(|| search::of(None, None).unwrap_or_else(search::none))
}

/// The directory of notes for this repository, in the user's data directory.
fn memory_dir(root: &Path) -> PathBuf {
    let data = environment::variable("XDG_DATA_HOME")
        .map(PathBuf::from)
        .filter(|path| path.is_absolute());
    let home = || PathBuf::from(environment::variable("HOME").unwrap_or_else(|| "/".to_owned())).join(".local/share");
    let repository = patch::repository(root).map_or_else(|| root.to_owned(), |found| found.common_dir);
    let key = crate::base::ids::sha256_hex(&[repository.to_string_lossy().as_bytes()]);
    data.unwrap_or_else(home).join("overnight/memory").join(&key[..16])
}

/// Saved notes, context files and the list of skills as blocks of the system prompt, and warnings about them.
pub fn context_blocks(plan: &Plan, workspace: &Workspace, policies: &PolicySet) -> (Vec<String>, Vec<String>) {
    let (mut blocks, mut warnings) = (Vec::new(), Vec::new());
    if plan.memory {
        match save_memory::recall(&memory_dir(workspace.root())) {
            Ok(notes) => blocks.extend(notes),
            Err(error) => warnings.push(format!("the notes of earlier runs cannot be read: {error}")),
        }
    }
    if plan.context.is_empty() && plan.skills.is_empty() {
        return (blocks, warnings);
    }
    let may_read = |place: &ResolvedPath| policies.may_show(place);
    let gathered = context::gather(workspace, &plan.context, &may_read);
    blocks.extend(gathered.render());
    warnings.extend(gathered.warnings);
    let skills = skills::gather(workspace, &plan.skills, &may_read);
    blocks.extend(skills.render());
    warnings.extend(skills.warnings);
    (blocks, warnings)
}

/// The model of a run.
///
/// # Errors
/// [`Refusal::Usage`] if no model is named or the name is wrong; [`Refusal::Invalid`] if the file of a script is
/// missing or wrong; [`Refusal::Environment`] if a key or the recorded run is missing.
pub fn provider(plan: &Plan, shared: &RunFlags, workspace: &Path) -> Result<Arc<dyn Provider>, Refusal> {
    if !plan.asks() && !plan.model.as_deref().is_some_and(is_played) {
        return Ok(Arc::new(NoProvider::default()));
    }
    let Some(model) = plan.model.as_deref() else {
        return Err(Refusal::Usage(
            "no model is named: write --model PROVIDER/NAME, for example gemini/gemini-2.5-pro, or `model:` in the recipe"
                .to_owned(),
        ));
    };
    if is_played(model) {
        check_name(model).map_err(Refusal::Usage)?;
    }
    if let Some(run) = model.strip_prefix(REPLAY) {
        return replay(run, workspace, shared.replay == Replaying::Strict);
    }
    let settings = RequestSettings {
        max_output_tokens: plan.model_settings.max_output_tokens,
        first_byte_timeout: plan.model_settings.first_byte_timeout_ms.map(Duration::from_millis),
    };
    opened(model, &plan.fallback, shared.base_url.as_deref(), settings)
}

/// Opens a model and its fallbacks. Not for `replay:RUN`.
///
/// # Errors
/// A name is wrong (exit code 2), a script is missing or wrong (3), a key or an address is missing (8).
pub fn opened(
    model: &str,
    fallback: &[String],
    base_url: Option<&str>,
    settings: RequestSettings,
) -> Result<Arc<dyn Provider>, Refusal> {
    for name in std::iter::once(model).chain(fallback.iter().map(String::as_str)) {
        if let Some(file) = name.strip_prefix(SCRIPT) {
            inputs::must_exist("script", Path::new(file), "name a file with replies, as `script:FILE`")?;
        }
    }
    let read = |path: &str| inputs::text(Path::new(path)).map_err(|error| error.to_string());
    let with = OpenWith {
        env: &environment::variable,
        base_url,
        read: &read,
        limits: Limits::default(),
        schedule: Schedule::default(),
        settings,
    };
    open_all(model, fallback, &with).map_err(|error| match error {
        OpenError::Name(why) => Refusal::Usage(why),
        OpenError::Environment(why) => Refusal::Environment(why),
        OpenError::Invalid(why) => Refusal::Invalid(why),
    })
}

/// The recorded replies of a run.
fn replay(run: &str, workspace: &Path, strict: bool) -> Result<Arc<dyn Provider>, Refusal> {
    let dir = crate::journal::run_dirs::locate(run, workspace)?;
    let events = crate::journal::read(&dir)?.events;
    let recording = crate::engine::recording::of(&events);
    let (turns, mut beside) = (recording.turns(), recording.beside());
    beside.kept = dir.join("results");
    beside.strict = strict;
    let recall = Box::new(move |turn| recording.request(turn));
    Ok(Arc::new(Replay::new(&format!("replay:{run}"), turns, beside, recall)))
}

/// Time limit for reading the user's price table.
const PRICES_TIME: Duration = Duration::from_secs(60);

/// Prices of replies: the file in `OVERNIGHT_PRICES` has precedence over the built-in table. It is read on another
/// thread, because reading a pipe or a file of a mount may never end.
///
/// # Errors
/// [`Refusal::Invalid`] if the file is missing or not a list of prices; [`Refusal::Environment`] if it cannot be read, or
/// not within [`PRICES_TIME`].
pub async fn pricing() -> Result<Pricing, Refusal> {
    match environment::variable("OVERNIGHT_PRICES") {
        None => Ok(Pricing::default()),
        Some(path) => {
            let place = PathBuf::from(&path);
            let reading = tokio::task::spawn_blocking(move || inputs::text_of("OVERNIGHT_PRICES", &place));
            let text = match tokio::time::timeout(PRICES_TIME, reading).await {
                Ok(Ok(text)) => text?,
                Ok(Err(error)) => std::panic::resume_unwind(error.into_panic()),
                Err(_) => {
                    return Err(Refusal::Environment(format!(
                        "OVERNIGHT_PRICES: `{path}` could not be read to its end within {} s: name a file on a local disk",
                        PRICES_TIME.as_secs()
                    )));
                }
            };
            Pricing::with(&text).map_err(|why| {
                Refusal::Invalid(format!(
                    "{path}:1:1: error[prices]: {why}\nhelp: write a list as [{{\"model\": \"PROVIDER/NAME\", \"price\": \
                     {{\"input\": 1.25, \"output\": 10.0}}}}], in US dollars for a million tokens"
                ))
            })
        }
    }
}

/// Withholds from each tool's searches the files that the policy makes unreadable to that tool.
pub fn hide_unreadable(workspace: &mut Workspace, policies: &PolicySet) {
    let policies = policies.clone();
    workspace.set_unreadable(Box::new(move |tool, path| {
        if tool == UNASKED {
            let searches = |tool: &&ToolSpec| tool.effects.shows_contents && tool.kind == ToolKind::Search;
            let mut searches = builtin_specs().iter().filter(searches);
            return searches.any(|tool| policies.unreadable(&tool.name, tool.kind, path));
        }
        let kind = builtin_spec(tool).map_or(ToolKind::Search, |spec| spec.kind);
        policies.is_withheld(tool, kind, path)
    }));
}
