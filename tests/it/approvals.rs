//! What an approval is about, what a resume believes, and whose tree it works on.

use super::forged::{appended, elsewhere, forged_journal};
use super::harness::{Done, World, git_in, hindered, project, says, script, shell};
use serde_json::{Value, json};
use std::process::Command;

/// Scripts run; each needs a person.
const ASK: &str = "\
version: 1
extends: [builtin:edit]
rules:
  - { suspend: run_shell_command, commands: [bash], args: any }
  - { allow: run_shell_command, commands: [bash], args: any, paths: ['**'] }
";

fn policy(level: &str) -> String {
    format!("{ASK}sandbox: {{ level: {level} }}\n")
}

/// A run that waits for the approval of `bash x.sh`.
fn waiting(script_text: &str, level: &str, more: &[&str]) -> World {
    let world = World::repo(&[("a.txt", "one\n"), ("x.sh", script_text), ("y.sh", "echo y > y.txt\n")]);
    let replies = script(&[shell("bash x.sh"), says("done")]);
    let done = world
        .run(&replies, &policy(level), &[&["-p", "x", "--quiet"], more].concat())
        .exits(5);
    let approve = world.result()["suspended"][0]["approve"].as_str().unwrap().to_owned();
    assert!(
        done.stderr.contains("bash x.sh") && done.stderr.contains(&approve),
        "{}",
        done.stderr
    );
    world
}

fn resume(world: &World, more: &[&str]) -> Done {
    let out = world.out().to_string_lossy().into_owned();
    world.call(&[&["resume", &out], more].concat())
}

fn named(world: &World) -> String {
    let approve = world.result()["suspended"][0]["approve"].as_str().unwrap().to_owned();
    approve.rsplit_once(' ').unwrap().1.to_owned()
}

#[test]
fn the_digest_is_told_everywhere_and_names_one_call() {
    let world = waiting("echo x > x.txt\n", "none", &[]);
    let named = named(&world);
    let (call, digest) = named.split_once('@').unwrap();
    assert_eq!((call, digest.len()), ("c1", 12));
    assert!(
        world.result()["suspended"][0]["digest"]
            .as_str()
            .unwrap()
            .starts_with(digest)
    );
    for file in ["suspension.md", "suspension.json", "report.html", "summary.md"] {
        let text = std::fs::read_to_string(world.out().join(file)).unwrap();
        assert!(text.contains(&format!("--approve {named}")), "{file}");
    }
    let other = waiting("echo x > x.txt\n", "none", &[]);
    resume(&other, &["--approve", &named]).exits(2);
    assert!(!other.ws().join("x.txt").exists());
    resume(&world, &["--approve", &named]).exits(0);
    assert_eq!(world.read("x.txt"), "x\n");
}

#[test]
fn a_forged_journal_runs_nothing_that_nobody_approved() {
    for keep_result in [true, false] {
        let world = waiting("echo x > x.txt\n", "none", &[]);
        let named = named(&world);
        forged_journal(&world.out(), |text| text.replace("bash x.sh", "bash y.sh"));
        if !keep_result {
            std::fs::remove_file(world.out().join("result.json")).unwrap();
        }
        // The machine that ran it knows better.
        resume(&world, &["--approve", "c1"]).exits(8);
        resume(&world, &["--approve", &named]).exits(8);
        // Another one has the digest that the reviewer saw.
        let world = elsewhere(world);
        let code = if keep_result { 8 } else { 2 };
        resume(&world, &["--approve", "c1"]).exits(code);
        let done = resume(&world, &["--approve", &named]).exits(code);
        assert!(keep_result || done.stderr.contains("another one"), "{}", done.stderr);
        assert!(!world.ws().join("y.txt").exists() && !world.ws().join("x.txt").exists());
    }
}

#[test]
fn policies_come_from_their_source_and_never_from_the_journal() {
    let world = waiting("echo x > x.txt\n", "none", &[]);
    let own = world.path().join("policy.yaml");
    let before = std::fs::read_to_string(&own).unwrap();
    std::fs::write(&own, before.replace("suspend", "deny")).unwrap();
    let done = resume(&world, &["--approve", "c1"]).exits(8);
    assert!(
        done.stderr.contains("has changed since the run began") && done.stderr.contains("--policy"),
        "{}",
        done.stderr
    );
    // Named now, it rules: the approved call is denied.
    let own = own.to_string_lossy().into_owned();
    resume(&world, &["--approve", "c1", "--policy", &own]).exits(4);
    assert!(!world.ws().join("x.txt").exists());
    // The control: unchanged, it need not be named.
    let world = waiting("echo x > x.txt\n", "none", &[]);
    resume(&world, &["--approve", "c1"]).exits(0);
    // Gone, it must be.
    let world = waiting("echo x > x.txt\n", "none", &[]);
    std::fs::remove_file(world.path().join("policy.yaml")).unwrap();
    let done = resume(&world, &["--approve", "c1"]).exits(8);
    assert!(done.stderr.contains("is not available here"), "{}", done.stderr);
}

#[test]
fn the_level_comes_from_the_policies() {
    let script_text = "echo x > x.txt; echo out > ../out.txt; true\n";
    let world = waiting(script_text, "auto", &[]);
    forged_journal(&world.out(), |text| {
        let level = "level: auto";
        assert!(text.contains(level));
        text.replace(level, "level: none")
            .replace("\"level\":\"full\"", "\"level\":\"none\"")
            .replace("\"level\":\"landlock\"", "\"level\":\"none\"")
    });
    std::fs::remove_file(world.out().join("result.json")).unwrap();
    let world = elsewhere(world);
    let policy = world.path().join("policy.yaml").to_string_lossy().into_owned();
    let out = world.out().to_string_lossy().into_owned();
    let asked = world.call(&["report", &out, "--format", "suspension"]).exits(0).json();
    let approve = asked["calls"][0]["approve"]
        .as_str()
        .unwrap()
        .rsplit_once(' ')
        .unwrap()
        .1
        .to_owned();
    let done = resume(&world, &["--approve", &approve, "--policy", &policy]);
    assert!(done.code == 0 || done.code == 4, "{}", done.stderr);
    let level = world.result()["sandbox"].clone();
    assert!(level == "full" || level == "landlock", "{level}");
    assert!(!world.path().join("out.txt").exists());
    assert_eq!(world.read("x.txt"), "x\n", "the control: what it may write is there");
}

#[test]
fn an_approved_call_that_fails_fails_the_run() {
    let world = waiting("echo no >&2; exit 128\n", "none", &[]);
    resume(&world, &["--approve", "c1"]).exits(1);
    let result = world.result();
    assert_eq!(
        (&result["verdict"], &result["reason"]),
        (&"failed".into(), &Value::from("approved_call_failed"))
    );
    assert!(
        result["message"].as_str().unwrap().contains("exit code 128"),
        "{result}"
    );
    // One that works passes.
    let world = waiting("echo x > x.txt\n", "none", &[]);
    resume(&world, &["--approve", "c1"]).exits(0);
    // And so does one that fails, when a check shows that the task was done.
    let recipe = "version: 1\nname: r\nsteps:\n  - id: one\n    prompt: x\n    checks:\n      - { name: there, run: test -e x.txt }\n";
    let world = World::repo(&[("a.txt", "one\n"), ("x.sh", "echo x > x.txt; exit 3\n")]);
    let replies = script(&[shell("bash x.sh"), says("done")]);
    world.recipe(recipe, &replies, &policy("none"), &[]).exits(5);
    resume(&world, &["--approve", "c1"]).exits(0);
    assert_eq!(world.result()["verdict"], "passed");
}

#[test]
fn a_resume_says_which_tree_it_works_on_and_takes_no_other() {
    let world = waiting("echo x > x.txt\n", "none", &[]);
    let clone = world.path().join("clone");
    git_in(world.path(), &["clone", "-q", "ws", "clone"]);
    let out = world.out().to_string_lossy().into_owned();
    let done = world
        .command(&["resume", &out, "--approve", "c1"])
        .current_dir(&clone)
        .output()
        .unwrap();
    let done = Done::of(done).exits(0);
    let ws = world.ws().canonicalize().unwrap();
    assert!(
        done.stderr.contains(&format!("continues in {}", ws.display())),
        "{}",
        done.stderr
    );
    assert!(world.ws().join("x.txt").exists() && !clone.join("x.txt").exists());
    // In its own tree nothing need be said; a tree that is gone is named.
    let world = waiting("echo x > x.txt\n", "none", &[]);
    let done = resume(&world, &["--approve", "c1"]).exits(0);
    assert!(!done.stderr.contains("continues in"), "{}", done.stderr);
    for more in [&[][..], &["--isolate"]] {
        let world = waiting("echo x > x.txt\n", "none", more);
        std::fs::rename(world.ws(), world.path().join("moved")).unwrap();
        std::fs::create_dir(world.path().join("here")).unwrap();
        let out = world.out().to_string_lossy().into_owned();
        let mut command = world.command(&["resume", &out, "--approve", "c1"]);
        let done = Done::of(command.current_dir(world.path().join("here")).output().unwrap()).exits(8);
        assert!(
            done.stderr.contains("does not exist") && done.stderr.contains("--workspace"),
            "{}",
            done.stderr
        );
    }
}

#[test]
fn an_open_run_is_resumed_with_nothing_but_its_id_on_its_own_machine() {
    let world = waiting("echo x > x.txt\n", "none", &[]);
    let run = world.result()["run"].as_str().unwrap().to_owned();
    world.call(&["resume", &run, "--approve", "c1"]).exits(0);
    assert_eq!(world.read("x.txt"), "x\n");
    world.call(&["runs", "verify", &run]).exits(0);
}

#[test]
fn a_journal_that_came_with_the_tree_names_no_policy_of_its_own() {
    let world = elsewhere(waiting("echo x > x.txt\n", "none", &[]));
    let named = named(&world);
    let done = resume(&world, &["--approve", &named]).exits(8);
    assert!(done.stderr.contains("name the policies"), "{}", done.stderr);
    let runs = world.ws().join(".overnight/runs");
    std::fs::create_dir_all(&runs).unwrap();
    let copied = Command::new("cp")
        .arg("-a")
        .arg(world.out())
        .arg(runs.join("20990101-000000-aaaa"))
        .status();
    assert!(copied.unwrap().success());
    let ws = world.ws().to_string_lossy().into_owned();
    let last = ["resume", "--last", "--approve", &named, "--workspace", &ws];
    let done = world.call(&last).exits(8);
    assert!(
        done.stderr.contains("was not written by this machine"),
        "{}",
        done.stderr
    );
    assert!(!world.ws().join("x.txt").exists());
    // The control: with a policy of the command line.
    let policy = world.path().join("policy.yaml").to_string_lossy().into_owned();
    let strict = world.beside("strict.yaml", "version: 1\nrules:\n  - allow: read_file\n");
    // To resume it once makes it no journal of this machine.
    let some = resume(&world, &["--policy", &strict]);
    assert_ne!(some.code, 0, "{}", some.stderr);
    let done = resume(&world, &["--approve", &named]).exits(8);
    assert!(done.stderr.contains("name the policies"), "{}", done.stderr);
    assert!(!world.ws().join("x.txt").exists());
    resume(&world, &["--approve", &named, "--policy", &policy]).exits(0);
    assert_eq!(world.read("x.txt"), "x\n");
}

#[test]
fn what_the_readme_suspends_works_when_it_is_approved() {
    let readme = std::fs::read_to_string(project().join("README.md")).unwrap();
    let (_, policy) = readme.split_once("```yaml\nversion: 1\nextends:").unwrap();
    let policy = format!("version: 1\nextends:{}", policy.split_once("```").unwrap().0);
    // The example needs no toolchain of this machine.
    let policy = policy.replace(", toolchains: [rust]", "");
    let world = World::repo(&[("docs/a.md", "one\n")]);
    let replies = script(&[shell("rm docs/a.md"), says("done")]);
    world.run(&replies, &policy, &["-p", "x"]).exits(5);
    assert!(world.ws().join("docs/a.md").exists());
    resume(&world, &["--approve", &named(&world)]).exits(0);
    assert!(!world.ws().join("docs/a.md").exists());
}

/// The fix that a denial prints, done: `.git/**` in the rule of the git command.
#[test]
fn git_writes_its_repository_where_its_own_rule_opens_it() {
    for level in ["full", "landlock"] {
        let git = |paths: &str| {
            format!(
                "version: 1\nextends: [builtin:look]\nrules:\n  - {{ allow: run_shell_command, commands: [git add, \
                 git commit, git tag]{paths} }}\n  - {{ suspend: run_shell_command, commands: [git tag], because: a \
                 person }}\nsandbox: {{ level: {level} }}\n"
            )
        };
        let world = World::repo(&[("a.txt", "one\n")]);
        let replies = script(&[shell("git tag v1"), says("done")]);
        let done = world.run(&replies, &git(""), &["-p", "x"]);
        assert_ne!(done.code, 5, "an approval could not help: {}", done.stderr);
        let denied = world.result()["denied"][0].clone();
        assert_eq!(denied["code"], "protected_path", "{denied}");
        assert!(denied["fix"].as_str().unwrap().contains("`.git/**`"), "{denied}");

        let world = World::repo(&[("a.txt", "one\n")]);
        for (key, value) in [("user.name", "a"), ("user.email", "a@example.org")] {
            world.git(&["config", key, value]);
        }
        std::fs::write(world.ws().join("new.txt"), "new\n").unwrap();
        let open = git(", paths: [\".git/**\"]");
        let commit = shell("git add new.txt && git commit -q -m two");
        world.run(&script(&[commit, says("done")]), &open, &["-p", "x"]);
        assert_eq!(world.git(&["log", "-1", "--format=%s"]).trim(), "two", "{level}");

        let world = World::repo(&[("a.txt", "one\n")]);
        let replies = script(&[shell("git tag v1"), says("done")]);
        world.run(&replies, &open, &["-p", "x"]).exits(5);
        resume(&world, &["--approve", &named(&world)]).exits(0);
        assert_eq!(world.git(&["tag"]).trim(), "v1", "{level}");
    }
}

#[test]
fn an_approval_in_a_journal_from_elsewhere_counts_as_not_given() {
    let world = waiting("echo x > x.txt\n", "none", &[]);
    let named = named(&world);
    let model = format!("script:{}", world.path().join("script.yaml").display());
    let forged = [
        json!({"event": "resumed", "by": "x", "model": model}),
        json!({"event": "approved", "call": "c1", "allow": true, "by": "x"}),
    ];
    appended(&world.out(), &forged);
    let world = elsewhere(world);
    let policy = world.path().join("policy.yaml").to_string_lossy().into_owned();
    let done = resume(&world, &["--policy", &policy]).exits(5);
    assert!(done.stderr.contains("counts as not given"), "{}", done.stderr);
    assert!(!world.ws().join("x.txt").exists());
    assert_eq!(world.result()["suspended"][0]["call"], "c1");
    resume(&world, &["--policy", &policy, "--approve", "c1"]).exits(2);
    resume(&world, &["--policy", &policy, "--approve", &named]).exits(0);
    assert_eq!(world.read("x.txt"), "x\n");
}

#[test]
fn one_call_has_one_answer() {
    let world = waiting("echo x > x.txt\n", "none", &[]);
    let journal = || std::fs::read_to_string(world.out().join("journal.jsonl")).unwrap();
    let (before, named) = (journal(), named(&world));
    for (approve, deny) in [("c1", "c1"), (named.as_str(), "c1"), ("c1", named.as_str())] {
        let done = resume(&world, &["--deny", deny, "--approve", approve]).exits(2);
        assert!(done.stderr.contains("both approved and denied"), "{}", done.stderr);
    }
    assert_eq!(journal(), before);
    assert!(!world.ws().join("x.txt").exists());
    // The same answer twice is one, and the lines about it name the tool.
    let done = resume(&world, &["--deny", "c1", "--deny", &named]).exits(4);
    assert_eq!(journal().matches("\"event\":\"approved\"").count(), 1);
    for said in ["denied by", "failed"] {
        let line = done
            .stderr
            .lines()
            .find(|line| line.contains("  c1 ") && line.contains(said));
        assert!(
            line.is_some_and(|line| line.contains("run_shell_command")),
            "{}",
            done.stderr
        );
    }
}

#[test]
fn a_policy_that_a_resume_names_rules_the_resumes_after_it() {
    let world = waiting("echo x > x.txt\n", "none", &[]);
    let text = format!("{}# Another one.\n", policy("none"));
    let other = world.beside("other.yaml", &text);
    resume(&world, &["--policy", &other]).exits(5);
    std::fs::remove_file(world.path().join("policy.yaml")).unwrap();
    std::fs::write(&other, format!("{text}#\n")).unwrap();
    let done = resume(&world, &["--approve", "c1"]).exits(8);
    assert!(
        done.stderr.contains("other.yaml") && done.stderr.contains("has changed"),
        "{}",
        done.stderr
    );
    std::fs::write(&other, text).unwrap();
    resume(&world, &["--approve", "c1"]).exits(0);
    assert_eq!(world.read("x.txt"), "x\n");
}

#[test]
fn a_resume_writes_the_outputs_again_that_the_run_was_told_to_write() {
    let world = waiting(
        "echo x > x.txt\n",
        "none",
        &["--patch", "../p.patch", "--junit", "../j.xml"],
    );
    let at = |name: &str| world.path().join(name);
    let asked = std::fs::read_to_string(at("j.xml")).unwrap();
    std::fs::remove_file(at("policy.yaml")).unwrap();
    // A refusal is no end of the run, and nobody named the file here.
    resume(&world, &["--approve", "c1"]).exits(8);
    assert_eq!(std::fs::read_to_string(at("j.xml")).unwrap(), asked);
    let policy = world.beside("policy.yaml", policy("none"));
    let other = at("other.xml").to_string_lossy().into_owned();
    resume(&world, &["--approve", "c1", "--policy", &policy, "--junit", &other]).exits(0);
    let whole = std::fs::read_to_string(at("out/changes.patch")).unwrap();
    assert!(whole.contains("+x"), "{whole}");
    assert_eq!(std::fs::read_to_string(at("p.patch")).unwrap(), whole);
    // A flag stands for the earlier one.
    assert_eq!(std::fs::read_to_string(at("j.xml")).unwrap(), asked);
    assert!(at("other.xml").is_file());
    // What another run wrote there since stays.
    let world = waiting("echo x > x.txt\n", "none", &["--patch", "../p.patch"]);
    let patch = world.beside("p.patch", "of another run\n");
    let done = resume(&world, &["--approve", "c1"]).exits(0);
    assert!(done.stderr.contains("leaves alone"), "{}", done.stderr);
    assert_eq!(std::fs::read_to_string(patch).unwrap(), "of another run\n");
}

#[test]
fn an_earlier_output_that_cannot_be_written_now_fails_no_resume() {
    let world = World::repo(&[("a.txt", "one\n"), ("x.sh", "echo x > x.txt\n")]);
    let dir = world.path().join("closed");
    std::fs::create_dir(&dir).unwrap();
    let replies = script(&[shell("bash x.sh"), says("done")]);
    world
        .run(&replies, &policy("none"), &["-p", "x", "--junit", "../closed/j.xml"])
        .exits(5);
    std::fs::remove_file(dir.join("j.xml")).unwrap();
    let mode = |mode| std::fs::set_permissions(&dir, std::os::unix::fs::PermissionsExt::from_mode(mode)).unwrap();
    mode(0o555);
    let out = world.out().to_string_lossy().into_owned();
    let done = hindered(&world.command(&["resume", &out, "--approve", "c1"]));
    mode(0o755);
    let Some(done) = done else { return };
    let done = done.exits(0);
    assert!(done.stderr.contains("because it cannot be written"), "{}", done.stderr);
    assert_eq!(world.read("x.txt"), "x\n");
}
