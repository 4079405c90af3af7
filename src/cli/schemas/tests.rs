//! The schemas against the parsers and the types.

mod inputs;
mod outputs;

use super::*;
use serde_json::Value;
use std::sync::LazyLock;

fn schema(kind: SchemaKind) -> Value {
    serde_json::from_str(kind.text()).unwrap()
}

/// Every problem of a document of this kind.
fn problems(kind: SchemaKind, document: &Value) -> Vec<String> {
    static ALL: LazyLock<Vec<(SchemaKind, jsonschema::Validator)>> = LazyLock::new(|| {
        let all = SchemaKind::value_variants().iter();
        all.map(|kind| (*kind, jsonschema::validator_for(&schema(*kind)).unwrap()))
            .collect()
    });
    let (_, validator) = ALL.iter().find(|(own, _)| *own == kind).unwrap();
    let one = |error: jsonschema::ValidationError<'_>| format!("{}: {error}", error.instance_path());
    validator.iter_errors(document).map(one).collect()
}

/// Calls `visit` for each subschema, with its place.
fn each_part(schema: &Value, place: &str, visit: &mut dyn FnMut(&str, &Value)) {
    const MAPS: [&str; 3] = ["properties", "patternProperties", "definitions"];
    const LISTS: [&str; 3] = ["anyOf", "oneOf", "allOf"];
    // Not `if` and `then`: they only narrow what is described elsewhere.
    const SINGLE: [&str; 3] = ["items", "additionalProperties", "propertyNames"];
    visit(place, schema);
    let Some(keys) = schema.as_object() else { return };
    for (key, value) in keys {
        let place = format!("{place}/{key}");
        if MAPS.contains(&key.as_str()) {
            for (name, part) in value.as_object().unwrap() {
                each_part(part, &format!("{place}/{name}"), visit);
            }
        } else if LISTS.contains(&key.as_str()) {
            for part in value.as_array().unwrap() {
                each_part(part, &place, visit);
            }
        } else if SINGLE.contains(&key.as_str()) {
            each_part(value, &place, visit);
        }
    }
}

#[test]
fn each_schema_names_itself_and_describes_every_key() {
    for kind in SchemaKind::value_variants() {
        let schema = schema(*kind);
        assert_eq!(schema["$schema"], "http://json-schema.org/draft-07/schema#", "{kind:?}");
        assert_eq!(schema["$id"], format!("{BASE}{}", kind.file_name()));
        assert!(
            schema["title"].is_string() && schema["description"].is_string(),
            "{kind:?}"
        );
        assert!(jsonschema::meta::is_valid(&schema), "{kind:?}");
        let (mut described, mut silent) = (0, Vec::new());
        each_part(&schema, "", &mut |place, part| {
            for (key, property) in part["properties"].as_object().into_iter().flatten() {
                // `false` and schemas that only narrow a described key need no description.
                if property.is_boolean() || place.contains("anyOf") && property.get("not").is_some() {
                    continue;
                }
                let own = property["description"].as_str();
                let named = property["$ref"].as_str().and_then(|reference| {
                    schema
                        .pointer(&reference[1..])
                        .and_then(|part| part["description"].as_str())
                });
                match own.or(named) {
                    Some(text) if text.len() > 5 => described += 1,
                    _ if property.get("const").is_some() => described += 1,
                    // A variant with one key: the description of the variant is that of the key.
                    _ if part["description"].is_string()
                        && part["properties"].as_object().is_some_and(|all| all.len() == 1) =>
                    {
                        described += 1;
                    }
                    _ => silent.push(format!("{place}/{key}")),
                }
            }
        });
        assert!(silent.is_empty(), "{kind:?}: keys without a description: {silent:#?}");
        assert!(described > 0 || *kind == SchemaKind::Profile, "{kind:?}");
    }
}

#[test]
fn names_on_the_command_line_are_those_of_the_files() {
    for kind in SchemaKind::value_variants() {
        assert_eq!(kind.to_possible_value().unwrap().get_name(), kind.as_str());
    }
}
