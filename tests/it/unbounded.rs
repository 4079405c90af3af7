//! Input that once ended the process or kept it busy past every limit: deep patterns, ignore files that are no files, edits and
//! commands whose work grows with the product of their parts. What counts: the run ends in time, with a result, and goes on with
//! the honest use of the same thing.

use super::harness::{Done, World, calls, open_policy, says, script, shell};
use serde_json::{Value, json};
use std::process::Stdio;
use std::time::{Duration, Instant};

/// A pattern with so many braces inside each other that its compiler overflowed the stack.
fn deep() -> String {
    format!("{}a{}", "{".repeat(20_000), "}".repeat(20_000))
}

/// A run of these replies that ends in time; the journal's text.
fn journal(world: &World, policy: &str, replies: &[Value]) -> (Done, String) {
    let begun = Instant::now();
    let replies: Vec<Value> = replies.iter().cloned().chain([says("done")]).collect();
    let done = world.run(&script(&replies), policy, &["-p", "x", "--max-wall", "100s"]);
    assert!(begun.elapsed() < Duration::from_secs(60), "{:?}", begun.elapsed());
    assert_eq!(world.result()["partial"], json!(false), "{}", done.stderr);
    let text = std::fs::read_to_string(world.out().join("journal.jsonl")).unwrap();
    (done, text)
}

#[test]
fn deep_patterns_of_the_model_are_errors() {
    for (tool, args, honest, found) in [
        (
            "glob",
            json!({"pattern": deep()}),
            json!({"pattern": "*.{txt,md}"}),
            "Found 1 file(s)",
        ),
        (
            "grep_search",
            json!({"pattern": "x", "include_pattern": deep()}),
            json!({"pattern": "hi", "include_pattern": "*.{txt,md}"}),
            "File: a.txt",
        ),
        (
            "list_directory",
            json!({"dir_path": ".", "ignore": [deep()]}),
            json!({"dir_path": ".", "ignore": ["*.{log,md}"]}),
            "Directory listing",
        ),
        (
            "read_many_files",
            json!({"include": [deep()]}),
            json!({"include": ["*.{txt,md}"]}),
            "hi there",
        ),
    ] {
        let world = World::repo(&[("a.txt", "hi there\n")]);
        let (done, text) = journal(&world, &open_policy(&[]), &[calls(tool, args), calls(tool, honest)]);
        assert_eq!(done.code, 0, "{tool}: {}", done.stderr);
        assert!(text.contains("longer than 4096 bytes"), "{tool}");
        assert!(text.contains(found), "{tool}: the control");
    }
}

#[test]
fn deep_lines_of_ignore_files_are_skipped() {
    for name in [".gitignore", ".ignore", ".geminiignore"] {
        let world = World::repo(&[("a.txt", "hi\n"), ("b.log", "hi\n")]);
        world.file(name, format!("{}\n*.log\n", deep()));
        let look = calls("glob", json!({"pattern": "[ab].*"}));
        let (done, text) = journal(&world, &open_policy(&[]), &[look]);
        assert_eq!(done.code, 0, "{name}: {}", done.stderr);
        assert!(
            text.contains("Found 1 file(s)"),
            "{name}: the line after the deep one applies"
        );
    }
}

#[test]
fn ignore_files_that_are_no_files_do_not_count() {
    for name in [".gitignore", ".ignore", ".geminiignore"] {
        for kind in ["link", "pipe", "file"] {
            let world = World::repo(&[("a.txt", "hi\n"), ("d/c.txt", "hi\n")]);
            let outside = world.beside("outside", "c.txt\n");
            let place = world.ws().join("d").join(name);
            match kind {
                "link" => std::os::unix::fs::symlink(outside, place).unwrap(),
                "pipe" => {
                    let made = std::process::Command::new("mkfifo").arg(place).status().unwrap();
                    assert!(made.success());
                }
                _ => std::fs::write(place, "c.txt\n").unwrap(),
            }
            let look = calls("glob", json!({"pattern": "**/*.txt"}));
            let (done, text) = journal(&world, &open_policy(&[]), &[look]);
            assert_eq!(done.code, 0, "{name} {kind}: {}", done.stderr);
            // The control is the file, which applies.
            let files = if kind == "file" {
                "Found 1 file(s)"
            } else {
                "Found 2 file(s)"
            };
            assert!(text.contains(files), "{name} {kind}");
        }
    }
}

#[test]
fn an_edit_of_equal_lines_keeps_no_limit_waiting() {
    let lines = "a\n".repeat(60_000) + "one\n";
    let edit = |old: &str, new: &str| {
        calls(
            "replace",
            json!({"file_path": "b.txt", "old_string": old, "new_string": new}),
        )
    };
    let world = World::repo(&[("b.txt", &lines)]);
    let replies = [edit(&("a\n".repeat(20_000) + "b"), "y"), says("done")];
    let begun = Instant::now();
    let done = world.run(&script(&replies), &open_policy(&[]), &["-p", "x", "--max-wall", "5s"]);
    assert!(begun.elapsed() < Duration::from_secs(40), "{:?}", begun.elapsed());
    assert_eq!(world.read("b.txt"), lines);
    if done.code != 0 {
        done.exits(6);
        assert_eq!(world.result()["reason"], "limit:wall");
    }
    // The controls: an old text that is too long is an error for the model, and the honest edit of the same file is made.
    let world = World::repo(&[("b.txt", &lines)]);
    let replies = [edit(&lines.repeat(3), "y"), edit("one\n", "two\n")];
    let (_, text) = journal(&world, &open_policy(&[]), &replies);
    assert!(text.contains("262144 are compared"));
    assert_eq!(world.read("b.txt"), lines.replace("one", "two"));
}

#[test]
fn a_command_of_many_globs_is_denied() {
    let policy = "version: 1\nextends: [builtin:read-only]\nrules: [{ allow: run_shell_command, commands: [cat] }]\nsandbox: { level: \
                  none }\n";
    let world = World::repo(&[]);
    for dir in 0..40 {
        for file in 0..20 {
            world.file(&format!("e/{dir}/{file}"), format!("text {dir} {file}\n"));
        }
    }
    world.commit("files");
    let many = format!("cat {}", "*/*/* ".repeat(2_000));
    let (done, text) = journal(&world, policy, &[shell(&many), shell("cat e/*/1")]);
    assert_eq!(done.code, 4, "{}", done.stderr);
    assert!(text.contains("limit:globs"));
    assert!(text.contains("text 39 1"), "the control");
}

/// A run whose stdout or stderr is a pipe that stays open and is never read, and how long it took. `signals`: the
/// milliseconds before each one.
fn unread(
    stream: &str,
    format: &str,
    wall: &str,
    replies: &[Value],
    signals: &[u64],
) -> (World, Option<i32>, Duration) {
    let world = World::repo(&[("a.txt", "hi\n")]);
    let script = world.beside("script.json", script(replies));
    let policy = world.beside("policy.yaml", open_policy(&[]));
    let out = world.out();
    let mut command = world.command(&[
        "run",
        "-p",
        "x",
        "--model",
        &format!("script:{script}"),
        "--policy",
        &policy,
    ]);
    command
        .args(["--max-wall", wall, "--format", format, "--out"])
        .arg(&out);
    let (reader, writer) = std::io::pipe().unwrap();
    match stream {
        "stdout" => command.stdout(writer).stderr(Stdio::null()),
        _ => command.stdout(Stdio::null()).stderr(writer),
    };
    let begun = Instant::now();
    let mut child = command.stdin(Stdio::null()).spawn().unwrap();
    drop(command);
    for pause in signals {
        std::thread::sleep(Duration::from_millis(*pause));
        let pid = rustix::process::Pid::from_child(&child);
        rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
    }
    let mut ended = None;
    super::harness::until("the run has ended", || {
        ended = child.try_wait().unwrap();
        ended.is_some()
    });
    drop(reader);
    (world, ended.and_then(|status| status.code()), begun.elapsed())
}

/// A small schema whose references double the work at each level: a check would take years. The tool itself works.
#[test]
fn a_schema_of_a_foreign_tool_does_not_hold_up_the_run() {
    let of = |level: usize| json!({ "$ref": format!("#/$defs/d{level}") });
    let mut defs: serde_json::Map<String, Value> = (0..40)
        .map(|level| (format!("d{level}"), json!({ "allOf": [of(level + 1), of(level + 1)] })))
        .collect();
    defs.insert("d40".to_owned(), json!({ "type": "object" }));
    let tools = json!([{ "name": "deep", "description": "d", "parameters": { "allOf": [of(0)], "$defs": defs } }]);
    let world = World::repo(&[("a.txt", "one\n")]);
    world.beside(
        "tools.sh",
        format!("case $1 in\n  list) echo '{tools}';;\n  call) echo it-was-called;;\nesac\n"),
    );
    let recipe = "version: 1\nname: r\nfiles: [tools.sh]\ntools:\n  discovery:\n    command: bash \
                  \"$OVERNIGHT_RECIPE_DIR/tools.sh\" list\n    call: bash \"$OVERNIGHT_RECIPE_DIR/tools.sh\" call\nsteps: [{ id: a, \
                  prompt: go }]\n";
    let policy = "version: 1\nrules:\n  - { allow: deep }\nsandbox: { level: none }\n";
    let begun = Instant::now();
    let replies = script(&[calls("deep", json!({})), calls("deep", json!({})), says("done")]);
    let done = world.recipe(recipe, &replies, policy, &["--max-wall", "120s"]).exits(0);
    assert!(begun.elapsed() < Duration::from_secs(60), "{:?}", begun.elapsed());
    let journal = std::fs::read_to_string(world.out().join("journal.jsonl")).unwrap();
    assert!(journal.contains("it-was-called"), "{}{journal}", done.stderr);
}

#[test]
fn a_pipe_that_nobody_reads_does_not_hold_up_the_run() {
    let long = "z".repeat(200_000);
    let look = |turn: usize| {
        let path = |number| format!("{}{turn}-{number}", "q".repeat(80));
        let calls = (0..60).map(|number| json!({"tool": "glob", "args": {"pattern": path(number)}}));
        json!({ "calls": calls.collect::<Vec<Value>>() })
    };
    let many: Vec<Value> = (0..15).map(look).chain([says("done")]).collect();
    for (stream, format, wall, replies, code) in [
        // What the caller asked for could not be given: the code says so, and the files of the run are whole.
        ("stdout", "text", "3s", vec![says(&long)], 9),
        ("stdout", "json", "3s", vec![says(&long)], 9),
        // Progress is not the result.
        ("stderr", "json", "60s", many.clone(), 0),
        ("stderr", "json", "3s", many, 6),
    ] {
        let (world, ended, took) = unread(stream, format, wall, &replies, &[]);
        assert_eq!(ended, Some(code), "{stream} {format}");
        assert!(took < Duration::from_secs(20), "{stream} {format}: {took:?}");
        assert_eq!(world.result()["exit_code"], code, "{stream} {format}");
    }
}

/// A second signal within one second would count as the first one.
#[test]
fn a_second_signal_ends_a_run_whose_output_nobody_reads() {
    let (_world, ended, took) = unread("stdout", "text", "60s", &[says(&"z".repeat(200_000))], &[700, 1200]);
    assert_eq!(ended, Some(143));
    assert!(took < Duration::from_secs(4), "{took:?}");
}

fn named_pipe(world: &World, name: &str) -> String {
    let path = world.path().join(name);
    assert!(
        std::process::Command::new("mkfifo")
            .arg(&path)
            .status()
            .unwrap()
            .success()
    );
    path.to_string_lossy().into_owned()
}

#[test]
fn an_output_on_a_pipe_that_nobody_opens_ends_with_the_clock_of_the_run() {
    let world = World::repo(&[("a.txt", "hi\n")]);
    let pipe = named_pipe(&world, "junit.xml");
    let replies = script(&[says("done")]);
    let begun = Instant::now();
    let flags = [
        "-p",
        "x",
        "--max-wall",
        "1s",
        "--junit",
        pipe.as_str(),
        "--format",
        "json",
    ];
    let done = world.run(&replies, &open_policy(&[]), &flags).exits(9);
    assert!(begun.elapsed() < Duration::from_secs(20), "{:?}", begun.elapsed());
    assert!(done.stderr.contains("nobody read it"), "{}", done.stderr);
    for object in [done.json(), world.result()] {
        assert_eq!(
            (&object["verdict"], &object["exit_code"]),
            (&json!("output"), &json!(9))
        );
    }
}

#[test]
fn prices_and_certificates_on_a_pipe_that_nobody_writes_end_with_the_clock_of_the_run() {
    for (variable, model) in [
        ("OVERNIGHT_PRICES", "script:replies.yaml"),
        ("SSL_CERT_FILE", "openai/m"),
    ] {
        let world = World::repo(&[("replies.yaml", &script(&[says("done")]))]);
        let pipe = named_pipe(&world, "pipe");
        let world = world.env(variable, pipe).env("OPENAI_API_KEY", "k-0123456789");
        let to = ["--base-url", "https://192.0.2.1/v1"];
        let more = if model == "openai/m" { &to[..] } else { &[] };
        let args = [
            "run",
            "-p",
            "x",
            "--model",
            model,
            "--max-wall",
            "1s",
            "--format",
            "json",
        ];
        let done = world.call(&[&args, more].concat()).exits(6);
        assert_eq!(done.json()["reason"], "limit:wall", "{variable}");
    }
}

#[test]
fn the_recipes_limit_holds_while_its_input_is_awaited() {
    let world = World::repo(&[("a.txt", "hi\n")]);
    let pipe = named_pipe(&world, "input");
    let recipe = "version: 1\nname: r\ninput: { format: text }\nbudget: { wall: 1s }\nsteps: [{ id: a, prompt: '{{ input }}' }]\n";
    let replies = script(&[says("done")]);
    for flag in ["--input", "--params"] {
        let flags = [flag, pipe.as_str(), "--format", "json"];
        let done = world.recipe(recipe, &replies, &open_policy(&[]), &flags).exits(6);
        assert_eq!(done.json()["reason"], "limit:wall", "{flag}");
    }
}

#[test]
fn a_script_on_a_pipe_that_nobody_writes_ends_with_the_clock_of_the_run() {
    let world = World::repo(&[("a.txt", "hi\n")]);
    let model = format!("script:{}", named_pipe(&world, "script.yaml"));
    let begun = Instant::now();
    let args = [
        "run",
        "-p",
        "x",
        "--model",
        &model,
        "--max-wall",
        "1s",
        "--format",
        "json",
    ];
    let done = world.call(&args).exits(6);
    assert!(begun.elapsed() < Duration::from_secs(20), "{:?}", begun.elapsed());
    assert_eq!(done.json()["reason"], "limit:wall");
}
