//! Programs that this program starts for itself, outside the sandbox: no command of a run puts another one in their place,
//! and none shows a check another tree than the one that is delivered.

use super::harness::{Done, World, calls, says, script, shell, writes};
use serde_json::json;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;

const LEVELS: [&str; 2] = ["full", "landlock"];
const BIN: &str = env!("CARGO_BIN_EXE_overnight");

fn policy(level: &str) -> String {
    format!(
        "version: 1\nextends: [builtin:edit]\nrules:\n  - {{ allow: run_shell_command, commands: [bash, ls], args: any, writes: tree, runs: anything }}\nsandbox: {{ level: {level} }}\n"
    )
}

/// A workspace with `plant.sh`, which puts a program at `$1` that makes the marker and goes on as the real one.
fn world(real: &str) -> (World, PathBuf) {
    let world = World::repo(&[(".gitignore", "node_modules\n"), ("a.txt", "one\n")]);
    let marker = world.path().join("marker");
    let fake = format!("#!/bin/sh\n: > '{}'\nexec {real} \"$@\"\n", marker.display());
    world.file("fake", fake);
    world.file(
        "plant.sh",
        "mkdir -p \"$(dirname \"$1\")\"\ncp fake \"$1.new\" && chmod 755 \"$1.new\" && mv \"$1.new\" \"$1\"\necho two > a.txt\n",
    );
    world.commit("plant");
    (world, marker)
}

/// Plants a program at `place` with one command, runs two more, and ends.
fn planted(world: &World, program: &str, place: &str, level: &str) -> Done {
    let replies = [
        shell(&format!("bash plant.sh {place}")),
        shell("ls"),
        shell("ls -l"),
        says("done"),
    ];
    let model = format!("script:{}", world.beside("script.yaml", script(&replies)));
    let policy = world.beside("policy.yaml", policy(level));
    let out = world
        .path()
        .join(place.replace('/', "-"))
        .to_string_lossy()
        .into_owned();
    let mut command = world.command(&["run", "-p", "x", "--model", &model, "--policy", &policy, "--out", &out]);
    if program != BIN {
        let own = command
            .get_envs()
            .map(|(name, value)| (name.to_owned(), value.map(ToOwned::to_owned)));
        let own: Vec<_> = own.collect();
        let mut other = std::process::Command::new(program);
        other.args(command.get_args()).current_dir(world.ws()).env_clear();
        other.envs(own.into_iter().filter_map(|(name, value)| Some((name, value?))));
        command = other;
    }
    Done::of(command.output().unwrap())
}

#[test]
fn the_program_itself_cannot_be_replaced_while_it_runs() {
    for level in LEVELS {
        let (world, marker) = world(BIN);
        let place = "node_modules/overnight-linux-x64/bin/overnight";
        let installed = world.ws().join(place);
        std::fs::create_dir_all(installed.parent().unwrap()).unwrap();
        std::fs::copy(BIN, &installed).unwrap();
        let _ = planted(&world, &installed.to_string_lossy(), place, level);
        assert!(!marker.exists(), "{level}: what was planted was run");
        let left = std::fs::metadata(&installed).unwrap();
        assert!(
            left.len() > 1 << 20 && left.permissions().mode() & 0o111 != 0,
            "{level}: it was replaced"
        );
        // Another program of the same packages may be replaced.
        let done = planted(
            &world,
            &installed.to_string_lossy(),
            "node_modules/other/bin/other",
            level,
        );
        assert_eq!(done.code, 0, "{level}: {}", done.stderr);
    }
}

#[test]
fn git_is_not_taken_from_the_tree() {
    let real = std::env::split_paths(&std::env::var_os("PATH").unwrap())
        .map(|dir| dir.join("git"))
        .find(|git| git.is_file())
        .unwrap();
    for level in LEVELS {
        let (world, marker) = world(&real.to_string_lossy());
        let bin = world.ws().join("node_modules/.bin");
        let path = format!("{}:{}", bin.display(), std::env::var("PATH").unwrap());
        let world = world.env("PATH", path);
        let done = planted(&world, BIN, "node_modules/.bin/git", level);
        assert!(!marker.exists(), "{level}: what was planted was run");
        assert_eq!(done.code, 0, "{level}: {}", done.stderr);
        let patch = std::fs::read_to_string(world.path().join("node_modules-.bin-git/changes.patch")).unwrap();
        assert!(patch.contains("+two"), "{level}: {patch}");
        assert!(bin.join("git").is_file(), "{level}: it was planted");
    }
}

#[test]
fn a_missing_git_is_found_before_the_first_request() {
    let world = World::new();
    let bin = world.path().join("bin");
    std::fs::create_dir(&bin).unwrap();
    for program in ["bash", "sh"] {
        std::os::unix::fs::symlink(format!("/bin/{program}"), bin.join(program)).unwrap();
    }
    let world = world.env("PATH", bin.to_string_lossy().into_owned());
    let replies = script(&[writes("b.txt", "b\n"), says("done")]);
    let policy = "version: 1\nextends: [builtin:edit]\nsandbox: { level: none }\n";
    let done = world.run(&replies, policy, &["-p", "x"]).exits(8);
    assert!(
        done.stderr.contains("git is not on the PATH: install git"),
        "{}",
        done.stderr
    );
    assert_eq!(world.result()["usage"]["turns"], 0);
    assert!(!world.ws().join("b.txt").exists());
    let found = world.call(&["doctor"]).exits(8).stdout;
    assert!(found.contains("git is not on the PATH: install git"), "{found}");
    // What cannot change a file needs none.
    let model = format!("script:{}", world.beside("says.yaml", script(&[says("done")])));
    world.call(&["run", "-p", "x", "--model", &model]).exits(0);
}

#[test]
fn nothing_in_the_background_shows_a_check_another_tree() {
    let recipe = "version: 1\nname: flip\nexpect: change\nsteps:\n  - id: one\n    prompt: x\n    checks:\n      - { name: good, run: \"echo > began; sleep 1; grep -q good a.txt\" }\n";
    let flip =
        "while [ ! -e began ]; do sleep 0.05; done\ncp a.txt old\necho good > a.txt\nsleep 2\ncp old a.txt\nsleep 60\n";
    for level in LEVELS {
        let world = World::repo(&[(".gitignore", "began\nold\n"), ("a.txt", "bad\n"), ("flip.sh", flip)]);
        let start = calls(
            "run_shell_command",
            json!({"command": "bash flip.sh", "is_background": true, "delay_ms": 300}),
        );
        let replies = [writes("b.txt", "b\n"), start, says("done")];
        let done = world.recipe(recipe, &script(&replies), &policy(level), &[]);
        assert_eq!(done.code, 1, "{level}: {}", done.stderr);
        assert!(
            done.stderr.contains("were ended before the checks: job1"),
            "{level}: {}",
            done.stderr
        );
        assert_eq!(world.read("a.txt"), "bad\n", "{level}");
        // What the model writes itself is what the check sees.
        let world = World::repo(&[(".gitignore", "began\nold\n"), ("a.txt", "bad\n")]);
        let replies = [writes("a.txt", "good\n"), says("done")];
        world.recipe(recipe, &script(&replies), &policy(level), &[]).exits(0);
    }
}
