//! Templates: `{{ name }}`, `{{ input.title }}`, `{{ steps.ID.output }}`, `{% if %}` and `{% for %}`. Pure.
//!
//! An undefined name is an error. In commands ([`render_command`]) every value is quoted for the shell, unless the
//! author writes `{{ name | raw }}`. A template cannot include another one; rendering time and length are limited.

mod author;
mod limited;

pub use author::{VALUE, render_author};

use self::limited::{Bounded, TIME, in_time, is_simple};
use super::shell::{self, CLOSE, OPEN, ShellValue};
use super::template_error::HELP_UNDEFINED;
pub use super::template_error::TemplateError;
use crate::base::quote::excerpt;
use crate::base::sync::lock;
use minijinja::syntax::SyntaxConfig;
use minijinja::value::{Object, ObjectRepr, Serde, ValueKind};
use minijinja::{AutoEscape, Environment, Error, ErrorKind, Output, UndefinedBehavior};
use serde_json::Value;
use std::collections::BTreeMap;
use std::fmt;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

/// Limit of instructions that one rendering may execute.
const FUEL: u64 = 500_000;

const HELP_CONDITION: &str =
    "write an expression such as `steps.lint.exit_code != 0` or `input.kind == \"bug\" and deep`";

/// The results of earlier steps, by step id.
pub type StepOutputs = BTreeMap<String, StepValues>;

/// What templates and conditions see of an earlier step.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StepValues {
    /// `steps.ID.output`: the answer, or what the command printed. Empty for a skipped step.
    pub output: String,
    /// `steps.ID.exit_code`; `none` for a prompt, a skipped step and a command killed by a signal.
    pub exit_code: Option<i32>,
    /// `steps.ID.status`: `passed` or `skipped`. A step that failed ends the run.
    pub status: &'static str,
    /// `steps.ID.cut`: whether `output` is only head and tail of what the command printed.
    pub cut: bool,
    /// Whether `output` was printed by a command, and is not an answer of a model.
    pub is_printed: bool,
}

/// The names in [`StepValues`], as recipes write them.
pub const STEP_FIELDS: [&str; 4] = ["output", "exit_code", "status", "cut"];

/// Upper limit in bytes for the output of a command in a prompt that names the whole output; head and tail are kept.
const IN_PROMPT: usize = 16 << 10;

impl StepValues {
    /// The values of a step that passed and has no exit code.
    pub fn of_output(output: impl Into<String>) -> Self {
        Self {
            output: output.into(),
            exit_code: None,
            status: "passed",
            cut: false,
            is_printed: false,
        }
    }

    /// These values without one newline at the end of the output. Unlike `$(…)` of a shell, further newlines are kept.
    fn without_newline(&self) -> Self {
        let cut = self
            .output
            .strip_suffix("\r\n")
            .or_else(|| self.output.strip_suffix('\n'));
        Self {
            output: cut.unwrap_or(&self.output).to_owned(),
            ..self.clone()
        }
    }

    fn value(&self) -> minijinja::Value {
        minijinja::Value::from_pairs([
            ("output", minijinja::Value::from(self.output.as_str())),
            ("exit_code", minijinja::Value::from(Serde(&self.exit_code))),
            ("status", minijinja::Value::from(self.status)),
            ("cut", minijinja::Value::from(self.cut)),
        ])
    }
}

/// The values of a step whose output was cut. They record whether a condition reads `output`, and whether it reads
/// `cut`.
#[derive(Debug)]
struct CutStep {
    values: minijinja::Value,
    reads_output: AtomicBool,
    reads_cut: AtomicBool,
}

impl Object for CutStep {
    fn get_value(self: &Arc<Self>, key: &minijinja::Value) -> Option<minijinja::Value> {
        match key.as_str() {
            Some("output") => self.reads_output.store(true, Ordering::Relaxed),
            Some("cut") => self.reads_cut.store(true, Ordering::Relaxed),
            _ => {}
        }
        self.values.get_item(key).ok().filter(|value| !value.is_undefined())
    }
}

/// The variables of a template.
#[derive(Clone, Copy, Debug)]
pub struct TemplateScope<'a> {
    pub values: &'a BTreeMap<String, Value>,
    pub input: Option<&'a Value>,
    pub steps: &'a StepOutputs,
}

/// Renders a prompt or another text. If it names the whole output of a command, the output is shortened to head and
/// tail with a note, because a long log would leave no room for the task.
///
/// # Errors
/// Invalid syntax, an undefined name, an unknown filter, or a limit of work or length.
pub fn render(text: &str, scope: &TemplateScope<'_>) -> Result<String, TemplateError> {
    let mut env = environment();
    env.add_filter("raw", |value: minijinja::Value| value);
    let long = scope
        .steps
        .values()
        .filter(|step| step.is_printed && step.output.len() > IN_PROMPT);
    let long: Vec<String> = long.map(|step| step.output.trim().to_owned()).collect();
    env.set_formatter(move |out, _, value| {
        let text = plain(value)?;
        match text.len() > IN_PROMPT && long.iter().any(|output| output == text.trim()) {
            true => write(out, &excerpt(&text, IN_PROMPT)),
            false => write(out, &text),
        }
    });
    run(env, text, scope)
}

/// Evaluates the expression of a condition (`when`): whether its value counts as true. Empty texts and lists, 0, `false`
/// and `none` do not. The output of a step is compared without the newline at its end.
///
/// # Errors
/// Invalid syntax, an undefined name, an unknown filter, or a limit of work; also if the condition reads an output that
/// was cut, but not `cut`, because the missing part may decide.
pub fn condition(text: &str, scope: &TemplateScope<'_>) -> Result<bool, TemplateError> {
    let mut env = environment();
    env.add_filter("raw", |value: minijinja::Value| value);
    let cut = scope.steps.iter().filter(|(_, step)| step.cut);
    let cut: BTreeMap<&str, Arc<CutStep>> = cut
        .map(|(id, step)| {
            let step = CutStep {
                values: step.without_newline().value(),
                reads_output: AtomicBool::new(false),
                reads_cut: AtomicBool::new(false),
            };
            (id.as_str(), Arc::new(step))
        })
        .collect();
    let of_step = |id: &str, step: &StepValues| match cut.get(id) {
        Some(step) => minijinja::Value::from_dyn_object(Arc::clone(step)),
        None => step.without_newline().value(),
    };
    let (owned, context) = (text.to_owned(), context_of(scope, &of_step));
    let evaluate = move || {
        let value = compiled(&env, &owned)?.eval(context);
        value.map_err(|error| TemplateError::from_engine(&error, &owned))
    };
    let value = in_time(TIME, evaluate)??;
    let unasked =
        |step: &Arc<CutStep>| step.reads_output.load(Ordering::Relaxed) && !step.reads_cut.load(Ordering::Relaxed);
    if let Some((id, _)) = cut.iter().find(|(_, step)| unasked(step)) {
        return Err(TemplateError {
            message: format!(
                "the output of step `{id}` was cut, because its command printed more than 1 MiB, and what is missing could decide: let \
                 it print less, test its `exit_code`, or test `cut` first, as in `steps.{id}.cut or \"x\" in steps.{id}.output`"
            ),
            range: None,
            help: HELP_CONDITION,
        });
    }
    match value.is_undefined() {
        true => Err(TemplateError {
            message: "an undefined value is used".to_owned(),
            range: None,
            help: HELP_UNDEFINED,
        }),
        false => Ok(value.is_true()),
    }
}

/// All names that a condition uses, in the order of their first use.
///
/// # Errors
/// Invalid syntax, or an unknown filter, test or function.
pub fn condition_names(text: &str) -> Result<Vec<FreeName>, TemplateError> {
    compiled(&environment(), text)?;
    // The same expression as a template, so that names and positions are found in the same way.
    let as_template = format!("{{{{ {text} }}}}");
    let back = |range: Range<usize>| {
        let shift = |at: usize| at.saturating_sub(3).min(text.len());
        shift(range.start)..shift(range.end)
    };
    let placed = |error: TemplateError| TemplateError {
        range: error.range.map(back),
        help: HELP_CONDITION,
        ..error
    };
    check_words(&as_template).map_err(placed)?;
    let found = names(&as_template).map_err(placed)?;
    let one = |name: FreeName| FreeName {
        range: back(name.range),
        ..name
    };
    Ok(found.into_iter().map(one).collect())
}

fn compiled<'env, 'text>(
    env: &'env Environment<'text>,
    text: &'text str,
) -> Result<minijinja::Expression<'env, 'text>, TemplateError> {
    let written_as_template = text.contains("{{") || text.contains("{%");
    env.compile_expression(text).map_err(|error| TemplateError {
        help: match written_as_template {
            true => "write the expression without braces: `steps.lint.exit_code != 0`",
            false => HELP_CONDITION,
        },
        ..TemplateError::from_engine(&error, text)
    })
}

/// Renders a shell command: every value becomes one quoted word, a list several, unless it is piped through `raw`.
///
/// # Errors
/// As [`render`]; also a value where no quoting is safe (after `$(`, in a here-document, in a comment).
pub fn render_command(text: &str, scope: &TemplateScope<'_>) -> Result<String, TemplateError> {
    if text.contains([OPEN, CLOSE]) {
        return Err(TemplateError::shell("the command contains a private-use character"));
    }
    let words: Arc<Mutex<Vec<ShellValue>>> = Arc::default();
    let kept = Arc::clone(&words);
    let mut env = environment();
    env.add_filter("raw", |value: minijinja::Value| {
        plain(&value).map(|text| minijinja::Value::from_object(Raw(text)))
    });
    env.set_formatter(move |out, _, value| {
        if let Some(raw) = value.downcast_object_ref::<Raw>() {
            return write(out, &raw.0);
        }
        let mut words = lock(&kept);
        let word = word(value, &words)?;
        write(out, &format!("{OPEN}{}{CLOSE}", words.len()))?;
        words.push(word);
        Ok(())
    });
    let marked = run(env, text, scope)?;
    let words = lock(&words);
    shell::fill(&marked, &words)
}

/// Whether a command with its values filled in consists only of blanks and empty quoted values, so that it runs
/// nothing.
pub fn is_empty_command(filled: &str) -> bool {
    filled.split_whitespace().all(|word| word == "''")
}

/// Text that the author trusts: it is inserted into a command unquoted, and counts as the author's text in a prompt.
#[derive(Debug)]
struct Raw(String);

impl Object for Raw {
    fn repr(self: &Arc<Self>) -> ObjectRepr {
        ObjectRepr::Plain
    }

    fn render(self: &Arc<Self>, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

fn environment() -> Environment<'static> {
    let mut env = Environment::new();
    if let Ok(syntax) = SyntaxConfig::builder()
        .keep_trailing_newline(true)
        // `{#` occurs in shell (`${#list}`) and Markdown; template comments are rarely needed.
        .comment_delimiters("{#--", "--#}")
        .trim_blocks(true)
        .lstrip_blocks(true)
        .build()
    {
        env.set_syntax(syntax);
    }
    env.set_undefined_behavior(UndefinedBehavior::Strict);
    env.set_auto_escape_callback(|_| AutoEscape::None);
    env.set_fuel(Some(FUEL));
    env.remove_global("debug");
    env
}

fn run(env: Environment<'static>, text: &str, scope: &TemplateScope<'_>) -> Result<String, TemplateError> {
    rendered(env, text, context(scope))?.map_err(|error| TemplateError::from_engine(&error, text))
}

/// What the engine makes of a template, within the limits of time and length.
fn rendered(
    env: Environment<'static>,
    text: &str,
    context: minijinja::Value,
) -> Result<Result<String, Error>, TemplateError> {
    let owned = text.to_owned();
    let render = move || {
        let mut out = Bounded::default();
        env.template_from_str(&owned)?.render_captured_to(context, &mut out)?;
        Ok(out.into_text())
    };
    match is_simple(tags(text).filter_map(|tag| text.get(tag.start - 2..tag.end))) {
        true => Ok(render()),
        false => in_time(TIME, render),
    }
}

fn context(scope: &TemplateScope<'_>) -> minijinja::Value {
    context_of(scope, &|_, step| step.value())
}

/// The variables of a template. `of_step` gives the value for each step.
fn context_of(scope: &TemplateScope<'_>, of_step: &dyn Fn(&str, &StepValues) -> minijinja::Value) -> minijinja::Value {
    let mut names: BTreeMap<String, minijinja::Value> = scope
        .values
        .iter()
        .map(|(name, value)| (name.clone(), minijinja::Value::from(Serde(value))))
        .collect();
    if let Some(input) = scope.input {
        names.insert("input".to_owned(), minijinja::Value::from(Serde(input)));
    }
    let steps = scope.steps.iter().map(|(id, step)| (id.as_str(), of_step(id, step)));
    names.insert("steps".to_owned(), minijinja::Value::from_pairs(steps));
    minijinja::Value::from_pairs(names)
}

/// A value as people read it: strings unquoted, lists and maps as JSON.
///
/// # Errors
/// The text is longer than any rendered text may be: a list that holds another one several times can be small in memory.
fn plain(value: &minijinja::Value) -> Result<String, Error> {
    match value.kind() {
        // As in YAML and JSON: `true`, not Python's `True`.
        ValueKind::Bool | ValueKind::Seq | ValueKind::Map | ValueKind::None | ValueKind::Iterable => {
            let mut out = Bounded::default();
            match serde_json::to_writer(&mut out, value) {
                Ok(()) => Ok(out.into_text()),
                Err(error) if error.is_io() => Err(Error::from(ErrorKind::WriteFailure)),
                Err(_) => Ok(value.to_string()),
            }
        }
        _ => Ok(value.to_string()),
    }
}

fn word(value: &minijinja::Value, earlier: &[ShellValue]) -> Result<ShellValue, Error> {
    let scalars = |item: &minijinja::Value| !matches!(item.kind(), ValueKind::Seq | ValueKind::Map);
    let one = |value: &minijinja::Value| plain(value).map(|text| unmark(&text, earlier));
    let items: Vec<minijinja::Value> = match value.try_iter() {
        Ok(items) if value.kind() == ValueKind::Seq => items.collect(),
        _ => return one(value).map(ShellValue::One),
    };
    if items.iter().all(scalars) {
        items.iter().map(one).collect::<Result<_, _>>().map(ShellValue::Many)
    } else {
        one(value).map(ShellValue::One)
    }
}

/// Replaces the markers inside a value that a `{% set %}` block made by the marked values.
fn unmark(text: &str, earlier: &[ShellValue]) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some((before, after)) = rest.split_once(OPEN) {
        out.push_str(before);
        let Some((number, after)) = after.split_once(CLOSE) else {
            rest = after;
            continue;
        };
        match number.parse::<usize>().ok().and_then(|at| earlier.get(at)) {
            Some(ShellValue::One(text)) => out.push_str(text),
            Some(ShellValue::Many(texts)) => out.push_str(&texts.join(" ")),
            None => out.push_str(number),
        }
        rest = after;
    }
    out + rest
}

fn write(out: &mut Output<'_>, text: &str) -> Result<(), Error> {
    out.write_str(text).map_err(Error::from)
}

/// A name that a template uses without defining it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FreeName {
    /// The parts between the dots: `["steps", "lint", "output"]`.
    pub path: Vec<String>,
    /// Byte range of its first use.
    pub range: Range<usize>,
}

/// All names that a template uses, in the order of their first use.
///
/// # Errors
/// Invalid syntax.
pub fn names(text: &str) -> Result<Vec<FreeName>, TemplateError> {
    let env = environment();
    let template = env
        .template_from_str(text)
        .map_err(|error| TemplateError::from_engine(&error, text))?;
    let mut found = Vec::new();
    for path in template.undeclared_variables(true) {
        if matches!(path.as_str(), "range" | "dict" | "namespace") {
            continue;
        }
        let range = first_use(text, &path).unwrap_or(0..text.len().min(1));
        match subscripts(text).filter(|_| path == "steps") {
            Some(ids) => found.extend(ids),
            None => found.push(FreeName {
                path: path.split('.').map(str::to_owned).collect(),
                range,
            }),
        }
    }
    found.sort_by_key(|name| (name.range.start, name.range.end));
    Ok(found)
}

/// Checks that filters, tests and functions exist, as far as that is independent of values.
///
/// # Errors
/// Names the unknown filter, test or function.
pub fn check_words(text: &str) -> Result<(), TemplateError> {
    let mut env = environment();
    env.set_undefined_behavior(UndefinedBehavior::Chainable);
    env.add_filter("raw", |value: minijinja::Value| value);
    match rendered(env, text, minijinja::Value::from(()))? {
        Err(error)
            if matches!(
                error.kind(),
                ErrorKind::UnknownFilter | ErrorKind::UnknownTest | ErrorKind::UnknownFunction
            ) =>
        {
            Err(TemplateError::from_engine(&error, text))
        }
        _ => Ok(()),
    }
}

/// Checks that every value of a command is where it can be quoted, as far as that is independent of values.
///
/// # Errors
/// As [`render_command`] for a value where no quoting is safe.
pub fn check_command(text: &str) -> Result<(), TemplateError> {
    let mut marked = String::with_capacity(text.len());
    let mut at = 0;
    let mut literal = false;
    for tag in tags(text) {
        marked.push_str(text.get(at..tag.start - 2).unwrap_or_default());
        let inner = text.get(tag.clone()).unwrap_or_default().trim_matches('-').trim();
        let value = text.get(tag.start - 2..tag.start) == Some("{{");
        match (value, inner) {
            (false, "raw") => literal = true,
            (false, "endraw") => literal = false,
            (true, _) if !literal && !is_raw(inner) => marked.push_str(&format!("{OPEN}0{CLOSE}")),
            _ => {}
        }
        at = tag.end + 2;
    }
    marked.push_str(text.get(at..).unwrap_or_default());
    shell::fill(&marked, &[ShellValue::One("x".to_owned())]).map(|_| ())
}

fn is_raw(expression: &str) -> bool {
    expression
        .rsplit_once('|')
        .is_some_and(|(_, filter)| filter.trim() == "raw")
}

/// The byte ranges inside `{{ … }}` and `{% … %}`.
fn tags(text: &str) -> impl Iterator<Item = Range<usize>> + '_ {
    let mut at = 0;
    std::iter::from_fn(move || {
        loop {
            let rest = text.get(at..)?;
            let begin = at + rest.find('{')?;
            let close = match text.get(begin..begin + 2) {
                Some("{{") => "}}",
                Some("{%") => "%}",
                _ => {
                    at = begin + 1;
                    continue;
                }
            };
            let end = begin + text.get(begin..)?.find(close)?;
            at = end + 2;
            return Some(begin + 2..end);
        }
    })
}

fn first_use(text: &str, path: &str) -> Option<Range<usize>> {
    let of_word = |c: char| c.is_alphanumeric() || c == '_';
    tags(text).find_map(|tag| {
        let inner = text.get(tag.clone())?;
        inner.match_indices(path).find_map(|(at, _)| {
            let before = inner.get(..at)?.chars().next_back();
            let after = inner.get(at + path.len()..)?.chars().next();
            let alone = !before.is_some_and(|c| of_word(c) || c == '.') && !after.is_some_and(of_word);
            alone.then(|| tag.start + at..tag.start + at + path.len())
        })
    })
}

/// The ids in `steps["ID"]`, for ids that are not identifiers. `None` when there are none.
fn subscripts(text: &str) -> Option<Vec<FreeName>> {
    let mut found = Vec::new();
    for tag in tags(text) {
        let inner = text.get(tag.clone()).unwrap_or_default();
        for (at, opening) in inner.match_indices("steps[") {
            let rest = inner.get(at + opening.len()..).unwrap_or_default();
            let quote = rest.chars().next().filter(|c| matches!(c, '"' | '\''))?;
            let id = rest.get(1..)?.split(quote).next()?;
            let start = tag.start + at;
            found.push(FreeName {
                path: vec!["steps".to_owned(), id.to_owned()],
                range: start..start + opening.len() + id.len() + 2,
            });
        }
    }
    (!found.is_empty()).then_some(found)
}

#[cfg(test)]
mod tests;
