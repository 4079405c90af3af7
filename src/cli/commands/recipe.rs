//! `overnight recipe …`: check, show, list, test.

use super::{printed, sample};
use crate::cli::args::{Format, RecipeCommand, RunArgs, Shared};
use crate::cli::asks;
use crate::cli::origin::Origin;
use crate::cli::refusal::Refusal;
use crate::cli::secrets::Secrets;
use crate::cli::settings::{self, Typed};
use crate::cli::{exit, inputs, meeting, out, wire};
use crate::diag::{self, Diagnostic, Files, Severity};
use crate::policy::{self, KnownTools};
use crate::recipe::{self, show};
use std::path::{Path, PathBuf};
use std::time::Instant;

/// Carries it out.
pub async fn recipe(command: RecipeCommand, started: Instant) -> Result<u8, Refusal> {
    match command {
        RecipeCommand::Check { files } => {
            let mut code = exit::PASSED;
            for file in &files {
                code = exit::stronger(code, check(file).await?);
            }
            Ok(code)
        }
        RecipeCommand::Show {
            file,
            param,
            params,
            input,
            json,
        } => {
            let typed = Typed::from_flags(&param, params.as_deref(), input.as_deref())?.sketch();
            let mut warnings = Vec::new();
            let mut files = Files::default();
            let read = settings::recipe_plan(&file, &typed, Path::new("."), &mut files, &mut warnings).await?;
            let plan = read.plan;
            for warning in warnings {
                out::tell(&warning);
            }
            match json {
                true => printed(&format!("{:#}\n", show::json(&plan))),
                false => printed(&show::text(&plan)),
            }
        }
        RecipeCommand::List { dir } => list(&dir),
        RecipeCommand::Test { files } => test(files, started).await,
    }
}

/// Every problem of a recipe, of the files it names and of its policy; and what a run would refuse it when it is not trusted.
async fn check(path: &Path) -> Result<u8, Refusal> {
    let here = Path::new(".");
    let (origin, text) = match Origin::open(path, here).await {
        Ok(found) => found,
        Err(Refusal::Invalid(problem)) => {
            out::tell(&problem);
            return Ok(exit::INVALID);
        }
        Err(other) => return Err(other),
    };
    let mut files = Files::default();
    let file = files.add(origin.name.clone(), text);
    let mut warnings = Vec::new();
    let mut invalid = false;
    match recipe::parse(&files, file, &mut warnings) {
        Err(problems) => {
            invalid = true;
            warnings.extend(problems);
        }
        Ok(parsed) => {
            let trust = origin.trust(false, &parsed, here).await?;
            let named = origin.read_named(&parsed, &trust, here).await?;
            let problems = recipe::check(&parsed, &|_, name| named.text(name));
            invalid |= diag::any_error(&problems);
            warnings.extend(problems);
            let outside = origin.policy_outside(&parsed, here).filter(|_| !trust.trusted);
            if let Some(name) = &outside {
                invalid = true;
                warnings.push(asks::outside(
                    &format!("policy `{}`", name.value),
                    Some(name.span),
                    &trust,
                ));
            }
            if let Some(name) = parsed.policy.as_ref().filter(|_| outside.is_none()) {
                match own_policy(&origin, &name.value).await {
                    Ok(sources) => match policy::load(&mut files, &sources, &KnownTools::builtin()) {
                        Ok((_, noted)) => warnings.extend(noted),
                        Err(problems) => {
                            invalid = true;
                            warnings.extend(problems);
                        }
                    },
                    Err(Refusal::Invalid(problem)) => {
                        invalid = true;
                        out::tell(&problem);
                    }
                    Err(other) => return Err(other),
                }
            }
            if !invalid {
                let found = asked(path, &mut files).await?;
                invalid |= diag::any_error(&found);
                warnings.extend(found);
            }
        }
    }
    diag::diagnostic::sort(&mut warnings);
    out::tell(&diag::render_all(&files, &warnings));
    if let Some(meeting) = meeting::warning() {
        out::tell(&format!("warning: {meeting}"));
    }
    if invalid {
        return Ok(exit::INVALID);
    }
    printed(&format!("{}: valid\n", path.display()))
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

fn list(dir: &Path) -> Result<u8, Refusal> {
    let mut text = String::new();
    for path in recipes(dir)? {
        let mut files = Files::default();
        let file = files.add(path.display().to_string(), inputs::text(&path)?);
        let line = match recipe::parse(&files, file, &mut Vec::new()) {
            Ok(recipe) => recipe.description.lines().next().unwrap_or_default().to_owned(),
            Err(_) => "(invalid; see `overnight recipe check`)".to_owned(),
        };
        let sampled = if sample::dir(&path).is_dir() { "sample" } else { "" };
        text.push_str(&format!("{:<32} {sampled:<7} {line}\n", path.display().to_string()));
    }
    printed(&text)
}

/// Runs the samples of these recipes, or of all that have one.
async fn test(files: Vec<PathBuf>, started: Instant) -> Result<u8, Refusal> {
    let named = !files.is_empty();
    let files = if named { files } else { recipes(Path::new("recipes"))? };
    let mut failed = 0_usize;
    let mut ran = 0_usize;
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
        printed(&format!("{}: {verdict}\n", recipe.display()))?;
    }
    printed(&format!("{ran} samples, {failed} failed\n"))?;
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
        sample: true,
        shared: Shared {
            format: Format::Text,
            quiet: true,
            silent: true,
            ..Shared::default()
        },
        tools: None,
        param: Vec::new(),
        params: None,
        input: None,
        isolate: false,
        out: Some(run.to_owned()),
        dry_run: false,
    }
}
