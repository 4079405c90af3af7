//! Parses the manifest of a batch (YAML or JSON Lines) and reports every problem with its position. Pure: reads no
//! file.

use crate::base::budget::{Budget, micros};
use crate::diag::reader::{Problems, refuse_empty};
use crate::diag::{Diagnostic, MapEntry, Reader, Shape, SourceFiles, Span, Spanned, YamlNode, units};
use std::time::Duration;

/// Limit of trials for one job.
const MAX_TRIALS: u64 = 1_000;
/// Consecutive failures of the model service that stop a batch, unless `stop.provider_failures` is set.
const PROVIDER_FAILURES: u64 = 5;
/// Length limit of an `id`, in bytes.
const MAX_ID: usize = 100;

/// Keys whose values are those of the recipe's parameters and input.
const FREE: [&str; 3] = ["params", "matrix", "input"];

/// A manifest as it was written.
#[derive(Clone, Debug)]
pub struct BatchManifest {
    pub name: Spanned<String>,
    /// The recipe of jobs that name none themselves.
    pub recipe: Option<Spanned<String>>,
    /// Policies of all jobs; every one must allow a call.
    pub policies: Vec<Spanned<String>>,
    pub models: Vec<Spanned<String>>,
    /// Number of trials of each job.
    pub trials: u64,
    /// Parameters of all jobs: a map.
    pub params: Option<YamlNode>,
    /// Parameters with several values each; every combination is a job.
    pub matrix: Vec<(MapEntry, Vec<YamlNode>)>,
    pub targets: Vec<TargetSpec>,
    pub settings: BatchSettings,
    /// Position of the file's first key.
    pub head: Span,
}

/// How jobs are run; not part of a job's identity.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct BatchSettings {
    /// Limits of all jobs of one call together.
    pub budget: Budget,
    /// Minimum interval between two requests of all jobs together.
    pub interval: Option<Duration>,
    pub stop: StopRules,
    pub retry: RetryRules,
}

/// When to stop starting jobs.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct StopRules {
    /// Consecutive attempts that ended with verdict `provider`.
    pub provider_failures: u64,
    pub failed: Option<FailedLimit>,
}

impl Default for StopRules {
    fn default() -> Self {
        Self {
            provider_failures: PROVIDER_FAILURES,
            failed: None,
        }
    }
}

/// Number of failed jobs after which no more are started.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum FailedLimit {
    Jobs(u64),
    /// Percentage of the jobs that the call runs.
    Percent(f64),
}

/// Which jobs are tried again within one call.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RetryRules {
    /// Verdicts that are retried.
    pub on: Vec<String>,
    /// Additional attempts after the first.
    pub max: u64,
}

/// One target as it was written.
#[derive(Clone, Debug)]
pub struct TargetSpec {
    pub source: TargetSource,
    pub id: Option<Spanned<String>>,
    pub recipe: Option<Spanned<String>>,
    pub git_ref: Option<Spanned<String>>,
    /// A map.
    pub params: Option<YamlNode>,
    pub input: Option<YamlNode>,
    /// A file of JSON Lines, or `-` for stdin: one job for each line, with that line as its input.
    pub inputs: Option<Spanned<String>>,
    /// Whether `input` is a line of such a file.
    pub of_list: bool,
    pub model: Option<Spanned<String>>,
    /// Position of its first key.
    pub head: Span,
}

/// Where the tree of a target comes from.
#[derive(Clone, Debug)]
pub enum TargetSource {
    /// A directory in a git repository.
    Path(Spanned<String>),
    /// A repository URL or path that `git clone` accepts.
    Repo(Spanned<String>),
    /// A file of JSON Lines, or `-` for stdin.
    File(Spanned<String>),
    /// A shell command that prints JSON Lines to stdout.
    Command(Spanned<String>),
}

/// Reads a YAML manifest. `fallback` is used as its name when it has none.
pub fn parse(files: &SourceFiles, root: &YamlNode, fallback: &str, problems: &mut Problems) -> Option<BatchManifest> {
    let mut reader = Reader::open(root, "the manifest", problems)?;
    reader.version(problems);
    let head = reader.head();
    let name = reader.text("name", problems);
    let recipe = reader.text("recipe", problems);
    let policies = reader.one_or_more("policy", problems).unwrap_or_default();
    let mut models = reader.one_or_more("models", problems).unwrap_or_default();
    models.extend(reader.text("model", problems));
    let trials = reader.whole("trials", problems);
    let params = reader.node("params").cloned();
    let matrix = matrix(&mut reader, problems);
    let mut targets = Vec::new();
    match reader.items("targets", problems) {
        Some(items) => {
            for item in items {
                targets.extend(target(item, true, problems));
            }
        }
        None if reader.node("targets").is_none() => reader.missing("targets", problems),
        None => {}
    }
    let settings = settings(&mut reader, problems);
    reader.finish(problems);
    refuse_empty(root, &FREE, problems);
    check_params(params.as_ref(), problems);
    if let Some(trials) = &trials
        && (trials.value == 0 || trials.value > MAX_TRIALS)
    {
        let message = format!("`trials` must be between 1 and {MAX_TRIALS}");
        problems.push(Diagnostic::error("wrong-value", trials.span, message).help("write `trials: 5`"));
    }
    if let Some(name) = &name
        && !is_job_name(&name.value)
    {
        problems.push(bad_id("name", name));
    }
    duplicates(&models, "model", files, problems);
    Some(BatchManifest {
        name: name.unwrap_or(Spanned {
            value: fallback.to_owned(),
            span: head,
        }),
        recipe,
        policies,
        models,
        trials: trials.map_or(1, |trials| trials.value),
        params,
        matrix,
        targets,
        settings,
        head,
    })
}

/// Reads a manifest of JSON Lines only: each line is a job.
pub fn of_lines(nodes: &[YamlNode], fallback: &str, start: Span, problems: &mut Problems) -> BatchManifest {
    BatchManifest {
        name: Spanned {
            value: fallback.to_owned(),
            span: start,
        },
        recipe: None,
        policies: Vec::new(),
        models: Vec::new(),
        trials: 1,
        params: None,
        matrix: Vec::new(),
        targets: nodes.iter().filter_map(|node| target(node, false, problems)).collect(),
        settings: BatchSettings::default(),
        head: start,
    }
}

/// Reads one target, from a manifest or a line of JSON Lines.
pub fn target(node: &YamlNode, of_manifest: bool, problems: &mut Problems) -> Option<TargetSpec> {
    let mut reader = Reader::open(node, "this target", problems)?;
    let head = reader.head();
    let id = reader.text("id", problems);
    let recipe = reader.text("recipe", problems);
    let path = reader.text("path", problems);
    let repo = reader.text("repo", problems);
    let (file, command) = match of_manifest {
        true => (reader.text("file", problems), reader.text("command", problems)),
        false => (None, None),
    };
    let git_ref = reader.text("ref", problems);
    let params = reader.node("params").cloned();
    let input = reader.node("input").cloned();
    let inputs = match of_manifest {
        true => reader.text("inputs", problems),
        false => None,
    };
    let model = reader.text("model", problems);
    reader.finish(problems);
    check_params(params.as_ref(), problems);
    let mut sources: Vec<TargetSource> = Vec::new();
    sources.extend(path.map(TargetSource::Path));
    sources.extend(repo.map(TargetSource::Repo));
    sources.extend(file.map(TargetSource::File));
    sources.extend(command.map(TargetSource::Command));
    let known = match of_manifest {
        true => "`path`, `repo`, `file` or `command`",
        false => "`path` or `repo`",
    };
    let source = match (sources.pop(), sources.is_empty()) {
        (Some(source), true) => source,
        (None, _) => {
            let problem = Diagnostic::error("missing-key", head, "this target does not say where its tree is");
            problems.push(problem.help(format!("add {known}")));
            return None;
        }
        (Some(_), false) => {
            let problem = Diagnostic::error("ambiguous-target", head, "this target names more than one place");
            problems.push(problem.help(format!("keep one of {known}")));
            return None;
        }
    };
    if let Some(id) = &id
        && !is_job_name(&id.value)
    {
        problems.push(bad_id("id", id));
    }
    if let (Some(inputs), Some(_)) = (&inputs, &input) {
        let problem = Diagnostic::error(
            "conflicting-keys",
            inputs.span,
            "a target has `input` or `inputs`, not both",
        );
        problems.push(
            problem.help(
                "`input` is the input of one job; `inputs` names a file in which each line is the input of a job",
            ),
        );
    }
    if let (Some(inputs), Some(_)) = (&inputs, &id) {
        let problem = Diagnostic::error("misplaced-key", inputs.span, "jobs of `inputs` cannot share one `id`");
        problems.push(problem.help("remove `id`: each job is named after its recipe, target and input"));
    }
    if let TargetSource::Repo(url) = &source
        && let Some(problem) = bad_url(url)
    {
        problems.push(problem);
    }
    if let TargetSource::Path(path) = &source
        && path.value.is_empty()
    {
        let problem = Diagnostic::error("wrong-value", path.span, "this is not the path of a directory");
        problems.push(problem.help("write `path: .` for the directory of the manifest"));
    }
    if let Some(name) = &git_ref
        && (name.value.is_empty() || name.value.starts_with('-') || name.value.contains(char::is_whitespace))
    {
        let message = format!("`{}` is not the name of a branch, tag or commit", name.value);
        problems.push(Diagnostic::error("wrong-value", name.span, message).help("write `ref: main`"));
    }
    if let (TargetSource::File(_) | TargetSource::Command(_), Some(id)) = (&source, &id) {
        let problem = Diagnostic::error("misplaced-key", id.span, "a list of targets has no `id`");
        problems.push(problem.help("give each of its lines an `id`"));
    }
    Some(TargetSpec {
        source,
        id,
        recipe,
        git_ref,
        params,
        input,
        inputs,
        of_list: false,
        model,
        head,
    })
}

/// Refuses a URL that git could take for an option or a program, or that contains a password.
fn bad_url(url: &Spanned<String>) -> Option<Diagnostic> {
    let text = url.value.as_str();
    let error = |message: &str, help: &str| Some(Diagnostic::error("wrong-value", url.span, message).help(help));
    if text.is_empty() || text.starts_with('-') || text.contains("::") || text.contains(char::is_control) {
        return error(
            "this is not the URL of a repository",
            "write a URL that `git clone` accepts",
        );
    }
    let host = text.split_once("://").map_or("", |(_, rest)| rest);
    let user = host.split('/').next().unwrap_or_default().rsplit_once('@');
    match user {
        Some((user, _)) if user.contains(':') => error(
            "this URL contains a password",
            "remove it: the git credential helpers and ssh keys of your own configuration are used",
        ),
        _ => None,
    }
}

/// Whether a text is usable as a job name: the name becomes a directory.
pub fn is_job_name(text: &str) -> bool {
    let plain = |c: char| c.is_ascii_alphanumeric() || "._-".contains(c);
    !text.is_empty() && text.len() <= MAX_ID && text.chars().all(plain) && !text.starts_with(['.', '-'])
}

fn bad_id(key: &str, id: &Spanned<String>) -> Diagnostic {
    let message = format!(
        "`{key}` becomes the name of a directory, and `{}` cannot be one",
        id.value
    );
    Diagnostic::error("wrong-value", id.span, message).help(format!(
        "letters, digits, `.`, `_` and `-`, at most {MAX_ID}, not beginning with `.` or `-`"
    ))
}

/// Reports `params` that is no map.
fn check_params(node: Option<&YamlNode>, problems: &mut Problems) {
    if let Some(node) = node
        && !matches!(node.shape, Shape::Map(_))
    {
        problems.push(crate::diag::reader::wrong_type(node, "`params`", "a map"));
    }
}

fn duplicates(texts: &[Spanned<String>], what: &str, files: &SourceFiles, problems: &mut Problems) {
    for (at, text) in texts.iter().enumerate() {
        if let Some(first) = texts.iter().take(at).find(|first| first.value == text.value) {
            let message = format!("the {what} `{}` is listed twice", text.value);
            let problem = Diagnostic::error("duplicate-value", text.span, message);
            problems.push(problem.help(format!("it is also at {}", files.place(first.span))));
        }
    }
}

fn matrix(reader: &mut Reader<'_>, problems: &mut Problems) -> Vec<(MapEntry, Vec<YamlNode>)> {
    let mut found = Vec::new();
    for entry in reader.entries("matrix", problems).unwrap_or_default() {
        match &entry.value.shape {
            Shape::List(items) if items.is_empty() => {
                let message = format!("`{}` has no values, so there would be no job", entry.key);
                let problem = Diagnostic::error("wrong-value", entry.value.span, message);
                problems.push(problem.help("write at least one value, such as `[a, b]`, or remove the parameter"));
            }
            Shape::List(items) => found.push((entry.clone(), items.clone())),
            _ => problems.push(crate::diag::reader::wrong_type(
                &entry.value,
                &format!("`{}`", entry.key),
                "a list of values such as `[a, b]`",
            )),
        }
    }
    found
}

fn settings(reader: &mut Reader<'_>, problems: &mut Problems) -> BatchSettings {
    let mut settings = BatchSettings::default();
    if let Some(mut budget) = reader.map("budget", "`budget`", problems) {
        settings.budget = Budget {
            turns: budget.limit("turns", problems).map(|found| found.value),
            tokens: budget.limit("tokens", problems).map(|found| found.value),
            cost_micros: budget.amount_limit("cost", problems).map(|found| micros(found.value)),
            wall_ms: budget.duration("wall", problems).map(|found| found.value),
            ..Budget::default()
        };
        budget.finish(problems);
    }
    if let Some(mut rate) = reader.map("rate", "`rate`", problems) {
        if let Some(text) = rate.text("requests", problems) {
            match interval(&text.value) {
                Some(interval) => settings.interval = Some(interval),
                None => problems.push(
                    Diagnostic::error("wrong-value", text.span, format!("`{}` is not a rate", text.value))
                        .help("write requests and a time, for example `300/m`, `5/s` or `2000/h`"),
                ),
            }
        }
        rate.finish(problems);
    }
    if let Some(mut stop) = reader.map("stop", "`stop`", problems) {
        if let Some(most) = stop.whole("provider_failures", problems) {
            settings.stop.provider_failures = most.value.max(1);
        }
        if let Some(text) = stop.text("failed", problems) {
            match failed_limit(&text.value) {
                Some(limit) => settings.stop.failed = Some(limit),
                None => problems.push(
                    Diagnostic::error("wrong-value", text.span, format!("`{}` is not a limit", text.value))
                        .help("write a number of jobs or a share, for example `10` or `20%`"),
                ),
            }
        }
        stop.finish(problems);
    }
    if let Some(retry) = reader.node("retry")
        && let Shape::Scalar(_) = retry.shape
    {
        let problem = crate::diag::reader::wrong_type(retry, "`retry`", "a map of keys");
        let max = retry.to_json().as_u64().unwrap_or(1);
        problems.push(problem.help(format!("write `retry: {{ on: [provider, environment], max: {max} }}`")));
    } else if let Some(mut retry) = reader.map("retry", "`retry`", problems) {
        const VERDICTS: [&str; 7] = ["failed", "denied", "budget", "provider", "environment", "output", "bug"];
        for word in retry.one_or_more("on", problems).unwrap_or_default() {
            if VERDICTS.contains(&word.value.as_str()) {
                settings.retry.on.push(word.value);
            } else {
                let message = format!("`{}` is not a verdict that can be retried", word.value);
                let mut problem = Diagnostic::error("wrong-value", word.span, message);
                problem.help = crate::diag::did_you_mean(&word.value, VERDICTS);
                problems.push(problem);
            }
        }
        settings.retry.max = retry.whole("max", problems).map_or(1, |found| found.value);
        retry.finish(problems);
    }
    settings
}

/// Parses a rate such as `300/m` into the interval between two requests.
fn interval(text: &str) -> Option<Duration> {
    let (count, unit) = text.split_once('/')?;
    let count = units::decimal(count.trim()).filter(|count| *count > 0.0)?;
    let seconds = match unit.trim() {
        "s" => 1.0,
        "m" => 60.0,
        "h" => 3_600.0,
        "d" => 86_400.0,
        _ => return None,
    };
    Duration::try_from_secs_f64(seconds / count).ok()
}

fn failed_limit(text: &str) -> Option<FailedLimit> {
    match text.strip_suffix('%') {
        Some(share) => units::decimal(share.trim())
            .filter(|share| (0.0..=100.0).contains(share))
            .map(FailedLimit::Percent),
        None => units::whole(text).filter(|jobs| *jobs > 0).map(FailedLimit::Jobs),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::diag;

    fn read(text: &str) -> (Option<BatchManifest>, Vec<String>) {
        let mut files = SourceFiles::new();
        let file = files.add("m.yaml", text);
        let root = diag::parse(&files, file).unwrap();
        let mut problems = Vec::new();
        let manifest = parse(&files, &root, "m", &mut problems);
        diag::diagnostic::sort(&mut problems);
        let shown = problems.iter().map(|problem| {
            let place = files.place(problem.span.unwrap());
            format!("{}:{} {}", place.line, place.column, problem.code)
        });
        (manifest, shown.collect())
    }

    #[test]
    fn a_whole_manifest_is_read() {
        let (manifest, problems) = read(
            "version: 1\nname: weekly\nrecipe: r.yaml\npolicy: p.yaml\nmodels: [a/b, c/d]\ntrials: 3\nmatrix: { x: [1, 2] }\n\
             targets:\n  - { repo: \"https://h/a.git\", ref: main, params: { y: z } }\n  - { path: ../b, id: b }\n  - file: more.jsonl\n  - command: ls\n\
             budget: { cost: 1.50, wall: 6h, tokens: 1_000, turns: 5 }\nrate: { requests: 300/m }\n\
             stop: { provider_failures: 2, failed: 20% }\nretry: { on: [provider], max: 2 }\n",
        );
        assert_eq!(problems, [""; 0]);
        let manifest = manifest.unwrap();
        assert_eq!(
            (manifest.trials, manifest.models.len(), manifest.targets.len()),
            (3, 2, 4)
        );
        let settings = manifest.settings;
        assert_eq!(settings.budget.cost_micros, Some(1_500_000));
        assert_eq!(settings.interval, Some(Duration::from_millis(200)));
        assert_eq!(settings.stop.failed, Some(FailedLimit::Percent(20.0)));
        assert_eq!((settings.retry.on.len(), settings.retry.max), (1, 2));
    }

    #[test]
    fn a_matrix_without_values_is_told() {
        let (_, problems) = read("version: 1\nmatrix: { style: [], size: big }\ntargets: [{ path: a }]\n");
        assert_eq!(problems, ["2:18 wrong-value", "2:28 wrong-type"]);
    }

    #[test]
    fn a_key_without_a_value_is_told() {
        let (_, problems) = read(
            "version: 1\npolicy:\nparams: { a: null }\nstop: { failed: }\ntargets: [{ path: a, ref: null, input: { b: null } }]\n",
        );
        assert_eq!(problems, ["2:1 empty-value", "4:9 empty-value", "5:22 empty-value"]);
    }

    #[test]
    fn every_problem_is_told_at_once() {
        let (_, problems) = read(
            "version: 1\nnam: x\ntrials: 0\ntargets:\n  - { path: a, repo: b }\n  - { ref: x }\n  - { repo: \"https://u:p@h/a.git\" }\n  \
             - { path: a, id: ../x }\n  - { repo: \"ext::sh -c x\" }\nrate: { requests: many }\nstop: { failed: 200% }\nretry: { on: [pased] }\n",
        );
        assert_eq!(
            problems,
            [
                "2:1 unknown-key",
                "3:9 wrong-value",
                "5:7 ambiguous-target",
                "6:7 missing-key",
                "7:13 wrong-value",
                "8:20 wrong-value",
                "9:13 wrong-value",
                "10:19 wrong-value",
                "11:17 wrong-value",
                "12:15 wrong-value"
            ]
        );
    }
}
