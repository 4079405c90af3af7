//! Checks templates statically: every name is declared, and every value in a command can be quoted.

use super::comparisons;
use super::model::{CheckKind, InputSpec, Parameter, Recipe, SchemaSpec, StepSource};
use super::plan::InputFormat;
use super::template::{self, FreeName, STEP_FIELDS, TemplateError};
use crate::diag::diagnostic::list;
use crate::diag::reader::Problems;
use crate::diag::{Diagnostic, Shape, SourceFiles, Spanned, did_you_mean, similar_word};
use serde_json::Value;
use std::collections::BTreeSet;

/// Variables of `deliver` texts besides parameters and input.
pub const DELIVERY_NAMES: [&str; 6] = ["answer", "result", "summary", "recipe", "job", "digest"];

struct Check<'a> {
    files: &'a SourceFiles,
    parameters: Vec<&'a str>,
    specs: &'a [Parameter],
    input: Option<InputFormat>,
    /// The only keys that the schema of the input allows, if it is in the recipe and allows no others.
    input_keys: Option<Vec<&'a str>>,
    /// The steps that run a command.
    commands: Vec<&'a str>,
    used: BTreeSet<String>,
    problems: &'a mut Problems,
}

/// Adds a problem for each unknown name in the recipe's templates, and a warning for each unused parameter.
pub(super) fn check(files: &SourceFiles, recipe: &Recipe, problems: &mut Problems) {
    let mut check = Check {
        files,
        parameters: recipe.parameters.iter().map(|p| p.name.value.as_str()).collect(),
        specs: &recipe.parameters,
        input: recipe.input.as_ref().map(|input| input.format),
        input_keys: recipe.input.as_ref().and_then(only_keys),
        commands: recipe
            .steps
            .iter()
            .filter(|step| matches!(step.work, StepSource::Run { .. }))
            .map(|step| step.id.value.as_str())
            .collect(),
        used: BTreeSet::new(),
        problems,
    };
    for text in recipe.context.iter().chain(&recipe.skills) {
        check.text(text, &[]);
    }
    for server in &recipe.tools.mcp_servers {
        let pairs = server.env.iter().chain(&server.headers).map(|(_, text)| text);
        let single = [&server.command, &server.cwd, &server.url].into_iter().flatten();
        for text in server.args.iter().chain(pairs).chain(single) {
            check.text(text, &[]);
        }
    }
    let mut earlier: Vec<&str> = Vec::new();
    for step in &recipe.steps {
        if let Some(when) = &step.when {
            check.condition(when, &earlier);
        }
        match &step.work {
            StepSource::Prompt(text) => check.text(text, &earlier),
            StepSource::Mcp { arguments, text, .. } => {
                arguments.iter().for_each(|(_, text)| check.argument(text));
                text.iter().for_each(|text| check.text(text, &earlier));
            }
            StepSource::Run { command, .. } => check.command(command, &earlier),
        }
        for one in &step.checks {
            match &one.what {
                CheckKind::Run { command, .. } | CheckKind::AnswerRun { command, .. } => {
                    check.command(command, &earlier);
                }
                CheckKind::AnswerSchema(_) => {}
                CheckKind::Changed { only, never, .. } => {
                    only.iter().chain(never).for_each(|text| check.text(text, &[]))
                }
                CheckKind::File { path, contains } => {
                    check.text(path, &[]);
                    contains.iter().for_each(|text| check.text(text, &[]));
                }
            }
        }
        earlier.push(&step.id.value);
    }
    if let Some(deliver) = &recipe.deliver {
        let single = [
            &deliver.title,
            &deliver.body,
            &deliver.commit,
            &deliver.branch,
            &deliver.base,
        ];
        check.parameters.extend(DELIVERY_NAMES);
        for text in single
            .into_iter()
            .flatten()
            .chain(&deliver.labels)
            .chain(&deliver.reviewers)
        {
            check.text(text, &[]);
        }
    }
    let used = check.used;
    for parameter in &recipe.parameters {
        let name = &parameter.name;
        if !used.contains(&name.value) {
            let message = format!("the parameter `{}` is not used", name.value);
            let problem = Diagnostic::warning("unused-parameter", name.span, message);
            problems.push(problem.help(format!(
                "write `{{{{ {} }}}}` where it is needed, or remove it",
                name.value
            )));
        }
    }
}

impl Check<'_> {
    fn command(&mut self, text: &Spanned<String>, earlier: &[&str]) {
        let before = self.problems.len();
        self.text(text, earlier);
        if self.problems.len() == before
            && let Err(error) = template::check_command(&text.value)
        {
            self.problems.push(problem(self.files, text, error));
        }
    }

    /// An argument of a server's prompt: it is rendered before the first step.
    fn argument(&mut self, text: &Spanned<String>) {
        let names = template::names(&text.value).unwrap_or_default();
        let of_step = |name: &&FreeName| name.path.first().is_some_and(|first| first == "steps");
        let Some(name) = names.iter().find(of_step) else {
            return self.text(text, &[]);
        };
        let span = text.locate(self.files, name.range.clone());
        let message = "the server's prompt is requested before the first step, when no step has an output";
        let problem = Diagnostic::error("undefined-name", span, message);
        self.problems
            .push(problem.help("append it to the prompt: add `text: … {{ steps.ID.output }}` beside `arguments`"));
    }

    fn condition(&mut self, text: &Spanned<String>, earlier: &[&str]) {
        match template::condition_names(&text.value) {
            Ok(names) => self.names(text, &names, earlier),
            Err(error) => self.problems.push(problem(self.files, text, error)),
        }
        for one in comparisons::settled(&text.value, self.specs) {
            let span = text.locate(self.files, one.range);
            let problem = Diagnostic::error("settled-comparison", span, one.message);
            self.problems.push(problem.help(one.help));
        }
    }

    fn text(&mut self, text: &Spanned<String>, earlier: &[&str]) {
        let names = template::names(&text.value);
        let names = names.and_then(|names| template::check_words(&text.value).map(|()| names));
        match names {
            Ok(names) => self.names(text, &names, earlier),
            Err(error) => self.problems.push(problem(self.files, text, error)),
        }
    }

    /// The names of one text. An id with a `-` behind a dot is read as a subtraction; it is reported once, with the
    /// intended name.
    fn names(&mut self, text: &Spanned<String>, names: &[FreeName], earlier: &[&str]) {
        let mut until = 0;
        for name in names {
            if name.range.start < until {
                continue;
            }
            let Some((id, end)) = dashed(&text.value, name).filter(|(id, _)| earlier.contains(id)) else {
                self.name(text, name, earlier);
                continue;
            };
            until = end;
            let span = text.locate(self.files, name.range.start..end);
            let message = format!("the id `{id}` has a `-`, which means minus here");
            let problem = Diagnostic::error("undefined-name", span, message);
            self.problems
                .push(problem.help(format!("write `steps[\"{id}\"].output`, and other fields alike")));
        }
    }

    fn name(&mut self, text: &Spanned<String>, name: &FreeName, earlier: &[&str]) {
        let span = text.locate(self.files, name.range.clone());
        let path: Vec<&str> = name.path.iter().map(String::as_str).collect();
        let (message, help) = match path.as_slice() {
            ["input", field] if self.input == Some(InputFormat::Text) => (
                format!("the input is text, which has no `{field}`"),
                Some("write `input` for the text, or declare another `format` of `input`".to_owned()),
            ),
            ["input", field] if self.input == Some(InputFormat::Jsonl) => (
                format!("the input is a list of objects, which has no `{field}`"),
                Some(format!(
                    "loop over it: `{{% for one in input %}}{{{{ one.{field} }}}}{{% endfor %}}`"
                )),
            ),
            ["input", field, ..] if self.is_excluded(field) => {
                let message = format!("the schema of `input` excludes `{field}`");
                let mut problem = Diagnostic::warning("undefined-input", span, message);
                problem.help = did_you_mean(field, self.input_keys.iter().flatten().copied());
                self.problems.push(problem);
                return;
            }
            ["input", ..] if self.input.is_some() => return,
            ["input", ..] => (
                "`input` is used, but the recipe takes no input".to_owned(),
                Some("declare it: `input: {}`, `input: { schema: … }` or `input: { format: text }`".to_owned()),
            ),
            ["steps", id, "exit_code"] if earlier.contains(id) && !self.commands.contains(id) => (
                format!("the step `{id}` runs no command, so it has no exit code"),
                Some(format!("write `steps.{id}.output` or `steps.{id}.status`")),
            ),
            ["steps", id] if earlier.contains(id) => return,
            ["steps", id, field] if earlier.contains(id) && STEP_FIELDS.contains(field) => return,
            ["steps", id, field, ..] if earlier.contains(id) => (
                format!("a step has no `{field}`"),
                did_you_mean(field, STEP_FIELDS).or_else(|| Some(format!("write `steps.{id}.output`"))),
            ),
            ["steps", id, ..] => (
                format!("no step `{id}` comes before this"),
                Some(match did_you_mean(id, earlier.iter().copied()) {
                    Some(help) if !id.contains('-') => help,
                    _ => "use the `id` of an earlier step; one with a `-` is written `steps[\"ID\"].output`".to_owned(),
                }),
            ),
            ["steps"] => (
                "`steps` is used without an id".to_owned(),
                Some("write `steps.ID.output`".to_owned()),
            ),
            [first, ..] if self.parameters.contains(first) => {
                self.used.insert((*first).to_owned());
                return;
            }
            ["recipe", ..] => (
                "`recipe` is not declared".to_owned(),
                Some(
                    "the recipe's commands find the files beside it (`files`) in the directory `$OVERNIGHT_RECIPE_DIR`"
                        .to_owned(),
                ),
            ),
            // With no parameter of that name, `inputs` is rather the input.
            [group @ ("params" | "parameters" | "inputs" | "vars"), name, ..]
                if *group != "inputs" || self.parameters.contains(name) =>
            {
                let declare = match self.parameters.contains(name) {
                    true => String::new(),
                    false => format!(", and declared: `parameters: [{{ name: {name}, type: string }}]`"),
                };
                (
                    format!("`{group}` is not declared"),
                    Some(format!("a parameter is written `{{{{ {name} }}}}`{declare}")),
                )
            }
            ["env", variable, ..] => (
                "`env` is not declared".to_owned(),
                Some(format!(
                    "a command reads `${variable}` itself, if the policy passes it: `env: {{ pass: [{variable}] }}`"
                )),
            ),
            [first, ..] => (format!("`{first}` is not declared"), Some(self.declare(first))),
            [] => return,
        };
        let mut problem = Diagnostic::error("undefined-name", span, message);
        problem.help = help;
        self.problems.push(problem);
    }

    /// Whether no valid input has this key.
    fn is_excluded(&self, key: &str) -> bool {
        self.input_keys.as_ref().is_some_and(|keys| !keys.contains(&key))
    }

    /// What to do about a name that is not declared.
    fn declare(&self, name: &str) -> String {
        let near = self.parameters.iter().copied().chain(["input", "steps"]);
        if let Some(near) = similar_word(name, near) {
            return format!("did you mean `{near}`?");
        }
        let taken = self.input.is_some().then_some("input");
        let known: Vec<&str> = self.parameters.iter().copied().chain(taken).collect();
        match known.as_slice() {
            [] => format!("declare it: `parameters: [{{ name: {name}, type: string }}]`"),
            [only] => format!("declare it under `parameters`, or write `{only}`"),
            known => format!("declare it under `parameters`, or write one of {}", list(known)),
        }
    }
}

/// The keys of an input whose schema allows no others.
fn only_keys(input: &InputSpec) -> Option<Vec<&str>> {
    let Some(SchemaSpec::Inline(schema)) = &input.schema else {
        return None;
    };
    let is_closed = schema
        .get("additionalProperties")
        .is_some_and(|node| node.to_json() == Value::Bool(false));
    if input.format != InputFormat::Json || !is_closed || schema.get("patternProperties").is_some() {
        return None;
    }
    match &schema.get("properties")?.shape {
        Shape::Map(entries) => Some(entries.iter().map(|entry| entry.key.as_str()).collect()),
        Shape::Scalar(_) | Shape::List(_) => None,
    }
}

/// The id with a `-` that is written behind `steps.` where this name begins, and where it ends.
fn dashed<'t>(text: &'t str, name: &FreeName) -> Option<(&'t str, usize)> {
    const BEFORE: &str = "steps.";
    let start = name.range.start + BEFORE.len();
    let rest = text.get(name.range.start..)?.strip_prefix(BEFORE)?;
    let is_part = |letter: char| letter.is_ascii_alphanumeric() || letter == '_' || letter == '-';
    let id = rest.split(|letter| !is_part(letter)).next()?;
    id.contains('-').then(|| (id, start + id.len()))
}

/// Converts a template's error to its position in the file.
pub(super) fn problem(files: &SourceFiles, text: &Spanned<String>, error: TemplateError) -> Diagnostic {
    let span = error.range.map_or(text.span, |range| text.locate(files, range));
    Diagnostic::error("template", span, error.message).help(error.help)
}
