//! Every call to GitHub, and every answer of its stand-in, against the description that GitHub publishes.

use super::server::Call;
use crate::harness::have;
use serde_json::{Map, Value, json};
use std::path::PathBuf;
use std::sync::OnceLock;

/// The description, as the npm package `@octokit/openapi` has it.
fn description() -> Option<&'static Value> {
    static DESCRIPTION: OnceLock<Option<Value>> = OnceLock::new();
    let read = || {
        let modules = std::env::var_os("OVERNIGHT_NODE")
            .map(PathBuf::from)
            .unwrap_or_default();
        let file = modules.join("@octokit/openapi/generated/api.github.com.json");
        have("GitHub's OpenAPI description (npm @octokit/openapi)", file.is_file())
            .then(|| serde_json::from_slice(&std::fs::read(file).unwrap()).unwrap())
    };
    DESCRIPTION.get_or_init(read).as_ref()
}

/// The paths that are called.
const PATHS: [&str; 5] = [
    "/repos/{owner}/{repo}/pulls",
    "/repos/{owner}/{repo}/pulls/{pull_number}",
    "/repos/{owner}/{repo}/pulls/{pull_number}/requested_reviewers",
    "/repos/{owner}/{repo}/issues/{issue_number}/labels",
    "/repos/{owner}/{repo}/commits/{ref}",
];

fn path_of(path: &str) -> &'static str {
    let parts: Vec<&str> = path.trim_start_matches("/api/").split('/').collect();
    match parts.as_slice() {
        ["repos", _, _, "pulls"] => PATHS[0],
        ["repos", _, _, "pulls", _] => PATHS[1],
        ["repos", _, _, "pulls", _, "requested_reviewers"] => PATHS[2],
        ["repos", _, _, "issues", _, "labels"] => PATHS[3],
        ["repos", _, _, "commits", _] => PATHS[4],
        other => panic!("an undocumented path: {other:?}"),
    }
}

/// A schema of OpenAPI 3.0 as one of JSON Schema, with what it refers to.
fn schema(description: &Value, part: &Value) -> Value {
    let mut needed = Map::new();
    let mut root = converted(part);
    let mut open = references(part);
    while let Some(name) = open.pop() {
        if needed.contains_key(&name) {
            continue;
        }
        let found = description.pointer(&format!("/components/schemas/{name}")).unwrap();
        open.extend(references(found));
        needed.insert(name, converted(found));
    }
    root["components"] = json!({ "schemas": needed });
    root
}

fn references(part: &Value) -> Vec<String> {
    match part {
        Value::Object(fields) => {
            let own = fields
                .get("$ref")
                .and_then(Value::as_str)
                .and_then(|name| name.strip_prefix("#/components/schemas/"));
            own.map(str::to_owned)
                .into_iter()
                .chain(fields.values().flat_map(references))
                .collect()
        }
        Value::Array(items) => items.iter().flat_map(references).collect(),
        _ => Vec::new(),
    }
}

/// `nullable` is a type of JSON Schema.
fn converted(part: &Value) -> Value {
    match part {
        Value::Array(items) => items.iter().map(converted).collect(),
        Value::Object(fields) => {
            let plain: Map<String, Value> = fields
                .iter()
                .filter(|(name, value)| *name != "nullable" || !value.is_boolean())
                .filter(|(name, value)| {
                    !matches!(name.as_str(), "format" | "example" | "examples")
                        || value.is_object() && *name != "example"
                })
                .map(|(name, value)| (name.clone(), converted(value)))
                .collect();
            match fields.get("nullable") {
                Some(Value::Bool(true)) => json!({ "anyOf": [{ "type": "null" }, plain] }),
                _ => Value::Object(plain),
            }
        }
        other => other.clone(),
    }
}

fn holds(what: &str, description: &Value, part: &Value, value: &Value) {
    let schema = schema(description, part);
    let validator = jsonschema::validator_for(&schema).unwrap_or_else(|error| panic!("{what}: {error}"));
    let wrong: Vec<String> = validator
        .iter_errors(value)
        .map(|error| format!("{}: {error}", error.instance_path()))
        .collect();
    assert!(wrong.is_empty(), "{what}:\n{}", wrong.join("\n"));
}

/// Fails for the first call or answer that is not as described.
pub fn check(case: &str, calls: &[Call]) {
    let Some(description) = description() else { return };
    for call in calls {
        if !call.path.starts_with("/api/") {
            continue;
        }
        let what = format!("{case}: {} {}", call.method, call.path);
        let path = path_of(&call.path);
        let operation = &description["paths"][path][call.method.to_lowercase()];
        assert!(operation.is_object(), "{what} is not described");
        assert_eq!(call.headers["accept"], "application/vnd.github+json", "{what}");
        assert_eq!(call.headers["x-github-api-version"], "2022-11-28", "{what}");
        assert!(
            call.headers.contains_key("user-agent"),
            "{what}: GitHub refuses calls without it"
        );
        for (name, value) in call.query.split('&').filter_map(|pair| pair.split_once('=')) {
            let parameters = operation["parameters"].as_array().unwrap().iter();
            let resolved = parameters.map(|parameter| match parameter["$ref"].as_str() {
                Some(reference) => description.pointer(reference.trim_start_matches('#')).unwrap(),
                None => parameter,
            });
            let mut found = resolved.filter(|parameter| parameter["name"] == name && parameter["in"] == "query");
            let parameter = found.next().unwrap_or_else(|| panic!("{what}: no parameter `{name}`"));
            if let Some(allowed) = parameter["schema"]["enum"].as_array() {
                assert!(allowed.iter().any(|word| word == value), "{what}: {name}={value}");
            }
        }
        let body = &operation["requestBody"]["content"]["application/json"]["schema"];
        if call.method == "GET" {
            assert!(call.body.is_null(), "{what}");
        } else {
            holds(&format!("{what}: the request"), description, body, &call.body);
            let known = body["properties"]
                .as_object()
                .or_else(|| body["oneOf"][0]["properties"].as_object())
                .unwrap();
            for name in call.body.as_object().unwrap().keys() {
                assert!(known.contains_key(name), "{what}: no field `{name}`");
            }
        }
        let response = &operation["responses"][call.status.to_string()]["content"]["application/json"]["schema"];
        if call.status < 300 {
            assert!(response.is_object(), "{what}: {} is not described", call.status);
            holds(&format!("{what}: the answer"), description, response, &call.answer);
        }
    }
}
