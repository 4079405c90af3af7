//! Every exit code that a run can reach, and that each output says the same of it.

pub mod table;

use super::gemini::{self, Answer};
use super::harness::{Done, World, open_policy, says, script, under, writes};
use serde_json::{Value, json};
use std::process::Stdio;
use table::{Case, Job, cases};

/// What is wrong with the outputs of a case in a format; empty when they agree.
fn problems(case: &Case, format: &str) -> Vec<String> {
    let job = (case.make)();
    let done = job.run(format);
    let mut wrong = Vec::new();
    let mut expect = |holds: bool, what: &str| {
        if !holds {
            wrong.push(format!(
                "{} ({format}): {what}\n  code {}\n  stdout {}\n  stderr {}",
                case.name,
                done.code,
                done.stdout,
                done.stderr.trim_end().replace('\n', "\n    ")
            ));
        }
    };
    expect(done.code == case.code, "the code");
    let agrees = |object: &Value| object["verdict"] == case.verdict && object["exit_code"] == case.code;
    let stored = std::fs::read_to_string(job.world.out().join("result.json")).ok();
    let stored: Option<Value> = stored.and_then(|text| serde_json::from_str(&text).ok());
    expect(stored.as_ref().is_some_and(agrees), "result.json");
    let lines: Vec<&str> = done.stdout.lines().collect();
    let parsed: Vec<Option<Value>> = lines.iter().map(|line| serde_json::from_str(line).ok()).collect();
    match format {
        "json" => {
            expect(
                parsed.len() == 1 && parsed[0].as_ref().is_some_and(agrees),
                "one object on stdout",
            );
        }
        "stream-json" => {
            expect(parsed.iter().all(Option::is_some), "stdout is JSON lines");
            let last = parsed.last().cloned().flatten().unwrap_or_default();
            expect(agrees(&last) && last["type"] == "result", "the last line is the result");
        }
        _ => {
            // A program must not get an answer that is not valid.
            let response = stored
                .as_ref()
                .filter(|_| case.name != "response")
                .map_or("", |stored| stored["response"].as_str().unwrap_or(""));
            expect(
                done.stdout.trim_end() == response.trim_end(),
                "stdout is the answer only",
            );
        }
    }
    if case.code != 9 {
        for path in [job.world.path().join("junit.xml"), job.world.out().join("junit.xml")] {
            let xml = std::fs::read_to_string(path).unwrap_or_default();
            let whole = xml.starts_with("<?xml") && xml.trim_end().ends_with("</testsuites>");
            expect(whole && xml.contains("name=\"completed\""), "junit.xml");
            let clean = !xml.contains("<failure") && !xml.contains("<error") && !xml.contains("<skipped");
            expect(clean == (case.code == 0), "junit.xml says how it ended");
        }
    }
    if case.code == 9 {
        let xml = std::fs::read_to_string(job.world.out().join("junit.xml")).unwrap_or_default();
        expect(
            xml.contains("<failure") || xml.contains("<error"),
            "junit.xml of the run directory says that an output is missing",
        );
    }
    if matches!(case.code, 5 | 6 | 7 | 129 | 130 | 143) {
        expect(
            stored.as_ref().is_some_and(|stored| stored["partial"] == true),
            "marked partial",
        );
    }
    if case.code != 0 {
        expect(!done.stderr.trim().is_empty(), "stderr says why");
    }
    drop(job.service);
    wrong
}

#[test]
fn every_output_says_how_it_ended() {
    let cases = cases();
    let jobs: Vec<(&Case, &str)> = cases
        .iter()
        .flat_map(|case| ["text", "json", "stream-json"].map(|format| (case, format)))
        .collect();
    let wrong: Vec<String> = std::thread::scope(|scope| {
        let workers: Vec<_> = (0..4)
            .map(|own| {
                let jobs = &jobs;
                scope.spawn(move || {
                    let own = jobs.iter().skip(own).step_by(4);
                    own.flat_map(|(case, format)| problems(case, format))
                        .collect::<Vec<_>>()
                })
            })
            .collect();
        workers.into_iter().flat_map(|worker| worker.join().unwrap()).collect()
    });
    assert!(wrong.is_empty(), "{} problems:\n{}", wrong.len(), wrong.join("\n"));
}

#[test]
fn a_quiet_run_says_what_could_not_be_written() {
    let world = World::repo(&[("a.txt", "one\n")]);
    let junit = world.path().join("j.xml").to_string_lossy().into_owned();
    // A directory that is there before the run would be refused before it.
    let recipe = "version: 1\nname: r\nsteps: [{ id: one, run: 'mkdir -p ../j.xml/in-the-way' }]\n";
    let more = ["--quiet", "--junit", &junit];
    let done = world.recipe(recipe, &script(&[]), &open_policy(&[]), &more).exits(9);
    assert_eq!(
        done.stderr.matches("error: not written: ").count(),
        1,
        "{}",
        done.stderr
    );
    // What could be written does not claim that the run passed.
    let xml = std::fs::read_to_string(world.out().join("junit.xml")).unwrap();
    assert!(
        xml.contains("type=\"output\"") && xml.contains("not written: "),
        "{xml}"
    );
    let summary = std::fs::read_to_string(world.out().join("summary.md")).unwrap();
    assert!(
        summary.lines().next().is_some_and(|line| line.ends_with(": output")),
        "{summary}"
    );
    let result = std::fs::read_to_string(world.out().join("result.json")).unwrap();
    let result: Value = serde_json::from_str(&result).unwrap();
    assert_eq!(
        (&result["verdict"], &result["reason"]),
        (&json!("output"), &json!("output"))
    );
}

#[test]
fn an_output_that_cannot_be_written_is_refused_before_the_first_request() {
    let world = World::repo(&[("a.txt", "one\n")]);
    let model = format!("script:{}", world.beside("script.yaml", script(&[says("x")])));
    for (flag, path, told) in [
        ("--junit", ".", "is a directory: name a file"),
        ("--patch", "a.txt/below/p", "a.txt is a file: name a file elsewhere"),
        ("--transcript", "/proc/nope/t", "name another file"),
        ("--out", "a.txt", "a.txt is a file: name a new or empty directory"),
    ] {
        let args = ["run", "-p", "x", "--model", &model, flag, path, "--format", "json"];
        let done = world.call(&args).exits(9);
        assert!(
            done.stderr.lines().count() == 1 && done.stderr.starts_with(&format!("error: {flag} {path} ")),
            "{}",
            done.stderr
        );
        assert!(done.stderr.contains(told), "{}", done.stderr);
        let object = done.json();
        assert_eq!(
            (&object["verdict"], &object["usage"]["turns"]),
            (&json!("output"), &json!(0))
        );
    }
    assert_eq!(world.read("a.txt"), "one\n");
}

#[test]
fn a_wrong_command_line_ends_2_and_prints_nothing_but_its_object() {
    let world = World::repo(&[("a.txt", "one\n")]);
    for args in [
        vec!["run"],
        vec!["run", "--no-such-flag"],
        vec!["run", "-p", "x", "--format", "xml"],
        vec!["run", "-p", "x", "--max-wall", "soon"],
        vec!["run", "-p", "x", "--format", "json"],
        vec!["run", "-p", "x", "--model", "nobody/x", "--format", "json"],
        vec!["resume"],
        vec!["nonsense"],
    ] {
        let done = world.call(&args).exits(2);
        match args.contains(&"json") {
            true => assert_eq!(done.json()["verdict"], "usage", "{args:?}"),
            false => assert_eq!(done.stdout, "", "{args:?}"),
        }
        assert!(!done.stderr.is_empty(), "{args:?}");
    }
}

type Words<'a> = &'a [&'a str];

const TYPED: &str = "version: 1
name: r
parameters:
  - { name: many, type: integer, description: a number }
steps: [{ id: one, prompt: 'Count to {{ many }}.' }]
";

#[test]
fn what_is_typed_wrongly_ends_2_and_a_file_that_is_wrong_or_missing_ends_3() {
    let world = World::repo(&[("a.txt", "one\n"), ("docs/b.txt", "two\n")]);
    let recipe = world.beside("recipe.yaml", TYPED);
    let few = world.beside("few.yaml", "many: few\n");
    let good = world.beside("good.yaml", "many: 3\n");
    let policy = world.beside("policy.yaml", "version: 1\nextends: [builtin:read-only]\n");
    let replies = format!("script:{}", world.beside("replies.yaml", script(&[says("3")])));
    let run = ["run", recipe.as_str(), "--model", replies.as_str()];
    let prompt = ["run", "-p", "x", "--model", replies.as_str()];
    let explain = ["policy", "explain", policy.as_str()];
    let both = ["--params", few.as_str(), "--param", "mny=3"];
    let cases: [(Words<'_>, Words<'_>, i32, &str); 17] = [
        (&run, &["--param", "many=few"], 2, "error[bad-value]"),
        (&run, &["--param", "mny=3"], 2, "did you mean `many`?"),
        (&run, &["--param", "many"], 2, "write `--param NAME=VALUE`"),
        (&run, &["--param", "many=3", "--param", "many=4"], 2, "given twice"),
        (
            &["recipe", "show", &recipe],
            &["--param", "many=few"],
            2,
            "error[bad-value]",
        ),
        (&run, &[], 3, "recipe.yaml:4:13: error[missing-parameter]"),
        (&run, &["--params", &few], 3, "few.yaml:1:7: error[bad-value]"),
        // The file is wrong too.
        (&run, &both, 3, "few.yaml:1:7: error[bad-value]"),
        (
            &run,
            &["--params", "nope.yaml"],
            3,
            "nope.yaml:1:1: error[no-file]: --params",
        ),
        (&run, &["--params", "docs"], 3, "it is a directory"),
        (
            &run,
            &["--params", &good, "--input", "nope.json"],
            3,
            "error[no-file]: --input",
        ),
        (&run, &["--params", &good, "--policy", "nope.yaml"], 3, "error[no-file]"),
        (
            &prompt,
            &["--output-schema", "nope.json"],
            3,
            "error[no-file]: --output-schema",
        ),
        (&prompt, &["--model", "script:nope.yaml"], 3, "error[no-file]: script"),
        (&explain, &["--calls", "nope.jsonl"], 3, "error[no-file]: --calls"),
        (
            &explain,
            &["--tool", "glob", "--args", "@nope.json"],
            3,
            "error[no-file]: --args",
        ),
        (
            &["policy", "test", &policy],
            &["--cases", "nope.yaml"],
            3,
            "error[no-file]: --cases",
        ),
    ];
    for (args, more, code, told) in cases {
        let args: Vec<&str> = match more.first() {
            // A flag that is given twice is another mistake.
            Some(&"--model") => args[..3].iter().chain(more).copied().collect(),
            _ => args.iter().chain(more).copied().collect(),
        };
        let done = world.call(&args).exits(code);
        assert!(done.stderr.contains(told), "{args:?}: {}", done.stderr);
        assert!(!done.stderr.contains("error: error["), "{args:?}: {}", done.stderr);
    }
    world.call(&[&run[..], &["--params", &good]].concat()).exits(0);
}

#[test]
fn the_missing_key_is_named() {
    let world = World::repo(&[]);
    for (model, name) in [
        ("gemini/gemini-2.5-pro", "GEMINI_API_KEY"),
        ("openai/gpt-5", "OPENAI_API_KEY"),
        ("anthropic/claude-sonnet-4-5", "ANTHROPIC_API_KEY"),
    ] {
        let done = world.call(&["run", "-p", "x", "--model", model]).exits(8);
        assert!(done.stderr.contains(name), "{}", done.stderr);
    }
}

#[test]
fn no_journal_ends_8() {
    let world = World::repo(&[]);
    world.call(&["resume", "nowhere"]).exits(8);
    world.call(&["report", "nowhere"]).exits(8);
    world.call(&["run", "-p", "x", "--model", "replay:nowhere"]).exits(8);
}

#[test]
fn a_second_run_in_a_directory_of_another_leaves_it_alone() {
    let world = World::repo(&[("a.txt", "one\n")]);
    let policy = open_policy(&[]);
    world.run(&script(&[says("first")]), &policy, &["-p", "x"]).exits(0);
    let before = world.result();
    let done = world.run(&script(&[says("second")]), &policy, &["-p", "x"]).exits(8);
    assert!(done.stderr.contains("resume"), "{}", done.stderr);
    assert_eq!(world.result(), before);
}

#[test]
fn a_reader_that_goes_away_stops_nothing() {
    for format in ["text", "json", "stream-json"] {
        let world = World::repo(&[("a.txt", "one\n")]);
        let replies = [
            writes("b.txt", "b\n"),
            writes("c.txt", "c\n"),
            says(&"long ".repeat(100_000)),
        ];
        let model = format!("script:{}", world.beside("script.yaml", script(&replies)));
        let policy = world.beside("policy.yaml", open_policy(&[]));
        let out = world.out().to_string_lossy().into_owned();
        let args = [
            "run", "-p", "x", "--model", &model, "--policy", &policy, "--out", &out, "--format", format,
        ];
        let mut child = world
            .command(&args)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        drop(child.stdout.take());
        let done = Done::of(child.wait_with_output().unwrap()).exits(0);
        assert!(!done.stderr.contains("panic"), "{}", done.stderr);
        assert_eq!(world.read("c.txt"), "c\n");
        assert_eq!(world.result()["verdict"], "passed", "{format}");
    }
}

/// A command without a run waits for its reader, so a signal must end it.
#[test]
fn a_signal_ends_a_command_that_waits_for_its_reader() {
    use std::os::unix::process::ExitStatusExt;
    let world = World::new();
    // More than a pipe holds.
    let mut child = world
        .command(&["schema", "event"])
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut first = [0_u8; 16];
    std::io::Read::read_exact(child.stdout.as_mut().unwrap(), &mut first).unwrap();
    let pid = rustix::process::Pid::from_child(&child);
    rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
    assert_eq!(child.wait().unwrap().signal(), Some(15));
}

#[test]
fn a_full_stdout_ends_9() {
    let world = World::repo(&[("a.txt", "one\n")]);
    let model = format!("script:{}", world.beside("script.yaml", script(&[says("fine")])));
    let policy = world.beside("policy.yaml", open_policy(&[]));
    for format in ["text", "json", "stream-json"] {
        let out = world.path().join(format).to_string_lossy().into_owned();
        let args = [
            "run", "-p", "x", "--model", &model, "--policy", &policy, "--out", &out, "--format", format,
        ];
        let full = std::fs::File::create("/dev/full").unwrap();
        let child = world
            .command(&args)
            .stdout(full)
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        Done::of(child.wait_with_output().unwrap()).exits(9);
        let result = std::fs::read_to_string(world.path().join(format).join("result.json")).unwrap();
        let result: Value = serde_json::from_str(&result).unwrap();
        assert_eq!(
            (&result["verdict"], &result["exit_code"]),
            (&json!("output"), &json!(9)),
            "{format}"
        );
        let junit = std::fs::read_to_string(world.path().join(format).join("junit.xml")).unwrap();
        assert!(junit.contains("name=\"exit_code\" value=\"9\""), "{format}: {junit}");
    }
}

/// The limit on the size of files stands for a full disk.
#[test]
fn a_journal_that_cannot_go_on_leaves_a_result_of_what_happened() {
    let world = World::repo(&[("a.txt", "one\n")]);
    let large = "x".repeat(700_000);
    let replies = [writes("b.txt", "two\n"), writes("c.txt", &large), says("fine")];
    let model = format!("script:{}", world.beside("script.yaml", script(&replies)));
    let policy = world.beside("policy.yaml", open_policy(&[]));
    let at = |name: &str| world.path().join(name).to_string_lossy().into_owned();
    let (out, junit) = (at("out"), at("junit.xml"));
    let run = world.command(&[
        "run", "-p", "x", "--model", &model, "--policy", &policy, "--out", &out, "--junit", &junit, "--format", "json",
    ]);
    let limited = "trap '' XFSZ; ulimit -f 512; exec \"$@\"";
    let mut shell = under("sh", &["-c", limited, "sh"], &run);
    let done = Done::of(shell.output().unwrap()).exits(9);
    let result: Value = serde_json::from_str(&done.stdout).unwrap();
    assert_eq!(result["verdict"], "output", "{result}");
    assert_eq!(result["partial"], true, "{result}");
    assert!(!result["run"].as_str().unwrap().is_empty(), "{result}");
    // The second reply is the event that did not fit.
    assert_eq!(result["usage"]["turns"], 2, "{result}");
    assert_eq!(result["steps"].as_array().map(Vec::len), Some(1), "{result}");
    assert_eq!(world.read("b.txt"), "two\n");
    let report = std::fs::read_to_string(&junit).unwrap();
    assert!(report.contains("name=\"exit_code\" value=\"9\""), "{report}");
    assert!(report.contains("timestamp="), "{report}");
    assert!(done.stderr.contains("journal"), "{}", done.stderr);
}

#[test]
fn help_and_version_on_a_full_stdout_end_9() {
    let world = World::new();
    for args in [&["--help"][..], &["--version"], &["run", "-h"]] {
        let full = std::fs::File::create("/dev/full").unwrap();
        let child = world.command(args).stdout(full).stderr(Stdio::piped()).spawn().unwrap();
        let done = Done::of(child.wait_with_output().unwrap()).exits(9);
        assert!(done.stderr.contains("error: stdout: "), "{args:?}: {}", done.stderr);
    }
}

#[test]
fn a_request_is_asked_again_after_a_passing_error() {
    let busy = Answer::Status(503, vec!["retry-after: 0".to_owned()], "{}".to_owned());
    let half = Answer::Half(vec![gemini::chunk(json!([{"text": "hal"}]), None, 5)]);
    let job = Job::asking(vec![busy, half, gemini::says("there")]);
    let done = job.run("json");
    assert_eq!(done.code, 0, "{}", done.stderr);
    let object = done.json();
    assert_eq!(object["response"], "there");
    assert_eq!(object["usage"]["turns"], 1);
    assert_eq!(job.service.unwrap().seen().len(), 3);
}

#[test]
fn the_table_is_in_the_help() {
    let world = World::new();
    let help = world.call(&["--help"]).exits(0).stdout;
    for code in ["0", "1", "2", "3", "4", "5", "6", "7", "8", "9", "10", "70", "129"] {
        let named = help.lines().any(|line| {
            let first = line.trim_start().split([' ', ',']).next();
            line.starts_with("  ") && first == Some(code)
        });
        assert!(named, "{code} is not in\n{help}");
    }
}
