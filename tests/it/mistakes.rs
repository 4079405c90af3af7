//! What a newcomer gets wrong, and what the program destroys, says or leaves alone then.

use super::harness::{Done, World, git_in, open_policy, says, script, shell, writes};
use serde_json::{Value, json};
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::Stdio;

fn is_link(path: &Path) -> bool {
    std::fs::symlink_metadata(path).is_ok_and(|found| found.is_symlink())
}

/// The model of a script beside the workspace.
fn model(world: &World, replies: &[Value]) -> String {
    format!("script:{}", world.beside("replies.yaml", script(replies)))
}

/// The paths below a directory, sorted.
fn names(dir: &Path) -> Vec<String> {
    let mut found = Vec::new();
    let mut todo = vec![dir.to_owned()];
    while let Some(dir) = todo.pop() {
        for entry in std::fs::read_dir(&dir).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() && !is_link(&path) {
                todo.push(path.clone());
            }
            found.push(path.to_string_lossy().into_owned());
        }
    }
    found.sort();
    found
}

#[test]
fn a_link_to_stdout_stays_and_a_file_on_stdout_gets_everything_in_order() {
    let world = World::repo(&[("a.txt", "one\n")]);
    let link = world.path().join("stdout");
    symlink("/proc/self/fd/1", &link).unwrap();
    let into = world.path().join("printed");
    let model = model(&world, &[says("The answer.")]);
    let out = world.out().to_string_lossy().into_owned();
    let named = link.to_string_lossy().into_owned();
    let args = [
        "run",
        "-p",
        "x",
        "--model",
        &model,
        "--out",
        &out,
        "--junit",
        &named,
        "--transcript",
        &named,
        "--patch",
        &named,
    ];
    let child = world
        .command(&args)
        .stdout(std::fs::File::create(&into).unwrap())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let done = Done::of(child.wait_with_output().unwrap()).exits(2);
    let told = "--patch and --junit name the same file";
    assert!(done.stderr.contains(told), "{}", done.stderr);
    let args = ["run", "-p", "x", "--model", &model, "--out", &out, "--junit", &named];
    let child = world
        .command(&args)
        .stdout(std::fs::File::create(&into).unwrap())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    Done::of(child.wait_with_output().unwrap()).exits(0);
    assert!(is_link(&link), "the link was replaced");
    let printed = std::fs::read_to_string(&into).unwrap();
    assert!(
        printed.starts_with("<?xml") && printed.ends_with("The answer.\n"),
        "{printed}"
    );
    assert!(printed.contains("</testsuites>"), "{printed}");
    // A refused run, too, and a patch that is not made.
    let wrong = ["run", "no-such.yaml", "--junit", &named];
    let child = world
        .command(&wrong)
        .stdout(std::fs::File::create(&into).unwrap())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    Done::of(child.wait_with_output().unwrap()).exits(3);
    assert!(is_link(&link) && std::fs::read_to_string(&into).unwrap().starts_with("<?xml"));
    let args = ["run", "-p", "x", "--model", &model, "--patch", &named];
    let child = world
        .command(&args)
        .stdout(std::fs::File::create(&into).unwrap())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    Done::of(child.wait_with_output().unwrap()).exits(0);
    assert!(is_link(&link) && into.is_file());
    assert_eq!(std::fs::read_to_string(&into).unwrap(), "The answer.\n");
}

#[test]
fn a_link_of_the_user_stays_and_leads_to_the_newest_file() {
    let world = World::repo(&[("a.txt", "one\n")]);
    let (link, to) = (world.path().join("latest"), world.path().join("kept/x"));
    symlink("kept/x", &link).unwrap();
    let named = link.to_string_lossy().into_owned();
    let change = model(&world, &[writes("b.txt", "b\n"), says("done")]);
    let policy = world.beside("policy.yaml", open_policy(&[]));
    let run = |model: &str, flag: &str| {
        world
            .call(&["run", "-p", "x", "--model", model, "--policy", &policy, flag, &named])
            .exits(0)
    };
    run(&change, "--junit");
    assert!(is_link(&link) && std::fs::read_to_string(&to).unwrap().starts_with("<?xml"));
    std::fs::remove_file(world.ws().join("b.txt")).unwrap();
    run(&change, "--patch");
    assert!(is_link(&link) && std::fs::read_to_string(&to).unwrap().contains("+b\n"));
    // An earlier patch is no patch of this run.
    let nothing = model(&world, &[says("done")]);
    run(&nothing, "--patch");
    assert!(is_link(&link) && !to.exists());
    assert!(names(&world.path().join("kept")).is_empty(), "no drafts stay");
}

/// Whoever reads a file after a refusal must not take that of an earlier run for this run's.
#[test]
fn a_refused_run_leaves_no_patch_and_no_transcript_of_an_earlier_one() {
    let world = World::repo(&[("a.txt", "one\n")]);
    let model = model(&world, &[says("done")]);
    let wrong = world.beside("wrong.yaml", "version: 1\nnam: x\n");
    let files = ["earlier.patch", "earlier.json"];
    for (args, code, stay) in [
        (vec!["-p", "x", "--out", "."], 8, false),
        (vec!["-p", "x", "--workspace", "../none"], 8, false),
        (vec![wrong.as_str()], 3, false),
        // Neither of these says what a run did.
        (vec![wrong.as_str(), "--dry-run"], 3, true),
        (vec!["-p", "x", "--max-wall", "soon"], 2, true),
    ] {
        let paths = files.map(|name| world.beside(name, "of an earlier run"));
        let flags = [
            "run",
            "--model",
            &model,
            "--patch",
            &paths[0],
            "--transcript",
            &paths[1],
        ];
        world.call(&[flags.as_slice(), &args].concat()).exits(code);
        for path in paths {
            assert_eq!(Path::new(&path).exists(), stay, "{args:?}: {path}");
        }
    }
}

#[test]
fn a_link_of_the_tree_is_no_output() {
    let world = World::repo(&[("a.txt", "one\n")]);
    let own = world.beside("own.txt", "mine\n");
    symlink("../own.txt", world.ws().join("report.xml")).unwrap();
    symlink("ws/report.xml", world.path().join("by-way")).unwrap();
    let model = model(&world, &[says("done")]);
    for flag in ["--junit", "--patch", "--transcript"] {
        for place in ["report.xml", "../by-way"] {
            let done = world.call(&["run", "-p", "x", "--model", &model, flag, place]).exits(8);
            assert!(
                done.stderr
                    .contains("report.xml is a symbolic link inside the workspace"),
                "{}",
                done.stderr
            );
            assert_eq!(std::fs::read_to_string(&own).unwrap(), "mine\n");
            assert!(is_link(&world.ws().join("report.xml")));
        }
    }
    assert!(!world.ws().join(".overnight").exists(), "no run began");
}

/// An output replaces an existing file, so a mistake in the command line would destroy it.
#[test]
fn a_file_that_is_read_or_tracked_is_refused_as_output() {
    let world = World::repo(&[("src/main.rs", "fn main() {}\n"), ("old.patch", "diff --git a/x b/x\n")]);
    let model = model(&world, &[writes("a.txt", "a\n"), says("done")]);
    let policy = world.beside("policy.yaml", open_policy(&[]));
    let schema = world.beside("answer.json", "{}");
    let prompt = world.beside("prompt.md", "Write a.txt.");
    let note = world.beside("recipes/note.json", "{\"type\": \"string\"}");
    let recipe = world.beside(
        "recipes/r.yaml",
        "version: 1\nname: r\nresponse: { schema: note.json }\nsteps: [{ id: a, prompt: x }]\n",
    );
    let at_prompt = format!("@{prompt}");
    let script = model.strip_prefix("script:").unwrap();
    let run = ["run", "--model", &model, "--policy", &policy];
    let of_prompt = ["-p", &at_prompt, "--output-schema", &schema];
    let named: [(&[&str], &str); 8] = [
        (&of_prompt, &policy),
        (&of_prompt, &schema),
        (&of_prompt, &prompt),
        (&of_prompt, script),
        (&of_prompt, "src/../src/main.rs"),
        (&[&recipe], &recipe),
        (&[&recipe], &note),
        (&["-p", "x", "--input", &schema], &schema),
    ];
    for (task, path) in named {
        let place = world.ws().join(path);
        let before = std::fs::read_to_string(&place).unwrap();
        for flag in ["--patch", "--junit", "--transcript"] {
            for more in [&[][..], &["--dry-run"]] {
                let done = world.call(&[&run[..], task, &[flag, path], more].concat()).exits(2);
                let told = format!("{flag} {path}");
                assert!(
                    done.stderr.contains(&told) && done.stderr.contains("name another file"),
                    "{}",
                    done.stderr
                );
                assert_eq!(std::fs::read_to_string(&place).unwrap(), before, "{flag} {path}");
            }
        }
    }
    assert!(!world.ws().join(".overnight").exists(), "no run began");
    // An earlier output may be tracked. A file that is neither tracked nor read is replaced.
    let other = world.beside("other.xml", "of somebody\n");
    world
        .call(
            &[
                &run[..],
                &["-p", "x", "--patch", "old.patch", "--junit", &other, "--out", "../done"],
            ]
            .concat(),
        )
        .exits(0);
    assert!(world.read("old.patch").contains("a.txt"));
    assert!(std::fs::read_to_string(&other).unwrap().contains("<testsuites"));
    // The same rules apply to `resume` and `deliver`.
    let done = world.call(&["resume", "../done", "--transcript", &policy]).exits(2);
    assert!(
        done.stderr.contains("read by the command (the run's recipe or policy)"),
        "{}",
        done.stderr
    );
    let mbox = ["deliver", "../done", "--to", "mbox", "--out", "src/main.rs"];
    let done = world.call(&mbox).exits(2);
    assert!(done.stderr.contains("git tracks this file"), "{}", done.stderr);
    assert_eq!(world.read("src/main.rs"), "fn main() {}\n");
}

/// A checkout that is mounted read-only, for example: one line says what to do.
#[test]
fn a_tree_without_room_for_run_directories_is_refused_with_what_to_do() {
    let world = World::repo(&[("a.txt", "one\n"), (".overnight", "a file\n")]);
    let model = model(&world, &[says("done")]);
    let done = world.call(&["run", "-p", "x", "--model", &model]).exits(9);
    let told: Vec<&str> = done.stderr.lines().filter(|line| line.starts_with("error")).collect();
    assert!(told.len() == 1 && told[0].contains("--out DIR"), "{}", done.stderr);
    let done = world
        .call(&["run", "-p", "x", "--model", &model, "--format", "json"])
        .exits(9);
    assert_eq!(done.json()["verdict"], "output");
    world
        .call(&["run", "-p", "x", "--model", &model, "--out", "../out"])
        .exits(0);
}

/// A dry run shows why the run would be refused. If only this machine lacks something to ask a model, that is a
/// warning.
#[test]
fn a_dry_run_ends_as_the_run_would() {
    let world = World::repo(&[("a.txt", "one\n")]);
    let good = model(&world, &[says("done")]);
    let plain = world.beside("r.yaml", "version: 1\nname: r\nsteps: [{ id: a, prompt: x }]\n");
    let context = world.beside(
        "c.yaml",
        "version: 1\nname: c\ncontext: [{ path: NONE.md, required: true }]\nsteps: [{ id: a, prompt: x }]\n",
    );
    let server = world.beside(
        "s.yaml",
        "version: 1\nname: s\ntools: { mcp_servers: { d: { url: 'http://127.0.0.1:9/', headers: { A: '${NO_TOKEN}' }, required: true } } }\n\
         steps: [{ id: a, prompt: x }]\n",
    );
    let absent = world.beside(
        "absent.yaml",
        "version: 1\nname: absent\nsteps:\n  - { id: a, prompt: x, checks: [{ name: c, run: no-such-program-here --version }] }\n",
    );
    let taken = world.path().join("taken").to_string_lossy().into_owned();
    world.call(&["run", &plain, "--model", &good, "--out", &taken]).exits(0);
    let empty = world.path().join("empty").to_string_lossy().into_owned();
    git_in(world.path(), &["init", "-q", &empty]);
    let outside = world.path().join("outside").to_string_lossy().into_owned();
    std::fs::create_dir(&outside).unwrap();
    for (args, code) in [
        (vec![absent.as_str(), "--model", &good], 8),
        (vec![&absent, "--model", &good, "--isolate"], 8),
        (vec![&plain, "--model", &good, "--isolate", "--workspace", &empty], 8),
        (vec![&plain, "--model", &good, "--isolate", "--workspace", &outside], 8),
        (vec![context.as_str(), "--model", &good], 3),
        (vec![&server, "--model", &good], 8),
        (vec![&plain, "--model", "script:none.json"], 3),
        (vec![&plain, "--model", "nobody/x"], 2),
        (vec![&plain, "--model", "replay:none"], 8),
        (vec![&plain, "--model", &good, "--out", "."], 8),
        (vec![&plain, "--model", &good, "--out", &taken], 8),
        (vec![&plain, "--model", &good, "--junit", "a.txt/x.xml"], 9),
        (vec![&plain, "--model", &good, "--policy", "none.yaml"], 3),
        (vec![&plain, "--model", &good], 0),
    ] {
        let errors = |more: &[&str]| {
            let done = world.call(&[&["run"], &args[..], more].concat()).exits(code);
            let lines = done.stderr.lines().filter(|line| !line.starts_with("overnight: "));
            lines.map(str::to_owned).collect::<Vec<_>>()
        };
        let (dry, real) = (errors(&["--dry-run"]), errors(&[]));
        assert_eq!(dry, real, "{args:?}");
    }
    // The plan is printed all the same; a program has one object.
    let done = world.call(&["run", &absent, "--model", &good, "--dry-run"]).exits(8);
    assert!(
        done.stdout.contains("absent") && done.stdout.contains("would be refused (code 8)"),
        "{}",
        done.stdout
    );
    let done = world
        .call(&["run", &absent, "--model", &good, "--dry-run", "--format", "json"])
        .exits(8);
    assert_eq!(done.json()["verdict"], "environment");
    for (more, told) in [
        (&[][..], "no model is named"),
        (&["--model", "anthropic/x"], "set ANTHROPIC_API_KEY"),
    ] {
        let done = world.call(&[&["run", &plain, "--dry-run"], more].concat()).exits(0);
        assert!(
            done.stderr.contains("would be refused") && done.stderr.contains(told),
            "{}",
            done.stderr
        );
    }
}

#[test]
fn a_dash_is_no_file() {
    let world = World::repo(&[("a.txt", "one\n")]);
    let model = model(&world, &[says("done")]);
    for flag in ["--junit", "--patch", "--transcript"] {
        let args = ["run", "-p", "x", "--model", &model, flag, "-", "--format", "json"];
        let done = world.call(&args).exits(2);
        assert!(
            done.stderr.contains(&format!("{flag} -: write /dev/stdout")),
            "{}",
            done.stderr
        );
        assert_eq!(done.json()["verdict"], "usage");
    }
    world.call(&["resume", "x", "--patch", "-"]).exits(2);
    world.call(&["deliver", "x", "--to", "mbox", "--out", "-"]).exits(2);
    assert!(!world.ws().join("-").exists());
}

/// A CI job may empty one directory and use it for each of its runs.
#[test]
fn the_id_of_a_run_never_means_a_later_run_in_the_same_directory() {
    let world = World::repo(&[("a.txt", "one\n")]);
    let policy = world.beside("open.yaml", open_policy(&[]));
    let run = |file: &str| {
        let model = model(&world, &[writes(file, "b\n"), says("done")]);
        let args = [
            "run",
            "-p",
            "x",
            "--isolate",
            "--model",
            &model,
            "--policy",
            &policy,
            "--out",
            "../same",
            "--format",
            "json",
        ];
        let done = world.call(&args).exits(0).json();
        done["run"].as_str().unwrap().to_owned()
    };
    let first = run("b.txt");
    world.call(&["report", &first, "--format", "result"]).exits(0);
    std::fs::remove_dir_all(world.path().join("same")).unwrap();
    let second = run("c.txt");
    for args in [
        &["report", &first][..],
        &["resume", &first],
        &["runs", "verify", &first],
        &["deliver", &first, "--to", "mbox"],
        &["policy", "suggest", &first],
    ] {
        let done = world.call(args).exits(8);
        let told = format!("the run {first} is gone: its directory");
        assert!(
            done.stderr.contains(&told) && done.stderr.contains(&second),
            "{args:?}: {}",
            done.stderr
        );
    }
    let listed = world.call(&["runs", "list", "--format", "json"]).exits(0).json();
    assert_eq!(listed.as_array().unwrap().len(), 1, "{listed}");
    let told = world.call(&["report", &second, "--format", "result"]).exits(0).json();
    assert_eq!(told["run"], second.as_str());
}

#[test]
fn a_run_directory_is_new_or_empty() {
    let world = World::repo(&[("a.txt", "one\n"), ("tests/it.rs", "x\n")]);
    let good = model(&world, &[says("done")]);
    let before = names(world.path());
    for (out, told) in [
        (".", "is the workspace or contains it"),
        ("..", "is the workspace or contains it"),
        ("tests", "--out tests contains it.rs"),
        ("tests/", "--out tests/ contains it.rs"),
    ] {
        for more in [&["-p", "x", "--model", &good][..], &["no-such.yaml"]] {
            let done = world
                .call(&[&["run", "--out", out, "--format", "json"], more].concat())
                .exits(8);
            assert!(
                done.stderr.contains(told) && done.stderr.contains("name a new or empty directory"),
                "{}",
                done.stderr
            );
            assert_eq!(done.json()["verdict"], "environment");
        }
    }
    let state = |name: &String| name.contains("/home");
    let mut after = names(world.path());
    after.retain(|name| !state(name));
    let mut known = before;
    known.retain(|name| !state(name));
    assert_eq!(after, known, "something was written");
    // What a refused run left is in nobody's way, nor is an empty directory.
    for out in ["../refused", "../empty"] {
        match out {
            "../empty" => std::fs::create_dir(world.path().join("empty")).unwrap(),
            _ => drop(world.call(&["run", "no-such.yaml", "--out", out]).exits(3)),
        }
        world.call(&["run", "-p", "x", "--model", &good, "--out", out]).exits(0);
    }
    let policy = world.beside("policy.yaml", "version: 1\nextends: [builtin:read-only]\n");
    let again = [
        "run", "-p", "x", "--model", &good, "--policy", &policy, "--out", "../empty",
    ];
    let done = world.call(&again).exits(8);
    assert!(done.stderr.contains("`overnight resume ../empty`"), "{}", done.stderr);
}

/// Writing needs a person.
const ASK: &str = "version: 1\nextends: [builtin:edit]\nrules:\n  - { suspend: write_file }\n  - { allow: write_file, paths: ['**'] }\nsandbox: { level: none }\n";

#[test]
fn prune_keeps_what_has_not_come_to_its_end() {
    let world = World::repo(&[("a.txt", "one\n")]);
    let ask = world.beside("ask.yaml", ASK);
    let asks = model(&world, &[writes("b.txt", "b\n"), says("done")]);
    let run = |policy: &str, code: i32| {
        let args = [
            "run", "-p", "x", "--model", &asks, "--policy", policy, "--format", "json",
        ];
        world.call(&args).exits(code).json()["run"].as_str().unwrap().to_owned()
    };
    let waits = run(&ask, 5);
    let open = world.beside("open.yaml", open_policy(&[]));
    let ended = run(&open, 0);
    let done = world.call(&["runs", "prune", "--keep", "0"]).exits(0);
    assert_eq!(done.stdout, format!("{ended}\n"));
    assert!(
        done.stderr.contains(&format!("kept: {waits} (suspended)")) && done.stderr.contains("--all"),
        "{}",
        done.stderr
    );
    let told = world
        .call(&["runs", "prune", "--keep", "0", "--format", "json"])
        .exits(0)
        .json();
    assert_eq!(
        told,
        json!({ "removed": [], "kept": [{ "run": waits, "verdict": "suspended" }] })
    );
    // The work that waits can still be approved; the lines about it name it.
    std::fs::remove_file(world.ws().join("b.txt")).unwrap();
    let done = world.call(&["resume", "--last", "--approve", "c1"]);
    assert_eq!(done.code, 0, "{}", done.stderr);
    let line = done.stderr.lines().find(|line| line.contains("approved by")).unwrap();
    assert!(line.contains("  c1 write_file create b.txt approved by"), "{line}");
    assert_eq!(world.read("b.txt"), "b\n");
    std::fs::remove_file(world.ws().join("b.txt")).unwrap();
    let waits = [run(&ask, 5), waits];
    let done = world.call(&["runs", "prune", "--keep", "0", "--all"]).exits(0);
    for run in waits {
        assert!(done.stdout.contains(&run), "{}", done.stdout);
    }
    assert_eq!(world.call(&["runs"]).exits(0).stdout, "");
}

#[test]
fn a_run_that_was_refused_is_the_newest_one_too() {
    let world = World::repo(&[("a.txt", "one\n")]);
    let writing = model(&world, &[writes("b.txt", "b\n"), says("done")]);
    let policy = world.beside("open.yaml", open_policy(&[]));
    let args = ["run", "-p", "x", "--model", &writing, "--policy", &policy];
    world.call(&args).exits(0);
    std::fs::write(&policy, "version: 1\nrulez: []\n").unwrap();
    world.call(&args).exits(3);
    let listed = world.call(&["runs", "list", "--format", "json"]).exits(0).json();
    let verdicts: Vec<&str> = listed
        .as_array()
        .unwrap()
        .iter()
        .filter_map(|run| run["verdict"].as_str())
        .collect();
    assert_eq!(verdicts, ["passed", "invalid"]);
    assert!(listed[1]["started"].is_string(), "{listed}");
    for args in [&["deliver", "--last", "--to", "branch"][..], &["resume", "--last"]] {
        let done = world.call(args).exits(8);
        assert!(
            done.stderr.contains("failed before it started (invalid)"),
            "{}",
            done.stderr
        );
    }
    assert!(world.git(&["branch", "--list", "overnight/*"]).is_empty());
    let result = world.call(&["report", "--last", "--format", "result"]).exits(0).json();
    assert_eq!(result["verdict"], "invalid");
    let files = world.call(&["report", "--last"]).exits(0).stdout;
    assert!(files.contains("junit.xml") && files.contains("result.json"), "{files}");
    let text = world.call(&["report", "--last", "--format", "summary"]).exits(0).stdout;
    assert!(text.contains("invalid"), "{text}");
    world.call(&["report", "--last", "--format", "html"]).exits(8);
    world.call(&["runs", "verify"]).exits(0);
    let done = world.call(&["runs", "prune", "--keep", "0"]).exits(0);
    assert_eq!(done.stdout.lines().count(), 2, "{}", done.stdout);
    assert_eq!(world.call(&["runs"]).exits(0).stdout, "");
}

#[test]
fn a_run_in_a_named_directory_is_one_of_its_workspace() {
    let world = World::repo(&[("a.txt", "one\n")]);
    let policy = world.beside("open.yaml", open_policy(&[]));
    let ask = world.beside(
        "ask.yaml",
        "version: 1\nextends: [builtin:edit]\nrules: [{ suspend: write_file }]\nsandbox: { level: none }\n",
    );
    let run = |file: &str, policy: &str, out: &[&str], code: i32| {
        let model = model(&world, &[writes(file, "b\n"), says("done")]);
        let args = [
            "run",
            "-p",
            "x",
            "--isolate",
            "--format",
            "json",
            "--model",
            &model,
            "--policy",
            policy,
        ];
        let done = world.call(&[&args[..], out].concat()).exits(code).json();
        done["run"].as_str().unwrap().to_owned()
    };
    let usual = run("b.txt", &policy, &[], 0);
    let named = run("c.txt", &policy, &["--out", "../named"], 0);
    let inside = run("d.txt", &policy, &["--out", "results/mine"], 0);
    let other = World::repo(&[("a.txt", "one\n")]);
    let last = || {
        let told = world.call(&["report", "--last", "--format", "result"]).exits(0).json();
        told["run"].as_str().unwrap().to_owned()
    };
    let listed = || {
        let listed = world.call(&["runs", "list", "--format", "json"]).exits(0).json();
        let run = |run: &Value| run["run"].as_str().unwrap().to_owned();
        listed.as_array().unwrap().iter().map(run).collect::<Vec<_>>()
    };
    assert_eq!(last(), inside);
    assert_eq!(listed(), [usual.as_str(), &named, &inside]);
    let text = world.call(&["runs"]).exits(0).stdout;
    let place = world.path().join("named").canonicalize().unwrap();
    assert!(text.contains(&format!("({})", place.display())), "{text}");
    world.call(&["runs", "verify"]).exits(0);
    let verified = world.call(&["runs", "verify", "--last"]).exits(0).stdout;
    assert!(
        verified.contains("results/mine") && verified.lines().count() == 1,
        "{verified}"
    );
    world.call(&["policy", "suggest", "--last"]).exits(0);
    world.call(&["policy", "suggest", "--last", "x"]).exits(2);
    // It is no run of another tree, and one that is gone is none.
    world
        .call(&["report", "--last", "--workspace", &other.ws().to_string_lossy()])
        .exits(8);
    std::fs::remove_dir_all(world.ws().join("results")).unwrap();
    assert_eq!(last(), named);
    world.beside("home/.gitconfig", "[user]\n\tname = a\n\temail = a@example.org\n");
    world.call(&["deliver", "--last", "--to", "branch"]).exits(0);
    let branches = world.git(&["branch", "--list", "--all", "--format=%(refname:short)"]);
    let delivered = branches.lines().find(|name| *name != "main").unwrap();
    assert_eq!(world.git(&["show", &format!("{delivered}:c.txt")]), "b\n");
    let waits = run("e.txt", &ask, &["--out", "../waits"], 5);
    assert_eq!(last(), waits);
    let done = world.call(&["resume", "--last", "--approve", "c1", "--format", "json"]);
    assert_eq!(done.json()["run"], waits.as_str(), "{}", done.stderr);
    // The runs of a batch are the batch's, and a directory that somebody named is never removed.
    let model = model(&world, &[says("done")]);
    world.beside(
        "ask-only.yaml",
        "version: 1\nname: ask\nsteps: [{ id: ask, prompt: x }]\n",
    );
    let manifest = world.beside(
        "m.yaml",
        format!("version: 1\nrecipe: ask-only.yaml\nmodels: ['{model}']\ntargets: [{{ path: ws }}]\n"),
    );
    world.call(&["batch", &manifest, "--out", "../night"]).exits(0);
    assert_eq!(last(), waits);
    let removed = world.call(&["runs", "prune", "--keep", "0", "--all"]).exits(0).stdout;
    assert_eq!(removed.trim(), usual);
    assert_eq!(listed(), [named, waits]);
}

#[test]
fn what_other_tools_have_is_told_by_what_to_write_here() {
    let world = World::repo(&[
        (
            "recipe.yaml",
            "version: 1\nname: x\nmax_turns: 3\ntimeout: 5m\nretry: 2\nallowed_tools: [x]\npermissions: {}\nmcpServers: {}\nmcp_servers: {}\ninstructions: x\n\
          system: x\noutput_schema: s.json\nparameters: [{ name: a, type: string, required: true }]\n\
          steps:\n  - { id: s, prompt: '{{ params.a }}', model: x }\n  - { id: t, when: failure(), prompt: x, uses: y, script: z }\n",
        ),
        (
            "policy.yaml",
            "version: 1\nrules:\n  - { allow: 'Bash(git:*)' }\n  - { deny: 'Read(src/**)' }\n  - { allow: 'WebFetch(domain:docs.rs)' }\n\
          sandbox: { toolchains: [ruby] }\n",
        ),
        ("settings.json", "{\"permissions\": {\"allow\": [\"Bash(git:*)\"]}}\n"),
        ("config.toml", "model = \"x\"\napproval_policy = \"never\"\n"),
        (
            "default.rules",
            "prefix_rule(pattern = [\"git\"], decision = \"allow\")\n",
        ),
        (".aider.conf.yml", "model: x\n"),
        (
            "fix.md",
            "---\nallowed-tools: Bash(git:*)\ndescription: x\n---\nDo it.\n",
        ),
    ]);
    let told = |args: &[&str], code: i32, wanted: &[&str]| {
        let done = world.call(args).exits(code);
        let said = done.stdout + &done.stderr;
        for one in wanted {
            assert!(said.contains(one), "{args:?}: {one}\n{said}");
        }
    };
    told(
        &["recipe", "check", "recipe.yaml"],
        3,
        &[
            "`budget: { turns: 40 }`",
            "`budget: { wall: 20m }`",
            "retry: { max: 2 } }]`",
            "`tools: { mcp_servers: … }`",
            "`context: [FILE]`",
            "`response: { schema: FILE }`",
            "a parameter without `default` is required",
            "`tools: { include: [read_file] }`",
            "`overnight run RECIPE --policy FILE`",
            "write `model: PROVIDER/NAME` beside `steps`",
            "actions of GitHub are not run here",
            "write `run: COMMAND`",
        ],
    );
    world.file(
        "recipe.yaml",
        "version: 1\nname: x\nparameters: [{ name: a, type: string }, { name: b, type: string }]\n\
         steps:\n  - { id: s, prompt: '{{ params.a }} {{ b }}' }\n  - { id: t, when: failure(), prompt: x }\n",
    );
    told(
        &["recipe", "check", "recipe.yaml"],
        3,
        &[
            "`params` is not declared",
            "a parameter is written `{{ a }}`",
            "write an expression such as",
        ],
    );
    told(
        &["policy", "check", "policy.yaml"],
        3,
        &[
            "write `run_shell_command`, and on a line of its own `commands: [\"git\"]`",
            "write `read_file`, and on a line of its own `paths: [\"src/**\"]`",
            "write `web_fetch`, and on a line of its own `hosts: [\"docs.rs\"]`",
            "write one of `rust`, `node`",
        ],
    );
    for (file, wanted) in [
        ("settings.json", "a settings.json of Claude Code"),
        ("config.toml", "a config.toml of Codex"),
        ("default.rules", "a file of command rules of Codex"),
        (".aider.conf.yml", "a configuration of aider"),
        ("fix.md", "a custom command of Claude Code"),
    ] {
        for command in ["policy", "recipe"] {
            told(&[command, "check", file], 3, &[wanted, "it is not read here"]);
        }
    }
    for args in [
        &["tools", "call", "Bash", "--args", "{}"][..],
        &["policy", "explain", "builtin:edit", "--tool", "Bash", "--args", "{}"],
    ] {
        let done = world.call(args);
        assert!(
            done.code != 0 && done.stderr.contains("did you mean run_shell_command?"),
            "{}",
            done.stderr
        );
    }
    let done = world.call(&[
        "run",
        "-p",
        "x",
        "-m",
        "script:x",
        "--output-schema",
        "{\"type\":\"object\"}",
    ]);
    assert!(done.exits(3).stderr.contains("the schema is written into a file"));
}

#[test]
fn a_refused_run_in_the_tree_leaves_nothing_that_git_sees() {
    let world = World::repo(&[("a.txt", "one\n")]);
    let policy = world.beside("policy.yaml", "version: 1\nrulez: []\n");
    let model = model(&world, &[says("done")]);
    let args = ["run", "-p", "x", "--model", &model, "--policy", &policy, "--out", "out"];
    let result = world.call(&[&args[..], &["--format", "json"]].concat()).exits(3).json();
    assert!(world.ws().join("out/result.json").is_file());
    assert_eq!(world.git(&["status", "--porcelain"]), "");
    let out = world.ws().canonicalize().unwrap().join("out");
    assert_eq!(result["artefacts"]["directory"], out.to_string_lossy().as_ref());
}

/// Their ids differ only in random digits behind the second.
#[test]
fn runs_of_one_second_are_in_the_order_in_which_they_began() {
    let world = World::repo(&[("a.txt", "one\n")]);
    let model = model(&world, &[says("done")]);
    let names = ["e", "c", "a", "d", "b"];
    for (at, name) in names.iter().enumerate() {
        // One of them is refused before it began.
        let (key, code) = if at == 2 { ("promt", 3) } else { ("prompt", 0) };
        let text = format!("version: 1\nname: {name}\nsteps: [{{ id: s, {key}: x }}]\n");
        let recipe = world.beside(&format!("{name}.yaml"), text);
        world.call(&["run", &recipe, "--model", &model]).exits(code);
    }
    let order = || {
        let listed = world.call(&["runs", "list", "--format", "json"]).exits(0).json();
        let recipe = |run: &Value| run["recipe"].as_str().unwrap().to_owned();
        listed.as_array().unwrap().iter().map(recipe).collect::<Vec<_>>()
    };
    assert_eq!(order(), names);
    let last = world.call(&["report", "--last", "--format", "result"]).exits(0).json();
    assert_eq!(last["recipe"], names[4]);
    world.call(&["runs", "prune", "--keep", "3"]).exits(0);
    assert_eq!(order(), names[2..]);
}

#[test]
fn runs_of_no_directory_are_a_mistake() {
    let world = World::new();
    for args in [
        &["runs", "list"][..],
        &["runs"],
        &["runs", "prune", "--keep", "3"],
        &["runs", "verify"],
        &["report", "--last"],
    ] {
        let done = world.call(&[args, &["--workspace", "nope"]].concat()).exits(8);
        assert!(
            done.stderr.contains("nope is not a directory"),
            "{args:?}: {}",
            done.stderr
        );
    }
    assert_eq!(world.call(&["runs", "list"]).exits(0).stdout, "");
}

/// Its parent's repository is not delivered to instead.
#[test]
fn a_repository_that_is_not_there_is_delivered_to_by_nobody() {
    let world = World::repo(&[("a.txt", "one\n")]);
    let done = world
        .call(&["deliver", "x", "--to", "branch", "--repo", "nope"])
        .exits(8);
    assert!(
        done.stderr.contains("--repo: nope is not a directory"),
        "{}",
        done.stderr
    );
}

#[test]
fn every_refusal_has_its_object_with_format_json() {
    let world = World::repo(&[
        ("p.yaml", "version: 1\nrules: []\n"),
        ("bad.yaml", "version: 1\nrulez: []\n"),
    ]);
    let (error, batch, run) = ("overnight/error/v1", "overnight/batch/v1", "overnight/result/v1");
    let cases: [(&[&str], i32, &str); 27] = [
        (&["batch"], 2, batch),
        (&["batch", "none.yaml"], 3, batch),
        (&["-C", "nope", "run", "-p", "x"], 8, run),
        (&["-C", ".", "run"], 2, run),
        (&["-C", "nope", "runs", "list"], 8, error),
        (&["compare", "a", "b"], 3, error),
        (&["deliver", "nope", "--to", "branch"], 8, error),
        (&["deliver", "nope"], 2, error),
        (&["merge", "nope", "--out", "m"], 3, batch),
        (&["runs", "verify", "nope"], 8, error),
        (&["runs", "list", "--workspace", "nope"], 8, error),
        (&["runs", "prune", "--keep", "1", "--workspace", "nope"], 8, error),
        (&["recipe", "list", "nope"], 8, error),
        (&["recipe", "show", "none.yaml"], 3, error),
        (&["recipe", "test", "none.yaml"], 3, error),
        (&["recipe", "test", "none.yaml", "--no-such-flag"], 2, error),
        (&["policy", "test", "none.yaml", "--cases", "c.yaml"], 3, error),
        (&["policy", "test", "p.yaml", "--cases", "bad.yaml"], 3, error),
        (&["policy", "explain", "none.yaml", "--command", "ls"], 3, error),
        (&["policy", "explain", "p.yaml"], 2, error),
        (&["policy", "import", "none.toml"], 3, error),
        (&["policy", "suggest", "nope"], 8, error),
        (&["init", "nope"], 8, error),
        (&["recipe", "new", "bad.yaml"], 8, error),
        (&["recipe", "new", "new.yaml", "--from", "none.yaml"], 3, error),
        (&["tools", "call", "read_file", "--args", "{bad"], 2, error),
        (&["tools", "list", "--recipe", "none.yaml"], 3, error),
    ];
    let published = world.call(&["schema", "error"]).exits(0).json();
    let published = jsonschema::validator_for(&published).unwrap();
    for (args, code, schema) in cases {
        let done = world.call(&[args, &["--format", "json"]].concat());
        assert_eq!(done.code, code, "{args:?}\n{}\n{}", done.stdout, done.stderr);
        let object = done.json();
        assert_eq!(
            (&object["schema"], &object["exit_code"]),
            (&json!(schema), &json!(code)),
            "{args:?}"
        );
        if schema == error {
            assert!(published.is_valid(&object), "{args:?}: {object}");
        }
        assert!(object["verdict"].is_string(), "{args:?}: {object}");
        let message = object["message"].as_str().unwrap();
        assert!(
            !message.is_empty() && !message.starts_with("error: "),
            "{args:?}: {message}"
        );
        assert!(!done.stderr.is_empty(), "{args:?}");
        // Problems of files have one prefix, their position.
        assert!(
            !done.stderr.starts_with("error: ") || !done.stderr.contains("error["),
            "{}",
            done.stderr
        );
        let plain = world.call(args);
        assert_eq!((plain.code, plain.stdout.as_str()), (code, ""), "{args:?}");
    }
}

#[test]
fn what_no_run_of_a_recipe_could_use_is_told_by_its_check() {
    let recipe = "version: 1\nname: r\nmodel: [script:none.yaml, replay:nowhere]\n\
        input: { schema: { type: object, properties: { title: { type: string } }, additionalProperties: false } }\n\
        tools:\n  discovery: { command: 'list | head', call: '' }\n  mcp_servers: { s: { command: '' } }\n\
        steps: [{ id: a, prompt: '{{ input.titel }} {{ input.title }}' }]\n";
    let world = World::repo(&[("r.yaml", recipe)]);
    let found = world
        .call(&["recipe", "check", "r.yaml", "--format", "json"])
        .exits(3)
        .json();
    let problems = found["files"][0]["problems"].as_array().unwrap();
    let told: Vec<(u64, &str)> = problems
        .iter()
        .map(|one| (one["line"].as_u64().unwrap(), one["code"].as_str().unwrap()))
        .collect();
    let expected = [
        (3, "no-replies"),
        (3, "no-replies"),
        (6, "bad-command"),
        (6, "bad-command"),
        (7, "bad-command"),
        (8, "undefined-input"),
    ];
    assert_eq!(told, expected, "{found}");
    let mended = recipe
        .replace("list | head", "list \"b | c\"")
        .replace("call: ''", "call: call")
        .replace("command: ''", "command: server");
    world.file("r.yaml", mended);
    world.call(&["recipe", "check", "r.yaml"]).exits(0);
}

#[test]
fn a_run_that_cannot_be_found_says_where_to_look() {
    let world = World::repo(&[("a.txt", "one\n"), ("night/batch.jsonl", ""), ("all/runs.jsonl", "")]);
    for command in [&["resume"][..], &["report"], &["runs", "verify"]] {
        let call = |name: &str| world.call(&[command, &[name]].concat()).exits(8).stderr;
        let told = call("20261122");
        assert!(told.contains("overnight runs list"), "{told}");
        let told = call("night");
        assert!(told.contains("night/jobs/JOB/DIGEST"), "{told}");
        let told = call("all/");
        assert!(told.contains("a line of all/runs.jsonl"), "{told}");
    }
    let told = world.call(&["runs", "verify"]).exits(8).stderr;
    assert!(told.contains("no run to verify"), "{told}");
    for command in ["resume", "report"] {
        let done = world.call(&[command]).exits(2);
        assert!(
            done.stderr.contains(&format!("overnight {command} [OPTIONS] --last")),
            "{}",
            done.stderr
        );
    }
}

#[test]
fn what_is_to_be_typed_is_quoted() {
    let world = World::repo(&[
        (".gitignore", "a, b\n"),
        ("a, b/x", ""),
        ("sp ace/go.mod", "module x\n"),
    ]);
    let told = world.call(&["init", "sp ace"]).exits(0).stdout;
    assert!(
        told.contains("overnight -C 'sp ace' run ci/fix-tests.yaml --policy ci/overnight-policy.yaml"),
        "{told}"
    );
    let model = model(&world, &[says("done")]);
    let run = |more: &[&str]| world.call(&[&["run", "-p", "x", "--model", &model, "--out", "../o ut"], more].concat());
    let done = run(&["--isolate"]).exits(0);
    assert!(
        done.stderr.contains("`isolate: { keep: [\"a, b\"] }`"),
        "{}",
        done.stderr
    );
    let done = run(&[]).exits(8);
    assert!(done.stderr.contains("`overnight resume '../o ut'`"), "{}", done.stderr);
}

#[test]
fn a_sample_has_one_id_and_is_not_the_newest_run() {
    let world = World::repo(&[("a.txt", "one\n")]);
    let sample = world
        .call(&["run", "builtin:triage-issue", "--sample", "--format", "json"])
        .exits(0)
        .json();
    let listed = world.call(&["runs", "list", "--format", "json"]).exits(0).json();
    let id = listed[0]["run"].as_str().unwrap();
    assert_eq!(sample["run"], id);
    assert!(listed[0]["directory"].as_str().unwrap().ends_with(id));
    world.call(&["report", id, "--format", "text"]).exits(0);
    let done = world.call(&["report", "--last"]).exits(8);
    assert!(
        done.stderr.contains("those of --sample do not count"),
        "{}",
        done.stderr
    );
    let model = model(&world, &[shell("true"), says("done")]);
    let run = world
        .call(&["run", "-p", "x", "--model", &model, "--format", "json"])
        .json();
    world
        .call(&["run", "builtin:triage-issue", "--sample", "--quiet"])
        .exits(0);
    let last = world.call(&["report", "--last", "--format", "result"]).exits(0).json();
    assert_eq!(last["run"], run["run"]);
}

#[test]
fn one_is_not_many() {
    let world = World::new();
    let told = world.call(&["recipe", "test", "builtin:triage-issue"]).exits(0).stdout;
    assert!(told.ends_with("1 sample, 0 failed\n"), "{told}");
}

#[test]
fn suggested_rules_say_where_they_go_and_load_as_printed() {
    let world = World::repo(&[("a.txt", "one\n")]);
    let fetch = "curl -s https://docs.rs/serde";
    let replies = script(&[shell(fetch), writes("b.txt", "b\n"), says("could not")]);
    let policy = "version: 1\nextends: [builtin:read-only]\n";
    world.run(&replies, policy, &["-p", "x"]).exits(4);
    let out = world.out().to_string_lossy().into_owned();
    let text = world.call(&["policy", "suggest", &out]).exits(0).stdout;
    let used = world.path().join("policy.yaml");
    assert!(text.starts_with("# "), "{text}");
    for part in [
        format!("# It goes into `{}`:\n", used.display()).as_str(),
        "overnight policy check FILE",
        "sandbox:\n",
        "network: [\"docs.rs\"]",
        "b.txt",
    ] {
        assert!(text.contains(part), "{part}\n{text}");
    }
    let more = world.beside("more.yaml", &text);
    world.call(&["policy", "check", &more]).exits(0);
    for command in [fetch, "curl -s https://evil.example/"] {
        let told = world
            .call(&["policy", "explain", &more, "--command", command])
            .exits(0)
            .stdout;
        assert_eq!(told.starts_with("allow"), command == fetch, "{told}");
    }
}

#[test]
fn a_temporary_directory_that_is_not_there_is_named_before_a_model_is_asked() {
    let world = World::new().env("TMPDIR", "/nope");
    let model = model(&world, &[says("done")]);
    let out = world.out().to_string_lossy().into_owned();
    let done = world
        .call(&["run", "-p", "hi", "--model", &model, "--out", &out])
        .exits(8);
    assert!(done.stderr.contains("TMPDIR=/nope"), "{}", done.stderr);
    assert_eq!(done.stdout, "");
    let done = world.call(&["doctor"]).exits(8);
    assert!(
        done.stdout.contains("TMPDIR=/nope") && !done.stdout.contains("level: none"),
        "{}",
        done.stdout
    );
}

#[test]
fn a_nul_byte_in_a_command_is_told_at_its_place_before_anything_runs() {
    let world = World::repo(&[("a.txt", "one\n")]);
    let head = "version: 1\nname: r\n";
    for (text, place) in [
        ("steps:\n  - id: a\n    run: \"printf a\\0b\"\n", ":5:10"),
        (
            "steps:\n  - id: a\n    prompt: go\n    checks:\n      - run: \"echo \\0\"\n",
            ":7:14",
        ),
        (
            "steps:\n  - id: a\n    prompt: go\n    checks:\n      - answer: { run: \"echo \\0\" }\n",
            ":7:24",
        ),
        (
            "tools:\n  mcp_servers:\n    s:\n      command: cat\n      args: [\"a\\0\"]\nsteps:\n  - { id: a, prompt: go }\n",
            ":7:14",
        ),
    ] {
        let recipe = world.beside("nul.yaml", format!("{head}{text}"));
        let done = world.call(&["recipe", "check", &recipe]).exits(3);
        let told = format!("{}{}", done.stdout, done.stderr);
        assert!(
            told.contains("NUL byte") && told.contains(&format!("nul.yaml{place}")),
            "{told}"
        );
        let model = model(&world, &[says("done")]);
        world.call(&["run", &recipe, "--model", &model]).exits(3);
    }
    // The control: what prints one.
    let recipe = world.beside(
        "nul.yaml",
        format!("{head}steps:\n  - id: a\n    run: \"printf 'a\\\\000b'\"\n"),
    );
    world.call(&["recipe", "check", &recipe]).exits(0);
}

#[test]
fn what_was_meant_is_named() {
    let recipe = "version: 1\nname: a\nsteps:\n  - { id: a, run: ls }\n";
    let world = World::repo(&[
        ("ci/fix.yaml", recipe),
        ("ci/policy.yaml", "version: 1\nextends: [builtin:edit]\n"),
        ("fleet.yaml", "version: 1\nname: a\ntargets: []\n"),
        ("replies.yaml", "replies:\n  - text: hi\n"),
        ("README.md", "# A project\n"),
        (
            "keys.yaml",
            "version: 1\nname: a\nprompt: x\npolicy: [builtin:python]\nparameters: { x: y }\nexpect: { change: true }\n\
             tools: { mcp_servers: [docs] }\nbudget: { time: 20m, calls: 40 }\nsteps:\n  - id: a\n    command: ls\n    retries: 2\n    \
             checks: pytest\n  - id: b\n    prompt: x\n    checks: [{ changed: src/** }, { name: n, changed: { never: [/a, 'b\\c'], only: [src] } }]\n",
        ),
        (
            "server.yaml",
            "version: 1\nname: a\ntools: { mcp_servers: { docs: { command: docs --stdio } } }\nsteps:\n  - { id: a, prompt: x }\n",
        ),
        (
            "glob.yaml",
            "version: 1\nname: a\nsteps:\n  - id: a\n    prompt: x {{ nme }}\n    checks:\n      - { name: c, changed: { only: [**/*.py, *name] } }\n",
        ),
        (
            "names.yaml",
            "version: 1\nname: a\nsteps:\n  - { id: a, prompt: \"{{ nme }} {{ env.TOKEN }} {{ inputs.x }}\" }\n",
        ),
        (
            "goose.yaml",
            "version: 1.0.0\ntitle: t\ndescription: d\nprompt: p\nextension: []\n",
        ),
    ]);
    world.file("ci/new.yaml", recipe);
    let told = |args: &[&str], code: i32, wanted: &[&str]| {
        let done = world.call(args).exits(code);
        for wanted in wanted {
            assert!(done.stderr.contains(wanted), "{args:?}: {wanted}\n{}", done.stderr);
        }
    };
    told(
        &["run", "git:origin/main:ci/fix.yaml"],
        3,
        &["`git fetch origin main`", "fetch-depth: 0"],
    );
    told(&["run", "git:HEAD:ci/new.yaml"], 3, &["not in HEAD: commit it"]);
    told(
        &["run", "git:HEAD:ci/fix.yml"],
        3,
        &["did you mean `git:HEAD:ci/fix.yaml`?"],
    );
    told(
        &["recipe", "check", "glob.yaml"],
        3,
        &["quote it: `\"**/*.py\"`", "an alias (`*name`) is not allowed"],
    );
    told(
        &["recipe", "check", "fleet.yaml"],
        3,
        &["`overnight batch fleet.yaml --dry-run` checks it"],
    );
    told(
        &["policy", "check", "ci/fix.yaml"],
        3,
        &["`overnight recipe check ci/fix.yaml` checks it"],
    );
    told(
        &["recipe", "check", "keys.yaml"],
        3,
        &[
            "write it in a step: `steps: [",
            "write one policy, as in `policy: FILE`",
            "`parameters: [{ name: NAME, type: string }]`",
            "`expect` must be one of `change`, `no_change` and `any`",
            "`mcp_servers: { docs: { command: docs-server } }`",
            "write `wall: 20m`",
            "`calls: { run_shell_command: 40 }`",
            "write `run: COMMAND`",
            "write `retry: { max: 2 }`",
            "`checks: [{ run: ./run-tests }]`",
            "`changed: { only: [src/**] }`",
            "`/a`: patterns are relative to the workspace",
            "`b\\c`: `\\` does not separate directories",
            "`src` is one path, not what is below it",
        ],
    );
    told(&["recipe", "check", "server.yaml"], 3, &["`args: [\"--stdio\"]`"]);
    told(&["run", "README.md"], 3, &["`overnight run -p @README.md`"]);
    told(
        &["policy", "test", "ci/policy.yaml", "--cases", "ci/policy.yaml"],
        3,
        &["this is a policy, not a table of cases"],
    );
    told(&["batch", "ci"], 3, &["ci is a directory"]);
    told(&["run", "replies.yaml"], 3, &["`--model script:replies.yaml`"]);
    told(&["run", "ci/fix.yml"], 3, &["did you mean `ci/fix.yaml`?"]);
    told(
        &["run", "ci/fix.yaml", "--policy", "ci/policy.yml"],
        3,
        &["did you mean `ci/policy.yaml`?"],
    );
    told(
        &["run", "ci/fix.yaml", "--params", "version=1.2.0"],
        2,
        &["`--param version=1.2.0`"],
    );
    told(
        &["recipe", "check", "names.yaml"],
        3,
        &[
            "`parameters: [{ name: nme, type: string }]`",
            "`env: { pass: [TOKEN] }`",
            "did you mean `input`?",
        ],
    );
    told(&["recipe", "check", "goose.yaml"], 0, &["did you mean `extensions`?"]);
    let checked = world
        .call(&["recipe", "check", "ci/fix.yml", "--format", "json"])
        .exits(3)
        .json();
    let help = &checked["files"][0]["problems"][0]["help"];
    assert_eq!(help, "did you mean `ci/fix.yaml`?", "{checked}");
}

#[test]
fn a_quiet_run_tells_of_unread_stdin_and_a_schema_may_come_from_it() {
    let world = World::repo(&[("a.txt", "one\n")]);
    let model = model(&world, &[says("{\"kind\": 1}")]);
    let run = ["run", "-p", "x", "--model", &model, "--quiet"];
    let done = world.call_with(&run, "never read\n").exits(0);
    assert_eq!(done.stdout, "");
    assert!(
        done.stderr.contains("warning[unread_stdin]: stdin has data"),
        "{}",
        done.stderr
    );
    // A run that fails tells it once, among what was held back.
    let refusal = json!({"error": {"class": "auth", "message": "no such key"}});
    let refused = format!("script:{}", world.beside("refused.yaml", script(&[refusal])));
    let done = world.call_with(&["run", "-p", "x", "--model", &refused, "--quiet"], "never read\n");
    assert_ne!(done.code, 0, "{}", done.stderr);
    let told = done.stderr.matches("warning[unread_stdin]").count();
    assert_eq!(told, 1, "{}", done.stderr);
    let schema = [&run[..], &["--output-schema", "-"]].concat();
    let done = world.call_with(&schema, "{\"required\": [\"other\"]}");
    assert_ne!(done.code, 0, "{}", done.stderr);
    assert!(!done.stderr.contains("error["), "{}", done.stderr);
    let done = world
        .call_with(&["run", "-p", "x", "--model", &model, "--input", "-"], "")
        .exits(3);
    assert!(done.stderr.contains("stdin is empty"), "{}", done.stderr);
}
