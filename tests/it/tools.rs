//! Every built-in tool through `tools list` and `tools call`: names, aliases, exit codes, fields, and no absolute path in a result.

use super::harness::{Done, World, project};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::path::Path;

const TABLE: &str = include_str!("../../fixtures/tools/calls.json");

const POLICY: &str = "version: 1\nextends: [builtin:edit]\nrules:\n  - { allow: [save_memory, write_todos] }\n  - { allow: \
                      run_shell_command, commands: [echo, cat, 'false'] }\n  - { suspend: write_file, paths: ['held/**'] \
                      }\n  - { deny: '*', paths: ['closed/**'], because: closed for the season }\nsandbox: { level: none }\n";

fn world() -> World {
    let world = World::repo(&[
        ("src/a.rs", "fn one() {\n    1\n}\n"),
        ("src/b.rs", "fn two() {\n    2\n}\n"),
        ("docs/c.md", "one and two\n"),
        ("closed/d.txt", "shut\n"),
        ("ignored.log", "noise\n"),
        (".gitignore", "*.log\n"),
    ]);
    world.file("pic.png", b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR");
    std::os::unix::fs::symlink("nowhere.md", world.ws().join("docs/gone.md")).unwrap();
    world
}

fn call(world: &World, policy: &str, tool: &str, args: &Value) -> Done {
    let args = args.to_string();
    world.call(&[
        "tools", "call", tool, "--args", &args, "--policy", policy, "--format", "json",
    ])
}

/// A case: `tool`, `args`, `code`, and `says`, texts that the result holds.
#[test]
fn every_tool_answers_as_the_table_says() {
    let cases: Vec<Value> = serde_json::from_str(TABLE).unwrap();
    let mut seen: BTreeMap<String, u32> = BTreeMap::new();
    for case in &cases {
        let world = world();
        let policy = world.beside("policy.yaml", POLICY);
        let tool = case["tool"].as_str().unwrap();
        let done = call(&world, &policy, tool, &case["args"]);
        let label = format!("{case}\n{}\n{}", done.stdout, done.stderr);
        let code = case["code"].as_i64().unwrap();
        assert_eq!(i64::from(done.code), code, "{label}");
        let answer = done.json();
        fields(&answer, code, &label);
        if code != 0 {
            let message = answer["error"]["message"].as_str().unwrap();
            assert!(done.stderr.contains(message.lines().next().unwrap()), "{label}");
        }
        for text in case["says"].as_array().unwrap() {
            let text = serde_json::to_string(text).unwrap();
            assert!(done.stdout.contains(text.trim_matches('"')), "{text}: {label}");
        }
        for (path, text) in case["files"].as_object().into_iter().flatten() {
            assert_eq!(world.read(path), text.as_str().unwrap(), "{label}");
        }
        private(&world, &told(answer).to_string(), &label);
        *seen.entry(tool.to_owned()).or_default() += 1;
    }
    let listed = world().call(&["tools", "list", "--format", "json"]).exits(0).json();
    for spec in listed["tools"]
        .as_array()
        .unwrap()
        .iter()
        .filter(|spec| spec["origin"] == "builtin")
    {
        let names = spec["aliases"].as_array().unwrap().iter().chain([&spec["name"]]);
        for name in names {
            assert!(seen.contains_key(name.as_str().unwrap()), "no case calls {name}");
        }
    }
}

fn fields(answer: &Value, code: i64, label: &str) {
    for field in [
        "status", "decision", "rule", "code", "reason", "fix", "argv", "cwd", "ran", "content", "display", "summary",
        "error",
    ] {
        assert!(answer.get(field).is_some(), "{field}: {label}");
    }
    let expected = match code {
        0 => "success",
        5 => "awaiting_approval",
        _ => "error",
    };
    assert_eq!(answer["status"], expected, "{label}");
    assert_eq!(answer["error"].is_null(), code == 0, "{label}");
    match code {
        0 => assert_eq!(answer["decision"], "allow", "{label}"),
        4 => assert_eq!(answer["decision"], "deny", "{label}"),
        5 => assert_eq!(answer["decision"], "suspend", "{label}"),
        _ => {}
    }
}

/// An answer without the rule, its reason and what to write instead, which people are told by the policy file's own path.
fn told(mut answer: Value) -> Value {
    let all = answer.as_object_mut().unwrap();
    all.retain(|name, _| !["rule", "reason", "fix"].contains(&name.as_str()));
    answer
}

/// Nothing in a result names the tree, the home or the host.
fn private(world: &World, text: &str, label: &str) {
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap();
    let top = world.path().to_string_lossy().into_owned();
    assert!(!text.contains(&top), "the tree or the home is named: {label}");
    assert!(
        host.trim().len() < 4 || !text.contains(host.trim()),
        "the host is named: {label}"
    );
}

#[test]
fn a_result_is_the_same_in_another_place_and_at_another_time() {
    let cases: Vec<Value> = serde_json::from_str(TABLE).unwrap();
    for case in cases.iter().filter(|case| case["code"] != 5) {
        let tool = case["tool"].as_str().unwrap();
        let once = || {
            let world = world();
            let policy = world.beside("policy.yaml", POLICY);
            told(call(&world, &policy, tool, &case["args"]).json())
        };
        assert_eq!(once(), once(), "{case}");
    }
}

#[test]
fn arguments_that_do_not_fit_are_told_with_what_would_fit() {
    let world = world();
    let policy = world.beside("policy.yaml", POLICY);
    for (tool, args, word) in [
        ("read_file", json!({}), "file_path"),
        ("read_file", json!({ "file_path": 3 }), "file_path"),
        (
            "read_file",
            json!({ "file_path": "src/a.rs", "star_line": 2 }),
            "start_line",
        ),
        ("raed_file", json!({ "file_path": "src/a.rs" }), "read_file"),
        ("grep_search", json!({ "pattern": "(" }), "pattern"),
        (
            "write_todos",
            json!({ "todos": [{ "description": "x", "status": "someday" }] }),
            "someday",
        ),
    ] {
        let done = call(&world, &policy, tool, &args).exits(1);
        assert!(done.stderr.contains(word), "{tool} {args}: {}", done.stderr);
    }
    let broken = world.call(&["tools", "call", "read_file", "--args", "{", "--policy", &policy]);
    assert_eq!(broken.code, 2, "{}", broken.stderr);
}

#[test]
fn a_rewritten_call_is_ruled_on_again_as_in_a_run() {
    let world = World::repo(&[("open.txt", "open\n"), ("also.txt", "also\n"), ("closed.txt", "hush\n")]);
    for (path, code, word) in [("also.txt", 0, "also"), ("closed.txt", 4, "no_rule")] {
        let policy = world.beside(
            "policy.yaml",
            format!(
                "version: 1\nrules:\n  - {{ allow: read_file, paths: [open.txt, also.txt] }}\n  - modify: read_file\n    \
                 pipe: \"echo '{{\\\"path\\\": \\\"{path}\\\"}}'\"\nsandbox: {{ level: none }}\n"
            ),
        );
        let done = call(&world, &policy, "read_file", &json!({ "file_path": "open.txt" })).exits(code);
        assert!(done.stdout.contains(word), "{path}: {}", done.stdout);
        assert!(!done.stdout.contains("hush"), "{}", done.stdout);
    }
    let policy = world.beside(
        "policy.yaml",
        "version: 1\nextends: [builtin:edit]\nrules:\n  - { modify: write_file, paths: ['**'], pipe: 'false' }\nsandbox: { level: none }\n",
    );
    let args = json!({ "file_path": "open.txt", "content": "new\n" });
    let done = call(&world, &policy, "write_file", &args).exits(4).json();
    assert_eq!(done["code"], "modify_failed", "{done}");
    assert_eq!(world.read("open.txt"), "open\n");
}

/// NUL bytes and bytes that are not UTF-8 would have to be replaced by other characters.
#[test]
fn what_a_rewriting_program_prints_is_written_as_it_is_or_not_at_all() {
    let world = World::repo(&[("open.txt", "open\n")]);
    let with = |pipe: &str| {
        let rule = json!({ "modify": "write_file", "paths": ["**"], "pipe": pipe });
        let policy = format!("version: 1\nextends: [builtin:edit]\nrules:\n  - {rule}\nsandbox: {{ level: none }}\n");
        let args = json!({ "file_path": "open.txt", "content": "new\n" });
        call(&world, &world.beside("policy.yaml", policy), "write_file", &args)
    };
    for (pipe, why) in [
        (r"printf 'x\377'", "not text"),
        (r"printf 'x\000'", "not text"),
        // A program that fails in a pipe, or that prints nothing, must not empty the file.
        ("false | cat", "exit code 1"),
        ("false | cat | head -n 1", "exit code 1"),
        ("(exit 3) | yes | head -n 2", "exit code 3"),
        ("exit 141", "exit code 141"),
        ("true", "printed nothing"),
    ] {
        let done = with(pipe).exits(4).json();
        assert_eq!(done["code"], "modify_failed", "{done}");
        assert!(done["reason"].as_str().unwrap().contains(why), "{done}");
        assert_eq!(world.read("open.txt"), "open\n");
    }
    with("cat | cat").exits(0);
    assert_eq!(world.read("open.txt"), "new\n");
    // The first one is ended because the second has all that it wants.
    for pipe in [
        "yes | head -n 2",
        "set -eu; yes | cat | head -n 2",
        "yes | head -n 2 && true",
    ] {
        with(pipe).exits(0);
        assert_eq!(world.read("open.txt"), "y\ny\n", "{pipe}");
    }
    with(r"printf '\303\251\357\277\275'").exits(0);
    assert_eq!(world.read("open.txt"), "é\u{fffd}");
}

#[test]
fn a_discovered_tool_that_takes_content_is_rewritten_as_itself() {
    let world = World::repo(&[("a.txt", "one\n")]);
    world.beside(
        "tools.sh",
        "case $1 in\n  list) echo '[{\"name\":\"note\"}]';;\n  call) cat;;\nesac\n",
    );
    let recipe = world.beside(
        "recipe.yaml",
        "version: 1\nname: r\nfiles: [tools.sh]\ntools:\n  discovery:\n    command: bash \"$OVERNIGHT_RECIPE_DIR/tools.sh\" list\n    \
         call: bash \"$OVERNIGHT_RECIPE_DIR/tools.sh\" call\nsteps: [{ id: a, prompt: go }]\n",
    );
    let policy = world.beside(
        "policy.yaml",
        "version: 1\nrules:\n  - { allow: note }\n  - { modify: note, pipe: sed s/bad/good/ }\nsandbox: { level: none }\n",
    );
    let args = json!({ "content": "bad", "file_path": "a.txt" }).to_string();
    let done = world
        .call(&[
            "tools", "call", "note", "--args", &args, "--recipe", &recipe, "--policy", &policy,
        ])
        .exits(0);
    assert!(done.stdout.contains("good"), "{}", done.stdout);
    assert_eq!(world.read("a.txt"), "one\n");
}

#[test]
fn what_a_tool_finds_is_judged_by_the_rules_of_that_tool() {
    let world = World::repo(&[("private/p.txt", "hush\n"), ("docs/d.txt", "open\n")]);
    let all = json!({ "include": ["**/*.txt"] });
    let named = json!({ "include": ["private/p.txt", "docs/*.txt"] });
    let found = json!({ "pattern": "**/p.txt" });
    // Rules, the tool and its arguments, what the result has, and what it must not have.
    for (rules, tool, args, has, lacks) in [
        (
            "  - { deny: [read_file, read_many_files], paths: ['private/**'] }\n  - { allow: [read_many_files, glob] }\n",
            "read_many_files",
            &all,
            "1 file withheld",
            "hush",
        ),
        (
            "  - { allow: grep_search }\n  - { allow: read_many_files, paths: ['**'], except: ['private/**'] }\n",
            "read_many_files",
            &all,
            "open",
            "hush",
        ),
        (
            "  - { allow: [read_file, read_many_files] }\n",
            "read_many_files",
            &named,
            "open",
            "withheld",
        ),
        (
            "  - { deny: glob, paths: ['private/**'] }\n  - { allow: [read_many_files, glob] }\n",
            "glob",
            &found,
            "1 file withheld",
            "private",
        ),
    ] {
        let policy = world.beside("rules.yaml", format!("version: 1\nrules:\n{rules}"));
        let done = call(&world, &policy, tool, args).exits(0);
        let content = done.json()["content"].to_string();
        assert!(content.contains(has) && !content.contains(lacks), "{rules}: {content}");
    }
    // A call that finds only such files says why nothing is there.
    let policy = world.beside(
        "rules.yaml",
        "version: 1\nrules:\n  - { deny: read_many_files, paths: ['private/**'] }\n  - { allow: read_many_files }\n",
    );
    let done = call(&world, &policy, "read_many_files", &json!({ "include": ["**/p.txt"] })).exits(1);
    assert!(
        done.stderr.contains("1 file withheld by the policy") && !done.stderr.contains("ignored"),
        "{}",
        done.stderr
    );
}

const COMPARED: &str = include_str!("../../src/tools/compared.md");

fn code(dir: &Path, out: &mut String) {
    for entry in std::fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            code(&path, out);
        } else if path.extension().is_some_and(|end| end == "rs") {
            *out += &std::fs::read_to_string(&path).unwrap();
        }
    }
}

/// Whether a function of this name is run as a test.
fn is_test(all: &str, name: &str) -> bool {
    all.match_indices(&format!("fn {name}(")).any(|(at, _)| {
        // Attributes stand right above, one a line.
        let line = all[..at].rfind('\n').unwrap_or(0);
        let above = all[..line].lines().rev().take(8);
        let mut attributes = above.take_while(|line| !line.trim().is_empty() && line.trim() != "}");
        attributes.any(|line| line.contains("#[test]") || line.contains("#[tokio::test"))
    })
}

#[test]
fn every_row_of_the_comparison_is_closed_and_its_tests_are_there() {
    let mut all = String::new();
    for room in ["src", "tests/it"] {
        code(&project().join(room), &mut all);
    }
    let rows = COMPARED
        .lines()
        .filter(|line| line.starts_with("| ") && !line.starts_with("| ---"));
    let rows: Vec<Vec<&str>> = rows
        .map(|row| row.trim_matches('|').split(" | ").map(str::trim).collect())
        .collect();
    assert!(rows.len() > 40, "{}", rows.len());
    let mut missing = Vec::new();
    for row in rows.iter().filter(|row| row.last() != Some(&"shown by")) {
        assert!(row.len() == 4 && row.iter().all(|cell| !cell.is_empty()), "{row:?}");
        let tests: Vec<&str> = row[3].split('`').skip(1).step_by(2).collect();
        assert!(!tests.is_empty(), "{row:?}");
        missing.extend(tests.into_iter().filter(|test| !is_test(&all, test)));
    }
    assert!(missing.is_empty(), "no such tests: {missing:?}");
    let listed = world().call(&["tools", "list", "--format", "json"]).exits(0).json();
    for spec in listed["tools"].as_array().unwrap() {
        let name = spec["name"].as_str().unwrap();
        assert!(COMPARED.contains(&format!("`{name}`")), "{name} is not compared");
    }
}

#[test]
fn a_program_that_is_denied_at_its_exec_is_no_allowed_call() {
    let world = World::repo(&[(".env", "key\n"), ("a.txt", "one\n")]);
    let rules = "version: 1\nrules:\n  - { allow: run_shell_command, commands: [cat, head] }\n  - { deny: \
                 run_shell_command, commands: [head -c] }\n";
    let policy = world.beside("policy.yaml", rules);
    let answer = call(
        &world,
        &policy,
        "run_shell_command",
        &json!({ "command": "x=.env; cat $x" }),
    );
    if answer.code == 0 {
        // Level `full` withholds its content instead.
        let text = answer.stdout;
        assert!(
            text.contains("[the sandbox withheld the secret content of a file: .env"),
            "{text}"
        );
        assert!(!text.contains("key\\n"), "{text}");
    } else {
        assert_eq!(answer.exits(4).json()["code"], "exec_denied");
    }
    let command = "cat a.txt; n=-c; head $n 2 a.txt";
    let answer = call(&world, &policy, "run_shell_command", &json!({ "command": command }));
    let answer = answer.exits(4).json();
    fields(&answer, 4, command);
    assert_eq!(answer["argv"], json!(["head", "-c", "2", "a.txt"]), "{answer}");
    assert_eq!(answer["cwd"], ".", "{answer}");
    assert_eq!(
        answer["ran"],
        json!([{ "argv": ["cat", "a.txt"], "cwd": "." }]),
        "{answer}"
    );
    assert_eq!(answer["code"], "exec_denied", "{answer}");
    assert!(answer["rule"].as_str().unwrap().ends_with("/policy.yaml:4"), "{answer}");
    let message = answer["error"]["message"].as_str().unwrap();
    assert!(
        message.contains("by rule `") && message.contains("policy.yaml:4`"),
        "{message}"
    );
    private(&world, &told(answer.clone()).to_string(), command);
}

#[test]
fn the_policy_of_the_variable_is_that_of_the_flag() {
    let args = json!({ "file_path": "new.txt", "content": "x\n" }).to_string();
    let args = ["tools", "call", "write_file", "--args", &args];
    world().call(&args).exits(4);
    world().env("OVERNIGHT_POLICY", "builtin:edit").call(&args).exits(0);
}
