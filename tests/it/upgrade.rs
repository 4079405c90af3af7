//! Runs and files of earlier versions: `fixtures/upgrade/VERSION` has run directories as that version left them (passed,
//! failed after a denial, suspended, killed), with the recipe, the policy and the replies that they were made from. Every
//! command reads them, or says what to type.
//!
//! The tree of those runs was one file, `a.txt`, in one commit, whose id a commit made by [`clone`] has as well.

use super::harness::{Done, GIT_IDENTITY, World, project};
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::Command;

const VERSIONS: [&str; 1] = ["0.1.0"];

fn fixtures(version: &str) -> PathBuf {
    project().join("fixtures/upgrade").join(version)
}

/// The repository that the runs were made in, as a clone on another machine.
fn clone(version: &str) -> World {
    let world = World::new()
        .env("GIT_AUTHOR_NAME", "a")
        .env("GIT_AUTHOR_EMAIL", "a@example.org");
    let world = world
        .env("GIT_COMMITTER_NAME", "a")
        .env("GIT_COMMITTER_EMAIL", "a@example.org");
    world.file("a.txt", "one\n");
    let day = "2026-11-21T12:00:00Z";
    for args in [
        &["init", "-q", "-b", "main"][..],
        &["add", "-A"],
        &["commit", "-qm", "base"],
    ] {
        let mut git = Command::new("git");
        git.args(args).current_dir(world.ws()).envs(GIT_IDENTITY);
        git.env("GIT_AUTHOR_DATE", day).env("GIT_COMMITTER_DATE", day);
        assert!(git.status().unwrap().success());
    }
    for file in [
        "recipe.yaml",
        "policy.yaml",
        "passed.json",
        "suspended.json",
        "killed.json",
    ] {
        world.beside(file, std::fs::read(fixtures(version).join(file)).unwrap());
    }
    world
}

fn copy(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let to = to.join(entry.file_name());
        match entry.file_type().unwrap().is_dir() {
            true => copy(&entry.path(), &to),
            false => drop(std::fs::copy(entry.path(), to).unwrap()),
        }
    }
}

/// A copy of a run, beside the clone.
fn run(world: &World, version: &str, name: &str) -> String {
    let to = world.path().join(name);
    copy(&fixtures(version).join(name), &to);
    to.to_string_lossy().into_owned()
}

fn json(path: impl AsRef<Path>) -> Value {
    serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap()
}

fn result(dir: &str) -> Value {
    json(Path::new(dir).join("result.json"))
}

/// Does what the message between the first backticks says.
fn as_told(world: &World, said: &str) -> Done {
    let command = said
        .split('`')
        .nth(1)
        .unwrap_or_else(|| panic!("no command in: {said}"));
    let mut words = command.split(' ');
    assert_eq!(words.next(), Some("overnight"), "{said}");
    world.call(&words.collect::<Vec<_>>())
}

#[test]
fn old_runs_are_verified_after_what_the_message_says() {
    for version in VERSIONS {
        for name in ["passed", "failed", "suspended"] {
            let world = clone(version);
            let dir = run(&world, version, name);
            let done = world.call(&["runs", "verify", &dir]).exits(1);
            as_told(&world, &done.stderr).exits(0);
            world.call(&["runs", "verify", &dir]).exits(0);
        }
        let world = clone(version);
        let killed = run(&world, version, "killed");
        world.call(&["runs", "verify", &killed]).exits(0);
    }
}

#[test]
fn every_report_of_an_old_run_is_made() {
    for version in VERSIONS {
        for name in ["passed", "failed", "suspended", "killed"] {
            let world = clone(version);
            let dir = run(&world, version, name);
            let before = std::fs::read_to_string(Path::new(&dir).join("result.json")).ok();
            for format in [
                "text",
                "result",
                "summary",
                "html",
                "junit",
                "transcript",
                "patch",
                "mbox",
                "suspension",
                "review",
                "github",
                "sarif",
                "rdjson",
                "codequality",
                "checkstyle",
            ] {
                let done = world.call(&["report", &dir, "--format", format]);
                assert_eq!(done.code, 0, "{version} {name} {format}: {}", done.stderr);
            }
            let Some(before) = before else { continue };
            let before: Value = serde_json::from_str(&before).unwrap();
            let after: Value =
                serde_json::from_str(&world.call(&["report", &dir, "--format", "result"]).exits(0).stdout).unwrap();
            for key in [
                "run",
                "verdict",
                "exit_code",
                "reason",
                "response",
                "output",
                "changes",
                "base",
                "cost",
                "usage",
            ] {
                assert_eq!(before[key], after[key], "{version} {name}: {key}");
            }
            let schema = world.call(&["schema", "result"]).exits(0).stdout;
            let schema = jsonschema::validator_for(&serde_json::from_str(&schema).unwrap()).unwrap();
            for result in [&before, &after] {
                let wrong: Vec<String> = schema.iter_errors(result).map(|error| error.to_string()).collect();
                assert!(wrong.is_empty(), "{version} {name}: {wrong:?}");
            }
        }
    }
}

#[test]
fn old_events_match_the_schema() {
    let schema = World::new().call(&["schema", "event"]).exits(0).stdout;
    let schema = jsonschema::validator_for(&serde_json::from_str(&schema).unwrap()).unwrap();
    for version in VERSIONS {
        for name in ["passed", "failed", "suspended", "killed"] {
            let text = std::fs::read_to_string(fixtures(version).join(name).join("journal.jsonl")).unwrap();
            for line in text.lines() {
                assert!(
                    schema.is_valid(&serde_json::from_str(line).unwrap()),
                    "{version} {name}: {line}"
                );
            }
        }
    }
}

#[test]
fn old_runs_are_listed() {
    for version in VERSIONS {
        let world = clone(version);
        for name in ["passed", "failed", "suspended", "killed"] {
            let id = json_run(version, name);
            copy(
                &fixtures(version).join(name),
                &world.ws().join(".overnight/runs").join(id),
            );
        }
        let listed = world.call(&["runs", "list"]).exits(0).stdout;
        for verdict in ["passed", "failed", "suspended"] {
            assert!(listed.contains(verdict), "{listed}");
        }
        assert_eq!(
            listed.lines().filter(|line| line.contains("greet")).count(),
            4,
            "{listed}"
        );
    }
}

/// The id of a recorded run.
fn json_run(version: &str, name: &str) -> String {
    let text = std::fs::read_to_string(fixtures(version).join(name).join("journal.jsonl")).unwrap();
    let first: Value = serde_json::from_str(text.lines().next().unwrap()).unwrap();
    first["entry"]["run"].as_str().unwrap().to_owned()
}

#[test]
fn an_old_run_is_delivered_after_what_the_message_says() {
    for version in VERSIONS {
        let world = clone(version);
        let dir = run(&world, version, "passed");
        let done = world.call(&["deliver", &dir, "--to", "branch", "--repo", "."]).exits(1);
        as_told(&world, &done.stdout).exits(0);
        world.call(&["deliver", &dir, "--to", "branch", "--repo", "."]).exits(0);
        assert_eq!(world.git(&["show", "overnight/greet:hello.txt"]), "hello world\n");
    }
}

#[test]
fn an_old_suspended_run_is_approved_and_goes_on() {
    for version in VERSIONS {
        let world = clone(version);
        let dir = run(&world, version, "suspended");
        world.call(&["report", &dir]).exits(0);
        let waiting = result(&dir)["suspended"][0].clone();
        let (_, approval) = waiting["approve"].as_str().unwrap().rsplit_once(' ').unwrap();
        let policy = world.path().join("policy.yaml").to_string_lossy().into_owned();
        let script = format!("script:{}", world.path().join("suspended.json").display());
        let done = world.call(&[
            "resume",
            &dir,
            "--workspace",
            ".",
            "--policy",
            &policy,
            "--model",
            &script,
            "--approve",
            approval,
        ]);
        done.exits(0);
        assert_eq!(
            (world.read("hello.txt"), world.read("held/b.txt")),
            ("hello world\n".to_owned(), "x\n".to_owned())
        );
        world.call(&["runs", "verify", &dir]).exits(0);
    }
}

#[test]
fn an_old_killed_run_goes_on_in_its_tree() {
    for version in VERSIONS {
        let world = clone(version);
        let dir = run(&world, version, "killed");
        let policy = world.path().join("policy.yaml").to_string_lossy().into_owned();
        let script = format!("script:{}", world.path().join("passed.json").display());
        let more = ["--workspace", ".", "--policy", &policy, "--model", &script];
        let resume = || world.call(&[&["resume", &dir][..], &more].concat());
        // The file was written, and no snapshot was taken before the kill: only the tree itself has it.
        let done = resume().exits(8);
        assert!(
            done.stderr.contains("resume the run in the tree that it worked on"),
            "{}",
            done.stderr
        );
        world.file("hello.txt", "hello world\n");
        resume().exits(0);
        assert_eq!(result(&dir)["verdict"], "passed");
        world.call(&["runs", "verify", &dir]).exits(0);
    }
}

/// The commands that look at the calls of a run, and those that keep house.
#[test]
fn other_commands_read_old_runs() {
    for version in VERSIONS {
        for name in ["passed", "failed", "suspended", "killed"] {
            let world = clone(version);
            let dir = run(&world, version, name);
            let policy = world.path().join("policy.yaml").to_string_lossy().into_owned();
            world.call(&["policy", "suggest", &dir]).exits(0);
            let said = world
                .call(&["policy", "explain", &policy, "--run", &dir])
                .exits(0)
                .stdout;
            assert!(!said.is_empty(), "{name}");
        }
        let world = clone(version);
        let dir = run(&world, version, "passed");
        world.call(&["report", &dir]).exits(0);
        world
            .call(&["deliver", &dir, "--to", "mbox", "--out", "../c.mbox"])
            .exits(0);
        world.git(&["am", "-q", "../c.mbox"]);
        assert_eq!(world.read("hello.txt"), "hello world\n");

        for name in ["passed", "failed", "suspended", "killed"] {
            let id = json_run(version, name);
            copy(
                &fixtures(version).join(name),
                &world.ws().join(".overnight/runs").join(id),
            );
        }
        world.call(&["runs", "prune", "--keep", "0"]).exits(0);
        let left = world.call(&["runs", "list", "--format", "json"]).exits(0).json();
        let left: Vec<&str> = left
            .as_array()
            .unwrap()
            .iter()
            .map(|run| run["verdict"].as_str().unwrap())
            .collect();
        // What can be continued stays.
        assert_eq!(left, ["suspended", "unfinished"]);
        world.call(&["runs", "prune", "--keep", "0", "--all"]).exits(0);
        assert_eq!(world.call(&["runs", "list"]).exits(0).stdout, "");
    }
}

/// A replay compares what is sent, and the system prompt differs between versions: it ends 1 and shows where.
#[test]
fn a_replay_of_an_old_run_says_what_differs() {
    for version in VERSIONS {
        let world = clone(version);
        let dir = run(&world, version, "passed");
        let (recipe, policy) = (world.path().join("recipe.yaml"), world.path().join("policy.yaml"));
        let model = format!("replay:{dir}");
        let args = [
            "run",
            recipe.to_str().unwrap(),
            "--policy",
            policy.to_str().unwrap(),
            "--model",
            &model,
            "--format",
            "json",
        ];
        let done = world.call(&args);
        let object: Value = serde_json::from_str(&done.stdout).unwrap();
        assert_eq!(
            (done.code, &object["reason"]),
            (1, &"replay_miss".into()),
            "{}",
            done.stderr
        );
        let lines = |mark: char| {
            done.stderr
                .lines()
                .filter(|line| line.contains(&format!(" {mark} ")))
                .count()
        };
        assert!(lines('-') > 0 && lines('+') > 0, "{}", done.stderr);
    }
}

#[test]
fn old_recipes_and_policies_are_read() {
    for version in VERSIONS {
        let world = clone(version);
        let path = |name: &str| world.path().join(name).to_string_lossy().into_owned();
        world.call(&["recipe", "check", &path("recipe.yaml")]).exits(0);
        let plan = world
            .call(&["recipe", "show", &path("recipe.yaml"), "--json"])
            .exits(0)
            .stdout;
        assert!(plan.contains("2000000"), "{plan}");
        world.call(&["policy", "check", &path("policy.yaml")]).exits(0);
        let script = format!("script:{}", path("passed.json"));
        world.call(&["recipe", "doc", &path("recipe.yaml")]).exits(0);
        world
            .call(&["recipe", "new", "copy.yaml", "--from", &path("recipe.yaml")])
            .exits(0);
        let ruling = [
            "policy",
            "explain",
            &path("policy.yaml"),
            "--command",
            "cat a.txt",
            "--format",
            "json",
        ];
        assert_eq!(world.call(&ruling).exits(0).json()["decision"], "allow");
        let run = [
            "run",
            &path("recipe.yaml"),
            "--policy",
            &path("policy.yaml"),
            "--model",
            &script,
        ];
        world.call(&[&run[..], &["--dry-run"]].concat()).exits(0);
        let manifest = "version: 1\nrecipe: recipe.yaml\npolicy: policy.yaml\nmodels: [\"script:passed.json\"]\ntargets: [{ path: ws }]\n";
        let manifest = world.beside("m.yaml", manifest);
        world.call(&["batch", &manifest, "--out", "../batch"]).exits(0);
        world
            .call(&[
                "run",
                &path("recipe.yaml"),
                "--policy",
                &path("policy.yaml"),
                "--model",
                &script,
            ])
            .exits(0);
    }
}
