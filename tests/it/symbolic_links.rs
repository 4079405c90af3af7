//! Commands that remove, rename or replace a symbolic link: the link is what they write, not what it leads to.

use super::harness::{Done, World};
use serde_json::{Value, json};
use std::os::unix::fs::symlink;
use std::path::Path;

/// Names, each with the target of the link that is there afterwards; `None` where no link is left.
type Left = &'static [(&'static str, Option<&'static str>)];

const COMMANDS: &str = "\
rules:
  - { allow: run_shell_command, commands: [git mv, git rm, ln, mv, rm, sed, tee, xargs] }
";

/// A tree with links to a file, a directory, outside, nowhere and a protected file.
fn tree() -> World {
    let world = World::repo(&[
        ("a.txt", "one\n"),
        ("b.txt", "b\n"),
        ("dir/x", "x\n"),
        ("AGENTS.md", "be kind\n"),
    ]);
    let links = [
        ("a.txt", "lnk"),
        ("dir", "sub"),
        ("/etc/hostname", "out"),
        ("nowhere", "none"),
        ("AGENTS.md", "notes"),
        ("../a.txt", "dir/lnk"),
        ("b.txt", "CLAUDE.md"),
    ];
    for (target, link) in links {
        symlink(target, world.ws().join(link)).unwrap();
    }
    world.commit("links");
    world
}

fn call(world: &World, policy: &str, command: &str) -> Done {
    let policy = world.beside("policy.yaml", policy);
    let args = json!({ "command": command }).to_string();
    world.call(&[
        "tools",
        "call",
        "run_shell_command",
        "--policy",
        &policy,
        "--args",
        &args,
    ])
}

fn leads_to(world: &World, link: &str) -> Option<String> {
    let target = std::fs::read_link(world.ws().join(link)).ok()?;
    Some(target.to_string_lossy().into_owned())
}

fn policy(level: &str) -> String {
    format!("version: 1\nextends: [builtin:edit]\nsandbox: {{ level: {level} }}\n{COMMANDS}")
}

#[test]
fn a_link_is_removed_renamed_or_replaced_like_any_name() {
    // The command, and what it leaves.
    let cases: [(&str, Left); 14] = [
        ("rm lnk", &[("lnk", None)]),
        ("unlink lnk", &[("lnk", None)]),
        ("rm out none notes", &[("out", None), ("none", None), ("notes", None)]),
        ("rm -r sub", &[("sub", None)]),
        ("rm dir/*", &[("dir/lnk", None)]),
        ("rm sub/lnk", &[("dir/lnk", None)]),
        ("echo lnk | xargs rm", &[("lnk", None)]),
        ("cd dir && rm ../lnk lnk", &[("lnk", None), ("dir/lnk", None)]),
        ("mv lnk new", &[("lnk", None), ("new", Some("a.txt"))]),
        ("mv out dir/", &[("out", None), ("dir/out", Some("/etc/hostname"))]),
        ("mv b.txt lnk", &[("lnk", None)]),
        ("ln -sf b.txt lnk", &[("lnk", Some("b.txt"))]),
        (
            "ln -sfn . sub && ln -sfn b.txt out",
            &[("sub", Some(".")), ("out", Some("b.txt"))],
        ),
        ("sed -i s/one/two/ lnk", &[("lnk", None)]),
    ];
    for level in ["full", "landlock"] {
        let policy = policy(level).replace("rm, sed", "rm, unlink, sed");
        for (command, links) in cases {
            let world = tree();
            call(&world, &policy, command).exits(0);
            for (link, target) in links {
                assert_eq!(leads_to(&world, link).as_deref(), *target, "{level} {command}: {link}");
            }
            for (file, text) in [("a.txt", "one\n"), ("AGENTS.md", "be kind\n")] {
                assert_eq!(world.read(file), text, "{level} {command}");
            }
        }
    }
}

#[test]
fn git_removes_and_renames_a_link() {
    let policy = format!(
        "{}  - {{ allow: run_shell_command, commands: [git mv, git rm], paths: [\".git/**\", \"*\", \"dir/*\"] }}\n",
        policy("full")
    );
    for (command, gone) in [("git rm -q lnk", "lnk"), ("git mv out gone", "out")] {
        let world = tree();
        call(&world, &policy, command).exits(0);
        assert_eq!(leads_to(&world, gone), None, "{command}");
        assert_eq!(world.read("a.txt"), "one\n");
    }
}

#[test]
fn the_ruling_names_the_link() {
    let world = tree();
    let policy = world.beside("policy.yaml", policy("full"));
    for (command, writes) in [
        ("rm lnk", "lnk"),
        ("rm sub/lnk", "dir/lnk"),
        ("rm -r sub", "sub"),
        ("mv lnk new", "lnk, new"),
        ("ln -sfn dir sub", "sub"),
        // A program that writes through a link may also replace it.
        ("tee lnk", "a.txt, lnk"),
        ("echo x > lnk", "a.txt"),
    ] {
        let args = ["policy", "explain", &policy, "--command", command, "--format", "json"];
        let told: Value = world.call(&args).exits(0).json();
        assert_eq!(told["decision"], "allow", "{command}: {told}");
        assert_eq!(told["writes"], writes, "{command}");
    }
}

#[test]
fn a_rule_for_writing_the_link_is_enough_and_needed() {
    let narrow = |paths: &str| {
        format!("version: 1\nextends: [builtin:read-only]\n{COMMANDS}  - {{ allow: write_file, paths: {paths} }}\n")
    };
    for (command, link) in [("rm lnk", "lnk"), ("mv lnk new", "lnk"), ("rm out", "out")] {
        let world = tree();
        call(&world, &narrow("[lnk, out, new]"), command).exits(0);
        assert_eq!(leads_to(&world, link), None, "{command}");
        let world = tree();
        let before = leads_to(&world, link);
        let denied = call(&world, &narrow("[a.txt, new]"), command).exits(4);
        assert!(denied.stderr.contains(link), "{command}: {}", denied.stderr);
        assert_eq!(leads_to(&world, link), before, "{command}");
    }
    // What it leads to is written too, so both are needed.
    let world = tree();
    call(&world, &narrow("[a.txt]"), "sed -i s/one/two/ lnk").exits(4);
    assert_eq!(leads_to(&world, "lnk").as_deref(), Some("a.txt"));
    call(&world, &narrow("[a.txt, lnk]"), "sed -i s/one/two/ lnk").exits(0);
    assert_eq!(
        (world.read("lnk"), world.read("a.txt")),
        ("two\n".to_owned(), "one\n".to_owned())
    );
}

#[test]
fn names_that_are_closed_stay_closed_and_so_does_what_is_written_through_a_link() {
    let with = |rule: &str| format!("{}  - {rule}\n", policy("full"));
    let protected = policy("full");
    let by_link = with("{ deny: write_file, paths: [lnk, dir/lnk] }");
    let by_target = with("{ deny: write_file, paths: [a.txt, AGENTS.md] }");
    for (policy, command, code) in [
        (&protected, "rm CLAUDE.md", "protected_path"),
        (&protected, "mv CLAUDE.md x", "protected_path"),
        (&protected, "mv lnk CLAUDE.md", "protected_path"),
        (&protected, "ln -sfn a.txt CLAUDE.md", "protected_path"),
        (&protected, "echo x > notes", "protected_path"),
        (&protected, "sed -i s/kind/mean/ notes", "protected_path"),
        (&protected, "tee notes", "protected_path"),
        (&protected, "echo x > out", "outside_path"),
        (&protected, "rm sub/../../x", "outside_path"),
        (&by_link, "rm lnk", "deny_rule"),
        (&by_link, "rm sub/lnk", "deny_rule"),
        (&by_link, "cd dir && rm lnk", "deny_rule"),
        (&by_link, "echo dir/lnk | xargs rm", "exec_denied"),
        (&by_link, "mv b.txt lnk", "deny_rule"),
        (&by_target, "echo x > lnk", "deny_rule"),
        (&by_target, "sed -i s/one/two/ lnk", "deny_rule"),
        (&by_target, "tee lnk", "deny_rule"),
        (&by_target, "mv b.txt lnk", "deny_rule"),
    ] {
        let world = tree();
        let before = world.git(&["status", "--porcelain"]);
        let done = call(&world, policy, command).exits(4);
        let told = format!("{}{}", done.stdout, done.stderr);
        assert!(told.contains(code), "{command}: {told}");
        assert_eq!(world.git(&["status", "--porcelain"]), before, "{command}");
        assert_eq!(
            std::fs::read_link(world.ws().join("CLAUDE.md")).unwrap(),
            Path::new("b.txt")
        );
    }
}
