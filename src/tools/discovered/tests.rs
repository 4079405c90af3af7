//! Tests of the output of discovery commands, from a table.

use super::*;

/// `fixtures/discovered/shapes.json`: what is printed, and the names and parameters that are read.
const SHAPES: &str = include_str!("../../../fixtures/discovered/shapes.json");

#[test]
fn every_documented_shape_is_read() {
    let cases: Vec<Value> = serde_json::from_str(SHAPES).unwrap();
    assert!(cases.len() >= 10);
    for case in cases {
        let printed = match &case["printed"] {
            Value::String(text) => text.clone(),
            value => value.to_string(),
        };
        let read = declarations(&printed);
        match case.get("error") {
            Some(error) => {
                let told = read.expect_err(&printed);
                assert!(told.contains(error.as_str().unwrap()), "{printed}: {told}");
            }
            None => {
                let (tools, warnings) = read.unwrap();
                let tools: Vec<Value> = tools
                    .into_iter()
                    .map(|tool| json!({ "name": tool.name, "description": tool.description, "parameters": tool.parameters }))
                    .collect();
                assert_eq!(json!(tools), case["tools"], "{printed}");
                assert_eq!(
                    warnings.len() as u64,
                    case["warnings"].as_u64().unwrap_or(0),
                    "{warnings:?}"
                );
            }
        }
    }
}

#[test]
fn a_long_description_is_cut() {
    let (tools, _) = declarations(&json!([{ "name": "a", "description": "x".repeat(1 << 20) }]).to_string()).unwrap();
    assert_eq!(tools[0].description.chars().count(), DESCRIPTION + 1);
}
