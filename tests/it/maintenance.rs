//! Maintenance jobs under shipped policies: `fixtures/maintenance/JOB/` has `recipe.yaml`, `policy.yaml` (shipped policies and the paths of
//! the job), `repo/`, and the replies of three runs: a `good` one, a `wrong` one that does not do it, and a `cheat` that bends what it is
//! judged by.
//!
//! `expect` has a line a run: its name, exit code and verdict, and the checks that fail. `history` has the subjects of commits after the tag
//! `v1.0.0`; `needs` names what `.ci/run` installs (`eslint`, `ruff`). With `UPDATE_EXPECT=1` the failing checks are written anew.

use super::harness::{World, at_once, have, project};
use std::path::{Path, PathBuf};
use std::process::Command;

/// How many kinds there are at least.
const KINDS: usize = 14;
/// How many runs are made at once.
const AT_ONCE: usize = 4;

fn jobs() -> Vec<PathBuf> {
    let dir = project().join("fixtures/maintenance");
    let mut found: Vec<PathBuf> = std::fs::read_dir(dir)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .collect();
    found.sort();
    assert!(found.len() >= KINDS, "only {} jobs were found", found.len());
    found
}

pub(super) fn text(path: &Path) -> String {
    std::fs::read_to_string(path).unwrap_or_default()
}

pub(super) fn copy(from: &Path, to: &Path) {
    let done = Command::new("cp")
        .args(["-rH", "-T", "--"])
        .arg(from)
        .arg(to)
        .status()
        .unwrap();
    assert!(done.success(), "{} could not be copied", from.display());
}

/// The job's repository, committed and tagged; `None` where what it needs is not here.
fn repository(job: &Path) -> Option<World> {
    let world = World::new();
    copy(&job.join("repo"), &world.ws());
    let ignored = world.ws().join("gitignore");
    if ignored.exists() {
        std::fs::rename(ignored, world.ws().join(".gitignore")).unwrap();
    }
    world.git(&["init", "-q", "-b", "main"]);
    world.commit("base");
    world.git(&["tag", "v1.0.0"]);
    text(&job.join("history"))
        .lines()
        .for_each(|subject| world.commit(subject));
    text(&job.join("needs"))
        .lines()
        .all(|need| provide(&world, need))
        .then_some(world)
}

/// Where `.ci/run` puts what these jobs need.
pub(super) fn daily() -> PathBuf {
    std::env::var_os("OVERNIGHT_DAILY").map_or_else(|| project().join("target/ci/daily"), PathBuf::from)
}

/// Puts a package of npm into `node_modules`, or one of PyPI into a virtual environment; whether it is there to be put.
pub(super) fn provide(world: &World, need: &str) -> bool {
    let node = daily().join("node/node_modules");
    let wheels = daily().join("wheels");
    let found = node.is_dir() && wheels.is_dir();
    if !have(&format!("{} (see .ci/run)", daily().display()), found) {
        return false;
    }
    match node.join(need).is_dir() {
        true => node_modules(world, &node, need),
        false => environment(world, &wheels, need),
    }
    true
}

/// `node_modules` with one package and what it needs, a small part of what lies there.
fn node_modules(world: &World, from: &Path, package: &str) {
    let mut names = vec![package.to_owned()];
    let mut at = 0;
    while let Some(name) = names.get(at).cloned() {
        at += 1;
        let (source, target) = (from.join(&name), world.ws().join("node_modules").join(&name));
        if !source.is_dir() {
            // It lies below the package that needs it, or is only wanted on another machine.
            continue;
        }
        std::fs::create_dir_all(&target).unwrap();
        copy(&source, &target);
        let manifest: serde_json::Value = serde_json::from_str(&text(&source.join("package.json"))).unwrap();
        let needed = manifest["dependencies"].as_object().into_iter().flatten();
        let new: Vec<String> = needed
            .map(|(name, _)| name.clone())
            .filter(|name| !names.contains(name))
            .collect();
        names.extend(new);
    }
    let programs = world.ws().join("node_modules/.bin");
    std::fs::create_dir_all(&programs).unwrap();
    let leads_to = std::fs::read_link(from.join(".bin").join(package)).unwrap();
    std::os::unix::fs::symlink(leads_to, programs.join(package)).unwrap();
}

/// A virtual environment with one package.
fn environment(world: &World, wheels: &Path, package: &str) {
    let python = |args: &[&str]| {
        let output = Command::new("python3")
            .args(args)
            .current_dir(world.ws())
            .output()
            .unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    };
    python(&["-m", "venv", "--without-pip", ".venv"]);
    let wheels = wheels.to_string_lossy().into_owned();
    let mut install = vec![
        "-m",
        "pip",
        "--quiet",
        "--python",
        ".venv/bin/python",
        "install",
        "--no-index",
    ];
    install.extend(["--find-links", &wheels, package]);
    python(&install);
}

/// A run of a job as a line of `expect`, with the names of the checks that failed last, and what stood on stderr.
fn run(job: &Path, name: &str) -> Option<(String, String)> {
    let world = repository(job)?;
    let place = world.path().join("job");
    copy(job, &place);
    let at = |file: &str| place.join(file).to_string_lossy().into_owned();
    let model = format!("script:{}", at(&format!("{name}.json")));
    let out = world.out().to_string_lossy().into_owned();
    let args = [
        "run",
        &at("recipe.yaml"),
        "--policy",
        &at("policy.yaml"),
        "--model",
        &model,
        "--out",
        &out,
    ];
    let done = world.call(&args);
    Some((ended(&world, name, done.code), done.stderr))
}

/// How a run ended, as a line of `expect`.
pub(super) fn ended(world: &World, name: &str, code: i32) -> String {
    let result = world.result();
    let mut line = format!("{name} {code} {}", result["verdict"].as_str().unwrap_or("none"));
    let steps = result["steps"].as_array().cloned().unwrap_or_default();
    let checks = steps
        .iter()
        .flat_map(|step| step["checks"].as_array().cloned().unwrap_or_default());
    for check in checks.filter(|check| check["passed"] == false) {
        line.push(' ');
        line.push_str(check["name"].as_str().unwrap_or("?"));
    }
    line
}

/// Where the three runs of a job end otherwise than its `expect` says. `run` gives such a line and what stood on stderr; `None` where what
/// the job needs is not here.
pub(super) fn differences(job: &Path, run: impl Fn(&Path, &str) -> Option<(String, String)>) -> Vec<String> {
    let wanted = text(&job.join("expect"));
    let title = job.file_name().unwrap().to_string_lossy().into_owned();
    let mut found = String::new();
    let mut wrong = Vec::new();
    assert_eq!(
        wanted.lines().count(),
        3,
        "{title} has no line for each of good, wrong and cheat"
    );
    for (line, name) in wanted.lines().zip(["good", "wrong", "cheat"]) {
        let Some((ended, stderr)) = run(job, name) else {
            return Vec::new();
        };
        let code = ended.split(' ').nth(1).unwrap_or_default().to_owned();
        if (name == "good") != (code == "0") {
            wrong.push(format!("{title}: {ended}: a good run ends 0 and no other\n{stderr}"));
        } else if line != ended && std::env::var_os("UPDATE_EXPECT").is_none() {
            wrong.push(format!("{title}: wanted `{line}`, found `{ended}`\n{stderr}"));
        }
        found.push_str(&ended);
        found.push('\n');
    }
    if std::env::var_os("UPDATE_EXPECT").is_some() {
        std::fs::write(job.join("expect"), found).unwrap();
    }
    wrong
}

#[test]
fn good_runs_pass_and_wrong_and_cheating_ones_do_not() {
    let jobs = jobs();
    let wrong = at_once(AT_ONCE, &jobs, |one| differences(one, run));
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
