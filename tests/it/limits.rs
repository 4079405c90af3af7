//! Where a run is stopped: turns, tokens, cost, wall clock, calls, and calls that go round in circles.

use super::gemini::{self, Answer, Gemini};
use super::harness::{Done, World, calls, endable, open_policy, says, script, shell, under, until, writes};
use serde_json::{Value, json};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

fn asking() -> World {
    World::repo(&[("a.txt", "one\n")]).env("GEMINI_API_KEY", "k-0123456789")
}

/// A service whose model never stops writing.
fn endless() -> Gemini {
    let replies = (0..50).map(|n| {
        gemini::calls(
            "write_file",
            &json!({"file_path": "a.txt", "content": format!("{n}\n")}),
        )
    });
    Gemini::new(replies.collect())
}

/// Runs a prompt whose replies come from the service, with these further flags.
fn prompted(world: &World, service: &Gemini, more: &[&str]) -> Done {
    let flags = gemini::flags(service);
    world.call(&[["run", "-p", "x"].as_slice(), &flags, more].concat())
}

fn limited(world: &World, service: &Gemini, limit: &[&str]) -> Value {
    let out = world.out().to_string_lossy().into_owned();
    let more = ["--policy", "builtin:edit", "--out", &out];
    prompted(world, service, &[more.as_slice(), limit].concat()).exits(6);
    world.result()
}

#[test]
fn no_more_requests_than_turns() {
    for turns in [1_usize, 3, 7] {
        let (world, service) = (asking(), endless());
        let result = limited(&world, &service, &["--max-turns", &turns.to_string()]);
        assert_eq!(service.seen().len(), turns);
        assert_eq!(result["usage"]["turns"], turns);
        assert_eq!(
            (&result["reason"], &result["partial"]),
            (&json!("limit:turns"), &json!(true))
        );
        assert!(
            world.out().join("changes.patch").is_file(),
            "what was done so far is there"
        );
        let junit = std::fs::read_to_string(world.out().join("junit.xml")).unwrap();
        assert!(junit.contains("limit."), "{junit}");
    }
}

#[test]
fn tokens_and_cost_are_checked_before_the_next_request() {
    let (world, service) = (asking(), endless());
    let result = limited(&world, &service, &["--max-tokens", "300"]);
    assert_eq!((service.seen().len(), &result["usage"]["total"]), (3, &json!(330)));

    let (world, service) = (asking(), endless());
    let result = limited(&world, &service, &["--max-cost", "0.0003"]);
    let cost = result["cost"].as_f64().unwrap();
    assert!((0.0003..0.0006).contains(&cost), "{cost}");
    assert_eq!(result["reason"], "limit:cost");
}

#[test]
fn the_wall_clock_ends_whatever_runs() {
    let silent = Gemini::new(vec![Answer::Silence]);
    let sleeper = Gemini::new(vec![
        gemini::calls("run_shell_command", &json!({"command": "sleep 60"})),
        gemini::says("x"),
    ]);
    let world = asking();
    let policy = world.beside("policy.yaml", open_policy(&["sleep"]));
    let check = world.beside(
        "check.yaml",
        "version: 1\nname: r\nsteps: [{ id: one, run: sleep 60 }]\n",
    );
    for (service, what) in [
        (&silent, ["-p", "x"]),
        (&sleeper, ["-p", "x"]),
        (&sleeper, [&check, "-q"]),
    ] {
        let begun = Instant::now();
        let mut args = vec!["run", "--policy", &policy, "--max-wall", "1s", "--format", "json"];
        args.extend(gemini::flags(service));
        args.extend(what);
        let object = world.call(&args).exits(6).json();
        assert_eq!(
            (&object["reason"], &object["partial"]),
            (&json!("limit:wall"), &json!(true)),
            "{what:?}"
        );
        assert!(
            begun.elapsed() < Duration::from_secs(40),
            "{what:?}: {:?}",
            begun.elapsed()
        );
    }
}

/// The wall-clock limit of a step ends whatever the step does, and only that step.
#[test]
fn the_wall_clock_of_a_step_ends_whatever_it_does() {
    let late = json!({"text": "late", "delay_ms": 15_000});
    let once = "echo x >> n.txt; [ $(wc -l < n.txt) -gt 1 ] || sleep 15";
    let again = "retry: { max: 9 }, checks: [{ name: c, run: 'sleep 0.7; false' }]";
    let cases = [
        ("a command", "prompt: x".to_owned(), vec![shell("sleep 15")]),
        ("a reply", "prompt: x".to_owned(), vec![late]),
        (
            "a check",
            "prompt: x, checks: [{ name: c, run: sleep 15 }]".to_owned(),
            vec![],
        ),
        // Otherwise the second attempt would be the last one, for it does the same again.
        ("all attempts together", format!("prompt: x, {again}"), vec![]),
        ("a step without a model", format!("run: '{once}'"), vec![]),
    ];
    let ended = |what: &str, step: &str, mut replies: Vec<Value>| {
        let world = World::repo(&[("a.txt", "one\n")]);
        let recipe = format!(
            "version: 1\nname: r\nsteps:\n  - {{ id: first, {step}, budget: {{ wall: 1s }} }}\n  - {{ id: second, prompt: y }}\n"
        );
        replies.resize(5, says("done"));
        let begun = Instant::now();
        world
            .recipe(&recipe, &script(&replies), &open_policy(&["sleep"]), &[])
            .exits(6);
        let took = begun.elapsed();
        assert!(took < Duration::from_secs(10), "{what}: {took:?}");
        let result = world.result();
        assert_eq!(
            (&result["verdict"], &result["reason"], &result["partial"]),
            (&json!("budget"), &json!("limit:wall"), &json!(true)),
            "{what}"
        );
        let message = result["message"].as_str().unwrap();
        assert!(
            message.starts_with("budget of step first reached: wall clock: 1 s"),
            "{what}: {message}"
        );
        let statuses = [0, 1].map(|step: usize| &result["steps"][step]["status"]);
        assert_eq!(statuses, [&json!("interrupted"), &json!("not_started")], "{what}");
        world
    };
    // The steps on both sides take longer, together and alone; the command sandbox is made in the first one.
    let control = || {
        let world = World::repo(&[("a.txt", "one\n")]);
        let recipe = "version: 1\nname: r\nsteps:\n  - { id: zero, run: sleep 0.6 }\n  - { id: first, run: 'true', budget: { wall: 1s } }\n  \
                      - { id: second, run: sleep 1 }\n";
        world.recipe(recipe, &script(&[]), &open_policy(&[]), &[]).exits(0);
    };
    std::thread::scope(|scope| {
        for (what, step, replies) in cases {
            scope.spawn(move || {
                let world = ended(what, &step, replies);
                if step.starts_with("run") {
                    // The time of the step begins again.
                    let out = world.out().to_string_lossy().into_owned();
                    world.call(&["resume", &out]).exits(0);
                }
            });
        }
        scope.spawn(control);
    });
}

/// As many files as take a minute or more to be read; they have no blocks on the disk.
const SPARSE: usize = 1_000;

#[test]
fn what_a_step_wrote_before_the_wall_clock_ended_it_is_in_the_patch() {
    let world = World::repo(&[("a.txt", "one\n")]);
    let recipe = "version: 1\nname: r\nsteps:\n  - { id: one, run: 'echo two > a.txt; sleep 20' }\n";
    world
        .recipe(recipe, &script(&[]), &open_policy(&[]), &["--max-wall", "1s"])
        .exits(6);
    let patch = std::fs::read_to_string(world.out().join("changes.patch")).unwrap();
    assert!(patch.contains("+two"), "{patch}");
}

/// What it changed against the policy was undone, so that nothing of it is left to judge.
#[test]
fn a_step_that_the_wall_clock_ended_runs_again_on_resume() {
    let world = World::repo(&[("tests/x.txt", "frozen\n")]);
    let policy = "version: 1
extends: [builtin:read-only]
rules:
  - { id: frozen, deny: '*', paths: ['tests/**'] }
sandbox: { level: landlock }
";
    let recipe = "version: 1\nname: r\nsteps:\n  - { id: one, run: 'echo x > tests/x.txt; sleep 1' }\n";
    let cut = world
        .recipe(recipe, &script(&[]), policy, &["--max-wall", "1s"])
        .exits(6);
    assert!(cut.stderr.contains("warning[deny_rule]: step one"), "{}", cut.stderr);
    let journal = || std::fs::read_to_string(world.out().join("journal.jsonl")).unwrap();
    assert!(!journal().contains("\"event\":\"ran\""));
    let out = world.out().to_string_lossy().into_owned();
    world.call(&["resume", &out, "--max-wall", "20s"]).exits(4);
    assert!(journal().contains("\"event\":\"ran\""), "{}", journal());
}

/// As `nohup` starts it.
#[test]
fn a_hangup_that_is_ignored_does_not_end_a_run() {
    let world = World::repo(&[("a.txt", "one\n")]);
    let recipe = world.beside(
        "recipe.yaml",
        "version: 1\nname: r\nsteps:\n  - { id: one, run: 'echo two > a.txt; sleep 1' }\n",
    );
    let policy = world.beside("policy.yaml", open_policy(&[]));
    let out = world.out().to_string_lossy().into_owned();
    let run = world.command(&["run", &recipe, "--policy", &policy, "--out", &out]);
    let mut ignoring = under("sh", &["-c", "trap '' HUP; exec \"$@\"", "sh"], &run);
    let mut child = ignoring.spawn().unwrap();
    until("the step runs", || {
        world.ws().join("a.txt").exists() && world.read("a.txt") == "two\n"
    });
    let pid = rustix::process::Pid::from_child(&child);
    rustix::process::kill_process(pid, rustix::process::Signal::HUP).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(0));
}

/// As `timeout` sends it: to the process, and once more to its group.
#[test]
fn a_signal_that_comes_twice_at_once_leaves_the_outputs() {
    let world = World::repo(&[("a.txt", "one\n")]);
    let recipe = world.beside(
        "recipe.yaml",
        "version: 1\nname: r\nsteps:\n  - { id: one, run: 'echo two > a.txt; sleep 20' }\n",
    );
    let policy = world.beside("policy.yaml", open_policy(&[]));
    let out = world.out().to_string_lossy().into_owned();
    let junit = world.path().join("junit.xml");
    let mut run = world.command(&["run", &recipe, "--policy", &policy, "--out", &out, "--format", "json"]);
    let run = run.arg("--junit").arg(&junit);
    let child = run.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    until("the step runs", || world.read("a.txt") == "two\n");
    let pid = rustix::process::Pid::from_child(&child);
    for _ in 0..2 {
        rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
        std::thread::sleep(Duration::from_millis(20));
    }
    let done = Done::of(child.wait_with_output().unwrap()).exits(143);
    assert_eq!(done.json()["verdict"], "cancelled");
    assert_eq!(world.result()["verdict"], "cancelled");
    assert!(junit.is_file() && world.out().join("changes.patch").is_file());
}

#[test]
fn the_wall_clock_ends_a_snapshot() {
    let world = World::repo(&[("a.txt", "one\n")]);
    for n in 0..SPARSE {
        let file = std::fs::File::create(world.ws().join(format!("f{n}"))).unwrap();
        file.set_len(31 << 20).unwrap();
    }
    let replies = script(&[writes("b.txt", "x\n"), says("done")]);
    let begun = Instant::now();
    world
        .run(&replies, &open_policy(&[]), &["-p", "x", "--max-wall", "1s"])
        .exits(6);
    assert!(begun.elapsed() < Duration::from_secs(20), "{:?}", begun.elapsed());
    let result = world.result();
    assert_eq!(
        (&result["reason"], &result["partial"]),
        (&json!("limit:wall"), &json!(true))
    );
    assert!(
        !world.ws().join("b.txt").exists(),
        "nothing is written before the baseline is taken"
    );
}

#[test]
fn a_signal_ends_a_snapshot_and_the_one_before_it_is_the_patch() {
    let world = World::repo(&[("a.txt", "one\n")]);
    let recipe = world.beside(
        "recipe.yaml",
        format!(
            "version: 1\nname: r\nsteps:\n  - {{ id: one, run: 'echo two > a.txt' }}\n  \
             - {{ id: two, run: 'mkdir d && cd d && seq {SPARSE} | xargs truncate -s 31M' }}\n"
        ),
    );
    let model = format!("script:{}", world.beside("script.yaml", script(&[says("x")])));
    let policy = world.beside("policy.yaml", open_policy(&[]));
    let out = world.out().to_string_lossy().into_owned();
    let args = ["run", &recipe, "--model", &model, "--policy", &policy, "--out", &out];
    let child = endable(&world.command(&args))
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    until("the second command has ended", || {
        let text = std::fs::read_to_string(world.out().join("journal.jsonl")).unwrap_or_default();
        text.matches("\"event\":\"ran\"").count() == 2
    });
    let begun = Instant::now();
    let sent = Command::new("kill").args(["-INT", &child.id().to_string()]).status();
    assert!(sent.unwrap().success());
    Done::of(child.wait_with_output().unwrap()).exits(130);
    assert!(begun.elapsed() < Duration::from_secs(20), "{:?}", begun.elapsed());
    let result = world.result();
    assert_eq!(
        (&result["reason"], &result["partial"]),
        (&json!("signal:2"), &json!(true))
    );
    let message = result["message"].as_str().unwrap();
    assert!(
        message.contains("cancelled by SIGINT; what changed since the last snapshot of the tree is in no patch"),
        "{message}"
    );
    let patch = std::fs::read_to_string(world.out().join("changes.patch")).unwrap();
    assert!(patch.contains("+two") && !patch.contains("d/1"), "{patch}");
}

#[test]
fn calls_of_a_tool_are_counted() {
    let policy = "\
version: 1
extends: [builtin:edit]
limits: { calls: { write_file: 2 } }
sandbox: { level: none }
";
    let world = World::repo(&[("a.txt", "one\n")]);
    let replies = [writes("1", "x"), writes("2", "x"), writes("3", "x"), says("done")];
    world.run(&script(&replies), policy, &["-p", "x"]).exits(6);
    assert!(world.ws().join("2").exists() && !world.ws().join("3").exists());
    assert_eq!(world.result()["reason"], "limit:calls:write_file");
    assert_eq!(
        world.result()["usage"]["calls"]["write_file"],
        2,
        "the third one was not made"
    );
}

#[test]
fn a_policy_only_lowers_and_a_flag_replaces_the_recipe() {
    let recipe = "version: 1\nname: r\nbudget: { turns: 1 }\nsteps: [{ id: one, prompt: go }]\n";
    let look = |n: usize| calls("read_file", json!({"file_path": "a.txt", "start_line": n}));
    let replies = script(&[look(1), look(2), look(3), says("done")]);
    let narrow = "version: 1\nextends: [builtin:read-only]\nlimits: { turns: 2 }\n";
    for (policy, flags, code, turns) in [
        (open_policy(&[]), vec![], 6, 1),
        (open_policy(&[]), vec!["--max-turns", "9"], 0, 4),
        (narrow.to_owned(), vec!["--max-turns", "9"], 6, 2),
        (narrow.to_owned(), vec![], 6, 1),
    ] {
        let world = World::repo(&[("a.txt", "one\n")]);
        world.recipe(recipe, &replies, &policy, &flags).exits(code);
        assert_eq!(world.result()["usage"]["turns"], turns, "{flags:?}");
    }
}

#[test]
fn what_cannot_be_used_is_asked_again_and_then_ends_7() {
    let world = asking();
    let service = Gemini::new(vec![Answer::Garbage, gemini::says("there")]);
    let object = prompted(&world, &service, &["--format", "json"]).exits(0).json();
    assert_eq!(object["response"], "there");
    let service = Gemini::new(vec![Answer::Garbage]);
    prompted(&world, &service, &["--format", "json"]).exits(7);
    assert!((2..10).contains(&service.seen().len()), "{}", service.seen().len());
}

#[test]
fn a_budget_end_can_be_resumed_with_more() {
    let world = World::repo(&[("a.txt", "one\n")]);
    let replies = [writes("b.txt", "b\n"), writes("c.txt", "c\n"), says("done")];
    world
        .run(&script(&replies), &open_policy(&[]), &["-p", "x", "--max-turns", "1"])
        .exits(6);
    assert!(!world.ws().join("c.txt").exists());
    let out = world.out().to_string_lossy().into_owned();
    world.call(&["resume", &out]).exits(6);
    let object = world
        .call(&["resume", &out, "--max-turns", "9", "--format", "json"])
        .exits(0)
        .json();
    assert_eq!(
        (&object["response"], &object["usage"]["turns"]),
        (&json!("done"), &json!(3))
    );
    assert_eq!(object["changes"]["files"].as_array().unwrap().len(), 2);
}

#[test]
fn going_round_in_circles_is_told_and_then_ends_1() {
    let service = Gemini::new(vec![gemini::calls("read_file", &json!({"file_path": "a.txt"}))]);
    let world = asking();
    let out = world.out().to_string_lossy().into_owned();
    prompted(&world, &service, &["--out", &out]).exits(1);
    assert_eq!(world.result()["reason"], "stuck");
    let seen = service.seen();
    assert_eq!(seen.len(), 10);
    assert!(
        seen[5].body.to_string().contains("Doing it again changes nothing"),
        "the model is told before"
    );
}

#[test]
fn a_huge_result_is_cut_and_keeps_its_last_line() {
    let world = asking();
    let service = Gemini::new(vec![
        gemini::calls(
            "run_shell_command",
            &json!({"command": "seq 1 300000; echo the-error-is-here; exit 3"}),
        ),
        gemini::says("seen"),
    ]);
    let policy = world.beside("policy.yaml", open_policy(&["seq", "echo", "exit"]));
    prompted(&world, &service, &["--policy", &policy]).exits(0);
    let seen = service.seen();
    let grown = seen[1].bytes - seen[0].bytes;
    assert!(grown <= 48_000, "{grown} bytes more");
    let told = seen[1].body["contents"].as_array().unwrap().last().unwrap().to_string();
    assert!(
        told.contains("the-error-is-here") && told.contains("exit code 3"),
        "{}",
        &told[told.len() - 500..]
    );
    assert!(told.contains("overnight:result/"), "where the rest is");
}

#[test]
fn the_rest_of_a_huge_result_can_be_read() {
    let world = World::repo(&[("a.txt", "one\n")]);
    let mut last = says("found");
    last["expect"] = json!("150000");
    let replies = [
        shell("seq 1 300000"),
        calls(
            "read_file",
            json!({"file_path": "overnight:result/c1", "start_line": 150_000, "end_line": 150_001}),
        ),
        last,
    ];
    world
        .run(&script(&replies), &open_policy(&["seq"]), &["-p", "x"])
        .exits(0);
}

#[test]
fn a_request_is_the_one_before_and_what_is_new() {
    let (world, service) = (asking(), endless());
    limited(&world, &service, &["--max-turns", "6"]);
    let seen = service.seen();
    for pair in seen.windows(2) {
        let (before, after) = (&pair[0].body, &pair[1].body);
        let old = before["contents"].as_array().unwrap();
        assert_eq!(old[..], after["contents"].as_array().unwrap()[..old.len()]);
        assert_eq!(
            (&before["tools"], &before["systemInstruction"]),
            (&after["tools"], &after["systemInstruction"])
        );
        assert!(pair[1].bytes - pair[0].bytes < 1_000);
    }
    assert!(seen[1].body.to_string().contains("c2lnbmVk"), "the signature is kept");
    assert!(
        seen.iter()
            .all(|seen| seen.line.contains("models/gemini-2.5-pro:streamGenerateContent"))
    );
    let key = |header: &String| header.eq_ignore_ascii_case("x-goog-api-key: k-0123456789");
    assert!(seen.iter().all(|seen| seen.headers.iter().any(key)));
}
