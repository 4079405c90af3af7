//! Parameters: parses given values by their declared types, fills in defaults, and reports every problem. Pure.

use super::model::{Parameter, ParameterType};
use crate::diag::reader::{self, Problems};
use crate::diag::{Diagnostic, MapEntry, Shape, Span, YamlNode, did_you_mean};
use serde_json::Value;
use std::collections::BTreeMap;

/// Names reserved for the template language or the run itself.
const TAKEN: [&str; 17] = [
    "input", "steps", "loop", "self", "true", "false", "none", "True", "False", "None", "and", "or", "not", "in", "is",
    "if", "else",
];

/// Whether a name is allowed for a parameter.
pub fn is_name(name: &str) -> bool {
    name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
        && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
        && !TAKEN.contains(&name)
}

/// Whether a path is relative and without `..`, so that it is inside the workspace (symbolic links are not considered).
pub fn stays_inside(path: &str) -> bool {
    !path.is_empty()
        && !path.starts_with(['/', '~', '\\'])
        && !path.contains('\0')
        && path.split(['/', '\\']).all(|part| part != "..")
}

/// Parses a YAML or JSON value by its declared type.
pub fn read_node(
    node: &YamlNode,
    kind: ParameterType,
    choices: &[Value],
    name: &str,
    problems: &mut Problems,
) -> Option<Value> {
    let read = match (&node.shape, kind) {
        (Shape::List(items), ParameterType::List) => {
            let texts = items
                .iter()
                .filter_map(|item| reader::text(item, name, problems))
                .map(|text| Value::String(text.value))
                .collect::<Vec<_>>();
            Ok(Value::Array(texts))
        }
        (Shape::Scalar(scalar), kind) if kind != ParameterType::List && !scalar.is_null() => {
            read_text(&scalar.text, kind, choices)
        }
        _ => Err(format!("must be {}, found {}", expected(kind), node.describe())),
    };
    read.map_err(|why| {
        let span = match node.shape {
            Shape::Scalar(_) => node.span,
            _ => node.span.point(),
        };
        problems.push(bad_value(name, &why, Some(span), kind, choices));
    })
    .ok()
}

/// Parses a value given as text by its declared type. A list is a JSON list of strings, or `a,b`.
///
/// # Errors
/// A sentence that says why the text is not such a value.
fn read_text(text: &str, kind: ParameterType, choices: &[Value]) -> Result<Value, String> {
    let value = match kind {
        ParameterType::String | ParameterType::Enum => Value::String(text.to_owned()),
        ParameterType::Path if stays_inside(text) => Value::String(text.to_owned()),
        ParameterType::Path => {
            return Err(format!(
                "must be a path inside the workspace, without `..`, found `{text}`"
            ));
        }
        ParameterType::Boolean => match text {
            "true" => Value::Bool(true),
            "false" => Value::Bool(false),
            _ => return Err(mismatch(kind, text)),
        },
        ParameterType::Integer => {
            let plain = text.strip_prefix('+').unwrap_or(text);
            plain
                .parse::<i64>()
                .map(Value::from)
                .map_err(|_| mismatch(kind, text))?
        }
        ParameterType::Number => number(text).ok_or_else(|| mismatch(kind, text))?,
        ParameterType::List => list(text).ok_or_else(|| mismatch(kind, text))?,
    };
    if !choices.is_empty() && !choices.contains(&value) {
        return Err(format!("cannot be `{text}`"));
    }
    Ok(value)
}

fn number(text: &str) -> Option<Value> {
    if let Ok(whole) = text.parse::<i64>() {
        return Some(Value::from(whole));
    }
    let shaped = text.bytes().all(|b| b.is_ascii_digit() || b"+-.eE".contains(&b));
    let value: f64 = if shaped { text.parse().ok()? } else { return None };
    serde_json::Number::from_f64(value).map(Value::Number)
}

fn list(text: &str) -> Option<Value> {
    if text.trim_start().starts_with('[') {
        let items: Vec<String> = serde_json::from_str(text).ok()?;
        return Some(Value::from(items));
    }
    let items = text.split(',').map(str::trim).filter(|item| !item.is_empty());
    Some(Value::from(items.collect::<Vec<_>>()))
}

fn expected(kind: ParameterType) -> &'static str {
    match kind {
        ParameterType::String | ParameterType::Enum => "a string",
        ParameterType::Path => "a path inside the workspace",
        ParameterType::Boolean => "`true` or `false`",
        ParameterType::Integer => "a whole number",
        ParameterType::Number => "a number",
        ParameterType::List => "a list of strings",
    }
}

fn mismatch(kind: ParameterType, text: &str) -> String {
    format!("must be {}, found `{text}`", expected(kind))
}

fn bad_value(name: &str, why: &str, span: Option<Span>, kind: ParameterType, choices: &[Value]) -> Diagnostic {
    let mut problem = Diagnostic::unplaced("bad-value", format!("the parameter `{name}` {why}"));
    problem.span = span;
    let words: Vec<String> = choices.iter().map(show).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    problem.help(if words.is_empty() {
        format!("give {}", expected(kind))
    } else {
        format!("write one of {}", crate::diag::diagnostic::list(&words))
    })
}

/// A value as a person would type it.
pub fn show(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

/// The values of all parameters. Flags (`name=value`, in order) take precedence over the file's map, and that over
/// defaults.
///
/// A list may be given by several flags. Every problem is added to the list; the map then lacks that parameter.
pub fn resolve(
    parameters: &[Parameter],
    flags: &[String],
    file: Option<&YamlNode>,
    problems: &mut Problems,
) -> BTreeMap<String, Value> {
    let mut values = BTreeMap::new();
    let mut tried = Vec::new();
    for entry in file.map(|file| entries(file, problems)).unwrap_or_default() {
        match find(parameters, &entry.key) {
            Some(parameter) => {
                tried.push(entry.key.clone());
                if let Some(value) = read_node(&entry.value, parameter.kind, &parameter.choices, &entry.key, problems) {
                    values.insert(entry.key.clone(), value);
                }
            }
            None => problems.push(unknown(parameters, &entry.key, Some(entry.key_span))),
        }
    }
    let mut flagged: Vec<&str> = Vec::new();
    for flag in flags {
        let Some((name, text)) = flag.split_once('=') else {
            let problem = Diagnostic::unplaced("bad-flag", format!("`--param {flag}` has no `=`"));
            problems.push(problem.help("write `--param NAME=VALUE`"));
            continue;
        };
        let Some(parameter) = find(parameters, name) else {
            problems.push(unknown(parameters, name, None));
            continue;
        };
        tried.push(name.to_owned());
        let again = flagged.contains(&name);
        flagged.push(name);
        match read_text(text, parameter.kind, &parameter.choices) {
            Ok(value) if again => extend(&mut values, name, value, problems),
            Ok(value) => {
                values.insert(name.to_owned(), value);
            }
            Err(why) => problems.push(bad_value(name, &why, None, parameter.kind, &parameter.choices)),
        }
    }
    for parameter in parameters
        .iter()
        .filter(|parameter| !tried.contains(&parameter.name.value))
    {
        match &parameter.default {
            Some(value) => {
                values.insert(parameter.name.value.clone(), value.clone());
            }
            None => problems.push(missing(parameter)),
        }
    }
    values
}

fn entries<'a>(file: &'a YamlNode, problems: &mut Problems) -> &'a [MapEntry] {
    match &file.shape {
        Shape::Map(entries) => entries,
        _ if file.is_null() => &[],
        _ => {
            problems.push(reader::wrong_type(file, "the parameters", "a map from names to values"));
            &[]
        }
    }
}

fn find<'a>(parameters: &'a [Parameter], name: &str) -> Option<&'a Parameter> {
    parameters.iter().find(|parameter| parameter.name.value == name)
}

/// A second flag of the same name appends to a list; for any other type it is a mistake.
fn extend(values: &mut BTreeMap<String, Value>, name: &str, value: Value, problems: &mut Problems) {
    match (values.get_mut(name), value) {
        (Some(Value::Array(items)), Value::Array(more)) => items.extend(more),
        _ => {
            let problem = Diagnostic::unplaced("duplicate-flag", format!("`--param {name}=…` is given twice"));
            problems.push(problem.help("give it once"));
        }
    }
}

fn unknown(parameters: &[Parameter], name: &str, span: Option<Span>) -> Diagnostic {
    let mut problem = Diagnostic::unplaced("unknown-parameter", format!("the recipe has no parameter `{name}`"));
    problem.span = span;
    let known = parameters.iter().map(|parameter| parameter.name.value.as_str());
    let help = did_you_mean(name, known);
    problem.help(help.unwrap_or_else(|| "it declares none".to_owned()))
}

fn missing(parameter: &Parameter) -> Diagnostic {
    let name = &parameter.name.value;
    let problem = Diagnostic::error(
        "missing-parameter",
        parameter.name.span,
        format!("the parameter `{name}` has no value and no default"),
    );
    problem.help(format!("give `--param {name}=…` or set it in the file of `--params`"))
}

#[cfg(test)]
mod tests;
