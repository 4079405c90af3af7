//! The corpora of commands judged by what they do. An attack that the policy's reading of its text does not refuse runs for real and
//! may have no harmful effect; an everyday command runs to its end with the status that it has without a sandbox.
//!
//! Here a part of each corpus runs, the same on every machine; with `OVERNIGHT_CORPORA=all` everything does, with another text
//! what holds it.

use super::attacks::bells::Kind;
use super::attacks::ground::{Ground, User, differing, level_found};
use super::attacks::table::{globs, installed};
use super::harness::project;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

/// One command of a corpus and its policy.
struct Row<'a> {
    policy: &'a Value,
    command: String,
}

fn corpus(name: &str) -> Value {
    let path = project().join("fixtures/policy/commands").join(name);
    let options = serde_saphyr::options! { budget: None };
    serde_saphyr::from_str_with_options(&std::fs::read_to_string(path).unwrap(), options).unwrap()
}

fn rows(corpus: &Value) -> Vec<Row<'_>> {
    let list = |value: &'_ Value| value.as_array().cloned().unwrap_or_default();
    let policies = corpus["policies"].as_array().unwrap();
    list(&corpus["cases"])
        .iter()
        .flat_map(|case| {
            let policy = policies.iter().find(|policy| policy["name"] == case["policy"]).unwrap();
            list(&case["commands"]).into_iter().map(move |command| Row {
                policy,
                command: command.as_str().unwrap().to_owned(),
            })
        })
        .collect()
}

fn strings(value: &Value) -> Vec<String> {
    value
        .as_array()
        .into_iter()
        .flatten()
        .map(|text| text.as_str().unwrap().to_owned())
        .collect()
}

/// A policy of a corpus as a policy file.
fn policy_of(policy: &Value, level: &str) -> String {
    let mut all = json!({ "id": "commands", "allow": "run_shell_command" });
    if policy["commands"].is_array() {
        all["commands"] = policy["commands"].clone();
    }
    let mut rules = vec![all];
    if policy["deny"].is_array() {
        rules.push(json!({ "id": "deny", "deny": "run_shell_command", "commands": policy["deny"] }));
    }
    for (key, rule, list) in [("write", "write_file", "paths"), ("hosts", "web_fetch", "hosts")] {
        if !strings(&policy[key]).is_empty() {
            rules.push(json!({ "id": key, "allow": rule, list: policy[key] }));
        }
    }
    json!({ "version": 1, "rules": rules, "sandbox": { "level": level, "toolchains": ["python"] } }).to_string()
}

/// Every so many rows, all when that is asked for, or those that hold a text.
fn sampled(rows: Vec<Row<'_>>, every: usize) -> Vec<Row<'_>> {
    match std::env::var("OVERNIGHT_CORPORA").ok().as_deref() {
        Some("all") => rows,
        Some(part) => rows.into_iter().filter(|row| row.command.contains(part)).collect(),
        // A step that is no multiple of anything meets every class.
        None => rows.into_iter().step_by(every).collect(),
    }
}

/// Names that the shell itself knows or that only start what is judged on its own.
const NOT_JUDGED: [&str; 46] = [
    "bash", "sh", "env", "xargs", "timeout", "nice", "nohup", "time", "command", "builtin", "exec", "eval", "source",
    "if", "then", "else", "elif", "fi", "for", "in", "do", "done", "while", "until", "case", "esac", "select",
    "function", "true", "false", "test", "echo", "printf", "cd", "pwd", "set", "export", "read", "type", "exit",
    "kill", "wait", "trap", "let", "local", "declare",
];

fn words(text: &str) -> BTreeSet<String> {
    text.split(|c: char| !(c.is_ascii_alphanumeric() || "_-+.".contains(c)))
        .filter(|word| word.starts_with(|c: char| c.is_ascii_alphabetic()) && word.len() < 40)
        .filter(|word| !NOT_JUDGED.contains(word))
        .map(str::to_owned)
        .collect()
}

/// First words of what a policy allows.
fn programs(list: &Value) -> BTreeSet<String> {
    strings(list)
        .iter()
        .map(|entry| entry.split(' ').next().unwrap_or_default().to_owned())
        .collect()
}

/// The tree that the corpora speak of, a repository with some history.
pub fn furnish(ground: &Ground) {
    furnish_with(ground, "");
}

/// The same with a link in the repository that leads outside.
fn furnish_for_attacks(ground: &Ground) {
    furnish_with(ground, "ln -s /etc link; ");
}

fn furnish_with(ground: &Ground, first: &str) {
    for (path, text) in [
        ("README.md", "# readme\nfoo\nit's\n"),
        (
            "Cargo.toml",
            "[package]\nname = \"x\"\nversion = \"0.1.0\"\n[dependencies]\n",
        ),
        ("Cargo.lock", "version = 3\n"),
        (
            "package.json",
            "{\"name\":\"x\",\"version\":\"1.0.0\",\"scripts\":{\"test\":\"true\",\"build\":\"true\",\"lint\":\"true\",\"check\":\"true\",\"format\":\"true\",\"typecheck\":\"true\",\"test:unit\":\"true\",\"env\":\"x\"},\"dependencies\":{\"a\":\"2\"}}\n",
        ),
        ("tsconfig.json", "{}\n"),
        ("Makefile", "all test build lint:\n\t@true\n"),
        ("gradlew", "#!/bin/sh\nexit 0\n"),
        ("src/lib.rs", "fn foo() {}\n// bar\nfn main() {}\n"),
        ("src/main.rs", "fn main() {\n    foo();\n}\n"),
        ("src/a.txt", "a\n"),
        ("src/b.txt", "b\n"),
        ("src/list.txt", "a:1\nb:2\na:1\n"),
        ("docs/guide.md", "guide\n"),
        (
            "sub/package.json",
            "{\"name\":\"y\",\"version\":\"1.0.0\",\"scripts\":{\"test\":\"true\",\"build\":\"true\"}}\n",
        ),
        ("sub/Makefile", "all test:\n\t@true\n"),
        ("tests/test_a.py", "def test_b():\n    pass\n"),
        ("scripts/check.sh", "#!/bin/sh\nexit 0\n"),
        ("scripts/lint.sh", "#!/bin/sh\nexit 0\n"),
        (".gitignore", "target/\n*.log\n.env\n"),
        (".github/workflows/ci.yml", "on: push\n"),
        ("list", "README.md\n"),
    ] {
        ground.file(path, text);
    }
    ground.hand_over();
    let all = "chmod +x gradlew scripts/*.sh; git init -q -b main; git add -A; git commit -q -m one; \
         echo two >> README.md; git commit -q -am two; echo three >> src/lib.rs; git commit -q -am three; git tag v1; \
         git init -q --bare @OUTSIDE@/origin.git; git remote add origin @OUTSIDE@/origin.git; git push -q origin main; git fetch -q; \
         git config user.name a; git config user.email a@example.org; \
         echo stashed > src/a.txt; git stash -q; git branch feature HEAD~1; \
         mkdir -p target/debug build; echo app > target/debug/app; echo error > build.log; echo KEY=the-value-of-the-key > .env; \
         echo changed >> docs/guide.md";
    ground.prepare(&format!("{first}{all}"));
}

/// What the policies say of each text, in one call for each policy; by the number of the row.
fn decisions(rows: &[Row<'_>]) -> Vec<String> {
    let mut found = vec![String::new(); rows.len()];
    let mut by_policy: BTreeMap<String, Vec<usize>> = BTreeMap::new();
    for (n, row) in rows.iter().enumerate() {
        by_policy.entry(row.policy["name"].to_string()).or_default().push(n);
    }
    for numbers in by_policy.values() {
        let ground = Ground::new(User::Root);
        furnish_for_attacks(&ground);
        let policy = ground.given("policy.yaml", &policy_of(rows[numbers[0]].policy, "full"));
        let calls: String = numbers
            .iter()
            .map(|n| json!({"tool": "run_shell_command", "args": {"command": rows[*n].command}}).to_string() + "\n")
            .collect();
        let done = ground.run(&["policy", "explain", &policy, "--calls", "-"], &[], Some(&calls));
        let lines: Vec<&str> = done.stdout.lines().collect();
        assert_eq!(lines.len(), numbers.len(), "{}", done.stderr);
        for (n, line) in numbers.iter().zip(lines) {
            let ruling: Value = serde_json::from_str(line).unwrap();
            found[*n] = ruling["decision"].as_str().unwrap().to_owned();
        }
    }
    found
}

/// Paths that nobody may make, beside those that are there.
fn protected(path: &str) -> bool {
    let last = path.rsplit('/').next().unwrap_or_default();
    path.split('/').any(|part| part == ".git") && !path.ends_with("FETCH_HEAD") && !path.ends_with("ORIG_HEAD")
        || path.starts_with(".github/workflows")
        || [
            ".bashrc",
            ".envrc",
            ".npmrc",
            ".gitattributes",
            ".bash_profile",
            ".profile",
        ]
        .contains(&last)
}

/// Runs one attack and tells what harm it did.
fn harm(row: &Row<'_>, level: &str, user: User) -> Vec<String> {
    harm_under(row, &policy_of(row.policy, level), user)
}

fn harm_under(row: &Row<'_>, policy: &str, user: User) -> Vec<String> {
    let ground = Ground::new(user);
    let granted = programs(&row.policy["commands"]);
    {
        let bells = ground.bells.lock().unwrap();
        if granted.is_empty() {
            let denied: Vec<String> = strings(&row.policy["deny"])
                .into_iter()
                .filter(|entry| !entry.contains(' '))
                .collect();
            bells.stub(Kind::Plain, denied.iter().map(String::as_str));
        } else {
            let named = words(&row.command);
            bells.stub(
                Kind::Plain,
                named.iter().filter(|word| !granted.contains(*word)).map(String::as_str),
            );
            bells.stub(
                Kind::Evil,
                named
                    .iter()
                    .filter(|word| granted.contains(*word) && !installed(word))
                    .map(String::as_str),
            );
        }
    }
    furnish_for_attacks(&ground);
    let policy = ground.given("policy.yaml", policy);
    let replies = super::harness::script(&[super::harness::shell(&row.command), super::harness::says("done")]);
    let model = format!("script:{}", ground.given("script.yaml", &replies));
    let out = ground.out().to_string_lossy().into_owned();
    ground.rung();
    let (outside, tree) = (ground.outside(), ground.tree());
    let done = ground.run(
        &["run", "-p", "x", "--policy", &policy, "--model", &model, "--out", &out],
        &[],
        None,
    );
    let mut found = Vec::new();
    found.extend(
        differing(&outside, &ground.outside())
            .into_iter()
            .map(|path| format!("outside: {path}")),
    );
    for ran in ground.rung() {
        if !granted.contains(&ran.program) {
            found.push(format!("ran: {} {:?}", ran.program, ran.args));
        }
    }
    let may = globs(&strings(&row.policy["write"]));
    let patch = std::fs::read_to_string(ground.out().join("changes.patch")).unwrap_or_default();
    for path in differing(&tree, &ground.tree()) {
        let known = tree.get(&path).is_some_and(|what| !what.starts_with("dir"));
        if (known && !may.is_match(&path) || protected(&path)) && !path.starts_with("target/") {
            found.push(format!("changed: {path}"));
        }
    }
    for line in patch.lines().filter_map(|line| line.strip_prefix("diff --git a/")) {
        let path = line.split(" b/").next().unwrap_or_default();
        if !may.is_match(path) {
            found.push(format!("in the patch: {path}"));
        }
    }
    let texts = ground.texts() + &done.stdout + &done.stderr;
    for secret in [super::attacks::ground::SECRET, "the-value-of-the-key"] {
        if texts.contains(secret) {
            found.push(format!("read: {secret}"));
        }
    }
    if matches!(done.code, 2 | 3 | 8 | 70) || done.code < 0 {
        found.push(format!("the run broke: {} {}", done.code, done.stderr));
    }
    found
}

fn harmless(name: &str, every: usize, least: usize) {
    let corpus = corpus(name);
    let all = rows(&corpus);
    assert!(all.len() >= least, "{} rows", all.len());
    let decided = decisions(&all);
    let total = all.len();
    let open: Vec<Row<'_>> = all
        .into_iter()
        .zip(decided)
        .filter(|(_, decision)| decision != "deny" && decision != "suspend")
        .map(|(row, _)| row)
        .collect();
    let refused = total - open.len();
    let mut wrong = Vec::new();
    let mut ran = 0;
    for row in sampled(open, every) {
        for level in ["full", "landlock"] {
            for user in super::attacks::ground::users() {
                if !level_found(level, user) {
                    continue;
                }
                ran += 1;
                let found = harm(&row, level, user);
                if !found.is_empty() {
                    wrong.push(format!("{:?} {level} {user:?}: {}", row.command, found.join(" | ")));
                }
            }
        }
    }
    let mut err = std::io::stderr().lock();
    let _ = std::io::Write::write_fmt(
        &mut err,
        format_args!("{name}: {total} attacks, {refused} refused by their text, {ran} runs of the others\n"),
    );
    assert!(wrong.is_empty(), "{} runs did harm\n{}", wrong.len(), wrong.join("\n"));
}

#[test]
fn attacks_do_no_harm() {
    harmless("attacks.yaml", 7, 1000);
}

#[test]
fn attacks_by_program_do_no_harm() {
    harmless("attacks-by-program.yaml", 13, 2000);
}

/// The same judgement on commands that nothing confines: it must see each.
#[test]
fn harm_is_seen() {
    let policy = json!({ "name": "all", "deny": ["curl"], "write": ["src/**"] });
    let open = policy_of(&policy, "none").replace(
        "\"id\":\"commands\"",
        "\"args\":\"any\",\"commands\":[\"python3\"],\"id\":\"commands\"",
    );
    let user = super::attacks::ground::users()[0];
    let mut blind = Vec::new();
    for code in [
        "os.system('cu' + 'rl x')",
        "open('../outside/new', 'w')",
        "print(open('.env').read())",
        "print(open('../outside/x').read())",
        "os.utime('../outside/x', (1, 1))",
    ] {
        let command = format!("python3 -c \"import os; {code}\"");
        let row = Row {
            policy: &policy,
            command,
        };
        if harm_under(&row, &open, user).is_empty() {
            blind.push(code);
        }
    }
    assert!(blind.is_empty(), "no harm was seen in {blind:?}");
}

/// Programs that need a network, or differ so much from machine to machine that their status says nothing here.
const STUBBED: [&str; 12] = [
    "curl", "gh", "cargo", "go", "mvn", "gradle", "pnpm", "yarn", "rustc", "rustfmt", "wget", "man",
];

/// Commands of other programs that need one.
const NETWORKED: [&str; 4] = ["npm install", "npm view", "npm audit", "pip list --outdated"];

/// What went wrong with an everyday command; `None` when it ran to its end as it does without a sandbox.
fn refused(row: &Row<'_>, levels: &[&str], user: User) -> Vec<String> {
    let ground = Ground::new(user);
    {
        let bells = ground.bells.lock().unwrap();
        let granted = programs(&row.policy["commands"]);
        let named = words(&row.command);
        let networked = NETWORKED.iter().find(|start| row.command.contains(*start));
        let absent = |word: &str| {
            let by_command = networked.is_some_and(|start| start.split(' ').next() == Some(word));
            !installed(word) || STUBBED.contains(&word) || by_command
        };
        let stubs = named
            .iter()
            .filter(|word| (granted.contains(*word) || granted.is_empty()) && absent(word));
        bells.stub(Kind::Plain, stubs.map(String::as_str));
    }
    furnish(&ground);
    let mut wrong = Vec::new();
    ground.prepare("for d in plain full landlock; do cp -a @WS@ @WS@/../tmp/$d; done");
    let wanted = ground
        .command(Path::new("/bin/bash"))
        .args(["-c", &row.command])
        .current_dir(ground.at("tmp/plain"))
        .env("GIT_CONFIG_NOSYSTEM", "1")
        .output()
        .unwrap();
    for level in levels {
        let policy = ground.given("policy.yaml", &policy_of(row.policy, level));
        let args = json!({ "command": row.command }).to_string();
        let at = ground.at("tmp").join(level).to_string_lossy().into_owned();
        let call = [
            "tools",
            "call",
            "run_shell_command",
            "--args",
            &args,
            "--policy",
            &policy,
            "--workspace",
            &at,
            "--format",
            "json",
        ];
        let done = ground.run(&call, &[], None);
        let Ok(answer) = serde_json::from_str::<Value>(&done.stdout) else {
            wrong.push(format!("{level}: {} {}", done.code, done.stderr));
            continue;
        };
        let summary = answer["summary"].as_str().unwrap_or_default();
        let status = summary
            .strip_prefix("exit code ")
            .and_then(|rest| rest.split(',').next()?.parse::<i32>().ok());
        if answer["status"] != "success" {
            let text = |key: &str| answer[key].as_str().unwrap_or_default().to_owned();
            let reason = match text("reason") {
                reason if text("decision") == "deny" => reason,
                _ => answer["error"]["message"].as_str().unwrap_or_default().to_owned(),
            };
            wrong.push(format!("{level}: {} {}: {reason:.200}", text("decision"), text("code")));
        } else if status != wanted.status.code() {
            let said = answer["content"].to_string();
            wrong.push(format!(
                "{level}: {summary}, not {:?}: {said:.200}",
                wanted.status.code()
            ));
        }
    }
    wrong
}

/// The everyday commands of a corpus that do not end as without a sandbox, and whether that is so on every machine.
fn defended(name: &str) -> BTreeMap<String, bool> {
    let all = corpus("refused-by-effect.yaml");
    let list = all[name].as_array().unwrap();
    list.iter()
        .map(|entry| {
            let text = |key: &str| entry[key].as_str().unwrap().to_owned();
            assert!(!text("because").is_empty());
            (text("command"), entry["only_on_some_machines"] != true)
        })
        .collect()
}

fn everyday(name: &str, every: usize, least: usize) {
    let corpus = corpus(name);
    let all = rows(&corpus);
    assert!(all.len() >= least, "{} rows", all.len());
    let defended = defended(name);
    assert!(
        defended.len() * 100 <= all.len(),
        "more than one in a hundred is refused"
    );
    let known = |command: &String| all.iter().any(|row| row.command == *command);
    let gone: Vec<&String> = defended.keys().filter(|command| !known(command)).collect();
    assert!(gone.is_empty(), "listed, and in the corpus no more: {gone:?}");
    let user = super::attacks::ground::users()[0];
    let levels: Vec<&str> = ["full", "landlock"]
        .into_iter()
        .filter(|level| level_found(level, user))
        .collect();
    if levels.is_empty() {
        return;
    }
    let rows = sampled(all, every);
    let total = rows.len();
    let (next, wrong) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    // Most of a row is waiting for processes.
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                while let Some(row) = rows.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let found = refused(row, &levels, user);
                    let right = match defended.get(&row.command) {
                        None => found.is_empty(),
                        Some(always) => !always || !found.is_empty(),
                    };
                    if !right {
                        wrong
                            .lock()
                            .unwrap()
                            .push(format!("{:?}: {}", row.command, found.join(" | ")));
                    }
                }
            });
        }
    });
    let mut wrong = wrong.into_inner().unwrap();
    wrong.sort();
    let text = format!(
        "{name}: {} of {total} everyday commands did not end as they must; {} of the corpus are refused and defended\n{}\n",
        wrong.len(),
        defended.len(),
        wrong.join("\n")
    );
    let mut err = std::io::stderr().lock();
    let _ = std::io::Write::write_all(&mut err, text.as_bytes());
    drop(err);
    assert!(wrong.is_empty(), "{text}");
}

#[test]
fn everyday_commands_run_to_their_end() {
    everyday("benign.yaml", 13, 500);
}

#[test]
fn everyday_commands_by_program_run_to_their_end() {
    everyday("benign-by-program.yaml", 17, 700);
}
