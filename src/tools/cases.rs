//! Runs the tables in `fixtures/tools`: a tree, calls, and the exact text that the model receives.

use super::testing::TestWorkspace;
use serde_json::Value;

/// Runs every case of a table. A case has `tree` (path to text, or `{bytes: [..]}`), `links`, `unreadable` (path
/// suffixes), `unlisted` (path suffixes that only `glob` must not show), and `calls`, each with `tool`, `args`, `told`
/// (the whole text) or `has` (parts of it), and optionally `lacks` (text that must not occur) and `after` (path to the
/// text expected afterwards).
fn table(text: &str) {
    let cases: Value = serde_saphyr::from_str(text).unwrap();
    for (name, case) in cases.as_object().unwrap() {
        let tree = case["tree"].as_object().unwrap();
        let files: Vec<(&str, Vec<u8>)> = tree
            .iter()
            .map(|(path, content)| (path.as_str(), bytes(content)))
            .collect();
        let files: Vec<(&str, &[u8])> = files.iter().map(|(path, bytes)| (*path, bytes.as_slice())).collect();
        let unreadable: Vec<String> = texts(&case["unreadable"]);
        let unlisted: Vec<String> = texts(&case["unlisted"]);
        let bench = TestWorkspace::with(&files, |workspace| {
            workspace.set_unreadable(Box::new(move |tool, path| {
                let any = |endings: &[String]| endings.iter().any(|ending| path.ends_with(ending));
                any(&unreadable) || tool == "glob" && any(&unlisted)
            }));
        });
        for (link, target) in case["links"].as_object().into_iter().flatten() {
            std::os::unix::fs::symlink(target.as_str().unwrap(), bench.path(link)).unwrap();
        }
        for call in case["calls"].as_array().unwrap() {
            check(name, call, &bench);
        }
    }
}

fn check(name: &str, call: &Value, bench: &TestWorkspace) {
    let label = format!("{name}: {} {}", call["tool"], call["args"]);
    let told = bench.text_of(call["tool"].as_str().unwrap(), &call["args"]);
    let root = bench.workspace.root().to_str().unwrap();
    assert!(!told.contains(root), "{label} names the workspace: {told}");
    if let Some(whole) = call["told"].as_str() {
        assert_eq!(told, whole, "{label}");
    }
    let parts = texts(&call["has"]);
    assert!(call["told"].is_string() || !parts.is_empty(), "{label} expects nothing");
    for part in parts {
        assert!(told.contains(&part), "{label}\nhas no {part:?}:\n{told}");
    }
    for part in texts(&call["lacks"]) {
        assert!(!told.contains(&part), "{label}\nhas {part:?}:\n{told}");
    }
    for (path, expected) in call["after"].as_object().into_iter().flatten() {
        assert_eq!(
            std::fs::read(bench.path(path)).unwrap(),
            bytes(expected),
            "{label}: {path}"
        );
    }
}

fn bytes(content: &Value) -> Vec<u8> {
    match content.as_str() {
        Some(text) => text.as_bytes().to_vec(),
        None => serde_json::from_value(content["bytes"].clone()).unwrap(),
    }
}

fn texts(value: &Value) -> Vec<String> {
    value
        .as_array()
        .into_iter()
        .flatten()
        .map(|text| text.as_str().unwrap().to_owned())
        .collect()
}

macro_rules! tables {
    ($($name:ident)*) => {
        $(
            #[test]
            fn $name() {
                table(include_str!(concat!("../../fixtures/tools/", stringify!($name), ".yaml")));
            }
        )*
    };
}

tables! { read search list write }
