//! What a ruling does to a run: denied, suspended and resumed, rewritten, and calls that never come to a ruling.

use super::harness::{Done, World, calls, open_policy, says, script, shell, writes};
use super::layering::{all, is_test, without_tests};
use overnight::base::grant::NOT_RESTORED;
use overnight::policy::codes;
use serde_json::{Value, json};
use std::collections::BTreeSet;

const ASK: &str = "\
version: 1
extends: [builtin:edit]
rules:
  - { suspend: write_file, id: ask, because: a person looks at it }
sandbox: { level: none }
";

fn resumed(world: &World, more: &[&str]) -> Done {
    let out = world.out().to_string_lossy().into_owned();
    let mut args = vec!["resume", &out];
    args.extend(more);
    let mut command = world.command(&args);
    // Nothing of where the run was started is needed.
    command.current_dir(world.path());
    Done::of(command.output().unwrap())
}

fn replies() -> String {
    let two = json!({"calls": [
        {"tool": "read_file", "args": {"file_path": "a.txt"}},
        {"tool": "write_file", "args": {"file_path": "a.txt", "content": "two\n"}},
        {"tool": "read_file", "args": {"file_path": "b.txt"}},
    ]});
    script(&[two, says("done")])
}

#[test]
fn a_denied_call_is_told_and_checks_decide() {
    let recipe = "version: 1\nname: r\nsteps: [{ id: one, prompt: go, checks: [{ name: ok, run: test -f b.txt }] }]\n";
    let world = World::repo(&[("a.txt", "one\n")]);
    let other_way = json!({"calls": [{"tool": "write_file", "args": {"file_path": "b.txt", "content": "b\n"}}],
        "expect": "Denied (no_rule)"});
    let script_text = script(&[shell("touch b.txt"), other_way, says("done")]);
    let done = world.recipe(recipe, &script_text, &open_policy(&[]), &[]);
    assert_eq!(done.code, 0, "{}", done.stderr);
    let result = world.result();
    let denied = result["denied"].as_array().unwrap();
    assert_eq!(denied.len(), 1, "every denial is listed");
    for key in ["call", "tool", "code", "reason"] {
        assert!(
            denied[0][key].as_str().is_some_and(|text| !text.is_empty()),
            "{key}: {denied:?}"
        );
    }
    let junit = std::fs::read_to_string(world.out().join("junit.xml")).unwrap();
    assert!(
        junit.contains("name=\"denied.c1\"") && !junit.contains("policy.denied"),
        "{junit}"
    );
}

#[test]
fn a_denied_read_is_listed_and_ends_nothing() {
    let world = World::repo(&[("a.txt", "one\n"), (".env", "x=1\n")]);
    let replies = [
        calls("read_file", json!({"file_path": ".env"})),
        says("could not read it"),
    ];
    world.run(&script(&replies), &open_policy(&[]), &["-p", "x"]).exits(0);
    assert_eq!(world.result()["denied"][0]["tool"], "read_file");
}

#[test]
fn on_deny_stop_ends_at_the_first() {
    let recipe = "version: 1\nname: r\non_deny: stop\nsteps: [{ id: one, prompt: go }]\n";
    let world = World::repo(&[("a.txt", "one\n")]);
    let both = json!({"calls": [
        {"tool": "run_shell_command", "args": {"command": "rm a.txt"}},
        {"tool": "write_file", "args": {"file_path": "b.txt", "content": "b"}},
    ]});
    let done = world
        .recipe(recipe, &script(&[both, says("done")]), &open_policy(&[]), &["--quiet"])
        .exits(4);
    assert!(done.stderr.contains("`overnight policy suggest "), "{}", done.stderr);
    assert!(!world.ws().join("b.txt").exists());
    assert_eq!(world.result()["usage"]["turns"], 1);
}

#[test]
fn nothing_of_a_command_with_a_denied_part_runs() {
    for command in [
        "git status && rm -rf x",
        "git log; touch x",
        "git status $(touch x)",
        "git status `touch x`",
        "git status\ntouch x",
        "git status |& tee x",
        "env x=1 touch x",
        "git status | xargs touch x",
        "git status > x",
        "git() { touch x; }; git status",
    ] {
        let world = World::repo(&[("a.txt", "one\n")]);
        let policy = "version: 1\nextends: [builtin:read-only]\nrules:\n  \
            - { allow: run_shell_command, commands: [git status, git log] }\nsandbox: { level: none }\n";
        world
            .run(&script(&[shell(command), says("no")]), policy, &["-p", "x"])
            .exits(4);
        assert!(!world.ws().join("x").exists(), "{command}");
    }
}

#[test]
fn a_suspended_run_goes_on_when_approved() {
    let world = World::repo(&[("a.txt", "one\n"), ("b.txt", "b\n")]);
    let done = world.run(&replies(), ASK, &["-p", "x", "--format", "json"]).exits(5);
    let object = done.json();
    let waiting = &object["suspended"][0];
    assert_eq!(
        (&waiting["tool"], &waiting["rule"]),
        (&json!("write_file"), &json!("ask"))
    );
    assert_eq!(waiting["args"]["content"], "two\n");
    assert!(waiting["reason"].as_str().unwrap().contains("a person looks at it"));
    assert_eq!(world.read("a.txt"), "one\n");
    let call = waiting["call"].as_str().unwrap().to_owned();

    resumed(&world, &["--approve", "c99"]).exits(2);
    resumed(&world, &[]).exits(5);
    let object = resumed(&world, &["--approve", &call, "--format", "json"])
        .exits(0)
        .json();
    assert_eq!(
        (&object["verdict"], &object["response"]),
        (&json!("passed"), &json!("done"))
    );
    assert_eq!(world.read("a.txt"), "two\n");
    assert!(world.out().join("changes.patch").is_file());

    let again = resumed(&world, &["--format", "json"]).exits(0).json();
    assert_eq!(again["response"], "done", "a finished run tells its result again");
    resumed(&world, &["--approve", &call]).exits(2);
}

#[test]
fn a_refused_call_is_told_to_the_model() {
    let world = World::repo(&[("a.txt", "one\n"), ("b.txt", "b\n")]);
    let done = world.run(&replies(), ASK, &["-p", "x", "--format", "json"]).exits(5);
    let call = done.json()["suspended"][0]["call"].as_str().unwrap().to_owned();
    resumed(&world, &["--deny", &call]).exits(4);
    assert_eq!(world.read("a.txt"), "one\n");
    assert_eq!(world.result()["denied"][0]["call"], call);
    let journal = std::fs::read_to_string(world.out().join("journal.jsonl")).unwrap();
    assert!(journal.contains("a reviewer refused this call"));
    assert_eq!(world.result()["usage"]["turns"], 2);
}

#[test]
fn a_suspended_run_goes_on_in_another_clone() {
    let first = World::repo(&[("a.txt", "one\n"), ("b.txt", "b\n")]);
    let edit_then_wait = script(&[
        calls(
            "replace",
            json!({"file_path": "b.txt", "old_string": "b", "new_string": "B", "instruction": "x"}),
        ),
        writes("a.txt", "two\n"),
        says("done"),
    ]);
    let done = first
        .run(&edit_then_wait, ASK, &["-p", "x", "--format", "json"])
        .exits(5);
    assert_eq!(done.json()["suspended"][0]["tool"], "write_file");

    let second = World::new();
    let clone = second.path().join("clone").to_string_lossy().into_owned();
    super::harness::git_in(&first.ws(), &["clone", "-q", "--no-hardlinks", ".", &clone]);
    let moved = second.path().join("run").to_string_lossy().into_owned();
    let copied = std::process::Command::new("cp")
        .args(["-a", &first.out().to_string_lossy(), &moved])
        .status()
        .unwrap();
    assert!(copied.success());
    let kept = second.beside("script.yaml", &edit_then_wait);
    let policy = second.beside("policy.yaml", ASK);
    let call = first.result()["suspended"][0]["approve"]
        .as_str()
        .unwrap()
        .rsplit_once(' ')
        .unwrap()
        .1
        .to_owned();
    drop(first);

    let model = format!("script:{kept}");
    let args = [
        "resume",
        &moved,
        "--workspace",
        &clone,
        "--approve",
        &call,
        "--model",
        &model,
        "--policy",
        &policy,
    ];
    second.call(&args).exits(0);
    let read = |name: &str| std::fs::read_to_string(second.path().join("clone").join(name)).unwrap();
    assert_eq!((read("a.txt").as_str(), read("b.txt").as_str()), ("two\n", "B\n"));
    let patch = std::fs::read_to_string(second.path().join("run/changes.patch")).unwrap();
    assert!(patch.contains("b/a.txt") && patch.contains("b/b.txt"), "{patch}");
}

#[test]
fn a_tree_that_somebody_changed_meanwhile_is_refused() {
    let world = World::repo(&[("a.txt", "one\n"), ("b.txt", "b\n")]);
    let edit_then_wait = script(&[
        calls(
            "replace",
            json!({"file_path": "b.txt", "old_string": "b", "new_string": "B", "instruction": "x"}),
        ),
        writes("a.txt", "two\n"),
        says("done"),
    ]);
    let done = world
        .run(&edit_then_wait, ASK, &["-p", "x", "--format", "json"])
        .exits(5);
    let call = done.json()["suspended"][0]["call"].as_str().unwrap().to_owned();
    world.file("c.txt", "somebody else\n");
    resumed(&world, &["--approve", &call]).exits(8);
    assert_eq!(world.read("a.txt"), "one\n");
    std::fs::remove_file(world.ws().join("c.txt")).unwrap();
    resumed(&world, &["--approve", &call]).exits(0);
}

#[test]
fn a_modify_rule_rewrites_what_is_written() {
    let policy = "\
version: 1
extends: [builtin:edit]
rules:
  - { modify: [write_file, replace], paths: ['**/*.txt'], pipe: sed s/bad/good/ }
sandbox: { level: none }
";
    let world = World::repo(&[("a.txt", "one\n")]);
    let edit = calls(
        "replace",
        json!({"file_path": "a.txt", "old_string": "one", "new_string": "a bad one", "instruction": "x"}),
    );
    let replies = [
        writes("b.txt", "bad\n"),
        writes("b.md", "bad\n"),
        writes("empty.txt", ""),
        edit,
        says("done"),
    ];
    world.run(&script(&replies), policy, &["-p", "x"]).exits(0);
    assert_eq!(world.read("empty.txt"), "");
    assert_eq!(world.read("b.txt"), "good\n");
    assert_eq!(world.read("b.md"), "bad\n");
    assert_eq!(world.read("a.txt"), "a good one\n");
    let journal = std::fs::read_to_string(world.out().join("journal.jsonl")).unwrap();
    assert!(
        journal.contains("bad\\n") && journal.contains("good\\n"),
        "both argument sets are recorded"
    );
}

#[test]
fn a_rewritten_call_uses_a_rule_once() {
    let policy = |times: u32| {
        format!(
            "version: 1\nrules:\n  - {{ allow: write_file, paths: ['*.txt'], times: {times} }}\n\
             \x20 - {{ modify: write_file, paths: ['**'], pipe: cat }}\nsandbox: {{ level: none }}\n"
        )
    };
    let replies = script(&[writes("b.txt", "b\n"), writes("c.txt", "c\n"), says("done")]);
    for (times, code) in [(2, 0), (1, 4)] {
        let world = World::repo(&[("a.txt", "one\n")]);
        world.run(&replies, &policy(times), &["-p", "x"]).exits(code);
        assert_eq!(world.read("b.txt"), "b\n");
        assert_eq!(world.ws().join("c.txt").exists(), times == 2);
    }
}

#[test]
fn a_rewritten_edit_goes_on_after_its_approval() {
    let policy = "version: 1\nextends: [builtin:edit]\nrules:\n  - { modify: replace, paths: ['**'], pipe: cat }\n\
                  \x20 - { suspend: replace, paths: ['**'] }\nsandbox: { level: none }\n";
    let world = World::repo(&[("a.txt", "one\n")]);
    let edit = calls(
        "replace",
        json!({"file_path": "a.txt", "old_string": "one", "new_string": "two", "instruction": "x"}),
    );
    world.run(&script(&[edit, says("done")]), policy, &["-p", "x"]).exits(5);
    let out = world.out().to_string_lossy().into_owned();
    world.call(&["resume", &out, "--approve", "c1"]).exits(0);
    assert_eq!(world.read("a.txt"), "two\n");
}

#[test]
fn a_rewriting_program_that_fails_writes_nothing() {
    let policy = "\
version: 1
extends: [builtin:edit]
rules:
  - { modify: write_file, paths: ['**'], pipe: 'false' }
sandbox: { level: none }
";
    let world = World::repo(&[("a.txt", "one\n")]);
    world
        .run(&script(&[writes("b.txt", "x\n"), says("done")]), policy, &["-p", "x"])
        .exits(4);
    assert!(!world.ws().join("b.txt").exists());
}

#[test]
fn a_file_that_holds_a_secret_is_not_rewritten() {
    let secret = "sentinel-0123456789abcdef";
    let policy = "version: 1\nextends: [builtin:edit]\nrules:\n  - { modify: replace, paths: ['**'], pipe: sed s/bad/good/ }\n\
                  sandbox: { level: none }\n";
    let before = format!("key={secret}\none\n");
    let world = World::repo(&[("a.txt", &before)]).env("OVER_TOKEN", secret);
    let edit = calls(
        "replace",
        json!({"file_path": "a.txt", "old_string": "one", "new_string": "a bad one", "instruction": "x"}),
    );
    world.run(&script(&[edit, says("done")]), policy, &["-p", "x"]).exits(4);
    let denied = &world.result()["denied"][0];
    assert_eq!(denied["code"], "secret_hit", "{denied}");
    assert!(
        denied["rule"]
            .as_str()
            .is_some_and(|rule| rule.contains("policy.yaml:4")),
        "{denied}"
    );
    assert_eq!(world.read("a.txt"), before, "no redacted text is written in its place");
    no_file_has(&world.out(), secret);
}

#[test]
fn a_call_with_a_secret_behind_one_that_waits_is_denied_after_the_resume() {
    let secret = "sentinel-0123456789abcdef";
    let policy = "version: 1\nextends: [builtin:edit]\nrules:\n  - { suspend: write_file, paths: [held.txt] }\n\
                  sandbox: { level: none }\n";
    let world = World::repo(&[("a.txt", "one\n")]).env("OVER_TOKEN", secret);
    let both = json!({"calls": [
        {"tool": "write_file", "args": {"file_path": "held.txt", "content": "x\n"}},
        {"tool": "write_file", "args": {"file_path": "b.txt", "content": format!("key={secret}\n")}},
    ]});
    world.run(&script(&[both, says("done")]), policy, &["-p", "x"]).exits(5);
    resumed(&world, &["--approve", "c1"]).exits(4);
    assert_eq!(world.read("held.txt"), "x\n");
    assert!(
        !world.ws().join("b.txt").exists(),
        "no redacted text is written in its place"
    );
    assert_eq!(world.result()["denied"][0]["code"], "secret_hit");
    no_file_has(&world.out(), secret);
}

#[test]
fn an_unknown_tool_and_bad_arguments_are_errors_not_denials() {
    let world = World::repo(&[("a.txt", "one\n")]);
    let mut after = calls("read_file", json!({"path": 7}));
    after["expect"] = json!("error");
    let replies = [
        calls("teleport", json!({})),
        after,
        calls("read_file", json!({"file_path": "not-there.txt"})),
        calls("write_file", Value::String("not an object".to_owned())),
        says("done"),
    ];
    let replies: Vec<Value> = replies
        .into_iter()
        .enumerate()
        .filter(|(n, _)| *n != 3)
        .map(|(_, reply)| reply)
        .collect();
    world.run(&script(&replies), &open_policy(&[]), &["-p", "x"]).exits(0);
    let result = world.result();
    assert_eq!((&result["denied"], &result["usage"]["turns"]), (&json!([]), &json!(4)));
}

#[test]
fn a_secret_in_a_call_ends_4_and_is_in_no_file() {
    let secret = "sentinel-0123456789abcdef";
    for text in [secret.to_owned(), secret.chars().rev().collect()] {
        let world = World::repo(&[("a.txt", "one\n")]).env("OVER_TOKEN", secret);
        let replies = [writes("b.txt", &format!("key={text}\n")), says("done")];
        let done = world
            .run(
                &script(&replies),
                &open_policy(&[]),
                &["-p", "x", "--format", "stream-json", "-v"],
            )
            .exits(4);
        assert_eq!(world.result()["denied"][0]["code"], "secret_hit");
        assert!(!world.ws().join("b.txt").exists());
        assert!(!done.stdout.contains(&text) && !done.stderr.contains(&text));
        no_file_has(&world.out(), &text);
    }
}

#[test]
fn a_secret_that_a_tool_prints_is_in_no_file_and_no_stream() {
    let secret = "sentinel-0123456789abcdef";
    let world = World::repo(&[("a.txt", "one\n"), ("leak.txt", secret)]).env("OVER_API_KEY", secret);
    let policy = open_policy(&["printenv", "cat", "base64"]);
    let told = json!({"text": format!("the key is {secret}")});
    let replies = [
        shell("printenv; cat leak.txt; base64 leak.txt; cat /proc/self/environ"),
        told,
    ];
    let done = world.run(
        &script(&replies),
        &policy,
        &["-p", "x", "--format", "stream-json", "-v"],
    );
    assert!(matches!(done.code, 0 | 4), "{}", done.stderr);
    for text in [secret, "c2VudGluZWwtMDEyMzQ1Njc4OWFiY2RlZg"] {
        assert!(!done.stdout.contains(text) && !done.stderr.contains(text));
        no_file_has(&world.out(), text);
    }
}

fn no_file_has(dir: &std::path::Path, text: &str) {
    for entry in std::fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        // The run's own object directory holds the tree as it is, and the tree had the secret before.
        if path.is_dir() && path.file_name().is_some_and(|name| name == "git") {
            continue;
        }
        if path.is_dir() {
            no_file_has(&path, text);
        } else {
            let bytes = std::fs::read(&path).unwrap();
            let found = bytes.windows(text.len()).any(|window| window == text.as_bytes());
            assert!(!found, "{} holds it", path.display());
        }
    }
}

#[test]
fn an_explanation_protects_the_policy_itself_as_a_run_does() {
    let text = "version: 1\nextends: [base.yaml]\nrules:\n  - { allow: write_file }\n";
    let world = World::repo(&[("rules.yaml", text), ("base.yaml", "version: 1\n"), ("a.txt", "one\n")]);
    for (path, decision, code) in [
        ("rules.yaml", "deny", "protected_path"),
        ("base.yaml", "deny", "protected_path"),
        ("a.txt", "allow", "allowed"),
    ] {
        let args = json!({ "file_path": path, "content": "x" }).to_string();
        let call = ["--tool", "write_file", "--args", args.as_str(), "--format", "json"];
        let told = world.call(&[&["policy", "explain", "rules.yaml"][..], &call[..]].concat());
        let ruling = told.exits(0).json();
        assert_eq!(
            (&ruling["decision"], &ruling["code"]),
            (&json!(decision), &json!(code)),
            "{path}: {ruling}"
        );
    }
    let cases = "version: 1\ncases:\n  - { write: rules.yaml, expect: deny, code: protected_path }\n";
    let cases = world.beside("cases.yaml", cases);
    world
        .call(&["policy", "test", "rules.yaml", "--cases", &cases])
        .exits(0);
}

#[test]
fn conditions_on_arguments_see_the_current_names_in_an_explanation_too() {
    let rules =
        "version: 1\nrules:\n  - { allow: read_file, with: { file_path: 'docs/*' } }\nsandbox: { level: none }\n";
    let world = World::repo(&[("docs/b.txt", "two\n")]);
    let policy = world.beside("policy.yaml", rules);
    let args = [
        "--tool",
        "read_file",
        "--args",
        r#"{"path":"docs/b.txt"}"#,
        "--format",
        "json",
    ];
    let told = world.call(&[&["policy", "explain", &policy][..], &args[..]].concat());
    assert_eq!(told.exits(0).json()["decision"], "allow");
    let line = "{\"tool\":\"read_file\",\"args\":{\"path\":\"docs/b.txt\"}}\n";
    let told = world.call_with(&["policy", "explain", &policy, "--calls", "-"], line);
    assert_eq!(told.exits(0).json()["decision"], "allow");
    let replies = script(&[calls("read_file", json!({ "path": "docs/b.txt" })), says("done")]);
    world.run(&replies, rules, &["-p", "x"]).exits(0);
    assert_eq!(world.result()["denied"], json!([]));
    let out = world.out().to_string_lossy().into_owned();
    let same = world
        .call(&["policy", "explain", &policy, "--run", &out])
        .exits(0)
        .stdout;
    assert_eq!(same, "every call gets the same ruling\n");
}

#[test]
fn exceptions_of_an_allow_rule_hold_for_commands_that_search() {
    let rules = "version: 1\nrules:\n  - { id: look, allow: run_shell_command, commands: [grep, git], except: { paths: \
                 ['src/**'] } }\nsandbox: { level: none }\n";
    let world = World::repo(&[("docs/a.txt", "open words\n"), ("src/a.txt", "closed words\n")]);
    let searches = [
        "grep -rh words docs",
        "grep -rh words .",
        "grep -rh words",
        "git grep -h words",
    ];
    let replies: Vec<Value> = searches.iter().map(|line| shell(line)).chain([says("done")]).collect();
    world.run(&script(&replies), rules, &["-p", "x"]).exits(4);
    let told = std::fs::read_to_string(world.out().join("transcript.json")).unwrap();
    assert!(told.contains("open words") && !told.contains("closed words"), "{told}");
    let denied = world.result()["denied"].clone();
    assert_eq!(denied.as_array().unwrap().len(), 3, "{denied}");
    let reason = denied[0]["reason"].as_str().unwrap();
    assert!(
        reason.contains("but not src/**") && reason.ends_with("touches ."),
        "{reason}"
    );
}

/// `sh -c` with positional parameters, as `find` and `xargs` are given it: what the text starts is judged, and tar's
/// compressors run although `/bin/sh` is a link.
#[test]
fn shell_texts_with_parameters_and_compressors_run_and_start_nothing_else() {
    let run = |commands: &[&str]| {
        let world = World::repo(&[("src/a.txt", "one\n"), ("src/b.txt", "two\n")]);
        let rules = "version: 1\nextends: [builtin:look]\nrules:\n  - { id: write, allow: write_file, paths: ['src/**'] }\n  - { id: \
                     tar, allow: run_shell_command, commands: [tar, find, xargs, wc] }\n";
        let replies: Vec<Value> = commands.iter().map(|line| shell(line)).chain([says("done")]).collect();
        let done = world.run(&script(&replies), rules, &["-p", "x"]);
        (
            done.code,
            std::fs::read_to_string(world.out().join("journal.jsonl")).unwrap(),
            world,
        )
    };
    let (code, told, world) = run(&[
        "find src -name '*.txt' -exec sh -c 'wc -c \"$1\"' _ {} \\;",
        "ls src | xargs -n1 sh -c 'echo \"got $0\"'",
        "sh -c 'cat \"$@\"' _ src/a.txt src/b.txt",
        "tar -czf src/o.tgz src/a.txt && tar -tzf src/o.tgz",
        "git -C src log --oneline -1 -- a.txt && git --no-pager -C . status --short",
    ]);
    assert_eq!(code, 0, "{told}");
    assert!(told.contains("got a.txt") && told.contains("4 src/b.txt"), "{told}");
    assert!(told.contains("one\\ntwo"), "{told}");
    assert!(std::fs::metadata(world.ws().join("src/o.tgz")).unwrap().len() > 20);
    for attack in [
        "find src -name a.txt -exec sh -c 'touch \"$1.new\"' _ {} \\;",
        "sh -c '\"$1\" src/new.txt' _ touch",
        "sh -c 'echo x > \"$1\"' _ new.txt",
        "sh -c 'eval \"$1\"' _ 'touch new.txt'",
        "sh -c '. \"$1\"' _ src/a.txt",
        "sh -c 'exec \"$@\"' _ touch new.txt",
        "echo new.txt | xargs sh -c 'cp src/a.txt \"$0\"'",
        "git -C .. log",
        "git -C src diff --output=new.txt",
    ] {
        let (code, told, world) = run(&[attack]);
        assert_eq!(code, 4, "{attack}: {told}");
        let names = [world.ws(), world.ws().join("src")].map(|dir| std::fs::read_dir(dir).unwrap().count());
        assert_eq!(names, [2, 2], "{attack}");
    }
}

#[test]
fn programs_of_sed_and_awk_open_no_files_under_a_rule_for_paths() {
    let world = World::repo(&[("docs/a.md", "one\n")]);
    let explained = |narrowed: &str, command: &str| {
        let rules = format!(
            "version: 1\nrules:\n  - {{ id: text, allow: run_shell_command, commands: [sed, awk]{narrowed} }}\n"
        );
        let policy = world.beside("policy.yaml", rules);
        let told = world.call(&["policy", "explain", &policy, "--command", command, "--format", "json"]);
        told.exits(0).json()
    };
    let reads = "sed 'r notes' docs/a.md";
    for narrowed in [", paths: ['docs/**']", ", except: { paths: [notes] }"] {
        let ruling = explained(narrowed, reads);
        assert_eq!(ruling["decision"], "deny", "{ruling}");
        let reason = ruling["reason"].as_str().unwrap();
        assert!(
            reason.contains("rule text allows `sed` only on") && reason.ends_with("is not accepted: the command `r`"),
            "{reason}"
        );
        let honest = explained(narrowed, "sed -n 1p docs/a.md");
        assert_eq!(honest["decision"], "allow", "{honest}");
    }
    assert_eq!(explained("", reads)["decision"], "allow");
}

#[test]
fn a_command_whose_paths_are_in_its_input_is_told_to_name_them() {
    let world = World::repo(&[("docs/a.md", "one\n")]);
    let rules = "version: 1\nrules:\n  - { id: apply, allow: run_shell_command, commands: [patch], paths: ['docs/**', '*.patch'] }\n";
    let policy = world.beside("policy.yaml", rules);
    let told = world.call(&[
        "policy",
        "explain",
        &policy,
        "--command",
        "patch -p1 < fix.patch",
        "--format",
        "json",
    ]);
    let ruling = told.exits(0).json();
    assert_eq!(ruling["decision"], "deny", "{ruling}");
    let (reason, fix) = (ruling["reason"].as_str().unwrap(), ruling["fix"].as_str().unwrap());
    assert!(
        reason.contains("only on docs/**, *.patch") && reason.contains("not known before it runs"),
        "{reason}"
    );
    assert!(fix.contains("name the file that it changes"), "{fix}");
}

#[test]
fn an_exception_that_may_fit_anywhere_holds_where_the_tree_has_such_a_path() {
    let world = World::repo(&[("docs/a.md", "one\n"), ("src/deep/words.pem", "x\n")]);
    let rules =
        "version: 1\nrules:\n  - { allow: run_shell_command, commands: [grep], except: { paths: ['**/*.pem'] } }\n";
    let policy = world.beside("policy.yaml", rules);
    for (command, decision) in [
        ("grep -rn x docs", "allow"),
        ("grep -rn x src", "deny"),
        ("grep -rn x .", "deny"),
        ("grep -Rn x docs", "deny"),
    ] {
        let told = world.call(&["policy", "explain", &policy, "--command", command, "--format", "json"]);
        let ruling = told.exits(0).json();
        assert_eq!(ruling["decision"], decision, "{command}: {ruling}");
    }
}

#[test]
fn a_rule_about_a_shell_suspends_the_shell_whose_text_is_read() {
    let world = World::repo(&[("a.txt", "one\n")]);
    let rules = "version: 1\nrules:\n  - { id: ask, suspend: run_shell_command, commands: [bash, sh] }\n  - { allow: \
                 run_shell_command, commands: [cat, touch, bash], args: any, writes: tree, runs: anything \
                 }\nsandbox: { level: none }\n";
    let replies = [shell("bash -c 'cat a.txt; touch log'"), says("done")];
    world.run(&script(&replies), rules, &["-p", "x"]).exits(5);
    let result = world.result();
    assert_eq!(result["suspended"][0]["rule"], "ask", "{result}");
    assert!(!world.ws().join("log").exists());
}

#[test]
fn a_denied_directory_is_denied_with_all_below() {
    let world = World::repo(&[
        ("priv/deep/a.txt", "needle\n"),
        ("priv/other.txt", "needle\n"),
        ("b.txt", "needle\n"),
    ]);
    let rules = "version: 1\nextends: [builtin:edit, builtin:look]\nrules:\n  - { id: shut, deny: '*', paths: [priv] \
                 }\nsandbox: { level: none }\n";
    let write = json!({ "file_path": "priv/n.txt", "content": "x\n" });
    let replies = [
        calls("read_file", json!({ "file_path": "priv/deep/a.txt" })),
        calls("write_file", write),
        shell("cat priv/deep/a.txt"),
        calls("grep_search", json!({ "pattern": "needle" })),
        says("done"),
    ];
    world.run(&script(&replies), rules, &["-p", "x"]).exits(4);
    let result = world.result();
    let denied = result["denied"].as_array().unwrap();
    let by_rule = denied.iter().filter(|one| one["rule"] == "shut").count();
    assert_eq!((denied.len(), by_rule), (3, 3), "{result}");
    assert!(!world.ws().join("priv/n.txt").exists());
    let told = std::fs::read_to_string(world.out().join("transcript.json")).unwrap();
    assert!(told.contains("b.txt") && !told.contains("other.txt"), "{told}");
}

#[test]
fn a_directory_without_a_denied_file_is_removed_and_filled() {
    let world = World::repo(&[
        ("src/a.rs", "a\n"),
        ("src/x/b.rs", "b\n"),
        ("target/debug/app", "x\n"),
        ("keep/deep/k.lock", "k\n"),
    ]);
    let rules = "version: 1\nextends: [builtin:build]\nrules:\n  - { id: locks, deny: '*', paths: ['**/*.lock'] }\n";
    let policy = world.beside("policy.yaml", rules);
    for (command, decision) in [
        ("cp src/a.rs src/x/", "allow"),
        ("mv src/a.rs src/x", "allow"),
        ("rm -rf target", "allow"),
        ("mv src/x src/w", "allow"),
        ("rm -rf keep", "deny"),
    ] {
        let told = world.call(&["policy", "explain", &policy, "--command", command, "--format", "json"]);
        let ruling = told.exits(0).json();
        assert_eq!(ruling["decision"], decision, "{command}: {ruling}");
        if decision == "deny" {
            let reason = ruling["reason"].as_str().unwrap();
            assert!(reason.contains("keep, which contains keep/deep/k.lock"), "{reason}");
        }
    }
}

/// `writes: paths` of a rule for a program without a profile lets it write what the rules for writing allow, and no more.
#[test]
fn a_program_without_a_profile_writes_only_what_rules_allow() {
    for level in ["full", "landlock"] {
        let world = World::repo(&[("src/a.txt", "one\n")]);
        let rules = format!(
            "version: 1\nrules:\n  - {{ allow: run_shell_command, commands: [fallocate -l 10], writes: paths }}\n  - {{ \
             allow: write_file, paths: ['src/**'] }}\nsandbox: {{ level: {level} }}\n"
        );
        let replies = [
            shell("fallocate -l 10 src/x.bin"),
            shell("fallocate -l 10 other.bin"),
            says("done"),
        ];
        world.run(&script(&replies), &rules, &["-p", "x"]);
        let result = world.result();
        assert_eq!(world.read("src/x.bin").len(), 10, "{level}: {result}");
        assert!(!world.ws().join("other.bin").exists(), "{level}: {result}");
    }
}

/// A denial at an exec that a rule would lift is suggested, and only what was missing; the run's own tree says what its
/// paths are, wherever the command is called.
#[test]
fn what_was_missing_at_an_exec_is_suggested() {
    let world = World::repo(&[("README.md", "a\n"), ("docs/a.md", "a\n"), ("src/a.txt", "a\n")]);
    let rules = "version: 1\nrules:\n  - { allow: run_shell_command, commands: [ls, xargs, sed, rm] }\n  - { allow: \
                 write_file, paths: ['src/**'] }\n";
    let replies = [
        shell("ls *.md | xargs sed -i s/a/b/"),
        shell("rm -rf docs"),
        shell("sed '1e id' README.md"),
        says("done"),
    ];
    world.run(&script(&replies), rules, &["-p", "x"]);
    let out = world.out().to_string_lossy().into_owned();
    let suggest = || {
        let done = world
            .command(&["policy", "suggest", &out])
            .current_dir(world.path())
            .output()
            .unwrap();
        String::from_utf8_lossy(&done.stdout).into_owned()
    };
    let text = suggest();
    assert!(text.contains("paths: [\"README.md\", \"docs/\"]"), "{text}");
    assert!(!text.contains("commands:"), "{text}");
    assert!(
        text.contains("(exec_not_granted)") && text.contains("runs: anything"),
        "{text}"
    );
}

/// Every reason code that the sources give a ruling or a denial is in the closed list.
#[test]
fn reason_codes_are_listed() {
    const BEFORE: [&str; 4] = [
        "Ruling::denied(",
        "CommandRefusal::new(",
        "denied_call(call,",
        "denied(ruling,",
    ];
    // In other files a `code` may be that of a warning.
    const WITH_FIELDS: [&str; 3] = ["policy/", "process/", "report/summary/"];
    let mut found = BTreeSet::from([NOT_RESTORED.to_owned()]);
    for (name, text) in all().iter().filter(|(name, _)| !is_test(name)) {
        let text = without_tests(text);
        let field = WITH_FIELDS.iter().any(|dir| name.starts_with(dir)).then_some("code:");
        for before in BEFORE.into_iter().chain(field) {
            let after = text.split(before).skip(1);
            let literals = after.filter_map(|rest| rest.trim_start().strip_prefix('"')?.split('"').next());
            found.extend(literals.map(str::to_owned));
        }
    }
    for code in ["modify_failed", "not_approved", "deny_rule", "limit:time"] {
        assert!(found.contains(code), "{code} is not among {found:?}");
    }
    let unknown: Vec<&String> = found.iter().filter(|code| codes::find(code).is_none()).collect();
    assert!(unknown.is_empty(), "not in policy/codes.rs: {unknown:?}");
}
