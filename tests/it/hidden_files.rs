//! Changes that git does not see by itself: within repositories inside the tree, and in files that it ignores.

use super::harness::{World, git_in, open_policy, says, script, shell, writes};
use super::patch::{apply, changing, copy, tree};

fn repository(dir: &std::path::Path, commit: bool) {
    std::fs::create_dir_all(dir).unwrap();
    git_in(dir, &["init", "-q", "."]);
    std::fs::write(dir.join("x.c"), "x\n").unwrap();
    if commit {
        commit_in(dir, ".");
    }
}

fn commit_in(dir: &std::path::Path, what: &str) {
    git_in(dir, &["add", what]);
    let author = ["-c", "user.name=t", "-c", "user.email=t@example.org"];
    git_in(dir, &[&author[..], &["commit", "-qm", "x"]].concat());
}

/// A tree with a repository in `lib`, which the last commit knows as a link.
fn linked() -> World {
    let world = World::repo(&[("a.txt", "one\n")]);
    repository(&world.ws().join("lib"), true);
    commit_in(&world.ws(), "lib");
    world
}

#[test]
fn changes_within_repositories_inside_the_tree_are_in_the_patch() {
    let world = World::repo(&[("a.txt", "one\n")]);
    // A link in the last commit, with a repository in it; two that git was never told of; one without a commit.
    for (name, commit) in [
        ("vendor/lib", true),
        ("clone", true),
        ("clone/inner", true),
        ("fresh", false),
    ] {
        repository(&world.ws().join(name), commit);
    }
    commit_in(&world.ws(), "vendor");
    let result = changing(
        &world,
        "echo y > a.txt; echo y > vendor/lib/x.c; echo n > vendor/lib/new.c; echo y > clone/x.c; echo n > clone/new.c; \
         echo y > clone/inner/x.c; echo n > clone/inner/new.c; echo y > fresh/x.c; echo n > fresh/new.c",
    );
    assert_eq!(result["changes"]["files"].as_array().unwrap().len(), 9);
}

#[test]
fn a_link_without_its_repository_may_be_filled() {
    let world = linked();
    std::fs::remove_dir_all(world.ws().join("lib")).unwrap();
    std::fs::create_dir(world.ws().join("lib")).unwrap();
    changing(&world, "echo n > lib/new.c");
}

#[test]
fn a_repository_inside_does_not_make_a_clean_tree_dirty() {
    let world = linked();
    let dirty = |world: &World| {
        world
            .run(
                &script(&[writes("b.txt", "b\n"), says("done")]),
                &open_policy(&[]),
                &["-p", "x"],
            )
            .exits(0);
        let journal = std::fs::read_to_string(world.out().join("journal.jsonl")).unwrap();
        let line = journal
            .lines()
            .find(|line| line.contains("\"event\":\"baseline\""))
            .unwrap()
            .to_owned();
        std::fs::remove_dir_all(world.out()).unwrap();
        line.contains("\"dirty\":true")
    };
    assert!(!dirty(&world));
    assert!(dirty(&world), "b.txt is new now");
}

#[test]
fn files_that_git_ignores_are_told_when_the_run_writes_them() {
    let world = World::repo(&[(".gitignore", "out/\n"), ("a.txt", "one\n")]);
    let replies = [
        writes("out/report.md", "text\n"),
        shell("echo x > out/by-command"),
        says("done"),
    ];
    world
        .run(&script(&replies), &open_policy(&["echo"]), &["-p", "x"])
        .exits(0);
    let result = world.result();
    assert_eq!(result["verdict"], "no_change");
    assert!(
        result["message"]
            .as_str()
            .unwrap()
            .ends_with("left out of the patch: out/report.md"),
        "{result}"
    );
    assert!(result["warnings"].to_string().contains("out/report.md"));
}

#[test]
fn a_subdirectory_knows_its_own_ignored_files() {
    let world = World::repo(&[("sub/.gitignore", "out/\n"), ("sub/a.txt", "one\n")]);
    let base = world.path().join("base");
    copy(&world.ws(), &base);
    let replies = [writes("out/report.md", "text\n"), writes("b.txt", "b\n"), says("done")];
    world
        .run(&script(&replies), &open_policy(&[]), &["-p", "x", "--workspace", "sub"])
        .exits(0);
    assert!(
        world.result()["message"]
            .as_str()
            .unwrap()
            .ends_with("left out of the patch: out/report.md")
    );
    apply(&base.join("sub"), &world.out().join("changes.patch"));
    assert!(tree(&base).contains_key("sub/b.txt"));
}
