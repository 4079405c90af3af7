//! Runs one session of a run, new or resumed: the loop with its sinks, signals and deadline, then the outputs.

mod early;

use crate::base::call::{Offered, ToolKind, ToolSpec};
use crate::base::event::{Event, EventKind, GivenPrompt, RunStarted, SERVER_MISSING, Sink, ToolsetReady};
use crate::base::ids::{RunId, sha256_hex};
use crate::base::message::Usage;
use crate::base::model_name::SCRIPT;
use crate::base::outcome::{RunOutcome, Verdict};
use crate::base::secret::Redactor;
use crate::cli::args::{RunFlags, StdoutFormat};
use crate::cli::environment;
use crate::cli::named_outputs::{self, NamedOutput, ReadFile};
use crate::cli::origin::{self, RecipeFile};
use crate::cli::outputs::{self, Copies};
use crate::cli::refusal::Refusal;
use crate::cli::secrets::Secrets;
use crate::cli::toolset::{self, Toolset};
use crate::cli::{
    bootstrap, exit, github, limits, out, preflight, private_contents, programs, prompts, settings, signals, unchecked,
    unread_stdin,
};
use crate::diag::SourceFiles;
use crate::engine::deps::{Baseline, Deps, Interrupt, SandboxMaker};
use crate::engine::journal_place;
use crate::engine::ledger::Ledger;
use crate::engine::preconditions::Preconditions;
use crate::engine::prompt;
use crate::engine::run as engine;
use crate::journal::no_follow::settled;
use crate::journal::uncompared::Uncompared;
use crate::journal::{Journal, JournalError, artefacts, output_lock, run_dirs, state_dir};
use crate::policy::model::SHELL;
use crate::policy::{PolicySet, RequestedLevel};
use crate::process::program_search::ProgramSearch;
use crate::process::{self, Confinement, own_streams, unsandboxed};
use crate::provider::pricing::Pricing;
use crate::provider::{ModelInfo, Provider};
use crate::recipe::Plan;
use crate::recipe::lower::{COMMAND_MS, WALL_MS};
use crate::recipe::plan::{PlanStep, StepWork};
use crate::report::export::ReportFile;
use crate::report::progress::{LiveBar, Plain, Verbosity};
use crate::report::stream::Stream;
use crate::tools::Registry;
use crate::tools::web::Search;
use crate::workspace::Workspace;
use crate::workspace::context;
use crate::workspace::isolate::{BroughtFiles, Isolated};
use crate::workspace::patch::{self, Shadow};
use std::collections::BTreeMap;
use std::fs::File;
use std::io::IsTerminal;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};
use tokio::sync::oneshot;

/// The validated inputs of a session. The redactor knows the secrets of the plan and of the workspace.
pub struct RunSession {
    /// Directory of the outputs.
    pub run_dir: PathBuf,
    /// Files and directories of this program, which are neither shown to the model nor part of the patch; see
    /// [`hidden`].
    pub hidden: Vec<PathBuf>,
    /// Directory of the journal, existing or to be created.
    pub home: PathBuf,
    /// The user's tree; differs from the workspace if the run is isolated.
    pub origin: PathBuf,
    pub plan: Plan,
    /// The files beside the recipe that its commands get.
    pub beside: Vec<RecipeFile>,
    /// Whether the recipe is trusted.
    pub trusted: bool,
    pub policies: PolicySet,
    /// Source locations of names in new policies; `None` if they were checked before.
    pub files: Option<SourceFiles>,
    /// Implementation of `google_web_search`, if that tool is offered.
    pub search: Option<Search>,
    pub provider: Arc<dyn Provider>,
    /// From [`pricing`].
    pub pricing: Pricing,
    pub workspace: Workspace,
    /// For an isolated run: the original tree, and what commands see of it in the worktree.
    pub isolated: Option<BroughtFiles>,
    /// For a new run: the warning about what commands of a killed run may have left at protected paths.
    pub unchecked: Option<String>,
    /// For a resumed run: the recorded prompts of servers.
    pub prompts: Vec<GivenPrompt>,
    /// When the process started: the wall clock of the run counts from then.
    pub started: Instant,
    pub run: RunId,
}

/// How the session begins.
pub enum Beginning {
    /// A new journal, with this first event.
    New(Box<RunStarted>),
    /// An existing journal is continued with these events, after the tree was checked.
    Resumed(Vec<EventKind>),
}

/// The current run and the directory in which its journal began.
static CURRENT: OnceLock<(RunId, PathBuf)> = OnceLock::new();

/// Where the journal of the current run is, in one sentence for bug reports. `None` when no run has begun.
pub fn current() -> Option<String> {
    let (run, home) = CURRENT.get()?;
    let moved = state_dir::moved_run(run.as_str());
    let journal = moved.as_ref().unwrap_or(home).join("journal.jsonl");
    Some(format!("the journal is complete up to here: {}", journal.display()))
}

/// Removes the worktree of an isolated run, unless it may have the only copy of the run's last changes: then it is left
/// to a resume.
pub async fn close_worktree(made: Isolated, run: &RunId) {
    if made.is_of(run) && run_dirs::may_lack_changes(run) {
        out::stderr(&format!(
            "overnight: the worktree stays, because it may have changes of the run that are recorded nowhere else: {}",
            made.workspace().display()
        ));
        made.leave();
    } else {
        made.remove().await;
    }
}

/// The wall-clock limit of a plan.
pub fn wall(plan: &Plan) -> Duration {
    plan.budget.wall().unwrap_or(Duration::from_millis(WALL_MS))
}

/// What ends a run that was interrupted before it began. `wall`: its wall-clock limit.
fn interrupted(interrupt: &Interrupt, wall: Duration) -> Option<Refusal> {
    let wall = u64::try_from(wall.as_millis()).unwrap_or(u64::MAX);
    interrupt.ending(wall).map(Refusal::Interrupted)
}

/// The refusal of a run whose work before it begins was given up because of `interrupt`. `wall`: its wall-clock limit, or
/// zero until one is known.
pub fn cancelled(interrupt: &Interrupt, wall: Duration) -> Refusal {
    interrupted(interrupt, wall).unwrap_or_else(|| Refusal::Environment("the run was cancelled".to_owned()))
}

/// Takes the record of what commands in this workspace were not compared; waits until the processes of a killed run have
/// ended.
///
/// # Errors
/// [`Refusal::Environment`]: some do not end; a signal or the limit came first.
pub async fn uncompared(workspace: &Path, interrupt: &Interrupt) -> Result<Option<Uncompared>, Refusal> {
    let taken = interrupt.token.run_until_cancelled(Uncompared::take(workspace)).await;
    taken
        .unwrap_or_else(|| Ok(None))
        .map_err(|error| Refusal::Environment(error.to_string()))
}

/// The refusal of work before the run begins. Work that was cancelled fails: the reason is then the signal or the
/// limit.
pub fn or_interrupted(refusal: Refusal, interrupt: &Interrupt, wall: Duration) -> Refusal {
    match refusal {
        Refusal::Environment(_) => interrupted(interrupt, wall).unwrap_or(refusal),
        other => other,
    }
}

/// [`bootstrap::provider`] on another thread, because it may wait for a script that is a pipe: signals are watched here.
///
/// # Errors
/// As for [`bootstrap::provider`]; a signal or the limit came first.
pub async fn provider(
    plan: &Plan,
    shared: &RunFlags,
    workspace: &Path,
    interrupt: &Interrupt,
) -> Result<Arc<dyn Provider>, Refusal> {
    let wall = wall(plan);
    let (plan, shared, workspace) = (plan.clone(), shared.clone(), workspace.to_owned());
    let opening = tokio::task::spawn_blocking(move || bootstrap::provider(&plan, &shared, &workspace));
    match interrupt.token.run_until_cancelled(opening).await {
        Some(Ok(opened)) => opened,
        Some(Err(error)) => std::panic::resume_unwind(error.into_panic()),
        None => Err(cancelled(interrupt, wall)),
    }
}

/// [`bootstrap::pricing`], unless a signal or the limit comes first. `wall`: the wall-clock limit of the run.
///
/// # Errors
/// As for [`bootstrap::pricing`]; a signal or the limit came first.
pub async fn pricing(interrupt: &Interrupt, wall: Duration) -> Result<Pricing, Refusal> {
    let read = interrupt.token.run_until_cancelled(bootstrap::pricing()).await;
    read.unwrap_or_else(|| Err(cancelled(interrupt, wall)))
}

/// Runs a session to its end and writes all outputs. Returns the exit code. `interrupt`: from [`signals::watch`].
///
/// # Errors
/// The refusal of a run that could not begin; [`Refusal::Environment`] if its journal cannot be read for the outputs.
/// How a run that has begun ends is its exit code.
pub async fn run(
    session: RunSession,
    beginning: Beginning,
    shared: &RunFlags,
    interrupt: &Arc<Interrupt>,
) -> Result<u8, Refusal> {
    let run_dir = session.run_dir.clone();
    let (run, is_new) = (session.run.clone(), matches!(beginning, Beginning::New(_)));
    let _ = CURRENT.set((session.run.clone(), session.home.clone()));
    let copies = Copies::from(shared);
    let origin = session.origin.clone();
    out::own_file::begin(&settled(session.workspace.root()));
    let mut broken = InterruptedSession::default();
    let mut has_ended = true;
    let ended = drive(session, beginning, shared, interrupt, &mut broken).await;
    if let Some(shadow) = broken.shadow.take() {
        shadow.close().await;
    }
    let (mut written, home) = match ended {
        Ok((told, home)) => (outputs::write(&home, &origin, &copies, told)?, home),
        Err(refusal) => {
            let Some(home) = broken.home else {
                if is_new {
                    state_dir::forget_contents(&run);
                }
                return Err(refusal);
            };
            let message = environment::redactor().redact(&refusal.to_string()).into_owned();
            let outcome = RunOutcome {
                partial: true,
                ..refusal.outcome(&message)
            };
            has_ended = false;
            match outputs::write_unrecorded_end(&home, &origin, &copies, (outcome, broken.unwritten, broken.journal)) {
                Ok(written) => {
                    out::refusal(&refusal);
                    (written, home)
                }
                Err(_) => return Err(refusal),
            }
        }
    };
    if written.result.verdict.is_final(&written.result.reason) {
        state_dir::forget_contents(&run);
    }
    let github = shared.github.then(github::files).transpose()?;
    if let Some(github) = &github {
        github.publish_run(&home, &mut written)?;
    }
    if shared.silent {
        return Ok(written.code);
    }
    out::stderr(&format!("overnight: files: {}", from_here(&run_dir)));
    if home != run_dir {
        out::stderr(&format!("overnight: journal: {}", home.display()));
    }
    for line in outputs::next_steps(&written.result, &from_here(&run_dir)) {
        out::stderr(&format!("overnight: {line}"));
    }
    let printed = match (shared.quiet, shared.format()) {
        (true, StdoutFormat::Text) => {
            outputs::report_problems(&written);
            outputs::compare_stdout()
        }
        (_, format) => outputs::try_print(format, &written),
    };
    let code = match printed {
        Ok(()) => written.code,
        Err(problem) => {
            if has_ended && written.result.verdict != Verdict::Output {
                // The files and the outputs of the step must not claim another ending than that of the process.
                let told = written.problems;
                written = outputs::write(&home, &origin, &copies.replaced(), Some(problem.clone()))?;
                written.problems.retain(|one| *one != problem && !told.contains(one));
                if let Some(github) = &github {
                    github.publish_values(&mut written);
                }
                outputs::report_problems(&written);
            }
            exit::stronger(written.code, exit::OUTPUT)
        }
    };
    #[cfg(feature = "otel")]
    crate::cli::traces::export(&home, &interrupt.token).await;
    Ok(code)
}

/// A path relative to the current directory if it lies below it.
fn from_here(path: &Path) -> String {
    let here = std::env::current_dir().unwrap_or_default();
    let below = path.strip_prefix(here).ok().filter(|path| !path.as_os_str().is_empty());
    below.unwrap_or(path).display().to_string()
}

/// The parts of a session that are needed when it is interrupted.
#[derive(Default)]
struct InterruptedSession {
    /// To be closed however the session ends: the first snapshot may still be under way.
    shadow: Option<Shadow>,
    /// The directory of the journal, once this session writes it.
    home: Option<PathBuf>,
    /// The event that the journal could not take.
    unwritten: Option<Event>,
    /// What the journal has, for the case that it is no longer found.
    journal: Option<Journal>,
}

/// Runs the loop. Returns the error of an output stream, if any, and the directory of the journal. Leaves in `broken` the
/// snapshots and, with an error, what a result can be made of.
async fn drive(
    session: RunSession,
    beginning: Beginning,
    shared: &RunFlags,
    interrupt: &Arc<Interrupt>,
    broken: &mut InterruptedSession,
) -> Result<(Option<String>, PathBuf), Refusal> {
    let redactor = environment::redactor();
    let mut session = session;
    let pricing = std::mem::take(&mut session.pricing);
    let model = Arc::clone(&session.provider);
    priced(&session.plan, model.info(), &pricing)?;
    // The note that replies are free is needed only if a cost limit suggests otherwise.
    let free = cost_is_limited(&session.plan) && is_free(model.info(), &pricing);
    if !model.info().recorded {
        let budget = &session.plan.budget;
        session.plan.budget.cost_micros = limits::default_cost(budget, Some(&model.info().id), &pricing);
    }
    let session = session;
    // The user's own price table has precedence over the built-in context window.
    let known = pricing.known(&model.info().id).and_then(|known| known.window);
    let window = known.or(model.info().window);
    let origin = session.isolated.as_ref().map(|standing| standing.origin.as_path());
    let parent = environment::variables();
    let (wish, pass) = (session.policies.sandbox(), session.policies.env_pass());
    let search = ProgramSearch {
        toolchains: &wish.toolchains,
        pass: &pass,
        parent: &parent,
        workspace: session.workspace.root(),
        origin,
        brought: session.isolated.as_ref().map_or(&[], |standing| &standing.brought),
    };
    if let Some(missing) = programs::missing(&session.plan, &session.policies, &search) {
        return Err(Refusal::Environment(missing));
    }
    let ignored = programs::ignored_environment(&session.plan, &session.policies, &search);
    if !unsandboxed::has_git() && may_change_files(&session.plan, &session.policies)? {
        return Err(Refusal::Environment(unsandboxed::no_git()));
    }
    if session.policies.sandbox().level != RequestedLevel::None {
        // Checked now, because the sandbox would refuse it only after requests were paid for.
        journal_place::check_state([session.workspace.root()]).map_err(Refusal::Environment)?;
    }
    let mut own = bootstrap::private(session.workspace.root())?;
    origin::give(&mut own, &session.beside, &session.plan)?;
    if let Some(isolated) = &session.isolated {
        own.brought.clone_from(&isolated.brought);
        own.origin = Some(isolated.origin.clone());
    }
    let own = Arc::new(own);
    let (context, warnings) = bootstrap::context_blocks(&session.plan, &session.workspace, &session.policies);
    required_context(&session)?;
    let allowed = session.policies.brief();
    let system = prompt::system(&session.plan, &allowed, &context);
    let deadline = session.started + wall(&session.plan);
    signals::limit(interrupt, deadline);
    let hermetic = session.provider.recorded().is_some();
    let early = early::sandbox(&session, &own).await?;
    let home = early::home_of(&session, &beginning, early.as_ref())?;
    let hidden = session.hidden.as_slice();
    let store = home.join("git");
    let shadow = private_contents::open_store(&session.run, &store, session.workspace.root(), hidden)
        .map_err(|error| Refusal::Output(format!("{}: {error}", home.display())))?
        .until(&interrupt.token);
    broken.shadow = Some(shadow.clone());
    let prepared = prepare(&session, &beginning, early, &redactor, (&shadow, interrupt, deadline)).await?;
    let (early, made, mut toolset) = (prepared.baseline, prepared.sandbox, prepared.toolset);
    toolset.tools = declared_tools(toolset.tools, &session.policies);
    let sinks = sinks(shared);
    let programs = session.plan.tools.starts_programs();
    let equipped = toolset_event(&toolset, (&system, programs), window, prepared.prompts);
    let (mut ledger, fresh) = match beginning {
        Beginning::New(first) => {
            for file in &session.beside {
                artefacts::keep_blob(&home, &file.bytes)?;
            }
            let kind = EventKind::RunStarted(first);
            (Ledger::begin(&home, kind, sinks, Arc::clone(&redactor))?, true)
        }
        Beginning::Resumed(events) => {
            let mut ledger = Ledger::reopen(&home, sinks, Arc::clone(&redactor))?;
            for event in events {
                ledger.record(event)?;
            }
            (ledger, false)
        }
    };
    broken.home = Some(home.clone());
    ledger.remember(named_outputs(shared));
    ledger.remember(streams_of(&session));
    if !fresh {
        // A person's answers count from here on.
        ledger.sync_with_head()?;
    }
    if home != session.home {
        ledger.record(journal_place::moved_event(&home))?;
    }
    ledger.record(equipped)?;
    let mut notes: Vec<(&str, String)> = Vec::new();
    if free {
        let message = format!(
            "no price is known for {}, and its server is on this machine or in a private network: its replies count as free of \
             charge (if they are not, give a price in the file of OVERNIGHT_PRICES)",
            model.info().id
        );
        notes.push(("price", message));
    }
    if let Some(why) = ledger.headless() {
        let message =
            format!("this machine cannot recognise the journal later, so approvals need the digest of the call: {why}");
        notes.push(("state_directory", message));
    }
    notes.extend(session.unchecked.clone().map(|message| (unchecked::CODE, message)));
    let isolated = session.isolated.iter().flat_map(|isolated| &isolated.warnings);
    notes.extend(isolated.map(|message| ("isolate", message.clone())));
    notes.extend(ignored.map(|message| ("environment_ignored", message)));
    notes.extend(unreadable_objects(&session, &toolset.tools).map(|message| ("alternates", message)));
    notes.extend(warnings.into_iter().map(|message| ("context", message)));
    // The reports tell of servers that did not start from the list of servers.
    let notices = toolset.notices.take().into_iter();
    let notices = notices.filter(|notice| notice.code != SERVER_MISSING);
    notes.extend(notices.map(|notice| (notice.code, notice.message)));
    for (code, message) in notes {
        ledger.warn(code, message)?;
    }
    let (is_read, was_read) = oneshot::channel();
    let tree = match (ledger.state.baseline.clone(), early) {
        (Some(tree), _) if !fresh => Ok(tree),
        (_, Some(early)) => Err(early),
        _ => Err(baseline(&shadow, commit_of(&ledger), is_read)),
    };
    // After the baseline: both read the whole tree.
    let ahead = has_commands(&session.plan, &toolset.tools).then_some(async {
        let _ = was_read.await;
    });
    // The warning is in the journal by now, written above or with the events of a resume.
    process::forget_recorded_writers();
    let sandbox: SandboxMaker = match made {
        Some(made) => Box::new(move || Box::pin(async move { Ok(made) })),
        None => bootstrap::sandbox(
            &session.policies,
            session.workspace.root(),
            &own,
            hidden,
            hermetic,
            ahead,
        ),
    };
    let preconditions = match tree {
        Ok(tree) => Preconditions::resumed(tree, sandbox),
        Err(pending) => Preconditions::new(pending, sandbox),
    };
    let web = bootstrap::web(&session.policies, &redactor, session.search);
    let mut scope = bootstrap::scope(&home, &session.workspace, &redactor, web);
    scope.servers = toolset.servers;
    scope.notices = toolset.notices;
    let mut workspace = session.workspace;
    bootstrap::hide_unreadable(&mut workspace, &session.policies);
    let quiet = shared.quiet;
    let unread = unread_stdin(quiet, false);
    let was_unread = unread.is_some();
    if let Some(warning) = unread {
        ledger.record(warning)?;
    }
    let deps = Deps {
        plan: session.plan,
        policies: Arc::new(session.policies),
        tools: toolset.tools,
        provider: session.provider,
        price: Box::new(move |name: &str, usage: Usage| {
            let info = model.info();
            // Replies of a local server are free unless the user's price table lists the model.
            price(&pricing, &info.id, name, usage).or(info.nearby.then_some(0))
        }),
        workspace: Arc::new(workspace),
        scope: Arc::new(scope),
        redactor,
        run_dir: home.into(),
        shadow: shadow.into(),
        trusted: session.trusted,
        system,
        interrupt: Arc::clone(interrupt),
        run_deadline: deadline,
        command_time: Duration::from_millis(COMMAND_MS),
        // Looked at again, because the process that writes into the pipe may have started after this one.
        last_warning: Box::new(move || unread_stdin(quiet, was_unread)),
    };
    let ended = engine::run(&deps, &mut ledger, preconditions).await;
    if ended.is_err() {
        // Commands may have been able to reach the first directory.
        broken.home = Some(deps.run_dir.to_path_buf());
        broken.unwritten = ledger.unwritten();
        broken.journal = ledger.recorded();
        // What was appended counts only once this machine has recorded it. The first error is the one to tell.
        let _ = ledger.sync();
    }
    ended?;
    let (_, sinks) = ledger.finish();
    let told = sinks.err().map(|error| format!("an output stream: {error}"));
    Ok((told, deps.run_dir.to_path_buf()))
}

/// The tools with those declared to the model selected: tools that some rule could allow; and tools that read the
/// output of commands only if commands can be run.
fn declared_tools(tools: Registry, policies: &PolicySet) -> Registry {
    let has_commands = tools.find(SHELL).is_some();
    tools.declaring(|spec| {
        let follows_commands = spec.effects.offered == Offered::WithCommands;
        policies.may_allow(&spec.name, spec.kind, &spec.origin) && (has_commands || !follows_commands)
    })
}

/// The warning for a repository with objects that the commands of the model or the author cannot read.
fn unreadable_objects(session: &RunSession, tools: &Registry) -> Option<String> {
    let sandboxed = session.policies.sandbox().level != RequestedLevel::None;
    let commands = has_commands(&session.plan, tools);
    let repository = patch::repository(session.workspace.root()).filter(|_| sandboxed && commands)?;
    patch::borrowed_text(&repository.borrowed())
}

/// Whether commands of the model or the author may be run.
fn has_commands(plan: &Plan, tools: &Registry) -> bool {
    tools.declared().iter().any(|tool| tool.name == SHELL) || plan.steps.iter().any(is_checked)
}

/// Whether a step is a command or has checks.
fn is_checked(step: &PlanStep) -> bool {
    matches!(step.work, StepWork::Run { .. }) || !step.checks.is_empty()
}

/// Whether files may be changed by what the run does, so that git has to make a patch.
fn may_change_files(plan: &Plan, policies: &PolicySet) -> Result<bool, Refusal> {
    if plan.tools.starts_programs() || plan.steps.iter().any(is_checked) {
        return Ok(true);
    }
    let changes = |kind: ToolKind| matches!(kind, ToolKind::Edit | ToolKind::Execute);
    let builtin = bootstrap::registry(false)?;
    let may = |spec: &ToolSpec| changes(spec.kind) && policies.may_allow(&spec.name, spec.kind, &spec.origin);
    Ok(builtin.specs().into_iter().any(may))
}

/// For a dry run: refuses what the run would refuse because this machine lacks a program that the recipe's commands run in
/// any case, or git. `workspace`: the user's own tree, also with `--isolate`, so that only what is certain is refused.
///
/// # Errors
/// [`Refusal::Environment`].
pub fn foresee_programs(plan: &Plan, policies: &PolicySet, workspace: &Path) -> Result<(), Refusal> {
    let workspace = settled(workspace);
    let parent = environment::variables();
    let (wish, pass) = (policies.sandbox(), policies.env_pass());
    let search = ProgramSearch {
        toolchains: &wish.toolchains,
        pass: &pass,
        parent: &parent,
        workspace: &workspace,
        origin: None,
        brought: &[],
    };
    if let Some(missing) = programs::missing(plan, policies, &search) {
        return Err(Refusal::Environment(missing));
    }
    match !unsandboxed::has_git() && may_change_files(plan, policies)? {
        true => Err(Refusal::Environment(unsandboxed::no_git())),
        false => Ok(()),
    }
}

/// A cost limit can only be enforced if the price is known.
///
/// # Errors
/// [`Refusal::Environment`]: a cost is limited, and no price of the model is known.
pub fn priced(plan: &Plan, model: &ModelInfo, pricing: &Pricing) -> Result<(), Refusal> {
    if !cost_is_limited(plan)
        || model.recorded
        || model.nearby
        || !plan.asks()
        || pricing.cost_micros(&model.id, &Usage::default()).is_some()
    {
        return Ok(());
    }
    Err(Refusal::Environment(format!(
        "the cost is limited, but no price is known for {id}: name a file with its price in OVERNIGHT_PRICES, for example \
         [{{\"model\": \"{id}\", \"price\": {{\"input\": 0.5, \"output\": 1.5}}}}] in US dollars for a million tokens, \
         or limit tokens instead",
        id = model.id
    )))
}

fn cost_is_limited(plan: &Plan) -> bool {
    let of_steps = plan.steps.iter().filter_map(|step| step.budget.as_ref());
    of_steps
        .chain([&plan.budget])
        .any(|budget| budget.cost_micros.is_some())
}

/// Whether replies are free: the server is local and no price was given.
fn is_free(model: &ModelInfo, pricing: &Pricing) -> bool {
    model.nearby && !model.recorded && pricing.cost_micros(&model.id, &Usage::default()).is_none()
}

/// Price of a reply, by the model that answered, else by the requested model.
fn price(pricing: &Pricing, id: &str, model: &str, usage: Usage) -> Option<u64> {
    let vendor = id.split_once('/').map_or("", |(vendor, _)| vendor);
    pricing
        .cost_micros(&format!("{vendor}/{model}"), &usage)
        .or_else(|| pricing.cost_micros(id, &usage))
}

/// What is prepared before the journal begins.
struct Prepared {
    /// Already taken, if a program was started to gather the tools.
    baseline: Option<Baseline>,
    /// Already built, if a program was started to gather the tools.
    sandbox: Option<(Confinement, String)>,
    toolset: Toolset,
    /// Prompts of servers that are not in this run's journal yet.
    prompts: Vec<GivenPrompt>,
}

/// Gathers the tools. If a program is started for that, the baseline is taken first.
async fn prepare(
    session: &RunSession,
    beginning: &Beginning,
    sandbox: Option<(Confinement, String)>,
    redactor: &Arc<Redactor>,
    (shadow, interrupt, deadline): (&Shadow, &Interrupt, Instant),
) -> Result<Prepared, Refusal> {
    let searches = session.search.is_some();
    let hermetic = session.provider.recorded().is_some();
    let mut early = None;
    if sandbox.is_some()
        && let Beginning::New(first) = beginning
    {
        let (is_read, _) = oneshot::channel();
        let taken = baseline(shadow, first.base.commit.clone(), is_read).await;
        early = Some(tokio::spawn(async move { taken.map_err(|error| error.to_string())? }));
    }
    let secrets = Secrets::of(environment::variables());
    let context = sandbox.as_ref().map(|(made, _)| toolset::ServerContext {
        workspace: session.workspace.root(),
        confinement: made,
        redactor,
        cancel: &interrupt.token,
        deadline,
        hermetic,
        trusted: session.trusted,
        secrets: &secrets,
    });
    let assembled = toolset::assemble(&session.plan, searches, context.as_ref()).await;
    interrupt.check_clock(deadline);
    let toolset = match assembled {
        Ok(toolset) => toolset,
        // The run was interrupted before it began; the loop reports that with the right exit code.
        Err(Refusal::Environment(_)) if interrupt.outcome(&session.plan).is_some() => Toolset::bare(searches)?,
        Err(refusal) => return Err(refusal),
    };
    if let Some(files) = &session.files
        && interrupt.outcome(&session.plan).is_none()
        && let Err(refusal) = bootstrap::check_names(&session.policies, &toolset.tools, &toolset.absent(), files)
    {
        toolset.servers.close().await;
        return Err(refusal);
    }
    let recorded = prompts::Recorded {
        here: &session.prompts,
        there: session.provider.recorded().map_or(&[], |recorded| &recorded.prompts),
    };
    let prompts = prompts::gather(&session.plan, &toolset.servers, recorded, redactor, interrupt, deadline).await?;
    Ok(Prepared {
        baseline: early,
        sandbox,
        toolset,
        prompts,
    })
}

/// A context file with `required: true` must exist before the first request.
fn required_context(session: &RunSession) -> Result<(), Refusal> {
    let root = session.workspace.root();
    let missing: Vec<&str> = session
        .plan
        .required_context
        .iter()
        .map(String::as_str)
        .filter(|path| !preflight::is_there(root, path) || !context::is_found(&session.workspace, path))
        .collect();
    if missing.is_empty() {
        return Ok(());
    }
    Err(Refusal::Invalid(format!(
        "{}:1:1: error[no-context-file]: the workspace has no {}, which the recipe requires\n\
         help: add the file, or remove `required: true`",
        session.plan.name,
        missing.join(", ")
    )))
}

/// Unread data on stdin is reported, never dropped silently: also in a quiet run that passes.
/// `is_told`: this was reported before.
fn unread_stdin(quiet: bool, is_told: bool) -> Option<EventKind> {
    if is_told {
        return None;
    }
    let message = unread_stdin::warning()?;
    let code = "unread_stdin".to_owned();
    if quiet {
        out::keep(&format!("warning[{code}]: {message}"));
    }
    Some(EventKind::Warned { code, message })
}

fn commit_of(ledger: &Ledger) -> Option<String> {
    let started = ledger.state.started.as_ref();
    started.and_then(|started| started.base.commit.clone())
}

/// Takes the baseline in the background, during the first request. `is_read` is sent when the tree was read.
fn baseline(shadow: &Shadow, commit: Option<String>, is_read: oneshot::Sender<()>) -> Baseline {
    let shadow = shadow.clone();
    tokio::spawn(async move {
        let snapshot = shadow.baseline().await;
        // Nobody waits for it if nothing is prepared.
        let _ = is_read.send(());
        let snapshot = snapshot?;
        let dirty = match commit {
            Some(commit) => !shadow.is_commit(&snapshot, &commit).await,
            None => false,
        };
        Ok((snapshot, dirty))
    })
}

fn toolset_event(
    toolset: &Toolset,
    (system, programs): (&str, bool),
    window: Option<u64>,
    prompts: Vec<GivenPrompt>,
) -> EventKind {
    let tools = toolset.tools.declared();
    let text = serde_json::to_string(&tools).unwrap_or_default();
    EventKind::Equipped(ToolsetReady {
        servers: toolset.status.clone(),
        discovered: toolset.discovered.clone(),
        definitions: sha256_hex(&[text.as_bytes()]),
        window,
        system: system.to_owned(),
        tools,
        programs,
        prompts,
    })
}

/// Progress on stderr, and the event stream on stdout if requested.
fn sinks(shared: &RunFlags) -> Vec<Box<dyn Sink>> {
    let level = match (shared.quiet, shared.verbose) {
        (true, _) => Verbosity::Quiet,
        (false, 0) => Verbosity::Normal,
        (false, _) => Verbosity::Verbose,
    };
    let mut sinks: Vec<Box<dyn Sink>> = Vec::new();
    if std::io::stderr().is_terminal() && !shared.quiet && out::is_shown_at_once() {
        sinks.push(Box::new(LiveBar::new(level)));
    } else {
        sinks.push(Box::new(Plain::new(out::Stderr, level)));
    }
    if shared.format() == StdoutFormat::StreamJson {
        sinks.push(Box::new(Stream::new(out::JsonLines)));
    }
    sinks
}

/// The output files that flags name, in the form that `named_outputs` checks.
pub fn outputs_of(shared: &RunFlags) -> Vec<NamedOutput<'_>> {
    let named = shared.copies().into_iter();
    let named = named.filter_map(|(kind, path)| Some((kind, path?)));
    named
        .map(|(kind, path)| NamedOutput {
            flag: match kind {
                ReportFile::Patch => "--patch",
                ReportFile::Junit => "--junit",
                _ => "--transcript",
            },
            kind,
            path,
        })
        .collect()
}

/// The input files that flags of `run` and `resume` name.
pub fn read_by_flags(shared: &RunFlags, tree: &Path) -> Vec<ReadFile> {
    let policies = shared.policy.iter().filter_map(|name| settings::own_file(name, tree));
    let policies = policies.map(|file| ReadFile::new("--policy", file));
    let script = shared.model.as_deref().and_then(|model| model.strip_prefix(SCRIPT));
    let prices = environment::variable("OVERNIGHT_PRICES");
    policies
        .chain(script.map(|file| ReadFile::new("--model", file)))
        .chain(prices.map(|file| ReadFile::new("OVERNIGHT_PRICES", file)))
        .collect()
}

/// Locks every output file that a flag names, so that no other run writes it at the same time.
///
/// # Errors
/// [`Refusal::Usage`] if a flag names `-` or two flags name the same file; [`Refusal::Environment`] if a path leads
/// through a link of the tree or another run writes the file; [`Refusal::Output`] if no lock can be made.
pub fn hold_outputs(shared: &RunFlags, out: Option<&Path>, tree: &Path) -> Result<Vec<File>, Refusal> {
    let copies = shared.copies().into_iter();
    let copies = copies.filter_map(|(output, path)| Some((format!("--{}", output.as_str()), path?)));
    let mut named: Vec<(String, &Path)> = copies.collect();
    for (flag, path) in &named {
        if *path == Path::new("-") {
            return Err(Refusal::Usage(format!(
                "{flag} -: write /dev/stdout for the standard output, or ./- for a file of this name"
            )));
        }
        named_outputs::refuse_link(tree, path)?;
    }
    if let Some(out) = out {
        named_outputs::refuse_link(tree, out)?;
    }
    named.extend(out.map(|out| ("--out".to_owned(), out)));
    for (at, (flag, path)) in named.iter().enumerate() {
        let place = settled(path);
        let mut earlier = named.iter().take(at);
        if let Some((other, _)) = earlier.find(|(_, other)| settled(other) == place) {
            let name = path.display();
            return Err(Refusal::Usage(format!(
                "{other} and {flag} name the same file, {name}: give each a file of its own"
            )));
        }
    }
    let mut held = Vec::new();
    for (_, path) in named {
        held.push(output_lock::hold(path).map_err(|error| match error {
            JournalError::Held(_) => Refusal::Environment(format!(
                "another run writes {}: name another file, or wait for its end",
                path.display()
            )),
            other => Refusal::from(other),
        })?);
    }
    Ok(held)
}

/// Why a workspace cannot be locked. `else_do`: what else helps than to wait, as the end of a sentence.
pub fn unheld(error: JournalError, else_do: &str) -> Refusal {
    Refusal::Environment(match error {
        JournalError::Held(which) => {
            format!("another run is using the workspace {which}: wait until it has ended{else_do}")
        }
        other => format!("the workspace cannot be locked: {other}"),
    })
}

/// The absolute paths of the output files that flags name, by the name of the flag. Streams are left out.
fn named_outputs(shared: &RunFlags) -> BTreeMap<String, String> {
    let absolute = shared.copies().into_iter().filter_map(|(output, path)| {
        let path = std::path::absolute(path?).ok()?;
        let is_stream = path.starts_with("/dev") || path.starts_with("/proc");
        let path = path.to_str().filter(|_| !is_stream)?;
        Some((output.as_str().to_owned(), path.to_owned()))
    });
    absolute.collect()
}

/// Prefix of the names in [`state_dir::Head::copies`] for the files that were stdout or stderr of a run.
const STREAM: &str = "stream:";
/// Upper limit for the files with the prefix [`STREAM`] that are recorded for a resume.
const MOST_STREAMS: usize = 32;

/// The files and directories of this program in a tree: the run directory, and files that are stdout or stderr of this
/// process, or were those of earlier sessions of `resumed` on this machine and are still the same files.
pub fn hidden(run_dir: &Path, tree: &Path, resumed: Option<&RunId>) -> Vec<PathBuf> {
    let root = settled(tree);
    let earlier = resumed
        .and_then(state_dir::head)
        .into_iter()
        .flat_map(|head| head.copies);
    let earlier = earlier.filter_map(|(name, identity)| {
        let path = PathBuf::from(name.strip_prefix(STREAM)?);
        (identity_of(&path) == Some(identity)).then_some(path)
    });
    let earlier = earlier.take(MOST_STREAMS);
    let mut all = vec![run_dir.to_owned()];
    all.extend(
        earlier
            .chain(own_streams::inside(&root))
            .filter(|path| path.starts_with(&root)),
    );
    all
}

/// The files that are stdout or stderr of this process, in the form in which a head records them. Those of earlier
/// sessions are recorded already.
fn streams_of(session: &RunSession) -> BTreeMap<String, String> {
    let streams = own_streams::inside(&settled(session.workspace.root())).into_iter();
    streams
        .filter_map(|path| Some((format!("{STREAM}{}", path.to_str()?), identity_of(&path)?)))
        .collect()
}

/// Device, inode number and time of creation: a command may put another file in the place of this one.
fn identity_of(path: &Path) -> Option<String> {
    let data = path.symlink_metadata().ok()?;
    let made = data.created().ok();
    let made = made.and_then(|made| made.duration_since(std::time::UNIX_EPOCH).ok());
    let made = made.map(|made| made.as_nanos());
    Some(format!("{}:{}:{}", data.dev(), data.ino(), made.unwrap_or_default()))
}

/// The flags without the output files that another run has locked.
pub fn without_copies(shared: &RunFlags) -> RunFlags {
    let mut without = shared.clone();
    for (_, path) in without.copies_mut() {
        *path = None;
    }
    without
}

/// The flags without the output files behind a link of a tree: what such a link leads to is neither written nor removed.
fn without_linked(shared: &RunFlags) -> RunFlags {
    let tree = shared.workspace.clone().unwrap_or_else(|| PathBuf::from("."));
    let mut without = shared.clone();
    for (_, path) in without.copies_mut() {
        let is_plain = |path: &PathBuf| named_outputs::refuse_link(&tree, path).is_ok();
        *path = path.take().filter(is_plain);
    }
    without
}

/// Why output files that flags name cannot be written, and the flags without those. Checked before the
/// run, because a run whose outputs cannot be written wastes money.
pub fn unwritable(shared: &RunFlags) -> Option<(Refusal, RunFlags)> {
    let mut writable = shared.clone();
    let mut problems = Vec::new();
    for (output, path) in writable.copies_mut() {
        let Some(name) = path.clone() else { continue };
        if let Some(why) = artefacts::unwritable(&name) {
            problems.push(format!("--{} {} {why}", output.as_str(), name.display()));
            *path = None;
        }
    }
    (!problems.is_empty()).then(|| (Refusal::Output(problems.join("; ")), writable))
}

/// The flags without the output files that cannot be written.
pub fn without_unwritable(shared: &RunFlags) -> RunFlags {
    unwritable(shared).map_or_else(|| shared.clone(), |(_, writable)| writable)
}

/// Removes patch and transcript of an earlier run, so that they are not taken for this run's if this run ends without them,
/// for example because it is killed.
pub fn remove_stale_copies(shared: &RunFlags) {
    for path in [&shared.patch, &shared.transcript].into_iter().flatten() {
        if let Err(error) = artefacts::remove(path) {
            out::stderr(&format!(
                "warning: the earlier {} cannot be removed: {error}",
                path.display()
            ));
        }
    }
}

/// Reports a refusal: `result.json`, JUnit, the JSON object on stdout, and the message on stderr. Removes patch and transcript of
/// an earlier run from the paths that flags name.
pub fn refused(refusal: &Refusal, dir: Option<&Path>, recipe: &str, shared: &RunFlags) -> u8 {
    out::refusal(refusal);
    let message = environment::redactor().redact(&refusal.to_string()).into_owned();
    if let Refusal::Usage(_) = refusal {
        // A wrong command line leaves no files, but a script that reads stdout gets its JSON object.
        let mut written = outputs::unstarted(&refusal.outcome(&message), recipe);
        if shared.github {
            github::publish_refusal(&mut written);
        }
        return match shared.format() {
            StdoutFormat::Text => exit::USAGE,
            format => outputs::print(format, &written),
        };
    }
    // A run directory with a journal belongs to another run.
    let dir = dir.filter(|dir| !run_dirs::is_taken(dir));
    let copies = Copies::from(&without_linked(shared));
    let outcome = refusal.outcome(&message);
    let mut written = outputs::write_unstarted(dir, &copies, recipe, &outcome);
    if shared.github {
        github::publish_refusal(&mut written);
    }
    match shared.format() {
        StdoutFormat::Text => {
            outputs::report_problems(&written);
            written.code
        }
        format => match outputs::try_print(format, &written) {
            Ok(()) => written.code,
            Err(problem) => {
                let outcome = outputs::unwritten_outcome(&outcome, &[problem]);
                outputs::write_unstarted(dir, &copies.replaced(), recipe, &outcome).code
            }
        },
    }
}
