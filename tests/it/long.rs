//! Long runs, stuck runs and budgets, through the binary.

use crate::harness::World;
use serde_json::{Value, json};
use std::fmt::Write as _;

const POLICY: &str = "
version: 1
extends: [builtin:edit]
rules:
  - allow: run_shell_command
    commands: [cat, echo]
";

/// A table that gives this model a window.
fn window(world: &World, tokens: u64) {
    let model = format!("script:{}", world.path().join("script.yaml").display());
    let table = json!([{ "model": model, "window": tokens }]);
    world.beside("prices.json", table.to_string());
}

fn replies(list: &[String], usage: &str) -> String {
    let mut script = "replies:\n".to_owned();
    for reply in list {
        writeln!(script, "  - {reply}\n    usage: {usage}").unwrap();
    }
    script
}

fn call(tool: &str, args: &Value) -> String {
    format!("calls: [{}]", json!({ "tool": tool, "args": args }))
}

fn events(world: &World) -> Vec<Value> {
    let text = std::fs::read_to_string(world.out().join("journal.jsonl")).unwrap();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

fn find<'a>(value: &'a Value, key: &str) -> Option<&'a Value> {
    match value {
        Value::Object(map) => map.get(key).or_else(|| map.values().find_map(|value| find(value, key))),
        Value::Array(list) => list.iter().find_map(|value| find(value, key)),
        _ => None,
    }
}

/// Reads of eight different files of 4 kB, then the answer of the model that is to summarise where it is asked.
fn reading(world: &World) -> Vec<String> {
    for n in 1..=8 {
        world.file(
            &format!("f{n}.txt"),
            format!("begin{n}\n{}end{n}\n", "line of the file\n".repeat(240)),
        );
    }
    (1..=8)
        .map(|n| call("read_file", &json!({ "file_path": format!("f{n}.txt") })))
        .collect()
}

#[test]
fn old_results_shrink_and_can_be_read_whole_and_replayed() {
    let world = World::repo(&[("a.txt", "a\n")]);
    window(&world, 10_000);
    let prices = world.path().join("prices.json").display().to_string();
    let world = world.env("OVERNIGHT_PRICES", prices.clone());
    let mut list = reading(&world);
    world.commit("files");
    list.push(call(
        "read_file",
        &json!({ "file_path": "overnight:result/c1", "start_line": 241, "end_line": 242 }),
    ));
    list.push(call("write_file", &json!({ "file_path": "a.txt", "content": "b\n" })));
    list.push("text: done".to_owned());
    let script = replies(&list, "{ output: 5 }").replace(
        "  - calls: [{\"tool\":\"write_file\"",
        "  - expect: end1\n    calls: [{\"tool\":\"write_file\"",
    );
    world.run(&script, POLICY, &["-p", "read"]).exits(0);
    let compacted = events(&world)
        .iter()
        .filter(|event| event.to_string().contains("\"compacted\""))
        .count();
    assert!(compacted >= 1, "the history was to shrink");
    // The same again from the recording, which tells the window.
    let out = world.path().join("again").display().to_string();
    let model = format!("replay:{}", world.out().display());
    let policy = world.path().join("policy.yaml").display().to_string();
    world.git(&["checkout", "-q", "a.txt"]);
    world
        .call(&[
            "run", "-p", "read", "--model", &model, "--policy", &policy, "--out", &out,
        ])
        .exits(0);
    let patch = |dir: &str| std::fs::read(std::path::Path::new(dir).join("changes.patch")).unwrap();
    assert_eq!(patch(&out), patch(&world.out().display().to_string()));
}

#[test]
fn older_turns_give_way_to_a_summary_that_is_paid_for_and_replayed() {
    let world = World::repo(&[("a.txt", "a\n")]);
    window(&world, 4_000);
    let prices = world.path().join("prices.json").display().to_string();
    let world = world.env("OVERNIGHT_PRICES", prices);
    // Results of 1.9 kB stay whole, so that only a summary helps.
    for n in 1..=12 {
        world.file(&format!("f{n}.txt"), format!("{}\n", "x".repeat(1_800)));
    }
    world.commit("files");
    let read = |n: u32| call("read_file", &json!({ "file_path": format!("f{n}.txt") }));
    let mut list: Vec<String> = (1..=6).map(read).collect();
    // Asked with the record of the turns before.
    list.push("text: NOTES six files were read\n    expect: RESULT of read_file".to_owned());
    list.push("expect: file\n    text: done".replace("expect: file\n    ", ""));
    let script = replies(&list, "{ input: 0, output: 7 }");
    let done = world.run(&script, POLICY, &["-p", "read them all"]);
    let all = events(&world);
    let summary = all
        .iter()
        .find_map(|event| find(event, "summary").filter(|found| found.get("asked").is_some()));
    assert!(summary.is_some(), "no summary was asked for: {}", done.stderr);
    let done = done.exits(0);
    assert_eq!(done.stdout.trim(), "done");
    assert_eq!(world.result()["usage"]["turns"], 8, "the summary counts");
    let model = format!("replay:{}", world.out().display());
    let out = world.path().join("again").display().to_string();
    let policy = world.path().join("policy.yaml").display().to_string();
    world
        .call(&[
            "run",
            "-p",
            "read them all",
            "--model",
            &model,
            "--policy",
            &policy,
            "--out",
            &out,
        ])
        .exits(0);
    // A cap counts it too.
    let out = world.path().join("capped").display().to_string();
    let args = [
        "run",
        "-p",
        "read them all",
        "--model",
        &model,
        "--policy",
        &policy,
        "--out",
        &out,
        "--max-turns",
        "7",
    ];
    world.call(&args).exits(6);
    world.call(&["resume", &out, "--max-turns", "8"]).exits(0);
}

#[test]
fn an_overflow_is_answered_once_with_a_summary() {
    let world = World::repo(&[("a.txt", "a\n")]);
    let read = call("read_file", &json!({ "file_path": "a.txt" }));
    let write = call("write_file", &json!({ "file_path": "b.txt", "content": "b\n" }));
    let list = [
        read,
        write,
        "error: { class: context_overflow, message: too long }".to_owned(),
    ];
    let script = replies(&list, "{ output: 1 }").replace("too long }\n    usage: { output: 1 }", "too long }");
    // The script gives the same error again for the summary, as a service would whose window is smaller still.
    world.run(&script, POLICY, &["-p", "go"]).exits(7);
    assert_eq!(world.result()["reason"], "context_overflow");
    assert!(world.out().join("changes.patch").exists(), "what was done is kept");
}

#[test]
fn the_same_calls_with_the_same_results_end_as_stuck() {
    let world = World::repo(&[("a.txt", "a\n"), ("b.txt", "b\n")]);
    let one = call("read_file", &json!({ "file_path": "a.txt" }));
    let other = call("read_file", &json!({ "file_path": "b.txt" }));
    let list: Vec<String> = (0..60)
        .map(|n| if n % 2 == 0 { one.clone() } else { other.clone() })
        .collect();
    world
        .run(&replies(&list, "{ output: 1 }"), POLICY, &["-p", "go"])
        .exits(1);
    assert_eq!(world.result()["reason"], "stuck");
    let notes = events(&world)
        .iter()
        .filter(|event| event.to_string().contains("\"nudge\""))
        .count();
    assert_eq!(notes, 1, "it was told first");
}

#[test]
fn the_same_test_after_each_edit_is_lawful() {
    let world = World::repo(&[("a.txt", "0\n")]);
    let mut list = Vec::new();
    for n in 0..15 {
        list.push(call(
            "write_file",
            &json!({ "file_path": "a.txt", "content": format!("{n}\n") }),
        ));
        list.push(call("run_shell_command", &json!({ "command": "echo red" })));
    }
    list.push("text: done".to_owned());
    world
        .run(&replies(&list, "{ output: 1 }"), POLICY, &["-p", "go"])
        .exits(0);
}

#[test]
fn a_recipe_that_expects_a_change_is_not_read_for_ever() {
    let world = World::repo(&[("a.txt", "a\n")]);
    let recipe = "version: 1\nname: edit\nexpect: change\nsteps:\n  - { id: s, prompt: change a.txt }\n";
    let recipe = world.beside("recipe.yaml", recipe);
    let list: Vec<String> = (0..100)
        .map(|n| {
            call(
                "read_file",
                &json!({ "file_path": "a.txt", "start_line": 1, "end_line": n + 1 }),
            )
        })
        .collect();
    world.run(&replies(&list, "{ output: 1 }"), POLICY, &[&recipe]).exits(1);
    assert_eq!(world.result()["reason"], "stuck");
    assert_eq!(world.result()["usage"]["turns"], 60);
    let notes = events(&world)
        .iter()
        .filter(|event| event.to_string().contains("\"idle\""))
        .count();
    assert_eq!(notes, 1, "it was told first");
}

#[test]
fn a_cost_cap_without_a_price_ends_before_the_first_request() {
    let world = World::repo(&[("a.txt", "a\n")]).env("OPENAI_API_KEY", "k-123456789");
    let base = [
        "--base-url",
        "http://llm.example.org/v1",
        "--model",
        "openai/nobody-knows-me",
    ];
    let mut args = vec!["run", "-p", "go", "--max-cost", "1.00"];
    args.extend(base);
    let done = world.call(&args).exits(8);
    assert!(done.stderr.contains("OVERNIGHT_PRICES"), "{}", done.stderr);
    assert!(done.stderr.contains("openai/nobody-knows-me"), "{}", done.stderr);
}

#[test]
fn a_cap_of_n_turns_makes_n_requests() {
    let world = World::repo(&[("a.txt", "a\n")]);
    let read = |n: u32| call("read_file", &json!({ "file_path": "a.txt", "end_line": n }));
    let list: Vec<String> = (1..=9).map(read).collect();
    world
        .run(
            &replies(&list, "{ input: 10, output: 1 }"),
            POLICY,
            &["-p", "go", "--max-turns", "3"],
        )
        .exits(6);
    assert_eq!(world.result()["usage"]["turns"], 3);
    assert_eq!(world.result()["reason"], "limit:turns");
    let out = world.out().display().to_string();
    let tokens = world
        .call(&["resume", &out, "--max-turns", "9", "--max-tokens", "40"])
        .exits(6);
    assert!(tokens.stderr.contains("tokens"), "{}", tokens.stderr);
    assert_eq!(
        world.result()["usage"]["turns"],
        4,
        "the fourth passed the cap, no fifth was asked"
    );
}

/// The memory that a process has made its own by now, in kB. The pages of its program are not counted: those of a debug build
/// are many, and say nothing of the run.
fn own_memory(pid: u32) -> Option<u64> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:"))?;
    line.trim().trim_end_matches("kB").trim().parse().ok()
}

#[test]
fn five_hundred_turns_with_a_megabyte_of_results_stay_small_and_resume_at_once() {
    let world = World::repo(&[("a.txt", "a\n")]);
    window(&world, 10_000_000);
    let prices = world.path().join("prices.json").display().to_string();
    let world = world.env("OVERNIGHT_PRICES", prices);
    // Lines of 2 kB in files of 50: no call reads much that it does not tell.
    for file in 0..10 {
        let lines: String = (0..50).map(|n| format!("{file} {n} {}\n", "x".repeat(1_990))).collect();
        world.file(&format!("big{file}.txt"), lines);
    }
    world.commit("big");
    let read = |n: usize| {
        let (file, line) = (format!("big{}.txt", n % 10), n / 10 % 50 + 1);
        call(
            "read_file",
            &json!({ "file_path": file, "start_line": line, "end_line": line }),
        )
    };
    let mut list: Vec<String> = (1..=500).map(read).collect();
    list.push("text: done".to_owned());
    let script = format!(
        "script:{}",
        world.beside("script.yaml", replies(&list, "{ output: 1 }"))
    );
    let policy = world.beside("policy.yaml", POLICY);
    let out = world.out().display().to_string();
    let args = [
        "run",
        "-p",
        "go",
        "--model",
        &script,
        "--policy",
        &policy,
        "--out",
        &out,
        "--max-turns",
        "500",
        "--quiet",
    ];
    let mut child = world.command(&args).spawn().unwrap();
    let mut most = 0;
    let code = loop {
        most = most.max(own_memory(child.id()).unwrap_or(0));
        if let Some(status) = child.try_wait().unwrap() {
            break status.code();
        }
        std::thread::sleep(std::time::Duration::from_millis(2));
    };
    assert_eq!(code, Some(6));
    assert!(most > 0 && most < 40_000, "{most} kB");
    let begun = std::time::Instant::now();
    world.call(&["resume", &out, "--max-turns", "501"]).exits(0);
    let took = begun.elapsed();
    // The whole resumed run with its reports, in a debug build on a busy machine.
    assert!(took.as_millis() < 5_000, "{took:?}");
}
