//! Each shipped recipe on a package of a registry, as it was published, under a shipped policy: `fixtures/registry/RECIPE/` has the replies
//! of three runs: a `good` one, a `wrong` one that does not do the job, and a `cheat` that bends what it is judged by.
//!
//! `packages` has a line a package: `commit npm left-pad 1.3.0` makes it a commit of the repository (of several, the older ones are tags),
//! `install npm minimist 0.2.1` puts it into `node_modules`, `install daily ruff` is a tool of the daily commands. `repo/` is what a
//! repository has besides, in the last commit; `args` has the arguments of the run, a line each; `input.json` or `input.txt` is its input.
//! `expect` is as in `maintenance.rs`. `.ci/run` fetches the packages of npm and PyPI, cargo those of its registry.

use super::harness::{GIT_IDENTITY, World, at_once, git_in, have, project};
use super::maintenance::{copy, daily, differences, ended, provide, text};
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::Command;

/// How many cases are run at once.
const AT_ONCE: usize = 4;
/// The date of every commit, so that a version of a package has the same commit everywhere.
const DATE: &str = "2026-01-01T00:00:00Z";

fn cases() -> Vec<PathBuf> {
    let dir = project().join("fixtures/registry");
    let mut found: Vec<PathBuf> = std::fs::read_dir(dir)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .collect();
    found.sort();
    found
}

fn succeeds(command: &mut Command) {
    let output = command.output().unwrap();
    assert!(
        output.status.success(),
        "{command:?}: {}",
        String::from_utf8_lossy(&output.stderr)
    );
}

/// Unpacks an archive that holds one directory.
fn unpack(archive: &Path, to: &Path) {
    let dir = tempfile::tempdir().unwrap();
    let name = archive.to_string_lossy();
    let mut command = match name.ends_with(".zip") {
        true => Command::new("python3"),
        false => Command::new("tar"),
    };
    match name.ends_with(".zip") {
        true => command.args(["-m", "zipfile", "-e"]).arg(archive).arg(dir.path()),
        false => command.arg("-xzf").arg(archive).arg("-C").arg(dir.path()),
    };
    succeeds(&mut command);
    let mut inside = std::fs::read_dir(dir.path()).unwrap();
    let top = inside.next().unwrap().unwrap().path();
    assert!(inside.next().is_none(), "{name} holds more than one directory");
    std::fs::create_dir_all(to).unwrap();
    copy(&top, to);
}

/// The unpacked source of a crate, fetched by cargo; `None` where there is no registry to fetch it from.
fn crate_source(world: &World, name: &str, version: &str) -> Option<PathBuf> {
    let manifest = format!(
        "[package]\nname = \"scratch\"\nversion = \"0.1.0\"\nedition = \"2021\"\n[dependencies]\n{name} = \"={version}\"\n"
    );
    let manifest = world.beside("scratch/Cargo.toml", manifest);
    world.beside("scratch/src/lib.rs", "");
    let cargo = |args: &[&str]| {
        let mut command = Command::new("cargo");
        command.args(args).args(["--manifest-path", &manifest]);
        command
            .env("CARGO_NET_RETRY", "1")
            .env("CARGO_HTTP_TIMEOUT", "20")
            .output()
            .ok()
    };
    // Without the network first: an index that is there needs no update.
    let fetched =
        |more: &[&str]| cargo(&[&["fetch", "--quiet"], more].concat()).is_some_and(|done| done.status.success());
    if !fetched(&["--offline"]) && !fetched(&[]) {
        return None;
    }
    let told: Value =
        serde_json::from_slice(&cargo(&["metadata", "--offline", "--format-version", "1"])?.stdout).ok()?;
    let packages = told["packages"].as_array()?;
    let found = packages.iter().find(|package| package["name"] == name)?;
    Some(PathBuf::from(found["manifest_path"].as_str()?).parent()?.to_owned())
}

/// Puts a package there as it was published; whether it could be had.
fn put(world: &World, registry: &str, name: &str, version: &str, to: &Path) -> bool {
    if registry == "crate" {
        let source = crate_source(world, name, version);
        if have("the package registry", source.is_some()) {
            copy(&source.unwrap(), to);
            let _ = std::fs::remove_file(to.join(".cargo-ok"));
            return true;
        }
        return false;
    }
    let dir = daily().join("registry");
    let archive = [".tgz", ".tar.gz", ".zip"]
        .map(|end| dir.join(format!("{name}-{version}{end}")))
        .into_iter()
        .find(|path| path.is_file());
    let there = have(
        &format!("{name} {version} in {} (see .ci/run)", dir.display()),
        archive.is_some(),
    );
    archive.iter().for_each(|archive| unpack(archive, to));
    there
}

/// Makes what lies in the workspace a commit of the one date.
fn commit(world: &World, message: &str) {
    for args in [&["add", "-A"][..], &["commit", "-q", "--allow-empty", "-m", message]] {
        let mut git = Command::new("git");
        git.args(args).current_dir(world.ws()).envs(GIT_IDENTITY);
        succeeds(git.env("GIT_AUTHOR_DATE", DATE).env("GIT_COMMITTER_DATE", DATE));
    }
}

/// The repository of a case; `None` where what it needs is not here.
fn repository(case: &Path) -> Option<World> {
    let world = World::new();
    world.git(&["init", "-q", "-b", "main"]);
    let lines = text(&case.join("packages"));
    let lines: Vec<Vec<&str>> = lines.lines().map(|line| line.split(' ').collect()).collect();
    let versions: Vec<_> = lines.iter().filter(|line| line[0] == "commit").collect();
    for (at, line) in versions.iter().enumerate() {
        if at > 0 {
            world.git(&["tag", &format!("v{}", versions[at - 1][3])]);
            world.git(&["rm", "-rqf", "."]);
        }
        if !put(&world, line[1], line[2], line[3], &world.ws()) {
            return None;
        }
        if at + 1 == versions.len() && case.join("repo").is_dir() {
            copy(&case.join("repo"), &world.ws());
            let _ = std::fs::rename(world.ws().join("gitignore"), world.ws().join(".gitignore"));
        }
        commit(&world, &format!("{} {}", line[2], line[3]));
    }
    let installed = lines
        .iter()
        .filter(|line| line[0] == "install")
        .all(|line| match line[1] {
            "daily" => provide(&world, line[2]),
            registry => put(
                &world,
                registry,
                line[2],
                line[3],
                &world.ws().join("node_modules").join(line[2]),
            ),
        });
    installed.then_some(world)
}

fn run(case: &Path, name: &str) -> Option<(String, String)> {
    let world = repository(case)?;
    let base = world.path().join("base");
    git_in(world.path(), &["clone", "-q", "ws", "base"]);
    let recipe = format!("builtin:{}", case.file_name().unwrap().to_string_lossy());
    let at = |path: PathBuf| path.to_string_lossy().into_owned();
    let model = format!("script:{}", at(case.join(format!("{name}.yaml"))));
    let out = at(world.out());
    let mut args = vec!["run", &recipe, "--model", &model, "--out", &out];
    let more = text(&case.join("args"));
    args.extend(more.lines());
    let input = ["input.json", "input.txt"].map(|file| case.join(file));
    let input = input.into_iter().find(|file| file.is_file()).map(at);
    args.extend(input.iter().flat_map(|file| ["--input", file]));
    let done = world.call(&args);
    if done.code == 0 {
        is_clean(&world, &base);
    }
    Some((ended(&world, name, done.code), done.stderr))
}

/// A run that passed was denied nothing, its JUnit has no failure, and its patch makes of the published package what lies in the workspace.
fn is_clean(world: &World, base: &Path) {
    assert_eq!(world.result()["denied"], serde_json::json!([]));
    let junit = text(&world.out().join("junit.xml"));
    assert!(junit.contains("<testcase") && !junit.contains("<failure"), "{junit}");
    let patch = world.out().join("changes.patch");
    if patch.is_file() {
        git_in(base, &["apply", &patch.to_string_lossy()]);
    }
    let tree = |dir: &Path| {
        git_in(dir, &["add", "-A"]);
        git_in(dir, &["write-tree"])
    };
    assert_eq!(tree(base), tree(&world.ws()), "the patch is not the change");
}

#[test]
fn each_shipped_recipe_does_its_job_on_a_published_package() {
    let cases = cases();
    let names: Vec<_> = cases
        .iter()
        .map(|case| case.file_name().unwrap().to_string_lossy().into_owned())
        .collect();
    let listed = World::new()
        .call(&["recipe", "list", "--format", "json"])
        .exits(0)
        .json();
    let mut shipped: Vec<_> = listed
        .as_array()
        .unwrap()
        .iter()
        .map(|recipe| {
            recipe["name"]
                .as_str()
                .unwrap()
                .trim_start_matches("builtin:")
                .to_owned()
        })
        .collect();
    shipped.sort();
    assert_eq!(names, shipped, "each shipped recipe has a case");
    let wrong = at_once(AT_ONCE, &cases, |one| differences(one, run));
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
