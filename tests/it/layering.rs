//! The table of rooms: a room may import the rows below its own and nothing else. A new arrow is a design change.

use super::harness::project;
use std::path::{Path, PathBuf};

/// From the top to the bottom.
const ROWS: &[&[&str]] = &[
    &["cli"],
    &["engine", "batch", "deliver"],
    &["provider", "policy", "recipe", "report"],
    &["tools"],
    &["workspace", "journal"],
    &["process", "net", "diag"],
    &["base"],
];

fn sources(dir: &Path, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            sources(&path, found);
        } else if path.extension().is_some_and(|end| end == "rs") {
            found.push(path);
        }
    }
}

fn all() -> Vec<(String, String)> {
    let src = project().join("src");
    let mut found = Vec::new();
    sources(&src, &mut found);
    found.sort();
    assert!(found.len() > 50, "the sources were not found");
    found
        .into_iter()
        .map(|path| {
            let name = path.strip_prefix(&src).unwrap().to_string_lossy().into_owned();
            (name, std::fs::read_to_string(path).unwrap())
        })
        .collect()
}

fn row(room: &str) -> Option<usize> {
    ROWS.iter().position(|row| row.contains(&room))
}

fn is_test(name: &str) -> bool {
    name.contains("tests")
}

#[test]
fn arrows_point_down() {
    let mut wrong = Vec::new();
    for (name, text) in all() {
        let room = name.split('/').next().unwrap();
        let Some(own) = row(room) else { continue };
        let code = text.split("#[cfg(test)]").next().unwrap();
        if is_test(&name) {
            continue;
        }
        for (at, _) in code.match_indices("crate::") {
            let rest = &code[at + "crate::".len()..];
            let target: String = rest
                .chars()
                .take_while(|c| c.is_ascii_lowercase() || *c == '_')
                .collect();
            if let Some(below) = row(&target)
                && target != room
                && below <= own
            {
                wrong.push(format!("{name}: {room} -> {target}"));
            }
        }
    }
    wrong.sort();
    wrong.dedup();
    assert!(wrong.is_empty(), "arrows that do not point down:\n{}", wrong.join("\n"));
}

#[test]
fn every_file_says_what_it_owns() {
    let silent: Vec<String> = all()
        .into_iter()
        .filter(|(name, text)| !text.starts_with("//!") && name != "lib.rs" && !is_test(name))
        .map(|(name, _)| name)
        .collect();
    assert!(
        silent.is_empty(),
        "without a first sentence of what they own:\n{}",
        silent.join("\n")
    );
}
