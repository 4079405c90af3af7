//! The shipped recipe on a crate from the registry: real cargo in the real sandbox, replies from a script.

use super::harness::{World, calls, have, project, script, shell};
use serde_json::{Value, json};
use std::path::PathBuf;
use std::process::Command;

const CRATE: &str = "roman";
const VERSION: &str = "0.1.6";

/// The unpacked source of the crate, fetched by cargo; `None` when there is no registry to fetch it from.
fn source(world: &World) -> Option<PathBuf> {
    let manifest = format!(
        "[package]\nname = \"scratch\"\nversion = \"0.1.0\"\nedition = \"2021\"\n[dependencies]\n{CRATE} = \"={VERSION}\"\n"
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
    let fetched = cargo(&["fetch", "--quiet"])?;
    if !fetched.status.success() {
        return None;
    }
    let told: Value =
        serde_json::from_slice(&cargo(&["metadata", "--offline", "--format-version", "1"])?.stdout).ok()?;
    let packages = told["packages"].as_array()?;
    let found = packages.iter().find(|package| package["name"] == CRATE)?;
    Some(PathBuf::from(found["manifest_path"].as_str()?).parent()?.to_owned())
}

fn replace(old: &str, new: &str) -> Value {
    let args =
        json!({"file_path": "src/lib.rs", "instruction": "as clippy says", "old_string": old, "new_string": new});
    calls("replace", args)
}

/// First half of the findings, then a claim to be done; the failing check brings the other half.
fn replies() -> String {
    let answer =
        json!({"summary": "Took what clippy proposes.", "fixed": ["redundant_static_lifetimes", "question_mark"]});
    let answer = json!({"text": answer.to_string()});
    let mut again = replace(
        "    let n = match from_lax(txt) {\n        Some(n) => n,\n        None    => return None\n    };",
        "    let n = from_lax(txt)?;",
    );
    again["expect"] = json!("clippy");
    script(&[
        calls("read_file", json!({"file_path": "src/lib.rs"})),
        replace("static ROMAN: &'static [(char", "static ROMAN: &[(char"),
        replace(
            "static ROMAN_PAIRS: &'static [(&'static str",
            "static ROMAN_PAIRS: &[(&str",
        ),
        shell("cargo clippy --quiet --all-targets -- -D warnings 2>&1 | tail -40"),
        answer.clone(),
        again,
        replace(
            "        if it.is_none() { return None }\n        let &(_, val) = it.unwrap();",
            "        let &(_, val) = it?;",
        ),
        shell("cargo clippy --quiet --all-targets -- -D warnings && cargo test --quiet"),
        answer,
    ])
}

#[test]
fn a_crate_of_the_registry_goes_from_red_to_green() {
    let clippy = Command::new("cargo").args(["clippy", "--version"]).output();
    if !have("cargo clippy", clippy.is_ok_and(|output| output.status.success())) {
        return;
    }
    let world = World::new();
    let source = source(&world);
    if !have("the package registry", source.is_some()) {
        return;
    }
    let copied = Command::new("cp")
        .args(["-rT", "--"])
        .arg(source.unwrap())
        .arg(world.ws())
        .status()
        .unwrap();
    assert!(copied.success());
    let _ = std::fs::remove_file(world.ws().join(".cargo-ok"));
    world.git(&["init", "-q", "-b", "main"]);
    world.commit("as published");
    let base = world.path().join("base").to_string_lossy().into_owned();
    world.git(&["clone", "-q", ".", &base]);

    let recipe = project().join("recipes/fix-clippy.yaml").to_string_lossy().into_owned();
    let policy = project()
        .join("recipes/policies/rust.yaml")
        .to_string_lossy()
        .into_owned();
    let model = format!("script:{}", world.beside("script.yaml", replies()));
    let out = world.out().to_string_lossy().into_owned();
    let args = [
        "run", &recipe, "--policy", &policy, "--model", &model, "--out", &out, "--format", "json",
    ];
    let object = world.call(&args).exits(0).json();

    assert_eq!((&object["verdict"], &object["denied"]), (&json!("passed"), &json!([])));
    assert_eq!(
        object["changes"]["files"].as_array().unwrap().len(),
        1,
        "{}",
        object["changes"]
    );
    assert_eq!(object["steps"][1]["attempts"], 2);
    let junit = std::fs::read_to_string(world.out().join("junit.xml")).unwrap();
    assert!(
        junit.contains("name=\"clippy\"") && junit.contains("name=\"tests\""),
        "{junit}"
    );
    assert!(
        junit.contains("flakyFailure") && !junit.contains("<failure"),
        "red, then green: {junit}"
    );

    let patch = world.out().join("changes.patch").to_string_lossy().into_owned();
    super::harness::git_in(base.as_ref(), &["apply", &patch]);
    let read = |dir: &std::path::Path| std::fs::read_to_string(dir.join("src/lib.rs")).unwrap();
    assert_eq!(read(base.as_ref()), read(&world.ws()));
}
