//! Implements `overnight batch`, `merge` and `compare`: reads manifest, recipes and flags, and passes them to the
//! supervisor.

mod inputs;
mod models;

use super::printed;
use crate::base::quote::counted;
use crate::base::secret::Redactor;
use crate::batch::bundle::{self, BundleSeal, RecordHead};
use crate::batch::job_result::JobStanding;
use crate::batch::manifest::{self, BatchManifest, TargetSource, TargetSpec};
use crate::batch::merge::BundlePlace;
use crate::batch::outputs;
use crate::batch::plan::{self, BatchPlan, JobIdentity, PlanFile, PlanFlags, PlannedJob, RecipeReader};
use crate::batch::progress::BatchProgress;
use crate::batch::record::{self, BatchEvent, BatchRecord, BatchState};
use crate::batch::remote::{self, RemoteBundle};
use crate::batch::result::{self, BatchResult, JobReport, ReportHead};
use crate::batch::script::{self, ScriptSpec, ShardEngine};
use crate::batch::shard::{self, ShardSpec};
use crate::batch::sources::SourceCache;
use crate::batch::supervisor::{self, BatchCall, ReadyJob};
use crate::batch::{BatchError, compare as comparison, lines, merge as merging, rows};
use crate::cli::args::{
    BatchArgs, BatchCommand, BatchPlanArgs, CompareArgs, FailOn, ListFormat, MergeArgs, ScriptEngine,
};
use crate::cli::environment;
use crate::cli::refusal::Refusal;
use crate::cli::{exit, github, inputs as texts, named_outputs, out, signals, variables};
use crate::diag::{self, Diagnostic, FileKind, Shape, SourceFiles, Span, Spanned, YamlNode};
use crate::journal::{artefacts, chain_key, place, store as journal_store};
use crate::net::objects::{self, ObjectError, Objects};
use crate::process::unsandboxed;
use crate::provider::open::check_name;
use crate::report::text::line as line_of;
use grep_matcher::Matcher;
use inputs::Inputs;
use models::Models;
use serde_json::json;
use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::io::IsTerminal;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Length limit of the parameters in a line of a dry run.
const MAX_PARAMS: usize = 120;
/// Time limit for a command that lists targets.
const LIST_TIME: Duration = Duration::from_secs(600);

impl From<BatchError> for Refusal {
    fn from(error: BatchError) -> Self {
        match error {
            BatchError::Invalid(text) => Refusal::Invalid(text),
            BatchError::Environment(text) => Refusal::Environment(text),
            BatchError::Output(text) => Refusal::Output(text),
        }
    }
}

/// Runs a batch, or prints a job file. Returns the exit code.
pub async fn batch(args: BatchArgs) -> Result<u8, Refusal> {
    match &args.command {
        Some(command) => print_script(command),
        None => attempt(&args).await,
    }
}

/// A manifest's text and location.
struct Source {
    name: String,
    text: String,
    /// Base of its relative paths.
    base: PathBuf,
    /// Name of a batch whose manifest has none.
    fallback: String,
    /// Whether stdin was read, which is possible only once.
    stdin_read: Cell<bool>,
}

fn source(args: &BatchArgs) -> Result<Source, Refusal> {
    let path = args.manifest.clone().unwrap_or_default();
    if path.as_os_str() == "-" {
        return Ok(Source {
            name: "stdin".to_owned(),
            text: texts::stdin()?,
            base: PathBuf::new(),
            fallback: "stdin".to_owned(),
            stdin_read: Cell::new(true),
        });
    }
    if !path.is_file() {
        let name = path.display();
        return Err(Refusal::Invalid(format!(
            "{name}:1:1: error[no-file]: there is no manifest {name}\nhelp: name a YAML or JSON Lines file, or `-` for stdin"
        )));
    }
    let stem = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
    Ok(Source {
        name: path.display().to_string(),
        text: texts::text(&path)?,
        base: path.parent().unwrap_or_else(|| Path::new("")).to_owned(),
        fallback: if manifest::is_job_name(&stem) {
            stem
        } else {
            "batch".to_owned()
        },
        stdin_read: Cell::new(false),
    })
}

/// Whether the text is JSON Lines, not a manifest: its first line is a complete JSON object without targets, or is
/// meant as one, so that a mistake in it is reported at its place.
fn is_lines(source: &Source) -> bool {
    if source.name.ends_with(".jsonl") {
        return true;
    }
    // The parsers skip this mark too.
    let text = source.text.strip_prefix('\u{feff}').unwrap_or(&source.text);
    let first = text
        .lines()
        .map(str::trim)
        .find(|line| !line.is_empty())
        .unwrap_or_default();
    match serde_json::from_str::<serde_json::Map<String, serde_json::Value>>(first) {
        Ok(object) => !object.contains_key("targets"),
        Err(_) => first.starts_with("{\"") && first.ends_with('}') && !first.contains("\"targets\""),
    }
}

/// The plan from manifest and flags with its models, or all problems in them.
async fn planned(args: &BatchArgs, source: &Source) -> Result<(BatchPlan, Models), Refusal> {
    if source.text.trim().is_empty() {
        return Err(Refusal::Invalid(format!(
            "{name}:1:1: error[no-jobs]: {name} holds no jobs\nhelp: write a manifest with `targets`, or JSON Lines with one job a line, \
             such as {{\"path\": \".\"}}",
            name = source.name
        )));
    }
    let mut files = SourceFiles::new();
    let mut problems = Vec::new();
    let file = files.add(source.name.clone(), source.text.clone());
    let parsed = match is_lines(source) {
        true => {
            let (nodes, found) = lines::parse(&files, file);
            problems.extend(found);
            let start = files.whole(file).point();
            Some(manifest::of_lines(&nodes, &source.fallback, start, &mut problems))
        }
        false => match diag::parse(&files, file) {
            Ok(root) => match FileKind::unlike(&files, file, FileKind::Manifest) {
                Some(other) => {
                    problems.push(other);
                    None
                }
                None => manifest::parse(&files, &root, &source.fallback, &mut problems),
            },
            Err(found) => {
                problems.extend(found);
                None
            }
        },
    };
    let Some(mut parsed) = parsed else {
        return Err(refused(problems, &files));
    };
    expand_lists(&mut parsed, source, &mut files, &mut problems).await?;
    let flags = PlanFlags {
        recipe: args.plan.recipe.clone(),
        policies: args.plan.policy.clone(),
        models: args.plan.model.clone(),
    };
    let mut plan = plan::expand(&parsed, &flags, &source.base, &mut problems);
    if plan.jobs.is_empty() && problems.is_empty() {
        let problem = Diagnostic::error("no-jobs", parsed.head, "the manifest defines no jobs");
        problems.push(problem.help("add a target"));
    }
    for job in &plan.jobs {
        problems.extend(secret_values(job, &environment::redactor()));
        problems.extend(unknown_model(job));
    }
    let (mut reader, mut models) = (Inputs::new(), Models::new()?);
    for at in 0..plan.jobs.len() {
        let Some(job) = plan.jobs.get(at).filter(|job| !job.identity.recipe.is_empty()) else {
            continue;
        };
        match reader.read(job, &mut files).await {
            Ok(mut found) => {
                models.settle(&mut found);
                if let Some(job) = plan.jobs.get_mut(at) {
                    job.inputs = found;
                }
            }
            Err(found) => problems.extend(found),
        }
    }
    match problems.is_empty() {
        true => Ok((plan, models)),
        false => Err(refused(problems, &files)),
    }
}

/// The problem of a model that the manifest names and that cannot exist.
fn unknown_model(job: &PlannedJob) -> Option<Diagnostic> {
    let (model, place) = (job.arguments.model.as_deref()?, job.places.model?);
    let why = check_name(model).err()?;
    let help = "name a model of one of these, or give another one with `--model`";
    Some(Diagnostic::error("unknown-model", place, why).help(help))
}

/// Parameters and input that hold a secret of this environment: the plan and the rows of a batch would hold them too.
fn secret_values(job: &PlannedJob, redactor: &Redactor) -> Vec<Diagnostic> {
    let problem = |span: Span, what: &str, name: &str| {
        Diagnostic::error("secret-value", span, format!("{what} holds the value of {name}")).help(
            "leave it in the environment: a command gets it by `env: { pass }` of the policy, a server by `${NAME}` in the recipe",
        )
    };
    let entries = match job.params.as_ref().map(|node| &node.shape) {
        Some(Shape::Map(entries)) => entries.as_slice(),
        _ => &[],
    };
    let params = entries.iter().filter_map(|entry| {
        let name = redactor
            .find(entry.key.as_bytes())
            .or_else(|| secret_in(redactor, &entry.value.to_json()))?;
        Some(problem(
            entry.value.span,
            &format!("the parameter `{}`", entry.key),
            name,
        ))
    });
    let input = job.input.as_ref().and_then(|input| secret_in(redactor, input));
    let at = job.input_at.first().copied().unwrap_or(job.head);
    params
        .chain(input.map(|name| problem(at, "the input of a job", name)))
        .collect()
}

/// The name of a secret in the texts of a value.
fn secret_in<'a>(redactor: &'a Redactor, value: &serde_json::Value) -> Option<&'a str> {
    match value {
        serde_json::Value::String(text) => redactor.find(text.as_bytes()),
        serde_json::Value::Array(all) => all.iter().find_map(|one| secret_in(redactor, one)),
        serde_json::Value::Object(all) => all
            .iter()
            .find_map(|(key, one)| redactor.find(key.as_bytes()).or_else(|| secret_in(redactor, one))),
        other => redactor.find(other.to_string().as_bytes()),
    }
}

fn refused(mut problems: Vec<Diagnostic>, files: &SourceFiles) -> Refusal {
    diag::diagnostic::sort(&mut problems);
    let mut seen = BTreeSet::new();
    problems.retain(|problem| seen.insert((problem.span, problem.message.clone())));
    // A file that is read for several jobs has a problem once, whichever job found it.
    let mut shown = BTreeSet::new();
    problems.retain(|problem| shown.insert(diag::render(files, problem)));
    Refusal::of_problems(&problems, files)
}

/// Replaces each target that names a list by the lines of the list.
async fn expand_lists(
    parsed: &mut BatchManifest,
    source: &Source,
    files: &mut SourceFiles,
    problems: &mut Vec<Diagnostic>,
) -> Result<(), Refusal> {
    let mut targets = Vec::new();
    for target in std::mem::take(&mut parsed.targets) {
        let (name, text) = match &target.source {
            TargetSource::Path(_) | TargetSource::Repo(_) => {
                targets.push(target);
                continue;
            }
            TargetSource::File(file) => match list_file(file, source) {
                Ok(found) => found,
                Err(problem) => {
                    problems.push(*problem);
                    continue;
                }
            },
            TargetSource::Command(command) => match list_command(command, source).await {
                Ok(found) => found,
                Err(problem) => {
                    problems.push(problem);
                    continue;
                }
            },
        };
        let file = files.add(name, text);
        let (nodes, found) = lines::parse(files, file);
        problems.extend(found);
        for node in &nodes {
            let Some(mut line) = manifest::target(node, false, problems) else {
                continue;
            };
            // Fields of the list's own entry are defaults for its lines.
            line.recipe = line.recipe.or_else(|| target.recipe.clone());
            line.git_ref = line.git_ref.or_else(|| target.git_ref.clone());
            line.params = line.params.or_else(|| target.params.clone());
            line.input = line.input.or_else(|| target.input.clone());
            line.inputs = line.input.is_none().then(|| target.inputs.clone()).flatten();
            line.model = line.model.or_else(|| target.model.clone());
            targets.push(line);
        }
    }
    parsed.targets = Vec::new();
    let mut read = HashMap::new();
    for target in targets {
        parsed
            .targets
            .extend(of_inputs(target, source, &mut read, files, problems));
    }
    Ok(())
}

/// A target for each line of its `inputs`; the target itself if it names none.
fn of_inputs(
    target: TargetSpec,
    source: &Source,
    read: &mut HashMap<String, Vec<YamlNode>>,
    files: &mut SourceFiles,
    problems: &mut Vec<Diagnostic>,
) -> Vec<TargetSpec> {
    let Some(list) = &target.inputs else {
        return vec![target];
    };
    // The lines of a list of targets may all have the inputs of that list.
    let nodes = match read.get(&list.value) {
        Some(nodes) => nodes.clone(),
        None => {
            let (name, text) = match list_file(list, source) {
                Ok(found) => found,
                Err(problem) => {
                    problems.push(*problem);
                    return Vec::new();
                }
            };
            let file = files.add(name, text);
            let (nodes, found) = lines::parse(files, file);
            problems.extend(found);
            read.insert(list.value.clone(), nodes.clone());
            nodes
        }
    };
    let one = |node: YamlNode| TargetSpec {
        head: node.span,
        input: Some(node),
        inputs: None,
        of_list: true,
        ..target.clone()
    };
    nodes.into_iter().map(one).collect()
}

fn list_file(file: &Spanned<String>, source: &Source) -> Result<(String, String), Box<Diagnostic>> {
    let problem = |why: String| {
        let problem = Diagnostic::error("no-file", file.span, why);
        Box::new(problem.help("name a file of JSON Lines, relative to the manifest, or `-` for stdin"))
    };
    if file.value == "-" {
        if source.name == "stdin" {
            return Err(problem("stdin is already used for the manifest".to_owned()));
        }
        if source.stdin_read.replace(true) {
            return Err(problem(
                "stdin is already used for another list of this manifest".to_owned(),
            ));
        }
        let text = texts::stdin().map_err(|refusal| problem(refusal.to_string()))?;
        return Ok(("stdin".to_owned(), text));
    }
    let path = source.base.join(&file.value);
    let text = texts::text(&path).map_err(|refusal| problem(refusal.to_string()))?;
    Ok((path.display().to_string(), text))
}

async fn list_command(command: &Spanned<String>, source: &Source) -> Result<(String, String), Diagnostic> {
    let problem = |why: String| {
        let problem = Diagnostic::error("command-failed", command.span, why);
        problem.help("the command runs in the manifest's directory and prints one JSON object per line")
    };
    let dir = match source.base.as_os_str().is_empty() {
        true => Path::new("."),
        false => &source.base,
    };
    let printed = unsandboxed::own_command_in(dir, &command.value, b"", LIST_TIME)
        .await
        .map_err(problem)?;
    if !printed.ok {
        let how = match printed.code {
            Some(code) => format!("the command failed with exit code {code}"),
            None => "the command was killed by a signal".to_owned(),
        };
        return Err(problem(match printed.stderr.lines().next_back() {
            Some(said) => format!("{how}: {said}"),
            None => how,
        }));
    }
    let text =
        String::from_utf8(printed.stdout).map_err(|_| problem("the output of the command is not UTF-8".to_owned()))?;
    Ok((format!("`{}`", command.value), text))
}

async fn attempt(args: &BatchArgs) -> Result<u8, Refusal> {
    let began = Instant::now();
    let github = step_files(args.github && !args.dry_run)?;
    let source = source(args)?;
    let only = only(args.only.as_deref())?;
    let shard = shard_of(args)?;
    let (plan, models) = planned(args, &source).await?;
    matched(args.only.as_deref(), &only, &plan)?;
    let timings = args.timings.as_deref().map(timings).transpose()?;
    let OutPlace { dir, objects } = out_place(args.out.as_deref(), &plan.name, shard)?;
    let is_default = args.out.is_none() || objects.is_some();
    let store = match objects {
        Some(objects) => Some(RemoteBundle::open(objects).await?),
        None => None,
    };
    let of_shard = shard.map(|shard| shard::jobs_of(shard, plan.jobs.iter(), timings.as_ref()));
    // Not its path, at which a job may put another program.
    let program = Path::new("/proc/self/exe");
    let sources = SourceCache::new(mirrors(), environment::absolute(&source.base));
    let redactor = environment::redactor();
    let (sender, signals) = tokio::sync::mpsc::unbounded_channel();
    let mut call = BatchCall {
        dir: &dir,
        plan: &plan,
        program,
        jobs: jobs_at_once(&args.plan),
        shard,
        of_shard: of_shard.as_ref(),
        only: &only,
        again: args.again,
        sources: &sources,
        store: store.as_ref(),
        redactor: &redactor,
        began,
        signals,
        cancelled: None,
    };
    if args.dry_run {
        return dry_run(&mut call, &models, args).await;
    }
    if is_default {
        journal_store::ignore_runs(Path::new("."))?;
    }
    named_outputs::refuse_link(Path::new("."), &dir)?;
    place::make_dirs(Path::new("."), &dir).map_err(|error| Refusal::Output(format!("{}: {error}", dir.display())))?;
    let mut record = BatchRecord::open(&dir)?;
    outputs::remove_drafts(&dir);
    if let Some(store) = &store {
        catch_up(store, &dir, &plan, &mut record, args.changed).await?;
    }
    // From here on a call that is ended by a signal has its outputs.
    signals::all(sender)?;
    let jobs = supervisor::ready(&mut call, &record.state).await;
    can_ask(&models, &jobs)?;
    accept(&dir, &plan, &record.state, args.changed)?;
    bundle::open(&dir)?;
    if let Some(store) = &store {
        store.begin(&dir).await?;
    }
    let terminal = std::io::stderr().is_terminal();
    let mut progress = BatchProgress::new(terminal, args.quiet, Box::new(out::stderr));
    let done = supervisor::run(call, jobs, &mut record, &mut progress).await;
    progress.finish();
    let done = done?;
    let shard_text = shard.map(|shard| shard.to_string());
    let head = ReportHead {
        name: &plan.name,
        manifest: &plan.manifest,
        shard: shard_text.as_deref(),
    };
    let jobs = result::job_reports(&done);
    let result = BatchResult::of(&head, &jobs, &done);
    outputs::write(&dir, &head, &jobs, &result)?;
    record.append(record::BatchEvent::CallEnded {
        exit_code: result.exit_code,
        at: jiff::Timestamp::now(),
    })?;
    record.sync()?;
    seal(&dir, &record, &result, &jobs)?;
    if let Some(store) = &store {
        store.end(&dir).await?;
    }
    if let Some(github) = github {
        publish(&github, &result, &dir, &jobs)?;
    }
    print(&result, &dir, store.as_ref(), args)
}

/// Downloads results that this directory lacks, and uploads those that the store lacks.
async fn catch_up(
    store: &RemoteBundle,
    dir: &Path,
    plan: &BatchPlan,
    record: &mut BatchRecord,
    changed: bool,
) -> Result<(), Refusal> {
    if let Some(old) = store.plan().await? {
        refuse_changed(store.url(), &old.manifest, Some(&old), &plan.file(), changed)?;
    }
    store.bind(dir, record.head().1 > 0)?;
    let lacking = store.lacking(dir).await?;
    let last: HashMap<String, usize> = lacking
        .here
        .iter()
        .enumerate()
        .map(|(at, row)| (row.job.clone(), at))
        .collect();
    for (at, row) in lacking.here.into_iter().enumerate() {
        if last.get(&row.job) == Some(&at) {
            store.take_patch(dir, &row).await?;
        }
        record.append(BatchEvent::JobEnded { row: Box::new(row) })?;
    }
    for row in lacking.there {
        store.send_again(dir, &row).await?;
    }
    record.sync()?;
    Ok(())
}

fn step_files(asked: bool) -> Result<Option<github::StepFiles>, Refusal> {
    match variables::github(asked)? {
        true => github::files().map(Some),
        false => Ok(None),
    }
}

/// Writes the outputs and summary of a step of GitHub Actions for a batch.
fn publish(step: &github::StepFiles, result: &BatchResult, dir: &Path, jobs: &[JobReport]) -> Result<(), Refusal> {
    let file = |name: &str| {
        let path = dir.join(name);
        match path.exists() {
            true => path.display().to_string(),
            false => String::new(),
        }
    };
    let passed = |job: &&JobReport| matches!(job.state.as_str(), "passed" | "no_change");
    let values = [
        ("verdict", result.verdict.clone()),
        ("exit-code", result.exit_code.to_string()),
        ("directory", dir.display().to_string()),
        ("jobs", result.jobs.total.to_string()),
        ("passed", jobs.iter().filter(passed).count().to_string()),
        ("not-run", result.jobs.not_run.to_string()),
        ("result", file("result.json")),
        ("runs", file("runs.jsonl")),
        ("summary", file("summary.md")),
        ("junit", file("junit.xml")),
        ("report", file("report.html")),
        ("patches", file("patches")),
        ("cost", format!("{:.6}", result.cost)),
        ("turns", result.usage.turns.to_string()),
        ("tokens", result.usage.tokens.to_string()),
    ];
    let bad: Vec<github::JobNotice<'_>> = jobs
        .iter()
        .filter(|job| !passed(job) && job.state != "skipped")
        .map(|job| github::JobNotice {
            job: &job.job,
            state: &job.state,
            message: &job.message,
        })
        .collect();
    let summary = std::fs::read_to_string(dir.join("summary.md")).unwrap_or_default();
    step.publish(&values, &summary, &github::of_jobs(&bad))
}

/// Where a batch works, and where its bundle goes.
struct OutPlace {
    /// Absolute.
    dir: PathBuf,
    /// `None` when the directory is the bundle.
    objects: Option<Objects>,
}

/// A batch with an object store works in the default directory; shards in directories of their own, so that several can
/// work on one machine.
fn out_place(out: Option<&Path>, name: &str, shard: Option<ShardSpec>) -> Result<OutPlace, Refusal> {
    let default = Path::new(".overnight/batches").join(name);
    let Some(out) = out else {
        let dir = environment::absolute(&default);
        return Ok(OutPlace { dir, objects: None });
    };
    let Some(objects) = address(out)? else {
        let dir = environment::absolute(out);
        return Ok(OutPlace { dir, objects: None });
    };
    let Some(shard) = shard else {
        let dir = environment::absolute(&default);
        return Ok(OutPlace {
            dir,
            objects: Some(objects),
        });
    };
    let place = format!("shards/{}-of-{}", shard.index, shard.total);
    Ok(OutPlace {
        dir: environment::absolute(&default.join(&place)),
        objects: Some(objects.below(&place)),
    })
}

/// The object store that an argument names; `None` for a path.
fn address(argument: &Path) -> Result<Option<Objects>, Refusal> {
    let text = argument.to_string_lossy();
    if !objects::is_address(&text) {
        return Ok(None);
    }
    let opened = Objects::open(&text, &environment::variables());
    opened.map(Some).map_err(|error| match error {
        ObjectError::Address(why) => Refusal::Usage(why),
        ObjectError::Failed(why) => Refusal::Environment(why),
    })
}

fn jobs_at_once(args: &BatchPlanArgs) -> usize {
    let cpus = || std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    args.jobs.map_or_else(cpus, |jobs| jobs as usize)
}

/// Directory of repository mirrors.
fn mirrors() -> PathBuf {
    let cache = environment::variable("XDG_CACHE_HOME")
        .map(PathBuf::from)
        .filter(|path| path.is_absolute());
    let home =
        || PathBuf::from(environment::variable("HOME").unwrap_or_else(|| "/var/cache".to_owned())).join(".cache");
    cache.unwrap_or_else(home).join("overnight/mirrors")
}

/// Whether a job is selected.
type JobFilter = Box<dyn Fn(&JobIdentity) -> bool>;
/// Limit of jobs that a message names.
const NAMED: usize = 5;

/// The filter of `--only`. The digits at the end of a job's name are not searched, because they contain every letter from
/// a to f; but the name with them, or they alone, select that job.
fn only(pattern: Option<&str>) -> Result<JobFilter, Refusal> {
    let Some(pattern) = pattern else {
        return Ok(Box::new(|_| true));
    };
    let matcher = grep_regex::RegexMatcher::new(pattern).map_err(|error| Refusal::Usage(format!("--only: {error}")))?;
    let pattern = pattern.to_owned();
    Ok(Box::new(move |identity| {
        if pattern.contains('=') {
            let is_one = |text: &String| matcher.is_match(text.as_bytes()).unwrap_or(false);
            return identity.param_texts().iter().any(is_one);
        }
        let [before, digits, _] = identity.name_parts();
        let found = matcher.find(identity.job.as_bytes()).ok().flatten();
        matcher.is_match(identity.readable_name().as_bytes()).unwrap_or(false)
            || found.is_some_and(|found| found.start() < before.len())
            || digits == pattern
    }))
}

/// Refuses an `--only` that selects none of the manifest's jobs.
fn matched(pattern: Option<&str>, only: &JobFilter, plan: &BatchPlan) -> Result<(), Refusal> {
    let Some(pattern) = pattern else { return Ok(()) };
    if plan.jobs.iter().any(|job| only(&job.identity)) {
        return Ok(());
    }
    let of_params = pattern.contains('=');
    let texts = plan.jobs.iter().flat_map(|job| match of_params {
        true => job.identity.param_texts(),
        false => vec![job.identity.readable_name()],
    });
    let mut names: Vec<String> = Vec::new();
    for text in texts {
        if names.len() < NAMED && !names.contains(&text) {
            names.push(text);
        }
    }
    let known = match (of_params, names.is_empty()) {
        (true, true) => "no job has a parameter".to_owned(),
        (true, false) => format!("parameters are for example {}", names.join(", ")),
        (false, _) => format!("names are for example {}", names.join(", ")),
    };
    Err(Refusal::Usage(format!(
        "--only {pattern}: it selects none of the {} jobs of this manifest; {known}; `overnight batch MANIFEST --dry-run` lists all",
        plan.jobs.len()
    )))
}

/// Whether all jobs that would run can ask their models.
fn can_ask(models: &Models, jobs: &[ReadyJob<'_>]) -> Result<(), Refusal> {
    models.check(to_run(jobs), "no job was started")
}

fn to_run<'a>(jobs: &'a [ReadyJob<'a>]) -> impl Iterator<Item = &'a PlannedJob> {
    let running = jobs.iter().filter(|job| job.standing == JobStanding::Run);
    running.map(|job| job.planned)
}

/// As [`can_ask`], for a dry run: what only this machine lacks, such as a key, is a warning.
fn foresee_models(models: &Models, jobs: &[ReadyJob<'_>]) -> Result<(), Refusal> {
    match models.check(to_run(jobs), "no job would be started here") {
        Err(Refusal::Environment(text)) => {
            out::stderr(&format!("warning[unusable-model]: {}", text.replace('\n', "; ")));
            Ok(())
        }
        checked => checked,
    }
}

fn shard_of(args: &BatchArgs) -> Result<Option<ShardSpec>, Refusal> {
    let Some(text) = &args.shard else { return Ok(None) };
    if text != "auto" {
        return ShardSpec::parse(text).map(Some).map_err(Refusal::Usage);
    }
    let (shard, how) = ShardSpec::auto(&environment::variable).map_err(Refusal::Usage)?;
    if !args.quiet {
        out::stderr(&format!("overnight: {how}"));
    }
    Ok(Some(shard))
}

/// Duration in seconds of each job's last run.
fn timings(path: &Path) -> Result<HashMap<String, f64>, Refusal> {
    texts::must_exist("--timings", path, "name the runs.jsonl of an earlier batch")?;
    let mut timings = HashMap::new();
    let torn = rows::each(path, |row| {
        timings.insert(row.job, row.seconds);
    })?;
    if torn {
        let name = path.display();
        out::stderr(&format!(
            "overnight: --timings {name}: the last line is cut and does not count"
        ));
    }
    Ok(timings)
}

/// Lists the jobs and whether each would run, and refuses what the real call refuses; a model that cannot be asked on
/// this machine is a warning. Runs none and writes nothing.
async fn dry_run(call: &mut BatchCall<'_>, models: &Models, args: &BatchArgs) -> Result<u8, Refusal> {
    let mut state = BatchState::default();
    let key = chain_key::key()?;
    record::refuse_tracked(call.dir, key)?;
    state.read(&call.dir.join(record::FILE), key)?;
    let now = call.plan.file();
    if let Some(store) = call.store {
        if let Some(old) = store.plan().await? {
            refuse_changed(store.url(), &old.manifest, Some(&old), &now, args.changed)?;
        }
        for row in store.lacking(call.dir).await?.here {
            state.learn(row);
        }
    }
    refuse_other(call.dir, &state, &now, args.changed)?;
    let jobs = supervisor::ready(call, &state).await;
    let rows: Vec<serde_json::Value> = jobs
        .iter()
        .map(|job| {
            let identity = &job.planned.identity;
            let mut row = json!({
                "job": identity.job,
                "digest": job.digest,
                "recipe": identity.recipe,
                "target": identity.target,
                "ref": identity.git_ref,
                "params": identity.params,
                "model": identity.model.as_deref().or(job.planned.inputs.model.as_deref()),
                "trial": identity.trial,
                "state": job.standing.as_str(),
            });
            if let (Err(why), JobStanding::Run, Some(row)) = (&job.source, job.standing, row.as_object_mut()) {
                row.insert("problem".to_owned(), json!(why));
            }
            row
        })
        .collect();
    if args.format == ListFormat::Json {
        // Only one object is printed: a refusal has its own.
        foresee_models(models, &jobs)?;
        return printed(&format!("{}\n", json!({ "jobs": rows })));
    }
    let mut text = String::new();
    for job in &jobs {
        let identity = &job.planned.identity;
        let model = identity.model.as_deref().or(job.planned.inputs.model.as_deref());
        text.push_str(&format!(
            "{:<10} {}  {}  {}",
            job.standing.as_str(),
            identity.job,
            identity.target,
            model.unwrap_or("(no model)")
        ));
        let params = identity.param_texts();
        if !params.is_empty() {
            text.push_str(&format!("  {}", line_of(&params.join(" "), MAX_PARAMS)));
        }
        if let (Err(why), JobStanding::Run) = (&job.source, job.standing) {
            text.push_str(&format!("  problem: {why}"));
        }
        text.push('\n');
    }
    let count = |standing| jobs.iter().filter(|job| job.standing == standing).count();
    text.push_str(&format!(
        "{}: {} to run, {} up to date, {} skipped\n",
        counted(jobs.len(), "job"),
        count(JobStanding::Run),
        count(JobStanding::UpToDate),
        count(JobStanding::Skipped)
    ));
    printed(&text)?;
    foresee_models(models, &jobs)?;
    Ok(exit::PASSED)
}

/// Checks the plan against that of the last invocation, and stores it.
fn accept(dir: &Path, plan: &BatchPlan, state: &BatchState, changed: bool) -> Result<(), Refusal> {
    let now = plan.file();
    refuse_other(dir, state, &now, changed)?;
    let path = dir.join(plan::FILE);
    let text = serde_json::to_string(&now).unwrap_or_default();
    artefacts::replace(&path, text.as_bytes())?;
    Ok(())
}

/// Refuses the directory of a batch with other jobs, unless `changed` accepts it.
fn refuse_other(dir: &Path, state: &BatchState, now: &PlanFile, changed: bool) -> Result<(), Refusal> {
    let Some(known) = &state.manifest else { return Ok(()) };
    let old: Option<PlanFile> = std::fs::read(dir.join(plan::FILE))
        .ok()
        .and_then(|text| serde_json::from_slice(&text).ok());
    refuse_changed(&dir.display().to_string(), known, old.as_ref(), now, changed)
}

/// Refuses a manifest that defines other jobs than the one for which `place` was created, unless `changed` accepts it.
fn refuse_changed(
    place: &str,
    known: &str,
    old: Option<&PlanFile>,
    now: &PlanFile,
    changed: bool,
) -> Result<(), Refusal> {
    if known == now.manifest || changed {
        return Ok(());
    }
    let mut text = format!(
        "{place}:1:1: error[changed-manifest]: the manifest defines other jobs than the one for which this directory was created\n"
    );
    for line in old.map(|old| old.changes(now)).unwrap_or_default() {
        text.push_str(&format!("  {line}\n"));
    }
    text.push_str("help: accept it with --changed (results of jobs with the same name and digest are kept), or name another --out");
    Err(Refusal::Invalid(text))
}

fn seal(dir: &Path, record: &BatchRecord, result: &BatchResult, jobs: &[JobReport]) -> Result<(), Refusal> {
    let (head, events) = record.head();
    let not_run = jobs.iter().filter(|job| job.state == "not_run");
    bundle::close(
        dir,
        BundleSeal {
            schema: bundle::SCHEMA.to_owned(),
            manifest: result.manifest.clone(),
            shard: result.shard.clone(),
            jobs: jobs.iter().map(|job| job.job.clone()).collect(),
            not_run: not_run.map(|job| (job.job.clone(), job.message.clone())).collect(),
            record: RecordHead {
                head: head.to_owned(),
                events,
            },
            files: BTreeMap::new(),
            seal: None,
        },
    )?;
    Ok(())
}

fn print(result: &BatchResult, dir: &Path, store: Option<&RemoteBundle>, args: &BatchArgs) -> Result<u8, Refusal> {
    let text = match args.format {
        ListFormat::Json => format!("{}\n", serde_json::to_string(result).unwrap_or_default()),
        ListFormat::Text if args.quiet && result.exit_code == exit::PASSED => String::new(),
        ListFormat::Text => told(result, dir, store.map(RemoteBundle::url)),
    };
    printed(&text)?;
    Ok(result.exit_code)
}

fn told(result: &BatchResult, dir: &Path, store: Option<&str>) -> String {
    let counts: Vec<String> = result
        .jobs
        .verdicts
        .iter()
        .map(|(word, n)| format!("{n} {}", word.replace('_', " ")))
        .collect();
    let mut text = format!(
        "{}: {}; {}: {} run, {} up to date, {} not run",
        result.name,
        result.verdict.replace('_', " "),
        counted(result.jobs.total, "job"),
        result.jobs.run,
        result.jobs.up_to_date,
        result.jobs.not_run
    );
    if result.jobs.skipped > 0 {
        text.push_str(&format!(", {} skipped", result.jobs.skipped));
    }
    if !counts.is_empty() {
        text.push_str(&format!(" ({})", counts.join(", ")));
    }
    text.push_str(&format!("; ${:.4}\n", result.cost));
    if let Some(reason) = &result.stopped {
        text.push_str(&format!("stopped: {reason}\n"));
    }
    for job in &result.not_run {
        text.push_str(&format!("not run: {}: {}\n", job.job, job.reason));
    }
    text.push_str(&format!("files: {}\n", dir.display()));
    if let Some(store) = store {
        text.push_str(&format!("bundle: {store}\n"));
    }
    text
}

/// `overnight merge`. Returns the exit code.
pub async fn merge(args: &MergeArgs) -> Result<u8, Refusal> {
    let github = step_files(args.github)?;
    named_outputs::refuse_link(Path::new("."), &args.out)?;
    let _held = merging::hold(&args.out)?;
    let places = bundle_places(args).await?;
    let merged = merging::merge(&places, &args.out, args.changed)?;
    for line in &merged.missing {
        out::stderr(&format!("overnight: {line}"));
    }
    if merged.left_out > 0 {
        out::stderr(&format!(
            "overnight: {} that the manifest does not define any more, left out",
            counted(merged.left_out, "job")
        ));
    }
    if let Some(first) = merged.outside.first() {
        out::stderr(&format!(
            "overnight: {} not below {}, for example {first}, so `overnight deliver` refuses this result; to deliver it, name a \
             directory above the bundles as --out",
            counted(merged.outside.len(), "bundle"),
            args.out.display()
        ));
    }
    let text = match args.format {
        ListFormat::Json => format!("{}\n", serde_json::to_string(&merged.result).unwrap_or_default()),
        ListFormat::Text => told(&merged.result, &args.out, None),
    };
    if let Some(github) = github {
        publish(&github, &merged.result, &args.out, &merged.jobs)?;
    }
    printed(&text)?;
    Ok(merged.result.exit_code)
}

/// The directories of all bundles. Those of object stores are downloaded into the output directory, so that the merged
/// rows can refer to their run directories.
async fn bundle_places(args: &MergeArgs) -> Result<Vec<BundlePlace>, Refusal> {
    let (mut places, mut remote) = (Vec::new(), Vec::new());
    for argument in &args.bundles {
        match address(argument)? {
            Some(objects) => remote.extend(remote::bundles(&objects).await?),
            None => places.push(BundlePlace {
                dir: argument.clone(),
                shown: argument.display().to_string(),
            }),
        }
    }
    if remote.is_empty() {
        return Ok(places);
    }
    merging::fits(&args.out, None)?;
    let downloads = args.out.join(merging::DOWNLOADS);
    let (mut names, mut problems) = (BTreeSet::new(), Vec::new());
    for objects in remote {
        let last = objects.url().rsplit('/').next().unwrap_or_default();
        let plain = if manifest::is_job_name(last) { last } else { "bundle" };
        let mut name = plain.to_owned();
        let mut number = 2;
        while !names.insert(name.clone()) {
            name = format!("{plain}.{number}");
            number += 1;
        }
        let dir = downloads.join(name);
        match remote::download(&objects, &dir).await {
            Ok(()) => {}
            Err(BatchError::Invalid(text)) => problems.push(text),
            Err(other) => return Err(other.into()),
        }
        places.push(BundlePlace {
            dir,
            shown: objects.url().to_owned(),
        });
    }
    match problems.is_empty() {
        true => Ok(places),
        false => Err(Refusal::Invalid(problems.join("\n"))),
    }
}

/// `overnight compare`. Returns the exit code.
pub fn compare(args: &CompareArgs) -> Result<u8, Refusal> {
    for batch in [&args.a, &args.b] {
        let rows = match batch.is_dir() {
            true => batch.join(rows::FILE),
            false => batch.clone(),
        };
        let help = "name the --out directory of `overnight batch`, or the runs.jsonl in it";
        texts::must_exist("compare", &rows, help)?;
    }
    let (found, notes) = comparison::compare(&args.a, &args.b)?;
    if args.fail_on.is_some() && found.is_empty() {
        return Err(Refusal::Invalid(format!(
            "no job of {} has a result and a counterpart with a result in {}, so nothing can be compared for --fail-on: name two \
             batches of the same jobs that have ended",
            args.a.display(),
            args.b.display()
        )));
    }
    for note in notes {
        out::stderr(&format!("overnight: {note}"));
    }
    printed(&match args.format {
        ListFormat::Json => format!("{}\n", serde_json::to_string(&found).unwrap_or_default()),
        ListFormat::Text => found.to_text(),
    })?;
    let broken = args.fail_on == Some(FailOn::Broken) && !found.broken.is_empty();
    Ok(if broken { exit::FAILED } else { exit::PASSED })
}

fn print_script(command: &BatchCommand) -> Result<u8, Refusal> {
    let BatchCommand::Script {
        engine,
        shards,
        manifest,
        out,
        plan,
    } = command;
    let engine = match engine {
        ScriptEngine::Slurm => ShardEngine::Slurm,
        ScriptEngine::Kubernetes => ShardEngine::Kubernetes,
        ScriptEngine::GnuParallel => ShardEngine::GnuParallel,
        ScriptEngine::Gitlab => ShardEngine::Gitlab,
        ScriptEngine::Github => ShardEngine::Github,
        ScriptEngine::Buildkite => ShardEngine::Buildkite,
        ScriptEngine::Hyperqueue => ShardEngine::Hyperqueue,
    };
    if objects::is_address(out) {
        return Err(Refusal::Usage(
            "--out of a job file is a directory for its logs and the merged result: name one, and in the file write the \
             address as --out of `overnight batch` and as the argument of `overnight merge`"
                .to_owned(),
        ));
    }
    if let Some(most) = engine.most_shards()
        && *shards > most
    {
        return Err(Refusal::Usage(format!(
            "--shards {shards}: {} takes at most {most} in one file; a shard can have many jobs",
            engine.as_str()
        )));
    }
    let mut more = Vec::new();
    let mut add = |flag: &str, value: &str| more.extend([flag.to_owned(), value.to_owned()]);
    if let Some(recipe) = &plan.recipe {
        add("--recipe", recipe);
    }
    for policy in &plan.policy {
        add("--policy", policy);
    }
    for model in &plan.model {
        add("--model", model);
    }
    if let Some(jobs) = plan.jobs {
        add("--jobs", &jobs.to_string());
    }
    let spec = ScriptSpec {
        manifest: manifest.clone(),
        out: out.trim_end_matches('/').to_owned(),
        shards: *shards,
        more,
    };
    printed(&script::script(engine, &spec))
}
