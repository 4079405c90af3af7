//! Implements `overnight batch` and `compare`: passes the plan and the flags to the supervisor, and prints the results.

mod call_clock;
mod dry_run;
mod inputs;
mod lists;
mod manifest_source;
mod merge;
mod models;
mod planning;

use super::printed;
use crate::base::quote::{counted, shell_word};
use crate::batch::bundle::{self, BundleSeal, RecordHead};
use crate::batch::job_result::JobDisposition;
use crate::batch::outputs;
use crate::batch::plan::{self, BatchPlan, JobIdentity, PlannedJob};
use crate::batch::progress::BatchProgress;
use crate::batch::record::{self, BatchEvent, BatchRecord, BatchState};
use crate::batch::remote::RemoteBundle;
use crate::batch::result::{self, BatchResult, JobReport, ReportHead};
use crate::batch::script::{self, ScriptSpec, ShardEngine};
use crate::batch::shard::{self, ShardSpec};
use crate::batch::sources::SourceCache;
use crate::batch::supervisor::{self, BatchCall, ReadyJob};
use crate::batch::{BatchError, compare as comparison, rows};
use crate::cli::args::{BatchArgs, BatchCommand, BatchPlanArgs, CompareArgs, FailOn, ScriptEngine, TextOrJson};
use crate::cli::environment;
use crate::cli::refusal::Refusal;
use crate::cli::{exit, github, inputs as texts, named_outputs, out, variables};
use crate::journal::{artefacts, no_follow, run_dirs};
use crate::net::objects::{self, ObjectError, Objects};
use call_clock::CallClock;
use dry_run::{dry_run, refuse_changed, refuse_other};
use grep_matcher::Matcher;
use manifest_source::source;
use models::Models;
use planning::planned;
use std::collections::HashMap;
use std::io::IsTerminal;
use std::path::{Path, PathBuf};

pub use merge::merge;

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
///
/// # Errors
/// [`Refusal`] of a batch that cannot begin or continue.
pub async fn batch(mut args: BatchArgs) -> Result<u8, Refusal> {
    variables::warn_unknown();
    if let Some(command) = &args.command {
        return print_script(command);
    }
    if args.out.is_none() {
        args.out = variables::out_dir()?;
    }
    let mut place = refusal_place(&args)?;
    let ended = attempt(&args, &mut place).await;
    let (Err(refusal), Some(place)) = (&ended, place) else {
        return ended;
    };
    // A mistake in the command line must not change files.
    if matches!(refusal, Refusal::Usage(_)) {
        return ended;
    }
    let likely = manifest_source::likely_name(args.manifest.as_deref().unwrap_or_else(|| Path::new("")));
    let dir = match place {
        RefusalPlace::Named(dir) => dir,
        RefusalPlace::Default => {
            let dir = default_dir(&likely.name);
            let is_used = likely.is_known && dir.join(record::FILE).is_file();
            if !is_used || named_outputs::refuse_link(Path::new("."), &dir).is_err() {
                return ended;
            }
            environment::absolute(&dir)
        }
    };
    let message = environment::redactor().redact(&refusal.to_string()).into_owned();
    if let Err(error) = outputs::write_refused(&dir, &likely.name, likely.is_known, refusal.code(), &message) {
        out::stderr(&format!("error: not written: {error}"));
    }
    ended
}

/// The directory in which a refusal writes its outputs.
enum RefusalPlace {
    /// That of `--out`; absolute.
    Named(PathBuf),
    /// The default directory of the manifest's name, if an earlier call worked there.
    Default,
}

/// Where a refusal writes its outputs; `None` if nowhere.
///
/// # Errors
/// [`Refusal::Usage`]: `--out` contains files that no batch wrote; [`Refusal::Environment`]: its path has a symbolic link
/// of a tree.
fn refusal_place(args: &BatchArgs) -> Result<Option<RefusalPlace>, Refusal> {
    let is_default = !args.dry_run && args.shard.is_none();
    let Some(out) = args.out.as_deref() else {
        return Ok(is_default.then_some(RefusalPlace::Default));
    };
    if objects::is_address(&out.to_string_lossy()) {
        return Ok(None);
    }
    named_outputs::refuse_link(Path::new("."), out)?;
    if let Some(entry) = outputs::foreign_entry(out) {
        let name = out.display();
        return Err(Refusal::Usage(format!(
            "--out {name} contains {entry}, which no batch wrote, and nothing was written there: name a new or empty directory, for \
             example --out {}",
            shell_word(&out.join("overnight-batch").to_string_lossy())
        )));
    }
    Ok((!args.dry_run).then(|| RefusalPlace::Named(environment::absolute(out))))
}

/// Carries out a call. `named`: the directory for the outputs of a refusal; set to `None` when they would replace those
/// of another batch or call.
async fn attempt(args: &BatchArgs, named: &mut Option<RefusalPlace>) -> Result<u8, Refusal> {
    let mut clock = CallClock::start(!args.dry_run);
    let github = step_files(args.github && !args.dry_run)?;
    let source = source(args)?;
    let only = only(args.only.as_deref())?;
    let shard = shard_of(args)?;
    let limits = variables::limits()?;
    let (plan, models) = planned(args, &limits, &source, &mut clock).await?;
    matched(args.only.as_deref(), &only, &plan)?;
    let timings = args.timings.as_deref().map(timings).transpose()?;
    let OutPlace { dir, objects } = out_place(args.out.as_deref(), &plan.name, shard)?;
    let is_default = args.out.is_none() || objects.is_some();
    let store = match objects {
        Some(objects) => Some(clock.unless_ended(RemoteBundle::open(objects)).await?),
        None => None,
    };
    let of_shard = shard.map(|shard| shard::jobs_of(shard, plan.jobs.iter(), timings.as_ref()));
    // Not its path, at which a job may put another program.
    let program = Path::new("/proc/self/exe");
    let sources = SourceCache::new(mirrors(), environment::absolute(&source.base));
    let redactor = environment::redactor();
    let call = BatchCall {
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
        limits: &limits,
        began: clock.began,
    };
    if args.dry_run {
        return dry_run(&call, &models, args, &mut clock.signals).await;
    }
    if is_default {
        run_dirs::ignore_runs(Path::new("."))?;
    }
    named_outputs::refuse_link(Path::new("."), &dir)?;
    no_follow::make_dirs(Path::new("."), &dir)
        .map_err(|error| Refusal::Output(format!("{}: {error}", dir.display())))?;
    let mut record = BatchRecord::open(&dir).inspect_err(|_| *named = None)?;
    outputs::remove_drafts(&dir);
    if let Some(store) = &store {
        let catching_up = catch_up(store, &dir, &plan, &mut record, args.changed);
        clock.unless_ended(catching_up).await?;
    }
    // From here on a call that is ended by a signal has its outputs.
    clock.watch()?;
    let ready = supervisor::ready(&call, &record.state, &mut clock.signals).await;
    refuse_other(&dir, &record.state, &plan.file(), args.changed).inspect_err(|_| *named = None)?;
    can_ask(&models, &ready.0)?;
    *named = None;
    accept(&dir, &plan, &record.state, args.changed)?;
    bundle::open(&dir)?;
    if let Some(store) = &store {
        store.begin(&dir).await?;
    }
    let terminal = std::io::stderr().is_terminal();
    let mut progress = BatchProgress::new(terminal, args.quiet, Box::new(out::stderr));
    let done = supervisor::run(&call, ready, &mut record, &mut progress, &mut clock.signals).await;
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
    let (head, events) = record.head();
    let head = RecordHead {
        head: head.to_owned(),
        events,
    };
    bundle::close(&dir, BundleSeal::of(&plan.manifest, shard_text, &jobs, &done, head))?;
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
        true => {
            let files = github::files()?;
            files.check()?;
            Ok(Some(files))
        }
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

/// The directory of a batch without `--out`, relative to the current directory.
fn default_dir(name: &str) -> PathBuf {
    Path::new(".overnight/batches").join(name)
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
    let default = default_dir(name);
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
    let running = jobs.iter().filter(|job| job.disposition == JobDisposition::Run);
    running.map(|job| job.planned)
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

/// Checks the plan against that of the last invocation, and stores it.
fn accept(dir: &Path, plan: &BatchPlan, state: &BatchState, changed: bool) -> Result<(), Refusal> {
    let now = plan.file();
    refuse_other(dir, state, &now, changed)?;
    let path = dir.join(plan::FILE);
    let text = serde_json::to_string(&now).unwrap_or_default();
    artefacts::replace(&path, text.as_bytes())?;
    Ok(())
}

fn print(result: &BatchResult, dir: &Path, store: Option<&RemoteBundle>, args: &BatchArgs) -> Result<u8, Refusal> {
    let text = match args.format {
        TextOrJson::Json => format!("{}\n", serde_json::to_string(result).unwrap_or_default()),
        TextOrJson::Text if args.quiet => {
            if result.exit_code != exit::PASSED {
                out::stderr(closing_line(result, dir, store.map(RemoteBundle::url)).trim_end());
            }
            String::new()
        }
        TextOrJson::Text => closing_line(result, dir, store.map(RemoteBundle::url)),
    };
    printed(&text)?;
    Ok(result.exit_code)
}

fn closing_line(result: &BatchResult, dir: &Path, store: Option<&str>) -> String {
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
    for job in &result.interrupted {
        text.push_str(&format!("not ended: {}: {}\n", job.job, job.reason));
    }
    text.push_str(&format!("files: {}\n", dir.display()));
    if let Some(store) = store {
        text.push_str(&format!("bundle: {store}\n"));
    }
    text
}

/// `overnight compare`. Returns the exit code.
///
/// # Errors
/// [`Refusal`]: rows are missing or cannot be read, or nothing can be compared for `--fail-on`.
pub fn compare(args: &CompareArgs) -> Result<u8, Refusal> {
    for batch in [&args.a, &args.b] {
        let rows = match batch.is_dir() {
            true => batch.join(rows::FILE),
            false => batch.clone(),
        };
        let help = "name the --out directory of `overnight batch`, or the runs.jsonl in it";
        texts::must_exist("compare", &rows, help)?;
        if rows.extension().is_some_and(|kind| kind == "yaml" || kind == "yml") {
            let name = rows.display();
            return Err(Refusal::Invalid(format!(
                "{name}:1:1: error[wrong-kind]: compare: {name} is no result of a batch\nhelp: {help}"
            )));
        }
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
        TextOrJson::Json => format!("{}\n", serde_json::to_string(&found).unwrap_or_default()),
        TextOrJson::Text => found.to_text(),
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
    // A policy only narrows, and the tasks of the engine start in another environment. The variable of the model is read
    // there, because the manifest may name one.
    for policy in variables::policies(&plan.policy)? {
        add("--policy", &policy);
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
    if let Some(why) = script::problem(engine, &spec) {
        return Err(Refusal::Usage(why));
    }
    printed(&script::script(engine, &spec))
}
