//! Tests of names, aliases, conflicts, and the messages about arguments that do not match the schema.

use super::*;
use crate::base::access::Access;
use crate::base::call::{ToolKind, ToolOutput};
use crate::tools::PreparedCall;
use crate::workspace::Workspace;
use serde_json::json;

struct Fake(ToolSpec);

impl Tool for Fake {
    fn spec(&self) -> &ToolSpec {
        &self.0
    }

    fn prepare(&self, _args: &Value, _workspace: &Arc<Workspace>) -> Result<PreparedCall, ToolError> {
        Ok(PreparedCall {
            title: "nothing".to_owned(),
            access: Access::none(),
            preview: None,
            work: Box::new(|_| Box::pin(async { Ok(ToolOutput::text("", "")) })),
        })
    }
}

fn fake(name: &str, origin: ToolOrigin, parameters: Value) -> Arc<dyn Tool> {
    Arc::new(Fake(ToolSpec {
        name: name.to_owned(),
        display_name: name.to_uppercase(),
        description: String::new(),
        kind: ToolKind::Other,
        origin,
        parameters,
        effects: crate::base::call::ToolEffects::default(),
        aliases: Vec::new(),
    }))
}

#[test]
fn a_name_taken_twice_is_reported_and_nothing_is_added() {
    let mut registry = Registry::builtin().unwrap();
    let before = registry.specs().len();
    for name in ["list_directory", "ls"] {
        let conflict = registry
            .add(fake(name, ToolOrigin::Mcp("docs".to_owned()), json!({})))
            .unwrap_err();
        assert_eq!(
            (conflict.has.clone(), conflict.name.as_str()),
            (ToolOrigin::Builtin, name)
        );
        assert!(conflict.to_string().contains("the MCP server `docs`"), "{conflict}");
    }
    assert_eq!(registry.specs().len(), before);
    registry
        .add(fake("docs__search", ToolOrigin::Mcp("docs".to_owned()), json!({})))
        .unwrap();
    assert_eq!(registry.find("ls").unwrap().tool.spec().name, "list_directory");
}

#[test]
fn built_in_specs_are_complete_and_in_order_of_use() {
    let registry = Registry::builtin().unwrap();
    let specs = registry.specs();
    let names: Vec<&str> = specs.iter().map(|spec| spec.name.as_str()).collect();
    assert_eq!(names[..4], ["list_directory", "read_file", "grep_search", "glob"]);
    let at = |name: &str| names.iter().position(|known| *known == name).unwrap();
    assert!(at("replace") < at("run_shell_command") && at("run_shell_command") < at("read_background_output"));
    for spec in specs {
        assert!(spec.description.len() > 20, "{}", spec.name);
        assert!(jsonschema::validator_for(&spec.parameters).is_ok(), "{}", spec.name);
        let properties = spec.parameters["properties"].as_object().unwrap();
        for (name, schema) in properties {
            assert!(schema.get("type").is_some(), "{}.{name}", spec.name);
        }
        for name in spec.parameters["required"].as_array().unwrap() {
            assert!(properties.contains_key(name.as_str().unwrap()), "{}.{name}", spec.name);
        }
    }
}

/// Bytes of all built-in tools as Chat Completions declares them. They were 11,113 when each parameter was described.
const DECLARED_BYTES: usize = 5_500;

#[test]
fn declarations_hold_what_models_need_and_no_more() {
    let registry = Registry::builtin().unwrap();
    let declared = registry.declared();
    let bytes: usize = declared
        .iter()
        .map(|spec| {
            let function = json!({"name": spec.name, "description": spec.description, "parameters": spec.parameters});
            json!({"type": "function", "function": function}).to_string().len()
        })
        .sum();
    assert!(bytes <= DECLARED_BYTES, "{bytes} bytes");
    for (spec, whole) in declared.iter().zip(registry.specs()) {
        assert_eq!(spec.name, whole.name);
        let (told, all) = (&spec.parameters["properties"], &whole.parameters["properties"]);
        for (name, schema) in told.as_object().unwrap() {
            assert_eq!(schema["type"], all[name]["type"], "{}.{name}", spec.name);
        }
        for name in whole.parameters["required"].as_array().unwrap() {
            assert!(told.get(name.as_str().unwrap()).is_some(), "{}.{name}", spec.name);
        }
        assert!(spec.parameters.get("additionalProperties").is_none());
    }
    let search = declared.iter().find(|spec| spec.name == "grep_search").unwrap();
    for name in [
        "pattern",
        "dir_path",
        "include_pattern",
        "fixed_strings",
        "whole_word",
        "case_sensitive",
        "context",
    ] {
        assert!(search.parameters["properties"].get(name).is_some(), "{name}");
    }
    assert!(search.parameters["properties"].get("max_matches_per_file").is_none());
    // Undeclared parameters are accepted too.
    let found = registry.find("grep_search").unwrap();
    assert!(
        found
            .accept(&json!({"pattern": "x", "max_matches_per_file": 2}))
            .is_ok()
    );
    assert!(found.accept(&json!({"pattern": "x", "max_matches": 2})).is_err());
}

#[test]
fn a_tool_that_is_not_declared_can_be_found() {
    let registry = Registry::builtin()
        .unwrap()
        .declaring(|spec| spec.kind == ToolKind::Read);
    let names: Vec<String> = registry.declared().into_iter().map(|spec| spec.name).collect();
    assert!(names.contains(&"read_file".to_owned()) && !names.contains(&"write_file".to_owned()));
    assert!(registry.find("write_file").is_some());
}

#[test]
fn unknown_names_get_close_ones() {
    let registry = Registry::builtin().unwrap();
    for (asked, told) in [
        ("list_dir", "list_directory"),
        ("List_Directory", "list_directory"),
        ("zzz", "the tools are"),
    ] {
        let message = registry.unknown(asked).to_string();
        assert!(message.contains(told), "{message}");
    }
}

#[test]
fn include_and_exclude_take_names_aliases_kinds_and_origins() {
    let mut registry = Registry::builtin().unwrap();
    let docs = || ToolOrigin::Mcp("docs".to_owned());
    registry.add(fake("docs__a", docs(), json!({}))).unwrap();
    registry.add(fake("docs__b", docs(), json!({}))).unwrap();
    registry.add(fake("found", ToolOrigin::Discovered, json!({}))).unwrap();
    let names = |include: Option<&[&str]>, exclude: &[&str]| {
        let owned = |all: &[&str]| all.iter().map(|one| (*one).to_owned()).collect::<Vec<_>>();
        let (kept, unmatched) = registry.filtered(include.map(owned).as_deref(), &owned(exclude));
        let names: Vec<String> = kept.specs().into_iter().map(|spec| spec.name.clone()).collect();
        (names.join(" "), unmatched.join(" "))
    };
    assert_eq!(
        names(Some(&["docs__*"]), &["docs__a"]),
        ("docs__b".to_owned(), String::new())
    );
    assert_eq!(names(Some(&["ls", "nope"]), &[]).0, "list_directory");
    assert_eq!(names(Some(&["ls", "nope"]), &[]).1, "nope");
    assert_eq!(
        names(Some(&["origin:discovered", "origin:mcp:docs"]), &["docs__b"]).0,
        "docs__a found"
    );
    assert_eq!(names(Some(&["kind:other"]), &["origin:mcp"]).0, "found");
}

#[test]
fn arguments_are_renamed_checked_and_freed_of_the_scheduler() {
    let registry = Registry::builtin().unwrap();
    let found = registry.find("ls").unwrap();
    let accepted = found
        .accept(&json!({ "path": "src", "wait_for_previous": true, "ignore": null }))
        .unwrap();
    assert_eq!(
        accepted,
        Accepted {
            args: json!({ "dir_path": "src" }),
            wait: true
        }
    );
    let cases = [
        (json!({}), "list_directory: `dir_path` is missing"),
        (json!({ "dir_path": 3 }), "`dir_path` must be a string, not 3"),
        (json!({ "dir_path": ".", "ignores": [] }), "did you mean `ignore`?"),
        (json!({ "dir_path": ".", "zz": 1 }), "known: `dir_path`"),
        (json!({ "dir_path": ".", "path": "x" }), "give only `dir_path`"),
        (
            json!({ "dir_path": ".", "wait_for_previous": "yes" }),
            "must be a boolean",
        ),
        (json!([]), "must be a JSON object"),
    ];
    for (args, told) in cases {
        let error = found.accept(&args).unwrap_err();
        assert!(matches!(
            &error,
            ToolError::Model {
                kind: "invalid_tool_params",
                ..
            }
        ));
        assert!(error.to_string().contains(told), "{args}: {error}");
    }
}

#[test]
fn tools_of_others_keep_their_own_arguments() {
    let mut registry = Registry::default();
    let own = json!({ "type": "object", "properties": { "wait_for_previous": { "type": "string" }, "path": {} } });
    registry.add(fake("found", ToolOrigin::Discovered, own)).unwrap();
    registry
        .add(fake("broken", ToolOrigin::Discovered, json!({ "type": "nonsense" })))
        .unwrap();
    let args = json!({ "path": null, "wait_for_previous": "x", "more": 1 });
    assert_eq!(
        registry.find("found").unwrap().accept(&args).unwrap(),
        Accepted {
            args: args.clone(),
            wait: false
        }
    );
    assert!(registry.find("broken").unwrap().accept(&json!({})).is_ok());
    assert!(registry.find("found").unwrap().accept(&Value::Null).is_ok());
}
