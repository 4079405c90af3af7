//! Parses a recipe file and reports all its problems at once. Pure: opens no other file.

mod prompts;
mod steps;
mod tools;

pub(super) use steps::bad_pattern;

use super::model::{
    BudgetSpec, DeliverSpec, InputSpec, Parameter, ParameterType, RESPONSE_RETRIES, Recipe, ResponseSpec, SchemaSpec,
    Step, StepSource,
};
use super::params;
use super::plan::{Expect, InputFormat, ModelSettings, OnDeny};
use crate::base::budget::micros;
use crate::base::quote::shell_word;
use crate::diag::reader::{self, Problems};
use crate::diag::{self, Diagnostic, FileKind, Reader, Shape, SourceFiles, SourceId, Span, Spanned, YamlNode};

/// Highest allowed `retry.max`.
const MAX_RETRIES: u64 = 100;

pub(super) const EXPECT: [(&str, Expect); 3] = [
    ("change", Expect::Change),
    ("no_change", Expect::NoChange),
    ("any", Expect::Any),
];

/// The recipe in a file of `files`. Warnings are added to `warnings`.
///
/// # Errors
/// Every problem of the file, in file order.
pub fn parse(files: &SourceFiles, file: SourceId, warnings: &mut Vec<Diagnostic>) -> Result<Recipe, Vec<Diagnostic>> {
    let (recipe, problems) = read(files, file);
    diag::settle(recipe, problems, warnings)
}

/// As much of a recipe as can be read, with every problem and warning of the file, unsorted. For finding further
/// problems; the recipe is valid only if none of them is an error. `None` if the file could not be read to its end.
pub fn read(files: &SourceFiles, file: SourceId) -> (Option<Recipe>, Vec<Diagnostic>) {
    if let Some(problem) = FileKind::unlike(files, file, FileKind::Recipe) {
        return (None, vec![problem]);
    }
    if files.name(file).ends_with(super::gemini_command::EXTENSION) {
        return match super::gemini_command::read(files, file) {
            Err(problems) => (None, problems),
            Ok(recipe) => {
                let mut problems = Vec::new();
                super::names::check(files, &recipe, &mut problems);
                (Some(recipe), problems)
            }
        };
    }
    if let Some(parts) = super::agentic_workflow::of(files, file) {
        let mut problems = Vec::new();
        return match super::agentic_workflow::read(files, file, parts, &mut problems) {
            Err(further) => (None, problems.into_iter().chain(further).collect()),
            Ok(recipe) => {
                if let Some(recipe) = &recipe {
                    super::names::check(files, recipe, &mut problems);
                }
                (recipe, problems)
            }
        };
    }
    if let Some(problem) = plain_text(files, file) {
        return (None, vec![problem]);
    }
    let reading = diag::yaml::read(files, file);
    let mut problems = Vec::new();
    let unread = reading.cut || !reading.problems.is_empty();
    let mut recipe = match super::goose::of(&reading.root) {
        Some(theirs) => super::goose::read(theirs, files.name(file), &mut problems),
        None => {
            let recipe = recipe(&reading.root, &mut problems);
            // The value may be in the part that was not read.
            if !unread {
                reader::refuse_empty(&reading.root, &FREE, &mut problems);
            }
            recipe
        }
    };
    match &recipe {
        Some(recipe) if !reading.cut => super::names::check(files, recipe, &mut problems),
        _ => recipe = None,
    }
    if unread {
        // Keys that were refused, or that may be in the part that was not read, are not missing.
        problems.retain(|problem| match reading.cut {
            true => OF_ONE_VALUE.contains(&problem.code),
            false => problem.code != "missing-key",
        });
    }
    problems.extend(reading.problems);
    (recipe, problems)
}

/// The problem of a document that is no recipe in any format, but may be meant as a prompt.
fn plain_text(files: &SourceFiles, file: SourceId) -> Option<Diagnostic> {
    let name = files.name(file);
    let is_document = [".md", ".markdown", ".txt"].iter().any(|end| name.ends_with(end));
    if !is_document || diag::front_matter(files.text(file)).is_some() || FileKind::of(files, file).is_some() {
        return None;
    }
    let problem = Diagnostic::error("wrong-kind", files.whole(file).point(), "this is a text, not a recipe");
    let prompt = shell_word(&format!("@{name}"));
    Some(problem.help(format!("to run it as a prompt, write `overnight run -p {prompt}`")))
}

/// Keys whose values are not of the recipe's own format: JSON Schemas.
const FREE: [&str; 1] = ["schema"];

/// Codes of problems that concern one key or value, independent of the rest of the file.
const OF_ONE_VALUE: [&str; 10] = [
    "unknown-key",
    "unknown-word",
    "wrong-type",
    "out-of-range",
    "bad-name",
    "bad-glob",
    "bad-path",
    "outside-path",
    "duplicate-id",
    "duplicate-name",
];

fn recipe(root: &YamlNode, problems: &mut Problems) -> Option<Recipe> {
    let mut reader = Reader::open(root, "the recipe", problems)?;
    reader.version(problems);
    let name = reader
        .need_text("name", problems)
        .filter(|name| named(name, "name", problems));
    let description = description(&mut reader, problems);
    let parameters = parameters(&mut reader, problems);
    let input = input(&mut reader, problems);
    let files = files(&mut reader, problems);
    let models = reader.one_or_more("model", problems).unwrap_or_default();
    let model_settings = model_settings(&mut reader, problems).unwrap_or_default();
    let policy = reader.text("policy", problems);
    let on_deny = reader
        .choice("on_deny", &[("tell", OnDeny::Tell), ("stop", OnDeny::Stop)], problems)
        .map_or(OnDeny::default(), |word| word.value);
    let expect = reader.choice("expect", &EXPECT, problems);
    let expect_at = expect.as_ref().map(|word| word.span);
    let skip = reader.bool("skip_if_green", problems).filter(|flag| flag.value);
    let skip_at = skip.map(|flag| flag.span);
    let budget = budget(&mut reader, problems).unwrap_or_default();
    let (context, required_context) = context(&mut reader, problems);
    let skills = inside(reader.texts("skills", problems), problems);
    let memory = reader.bool("memory", problems).is_some_and(|flag| flag.value);
    let isolate_keep = isolate_keep(&mut reader, problems);
    let tools = tools::read(&mut reader, problems);
    let steps = steps::read(&mut reader, problems);
    let response_at = reader.entry("response").map(|entry| entry.key_span);
    let response = response(&mut reader, problems);
    let deliver = deliver(&mut reader, problems);
    let head = reader.head();
    reader.finish(problems);
    whole(&steps, skip_at, response_at, problems);
    Some(Recipe {
        name: name.unwrap_or(Spanned {
            value: String::new(),
            span: head,
        }),
        description,
        parameters,
        input,
        files,
        models,
        model_settings,
        policy,
        on_deny,
        expect: expect.map_or(Expect::Any, |word| word.value),
        expect_at,
        skip_if_green: skip_at.is_some(),
        budget,
        context,
        required_context,
        skills,
        memory,
        isolate_keep,
        tools,
        steps,
        response,
        deliver,
        head,
    })
}

fn deliver(reader: &mut Reader<'_>, problems: &mut Problems) -> Option<DeliverSpec> {
    let mut block = reader.map("deliver", "`deliver`", problems)?;
    let spec = DeliverSpec {
        title: block.text("title", problems),
        body: block.text("body", problems),
        commit: block.text("commit", problems),
        branch: block.text("branch", problems),
        base: block.text("base", problems),
        labels: block.one_or_more("labels", problems).unwrap_or_default(),
        reviewers: block.one_or_more("reviewers", problems).unwrap_or_default(),
        draft: block.bool("draft", problems).is_some_and(|flag| flag.value),
    };
    block.finish(problems);
    Some(spec)
}

/// Checks that need all steps.
fn whole(steps: &[Step], skip_at: Option<Span>, response_at: Option<Span>, problems: &mut Problems) {
    if let (Some(span), true) = (skip_at, steps.iter().all(|step| step.checks.is_empty())) {
        let problem = Diagnostic::error(
            "skip-without-checks",
            span,
            "`skip_if_green` needs checks that can be green",
        );
        problems.push(problem.help("add `checks` to a step"));
    }
    let no_prompt = !steps.is_empty() && steps.iter().all(|step| matches!(step.work, StepSource::Run { .. }));
    if let (Some(span), true) = (response_at, no_prompt) {
        let problem = Diagnostic::error(
            "response-without-prompt",
            span,
            "no step asks a model, so there is no answer",
        );
        problems.push(problem.help("add a step with `prompt`, or remove `response`"));
    }
}

/// The `description` of a recipe or parameter; empty when there is none.
fn description(reader: &mut Reader<'_>, problems: &mut Problems) -> String {
    reader
        .text("description", problems)
        .map(|text| text.value)
        .unwrap_or_default()
}

/// Names of recipes and steps: letters, digits, `-`, `_`, `.`; at most 64 characters; the first is a letter or digit.
pub(super) fn named(name: &Spanned<String>, key: &str, problems: &mut Problems) -> bool {
    let of_name = |c: char| c.is_alphanumeric() || matches!(c, '-' | '_' | '.');
    let sound = name.value.starts_with(char::is_alphanumeric)
        && name.value.chars().all(of_name)
        && name.value.chars().count() <= 64;
    if !sound {
        let message = format!("`{key}` cannot be `{}`", name.value);
        let help = "use at most 64 letters, digits, `-`, `_` and `.`, beginning with a letter or digit";
        problems.push(Diagnostic::error("bad-name", name.span, message).help(help));
    }
    sound
}

/// Accepts only paths inside the workspace.
fn inside(paths: Option<Vec<Spanned<String>>>, problems: &mut Problems) -> Vec<Spanned<String>> {
    let paths = paths.unwrap_or_default();
    for path in &paths {
        let plain = path.value.strip_prefix('@').unwrap_or(&path.value);
        if !params::stays_inside(plain) {
            let message = format!("`{}` does not stay inside the workspace", path.value);
            let help = "name a file relative to the workspace, without `..`";
            problems.push(Diagnostic::error("outside-path", path.span, message).help(help));
        }
    }
    paths
}

/// The `context` list: paths, or `{ path: PATH, required: true }`. Returns all paths, and the required ones.
fn context(reader: &mut Reader<'_>, problems: &mut Problems) -> (Vec<Spanned<String>>, Vec<Spanned<String>>) {
    let (mut all, mut required) = (Vec::new(), Vec::new());
    for node in reader.items("context", problems).unwrap_or_default() {
        if !matches!(node.shape, Shape::Map(_)) {
            all.extend(diag::reader::text(node, "context", problems));
            continue;
        }
        let Some(mut map) = Reader::open(node, "a context file", problems) else {
            continue;
        };
        let path = map.need_text("path", problems);
        let must = map.bool("required", problems).is_some_and(|flag| flag.value);
        map.finish(problems);
        if must {
            required.extend(path.clone());
        }
        all.extend(path);
    }
    (inside(Some(all), problems), required)
}

/// `isolate: { keep: [node_modules] }`.
fn isolate_keep(reader: &mut Reader<'_>, problems: &mut Problems) -> Vec<Spanned<String>> {
    let Some(mut map) = reader.map("isolate", "`isolate`", problems) else {
        return Vec::new();
    };
    if map.node("keep").is_none() {
        map.missing("keep", problems);
    }
    let keep = inside(map.texts("keep", problems), problems);
    map.finish(problems);
    keep
}

fn parameters(reader: &mut Reader<'_>, problems: &mut Problems) -> Vec<Parameter> {
    let mut found: Vec<Parameter> = Vec::new();
    for node in reader.items("parameters", problems).unwrap_or_default() {
        let Some(parameter) = parameter(node, problems) else {
            continue;
        };
        if let Some(first) = found.iter().find(|first| first.name.value == parameter.name.value) {
            let message = format!("the parameter `{}` is declared twice", parameter.name.value);
            let problem = Diagnostic::error("duplicate-parameter", parameter.name.span, message);
            problems.push(
                problem
                    .label(first.name.span, "first declared here")
                    .help("keep one of the two"),
            );
            continue;
        }
        found.push(parameter);
    }
    found
}

fn parameter(node: &YamlNode, problems: &mut Problems) -> Option<Parameter> {
    let mut reader = Reader::open(node, "this parameter", problems)?;
    let name = reader.need_text("name", problems);
    let kind = reader
        .choice("type", &ParameterType::WORDS, problems)
        .map(|kind| kind.value);
    let description = description(&mut reader, problems);
    let default = reader.node("default");
    let choices_at = reader.entry("choices").map(|entry| entry.key_span);
    let choices = reader.items("choices", problems).unwrap_or_default();
    let head = reader.head();
    reader.finish(problems);
    let name = name?;
    if !params::is_name(&name.value) {
        let message = format!("a parameter cannot be called `{}`", name.value);
        let help = "use letters, digits and `_`, not beginning with a digit; `input`, `steps`, `loop` and words of the template language are taken";
        problems.push(Diagnostic::error("bad-name", name.span, message).help(help));
        return None;
    }
    let kind = kind.unwrap_or(if choices_at.is_some() {
        ParameterType::Enum
    } else {
        ParameterType::String
    });
    if (kind == ParameterType::Enum) && choices.is_empty() {
        let problem = Diagnostic::error("missing-key", choices_at.unwrap_or(head), "an `enum` needs `choices`");
        problems.push(problem.help("add `choices: [one, two]`"));
    }
    let choices = choices
        .iter()
        .filter_map(|choice| params::read_node(choice, kind, &[], &name.value, problems))
        .collect::<Vec<_>>();
    let default = default.and_then(|node| params::read_node(node, kind, &choices, &name.value, problems));
    Some(Parameter {
        name,
        kind,
        description,
        default,
        choices,
    })
}

fn input(reader: &mut Reader<'_>, problems: &mut Problems) -> Option<InputSpec> {
    let span = reader.entry("input")?.key_span;
    let mut map = reader.map("input", "`input`", problems)?;
    let format = map.choice("format", &InputFormat::WORDS, problems);
    let schema = schema(&mut map, problems);
    map.finish(problems);
    Some(InputSpec {
        format: format.map_or(InputFormat::default(), |format| format.value),
        schema,
        span,
    })
}

/// `files: [check.py, lib]`: files beside the recipe that its commands get.
fn files(reader: &mut Reader<'_>, problems: &mut Problems) -> Vec<Spanned<String>> {
    let files = reader.one_or_more("files", problems).unwrap_or_default();
    for (at, path) in files.iter().enumerate() {
        if !params::stays_inside(&path.value) {
            let message = format!("`{}` is not beside the recipe", path.value);
            let problem = Diagnostic::error("outside-path", path.span, message);
            problems.push(problem.help("name a file or directory relative to the recipe's directory, without `..`"));
        }
        if let Some(first) = files.iter().take(at).find(|first| first.value == path.value) {
            let problem = Diagnostic::error(
                "duplicate-value",
                path.span,
                format!("`{}` is listed twice", path.value),
            );
            problems.push(
                problem
                    .label(first.span, "first listed here")
                    .help("keep one of the two"),
            );
        }
    }
    files
}

fn response(reader: &mut Reader<'_>, problems: &mut Problems) -> Option<ResponseSpec> {
    let mut map = reader.map("response", "`response`", problems)?;
    let schema = schema(&mut map, problems);
    if schema.is_none() && map.node("schema").is_none() {
        map.missing("schema", problems);
    }
    let retries = retry(&mut map, problems).map_or(RESPONSE_RETRIES, |retry| retry.max);
    map.finish(problems);
    Some(ResponseSpec {
        schema: schema?,
        retries,
    })
}

fn schema(map: &mut Reader<'_>, problems: &mut Problems) -> Option<SchemaSpec> {
    let node = map.node("schema")?;
    match &node.shape {
        Shape::Map(_) => Some(SchemaSpec::Inline(node.clone())),
        Shape::Scalar(_) => reader::text(node, "schema", problems).map(SchemaSpec::File),
        Shape::List(_) => {
            problems.push(reader::wrong_type(node, "`schema`", "a JSON Schema or the path of one"));
            None
        }
    }
}

/// The `retry` of a step or of the response.
struct Retry {
    max: u32,
    fresh: bool,
}

/// `model_settings: { max_output_tokens: N, first_byte_timeout: TIME }`.
fn model_settings(reader: &mut Reader<'_>, problems: &mut Problems) -> Option<ModelSettings> {
    let mut map = reader.map("model_settings", "`model_settings`", problems)?;
    let tokens = map.whole("max_output_tokens", problems);
    let timeout = map.duration("first_byte_timeout", problems);
    map.finish(problems);
    for span in [
        tokens
            .as_ref()
            .filter(|tokens| tokens.value == 0)
            .map(|tokens| tokens.span),
        timeout
            .as_ref()
            .filter(|timeout| timeout.value == 0)
            .map(|timeout| timeout.span),
    ]
    .into_iter()
    .flatten()
    {
        let problem = Diagnostic::error("out-of-range", span, "a limit of 0 allows no answer");
        problems.push(problem.help("write 1 or more, or remove the key"));
    }
    Some(ModelSettings {
        max_output_tokens: tokens.map(|tokens| tokens.value),
        first_byte_timeout_ms: timeout.map(|timeout| timeout.value),
    })
}

/// `retry: { max: N, fresh: true }`.
fn retry(reader: &mut Reader<'_>, problems: &mut Problems) -> Option<Retry> {
    let mut map = reader.map("retry", "`retry`", problems)?;
    if map.node("max").is_none() {
        map.missing("max", problems);
    }
    let max = map.whole("max", problems);
    let fresh = map.bool("fresh", problems).is_some_and(|flag| flag.value);
    map.finish(problems);
    let max = max?;
    if max.value > MAX_RETRIES {
        let message = format!("`max` is {}, more than {MAX_RETRIES}", max.value);
        problems
            .push(Diagnostic::error("out-of-range", max.span, message).help(format!("write at most {MAX_RETRIES}")));
    }
    Some(Retry {
        max: u32::try_from(max.value).ok()?,
        fresh,
    })
}

/// The `budget` of a recipe or step.
fn budget(reader: &mut Reader<'_>, problems: &mut Problems) -> Option<BudgetSpec> {
    let mut map = reader.map("budget", "`budget`", problems)?;
    let mut calls = Vec::new();
    let turns = map.limit("turns", problems).map(|turns| turns.value);
    let tokens = map.limit("tokens", problems).map(|tokens| tokens.value);
    let cost = map.amount_limit("cost", problems);
    let wall_ms = map.duration("wall", problems).map(|wall| wall.value);
    for entry in map.entries("calls", problems).unwrap_or_default() {
        if let Some(limit) = reader::whole(&entry.value, &entry.key, problems) {
            let name = Spanned {
                value: entry.key.clone(),
                span: entry.key_span,
            };
            calls.push((name, limit.value));
        }
    }
    map.finish(problems);
    Some(BudgetSpec {
        turns,
        tokens,
        cost_micros: cost.map(|cost| micros(cost.value)),
        wall_ms,
        calls,
    })
}

#[cfg(test)]
mod tests;
