//! Finds keywords in the JSON Schemas of a recipe that are probably misspelt: a validator ignores what it does not know.

use crate::diag::similar_word;
use serde_json::Value;

/// Keywords whose value is a schema, or a list of schemas.
const OF_SCHEMAS: [&str; 16] = [
    "additionalItems",
    "additionalProperties",
    "allOf",
    "anyOf",
    "contains",
    "contentSchema",
    "else",
    "if",
    "items",
    "not",
    "oneOf",
    "prefixItems",
    "propertyNames",
    "then",
    "unevaluatedItems",
    "unevaluatedProperties",
];
/// Keywords whose value maps names to schemas.
const OF_NAMES: [&str; 5] = [
    "$defs",
    "definitions",
    "dependentSchemas",
    "patternProperties",
    "properties",
];
/// The other keywords of JSON Schema, those that OpenAPI adds, and annotations that are common in practice (`name`,
/// `propertyOrdering`, `version`), which must not be reported as misspelt.
const OTHERS: [&str; 40] = [
    "const",
    "contentEncoding",
    "contentMediaType",
    "default",
    "dependencies",
    "dependentRequired",
    "deprecated",
    "description",
    "discriminator",
    "enum",
    "example",
    "examples",
    "exclusiveMaximum",
    "exclusiveMinimum",
    "externalDocs",
    "format",
    "id",
    "maxContains",
    "maxItems",
    "maxLength",
    "maxProperties",
    "maximum",
    "minContains",
    "minItems",
    "minLength",
    "minProperties",
    "minimum",
    "multipleOf",
    "name",
    "nullable",
    "pattern",
    "propertyOrdering",
    "readOnly",
    "required",
    "title",
    "type",
    "uniqueItems",
    "version",
    "writeOnly",
    "xml",
];

/// The misspelt keywords of a schema, each with the one that is probably meant.
pub fn misspelt(schema: &Value) -> Vec<(&str, &'static str)> {
    let Value::Object(keywords) = schema else {
        return Vec::new();
    };
    let mut found = Vec::new();
    for (keyword, value) in keywords {
        let name = keyword.as_str();
        match value {
            Value::Object(named) if OF_NAMES.contains(&name) => found.extend(named.values().flat_map(misspelt)),
            Value::Array(schemas) if OF_SCHEMAS.contains(&name) => found.extend(schemas.iter().flat_map(misspelt)),
            _ if OF_SCHEMAS.contains(&name) => found.extend(misspelt(value)),
            _ if OF_NAMES.contains(&name)
                || OTHERS.contains(&name)
                || name.starts_with('$')
                || name.starts_with("x-") => {}
            _ => {
                let known = OF_SCHEMAS.into_iter().chain(OF_NAMES).chain(OTHERS);
                found.extend(similar_word(name, known).map(|meant| (name, meant)));
            }
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::misspelt;
    use serde_json::json;

    #[test]
    fn only_words_at_the_place_of_a_keyword_are_judged() {
        let schema = json!({
            "type": "object",
            "requried": ["kind"],
            "x-order": 1,
            "properties": {
                "requried": { "maxLenght": 3, "enum": [{ "requried": 1 }] },
                "list": { "items": [{ "additionalProperty": false }] },
                "other": { "anyOf": [{ "patern": "a" }], "not": { "unlike": true } },
            },
        });
        let found = misspelt(&schema);
        assert_eq!(
            found,
            [
                ("requried", "required"),
                ("maxLenght", "maxLength"),
                ("additionalProperty", "additionalProperties"),
                ("patern", "pattern"),
            ]
        );
    }
}
