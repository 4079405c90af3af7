//! Builds the plan of a recipe: fills in values, limits, schemas and imports, and renders every template once as a
//! trial. Pure: the caller reads the files.

mod trial;

use super::documents::{self, ReadDocument};
use super::import;
use super::model::{BudgetSpec, CheckKind, CheckSpec, DeliverSpec, Recipe, ServerSpec, Step, StepSource};
use super::names::problem;
use super::params;
use super::parse::bad_pattern;
use super::plan::{
    ChangeLimits, Check, CheckWhat, DeliverPlan, Discovery, Expect, InputFormat, McpPrompt, McpServer, ModelSettings,
    OnDeny, Plan, PlanStep, ShellLimits, StepWork, ToolPlan,
};
use super::template::{self, StepOutputs, TemplateScope};
use crate::base::budget::Budget;
use crate::base::ids::StepId;
use crate::diag::reader::Problems;
use crate::diag::{self, Diagnostic, SourceFiles, Span, Spanned, YamlNode};
use serde_json::Value;
use std::collections::{BTreeMap, VecDeque};

/// Default limit of turns of a run.
pub const TURNS: u64 = 200;
/// Default limit of tokens of a run.
pub const TOKENS: u64 = 2_000_000;
/// Default limit of a run's wall clock, in milliseconds.
pub const WALL_MS: u64 = 30 * 60_000;
/// Default time limit of one command, in milliseconds.
pub const COMMAND_MS: u64 = 10 * 60_000;

/// Values from the command line.
#[derive(Clone, Debug, Default)]
pub struct RecipeArguments<'a> {
    /// `NAME=VALUE`, as typed.
    pub params: &'a [String],
    /// The parsed file of `--params`.
    pub params_file: Option<&'a YamlNode>,
    /// The value of `--input`, in the recipe's format or as a JSON value that can be converted to it.
    pub input: Option<&'a Value>,
    /// The position of `input`, if it is known; for JSON Lines, that of each element.
    pub input_lines: &'a [Span],
    pub overrides: Overrides,
    /// The plan is only displayed: a required value that is missing stays in the texts as its placeholder.
    pub sketch: bool,
}

/// Flags that replace limits of the recipe.
#[derive(Clone, Debug, Default)]
pub struct Overrides {
    pub model: Option<String>,
    pub model_settings: ModelSettings,
    /// When set, only these tools; replaces the recipe's `tools.include`.
    pub tools: Option<Vec<String>>,
    /// Each limit that is set replaces the recipe's.
    pub budget: Budget,
}

/// Builds the plan of a recipe. Warnings are added to `warnings`.
///
/// # Errors
/// Every problem of values, input, schemas, imports and templates.
pub fn lower(
    files: &SourceFiles,
    recipe: &Recipe,
    given: &RecipeArguments<'_>,
    read: ReadDocument<'_>,
    warnings: &mut Vec<Diagnostic>,
) -> Result<Plan, Vec<Diagnostic>> {
    let mut problems = Vec::new();
    let mut values = params::resolve(&recipe.parameters, given.params, given.params_file, &mut problems);
    let documents = documents::load(recipe, read, &mut problems);
    let before = problems.len();
    let input = documents::formatted(recipe, given.input, &mut problems);
    let input = input.as_deref();
    if problems.len() == before {
        let schema = documents.input.as_ref();
        documents::check_input(files, recipe, input, given.input_lines, schema, &mut problems);
    }
    if given.sketch {
        problems.retain(|problem| !matches!(problem.code, "missing-parameter" | "missing-input"));
        for parameter in &recipe.parameters {
            let name = &parameter.name.value;
            let place = || Value::String(format!("{{{{ {name} }}}}"));
            values.entry(name.clone()).or_insert_with(place);
        }
    }
    if diag::any_error(&problems) {
        return diag::settle(None, problems, warnings);
    }
    let none = StepOutputs::new();
    let scope = TemplateScope {
        values: &values,
        input,
        steps: &none,
    };
    let mut render = Render {
        files,
        scope,
        problems: &mut problems,
    };
    let mut schemas = documents.answers;
    let mut plan = Plan {
        name: recipe.name.value.clone(),
        description: recipe.description.clone(),
        steps: recipe
            .steps
            .iter()
            .map(|step| plan_step(recipe, step, &mut schemas, &mut render))
            .collect(),
        budget: run_budget(&recipe.budget).overridden_by(&given.overrides.budget),
        on_deny: recipe.on_deny,
        expect: recipe.expect_of_run(),
        skills: recipe.skills.iter().map(|path| render.path(path)).collect(),
        memory: recipe.memory,
        context: recipe.context.iter().map(|path| render.path(path)).collect(),
        required_context: recipe.required_context.iter().map(|path| render.path(path)).collect(),
        tools: plan_tools(recipe, documents.imported, &mut render),
        response: documents.response,
        response_retries: recipe.response.as_ref().map_or(0, |response| response.retries),
        model: None,
        fallback: Vec::new(),
        model_settings: recipe.model_settings.overridden(given.overrides.model_settings),
        values: BTreeMap::new(),
        input: input.cloned(),
        input_format: recipe.input.as_ref().map_or(InputFormat::Json, |input| input.format),
        isolate_keep: recipe.isolate_keep.iter().map(|path| render.path(path)).collect(),
        deliver: recipe.deliver.as_ref().map(deliver_plan),
    };
    let task = plan.steps.iter_mut().find_map(|step| match &mut step.work {
        StepWork::Prompt { template, .. } => Some(template),
        StepWork::Run { .. } => None,
    });
    if let Some(template) = task {
        template.push_str(&documents.parts);
    }
    if !given.sketch {
        trial::try_templates(recipe, &mut render);
    }
    plan.values = values;
    plan.tools.include = given.overrides.tools.clone().or(plan.tools.include);
    set_models(
        &mut plan,
        recipe.models.iter().map(|model| model.value.clone()),
        &given.overrides,
    );
    diag::settle(Some(plan), problems, warnings)
}

/// Reports every problem that is independent of values: reads the recipe's files, fills in nothing.
pub fn check(recipe: &Recipe, read: ReadDocument<'_>) -> Vec<Diagnostic> {
    let mut problems = Vec::new();
    documents::load(recipe, read, &mut problems);
    diag::diagnostic::sort(&mut problems);
    problems
}

/// The `deliver` block as written: its texts are rendered at delivery, when there is an answer.
fn deliver_plan(spec: &DeliverSpec) -> DeliverPlan {
    let text = |text: &Option<Spanned<String>>| text.as_ref().map(|text| text.value.clone());
    let texts = |texts: &[Spanned<String>]| texts.iter().map(|text| text.value.clone()).collect();
    DeliverPlan {
        title: text(&spec.title),
        body: text(&spec.body),
        commit: text(&spec.commit),
        branch: text(&spec.branch),
        base: text(&spec.base),
        labels: texts(&spec.labels),
        reviewers: texts(&spec.reviewers),
        draft: spec.draft,
    }
}

fn set_models(plan: &mut Plan, models: impl Iterator<Item = String>, overrides: &Overrides) {
    let mut models = models;
    if let Some(model) = &overrides.model {
        plan.model = Some(model.clone());
        return;
    }
    plan.model = models.next();
    plan.fallback = models.collect();
}

impl Plan {
    /// The plan of a run from `-p`: one step named `prompt`. The text is not a template; `input`, if any, is appended
    /// as JSON.
    pub fn from_prompt(text: &str, input: Option<Value>, overrides: &Overrides) -> Plan {
        let template = match input {
            // `raw`: the user typed these words, so they may refer to files.
            None => "{{ prompt | raw }}",
            Some(_) => "{{ prompt | raw }}\n\nInput, as JSON:\n{{ input | tojson }}",
        };
        let mut plan = Plan {
            name: "prompt".to_owned(),
            description: String::new(),
            steps: vec![PlanStep {
                id: StepId::from("prompt"),
                when: None,
                findings: false,
                work: StepWork::Prompt {
                    template: template.to_owned(),
                    mcp: None,
                },
                checks: Vec::new(),
                retries: 0,
                fresh: false,
                expect: Expect::Any,
                skip_if_green: false,
                budget: None,
            }],
            budget: run_budget(&BudgetSpec::default()).overridden_by(&overrides.budget),
            on_deny: OnDeny::Tell,
            expect: Expect::Any,
            skills: Vec::new(),
            memory: false,
            context: Vec::new(),
            required_context: Vec::new(),
            tools: ToolPlan {
                include: overrides.tools.clone(),
                ..ToolPlan::default()
            },
            response: None,
            response_retries: 0,
            deliver: None,
            model: None,
            fallback: Vec::new(),
            model_settings: overrides.model_settings,
            values: BTreeMap::from([("prompt".to_owned(), Value::String(text.to_owned()))]),
            input,
            input_format: InputFormat::Json,
            isolate_keep: Vec::new(),
        };
        set_models(&mut plan, std::iter::empty(), overrides);
        plan
    }

    /// The variables for this plan's templates, given the results of earlier steps.
    pub fn scope<'a>(&'a self, steps: &'a StepOutputs) -> TemplateScope<'a> {
        TemplateScope {
            values: &self.values,
            input: self.input.as_ref(),
            steps,
        }
    }
}

fn budget_of(spec: &BudgetSpec) -> Budget {
    Budget {
        turns: spec.turns,
        tokens: spec.tokens,
        cost_micros: spec.cost_micros,
        wall_ms: spec.wall_ms,
        calls: spec
            .calls
            .iter()
            .map(|(tool, limit)| (tool.value.clone(), *limit))
            .collect(),
    }
}

fn run_budget(spec: &BudgetSpec) -> Budget {
    let written = budget_of(spec);
    Budget {
        turns: written.turns.or(Some(TURNS)),
        tokens: written.tokens.or(Some(TOKENS)),
        wall_ms: written.wall_ms.or(Some(WALL_MS)),
        ..written
    }
}

/// Renders texts of the plan that cannot refer to steps.
struct Render<'a> {
    files: &'a SourceFiles,
    scope: TemplateScope<'a>,
    problems: &'a mut Problems,
}

impl Render<'_> {
    fn text(&mut self, text: &Spanned<String>) -> String {
        template::render(&text.value, &self.scope).unwrap_or_else(|error| {
            self.problems.push(problem(self.files, text, error));
            String::new()
        })
    }

    /// Checks that a path with its values filled in is still inside the workspace.
    fn path(&mut self, text: &Spanned<String>) -> String {
        let path = self.text(text);
        let plain = path.strip_prefix('@').unwrap_or(&path);
        if !path.is_empty() && !params::stays_inside(plain) {
            let message = format!("`{path}` does not stay inside the workspace");
            let problem = Diagnostic::error("outside-path", text.span, message);
            self.problems
                .push(problem.help("name a file relative to the workspace, without `..`"));
        }
        plain.to_owned()
    }

    /// Checks that a pattern with its values filled in can match a path of a change.
    fn pattern(&mut self, text: &Spanned<String>) -> String {
        let before = self.problems.len();
        let pattern = self.text(text);
        // A pattern without a template was checked when the file was parsed. In a plan for display, a required value that
        // is missing stays as its placeholder.
        if text.value.contains("{{") && !pattern.contains("{{") && self.problems.len() == before {
            self.problems.extend(bad_pattern(&pattern, text.span));
        }
        pattern
    }

    fn pairs(&mut self, pairs: &[(String, Spanned<String>)]) -> BTreeMap<String, String> {
        pairs
            .iter()
            .map(|(name, text)| (name.clone(), self.text(text)))
            .collect()
    }
}

/// The JSON Schema of findings, as `report::findings` reads them.
const FINDINGS_SCHEMA: &str = include_str!("findings.schema.json");

/// The check that `findings: true` adds.
fn findings_check() -> Check {
    Check {
        name: super::model::FINDINGS.to_owned(),
        what: CheckWhat::AnswerSchema {
            // The schema is compiled in, and a test parses it.
            schema: serde_json::from_str(FINDINGS_SCHEMA).unwrap_or_default(),
        },
    }
}

/// `schemas`: those of the checks on answers that are still to come, in the order of the file.
fn plan_step(recipe: &Recipe, step: &Step, schemas: &mut VecDeque<Option<Value>>, render: &mut Render<'_>) -> PlanStep {
    let work = match &step.work {
        StepSource::Prompt(text) => StepWork::Prompt {
            template: text.value.clone(),
            mcp: None,
        },
        StepSource::Mcp {
            server,
            name,
            arguments,
            text,
        } => StepWork::Prompt {
            template: text.as_ref().map(|text| text.value.clone()).unwrap_or_default(),
            mcp: Some(McpPrompt {
                server: server.value.clone(),
                name: name.value.clone(),
                arguments: render.pairs(arguments),
            }),
        },
        StepSource::Run {
            command,
            timeout_ms,
            allow_failure,
        } => StepWork::Run {
            command: command.value.clone(),
            timeout_ms: timeout_ms.unwrap_or(COMMAND_MS),
            allow_failure: *allow_failure,
        },
    };
    let mut checks: Vec<Check> = Vec::new();
    checks.extend(step.findings.then(findings_check));
    checks.extend(step.checks.iter().map(|check| plan_check(check, schemas, render)));
    let of_answer = checks.iter().any(|check| check.what.is_of_answer());
    PlanStep {
        id: StepId::from(step.id.value.clone()),
        when: step.when.as_ref().map(|when| when.value.clone()),
        work,
        findings: step.findings,
        retries: step.retries,
        fresh: step.fresh,
        expect: step.expect.unwrap_or(Expect::Any),
        // Before the model is asked there is no answer, so a check of the answer cannot pass.
        skip_if_green: step.skip_if_green.unwrap_or(recipe.skip_if_green) && !checks.is_empty() && !of_answer,
        checks,
        budget: step.budget.as_ref().map(budget_of),
    }
}

fn plan_check(check: &CheckSpec, schemas: &mut VecDeque<Option<Value>>, render: &mut Render<'_>) -> Check {
    let what = match &check.what {
        CheckKind::Run { command, timeout_ms } => CheckWhat::Run {
            command: command.value.clone(),
            timeout_ms: timeout_ms.unwrap_or(COMMAND_MS),
        },
        CheckKind::Changed {
            only,
            never,
            max_files,
            max_lines,
        } => CheckWhat::Changed(ChangeLimits {
            only: only.iter().map(|glob| render.pattern(glob)).collect(),
            never: never.iter().map(|glob| render.pattern(glob)).collect(),
            max_files: *max_files,
            max_lines: *max_lines,
        }),
        CheckKind::File { path, contains } => CheckWhat::File {
            path: render.path(path),
            contains: contains.as_ref().map(|text| render.text(text)),
        },
        CheckKind::AnswerRun { command, timeout_ms } => CheckWhat::AnswerRun {
            command: command.value.clone(),
            timeout_ms: timeout_ms.unwrap_or(COMMAND_MS),
        },
        CheckKind::AnswerSchema(_) => CheckWhat::AnswerSchema {
            // A schema that could not be read is already a problem, so no plan is returned.
            schema: schemas.pop_front().flatten().unwrap_or_default(),
        },
    };
    Check {
        name: check.name.value.clone(),
        what,
    }
}

fn plan_tools(recipe: &Recipe, imported: import::Imported, render: &mut Render<'_>) -> ToolPlan {
    let tools = &recipe.tools;
    let names = |list: &[Spanned<String>]| list.iter().map(|name| name.value.clone()).collect::<Vec<_>>();
    let mut mcp_servers = imported.mcp_servers;
    for server in &tools.mcp_servers {
        mcp_servers.insert(server.name.value.clone(), plan_server(server, render));
    }
    let written = tools.discovery.as_ref().map(|(command, call)| Discovery {
        command: command.value.clone(),
        call: call.value.clone(),
    });
    ToolPlan {
        include: tools.include.as_deref().map(names),
        exclude: names(&tools.exclude)
            .into_iter()
            .chain(imported.exclude.into_iter().filter(|name| {
                // Settings may name tools of a server that the recipe does not have.
                name.split_once("__")
                    .is_none_or(|(server, _)| mcp_servers.contains_key(server))
            }))
            .collect(),
        mcp_servers,
        discovery: written.or(imported.discovery),
        ignore: tools.ignore.clone(),
        builtin: imported.builtin,
        shell: ShellLimits {
            only: tools.commands.clone().or(imported.shell.only),
            never: imported.shell.never,
        },
    }
}

fn plan_server(server: &ServerSpec, render: &mut Render<'_>) -> McpServer {
    McpServer {
        command: server.command.as_ref().map(|text| render.text(text)),
        args: server.args.iter().map(|text| render.text(text)).collect(),
        expands_command: false,
        env: render.pairs(&server.env),
        cwd: server.cwd.as_ref().map(|text| render.text(text)),
        url: server.url.as_ref().map(|text| render.text(text)),
        transport: server.transport.map(str::to_owned),
        headers: render.pairs(&server.headers),
        required: server.required,
        timeout_ms: server.timeout_ms,
        include_tools: server.include_tools.clone(),
        exclude_tools: server.exclude_tools.clone(),
        network: server.network.iter().map(|host| host.value.clone()).collect(),
        writes_tree: server.writes_tree,
        oauth: server.oauth.as_ref().map(|oauth| oauth.value.clone()),
    }
}

#[cfg(test)]
mod tests;
