//! Implements `overnight deliver`: selects the runs, their source and the destination. The delivery itself is in
//! `deliver`.

use crate::base::quote::{counted, first_names};
use crate::base::secret::Redactor;
use crate::batch::bundle::{self, BundleSeal, JobLeft};
use crate::batch::job_result::SKIPPED;
use crate::batch::merge;
use crate::batch::plan::JobIdentity;
use crate::batch::record::{self, BatchEvent};
use crate::batch::sealed_file::sealed_file;
use crate::cli::args::{DeliverArgs, DeliverTo, LineFormat};
use crate::cli::environment;
use crate::cli::inputs;
use crate::cli::named_outputs::{self, NamedOutput, ReadFile};
use crate::cli::outputs;
use crate::cli::policy_sources::{self, Policies};
use crate::cli::refusal::Refusal;
use crate::cli::{excluded_trees, exit, out, settings, signals, variables, verify};
use crate::deliver::address::RemoteAddress;
use crate::deliver::batch::{self, BatchRun, JobOfPlan, JobPlace, JobSource};
use crate::deliver::branch_claims::{self, BranchClaims};
use crate::deliver::deliverable::Deliverable;
use crate::deliver::flow::{self, DeliverSettings};
use crate::deliver::message::{self, Wording};
use crate::deliver::patch_policies::PatchPolicies;
use crate::deliver::wait_budget::WaitBudget;
use crate::deliver::{DeliverFault, DeliverOutcome, DeliverStop, DeliverTarget, Delivered, local};
use crate::diag::SourceFiles;
use crate::journal::deliveries::DeliveryLog;
use crate::journal::{self, JournalError, chain_key, run_dirs, state_dir};
use crate::policy::PolicySet;
use crate::report::export::ReportFile;
use crate::report::result::OutputFacts;
use crate::report::summary::RunSummary;
use crate::workspace::patch::{self, Repository};
use secrecy::{ExposeSecret, SecretString};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::time::Duration;

/// Limit of names in the line about jobs that are left out.
const NAMED: usize = 10;

/// The minimum time between two changing requests to a forge, without `--pace`.
const PACE: Duration = Duration::from_secs(1);

impl From<DeliverTo> for DeliverTarget {
    fn from(to: DeliverTo) -> Self {
        match to {
            DeliverTo::Branch => Self::Branch,
            DeliverTo::Push => Self::Push,
            DeliverTo::Github => Self::Github,
            DeliverTo::Gitlab => Self::Gitlab,
            DeliverTo::Forgejo => Self::Forgejo,
            DeliverTo::Mbox => Self::Mbox,
        }
    }
}

/// One run to deliver, with the result that its batch recorded.
struct RequestedRun {
    /// Directory of the journal.
    home: PathBuf,
    of_batch: Option<BatchRun>,
    /// The name of the batch's manifest; empty if it is not known.
    manifest: String,
}

/// What [`Call::remote`] calls the address that a job's target names.
const JOBS_TARGET: &str = "the job's target";

/// Settings that all runs of one invocation share.
struct Call<'a> {
    args: &'a DeliverArgs,
    target: DeliverTarget,
    vars: Vec<(String, String)>,
    wait_budget: WaitBudget,
    /// Policies from `--policy`, if given. They replace the recorded ones.
    policies: Option<PolicySet>,
    /// The policy of OVERNIGHT_POLICY, without `--policy`. It applies in addition to the recorded ones: the variable is set
    /// for a whole pipeline, and must not take away the limits that a run was given.
    ceiling: Option<PolicySet>,
    token: Option<SecretString>,
    claims: BranchClaims,
    /// Id of the run that is being delivered.
    current: Mutex<String>,
}

/// Where a delivery takes its commits from, and where it sends them.
#[derive(Default)]
struct Endpoints {
    repository: Option<Repository>,
    remote: Option<RemoteAddress>,
    /// The base URL of the forge's API, and the token.
    access: Option<(String, SecretString)>,
}

/// Why a delivery did not begin.
enum NotBegun {
    /// It concerns one run; the others are delivered.
    Run(DeliverStop),
    /// It concerns all runs: the command ends.
    All(Refusal),
}

impl From<DeliverStop> for NotBegun {
    fn from(stop: DeliverStop) -> Self {
        Self::Run(stop)
    }
}

/// Delivers one run or the runs of a batch, and prints a line for each. Returns the exit code.
///
/// # Errors
/// [`Refusal`] of what concerns all runs; what concerns one is in its line.
pub async fn deliver(args: &DeliverArgs) -> Result<u8, Refusal> {
    if args.quiet {
        out::hold();
    }
    variables::warn_unknown();
    let target = DeliverTarget::from(args.to);
    let batch = batch_of(args)?;
    if batch.is_some() && args.out.is_some() {
        return Err(Refusal::Usage(
            "--out names the file of one run, and this is a batch".to_owned(),
        ));
    }
    if args.out.is_some() && target != DeliverTarget::Mbox {
        return Err(Refusal::Usage("--out is only for `--to mbox`".to_owned()));
    }
    if args.out.as_deref() == Some(Path::new("-")) {
        return Err(Refusal::Usage(
            "--out -: write /dev/stdout for the standard output, or ./- for a file of this name".to_owned(),
        ));
    }
    if let Some(out) = &args.out {
        named_outputs::refuse_link(args.repo.as_deref().unwrap_or(Path::new(".")), out)?;
    }
    if let Some(path) = &args.out {
        let out = [NamedOutput {
            flag: "--out",
            kind: ReportFile::Mbox,
            path,
        }];
        let here = args.repo.as_deref().unwrap_or(Path::new("."));
        let policies = args.policy.iter().filter_map(|name| settings::own_file(name, here));
        let read: Vec<ReadFile> = policies.map(|file| ReadFile::new("--policy", file)).collect();
        named_outputs::refuse_read(&out, &read)?;
        named_outputs::refuse_tracked(&out).await?;
    }
    warn_of_unused(args, target);
    let token = target
        .token_variables()
        .iter()
        .find_map(|name| environment::variable(name));
    // A dry run asks the forge only if it has a token.
    if target.is_forge() && token.is_none() && !args.dry_run {
        let names = target.token_variables().join(" or ");
        return Err(Refusal::Environment(format!(
            "no token for {}: set {names}",
            target.as_str()
        )));
    }
    // The repository around a directory that is not there is not the one that was meant.
    if let Some(named) = args.repo.as_ref().filter(|named| !named.is_dir()) {
        return Err(Refusal::Environment(format!(
            "--repo: {} is not a directory",
            named.display()
        )));
    }
    let place = args.repo.clone().unwrap_or_else(|| PathBuf::from("."));
    let named = variables::policies(&args.policy)?;
    let named = match named.is_empty() {
        true => None,
        false => Some(loaded(&policy_sources::policies(&named, &place, None).await?)?),
    };
    let (policies, ceiling) = match args.policy.is_empty() {
        true => (None, named),
        false => (named, None),
    };
    let call = Call {
        args,
        target,
        vars: environment::variables(),
        wait_budget: WaitBudget::new(
            Duration::from_millis(args.max_wall),
            args.pace.map_or(PACE, Duration::from_millis),
        ),
        policies,
        ceiling,
        token: token.map(SecretString::from),
        claims: BranchClaims::default(),
        current: Mutex::default(),
    };
    let mut caught = signals::first()?;
    let mut ended_by: Option<i32> = None;
    let (runs, dir) = match batch {
        Some(mut batch) => {
            if args.branch.is_none() {
                tokio::select! {
                    () = call.disambiguate_branches(&mut batch) => {}
                    Some(number) = caught.recv() => ended_by = Some(number),
                }
            }
            (batch.runs, Some(batch.dir))
        }
        None => {
            let name = match &args.run {
                Some(name) => name.clone(),
                None => run_dirs::newest(&place)?,
            };
            let home = run_dirs::locate(&name, &place)?;
            let one = RequestedRun {
                home,
                of_batch: None,
                manifest: String::new(),
            };
            (vec![Ok(one)], None)
        }
    };
    let mut log = match (&dir, args.dry_run) {
        (Some(dir), false) => Some(DeliveryLog::open(dir)?),
        _ => None,
    };
    let mut code = exit::PASSED;
    let mut counts: BTreeMap<DeliverOutcome, usize> = BTreeMap::new();
    for asked in runs {
        ended_by = ended_by.or_else(|| caught.try_recv().ok());
        let mut done = match (asked, ended_by) {
            (Ok(asked), None) => {
                let delivery = call.one(&asked, log.as_mut());
                tokio::select! {
                    done = delivery => done?,
                    // A local delivery is not interrupted: it finishes its update of the repository.
                    Some(number) = caught.recv(), if !target.is_local() => {
                        ended_by = Some(number);
                        call.cancelled(&asked, number)
                    }
                }
            }
            (Ok(asked), Some(number)) => not_begun(&asked, number),
            (Err(done), _) => *done,
        };
        done.dry_run = args.dry_run;
        print(args, target, &done)?;
        code = exit::stronger(code, code_of(done.fault));
        *counts
            .entry(done.outcome.unwrap_or(DeliverOutcome::Failed))
            .or_default() += 1;
    }
    // A terminal sends its signal to git too, which may have ended first.
    if code != exit::PASSED {
        ended_by = ended_by.or_else(|| caught.try_recv().ok());
    }
    if dir.is_some() {
        let all: Vec<String> = counts
            .iter()
            .map(|(outcome, n)| format!("{n} {}", word(args.dry_run, target, *outcome)))
            .collect();
        let all = if all.is_empty() {
            "no run to deliver".to_owned()
        } else {
            all.join(", ")
        };
        out::stderr(&match args.dry_run {
            true => format!("dry run, nothing was delivered: {all}"),
            false => format!("delivered: {all}"),
        });
    }
    Ok(match ended_by {
        Some(number) => exit::stronger(code, exit::of_signal(number)),
        None => code,
    })
}

/// Warns of flags that have no effect with this target.
fn warn_of_unused(args: &DeliverArgs, target: DeliverTarget) {
    let (no_request, no_remote) = (!target.is_forge(), target.is_local());
    let flags = [
        ("--max-open", args.max_open.is_some() && no_request),
        ("--label", !args.label.is_empty() && no_request),
        ("--reviewer", !args.reviewer.is_empty() && no_request),
        ("--draft", args.draft && no_request),
        ("--api-url", args.api_url.is_some() && no_request),
        ("--pace", args.pace.is_some() && no_request),
        ("--into", args.into.is_some() && no_remote),
        ("--remote", args.remote.is_some() && no_remote),
    ];
    let unused: Vec<&str> = flags
        .into_iter()
        .filter(|(_, unused)| *unused)
        .map(|(flag, _)| flag)
        .collect();
    if !unused.is_empty() {
        out::stderr(&format!(
            "warning[unused_flag]: no effect with `--to {}`: {}",
            target.as_str(),
            unused.join(", ")
        ));
    }
}

/// The outcome of a run whose delivery a signal prevented.
fn not_begun(asked: &RequestedRun, number: i32) -> Delivered {
    Delivered {
        job: asked.of_batch.as_ref().map(|run| run.job.name.clone()),
        outcome: Some(DeliverOutcome::Failed),
        fault: DeliverFault::Environment,
        reason: format!(
            "{} ended the command before this delivery began",
            exit::signal_name(number)
        ),
        ..Delivered::default()
    }
}

type RequestedRuns = Vec<Result<RequestedRun, Box<Delivered>>>;

/// A batch directory.
struct RequestedBatch {
    runs: RequestedRuns,
    /// Of all jobs of the plan.
    places: Vec<JobPlace>,
    dir: PathBuf,
}

/// The runs of a batch, if a batch directory was given.
fn batch_of(args: &DeliverArgs) -> Result<Option<RequestedBatch>, Refusal> {
    let Some(dir) = args.run.as_ref().map(PathBuf::from) else {
        return Ok(None);
    };
    let file = dir.join(batch::RUNS);
    // A call that was killed before its first job ended has a record and no rows.
    let is_batch = file.is_file() || dir.join(record::FILE).is_file();
    if !is_batch || dir.join("journal.jsonl").is_file() {
        return Ok(None);
    }
    let BatchRows { text, seal, broken } = rows_of(&dir, &file)?;
    let plan = merge::plan_of(&dir)?;
    let manifest = plan.as_ref().map(|plan| plan.name.clone()).unwrap_or_default();
    let of_plan = |job: JobIdentity| JobOfPlan {
        job: job.job,
        recipe: job.recipe,
        target: job.target,
    };
    let planned: Option<Vec<JobOfPlan>> = plan.map(|plan| plan.jobs.into_iter().map(of_plan).collect());
    let found =
        batch::runs(&text, &dir, planned.as_deref()).map_err(|problems| Refusal::Invalid(problems.join("\n")))?;
    if !found.unplanned.is_empty() {
        out::stderr(&format!(
            "overnight: {} that the manifest does not define any more, left out: {}",
            counted(found.unplanned.len(), "job"),
            first_names(&found.unplanned, NAMED)
        ));
    }
    let recorded: HashSet<String> = found.runs.iter().map(|run| run.job.name.clone()).collect();
    let left: BTreeMap<String, JobLeft> = match &seal {
        Some(seal) => {
            let left = seal.without_result().into_iter();
            left.map(|(job, left)| (job.to_owned(), left)).collect()
        }
        None => broken.left(&found.places, &recorded),
    };
    let is_skipped = |job: &str| left.get(job).is_some_and(|left| left.state == SKIPPED);
    let (skipped, runs): (Vec<BatchRun>, Vec<BatchRun>) =
        found.runs.into_iter().partition(|run| is_skipped(&run.job.name));
    if !skipped.is_empty() {
        let names: Vec<String> = skipped.into_iter().map(|run| run.job.name).collect();
        out::stderr(&format!(
            "overnight: {} that `--only` left out of the last call of the batch, not delivered because the inputs may have changed \
             (start the batch without `--only`: what is up to date does not run again): {}",
            counted(names.len(), "job"),
            first_names(&names, NAMED)
        ));
    }
    let asked = runs.into_iter().map(|run| {
        if let Some(left) = left.get(run.job.name.as_str()) {
            return Err(Box::new(without_result(&run.job.name, left)));
        }
        let found = run
            .dir
            .as_ref()
            .map(|dir| run_dirs::locate(&dir.to_string_lossy(), dir));
        match found {
            Some(Ok(home)) => Ok(RequestedRun {
                home,
                of_batch: Some(run),
                manifest: manifest.clone(),
            }),
            found => {
                let why = match found {
                    Some(Err(error)) => error.to_string(),
                    _ => format!("the job ended as `{}` without a run", run.verdict),
                };
                Err(Box::new(Delivered {
                    job: Some(run.job.name),
                    outcome: Some(DeliverOutcome::Refused),
                    fault: DeliverFault::Run,
                    reason: why,
                    ..Delivered::default()
                }))
            }
        }
    });
    let mut asked: RequestedRuns = asked.collect();
    // Jobs that never ended have no row.
    let without = left
        .iter()
        .filter(|(job, _)| !recorded.contains(*job) && !is_skipped(job));
    asked.extend(without.map(|(job, left)| Err(Box::new(without_result(job, left)))));
    if seal.is_none()
        && let Some(reason) = broken.lacking(left.len())
    {
        asked.push(Err(Box::new(Delivered {
            outcome: Some(DeliverOutcome::Refused),
            fault: DeliverFault::Incomplete,
            reason,
            ..Delivered::default()
        })));
    }
    Ok(Some(RequestedBatch {
        runs: asked,
        places: found.places,
        dir,
    }))
}

/// The outcome of a job of which the last call of its batch has no result. What an earlier call made of it may be of another
/// recipe or policy.
fn without_result(job: &str, left: &JobLeft) -> Delivered {
    let mut reason = match left.state.as_str() {
        "suspended" => "the job waits for approval: resume its run, then start the batch again",
        "cancelled" => "the job was cancelled: start the batch again, which resumes it",
        UNFINISHED => "the last call of the batch was ended before the job ended: start the batch again",
        _ => "the last call of the batch did not run the job: start the batch again",
    }
    .to_owned();
    if !left.message.is_empty() {
        reason.push_str(&format!(" ({})", left.message));
    }
    Delivered {
        job: Some(job.to_owned()),
        outcome: Some(DeliverOutcome::Refused),
        fault: DeliverFault::Incomplete,
        reason,
        ..Delivered::default()
    }
}

/// The state of a job that was not finished because its call was killed or ended in another way from outside.
const UNFINISHED: &str = "unfinished";

/// What the record says about the last call, if that was killed or ended in another way from outside.
#[derive(Default)]
struct BrokenCall {
    /// Whether there is a record without a call.
    is_uncalled: bool,
    /// How many jobs the call had to run.
    to_run: usize,
    /// The jobs that it started.
    started: BTreeSet<String>,
    /// The started jobs that ended, and jobs that ended because their target could not be read.
    ended: BTreeSet<String>,
    /// Whether the call had only the jobs of a shard; the record does not name these.
    of_shard: bool,
}

impl BrokenCall {
    fn note(&mut self, event: &BatchEvent) {
        match event {
            BatchEvent::CallStarted { shard, jobs, .. } => {
                *self = Self {
                    to_run: usize::try_from(*jobs).unwrap_or(usize::MAX),
                    of_shard: shard.is_some(),
                    ..Self::default()
                };
            }
            BatchEvent::JobStarted { job, .. } => {
                self.started.insert(job.clone());
            }
            BatchEvent::JobEnded { row } => {
                if row.digest.is_empty() || self.started.contains(&row.job) {
                    self.ended.insert(row.job.clone());
                }
            }
            BatchEvent::JobInterrupted { .. } | BatchEvent::QueueStopped { .. } | BatchEvent::CallEnded { .. } => {}
        }
    }

    /// The jobs without a result of this call: those that it started but that did not end, and those without any
    /// result.
    fn left(&self, planned: &[JobPlace], recorded: &HashSet<String>) -> BTreeMap<String, JobLeft> {
        let is_open = |job: &String| self.started.contains(job) && !self.ended.contains(job);
        let is_left = |job: &&String| is_open(job) || (!self.of_shard && !recorded.contains(job.as_str()));
        let unfinished = || JobLeft {
            state: UNFINISHED.to_owned(),
            exit_code: exit::INCOMPLETE,
            message: String::new(),
        };
        let left = planned.iter().map(|place| &place.job).filter(is_left);
        left.map(|job| (job.clone(), unfinished())).collect()
    }

    /// Why the delivery is not the whole result of this call, if more jobs than the `named` ones did not end.
    fn lacking(&self, named: usize) -> Option<String> {
        if self.is_uncalled && named == 0 {
            return Some("the batch was ended before it began a job: start the batch again".to_owned());
        }
        let lacking = self
            .to_run
            .checked_sub(self.ended.len() + named)
            .filter(|lacking| *lacking > 0)?;
        Some(format!(
            "the last call of the batch was ended before it had run {} more: start the batch again",
            counted(lacking, "job")
        ))
    }
}

/// What a batch directory says about its jobs.
#[derive(Default)]
struct BatchRows {
    /// The rows, as JSON Lines.
    text: String,
    /// What the last call wrote when it ended. `None` if it did not end.
    seal: Option<BundleSeal>,
    /// What is known about the last call, if it did not end.
    broken: BrokenCall,
}

/// The rows of a batch directory. They decide where each patch goes, so they are taken from the record, or else from a
/// file whose digest is in `bundle.json`. Without either the file is accepted only if no key is set. With what `bundle.json`
/// says of the batch's last call.
fn rows_of(dir: &Path, file: &Path) -> Result<BatchRows, Refusal> {
    let key = chain_key::key()?;
    let altered = |why: &str| Refusal::Invalid(format!("{}: {why}", dir.display()));
    let seal = bundle::read(dir).map_err(Refusal::Invalid)?;
    let path = dir.join(record::FILE);
    if path.is_file() {
        let mut text = String::new();
        let mut broken = BrokenCall {
            is_uncalled: true,
            ..BrokenCall::default()
        };
        let read = record::read_lines(&path, key, |event| {
            broken.note(&event);
            if let BatchEvent::JobEnded { row } = event {
                text.push_str(&row.to_line());
            }
        })?;
        let whole = |seal: &BundleSeal| seal.record.head == read.chain && seal.record.events == read.events;
        if seal.is_none() {
            out::stderr(&format!(
                "overnight: {}: the last call of the batch has not ended, so results of an earlier call are delivered too",
                dir.display()
            ));
        }
        return match seal.as_ref().is_none_or(whole) {
            true => Ok(BatchRows { text, seal, broken }),
            false => Err(altered(
                "batch.jsonl does not match bundle.json: it was truncated or altered",
            )),
        };
    }
    match &seal {
        Some(seal) => {
            let found = sealed_file(file).map_err(|error| altered(&error.to_string()))?;
            if seal.files.get(batch::RUNS) != Some(&found) {
                return Err(altered(
                    "runs.jsonl does not match bundle.json: it was truncated or altered",
                ));
            }
        }
        None if key.is_some() => {
            return Err(altered(
                "runs.jsonl is not authenticated: merge the shards again with the key",
            ));
        }
        None => {}
    }
    Ok(BatchRows {
        text: inputs::text(file)?,
        seal,
        broken: BrokenCall::default(),
    })
}

fn loaded(policies: &Policies) -> Result<PolicySet, Refusal> {
    let mut files = SourceFiles::default();
    match policies.load(&mut files) {
        Ok((set, _)) => Ok(set),
        Err(problems) => Err(Refusal::of_problems(&problems, &files)),
    }
}

fn code_of(fault: DeliverFault) -> u8 {
    match fault {
        DeliverFault::None => exit::PASSED,
        DeliverFault::Run => exit::FAILED,
        DeliverFault::Policy => exit::DENIED,
        DeliverFault::Service => exit::PROVIDER,
        DeliverFault::Environment => exit::ENVIRONMENT,
        DeliverFault::Output => exit::OUTPUT,
        DeliverFault::Incomplete => exit::INCOMPLETE,
    }
}

impl Call<'_> {
    /// The outcome of the run whose delivery a signal ended.
    fn cancelled(&self, asked: &RequestedRun, number: i32) -> Delivered {
        let name = exit::signal_name(number);
        Delivered {
            run: self.current(),
            reason: format!("{name} ended the command during this delivery; the next one continues from there"),
            ..not_begun(asked, number)
        }
    }

    /// Delivers one run. An error ends the command only if it concerns all runs.
    async fn one(
        &self,
        asked: &RequestedRun,
        log: Option<&mut (DeliveryLog, Vec<Value>)>,
    ) -> Result<Delivered, Refusal> {
        if let Ok(mut current) = self.current.lock() {
            current.clear();
        }
        match self.attempt(asked, log).await {
            Ok(done) => Ok(done),
            Err(NotBegun::Run(stop)) => Ok(self.stopped(asked, &stop)),
            Err(NotBegun::All(refusal)) => Err(refusal),
        }
    }

    /// The id of the run that is being delivered; empty before its journal is read.
    fn current(&self) -> String {
        self.current.lock().map(|run| run.clone()).unwrap_or_default()
    }

    /// The outcome of a run whose delivery did not begin.
    fn stopped(&self, asked: &RequestedRun, stop: &DeliverStop) -> Delivered {
        let (outcome, fault) = stop.ends();
        Delivered {
            run: self.current(),
            job: asked.of_batch.as_ref().map(|run| run.job.name.clone()),
            outcome: Some(outcome),
            fault,
            reason: stop.to_string(),
            ..Delivered::default()
        }
    }

    async fn attempt(
        &self,
        asked: &RequestedRun,
        log: Option<&mut (DeliveryLog, Vec<Value>)>,
    ) -> Result<Delivered, NotBegun> {
        let journal = self.verified(asked)?;
        let run = journal.run().map(ToString::to_string).unwrap_or_default();
        let mut of = self.deliverable(&journal, asked)?;
        of.job = asked.of_batch.as_ref().map(|run| run.job.clone());
        if asked
            .of_batch
            .as_ref()
            .is_some_and(|row| !row.is_of(&of.patch, &of.patch_digest))
        {
            let why = "its patch is not the one that the batch recorded for this job: the run directory was replaced or changed";
            return Err(DeliverStop::Refused(why.to_owned()).into());
        }
        let left_out = message::left_out(&of);
        if !left_out.is_empty() {
            out::stderr(&format!(
                "warning[untrusted_recipe]: the recipe of run {run} was not trusted, so its `deliver: {{ {} }}` is left out: name them \
                 on this command line, or run it with --trust recipe",
                left_out.join(", ")
            ));
        }
        let rulers = self.rulers(&of)?;
        let ends = match self.ends(&of, asked).await {
            // Nothing is read and nothing is sent.
            Err(_) if of.patch.is_empty() => Endpoints::default(),
            ends => ends?,
        };
        let Endpoints {
            repository,
            remote,
            access,
        } = ends;
        let quiet = self.redactor(remote.as_ref());
        let own_dir = state_dir::outputs_of(&asked.home).unwrap_or_else(|| asked.home.clone());
        let settings = DeliverSettings {
            target: self.target,
            repository,
            remote,
            into: self.args.into.clone(),
            base: self.args.base.clone(),
            wording: Wording {
                title: self.args.title.clone(),
                labels: self.args.label.clone(),
                reviewers: self.args.reviewer.clone(),
                draft: self.args.draft,
                branch: self.args.branch.clone(),
            },
            rulers,
            max_open: self.args.max_open,
            even_if: self.args.even_if.clone(),
            dry_run: self.args.dry_run,
            vars: &self.vars,
            access,
            wait_budget: &self.wait_budget,
            claims: &self.claims,
            quiet: &quiet,
            mbox_is_named: self.args.out.is_some(),
            mbox: self.args.out.clone().unwrap_or_else(|| own_dir.join(outputs::MBOX)),
        };
        let mut own;
        let log = match log {
            Some(log) => Some(log),
            None if self.args.dry_run => None,
            None => {
                own = DeliveryLog::open(&asked.home).map_err(|error| NotBegun::All(error.into()))?;
                Some(&mut own)
            }
        };
        let log = log.map(|(log, earlier)| (log, earlier.as_slice()));
        self.wait_budget.begin();
        Ok(flow::deliver(&of, &settings, log).await)
    }

    /// The journal of the run, if its directory is as the run left it. Its run becomes the current one.
    fn verified(&self, asked: &RequestedRun) -> Result<journal::Journal, NotBegun> {
        let verified = verify::run(&asked.home).map_err(|error| match error {
            JournalError::Damaged { .. } => NotBegun::Run(DeliverStop::Refused(error.to_string())),
            _ if asked.of_batch.is_some() => NotBegun::Run(DeliverStop::Environment(error.to_string())),
            _ => NotBegun::All(error.into()),
        })?;
        let journal = verified.journal;
        let run = journal.run().map(ToString::to_string).unwrap_or_default();
        if let Ok(mut current) = self.current.lock() {
            current.clone_from(&run);
        }
        if !verified.problems.is_empty() {
            return Err(NotBegun::Run(DeliverStop::Refused(format!(
                "the run directory is not as the run left it: {}",
                verified.problems.join("; ")
            ))));
        }
        if !journal.keyed && !journal.is_ours() {
            // A tree from elsewhere may contain a run that is newer than the user's own.
            if self.args.last {
                return Err(NotBegun::All(Refusal::Environment(format!(
                    "the newest run here, {}, was not written by this machine: look at it first, and name it to deliver it",
                    asked.home.display()
                ))));
            }
            out::stderr(&format!(
                "warning[unkeyed_journal]: run {run} was recorded elsewhere and without {}: it cannot be verified that it is what ran",
                chain_key::KEY_VARIABLE
            ));
        }
        Ok(journal)
    }

    /// Masks the secrets of the environment and the password in the remote's address.
    fn redactor(&self, remote: Option<&RemoteAddress>) -> Redactor {
        let pair = remote.and_then(|remote| remote.credentials.as_ref());
        let password = pair.and_then(|pair| pair.expose_secret().split_once(':').map(|(_, word)| word.to_owned()));
        let more = password.map(|word| ("REMOTE_PASSWORD".to_owned(), word));
        Redactor::from_env(self.vars.iter().cloned().chain(more))
    }

    fn deliverable(&self, journal: &journal::Journal, asked: &RequestedRun) -> Result<Deliverable, DeliverStop> {
        let sum = RunSummary::fold(&journal.events);
        let patch = outputs::patch_bytes(&asked.home, &sum).map_err(|error| DeliverStop::Refused(error.to_string()))?;
        let ending = OutputFacts {
            exit_code: i32::from(exit::code(&sum.outcome)),
            digests: outputs::digests(&asked.home).map_err(|error| DeliverStop::Refused(error.to_string()))?,
            ..OutputFacts::default()
        };
        Deliverable::of(journal, patch, &ending).map_err(DeliverStop::Refused)
    }

    /// The policies that apply: `--policy`, or the recorded texts, which the journal's hash chain protects, and with them
    /// that of OVERNIGHT_POLICY.
    fn rulers(&self, of: &Deliverable) -> Result<PatchPolicies, DeliverStop> {
        if let Some(policies) = &self.policies {
            return Ok(PatchPolicies {
                policies: policies.clone(),
                strict: true,
                floor: None,
            });
        }
        let recorded = |narrows: bool| {
            let mut all = Policies::default();
            for policy in of.policies.iter().filter(|policy| policy.narrows == narrows) {
                all.add(Policies::recorded(policy));
            }
            all
        };
        let unreadable = |refusal: Refusal| {
            DeliverStop::Policy(format!(
                "the recorded policies cannot be read, name one with --policy: {refusal}"
            ))
        };
        let mut set = loaded(&recorded(false)).map_err(unreadable)?;
        let narrowing = recorded(true);
        if !narrowing.sources.is_empty() {
            set = set.narrowed_by(&loaded(&narrowing).map_err(unreadable)?);
        }
        if let Some(ceiling) = &self.ceiling {
            set = set.narrowed_by(ceiling);
        }
        let edit = policy_sources::builtin("builtin:edit").map_err(unreadable)?;
        Ok(PatchPolicies {
            policies: set,
            strict: of.by_calls_only || self.ceiling.is_some(),
            floor: Some(loaded(&edit).map_err(unreadable)?),
        })
    }

    /// Puts the job's name into the branches of jobs that share recipe and repository with another job of the plan.
    async fn disambiguate_branches(&self, batch: &mut RequestedBatch) {
        let mut jobs: HashMap<&str, usize> = HashMap::new();
        for place in &batch.places {
            *jobs.entry(&place.recipe).or_default() += 1;
        }
        let mut known: HashMap<&JobSource, String> = HashMap::new();
        let mut destinations = Vec::new();
        for place in &batch.places {
            let has_others = jobs.get(place.recipe.as_str()).is_some_and(|jobs| *jobs > 1);
            let destination = match known.get(&place.source) {
                // The branch of the only job of a recipe is its own wherever it goes.
                _ if !has_others => String::new(),
                Some(destination) => destination.clone(),
                None => {
                    let found = self.destination(&place.source).await;
                    known.insert(&place.source, found.clone());
                    found
                }
            };
            destinations.push(destination);
        }
        let shared = batch::jobs_sharing_a_branch_target(&batch.places, &destinations);
        for run in batch
            .runs
            .iter_mut()
            .flatten()
            .filter_map(|asked| asked.of_batch.as_mut())
        {
            run.job.in_branch = shared.contains(&run.job.name);
        }
    }

    /// The repository that the branch of a job with this source goes to. Where it cannot be found out, the delivery of the job
    /// says why.
    async fn destination(&self, source: &JobSource) -> String {
        let found = self.repository(Some(source), None);
        let repository = found.ok().flatten().filter(|found| found.check().is_ok());
        let remote = self.remote(repository.as_ref(), Some(source)).await;
        let remote = remote.ok().and_then(|(remote, _)| remote);
        if remote.is_none() && !self.target.is_local() {
            return source.text();
        }
        branch_claims::destination(repository.as_ref(), remote.as_ref()).unwrap_or_else(|| source.text())
    }

    /// Where the commits of this run come from, and where they go.
    async fn ends(&self, of: &Deliverable, asked: &RequestedRun) -> Result<Endpoints, DeliverStop> {
        let run = asked.of_batch.as_ref();
        let source = run.map(|run| &run.source);
        let repository = match (self.repository(source, Some(Path::new(&of.workspace))), run) {
            (Ok(repository), _) => repository,
            (Err(why), Some(run)) => return Err(not_here(asked, run, &why)),
            (Err(why), None) => return Err(DeliverStop::Environment(why)),
        };
        if let Some(Err(why)) = repository.as_ref().map(Repository::check) {
            return Err(DeliverStop::Environment(why));
        }
        let (remote, access) = self.remote(repository.as_ref(), source).await?;
        Ok(Endpoints {
            repository,
            remote,
            access,
        })
    }

    /// The local repository: the given one, else that of the job's target or of the tree that was worked on, else that of the
    /// current directory. The current directory is not used for runs of a batch, which have a `source`: a fork or a copy of the
    /// job's repository has its base commit too, so that nothing would tell it from the right one. `worked_on`: the tree of the
    /// run, if there is a run.
    ///
    /// # Errors
    /// Why the repository of the job's target cannot be found.
    fn repository(&self, source: Option<&JobSource>, worked_on: Option<&Path>) -> Result<Option<Repository>, String> {
        let at = |dir: &Path| {
            excluded_trees::tree(dir);
            patch::repository_at(&environment::absolute(dir))
        };
        let here = |dir: &Path| {
            let dir = dir.canonicalize().ok().filter(|dir| dir.is_dir())?;
            at(&dir)
        };
        if let Some(named) = &self.args.repo {
            return Ok(at(named));
        }
        let Some(source) = source else {
            return Ok(worked_on.and_then(here).or_else(|| at(Path::new("."))));
        };
        // With an address on the command line everything is fetched from there.
        let flag = self.args.remote.as_deref().filter(|_| !self.target.is_local());
        let is_addressed = flag.is_some_and(|remote| remote.contains([':', '/']));
        let (found, why) = match source {
            JobSource::Directory(dir) => (here(dir), format!("{} is in no git repository", dir.display())),
            JobSource::Unrecorded(_) => (None, "an early version did not record its directory".to_owned()),
            JobSource::Repository(address) => {
                let local = Some(Path::new(address)).filter(|path| path.is_absolute());
                return Ok(local.and_then(here).or_else(|| worked_on.and_then(here)));
            }
            JobSource::Unnamed => return Ok(worked_on.and_then(here)),
        };
        match found.is_some() || is_addressed {
            true => Ok(found),
            false => Err(why),
        }
    }

    async fn remote(
        &self,
        repository: Option<&Repository>,
        source: Option<&JobSource>,
    ) -> Result<(Option<RemoteAddress>, Option<(String, SecretString)>), DeliverStop> {
        if self.target.is_local() {
            if repository.is_none() && self.args.repo.is_some() {
                return Err(DeliverStop::Environment("--repo is not in a git repository".to_owned()));
            }
            // A message needs no repository here: its base can be fetched.
            let address = match (source, self.target) {
                (Some(JobSource::Repository(address)), DeliverTarget::Mbox) if repository.is_none() => address,
                _ => return Ok((None, None)),
            };
            let remote = RemoteAddress::parse(address, Path::new("/"))
                .map_err(|why| DeliverStop::Environment(format!("the address of {JOBS_TARGET}: {why}")))?;
            return Ok((Some(remote), None));
        }
        let top = repository.map_or_else(|| PathBuf::from("."), |repository| repository.top.clone());
        let (asked_for, what) = match (&self.args.remote, source) {
            (Some(remote), _) => (remote.clone(), "--remote"),
            (None, Some(JobSource::Repository(address))) => (address.clone(), JOBS_TARGET),
            (None, _) if repository.is_none() => {
                return Err(DeliverStop::Environment(
                    "there is no git repository here whose `origin` could be pushed to: name the repository with --repo, or \
                     an address with --remote"
                        .to_owned(),
                ));
            }
            (None, _) => ("origin".to_owned(), "the remote `origin`"),
        };
        let mut text = asked_for.clone();
        if let Some(repository) = repository
            && !asked_for.contains([':', '/'])
        {
            match local::remote(repository, &asked_for).await? {
                Some(url) => text = url,
                // Only a name that was typed may be that of a directory.
                None if what != "--remote" || !Path::new(&asked_for).is_dir() => {
                    return Err(DeliverStop::Environment(format!(
                        "the repository has no remote `{asked_for}`"
                    )));
                }
                None => {}
            }
        }
        let base = if text == asked_for && what == "--remote" {
            environment::absolute(Path::new("."))
        } else {
            top
        };
        let remote = RemoteAddress::parse(&text, &base)
            .map_err(|why| DeliverStop::Environment(format!("the address of {what}: {why}")))?;
        if !self.target.is_forge() {
            return Ok((Some(remote), None));
        }
        let variable = self.target.api_variable().and_then(environment::variable);
        let given = self.args.api_url.clone().or(variable);
        let (remote, api) = remote
            .of_forge(self.target, given.as_deref(), what == JOBS_TARGET)
            .map_err(DeliverStop::Environment)?;
        Ok((Some(remote), self.token.clone().map(|token| (api, token))))
    }
}

/// The repository of a job's target cannot be found.
fn not_here(asked: &RequestedRun, run: &BatchRun, why: &str) -> DeliverStop {
    let manifest = match asked.manifest.as_str() {
        "" => "its manifest".to_owned(),
        name => format!("the manifest `{name}`"),
    };
    DeliverStop::Environment(format!(
        "the repository of job {}, target `{}` of {manifest}, is not known here ({why}): deliver its run {} by itself, with \
         --repo DIR",
        run.job.name,
        run.target,
        run.dir.as_ref().unwrap_or(&asked.home).display()
    ))
}

/// The word for an outcome; on a dry run what would be done.
fn word(dry_run: bool, target: DeliverTarget, outcome: DeliverOutcome) -> &'static str {
    match (dry_run, outcome, target) {
        (true, DeliverOutcome::Opened, DeliverTarget::Branch) => "would create",
        (true, DeliverOutcome::Opened, DeliverTarget::Push) => "would push",
        (true, DeliverOutcome::Opened, DeliverTarget::Mbox) => "would write",
        (true, DeliverOutcome::Opened, _) => "would open",
        (true, DeliverOutcome::Updated, _) => "would update",
        (_, outcome, _) => outcome.as_str(),
    }
}

fn print(args: &DeliverArgs, target: DeliverTarget, done: &Delivered) -> Result<(), Refusal> {
    let failed = |error: std::io::Error| Refusal::Output(format!("stdout: {error}"));
    if args.format == LineFormat::Json {
        return out::line(&done.to_value().to_string()).map_err(failed);
    }
    if args.quiet && done.fault == DeliverFault::None {
        return Ok(());
    }
    let outcome = done.outcome.unwrap_or(DeliverOutcome::Failed);
    let name = done.job.as_deref().unwrap_or(&done.run);
    let mut line = format!("{:<16} {name}", word(args.dry_run, target, outcome));
    for part in [done.branch.as_str(), done.url.as_deref().unwrap_or_default()] {
        if !part.is_empty() {
            line.push_str(&format!("  {part}"));
        }
    }
    if let Some(commit) = done.commit.as_deref().and_then(|commit| commit.get(..12)) {
        line.push_str(&format!("  {commit}"));
    }
    if !done.reason.is_empty() {
        line.push_str(&format!("  ({})", done.reason));
    }
    line.push('\n');
    if let Some(preview) = &done.preview {
        line.push_str(&shown(preview));
    }
    out::stdout_of_others(&line).map_err(failed)
}

/// The text of a dry run.
fn shown(preview: &crate::deliver::Preview) -> String {
    let mut out = format!("    base      {}\n    title     {}\n", preview.base, preview.title);
    let more = [("labels", &preview.labels), ("reviewers", &preview.reviewers)];
    for (name, texts) in more.into_iter().filter(|(_, texts)| !texts.is_empty()) {
        out.push_str(&format!("    {name:<9} {}\n", texts.join(", ")));
    }
    let files = counted(preview.files.len(), "file");
    out.push_str(&format!(
        "    changes   {files}, +{} -{}\n",
        preview.added, preview.removed
    ));
    for file in preview.files.iter().take(50) {
        out.push_str(&format!("              {file}\n"));
    }
    for line in preview.message.lines() {
        out.push_str(&format!("    | {line}\n"));
    }
    out
}
