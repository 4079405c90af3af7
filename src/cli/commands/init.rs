//! Implements `overnight init`: inspects a repository and writes a policy, a first recipe and a workflow for it.
//! Overwrites no file and runs no command.

use super::printed;
use crate::base::quote::{counted, shell_word};
use crate::cli::args::{InitArgs, TextOrJson};
use crate::cli::environment;
use crate::cli::exit;
use crate::cli::out;
use crate::cli::refusal::Refusal;
use crate::cli::schemas::SchemaKind;
use crate::cli::shipped;
use crate::journal::{JournalError, no_follow, run_dirs};
use crate::tools::SHELL;
use crate::workspace::{patch, toolchains};
use serde_json::json;
use std::collections::BTreeSet;
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

/// Data about one toolchain.
struct Kind {
    name: &'static str,
    /// Name for people.
    title: &'static str,
    /// Command that runs the tests of a usual project.
    test: &'static str,
    /// Workflow step that installs the toolchain.
    setup: &'static str,
}

const KINDS: &[Kind] = &[
    Kind {
        name: "rust",
        title: "Rust",
        test: "cargo test --quiet",
        setup: "      - run: rustup toolchain install stable --profile minimal\n",
    },
    Kind {
        name: "node",
        title: "Node",
        test: "npm test --silent",
        setup: "      - uses: actions/setup-node@820762786026740c76f36085b0efc47a31fe5020 # v7.0.0\n        with: { node-version: 22 }\n",
    },
    Kind {
        name: "python",
        title: "Python",
        test: "python3 -m pytest -q",
        setup: "      - uses: actions/setup-python@5fda3b95a4ea91299a34e894583c3862153e4b97 # v7.0.0\n        with: { python-version: '3.13' }\n",
    },
    Kind {
        name: "go",
        title: "Go",
        test: "go test ./...",
        setup: "      - uses: actions/setup-go@b7ad1dad31e06c5925ef5d2fc7ad053ef454303e # v7.0.0\n        with: { go-version: stable }\n",
    },
    Kind {
        name: "java",
        title: "Java",
        test: "mvn -B -o test",
        setup: "      - uses: actions/setup-java@b6effb05e454b25005698d916606bdc6ffcbf961 # v5.7.0\n        with: { distribution: temurin, java-version: 21 }\n",
    },
];

/// Limit of directories for which the workflow installs dependencies.
const MOST_PLACES: usize = 8;

/// A toolchain of the repository.
struct Project {
    kind: &'static Kind,
    /// The directories of its project files, relative to the repository: only the top, as an empty path, if it is one of
    /// them.
    places: Vec<String>,
}

impl Project {
    fn is_at_top(&self) -> bool {
        self.places.iter().any(String::is_empty)
    }

    fn first(&self) -> &str {
        self.places.first().map_or("", String::as_str)
    }
}

/// The toolchains of the repository, those at its top first.
fn projects(dir: &Path) -> Vec<Project> {
    let found = toolchains::places(dir);
    let mut all: Vec<Project> = Vec::new();
    for kind in KINDS {
        let of_kind = found.iter().filter(|(_, name)| *name == kind.name);
        let mut places: Vec<String> = of_kind.filter_map(|(place, _)| plain(place)).collect();
        places.sort();
        places.dedup();
        if places.iter().any(String::is_empty) {
            places.truncate(1);
        }
        if !places.is_empty() {
            all.push(Project { kind, places });
        }
    }
    all.sort_by_key(|project| !project.is_at_top());
    // A small project in Python has no project file.
    if let Some(kind) = KINDS.iter().find(|kind| kind.name == "python")
        && all.is_empty()
        && has_python_tests(dir)
    {
        all.push(Project {
            kind,
            places: vec![String::new()],
        });
    }
    all
}

/// Whether there are files with tests where unittest and pytest look for them.
fn has_python_tests(dir: &Path) -> bool {
    let is_test = |entry: std::fs::DirEntry| {
        let name = entry.file_name();
        let stem = name.to_str().and_then(|name| name.strip_suffix(".py"));
        let is_named = stem.is_some_and(|stem| stem.starts_with("test"));
        is_named && entry.file_type().is_ok_and(|kind| kind.is_file())
    };
    ["", "tests", "test"].iter().any(|below| {
        let entries = std::fs::read_dir(dir.join(below)).into_iter().flatten();
        entries.take(MOST_ENTRIES).filter_map(Result::ok).any(is_test)
    })
}

/// A path that needs no quotes in a command or in YAML; `None` for another.
fn plain(path: &Path) -> Option<String> {
    let text = path.to_str()?;
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_./".contains(&byte);
    (text.bytes().all(is_plain) && !text.starts_with('-')).then(|| text.to_owned())
}

/// Runs the command.
///
/// # Errors
/// [`Refusal::Environment`] if the directory is missing or empty, a file would be written through a link, or the
/// repository cannot be used; [`Refusal::Output`] if a file or stdout cannot be written.
pub fn init(args: &InitArgs) -> Result<u8, Refusal> {
    let dir = &args.dir;
    // For people, each line is printed as it happens; JSON is one document at the end.
    let print_line = |line: String| match args.format {
        TextOrJson::Text => printed(&line).map(|_| ()),
        TextOrJson::Json => Ok(()),
    };
    if !dir.is_dir() {
        return Err(Refusal::Environment(format!("{} is not a directory", dir.display())));
    }
    if is_empty(dir) {
        return Err(Refusal::Environment(format!(
            "{} is empty, so there is nothing to write a policy and a recipe for: add the project first, or name its \
             directory, as `overnight init DIR`",
            dir.display()
        )));
    }
    let place = std::path::absolute(dir).unwrap_or_else(|_| dir.clone());
    if patch::is_bare(&place) {
        return Err(Refusal::Environment(format!(
            "{} is itself a bare git repository, whose files are git's own: name a clone or a worktree of it, as \
             `overnight init DIR`",
            dir.display()
        )));
    }
    if let Some(repository) = patch::repository(&place) {
        repository.check().map_err(Refusal::Environment)?;
    }
    let projects = projects(dir);
    let titles: Vec<&str> = projects.iter().map(|project| project.kind.title).collect();
    let (name, recipe) = match projects.first() {
        Some(first) => {
            print_line(format!("saw: {}\n", titles.join(", ")))?;
            ("ci/fix-tests.yaml", recipe(first, &projects, dir))
        }
        None => {
            print_line("saw: no toolchain that is known here\n".to_owned())?;
            out::stderr(
                "overnight: no Cargo.toml, package.json, pyproject.toml, requirements.txt, go.mod, pom.xml, build.gradle or \
                 test in Python was found: the policy allows edits and no commands, and the recipe checks only the size of the \
                 change; add a check that runs your tests",
            );
            if has_make_test(dir) {
                out::stderr(
                    "overnight: the Makefile has a target `test`: `overnight run builtin:fix-tests --param command='make test' \
                     --param ran=REGEX --policy ci/overnight-policy.yaml` makes it pass, where REGEX matches its output only if tests \
                     were run",
                );
            }
            ("ci/small-fix.yaml", NEUTRAL.to_owned())
        }
    };
    for project in projects.iter().filter(|project| !project.is_at_top()) {
        out::stderr(&format!(
            "overnight: {} was found only below the top, in {}: look at the directories in the workflow{}",
            project.kind.title,
            project.places.join(", "),
            match project.places.len() {
                1 => "",
                _ => " and the recipe, which names one of them for its tests",
            }
        ));
    }
    if let [first, others @ ..] = projects.as_slice() {
        for other in others {
            let test = shell_word(&test_of(other, dir));
            out::stderr(&format!(
                "overnight: {name} runs the tests of {} only; for those of {}: --param command={test}",
                first.kind.title, other.kind.title
            ));
        }
    }
    if let Some(first) = projects.first().filter(|first| first.kind.name == "node")
        && let Some(why) = no_test(&dir.join(first.first()))
    {
        out::stderr(&format!(
            "overnight: {} {why}, so {name} cannot pass: write a script `test` that runs the tests",
            dir.join(first.first()).join("package.json").display()
        ));
    }
    for project in &projects {
        for place in project.places.iter().take(MOST_PLACES) {
            if let Some(what) = not_installed(project.kind, &dir.join(place)) {
                out::stderr(&format!("overnight: {what}"));
            }
        }
    }
    let mut files = vec![
        (
            "ci/overnight-policy.yaml",
            SchemaKind::Policy.headed(&policy(&projects)),
        ),
        (name, SchemaKind::Recipe.headed(&recipe)),
    ];
    let above = repository_above(dir);
    match &above {
        Some(top) => out::stderr(&format!(
            "overnight: no workflow is written: {} is below the top of the repository {}, where workflows are read; \
             `overnight init {}` writes one and finds the projects below too",
            dir.display(),
            top.display(),
            shell_word(&top.to_string_lossy()),
        )),
        None if is_jenkins(dir) => out::stderr(&format!(
            "overnight: no workflow is written, because there is a Jenkinsfile: the page of the guide on Jenkins, ci/jenkins.md, has \
             the stage that runs {name}"
        )),
        None => files.push(pipeline(&projects, dir, name)),
    }
    let mut listed = Vec::new();
    for (name, text) in files {
        let path = dir.join(name);
        let is_new = std::fs::symlink_metadata(&path).is_err();
        if is_new {
            write(dir, &path, &text)?;
        }
        let word = if is_new { "wrote" } else { "exists" };
        print_line(format!("{word}: {}\n", path.display()))?;
        listed.push(json!({ "path": path.display().to_string(), "written": is_new }));
    }
    if above.is_none() && is_gitlab(dir) {
        out::stderr(&format!(
            "overnight: add `include: [{{ local: {GITLAB} }}]` and the stages `overnight` and `deliver` to \
             .gitlab-ci.yml, and name in {GITLAB} the project and revision that have overnight"
        ));
    }
    if above.is_none() && !is_gitlab(dir) && !is_jenkins(dir) {
        out::stderr(
            "overnight: the workflow takes recipe and policy from the default branch: commit and push them; and it needs the \
             repository variable OVERNIGHT_SOURCE, the address that `cargo install --git` gets overnight from, and the secret \
             GEMINI_API_KEY",
        );
    }
    // The workspace of the command is that of the files.
    let place = match dir.as_os_str() == "." {
        true => String::new(),
        false => format!(" -C {}", shell_word(&dir.to_string_lossy())),
    };
    // A worktree needs a repository.
    let isolate = match std::fs::canonicalize(dir).ok().and_then(|dir| patch::repository(&dir)) {
        Some(_) => " --isolate",
        None => "",
    };
    let next =
        format!("overnight{place} run {name} --policy ci/overnight-policy.yaml --model gemini/gemini-2.5-pro{isolate}");
    print_line(format!("next: {next}\n"))?;
    if environment::variable("GEMINI_API_KEY").is_none() {
        out::stderr(
            "overnight: it needs GEMINI_API_KEY in the environment, or another --model (`overnight doctor` lists the keys that are \
             set); with --dry-run it prints the plan and needs no key",
        );
    }
    if args.format == TextOrJson::Json {
        let toolchains: Vec<&str> = projects.iter().map(|project| project.kind.name).collect();
        printed(&format!(
            "{}\n",
            json!({ "toolchains": toolchains, "files": listed, "next": next })
        ))?;
    }
    Ok(exit::PASSED)
}

/// The repository that contains the directory, if the directory is not its top.
fn repository_above(dir: &Path) -> Option<PathBuf> {
    let dir = dir.canonicalize().ok()?;
    let top = dir.ancestors().find(|above| above.join(".git").exists())?;
    (top != dir).then(|| top.to_owned())
}

/// The file of jobs for GitLab.
const GITLAB: &str = "ci/overnight.gitlab-ci.yml";

/// Whether pipelines of this repository run at GitLab: it has such a pipeline, or its remote is there and it has no
/// workflows.
fn is_gitlab(dir: &Path) -> bool {
    let remote = || {
        let settings = text_of(dir, ".git/config");
        let mut urls = settings.lines().filter_map(|line| line.split_once('='));
        urls.any(|(name, url)| name.trim() == "url" && host_of(url.trim()).contains("gitlab"))
    };
    let workflows = dir.join(".github/workflows").is_dir();
    dir.join(".gitlab-ci.yml").is_file() || (!workflows && remote())
}

/// Whether only Jenkins runs jobs of this repository.
fn is_jenkins(dir: &Path) -> bool {
    dir.join("Jenkinsfile").is_file() && !dir.join(".github/workflows").is_dir() && !is_gitlab(dir)
}

/// Whether `make test` is the test command of the directory.
fn has_make_test(dir: &Path) -> bool {
    let names = ["GNUmakefile", "makefile", "Makefile"];
    let is_target = |line: &str| {
        let targets = line.split_once(':').filter(|(_, rest)| !rest.starts_with('='));
        targets
            .is_some_and(|(names, _)| !names.starts_with('\t') && names.split_whitespace().any(|name| name == "test"))
    };
    names
        .iter()
        .any(|name| start_of(&dir.join(name)).lines().any(is_target))
}

/// The host of a remote's URL, also of the form `user@host:path`; empty for a path.
fn host_of(url: &str) -> &str {
    let place = match url.split_once("://") {
        Some((_, rest)) => rest.split('/').next().unwrap_or_default(),
        None => match url.split_once(':') {
            Some((place, _)) if !place.contains('/') => place,
            _ => return "",
        },
    };
    place.rsplit('@').next().unwrap_or_default()
}

/// The file that runs the recipe every night, and its text.
fn pipeline(projects: &[Project], dir: &Path, recipe: &str) -> (&'static str, String) {
    let branch = default_branch(dir);
    match is_gitlab(dir) {
        true => (GITLAB, gitlab(recipe, &branch)),
        false => (
            ".github/workflows/overnight.yml",
            workflow(projects, dir, recipe, &branch),
        ),
    }
}

/// The jobs for GitLab, which extend those of the template of overnight.
fn gitlab(recipe: &str, branch: &str) -> String {
    format!(
        "# Runs where a scheduled pipeline includes it: recipe and policy come from the default branch.\n\
         include:\n\
         \x20 # Name the project and the commit that have overnight.\n\
         \x20 - {{ project: OWNER/overnight, ref: \"0000000000000000000000000000000000000000\", file: .gitlab/overnight.yml }}\n\
         stages: [overnight, deliver]\n\
         overnight-run:\n\
         \x20 extends: .overnight\n\
         \x20 stage: overnight\n\
         \x20 rules: [{{ if: $CI_PIPELINE_SOURCE == \"schedule\" }}]\n\
         \x20 variables:\n\
         \x20   OVERNIGHT_RECIPE: git:origin/{branch}:{recipe}\n\
         \x20   OVERNIGHT_POLICY: git:origin/{branch}:ci/overnight-policy.yaml\n\
         \x20   OVERNIGHT_MODEL: gemini/gemini-2.5-pro\n\
         overnight-run-deliver:\n\
         \x20 extends: .overnight-deliver\n\
         \x20 stage: deliver\n\
         \x20 needs: [overnight-run]\n\
         \x20 rules: [{{ if: $CI_PIPELINE_SOURCE == \"schedule\" }}]\n"
    )
}

/// Whether the directory contains nothing but a repository.
fn is_empty(dir: &Path) -> bool {
    let is_git = |entry: std::io::Result<std::fs::DirEntry>| entry.is_ok_and(|entry| entry.file_name() == ".git");
    std::fs::read_dir(dir).is_ok_and(|mut entries| entries.all(is_git))
}

/// Writes a new file without following links in its path.
fn write(root: &Path, path: &Path, text: &str) -> Result<(), Refusal> {
    run_dirs::refuse_link(root, path)?;
    let parent = path.parent().unwrap_or(root);
    no_follow::make_dirs(root, parent)
        .and_then(|()| no_follow::write_new(path, text.as_bytes()))
        .map_err(JournalError::write(path))?;
    Ok(())
}

/// The test command of a project in `dir`: a specific one if the files suggest it, else the toolchain's usual one.
fn test_command(kind: &Kind, dir: &Path) -> String {
    let has = |name: &str| dir.join(name).is_file();
    if kind.name == "python" {
        let test = if uses_pytest(dir) { kind.test } else { unittest(dir) };
        // An installed package leads to the checkout; the tests are to see the code of the run's own worktree.
        return match is_package(dir) && dir.join("src").is_dir() {
            true => format!("PYTHONPATH=src {test}"),
            false => test.to_owned(),
        };
    }
    let found = match kind.name {
        "java" if has("gradlew") => "./gradlew --offline test",
        "java" if is_gradle(dir) => "gradle --offline test",
        "java" if has("mvnw") => "./mvnw -B -o test",
        "node" if has("pnpm-lock.yaml") => "pnpm test",
        "node" if has("yarn.lock") => "yarn test",
        _ => kind.test,
    };
    found.to_owned()
}

/// The command that finds the tests: from the top, only directories with an `__init__.py` are looked into.
fn unittest(dir: &Path) -> &'static str {
    let hides = |name: &str| {
        let at = dir.join(name);
        let mut entries = std::fs::read_dir(&at).into_iter().flatten().filter_map(Result::ok);
        let is_test = |name: &str| name.starts_with("test") && name.ends_with(".py");
        !at.join("__init__.py").is_file() && entries.any(|entry| entry.file_name().to_str().is_some_and(is_test))
    };
    match (hides("tests"), hides("test")) {
        (true, _) => "python3 -m unittest discover -s tests",
        (false, true) => "python3 -m unittest discover -s test",
        (false, false) => "python3 -m unittest discover",
    }
}

/// Why the test command of a Node project in `dir` cannot pass as it is: no script, or the one that `npm init` writes.
fn no_test(dir: &Path) -> Option<&'static str> {
    let package: serde_json::Value = serde_json::from_str(&text_of(dir, "package.json")).ok()?;
    match package.pointer("/scripts/test").and_then(serde_json::Value::as_str) {
        None => Some("has no script `test`"),
        Some(script) if script.contains("no test specified") => {
            Some("has the script `test` of `npm init`, which fails")
        }
        Some(_) => None,
    }
}

fn is_gradle(dir: &Path) -> bool {
    [
        "gradlew",
        "build.gradle",
        "build.gradle.kts",
        "settings.gradle",
        "settings.gradle.kts",
    ]
    .iter()
    .any(|name| dir.join(name).is_file())
}

fn text_of(dir: &Path, name: &str) -> String {
    patch::regular_text(&dir.join(name)).unwrap_or_default()
}

/// The start of a regular file; empty if it cannot be read.
fn start_of(path: &Path) -> String {
    let mut start = Vec::new();
    if path.is_file()
        && let Ok(file) = File::open(path)
    {
        // What was read before an error is text of the file, too.
        let _ = file.take(MOST_START).read_to_end(&mut start);
    }
    String::from_utf8_lossy(&start).into_owned()
}

/// Files that only pytest reads.
const PYTEST_FILES: &[&str] = &[
    "pytest.ini",
    ".pytest.ini",
    "conftest.py",
    "tests/conftest.py",
    "test/conftest.py",
];
/// Files of any project, which name pytest where it is used.
const FILES_THAT_NAME_PYTEST: &[&str] = &["pyproject.toml", "tox.ini", "setup.cfg", "setup.py", "Pipfile"];
/// How many entries of a directory are examined for files of tests.
const MOST_ENTRIES: usize = 1_000;
/// How many files of tests are read in one directory.
const MOST_TESTS: usize = 100;
/// How many bytes of such a file are read.
const MOST_START: u64 = 64 << 10;

/// Whether the tests of a Python project in `dir` need pytest: by its settings, by what the project says it needs, or by
/// tests that are functions of a module, which unittest does not find.
fn uses_pytest(dir: &Path) -> bool {
    let names = |dir: &Path| {
        let entries = std::fs::read_dir(dir).into_iter().flatten().filter_map(Result::ok);
        let names = entries
            .take(MOST_ENTRIES)
            .filter_map(|entry| entry.file_name().into_string().ok());
        names.collect::<Vec<String>>()
    };
    let says = |name: &str| text_of(dir, name).contains("pytest");
    let is_requirements = |name: &String| name.starts_with("requirements") && name.ends_with(".txt");
    let is_test = |name: &String| name.starts_with("test_") && name.ends_with(".py");
    let needs = |line: &str| {
        ["import pytest", "from pytest", "def test_", "async def test_"]
            .iter()
            .any(|start| line.starts_with(start))
    };
    let in_tests = |below: &str| {
        let place = dir.join(below);
        let mut tests = names(&place).into_iter().filter(is_test).take(MOST_TESTS);
        tests.any(|name| start_of(&place.join(name)).lines().any(needs))
    };
    PYTEST_FILES.iter().any(|name| dir.join(name).is_file())
        || FILES_THAT_NAME_PYTEST.iter().any(|name| says(name))
        || names(dir)
            .iter()
            .filter(|name| is_requirements(name))
            .take(MOST_TESTS)
            .any(|name| start_of(&dir.join(name)).contains("pytest"))
        || ["", "tests", "test"].iter().any(|below| in_tests(below))
}

/// A message about what is missing to run the tests of the project in `dir`. `None` if nothing is known to be missing.
fn not_installed(kind: &Kind, dir: &Path) -> Option<String> {
    let has = |name: &str| dir.join(name).is_dir();
    let shown = |name: &str| {
        dir.join(name)
            .strip_prefix(".")
            .unwrap_or(&dir.join(name))
            .display()
            .to_string()
    };
    match kind.name {
        "node" if !has("node_modules") && text_of(dir, "package.json").contains("ependencies\"") => Some(format!(
            "{} does not exist: run `{}` in its directory before the first run",
            shown("node_modules"),
            install(kind, dir)?
        )),
        "python" if environment::variable("VIRTUAL_ENV").is_none() => {
            let venv = [".venv", "venv"]
                .into_iter()
                .find(|name| dir.join(name).join("bin/activate").is_file())?;
            Some(format!(
                "the virtual environment {0} is not active: run `. {0}/bin/activate` before the first run, so that the tests use it",
                shown(venv)
            ))
        }
        _ => None,
    }
}

/// Whether pip can install the directory: a `pyproject.toml` may hold only settings of tools.
fn is_package(dir: &Path) -> bool {
    let settings = text_of(dir, "pyproject.toml");
    let has_table = ["[project]", "[build-system]", "[tool.poetry]"]
        .iter()
        .any(|table| settings.contains(table));
    has_table || dir.join("setup.py").is_file()
}

/// The command that downloads the dependencies of a project in `dir`; `None` if there is nothing to download.
fn install(kind: &Kind, dir: &Path) -> Option<String> {
    let has = |name: &str| dir.join(name).is_file();
    let command = match kind.name {
        "rust" => "cargo fetch",
        "node" if has("package-lock.json") || has("npm-shrinkwrap.json") => "npm ci",
        "node" if has("pnpm-lock.yaml") => "corepack enable && pnpm install --frozen-lockfile",
        "node" if has("yarn.lock") => "corepack enable && yarn install --immutable",
        "node" => "npm install",
        "python" => {
            let mut what = Vec::new();
            if has("requirements.txt") {
                what.push("-r requirements.txt");
            }
            if is_package(dir) {
                what.push("-e .");
            }
            if uses_pytest(dir) {
                what.push("pytest");
            }
            return (!what.is_empty()).then(|| format!("python3 -m pip install {}", what.join(" ")));
        }
        "go" if has("go.work") && !has("go.mod") => return None,
        "go" => "go mod download",
        // Gradle resolves what tests need when it runs them; whether they pass does not matter here.
        "java" if has("gradlew") => "./gradlew --no-daemon test || true",
        "java" if is_gradle(dir) => "gradle --no-daemon test || true",
        "java" if has("mvnw") => "./mvnw -q dependency:go-offline",
        "java" => "mvn -q dependency:go-offline",
        _ => return None,
    };
    Some(command.to_owned())
}

/// The workflow steps that install a toolchain and the dependencies of its projects.
fn setup(project: &Project, dir: &Path) -> String {
    let mut text = project.kind.setup.to_owned();
    for place in project.places.iter().take(MOST_PLACES) {
        let Some(command) = install(project.kind, &dir.join(place)) else {
            continue;
        };
        text.push_str(&format!("      - run: {command}\n"));
        if !place.is_empty() {
            text.push_str(&format!("        working-directory: {place}\n"));
        }
    }
    if let Some(more) = project.places.len().checked_sub(MOST_PLACES).filter(|more| *more > 0) {
        text.push_str(&format!(
            "      # Not installed here: {} of {}. Add a step for each that a run needs.\n",
            counted(more, "more directory"),
            project.kind.title
        ));
    }
    text
}

fn policy(projects: &[Project]) -> String {
    let extends: Vec<String> = match projects {
        [] => vec!["builtin:edit".to_owned()],
        some => some
            .iter()
            .map(|project| format!("builtin:{}", project.kind.name))
            .collect(),
    };
    let names: Vec<&str> = projects.iter().map(|project| project.kind.name).collect();
    let toolchains = match names.is_empty() {
        true => String::new(),
        false => format!(", toolchains: [{}]", names.join(", ")),
    };
    format!(
        "# What a run may do here without a person. `overnight policy check` prints it in words.\n\
         version: 1\n\
         extends: [{}]\n\
         rules:\n\
         \x20 - id: push\n\
         \x20   deny: {SHELL}\n\
         \x20   commands: [git push]\n\
         \x20   because: the run leaves a patch; what becomes of it is decided elsewhere\n\
         sandbox: {{ level: auto, network: none{toolchains} }}\n",
        extends.join(", ")
    )
}

/// The recipe for a repository of no known toolchain.
const NEUTRAL: &str = "# A start for a repository without a known toolchain: write your own prompt and checks.
version: 1
name: small-fix
description: Fix one mistake in the documentation.
policy: overnight-policy.yaml
expect: change
budget: { turns: 20, cost: 1.00, wall: 10m }
steps:
  - id: fix
    prompt: |
      Find one spelling mistake or one broken reference in the documentation of this repository, and fix it.
      Change nothing else.
    checks:
      - { name: small, changed: { max_files: 3, max_lines: 20 } }
      # - { name: tests, run: ./run-tests, timeout: 10m }
";

/// The command of a project's tests, for the directory that `init` writes to.
fn test_of(project: &Project, dir: &Path) -> String {
    let place = project.first();
    let test = test_command(project.kind, &dir.join(place));
    match place {
        "" => test,
        place => format!("cd {place} && {test}"),
    }
}

/// The recipe `builtin:fix-tests` with the command and the policy of this repository. Its checks are those that ship, so
/// that there is one list of what an agent must not change; tests in Rust's sources are counted, too.
fn recipe(first: &Project, projects: &[Project], dir: &Path) -> String {
    let test = test_of(first, dir);
    let modules = kept(projects, dir);
    let isolate = match modules.is_empty() {
        true => String::new(),
        false => format!("isolate: {{ keep: [{}] }}\n", modules.join(", ")),
    };
    let is_rust = projects.iter().any(|project| project.kind.name == "rust");
    let shipped = shipped::recipe("fix-tests").unwrap_or_default();
    let mut text = format!(
        "# Makes the tests of this {} project pass. The tests themselves stay as they are.\n",
        first.kind.title
    );
    for line in shipped.lines().filter(|line| !line.starts_with('#')) {
        match line {
            _ if line.starts_with("model:") || line.starts_with("policy:") => continue,
            "expect: change" => text.push_str("policy: overnight-policy.yaml\n"),
            "steps:" => text.push_str(&isolate),
            _ if line.starts_with("isolate:") => continue,
            "      - name: tests-untouched" if is_rust => text.push_str(&check("fix-clippy", "tests-kept")),
            _ if line.starts_with("  - { name: command,") => {
                text.push_str(&format!(
                    "  - {{ name: command, type: string, default: \"{test}\", description: the test command }}\n"
                ));
                continue;
            }
            _ => {}
        }
        text.push_str(line);
        text.push('\n');
    }
    text
}

/// A check of a shipped recipe, as its file has it.
fn check(recipe: &str, name: &str) -> String {
    let lines = shipped::recipe(recipe).unwrap_or_default().lines();
    let begin = format!("      - name: {name}");
    let mut check = lines.skip_while(|line| *line != begin);
    let head = check.next().into_iter();
    let body = check.take_while(|line| line.starts_with("        "));
    head.chain(body).map(|line| format!("{line}\n")).collect()
}

/// The ignored directories that a run in a worktree needs too: installed packages.
fn kept(projects: &[Project], dir: &Path) -> Vec<String> {
    let mut found = Vec::new();
    for project in projects {
        for place in project.places.iter().take(MOST_PLACES) {
            let at = dir.join(place);
            let names: Vec<&str> = match project.kind.name {
                "node" => vec!["node_modules"],
                "python" => {
                    let environments = [".venv", "venv"].into_iter();
                    environments.filter(|name| is_ignored_dir(dir, &at, name)).collect()
                }
                _ => Vec::new(),
            };
            found.extend(names.into_iter().map(|name| match place.as_str() {
                "" => name.to_owned(),
                place => format!("{place}/{name}"),
            }));
        }
    }
    found
}

/// Whether `at` has a directory of this name that git ignores, by the files in which that is usually said.
fn is_ignored_dir(top: &Path, at: &Path, name: &str) -> bool {
    let is_named = |dir: &Path| {
        let listed = text_of(dir, ".gitignore");
        listed.lines().any(|line| line.trim().trim_matches('/') == name)
    };
    at.join(name).is_dir() && (at.join(name).join(".gitignore").is_file() || is_named(at) || is_named(top))
}

/// The default branch of `origin` if the repository knows it, else the one that is most likely: `main` or `master` of `origin`, its
/// only branch, or the current branch.
fn default_branch(dir: &Path) -> String {
    let git = dir.join(".git");
    let branch = |file: &str, prefix: &str| {
        let text = patch::regular_text(&git.join(file))?;
        Some(text.trim().strip_prefix(prefix)?.to_owned())
    };
    let known = branch("refs/remotes/origin/HEAD", "ref: refs/remotes/origin/")
        .or_else(|| likely_branch(&git))
        .or_else(|| branch("HEAD", "ref: refs/heads/"));
    let plain = |name: &String| {
        name.bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || b"-_./".contains(&byte))
    };
    known.filter(plain).unwrap_or_else(|| "main".to_owned())
}

/// The branch of `origin` that is most likely its default, by the references of a git directory.
fn likely_branch(git: &Path) -> Option<String> {
    let packed = patch::regular_text(&git.join("packed-refs")).unwrap_or_default();
    let packed = packed.lines().filter_map(|line| {
        line.split_once(" refs/remotes/origin/")
            .map(|(_, name)| name.to_owned())
    });
    let loose = std::fs::read_dir(git.join("refs/remotes/origin"))
        .into_iter()
        .flatten()
        .flatten();
    let loose = loose.filter_map(|entry| {
        let name = entry.file_name().into_string().ok()?;
        // The branches below a directory are not counted.
        Some(match entry.path().is_dir() {
            true => format!("{name}/"),
            false => name,
        })
    });
    let names: BTreeSet<String> = packed.chain(loose).filter(|name| name != "HEAD").collect();
    let usual = ["main", "master"].into_iter().find(|name| names.contains(*name));
    match (usual, names.len()) {
        (Some(name), _) => Some(name.to_owned()),
        (None, 1) => names.into_iter().next().filter(|name| !name.ends_with('/')),
        (None, _) => None,
    }
}

fn workflow(projects: &[Project], dir: &Path, recipe: &str, branch: &str) -> String {
    let setup: String = projects.iter().map(|project| setup(project, dir)).collect();
    format!(
        "# Every night: recipe and policy come from the default branch; the patch is an artefact of the run.\n\
         name: overnight\n\
         on:\n\
         \x20 schedule: [{{ cron: \"15 3 * * *\" }}]\n\
         \x20 workflow_dispatch:\n\
         permissions:\n\
         \x20 contents: read\n\
         jobs:\n\
         \x20 overnight:\n\
         \x20   runs-on: ubuntu-latest\n\
         \x20   steps:\n\
         \x20     - uses: actions/checkout@3d3c42e5aac5ba805825da76410c181273ba90b1 # v7.0.1\n\
         \x20       with: {{ persist-credentials: false, fetch-depth: 0 }}\n\
         {setup}\
         \x20     - name: install overnight\n\
         \x20       env: {{ SOURCE: \"${{{{ vars.OVERNIGHT_SOURCE }}}}\" }}\n\
         \x20       run: cargo install --locked --git \"$SOURCE\"\n\
         \x20     - run: >\n\
         \x20         overnight run git:origin/{branch}:{recipe}\n\
         \x20         --policy git:origin/{branch}:ci/overnight-policy.yaml\n\
         \x20         --model gemini/gemini-2.5-pro\n\
         \x20         --out \"$RUNNER_TEMP/overnight\" --isolate --github\n\
         \x20       env:\n\
         \x20         GEMINI_API_KEY: ${{{{ secrets.GEMINI_API_KEY }}}}\n\
         \x20     - if: always()\n\
         \x20       uses: actions/upload-artifact@bbbca2ddaa5d8feaa63e36b76fdaad77386f024f # v7.0.0\n\
         \x20       with: {{ name: overnight, path: \"${{{{ runner.temp }}}}/overnight\", include-hidden-files: true, if-no-files-found: ignore }}\n"
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::toolchain;

    #[test]
    fn every_toolchain_has_its_tests_and_its_setup() {
        let kinds: Vec<&str> = KINDS.iter().map(|kind| kind.name).collect();
        assert_eq!(kinds, toolchain::NAMES);
    }

    #[test]
    fn the_host_of_a_remote_is_neither_its_path_nor_its_user() {
        for (url, host) in [
            ("https://gitlab.com/a/b.git", "gitlab.com"),
            ("git@gitlab.example.org:a/b.git", "gitlab.example.org"),
            ("https://gitlab:x@github.com/a/b", "github.com"),
            ("git@github.com:a/gitlab-tools.git", "github.com"),
            ("https://github.com/gitlab/b", "github.com"),
            ("/srv/gitlab/b.git", ""),
        ] {
            assert_eq!(host_of(url), host, "{url}");
        }
    }
}
