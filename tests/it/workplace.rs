//! Daily work as a developer does it: builds that start from nothing only once, paths that stay, virtual environments, throw-away
//! worktrees with their dependencies, no waiting for a network that is not there. Real tools in the real sandbox.

use super::harness::{Done, World, calls, git_in, have, open_policy, says, script, shell, writes};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

const LEVELS: [&str; 2] = ["full", "landlock"];

/// What lies below a directory: path, and what would change if it were written again.
fn written(dir: &Path) -> BTreeMap<String, (u64, i64, i64, u64)> {
    let mut found = BTreeMap::new();
    let mut left = vec![dir.to_path_buf()];
    while let Some(at) = left.pop() {
        for entry in std::fs::read_dir(&at).into_iter().flatten().flatten() {
            let data = entry.metadata().unwrap();
            if data.is_dir() {
                left.push(entry.path());
            } else {
                let facts = (data.ino(), data.mtime(), data.mtime_nsec(), data.len());
                found.insert(entry.path().display().to_string(), facts);
            }
        }
    }
    found
}

fn policy(level: &str, toolchains: &str, more: &str) -> String {
    format!(
        "version: 1\nextends: [builtin:edit]\nrules:\n  - {{ allow: run_shell_command, commands: [env, sort, git status, git diff, \
         cat, ls, printf, sleep], args: any }}\n{more}sandbox: {{ level: {level}, toolchains: [{toolchains}] }}\n"
    )
}

/// A recipe of one command.
fn recipe(command: &str) -> String {
    format!(
        "version: 1\nname: build\nsteps:\n  - {{ id: build, run: {} }}\n",
        json!(command)
    )
}

/// One run of a command in a fresh run directory; `None` where the level is not available.
fn build(world: &World, level: &str, toolchains: &str, command: &str) -> Option<String> {
    let _ = std::fs::remove_dir_all(world.out());
    let done = world.recipe(&recipe(command), "replies: []\n", &policy(level, toolchains, ""), &[]);
    if !have(
        &format!("sandbox level {level}"),
        !done.stderr.contains("is not available here"),
    ) {
        return None;
    }
    let journal = std::fs::read_to_string(journal(world)).unwrap();
    let output = journal.lines().find_map(|line| {
        let value: Value = serde_json::from_str(line).ok()?;
        let entry = &value["entry"];
        (entry["event"] == "ran").then(|| entry["output"].as_str().unwrap().to_owned())
    });
    assert_eq!(done.code, 0, "{level}: {output:?}\n{}", done.stderr);
    Some(output.unwrap())
}

/// Where the journal of the last run lies.
fn journal(world: &World) -> std::path::PathBuf {
    let at = world.result()["artefacts"]["journal"].as_str().unwrap().to_owned();
    world.ws().join(at)
}

fn by_hand(world: &World, command: &str) -> String {
    let mut shell = Command::new("bash");
    shell
        .args(["-c", command])
        .current_dir(world.ws())
        // CI sets it for its own build; cargo would then compile with other options than the run did.
        .env_remove("CARGO_INCREMENTAL")
        .env("HOME", world.path().join("home"));
    for (name, value) in world.command(&[]).get_envs() {
        if let (true, Some(value)) = (name == "CARGO_HOME" || name == "RUSTUP_HOME", value) {
            shell.env(name, value);
        }
    }
    let output = shell.output().unwrap();
    let text = format!(
        "{}{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
    assert!(output.status.success(), "{text}");
    text
}

/// Two runs and a build by hand; `is_new` says whether an output tells of work that was done.
fn built_once(
    world: &World,
    (level, toolchains): (&str, &str),
    command: &str,
    results: &str,
    is_new: fn(&str) -> bool,
) {
    let Some(first) = build(world, level, toolchains, command) else {
        return;
    };
    assert!(is_new(&first), "{level}: the first run builds: {first}");
    let before = written(&world.ws().join(results));
    assert!(!before.is_empty());
    let second = build(world, level, toolchains, command).unwrap();
    assert!(!is_new(&second), "{level}: the second run builds again: {second}");
    assert_eq!(written(&world.ws().join(results)), before, "{level}: the second run");
    let third = by_hand(world, command);
    assert!(!is_new(&third), "{level}: by hand it builds again: {third}");
    assert_eq!(written(&world.ws().join(results)), before, "{level}: by hand");
    let fourth = build(world, level, toolchains, command).unwrap();
    assert!(!is_new(&fourth), "{level}: the run after a build by hand: {fourth}");
}

#[test]
fn a_cargo_project_is_compiled_once() {
    for level in LEVELS {
        let world = World::new();
        world.file(
            "Cargo.toml",
            "[package]\nname = \"small\"\nversion = \"0.1.0\"\nedition = \"2021\"\n[dependencies]\nlibc = \"0.2\"\n",
        );
        world.file("build.rs", "fn main() { println!(\"cargo:rerun-if-changed=build.rs\"); println!(\"cargo:rerun-if-env-changed=HOME\"); }\n");
        world.file(
            "src/main.rs",
            "fn main() { println!(\"{}\", unsafe { libc::getpid() } > 0); }\n",
        );
        // The developer has fetched what is needed.
        by_hand(&world, "cargo fetch --quiet");
        // At `landlock` a private home has a path of its own; the rest is the developer's.
        if level == "landlock" {
            world.file(
                "build.rs",
                "fn main() { println!(\"cargo:rerun-if-changed=build.rs\"); }\n",
            );
        }
        built_once(
            &world,
            (level, "rust"),
            "cargo build 2>&1",
            "target/debug/deps",
            |text| text.contains("Compiling"),
        );
    }
}

#[test]
fn an_npm_project_is_installed_from_the_users_cache_and_compiled_once() {
    let fetched = |world: &World| {
        let mut npm = Command::new("npm");
        npm.args(["install", "--silent", "--no-audit", "--no-fund", "--ignore-scripts"])
            .current_dir(world.ws())
            .env("HOME", world.path().join("home"));
        npm.output().is_ok_and(|output| output.status.success())
    };
    let world = World::new();
    let manifest = json!({
        "name": "small", "version": "1.0.0", "private": true,
        "scripts": { "build": "tsc -p ." },
        "devDependencies": { "typescript": "5.4.5" }
    });
    world.file("package.json", manifest.to_string());
    let options = json!({
        "compilerOptions": { "incremental": true, "outDir": "dist", "listEmittedFiles": true, "types": [] }, "include": ["src"]
    });
    world.file("tsconfig.json", options.to_string());
    world.file("src/index.ts", "export const two: number = 1 + 1;\n");
    if !have("npm and its registry", fetched(&world)) {
        return;
    }
    for level in LEVELS {
        let _ = std::fs::remove_dir_all(world.ws().join("dist"));
        built_once(&world, (level, "node"), "npm run build", "dist", |text| {
            text.contains("TSFILE")
        });
        // Only where the cache can be layered is it there.
        if level == "full" {
            std::fs::remove_dir_all(world.ws().join("node_modules")).unwrap();
            let cache = written(&world.path().join("home/.npm/_cacache"));
            let text = build(&world, level, "node", "npm ci && npm run build").unwrap();
            assert!(text.contains("added 1 package"), "{text}");
            assert_eq!(
                written(&world.path().join("home/.npm/_cacache")),
                cache,
                "the user's own is not written"
            );
        }
    }
}

#[test]
fn a_python_extension_is_compiled_once() {
    let ready = Command::new("bash")
        .args(["-c", "python3 -c 'import setuptools, sysconfig, os; assert os.path.exists(sysconfig.get_path(\"include\") + \"/Python.h\")' && cc --version"])
        .output();
    if !have(
        "python3 with setuptools, its headers and a C compiler",
        ready.is_ok_and(|output| output.status.success()),
    ) {
        return;
    }
    for level in LEVELS {
        let world = World::new();
        world.file(
            "setup.py",
            "from setuptools import setup, Extension\nsetup(name='small', version='1.0', ext_modules=[Extension('small', ['small.c'])])\n",
        );
        world.file(
            "small.c",
            "#include <Python.h>\nstatic struct PyModuleDef m = { PyModuleDef_HEAD_INIT, \"small\", 0, -1, 0 };\nPyMODINIT_FUNC PyInit_small(void) { return PyModule_Create(&m); }\n",
        );
        // The interpreter of the machine is no secret.
        let world = ["PYENV_ROOT", "PYENV_VERSION"]
            .iter()
            .fold(world, |world, name| match std::env::var(name) {
                Ok(value) => world.env(name, value),
                Err(_) => world,
            });
        let world = match std::env::var("HOME").map(|home| format!("{home}/.pyenv")) {
            Ok(root) if Path::new(&root).is_dir() => world.env("PYENV_ROOT", root),
            _ => world,
        };
        let command = "python3 setup.py build_ext --inplace 2>&1 && python3 -c 'import small'";
        built_once(&world, (level, "python"), command, "build", |text| {
            text.contains("small.c")
        });
    }
}

#[test]
fn homes_and_caches_lie_at_the_same_place_in_every_run() {
    for level in LEVELS {
        let world = World::repo(&[("a.txt", "one\n")]);
        let command = "env | grep -E '^(HOME|TMPDIR|CARGO_HOME|npm_config_cache|PIP_CACHE_DIR|GOCACHE|PATH)=' | sort; ls -A $HOME; touch $HOME/left $TMPDIR/left";
        let all = "rust, node, python, go, java";
        let Some(first) = build(&world, level, all, command) else {
            continue;
        };
        assert_eq!(build(&world, level, all, command).unwrap(), first, "{level}");
        assert!(
            !first.contains("left\n"),
            "what a command leaves at home goes with the run: {first}"
        );
        let home = world.path().canonicalize().unwrap().join("home").display().to_string();
        if level == "full" {
            assert!(
                first.contains(&format!("HOME={home}\n")) && first.contains("TMPDIR=/tmp\n"),
                "{first}"
            );
            assert!(first.contains(&format!("npm_config_cache={home}/.npm\n")), "{first}");
        } else {
            assert!(first.contains(&format!("HOME={home}/.cache/overnight/")), "{first}");
        }
        // Nothing of it is the user's.
        assert!(!world.path().join("home/left").exists());
        let kept = written(&world.path().join("home/.cache/overnight"));
        assert!(kept.keys().all(|path| path.ends_with("/lock")), "{level}: {kept:?}");
    }
}

#[test]
fn credentials_among_the_programs_of_a_toolchain_are_not_readable() {
    for level in LEVELS {
        let world = World::repo(&[("a.txt", "one\n")]);
        let uv = ".local/share/uv";
        for path in [
            format!("{uv}/credentials/credentials.toml"),
            format!("{uv}/python/cpython/bin/tool"),
            ".nvm/versions/node/v22/etc/npmrc".to_owned(),
            ".nvm/versions/node/v22/lib/tool".to_owned(),
            "miniconda3/.condarc".to_owned(),
            "miniconda3/condarc.d/a.yml".to_owned(),
            ".pyenv/versions/3.12/pip.conf".to_owned(),
            "miniconda3/ssl/cacert.pem".to_owned(),
        ] {
            world.beside(&format!("home/{path}"), format!("content of {path}\n"));
        }
        let home = world.path().canonicalize().unwrap().join("home").display().to_string();
        let list = "miniconda3/.condarc miniconda3/condarc.d/a.yml .pyenv/versions/3.12/pip.conf \
                    miniconda3/ssl/cacert.pem .nvm/versions/node/v22/etc/npmrc .nvm/versions/node/v22/lib/tool \
                    .local/share/uv/credentials/credentials.toml .local/share/uv/python/cpython/bin/tool";
        let command = format!("for f in {list}; do cat {home}/$f 2>&1 || true; done");
        let Some(printed) = build(&world, level, "python, node", &command) else {
            continue;
        };
        for secret in ["credentials.toml", "etc/npmrc", ".condarc", "a.yml", "pip.conf"] {
            let shown = printed
                .lines()
                .any(|line| line.starts_with("content of") && line.ends_with(secret));
            assert!(!shown, "{level}: {secret}: {printed}");
        }
        for tool in ["cpython/bin/tool", "v22/lib/tool", "ssl/cacert.pem"] {
            let shown = printed
                .lines()
                .any(|line| line.starts_with("content of") && line.ends_with(tool));
            assert!(shown, "{level}: {tool}: {printed}");
        }
    }
}

#[test]
fn what_a_run_adds_to_a_cache_is_kept_on_request_and_never_in_the_users_own() {
    let world = World::repo(&[("a.txt", "one\n")]);
    let at = |name: &str| world.path().join("home/.npm").join(name);
    std::fs::create_dir_all(at("")).unwrap();
    std::fs::write(at("users"), "the user's\n").unwrap();
    let run = |policy: &str, command: &str| {
        let _ = std::fs::remove_dir_all(world.out());
        let done = world.recipe(&recipe(command), "replies: []\n", policy, &[]);
        (done.code, done.stderr)
    };
    let sandbox = |more: &str| format!("version: 1\nsandbox: {{ level: full, toolchains: [node]{more} }}\n");
    let write = "cat ~/.npm/users && echo mine > ~/.npm/added && echo changed > ~/.npm/users";
    let read = "grep mine ~/.npm/added && grep changed ~/.npm/users";
    let (code, stderr) = run(&sandbox(""), write);
    if !have("sandbox level full", !stderr.contains("is not available here")) {
        return;
    }
    assert_eq!(code, 0, "{stderr}");
    assert_eq!(run(&sandbox(""), read).0, 1, "without being asked nothing is kept");
    assert_eq!(run(&sandbox(", caches: keep"), write).0, 0);
    assert_eq!(run(&sandbox(", caches: keep"), read).0, 0);
    assert_eq!(run(&sandbox(", caches: discard"), read).0, 1);
    // Another repository has its own.
    let other = World::repo(&[("b.txt", "two\n")]).env("HOME", world.path().join("home").display().to_string());
    let done = other.recipe(
        &recipe("test ! -e ~/.npm/added"),
        "replies: []\n",
        &sandbox(", caches: keep"),
        &[],
    );
    assert_eq!(done.code, 0, "{}", done.stderr);
    assert_eq!(std::fs::read_to_string(at("users")).unwrap(), "the user's\n");
    assert!(!at("added").exists());
}

#[test]
fn commands_at_the_same_time_have_caches_too() {
    let world = World::new();
    std::fs::create_dir_all(world.path().join("home/.npm")).unwrap();
    std::fs::write(world.path().join("home/.npm/users"), "the user's\n").unwrap();
    let background = calls(
        "run_shell_command",
        json!({"command": "python3 -c 'import time; time.sleep(30)'", "is_background": true}),
    );
    world.file("show.py", "import os\nprint(open(os.path.expanduser('~/.npm/users')).read())\nopen(os.path.expanduser('~/.npm/mine'), 'w')\n");
    let replies = script(&[
        background,
        shell("python3 show.py"),
        json!({"calls": [
            {"tool": "run_shell_command", "args": {"command": "python3 show.py"}},
            {"tool": "run_shell_command", "args": {"command": "python3 show.py"}},
        ]}),
        says("done"),
    ]);
    let policy = "version: 1\nrules:\n  - { allow: run_shell_command, commands: [python3], args: any }\nsandbox: { level: full, toolchains: [node] }\n";
    let done = world.run(&replies, policy, &["-p", "x"]);
    if !have("sandbox level full", !done.stderr.contains("is not available here")) {
        return;
    }
    let done = done.exits(0);
    let journal = std::fs::read_to_string(journal(&world)).unwrap();
    let shown = journal
        .lines()
        .filter(|line| line.contains("call_finished") && line.contains("the user's"))
        .count();
    assert_eq!(shown, 3, "{}{journal}", done.stderr);
    assert!(!world.path().join("home/.npm/mine").exists());
}

/// A virtual environment as `python -m venv` lays it out, with one program.
fn venv(world: &World, dir: &str) {
    let tool = world.ws().join(dir).join("bin/tool");
    world.file(&format!("{dir}/pyvenv.cfg"), "home = /usr/bin\n");
    world.file(&format!("{dir}/bin/tool"), "#!/bin/sh\necho \"tool of $VIRTUAL_ENV\"\n");
    std::fs::set_permissions(&tool, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
}

#[test]
fn an_activated_environment_of_the_workspace_holds_for_commands_and_is_not_written() {
    for level in LEVELS {
        let world = World::repo(&[(".gitignore", ".venv/\nnode_modules/\n"), ("a.txt", "one\n")]);
        venv(&world, ".venv");
        let ws = world.ws().canonicalize().unwrap();
        let path = std::env::var("PATH").unwrap();
        let bin = ws.join(".venv/bin").display().to_string();
        let world = world
            .env("PATH", format!("{bin}:{path}"))
            .env("VIRTUAL_ENV", ws.join(".venv").display().to_string());
        let plant = "import os\ntry:\n    open('.venv/bin/grep','w').write('#!/bin/sh\\nexit 0\\n')\n    os.chmod('.venv/bin/grep', 0o755)\nexcept OSError as e: print(e)\n";
        world.file("plant.py", plant);
        let replies = script(&[
            shell("tool"),
            writes(".venv/bin/grep", "#!/bin/sh\nexit 0\n"),
            shell("python3 plant.py"),
            says("done"),
        ]);
        let recipe = "version: 1\nname: x\nsteps:\n  - id: work\n    prompt: go\n    checks:\n      - { name: tool, run: tool }\n      - { name: honest, run: 'grep -q never-there a.txt' }\n";
        let policy = format!(
            "version: 1\nrules:\n  - {{ allow: write_file, paths: ['**'] }}\n  - {{ allow: run_shell_command, commands: [tool, python3], args: any }}\nsandbox: {{ level: {level} }}\n"
        );
        let done = world.recipe(recipe, &replies, &policy, &[]);
        if !have(
            &format!("sandbox level {level}"),
            !done.stderr.contains("is not available here"),
        ) {
            continue;
        }
        let result = world.result();
        let journal = std::fs::read_to_string(journal(&world)).unwrap();
        assert!(
            journal.contains(&format!("tool of {}", ws.join(".venv").display())),
            "{level}: {journal}"
        );
        assert!(!ws.join(".venv/bin/grep").exists(), "{level}: a program was planted");
        let failed = result["checks"]
            .as_array()
            .into_iter()
            .flatten()
            .any(|check| check["name"] == "honest");
        assert!(done.code != 0 && (failed || done.code == 4), "{level}: {result}");
    }
}

/// The author of a tree can put programs into a virtual environment that is active: they are not the machine's.
#[test]
fn programs_of_an_active_environment_do_not_run_under_rules_for_the_machine() {
    // What is printed is not the text of any file.
    let program = |name: &str| format!("#!/bin/sh\necho tree-\"ran\"-{name}\n");
    for level in LEVELS {
        let world = World::repo(&[(".gitignore", ".venv/\n"), ("a.txt", "of-the-file\n")]);
        venv(&world, ".venv");
        let ws = world.ws().canonicalize().unwrap();
        let bin = ws.join(".venv/bin");
        for name in ["cat", "git", "env", "sort", "ruff", "own-tool", "date"] {
            world.file(&format!(".venv/bin/{name}"), program(name));
            std::fs::set_permissions(bin.join(name), std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
        }
        std::os::unix::fs::symlink("/usr/bin/wc", bin.join("wc")).unwrap();
        world.file(
            ".venv/bin/activate",
            "VIRTUAL_ENV=\"$PWD/.venv\"\nexport VIRTUAL_ENV\nPATH=\"$VIRTUAL_ENV/bin:$PATH\"\nexport PATH\n",
        );
        let policy = format!(
            "version: 1\nrules:\n  - {{ allow: run_shell_command, commands: [cat, git status, env, sort, xargs, ruff check, own-tool, wc, \
             date, ./.venv/bin/date] }}\nsandbox: {{ level: {level} }}\n"
        );
        let run = |world: &World, commands: &[&str]| {
            let _ = std::fs::remove_dir_all(world.out());
            let replies: Vec<Value> = commands.iter().map(|line| shell(line)).chain([says("done")]).collect();
            let done = world.run(&script(&replies), &policy, &["-p", "x"]);
            let told = std::fs::read_to_string(world.out().join("transcript.json")).unwrap_or_default();
            (done, told)
        };
        // Activated by the command itself, then by the user's shell.
        let (done, told) = run(&world, &["source .venv/bin/activate && cat a.txt"]);
        if !have(
            &format!("sandbox level {level}"),
            !done.stderr.contains("is not available here"),
        ) {
            continue;
        }
        assert!(done.code == 4 && !told.contains("tree-ran"), "{level}: {told}");
        let path = std::env::var("PATH").unwrap();
        let world = world
            .env("PATH", format!("{}:{path}", bin.display()))
            .env("VIRTUAL_ENV", ws.join(".venv").display().to_string());
        let attacks = [
            "cat a.txt",
            "git status",
            "env sort a.txt",
            "sort a.txt",
            "echo a.txt | xargs cat",
        ];
        let (done, told) = run(&world, &attacks);
        assert_eq!(done.code, 4, "{level}: {}", done.stderr);
        assert!(!told.contains("tree-ran"), "{level}: {told}");
        assert_eq!(
            world.result()["denied"].as_array().unwrap().len(),
            attacks.len(),
            "{level}: {told}"
        );
        assert!(
            told.contains(".venv/bin/cat` shadows /usr/bin/cat: ") && told.contains("write `/usr/bin/cat`"),
            "{level}: {told}"
        );
        let honest = ["ruff check", "own-tool", "date", "wc -l a.txt", "/usr/bin/cat a.txt"];
        let (done, told) = run(&world, &honest);
        assert_eq!(done.code, 0, "{level}: {} {told}", done.stderr);
        for wanted in [
            "tree-ran-ruff",
            "tree-ran-own-tool",
            "tree-ran-date",
            "1 a.txt",
            "of-the-file",
        ] {
            assert!(told.contains(wanted), "{level} {wanted}: {told}");
        }
    }
}

/// Homes and temporary directories are covered at level `full`, and most repositories lie in one.
#[test]
fn commands_of_git_find_the_repository_outside_of_the_workspace() {
    let uses = "git log --format=%s | grep base && git grep -c one HEAD -- . && git diff HEAD --relative --quiet && ! touch \"$(git rev-parse --git-common-dir)/x\"";
    let recipe = |command: &str| {
        let command = serde_json::json!(command);
        format!("version: 1\nname: x\nsteps:\n  - {{ id: git, run: {command} }}\n")
    };
    for level in LEVELS {
        let world = World::repo(&[("a.txt", "one\n"), ("sub/b.txt", "one\n")]);
        world.git(&["worktree", "add", "-q", "../linked"]);
        let at = |name: &str| world.path().join(name).to_string_lossy().into_owned();
        let policy = policy(level, "node", "");
        for more in [
            &["--isolate"][..],
            &["--workspace", &at("linked")],
            &["--workspace", "sub"],
        ] {
            let _ = std::fs::remove_dir_all(world.out());
            let done = world.recipe(&recipe(uses), "replies: []\n", &policy, more);
            let there = !done.stderr.contains("is not available here");
            if have(&format!("sandbox level {level}"), there) {
                assert_eq!(done.code, 0, "{level} {more:?}: {}", done.stderr);
            }
        }
        // A tree that says it belongs to a repository which does not know it.
        let pointer = std::fs::read_to_string(world.path().join("linked/.git")).unwrap();
        world.beside("stranger/.git", pointer);
        let peeks = format!("! git log && ! cat {}", at("ws/.git/config"));
        let more = ["--workspace", &at("stranger")];
        let _ = std::fs::remove_dir_all(world.out());
        let done = world.recipe(&recipe(&peeks), "replies: []\n", &policy, &more);
        if !done.stderr.contains("is not available here") {
            assert_eq!(done.code, 0, "{level}: {}", done.stderr);
        }
    }
}

#[test]
fn an_isolated_run_has_what_its_recipe_keeps() {
    for level in LEVELS {
        let world = World::repo(&[(".gitignore", "node_modules/\ntarget/\n.venv/\n"), ("a.txt", "one\n")]);
        world.file(
            "node_modules/.bin/tool",
            "#!/bin/sh\necho from-$(basename $(cat node_modules/dep/name))\n",
        );
        let tool = world.ws().join("node_modules/.bin/tool");
        std::fs::set_permissions(&tool, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
        world.file("node_modules/dep/name", "kept\n");
        world.file("target/debug/x", "built\n");
        venv(&world, ".venv");
        let recipe = "version: 1\nname: x\nisolate: { keep: [node_modules, target] }\nsteps:\n  - id: use\n    run: |\n      node_modules/.bin/tool > out.txt\n      grep built target/debug/x\n      echo more > target/debug/y\n      echo changed > node_modules/dep/name\n      grep from-kept out.txt\n  - { id: again, run: grep changed node_modules/dep/name }\n";
        let done = world.recipe(recipe, "replies: []\n", &policy(level, "node", ""), &["--isolate"]);
        if !have(
            &format!("sandbox level {level}"),
            !done.stderr.contains("is not available here"),
        ) {
            continue;
        }
        let done = done.exits(0);
        assert!(
            done.stderr.contains("overnight: node_modules: "),
            "{level}: {}",
            done.stderr
        );
        let missing = done
            .stderr
            .lines()
            .find(|line| line.contains("which git ignores"))
            .unwrap_or_default();
        assert!(
            missing.contains(".venv") && !missing.contains("target"),
            "{level}: {}",
            done.stderr
        );
        assert_eq!(
            world.read("node_modules/dep/name"),
            "kept\n",
            "{level}: the user's own stays"
        );
        assert!(!world.ws().join("target/debug/y").exists(), "{level}");
        let patch = std::fs::read_to_string(world.out().join("changes.patch")).unwrap();
        assert!(
            patch.contains("out.txt") && !patch.contains("node_modules/dep"),
            "{level}: {patch}"
        );
        let left = git_in(&world.ws(), &["worktree", "list"]);
        assert_eq!(left.lines().count(), 1, "{left}");
    }
}

fn executable(path: &Path, text: &str) {
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    std::fs::write(path, text).unwrap();
    std::fs::set_permissions(path, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
}

/// A directory that is brought as a layer is empty where this program looks; the user's own has the programs.
#[test]
fn programs_of_a_directory_that_is_kept_are_found_before_the_run() {
    for level in LEVELS {
        let world = World::repo(&[(".gitignore", "node_modules/\n.venv/\n"), ("a.txt", "one\n")]);
        venv(&world, ".venv");
        let ws = world.ws().canonicalize().unwrap();
        executable(&ws.join("node_modules/.bin/linter"), "#!/bin/sh\necho linted\n");
        let dirs = [".venv/bin", "node_modules/.bin"].map(|dir| ws.join(dir).display().to_string());
        let path = format!("{}:{}", dirs.join(":"), std::env::var("PATH").unwrap());
        let world = world
            .env("PATH", path)
            .env("VIRTUAL_ENV", ws.join(".venv").display().to_string());
        let recipe = |keep: &str| {
            format!(
                "version: 1\nname: x\nisolate: {{ keep: [{keep}] }}\nsteps:\n  - {{ id: use, run: tool, checks: [{{ name: lint, run: linter }}] }}\n"
            )
        };
        let policy = policy(level, "node", "");
        let done = world.recipe(&recipe(".venv, node_modules"), "replies: []\n", &policy, &["--isolate"]);
        let there = !done.stderr.contains("is not available here");
        if !have(&format!("sandbox level {level}"), there) {
            continue;
        }
        let done = done.exits(0);
        assert!(!done.stderr.contains("environment_ignored"), "{level}: {}", done.stderr);
        let _ = std::fs::remove_dir_all(world.out());
        let done = world
            .recipe(&recipe(".venv"), "replies: []\n", &policy, &["--isolate"])
            .exits(8);
        for part in ["`linter`", "node_modules/.bin", "keep: [node_modules]"] {
            assert!(done.stderr.contains(part), "{level} {part}: {}", done.stderr);
        }
    }
}

/// A directory below one of the system, as images for CI jobs have their tools; removed when dropped. `None` where only an
/// administrator can make one.
fn prefix() -> Option<tempfile::TempDir> {
    let places = ["/opt", "/usr/local"].into_iter();
    let made = places.filter_map(|place| {
        tempfile::Builder::new()
            .prefix("overnight-test-")
            .tempdir_in(place)
            .ok()
    });
    let dir = made.into_iter().next()?;
    std::fs::set_permissions(dir.path(), std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    Some(dir)
}

#[test]
fn entries_of_the_path_below_the_system_are_those_of_commands_too() {
    let Some(prefix) = prefix() else { return };
    let bin = prefix.path().join("bin");
    executable(&bin.join("own-test"), "#!/bin/sh\necho own-\"ran\" $VIRTUAL_ENV\n");
    executable(&bin.join("wc"), "#!/bin/sh\necho other-\"wc\"\n");
    for level in LEVELS {
        let world = World::repo(&[("a.txt", "one\n")]);
        let outside = world.path().canonicalize().unwrap().join("outside/bin");
        executable(&outside.join("elsewhere"), "#!/bin/sh\n");
        std::os::unix::fs::symlink(&outside, prefix.path().join(level)).unwrap();
        let path = |dirs: &[&Path]| {
            let dirs: Vec<String> = dirs.iter().map(|dir| dir.display().to_string()).collect();
            format!("{}:/usr/local/bin:/usr/bin:/bin", dirs.join(":"))
        };
        let world = world
            .env("PATH", path(&[&bin, &prefix.path().join(level), &outside]))
            .env("VIRTUAL_ENV", prefix.path().display().to_string());
        let replies = script(&[
            shell("own-test"),
            shell("wc -l a.txt"),
            shell("/usr/bin/wc -l a.txt"),
            says("done"),
        ]);
        let policy = format!(
            "version: 1\nrules:\n  - {{ allow: run_shell_command, commands: [own-test, wc], args: any }}\nsandbox: {{ level: {level} }}\n"
        );
        let recipe =
            "version: 1\nname: x\nsteps:\n  - id: work\n    prompt: go\n    checks: [{ name: own, run: own-test }]\n";
        let done = world.recipe(recipe, &replies, &policy, &[]);
        let there = !done.stderr.contains("is not available here");
        if !have(&format!("sandbox level {level}"), there) {
            continue;
        }
        let done = done.exits(0);
        assert!(!done.stderr.contains("environment_ignored"), "{level}: {}", done.stderr);
        let told = std::fs::read_to_string(world.out().join("transcript.json")).unwrap();
        let active = format!("own-ran {}", prefix.path().display());
        for wanted in [active.as_str(), "other-wc", "1 a.txt"] {
            assert!(told.contains(wanted), "{level} {wanted}: {told}");
        }
        // What a link below the system leads to elsewhere is not readable.
        let recipe = "version: 1\nname: x\nsteps: [{ id: a, run: elsewhere }]\n";
        let _ = std::fs::remove_dir_all(world.out());
        let done = world.recipe(recipe, "replies: []\n", &policy, &[]).exits(8);
        assert!(
            done.stderr.contains("is outside what commands can read"),
            "{level}: {}",
            done.stderr
        );
    }
}

#[test]
fn an_active_environment_that_commands_do_not_see_is_told() {
    let warned = |world: &World, more: &[&str]| {
        let _ = std::fs::remove_dir_all(world.out());
        let recipe = "version: 1\nname: x\nsteps: [{ id: a, run: 'true' }]\n";
        let policy = "version: 1\nextends: [builtin:edit]\n";
        world.recipe(recipe, "replies: []\n", policy, more).exits(0);
        let warnings = world.result()["warnings"].clone();
        let mut ours = warnings.as_array().into_iter().flatten();
        let found = ours.find(|warning| warning["code"] == "environment_ignored");
        found.map(|warning| warning["message"].as_str().unwrap().to_owned())
    };
    let world = World::repo(&[(".gitignore", ".venv/\n"), ("a.txt", "one\n")]);
    venv(&world, ".venv");
    let outside = world.path().join("outside");
    std::fs::create_dir_all(outside.join("bin")).unwrap();
    let (inside, outside) = (world.ws().join(".venv"), outside.display().to_string());
    assert_eq!(warned(&world, &[]), None);
    let world = world.env("CONDA_PREFIX", &outside).env("CONDA_DEFAULT_ENV", "base");
    assert_eq!(warned(&world, &[]), None);
    let world = world.env("CONDA_DEFAULT_ENV", "own");
    let told = warned(&world, &[]).unwrap();
    assert!(
        told.contains(&outside) && told.contains("make it in the workspace"),
        "{told}"
    );
    let doctor = world.call(&["doctor"]).stdout;
    assert!(
        doctor.contains(&format!("do not see the active environment {outside}")),
        "{doctor}"
    );
    let world = world.env("VIRTUAL_ENV", inside.display().to_string());
    assert_eq!(warned(&world, &[]), None);
    let told = warned(&world, &["--isolate"]).unwrap();
    assert!(told.contains("keep: [.venv]") && !told.contains("make it"), "{told}");
    // Made with a Python that is not the system's.
    let base = world.path().canonicalize().unwrap().join("python");
    executable(&base.join("bin/python3"), "#!/bin/sh\n");
    std::fs::create_dir_all(base.join("lib/python3.12")).unwrap();
    std::fs::write(base.join("lib/python3.12/os.py"), "").unwrap();
    for name in ["python", "python3"] {
        std::os::unix::fs::symlink(base.join("bin/python3"), inside.join("bin").join(name)).unwrap();
    }
    let told = warned(&world, &[]).unwrap();
    assert!(told.contains("toolchains: [python]"), "{told}");
}

#[test]
fn nothing_waits_for_a_network_that_is_not_there() {
    for level in LEVELS {
        let world = World::new();
        let pyenv = format!("{}/.pyenv", std::env::var("HOME").unwrap_or_default());
        let world = if Path::new(&pyenv).is_dir() {
            world.env("PYENV_ROOT", pyenv)
        } else {
            world
        };
        world.file("package.json", "{\"name\": \"x\", \"version\": \"1.0.0\"}");
        for (program, toolchain, command) in [
            ("npx", "node", "npx --yes cowsay-that-nobody-has hello"),
            ("npm", "node", "npm install left-pad-that-nobody-has"),
            (
                "python3",
                "python",
                "python3 -m pip install --target t package-that-nobody-has",
            ),
            ("cargo", "rust", "cargo install crate-that-nobody-has"),
            ("mvn", "java", "mvn -q dependency:get -Dartifact=nobody:has:1"),
        ] {
            let found = Command::new("bash")
                .args(["-c", &format!("command -v {program}")])
                .output();
            let there = found.is_ok_and(|output| output.status.success());
            if !there && program == "mvn" || !have(program, there) {
                continue;
            }
            let _ = std::fs::remove_dir_all(world.out());
            let begun = Instant::now();
            let text = format!(
                "version: 1\nname: x\nsteps:\n  - {{ id: try, run: {}, allow_failure: true, timeout: 60s }}\n",
                json!(format!("{command} 2>&1"))
            );
            let done = world.recipe(&text, "replies: []\n", &policy(level, toolchain, ""), &[]);
            if !have(
                &format!("sandbox level {level}"),
                !done.stderr.contains("is not available here"),
            ) {
                break;
            }
            assert!(
                begun.elapsed() < Duration::from_secs(40),
                "{level}: {command} took {:?}",
                begun.elapsed()
            );
            let journal = std::fs::read_to_string(journal(&world)).unwrap();
            assert!(
                !journal.contains("\"timed_out\":true") && !journal.contains("\"code\":0,\"timed_out\""),
                "{level} {command}: {journal}"
            );
        }
    }
}

/// A pipe, a condition or a substitution hides the exit code of a program that is not there.
#[test]
fn a_check_whose_program_is_not_there_is_never_green() {
    let recipe = |check: &str, more: &str| {
        let check = serde_json::Value::from(check);
        format!(
            "version: 1\nname: x\nsteps:\n  - id: work\n    prompt: go\n{more}    checks: [{{ name: lint, run: {check} }}]\n"
        )
    };
    let green_first = "    skip_if_green: true\n";
    for (check, more) in [
        ("test -z \"$(no-such-linter -l .)\"", green_first),
        ("no-such-linter src | tee lint.txt", "    when: 'true'\n"),
        ("env no-such-linter | cat", ""),
        ("timeout 5 no-such-linter | cat", ""),
        ("ls | xargs -n1 no-such-linter | cat", ""),
        ("if no-such-linter; then exit 1; fi", ""),
        ("! { no-such-linter x; }", ""),
        ("bash -c 'no-such-linter | cat'", ""),
        ("P=no-such-linter; $P | cat", ""),
        ("no-such-linter .; true || false", ""),
        ("command -v no-such-linter || true; no-such-linter . | cat", ""),
    ] {
        let world = World::repo(&[("a.txt", "one\n")]);
        let done = world.recipe(&recipe(check, more), &script(&[says("done")]), &open_policy(&[]), &[]);
        assert_eq!(done.code, 8, "{check}: {}", done.stderr);
        let result = world.result();
        assert_eq!(result["reason"], "program_missing", "{check}: {result}");
        assert!(
            result["message"].as_str().unwrap().contains("`no-such-linter`"),
            "{result}"
        );
    }
    for (check, warned) in [
        ("no-such-linter . || true", true),
        ("no-such-linter . || echo no-such-linter is not there", true),
        ("command -v no-such-linter || true", false),
        ("bash told.sh", false),
    ] {
        let tells = "echo bash: line 1: no-such-linter: command not found\n";
        let world = World::repo(&[("told.sh", tells)]);
        world
            .recipe(&recipe(check, ""), &script(&[says("done")]), &open_policy(&[]), &[])
            .exits(0);
        let warnings = world.result()["warnings"].to_string();
        assert_eq!(warnings.contains("program_missing"), warned, "{check}: {warnings}");
    }
}

/// The code under test can print what a shell says of a missing program.
#[test]
fn what_a_test_prints_makes_no_missing_program_of_one_that_is_there() {
    let recipe = "version: 1\nname: x\nsteps:\n  - id: work\n    prompt: go\n    checks: [{ name: t, run: sh t.sh }]\n";
    for code in [1, 127] {
        let world = World::repo(&[("t.sh", "true\n")]);
        let test = format!("echo 'bash: line 1: sh: command not found'\nexit {code}\n");
        let replies = script(&[writes("t.sh", &test), says("done")]);
        world.recipe(recipe, &replies, &open_policy(&[]), &[]).exits(1);
        assert_eq!(world.result()["verdict"], "failed");
    }
}

#[test]
fn a_program_that_is_not_there_ends_the_run_before_any_request() {
    let world = World::new();
    let recipe = "version: 1\nname: x\nsteps:\n  - id: work\n    prompt: go\n    checks:\n      - { name: lint, run: no-such-linter --strict }\n      - { name: unit, run: 'cargo test && no-such-linter' }\n";
    let policy = "version: 1\nextends: [builtin:edit]\n";
    let done = world.recipe(recipe, &script(&[says("done")]), policy, &[]).exits(8);
    assert!(
        done.stderr
            .contains("check `lint` runs `no-such-linter`, which commands cannot find"),
        "{}",
        done.stderr
    );
    assert_eq!(done.stderr.matches("no-such-linter").count(), 1, "{}", done.stderr);
    let in_system = ["/usr/bin/cargo", "/usr/local/bin/cargo", "/bin/cargo"]
        .iter()
        .any(|path| Path::new(path).exists());
    if !in_system {
        assert!(
            done.stderr.contains("check `unit` runs `cargo`") && done.stderr.contains("toolchains: [rust]"),
            "{}",
            done.stderr
        );
    }
    let result = world.result();
    assert_eq!(result["verdict"], "environment");
    assert!(!world.out().join("journal.jsonl").exists(), "nothing was begun");
}

#[test]
fn a_check_that_cannot_run_ends_the_run_and_costs_no_second_turn() {
    for (command, code) in [
        ("sh -c no-such-linter", 8),
        ("test -d /nonexistent || no-such-linter", 8),
        // What the run makes itself is its own affair: the model is told.
        ("./made-by-nobody", 1),
    ] {
        let world = World::new();
        let recipe = format!(
            "version: 1\nname: x\nsteps:\n  - id: work\n    prompt: go\n    retry: {{ max: 1 }}\n    checks: [{{ name: lint, run: {} }}]\n",
            json!(command)
        );
        let replies = script(&[says("done"), says("done again")]);
        world.recipe(&recipe, &replies, &open_policy(&[]), &[]).exits(code);
        let result = world.result();
        assert_eq!(
            result["verdict"],
            if code == 8 { "environment" } else { "failed" },
            "{command}: {result}"
        );
        let turns = if code == 8 { 1 } else { 2 };
        assert_eq!(result["usage"]["turns"], turns, "{command}: {result}");
    }
}

#[test]
fn a_command_of_several_lines_ends_with_the_first_that_fails() {
    for (command, code) in [
        ("false\necho went on\n", 1),
        ("false | cat\necho went on\n", 1),
        ("echo $unset_name\ntrue\n", 1),
        ("false; true", 0),
        ("test -f nothing || true\ntrue\n", 0),
    ] {
        let world = World::new();
        let recipe = format!(
            "version: 1\nname: x\nsteps:\n  - {{ id: s, run: {} }}\n  - {{ id: t, run: 'true' }}\n",
            json!(command)
        );
        world
            .recipe(&recipe, "replies: []\n", &open_policy(&[]), &[])
            .exits(code);
    }
}

#[test]
fn a_recipe_of_commands_needs_no_model_and_no_key() {
    let world = World::new();
    for model in ["", "model: gemini/gemini-2.5-pro\nbudget: { cost: 1.00 }\n"] {
        let _ = std::fs::remove_dir_all(world.out());
        let recipe = world.beside(
            "r.yaml",
            format!("version: 1\nname: x\n{model}steps:\n  - {{ id: s, run: echo hi > out.txt }}\n"),
        );
        let policy = world.beside("p.yaml", open_policy(&[]));
        let out = world.out().display().to_string();
        let done: Done = world
            .call(&["run", &recipe, "--policy", &policy, "--out", &out])
            .exits(0);
        assert_eq!(world.read("out.txt"), "hi\n", "{}", done.stderr);
        world.call(&["report", &out]).exits(0);
    }
    let recipe = world.beside("r.yaml", "version: 1\nname: x\nsteps:\n  - { id: s, prompt: hi }\n");
    let done = world.call(&["run", &recipe, "--out", "y"]).exits(2);
    assert!(done.stderr.contains("no model is named"), "{}", done.stderr);
}

#[test]
fn looking_with_git_leaves_the_index_alone_at_every_level() {
    for level in LEVELS {
        let world = World::repo(&[("a.txt", "one\n"), ("b.txt", "two\n")]);
        world.file("b.txt", "three\n");
        // As after a checkout: the index knows other times than the files have.
        std::fs::File::options()
            .write(true)
            .open(world.ws().join("a.txt"))
            .unwrap()
            .set_modified(std::time::SystemTime::now() - Duration::from_secs(5_000))
            .unwrap();
        let index = world.ws().join(".git/index");
        let before = (std::fs::read(&index).unwrap(), index.metadata().unwrap().ino());
        let replies = script(&[
            shell("git status --short"),
            shell("git diff"),
            shell("git diff --stat HEAD | cat"),
            says("done"),
        ]);
        let policy = policy(level, "", "").replace("toolchains: []", "network: none");
        let done = world.run(&replies, &policy, &["-p", "x"]);
        if !have(
            &format!("sandbox level {level}"),
            !done.stderr.contains("is not available here"),
        ) {
            continue;
        }
        done.exits(0);
        let journal = std::fs::read_to_string(journal(&world)).unwrap();
        assert!(
            journal.contains(" M b.txt") && journal.contains("+three"),
            "{level}: {journal}"
        );
        assert!(!journal.contains("\"decision\":\"deny\""), "{level}: {journal}");
        let after = (std::fs::read(&index).unwrap(), index.metadata().unwrap().ino());
        assert_eq!(after, before, "{level}: the index");
    }
}

/// Changed files of Git LFS are named like others, and its filter is not started for that.
#[test]
fn an_isolated_run_names_changed_files_of_git_lfs() {
    let world = World::repo(&[
        (".gitattributes", "*.bin filter=lfs\n"),
        ("a.txt", "one\n"),
        ("big.bin", "the content 1\n"),
        ("same.bin", "the content 1\n"),
    ]);
    let marker = world.path().join("ran");
    let run = format!("touch {}; cat", marker.display());
    for (key, value) in [
        ("clean", run.as_str()),
        ("smudge", run.as_str()),
        ("process", run.as_str()),
        ("required", "true"),
    ] {
        world.git(&["config", &format!("filter.lfs.{key}"), value]);
    }
    // Of the same size, so that git has to compare the content.
    world.file("big.bin", "the content 2\n");
    world.file("a.txt", "two\n");
    let recipe = "version: 1\nname: x\nsteps:\n  - { id: use, run: 'grep 1 big.bin' }\n";
    let done = world.recipe(recipe, "replies: []\n", &open_policy(&[]), &["--isolate"]);
    let done = done.exits(0);
    assert!(
        done.stderr
            .contains("2 uncommitted changes are not in the worktree of --isolate: a.txt, big.bin; commit first"),
        "{}",
        done.stderr
    );
    assert!(!marker.exists(), "a filter of the repository ran");
}

/// What the worktree of an isolated run does not have is a warning on stderr and of the run.
#[test]
fn an_isolated_run_names_what_its_worktree_lacks() {
    let world = World::repo(&[("a.txt", "one\n"), ("b.txt", "one\n")]);
    let lib = world.ws().join("lib");
    world.file("lib/x.txt", "x\n");
    git_in(&lib, &["init", "-q", "-b", "main"]);
    git_in(&lib, &["add", "-A"]);
    git_in(&lib, &["commit", "-q", "-m", "lib"]);
    world.commit("with a submodule");
    let recipe = "version: 1\nname: x\nsteps:\n  - { id: use, run: 'test ! -e lib/x.txt && grep one a.txt' }\n";
    let policy = open_policy(&[]);
    let done = world.recipe(recipe, "replies: []\n", &policy, &["--isolate"]).exits(0);
    assert!(!done.stderr.contains("uncommitted"), "{}", done.stderr);
    assert!(
        done.stderr
            .contains("warning[isolate]: submodule lib is empty in the worktree of --isolate: run without --isolate"),
        "{}",
        done.stderr
    );
    world.file("a.txt", "two\n");
    world.file("c.txt", "new\n");
    world.git(&["add", "c.txt"]);
    std::fs::remove_dir_all(world.out()).unwrap();
    let done = world.recipe(recipe, "replies: []\n", &policy, &["--isolate"]).exits(0);
    let warning = "2 uncommitted changes are not in the worktree of --isolate: a.txt, c.txt; commit first";
    assert!(
        done.stderr.contains(&format!("warning[isolate]: {warning}")),
        "{}",
        done.stderr
    );
    let warnings = world.result()["warnings"].to_string();
    assert!(warnings.contains(warning), "{warnings}");
    // Only the tree is looked at: the index is as it was.
    assert_eq!(world.git(&["diff", "--cached", "--name-only"]), "c.txt\n");
}
