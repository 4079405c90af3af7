//! The published schemas, as editors and validators of others use them on the files that ship and that commands write.
//!
//! `OVERNIGHT_NODE` has `yaml-language-server`, `OVERNIGHT_VALIDATORS` has `check-jsonschema`.

use super::harness::{World, have, project};
use super::validators::{has, python};
use serde_json::Value;
use std::path::{Path, PathBuf};

/// A file below `OVERNIGHT_NODE`, if it is there.
pub fn module(path: &str) -> Option<PathBuf> {
    let modules = std::env::var_os("OVERNIGHT_NODE")
        .map(PathBuf::from)
        .unwrap_or_default();
    let found = modules.join(path);
    have(path, !modules.as_os_str().is_empty() && found.is_file()).then_some(found)
}

const KINDS: [&str; 14] = [
    "recipe",
    "policy",
    "profile",
    "batch",
    "job",
    "cases",
    "script",
    "result",
    "batch-result",
    "runs",
    "deliver",
    "findings",
    "event",
    "error",
];

/// A manifest as the guide shows it.
const BATCH: &str = "version: 1\nname: weekly-clippy\nrecipe: recipes/fix-clippy.yaml\npolicy: recipes/policies/rust.yaml\n\
    models: [gemini/gemini-2.5-pro]\ntrials: 1\nmatrix: { targets: [\"--lib\", \"--bins\"] }\ntargets:\n  - { repo: \"https://git.example.org/a.git\", ref: main }\n  \
    - { path: ../b, id: b }\n  - { file: repos.jsonl }\n  - { command: ./list-repos }\nbudget: { cost: 50.00, wall: 6h }\nrate: { requests: 300/m }\n\
    stop: { provider_failures: 5, failed: 20% }\nretry: { on: [provider, environment], max: 1 }\n";

fn yaml_files(dir: &Path) -> Vec<PathBuf> {
    let mut found: Vec<PathBuf> = std::fs::read_dir(dir)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|ending| ending == "yaml"))
        .collect();
    found.sort();
    found
}

/// Those of each directory below this one.
fn yaml_files_below(dir: &Path) -> Vec<PathBuf> {
    let mut dirs: Vec<PathBuf> = std::fs::read_dir(dir)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .collect();
    dirs.sort();
    dirs.iter().flat_map(|dir| yaml_files(dir)).collect()
}

/// The tables of cases and the scripts of replies of this repository.
fn tables_and_scripts() -> [Vec<PathBuf>; 2] {
    [
        yaml_files(&project().join("fixtures/policy/presets")),
        yaml_files_below(&project().join("recipes/samples")),
    ]
}

/// What an editor shows, by the title of the schema: what it says of the first key, a key that it offers at the end of
/// the file (none where the format has no other keys), and one that it offers in a new entry of the last list.
const SHOWN: [(&str, &str, Option<&str>, &str); 5] = [
    ("Recipe", "The version of the format", Some("model"), "prompt"),
    ("Policy", "The version of the format", Some("limits"), "allow"),
    ("Manifest", "The version of the format", Some("model"), "path"),
    ("Table of cases", "The version of the format", None, "expect"),
    ("Script of replies", "The replies in order", None, "text"),
];

/// What commands write for a user: `init`, `recipe new`, in this order a policy and two recipes.
fn written(world: &World) -> [PathBuf; 3] {
    world.file(
        "Cargo.toml",
        "[package]\nname = \"x\"\nversion = \"0.1.0\"\nedition = \"2024\"\n",
    );
    world.call(&["init"]).exits(0);
    world
        .call(&["recipe", "new", "ci/mine.yaml", "--from", "builtin:fix-clippy"])
        .exits(0);
    ["overnight-policy", "fix-tests", "mine"].map(|name| world.ws().join(format!("ci/{name}.yaml")))
}

#[test]
fn a_schema_is_printed_listed_and_written() {
    let world = World::new();
    let list = world.call(&["schema"]).exits(0).stdout;
    assert_eq!(list.lines().count(), KINDS.len(), "{list}");
    world.call(&["schema", "--dir", "all"]).exits(0);
    for kind in KINDS {
        let line = list.lines().find(|line| line.split_whitespace().next() == Some(kind));
        assert!(
            line.is_some_and(|line| line.split_whitespace().count() > 2),
            "{kind}: {list}"
        );
        let text = world.call(&["schema", kind]).exits(0).stdout;
        let schema: Value = serde_json::from_str(&text).unwrap();
        let id = schema["$id"].as_str().unwrap();
        let name = format!("overnight-{kind}-1.json");
        assert_eq!(id.rsplit('/').next(), Some(name.as_str()));
        assert_eq!(world.read(&format!("all/{name}")), text);
    }
    let done = world.call(&["schema", "recipes"]).exits(2);
    assert!(KINDS.iter().all(|kind| done.stderr.contains(kind)), "{}", done.stderr);
    assert_eq!(done.stdout, "");
}

#[test]
fn written_files_name_their_schema_and_match_it() {
    let world = World::repo(&[]);
    let files = written(&world);
    for (file, kind) in files.iter().zip(["policy", "recipe", "recipe"]) {
        let text = std::fs::read_to_string(file).unwrap();
        let first = format!("# yaml-language-server: $schema=https://json.schemastore.org/overnight-{kind}-1.json");
        assert_eq!(text.lines().next(), Some(first.as_str()), "{}", file.display());
        let command = format!("{kind} check {}", file.display());
        world.call(&command.split(' ').collect::<Vec<_>>()).exits(0);
    }
    // A copy of a copy does not name it twice.
    world
        .call(&["recipe", "new", "ci/again.yaml", "--from", "ci/mine.yaml"])
        .exits(0);
    assert_eq!(world.read("ci/again.yaml"), world.read("ci/mine.yaml"));
}

#[test]
fn check_jsonschema_accepts_the_schemas_and_what_ships() {
    if !has("check_jsonschema") {
        return;
    }
    let world = World::repo(&[]);
    let [policy, first, second] = written(&world);
    world.call(&["schema", "--dir", "schemas"]).exits(0);
    let named = |kind: &str| world.ws().join(format!("schemas/overnight-{kind}-1.json"));
    let check = |arguments: &[&str], files: &[PathBuf]| {
        let mut command = python(&["-m", "check_jsonschema"]);
        let output = command.args(arguments).args(files).output().unwrap();
        let said = [output.stdout, output.stderr].concat();
        (output.status.success(), String::from_utf8_lossy(&said).into_owned())
    };
    let all: Vec<PathBuf> = KINDS.map(named).to_vec();
    let (good, said) = check(&["--check-metaschema"], &all);
    assert!(good, "{said}");

    let wrong = |name: &str, text: &str| PathBuf::from(world.beside(name, text));
    let batch = PathBuf::from(world.beside("batch.yaml", BATCH));
    let [tables, scripts] = tables_and_scripts();
    let cases = [
        (
            "recipe",
            [yaml_files(&project().join("recipes")), vec![first, second]].concat(),
            wrong("r.yaml", "version: 1\nname: r\nsteps: [{ id: a, promt: go }]\n"),
        ),
        (
            "policy",
            [yaml_files(&project().join("recipes/policies")), vec![policy]].concat(),
            wrong("p.yaml", "version: 1\nrules: [{ allow: read_file, deny: read_file }]\n"),
        ),
        (
            "batch",
            vec![batch],
            wrong("b.yaml", "version: 1\ntargets: [{ path: a, repo: b }]\n"),
        ),
        (
            "cases",
            tables,
            wrong("c.yaml", "version: 1\ncases: [{ read: a, dir: b, expect: allow }]\n"),
        ),
        (
            "script",
            scripts,
            wrong("s.yaml", "replies: [{ usage: { input: 1 } }]\n"),
        ),
    ];
    for (kind, files, bad) in cases {
        let schema = named(kind);
        let (good, said) = check(&["--schemafile", schema.to_str().unwrap()], &files);
        assert!(good, "{kind}: {said}");
        let (good, said) = check(&["--schemafile", schema.to_str().unwrap()], &[bad]);
        assert!(!good, "{kind}: {said}");
    }
}

#[test]
fn an_editor_knows_what_ships_and_what_is_written() {
    let Some(server) = module("yaml-language-server/bin/yaml-language-server") else {
        return;
    };
    let world = World::repo(&[]);
    let mut files = [
        yaml_files(&project().join("recipes")),
        yaml_files(&project().join("recipes/policies")),
    ]
    .concat();
    files.extend(written(&world));
    files.extend(tables_and_scripts().concat());
    let head = "# yaml-language-server: $schema=https://json.schemastore.org/overnight-batch-1.json\n";
    files.push(PathBuf::from(world.beside("batch.yaml", format!("{head}{BATCH}"))));
    world.call(&["schema", "--dir", "schemas"]).exits(0);
    let mut editor = python(&[]);
    editor
        .arg(project().join("tests/it/editor.py"))
        .arg(&server)
        .arg(world.ws().join("schemas"))
        .args(&files);
    let output = editor.output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8(output.stdout).unwrap();
    let mut lines: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let asked = lines.pop().unwrap();
    assert_eq!(asked["asked"].as_array().unwrap().len(), SHOWN.len(), "{asked}");
    assert_eq!(lines.len(), files.len());
    for line in lines {
        assert_eq!(line["problems"], serde_json::json!([]), "{line}");
        let said = line["said"].as_str().unwrap();
        let shown = SHOWN.iter().find(|(title, ..)| said.contains(title));
        let (_, meaning, key, within) = shown.unwrap_or_else(|| panic!("{line}"));
        assert!(said.contains(meaning), "{line}");
        let offered: Vec<&str> = line["offered"]
            .as_array()
            .unwrap()
            .iter()
            .filter_map(Value::as_str)
            .collect();
        match key {
            Some(key) => {
                assert!(offered.len() >= 2, "{line}");
                // A key that stands already is not offered again.
                let text = std::fs::read_to_string(line["file"].as_str().unwrap()).unwrap();
                let stands = text.lines().any(|line| line.starts_with(&format!("{key}:")));
                assert_eq!(offered.contains(key), !stands, "{line}");
            }
            None => assert_eq!(offered, [""; 0], "{line}"),
        }
        match line["entry"].as_array() {
            Some(entry) => assert!(entry.contains(&Value::from(*within)), "{line}"),
            None => assert!(key.is_some(), "{line}"),
        }
        let wrong = line["wrong"].as_array().unwrap();
        assert!(
            wrong.iter().any(|one| one.as_str().unwrap().contains("stepps")),
            "{line}"
        );
    }
}
