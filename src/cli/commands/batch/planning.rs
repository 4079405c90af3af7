//! The plan of a batch: manifest, lists, flags and recipes, with all problems in them at once.

use super::call_clock::CallClock;
use super::inputs::Inputs;
use super::lists::expand_lists;
use super::manifest_source::ManifestSource;
use super::models::Models;
use crate::base::budget::Budget;
use crate::base::secret::Redactor;
use crate::batch::plan::{self, BatchPlan, PlanFlags, PlannedJob, RecipeReader};
use crate::batch::{lines, manifest};
use crate::cli::args::BatchArgs;
use crate::cli::refusal::Refusal;
use crate::cli::{environment, variables};
use crate::diag::{self, Diagnostic, FileKind, Shape, SourceFiles, Span, YamlNode};
use crate::provider::open::check_name;
use std::collections::BTreeSet;

/// Whether the text is JSON Lines, not a manifest: its first line is a complete JSON object without targets, or is
/// meant as one, so that a mistake in it is reported at its place.
fn is_lines(source: &ManifestSource) -> bool {
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

/// Whether a text that is no JSON Lines was meant to be: an array; or, where jobs are expected (`--recipe`, stdin), an
/// object on several lines or plain names. `root`: its YAML, if it is one.
fn is_meant_as_lines(args: &BatchArgs, source: &ManifestSource, root: Option<&YamlNode>) -> bool {
    let text = source.text.trim_start_matches('\u{feff}').trim_start();
    if text.starts_with('[') {
        return true;
    }
    if args.plan.recipe.is_none() && source.name != "stdin" {
        return false;
    }
    match root {
        Some(root) if matches!(root.shape, Shape::Map(_)) => {
            text.starts_with('{') && root.get("version").is_none() && root.get("targets").is_none()
        }
        Some(_) => true,
        None => text.starts_with('{') && !text.contains("\"targets\""),
    }
}

/// The plan from manifest and flags with its models. `limits`: those of the environment, which replace the recipes'.
///
/// # Errors
/// [`Refusal::Invalid`] with all problems of the manifest, its lists and its recipes, and those of [`Models::new`];
/// [`Refusal::Interrupted`].
pub async fn planned(
    args: &BatchArgs,
    limits: &Budget,
    source: &ManifestSource,
    clock: &mut CallClock,
) -> Result<(BatchPlan, Models), Refusal> {
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
                None if is_meant_as_lines(args, source, Some(&root)) => {
                    problems.push(lines::not_lines(files.whole(file).point()));
                    None
                }
                None => manifest::parse(&files, &root, &source.fallback, &mut problems),
            },
            Err(_) if is_meant_as_lines(args, source, None) => {
                problems.push(lines::not_lines(files.whole(file).point()));
                None
            }
            Err(found) => {
                problems.extend(found);
                None
            }
        },
    };
    let Some(mut parsed) = parsed else {
        return Err(refused(problems, &files));
    };
    expand_lists(&mut parsed, source, clock, &mut files, &mut problems).await?;
    let mut models_given = args.plan.model.clone();
    if models_given.is_empty() && parsed.models.is_empty() {
        models_given.extend(variables::model()?);
    }
    let flags = PlanFlags {
        recipe: args.plan.recipe.clone(),
        policies: variables::policies(&args.plan.policy)?,
        models: models_given,
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
    let (mut reader, mut models) = (Inputs::new(limits), Models::new().await?);
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
