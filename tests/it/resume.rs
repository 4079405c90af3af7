//! Runs that go on: after the model service failed, with another model, another budget, on another machine.

use super::harness::{Done, World, calls, git_in, open_policy, says, script, shell, under, until, writes};
use super::service::{Answer, Service};
use super::wires::{Turn, WIRES, Wire};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::process::Stdio;

fn tree() -> World {
    World::repo(&[("a.txt", "one\n"), ("src/b.txt", "b\n")])
}

fn edits() -> Vec<Turn> {
    vec![
        Turn::calls(&[("write_file", json!({"file_path": "first.txt", "content": "first\n"}))]),
        Turn::calls(&[("write_file", json!({"file_path": "second.txt", "content": "second\n"}))]),
        Turn::says("Both are there."),
    ]
}

/// The first reply, then an error that no waiting helps against.
fn failing(wire: Wire) -> Service {
    let mut answers = wire.answers(&edits()[..1]);
    let refused = "{\"error\":{\"message\":\"the model is retired\",\"type\":\"invalid_request_error\"}}";
    answers.push(Answer::Status(404, Vec::new(), refused.to_owned()));
    Service::new(answers)
}

fn start(world: &World, wire: Wire, code: i32) -> String {
    let policy = world.beside("policy.yaml", open_policy(&[]));
    let out = world.out().to_string_lossy().into_owned();
    let args = [
        "run", "-p", "do it", "--model", wire.model, "--policy", &policy, "--out", &out,
    ];
    world.call(&args).exits(code);
    out
}

fn patch(world: &World) -> String {
    std::fs::read_to_string(world.out().join("changes.patch")).unwrap()
}

#[test]
fn another_vendors_model_goes_on_where_one_failed() {
    let count = WIRES.len();
    for (n, wire) in WIRES.into_iter().enumerate() {
        let next = WIRES[(n + 1) % count];
        let failing = failing(wire);
        let going_on = next.service(&edits()[1..]);
        // Gemini and Anthropic share no variable with OpenAI's two wires, which share one: the flag names the service.
        let world = tree().env(wire.key, "k-0123456789").env(next.key, "k-0123456789");
        let world = world.env(wire.base, format!("{}{}", failing.url, wire.version));
        let out = start(&world, wire, 7);
        let failed = world.result();
        assert_eq!(
            (&failed["verdict"], &failed["partial"]),
            (&json!("provider"), &json!(true)),
            "{wire:?}"
        );
        assert!(patch(&world).contains("+first\n"), "{wire:?}");
        let base = format!("{}{}", going_on.url, next.version);
        let args = [
            "resume",
            &out,
            "--model",
            next.model,
            "--base-url",
            &base,
            "--max-turns",
            "3",
            "--format",
            "json",
        ];
        let object = world.call(&args).exits(0).json();
        assert_eq!(
            (&object["verdict"], &object["usage"]["turns"], &object["response"]),
            (&json!("passed"), &json!(3), &json!("Both are there.")),
            "{wire:?} to {next:?}"
        );
        let told = going_on.seen()[0].body.to_string();
        assert!(
            told.contains("first.txt") && told.contains("do it"),
            "{next:?} is told what was done before"
        );
        assert!(
            patch(&world).contains("+first\n") && patch(&world).contains("+second\n"),
            "{next:?}"
        );
        assert_eq!(failing.seen().len(), 2, "{wire:?} is not asked again");
    }
}

#[test]
fn a_budget_given_at_the_resume_holds_and_counts_what_was_spent_before() {
    let wire = WIRES[0];
    let failing = failing(wire);
    let world = wire.world(&failing, tree());
    let out = start(&world, wire, 7);
    let endless: Vec<Turn> = (0..20)
        .map(|n| Turn::calls(&[("write_file", json!({"file_path": "a.txt", "content": format!("{n}\n")}))]))
        .collect();
    let service = wire.service(&endless);
    for (flags, reason, asked) in [
        (&["--max-turns", "1"][..], "limit:turns", 0),
        (&["--max-turns", "9", "--max-tokens", "1027"], "limit:tokens", 0),
        (&["--max-turns", "4", "--max-tokens", "1000000"], "limit:turns", 3),
    ] {
        let args = [&["resume", &out, "--base-url", &service.url][..], flags].concat();
        world.call(&args).exits(6);
        assert_eq!(world.result()["reason"], reason);
        assert_eq!(service.seen().len(), asked, "{flags:?}");
    }
}

/// What a result says to do next, in a shell in the workspace.
fn approved(world: &World) -> Done {
    let approve = world.result()["suspended"][0]["approve"].as_str().unwrap().to_owned();
    let words: Vec<&str> = approve.split(' ').collect();
    assert_eq!(words[0], "overnight", "{approve}");
    world.call(&words[1..])
}

#[test]
fn a_limit_given_at_a_resume_holds_for_the_resumes_after_it() {
    let world = tree();
    let read = calls("read_file", json!({"file_path": "a.txt"}));
    let replies = script(&[read, writes("b.txt", "b\n"), says("done")]);
    let policy = "version: 1\nextends: [builtin:edit]\nrules:\n  - { suspend: write_file, paths: [b.txt] }\n";
    world.run(&replies, policy, &["-p", "x", "--max-turns", "1"]).exits(6);
    let out = world.out().to_string_lossy().into_owned();
    world.call(&["resume", &out, "--max-turns", "5"]).exits(5);
    approved(&world).exits(0);
    assert_eq!(world.read("b.txt"), "b\n");
}

/// The paths of scripts and recorded runs are relative to the directory in which a command line named them.
#[test]
fn a_script_is_found_from_another_directory() {
    let world = tree();
    let elsewhere = world.path().join("home");
    let from = |dir: &Path, args: &[&str]| Done::of(world.command(args).current_dir(dir).output().unwrap());
    let (ws, out) = (world.ws(), world.out().to_string_lossy().into_owned());
    world.beside("one.yaml", script(&[writes("b.txt", "b\n")]));
    world.beside(
        "two.yaml",
        script(&[says("unused"), writes("c.txt", "c\n"), says("done")]),
    );
    let policy = "version: 1\nextends: [builtin:edit]\nrules:\n  - { suspend: write_file }\n";
    let policy = world.beside("policy.yaml", policy);
    let run = [
        "run",
        "-p",
        "x",
        "--model",
        "script:../one.yaml",
        "--policy",
        &policy,
        "--out",
        &out,
    ];
    from(&ws, &run).exits(5);
    // The script is found, and has no second reply.
    let resume = ["resume", &out, "--approve", "c1"];
    let told = from(&elsewhere, &resume).exits(1).stderr;
    assert!(told.contains("the script has 1 reply"), "{told}");
    // Another model that a resume names is that of the resumes after it.
    from(world.path(), &["resume", &out, "--model", "script:two.yaml"]).exits(5);
    from(&elsewhere, &["resume", &out, "--approve", "c2"]).exits(0);
    assert_eq!(
        (world.read("b.txt"), world.read("c.txt")),
        ("b\n".to_owned(), "c\n".to_owned())
    );
}

fn copy(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let target = to.join(entry.file_name());
        match entry.file_type().unwrap().is_dir() {
            true => copy(&entry.path(), &target),
            // The git of a killed run may be at work a moment more, and takes its temporary files away.
            false => match std::fs::copy(entry.path(), &target) {
                Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
                copied => drop(copied.unwrap()),
            },
        }
    }
}

/// Another machine: the run directory was copied there, and the repository cloned. The first one is gone.
fn moved(world: World) -> (World, PathBuf, String) {
    let other = World::new();
    copy(&world.out(), &other.out());
    let clone = other.path().join("clone");
    git_in(other.path(), &["clone", "-q", &world.ws().to_string_lossy(), "clone"]);
    drop(world);
    let out = other.out().to_string_lossy().into_owned();
    (other, clone, out)
}

#[test]
fn a_run_goes_on_on_another_machine() {
    let wire = WIRES[3];
    let whole = wire.service(&edits());
    let straight = wire.world(&whole, tree());
    start(&straight, wire, 0);

    let failing = failing(wire);
    let world = wire.world(&failing, tree());
    start(&world, wire, 7);
    let (other, clone, out) = moved(world);
    let rest = wire.service(&edits()[1..]);
    let other = wire.world(&rest, other);
    let clone_name = clone.to_string_lossy().into_owned();
    let args = ["resume", &out, "--workspace", &clone_name];
    let done = other.call(&args).exits(8);
    assert!(
        done.stderr.contains("--policy"),
        "the policy is not here: {}",
        done.stderr
    );
    let policy = other.beside("policy.yaml", open_policy(&[]));
    other.call(&[&args[..], &["--policy", &policy]].concat()).exits(0);
    assert_eq!(patch(&straight), patch(&other), "as if nothing had happened in between");
    for (file, text) in [("first.txt", "first\n"), ("second.txt", "second\n")] {
        assert_eq!(std::fs::read_to_string(clone.join(file)).unwrap(), text);
    }
}

#[test]
fn a_policy_that_came_from_stdin_is_not_asked_for_again() {
    let world = tree();
    let replies = script(&[writes("b.txt", "b\n"), says("done")]);
    let model = format!("script:{}", world.beside("script.yaml", replies));
    let policy = "version: 1\nextends: [builtin:edit]\nrules:\n  - { suspend: write_file, paths: [b.txt] }\n";
    let out = world.out().to_string_lossy().into_owned();
    let run = ["run", "-p", "x", "--model", &model, "--policy", "-", "--out", &out];
    world.call_with(&run, policy).exits(5);
    let resume = ["resume", &out, "--approve", "c1"];
    let told = world.call(&resume).exits(8).stderr;
    assert!(
        told.contains("came from stdin") && told.contains("with --policy"),
        "{told}"
    );
    let named = world.beside("policy.yaml", policy);
    world.call(&[&resume[..], &["--policy", &named]].concat()).exits(0);
    assert_eq!(world.read("b.txt"), "b\n");
}

#[test]
fn a_policy_is_read_again_from_where_it_was_and_not_from_where_the_resume_is() {
    let world = tree();
    let replies = script(&[writes("b.txt", "b\n"), says("done")]);
    let model = format!("script:{}", world.beside("script.yaml", replies));
    world.beside("base.yaml", "version: 1\nextends: [builtin:edit]\n");
    world.beside(
        "rules.yaml",
        "version: 1\nextends: [base.yaml]\nrules:\n  - { suspend: write_file, paths: [b.txt] }\n",
    );
    let out = world.out().to_string_lossy().into_owned();
    let run = [
        "run",
        "-p",
        "x",
        "--model",
        &model,
        "--policy",
        "../rules.yaml",
        "--out",
        &out,
    ];
    world.call(&run).exits(5);
    let elsewhere = world.path().join("home");
    let resume = |answer: &[&str]| {
        let args = [&["resume", out.as_str()][..], answer].concat();
        Done::of(world.command(&args).current_dir(&elsewhere).output().unwrap())
    };
    // What has changed there is told, and nothing beside the resume stands in for it.
    world.beside("base.yaml", "version: 1\nextends: [builtin:edit]\nrules: []\n");
    let told = resume(&["--approve", "c1"]).exits(8).stderr;
    assert!(told.contains("has changed since the run began"), "{told}");
    world.beside("base.yaml", "version: 1\nextends: [builtin:edit]\n");
    resume(&["--approve", "c1"]).exits(0);
    assert_eq!(world.read("b.txt"), "b\n");
}

#[test]
fn a_suspended_run_is_approved_on_another_machine() {
    let policy = "version: 1\nextends: [builtin:edit]\nrules:\n  - { suspend: write_file, paths: [b.txt] }\n";
    let world = tree();
    let replies = json!({"calls": [
        {"tool": "write_file", "args": {"file_path": "a.txt", "content": "two\n"}},
        {"tool": "write_file", "args": {"file_path": "b.txt", "content": "b\n"}},
    ]});
    let text = script(&[replies, says("done")]);
    world.run(&text, policy, &["-p", "x"]).exits(5);
    let (other, clone, out) = moved(world);
    let model = format!("script:{}", other.beside("script.yaml", &text));
    let here = clone.to_string_lossy();
    let policy = other.beside("policy.yaml", policy);
    let result: Value =
        serde_json::from_str(&std::fs::read_to_string(other.out().join("result.json")).unwrap()).unwrap();
    let approve = result["suspended"][0]["approve"]
        .as_str()
        .unwrap()
        .rsplit_once(' ')
        .unwrap()
        .1
        .to_owned();
    let with = |approve: &str| {
        let args = [
            "resume",
            &out,
            "--workspace",
            &here,
            "--model",
            &model,
            "--policy",
            &policy,
            "--approve",
            approve,
        ];
        other.call(&args)
    };
    let done = with("c2").exits(2);
    assert!(done.stderr.contains("c2@DIGEST"), "{}", done.stderr);
    let done = with("c2@0123456789ab").exits(2);
    assert!(
        done.stderr.contains("0123456789ab") && done.stderr.contains(&approve),
        "{}",
        done.stderr
    );
    with("c2@01").exits(2);
    assert!(!clone.join("b.txt").exists());
    with(&approve).exits(0);
    assert!(
        patch(&other).contains("+two\n") && patch(&other).contains("+b\n"),
        "{}",
        patch(&other)
    );
}

#[test]
fn a_tree_that_is_neither_as_it_was_left_nor_as_it_was_found_is_refused() {
    let wire = WIRES[0];
    let failing = failing(wire);
    let world = wire.world(&failing, tree());
    start(&world, wire, 7);
    let (other, clone, out) = moved(world);
    let rest = wire.service(&edits()[1..]);
    let other = wire.world(&rest, other);
    std::fs::write(clone.join("a.txt"), "somebody was here\n").unwrap();
    let policy = other.beside("policy.yaml", open_policy(&[]));
    let args = [
        "resume",
        &out,
        "--workspace",
        &clone.to_string_lossy(),
        "--policy",
        &policy,
    ];
    let done = other.call(&args).exits(8);
    assert!(done.stderr.contains("neither as the run left it"), "{}", done.stderr);
    assert_eq!(rest.seen().len(), 0);
    assert_eq!(
        std::fs::read_to_string(clone.join("a.txt")).unwrap(),
        "somebody was here\n"
    );
}

/// Kills a run after its first call has ended, before the model answers again.
fn killed(world: &World, first: Value, more: &[&str]) -> String {
    killed_of(world, &[&["-p", "x"][..], more].concat(), first)
}

/// As [`killed`], of a run of these arguments.
fn killed_of(world: &World, task: &[&str], first: Value) -> String {
    let slow = json!({"text": "late", "delay_ms": 60_000});
    let model = format!("script:{}", world.beside("script.yaml", script(&[first, slow])));
    let policy = world.beside("policy.yaml", open_policy(&["echo", "true"]));
    let out = world.out().to_string_lossy().into_owned();
    let args = [
        &["run", "--model", &model, "--policy", &policy, "--out", &out][..],
        task,
    ]
    .concat();
    let mut child = world
        .command(&args)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let journal = world.out().join("journal.jsonl");
    until("the call has ended", || {
        std::fs::read_to_string(&journal).is_ok_and(|text| text.contains("call_finished"))
    });
    child.kill().unwrap();
    child.wait().unwrap();
    world.beside("script.yaml", script(&[says("unused"), says("done")]));
    out
}

/// Resumes a killed run that was moved, with replies that are left there.
fn resumed_there(other: &World, clone: &Path, out: &str) -> Done {
    let replies = script(&[says("unused"), says("done")]);
    let model = format!("script:{}", other.beside("script.yaml", replies));
    let clone = clone.to_string_lossy();
    let policy = other.beside("policy.yaml", open_policy(&["echo", "true"]));
    other.call(&[
        "resume",
        out,
        "--workspace",
        &clone,
        "--model",
        &model,
        "--policy",
        &policy,
    ])
}

#[test]
fn changes_that_a_killed_run_could_not_store_are_not_taken_for_granted() {
    // In a clone, and in the fresh worktree of an isolated run, the edit is not there.
    let world = tree();
    killed(&world, writes("b.txt", "b\n"), &[]);
    let (other, clone, out) = moved(world);
    let done = resumed_there(&other, &clone, &out).exits(8);
    assert!(
        done.stderr.contains("before its changes were stored"),
        "{}",
        done.stderr
    );

    let isolated = tree();
    // What a killed process leaves behind goes with the test.
    let own = isolated.path().join("home").to_string_lossy().into_owned();
    let isolated = isolated.env("TMPDIR", own);
    let out = killed(&isolated, shell("echo b > b.txt"), &["--isolate"]);
    for left in worktrees(&isolated) {
        std::fs::remove_dir_all(left).unwrap();
    }
    let done = isolated.call(&["resume", &out]).exits(8);
    assert!(
        done.stderr.contains("before its changes were stored"),
        "{}",
        done.stderr
    );

    // Somebody put the tree back.
    let reverted = tree();
    let out = killed(&reverted, writes("b.txt", "b\n"), &[]);
    std::fs::remove_file(reverted.ws().join("b.txt")).unwrap();
    reverted.call(&["resume", &out]).exits(8);
}

/// The temporary worktrees of a world whose `TMPDIR` is its home.
fn worktrees(world: &World) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(world.path().join("home")).unwrap();
    let paths = entries.map(|entry| entry.unwrap().path());
    let is_worktree = |path: &PathBuf| path.to_string_lossy().contains("/overnight-worktree-");
    paths.filter(is_worktree).collect()
}

#[test]
fn a_killed_isolated_run_goes_on_in_the_worktree_that_it_left() {
    for is_named in [false, true] {
        let world = tree();
        let own = world.path().join("home").to_string_lossy().into_owned();
        let world = world.env("TMPDIR", own);
        let out = killed(&world, shell("echo b > b.txt"), &["--isolate"]);
        let left = worktrees(&world);
        assert!(left[0].join("tree/b.txt").is_file());
        // Another run of the repository does not take it for litter, and neither does a resume that is refused.
        let beside = |name: &str| world.path().join(name).to_string_lossy().into_owned();
        let model = format!("script:{}", beside("script.yaml"));
        let (policy, other) = (beside("policy.yaml"), beside("other"));
        world
            .call(&[
                "run",
                "-p",
                "y",
                "--model",
                &model,
                "--policy",
                &policy,
                "--isolate",
                "--out",
                &other,
            ])
            .exits(0);
        world.call(&["resume", &out, "--model", "script:none.yaml"]).exits(3);
        assert_eq!(worktrees(&world), left);
        let tree = left[0].join("tree").to_string_lossy().into_owned();
        let mut args = vec!["resume", out.as_str()];
        if is_named {
            args.extend(["--workspace", tree.as_str()]);
        }
        world.call(&args).exits(0);
        assert!(patch(&world).contains("+b\n"));
        assert!(worktrees(&world).is_empty());
    }
}

#[test]
fn a_run_of_another_home_leaves_the_worktree_of_a_killed_run_alone() {
    let world = tree();
    let own = world.path().join("home").to_string_lossy().into_owned();
    let world = world.env("TMPDIR", own.as_str());
    let out = killed(&world, writes("b.txt", "b\n"), &["--isolate"]);
    let left = worktrees(&world);
    let other = || {
        let other = tree().env("TMPDIR", own.as_str());
        other
            .run(&script(&[says("done")]), &open_policy(&[]), &["-p", "x", "--isolate"])
            .exits(0);
    };
    other();
    assert_eq!(worktrees(&world), left);
    // Without its run directory nothing can continue it.
    std::fs::remove_dir_all(&out).unwrap();
    other();
    assert!(worktrees(&world).is_empty());
}

#[test]
fn a_resume_beside_another_one_says_that_the_run_is_in_use() {
    let world = tree();
    let own = world.path().join("home").to_string_lossy().into_owned();
    let world = world.env("TMPDIR", own);
    let out = killed(&world, writes("b.txt", "b\n"), &["--isolate"]);
    let late = json!({"text": "late", "delay_ms": 60_000});
    let slow = format!("script:{}", world.beside("slow.yaml", script(&[says("unused"), late])));
    let mut first = world
        .command(&["resume", &out, "--model", &slow])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let journal = world.out().join("journal.jsonl");
    until("the first resume is at work", || {
        std::fs::read_to_string(&journal).is_ok_and(|text| text.contains("\"resumed\""))
    });
    let second = world.call(&["resume", &out]);
    first.kill().unwrap();
    first.wait().unwrap();
    let second = second.exits(8);
    assert!(
        second.stderr.contains("another process is at work"),
        "{}",
        second.stderr
    );
    assert_eq!(worktrees(&world).len(), 1);
}

#[test]
fn what_the_user_commits_after_a_kill_does_not_change_the_worktree_that_it_left() {
    let world = tree();
    world.file(".gitignore", "deps/\n").commit("ignored");
    world.file("deps/d.txt", "brought\n");
    let own = world.path().join("home").to_string_lossy().into_owned();
    let world = world.env("TMPDIR", own);
    let recipe = "version: 1\nname: r\nisolate: { keep: [src, deps] }\nsteps:\n  - { id: look, prompt: go }\n";
    let recipe = world.beside("recipe.yaml", recipe);
    let out = killed_of(&world, &[&recipe, "--isolate"], shell("echo b > new.txt"));
    world.git(&["rm", "-rq", "src"]);
    world.git(&["add", "-f", "deps"]);
    world.git(&["commit", "-qm", "moved on"]);
    let done = world.call(&["resume", &out]).exits(0);
    // `deps` is not in the commit of the worktree, so it is brought again; `src` is in it, so it stays.
    assert!(done.stderr.contains("overnight: deps: "), "{}", done.stderr);
    let patch = patch(&world);
    assert!(
        patch.contains("new.txt") && !patch.contains("src/b.txt") && !patch.contains("deps"),
        "{patch}"
    );
}

#[test]
fn a_run_whose_journal_cannot_grow_goes_on_in_the_worktree_that_it_left() {
    let world = World::repo(&[("a.txt", "one\n")]);
    let own = world.path().join("home").to_string_lossy().into_owned();
    let world = world.env("TMPDIR", own);
    let long = "x".repeat(40_000);
    let mut replies: Vec<Value> = (0..8)
        .map(|n| writes(&format!("f{n}.txt"), &format!("{n} {long}\n")))
        .collect();
    replies.push(says("done"));
    let model = format!("script:{}", world.beside("script.yaml", script(&replies)));
    let policy = world.beside("policy.yaml", open_policy(&[]));
    let out = world.out().to_string_lossy().into_owned();
    let run = world.command(&[
        "run",
        "-p",
        "x",
        "--model",
        &model,
        "--policy",
        &policy,
        "--out",
        &out,
        "--isolate",
    ]);
    // Files of at most 256 blocks of 1024 bytes: the journal cannot take the third reply.
    let mut limited = under("bash", &["-c", "ulimit -f 256; exec \"$@\"", "bash"], &run);
    Done::of(limited.output().unwrap()).exits(9);
    let left = worktrees(&world);
    assert!(left[0].join("tree/f1.txt").is_file(), "{left:?}");
    world.call(&["resume", &out]).exits(0);
    let patch = patch(&world);
    for n in 0..8 {
        assert!(patch.contains(&format!("+{n} xxx")), "{n}");
    }
    assert!(worktrees(&world).is_empty());
}

#[test]
fn a_killed_run_goes_on_where_its_changes_are() {
    for first in [
        writes("b.txt", "b\n"),
        shell("echo b > b.txt"),
        shell("true"),
        calls("read_file", json!({"file_path": "a.txt"})),
    ] {
        let world = tree();
        let out = killed(&world, first.clone(), &[]);
        world.call(&["resume", &out]).exits(0);
        assert_eq!(world.ws().join("b.txt").exists(), first.to_string().contains("b.txt"));
    }
    // A read leaves nothing behind that could be missing.
    let world = tree();
    killed(&world, calls("read_file", json!({"file_path": "a.txt"})), &[]);
    let (other, clone, out) = moved(world);
    resumed_there(&other, &clone, &out).exits(0);
}

#[test]
fn a_lock_that_a_killed_git_left_hides_no_change() {
    let world = tree();
    let out = killed(&world, writes("b.txt", "b\n"), &[]);
    std::fs::write(world.out().join("git/index.lock"), "").unwrap();
    world.call(&["resume", &out]).exits(0);
    assert!(patch(&world).contains("+b\n"));
    assert_eq!(world.result()["verdict"], "passed");
}

#[test]
fn a_git_directory_that_was_half_made_is_made_anew() {
    let world = tree();
    let out = killed(&world, calls("read_file", json!({"file_path": "a.txt"})), &[]);
    std::fs::write(world.out().join("git/HEAD"), "").unwrap();
    world.beside(
        "script.yaml",
        script(&[says("unused"), writes("b.txt", "b\n"), says("done")]),
    );
    world.call(&["resume", &out]).exits(0);
    assert!(patch(&world).contains("+b\n"));
}

/// What failed for want of a program says nothing about the task, so it is made again.
#[test]
fn a_check_whose_program_was_missing_is_made_again() {
    let world = tree();
    let bin = world.path().join("bin");
    std::fs::create_dir(&bin).unwrap();
    let world = world.env("PATH", format!("{}:/usr/bin:/bin", bin.display()));
    let recipe = "version: 1\nname: r\nsteps:\n  - id: fix\n    prompt: do it\n    checks:\n      - { name: c, run: \"bash -c 'newtool a.txt'\" }\n\
                  \x20 - { id: after, run: \"bash -c 'newtool b'\" }\n";
    let replies = script(&[writes("first.txt", "first\n"), says("done")]);
    let policy = format!("{}env: {{ pass: [PATH] }}\n", open_policy(&[]));
    let done = world.recipe(recipe, &replies, &policy, &[]).exits(8);
    assert!(done.stderr.contains("`newtool` is not available"), "{}", done.stderr);
    let tool = PathBuf::from(world.beside("bin/newtool", "#!/bin/sh\nexit 0\n"));
    std::fs::set_permissions(&tool, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    let out = world.out().to_string_lossy().into_owned();
    world.call(&["resume", &out]).exits(0);
    assert_eq!(world.result()["steps"][1]["status"], "passed");
}
