//! Validates the other files that a recipe names (schemas and settings), and the input against its schema. The caller
//! reads the files.

use super::import;
use super::input;
use super::model::{CheckKind, Recipe, SchemaSpec, StepSource};
use super::plan::{Expect, InputFormat};
use super::schema_keywords;
use crate::base::secret::shortened;
use crate::diag::reader::Problems;
use crate::diag::{self, Diagnostic, SourceFiles, Span, Spanned};
use serde_json::Value;
use std::collections::VecDeque;

/// The purpose of a file named in a recipe; the caller decides where to look and what to refuse.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DocumentUse {
    /// A JSON Schema; relative to the recipe's directory.
    Schema,
    /// A `settings.json`; relative to the recipe's directory, or else to the workspace.
    Settings,
    /// A recipe of goose that belongs to this one; relative to the recipe's directory.
    SubRecipe,
}

/// Reads a file that the recipe names; an error is a sentence for people.
pub type ReadDocument<'a> = &'a dyn Fn(DocumentUse, &str) -> Result<String, String>;

/// The files that a recipe names besides its policy, with their purposes.
pub fn named(recipe: &Recipe) -> Vec<(DocumentUse, &Spanned<String>)> {
    let input = recipe.input.as_ref().and_then(|input| input.schema.as_ref());
    let response = recipe.response.as_ref().map(|response| &response.schema);
    let schemas = input.into_iter().chain(response).chain(of_answers(recipe));
    let schemas = schemas.filter_map(|spec| match spec {
        SchemaSpec::File(path) => Some((DocumentUse::Schema, path)),
        SchemaSpec::Inline(_) => None,
    });
    let settings = recipe.tools.settings.iter().map(|path| (DocumentUse::Settings, path));
    let parts = recipe
        .tools
        .sub_recipes
        .iter()
        .map(|part| (DocumentUse::SubRecipe, &part.path));
    schemas.chain(settings).chain(parts).collect()
}

/// The schemas of checks on answers, in the order of the file.
fn of_answers(recipe: &Recipe) -> impl Iterator<Item = &SchemaSpec> {
    let checks = recipe.steps.iter().flat_map(|step| &step.checks);
    checks.filter_map(|check| match &check.what {
        CheckKind::AnswerSchema(spec) => Some(spec),
        _ => None,
    })
}

/// The content of the recipe's other files.
pub(super) struct Documents {
    pub input: Option<Value>,
    pub response: Option<Value>,
    /// Schemas of checks on answers, in the order of the file.
    pub answers: VecDeque<Option<Value>>,
    pub imported: import::Imported,
    /// The texts of the sub-recipes, to be appended to the task; empty if there are none.
    pub parts: String,
}

/// Reads and validates all of them.
pub(super) fn load(recipe: &Recipe, read: ReadDocument<'_>, problems: &mut Problems) -> Documents {
    let input = recipe.input.as_ref().and_then(|input| input.schema.as_ref());
    let response = recipe.response.as_ref().map(|response| &response.schema);
    let documents = Documents {
        input: input.and_then(|spec| schema(spec, read, problems)),
        response: response.and_then(|spec| schema(spec, read, problems)),
        answers: of_answers(recipe).map(|spec| schema(spec, read, problems)).collect(),
        imported: settings(recipe, read, problems),
        parts: parts(recipe, read, problems),
    };
    prompts(recipe, &documents.imported, problems);
    documents
}

/// Checks that a value is a JSON Schema that answers can be validated against.
///
/// # Errors
/// What is wrong with it, in one sentence.
pub fn check_schema(value: &Value) -> Result<(), String> {
    match jsonschema::validator_for(value) {
        Ok(_) => Ok(()),
        Err(error) => Err(format!("not a JSON Schema: {error}")),
    }
}

fn schema(spec: &SchemaSpec, read: ReadDocument<'_>, problems: &mut Problems) -> Option<Value> {
    let span = spec.span();
    let value = match spec {
        SchemaSpec::Inline(node) => node.to_json(),
        SchemaSpec::File(path) => match read(DocumentUse::Schema, &path.value).and_then(|text| data(&text)) {
            Ok(value) => value,
            Err(why) => {
                problems.push(unreadable(
                    &path.value,
                    &why,
                    span,
                    "a path is relative to the recipe's directory",
                ));
                return None;
            }
        },
    };
    let checked = match spec {
        SchemaSpec::Inline(_) => check_schema(&value),
        // Whoever reads the message need not be one who may read the file.
        SchemaSpec::File(_) => jsonschema::validator_for(&value)
            .map(drop)
            .map_err(|error| format!("not a JSON Schema: {}", error.masked())),
    };
    if let Err(why) = checked {
        let problem = Diagnostic::error("bad-schema", span, why);
        problems.push(
            problem.help("write a JSON Schema such as `{ type: object, required: [summary] }`; `$ref` only within it"),
        );
        return None;
    }
    for (keyword, meant) in schema_keywords::misspelt(&value) {
        let message = format!("`{keyword}` is no keyword of JSON Schema, so that it checks nothing");
        let problem = Diagnostic::warning("schema-keyword", span, message);
        problems.push(problem.help(format!("did you mean `{meant}`?")));
    }
    Some(value)
}

/// JSON or YAML.
fn data(text: &str) -> Result<Value, String> {
    if let Ok(value) = serde_json::from_str(text) {
        return Ok(value);
    }
    let mut files = SourceFiles::new();
    let id = files.add("", text);
    diag::parse(&files, id).map(|node| node.to_json()).map_err(|problems| {
        let first = problems.first().map(|problem| {
            let place = problem.span.map(|span| files.place(span));
            let (line, column) = place.map_or((1, 1), |place| (place.line, place.column));
            format!("line {line}, column {column}: {}", problem.message)
        });
        first.unwrap_or_default()
    })
}

fn unreadable(path: &str, why: &str, span: Span, help: &str) -> Diagnostic {
    Diagnostic::error("unreadable-file", span, format!("`{path}`: {why}")).help(help)
}

fn settings(recipe: &Recipe, read: ReadDocument<'_>, problems: &mut Problems) -> import::Imported {
    let Some(path) = &recipe.tools.settings else {
        return import::Imported::default();
    };
    let own: Vec<&str> = recipe
        .tools
        .mcp_servers
        .iter()
        .map(|server| server.name.value.as_str())
        .collect();
    match read(DocumentUse::Settings, &path.value).and_then(|text| import::settings(&text, &own)) {
        Ok(imported) => {
            for warning in &imported.warnings {
                let problem = Diagnostic::warning("import", path.span, format!("`{}`: {warning}", path.value));
                problems.push(problem.help("write it in the recipe's `tools` section where it is needed"));
            }
            imported
        }
        Err(why) => {
            let help = "name a settings.json beside the recipe or in the workspace";
            problems.push(unreadable(&path.value, &why, path.span, help));
            import::Imported::default()
        }
    }
}

/// The texts of the sub-recipes. The model follows them itself where the task refers to one by name.
fn parts(recipe: &Recipe, read: ReadDocument<'_>, problems: &mut Problems) -> String {
    let mut out = String::new();
    for part in &recipe.tools.sub_recipes {
        let text = read(DocumentUse::SubRecipe, &part.path.value).and_then(|text| super::goose::part(part, &text));
        match text {
            Ok((text, warnings)) => {
                out.push_str(&text);
                for warning in warnings {
                    let message = format!("`{}`: {warning}", part.path.value);
                    problems.push(Diagnostic::warning("goose", part.path.span, message));
                }
            }
            Err(why) => {
                let help =
                    "a sub-recipe is a goose recipe; its path is relative to the directory of the recipe that names it";
                problems.push(unreadable(&part.path.value, &why, part.path.span, help));
            }
        }
    }
    match out.is_empty() {
        true => out,
        false => format!(
            "\n\nSub-recipes: parts of this work, each with its name. Carry one out where the task calls for it; a word in angle brackets \
             is a value that you choose.\n{out}"
        ),
    }
}

/// Checks that each server whose prompt a step uses is declared in the recipe.
fn prompts(recipe: &Recipe, imported: &import::Imported, problems: &mut Problems) {
    let written = recipe.tools.mcp_servers.iter().map(|server| server.name.value.as_str());
    let known: Vec<&str> = written.chain(imported.mcp_servers.keys().map(String::as_str)).collect();
    for step in &recipe.steps {
        let StepSource::Mcp { server, .. } = &step.work else {
            continue;
        };
        if !known.contains(&server.value.as_str()) {
            let message = format!("the recipe has no MCP server `{}`", server.value);
            let mut problem = Diagnostic::error("unknown-server", server.span, message);
            problem.help = diag::did_you_mean(&server.value, known.iter().copied())
                .or_else(|| Some("add it to `tools.mcp_servers`".to_owned()));
            problems.push(problem);
        }
    }
}

/// Checks that required input was given and is valid against its schema. `lines`: for JSON Lines, the position of each
/// element, as far as they are known.
pub(super) fn check_input(
    files: &SourceFiles,
    recipe: &Recipe,
    input: Option<&Value>,
    lines: &[Span],
    schema: Option<&Value>,
    problems: &mut Problems,
) {
    match (&recipe.input, input) {
        (None, Some(_)) => {
            let problem = Diagnostic::error(
                "unexpected-input",
                recipe.head,
                "`--input` is given, but the recipe takes no input",
            );
            problems.push(problem.help("declare `input: {}` in the recipe, or remove `--input`"));
        }
        (Some(spec), None) => {
            let problem = Diagnostic::error("missing-input", spec.span, "the recipe needs `--input`");
            problems.push(problem.help(format!(
                "give `--input FILE`, or `--input -` and the {} on stdin",
                spec.format.as_str()
            )));
        }
        (Some(spec), Some(input)) => {
            let Some(validator) = schema.and_then(|schema| jsonschema::validator_for(schema).ok()) else {
                return;
            };
            let schema_at = spec.schema.as_ref().map_or(spec.span, SchemaSpec::span);
            let help = match spec.format {
                InputFormat::Json => "change the input here: the value, or what the object lacks",
                InputFormat::Jsonl => "change this line of the input",
                InputFormat::Text => "change the input",
            };
            // `place` says where in the input a JSON pointer leads; `None` when no file holds the input.
            let told = |part: &Value, what: &str, place: &dyn Fn(&str) -> Option<Span>, problems: &mut Problems| {
                for error in validator.iter_errors(part).take(MAX_LISTED) {
                    let path = error.instance_path().to_string();
                    let at = match path.is_empty() {
                        true => what.to_owned(),
                        false => format!("{what} at `{path}`"),
                    };
                    // It quotes values, which may be long.
                    let why = shortened(&error.to_string(), 300);
                    let message = format!("{at} does not match the schema: {why}");
                    problems.push(match place(&path) {
                        None => Diagnostic::error("bad-input", schema_at, message)
                            .help("change the input to match this schema"),
                        Some(place) => Diagnostic::error("bad-input", place, message)
                            .label(schema_at, "the schema")
                            .help(help),
                    });
                }
            };
            match (spec.format, input) {
                (InputFormat::Jsonl, Value::Array(items)) => {
                    let before = problems.len();
                    for (number, item) in items.iter().enumerate() {
                        let place = lines.get(number).copied();
                        let what = match place {
                            Some(_) => "this object".to_owned(),
                            None => format!("object {} of the input", number + 1),
                        };
                        told(item, &what, &|_| place, problems);
                        if problems.len() - before >= MAX_LISTED {
                            break;
                        }
                    }
                }
                _ => {
                    let whole = lines.first().copied();
                    let place = |path: &str| whole.map(|whole| input::place_of(files, whole, path));
                    told(input, "the input", &place, problems);
                }
            }
        }
        (None, None) => {}
    }
}

/// Limit of reported problems of one input.
const MAX_LISTED: usize = 20;

/// The given input in the declared format; a problem if it cannot be converted to it.
pub(super) fn formatted<'a>(
    recipe: &Recipe,
    given: Option<&'a Value>,
    problems: &mut Problems,
) -> Option<std::borrow::Cow<'a, Value>> {
    let (spec, value) = (recipe.input.as_ref(), given?);
    let Some(spec) = spec else {
        return Some(std::borrow::Cow::Borrowed(value));
    };
    match input::of_format(value, spec.format) {
        Ok(value) => Some(value),
        Err(why) => {
            let problem = Diagnostic::error("bad-input", spec.span, why);
            problems.push(problem.help(format!("give {}, as the recipe declares it here", spec.format.as_str())));
            None
        }
    }
}

/// The error for a recipe that expects a change and is run without `--policy`. `None` when it expects none.
pub fn policy_needed(recipe: &Recipe) -> Option<Diagnostic> {
    let of_steps = recipe.steps.iter().find(|step| step.expect == Some(Expect::Change));
    let at = match recipe.expect_of_run() {
        Expect::Change => recipe.expect_at.unwrap_or(recipe.head),
        _ => of_steps?.id.span,
    };
    let message = "the recipe expects a change, but without `--policy` nothing may be written";
    Some(
        Diagnostic::error("policy-needed", at, message)
            .help("give `--policy FILE`; the recipe's own policy only narrows it"),
    )
}
