//! What the README says, done: its commands, files and flags. Never runs the tests from inside the tests.

use super::gemini::{self, Gemini};
use super::harness::{BIN, World, git_in, have, project};
use serde_json::json;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

/// The fenced blocks: language and text.
fn blocks() -> Vec<(String, String)> {
    let text = std::fs::read_to_string(project().join("README.md")).unwrap();
    let mut found: Vec<(String, String)> = Vec::new();
    let mut inside = false;
    for line in text.lines() {
        match (inside, line.strip_prefix("```")) {
            (false, Some(language)) => {
                found.push((language.to_owned(), String::new()));
                inside = true;
            }
            (true, Some(_)) => inside = false,
            (true, None) => {
                let block = &mut found.last_mut().unwrap().1;
                block.push_str(line);
                block.push('\n');
            }
            (false, None) => {}
        }
    }
    assert!(!inside && found.len() > 5);
    found
}

fn found(name: &str) -> bool {
    Command::new(name)
        .arg("--version")
        .output()
        .is_ok_and(|output| output.status.success())
}

/// A directory for `PATH` with the program and stand-ins for others.
fn programs(world: &World, others: &[(&str, &str)]) -> String {
    let dir = world.path().join("programs");
    std::fs::create_dir_all(&dir).unwrap();
    std::os::unix::fs::symlink(BIN, dir.join("overnight")).unwrap();
    for (name, text) in others {
        let path = dir.join(name);
        std::fs::write(&path, text).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
    }
    format!("{}:{}", dir.display(), std::env::var("PATH").unwrap())
}

/// Runs a block with bash in this directory, with the environment of the world and these variables.
fn bash(world: &World, dir: &Path, text: &str, env: &[(&str, &str)]) -> String {
    let template = world.command(&[]);
    let mut command = Command::new("bash");
    command
        .args(["-euo", "pipefail", "-c", text])
        .current_dir(dir)
        .env_clear();
    for (name, value) in template.get_envs() {
        command.envs(value.map(|value| (name, value)));
    }
    command.envs(env.iter().copied());
    let output = command.output().unwrap();
    let (out, err) = (
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr),
    );
    assert!(output.status.success(), "{text}\n--- stdout\n{out}\n--- stderr\n{err}");
    out.into_owned()
}

#[test]
fn the_first_two_blocks_are_the_job_and_the_tests() {
    let blocks = blocks();
    assert_eq!((blocks[0].0.as_str(), blocks[1].0.as_str()), ("sh", "sh"));
    assert!(blocks[0].1.contains("\ncargo run -- run recipes/") && blocks[0].1.contains(" --sample"));
    assert_eq!(blocks[1].1.trim(), "cargo test");
    let ci = std::fs::read_to_string(project().join(".ci/run")).unwrap();
    let takes = |n: usize| ci.contains("README.md") && ci.contains(&format!("$(block {n})"));
    assert!(takes(1) && takes(2), ".ci/run does not run the README's own blocks");
}

#[test]
fn the_job_leaves_what_it_names() {
    if !have(
        "cargo clippy",
        Command::new("cargo")
            .args(["clippy", "--version"])
            .output()
            .is_ok_and(|o| o.status.success()),
    ) {
        return;
    }
    let world = World::new();
    // The recipe is found and the run's directory made from where the user stands, as printed.
    std::os::unix::fs::symlink(project().join("recipes"), world.path().join("recipes")).unwrap();
    let job = blocks()[0].1.replace("cargo run --", BIN);
    bash(&world, world.path(), &job, &[]);
    std::fs::rename(world.path().join("target/sample"), world.out()).unwrap();
    for file in [
        "journal.jsonl",
        "changes.patch",
        "transcript.json",
        "junit.xml",
        "report.html",
        "summary.md",
        "result.json",
    ] {
        assert!(world.out().join(file).is_file(), "{file}");
    }
    let result = world.result();
    assert_eq!(
        (&result["verdict"], &result["recorded"]),
        (&json!("passed"), &json!(true))
    );
}

#[test]
fn json_goes_in_and_comes_out_of_the_shell_script() {
    if !have("jq", found("jq")) {
        return;
    }
    let blocks = blocks();
    let (_, text) = blocks
        .iter()
        .find(|(language, text)| language == "bash" && text.contains("--input -"))
        .unwrap();
    let answer = json!({"kind": "bug", "files": [], "reason": "it says so"});
    let service = Gemini::new(vec![gemini::says(&answer.to_string())]);
    let world = World::new();
    let gh = "#!/bin/sh\nprintf '%s' '{\"title\": \"it breaks\", \"body\": \"when I look\"}'\n";
    let path = programs(&world, &[("gh", gh)]);
    let link = world.ws().join("recipes");
    std::os::unix::fs::symlink(project().join("recipes"), link).unwrap();
    let env = [
        ("PATH", path.as_str()),
        ("GEMINI_API_KEY", "k-0123456789"),
        ("GOOGLE_GEMINI_BASE_URL", &service.url),
    ];
    let printed = bash(&world, &world.ws(), text, &env);
    assert_eq!(printed.trim(), "bug");
    assert!(service.seen()[0].body.to_string().contains("when I look"));
}

#[test]
fn commands_that_need_no_key_work_as_printed() {
    let world = World::new();
    let path = programs(&world, &[]);
    std::os::unix::fs::symlink(project().join("recipes"), world.ws().join("recipes")).unwrap();
    let mut ran = 0;
    for (_, text) in blocks().iter().filter(|(language, _)| language == "bash") {
        for line in text.lines().filter(|line| line.starts_with("overnight ")) {
            let keyless = [
                "overnight policy check",
                "overnight recipe check",
                "overnight recipe show",
                "overnight policy explain",
            ]
            .iter()
            .any(|begin| line.starts_with(begin));
            if (keyless && !line.contains("calls.jsonl")) || line.contains("--dry-run") {
                bash(&world, &world.ws(), line, &[("PATH", &path)]);
                ran += 1;
            }
        }
    }
    assert!(ran >= 4, "{ran} commands were found");
}

#[test]
fn every_flag_that_is_shown_exists() {
    let world = World::new();
    let help = |words: &[&str]| world.call(&[words, &["--help"]].concat()).exits(0).stdout;
    let mut looked = 0;
    for (_, text) in blocks() {
        let joined = text.replace("\\\n", " ").replace("\n      --", " --");
        for line in joined
            .lines()
            .filter_map(|line| line.split_once("overnight ").map(|(_, rest)| rest))
        {
            let line = line.split(['#', '|', '>', ';']).next().unwrap();
            let words: Vec<&str> = line.split_whitespace().collect();
            let groups = ["policy", "recipe", "tools", "runs"];
            let Some(first) = words
                .first()
                .filter(|word| word.chars().all(|c| c.is_ascii_lowercase()))
            else {
                continue;
            };
            let is_script = words.starts_with(&["batch", "script"]);
            let path = if groups.contains(first) || is_script {
                &words[..2]
            } else {
                &words[..1]
            };
            let known = help(path);
            for flag in words.iter().filter(|word| word.starts_with("--")) {
                let flag = flag.split(['=', '`']).next().unwrap();
                assert!(known.contains(flag), "{flag} of `{line}` is not in\n{known}");
                looked += 1;
            }
        }
    }
    assert!(looked > 10, "{looked} flags were found");
}

#[test]
fn the_files_that_are_shown_are_valid() {
    let world = World::new();
    let link = world.path().join("policies");
    std::os::unix::fs::symlink(project().join("recipes/policies"), link).unwrap();
    let (mut policies, mut recipes) = (0, 0);
    for (n, (_, text)) in blocks().iter().filter(|(language, _)| language == "yaml").enumerate() {
        let path = world.beside(&format!("{n}.yaml"), text);
        if text.contains("\nrules:") {
            world.call(&["policy", "check", &path]).exits(0);
            policies += 1;
        } else if text.contains("\nsteps:") && text.starts_with("version:") {
            world.call(&["recipe", "check", &path]).exits(0);
            recipes += 1;
        }
    }
    assert!(policies >= 1 && recipes >= 1);
}

#[test]
fn the_manifest_that_is_shown_makes_its_jobs() {
    let blocks = blocks();
    let (_, text) = blocks
        .iter()
        .find(|(language, text)| language == "yaml" && text.contains("\ntargets:\n"))
        .unwrap();
    let world = World::new();
    std::os::unix::fs::symlink(project().join("recipes"), world.ws().join("recipes")).unwrap();
    for name in ["a", "b", "c"] {
        world.beside(&format!("{name}/x.txt"), "x\n");
        let dir = world.path().join(name);
        git_in(&dir, &["init", "-q", "-b", "main"]);
        git_in(&dir, &["add", "-A"]);
        git_in(&dir, &["commit", "-q", "-m", "x"]);
    }
    // The host of the example stands for one of this machine.
    let local = format!("file://{}/a", world.path().display());
    world.file("fleet.yaml", text.replace("https://git.example.org/a.git", &local));
    world.file("repos.jsonl", "{\"path\": \"../c\"}\n");
    world.file(
        "list-repos",
        "#!/bin/sh\necho '{\"path\": \"../c\", \"id\": \"listed\"}'\n",
    );
    let script = world.ws().join("list-repos");
    std::fs::set_permissions(script, std::fs::Permissions::from_mode(0o755)).unwrap();
    let done = world
        .env("GEMINI_API_KEY", "k-0123456789")
        .env("ANTHROPIC_API_KEY", "k-0123456789")
        .env("OPENAI_API_KEY", "k-0123456789")
        .call(&["batch", "fleet.yaml", "--dry-run", "--format", "json"])
        .exits(0)
        .json();
    let jobs = done["jobs"].as_array().unwrap();
    assert_eq!(jobs.len(), 8, "four targets, two values");
    assert!(
        jobs.iter().all(|job| job["state"] == "run" && job["problem"].is_null()),
        "{done}"
    );
}

#[test]
fn the_query_that_is_shown_reads_the_rows() {
    if !have("duckdb", super::validators::has("duckdb")) {
        return;
    }
    let blocks = blocks();
    let line = blocks
        .iter()
        .flat_map(|(_, text)| text.lines())
        .find(|line| line.starts_with("duckdb -c "))
        .unwrap();
    let query = line.trim_start_matches("duckdb -c ").trim_matches('"');
    let world = super::batch::fleet(1);
    world.beside("hi.yaml", super::harness::script(&[super::harness::says("hi")]));
    world.beside("m.yaml", super::batch::asking(3, "models: [\"script:hi.yaml\"]\n"));
    super::batch::call(&world, &["batch", "m.yaml", "--out", "out"]).exits(0);
    let code = "import duckdb, sys; rows = duckdb.sql(sys.argv[1]).fetchall(); assert [r[1:] for r in rows] == [('no_change', 3, 0.0)], rows";
    let done = super::validators::python(&["-c", code, query])
        .current_dir(world.path().join("out"))
        .output()
        .unwrap();
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
}

#[test]
fn the_codes_are_those_of_the_help() {
    let text = std::fs::read_to_string(project().join("README.md")).unwrap();
    for code in [
        "0",
        "1",
        "2",
        "3",
        "4",
        "5",
        "6",
        "7",
        "8",
        "9",
        "10",
        "70",
        "129, 130, 143",
    ] {
        assert!(text.contains(&format!("| {code} | ")), "{code}");
    }
}
