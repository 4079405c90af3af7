//! What is left when a run is killed, its record is cut or edited, two want the same thing, or nothing can be written.

use super::harness::{BIN, Done, World, calls, open_policy, says, script, shell, until, writes};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::time::Duration;

const TURNS: usize = 5;

fn policy() -> String {
    open_policy(&["echo", "sleep", "seq"])
}

/// Each turn appends its own line, with time around it in which the run can be killed.
fn appending() -> String {
    let mut replies: Vec<Value> = (1..=TURNS)
        .map(|n| {
            let mut reply = shell(&format!("sleep 0.02; echo line-{n} >> log.txt; sleep 0.02"));
            reply["delay_ms"] = json!(15);
            reply
        })
        .collect();
    replies.push(says("done"));
    script(&replies)
}

fn start(world: &World, script: &str, out: &Path) -> Child {
    let model = format!("script:{}", world.beside("script.yaml", script));
    let policy = world.beside("policy.yaml", policy());
    let out = out.to_string_lossy().into_owned();
    let args = ["run", "-p", "x", "--model", &model, "--policy", &policy, "--out", &out];
    world
        .command(&args)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap()
}

fn resume(world: &World, more: &[&str]) -> Done {
    let out = world.out().to_string_lossy().into_owned();
    world.call(&[&["resume", &out], more].concat())
}

fn events(dir: &Path) -> Vec<Value> {
    let text = std::fs::read_to_string(dir.join("journal.jsonl")).unwrap();
    text.lines()
        .map(|line| serde_json::from_str::<Value>(line).unwrap()["entry"].clone())
        .collect()
}

/// How often an event of this kind is in the record, for each call or turn.
fn counts(events: &[Value], kind: &str, key: &str) -> std::collections::BTreeMap<String, usize> {
    let mut counts = std::collections::BTreeMap::new();
    for event in events.iter().filter(|event| event["event"] == kind) {
        *counts.entry(event[key].to_string()).or_default() += 1;
    }
    counts
}

/// Kills a run after this long, again and again, until it has come to its end.
fn killed_every(pause: Duration) {
    let world = World::repo(&[("a.txt", "one\n")]);
    let mut child = start(&world, &appending(), &world.out());
    let out = world.out().to_string_lossy().into_owned();
    for round in 0.. {
        assert!(round < 60, "{pause:?}: it never came to an end");
        // Each round gets longer, so that it ends however slow the machine is.
        std::thread::sleep(pause + Duration::from_millis(6 * round * round));
        if child.try_wait().unwrap().is_some() {
            break;
        }
        child.kill().unwrap();
        child.wait().unwrap();
        if world.out().join("journal.jsonl").exists() {
            // Between its last event and its outputs a run has no result yet.
            let done = world.call(&["runs", "verify", &out]);
            assert!(
                done.code == 0 || done.stderr.contains("result.json is missing"),
                "{}",
                done.stderr
            );
            child = world
                .command(&["resume", &out])
                .stdout(Stdio::piped())
                .stderr(Stdio::piped())
                .spawn()
                .unwrap();
        } else {
            assert!(
                !world.ws().join("log.txt").exists(),
                "something ran before the record began"
            );
            child = start(&world, &appending(), &world.out());
        }
    }
    let done = Done::of(child.wait_with_output().unwrap());
    assert_eq!(done.code, 0, "{pause:?}: {}", done.stderr);
    told_once_or_interrupted(&world, pause);
}

fn told_once_or_interrupted(world: &World, pause: Duration) {
    let record = events(&world.out());
    let log = std::fs::read_to_string(world.ws().join("log.txt")).unwrap_or_default();
    for n in 1..=TURNS {
        let times = log.lines().filter(|line| *line == format!("line-{n}")).count();
        let call = format!("c{n}");
        let finished = record
            .iter()
            .find(|event| event["event"] == "call_finished" && event["call"] == call)
            .unwrap();
        let interrupted = finished.to_string().contains("interrupted; effect unknown");
        assert!(
            times == 1 || (times == 0 && interrupted),
            "{pause:?}: line {n} is there {times} times: {finished}"
        );
    }
    for (kind, key, want) in [
        ("call_started", "call", TURNS),
        ("call_finished", "call", TURNS),
        ("replied", "turn", TURNS + 1),
    ] {
        let counts = counts(&record, kind, key);
        assert!(
            counts.len() == want && counts.values().all(|n| *n == 1),
            "{pause:?}: {kind}: {counts:?}"
        );
    }
    let result = world.result();
    // A machine so slow that every call was interrupted before its effect has nothing to show, and says so.
    let verdict = if log.is_empty() { "no_change" } else { "passed" };
    assert_eq!(
        (&result["verdict"], &result["response"]),
        (&json!(verdict), &json!("done"))
    );
    let patch = std::fs::read_to_string(world.out().join("changes.patch")).unwrap_or_default();
    assert_eq!(patch.matches("+line-").count(), log.lines().count());
}

#[test]
fn a_killed_run_loses_nothing_and_doubles_nothing() {
    let moments: Vec<Duration> = [5, 20, 35, 50, 65, 80, 100, 130, 170, 230, 300, 400]
        .map(Duration::from_millis)
        .to_vec();
    for some in moments.chunks(3) {
        std::thread::scope(|scope| {
            for pause in some {
                scope.spawn(|| killed_every(*pause));
            }
        });
    }
}

/// The names of a run's outputs, and what to do about it, do not depend on how it is named.
#[test]
fn outputs_that_are_written_again_are_the_same() {
    let world = World::repo(&[("a.txt", "one\n")]);
    let policy = "version: 1\nextends: [builtin:edit]\nrules:\n  - { suspend: write_file, paths: [c.txt] }\n";
    let replies = script(&[writes("b.txt", "b\n"), writes("c.txt", "c\n"), says("done")]);
    world.run(&replies, policy, &["-p", "x"]).exits(5);
    let read = || {
        let names = ["result.json", "junit.xml", "suspension.md", "suspension.json"];
        names.map(|name| std::fs::read_to_string(world.out().join(name)).unwrap())
    };
    let before = read();
    let listed = world.call(&["report", "../out"]).exits(0).stdout;
    assert_eq!(read(), before);
    assert!(listed.lines().all(|path| Path::new(path).is_file()), "{listed}");
    let printed = world.call(&["report", "../out", "--format", "result"]).exits(0).json();
    assert_eq!(printed, world.result());
    world.call(&["runs", "verify", "../out"]).exits(0);
    // The directory is told, also to who answers from elsewhere.
    let out = world.out().canonicalize().unwrap().to_string_lossy().into_owned();
    assert_eq!(printed["artefacts"]["directory"], out.as_str());
    let approve = printed["suspended"][0]["approve"].as_str().unwrap();
    assert!(
        approve.starts_with(&format!("overnight resume {out} --approve c2@")),
        "{approve}"
    );
}

#[test]
fn a_killed_run_leaves_a_record_that_reports_can_be_made_of() {
    let world = World::repo(&[("a.txt", "one\n")]);
    let slow = json!({"text": "late", "delay_ms": 60_000});
    let mut child = start(&world, &script(&[writes("b.txt", "b\n"), slow]), &world.out());
    let journal = world.out().join("journal.jsonl");
    until("the call has ended", || {
        std::fs::read_to_string(&journal).is_ok_and(|text| text.contains("call_finished"))
    });
    child.kill().unwrap();
    child.wait().unwrap();
    let out = world.out().to_string_lossy().into_owned();
    world.call(&["report", &out]).exits(0);
    let result = world.result();
    assert_eq!(
        (&result["verdict"], &result["partial"]),
        (&json!("incomplete"), &json!(true))
    );
    let transcript = std::fs::read_to_string(world.out().join("transcript.json")).unwrap();
    assert!(
        serde_json::from_str::<Value>(&transcript)
            .unwrap()
            .to_string()
            .contains("b.txt")
    );
}

#[test]
fn a_torn_last_line_is_dropped() {
    let base = World::repo(&[("a.txt", "one\n")]);
    let replies = [
        calls("read_file", json!({"file_path": "a.txt"})),
        writes("b.txt", "b\n"),
        says("done"),
    ];
    base.run(&script(&replies), &policy(), &["-p", "x", "--max-turns", "1"])
        .exits(6);
    let whole = std::fs::read(base.out().join("journal.jsonl")).unwrap();
    for cut in [1, 2, 7, 40, 90, 200, 333] {
        let copied = base.path().join(format!("cut-{cut}"));
        let done = std::process::Command::new("cp")
            .arg("-a")
            .arg(base.out())
            .arg(&copied)
            .status()
            .unwrap();
        assert!(done.success());
        std::fs::write(copied.join("journal.jsonl"), &whole[..whole.len() - cut]).unwrap();
        let out = copied.to_string_lossy().into_owned();
        // A machine that knows how far the journal had come is not deceived.
        let done = base.call(&["resume", &out, "--max-turns", "9"]).exits(8);
        assert!(done.stderr.contains("it was truncated"), "{}", done.stderr);
        // A process that died in mid-write leaves no result, and the state directory behind the journal.
        std::fs::remove_file(copied.join("result.json")).unwrap();
        std::fs::remove_dir_all(base.path().join("home/.local/state")).unwrap();
        let policy = base.path().join("policy.yaml").to_string_lossy().into_owned();
        base.call(&["resume", &out, "--max-turns", "9", "--policy", &policy])
            .exits(0);
        assert_eq!(base.read("b.txt"), "b\n", "{cut}");
        base.call(&["runs", "verify", &out]).exits(0);
        std::fs::remove_file(base.ws().join("b.txt")).unwrap();
    }
}

#[test]
fn an_edited_record_is_found_out() {
    let world = World::repo(&[("a.txt", "one\n")]);
    world
        .run(
            &script(&[writes("b.txt", "b\n"), says("done")]),
            &policy(),
            &["-p", "x"],
        )
        .exits(0);
    let path = world.out().join("journal.jsonl");
    let out = world.out().to_string_lossy().into_owned();
    let whole = std::fs::read_to_string(&path).unwrap();
    let lines: Vec<&str> = whole.lines().collect();
    let edited = whole.replacen("b.txt", "c.txt", 1);
    let mut missing = lines.clone();
    missing.remove(lines.len() / 2);
    let mut swapped = lines.clone();
    swapped.swap(2, 3);
    for text in [edited, missing.join("\n") + "\n", swapped.join("\n") + "\n"] {
        std::fs::write(&path, text).unwrap();
        let done = world.call(&["runs", "verify", &out]);
        assert_ne!(done.code, 0, "{}", done.stdout);
    }
    std::fs::write(&path, &whole).unwrap();
    world.call(&["runs", "verify", &out]).exits(0);
}

#[test]
fn a_second_run_on_a_workspace_does_not_wait() {
    let world = World::repo(&[("a.txt", "one\n")]);
    let slow = script(&[json!({"text": "late", "delay_ms": 60_000})]);
    let mut first = start(&world, &slow, &world.out());
    until("the run has begun", || world.out().join("journal.jsonl").exists());
    let second = start(&world, &script(&[says("x")]), &world.path().join("second"));
    let done = Done::of(second.wait_with_output().unwrap()).exits(8);
    assert!(
        done.stderr.contains("another run is using the workspace") && done.stderr.contains("--isolate"),
        "{}",
        done.stderr
    );
    resume(&world, &[]).exits(8);
    first.kill().unwrap();
    first.wait().unwrap();
    let third = start(&world, &script(&[says("x")]), &world.path().join("third"));
    Done::of(third.wait_with_output().unwrap()).exits(0);
}

/// A run would take changes that another run makes in a subdirectory for its own.
#[test]
fn runs_in_nested_directories_exclude_each_other() {
    let world = World::repo(&[("a/b/x", "one\n"), ("c/x", "one\n")]);
    let begun = |name: &str, tree: &str, replies: &str| {
        let model = format!("script:{}", world.beside(&format!("{name}.yaml"), replies));
        let policy = world.beside("policy.yaml", policy());
        let (tree, out) = (world.ws().join(tree), world.path().join(name));
        let [tree, out] = [&tree, &out].map(|path| path.to_string_lossy().into_owned());
        let args = [
            "run",
            "-p",
            "x",
            "--model",
            &model,
            "--policy",
            &policy,
            "--workspace",
            &tree,
            "--out",
            &out,
        ];
        let mut command = world.command(&args);
        command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
    };
    let ended = |tree: &str| {
        let name = format!("short-{}", tree.replace('/', "-"));
        Done::of(begun(&name, tree, &script(&[says("x")])).wait_with_output().unwrap())
    };
    let slow = script(&[json!({"text": "late", "delay_ms": 60_000})]);
    for (tree, excluded, free) in [
        ("", &["a", "a/b"][..], &[][..]),
        ("a", &["", "a/b"], &["c"]),
        ("a/b", &["", "a"], &["c"]),
    ] {
        let name = format!("long-{}", tree.replace('/', "-"));
        let mut first = begun(&name, tree, &slow);
        let journal = world.path().join(name).join("journal.jsonl");
        until("the run has begun", || journal.exists());
        for other in excluded {
            let done = ended(other).exits(8);
            assert!(
                done.stderr.contains("another run is using the workspace"),
                "{}",
                done.stderr
            );
            let is_below = other.len() > tree.len();
            let told = if is_below {
                ", which contains "
            } else {
                " of a directory below "
            };
            assert!(done.stderr.contains(told), "{tree} {other}: {}", done.stderr);
        }
        for other in free {
            ended(other).exits(0);
        }
        first.kill().unwrap();
        first.wait().unwrap();
        for dir in std::fs::read_dir(world.path()).unwrap().flatten() {
            if dir.file_name().to_string_lossy().starts_with("short-") && dir.path().is_dir() {
                std::fs::remove_dir_all(dir.path()).unwrap();
            }
        }
    }
}

/// The write guard that would have undone the changes ended with its process. Whoever works there next tells it, once.
#[test]
fn protected_paths_that_a_killed_run_may_have_changed_are_named_once() {
    for (change, named) in [
        ("open(\".git/hooks/pre-commit\", \"w\").write(\"x\")", true),
        ("pass", false),
    ] {
        for resumes in [true, false] {
            let world = World::repo(&[("a.txt", "one\n")]);
            std::fs::create_dir_all(world.ws().join(".git/hooks")).unwrap();
            // Longer than the resolution of change times.
            let settled = std::time::Instant::now();
            until("the tree is older than the run", || {
                settled.elapsed() > Duration::from_millis(200)
            });
            let command = format!("python3 -c 'import time; {change}; open(\"begun\", \"w\"); time.sleep(60)'");
            let rule = "{ allow: run_shell_command, commands: [python3], args: any, writes: tree }";
            let policy =
                format!("version: 1\nextends: [builtin:edit]\nrules:\n  - {rule}\nsandbox: {{ level: landlock }}\n");
            let policy = world.beside("policy.yaml", policy);
            let model = format!(
                "script:{}",
                world.beside("script.yaml", script(&[shell(&command), says("done")]))
            );
            let args = ["run", "-p", "x", "--model", &model, "--policy", &policy];
            let mut child = world
                .command(&args)
                .stderr(Stdio::null())
                .stdout(Stdio::null())
                .spawn()
                .unwrap();
            until("the command has begun", || world.ws().join("begun").exists());
            child.kill().unwrap();
            child.wait().unwrap();
            let short = "python3 -c 'open(\"c.txt\", \"w\")'";
            let model = world.beside("short.yaml", script(&[shell(short), says("done")]));
            let model = format!("script:{model}");
            let new = [
                "run", "-p", "x", "--format", "json", "--model", &model, "--policy", &policy,
            ];
            let told = |done: &Done| {
                let told = done.stderr.contains(".git/hooks/pre-commit");
                let warnings = done.json()["warnings"].to_string();
                let in_result = warnings.contains("\"unchecked\"") && warnings.contains("pre-commit");
                assert_eq!(told, in_result, "{}{warnings}", done.stderr);
                told
            };
            let first = match resumes {
                true => world.call(&["resume", "--last", "--format", "json"]).exits(0),
                false => world.call(&new).exits(0),
            };
            assert_eq!(told(&first), named, "resumes: {resumes}: {}", first.stderr);
            let second = world.call(&new).exits(0);
            assert!(!told(&second), "resumes: {resumes}: {}", second.stderr);
        }
    }
}

#[test]
fn a_second_resume_does_not_wait() {
    let world = World::repo(&[("a.txt", "one\n")]);
    let replies = [writes("b.txt", "b\n"), json!({"text": "late", "delay_ms": 60_000})];
    world
        .run(&script(&replies), &policy(), &["-p", "x", "--max-turns", "1"])
        .exits(6);
    let before = std::fs::read_to_string(world.out().join("journal.jsonl"))
        .unwrap()
        .len();
    let out = world.out().to_string_lossy().into_owned();
    let mut first = world
        .command(&["resume", &out, "--max-turns", "9"])
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let grown = || std::fs::metadata(world.out().join("journal.jsonl")).unwrap().len() as usize > before;
    until("the first goes on", grown);
    resume(&world, &["--max-turns", "9"]).exits(8);
    // Another tree does not make it another run.
    let clone = world.path().join("clone").to_string_lossy().into_owned();
    super::harness::git_in(&world.ws(), &["clone", "-q", ".", &clone]);
    resume(&world, &["--max-turns", "9", "--workspace", &clone]).exits(8);
    first.kill().unwrap();
    first.wait().unwrap();
}

#[test]
fn many_runs_side_by_side_share_nothing() {
    let world = World::repo(&[("a.txt", "one\n")]);
    let replies = script(&[writes("b.txt", "b\n"), shell("echo x > c.txt"), says("done")]);
    let trees: Vec<PathBuf> = (0..6).map(|n| world.path().join(format!("clone-{n}"))).collect();
    let model = format!("script:{}", world.beside("script.yaml", replies));
    let policy = world.beside("policy.yaml", policy());
    let children: Vec<Child> = trees
        .iter()
        .map(|tree| {
            let name = tree.to_string_lossy().into_owned();
            super::harness::git_in(&world.ws(), &["clone", "-q", ".", &name]);
            let args = [
                "run", "-p", "x", "--model", &model, "--policy", &policy, "--format", "json",
            ];
            world
                .command(&args)
                .current_dir(tree)
                .stdout(Stdio::piped())
                .stderr(Stdio::piped())
                .spawn()
                .unwrap()
        })
        .collect();
    let mut runs = std::collections::BTreeSet::new();
    for child in children {
        let object = Done::of(child.wait_with_output().unwrap()).exits(0).json();
        assert_eq!(object["changes"]["files"].as_array().unwrap().len(), 2);
        runs.insert(object["run"].to_string());
    }
    assert_eq!(runs.len(), 6);
}

#[test]
fn a_record_that_cannot_be_written_ends_9() {
    let world = World::repo(&[("a.txt", "one\n")]);
    let model = format!("script:{}", world.beside("script.yaml", script(&[says("x")])));
    let policy = world.beside("policy.yaml", policy());
    let run = [
        "run", "-p", "x", "--model", &model, "--policy", &policy, "--format", "json",
    ];
    let done = world
        .call(&[&run[..], &["--out", "a.txt/below-a-file"]].concat())
        .exits(9);
    let object = done.json();
    assert_eq!(
        (&object["verdict"], &object["exit_code"]),
        (&json!("output"), &json!(9))
    );
}

#[test]
fn a_record_that_cannot_grow_ends_9_and_nothing_more_is_done() {
    let world = World::repo(&[("a.txt", "one\n")]);
    let long = "x".repeat(40_000);
    let mut replies: Vec<Value> = (0..20)
        .map(|n| writes(&format!("f{n}.txt"), &format!("{n} {long}\n")))
        .collect();
    replies.push(says("done"));
    let model = format!("script:{}", world.beside("script.yaml", script(&replies)));
    let policy = world.beside("policy.yaml", policy());
    let out = world.out().to_string_lossy().into_owned();
    // Files of at most 256 blocks of 1024 bytes.
    let line =
        format!("ulimit -f 256; exec {BIN} run -p x --model {model} --policy {policy} --out {out} --format json");
    let template = world.command(&[]);
    let mut command = std::process::Command::new("bash");
    command.args(["-c", &line]).current_dir(world.ws()).env_clear();
    for (name, value) in template.get_envs() {
        if let Some(value) = value {
            command.env(name, value);
        }
    }
    let done = Done::of(command.stdin(Stdio::null()).output().unwrap()).exits(9);
    let object = done.json();
    assert_eq!(
        (&object["verdict"], &object["exit_code"]),
        (&json!("output"), &json!(9))
    );
    let written = (0..20)
        .filter(|n| world.ws().join(format!("f{n}.txt")).exists())
        .count();
    assert!((1..10).contains(&written), "{written} files were written");
    world.call(&["runs", "verify", &out]).exits(0);
}
