//! Implements `overnight tools …`: lists the registry, and makes one call with the same ruling and sandbox as in a run.

use super::printed;
use crate::base::access::Access;
use crate::base::call::{ToolKind, ToolOrigin, ToolOutput, ToolSpec};
use crate::base::grant::{Undone, cause};
use crate::base::ids::CallId;
use crate::base::ruling::{Decision, PolicyInput, Ruling};
use crate::base::secret::Redactor;
use crate::cli::args::{CallArgs, StdoutFormat, ToolsCommand, Trusted};
use crate::cli::environment;
use crate::cli::origin::{self, RecipeFile};
use crate::cli::recipe_requests;
use crate::cli::refusal::Refusal;
use crate::cli::secrets::Secrets;
use crate::cli::settings::{self, Typed};
use crate::cli::{bootstrap, exit, inputs, out, search, toolset, variables};
use crate::diag::SourceFiles;
use crate::engine::modify::{self, NotRewritten};
use crate::engine::{denial, exec};
use crate::policy::{self, Uses};
use crate::process::Confinement;
use crate::process::private::Private;
use crate::recipe::Plan;
use crate::recipe::lower::COMMAND_MS;
use crate::report::result::{RanProgram, ran_before};
use crate::tools::notices::ToolNotice;
use crate::tools::registry::FoundTool;
use crate::tools::web::Search;
use crate::tools::{LiveSender, PreparedCall, Registry, ToolContext, ToolError, background, results};
use crate::workspace::Workspace;
use serde_json::{Value, json};
use std::path::Path;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};
use tokio_util::sync::CancellationToken;

/// Runs the command.
///
/// # Errors
/// [`Refusal::Usage`] for a wrong command line; [`Refusal::Invalid`] if a policy or recipe is missing or wrong;
/// [`Refusal::Environment`] if the workspace, the sandbox or a server cannot be used; [`Refusal::Output`] if stdout
/// cannot be written. A call that fails is no error.
pub async fn tools(command: ToolsCommand) -> Result<u8, Refusal> {
    match command {
        ToolsCommand::List {
            recipe,
            trust,
            format,
            workspace,
        } => list((recipe.as_deref(), &trust), format, &workspace).await,
        ToolsCommand::Call(mut args) => {
            variables::warn_unknown();
            args.policy = variables::policies(&args.policy)?;
            call(&args).await
        }
    }
}

/// The plan of a recipe whose requests these policies grant, and whether the recipe is trusted.
async fn plan_of(
    (recipe, trust): (Option<&Path>, &[Trusted]),
    policies: &policy::PolicySet,
    workspace: &Path,
) -> Result<Option<(Plan, Vec<RecipeFile>, bool)>, Refusal> {
    let Some(recipe) = recipe else {
        return Ok(None);
    };
    let typed = Typed::from_flags(&[], None, None)?.trusted(trust.contains(&Trusted::Recipe));
    let mut files = SourceFiles::default();
    let read = settings::recipe_plan(recipe, &typed, workspace, &mut files, &mut Vec::new()).await?;
    let secrets = Secrets::of(environment::variables());
    let mut refused = recipe_requests::passed_keys(policies, &secrets);
    refused.extend(read.refused(policies, workspace, false, &secrets));
    match refused.is_empty() {
        true => Ok(Some((read.plan, read.beside, read.trust.trusted))),
        false => Err(Refusal::of_problems(&refused, &files)),
    }
}

fn search_of(plan: Option<&Plan>) -> Option<Search> {
    search::of(plan.and_then(|plan| plan.model.as_deref()), None)
}

async fn list(recipe: (Option<&Path>, &[Trusted]), format: StdoutFormat, workspace: &Path) -> Result<u8, Refusal> {
    let policies = settings::rulers(&[], None, workspace, &mut SourceFiles::default(), &mut Vec::new()).await?;
    let plan = plan_of(recipe, &policies, workspace).await?;
    let searches = search_of(plan.as_ref().map(|(plan, ..)| plan)).is_some();
    let Some((plan, beside, trusted)) = plan else {
        return print(&bootstrap::registry(searches)?, &[], format);
    };
    let tree = bootstrap::workspace(workspace, &[], Some(&plan))?;
    let standalone = toolset::standalone((&plan, &beside), searches, &policies, &tree, trusted).await?;
    standalone.toolset.servers.close().await;
    print(&standalone.toolset.tools, &standalone.warnings, format)
}

/// Prints the tools. JSON has the warnings too, which are on stderr in every format: a server that is missing here, or a tool
/// that was left out.
fn print(registry: &Registry, warnings: &[ToolNotice], format: StdoutFormat) -> Result<u8, Refusal> {
    let specs = registry.specs();
    let warning = |notice: &ToolNotice| json!({ "code": notice.code, "message": notice.message });
    match format {
        StdoutFormat::Text => printed(&specs.iter().map(|spec| row(spec)).collect::<String>()),
        StdoutFormat::Json => printed(&format!(
            "{:#}\n",
            json!({
                "tools": specs.iter().map(|spec| object(spec)).collect::<Vec<Value>>(),
                "warnings": warnings.iter().map(warning).collect::<Vec<Value>>(),
            })
        )),
        StdoutFormat::StreamJson => {
            let tools = specs.iter().map(|spec| object(spec));
            let told = warnings.iter().map(|notice| json!({ "warning": warning(notice) }));
            printed(&tools.chain(told).map(|line| format!("{line}\n")).collect::<String>())
        }
    }
}

fn origin(spec: &ToolSpec) -> String {
    match &spec.origin {
        ToolOrigin::Builtin => "builtin".to_owned(),
        ToolOrigin::Discovered => "discovered".to_owned(),
        ToolOrigin::Mcp(server) => format!("mcp:{server}"),
    }
}

fn row(spec: &ToolSpec) -> String {
    let first = spec.description.lines().next().unwrap_or_default();
    let short = first.split_inclusive(". ").next().unwrap_or(first).trim_end();
    format!(
        "{:<28} {:<8} {:<12} {short}\n",
        spec.name,
        spec.kind.as_str(),
        origin(spec)
    )
}

fn object(spec: &ToolSpec) -> Value {
    json!({
        "name": spec.name,
        "display_name": spec.display_name,
        "description": spec.description,
        "kind": spec.kind.as_str(),
        "origin": origin(spec),
        "parameters": spec.parameters,
        "aliases": spec.aliases,
    })
}

/// The result of the call.
struct Answer {
    status: &'static str,
    ruling: Option<Ruling>,
    output: ToolOutput,
    code: u8,
}

async fn call(args: &CallArgs) -> Result<u8, Refusal> {
    let arguments = inputs::json(&args.args, "--args")?;
    let answer = gate(args, &arguments).await?;
    let text = answer.output.model_text();
    match args.format {
        StdoutFormat::Text if answer.output.error.is_some() => out::stderr(&text),
        StdoutFormat::Text => {
            printed(&if text.ends_with('\n') {
                text
            } else {
                format!("{text}\n")
            })?;
        }
        StdoutFormat::Json | StdoutFormat::StreamJson => {
            if answer.output.error.is_some() {
                out::stderr(&text);
            }
            let ruling = answer.ruling.as_ref();
            let execs = &answer.output.judged.execs;
            let denied = execs.iter().rev().find(|exec| exec.denied.is_some());
            let exec = denied.map(RanProgram::from);
            let object = json!({
                "status": answer.status,
                "decision": ruling.map(|ruling| ruling.decision.as_str()),
                "rule": ruling.and_then(|ruling| ruling.rule.clone()),
                "code": ruling.map(|ruling| ruling.code.clone()),
                "reason": ruling.map(|ruling| ruling.reason.clone()),
                "fix": ruling.map(|ruling| ruling.fix.clone()),
                "argv": exec.as_ref().map(|exec| &exec.argv),
                "cwd": exec.as_ref().map(|exec| &exec.cwd),
                "ran": exec.as_ref().map(|_| ran_before(execs)),
                "content": answer.output.content,
                "display": answer.output.display,
                "summary": answer.output.summary,
                "error": answer.output.error,
            });
            printed(&format!("{object}\n"))?;
        }
    }
    Ok(answer.code)
}

async fn gate(args: &CallArgs, arguments: &Value) -> Result<Answer, Refusal> {
    let mut files = SourceFiles::default();
    let mut warnings = Vec::new();
    let mut policies = settings::rulers(&args.policy, None, &args.workspace, &mut files, &mut warnings).await?;
    for warning in warnings {
        out::stderr(&warning);
    }
    let mut tree = bootstrap::workspace(&args.workspace, &[], None)?;
    let plan = plan_of((args.recipe.as_deref(), &args.trust), &policies, &args.workspace).await?;
    settings::guard(&mut policies, &tree, &args.workspace);
    if let Some((plan, ..)) = &plan {
        bootstrap::restrict(&mut policies, plan, &tree)?;
    }
    let searches = search_of(plan.as_ref().map(|(plan, ..)| plan)).is_some();
    let standalone = match &plan {
        Some((plan, beside, trusted)) => {
            toolset::standalone((plan, beside), searches, &policies, &tree, *trusted).await?
        }
        None => toolset::Standalone::builtin(searches)?,
    };
    bootstrap::hide_unreadable(&mut tree, &policies);
    let given = plan.as_ref().map(|(plan, beside, _)| (plan, beside.as_slice()));
    let answer = judged(args, &policies, tree, (&standalone.toolset, given), arguments).await;
    standalone.toolset.servers.close().await;
    for notice in standalone.toolset.notices.take() {
        out::stderr(&format!("warning: {}", notice.message));
    }
    answer
}

/// A recipe's plan and the files beside it that its commands get.
type GivenFiles<'a> = Option<(&'a Plan, &'a [RecipeFile])>;

async fn judged(
    args: &CallArgs,
    policies: &policy::PolicySet,
    tree: Workspace,
    (toolset, given): (&toolset::Toolset, GivenFiles<'_>),
    arguments: &Value,
) -> Result<Answer, Refusal> {
    let failed = |error: ToolError| Answer {
        status: "error",
        ruling: None,
        output: failure(error),
        code: exit::FAILED,
    };
    let registry = &toolset.tools;
    let workspace = Arc::new(tree);
    let Some(found) = registry.find(&args.name) else {
        return Ok(failed(registry.unknown(&args.name)));
    };
    let (mut asked, mut prepared) = match proposed(found, arguments, &workspace) {
        Ok(proposed) => proposed,
        Err(error) => return Ok(failed(error)),
    };
    let spec = found.tool.spec();
    let mut own = bootstrap::private(workspace.root())?;
    if let Some((plan, beside)) = given {
        origin::give(&mut own, beside, plan)?;
    }
    let mut sandbox = CallSandbox {
        policies,
        root: workspace.root(),
        own: &own,
        built: None,
        is_tested: false,
    };
    let runs = spec.kind == ToolKind::Execute || spec.origin == ToolOrigin::Discovered;
    if runs {
        sandbox.build().await?;
    }
    let witness = exec::is_witnessed(policies, sandbox.built.as_ref());
    let rule = |args: &Value, access: &Access| {
        let (asked, uses) = (PolicyInput::of(spec, args), Uses::default());
        workspace.with_fs_view(|fs_view| policy::decide_with(policies, &asked, access, fs_view, &uses, witness))
    };
    let redactor = environment::redactor();
    let secret = spec.effects.sends_arguments && redactor.find(asked.to_string().as_bytes()).is_some();
    let mut ruling = match secret {
        true => denial::secret(),
        false => rule(&asked, &prepared.access),
    };
    let cancel = CancellationToken::new();
    if ruling.decision == Decision::Modify {
        let pipe = modify::Pipe {
            workspace: &workspace,
            confinement: sandbox.tested().await?.clone(),
            redactor: &redactor,
            cancel: &cancel,
        };
        match pipe.rewrite(found.tool, &asked, &prepared, &ruling).await {
            Ok(rewritten) => {
                let preparer = modify::preparer(registry, found, &rewritten);
                (asked, prepared) = match proposed(preparer, &rewritten, &workspace) {
                    Ok(proposed) => proposed,
                    Err(error) => return Ok(failed(error)),
                };
                ruling = rule(&asked, &prepared.access);
            }
            Err(NotRewritten::Denied(denial)) => ruling = *denial,
            Err(NotRewritten::NotRun(why)) => return Err(Refusal::Environment(why)),
        }
    }
    let ruled_out = |ruling: Ruling, status, code| Answer {
        status,
        output: ToolOutput::failure(
            "denied",
            denial::denial_text(&ruling, args.policy.iter().map(String::as_str)),
        ),
        ruling: Some(ruling),
        code,
    };
    match ruling.decision {
        Decision::Deny => return Ok(ruled_out(ruling, "error", exit::DENIED)),
        Decision::Suspend => return Ok(ruled_out(ruling, "awaiting_approval", exit::SUSPENDED)),
        Decision::Allow | Decision::Modify => {}
    }
    if runs {
        sandbox.tested().await?;
    }
    let confinement = sandbox.built;
    let asked = PolicyInput::of(spec, &asked);
    let workplace = (Arc::new(policies.clone()), Arc::clone(&workspace), redactor);
    let output = execute(workplace, toolset, (&asked, prepared, &ruling), (confinement, cancel)).await?;
    // If the sandbox undid a change or denied a program, the exit code is that of a denial, although the call was
    // allowed.
    let code = match output.error.as_ref() {
        None => exit::PASSED,
        Some(error) if error.denial().is_some() => exit::DENIED,
        Some(_) => exit::FAILED,
    };
    Ok(Answer {
        status: if output.error.is_some() { "error" } else { "success" },
        ruling: Some(denied_later(ruling, &output)),
        output,
        code,
    })
}

/// The ruling, or the denial of an allowed call while it ran: of a program at its exec, or of a change that was undone.
fn denied_later(ruling: Ruling, output: &ToolOutput) -> Ruling {
    let Some(failure) = &output.error else {
        return ruling;
    };
    let Some(code) = failure.denial() else {
        return ruling;
    };
    let denied = output.judged.execs.iter().rev().find_map(|exec| exec.denied.as_ref());
    let by = match denied {
        Some(denial) => Ruling {
            rule: denial.rule.clone(),
            ..Ruling::denied(&denial.code, &denial.reason, &denial.fix)
        },
        None => {
            let cause = cause(&output.undone, code);
            Ruling {
                rule: cause.and_then(|one| one.rule.clone()),
                ..Ruling::denied(code, &failure.message, cause.map_or("", Undone::fix))
            }
        }
    };
    Ruling {
        considered: ruling.considered,
        words: ruling.words,
        ..by
    }
}

fn failure(error: ToolError) -> ToolOutput {
    match error {
        ToolError::Model { kind, message } => ToolOutput::failure(kind, message),
        ToolError::Fatal(message) => ToolOutput::failure("fatal", message),
    }
}

/// The arguments as the tool accepts them, and what the tool says about the call.
fn proposed(
    found: FoundTool<'_>,
    args: &Value,
    workspace: &Arc<Workspace>,
) -> Result<(Value, PreparedCall), ToolError> {
    let args = found.accept(args)?.args;
    let prepared = found.tool.prepare(&args, workspace)?;
    Ok((args, prepared))
}

/// The sandbox of one call.
struct CallSandbox<'a> {
    policies: &'a policy::PolicySet,
    root: &'a Path,
    own: &'a Private,
    built: Option<Confinement>,
    is_tested: bool,
}

impl CallSandbox<'_> {
    async fn build(&mut self) -> Result<&Confinement, Refusal> {
        let built = match self.built.take() {
            Some(built) => built,
            None => {
                let made = bootstrap::confinement(self.policies, self.root, self.own, &[]).await;
                made.map_err(Refusal::Environment)?.0
            }
        };
        Ok(self.built.insert(built))
    }

    /// The sandbox after its self-test, which is made once.
    async fn tested(&mut self) -> Result<&Confinement, Refusal> {
        if !self.is_tested {
            bootstrap::self_test(self.build().await?).await?;
            self.is_tested = true;
        }
        self.build().await
    }
}

/// Runs an allowed call with a temporary directory for long results; programs run in the sandbox.
async fn execute(
    (policies, workspace, redactor): (Arc<policy::PolicySet>, Arc<Workspace>, Arc<Redactor>),
    toolset: &toolset::Toolset,
    (asked, prepared, ruling): (&PolicyInput<'_>, PreparedCall, &Ruling),
    (confinement, cancel): (Option<Confinement>, CancellationToken),
) -> Result<ToolOutput, Refusal> {
    let no_dir = |error| Refusal::Environment(format!("no temporary directory: {error}"));
    let results = tempfile::Builder::new()
        .prefix("overnight-")
        .tempdir()
        .map_err(no_dir)?;
    let web = bootstrap::web(&policies, &redactor, search_of(None));
    let mut scope = bootstrap::scope(results.path(), &workspace, &redactor, web);
    let places = (&policies, &workspace);
    let bounds = exec::bounds(places, confinement.as_ref(), (asked, &prepared.access), ruling);
    scope.confinement = confinement.map_or_else(OnceLock::new, OnceLock::from);
    scope.servers = toolset.servers.clone();
    scope.notices = toolset.notices.clone();
    let scope = Arc::new(scope);
    let context = ToolContext {
        call: CallId::nth(1),
        workspace,
        scope: Arc::clone(&scope),
        cancel,
        deadline: Instant::now() + Duration::from_millis(COMMAND_MS),
        live: LiveSender::none(),
        writes: bounds.writes,
        judge: bounds.judge,
    };
    let fitted = context.clone();
    let done = (prepared.work)(context)
        .await
        .and_then(|output| results::fit(output, &fitted));
    scope.jobs.kill_all().await;
    let ended = scope.jobs.take_ended();
    Ok(ended
        .into_iter()
        .fold(done.unwrap_or_else(failure), background::with_end))
}
