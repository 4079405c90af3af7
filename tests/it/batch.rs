//! A fleet: manifests, plans, outputs, budgets, shards and comparisons, through the real program on real repositories.

use super::gemini::{self, Gemini};
use super::harness::{Done, GIT_IDENTITY, World, git_in, have, says, script, writes};
use super::service::{Answer, Service};
use serde_json::{Value, json};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

const POLICY: &str = "version: 1\nextends: [builtin:edit]\nsandbox: { level: none }\n";

/// A recipe that writes a file, and checks it.
const GREET: &str = "version: 1\nname: greet\nparameters:\n  - { name: who, type: string, default: world }\nexpect: change\n\
steps:\n  - id: write\n    prompt: Write hello.txt for {{ who }}.\n    checks:\n      - { name: there, run: test -f hello.txt }\n";

/// A recipe that only asks.
pub const ASK: &str = "version: 1\nname: ask\nparameters:\n  - { name: n, type: string, default: x }\nsteps:\n  - { id: ask, prompt: 'Say {{ n }}.' }\n";

/// A world with repositories `r0`… beside the workspace, a policy, a recipe `greet.yaml`, `ask.yaml`, and scripts `ok` and `bad`.
pub fn fleet(repositories: usize) -> World {
    let world = World::new();
    for n in 0..repositories {
        repository(&world, &format!("r{n}"));
    }
    world.beside("policy.yaml", POLICY);
    world.beside("greet.yaml", GREET);
    world.beside("ask.yaml", ASK);
    world.beside("ok.yaml", script(&[writes("hello.txt", "hello\n"), says("done")]));
    world.beside("bad.yaml", script(&[says("I will not")]));
    world
}

fn repository(world: &World, name: &str) -> PathBuf {
    world.beside(&format!("{name}/a.txt"), format!("{name}\n"));
    let dir = world.path().join(name);
    git_in(&dir, &["init", "-q", "-b", "main"]);
    git_in(&dir, &["add", "-A"]);
    git_in(&dir, &["commit", "-q", "-m", "base"]);
    dir
}

/// `overnight batch` in the directory of the fleet.
pub fn command(world: &World, args: &[&str]) -> Command {
    let mut command = world.command(args);
    command.current_dir(world.path());
    command
}

pub fn call(world: &World, args: &[&str]) -> Done {
    Done::of(command(world, args).output().unwrap())
}

/// The manifest under this name, run with the batch directory `out`.
fn batch(world: &World, manifest: &str, more: &[&str]) -> Done {
    world.beside("m.yaml", manifest);
    let mut args = vec!["batch", "m.yaml", "--out", "out"];
    args.extend(more);
    call(world, &args)
}

pub fn rows(world: &World, dir: &str) -> Vec<Value> {
    let text = std::fs::read_to_string(world.path().join(dir).join("runs.jsonl")).unwrap();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

pub fn result(world: &World, dir: &str) -> Value {
    let text = std::fs::read_to_string(world.path().join(dir).join("result.json")).unwrap();
    serde_json::from_str(&text).unwrap()
}

/// A manifest of `jobs` jobs that ask one thing each of the model, on one repository.
pub fn asking(jobs: usize, head: &str) -> String {
    let mut text = format!("version: 1\nrecipe: ask.yaml\n{head}targets:\n");
    for n in 0..jobs {
        text.push_str(&format!("  - {{ path: r0, id: j{n}, params: {{ n: \"n{n}\" }} }}\n"));
    }
    text
}

fn verdicts(world: &World) -> Vec<String> {
    let rows = rows(world, "out");
    rows.iter()
        .map(|row| row["verdict"].as_str().unwrap().to_owned())
        .collect()
}

/// Targets are relative to the manifest, and so they are when the batch is delivered beside it.
#[test]
fn a_batch_is_delivered_to_the_directory_that_it_names() {
    let world = fleet(1);
    let model = world.path().join("ok.yaml").to_string_lossy().into_owned();
    world.beside(
        "m.yaml",
        format!(
            "version: 1\nrecipe: greet.yaml\npolicy: policy.yaml\nmodels: ['script:{model}']\ntargets: [{{ path: r0 }}]\n"
        ),
    );
    let beside = |args: &[&str]| {
        let mut command = world.command(args);
        Done::of(command.envs(GIT_IDENTITY).current_dir(world.path()).output().unwrap())
    };
    world.beside("greet.yaml", GREET.replace("expect:", "policy: policy.yaml\nexpect:"));
    // The variable applies too, to a delivery and to a batch.
    let under = |policy: &str, args: &[&str]| {
        let mut command = world.command(args);
        command
            .envs(GIT_IDENTITY)
            .env("OVERNIGHT_POLICY", policy)
            .current_dir(world.path());
        Done::of(command.output().unwrap())
    };
    let ceiling = |args: &[&str]| under("builtin:read-only", args);
    assert_ne!(ceiling(&["batch", "m.yaml", "--out", "ruled"]).code, 0);
    assert_ne!(rows(&world, "ruled")[0]["verdict"], "passed");
    beside(&["batch", "m.yaml", "--out", "out"]).exits(0);
    ceiling(&["deliver", "out", "--to", "branch", "--dry-run"]).exits(4);
    let done = beside(&["deliver", "out", "--to", "branch", "--format", "json"]).exits(0);
    assert_eq!(done.json()["outcome"], "opened", "{}", done.stdout);
    let branches = git_in(&world.path().join("r0"), &["branch", "--list", "overnight/*"]);
    assert!(!branches.trim().is_empty(), "{}", done.stderr);
    // To a delivery it takes nothing away from the policy that the run was given; the flag does.
    world.beside("policy.yaml", format!("{POLICY}deliver: {{ max_lines: 1 }}\n"));
    world.beside("ok.yaml", script(&[writes("hello.txt", "one\ntwo\n"), says("done")]));
    beside(&["batch", "m.yaml", "--out", "limited"]).exits(0);
    let deliver = ["deliver", "limited", "--to", "branch", "--dry-run"];
    let done = under("builtin:edit", &deliver).exits(4);
    assert!(done.stdout.contains("2 lines, more than the 1"), "{}", done.stdout);
    beside(&[&deliver[..], &["--policy", "builtin:edit"]].concat()).exits(0);
    // The recipe and the manifest name the same policy, which is one.
    let message = git_in(
        &world.path().join("r0"),
        &["log", "-1", "--format=%B", "overnight/greet"],
    );
    assert_eq!(message.matches("Overnight-Policy: ").count(), 1, "{message}");
}

/// Two copies of a repository have the same commits: only the record tells which one a job worked on. The manifest names one
/// by its clone (`path`), whose `origin` gets the branch, and one by the bare repository itself (`repo`), which gets it
/// although it has an `origin` of its own.
#[test]
fn a_batch_is_delivered_to_what_it_worked_on_from_every_directory() {
    let world = fleet(1);
    let base = world.path().to_owned();
    let clone = |args: &[&str]| git_in(&base, &[&["clone", "-q"][..], args].concat());
    for side in ["right", "wrong"] {
        clone(&["--bare", "r0", &format!("{side}.git")]);
        clone(&[&format!("{side}.git"), &format!("{side}/work")]);
        std::fs::create_dir(base.join(side).join("m")).unwrap();
    }
    clone(&["--bare", "right.git", "named.git"]);
    let at = |name: &str| base.join(name).to_string_lossy().into_owned();
    let (recipe, policy, model) = (at("greet.yaml"), at("policy.yaml"), at("ok.yaml"));
    world.beside(
        "right/m/f.yaml",
        format!(
            "version: 1\nrecipe: {recipe}\npolicy: {policy}\nmodels: ['script:{model}']\ntargets:\n  \
             - {{ path: ../work, id: p }}\n  - {{ repo: ../../named.git, id: r }}\n"
        ),
    );
    let in_wrong = |args: &[&str]| {
        let mut command = world.command(args);
        let done = command.envs(GIT_IDENTITY).current_dir(base.join("wrong/m")).output();
        Done::of(done.unwrap())
    };
    let (manifest, night, merged) = (at("right/m/f.yaml"), at("night/shards/1"), at("night"));
    in_wrong(&["batch", &manifest, "--out", &night]).exits(0);
    let found = rows(&world, "night/shards/1");
    let kinds: Vec<&Value> = found.iter().map(|row| &row["target_kind"]).collect();
    assert!(
        kinds.contains(&&json!("path")) && kinds.contains(&&json!("repo")),
        "{kinds:?}"
    );
    // The rows of a merge say so too.
    in_wrong(&["merge", &night, "--out", &merged]).exits(0);
    let branches = |dir: &str| {
        git_in(&base.join(dir), &["branch", "--list", "overnight/*"])
            .trim()
            .to_owned()
    };
    let done = in_wrong(&["deliver", &merged, "--to", "push", "--format", "json"]).exits(0);
    assert_eq!(opened(&done), 2, "{}", done.stdout);
    for (dir, count) in [
        ("right.git", 1),
        ("named.git", 1),
        ("wrong.git", 0),
        ("right/work", 0),
        ("wrong/work", 0),
    ] {
        assert_eq!(branches(dir).lines().count(), count, "{dir}: {}", done.stdout);
    }
    in_wrong(&["deliver", &night, "--to", "branch"]).exits(0);
    assert!(!branches("right/work").is_empty() && branches("wrong/work").is_empty());
    // Where the record does not say it, as in an early version, nothing is guessed.
    let path = base.join("night/runs.jsonl");
    let mut text = String::new();
    for mut row in rows(&world, "night").into_iter().filter(|row| row["id"] == "p") {
        let fields = row.as_object_mut().unwrap();
        fields.remove("source");
        fields.remove("target_kind");
        text.push_str(&format!("{row}\n"));
    }
    std::fs::write(path, text).unwrap();
    std::fs::remove_file(base.join("night/bundle.json")).unwrap();
    for to in ["push", "branch"] {
        let done = in_wrong(&["deliver", &merged, "--to", to]).exits(8);
        for named in ["job p", "`../work`", "the manifest `f`", "--repo DIR"] {
            assert!(done.stdout.contains(named), "{to}, {named}: {}", done.stdout);
        }
    }
    assert!(branches("wrong.git").is_empty() && branches("wrong/work").is_empty());
}

/// Directories of one repository are one repository, however they are written, and so is the address of their remote. The
/// branch of a job has the same name whatever has run so far.
#[test]
fn jobs_of_one_repository_have_branches_of_their_own() {
    let world = fleet(2);
    let base = world.path().to_owned();
    world.beside("r0/src/b.txt", "b\n");
    git_in(&base.join("r0"), &["add", "-A"]);
    git_in(&base.join("r0"), &["commit", "-q", "-m", "more"]);
    for name in ["r0", "r1"] {
        let origin = format!("{name}.git");
        git_in(&base, &["clone", "-q", "--bare", name, &origin]);
        git_in(&base.join(name), &["remote", "add", "origin", &format!("../{origin}")]);
    }
    let manifest = "version: 1\nrecipe: greet.yaml\npolicy: policy.yaml\nmodels: [\"script:ok.yaml\"]\ntargets:\n  \
                    - { path: r0, id: one }\n  - { path: r0/src, id: two }\n  - { path: ./r0, id: three }\n  \
                    - { repo: r0.git, id: four }\n  - { path: r1, id: other }\n";
    let deliver = |args: &[&str]| {
        let mut command = command(&world, &[&["deliver", "out", "--format", "json"][..], args].concat());
        let done = Done::of(command.envs(GIT_IDENTITY).output().unwrap());
        let mut seen: Vec<String> = done
            .stdout
            .lines()
            .map(|line| {
                let line: Value = serde_json::from_str(line).unwrap();
                let text = |key: &str| line[key].as_str().unwrap().to_owned();
                format!("{} {} {}", text("job"), text("outcome"), text("branch"))
            })
            .collect();
        seen.sort();
        (done, seen)
    };
    batch(&world, manifest, &["--only", "one"]);
    let (_, seen) = deliver(&["--to", "push"]);
    assert_eq!(seen, ["one opened overnight/greet-one"]);
    batch(&world, manifest, &[]).exits(0);
    let (done, seen) = deliver(&["--to", "push"]);
    assert_eq!(
        seen,
        [
            "four opened overnight/greet-four",
            "one unchanged overnight/greet-one",
            "other opened overnight/greet",
            "three opened overnight/greet-three",
            "two opened overnight/greet-two",
        ],
        "{}",
        done.stderr
    );
    assert_eq!(
        git_in(&base.join("r0.git"), &["branch", "--list", "overnight/*"])
            .lines()
            .count(),
        4
    );
    // A given name is not changed: a job with another patch does not replace what a job of this call has there.
    let (done, seen) = deliver(&["--to", "branch", "--branch", "fixed"]);
    assert_eq!(
        seen,
        [
            "four opened fixed",
            "one opened fixed",
            "other opened fixed",
            "three unchanged fixed",
            "two refused fixed",
        ],
        "{}",
        done.stderr
    );
    assert_eq!(done.code, 1);
    assert!(
        done.stdout.contains("is used by job one of this call") && done.stdout.contains("{job}"),
        "{}",
        done.stdout
    );
    assert_eq!(
        git_in(&base.join("r0"), &["diff", "--name-only", "main", "fixed"]).trim(),
        "hello.txt"
    );
}

/// A night in which a repository cannot be reached says nothing of its jobs: what was up to date before is so after it.
#[test]
fn a_target_that_cannot_be_reached_for_a_night_is_not_run_again() {
    let world = fleet(1);
    let base = world.path().to_owned();
    git_in(&base, &["clone", "-q", "--bare", "r0", "x.git"]);
    let manifest = "version: 1\nrecipe: greet.yaml\npolicy: policy.yaml\nmodels: [\"script:ok.yaml\"]\n\
                    targets: [{ repo: x.git, id: j }]\n";
    let counts = |done: &Done| {
        let jobs = &done.json()["jobs"];
        (jobs["run"].as_u64(), jobs["up_to_date"].as_u64())
    };
    let json = ["--format", "json"];
    assert_eq!(counts(&batch(&world, manifest, &json).exits(0)).0, Some(1));
    std::fs::rename(base.join("x.git"), base.join("away")).unwrap();
    batch(&world, manifest, &json).exits(8);
    batch(&world, manifest, &json).exits(8);
    std::fs::rename(base.join("away"), base.join("x.git")).unwrap();
    assert_eq!(counts(&batch(&world, manifest, &json).exits(0)), (Some(0), Some(1)));
    // The last row of the job is that of its run again, with its patch.
    assert_eq!(verdicts(&world), ["passed", "environment", "environment", "passed"]);
    let rows = rows(&world, "out");
    assert_eq!(rows[0], rows[3]);
    assert!(base.join("out").join(rows[3]["patch"].as_str().unwrap()).is_file());
    let mut deliver = command(&world, &["deliver", "out", "--to", "push"]);
    Done::of(deliver.envs(GIT_IDENTITY).output().unwrap()).exits(0);
    assert_eq!(counts(&batch(&world, manifest, &json).exits(0)), (Some(0), Some(1)));
    assert_eq!(verdicts(&world).len(), 4);
}

/// Rows of a job that was taken out of the manifest stay, and its change is not delivered any more.
#[test]
fn a_job_that_left_the_manifest_is_not_delivered() {
    let world = fleet(2);
    let manifest = |repository: &str| {
        format!(
            "version: 1\nrecipe: greet.yaml\npolicy: policy.yaml\nmodels: [\"script:ok.yaml\"]\ntargets: [{{ path: {repository} }}]\n"
        )
    };
    batch(&world, &manifest("r0"), &[]).exits(0);
    batch(&world, &manifest("r1"), &["--changed"]).exits(0);
    assert_eq!(rows(&world, "out").len(), 2);
    let gone = rows(&world, "out")[0]["job"].as_str().unwrap().to_owned();
    let mut deliver = command(&world, &["deliver", "out", "--to", "branch", "--format", "json"]);
    let done = Done::of(deliver.envs(GIT_IDENTITY).output().unwrap()).exits(0);
    assert_eq!(opened(&done), 1, "{}", done.stdout);
    assert!(done.stderr.contains("1 job that the manifest"), "{}", done.stderr);
    assert!(done.stderr.contains(&gone), "{gone}: {}", done.stderr);
    let branches = |name: &str| git_in(&world.path().join(name), &["branch", "--list", "overnight/*"]);
    assert_eq!(branches("r0").trim(), "");
    assert_eq!(branches("r1").trim(), "overnight/greet");
}

/// A recipe that asks no model needs none in a batch either; its commands of git find the repository.
#[test]
fn jobs_of_commands_need_no_model() {
    let world = World::repo(&[("a.txt", "a\n")]);
    world.beside(
        "count.yaml",
        "version: 1\nname: count\nsteps:\n  - { id: count, run: git log --format=%s | grep base }\n",
    );
    let manifest = world.beside("m.yaml", "version: 1\nrecipe: count.yaml\ntargets: [{ path: ws }]\n");
    let out = world.out().to_string_lossy().into_owned();
    let done = world
        .call(&["batch", &manifest, "--out", &out, "--format", "json"])
        .exits(0);
    assert_eq!(done.json()["jobs"]["run"], 1);
}

#[test]
fn every_kind_of_target_is_run_once() {
    let world = fleet(4);
    world.beside(
        "more.jsonl",
        "{\"path\": \"r2\", \"id\": \"two\", \"params\": {\"who\": \"you\"}}\n",
    );
    let manifest = format!(
        "version: 1\nrecipe: greet.yaml\npolicy: policy.yaml\nmodels: [\"script:ok.yaml\"]\ntargets:\n  - {{ path: r0 }}\n  \
         - {{ repo: \"file://{}/r1\", ref: main }}\n  - {{ file: more.jsonl }}\n  - {{ command: \"echo '{{\\\"path\\\": \\\"r3\\\"}}'\" }}\n",
        world.path().display()
    );
    let done = batch(&world, &manifest, &["--jobs", "2", "--format", "json"]).exits(0);
    let printed = done.json();
    assert_eq!(printed["schema"], "overnight/batch/v1");
    assert_eq!(
        (&printed["jobs"]["total"], &printed["jobs"]["passed"]),
        (&json!(4), &json!(4))
    );
    let rows = rows(&world, "out");
    assert_eq!(rows.len(), 4);
    for row in &rows {
        let patch = world.path().join("out").join(row["patch"].as_str().unwrap());
        let target = row["target"].as_str().unwrap();
        let tree = world.path().join(target.rsplit('/').next().unwrap());
        git_in(&tree, &["apply", patch.to_str().unwrap()]);
        assert!(tree.join("hello.txt").is_file());
        git_in(&tree, &["clean", "-qfd"]);
        assert_eq!(git_in(&tree, &["worktree", "list"]).lines().count(), 1);
        let run = world.path().join("out").join(row["run"].as_str().unwrap());
        assert!(run.join("report.html").is_file() && run.join("journal.jsonl").is_file());
        assert_eq!(
            row["base"].as_str().unwrap(),
            git_in(&tree, &["rev-parse", "HEAD"]).trim()
        );
    }
    for file in [
        "batch.jsonl",
        "plan.json",
        "result.json",
        "junit.xml",
        "report.html",
        "summary.md",
        "bundle.json",
    ] {
        assert!(world.path().join("out").join(file).is_file(), "{file}");
    }
    assert_eq!(
        std::fs::read_dir(world.path().join("out/work")).map_or(0, Iterator::count),
        0
    );
    // The same again runs nothing; a new commit runs that job, and no other.
    let again = batch(&world, &manifest, &["--format", "json"]).exits(0).json();
    assert_eq!(
        (&again["jobs"]["run"], &again["jobs"]["up_to_date"]),
        (&json!(0), &json!(4))
    );
    let r1 = world.path().join("r1");
    git_in(&r1, &["commit", "-q", "--allow-empty", "-m", "more"]);
    let again = batch(&world, &manifest, &["--format", "json"]).exits(0).json();
    assert_eq!(
        (&again["jobs"]["run"], &again["jobs"]["up_to_date"]),
        (&json!(1), &json!(3))
    );
    // So does a changed recipe, for all; --again runs all; --only those that it finds.
    world.beside("greet.yaml", GREET.replace("Write hello", "Please write hello"));
    let listed = batch(&world, &manifest, &["--dry-run", "--format", "json"])
        .exits(0)
        .json();
    assert!(
        listed["jobs"]
            .as_array()
            .unwrap()
            .iter()
            .all(|job| job["state"] == "run")
    );
    batch(&world, &manifest, &["--only", "^two$"]).exits(0);
    let listed = batch(
        &world,
        &manifest,
        &["--dry-run", "--format", "json", "--only", "two|r0"],
    )
    .exits(0)
    .json();
    let states: Vec<&str> = listed["jobs"]
        .as_array()
        .unwrap()
        .iter()
        .map(|job| job["state"].as_str().unwrap())
        .collect();
    assert_eq!(states, ["run", "skipped", "up_to_date", "skipped"]);
    let all = batch(&world, &manifest, &["--again", "--format", "json"])
        .exits(0)
        .json();
    assert_eq!(all["jobs"]["run"], 4);
}

#[test]
fn lines_from_stdin_are_jobs() {
    let world = fleet(2);
    // With the mark that some systems put before a text.
    let lines = "\u{feff}{\"path\": \"r0\", \"id\": \"a\"}\n{\"path\": \"r1\", \"params\": {\"who\": \"x\"}}\n";
    let mut child = command(
        &world,
        &[
            "batch",
            "-",
            "--recipe",
            "greet.yaml",
            "--policy",
            "policy.yaml",
            "--model",
            "script:ok.yaml",
            "--out",
            "out",
        ],
    )
    .stdin(std::process::Stdio::piped())
    .stdout(std::process::Stdio::piped())
    .stderr(std::process::Stdio::piped())
    .spawn()
    .unwrap();
    std::io::Write::write_all(&mut child.stdin.take().unwrap(), lines.as_bytes()).unwrap();
    Done::of(child.wait_with_output().unwrap()).exits(0);
    assert_eq!(verdicts(&world), ["passed", "passed"]);
    // A wrong first line is no manifest without a version.
    world.beside("wrong", "{\"path\": \"a\tb\"}\n");
    let done = call(&world, &["batch", "wrong", "--recipe", "greet.yaml"]).exits(3);
    assert!(
        done.stderr.starts_with("wrong:1:") && !done.stderr.contains("version"),
        "{}",
        done.stderr
    );
}

/// A recorded run is named from the manifest, as a script is, and its replies are part of the digest.
#[test]
fn another_recording_is_another_input() {
    let world = fleet(1);
    let manifest = "version: 1\nrecipe: greet.yaml\npolicy: policy.yaml\nmodels: [\"script:ok.yaml\"]\n\
                    targets: [{ path: r0, id: a }]\n";
    batch(&world, manifest, &[]).exits(0);
    let run = rows(&world, "out")[0]["run"].as_str().unwrap().to_owned();
    copy(&world, &format!("out/{run}"), "recorded");
    world.beside(
        "sub/m.yaml",
        "version: 1\nrecipe: ../greet.yaml\npolicy: ../policy.yaml\nmodels: [\"replay:../recorded\"]\ntargets: [{ path: ../r0 }]\n",
    );
    let digest = || {
        let args = ["batch", "sub/m.yaml", "--dry-run", "--format", "json"];
        call(&world, &args).exits(0).json()["jobs"][0]["digest"].clone()
    };
    let first = digest();
    assert_eq!(first, digest());
    let journal = world.path().join("recorded/journal.jsonl");
    let text = std::fs::read_to_string(&journal).unwrap();
    std::fs::write(&journal, format!("{text}{{")).unwrap();
    assert_ne!(first, digest());
}

#[test]
fn all_problems_are_told_at_once_and_nothing_runs() {
    let world = fleet(1);
    world.beside("wrong.yaml", "version: 1\nname: wrong\nstps: []\n");
    world.beside("lines.jsonl", "{\"path\": \"r0\", \"parms\": {}}\n{\"path\": \n");
    let done = batch(
        &world,
        "version: 1\nrecipe: ask.yaml\nmodels: [\"script:ok.yaml\"]\nbudgt: {}\ntargets:\n  - { path: r0, params: { m: 1 } }\n  \
         - { path: r0, recipe: wrong.yaml }\n  - { file: lines.jsonl }\n  - { file: none.jsonl }\n  - { path: r0, recipe: none.yaml }\n  - { path: \"\" }\n",
        &[],
    )
    .exits(3);
    for wanted in [
        "m.yaml:4:1: error[unknown-key]",
        "m.yaml:6:",
        "wrong.yaml:3:1: error[unknown-key]",
        "lines.jsonl:1:16: error[unknown-key]",
        "lines.jsonl:2:",
        "m.yaml:9:13: error[no-file]",
        "m.yaml:10:",
        "m.yaml:11:13: error[wrong-value]: this is not the path of a directory",
    ] {
        assert!(done.stderr.contains(wanted), "{wanted}\n{}", done.stderr);
    }
    assert!(!world.path().join("out/jobs").exists());
}

/// Each where it stands in the manifest, whatever list the targets come from.
#[test]
fn wrong_files_and_models_of_a_manifest_are_told_at_their_place() {
    let world = fleet(1);
    world.beside("repos.jsonl", "{\"path\": \"r0\", \"params\": {\"m\": 1}}\n");
    world.beside("wrong.yaml", "version: 1\nrulez: []\n");
    let manifest = "version: 1\nrecipe: nor.yaml\npolicy: [nopol.yaml, wrong.yaml]\nmodels: [foo]\ntargets:\n  - { file: repos.jsonl }\n  \
                    - { path: r0, recipe: ask.yaml, params: { m: 1 } }\n  - { command: \"exit 3\" }\n";
    let done = batch(&world, manifest, &[]).exits(3);
    for wanted in [
        "m.yaml:2:9: error[unreadable-input]",
        "m.yaml:3:10: error[unreadable-input]",
        "wrong.yaml:2:1: error[unknown-key]",
        "m.yaml:4:10: error[unknown-model]",
        "m.yaml:8:16: error[command-failed]: the command failed with exit code 3\n",
    ] {
        assert!(done.stderr.contains(wanted), "{wanted}\n{}", done.stderr);
    }
    assert!(!done.stderr.contains("repos.jsonl:"), "{}", done.stderr);
    // A wrong parameter hides no wrong model.
    let manifest = manifest
        .replace("[nopol.yaml, wrong.yaml]", "policy.yaml")
        .replace("nor.yaml", "ask.yaml");
    let done = batch(&world, &manifest, &[]).exits(3);
    for wanted in ["m.yaml:4:10: error[unknown-model]", "m.yaml:7:"] {
        assert!(done.stderr.contains(wanted), "{wanted}\n{}", done.stderr);
    }
    assert!(!world.path().join("out/jobs").exists());
}

/// What makes too many jobs is refused before it fills the memory.
#[test]
fn a_list_and_a_matrix_without_end_are_refused() {
    let world = fleet(1);
    let head = "version: 1\nrecipe: ask.yaml\nmodels: [\"script:ok.yaml\"]\n";
    let done = batch(&world, &format!("{head}targets: [{{ command: \"yes\" }}]\n"), &[]).exits(3);
    assert!(
        done.stderr
            .contains("error[command-failed]: the command printed more than 67108864 bytes"),
        "{}",
        done.stderr
    );
    let values: Vec<String> = (0..100).map(|n| n.to_string()).collect();
    let values = values.join(", ");
    let axes: Vec<String> = (0..9).map(|n| format!("p{n}: [{values}]")).collect();
    let matrix = format!("{head}targets: [{{ path: r0 }}]\nmatrix: {{ {} }}\n", axes.join(", "));
    let done = batch(&world, &matrix, &[]).exits(3);
    assert!(done.stderr.contains("error[too-many-jobs]"), "{}", done.stderr);
}

/// Variables that replace flags of `run` are flags of the batch, or nothing: a job has its arguments from the batch alone.
#[test]
fn variables_of_runs_are_taken_by_the_batch() {
    let world = fleet(1);
    let beside = |name: &str| world.path().join(name).to_string_lossy().into_owned();
    let (patch, junit) = (beside("one.patch"), beside("one.xml"));
    let variables = [
        ("OVERNIGHT_MODEL", "script:ok.yaml"),
        ("OVERNIGHT_POLICY", "policy.yaml"),
        ("OVERNIGHT_OUT", "out"),
        ("OVERNIGHT_PATCH", patch.as_str()),
        ("OVERNIGHT_JUNIT", junit.as_str()),
        ("OVERNIGHT_MAX_TURNS", "7"),
    ];
    let plain = "version: 1\nrecipe: greet.yaml\ntargets:\n  - { path: r0, id: a }\n  - { path: r0, id: b }\n";
    world.beside("m.yaml", plain);
    let run = |more: &[&str], name: &str, value: &str| {
        let mut command = command(&world, &["batch", "m.yaml", "--format", "json"]);
        command.args(more).envs(variables).env(name, value);
        Done::of(command.output().unwrap())
    };
    run(&[], "OVERNIGHT_GITHUB", "").exits(0);
    for row in rows(&world, "out") {
        assert_eq!(row["model"], "script:ok.yaml", "{row}");
        let log = world
            .path()
            .join("out")
            .join(format!("{}.log", row["run"].as_str().unwrap()));
        let log = std::fs::read_to_string(log).unwrap();
        assert!(log.contains("limits: 7 turns"), "{log}");
    }
    let plan: Value =
        serde_json::from_str(&std::fs::read_to_string(world.path().join("out/plan.json")).unwrap()).unwrap();
    assert_eq!(plan["jobs"][0]["model"], "script:ok.yaml");
    assert_eq!(plan["jobs"][0]["policies"], json!(["policy.yaml"]));
    assert!(!world.path().join("one.patch").exists() && !world.path().join("one.xml").exists());
    let again = run(&[], "OVERNIGHT_MAX_TURNS", "8").exits(0).json();
    assert_eq!(again["jobs"]["up_to_date"], 2, "a limit is no input");
    let other = run(&[], "OVERNIGHT_MODEL", "script:bad.yaml").exits(3);
    assert!(other.stderr.contains("changed-manifest"), "{}", other.stderr);
    let wrong = run(&[], "OVERNIGHT_MAX_TURNS", "many").exits(2);
    assert!(wrong.stderr.contains("OVERNIGHT_MAX_TURNS=many"), "{}", wrong.stderr);
    world.beside(
        "m.yaml",
        plain.replace("targets:", "models: ['script:ok.yaml']\ntargets:"),
    );
    let named = run(&["--out", "other"], "OVERNIGHT_MODEL", "script:bad.yaml")
        .exits(0)
        .json();
    assert_eq!(named["jobs"]["run"], 2, "the manifest names the model");
    world.beside("m.yaml", "version: [\n");
    let wrong = run(&[], "OVERNIGHT_MAX_COSTS", "1").exits(3);
    let warned = wrong.stderr.contains("OVERNIGHT_MAX_COSTS is set and has no meaning");
    assert!(warned, "{}", wrong.stderr);
    // The tasks of an engine start in another environment: the policy is theirs too, the model is that of the manifest.
    let mut script = command(&world, &["batch", "script", "--engine", "slurm", "--shards", "2"]);
    script.args(["m.yaml", "--out", "o"]).envs(variables);
    let script = Done::of(script.output().unwrap()).exits(0).stdout;
    assert!(script.contains("--policy policy.yaml"), "{script}");
    assert!(!script.contains("--model"), "{script}");
}

#[test]
fn a_changed_manifest_is_refused_with_what_changed() {
    let world = fleet(2);
    world.beside("hi.yaml", script(&[says("hi")]));
    let one = asking(2, "models: [\"script:hi.yaml\"]\n");
    batch(&world, &one, &[]).exits(0);
    let two = one.replace("n1", "other");
    let done = batch(&world, &two, &[]).exits(3);
    assert!(
        done.stderr.contains("changed-manifest") && done.stderr.contains("job j1"),
        "{}",
        done.stderr
    );
    assert!(done.stderr.contains("other"), "{}", done.stderr);
    let done = batch(&world, &two, &["--format", "json"]).exits(3).json();
    assert_eq!((&done["verdict"], &done["exit_code"]), (&json!("invalid"), &json!(3)));
    assert_eq!(
        (&done["jobs"]["total"], &done["usage"]["turns"]),
        (&json!(0), &json!(0))
    );
    assert!(done["message"].as_str().unwrap().contains("changed-manifest"), "{done}");
    let done = batch(&world, &two, &["--changed", "--format", "json"]).exits(0).json();
    assert_eq!(
        (&done["jobs"]["run"], &done["jobs"]["up_to_date"]),
        (&json!(1), &json!(1))
    );
}

/// The rows of such a batch would count as runs.
#[test]
fn a_batch_that_came_with_a_checkout_is_refused() {
    let world = fleet(1);
    world.beside("hi.yaml", script(&[says("hi")]));
    let manifest = asking(1, "models: [\"script:hi.yaml\"]\n");
    batch(&world, &manifest, &[]).exits(0);
    git_in(world.path(), &["init", "-q"]);
    // The control: files that nobody committed.
    batch(&world, &manifest, &[]).exits(0);
    git_in(world.path(), &["add", "-f", "out/runs.jsonl"]);
    let done = batch(&world, &manifest, &[]).exits(8);
    assert!(done.stderr.contains("name another --out"), "{}", done.stderr);
    let seen = batch(&world, &manifest, &["--dry-run"]).exits(8);
    assert!(seen.stderr.contains("name another --out"), "{}", seen.stderr);
}

#[test]
fn a_job_that_fails_costs_one_job_and_is_tried_again() {
    let world = fleet(2);
    let manifest = "version: 1\nrecipe: greet.yaml\npolicy: policy.yaml\nretry: { on: [failed], max: 1 }\ntargets:\n  \
                    - { path: r0, id: good, model: \"script:ok.yaml\" }\n  - { path: r1, id: bad, model: \"script:bad.yaml\" }\n  \
                    - { path: nowhere, id: lost, model: \"script:ok.yaml\" }\n";
    let done = batch(&world, manifest, &["--format", "json"]).exits(8).json();
    let jobs = &done["jobs"];
    assert_eq!(
        (&jobs["passed"], &jobs["failed"], &jobs["environment"]),
        (&json!(1), &json!(1), &json!(1))
    );
    let rows = rows(&world, "out");
    let bad: Vec<&Value> = rows.iter().filter(|row| row["job"] == "bad").collect();
    assert_eq!((&bad[0]["attempt"], &bad[1]["attempt"]), (&json!(1), &json!(2)));
    assert_ne!(bad[0]["run"], bad[1]["run"]);
    let lost = rows.iter().find(|row| row["job"] == "lost").unwrap();
    assert!(lost["message"].as_str().unwrap().contains("nowhere"), "{lost}");
    // A job without its repository is no trial of the recipe. All attempts take time.
    let scores = done["evaluation"].as_array().unwrap();
    let sum = |key: &str| scores.iter().map(|score| score[key].as_f64().unwrap()).sum::<f64>();
    assert!((sum("trials"), sum("not_judged")) == (2.0, 1.0), "{scores:?}");
    let seconds: f64 = rows.iter().map(|row| row["seconds"].as_f64().unwrap()).sum();
    assert!((sum("seconds") - seconds).abs() < 1e-6, "{scores:?}");
    // Only what did not pass is run again by the next call.
    let done = batch(&world, manifest, &["--format", "json"]).exits(8);
    assert!(
        done.stderr.contains("[2/2] ") && !done.stderr.contains("[3/2] "),
        "a retry counts as the same job: {}",
        done.stderr
    );
    let done = done.json();
    assert_eq!(
        (&done["jobs"]["run"], &done["jobs"]["up_to_date"]),
        (&json!(2), &json!(1))
    );
}

/// Filters do not run for a batch, so files of Git LFS are pointers in its worktrees. Each target is told of once.
#[test]
fn pointers_in_the_worktree_of_a_job_are_told() {
    let world = fleet(0);
    let pointer = format!(
        "version https://git-lfs.github.com/spec/v1\noid sha256:{}\nsize 12\n",
        "a".repeat(64)
    );
    world.beside("large/data.bin", pointer);
    repository(&world, "large");
    world.beside("hi.yaml", script(&[says("hi")]));
    let manifest = asking(2, "models: [\"script:hi.yaml\"]\n").replace("r0", "large");
    let done = batch(&world, &manifest, &[]).exits(0);
    let warning = "Git LFS pointers in place of 1 file";
    assert_eq!(done.stderr.matches(warning).count(), 1, "{}", done.stderr);
    for row in rows(&world, "out") {
        assert!(row["message"].as_str().unwrap().contains(warning), "{row}");
    }
}

/// The worktree of an attempt is removed before the next one creates its own at the same path.
#[test]
fn a_job_with_many_files_is_tried_again_in_a_whole_tree() {
    let world = fleet(0);
    for n in 0..3_000 {
        world.beside(&format!("big/d{}/{n}.txt", n % 50), "x\n");
    }
    repository(&world, "big");
    let manifest = "version: 1\nrecipe: greet.yaml\npolicy: policy.yaml\nretry: { on: [failed], max: 2 }\n\
                    targets: [{ path: big, id: bad, model: \"script:bad.yaml\" }]\n";
    batch(&world, manifest, &[]).exits(1);
    assert_eq!(verdicts(&world), ["failed"; 3]);
    assert!(!world.path().join("out/work/bad").exists());
}

#[test]
fn too_many_failures_stop_the_queue_and_name_what_was_not_run() {
    let world = fleet(1);
    let manifest = asking(6, "models: [\"script:broken.yaml\"]\nstop: { provider_failures: 2 }\n");
    world.beside(
        "broken.yaml",
        json!({"replies": [{"error": {"class": "unavailable", "message": "down"}}]}).to_string(),
    );
    let done = batch(&world, &manifest, &["--jobs", "1", "--format", "json"])
        .exits(10)
        .json();
    assert_eq!(
        (&done["jobs"]["provider"], &done["jobs"]["not_run"]),
        (&json!(2), &json!(4))
    );
    assert_eq!(done["not_run"][0]["job"], "j2");
    let junit = std::fs::read_to_string(world.path().join("out/junit.xml")).unwrap();
    assert_eq!(junit.matches("name=\"standing\"").count(), 2, "{junit}");
    assert_eq!(junit.matches("value=\"not_run\"").count(), 4, "{junit}");
    assert!(done["stopped"].as_str().unwrap().contains("2 attempts in a row"));
    // A key that is refused stops the jobs of that service at once.
    world.beside(
        "broken.yaml",
        json!({"replies": [{"error": {"class": "auth", "message": "no such key"}}]}).to_string(),
    );
    let done = batch(&world, &manifest, &["--jobs", "1", "--format", "json"])
        .exits(10)
        .json();
    assert_eq!((&done["jobs"]["run"], &done["jobs"]["not_run"]), (&json!(1), &json!(5)));
    let failed = asking(7, "models: [\"script:none.yaml\"]\nstop: { failed: 20% }\n")
        .replace("ask.yaml", "greet.yaml")
        .replace("params: { n:", "params: { who:");
    world.beside("none.yaml", script(&[says("no")]));
    world.beside("m.yaml", &failed);
    let done = call(
        &world,
        &[
            "batch",
            "m.yaml",
            "--policy",
            "policy.yaml",
            "--jobs",
            "1",
            "--out",
            "other",
            "--format",
            "json",
        ],
    );
    let done = done.exits(10).json();
    assert_eq!(
        (&done["jobs"]["failed"], &done["jobs"]["not_run"]),
        (&json!(5), &json!(2)),
        "a share of few jobs counts from five on"
    );
    assert_eq!(done["stopped"], "5 of 7 jobs did not pass (stop.failed: 20%)");
}

/// Jobs that are tried again count too, so that a service that is down is not asked by every job.
#[test]
fn attempts_that_are_tried_again_stop_the_queue() {
    let world = fleet(1);
    let head = "models: [\"script:broken.yaml\"]\nstop: { provider_failures: 2 }\nretry: { on: provider, max: 2 }\n";
    world.beside(
        "broken.yaml",
        json!({"replies": [{"error": {"class": "unavailable", "message": "down"}}]}).to_string(),
    );
    let done = batch(&world, &asking(5, head), &["--jobs", "1", "--format", "json"])
        .exits(10)
        .json();
    assert_eq!(verdicts(&world), ["provider"; 2]);
    assert_eq!(
        (&done["jobs"]["provider"], &done["jobs"]["not_run"]),
        (&json!(2), &json!(3)),
        "{done}"
    );
}

/// A job that fails each night does not keep the others from being run.
#[test]
fn jobs_that_failed_last_are_started_after_the_others() {
    let world = fleet(2);
    let manifest = "version: 1\nrecipe: greet.yaml\npolicy: policy.yaml\nstop: { failed: 1 }\ntargets:\n  \
                    - { path: r0, id: bad, model: \"script:bad.yaml\" }\n  \
                    - { path: r1, id: good, model: \"script:ok.yaml\" }\n";
    let done = batch(&world, manifest, &["--jobs", "1", "--format", "json"])
        .exits(10)
        .json();
    assert_eq!(done["not_run"][0]["job"], "good");
    assert_eq!(done["stopped"], "1 of 2 jobs did not pass (stop.failed: 1)");
    batch(&world, manifest, &["--jobs", "1"]).exits(1);
    assert_eq!(verdicts(&world), ["failed", "passed", "failed"]);
}

#[test]
fn a_second_batch_leaves_the_directory_alone() {
    let world = fleet(1);
    world.beside(
        "slow.yaml",
        json!({"replies": [{"text": "hi", "delay_ms": 1500}]}).to_string(),
    );
    world.beside("m.yaml", asking(1, "models: [\"script:slow.yaml\"]\n"));
    let args = ["batch", "m.yaml", "--out", "out"];
    let mut first = command(&world, &args)
        .stdout(std::process::Stdio::null())
        .stderr(std::process::Stdio::null())
        .spawn()
        .unwrap();
    super::harness::until("the batch runs", || world.path().join("out/jobs").exists());
    let second = call(&world, &args).exits(8);
    assert!(second.stderr.contains("another batch"), "{}", second.stderr);
    assert!(first.wait().unwrap().success());
}

/// A world whose model is this service, with prices.
fn served(world: World, service: &Service) -> World {
    let prices = world.beside(
        "prices.json",
        r#"[{"model": "gemini/gemini-2.5-pro", "price": {"input": 100.0, "output": 100.0}}]"#,
    );
    world
        .env("GEMINI_API_KEY", "k-0123456789")
        .env("GOOGLE_GEMINI_BASE_URL", service.url.clone())
        .env("OVERNIGHT_PRICES", prices)
}

#[test]
fn the_budget_is_never_passed() {
    // 110 tokens at 100 dollars a million: 0.011 dollars a request.
    let service = Gemini::new(vec![gemini::says("hi")]);
    let world = served(fleet(1), &service);
    let manifest = asking(12, "models: [gemini/gemini-2.5-pro]\nbudget: { cost: 0.05 }\n");
    let done = batch(&world, &manifest, &["--jobs", "8", "--format", "json"])
        .exits(10)
        .json();
    let asked = service.seen().len();
    assert_eq!(asked, 4, "0.044 of 0.05 dollars");
    assert_eq!(
        (&done["jobs"]["no_change"], &done["jobs"]["not_run"]),
        (&json!(4), &json!(8))
    );
    assert!((done["cost"].as_f64().unwrap() - 0.044).abs() < 1e-9);
    assert!(done["stopped"].as_str().unwrap().contains("cost"));
    // The next call has a budget of its own and goes on.
    let done = batch(&world, &manifest, &["--jobs", "8", "--format", "json"])
        .exits(10)
        .json();
    assert_eq!(
        (&done["jobs"]["run"], &done["jobs"]["up_to_date"]),
        (&json!(4), &json!(4))
    );
}

/// The most jobs that ran at the same time, as the record says.
fn at_once(world: &World) -> usize {
    let text = std::fs::read_to_string(world.path().join("out/batch.jsonl")).unwrap();
    let (mut now, mut most) = (0_usize, 0);
    for line in text.lines() {
        if line.contains("job_started") {
            now += 1;
            most = most.max(now);
        } else if line.contains("job_ended") {
            now -= 1;
        }
    }
    most
}

/// A budget of the batch leaves `--jobs` in force: a job reserves the default cost of a run, and a script nothing.
#[test]
fn a_budget_of_the_batch_lets_jobs_run_at_once() {
    let service = Gemini::new(vec![gemini::says("hi")]);
    let world = served(fleet(1), &service);
    let manifest = asking(
        8,
        "models: [gemini/gemini-2.5-pro]\nbudget: { cost: 40 }\nrate: { requests: 4/s }\n",
    );
    let done = batch(&world, &manifest, &["--jobs", "2"]).exits(0);
    assert_eq!(at_once(&world), 2);
    assert!(!done.stderr.contains("holds jobs back"), "{}", done.stderr);
    // A budget that covers one job at a time says so.
    let small = asking(
        4,
        "models: [gemini/gemini-2.5-pro]\nbudget: { cost: 6 }\nrate: { requests: 4/s }\n",
    );
    let world = served(fleet(1), &service);
    let done = batch(&world, &small, &["--jobs", "4"]).exits(0);
    assert!(
        done.stderr
            .contains("the budget of the batch (`cost`), not --jobs, holds jobs back"),
        "{}",
        done.stderr
    );
    let world = fleet(1);
    world.beside(
        "slow.yaml",
        json!({"replies": [{"text": "hi", "delay_ms": 1500}]}).to_string(),
    );
    let free = asking(2, "models: [\"script:slow.yaml\"]\nbudget: { cost: 0.01 }\n");
    batch(&world, &free, &["--jobs", "2"]).exits(0);
    assert_eq!(at_once(&world), 2);
}

/// `--only` compares names without their digests, or parameters; an expression that selects nothing is a mistake.
#[test]
fn only_selects_jobs_by_name_and_by_parameter() {
    let world = fleet(3);
    let manifest = "version: 1\nrecipe: ask.yaml\nmodels: [\"script:ok.yaml\"]\nmatrix: { n: [plain, short] }\n\
                    targets:\n  - { path: r0 }\n  - { path: r1, id: b }\n  - { path: r2 }\n";
    let listed = |only: &str| -> Vec<String> {
        let jobs = batch(&world, manifest, &["--dry-run", "--format", "json", "--only", only])
            .exits(0)
            .json();
        let jobs = jobs["jobs"].as_array().unwrap().clone();
        let run = jobs.iter().filter(|job| job["state"] == "run");
        run.map(|job| job["job"].as_str().unwrap().to_owned()).collect()
    };
    let all = listed(".");
    assert_eq!(all.len(), 6);
    assert_eq!(listed("^[a-f0-9]+$").len(), 2, "only the two of the id b");
    assert_eq!(listed("n=short").len(), 3);
    for job in &all {
        assert_eq!(&listed(&format!("^{job}$")), std::slice::from_ref(job));
    }
    for wrong in ["nosuch", "n=long"] {
        let done = batch(&world, manifest, &["--only", wrong]).exits(2);
        assert!(done.stderr.contains("it selects none of the 6 jobs"), "{}", done.stderr);
        assert!(
            done.stderr
                .contains("names are for example ask-r0-ok.yaml, b, ask-r2-ok.yaml")
                || done.stderr.contains("parameters are for example n=plain, n=short"),
            "{}",
            done.stderr
        );
    }
    let shown = batch(&world, manifest, &["--dry-run"]).exits(0).stdout;
    assert_eq!(shown.matches("  n=short\n").count(), 3, "{shown}");
    assert!(!world.path().join("out/jobs").exists());
}

/// A model that cannot be asked stops the batch before its first job.
#[test]
fn a_model_without_a_key_starts_no_job() {
    let world = fleet(1);
    let head = "models: [gemini/gemini-2.5-pro]\nretry: { on: [environment], max: 2 }\n";
    let done = batch(&world, &asking(3, head), &["--format", "json"]).exits(8);
    assert!(
        done.stderr
            .contains("no key for gemini/gemini-2.5-pro: set GEMINI_API_KEY"),
        "{}",
        done.stderr
    );
    assert!(
        done.stderr.contains("no job was started: 3 jobs need it"),
        "{}",
        done.stderr
    );
    assert_eq!(done.json()["verdict"], "environment");
    assert!(!world.path().join("out/jobs").exists());
    // A plan needs no key.
    let listed = batch(&world, &asking(3, head), &["--dry-run"]).exits(0);
    let warning = "warning[unusable-model]: no key for gemini/gemini-2.5-pro: set GEMINI_API_KEY";
    assert!(
        listed.stdout.contains("3 to run") && listed.stderr.contains(warning),
        "{}",
        listed.stderr
    );
    let listed = batch(&world, &asking(3, head), &["--dry-run", "--format", "json"]).exits(0);
    assert_eq!(listed.json()["jobs"].as_array().unwrap().len(), 3);
    batch(&world, &asking(3, head), &["--dry-run", "-m", "nobody/x"]).exits(2);
    let done = batch(&world, &asking(3, head), &["-m", "nobody/x"]).exits(2);
    assert!(
        done.stderr.contains("no provider for the model `nobody/x`"),
        "{}",
        done.stderr
    );
    // What has passed already needs no key.
    let world = fleet(1);
    world.beside("hi.yaml", script(&[says("hi")]));
    batch(&world, &asking(2, "models: [\"script:hi.yaml\"]\n"), &[]).exits(0);
    batch(&world, &asking(2, "models: [\"script:hi.yaml\"]\n"), &[]).exits(0);
}

/// A script reads the result files even after a refusal, and would take those of an earlier call for a success.
#[test]
fn a_refused_batch_leaves_no_result_of_an_earlier_call() {
    let world = fleet(1);
    world.beside("hi.yaml", script(&[says("hi")]));
    let good = asking(1, "models: [\"script:hi.yaml\"]\n");
    let out = |name: &str| std::fs::read_to_string(world.path().join("out").join(name));
    let verdict = || {
        let result: Value = serde_json::from_str(&out("result.json").unwrap()).unwrap();
        result["verdict"].as_str().unwrap().to_owned()
    };
    for (wrong, code) in [
        (good.replace("version: 1", "version: 1\nnothing: 1"), 3),
        (format!("{good}policy: no-such.yaml\n"), 3),
        (good.replace("script:hi.yaml", "anthropic/claude"), 8),
    ] {
        batch(&world, &wrong, &["--changed"]).exits(code);
        assert_eq!(verdict(), if code == 3 { "invalid" } else { "environment" });
        let xml = out("junit.xml").unwrap();
        assert!(xml.contains("errors=\"1\"") && !xml.contains("no_change"), "{xml}");
        assert!(out("summary.md").is_err() && out("report.html").is_err());
        // A dry run and a wrong command line write no outputs.
        batch(&world, &good, &["--changed"]).exits(0);
        batch(&world, &wrong, &["--dry-run", "--changed"]);
        batch(&world, &good, &["--only", "["]).exits(2);
        assert_eq!(verdict(), "no_change");
    }
    // The directory of another batch keeps its result.
    batch(&world, &asking(2, "models: [\"script:hi.yaml\"]\n"), &[]).exits(3);
    assert_eq!(verdict(), "no_change");
}

/// What cannot be read has no name: the directory that the call names then counts as its own.
#[test]
fn a_manifest_that_cannot_be_read_leaves_no_result_of_an_earlier_call() {
    let world = fleet(1);
    world.beside("hi.yaml", script(&[says("hi")]));
    let good = asking(1, "models: [\"script:hi.yaml\"]\n").replace("version: 1", "version: 1\nname: weekly");
    let verdict = || {
        let text = std::fs::read_to_string(world.path().join("out/result.json")).unwrap();
        serde_json::from_str::<Value>(&text).unwrap()["verdict"]
            .as_str()
            .unwrap()
            .to_owned()
    };
    let quoted = good.replace("\nname: weekly", "\n\"name\": weekly\nnothing: 1");
    let spaced = good.replace("\nname: weekly", "\nname : weekly\nnothing: 1");
    let flow = "{ name: weekly, nothing: 1, version: 1 }\n";
    for wrong in [quoted.as_str(), &spaced, flow, "targets: [", "", "\u{0}"] {
        batch(&world, &good, &[]).exits(0);
        assert_eq!(verdict(), "no_change");
        batch(&world, wrong, &[]).exits(3);
        assert_eq!(verdict(), "invalid", "{wrong}");
    }
    batch(&world, &good, &[]).exits(0);
    // A name that was mistyped on the command line, and a manifest on stdin.
    call(&world, &["batch", "nowhere.yaml", "--out", "out"]).exits(3);
    assert_eq!(verdict(), "invalid");
    batch(&world, &good, &[]).exits(0);
    call(&world, &["batch", "-", "--out", "out"]).exits(3);
    assert_eq!(verdict(), "invalid");
    // The default directory, whose name is that of the batch.
    let default = || {
        let text = std::fs::read_to_string(world.path().join(".overnight/batches/weekly/result.json")).unwrap();
        serde_json::from_str::<Value>(&text).unwrap()["verdict"]
            .as_str()
            .unwrap()
            .to_owned()
    };
    world.beside("m.yaml", &good);
    call(&world, &["batch", "m.yaml"]).exits(0);
    assert_eq!(default(), "no_change");
    world.beside("m.yaml", &quoted);
    call(&world, &["batch", "m.yaml", "--dry-run"]).exits(3);
    assert_eq!(default(), "no_change");
    call(&world, &["batch", "m.yaml"]).exits(3);
    assert_eq!(default(), "invalid");
    // A manifest that names another batch is that of another directory, however the name is written.
    for other in [
        quoted.replace("weekly", "daily"),
        "name: daily\ntargets: [".to_owned(),
        good.replace("name: weekly", "nothing: 1"),
    ] {
        batch(&world, &good, &[]).exits(0);
        batch(&world, &other, &[]).exits(3);
        assert_eq!(verdict(), "no_change", "{other}");
    }
}

#[test]
fn a_batch_directory_must_be_new_empty_or_of_an_earlier_batch() {
    let world = fleet(1);
    world.beside("hi.yaml", script(&[says("hi")]));
    let manifest = world.beside("m.yaml", asking(1, "models: [\"script:hi.yaml\"]\n"));
    world.beside("foreign/result.json", "mine");
    world.beside("foreign/notes.txt", "mine");
    for more in [&[][..], &["--dry-run"]] {
        let done = call(&world, &[&["batch", &manifest, "--out", "foreign"], more].concat()).exits(2);
        assert!(
            done.stderr.contains("--out foreign contains notes.txt"),
            "{}",
            done.stderr
        );
    }
    let found = std::fs::read_dir(world.path().join("foreign")).unwrap().count();
    let result = std::fs::read_to_string(world.path().join("foreign/result.json")).unwrap();
    assert_eq!((found, result.as_str()), (2, "mine"));
    std::fs::create_dir(world.path().join("empty")).unwrap();
    for out in ["empty", "new", "new"] {
        call(&world, &["batch", &manifest, "--out", out]).exits(0);
    }
}

/// `--dry-run` refuses the directory of another batch as the call does.
#[test]
fn a_dry_run_refuses_what_the_call_refuses() {
    let world = fleet(1);
    world.beside("hi.yaml", script(&[says("hi")]));
    batch(&world, &asking(1, "models: [\"script:hi.yaml\"]\n"), &[]).exits(0);
    let other = asking(2, "models: [\"script:hi.yaml\"]\n");
    let done = batch(&world, &other, &["--dry-run"]).exits(3);
    assert!(done.stderr.contains("changed-manifest"), "{}", done.stderr);
    batch(&world, &other, &["--dry-run", "--changed"]).exits(0);
}

#[test]
fn an_empty_stdin_and_a_short_retry_are_told() {
    let world = fleet(1);
    let done = call(&world, &["batch", "-", "--recipe", "ask.yaml"]).exits(3);
    assert!(done.stderr.contains("stdin holds no jobs"), "{}", done.stderr);
    // What `jq` prints without `-c`, an array, plain names; as jobs and as a list of a manifest.
    let jobs = [
        "{\n  \"path\": \"r0\"\n}\n{\n  \"path\": \"r1\"\n}\n",
        "{\n  \"path\": \"r0\"\n}\n",
        "[{\"path\": \"r0\"}]\n",
    ];
    for (at, text) in jobs.into_iter().chain(["r0\nr1\n"]).enumerate() {
        world.beside("jobs.json", text);
        let done = call(&world, &["batch", "jobs.json", "--recipe", "ask.yaml"]).exits(3);
        assert!(
            done.stderr.starts_with("jobs.json:1:1: error[not-lines]") && done.stderr.contains("`jq -c '.[]'`"),
            "{}",
            done.stderr
        );
        assert_eq!(done.stderr.matches("error[").count(), 1, "{}", done.stderr);
        if at < jobs.len() {
            let done = batch(
                &world,
                "version: 1\nrecipe: ask.yaml\ntargets: [{ file: jobs.json }]\n",
                &[],
            )
            .exits(3);
            assert!(
                done.stderr.contains("jobs.json:1:1: error[not-lines]"),
                "{}",
                done.stderr
            );
        }
    }
    let done = batch(&world, &asking(1, "models: [\"script:ok.yaml\"]\nretry: 2\n"), &[]).exits(3);
    assert!(
        done.stderr
            .contains("write `retry: { on: [provider, environment], max: 2 }`"),
        "{}",
        done.stderr
    );
}

#[test]
fn all_jobs_share_one_rate() {
    let service = Gemini::new(vec![gemini::says("hi")]);
    let world = served(fleet(1), &service);
    let began = Instant::now();
    batch(
        &world,
        &asking(8, "models: [gemini/gemini-2.5-pro]\nrate: { requests: 4/s }\n"),
        &["--jobs", "8"],
    )
    .exits(0);
    assert_eq!(service.seen().len(), 8);
    assert!(began.elapsed() >= Duration::from_millis(1_750), "{:?}", began.elapsed());
}

#[test]
fn a_service_that_asks_for_a_pause_is_left_alone_by_all() {
    let slow = Answer::Status(
        429,
        vec!["retry-after: 1".into()],
        r#"{"error": {"message": "slow down", "status": "RESOURCE_EXHAUSTED"}}"#.into(),
    );
    let service = Gemini::new(vec![slow, gemini::says("hi")]);
    let world = served(fleet(1), &service);
    let done = batch(
        &world,
        &asking(6, "models: [gemini/gemini-2.5-pro]\n"),
        &["--jobs", "1"],
    )
    .exits(0);
    assert_eq!(service.seen().len(), 7);
    assert!(done.stderr.contains("asks for a pause"), "{}", done.stderr);
}

#[test]
fn a_spent_quota_is_asked_no_more_than_once_a_running_job() {
    let over = Answer::Status(
        429,
        Vec::new(),
        r#"{"error": {"message": "You exceeded your current quota", "code": "insufficient_quota"}}"#.into(),
    );
    let service = Gemini::new(vec![over]);
    let world = served(fleet(1), &service);
    let done = batch(
        &world,
        &asking(40, "models: [gemini/gemini-2.5-pro]\n"),
        &["--jobs", "4", "--format", "json"],
    )
    .exits(10)
    .json();
    assert!(service.seen().len() <= 4, "{}", service.seen().len());
    assert!(done["jobs"]["not_run"].as_u64().unwrap() >= 32, "{done}");
    let reason = done["not_run"][0]["reason"].as_str().unwrap();
    assert!(reason.contains("quota"), "{reason}");
}

/// A run whose model is gone asks the next of its list. A key that is refused there says nothing of the first service.
#[test]
fn the_refused_key_of_a_fallback_closes_only_its_own_service() {
    let gone = r#"{"error": {"message": "no such model"}}"#;
    let first = Gemini::new(vec![Answer::Status(404, Vec::new(), gone.into()), gemini::says("hi")]);
    let refused = r#"{"error": {"message": "bad key"}}"#;
    let second = Service::new(vec![Answer::Status(401, Vec::new(), refused.into())]);
    let world = served(fleet(1), &first)
        .env("OPENAI_API_KEY", "k-1123456789")
        .env("OPENAI_BASE_URL", second.url.clone());
    world.beside(
        "list.yaml",
        ASK.replace("name: ask", "name: list\nmodel: [gemini/gemini-2.5-pro, openai/gpt-5]"),
    );
    let manifest = "version: 1\ntargets:\n  - { path: r0, id: a, recipe: list.yaml }\n  \
                    - { path: r0, id: b, recipe: ask.yaml, model: gemini/gemini-2.5-pro }\n";
    let done = batch(&world, manifest, &["--jobs", "1", "--format", "json"]).exits(7);
    assert_eq!(verdicts(&world), ["provider", "no_change"]);
    assert!(
        done.stderr.contains("no more jobs are started for openai:"),
        "{}",
        done.stderr
    );
    assert_eq!(second.seen().len(), 1);
}

#[test]
fn a_job_that_waits_to_be_tried_again_keeps_its_result_when_its_service_closes() {
    let told = |status: u16, text: &str| {
        let body = json!({"error": {"message": text}}).to_string();
        Answer::Status(status, Vec::new(), body)
    };
    let service = Gemini::new(vec![told(404, "no such model"), told(401, "bad key")]);
    let world = served(fleet(1), &service);
    let head = "models: [gemini/gemini-2.5-pro]\nretry: { on: [provider], max: 1 }\n";
    let done = batch(&world, &asking(2, head), &["--jobs", "1", "--format", "json"])
        .exits(7)
        .json();
    assert_eq!(
        (&done["jobs"]["provider"], &done["jobs"]["not_run"]),
        (&json!(2), &json!(0)),
        "{done}"
    );
    assert_eq!(service.seen().len(), 2);
}

#[test]
fn trials_and_models_are_scored_and_compared() {
    let world = fleet(2);
    let manifest = "version: 1\nrecipe: greet.yaml\npolicy: policy.yaml\nmodels: [\"script:ok.yaml\", \"script:bad.yaml\"]\ntrials: 2\n\
                    targets:\n  - { path: r0 }\n  - { path: r1 }\n";
    let done = batch(&world, manifest, &["--jobs", "4", "--format", "json"])
        .exits(1)
        .json();
    let scores = done["evaluation"].as_array().unwrap();
    assert_eq!(scores.len(), 2);
    let of = |name: &str| {
        scores
            .iter()
            .find(|score| score["model"].as_str().unwrap().contains(name))
            .unwrap()
    };
    assert_eq!(
        (&of("ok")["passed"], &of("ok")["trials"], &of("ok")["jobs"]),
        (&json!(4), &json!(4), &json!(2))
    );
    assert_eq!(
        (&of("ok")["rate"], &of("ok")["high"], &of("ok")["pass_at"]["2"]),
        (&json!(1.0), &json!(1.0), &json!(1.0))
    );
    assert!((of("bad")["high"].as_f64().unwrap() - 0.4899).abs() < 1e-3);
    let page = std::fs::read_to_string(world.path().join("out/report.html")).unwrap();
    assert!(page.contains("Recipes and models") && page.contains("0.0 to 49.0") || page.contains("0.0 %"));
    // The same jobs with one model each, side by side.
    for (dir, model) in [("a", "script:ok.yaml"), ("b", "script:bad.yaml")] {
        call(
            &world,
            &["batch", "m.yaml", "--model", model, "--out", dir, "--jobs", "4"],
        );
    }
    let found = call(&world, &["compare", "a", "b", "--format", "json"]).exits(0).json();
    assert_eq!(found["broken"].as_array().unwrap().len(), 4);
    assert_eq!(
        (&found["both_passed"], &found["fixed"], &found["only_a"]),
        (&json!(0), &json!([]), &json!([]))
    );
    assert!((found["p_value"].as_f64().unwrap() - 0.125).abs() < 1e-9);
    call(&world, &["compare", "a", "b", "--fail-on", "broken"]).exits(1);
    call(&world, &["compare", "b", "a", "--fail-on", "broken"]).exits(0);
}

/// A job that the manifest does not define any more is not broken, and rows that are missing are not well.
#[test]
fn a_comparison_takes_the_jobs_of_the_plan_and_no_cut_rows() {
    let world = fleet(1);
    let manifest = |model: &str, targets: &str| {
        let text = format!(
            "version: 1\nrecipe: greet.yaml\npolicy: policy.yaml\nmodels: [\"script:{model}.yaml\"]\ntargets: [{targets}]\n"
        );
        world.beside("m.yaml", text);
    };
    let (one, two) = ("{ path: r0, id: a }", "{ path: r0, id: a }, { path: r0, id: b }");
    manifest("ok", two);
    call(&world, &["batch", "m.yaml", "--out", "before"]).exits(0);
    manifest("bad", two);
    call(&world, &["batch", "m.yaml", "--out", "after"]).exits(1);
    manifest("ok", one);
    call(&world, &["batch", "m.yaml", "--out", "after", "--changed"]).exits(0);
    let compare = |b: &str| {
        let args = ["compare", "before", b, "--fail-on", "broken", "--format", "json"];
        call(&world, &args)
    };
    let done = compare("after").exits(0);
    assert_eq!(
        (&done.json()["broken"], &done.json()["only_a"]),
        (&json!([]), &json!(["b"]))
    );
    assert!(
        done.stderr.contains("1 job of A without a counterpart"),
        "{}",
        done.stderr
    );
    copy(&world, "before", "cut");
    let rows = world.path().join("cut/runs.jsonl");
    let text = std::fs::read_to_string(&rows).unwrap();
    std::fs::write(&rows, &text[..text.len() - 9]).unwrap();
    assert!(compare("cut").exits(3).stderr.contains("cut-bundle"));
    // A file alone, and a batch that has not ended.
    let done = compare("cut/runs.jsonl").exits(0);
    assert!(done.stderr.contains("the last line is cut"), "{}", done.stderr);
    std::fs::remove_file(world.path().join("cut/bundle.json")).unwrap();
    let done = compare("cut").exits(0);
    assert!(
        done.stderr.contains("1 job of its plan has no result"),
        "{}",
        done.stderr
    );
    std::fs::write(&rows, "").unwrap();
    assert!(compare("cut").exits(3).stderr.contains("nothing can be compared"));
    call(&world, &["compare", "before", "cut"]).exits(0);
}

/// A job that the last call suspended or left out has no result, although an earlier call with other inputs ended it.
#[test]
fn results_of_an_earlier_call_are_not_those_of_the_last_one() {
    const ASKS: &str = "version: 1\nextends: [builtin:edit]\ndefault: suspend\nrules:\n  \
                        - { suspend: write_file, because: ask }\nsandbox: { level: none }\n";
    let world = fleet(1);
    let manifest = "version: 1\nrecipe: greet.yaml\npolicy: policy.yaml\nmodels: [\"script:ok.yaml\"]\ntargets:\n  \
                    - { path: r0, id: a }\n  - { path: r0, id: b, params: { who: you } }\n";
    let night = |more: &[&str], code: i32| {
        let args = [&["--format", "json"][..], more].concat();
        let done = batch(&world, manifest, &args).exits(code).json();
        // A merge says the same.
        let merged = call(&world, &["merge", "out", "--out", "merged", "--format", "json"]).exits(code);
        let merged = merged.json();
        for key in ["verdict", "jobs", "usage", "cost", "evaluation"] {
            assert_eq!(merged[key], done[key], "{key}");
        }
        done
    };
    let compared = |b: &str| call(&world, &["compare", "before", b, "--format", "json"]).exits(0);
    let deliver = |code: i32| deliver_dry(&world, code);
    night(&[], 0);
    copy(&world, "out", "before");
    world.beside("policy.yaml", ASKS);
    let done = night(&[], 5);
    assert_eq!(
        (&done["jobs"]["suspended"], &done["usage"]["turns"]),
        (&json!(2), &json!(2))
    );
    // Each job names the command that continues it, and that command works.
    let reason = done["interrupted"][0]["reason"].as_str().unwrap();
    let (_, rest) = reason.split_once("answer with `").unwrap();
    let (answer, _) = rest.split_once("`, then start the batch again").unwrap();
    assert!(
        answer.starts_with("overnight resume ") && answer.contains(" --approve c1@"),
        "{reason}"
    );
    for dir in ["out", "merged"] {
        let done = compared(dir);
        assert_eq!(
            (&done.json()["both_passed"], &done.json()["only_a"]),
            (&json!(0), &json!(["a", "b"])),
            "{dir}"
        );
        let note = "2 jobs of its plan have no result, for example a (suspended)";
        assert!(done.stderr.contains(note), "{dir}: {}", done.stderr);
    }
    call(&world, &["compare", "before", "out", "--fail-on", "broken"]).exits(3);
    let done = deliver(10);
    assert_eq!(done.stdout.matches("waits for approval").count(), 2, "{}", done.stdout);
    // Only one job is run, and fails.
    world.beside("policy.yaml", POLICY);
    world.beside("ok.yaml", script(&[says("I will not")]));
    let done = night(&["--only", "^a$"], 1);
    assert_eq!(
        (&done["jobs"]["failed"], &done["jobs"]["skipped"]),
        (&json!(1), &json!(1))
    );
    let done = compared("out");
    assert_eq!(
        (&done.json()["broken"], &done.json()["only_a"]),
        (&json!(["a"]), &json!(["b"]))
    );
    assert!(done.stderr.contains("for example b (skipped)"), "{}", done.stderr);
    let done = deliver(1);
    assert!(done.stderr.contains("1 job that `--only` left out"), "{}", done.stderr);
    assert!(!done.stdout.contains("\"job\":\"b\""), "{}", done.stdout);
    // With the inputs of the first call its result of the other job counts again.
    world.beside("ok.yaml", script(&[writes("hello.txt", "hello\n"), says("done")]));
    let done = night(&[], 0);
    assert_eq!(
        (&done["jobs"]["run"], &done["jobs"]["up_to_date"]),
        (&json!(1), &json!(1))
    );
    assert_eq!(opened(&deliver(0)), 2);
}

/// What `deliver` would make of the batch in `out`.
fn deliver_dry(world: &World, code: i32) -> Done {
    Done::of(dry_delivery(world, "out").output().unwrap()).exits(code)
}

fn dry_delivery(world: &World, dir: &str) -> std::process::Command {
    let args = [
        "deliver",
        dir,
        "--repo",
        "r0",
        "--to",
        "mbox",
        "--dry-run",
        "--format",
        "json",
    ];
    let mut command = command(world, &args);
    command.envs(GIT_IDENTITY);
    command
}

/// Finished jobs are delivered, and unfinished ones are named. The record is cut to what a kill leaves.
#[test]
fn a_batch_that_was_killed_is_delivered_as_incomplete() {
    let world = fleet(1);
    let manifest = "version: 1\nrecipe: greet.yaml\npolicy: policy.yaml\nmodels: [\"script:ok.yaml\"]\ntargets:\n  \
                    - { path: r0, id: a }\n  - { path: r0, id: b, params: { who: you } }\n";
    let deliver = |code: i32| deliver_dry(&world, code);
    batch(&world, manifest, &["--jobs", "1"]).exits(0);
    assert_eq!(opened(&deliver(0)), 2);
    let record = world.path().join("out/batch.jsonl");
    let text = std::fs::read_to_string(&record).unwrap();
    std::fs::remove_file(world.path().join("out/bundle.json")).unwrap();
    // The record lacks the end of the call; the end of a started job; a job that was not started.
    for lines in [4, 3] {
        let kept: String = text.split_inclusive('\n').take(lines).collect();
        std::fs::write(&record, kept).unwrap();
        let done = deliver(10);
        assert_eq!(opened(&done), 1, "{}", done.stdout);
        let left = "\"reason\":\"the last call of the batch was ended before the job ended: start the batch again\"";
        let line = done.stdout.lines().find(|line| line.contains("\"job\":\"b\"")).unwrap();
        assert!(
            line.contains(left) && line.contains("\"outcome\":\"refused\""),
            "{line}"
        );
    }
    batch(&world, manifest, &[]).exits(0);
    assert_eq!(opened(&deliver(0)), 2);
    // A second call for finished jobs is killed before it runs them: their results are from the earlier call.
    batch(&world, manifest, &["--again", "--jobs", "1"]).exits(0);
    let text = std::fs::read_to_string(&record).unwrap();
    let kept: String = text.split_inclusive('\n').take(text.lines().count() - 3).collect();
    std::fs::write(&record, kept).unwrap();
    std::fs::remove_file(world.path().join("out/bundle.json")).unwrap();
    let done = deliver(10);
    assert!(done.stdout.contains("before it had run 1 job more"), "{}", done.stdout);
}

/// A call that was killed before its first job ended leaves no rows, and one that was killed at once no call in its record.
#[test]
fn a_batch_that_was_killed_before_its_first_row_is_incomplete() {
    let world = fleet(1);
    let manifest = "version: 1\nrecipe: greet.yaml\npolicy: policy.yaml\nmodels: [\"script:ok.yaml\"]\ntargets:\n  \
                    - { path: r0, id: a }\n  - { path: r0, id: b, params: { who: you } }\n";
    batch(&world, manifest, &["--jobs", "1"]).exits(0);
    let out = world.path().join("out");
    let text = std::fs::read_to_string(out.join("batch.jsonl")).unwrap();
    for file in ["runs.jsonl", "bundle.json", "result.json"] {
        std::fs::remove_file(out.join(file)).unwrap();
    }
    for lines in [2, 1] {
        let kept: String = text.split_inclusive('\n').take(lines).collect();
        std::fs::write(out.join("batch.jsonl"), kept).unwrap();
        let done = deliver_dry(&world, 10);
        for job in ["a", "b"] {
            assert!(done.stdout.contains(&format!("\"job\":\"{job}\"")), "{}", done.stdout);
        }
    }
    std::fs::write(out.join("batch.jsonl"), "").unwrap();
    deliver_dry(&world, 10);
    std::fs::remove_file(out.join("plan.json")).unwrap();
    let done = deliver_dry(&world, 10);
    assert!(done.stdout.contains("start the batch again"), "{}", done.stdout);
    batch(&world, manifest, &[]).exits(0);
    assert_eq!(opened(&deliver_dry(&world, 0)), 2);
}

/// The rows of a batch without what differs from run to run.
fn compared(world: &World, dir: &str) -> Vec<Value> {
    let mut rows = rows(world, dir);
    for row in &mut rows {
        let row = row.as_object_mut().unwrap();
        for key in ["started", "ended", "seconds", "shard", "run"] {
            row.remove(key);
        }
    }
    rows.sort_by_key(|row| row["job"].as_str().unwrap().to_owned());
    rows
}

fn sharded(world: &World, shard: &str) -> String {
    let dir = format!("out/shards/{}", shard.replace('/', "-of-"));
    call(world, &["batch", "m.yaml", "--shard", shard, "--out", &dir]).exits(0);
    dir
}

/// A shard to which the plan gives no job is not missing.
#[test]
fn a_shard_without_jobs_is_not_missing() {
    let world = fleet(1);
    world.beside(
        "m.yaml",
        asking(1, "policy: policy.yaml\nmodels: [\"script:ok.yaml\"]\n"),
    );
    let dirs = ["1/3", "2/3", "3/3"].map(|shard| sharded(&world, shard));
    let has_job = |dir: &&String| !rows(&world, dir).is_empty();
    let own = dirs.iter().position(|dir| has_job(&dir)).unwrap();
    let merge = |dirs: &[&str]| call(&world, &[&["merge"][..], dirs, &["--out", "merged"]].concat());
    let done = merge(&[&dirs[own]]).exits(0);
    assert!(!done.stderr.contains("missing"), "{}", done.stderr);
    let others: Vec<&str> = dirs.iter().filter(|dir| !has_job(dir)).map(String::as_str).collect();
    let done = merge(&others[..1]).exits(10);
    let missing = format!("shard {}/3 is missing", own + 1);
    assert!(done.stderr.contains(&missing), "{}", done.stderr);
    assert_eq!(done.stderr.matches("is missing").count(), 1, "{}", done.stderr);
}

#[test]
fn shards_merge_to_what_one_machine_gives() {
    let world = fleet(1);
    let manifest = asking(12, "policy: policy.yaml\nmodels: [\"script:ok.yaml\"]\n")
        .replace("ask.yaml", "greet.yaml")
        .replace("params: { n:", "params: { who:");
    world.beside("m.yaml", &manifest);
    call(&world, &["batch", "m.yaml", "--out", "one"]).exits(0);
    let dirs: Vec<String> = ["1/3", "2/3", "3/3"]
        .iter()
        .map(|shard| sharded(&world, shard))
        .collect();
    let merge = |dirs: &[&str], out: &str| {
        let mut args = vec!["merge"];
        args.extend(dirs);
        args.extend(["--out", out, "--format", "json"]);
        call(&world, &args)
    };
    let all: Vec<&str> = dirs.iter().map(String::as_str).collect();
    let merged = merge(&all, "out").exits(0).json();
    assert_eq!(
        (&merged["jobs"]["passed"], &merged["jobs"]["not_run"]),
        (&json!(12), &json!(0))
    );
    let place = "so `overnight deliver` refuses this result";
    assert!(!merge(&all, "out").stderr.contains(place));
    assert_eq!(compared(&world, "out"), compared(&world, "one"));
    for row in rows(&world, "out") {
        assert!(
            world
                .path()
                .join("out")
                .join(row["run"].as_str().unwrap())
                .join("journal.jsonl")
                .is_file()
        );
        assert!(world.path().join("out").join(row["patch"].as_str().unwrap()).is_file());
    }
    // It was merged again into the same place, and is compared with the one machine's.
    let same = call(&world, &["compare", "one", "out", "--format", "json"])
        .exits(0)
        .json();
    assert_eq!((&same["both_passed"], &same["only_a"]), (&json!(12), &json!([])));
    // A merge is not merged again, least of all into itself.
    for to in ["out", "again"] {
        let done = merge(&["out"], to).exits(3);
        assert!(
            done.stderr.contains("error[no-bundle]") && done.stderr.contains("name out/shards/*"),
            "{}",
            done.stderr
        );
    }
    assert_eq!(compared(&world, "out"), compared(&world, "one"));
    assert!(!world.path().join("again").exists());
    // What is missing is named.
    let done = merge(&all[..2], "part").exits(10);
    assert!(done.stderr.contains("shard 3/3 is missing"), "{}", done.stderr);
    assert!(done.stderr.contains(place), "{}", done.stderr);
    assert!(world.path().join("part/runs.jsonl").is_file());
    // Ran twice.
    copy(&world, all[0], "twice");
    let done = merge(&[all[0], all[1], all[2], "twice"], "m1").exits(3);
    assert!(done.stderr.contains("shard-twice"), "{}", done.stderr);
    // Cut, and altered.
    copy(&world, all[2], "cut");
    let path = world.path().join("cut/runs.jsonl");
    let text = std::fs::read_to_string(&path).unwrap();
    std::fs::write(&path, &text[..text.len() - 10]).unwrap();
    let done = merge(&[all[0], all[1], "cut"], "m2").exits(3);
    assert!(done.stderr.contains("cut-bundle"), "{}", done.stderr);
    std::fs::write(&path, text.replacen("passed", "failed", 1)).unwrap();
    let done = merge(&[all[0], all[1], "cut"], "m3").exits(3);
    assert!(done.stderr.contains("altered-bundle"), "{}", done.stderr);
    assert!(!world.path().join("m3").exists());
    // A patch that is not the one of its row.
    copy(&world, all[2], "patched");
    let patch = std::fs::read_dir(world.path().join("patched/patches"))
        .unwrap()
        .next()
        .unwrap()
        .unwrap()
        .path();
    std::fs::write(patch, "other").unwrap();
    let done = merge(&[all[0], all[1], "patched"], "m4").exits(3);
    assert!(done.stderr.contains("altered-bundle"), "{}", done.stderr);
    assert!(!world.path().join("m4").exists());
    // Another split, another manifest, no bundle.
    let half = sharded(&world, "1/2");
    let done = merge(&[all[0], all[1], all[2], &half], "m5").exits(3);
    assert!(done.stderr.contains("overlap"), "{}", done.stderr);
    world.beside("m.yaml", manifest.replace("n3", "other"));
    let other = sharded(&world, "2/2");
    let done = merge(&[all[0], all[1], &other], "m6").exits(3);
    assert!(done.stderr.contains("other-manifest"), "{}", done.stderr);
    let done = merge(&[all[0], "r0"], "m7").exits(3);
    assert!(done.stderr.contains("no-bundle"), "{}", done.stderr);
}

/// The patches of a merged batch are those of the last rows.
#[test]
fn a_job_that_has_no_patch_any_more_has_none_in_a_merge_into_the_same_place() {
    let world = fleet(1);
    let manifest = "version: 1\nrecipe: greet.yaml\npolicy: policy.yaml\nmodels: [\"script:ok.yaml\"]\n\
                    targets: [{ path: r0, id: a }]\n";
    let patch = world.path().join("merged/patches/a.patch");
    batch(&world, manifest, &[]).exits(0);
    call(&world, &["merge", "out", "--out", "merged"]).exits(0);
    assert!(patch.is_file());
    world.beside("ok.yaml", script(&[says("I will not")]));
    batch(&world, manifest, &[]).exits(1);
    call(&world, &["merge", "out", "--out", "merged"]).exits(1);
    assert!(!patch.exists());
}

/// A job is up to date only with its patch: a lost one comes back from the run directory, or the job runs again.
#[test]
fn a_lost_patch_is_restored_or_made_again() {
    let world = fleet(1);
    let manifest = "version: 1\nrecipe: greet.yaml\npolicy: policy.yaml\nmodels: [\"script:ok.yaml\"]\n\
                    targets: [{ path: r0, id: a }]\n";
    batch(&world, manifest, &[]).exits(0);
    let patch = world.path().join("out/patches/a.patch");
    let whole = std::fs::read(&patch).unwrap();
    let again = |said: &str, run: u64| {
        let done = batch(&world, manifest, &["--format", "json"]).exits(0);
        assert!(done.stderr.contains(said), "{}", done.stderr);
        let jobs = &done.json()["jobs"];
        assert_eq!((&jobs["run"], &jobs["up_to_date"]), (&json!(run), &json!(1 - run)));
        assert_eq!(std::fs::read(&patch).unwrap(), whole);
    };
    std::fs::remove_file(&patch).unwrap();
    again("patches/a.patch was missing or altered: it was restored", 0);
    std::fs::write(&patch, "altered").unwrap();
    std::fs::remove_dir_all(world.path().join("out/jobs")).unwrap();
    again("a runs again: patches/a.patch is missing or altered", 1);
}

/// The next night one job goes and one comes: the shards accept it with `--changed`, and so does the merge.
#[test]
fn shards_of_a_changed_manifest_merge_into_the_same_place() {
    let world = fleet(1);
    let first = asking(4, "policy: policy.yaml\nmodels: [\"script:ok.yaml\"]\n")
        .replace("ask.yaml", "greet.yaml")
        .replace("params: { n:", "params: { who:");
    let second = first.replace("id: j0,", "id: j9,");
    let night = |manifest: &str| {
        world.beside("m.yaml", manifest);
        ["1/2", "2/2"].map(|shard| {
            let dir = format!("out/shards/{}", shard.replace('/', "-of-"));
            let args = ["batch", "m.yaml", "--shard", shard, "--out", &dir, "--changed"];
            call(&world, &args).exits(0);
            dir
        })
    };
    let [one, two] = night(&first);
    call(&world, &["merge", &one, &two, "--out", "out"]).exits(0);
    let patch = |job: &str| world.path().join(format!("out/patches/{job}.patch"));
    assert!(patch("j0").is_file());
    night(&second);
    let done = call(&world, &["merge", &one, &two, "--out", "out"]).exits(3);
    assert!(
        done.stderr.contains("other-manifest") && done.stderr.contains("--changed"),
        "{}",
        done.stderr
    );
    let done = call(&world, &["merge", &one, &two, "--out", "out", "--changed"]).exits(0);
    assert!(done.stderr.contains("1 job that the manifest"), "{}", done.stderr);
    let mut names: Vec<String> = rows(&world, "out")
        .iter()
        .map(|row| row["job"].as_str().unwrap().to_owned())
        .collect();
    names.sort();
    assert_eq!(names, ["j1", "j2", "j3", "j9"]);
    assert!(patch("j9").is_file() && !patch("j0").exists());
    // Bundles of different manifests stay apart.
    world.beside("m.yaml", &first);
    call(
        &world,
        &["batch", "m.yaml", "--shard", "1/2", "--out", &one, "--changed"],
    )
    .exits(0);
    let done = call(&world, &["merge", &one, &two, "--out", "out", "--changed"]).exits(3);
    assert!(done.stderr.contains("other-manifest"), "{}", done.stderr);
}

/// What a killed merge leaves is no obstacle for the next one, and two merges at once do not meet.
#[test]
fn a_merge_that_was_killed_is_repeated() {
    let world = fleet(1);
    let manifest = "version: 1\nrecipe: greet.yaml\npolicy: policy.yaml\nmodels: [\"script:ok.yaml\"]\n\
                    targets: [{ path: r0, id: a }]\n";
    batch(&world, manifest, &[]).exits(0);
    let drafts = ["merged/.tmpy5von1", "merged/patches/.tmp0aBcDe"];
    for draft in drafts {
        world.beside(draft, "half");
    }
    call(&world, &["merge", "out", "--out", "merged"]).exits(0);
    for draft in drafts {
        assert!(!world.path().join(draft).exists(), "{draft}");
    }
    world.beside("merged/.tmpy5von1x", "somebody's");
    let done = call(&world, &["merge", "out", "--out", "merged"]).exits(8);
    assert!(done.stderr.contains(".tmpy5von1x"), "{}", done.stderr);
    // The first one waits in the middle of reading its bundle.
    world.beside("slow/plan.json", "{}");
    let pipe = world.path().join("slow/bundle.json");
    let made = Command::new("mkfifo").arg(&pipe).status().unwrap();
    assert!(made.success());
    let mut first = command(&world, &["merge", "slow", "--out", "both"]);
    let mut first = first.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    let opened = std::fs::OpenOptions::new().write(true).open(&pipe).unwrap();
    let done = call(&world, &["merge", "out", "--out", "both"]).exits(8);
    assert!(
        done.stderr.contains("another merge is writing to both"),
        "{}",
        done.stderr
    );
    drop(opened);
    assert_eq!(first.wait().unwrap().code(), Some(3));
    call(&world, &["merge", "out", "--out", "both"]).exits(0);
}

fn copy(world: &World, from: &str, to: &str) {
    let done = Command::new("cp")
        .args(["-r", from, to])
        .current_dir(world.path())
        .status()
        .unwrap();
    assert!(done.success());
}

#[test]
fn a_shard_takes_what_the_engine_says_or_packs_by_durations() {
    let world = fleet(1).env("CI_NODE_INDEX", "2").env("CI_NODE_TOTAL", "3");
    world.beside("m.yaml", asking(9, "models: [\"script:ok.yaml\"]\n"));
    let auto = call(
        &world,
        &["batch", "m.yaml", "--shard", "auto", "--dry-run", "--format", "json"],
    )
    .exits(0);
    assert!(auto.stderr.contains("shard 2/3 by GitLab"), "{}", auto.stderr);
    let given = call(
        &world,
        &["batch", "m.yaml", "--shard", "2/3", "--dry-run", "--format", "json"],
    )
    .exits(0);
    assert_eq!(auto.json(), given.json());
    let lines: String = (0..9)
        .map(|n| format!("{}\n", json!({"job": format!("j{n}"), "digest": "", "id": null, "name": "", "recipe": "", "target": "", "params": {},
            "model": "", "trial": 1, "attempt": 1, "verdict": "passed", "exit_code": 0, "reason": "", "cost": 0.0, "tokens": 0, "turns": 0,
            "seconds": if n == 0 { 8.0 } else { 1.0 }, "base": null, "patch": null, "patch_digest": null, "run": null, "started": null,
            "ended": null, "shard": null})))
        .collect();
    world.beside("times.jsonl", lines);
    let packed = call(
        &world,
        &[
            "batch",
            "m.yaml",
            "--shard",
            "1/2",
            "--timings",
            "times.jsonl",
            "--dry-run",
            "--format",
            "json",
        ],
    )
    .exits(0)
    .json();
    assert_eq!(
        packed["jobs"].as_array().unwrap().len(),
        1,
        "the long job has a shard of its own"
    );
    call(&world, &["batch", "m.yaml", "--shard", "4/3"]).exits(2);
    let missing = [
        "batch",
        "m.yaml",
        "--shard",
        "1/2",
        "--timings",
        "none.jsonl",
        "--dry-run",
    ];
    assert!(call(&world, &missing).exits(3).stderr.contains("--timings"));
}

#[test]
fn outputs_stay_well_formed_whatever_names_and_messages_say() {
    let world = fleet(1);
    let nasty = "<script>alert(1)</script> `x` | ]]> \u{1b}[2J @all";
    world.beside(
        "nasty.yaml",
        json!({"replies": [{"error": {"class": "rejected", "message": nasty}}]}).to_string(),
    );
    batch(&world, &asking(2, "models: [\"script:nasty.yaml\"]\n"), &[]).exits(7);
    let page = std::fs::read_to_string(world.path().join("out/report.html")).unwrap();
    assert!(!page.contains("<script>alert") && page.contains("&lt;script&gt;alert") && !page.contains('\u{1b}'));
    let summary = std::fs::read_to_string(world.path().join("out/summary.md")).unwrap();
    assert!(!summary.contains('\u{1b}') && summary.contains("`"));
    let python = "import sys\nfrom junitparser import JUnitXml\nreport = JUnitXml.fromfile(sys.argv[1])\n\
                  suites = list(report)\nassert len(suites) == 2, suites\nassert [c.name for s in suites for c in s] == ['completed'] * 2\n\
                  assert all(c.result[0].type == 'provider' for s in suites for c in s)\n\
                  import xml.etree.ElementTree as tree\n\
                  known = {'testsuites': 'name time tests failures errors', 'testsuite': 'name tests failures errors time skipped timestamp',\n\
                  \x20 'testcase': 'name time classname', 'properties': '', 'property': 'name value', 'error': 'type message'}\n\
                  for node in tree.parse(sys.argv[1]).iter():\n\
                  \x20 assert set(node.attrib) <= set(known[node.tag].split()), (node.tag, node.attrib)\n";
    if !have("junitparser", super::validators::has("junitparser")) {
        return;
    }
    let done = super::validators::python(&["-c", python, world.path().join("out/junit.xml").to_str().unwrap()])
        .output()
        .unwrap();
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
}

#[test]
fn recipes_of_the_targets_own_base_branch_are_read_and_count() {
    let world = fleet(1);
    let origin = world.path().join("r0");
    let commit = |text: &str| {
        world.beside("r0/ci/ask.yaml", ASK.replace("Say", text));
        git_in(&origin, &["add", "-A"]);
        git_in(&origin, &["commit", "-q", "-m", text]);
    };
    commit("Tell");
    world.beside("hi.yaml", script(&[says("hi")]));
    let manifest = format!(
        "version: 1\nrecipe: \"git:origin/main:ci/ask.yaml\"\nmodels: [\"script:hi.yaml\"]\ntargets: [{{ repo: \"file://{}\", id: a }}]\n",
        origin.display()
    );
    batch(&world, &manifest, &[]).exits(0);
    let again = batch(&world, &manifest, &["--format", "json"]).exits(0).json();
    assert_eq!(again["jobs"]["up_to_date"], 1);
    commit("Shout");
    let again = batch(&world, &manifest, &["--format", "json"]).exits(0).json();
    assert_eq!(again["jobs"]["run"], 1);
    let row = rows(&world, "out").pop().unwrap();
    let run = world.path().join("out").join(row["run"].as_str().unwrap());
    let result: Value = serde_json::from_slice(&std::fs::read(run.join("result.json")).unwrap()).unwrap();
    assert_eq!(result["recipe_source"]["trusted"], true, "{}", result["recipe_source"]);
}

#[test]
fn links_of_a_repository_lead_nowhere() {
    let world = fleet(1);
    let tree = world.path().join("r0");
    std::os::unix::fs::symlink(world.path(), tree.join("sub")).unwrap();
    git_in(&tree, &["add", "-A"]);
    git_in(&tree, &["commit", "-q", "-m", "link"]);
    // The user's own tree has a directory of that name.
    std::fs::remove_file(tree.join("sub")).unwrap();
    world.beside("r0/sub/x.txt", "x");
    let manifest = "version: 1\nrecipe: greet.yaml\npolicy: policy.yaml\nmodels: [\"script:ok.yaml\"]\ntargets: [{ path: r0/sub, id: a }]\n";
    batch(&world, manifest, &[]).exits(8);
    let row = rows(&world, "out").remove(0);
    assert!(
        row["message"].as_str().unwrap().contains("leads out of the tree"),
        "{row}"
    );
    assert!(!world.path().join("hello.txt").exists());
    std::fs::create_dir(world.path().join("other")).unwrap();
    std::os::unix::fs::symlink(world.path(), world.path().join("other/patches")).unwrap();
    let done = call(&world, &["batch", "m.yaml", "--out", "other"]).exits(8);
    assert!(done.stderr.contains("symbolic link"), "{}", done.stderr);
}

/// A link in a batch directory would have files written or removed where it leads.
#[test]
fn links_of_a_batch_directory_lead_nowhere() {
    let world = fleet(1);
    world.beside("hi.yaml", script(&[says("hi")]));
    let manifest = asking(1, "models: [\"script:hi.yaml\"]\n");
    world.beside("outside/tree/kept.txt", "kept");
    let outside = world.path().join("outside");
    let places = [
        "out/work/j0",
        "out/work/other",
        "out/jobs/j0",
        "out/logs",
        "out/work/j0/home",
    ];
    for place in places {
        let link = world.path().join(place);
        std::fs::create_dir_all(link.parent().unwrap()).unwrap();
        std::os::unix::fs::symlink(&outside, &link).unwrap();
        let done = batch(&world, &manifest, &[]).exits(8);
        let wanted = format!("{place} is a symbolic link");
        assert!(done.stderr.contains(&wanted), "{wanted}: {}", done.stderr);
        std::fs::remove_file(&link).unwrap();
    }
    assert!(outside.join("tree/kept.txt").is_file());
    assert_eq!(std::fs::read_dir(&outside).unwrap().count(), 1);
    // The control: without the links the job runs.
    batch(&world, &manifest, &[]).exits(0);
}

#[test]
fn a_secret_is_no_parameter_and_no_input() {
    const SECRET: &str = "S3cretValue-1234567890";
    let world = fleet(1).env("MY_SECRET_TOKEN", SECRET);
    world.beside("hi.yaml", script(&[says("hi")]));
    let manifest = |of_all: &str, of_target: &str| {
        format!(
            "version: 1\nrecipe: ask.yaml\nmodels: [\"script:hi.yaml\"]\n{of_all}targets:\n  - {{ path: r0, id: a{of_target} }}\n"
        )
    };
    let given = format!("{{ n: {SECRET} }}");
    for (of_all, of_target, line) in [
        (format!("params: {given}\n"), String::new(), "m.yaml:4:"),
        (format!("matrix: {{ n: [a, {SECRET}] }}\n"), String::new(), "m.yaml:4:"),
        (String::new(), format!(", params: {given}"), "m.yaml:5:"),
        (
            String::new(),
            format!(", params: {{ n: 'Bearer {SECRET}.' }}"),
            "m.yaml:5:",
        ),
        (String::new(), format!(", input: {{ a: [{SECRET}] }}"), "m.yaml:5:"),
    ] {
        let done = batch(&world, &manifest(&of_all, &of_target), &[]).exits(3);
        for part in [line, "holds the value of MY_SECRET_TOKEN"] {
            assert!(done.stderr.contains(part), "{part}: {}", done.stderr);
        }
        assert!(
            !done.stderr.contains(SECRET) && !done.stdout.contains(SECRET),
            "{done:?}"
        );
        assert!(!world.path().join("out/jobs").exists(), "{}", done.stderr);
    }
    let row = json!({ "path": world.path().join("r0"), "params": { "n": SECRET }, "id": "a" }).to_string();
    let out = world.path().join("out").to_string_lossy().into_owned();
    let (recipe, model) = (world.path().join("ask.yaml"), world.path().join("hi.yaml"));
    let (recipe, model) = (recipe.to_string_lossy(), format!("script:{}", model.display()));
    let args = ["batch", "-", "--recipe", &recipe, "--model", &model, "--out", &out];
    world.call_with(&args, &row).exits(3);
    world.call_with(&args, &row.replace(SECRET, "a value")).exits(0);
    batch(&world, &manifest("params: { n: another value }\n", ""), &["--changed"]).exits(0);
}

#[test]
fn passwords_in_urls_are_refused_and_keys_are_nowhere() {
    let world = fleet(1).env("GEMINI_API_KEY", "k-secret-0123456789");
    let done = batch(
        &world,
        "version: 1\nrecipe: ask.yaml\nmodels: [\"script:ok.yaml\"]\ntargets:\n  - { repo: \"https://me:hunter22@example.org/a.git\" }\n",
        &[],
    )
    .exits(3);
    assert!(done.stderr.contains("contains a password"), "{}", done.stderr);
    world.beside(
        "leak.yaml",
        json!({"replies": [{"error": {"class": "rejected", "message": "key k-secret-0123456789 is bad"}}]}).to_string(),
    );
    batch(&world, &asking(1, "models: [\"script:leak.yaml\"]\n"), &[]).exits(7);
    let found = Command::new("grep")
        .args(["-rl", "k-secret-0123456789", "out"])
        .current_dir(world.path())
        .output()
        .unwrap();
    assert_eq!(String::from_utf8_lossy(&found.stdout), "");
}

/// A bundle speaks for its own jobs: what it says of those of another shard changes nothing.
#[test]
fn a_bundle_says_nothing_of_the_jobs_of_another() {
    let world = fleet(1);
    let manifest = asking(6, "policy: policy.yaml\nmodels: [\"script:ok.yaml\"]\n")
        .replace("ask.yaml", "greet.yaml")
        .replace("params: { n:", "params: { who:");
    world.beside("m.yaml", &manifest);
    let (one, two) = (sharded(&world, "1/2"), sharded(&world, "2/2"));
    let theirs = rows(&world, &one);
    let altered = |name: &str, change: &dyn Fn(&mut Vec<Value>)| {
        copy(&world, &two, name);
        let mut all = rows(&world, &two);
        change(&mut all);
        let text: String = all.iter().map(|row| format!("{row}\n")).collect();
        let path = world.path().join(name);
        std::fs::write(path.join("runs.jsonl"), &text).unwrap();
        let mut seal: Value = serde_json::from_slice(&std::fs::read(path.join("bundle.json")).unwrap()).unwrap();
        let sum = Command::new("sha256sum").arg(path.join("runs.jsonl")).output().unwrap();
        let sum = String::from_utf8(sum.stdout).unwrap();
        seal["files"]["runs.jsonl"] = json!({ "bytes": text.len(), "sha256": sum.split(' ').next().unwrap() });
        std::fs::write(path.join("bundle.json"), seal.to_string()).unwrap();
    };
    altered("forged", &|all| {
        let mut row = theirs[0].clone();
        row["verdict"] = json!("failed");
        row["exit_code"] = json!(1);
        row["target"] = json!("https://example.org/o/n");
        all.push(row);
    });
    let merged = call(&world, &["merge", &one, "forged", "--out", "m1", "--format", "json"])
        .exits(0)
        .json();
    assert_eq!(merged["jobs"]["passed"], 6, "{merged}");
    let merged_rows = rows(&world, "m1");
    assert_eq!(merged_rows.len(), 6);
    assert!(merged_rows.iter().all(|row| row["target"] != "https://example.org/o/n"));
    // A job that stands in no plan is left out and told.
    altered("unknown", &|all| {
        let mut row = theirs[0].clone();
        row["job"] = json!("nowhere");
        all.push(row);
    });
    let done = call(&world, &["merge", &one, "unknown", "--out", "m2"]).exits(0);
    assert!(
        done.stderr.contains("1 job that the manifest does not define any more"),
        "{}",
        done.stderr
    );
    assert!(rows(&world, "m2").iter().all(|row| row["job"] != "nowhere"));
    // The patch of a job has one place.
    for place in ["plan.json", "patches/../plan.json", "logs/x"] {
        altered("moved", &|all| all[0]["patch"] = json!(place));
        let done = call(&world, &["merge", &one, "moved", "--out", "m3"]).exits(3);
        assert!(done.stderr.contains("altered-bundle"), "{}", done.stderr);
        std::fs::remove_dir_all(world.path().join("moved")).unwrap();
        let _ = std::fs::remove_dir_all(world.path().join("m3"));
    }
    // Honest ones, and under a key: the merged rows are vouched for.
    call(&world, &["merge", &one, &two, "--out", "m4"]).exits(0);
    let seal: Value = serde_json::from_slice(&std::fs::read(world.path().join("m4/bundle.json")).unwrap()).unwrap();
    assert!(seal["call"]["started"].as_str().is_some(), "{seal}");
}

/// With a key set, a delivery takes only rows that the record or a bundle vouches for.
fn opened(delivered: &Done) -> usize {
    delivered.stdout.matches("\"outcome\":\"opened\"").count()
}

#[test]
fn rules_are_suggested_for_all_runs_of_a_batch() {
    let world = fleet(2);
    world.beside("policy.yaml", "version: 1\nextends: [builtin:read-only]\n");
    let manifest = "version: 1\nrecipe: greet.yaml\npolicy: policy.yaml\nmodels: [\"script:ok.yaml\"]\ntargets: [{ path: r0 }, { path: r1 }]\n";
    batch(&world, manifest, &[]);
    assert_eq!(verdicts(&world), ["denied", "denied"]);
    let done = call(&world, &["policy", "suggest", "out"]).exits(0);
    assert!(
        done.stdout.contains("write_file") && done.stdout.contains("hello.txt"),
        "{}",
        done.stdout
    );
}

#[test]
fn rows_of_a_batch_are_held_against_what_vouches_for_them() {
    const KEY: &str = "a key of thirty-two bytes or more, at least";
    let world = fleet(1);
    let manifest = asking(2, "policy: policy.yaml\nmodels: [\"script:ok.yaml\"]\n")
        .replace("ask.yaml", "greet.yaml")
        .replace("params: { n:", "params: { who:");
    world.beside("m.yaml", &manifest);
    let keyed = |args: &[&str]| {
        let mut command = command(&world, args);
        command.env("OVERNIGHT_JOURNAL_KEY", KEY);
        Done::of(command.output().unwrap())
    };
    let deliver = |dir: &str| {
        let mut command = dry_delivery(&world, dir);
        Done::of(command.env("OVERNIGHT_JOURNAL_KEY", KEY).output().unwrap())
    };
    let shards = ["1/2", "2/2"].map(|shard| {
        let dir = format!("out/shards/{}", shard.replace('/', "-of-"));
        keyed(&["batch", "m.yaml", "--shard", shard, "--out", &dir]).exits(0);
        dir
    });
    keyed(&["merge", &shards[0], &shards[1], "--out", "out"]).exits(0);
    let done = deliver("out").exits(0);
    assert_eq!(opened(&done), 2, "{}", done.stdout);
    let path = world.path().join("out/runs.jsonl");
    let text = std::fs::read_to_string(&path).unwrap();
    std::fs::write(
        &path,
        text.replacen("\"target\":\"", "\"target\":\"https://example.org/", 1),
    )
    .unwrap();
    let done = deliver("out").exits(3);
    assert!(done.stderr.contains("altered"), "{}", done.stderr);
    std::fs::remove_file(world.path().join("out/bundle.json")).unwrap();
    let done = deliver("out").exits(3);
    assert!(done.stderr.contains("is not authenticated"), "{}", done.stderr);
    // A batch directory has its record: the copy of the rows is not asked.
    world.beside("policy.yaml", "version: 1\nextends: [builtin:edit]\n");
    keyed(&["batch", "m.yaml", "--out", "one"]).exits(0);
    std::fs::write(world.path().join("one/runs.jsonl"), "").unwrap();
    let done = deliver("one").exits(0);
    assert_eq!(opened(&done), 2, "{}", done.stdout);
    // Another genuine run takes the place of one that the batch recorded.
    world.beside("evil.yaml", script(&[writes("hello.txt", "evil\n"), says("done")]));
    let other = [
        "run",
        "greet.yaml",
        "--policy",
        "policy.yaml",
        "--model",
        "script:evil.yaml",
        "--workspace",
        "r0",
        "--isolate",
        "--out",
        "other",
    ];
    keyed(&other).exits(0);
    let job = rows(&world, "out")[0]["job"].as_str().unwrap().to_owned();
    let jobs = world.path().join("one/jobs").join(job);
    let entries = std::fs::read_dir(&jobs).unwrap().map(|entry| entry.unwrap().path());
    let recorded = { entries }.find(|path| path.is_dir()).unwrap();
    std::fs::rename(&recorded, world.path().join("aside")).unwrap();
    std::fs::rename(world.path().join("other"), &recorded).unwrap();
    let done = deliver("one");
    assert_eq!(opened(&done), 1, "{}", done.stdout);
    assert!(
        done.stdout.contains("not the one that the batch recorded"),
        "{}",
        done.stdout
    );
    let record = world.path().join("one/batch.jsonl");
    let text = std::fs::read_to_string(&record).unwrap();
    let cut: String = text
        .lines()
        .take(text.lines().count() - 2)
        .map(|line| format!("{line}\n"))
        .collect();
    std::fs::write(&record, cut).unwrap();
    let done = deliver("one").exits(3);
    assert!(done.stderr.contains("batch.jsonl"), "{}", done.stderr);
}
