//! Merges the bundles of shards into one result: checks manifest, overlap, completeness and digests, then writes the
//! files of one batch. Rows are read one at a time; only the last row of each job is kept.

use super::BatchError;
use super::budget::JobSpending;
use super::bundle::{self, BundleSeal, JobLeft, RecordHead, SealedCall};
use super::evaluation;
use super::job_result::{JobDisposition, NOT_RUN, SKIPPED, SupervisedCall, UP_TO_DATE};
use super::outputs::{self, DOWNLOADS};
use super::plan::{self, PlanFile};
use super::record;
use super::result::{BatchResult, JobReport, ReportHead};
use super::rows::{self, RunRow, is_inside};
use super::sealed_file::{SealedFile, sealed_file};
use super::shard::{self, ShardSpec};
use crate::base::budget::{least, micros};
use crate::base::exit;
use crate::base::quote::counted;
use crate::journal::{JournalError, artefacts, deliveries, output_lock};
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::fs::File;
use std::path::{Component, Path, PathBuf};

/// Size limit of a plan that is read, in bytes.
pub const MAX_PLAN: u64 = 1 << 30;
/// Total bytes of plans whose digests are checked; of plans beyond that, which are not used, only the size is checked.
const PLANS_HASHED: u64 = 32 << 20;
// Codes of problems.
pub(super) const CUT: &str = "cut-bundle";
pub(super) const ALTERED: &str = "altered-bundle";
const NO_BUNDLE: &str = "no-bundle";
/// How a note words jobs without a result: the state, for one job, for several.
const LEFT: [(&str, &str, &str); 3] = [
    (NOT_RUN, "was not run", "were not run"),
    (
        "cancelled",
        "was cancelled: the command of its shard resumes it",
        "were cancelled: the commands of their shards resume them",
    ),
    ("suspended", "waits for approval", "wait for approval"),
];
const NAME_BUNDLES: &str = "name the --out directories of `overnight batch --shard`";
/// File names that may already exist in the output directory.
const KNOWN: [&str; 13] = [
    DOWNLOADS,
    "shards",
    "logs",
    deliveries::FILE,
    ".gitignore",
    plan::FILE,
    rows::FILE,
    bundle::FILE,
    "patches",
    "result.json",
    "junit.xml",
    "report.html",
    "summary.md",
];

/// Renders a problem of a bundle for people.
pub fn problem(place: &str, code: &str, why: &str, help: &str) -> String {
    format!("{place}:1:1: error[{code}]: {why}\nhelp: {help}")
}

/// Where a bundle is, and how messages name it.
#[derive(Clone, Debug)]
pub struct BundlePlace {
    pub dir: PathBuf,
    /// The directory or the address that the user knows.
    pub shown: String,
}

/// The result of a merge.
#[derive(Debug)]
pub struct MergedBatch {
    pub result: BatchResult,
    pub jobs: Vec<JobReport>,
    /// What is missing, one sentence each.
    pub missing: Vec<String>,
    /// Jobs with rows that are left out because no plan has them.
    pub left_out: usize,
    /// Bundles that are not below the output, so that their runs cannot be delivered from it.
    pub outside: Vec<String>,
}

struct Bundle<'a> {
    dir: &'a Path,
    shown: &'a str,
    seal: BundleSeal,
    shard: ShardSpec,
}

/// Locks an output directory, so that no two merges write to it, until the result is dropped.
///
/// # Errors
/// Another merge holds it, or no lock can be made.
pub fn hold(out: &Path) -> Result<File, BatchError> {
    output_lock::hold(out).map_err(|error| match error {
        JournalError::Held(dir) => BatchError::Environment(format!(
            "another merge is writing to {dir}; wait for it, or name another --out"
        )),
        error => error.into(),
    })
}

/// Merges bundles into `out`, which the caller holds. `changed`: `out` may hold an earlier merge of another manifest.
///
/// # Errors
/// All bundles that cannot be merged, each with its code; nothing is written then.
pub fn merge(places: &[BundlePlace], out: &Path, changed: bool) -> Result<MergedBatch, BatchError> {
    let (bundles, unended) = open(places, out)?;
    let first = bundles.first().map(|bundle| (bundle.dir, bundle.shown));
    let first = first.or(unended.first().map(|place| (place.dir.as_path(), place.shown.as_str())));
    let Some((first, first_shown)) = first else {
        return Err(BatchError::Invalid("no bundle is given".to_owned()));
    };
    let plan = read_plan(first, first_shown)?;
    fits(out, (!changed).then_some(&plan))?;
    let earlier = earlier_jobs(out)?;
    let mut problems = agree(&bundles, &unended, &plan);
    problems.extend(overlaps(&bundles));
    problems.extend(altered(&bundles));
    if !problems.is_empty() {
        return Err(BatchError::Invalid(problems.join("\n")));
    }
    let mut missing = absent_shards(&bundles, &unended, &plan);
    let rows = read_rows(&bundles, out)?;
    let patches = named_patches(&bundles, &rows.last);
    for patch in &patches {
        patch.read()?;
    }
    let call = rows.call;
    let mut left: HashMap<&str, JobLeft> = bundles.iter().flat_map(|bundle| bundle.seal.left()).collect();
    let mut last = rows.last;
    let jobs: Vec<JobReport> = plan
        .jobs
        .iter()
        .map(|job| report(&job.job, last.remove(&job.job), left.remove(job.job.as_str())))
        .collect();
    let planned: HashSet<&str> = plan.jobs.iter().map(|job| job.job.as_str()).collect();
    if let Some(stranger) = last.keys().min() {
        let text = format!(
            "its bundle lists {} that no plan has, for example {stranger}",
            counted(last.len(), "job")
        );
        return Err(BatchError::Invalid(problem(
            first_shown,
            "unknown-job",
            &text,
            "merge bundles of one manifest",
        )));
    }
    // After `--changed` a batch keeps the rows of the jobs that its manifest defined before.
    let left_out = rows.others.iter().filter(|job| !planned.contains(job.as_str())).count();
    for (state, was, were) in LEFT {
        match jobs.iter().filter(|job| job.state == state).count() {
            0 => {}
            1 => missing.push(format!("1 job {was}")),
            many => missing.push(format!("{many} jobs {were}")),
        }
    }
    let head = ReportHead {
        name: &plan.name,
        manifest: &plan.manifest,
        shard: None,
    };
    let result = BatchResult::of(&head, &jobs, &call);
    // Everything is checked; nothing was written until here.
    std::fs::create_dir_all(out).map_err(|error| BatchError::write(out, &error))?;
    outputs::remove_drafts(out);
    bundle::open(out)?;
    write_rows(&bundles, out)?;
    write_patches(&patches, &jobs, out)?;
    for job in earlier.iter().filter(|job| !planned.contains(job.as_str())) {
        remove_patch(out, job)?;
    }
    let text = serde_json::to_string(&plan).unwrap_or_default();
    artefacts::replace(&out.join(plan::FILE), text.as_bytes())?;
    outputs::write(out, &head, &jobs, &result)?;
    // A delivery and a comparison learn from it which rows count. With a key it authenticates them.
    let seal = BundleSeal::of(&plan.manifest, None, &jobs, &call, RecordHead::default());
    bundle::close(out, seal)?;
    Ok(MergedBatch {
        result,
        jobs,
        missing,
        left_out,
        outside: bundles
            .iter()
            .filter(|bundle| way(out, bundle.dir).starts_with(".."))
            .map(|bundle| bundle.shown.to_owned())
            .collect(),
    })
}

/// Reads the bundle files. Directories without one belong to shards that have not ended. The output and what another merge
/// wrote are no bundles.
fn open<'a>(places: &'a [BundlePlace], out: &Path) -> Result<(Vec<Bundle<'a>>, Vec<&'a BundlePlace>), BatchError> {
    let real_out = out.canonicalize().ok();
    let (mut bundles, mut unended, mut problems) = (Vec::new(), Vec::new(), Vec::new());
    for place in places {
        let (dir, shown) = (place.dir.as_path(), place.shown.as_str());
        let is_out = real_out.is_some() && dir.canonicalize().ok() == real_out;
        if is_out || is_merged(dir) {
            let why = match is_out {
                true => "this is --out itself, in which no shard has worked",
                false => "this is the output of a merge, not of a shard",
            };
            let help = match dir.join("shards").is_dir() {
                true => format!("name {shown}/shards/*", shown = shown.trim_end_matches('/')),
                false => NAME_BUNDLES.to_owned(),
            };
            problems.push(problem(shown, NO_BUNDLE, why, &help));
            continue;
        }
        match bundle::read(dir) {
            Ok(Some(seal)) => {
                let shard = seal
                    .shard
                    .as_deref()
                    .map_or(Ok(ShardSpec { index: 1, total: 1 }), ShardSpec::parse);
                match shard {
                    Ok(shard) => bundles.push(Bundle {
                        dir,
                        shown,
                        seal,
                        shard,
                    }),
                    Err(why) => problems.push(problem(shown, ALTERED, &why, "copy the bundle again")),
                }
            }
            Ok(None) if dir.join(plan::FILE).is_file() => unended.push(place),
            Ok(None) => problems.push(problem(shown, NO_BUNDLE, "there is no bundle here", NAME_BUNDLES)),
            Err(why) => problems.push(problem(shown, ALTERED, &why, "copy the bundle again")),
        }
    }
    match problems.is_empty() {
        true => Ok((bundles, unended)),
        false => Err(BatchError::Invalid(problems.join("\n"))),
    }
}

/// Whether a merge wrote this directory: it has results and no record, and no bundle file but that of a merge.
fn is_merged(dir: &Path) -> bool {
    let has = |name: &str| dir.join(name).is_file();
    let is_ours = || bundle::read(dir).is_ok_and(|seal| seal.is_none_or(|seal| seal.is_of_merge()));
    has(plan::FILE) && has("result.json") && !has(record::FILE) && is_ours()
}

/// The plan of a directory; `None` where there is none.
///
/// # Errors
/// It cannot be read, is too large, or was cut or altered.
pub fn plan_of(dir: &Path) -> Result<Option<PlanFile>, BatchError> {
    match dir.join(plan::FILE).is_file() {
        true => read_plan(dir, &dir.display().to_string()).map(Some),
        false => Ok(None),
    }
}

/// Reads the plan of a batch directory. `shown`: how messages name the directory.
fn read_plan(dir: &Path, shown: &str) -> Result<PlanFile, BatchError> {
    let path = dir.join(plan::FILE);
    let size = std::fs::metadata(&path)
        .map_err(|error| BatchError::read(&path, &error))?
        .len();
    if size > MAX_PLAN {
        return Err(BatchError::Invalid(problem(
            shown,
            ALTERED,
            "plan.json is too large",
            "copy the bundle again",
        )));
    }
    let text = std::fs::read(&path).map_err(|error| BatchError::read(&path, &error))?;
    let read: Result<PlanFile, _> = serde_json::from_slice(&text);
    let plan = read.map_err(|error| {
        let why = format!("plan.json is cut or altered: {error}");
        BatchError::Invalid(problem(shown, ALTERED, &why, "copy the bundle again"))
    })?;
    if plan::manifest_digest(plan.jobs.iter()) != plan.manifest {
        let why = "plan.json is altered: its digest does not match its jobs";
        return Err(BatchError::Invalid(problem(
            shown,
            ALTERED,
            why,
            "copy the bundle again",
        )));
    }
    Ok(plan)
}

/// Accepts only an empty directory or an earlier merge as output, of the same manifest if one is given.
///
/// # Errors
/// The directory contains something else.
pub fn fits(out: &Path, plan: Option<&PlanFile>) -> Result<(), BatchError> {
    let entries = match std::fs::read_dir(out) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(()),
        entries => entries.map_err(|error| BatchError::read(out, &error))?,
    };
    for entry in entries.flatten() {
        let name = entry.file_name();
        // A merge that was killed left it.
        let is_draft =
            name.to_str().is_some_and(artefacts::is_draft) && entry.file_type().is_ok_and(|kind| kind.is_file());
        if !is_draft && !KNOWN.iter().any(|known| name == *known) {
            return Err(BatchError::Environment(format!(
                "{} contains {}, so it is not the output of an earlier merge: name an empty directory",
                out.display(),
                name.to_string_lossy()
            )));
        }
    }
    if let Some(plan) = plan
        && let Some(earlier) = plan_of(out)?
        && earlier.manifest != plan.manifest
    {
        let why = "this is the output of an earlier merge of another manifest";
        return Err(BatchError::Invalid(problem(
            &out.display().to_string(),
            "other-manifest",
            why,
            "accept the new manifest with --changed, or name an empty directory",
        )));
    }
    Ok(())
}

/// The jobs of the plan of an earlier merge; none where there was no merge.
fn earlier_jobs(out: &Path) -> Result<Vec<String>, BatchError> {
    let jobs = plan_of(out)?.map(|plan| plan.jobs).unwrap_or_default();
    Ok(jobs.into_iter().map(|job| job.job).collect())
}

fn agree(bundles: &[Bundle<'_>], unended: &[&BundlePlace], plan: &PlanFile) -> Vec<String> {
    let mut problems = Vec::new();
    let help = "merge the shards of one manifest; if one of them was run with `--changed`, it used another one";
    for bundle in bundles.iter().filter(|bundle| bundle.seal.manifest != plan.manifest) {
        problems.push(problem(
            bundle.shown,
            "other-manifest",
            "this bundle is of another manifest",
            help,
        ));
    }
    for place in unended {
        match read_plan(&place.dir, &place.shown) {
            Ok(other) if other.manifest == plan.manifest => {}
            Ok(_) => problems.push(problem(
                &place.shown,
                "other-manifest",
                "this bundle is of another manifest",
                help,
            )),
            Err(error) => problems.push(error.to_string()),
        }
    }
    problems
}

/// Finds shards that occur twice and jobs that occur in several bundles.
fn overlaps(bundles: &[Bundle<'_>]) -> Vec<String> {
    let mut problems = Vec::new();
    let mut shards: BTreeMap<ShardSpec, &str> = BTreeMap::new();
    for bundle in bundles {
        if let Some(first) = shards.insert(bundle.shard, bundle.shown) {
            let why = format!("shard {} ran twice: it is also in {}", bundle.shard, first);
            problems.push(problem(bundle.shown, "shard-twice", &why, "name one of the two"));
        }
    }
    if !problems.is_empty() {
        return problems;
    }
    let mut seen: HashMap<&str, &str> = HashMap::new();
    for bundle in bundles {
        let mut shared = 0_u64;
        let mut example = None;
        for job in &bundle.seal.jobs {
            if let Some(first) = seen.insert(job, bundle.shown) {
                shared += 1;
                example.get_or_insert((job, first));
            }
        }
        if let Some((job, first)) = example {
            let why = format!("{shared} of its jobs, for example {job}, are also in {}", first);
            problems.push(problem(
                bundle.shown,
                "overlap",
                &why,
                "merge shards that were split in the same way: with the same N and timings",
            ));
        }
    }
    problems
}

/// How a file differs from what its bundle file says: the code of the problem and a sentence; `None` if it does not.
/// Without `is_hashed`, only its size counts.
///
/// # Errors
/// The file cannot be read.
pub(super) fn differs(
    path: &Path,
    name: &str,
    sealed: &SealedFile,
    is_hashed: bool,
) -> std::io::Result<Option<(&'static str, String)>> {
    let size = std::fs::metadata(path)?.len();
    let found = if size < sealed.bytes {
        Some((CUT, format!("{name} is cut: {size} of {} bytes", sealed.bytes)))
    } else if size > sealed.bytes {
        Some((ALTERED, format!("{name} is altered: it has grown")))
    } else if is_hashed && sealed_file(path)? != *sealed {
        Some((ALTERED, format!("{name} is altered: its digest is another")))
    } else {
        None
    };
    Ok(found)
}

/// Finds files that differ from what their bundle file says.
fn altered(bundles: &[Bundle<'_>]) -> Vec<String> {
    let mut problems = Vec::new();
    let mut hashed = 0;
    for bundle in bundles {
        for (name, sealed) in &bundle.seal.files {
            let is_hashed = name != plan::FILE || hashed <= PLANS_HASHED;
            let found = differs(&bundle.dir.join(name), name, sealed, is_hashed)
                .unwrap_or_else(|error| Some((ALTERED, format!("{name} cannot be read: {error}"))));
            if found.is_none() && is_hashed && name == plan::FILE {
                hashed += sealed.bytes;
            }
            if let Some((code, why)) = found {
                problems.push(problem(
                    bundle.shown,
                    code,
                    &why,
                    "copy the bundle again, or run the shard again",
                ));
            }
        }
    }
    problems
}

/// What to say of the shards without a bundle. One to which the plan gives no job is not missing.
fn absent_shards(bundles: &[Bundle<'_>], unended: &[&BundlePlace], plan: &PlanFile) -> Vec<String> {
    const LISTED: usize = 50;
    let mut missing: Vec<String> = unended
        .iter()
        .map(|place| {
            format!(
                "{}: this shard has not ended; start it again with the same command",
                place.shown
            )
        })
        .collect();
    let total = bundles.iter().map(|bundle| bundle.shard.total).max().unwrap_or(0);
    let there: BTreeSet<u64> = bundles.iter().map(|bundle| bundle.shard.index).collect();
    let listed: HashSet<&str> = bundles
        .iter()
        .flat_map(|bundle| bundle.seal.jobs.iter().map(String::as_str))
        .collect();
    let lost: BTreeSet<u64> = plan
        .jobs
        .iter()
        .filter(|job| !listed.contains(job.job.as_str()))
        .map(|job| shard::by_digest(&job.job, total))
        .collect();
    let is_split_by_digest = bundles.iter().all(|bundle| {
        let is_own = |job: &String| shard::by_digest(job, total) == bundle.shard.index;
        bundle.seal.jobs.iter().all(is_own)
    });
    // After a split by durations nothing here says which shard a job belongs to.
    let has_jobs = |index: &u64| match is_split_by_digest {
        true => lost.contains(index),
        false => !lost.is_empty(),
    };
    let absent: Vec<u64> = (1..=total)
        .filter(|index| !there.contains(index) && has_jobs(index))
        .collect();
    for index in absent.iter().take(LISTED) {
        missing.push(format!("shard {index}/{total} is missing"));
    }
    if absent.len() > LISTED {
        missing.push(format!("and {} missing", counted(absent.len() - LISTED, "more shard")));
    }
    missing
}

struct ReadRows {
    last: HashMap<String, RunRow>,
    call: SupervisedCall,
    /// Jobs with rows in a bundle that does not list them.
    others: BTreeSet<String>,
}

/// Passes each row of a bundle to `take`, with its paths relative to `out`, and whether the bundle lists its job. Other
/// rows are of jobs that another split left in the directory.
fn each_row(bundle: &Bundle<'_>, out: &Path, mut take: impl FnMut(RunRow, bool)) -> Result<(), BatchError> {
    let prefix = way(out, bundle.dir);
    let own: HashSet<&str> = bundle.seal.jobs.iter().map(String::as_str).collect();
    rows::each(&bundle.dir.join(rows::FILE), |mut row| {
        row.run = row.run.filter(|run| is_inside(run)).map(|run| shown(&prefix.join(run)));
        let is_own = own.contains(row.job.as_str());
        take(row, is_own);
    })?;
    Ok(())
}

/// Reads and checks the rows, and adds up what the calls used. A bundle of an early version does not say it: there all its
/// rows count, also those of jobs that it does not list.
fn read_rows(bundles: &[Bundle<'_>], out: &Path) -> Result<ReadRows, BatchError> {
    let mut found = ReadRows {
        last: HashMap::new(),
        call: SupervisedCall::default(),
        others: BTreeSet::new(),
    };
    let mut before_unread = HashMap::new();
    for bundle in bundles {
        let mut odd = None;
        let sealed = bundle.seal.call.as_ref();
        if let Some(sealed) = sealed {
            add(&mut found.call, sealed);
        }
        let read = each_row(bundle, out, |row, is_own| {
            if sealed.is_none() {
                add(&mut found.call, &used(&row));
            }
            if !is_own {
                found.others.insert(row.job);
                return;
            }
            // A later attempt may have replaced this attempt's patch, but the name is the same.
            let is_odd = |patch: &String| *patch != patch_of(&row.job) || !is_inside(patch);
            if row.patch.as_ref().is_some_and(is_odd) {
                odd.get_or_insert_with(|| row.job.clone());
            }
            evaluation::count(&mut found.call.attempts, &mut found.last, &mut before_unread, row);
        });
        if let Some(job) = odd {
            let why = format!("runs.jsonl is altered: it names another file as the patch of {job}");
            let help = "copy the bundle again";
            return Err(BatchError::Invalid(problem(bundle.shown, ALTERED, &why, help)));
        }
        read?;
    }
    Ok(found)
}

/// Writes the rows of the jobs that the bundles list.
fn write_rows(bundles: &[Bundle<'_>], out: &Path) -> Result<(), BatchError> {
    outputs::stream(&out.join(rows::FILE), |file| {
        for bundle in bundles {
            let mut written = Ok(());
            let read = each_row(bundle, out, |row, is_own| {
                if is_own && written.is_ok() {
                    written = file.write_all(row.to_line().as_bytes());
                }
            });
            written?;
            // They could be read before, so someone changes them now.
            read.map_err(std::io::Error::other)?;
        }
        Ok(())
    })
}

/// The path of a job's patch in its batch directory.
pub fn patch_of(job: &str) -> String {
    format!("patches/{job}.patch")
}

/// Removes the patch of an earlier run of a job from a batch directory.
///
/// # Errors
/// It cannot be removed; one that does not exist is no error.
pub fn remove_patch(dir: &Path, job: &str) -> Result<(), BatchError> {
    let patch = patch_of(job);
    // A plan may come from elsewhere and name jobs as it likes.
    if !is_inside(&patch) {
        return Ok(());
    }
    let path = dir.join(patch);
    match std::fs::remove_file(&path) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(BatchError::write(&path, &error)),
        _ => Ok(()),
    }
}

/// The patch that a job's last row names.
struct NamedPatch<'a> {
    bundle: &'a Bundle<'a>,
    /// Relative to the bundle.
    patch: String,
    digest: String,
}

impl NamedPatch<'_> {
    fn place(&self) -> PathBuf {
        self.bundle.dir.join(&self.patch)
    }

    /// Its bytes, after checking their digest.
    fn read(&self) -> Result<Vec<u8>, BatchError> {
        let wrong =
            |code: &str, why: &str| BatchError::Invalid(problem(self.bundle.shown, code, why, "copy the bundle again"));
        let patch = &self.patch;
        let bytes =
            std::fs::read(self.place()).map_err(|error| wrong(CUT, &format!("{patch} cannot be read: {error}")))?;
        match bundle::is_patch(&bytes, &self.digest) {
            true => Ok(bytes),
            false => Err(wrong(ALTERED, &format!("{patch} is altered: its digest is another"))),
        }
    }
}

fn named_patches<'a>(bundles: &'a [Bundle<'a>], last: &HashMap<String, RunRow>) -> Vec<NamedPatch<'a>> {
    let of_bundle = |bundle: &'a Bundle<'a>| {
        bundle.seal.jobs.iter().filter_map(move |job| {
            let row = last.get(job)?;
            Some(NamedPatch {
                bundle,
                patch: row.patch.clone()?,
                digest: row.patch_digest.clone()?,
            })
        })
    };
    bundles.iter().flat_map(of_bundle).collect()
}

/// Copies these patches, and removes those that an earlier merge wrote for jobs that have none now.
fn write_patches(patches: &[NamedPatch<'_>], jobs: &[JobReport], out: &Path) -> Result<(), BatchError> {
    let mut kept: HashSet<&str> = HashSet::new();
    for patch in patches {
        let to = out.join(&patch.patch);
        if to != patch.place() {
            artefacts::replace(&to, &patch.read()?)?;
        }
        kept.insert(&patch.patch);
    }
    for job in jobs.iter().filter(|job| !kept.contains(patch_of(&job.job).as_str())) {
        remove_patch(out, &job.job)?;
    }
    Ok(())
}

/// What the run of a row used.
fn used(row: &RunRow) -> SealedCall {
    SealedCall {
        turns: row.turns,
        tokens: row.tokens,
        cost_micros: micros(row.cost),
        unpriced: row.unpriced,
        started: row.started,
        ended: row.ended,
        ..SealedCall::default()
    }
}

fn add(call: &mut SupervisedCall, used: &SealedCall) {
    call.spent = JobSpending {
        turns: call.spent.turns.saturating_add(used.turns),
        tokens: call.spent.tokens.saturating_add(used.tokens),
        cost_micros: call.spent.cost_micros.saturating_add(used.cost_micros),
    };
    call.unpriced |= used.unpriced;
    call.started = least(call.started, used.started);
    call.ended = call.ended.max(used.ended);
}

/// The report of a job with its last row, as its call left it. A row of an earlier call is no result of this one.
fn report(job: &str, row: Option<RunRow>, left: Option<JobLeft>) -> JobReport {
    let (disposition, left) = match left {
        Some(left) if left.state == UP_TO_DATE => (JobDisposition::UpToDate, None),
        Some(left) if left.state == SKIPPED => (JobDisposition::Skipped, Some(left)),
        left => (JobDisposition::Run, left),
    };
    let (state, message, exit_code) = match (&left, &row) {
        (Some(left), _) => (left.state.clone(), left.message.clone(), left.exit_code),
        (None, Some(row)) => (row.verdict.clone(), row.message.clone(), row.exit_code),
        (None, None) => (
            NOT_RUN.to_owned(),
            "no bundle has a row for it".to_owned(),
            exit::INCOMPLETE,
        ),
    };
    let is_interrupted = left.is_some_and(|left| left.state != NOT_RUN && left.state != SKIPPED);
    JobReport {
        job: job.to_owned(),
        disposition,
        state,
        message,
        exit_code,
        row: row.filter(|_| !is_interrupted),
    }
}

/// The relative path from the output directory to a bundle.
fn way(out: &Path, bundle: &Path) -> PathBuf {
    let absolute = |path: &Path| std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    relative(&absolute(out), &absolute(bundle))
}

/// The relative path from one absolute directory to another.
fn relative(from: &Path, to: &Path) -> PathBuf {
    let (from, to): (Vec<_>, Vec<_>) = (from.components().collect(), to.components().collect());
    let shared = from.iter().zip(&to).take_while(|(a, b)| a == b).count();
    let up = std::iter::repeat_n(Component::ParentDir, from.len() - shared);
    up.chain(to.iter().skip(shared).copied()).collect()
}

fn shown(path: &Path) -> String {
    path.to_string_lossy().into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ways_between_directories() {
        let way = |from: &str, to: &str| shown(&relative(Path::new(from), Path::new(to)));
        assert_eq!(way("/a/b", "/a/b/shards/1"), "shards/1");
        assert_eq!(way("/a/b", "/a/c/d"), "../c/d");
        assert_eq!(way("/a", "/a"), "");
        assert!(is_inside("jobs/a/b") && !is_inside("../x") && !is_inside("/x") && !is_inside(""));
    }
}
