//! The ways to end: what is run, and the code and verdict that must follow. Judges no output.

use crate::gemini::{Answer, Gemini};
use crate::harness::{Done, World, calls, endable, open_policy, says, script, shell, until, writes};
use serde_json::{Value, json};
use std::process::Stdio;

/// A way to end, and how that is called.
pub struct Case {
    pub name: &'static str,
    pub code: i32,
    pub verdict: &'static str,
    pub make: fn() -> Job,
}

/// A run that is ready to start.
pub struct Job {
    pub world: World,
    args: Vec<String>,
    /// Kept alive while the run goes on.
    pub service: Option<Gemini>,
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
    pub fn asking(answers: Vec<Answer>) -> Self {
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
    pub fn run(&self, format: &str) -> Done {
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
        let mut command = endable(&self.world.command(args));
        let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let journal = self.world.out().join("journal.jsonl");
        until("the run has begun", || journal.exists());
        // What a case puts in the way of an output only now, because it would be refused before the run.
        let _ = std::fs::rename(
            self.world.path().join("in-the-way"),
            self.world.path().join("junit.xml"),
        );
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

pub fn cases() -> Vec<Case> {
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
    all.extend(repeated());
    all.extend(failures());
    all.extend(refusals());
    all.extend(ends());
    all
}

/// A recipe whose check fails at first.
fn checked_again() -> String {
    recipe("steps:\n  - { id: one, prompt: go, checks: [{ name: there, run: test -f b.txt }], retry: { max: 1 } }\n")
}

/// What was tried again: a check that then passed, a check that never did, and an answer that was repaired.
fn repeated() -> Vec<Case> {
    vec![
        Case {
            name: "a check that passed when tried again",
            code: 0,
            verdict: "passed",
            make: || {
                let replies = [says("done"), writes("b.txt", "x\n"), says("now it is")];
                Job::new(&checked_again(), &replies, &open_policy(&[]))
            },
        },
        Case {
            name: "a check that failed again",
            code: 1,
            verdict: "failed",
            make: || Job::new(&checked_again(), &[says("done"), says("it is")], &open_policy(&[])),
        },
        Case {
            name: "an answer that was repaired",
            code: 0,
            verdict: "no_change",
            make: || {
                let text =
                    "steps:\n  - { id: one, prompt: go }\nresponse: { schema: { type: object }, retry: { max: 1 } }\n";
                Job::new(&recipe(text), &[says("no JSON"), says("{}")], &open_policy(&[]))
            },
        },
    ]
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
        case("a step after findings", || {
            let found = json!({"findings": [
                {"path": "a.txt", "line": 1, "rule": "r", "level": "error", "message": "<m> & ]]> \u{1}"},
                {"path": "a b.txt", "line": 2, "rule": "r", "level": "note", "message": "n"},
            ]});
            let steps = "steps:\n  - { id: look, prompt: go, findings: true }\n  - { id: two, run: 'exit 7' }\n";
            Job::new(&recipe(steps), &[says(&found.to_string())], &open_policy(&[]))
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
            let cut = json!({"text": "so", "stop": "length"});
            Job::new(PLAIN, &[cut.clone(), cut], &open_policy(&[]))
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
        case("a check without its program", 8, "environment", || {
            let steps = "steps:\n  - { id: one, prompt: go, checks: [{ name: no, run: 'if true; then no-such-program; fi' }], \
                         retry: { max: 0 } }\n";
            Job::new(
                &recipe(steps),
                &[writes("b.txt", "x\n"), says("done")],
                &open_policy(&[]),
            )
        }),
        case("interrupted", 130, "cancelled", || Job {
            kill: Some("-INT"),
            ..Job::new(PLAIN, &[json!({"text": "late", "delay_ms": 60_000})], &open_policy(&[]))
        }),
        case("hung up", 129, "cancelled", || Job {
            kill: Some("-HUP"),
            ..Job::new(PLAIN, &[json!({"text": "late", "delay_ms": 60_000})], &open_policy(&[]))
        }),
        case("terminated", 143, "cancelled", || Job {
            kill: Some("-TERM"),
            ..Job::new(PLAIN, &[json!({"text": "late", "delay_ms": 60_000})], &open_policy(&[]))
        }),
        case("unwritable after a failure", 9, "output", || {
            let steps = "steps: [{ id: one, prompt: go, checks: [{ name: no, run: 'mkdir -p ../junit.xml/x; false' }], \
                         retry: { max: 0 } }]\n";
            Job::new(&recipe(steps), &[says("done")], &open_policy(&[]))
        }),
        case("unwritable after a signal", 9, "output", || {
            let slow = json!({"text": "late", "delay_ms": 60_000});
            let job = Job::new(PLAIN, &[slow], &open_policy(&[]));
            std::fs::create_dir_all(job.world.path().join("in-the-way/x")).unwrap();
            Job {
                kill: Some("-TERM"),
                ..job
            }
        }),
    ]
}
