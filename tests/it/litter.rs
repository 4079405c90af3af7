//! What checks leave behind is not the run's own change: not in the patch, and no reason to call a run a success.

use super::harness::{World, calls, open_policy, says, script, shell, writes};
use serde_json::{Value, json};

/// A check that leaves two files behind, one of them new at each run.
const RECIPE: &str = "\
version: 1
name: r
expect: EXPECT
steps:
  - id: one
    prompt: do it
    checks:
      - { name: left, run: \"echo x > left.txt; echo $$ > count.txt; echo reformatted > fmt.txt; test -e a.txt\" }
      - { name: small, changed: { only: [b.txt, fmt.txt, left.txt] } }
      - { name: two, run: \"grep -q two b.txt || test ! -e b.txt\" }
    retry: { max: 1 }
";

fn run(expect: &str, replies: &[Value]) -> World {
    let world = World::repo(&[("a.txt", "one\n"), ("fmt.txt", "ugly\n")]);
    let recipe = RECIPE.replace("EXPECT", expect);
    let policy = open_policy(&["rm", "echo"]);
    let verdict = if expect == "change" { 1 } else { 0 };
    world.recipe(&recipe, &script(replies), &policy, &[]).exits(verdict);
    world
}

fn paths(world: &World) -> Vec<String> {
    let result = world.result();
    let files = result["changes"]["files"].as_array().unwrap().iter();
    files.map(|file| file["path"].as_str().unwrap().to_owned()).collect()
}

#[test]
fn a_run_that_only_its_checks_changed_did_nothing() {
    let world = run("any", &[says("done")]);
    assert_eq!(world.result()["verdict"], "no_change");
    assert!(!world.out().join("changes.patch").exists());
    let warnings = world.result()["warnings"].to_string();
    assert!(warnings.contains("count.txt, fmt.txt, left.txt"), "{warnings}");
    // And is no pass where a change was expected.
    assert_eq!(run("change", &[says("done")]).result()["reason"], "expect");
}

#[test]
fn the_patch_has_what_the_model_did_and_not_what_checks_left() {
    // The first attempt is sent back; the files that the checks left are there at the second one.
    let world = run(
        "any",
        &[
            writes("b.txt", "one\n"),
            says("done"),
            writes("b.txt", "two\n"),
            says("now"),
        ],
    );
    assert_eq!(world.result()["verdict"], "passed");
    assert_eq!(paths(&world), ["b.txt"]);
    let patch = std::fs::read_to_string(world.out().join("changes.patch")).unwrap();
    assert!(patch.contains("+two") && !patch.contains("left.txt"), "{patch}");
}

#[test]
fn what_the_model_writes_is_its_own_even_where_a_check_wrote_too() {
    let replies = [
        writes("fmt.txt", "mine\n"),
        writes("b.txt", "one\n"),
        says("done"),
        shell("echo mine > left.txt"),
        writes("b.txt", "two\n"),
        says("now"),
    ];
    let world = run("any", &replies);
    // A file that the model changed and a check changed after it is in the patch as it is now.
    assert_eq!(paths(&world), ["b.txt", "fmt.txt", "left.txt"]);
    let patch = std::fs::read_to_string(world.out().join("changes.patch")).unwrap();
    assert!(patch.contains("+reformatted"), "{patch}");
}

#[test]
fn a_green_tree_is_no_change_whatever_the_checks_left() {
    let world = World::repo(&[("a.txt", "one\n")]);
    let recipe = "version: 1\nname: r\nskip_if_green: true\nsteps:\n  - id: one\n    prompt: x\n    checks:\n      \
                  - { name: left, run: echo x > left.txt }\n";
    world.recipe(recipe, &script(&[]), &open_policy(&[]), &[]).exits(0);
    assert_eq!(world.result()["verdict"], "no_change");
}

#[test]
fn a_run_that_is_killed_in_a_check_goes_on() {
    let world = World::repo(&[("a.txt", "one\n")]);
    let recipe = "version: 1\nname: r\nsteps:\n  - id: one\n    prompt: x\n    checks:\n      \
                  - { name: slow, run: \"echo x >> left.txt; test $(wc -l < left.txt) -gt 1 || sleep 60\" }\n";
    let recipe = world.beside("recipe.yaml", recipe);
    let model = format!(
        "script:{}",
        world.beside(
            "script.yaml",
            script(&[calls("read_file", json!({"file_path": "a.txt"})), says("done")])
        )
    );
    let policy = world.beside("policy.yaml", open_policy(&[]));
    let out = world.out().to_string_lossy().into_owned();
    let mut child = world
        .command(&["run", &recipe, "--model", &model, "--policy", &policy, "--out", &out])
        .stdout(std::process::Stdio::null())
        .stderr(std::process::Stdio::null())
        .spawn()
        .unwrap();
    super::harness::until("the check has begun", || world.ws().join("left.txt").exists());
    child.kill().unwrap();
    child.wait().unwrap();
    world.call(&["resume", &out]).exits(0);
    assert_eq!(world.result()["verdict"], "no_change");
}
