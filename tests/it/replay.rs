//! Recorded runs played again: in another place, on another day, without key and network. One run is made by a script and
//! then replayed; what differs may only be times and the run's own names.

use crate::harness::{Done, World};
use serde_json::Value;
use std::path::Path;

const POLICY: &str = "
version: 1
extends: [builtin:edit]
rules:
  - allow: run_shell_command
    commands: [ls, cat, echo, sleep, 'true', 'false', nosuchprogram]
  - allow: [write_todos, save_memory]
  - deny: read_file
    paths: [big.txt]
    because: it is too big
";

/// A run that uses every kind of result that could differ from one run to the next.
const SCRIPT: &str = r#"
replies:
  - thought: where am I
    text: I look first.
    usage: { input: 100, cached: 50, output: 7, reasoning: 2 }
    calls:
      - { tool: list_directory, args: { dir_path: . } }
      - { tool: glob, args: { pattern: "**/*" } }
      - { tool: grep_search, args: { pattern: "let x" } }
      - { tool: read_file, args: { file_path: src/main.rs } }
      - { tool: read_many_files, args: { include: ["**/*.md"] } }
      - { tool: run_shell_command, args: { command: "ls -a; for i in 1 2 3 4 5 6 7 8 9; do cat README.md part.txt; done; nosuchprogram" } }
      - { tool: read_file, args: { file_path: "overnight:result/c6", start_line: 5000, end_line: 5002 } }
  - calls:
      - { tool: write_file, args: { file_path: src/new.rs, content: "// new\n" } }
      - { tool: replace, args: { file_path: src/main.rs, old_string: "let x = 1;", new_string: "let x = 2.5;" } }
      - { tool: run_shell_command, args: { command: "sleep 0.1; echo hi; false" } }
      - { tool: run_shell_command, args: { command: "while true; do echo tick; sleep 0.01; done", is_background: true } }
      - { tool: list_background_processes }
      - { tool: read_background_output, args: { pid: job1, delay_ms: 60 } }
      - { tool: read_file, args: { file_path: src/missing.rs } }
      - { tool: read_file, args: { file_path: big.txt } }
      - { tool: read_file, args: { file_path: /etc/passwd } }
      - { tool: nosuchtool, args: { x: 0.1234567890123456789, y: 5e-324, z: 123456789.12345679, n: 18446744073709551615 } }
      - { tool: write_todos, args: { todos: [ { description: a, status: pending } ] } }
      - { tool: save_memory, args: { fact: "tabs, not blanks" } }
  - text: done
    usage: { input: 900, output: 5 }
"#;

fn files() -> Vec<(&'static str, String)> {
    vec![
        ("src/main.rs", "fn main() {\n    let x = 1;\n}\n".to_owned()),
        ("README.md", "# A tree\n".to_owned()),
        ("big.txt", "1\n".to_owned()),
        ("part.txt", (1..=1_000).map(|n| format!("{n}\n")).collect()),
    ]
}

pub(super) fn tree() -> World {
    let files = files();
    let files: Vec<(&str, &str)> = files.iter().map(|(path, text)| (*path, text.as_str())).collect();
    World::repo(&files)
}

pub(super) fn replay(world: &World, of: &Path, more: &[&str]) -> Done {
    let policy = world.beside("policy.yaml", POLICY);
    let model = format!("replay:{}", of.display());
    let out = world.out().to_string_lossy().into_owned();
    let mut args = vec!["run", "--model", &model, "--policy", &policy, "--out", &out];
    args.extend(more);
    world.call(&args)
}

fn transcript(world: &World, recorded: &World) -> Value {
    let text = std::fs::read_to_string(world.out().join("transcript.json")).unwrap();
    // The policy and the script are named as they were typed, here by their whole paths.
    let places = [world, recorded].map(|world| world.path().to_string_lossy().into_owned());
    let text = places.iter().fold(text, |text, place| text.replace(place, ""));
    let mut value = serde_json::from_str(&text).unwrap();
    strip(&mut value);
    value
}

/// Takes times out, and what is made of one: the run's own id and that of the commit.
fn strip(value: &mut Value) {
    match value {
        Value::Object(map) => {
            for key in [
                "timestamp",
                "took_ms",
                "duration_ms",
                "session_id",
                "trajectory_id",
                "base",
            ] {
                map.remove(key);
            }
            map.values_mut().for_each(strip);
        }
        Value::Array(list) => list.iter_mut().for_each(strip),
        _ => {}
    }
}

pub(super) fn same(recorded: &World, replayed: &World) {
    let patch = |world: &World| std::fs::read(world.out().join("changes.patch")).unwrap();
    assert_eq!(patch(recorded), patch(replayed), "the patch is byte-identical");
    let (one, other) = (transcript(recorded, recorded), transcript(replayed, recorded));
    let texts = [one, other].map(|value| serde_json::to_string_pretty(&value).unwrap());
    let differing = texts[0].lines().zip(texts[1].lines()).find(|(old, new)| old != new);
    assert_eq!(differing, None, "the transcript is equal but for times");
}

#[test]
fn a_replay_elsewhere_gives_the_same_patch_and_transcript() {
    let recorded = tree();
    recorded.run(SCRIPT, POLICY, &["-p", "do it"]).exits(0);
    let script = recorded.path().join("script.yaml");
    std::fs::remove_file(script).unwrap();
    let replayed = tree().env("TZ", "Asia/Tokyo").env("LANG", "de_DE.UTF-8");
    replay(&replayed, &recorded.out(), &["-p", "do it"]).exits(0);
    same(&recorded, &replayed);
    // A replay is a recording too.
    let again = tree();
    replay(&again, &replayed.out(), &["-p", "do it"]).exits(0);
    same(&recorded, &again);
    assert_eq!(again.result()["recorded"], true);
}

#[test]
fn a_replay_keeps_no_second_note() {
    let recorded = tree();
    recorded.run(SCRIPT, POLICY, &["-p", "do it"]).exits(0);
    let replayed = tree();
    replay(&replayed, &recorded.out(), &["-p", "do it"]).exits(0);
    let notes = |world: &World| world.path().join("home/.local/share/overnight/memory").exists();
    assert!(notes(&recorded));
    assert!(!notes(&replayed), "what lies outside of the tree is not done twice");
}

#[test]
fn a_miss_names_the_turn_and_shows_both_lines() {
    let recorded = tree();
    recorded.run(SCRIPT, POLICY, &["-p", "do it"]).exits(0);
    let replayed = tree();
    replayed.file("README.md", "# Another tree\n");
    replayed.commit("other");
    let done = replay(&replayed, &recorded.out(), &["-p", "do it"]).exits(1);
    for line in ["turn 2", "- # A tree", "+ # Another tree"] {
        assert!(done.stderr.contains(line), "{line}: {}", done.stderr);
        let message = replayed.result()["message"].to_string();
        assert!(message.contains(line), "{line}: {message}");
    }
    assert_eq!(replayed.result()["reason"], "replay_miss");
    assert_eq!(replayed.result()["verdict"], "failed");
}

#[test]
fn another_prompt_is_a_miss_in_the_first_turn() {
    let recorded = tree();
    recorded.run(SCRIPT, POLICY, &["-p", "do it"]).exits(0);
    let replayed = tree();
    let done = replay(&replayed, &recorded.out(), &["-p", "do that"]).exits(1);
    for line in ["turn 1", "- do it", "+ do that"] {
        assert!(done.stderr.contains(line), "{line}: {}", done.stderr);
    }
    assert!(!replayed.out().join("changes.patch").exists());
}

const SUSPENDING: &str = "
version: 1
extends: [builtin:edit]
rules:
  - suspend: write_file
    paths: [b.txt]
";

const TWO_WRITES: &str = r#"
replies:
  - calls:
      - { tool: write_file, args: { file_path: a.txt, content: "a\n" } }
      - { tool: write_file, args: { file_path: b.txt, content: "b\n" } }
      - { tool: write_file, args: { file_path: c.txt, content: "c\n" } }
  - text: done
"#;

#[test]
fn a_suspended_run_is_played_again_with_its_approval() {
    let recorded = tree();
    recorded.run(TWO_WRITES, SUSPENDING, &["-p", "do it"]).exits(5);
    let out = recorded.out().to_string_lossy().into_owned();
    recorded.call(&["resume", &out, "--approve", "c2"]).exits(0);
    let replayed = tree();
    let policy = replayed.beside("suspending.yaml", SUSPENDING);
    let model = format!("replay:{out}");
    let here = replayed.out().to_string_lossy().into_owned();
    let args = [
        "run", "-p", "do it", "--model", &model, "--policy", &policy, "--out", &here,
    ];
    replayed.call(&args).exits(5);
    replayed.call(&["resume", &here, "--approve", "c2"]).exits(0);
    let patch = |world: &World| std::fs::read(world.out().join("changes.patch")).unwrap();
    assert_eq!(patch(&recorded), patch(&replayed));
}

#[test]
fn a_run_that_was_resumed_after_its_budget_is_played_again_at_once() {
    let recorded = tree();
    recorded
        .run(SCRIPT, POLICY, &["-p", "do it", "--max-turns", "1"])
        .exits(6);
    let out = recorded.out().to_string_lossy().into_owned();
    recorded.call(&["resume", &out, "--max-turns", "9"]).exits(0);
    let replayed = tree();
    replay(&replayed, &recorded.out(), &["-p", "do it"]).exits(0);
    let patch = |world: &World| std::fs::read(world.out().join("changes.patch")).unwrap();
    assert_eq!(patch(&recorded), patch(&replayed));
}

#[test]
fn a_call_that_was_denied_for_its_secret_is_denied_again() {
    let secret = "hunter2-hunter2-hunter2";
    let recorded = tree().env("DEPLOY_TOKEN", secret);
    let script = format!(
        "replies:\n  - calls:\n      - {{ tool: write_file, args: {{ file_path: b.txt, content: \"key={secret}\" }} }}\n  - text: done\n"
    );
    recorded.run(&script, POLICY, &["-p", "write", "--quiet"]).exits(4);
    let there = tree();
    replay(&there, &recorded.out(), &["-p", "write"]).exits(4);
    assert_eq!(there.result()["denied"][0]["code"], "secret_hit");
    assert!(!there.ws().join("b.txt").exists(), "no redacted text is written");
}

#[test]
fn recordings_hold_no_secret() {
    let secret = "hunter2-hunter2-hunter2";
    let recorded = tree().env("DEPLOY_TOKEN", secret);
    recorded.file("leaked.txt", format!("token = {secret}\n"));
    recorded.commit("leak");
    let script = r#"
replies:
  - calls:
      - { tool: grep_search, args: { pattern: "token = " } }
  - text: "it says hunter2-hunter2-hunter2"
"#;
    let done = recorded.run(script, POLICY, &["-p", "what is the token?"]).exits(0);
    assert!(!done.stdout.contains(secret) && !done.stderr.contains(secret));
    for file in [
        "journal.jsonl",
        "transcript.json",
        "result.json",
        "report.html",
        "junit.xml",
        "summary.md",
    ] {
        let text = std::fs::read_to_string(recorded.out().join(file)).unwrap();
        assert!(!text.contains(secret), "{file} holds the secret");
    }
}

/// A step, a call and a check whose output is another one each time.
const VARYING: &str = "
version: 1
name: varying
steps:
  - { id: look, run: 'date +%s%N; echo looked' }
  - id: fix
    prompt: 'Seen: {{ steps.look.output }}'
    checks: [{ name: there, run: 'date +%s%N; test -f good.txt' }]
    retry: { max: 1 }
";
const VARYING_SCRIPT: &str = r#"
replies:
  - calls:
      - { tool: run_shell_command, args: { command: "date +%s%N" } }
      - { tool: run_shell_command, args: { command: "date +%s%N; for i in 1 2 3 4 5 6 7 8 9; do cat part.txt part.txt; done" } }
      - { tool: read_file, args: { file_path: "overnight:result/c2", start_line: 1, end_line: 2 } }
  - text: done
  - calls:
      - { tool: write_file, args: { file_path: good.txt, content: "good\n" } }
  - text: done now
"#;
const VARYING_POLICY: &str = "
version: 1
extends: [builtin:edit]
rules:
  - { allow: run_shell_command, commands: [date, cat] }
";

fn varying(world: &World, model: &str, more: &[&str]) -> Done {
    let recipe = world.beside("recipe.yaml", VARYING);
    let policy = world.beside("policy.yaml", VARYING_POLICY);
    let out = world.out().to_string_lossy().into_owned();
    let mut args = vec!["run", &recipe, "--model", model, "--policy", &policy, "--out", &out];
    args.extend(more);
    world.call(&args)
}

fn replay_warnings(world: &World) -> Vec<String> {
    let journal = std::fs::read_to_string(world.out().join("journal.jsonl")).unwrap();
    let events = journal
        .lines()
        .map(|line| serde_json::from_str::<Value>(line).unwrap()["entry"].clone());
    let warnings = events.filter(|event| event["code"] == "replay");
    warnings
        .map(|event| event["message"].as_str().unwrap().to_owned())
        .collect()
}

#[test]
fn what_commands_checks_and_steps_print_is_compared_softly() {
    let recorded = tree();
    let script = format!("script:{}", recorded.beside("script.yaml", VARYING_SCRIPT));
    varying(&recorded, &script, &[]).exits(0);
    assert_eq!(recorded.result()["usage"]["turns"], 4);
    let model = format!("replay:{}", recorded.out().display());
    let replayed = tree();
    let done = varying(&replayed, &model, &[]).exits(0);
    let warnings = replay_warnings(&replayed);
    for what in ["step look printed", "c1: ", "c2: ", "check there of step fix"] {
        assert!(
            warnings.iter().any(|text| text.starts_with(what)),
            "{what}: {warnings:?}"
        );
    }
    let both = |text: &String| text.contains("\n- ") && text.contains("\n+ ");
    assert!(warnings.iter().all(both), "both texts, a line each: {warnings:?}");
    assert!(
        done.stderr.contains("printed something different from the recording"),
        "{}",
        done.stderr
    );
    let patch = |world: &World| std::fs::read(world.out().join("changes.patch")).unwrap();
    assert_eq!(patch(&recorded), patch(&replayed));
    // A replay is a recording too.
    let again = tree();
    let model = format!("replay:{}", replayed.out().display());
    varying(&again, &model, &[]).exits(0);
    assert_eq!(patch(&recorded), patch(&again));
    // Strictly compared, it is another run.
    let strict = tree();
    let done = varying(&strict, &model, &["--replay", "strict"]).exits(1);
    assert_eq!(strict.result()["reason"], "replay_miss");
    let lines = || {
        done.stderr
            .lines()
            .map(|line| line.trim_start_matches("overnight:").trim_start())
    };
    let shown = |sign: &str| lines().any(|line| line.starts_with(sign));
    assert!(
        shown("- ") && shown("+ "),
        "a difference has a line each: {}",
        done.stderr
    );
}

#[test]
fn a_verdict_is_never_taken_from_the_recording() {
    let recorded = tree();
    let script = format!("script:{}", recorded.beside("script.yaml", VARYING_SCRIPT));
    varying(&recorded, &script, &[]).exits(0);
    // Here the check is green at once: the recording's red one does not count.
    let replayed = tree();
    replayed.file("good.txt", "good\n");
    replayed.commit("good already");
    let model = format!("replay:{}", recorded.out().display());
    varying(&replayed, &model, &[]).exits(0);
    assert_eq!(replayed.result()["usage"]["turns"], 2);
    assert_eq!(replayed.result()["verdict"], "no_change");
}

/// A copy of a recipe's sample repository as a tree of its own.
fn sample(name: &str) -> World {
    fn add(world: &World, dir: &Path, below: &Path) {
        for entry in std::fs::read_dir(dir).unwrap().map(Result::unwrap) {
            let path = below.join(entry.file_name());
            match entry.file_type().unwrap().is_dir() {
                true => add(world, &entry.path(), &path),
                false => {
                    world.file(&path.to_string_lossy(), std::fs::read(entry.path()).unwrap());
                }
            }
        }
    }
    let world = World::repo(&[]);
    let repo = crate::harness::project()
        .join("recipes/samples")
        .join(name)
        .join("repo");
    add(&world, &repo, Path::new(""));
    world.commit("sample");
    world
}

/// Replays of each shipped sample: two, or as many as `OVERNIGHT_REPLAYS` says.
#[test]
fn shipped_samples_replay_every_time() {
    let times = std::env::var("OVERNIGHT_REPLAYS")
        .ok()
        .and_then(|text| text.parse().ok())
        .unwrap_or(2);
    let recipes = crate::harness::project().join("recipes");
    for (name, policy) in [
        ("triage-issue", "builtin:read-only".to_owned()),
        ("fix-tests", recipes.join("policies/python.yaml").display().to_string()),
        ("fix-clippy", recipes.join("policies/rust.yaml").display().to_string()),
    ] {
        let run = |world: &World, model: &str| {
            let recipe = recipes.join(format!("{name}.yaml")).display().to_string();
            let input = recipes.join("samples").join(name).join("input.json");
            let out = world.out().display().to_string();
            let input = input.is_file().then(|| input.display().to_string());
            let mut args = vec!["run", &recipe, "--model", model, "--policy", &policy, "--out", &out];
            args.extend(input.iter().flat_map(|path| ["--input", path.as_str()]));
            world.call(&args)
        };
        let recorded = sample(name);
        let replies = recipes.join("samples").join(name).join("replies.yaml");
        run(&recorded, &format!("script:{}", replies.display())).exits(0);
        let model = format!("replay:{}", recorded.out().display());
        let patch = |world: &World| std::fs::read(world.out().join("changes.patch")).ok();
        for n in 1..=times {
            let replayed = sample(name);
            let done = run(&replayed, &model);
            assert_eq!(done.code, 0, "{name}, replay {n} of {times}: {}", done.stderr);
            assert_eq!(patch(&recorded), patch(&replayed), "{name}, replay {n}");
        }
    }
}

#[test]
fn under_another_policy_it_is_another_run() {
    let recorded = tree();
    recorded.run(SCRIPT, POLICY, &["-p", "do it"]).exits(0);
    let replayed = tree();
    let policy = replayed.beside("other.yaml", "version: 1\nextends: [builtin:read-only]\n");
    let model = format!("replay:{}", recorded.out().display());
    let out = replayed.out().to_string_lossy().into_owned();
    let args = [
        "run", "-p", "do it", "--model", &model, "--policy", &policy, "--out", &out,
    ];
    let done = replayed.call(&args).exits(1);
    assert!(
        done.stderr.contains("turn 1: the system text is not the recorded one"),
        "{}",
        done.stderr
    );
    let lines: Vec<&str> = done
        .stderr
        .lines()
        .map(|line| line.trim_start_matches("overnight:").trim_start())
        .collect();
    assert!(
        lines
            .iter()
            .any(|line| line.starts_with("+ ") && line.contains("commands: none")),
        "{}",
        done.stderr
    );
}
