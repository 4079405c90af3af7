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

/// A repository, a call, its expected end and message, and whether a model is asked.
struct Start {
    files: &'static [(&'static str, &'static str)],
    args: &'static [&'static str],
    code: i32,
    says: &'static str,
    asks: bool,
}

const RED: &str =
    "import unittest\nclass A(unittest.TestCase):\n    def test_a(self):\n        self.assertEqual(1, 2)\n";
const BUMP: [&str; 5] = [
    "builtin:bump-dependency",
    "--policy",
    "builtin:mixed",
    "--input",
    "../in.json",
];

/// If no edit can help, or nothing needs to be done, a recipe says so and asks no model. Each case has a counterpart in
/// which a model is asked.
const STARTS: &[Start] = &[
    Start {
        files: &[
            (
                "test_a.py",
                "import unittest\nimport yamlx\nclass A(unittest.TestCase):\n    def test_a(self): pass\n",
            ),
            (".venv/lib/python3.13/site-packages/yamlx.py", ""),
            (".gitignore", ".venv\n"),
        ],
        args: &["builtin:fix-tests", "--policy", "builtin:python"],
        code: 1,
        says: "run `. .venv/bin/activate` first, or name the command with --param 'command=.venv/bin/python -m unittest",
        asks: false,
    },
    Start {
        files: &[
            (
                "test_a.py",
                "import unittest\nimport helpers\nclass A(unittest.TestCase):\n    def test_a(self): pass\n",
            ),
            ("requirements.txt", "requests\n"),
        ],
        args: &["builtin:fix-tests", "--policy", "builtin:python"],
        code: 1,
        says: "checks failed: tests",
        asks: true,
    },
    Start {
        files: &[
            (
                "test_a.py",
                "import unittest\nimport helpers4711\nclass A(unittest.TestCase):\n    def test_a(self): pass\n",
            ),
            ("requirements.txt", "helpers4711>=1\n"),
        ],
        args: &["builtin:fix-tests", "--policy", "builtin:python"],
        code: 1,
        says: "the tests need the module helpers4711, which is not installed here",
        asks: false,
    },
    Start {
        files: &[
            (
                "test_a.py",
                "import unittest\nimport utils4711\nclass A(unittest.TestCase):\n    def test_a(self): pass\n",
            ),
            (
                "pyproject.toml",
                "[project]\nname = \"a\"\ndescription = \"small utils4711\"\n",
            ),
        ],
        args: &["builtin:fix-tests", "--policy", "builtin:python"],
        code: 1,
        says: "checks failed: tests",
        asks: true,
    },
    // A module of the repository itself, which a model can mend.
    Start {
        files: &[
            ("package.json", "{\"name\": \"a\", \"dependencies\": {\"b\": \"1\"}}"),
            ("t.sh", "echo \"Cannot find module './lib/sum'\"; exit 1\n"),
        ],
        args: &[
            "builtin:fix-tests",
            "--policy",
            "builtin:mixed",
            "--param",
            "command=sh t.sh",
        ],
        code: 1,
        says: "checks failed: tests",
        asks: true,
    },
    Start {
        files: &[
            ("package.json", "{\"name\": \"a\", \"dependencies\": {\"b\": \"1\"}}"),
            ("t.sh", "echo Cannot find module b; exit 1\n"),
        ],
        args: &[
            "builtin:fix-tests",
            "--policy",
            "builtin:mixed",
            "--param",
            "command=sh t.sh",
        ],
        code: 1,
        says: "node_modules is missing here: run `npm ci`",
        asks: false,
    },
    Start {
        files: &[("t.sh", "echo 'Error: no test specified'; exit 1\n")],
        args: &[
            "builtin:fix-tests",
            "--policy",
            "builtin:mixed",
            "--param",
            "command=sh t.sh",
        ],
        code: 1,
        says: "no test can be run by `sh t.sh`",
        asks: false,
    },
    Start {
        files: &[("a.py", "")],
        args: &[
            "builtin:fix-tests",
            "--policy",
            "builtin:mixed",
            "--param",
            "command=missing-tool-4711 -q",
        ],
        code: 8,
        says: "missing-tool-4711",
        asks: false,
    },
    Start {
        files: &[("lint.sh", "echo 'Oops! Something went wrong! :('; exit 2\n")],
        args: &[
            "builtin:fix-eslint",
            "--policy",
            "builtin:mixed",
            "--param",
            "lint=sh lint.sh",
            "--param",
            "tests=true",
        ],
        code: 1,
        says: "`sh lint.sh` could not lint",
        asks: false,
    },
    Start {
        files: &[("lint.sh", "echo 'a.js: 1:1 error no-unused-vars'; exit 1\n")],
        args: &[
            "builtin:fix-eslint",
            "--policy",
            "builtin:mixed",
            "--param",
            "lint=sh lint.sh",
            "--param",
            "tests=true",
        ],
        code: 1,
        says: "check lint does not pass yet",
        asks: true,
    },
    Start {
        files: &[("test_a.py", RED), ("requirements.txt", "foo==1.0\n")],
        args: &BUMP,
        code: 1,
        says: "the tests fail before anything was changed (exit code 1)",
        asks: false,
    },
    Start {
        files: &[("test_a.py", RED), ("requirements.txt", "foo==1.0\n")],
        args: &[BUMP[0], BUMP[1], BUMP[2], BUMP[3], BUMP[4], "--param", "failing=true"],
        code: 1,
        says: "checks failed: bumped",
        asks: true,
    },
    Start {
        files: &[("a.txt", "")],
        args: &["builtin:fix-doc-links", "--policy", "builtin:docs"],
        code: 0,
        says: "nothing to do: no tracked file matches *.md",
        asks: false,
    },
    Start {
        files: &[("a.md", "[x](y.md)\n")],
        args: &["builtin:fix-doc-links", "--policy", "builtin:docs"],
        code: 1,
        says: "y.md: there is no such file",
        asks: true,
    },
    Start {
        files: &[("a.txt", "")],
        args: &["builtin:add-license-headers", "--policy", "builtin:edit"],
        code: 0,
        says: "nothing to do: no tracked file matches *.py",
        asks: false,
    },
];

fn wrong_start(start: &Start) -> Vec<String> {
    let world = World::repo(start.files);
    world.beside("in.json", "{\"package\": \"foo\", \"version\": \"2.0\"}");
    let replies = world.beside(
        "replies.yaml",
        "replies:\n  - { text: done }\n  - { text: done }\n  - { text: done }\n",
    );
    let (model, out) = (format!("script:{replies}"), world.out().to_string_lossy().into_owned());
    let args = [&["run"], start.args, &["--model", &model, "--out", &out]].concat();
    let done = world.call(&args);
    let said = format!("{}{}", done.stdout, done.stderr);
    let asked = match done.code {
        8 if !world.out().join("result.json").exists() => false,
        _ => world.result()["usage"]["turns"] != 0,
    };
    let right = done.code == start.code && said.contains(start.says) && asked == start.asks;
    match right {
        true => Vec::new(),
        false => vec![format!("{:?}: code {}, asked: {asked}\n{said}", start.args, done.code)],
    }
}

#[test]
fn no_model_is_asked_where_no_edit_can_help() {
    let wrong = at_once(AT_ONCE, STARTS, wrong_start);
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn fix_ruff_with_broken_settings_asks_no_model() {
    if std::env::var_os("PATH").is_some_and(|path| std::env::split_paths(&path).any(|dir| dir.join("ruff").exists())) {
        return;
    }
    let world = World::repo(&[("a.py", "import os\n"), (".gitignore", ".venv\n")]);
    world.file(
        ".venv/bin/ruff",
        "#!/bin/sh\ntest \"$1\" = --version && exit 0\necho 'ruff failed: unknown field in pyproject.toml'\nexit 2\n",
    );
    let program = world.ws().join(".venv/bin/ruff");
    std::fs::set_permissions(&program, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    let replies = world.beside("replies.yaml", "replies:\n  - { text: done }\n");
    let (model, out) = (format!("script:{replies}"), world.out().to_string_lossy().into_owned());
    let args = [
        "run",
        "builtin:fix-ruff",
        "--policy",
        "builtin:python",
        "--model",
        &model,
        "--out",
        &out,
    ];
    let done = world.call(&args).exits(1);
    let said = format!("{}{}", done.stdout, done.stderr);
    assert!(said.contains("ruff could not check the code (exit code 2)"), "{said}");
    assert_eq!(world.result()["usage"]["turns"], 0);
}
