//! Tests of which files a walk shows, and in which order.

use super::*;

fn tree(files: &[(&str, &str)]) -> (tempfile::TempDir, Workspace) {
    let dir = tempfile::tempdir().unwrap();
    for (path, text) in files {
        let path = dir.path().join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }
    let workspace = Workspace::open(dir.path()).unwrap();
    (dir, workspace)
}

fn names(workspace: &Workspace, start: &str, filter: Filter) -> Vec<String> {
    workspace.files(start, filter, 100, &|| false).files
}

fn sample() -> (tempfile::TempDir, Workspace) {
    tree(&[
        (".gitignore", "*.log\n/build/\nvendor/\n!keep.log\n"),
        (".geminiignore", "private.txt\n"),
        ("a.rs", ""),
        ("a/b.rs", ""),
        ("a-b.rs", ""),
        ("a/x.log", ""),
        ("a/keep.log", ""),
        ("a/.gitignore", "!x.log\nlocal\n"),
        ("a/local", ""),
        ("private.txt", ""),
        ("build/out.rs", ""),
        ("vendor/v.rs", ""),
        ("vendor/v.log", ""),
        (".git/config", ""),
        ("sub/.git", "gitdir: x"),
        (".overnight/runs/1/journal.jsonl", ""),
        (".dot/d.rs", ""),
        ("B.rs", ""),
    ])
}

#[test]
fn ignore_files_of_the_tree_count_and_order_is_by_bytes() {
    let (_dir, workspace) = sample();
    let shown = names(&workspace, "", Filter::all());
    let expected = [
        ".dot/d.rs",
        ".geminiignore",
        ".gitignore",
        "B.rs",
        "a-b.rs",
        "a.rs",
        "a/.gitignore",
        "a/b.rs",
        "a/keep.log",
        "a/x.log",
    ];
    assert_eq!(shown, expected);
}

#[test]
fn a_start_below_the_root_obeys_the_files_above_it() {
    let (_dir, workspace) = sample();
    let visible = Filter {
        hidden: false,
        ..Filter::all()
    };
    assert_eq!(names(&workspace, "a", visible), ["a/b.rs", "a/keep.log", "a/x.log"]);
}

#[test]
fn what_is_ignored_or_hidden_is_walked_when_asked_for_by_name() {
    let (_dir, workspace) = sample();
    let visible = Filter {
        hidden: false,
        ..Filter::all()
    };
    assert_eq!(names(&workspace, "build", visible), ["build/out.rs"]);
    assert_eq!(names(&workspace, ".dot", visible), [".dot/d.rs"]);
    assert!(names(&workspace, ".git", visible).is_empty());
    assert!(names(&workspace, ".overnight/runs", visible).is_empty());
}

#[test]
fn without_ignore_files_all_but_ours_is_shown() {
    let (_dir, mut workspace) = sample();
    workspace.set_ignore(vec!["*.rs".to_owned(), "/a/".to_owned()]);
    let nothing = Filter {
        git: false,
        gemini: false,
        hidden: true,
    };
    let expected = [".geminiignore", ".gitignore", "private.txt", "vendor/v.log"];
    assert_eq!(names(&workspace, "", nothing), expected);
}

#[test]
fn a_walk_ends_at_its_cap() {
    let (_dir, workspace) = sample();
    let walked = workspace.files("", Filter::all(), 3, &|| false);
    assert!(walked.cut);
    assert_eq!(walked.files.len(), 3);
}

#[test]
fn links_are_not_followed() {
    let (dir, workspace) = tree(&[("a/f", "")]);
    std::os::unix::fs::symlink("a", dir.path().join("b")).unwrap();
    std::os::unix::fs::symlink("a/f", dir.path().join("c")).unwrap();
    assert_eq!(names(&workspace, "", Filter::all()), ["a/f"]);
}
