//! The patch: applied to the base it gives the tree that the run left, whatever was in it and whatever git was told.

use super::harness::{Done, World, calls, git_in, open_policy, says, script, shell, writes};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;

/// Every file of a tree by path: its mode and content. `.git` and our own directory are passed over.
pub fn tree(dir: &Path) -> BTreeMap<String, (String, Vec<u8>)> {
    let mut found = BTreeMap::new();
    gather(dir, dir, &mut found);
    found
}

fn gather(top: &Path, dir: &Path, found: &mut BTreeMap<String, (String, Vec<u8>)>) {
    for entry in std::fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        let name = path.strip_prefix(top).unwrap().to_string_lossy().into_owned();
        let meta = std::fs::symlink_metadata(&path).unwrap();
        if name == ".git" || name == ".overnight" {
            continue;
        }
        if meta.is_symlink() {
            let target = std::fs::read_link(&path).unwrap();
            found.insert(
                name,
                ("link".to_owned(), target.to_string_lossy().into_owned().into_bytes()),
            );
        } else if meta.is_dir() {
            gather(top, &path, found);
        } else {
            let runs = meta.permissions().mode() & 0o100 != 0;
            let mode = if runs { "runs" } else { "file" };
            found.insert(name, (mode.to_owned(), std::fs::read(&path).unwrap()));
        }
    }
}

/// Every byte below `.git`.
fn internals(dir: &Path) -> BTreeMap<String, (String, Vec<u8>)> {
    let mut found = BTreeMap::new();
    gather(&dir.join(".git"), &dir.join(".git"), &mut found);
    found
}

pub fn copy(from: &Path, to: &Path) {
    let done = std::process::Command::new("cp")
        .arg("-a")
        .arg(from)
        .arg(to)
        .status()
        .unwrap();
    assert!(done.success());
}

/// Runs a shell script in the workspace and checks the patch against a copy that was made before.
pub fn changing(world: &World, command: &str) -> Value {
    let base = world.path().join("base");
    copy(&world.ws(), &base);
    run(world, &[shell(command), says("done")], &[]).exits(0);
    let patch = world.out().join("changes.patch");
    assert!(patch.is_file(), "{command}: no patch");
    apply(&base, &patch);
    assert_eq!(tree(&base), tree(&world.ws()), "{command}");
    world.result()
}

fn run(world: &World, replies: &[Value], more: &[&str]) -> Done {
    let policy = open_policy(&[
        "printf", "mv", "rm", "chmod", "ln", "cp", "mkdir", "head", "sed", "echo", "git", "true",
    ]);
    let mut args = vec!["-p", "x"];
    args.extend(more);
    world.run(&script(replies), &policy, &args)
}

pub fn apply(dir: &Path, patch: &Path) {
    git_in(dir, &["apply", "--whitespace=nowarn", &patch.to_string_lossy()]);
}

fn all_kinds() -> World {
    let world = World::repo(&[
        ("changed.txt", "one\ntwo\nthree\n"),
        ("deleted.txt", "gone\n"),
        ("moved.txt", "a file\nthat is\nlong enough\nto be seen\nas renamed\n"),
        ("crlf.txt", "one\r\ntwo\r\n"),
        ("no-end.txt", "no newline at the end"),
        ("run.sh", "echo x\n"),
        ("dir/deep/file.txt", "deep\n"),
    ]);
    world.file("bin.dat", (0_u16..2048).map(|n| (n % 256) as u8).collect::<Vec<u8>>());
    symlink("changed.txt", world.ws().join("link")).unwrap();
    world.commit("all kinds");
    world
}

const ALL_KINDS: &[&str] = &[
    "printf 'one\\nTWO\\nthree\\n' > changed.txt",
    "printf 'new\\n' > new.txt",
    "rm deleted.txt",
    "mv moved.txt elsewhere.txt",
    "mv moved.txt dir/moved.txt; echo more >> dir/moved.txt",
    "printf '\\0\\001\\377new' > bin.dat",
    "rm bin.dat",
    "head -c 3000 bin.dat > new.bin",
    "chmod +x run.sh",
    "printf '#!/bin/sh\\n' > new.sh; chmod 755 new.sh",
    "printf 'one\\r\\nTWO\\r\\n' > crlf.txt",
    "printf 'one\\n' > crlf.txt",
    "printf 'and now one\\n' >> no-end.txt",
    "printf 'ä\\n' > 'ä ö.txt'",
    "printf 'x\\n' > 'a \"quoted\" name.txt'",
    "mkdir -p 'sp ace/日本'; printf 'x\\n' > 'sp ace/日本/語.txt'",
    "rm link; ln -s new-target link",
    "ln -s nowhere new-link",
    "rm link; printf 'now a file\\n' > link",
    "rm -r dir; printf 'now a file\\n' > dir",
    "printf '' > empty.txt",
    "rm changed.txt; mkdir changed.txt; printf 'x' > changed.txt/inside",
];

#[test]
fn every_kind_of_change_gives_the_identical_tree() {
    let wrong: Vec<String> = std::thread::scope(|scope| {
        let workers: Vec<_> = ALL_KINDS
            .iter()
            .map(|command| scope.spawn(move || changing(&all_kinds(), command)))
            .collect();
        let ends = workers.into_iter().zip(ALL_KINDS);
        ends.filter_map(|(worker, command)| worker.join().is_err().then(|| (*command).to_owned()))
            .collect()
    });
    assert!(wrong.is_empty(), "{wrong:#?}");
    let most = "printf 'one\\nTWO\\nthree\\n' > changed.txt; printf 'new\\n' > new.txt; rm deleted.txt; \
        mv moved.txt elsewhere.txt; printf '\\0\\001\\377new' > bin.dat; head -c 3000 crlf.txt > new.bin; chmod +x run.sh; \
        printf '#!/bin/sh\\n' > new.sh; chmod 755 new.sh; printf 'one\\r\\nTWO\\r\\n' > crlf.txt; rm -r dir; \
        printf 'ä\\n' > 'ä ö.txt'; rm link; ln -s new-target link";
    let result = changing(&all_kinds(), most);
    assert!(result["changes"]["files"].as_array().unwrap().len() >= 12, "{result}");
}

#[test]
fn a_rename_is_told_as_one() {
    let result = changing(&all_kinds(), "mv moved.txt elsewhere.txt");
    let files = result["changes"]["files"].as_array().unwrap();
    assert_eq!(files.len(), 1);
    assert_eq!(
        (&files[0]["path"], &files[0]["from"]),
        (&json!("elsewhere.txt"), &json!("moved.txt"))
    );
}

#[test]
fn nothing_changed_leaves_no_file() {
    for replies in [
        vec![says("fine")],
        vec![shell("true"), says("fine")],
        vec![writes("a.txt", "two\n"), writes("a.txt", "one\n"), says("and back")],
    ] {
        let world = World::repo(&[("a.txt", "one\n")]);
        let copied = world.path().join("copy.patch").to_string_lossy().into_owned();
        std::fs::write(&copied, "of an earlier run").unwrap();
        run(&world, &replies, &["--patch", &copied]).exits(0);
        let result = world.result();
        assert_eq!(
            (&result["verdict"], &result["patch"]),
            (&json!("no_change"), &Value::Null)
        );
        assert!(!world.out().join("changes.patch").exists());
        assert!(!Path::new(&copied).exists(), "a stale patch would pass for this run's");
    }
}

#[test]
fn a_dirty_tree_gives_only_the_runs_own_changes() {
    let world = World::repo(&[
        ("a.txt", "one\ntwo\nthree\nfour\nfive\nsix\n"),
        ("b.txt", "b\n"),
        ("c.txt", "c\n"),
    ]);
    world
        .file("a.txt", "ONE\ntwo\nthree\nfour\nfive\nsix\n")
        .file("user-new.txt", "mine\n");
    std::fs::remove_file(world.ws().join("c.txt")).unwrap();
    world.file("staged.txt", "staged\n");
    world.git(&["add", "staged.txt"]);
    changing(
        &world,
        "sed -i s/six/SIX/ a.txt; echo more >> user-new.txt; printf 'x' > own.txt",
    );
    let patch = std::fs::read_to_string(world.out().join("changes.patch")).unwrap();
    assert!(
        patch.contains("+SIX") && !patch.contains("+ONE") && !patch.contains("+mine"),
        "{patch}"
    );
    assert!(
        !patch.contains("c.txt") && !patch.contains("staged.txt") && !patch.contains("b/b.txt"),
        "{patch}"
    );
}

#[test]
fn no_repository_is_needed() {
    let world = World::new();
    world.file("a.txt", "one\n").file("d/b.txt", "b\n");
    let result = changing(&world, "printf 'two\\n' > a.txt; rm d/b.txt; printf 'n' > n.txt");
    assert_eq!(result["base"], Value::Null);
    assert!(!world.ws().join(".git").exists());
}

#[test]
fn a_subdirectory_is_a_workspace_of_its_own() {
    let world = World::repo(&[("sub/a.txt", "one\n"), ("outside.txt", "o\n")]);
    let base = world.path().join("base");
    copy(&world.ws(), &base);
    let replies = [writes("a.txt", "two\n"), writes("new.txt", "n\n"), says("done")];
    run(&world, &replies, &["--workspace", "sub"]).exits(0);
    let patch = world.out().join("changes.patch");
    apply(&base.join("sub"), &patch);
    assert_eq!(tree(&base.join("sub")), tree(&world.ws().join("sub")));
}

#[test]
fn attributes_and_filters_of_the_repository_are_off() {
    let world = World::repo(&[
        (
            ".gitattributes",
            "*.txt text eol=crlf filter=evil diff=evil\n*.bin binary\n*.id ident\n",
        ),
        ("a.txt", "one\n"),
        ("b.id", "$Id$\n"),
    ]);
    let marker = world.path().join("filter-ran").to_string_lossy().into_owned();
    for (key, value) in [
        ("filter.evil.clean", format!("touch {marker}; cat")),
        ("filter.evil.smudge", format!("touch {marker}; cat")),
        ("diff.evil.textconv", format!("touch {marker}; cat")),
        ("diff.external", format!("touch {marker}")),
        ("core.fsmonitor", format!("touch {marker}")),
        ("core.hooksPath", world.path().to_string_lossy().into_owned()),
        ("core.autocrlf", "true".to_owned()),
        ("core.quotePath", "false".to_owned()),
        ("diff.noprefix", "true".to_owned()),
        ("diff.mnemonicPrefix", "true".to_owned()),
        ("color.ui", "always".to_owned()),
        ("apply.whitespace", "fix".to_owned()),
    ] {
        world.git(&["config", key, &value]);
    }
    let base = world.path().join("base");
    copy(&world.ws(), &base);
    run(
        &world,
        &[
            shell("printf 'one\\r\\ntrailing  \\n' > a.txt; printf 'x\\n' > c.txt; echo z >> b.id"),
            says("done"),
        ],
        &[],
    )
    .exits(0);
    assert!(!Path::new(&marker).exists(), "a filter of the repository ran");
    // A neutral place: the patch speaks of the bytes that are there.
    std::fs::remove_dir_all(base.join(".git")).unwrap();
    apply(&base, &world.out().join("changes.patch"));
    assert_eq!(tree(&base), tree(&world.ws()));
}

/// Git has written the `.bat` files with CRLF, and the commit has them with LF.
fn written_with_crlf() -> World {
    let world = World::repo(&[
        (".gitattributes", "*.bat text eol=crlf\n"),
        ("run.bat", "@echo off\necho a\necho b\n"),
        ("more.bat", "echo c\necho d\n"),
        ("old.bat", "echo e\necho f\necho g\n"),
        ("crlf.txt", "one\r\ntwo\r\n"),
        ("lf.txt", "one\n"),
    ]);
    for name in ["run.bat", "more.bat", "old.bat"] {
        std::fs::remove_file(world.ws().join(name)).unwrap();
    }
    world.git(&["checkout", "-q", "--", "."]);
    assert_eq!(world.read("run.bat"), "@echo off\r\necho a\r\necho b\r\n");
    assert_eq!(world.git(&["status", "--porcelain"]), "");
    world
}

#[test]
fn a_patch_fits_the_commit_where_git_wrote_crlf() {
    let edit = json!({"file_path": "run.bat", "old_string": "echo a", "new_string": "echo A"});
    let replies = [
        calls("replace", edit),
        shell("sed -i s/d/D/ more.bat; sed -i s/two/2/ crlf.txt; mv old.bat new.bat; echo x >> lf.txt"),
        says("done"),
    ];
    let world = written_with_crlf();
    run(&world, &replies, &[]).exits(0);
    assert_eq!(world.read("run.bat"), "@echo off\r\necho A\r\necho b\r\n");
    let patch = world.out().join("changes.patch");
    let isolated = written_with_crlf();
    run(&isolated, &replies, &["--isolate"]).exits(0);
    assert_eq!(
        std::fs::read_to_string(isolated.out().join("changes.patch")).unwrap(),
        std::fs::read_to_string(&patch).unwrap()
    );
    world.git(&["add", "-A"]);
    let wanted = world.git(&["write-tree"]);
    for how in [&["apply"][..], &["apply", "--index"], &["apply", "--3way"]] {
        let clone = world.path().join(how.concat());
        let (from, to) = (world.ws(), clone.to_string_lossy().into_owned());
        git_in(world.path(), &["clone", "-q", &from.to_string_lossy(), &to]);
        git_in(&clone, &[how, &[&*patch.to_string_lossy()]].concat());
        git_in(&clone, &["add", "-A"]);
        assert_eq!(git_in(&clone, &["write-tree"]), wanted, "{how:?}");
        assert_eq!(tree(&clone), tree(&world.ws()), "{how:?}");
    }
}

#[test]
fn nothing_is_written_to_the_repository() {
    let world = all_kinds();
    world.file("user-new.txt", "mine\n");
    let before = internals(&world.ws());
    run(&world, &[writes("a.txt", "x\n"), says("done")], &[]).exits(0);
    assert!(internals(&world.ws()) == before, ".git was written to");
}

/// What is a directory here may be a link in the commit, or not be in it.
#[test]
fn isolation_follows_no_link_of_the_commit() {
    let world = World::repo(&[("a.txt", "one\n"), ("real/b.txt", "b\n")]);
    let outside = world.path().join("outside");
    std::fs::create_dir(&outside).unwrap();
    let sub = |name: &str| world.ws().join(name);
    symlink("../outside", sub("out")).unwrap();
    symlink("real", sub("alias")).unwrap();
    world.commit("links");
    for name in ["out", "alias"] {
        std::fs::remove_file(sub(name)).unwrap();
    }
    let model = world.beside("replies.yaml", script(&[writes("x.txt", "x\n"), says("done")]));
    let policy = world.beside("policy.yaml", open_policy(&[]));
    for (name, told) in [
        ("out", "out is a symbolic link in the commit"),
        ("alias", "alias is a symbolic link in the commit"),
        ("fresh", "fresh is not a directory in the commit"),
    ] {
        std::fs::create_dir(sub(name)).unwrap();
        let model = format!("script:{model}");
        let args = ["run", "-p", "x", "--isolate", "--policy", &policy, "--model", &model];
        let done = Done::of(world.command(&args).current_dir(sub(name)).output().unwrap()).exits(8);
        assert!(done.stderr.contains(told), "{}", done.stderr);
    }
    assert_eq!(std::fs::read_dir(outside).unwrap().count(), 0);
    assert_eq!(world.git(&["worktree", "list"]).lines().count(), 1);
}

#[test]
fn isolation_leaves_the_tree_alone_and_no_worktree() {
    let world = all_kinds();
    let (before, own) = (internals(&world.ws()), tree(&world.ws()));
    let base = world.path().join("base");
    copy(&world.ws(), &base);
    let replies = [
        writes("new.txt", "x\n"),
        shell("rm deleted.txt; chmod +x run.sh"),
        says("done"),
    ];
    run(&world, &replies, &["--isolate"]).exits(0);
    assert!(tree(&world.ws()) == own, "the tree was changed");
    assert_eq!(world.git(&["worktree", "list"]).lines().count(), 1);
    let after = internals(&world.ws());
    let left: Vec<&String> = after
        .keys()
        .filter(|name| before.get(*name) != after.get(*name))
        .collect();
    assert!(left.is_empty(), "left in .git: {left:?}");
    apply(&base, &world.out().join("changes.patch"));
    assert_eq!(std::fs::read_to_string(base.join("new.txt")).unwrap(), "x\n");
    assert!(!base.join("deleted.txt").exists());
}

#[test]
fn our_own_directories_are_not_in_the_patch() {
    let world = World::repo(&[("a.txt", "one\n")]);
    let model = format!(
        "script:{}",
        world.beside("script.yaml", script(&[writes("b.txt", "b\n"), says("done")]))
    );
    let policy = world.beside("policy.yaml", open_policy(&[]));
    let run = [
        "run", "-p", "x", "--model", &model, "--policy", &policy, "--format", "json",
    ];
    let object = world
        .call(&[&run[..], &["--out", "results/here"]].concat())
        .exits(0)
        .json();
    assert_eq!(object["changes"]["files"].as_array().unwrap().len(), 1, "{object}");
    std::fs::remove_file(world.ws().join("b.txt")).unwrap();
    std::fs::remove_dir_all(world.ws().join("results")).unwrap();
    for _ in 0..2 {
        let object = world.call(&run).exits(0).json();
        assert_eq!(object["changes"]["files"].as_array().unwrap().len(), 1, "{object}");
        std::fs::remove_file(world.ws().join("b.txt")).unwrap();
    }
    assert_eq!(
        world.git(&["status", "--porcelain"]),
        "",
        "our directory is ignored by git"
    );
}

#[test]
fn ignored_files_are_not_in_the_patch() {
    let world = World::repo(&[(".gitignore", "target/\n*.log\n"), ("a.txt", "one\n")]);
    run(
        &world,
        &[
            shell("mkdir target; echo x > target/out; echo x > b.log; echo x > b.txt"),
            says("done"),
        ],
        &[],
    )
    .exits(0);
    let files = world.result()["changes"]["files"].clone();
    assert_eq!(
        (files.as_array().unwrap().len(), &files[0]["path"]),
        (1, &json!("b.txt"))
    );
}

#[test]
fn the_base_is_the_commit_at_the_start() {
    let world = World::repo(&[("a.txt", "one\n")]);
    run(&world, &[writes("a.txt", "two\n"), says("done")], &[]).exits(0);
    let head = world.git(&["rev-parse", "HEAD"]);
    assert_eq!(world.result()["base"], head.trim());
}

/// A run from somewhere: how `--out` is named, which workspace, where the caller stands.
fn placed(world: &World, from: &Path, out: Option<&str>, workspace: Option<&str>) -> Done {
    let script = format!(
        "script:{}",
        world.beside("script.yaml", script(&[writes("new.txt", "new\n"), says("done")]))
    );
    let policy = world.beside("policy.yaml", open_policy(&[]));
    let mut args = vec!["run", "-p", "add a file", "--model", &script, "--policy", &policy];
    args.extend(["--format", "json"]);
    args.extend(out.iter().flat_map(|out| ["--out", out]));
    args.extend(workspace.iter().flat_map(|dir| ["--workspace", dir]));
    Done::of(world.command(&args).current_dir(from).output().unwrap())
}

#[test]
fn a_run_directory_may_be_named_from_anywhere() {
    for (from, out, workspace) in [
        ("ws", Some("made/here"), None),
        ("ws/sub", Some("run"), None),
        ("ws/sub", Some("../run"), Some("..")),
        ("ws/sub", None, None),
        ("ws/sub", None, Some("..")),
        (".", Some("run"), Some("ws")),
        ("link", Some("run"), None),
        ("link", None, Some("sub")),
    ] {
        let world = World::repo(&[("sub/old.txt", "old\n")]);
        symlink(world.ws(), world.path().join("link")).unwrap();
        let done = placed(&world, &world.path().join(from), out, workspace);
        let case = format!("{from} {out:?} {workspace:?}: {}", done.stderr);
        assert_eq!(done.code, 0, "{case}");
        let files = done.json()["changes"]["files"].clone();
        assert_eq!(files.as_array().map(Vec::len), Some(1), "{case} {files}");
        assert_eq!(done.json()["verdict"], "passed", "{case}");
    }
}
