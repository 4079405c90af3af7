//! What a policy allows is said before the first call, and a denial names the nearest way that is allowed.

use super::harness::{World, calls, says, script, shell, writes};
use serde_json::json;

const POLICY: &str = "
version: 1
extends: [builtin:read-only]
rules:
  - allow: [write_file, replace]
    paths: ['src/**']
  - allow: run_shell_command
    commands: [cargo test, cargo check, git diff]
";

fn journal(world: &World) -> String {
    std::fs::read_to_string(world.out().join("journal.jsonl")).unwrap()
}

/// The system prompt and the names of the declared tools, as they were recorded.
fn equipped(world: &World) -> (String, Vec<String>) {
    for line in journal(world).lines() {
        let line: serde_json::Value = serde_json::from_str(line).unwrap();
        let event = &line["entry"];
        if let Some(tools) = event.pointer("/tools").and_then(serde_json::Value::as_array) {
            let names = tools.iter().map(|tool| tool["name"].as_str().unwrap().to_owned());
            return (event["system"].as_str().unwrap().to_owned(), names.collect());
        }
    }
    panic!("no tools were recorded");
}

#[test]
fn what_is_allowed_stands_in_the_system_prompt() {
    let told = || {
        let world = World::repo(&[("a.txt", "a\n")]);
        world.run(&script(&[says("ok")]), POLICY, &["-p", "x"]).exits(0);
        equipped(&world)
    };
    let (system, tools) = told();
    for line in [
        "commands: cargo test|check, git diff;",
        "writing: src/**\n",
        "network: none\n",
        "do not commit or push",
    ] {
        assert!(system.contains(line), "{line}: {system}");
    }
    assert!(system.len() < 1_200, "{} bytes", system.len());
    assert!(
        tools.contains(&"run_shell_command".to_owned()) && !tools.contains(&"web_fetch".to_owned()),
        "{tools:?}"
    );
    // The place of the policy file is another one each time; the bytes are not.
    assert_eq!((system, tools), told());
}

#[test]
fn a_tool_that_was_not_declared_is_denied_and_not_unknown() {
    let world = World::repo(&[("a.txt", "a\n")]);
    let replies = [calls("web_fetch", json!({"url": "https://example.org/"})), says("no")];
    world.run(&script(&replies), POLICY, &["-p", "x"]);
    assert_eq!(world.result()["denied"][0]["tool"], "web_fetch", "{}", world.result());
}

#[test]
fn a_denial_names_the_nearest_allowed_way() {
    let world = World::repo(&[("a.txt", "a\n")]);
    let replies = [
        shell("git push origin main"),
        shell("cargo publish"),
        shell("cat a.txt"),
        writes("README.md", "x\n"),
        says("I could not."),
    ];
    world.run(&script(&replies), POLICY, &["-p", "x"]);
    let told = journal(&world);
    for text in [
        "the runner makes the patch from the changed files: do not commit, branch or push",
        "commands that may run: cargo test, cargo check",
        "use read_file",
        "places that may be written: src/**",
    ] {
        assert!(told.contains(text), "{text}");
    }
    let policy = world.beside("policy.yaml", POLICY);
    for (command, text) in [
        ("git push", "the runner makes the patch"),
        ("git commit -m x", "the runner makes the patch"),
        ("make all", "commands that may run: cargo, git"),
        ("cargo test > out.txt", "places that may be written: src/**"),
    ] {
        let shown = world.call(&["policy", "explain", &policy, "--command", command]).stdout;
        assert!(shown.contains(text), "{command}: {shown}");
    }
}

#[test]
fn a_dry_run_says_which_tools_are_not_declared() {
    let world = World::repo(&[("a.txt", "a\n")]);
    let policy = world.beside("policy.yaml", POLICY);
    let args = [
        "run",
        "-p",
        "x",
        "--model",
        "gemini/gemini-2.5-pro",
        "--policy",
        &policy,
        "--dry-run",
    ];
    let shown = world.call(&args).exits(0).stdout;
    assert!(
        shown.contains("web_fetch (fetch, not declared: no rule could allow it)"),
        "{shown}"
    );
    assert!(shown.contains("  read_file (read)\n"), "{shown}");
}
