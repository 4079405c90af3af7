//! Findings through the validators of their formats, and recipes of goose through the whole program.

use super::harness::{World, have, open_policy, says, script};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::process::Command;

fn modules() -> PathBuf {
    std::env::var_os("OVERNIGHT_NODE")
        .map(PathBuf::from)
        .unwrap_or_default()
}

const RECIPE: &str = "version: 1
name: review
steps:
  - { id: look, prompt: Review. }
response: { schema: { type: object, required: [findings] } }
";

fn findings() -> Value {
    json!({"findings": [
        {"path": "src/a b.rs", "line": 3, "column": 2, "end_column": 5, "rule": "no-unwrap", "level": "warning", "message": "Do not <unwrap> & \"panic\"\n::set-output name=x::y"},
        {"path": "./src/c.rs", "line": 7, "end_line": 9, "rule": "dead-code", "level": "error", "message": "Never called.", "fix": {"description": "Remove it", "edits": [{"line": 7, "end_line": 9, "text": "// gone\n"}]}},
        {"path": "docs/d.md", "line": 1, "rule": "typo", "level": "note", "message": "teh"},
        {"path": "docs/d.md", "line": 5, "rule": "typo", "level": "note", "message": "teh"},
        {"path": "../../etc/passwd", "line": 1, "rule": "x", "level": "error", "message": "outside"},
        {"path": "a.rs", "line": 0, "rule": "x", "level": "error", "message": "line zero"},
        {"path": "a.rs", "line": 1, "rule": "x", "level": "fatal", "message": "no such level"},
    ]})
}

fn run(world: &World, answer: &Value) -> String {
    world
        .recipe(RECIPE, &script(&[says(&answer.to_string())]), &open_policy(&[]), &[])
        .exits(0);
    world.out().to_string_lossy().into_owned()
}

fn report(world: &World, run: &str, format: &str) -> (String, String) {
    let done = world.call(&["report", run, "--format", format]).exits(0);
    (done.stdout, done.stderr)
}

#[test]
fn every_format_holds_the_same_findings() {
    let world = World::repo(&[("a.rs", "x\n")]);
    let run = run(&world, &findings());

    let (text, said) = report(&world, &run, "sarif");
    for wrong in ["findings[4]", "findings[5]", "findings[6]"] {
        assert!(said.contains(wrong), "{wrong}: {said}");
    }
    let sarif: Value = serde_json::from_str(&text).unwrap();
    let results = sarif["runs"][0]["results"].as_array().unwrap();
    let seen: Vec<(&str, &str, &str)> = results
        .iter()
        .map(|result| {
            let location = &result["locations"][0]["physicalLocation"];
            (
                result["level"].as_str().unwrap(),
                result["ruleId"].as_str().unwrap(),
                location["artifactLocation"]["uri"].as_str().unwrap(),
            )
        })
        .collect();
    assert_eq!(
        seen,
        [
            ("error", "dead-code", "src/c.rs"),
            ("warning", "no-unwrap", "src/a%20b.rs"),
            ("note", "typo", "docs/d.md"),
            ("note", "typo", "docs/d.md")
        ]
    );
    let prints: std::collections::BTreeSet<&str> = results
        .iter()
        .map(|result| result["partialFingerprints"]["overnight/v1"].as_str().unwrap())
        .collect();
    assert_eq!(prints.len(), 4, "likes are told apart");
    let tool = modules().join("@microsoft/sarif-multitool-linux/Sarif.Multitool");
    if have("the SARIF multitool", tool.is_file()) {
        let file = world.beside("x.sarif", &text);
        let done = Command::new(tool)
            .args(["validate", &file])
            .env("DOTNET_SYSTEM_GLOBALIZATION_INVARIANT", "1")
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&done.stdout);
        assert!(said.contains("1 files scanned") && !said.contains(" error "), "{said}");
    }

    let (text, _) = report(&world, &run, "rdjson");
    let rdjson: Value = serde_json::from_str(&text).unwrap();
    assert_eq!(rdjson["diagnostics"].as_array().unwrap().len(), 4);
    assert_eq!(rdjson["diagnostics"][0]["suggestions"][0]["text"], "// gone");
    let tool = modules().join("@umbrelladocs/rdformat-validator/bin/rdformat-validator.js");
    if have("the rdformat validator", tool.is_file()) {
        let file = world.beside("x.json", &text);
        let done = Command::new("node").arg(tool).arg(file).output().unwrap();
        assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stdout));
    }

    let (text, _) = report(&world, &run, "codequality");
    let issues: Vec<Value> = serde_json::from_str(&text).unwrap();
    // As GitLab documents it: each of these fields, and no two fingerprints alike.
    for issue in &issues {
        for field in ["description", "check_name", "fingerprint", "severity"] {
            assert!(issue[field].is_string(), "{field}");
        }
        assert!(["info", "minor", "major", "critical", "blocker"].contains(&issue["severity"].as_str().unwrap()));
        assert!(!issue["location"]["path"].as_str().unwrap().starts_with("./"));
        assert!(issue["location"]["lines"]["begin"].is_u64());
    }
    assert_eq!(issues.len(), 4);

    let (text, _) = report(&world, &run, "checkstyle");
    let file = world.beside("x.xml", &text);
    let parse = "import sys, xml.etree.ElementTree as e\nr = e.parse(sys.argv[1]).getroot()\nprint(r.tag, [(f.get('name'), [(x.get('line'), x.get('severity'), x.get('source')) for x in f]) for f in r])\nprint(r.find('file[3]/error').get('message'))";
    if have("python3", Command::new("python3").arg("--version").output().is_ok()) {
        let done = Command::new("python3").args(["-c", parse, &file]).output().unwrap();
        let said = String::from_utf8_lossy(&done.stdout);
        assert!(said.contains("checkstyle [('docs/d.md', [('1', 'info', 'typo'), ('5', 'info', 'typo')]), ('src/a b.rs', [('3', 'warning', 'no-unwrap')]), ('src/c.rs', [('7', 'error', 'dead-code')])]"), "{said} {}", String::from_utf8_lossy(&done.stderr));
    }

    let (text, _) = report(&world, &run, "github");
    assert!(
        text.contains("::error file=src/c.rs,line=7,endLine=9,title=dead-code::Never called.\n"),
        "{text}"
    );
    assert!(
        text.contains("::warning file=src/a b.rs,line=3,col=2,endColumn=5,title=no-unwrap::Do not"),
        "{text}"
    );
    assert!(
        text.lines().all(|line| line.starts_with("::error ")
            || line.starts_with("::warning ")
            || line.starts_with("::notice ")),
        "{text}"
    );
    assert!(!text.contains("\n::set-output"), "{text}");
}

/// The last line break of an edit is that of the replaced lines, of either kind; no text takes the lines away.
/// As an answer that is judged by a schema may.
#[test]
fn findings_may_follow_other_json() {
    let world = World::repo(&[("a.rs", "x\n")]);
    let recipe = "version: 1\nname: review\nsteps: [{ id: look, prompt: Review., findings: true }]\n";
    let found = json!({"findings": [{"path": "a.rs", "line": 1, "rule": "r", "level": "error", "message": "m"}]});
    let answer = format!("The log says:\n```json\n{{\"level\": 3}}\n```\nSo:\n```json\n{found}\n```");
    world
        .recipe(recipe, &script(&[says(&answer)]), &open_policy(&[]), &[])
        .exits(0);
    let (text, _) = report(&world, &world.out().to_string_lossy(), "sarif");
    let sarif: Value = serde_json::from_str(&text).unwrap();
    assert_eq!(sarif["runs"][0]["results"].as_array().unwrap().len(), 1, "{text}");
}

#[test]
fn edits_replace_whole_lines() {
    let world = World::repo(&[("a.txt", "x\n")]);
    let edits = json!([
        {"line": 1, "text": "a\r\nb\r\n"},
        {"line": 2, "end_line": 3, "text": ""},
        {"line": 5, "text": "\n"},
        {"line": 6, "text": "c"},
    ]);
    let answer = json!({"findings": [{
        "path": "a.txt", "line": 2, "rule": "r", "level": "note", "message": "m", "fix": { "edits": edits },
    }]});
    let run = run(&world, &answer);
    let sarif: Value = serde_json::from_str(&report(&world, &run, "sarif").0).unwrap();
    let fix = &sarif["runs"][0]["results"][0]["fixes"][0]["artifactChanges"][0]["replacements"];
    let replacement =
        |region: Value, text: &str| json!({ "deletedRegion": region, "insertedContent": { "text": text } });
    assert_eq!(
        *fix,
        json!([
            replacement(json!({"startLine": 1, "endLine": 1}), "a\r\nb"),
            replacement(
                json!({"startLine": 2, "startColumn": 1, "endLine": 4, "endColumn": 1}),
                ""
            ),
            replacement(json!({"startLine": 5, "endLine": 5}), ""),
            replacement(json!({"startLine": 6, "endLine": 6}), "c"),
        ])
    );
    let rdjson: Value = serde_json::from_str(&report(&world, &run, "rdjson").0).unwrap();
    let texts: Vec<&str> = rdjson["diagnostics"][0]["suggestions"]
        .as_array()
        .unwrap()
        .iter()
        .map(|suggestion| suggestion["text"].as_str().unwrap())
        .collect();
    assert_eq!(texts, ["a\r\nb", "", "", "c"]);
}

#[test]
fn annotations_stay_within_what_github_shows() {
    let world = World::repo(&[("a.rs", "x\n")]);
    let one = |n: usize| json!({"path": "a.rs", "line": n + 1, "rule": "r", "level": "warning", "message": "m".repeat(9_000)});
    let run = run(&world, &json!({"findings": (0..30).map(one).collect::<Vec<_>>()}));
    let (text, _) = report(&world, &run, "github");
    let count = |word: &str| text.lines().filter(|line| line.starts_with(word)).count();
    assert!(count("::warning ") == 10 && text.len() <= 64 * 1024, "{}", text.len());
    assert!(text.contains("not all annotations are shown"), "{text}");
    let (text, _) = report(&world, &run, "sarif");
    let sarif: Value = serde_json::from_str(&text).unwrap();
    assert_eq!(sarif["runs"][0]["results"].as_array().unwrap().len(), 30);
}

#[test]
fn a_run_without_findings_has_empty_reports() {
    let world = World::repo(&[("a.rs", "x\n")]);
    world
        .run(&script(&[says("fine")]), &open_policy(&[]), &["-p", "look"])
        .exits(0);
    let run = world.out().to_string_lossy().into_owned();
    assert_eq!(report(&world, &run, "codequality").0, "[]\n");
    assert!(report(&world, &run, "checkstyle").0.contains("<checkstyle"));
    assert!(report(&world, &run, "rdjson").0.contains("\"diagnostics\": []"));
}

#[test]
fn a_goose_recipe_runs() {
    let world = World::repo(&[("a.txt", "x\n")]);
    let recipe = world.beside(
        "theirs.yaml",
        "version: 1.0.0
title: Look at a File
description: Looks at a file.
author: { contact: someone }
activities: [Look]
instructions: You look at files.
prompt: |
  Look at {{ path }} in {{ mode }} mode. Keep {{ the braces }}.
parameters:
  - { key: path, input_type: string, requirement: required, description: which }
  - { key: mode, input_type: select, requirement: optional, default: quick, options: [quick, slow] }
extensions:
  - { type: builtin, name: developer, timeout: 300, bundled: true }
response: { json_schema: { type: object, required: [n] } }
",
    );
    world.call(&["recipe", "check", &recipe]).exits(0);
    let shown = world
        .call(&[
            "run",
            &recipe,
            "--param",
            "path=a.txt",
            "--model",
            "gemini/x",
            "--dry-run",
        ])
        .exits(0);
    assert!(shown.stdout.contains("look-at-a-file"), "{}", shown.stdout);
    let model = format!("script:{}", world.beside("s.yaml", script(&[says("{\"n\": 1}")])));
    let out = world.out().to_string_lossy().into_owned();
    let done = world
        .call(&[
            "run",
            &recipe,
            "--param",
            "path=a.txt",
            "--model",
            &model,
            "--out",
            &out,
            "--format",
            "json",
        ])
        .exits(0);
    assert_eq!(done.json()["output"], json!({"n": 1}));
    let journal = std::fs::read_to_string(Path::new(&out).join("journal.jsonl")).unwrap();
    assert!(journal.contains("You look at files.\\n\\nLook at a.txt in quick mode. Keep {{ the braces }}."));
    let command = world.beside(
        "look.toml",
        "description = \"Looks\"\nprompt = \"\"\"\nLook at !{echo seen {{args}}} and {{args}}.\n\"\"\"\n",
    );
    let model = format!("script:{}", world.beside("t.yaml", script(&[says("seen")])));
    let out = world.path().join("out2").to_string_lossy().into_owned();
    world
        .call(&[
            "run",
            &command,
            "--param",
            "args=a 'b'; c",
            "--model",
            &model,
            "--out",
            &out,
        ])
        .exits(0);
    let journal = std::fs::read_to_string(Path::new(&out).join("journal.jsonl")).unwrap();
    assert!(
        journal.contains("Look at seen a 'b'; c"),
        "the shell took it as one word"
    );
    // Without arguments there is no word in their place.
    let command = world.beside("bare.toml", "prompt = \"Look at !{printf '[%s]' seen {{args}}}.\"\n");
    let out = world.path().join("out3").to_string_lossy().into_owned();
    world
        .call(&["run", &command, "--model", &model, "--out", &out])
        .exits(0);
    let journal = std::fs::read_to_string(Path::new(&out).join("journal.jsonl")).unwrap();
    assert!(journal.contains("Look at [seen]."), "no second word");
    let sub = world.beside(
        "sub.yaml",
        "title: T\ndescription: d\nprompt: p\nsub_recipes:\n  - { name: a, path: ./a.yaml }\n",
    );
    let done = world.call(&["recipe", "check", &sub]).exits(3);
    assert!(
        done.stderr.contains("sub.yaml:5:22") && done.stderr.contains("goose recipe"),
        "{}",
        done.stderr
    );
}
