//! Closed paths, by table and compared with a slow reference implementation.

use super::*;
use crate::policy::changes::tests::set_of;
use crate::policy::{Author, ChangeRuling, rule_change};
use proptest::prelude::*;

const FROZEN: &[&str] = &[
    "{ allow: [write_file, replace] }",
    "{ allow: run_shell_command, commands: [make], paths: ['.husky/'] }",
    "{ allow: write_file, paths: [.npmrc] }",
    "{ id: tests, deny: write_file, paths: ['tests/**'] }",
    "{ id: lock, deny: replace, paths: ['**/*.lock'], except: ['tmp/**'] }",
    "{ id: docs, suspend: run_shell_command, paths: [docs/] }",
    "{ deny: run_shell_command, commands: [rm], paths: ['src/**'] }",
    "{ deny: read_file, paths: ['private/**'] }",
    "{ deny: write_file, paths: ['**/new', 'docs/a*'] }",
];

#[test]
fn by_table() {
    let mut set = set_of(&[FROZEN]);
    set.protect(["ci/Policy.yaml".to_owned()]);
    set.hide(["out/run".to_owned()]);
    let closed = set.closed();
    assert!(!closed.is_empty());
    for (path, is_dir, code, rule) in [
        ("tests/a.rs", false, "deny_rule", Some("tests")),
        ("TESTS/a.rs", false, "deny_rule", Some("tests")),
        ("tests", true, "deny_rule", Some("tests")),
        ("tests/deep/er", true, "deny_rule", Some("tests")),
        ("a/Cargo.lock", false, "deny_rule", Some("lock")),
        ("docs/x", false, "suspend_rule", Some("docs")),
        ("docs", true, "suspend_rule", Some("docs")),
        (".git", true, "protected_path", None),
        ("a/.git/config", false, "protected_path", None),
        ("a/.GIT", true, "protected_path", None),
        (".g\u{200c}it", true, "protected_path", None),
        ("git~1", true, "protected_path", None),
        (".git.", true, "protected_path", None),
        (".github/workflows", true, "protected_path", None),
        (".yarnrc.yml", false, "protected_path", None),
        ("Jenkinsfile", false, "protected_path", None),
        ("ci/policy.yaml", false, "protected_path", None),
        ("out/run", true, "protected_path", None),
        ("out/run/journal.jsonl", false, "protected_path", None),
    ] {
        assert!(closed.closed(path, is_dir), "{path}");
        assert_eq!(closed.why(path), (code, rule.map(str::to_owned)), "{path}");
    }
    for (path, is_dir) in [
        ("", true),
        ("src/a.rs", false),
        ("testsuite/a.rs", false),
        ("a/tests/x", false),
        ("tmp/x.lock", false),
        ("private/x", false),
        (".npmrc", false),
        (".husky/pre-commit", false),
        // Something below it is opened.
        (".husky", true),
        // Not everything below it is closed.
        (".github", true),
        (".yarn", true),
        ("ci", true),
        ("out/runs", true),
        ("gitignore", false),
        ("mise", false),
    ] {
        assert!(!closed.closed(path, is_dir), "{path}");
    }
}

#[test]
fn what_is_protected_from_the_top_of_the_repository_is_closed() {
    let mut set = set_of(&[&["{ allow: [write_file, replace], paths: ['workflows/ci.yml', 'ci.yml'] }"]]);
    set.place_in_repository(".github");
    let closed = set.closed();
    for (path, is_dir, held) in [
        ("workflows/ci.yml", false, true),
        ("workflows", true, true),
        ("ISSUE_TEMPLATE.md", false, false),
        ("", true, false),
    ] {
        assert_eq!(closed.closed(path, is_dir), held, "{path}");
    }
    assert!(!closed.has_ordinary_names("workflows") && !closed.has_ordinary_names(""));
    set.place_in_repository("sub/dir");
    let closed = set.closed();
    assert!(!closed.closed("workflows/ci.yml", false) && closed.closed(".npmrc", false));
    assert!(closed.has_ordinary_names("src"));
}

#[test]
fn most_names_are_passed_over() {
    let mut set = set_of(&[&["{ deny: write_file, paths: ['tests/**', '**/*.lock'] }"]]);
    assert!(!set.closed().has_ordinary_names("src"), "a lock file may lie anywhere");
    set = set_of(&[&["{ deny: write_file, paths: ['tests/**', 'a.txt'] }"]]);
    set.hide(["out/run".to_owned()]);
    let closed = set.closed();
    for (dir, ordinary) in [
        ("src", true),
        ("src/Deep/er", true),
        ("", false),
        ("tests", false),
        ("Tests/a", false),
        ("out", false),
        (".github", false),
        ("a b", true),
        ("a.", false),
    ] {
        assert_eq!(closed.has_ordinary_names(dir), ordinary, "{dir}");
    }
    for (name, ordinary) in [
        ("lib.rs", true),
        ("README.md", true),
        (".Git", false),
        ("git~1", false),
        ("\u{ff0e}git", false),
    ] {
        assert_eq!(closed.is_ordinary(name), ordinary, "{name}");
    }
}

#[test]
fn a_directory_is_closed_only_with_all_below() {
    let rules: &[&[&str]] = &[
        &["{ deny: write_file, paths: ['tests/**'], except: ['tests/new/**'] }"],
        &["{ deny: write_file, paths: ['tests/*'] }"],
    ];
    for rules in rules {
        let closed = set_of(&[rules]).closed();
        assert!(!closed.closed("tests", true), "{rules:?}");
    }
    let closed = set_of(&[&["{ deny: write_file, paths: [tests] }"]]).closed();
    assert!(closed.closed("tests", true) && closed.closed("tests/a/b", false) && !closed.closed("testsuite/a", false));
    let closed = set_of(&[rules[0]]).closed();
    assert!(closed.closed("tests/old", true), "the exception lies elsewhere");
    assert!(closed.closed("tests/a", false) && !closed.closed("tests/new/a", false));
}

fn name() -> impl Strategy<Value = String> {
    let part = prop::sample::select(vec![
        "tests",
        "Tests",
        "src",
        "a",
        ".git",
        ".GIT.",
        ".github",
        "workflows",
        ".npmrc",
        ".cargo",
        "config.toml",
        "x.lock",
        "X.LOCK",
        "docs",
        ".husky",
        "pre-commit",
        "new",
        "git~1",
        "a:b",
        " b",
        "c.",
        "\u{ff0e}git",
        "\u{130}",
        "-x",
        "tmp",
    ]);
    prop::collection::vec(part, 1..5).prop_map(|parts| parts.join("/"))
}

proptest! {
    #[test]
    fn the_quick_answer_is_the_slow_one(path in name()) {
        let mut set = set_of(&[FROZEN]);
        set.protect(["src/tests/a".to_owned()]);
        let closed = set.closed();
        let slow = match rule_change(&set, &path, Author::Call) {
            ChangeRuling::Denied { .. } => true,
            ChangeRuling::Unruled { code, .. } => code == "suspend_rule",
            ChangeRuling::Allowed => false,
        };
        prop_assert_eq!(closed.closed(&path, false), slow);
        let (dir, last) = path.rsplit_once('/').unwrap_or(("", &path));
        let above_is_open = dir.is_empty() || !closed.closed(dir, true) && !closed.closed(dir, false);
        if above_is_open && closed.has_ordinary_names(dir) && closed.is_ordinary(last) {
            prop_assert!(!slow && !closed.closed(&path, true), "{} is passed over", path);
        }
        // What is closed as a directory is closed below, whatever the name.
        if closed.closed(&path, true) {
            for below in ["x", "new/y", ".npmrc", "a/b/c.lock"] {
                let below = format!("{path}/{below}");
                prop_assert!(closed.closed(&below, false), "{}", below);
            }
        }
    }

    #[test]
    fn folding_in_a_buffer_is_folding(path in "[a-zA-Z./ :~\\\\-]{0,24}") {
        let slow = fold_path(&path).join("/");
        folded(&path, |quick| assert_eq!(quick, slow));
    }
}
