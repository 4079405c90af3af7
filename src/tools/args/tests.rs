//! Tests of older parameter names.

use super::*;
use crate::base::call::{ToolKind, ToolOrigin};
use serde_json::json;

fn spec(name: &str, properties: &[&str]) -> ToolSpec {
    let properties: Map<String, Value> = properties.iter().map(|name| ((*name).to_owned(), json!({}))).collect();
    ToolSpec {
        name: name.to_owned(),
        display_name: String::new(),
        description: String::new(),
        kind: ToolKind::Read,
        origin: ToolOrigin::Builtin,
        parameters: json!({ "type": "object", "properties": properties }),
        effects: crate::base::call::ToolEffects::default(),
        aliases: Vec::new(),
    }
}

#[test]
fn older_names_become_current_ones() {
    let read = spec("read_file", &["file_path", "start_line", "end_line"]);
    let edit = spec("replace", &["file_path", "old_string", "allow_multiple"]);
    let many = spec("read_many_files", &["include"]);
    let shell = spec("run_shell_command", &["command", "dir_path"]);
    let cases = [
        (&read, json!({ "absolute_path": "a" }), json!({ "file_path": "a" })),
        (
            &read,
            json!({ "file_path": "a", "offset": 10, "limit": 5 }),
            json!({ "file_path": "a", "start_line": 11, "end_line": 15 }),
        ),
        (&read, json!({ "offset": 0.0 }), json!({ "start_line": 1 })),
        (&read, json!({ "limit": 3 }), json!({ "start_line": 1, "end_line": 3 })),
        (
            &edit,
            json!({ "expected_replacements": 3 }),
            json!({ "expected_replacements": 3, "allow_multiple": true }),
        ),
        (
            &edit,
            json!({ "expected_replacements": 1 }),
            json!({ "expected_replacements": 1 }),
        ),
        (
            &edit,
            json!({ "expected_replacements": 2, "allow_multiple": false }),
            json!({ "expected_replacements": 2, "allow_multiple": false }),
        ),
        (&many, json!({ "paths": ["a"] }), json!({ "include": ["a"] })),
        (
            &shell,
            json!({ "command": "ls", "directory": "src" }),
            json!({ "command": "ls", "dir_path": "src" }),
        ),
        (&shell, json!({ "absolute_path": "x" }), json!({ "absolute_path": "x" })),
    ];
    for (spec, args, expected) in cases {
        let now = current(spec, args.as_object().unwrap()).unwrap();
        assert_eq!(Value::Object(now), expected, "{args}");
    }
}

#[test]
fn old_and_new_together_are_refused() {
    let read = spec("read_file", &["file_path", "start_line", "end_line"]);
    for args in [
        json!({ "absolute_path": "a", "file_path": "b" }),
        json!({ "offset": 1, "end_line": 3 }),
        json!({ "limit": 0 }),
        json!({ "offset": "x" }),
    ] {
        assert!(current(&read, args.as_object().unwrap()).is_err(), "{args}");
    }
    let both = json!({ "absolute_path": "a", "path": "b" });
    assert!(current(&read, both.as_object().unwrap()).is_err());
    let shell = spec("run_shell_command", &["command", "dir_path"]);
    let both = json!({ "command": "ls", "directory": "a", "dir": "b" });
    assert!(current(&shell, both.as_object().unwrap()).is_err());
}

#[test]
fn a_leading_at_is_dropped_unless_it_is_part_of_the_name() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::create_dir(dir.path().join("@scope")).unwrap();
    std::fs::write(dir.path().join("@scope/a"), "").unwrap();
    std::fs::write(dir.path().join("main.rs"), "").unwrap();
    let workspace = Workspace::open(dir.path()).unwrap();
    assert_eq!(place("@main.rs", &workspace).path, "main.rs");
    assert_eq!(place("@scope/a", &workspace).path, "@scope/a");
    assert_eq!(place("@none", &workspace).path, "@none");
    let error = missing(&workspace.locate("mian.rs"), &workspace).to_string();
    assert_eq!(error, "mian.rs does not exist; close names: main.rs");
}
