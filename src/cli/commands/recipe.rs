//! Implements `overnight recipe …`: check, show, list, new, doc, test.

use super::{printed, run, sample};
use crate::base::quote::counted;
use crate::cli::args::{RecipeCommand, RunArgs, RunFlags, StdoutFormat, TextOrJson};
use crate::cli::environment;
use crate::cli::origin::{RecipeOrigin, Trust};
use crate::cli::policy_sources;
use crate::cli::problems::{self, Checked};
use crate::cli::recipe_requests;
use crate::cli::refusal::Refusal;
use crate::cli::schemas::SchemaKind;
use crate::cli::secrets::Secrets;
use crate::cli::settings::{self, Typed};
use crate::cli::{exit, inputs, out, preflight, privileged_event, shipped, signals};
use crate::diag::{self, Diagnostic, Severity, SourceFiles, Span};
use crate::process::temporary::{self, Temporary};
use crate::recipe::{self, show};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::time::Instant;

/// Runs the command.
///
/// # Errors
/// [`Refusal::Usage`] for a wrong parameter; [`Refusal::Invalid`] if a recipe or a file that it names is missing or
/// wrong; [`Refusal::Environment`] if a directory or file cannot be read; [`Refusal::Output`] if stdout or a new recipe
/// cannot be written.
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
            if let Some(meeting) = privileged_event::warning() {
                out::stderr(&format!("warning: {meeting}"));
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
            let mut files = SourceFiles::default();
            let read = settings::recipe_plan(&file, &typed, Path::new("."), &mut files, &mut warnings).await?;
            let plan = read.plan;
            for warning in warnings {
                out::stderr(&warning);
            }
            let beside = super::run::beside_shown(&read.beside);
            match json || format == TextOrJson::Json {
                true => printed(&format!("{:#}\n", show::json(&plan))),
                false => printed(&format!("{}{beside}", show::text(&plan))),
            }
        }
        RecipeCommand::List { dir, format } => list(dir.as_deref(), format),
        RecipeCommand::New { file, from, format } => new(&file, &from, format).await,
        RecipeCommand::Doc { file } => doc(&file).await,
        RecipeCommand::Test { files, format } => test(files, format, started).await,
    }
}

/// Checks a recipe, the files that it names, its policy, and what an untrusted one would be refused; with a workspace,
/// also what it needs there.
async fn check(path: &Path, workspace: Option<&Path>) -> Result<Checked, Refusal> {
    if let Some(dir) = workspace.filter(|dir| !dir.is_dir()) {
        let name = dir.display();
        return Err(Refusal::Environment(format!("the workspace {name} is not a directory")));
    }
    let here = workspace.unwrap_or(Path::new("."));
    let mut checked = Checked {
        name: path.display().to_string(),
        files: SourceFiles::default(),
        problems: Vec::new(),
        refused: None,
        text: format!("{}: valid\n", path.display()),
    };
    let (origin, text) = match RecipeOrigin::open(path, here).await {
        Ok(found) => found,
        Err(Refusal::Invalid(problem)) => {
            checked.refused = Some(problem);
            return Ok(checked);
        }
        Err(other) => return Err(other),
    };
    let files = &mut checked.files;
    let file = files.add(origin.name.clone(), text);
    let (parsed, mut found) = recipe::read(files, file);
    match parsed {
        None => {}
        // Even if there are problems already, so that all problems of a file are reported together.
        Some(parsed) => {
            let trust = origin.trust(false, &parsed, here).await?;
            let named = origin.read_named(&parsed, &trust, here).await?;
            found.extend(recipe::check(&parsed, &|_, name| named.text(name)));
            origin.read_beside(&parsed, &trust, here, &mut found).await?;
            found.extend(preflight::problems(&parsed, workspace));
            if let Some((name, place)) = origin.settings_within(&parsed, here) {
                let message = format!(
                    "`tools.settings` is in the workspace's repository ({})",
                    place.display()
                );
                let problem = Diagnostic::warning("settings-in-workspace", name.span, message);
                let help = "whoever may change the workspace decides which servers and commands it starts, so the recipe is not \
                            trusted: name a file outside the repository";
                found.push(problem.help(help));
            }
            let outside = origin.policy_outside(&parsed, here).filter(|_| !trust.trusted);
            if let Some(name) = &outside {
                found.push(recipe_requests::outside(
                    &format!("policy `{}`", name.value),
                    Some(name.span),
                    &trust,
                ));
            }
            if let Some(name) = parsed.policy.as_ref().filter(|_| outside.is_none()) {
                match own_policy(&origin, &name.value, &trust).await {
                    Ok(read) => match read.load(files) {
                        Ok((_, noted)) => found.extend(noted),
                        Err(problems) => found.extend(problems),
                    },
                    // The recipe is at fault, so the problem is located at the policy's name in it.
                    Err(Refusal::Invalid(problem)) => found.push(at_the_name(&problem, name.span)),
                    Err(other) => return Err(other),
                }
            }
            if !diag::any_error(&found) {
                found.extend(asked(path, workspace, files).await?);
            }
        }
    }
    diag::diagnostic::sort(&mut found);
    checked.problems = found;
    Ok(checked)
}

/// The problem of a policy that cannot be read, located where the recipe names it.
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

async fn own_policy(origin: &RecipeOrigin, name: &str, trust: &Trust) -> Result<policy_sources::Policies, Refusal> {
    let here = Path::new(".");
    let own = origin.own_policy(name, trust, here)?;
    policy_sources::policies(std::slice::from_ref(&own.name), here, Some(&own)).await
}

/// What a run of this recipe would be refused if it is not trusted and no host is granted: errors for what is never
/// granted, warnings for what a policy or trust could grant. With a workspace, also the programs that are missing.
async fn asked(path: &Path, workspace: Option<&Path>, files: &mut SourceFiles) -> Result<Vec<Diagnostic>, Refusal> {
    if path.as_os_str() == "-" {
        // Stdin can be read only once, and a recipe from stdin is checked as untrusted in every run.
        return Ok(Vec::new());
    }
    let here = Path::new(".");
    let typed = Typed::from_flags(&[], None, None)?.sketch();
    let Ok(read) = settings::recipe_plan(path, &typed, here, files, &mut Vec::new()).await else {
        return Ok(Vec::new());
    };
    let policies = settings::rulers(&[], None, here, files, &mut Vec::new()).await?;
    let secrets = Secrets::of(environment::variables());
    let mut found = read.refused(&policies, here, false, &secrets);
    for problem in found.iter_mut().filter(|problem| problem.code != "model-key") {
        problem.severity = Severity::Warning;
    }
    if let Some(root) = workspace {
        found.extend(preflight::absent_programs(&read.recipe, &read.plan, root));
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

/// One recipe in the output of `list`.
struct ListedRecipe {
    /// The name for `run`.
    name: String,
    /// `builtin`, or the path of the file.
    source: String,
    has_sample: bool,
    recipe: Option<recipe::Recipe>,
}

/// `None` for a file of another kind.
fn listed(name: String, source: String, has_sample: bool, text: String) -> Option<ListedRecipe> {
    let mut files = SourceFiles::default();
    let file = files.add(name.clone(), text);
    let recipe = match recipe::parse(&files, file, &mut Vec::new()) {
        Ok(recipe) => Some(recipe),
        Err(problems) if problems.iter().any(|problem| problem.code == "wrong-kind") => return None,
        Err(_) => None,
    };
    Some(ListedRecipe {
        name,
        source,
        has_sample,
        recipe,
    })
}

/// Lists the built-in recipes, then those of a directory; only the latter if `dir` is given.
fn list(dir: Option<&Path>, format: TextOrJson) -> Result<u8, Refusal> {
    let mut all = Vec::new();
    if dir.is_none() {
        for name in shipped::names() {
            let text = shipped::recipe(name).unwrap_or_default().to_owned();
            all.extend(listed(
                format!("builtin:{name}"),
                "builtin".to_owned(),
                shipped::has_sample(name),
                text,
            ));
        }
    }
    let usual = Path::new("recipes");
    if let Some(dir) = dir.or_else(|| usual.is_dir().then_some(usual)) {
        for path in recipes(dir)? {
            let name = path.display().to_string();
            all.extend(listed(
                name.clone(),
                name,
                sample::dir(&path).is_dir(),
                inputs::text(&path)?,
            ));
        }
    }
    if format == TextOrJson::Json {
        let one = |one: &ListedRecipe| {
            let recipe = one.recipe.as_ref();
            let parameter = |parameter: &recipe::model::Parameter| {
                json!({
                    "name": parameter.name.value,
                    "type": parameter.kind.as_str(),
                    "default": parameter.default,
                    "description": parameter.description,
                })
            };
            let parameters = recipe.map(|recipe| recipe.parameters.iter().map(parameter).collect::<Vec<_>>());
            json!({
                "name": one.name,
                "description": recipe.map(|recipe| recipe.description.clone()),
                "parameters": parameters,
                "policy": recipe.and_then(|recipe| recipe.policy.as_ref()).map(|policy| policy.value.clone()),
                "source": one.source,
                "sample": one.has_sample,
                "valid": recipe.is_some(),
            })
        };
        let values: Vec<Value> = all.iter().map(one).collect();
        return printed(&format!("{}\n", Value::from(values)));
    }
    let mut text = String::new();
    for one in all {
        let line = match &one.recipe {
            Some(recipe) => recipe.description.lines().next().unwrap_or_default().to_owned(),
            None => "(invalid; see `overnight recipe check`)".to_owned(),
        };
        let sampled = if one.has_sample { "sample" } else { "" };
        text.push_str(&format!("{:<32} {sampled:<7} {line}\n", one.name));
    }
    printed(&text)
}

/// Writes a new recipe from a template, together with the files that it names or its commands get. Overwrites nothing.
async fn new(file: &Path, from: &str, format: TextOrJson) -> Result<u8, Refusal> {
    let here = Path::new(".");
    let (origin, original) = RecipeOrigin::open(Path::new(from), here).await?;
    let mut files = SourceFiles::default();
    let id = files.add(origin.name.clone(), original.clone());
    let parsed =
        recipe::parse(&files, id, &mut Vec::new()).map_err(|problems| Refusal::of_problems(&problems, &files))?;
    let trust = origin.trust(false, &parsed, here).await?;
    let named = origin.read_named(&parsed, &trust, here).await?;
    let beside = file.parent().unwrap_or(Path::new(""));
    // Recipes of other programs (goose, Gemini CLI) have no `steps`, and the schema does not describe them.
    let text = match original.lines().any(|line| line.starts_with("steps:")) {
        true => SchemaKind::Recipe.headed(&original),
        false => original.clone(),
    };
    let mut wanted = vec![(file.to_owned(), text.into_bytes(), false)];
    for (_, name) in recipe::named(&parsed) {
        let text = named.text(&name.value).map_err(Refusal::Environment)?;
        wanted.push((beside.join(&name.value), text.into_bytes(), false));
    }
    let mut wrong = Vec::new();
    let (given, _) = origin.read_beside(&parsed, &trust, here, &mut wrong).await?;
    if !wrong.is_empty() {
        return Err(Refusal::of_problems(&wrong, &files));
    }
    // Without `files`, commands get everything beside the recipe: the recipe itself is there under its new name.
    for one in given.into_iter().filter(|one| one.bytes != original.as_bytes()) {
        let place = beside.join(&one.path);
        if wanted.iter().all(|(path, ..)| *path != place) {
            wanted.push((place, one.bytes, one.executable));
        }
    }
    let standing: Vec<String> = wanted
        .iter()
        .filter(|(path, bytes, _)| {
            std::fs::symlink_metadata(path).is_ok()
                && !std::fs::read(path).is_ok_and(|own| own == *bytes && path != file)
        })
        .map(|(path, ..)| path.display().to_string())
        .collect();
    if !standing.is_empty() {
        return Err(Refusal::Environment(format!(
            "{} already exists, and nothing is overwritten: name another file",
            standing.join(", ")
        )));
    }
    for (path, bytes, executable) in &wanted {
        crate::journal::artefacts::replace(path, bytes)?;
        if *executable {
            let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
            std::fs::set_permissions(path, mode)
                .map_err(|error| Refusal::Output(format!("{}: {error}", path.display())))?;
        }
        if format == TextOrJson::Text {
            printed(&format!("{}\n", path.display()))?;
        }
    }
    let written: Vec<_> = wanted.iter().map(|(path, ..)| path.display().to_string()).collect();
    match format {
        TextOrJson::Text => Ok(exit::PASSED),
        TextOrJson::Json => printed(&format!("{}\n", json!({ "files": written }))),
    }
}

/// Prints the documentation of a recipe: the page that ships with it, if any, and what the recipe itself says.
async fn doc(path: &Path) -> Result<u8, Refusal> {
    let typed = Typed::from_flags(&[], None, None)?.sketch();
    let mut files = SourceFiles::default();
    let read = settings::recipe_plan(path, &typed, Path::new("."), &mut files, &mut Vec::new()).await?;
    let name = path.to_string_lossy();
    let page = name.strip_prefix(shipped::PREFIX).and_then(shipped::page);
    let mut text = format!("# {}\n\n{}\n", read.recipe.name.value, read.recipe.description.trim());
    if let Some(page) = page {
        text.push_str(&format!("\n{}\n", page.trim()));
    }
    if !read.recipe.parameters.is_empty() {
        text.push_str("\n## Parameters\n\n| name | type | default | what |\n| --- | --- | --- | --- |\n");
        for parameter in &read.recipe.parameters {
            let default = parameter
                .default
                .as_ref()
                .map_or("must be given".to_owned(), |value| format!("`{value}`"));
            text.push_str(&format!(
                "| `{}` | {} | {default} | {} |\n",
                parameter.name.value,
                parameter.kind.as_str(),
                parameter.description
            ));
        }
    }
    text.push_str(&format!("\n## Plan\n\n```text\n{}```\n", show::text(&read.plan)));
    printed(&text)
}

/// Runs the samples of these recipes, or of all recipes that have one.
async fn test(files: Vec<PathBuf>, format: TextOrJson, started: Instant) -> Result<u8, Refusal> {
    let named = !files.is_empty();
    let usual = Path::new("recipes");
    let files = match (named, usual.is_dir()) {
        (true, _) => files,
        (false, true) => recipes(usual)?,
        (false, false) => {
            let names = shipped::names().into_iter().filter(|name| shipped::has_sample(name));
            names
                .map(|name| PathBuf::from(format!("{}{name}", shipped::PREFIX)))
                .collect()
        }
    };
    for recipe in files.iter().filter(|file| named && file.as_os_str() != "-") {
        // A recipe that does not exist is a mistake in the call, and not the failure of a sample.
        RecipeOrigin::open(recipe, Path::new(".")).await?;
    }
    let mut failed = 0_usize;
    let mut ran = 0_usize;
    let mut all = Vec::new();
    for recipe in files {
        let is_shipped = recipe.to_string_lossy().starts_with(shipped::PREFIX);
        if !named && !is_shipped && !sample::dir(&recipe).is_dir() {
            continue;
        }
        let out_dir = Temporary::make(temporary::RECIPE_TEST)
            .map_err(|error| Refusal::Environment(temporary::why_not(&error)))?;
        let run = out_dir.path().join("run");
        let interrupt = signals::watch()?;
        let ended = run::of_sample(arguments(&recipe, &run), started, &interrupt).await;
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
            TextOrJson::Text => printed(&format!("{}: {verdict}\n", recipe.display())).map(drop)?,
            TextOrJson::Json => {
                all.push(json!({ "recipe": recipe, "passed": verdict == "passed", "verdict": verdict }))
            }
        }
    }
    match format {
        TextOrJson::Text => printed(&format!("{}, {failed} failed\n", counted(ran, "sample")))?,
        TextOrJson::Json => printed(&format!("{}\n", json!({ "samples": all, "failed": failed })))?,
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
        shared: RunFlags {
            format: Some(StdoutFormat::Text),
            quiet: true,
            silent: true,
            ..RunFlags::default()
        },
        tools: None,
        param: Vec::new(),
        params: None,
        input: None,
        input_value: None,
        isolate: false,
        out: Some(run.to_owned()),
        dry_run: false,
        run_id: None,
    }
}
