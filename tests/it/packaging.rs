//! The packages that are made of a built program, what they need around them, and the way of a newcomer.

use super::harness::{BIN, have, project};
use std::process::Command;

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
