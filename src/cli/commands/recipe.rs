//! `overnight recipe …`: check, show, list, test.

use super::{printed, sample};
use crate::cli::args::{Format, RecipeCommand, ReportFormat, RunArgs, Shared};
use crate::cli::asks;
use crate::cli::origin::Origin;
use crate::cli::problems::{self, Checked};
use crate::cli::refusal::Refusal;
use crate::cli::secrets::Secrets;
use crate::cli::settings::{self, Typed};
use crate::cli::{exit, foresee, inputs, meeting, out, wire};
use crate::diag::{self, Diagnostic, Files, Severity, Span};
use crate::policy::{self, KnownTools};
use crate::recipe::{self, show};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::time::Instant;

/// Carries it out.
pub async fn recipe(command: RecipeCommand, started: Instant) -> Result<u8, Refusal> {
    match command {
        RecipeCommand::Check {
            files,
            workspace,
            format,
        } => {
            let mut all = Vec::new();
            for file in &files {
                all.push(check(file, workspace.as_deref()).await?);
            }
            if let Some(meeting) = meeting::warning() {
                out::tell(&format!("warning: {meeting}"));
            }
            problems::print(&all, format)
        }
        RecipeCommand::Show {
            file,
            param,
            params,
            input,
            json,
            format,
        } => {
            let typed = Typed::from_flags(&param, params.as_deref(), input.as_deref())?.sketch();
            let mut warnings = Vec::new();
            let mut files = Files::default();
            let read = settings::recipe_plan(&file, &typed, Path::new("."), &mut files, &mut warnings).await?;
            let plan = read.plan;
            for warning in warnings {
                out::tell(&warning);
            }
            match json || format == ReportFormat::Json {
                true => printed(&format!("{:#}\n", show::json(&plan))),
                false => printed(&show::text(&plan)),
            }
        }
        RecipeCommand::List { dir, format } => list(&dir, format),
        RecipeCommand::Test { files, format } => test(files, format, started).await,
    }
}

/// Every problem of a recipe, of the files it names and of its policy; what a run would refuse it when it is not trusted; and,
/// with a workspace, what it needs there.
async fn check(path: &Path, workspace: Option<&Path>) -> Result<Checked, Refusal> {
    let here = workspace.unwrap_or(Path::new("."));
    let mut checked = Checked {
        name: path.display().to_string(),
        files: Files::default(),
        problems: Vec::new(),
        refused: None,
        text: format!("{}: valid\n", path.display()),
    };
    let (origin, text) = match Origin::open(path, here).await {
        Ok(found) => found,
        Err(Refusal::Invalid(problem)) => {
            checked.refused = Some(problem);
            return Ok(checked);
        }
        Err(other) => return Err(other),
    };
    let files = &mut checked.files;
    let file = files.add(origin.name.clone(), text);
    let mut found = Vec::new();
    match recipe::parse(files, file, &mut found) {
        Err(problems) => found.extend(problems),
        Ok(parsed) => {
            let trust = origin.trust(false, &parsed, here).await?;
            let named = origin.read_named(&parsed, &trust, here).await?;
            found.extend(recipe::check(&parsed, &|_, name| named.text(name)));
            found.extend(foresee::problems(&parsed, workspace));
            let outside = origin.policy_outside(&parsed, here).filter(|_| !trust.trusted);
            if let Some(name) = &outside {
                found.push(asks::outside(
                    &format!("policy `{}`", name.value),
                    Some(name.span),
                    &trust,
                ));
            }
            if let Some(name) = parsed.policy.as_ref().filter(|_| outside.is_none()) {
                match own_policy(&origin, &name.value).await {
                    Ok(sources) => match policy::load(files, &sources, &KnownTools::builtin()) {
                        Ok((_, noted)) => found.extend(noted),
                        Err(problems) => found.extend(problems),
                    },
                    // The recipe is at fault: the place is the name in it.
                    Err(Refusal::Invalid(problem)) => found.push(at_the_name(&problem, name.span)),
                    Err(other) => return Err(other),
                }
            }
            if !diag::any_error(&found) {
                found.extend(asked(path, files).await?);
            }
        }
    }
    diag::diagnostic::sort(&mut found);
    checked.problems = found;
    Ok(checked)
}

/// The problem of a policy that cannot be had, at the place where the recipe names it.
fn at_the_name(problem: &str, span: Span) -> Diagnostic {
    let mut lines = problem.lines();
    let first = lines.next().unwrap_or_default();
    let message = first.split_once("]: ").map_or(first, |(_, message)| message);
    let help = lines.find_map(|line| line.strip_prefix("help: "));
    let diagnostic = Diagnostic::error("no-policy-file", span, message);
    match help {
        Some(help) => diagnostic.help(help),
        None => diagnostic,
    }
}

async fn own_policy(origin: &Origin, name: &str) -> Result<Vec<policy::Source>, Refusal> {
    inputs::policies(&[origin.policy(name)?], Path::new(".")).await
}

/// What a run of this recipe from here would refuse it, were no host granted: errors for what it never may have, warnings for what
/// a policy or trust could give.
async fn asked(path: &Path, files: &mut Files) -> Result<Vec<Diagnostic>, Refusal> {
    if path.as_os_str() == "-" {
        // It was read already, and asks as an untrusted one each time it is run.
        return Ok(Vec::new());
    }
    let here = Path::new(".");
    let typed = Typed::from_flags(&[], None, None)?.sketch();
    let Ok(read) = settings::recipe_plan(path, &typed, here, files, &mut Vec::new()).await else {
        return Ok(Vec::new());
    };
    let policies = settings::rulers(&[], None, here, files, &mut Vec::new()).await?;
    let secrets = Secrets::of(wire::environment());
    let mut found = read.refused(&policies, here, false, &secrets);
    for problem in found.iter_mut().filter(|problem| problem.code != "model-key") {
        problem.severity = Severity::Warning;
    }
    Ok(found)
}

fn recipes(dir: &Path) -> Result<Vec<PathBuf>, Refusal> {
    let trouble = |error: std::io::Error| Refusal::Environment(format!("{}: {error}", dir.display()));
    let mut found: Vec<PathBuf> = std::fs::read_dir(dir)
        .map_err(trouble)?
        .filter_map(Result::ok)
        .map(|entry| entry.path())
        .filter(|path| path.is_file() && path.extension().is_some_and(|end| end == "yaml" || end == "yml"))
        .collect();
    found.sort();
    Ok(found)
}

fn list(dir: &Path, format: ReportFormat) -> Result<u8, Refusal> {
    let mut text = String::new();
    let mut all = Vec::new();
    for path in recipes(dir)? {
        let mut files = Files::default();
        let file = files.add(path.display().to_string(), inputs::text(&path)?);
        let parsed = recipe::parse(&files, file, &mut Vec::new());
        if format == ReportFormat::Json {
            let recipe = parsed.as_ref().ok();
            all.push(json!({
                "name": path.file_stem().map(|stem| stem.to_string_lossy().into_owned()),
                "description": recipe.map(|recipe| recipe.description.clone()),
                "parameters": recipe.map(|recipe| recipe.parameters.iter().map(|param| param.name.value.clone()).collect::<Vec<_>>()),
                "policy": recipe.and_then(|recipe| recipe.policy.as_ref()).map(|policy| policy.value.clone()),
                "source": path,
                "valid": recipe.is_some(),
            }));
            continue;
        }
        let line = match parsed {
            Ok(recipe) => recipe.description.lines().next().unwrap_or_default().to_owned(),
            Err(_) => "(invalid; see `overnight recipe check`)".to_owned(),
        };
        let sampled = if sample::dir(&path).is_dir() { "sample" } else { "" };
        text.push_str(&format!("{:<32} {sampled:<7} {line}\n", path.display().to_string()));
    }
    if format == ReportFormat::Json {
        text = format!("{}\n", Value::from(all));
    }
    printed(&text)
}

/// Runs the samples of these recipes, or of all that have one.
async fn test(files: Vec<PathBuf>, format: ReportFormat, started: Instant) -> Result<u8, Refusal> {
    let named = !files.is_empty();
    let files = if named { files } else { recipes(Path::new("recipes"))? };
    let mut failed = 0_usize;
    let mut ran = 0_usize;
    let mut all = Vec::new();
    for recipe in files {
        if !named && !sample::dir(&recipe).is_dir() {
            continue;
        }
        let out_dir = tempfile::Builder::new()
            .prefix("overnight-recipe-test-")
            .tempdir()
            .map_err(|error| Refusal::Environment(format!("no temporary directory: {error}")))?;
        let run = out_dir.path().join("run");
        let ended = sample::ended(arguments(&recipe, &run), started).await;
        ran += 1;
        let verdict = match ended {
            Ok(0) => "passed".to_owned(),
            Ok(code) => {
                failed += 1;
                format!("failed with code {code}")
            }
            Err(refusal) => {
                failed += 1;
                format!("refused: {refusal}")
            }
        };
        match format {
            ReportFormat::Text => printed(&format!("{}: {verdict}\n", recipe.display())).map(drop)?,
            ReportFormat::Json => {
                all.push(json!({ "recipe": recipe, "passed": verdict == "passed", "verdict": verdict }))
            }
        }
    }
    match format {
        ReportFormat::Text => printed(&format!("{ran} samples, {failed} failed\n"))?,
        ReportFormat::Json => printed(&format!("{}\n", json!({ "samples": all, "failed": failed })))?,
    };
    Ok(if failed == 0 && ran > 0 {
        exit::PASSED
    } else {
        exit::FAILED
    })
}

fn arguments(recipe: &Path, run: &Path) -> RunArgs {
    RunArgs {
        recipe: Some(recipe.to_owned()),
        prompt: None,
        stdin: false,
        output_schema: None,
        sample: true,
        shared: Shared {
            format: Some(Format::Text),
            quiet: true,
            silent: true,
            ..Shared::default()
        },
        param: Vec::new(),
        params: None,
        input: None,
        isolate: false,
        out: Some(run.to_owned()),
        dry_run: false,
    }
}
