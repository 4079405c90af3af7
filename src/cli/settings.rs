//! From what was typed to a plan and its policies. Reads the user's files; starts nothing.

use super::args::{RunArgs, Shared};
use super::inputs;
use super::refusal::Refusal;
use crate::base::budget::Budget;
use crate::diag::{self, Diagnostic, Files};
use crate::policy::{self, KnownTools, PolicySet, Source};
use crate::recipe::plan::Expect;
use crate::recipe::{self, Given, Overrides, Plan, Recipe, Wanted};
use serde_json::Value;
use std::path::{Path, PathBuf};

/// What a run is to do, and who rules.
pub struct Settings {
    pub plan: Plan,
    pub policies: PolicySet,
    /// Files that the run must not write: its recipe and its policies.
    pub own_files: Vec<PathBuf>,
    /// The texts of recipe and policies, to show places in them.
    pub files: Files,
    /// Rendered warnings for stderr.
    pub warnings: Vec<String>,
}

/// Everything that the files of a run say, or every problem in them.
pub async fn settle(args: &RunArgs, workspace: &Path) -> Result<Settings, Refusal> {
    let mut files = Files::default();
    let mut warnings = Vec::new();
    let mut own_files = Vec::new();
    let (mut plan, own_policy) = match (&args.recipe, &args.prompt) {
        (Some(path), _) => {
            own_files.push(path.clone());
            let given = Typed::of(args)?;
            let (recipe, plan) = recipe_plan(path, &given, workspace, &mut files, &mut warnings)?;
            let policy = recipe.policy.as_ref().map(|policy| beside(path, &policy.value));
            (plan, policy)
        }
        (None, Some(prompt)) => {
            let input = args.input.as_deref().map(inputs::file_or_stdin).transpose()?;
            let input = input.map(|text| parse_input(&text)).transpose()?;
            let text = inputs::text_or_file(prompt)?;
            if text.trim().is_empty() {
                return Err(Refusal::Usage("the prompt is empty".to_owned()));
            }
            (Plan::from_prompt(&text, input, &overrides(&args.shared)), None)
        }
        (None, None) => return Err(Refusal::Usage("a recipe or --prompt is needed".to_owned())),
    };
    let policies = if args.sample {
        let own = own_policy.iter().cloned().collect::<Vec<_>>();
        rulers(&own, None, workspace, &mut files, &mut warnings).await?
    } else {
        rulers(
            &args.shared.policy,
            own_policy.as_deref(),
            workspace,
            &mut files,
            &mut warnings,
        )
        .await?
    };
    let edits = plan.expect == Expect::Change || plan.steps.iter().any(|step| step.expect == Expect::Change);
    if edits && args.shared.policy.is_empty() && !args.sample {
        let name = args
            .recipe
            .as_ref()
            .map(|path| path.display().to_string())
            .unwrap_or_default();
        return Err(Refusal::Invalid(format!(
            "{name}:1:1: error[no-policy]: this recipe expects a change, and without --policy nothing may be written\n\
             help: name who rules, as --policy FILE, --policy git:origin/main:ci/policy.yaml or --policy builtin:edit; the recipe's own policy only narrows"
        )));
    }
    plan.budget = plan.budget.lowered_by(&policies.limits());
    own_files.extend(args.shared.policy.iter().chain(own_policy.iter()).map(PathBuf::from));
    Ok(Settings {
        plan,
        policies,
        own_files,
        files,
        warnings,
    })
}

/// Parameters and input as typed.
pub struct Typed {
    params: Vec<String>,
    params_file: Option<(String, String)>,
    input: Option<Value>,
    overrides: Overrides,
    sketch: bool,
}

impl Typed {
    fn of(args: &RunArgs) -> Result<Self, Refusal> {
        let mut typed = Self::from_flags(&args.param, args.params.as_deref(), args.input.as_deref())?;
        typed.overrides = overrides(&args.shared);
        Ok(typed)
    }

    /// From the flags that `run` and `recipe show` share.
    pub fn from_flags(param: &[String], params: Option<&Path>, input: Option<&str>) -> Result<Self, Refusal> {
        let params_file = match params {
            Some(path) => Some((path.display().to_string(), inputs::text(path)?)),
            None => None,
        };
        let input = input.map(inputs::file_or_stdin).transpose()?;
        Ok(Self {
            params: param.to_vec(),
            params_file,
            input: input.map(|text| parse_input(&text)).transpose()?,
            overrides: Overrides::default(),
            sketch: false,
        })
    }

    /// For a plan that is looked at and not run: values may be missing.
    pub fn sketch(self) -> Self {
        Self { sketch: true, ..self }
    }
}

fn parse_input(text: &str) -> Result<Value, Refusal> {
    serde_json::from_str(text).map_err(|error| {
        let (line, column) = (error.line(), error.column().max(1));
        Refusal::Invalid(format!(
            "input:{line}:{column}: error[not-json]: {error}\nhelp: --input takes one JSON document"
        ))
    })
}

fn overrides(shared: &Shared) -> Overrides {
    Overrides {
        model: shared.model.clone(),
        budget: flags_budget(shared),
    }
}

/// The limits that the flags name.
pub fn flags_budget(shared: &Shared) -> Budget {
    Budget {
        turns: shared.max_turns,
        tokens: shared.max_tokens,
        cost_micros: shared.max_cost,
        wall_ms: shared.max_wall,
        calls: std::collections::BTreeMap::new(),
    }
}

/// Parses a recipe and makes its plan.
pub fn recipe_plan(
    path: &Path,
    typed: &Typed,
    workspace: &Path,
    files: &mut Files,
    warnings: &mut Vec<String>,
) -> Result<(Recipe, Plan), Refusal> {
    let text = inputs::recipe(path)?;
    let file = files.add(path.display().to_string(), text);
    let mut noted = Vec::new();
    let recipe = recipe::parse(files, file, &mut noted).map_err(|problems| refuse(&problems, files))?;
    let params_node = match &typed.params_file {
        Some((name, text)) => {
            let file = files.add(name.clone(), text.clone());
            Some(diag::parse(files, file).map_err(|problems| refuse(&problems, files))?)
        }
        None => None,
    };
    let read = reader(path, workspace);
    let given = Given {
        params: &typed.params,
        params_file: params_node.as_ref(),
        input: typed.input.as_ref(),
        overrides: typed.overrides.clone(),
        sketch: typed.sketch,
    };
    let plan = recipe::lower(files, &recipe, &given, &read, &mut noted).map_err(|problems| refuse(&problems, files))?;
    warnings.extend(noted.iter().map(|warning| diag::render(files, warning)));
    Ok((recipe, plan))
}

/// Reads the files that a recipe names: beside it, settings also in the workspace.
pub fn reader<'a>(recipe: &'a Path, workspace: &'a Path) -> impl Fn(Wanted, &str) -> Result<String, String> + 'a {
    move |wanted, name| {
        let own = PathBuf::from(beside(recipe, name));
        let path = match wanted {
            Wanted::Settings if !own.is_file() => workspace.join(name),
            _ => own,
        };
        std::fs::read_to_string(&path).map_err(|error| error.to_string())
    }
}

/// A path that a recipe names, seen from where we are.
pub fn beside(recipe: &Path, name: &str) -> String {
    if name.starts_with("builtin:") || name.starts_with("git:") {
        return name.to_owned();
    }
    let dir = recipe.parent().unwrap_or_else(|| Path::new(""));
    dir.join(name).to_string_lossy().into_owned()
}

/// The policies of the command line, narrowed by the recipe's own.
pub async fn rulers(
    named: &[String],
    narrowing: Option<&str>,
    workspace: &Path,
    files: &mut Files,
    warnings: &mut Vec<String>,
) -> Result<PolicySet, Refusal> {
    let ours = load(&inputs::policies(named, workspace).await?, files, warnings)?;
    match narrowing {
        None => Ok(ours),
        Some(name) => {
            let theirs = inputs::policies(&[name.to_owned()], workspace).await?;
            Ok(ours.narrowed_by(&load(&theirs, files, warnings)?))
        }
    }
}

fn load(sources: &[Source], files: &mut Files, warnings: &mut Vec<String>) -> Result<PolicySet, Refusal> {
    match policy::load(files, sources, &KnownTools::builtin()) {
        Ok((set, noted)) => {
            warnings.extend(noted.iter().map(|warning| diag::render(files, warning)));
            Ok(set)
        }
        Err(problems) => Err(refuse(&problems, files)),
    }
}

/// The problems of the user's files, rendered.
pub fn refuse(problems: &[Diagnostic], files: &Files) -> Refusal {
    Refusal::Invalid(diag::render_all(files, problems))
}
