//! The run directory and the store, where commands try to reach them; links that a tree puts on their way.

use super::harness::{Done, World, git_in, have, open_policy, says, script, shell, writes};
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::Stdio;

fn policy(level: &str) -> String {
    format!(
        "version: 1\nextends: [builtin:edit]\nrules:\n  - {{ allow: run_shell_command, commands: [bash, cat], args: any, paths: ['**'] }}\n\
         sandbox: {{ level: {level} }}\n"
    )
}

/// Reads and changes whatever of a run it finds, then does its work.
const REACH: &str = r#"
cat .overnight/runs/*/journal.jsonl out/journal.jsonl 2>/dev/null | grep -q run_started && echo REACHED-BY-READING
for d in .overnight/runs/* out; do
  test -d "$d" || continue
  mkdir -p "$d/git/info" "$d/blobs" "$d/results" 2>/dev/null
  { printf '[filter "x"]\n\tclean = "touch %s/MARK; cat"\n' "$PWD" >> "$d/git/config"; } 2>/dev/null
  { echo '* filter=x' > "$d/git/info/attributes"; } 2>/dev/null
  { echo forged >> "$d/journal.jsonl"; } 2>/dev/null
done
echo built > built.txt
true
"#;

/// A run whose directory lies in the tree, at a level.
fn run(world: &World, level: &str, text: &str, more: &[&str]) -> Option<Done> {
    world.file("x.sh", text);
    world.commit("script");
    let replies = script(&[
        writes("b.txt", "b\n"),
        shell("bash x.sh"),
        writes("c.txt", "c\n"),
        says("done"),
    ]);
    let model = format!("script:{}", world.beside("script.yaml", replies));
    let policy = world.beside("policy.yaml", policy(level));
    let args = [
        "run", "-p", "x", "--model", &model, "--policy", &policy, "--format", "json",
    ];
    let done = world.call(&[&args[..], more].concat());
    let missing = done.code == 8 && done.stderr.contains("is not available here");
    have(&format!("sandbox level {level}"), !missing).then_some(done)
}

fn state(world: &World) -> PathBuf {
    world.path().join("home/.local/state/overnight")
}

#[test]
fn no_command_reaches_the_journal_or_the_store() {
    for level in ["full", "landlock"] {
        for more in [&[][..], &["--out", "out"], &["--out", "build/deep/out"]] {
            let world = World::repo(&[("a.txt", "one\n")]);
            let Some(done) = run(&world, level, REACH, more) else {
                continue;
            };
            let object: Value = done.json();
            let id = object["run"].as_str().unwrap().to_owned();
            assert!(
                !world.ws().join("MARK").exists(),
                "{level} {more:?}: a filter of the command ran"
            );
            let home = PathBuf::from(object["artefacts"]["journal"].as_str().unwrap());
            let journal = std::fs::read_to_string(world.ws().join(&home)).unwrap();
            assert!(
                !journal.contains("REACHED-BY-READING\\n") && !journal.contains("forged\n"),
                "{level} {more:?}"
            );
            if level == "landlock" {
                assert!(home.starts_with(state(&world)), "{}", home.display());
                assert!(done.stderr.contains("journal_moved"), "{}", done.stderr);
            }
            // All of it is found by the run's id, and is whole.
            world.call(&["runs", "verify", &id]).exits(0);
            world.call(&["report", &id, "--format", "text"]).exits(0);
            let out = PathBuf::from(object["artefacts"]["result"].as_str().unwrap());
            let out = world.ws().join(out.parent().unwrap());
            assert!(
                out.join("result.json").is_file() && out.join("junit.xml").is_file(),
                "{level} {more:?}"
            );
            assert!(
                level == "full" || !out.join("journal.jsonl").exists(),
                "a journal that a command made stays"
            );
        }
    }
}

#[test]
fn an_honest_command_works_at_both_levels() {
    for level in ["full", "landlock"] {
        let world = World::repo(&[("a.txt", "one\n")]);
        let Some(done) = run(&world, level, "echo built > built.txt\n", &[]) else {
            continue;
        };
        let object = done.exits(0).json();
        assert_eq!(object["verdict"], "passed");
        assert_eq!(world.read("built.txt"), "built\n");
        let patch = std::fs::read_to_string(world.ws().join(object["patch"].as_str().unwrap())).unwrap();
        assert!(
            patch.contains("+b\n") && patch.contains("+c\n") && patch.contains("+built\n"),
            "{patch}"
        );
        let listed = world.call(&["runs"]).exits(0);
        assert!(
            listed.stdout.contains(object["run"].as_str().unwrap()),
            "{}",
            listed.stdout
        );
        world.call(&["runs", "verify"]).exits(0);
        let mode = std::os::unix::fs::PermissionsExt::mode(&state(&world).metadata().unwrap().permissions());
        assert_eq!(mode & 0o777, 0o700);
        world.call(&["runs", "prune", "--keep", "0"]).exits(0);
        assert_eq!(world.call(&["runs"]).exits(0).stdout, "");
        let kept = |dir: &str| std::fs::read_dir(state(&world).join(dir)).map_or(0, Iterator::count);
        assert_eq!((kept("heads"), kept("runs")), (0, 0));
    }
}

#[test]
fn a_killed_run_goes_on_from_where_its_journal_was_moved_to() {
    let world = World::repo(&[("a.txt", "one\n"), ("x.sh", "echo built > built.txt\n")]);
    let replies = script(&[shell("bash x.sh"), writes("c.txt", "c\n"), says("done")]);
    let model = format!("script:{}", world.beside("script.yaml", replies));
    let policy = world.beside("policy.yaml", policy("landlock"));
    let args = [
        "run",
        "-p",
        "x",
        "--model",
        &model,
        "--policy",
        &policy,
        "--out",
        "out",
        "--max-turns",
        "1",
        "--format",
        "json",
    ];
    let done = world.call(&args);
    if !have("sandbox level landlock", !done.stderr.contains("is not available here")) {
        return;
    }
    let object = done.exits(6).json();
    // What a command could have left in its place is not believed.
    world.file("out/journal.jsonl", "forged\n");
    world
        .call(&["run", "-p", "x", "--model", &model, "--policy", &policy, "--out", "out"])
        .exits(8);
    let again = world
        .call(&["resume", "out", "--max-turns", "9", "--format", "json"])
        .exits(0)
        .json();
    assert_eq!(
        (&again["run"], &again["verdict"]),
        (&object["run"], &Value::from("passed"))
    );
    let patch = std::fs::read_to_string(world.ws().join("out/changes.patch")).unwrap();
    assert!(patch.contains("+built\n") && patch.contains("+c\n"), "{patch}");
    world.call(&["runs", "verify", "out"]).exits(0);
    std::fs::write(world.ws().join("out/junit.xml"), "<testsuites/>").unwrap();
    world.call(&["runs", "verify", "out"]).exits(1);
}

#[test]
fn links_of_the_tree_are_refused_on_the_way() {
    let cases: [(&str, &[&str]); 3] = [
        (".overnight", &[]),
        ("link", &["--out", "link/run"]),
        ("link", &["--out", "link"]),
    ];
    for (name, more) in cases {
        let world = World::repo(&[("a.txt", "one\n")]);
        let outside = world.path().join("outside");
        std::fs::create_dir(&outside).unwrap();
        std::os::unix::fs::symlink("../outside", world.ws().join(name)).unwrap();
        let model = format!("script:{}", world.beside("script.yaml", script(&[says("done")])));
        let args = ["run", "-p", "x", "--model", &model];
        let done = world.call(&[&args[..], more].concat()).exits(8);
        assert!(
            done.stderr.contains(name) && done.stderr.contains("symbolic link"),
            "{}",
            done.stderr
        );
        assert_eq!(std::fs::read_dir(&outside).unwrap().count(), 0, "{name} {more:?}");
        // The control: the same name as a directory.
        std::fs::remove_file(world.ws().join(name)).unwrap();
        std::fs::create_dir(world.ws().join(name)).unwrap();
        world.call(&[&args[..], more].concat()).exits(0);
    }
    // A tree may not bring its own store, or links of our names.
    for (path, what) in [("out/git", "config"), ("out/blobs", "")] {
        let world = World::repo(&[("a.txt", "one\n")]);
        match what {
            "" => {
                std::fs::create_dir(world.ws().join("out")).unwrap();
                std::os::unix::fs::symlink("../..", world.ws().join(path)).unwrap();
            }
            file => drop(
                world
                    .file(&format!("{path}/{file}"), "[core]\n")
                    .file(&format!("{path}/hooks/x"), ""),
            ),
        }
        let model = format!("script:{}", world.beside("script.yaml", script(&[says("done")])));
        world
            .call(&["run", "-p", "x", "--model", &model, "--out", "out"])
            .exits(8);
    }
}

#[test]
fn a_copy_is_not_written_through_a_link_that_appeared_meanwhile() {
    let world = World::repo(&[("a.txt", "one\n"), ("reports/keep", "")]);
    world.file("x.sh", "rm -r reports && ln -s ../outside reports\n");
    world.commit("script");
    let outside = world.path().join("outside");
    std::fs::create_dir(&outside).unwrap();
    // A link of the model that leads outside is put back; one of the author's stays.
    let recipe = "version: 1\nname: r\nsteps:\n  - { id: swap, run: bash x.sh }\n";
    let more = ["--junit", "reports/junit.xml"];
    world
        .recipe(recipe, &script(&[says("done")]), &open_policy(&["bash"]), &more)
        .exits(9);
    assert_eq!(std::fs::read_dir(&outside).unwrap().count(), 0);
}

#[test]
fn outputs_are_not_written_through_links_that_the_repository_brings() {
    let world = World::repo(&[("a.txt", "one\n"), ("sub/b.txt", "two\n")]);
    let precious = world.beside("outside/f", "precious\n");
    let outside = world.path().join("outside");
    std::os::unix::fs::symlink("../outside", world.ws().join("o")).unwrap();
    world.commit("a link");
    let model = format!("script:{}", world.beside("script.yaml", script(&[says("done")])));
    let run = ["run", "-p", "x", "--model", &model];
    let cases: [&[&str]; 6] = [
        &["--patch", "o/f"],
        &["--junit", "o/f"],
        &["--transcript", "o/deep/f"],
        &["--workspace", "sub", "--patch", "o/f"],
        &["--workspace", "sub", "--out", "o/run"],
        &["--workspace", "sub", "--out", "o"],
    ];
    let merge = ["merge", "bundle", "--out", "o"];
    let calls = cases.iter().map(|more| [&run[..], *more].concat());
    for args in calls.chain([merge.to_vec()]) {
        let done = world.call(&args).exits(8);
        assert!(
            done.stderr.contains("symbolic link inside the workspace"),
            "{args:?}: {}",
            done.stderr
        );
        assert_eq!(std::fs::read_to_string(&precious).unwrap(), "precious\n", "{args:?}");
        assert_eq!(std::fs::read_dir(&outside).unwrap().count(), 1, "{args:?}");
    }
    // A link beside the repository is the user's own.
    std::os::unix::fs::symlink("outside", world.path().join("mine")).unwrap();
    let more = ["--patch", "../mine/f", "--junit", "../mine/new/junit.xml"];
    world.call(&[&run[..], &more].concat()).exits(0);
    assert!(outside.join("new/junit.xml").is_file());
    assert!(
        !outside.join("f").exists(),
        "a run without changes leaves no earlier patch"
    );
}

/// A repository around the workspace's own one, and one that has nothing to do with it, bring links too.
#[test]
fn outputs_are_not_written_through_links_of_other_repositories() {
    let world = World::repo(&[("a.txt", "one\n")]);
    let precious = world.beside("outside/f", "precious\n");
    let outside = world.path().join("outside");
    std::os::unix::fs::symlink("../outside", world.ws().join("o")).unwrap();
    // The user's own link leads to one of a tree.
    std::os::unix::fs::symlink("ws/o", world.path().join("mine")).unwrap();
    world.commit("a link");
    let (inner, plain) = (world.ws().join("inner"), world.path().join("plain"));
    for dir in [&inner, &plain] {
        std::fs::create_dir(dir).unwrap();
    }
    git_in(&inner, &["init", "-q", "-b", "main"]);
    git_in(&inner, &["commit", "-q", "--allow-empty", "-m", "base"]);
    let model = format!("script:{}", world.beside("script.yaml", script(&[says("done")])));
    let run = ["run", "-p", "x", "--model", &model];
    let inner_text = inner.to_string_lossy().into_owned();
    let in_tree = world.ws().join("o/f").to_string_lossy().into_owned();
    let cases: [(&Path, &[&str]); 5] = [
        (&inner, &["--patch", "../o/f"]),
        (&inner, &["--out", "../o/run"]),
        (&inner, &["--junit", "../../mine/f"]),
        (&plain, &["--workspace", &inner_text, "--patch", &in_tree]),
        (&plain, &["--workspace", &inner_text, "--transcript", "../mine/f"]),
    ];
    let called = |place: &Path, args: &[&str]| {
        let done = world.command(args).current_dir(place).stdin(Stdio::null()).output();
        let done = Done::of(done.unwrap());
        assert_eq!(std::fs::read_to_string(&precious).unwrap(), "precious\n", "{args:?}");
        assert_eq!(std::fs::read_dir(&outside).unwrap().count(), 1, "{args:?}");
        done
    };
    for (place, more) in cases {
        let done = called(place, &[&run[..], more].concat()).exits(8);
        assert!(
            done.stderr
                .contains("ws/o is a symbolic link inside the workspace or a repository"),
            "{more:?}: {}",
            done.stderr
        );
    }
    // Refused before the outputs are looked at: the patch of an earlier run is removed, but not through a link.
    called(&plain, &["run", "builtin:nope", "--sample", "--patch", &in_tree]).exits(3);
}

/// Commands could write the record in such a directory. The run is refused before anything is paid for.
#[test]
fn a_state_directory_in_the_workspace_is_refused_before_the_first_request() {
    let world = World::repo(&[("a.txt", "one\n")]);
    let inside = world.ws().join("home").to_string_lossy().into_owned();
    let world = world.env("HOME", inside);
    let replies = script(&[shell("touch b.txt"), says("done")]);
    let policy = "version: 1\nextends: [builtin:edit]\nrules:\n  - { allow: run_shell_command, commands: [touch] }\n";
    let done = world.run(&replies, policy, &["-p", "x"]).exits(8);
    assert!(done.stderr.contains("set XDG_STATE_HOME"), "{}", done.stderr);
    assert!(!world.out().join("journal.jsonl").exists());
    let outside = world.path().join("state").to_string_lossy().into_owned();
    world
        .env("XDG_STATE_HOME", outside)
        .run(&replies, policy, &["-p", "x"])
        .exits(0);
}

#[test]
fn a_run_without_a_state_directory_says_so_and_goes_on() {
    let world = World::repo(&[("a.txt", "one\n")]);
    let model = format!("script:{}", world.beside("script.yaml", script(&[says("done")])));
    let out = world.out().to_string_lossy().into_owned();
    let mut command = world.command(&["run", "-p", "x", "--model", &model, "--out", &out]);
    let done = command.env_remove("HOME").stdin(Stdio::null()).output().unwrap();
    let done = Done::of(done).exits(0);
    assert!(done.stderr.contains("state_directory"), "{}", done.stderr);
}
