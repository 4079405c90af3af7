//! What `--isolate` reports and leaves when it is interrupted or killed while it makes its worktree.

use super::harness::{Done, World, open_policy, says, script, shell, until, writes};
use serde_json::{Value, json};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

/// A repository whose worktrees are never ready: git waits for a pipe before it reads an object.
struct Stuck {
    world: World,
    pipe: PathBuf,
    path: String,
    flags: Vec<String>,
}

impl Stuck {
    fn new() -> Self {
        let world = World::repo(&[("a.txt", "one\n")]);
        let temporary = world.path().join("tmp");
        std::fs::create_dir(&temporary).unwrap();
        let pipe = world.path().join("pipe");
        assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
        let path = std::env::var("PATH").unwrap();
        let git = std::env::split_paths(&path)
            .map(|dir| dir.join("git"))
            .find(|git| git.is_file());
        // It may neither write nor start a program here.
        let text = format!(
            "#!/bin/bash\n[ \"$1\" = cat-file ] && read -r line < '{}'\nexec '{}' \"$@\"\n",
            pipe.display(),
            git.unwrap().display()
        );
        let stub = PathBuf::from(world.beside("bin/git", text));
        std::fs::set_permissions(&stub, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
        let path = format!("{}:{path}", world.path().join("bin").display());
        let replies = script(&[writes("b.txt", "x\n"), says("done")]);
        let model = format!("script:{}", world.beside("script.yaml", replies));
        let policy = "version: 1\nextends: [builtin:edit]\nrules:\n  - { suspend: write_file, id: ask }\n";
        let policy = world.beside("policy.yaml", policy);
        let flags = ["--model", &model, "--policy", &policy, "--isolate"].map(str::to_owned);
        let temporary = temporary.to_string_lossy().into_owned();
        Self {
            world: world.env("TMPDIR", temporary),
            pipe,
            path,
            flags: flags.to_vec(),
        }
    }

    /// The arguments of a run with this run directory.
    fn run<'a>(&'a self, out: &'a str, more: &[&'a str]) -> Vec<&'a str> {
        let mut args = vec!["run", "-p", "x", "--out", out, "--format", "json"];
        args.extend(self.flags.iter().map(String::as_str));
        args.extend(more);
        args
    }

    /// Starts the program with the git that waits, until that many worktrees are registered.
    fn start(&self, args: &[&str], registered: usize) -> Child {
        let mut command = self.world.command(args);
        command
            .env("PATH", &self.path)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let child = command.spawn().unwrap();
        until("the worktree is registered", || self.registered() == registered);
        child
    }

    fn registered(&self) -> usize {
        std::fs::read_dir(self.world.ws().join(".git/worktrees")).map_or(0, Iterator::count)
    }

    /// Names in the directory for temporary files.
    fn left(&self, prefix: &str) -> Vec<String> {
        let entries = std::fs::read_dir(self.world.path().join("tmp")).unwrap();
        let names = entries.map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned());
        names.filter(|name| name.starts_with(prefix)).collect()
    }
}

impl Drop for Stuck {
    /// Lets every git go on that still waits; it finds its reader gone.
    fn drop(&mut self) {
        use std::os::unix::fs::OpenOptionsExt;
        let flags = libc::O_NONBLOCK;
        let opened = std::fs::File::options()
            .write(true)
            .custom_flags(flags)
            .open(&self.pipe);
        if let Ok(mut pipe) = opened {
            let _ = std::io::Write::write_all(&mut pipe, b"\n\n\n\n\n\n");
        }
    }
}

fn send(child: &Child, signal: &str) {
    let id = child.id().to_string();
    assert!(Command::new("kill").args([signal, &id]).status().unwrap().success());
}

fn says_cancelled(object: &Value) {
    assert_eq!(
        (
            &object["verdict"],
            &object["reason"],
            &object["partial"],
            &object["exit_code"]
        ),
        (&json!("cancelled"), &json!("signal:15"), &json!(true), &json!(143))
    );
}

#[test]
fn a_signal_while_the_worktree_is_made_ends_the_run_with_its_outputs() {
    let stuck = Stuck::new();
    let out = stuck.world.out().to_string_lossy().into_owned();
    let junit = stuck.world.path().join("junit.xml").to_string_lossy().into_owned();
    let child = stuck.start(&stuck.run(&out, &["--junit", &junit]), 1);
    send(&child, "-TERM");
    let done = Done::of(child.wait_with_output().unwrap()).exits(143);
    assert!(done.stderr.contains("cancelled by SIGTERM"), "{}", done.stderr);
    says_cancelled(&done.json());
    says_cancelled(&stuck.world.result());
    let xml = std::fs::read_to_string(junit).unwrap();
    assert!(xml.contains("type=\"cancelled\""), "{xml}");
    assert_eq!((stuck.registered(), stuck.left("overnight-worktree-").len()), (0, 0));
    // The limit is watched, too.
    let args = stuck.run(&out, &["--max-wall", "1s"]);
    let limited = stuck.world.command(&args).env("PATH", &stuck.path).output().unwrap();
    let object = Done::of(limited).exits(6).json();
    assert_eq!(
        (&object["verdict"], &object["reason"]),
        (&json!("budget"), &json!("limit:wall"))
    );
    assert_eq!((stuck.registered(), stuck.left("overnight-worktree-").len()), (0, 0));
    // And a run that goes on.
    stuck.world.call(&stuck.run(&out, &[])).exits(5);
    let child = stuck.start(&["resume", &out, "--format", "json"], 1);
    send(&child, "-TERM");
    says_cancelled(&Done::of(child.wait_with_output().unwrap()).exits(143).json());
    assert_eq!((stuck.registered(), stuck.left("overnight-worktree-").len()), (0, 0));
    stuck.world.call(&["resume", &out]).exits(5);
    assert_eq!(stuck.left("overnight-"), [""; 0]);
}

#[test]
fn worktrees_of_killed_runs_are_removed_and_those_in_use_stay() {
    let stuck = Stuck::new();
    let out = |name: &str| stuck.world.path().join(name).to_string_lossy().into_owned();
    let (dead, living, next) = (out("dead"), out("living"), out("next"));
    let mut killed = stuck.start(&stuck.run(&dead, &[]), 1);
    killed.kill().unwrap();
    killed.wait().unwrap();
    let before = stuck.left("overnight-worktree-");
    assert_eq!(before.len(), 1);
    // It removes the first, and is in use itself while the next one runs.
    let child = stuck.start(&stuck.run(&living, &[]), 1);
    until("another worktree is there", || {
        let now = stuck.left("overnight-worktree-");
        now.len() == 1 && now != before && stuck.registered() == 1
    });
    let used = stuck.left("overnight-worktree-");
    assert_eq!(used.len(), 1, "{used:?}");
    stuck.world.call(&stuck.run(&next, &[])).exits(5);
    assert_eq!((stuck.registered(), stuck.left("overnight-worktree-")), (1, used));
    send(&child, "-TERM");
    Done::of(child.wait_with_output().unwrap()).exits(143);
    assert_eq!((stuck.registered(), stuck.left("overnight-worktree-").len()), (0, 0));
}

#[test]
fn a_signal_before_the_run_begins_is_reported() {
    let world = World::repo(&[("a.txt", "one\n")]);
    let model = format!("script:{}", world.beside("script.yaml", script(&[says("x")])));
    let policy = world.beside("policy.yaml", open_policy(&[]));
    let out = world.out().to_string_lossy().into_owned();
    let args = [
        "run", "-p", "-", "--model", &model, "--policy", &policy, "--out", &out, "--format", "json",
    ];
    // The prompt never comes.
    let child = world
        .command(&args)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let status = format!("/proc/{}/status", child.id());
    // Bit 14 of the mask of caught signals is SIGTERM.
    until("the signal is watched", || {
        let text = std::fs::read_to_string(&status).unwrap_or_default();
        let mask = text.lines().find_map(|line| line.strip_prefix("SigCgt:"));
        mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok())
            .is_some_and(|mask| mask & (1 << 14) != 0)
    });
    send(&child, "-TERM");
    let mut child = child;
    let stdin = child.stdin.take();
    let done = Done::of(child.wait_with_output().unwrap()).exits(143);
    drop(stdin);
    says_cancelled(&done.json());
    says_cancelled(&world.result());
}

#[test]
fn a_partial_clone_is_named_with_its_remedy() {
    let source = World::repo(&[("src/a.txt", "one\n"), ("docs/b.txt", "two\n")]);
    source.git(&["config", "uploadpack.allowFilter", "true"]);
    let world = World::new();
    let url = format!("file://{}", source.ws().display());
    world.git(&["clone", "-q", "--filter=blob:none", "--sparse", &url, "."]);
    let replies = script(&[says("done")]);
    let done = world
        .run(&replies, &open_policy(&[]), &["-p", "x", "--isolate"])
        .exits(8);
    for part in [
        "partial clone",
        "git fetch --refetch --no-filter",
        "without `--isolate`",
    ] {
        assert!(done.stderr.contains(part), "{part}: {}", done.stderr);
    }
}

#[test]
fn borrowed_objects_are_named_by_the_run_and_by_doctor() {
    let source = World::repo(&[("a.txt", "one\n")]);
    let world = World::new();
    let path = source.ws().to_string_lossy().into_owned();
    world.git(&["clone", "-q", "--shared", &path, "."]);
    let doctor = world.call(&["doctor"]).stdout;
    assert!(doctor.contains("borrows objects from"), "{doctor}");
    let policy = "version: 1\nextends: [builtin:edit]\nrules:\n  - { allow: run_shell_command, commands: [git log] }\n";
    world.run(&script(&[says("done")]), policy, &["-p", "x"]).exits(0);
    let result = world.result();
    let warned = result["warnings"].as_array().unwrap();
    assert!(warned.iter().any(|warning| warning["code"] == "alternates"), "{result}");
}

/// While another git makes or removes a worktree, its registration is incomplete, and every git that lists worktrees fails.
#[test]
fn half_made_registrations_of_others_stop_no_run() {
    for format in ["files", "reftable"] {
        let world = World::new();
        world.git(&["init", "-q", &format!("--ref-format={format}"), "."]);
        world.git(&["commit", "-q", "--allow-empty", "-m", "x"]);
        let other = world.ws().join(".git/worktrees/tree");
        std::fs::create_dir_all(&other).unwrap();
        for (name, text) in [
            ("commondir", ""),
            ("locked", ""),
            ("HEAD", "x\n"),
            ("gitdir", "/n/tree/.git\n"),
        ] {
            std::fs::write(other.join(name), text).unwrap();
        }
        let policy =
            "version: 1\nextends: [builtin:edit]\nrules:\n  - { allow: run_shell_command, commands: [git log] }\n";
        let replies = script(&[shell("git log -1 --format=%s"), writes("b.txt", "x\n"), says("done")]);
        let done = world.run(&replies, policy, &["-p", "x", "--isolate"]).exits(0);
        assert!(!world.result()["patch"].is_null(), "{}", done.stderr);
        let left: Vec<_> = std::fs::read_dir(other.parent().unwrap()).unwrap().collect();
        assert_eq!(left.len(), 1, "{format}: {left:?}");
        let unseen = std::fs::read_dir(world.ws().join(".git")).unwrap();
        let mut names = unseen.map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned());
        assert!(!names.any(|name| name.starts_with("overnight")), "{format}");
    }
}

#[test]
fn runs_that_begin_together_do_not_fail_each_other() {
    let world = World::repo(&[("a.txt", "one\n")]);
    let model = format!("script:{}", world.beside("script.yaml", script(&[says("done")])));
    let children: Vec<Child> = (0..6)
        .map(|n| {
            let out = world.path().join(format!("out{n}")).to_string_lossy().into_owned();
            let args = ["run", "-p", "x", "--model", &model, "--isolate", "--out", &out];
            let mut command = world.command(&args);
            command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
        })
        .collect();
    for child in children {
        Done::of(child.wait_with_output().unwrap()).exits(0);
    }
    assert!(!world.ws().join(".git/worktrees").exists());
}

#[test]
fn a_run_whose_directory_is_removed_says_what_it_was_and_keeps_its_changes() {
    let world = World::repo(&[("a.txt", "one\n")]);
    let temporary = world.path().join("tmp");
    std::fs::create_dir(&temporary).unwrap();
    let world = world.env("TMPDIR", temporary.to_string_lossy().into_owned());
    let out = world.path().join("removed").to_string_lossy().into_owned();
    let replies = script(&[writes("b.txt", "x\n"), shell("sleep 2"), says("done")]);
    let model = format!("script:{}", world.beside("script.yaml", replies));
    let policy = "version: 1\nextends: [builtin:edit]\nrules:\n  - { allow: run_shell_command, commands: [sleep] }\n";
    let policy = world.beside("policy.yaml", policy);
    let args = [
        "run",
        "-p",
        "x",
        "--model",
        &model,
        "--policy",
        &policy,
        "--isolate",
        "--out",
        &out,
        "--format",
        "json",
    ];
    let mut command = world.command(&args);
    let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let journal = PathBuf::from(&out).join("journal.jsonl");
    until("the command runs", || {
        std::fs::read_to_string(&journal)
            .is_ok_and(|text| text.contains("\"sleep 2\"") && text.contains("call_started"))
    });
    std::fs::remove_dir_all(&out).unwrap();
    let done = Done::of(child.wait_with_output().unwrap()).exits(9);
    let result = done.json();
    assert!(result["run"].as_str().is_some_and(|run| !run.is_empty()), "{result}");
    assert_eq!(
        (&result["verdict"], &result["partial"]),
        (&json!("output"), &json!(true))
    );
    assert_eq!(result["usage"]["turns"], 2, "{result}");
    assert!(
        result["message"]
            .as_str()
            .unwrap()
            .contains("it was removed while the run worked"),
        "{result}"
    );
    let path = done
        .stderr
        .lines()
        .find_map(|line| line.split_once("recorded nowhere else: "));
    let (_, kept) = path.expect("the worktree is named");
    assert_eq!(
        std::fs::read_to_string(PathBuf::from(kept).join("b.txt")).unwrap(),
        "x\n"
    );
    // The next run does not remove it.
    world
        .run(&script(&[says("done")]), &open_policy(&[]), &["-p", "x", "--isolate"])
        .exits(0);
    assert!(PathBuf::from(kept).join("b.txt").exists());
}

/// A run in the repository itself does not attribute to its commands what others register there.
#[test]
fn others_may_add_and_remove_worktrees_during_a_command() {
    let world = World::repo(&[("a.txt", "one\n")]);
    let begun = |name: &str, replies: &[Value], level: &str, more: &[&str]| {
        let model = format!("script:{}", world.beside(&format!("{name}.yaml"), script(replies)));
        let rule = "{ allow: run_shell_command, commands: [python3], args: any, writes: tree }";
        let policy =
            format!("version: 1\nextends: [builtin:edit]\nrules:\n  - {rule}\nsandbox: {{ level: {level} }}\n");
        let policy = world.beside(&format!("{name}-policy.yaml"), policy);
        let out = world.path().join(name).to_string_lossy().into_owned();
        let mut args = vec![
            "run", "-p", "x", "--model", &model, "--policy", &policy, "--out", &out, "--format", "json",
        ];
        args.extend(more);
        let mut command = world.command(&args);
        command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
    };
    // Each command creates a file when it has started, and ends when another file exists.
    let waits = |works: &str, end: &str| {
        let loops = format!("while not os.path.exists(\"{end}\"): time.sleep(0.02)");
        shell(&format!(
            "python3 -c 'import os, time\nopen(\"{works}\", \"w\")\n{loops}'"
        ))
    };
    let beside = |name: &str| world.path().join(name).to_string_lossy().into_owned();
    let ws = |name: &str| world.ws().join(name);
    let tree = beside("person");
    let replies = [waits("first", "go"), waits("second", "on"), says("done")];
    let own = begun("own", &replies, "landlock", &[]);
    until("the first command works", || ws("first").exists());
    let isolated = [
        waits(&beside("third"), &beside("end")),
        writes("b.txt", "x\n"),
        says("done"),
    ];
    let isolated = begun("isolated", &isolated, "none", &["--isolate"]);
    until("the isolated run works", || world.path().join("third").exists());
    world.git(&["worktree", "add", "-q", "--detach", &tree]);
    std::fs::write(ws("go"), "").unwrap();
    until("the second command works", || ws("second").exists());
    assert_eq!(std::fs::read_dir(ws(".git/worktrees")).unwrap().count(), 2);
    world.git(&["-C", &tree, "status"]);
    std::fs::write(world.path().join("end"), "").unwrap();
    let isolated = Done::of(isolated.wait_with_output().unwrap()).exits(0).json();
    assert!(!isolated["patch"].is_null(), "{isolated}");
    world.git(&["worktree", "remove", &tree]);
    std::fs::write(ws("on"), "").unwrap();
    let own = Done::of(own.wait_with_output().unwrap()).exits(0).json();
    assert_eq!(own["denied"], json!([]), "{own}");
    assert!(!ws(".git/worktrees").exists());
}
