//! The packages that are made of a built program, what they need around them, and the way of a newcomer.

use super::harness::{BIN, Done, World, have, open_policy, project, until};
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};

fn there(program: &str) -> bool {
    have(program, Command::new(program).arg("--version").output().is_ok())
}

/// Runs a script on the program as it is published, without symbols: those of a debug build are most of its bytes.
fn script(name: &str) -> String {
    let dir = tempfile::tempdir().unwrap();
    let program = dir.path().join("overnight");
    let stripped = Command::new("strip").arg("-o").arg(&program).arg(BIN).status();
    if !stripped.is_ok_and(|status| status.success()) {
        std::fs::copy(BIN, &program).unwrap();
    }
    let done = Command::new("bash")
        .arg(project().join(name))
        .arg(&program)
        .output()
        .unwrap();
    let (out, err) = (
        String::from_utf8_lossy(&done.stdout),
        String::from_utf8_lossy(&done.stderr),
    );
    assert!(done.status.success(), "{name}\n{out}{err}");
    out.into_owned()
}

#[test]
fn archive_wheel_and_npm_package_run_a_sample() {
    if !there("npm") || !there("python3") {
        return;
    }
    let said = script("packaging/try.sh");
    for package in ["archive", "wheel", "npm"] {
        assert!(said.contains(&format!("{package}: the sample passed")), "{said}");
    }
}

/// The terminal or `timeout` signals the whole group: the program, and the launcher, which passes it on.
#[test]
fn a_signal_to_the_npm_launcher_and_its_program_leaves_the_outputs() {
    if !there("node") {
        return;
    }
    let world = World::repo(&[("a.txt", "one\n")]);
    let modules = world.path().join("node_modules");
    let names = [("x86_64", "x64"), ("aarch64", "arm64")];
    let machine = names
        .iter()
        .find(|(rust, _)| *rust == std::env::consts::ARCH)
        .unwrap()
        .1;
    let program = modules.join(format!("overnight-runner-linux-{machine}/bin"));
    let launcher = modules.join("overnight-runner/bin");
    for dir in [&program, &launcher] {
        std::fs::create_dir_all(dir).unwrap();
    }
    std::os::unix::fs::symlink(BIN, program.join("overnight")).unwrap();
    let launcher = launcher.join("overnight.js");
    std::fs::copy(project().join("packaging/npm/bin/overnight.js"), &launcher).unwrap();
    let recipe = world.beside(
        "recipe.yaml",
        "version: 1\nname: r\nsteps:\n  - { id: one, run: 'echo two > a.txt; sleep 20' }\n",
    );
    let policy = world.beside("policy.yaml", open_policy(&[]));
    let out = world.out().to_string_lossy().into_owned();
    let asked = world.command(&["run", &recipe, "--policy", &policy, "--out", &out, "--format", "json"]);
    let mut node = Command::new("node");
    node.arg(&launcher)
        .args(asked.get_args())
        .current_dir(world.ws())
        .env_clear()
        .envs(asked.get_envs().filter_map(|(name, value)| Some((name, value?))))
        .process_group(0);
    let child = node
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    until("the step runs", || world.read("a.txt") == "two\n");
    let group = rustix::process::Pid::from_child(&child);
    rustix::process::kill_process_group(group, rustix::process::Signal::TERM).unwrap();
    let done = Done::of(child.wait_with_output().unwrap()).exits(143);
    assert_eq!(done.json()["verdict"], "cancelled");
    assert_eq!(world.result()["verdict"], "cancelled");
}

#[test]
fn the_program_needs_nothing_but_its_libraries() {
    let namespaces = Command::new("unshare")
        .args(["--user", "--map-root-user", "true"])
        .status();
    let able = rustix::process::geteuid().is_root() || namespaces.is_ok_and(|status| status.success());
    if !have("chroot", able) {
        return;
    }
    assert!(script("packaging/empty-root.sh").contains("the name was resolved"));
}

#[test]
fn a_newcomer_gets_through_the_first_recipe_as_it_is_printed() {
    assert!(script("tests/newcomer.sh").contains("works as it is printed"));
}

/// A quoted text of a file, by what stands before it.
fn quoted(file: &str, before: &str) -> String {
    let text = std::fs::read_to_string(project().join(file)).unwrap();
    let at = text.find(before).unwrap_or_else(|| panic!("{file}: {before}"));
    let rest = &text[at + before.len()..];
    rest.split('"').next().unwrap().to_owned()
}

#[test]
fn the_places_of_downloads_agree() {
    // What the release workflow makes, what the action fetches and what cargo binstall looks for.
    let place = "overnight-{ version }-{ target }";
    assert!(quoted("Cargo.toml", "bin-dir = \"").starts_with(place));
    assert!(quoted("Cargo.toml", "pkg-url = \"").ends_with(&format!("/v{{ version }}/{place}.tar.gz")));
    let action = std::fs::read_to_string(project().join(".github/actions/overnight/install.sh")).unwrap();
    assert!(action.contains("releases/download/v$version") && action.contains("name=overnight-$version-$target"));
    let made = std::fs::read_to_string(project().join("packaging/package.sh")).unwrap();
    assert!(made.contains("name=overnight-$version-$target"));
    let release = std::fs::read_to_string(project().join(".github/workflows/release.yml")).unwrap();
    for target in ["x86_64-unknown-linux-musl", "aarch64-unknown-linux-musl"] {
        assert!(release.contains(target) && action.contains(target), "{target}");
    }
}
