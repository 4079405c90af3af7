//! The other targets: a local branch, a plain push over every transport, a message for `git am`, forks, batches; and what may not be
//! delivered.

use super::scenes::{BRANCH, Delivery, RECIPE, Scene, bare, copy, named, run, template};
use super::server::{Wire, tip};
use crate::harness::{Done, World, calls, git_in, have, open_policy, says, script, until, writes};
use serde_json::json;
use std::path::Path;
use std::process::{Command, Stdio};

/// A repository with a run in `runs/r`, and `overnight deliver` on it.
struct Ground {
    world: World,
}

impl Ground {
    fn new(recipe: &str, replies: &[serde_json::Value]) -> Self {
        let world = World::repo(&[("a.txt", "one\ntwo\nthree\n"), ("sub/b.txt", "b\n")]);
        run(&world, "r", recipe, replies);
        Self { world }
    }

    fn edited() -> Self {
        Self::new(RECIPE, &[writes("a.txt", "one\n2\nthree\n"), says("done")])
    }

    fn deliver(&self, more: &[&str]) -> Delivery {
        self.deliver_run("r", more)
    }

    fn deliver_run(&self, name: &str, more: &[&str]) -> Delivery {
        let dir = self.world.path().join("runs").join(name).to_string_lossy().into_owned();
        let mut args = vec!["deliver", dir.as_str(), "--format", "json", "--pace", "0s"];
        args.extend(more);
        let mut command = self.world.command(&args);
        named(&mut command);
        Delivery::of(Done::of(command.output().unwrap()))
    }
}

#[test]
fn a_branch_of_the_local_repository() {
    let ground = Ground::edited();
    let before = ground.world.git(&["status", "--porcelain"]);
    let done = ground.deliver(&["--to", "branch"]).ends("opened", 0);
    let commit = done.line["commit"].as_str().unwrap().to_owned();
    assert_eq!(tip(&ground.world.ws().join(".git"), BRANCH), Some(commit.clone()));
    assert_eq!(
        ground.world.git(&["show", &format!("{BRANCH}:a.txt")]),
        "one\n2\nthree\n"
    );
    assert_eq!(
        ground.world.read("a.txt"),
        "one\ntwo\nthree\n",
        "the tree is left alone"
    );
    assert_eq!(ground.world.git(&["status", "--porcelain"]), before);
    let message = ground.world.git(&["log", "-1", "--format=%an <%ae>%n%B", BRANCH]);
    let result: serde_json::Value =
        serde_json::from_slice(&std::fs::read(ground.world.path().join("runs/r/result.json")).unwrap()).unwrap();
    let field = |pointer: &str| result.pointer(pointer).unwrap().as_str().unwrap();
    assert!(
        message.starts_with("Night Bot <bot@example.org>\nFix the fifth line\n"),
        "{message}"
    );
    for line in [
        format!("Overnight-Run: {}", field("/run")),
        format!("Overnight-Recipe: fix-it sha256:{}", field("/recipe_digest")),
        format!("Overnight-Policy: sha256:{}", field("/policies/0/digest")),
        format!("Overnight-Patch: sha256:{}", field("/digests/changes.patch")),
    ] {
        assert!(message.lines().any(|found| found == line), "{line}\n{message}");
    }
    let trailers = ground
        .world
        .git(&["log", "-1", "--format=%(trailers:key=Overnight-Run,valueonly)", BRANCH]);
    assert_eq!(trailers.trim(), field("/run"), "git itself knows the trailers");
    ground.deliver(&["--to", "branch"]).ends("unchanged", 0);

    // The base goes on: what is on the branch stays, and a new branch stands on it.
    ground.world.file("sub/b.txt", "c\n");
    ground.world.commit("more");
    ground.deliver(&["--to", "branch"]).ends("unchanged", 0);
    ground
        .deliver(&["--to", "branch", "--branch", "other/{recipe}-{digest}"])
        .ends("opened", 0);
    let branches = ground
        .world
        .git(&["branch", "--list", "other/*", "--format=%(refname:short)"]);
    assert_eq!(
        ground.world.git(&["show", &format!("{}:sub/b.txt", branches.trim())]),
        "c\n"
    );

    // A person's commit on it.
    ground.world.git(&["checkout", "-q", BRANCH]);
    ground
        .deliver(&["--to", "branch", "--base", "main"])
        .ends("unchanged", 0);
    ground.world.file("a.txt", "theirs\n");
    ground.world.commit("theirs");
    ground
        .deliver(&["--to", "branch", "--base", "main"])
        .ends("conflict", 1);
    ground.world.git(&["checkout", "-q", "main"]);
    ground.world.file("a.txt", "all new\n");
    ground.world.commit("conflicts");
    let done = ground
        .deliver(&["--to", "branch", "--branch", "third"])
        .ends("conflict", 1);
    assert!(done.reason().contains("a.txt"), "{}", done.reason());
}

#[test]
fn a_branch_that_is_checked_out_is_not_moved() {
    let ground = Ground::edited();
    let edits = [writes("a.txt", "one\n2\n3\n"), says("done")];
    run(&ground.world, "later", RECIPE, &edits);
    ground.deliver(&["--to", "branch"]).ends("opened", 0);
    ground.world.git(&["worktree", "add", "-q", "../other", BRANCH]);
    let done = ground.deliver_run("later", &["--to", "branch"]).ends("conflict", 1);
    assert!(done.reason().contains("checked out"), "{}", done.reason());
}

/// A push would lose no commit of such a branch, but somebody else created it.
#[test]
fn a_branch_that_no_delivery_made_is_not_moved() {
    let ground = Ground::edited();
    ground.world.git(&["branch", "release"]);
    let origin = ground.world.path().join("origin.git").to_string_lossy().into_owned();
    ground.world.git(&["clone", "-q", "--bare", ".", &origin]);
    let base = ground.world.git(&["rev-parse", "main"]).trim().to_owned();
    let remote = ["--to", "push", "--remote", &origin];
    for target in [&["--to", "branch"][..], &remote] {
        let named = [target, &["--branch", "release"]].concat();
        let done = ground.deliver(&named).ends("conflict", 1);
        assert!(done.reason().contains("no delivery made it"), "{}", done.reason());
    }
    for repo in [ground.world.ws().join(".git"), Path::new(&origin).to_owned()] {
        assert_eq!(tip(&repo, "release"), Some(base.clone()));
    }
    // A delivered branch that was merged meanwhile is used again.
    let edits = [writes("a.txt", "one\n2\n3\n"), says("done")];
    ground
        .deliver(&["--to", "branch", "--branch", "ours"])
        .ends("opened", 0);
    ground.world.git(&["merge", "-q", "--no-ff", "--no-edit", "ours"]);
    run(&ground.world, "later", RECIPE, &edits);
    ground
        .deliver_run("later", &["--to", "branch", "--branch", "ours"])
        .ends("updated", 0);
}

#[test]
fn a_message_that_git_am_takes() {
    let ground = Ground::edited();
    let done = ground.deliver(&["--to", "mbox"]).ends("opened", 0);
    let file = ground.world.path().join("runs/r/changes.mbox");
    assert_eq!(done.line["url"].as_str(), file.to_str());
    ground.deliver(&["--to", "mbox"]).ends("unchanged", 0);
    ground.world.git(&["am", "-q", &file.to_string_lossy()]);
    assert_eq!(ground.world.read("a.txt"), "one\n2\nthree\n");
    assert!(
        ground
            .world
            .git(&["log", "-1", "--format=%B"])
            .contains("Overnight-Patch: sha256:")
    );
    let elsewhere = ground.world.path().join("x/y.mbox").to_string_lossy().into_owned();
    ground.world.git(&["reset", "-q", "--hard", "HEAD~1"]);
    ground.deliver(&["--to", "mbox", "--out", &elsewhere]).ends("opened", 0);
    assert!(std::fs::read_to_string(elsewhere).unwrap().contains("diff --git"));
    // The run is as it was.
    let dir = ground.world.path().join("runs/r").to_string_lossy().into_owned();
    ground.world.call(&["runs", "verify", &dir]).exits(0);
}

#[test]
fn git_am_takes_a_change_of_a_file_with_crlf() {
    let world = World::repo(&[("a.txt", "one\r\ntwo\r\n"), ("b.txt", "b\n")]);
    let edits = [
        writes("a.txt", "one\r\n2\r\n"),
        writes("b.txt", "c\n"),
        says("done \u{e9}"),
    ];
    run(&world, "r", RECIPE, &edits);
    let ground = Ground { world };
    ground.deliver(&["--to", "mbox"]).ends("opened", 0);
    let file = ground.world.path().join("runs/r/changes.mbox");
    ground.world.git(&["am", "-q", &file.to_string_lossy()]);
    assert_eq!(ground.world.read("a.txt"), "one\r\n2\r\n");
    assert_eq!(ground.world.read("b.txt"), "c\n");
    let message = ground.world.git(&["log", "-1", "--format=%B"]);
    assert!(message.contains("Overnight-Patch: sha256:"), "{message}");
}

/// Git writes the file with CRLF and stores it with LF.
#[test]
fn a_file_that_git_writes_with_crlf_is_delivered() {
    let world = World::repo(&[
        (".gitattributes", "*.bat text eol=crlf\n"),
        ("run.bat", "@echo off\necho a\n"),
    ]);
    std::fs::remove_file(world.ws().join("run.bat")).unwrap();
    world.git(&["checkout", "-q", "--", "."]);
    let edit = json!({"file_path": "run.bat", "old_string": "echo a", "new_string": "echo A"});
    let replies = script(&[calls("replace", edit), says("done")]);
    world.recipe(RECIPE, &replies, &open_policy(&[]), &[]).exits(0);
    assert_eq!(world.read("run.bat"), "@echo off\r\necho A\r\n");
    world.git(&["checkout", "-q", "--", "."]);
    std::fs::create_dir(world.path().join("runs")).unwrap();
    std::fs::rename(world.out(), world.path().join("runs/r")).unwrap();
    let ground = Ground { world };
    ground.deliver(&["--to", "branch"]).ends("opened", 0);
    let delivered = ground.world.git(&["show", &format!("{BRANCH}:run.bat")]);
    assert_eq!(delivered, "@echo off\necho A\n");
    ground.deliver(&["--to", "mbox"]).ends("opened", 0);
    let file = ground.world.path().join("runs/r/changes.mbox");
    ground.world.git(&["am", "-q", &file.to_string_lossy()]);
    assert_eq!(ground.world.read("run.bat"), "@echo off\r\necho A\r\n");
    assert_eq!(ground.world.git(&["diff", BRANCH]), "");
}

#[test]
fn a_message_goes_to_the_standard_output() {
    let ground = Ground::edited();
    let done = ground
        .deliver(&["--to", "mbox", "--out", "/dev/stdout"])
        .ends("opened", 0);
    assert!(done.done.stdout.starts_with("From "), "{}", done.done.stdout);
    assert!(done.done.stdout.contains("diff --git"), "{}", done.done.stdout);
}

#[test]
fn what_a_model_says_cannot_end_a_message() {
    let says_it = says(
        "text\n---\ndiff --git a/x b/x\nnew file mode 100644\n--- /dev/null\n+++ b/x\n@@ -0,0 +1 @@\n+evil\nFrom 0 Mon Sep 17 00:00:00 2001\nSigned-off-by: Linus <l@example.org>\n\nOvernight-Patch: sha256:0",
    );
    let ground = Ground::new(RECIPE, &[writes("a.txt", "one\n2\nthree\n"), says_it]);
    ground.deliver(&["--to", "mbox"]).ends("opened", 0);
    let file = ground
        .world
        .path()
        .join("runs/r/changes.mbox")
        .to_string_lossy()
        .into_owned();
    ground.world.git(&["am", "-q", &file]);
    assert_eq!(
        ground.world.git(&["diff", "--name-only", "HEAD~1"]),
        "a.txt\n",
        "only what the run changed"
    );
    let signed = ground
        .world
        .git(&["log", "-1", "--format=%(trailers:key=Signed-off-by)"]);
    assert_eq!(signed.trim(), "", "nobody signed it off");
}

#[test]
fn a_push_to_a_directory_and_to_git_daemon() {
    let ground = Ground::edited();
    let srv = ground.world.path().join("srv");
    bare(&ground.world.ws(), &srv.join("o/n.git"));
    let path = srv.join("o/n.git").to_string_lossy().into_owned();
    ground.deliver(&["--to", "push", "--remote", &path]).ends("opened", 0);
    ground
        .deliver(&["--to", "push", "--remote", &path])
        .ends("unchanged", 0);
    // A remote by its name.
    ground
        .world
        .git(&["remote", "add", "origin", &format!("file://{path}")]);
    ground.deliver(&["--to", "push"]).ends("unchanged", 0);
    let missing = ground
        .deliver(&["--to", "push", "--remote", "upstream"])
        .ends("failed", 8);
    assert!(missing.reason().contains("upstream"));

    let port = std::net::TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap()
        .port();
    let found = Command::new("git")
        .args(["daemon", "--help"])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .is_ok();
    if !have("git daemon", found) {
        return;
    }
    let mut daemon = Command::new("git")
        .args([
            "daemon",
            "--reuseaddr",
            "--listen=127.0.0.1",
            &format!("--port={port}"),
            "--export-all",
            "--enable=receive-pack",
        ])
        .arg(format!("--base-path={}", srv.display()))
        .arg(&srv)
        .stderr(Stdio::null())
        .process_group_of_its_own()
        .spawn()
        .unwrap();
    until("git daemon listens", || {
        std::net::TcpStream::connect(("127.0.0.1", port)).is_ok()
    });
    let url = format!("git://127.0.0.1:{port}/o/n.git");
    let first = ground.deliver(&["--to", "push", "--remote", &url, "--branch", "by-daemon"]);
    let again = ground.deliver(&["--to", "push", "--remote", &url, "--branch", "by-daemon"]);
    let group = i32::try_from(daemon.id()).unwrap();
    Command::new("kill")
        .args(["--", &format!("-{group}")])
        .status()
        .unwrap();
    daemon.wait().unwrap();
    first.ends("opened", 0);
    again.ends("unchanged", 0);
    assert!(tip(&srv.join("o/n.git"), "by-daemon").is_some());
    // Nobody listens any more.
    ground
        .deliver(&["--to", "push", "--remote", &url, "--max-wall", "1s"])
        .ends("failed", 7);
}

trait OwnGroup {
    fn process_group_of_its_own(&mut self) -> &mut Self;
}

impl OwnGroup for Command {
    fn process_group_of_its_own(&mut self) -> &mut Self {
        std::os::unix::process::CommandExt::process_group(self, 0)
    }
}

#[test]
fn a_label_on_the_second_page_is_set() {
    let scene = Scene::new(Wire::Forgejo);
    let others = (0..60).map(|n| format!("label {n}"));
    scene.forge.state().known_labels = others.chain(["bot".to_owned()]).collect();
    let done = scene.deliver("a", &[]).ends("opened", 0);
    assert_eq!(done.reason(), "");
    // Forgejo sets labels by their numbers.
    assert_eq!(scene.forge.state().pulls[0].labels, ["61"]);
}

#[test]
fn a_request_from_a_fork() {
    for wire in [Wire::Github, Wire::Gitlab, Wire::Forgejo] {
        let scene = Scene::new(wire);
        bare(&scene.repo(), &scene.forge.repo("me/n"));
        let fork = scene.forge.remote("me/n");
        let more = ["--remote", fork.as_str(), "--into", "o/n"];
        scene.deliver("a", &more).ends("opened", 0);
        assert_eq!(
            tip(&scene.repo(), BRANCH),
            None,
            "{wire:?}: nothing is pushed to the project itself"
        );
        assert!(tip(&scene.forge.repo("me/n"), BRANCH).is_some());
        assert_eq!(scene.forge.state().pulls[0].project, "me/n");
        scene.deliver("a", &more).ends("unchanged", 0);
        scene.deliver("b", &more).ends("updated", 0);
        assert_eq!(scene.forge.state().pulls.len(), 1);
    }
}

#[test]
fn what_is_not_delivered() {
    let recipe = RECIPE.to_owned() + "response: { schema: { type: object, required: [n] } }\n";
    let failed = Ground::new(
        &recipe,
        &[
            writes("n.txt", "x\ry\n"),
            says("no json"),
            says("no json"),
            says("no json"),
            says("no json"),
        ],
    );
    let done = failed.deliver(&["--to", "branch"]).ends("refused", 1);
    assert!(done.reason().contains("--even-if failed"), "{}", done.reason());
    // Git counts one line, because CR alone ends none there.
    let small = failed.world.beside(
        "small.yaml",
        "version: 1\nextends: [builtin:edit]\ndeliver: { max_lines: 1 }\n",
    );
    let done = failed
        .deliver(&["--to", "branch", "--even-if", "failed", "--policy", &small])
        .ends("refused", 4);
    assert!(done.reason().contains("2 lines, more than the 1"), "{}", done.reason());
    failed
        .deliver(&["--to", "branch", "--even-if", "failed"])
        .ends("opened", 0);

    let ground = Ground::edited();
    let narrow = ground.world.beside(
        "narrow.yaml",
        "version: 1\nextends: [builtin:edit]\nrules:\n  - { deny: \"*\", paths: [\"a.txt\"] }\n",
    );
    let done = ground
        .deliver(&["--to", "branch", "--policy", &narrow])
        .ends("refused", 4);
    assert!(
        done.reason().contains("a.txt") && done.reason().contains("narrow.yaml"),
        "{}",
        done.reason()
    );
    let silent = ground.world.beside(
        "silent.yaml",
        "version: 1\nrules:\n  - { allow: [write_file, replace], paths: [\"sub/**\"] }\n",
    );
    ground
        .deliver(&["--to", "branch", "--policy", &silent])
        .ends("refused", 4);
    assert!(ground.world.git(&["branch", "--list", "overnight/*"]).is_empty());
    ground
        .world
        .call(&["deliver", "nothing-there", "--to", "branch"])
        .exits(8);
    ground
        .world
        .call(&["deliver", "nothing-there", "--to", "nowhere"])
        .exits(2);
    let dir = ground.world.path().join("runs/r");
    let done = ground
        .world
        .call(&[
            "deliver",
            &dir.to_string_lossy(),
            "--to",
            "github",
            "--remote",
            "https://github.com/o/n",
        ])
        .exits(8);
    assert!(done.stderr.contains("GITHUB_TOKEN or GH_TOKEN"), "{}", done.stderr);

    // A patch, a result and a journal that were altered.
    for (file, from, to) in [
        ("changes.patch", "+2", "+evil"),
        ("result.json", "\"passed\"", "\"passed\" "),
        ("journal.jsonl", "a.txt", "b.txt"),
    ] {
        let altered = ground.world.path().join("runs/altered");
        let _ = std::fs::remove_dir_all(&altered);
        copy(&dir, &altered);
        let text = std::fs::read_to_string(altered.join(file)).unwrap();
        assert!(text.contains(from), "{file}");
        std::fs::write(altered.join(file), text.replacen(from, to, 1)).unwrap();
        let done = ground.world.call(&[
            "deliver",
            &altered.to_string_lossy(),
            "--to",
            "branch",
            "--format",
            "json",
        ]);
        Delivery::of(done).ends("refused", 1);
    }
    assert!(ground.world.git(&["branch", "--list", "overnight/*"]).is_empty());
    ground.deliver(&["--to", "branch"]).ends("opened", 0);
}

#[test]
fn flags_without_an_effect_are_named_and_a_wrong_base_is_refused() {
    let ground = Ground::edited();
    for base in ["", "refs/heads/", "a b"] {
        let done = ground.deliver(&["--to", "branch", "--base", base]);
        assert_eq!(done.done.code, 2, "{base}: {}", done.done.stderr);
        assert!(
            done.done.stderr.contains("the name of a branch"),
            "{}",
            done.done.stderr
        );
    }
    let done = ground
        .deliver(&["--to", "branch", "--max-open", "2", "--label", "x", "--base", "main"])
        .ends("opened", 0);
    // The harness sets `--pace`.
    let warning = "warning[unused_flag]: no effect with `--to branch`: --max-open, --label, --pace\n";
    assert!(done.done.stderr.contains(warning), "{}", done.done.stderr);
}

#[test]
fn a_dirty_tree_is_delivered_only_where_its_patch_applies() {
    let world = World::repo(&[("a.txt", "one\ntwo\nthree\n"), ("b.txt", "b\n")]);
    world.file("a.txt", "one\nTWO, not committed\nthree\n");
    let recipe = world.beside("recipe.yaml", RECIPE);
    for (name, replies, outcome, code) in [
        (
            "on",
            [
                calls(
                    "replace",
                    json!({"file_path": "a.txt", "old_string": "TWO, not committed\n", "new_string": "2\n"}),
                ),
                says("x"),
            ],
            "refused",
            1,
        ),
        ("beside", [writes("b.txt", "c\n"), says("x")], "opened", 0),
    ] {
        world.run(&script(&replies), &open_policy(&[]), &[&recipe]).exits(0);
        let dir = world.path().join(name);
        std::fs::rename(world.out(), &dir).unwrap();
        let mut command = world.command(&["deliver", &dir.to_string_lossy(), "--to", "branch", "--format", "json"]);
        named(&mut command);
        let done = Delivery::of(Done::of(command.output().unwrap())).ends(outcome, code);
        let told = "files differed from its base commit, and the patch does not apply without that: a.txt (uncommitted";
        assert!(code == 0 || done.reason().contains(told), "{}", done.reason());
        world.git(&["checkout", "-q", "b.txt"]);
    }
}

#[test]
fn a_workspace_below_the_top() {
    let world = World::repo(&[("sub/src/a.txt", "a\n"), ("b.txt", "b\n")]);
    let recipe = world.beside("recipe.yaml", RECIPE);
    let sub = world.ws().join("sub").to_string_lossy().into_owned();
    let policy = "version: 1\nrules:\n  - { allow: [write_file], paths: [\"src/**\"] }\nsandbox: { level: none }\n";
    world
        .run(
            &script(&[writes("src/a.txt", "new\n"), says("x")]),
            policy,
            &[&recipe, "--workspace", &sub, "--isolate"],
        )
        .exits(0);
    let out = world.out().to_string_lossy().into_owned();
    let mut command = world.command(&["deliver", &out, "--to", "branch", "--format", "json"]);
    named(&mut command);
    Delivery::of(Done::of(command.output().unwrap())).ends("opened", 0);
    assert_eq!(world.git(&["show", &format!("{BRANCH}:sub/src/a.txt")]), "new\n");
}

#[test]
fn the_recipe_says_how_it_is_offered() {
    let recipe = "version: 1
name: fix-it
description: Fix it.
parameters: [{ name: crate, type: string, default: core }]
deliver:
  title: \"{{ crate }}: {{ answer.summary }}\"
  body: \"{{ answer.summary }} on {{ result.base }}\\n\\nFixes #7 for @team\"
  commit: \"{{ crate }}: fix\\n\\n{{ answer.summary }}\"
  branch: \"night/{{ recipe }}/{{ crate }}\"
  labels: [\"crate-{{ crate }}\"]
steps:
  - { id: fix, prompt: \"Fix {{ crate }}.\" }
response: { schema: { type: object, required: [summary] } }
";
    let ground = Ground::new(
        recipe,
        &[writes("a.txt", "x\n"), says("{\"summary\": \"fixed <b> @you #1\"}")],
    );
    let done = ground.deliver(&["--to", "branch", "--dry-run"]).ends("opened", 0);
    assert_eq!(done.line["branch"], "night/fix-it/core");
    let preview = &done.line["preview"];
    assert_eq!(preview["title"], "core: fixed <b> @\u{200b}you #\u{200b}1");
    let body = preview["body"].as_str().unwrap();
    assert!(body.starts_with("fixed &lt;b> @\u{200b}you #\u{200b}1 on "), "{body}");
    assert!(
        body.ends_with("Fixes #7 for @team"),
        "the author's own words stay: {body}"
    );
    assert_eq!(preview["labels"], json!(["crate-core"]));
    assert!(preview["message"].as_str().unwrap().starts_with("core: fix\n\n"));
    assert_eq!(preview["files"], json!(["a.txt"]));
    let wrong = ground.world.beside(
        "wrong.yaml",
        recipe.replace("{{ answer.summary }} on", "{{ anser }} on"),
    );
    let done = ground.world.call(&["recipe", "check", &wrong]).exits(3);
    assert!(
        done.stderr.contains("`anser` is not declared") && done.stderr.contains("answer"),
        "{}",
        done.stderr
    );
}

#[test]
fn a_batch_is_delivered_job_by_job() {
    let scene = Scene::new(Wire::Github);
    bare(&scene.repo(), &scene.forge.repo("o/m"));
    let dir = scene.dir.path().join("batch");
    let mut lines = String::new();
    for (job, run, project, verdict) in [
        ("n-a", "a", "o/n", "passed"),
        ("n-c", "c", "o/n", "passed"),
        ("m", "b", "o/m", "passed"),
        ("idle", "d", "o/m", "no_change"),
    ] {
        let to = dir.join("jobs").join(job).join("1");
        std::fs::create_dir_all(to.parent().unwrap()).unwrap();
        copy(&scene.run_dir(run), &to);
        let line = json!({"job": job, "recipe": "fix-it", "target": scene.forge.remote(project), "verdict": verdict, "run": format!("jobs/{job}/1")});
        lines.push_str(&format!("{line}\n"));
    }
    lines.push_str(&format!("{}\n", json!({"job": "broken", "recipe": "fix-it", "target": scene.forge.remote("o/x"), "verdict": "environment", "run": null})));
    std::fs::write(dir.join("runs.jsonl"), lines).unwrap();
    let deliver = |more: &[&str]| {
        let dir = dir.to_string_lossy().into_owned();
        let api = scene.forge.api();
        let mut args = vec![
            "deliver",
            dir.as_str(),
            "--to",
            "github",
            "--api-url",
            &api,
            "--format",
            "json",
            "--pace",
            "0s",
        ];
        args.extend(more);
        let mut command = template().world.command(&args);
        command.env("GITHUB_TOKEN", super::server::TOKEN);
        named(&mut command);
        let done = Done::of(command.output().unwrap());
        let line = |line: &str| -> serde_json::Value { serde_json::from_str(line).unwrap() };
        let lines: Vec<serde_json::Value> = done.stdout.lines().map(line).collect();
        let seen: Vec<String> = lines
            .iter()
            .map(|line| {
                format!(
                    "{} {} {}",
                    line["job"].as_str().unwrap(),
                    line["outcome"].as_str().unwrap(),
                    line["branch"].as_str().unwrap()
                )
            })
            .collect();
        (done, seen)
    };
    let (done, seen) = deliver(&["--max-open", "1"]);
    assert_eq!(
        seen,
        [
            "n-a opened overnight/fix-it-n-a",
            "n-c held_back overnight/fix-it-n-c",
            "m opened overnight/fix-it-m",
            "idle nothing overnight/fix-it-idle",
            "broken refused ",
        ],
        "{}",
        done.stderr
    );
    assert_eq!(done.code, 1);
    assert!(
        done.stderr.contains("2 opened, 1 nothing, 1 held_back, 1 refused"),
        "{}",
        done.stderr
    );
    let (_, seen) = deliver(&[]);
    assert_eq!(
        seen[..3],
        [
            "n-a unchanged overnight/fix-it-n-a",
            "n-c opened overnight/fix-it-n-c",
            "m unchanged overnight/fix-it-m"
        ]
    );
    assert_eq!(scene.forge.state().pulls.len(), 3);
    assert!(dir.join("deliver.jsonl").is_file());
}

#[test]
fn the_pace_is_kept() {
    let scene = Scene::new(Wire::Github);
    let started = std::time::Instant::now();
    // The opening and the label: two changes.
    scene.deliver("a", &["--pace", "2s"]).ends("opened", 0);
    assert!(started.elapsed() >= std::time::Duration::from_secs(2));
}

#[test]
fn a_shallow_clone_is_enough() {
    let ground = Ground::edited();
    ground.world.commit("more");
    let srv = ground.world.path().join("srv");
    bare(&ground.world.ws(), &srv.join("o/n.git"));
    let clone = ground.world.path().join("shallow");
    let url = format!("file://{}", srv.join("o/n.git").display());
    git_in(
        Path::new("/"),
        &["clone", "-q", "--depth", "1", &url, &clone.to_string_lossy()],
    );
    let clone = clone.to_string_lossy().into_owned();
    // The run's base is not in the clone: the server has it.
    ground
        .deliver(&["--to", "push", "--repo", &clone, "--remote", &url])
        .ends("opened", 0);
    assert_eq!(
        git_in(&srv.join("o/n.git"), &["show", &format!("{BRANCH}:a.txt")]),
        "one\n2\nthree\n"
    );
    ground
        .deliver(&["--to", "push", "--repo", &clone, "--remote", &url])
        .ends("unchanged", 0);
}

#[test]
fn what_a_model_says_is_no_header_of_a_message() {
    for says_it in [
        "From: Linus <l@example.org>\nDate: Mon, 1 Jan 2001 00:00:00 +0000\nSubject: another title\n\ntext",
        "from: Linus <l@example.org>\nSUBJECT: another title\n\ntext",
        "[PATCH] another title\nFrom: Linus <l@example.org>\n\ntext",
        ">8 --- >8 ---\nSubject: another title\nFrom: Linus <l@example.org>\n\ntext",
    ] {
        let ground = Ground::new(RECIPE, &[writes("a.txt", "one\n2\nthree\n"), says(says_it)]);
        ground.deliver(&["--to", "mbox"]).ends("opened", 0);
        let file = ground.world.path().join("runs/r/changes.mbox");
        ground.world.git(&["config", "mailinfo.scissors", "true"]);
        ground.world.git(&["am", "-q", &file.to_string_lossy()]);
        let told = ground
            .world
            .git(&["log", "-1", "--format=%an|%s|%ad", "--date=format:%Y"]);
        let year = told.trim().rsplit('|').next().unwrap().to_owned();
        assert!(told.starts_with("Night Bot|Fix the fifth line|"), "{says_it}: {told}");
        assert_ne!(year, "2001", "{says_it}");
    }
}

#[test]
fn a_description_closes_no_issue() {
    let text = "Closes https://example.org/o/n/issues/1 and fixes GH-2, closes https://example.org/g/n/-/merge_requests/3. See https://example.org/guide/issues.";
    let ground = Ground::new(RECIPE, &[writes("a.txt", "one\n2\nthree\n"), says(text)]);
    let done = ground.deliver(&["--to", "branch", "--dry-run"]).ends("opened", 0);
    let body = done.line["preview"]["body"].as_str().unwrap();
    for mark in ["/issues/1", "GH-2", "/merge\\_requests/3", "/merge_requests/3"] {
        assert!(!body.contains(mark), "{mark}: {body}");
    }
    assert!(
        body.replace('\u{200b}', "").contains("/issues/1"),
        "people read the same: {body}"
    );
    assert!(body.contains("https://example.org/guide/issues."), "{body}");
}

#[test]
fn a_recipe_that_is_not_trusted_decides_nothing_about_its_delivery() {
    let recipe = "version: 1\nname: fix-it\ndescription: 'Fix it, @octocat. [skip ci]'\ndeliver:\n  branch: production\n  base: release\n  labels: [automerge]\n  reviewers: [octocat]\n  \
                  title: 'closes #1 {{ answer }}'\n  body: '<img src=x> @octocat {{ answer }}'\n  commit: '[skip ci] all'\nsteps:\n  - { id: fix, prompt: Fix it. }\n";
    let made = |trusted: bool| {
        let world = World::repo(&[("a.txt", "one\ntwo\nthree\n"), ("ci/recipe.yaml", recipe)]);
        world.git(&["branch", "release"]);
        if !trusted {
            world.git(&["branch", "production"]);
        }
        let replies = script(&[writes("a.txt", "one\n2\nthree\n"), says("done")]);
        let path = world.ws().join("ci/recipe.yaml").to_string_lossy().into_owned();
        let mut args = vec![path.as_str(), "--isolate"];
        if trusted {
            args.extend(["--trust", "recipe"]);
        }
        world.run(&replies, &open_policy(&[]), &args).exits(0);
        std::fs::create_dir_all(world.path().join("runs")).unwrap();
        std::fs::rename(world.out(), world.path().join("runs/r")).unwrap();
        Ground { world }
    };
    let ground = made(false);
    let before = tip(&ground.world.ws().join(".git"), "production");
    let done = ground.deliver(&["--to", "branch"]).ends("opened", 0);
    assert_eq!(done.line["branch"], BRANCH);
    assert_eq!(
        tip(&ground.world.ws().join(".git"), "production"),
        before,
        "nobody moved it"
    );
    assert!(
        done.done.stderr.contains("warning[untrusted_recipe]")
            && done.done.stderr.contains("branch, base, labels, reviewers"),
        "{}",
        done.done.stderr
    );
    let message = ground.world.git(&["log", "-1", "--format=%B", BRANCH]);
    assert!(!message.contains("[skip ci]"), "{message}");
    let done = ground
        .deliver(&["--to", "branch", "--branch", "other", "--label", "mine", "--dry-run"])
        .ends("opened", 0);
    let preview = &done.line["preview"];
    assert_eq!(
        (&preview["labels"], &preview["reviewers"]),
        (&json!(["mine"]), &json!([]))
    );
    for text in [preview["title"].as_str().unwrap(), preview["body"].as_str().unwrap()] {
        for mark in ["@octocat", "#1", "<img"] {
            assert!(!text.contains(mark), "{mark}: {text}");
        }
    }
    // The same recipe, trusted.
    let ground = made(true);
    let done = ground.deliver(&["--to", "branch", "--dry-run"]).ends("opened", 0);
    let preview = &done.line["preview"];
    assert_eq!(done.line["branch"], "production");
    assert_eq!(
        (&preview["base"], &preview["labels"], &preview["reviewers"]),
        (&json!("release"), &json!(["automerge"]), &json!(["octocat"]))
    );
    assert!(
        preview["body"]
            .as_str()
            .unwrap()
            .starts_with("<img src=x> @octocat done"),
        "{preview}"
    );
}

/// The rows of a batch say where its patches go.
#[test]
fn the_rows_of_a_batch_send_no_token_anywhere() {
    let scene = Scene::new(Wire::Github);
    let dir = scene.dir.path().join("batch");
    let to = dir.join("jobs/n/1");
    std::fs::create_dir_all(to.parent().unwrap()).unwrap();
    copy(&scene.run_dir("a"), &to);
    let row = |target: &str| {
        let line = json!({"job": "n", "recipe": "fix-it", "target": target, "verdict": "passed", "run": "jobs/n/1"});
        std::fs::write(dir.join("runs.jsonl"), format!("{line}\n")).unwrap();
    };
    row(&scene.forge.remote("o/n"));
    let deliver = |more: &[&str], key: Option<&str>| {
        let dir = dir.to_string_lossy().into_owned();
        let mut args = vec![
            "deliver",
            dir.as_str(),
            "--format",
            "json",
            "--pace",
            "0s",
            "--to",
            "github",
        ];
        args.extend(more);
        let mut command = template().world.command(&args);
        command.env("GITHUB_TOKEN", super::server::TOKEN);
        command.envs(key.map(|key| ("OVERNIGHT_JOURNAL_KEY", key)));
        named(&mut command);
        Delivery::of(Done::of(command.output().unwrap()))
    };
    let done = deliver(&[], None).ends("failed", 8);
    assert!(done.reason().contains("--api-url"), "{}", done.reason());
    assert!(scene.forge.state().calls.is_empty(), "nothing was sent");
    let api = scene.forge.api();
    // With a key, rows that nothing vouches for are not taken.
    let done = deliver(
        &["--api-url", &api],
        Some("a key of thirty-two bytes or more, at least"),
    );
    assert_eq!(done.done.code, 3, "{}", done.done.stderr);
    assert!(
        done.done.stderr.contains("is not authenticated"),
        "{}",
        done.done.stderr
    );
    assert!(scene.forge.state().calls.is_empty(), "nothing was sent");
    deliver(&["--api-url", &api], None).ends("opened", 0);
}

/// The newest run needs no name, unless it may have come with the tree. A quiet delivery that succeeds says nothing.
#[test]
fn the_newest_run_is_delivered_and_nothing_is_said() {
    let world = World::repo(&[("a.txt", "one\n")]);
    let replies = script(&[writes("a.txt", "two\n"), says("done")]);
    let model = format!("script:{}", world.beside("script.yaml", replies));
    let policy = world.beside("policy.yaml", open_policy(&[]));
    let recipe = world.beside("recipe.yaml", RECIPE);
    let args = ["run", &recipe, "--model", &model, "--policy", &policy, "--isolate"];
    world.call(&args).exits(0);
    let deliver = |home: Option<&Path>| {
        let mut command = world.command(&["deliver", "--last", "--to", "branch", "--quiet"]);
        command.envs(home.map(|home| ("HOME", home)));
        named(&mut command);
        Done::of(command.output().unwrap())
    };
    let elsewhere = world.path().join("elsewhere");
    std::fs::create_dir(&elsewhere).unwrap();
    let done = deliver(Some(&elsewhere)).exits(8);
    assert!(
        done.stderr.contains("was not written by this machine"),
        "{}",
        done.stderr
    );
    let branches = || git_in(&world.ws(), &["branch", "--list", "overnight/*"]);
    assert_eq!(branches().trim(), "");
    let done = deliver(None).exits(0);
    assert_eq!((done.stdout.as_str(), done.stderr.as_str()), ("", ""));
    assert_eq!(branches().trim(), BRANCH);
}

/// A change below a submodule cannot be part of a commit of its parent.
#[test]
fn a_change_of_a_submodule_is_refused_by_its_name() {
    let world = World::repo(&[("a.txt", "one\n")]);
    let lib = world.ws().join("libs/x");
    // git quotes this name in a patch.
    world.file("libs/x/é.txt", "x\n");
    git_in(&lib, &["init", "-q", "-b", "main"]);
    git_in(&lib, &["add", "-A"]);
    git_in(&lib, &["commit", "-q", "-m", "lib"]);
    world.commit("with a submodule");
    world
        .recipe(
            RECIPE,
            &script(&[writes("libs/x/é.txt", "y\n"), says("done")]),
            &open_policy(&[]),
            &[],
        )
        .exits(0);
    let result = world.result();
    let warnings = result["warnings"].as_array().unwrap();
    let warnings: Vec<_> = warnings.iter().filter(|told| told["code"] == "submodule").collect();
    assert_eq!(warnings.len(), 1, "{result}");
    assert!(
        warnings[0]["message"].as_str().unwrap().contains(": libs/x;"),
        "{result}"
    );
    let out = world.out().to_string_lossy().into_owned();
    let done = Delivery::of(world.call(&["deliver", &out, "--to", "branch", "--format", "json"])).ends("refused", 1);
    assert!(
        done.reason()
            .contains("the patch changes files of the submodule libs/x, which is delivered in its own repository"),
        "{}",
        done.reason()
    );
}

/// A dry run says what would be done, and needs no token to read a repository that everybody may read.
#[test]
fn a_dry_run_says_what_it_would_do() {
    let ground = Ground::edited();
    let call = |world: &World, args: &[&str]| {
        let mut command = world.command(args);
        named(&mut command);
        Done::of(command.output().unwrap()).exits(0)
    };
    let run = ground.world.path().join("runs/r").to_string_lossy().into_owned();
    for (target, word) in [("branch", "would create"), ("mbox", "would write")] {
        let done = call(&ground.world, &["deliver", &run, "--to", target, "--dry-run"]);
        assert!(done.stdout.starts_with(word), "{}", done.stdout);
        assert!(!done.stdout.contains("opened"), "{}", done.stdout);
    }
    let scene = Scene::new(Wire::Github);
    let remote = scene.repo().to_string_lossy().into_owned();
    let (run, api) = (scene.run_dir("a").to_string_lossy().into_owned(), scene.forge.api());
    let args = [
        "deliver",
        &run,
        "--to",
        "github",
        "--remote",
        &remote,
        "--api-url",
        &api,
        "--dry-run",
    ];
    let done = call(&template().world, &args);
    assert!(
        done.stdout.starts_with("would open")
            && done.stdout.contains(
                "github was not asked whether a request is open, because GITHUB_TOKEN or GH_TOKEN is not set"
            ),
        "{}{}",
        done.stdout,
        done.stderr
    );
    let done = call(&template().world, &[&args[..], &["--format", "json"]].concat());
    assert_eq!(
        (&done.json()["outcome"], &done.json()["dry_run"]),
        (&json!("opened"), &json!(true))
    );
    assert!(scene.forge.state().calls.is_empty());
}
