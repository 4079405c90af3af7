//! The home and temporary directory of the model's commands are not those of the recipe's steps, and each check has its own.

use super::harness::{Done, World, have, hindered, says, script, shell, until, writes};
use serde_json::json;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

fn policy(level: &str) -> String {
    format!(
        "version: 1\nextends: [builtin:edit]\nrules:\n  - {{ allow: run_shell_command, commands: [bash], args: any }}\nsandbox: {{ level: {level} }}\n"
    )
}

const RECIPE: &str = "\
version: 1
name: homes
steps:
  - { id: before, run: 'echo x > ~/first; echo x > \"$TMPDIR/first\"; mkdir ~/.config; ln -s first ~/link' }
  - id: fix
    prompt: do it
    checks:
      - { name: home, run: 'test -e ~/first && test ! -e ~/planted && test ! -e ~/.config/planted' }
      - { name: temporary, run: 'test -e \"$TMPDIR/first\" && test ! -e \"$TMPDIR/planted\"' }
  - { id: after, run: 'test ! -e ~/planted' }
";

/// The control is in the model's command: it fails where it does not find what the step before has left.
#[test]
fn what_the_model_leaves_at_home_no_check_sees() {
    for level in ["full", "landlock", "none"] {
        let plant =
            "set -e\ncat ~/first ~/link \"$TMPDIR/first\"\ntouch ~/planted ~/.config/planted \"$TMPDIR/planted\"\n";
        let again = "cat ~/planted && echo still there\n";
        let world = World::repo(&[("plant.sh", plant), ("again.sh", again)]);
        let mut told = says("done");
        told["expect"] = json!("still there");
        let replies = script(&[shell("bash plant.sh"), shell("bash again.sh"), told]);
        world.recipe(RECIPE, &replies, &policy(level), &[]).exits(0);
        let object = world.result();
        let checks = object["steps"][1]["checks"].as_array().unwrap();
        assert!(
            checks.len() == 2 && checks.iter().all(|check| check["passed"] == true),
            "{level}: {object}"
        );
    }
}

/// Checks run code that the model wrote. The first one does here what such code could do, and the second attempt makes it
/// again. Images with nothing in them have more bytes together than are copied for a check.
const CHECKS: &str = "\
version: 1
name: homes
steps:
  - { id: before, run: 'cd && echo mine > first; echo mine > \"$TMPDIR/first\"; truncate -s 900M image1 image2 image3 image4 image5' }
  - id: fix
    prompt: do it
    checks:
      - { name: plants, run: 'cd && grep mine first \"$TMPDIR/first\" && test ! -e planted && touch planted \"$TMPDIR/planted\" && echo theirs > first && rm \"$TMPDIR/first\"' }
      - { name: sees, run: 'cd && grep mine first \"$TMPDIR/first\" && test ! -e planted && test ! -e \"$TMPDIR/planted\"' }
      - { name: holes, run: 'cd && test $(stat -c %s image5) = 943718400 && test $(du -m image5 | cut -f 1) -lt 9' }
      - { name: again, file: b.txt }
    retry: { max: 1 }
  - { id: after, run: 'cd && grep mine first \"$TMPDIR/first\" && test ! -e planted && touch planted' }
  - { id: last, run: 'test -e ~/planted' }
";

#[test]
fn what_a_check_leaves_at_home_no_other_check_or_step_sees() {
    for level in ["full", "landlock", "none"] {
        let world = World::repo(&[("a.txt", "one\n")]);
        let replies = script(&[says("done"), writes("b.txt", "b\n"), says("now")]);
        let done = world.recipe(CHECKS, &replies, &policy(level), &[]);
        assert_eq!(done.code, 0, "{level}: {}", done.stderr);
        let checks = &world.result()["steps"][1]["checks"];
        assert_eq!(checks[0]["runs"], 2, "{level}: {checks}");
    }
}

/// The program of the policy executes a file of the tree, which the model could have written. The control is in what it wrote.
#[test]
fn what_rewrites_a_call_leaves_nothing_and_reads_what_the_model_may_read() {
    let recipe = "version: 1\nname: homes\nsteps:\n  - { id: before, run: 'echo KEY=of-the-step > .env; echo mine > ~/first' }\n  - id: fix\n    prompt: do it\n    checks:\n      - { name: home, run: 'test -e ~/first && test ! -e ~/planted && test ! -e \"$TMPDIR/planted\"' }\n  - { id: after, run: 'test ! -e ~/planted' }\n";
    let rewrite =
        "set -e\ncat\ncat ~/first\ntouch ~/planted \"$TMPDIR/planted\"\ncat .env || true\ntouch planted-here || true\n";
    for level in ["full", "landlock", "none"] {
        let policy = format!(
            "version: 1\nextends: [builtin:edit]\nrules:\n  - {{ modify: write_file, paths: [b.txt], pipe: bash rewrite.sh }}\nsandbox: {{ level: {level} }}\n"
        );
        let world = World::repo(&[("rewrite.sh", rewrite), (".gitignore", ".env\n")]);
        let replies = script(&[writes("b.txt", "b\n"), says("done")]);
        let done = world.recipe(recipe, &replies, &policy, &[]);
        assert_eq!(done.code, 0, "{level}: {}", done.stderr);
        let written = std::fs::read_to_string(world.ws().join("b.txt")).unwrap();
        assert!(written.starts_with("b\nmine\n"), "{level}: {written}");
        assert!(level != "full" || !written.contains("of-the-step"), "{written}");
        // Otherwise the patch would have a change that nobody made.
        assert_eq!(world.ws().join("planted-here").exists(), level == "none", "{level}");
    }
}

/// What the model proposed has nothing to do with it.
#[test]
fn a_home_that_cannot_be_copied_for_what_rewrites_a_call_ends_the_run() {
    let recipe = "version: 1\nname: homes\nsteps:\n  - { id: before, run: 'cd && for name in a b c; do fallocate -l 1500M $name || exit; done' }\n  - { id: fix, prompt: do it }\n";
    let policy = "version: 1\nextends: [builtin:edit]\nrules: [{ modify: write_file, paths: [b.txt], pipe: cat }]\n\
         sandbox: { level: landlock }\n";
    let world = World::large_repo(&[("a.txt", "one\n")]);
    let replies = script(&[writes("b.txt", "b\n"), says("done")]);
    world.recipe(recipe, &replies, policy, &[]).exits(8);
    let message = world.result()["message"].to_string();
    assert!(
        message.contains("could not be run") && message.contains("4 GiB"),
        "{message}"
    );
}

/// The space is only reserved, so that the step takes no time and the copy does.
#[test]
fn a_signal_ends_the_copy_of_a_home_for_a_check() {
    let world = World::large_repo(&[("a.txt", "one\n")]);
    let recipe = "version: 1\nname: homes\nsteps:\n  - { id: before, run: 'cd && for name in a b c; do fallocate -l 900M $name || exit; done' }\n  - { id: fix, prompt: do it, checks: [{ name: any, run: 'true' }] }\n";
    let model = format!("script:{}", world.beside("script.json", script(&[says("done")])));
    let (recipe, policy) = (
        world.beside("recipe.yaml", recipe),
        world.beside("policy.yaml", policy("landlock")),
    );
    let out = world.out().display().to_string();
    let args = ["run", &recipe, "--model", &model, "--policy", &policy, "--out", &out];
    let child = world
        .command(&args)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let caches = world.path().join("home/.cache/overnight");
    until("the copy has begun", || {
        let of_repositories = std::fs::read_dir(&caches).into_iter().flatten().flatten();
        let mut kept = of_repositories.map(|of| of.path().join("run-0/author/kept-0-home"));
        kept.any(|kept| kept.exists())
    });
    let begun = Instant::now();
    let sent = Command::new("kill").args(["-TERM", &child.id().to_string()]).status();
    assert!(sent.unwrap().success());
    Done::of(child.wait_with_output().unwrap()).exits(143);
    assert!(begun.elapsed() < Duration::from_secs(10), "{:?}", begun.elapsed());
    assert_eq!(world.result()["reason"], "signal:15");
}

/// What a step has locked even for its owner is left out of the copy. Root without the right to read everything is like any other user.
#[test]
fn what_a_step_has_locked_keeps_no_command_from_starting() {
    let locked = "version: 1\nname: homes\nsteps:\n  - { id: before, run: 'mkdir ~/d && touch ~/d/f ~/e && chmod 600 ~/d' }\n  - { id: fix, prompt: do it }\n";
    let world = World::repo(&[("look.sh", "cat ~/e && test -d ~/d && echo all there\n")]);
    let mut told = says("done");
    told["expect"] = json!("all there");
    let model = world.beside("script.json", script(&[shell("bash look.sh"), told]));
    let model = format!("script:{model}");
    let (recipe, policy) = (
        world.beside("recipe.yaml", locked),
        world.beside("policy.yaml", policy("none")),
    );
    let out = world.out().display().to_string();
    let inner = world.command(&["run", &recipe, "--model", &model, "--policy", &policy, "--out", &out]);
    if let Some(done) = hindered(&inner) {
        done.exits(0);
    }
}

/// A directory on which a tmpfs is mounted.
struct Tmpfs(tempfile::TempDir);

impl Tmpfs {
    fn new() -> Option<Self> {
        let dir = tempfile::tempdir().unwrap();
        let mounted = Command::new("mount")
            .args(["-t", "tmpfs", "none"])
            .arg(dir.path())
            .status();
        mounted.is_ok_and(|status| status.success()).then_some(Self(dir))
    }
}

impl Drop for Tmpfs {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg(self.0.path()).status();
    }
}

/// On tmpfs, a write through a mapping whose page was read before changes no time of the file.
#[test]
fn writes_through_a_mapping_are_seen_on_tmpfs() {
    if !have("python3", Command::new("python3").arg("-V").output().is_ok()) {
        return;
    }
    let write = "import mmap, os, sys\nfor path in sys.argv[1:]:\n    fd = os.open(path, os.O_RDWR)\n    m = mmap.mmap(fd, os.fstat(fd).st_size)\n    x = m[0]\n    m[0:3] = b'BAD'\n";
    let mounted = Tmpfs::new();
    if !have("a tmpfs of our own", mounted.is_some()) {
        return;
    }
    let top = mounted
        .as_ref()
        .map_or(std::path::Path::new("/"), |mounted| mounted.0.path());
    for level in ["full", "landlock"] {
        // At `full` the command cannot open the denied file.
        let denied = if level == "full" { 0 } else { 4 };
        for (paths, code) in [
            ("src/free.txt", 0),
            ("tests/frozen.txt", denied),
            ("src/free.txt docs/mine.txt", 0),
        ] {
            let dir = tempfile::tempdir_in(top).unwrap();
            let world = World::new();
            let files = [
                ("src/free.txt", "old text\n"),
                ("tests/frozen.txt", "old text\n"),
                ("docs/mine.txt", "old text\n"),
                ("go.py", write),
            ];
            for (path, text) in files {
                let at = dir.path().join(path);
                std::fs::create_dir_all(at.parent().unwrap()).unwrap();
                std::fs::write(at, text).unwrap();
            }
            super::harness::git_in(dir.path(), &["init", "-q"]);
            super::harness::git_in(dir.path(), &["add", "-A"]);
            super::harness::git_in(dir.path(), &["commit", "-q", "-m", "base"]);
            // Older than any tick of a clock.
            std::thread::sleep(std::time::Duration::from_millis(2_200));
            let policy = format!(
                "version: 1\nrules:\n  - {{ allow: run_shell_command, commands: [python3], args: any }}\n  - {{ allow: write_file, paths: ['docs/**'] }}\n  - {{ deny: write_file, paths: ['tests/**'] }}\nsandbox: {{ level: {level} }}\n"
            );
            let replies = script(&[shell(&format!("python3 go.py {paths}")), says("done")]);
            let ws = dir.path().to_string_lossy().into_owned();
            let done = world.run(&replies, &policy, &["-p", "x", "--workspace", &ws]);
            assert_eq!(done.code, code, "{level} {paths}: {}", done.stderr);
            let read = |path: &str| std::fs::read_to_string(dir.path().join(path)).unwrap();
            assert_eq!(
                (read("src/free.txt"), read("tests/frozen.txt")),
                ("old text\n".to_owned(), "old text\n".to_owned())
            );
            // The control: what a rule allows stays, and is in the patch.
            let patch = std::fs::read_to_string(world.out().join("changes.patch")).unwrap_or_default();
            let allowed = paths.contains("docs");
            assert_eq!(
                (read("docs/mine.txt") == "BAD text\n", patch.contains("+BAD text")),
                (allowed, allowed),
                "{level}"
            );
        }
    }
}
