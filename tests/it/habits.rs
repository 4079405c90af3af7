//! The habits of the field, through the real program: flags, pipes, variables, formats, completion and manual.

use super::harness::{self, BIN, Done, World, calls, have, says, shell, writes};
use serde_json::{Value, json};
use std::process::{Command, Stdio};

const ANSWER: &str = "replies:\n  - { text: \"it is done\" }\n";

fn script(world: &World) -> String {
    format!("script:{}", world.beside("answer.yaml", ANSWER))
}

/// What the model was asked first.
fn asked(world: &World) -> String {
    let journal = std::fs::read_to_string(world.out().join("journal.jsonl")).unwrap();
    let lines = journal.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    let mut prompts = lines.filter(|line| {
        line["entry"]["kind"].to_string().contains("prompted") || line.to_string().contains("\"prompted\"")
    });
    prompts.next().unwrap().to_string()
}

fn run(world: &World, more: &[&str]) -> Vec<String> {
    let out = world.out().to_string_lossy().into_owned();
    let mut args = vec![
        "run".to_owned(),
        "-m".to_owned(),
        script(world),
        "--out".to_owned(),
        out,
    ];
    args.extend(more.iter().map(|arg| (*arg).to_owned()));
    args
}

fn with_stdin(world: &World, args: &[String], stdin: &str) -> Done {
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    world.call_with(&args, stdin)
}

#[test]
fn piped_data_is_appended_when_asked_for_and_else_named() {
    let world = World::new();
    let done = with_stdin(
        &world,
        &run(&world, &["-p", "Sum this up.", "--stdin"]),
        "line one\nline two\n",
    )
    .exits(0);
    assert_eq!(done.stdout, "it is done\n");
    let prompt = asked(&world);
    assert!(
        prompt.contains("Sum this up.") && prompt.contains("<stdin>\\nline one\\nline two"),
        "{prompt}"
    );

    let world = World::new();
    let done = with_stdin(&world, &run(&world, &["-p", "Sum this up."]), "never read\n").exits(0);
    assert!(done.stderr.contains("--stdin"), "{}", done.stderr);
    assert!(!asked(&world).contains("never read"));
    let warnings = world.result()["warnings"].clone();
    assert!(
        warnings
            .as_array()
            .unwrap()
            .iter()
            .any(|warning| warning["code"] == "unread_stdin"),
        "{warnings}"
    );

    // A command before the pipe that printed nothing is a mistake, of which nobody hears otherwise.
    let world = World::new();
    let done = with_stdin(&world, &run(&world, &["-p", "Sum this up.", "--stdin"]), "").exits(0);
    assert!(done.stderr.contains("stdin was empty"), "{}", done.stderr);

    // A file that nobody reads is data too; an empty pipe and /dev/null are not.
    let world = World::new();
    let file = std::fs::File::open(world.beside("data", "some")).unwrap();
    let args = run(&world, &["-p", "x"]);
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    let done = Done::of(world.command(&args).stdin(Stdio::from(file)).output().unwrap()).exits(0);
    assert!(done.stderr.contains("unread_stdin"), "{}", done.stderr);
    let world = World::new();
    let done = with_stdin(&world, &run(&world, &["-p", "x"]), "").exits(0);
    assert!(!done.stderr.contains("unread_stdin"), "{}", done.stderr);
}

#[test]
fn variables_stand_in_for_flags_and_flags_win() {
    let world = World::new();
    let model = script(&world);
    let out = world.out().to_string_lossy().into_owned();
    let world = world
        .env("OVERNIGHT_MODEL", model.clone())
        .env("OVERNIGHT_OUT", out)
        .env("OVERNIGHT_FORMAT", "json")
        .env("OVERNIGHT_MAX_TURNS", "3")
        .env("OVERNIGHT_POLICY", "");
    let done = world.call(&["run", "-p", "x"]).exits(0);
    assert_eq!(done.json()["model"], json!(model));
    assert!(done.stderr.contains("3 turns"), "{}", done.stderr);
    let text = world
        .call(&["run", "-p", "x", "--format", "text", "--out", "elsewhere"])
        .exits(0);
    assert_eq!(text.stdout, "it is done\n");
    let world = world.env("OVERNIGHT_MAX_TURNS", "many");
    let done = world.call(&["run", "-p", "x", "--out", "third"]).exits(2);
    assert!(done.stderr.contains("OVERNIGHT_MAX_TURNS=many"), "{}", done.stderr);
    let help = world.call(&["run", "--help"]).exits(0).stdout;
    for name in [
        "OVERNIGHT_MODEL",
        "OVERNIGHT_POLICY",
        "OVERNIGHT_MAX_COST",
        "OVERNIGHT_OUT",
    ] {
        assert!(help.contains(name), "{name}");
    }
}

#[test]
fn a_wrong_command_line_has_its_object_too() {
    let world = World::new();
    for args in [
        &["run", "--format", "json", "--nonsense"][..],
        &["run", "--format=json"],
        &["run", "-p", " ", "--format", "json"],
        &["resume", "x", "--format", "json", "--max-wall", "soon"],
    ] {
        let done = world.call(args).exits(2);
        let object = done.json();
        assert_eq!(
            (&object["verdict"], &object["exit_code"]),
            (&json!("usage"), &json!(2)),
            "{args:?}"
        );
        assert!(!object["message"].as_str().unwrap().is_empty() && !done.stderr.is_empty());
    }
    let stream = world.call(&["run", "--format", "stream-json", "-z"]).exits(2);
    let last: Value = serde_json::from_str(stream.stdout.lines().last().unwrap()).unwrap();
    assert!(last.to_string().contains("usage"), "{last}");
    assert_eq!(world.call(&["run", "-z"]).exits(2).stdout, "");
}

#[test]
fn quiet_says_nothing_when_all_is_well_and_why_when_not() {
    let world = World::new();
    let args = run(&world, &["-p", "x", "--quiet"]);
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    let done = world.call(&args).exits(0);
    assert_eq!((done.stdout.as_str(), done.stderr.as_str()), ("", ""));

    let world = World::new();
    let args = run(&world, &["-p", "x", "--quiet", "--format", "json"]);
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    let done = world.call(&args).exits(0);
    assert_eq!(
        (done.json()["response"].as_str(), done.stderr.as_str()),
        (Some("it is done"), "")
    );

    let world = World::new();
    let gone = format!("script:{}", world.path().join("nowhere.yaml").display());
    let done = world.call(&["run", "-p", "x", "--quiet", "-m", &gone]).exits(3);
    assert!(
        done.stdout.is_empty() && done.stderr.contains("nowhere.yaml"),
        "{}",
        done.stderr
    );
}

#[test]
fn the_first_line_says_all_limits() {
    let world = World::new();
    let args = run(&world, &["-p", "x", "--max-turns", "7", "--max-cost", "2.50"]);
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    let done = world.call(&args).exits(0);
    let first = done.stderr.lines().next().unwrap();
    for part in [
        "limits: 7 turns",
        "2,000,000 tokens",
        "$2.50",
        "30m 00s in total",
        "10m 00s per command",
    ] {
        assert!(first.contains(part), "{part}: {first}");
    }
    // Where the price is known there is a limit in money without a flag.
    let world = World::new().env("GEMINI_API_KEY", "not-a-real-key");
    let done = world.call(&[
        "run",
        "-p",
        "x",
        "-m",
        "gemini/gemini-2.5-pro",
        "--base-url",
        "http://127.0.0.1:9",
        "--max-wall",
        "5s",
    ]);
    assert!(done.stderr.lines().next().unwrap().contains("$5.00"), "{}", done.stderr);
}

#[test]
fn the_answer_to_a_prompt_can_have_a_schema() {
    let world = World::new();
    let schema = world.beside(
        "schema.json",
        // With a byte order mark, as some editors write it.
        "\u{feff}{\"type\": \"object\", \"required\": [\"n\"], \"properties\": {\"n\": {\"type\": \"integer\"}}}",
    );
    let good = format!(
        "script:{}",
        world.beside("good.yaml", "replies:\n  - { text: '{\"n\": 3}' }\n")
    );
    let out = world.out().to_string_lossy().into_owned();
    let done = world
        .call(&[
            "run",
            "-p",
            "Count.",
            "--output-schema",
            &schema,
            "-m",
            &good,
            "--out",
            &out,
            "--format",
            "json",
        ])
        .exits(0);
    assert_eq!(done.json()["output"], json!({"n": 3}));
    let broken = world.beside("broken.json", r#"{"type": 7}"#);
    let done = world
        .call(&["run", "-p", "x", "--output-schema", &broken, "-m", &good])
        .exits(3);
    assert!(done.stderr.contains("bad-schema"), "{}", done.stderr);
}

#[test]
fn another_directory_and_the_newest_run() {
    let world = World::new();
    let model = script(&world);
    let there = world.ws().to_string_lossy().into_owned();
    let run = |args: &[&str]| Done::of(world.command(args).current_dir("/").output().unwrap());
    run(&["-C", &there, "run", "-p", "x", "-m", &model]).exits(0);
    let listed = run(&["-C", &there, "runs", "list", "--format", "json"]).exits(0).json();
    assert_eq!(listed.as_array().unwrap().len(), 1, "{listed}");
    assert_eq!(listed[0]["verdict"], "no_change");
    let again = run(&["-C", &there, "resume", "--last", "--format", "json"])
        .exits(0)
        .json();
    assert_eq!(again["run"], listed[0]["run"]);
    let report = run(&["-C", &there, "report", "--last", "--format", "result"])
        .exits(0)
        .json();
    assert_eq!(report["run"], listed[0]["run"]);
    run(&["-C", &there, "report"]).exits(2);
    run(&["-C", "/does/not/exist", "runs"]).exits(8);
    let verified = run(&["-C", &there, "runs", "verify", "--format", "json"])
        .exits(0)
        .json();
    assert_eq!(verified[0]["valid"], true);
    let pruned = run(&["-C", &there, "runs", "prune", "--keep", "0", "--format", "json"])
        .exits(0)
        .json();
    assert_eq!(pruned["removed"], json!([listed[0]["run"]]));
    let none = run(&["-C", &there, "runs", "list"]).exits(0);
    assert!(
        none.stdout.is_empty() && none.stderr.contains("no runs in"),
        "{}",
        none.stderr
    );
    let none = run(&["-C", &there, "report", "--last"]).exits(8);
    assert!(none.stderr.contains("has no runs"), "{}", none.stderr);
}

#[test]
fn recipes_and_policies_come_through_pipes() {
    let world = World::new();
    let model = script(&world);
    let recipe = "version: 1\nname: piped\nsteps: [{ id: a, prompt: Look around. }]\n";
    let command = format!(
        "{BIN} run <(printf '{}') --policy <(printf 'version: 1\\nextends: [\"builtin:read-only\"]\\n') -m {model} --format json",
        recipe.replace('\n', "\\n")
    );
    let done = Done::of(world.command(&[]).env("BIN", BIN).output().unwrap());
    assert_eq!(done.code, 2, "the program itself starts");
    let mut bash = std::process::Command::new("bash");
    bash.args(["-c", &command]).current_dir(world.ws()).env_clear();
    bash.env("PATH", std::env::var_os("PATH").unwrap())
        .env("HOME", world.path().join("home"));
    let done = Done::of(bash.stdin(Stdio::null()).output().unwrap()).exits(0);
    assert_eq!(done.json()["recipe"], "piped");
}

#[test]
fn a_prompt_without_its_flag_is_recognised() {
    let done = World::new().call(&["run", "fix the tests"]).exits(2);
    assert!(
        done.stderr.contains("overnight run -p \"fix the tests\""),
        "{}",
        done.stderr
    );
}

#[test]
fn two_runs_never_write_the_same_file() {
    let world = World::new();
    let patch = world.beside("night.patch", "yesterday's patch");
    let slow = format!(
        "script:{}",
        world.beside("slow.yaml", "replies:\n  - { text: \"slow\", delay_ms: 4000 }\n")
    );
    let first = {
        let mut command = world.command(&["run", "-p", "x", "-m", &slow, "--patch", &patch, "--out", "one"]);
        command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap()
    };
    let started = std::time::Instant::now();
    while std::path::Path::new(&patch).exists() && started.elapsed().as_secs() < 20 {
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    assert!(
        !std::path::Path::new(&patch).exists(),
        "an earlier patch is taken away when a run begins"
    );
    let other = world.path().join("other");
    std::fs::create_dir(&other).unwrap();
    let other = other.to_string_lossy().into_owned();
    let done = world
        .call(&[
            "run",
            "-p",
            "x",
            "-m",
            &script(&world),
            "--patch",
            &patch,
            "--workspace",
            &other,
            "--out",
            "two",
        ])
        .exits(8);
    assert!(done.stderr.contains("another run writes"), "{}", done.stderr);
    let mut first = first;
    assert!(first.wait().unwrap().success());
}

#[test]
fn what_reports_can_report_in_json() {
    let world = World::new();
    let bad = world.beside("bad.yaml", "version: 1\nrules:\n  - { alow: read_file }\n");
    let found = world
        .call(&["policy", "check", &bad, "--format", "json"])
        .exits(3)
        .json();
    assert_eq!(found["valid"], false);
    let first = &found["files"][0]["problems"][0];
    assert_eq!(
        (&first["line"], &first["severity"]),
        (&json!(3), &json!("error")),
        "{found}"
    );
    let sarif = world
        .call(&["policy", "check", &bad, "--format", "sarif"])
        .exits(3)
        .json();
    assert_eq!(sarif["version"], "2.1.0");
    assert_eq!(sarif["runs"][0]["results"][0]["level"], "error");
    let github = world
        .call(&["policy", "check", &bad, "--format", "github"])
        .exits(3)
        .stdout;
    assert!(github.starts_with("::error file="), "{github}");
    let gone = world
        .call(&["recipe", "check", "nope.yaml", "--format", "json"])
        .exits(3)
        .json();
    assert_eq!(gone["files"][0]["problems"][0]["code"], "no-file");
    let ruling = world
        .call(&[
            "policy",
            "explain",
            "builtin:read-only",
            "--command",
            "ls",
            "--format",
            "json",
        ])
        .exits(0)
        .json();
    assert_eq!(ruling["decision"], "deny");
    let doctor = world.call(&["doctor", "--format", "json"]).json();
    assert!(doctor["findings"].as_array().unwrap().len() > 2, "{doctor}");
    let done = world.call(&["doctor", "--workspace", "nonexist"]).exits(8);
    assert!(
        done.stderr.contains("the workspace nonexist is not a directory"),
        "{}",
        done.stderr
    );
}

#[test]
fn a_check_of_a_recipe_finds_what_a_run_would_meet() {
    let world = World::new();
    let recipe = world.beside(
        "r.yaml",
        "version: 1\nname: r\nmodel: foo/bar\npolicy: nowhere.yaml\ncontext: [MISSING.md, { path: AGENTS.md, required: true }]\nsteps:\n  - { id: a, run: \"echo '\" }\n",
    );
    let ws = world.ws().to_string_lossy().into_owned();
    let found = world
        .call(&["recipe", "check", &recipe, "--workspace", &ws, "--format", "json"])
        .exits(3)
        .json();
    let problems = found["files"][0]["problems"].as_array().unwrap();
    let places: Vec<(&str, u64)> = problems
        .iter()
        .map(|problem| (problem["code"].as_str().unwrap(), problem["line"].as_u64().unwrap()))
        .collect();
    assert_eq!(
        places,
        [
            ("unknown-model", 3),
            ("no-policy-file", 4),
            ("no-context-file", 5),
            ("no-context-file", 5),
            ("bad-command", 7)
        ],
        "{found}"
    );
    let severity = |at: usize| problems[at]["severity"].as_str().unwrap();
    assert_eq!((severity(2), severity(3)), ("warning", "error"), "{found}");
    let recipe = world.beside(
        "p.yaml",
        "version: 1\nname: p\nsteps:\n  - { id: a, run: alsonot }\n  - { id: b, prompt: x, checks: [{ run: nota --x }] }\n",
    );
    let done = world.call(&["recipe", "check", &recipe, "--workspace", &ws]).exits(3);
    for said in [
        "p.yaml:4:19: error[no-program]: this machine has no program `alsonot`",
        "error[no-program]: this machine has no program `nota`",
    ] {
        assert!(done.stderr.contains(said), "{}", done.stderr);
    }
    world.call(&["recipe", "check", &recipe]).exits(0);
    let done = world
        .call(&["recipe", "check", &recipe, "--workspace", "nonexist"])
        .exits(8);
    assert!(
        done.stderr.contains("the workspace nonexist is not a directory"),
        "{}",
        done.stderr
    );
    // In a run the one is a warning, and the other keeps it from beginning.
    let recipe = world.beside(
        "w.yaml",
        "version: 1\nname: w\ncontext: [MISSING.md]\nsteps: [{ id: a, prompt: x }]\n",
    );
    let model = script(&world);
    let out = world.out().to_string_lossy().into_owned();
    let result = world
        .call(&["run", &recipe, "-m", &model, "--out", &out, "--format", "json"])
        .exits(0)
        .json();
    assert!(result["warnings"].to_string().contains("MISSING.md"), "{result}");
    let recipe = world.beside(
        "q.yaml",
        "version: 1\nname: q\ncontext: [{ path: MISSING.md, required: true }]\nsteps: [{ id: a, prompt: x }]\n",
    );
    let done = world.call(&["run", &recipe, "-m", &model, "--out", "q"]).exits(3);
    let told = "q.yaml:3:19: error[no-context-file]";
    assert!(
        done.stderr.contains(told) && done.stderr.contains("MISSING.md"),
        "{}",
        done.stderr
    );
}

#[test]
fn a_required_context_file_may_be_a_link_inside_the_tree_and_none_out_of_it() {
    let world = World::repo(&[("AGENTS.md", "Speak plainly.\n")]);
    std::os::unix::fs::symlink("AGENTS.md", world.ws().join("CLAUDE.md")).unwrap();
    std::os::unix::fs::symlink("/etc/passwd", world.ws().join("GEMINI.md")).unwrap();
    let recipe = |name: &str| {
        let text = format!(
            "version: 1\nname: r\ncontext: [{{ path: {name}, required: true }}]\nsteps: [{{ id: a, prompt: x }}]\n"
        );
        world.beside(&format!("{name}.yaml"), text)
    };
    let model = script(&world);
    let out = world.out().to_string_lossy().into_owned();
    let result = world
        .call(&[
            "run",
            &recipe("CLAUDE.md"),
            "-m",
            &model,
            "--out",
            &out,
            "--format",
            "json",
        ])
        .exits(0)
        .json();
    assert!(!result["warnings"].to_string().contains("CLAUDE.md"), "{result}");
    let transcript = std::fs::read_to_string(world.out().join("transcript.json")).unwrap();
    assert!(transcript.contains("Speak plainly."), "{transcript}");
    let done = world
        .call(&["run", &recipe("GEMINI.md"), "-m", &model, "--out", "q"])
        .exits(3);
    assert!(done.stderr.contains("error[no-context-file]"), "{}", done.stderr);
}

#[test]
fn version_colour_pages_and_candidates() {
    let world = World::new();
    let short = world.call(&["--version"]).exits(0).stdout;
    assert_eq!(short, format!("overnight {}\n", env!("CARGO_PKG_VERSION")));
    for args in [&["--version", "--verbose"][..], &["-vV"], &["-V", "-v"]] {
        let long = world.call(args).exits(0).stdout;
        for part in ["commit: ", "features: ", "target: "] {
            assert!(long.contains(part), "{args:?}: {long}");
        }
    }
    let red = world
        .call(&["--color", "always", "recipe", "check", "nope.yaml"])
        .exits(3)
        .stderr;
    assert!(red.contains("\u{1b}[1;31merror"), "{red:?}");
    let plain = world
        .call(&["--color=never", "recipe", "check", "nope.yaml"])
        .exits(3)
        .stderr;
    assert!(!plain.contains('\u{1b}'), "{plain:?}");
    let page = world.call(&["man", "run"]).exits(0).stdout;
    for part in ["ENVIRONMENT", "FILES", "EXIT STATUS", "EXAMPLES", "OVERNIGHT_MODEL"] {
        assert!(page.contains(part), "{part}");
    }
    let dir = world.ws().join("pages").to_string_lossy().into_owned();
    world.call(&["man", "--dir", &dir]).exits(0);
    assert!(world.ws().join("pages/overnight-policy-check.1").is_file());
    world.call(&["man", "nonsense"]).exits(2);
    // Candidates: the runs that there are.
    let model = script(&world);
    world.call(&["run", "-p", "x", "-m", &model]).exits(0);
    let run = world.call(&["runs", "list", "--format", "json"]).exits(0).json()[0]["run"]
        .as_str()
        .unwrap()
        .to_owned();
    let mut ask = world.command(&["--", "overnight", "resume", ""]);
    ask.env("COMPLETE", "bash")
        .env("_CLAP_COMPLETE_INDEX", "2")
        .env("_CLAP_IFS", "\n");
    let offered = Done::of(ask.output().unwrap()).exits(0).stdout;
    assert!(offered.contains(&run), "{offered}");
    let mut ask = world.command(&["--", "overnight", "policy", "check", "builtin:"]);
    ask.env("COMPLETE", "bash")
        .env("_CLAP_COMPLETE_INDEX", "3")
        .env("_CLAP_IFS", "\n");
    let offered = Done::of(ask.output().unwrap()).exits(0).stdout;
    assert!(offered.contains("builtin:read-only"), "{offered}");
    for (words, wanted) in [
        (&["run", "--policy", "builtin:r"][..], "builtin:read-only"),
        (&["resume", "--policy", "builtin:r"][..], "builtin:read-only"),
        (&["batch", "--policy", "builtin:r"][..], "builtin:read-only"),
        (&["batch", "--recipe", "builtin:fix-t"][..], "builtin:fix-tests"),
        (&["deliver", "--policy", "builtin:r"][..], "builtin:read-only"),
        (&["tools", "call", "--policy", "builtin:r"][..], "builtin:read-only"),
        (&["deliver", ""][..], run.as_str()),
        (&["deliver", "--even-if", "bu"][..], "budget"),
        (&["policy", "explain", "builtin:edit", "--run", ""][..], run.as_str()),
        (&["report", run.as_str(), "--format", ""][..], "codequality"),
        (&["report", run.as_str(), "--format", "ju"][..], "junit"),
        (&["mcp"][..], ""),
    ] {
        let typed = [&["--", "overnight"][..], words].concat();
        let mut ask = world.command(&typed);
        ask.env("COMPLETE", "bash")
            .env("_CLAP_COMPLETE_INDEX", words.len().to_string())
            .env("_CLAP_IFS", "\n");
        let offered = Done::of(ask.output().unwrap()).exits(0).stdout;
        assert!(
            offered.contains(wanted) && !offered.contains("probe"),
            "{words:?}: {offered}"
        );
    }
    let fixed = world.call(&["completions", "bash", "--fixed"]).exits(0).stdout;
    assert!(
        !fixed.contains("mcp-probe"),
        "a command that nobody is to use is offered"
    );
}

/// bash takes the `:` of `builtin:NAME` for the end of a word; the script joins the parts, and cuts what stands on the line.
#[test]
fn bash_completes_names_with_a_colon() {
    let world = World::new();
    let script = world.beside("completions.bash", world.call(&["completions", "bash"]).exits(0).stdout);
    let program = std::path::Path::new(BIN)
        .parent()
        .unwrap()
        .to_string_lossy()
        .into_owned();
    let complete = |line: &str, words: &[&str], current: &str| {
        let set = words
            .iter()
            .map(|word| format!("'{word}'"))
            .collect::<Vec<_>>()
            .join(" ");
        let text = format!(
            "PATH=\"{program}:$PATH\"; source '{script}'; COMP_WORDS=({set}); COMP_CWORD={}; COMP_LINE='{line}'; COMP_POINT={}; \
             COMP_TYPE=9; _overnight overnight '{current}' ''; printf '%s\\n' \"${{COMPREPLY[@]}}\"",
            words.len() - 1,
            line.len()
        );
        let mut bash = Command::new("bash");
        bash.args(["--norc", "-c", &text]).current_dir(world.ws());
        Done::of(bash.output().unwrap()).exits(0).stdout
    };
    let offered = complete(
        "overnight run builtin:fix-cl",
        &["overnight", "run", "builtin", ":", "fix-cl"],
        "fix-cl",
    );
    assert_eq!(offered, "fix-clippy\n");
    let offered = complete("overnight run builtin:", &["overnight", "run", "builtin", ":"], "");
    assert!(offered.lines().any(|line| line == "fix-tests"), "{offered}");
    let offered = complete(
        "overnight run --policy=builtin:read",
        &["overnight", "run", "--policy", "=", "builtin", ":", "read"],
        "read",
    );
    assert_eq!(offered, "read-only\n");
    let offered = complete("overnight run --dry", &["overnight", "run", "--dry"], "--dry");
    assert_eq!(offered, "--dry-run\n");
}

#[test]
fn recipes_inside_the_program_are_listed_run_and_made_ones_own() {
    let world = World::new();
    let listed = world.call(&["recipe", "list", "--format", "json"]).exits(0).json();
    let names: Vec<&str> = listed
        .as_array()
        .unwrap()
        .iter()
        .map(|one| one["name"].as_str().unwrap())
        .collect();
    for name in ["builtin:fix-clippy", "builtin:fix-tests", "builtin:triage-issue"] {
        assert!(names.contains(&name), "{names:?}");
    }
    for one in listed.as_array().unwrap() {
        assert_eq!(
            (&one["source"], &one["valid"]),
            (&json!("builtin"), &json!(true)),
            "{one}"
        );
        let name = one["name"].as_str().unwrap();
        world.call(&["recipe", "check", name]).exits(0);
        assert!(
            world.call(&["recipe", "doc", name]).exits(0).stdout.starts_with("# "),
            "{name}"
        );
    }
    world
        .call(&["run", "builtin:triage-issue", "--sample", "--out", "sample"])
        .exits(0);
    let wrong = world.call(&["run", "builtin:fix-clipy", "--sample"]).exits(3);
    assert!(
        wrong.stderr.contains("did you mean `builtin:fix-clippy`"),
        "{}",
        wrong.stderr
    );
    let from = ["--from", "builtin:triage-issue", "--format", "json"];
    let written = world
        .call(&[&["recipe", "new", "mine/triage.yaml"][..], &from].concat())
        .exits(0);
    let written: Value = serde_json::from_str(&written.stdout).unwrap();
    assert_eq!(
        written,
        json!({ "files": ["mine/triage.yaml", "mine/schemas/issue.json"] })
    );
    world.call(&["recipe", "check", "mine/triage.yaml"]).exits(0);
    assert!(world.ws().join("mine/schemas/issue.json").is_file());
    let before = world.read("mine/triage.yaml");
    world
        .call(&["recipe", "new", "mine/triage.yaml", "--from", "builtin:fix-tests"])
        .exits(8);
    assert_eq!(world.read("mine/triage.yaml"), before);
}

#[test]
fn init_writes_what_passes_its_own_checks_and_overwrites_nothing() {
    for (file, text, saw) in [
        (
            "Cargo.toml",
            "[package]\nname = \"x\"\nversion = \"0.1.0\"\nedition = \"2024\"\n",
            "Rust",
        ),
        ("package.json", "{}\n", "Node"),
        ("pyproject.toml", "[project]\nname = \"x\"\nversion = \"1\"\n", "Python"),
        ("go.mod", "module x\n", "Go"),
        ("pom.xml", "<project/>\n", "Java"),
    ] {
        let world = World::repo(&[(file, text)]);
        let done = world.call(&["init"]).exits(0);
        assert!(done.stdout.contains(&format!("saw: {saw}\n")), "{}", done.stdout);
        world.call(&["policy", "check", "ci/overnight-policy.yaml"]).exits(0);
        world.call(&["recipe", "check", "ci/fix-tests.yaml"]).exits(0);
        let workflow = world.read(".github/workflows/overnight.yml");
        assert!(workflow.contains("git:origin/main:ci/fix-tests.yaml"), "{workflow}");
        world.file("ci/fix-tests.yaml", "mine\n");
        let again = world.call(&["init"]).exits(0);
        assert!(
            again.stdout.contains("exists: ./ci/fix-tests.yaml") && !again.stdout.contains("wrote"),
            "{}",
            again.stdout
        );
        assert_eq!(world.read("ci/fix-tests.yaml"), "mine\n");
        std::fs::remove_file(world.ws().join("ci/overnight-policy.yaml")).unwrap();
        let listed = world.call(&["init", "--format", "json"]).exits(0);
        let listed: Value = serde_json::from_str(&listed.stdout).unwrap();
        assert_eq!(listed["toolchains"], json!([saw.to_lowercase()]));
        let files = json!([
            { "path": "./ci/overnight-policy.yaml", "written": true },
            { "path": "./ci/fix-tests.yaml", "written": false },
            { "path": "./.github/workflows/overnight.yml", "written": false },
        ]);
        assert_eq!(listed["files"], files);
        assert!(
            listed["next"]
                .as_str()
                .unwrap()
                .starts_with("overnight run ci/fix-tests.yaml --policy ")
        );
    }
    let world = World::repo(&[("package.json", "{ \"scripts\": { \"test\": \"exit 1\" } }\n")]);
    world.call(&["init"]).exits(0);
    let npm = Command::new("npm").arg("--version").output();
    if have("npm", npm.is_ok_and(|output| output.status.success())) {
        let cheat = harness::script(&[
            writes("package.json", "{ \"scripts\": { \"test\": \"exit 0\" } }\n"),
            says("done"),
            says("done"),
        ]);
        let model = format!("script:{}", world.beside("cheat.json", cheat));
        let policy = ["--policy", "ci/overnight-policy.yaml"];
        let done = world.call(&[&["run", "ci/fix-tests.yaml", "--model", &model][..], &policy].concat());
        assert_eq!(done.code, 1, "a test that says nothing is no fix: {}", done.stderr);
    }
    let both = World::repo(&[("Cargo.toml", "[workspace]\n"), ("web/package.json", "{}\n")]);
    assert!(both.call(&["init"]).exits(0).stdout.contains("saw: Rust, Node"));
}

/// `init` reports missing packages, an inactive virtual environment and a missing key, and nothing if all are there.
/// A small project in Python has tests and no project file.
#[test]
fn init_sees_python_by_its_tests() {
    for place in ["test_a.py", "tests/test_a.py", "test/test_a.py"] {
        let test = "import unittest\n\nclass A(unittest.TestCase):\n    def test_a(self):\n        self.fail()\n";
        let world = World::repo(&[(place, test), ("a.py", "x = 1\n")]);
        let done = world.call(&["init"]).exits(0);
        assert!(done.stdout.contains("saw: Python"), "{place}: {}", done.stdout);
        let recipe = ["run", "ci/fix-tests.yaml", "--policy", "ci/overnight-policy.yaml"];
        let model = format!(
            "script:{}",
            world.beside("replies.json", harness::script(&[says("no")]))
        );
        let done = world.call(&[&recipe[..], &["--model", &model]].concat()).exits(1);
        // The test is found and fails; that there is none would end before the model is asked.
        assert!(done.stderr.contains("check tests"), "{place}: {}", done.stderr);
    }
    let world = World::repo(&[("tests/test_a.sh", "exit 1\n"), ("scripts/test_a.py", "x = 1\n")]);
    let done = world.call(&["init"]).exits(0);
    assert!(done.stdout.contains("no toolchain"), "{}", done.stdout);
}

/// What a run writes is as private as the umask asks for.
#[test]
fn outputs_obey_the_umask() {
    use std::os::unix::fs::PermissionsExt;
    let world = World::repo(&[("a.txt", "one\n")]);
    let model = format!(
        "script:{}",
        world.beside("s.json", harness::script(&[writes("b.txt", "x\n"), says("done")]))
    );
    for (mask, wanted) in [("077", 0o600), ("022", 0o644), ("000", 0o644)] {
        let dir = world.path().join(mask);
        std::fs::create_dir(&dir).unwrap();
        let command = format!(
            "umask {mask}; exec {BIN} run -p x --model {model} --policy builtin:edit --isolate --out {dir}/out --patch {dir}/p \
             --junit {dir}/j --transcript {dir}/t",
            dir = dir.display()
        );
        let mut bash = Command::new("bash");
        bash.args(["-c", &command]).current_dir(world.ws()).env_clear();
        bash.env("PATH", std::env::var_os("PATH").unwrap())
            .env("HOME", world.path().join("home"));
        Done::of(bash.stdin(Stdio::null()).output().unwrap()).exits(0);
        for file in ["p", "j", "t", "out/changes.patch", "out/result.json", "out/report.html"] {
            let mode = std::fs::metadata(dir.join(file)).unwrap().permissions().mode() & 0o777;
            assert_eq!(mode, wanted, "{mask} {file}");
        }
    }
}

#[test]
fn init_reports_what_is_missing_for_a_first_run() {
    let node = World::repo(&[
        ("package.json", "{ \"dependencies\": { \"a\": \"1\" } }\n"),
        ("package-lock.json", "{}\n"),
    ]);
    let said = node.call(&["init"]).exits(0).stderr;
    assert!(
        said.contains("node_modules does not exist: run `npm ci` in its directory"),
        "{said}"
    );
    assert!(said.contains("it needs GEMINI_API_KEY in the environment"), "{said}");
    let python = World::repo(&[
        ("pyproject.toml", "[project]\nname = \"x\"\nversion = \"1\"\n"),
        (".gitignore", ".venv\n"),
    ]);
    python.file(".venv/bin/activate", "");
    let said = python.call(&["init"]).exits(0).stderr;
    assert!(
        said.contains("run `. .venv/bin/activate` before the first run"),
        "{said}"
    );
    let active = python
        .env("VIRTUAL_ENV", "/venv")
        .env("GEMINI_API_KEY", "a-key-of-nothing");
    let said = active.call(&["init"]).exits(0).stderr;
    assert!(
        !said.contains("activate") && !said.contains("GEMINI_API_KEY in the environment"),
        "{said}"
    );
}

/// A topic branch is not the default branch, also where nothing says which one is.
#[test]
fn init_names_a_branch_that_origin_has() {
    for (branches, packed, expected) in [
        (&["main", "release"][..], false, "main"),
        (&["master", "topic"], true, "master"),
        (&["develop"], true, "develop"),
        (&[], false, "topic"),
    ] {
        let world = World::repo(&[("go.mod", "module x\n")]);
        world.git(&["checkout", "-q", "-b", "topic"]);
        for branch in branches {
            world.git(&["update-ref", &format!("refs/remotes/origin/{branch}"), "HEAD"]);
        }
        if packed {
            world.git(&["pack-refs", "--all"]);
        }
        world.call(&["init"]).exits(0);
        let workflow = world.read(".github/workflows/overnight.yml");
        let named = format!("git:origin/{expected}:ci/fix-tests.yaml");
        assert!(workflow.contains(&named), "{branches:?}: {workflow}");
    }
}

/// The steps that `init` writes fit the files of the repository.
#[test]
fn init_installs_what_the_files_of_the_repository_say() {
    const PROJECT: &str = "[project]\nname = \"x\"\nversion = \"1\"\n";
    type Case<'a> = (&'a [(&'a str, &'a str)], &'a [&'a str], &'a [&'a str], &'a str);
    let cases: &[Case<'_>] = &[
        (
            &[("package.json", "{}\n"), ("package-lock.json", "{}\n")],
            &["run: npm ci\n"],
            &[],
            "npm test",
        ),
        (
            &[("package.json", "{}\n")],
            &["run: npm install\n"],
            &["npm ci"],
            "npm test",
        ),
        (
            &[("package.json", "{}\n"), ("pnpm-lock.yaml", "")],
            &["run: corepack enable && pnpm install --frozen-lockfile\n"],
            &["npm ci"],
            "pnpm test",
        ),
        (
            &[("package.json", "{}\n"), ("yarn.lock", "")],
            &["run: corepack enable && yarn install --immutable\n"],
            &["npm ci"],
            "yarn test",
        ),
        (
            &[("requirements.txt", "requests\n")],
            &["run: python3 -m pip install -r requirements.txt\n"],
            &["-e ."],
            "unittest",
        ),
        (
            &[
                ("pyproject.toml", PROJECT),
                ("src/x/__init__.py", ""),
                ("tests/test_x.py", "import x\n\ndef test_x():\n    assert x\n"),
            ],
            &["pip install -e . pytest\n"],
            &[],
            "PYTHONPATH=src python3 -m pytest -q",
        ),
        (
            &[
                ("pyproject.toml", PROJECT),
                ("src/x/__init__.py", ""),
                (
                    "tests/test_x.py",
                    "import unittest\n\nclass X(unittest.TestCase):\n    def test_x(self):\n        pass\n",
                ),
            ],
            &["pip install -e .\n"],
            &["pytest"],
            "PYTHONPATH=src python3 -m unittest discover -s tests",
        ),
        (
            &[("pyproject.toml", "[tool.pytest.ini_options]\n")],
            &["pip install pytest\n"],
            &["-e ."],
            "python3 -m pytest -q",
        ),
        (
            &[("pyproject.toml", "[tool.ruff]\n")],
            &[],
            &["-e .", "pytest"],
            "python3 -m unittest discover",
        ),
        (&[("tox.ini", "[tox]\n")], &[], &["-e ."], "unittest"),
        (
            &[("tox.ini", "[testenv]\ndeps = pytest\n")],
            &[],
            &["-e ."],
            "python3 -m pytest -q",
        ),
        (
            &[("setup.py", ""), ("conftest.py", "")],
            &[],
            &[],
            "python3 -m pytest -q",
        ),
        (
            &[("build.gradle", ""), ("gradlew", "")],
            &["run: ./gradlew --no-daemon test || true\n"],
            &["mvn"],
            "./gradlew --offline test",
        ),
        (
            &[
                ("web/package.json", "{}\n"),
                ("web/package-lock.json", "{}\n"),
                ("api/go.mod", "module x\n"),
            ],
            &[
                "run: npm ci\n        working-directory: web\n",
                "run: go mod download\n        working-directory: api\n",
            ],
            &[],
            "cd web && npm test",
        ),
        (
            &[("web/package.json", "{}\n"), ("go.mod", "module x\n")],
            &["run: npm install\n        working-directory: web\n"],
            &["working-directory: .\n"],
            "default: \"go test ./...\"",
        ),
    ];
    for (files, wanted, unwanted, test) in cases {
        let world = World::repo(files);
        let done = world.call(&["init"]).exits(0);
        let workflow = world.read(".github/workflows/overnight.yml");
        for part in wanted
            .iter()
            .chain(&["--isolate --github", "include-hidden-files: true"])
        {
            assert!(workflow.contains(part), "{part:?} in {files:?}\n{workflow}");
        }
        for part in *unwanted {
            assert!(!workflow.contains(part), "{part:?} in {files:?}\n{workflow}");
        }
        let recipe = world.read("ci/fix-tests.yaml");
        assert!(recipe.contains(test), "{test} in {files:?}\n{recipe}");
        world.call(&["recipe", "check", "ci/fix-tests.yaml"]).exits(0);
        world.call(&["policy", "check", "ci/overnight-policy.yaml"]).exits(0);
        super::guide::workflow(&format!("{files:?}"), &workflow);
        let below = files.iter().all(|(name, _)| name.contains('/'));
        assert_eq!(
            done.stderr.contains("only below the top, in web"),
            below || test.contains("go test"),
            "{}",
            done.stderr
        );
    }
}

/// The recipe of `init` is green only when tests ran, and not by what stands in for them.
#[test]
fn a_recipe_of_init_is_not_passed_without_tests() {
    let world = World::repo(&[
        ("requirements.txt", ""),
        ("slug.py", "def slug(text):\n    return text.lower()\n"),
        // Without an `__init__.py`.
        (
            "tests/test_slug.py",
            "import unittest\nfrom slug import slug\n\n\nclass Slug(unittest.TestCase):\n    def test_it(self):\n        self.assertEqual(slug(\" A\"), \"a\")\n",
        ),
    ]);
    world.call(&["init"]).exits(0);
    let recipe = world.read("ci/fix-tests.yaml");
    assert!(recipe.contains("\"python3 -m unittest discover -s tests\""), "{recipe}");
    let listed = world.call(&["recipe", "list", "ci"]).exits(0).stdout;
    assert!(listed.contains("fix-tests") && !listed.contains("policy"), "{listed}");
    let cheats = harness::script(&[
        writes("slug.py", "import os\nprint('OK', flush=True)\nos._exit(0)\n"),
        says("done"),
        writes("unittest.py", "print('Ran 1 test')\n"),
        says("done"),
        says("done"),
    ]);
    let model = format!("script:{}", world.beside("cheats.json", cheats));
    let policy = ["--policy", "ci/overnight-policy.yaml"];
    let done = world
        .call(&[&["run", "ci/fix-tests.yaml", "--model", &model][..], &policy].concat())
        .exits(1);
    for part in ["no test was run", "unittest.py was changed"] {
        assert!(done.stderr.contains(part), "{part}: {}", done.stderr);
    }
    // Nothing is asked of a model where the command passes without a test.
    let none = ["--param", "command=true", "--format", "json"];
    let done = world
        .call(&[&["run", "ci/fix-tests.yaml", "--model", &model][..], &policy, &none].concat())
        .exits(1);
    assert_eq!(done.json()["usage"]["turns"], 0, "{}", done.stdout);
    assert!(done.stdout.contains("no test was run by `true`"), "{}", done.stdout);
}

#[test]
fn init_says_whose_tests_the_recipe_does_not_run() {
    let world = World::repo(&[
        ("package.json", "{\"scripts\": {\"test\": \"node t.js\"}}\n"),
        ("requirements.txt", "six\n"),
    ]);
    let done = world.call(&["init"]).exits(0);
    let told = "runs the tests of Node only; for those of Python: --param command='python3 -m unittest discover'";
    assert!(done.stderr.contains(told), "{}", done.stderr);
}

/// What ships guards the recipe of `init`; tests inside Rust's sources are counted.
#[test]
fn init_writes_the_guards_of_the_shipped_recipes() {
    let shipped =
        |name: &str| std::fs::read_to_string(harness::project().join(format!("recipes/{name}.yaml"))).unwrap();
    let part = |text: &str, from: &str, to: &str| {
        let begin = text.find(from).unwrap();
        let end = text[begin..].find(to).unwrap();
        text[begin..begin + end].to_owned()
    };
    let world = World::repo(&[(
        "Cargo.toml",
        "[package]\nname = \"x\"\nversion = \"0.1.0\"\nedition = \"2024\"\n",
    )]);
    world.call(&["init"]).exits(0);
    let recipe = world.read("ci/fix-tests.yaml");
    let fix = shipped("fix-tests");
    for guard in [
        part(&fix, "      - name: tests\n", "      - name: tests-untouched\n"),
        part(&fix, "      - name: tests-untouched\n", "    retry:"),
        part(
            &shipped("fix-clippy"),
            "      - name: tests-kept\n",
            "      - name: lock-kept\n",
        ),
    ] {
        assert!(recipe.contains(&guard), "{guard}\n{recipe}");
    }
    world.call(&["recipe", "check", "ci/fix-tests.yaml"]).exits(0);
}

/// What test runners print when tests ran and passed.
const RAN: &[&str] = &[
    "Ran 1 test in 0.001s",
    "===== 3 passed in 0.01s =====",
    "# pass 3",
    "ℹ pass 3",
    "# pass  3",
    " 3 pass",
    " 12 pass",
    "3 specs, 0 failures",
    "1 spec, 0 failures",
    "10 specs, 0 failures, 1 pending spec",
    "3 examples, 0 failures",
    "1 example, 0 failures",
    "30 examples, 0 failures, 2 pending",
    "3 runs, 5 assertions, 0 failures, 0 errors, 0 skips",
    "3 tests, 5 assertions, 0 failures, 0 errors, 0 pendings, 0 omissions, 0 notifications",
    "OK (3 tests, 5 assertions)",
    "OK (1 test, 1 assertion)",
    "Tests: 3, Assertions: 5, Warnings: 1.",
    "Tests: 3, Assertions: 5, PHPUnit Deprecations: 1, Skipped: 2.",
    "ok  \tx\t0.003s",
    "ok  \tx\t(cached)",
    "ok  \tx\t(cached)\tcoverage: 80.0% of statements",
    "ok  \tx\t(cached)\tcoverage: [no statements]",
    "ok  \tx\t0.002s\tcoverage: [no statements]",
    "ok x 0.003s coverage: 50.0% of statements in ./...",
    "Tests run: 3, Failures: 0",
    "BUILD SUCCESSFUL in 3s",
    "test result: ok. 3 passed; 0 failed",
    "  3 passing (5ms)",
];

/// What they print when none ran or some failed.
const RAN_NOT: &[&str] = &[
    "Ran 0 tests in 0.000s",
    "0 passed",
    "# pass 0",
    "# pass  0",
    "# tests 0",
    " 0 pass",
    "0 specs, 0 failures",
    "3 specs, 1 failure",
    "0 examples, 0 failures",
    "3 examples, 1 failure",
    "3 examples, 10 failures",
    "0 runs, 0 assertions, 0 failures, 0 errors, 0 skips",
    "3 runs, 0 assertions, 0 failures, 0 errors, 3 skips",
    "3 runs, 5 assertions, 1 failures, 0 errors, 0 skips",
    "3 runs, 5 assertions, 0 failures, 2 errors, 0 skips",
    "No tests executed!",
    "Tests: 3, Assertions: 5, Failures: 1.",
    "Tests: 3, Assertions: 5, Errors: 1, Skipped: 1.",
    "Tests: 3, Assertions: 0, Skipped: 3.",
    "ok  \tx\t0.003s [no tests to run]",
    "ok  \tx\t(cached) [no tests to run]",
    "ok  \tx\t0.003s\tcoverage: 0.0% of statements [no tests to run]",
    "ok  \tx\t0.003s\tcoverage: [no statements] [no tests to run]",
    "?   \tx\t[no test files]",
    "\tx\t\tcoverage: 0.0% of statements",
    "0 tests",
    "compass  OK",
    "10 bypass",
    "passed",
    "3 passports",
    "FAIL\tx\t0.003s",
    "no specs found",
    "test result: ok. 0 passed; 0 failed",
    "Tests run: 0, Failures: 0",
];

/// What the outputs of test runners tell, by the default of `ran`, which is the same in each recipe that has it.
#[test]
fn the_pattern_of_tests_that_ran_knows_the_usual_runners() {
    let default = |name: &str| {
        let text = std::fs::read_to_string(harness::project().join(format!("recipes/{name}.yaml"))).unwrap();
        let line = text
            .lines()
            .find(|line| line.trim().starts_with("default: '\\bRan "))
            .unwrap();
        line.trim()
            .strip_prefix("default: '")
            .and_then(|rest| rest.strip_suffix('\''))
            .unwrap()
            .to_owned()
    };
    let ran = default("fix-tests");
    for name in ["bump-dependency", "replace-deprecated", "upgrade-runtime"] {
        assert_eq!(default(name), ran, "{name}");
    }
    let matching = |outputs: &[&str]| -> Vec<String> {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("output");
        std::fs::write(&file, outputs.join("\n")).unwrap();
        let done = Command::new("grep")
            .args(["-aE", "--", &ran])
            .arg(&file)
            .output()
            .unwrap();
        String::from_utf8(done.stdout)
            .unwrap()
            .lines()
            .map(str::to_owned)
            .collect()
    };
    assert_eq!(matching(RAN), RAN);
    assert_eq!(matching(RAN_NOT), Vec::<String>::new());
}

#[test]
fn init_tells_of_a_package_without_tests() {
    for (scripts, told) in [
        ("{}", "has no script `test`"),
        (
            "{ \"test\": \"echo \\\"Error: no test specified\\\" && exit 1\" }",
            "of `npm init`",
        ),
        ("{ \"test\": \"node --test\" }", ""),
    ] {
        let world = World::repo(&[("package.json", &format!("{{ \"scripts\": {scripts} }}\n"))]);
        let done = world.call(&["init"]).exits(0);
        assert_eq!(done.stderr.contains("cannot pass"), !told.is_empty(), "{}", done.stderr);
        assert!(done.stderr.contains(told), "{told}: {}", done.stderr);
    }
}

/// Another test command, under the policy of its toolchain.
#[test]
fn fix_tests_works_under_the_policy_of_another_toolchain() {
    let node = Command::new("node").arg("--version").output();
    if !have("node", node.is_ok_and(|output| output.status.success())) {
        return;
    }
    let world = World::repo(&[
        ("package.json", "{}\n"),
        ("lib/add.js", "exports.add = (a, b) => a - b;\n"),
        (
            "test/add.test.js",
            "const { add } = require('../lib/add');\nrequire('node:test')('adds', () => require('assert').equal(add(2, 2), 4));\n",
        ),
    ]);
    let replies = harness::script(&[writes("lib/add.js", "exports.add = (a, b) => a + b;\n"), says("done")]);
    let model = format!("script:{}", world.beside("replies.json", replies));
    let command = ["--param", "command=node --test", "--policy", "builtin:node"];
    world
        .call(&[&["run", "builtin:fix-tests", "--model", &model][..], &command].concat())
        .exits(0);
}

#[test]
fn init_fits_the_forge_and_the_place() {
    let world = World::repo(&[
        ("requirements.txt", "pytest\n"),
        (".gitignore", ".venv/\n"),
        (".gitlab-ci.yml", "stages: [test]\n"),
    ]);
    world.file(".venv/bin/python", "");
    let done = world.call(&["init"]).exits(0);
    assert!(!world.ws().join(".github").exists(), "{}", done.stdout);
    let jobs = world.read("ci/overnight.gitlab-ci.yml");
    assert!(jobs.contains("git:origin/main:ci/fix-tests.yaml"), "{jobs}");
    assert!(
        done.stderr.contains("local: ci/overnight.gitlab-ci.yml"),
        "{}",
        done.stderr
    );
    let recipe = world.read("ci/fix-tests.yaml");
    assert!(recipe.contains("isolate: { keep: [.venv] }"), "{recipe}");
    world.call(&["recipe", "check", "ci/fix-tests.yaml"]).exits(0);

    let world = World::repo(&[("sub/go.mod", "module x\n")]);
    let done = world.call(&["init", "sub"]).exits(0);
    assert!(done.stderr.contains("no workflow is written"), "{}", done.stderr);
    assert!(!world.ws().join("sub/.github").exists() && world.ws().join("sub/ci").exists());

    let world = World::repo(&[("go.mod", "module x\n")]);
    world.git(&["remote", "add", "origin", "https://gitlab.example/x/y.git"]);
    world.call(&["init"]).exits(0);
    assert!(world.ws().join("ci/overnight.gitlab-ci.yml").is_file());
}

#[test]
fn init_fits_jenkins_and_make() {
    let world = World::repo(&[
        ("Jenkinsfile", "pipeline {}\n"),
        ("Makefile", "all: x\nx test: all\n\tcc x.c\n"),
    ]);
    let done = world.call(&["init"]).exits(0);
    assert!(!world.ws().join(".github").exists(), "{}", done.stdout);
    for part in ["ci/jenkins.md", "--param command='make test' --param ran=REGEX"] {
        assert!(done.stderr.contains(part), "{part}: {}", done.stderr);
    }
    assert!(!done.stderr.contains("OVERNIGHT_SOURCE"), "{}", done.stderr);
    let world = World::repo(&[
        ("Jenkinsfile", "pipeline {}\n"),
        (".github/workflows/x.yml", "on: push\n"),
        ("Makefile", ".PHONY: test\n"),
    ]);
    let done = world.call(&["init"]).exits(0);
    assert!(world.ws().join(".github/workflows/overnight.yml").exists());
    assert!(!done.stderr.contains("make test"), "{}", done.stderr);
}

#[test]
fn init_of_an_empty_directory_says_what_to_do() {
    let world = World::repo(&[]);
    let done = world.call(&["init"]).exits(8);
    assert!(
        done.stderr.contains("is empty") && done.stderr.contains("overnight init DIR"),
        "{}",
        done.stderr
    );
    assert_eq!(world.git(&["status", "--porcelain"]), "");
}

#[test]
fn init_writes_nothing_into_a_bare_repository() {
    let world = World::repo(&[("a.txt", "a\n")]);
    world.git(&["clone", "-q", "--bare", ".", "../bare"]);
    let bare = world.path().join("bare").to_string_lossy().into_owned();
    for args in [&["init", &bare][..], &["-C", &bare, "init"]] {
        let done = world.call(args).exits(8);
        assert!(
            done.stderr.contains("is itself a bare git repository"),
            "{}",
            done.stderr
        );
    }
    assert!(!world.path().join("bare/ci").exists());
}

/// The examples of the help are typed in the repository in which `init` was called.
#[test]
fn the_examples_of_the_help_fit_what_init_writes() {
    let world = World::repo(&[(
        "Cargo.toml",
        "[package]\nname = \"x\"\nversion = \"0.1.0\"\nedition = \"2024\"\n",
    )]);
    world.call(&["init"]).exits(0);
    let example = |help: &[&str], begin: &str| {
        let told = world.call(help).exits(0).stdout;
        let found = told.lines().map(str::trim).find(|line| line.starts_with(begin));
        found.unwrap_or_else(|| panic!("{begin}: {told}")).to_owned()
    };
    let run = example(&["--help"], "overnight run ci/");
    let words: Vec<&str> = run.split(' ').skip(1).chain(["--dry-run"]).collect();
    world.call(&words).exits(0);
    let check = example(&["policy", "check", "--help"], "overnight policy check ci/*");
    let (check, _) = check.split_once(" >").unwrap();
    let check = check.replacen("overnight", harness::BIN, 1);
    let mut shell = harness::under("sh", &["-c", &check], &world.command(&[]));
    let done = Done::of(shell.output().unwrap()).exits(0);
    assert_eq!(done.json()["version"], json!("2.1.0"));
}

#[test]
fn init_outside_of_git_names_no_worktree() {
    let world = World::new();
    world.file("README.md", "# A project\n");
    let done = world.call(&["init"]).exits(0);
    let next = done.stdout.lines().find(|line| line.starts_with("next: ")).unwrap();
    assert!(!next.contains("--isolate"), "{next}");
    world.git(&["init", "-q"]);
    let done = world.call(&["init"]).exits(0);
    assert!(done.stdout.contains(" --isolate\n"), "{}", done.stdout);
}

/// Another kind of repository gets a neutral start.
#[test]
fn init_begins_in_a_repository_of_no_known_toolchain() {
    let world = World::repo(&[
        ("Gemfile", "source 'https://rubygems.org'\n"),
        ("README.md", "# A poject\n"),
    ]);
    let done = world.call(&["init"]).exits(0);
    assert!(
        done.stdout.contains("saw: no toolchain that is known here\n"),
        "{}",
        done.stdout
    );
    assert!(done.stderr.contains("Cargo.toml"), "{}", done.stderr);
    world.call(&["policy", "check", "ci/overnight-policy.yaml"]).exits(0);
    world.call(&["recipe", "check", "ci/small-fix.yaml"]).exits(0);
    assert!(
        world
            .read("ci/overnight-policy.yaml")
            .contains("extends: [builtin:edit]")
    );
    let workflow = world.read(".github/workflows/overnight.yml");
    assert!(workflow.contains("git:origin/main:ci/small-fix.yaml"), "{workflow}");
    super::guide::workflow("a Ruby project", &workflow);
    let replies = harness::script(&[writes("README.md", "# A project\n"), says("done")]);
    let model = format!("script:{}", world.beside("replies.json", replies));
    let policy = ["--policy", "ci/overnight-policy.yaml"];
    world
        .call(&[&["run", "ci/small-fix.yaml", "--model", &model][..], &policy].concat())
        .exits(0);
}

#[test]
fn what_was_meant_is_said() {
    let world = World::new().env("OVERNIGHT_MAX_COSTS", "1").env("OVERNIGHT_DIR", "x");
    let model = script(&world);
    let done = world.call(&["run", "-p", "x", "-m", &model]).exits(0);
    assert!(
        done.stderr
            .contains("OVERNIGHT_MAX_COSTS is set and has no meaning; did you mean `OVERNIGHT_MAX_COST`?"),
        "{}",
        done.stderr
    );
    assert!(!done.stderr.contains("OVERNIGHT_DIR"), "{}", done.stderr);

    let world = World::new();
    let model = script(&world);
    let said = |args: &[&str], code: i32, wanted: &str| {
        let done = world.call(args).exits(code);
        assert!(done.stderr.contains(wanted), "{args:?}: {}", done.stderr);
    };
    world.file("prompt.txt", "Do it.\n");
    said(
        &["run", "-p", "prompt.txt", "-m", &model],
        0,
        "the prompt is the name of a file; `-p @prompt.txt` reads it",
    );
    said(
        &["run", "-p", "x", "-m", "gemini-2.5-pro"],
        2,
        "did you mean `gemini/gemini-2.5-pro`?",
    );
    said(
        &["run", "-p", "x", "-m", "google/gemini-2.5-pro"],
        2,
        "did you mean `gemini/gemini-2.5-pro`?",
    );
    said(
        &["run", "-p", "x", "-m", "openai/q", "--base-url", "nope"],
        2,
        "--base-url: `nope` must begin with http:// or https://",
    );
    said(&["run", "-p", "x", "--yolo"], 2, "--policy builtin:build");
    said(&["run", "-p", "x", "--output-format", "json"], 2, "--format json");
    said(&["lint"], 2, "overnight policy check FILE");
    said(&["exec", "x"], 2, "overnight run -p PROMPT");
    for (flag, hint) in [
        ("-y", "--policy builtin:build"),
        ("--sandbox", "builtin:read-only"),
        ("-s", "builtin:read-only"),
        ("--cd", "-C DIR"),
        ("--add-dir", "--workspace DIR"),
        ("--allowedTools", "--policy builtin:build"),
        ("--recipe", "overnight run RECIPE"),
        ("--message", "overnight run -p PROMPT"),
        ("--timeout", "--max-wall TIME"),
        ("--max-time=10m", "--max-wall TIME"),
        ("--budget", "--max-cost USD"),
        ("--provider", "--model PROVIDER/NAME"),
        ("--debug", "-v"),
        ("--resume", "overnight resume --last"),
    ] {
        let done = world.call(&["run", "x.yaml", flag]).exits(2);
        assert!(
            done.stderr.contains(hint) && !done.stderr.contains("as a value"),
            "{flag}: {}",
            done.stderr
        );
    }
    said(&["-p", "hi"], 2, "overnight run -p PROMPT");
    said(&["fix the tests"], 2, "overnight run -p PROMPT");
    said(&["builtin:fix-tests"], 2, "overnight run RECIPE");
    said(&["check", "x.yaml"], 2, "overnight recipe check FILE");
    said(&["completion"], 2, "overnight completions SHELL");
    said(&["models"], 2, "--model PROVIDER/NAME");
    said(&["mcp"], 2, "mcp_servers");
    let odd = world.call(&["run", "x.yaml", "--nonsense"]).exits(2).stderr;
    assert!(!odd.contains("as a value"), "{odd}");
    // What only a recipe takes, and limits that let nothing run.
    for flag in ["--param", "--params"] {
        said(&["run", "-p", "x", flag, "a=b"], 2, "cannot be used with");
    }
    // What only a prompt or only a tool takes is refused, never left aside.
    for (args, hint) in [
        (&["run", "x.yaml", "--stdin"][..], "`--input -`"),
        (
            &["run", "x.yaml", "--output-schema", "nope.json"],
            "`response: { schema: FILE }`",
        ),
        (&["run", "x.yaml", "-p", "x"], "leave one of the two out"),
        (
            &["policy", "explain", "builtin:edit", "--command", "ls", "--args", "{}"],
            "`--tool NAME --args JSON`",
        ),
        (
            &["policy", "explain", "builtin:edit", "--calls", "x", "--args", "{}"],
            "cannot be used with",
        ),
        (&["batch", "a.yaml", "b.yaml"], "one manifest"),
        (&["run", "a.yaml", "b.yaml"], "overnight batch MANIFEST"),
        (&["run", "fix", "the", "tests"], "overnight run -p"),
        (&["policy", "explain", "builtin:edit", "ls"], "`--command \"COMMAND\"`"),
        (&["policy", "list"], "builtin:read-only"),
        (&["run", "x.yaml", "--output-last-message", "f"], "`> FILE`"),
        (&["run", "x.yaml", "--format", "junit"], "`--junit FILE`"),
        (&["batch", "x.yaml", "--parallel", "3"], "--jobs N"),
        (&["batch", "x.yaml", "--jobs", "auto"], "as many jobs as there are CPUs"),
        (&["plan"], "--dry-run"),
        (&["run", "x.yaml", "--worktree"], "`--isolate` works in"),
        (&["run", "x.yaml", "--no-isolate"], "leave it out"),
        (&["run", "x.yaml", "--pr"], "overnight deliver RUN"),
        (
            &["run", "-p", "x", "--append-system-prompt", "y"],
            "`context: [AGENTS.md]`",
        ),
        (&["recipe", "explain", "x.yaml"], "`overnight recipe show FILE`"),
        (&["policy", "show", "x.yaml"], "`overnight policy check FILE`"),
        (&["policy", "new"], "`overnight init`"),
        (&["run", "-p", "x", "--search"], "web search is a tool"),
        (&["run", "-p", "x", "--effort", "high"], "`model_settings`"),
        (&["run", "-p", "x", "--settings", "f"], "`tools: { settings: FILE }`"),
        (&["run", "-p", "x", "--bare"], "leave it out"),
        (&["run", "-p", "x", "--max-tool-repetitions", "3"], "`limits: { calls: "),
        (&["run", "-p", "x", "--explain"], "`overnight recipe show RECIPE`"),
        (&["run", "-p", "x", "-o", "out.txt"], "`> FILE`"),
        (&["run", "-p", "x", "-c", "model=x"], "a flag of its own"),
        (
            &["run", "-p", "x", "--config", "y"],
            "a recipe names model, policy and limits",
        ),
        (&["run", "-p", "x", "-a"], "a policy gives the approvals"),
        (&["run", "-p", "x", "--fallback-model", "y"], "`model: [A, B]`"),
        (&["run", "-p", "x", "--openai-api-base", "y"], "--base-url URL"),
        (&["run", "-p", "x", "--oss"], "--base-url http://localhost"),
        (&["-m", "x"], "overnight run -p PROMPT -m"),
        (&["-v"], "overnight --version"),
        (&["logs"], "overnight report RUN"),
        (&["test"], "overnight recipe test"),
        (&["config"], "OVERNIGHT_MODEL"),
        (&["update"], "does not update itself"),
        (&["session"], "overnight runs list"),
        (&["runs", "rm", "x"], "overnight runs prune --keep N"),
        (&["run", "-p", "x", "--api-key", "y"], "overnight doctor"),
        (&["run", "--last"], "overnight resume --last"),
        (&["batch", "x.yaml", "--resume"], "the same command continues"),
        (&["batch", "x.yaml", "--max-wall", "2h"], "`budget: { wall: 2h"),
        (&["init", "--force"], "delete the file first"),
        (&["recipe", "run", "x.yaml"], "`overnight run RECIPE`"),
        (&["approve", "c1"], "overnight resume RUN --approve"),
        (&["verify", "x"], "overnight runs verify RUN"),
        (&["run", "x.yaml", "--max-steps", "9"], "`--max-turns N`"),
        (&["run", "--list"], "`overnight recipe list`"),
        (&["serve"], "nothing here stays running"),
        (&["run", "x.yaml", "--no-sandbox"], "`sandbox: { level: … }`"),
        (&["run", "x.yaml", "--env", "A=b"], "`env: { pass: [NAME] }`"),
        (&["run", "x.yaml", "-e", "A=b"], "`env: { pass: [NAME] }`"),
        (&["run", "x.yaml", "--var", "a=b"], "`--param NAME=VALUE`"),
        (&["run", "x.yaml", "--sarif", "f"], "report RUN --format sarif"),
        (&["run", "x.yaml", "--allow-net"], "`sandbox: { network: [HOST] }`"),
        (&["run", "x.yaml", "--ci"], "leave it out"),
        (&["pr"], "overnight deliver RUN"),
        (&["diff"], "overnight report RUN --format patch"),
        (&["eval", "x"], "overnight compare A B"),
        (&["new"], "overnight recipe new FILE"),
        (&["cost"], "report RUN --format result"),
        (&["report", "x", "--format", "json"], "did you mean `result`?"),
        (
            &["recipe", "doc", "x.yaml", "--format", "json"],
            "recipe show FILE --format json",
        ),
    ] {
        said(args, 2, hint);
    }
    for (flag, value, wanted) in [
        ("--max-turns", "0", "a limit of 0 allows nothing to run"),
        ("--max-tokens", "0", "a limit of 0 allows nothing to run"),
        ("--max-cost", "0", "a limit of 0 allows nothing to run"),
        ("--max-wall", "0s", "a limit of 0 allows nothing to run"),
        ("--max-turns", "many", "write a whole number such as 40"),
    ] {
        said(&["run", "-p", "x", flag, value], 2, wanted);
    }
    said(
        &["run", "-p", "x", "-m", &model, "--tools", "Read"],
        2,
        "--tools Read: there is no tool `Read`; did you mean `read_file`?",
    );
    said(
        &["run", "-p", "x", "-m", &model, "--tools", "kind:write"],
        2,
        "kind:write",
    );
    for (name, wanted) in [
        ("sonnet", "did you mean `anthropic/claude-sonnet-"),
        ("opus", "did you mean `anthropic/claude-opus-"),
        (
            "anthropic:claude-sonnet-4-5",
            "did you mean `anthropic/claude-sonnet-4-5`? Write ",
        ),
        ("ollama:qwen3", "openai/qwen3 with --base-url"),
        ("nobody/x", "`nobody/x`: write "),
        ("script:", "`script:` names no file: write script:FILE"),
        ("replay:", "`replay:` names no run: write replay:RUN"),
    ] {
        said(&["run", "-p", "x", "-m", name], 2, wanted);
    }
    said(
        &["run", "-p", "x", "-m", "ollama/qwen3"],
        2,
        "openai/qwen3 with --base-url http://localhost:11434/v1",
    );
    said(
        &["run", "-p", "x", "-m", &model, "--policy", "read-only"],
        3,
        "did you mean `builtin:read-only`?",
    );
    said(&["runs", "prune", "--keep", "x"], 2, "write a whole number such as 40");
    said(
        &["run", "fix-tests", "-m", &model],
        3,
        "did you mean `builtin:fix-tests`?",
    );
    std::fs::create_dir(world.ws().join("ci")).unwrap();
    said(&["run", "ci", "-m", &model], 3, "ci is a directory");
    said(&["run", "-p", "@nope", "-m", &model], 3, "`@nope`: cannot read");
    said(
        &["run", "-p", "x", "-m", &model, "--output-schema", "nope"],
        3,
        "--output-schema: cannot read",
    );
    said(
        &[
            "policy",
            "explain",
            "builtin:read-only",
            "--tool",
            "read_file",
            "--args",
            "{}",
        ],
        2,
        "file_path",
    );
    let explained = world
        .call(&[
            "policy",
            "explain",
            "builtin:build",
            "--command",
            "ls -la",
            "--format",
            "json",
        ])
        .exits(0)
        .json();
    assert_eq!(explained["runs"], json!([["ls", "-la"]]), "{explained}");
    assert!(
        explained["writes"].is_string() && explained["considered"].is_array(),
        "{explained}"
    );
}

/// A shell may redirect output of `overnight` into the workspace; these writes are not changes of the run.
#[test]
fn own_output_redirected_into_the_workspace_is_not_a_change_of_the_run() {
    for (level, more) in [("full", &[][..]), ("landlock", &[]), ("landlock", &["--isolate"])] {
        let world = World::repo(&[("a.txt", "one\n"), ("log", "old\n")]);
        let commands = [
            shell("touch b.txt"),
            // Where a mount hides the file, a command that may write the tree cannot write it.
            shell("python3 -c 'import time; open(\"c.txt\", \"w\").write(\"x\"); time.sleep(0.1)'"),
            calls("read_file", json!({ "file_path": "log" })),
            says("done"),
        ];
        let model = format!("script:{}", world.beside("script.yaml", harness::script(&commands)));
        let policy = format!(
            "version: 1\nextends: [builtin:edit]\nrules:\n  - {{ allow: run_shell_command, commands: [touch] }}\n  - {{ allow: \
             run_shell_command, commands: [python3], args: any, writes: tree }}\n  - {{ deny: write_file, paths: [log, out.json] }}\n\
             sandbox: {{ level: {level} }}\n"
        );
        let policy = world.beside("policy.yaml", policy);
        let args = [
            "run", "-p", "x", "--model", &model, "--policy", &policy, "--format", "json",
        ];
        let mut command = world.command(&[&args[..], more].concat());
        let into = |name: &str| std::fs::File::create(world.ws().join(name)).unwrap();
        let code = command
            .stdout(into("out.json"))
            .stderr(into("log"))
            .status()
            .unwrap()
            .code();
        let log = world.read("log");
        assert_eq!(code, Some(0), "{level} {more:?}: {log}");
        assert!(log.contains("overnight: passed"), "{log}");
        let result: Value = serde_json::from_str(&world.read("out.json")).unwrap();
        let patch = world.ws().join(result["artefacts"]["patch"].as_str().unwrap());
        let patch = std::fs::read_to_string(patch).unwrap();
        let changed: Vec<&str> = patch.lines().filter(|line| line.starts_with("diff ")).collect();
        assert_eq!(
            changed,
            ["diff --git a/b.txt b/b.txt", "diff --git a/c.txt b/c.txt"],
            "{level} {more:?}"
        );
        assert_eq!(result["unruled"], json!([]), "{level} {more:?}: {result}");
    }
}

/// A command cannot pass a file off as the output of this program, nor hide it behind the name.
#[test]
fn a_file_in_the_place_of_redirected_output_is_a_change() {
    let world = World::repo(&[("a.txt", "one\n")]);
    let forge = "python3 -c 'import os; open(\"x\", \"w\").write(\"forged\"); os.replace(\"x\", \"out.json\")'";
    let script = harness::script(&[shell(forge), says("done")]);
    let model = format!("script:{}", world.beside("script.yaml", script));
    let policy = "version: 1\nextends: [builtin:edit]\nrules:\n  - { allow: run_shell_command, commands: [python3], args: any, \
                  writes: tree }\nsandbox: { level: landlock }\n";
    let policy = world.beside("policy.yaml", policy);
    let out = world.out().to_string_lossy().into_owned();
    let args = [
        "run", "-p", "x", "--model", &model, "--policy", &policy, "--format", "json", "--out", &out,
    ];
    let mut command = world.command(&args);
    let stdout = std::fs::File::create(world.ws().join("out.json")).unwrap();
    let ended = command
        .stdout(stdout)
        .stderr(std::process::Stdio::null())
        .status()
        .unwrap();
    let journal = std::fs::read_to_string(world.out().join("journal.jsonl")).unwrap();
    assert!(journal.contains("own_output_replaced"), "{journal}");
    let result = std::fs::read_to_string(world.out().join("result.json")).unwrap();
    assert!(result.contains("out.json"), "{result}");
    // Who reads the file reads what the command wrote.
    assert_eq!(ended.code(), Some(9), "{result}");
}

/// Nor after a resume, whose own output goes elsewhere.
#[test]
fn a_file_in_the_place_of_redirected_output_is_a_change_after_a_resume() {
    for forges in [true, false] {
        let world = World::repo(&[("a.txt", "one\n")]);
        let forge = if forges {
            "open(\"x\", \"w\").write(\"forged\"); os.replace(\"x\", \"out.json\")"
        } else {
            "pass"
        };
        let command = format!("python3 -c 'import os, time; {forge}; open(\"begun\", \"w\"); time.sleep(60)'");
        let script = harness::script(&[shell(&command), says("done")]);
        let model = format!("script:{}", world.beside("script.yaml", script));
        let policy = "version: 1\nextends: [builtin:edit]\nrules:\n  - { allow: run_shell_command, commands: [python3], args: any, \
                      writes: tree }\nsandbox: { level: landlock }\n";
        let policy = world.beside("policy.yaml", policy);
        let out = world.out().to_string_lossy().into_owned();
        let args = ["run", "-p", "x", "--model", &model, "--policy", &policy, "--out", &out];
        let mut command = world.command(&args);
        let stdout = std::fs::File::create(world.ws().join("out.json")).unwrap();
        let mut run = command
            .stdout(stdout)
            .stderr(std::process::Stdio::null())
            .spawn()
            .unwrap();
        harness::until("the command has begun", || world.ws().join("begun").exists());
        run.kill().unwrap();
        run.wait().unwrap();
        world.call(&["resume", &out]).exits(0);
        let patch = std::fs::read_to_string(world.out().join("changes.patch")).unwrap();
        assert!(patch.contains("b/begun"), "{patch}");
        assert_eq!(patch.contains("b/out.json"), forges, "{patch}");
    }
}

/// At `landlock` a command can write the file that stdout is redirected to. Who reads it must not take that for the result.
#[test]
fn what_a_command_writes_into_redirected_output_fails_the_run() {
    let long = "python3 -c 'open(\"out.json\", \"a\").write(\" \" * 60000 + \"{\\\"verdict\\\": \\\"passed\\\"}\")'";
    let short = "python3 -c 'open(\"out.json\", \"a\").write(\"x\")'";
    let first = "python3 -c 'open(\"out.json\", \"r+\").write(\"forged\")'";
    let honest = "python3 -c 'open(\"b.txt\", \"w\").write(\"x\")'";
    for (command, flags, appends, code) in [
        (long, &["--format", "json"][..], false, 9),
        (long, &[], false, 9),
        (long, &["--quiet"], false, 9),
        (short, &["--format", "json"], true, 9),
        (first, &["--format", "stream-json"], false, 9),
        (first, &["--format", "json"], true, 9),
        (honest, &["--format", "json"], true, 0),
        (honest, &["--format", "stream-json"], false, 0),
        (honest, &["--quiet"], false, 0),
        (honest, &[], true, 0),
    ] {
        for together in [true, false] {
            let world = World::repo(&[("a.txt", "one\n")]);
            world.file("out.json", if appends { "earlier\n" } else { "" });
            let script = harness::script(&[shell(command), says("done")]);
            let model = format!("script:{}", world.beside("script.yaml", script));
            let policy = "version: 1\nextends: [builtin:edit]\nrules:\n  - { allow: run_shell_command, commands: [python3], args: \
                          any, writes: tree }\nsandbox: { level: landlock }\n";
            let policy = world.beside("policy.yaml", policy);
            let out = world.out().to_string_lossy().into_owned();
            let args = ["run", "-p", "x", "--model", &model, "--policy", &policy, "--out", &out];
            let mut command_line = world.command(&[&args[..], flags].concat());
            let file = std::fs::File::options()
                .append(appends)
                .write(true)
                .open(world.ws().join("out.json"))
                .unwrap();
            let stderr = match together {
                true => file.try_clone().unwrap().into(),
                false => std::process::Stdio::null(),
            };
            let ended = command_line.stdout(file).stderr(stderr).status().unwrap();
            // What was in the file before the run is not its output.
            let is_earlier = command == first && (appends || together);
            let wanted = if is_earlier { 0 } else { code };
            assert_eq!(
                ended.code(),
                Some(wanted),
                "{command} {flags:?} {appends} {together}: {}",
                world.read("out.json")
            );
            if wanted == 9 {
                assert_eq!(world.result()["verdict"], "output", "{command} {flags:?}");
            }
        }
    }
}
