//! What checks change in the tree is put back when they end: it is not in the patch, no reason to call a run a success,
//! and decides no other check.

use super::harness::{World, calls, hindered, open_policy, says, script, shell, until, writes};
use serde_json::{Value, json};

/// A check that makes two files, one of them new at each run, and changes a third.
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
    assert!(
        warnings.contains("left_by_checks")
            && warnings.contains("was put back when they ended: count.txt, fmt.txt, left.txt"),
        "{warnings}"
    );
    assert_eq!(world.git(&["status", "--porcelain"]), "");
    // And is no pass where a change was expected.
    assert_eq!(run("change", &[says("done")]).result()["reason"], "expect");
}

#[test]
fn the_patch_has_what_the_model_did_and_not_what_checks_did() {
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
fn what_the_model_writes_stays_as_it_is_where_a_check_wrote_too() {
    let replies = [
        writes("fmt.txt", "mine\n"),
        writes("b.txt", "one\n"),
        says("done"),
        shell("echo mine > left.txt"),
        writes("b.txt", "two\n"),
        says("now"),
    ];
    let world = run("any", &replies);
    assert_eq!(paths(&world), ["b.txt", "fmt.txt", "left.txt"]);
    let patch = std::fs::read_to_string(world.out().join("changes.patch")).unwrap();
    assert!(!patch.contains("+reformatted") && !patch.contains("+x"), "{patch}");
    assert_eq!(
        (world.read("fmt.txt"), world.read("left.txt")),
        ("mine\n".to_owned(), "mine\n".to_owned())
    );
}

#[test]
fn a_green_tree_is_no_change_whatever_the_checks_left() {
    let world = World::repo(&[("a.txt", "one\n")]);
    let recipe = "version: 1\nname: r\nskip_if_green: true\nsteps:\n  - id: one\n    prompt: x\n    checks:\n      \
                  - { name: left, run: echo x > left.txt }\n";
    world.recipe(recipe, &script(&[]), &open_policy(&[]), &[]).exits(0);
    assert_eq!(world.result()["verdict"], "no_change");
}

/// What a check runs is the model's, and may write all of the tree that the sandbox leaves open.
const TURNS: &str = "\
version: 1
name: r
steps:
  - id: one
    prompt: do it
    checks:
      - { name: tests, run: bash src/test.sh }
      - { name: gone, file: report.xml }
      - { name: frozen, run: bash tests/frozen.sh }
      - { name: tree, run: 'test ! -e hidden && test ! -e src/more.txt && test -x tests/tool && test -e tests/removed.txt && test ! -e made' }
      - { name: bounds, changed: { only: ['src/**'] } }
    retry: { max: 0 }
";

#[test]
fn what_one_check_does_to_the_tree_decides_no_other() {
    let test = "set -e\necho exit 0 > tests/frozen.sh\nprintf 'hid*\\nmade/\\n' > .gitignore\necho x > hidden\necho y > src/more.txt\n\
                chmod -x tests/tool\nrm tests/removed.txt\nmkdir -p made/deep\necho z > made/deep/.gitignore\nmkfifo made/pipe || :\n\
                ln -s /etc/passwd tests/removed.txt\necho x > report.xml\necho kept > out/cache\n";
    for level in ["full", "landlock", "none"] {
        let world = World::repo(&[
            (".gitignore", "out/\n"),
            ("tests/frozen.sh", "echo frozen; exit 1\n"),
            ("tests/removed.txt", "there\n"),
            ("tests/tool", "#!/bin/sh\n"),
        ]);
        world.file("out/cache", "old\n");
        let tool = world.ws().join("tests/tool");
        std::fs::set_permissions(tool, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
        world.commit("a program");
        let policy = format!(
            "version: 1\nrules:\n  - {{ allow: [read_file, write_file], paths: ['src/**'] }}\nsandbox: {{ level: {level} }}\n"
        );
        let done = world.recipe(
            TURNS,
            &script(&[writes("src/test.sh", test), says("done")]),
            &policy,
            &[],
        );
        assert_eq!(done.code, 1, "{level}: {}", done.stderr);
        let result = world.result();
        let checks = result["steps"][0]["checks"].as_array().unwrap();
        let passed: Vec<bool> = checks.iter().map(|check| check["passed"] == true).collect();
        assert_eq!(passed, [true, false, false, true, true], "{level}: {checks:?}");
        let told = checks[1]["message"].as_str().unwrap();
        assert!(
            told.contains("report.xml, which check tests had made, was removed"),
            "{level}: {told}"
        );
        assert_eq!(checks[2]["message"], "exit code 1", "{level}");
        assert_eq!(paths(&world), ["src/test.sh"], "{level}");
        assert_eq!(world.git(&["status", "--porcelain"]), "?? src/\n", "{level}");
        assert_eq!(world.read("out/cache"), "kept\n", "{level}: git ignores it");
        let journal = std::fs::read_to_string(world.out().join("journal.jsonl")).unwrap();
        assert!(journal.contains("\"put_back\":[\".gitignore\","), "{level}: {journal}");
    }
}

#[test]
fn what_cannot_be_put_back_ends_the_run() {
    let world = World::repo(&[("a.txt", "one\n")]);
    // Git does not know it, and it is too large for the store.
    let large = std::fs::File::create(world.ws().join("large.bin")).unwrap();
    large.set_len(33 << 20).unwrap();
    let recipe = "version: 1\nname: r\nsteps:\n  - id: one\n    prompt: x\n    checks:\n      \
                  - { name: grows, run: 'echo x >> large.bin; echo y > a.txt' }\n";
    let done = world.recipe(recipe, &script(&[says("done")]), &open_policy(&[]), &[]);
    assert_eq!(done.code, 4, "{}", done.stderr);
    let result = world.result();
    assert_eq!(result["reason"], "not_put_back");
    let message = result["message"].as_str().unwrap();
    assert!(
        message.contains("check grows") && message.contains("large.bin"),
        "{message}"
    );
    assert_eq!(world.read("a.txt"), "one\n", "what can be put back is");
}

/// Starts a run, and kills it with SIGKILL when the file `began` is there.
fn killed_once_begun(world: &World, args: &[&str]) {
    let mut command = world.command(args);
    command.stdout(std::process::Stdio::null());
    let mut child = command.stderr(std::process::Stdio::null()).spawn().unwrap();
    until("the command has begun", || world.ws().join("began").exists());
    child.kill().unwrap();
    child.wait().unwrap();
}

#[test]
fn a_run_that_is_killed_in_a_check_goes_on_with_the_tree_that_the_check_found() {
    let world = World::repo(&[(".gitignore", "began\n"), ("a.txt", "one\n")]);
    let recipe = "version: 1\nname: r\nsteps:\n  - id: one\n    prompt: x\n    checks:\n      \
                  - { name: slow, run: \"grep -qx one a.txt && test ! -e left.txt && echo x > left.txt && echo two > a.txt && \
                  { test -e began || { echo > began; sleep 60; }; }\" }\n";
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
    killed_once_begun(
        &world,
        &["run", &recipe, "--model", &model, "--policy", &policy, "--out", &out],
    );
    let done = world.call(&["resume", &out]).exits(0);
    assert!(
        done.stderr
            .contains("what has changed since it began was put back: a.txt, left.txt"),
        "{}",
        done.stderr
    );
    assert_eq!(world.result()["verdict"], "no_change");
    assert_eq!(world.git(&["status", "--porcelain"]), "");
}

#[test]
fn a_run_that_is_killed_in_a_run_step_repeats_it() {
    let world = World::repo(&[(".gitignore", "began\n"), ("a.txt", "one\n")]);
    let recipe = "version: 1\nname: r\nsteps:\n  - id: made\n    run: 'echo x >> made.txt; test -e began || { echo > began; sleep \
                  60; }'\n";
    let recipe = world.beside("recipe.yaml", recipe);
    let policy = world.beside("policy.yaml", open_policy(&[]));
    let out = world.out().to_string_lossy().into_owned();
    killed_once_begun(&world, &["run", &recipe, "--policy", &policy, "--out", &out]);
    let done = world.call(&["resume", &out]).exits(0);
    assert!(done.stderr.contains("a `run` step was running"), "{}", done.stderr);
    assert_eq!(paths(&world), ["made.txt"]);
    assert_eq!(world.read("made.txt"), "x\nx\n");
}

#[test]
fn what_others_change_while_a_check_runs_can_be_brought_back() {
    let world = World::repo(&[("a.txt", "one\n"), ("mine.txt", "old\n")]);
    // The check stands for a person: the program cannot tell them apart.
    let recipe = "version: 1\nname: r\nsteps:\n  - id: one\n    prompt: x\n    checks:\n      \
                  - { name: slow, run: 'echo new > mine.txt; mkdir d; printf \"\\000x\" > d/made.bin; rm a.txt' }\n      \
                  - { name: again, run: 'test -e a.txt && echo more > more.txt' }\n";
    world
        .recipe(recipe, &script(&[says("done")]), &open_policy(&[]), &[])
        .exits(0);
    assert_eq!(world.read("mine.txt"), "old\n");
    assert_eq!(world.git(&["status", "--porcelain"]), "");
    let first = world.out().join("put-back/1.patch");
    let second = world.out().join("put-back/2.patch");
    let warnings = world.result()["warnings"].to_string();
    for file in [&first, &second] {
        let command = format!("`git apply {}`", file.display());
        assert!(warnings.contains(&command), "{warnings}");
    }
    assert!(warnings.contains("while checks ran (again, slow)"), "{warnings}");
    let out = world.out().to_string_lossy().into_owned();
    world.call(&["runs", "verify", &out]).exits(0);
    world.git(&["apply", &first.to_string_lossy()]);
    assert_eq!(world.read("mine.txt"), "new\n");
    assert_eq!(std::fs::read(world.ws().join("d/made.bin")).unwrap(), b"\0x");
    assert!(!world.ws().join("a.txt").exists());
    std::fs::write(&second, "changed").unwrap();
    world.call(&["runs", "verify", &out]).exits(1);
}

#[test]
fn a_large_file_that_appears_while_a_check_runs_is_not_lost() {
    let world = World::repo(&[("a.txt", "one\n")]);
    let recipe = "version: 1\nname: r\nsteps:\n  - id: one\n    prompt: x\n    checks:\n      \
                  - { name: large, run: 'truncate -s 33M large.bin; echo y > a.txt' }\n";
    let done = world.recipe(recipe, &script(&[says("done")]), &open_policy(&[]), &[]);
    assert_eq!(done.code, 4, "{}", done.stderr);
    let message = world.result()["message"].as_str().unwrap().to_owned();
    assert!(message.contains("large.bin (a file over 32 MiB)"), "{message}");
    assert!(world.ws().join("large.bin").exists());
    assert_eq!(world.read("a.txt"), "one\n");
    assert!(message.contains("put-back/1.patch`"), "{message}");
}

#[test]
fn directories_and_modes_are_as_before_a_check() {
    use std::os::unix::fs::PermissionsExt;
    let world = World::repo(&[("a.txt", "one\n"), ("old/a.txt", "one\n")]);
    let mode = |path: &str| std::fs::metadata(world.ws().join(path)).unwrap().permissions().mode() & 0o7777;
    std::fs::create_dir(world.ws().join("logs")).unwrap();
    world.file("private.txt", "p\n").file("shared.txt", "s\n");
    for (path, mode) in [("private.txt", 0o600), ("shared.txt", 0o664)] {
        std::fs::set_permissions(world.ws().join(path), PermissionsExt::from_mode(mode)).unwrap();
    }
    let recipe = "version: 1\nname: r\nsteps:\n  - id: made\n    run: mkdir reports\n  - id: one\n    prompt: x\n    checks:\n      \
                  - { name: first, run: 'echo a > reports/a.txt && echo l > logs/l && rm private.txt && chmod 666 shared.txt && echo x > \
                  shared.txt && mkdir -p mod/x && echo 1 > mod/x/f && chmod 444 mod/x/f && chmod 555 mod/x && chmod 000 mod && rm \
                  old/a.txt && chmod 555 old' }\n      \
                  - { name: second, run: 'test ! -e mod && echo b > reports/b.txt && echo b > logs/b && echo b > old/b' }\n";
    let recipe = world.beside("recipe.yaml", recipe);
    let model = format!("script:{}", world.beside("script.yaml", script(&[says("done")])));
    let policy = world.beside("policy.yaml", open_policy(&[]));
    let out = world.out().to_string_lossy().into_owned();
    let inner = world.command(&["run", &recipe, "--model", &model, "--policy", &policy, "--out", &out]);
    let Some(done) = hindered(&inner) else {
        return;
    };
    done.exits(0);
    assert_eq!(mode("old"), 0o755);
    assert!(world.ws().join("reports").is_dir() && world.ws().join("logs").is_dir());
    assert_eq!(world.read("private.txt"), "p\n");
    assert_eq!((mode("private.txt"), mode("shared.txt")), (0o600, 0o664));
}
