//! Reads the recipes and policies of a batch plan, each once, and checks every job's parameters against its recipe.

use crate::base::budget::Budget;
use crate::base::ids::sha256_hex;
use crate::base::model_name::is_played;
use crate::batch::plan::{JobInputs, PlannedJob, RecipeReader, RunArguments};
use crate::cli::origin::{RecipeOrigin, Trust};
use crate::cli::policy_sources;
use crate::cli::refusal::Refusal;
use crate::cli::settings;
use crate::diag::{Diagnostic, SourceFiles, Span};
use crate::policy::PolicySet;
use crate::recipe::plan::Expect;
use crate::recipe::{self, Overrides, Recipe, RecipeArguments};
use futures_util::future::LocalBoxFuture;
use std::collections::HashMap;
use std::path::Path;
use std::rc::Rc;

/// A recipe with its policies.
struct ReadOnce {
    recipe: Recipe,
    texts: HashMap<String, Result<String, String>>,
    policies: PolicySet,
    digest: String,
}

/// Files read so far; `None`: the file has problems, which have been reported.
pub struct Inputs {
    read: HashMap<(String, Vec<String>), Option<Rc<ReadOnce>>>,
    /// Limits that replace those of the recipes.
    limits: Budget,
}

impl Inputs {
    /// Starts empty. `limits` replace those of the recipes.
    pub fn new(limits: &Budget) -> Self {
        Self {
            read: HashMap::new(),
            limits: limits.clone(),
        }
    }

    async fn once(
        &mut self,
        job: &PlannedJob,
        files: &mut SourceFiles,
    ) -> Result<Option<Rc<ReadOnce>>, Vec<Diagnostic>> {
        let arguments = &job.arguments;
        let key = (arguments.recipe.clone(), arguments.policies.clone());
        if let Some(known) = self.read.get(&key) {
            return Ok(known.clone());
        }
        let read = read(arguments, job, files).await;
        let kept = read.as_ref().ok().cloned();
        self.read.insert(key, kept);
        read.map(Some)
    }
}

/// The refusal of a file that a manifest names, with the position at which it does.
fn placed(refusal: &Refusal, place: Span) -> Diagnostic {
    let text = refusal.to_string();
    let mut lines = text.lines();
    let first = lines.next().unwrap_or_default();
    let message = first.split_once("]: ").map_or(first, |(_, message)| message).to_owned();
    let help = lines
        .find_map(|line| line.trim().strip_prefix("help: "))
        .map(str::to_owned);
    let mut problem = Diagnostic::error("unreadable-input", place, message);
    problem.help = help;
    problem
}

/// The recipe of a job, with its origin and its text.
async fn opened(job: &PlannedJob, files: &mut SourceFiles) -> Result<(RecipeOrigin, Recipe, String), Vec<Diagnostic>> {
    let (origin, text) = RecipeOrigin::open(Path::new(&job.arguments.recipe), Path::new("."))
        .await
        .map_err(|refusal| vec![placed(&refusal, job.places.recipe.unwrap_or(job.head))])?;
    let file = files.add(origin.name.clone(), text.clone());
    let recipe = recipe::parse(files, file, &mut Vec::new())?;
    Ok((origin, recipe, text))
}

/// The problems in the policies that the manifest names. Each file is read separately, so that all are reported.
/// Policies of a target's own commits are read when the job runs; stdin can be read only once.
async fn wrong_policies(job: &PlannedJob, files: &mut SourceFiles) -> Vec<Diagnostic> {
    let mut wrong = Vec::new();
    for (name, place) in job.arguments.policies.iter().zip(&job.places.policies) {
        if name.starts_with("git:") || name == "-" {
            continue;
        }
        match policy_sources::policies(std::slice::from_ref(name), Path::new("."), None).await {
            Ok(read) => wrong.extend(read.load(files).err().unwrap_or_default()),
            Err(refusal) => wrong.push(placed(&refusal, *place)),
        }
    }
    wrong
}

async fn read(
    arguments: &RunArguments,
    job: &PlannedJob,
    files: &mut SourceFiles,
) -> Result<Rc<ReadOnce>, Vec<Diagnostic>> {
    let here = Path::new(".");
    let at_job = |refusal: Refusal| vec![placed(&refusal, job.places.recipe.unwrap_or(job.head))];
    let found = opened(job, files).await;
    let mut wrong = wrong_policies(job, files).await;
    if !wrong.is_empty() {
        wrong.extend(found.err().unwrap_or_default());
        return Err(wrong);
    }
    let (origin, recipe, text) = found?;
    let mut pieces = vec![text];
    // Only the child process, which knows the target, can decide about trust; here the files are only read.
    let trust = Trust::yes("it is only planned");
    let named = origin.read_named(&recipe, &trust, here).await.map_err(at_job)?;
    let mut texts = HashMap::new();
    let (beside, _) = origin
        .read_beside(&recipe, &trust, here, &mut wrong)
        .await
        .map_err(at_job)?;
    if !wrong.is_empty() {
        return Err(wrong);
    }
    for file in beside {
        pieces.push(format!("{} {} {}", file.path, file.executable, file.kept().blob));
    }
    for (_, name) in recipe::named(&recipe) {
        let text = named.text(&name.value);
        pieces.push(text.clone().unwrap_or_default());
        texts.insert(name.value.clone(), text);
    }
    let own = match &recipe.policy {
        Some(name) => Some(origin.own_policy(&name.value, &trust, here).map_err(at_job)?),
        None => None,
    };
    // Policies from a target's own commits are read when the job runs.
    let is_known = |name: &&String| !name.starts_with("git:");
    let given: Vec<String> = arguments.policies.iter().filter(is_known).cloned().collect();
    let narrowing = own.as_ref().filter(|own| !own.name.starts_with("git:"));
    let policies = settings::rulers(&given, narrowing, here, files, &mut Vec::new())
        .await
        .map_err(|refusal| vec![placed(&refusal, job.head)])?;
    // The digest of a policy covers the policies that it extends.
    pieces.extend(policies.texts().into_iter().map(|policy| policy.digest));
    let lengths: Vec<String> = pieces.iter().map(|piece| format!("{} {piece}", piece.len())).collect();
    Ok(Rc::new(ReadOnce {
        recipe,
        texts,
        policies,
        digest: sha256_hex(&[lengths.join("\n").as_bytes()]),
    }))
}

impl RecipeReader for Inputs {
    fn read<'a>(
        &'a mut self,
        job: &'a PlannedJob,
        files: &'a mut SourceFiles,
    ) -> LocalBoxFuture<'a, Result<JobInputs, Vec<Diagnostic>>> {
        Box::pin(async move {
            let arguments = &job.arguments;
            if arguments.recipe.starts_with("git:") {
                let name = arguments.recipe.rsplit(['/', ':']).next().unwrap_or_default();
                return Ok(JobInputs {
                    recipe: name.trim_end_matches(".yaml").to_owned(),
                    digest: sha256_hex(&[format!("{} {}", arguments.recipe, arguments.policies.join(" ")).as_bytes()]),
                    model: arguments.model.clone(),
                    ..JobInputs::default()
                });
            }
            let Some(known) = self.once(job, files).await? else {
                return Ok(JobInputs::default());
            };
            let given = RecipeArguments {
                params: &[],
                params_file: job.params.as_ref(),
                input: job.input.as_ref(),
                input_lines: job.input_at.as_slice(),
                overrides: Overrides {
                    model: arguments.model.clone(),
                    budget: self.limits.clone(),
                    ..Overrides::default()
                },
                sketch: false,
            };
            let texts = |_, name: &str| {
                let found = known.texts.get(name).cloned();
                found.unwrap_or_else(|| Err("it was not read".to_owned()))
            };
            let plan = recipe::lower(files, &known.recipe, &given, &texts, &mut Vec::new()).map_err(|problems| {
                let unplaced = |mut problem: Diagnostic| {
                    problem.span = problem.span.or(Some(job.head));
                    problem
                };
                problems.into_iter().map(unplaced).collect::<Vec<_>>()
            })?;
            let edits = plan.expect == Expect::Change || plan.steps.iter().any(|step| step.expect == Expect::Change);
            if edits && arguments.policies.is_empty() {
                let message = format!("the recipe {} expects a change, but no policy is named", plan.name);
                let problem = Diagnostic::error("no-policy", job.head, message);
                return Err(vec![
                    problem.help("add `policy: FILE` to the manifest, or name one with --policy"),
                ]);
            }
            if plan.model.is_none() && plan.asks() {
                let problem = Diagnostic::error("no-model", job.head, "no model is named for this job");
                return Err(vec![problem.help(
                    "add `models: [PROVIDER/NAME]` to the manifest, or name one with --model",
                )]);
            }
            let first = plan.model.clone();
            let is_asked = plan.asks() || first.as_deref().is_some_and(is_played);
            let models = first.filter(|_| is_asked).into_iter();
            Ok(JobInputs {
                recipe: plan.name.clone(),
                digest: known.digest.clone(),
                model: plan.model.clone(),
                budget: plan.budget.lowered_by(&known.policies.limits()),
                models: Some(
                    models
                        .chain(plan.fallback.iter().filter(|_| is_asked).cloned())
                        .collect(),
                ),
            })
        })
    }
}
