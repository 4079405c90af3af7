//! Converts JSON Schemas to the subset that each vendor accepts. Pure.

use serde_json::{Map, Value, json};

/// Limit of nodes in an expanded schema: a schema may refer to itself in many places.
const NODES: usize = 4_000;
/// Upper limit in bytes for the names, texts and values of an expanded schema, because one text may be inlined many
/// times.
const BYTES: usize = 128 << 10;
const DEPTH: usize = 24;

/// Keywords that Gemini accepts; it refuses or ignores all others.
const GEMINI: &[&str] = &[
    "type",
    "title",
    "description",
    "properties",
    "required",
    "additionalProperties",
    "items",
    "prefixItems",
    "minItems",
    "minimum",
    "maximum",
    "enum",
    "format",
    "anyOf",
    "oneOf",
    "default",
];

/// The types of JSON Schema.
const TYPES: &[&str] = &["array", "boolean", "integer", "null", "number", "object", "string"];

/// A schema for Gemini: references are inlined (cycles become plain objects), `allOf` is merged, type lists become
/// `anyOf`; only enumerations of strings, only known formats, and no `default` beside alternatives. `maxItems` is moved
/// to the description, because Gemini refuses schemas in which the sum of these limits is large. A keyword whose value has
/// another shape than JSON Schema requires is left out, because Gemini would refuse the whole request for it.
pub fn for_gemini(schema: &Value) -> Value {
    let mut walk = Walk {
        root: schema,
        open: Vec::new(),
        nodes: 0,
        bytes: 0,
    };
    walk.node(schema, 0)
}

struct Walk<'a> {
    root: &'a Value,
    /// References that are being inlined, to detect a cycle.
    open: Vec<&'a str>,
    nodes: usize,
    bytes: usize,
}

impl<'a> Walk<'a> {
    fn node(&mut self, schema: &'a Value, depth: usize) -> Value {
        self.nodes += 1;
        let Some(object) = schema.as_object() else {
            // `true` allows everything; `false` has no equivalent and does not occur for arguments.
            return json!({});
        };
        if depth > DEPTH || self.nodes > NODES {
            return anything(object);
        }
        if let Some(name) = object.get("$ref").and_then(Value::as_str) {
            return self.reference(name, object, depth);
        }
        if self.bytes > BYTES {
            return json!({ "type": type_of(object) });
        }
        let mut out = Map::new();
        for branch in object.get("allOf").and_then(Value::as_array).into_iter().flatten() {
            if let Value::Object(branch) = self.node(branch, depth + 1) {
                merge(&mut out, branch);
            }
        }
        let mut own = Map::new();
        for (key, value) in object {
            // The older way to write `prefixItems`.
            let key = match (key.as_str(), value) {
                ("items", Value::Array(_)) => "prefixItems",
                (key, _) => key,
            };
            if GEMINI.contains(&key) && fits(key, value) {
                let cleaned = self.keyword(key, value, depth);
                own.insert(key.to_owned(), cleaned);
            }
        }
        if let Some(only) = object.get("const") {
            own.insert("enum".into(), json!([only]));
        }
        merge(&mut out, own);
        enumeration(&mut out);
        if let Some(most) = object.get("maxItems").and_then(Value::as_u64) {
            describe(&mut out, format!("At most {most} items."));
        }
        format(&mut out);
        types(&mut out);
        if out.contains_key("anyOf") || out.contains_key("oneOf") {
            out.shift_remove("default");
        }
        Value::Object(out)
    }

    fn keyword(&mut self, key: &str, value: &'a Value, depth: usize) -> Value {
        match (key, value) {
            ("properties", Value::Object(map)) => Value::Object(
                map.iter()
                    .map(|(name, schema)| {
                        self.bytes += name.len();
                        (name.clone(), self.node(schema, depth + 1))
                    })
                    .collect(),
            ),
            ("anyOf" | "oneOf" | "prefixItems", Value::Array(list)) => {
                Value::Array(list.iter().map(|schema| self.node(schema, depth + 1)).collect())
            }
            ("items", _) | ("additionalProperties", Value::Object(_)) => self.node(value, depth + 1),
            ("required", Value::Array(names)) => {
                let names: Vec<&str> = names.iter().filter_map(Value::as_str).collect();
                self.bytes += names.iter().map(|name| name.len()).sum::<usize>();
                json!(names)
            }
            _ => {
                self.bytes += value.to_string().len();
                value.clone()
            }
        }
    }

    fn reference(&mut self, name: &'a str, beside: &Map<String, Value>, depth: usize) -> Value {
        let target = name.strip_prefix('#').and_then(|pointer| self.root.pointer(pointer));
        let mut out = match target {
            Some(target) if !self.open.contains(&name) => {
                self.open.push(name);
                let out = self.node(target, depth + 1);
                self.open.pop();
                out
            }
            Some(Value::Object(target)) => anything(target),
            _ => json!({}),
        };
        if let (Some(text @ Value::String(words)), Some(out)) = (beside.get("description"), out.as_object_mut())
            && self.bytes <= BYTES
        {
            self.bytes += words.len();
            out.insert("description".into(), text.clone());
        }
        out
    }
}

/// Whether the value of a keyword has the shape that JSON Schema requires.
fn fits(key: &str, value: &Value) -> bool {
    match key {
        "type" => value.is_string() || value.is_array(),
        "title" | "description" | "format" => value.is_string(),
        "properties" => value.is_object(),
        "items" | "additionalProperties" => value.is_object() || value.is_boolean(),
        "anyOf" | "oneOf" | "prefixItems" | "enum" => value.as_array().is_some_and(|list| !list.is_empty()),
        "required" => value.is_array(),
        "minItems" => value.is_u64(),
        "minimum" | "maximum" => value.is_number(),
        _ => true,
    }
}

/// The rest of a schema that is not expanded further.
fn anything(object: &Map<String, Value>) -> Value {
    let mut out = Map::new();
    out.insert("type".into(), json!(type_of(object)));
    if let Some(text @ Value::String(_)) = object.get("description") {
        out.insert("description".into(), text.clone());
    }
    Value::Object(out)
}

/// The type of a schema, if it has a single one.
fn type_of(object: &Map<String, Value>) -> &str {
    let kind = object.get("type").and_then(Value::as_str);
    kind.filter(|kind| TYPES.contains(kind)).unwrap_or("object")
}

fn merge(into: &mut Map<String, Value>, from: Map<String, Value>) {
    for (key, value) in from {
        match (into.get_mut(&key), value) {
            (Some(Value::Object(old)), Value::Object(new)) if key == "properties" => old.extend(new),
            (Some(Value::Array(old)), Value::Array(new)) if key == "required" => {
                old.extend(new.into_iter().filter(|name| name.is_string()));
                let mut seen = std::collections::BTreeSet::new();
                old.retain(|name| seen.insert(name.to_string()));
            }
            (_, value) => {
                into.insert(key, value);
            }
        }
    }
}

/// Enumerations of values other than strings are described in the text.
fn enumeration(out: &mut Map<String, Value>) {
    let Some(Value::Array(values)) = out.get("enum") else {
        return;
    };
    let texts: Vec<Value> = values.iter().filter(|value| value.is_string()).cloned().collect();
    if !texts.is_empty() && values.iter().all(|value| value.is_string() || value.is_null()) {
        if texts.len() < values.len() && !out.contains_key("type") {
            out.insert("type".into(), json!(["string", "null"]));
        }
        out.entry("type").or_insert_with(|| json!("string"));
        out.insert("enum".into(), Value::Array(texts));
        return;
    }
    let told: Vec<String> = values.iter().map(Value::to_string).collect();
    let told = format!("One of: {}.", told.join(", "));
    out.shift_remove("enum");
    describe(out, told);
}

/// Adds a sentence to the description.
fn describe(out: &mut Map<String, Value>, told: String) {
    let text = match out.get("description").and_then(Value::as_str) {
        Some(text) if !text.is_empty() => format!("{text} {told}"),
        _ => told,
    };
    out.insert("description".into(), json!(text));
}

fn format(out: &mut Map<String, Value>) {
    const KNOWN: &[&str] = &[
        "date-time",
        "date",
        "time",
        "duration",
        "enum",
        "int32",
        "int64",
        "float",
        "double",
    ];
    let known = out
        .get("format")
        .and_then(Value::as_str)
        .is_some_and(|format| KNOWN.contains(&format));
    if !known {
        out.shift_remove("format");
    }
}

/// A list of types becomes one type, or alternatives that share the other keywords. Unknown types are left out.
fn types(out: &mut Map<String, Value>) {
    let mut list = match out.get("type") {
        Some(Value::Array(list)) => list.clone(),
        Some(one) => vec![one.clone()],
        None => return,
    };
    list.retain(|kind| kind.as_str().is_some_and(|kind| TYPES.contains(&kind)));
    match list.as_slice() {
        [] => {
            out.shift_remove("type");
            return;
        }
        [only] => {
            out.insert("type".into(), only.clone());
            return;
        }
        _ => {}
    }
    let mut shared = std::mem::take(out);
    for key in ["title", "description"] {
        if let Some(text) = shared.shift_remove(key) {
            out.insert(key.into(), text);
        }
    }
    shared.shift_remove("default");
    let branches = list
        .into_iter()
        .map(|kind| {
            let mut branch = if kind == "null" { Map::new() } else { shared.clone() };
            branch.insert("type".into(), kind);
            Value::Object(branch)
        })
        .collect();
    out.insert("anyOf".into(), Value::Array(branches));
}

/// A schema of arguments for vendors that require a plain object at the top: alternatives there are merged, and a
/// property that only some of them require becomes optional.
pub fn for_object(schema: &Value) -> Value {
    let mut out = schema.as_object().cloned().unwrap_or_default();
    out.shift_remove("$schema");
    for (key, all) in [("allOf", true), ("anyOf", false), ("oneOf", false)] {
        let Some(Value::Array(branches)) = out.shift_remove(key) else {
            continue;
        };
        let mut required: Option<Vec<Value>> = None;
        for branch in branches.iter().filter_map(|branch| resolved(schema, branch)) {
            let own = branch
                .get("required")
                .and_then(Value::as_array)
                .cloned()
                .unwrap_or_default();
            required = Some(match required {
                Some(old) if all => [old, own].concat(),
                Some(old) => old.into_iter().filter(|name| own.contains(name)).collect(),
                None => own,
            });
            let mut properties = Map::new();
            properties.insert(
                "properties".into(),
                branch.get("properties").cloned().unwrap_or_else(|| json!({})),
            );
            out.entry("properties").or_insert_with(|| json!({}));
            merge(&mut out, properties);
        }
        let mut required = Map::from_iter([("required".to_owned(), json!(required.unwrap_or_default()))]);
        if let Some(old) = out.shift_remove("required") {
            merge(&mut required, Map::from_iter([("required".to_owned(), old)]));
        }
        merge(&mut out, required);
    }
    for key in ["not", "enum", "const", "if", "then", "else"] {
        out.shift_remove(key);
    }
    out.insert("type".into(), json!("object"));
    out.entry("properties").or_insert_with(|| json!({}));
    Value::Object(out)
}

fn resolved<'a>(root: &'a Value, branch: &'a Value) -> Option<&'a Value> {
    match branch.get("$ref").and_then(Value::as_str) {
        Some(name) => name.strip_prefix('#').and_then(|pointer| root.pointer(pointer)),
        None => Some(branch),
    }
}

/// Whether a schema is in the subset that vendors enforce strictly: every object closed and every property required.
pub fn is_strict(schema: &Value) -> bool {
    const KEYS: &[&str] = &[
        "type",
        "title",
        "description",
        "properties",
        "required",
        "additionalProperties",
        "items",
        "enum",
        "const",
        "anyOf",
        "$ref",
        "$defs",
        "definitions",
    ];
    schema.get("type").is_some_and(|kind| kind == "object") && strict(schema, KEYS, 0)
}

fn strict(schema: &Value, keys: &[&str], depth: usize) -> bool {
    let Some(object) = schema.as_object() else {
        return false;
    };
    if depth > 8 || object.keys().any(|key| !keys.contains(&key.as_str())) {
        return false;
    }
    let children = |key: &str| object.get(key).and_then(Value::as_object).into_iter().flatten();
    let inside = ["properties", "$defs", "definitions"]
        .iter()
        .flat_map(|key| children(key).map(|(_, schema)| schema))
        .chain(object.get("items"))
        .chain(object.get("anyOf").and_then(Value::as_array).into_iter().flatten());
    let is_object = object.get("type").is_some_and(|kind| match kind {
        Value::Array(kinds) => kinds.iter().any(|kind| kind == "object"),
        kind => kind == "object",
    });
    let required = object.get("required").and_then(Value::as_array);
    let closed = object.get("additionalProperties") == Some(&Value::Bool(false))
        && children("properties").all(|(name, _)| required.is_some_and(|list| list.iter().any(|item| item == name)));
    (!is_object || closed) && inside.into_iter().all(|schema| strict(schema, keys, depth + 1))
}

#[cfg(test)]
mod tests;
