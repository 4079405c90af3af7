//! Implements `overnight run`: reads the inputs, takes the locks and starts the journal; `session` does the rest.

use super::session::{self, Beginning, RunSession};
use super::{printed, sample};
use crate::base::call::ToolSpec;
use crate::base::event::{PatchBase, PolicyText, RunStarted};
use crate::base::ids::RunId;
use crate::base::model_name::is_played;
use crate::base::quote::shell_word;
use crate::cli::args::{RunArgs, RunFlags, StdoutFormat};
use crate::cli::environment;
use crate::cli::named_outputs::{self, ReadFile};
use crate::cli::origin::RecipeFile;
use crate::cli::refusal::Refusal;
use crate::cli::secrets::{self, Secrets};
use crate::cli::settings::{self, Settings};
use crate::cli::{bootstrap, exit, github, inputs, limits, out, search, shipped, signals, unchecked, variables};
use crate::engine::deps::Interrupt;
use crate::journal::no_follow::{self, settled};
use crate::journal::uncompared::Uncompared;
use crate::journal::{JournalError, artefacts, format, run_dirs, state_dir};
use crate::policy::describe;
use crate::provider::open::check_name;
use crate::provider::pricing::Pricing;
use crate::recipe::lower::WALL_MS;
use crate::recipe::{Plan, show};
use crate::report::export::ReportFile;
use crate::tools::Registry;
use crate::workspace::{isolate, patch};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime};
use tokio_util::sync::CancellationToken;

/// Runs the command. Returns the exit code.
pub async fn run(mut args: RunArgs, started: Instant) -> u8 {
    if let Err(refusal) = variables::fill_run(&mut args) {
        return session::refused(&refusal, None, &recipe_name(&args), &refusal_flags(&args));
    }
    if args.shared.quiet {
        out::hold();
    }
    let interrupt = match signals::watch() {
        Ok(interrupt) => interrupt,
        Err(refusal) => return session::refused(&refusal, None, &recipe_name(&args), &refusal_flags(&args)),
    };
    if args.sample {
        return run_sample(args, started, &interrupt).await;
    }
    in_tree(args, started, &interrupt).await
}

/// Runs the sample of a recipe. The run directory is created in the user's current directory.
async fn run_sample(args: RunArgs, started: Instant, interrupt: &Arc<Interrupt>) -> u8 {
    let shared = refusal_flags(&args);
    match of_sample(args, started, interrupt).await {
        Ok(code) => code,
        Err(refusal) => session::refused(&refusal, None, "sample", &shared),
    }
}

/// Like `--sample`, but returns a refusal to the caller instead of printing it.
///
/// # Errors
/// As for [`sample::prepare`]; [`Refusal::Interrupted`] if a signal came first. How the run itself ends is its exit
/// code.
pub async fn of_sample(args: RunArgs, started: Instant, interrupt: &Arc<Interrupt>) -> Result<u8, Refusal> {
    let prepared = interrupt.token.run_until_cancelled(sample::prepare(args)).await;
    let (args, _copy) = prepared.unwrap_or_else(|| Err(session::cancelled(interrupt, Duration::ZERO)))?;
    let silent = args.shared.silent;
    let tell = |text: &str| {
        if !silent {
            out::stderr(text);
        }
    };
    tell(
        "SAMPLE: the replies are recorded, no model is asked; the tools run for real on a throw-away copy of the sample repository.",
    );
    let code = in_tree(args, started, interrupt).await;
    tell("SAMPLE: the replies were recorded, no model was asked.");
    Ok(code)
}

/// Runs in the tree that the flags name.
async fn in_tree(args: RunArgs, started: Instant, interrupt: &Arc<Interrupt>) -> u8 {
    let recipe = recipe_name(&args);
    let shared = refusal_flags(&args);
    let out = args.out.clone();
    let mut place = Place::of(&args);
    let tree = shared.workspace.clone().unwrap_or_else(|| PathBuf::from("."));
    let _held = match session::hold_outputs(&args.shared, out.as_deref().filter(|_| !args.dry_run), &tree) {
        Ok(held) => held,
        Err(refusal) => return session::refused(&refusal, None, &recipe, &session::without_copies(&shared)),
    };
    let outputs = session::outputs_of(&args.shared);
    let checked = match named_outputs::refuse_read(&outputs, &read_by_flags(&args, &tree)) {
        Ok(()) => named_outputs::refuse_tracked(&outputs).await,
        refused => refused,
    };
    if let Err(refusal) = checked {
        return session::refused(&refusal, None, &recipe, &session::without_copies(&shared));
    }
    if let Some(out) = &out
        && let Err(refusal) = fit_for_run(out, &tree)
    {
        // Nothing is written to a directory that is not a run's.
        return session::refused(&refusal, None, &recipe, &shared);
    }
    let unwritable =
        session::unwritable(&args.shared).map(|(refusal, _)| (refusal, session::without_unwritable(&shared)));
    let (ended, shared) = match unwritable {
        Some((refusal, writable)) => (Err(refusal), writable),
        None => (attempt(args, &mut place, started, interrupt).await, shared),
    };
    match ended {
        Ok(code) => code,
        Err(refusal) => {
            let dir = place.as_ref().ok().map(Place::dir).or(out.as_deref());
            let is_ours = |dir: &&Path| run_dirs::refuse_link(&tree, dir).is_ok();
            // Where no directory can be made, the refusal has said so.
            let dir = dir
                .filter(is_ours)
                .filter(|dir| artefacts::unmakeable(&settled(dir)).is_none());
            session::refused(&refusal, dir, &recipe, &shared)
        }
    }
}

/// The input files that the command line names.
fn read_by_flags(args: &RunArgs, tree: &Path) -> Vec<ReadFile> {
    let mut read = session::read_by_flags(&args.shared, tree);
    let is_file = |name: &str| name != "-" && !name.starts_with("git:") && !name.starts_with(shipped::PREFIX);
    let recipe = args.recipe.as_ref().filter(|path| path.to_str().is_none_or(is_file));
    let prompt = args.prompt.as_deref().and_then(|text| text.strip_prefix('@'));
    let named = [
        ("the recipe", recipe.cloned()),
        ("--prompt", prompt.map(PathBuf::from)),
        ("--output-schema", args.output_schema.clone()),
        ("--params", args.params.clone()),
        ("--input", args.input.as_ref().map(PathBuf::from)),
        ("--input-value", args.input_value.clone()),
    ];
    let named = named
        .into_iter()
        .filter_map(|(by, path)| Some(ReadFile::new(by, path?)));
    read.extend(named);
    read
}

/// The files of the recipe and the policies, and the input files that they name.
fn read_by_files(settings: &Settings) -> Vec<ReadFile> {
    let files = &settings.source.files;
    // If the recipe is a file, it is the first one, and the files that its commands get are beside it.
    let dir = files.first().and_then(|recipe| Path::new(recipe).parent());
    let beside = dir
        .into_iter()
        .flat_map(|dir| settings.beside.iter().map(|file| dir.join(&file.path)));
    let all = files.iter().map(PathBuf::from).chain(beside);
    all.map(|file| ReadFile::new("the recipe or a policy names it", file))
        .collect()
}

/// The flags that name the outputs of a refusal. A dry run leaves patch and transcript of an earlier run alone.
fn refusal_flags(args: &RunArgs) -> RunFlags {
    let mut shared = args.shared.clone();
    if args.dry_run {
        (shared.patch, shared.transcript) = (None, None);
    }
    shared
}

/// Names in a run directory whose run was refused or ended before its journal began.
const BEFORE_A_JOURNAL: [&str; 5] = [".gitignore", "journal.jsonl.new", "git", "blobs", "results"];

/// Refuses an `--out` that is the workspace, contains it, cannot be made, or holds files that no run wrote. A directory
/// with a journal is refused later, because it can be resumed.
fn fit_for_run(out: &Path, workspace: &Path) -> Result<(), Refusal> {
    let name = out.display();
    let instead = format!(
        "name a new or empty directory, for example --out {}, or omit --out",
        shell_word(&out.join("overnight-run").to_string_lossy())
    );
    let place = settled(out);
    if settled(workspace).starts_with(&place) {
        return Err(Refusal::Environment(format!(
            "--out {name} is the workspace or contains it, and nothing was written there: {instead}",
        )));
    }
    if let Some(why) = artefacts::unmakeable(&place) {
        return Err(Refusal::Output(format!(
            "--out {name} cannot be written, because {why}: name a new or empty directory, or omit --out"
        )));
    }
    let Ok(entries) = std::fs::read_dir(out) else {
        return Ok(());
    };
    if run_dirs::is_taken(out) {
        return Ok(());
    }
    let of_a_run = |name: &str| {
        BEFORE_A_JOURNAL.contains(&name)
            || ReportFile::ALL
                .into_iter()
                .filter_map(ReportFile::file)
                .any(|file| file == name)
    };
    let mut others: Vec<String> = entries
        .filter_map(Result::ok)
        .map(|entry| entry.file_name().to_string_lossy().into_owned())
        .filter(|name| !of_a_run(name))
        .collect();
    others.sort();
    match others.first() {
        None => Ok(()),
        Some(first) => Err(Refusal::Environment(format!(
            "--out {name} contains {first}, which no run wrote, and nothing was written there: {instead}",
        ))),
    }
}

fn recipe_name(args: &RunArgs) -> String {
    if let Some(name) = args
        .recipe
        .as_ref()
        .and_then(|path| path.to_str()?.strip_prefix(shipped::PREFIX))
    {
        return name.to_owned();
    }
    let stem = args.recipe.as_ref().and_then(|path| path.file_stem());
    stem.map_or_else(|| "prompt".to_owned(), |stem| stem.to_string_lossy().into_owned())
}

/// Workspace and run directory.
struct Place {
    /// As given, so that outputs show the user's own paths.
    workspace: PathBuf,
    run: RunId,
    /// As given.
    dir: PathBuf,
    /// The run directory as an absolute path without links.
    settled: PathBuf,
    is_sample: bool,
}

impl Place {
    fn of(args: &RunArgs) -> Result<Self, Refusal> {
        let workspace = args.shared.workspace.clone().unwrap_or_else(|| PathBuf::from("."));
        if !workspace.is_dir() {
            let name = workspace.display();
            return Err(Refusal::Environment(format!("the workspace {name} is not a directory")));
        }
        let run = args.run_id.clone();
        let run = run.unwrap_or_else(|| run_dirs::new_run_id(jiff::Timestamp::now()));
        let dir = args
            .out
            .clone()
            .unwrap_or_else(|| run_dirs::default_dir(&workspace, &run));
        let settled = settled(&dir);
        Ok(Self {
            workspace,
            run,
            dir,
            settled,
            is_sample: args.sample,
        })
    }

    fn dir(&self) -> &Path {
        &self.dir
    }
}

async fn attempt(
    args: RunArgs,
    place: &mut Result<Place, Refusal>,
    started: Instant,
    interrupt: &Arc<Interrupt>,
) -> Result<u8, Refusal> {
    let place = match place {
        Ok(place) => place,
        Err(refusal) => return Err(refusal.clone()),
    };
    if args.shared.github && !args.dry_run {
        // A step whose outputs cannot be written must not first spend money.
        github::files()?.check()?;
    }
    let args = Arc::new(args);
    let clock = RunClock { started, interrupt };
    let settings = settle_on_thread(&args, &place.workspace, clock).await?;
    named_outputs::refuse_read(&session::outputs_of(&args.shared), &read_by_files(&settings))?;
    if !args.dry_run {
        session::remove_stale_copies(&args.shared);
    }
    // A run that is refused because it has no model has no limits to show.
    let has_model = settings
        .plan
        .model
        .as_deref()
        .is_some_and(|name| check_name(name).is_ok());
    let pricing = match !args.dry_run && (has_model || !settings.plan.asks()) {
        true => {
            let pricing = session::pricing(interrupt, session::wall(&settings.plan)).await?;
            if !args.shared.silent {
                out::stderr(&limits::line(&settings.plan, &pricing));
            }
            pricing
        }
        false => Pricing::default(),
    };
    for warning in &settings.warnings {
        out::stderr(warning);
    }
    report_trust(&settings);
    #[cfg(not(feature = "otel"))]
    if environment::variable("OTEL_EXPORTER_OTLP_ENDPOINT").is_some() {
        out::stderr(
            "warning: OTEL_EXPORTER_OTLP_ENDPOINT is set, and this build has no `otel` feature: no spans are sent",
        );
    }
    if patch::is_bare(&place.workspace) && !args.isolate {
        return Err(Refusal::Environment(format!(
            "the workspace {} is itself a bare git repository, whose files are git's own: name a clone or a worktree of it \
             with --workspace",
            place.workspace.display()
        )));
    }
    run_dirs::refuse_link(&place.workspace, &place.dir)?;
    if run_dirs::is_taken(&place.dir) {
        let name = place.dir.display();
        return Err(Refusal::Environment(format!(
            "{name} already contains a run: name another --out, or continue it with `overnight resume {}`",
            shell_word(&place.dir.to_string_lossy())
        )));
    }
    if args.dry_run {
        preflight_model(&settings, &args.shared, &place.workspace, interrupt).await?;
        let refused = preflight_machine(&settings, &args, &place.workspace).await.err();
        return dry_run(&settings, refused, args.shared.format());
    }
    if args.out.is_none() {
        if let Some(why) = artefacts::unmakeable(&place.settled) {
            return Err(Refusal::Output(format!(
                "the run directory {} cannot be made, because {why}: name a directory elsewhere with --out DIR",
                place.dir.display()
            )));
        }
        run_dirs::ignore_runs(&place.workspace)?;
    }
    let wall = session::wall(&settings.plan);
    signals::limit(interrupt, started + wall);
    if args.isolate {
        let made = isolate::make(&place.workspace, run_dirs::may_go_on, &interrupt.token).await;
        let isolated = made.map_err(|why| session::or_interrupted(Refusal::Environment(why), interrupt, wall))?;
        let journals = state_dir::journals_of(&place.run, &place.settled);
        isolated.record(&place.run, &journals).map_err(Refusal::Environment)?;
        if let Some(lacks) = isolated.lacks() {
            out::stderr(&lacks);
        }
        let keep = settings.plan.isolate_keep.clone();
        let bringing = bootstrap::bring(
            &place.workspace,
            isolated.workspace(),
            &keep,
            &settings.policies,
            args.shared.quiet,
            &interrupt.token,
        );
        let ended = match bringing.await {
            Ok(mut brought) => {
                brought.warnings = isolated.warnings().to_vec();
                let isolated = Some((&isolated, brought));
                begin(&args.shared, settings, pricing, place, (isolated, None), clock).await
            }
            Err(refusal) => Err(session::or_interrupted(refusal, interrupt, wall)),
        };
        session::close_worktree(isolated, &place.run).await;
        return ended;
    }
    let _locks = run_dirs::hold_workspace(&place.workspace)
        .map_err(|error| session::unheld(error, ", or give this one a tree of its own with --isolate"))?;
    // Dropped before the locks.
    let record = session::uncompared(&place.workspace, interrupt).await?;
    let since = record.as_ref().and_then(Uncompared::since);
    begin(&args.shared, settings, pricing, place, (None, since), clock).await
}

/// When a run began, and what ends it early.
#[derive(Clone, Copy)]
struct RunClock<'a> {
    started: Instant,
    interrupt: &'a Arc<Interrupt>,
}

/// Time after which stderr names the input that is still being read.
const WAIT_NOTICE_AFTER: Duration = Duration::from_secs(5);

/// The wall-clock limit while the settings are read.
struct ReadingLimit {
    /// The limit that holds, in milliseconds.
    wall_ms: Arc<AtomicU64>,
    /// To be called with the limit of the recipe.
    on_wall: settings::OnWallLimit,
}

impl ReadingLimit {
    /// Begins the limit of the flag, else the default until the recipe is read. A dry run has none.
    fn begin(args: &RunArgs, RunClock { started, interrupt }: RunClock<'_>) -> Self {
        let wall_ms = Arc::new(AtomicU64::new(args.shared.max_wall.unwrap_or(WALL_MS)));
        let mut limit = Self {
            wall_ms: Arc::clone(&wall_ms),
            on_wall: Box::new(|_| {}),
        };
        if args.dry_run {
            return limit;
        }
        let first = CancellationToken::new();
        signals::limit_until(interrupt, started + limit.wall(), first.clone());
        // The recipe's limit is not longer than that of the flag.
        if args.shared.max_wall.is_none() {
            let interrupt = Arc::clone(interrupt);
            limit.on_wall = Box::new(move |ms| {
                wall_ms.store(ms, Ordering::Relaxed);
                signals::limit(&interrupt, started + Duration::from_millis(ms));
                first.cancel();
            });
        }
        limit
    }

    fn wall(&self) -> Duration {
        wall(&self.wall_ms)
    }
}

fn wall(ms: &AtomicU64) -> Duration {
    Duration::from_millis(ms.load(Ordering::Relaxed))
}

/// [`settings::settle`] on another thread, because it may wait for stdin or a pipe: signals are watched here, and the
/// wall-clock limit.
async fn settle_on_thread(args: &Arc<RunArgs>, workspace: &Path, clock: RunClock<'_>) -> Result<Settings, Refusal> {
    let ReadingLimit { wall_ms, on_wall } = ReadingLimit::begin(args, clock);
    let prints_notices = !args.shared.silent;
    let (args, workspace) = (Arc::clone(args), workspace.to_owned());
    let runtime = tokio::runtime::Handle::current();
    let settling = tokio::task::spawn_blocking(move || runtime.block_on(settings::settle(&args, &workspace, on_wall)));
    let settling = clock.interrupt.token.run_until_cancelled(settling);
    match with_notice(settling, prints_notices).await {
        Some(Ok(settings)) => settings,
        Some(Err(error)) => std::panic::resume_unwind(error.into_panic()),
        None => Err(session::cancelled(clock.interrupt, wall(&wall_ms))),
    }
}

/// The value of a future. If it takes long and an input is being read by then, stderr names the input.
async fn with_notice<T>(future: impl Future<Output = T>, prints_notices: bool) -> T {
    tokio::pin!(future);
    tokio::select! {
        value = &mut future => return value,
        () = tokio::time::sleep(WAIT_NOTICE_AFTER) => {}
    }
    if let Some(name) = inputs::awaited().filter(|_| prints_notices) {
        out::stderr(&format!("overnight: waiting for the end of {name}"));
    }
    future.await
}

async fn begin(
    shared: &RunFlags,
    settings: Settings,
    pricing: Pricing,
    place: &Place,
    (isolated, uncompared): (Option<(&isolate::Isolated, isolate::BroughtFiles)>, Option<SystemTime>),
    clock: RunClock<'_>,
) -> Result<u8, Refusal> {
    let RunClock { started, interrupt } = clock;
    let Settings {
        plan,
        mut policies,
        source,
        beside,
        files,
        ..
    } = settings;
    let tree = isolated
        .as_ref()
        .map_or(place.workspace.as_path(), |(isolated, _)| isolated.workspace());
    let hidden = session::hidden(&place.settled, tree, None);
    let workspace = bootstrap::workspace(tree, &hidden, Some(&plan))?;
    let search = bootstrap::search(plan.model.as_deref(), shared.base_url.as_deref(), &place.workspace);
    let texts = policies.texts();
    bootstrap::guard(&mut policies, &workspace, &hidden, &source.files);
    bootstrap::restrict(&mut policies, &plan, &workspace)?;
    let origin = isolated.as_ref().map(|(_, brought)| brought.origin.as_path());
    bootstrap::guard_programs(&mut policies, &workspace, origin);
    let unchecked = unchecked::warning(uncompared, &policies, (workspace.root(), &hidden)).await;
    let provider = session::provider(&plan, shared, &place.workspace, interrupt).await?;
    environment::add_secrets(secrets::sent(&plan, &Secrets::of(environment::variables())));
    let value = serde_json::to_value(&plan).map_err(|error| Refusal::Environment(error.to_string()))?;
    // The comparison excludes the model, so that runs of two models at one task have the same plan digest.
    let task = Plan {
        model: None,
        ..plan.clone()
    };
    let wall = session::wall(&plan);
    let commit = interrupt.token.run_until_cancelled(commit(&workspace)).await;
    let commit = commit.unwrap_or_else(|| Err(session::cancelled(interrupt, wall)))?;
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
        directory: environment::current_directory(),
        workspace: workspace.root().to_string_lossy().into_owned(),
        isolated_from: isolated
            .as_ref()
            .map(|_| environment::absolute(&place.workspace).to_string_lossy().into_owned()),
        base: PatchBase { commit },
        recorded: provider.info().recorded,
        sample: place.is_sample,
        source: Some(source.clone()),
        files: beside.iter().map(RecipeFile::kept).collect(),
    };
    no_follow::make_dirs(&place.workspace, &place.dir).map_err(JournalError::write(&place.dir))?;
    let session = RunSession {
        run_dir: place.settled.clone(),
        hidden,
        home: place.settled.clone(),
        origin: place.workspace.clone(),
        run: place.run.clone(),
        plan,
        beside,
        trusted: source.trusted,
        policies,
        files: Some(files),
        search,
        provider,
        pricing,
        workspace,
        isolated: isolated.map(|(_, brought)| brought),
        unchecked,
        prompts: Vec::new(),
        started,
    };
    session::run(session, Beginning::New(Box::new(first)), shared, interrupt).await
}

async fn commit(workspace: &crate::workspace::Workspace) -> Result<Option<String>, Refusal> {
    match patch::repository(workspace.root()) {
        Some(repository) => patch::head(&repository).await.map_err(Refusal::Environment),
        None => Ok(None),
    }
}

/// Prints a notice at the beginning of a run of an untrusted recipe.
fn report_trust(settings: &Settings) {
    let source = &settings.source;
    if !source.trusted {
        out::stderr(&format!(
            "overnight: the recipe is not trusted: {}; it reaches only the policy's hosts and gets no secret",
            source.why
        ));
    }
}

/// The lines about the files beside a recipe that its commands get.
pub fn beside_shown(files: &[RecipeFile]) -> String {
    let one = |file: &RecipeFile| format!("  its commands get {} ({} bytes)\n", file.path, file.bytes.len());
    files.iter().map(one).collect()
}

/// For a dry run: refuses a model or a server that the run would refuse. If no model is named, or only this machine
/// lacks something to ask it, such as a key, that is a warning, because a dry run needs no model.
///
/// # Errors
/// As for [`bootstrap::provider`] and [`session::priced`]; [`Refusal::Environment`] if a required server lacks a variable.
async fn preflight_model(
    settings: &Settings,
    shared: &RunFlags,
    workspace: &Path,
    interrupt: &Arc<Interrupt>,
) -> Result<(), Refusal> {
    let plan = &settings.plan;
    let secrets = Secrets::of(environment::variables());
    if settings.refused.is_none() {
        secrets::lacking(plan, settings.source.trusted, &secrets)
            .map_err(|why| Refusal::Environment(format!("a required server did not start: {why}")))?;
    }
    let asks_service = !plan.model.as_deref().is_some_and(is_played);
    match session::provider(plan, shared, workspace, interrupt).await {
        Ok(provider) => {
            let pricing = session::pricing(interrupt, session::wall(plan)).await?;
            session::priced(plan, provider.info(), &pricing)
        }
        Err(Refusal::Environment(why)) if asks_service => {
            out::stderr(&format!(
                "warning[unusable-model]: the run would be refused here (code 8): {why}"
            ));
            Ok(())
        }
        Err(Refusal::Usage(why)) if plan.model.is_none() => {
            out::stderr(&format!("warning[no-model]: the run would be refused (code 2): {why}"));
            Ok(())
        }
        Err(refusal) => Err(refusal),
    }
}

/// For a dry run: refuses what the run would refuse for want of something on this machine.
///
/// # Errors
/// [`Refusal::Environment`]: git, a commit for `--isolate`, or a program that the recipe's commands run in any case.
async fn preflight_machine(settings: &Settings, args: &RunArgs, workspace: &Path) -> Result<(), Refusal> {
    if args.isolate {
        isolate::preflight(workspace).await.map_err(Refusal::Environment)?;
    }
    session::foresee_programs(&settings.plan, &settings.policies, workspace)
}

/// Prints what would be done, as text or as one JSON object. Starts nothing and sends nothing. `refused`: what this machine
/// lacks for the run.
fn dry_run(settings: &Settings, refused: Option<Refusal>, format: StdoutFormat) -> Result<u8, Refusal> {
    let tools = preflight_tools(settings)?;
    let refused = settings.refused.clone().or(refused);
    let text = match (format, &refused) {
        (StdoutFormat::Text, _) => preview_text(settings, refused.as_ref(), &tools),
        // The refusal is the one object on stdout.
        (_, Some(_)) => String::new(),
        (_, None) => format!("{}\n", preview_json(settings, &tools)),
    };
    printed(&text)?;
    refused.map_or(Ok(exit::PASSED), Err)
}

/// The tools of a run, as far as they are known before servers and discovery start.
struct PreflightTools {
    known: Registry,
    /// The MCP servers that would be started.
    servers: Vec<String>,
    /// Names in the recipe that only discovered tools may have.
    unknown: Vec<String>,
}

fn preflight_tools(settings: &Settings) -> Result<PreflightTools, Refusal> {
    let plan = &settings.plan;
    let searches = search::of(plan.model.as_deref(), None).is_some();
    let registry = bootstrap::registry(searches)?;
    let servers: Vec<String> = plan.tools.mcp_servers.keys().cloned().collect();
    let (mut known, unknown) = registry.filtered(plan.tools.include.as_deref(), &plan.tools.exclude);
    // The names of discovered tools are not known before the discovery runs.
    if plan.tools.discovery.is_none() {
        known = bootstrap::filtered(&registry, plan, &servers)?;
        bootstrap::check_names(&settings.policies, &known, &servers, &settings.files)?;
    }
    Ok(PreflightTools {
        known,
        servers,
        unknown,
    })
}

fn preview_text(settings: &Settings, refused: Option<&Refusal>, tools: &PreflightTools) -> String {
    let plan = &settings.plan;
    let mut text = show::text(plan);
    text.push_str("\ntools:\n");
    for spec in tools.known.specs() {
        let told = match settings.policies.may_allow(&spec.name, spec.kind, &spec.origin) {
            true => "",
            false => ", not declared: no rule could allow it",
        };
        text.push_str(&format!("  {} ({}{told})\n", spec.name, spec.kind.as_str()));
    }
    for name in &tools.servers {
        text.push_str(&format!("  those of the MCP server {name} (not started)\n"));
    }
    if plan.tools.discovery.is_some() {
        text.push_str("  those that the discovery would find (not run)");
        text.push_str(&match tools.unknown.is_empty() {
            true => "\n".to_owned(),
            false => format!(", among them perhaps {}\n", tools.unknown.join(", ")),
        });
    }
    text.push_str("\npolicy:\n");
    for line in describe::describe(&settings.policies).lines() {
        text.push_str(&format!("  {line}\n"));
    }
    let source = &settings.source;
    let word = if source.trusted { "trusted" } else { "not trusted" };
    text.push_str(&format!("\nrecipe: {word}: {}\n", source.why));
    if let Some(commit) = &source.commit {
        text.push_str(&format!("  read from commit {commit}\n"));
    }
    text.push_str(&beside_shown(&settings.beside));
    if let Some(refusal) = refused {
        text.push_str(&format!("\nthe run would be refused (code {}):\n", refusal.code()));
        for line in refusal.to_string().lines() {
            text.push_str(&format!("  {line}\n"));
        }
    }
    text
}

fn preview_json(settings: &Settings, tools: &PreflightTools) -> Value {
    let (plan, source) = (&settings.plan, &settings.source);
    let policies = &settings.policies;
    let tool = |spec: &ToolSpec| {
        let declared = policies.may_allow(&spec.name, spec.kind, &spec.origin);
        json!({ "name": spec.name, "kind": spec.kind.as_str(), "declared": declared })
    };
    let policy = |text: &PolicyText| json!({ "name": text.name, "digest": text.digest, "narrows": text.narrows });
    let file = |file: &RecipeFile| json!({ "path": file.path, "bytes": file.bytes.len() });
    json!({
        "plan": show::json(plan),
        "tools": tools.known.specs().into_iter().map(tool).collect::<Vec<Value>>(),
        "servers": tools.servers,
        "discovery": plan.tools.discovery.is_some(),
        "policy": {
            "files": policies.texts().iter().map(policy).collect::<Vec<Value>>(),
            "text": describe::describe(policies),
        },
        "trust": { "trusted": source.trusted, "why": source.why, "commit": source.commit },
        "files": settings.beside.iter().map(file).collect::<Vec<Value>>(),
    })
}
