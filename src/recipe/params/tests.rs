//! Tests of parameters: types, sources and their order, all problems at once.

use super::*;
use crate::diag::{SourceFiles, parse, render_all};
use serde_json::json;

fn declared(text: &str) -> (SourceFiles, Vec<Parameter>) {
    let mut files = SourceFiles::new();
    let id = files.add(
        "r.yaml",
        format!("version: 1\nname: x\nsteps: [{{id: a, run: 'true'}}]\nparameters:\n{text}"),
    );
    let recipe = crate::recipe::parse(&files, id, &mut Vec::new()).unwrap();
    (files, recipe.parameters)
}

const SIX: &str = "  - {name: package, default: '.'}\n  - {name: n, type: integer}\n  - {name: deep, type: boolean, default: false}\n  - {name: mode, choices: [fast, slow], default: fast}\n  - {name: files, type: list, default: []}\n  - {name: at, type: path, default: src}\n";

fn resolved(flags: &[&str], file: Option<&str>) -> Result<Value, String> {
    let (mut files, parameters) = declared(SIX);
    let node = file.map(|text| {
        let id = files.add("p.json", text);
        parse(&files, id).unwrap()
    });
    let flags: Vec<String> = flags.iter().map(|flag| (*flag).to_owned()).collect();
    let mut problems = Vec::new();
    let values = resolve(&parameters, &flags, node.as_ref(), &mut problems);
    if problems.is_empty() {
        Ok(serde_json::to_value(values).unwrap())
    } else {
        Err(render_all(&files, &problems))
    }
}

#[test]
fn flags_come_before_the_file_and_the_file_before_defaults() {
    let values = resolved(
        &["n=3", "files=a", "files=b c"],
        Some("{\"package\": \"p\", \"n\": 9, \"deep\": true}"),
    );
    assert_eq!(
        values.unwrap(),
        json!({"package": "p", "n": 3, "deep": true, "mode": "fast", "files": ["a", "b c"], "at": "src"})
    );
    let values = resolved(&["n=-1", "package=a=b\nc: d"], Some("mode: slow\nfiles: [x, 1]\n")).unwrap();
    assert_eq!(values["package"], json!("a=b\nc: d"));
    assert_eq!(values["files"], json!(["x", "1"]));
}

#[test]
fn every_problem_is_told() {
    let flags = [
        "pakage=x",
        "deep=yes",
        "mode=slo",
        "at=../x",
        "zzz",
        "package=1",
        "package=2",
    ];
    let shown = resolved(&flags, Some("{\"files\": \"a\", \"foo\": 1}")).unwrap_err();
    for line in [
        "p.json:1:11: error[bad-value]: the parameter `files` must be a list of strings, found the string \"a\"",
        "p.json:1:16: error[unknown-parameter]: the recipe has no parameter `foo`",
        "error[unknown-parameter]: the recipe has no parameter `pakage`",
        "help: did you mean `package`?",
        "error[bad-value]: the parameter `deep` must be `true` or `false`, found `yes`",
        "error[bad-value]: the parameter `mode` cannot be `slo`",
        "help: write one of `fast` and `slow`",
        "error[bad-value]: the parameter `at` must be a path inside the workspace, without `..`, found `../x`",
        "error[bad-flag]: `--param zzz` has no `=`",
        "error[duplicate-flag]: `--param package=…` is given twice",
        "r.yaml:6:12: error[missing-parameter]: the parameter `n` has no value and no default",
    ] {
        assert!(shown.lines().any(|shown| shown == line), "{line}\n---\n{shown}");
    }
}

#[test]
fn texts_by_type() {
    let table = [
        (ParameterType::Number, "2.5", Some(json!(2.5))),
        (ParameterType::Number, "2", Some(json!(2))),
        (ParameterType::Number, "inf", None),
        (ParameterType::Integer, "2.5", None),
        (ParameterType::Integer, "+7", Some(json!(7))),
        (ParameterType::String, "", Some(json!(""))),
        (ParameterType::String, "1.10", Some(json!("1.10"))),
        (ParameterType::List, "[\"a,b\"]", Some(json!(["a,b"]))),
        (ParameterType::List, "[1]", None),
        (ParameterType::List, "", Some(json!([]))),
        (ParameterType::Path, "/etc/passwd", None),
        (ParameterType::Path, "a/../../b", None),
        (ParameterType::Path, "a..b/c", Some(json!("a..b/c"))),
        (ParameterType::Path, "", None),
    ];
    for (kind, text, expected) in table {
        assert_eq!(read_text(text, kind, &[]).ok(), expected, "{kind:?} {text}");
    }
}

#[test]
fn names_are_identifiers() {
    for (name, good) in [
        ("a_1", true),
        ("1a", false),
        ("a-b", false),
        ("input", false),
        ("", false),
        ("ä", false),
    ] {
        assert_eq!(is_name(name), good, "{name}");
    }
}
