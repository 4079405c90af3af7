//! `policy import`: the converted policy decides as the original engine or more strictly, and each difference is told.

use super::harness::{World, project};
use serde_json::Value;
use std::path::PathBuf;

fn fixtures() -> Vec<PathBuf> {
    let dir = project().join("fixtures/policy/gemini");
    let mut found: Vec<PathBuf> = std::fs::read_dir(dir)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|end| end == "toml"))
        .collect();
    found.sort();
    assert!(found.len() >= 15, "{found:?}");
    found
}

fn strictness(decision: &str) -> u8 {
    match decision {
        "allow" | "modify" | "at_exec" => 0,
        "suspend" | "ask_user" => 1,
        "deny" => 2,
        other => panic!("no decision: {other}"),
    }
}

#[test]
fn never_wider_than_the_original_engine() {
    for path in fixtures() {
        let world = World::repo(&[("src/a.rs", "a\n"), ("secret/a", "s\n"), ("docs/a.md", "a\n")]);
        let name = path.file_stem().unwrap().to_string_lossy().into_owned();
        let imported = world.call(&["policy", "import", &path.to_string_lossy()]);
        assert_eq!(imported.code, 0, "{name}: {}", imported.stderr);
        let policy = world.beside("policy.yaml", &imported.stdout);
        let checked = world.call(&["policy", "check", &policy]);
        assert_eq!(checked.code, 0, "{name}: {}\n{}", checked.stderr, imported.stdout);
        let table = std::fs::read_to_string(path.with_extension("jsonl")).unwrap();
        let calls = world.beside("calls.jsonl", &table);
        let ruled = world.call(&["policy", "explain", &policy, "--calls", &calls]);
        assert_eq!(ruled.code, 0, "{name}: {}", ruled.stderr);
        assert_eq!(ruled.stdout.lines().count(), table.lines().count(), "{name}");
        let mut narrower = 0;
        for (call, ruling) in table.lines().zip(ruled.stdout.lines()) {
            let call: Value = serde_json::from_str(call).unwrap();
            let ruling: Value = serde_json::from_str(ruling).unwrap();
            let decision = ruling["decision"].as_str().unwrap_or_default();
            let original = call["original"].as_str().unwrap();
            assert!(
                strictness(decision) >= strictness(original),
                "{name}: wider: {call} is `{decision}`\n{}",
                imported.stdout
            );
            assert_eq!(call["here"], decision, "{name}: {call}: {ruling}");
            if strictness(decision) > strictness(original) {
                assert!(
                    call["why"].is_string(),
                    "{name}: nobody says why this is narrower: {call}"
                );
                narrower += 1;
            }
        }
        let told = imported
            .stderr
            .lines()
            .filter(|line| line.contains("narrower["))
            .count();
        assert!(narrower == 0 || told > 0, "{name}: {}", imported.stderr);
    }
}

#[test]
fn an_outranked_denial_is_told_with_its_line() {
    let world = World::new();
    let file = project().join("fixtures/policy/gemini/allow-outranks-deny.toml");
    let told = world.call(&["policy", "import", &file.to_string_lossy()]).stderr;
    let line = told.lines().find(|line| line.contains("narrower[outranked]")).unwrap();
    assert!(line.contains("allow-outranks-deny.toml:8:1: "), "{line}");
    assert!(line.contains("line 2 "), "{line}");
    let json = world.call(&["policy", "import", "--format", "json", &file.to_string_lossy()]);
    let object: Value = serde_json::from_str(&json.stdout).unwrap();
    assert!(object["policy"].as_str().unwrap().contains("version: 1"));
    let outranked = object["report"]
        .as_array()
        .unwrap()
        .iter()
        .find(|one| one["code"] == "outranked");
    assert_eq!(outranked.unwrap()["line"], 8);
    assert_eq!(json.stderr, "");
}

#[test]
fn modes_are_chosen() {
    let world = World::new();
    let file = world.beside(
        "p.toml",
        "[[rule]]\ntoolName = \"write_file\"\ndecision = \"allow\"\npriority = 1\nmodes = [\"autoEdit\"]\n",
    );
    let policy = |mode: &str| world.call(&["policy", "import", "--mode", mode, &file]).stdout;
    assert!(!policy("default").contains("write_file"), "{}", policy("default"));
    for edits in ["write_file", "replace", "web_fetch"] {
        assert!(policy("auto_edit").contains(edits), "{edits}: {}", policy("auto_edit"));
    }
}

#[test]
fn invalid_files_name_every_problem() {
    let world = World::new();
    let file = world.beside(
        "p.toml",
        "[[rule]]\ntoolName = \"read_file\"\ndecision = \"alow\"\npriority = 1000\n\n[[rule]]\ncommandPrefix = \"ls\"\ndecision = \"deny\"\npriority = 1\n",
    );
    let done = world.call(&["policy", "import", &file]);
    assert_eq!((done.code, done.stdout.as_str()), (3, ""));
    for place in ["p.toml:3:12: error", "p.toml:4:12: error", "p.toml:7:1: error"] {
        assert!(done.stderr.contains(place), "{place}: {}", done.stderr);
    }
    assert_eq!(world.call(&["policy", "import", "none.toml"]).code, 3);
}

/// A file under the wrong flag is called by its name, with the place where it belongs.
#[test]
fn files_of_another_kind_are_recognised() {
    let world = World::repo(&[("a", "a\n")]);
    let goose = world.beside("goose.yaml", "version: 1.0.0\ntitle: x\ndescription: y\nprompt: z\n");
    let recipe = world.beside(
        "recipe.yaml",
        "version: 1\nname: x\nsteps:\n  - { id: a, prompt: hello }\n",
    );
    let policy = world.beside("policy.yaml", "version: 1\nextends: [builtin:read-only]\n");
    let gemini = world.beside(
        "gemini.toml",
        "[[rule]]\ntoolName = \"*\"\ndecision = \"deny\"\npriority = 1\n",
    );
    let settings = world.beside("settings.json", "{\"tools\": {\"core\": []}, \"mcpServers\": {}}");
    let servers = world.beside(".mcp.json", "{\"mcpServers\": {}}");
    let skill = world.beside("SKILL.md", "---\nname: x\ndescription: y\n---\nDo.\n");
    let manifest = world.beside("many.yaml", "version: 1\nname: x\nrecipe: a\ntargets: [{ path: . }]\n");
    for (file, what, help) in [
        (&goose, "a goose recipe", "overnight run"),
        (&recipe, "a recipe", "overnight run"),
        (&gemini, "a policy of Gemini CLI", "policy import"),
        (&settings, "a settings.json of Gemini CLI", "tools: { settings"),
        (&servers, "a list of MCP servers", "tools: { settings"),
        (&skill, "an Agent Skill", "skills: ["),
        (&manifest, "a manifest of many jobs", "overnight batch"),
    ] {
        let done = world.call(&["policy", "check", file]);
        assert_eq!(done.code, 3, "{file}");
        let said = format!(":1:1: error[wrong-kind]: this is {what}");
        assert!(
            done.stderr.contains(&said) && done.stderr.contains(help),
            "{file}: {}",
            done.stderr
        );
        assert_eq!(done.stderr.matches("error[").count(), 1, "{file}: {}", done.stderr);
    }
    for (file, what) in [(&goose, "a goose recipe"), (&recipe, "a recipe"), (&policy, "a policy")] {
        let done = world.call(&["batch", file, "--dry-run"]);
        assert_eq!(done.code, 3, "{file}");
        let said = format!(":1:1: error[wrong-kind]: this is {what}, not a manifest of many jobs");
        assert!(done.stderr.contains(&said), "{file}: {}", done.stderr);
    }
    for (file, what) in [
        (&policy, "a policy"),
        (&gemini, "a policy of Gemini CLI"),
        (&settings, "a settings.json of Gemini CLI"),
        (&skill, "an Agent Skill"),
        (&manifest, "a manifest of many jobs"),
    ] {
        let done = world.call(&["run", file, "--model", "script:none"]);
        assert_eq!(done.code, 3, "{file}");
        assert!(
            done.stderr.contains(&format!("this is {what}")),
            "{file}: {}",
            done.stderr
        );
    }
    for (file, what) in [
        (&goose, "a goose recipe"),
        (&policy, "a policy"),
        (&settings, "a settings.json"),
    ] {
        let done = world.call(&["policy", "import", file]);
        assert_eq!(done.code, 3, "{file}");
        assert!(
            done.stderr.contains(&format!("this is {what}")),
            "{file}: {}",
            done.stderr
        );
    }
}
