//! Tests of the schema dialects.

use super::*;
use proptest::prelude::*;

#[test]
fn gemini_table() {
    for (given, wanted) in [
        (
            json!({"type": "string", "$schema": "x", "pattern": "a"}),
            json!({"type": "string"}),
        ),
        (
            json!({"anyOf": [{"type": "string"}, {"type": "null"}], "default": null}),
            json!({"anyOf": [{"type": "string"}, {"type": "null"}]}),
        ),
        (
            json!({"type": ["string", "null"], "description": "d", "enum": ["a", null]}),
            json!({"description": "d", "anyOf": [{"type": "string", "enum": ["a"]}, {"type": "null"}]}),
        ),
        (
            json!({"type": "integer", "enum": [1, 2], "description": "d"}),
            json!({"type": "integer", "description": "d One of: 1, 2."}),
        ),
        (
            json!({"type": "array", "description": "d", "maxItems": 900, "minItems": 1}),
            json!({"type": "array", "description": "d At most 900 items.", "minItems": 1}),
        ),
        (json!({"const": "a"}), json!({"enum": ["a"], "type": "string"})),
        (json!({"type": "string", "format": "uri"}), json!({"type": "string"})),
        (
            json!({"type": "string", "format": "date-time"}),
            json!({"type": "string", "format": "date-time"}),
        ),
        (
            json!({"$defs": {"a": {"type": "string"}}, "properties": {"x": {"$ref": "#/$defs/a", "description": "d"}}}),
            json!({"properties": {"x": {"type": "string", "description": "d"}}}),
        ),
        (
            json!({"allOf": [{"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a"]}], "properties": {"b": {}}, "required": ["b"]}),
            json!({"type": "object", "properties": {"a": {"type": "string"}, "b": {}}, "required": ["a", "b"]}),
        ),
        (json!(true), json!({})),
        (
            json!({"type": "array", "items": [{"$ref": "#/items/1"}, {"type": "string"}], "minItems": 2}),
            json!({"type": "array", "prefixItems": [{"type": "string"}, {"type": "string"}], "minItems": 2}),
        ),
        (
            json!({"type": "array", "items": true}),
            json!({"type": "array", "items": {}}),
        ),
    ] {
        assert_eq!(for_gemini(&given), wanted, "{given}");
    }
}

#[test]
fn keywords_with_values_of_another_shape_are_left_out() {
    for (given, wanted) in [
        (json!({"required": {"anyOf": "#", "default": null}}), json!({})),
        (json!({"required": true, "type": "string"}), json!({"type": "string"})),
        (json!({"required": ["a", 1]}), json!({"required": ["a"]})),
        (json!({"type": {"anyOf": []}, "description": 3}), json!({})),
        (json!({"type": "any"}), json!({})),
        (json!({"type": ["string", "any"]}), json!({"type": "string"})),
        (json!({"type": []}), json!({})),
        (
            json!({"properties": ["a"], "items": "x", "additionalProperties": "x"}),
            json!({}),
        ),
        (json!({"minItems": -1, "minimum": "1", "maximum": null}), json!({})),
        (
            json!({"anyOf": {}, "oneOf": [], "prefixItems": 1, "enum": []}),
            json!({}),
        ),
        (json!({"default": 1, "anyOf": []}), json!({"default": 1})),
    ] {
        assert_eq!(for_gemini(&given), wanted, "{given}");
    }
}

#[test]
fn cycles_end() {
    let tree = json!({
        "type": "object",
        "properties": {"child": {"$ref": "#"}, "leaf": {"$ref": "#/$defs/leaf"}},
        "$defs": {"leaf": {"type": "object", "description": "a leaf", "properties": {"next": {"$ref": "#/$defs/leaf"}}}},
    });
    let clean = for_gemini(&tree);
    assert_eq!(
        clean["properties"]["child"]["properties"]["child"],
        json!({"type": "object"})
    );
    let leaf = &clean["properties"]["leaf"]["properties"]["next"];
    assert_eq!(leaf, &json!({"type": "object", "description": "a leaf"}));
    assert!(!clean.to_string().contains("$ref"));
}

#[test]
fn wide_schemas_are_cut() {
    // Each definition refers to the next one eight times: fully expanded, it would have 8^12 nodes.
    let mut definitions = Map::new();
    for n in 0..12 {
        let properties: Map<String, Value> = (0..8)
            .map(|p| (format!("p{p}"), json!({"$ref": format!("#/$defs/d{}", n + 1)})))
            .collect();
        definitions.insert(format!("d{n}"), json!({"type": "object", "properties": properties}));
    }
    definitions.insert("d12".into(), json!({"type": "string"}));
    let schema = json!({"$ref": "#/$defs/d0", "$defs": definitions});
    assert!(for_gemini(&schema).to_string().len() < 1_000_000);
}

#[test]
fn a_schema_with_many_references_to_a_long_text_stays_within_the_limit() {
    let properties: Map<String, Value> = (0..500)
        .map(|n| (format!("p{n}"), json!({"$ref": "#/$defs/long"})))
        .collect();
    let long = json!({"type": "string", "description": "x".repeat(8_000)});
    let schema = json!({"type": "object", "properties": properties, "$defs": {"long": long}});
    let clean = for_gemini(&schema);
    assert!(clean.to_string().len() < 2 * BYTES);
    assert_eq!(clean["properties"]["p0"]["description"], long["description"]);
    assert_eq!(clean["properties"]["p499"], json!({"type": "string"}));
}

#[test]
fn alternatives_at_the_top_become_one_object() {
    let schema = json!({
        "$schema": "x",
        "anyOf": [
            {"properties": {"a": {}, "c": {}}, "required": ["a", "c"]},
            {"properties": {"b": {}, "c": {}}, "required": ["b", "c"]},
        ],
    });
    let wanted = json!({"type": "object", "properties": {"a": {}, "b": {}, "c": {}}, "required": ["c"]});
    assert_eq!(for_object(&schema), wanted);
    assert_eq!(for_object(&json!({})), json!({"type": "object", "properties": {}}));
    assert_eq!(for_object(&json!(true)), json!({"type": "object", "properties": {}}));
}

#[test]
fn strictness() {
    let closed = json!({"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a"], "additionalProperties": false});
    assert!(is_strict(&closed));
    let list = json!({"type": "object", "properties": {"a": {"type": "array", "items": closed}}, "required": ["a"], "additionalProperties": false});
    assert!(is_strict(&list));
    for loose in [
        json!({"type": "object", "required": ["summary"]}),
        json!({"type": "object", "properties": {"a": {"type": "string"}}, "required": [], "additionalProperties": false}),
        json!({"type": "object", "properties": {"a": {"type": "string", "pattern": "x"}}, "required": ["a"], "additionalProperties": false}),
        json!({"type": "array", "items": {"type": "string"}}),
        json!(true),
    ] {
        assert!(!is_strict(&loose), "{loose}");
    }
}

fn any_schema() -> impl Strategy<Value = Value> {
    let keys = "type|properties|items|prefixItems|additionalProperties|anyOf|oneOf|allOf|enum|const|required|default|format|title|description|minItems|maxItems|minimum|[$]ref|not";
    let leaf = prop_oneof![
        Just(json!(null)),
        Just(json!(true)),
        Just(json!(3)),
        Just(json!("object")),
        Just(json!("string")),
        Just(json!(["string", "null"])),
        Just(json!("#/properties/a")),
        Just(json!("#")),
    ];
    leaf.prop_recursive(5, 40, 5, move |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::Array),
            prop::collection::hash_map(keys, inner, 0..5).prop_map(|map| Value::Object(map.into_iter().collect())),
        ]
    })
}

/// Whether Gemini accepts the schema: known keywords only, each with a value of its shape, also in the schemas inside.
fn is_accepted(schema: &Value) -> bool {
    let all = |list: &Value| {
        list.as_array()
            .is_some_and(|list| !list.is_empty() && list.iter().all(is_accepted))
    };
    let texts = |list: &Value| list.as_array().is_some_and(|list| list.iter().all(Value::is_string));
    let fits = |(key, value): (&String, &Value)| match key.as_str() {
        "type" => value.as_str().is_some_and(|kind| TYPES.contains(&kind)),
        "title" | "description" | "format" => value.is_string(),
        "properties" => value.as_object().is_some_and(|map| map.values().all(is_accepted)),
        "required" | "enum" => texts(value),
        "additionalProperties" => value.is_boolean() || is_accepted(value),
        "items" => is_accepted(value),
        "anyOf" | "oneOf" | "prefixItems" => all(value),
        "minItems" => value.is_u64(),
        "minimum" | "maximum" => value.is_number(),
        "default" => true,
        _ => false,
    };
    schema.as_object().is_some_and(|map| {
        let alternatives = map.contains_key("anyOf") || map.contains_key("oneOf");
        map.iter().all(fits) && !(alternatives && map.contains_key("default"))
    })
}

proptest! {
    #[test]
    fn any_schema_is_cleaned(schema in any_schema()) {
        let object = for_object(&schema);
        prop_assert_eq!(&object["type"], "object");
        let _ = is_strict(&schema);
        let clean = for_gemini(&schema);
        prop_assert!(is_accepted(&clean), "{}", clean);
    }
}
