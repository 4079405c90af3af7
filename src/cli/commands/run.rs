//! `overnight run`: one run to completion. Reads, locks, begins; the session does the rest.

use super::session::{self, Beginning, Session};
use super::{printed, sample};
use crate::base::event::{Base, RunStarted};
use crate::base::ids::RunId;
use crate::base::secret::Redactor;
use crate::cli::args::{RunArgs, Shared};
use crate::cli::refusal::Refusal;
use crate::cli::settings::{self, Settings};
use crate::cli::{equip, out, prompts, search, wire};
use crate::engine::deps::Interrupt;
use crate::journal::{JournalError, format, place, store};
use crate::recipe::{Plan, show};
use crate::workspace::root::settled;
use crate::workspace::{isolate, patch};
use std::path::{Path, PathBuf};
use std::time::Instant;

/// Runs it. The number is the exit code.
pub async fn run(args: RunArgs, started: Instant) -> u8 {
    if args.sample {
        return sample::run(args, started).await;
    }
    in_tree(args, started).await
}

/// Runs in the tree that the flags name.
pub async fn in_tree(args: RunArgs, started: Instant) -> u8 {
    let recipe = recipe_name(&args);
    let shared = args.shared.clone();
    let out = args.out.clone();
    let mut place = Place::of(&args);
    match attempt(args, &mut place, started).await {
        Ok(code) => code,
        Err(refusal) => {
            let dir = place.as_ref().ok().map(Place::dir).or(out.as_deref());
            let tree = shared.workspace.clone().unwrap_or_else(|| PathBuf::from("."));
            let dir = dir.filter(|dir| store::refuse_link(&tree, dir).is_ok());
            session::refused(&refusal, dir, &recipe, &shared)
        }
    }
}

fn recipe_name(args: &RunArgs) -> String {
    let stem = args.recipe.as_ref().and_then(|path| path.file_stem());
    stem.map_or_else(|| "prompt".to_owned(), |stem| stem.to_string_lossy().into_owned())
}

/// Where a run works and where it leaves its files.
struct Place {
    /// As it was given, so that paths in outputs read as the user's own.
    workspace: PathBuf,
    run: RunId,
    /// As it was given, too.
    dir: PathBuf,
    /// The same directory for whoever stands elsewhere.
    settled: PathBuf,
}

impl Place {
    fn of(args: &RunArgs) -> Result<Self, Refusal> {
        let workspace = args.shared.workspace.clone().unwrap_or_else(|| PathBuf::from("."));
        if !workspace.is_dir() {
            let name = workspace.display();
            return Err(Refusal::Environment(format!("the workspace {name} is not a directory")));
        }
        let run = store::new_run_id(jiff::Timestamp::now());
        let dir = args.out.clone().unwrap_or_else(|| store::default_dir(&workspace, &run));
        let settled = settled(&dir);
        Ok(Self {
            workspace,
            run,
            dir,
            settled,
        })
    }

    fn dir(&self) -> &Path {
        &self.dir
    }
}

async fn attempt(args: RunArgs, place: &mut Result<Place, Refusal>, started: Instant) -> Result<u8, Refusal> {
    let place = match place {
        Ok(place) => place,
        Err(refusal) => return Err(refusal.clone()),
    };
    let settings = settings::settle(&args, &place.workspace).await?;
    for warning in &settings.warnings {
        out::tell(warning);
    }
    if args.dry_run {
        return dry_run(&settings, &place.workspace).await;
    }
    store::refuse_link(&place.workspace, &place.dir)?;
    if args.out.is_none() {
        store::ignore_runs(&place.workspace)?;
    }
    if store::is_taken(&place.dir) {
        let name = place.dir.display();
        return Err(Refusal::Environment(format!(
            "{name} holds a run already: name another --out, or go on with `overnight resume {name}`"
        )));
    }
    if args.isolate {
        let isolated = isolate::make(&place.workspace).await.map_err(Refusal::Environment)?;
        let ended = begin(&args.shared, settings, place, Some(&isolated), started).await;
        isolated.remove().await;
        return ended;
    }
    let _held = store::hold_workspace(&place.workspace)
        .map_err(|_| Refusal::Environment(format!("another run holds the workspace {}", place.workspace.display())))?;
    begin(&args.shared, settings, place, None, started).await
}

async fn begin(
    shared: &Shared,
    settings: Settings,
    place: &Place,
    isolated: Option<&isolate::Isolated>,
    started: Instant,
) -> Result<u8, Refusal> {
    let Settings {
        plan,
        mut policies,
        own_files,
        files,
        ..
    } = settings;
    let tree = isolated.map_or(place.workspace.as_path(), isolate::Isolated::workspace);
    let hidden = vec![place.settled.clone()];
    let workspace = wire::workspace(tree, &hidden, Some(&plan))?;
    let search = wire::search(plan.model.as_deref(), shared.base_url.as_deref(), &place.workspace);
    let texts = policies.texts();
    wire::guard(&mut policies, &workspace, &hidden, &own_files);
    let provider = wire::provider(&plan, shared.base_url.as_deref(), &place.workspace)?;
    let value = serde_json::to_value(&plan).map_err(|error| Refusal::Environment(error.to_string()))?;
    // Two models at one task have one plan.
    let task = Plan {
        model: None,
        ..plan.clone()
    };
    let first = RunStarted {
        format: format::FORMAT,
        run: place.run.clone(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        recipe: plan.name.clone(),
        plan_digest: task.digest(),
        plan: value,
        policies: texts,
        model: provider.info().id.clone(),
        replays: provider.recorded().map(|recorded| recorded.model.clone()),
        workspace: workspace.root().to_string_lossy().into_owned(),
        isolated_from: isolated.map(|_| wire::absolute(&place.workspace).to_string_lossy().into_owned()),
        base: Base {
            commit: commit(&workspace).await?,
        },
        recorded: provider.info().recorded,
    };
    place::make_dirs(&place.workspace, &place.dir).map_err(|source| JournalError::Write {
        path: place.dir.display().to_string(),
        source,
    })?;
    let session = Session {
        run_dir: place.settled.clone(),
        home: place.settled.clone(),
        origin: place.workspace.clone(),
        run: place.run.clone(),
        plan,
        policies,
        files: Some(files),
        search,
        provider,
        workspace,
        hidden,
        prompts: Vec::new(),
        started,
    };
    session::run(session, Beginning::New(Box::new(first)), shared).await
}

async fn commit(workspace: &crate::workspace::Workspace) -> Result<Option<String>, Refusal> {
    match patch::repository(workspace.root()) {
        Some(repository) => patch::head(&repository).await.map_err(Refusal::Environment),
        None => Ok(None),
    }
}

/// What would be done, with no model and no journal.
async fn dry_run(settings: &Settings, workspace: &Path) -> Result<u8, Refusal> {
    let searches = search::of(settings.plan.model.as_deref(), None).is_some();
    let workspace = wire::workspace(workspace, &[], Some(&settings.plan))?;
    let standalone = equip::standalone(&settings.plan, searches, &settings.policies, &workspace).await?;
    let equipment = &standalone.equipment;
    let tools = &equipment.tools;
    wire::check_names(&settings.policies, tools, &equipment.absent(), &settings.files)?;
    let mut text = show::text(&settings.plan);
    text.push_str("\ntools:\n");
    for spec in tools.specs() {
        text.push_str(&format!("  {} ({})\n", spec.name, spec.kind.as_str()));
    }
    text.push_str("\npolicy:\n");
    for line in crate::policy::words::describe(&settings.policies).lines() {
        text.push_str(&format!("  {line}\n"));
    }
    let (redactor, interrupt) = (Redactor::from_env(wire::environment()), Interrupt::default());
    let none = prompts::Recorded::default();
    let given = prompts::gather(&settings.plan, &equipment.servers, none, &redactor, &interrupt).await;
    equipment.servers.close().await;
    for given in given? {
        text.push_str(&format!(
            "\nprompt of step {}, as {} gives it:\n",
            given.step, given.server
        ));
        text.push_str(&prompts::shown(&given, &redactor));
    }
    printed(&text)
}
