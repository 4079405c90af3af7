//! Reads `runs.jsonl` of a batch directory as a list of runs to deliver. Opens no run directory.

use super::deliverable::BatchJob;
use crate::base::address::has_host;
use serde::{Deserialize, Deserializer};
use serde_json::Value;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::path::{Component, Path, PathBuf};

/// The file of a batch directory with one line for each run.
pub const RUNS: &str = "runs.jsonl";

/// The key with which a manifest names a target.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
enum TargetKind {
    Path,
    Repo,
}

/// The fields of such a line that deliveries need.
#[derive(Clone, Debug, Deserialize)]
struct RunLine {
    job: String,
    #[serde(default)]
    recipe: String,
    #[serde(default)]
    target: Value,
    #[serde(default)]
    target_kind: Option<TargetKind>,
    /// Where the target was; absent in rows of early versions.
    #[serde(default)]
    source: Option<String>,
    #[serde(default)]
    verdict: String,
    #[serde(default)]
    run: Option<String>,
    /// Present with null where nothing changed.
    #[serde(default, deserialize_with = "present")]
    patch_digest: Option<Option<String>>,
}

fn present<'de, D: Deserializer<'de>>(value: D) -> Result<Option<Option<String>>, D::Error> {
    Option::deserialize(value).map(Some)
}

/// Where a job had its tree from. Never relative to the current directory, which may hold another repository with the same
/// commits.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum JobSource {
    /// A directory in a local repository, by its absolute path; its remotes are those of the repository.
    Directory(PathBuf),
    /// A repository by its URL or absolute path, which is what is pushed to.
    Repository(String),
    /// A path relative to the manifest, whose directory the row does not record.
    Unrecorded(String),
    /// The row names no target.
    Unnamed,
}

impl JobSource {
    fn is_known(&self) -> bool {
        matches!(self, Self::Directory(_) | Self::Repository(_))
    }

    /// The place as it is recorded; empty if there is none.
    pub fn text(&self) -> String {
        match self {
            Self::Directory(dir) => dir.to_string_lossy().into_owned(),
            Self::Repository(text) | Self::Unrecorded(text) => text.clone(),
            Self::Unnamed => String::new(),
        }
    }
}

/// A job of the plan, as the manifest names it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JobOfPlan {
    pub job: String,
    pub recipe: String,
    /// A path or URL.
    pub target: String,
}

/// Where a job of the plan has its tree from, also one that has not run yet. It tells which jobs work on one repository, and
/// nothing is delivered there: of a job without a row it is what the rows of other jobs make likely.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JobPlace {
    pub job: String,
    pub recipe: String,
    pub source: JobSource,
}

/// A run of a batch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BatchRun {
    pub job: BatchJob,
    pub verdict: String,
    /// The run directory.
    pub dir: Option<PathBuf>,
    pub source: JobSource,
    /// The job's target, as the manifest names it; empty if the row names none.
    pub target: String,
    /// SHA-256 of the patch that the batch recorded; `Some(None)` when it recorded none, `None` when the row says nothing.
    pub patch_digest: Option<Option<String>>,
}

impl BatchRun {
    /// Whether a run with this patch can be the one that the batch recorded.
    #[must_use]
    pub fn is_of(&self, patch: &[u8], digest: &str) -> bool {
        match &self.patch_digest {
            Some(Some(recorded)) => recorded == digest,
            Some(None) => patch.is_empty(),
            None => true,
        }
    }
}

/// The runs of a batch directory.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BatchRuns {
    /// The last run of every job of the plan, in the order in which the jobs first appear.
    pub runs: Vec<BatchRun>,
    /// Jobs with rows that the plan does not have any more, in the same order.
    pub unplanned: Vec<String>,
    /// Every job of the plan, with or without a row.
    pub places: Vec<JobPlace>,
}

/// Reads the rows of a batch. `planned`: the jobs of its plan; `None` if it has no plan, so that all rows count. No job has
/// its name in its branch yet: see [`jobs_sharing_a_branch_target`].
///
/// # Errors
/// One sentence for each invalid line.
pub fn runs(text: &str, dir: &Path, planned: Option<&[JobOfPlan]>) -> Result<BatchRuns, Vec<String>> {
    let mut order: Vec<String> = Vec::new();
    let mut last: BTreeMap<String, RunLine> = BTreeMap::new();
    let mut problems = Vec::new();
    let lines: Vec<&str> = text.lines().collect();
    for (at, line) in lines.iter().enumerate() {
        if line.trim().is_empty() {
            continue;
        }
        match serde_json::from_str::<RunLine>(line) {
            Ok(found) => {
                if !last.contains_key(&found.job) {
                    order.push(found.job.clone());
                }
                last.insert(found.job.clone(), found);
            }
            // A torn last line: the batch is still running, or was killed.
            Err(_) if at + 1 == lines.len() && !text.ends_with('\n') => {}
            Err(error) => problems.push(format!("{RUNS}:{}: {error}", at + 1)),
        }
    }
    // Rows of jobs that were taken out of the manifest stay in the file, but their changes are no longer delivered.
    let names: Option<HashSet<&str>> = planned.map(|planned| planned.iter().map(|job| job.job.as_str()).collect());
    let is_planned = |job: &String| names.as_ref().is_none_or(|names| names.contains(job.as_str()));
    let (order, unplanned): (Vec<String>, Vec<String>) = order.into_iter().partition(is_planned);
    last.retain(|job, _| is_planned(job));
    let places = match planned {
        Some(planned) => places(planned, &last),
        None => places(&last.values().map(job_of_row).collect::<Vec<_>>(), &last),
    };
    let mut runs = Vec::new();
    for job in order {
        let Some(line) = last.get(&job) else { continue };
        let run = match line.run.as_deref().map(|run| inside(run, dir)) {
            Some(None) => {
                problems.push(format!("{RUNS}: the run of {job} is outside the batch directory"));
                None
            }
            Some(found) => found,
            None => None,
        };
        runs.push(BatchRun {
            job: BatchJob {
                name: job.clone(),
                in_branch: false,
            },
            verdict: line.verdict.clone(),
            dir: run,
            source: source(line),
            target: repository(&line.target).unwrap_or_default(),
            patch_digest: line.patch_digest.clone(),
        });
    }
    match problems.is_empty() {
        true => Ok(BatchRuns {
            runs,
            unplanned,
            places,
        }),
        false => Err(problems),
    }
}

/// The jobs whose branch goes to the same repository as that of another job of their recipe. `destinations`: the repository of
/// each of the places, in any spelling that is equal for one repository.
pub fn jobs_sharing_a_branch_target(places: &[JobPlace], destinations: &[String]) -> HashSet<String> {
    let of = || places.iter().zip(destinations);
    // Counted once: a batch may have tens of thousands of jobs.
    let mut counts: HashMap<(&str, &str), usize> = HashMap::new();
    for (place, destination) in of() {
        *counts.entry((&place.recipe, destination)).or_default() += 1;
    }
    let is_one_of_several = |place: &JobPlace, destination: &str| {
        let count = counts.get(&(place.recipe.as_str(), destination));
        count.is_some_and(|count| *count > 1)
    };
    of().filter(|(place, destination)| is_one_of_several(place, destination))
        .map(|(place, _)| place.job.clone())
        .collect()
}

fn job_of_row(line: &RunLine) -> JobOfPlan {
    JobOfPlan {
        job: line.job.clone(),
        recipe: line.recipe.clone(),
        target: repository(&line.target).unwrap_or_default(),
    }
}

/// The places of these jobs. `last`: the last row of each job that has one.
fn places(planned: &[JobOfPlan], last: &BTreeMap<String, RunLine>) -> Vec<JobPlace> {
    let recorded = |line: &&RunLine| line.source.as_ref().is_some_and(|place| !place.is_empty());
    let by_target: HashMap<String, &RunLine> = last
        .values()
        .filter(recorded)
        .filter_map(|line| Some((repository(&line.target)?, line)))
        .collect();
    let manifest = last.values().find_map(manifest_dir);
    let place = |job: &JobOfPlan| {
        let own = last.get(&job.job).map(source).filter(JobSource::is_known);
        let of_target = || by_target.get(&job.target).map(|line| source(line));
        JobPlace {
            job: job.job.clone(),
            recipe: job.recipe.clone(),
            source: own
                .or_else(of_target)
                .unwrap_or_else(|| guess_source(&job.target, manifest.as_deref())),
        }
    };
    planned.iter().map(place).collect()
}

/// The directory to which the targets of the manifest are relative, if the row tells it.
fn manifest_dir(line: &RunLine) -> Option<PathBuf> {
    let place = Path::new(line.source.as_deref().filter(|place| Path::new(place).is_absolute())?);
    let target = repository(&line.target)?;
    let relative: PathBuf = Path::new(&target)
        .components()
        .filter(|part| *part != Component::CurDir)
        .collect();
    let above = place.ancestors().nth(relative.components().count())?;
    (relative.is_relative() && place.ends_with(&relative)).then(|| above.to_owned())
}

/// Where a job without a row most likely has its tree from.
fn guess_source(target: &str, manifest: Option<&Path>) -> JobSource {
    if target.is_empty() {
        return JobSource::Unnamed;
    }
    if has_host(target) {
        return JobSource::Repository(target.to_owned());
    }
    match (manifest, Path::new(target).is_absolute()) {
        (_, true) => JobSource::Directory(PathBuf::from(target)),
        (Some(manifest), false) => JobSource::Directory(manifest.join(target)),
        (None, false) => JobSource::Unrecorded(target.to_owned()),
    }
}

/// A path inside the batch directory; `None` for one that leaves it.
fn inside(path: &str, dir: &Path) -> Option<PathBuf> {
    let given = Path::new(path);
    let plain = given
        .components()
        .all(|part| matches!(part, Component::Normal(_) | Component::CurDir));
    (plain && !path.is_empty()).then(|| dir.join(given))
}

/// The repository in a target: `{repo}` or `{path}`, or the text itself.
fn repository(target: &Value) -> Option<String> {
    let named = |key: &str| target.get(key).and_then(Value::as_str);
    let text = target.as_str().or(named("repo")).or(named("path"));
    text.filter(|text| !text.is_empty()).map(str::to_owned)
}

/// Where the job of a row had its tree from.
fn source(line: &RunLine) -> JobSource {
    let named = |key: &str| line.target.get(key).is_some();
    let kind = line.target_kind.or(match (named("repo"), named("path")) {
        (true, _) => Some(TargetKind::Repo),
        (false, true) => Some(TargetKind::Path),
        (false, false) => None,
    });
    let recorded = line.source.clone().filter(|text| !text.is_empty());
    let Some(text) = recorded.or_else(|| repository(&line.target)) else {
        return JobSource::Unnamed;
    };
    match (kind, Path::new(&text).is_absolute()) {
        (Some(TargetKind::Repo), true) => JobSource::Repository(text),
        (_, true) => JobSource::Directory(PathBuf::from(text)),
        (Some(TargetKind::Path), false) => JobSource::Unrecorded(text),
        (_, false) if has_host(&text) => JobSource::Repository(text),
        (_, false) => JobSource::Unrecorded(text),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_line_of_a_job_counts() {
        let text = r#"{"job":"a","recipe":"r","target":{"repo":"https://h/o/n"},"verdict":"failed","run":"jobs/a/1"}
{"job":"b","recipe":"r","target":{"repo":"https://h/o/n"},"verdict":"passed","run":"jobs/b/1"}
{"job":"c","recipe":"r","target":{"path":"../c"},"verdict":"passed","run":"jobs/c/1"}
{"job":"a","recipe":"r","target":{"repo":"https://h/o/n"},"verdict":"passed","run":"jobs/a/2"}
{"job":"d","reci"#;
        let runs = runs(text, Path::new("/b"), None).unwrap().runs;
        let seen: Vec<_> = runs
            .iter()
            .map(|run| (run.job.name.as_str(), run.dir.clone().unwrap()))
            .collect();
        assert_eq!(
            seen,
            [
                ("a", PathBuf::from("/b/jobs/a/2")),
                ("b", PathBuf::from("/b/jobs/b/1")),
                ("c", PathBuf::from("/b/jobs/c/1")),
            ]
        );
        assert_eq!(runs[0].source, JobSource::Repository("https://h/o/n".to_owned()));
        assert_eq!(runs[2].source, JobSource::Unrecorded("../c".to_owned()));
    }

    #[test]
    fn a_path_is_taken_from_the_record_and_never_from_the_current_directory() {
        let repository = |text: &str| JobSource::Repository(text.to_owned());
        let directory = |text: &str| JobSource::Directory(PathBuf::from(text));
        let unrecorded = |text: &str| JobSource::Unrecorded(text.to_owned());
        for (fields, expected) in [
            (
                r#""target":"../w","target_kind":"path","source":"/m/../w""#,
                directory("/m/../w"),
            ),
            (
                r#""target":"w.git","target_kind":"repo","source":"/m/w.git""#,
                repository("/m/w.git"),
            ),
            (
                r#""target":"git@h:o/n","target_kind":"repo","source":"git@h:o/n""#,
                repository("git@h:o/n"),
            ),
            (
                r#""target":"a:b","target_kind":"path","source":"/m/a:b""#,
                directory("/m/a:b"),
            ),
            (r#""target":"a:b","target_kind":"path""#, unrecorded("a:b")),
            (r#""target":"../w","target_kind":"path","source":"w""#, unrecorded("w")),
            // Rows of early versions.
            (r#""target":"/w""#, directory("/w")),
            (r#""target":"./w:x""#, unrecorded("./w:x")),
            (r#""target":"ssh://h/n""#, repository("ssh://h/n")),
            (r#""target":{"repo":"/w.git"}"#, repository("/w.git")),
            (r#""recipe":"r""#, JobSource::Unnamed),
        ] {
            let found = runs(&format!("{{\"job\":\"a\",{fields}}}\n"), Path::new("/b"), None).unwrap();
            assert_eq!(found.runs[0].source, expected, "{fields}");
        }
        let wrong = "{\"job\":\"a\",\"target\":\"w\",\"target_kind\":\"x\"}\n";
        assert!(runs(wrong, Path::new("/b"), None).is_err());
    }

    /// A job that was taken out of the manifest makes no second job of its recipe for a repository either.
    #[test]
    fn only_jobs_of_the_plan_are_delivered() {
        let text =
            "{\"job\":\"a\",\"recipe\":\"r\",\"target\":\"n\"}\n{\"job\":\"b\",\"recipe\":\"r\",\"target\":\"n\"}\n";
        let planned = ["b", "c"].map(|job| of_plan(job, "n"));
        let found = runs(text, Path::new("/b"), Some(&planned)).unwrap();
        assert_eq!(found.unplanned, ["a"]);
        let names: Vec<_> = found.runs.iter().map(|run| run.job.name.as_str()).collect();
        assert_eq!(names, ["b"]);
        let places: Vec<_> = found.places.iter().map(|place| place.job.as_str()).collect();
        assert_eq!(places, ["b", "c"]);
    }

    fn of_plan(job: &str, target: &str) -> JobOfPlan {
        JobOfPlan {
            job: job.to_owned(),
            recipe: "r".to_owned(),
            target: target.to_owned(),
        }
    }

    /// Which jobs share a repository depends on the plan alone, so that the name of a branch stays the same while rows are
    /// added.
    #[test]
    fn a_job_without_a_row_has_a_place() {
        let planned = [
            of_plan("a", "./w/x"),
            of_plan("b", "w"),
            of_plan("c", "https://h/o/n"),
            of_plan("d", "/abs"),
            of_plan("e", "."),
            of_plan("f", "./w/x"),
        ];
        let rows = [
            ("a", "./w/x", "/m/w/x"),
            ("b", "w", "/m/w"),
            ("c", "https://h/o/n", "https://h/o/n"),
            ("d", "/abs", "/abs"),
            ("e", ".", "/m"),
            ("f", "./w/x", "/m/w/x"),
        ];
        let expected: Vec<String> = rows.iter().map(|(_, _, place)| (*place).to_owned()).collect();
        for local in [0, 1, 4, 5] {
            let (job, target, place) = rows[local];
            let text = format!(
                "{{\"job\":\"{job}\",\"recipe\":\"r\",\"target\":\"{target}\",\"target_kind\":\"path\",\"source\":\"{place}\"}}\n"
            );
            let found = runs(&text, Path::new("/b"), Some(&planned)).unwrap();
            let places: Vec<String> = found.places.iter().map(|place| place.source.text()).collect();
            // The paths are compared as paths: `.` has no meaning in them.
            let paths = |all: &[String]| all.iter().map(PathBuf::from).collect::<Vec<_>>();
            assert_eq!(paths(&places), paths(&expected), "{job}");
        }
        let found = runs("", Path::new("/b"), Some(&planned)).unwrap();
        assert_eq!(found.places[0].source, JobSource::Unrecorded("./w/x".to_owned()));
    }

    #[test]
    fn a_batch_of_many_jobs_is_read_at_once() {
        let text: String = (0..20_000)
            .map(|n| {
                let repository = n % 10_000;
                format!("{{\"job\":\"j{n}\",\"recipe\":\"r\",\"target\":{{\"repo\":\"https://h/o/{repository}\"}}}}\n")
            })
            .collect();
        let begun = std::time::Instant::now();
        let found = runs(&text, Path::new("/b"), None).unwrap();
        let destinations: Vec<String> = found.places.iter().map(|place| place.source.text()).collect();
        let shared = jobs_sharing_a_branch_target(&found.places, &destinations);
        // Comparing each with each takes most of a minute.
        assert!(begun.elapsed().as_secs() < 10, "{:?}", begun.elapsed());
        assert_eq!((found.runs.len(), shared.len()), (20_000, 20_000));
    }

    #[test]
    fn wrong_lines_and_runs_elsewhere_are_named() {
        let problems = super::runs(
            "{\"job\":1}\n{\"job\":\"a\",\"run\":\"../../etc\"}\n",
            Path::new("/b"),
            None,
        )
        .unwrap_err();
        assert_eq!(problems.len(), 2, "{problems:?}");
    }
}
