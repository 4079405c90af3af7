//! Programs that this program starts for itself, outside the sandbox: no command of a run puts another one in their place,
//! and none shows a check another tree than the one that is delivered.

use super::harness::{Done, GIT_IDENTITY, World, calls, copy_program, git_in, says, script, shell, writes};
use serde_json::json;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

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
        copy_program(Path::new(BIN), &installed);
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

fn real_git() -> String {
    std::env::split_paths(&std::env::var_os("PATH").unwrap())
        .map(|dir| dir.join("git"))
        .find(|git| git.is_file())
        .map(|git| git.to_string_lossy().into_owned())
        .unwrap()
}

/// Writes a `git` into this directory.
fn put_git(dir: &Path, text: &str) {
    std::fs::create_dir_all(dir).unwrap();
    let git = dir.join("git");
    std::fs::write(&git, text).unwrap();
    std::fs::set_permissions(&git, std::fs::Permissions::from_mode(0o755)).unwrap();
}

/// The program in `at`, with this directory first in its `PATH`.
fn with(world: &World, dir: &Path, at: &Path, args: &[&str]) -> Done {
    let path = format!("{}:{}", dir.display(), std::env::var("PATH").unwrap());
    let mut command = world.command(args);
    command.env("PATH", path).envs(GIT_IDENTITY).current_dir(at);
    Done::of(command.output().unwrap())
}

/// A `git` that fails at what the calls of these tests need it for.
fn failing_git() -> String {
    let needed = ["--version", "init", "fetch", "commit-tree", "diff-tree"];
    let needed = needed.map(|word| format!("*' {word} '*")).join("|");
    format!(
        "#!/bin/sh\ncase \" $* \" in {needed}) exit 97;; esac\nexec '{}' \"$@\"\n",
        real_git()
    )
}

/// Each place from which git is started, with the same `git` in the tree, where it is not taken, and beside it, where it is.
#[test]
fn no_command_takes_git_from_a_tree() {
    let world = World::repo(&[("sub/a.txt", "one\n")]);
    let up = world.path().join("up.git").to_string_lossy().into_owned();
    world.git(&["clone", "-q", "--bare", ".", &up]);
    let (tree, tools) = (world.ws().join("node_modules/.bin"), world.path().join("tools"));
    for dir in [&tree, &tools] {
        put_git(dir, &failing_git());
    }
    world.commit("tools of the tree");
    let policy = "version: 1\nextends: [builtin:edit]\nsandbox: { level: none }\n";
    world
        .run(&script(&[writes("b.txt", "b\n"), says("done")]), policy, &["-p", "x"])
        .exits(0);
    let recipe = "version: 1\nname: r\nsteps:\n  - { id: a, run: \"true\" }\n";
    world.beside("r.yaml", recipe);
    let targets =
        format!("version: 1\nrecipe: r.yaml\npolicy: policy.yaml\ntargets:\n  - {{ repo: '{up}', ref: main }}\n");
    let manifest = world.beside("m.yaml", targets);
    let at = |name: &str| world.path().join(name).to_string_lossy().into_owned();
    let (ws, sub) = (world.ws(), world.ws().join("sub"));
    let (named, out, model, policy) = (at("ws"), at("out"), at("script.yaml"), at("policy.yaml"));
    let model = format!("script:{model}");
    for (dir, is_taken) in [(&tree, false), (&tools, true)] {
        let out_of = |name: &str| at(&format!("{name}-{is_taken}"));
        let (sample, batch, below) = (out_of("sample"), out_of("batch"), out_of("below"));
        // The top of the repository is above the workspace, where another tree is worked on.
        let in_sub = [
            "run",
            "-p",
            "x",
            "--workspace",
            "sub",
            "--model",
            &model,
            "--policy",
            &policy,
            "--out",
            &below,
        ];
        let calls: [(&Path, &[&str]); 7] = [
            (&ws, &["doctor"]),
            (&sub, &["doctor"]),
            (Path::new("/"), &["doctor", "--workspace", &named]),
            (&ws, &["run", "builtin:triage-issue", "--sample", "--out", &sample]),
            (&ws, &["batch", &manifest, "--out", &batch]),
            (&ws, &["deliver", &out, "--to", "branch", "--branch", "x"]),
            (&ws, &in_sub),
        ];
        for (place, args) in calls {
            let done = with(&world, dir, place, args);
            assert_eq!(done.code != 0, is_taken, "{args:?}: {} {}", done.stdout, done.stderr);
        }
        let patch = std::fs::read_to_string(world.path().join("below-false/changes.patch")).unwrap();
        assert!(patch.contains("+++ b/sub/b.txt"), "{patch}");
        let _ = std::fs::remove_file(sub.join("b.txt"));
    }
    // Where there is no repository, the tree is the one that is named, or that one is in.
    let world = World::new();
    let tree = world.ws().join("bin");
    put_git(&tree, &failing_git());
    put_git(&tools, &failing_git());
    let named = world.ws().to_string_lossy().into_owned();
    with(&world, &tree, &world.ws(), &["doctor"]).exits(0);
    with(&world, &tree, Path::new("/"), &["doctor", "--workspace", &named]).exits(0);
    with(&world, &tools, &world.ws(), &["doctor"]).exits(8);
}

/// The author of the change answers in git's place what the base branch has.
#[test]
fn recipe_and_policy_of_the_base_branch_are_read_with_no_git_of_the_change() {
    let world = World::repo(&[
        (
            "ci/r.yaml",
            "version: 1\nname: r\nsteps:\n  - { id: a, run: \"true\" }\n",
        ),
        ("ci/p.yaml", "version: 1\nextends: [builtin:look]\n"),
    ]);
    world.git(&["update-ref", "refs/remotes/origin/main", "HEAD"]);
    world.git(&["symbolic-ref", "refs/remotes/origin/HEAD", "refs/remotes/origin/main"]);
    let marker = world.path().join("marker");
    let recipe = format!(
        "version: 1\nname: r\nsteps:\n  - {{ id: a, run: \"touch {}\" }}\n",
        marker.display()
    );
    let mut git = "#!/bin/sh\ncase \"$*\" in\n".to_owned();
    for (name, text) in [
        ("ci/r.yaml", recipe.as_str()),
        ("ci/p.yaml", "version: 1\nsandbox: { level: none }\n"),
    ] {
        let size = text.len();
        git.push_str(&format!(
            "*'cat-file -s'*{name}*) echo {size};;\n*'cat-file blob'*{name}*) printf '%s' '{text}';;\n"
        ));
    }
    git.push_str(&format!("*) exec '{}' \"$@\";;\nesac\n", real_git()));
    let (tree, tools) = (world.ws().join(".venv/bin"), world.path().join("tools"));
    for (dir, is_taken) in [(&tree, false), (&tools, true)] {
        put_git(dir, &git);
        world.commit("change");
        let out = world
            .path()
            .join(format!("out-{is_taken}"))
            .to_string_lossy()
            .into_owned();
        let args = [
            "run",
            "git:origin/main:ci/r.yaml",
            "--policy",
            "git:origin/main:ci/p.yaml",
            "--out",
            &out,
        ];
        with(&world, dir, &world.ws(), &args).exits(0);
        assert_eq!(marker.exists(), is_taken, "{}", dir.display());
    }
}

#[test]
fn a_git_that_is_left_out_is_named_with_the_reason() {
    let world = World::repo(&[]);
    let clone = world.path().join("clone");
    std::fs::create_dir(&clone).unwrap();
    git_in(&clone, &["init", "-q"]);
    let git = format!("#!/bin/sh\nexec '{}' \"$@\"\n", real_git());
    put_git(&clone.join("bin"), &git);
    // Nothing is left of this `PATH`, and that must not mean the current directory.
    put_git(&world.ws(), &git);
    let path = format!("{}:.", clone.join("bin").display());
    let done = Done::of(world.command(&["doctor"]).env("PATH", path).output().unwrap()).exits(8);
    let top = clone.canonicalize().unwrap();
    let why = format!("because it is in the git work tree {}", top.display());
    assert!(
        done.stdout.contains("git is not on the PATH: install git"),
        "{}",
        done.stdout
    );
    assert!(done.stdout.contains(&why), "{}", done.stdout);
    assert!(
        done.stdout.contains("`.` in PATH is not an absolute path"),
        "{}",
        done.stdout
    );
}

#[test]
fn git_is_not_taken_from_the_tree() {
    let real = real_git();
    for level in LEVELS {
        let (world, marker) = world(&real);
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
fn a_writer_in_the_background_that_the_end_of_a_run_kills_is_told() {
    let world = World::repo(&[("a.txt", "one\n"), ("late.sh", "sleep 60; echo two > a.txt\n")]);
    let start = calls(
        "run_shell_command",
        json!({"command": "bash late.sh", "is_background": true, "delay_ms": 300}),
    );
    let done = world
        .run(&script(&[start, says("done")]), &policy("none"), &["-p", "x"])
        .exits(0);
    let told = "background commands that may write were ended at the end of the run: job1";
    assert!(done.stderr.contains(told), "{}", done.stderr);
    assert_eq!(world.result()["warnings"][0]["code"], "jobs");
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
