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

/// The files outside of `own` whose code (not its tests) goes through module `name` of `room`.
fn who_enters(sources: &[(String, String)], room: &str, name: &str) -> Vec<String> {
    let own = format!("{room}/{name}");
    let enters = |text: &str| {
        let code = text.split("#[cfg(test)]").next().unwrap_or_default();
        let bytes = code.as_bytes();
        code.match_indices(&format!("{name}::")).any(|(at, _)| {
            at == 0 || !(bytes[at - 1].is_ascii_alphanumeric() || bytes[at - 1] == b'_' || bytes[at - 1] == b'.')
        })
    };
    let others = sources
        .iter()
        .filter(|(file, text)| !file.starts_with(&own) && !is_test(file) && enters(text));
    others.map(|(file, _)| file.clone()).collect()
}

/// `architecture.md` says that a tool and a wire are a file and its registration in `mod.rs`: so it is for those that are there.
#[test]
fn a_tool_and_a_wire_are_known_in_one_other_place() {
    let sources = all();
    let (_, room) = sources.iter().find(|(file, _)| file == "tools/mod.rs").unwrap();
    for tool in [
        "grep_search",
        "list_directory",
        "read_file",
        "read_many_files",
        "replace",
        "web_fetch",
        "write_file",
        "write_todos",
    ] {
        let mut outside = who_enters(&sources, "tools", tool);
        outside.retain(|file| !file.starts_with("tools/"));
        assert!(outside.is_empty(), "{tool}: {outside:?}");
        assert_eq!(room.matches(&format!("{tool}::tool()")).count(), 1, "{tool}");
    }
    for wire in ["anthropic", "openai_chat", "openai_responses", "gemini"] {
        assert_eq!(
            who_enters(&sources, "provider/wire", wire),
            ["provider/wire/mod.rs"],
            "{wire}"
        );
    }
}

/// A profile of a program is a table and a line that reads it in; nothing else knows the program.
#[test]
fn a_profile_is_a_table_and_a_line() {
    let sources = all();
    let (_, table) = sources
        .iter()
        .find(|(file, _)| file == "policy/profiles/table.rs")
        .unwrap();
    let tables = project().join("src/policy/profiles/tables");
    let mut count = 0;
    for entry in std::fs::read_dir(tables).unwrap() {
        let name = entry.unwrap().file_name().to_string_lossy().into_owned();
        assert_eq!(
            table
                .matches(&format!("    \"{}\"\n", name.trim_end_matches(".yaml")))
                .count(),
            1,
            "{name}"
        );
        count += 1;
    }
    assert!(count > 100, "{count} profiles");
}

/// A program that is started by its name is looked up where no tree can put one: `own_path` is the one door.
#[test]
fn own_programs_are_started_through_one_door() {
    let around: Vec<String> = all()
        .into_iter()
        .filter(|(name, _)| !is_test(name))
        .filter(|(_, text)| {
            let code = text.split("#[cfg(test)]").next().unwrap_or_default();
            code.contains("Command::new(\"")
        })
        .map(|(name, _)| name)
        .collect();
    assert!(around.is_empty(), "start a program by its name:\n{}", around.join("\n"));
}
