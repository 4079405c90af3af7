//! Parameter schemas: builds those of built-in tools, and checks arguments against any schema.

use super::ToolError;
use super::args::invalid;
use super::time_limit::{Unfinished, within};
use crate::base::call::{ToolOrigin, ToolSpec};
use crate::base::secret::shortened;
use jsonschema::Validator;
use jsonschema::error::{TypeKind, ValidationErrorKind};
use serde_json::{Map, Value, json};
use std::collections::HashMap;
use std::fmt::Write;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

/// Upper limit for the problems reported at once.
const MAX_PROBLEMS: usize = 8;
/// The most characters of one problem, and of one value in it.
const LONGEST: usize = 300;
/// How long a check against a schema that others wrote may take.
const FOREIGN_TIME: Duration = Duration::from_secs(1);
/// The most values of a schema that others wrote, with the values that its references stand for. With two references in
/// each of 40 definitions a small schema would need years, and memory for an error of each value.
const FOREIGN_VALUES: u64 = 20_000;
/// The most references and containers within each other in such a schema.
const FOREIGN_DEPTH: usize = 2_000;

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
pub fn undeclared(mut schema: Value) -> Value {
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
pub struct Checker {
    compiled: Arc<Compiled>,
    /// Whether a check took too long: then arguments are not checked.
    gave_up: AtomicBool,
}

/// `None`: the schema is not valid, or too large to be checked against.
type Compiled = OnceLock<Option<Validator>>;

impl Checker {
    /// Checks `args`.
    ///
    /// An MCP server or a discovered tool must check its arguments itself if the schema is invalid or too large with its
    /// references replaced, or if a check against it cannot be started or takes too long (then also all later ones).
    ///
    /// # Errors
    /// [`ToolError::Model`] (`invalid_tool_params`) with the problems, for the model; of a built-in tool also if its
    /// schema is invalid.
    pub fn check(&self, spec: &ToolSpec, args: &Value) -> Result<(), ToolError> {
        match spec.origin {
            ToolOrigin::Builtin => checked(&self.compiled, spec, args),
            ToolOrigin::Discovered | ToolOrigin::Mcp(_) => self.check_foreign(spec, args, FOREIGN_TIME),
        }
    }

    fn check_foreign(&self, spec: &ToolSpec, args: &Value, limit: Duration) -> Result<(), ToolError> {
        if self.gave_up.load(Ordering::Relaxed) {
            return Ok(());
        }
        let (compiled, spec, args) = (Arc::clone(&self.compiled), spec.clone(), args.clone());
        self.settle(within(limit, move || checked(&compiled, &spec, &args)))
    }

    /// The result of a check of a foreign schema; one that did not end lets the arguments pass.
    fn settle(&self, checked: Result<Result<(), ToolError>, Unfinished>) -> Result<(), ToolError> {
        checked.unwrap_or_else(|why| {
            if why == Unfinished::TooLong {
                self.gave_up.store(true, Ordering::Relaxed);
            }
            Ok(())
        })
    }
}

fn checked(compiled: &Compiled, spec: &ToolSpec, args: &Value) -> Result<(), ToolError> {
    let compiled = compiled.get_or_init(|| {
        let is_checked = spec.origin == ToolOrigin::Builtin || expands_within_limits(&spec.parameters);
        let validator = is_checked.then(|| jsonschema::validator_for(&spec.parameters))?;
        validator.ok()
    });
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

/// Whether a schema stays within [`FOREIGN_VALUES`] and [`FOREIGN_DEPTH`] when its references are replaced by what they
/// stand for. References to what contains them count once: how often they are followed depends on the arguments. Other
/// references than `#` and `#/…` are not resolved here, so a schema with one is too large.
fn expands_within_limits(schema: &Value) -> bool {
    let mut known = HashMap::new();
    expanded(schema, schema, 0, &mut known).is_some_and(|values| values <= FOREIGN_VALUES)
}

/// The number of values of `at` with its references replaced; `known` has those of each object so far, 0 for one that is
/// being counted. `None`: it is too deep, or a reference cannot be resolved.
fn expanded(root: &Value, at: &Value, depth: usize, known: &mut HashMap<*const Value, u64>) -> Option<u64> {
    if depth > FOREIGN_DEPTH {
        return None;
    }
    let mut sum: u64 = 1;
    match at {
        Value::Array(items) => {
            for item in items {
                sum = sum.saturating_add(expanded(root, item, depth + 1, known)?);
            }
        }
        Value::Object(entries) => {
            if let Some(values) = known.get(&std::ptr::from_ref(at)) {
                return Some(*values);
            }
            known.insert(at, 0);
            for (key, value) in entries {
                let more = match (key.as_str(), value.as_str()) {
                    ("$ref", Some(to)) => expanded(root, resolved(root, to)?, depth + 1, known)?,
                    ("$dynamicRef" | "$recursiveRef", Some(_)) => return None,
                    _ => expanded(root, value, depth + 1, known)?,
                };
                sum = sum.saturating_add(more);
            }
            known.insert(at, sum);
        }
        _ => {}
    }
    Some(sum)
}

/// What a reference within the schema stands for (a JSON Pointer, RFC 6901); `None` also for one with percent-encoding.
fn resolved<'v>(root: &'v Value, to: &str) -> Option<&'v Value> {
    let pointer = to.strip_prefix('#').filter(|pointer| !pointer.contains('%'))?;
    root.pointer(pointer)
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::call::{ToolEffects, ToolKind};
    use std::time::Instant;

    /// Each level doubles the work.
    fn nested(levels: usize, word: &str) -> Value {
        let of = |level: usize| json!({ "$ref": format!("#/$defs/d{level}") });
        let defs = (0..levels).map(|level| {
            let next = of(level + 1);
            (format!("d{level}"), json!({ word: [next.clone(), next] }))
        });
        let mut defs: Map<String, Value> = defs.collect();
        defs.insert(format!("d{levels}"), json!({ "type": "object" }));
        json!({ "allOf": [of(0)], "$defs": defs })
    }

    fn of_schema(parameters: Value) -> ToolSpec {
        ToolSpec {
            name: "t".to_owned(),
            display_name: String::new(),
            description: String::new(),
            kind: ToolKind::Other,
            origin: ToolOrigin::Discovered,
            parameters,
            aliases: Vec::new(),
            effects: ToolEffects::default(),
        }
    }

    #[test]
    fn a_foreign_schema_that_its_references_make_too_large_counts_as_unchecked() {
        let wrong = json!([]);
        for word in ["anyOf", "allOf", "oneOf"] {
            assert!(
                Checker::default().check(&of_schema(nested(8, word)), &wrong).is_err(),
                "{word}"
            );
            let (begun, checker) = (Instant::now(), Checker::default());
            assert!(checker.check(&of_schema(nested(40, word)), &wrong).is_ok(), "{word}");
            assert!(!checker.gave_up.load(Ordering::Relaxed), "{word}");
            assert!(begun.elapsed() < Duration::from_secs(60), "{word}");
        }
        let mut chain: Map<String, Value> = (0..100_000)
            .map(|n| (format!("d{n}"), json!({ "$ref": format!("#/$defs/d{}", n + 1) })))
            .collect();
        chain.insert("d100000".to_owned(), json!({ "type": "object" }));
        for (unchecked, why) in [
            (json!({ "$ref": "#/$defs/d0", "$defs": chain }), "a long chain"),
            (
                json!({ "$ref": "#/$defs/none", "type": "object" }),
                "no such definition",
            ),
            (json!({ "$ref": "#name", "type": "object" }), "an anchor"),
        ] {
            assert!(Checker::default().check(&of_schema(unchecked), &wrong).is_ok(), "{why}");
        }
        // References that are followed once for each value of the arguments are checked, as in trees.
        let tree = json!({
            "type": "object",
            "properties": { "left": { "$ref": "#" }, "right": { "$ref": "#" }, "size": { "$ref": "#/$defs/a~1b" } },
            "$defs": { "a/b": { "type": "integer" } },
            "additionalProperties": false,
        });
        let check = |args: Value| Checker::default().check(&of_schema(tree.clone()), &args);
        assert!(check(json!({ "left": { "right": { "size": 3 } } })).is_ok());
        assert!(check(json!({ "left": { "right": { "size": "3" } } })).is_err());
        assert!(check(json!({ "left": { "righd": {} } })).is_err());
    }

    #[test]
    fn a_foreign_schema_that_takes_too_long_counts_as_unchecked() {
        let (checker, tool, wrong) = (Checker::default(), of_schema(nested(3, "allOf")), json!([]));
        let check = || checker.check_foreign(&tool, &wrong, Duration::from_secs(60));
        assert!(check().is_err());
        assert!(checker.settle(Err(Unfinished::NotDone)).is_ok());
        assert!(
            check().is_err(),
            "a check that was not made says nothing of the next one"
        );
        assert!(checker.settle(Err(Unfinished::TooLong)).is_ok());
        assert!(check().is_ok());
    }
}
