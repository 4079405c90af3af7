//! A case is a folder: `fixtures/cases/NAME/{recipe.yaml,policy.yaml,script.yaml,args,stdin,repo/,expect/}`. Knows no case.
//!
//! `args` has an argument a line, `stdin` is what is written there; `recipe.yaml` and `policy.yaml` may be missing.
//! `expect/` holds `code`, `stdout`, `stderr` (lines that must occur), `result.json` (a part of it), `junit` (texts that
//! must occur in it), `files/` (the tree afterwards, in part) and `patch`. `UPDATE_EXPECT=1` writes `code`, `stdout` and
//! `patch` anew.

use super::harness::{World, project};
use serde_json::Value;
use std::path::{Path, PathBuf};

fn cases() -> Vec<PathBuf> {
    let dir = project().join("fixtures/cases");
    let mut found: Vec<PathBuf> = std::fs::read_dir(dir)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .collect();
    found.sort();
    assert!(found.len() >= 10, "the cases were not found");
    found
}

fn copy(from: &Path, to: &Path) {
    let done = std::process::Command::new("cp")
        .args(["-r", "-T"])
        .arg(from)
        .arg(to)
        .status()
        .unwrap();
    assert!(done.success());
}

fn text(path: &Path) -> Option<String> {
    std::fs::read_to_string(path).ok()
}

/// What differs from the expectation; empty when nothing does.
fn differences(case: &Path) -> Vec<String> {
    let world = World::new();
    if case.join("repo").is_dir() {
        copy(&case.join("repo"), &world.ws());
    }
    world.git(&["init", "-q", "-b", "main"]);
    world.commit("base");
    let place = world.path().join("case");
    copy(case, &place);
    let at = |name: &str| place.join(name).to_string_lossy().into_owned();
    let mut args = vec!["run".to_owned()];
    if place.join("recipe.yaml").exists() {
        args.push(at("recipe.yaml"));
    }
    if place.join("policy.yaml").exists() {
        args.extend(["--policy".to_owned(), at("policy.yaml")]);
    }
    args.extend(["--model".to_owned(), format!("script:{}", at("script.yaml"))]);
    args.extend(["--out".to_owned(), world.out().to_string_lossy().into_owned()]);
    args.extend(text(&place.join("args")).unwrap_or_default().lines().map(str::to_owned));
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    let done = world.call_with(&args, &text(&place.join("stdin")).unwrap_or_default());
    let own = |said: &str| said.replace(&*world.path().to_string_lossy(), "[world]");
    let mut wrong = Vec::new();
    compare(case, "code", &format!("{}\n", done.code), &mut wrong);
    compare(case, "stdout", &own(&done.stdout), &mut wrong);
    let patch = text(&world.out().join("changes.patch")).unwrap_or_default();
    compare(case, "patch", &patch, &mut wrong);
    contains(case, "stderr", &own(&done.stderr), &mut wrong);
    contains(
        case,
        "junit",
        &text(&world.out().join("junit.xml")).unwrap_or_default(),
        &mut wrong,
    );
    if let Some(wanted) = text(&case.join("expect/result.json")) {
        part(
            "result.json",
            &serde_json::from_str(&wanted).unwrap(),
            &world.result(),
            &mut wrong,
        );
    }
    files(&case.join("expect/files"), &world.ws(), &mut wrong);
    if !wrong.is_empty() {
        wrong.push(format!("stderr was\n{}", done.stderr));
    }
    wrong
}

/// A text that must be the same; one that is not there is not looked at, but written when that was asked for.
fn compare(case: &Path, name: &str, found: &str, wrong: &mut Vec<String>) {
    let path = case.join("expect").join(name);
    if std::env::var_os("UPDATE_EXPECT").is_some() {
        std::fs::create_dir_all(case.join("expect")).unwrap();
        if found.is_empty() {
            let _ = std::fs::remove_file(&path);
        } else {
            std::fs::write(&path, found).unwrap();
        }
        return;
    }
    let wanted = text(&path).unwrap_or_default();
    if wanted != found {
        wrong.push(format!("{name}: wanted\n{wanted}found\n{found}"));
    }
}

fn contains(case: &Path, name: &str, found: &str, wrong: &mut Vec<String>) {
    let wanted = text(&case.join("expect").join(name)).unwrap_or_default();
    let missing = wanted.lines().filter(|line| !found.contains(line));
    wrong.extend(missing.map(|line| format!("{name}: `{line}` is not in\n{found}")));
}

/// Every key of `wanted` must be in `found`, as deep as it goes; arrays have the same length.
fn part(at: &str, wanted: &Value, found: &Value, wrong: &mut Vec<String>) {
    match (wanted, found) {
        (Value::Object(keys), _) => {
            for (key, value) in keys {
                part(&format!("{at}.{key}"), value, &found[key], wrong);
            }
        }
        (Value::Array(values), Value::Array(others)) if values.len() == others.len() => {
            for (n, (value, other)) in values.iter().zip(others).enumerate() {
                part(&format!("{at}[{n}]"), value, other, wrong);
            }
        }
        _ if wanted == found => {}
        _ => wrong.push(format!("{at}: wanted {wanted}, found {found}")),
    }
}

/// Each file below `wanted` must be the same in `found`.
fn files(wanted: &Path, found: &Path, wrong: &mut Vec<String>) {
    let Ok(entries) = std::fs::read_dir(wanted) else {
        return;
    };
    for entry in entries {
        let path = entry.unwrap().path();
        let other = found.join(path.file_name().unwrap());
        if path.is_dir() {
            files(&path, &other, wrong);
        } else if std::fs::read(&path).ok() != std::fs::read(&other).ok() {
            wrong.push(format!("{} is not as expected: {:?}", other.display(), text(&other)));
        }
    }
}

#[test]
fn every_case_ends_as_expected() {
    let wrong: Vec<String> = cases()
        .iter()
        .flat_map(|case| {
            let name = case.file_name().unwrap().to_string_lossy().into_owned();
            differences(case).into_iter().map(move |what| format!("{name}: {what}"))
        })
        .collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
