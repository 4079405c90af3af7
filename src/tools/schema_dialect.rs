//! Converts schemas of the older Gemini dialect (upper-case types, `nullable`) to JSON Schema.

use serde_json::{Value, json};

/// Upper limit for the depth of a schema.
const DEPTH: usize = 64;

/// The same schema as JSON Schema.
pub fn plain(mut schema: Value) -> Value {
    translate(&mut schema, DEPTH);
    schema
}

fn translate(schema: &mut Value, depth: usize) {
    if depth == 0 {
        return;
    }
    match schema {
        Value::Array(all) => all.iter_mut().for_each(|one| translate(one, depth - 1)),
        Value::Object(map) => {
            if let Some(Value::String(kind)) = map.get_mut("type") {
                let lower = kind.to_ascii_lowercase();
                if ["object", "array", "string", "number", "integer", "boolean", "null"].contains(&lower.as_str()) {
                    *kind = lower;
                }
            }
            if map.get("nullable") == Some(&Value::Bool(true))
                && let Some(Value::String(kind)) = map.get("type").cloned()
            {
                map.insert("type".to_owned(), json!([kind, "null"]));
                map.shift_remove("nullable");
            }
            for (key, value) in map.iter_mut() {
                match key.as_str() {
                    // These hold values, not schemas.
                    "default" | "example" | "examples" | "enum" | "const" | "required" => {}
                    "properties" | "$defs" | "definitions" | "patternProperties" => {
                        if let Value::Object(named) = value {
                            named.values_mut().for_each(|one| translate(one, depth - 1));
                        }
                    }
                    _ => translate(value, depth - 1),
                }
            }
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::plain;
    use serde_json::json;

    #[test]
    fn types_and_null_are_translated_and_values_are_not() {
        let given = json!({ "type": "OBJECT", "properties": {
            "type": { "type": "STRING", "nullable": true, "default": "STRING", "enum": ["ARRAY"] },
            "list": { "type": "ARRAY", "items": { "type": "INTEGER" } } } });
        let expected = json!({ "type": "object", "properties": {
            "type": { "type": ["string", "null"], "default": "STRING", "enum": ["ARRAY"] },
            "list": { "type": "array", "items": { "type": "integer" } } } });
        assert_eq!(plain(given), expected);
    }
}
