//! What sends the model back to work: failing checks, an answer that does not fit, an expectation that is not met.

use super::gemini::{self, Gemini};
use super::harness::{World, calls, open_policy, says, script, writes};
use serde_json::{Value, json};

const RED_GREEN: &str = "\
version: 1
name: r
steps:
  - id: one
    prompt: make a.txt say two
    checks:
      - name: says-two
        run: seq 1 20000; grep two a.txt; found=$?; echo the-last-line; exit $found
    retry: { max: 1 }
";

const KIND: &str = "\
version: 1
name: k
steps: [{ id: one, prompt: which kind }]
response: { schema: { type: object, required: [kind], properties: { kind: { enum: [bug, question] } } } }
";

#[test]
fn json_that_may_not_be_the_answer_is_asked_for_again() {
    let two = "They write:\n```json\n{\"kind\": \"question\"}\n```\nThat is wrong:\n```json\n{\"kind\": \"bug\"}\n```";
    let asks = "I cannot tell. Should I answer {\"kind\": \"question\"}, or do you give me the log first?";
    for (first, told) in [(two, "several different JSON documents"), (asks, "inside a sentence")] {
        let world = World::repo(&[]);
        let last = json!({"text": "{\"kind\": \"bug\"}", "expect": told});
        let replies = script(&[says(first), last]);
        world.recipe(KIND, &replies, &open_policy(&[]), &[]).exits(0);
        assert_eq!(world.result()["output"]["kind"], "bug", "{first}");
    }
    for first in [
        "Here it is:\n\n{\"kind\": \"bug\"}\n\nDone.",
        "```json\n{\"kind\": \"bug\"}\n```\nIs that enough?",
    ] {
        let world = World::repo(&[]);
        world
            .recipe(KIND, &script(&[says(first)]), &open_policy(&[]), &[])
            .exits(0);
    }
}

#[test]
fn a_run_whose_edits_all_failed_says_so() {
    let failing = calls("write_file", json!({"content": "x"}));
    for (more, warned) in [(vec![], true), (vec![writes("b.txt", "b\n")], false)] {
        let world = World::repo(&[("a.txt", "one\n")]);
        let replies = [vec![failing.clone(), failing.clone()], more, vec![says("done")]].concat();
        world.run(&script(&replies), &open_policy(&[]), &["-p", "x"]).exits(0);
        let warnings = world.result()["warnings"].to_string();
        assert_eq!(warnings.contains("edits_failed"), warned, "{warnings}");
        assert_eq!(warnings.contains("2 calls of tools"), warned, "{warnings}");
    }
}

fn red(world: &World, more: &[Value], code: i32) {
    let mut replies = vec![writes("a.txt", "one and a half\n"), says("done")];
    replies.extend(more.iter().cloned());
    world
        .recipe(RED_GREEN, &script(&replies), &open_policy(&[]), &[])
        .exits(code);
}

#[test]
fn a_failing_check_goes_back_and_the_second_attempt_passes() {
    let world = World::repo(&[("a.txt", "one\n")]);
    red(&world, &[writes("a.txt", "two\n"), says("now")], 0);
    let result = world.result();
    assert_eq!(result["verdict"], "passed");
    let junit = std::fs::read_to_string(world.out().join("junit.xml")).unwrap();
    assert!(junit.contains("flaky"), "a retried check is told as flaky: {junit}");
    assert!(!junit.contains("<failure"), "{junit}");
}

#[test]
fn checks_that_stay_red_end_1() {
    let world = World::repo(&[("a.txt", "one\n")]);
    red(&world, &[says("I am sure")], 1);
    let result = world.result();
    assert_eq!(
        (&result["verdict"], &result["reason"]),
        (&json!("failed"), &json!("check"))
    );
    assert!(result["message"].as_str().unwrap().contains("says-two"));
    assert_eq!(
        result["patch"],
        world.out().join("changes.patch").to_string_lossy().as_ref()
    );
    assert!(
        std::fs::read_to_string(world.out().join("junit.xml"))
            .unwrap()
            .contains("<failure")
    );
}

#[test]
fn feedback_is_bounded_and_has_head_and_tail() {
    let world = World::repo(&[("a.txt", "one\n")]).env("GEMINI_API_KEY", "k-0123456789");
    let write = |text: &str| gemini::calls("write_file", &json!({"file_path": "a.txt", "content": text}));
    let service = Gemini::new(vec![gemini::says("done"), write("two\n"), gemini::says("now")]);
    let recipe = world.beside("recipe.yaml", RED_GREEN);
    let policy = world.beside("policy.yaml", open_policy(&[]));
    let args = [
        "run",
        &recipe,
        "--policy",
        &policy,
        "--model",
        "gemini/gemini-2.5-pro",
        "--base-url",
        &service.url,
    ];
    world.call(&args).exits(0);
    let seen = service.seen();
    assert_eq!(seen.len(), 3);
    let contents = seen[1].body["contents"].as_array().unwrap();
    let told = contents.last().unwrap()["parts"][0]["text"].as_str().unwrap();
    assert!(
        told.contains("says-two") && told.contains("\n1\n2\n"),
        "the head is there: {told}"
    );
    assert!(told.contains("the-last-line"), "the tail is there: {told}");
    assert!(told.len() < 20_000, "{} bytes", told.len());
    assert!(seen[1].bytes - seen[0].bytes < 20_000);
}

const ANSWER: &str = "\
version: 1
name: r
steps: [{ id: one, prompt: count }]
response:
  schema: { type: object, required: [count], properties: { count: { type: integer } } }
";

#[test]
fn an_answer_that_does_not_fit_is_repaired() {
    let world = World::repo(&[("a.txt", "one\n")]);
    let replies = [
        says("there are two"),
        says("{\"count\": \"two\"}"),
        says("```json\n{\"count\": 2}\n```"),
    ];
    let done = world.recipe(ANSWER, &script(&replies), &open_policy(&[]), &[]).exits(0);
    assert_eq!(
        serde_json::from_str::<Value>(&done.stdout).unwrap(),
        json!({"count": 2})
    );
    let result = world.result();
    assert_eq!(result["output"], json!({"count": 2}));
    assert!(result["response"].is_string());
}

#[test]
fn an_answer_that_never_fits_ends_1() {
    let world = World::repo(&[("a.txt", "one\n")]);
    let replies: Vec<Value> = (0..10).map(|n| says(&format!("no JSON {n}"))).collect();
    world
        .recipe(ANSWER, &script(&replies), &open_policy(&[]), &["--format", "json"])
        .exits(1);
    let result = world.result();
    assert_eq!(
        (&result["reason"], &result["output"]),
        (&json!("response"), &Value::Null)
    );
    let junit = std::fs::read_to_string(world.out().join("junit.xml")).unwrap();
    assert!(junit.contains("<failure"), "{junit}");
}

fn expecting(what: &str) -> String {
    format!("version: 1\nname: r\nexpect: {what}\nsteps: [{{ id: one, prompt: go }}]\n")
}

#[test]
fn a_question_is_answered_once() {
    let world = World::repo(&[("a.txt", "one\n")]);
    let replies = [says("Shall I go on?"), writes("a.txt", "two\n"), says("Done.")];
    world
        .recipe(&expecting("change"), &script(&replies), &open_policy(&[]), &[])
        .exits(0);
    assert_eq!(world.read("a.txt"), "two\n");

    let world = World::repo(&[("a.txt", "one\n")]);
    let replies = [says("Shall I go on?"), says("But really, shall I?"), says("Well?")];
    world
        .recipe(&expecting("change"), &script(&replies), &open_policy(&[]), &[])
        .exits(1);
    let result = world.result();
    assert_eq!(
        (&result["reason"], &result["usage"]["turns"]),
        (&json!("expect"), &json!(2))
    );
}

#[test]
fn an_expectation_is_judged_by_the_tree() {
    for (expect, replies, code) in [
        ("change", vec![writes("a.txt", "one\n"), says("written")], 1),
        ("change", vec![writes("b.txt", "b\n"), says("written")], 0),
        ("no_change", vec![writes("b.txt", "b\n"), says("written")], 1),
        (
            "no_change",
            vec![calls("read_file", json!({"file_path": "a.txt"})), says("read")],
            0,
        ),
        ("any", vec![says("nothing")], 0),
    ] {
        let world = World::repo(&[("a.txt", "one\n")]);
        world
            .recipe(&expecting(expect), &script(&replies), &open_policy(&[]), &[])
            .exits(code);
    }
}

#[test]
fn green_checks_end_the_run_before_the_model() {
    let recipe = "\
version: 1
name: r
expect: change
skip_if_green: true
steps:
  - { id: one, prompt: go, checks: [{ name: there, run: test -f a.txt }, { name: two, run: grep -q two a.txt }] }
";
    let world = World::repo(&[("a.txt", "two\n")]);
    world
        .recipe(recipe, &script(&[says("asked for nothing")]), &open_policy(&[]), &[])
        .exits(0);
    let result = world.result();
    assert_eq!(
        (&result["verdict"], &result["usage"]["turns"]),
        (&json!("no_change"), &json!(0))
    );

    let world = World::repo(&[("a.txt", "one\n")]);
    let replies = [writes("a.txt", "two\n"), says("done")];
    world.recipe(recipe, &script(&replies), &open_policy(&[]), &[]).exits(0);
    assert_eq!(world.result()["verdict"], "passed");
}

#[test]
fn a_green_step_skips_only_itself() {
    let recipe = "\
version: 1
name: r
parameters: [{ name: loud, type: boolean, default: true, description: d }]
steps:
  - { id: one, prompt: go }
  - { id: green, prompt: go, skip_if_green: true, checks: [{ name: there, run: test -f a.txt }] }
  - { id: last, run: 'echo --loud={{ loud }}', checks: [{ name: red, run: echo why it is red; false }] }
";
    let world = World::repo(&[("a.txt", "one\n")]);
    let replies = [writes("a.txt", "two\n"), says("done")];
    let done = world.recipe(recipe, &script(&replies), &open_policy(&[]), &[]).exits(1);
    for told in ["step 3/3 last", "check red FAILED", "| why it is red"] {
        assert!(done.stderr.contains(told), "{told}: {}", done.stderr);
    }
    assert_eq!(world.result()["steps"][2]["output"], "--loud=true\n");
}

#[test]
fn an_expectation_of_every_step_replaces_that_of_the_recipe() {
    for (own, code) in [("", 1), ("expect: any, ", 0)] {
        let recipe = format!("version: 1\nname: r\nexpect: change\nsteps: [{{ id: one, {own}prompt: go }}]\n");
        let world = World::repo(&[("a.txt", "one\n")]);
        let replies: Vec<Value> = (0..9).map(|n| says(&format!("nothing to do {n}"))).collect();
        world
            .recipe(&recipe, &script(&replies), &open_policy(&[]), &[])
            .exits(code);
    }
}

#[test]
fn bounds_on_the_changes_are_a_check() {
    let recipe = "\
version: 1
name: r
steps:
  - id: one
    prompt: go
    checks: [{ name: small, changed: { only: ['src/**'], max_files: 1, max_lines: 3 } }]
    retry: { max: 1 }
";
    let world = World::repo(&[("a.txt", "one\n"), ("src/x", "x\n")]);
    let replies = [
        writes("a.txt", "two\n"),
        says("done"),
        writes("a.txt", "one\n"),
        writes("src/x", "y\n"),
        says("put back"),
    ];
    world.recipe(recipe, &script(&replies), &open_policy(&[]), &[]).exits(0);
    assert_eq!(world.result()["changes"]["files"][0]["path"], "src/x");

    let world = World::repo(&[("a.txt", "one\n"), ("src/x", "x\n")]);
    let replies = [writes("src/x", "1\n2\n3\n4\n"), says("done"), says("done")];
    world.recipe(recipe, &script(&replies), &open_policy(&[]), &[]).exits(1);

    // Git counts no lines in a file with a NUL, and one where lines end in CR alone.
    let world = World::repo(&[("src/x", "x\n")]);
    let made = recipe.replace(
        "steps:\n",
        "steps:\n  - { id: make, run: \"{ printf '\\\\0'; seq 100000; } > src/x; printf '1\\\\r2\\\\r3\\\\r4\\\\n' > src/y\" }\n",
    );
    let replies = [says("done"), says("done")];
    let done = world.recipe(&made, &script(&replies), &open_policy(&[]), &[]).exits(1);
    for told in [
        "src/x is not text, so its lines cannot be counted",
        "4 lines changed (3 of them end in CR alone), allowed: 3",
    ] {
        assert!(
            done.stderr.contains(told) || world.result().to_string().contains(told),
            "{told}: {}",
            done.stderr
        );
    }
    // The counts of single files are those of git.
    let file = world.result()["changes"]["files"][1].clone();
    assert_eq!((&file["path"], &file["added"]), (&json!("src/y"), &json!(1)));
}

#[test]
fn later_steps_see_earlier_ones_and_a_failed_step_ends_the_run() {
    let recipe = "\
version: 1
name: r
steps:
  - { id: look, run: echo it said so >&2; echo out; exit 3, allow_failure: true }
  - { id: ask, prompt: 'It says: {{ steps.look.output }}' }
  - { id: use, run: 'printf %s {{ steps.ask.output }} > said.txt' }
  - { id: fail, run: exit 4 }
  - { id: never, run: touch never.txt }
";
    let world = World::repo(&[]);
    let reply = json!({"text": "it's $(touch bad)", "expect": "it said so"});
    world.recipe(recipe, &script(&[reply]), &open_policy(&[]), &[]).exits(1);
    assert_eq!(world.read("said.txt"), "it's $(touch bad)");
    assert!(!world.ws().join("bad").exists() && !world.ws().join("never.txt").exists());
    let steps = world.result()["steps"].clone();
    let status: Vec<&str> = steps
        .as_array()
        .unwrap()
        .iter()
        .map(|step| step["status"].as_str().unwrap())
        .collect();
    assert_eq!(status[..4], ["passed", "passed", "passed", "failed"], "{steps}");
}
