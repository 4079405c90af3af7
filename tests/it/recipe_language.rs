//! What a recipe can say: formats of the input, checks on the answer, conditions, files beside it, findings of steps.

use super::batch;
use super::harness::{Done, World, calls, open_policy, project, says, script, shell, writes};
use serde_json::{Value, json};
use std::process::Stdio;

/// A policy at this sandbox level.
fn at_level(level: &str) -> String {
    open_policy(&["cat", "ls"]).replace("level: none", &format!("level: {level}"))
}

fn events(world: &World) -> Vec<Value> {
    let journal = std::fs::read_to_string(world.out().join("journal.jsonl")).unwrap();
    let lines = journal.lines();
    lines
        .map(|line| serde_json::from_str::<Value>(line).unwrap()["entry"].clone())
        .collect()
}

fn prompts(world: &World) -> Vec<String> {
    let all = events(world);
    let prompted = all.iter().filter(|event| event["event"] == "prompted");
    prompted.map(|event| event["message"]["parts"].to_string()).collect()
}

fn junit(world: &World) -> String {
    std::fs::read_to_string(world.out().join("junit.xml")).unwrap()
}

// Input

const LINES: &str = "version: 1\nname: lines\ninput: { format: jsonl, schema: { type: object, required: [title], properties: { title: { type: string } } } }\n\
steps:\n  - id: one\n    prompt: \"{% for issue in input %}<{{ issue.title }}>{% endfor %} of {{ input | length }}\"\n";

#[test]
fn json_lines_are_a_list_and_each_line_is_held_against_the_schema() {
    let world = World::repo(&[]);
    let good = world.beside("in.jsonl", "{\"title\": \"a {{ b }}\"}\n\n{\"title\": \"c\"}\n");
    world
        .recipe(LINES, &script(&[says("fine")]), &open_policy(&[]), &["--input", &good])
        .exits(0);
    assert!(
        prompts(&world)[0].contains("<a {{ b }}><c> of 2"),
        "{:?}",
        prompts(&world)
    );
    let recipe = world.beside("recipe.yaml", LINES);
    let bad = world.beside("bad.jsonl", "{\"title\": \"a\"}\n{\"title\": 7}\n{}\n");
    let run = |input: &str, stdin: &str| {
        let model = format!("script:{}", world.beside("s.yaml", script(&[says("fine")])));
        world.call_with(&["run", &recipe, "--model", &model, "--input", input], stdin)
    };
    let done = run(&bad, "").exits(3);
    for place in ["bad.jsonl:2:1: error[bad-input]", "bad.jsonl:3:1: error[bad-input]"] {
        assert!(done.stderr.contains(place), "{place}: {}", done.stderr);
    }
    assert!(!done.stderr.contains("missing-input"), "{}", done.stderr);
    let done = run("-", "{\"title\": \"a\"}\n[1]\n{\n").exits(3);
    for place in ["stdin:2:1: error[wrong-type]", "stdin:3:1: error[not-json]"] {
        assert!(done.stderr.contains(place), "{place}: {}", done.stderr);
    }
    let shown = world.call(&["recipe", "show", &recipe, "--input", &good]).exits(0);
    assert!(
        shown.stdout.contains("input: JSON Lines, 2 objects"),
        "{}",
        shown.stdout
    );
    let dry = world
        .call(&["run", &recipe, "--model", "gemini/x", "--input", &good, "--dry-run"])
        .exits(0);
    assert!(dry.stdout.contains("input: JSON Lines, 2 objects"), "{}", dry.stdout);
}

const TEXT: &str = "version: 1
name: text
input: { format: text, schema: { type: string, minLength: 2 } }
steps:
  - { id: count, run: 'wc -c < \"$OVERNIGHT_INPUT\"; printf %s {{ input }} | wc -c' }
  - { id: one, prompt: \"{{ steps.count.output }}: {{ input }}\" }
";

#[test]
fn a_text_is_taken_as_it_is_and_commands_read_it_from_a_file() {
    for level in ["none", "landlock", "full"] {
        let world = World::repo(&[]);
        let log = world.beside("job.log", b"<a> {{ b }} \x1b[31m$(id)'\n");
        world
            .recipe(TEXT, &script(&[says("fine")]), &at_level(level), &["--input", &log])
            .exits(0);
        let text = &prompts(&world)[0];
        assert!(
            text.contains("24\\n24\\n: <a> {{ b }} \\u001b[31m$(id)'"),
            "{level}: {text}"
        );
    }
    let world = World::repo(&[]);
    let broken = world.beside("latin.log", b"gr\xfc\xdfe\0\n");
    let done = world
        .recipe(TEXT, &script(&[says("fine")]), &open_policy(&[]), &["--input", &broken])
        .exits(0);
    assert!(done.stderr.contains("warning[not-utf8]"), "{}", done.stderr);
    assert!(
        prompts(&world)[0].contains("gr\u{fffd}\u{fffd}e\u{fffd}"),
        "{:?}",
        prompts(&world)
    );
    // As from a command that failed.
    let empty = world.beside("empty.log", " \n");
    let done = world
        .recipe(TEXT, &script(&[says("fine")]), &open_policy(&[]), &["--input", &empty])
        .exits(3);
    assert!(
        done.stderr.contains("empty.log:1:1: error[no-input]"),
        "{}",
        done.stderr
    );
    let recipe = world.beside("recipe.yaml", TEXT);
    let long = world.beside("long.log", "x".repeat((4 << 20) + 1));
    let done = world.call(&["recipe", "show", &recipe, "--input", &long]).exits(3);
    assert!(
        done.stderr.contains("long.log:1:1: error[too-large]") && done.stderr.contains("tail -c 4194304"),
        "{}",
        done.stderr
    );
    let done = world
        .call_with(&["recipe", "show", &recipe, "--input", "-"], "x")
        .exits(3);
    assert!(done.stderr.contains("bad-input"), "{}", done.stderr);
}

#[test]
fn a_wrong_input_says_what_to_give() {
    let world = World::repo(&[]);
    let json = world.beside(
        "json.yaml",
        "version: 1\nname: j\ninput: {}\nsteps: [{ id: a, prompt: '{{ input.x }}' }]\n",
    );
    let lines = world.beside("in.jsonl", "{\"x\": 1}\n{\"x\": 2}\n");
    let run = |input: &str| world.call(&["run", &json, "--model", "gemini/x", "--dry-run", "--input", input]);
    let done = run("{}").exits(2);
    assert!(
        done.stderr.contains("there is no file `{}`") && done.stderr.contains("--input -"),
        "{}",
        done.stderr
    );
    let done = run("nowhere.json").exits(3);
    assert!(
        done.stderr.contains("cannot read `nowhere.json`") && done.stderr.contains("`-` for stdin"),
        "{}",
        done.stderr
    );
    let done = run(&lines).exits(3);
    assert!(
        done.stderr.contains("in.jsonl:2:1: error[not-json]") && done.stderr.contains("format: jsonl"),
        "{}",
        done.stderr
    );
    let model = format!("script:{}", world.beside("s.yaml", script(&[says("fine")])));
    let log = world.beside("a.log", "no json\n");
    let done = world
        .call(&["run", "-p", "look", "--model", &model, "--input", &log])
        .exits(3);
    assert!(
        done.stderr.contains("a.log:1:2: error[not-json]") && done.stderr.contains("--stdin"),
        "{}",
        done.stderr
    );
}

#[test]
fn each_line_of_inputs_is_a_job() {
    let world = batch::fleet(1);
    world.beside("lines.yaml", LINES);
    world.beside(
        "one.yaml",
        "version: 1\nname: one\ninput: { schema: { type: object, required: [title] } }\nsteps: [{ id: a, prompt: 'about {{ input.title }}' }]\n",
    );
    world.beside("issues.jsonl", "{\"title\": \"first\"}\n{\"title\": \"second\"}\n");
    world.beside("fine.yaml", script(&[says("fine")]));
    for recipe in ["one.yaml", "lines.yaml"] {
        let out = format!("out-{recipe}");
        world.beside(
            "m.yaml",
            format!(
                "version: 1\nrecipe: {recipe}\npolicy: policy.yaml\nmodels: [\"script:fine.yaml\"]\ntargets:\n  - {{ path: r0, inputs: issues.jsonl }}\n"
            ),
        );
        let done = batch::call(&world, &["batch", "m.yaml", "--out", &out, "--format", "json"]).exits(0);
        assert_eq!(done.json()["jobs"]["no_change"], 2, "{}", done.stdout);
        let mut asked: Vec<String> = batch::rows(&world, &out)
            .iter()
            .map(|row| {
                let run = world.path().join(&out).join(row["run"].as_str().unwrap());
                std::fs::read_to_string(run.join("journal.jsonl")).unwrap()
            })
            .map(|journal| {
                let found = ["about first", "about second", "<first> of 1", "<second> of 1"];
                let found = found.iter().filter(|text| journal.contains(**text));
                found.copied().collect::<String>()
            })
            .collect();
        asked.sort();
        let expected = match recipe {
            "one.yaml" => ["about first", "about second"],
            _ => ["<first> of 1", "<second> of 1"],
        };
        assert_eq!(asked, expected);
        let again = batch::call(&world, &["batch", "m.yaml", "--out", &out, "--format", "json"]).exits(0);
        assert_eq!(again.json()["jobs"]["run"], 0, "{}", again.stdout);
    }
    // From stdin, for two targets of a list.
    world.beside(
        "targets.jsonl",
        "{\"path\": \"r0\"}\n{\"path\": \"r0\", \"params\": {}, \"ref\": \"main\"}\n",
    );
    let manifest = "version: 1\nrecipe: one.yaml\npolicy: policy.yaml\nmodels: [\"script:fine.yaml\"]\ntargets:\n  - { file: targets.jsonl, inputs: \"-\" }\n";
    world.beside("m2.yaml", manifest);
    let list = |manifest: &str| {
        let mut child = batch::command(
            &world,
            &["batch", manifest, "--out", "none", "--dry-run", "--format", "json"],
        )
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
        std::io::Write::write_all(
            &mut child.stdin.take().unwrap(),
            b"{\"title\": \"a\"}\n{\"title\": \"b\"}\n",
        )
        .unwrap();
        Done::of(child.wait_with_output().unwrap())
    };
    assert_eq!(list("m2.yaml").exits(0).json()["jobs"].as_array().unwrap().len(), 4);
    world.beside("m3.yaml", format!("{manifest}  - {{ file: \"-\" }}\n"));
    let done = list("m3.yaml").exits(3);
    assert!(
        done.stderr
            .contains("stdin is already used for another list of this manifest"),
        "{}",
        done.stderr
    );
    world.beside("issues.jsonl", "{\"title\": \"first\"}\n{\"name\": \"second\"}\n{\n");
    let done = batch::call(&world, &["batch", "m.yaml", "--out", "bad"]).exits(3);
    for place in [
        "issues.jsonl:2:1: error[bad-input]",
        "issues.jsonl:3:1: error[not-json]",
    ] {
        assert!(done.stderr.contains(place), "{place}: {}", done.stderr);
    }
}

// Checks on the answer

const ANSWER: &str = "version: 1
name: answer
files: [check.sh]
steps:
  - id: say
    prompt: Say a number.
    checks:
      - { name: shape, answer: { schema: { type: object, required: [n], properties: { n: { type: integer } } } } }
      - { name: even, answer: { run: 'bash \"$OVERNIGHT_RECIPE_DIR/check.sh\"' } }
    retry: { max: 2 }
response: { schema: { type: object } }
";

#[test]
fn a_check_reads_the_answer_and_tells_the_model_what_is_wrong() {
    let world = World::repo(&[]);
    world.beside(
        "check.sh",
        "read -r answer; echo \"got $answer\"; [[ $answer =~ ^\\{\\\"n\\\":[0-9]*[02468]\\}$ ]]\n",
    );
    let replies = [
        says("{\"m\": 1}"),
        says("It is\n```json\n{\"n\": 3}\n```"),
        says("```json\n{\"n\": 4}\n```"),
    ];
    world
        .recipe(ANSWER, &script(&replies), &open_policy(&[]), &["--format", "json"])
        .exits(0);
    let told = prompts(&world);
    assert_eq!(told.len(), 3);
    assert!(
        told[0].contains("fits this JSON Schema") && told[0].contains("integer"),
        "{}",
        told[0]
    );
    assert!(told[1].contains("is a required property"), "{}", told[1]);
    assert!(
        told[2].contains("got {\\\\\\\"n\\\\\\\":3}") || told[2].contains("got {"),
        "the check got the JSON alone: {}",
        told[2]
    );
    assert!(
        told[1..]
            .iter()
            .all(|text| !text.contains("No tool was called") && text.contains("give the whole answer again")),
        "{told:?}"
    );
    let result = world.result();
    let checks = &result["steps"][0]["checks"];
    assert_eq!((&checks[0]["name"], &checks[0]["runs"]), (&json!("shape"), &json!(3)));
    assert_eq!(
        (&checks[1]["name"], &checks[1]["passed"]),
        (&json!("even"), &json!(true))
    );
    assert!(junit(&world).contains("<testcase name=\"even\""), "{}", junit(&world));
    let failing = [says("{\"n\": 1}"), says("{\"n\": 3}"), says("{\"n\": 5}")];
    let world = World::repo(&[]);
    world.beside("check.sh", "exit 1\n");
    world.recipe(ANSWER, &script(&failing), &open_policy(&[]), &[]).exits(1);
    assert_eq!(world.result()["reason"], "check");
}

#[test]
fn a_check_of_the_answer_does_not_excuse_a_denial() {
    let world = World::repo(&[]);
    let recipe = "version: 1\nname: a\nsteps:\n  - id: say\n    prompt: x\n    checks: [{ answer: { schema: { type: object } } }]\n";
    world
        .recipe(
            recipe,
            &script(&[writes("a.txt", "x"), says("{}")]),
            "version: 1\nextends: [builtin:read-only]\n",
            &[],
        )
        .exits(4);
}

/// They hold for a run that changed nothing, too.
#[test]
fn limits_on_the_change_do_not_excuse_a_denial() {
    let recipe = |more: &str| {
        format!(
            "version: 1\nname: a\nsteps:\n  - id: fix\n    prompt: x\n    checks: [{{ changed: {{ only: ['src/**'], max_files: 5 }} }}{more}]\n"
        )
    };
    let replies = script(&[writes("src/a.txt", "x"), says("I was not allowed to.")]);
    for (more, code) in [("", 4), (", { name: tests, run: 'true' }", 0)] {
        let world = World::repo(&[]);
        let policy = "version: 1\nextends: [builtin:read-only]\nsandbox: { level: none }\n";
        let done = world.recipe(&recipe(more), &replies, policy, &[]);
        assert_eq!(done.code, code, "{more}: {}", done.stderr);
    }
}

#[test]
fn a_file_that_only_has_to_be_there_may_be_large() {
    let recipe = "version: 1\nname: a\nsteps:\n  - id: a\n    run: truncate -s 9M large.bin\n    checks: [{ file: { path: large.bin } }]\n";
    let world = World::repo(&[(".gitignore", "large.bin\n")]);
    world.recipe(recipe, &script(&[]), &open_policy(&[]), &[]).exits(0);
}

#[test]
fn what_checks_nothing_is_told_by_recipe_check() {
    let recipe = concat!(
        "version: 1\nname: a\nresponse: { schema: { type: object, requried: [kind] } }\nsteps:\n",
        "  - id: a\n    prompt: x\n    checks:\n",
        "      - { name: piped, run: cargo test | tee out.txt }\n",
        "      - { name: comment, run: '# cargo test' }\n",
        "      - { file: { path: a.txt, contains: '' } }\n",
        "      - { name: strict, run: set -o pipefail; cargo test | tee out.txt }\n",
        "  - { id: b, run: cargo build | tail -5 }\n",
        "  - { id: c, run: cargo build | tail -5, allow_failure: true }\n",
    );
    let world = World::repo(&[("r.yaml", recipe)]);
    let found = world
        .call(&["recipe", "check", "r.yaml", "--format", "json"])
        .exits(0)
        .json();
    let problems = found["files"][0]["problems"].as_array().unwrap();
    let told: Vec<(u64, &str)> = problems
        .iter()
        .map(|one| (one["line"].as_u64().unwrap(), one["code"].as_str().unwrap()))
        .collect();
    let expected = [
        (3, "schema-keyword"),
        (8, "hidden-failure"),
        (9, "empty-check"),
        (10, "empty-check"),
        (12, "hidden-failure"),
    ];
    assert_eq!(told, expected, "{found}");
}

// Conditions

/// A reader of stdout gets JSON from every run that passes.
#[test]
fn a_run_without_the_answer_that_its_recipe_promises_prints_null() {
    let response = "response: { schema: { type: object, required: [x] } }\n";
    let green = "[{ name: c, run: 'true' }]";
    let plain = "steps: [{ id: a, prompt: x }, { id: b, when: 'false', prompt: y }]\n".to_owned();
    for (what, recipe, stdout, warned) in [
        ("skipped by its condition", format!("{response}{plain}"), "null\n", true),
        (
            "green",
            format!("{response}skip_if_green: true\nsteps: [{{ id: a, prompt: x, checks: {green} }}]\n"),
            "null\n",
            false,
        ),
        ("without a schema", plain, "prose\n", false),
    ] {
        let world = World::repo(&[("a.txt", "x\n")]);
        let recipe = format!("version: 1\nname: r\n{recipe}");
        let done = world
            .recipe(&recipe, &script(&[says("prose")]), &open_policy(&[]), &[])
            .exits(0);
        assert_eq!(done.stdout, stdout, "{what}");
        let result = world.result();
        assert!(result["output"].is_null(), "{what}: {result}");
        let warnings = result["warnings"].as_array().unwrap();
        let codes: Vec<&str> = warnings.iter().filter_map(|warning| warning["code"].as_str()).collect();
        assert_eq!(codes.contains(&"no_output"), warned, "{what}: {codes:?}");
    }
}

const WHEN: &str = "version: 1
name: when
expect: change
parameters: [{ name: deep, type: boolean, default: false, description: d }]
steps:
  - { id: lint, run: 'test -f a.txt', allow_failure: true }
  - id: fix
    when: steps.lint.exit_code != 0
    prompt: Make a.txt.
    checks: [{ name: there, run: test -f a.txt }]
  - { id: look, when: deep and steps.fix.status == 'passed', run: 'exit 9' }
  - { id: told, when: \"steps.fix.status == 'skipped'\", run: 'echo skipped {{ steps.fix.output }}{{ steps.lint.exit_code }}' }
";

#[test]
fn a_step_whose_condition_is_false_is_skipped_and_told_as_such() {
    let world = World::repo(&[]);
    world
        .recipe(
            WHEN,
            &script(&[writes("a.txt", "x\n"), says("done")]),
            &open_policy(&[]),
            &[],
        )
        .exits(0);
    let statuses = |world: &World| {
        let result = world.result();
        let steps = result["steps"].as_array().unwrap().clone();
        steps
            .iter()
            .map(|step| step["status"].as_str().unwrap().to_owned())
            .collect::<Vec<_>>()
    };
    assert_eq!(statuses(&world), ["passed", "passed", "skipped", "skipped"]);
    assert_eq!(world.result()["steps"][2]["reason"], "when");
    let xml = junit(&world);
    assert!(
        xml.contains("its condition does not hold: deep and steps.fix.status") && xml.contains("type=\"when\""),
        "{xml}"
    );

    // Nothing had to be done, which is no failed expectation of a change; and no model is asked.
    let world = World::repo(&[("a.txt", "x\n")]);
    world.recipe(WHEN, &script(&[]), &open_policy(&[]), &[]).exits(0);
    assert_eq!(statuses(&world), ["passed", "skipped", "skipped", "passed"]);
    assert_eq!(world.result()["steps"][3]["output"], "skipped 0\n");
    assert_eq!(world.result()["verdict"], "no_change");
    assert_eq!(world.result()["reason"], "when");

    let world = World::repo(&[]);
    world
        .recipe(
            WHEN,
            &script(&[writes("a.txt", "x\n"), says("done")]),
            &open_policy(&[]),
            &["--param", "deep=true"],
        )
        .exits(1);
    assert_eq!(statuses(&world), ["passed", "passed", "failed", "not_started"]);
}

#[test]
fn a_replay_takes_the_same_way() {
    let world = World::repo(&[]);
    world
        .recipe(
            WHEN,
            &script(&[writes("a.txt", "x\n"), says("done")]),
            &open_policy(&[]),
            &[],
        )
        .exits(0);
    world.git(&["clean", "-qfd"]);
    let (recipe, policy) = (
        world.beside("recipe.yaml", WHEN),
        world.beside("policy.yaml", open_policy(&[])),
    );
    let model = format!("replay:{}", world.out().display());
    let again = world.path().join("again").to_string_lossy().into_owned();
    let run = ["run", &recipe, "--policy", &policy, "--model", &model, "--out", &again];
    world.call(&run).exits(0);
    let result: Value =
        serde_json::from_str(&std::fs::read_to_string(format!("{again}/result.json")).unwrap()).unwrap();
    assert_eq!(result["steps"][2]["status"], "skipped");
}

#[test]
fn a_failed_command_says_why_in_every_output() {
    let world = World::repo(&[]);
    let recipe = "version: 1\nname: f\nsteps: [{ id: build, run: 'echo compiling; echo no such thing >&2; exit 7' }]\n";
    let done = world.recipe(recipe, &script(&[]), &open_policy(&[]), &[]).exits(1);
    let why = "the command `echo compiling; echo no such thing >&2; exit 7` ended with exit code 7: no such thing";
    assert!(
        done.stderr.contains(why) && done.stderr.contains("    | no such thing"),
        "{}",
        done.stderr
    );
    let result = world.result();
    assert_eq!(
        (&result["steps"][0]["message"], &result["resume"]),
        (&json!(why), &Value::Null)
    );
    let xml = junit(&world);
    assert!(xml.contains("<system-out>compiling\nno such thing"), "{xml}");
    let page = |name: &str| std::fs::read_to_string(world.out().join(name)).unwrap();
    let summary = page("summary.md");
    assert!(
        summary.contains("Last lines of the command of step `build`") && summary.contains("\nno such thing\n"),
        "{summary}"
    );
    assert!(page("report.html").contains("no such thing"));
}

/// After a limit, the user copies the command from the output.
#[test]
fn a_run_that_a_limit_ended_names_the_command_that_continues_it() {
    let world = World::repo(&[("a.txt", "x\n")]);
    let replies = [calls("read_file", json!({"file_path": "a.txt"})), says("done")];
    let more = ["-p", "x", "--max-turns", "1"];
    let done = world.run(&script(&replies), &open_policy(&[]), &more).exits(6);
    let resume = world.result()["resume"].as_str().unwrap().to_owned();
    assert!(
        done.stderr.trim_end().ends_with(&format!("`{resume}` continues it")),
        "{}",
        done.stderr
    );
    let message = "budget reached: turns: 1 of 1 spent; this limit ended the run, raise it with --max-turns";
    assert!(done.stderr.contains(message), "{}", done.stderr);
    let words: Vec<&str> = resume.split(' ').skip(1).collect();
    world.call(&words).exits(0);
    assert!(world.result()["resume"].is_null());
}

/// A program takes the content of stdout for the answer that it asked for.
#[test]
fn an_answer_that_is_not_valid_is_not_printed() {
    let world = World::repo(&[]);
    let schema = world.beside("schema.json", "{\"type\": \"object\", \"required\": [\"x\"]}");
    for (answer, code, stdout) in [("prose", 1, ""), ("{\"x\": 1}", 0, "{\"x\":1}\n")] {
        let replies = vec![says(answer); 5];
        let out = world.path().join(format!("out-{code}")).to_string_lossy().into_owned();
        let model = format!("script:{}", world.beside("replies.yaml", script(&replies)));
        let args = [
            "run",
            "-p",
            "x",
            "--output-schema",
            &schema,
            "--model",
            &model,
            "--out",
            &out,
        ];
        assert_eq!(world.call(&args).exits(code).stdout, stdout);
    }
}

/// Later steps and conditions see the whole output up to a limit. Beyond it, a condition on the output is an error.
#[test]
fn the_output_of_a_step_is_whole_or_says_that_it_was_cut() {
    let lines = |count: usize| format!("seq -f 'line %09g' 1 {count}");
    let run = |count: usize, when: &str, code: i32| {
        let world = World::repo(&[]);
        let recipe = format!(
            "version: 1\nname: w\nsteps:\n  - {{ id: a, run: \"{}\" }}\n  - {{ id: b, when: {when}, run: 'echo cut {{{{ steps.a.cut }}}}' }}\n  \
             - {{ id: c, prompt: 'Read {{{{ steps.a.output }}}}' }}\n",
            lines(count)
        );
        let done = world
            .recipe(&recipe, &script(&[says("read")]), &open_policy(&[]), &[])
            .exits(code);
        (world, done)
    };
    // The line lies in the middle: neither in the first nor in the last 8 KiB.
    let (world, _) = run(4_000, "\"'line 000002000' in steps.a.output\"", 0);
    let result = world.result();
    assert_eq!(
        (&result["steps"][1]["output"], &result["steps"][0]["cut"]),
        (&json!("cut false\n"), &Value::Null)
    );
    assert_eq!(result["steps"][0]["output"].as_str().unwrap().lines().count(), 4_000);
    // A long log would leave no room for the task, so a prompt gets it cut, with a note.
    let prompt = prompts(&world).remove(0);
    assert!(
        prompt.len() < 20_000 && prompt.contains("bytes left out"),
        "{}",
        prompt.len()
    );
    let (world, done) = run(100_000, "\"'line 000050000' in steps.a.output\"", 3);
    assert!(
        done.stderr.contains("the output of step `a` was cut"),
        "{}",
        done.stderr
    );
    assert_eq!(world.result()["steps"][0]["cut"], true);
    // A condition that does not need the output is evaluated.
    let (world, _) = run(
        100_000,
        "steps.a.exit_code == 0 and (steps.a.cut or 'x' in steps.a.output)",
        0,
    );
    assert_eq!(world.result()["steps"][1]["output"], "cut true\n");
}

#[test]
fn a_condition_that_cannot_be_evaluated_ends_the_run() {
    let world = World::repo(&[]);
    let recipe = "version: 1\nname: w\nsteps:\n  - { id: a, run: echo x }\n  - { id: b, when: 'steps.a.output - 1', run: echo y }\n";
    let done = world.recipe(recipe, &script(&[]), &open_policy(&[]), &[]).exits(3);
    assert!(done.stderr.contains("`when` of step b"), "{}", done.stderr);
    let file = world.beside("r.yaml", "version: 1\nname: w\nparameters: [{ name: n, type: integer, default: 1 }]\nsteps:\n  - { id: a, when: 'n > nothing', run: echo x }\n");
    let done = world.call(&["recipe", "check", &file]).exits(3);
    assert!(
        done.stderr.contains("r.yaml:5:25: error[undefined-name]"),
        "{}",
        done.stderr
    );
}

/// The output of a command ends with a newline, but nobody writes that in a comparison.
#[test]
fn an_output_is_compared_without_the_newline_at_its_end() {
    let recipe = "version: 1\nname: w\nsteps:\n  - { id: a, run: echo yes }\n  - { id: b, when: 'steps.a.output == \"yes\"', run: echo b }\n  \
                  - { id: c, when: 'steps.a.output == \"ye\" or \"s\\n\" in steps.a.output', run: echo c }\n";
    let world = World::repo(&[]);
    world.recipe(recipe, &script(&[]), &open_policy(&[]), &[]).exits(0);
    let result = world.result();
    let statuses: Vec<&Value> = (0..3).map(|at| &result["steps"][at]["status"]).collect();
    assert_eq!(statuses, ["passed", "passed", "skipped"]);
}

/// A shell runs an empty command successfully, and an empty prompt gives a model no task, so both are mistakes.
#[test]
fn a_command_or_prompt_that_is_empty_with_its_values_is_an_error() {
    let recipe = |steps: &str| {
        format!("version: 1\nname: w\nparameters: [{{ name: x, type: string, default: '' }}]\nsteps:\n{steps}")
    };
    for (steps, filled, told) in [
        (
            "  - { id: b, run: '{{ x | raw }}' }\n",
            "echo b",
            "error[empty-text]: this command is empty once its values are filled in",
        ),
        (
            "  - { id: b, run: '{{ x }}' }\n",
            "pwd",
            "error[empty-text]: this command is empty",
        ),
        (
            "  - { id: b, prompt: '{{ x }}' }\n",
            "Look.",
            "error[empty-text]: this prompt is empty once its values are filled in",
        ),
        (
            "  - { id: b, prompt: Look., checks: [{ name: c, run: '{{ x | raw }}' }] }\n",
            "true",
            "error[empty-text]: this command is empty",
        ),
        // The output of earlier steps is known only during the run.
        (
            "  - { id: a, run: 'echo {{ x }}' }\n  - { id: b, run: '{{ steps.a.output | trim | raw }}' }\n",
            "pwd",
            "the command of step b is empty once its values are filled in",
        ),
        (
            "  - { id: a, run: 'echo {{ x }}' }\n  - { id: b, prompt: '{{ steps.a.output }}' }\n",
            "Look.",
            "the prompt of step b is empty once its values are filled in",
        ),
        (
            "  - { id: a, run: 'echo {{ x }}' }\n  - { id: b, prompt: Look., checks: [{ name: c, run: '{{ steps.a.output | trim | raw }}' }] }\n",
            "true",
            "the command of check c is empty once its values are filled in",
        ),
    ] {
        for (value, code) in [("", 3), (filled, 0)] {
            let world = World::repo(&[]);
            let given = format!("x={value}");
            let done = world.recipe(
                &recipe(steps),
                &script(&[says("done")]),
                &open_policy(&[]),
                &["--param", &given],
            );
            assert_eq!(done.code, code, "{steps} {value:?}: {}", done.stderr);
            assert_eq!(
                done.stderr.contains(told),
                code == 3,
                "{steps} {value:?}: {}",
                done.stderr
            );
        }
    }
    let world = World::repo(&[]);
    let skipped = recipe("  - { id: b, when: x, run: '{{ x | raw }}' }\n");
    world.recipe(&skipped, &script(&[]), &open_policy(&[]), &[]).exits(0);
}

#[test]
fn recipe_check_reports_a_comparison_that_no_value_satisfies() {
    let world = World::repo(&[]);
    let recipe = |when: &str| {
        format!(
            "version: 1\nname: w\nparameters: [{{ name: kind, type: enum, choices: [bug, feature], default: bug }}]\nsteps:\n  \
             - {{ id: a, run: echo x }}\n  - id: b\n    when: {when}\n    run: echo {{{{ kind }}}}\n"
        )
    };
    for (when, told) in [
        (
            "kind == \"bugs\"",
            "error[settled-comparison]: the comparison never holds: `kind` can only be",
        ),
        (
            "steps.a.status == \"failed\"",
            "error[settled-comparison]: the comparison never holds: the status of a step",
        ),
        (
            "steps.c.exit_code == 0",
            "error[undefined-name]: no step `c` comes before this",
        ),
        (
            "steps[\"c\"].exit_code == 0",
            "error[undefined-name]: no step `c` comes before this",
        ),
    ] {
        let file = world.beside("r.yaml", recipe(when));
        let done = world.call(&["recipe", "check", &file]).exits(3);
        assert!(done.stderr.contains(told), "{when}: {}", done.stderr);
    }
    let file = world.beside(
        "r.yaml",
        recipe("kind == \"feature\" and steps.a.status != \"skipped\""),
    );
    world.call(&["recipe", "check", &file]).exits(0);
}

// Files beside the recipe

const BESIDE: &str = "version: 1
name: beside
files: [check.sh, lib]
steps:
  - id: work
    prompt: Work.
    checks:
      - { name: own, run: '\"$OVERNIGHT_RECIPE_DIR/check.sh\"' }
";

fn executable(path: &str) {
    std::fs::set_permissions(path, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
}

#[test]
fn commands_read_the_files_beside_a_recipe_and_nothing_writes_them() {
    for level in ["none", "landlock", "full"] {
        let world = World::repo(&[]);
        executable(&world.beside("check.sh", "#!/bin/bash\nset -e\ndir=$OVERNIGHT_RECIPE_DIR\ncat \"$dir/lib/words.txt\"\ntest ! -e \"$dir/other.txt\"\n"));
        world.beside("lib/words.txt", "from beside\n");
        world.beside("other.txt", "not asked for\n");
        world
            .recipe(BESIDE, &script(&[says("done")]), &at_level(level), &[])
            .exits(0);
        let checked = events(&world)
            .into_iter()
            .find(|event| event["event"] == "checked")
            .unwrap();
        assert_eq!(checked["check"]["output"], "from beside\n", "{level}");
        if level == "none" {
            continue;
        }
        // Neither the author's commands nor the model's write there.
        let own = BESIDE.replace("'\\\"$OVERNIGHT_RECIPE_DIR/check.sh\\\"'", "x").replace(
            "'\"$OVERNIGHT_RECIPE_DIR/check.sh\"'",
            "'! echo x 2>/dev/null >\"$OVERNIGHT_RECIPE_DIR/check.sh\" && ! touch \"$OVERNIGHT_RECIPE_DIR/new\" && ! rm -f \"$OVERNIGHT_RECIPE_DIR/lib/words.txt\"'",
        );
        let mine = World::repo(&[]);
        executable(&mine.beside("check.sh", "#!/bin/bash\n"));
        mine.beside("lib/words.txt", "x\n");
        let replies = [shell("echo x > \"$OVERNIGHT_RECIPE_DIR/check.sh\""), says("done")];
        mine.recipe(&own, &script(&replies), &at_level(level), &[]).exits(0);
        assert_eq!(mine.result()["denied"].as_array().unwrap().len(), 1, "{level}");
    }
}

#[test]
fn what_the_run_changes_in_the_tree_is_not_what_its_checks_run() {
    let world = World::repo(&[
        ("ci/check.sh", "exit 1\n"),
        (
            "ci/r.yaml",
            &BESIDE.replace("[check.sh, lib]", "[check.sh]").replace(
                "'\"$OVERNIGHT_RECIPE_DIR/check.sh\"'",
                "'bash \"$OVERNIGHT_RECIPE_DIR/check.sh\"'",
            ),
        ),
    ]);
    let model = format!(
        "script:{}",
        world.beside(
            "s.yaml",
            script(&[shell("echo exit 0 > ci/check.sh"), says("done"), says("sure")])
        )
    );
    let policy = world.beside("policy.yaml", open_policy(&["echo"]));
    let recipe = world.ws().join("ci/r.yaml").to_string_lossy().into_owned();
    let done = world.call(&[
        "run", &recipe, "--trust", "recipe", "--model", &model, "--policy", &policy,
    ]);
    // Whether the edit itself was denied or not, the check is the one that the run began with.
    assert!(matches!(done.code, 1 | 4), "{} {}", done.code, done.stderr);
}

#[test]
fn a_recipe_of_a_commit_gets_the_files_of_that_commit() {
    let world = World::repo(&[
        ("ci/check.sh", "echo committed\n"),
        (
            "ci/r.yaml",
            "version: 1\nname: c\nsteps:\n  - { id: a, run: 'cat \"$OVERNIGHT_RECIPE_DIR/check.sh\"; ls -A \"$OVERNIGHT_RECIPE_DIR\"' }\n",
        ),
        ("ci/.hidden", "x"),
    ]);
    world.file("ci/check.sh", "echo changed\n").file("ci/more.sh", "x");
    let out = world.out().to_string_lossy().into_owned();
    let done = world.call(&["run", "git:HEAD:ci/r.yaml", "--out", &out]);
    let done = done.exits(0);
    assert_eq!(
        world.result()["steps"][0]["output"],
        "echo committed\ncheck.sh\nr.yaml\n",
        "{}",
        done.stderr
    );
    let shown = world.call(&["recipe", "show", "git:HEAD:ci/r.yaml"]).exits(0);
    assert!(
        shown.stdout.contains("its commands get check.sh (15 bytes)"),
        "{}",
        shown.stdout
    );
}

#[test]
fn a_file_that_cannot_be_given_is_told_at_its_place() {
    let world = World::repo(&[]).env("SOME_TOKEN", "s3cr3t-value-0815");
    world.beside("has-secret.sh", "echo s3cr3t-value-0815\n");
    world.beside("id_rsa", "key\n");
    let recipe = world.beside(
        "r.yaml",
        "version: 1\nname: r\nfiles: [nowhere.py, has-secret.sh, id_rsa]\nsteps: [{ id: a, run: ls }]\n",
    );
    let done = world.call(&["recipe", "check", &recipe]).exits(3);
    for place in ["r.yaml:3:9", "r.yaml:3:21", "r.yaml:3:36"] {
        assert!(
            done.stderr.contains(&format!("{place}: error[recipe-files]")),
            "{place}: {}",
            done.stderr
        );
    }
    assert!(!done.stderr.contains("s3cr3t-value"), "{}", done.stderr);
    let big = world.beside(
        "big/r.yaml",
        "version: 1\nname: r\nsteps: [{ id: a, run: 'ls \"$OVERNIGHT_RECIPE_DIR\"' }]\n",
    );
    for n in 0..300 {
        world.beside(&format!("big/{n}.txt"), "x");
    }
    let done = world.call(&["recipe", "check", &big]).exits(3);
    assert!(
        done.stderr.contains("more than 256 files") && done.stderr.contains("files: [check.py]"),
        "{}",
        done.stderr
    );
}

#[test]
fn servers_and_discovered_tools_lie_beside_a_recipe_too() {
    let world = World::repo(&[]);
    world.beside(
        "server.py",
        std::fs::read(project().join("fixtures/mcp/server.py")).unwrap(),
    );
    world.beside(
        "tools.sh",
        "case $1 in\n  list) echo '[{\"functionDeclarations\":[{\"name\":\"add\"}]}]';;\n  call) cat; echo \" of $2\";;\nesac\n",
    );
    let recipe = json!({
        "version": 1, "name": "served", "files": ["server.py", "tools.sh"],
        "tools": {
            "mcp_servers": { "s": { "command": "python3", "args": ["${OVERNIGHT_RECIPE_DIR}/server.py"], "required": true, "writes": "tree" } },
            "discovery": {
                "command": "bash \"$OVERNIGHT_RECIPE_DIR/tools.sh\" list",
                "call": "bash \"$OVERNIGHT_RECIPE_DIR/tools.sh\" call",
            },
        },
        "steps": [{ "id": "ask", "prompt": "go" }],
    });
    let policy = "version: 1\nrules:\n  - allow: \"s__*\"\n  - allow: \"origin:discovered\"\n";
    let replies = [calls("s__echo", json!({})), calls("add", json!({"a": 1})), says("done")];
    world
        .recipe(&recipe.to_string(), &script(&replies), policy, &[])
        .exits(0);
    let finished: Vec<Value> = events(&world)
        .into_iter()
        .filter(|event| event["event"] == "call_finished")
        .collect();
    assert!(finished.iter().all(|event| event["state"] == "success"), "{finished:?}");
    assert!(finished[1].to_string().contains(" of add"), "{finished:?}");
    let (recipe, policy) = (
        world.beside("recipe.yaml", recipe.to_string()),
        world.beside("policy.yaml", policy),
    );
    let done = world
        .call(&[
            "tools", "call", "add", "--args", "{}", "--recipe", &recipe, "--policy", &policy,
        ])
        .exits(0);
    assert!(done.stdout.contains(" of add"), "{}", done.stdout);
}

#[test]
fn an_untrusted_recipe_gets_nothing_from_elsewhere() {
    let world = World::repo(&[]);
    world.beside("elsewhere/words.txt", "private\n");
    std::os::unix::fs::symlink(world.path().join("elsewhere"), world.ws().join("link")).unwrap();
    for name in ["link/words.txt", "link"] {
        world.file(
            "r.yaml",
            format!("version: 1\nname: r\nfiles: [{name}]\nsteps: [{{ id: a, run: ls }}]\n"),
        );
        let done = world.call(&["run", "r.yaml"]).exits(3);
        assert!(
            done.stderr.contains("r.yaml:3:9: error[recipe-files]"),
            "{}",
            done.stderr
        );
        assert!(done.stderr.contains("not trusted"), "{}", done.stderr);
    }
    world.call(&["run", "r.yaml", "--trust", "recipe"]).exits(0);
    world.file(
        "r.yaml",
        "version: 1\nname: r\nsteps: [{ id: a, run: 'find \"$OVERNIGHT_RECIPE_DIR\" -type f | wc -l' }]\n",
    );
    let out = world.out().to_string_lossy().into_owned();
    let done = world.call(&["run", "r.yaml", "--out", &out]).exits(0);
    let limits = done.stderr.lines().find(|line| line.contains("limits: ")).unwrap();
    assert!(!limits.contains("cost"), "no model is asked: {limits}");
    assert_eq!(
        world.result()["steps"][0]["output"],
        "1\n",
        "the recipe alone, and nothing behind a link"
    );
    let recipe = "version: 1\nname: r\nfiles: [x]\nsteps: [{ id: a, run: ls }]\n";
    let done = world.call_with(&["run", "-"], recipe).exits(3);
    assert!(
        done.stderr.contains("from stdin has no files beside it"),
        "{}",
        done.stderr
    );
}

#[test]
fn a_killed_run_goes_on_with_the_files_it_began_with() {
    let world = World::repo(&[]);
    let check = world.beside("check.sh", "#!/bin/bash\necho as it was\n");
    executable(&check);
    world.beside("lib/words.txt", "x\n");
    let recipe = world.beside("recipe.yaml", BESIDE);
    let slow = json!({"replies": [{"calls": [{"tool": "run_shell_command", "args": {"command": "sleep 60"}}]}, {"text": "done"}]});
    let model = format!("script:{}", world.beside("script.yaml", slow.to_string()));
    let policy = world.beside("policy.yaml", open_policy(&["sleep"]));
    let out = world.out().to_string_lossy().into_owned();
    let mut child = world
        .command(&["run", &recipe, "--model", &model, "--policy", &policy, "--out", &out])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    super::harness::until("the call has started", || {
        std::fs::read_to_string(world.out().join("journal.jsonl")).is_ok_and(|text| text.contains("call_started"))
    });
    child.kill().unwrap();
    child.wait().unwrap();
    world.beside("check.sh", "#!/bin/bash\necho another; exit 1\n");
    let last = format!(
        "script:{}",
        world.beside("last.yaml", script(&[says("unused"), says("done")]))
    );
    let done: Done = world.call(&["resume", &out, "--policy", &policy, "--model", &last]);
    done.exits(0);
    let checked: Vec<Value> = events(&world)
        .into_iter()
        .filter(|event| event["event"] == "checked")
        .collect();
    assert_eq!(checked.last().unwrap()["check"]["output"], "as it was\n");
}

#[test]
fn a_new_recipe_takes_its_files_along() {
    let world = World::repo(&[]);
    world
        .call(&["recipe", "new", "mine.yaml", "--from", "builtin:explain-failure"])
        .exits(0);
    assert!(world.ws().join("checks/explain-failure.py").is_file());
    world.call(&["recipe", "check", "mine.yaml"]).exits(0);
}

#[test]
fn a_new_recipe_takes_along_what_its_commands_find_beside_it() {
    let world = World::repo(&[]);
    let recipe = "version: 1\nname: r\nsteps: [{ id: a, run: '\"$OVERNIGHT_RECIPE_DIR/check.sh\"' }]\n";
    let script = "#!/bin/bash\ncat \"$OVERNIGHT_RECIPE_DIR/lib/words.txt\"\n";
    world
        .file("theirs/r.yaml", recipe)
        .file("theirs/check.sh", script)
        .file("theirs/lib/words.txt", "found\n");
    executable(&world.ws().join("theirs/check.sh").to_string_lossy());
    world
        .call(&["recipe", "new", "mine/own.yaml", "--from", "theirs/r.yaml"])
        .exits(0);
    assert!(
        !world.ws().join("mine/r.yaml").exists(),
        "the recipe is there under its new name"
    );
    let out = world.out().to_string_lossy().into_owned();
    world.call(&["run", "mine/own.yaml", "--out", &out]).exits(0);
    assert_eq!(world.result()["steps"][0]["output"], "found\n");
}

// Findings

const SCAN: &str = "version: 1
name: scan
steps:
  - id: scan
    findings: true
    allow_failure: true
    run: 'echo noise >&2; cat findings.json; exit 1'
  - id: review
    prompt: Review.
    findings: true
    retry: { max: 1 }
";

#[test]
fn findings_of_commands_and_prompts_are_cases_of_their_steps() {
    let many: Vec<Value> = (1..300)
        .map(|n| json!({"path": "src/a.rs", "line": n, "rule": "style", "level": "note", "message": "m".repeat(100)}))
        .chain([json!({"path": "src/b.rs", "line": 7, "rule": "sql <injection>", "level": "error", "message": "Bad."})])
        .collect();
    let world = World::repo(&[("findings.json", &json!({"findings": many}).to_string())]);
    let review =
        json!({"findings": [{"path": "c.rs", "line": 1, "rule": "name", "level": "warning", "message": "Short."}]});
    let replies = [says("I found nothing."), says(&format!("```json\n{review}\n```"))];
    world.recipe(SCAN, &script(&replies), &open_policy(&[]), &[]).exits(0);
    let xml = junit(&world);
    assert!(
        xml.contains("name=\"sql &lt;injection&gt; src/b.rs:7\""),
        "{}",
        &xml[..2_000]
    );
    assert!(xml.contains("<failure message=\"Bad.\" type=\"finding\""), "{xml:.200}");
    assert_eq!(xml.matches("<failure").count(), 1, "only the error of the code fails");
    assert!(
        xml.contains("name=\"name c.rs:1\" classname=\"scan.review\""),
        "{xml:.200}"
    );
    assert!(
        xml.contains("<testcase name=\"findings\""),
        "the check that they are findings"
    );
    let out = world.out().to_string_lossy().into_owned();
    let sarif = world.call(&["report", &out, "--format", "sarif"]).exits(0);
    let sarif: Value = serde_json::from_str(&sarif.stdout).unwrap();
    assert_eq!(sarif["runs"][0]["results"].as_array().unwrap().len(), 301);
}

#[test]
fn a_step_that_promises_findings_and_gives_none_fails() {
    let world = World::repo(&[("findings.json", "{\"findings\": [{\"path\": \"a\"}]}")]);
    world
        .recipe(SCAN, &script(&[says("x")]), &open_policy(&[]), &[])
        .exits(1);
    let result = world.result();
    assert_eq!(result["steps"][0]["status"], "failed");
    assert!(
        result["message"].as_str().unwrap().contains("findings"),
        "{}",
        result["message"]
    );
}

// The file as a whole

#[test]
fn a_check_tells_problems_of_every_kind_at_once() {
    let world = World::repo(&[]);
    let recipe = world.beside(
        "r.yaml",
        "version: 1\nname: r\nnam: x\nname: again\nmodel: foo/bar\npolicy: nowhere.yaml\nresponse: { schema: nowhere.json }\nsteps:\n  - { id: a, run: \"echo '\" }\n  - { id: b, promt: x }\n  - { id: c, prompt: '{{ steps.b.output }} {{ nowhere }}' }\n",
    );
    let done = world.call(&["recipe", "check", &recipe]).exits(3);
    for problem in [
        "3:1: error[unknown-key]",
        "4:1: error[duplicate-key]",
        "5:8: error[unknown-model]",
        "6:9: error[no-policy-file]",
        "7:21: error[unreadable-file]",
        "9:19: error[bad-command]",
        "10:14: error[unknown-key]",
        "11:47: error[undefined-name]",
    ] {
        assert!(
            done.stderr.contains(&format!("r.yaml:{problem}")),
            "{problem}: {}",
            done.stderr
        );
    }
    assert!(!done.stderr.contains("no step `b`"), "{}", done.stderr);
    let cut = world.beside(
        "cut.yaml",
        "version: 1\nnam: x\nbudget: { turns: many }\nsteps:\n  - { id: a, promt: [x }\n",
    );
    let done = world.call(&["recipe", "check", &cut]).exits(3);
    for problem in [
        "2:1: error[unknown-key]",
        "3:18: error[wrong-type]",
        "error[yaml-syntax]",
    ] {
        assert!(done.stderr.contains(problem), "{problem}: {}", done.stderr);
    }
    assert!(!done.stderr.contains("missing-key"), "{}", done.stderr);
}

#[test]
fn a_model_that_fails_for_good_is_followed_by_the_next_of_the_list() {
    let world = World::repo(&[]).env("GEMINI_API_KEY", "k-0123456789");
    let refused = super::gemini::Answer::Status(401, Vec::new(), "{}".to_owned());
    let first = super::gemini::Gemini::new(vec![refused]);
    let second = format!("script:{}", world.beside("s.yaml", script(&[says("from the second")])));
    let recipe = world.beside(
        "r.yaml",
        format!(
            "version: 1\nname: r\nmodel: [gemini/gemini-2.5-flash, \"{second}\"]\nsteps: [{{ id: a, prompt: x }}]\n"
        ),
    );
    let shown = world.call(&["recipe", "show", &recipe]).exits(0);
    assert!(
        shown.stdout.contains("gemini/gemini-2.5-flash, then script:"),
        "{}",
        shown.stdout
    );
    let done = world.call(&["run", &recipe, "--base-url", &first.url, "--format", "json"]);
    let result = done.json();
    assert_eq!(result["response"], "from the second", "{}", done.stderr);
    // Who answered is told, and that nobody was asked.
    assert_eq!(result["warnings"][0]["code"], "model_fallback", "{result}");
    let told = result["warnings"][0]["message"].as_str().unwrap();
    assert!(
        told.contains("gemini/gemini-2.5-flash") && told.contains(&second),
        "{told}"
    );
    assert_eq!(
        (&result["recorded"], &result["warnings"][1]),
        (&json!(true), &Value::Null),
        "{result}"
    );
}

/// A check shows nothing about a call that was denied after it.
#[test]
fn a_check_of_an_earlier_step_shows_nothing() {
    let check = ", checks: [{ name: c, run: 'true' }]";
    for (first, second, code) in [(check, "", 4), (check, check, 0)] {
        let recipe = format!(
            "version: 1\nname: w\nsteps:\n  - {{ id: a, prompt: Look.{first} }}\n  - {{ id: b, prompt: Remove it.{second} }}\n"
        );
        let replies = script(&[says("seen"), shell("rm a.txt"), says("cannot")]);
        let world = World::repo(&[("a.txt", "one\n")]);
        let done = world.recipe(&recipe, &replies, &open_policy(&["true"]), &[]);
        assert_eq!(done.code, code, "{first} {second}: {}", done.stderr);
    }
}

/// A check of a step that its condition left out was never made, so it excuses no denied call.
#[test]
fn a_check_that_is_not_made_shows_nothing() {
    let recipe = |go: bool, check: &str| {
        format!(
            "version: 1\nname: w\nparameters: [{{ name: go, type: boolean, default: {go} }}]\nsteps:\n  - {{ id: a, prompt: Remove it. }}\n  \
             - {{ id: b, when: go, prompt: More., checks: [{{ name: c, run: '{check}' }}] }}\n"
        )
    };
    let replies = script(&[shell("rm a.txt"), says("cannot"), says("fine")]);
    for (go, check, code) in [(false, "true", 4), (false, "false", 4), (true, "true", 0)] {
        let world = World::repo(&[("a.txt", "one\n")]);
        let done = world.recipe(&recipe(go, check), &replies, &open_policy(&["true", "false"]), &[]);
        assert_eq!(done.code, code, "{go} {check}: {}", done.stderr);
    }
}
