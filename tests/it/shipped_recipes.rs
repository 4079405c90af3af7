//! The recipes inside the program on their samples: `recipes/samples/NAME/replies.yaml` must end 0; `wrong.yaml`, which does not do the job,
//! and `cheat.yaml`, which bends what it is judged by, must end as the lines of `ends.txt` beside them say (`wrong 1`).

use super::harness::{Done, World, at_once, have, project};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

/// How many recipes have a sample at least.
const SAMPLES: usize = 17;
/// How many are run at once.
const AT_ONCE: usize = 4;
/// Programs that samples need and a machine may lack, with the recipes that need them.
const NEEDED: [(&str, &[&str]); 3] = [
    ("cargo", &["fix-clippy"]),
    ("node", &["fix-eslint", "upgrade-runtime"]),
    ("npm", &["fix-eslint"]),
];

fn samples() -> Vec<PathBuf> {
    let mut found: Vec<PathBuf> = std::fs::read_dir(project().join("recipes/samples"))
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .collect();
    found.sort();
    assert!(found.len() >= SAMPLES, "only {} samples were found", found.len());
    found
}

fn name(sample: &Path) -> String {
    sample.file_name().unwrap().to_string_lossy().into_owned()
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

/// Whether what a sample needs is on this machine.
fn ready(recipe: &str) -> bool {
    NEEDED
        .iter()
        .filter(|(_, recipes)| recipes.contains(&recipe))
        .all(|(program, _)| {
            let there = Command::new(program).arg("--version").output();
            have(program, there.is_ok_and(|output| output.status.success()))
        })
}

/// Runs a recipe on its sample with one of the sample's recordings in the place of `replies.yaml`.
fn run(recipe: &str, recording: &str) -> (World, Done) {
    let world = World::new();
    let place = world.path().join("recipes");
    copy(&project().join("recipes"), &place);
    let sample = place.join("samples").join(recipe);
    if recording != "replies" {
        std::fs::copy(sample.join(format!("{recording}.yaml")), sample.join("replies.yaml")).unwrap();
    }
    let file = place.join(format!("{recipe}.yaml")).to_string_lossy().into_owned();
    let out = world.out().to_string_lossy().into_owned();
    let done = world.call(&["run", &file, "--sample", "--out", &out]);
    (world, done)
}

/// The lines of `ends.txt`: how each recording must end.
fn ends(sample: &Path) -> BTreeMap<String, i32> {
    let text = std::fs::read_to_string(sample.join("ends.txt")).unwrap_or_default();
    text.lines()
        .map(|line| {
            let (recording, code) = line.split_once(' ').unwrap();
            (recording.to_owned(), code.parse().unwrap())
        })
        .collect()
}

/// What is wrong with a sample, a line each.
fn problems(sample: &Path) -> Vec<String> {
    let recipe = name(sample);
    let mut wanted = ends(sample);
    let mut wrong = Vec::new();
    for recording in ["wrong", "cheat"] {
        let there = sample.join(format!("{recording}.yaml")).exists();
        if there != wanted.contains_key(recording) {
            wrong.push(format!(
                "{recipe}: {recording}.yaml and ends.txt do not agree on how it ends"
            ));
        }
    }
    if wanted.values().any(|code| *code == 0) {
        wrong.push(format!("{recipe}: a wrong or cheating recording must not pass"));
    }
    if !ready(&recipe) || !wrong.is_empty() {
        return wrong;
    }
    wanted.insert("replies".to_owned(), 0);
    for (recording, code) in wanted {
        let (_world, done) = run(&recipe, &recording);
        if done.code != code {
            wrong.push(format!(
                "{recipe}: {recording} ends {} and not {code}\n{}",
                done.code, done.stderr
            ));
        }
    }
    wrong
}

#[test]
fn samples_pass_and_wrong_and_cheating_recordings_do_not() {
    let samples = samples();
    let wrong = at_once(AT_ONCE, &samples, |one| problems(one));
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn each_recipe_is_listed_checked_and_has_its_page() {
    let world = World::new();
    for sample in samples() {
        let recipe = format!("builtin:{}", name(&sample));
        world.call(&["recipe", "check", &recipe]).exits(0);
        let page = project().join("recipes/pages").join(format!("{}.md", name(&sample)));
        let shown = world.call(&["recipe", "doc", &recipe]).exits(0).stdout;
        let text = std::fs::read_to_string(&page).unwrap_or_else(|error| panic!("{}: {error}", page.display()));
        assert!(shown.contains(text.trim()), "{recipe} does not show {}", page.display());
        for heading in ["## What it does", "## What it may touch", "## What it costs"] {
            assert!(text.contains(heading), "{} has no `{heading}`", page.display());
        }
    }
}

/// The default test command of the recipes for Python finds the tests in the usual places, and README says which it is.
#[test]
fn the_default_test_command_finds_the_tests_of_usual_layouts() {
    let find = "python3 -m unittest discover $(test -e tests/__init__.py || test ! -d tests || echo -s tests)";
    for name in ["bump-dependency", "fix-ruff", "fix-tests", "patch-advisory"] {
        let text = std::fs::read_to_string(project().join(format!("recipes/{name}.yaml"))).unwrap();
        assert!(text.contains(&format!("default: {find},")), "{name}");
    }
    let readme = std::fs::read_to_string(project().join("README.md")).unwrap();
    assert!(readme.contains("`builtin:fix-tests` runs `python3 -m unittest discover`"));
    let test = "import unittest\nclass A(unittest.TestCase):\n    def test_a(self):\n        pass\n";
    for place in [
        &["test_a.py"][..],
        &["tests/test_a.py"],
        &["tests/__init__.py", "tests/test_a.py"],
        &["pkg/__init__.py", "pkg/tests/__init__.py", "pkg/tests/test_a.py"],
    ] {
        let world = World::new();
        for file in place {
            world.file(file, if file.ends_with("test_a.py") { test } else { "" });
        }
        let done = Command::new("bash")
            .args(["-c", find])
            .current_dir(world.ws())
            .output()
            .unwrap();
        let told = String::from_utf8_lossy(&done.stderr).into_owned();
        assert!(
            done.status.success() && told.contains("Ran 1 test"),
            "{place:?}: {told}"
        );
    }
}

#[test]
fn fix_ruff_without_ruff_names_it_and_asks_no_model() {
    if std::env::var_os("PATH").is_some_and(|path| std::env::split_paths(&path).any(|dir| dir.join("ruff").exists())) {
        return;
    }
    let world = World::repo(&[("a.py", "import os\n")]);
    let replies = format!(
        "script:{}",
        world.beside("replies.yaml", "replies:\n  - { text: done }\n")
    );
    let out = world.out().to_string_lossy().into_owned();
    let done = world
        .call(&[
            "run",
            "builtin:fix-ruff",
            "--policy",
            "builtin:python",
            "--model",
            &replies,
            "--out",
            &out,
        ])
        .exits(8);
    assert!(done.stderr.contains("`ruff` is not available"), "{}", done.stderr);
    assert_eq!(world.result()["usage"]["turns"], 0);
}
