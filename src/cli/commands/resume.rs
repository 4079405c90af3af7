//! Implements `overnight resume`: continues a run from its journal, here or on another machine.

mod tree;
mod trust;
mod unchecked;

use super::session::{self, Beginning, RunSession};
use crate::base::event::{Event, EventKind, RunStarted};
use crate::base::source::KeptFile;
use crate::cli::args::ResumeArgs;
use crate::cli::environment;
use crate::cli::named_outputs::{self, ReadFile};
use crate::cli::origin::{RecipeFile, Trust};
use crate::cli::outputs::{self, Copies};
use crate::cli::recipe_requests::{self, RequestCheck};
use crate::cli::refusal::Refusal;
use crate::cli::secrets::{self, Secrets};
use crate::cli::settings::{self, Typed};
use crate::cli::{bootstrap, excluded_trees, github, limits, out, signals, variables, verify};
use crate::diag::SourceFiles;
use crate::engine::deps::Interrupt;
use crate::engine::state::RunState;
use crate::journal::no_follow::settled;
use crate::journal::uncompared::Uncompared;
use crate::journal::{self, artefacts, run_dirs};
use crate::recipe::Plan;
use crate::recipe::plan::{PlanStep, StepWork, ToolPlan};
use crate::workspace::isolate;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Instant, SystemTime};

/// Runs the command. Returns the exit code.
pub async fn resume(mut args: ResumeArgs, started: Instant) -> u8 {
    if let Err(refusal) = variables::fill(&mut args.shared) {
        return session::refused(&refusal, None, "resume", &args.shared);
    }
    let shared = args.shared.clone();
    if shared.quiet {
        out::hold();
    }
    let interrupt = match signals::watch() {
        Ok(interrupt) => interrupt,
        Err(refusal) => return session::refused(&refusal, None, "resume", &shared),
    };
    let here = shared.workspace.clone().unwrap_or_else(|| PathBuf::from("."));
    let name = args.run.clone().map_or_else(|| run_dirs::newest(&here), Ok);
    let recalled = name.as_ref().ok().and_then(|name| recall(&mut args, name, &here));
    let recalled = recalled.unwrap_or_default();
    let tree = recalled.tree.or_else(|| shared.workspace.clone());
    let tree = tree.unwrap_or_else(|| PathBuf::from("."));
    excluded_trees::tree(&tree);
    let _held = match session::hold_outputs(&args.shared, None, &tree) {
        Ok(held) => held,
        Err(refusal) => return session::refused(&refusal, None, "resume", &session::without_copies(&shared)),
    };
    let outputs = session::outputs_of(&args.shared);
    let read = session::read_by_flags(&args.shared, &tree).into_iter();
    let read: Vec<ReadFile> = read.chain(recalled.files).collect();
    let checked = match named_outputs::refuse_read(&outputs, &read) {
        Ok(()) => named_outputs::refuse_tracked(&outputs).await,
        refused => refused,
    };
    if let Err(refusal) = checked {
        return session::refused(&refusal, None, "resume", &session::without_copies(&shared));
    }
    if let Some((refusal, writable)) = session::unwritable(&shared) {
        return session::refused(&refusal, None, "resume", &writable);
    }
    let ended = match name {
        Ok(name) => attempt(args, (&name, &here), (started, &interrupt)).await,
        Err(error) => Err(error.into()),
    };
    match ended {
        Ok(code) => code,
        Err(refusal) => session::refused(&refusal, None, "resume", &shared),
    }
}

/// What the journal says about the run before it is continued.
#[derive(Default)]
struct Recalled {
    /// The tree in which the run began, if no other tree is named.
    tree: Option<PathBuf>,
    /// The files of the run's recipe and policies.
    files: Vec<ReadFile>,
}

/// Adds the output files that flags named in earlier sessions on this machine, so that these files are written for the
/// whole run. `None` if the journal cannot be read.
fn recall(args: &mut ResumeArgs, name: &str, here: &Path) -> Option<Recalled> {
    let dir = run_dirs::locate(name, here).ok()?;
    let journal = journal::read(&dir).ok()?;
    let ended = journal.events.last().is_some_and(|last| match &last.kind {
        EventKind::RunFinished { outcome, .. } => outcome.verdict.is_final(&outcome.reason),
        _ => false,
    });
    let head = journal.run().and_then(journal::state_dir::head).filter(|_| !ended);
    if let Some(head) = head {
        for (output, path) in args.shared.copies_mut() {
            let name = output.as_str();
            let earlier = head.copies.get(name).map(PathBuf::from).filter(|_| path.is_none());
            let Some(earlier) = earlier else { continue };
            let is_ours = output.file().is_some_and(|own| is_still_ours(&earlier, &dir.join(own)));
            let writable = artefacts::unwritable(&earlier).is_none();
            let what = match (is_ours, writable) {
                (true, true) => "writes",
                (true, false) => "leaves alone, because it cannot be written,",
                (false, _) => "leaves alone, because it is no longer as this run wrote it,",
            };
            out::stderr(&format!(
                "overnight: {what} {}, the file of the earlier --{name}",
                earlier.display()
            ));
            if is_ours && writable {
                *path = Some(earlier);
            }
        }
    }
    let started = journal.events.iter().find_map(|event| match &event.kind {
        EventKind::RunStarted(started) => Some(started),
        _ => None,
    })?;
    let tree = started.isolated_from.as_ref().unwrap_or(&started.workspace);
    let files = started.source.iter().flat_map(|source| &source.files);
    Some(Recalled {
        tree: args.shared.workspace.is_none().then(|| PathBuf::from(tree)),
        files: files
            .map(|file| ReadFile::new("the run's recipe or policy", file))
            .collect(),
    })
}

/// Whether an output that an earlier session was to write is as the run left it: like the run's own file, or not
/// there. Another run may have written the same file.
fn is_still_ours(path: &Path, own: &Path) -> bool {
    match std::fs::symlink_metadata(path) {
        Ok(found) if found.is_file() => match (std::fs::read(path), std::fs::read(own)) {
            (Ok(there), Ok(own)) => there == own,
            _ => false,
        },
        Ok(_) => false,
        Err(_) => path.parent().is_some_and(Path::is_dir),
    }
}

/// `name`: the run, and `here` the workspace in which it is looked for.
async fn attempt(
    mut args: ResumeArgs,
    (name, here): (&str, &Path),
    (started, interrupt): (Instant, &Arc<Interrupt>),
) -> Result<u8, Refusal> {
    let dir = settled(&run_dirs::locate(name, here)?);
    let journal = journal::read_strictly(&dir)?;
    let events = &journal.events;
    let state = RunState::fold(events);
    let first = state
        .started
        .clone()
        .ok_or_else(|| Refusal::Environment(format!("{}: the journal has no `run_started` event", dir.display())))?;
    // The journal must contain all that the result recorded about it. On another machine nothing else shows that it was
    // truncated.
    verify::against_result(&dir, &journal).map_err(|why| Refusal::Environment(format!("{}: {why}", dir.display())))?;
    if let Some(outcome) = &state.outcome
        && outcome.verdict.is_final(&outcome.reason)
    {
        if !args.approve.is_empty() || !args.deny.is_empty() {
            return Err(Refusal::Usage(
                "the run has ended: no call waits for approval".to_owned(),
            ));
        }
        out::stderr(&format!(
            "overnight: the run has ended: {}: {}",
            outcome.verdict.as_str(),
            outcome.message
        ));
        let github = args.shared.github.then(github::files).transpose()?;
        let mut written = outputs::write(&dir, here, &Copies::from(&args.shared), None)?;
        if let Some(github) = github {
            github.publish_run(&dir, &mut written)?;
        }
        return Ok(outputs::print(args.shared.format(), &written));
    }
    if args.shared.github {
        github::files()?.check()?;
    }
    let known = journal.is_ours();
    let vouched = journal.keyed || journal.run().is_some_and(journal::state_dir::began);
    if args.run.is_none() && !vouched {
        return Err(Refusal::Environment(format!(
            "the newest run here, {}, was not written by this machine: look at it first, and name it to resume it",
            dir.display()
        )));
    }
    let withdrawn = trust::withdrawn(&state, vouched);
    let approvals = trust::approvals(&args, events, known, withdrawn.as_ref())?;
    let answers = withdrawn.into_iter().chain(approvals).collect();
    let mut plan = trust::plan(&first, vouched)?;
    trust::continue_with(&mut plan, &first, events);
    let named = args.shared.workspace.as_deref();
    if first.isolated_from.is_some() && named.and_then(isolate::run_of).is_some_and(|run| run == first.run) {
        // The worktree of the run itself is found by the tree from which it was made.
        args.shared.workspace = None;
    }
    let flags = settings::flags_budget(&args.shared);
    let wall = flags.wall().unwrap_or_else(|| session::wall(&plan));
    signals::limit(interrupt, started + wall);
    let run = first.run.clone();
    let tree = Tree::find(&args, &first, interrupt).await;
    let tree = tree.map_err(|refusal| session::or_interrupted(refusal, interrupt, wall))?;
    let told = (answers, vouched);
    let when = (started, interrupt);
    let ended = go_on(&args, &dir, (events, &state), (*first, plan), told, &tree, when).await;
    if let Tree::Isolated { made, .. } = tree {
        session::close_worktree(*made, &run).await;
    }
    ended
}

/// The tree that the run continues in.
enum Tree {
    Own {
        path: PathBuf,
        /// Dropped before the locks.
        record: Option<Uncompared>,
        _locks: run_dirs::HeldWorkspace,
    },
    Isolated {
        made: Box<isolate::Isolated>,
        origin: PathBuf,
        /// Whether it is the worktree that a killed process of this run left.
        is_left: bool,
    },
}

impl Tree {
    async fn find(args: &ResumeArgs, first: &RunStarted, interrupt: &Interrupt) -> Result<Self, Refusal> {
        let recorded = first.isolated_from.as_ref().unwrap_or(&first.workspace);
        let path = args.shared.workspace.clone().unwrap_or_else(|| PathBuf::from(recorded));
        if !path.is_dir() {
            let what = match (&args.shared.workspace, &first.isolated_from) {
                (Some(_), _) => "the workspace",
                (None, Some(_)) => "the tree that this isolated run was created from,",
                (None, None) => "the tree that this run worked on,",
            };
            return Err(Refusal::Environment(format!(
                "{what} {} does not exist: name a clone of it with --workspace",
                path.display()
            )));
        }
        let here = std::env::current_dir().unwrap_or_default();
        if args.shared.workspace.is_none() && !settled(&here).starts_with(settled(&path)) {
            out::stderr(&format!(
                "overnight: continues in {}, the tree that the run began in; --workspace names another one",
                path.display()
            ));
        }
        if first.isolated_from.is_some() {
            // A journal from elsewhere names no worktree of this machine.
            let own = journal::state_dir::began(&first.run);
            let left = match own {
                true => isolate::take_over(&path, &first.run),
                false => Ok(None),
            };
            let left = left.map_err(|_in_use| {
                Refusal::Environment(format!(
                    "another process is at work on the run {}, in its worktree: wait until it has ended",
                    first.run
                ))
            })?;
            let is_left = left.is_some();
            let made = match left {
                Some(left) => left,
                None => isolate::make(&path, run_dirs::may_go_on, &interrupt.token)
                    .await
                    .map_err(Refusal::Environment)?,
            };
            return Ok(Tree::Isolated {
                made: Box::new(made),
                origin: path,
                is_left,
            });
        }
        let locks = run_dirs::hold_workspace(&path).map_err(|error| session::unheld(error, ""))?;
        let record = session::uncompared(&path, interrupt).await?;
        Ok(Tree::Own {
            path,
            record,
            _locks: locks,
        })
    }

    fn path(&self) -> &Path {
        match self {
            Tree::Own { path, .. } => path,
            Tree::Isolated { made, .. } => made.workspace(),
        }
    }

    /// Since when commands of a killed run may have changed it.
    fn recorded(&self) -> Option<SystemTime> {
        match self {
            Tree::Own { record, .. } => record.as_ref().and_then(Uncompared::since),
            Tree::Isolated { .. } => None,
        }
    }
}

async fn go_on(
    args: &ResumeArgs,
    dir: &Path,
    (events, state): (&[Event], &RunState),
    (first, mut plan): (RunStarted, Plan),
    (answers, vouched): (Vec<EventKind>, bool),
    tree: &Tree,
    (started, interrupt): (Instant, &Arc<Interrupt>),
) -> Result<u8, Refusal> {
    let last = trust::last_policies(&first, events);
    let flags = settings::flags_budget(&args.shared);
    let rulers = trust::rulers(args, (&first, last.as_slice()), tree.path(), vouched);
    let rulers = interrupt.token.run_until_cancelled(rulers).await;
    let (mut policies, named) = rulers.unwrap_or_else(|| {
        let wall = flags.wall().unwrap_or_else(|| session::wall(&plan));
        Err(session::cancelled(interrupt, wall))
    })?;
    plan.budget = plan.budget.overridden_by(&flags).lowered_by(&policies.limits());
    plan.model_settings = plan.model_settings.overridden(settings::flags_settings(&args.shared));
    plan.model = args.shared.model.clone().or(plan.model);
    let out_dir = journal::state_dir::outputs_of(dir).unwrap_or_else(|| dir.to_owned());
    let hidden = session::hidden(&out_dir, tree.path(), Some(&first.run));
    let workspace = bootstrap::workspace(tree.path(), &hidden, Some(&plan))?;
    let search = bootstrap::search(plan.model.as_deref(), args.shared.base_url.as_deref(), tree.path());
    let trust = trust(args, &first, &plan, tree.path()).await?;
    let look = RequestCheck {
        recipe: None,
        plan: &plan,
        trust: &trust,
        policies: &policies,
        workspace: tree.path(),
        model_given: true,
        secrets: &Secrets::of(environment::variables()),
    };
    let mut refused = recipe_requests::passed_keys(&policies, look.secrets);
    refused.extend(look.refused());
    if !refused.is_empty() {
        return Err(Refusal::of_problems(&refused, &SourceFiles::default()));
    }
    let rulers = first.policies.iter().chain(last);
    let rulers = rulers.map(|policy| &policy.name).chain(&args.shared.policy);
    let own = rulers.filter_map(|name| settings::own_file(name, tree.path()));
    let mut own: Vec<String> = own.map(|file| file.to_string_lossy().into_owned()).collect();
    own.extend(first.source.iter().flat_map(|source| source.files.iter().cloned()));
    bootstrap::guard(&mut policies, &workspace, &hidden, &own);
    bootstrap::restrict(&mut policies, &plan, &workspace)?;
    let isolated = match tree {
        Tree::Own { .. } => None,
        Tree::Isolated { made, origin, is_left } => {
            if *is_left {
                made.remove_brought(&plan.isolate_keep).await;
            }
            let brought = bootstrap::bring(
                origin,
                made.workspace(),
                &plan.isolate_keep,
                &policies,
                args.shared.quiet,
                &interrupt.token,
            );
            let brought = brought.await;
            Some(brought.map_err(|refusal| session::or_interrupted(refusal, interrupt, session::wall(&plan)))?)
        }
    };
    let origin = isolated.as_ref().map(|brought| brought.origin.as_path());
    bootstrap::guard_programs(&mut policies, &workspace, origin);
    let provider = session::provider(&plan, &args.shared, tree.path(), interrupt).await?;
    let pricing = session::pricing(interrupt, session::wall(&plan)).await?;
    out::stderr(&limits::line(&plan, &pricing));
    environment::add_secrets(secrets::sent(&plan, &Secrets::of(environment::variables())));
    let elsewhere = match tree {
        Tree::Isolated { is_left, .. } => !is_left,
        Tree::Own { path, .. } => settled(path) != Path::new(&first.workspace),
    };
    let of_run = (events, state, &plan);
    let since = unchecked::since(of_run, elsewhere)
        .into_iter()
        .chain(tree.recorded())
        .min();
    let unchecked = crate::cli::unchecked::warning(since, &policies, (workspace.root(), &hidden)).await;
    tree::restore_tree(
        (&first.run, dir),
        (events, state),
        &plan,
        (&workspace, &hidden),
        elsewhere,
    )
    .await?;
    if let Tree::Isolated { made, .. } = tree {
        let journals = journal::state_dir::journals_of(&first.run, dir);
        made.record(&first.run, &journals).map_err(Refusal::Environment)?;
    }
    let mut more = vec![EventKind::Resumed {
        by: "overnight resume".to_owned(),
        model: provider.info().id.clone(),
        policies: named,
        limits: flags,
        directory: environment::current_directory(),
    }];
    more.extend(unchecked.map(|message| EventKind::Warned {
        code: crate::cli::unchecked::CODE.to_owned(),
        message,
    }));
    more.extend(answers);
    let session = RunSession {
        run_dir: out_dir,
        hidden,
        home: dir.to_owned(),
        origin: args.shared.workspace.clone().unwrap_or_else(|| PathBuf::from(".")),
        run: first.run,
        beside: RecipeFile::recorded(&first.files, dir)?,
        plan,
        trusted: trust.trusted,
        policies,
        files: None,
        search,
        provider,
        pricing,
        workspace,
        isolated,
        unchecked: None,
        prompts: state.prompts.clone(),
        started,
    };
    session::run(session, Beginning::Resumed(more), &args.shared, interrupt).await
}

/// Whether the run's recipe is trusted. Checked again, because a journal is only a file: the recipe as it is now must
/// be trusted and must produce the recorded plan.
async fn trust(args: &ResumeArgs, first: &RunStarted, plan: &Plan, workspace: &Path) -> Result<Trust, Refusal> {
    if args.shared.trusts_recipe() {
        return Ok(Trust::yes("`--trust recipe` says so"));
    }
    let Some(source) = &first.source else {
        return Ok(Trust::no("the journal does not say where the recipe came from"));
    };
    let other = || Trust::no("the recipe now gives another plan than the recorded one");
    if source.name.is_empty() {
        let bare = |step: &PlanStep| step.checks.is_empty() && matches!(step.work, StepWork::Prompt { mcp: None, .. });
        let same = plan.tools == ToolPlan::default() && plan.steps.iter().all(bare);
        return Ok(match same {
            true => Trust::yes("a prompt from the command line"),
            false => other(),
        });
    }
    let name = match source.files.first() {
        Some(file) if !source.name.starts_with("git:") && source.name != "-" => file,
        _ if source.name == "-" => return Ok(Trust::no("it came from stdin")),
        _ => &source.name,
    };
    let values = serde_json::to_string(&plan.values).unwrap_or_default();
    let typed = Typed::recorded(values, plan.input.clone());
    let mut files = SourceFiles::default();
    let read = settings::recipe_plan(Path::new(name), &typed, workspace, &mut files, &mut Vec::new()).await;
    let read = match read {
        Ok(read) => read,
        Err(Refusal::Environment(why)) => return Err(Refusal::Environment(why)),
        Err(_) => return Ok(Trust::no(format!("its recipe {name} can no longer be read"))),
    };
    let files: Vec<KeptFile> = read.beside.iter().map(RecipeFile::kept).collect();
    let same = read.plan.tools == plan.tools && read.plan.steps == plan.steps && files == first.files;
    Ok(if read.trust.trusted && !same {
        other()
    } else {
        read.trust
    })
}
