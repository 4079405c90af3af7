//! The shipped policies against what is typed every day in repositories of their kind: `fixtures/policy/shipped/NAME/` has `allowed.txt`,
//! `refused.txt` and, where it is not that of `look`, `repo/`. Every row is ruled; those of `look`, `rust`, `node` and `python` are run,
//! those of `go` and `java` where their tools are.
//!
//! A row of `allowed.txt` is a command, with its exit code in brackets where that is not 0; rows behind `# ruled only` need tools that
//! few machines have. A row of `refused.txt` is a reason code (`-`
//! for any; `at_run` where only the kernel sees it) and a command, or `write` or `read`, a code and a path. A line that begins with four
//! blanks goes on with the row above.

use super::harness::{World, have, have_optional, project, says, script};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

const POLICIES: [&str; 9] = ["rust", "node", "python", "go", "java", "docs", "mixed", "look", "build"];
/// How many rows each table must have at least.
const ALLOWED: usize = 80;
const REFUSED: usize = 40;

fn dir(policy: &str) -> PathBuf {
    project().join("fixtures/policy/shipped").join(policy)
}

/// The rows of a table; each may have several lines.
fn rows(policy: &str, table: &str) -> Vec<String> {
    let path = dir(policy).join(table);
    let text = std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let mut rows: Vec<String> = Vec::new();
    for line in text.lines() {
        match line.strip_prefix("    ") {
            Some(more) if !rows.is_empty() => {
                let row = rows.last_mut().unwrap();
                row.push('\n');
                row.push_str(more);
            }
            _ if line.trim().is_empty() || (line.starts_with("# ") && line != RULED_ONLY) => {}
            _ => rows.push(line.to_owned()),
        }
    }
    rows
}

/// The line behind which rows are not run.
const RULED_ONLY: &str = "# ruled only";

/// Rows of `allowed.txt` that are run: the command and its exit code.
fn allowed(policy: &str) -> Vec<(String, i64)> {
    let row = |row: String| match row.strip_prefix('[').and_then(|rest| rest.split_once("] ")) {
        Some((code, command)) if code.parse::<i64>().is_ok() => (command.to_owned(), code.parse().unwrap()),
        _ => (row, 0),
    };
    let rows = rows(policy, "allowed.txt").into_iter();
    rows.take_while(|row| row != RULED_ONLY).map(row).collect()
}

/// Rows of `allowed.txt` that are only ruled.
fn ruled_only(policy: &str) -> Vec<String> {
    rows(policy, "allowed.txt")
        .into_iter()
        .skip_while(|row| row != RULED_ONLY)
        .skip(1)
        .collect()
}

/// A row of `refused.txt`.
struct Refused {
    text: String,
    /// `None` for any.
    code: Option<String>,
    tool: &'static str,
    args: Value,
}

impl Refused {
    fn of(row: String) -> Self {
        let (first, rest) = row.split_once(' ').unwrap();
        let rest = rest.trim_start();
        let (tool, code, what) = match first {
            "write" | "read" => {
                let (code, path) = rest.split_once(' ').unwrap();
                (
                    if first == "write" { "write_file" } else { "read_file" },
                    code,
                    path.trim_start(),
                )
            }
            code => ("run_shell_command", code, rest),
        };
        let args = match tool {
            "write_file" => json!({ "file_path": what, "content": "x\n" }),
            "read_file" => json!({ "file_path": what }),
            _ => json!({ "command": what }),
        };
        Self {
            code: (code != "-").then(|| code.to_owned()),
            tool,
            args,
            text: row.clone(),
        }
    }

    /// Whether only the kernel sees what it would do.
    fn at_run(&self) -> bool {
        self.code.as_deref() == Some("at_run")
    }
}

fn refused(policy: &str) -> Vec<Refused> {
    rows(policy, "refused.txt").into_iter().map(Refused::of).collect()
}

/// The policy's repository with two commits, and a file of secrets.
fn repository(policy: &str) -> World {
    let world = World::new();
    let own = dir(policy).join("repo");
    let from = if own.is_dir() { own } else { dir("look").join("repo") };
    copy(&from, &world.ws());
    let ignored = world.ws().join("gitignore");
    if ignored.exists() {
        // A real `.gitignore` in the fixture would keep files of it out of this project.
        std::fs::rename(ignored, world.ws().join(".gitignore")).unwrap();
    }
    let readme = world.read("README.md");
    world.file("README.md", "# Soon\n");
    world.git(&["init", "-q", "-b", "main"]);
    world.commit("first");
    world.file("README.md", readme);
    world.commit("second");
    world.file(".env", "KEY=sesame\n");
    world
}

fn copy(from: &Path, to: &Path) {
    let done = Command::new("cp")
        .args(["-rH", "-T", "--"])
        .arg(from)
        .arg(to)
        .status()
        .unwrap();
    assert!(done.success(), "{} could not be copied", from.display());
}

/// What only has to have the right name to be ruled on.
fn name_tools(world: &World) {
    for tool in ["eslint", "jest", "mocha", "prettier", "tsc", "tsx", "vitest"] {
        world.file(&format!("node_modules/.bin/{tool}"), "#!/usr/bin/env node\n");
    }
    world.file("node_modules/typescript/package.json", "{}\n");
    for tool in ["python", "pytest", "ruff", "activate"] {
        world.file(&format!(".venv/bin/{tool}"), "\n");
    }
    world.file(".venv/pyvenv.cfg", "home = /usr/bin\n");
}

/// The rulings of a policy on calls, through `policy explain`.
fn rulings(world: &World, policy: &str, calls: &[(&str, Value)]) -> Vec<Value> {
    let lines: Vec<String> = calls
        .iter()
        .map(|(tool, args)| json!({ "tool": tool, "args": args }).to_string())
        .collect();
    let name = format!("builtin:{policy}");
    let given = world.beside("calls.jsonl", lines.join("\n"));
    let done = world.call(&["policy", "explain", &name, "--calls", &given]).exits(0);
    done.stdout
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect()
}

#[test]
fn every_row_is_ruled_as_it_says() {
    let mut wrong = Vec::new();
    let mut counts = Vec::new();
    for policy in POLICIES {
        let world = repository(policy);
        name_tools(&world);
        match policy {
            // What is in the tree says which toolchains they are for.
            "mixed" => {
                for file in ["Cargo.toml", "web/package.json", "tools/pyproject.toml"] {
                    world.file(file, "");
                }
            }
            "build" => {
                world.file("Cargo.toml", "");
            }
            _ => {}
        }
        let (good, bad) = (allowed(policy), refused(policy));
        assert!(good.len() >= ALLOWED, "{policy} has only {} daily commands", good.len());
        assert!(bad.len() >= REFUSED, "{policy} has only {} refused calls", bad.len());
        let only = ruled_only(policy);
        counts.push(format!("{policy} {} and {}", good.len() + only.len(), bad.len()));
        let mut calls: Vec<(&str, Value)> = good
            .iter()
            .map(|(command, _)| command)
            .chain(&only)
            .map(|command| ("run_shell_command", json!({ "command": command })))
            .collect();
        calls.extend(bad.iter().map(|row| (row.tool, row.args.clone())));
        let ruled = rulings(&world, policy, &calls);
        assert_eq!(ruled.len(), calls.len());
        for (command, ruling) in good.iter().map(|(command, _)| command).chain(&only).zip(&ruled) {
            if ruling["decision"] != "allow" && ruling["decision"] != "at_exec" {
                wrong.push(format!(
                    "{policy}: `{command}` is daily work: {} {}",
                    ruling["code"], ruling["reason"]
                ));
            }
        }
        for (row, ruling) in bad.iter().zip(&ruled[good.len() + only.len()..]) {
            let code = ruling["code"].as_str().unwrap_or_default();
            let right = match &row.code {
                _ if row.at_run() => ruling["decision"] == "allow" || ruling["decision"] == "at_exec",
                None => ruling["decision"] == "deny",
                Some(wanted) => ruling["decision"] == "deny" && code.split(':').next() == Some(wanted),
            };
            if !right {
                wrong.push(format!(
                    "{policy}: refused `{}`: {} {code} {}",
                    row.text, ruling["decision"], ruling["reason"]
                ));
            }
        }
    }
    say(&format!(
        "daily commands and refused calls that were ruled: {}",
        counts.join(", ")
    ));
    assert!(
        wrong.is_empty(),
        "{} rows are not ruled as they say:\n{}",
        wrong.len(),
        wrong.join("\n")
    );
}

/// Something for the reader of the test's output.
fn say(text: &str) {
    let mut err = std::io::stderr().lock();
    let _ = std::io::Write::write_fmt(&mut err, format_args!("{text}\n"));
}

/// Programs of rows that a machine may lack. Elsewhere a program that is not found is a row that went wrong.
const EXTRA: [&str; 6] = ["file", "hexdump", "jq", "rg", "tree", "xxd"];

/// Whether a row starts a program of [`EXTRA`] that is not on this machine.
fn lacks(command: &str) -> bool {
    let words = || command.split(|c: char| !c.is_ascii_alphanumeric() && c != '-' && c != '.' && c != '/');
    let there = |name: &&&str| Path::new("/usr/bin").join(name).exists() || Path::new("/bin").join(name).exists();
    EXTRA
        .iter()
        .filter(|name| !there(name))
        .any(|name| words().any(|word| word == *name))
}

/// How one call of a run ended.
#[derive(Default, Debug)]
struct Ended {
    denied: bool,
    exit: Option<i64>,
    text: String,
}

/// Runs calls under a policy, all in one run, and says how each ended.
fn run(world: &World, policy: &str, calls: &[(&str, Value)]) -> Vec<Ended> {
    // Several replies, so that the turns of a run are as they are in practice.
    let mut replies: Vec<Value> = calls
        .chunks(25)
        .map(|chunk| {
            let calls: Vec<Value> = chunk
                .iter()
                .map(|(tool, args)| json!({ "tool": tool, "args": args }))
                .collect();
            json!({ "calls": calls })
        })
        .collect();
    replies.push(says("done"));
    let model = format!("script:{}", world.beside("shipped.json", script(&replies)));
    let name = format!("builtin:{policy}");
    let out = world.out().to_string_lossy().into_owned();
    let _ = std::fs::remove_dir_all(world.out());
    let done = world.call(&[
        "run",
        "-p",
        "daily work",
        "--model",
        &model,
        "--policy",
        &name,
        "--out",
        &out,
    ]);
    let journal = std::fs::read_to_string(world.out().join("journal.jsonl"))
        .unwrap_or_else(|error| panic!("{error}: exit code {}\n{}", done.code, done.stderr));
    let mut ended: BTreeMap<usize, Ended> = BTreeMap::new();
    for line in journal.lines() {
        let event = &serde_json::from_str::<Value>(line).unwrap()["entry"];
        let number = |event: &Value| {
            event["call"]
                .as_str()
                .and_then(|call| call.trim_start_matches('c').parse::<usize>().ok())
        };
        let Some(call) = number(event).filter(|call| *call > 0) else {
            continue;
        };
        let entry = ended.entry(call - 1).or_default();
        match event["event"].as_str() {
            Some("decided") => entry.denied |= event["ruling"]["decision"] == "deny",
            Some("executed") => {
                entry.denied |= event["execs"]
                    .as_array()
                    .is_some_and(|execs| execs.iter().any(|exec| exec["denied"].is_object()))
            }
            Some("call_finished") => {
                entry.exit = event["output"]["exit"]["code"].as_i64();
                entry.text = event["output"]["content"][0]["text"]
                    .as_str()
                    .unwrap_or_default()
                    .to_owned();
                entry.denied |= event["output"]["error"]["kind"] == "denied";
            }
            _ => {}
        }
    }
    assert_eq!(
        ended.len(),
        calls.len(),
        "not every call ended: exit code {}\n{}",
        done.code,
        tail(&done.stderr, 2000)
    );
    ended.into_values().collect()
}

fn tail(text: &str, most: usize) -> String {
    let all: Vec<char> = text.chars().collect();
    all[all.len().saturating_sub(most)..].iter().collect()
}

/// Runs both tables of a policy.
fn whole(policy: &str, world: World) {
    let rows = allowed(policy);
    let calls: Vec<(&str, Value)> = rows
        .iter()
        .map(|(command, _)| ("run_shell_command", json!({ "command": command })))
        .collect();
    let began = std::time::Instant::now();
    let ended = run(&world, policy, &calls);
    let mut wrong = Vec::new();
    let mut missing = 0;
    for ((command, code), end) in rows.iter().zip(&ended) {
        if !end.denied && lacks(command) && end.text.contains("not found") {
            missing += 1;
        } else if end.denied || end.exit != Some(*code) {
            let how = if end.denied {
                "denied".to_owned()
            } else {
                format!("exit code {:?}, not {code}", end.exit)
            };
            wrong.push(format!(
                "`{command}`: {how}\n        {}",
                tail(&end.text, 400).replace('\n', "\n        ")
            ));
        }
    }
    let took = began.elapsed();
    refusals(policy, &mut wrong);
    say(&format!(
        "{policy}: {} daily commands were run in {:.1} s ({missing} need a program that is not on this machine), {} refused calls tried",
        rows.len() - missing,
        took.as_secs_f64(),
        refused(policy).len()
    ));
    assert!(
        wrong.is_empty(),
        "{policy}: {} rows did not go as they say:\n{}",
        wrong.len(),
        wrong.join("\n")
    );
}

/// Tries what must not pass, and looks whether anything came of it.
fn refusals(policy: &str, wrong: &mut Vec<String>) {
    let world = repository(policy);
    name_tools(&world);
    let rows = refused(policy);
    let calls: Vec<(&str, Value)> = rows.iter().map(|row| (row.tool, row.args.clone())).collect();
    let before = tree(world.path());
    let ended = run(&world, policy, &calls);
    let mut after = tree(world.path());
    after.retain(|path, _| {
        !path.starts_with("out/") && path != "shipped.json" && !path.starts_with("home/.local/state/")
    });
    for (row, end) in rows.iter().zip(&ended) {
        let harmless = row.at_run() && end.exit != Some(0);
        if !end.denied && !harmless {
            wrong.push(format!(
                "refused `{}`: exit code {:?}\n        {}",
                row.text,
                end.exit,
                tail(&end.text, 400)
            ));
        }
        if end.text.contains("sesame") {
            wrong.push(format!("refused `{}` showed a secret", row.text));
        }
    }
    let changed: Vec<&String> = after
        .iter()
        .filter(|(path, text)| before.get(*path) != Some(text))
        .map(|(path, _)| path)
        .chain(before.keys().filter(|path| !after.contains_key(*path)))
        .collect();
    if !changed.is_empty() {
        wrong.push(format!("refused calls changed {changed:?}"));
    }
}

/// Every file below a directory with its content; links with where they lead.
fn tree(root: &Path) -> BTreeMap<String, Vec<u8>> {
    let mut found = BTreeMap::new();
    let mut left = vec![root.to_path_buf()];
    while let Some(dir) = left.pop() {
        for entry in std::fs::read_dir(dir).unwrap() {
            let path = entry.unwrap().path();
            let name = path.strip_prefix(root).unwrap().to_string_lossy().into_owned();
            let kind = path.symlink_metadata().unwrap().file_type();
            // The lock of the caches is ours.
            if name.starts_with("home/.cache/overnight/") && name.ends_with("/lock") {
                continue;
            }
            if kind.is_dir() {
                left.push(path);
            } else if kind.is_symlink() {
                found.insert(
                    name,
                    std::fs::read_link(path)
                        .unwrap()
                        .to_string_lossy()
                        .into_owned()
                        .into_bytes(),
                );
            } else {
                found.insert(name, std::fs::read(path).unwrap_or_default());
            }
        }
    }
    found
}

/// Whether a command succeeds in a directory.
fn succeeds(dir: &Path, program: &str, args: &[&str]) -> bool {
    let output = Command::new(program).args(args).current_dir(dir).output();
    output.is_ok_and(|output| output.status.success())
}

/// What `.ci/run` installs for these tables; `None` where it is not there and may be missing.
fn installed(what: &str) -> Option<PathBuf> {
    let root = std::env::var_os("OVERNIGHT_DAILY").map_or_else(|| project().join("target/ci/daily"), PathBuf::from);
    let dir = root.join(what);
    have(&format!("{} (see .ci/run)", dir.display()), dir.is_dir()).then_some(dir)
}

#[test]
fn look_runs_whole() {
    whole("look", repository("look"));
}

#[test]
fn rust_runs_whole() {
    if have("cargo clippy", succeeds(project(), "cargo", &["clippy", "--version"])) {
        whole("rust", repository("rust"));
    }
}

#[test]
fn node_runs_whole() {
    if !have("node", succeeds(project(), "node", &["--version"])) {
        return;
    }
    let Some(modules) = installed("node/node_modules") else {
        return;
    };
    let world = repository("node");
    copy(&modules, &world.ws().join("node_modules"));
    whole("node", world);
}

#[test]
fn python_runs_whole() {
    if !have("python3", succeeds(project(), "python3", &["--version"])) {
        return;
    }
    let Some(wheels) = installed("wheels") else { return };
    let world = repository("python");
    let wheels = wheels.to_string_lossy().into_owned();
    assert!(succeeds(
        &world.ws(),
        "python3",
        &["-m", "venv", "--without-pip", ".venv"]
    ));
    let tools = ["pip", "pytest", "ruff", "mypy", "black", "isort"];
    let mut install = vec![
        "-m",
        "pip",
        "--quiet",
        "--python",
        ".venv/bin/python",
        "install",
        "--no-index",
        "--no-compile",
    ];
    install.extend(["--find-links", &wheels]);
    install.extend(tools);
    assert!(succeeds(&world.ws(), "python3", &install));
    // As a developer's shell has it: the environment is active.
    let bin = world.ws().join(".venv/bin");
    let path = format!("{}:{}", bin.display(), std::env::var("PATH").unwrap());
    let active = world.ws().join(".venv").to_string_lossy().into_owned();
    let world = world.env("PATH", path).env("VIRTUAL_ENV", active);
    // Toolchains are the machine's, as in `harness`: the environment may be one of a Python that pyenv made.
    let home = PathBuf::from(std::env::var_os("HOME").unwrap());
    let pyenv = std::env::var_os("PYENV_ROOT").map_or_else(|| home.join(".pyenv"), PathBuf::from);
    let world = world.env("PYENV_ROOT", pyenv.to_string_lossy().into_owned());
    whole("python", world);
}

/// Runs the tables of a toolchain that may be missing on any machine.
fn where_present(policy: &str, ready: bool) {
    let what = format!(
        "what {} daily commands of {policy} need without a network",
        allowed(policy).len()
    );
    if have_optional(&what, ready) {
        whole(policy, repository(policy));
    }
}

#[test]
fn go_runs_where_it_is() {
    where_present("go", succeeds(project(), "go", &["version"]));
}

#[test]
fn java_runs_where_it_is() {
    let ready = dir("java").join("repo");
    where_present(
        "java",
        succeeds(project(), "gradle", &["--version"]) && succeeds(&ready, "mvn", &["-o", "-q", "test"]),
    );
}
