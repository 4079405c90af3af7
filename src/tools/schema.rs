//! Parameter schemas: builds those of built-in tools, and checks arguments against any schema.

use super::ToolError;
use super::args::invalid;
use crate::base::call::{ToolOrigin, ToolSpec};
use crate::base::secret::shortened;
use jsonschema::Validator;
use jsonschema::error::{TypeKind, ValidationErrorKind};
use serde_json::{Map, Value, json};
use std::fmt::Write;
use std::sync::OnceLock;

/// Upper limit for the problems reported at once.
const MAX_PROBLEMS: usize = 8;
/// The most characters of one problem, and of one value in it.
const LONGEST: usize = 300;

/// The schema of an object with these properties and no others.
pub fn object<const N: usize>(properties: [(&str, Value); N], required: &[&str]) -> Value {
    let properties: Map<String, Value> = properties
        .into_iter()
        .map(|(name, schema)| (name.to_owned(), schema))
        .collect();
    json!({
        "type": "object",
        "properties": properties,
        "required": required,
        "additionalProperties": false,
    })
}

/// A string.
pub fn string(description: &str) -> Value {
    json!({ "type": "string", "description": description })
}

/// An integer of at least `least`.
pub fn integer(description: &str, least: u64) -> Value {
    json!({ "type": "integer", "minimum": least, "description": description })
}

/// A boolean.
pub fn boolean(description: &str) -> Value {
    json!({ "type": "boolean", "description": description })
}

/// A list of strings.
pub fn strings(description: &str) -> Value {
    json!({ "type": "array", "items": { "type": "string" }, "description": description })
}

/// Marks a parameter that is accepted but not declared to models: an older name, or one that is rarely needed.
pub fn untold(mut schema: Value) -> Value {
    if let Value::Object(map) = &mut schema {
        map.insert("deprecated".to_owned(), Value::Bool(true));
    }
    schema
}

/// The declaration of a tool for the model. For built-in tools it leaves out bounds (a violation is reported when it
/// happens), parameters marked `deprecated` (JSON Schema 2019-09, 9.3) and empty descriptions, to save tokens.
pub fn declared(spec: &ToolSpec) -> ToolSpec {
    let mut spec = spec.clone();
    if spec.origin == ToolOrigin::Builtin {
        lean(&mut spec.parameters);
    }
    spec
}

fn lean(schema: &mut Value) {
    let Value::Object(map) = schema else { return };
    for key in ["additionalProperties", "minimum", "maxItems", "maxLength"] {
        map.shift_remove(key);
    }
    let is_empty = |value: &Value| value.as_str() == Some("") || value.as_array().is_some_and(Vec::is_empty);
    for key in ["description", "required"] {
        if map.get(key).is_some_and(is_empty) {
            map.shift_remove(key);
        }
    }
    if let Some(Value::Object(properties)) = map.get_mut("properties") {
        properties.retain(|_, schema| schema.get("deprecated") != Some(&Value::Bool(true)));
        properties.values_mut().for_each(lean);
    }
    if let Some(items) = map.get_mut("items") {
        lean(items);
    }
}

/// Checks arguments against one tool's schema, which is compiled on first use.
#[derive(Default)]
pub struct Checker(OnceLock<Option<Box<Validator>>>);

impl Checker {
    /// Checks `args`. The error lists the problems for the model (`invalid_tool_params`).
    ///
    /// If the schema itself is invalid, an MCP server or a discovered tool must check its arguments itself; for a
    /// built-in tool this is an error.
    pub fn check(&self, spec: &ToolSpec, args: &Value) -> Result<(), ToolError> {
        let compiled = self
            .0
            .get_or_init(|| jsonschema::validator_for(&spec.parameters).ok().map(Box::new));
        let Some(validator) = compiled else {
            return match spec.origin {
                ToolOrigin::Builtin => Err(invalid(format!("the schema of `{}` is not valid", spec.name))),
                ToolOrigin::Discovered | ToolOrigin::Mcp(_) => Ok(()),
            };
        };
        let mut message = String::new();
        for (n, error) in validator.iter_errors(args).enumerate() {
            if n == MAX_PROBLEMS {
                message.push_str("; and more");
                break;
            }
            if n > 0 {
                message.push_str("; ");
            }
            // Writing to a `String` cannot fail.
            let _infallible = write!(message, "{}", problem(spec, &error));
        }
        if message.is_empty() {
            Ok(())
        } else {
            Err(invalid(format!("{}: {message}", spec.name)))
        }
    }
}

fn problem(spec: &ToolSpec, error: &jsonschema::ValidationError<'_>) -> String {
    let path = error.instance_path().as_str();
    let at = if path.is_empty() {
        "the arguments"
    } else {
        path.trim_start_matches('/')
    };
    match error.kind() {
        ValidationErrorKind::Required { property } => {
            let name = property.as_str().unwrap_or_default();
            match path {
                "" => format!("`{name}` is missing"),
                _ => format!("`{at}`: `{name}` is missing"),
            }
        }
        ValidationErrorKind::AdditionalProperties { unexpected } => unknown(spec, path, unexpected),
        ValidationErrorKind::Type { kind } => {
            format!("`{at}` must be {}, not {}", wanted(kind), brief(error.instance()))
        }
        ValidationErrorKind::Enum { options } => {
            format!(
                "`{at}` is {}; it must be one of {}",
                brief(error.instance()),
                brief(options)
            )
        }
        ValidationErrorKind::Minimum { limit } => format!("`{at}` must be at least {limit}"),
        ValidationErrorKind::Maximum { limit } => format!("`{at}` must be at most {limit}"),
        _ => shortened(&format!("`{at}`: {}", error.masked()), LONGEST),
    }
}

fn unknown(spec: &ToolSpec, path: &str, unexpected: &[String]) -> String {
    let names: Vec<&str> = match spec.parameters.get("properties").and_then(Value::as_object) {
        Some(all) if path.is_empty() => all.keys().map(String::as_str).collect(),
        _ => Vec::new(),
    };
    let told: Vec<String> = unexpected
        .iter()
        .map(|name| {
            let close = names
                .iter()
                .map(|known| (strsim::damerau_levenshtein(name, known), known))
                .filter(|(distance, known)| *distance <= known.len().div_ceil(3))
                .min();
            match close {
                Some((_, known)) => format!("`{name}` is not a parameter (did you mean `{known}`?)"),
                None => format!("`{name}` is not a parameter"),
            }
        })
        .collect();
    let known = if names.is_empty() {
        String::new()
    } else {
        format!("; known: `{}`", names.join("`, `"))
    };
    shortened(&format!("{}{known}", told.join(", ")), LONGEST)
}

fn wanted(kind: &TypeKind) -> String {
    match kind {
        TypeKind::Single(one) => with_article(&one.to_string()),
        TypeKind::Multiple(many) => many
            .iter()
            .map(|one| with_article(&one.to_string()))
            .collect::<Vec<_>>()
            .join(" or "),
    }
}

fn with_article(name: &str) -> String {
    match name {
        "array" => "an array".to_owned(),
        "object" => "an object".to_owned(),
        "integer" => "a whole number".to_owned(),
        "null" => "null".to_owned(),
        name => format!("a {name}"),
    }
}

fn brief(value: &Value) -> String {
    shortened(&value.to_string(), LONGEST)
}
