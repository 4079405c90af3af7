//! Baseline and patch are made by our own walk: nothing in the tree is ever run or believed, whatever it says to git.

use super::harness::{World, git_in, open_policy, says, script, shell, writes};
use super::patch::{apply, copy, tree};
use overnight::workspace::patch::{Delta, Shadow, Snapshot};
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

/// Drives the store without a run around it.
struct Store {
    shadow: Shadow,
    runtime: tokio::runtime::Runtime,
}

impl Store {
    fn of(world: &World) -> Self {
        Self::at(&world.path().join("run/git"), &world.ws())
    }

    fn at(dir: &Path, ws: &Path) -> Self {
        let ws = std::fs::canonicalize(ws).unwrap();
        Self {
            shadow: Shadow::open(dir, &ws, &[]).unwrap(),
            runtime: tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build()
                .unwrap(),
        }
    }

    fn baseline(&self) -> Snapshot {
        self.runtime.block_on(self.shadow.baseline()).unwrap()
    }

    fn snapshot(&self) -> Snapshot {
        self.runtime.block_on(self.shadow.snapshot()).unwrap()
    }

    fn delta(&self, from: &Snapshot, to: &Snapshot) -> Delta {
        self.runtime.block_on(self.shadow.delta(from, to)).unwrap()
    }

    fn changed(&self, from: &Snapshot, to: &Snapshot) -> BTreeSet<String> {
        self.runtime.block_on(self.shadow.changed_paths(from, to)).unwrap()
    }

    fn restore(&self, from: &Snapshot, paths: &[&str]) -> overnight::workspace::patch::Restored {
        let paths = paths.iter().map(|path| (*path).to_owned()).collect();
        self.runtime.block_on(self.shadow.restore(from, &paths)).unwrap()
    }
}

fn paths(delta: &Delta) -> Vec<&str> {
    let mut found: Vec<&str> = delta.files.iter().map(|file| file.path.as_str()).collect();
    found.sort_unstable();
    found
}

fn set(names: &[&str]) -> BTreeSet<String> {
    names.iter().map(|name| (*name).to_owned()).collect()
}

/// A repository in `dir` whose every file goes through a filter that leaves `marker`.
fn hostile_repository(dir: &Path, marker: &Path) {
    std::fs::create_dir_all(dir).unwrap();
    git_in(dir, &["init", "-q"]);
    let run = format!("touch {}; cat", marker.display());
    for (key, value) in [
        ("filter.x.clean", run.as_str()),
        ("filter.x.smudge", run.as_str()),
        ("core.fsmonitor", run.as_str()),
        ("diff.external", run.as_str()),
        ("core.hooksPath", "."),
    ] {
        git_in(dir, &["config", key, value]);
    }
    std::fs::create_dir_all(dir.join(".git/info")).unwrap();
    std::fs::write(dir.join(".git/info/attributes"), "* filter=x\n").unwrap();
    std::fs::write(dir.join("file"), "content\n").unwrap();
}

#[test]
fn repositories_nested_at_any_depth_run_nothing_and_are_plain_directories() {
    for levels in [1, 9, 20, 100] {
        let world = World::repo(&[("a.txt", "one\n")]);
        let marker = world.path().join("ran");
        let store = Store::of(&world);
        let base = store.baseline();
        let mut dir = world.ws().join("target");
        let mut name = "target".to_owned();
        for _ in 0..levels {
            hostile_repository(&dir, &marker);
            dir.push("n");
            name.push_str("/n");
        }
        let name = name.strip_suffix("/n").unwrap();
        let first = store.snapshot();
        std::fs::write(world.ws().join(name).join("file"), "changed\n").unwrap();
        let second = store.snapshot();
        let delta = store.delta(&first, &second);
        assert_eq!(paths(&delta), [format!("{name}/file")], "{levels}");
        assert_eq!(store.changed(&base, &second).len(), levels, "{levels}");
        assert!(!marker.exists(), "{levels}: a filter of a nested repository ran");
    }
}

#[test]
fn the_run_itself_runs_nothing_of_nested_repositories() {
    let world = World::repo(&[("a.txt", "one\n"), (".gitignore", "ignored/\n")]);
    let marker = world.path().join("ran");
    let mut dir = world.ws().join("target");
    for _ in 0..12 {
        hostile_repository(&dir, &marker);
        dir.push("n");
    }
    hostile_repository(&world.ws().join("ignored/n"), &marker);
    let base = world.path().join("base");
    copy(&world.ws(), &base);
    let nested = format!("target{}/file", "/n".repeat(11));
    let replies = [
        writes("b.txt", "b\n"),
        shell(&format!("echo more >> {nested}")),
        shell("echo x > ignored/n/file"),
        says("done"),
    ];
    world
        .run(&script(&replies), &open_policy(&["echo"]), &["-p", "x"])
        .exits(0);
    assert!(!marker.exists(), "a filter of a nested repository ran");
    let files = world.result()["changes"]["files"].clone();
    let files: Vec<&str> = files
        .as_array()
        .unwrap()
        .iter()
        .map(|f| f["path"].as_str().unwrap())
        .collect();
    assert_eq!(files, ["b.txt", &nested]);
    std::fs::remove_dir_all(base.join(".git")).unwrap();
    apply(&base, &world.out().join("changes.patch"));
    assert_eq!(std::fs::read_to_string(base.join(nested)).unwrap(), "content\nmore\n");
}

#[test]
fn settings_attributes_and_hooks_of_the_tree_change_no_byte_and_run_nothing() {
    let attributes = "*.txt text eol=crlf filter=x ident working-tree-encoding=UTF-16\n";
    let world = World::repo(&[("a.txt", "$Id$\none\r\n"), ("b.txt", "b\n")]);
    let marker = world.path().join("ran");
    let run = format!("touch {}; cat", marker.display());
    for (key, value) in [
        ("filter.x.clean", run.as_str()),
        ("filter.x.smudge", run.as_str()),
        ("filter.x.process", run.as_str()),
        ("filter.x.required", "true"),
        ("core.fsmonitor", run.as_str()),
        ("diff.external", run.as_str()),
        ("diff.x.textconv", run.as_str()),
        ("core.autocrlf", "true"),
        ("core.worktree", "/nowhere"),
        ("core.alternateRefsCommand", run.as_str()),
    ] {
        world.git(&["config", key, value]);
    }
    world
        .file(".gitattributes", attributes)
        .file(".git/info/attributes", attributes);
    for hook in [
        "post-index-change",
        "post-checkout",
        "reference-transaction",
        "fsmonitor-watchman",
    ] {
        let path = world.ws().join(".git/hooks").join(hook);
        world.file(
            &format!(".git/hooks/{hook}"),
            format!("#!/bin/sh\ntouch {}\n", marker.display()),
        );
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o755)).unwrap();
    }
    let base = world.path().join("base");
    copy(&world.ws(), &base);
    let store = Store::of(&world);
    let from = store.baseline();
    world
        .file("a.txt", "$Id: x$\r\ntwo\r\n")
        .file("new.txt", [0xff, 0xfe, b'x', 0]);
    let delta = store.delta(&from, &store.snapshot());
    assert_eq!(paths(&delta), ["a.txt", "new.txt"]);
    assert!(!marker.exists(), "a program of the repository ran");
    std::fs::remove_dir_all(base.join(".git")).unwrap();
    let patch = world.beside("p.patch", &delta.patch);
    apply(&base, Path::new(&patch));
    assert_eq!(tree(&base), tree(&world.ws()));
    // What the store put back has the bytes that were there.
    let restored = store.restore(&from, &["a.txt", "new.txt"]);
    assert_eq!(restored.done, set(&["a.txt", "new.txt"]), "{restored:?}");
    assert_eq!(world.read("a.txt"), "$Id$\none\r\n");
    assert!(!world.ws().join("new.txt").exists() && !marker.exists());
}

#[test]
fn a_worktree_of_our_own_is_written_without_filters_and_hooks() {
    let world = World::repo(&[
        ("a.txt", "one\n"),
        ("dir/run.sh", "x\n"),
        ("lfs.bin", "version https://git-lfs.github.com/spec/v1\n"),
    ]);
    std::fs::set_permissions(world.ws().join("dir/run.sh"), std::fs::Permissions::from_mode(0o755)).unwrap();
    symlink("a.txt", world.ws().join("link")).unwrap();
    world.file(".gitattributes", "* filter=x\n");
    world.commit("more");
    let marker = world.path().join("ran");
    let run = format!("touch {}; cat", marker.display());
    world.git(&["config", "filter.x.smudge", &run]);
    world.git(&["config", "filter.x.clean", &run]);
    world.file(
        ".git/hooks/post-checkout",
        format!("#!/bin/sh\ntouch {}\n", marker.display()),
    );
    let hook = world.ws().join(".git/hooks/post-checkout");
    std::fs::set_permissions(&hook, std::fs::Permissions::from_mode(0o755)).unwrap();
    let replies = [
        shell("git ls-files -s; git diff-index --cached HEAD; ls -l dir; readlink link; cat a.txt"),
        writes("b.txt", "b\n"),
        says("done"),
    ];
    let done = world.run(
        &script(&replies),
        &open_policy(&["git", "ls", "readlink", "cat"]),
        &["-p", "x", "--isolate"],
    );
    let done = done.exits(0);
    assert!(!marker.exists(), "a filter or hook of the repository ran");
    assert!(
        done.stderr
            .contains("the worktree has Git LFS pointers in place of 1 file:"),
        "{}",
        done.stderr
    );
    let transcript = std::fs::read_to_string(world.out().join("transcript.json")).unwrap();
    assert!(
        transcript.contains("-rwxr-xr-x") && transcript.contains("one"),
        "{transcript}"
    );
    // Its index is the commit's: the executable file stands in it, and nothing differs.
    assert!(
        transcript.contains("100755 ") && !transcript.contains(":100755 ") && !transcript.contains(":100644 "),
        "{transcript}"
    );
    let files = world.result()["changes"]["files"].clone();
    assert_eq!(
        (files.as_array().unwrap().len(), &files[0]["path"]),
        (1, &serde_json::json!("b.txt"))
    );
    assert_eq!(world.git(&["worktree", "list"]).lines().count(), 1);
}

#[test]
fn special_files_large_files_and_unreadable_names_are_named() {
    let world = World::repo(&[("a.txt", "one\n")]);
    world.file("large.bin", vec![7_u8; 33 << 20]);
    let store = Store::of(&world);
    let from = store.baseline();
    assert_eq!(store.snapshot(), from, "nothing changed");
    let kept: u64 = walkdir(&world.path().join("run")).values().sum();
    assert!(kept < 1 << 20, "{kept} bytes are kept of a large file");
    let fifo = world.ws().join("pipe");
    rustix_mkfifo(&fifo);
    let _socket = std::os::unix::net::UnixListener::bind(world.ws().join("socket")).unwrap();
    world
        .file("b.txt", "b\n")
        .file(".GIT/config", "x\n")
        .file("git~1", "x\n");
    let large = std::fs::OpenOptions::new()
        .write(true)
        .open(world.ws().join("large.bin"))
        .unwrap();
    std::os::unix::fs::FileExt::write_all_at(&large, b"x", 100).unwrap();
    let to = store.snapshot();
    let delta = store.delta(&from, &to);
    let unpatched: BTreeMap<&str, &str> = delta
        .unpatched
        .iter()
        .map(|one| (one.path.as_str(), one.why.as_str()))
        .collect();
    let wanted = BTreeMap::from([
        (".GIT", "a name that git refuses"),
        ("git~1", "a name that git refuses"),
        ("large.bin", "a file over 32 MiB"),
        ("pipe", "a pipe"),
        ("socket", "a socket"),
    ]);
    assert_eq!(unpatched, wanted);
    assert_eq!(paths(&delta), [".GIT", "b.txt", "git~1", "large.bin", "pipe", "socket"]);
    let patch = String::from_utf8(delta.patch).unwrap();
    assert!(
        patch.contains("b.txt") && !patch.contains("large") && !patch.contains("pipe"),
        "{patch}"
    );
    // What came can go again; what was not kept cannot come back.
    let restored = store.restore(&from, &["pipe", "b.txt", "large.bin"]);
    assert_eq!(restored.done, set(&["b.txt", "pipe"]));
    assert_eq!(restored.failed.keys().collect::<Vec<_>>(), ["large.bin"]);
    assert!(!fifo.exists());
}

fn walkdir(dir: &Path) -> BTreeMap<PathBuf, u64> {
    let mut found = BTreeMap::new();
    for entry in std::fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        match path.is_dir() {
            true => found.extend(walkdir(&path)),
            false => drop(found.insert(path.clone(), std::fs::metadata(&path).unwrap().len())),
        }
    }
    found
}

fn rustix_mkfifo(path: &Path) {
    let done = std::process::Command::new("mkfifo").arg(path).status().unwrap();
    assert!(done.success());
}

#[test]
fn a_tracked_file_over_the_limit_is_known_by_its_content() {
    let world = World::new();
    world.file("large.bin", vec![7_u8; 33 << 20]);
    world.git(&["init", "-q", "-b", "main"]);
    world.commit("large");
    let store = Store::of(&world);
    let from = store.baseline();
    // Touched, not changed.
    let data = std::fs::read(world.ws().join("large.bin")).unwrap();
    world.file("large.bin", &data);
    assert_eq!(store.snapshot(), from);
    std::fs::remove_file(world.ws().join("large.bin")).unwrap();
    let delta = store.delta(&from, &store.snapshot());
    assert_eq!((paths(&delta), delta.unpatched.len()), (vec!["large.bin"], 0));
    assert_eq!(store.restore(&from, &["large.bin"]).done, set(&["large.bin"]));
    assert_eq!(std::fs::read(world.ws().join("large.bin")).unwrap(), data);
}

#[test]
fn names_of_any_bytes_are_in_the_patch() {
    let world = World::repo(&[("a.txt", "one\n")]);
    let base = world.path().join("base");
    copy(&world.ws(), &base);
    let store = Store::of(&world);
    let from = store.baseline();
    let names: [&[u8]; 5] = [
        b"new\nline",
        b"\xff\xfe bytes",
        b"tab\t\"quote\"\\",
        "ä ö".as_bytes(),
        b" lead ",
    ];
    for name in names {
        std::fs::write(world.ws().join(std::ffi::OsStr::from_bytes(name)), "x\n").unwrap();
    }
    let to = store.snapshot();
    let delta = store.delta(&from, &to);
    assert_eq!(delta.files.len(), 5);
    assert!(
        delta.files.iter().all(|file| file.added == Some(1)),
        "{:?}",
        delta.files
    );
    apply(&base, Path::new(&world.beside("p.patch", &delta.patch)));
    for name in names {
        assert!(base.join(std::ffi::OsStr::from_bytes(name)).is_file(), "{name:?}");
    }
    let shown: Vec<String> = store.changed(&from, &to).into_iter().collect();
    let shown: Vec<&str> = shown.iter().map(String::as_str).collect();
    assert_eq!(store.restore(&from, &shown).failed, BTreeMap::new());
    assert_eq!(store.snapshot(), from);
}

#[test]
fn what_git_tracks_counts_although_it_is_ignored() {
    let world = World::repo(&[(".gitignore", "*.log\nbuild/\n!keep.log\n"), ("a.txt", "a\n")]);
    world
        .file("tracked.log", "1\n")
        .file("build/out/tracked.js", "1\n")
        .file("build/other", "1\n");
    world.git(&["add", "-f", "tracked.log", "build/out/tracked.js"]);
    world.git(&["commit", "-q", "-m", "forced"]);
    let store = Store::of(&world);
    let from = store.baseline();
    let runtime = &store.runtime;
    assert!(runtime.block_on(store.shadow.is_commit(&from, world.git(&["rev-parse", "HEAD"]).trim())));
    world.file("tracked.log", "2\n").file("build/out/tracked.js", "2\n");
    world
        .file("build/other", "2\n")
        .file("new.log", "2\n")
        .file("keep.log", "2\n");
    let to = store.snapshot();
    let wanted = set(&["build/out/tracked.js", "keep.log", "tracked.log"]);
    assert_eq!(store.changed(&from, &to), wanted);
    let asked = set(&[
        "build/other",
        "new.log",
        "tracked.log",
        "keep.log",
        "gone/x.log",
        "build/out/tracked.js",
    ]);
    let ignored = runtime.block_on(store.shadow.ignored(&asked)).unwrap();
    assert_eq!(ignored, set(&["build/other", "gone/x.log", "new.log"]));
    // Gone for a while, it is known all the same; and so it is to the process after this one.
    std::fs::remove_file(world.ws().join("tracked.log")).unwrap();
    store.snapshot();
    world.file("tracked.log", "3\n").file(".gitignore", "*\n");
    let wanted = set(&[".gitignore", "build/out/tracked.js", "keep.log", "tracked.log"]);
    assert_eq!(store.changed(&from, &store.snapshot()), wanted);
    let again = Store::of(&world);
    let wanted = set(&[".gitignore", "build/out/tracked.js", "tracked.log"]);
    assert_eq!(again.changed(&from, &again.snapshot()), wanted);
}

#[test]
fn an_ignore_file_that_was_refused_hides_nothing_in_a_later_process_either() {
    let world = World::repo(&[("a.txt", "a\n"), ("sub/b.txt", "b\n"), ("x/c.txt", "c\n")]);
    let store = Store::of(&world);
    let from = store.baseline();
    world.file("sub/.gitignore", "*\n").file("sub/new", "n\n");
    world.file("x/.gitignore", "new\n").file("x/new", "n\n");
    let ruled = store
        .runtime
        .block_on(store.shadow.ruled_snapshot(true, |path: &str| path == "x/.gitignore"))
        .unwrap();
    let wanted = set(&["sub/.gitignore", "sub/new", "x/.gitignore"]);
    assert_eq!(store.changed(&from, &ruled), wanted);
    assert_eq!(store.snapshot(), ruled);
    let again = Store::of(&world);
    assert_eq!(again.snapshot(), ruled);
    let shown: Vec<&str> = wanted.iter().map(String::as_str).collect();
    assert_eq!(again.restore(&from, &shown).failed, BTreeMap::new());
    assert!(!world.ws().join("sub/new").exists() && !world.ws().join("x/.gitignore").exists());
}

#[test]
fn ignore_files_that_a_later_process_cannot_read_are_an_error_and_stay_one() {
    let world = World::repo(&[("a.txt", "a\n")]);
    Store::of(&world).baseline();
    std::fs::write(world.path().join("run/git/ignore-files"), "").unwrap();
    let again = Store::of(&world);
    for _ in 0..2 {
        let error = again.runtime.block_on(again.shadow.snapshot()).unwrap_err();
        assert!(error.contains("ignore-files: "), "{error}");
    }
}

#[test]
fn indexes_of_every_form_are_read() {
    for (form, args) in [
        ("2", &["update-index", "--index-version", "2"][..]),
        ("3", &["add", "-N", "intended"]),
        ("4", &["update-index", "--index-version", "4"]),
        ("split", &["update-index", "--split-index"]),
    ] {
        let world = World::repo(&[
            ("a.txt", "a\n"),
            ("dir/b.txt", "b\n"),
            ("dir.txt", "c\n"),
            ("dir-x/y", "d\n"),
        ]);
        world
            .file("forced.log", "1\n")
            .file(".gitignore", "*.log\n")
            .file("intended", "");
        world.git(&["add", "-f", "forced.log"]);
        world.git(&["add", ".gitignore", "intended"]);
        world.git(&["commit", "-q", "-m", "more"]);
        world.git(&["rm", "-q", "--cached", "intended"]);
        world.git(args);
        std::thread::sleep(std::time::Duration::from_millis(20));
        world.git(&["status", "--short"]);
        let store = Store::of(&world);
        let from = store.baseline();
        assert_eq!(from.tree, world.git(&["rev-parse", "HEAD^{tree}"]).trim(), "{form}");
        world.file("forced.log", "2\n").file("dir/b.txt", "B\n");
        let delta = store.delta(&from, &store.snapshot());
        assert_eq!(paths(&delta), ["dir/b.txt", "forced.log"], "{form}");
    }
}

#[test]
fn a_repository_of_sha256_has_ids_and_patches_of_its_own() {
    let world = World::new();
    world.file("a.txt", "one\n").file("dir/b.txt", "b\n");
    world.git(&["init", "-q", "-b", "main", "--object-format=sha256"]);
    world.commit("base");
    let base = world.path().join("base");
    copy(&world.ws(), &base);
    let store = Store::of(&world);
    let from = store.baseline();
    assert_eq!(from.tree, world.git(&["rev-parse", "HEAD^{tree}"]).trim());
    world.file("a.txt", "two\n").file("bin", [0, 1, 2]);
    let delta = store.delta(&from, &store.snapshot());
    apply(&base, Path::new(&world.beside("p.patch", &delta.patch)));
    assert_eq!(tree(&base), tree(&world.ws()));
}

/// Where only the line ends of a file differ from the commit, CRLF against LF; the tree keeps its own.
#[test]
fn a_patch_for_a_commit_has_its_line_ends() {
    let world = World::repo(&[
        ("a", "one\ntwo\n"),
        ("bin", "p\nq\n"),
        ("dirty", "1\n2\n"),
        ("gone", "g\nh\n"),
        ("has-crlf", "k\r\nl\n"),
        ("same", "x\ny\n"),
    ]);
    world
        .file("a", "one\r\ntwo\r\n")
        .file("bin", "p\r\nq\r\n")
        .file("dirty", "1\r\n3\r\n")
        .file("gone", "g\r\nh\r\n")
        .file("has-crlf", "k\r\nl\r\n")
        .file("same", "x\r\ny\r\n");
    let before = tree(&world.ws());
    let store = Store::of(&world);
    let from = store.baseline();
    world
        .file("a", "one\r\n2\nthree\r\n")
        .file("bin", "p\r\nq\0\r\n")
        .file("dirty", "1\r\n4\r\n")
        .file("has-crlf", "k\r\nL\r\n")
        .file("same", "x\ny\n");
    std::fs::remove_file(world.ws().join("gone")).unwrap();
    let to = store.snapshot();
    let commit = world.git(&["rev-parse", "HEAD"]);
    let delta = store.shadow.delta_on(Some(commit.trim()), &from, &to);
    let delta = store.runtime.block_on(delta).unwrap();
    assert_eq!(paths(&delta), ["a", "bin", "dirty", "gone", "has-crlf"]);
    let patch = String::from_utf8_lossy(&delta.patch);
    for (path, fits) in [
        ("a", true),
        ("bin", false),
        ("dirty", false),
        ("gone", true),
        ("has-crlf", false),
    ] {
        let id = world.git(&["rev-parse", &format!("HEAD:{path}")]);
        assert_eq!(
            patch.contains(&format!("index {}..", id.trim())),
            fits,
            "{path}: {patch}"
        );
    }
    assert!(patch.contains(" one\n-two\n+2\n+three\n"), "{patch}");
    let changed = ["a", "bin", "dirty", "gone", "has-crlf", "same"];
    assert_eq!(store.restore(&from, &changed).failed, BTreeMap::new());
    assert_eq!(tree(&world.ws()), before);
    store.runtime.block_on(store.shadow.apply(&to)).unwrap();
    assert_eq!(store.snapshot(), to);
}

#[test]
fn altered_objects_are_an_error_and_no_content() {
    // In the repository's store.
    let world = World::repo(&[("a.txt", "one\n")]);
    let store = Store::of(&world);
    let from = store.baseline();
    let id = world.git(&["rev-parse", "HEAD:a.txt"]);
    let path = world.ws().join(".git/objects").join(&id[..2]).join(id[2..].trim());
    let other = world.beside("other", "evil\n");
    let evil = world.git(&["hash-object", "-w", &other]);
    let evil = world.ws().join(".git/objects").join(&evil[..2]).join(evil[2..].trim());
    std::fs::remove_file(&path).unwrap();
    std::fs::copy(evil, &path).unwrap();
    world.file("a.txt", "two\n");
    let to = store.snapshot();
    let why = store.runtime.block_on(store.shadow.delta(&from, &to)).unwrap_err();
    assert!(why.contains(id.trim()), "{why}");
    let restored = store.restore(&from, &["a.txt"]);
    assert!(restored.failed.contains_key("a.txt"), "{restored:?}");
    assert_eq!(world.read("a.txt"), "two\n");
    // In our own.
    let world = World::new();
    world.file("a.txt", "one\n");
    let store = Store::of(&world);
    let from = store.baseline();
    for path in walkdir(&world.path().join("run"))
        .keys()
        .filter(|path| path.extension().is_some_and(|e| e == "pack"))
    {
        let mut bytes = std::fs::read(path).unwrap();
        let at = bytes.len() / 2;
        bytes[at] ^= 1;
        std::fs::write(path, bytes).unwrap();
    }
    world.file("a.txt", "two\n");
    let to = store.snapshot();
    let why = store.runtime.block_on(store.shadow.delta(&from, &to)).unwrap_err();
    assert!(why.contains("own store"), "{why}");
}

#[test]
fn links_swapped_for_directories_lead_nowhere() {
    let world = World::repo(&[("d/file", "mine\n"), ("e/file", "mine\n")]);
    let outside = world.path().join("outside");
    std::fs::create_dir(&outside).unwrap();
    std::fs::write(outside.join("file"), "SECRET OF OTHERS\n").unwrap();
    let before = tree(&outside);
    let store = Store::of(&world);
    let from = store.baseline();
    let stop = AtomicBool::new(false);
    let (d, aside) = (world.ws().join("d"), world.path().join("aside"));
    let (mut looked, mut refused) = (0, 0);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                // Each of these fails where the other side put something in its place.
                let _ = std::fs::rename(&d, &aside);
                let _ = symlink(&outside, &d);
                let _ = std::fs::remove_file(&d);
                let _ = std::fs::rename(&aside, &d);
            }
        });
        let begun = std::time::Instant::now();
        let seconds = |n| begun.elapsed() > std::time::Duration::from_secs(n);
        while !(seconds(3) && looked > 10 || seconds(60)) {
            match store.runtime.block_on(store.shadow.snapshot()) {
                Ok(to) => {
                    looked += 1;
                    let delta = store.delta(&from, &to);
                    assert!(
                        !String::from_utf8_lossy(&delta.patch).contains("SECRET"),
                        "read through a link"
                    );
                }
                Err(why) => assert!(why.contains("keeps changing"), "{why}"),
            }
            let restored = store
                .runtime
                .block_on(store.shadow.restore(&from, &set(&["d/file", "d"])));
            refused += usize::from(restored.is_ok_and(|restored| !restored.failed.is_empty()));
        }
        stop.store(true, Ordering::Relaxed);
    });
    assert!(looked > 10, "{looked} walks, {refused} refusals");
    assert_eq!(tree(&outside), before, "written through a link");
    // Left alone, it can be put back.
    let _ = std::fs::remove_dir_all(&aside);
    let restored = store.restore(&from, &["d/file", "d"]);
    assert_eq!(restored.failed, BTreeMap::new());
    assert_eq!(store.snapshot(), from);
}

#[test]
fn a_link_on_the_way_is_refused_by_restore() {
    let world = World::repo(&[("d/sub/file", "mine\n")]);
    let outside = world.path().join("outside");
    std::fs::create_dir_all(outside.join("sub")).unwrap();
    let store = Store::of(&world);
    let from = store.baseline();
    std::fs::remove_dir_all(world.ws().join("d")).unwrap();
    symlink(&outside, world.ws().join("d")).unwrap();
    let restored = store.restore(&from, &["d/sub/file"]);
    assert!(restored.failed["d/sub/file"].contains("link"), "{restored:?}");
    assert_eq!(tree(&outside), BTreeMap::new());
    let restored = store.restore(&from, &["d", "d/sub/file"]);
    assert_eq!(restored.done, set(&["d", "d/sub/file"]), "{restored:?}");
    assert_eq!(world.read("d/sub/file"), "mine\n");
}

#[test]
fn restore_brings_content_mode_and_links_back_and_takes_what_came() {
    let world = World::repo(&[
        ("a.txt", "one\n"),
        ("run.sh", "x\n"),
        ("gone/deep.txt", "d\n"),
        ("kind", "file\n"),
    ]);
    symlink("a.txt", world.ws().join("link")).unwrap();
    world.file("untracked", "u\n").file("other.txt", "o\n");
    let before = tree(&world.ws());
    let store = Store::of(&world);
    let from = store.baseline();
    world
        .file("a.txt", "two\n")
        .file("untracked", "v\n")
        .file("new/deep/x", "x\n")
        .file("other.txt", "kept\n");
    std::fs::set_permissions(world.ws().join("run.sh"), std::fs::Permissions::from_mode(0o755)).unwrap();
    std::fs::remove_dir_all(world.ws().join("gone")).unwrap();
    std::fs::remove_file(world.ws().join("link")).unwrap();
    symlink("elsewhere", world.ws().join("link")).unwrap();
    std::fs::remove_file(world.ws().join("kind")).unwrap();
    world.file("kind/inside", "x\n");
    let all = [
        "a.txt",
        "run.sh",
        "gone/deep.txt",
        "kind",
        "kind/inside",
        "link",
        "untracked",
        "new/deep/x",
    ];
    let restored = store.restore(&from, &all);
    assert_eq!((restored.done, restored.failed), (set(&all), BTreeMap::new()));
    assert_eq!(world.read("other.txt"), "kept\n");
    world.file("other.txt", "o\n");
    assert_eq!(tree(&world.ws()), before);
    assert!(!world.ws().join("new").exists());
    let content = |path| store.runtime.block_on(store.shadow.content(&from, path)).unwrap();
    assert_eq!(
        (content("a.txt"), content("link")),
        (Some(b"one\n".to_vec()), Some(b"a.txt".to_vec()))
    );
    assert_eq!(content("new/deep/x"), None);
}

#[test]
fn a_tree_that_is_too_deep_fails_loudly() {
    let world = World::repo(&[("a.txt", "one\n")]);
    let store = Store::of(&world);
    store.baseline();
    let deep = |levels: usize| {
        let dir = world.ws().join(vec!["d"; levels].join("/"));
        std::fs::create_dir_all(&dir).unwrap();
        std::fs::write(dir.join("file"), "x\n").unwrap();
        store.runtime.block_on(store.shadow.snapshot())
    };
    deep(250).unwrap();
    let why = deep(300).unwrap_err();
    assert!(why.contains("nested more than 256 deep"), "{why}");
}

#[test]
fn an_ignore_file_with_too_many_patterns_fails_loudly() {
    let world = World::repo(&[("a.txt", "one\n"), ("d/b.txt", "one\n")]);
    let store = Store::of(&world);
    let base = store.baseline();
    let patterns = |count: usize| "# not a pattern\n\n".to_owned() + &"z*q\n".repeat(count);
    for path in [".gitignore", "d/.gitignore"] {
        world.file(path, patterns(20_001));
        let why = store.runtime.block_on(store.shadow.snapshot()).unwrap_err();
        assert!(why.starts_with(&format!("{path}: more than 20000 patterns")), "{why}");
        world.file(path, patterns(20_000));
        assert_ne!(store.snapshot(), base);
        std::fs::remove_file(world.ws().join(path)).unwrap();
    }
    assert_eq!(store.snapshot(), base);
}

#[test]
fn the_same_size_and_time_do_not_hide_a_change() {
    let world = World::repo(&[("a.txt", "one\n")]);
    let path = world.ws().join("a.txt");
    let store = Store::of(&world);
    let from = store.baseline();
    let time = std::fs::metadata(&path).unwrap().modified().unwrap();
    for text in ["two\n", "six\n", "ten\n"] {
        world.file("a.txt", text);
        std::fs::File::options()
            .write(true)
            .open(&path)
            .unwrap()
            .set_modified(time)
            .unwrap();
        let to = store.snapshot();
        let delta = store.delta(&from, &to);
        assert!(
            String::from_utf8_lossy(&delta.patch).contains(&format!("+{text}")),
            "{text}"
        );
    }
}

/// A tree for the test of patches: path and what is there.
#[derive(Clone, Debug, PartialEq)]
enum Node {
    File(Vec<u8>, bool),
    Link(String),
}

fn nodes() -> impl Strategy<Value = BTreeMap<String, Node>> {
    let name = prop_oneof![
        6 => "[abc]",
        1 => Just("ä".to_owned()),
        1 => Just("q\"u o\\te".to_owned()),
        1 => Just("new\nline".to_owned()),
        1 => Just("a.b".to_owned()),
        1 => Just("a-".to_owned()),
    ];
    let path = prop::collection::vec(name, 1..4).prop_map(|parts| parts.join("/"));
    let lines = prop::collection::vec("[xyz]{0,3}", 0..40).prop_map(|lines| lines.join("\n").into_bytes());
    let text = (lines, any::<bool>()).prop_map(|(mut text, end)| {
        if end && !text.is_empty() {
            text.push(b'\n');
        }
        text
    });
    let binary = prop::collection::vec(any::<u8>(), 0..60);
    let content = prop_oneof![4 => text, 1 => binary];
    let node = prop_oneof![
        6 => (content, any::<bool>()).prop_map(|(content, runs)| Node::File(content, runs)),
        1 => "[a-c/]{1,5}".prop_map(Node::Link),
    ];
    prop::collection::btree_map(path, node, 0..12)
}

fn write_tree(dir: &Path, nodes: &BTreeMap<String, Node>) {
    for (path, node) in nodes {
        let path = dir.join(path);
        // A file where another path needs a directory stays away.
        if std::fs::create_dir_all(path.parent().unwrap()).is_err() || std::fs::symlink_metadata(&path).is_ok() {
            continue;
        }
        match node {
            Node::Link(target) => symlink(target, &path).unwrap(),
            Node::File(content, runs) => {
                std::fs::write(&path, content).unwrap();
                let mode = if *runs { 0o755 } else { 0o644 };
                std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
            }
        }
    }
}

fn clear(dir: &Path) {
    for entry in std::fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        match std::fs::symlink_metadata(&path).unwrap().is_dir() {
            true => std::fs::remove_dir_all(path).unwrap(),
            false => std::fs::remove_file(path).unwrap(),
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 60, failure_persistence: None, ..ProptestConfig::default() })]

    /// `git apply` brings the first tree to the second, `apply` does so too, `restore` brings it back, and git's own ids are ours.
    #[test]
    fn patches_of_random_trees_apply(first in nodes(), second in nodes(), keep in prop::collection::vec(any::<bool>(), 12)) {
        let world = World::new();
        let ws = world.ws();
        write_tree(&ws, &first);
        let store = Store::of(&world);
        let from = store.baseline();
        let base = world.path().join("base");
        copy(&ws, &base);
        clear(&ws);
        let mut then = second;
        // Some files stay, and some are found under another name.
        for ((path, node), keep) in first.iter().zip(&keep) {
            let path = if *keep { path.clone() } else { format!("moved/{path}") };
            then.entry(path).or_insert_with(|| node.clone());
        }
        write_tree(&ws, &then);
        let to = store.snapshot();
        let delta = store.delta(&from, &to);
        let gits = world.path().join("gits");
        copy(&ws, &gits);
        git_in(&gits, &["init", "-q"]);
        git_in(&gits, &["add", "-A"]);
        let theirs = git_in(&gits, &["write-tree"]);
        prop_assert_eq!(theirs.trim(), &to.tree);
        prop_assert!(delta.unpatched.is_empty());
        prop_assert_eq!(delta.patch.is_empty(), tree(&base) == tree(&ws));
        if !delta.patch.is_empty() {
            apply(&base, Path::new(&world.beside("p.patch", &delta.patch)));
        }
        let wanted = tree(&ws);
        prop_assert_eq!(&tree(&base), &wanted);
        let changed = store.changed(&from, &to);
        let changed: Vec<&str> = changed.iter().map(String::as_str).collect();
        let restored = store.restore(&from, &changed);
        prop_assert_eq!(restored.failed, BTreeMap::new());
        prop_assert_eq!(store.snapshot(), from);
        store.runtime.block_on(store.shadow.apply(&to)).unwrap();
        prop_assert_eq!(tree(&ws), wanted);
        prop_assert_eq!(store.snapshot(), to);
    }

    /// Which files count is what git says.
    #[test]
    fn ignore_rules_are_gits(
        files in prop::collection::btree_set("[ab]{1,2}(/[ab.]{1,2}x){0,3}", 1..15),
        rules in prop::collection::vec("!{0,1}/{0,1}(a|b|\\*|\\*\\*|\\?|\\[ab\\]|\\[!a\\]|\\\\a|/|x|\\.| ){1,6}/{0,1}", 0..6),
        deeper in prop::collection::vec("!{0,1}/{0,1}(a|b|\\*|/|x|\\*\\*){1,4}/{0,1}", 0..4),
        exclude in "(a|b|\\*|/|x){0,4}",
    ) {
        let world = World::new();
        let ws = world.ws();
        for file in &files {
            let path = ws.join(file);
            if std::fs::create_dir_all(path.parent().unwrap()).is_ok() && !path.is_dir() {
                std::fs::write(path, file).unwrap();
            }
        }
        world.git(&["init", "-q"]);
        world.file(".gitignore", rules.join("\n")).file(".git/info/exclude", exclude);
        if ws.join("a").is_dir() {
            world.file("a/.gitignore", deeper.join("\r\n"));
        }
        let store = Store::of(&world);
        let ours = store.baseline();
        world.git(&["add", "-A"]);
        let theirs = world.git(&["write-tree"]);
        prop_assert_eq!(&ours.tree, theirs.trim(), "{} {:?}", world.git(&["status", "--short", "--ignored"]), rules);
    }
}
