//! One session of a run, new or resumed: the loop with its sinks, signals and clock, then the outputs. Reads no recipe.

mod early;

use crate::base::event::{Equipped, EventKind, GivenPrompt, RunStarted, Sink};
use crate::base::ids::{RunId, sha256_hex};
use crate::base::message::Usage;
use crate::base::outcome::Verdict;
use crate::base::secret::Redactor;
use crate::cli::args::{Format, Shared};
use crate::cli::equip::{self, Equipment};
use crate::cli::outputs::{self, Copies};
use crate::cli::refusal::Refusal;
use crate::cli::secrets::Secrets;
use crate::cli::{exit, foresee, limits, out, programs, prompts, signals, unread, wire};
use crate::diag::Files;
use crate::engine::deps::{Baseline, Deps, Interrupt, Sandbox};
use crate::engine::effects::Ground;
use crate::engine::home;
use crate::engine::ledger::Ledger;
use crate::engine::prompt;
use crate::engine::run as engine;
use crate::journal::{JournalError, output_lock, store};
use crate::policy::PolicySet;
use crate::policy::model::{FREE_TOOLS, SHELL};
use crate::process::Confinement;
use crate::provider::pricing::Pricing;
use crate::provider::{ModelInfo, Provider};
use crate::recipe::Plan;
use crate::recipe::lower::{COMMAND_MS, WALL_MS};
use crate::report::progress::{Level, LiveBar, Plain};
use crate::report::stream::Stream;
use crate::tools::Registry;
use crate::tools::web::Search;
use crate::workspace::Workspace;
use crate::workspace::isolate::Standing;
use crate::workspace::patch::Shadow;
use std::fs::File;
use std::io::IsTerminal;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

/// What a session is made of, when all of it is known to be good.
pub struct Session {
    /// Where the outputs go.
    pub run_dir: PathBuf,
    /// Where the journal lies, or is to begin.
    pub home: PathBuf,
    /// The user's tree, of which an isolated one was made.
    pub origin: PathBuf,
    pub plan: Plan,
    /// Whether the recipe is believed in what it asks for itself.
    pub trusted: bool,
    pub policies: PolicySet,
    /// Where the names in new policies stand; `None` when they were checked before.
    pub files: Option<Files>,
    /// Behind `google_web_search`, where that is among the tools.
    pub search: Option<Search>,
    pub provider: Arc<dyn Provider>,
    pub workspace: Workspace,
    /// For a throw-away worktree: what it stands for, and what commands see in it of that.
    pub isolated: Option<Standing>,
    pub hidden: Vec<PathBuf>,
    /// For a resume: the prompts of servers that the record has.
    pub prompts: Vec<GivenPrompt>,
    pub started: Instant,
    pub run: RunId,
}

/// How the record begins.
pub enum Beginning {
    /// A new one, with this event.
    New(Box<RunStarted>),
    /// An old one goes on: events that say so, after the tree was put right.
    Resumed(Vec<EventKind>),
}

/// The run that this process has begun, for the report of a bug.
static CURRENT: OnceLock<String> = OnceLock::new();

/// Which run, and where its journal is.
pub fn current() -> Option<String> {
    CURRENT.get().cloned()
}

/// Runs a session to its end and writes everything. The number is the exit code.
pub async fn run(session: Session, beginning: Beginning, shared: &Shared) -> Result<u8, Refusal> {
    let run_dir = session.run_dir.clone();
    let _ = CURRENT.set(format!(
        "the journal is whole up to here: {}",
        run_dir.join("journal.jsonl").display()
    ));
    let interrupt = Arc::new(Interrupt::default());
    let copies = Copies::from(shared);
    let origin = session.origin.clone();
    let (told, home) = drive(session, beginning, shared, &interrupt).await?;
    let mut written = outputs::write(&home, &origin, &copies)?;
    if let Some(problem) = told {
        written.problems.push(problem);
        written.code = exit::stronger(written.code, exit::OUTPUT);
        written.result.verdict = Verdict::Output;
        written.result.exit_code = i32::from(written.code);
    }
    if shared.silent {
        return Ok(written.code);
    }
    {
        out::tell(&format!("overnight: files: {}", from_here(&run_dir)));
        if home != run_dir {
            out::tell(&format!("overnight: journal: {}", home.display()));
        }
    }
    let code = match (shared.quiet, shared.format()) {
        (true, Format::Text) => written.code,
        (_, format) => outputs::print(format, &written),
    };
    #[cfg(feature = "otel")]
    crate::cli::traces::export(&home, &interrupt.token).await;
    Ok(code)
}

/// A path as somebody would write it who stands where we do.
fn from_here(path: &Path) -> String {
    let here = std::env::current_dir().unwrap_or_default();
    let below = path.strip_prefix(here).ok().filter(|path| !path.as_os_str().is_empty());
    below.unwrap_or(path).display().to_string()
}

/// The loop itself. Gives what went wrong with an output that was written meanwhile, and where the journal lies.
async fn drive(
    session: Session,
    beginning: Beginning,
    shared: &Shared,
    interrupt: &Arc<Interrupt>,
) -> Result<(Option<String>, PathBuf), Refusal> {
    let redactor = Arc::new(Redactor::from_env(wire::environment()));
    let pricing = wire::pricing()?;
    let model = Arc::clone(&session.provider);
    priced(&session.plan, model.info(), &pricing)?;
    // Said only where a limit on the cost could be taken to hold.
    let free = cost_is_limited(&session.plan) && is_free(model.info(), &pricing);
    let mut session = session;
    if !model.info().recorded {
        let budget = &session.plan.budget;
        session.plan.budget.cost_micros = limits::default_cost(budget, Some(&model.info().id), &pricing);
    }
    let session = session;
    // The user's own table goes before what the service is known for.
    let known = pricing.known(&model.info().id).and_then(|known| known.window);
    let window = known.or(model.info().window);
    let origin = session.isolated.as_ref().map(|standing| standing.origin.as_path());
    let parent = wire::environment();
    if let Some(missing) = programs::missing(
        &session.plan,
        &session.policies,
        session.workspace.root(),
        origin,
        &parent,
    ) {
        return Err(Refusal::Environment(missing));
    }
    let mut own = wire::private(session.workspace.root())?;
    if let Some(isolated) = &session.isolated {
        own.brought.clone_from(&isolated.brought);
        own.origin = Some(isolated.origin.clone());
    }
    let own = Arc::new(own);
    let (context, mut warnings) = wire::context_blocks(&session.plan, &session.workspace, &session.policies);
    required_context(&session)?;
    // Context files are the repository's: what they hold is redacted as any text is that the model reads.
    let allowed = session.policies.brief();
    let system = redactor
        .redact(&prompt::system(&session.plan, &allowed, &context))
        .into_owned();
    let wall = session.plan.budget.wall().unwrap_or(Duration::from_millis(WALL_MS));
    let deadline = session.started + wall;
    signals::watch(interrupt, deadline)
        .map_err(|error| Refusal::Environment(format!("signals cannot be watched: {error}")))?;
    let hermetic = session.provider.recorded().is_some();
    let early = early::sandbox(&session, &own).await?;
    let home = early::home_of(&session, &beginning, early.as_ref())?;
    let shadow = Shadow::open(&home.join("git"), session.workspace.root(), &session.hidden)
        .map_err(|error| Refusal::Output(format!("{}: {error}", home.display())))?;
    let prepared = prepare(&session, &beginning, early, &redactor, (&shadow, interrupt, deadline)).await?;
    let (early, made, mut equipment) = (prepared.baseline, prepared.sandbox, prepared.equipment);
    equipment.tools = told_of(equipment.tools, &session.policies);
    let sinks = sinks(shared);
    let programs = session.plan.tools.starts_programs();
    let equipped = equipped(&equipment, (&system, programs), window, prepared.prompts);
    let (mut ledger, fresh) = match beginning {
        Beginning::New(first) => {
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
    if home != session.home {
        ledger.record(home::told(&home))?;
    }
    ledger.record(equipped)?;
    if free {
        ledger.record(EventKind::Warned {
            code: "price".to_owned(),
            message: format!(
                "no price is known for {}, and its server stands on this machine or in a private network: its replies count as free of \
                 charge (name a price in the file of OVERNIGHT_PRICES if they are not)",
                model.info().id
            ),
        })?;
    }
    if let Some(why) = ledger.headless().map(str::to_owned) {
        ledger.record(EventKind::Warned {
            code: "state_directory".to_owned(),
            message: format!(
                "this machine will not know the journal again, so approvals need the digest of the call: {why}"
            ),
        })?;
    }
    for message in warnings.drain(..) {
        ledger.record(EventKind::Warned {
            code: "context".to_owned(),
            message,
        })?;
    }
    for notice in equipment.notices.take() {
        ledger.record(EventKind::Warned {
            code: notice.code.to_owned(),
            message: notice.message,
        })?;
    }
    let sandbox: Sandbox = match made {
        Some(made) => Box::new(move || Box::pin(async move { Ok(made) })),
        None => wire::sandbox(
            &session.policies,
            session.workspace.root(),
            &own,
            &session.hidden,
            hermetic,
        ),
    };
    let ground = match (ledger.state.baseline.clone(), early) {
        (Some(tree), _) if !fresh => Ground::resumed(tree, sandbox),
        (_, Some(early)) => Ground::new(early, sandbox),
        _ => Ground::new(baseline(&shadow, commit_of(&ledger)), sandbox),
    };
    let web = wire::web(&session.policies, &redactor, session.search);
    let mut scope = wire::scope(&home, &session.workspace, &redactor, web);
    scope.servers = equipment.servers;
    scope.notices = equipment.notices;
    let mut workspace = session.workspace;
    wire::hide_unreadable(&mut workspace, &session.policies);
    let deps = Deps {
        plan: session.plan,
        policies: Arc::new(session.policies),
        tools: equipment.tools,
        provider: session.provider,
        price: Box::new(move |name: &str, usage: Usage| {
            let info = model.info();
            // A server of one's own: nobody charges for it unless the user's table says so.
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
        deadline,
        command_time: Duration::from_millis(COMMAND_MS),
    };
    let unread = unread::warning();
    let was_unread = unread.is_some();
    record_unread(&mut ledger, unread)?;
    engine::run(&deps, &mut ledger, ground).await?;
    // What writes into the pipe may have begun later than we did.
    record_unread(&mut ledger, unread::warning().filter(|_| !was_unread))?;
    let (_, sinks) = ledger.finish();
    let told = sinks.err().map(|error| format!("an output stream: {error}"));
    Ok((told, deps.run_dir.to_path_buf()))
}

/// The tools with what the model is told of them: those that some rule could allow, and those that read from commands only where
/// commands can be run.
fn told_of(tools: Registry, policies: &PolicySet) -> Registry {
    let has_commands = tools.find(SHELL).is_some();
    tools.declaring(|spec| {
        let follows_commands = FREE_TOOLS.contains(&spec.name.as_str());
        policies.may_allow(&spec.name, spec.kind, &spec.origin) && (has_commands || !follows_commands)
    })
}

/// A cap on the cost can only be held where prices are known.
fn priced(plan: &Plan, model: &ModelInfo, pricing: &Pricing) -> Result<(), Refusal> {
    if !cost_is_limited(plan)
        || model.recorded
        || model.nearby
        || !plan.asks()
        || pricing.cost_micros(&model.id, &Usage::default()).is_some()
    {
        return Ok(());
    }
    Err(Refusal::Environment(format!(
        "the cost is limited, and no price is known for {id}: name a file with its price in OVERNIGHT_PRICES, as \
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

/// Whether replies cost nothing because the server is one's own and no price was named.
fn is_free(model: &ModelInfo, pricing: &Pricing) -> bool {
    model.nearby && !model.recorded && pricing.cost_micros(&model.id, &Usage::default()).is_none()
}

/// The price of a reply: by the model that answered, else by the one that was asked.
fn price(pricing: &Pricing, id: &str, model: &str, usage: Usage) -> Option<u64> {
    let vendor = id.split_once('/').map_or("", |(vendor, _)| vendor);
    pricing
        .cost_micros(&format!("{vendor}/{model}"), &usage)
        .or_else(|| pricing.cost_micros(id, &usage))
}

/// What stands before the record begins.
struct Prepared {
    /// Taken already, where something was started to get the tools.
    baseline: Option<Baseline>,
    /// Made already, where something was started to get the tools.
    sandbox: Option<(Confinement, String)>,
    equipment: Equipment,
    /// Prompts of servers that this run's record has not yet.
    prompts: Vec<GivenPrompt>,
}

/// Gathers the tools. Where a program is started for that, the baseline is taken before.
async fn prepare(
    session: &Session,
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
        let taken = baseline(shadow, first.base.commit.clone()).await;
        early = Some(tokio::spawn(async move { taken.map_err(|error| error.to_string())? }));
    }
    let secrets = Secrets::of(wire::environment());
    let ground = sandbox.as_ref().map(|(made, _)| equip::Ground {
        workspace: session.workspace.root(),
        confinement: made,
        redactor,
        cancel: &interrupt.token,
        deadline,
        hermetic,
        trusted: session.trusted,
        secrets: &secrets,
    });
    let equipment = match equip::equip(Some(&session.plan), searches, ground.as_ref()).await {
        Ok(equipment) => equipment,
        // The run is over before it began: the loop says so, with the right code.
        Err(Refusal::Environment(_)) if interrupt.outcome(&session.plan).is_some() => Equipment::bare(searches)?,
        Err(refusal) => return Err(refusal),
    };
    if let Some(files) = &session.files
        && interrupt.outcome(&session.plan).is_none()
        && let Err(refusal) = wire::check_names(&session.policies, &equipment.tools, &equipment.absent(), files)
    {
        equipment.servers.close().await;
        return Err(refusal);
    }
    let recorded = prompts::Recorded {
        here: &session.prompts,
        there: session.provider.recorded().map_or(&[], |recorded| &recorded.prompts),
    };
    let prompts = prompts::gather(&session.plan, &equipment.servers, recorded, redactor, interrupt).await?;
    Ok(Prepared {
        baseline: early,
        sandbox,
        equipment,
        prompts,
    })
}

/// A context file that the recipe calls required must be there before anything is asked.
fn required_context(session: &Session) -> Result<(), Refusal> {
    let root = session.workspace.root();
    let missing: Vec<&str> = session
        .plan
        .required_context
        .iter()
        .map(String::as_str)
        .filter(|path| !foresee::is_there(root, path))
        .collect();
    if missing.is_empty() {
        return Ok(());
    }
    Err(Refusal::Invalid(format!(
        "{}:1:1: error[no-context-file]: the workspace has no {}, which the recipe calls required\n\
         help: add the file, or leave `required: true` out",
        session.plan.name,
        missing.join(", ")
    )))
}

/// Data that waits on stdin is never dropped in silence.
fn record_unread(ledger: &mut Ledger, warning: Option<String>) -> Result<(), Refusal> {
    if let Some(message) = warning {
        ledger.record(EventKind::Warned {
            code: "unread_stdin".to_owned(),
            message,
        })?;
    }
    Ok(())
}

fn commit_of(ledger: &Ledger) -> Option<String> {
    let started = ledger.state.started.as_ref();
    started.and_then(|started| started.base.commit.clone())
}

/// The baseline, beside the first request.
fn baseline(shadow: &Shadow, commit: Option<String>) -> Baseline {
    let shadow = shadow.clone();
    tokio::spawn(async move {
        let snapshot = shadow.baseline().await?;
        let dirty = match commit {
            Some(commit) => !shadow.is_commit(&snapshot, &commit).await,
            None => false,
        };
        Ok((snapshot, dirty))
    })
}

fn equipped(
    equipment: &Equipment,
    (system, programs): (&str, bool),
    window: Option<u64>,
    prompts: Vec<GivenPrompt>,
) -> EventKind {
    let tools = equipment.tools.declared();
    let text = serde_json::to_string(&tools).unwrap_or_default();
    EventKind::Equipped(Equipped {
        servers: equipment.status.clone(),
        discovered: equipment.discovered.clone(),
        definitions: sha256_hex(&[text.as_bytes()]),
        window,
        system: system.to_owned(),
        tools,
        programs,
        prompts,
    })
}

/// Progress on stderr, and the event stream on stdout where it was asked for.
fn sinks(shared: &Shared) -> Vec<Box<dyn Sink>> {
    let level = match (shared.quiet, shared.verbose) {
        (true, _) => Level::Quiet,
        (false, 0) => Level::Normal,
        (false, _) => Level::Verbose,
    };
    let mut sinks: Vec<Box<dyn Sink>> = Vec::new();
    if std::io::stderr().is_terminal() && !shared.quiet && out::is_shown_at_once() {
        sinks.push(Box::new(LiveBar::new(level)));
    } else {
        sinks.push(Box::new(Plain::new(out::Stderr, level)));
    }
    if shared.format() == Format::StreamJson {
        sinks.push(Box::new(Stream::new(std::io::stdout())));
    }
    sinks
}

/// Locks every file that a flag names, so that no other run writes it meanwhile.
pub fn hold_outputs(shared: &Shared, out: Option<&Path>) -> Result<Vec<File>, Refusal> {
    let copies = [&shared.patch, &shared.junit, &shared.transcript];
    let named = copies.into_iter().filter_map(|path| path.as_deref()).chain(out);
    let mut held = Vec::new();
    for path in named {
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

/// The flags without the files that another run holds.
pub fn without_copies(shared: &Shared) -> Shared {
    Shared {
        patch: None,
        junit: None,
        transcript: None,
        ..shared.clone()
    }
}

/// Takes an earlier run's patch away, so that it does not pass for the one of this run if this run makes none.
pub fn remove_stale_patch(shared: &Shared) {
    let Some(path) = &shared.patch else {
        return;
    };
    let is_file = std::fs::symlink_metadata(path).is_ok_and(|found| found.is_file());
    if is_file && let Err(error) = std::fs::remove_file(path) {
        out::tell(&format!("warning: the earlier {} stays: {error}", path.display()));
    }
}

/// What a refusal leaves behind: `result.json`, JUnit, the object on stdout, and the sentence on stderr.
pub fn refused(refusal: &Refusal, dir: Option<&Path>, recipe: &str, shared: &Shared) -> u8 {
    out::tell(&match refusal {
        Refusal::Invalid(text) => text.clone(),
        other => format!("error: {other}"),
    });
    let redactor = Redactor::from_env(wire::environment());
    let message = redactor.redact(&refusal.to_string()).into_owned();
    if let Refusal::Usage(_) = refusal {
        // A command line that is wrong leaves no files, but a script that reads stdout gets its object.
        return match shared.format() {
            Format::Text => exit::USAGE,
            format => outputs::print(format, &outputs::unstarted(refusal.verdict(), recipe, &message)),
        };
    }
    // A run directory that holds a journal already belongs to another run.
    let dir = dir.filter(|dir| !store::is_taken(dir));
    let written = outputs::write_unstarted(dir, &Copies::from(shared), recipe, refusal.verdict(), &message);
    match shared.format() {
        Format::Text => {
            for problem in &written.problems {
                out::tell(&format!("error: not written: {problem}"));
            }
            written.code
        }
        format => outputs::print(format, &written),
    }
}
