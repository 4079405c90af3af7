//! Expands a manifest into jobs: every combination of target, parameters, model and trial, each with a stable name and,
//! once its inputs are known, a digest of all inputs.

use super::manifest::{BatchManifest, BatchSettings, TargetSource, TargetSpec};
use super::sealed_file::sealed_file;
use super::sources::{ResolvedSource, TreeSource};
use crate::base::budget::Budget;
use crate::base::ids::sha256_hex;
use crate::base::model_name::{REPLAY, SCRIPT, is_played};
use crate::base::slug::slug;
use crate::diag::reader::Problems;
use crate::diag::{Diagnostic, MapEntry, Shape, SourceFiles, Span, Spanned, YamlNode};
use crate::journal::{format, run_dirs};
use futures_util::future::LocalBoxFuture;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::path::{Path, PathBuf};

/// Limit of jobs of one manifest.
const MAX_JOBS: usize = 1_000_000;
/// The value of `schema` in `plan.json`.
pub const SCHEMA: &str = "overnight/batch-plan/v1";
/// The file name of the plan.
pub const FILE: &str = "plan.json";
/// Hexadecimal digits of the job's digest in the name of its run directory.
const DIGEST_SHOWN: usize = 12;
/// Hexadecimal digits of the identity in a job's name.
const NAME_HASH: usize = 8;
/// Length limit of the readable part of a job's name, in bytes.
const NAME_TEXT: usize = 80;

/// The identity of a job: a row of `plan.json`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct JobIdentity {
    /// The job's name, which is also its directory.
    pub job: String,
    /// As given in the manifest.
    pub id: Option<String>,
    /// Pairs the job with jobs of other models and recipe versions: its `id`, or else the short name of its target.
    pub name: String,
    /// As the manifest names it.
    pub recipe: String,
    /// As the manifest, the command line and the environment name them.
    #[serde(default)]
    pub policies: Vec<String>,
    /// A path or URL.
    pub target: String,
    #[serde(rename = "ref")]
    pub git_ref: Option<String>,
    pub params: Map<String, Value>,
    /// SHA-256 of the input.
    pub input: Option<String>,
    /// The model named by the manifest, the command line or the environment; null where the recipe names it.
    pub model: Option<String>,
    pub trial: u64,
}

/// A job of the plan.
#[derive(Clone, Debug)]
pub struct PlannedJob {
    pub identity: JobIdentity,
    pub source: TreeSource,
    /// Parameters with their positions.
    pub params: Option<YamlNode>,
    pub input: Option<Value>,
    /// The position of the input, if it is a line of a list.
    pub input_at: Vec<Span>,
    /// Position in the manifest.
    pub head: Span,
    /// Recipe, policies and model, as arguments of `overnight run`.
    pub arguments: RunArguments,
    pub places: ArgumentPlaces,
    /// Set once the recipe has been read.
    pub inputs: JobInputs,
}

/// File names for a run, relative to the directory in which the batch was started.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct RunArguments {
    pub recipe: String,
    pub policies: Vec<String>,
    pub model: Option<String>,
}

/// Where a manifest or a list of targets names the arguments of a run. The command line has no positions.
#[derive(Clone, Debug, Default)]
pub struct ArgumentPlaces {
    pub recipe: Option<Span>,
    /// Of the first policies; those of the command line follow them.
    pub policies: Vec<Span>,
    pub model: Option<Span>,
}

/// What reading the recipe and policies of a job yields.
#[derive(Clone, Debug, Default)]
pub struct JobInputs {
    /// The recipe's own name.
    pub recipe: String,
    /// SHA-256 over recipe, policies and the files that they name; empty when these are read from the target's own
    /// commits.
    pub digest: String,
    /// The model that will be asked, where it is known.
    pub model: Option<String>,
    /// The limits of one run, with the default for the cost where the price is known. A cost limit of 0 means that the
    /// run cannot cost anything.
    pub budget: Budget,
    /// The models that the run asks: its own, and its fallbacks in order. Empty when it asks none; `None` when the recipe
    /// is read only when the job runs.
    pub models: Option<Vec<String>>,
}

/// Reads recipes and policies for a plan, and checks the values of each job against them.
pub trait RecipeReader {
    /// # Errors
    /// All problems, each with its position in the recipe or the manifest.
    fn read<'a>(
        &'a mut self,
        job: &'a PlannedJob,
        files: &'a mut SourceFiles,
    ) -> LocalBoxFuture<'a, Result<JobInputs, Vec<Diagnostic>>>;
}

/// Settings that the command line and the environment add to the manifest.
#[derive(Clone, Debug, Default)]
pub struct PlanFlags {
    pub recipe: Option<String>,
    pub policies: Vec<String>,
    pub models: Vec<String>,
}

/// All jobs of a manifest.
#[derive(Clone, Debug)]
pub struct BatchPlan {
    pub name: String,
    pub jobs: Vec<PlannedJob>,
    pub settings: BatchSettings,
    /// SHA-256 over the identities of the jobs; their inputs do not count.
    pub manifest: String,
    pub trials: u64,
}

/// `plan.json`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PlanFile {
    pub schema: String,
    pub name: String,
    pub manifest: String,
    #[serde(default)]
    pub trials: u64,
    pub jobs: Vec<JobIdentity>,
}

/// Expands the jobs. Paths of the manifest are relative to `base`. Targets that name lists must already be replaced by
/// their lines.
pub fn expand(manifest: &BatchManifest, flags: &PlanFlags, base: &Path, problems: &mut Problems) -> BatchPlan {
    let models: Vec<NamedModel> = match flags.models.is_empty() {
        true => manifest
            .models
            .iter()
            .map(|model| (model.value.clone(), Some(model.span)))
            .collect(),
        false => flags.models.iter().map(|model| (model.clone(), None)).collect(),
    };
    let too_many = |at: Span| {
        let message = format!("the manifest makes more than {MAX_JOBS} jobs");
        Diagnostic::error("too-many-jobs", at, message).help("split it")
    };
    let Some(combinations) = combinations(&manifest.matrix) else {
        let target = manifest.targets.first();
        problems.extend(target.map(|target| too_many(target.head)));
        return finished(manifest, Vec::new());
    };
    let mut jobs: Vec<PlannedJob> = Vec::new();
    for target in &manifest.targets {
        let of_target = match &target.model {
            Some(model) => vec![Some((model.value.clone(), Some(model.span)))],
            None if models.is_empty() => vec![None],
            None => models.iter().cloned().map(Some).collect(),
        };
        let expanded = Axes {
            combinations: combinations.len() > 1,
            models: of_target.len() > 1,
            alike: alike(&of_target),
            trials: manifest.trials > 1,
        };
        for combination in &combinations {
            for model in &of_target {
                for trial in 1..=manifest.trials {
                    if jobs.len() >= MAX_JOBS {
                        problems.push(too_many(target.head));
                        return finished(manifest, jobs);
                    }
                    let one = Combination {
                        matrix: combination,
                        model: model.as_ref(),
                        trial,
                    };
                    jobs.extend(job(manifest, flags, target, &one, &expanded, base, problems));
                }
            }
        }
    }
    if let Some(missing) = jobs.iter().find(|job| job.identity.recipe.is_empty()) {
        let problem = Diagnostic::error("missing-key", missing.head, "this target has no recipe");
        problems.push(problem.help("add `recipe: FILE` to the manifest or the target, or name one with --recipe"));
    }
    let mut seen: HashMap<&str, Span> = HashMap::new();
    for job in &jobs {
        if let Some(first) = seen.insert(&job.identity.job, job.head) {
            let message = format!("the job `{}` is planned twice", job.identity.job);
            let problem = Diagnostic::error("duplicate-job", job.head, message).label(first, "first planned here");
            problems.push(problem.help("remove one of them, or give them different `id`s"));
        }
    }
    finished(manifest, jobs)
}

fn finished(manifest: &BatchManifest, jobs: Vec<PlannedJob>) -> BatchPlan {
    BatchPlan {
        name: manifest.name.value.clone(),
        manifest: manifest_digest(jobs.iter().map(|job| &job.identity)),
        jobs,
        settings: manifest.settings.clone(),
        trials: manifest.trials,
    }
}

/// SHA-256 over the identities, independent of their order.
pub fn manifest_digest<'a>(jobs: impl Iterator<Item = &'a JobIdentity>) -> String {
    let mut rows: Vec<String> = jobs.map(|job| json!(job).to_string()).collect();
    rows.sort();
    sha256_hex(&[rows.join("\n").as_bytes()])
}

/// Which axes of the plan have several values, so that an `id` alone does not identify a job.
struct Axes {
    combinations: bool,
    models: bool,
    /// The short names that several of the models have.
    alike: BTreeSet<String>,
    trials: bool,
}

/// A model, and its position if it comes from the manifest.
type NamedModel = (String, Option<Span>);

struct Combination<'a> {
    matrix: &'a [(&'a MapEntry, &'a YamlNode)],
    model: Option<&'a NamedModel>,
    trial: u64,
}

/// Every combination of the matrix; one empty combination without a matrix. `None`: there are more than [`MAX_JOBS`].
fn combinations(matrix: &[(MapEntry, Vec<YamlNode>)]) -> Option<Vec<Vec<(&MapEntry, &YamlNode)>>> {
    let count = matrix
        .iter()
        .try_fold(1_usize, |count, (_, values)| count.checked_mul(values.len()));
    count.filter(|count| *count <= MAX_JOBS)?;
    let mut all: Vec<Vec<(&MapEntry, &YamlNode)>> = vec![Vec::new()];
    for (entry, values) in matrix {
        let mut next = Vec::new();
        for done in &all {
            for value in values {
                let mut longer = done.clone();
                longer.push((entry, value));
                next.push(longer);
            }
        }
        all = next;
    }
    Some(all)
}

fn job(
    manifest: &BatchManifest,
    flags: &PlanFlags,
    target: &TargetSpec,
    one: &Combination<'_>,
    axes: &Axes,
    base: &Path,
    problems: &mut Problems,
) -> Option<PlannedJob> {
    let source = match &target.source {
        TargetSource::Path(path) => TreeSource::Path(path.value.clone()),
        TargetSource::Repo(url) => TreeSource::Repo(url.value.clone()),
        TargetSource::File(_) | TargetSource::Command(_) => return None,
    };
    let of_manifest = |name: &Spanned<String>| (name.value.clone(), beside(base, &name.value));
    let ((recipe, recipe_argument), recipe_place) = match (&target.recipe, &flags.recipe, &manifest.recipe) {
        (Some(name), _, _) => (of_manifest(name), Some(name.span)),
        (None, Some(flag), _) => ((flag.clone(), flag.clone()), None),
        (None, None, Some(name)) => (of_manifest(name), Some(name.span)),
        (None, None, None) => ((String::new(), String::new()), None),
    };
    if recipe == "-" {
        let problem = Diagnostic::error(
            "wrong-value",
            target.head,
            "a recipe of a batch cannot be read from stdin",
        );
        problems.push(problem.help("name a file"));
    }
    let mut policies: Vec<(String, String)> = manifest.policies.iter().map(of_manifest).collect();
    policies.extend(flags.policies.iter().map(|flag| (flag.clone(), flag.clone())));
    let params = merged(
        manifest.params.as_ref(),
        one.matrix,
        target.params.as_ref(),
        target.head,
        problems,
    );
    let values = match params.as_ref().map(YamlNode::to_json) {
        Some(Value::Object(values)) => values,
        _ => Map::new(),
    };
    let input = target.input.as_ref().map(YamlNode::to_json);
    let model = one.model.map(|(name, _)| name.clone());
    let mut identity = JobIdentity {
        job: String::new(),
        id: target.id.as_ref().map(|id| id.value.clone()),
        name: String::new(),
        recipe,
        policies: policies.iter().map(|(name, _)| name.clone()).collect(),
        target: source.as_str().to_owned(),
        git_ref: target.git_ref.as_ref().map(|name| name.value.clone()),
        params: values,
        input: input.as_ref().map(|input| sha256_hex(&[input.to_string().as_bytes()])),
        model,
        trial: one.trial,
    };
    identity.name = identity.id.clone().unwrap_or_else(|| short_target(&identity.target));
    identity.job = job_name(&identity, axes);
    Some(PlannedJob {
        source,
        params,
        input,
        input_at: target
            .input
            .as_ref()
            .filter(|_| target.of_list)
            .map(|node| node.span)
            .into_iter()
            .collect(),
        head: target.head,
        arguments: RunArguments {
            recipe: recipe_argument,
            policies: policies.into_iter().map(|(_, argument)| argument).collect(),
            model: one.model.map(|(name, place)| match place {
                Some(_) => model_beside(base, name),
                None => name.clone(),
            }),
        },
        places: ArgumentPlaces {
            recipe: recipe_place,
            policies: manifest.policies.iter().map(|policy| policy.span).collect(),
            model: one.model.and_then(|(_, place)| *place),
        },
        inputs: JobInputs::default(),
        identity,
    })
}

/// The path of a recipe or policy that the manifest names, relative to the directory in which the batch was started.
fn beside(base: &Path, name: &str) -> String {
    match name.starts_with("builtin:") || name.starts_with("git:") || name == "-" {
        true => name.to_owned(),
        false => base.join(name).to_string_lossy().into_owned(),
    }
}

/// A model that the manifest names, with the path of its script or recorded run as [`beside`]. A recorded run may also be
/// named by its id.
fn model_beside(base: &Path, name: &str) -> String {
    if let Some(file) = name.strip_prefix(SCRIPT) {
        return format!("{SCRIPT}{}", base.join(file).display());
    }
    match name.strip_prefix(REPLAY).map(|run| base.join(run)) {
        Some(dir) if dir.is_dir() => format!("{REPLAY}{}", dir.display()),
        _ => name.to_owned(),
    }
}

/// Merges the parameters of the manifest, the matrix and the target; later ones win, but a target must not set what the
/// matrix varies.
fn merged(
    of_all: Option<&YamlNode>,
    matrix: &[(&MapEntry, &YamlNode)],
    of_target: Option<&YamlNode>,
    head: Span,
    problems: &mut Problems,
) -> Option<YamlNode> {
    let mut entries: Vec<MapEntry> = match of_all.map(|node| &node.shape) {
        Some(Shape::Map(entries)) => entries.clone(),
        _ => Vec::new(),
    };
    let mut set = |entry: MapEntry| match entries.iter_mut().find(|known| known.key == entry.key) {
        Some(known) => *known = entry,
        None => entries.push(entry),
    };
    for (entry, value) in matrix {
        set(MapEntry {
            value: (*value).clone(),
            ..(*entry).clone()
        });
    }
    if let Some(Shape::Map(own)) = of_target.map(|node| &node.shape) {
        for entry in own {
            if let Some((varied, _)) = matrix.iter().find(|(varied, _)| varied.key == entry.key) {
                let message = format!("`{}` is varied by the matrix", entry.key);
                let problem = Diagnostic::error("duplicate-parameter", entry.key_span, message);
                problems.push(problem.label(varied.key_span, "here").help("keep one of the two"));
            }
            set(entry.clone());
        }
    }
    let span = of_target.or(of_all).map_or(head, |node| node.span);
    (!entries.is_empty()).then_some(YamlNode {
        span,
        shape: Shape::Map(entries),
    })
}

/// The short name of a target: the last part of its path.
fn short_target(target: &str) -> String {
    let trimmed = target.trim_end_matches('/').trim_end_matches(".git");
    let last = trimmed.rsplit(['/', ':']).next().unwrap_or_default();
    match slug(last).as_str() {
        "" => "here".to_owned(),
        part => part.to_owned(),
    }
}

fn model_part(model: &str) -> String {
    let last = model.rsplit('/').next().unwrap_or_default();
    slug(last.strip_prefix(SCRIPT).or(last.strip_prefix(REPLAY)).unwrap_or(last))
}

/// The short names that several of these models have.
fn alike(models: &[Option<NamedModel>]) -> BTreeSet<String> {
    let mut seen = BTreeSet::new();
    let parts = models.iter().flatten().map(|(name, _)| model_part(name));
    parts.filter(|part| !seen.insert(part.clone())).collect()
}

/// The hexadecimal digits at the end of a job's name.
fn name_hash(identity: &JobIdentity) -> String {
    let key = json!([
        identity.id,
        identity.recipe,
        identity.target,
        identity.git_ref,
        identity.params,
        identity.input,
        identity.model,
        identity.trial
    ]);
    let mut digest = sha256_hex(&[key.to_string().as_bytes()]);
    digest.truncate(NAME_HASH);
    digest
}

/// The name of a job. A given `id` is the name; each axis with several values is appended.
fn job_name(identity: &JobIdentity, axes: &Axes) -> String {
    let hash = name_hash(identity);
    let model = identity.model.as_deref().map(model_part).unwrap_or_default();
    if let Some(id) = &identity.id {
        let mut name = id.clone();
        if axes.models {
            name.push_str(&format!("-{model}"));
        }
        if axes.combinations || axes.alike.contains(&model) {
            name.push_str(&format!("-{hash}"));
        }
        if axes.trials {
            name.push_str(&format!("-t{}", identity.trial));
        }
        return name;
    }
    let file = identity.recipe.rsplit(['/', ':']).next().unwrap_or_default();
    let stem = file.trim_end_matches(".yaml").trim_end_matches(".yml");
    let mut parts = vec![slug(stem), identity.name.clone(), model];
    if identity.trial > 1 {
        parts.push(format!("t{}", identity.trial));
    }
    parts.retain(|part| !part.is_empty());
    let mut text = parts.join("-");
    text.truncate(NAME_TEXT);
    format!("{text}-{hash}")
}

/// The bytes of a script, or the digest of the journal of a recorded run; `None` where there is neither. A run in the
/// job's own tree is part of its base commit.
pub fn replies_of(model: &str) -> Option<Vec<u8>> {
    if let Some(file) = model.strip_prefix(SCRIPT) {
        return std::fs::read(file).ok();
    }
    let run = run_dirs::locate(model.strip_prefix(REPLAY)?, Path::new(".")).ok()?;
    let journal = sealed_file(&run.join(format::FILE)).ok()?;
    Some(journal.sha256.into_bytes())
}

impl PlannedJob {
    /// The digest of all inputs, once the base commit is known. `replies`: those of the job's model, as [`replies_of`]
    /// reads them; empty if it is not played.
    pub fn digest(&self, resolved: &ResolvedSource, replies: &[u8]) -> String {
        let model = self.inputs.model.as_deref();
        let key = json!({
            "inputs": self.inputs.digest,
            "commits": resolved.revisions,
            "base": resolved.commit,
            "params": self.identity.params,
            "input": self.identity.input,
            "model": self.identity.model.as_deref().or(model),
        });
        sha256_hex(&[key.to_string().as_bytes(), replies])
    }

    /// The service of the job's model, as [`service_of`] names it; stops and pauses apply to a service.
    pub fn service(&self) -> &str {
        service_of(self.model())
    }

    /// The name of the job's model; empty if it is not known.
    pub fn model(&self) -> &str {
        let model = self.arguments.model.as_deref().or(self.inputs.model.as_deref());
        model.unwrap_or_default()
    }
}

/// The vendor part of a model's name; the whole name for a script or a recorded run.
pub fn service_of(model: &str) -> &str {
    match model.split_once('/') {
        Some((vendor, _)) if !is_played(model) => vendor,
        _ => model,
    }
}

/// The directory of a run, relative to the batch directory.
pub fn run_dir(job: &str, digest: &str, attempt: u64) -> PathBuf {
    let short = digest.get(..DIGEST_SHOWN).unwrap_or(digest);
    let name = match attempt {
        1 => short.to_owned(),
        attempt => format!("{short}.{attempt}"),
    };
    Path::new("jobs").join(job).join(name)
}

/// The log of a run: beside its directory.
pub fn log_of(run: &Path) -> PathBuf {
    let mut name = run.file_name().unwrap_or_default().to_owned();
    name.push(".log");
    run.with_file_name(name)
}

impl BatchPlan {
    /// What `plan.json` holds.
    pub fn file(&self) -> PlanFile {
        PlanFile {
            schema: SCHEMA.to_owned(),
            name: self.name.clone(),
            manifest: self.manifest.clone(),
            trials: self.trials,
            jobs: self.jobs.iter().map(|job| job.identity.clone()).collect(),
        }
    }
}

/// Limit of differences that are listed.
const MAX_LISTED: usize = 20;

impl PlanFile {
    /// The differences to another plan, one line each; empty when the jobs are the same.
    pub fn changes(&self, now: &PlanFile) -> Vec<String> {
        let index = |plan: &'_ PlanFile| -> BTreeMap<String, JobIdentity> {
            plan.jobs.iter().map(|job| (job.job.clone(), job.clone())).collect()
        };
        let (old, new) = (index(self), index(now));
        let mut lines = Vec::new();
        for (name, job) in &new {
            match old.get(name) {
                None => lines.push(format!("new job {name}: {}", job.describe())),
                Some(before) if before != job => lines.push(format!("job {name}: {}", before.difference(job))),
                Some(_) => {}
            }
        }
        for (name, job) in old.iter().filter(|(name, _)| !new.contains_key(*name)) {
            lines.push(format!("removed job {name}: {}", job.describe()));
        }
        if lines.len() > MAX_LISTED {
            let more = lines.len() - MAX_LISTED;
            lines.truncate(MAX_LISTED);
            lines.push(format!("and {more} more"));
        }
        lines
    }
}

impl JobIdentity {
    /// The part of the job's name before its hexadecimal digits, the digits, and the part behind them. The last two are
    /// empty for a name without digits.
    pub fn name_parts(&self) -> [&str; 3] {
        let digits = name_hash(self);
        let Some(at) = self.job.rfind(&format!("-{digits}")) else {
            return [&self.job, "", ""];
        };
        let (before, rest) = self.job.split_at(at);
        let (digits, after) = rest.split_at(1 + digits.len());
        [before, digits.trim_start_matches('-'), after]
    }

    /// The job's name without its hexadecimal digits.
    pub fn readable_name(&self) -> String {
        let [before, _, after] = self.name_parts();
        format!("{before}{after}")
    }

    /// The parameters, each as `NAME=VALUE`; a value that is not a plain text as JSON.
    pub fn param_texts(&self) -> Vec<String> {
        let text = |value: &Value| match value {
            Value::String(text)
                if !text.is_empty() && !text.contains(|c: char| c.is_whitespace() || c.is_control()) =>
            {
                text.clone()
            }
            value => value.to_string(),
        };
        self.params
            .iter()
            .map(|(name, value)| format!("{name}={}", text(value)))
            .collect()
    }

    fn describe(&self) -> String {
        let mut text = format!("recipe {}, target {}", self.recipe, self.target);
        if let Some(name) = &self.git_ref {
            text.push_str(&format!(", ref {name}"));
        }
        if !self.params.is_empty() {
            text.push_str(&format!(", params {}", Value::Object(self.params.clone())));
        }
        if let Some(model) = &self.model {
            text.push_str(&format!(", model {model}"));
        }
        if self.trial > 1 {
            text.push_str(&format!(", trial {}", self.trial));
        }
        text
    }

    fn difference(&self, now: &JobIdentity) -> String {
        let (old, new) = (json!(self), json!(now));
        let fields = old.as_object().into_iter().flatten();
        let changed = fields.filter_map(|(key, value)| {
            let other = new.get(key).unwrap_or(&Value::Null);
            (other != value).then(|| format!("{key} {value} → {other}"))
        });
        changed.collect::<Vec<_>>().join(", ")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::batch::manifest;
    use crate::diag;

    fn plan(text: &str) -> (BatchPlan, Vec<&'static str>) {
        let mut files = SourceFiles::new();
        let file = files.add("m.yaml", text);
        let root = diag::parse(&files, file).unwrap();
        let mut problems = Vec::new();
        let manifest = manifest::parse(&files, &root, "m", &mut problems).unwrap();
        let plan = expand(&manifest, &PlanFlags::default(), Path::new("/b"), &mut problems);
        (plan, problems.iter().map(|problem| problem.code).collect())
    }

    fn names(plan: &BatchPlan) -> Vec<&str> {
        plan.jobs.iter().map(|job| job.identity.job.as_str()).collect()
    }

    const TWO: &str = "version: 1\nrecipe: r/fix.yaml\ntargets:\n  - { path: ../a }\n  - { repo: \"https://h/x/b.git\", ref: main }\n";

    #[test]
    fn names_stay_when_other_jobs_are_added() {
        let (plan_a, problems) = plan(TWO);
        assert_eq!(problems, [""; 0]);
        assert!(names(&plan_a)[0].starts_with("fix-a-") && names(&plan_a)[1].starts_with("fix-b-"));
        let (more, _) = plan(&format!("{TWO}  - {{ path: ../c }}\n"));
        assert_eq!(names(&more)[..2], names(&plan_a)[..]);
        assert_ne!(more.manifest, plan_a.manifest);
        let changes = plan_a.file().changes(&more.file());
        assert_eq!(changes.len(), 1, "{changes:?}");
        let (trials, _) = plan(&TWO.replace("recipe:", "trials: 2\nrecipe:"));
        assert!(
            names(&trials).contains(&names(&plan_a)[0]),
            "the first trial keeps the name"
        );
        assert_eq!(trials.jobs.len(), 4);
    }

    #[test]
    fn every_combination_is_a_job() {
        let (plan, problems) = plan(
            "version: 1\nrecipe: r.yaml\nmodels: [a/x, a/y]\ntrials: 2\nmatrix: { p: [1, 2], q: [u, v, w] }\nparams: { z: 0 }\n\
             targets:\n  - { path: ., id: one }\n",
        );
        assert_eq!(problems, [""; 0]);
        assert_eq!(plan.jobs.len(), 2 * 3 * 2 * 2);
        let mut all = names(&plan);
        all.sort_unstable();
        all.dedup();
        assert_eq!(all.len(), plan.jobs.len());
        assert_eq!(
            plan.jobs[0].identity.params,
            *json!({"z": 0, "p": 1, "q": "u"}).as_object().unwrap()
        );
    }

    #[test]
    fn a_given_id_is_the_name() {
        let (plan, _) =
            plan("version: 1\nrecipe: r.yaml\ntargets:\n  - { path: ., id: one }\n  - { path: ., id: two }\n");
        assert_eq!(names(&plan), ["one", "two"]);
    }

    #[test]
    fn models_whose_names_end_alike_have_jobs_of_their_own() {
        let head = "version: 1\nrecipe: r.yaml\ntargets: [{ path: ., id: one }]\nmodels:";
        let (alike, problems) = plan(&format!("{head} [a/x, b/x, a/y]\n"));
        assert_eq!(problems, [""; 0]);
        assert!(names(&alike)[0].starts_with("one-x-") && names(&alike)[1].starts_with("one-x-"));
        assert_eq!(names(&alike)[2], "one-y", "other names stay");
        assert_eq!(alike.jobs[0].identity.readable_name(), "one-x");
        let (_, problems) = plan(&format!("{head} [a/x, a/x]\n"));
        assert!(!problems.is_empty(), "the same model twice");
    }

    #[test]
    fn a_name_is_told_from_its_digits() {
        let (plan, _) = plan(
            "version: 1\nrecipe: r.yaml\ntrials: 2\nmatrix: { p: [1, 'a b'] }\ntargets:\n  - { path: ., id: one }\n  - { path: ../a }\n",
        );
        let first = &plan.jobs[0].identity;
        let [before, digits, after] = first.name_parts();
        assert_eq!((before, digits.len(), after), ("one", NAME_HASH, "-t1"));
        let last = &plan.jobs[plan.jobs.len() - 1].identity;
        assert_eq!(last.readable_name(), "r-a-t2");
        assert_eq!(last.param_texts(), ["p=\"a b\""]);
    }

    #[test]
    fn the_same_job_twice_is_an_error() {
        let (_, problems) = plan("version: 1\nrecipe: r.yaml\ntargets:\n  - { path: . }\n  - { path: . }\n");
        assert_eq!(problems, ["duplicate-job"]);
        let (_, problems) = plan("version: 1\ntargets:\n  - { path: . }\n");
        assert_eq!(problems, ["missing-key"]);
    }
}
