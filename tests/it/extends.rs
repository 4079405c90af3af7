//! Policies that extend policies of the program and files beside them, from the command line to a resumed run.

use super::harness::{World, calls, says, script, shell, writes};
use serde_json::json;

const TOP: &str = "version: 1\nextends: [builtin:look, shared/base.yaml]\n";
const BASE: &str =
    "version: 1\nextends: [../more.yaml]\nrules:\n  - { id: docs, allow: write_file, paths: ['docs/**'] }\n";
const MORE: &str = "version: 1\nrules:\n  - { id: asked, suspend: write_file, paths: ['docs/asked.md'] }\n";

/// A world with a policy of three files beside the workspace; the path of the first.
fn with_files() -> (World, String) {
    let world = World::repo(&[("README.md", "# A\n")]);
    let policy = world.beside("p/top.yaml", TOP);
    world.beside("p/shared/base.yaml", BASE);
    world.beside("p/more.yaml", MORE);
    (world, policy)
}

fn decision(world: &World, policy: &str, path: &str) -> String {
    let args = json!({ "file_path": path, "content": "x" }).to_string();
    let line = json!({ "tool": "write_file", "args": serde_json::from_str::<serde_json::Value>(&args).unwrap() });
    let calls = world.beside("calls.jsonl", line.to_string());
    let done = world.call(&["policy", "explain", policy, "--calls", &calls]).exits(0);
    done.json()["decision"].as_str().unwrap().to_owned()
}

#[test]
fn files_beside_a_policy_are_read_from_where_they_lie() {
    let (world, policy) = with_files();
    for (path, wanted) in [
        ("docs/a.md", "allow"),
        ("docs/asked.md", "suspend"),
        ("src/a.rs", "deny"),
    ] {
        assert_eq!(decision(&world, &policy, path), wanted, "{path}");
    }
    let told = world.call(&["policy", "check", &policy]).exits(0);
    assert!(
        told.stdout.contains("[docs]") && told.stdout.contains("[builtin:look]"),
        "{}",
        told.stdout
    );
}

#[test]
fn a_wrong_name_is_told_with_the_right_one_and_its_place() {
    let world = World::repo(&[]);
    let done = world.call(&["policy", "check", "builtin:nod"]).exits(3);
    assert!(done.stderr.contains("did you mean `builtin:node`?"), "{}", done.stderr);
    let policy = world.beside("p.yaml", "version: 1\nextends:\n  - builtin:pyhton\n  - gone.yaml\n");
    let done = world.call(&["policy", "check", &policy]).exits(3);
    for part in [
        "p.yaml:3:5: error[unknown-preset]",
        "did you mean `builtin:python`?",
        "p.yaml:4:5: error[no-file]",
    ] {
        assert!(done.stderr.contains(part), "{part} is not in\n{}", done.stderr);
    }
}

#[test]
fn a_file_of_a_commit_extends_files_of_that_commit() {
    let world = World::repo(&[
        ("ci/p.yaml", "version: 1\nextends: [base.yaml]\n"),
        (
            "ci/base.yaml",
            "version: 1\nrules:\n  - { allow: write_file, paths: ['docs/**'] }\n",
        ),
        ("ci/out.yaml", "version: 1\nextends: [../../x.yaml]\n"),
    ]);
    // The change under test opens more, in the tree only.
    world.file(
        "ci/base.yaml",
        "version: 1\nrules:\n  - { allow: write_file, paths: ['**'] }\n",
    );
    assert_eq!(decision(&world, "git:HEAD:ci/p.yaml", "docs/a.md"), "allow");
    assert_eq!(decision(&world, "git:HEAD:ci/p.yaml", "src/a.rs"), "deny");
    assert_eq!(decision(&world, "ci/p.yaml", "src/a.rs"), "allow");
    let done = world.call(&["policy", "check", "git:HEAD:ci/out.yaml"]).exits(3);
    assert!(done.stderr.contains("outside-path"), "{}", done.stderr);
}

#[test]
fn a_recipe_that_is_not_trusted_reads_no_file_elsewhere_through_its_policy() {
    let world = World::new();
    let secret = world.beside("secret.yaml", "password: sesame\n");
    world.file(
        "ci/r.yaml",
        "version: 1\nname: r\npolicy: p.yaml\nsteps:\n  - { id: a, prompt: go }\n",
    );
    world.file("ci/p.yaml", format!("version: 1\nextends: [\"{secret}\"]\n"));
    world.file("ci/link.yaml", "version: 1\n");
    world.git(&["init", "-q", "-b", "main"]);
    world.commit("base");
    let model = format!("script:{}", world.beside("s.json", script(&[says("done")])));
    let run = |world: &World| {
        world
            .call(&["run", "ci/r.yaml", "--model", &model, "--policy", "builtin:edit"])
            .exits(3)
    };
    let done = run(&world);
    assert!(
        done.stderr.contains("not trusted") && !done.stderr.contains("sesame"),
        "{}",
        done.stderr
    );
    // Nor over a link in the tree.
    world.file("ci/p.yaml", "version: 1\nextends: [over.yaml]\n");
    std::os::unix::fs::symlink(&secret, world.ws().join("ci/over.yaml")).unwrap();
    let done = run(&world);
    assert!(
        done.stderr.contains("not trusted") && !done.stderr.contains("sesame"),
        "{}",
        done.stderr
    );
    let checked = world.call(&["recipe", "check", "ci/r.yaml"]).exits(3);
    assert!(!checked.stderr.contains("sesame"), "{}", checked.stderr);
}

#[test]
fn a_run_cannot_write_the_files_that_rule_it() {
    let world = World::repo(&[
        (
            "ci/p.yaml",
            "version: 1\nextends: [builtin:edit, builtin:files, base.yaml]\n",
        ),
        (
            "ci/base.yaml",
            "version: 1\nrules:\n  - { id: x, allow: write_todos }\n",
        ),
    ]);
    let replies = script(&[
        writes("ci/base.yaml", "version: 1\n"),
        shell("cp ci/p.yaml ci/base.yaml"),
        says("done"),
    ]);
    let model = format!("script:{}", world.beside("s.json", replies));
    let out = world.out().to_string_lossy().into_owned();
    world
        .call(&[
            "run",
            "-p",
            "x",
            "--model",
            &model,
            "--policy",
            "ci/p.yaml",
            "--out",
            &out,
        ])
        .exits(4);
    assert_eq!(world.result()["denied"].as_array().unwrap().len(), 2);
    assert!(world.read("ci/base.yaml").contains("id: x"));
}

/// A run that waits for a person.
fn suspended(world: &World, policy: &str, call: serde_json::Value) -> String {
    let model = format!("script:{}", world.beside("s.json", script(&[call, says("done")])));
    let out = world.out().to_string_lossy().into_owned();
    world
        .call(&["run", "-p", "x", "--model", &model, "--policy", policy, "--out", &out])
        .exits(5);
    out
}

#[test]
fn a_resume_refuses_another_extended_file_and_takes_the_same() {
    let (world, policy) = with_files();
    let out = suspended(&world, &policy, writes("docs/asked.md", "x\n"));
    world.beside("p/more.yaml", "version: 1\n");
    let done = world.call(&["resume", &out, "--approve", "c1"]).exits(8);
    assert!(done.stderr.contains("extends"), "{}", done.stderr);
    world.beside("p/more.yaml", MORE);
    world.call(&["resume", &out, "--approve", "c1"]).exits(0);
    assert_eq!(world.read("docs/asked.md"), "x\n");
}

#[test]
fn what_a_run_puts_into_the_tree_adds_no_toolchain_to_its_resume() {
    let world = World::repo(&[
        ("Cargo.toml", "[package]\nname = \"a\"\nversion = \"0.1.0\"\n"),
        ("src/lib.rs", ""),
    ]);
    let policy = world.beside(
        "p.yaml",
        "version: 1\nextends: [builtin:mixed]\nrules:\n  - { id: asked, suspend: write_file, paths: ['docs/asked.md'] }\n",
    );
    let replies = script(&[
        calls("write_file", json!({ "file_path": "docs/asked.md", "content": "x\n" })),
        shell("node --version"),
        says("done"),
    ]);
    let model = format!("script:{}", world.beside("s.json", replies));
    let out = world.out().to_string_lossy().into_owned();
    world
        .call(&["run", "-p", "x", "--model", &model, "--policy", &policy, "--out", &out])
        .exits(5);
    world.file("package.json", "{}\n");
    world.call(&["resume", &out, "--approve", "c1"]);
    let denied = world.result()["denied"].clone();
    assert_eq!(denied[0]["args"]["command"], "node --version", "{denied}");
    // A run that begins now has both.
    let told = world.call(&["policy", "explain", &policy, "--command", "node --version"]);
    assert!(told.exits(0).stdout.contains("allow"));
}

#[test]
fn stdin_is_taken_wherever_a_file_is_and_once() {
    let world = World::repo(&[("a.txt", "one\n")]);
    let policy = world.beside("p.yaml", "version: 1\nextends: [builtin:look]\n");
    let cases = "version: 1\ncases: [{ command: ls, expect: allow }]\n";
    world
        .call_with(&["policy", "test", &policy, "--cases", "-"], cases)
        .exits(0);
    let wrong = world
        .call_with(&["policy", "test", &policy, "--cases", "-"], "cases: 1\n")
        .exits(3);
    assert!(wrong.stderr.contains("stdin:1:"), "{}", wrong.stderr);
    let call = ["policy", "explain", &policy, "--tool", "read_file", "--args", "@-"];
    let told = world.call_with(&call, "{\"file_path\": \"a.txt\"}").exits(0).stdout;
    assert!(told.starts_with("allow"), "{told}");
    let twice = world
        .call_with(&["policy", "test", "-", "--cases", "-"], cases)
        .exits(2);
    assert!(twice.stderr.contains("one option only"), "{}", twice.stderr);
}
