//! Implements `overnight policy …`: check, test, explain, suggest. Calls are prepared by the tools themselves and ruled
//! on by `policy::decide`.

use super::printed;
use crate::base::access::Access;
use crate::base::call::{ToolKind, ToolOrigin};
use crate::base::event::{Event, EventKind, RunStarted};
use crate::base::quote::counted;
use crate::base::ruling::{PolicyInput, Ruling};
use crate::batch::rows;
use crate::cli::args::{ExplainArgs, ImportMode, PolicyCommand, ProblemFormat, TextOrJson};
use crate::cli::policy_sources::{self, Policies};
use crate::cli::problems::{self, Checked};
use crate::cli::refusal::Refusal;
use crate::cli::schemas::SchemaKind;
use crate::cli::{bootstrap, exit, inputs, out, privileged_event, settings};
use crate::diag::{self, Diagnostic, SourceFiles};
use crate::engine::state::RunState;
use crate::journal::{self, run_dirs};
use crate::policy::import as policy_import;
use crate::policy::{self, KnownTools, PolicySet, Uses, cases, describe, explain, lexical_access, lint, suggest};
use crate::report::summary::RunSummary;
use crate::tools::{Registry, SHELL};
use crate::workspace::Workspace;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Runs the command.
///
/// # Errors
/// [`Refusal::Usage`] for a wrong command line; [`Refusal::Invalid`] if a policy or a file of cases is missing or
/// wrong; [`Refusal::Environment`] if a file or a run cannot be read; [`Refusal::Output`] if stdout cannot be written.
pub async fn policy(command: PolicyCommand) -> Result<u8, Refusal> {
    match command {
        PolicyCommand::Check { files, format } => check(&files, format).await,
        PolicyCommand::Test {
            file,
            cases,
            format,
            workspace,
        } => test(&file, &cases, format, &workspace).await,
        PolicyCommand::Explain(args) => explain(&args).await,
        PolicyCommand::Import { file, mode, format } => import(&file, mode, format),
        PolicyCommand::Suggest {
            mut runs,
            last,
            format,
            workspace,
        } => {
            if last {
                runs.push(journal::run_dirs::newest(&workspace)?);
            }
            suggested(&runs, format, &workspace)
        }
    }
}

/// Prints every problem of every file, then what each policy allows.
async fn check(names: &[String], format: ProblemFormat) -> Result<u8, Refusal> {
    let mut all = Vec::new();
    if let Some(meeting) = privileged_event::warning() {
        out::stderr(&format!("warning: {meeting}"));
    }
    for name in names {
        let mut one = Checked {
            name: name.clone(),
            files: SourceFiles::default(),
            problems: Vec::new(),
            refused: None,
            text: String::new(),
        };
        match policy_sources::policies(std::slice::from_ref(name), Path::new("."), None).await {
            Err(Refusal::Invalid(text)) => one.refused = Some(text),
            Err(other) => return Err(other),
            Ok(read) => {
                let (set, mut problems) = read.check(&mut one.files);
                if diag::any_error(&problems) {
                    problems.extend(lint::lint_sound(&set));
                } else {
                    problems.extend(lint::lint(&set));
                    let notes: String = lint::notes(&set).iter().map(|note| format!("{note}\n")).collect();
                    let allowed = describe::describe(&set);
                    one.text = format!("{name}: valid, {}\n{allowed}{notes}", warned(&problems));
                }
                one.problems = problems;
            }
        }
        all.push(one);
    }
    problems::print(&all, format)
}

fn warned(warnings: &[Diagnostic]) -> String {
    match warnings.len() {
        0 => "no warnings".to_owned(),
        count => counted(count, "warning"),
    }
}

async fn test(name: &str, cases_file: &Path, format: ProblemFormat, workspace: &Path) -> Result<u8, Refusal> {
    one_stdin(name, cases_file.as_os_str() == "-")?;
    let judge = Judge::new(name, workspace).await?;
    let mut files = SourceFiles::default();
    let (cases_name, text) = inputs::named_text("--cases", cases_file)?;
    let file = files.add(cases_name.clone(), text);
    if let Some(kind) = diag::FileKind::of(&files, file) {
        let message = format!("this is {}, not a table of cases", kind.what());
        let problem = Diagnostic::error("wrong-kind", files.whole(file).point(), message)
            .help("write `version: 1` and `cases: [{ command: ls, expect: allow }]`; the policy comes first: `overnight policy test POLICY --cases FILE`");
        return Err(Refusal::of_problems(&[problem], &files));
    }
    let table = cases::parse(&files, file).map_err(|problems| Refusal::of_problems(&problems, &files))?;
    let report = cases::run(&table, |case| {
        judge.rule(&case.tool, &case.args).map(|judged| judged.ruling)
    });
    let failed = !report.failed.is_empty();
    let checked = Checked {
        name: cases_name,
        files,
        text: format!("{}\n", report.summary()),
        problems: report.failed,
        refused: None,
    };
    problems::print(std::slice::from_ref(&checked), format)?;
    if failed && format == ProblemFormat::Text {
        printed(&checked.text)?;
    }
    Ok(if failed { exit::FAILED } else { exit::PASSED })
}

/// Refuses a policy on stdin where another option reads stdin too.
fn one_stdin(policy: &str, other: bool) -> Result<(), Refusal> {
    match policy == "-" && other {
        true => Err(inputs::stdin_twice()),
        false => Ok(()),
    }
}

async fn explain(args: &ExplainArgs) -> Result<u8, Refusal> {
    let calls = args.calls.as_deref() == Some("-");
    one_stdin(&args.file, calls || args.args.as_deref() == Some("@-"))?;
    let judge = Judge::new(&args.file, &args.workspace).await?;
    if let Some(file) = &args.calls {
        return judge.lines(&inputs::file_or_stdin("--calls", file)?);
    }
    if let Some(run) = &args.run {
        return judge.differences(run, &args.workspace);
    }
    let (tool, arguments) = match (&args.command, &args.tool, &args.args) {
        (Some(command), _, _) => (SHELL.to_owned(), json!({ "command": command })),
        (None, Some(tool), Some(text)) => (tool.clone(), inputs::json(text, "--args")?),
        _ => {
            return Err(Refusal::Usage(
                "name a call: --command STR, --tool NAME --args JSON, --calls FILE or --run RUN".to_owned(),
            ));
        }
    };
    match judge.rule(&tool, &arguments) {
        Ok(judged) if args.format == TextOrJson::Json => {
            printed(&format!("{}\n", explain::json_object(&judged.title, &judged.ruling)))
        }
        Ok(judged) => printed(&explain::render(&judged.title, &judged.ruling)),
        Err(why) => Err(Refusal::Usage(why)),
    }
}

/// A policy applied to a tree.
struct Judge {
    policies: PolicySet,
    tools: Registry,
    workspace: Arc<Workspace>,
}

/// A call and its ruling.
struct Judged {
    title: String,
    ruling: Ruling,
}

impl Judge {
    async fn new(name: &str, dir: &Path) -> Result<Self, Refusal> {
        let mut files = SourceFiles::default();
        let mut warnings = Vec::new();
        let names = [name.to_owned()];
        let mut policies = settings::rulers(&names, None, dir, &mut files, &mut warnings).await?;
        for warning in warnings {
            out::stderr(&warning);
        }
        let workspace = bootstrap::workspace(dir, &[], None)?;
        settings::guard(&mut policies, &workspace, dir);
        Ok(Self {
            policies,
            tools: bootstrap::registry(true)?,
            workspace: Arc::new(workspace),
        })
    }

    /// Rules on the call as the tool itself prepares it, or by its tool name if the tool is not built in.
    fn rule(&self, tool: &str, args: &Value) -> Result<Judged, String> {
        let Some(found) = self.tools.find(tool) else {
            return self.rule_by_name(tool, args);
        };
        let accepted = found.accept(args).map_err(|error| error.to_string())?;
        let prepared = found
            .tool
            .prepare(&accepted.args, &self.workspace)
            .map_err(|error| error.to_string())?;
        let asked = PolicyInput::of(found.tool.spec(), &accepted.args);
        Ok(Judged {
            ruling: self.decide(&asked, &prepared.access, &Uses::default()),
            title: prepared.title,
        })
    }

    /// Rules on a call of a tool that is not built in.
    fn rule_by_name(&self, tool: &str, args: &Value) -> Result<Judged, String> {
        let (name, kind, origin, access) = lexical_access::by_name(tool, args);
        if origin == ToolOrigin::Discovered {
            return Err(self.tools.unknown(tool).to_string());
        }
        let asked = PolicyInput {
            tool: &name,
            kind,
            origin: &origin,
            args,
        };
        Ok(Judged {
            title: explain::title(&asked),
            ruling: self.decide(&asked, &access, &Uses::default()),
        })
    }

    fn decide(&self, asked: &PolicyInput<'_>, access: &Access, uses: &Uses) -> Ruling {
        self.workspace
            .with_fs_view(|fs_view| policy::decide(&self.policies, asked, access, fs_view, uses))
    }

    /// Writes one output line per input line, in order.
    fn lines(&self, text: &str) -> Result<u8, Refusal> {
        let judge = |line: &str| {
            let call = explain::call_line(line)?;
            self.rule(&call.tool, &call.args)
        };
        let mut all = String::new();
        for line in text.lines() {
            all.push_str(&match judge(line) {
                Ok(judged) => explain::json_line(&judged.ruling),
                Err(why) => explain::json_error(&why),
            });
            all.push('\n');
        }
        printed(&all)
    }

    /// Lists every recorded ruling of a run that this policy would change.
    fn differences(&self, run: &str, workspace: &Path) -> Result<u8, Refusal> {
        let events = journal::read(&run_dirs::locate(run, workspace)?)?.events;
        let uses = std::cell::RefCell::new(Uses::default());
        let ruled = recorded(&events).map(|call| {
            let now = {
                let args = accepted(&self.tools, &call.tool, call.args);
                let asked = PolicyInput {
                    tool: &call.tool,
                    kind: call.kind,
                    origin: &call.origin,
                    args: &args,
                };
                self.decide(&asked, &call.access, &uses.borrow())
            };
            for rule in &now.uses {
                *uses.borrow_mut().counts.entry(rule.clone()).or_default() += 1;
            }
            (call.id, call.title, call.ruling, now)
        });
        let differences = explain::differs(ruled);
        printed(&explain::render_differences(&differences))
    }
}

/// The arguments of a recorded call under their current names, on which a run rules: the journal holds them as the model
/// wrote them. Arguments that the tool refuses stay as they are.
fn accepted(tools: &Registry, tool: &str, args: Value) -> Value {
    let found = tools.find(tool).and_then(|found| found.accept(&args).ok());
    found.map_or(args, |accepted| accepted.args)
}

/// A call of a journal with its recorded ruling.
struct Recorded {
    id: String,
    tool: String,
    kind: ToolKind,
    origin: ToolOrigin,
    args: Value,
    title: String,
    access: Access,
    ruling: Ruling,
}

fn recorded(events: &[Event]) -> impl Iterator<Item = Recorded> {
    let known = KnownTools::builtin();
    let mut state = RunState::default();
    events.iter().filter_map(move |event| {
        state.apply(&event.kind);
        let EventKind::Decided(decided) = &event.kind else {
            return None;
        };
        let call = state.calls.get(&decided.call)?;
        Some(Recorded {
            id: decided.call.to_string(),
            tool: decided.tool.clone(),
            kind: known.kind(&decided.tool).unwrap_or(ToolKind::Other),
            origin: decided.access.origin.clone(),
            args: decided.modified.clone().unwrap_or_else(|| call.call.args.clone()),
            title: decided.title.clone(),
            access: decided.access.clone(),
            ruling: decided.ruling.clone(),
        })
    })
}

/// Prints a policy of another program in the format of this one, and what differs.
fn import(name: &str, mode: ImportMode, format: TextOrJson) -> Result<u8, Refusal> {
    let text = match name {
        "-" => inputs::stdin()?,
        name if Path::new(name).is_file() => inputs::text(Path::new(name))?,
        name => {
            return Err(Refusal::Invalid(format!(
                "{name}:1:1: error[no-file]: there is no file {name}\nhelp: name a policy file of Gemini CLI, or `-` for stdin"
            )));
        }
    };
    let mut files = SourceFiles::default();
    let shown = if name == "-" { "stdin" } else { name };
    let file = files.add(shown, text);
    if let Some(problem) = diag::FileKind::unlike(&files, file, diag::FileKind::GeminiPolicy) {
        return Err(Refusal::of_problems(&[problem], &files));
    }
    let mode = match mode {
        ImportMode::Default => policy_import::ApprovalMode::Default,
        ImportMode::AutoEdit => policy_import::ApprovalMode::AutoEdit,
        ImportMode::Plan => policy_import::ApprovalMode::Plan,
        ImportMode::Yolo => policy_import::ApprovalMode::Yolo,
    };
    let imported =
        policy_import::gemini(&files, file, mode).map_err(|problems| Refusal::of_problems(&problems, &files))?;
    let policy = SchemaKind::Policy.headed(&imported.policy);
    if format == TextOrJson::Json {
        let report = policy_import::report_json(&files, &imported.report);
        return printed(&format!("{}\n", json!({ "policy": policy, "report": report })));
    }
    out::stderr(&policy_import::report_text(&files, &imported.report));
    printed(&policy)
}

/// The directories of the runs that are named, and of the runs of the batches that are named.
fn run_dirs(names: &[String], workspace: &Path) -> Result<Vec<PathBuf>, Refusal> {
    let mut dirs = Vec::new();
    for name in names {
        let rows_path = Path::new(name).join(rows::FILE);
        if !rows_path.is_file() {
            dirs.push(run_dirs::locate(name, workspace)?);
            continue;
        }
        // Runs of the last attempt of each job; a job whose target could not be read has none.
        let mut of_batch = BTreeMap::new();
        rows::each(&rows_path, |row| {
            of_batch.insert(row.job, row.run);
        })?;
        for run in of_batch.into_values().flatten() {
            let run = Path::new(name).join(run);
            dirs.push(run_dirs::locate(&run.to_string_lossy(), workspace)?);
        }
    }
    Ok(dirs)
}

/// The policies of a run as its journal recorded them; `None` if this version cannot read them.
fn recorded_policies(started: &RunStarted) -> Option<PolicySet> {
    let load = |read: &Policies| read.load(&mut SourceFiles::default()).ok().map(|(set, _)| set);
    let mut ours = Policies::default();
    for policy in started.policies.iter().filter(|policy| !policy.narrows) {
        ours.add(Policies::recorded(policy));
    }
    let mut set = load(&ours)?;
    for policy in started.policies.iter().filter(|policy| policy.narrows) {
        set = set.narrowed_by(&load(&Policies::recorded(policy))?);
    }
    Some(set)
}

/// What a run did, and under which policies.
fn recorded_run(events: &[Event], tools: &Registry) -> suggest::RunToCover {
    let mut run = suggest::RunToCover::default();
    for event in events {
        match &event.kind {
            // Without a policy that rules could be added to, everything is suggested.
            EventKind::RunStarted(started) if !started.policies.is_empty() => {
                run.policies = recorded_policies(started);
            }
            EventKind::Executed { execs, .. } => run.shown.execs.extend(execs.iter().cloned()),
            _ => {}
        }
    }
    let unruled = RunSummary::fold(events).unruled;
    run.shown.unruled = unruled.into_iter().map(std::borrow::Cow::into_owned).collect();
    let calls = recorded(events).map(|call| suggest::RecordedCall {
        args: accepted(tools, &call.tool, call.args),
        tool: call.tool,
        kind: call.kind,
        origin: call.origin,
        access: call.access,
        ruling: call.ruling,
    });
    run.calls = calls.collect();
    run
}

fn suggested(runs: &[String], format: TextOrJson, workspace: &Path) -> Result<u8, Refusal> {
    let tools = bootstrap::registry(true)?;
    let (mut found, mut policies) = (suggest::Suggestion::default(), BTreeSet::new());
    for dir in run_dirs(runs, workspace)? {
        let events = journal::read(&dir)?.events;
        // The paths of its commands are those of its own workspace, as long as that is there.
        let mut place = workspace.to_owned();
        for event in &events {
            if let EventKind::RunStarted(started) = &event.kind {
                policies.extend(started.policies.iter().map(|policy| policy.name.clone()));
                let trees = [Some(&started.workspace), started.isolated_from.as_ref()];
                let mut trees = trees.into_iter().flatten().map(PathBuf::from);
                place = trees.find(|tree| tree.is_dir()).unwrap_or(place);
            }
        }
        let run = recorded_run(&events, &tools);
        let tree = bootstrap::workspace(&place, &[], None)?;
        tree.with_fs_view(|fs_view| found.note(&run, fs_view));
    }
    let policy = format!("{}{}", suggest::header(&policies), found.text());
    match format {
        TextOrJson::Text => printed(&policy),
        TextOrJson::Json => printed(&format!("{}\n", json!({ "policy": policy, "policies": policies }))),
    }
}
