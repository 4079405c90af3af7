//! Secrets of the environment that turn up in what a run reads: none may be found in anything that the run puts out.

use super::gemini::{self, Gemini};
use super::harness::{World, git_in, have, open_policy, says, script, shell, writes};
use super::service::{Answer, Service};
use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, STANDARD_NO_PAD, URL_SAFE};
use serde_json::{Value, json};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::process::Command;

const CANARIES: usize = 20;

fn canary(nth: usize) -> String {
    format!("cAnArY{nth:02}+value/{:08x}~z", nth * 0x0123_4567 + 0x1357)
}

fn each(value: &str, one: fn(u8) -> String) -> String {
    value.bytes().map(one).collect()
}

/// Base64 of the value behind `before` bytes of other text, without the characters that the other text decides.
fn shifted(value: &str, before: usize) -> String {
    let text = STANDARD_NO_PAD.encode(format!("{}{value}~~~", "~".repeat(before)));
    let whole = (before + value.len()) * 8 / 6;
    text[before + 1..whole].to_owned()
}

fn encodings(value: &str) -> [String; 19] {
    [
        value.to_owned(),
        STANDARD.encode(value),
        STANDARD_NO_PAD.encode(value),
        URL_SAFE.encode(value),
        shifted(value, 1),
        shifted(value, 2),
        each(value, |byte| format!("{byte:02x}")),
        each(value, |byte| format!("{byte:02X}")),
        each(value, |byte| format!("%{byte:02X}")),
        value.replace('+', "%2B").replace('/', "%2F"),
        value.replace('+', "%2b"),
        value.replace('/', "&#47;"),
        each(value, |byte| format!("\\u{byte:04x}")),
        value.chars().rev().collect(),
        // Some characters are encoded as codes, in JSON within JSON.
        value.replace('+', "\\\\u002b").replace('0', "\\\\u0030"),
        each(value, |byte| format!("{byte}, ")),
        // UTF-16 in base64, as for PowerShell, and the output of `xxd`.
        STANDARD.encode(value.encode_utf16().flat_map(u16::to_le_bytes).collect::<Vec<u8>>()),
        STANDARD.encode(each(value, |byte| format!("{byte:02x}"))),
        value
            .as_bytes()
            .chunks(2)
            .map(|word| word.iter().map(|byte| format!("{byte:02x}")).collect::<String>() + " ")
            .collect(),
    ]
}

fn world() -> World {
    let mut world = World::repo(&[("README.md", "# R\n")]);
    for nth in 0..CANARIES {
        world = world.env(&format!("CANARY_{nth}_TOKEN"), canary(nth));
        let text: String = encodings(&canary(nth))
            .iter()
            .map(|text| format!("x {text} y\n"))
            .collect();
        world.file(&format!("notes/{nth}.txt"), text);
    }
    world.commit("notes");
    world
}

fn files(dir: &Path, found: &mut Vec<Vec<u8>>) {
    for entry in std::fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            files(&path, found);
        } else {
            found.push(std::fs::read(&path).unwrap());
        }
    }
}

const POLICY: &str = "
version: 1
extends: [builtin:edit]
rules:
  - { allow: run_shell_command, commands: [cat] }
";

#[test]
fn no_output_holds_a_canary_in_any_encoding() {
    let world = world();
    let reads = (0..CANARIES).map(|nth| {
        let name = format!("notes/{nth}.txt");
        let shell = json!({"tool": "run_shell_command", "args": {"command": format!("cat {name}")}});
        json!({"calls": [{"tool": "read_file", "args": {"file_path": name}}, shell]})
    });
    let replies: Vec<Value> = reads
        .chain([json!({"text": format!("It was {}.", canary(3))})])
        .collect();
    let script = json!({ "replies": replies }).to_string();
    let done = world
        .run(&script, POLICY, &["-p", "Read.", "--format", "stream-json", "-v"])
        .exits(0);

    // The repository's own objects hold what was committed; they are no output.
    let mut outputs = vec![done.stdout.into_bytes(), done.stderr.into_bytes()];
    for entry in std::fs::read_dir(world.out()).unwrap() {
        let path = entry.unwrap().path();
        match path.is_dir() {
            true if path.ends_with("git") => {}
            true => files(&path, &mut outputs),
            false => outputs.push(std::fs::read(&path).unwrap()),
        }
    }
    assert!(outputs.len() > 5, "{}", outputs.len());
    let texts: Vec<_> = outputs.iter().map(|bytes| String::from_utf8_lossy(bytes)).collect();
    assert!(
        texts.iter().any(|text| text.contains("notes/7.txt")),
        "the run shows what it read"
    );
    for nth in 0..CANARIES {
        for (kind, text) in encodings(&canary(nth)).iter().enumerate() {
            assert!(
                !texts.iter().any(|output| output.contains(text.as_str())),
                "canary {nth}, encoding {kind}"
            );
        }
    }
}

/// Variables with structured values, of which some parts are secret and others are not.
const STRUCTURED: [(&str, &str, &[&str], &[&str]); 6] = [
    (
        "AZURE_CREDENTIALS",
        r#"{"clientId":"11111111-2222-3333-4444-555555555555","clientSecret":"Qx8~part-of-azure","tenantId":"tenant-of-words"}"#,
        &["Qx8~part-of-azure"],
        &["tenant-of-words"],
    ),
    (
        // `builder:part-of-docker`
        "DOCKER_AUTH_CONFIG",
        r#"{"auths":{"registry.example.org":{"auth":"YnVpbGRlcjpwYXJ0LW9mLWRvY2tlcg=="}}}"#,
        &["part-of-docker", "YnVpbGRlcjpwYXJ0LW9mLWRvY2tlcg=="],
        &["registry.example.org"],
    ),
    (
        "AZURE_STORAGE_CONNECTION_STRING",
        "DefaultEndpointsProtocol=https;AccountName=account-of-words;AccountKey=cGFydC1vZi1zdG9yYWdl",
        &["cGFydC1vZi1zdG9yYWdl"],
        &["account-of-words"],
    ),
    (
        "SLACK_WEBHOOK_URL",
        "https://hooks.example.org/services/T00000000/B00000000/abcdEFGH1234ijklMNOP5678",
        &["abcdEFGH1234ijklMNOP5678"],
        &["https://hooks.example.org"],
    ),
    (
        "SERVICE_URL",
        "jdbc:postgresql://db.example.org/x?user=user-of-words&password=part-of-jdbc",
        &["part-of-jdbc"],
        &["db.example.org", "user-of-words"],
    ),
    (
        "OTEL_EXPORTER_OTLP_HEADERS",
        "authorization=Bearer%20part-of-headers,x-dataset=dataset-of-words",
        &["part-of-headers"],
        &["dataset-of-words"],
    ),
];

#[test]
fn parts_of_structured_secrets_are_redacted() {
    let mut world = World::repo(&[("README.md", "# R\n")]);
    let (mut secret, mut public) = (Vec::new(), Vec::new());
    for (name, value, secrets, others) in STRUCTURED {
        world = world.env(name, value);
        secret.extend(secrets);
        public.extend(others);
    }
    let lines: Vec<&str> = secret.iter().chain(&public).copied().collect();
    world.file("notes.txt", lines.join("\n"));
    let script = json!({ "replies": [
        { "calls": [{ "tool": "read_file", "args": { "file_path": "notes.txt" } }] },
        { "text": "Read." },
    ] });
    world.run(&script.to_string(), POLICY, &["-p", "Read."]).exits(0);
    let text = std::fs::read_to_string(world.out().join("transcript.json")).unwrap();
    for part in secret {
        assert!(!text.contains(part), "{part}");
    }
    for part in public {
        assert!(text.contains(part), "{part} is no secret");
    }
}

#[test]
fn a_secret_in_a_call_is_denied_and_ends_the_run() {
    let world = world();
    let args = json!({"file_path": "out.txt", "content": encodings(&canary(5))[1]});
    let script = json!({"replies": [{"calls": [{"tool": "write_file", "args": args}]}, {"text": "done"}]}).to_string();
    world.run(&script, POLICY, &["-p", "Write.", "--quiet"]).exits(4);
    let result = world.result();
    assert_eq!(result["denied"][0]["code"], "secret_hit", "{result}");
    assert!(!world.ws().join("out.txt").exists());
}

#[test]
fn the_model_is_sent_no_secret_from_context_prompt_or_tools() {
    let (key, value) = ("k-0123456789", canary(8));
    let service = Gemini::new(vec![gemini::says("fine")]);
    let world = World::repo(&[("AGENTS.md", &format!("Log in with {value}.\n"))])
        .env("DEPLOY_TOKEN", &value)
        .env("GEMINI_API_KEY", key);
    let listed = json!([{"name": "log_in", "description": format!("with {value}"),
        "parameters": {"type": "object", "properties": {"as": {"type": "string", "description": encodings(&value)[1]}}}}]);
    world.file("list.json", listed.to_string());
    let recipe = world.beside(
        "recipe.yaml",
        "version: 1
name: r
parameters: [{ name: with, type: string }]
context: [AGENTS.md]
tools: { discovery: { command: cat list.json, call: cat } }
steps: [{ id: one, prompt: 'Use {{ with }}.' }]
",
    );
    let with = format!("with={value}");
    let policy = world.beside(
        "policy.yaml",
        "version: 1\nextends: [builtin:read-only]\nrules: [{ allow: 'origin:discovered' }]\nsandbox: { level: none }\n",
    );
    world
        .call(&[
            "run",
            &recipe,
            "--param",
            &with,
            "--policy",
            &policy,
            "--model",
            "gemini/gemini-2.5-pro",
            "--base-url",
            &service.url,
            "--quiet",
        ])
        .exits(0);
    let seen = service.seen();
    let body = seen[0].body.to_string();
    for part in [
        "Log in with [redacted:DEPLOY_TOKEN]",
        "Use [redacted:DEPLOY_TOKEN]",
        "log_in",
    ] {
        assert!(body.contains(part), "{part}: {body}");
    }
    for text in encodings(&value) {
        assert!(!body.contains(text.as_str()), "{text} in {body}");
    }
}

#[test]
fn what_is_printed_holds_no_secret() {
    let value = canary(3);
    let number = "20417735";
    let world = World::repo(&[("README.md", "# R\n")])
        .env("DEPLOY_TOKEN", &value)
        .env("PIN_SECRET", number);
    let printed = |args: &[&str]| {
        let done = world.call(args);
        for text in encodings(&value) {
            assert!(
                !done.stdout.contains(&text),
                "{args:?}: {text} on stdout: {}",
                done.stdout
            );
            assert!(
                !done.stderr.contains(&text),
                "{args:?}: {text} on stderr: {}",
                done.stderr
            );
        }
        done
    };
    let missing = format!("recipes/{value}.yaml");
    let refused = printed(&["recipe", "check", &missing]);
    assert!(refused.stderr.contains("[redacted:DEPLOY_TOKEN]"), "{}", refused.stderr);
    let command = format!("echo {value} {number}");
    let told = printed(&["policy", "explain", "builtin:read-only", "--command", &command]);
    assert!(told.stdout.contains("[redacted:DEPLOY_TOKEN]"), "{}", told.stdout);
    let told = printed(&[
        "policy",
        "explain",
        "builtin:read-only",
        "--command",
        &command,
        "--format",
        "json",
    ]);
    let parsed: Value = serde_json::from_str(told.stdout.trim()).unwrap();
    assert!(parsed.to_string().contains("[redacted:PIN_SECRET]"), "{parsed}");
    let told = printed(&[
        "run",
        "--dry-run",
        "-p",
        &format!("Use {value}."),
        "--model",
        "gemini/gemini-2.5-pro",
    ]);
    assert!(
        told.stdout.contains("[redacted:DEPLOY_TOKEN]"),
        "{}{}",
        told.stdout,
        told.stderr
    );
}

/// A service that repeats the key of the request in its error, so that the key stands across the place where the error is
/// cut.
#[test]
fn a_key_across_the_cut_of_an_error_is_not_put_out() {
    let key = canary(7);
    let part = &key[..key.len() - 1];
    let json = json!({ "error": { "message": format!("{}{key} and more", "y".repeat(2_000 - part.len())) } });
    let plain = format!("{}{key} and more", "y".repeat(200 - part.len()));
    for body in [json.to_string(), plain] {
        let service = Service::new(vec![Answer::Status(400, Vec::new(), body)]);
        let world = World::repo(&[]).env("OPENAI_API_KEY", &key);
        let out = world.out().to_string_lossy().into_owned();
        let model = ["--model", "openai/gpt-5", "--base-url", &service.url];
        let done = world.call(&[&["run", "-p", "go", "--out", &out][..], &model].concat());
        assert_eq!(done.code, 7, "{}", done.stderr);
        let mut outputs = vec![done.stdout.into_bytes(), done.stderr.into_bytes()];
        files(&world.out(), &mut outputs);
        let told = outputs.iter().map(|output| String::from_utf8_lossy(output));
        let told = told.collect::<Vec<_>>().join("\n");
        assert!(told.contains("yyyy") && told.contains("HTTP 400"), "{told}");
        assert!(!told.contains(&key[..8]), "{told}");
    }
}

/// Everything in the store of a run.
fn stored(world: &World) -> String {
    let mut git = Command::new("git");
    git.arg("--git-dir").arg(world.out().join("git"));
    git.args(["cat-file", "--batch-all-objects", "--batch"]);
    let printed = git.output().unwrap();
    assert!(printed.status.success(), "{}", String::from_utf8_lossy(&printed.stderr));
    String::from_utf8_lossy(&printed.stdout).into_owned()
}

/// Untracked files with secrets are put back and compared like others, but the run directory, which is handed on, has only
/// their ids.
#[test]
fn the_store_of_a_run_holds_no_file_with_a_secret() {
    let token = "tok_Zb83kQ0vNm51xT";
    let world = World::repo(&[("a.txt", "one\n")]).env("NPM_TOKEN", token);
    world.file(".npmrc", format!("//registry/:_authToken={token}\n"));
    world.file("notes.txt", format!("the token is {token}\n"));
    world.file("sa.pem", "-----BEGIN the private key\n");
    world.file("gha-creds-0123456789abcdef.json", "{\"token\": \"of the cloud\"}\n");
    world.file("plain.txt", "nothing secret\n");
    let recipe = "version: 1\nname: r\nsteps:\n  - id: one\n    prompt: do it\n    checks:\n      - { name: spoils, run: \"echo \
                  spoilt > sa.pem; echo spoilt > notes.txt.new; test -e a.txt\" }\n";
    let policy = "version: 1\nextends: [builtin:edit]\nrules:\n  - { suspend: write_file, paths: [b.txt] }\nsandbox: { level: none }\n";
    let write = |path: &str| json!({"tool": "write_file", "args": {"file_path": path, "content": "two\n"}});
    let replies = script(&[json!({"calls": [write("a.txt"), write("b.txt")]}), says("done")]);
    world.recipe(recipe, &replies, policy, &[]).exits(5);
    let secrets = [token, "the private key", "of the cloud"];
    let free_of_secrets = |when: &str| {
        let all = stored(&world);
        assert!(all.contains("nothing secret"), "{when}: the control is there");
        for secret in secrets {
            assert!(!all.contains(secret), "{when}: {secret}");
        }
    };
    free_of_secrets("suspended");
    let kept = world.path().join("home/.local/state/overnight/contents");
    assert_eq!(std::fs::read_dir(&kept).unwrap().count(), 1, "for the resume");

    let out = world.out().to_string_lossy().into_owned();
    world.call(&["resume", &out, "--approve", "c2"]).exits(0);
    assert_eq!(world.read("sa.pem"), "-----BEGIN the private key\n", "put back");
    assert_eq!(world.read("b.txt"), "two\n");
    free_of_secrets("ended");
    assert_eq!(std::fs::read_dir(&kept).unwrap().count(), 0, "no longer needed");
    let patch = std::fs::read_to_string(world.out().join("changes.patch")).unwrap();
    assert!(patch.contains("b/a.txt") && !patch.contains("sa.pem"), "{patch}");
}

/// Where the contents are gone, as on another machine, they are taken from the tree; what is missing there is named.
#[test]
fn a_resume_without_the_contents_of_secret_files_takes_them_from_the_tree() {
    let recipe = "version: 1\nname: r\nsteps:\n  - id: one\n    prompt: do it\n    checks:\n      - { name: spoils, run: \"echo \
                  spoilt > sa.pem\" }\n";
    let policy = "version: 1\nextends: [builtin:edit]\nrules:\n  - { suspend: write_file, paths: [b.txt] }\nsandbox: { level: none }\n";
    for there in [true, false] {
        let world = World::repo(&[("a.txt", "one\n")]);
        world.file("sa.pem", "-----BEGIN the private key\n");
        let write = |path: &str| json!({"tool": "write_file", "args": {"file_path": path, "content": "two\n"}});
        let replies = script(&[json!({"calls": [write("a.txt"), write("b.txt")]}), says("done")]);
        world.recipe(recipe, &replies, policy, &[]).exits(5);
        std::fs::remove_dir_all(world.path().join("home/.local/state/overnight/contents")).unwrap();
        let out = world.out().to_string_lossy().into_owned();
        let resume = ["resume", &out, "--approve", "c2"];
        if there {
            world.call(&resume).exits(0);
            assert_eq!(world.read("sa.pem"), "-----BEGIN the private key\n", "put back");
        } else {
            std::fs::write(world.ws().join("sa.pem"), "of this machine\n").unwrap();
            let told = world.call(&resume).exits(8).stderr;
            assert!(
                told.contains("neither as the run left it") && told.contains("sa.pem"),
                "{told}"
            );
        }
    }
}

/// What a run of these commands at level `full` recorded; `None` if that level is not available here.
fn recorded_at_full(world: &World, recipe: &str, commands: &[&str], more: &[&str]) -> Option<String> {
    let replies: Vec<_> = commands
        .iter()
        .map(|command| shell(command))
        .chain([says("done")])
        .collect();
    let policy = "version: 1\nextends: [builtin:edit, builtin:look]\nrules:\n  - { allow: run_shell_command, commands: [python3], \
                  args: any }\nsandbox: { level: full }\n";
    let done = world.recipe(recipe, &script(&replies), policy, more);
    if !have("sandbox level full", !done.stderr.contains("is not available here")) {
        return None;
    }
    let journal = std::fs::read_to_string(world.out().join("journal.jsonl")).unwrap();
    Some(format!("{}{}{journal}", done.stdout, done.stderr))
}

/// Files that git tracks are hidden from commands, and git takes them as unchanged: it prints none of their lines as
/// removed, and records none as empty.
#[test]
fn git_takes_hidden_files_as_unchanged() {
    let world = World::repo(&[
        ("a.txt", "one\n"),
        ("keys/server.pem", "TRACKEDKEYLINE\n"),
        (".envrc", "TRACKEDENVLINE\n"),
        ("docs/priv/x.txt", "DENIEDLINE\n"),
    ]);
    // Git also removes its own marks in a sparse checkout. One file is in no commit.
    git_in(&world.ws(), &["sparse-checkout", "set", "--no-cone", "/*"]);
    world.file("keys/new [1].pem", "NEWKEYLINE\n");
    let hidden = ["keys/server.pem", ".envrc", "docs/priv/x.txt", "keys/new [1].pem"];
    let run = |script: &str, rules: &str, checks: &str| {
        let policy = format!(
            "version: 1\nextends: [builtin:edit, builtin:look]\nsandbox: {{ level: full }}\nrules:\n  - {{ deny: \"*\", paths: \
             [\"docs/priv/**\"] }}\n{rules}"
        );
        let recipe = format!("version: 1\nname: r\nsteps:\n  - {{ id: look, prompt: go{checks} }}\n");
        let _ = std::fs::remove_dir_all(world.out());
        let done = world.recipe(&recipe, script, &policy, &[]);
        let is_there = have("sandbox level full", !done.stderr.contains("is not available here"));
        is_there.then(|| {
            let journal = std::fs::read_to_string(world.out().join("journal.jsonl")).unwrap();
            (done.code, format!("{}{}{journal}", done.stdout, done.stderr))
        })
    };
    let looks = script(&[
        shell("git status --short; echo status-ended"),
        shell("git diff; git diff HEAD; echo diff-ended"),
        says("done"),
    ]);
    let checks = ", checks: [{ name: clean, run: git diff --exit-code HEAD }]";
    let Some((code, recorded)) = run(&looks, "", checks) else {
        return;
    };
    assert_eq!(code, 0, "{recorded}");
    for secret in ["TRACKEDKEYLINE", "TRACKEDENVLINE", "DENIEDLINE", "NEWKEYLINE", " M "] {
        assert!(!recorded.contains(secret), "{secret}: {recorded}");
    }
    assert!(
        recorded.contains("diff-ended") && recorded.contains("status-ended"),
        "{recorded}"
    );
    // What writes the repository keeps the files as they were, and the honest change is in the commit.
    let commits = script(&[
        writes("a.txt", "two\n"),
        shell("git commit -qam work"),
        writes("b.txt", "new\n"),
        shell("git add -A; git commit -qm more"),
        says("done"),
    ]);
    let rules = "  - { allow: run_shell_command, commands: [git add, git commit], paths: [\".git/**\"] }\n";
    let author = [["config", "user.name", "t"], ["config", "user.email", "t@example.org"]];
    author.iter().for_each(|args| drop(git_in(&world.ws(), args)));
    let (code, recorded) = run(&commits, rules, "").unwrap();
    assert_eq!(code, 0, "{recorded}");
    let told = |args: &[&str]| git_in(&world.ws(), args);
    let changed = ["HEAD~1", "HEAD"].map(|commit| told(&["show", "--format=", "--name-only", commit]));
    assert_eq!(changed, ["a.txt\n", "b.txt\n"], "{recorded}");
    let marks = told(&["ls-files", "-v"]);
    assert!(marks.lines().all(|line| line.starts_with("H ")), "{marks}");
    for name in hidden {
        assert!(world.read(name).contains("LINE"), "{name}");
    }
}

/// A hidden file that git does not track is in no commit, whatever the ignore files say. Git would record it as empty.
#[test]
fn git_records_no_hidden_file_as_empty() {
    let world = World::repo(&[("a.txt", "one\n"), ("b/.env", "")]);
    world.file(".npmrc", "_authToken=NPMLINE\n");
    world.file(".env", "");
    world.file("new.txt", "new\n");
    let author = [["config", "user.name", "t"], ["config", "user.email", "t@example.org"]];
    author.iter().for_each(|args| drop(git_in(&world.ws(), args)));
    let policy = "version: 1\nextends: [builtin:edit, builtin:look]\nsandbox: { level: full }\nrules:\n  - { allow: \
                  run_shell_command, commands: [git add, git commit], paths: [\".git/**\"] }\n";
    let recipe = "version: 1\nname: r\nsteps:\n  - { id: work, prompt: go }\n";
    let run = |commands: &[&str]| {
        let calls = commands.iter().map(|command| shell(command));
        let all: Vec<_> = calls.chain([says("done")]).collect();
        let _ = std::fs::remove_dir_all(world.out());
        let done = world.recipe(recipe, &script(&all), policy, &[]);
        let is_there = have("sandbox level full", !done.stderr.contains("is not available here"));
        is_there.then(|| {
            let journal = std::fs::read_to_string(world.out().join("journal.jsonl")).unwrap();
            (done.code, format!("{}{}{journal}", done.stdout, done.stderr))
        })
    };
    let files = || git_in(&world.ws(), &["ls-tree", "-r", "--name-only", "HEAD"]);
    // Without the file in which the patterns of hidden files would be.
    std::fs::remove_dir_all(world.ws().join(".git/info")).unwrap();
    let Some((code, recorded)) = run(&["git add -A && git commit -qm first"]) else {
        return;
    };
    assert_eq!(code, 0, "{recorded}");
    assert_eq!(files(), "a.txt\nb/.env\nnew.txt\n", "{recorded}");
    assert!(!world.ws().join(".git/info").exists());
    // An ignore file of the tree outranks these patterns: then it is taken out again, and the call is denied. A file that
    // is empty may be added.
    world.file(".gitignore", "!.npmrc\n!.env\n");
    let (_, recorded) = run(&["git add -A", "git commit -qm second"]).unwrap();
    assert!(recorded.contains("denied (secret_like_path)"), "{recorded}");
    assert_eq!(files(), ".env\n.gitignore\na.txt\nb/.env\nnew.txt\n", "{recorded}");
    // What is in a commit already ends the run with what to do.
    let (code, recorded) = run(&["git add -f -A && git commit -qm third"]).unwrap();
    assert_eq!(code, 4, "{recorded}");
    assert!(
        recorded.contains("secret_like_path") && recorded.contains("git reset --soft HEAD~1"),
        "{recorded}"
    );
    assert_eq!(world.read(".npmrc"), "_authToken=NPMLINE\n");
}

/// A killed run leaves its marks in the index, with which git overlooks changes of these files; the next run removes them.
#[test]
fn marks_of_a_killed_run_are_removed_by_the_next() {
    let world = World::repo(&[("a.txt", "one\n"), ("keys/server.pem", "TRACKEDKEYLINE\n")]);
    let policy = "version: 1\nextends: [builtin:look]\nsandbox: { level: full }\nrules:\n  - { allow: run_shell_command, \
                  commands: [git add], paths: [\".git/**\"] }\n  - { allow: run_shell_command, commands: [sleep] }\n";
    world.file("new.txt", "new\n");
    let model = world.beside("slow.json", script(&[shell("git add -A && sleep 30"), says("done")]));
    let (model, rules) = (format!("script:{model}"), world.beside("slow.yaml", policy));
    let out = world.path().join("slow").display().to_string();
    let mut killed = world.command(&["run", "--model", &model, "--policy", &rules, "--out", &out, "-p", "x"]);
    killed
        .stdout(std::process::Stdio::null())
        .stderr(std::process::Stdio::null());
    let mut killed = killed.spawn().unwrap();
    let marks = || git_in(&world.ws(), &["ls-files", "-t"]);
    // Git has written the index, and has no lock on it any more.
    while marks() != "H a.txt\nS keys/server.pem\nH new.txt\n" {
        if killed.try_wait().unwrap().is_some() {
            have("sandbox level full", false);
            return;
        }
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    killed.kill().unwrap();
    killed.wait().unwrap();
    let done = world.run(
        &script(&[shell("git status --short"), says("done")]),
        policy,
        &["-p", "x"],
    );
    assert_eq!(marks(), "H a.txt\nH keys/server.pem\nH new.txt\n", "{}", done.stderr);
}

/// A workspace that is a subdirectory of its repository: commands do not see the rest of the tree, and git does not take it
/// as deleted.
#[test]
fn git_in_a_subdirectory_does_not_take_the_rest_as_deleted() {
    let world = World::repo(&[
        ("pkg/a.txt", "one\n"),
        ("pkg/key.pem", "TRACKEDKEYLINE\n"),
        ("other/b.txt", "OTHERLINE\n"),
        ("top.txt", "TOPLINE\n"),
    ]);
    let looks = script(&[
        writes("a.txt", "two\n"),
        shell("git status --short; git diff HEAD; git diff --stat; echo looked"),
        says("done"),
    ]);
    let policy = "version: 1\nextends: [builtin:edit, builtin:look]\nsandbox: { level: full }\n";
    let recipe = "version: 1\nname: r\nsteps:\n  - { id: look, prompt: go }\n";
    let part = world.ws().join("pkg");
    let done = world.recipe(recipe, &looks, policy, &["--workspace", &part.to_string_lossy()]);
    if !have("sandbox level full", !done.stderr.contains("is not available here")) {
        return;
    }
    let journal = std::fs::read_to_string(world.out().join("journal.jsonl")).unwrap();
    assert_eq!(done.code, 0, "{}{journal}", done.stderr);
    assert!(
        journal.contains(r" M a.txt\n") && journal.contains(r"+two\n"),
        "{journal}"
    );
    assert!(
        journal.contains("1 file changed") && journal.contains("looked"),
        "{journal}"
    );
    for unseen in ["OTHERLINE", "TOPLINE", "TRACKEDKEYLINE", " D "] {
        assert!(!journal.contains(unseen), "{unseen}: {journal}");
    }
    let marks = git_in(&world.ws(), &["ls-files", "-v"]);
    assert!(marks.lines().all(|line| line.starts_with("H ")), "{marks}");
}

#[test]
fn hidden_files_stay_hidden_when_the_tree_changes() {
    let tricks = "import os\nfor name in ['other', 'conf']:\n    try:\n        os.rename(name, name + '2')\n    \
                  except OSError as error:\n        print(name, 'is fixed:', error.errno)\n";
    let world = World::repo(&[
        (".gitignore", ".env\nsub/\n*.pem\n"),
        ("conf/a.txt", "needle a\n"),
        ("other/b.txt", "honest b\n"),
        ("trick.py", tricks),
    ]);
    world
        .file("conf/.env", "PLAINSECRETVALUE\n")
        .file("sub/x.txt", "in sub\n");
    git_in(&world.ws().join("sub"), &["init", "-q", "."]);
    let header = [
        "config",
        "http.https://h.example/.extraheader",
        "AUTHORIZATION: basic NESTEDTOKENVALUE",
    ];
    git_in(&world.ws().join("sub"), &header);
    let odd = std::ffi::OsStr::from_bytes(b"\xff.pem");
    std::fs::write(world.ws().join(odd), "ODDSECRETVALUE\n").unwrap();
    // The text of the file is in no record but what a command prints.
    let recipe = "version: 1\nname: r\nsteps:\n  - { id: made, run: 'mkdir late && echo TEFURVNFQ1JFVFZBTFVF | base64 -d > \
                  late/.env' }\n  - { id: look, prompt: go }\n";
    let commands = [
        "grep -r . late",
        "python3 trick.py",
        "grep -r . conf conf2 other2",
        "find . -type f -not -name '*.pem' | xargs grep -l needle",
        "for f in $(find conf late sub/.git -type f); do wc -c \"$f\"; done",
        "grep -r -e version -e Credentials -e extraheader -e 'in sub' sub",
        "cat conf/.env",
    ];
    let Some(recorded) = recorded_at_full(&world, recipe, &commands, &[]) else {
        return;
    };
    for secret in [
        "LATESECRETVALUE",
        "PLAINSECRETVALUE",
        "NESTEDTOKENVALUE",
        "ODDSECRETVALUE",
    ] {
        assert!(!recorded.contains(secret), "{secret}: {recorded}");
    }
    // The honest use: another directory is renamed, files beside the hidden ones are read, git's other settings are seen.
    for shown in [
        "conf is fixed: 16",
        "other2/b.txt:honest b",
        "conf/a.txt:needle a",
        "0 late/.env",
        "repositoryformatversion",
        "Credentials were removed from this copy",
        "in sub",
        "secret_like_path",
    ] {
        assert!(recorded.contains(shown), "{shown}: {recorded}");
    }
    assert!(!recorded.contains("exec_denied"), "{recorded}");
    assert_eq!(world.read("conf/.env"), "PLAINSECRETVALUE\n");
}

#[test]
fn hidden_files_of_kept_directories_stay_hidden() {
    let world = World::repo(&[(".gitignore", "kept/\n"), ("a.txt", "one\n")]);
    world
        .file("kept/p/.env", "KEPTSECRETVALUE\n")
        .file("kept/p/x.txt", "honest x\n");
    let recipe = "version: 1\nname: r\nisolate: { keep: [kept] }\nsteps:\n  - { id: look, prompt: go }\n";
    let tricks = "python3 -c \"import os, glob; print([open(f).read() for f in glob.glob('kept/p/.*') + glob.glob('kept/p/*')])\"";
    let Some(recorded) = recorded_at_full(&world, recipe, &["grep -r . kept", tricks], &["--isolate"]) else {
        return;
    };
    assert!(!recorded.contains("KEPTSECRETVALUE"), "{recorded}");
    assert!(recorded.contains("kept/p/x.txt:honest x"), "{recorded}");
}

#[test]
fn what_is_hidden_is_told_by_kind_and_content_too() {
    let look = "import os, stat\nfor name in ['.env', '.git/deploy.pem', 'd/m.git/config', 'ca.pem', 'tab\\there.txt', \
                'node_modules/p/test/key.pem']:\n    print(name, open(name).read())\n\
                print('the pipe is a file:', stat.S_ISREG(os.stat('pipe.env').st_mode))\n";
    let ignored = ".env\n*.env\n*.pem\nd/\nnode_modules/\nsettings/\ntab*\n";
    let world = World::repo(&[(".gitignore", ignored), ("look.py", look)]);
    let header = "[http]\n\textraheader = AUTHORIZATION: basic BARETOKENVALUE\n";
    world
        .file(".git/deploy.pem", "GITKEYVALUE\n")
        .file("settings/dev", "LINKEDSECRETVALUE\n")
        .file("d/m.git/config", header)
        .file("d/m.git/HEAD", "ref: refs/heads/main\n")
        .file("d/m.git/objects/x", "")
        .file(
            "ca.pem",
            "-----BEGIN CERTIFICATE-----\nAUTHORITYVALUE\n-----END CERTIFICATE-----\n",
        )
        .file("node_modules/p/test/key.pem", "EXAMPLEOFPACKAGE\n")
        .file("tab\there.txt", "STRANGENAMEVALUE\n");
    std::os::unix::fs::symlink("settings/dev", world.ws().join(".env")).unwrap();
    let pipe = world.ws().join("pipe.env");
    assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    let recipe = "version: 1\nname: r\nsteps:\n  - { id: look, prompt: go }\n";
    let Some(recorded) = recorded_at_full(&world, recipe, &["python3 look.py"], &[]) else {
        return;
    };
    for secret in ["GITKEYVALUE", "LINKEDSECRETVALUE", "BARETOKENVALUE"] {
        assert!(!recorded.contains(secret), "{secret}: {recorded}");
    }
    for shown in [
        "AUTHORITYVALUE",
        "EXAMPLEOFPACKAGE",
        "STRANGENAMEVALUE",
        "Credentials were removed from this copy",
        "the pipe is a file: True",
    ] {
        assert!(recorded.contains(shown), "{shown}: {recorded}");
    }
}

#[test]
fn steps_and_checks_make_a_hidden_file_more_than_once() {
    let world = World::repo(&[
        (".gitignore", ".env\n"),
        ("look.py", "print(len(open('.env').read()), 'bytes')\n"),
    ]);
    // The text of the file is in no record but what a command prints.
    let make = "echo TEFURVNFQ1JFVFZBTFVF | base64 -d > .env && test \"$(wc -c < .env)\" = 15";
    let recipe = format!(
        "version: 1\nname: r\nsteps:\n  - {{ id: one, run: '{make}' }}\n  - {{ id: two, run: '{make}' }}\n  - id: look\n    \
         prompt: go\n    checks: [{{ name: c, run: '{make}' }}]\n"
    );
    let Some(recorded) = recorded_at_full(&world, &recipe, &["python3 look.py"], &[]) else {
        return;
    };
    assert!(recorded.contains("0 bytes"), "{recorded}");
    assert!(!recorded.contains("LATESECRETVALUE"), "{recorded}");
    assert_eq!(world.result()["exit_code"], 0, "{recorded}");
    assert_eq!(world.read(".env"), "LATESECRETVALUE");
}

/// A repository with a token in its own configuration, in that of a submodule further down, and in that of one inside of
/// it.
fn with_tokens() -> World {
    let token = |name: &str| format!("ghs_{name}0123456789abcdefghij");
    let text = ["own", "sub", "deep"].map(|name| format!("the token is {}\n", token(name)));
    let world = World::repo(&[("a.txt", text.concat().as_str())]);
    let url = |name: &str| format!("https://x-access-token:{}@h.example/r.git", token(name));
    world.git(&["remote", "add", "origin", &url("own")]);
    for (dir, name) in [("vendor/sub", "sub"), ("vendor/sub/modules/deep", "deep")] {
        world.file(
            &format!(".git/modules/{dir}/config"),
            format!("[remote \"origin\"]\n\turl = {}\n", url(name)),
        );
    }
    world
}

#[test]
fn credentials_in_the_configuration_of_git_are_redacted() {
    let world = with_tokens();
    let bare = "[http]\n\textraheader = AUTHORIZATION: basic ghs_bare0123456789abcdefghij\n";
    world
        .file(".git/info/exclude", "m.git/\nlinked.git/\n")
        .file("m.git/config", bare)
        .file("m.git/HEAD", "ref: refs/heads/main\n")
        .file("m.git/objects/x", "")
        .file("linked.git/config", bare.replace("bare", "linked"))
        .file("linked.git/objects/x", "");
    // Git takes a link for it, also one that leads nowhere.
    std::os::unix::fs::symlink("refs/heads/main", world.ws().join("linked.git/HEAD")).unwrap();
    let replies = script(&[shell("cat a.txt m.git/config linked.git/config"), says("done")]);
    let policy = open_policy(&["cat"]);
    let done = world.run(&replies, &policy, &["-p", "x"]);
    let journal = std::fs::read_to_string(world.out().join("journal.jsonl")).unwrap();
    assert!(journal.contains("the token is "), "{journal}");
    assert!(!journal.contains("ghs_"), "{}{journal}", done.stderr);
    let policy = world.beside("policy.yaml", policy);
    let args = json!({ "command": "cat a.txt" }).to_string();
    let call = ["tools", "call", "run_shell_command", "--args", &args];
    let done = world.call(&[&call[..], &["--policy", &policy]].concat()).exits(0);
    assert!(done.stdout.contains("the token is "), "{}", done.stdout);
    assert!(!done.stdout.contains("ghs_"), "{}", done.stdout);
}

/// Names of variables and programs in a helper, and settings that are words, are no credentials: the model reads and
/// writes them. Those of submodules of any name, of repositories inside and of included files are.
#[test]
fn only_literal_credentials_in_the_configuration_of_git_are_redacted() {
    let token = |name: &str| format!("ghs_{name}0123456789abcdefghij");
    let honest = "curl -H \"Authorization: Bearer $GITHUB_TOKEN\" with git-credential-wrapper in production\n";
    let all = ["lfs", "nested", "included", "earlier", "proxy"];
    let tokens = all.map(|name| format!("the token is {}\n", token(name))).concat();
    let world = World::repo(&[("a.txt", honest), ("b.txt", tokens.as_str()), (".gitignore", "sub/\n")]);
    let helper = "!f() { echo \"url=https://github.com\"; echo \"password=$GITHUB_TOKEN\"; }; git-credential-wrapper";
    let proxy = format!("user:{}@proxy.example:8080", token("proxy"));
    for (key, value) in [
        ("credential.helper", helper),
        ("hooks.allowsecrets", "production"),
        ("hooks.token", "production"),
        ("include.path", "creds.inc"),
        ("http.proxy", proxy.as_str()),
    ] {
        world.git(&["config", key, value]);
    }
    let header = |name: &str| format!("[http]\n\textraheader = AUTHORIZATION: bearer {}\n", token(name));
    world
        .file(".git/creds.inc", header("included"))
        .file(".git/config~", header("earlier"))
        .file(".git/modules/vendor/lfs/config", header("lfs"))
        .file(".git/modules/vendor/lfs/HEAD", "ref: refs/heads/main\n")
        .file("nested/.git/config", header("nested"));
    let write = json!({"tool": "write_file", "args": {"file_path": "new.txt", "content": honest}});
    let read = json!({"tool": "read_file", "args": {"file_path": "a.txt"}});
    let replies = script(&[shell("cat b.txt"), json!({"calls": [read, write]}), says("done")]);
    let policy = "version: 1\nextends: [builtin:edit]\nrules:\n  - { allow: run_shell_command, commands: [cat], args: any }\n\
                  sandbox: { level: none }\n";
    let done = world.run(&replies, policy, &["-p", "x"]).exits(0);
    let journal = std::fs::read_to_string(world.out().join("journal.jsonl")).unwrap();
    assert_eq!(world.read("new.txt"), honest);
    assert!(journal.contains("the token is "), "{journal}");
    assert!(!journal.contains("ghs_"), "{}{journal}", done.stderr);
    assert!(journal.contains("git-credential-wrapper in production"), "{journal}");
}

/// The snapshot with which a resume compares the tree knows them, too.
#[test]
fn the_store_of_a_resumed_run_holds_no_credential_of_git() {
    let world = with_tokens();
    let policy = "version: 1\nextends: [builtin:edit]\nrules:\n  - { suspend: write_file, paths: [b.txt] }\nsandbox: { level: none }\n";
    let write = |path: &str| json!({"tool": "write_file", "args": {"file_path": path, "content": "two\n"}});
    let replies = script(&[json!({"calls": [write("c.txt"), write("b.txt")]}), says("done")]);
    world.run(&replies, policy, &["-p", "x"]).exits(5);
    world.file("late.txt", "the late token is ghs_own0123456789abcdefghij\n");
    world.file("plain.txt", "nothing secret\n");
    let out = world.out().to_string_lossy().into_owned();
    let told = world.call(&["resume", &out, "--approve", "c2"]).exits(8).stderr;
    assert!(told.contains("neither as the run left it"), "{told}");
    let all = stored(&world);
    assert!(all.contains("nothing secret"), "the control is there");
    assert!(!all.contains("the late token"), "{all}");
}
