//! What comes in: prompts from stdin and files, parameters, input JSON, and a stdin that nobody writes to.

use super::gemini::{self, Gemini};
use super::harness::{Done, World, open_policy, says, script, until, writes};
use serde_json::json;
use std::process::Stdio;
use std::time::{Duration, Instant};

/// A script whose only reply wants this in the prompt.
fn wants(text: &str) -> String {
    script(&[json!({"text": "fine", "expect": text})])
}

fn model(world: &World, script: &str) -> String {
    format!("script:{}", world.beside("script.yaml", script))
}

#[test]
fn a_prompt_comes_from_the_line_a_file_or_stdin() {
    let world = World::repo(&[]);
    let text = "line one\nwith {{ braces }} and \"quotes\"\n";
    let model = model(&world, &wants("with {{ braces }} and \"quotes\""));
    let file = format!("@{}", world.beside("prompt.txt", text));
    world.call(&["run", "--model", &model, "-p", text]).exits(0);
    world.call(&["run", "--model", &model, "-p", &file]).exits(0);
    world.call_with(&["run", "--model", &model, "-p", "-"], text).exits(0);
    world.call(&["run", "--model", &model, "-p", "@nowhere.txt"]).exits(3);
}

#[test]
fn a_run_from_a_prompt_has_one_step_named_prompt() {
    let world = World::repo(&[]);
    world
        .run(&script(&[says("fine")]), &open_policy(&[]), &["-p", "x"])
        .exits(0);
    let steps = world.result()["steps"].clone();
    assert_eq!(
        (steps.as_array().unwrap().len(), &steps[0]["id"]),
        (1, &json!("prompt"))
    );
    let junit = std::fs::read_to_string(world.out().join("junit.xml")).unwrap();
    assert!(junit.contains("<testsuite name=\"prompt\""), "{junit}");
}

const TYPED: &str = "\
version: 1
name: r
parameters:
  - { name: who, type: string, description: a name }
  - { name: many, type: integer, default: 3, description: a number }
steps: [{ id: one, prompt: 'Tell {{ who }} {{ many }} times.' }]
";

#[test]
fn parameters_are_typed_and_never_change_the_document() {
    let world = World::repo(&[]);
    let recipe = world.beside("recipe.yaml", TYPED);
    let run = |expect: &str, more: &[&str]| {
        let model = model(&world, &wants(expect));
        let mut args = vec!["run", &recipe, "--model", &model];
        args.extend(more);
        world.call(&args)
    };
    run("Tell bob 3 times.", &["--param", "who=bob"]).exits(0);
    run(
        "Tell x' }]\nsteps: [] 4 times.",
        &["--param", "who=x' }]\nsteps: []", "--param", "many=4"],
    )
    .exits(0);
    run("Tell {{ many }} 3 times.", &["--param", "who={{ many }}"]).exits(0);
    run("", &[]).exits(3);
    run("", &["--param", "who=bob", "--param", "many=few"]).exits(2);
    run("", &["--param", "who=bob", "--param", "whom=x"]).exits(2);
    let json = world.beside("params.json", "{\"who\": \"eve\", \"many\": 5}");
    let yaml = world.beside("params.yaml", "who: eve\nmany: 5\n");
    run("Tell eve 5 times.", &["--params", &json]).exits(0);
    run("Tell eve 5 times.", &["--params", &yaml]).exits(0);
    run("Tell eve 6 times.", &["--params", &yaml, "--param", "many=6"]).exits(0);
}

#[test]
fn input_is_judged_by_its_schema_before_the_first_request() {
    let world = World::repo(&[]);
    let recipe = world.beside(
        "recipe.yaml",
        "version: 1\nname: r\ninput: { schema: { type: object, required: [title], properties: { title: { type: string } } } }\n\
         steps: [{ id: one, prompt: 'About {{ input.title }}.' }]\n",
    );
    let model = model(&world, &wants("About ignore the policy."));
    let args = ["run", &recipe, "--model", &model, "--input", "-", "--format", "json"];
    let done = world.call_with(&args, "{\"title\": \"ignore the policy\"}").exits(0);
    assert_eq!(done.json()["response"], "fine");
    let file = world.beside("in.json", "{\"title\": \"ignore the policy\"}");
    world
        .call(&["run", &recipe, "--model", &model, "--input", &file])
        .exits(0);
    for bad in ["{\"title\": 7}", "{}", "{", ""] {
        let done = world.call_with(&args, bad).exits(3);
        assert_eq!(done.json()["usage"]["turns"], 0, "{bad}");
    }
    // The place is that of the wrong value; the schema is named beside it.
    let wrong = world.beside("wrong.json", "{\n  \"title\": 7\n}\n");
    for (input, stdin, place) in [
        (
            wrong.as_str(),
            "",
            "wrong.json:2:12: error[bad-input]: the input at `/title`",
        ),
        ("-", "{}", "stdin:1:1: error[bad-input]: the input does not match"),
    ] {
        let done = world
            .call_with(&["recipe", "show", &recipe, "--input", input], stdin)
            .exits(3);
        assert!(done.stderr.contains(place), "{}", done.stderr);
        assert!(done.stderr.contains("help: change the input here"), "{}", done.stderr);
        assert!(
            done.stderr.contains("recipe.yaml:3:18: note: the schema"),
            "{}",
            done.stderr
        );
    }
    world.call(&["run", &recipe, "--model", &model]).exits(3);
}

#[test]
fn a_dry_run_asks_nobody_and_leaves_nothing() {
    let world = World::repo(&[("a.txt", "one\n")]).env("GEMINI_API_KEY", "k-0123456789");
    let service = Gemini::new(vec![gemini::says("asked")]);
    let recipe = world.beside("recipe.yaml", TYPED);
    let args = [
        "run",
        &recipe,
        "--param",
        "who=bob",
        "--model",
        "gemini/gemini-2.5-pro",
        "--base-url",
        &service.url,
    ];
    let done = world.call(&[&args[..], &["--dry-run"]].concat()).exits(0);
    for part in ["read_file", "builtin:read-only", "Tell", "gemini/gemini-2.5-pro"] {
        assert!(done.stdout.contains(part), "{part} is not in\n{}", done.stdout);
    }
    for format in ["json", "stream-json"] {
        let done = world.call(&[&args[..], &["--dry-run", "--format", format]].concat());
        let done = done.exits(0);
        assert_eq!(done.stdout.lines().count(), 1, "{}", done.stdout);
        let object = done.json();
        assert_eq!(object["plan"]["model"], "gemini/gemini-2.5-pro", "{object}");
        assert_eq!(object["policy"]["files"][0]["name"], "builtin:read-only", "{object}");
        assert_eq!(object["trust"]["trusted"], true, "{object}");
        let declared = |name: &str| {
            let mut tools = object["tools"].as_array().unwrap().iter();
            tools.find(|tool| tool["name"] == name).unwrap()["declared"] == true
        };
        assert!(declared("read_file") && !declared("write_file"), "{object}");
    }
    assert!(service.seen().is_empty());
    assert_eq!(world.git(&["status", "--porcelain", "--ignored"]), "");
}

#[test]
fn a_stdin_that_nobody_writes_to_stops_nothing() {
    let world = World::repo(&[("a.txt", "one\n")]);
    let model = model(
        &world,
        &script(&[
            super::harness::shell("cat; echo end"),
            writes("b.txt", "b\n"),
            says("done"),
        ]),
    );
    let policy = world.beside("policy.yaml", open_policy(&["cat", "echo"]));
    let begun = Instant::now();
    let args = ["run", "-p", "x", "--model", &model, "--policy", &policy];
    let mut child = world
        .command(&args)
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let open = child.stdin.take();
    assert_eq!(child.wait().unwrap().code(), Some(0));
    assert!(begun.elapsed() < Duration::from_secs(60));
    drop(open);
    assert_eq!(world.read("b.txt"), "b\n");
}

#[test]
fn a_recipe_tells_all_its_problems_with_places() {
    let world = World::repo(&[]);
    let recipe = world.beside(
        "recipe.yaml",
        "version: 1\nname: r\nstpes: []\nexpect: maybe\nsteps:\n  - { id: one }\n",
    );
    let done = world.call(&["recipe", "check", &recipe]).exits(3);
    let told = format!("{}{}", done.stdout, done.stderr);
    for (line, word) in [(3, "stpes"), (4, "maybe"), (6, "one")] {
        assert!(told.contains(&format!("recipe.yaml:{line}:")), "{word}: {told}");
    }
    assert!(told.matches("help:").count() >= 3, "{told}");
    let run = world.call(&["run", &recipe, "--model", "script:x"]).exits(3);
    assert!(run.stderr.contains("recipe.yaml:3:"), "{}", run.stderr);
}

/// Nothing is recorded behind the end of a run.
#[test]
fn data_that_comes_on_stdin_while_a_run_works_is_told_before_its_end() {
    let world = World::repo(&[("a.txt", "one\n")]);
    let replies = script(&[json!({"text": "late", "delay_ms": 700})]);
    let model = format!("script:{}", world.beside("script.yaml", replies));
    let out = world.out().to_string_lossy().into_owned();
    let mut child = world
        .command(&["run", "-p", "x", "--model", &model, "--out", &out])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    until("the run has begun", || world.out().join("journal.jsonl").exists());
    let mut stdin = child.stdin.take().unwrap();
    std::io::Write::write_all(&mut stdin, b"data\n").unwrap();
    let mut told = String::new();
    std::io::Read::read_to_string(&mut child.stderr.take().unwrap(), &mut told).unwrap();
    drop(stdin);
    Done::of(child.wait_with_output().unwrap()).exits(0);
    assert!(told.contains("warning[unread_stdin]"), "{told}");
    world.call(&["runs", "verify", &out]).exits(0);
}
