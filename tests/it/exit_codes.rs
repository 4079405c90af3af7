//! Every exit code that a run can reach, and that each output says the same of it.

use super::gemini::{self, Answer, Gemini};
use super::harness::{Done, World, calls, open_policy, says, script, shell, until, writes};
use serde_json::{Value, json};
use std::process::Stdio;

/// A way to end, and how that is called.
struct Case {
    name: &'static str,
    code: i32,
    verdict: &'static str,
    make: fn() -> Job,
}

/// A run that is ready to start.
struct Job {
    world: World,
    args: Vec<String>,
    /// Kept alive while the run goes on.
    service: Option<Gemini>,
    kill: Option<&'static str>,
}

impl Job {
    /// A run of a recipe with a script.
    fn new(recipe: &str, replies: &[Value], policy: &str) -> Self {
        let world = World::repo(&[("a.txt", "one\n")]);
        let mut args = vec!["run".to_owned(), world.beside("recipe.yaml", recipe)];
        args.push("--model".to_owned());
        args.push(format!("script:{}", world.beside("script.yaml", script(replies))));
        args.push("--policy".to_owned());
        args.push(world.beside("policy.yaml", policy));
        Self {
            world,
            args,
            service: None,
            kill: None,
        }
    }

    /// A run of a prompt with a service.
    fn asking(answers: Vec<Answer>) -> Self {
        let service = Gemini::new(answers);
        let world = World::repo(&[("a.txt", "one\n")]).env("GEMINI_API_KEY", "k-0123456789");
        let args = [
            "run",
            "-p",
            "go",
            "--model",
            "gemini/gemini-2.5-pro",
            "--base-url",
            &service.url,
        ];
        Self {
            world,
            args: args.map(str::to_owned).to_vec(),
            service: Some(service),
            kill: None,
        }
    }

    fn with(mut self, more: &[&str]) -> Self {
        self.args.extend(more.iter().map(|arg| (*arg).to_owned()));
        self
    }

    /// Runs it with its outputs beside the workspace.
    fn run(&self, format: &str) -> Done {
        let out = self.world.out().to_string_lossy().into_owned();
        let junit = self.world.path().join("junit.xml").to_string_lossy().into_owned();
        let mut args: Vec<&str> = self.args.iter().map(String::as_str).collect();
        args.extend(["--out", &out, "--junit", &junit, "--format", format, "-v"]);
        match self.kill {
            None => self.world.call(&args),
            Some(signal) => self.killed(&args, signal),
        }
    }

    fn killed(&self, args: &[&str], signal: &str) -> Done {
        let mut command = self.world.command(args);
        let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let journal = self.world.out().join("journal.jsonl");
        until("the run has begun", || journal.exists());
        let id = child.id().to_string();
        let sent = std::process::Command::new("kill").args([signal, &id]).status().unwrap();
        assert!(sent.success());
        Done::of(child.wait_with_output().unwrap())
    }
}

const PLAIN: &str = "version: 1\nname: plain\nsteps:\n  - { id: one, prompt: go }\n";

fn recipe(more: &str) -> String {
    format!("version: 1\nname: r\n{more}")
}

fn cases() -> Vec<Case> {
    let case = |name, code, verdict, make| Case {
        name,
        code,
        verdict,
        make,
    };
    let mut all = vec![
        case("passed", 0, "passed", || {
            Job::new(PLAIN, &[writes("b.txt", "x\n"), says("done")], &open_policy(&[]))
        }),
        case("nothing to do", 0, "no_change", || {
            Job::new(PLAIN, &[says("fine")], &open_policy(&[]))
        }),
    ];
    all.extend(failures());
    all.extend(refusals());
    all.extend(ends());
    all
}

fn failures() -> Vec<Case> {
    let case = |name, make| Case {
        name,
        code: 1,
        verdict: "failed",
        make,
    };
    vec![
        case("a check", || {
            let steps =
                "steps:\n  - { id: one, prompt: go, checks: [{ name: no, run: 'false' }], retry: { max: 0 } }\n";
            Job::new(&recipe(steps), &[says("done")], &open_policy(&[]))
        }),
        case("a step", || {
            Job::new(
                &recipe("steps:\n  - { id: one, run: 'exit 7' }\n"),
                &[],
                &open_policy(&[]),
            )
        }),
        case("response", || {
            let text =
                "steps:\n  - { id: one, prompt: go }\nresponse: { schema: { type: object }, retry: { max: 0 } }\n";
            Job::new(&recipe(text), &[says("no JSON")], &open_policy(&[]))
        }),
        case("expect", || {
            let text = "expect: change\nsteps:\n  - { id: one, prompt: go }\n";
            Job::new(&recipe(text), &[says("did nothing")], &open_policy(&[]))
        }),
        case("replay miss", || {
            Job::new(
                PLAIN,
                &[calls("read_file", json!({"file_path": "a.txt"}))],
                &open_policy(&[]),
            )
        }),
        case("stuck", || {
            let same: Vec<Value> = (0..20)
                .map(|_| calls("read_file", json!({"file_path": "a.txt"})))
                .collect();
            Job::new(PLAIN, &same, &open_policy(&[]))
        }),
    ]
}

/// Ends before the first request.
fn refusals() -> Vec<Case> {
    let case = |name, code, verdict, make| Case {
        name,
        code,
        verdict,
        make,
    };
    vec![
        case("recipe", 3, "invalid", || {
            Job::new("version: 1\nname: r\nstep: []\n", &[says("x")], &open_policy(&[]))
        }),
        case("no recipe", 3, "invalid", || {
            let mut job = Job::new(PLAIN, &[says("x")], &open_policy(&[]));
            "nowhere.yaml".clone_into(&mut job.args[1]);
            job
        }),
        case("policy", 3, "invalid", || {
            Job::new(PLAIN, &[says("x")], "version: 1\nrules: [{ alow: x }]\n")
        }),
        case("script", 3, "invalid", || {
            Job::new(PLAIN, &[json!({"txt": "x"})], &open_policy(&[]))
        }),
        case("no policy for an edit recipe", 3, "invalid", || {
            let mut job = Job::new(
                &recipe("expect: change\nsteps: [{ id: one, prompt: go }]\n"),
                &[says("x")],
                "",
            );
            job.args.truncate(4);
            job
        }),
        case("unknown tool in the policy", 3, "invalid", || {
            Job::new(PLAIN, &[says("x")], "version: 1\nrules:\n  - allow: read_flie\n")
        }),
        case("no key", 8, "environment", || Job {
            world: World::repo(&[]),
            args: ["run", "-p", "x", "--model", "gemini/gemini-2.5-pro"]
                .map(str::to_owned)
                .to_vec(),
            service: None,
            kill: None,
        }),
        case("no workspace", 8, "environment", || {
            Job::new(PLAIN, &[says("x")], &open_policy(&[])).with(&["--workspace", "nowhere"])
        }),
        case("isolate outside of a repository", 8, "environment", || {
            let mut job = Job::new(PLAIN, &[says("x")], &open_policy(&[])).with(&["--isolate"]);
            std::fs::remove_dir_all(job.world.ws().join(".git")).unwrap();
            job.args.push("-q".to_owned());
            job
        }),
        case("junit cannot be written", 9, "output", || {
            let job = Job::new(PLAIN, &[says("x")], &open_policy(&[]));
            std::fs::create_dir_all(job.world.path().join("junit.xml/in-the-way")).unwrap();
            job
        }),
    ]
}

/// Ends of a run that began.
fn ends() -> Vec<Case> {
    let case = |name, code, verdict, make| Case {
        name,
        code,
        verdict,
        make,
    };
    vec![
        case("denied and stopped", 4, "denied", || {
            let text = "on_deny: stop\nsteps: [{ id: one, prompt: go }]\n";
            Job::new(
                &recipe(text),
                &[calls("read_file", json!({"file_path": ".env"})), says("x")],
                &open_policy(&[]),
            )
        }),
        case("denied without checks", 4, "denied", || {
            Job::new(PLAIN, &[shell("rm -rf a.txt"), says("could not")], &open_policy(&[]))
        }),
        case("denied and expected", 4, "denied", || {
            let text = "expect: change\nsteps: [{ id: one, prompt: go }]\n";
            Job::new(
                &recipe(text),
                &[shell("rm a.txt"), says("could not")],
                &open_policy(&[]),
            )
        }),
        case("suspended", 5, "suspended", || {
            let policy = "version: 1\nextends: [builtin:edit]\nrules:\n  - { suspend: write_file, id: ask }\n";
            Job::new(PLAIN, &[writes("b.txt", "x\n"), says("done")], policy)
        }),
        case("suspended after a denial", 5, "suspended", || {
            let policy = "version: 1\nextends: [builtin:edit]\nrules:\n  - { suspend: write_file, id: ask }\n";
            Job::new(
                PLAIN,
                &[shell("rm a.txt"), writes("b.txt", "x\n"), says("done")],
                policy,
            )
        }),
        case("turns", 6, "budget", || {
            let replies = [calls("read_file", json!({"file_path": "a.txt"})), says("done")];
            Job::new(PLAIN, &replies, &open_policy(&[])).with(&["--max-turns", "1"])
        }),
        case("turns after a denial", 6, "budget", || {
            Job::new(PLAIN, &[shell("rm a.txt"), says("done")], &open_policy(&[])).with(&["--max-turns", "1"])
        }),
        case("wall", 6, "budget", || {
            let slow = json!({"text": "late", "delay_ms": 60_000});
            Job::new(PLAIN, &[slow], &open_policy(&[])).with(&["--max-wall", "1s"])
        }),
        case("provider", 7, "provider", || {
            let down = json!({"error": {"class": "unavailable", "message": "overloaded"}});
            Job::new(PLAIN, &[down], &open_policy(&[]))
        }),
        case("cut at its length", 7, "provider", || {
            Job::new(PLAIN, &[json!({"text": "so", "stop": "length"})], &open_policy(&[]))
        }),
        case("refused", 7, "provider", || {
            Job::new(PLAIN, &[json!({"text": "", "stop": "refused"})], &open_policy(&[]))
        }),
        case("wrong key", 7, "provider", || {
            let body = json!({"error": {"code": 400, "message": "API key not valid.", "status": "INVALID_ARGUMENT"}});
            Job::asking(vec![Answer::Status(401, Vec::new(), body.to_string())])
        }),
        case("unknown model", 7, "provider", || {
            let body = json!({"error": {"code": 404, "message": "models/x is not found", "status": "NOT_FOUND"}});
            Job::asking(vec![Answer::Status(404, Vec::new(), body.to_string())])
        }),
        case("blocked", 7, "provider", || {
            Job::asking(vec![Answer::Stream(vec![
                json!({"promptFeedback": {"blockReason": "SAFETY"}}),
            ])])
        }),
        case("interrupted", 130, "cancelled", || Job {
            kill: Some("-INT"),
            ..Job::new(PLAIN, &[json!({"text": "late", "delay_ms": 60_000})], &open_policy(&[]))
        }),
        case("terminated", 143, "cancelled", || Job {
            kill: Some("-TERM"),
            ..Job::new(PLAIN, &[json!({"text": "late", "delay_ms": 60_000})], &open_policy(&[]))
        }),
        case("unwritable after a failure", 9, "output", || {
            let steps = "steps: [{ id: one, prompt: go, checks: [{ name: no, run: 'false' }], retry: { max: 0 } }]\n";
            let job = Job::new(&recipe(steps), &[says("done")], &open_policy(&[]));
            std::fs::create_dir_all(job.world.path().join("junit.xml/in-the-way")).unwrap();
            job
        }),
        case("unwritable after a signal", 9, "output", || {
            let slow = json!({"text": "late", "delay_ms": 60_000});
            let job = Job::new(PLAIN, &[slow], &open_policy(&[]));
            std::fs::create_dir_all(job.world.path().join("junit.xml/in-the-way")).unwrap();
            Job {
                kill: Some("-TERM"),
                ..job
            }
        }),
    ]
}

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
            let response = stored
                .as_ref()
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
    if matches!(case.code, 5 | 6 | 7 | 130 | 143) {
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
fn a_wrong_command_line_ends_2_and_prints_nothing() {
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
        assert_eq!(done.stdout, "", "{args:?}");
        assert!(!done.stderr.is_empty(), "{args:?}");
    }
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
    for code in ["0", "1", "2", "3", "4", "5", "6", "7", "8", "9", "10", "70", "130"] {
        let named = help.lines().any(|line| {
            let first = line.trim_start().split([' ', ',']).next();
            line.starts_with("  ") && first == Some(code)
        });
        assert!(named, "{code} is not in\n{help}");
    }
}
