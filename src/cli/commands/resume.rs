//! `overnight resume`: goes on with a run from its journal, here or on another machine.

use super::session::{self, Beginning, Session};
use crate::base::call::{CallState, Display};
use crate::base::event::{Event, EventKind, RunStarted};
use crate::base::ids::CallId;
use crate::base::outcome::{Outcome, Verdict};
use crate::cli::args::ResumeArgs;
use crate::cli::asks::{self, Look};
use crate::cli::origin::Trust;
use crate::cli::outputs::{self, Copies};
use crate::cli::refusal::Refusal;
use crate::cli::secrets::Secrets;
use crate::cli::settings::{self, Typed};
use crate::cli::{out, wire};
use crate::diag::Files;
use crate::engine::next::{Next, next};
use crate::engine::state::State;
use crate::journal::{self, artefacts, store};
use crate::policy::{self, KnownTools, PolicySet, Source};
use crate::recipe::Plan;
use crate::recipe::plan::{PlanStep, StepWork, ToolPlan};
use crate::workspace::isolate;
use crate::workspace::patch::{Shadow, Snapshot};
use crate::workspace::root::settled;
use std::path::{Path, PathBuf};
use std::time::Instant;

/// Goes on with it. The number is the exit code.
pub async fn resume(args: ResumeArgs, started: Instant) -> u8 {
    let shared = args.shared.clone();
    match attempt(args, started).await {
        Ok(code) => code,
        Err(refusal) => session::refused(&refusal, None, "resume", &shared),
    }
}

async fn attempt(args: ResumeArgs, started: Instant) -> Result<u8, Refusal> {
    let here = args.shared.workspace.clone().unwrap_or_else(|| PathBuf::from("."));
    let dir = settled(&store::locate(&args.run, &here)?);
    let events = journal::read(&dir)?.events;
    let state = State::fold(&events);
    let first = state
        .started
        .clone()
        .ok_or_else(|| Refusal::Environment(format!("{}: the journal has no beginning", dir.display())))?;
    if let Some(outcome) = &state.outcome
        && is_final(outcome)
    {
        if !args.approve.is_empty() || !args.deny.is_empty() {
            return Err(Refusal::Usage(
                "the run has ended: no call waits for approval".to_owned(),
            ));
        }
        let written = outputs::write(&dir, &Copies::from(&args.shared))?;
        return Ok(outputs::print(args.shared.format, &written));
    }
    let approvals = approvals(&args, &state)?;
    let tree = Tree::find(&args, &first).await?;
    let ended = go_on(&args, &dir, (&events, &state), *first, approvals, &tree, started).await;
    if let Tree::Isolated(isolated) = tree {
        isolated.remove().await;
    }
    ended
}

/// Whether there is nothing to go on with.
fn is_final(outcome: &Outcome) -> bool {
    match outcome.verdict {
        Verdict::Passed | Verdict::NoChange | Verdict::Denied | Verdict::Invalid => true,
        Verdict::Failed => !matches!(outcome.reason.as_str(), "stuck" | "replay_miss"),
        _ => false,
    }
}

/// The reviewer's answers as events, after they were checked against the calls that wait.
fn approvals(args: &ResumeArgs, state: &State) -> Result<Vec<EventKind>, Refusal> {
    let waiting: Vec<&CallId> = state
        .calls
        .values()
        .filter(|record| record.state == CallState::AwaitingApproval)
        .map(|record| &record.call.id)
        .collect();
    let answers = args
        .approve
        .iter()
        .map(|id| (id, true))
        .chain(args.deny.iter().map(|id| (id, false)));
    let mut events = Vec::new();
    for (id, allow) in answers {
        let call = CallId::from(id.as_str());
        if !waiting.contains(&&call) {
            let names: Vec<&str> = waiting.iter().map(|call| call.as_str()).collect();
            return Err(Refusal::Usage(match names.is_empty() {
                true => format!("{id}: no call waits for approval"),
                false => format!("{id} does not wait for approval; {} does", names.join(", ")),
            }));
        }
        events.push(EventKind::Approved {
            call,
            allow,
            by: "command line".to_owned(),
        });
    }
    Ok(events)
}

/// The tree that the run goes on in.
enum Tree {
    Own { path: PathBuf, _held: std::fs::File },
    Isolated(isolate::Isolated),
}

impl Tree {
    async fn find(args: &ResumeArgs, first: &RunStarted) -> Result<Self, Refusal> {
        if let Some(origin) = &first.isolated_from {
            let origin = args.shared.workspace.clone().unwrap_or_else(|| PathBuf::from(origin));
            return isolate::make(&origin)
                .await
                .map(Tree::Isolated)
                .map_err(Refusal::Environment);
        }
        let path = args
            .shared
            .workspace
            .clone()
            .unwrap_or_else(|| PathBuf::from(&first.workspace));
        if !path.is_dir() {
            return Err(Refusal::Environment(format!(
                "the workspace {} is not there: name it with --workspace",
                path.display()
            )));
        }
        let held = store::hold_workspace(&path)
            .map_err(|_| Refusal::Environment(format!("another run holds the workspace {}", path.display())))?;
        Ok(Tree::Own { path, _held: held })
    }

    fn path(&self) -> &Path {
        match self {
            Tree::Own { path, .. } => path,
            Tree::Isolated(isolated) => isolated.workspace(),
        }
    }
}

async fn go_on(
    args: &ResumeArgs,
    dir: &Path,
    (events, state): (&[Event], &State),
    first: RunStarted,
    approvals: Vec<EventKind>,
    tree: &Tree,
    started: Instant,
) -> Result<u8, Refusal> {
    let mut plan: Plan = serde_json::from_value(first.plan.clone())
        .map_err(|error| Refusal::Environment(format!("the recorded plan cannot be read: {error}")))?;
    let mut policies = rulers(args, &first, tree.path()).await?;
    let flags = settings::flags_budget(&args.shared);
    plan.budget.turns = flags.turns.or(plan.budget.turns);
    plan.budget.tokens = flags.tokens.or(plan.budget.tokens);
    plan.budget.cost_micros = flags.cost_micros.or(plan.budget.cost_micros);
    plan.budget.wall_ms = flags.wall_ms.or(plan.budget.wall_ms);
    plan.budget = plan.budget.lowered_by(&policies.limits());
    plan.model = Some(args.shared.model.clone().unwrap_or_else(|| first.model.clone()));
    let hidden = vec![dir.to_owned()];
    let workspace = wire::workspace(tree.path(), &hidden, Some(&plan))?;
    let search = wire::search(plan.model.as_deref(), args.shared.base_url.as_deref(), tree.path());
    let trust = trust(args, &first, &plan, tree.path()).await?;
    let look = Look {
        recipe: None,
        plan: &plan,
        trust: &trust,
        policies: &policies,
        workspace: tree.path(),
        model_given: true,
        secrets: &Secrets::of(wire::environment()),
    };
    let mut refused = asks::passed_keys(&policies, look.secrets);
    refused.extend(look.refused());
    if !refused.is_empty() {
        return Err(settings::refuse(&refused, &Files::default()));
    }
    let named = first
        .policies
        .iter()
        .map(|policy| &policy.name)
        .chain(&args.shared.policy);
    let own = named.filter_map(|name| settings::own_file(name, tree.path()));
    let mut own: Vec<String> = own.map(|file| file.to_string_lossy().into_owned()).collect();
    own.extend(first.source.iter().flat_map(|source| source.files.iter().cloned()));
    wire::guard(&mut policies, &workspace, &hidden, &own);
    let provider = wire::provider(&plan, args.shared.base_url.as_deref(), tree.path())?;
    let elsewhere = first.isolated_from.is_some() || settled(tree.path()) != Path::new(&first.workspace);
    put_tree_right(dir, (events, state), &plan, &workspace, elsewhere).await?;
    let mut more = vec![EventKind::Resumed {
        by: "overnight resume".to_owned(),
        model: provider.info().id.clone(),
    }];
    more.extend(approvals);
    let session = Session {
        run_dir: dir.to_owned(),
        plan,
        trusted: trust.trusted,
        policies,
        files: None,
        search,
        provider,
        workspace,
        hidden,
        prompts: state.prompts.clone(),
        started,
    };
    session::run(session, Beginning::Resumed(more), &args.shared).await
}

/// Whether the run's recipe is trusted: found out again, because a journal is only a file. The recipe, as it is now, must be
/// trusted and make the recorded plan.
async fn trust(args: &ResumeArgs, first: &RunStarted, plan: &Plan, workspace: &Path) -> Result<Trust, Refusal> {
    if args.shared.trusts_recipe() {
        return Ok(Trust::yes("`--trust recipe` says so"));
    }
    let Some(source) = &first.source else {
        return Ok(Trust::no("the journal does not say where the recipe came from"));
    };
    let other = || Trust::no("the recorded plan is not the one that the recipe makes now");
    if source.name.is_empty() {
        let bare = |step: &PlanStep| step.checks.is_empty() && matches!(step.work, StepWork::Prompt { mcp: None, .. });
        let same = plan.tools == ToolPlan::default() && plan.steps.iter().all(bare);
        return Ok(match same {
            true => Trust::yes("a prompt of the command line"),
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
    let mut files = Files::default();
    let read = settings::recipe_plan(Path::new(name), &typed, workspace, &mut files, &mut Vec::new()).await;
    let read = match read {
        Ok(read) => read,
        Err(Refusal::Environment(why)) => return Err(Refusal::Environment(why)),
        Err(_) => return Ok(Trust::no(format!("its recipe {name} cannot be read any more"))),
    };
    let same = read.plan.tools == plan.tools && read.plan.steps == plan.steps;
    Ok(if read.trust.trusted && !same {
        other()
    } else {
        read.trust
    })
}

/// The recorded policies, and those of the command line, which can only narrow.
async fn rulers(args: &ResumeArgs, first: &RunStarted, workspace: &Path) -> Result<PolicySet, Refusal> {
    let mut files = Files::default();
    let sources = |narrows: bool| -> Vec<Source> {
        first
            .policies
            .iter()
            .filter(|policy| policy.narrows == narrows)
            .map(|policy| Source {
                name: policy.name.clone(),
                text: policy.text.clone(),
            })
            .collect()
    };
    let mut load = |sources: &[Source]| {
        let loaded = policy::load(&mut files, sources, &KnownTools::builtin());
        loaded
            .map(|(set, _)| set)
            .map_err(|problems| settings::refuse(&problems, &files))
    };
    let mut set = load(&sources(false))?;
    let own = sources(true);
    if !own.is_empty() {
        set = set.narrowed_by(&load(&own)?);
    }
    if !args.shared.policy.is_empty() {
        let more = crate::cli::inputs::policies(&args.shared.policy, workspace).await?;
        set = set.narrowed_by(&load(&more)?);
    }
    Ok(set)
}

/// The tree must be as the run left it; where it is as the run found it, the run's changes are applied again. `elsewhere`:
/// it is another tree than the one that the run began in.
async fn put_tree_right(
    dir: &Path,
    (events, state): (&[Event], &State),
    plan: &Plan,
    workspace: &crate::workspace::Workspace,
    elsewhere: bool,
) -> Result<(), Refusal> {
    let Some(baseline) = state.baseline.clone() else {
        // Nothing was changed yet.
        return Ok(());
    };
    let shadow = Shadow::open(&dir.join("git"), workspace.root(), &[dir.to_owned()])
        .map_err(|error| Refusal::Environment(format!("{}: {error}", dir.display())))?;
    let now = shadow.snapshot().await.map_err(Refusal::Environment)?;
    let left = state
        .patch
        .as_ref()
        .map_or(baseline.clone(), |patch| patch.tree.clone());
    if state.touched {
        // The process ended before it could look what it had changed: there is no state to compare with. But a tree without
        // the changes would make all that the model was told of them untrue.
        return match now.tree == left && (elsewhere || edited_since(events)) {
            true => Err(Refusal::Environment(
                "the process ended before its changes were stored, and this tree does not have them: resume the run in the \
                 tree that it worked on, or start a new one"
                    .to_owned(),
            )),
            false => Ok(()),
        };
    }
    if now.tree == left {
        return Ok(());
    }
    let blob = state.patch.as_ref().and_then(|patch| patch.blob.as_ref());
    if now != (Snapshot { tree: baseline }) {
        // A check that was at work when the process ended may have left something: it is made again.
        // So does a process that ended while it put something back.
        let checking = state.littered || state.due().next().is_some() || matches!(next(state, plan), Next::Check(_));
        if checking && !elsewhere {
            return Ok(());
        }
        return Err(Refusal::Environment(
            "the tree is neither as the run left it nor as it found it: restore one of the two, or start a new run"
                .to_owned(),
        ));
    }
    if let Some(blob) = blob {
        let patch = artefacts::read_blob(dir, blob)?;
        shadow
            .apply(&patch)
            .await
            .map_err(|why| Refusal::Environment(format!("the run's changes cannot be applied again: {why}")))?;
        out::tell("the tree is as the run found it: its changes were applied again");
    }
    Ok(())
}

/// Whether a file was edited after the changes were stored last.
fn edited_since(events: &[Event]) -> bool {
    let since = events
        .iter()
        .rev()
        .take_while(|event| !matches!(event.kind, EventKind::PatchTaken(_)));
    since.into_iter().any(|event| match &event.kind {
        EventKind::CallFinished { state, output, .. } => {
            *state == CallState::Success
                && matches!(&output.display, Display::Diff(diff) if diff.added + diff.removed > 0)
        }
        _ => false,
    })
}
