//! Implements `overnight init`: inspects a repository and writes a policy, a first recipe and a workflow for it.
//! Overwrites no file and runs no command.

use super::printed;
use crate::base::quote::shell_word;
use crate::cli::args::InitArgs;
use crate::cli::exit;
use crate::cli::refusal::Refusal;
use crate::cli::schemas::SchemaKind;
use crate::journal::{JournalError, place, store};
use crate::workspace::toolchains;
use std::path::Path;

/// Data about one toolchain.
struct Kind {
    name: &'static str,
    /// Name for people.
    title: &'static str,
    /// Command that runs the tests of a usual project.
    test: &'static str,
    /// Workflow steps that install the toolchain.
    setup: &'static str,
    /// Patterns of tests and of files that decide which tests run; the recipe protects them from changes.
    frozen: &'static [&'static str],
}

const KINDS: &[Kind] = &[
    Kind {
        name: "rust",
        title: "Rust",
        test: "cargo test --quiet",
        setup: "      - run: rustup toolchain install stable --profile minimal\n      - run: cargo fetch\n",
        frozen: &["tests/**", "**/Cargo.toml", "**/build.rs", ".cargo/**"],
    },
    Kind {
        name: "node",
        title: "Node",
        test: "npm test --silent",
        setup: "      - uses: actions/setup-node@820762786026740c76f36085b0efc47a31fe5020 # v7.0.0\n        with: { node-version: 22 }\n      - run: npm ci\n",
        frozen: &[
            "test/**",
            "tests/**",
            "**/__tests__/**",
            "**/{*.,}{test,spec}.*",
            "**/package.json",
            "**/*.config.*",
        ],
    },
    Kind {
        name: "python",
        title: "Python",
        test: "python3 -m pytest -q",
        setup: "      - uses: actions/setup-python@5fda3b95a4ea91299a34e894583c3862153e4b97 # v7.0.0\n        with: { python-version: '3.13' }\n      - run: python3 -m pip install -e . pytest\n",
        frozen: &[
            "tests/**",
            "test/**",
            "**/{conftest,test,tests,test_*,*_test,sitecustomize}.py",
            "**/{pytest,tox,setup}.{ini,cfg}",
            "**/pyproject.toml",
        ],
    },
    Kind {
        name: "go",
        title: "Go",
        test: "go test ./...",
        setup: "      - uses: actions/setup-go@b7ad1dad31e06c5925ef5d2fc7ad053ef454303e # v7.0.0\n        with: { go-version: stable }\n      - run: go mod download\n",
        frozen: &["**/*_test.go", "**/testdata/**", "**/go.mod"],
    },
    Kind {
        name: "java",
        title: "Java",
        test: "mvn -q -o test",
        setup: "      - uses: actions/setup-java@b6effb05e454b25005698d916606bdc6ffcbf961 # v5.7.0\n        with: { distribution: temurin, java-version: 21 }\n      - run: mvn -q dependency:go-offline\n",
        frozen: &["**/src/test/**", "**/pom.xml"],
    },
];

/// Runs the command. Returns exit code 8 if no known toolchain is found.
pub fn init(args: &InitArgs) -> Result<u8, Refusal> {
    let dir = &args.dir;
    if !dir.is_dir() {
        return Err(Refusal::Environment(format!("{} is not a directory", dir.display())));
    }
    let found = toolchains::of(dir);
    let kinds: Vec<&Kind> = KINDS
        .iter()
        .filter(|kind| found.iter().any(|name| name == kind.name))
        .collect();
    let Some(first) = kinds.first() else {
        return Err(Refusal::Environment(format!(
            "{} has no Cargo.toml, package.json, pyproject.toml, go.mod, pom.xml or build.gradle: write a recipe with `overnight recipe new`",
            dir.display()
        )));
    };
    let titles: Vec<&str> = kinds.iter().map(|kind| kind.title).collect();
    printed(&format!("saw: {}\n", titles.join(", ")))?;
    let test = test_command(first, dir);
    let files = [
        ("ci/overnight-policy.yaml", SchemaKind::Policy.headed(&policy(&kinds))),
        (
            "ci/fix-tests.yaml",
            SchemaKind::Recipe.headed(&recipe(first, &kinds, &test)),
        ),
        (
            ".github/workflows/overnight.yml",
            workflow(&kinds, &default_branch(dir)),
        ),
    ];
    for (name, text) in files {
        let path = dir.join(name);
        let word = match std::fs::symlink_metadata(&path) {
            Ok(_) => "stands",
            Err(_) => {
                write(dir, &path, &text)?;
                "wrote"
            }
        };
        printed(&format!("{word}: {}\n", path.display()))?;
    }
    printed(&format!(
        "next: overnight run {recipe} --policy {policy} --model gemini/gemini-2.5-pro --isolate\n",
        recipe = shell_word(&dir.join("ci/fix-tests.yaml").to_string_lossy()),
        policy = shell_word(&dir.join("ci/overnight-policy.yaml").to_string_lossy()),
    ))?;
    Ok(exit::PASSED)
}

/// Writes a new file without following links in its path.
fn write(root: &Path, path: &Path, text: &str) -> Result<(), Refusal> {
    store::refuse_link(root, path)?;
    let parent = path.parent().unwrap_or(root);
    place::make_dirs(root, parent)
        .and_then(|()| place::write_new(path, text.as_bytes()))
        .map_err(|source| JournalError::Write {
            path: path.display().to_string(),
            source,
        })?;
    Ok(())
}

/// The test command: a specific one if the tree's files suggest it, else the toolchain's usual one.
fn test_command(kind: &Kind, dir: &Path) -> String {
    let has = |name: &str| dir.join(name).is_file();
    let found = match kind.name {
        "java" if has("gradlew") => "./gradlew --offline test",
        "java" if has("build.gradle") || has("build.gradle.kts") => "gradle --offline test",
        "java" if has("mvnw") => "./mvnw -q -o test",
        "node" if has("pnpm-lock.yaml") => "pnpm test",
        "node" if has("yarn.lock") => "yarn test",
        "python" if has("tox.ini") || has("pytest.ini") || has("pyproject.toml") => kind.test,
        "python" => "python3 -m unittest discover",
        _ => kind.test,
    };
    found.to_owned()
}

fn policy(kinds: &[&Kind]) -> String {
    let extends: Vec<String> = kinds.iter().map(|kind| format!("builtin:{}", kind.name)).collect();
    let names: Vec<&str> = kinds.iter().map(|kind| kind.name).collect();
    format!(
        "# What a run may do here without a person. `overnight policy check` prints it in words.\n\
         version: 1\n\
         extends: [{}]\n\
         rules:\n\
         \x20 - id: push\n\
         \x20   deny: run_shell_command\n\
         \x20   commands: [git push]\n\
         \x20   because: the run leaves a patch; what becomes of it is decided elsewhere\n\
         sandbox: {{ level: auto, network: none, toolchains: [{}] }}\n",
        extends.join(", "),
        names.join(", ")
    )
}

fn recipe(first: &Kind, kinds: &[&Kind], test: &str) -> String {
    let mut frozen: Vec<&str> = Vec::new();
    for pattern in kinds.iter().flat_map(|kind| kind.frozen) {
        if !frozen.contains(pattern) {
            frozen.push(pattern);
        }
    }
    let never: Vec<String> = frozen.iter().map(|pattern| format!("\"{pattern}\"")).collect();
    format!(
        "# Makes the tests of this {title} project pass. The tests themselves stay as they are.\n\
         version: 1\n\
         name: fix-tests\n\
         description: Mend the code until the tests pass; the tests are not touched.\n\
         policy: overnight-policy.yaml\n\
         expect: change\n\
         skip_if_green: true\n\
         budget: {{ turns: 40, cost: 2.00, wall: 20m }}\n\
         steps:\n\
         \x20 - id: test\n\
         \x20   run: {test}\n\
         \x20   allow_failure: true\n\
         \x20 - id: fix\n\
         \x20   prompt: |\n\
         \x20     The tests of this project fail:\n\
         \n\
         \x20     {{{{ steps.test.output }}}}\n\
         \n\
         \x20     Find the cause in the code and mend it. Do not change the tests.\n\
         \x20   checks:\n\
         \x20     - {{ name: tests, run: \"{test}\", timeout: 10m }}\n\
         \x20     - {{ name: tests-untouched, changed: {{ never: [{never}], max_files: 20, max_lines: 400 }} }}\n\
         \x20   retry: {{ max: 2 }}\n",
        title = first.title,
        never = never.join(", "),
    )
}

/// The default branch of `origin` if the repository knows it, else the current branch.
fn default_branch(dir: &Path) -> String {
    let git = dir.join(".git");
    let branch = |file: &str, prefix: &str| {
        let text = std::fs::read_to_string(git.join(file)).ok()?;
        Some(text.trim().strip_prefix(prefix)?.to_owned())
    };
    let known =
        branch("refs/remotes/origin/HEAD", "ref: refs/remotes/origin/").or_else(|| branch("HEAD", "ref: refs/heads/"));
    let plain = |name: &String| {
        name.bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || b"-_./".contains(&byte))
    };
    known.filter(plain).unwrap_or_else(|| "main".to_owned())
}

fn workflow(kinds: &[&Kind], branch: &str) -> String {
    let setup: String = kinds.iter().map(|kind| kind.setup).collect();
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
         \x20         overnight run git:origin/{branch}:ci/fix-tests.yaml\n\
         \x20         --policy git:origin/{branch}:ci/overnight-policy.yaml\n\
         \x20         --model gemini/gemini-2.5-pro\n\
         \x20         --out \"$RUNNER_TEMP/overnight\"\n\
         \x20       env:\n\
         \x20         GEMINI_API_KEY: ${{{{ secrets.GEMINI_API_KEY }}}}\n\
         \x20     - if: always()\n\
         \x20       run: |\n\
         \x20         if [ -f \"$RUNNER_TEMP/overnight/summary.md\" ]; then\n\
         \x20           cat \"$RUNNER_TEMP/overnight/summary.md\" >> \"$GITHUB_STEP_SUMMARY\"\n\
         \x20         fi\n\
         \x20     - if: always()\n\
         \x20       uses: actions/upload-artifact@bbbca2ddaa5d8feaa63e36b76fdaad77386f024f # v7.0.0\n\
         \x20       with: {{ name: overnight, path: \"${{{{ runner.temp }}}}/overnight\", if-no-files-found: ignore }}\n"
    )
}
