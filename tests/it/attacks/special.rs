//! Attacks that need more than data: forged records, text that a CI system obeys, and very large writes.

use super::super::gemini::{self, Gemini};
use super::super::harness::{Done, calls, says, script, shell};
use super::ground::{Ground, User, differing, level_found, users};
use overnight::base::ids::sha256_hex;
use serde_json::{Value, json};
use std::path::Path;

/// Every user and level that can be had.
fn modes() -> Vec<(User, &'static str)> {
    users()
        .into_iter()
        .flat_map(|user| ["full", "landlock"].map(|level| (user, level)))
        .filter(|(user, level)| level_found(level, *user))
        .collect()
}

fn policy(level: &str) -> String {
    format!(
        "version: 1\nextends: [builtin:edit]\nrules:\n  - {{ allow: run_shell_command, commands: [cat, echo] }}\n  \
         - {{ suspend: run_shell_command, commands: [tee], id: ask }}\nsandbox: {{ level: {level}, toolchains: [python] }}\n"
    )
}

/// A run in this mode: `(ground, what it gave)`.
fn begun(user: User, level: &str, replies: &[Value], more: &[&str], env: &[(String, String)]) -> (Ground, Done) {
    let ground = Ground::new(user);
    ground.file("a.txt", "one\n");
    ground.hand_over();
    ground.prepare("git init -q -b main; git add -A; git commit -q -m base");
    let policy = ground.given("policy.yaml", &policy(level));
    let model = format!("script:{}", ground.given("script.yaml", &script(replies)));
    let out = ground.out().to_string_lossy().into_owned();
    let mut args = vec!["run", "-p", "x", "--policy", &policy, "--model", &model, "--out", &out];
    args.extend(more);
    let done = ground.run(&args, env, None);
    (ground, done)
}

/// The entries of a journal, as they are written.
fn entries(path: &Path) -> Vec<String> {
    let text = std::fs::read_to_string(path).unwrap();
    text.lines()
        .map(|line| {
            let line: &str = line.strip_suffix('}').unwrap();
            line.split_once("\"entry\":").unwrap().1.to_owned()
        })
        .collect()
}

/// Writes a journal of these entries with a chain that fits them, as somebody without a key can. Returns the chain's head.
fn forge(path: &Path, entries: &[String]) -> String {
    let (mut text, mut chain) = (String::new(), String::new());
    for entry in entries {
        chain = sha256_hex(&[chain.as_bytes(), entry.as_bytes()]);
        text.push_str(&format!("{{\"chain\":\"{chain}\",\"entry\":{entry}}}\n"));
    }
    std::fs::write(path, text).unwrap();
    chain
}

fn verify(ground: &Ground) -> i32 {
    let out = ground.out().to_string_lossy().into_owned();
    ground.run(&["runs", "verify", &out], &[], None).code
}

/// The chain's formula is the one that the program uses, or forging would show nothing.
fn reforged_alike(ground: &Ground) {
    let path = ground.out().join("journal.jsonl");
    let before = std::fs::read_to_string(&path).unwrap();
    forge(&path, &entries(&path));
    assert_eq!(
        before,
        std::fs::read_to_string(&path).unwrap(),
        "the chain is made otherwise"
    );
}

const ASKED: &str = "tee out.txt < a.txt";

fn suspended(user: User, level: &str) -> (Ground, String) {
    let replies = [shell("cat a.txt"), shell(ASKED), says("done")];
    let (ground, done) = begun(user, level, &replies, &["--format", "json"], &[]);
    assert_eq!(done.code, 5, "{}", done.stderr);
    let call = done.json()["suspended"][0]["call"].as_str().unwrap().to_owned();
    (ground, call)
}

/// What an attacker changes in each entry of a suspended run.
type Change = (&'static str, fn(&Ground, &str) -> String);

const CHANGES: [Change; 7] = [
    ("the command", |ground, entry| {
        entry.replace(ASKED, &ground.filled("@CANARY@; tee @OUTSIDE@/new < a.txt"))
    }),
    ("the command and the level", |ground, entry| {
        loose(&entry.replace(ASKED, &ground.filled("@CANARY@; tee @OUTSIDE@/new < a.txt")))
    }),
    ("the operand", |_, entry| entry.replace("tee out.txt", "tee .envrc")),
    ("another directory", |ground, entry| {
        entry.replace(ASKED, &ground.filled("tee @OUTSIDE@/new < a.txt"))
    }),
    ("the policy", |_, entry| {
        loose(
            &entry
                .replace("suspend: run_shell_command", "allow: run_shell_command")
                .replace("commands: [tee]", "commands: [sh]"),
        )
    }),
    ("the workspace", |ground, entry| {
        entry.replace(&*ground.ws().to_string_lossy(), &ground.at("outside").to_string_lossy())
    }),
    ("the ruling", |ground, entry| {
        entry
            .replace("\"suspend\"", "\"allow\"")
            .replace(ASKED, &ground.filled("@CANARY@; tee @OUTSIDE@/new"))
    }),
];

fn loose(entry: &str) -> String {
    entry
        .replace("\"full\"", "\"none\"")
        .replace("\"landlock\"", "\"none\"")
        .replace("level: full", "level: none")
        .replace("level: landlock", "level: none")
}

#[test]
fn a_forged_record_runs_nothing_that_was_not_approved() {
    let mut wrong = Vec::new();
    for (user, level) in modes() {
        for (name, change) in CHANGES {
            for more in ["", "result", "policy"] {
                let (ground, call) = suspended(user, level);
                let path = ground.out().join("journal.jsonl");
                let old = entries(&path);
                let new: Vec<String> = old.iter().map(|entry| change(&ground, entry)).collect();
                assert!(old != new, "{name} changes nothing");
                let head = forge(&path, &new);
                if more == "result" {
                    tie(&ground.out(), &head, new.len());
                }
                ground.rung();
                let (outside, tree) = (ground.outside(), ground.tree());
                let out = ground.out().to_string_lossy().into_owned();
                let given = ground.at("in/policy.yaml").to_string_lossy().into_owned();
                let mut args = vec!["resume", &out, "--approve", &call];
                if more == "policy" {
                    args.extend(["--policy", &given]);
                }
                let verified = verify(&ground);
                let done = ground.run(&args, &[], None);
                let mut found = Vec::new();
                if verified == 0 {
                    found.push("`runs verify` found nothing".to_owned());
                }
                found.extend(
                    differing(&outside, &ground.outside())
                        .into_iter()
                        .map(|path| format!("EFFECT outside: {path}")),
                );
                found.extend(
                    differing(&tree, &ground.tree())
                        .into_iter()
                        .map(|path| format!("EFFECT changed: {path}")),
                );
                found.extend(ground.rung().into_iter().map(|ran| format!("EFFECT ran: {ran:?}")));
                if !found.is_empty() {
                    wrong.push(format!("{name} {more} {level} {user:?}: code {} {found:?}", done.code));
                }
            }
        }
    }
    assert!(
        wrong.is_empty(),
        "{} forgeries worked\n{}",
        wrong.len(),
        wrong.join("\n")
    );
}

/// Makes `result.json` fit a forged journal, as far as it can be made to.
fn tie(out: &Path, head: &str, events: usize) {
    let path = out.join("result.json");
    let mut result: Value = serde_json::from_str(&std::fs::read_to_string(&path).unwrap()).unwrap();
    if result["journal"].is_object() {
        result["journal"]["head"] = json!(head);
        result["journal"]["events"] = json!(events);
    }
    std::fs::write(path, result.to_string()).unwrap();
}

#[test]
fn an_approved_call_runs_and_an_untouched_record_verifies() {
    for (user, level) in modes() {
        let (ground, call) = suspended(user, level);
        reforged_alike(&ground);
        assert_eq!(verify(&ground), 0, "{level} {user:?}");
        let out = ground.out().to_string_lossy().into_owned();
        let given = ground.at("in/policy.yaml").to_string_lossy().into_owned();
        // The policy's own rule asks for `tee`; what it writes is the edit preset's to allow.
        let done = ground.run(&["resume", &out, "--approve", &call, "--policy", &given], &[], None);
        assert_eq!(done.code, 0, "{level} {user:?}: {}", done.stderr);
        assert_eq!(std::fs::read_to_string(ground.ws().join("out.txt")).unwrap(), "one\n");
        assert_eq!(verify(&ground), 0, "{level} {user:?}");
    }
}

#[test]
fn a_cut_or_altered_record_is_found() {
    let mut wrong = Vec::new();
    for (user, level) in modes() {
        let big = "x".repeat(200_000);
        let edit = calls(
            "write_file",
            json!({"file_path": "b.txt", "content": format!("{big}\n")}),
        );
        let replies = [edit, shell("cat b.txt"), shell("echo two > a.txt"), says("done")];
        let (ground, done) = begun(user, level, &replies, &[], &[]);
        assert_eq!(done.code, 0, "{}", done.stderr);
        assert_eq!(verify(&ground), 0, "{level} {user:?}: the untouched run");
        let path = ground.out().join("journal.jsonl");
        let whole = std::fs::read_to_string(&path).unwrap();
        let old = entries(&path);
        for keep in [1, 2, old.len() / 3, old.len() / 2, old.len() - 2, old.len() - 1] {
            forge(&path, &old[..keep]);
            if verify(&ground) == 0 {
                wrong.push(format!("{level} {user:?}: cut from {} to {keep} events", old.len()));
            }
        }
        forge(&path, &[&old[..2], &old[3..]].concat());
        if verify(&ground) == 0 {
            wrong.push(format!("{level} {user:?}: an event taken out"));
        }
        let renamed: Vec<String> = old.iter().map(|entry| entry.replace("done", "fine")).collect();
        forge(&path, &renamed);
        if verify(&ground) == 0 {
            wrong.push(format!("{level} {user:?}: the answer changed in the journal"));
        }
        std::fs::write(&path, &whole).unwrap();
        let mut files = vec![
            "changes.patch",
            "transcript.json",
            "result.json",
            "junit.xml",
            "report.html",
            "summary.md",
        ]
        .into_iter()
        .map(|name| ground.out().join(name))
        .collect::<Vec<_>>();
        let blobs = std::fs::read_dir(ground.out().join("blobs"))
            .into_iter()
            .flatten()
            .flatten();
        files.extend(blobs.map(|entry| entry.path()).filter(|path| path.is_file()).take(3));
        assert!(files.len() > 6, "the run left no blob");
        for file in files {
            let bytes = std::fs::read(&file).unwrap();
            let mut other = bytes.clone();
            let at = other.len() / 2;
            other[at] ^= 1;
            let longer = [bytes.as_slice(), b"\n"].concat();
            for (what, changed) in [
                ("altered", Some(other)),
                ("emptied", Some(Vec::new())),
                ("longer", Some(longer)),
                ("missing", None),
            ] {
                match changed {
                    Some(changed) => std::fs::write(&file, changed).unwrap(),
                    None => std::fs::remove_file(&file).unwrap(),
                }
                if verify(&ground) == 0 {
                    wrong.push(format!(
                        "{level} {user:?}: {} {what}",
                        file.file_name().unwrap().to_string_lossy()
                    ));
                }
                std::fs::write(&file, &bytes).unwrap();
            }
        }
        assert_eq!(verify(&ground), 0, "{level} {user:?}: the run as it was");
    }
    assert!(
        wrong.is_empty(),
        "{} changes were not found\n{}",
        wrong.len(),
        wrong.join("\n")
    );
}

/// Texts that a CI system takes for commands when they stand in a log.
const ORDERS: [&str; 14] = [
    "::set-output name=x::y",
    "::add-mask::a",
    "::stop-commands::t",
    "::error file=a,line=1::evil",
    "  ::set-env name=PATH::evil",
    "\t::add-path::evil",
    "text\r::set-output name=x::y",
    "##[set-output name=x;]y",
    "some text ##[add-path]evil",
    "##vso[task.setvariable variable=x]y",
    "and ##vso[task.prependpath]evil",
    "##teamcity[buildStatus status='SUCCESS']",
    "section_start:1700000000:evil[collapsed=true]\r",
    "\u{feff}::save-state name=x::y",
];

/// Whether a line of a log would be obeyed, as the runners of these systems read lines.
fn obeyed(system: &str, line: &str) -> bool {
    let start = line.trim_start_matches(|c: char| c.is_whitespace() || c == '\u{feff}');
    match system {
        "GITHUB_ACTIONS" => start.starts_with("::") && start[2..].contains("::") || line.contains("##["),
        "TF_BUILD" => line.contains("##vso[") || start.starts_with("##["),
        "TEAMCITY_VERSION" => line.contains("##teamcity["),
        "GITLAB_CI" => line.contains("section_start:") || line.contains("section_end:"),
        _ => false,
    }
}

#[test]
fn text_on_stdout_and_stderr_gives_a_ci_system_no_orders() {
    let text = format!("{}\nend \u{1b}]0;title\u{7} \u{1b}[2J \u{8}\u{8}", ORDERS.join("\n"));
    let mut wrong = Vec::new();
    for user in users() {
        for system in ["GITHUB_ACTIONS", "TF_BUILD", "TEAMCITY_VERSION", "GITLAB_CI"] {
            let env = [(system.to_owned(), "true".to_owned())];
            for more in [&[][..], &["-v"][..]] {
                let replies = [shell(&format!("echo '{}'", ORDERS[0])), says(&text)];
                let (_, done) = begun(user, "full", &replies, more, &env);
                assert!(done.stdout.contains("end "), "the answer came: {}", done.stderr);
                for (stream, all) in [("stdout", &done.stdout), ("stderr", &done.stderr)] {
                    for line in all.split(['\n', '\r']) {
                        if obeyed(system, line) {
                            wrong.push(format!("{system} {stream} {user:?}: {line:?}"));
                        }
                        let control = |c: char| matches!(c, '\u{1b}' | '\u{7}' | '\u{8}' | '\u{80}'..='\u{9f}');
                        if line.contains(control) {
                            wrong.push(format!("{system} {stream} {user:?}: control characters in {line:?}"));
                        }
                    }
                }
            }
        }
    }
    wrong.dedup();
    assert!(
        wrong.is_empty(),
        "{} lines are obeyed\n{}",
        wrong.len(),
        wrong.join("\n")
    );
}

#[test]
fn text_that_a_program_reads_is_untouched() {
    let text = ORDERS.join("\n");
    for user in users() {
        let env = [("GITHUB_ACTIONS".to_owned(), "true".to_owned())];
        let (_, done) = begun(user, "full", &[says(&text)], &["--format", "json"], &env);
        assert_eq!(done.json()["response"], json!(text));
        let (ground, _) = begun(user, "full", &[says("x")], &[], &[]);
        let file = ground.at("tmp/answer");
        let out = ground.at("run/second").to_string_lossy().into_owned();
        let model = format!("script:{}", ground.given("script.yaml", &script(&[says(&text)])));
        let quoted = format!("exec \"$0\" \"$@\" > {}", file.display());
        let policy = ground.at("in/policy.yaml").to_string_lossy().into_owned();
        let status = ground
            .command(Path::new("/bin/sh"))
            .args(["-c", &quoted])
            .arg(super::ground::program())
            .args(["run", "-p", "x", "--policy", &policy, "--model", &model, "--out", &out])
            .env("GITHUB_ACTIONS", "true")
            .stderr(std::process::Stdio::null())
            .status()
            .unwrap();
        assert!(status.success());
        assert_eq!(std::fs::read_to_string(&file).unwrap().trim_end(), text.trim_end());
    }
}

#[test]
fn a_very_large_write_is_refused_and_a_large_one_is_not() {
    // The limit is one of the tool, which no level and no user changes.
    for (user, level) in modes().into_iter().take(1) {
        let line = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcde\n";
        // A script is smaller than such a reply: a service sends it.
        let write = |path: &str, size: usize| {
            gemini::calls(
                "write_file",
                &json!({"file_path": path, "content": line.repeat(size / line.len())}),
            )
        };
        let service = Gemini::new(vec![
            write("huge.txt", 9_000_000),
            write("large.txt", 1_000_000),
            gemini::says("done"),
        ]);
        let ground = Ground::new(user);
        ground.file("a.txt", "one\n");
        ground.hand_over();
        ground.prepare("git init -q -b main; git add -A; git commit -q -m base");
        let policy = ground.given("policy.yaml", &policy(level));
        let out = ground.out().to_string_lossy().into_owned();
        let args = ["run", "-p", "x", "--policy", &policy, "--out", &out];
        let args = [args.as_slice(), &gemini::flags(&service)].concat();
        let env = [("GEMINI_API_KEY".to_owned(), "key-of-the-test".to_owned())];
        let done = ground.run(&args, &env, None);
        assert_eq!(
            (done.code, service.seen().len()),
            (0, 3),
            "{level} {user:?}: {}",
            done.stderr
        );
        let refused = service.seen()[1].body.to_string();
        assert!(
            refused.contains("huge.txt") && refused.contains("8"),
            "{level} {user:?}: the model is told of the limit"
        );
        assert!(
            std::fs::metadata(ground.ws().join("large.txt")).is_ok_and(|data| data.len() >= 999_000),
            "{level} {user:?}: {}",
            done.stderr
        );
        assert!(
            !ground.ws().join("huge.txt").exists(),
            "{level} {user:?}: 20 MB were written"
        );
    }
}
