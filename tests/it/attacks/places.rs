//! Attacks on what this program resolves by name for the sandbox: places in the workspace, the home and the directory for
//! temporary files, which commands can replace by links.

use super::super::harness::{Done, calls, have_optional, says, script, shell, writes};
use super::ground::{Ground, SECRET, User, differing, level_found, users};
use serde_json::{Value, json};

/// Allows the tree's own code, as a build does.
fn policy(level: &str) -> String {
    format!(
        "version: 1\nextends: [builtin:edit]\nrules:\n  - {{ allow: run_shell_command, commands: [python3], args: any, writes: tree, runs: anything }}\n  \
         - {{ allow: run_shell_command, commands: [cat, sleep, grep] }}\nsandbox: {{ level: {level}, toolchains: [python, rust] }}\n"
    )
}

fn modes(levels: &[&'static str]) -> Vec<(User, &'static str)> {
    let users = users();
    let all = users.iter().flat_map(|user| levels.iter().map(|level| (*user, *level)));
    all.filter(|(user, level)| level_found(level, *user)).collect()
}

/// A repository with these files, for this user.
fn ground(user: User, files: &[(&str, &str)]) -> Ground {
    let ground = Ground::new(user);
    for (path, text) in files {
        ground.file(path, text);
    }
    ground.hand_over();
    ground.prepare("git init -q -b main; git add -A; git commit -q -m base");
    ground
}

/// What a run gave, and what it changed outside of the workspace.
fn run(
    ground: &Ground,
    level: &str,
    what: &[&str],
    replies: &[Value],
    env: &[(String, String)],
) -> (Done, Vec<String>) {
    let policy = ground.given("policy.yaml", &policy(level));
    let model = format!("script:{}", ground.given("script.yaml", &script(replies)));
    let out = ground.out().to_string_lossy().into_owned();
    let args = [what, &["--policy", &policy, "--model", &model, "--out", &out]].concat();
    let outside = ground.outside();
    let done = ground.run(&args, env, None);
    (done, differing(&outside, &ground.outside()))
}

fn journal(ground: &Ground) -> String {
    std::fs::read_to_string(ground.out().join("journal.jsonl")).unwrap()
}

/// Replaces the directory above the workspace, which is below `/tmp` for commands too, and caches of toolchains.
const REPLACES: &str = "\
import os, sys
def swap(old, target):
    try:
        os.rename(old, old + '-old')
    except FileNotFoundError:
        pass
    except OSError as error:
        print('kept', error)
        return
    os.symlink(target, old)
for name in ['.cache', '.local', '.cargo']:
    swap(os.path.join(os.environ['HOME'], name), '@OUTSIDE@')
swap(os.path.dirname(os.getcwd()), '@OUTSIDE@')
";

#[test]
fn a_link_above_a_mount_leads_no_command_elsewhere() {
    for (user, level) in modes(&["full"]) {
        let ground = ground(user, &[("keep.txt", "kept-text\n"), ("replace.py", REPLACES)]);
        let replies = [
            shell("python3 replace.py"),
            shell("cat keep.txt"),
            shell("python3 replace.py"),
            says("done"),
        ];
        let (done, changed) = run(&ground, level, &["run", "-p", "x"], &replies, &[]);
        assert_eq!(done.code, 0, "{user:?}: {}", done.stderr);
        assert_eq!(changed, [""; 0], "{user:?}");
        assert!(
            journal(&ground).contains("kept-text"),
            "{user:?}: the command ran in another directory"
        );
    }
}

/// What a step of the recipe leaves is there for the checks: a tree that looks good, at the path of the workspace.
const FAKES: &str = "\
import os
above, name = os.path.split(os.getcwd())
try:
    os.makedirs('/tmp/' + name)
    open('/tmp/' + name + '/a.txt', 'w').write('GOOD\\n')
    os.rename(above, above + '-old')
    os.symlink('/var/tmp', above)
except OSError:
    pass
";

const RECIPE: &str = "\
version: 1
name: r
description: d
expect: change
steps:
  - { id: build, run: python3 build.py }
  - { id: fix, prompt: do, checks: [{ name: good, run: 'grep -q GOOD a.txt' }] }
";

#[test]
fn a_check_runs_in_the_workspace_whatever_a_step_has_put_at_its_path() {
    for (user, level) in modes(&["full", "landlock"]) {
        for (content, code) in [("BAD\n", 1), ("GOOD\n", 0)] {
            let ground = ground(user, &[("a.txt", "one\n"), ("build.py", FAKES)]);
            let recipe = ground.given("recipe.yaml", RECIPE);
            let replies = [writes("a.txt", content), says("done")];
            let (done, changed) = run(&ground, level, &["run", &recipe], &replies, &[]);
            assert_eq!(done.code, code, "{user:?} {level} {content}: {}", done.stderr);
            assert_eq!(changed, [""; 0], "{user:?} {level}");
        }
    }
}

/// Exchanges a file or directory with a link, so that at no moment is there nothing: all the time, or once.
const EXCHANGES: &str = "\
import ctypes, os, sys, time
exchange = ctypes.CDLL(None).renameat2
os.symlink(os.path.join('@OUTSIDE@', sys.argv[2]), 'the-link')
told = False
while True:
    if exchange(-100, sys.argv[1].encode(), -100, b'the-link', 2) == 0 and not told:
        told = True
        print('exchanged', flush=True)
    time.sleep(0.001 if sys.argv[3] == 'always' else 3600)
";

#[test]
fn patterns_of_git_are_not_read_through_a_link() {
    let begin = "\
import os
for n in ['objects', 'refs', 'info']: os.makedirs('d/.git/' + n)
open('d/.git/HEAD', 'w').write('ref: refs/heads/main\\n')
open('d/.env', 'w').write('X=1\\n')
open('d/.git/info/exclude', 'w').write('a-pattern\\n')
";
    // One command: what it makes in `.git` is removed when it has ended.
    let race = [begin, EXCHANGES].concat();
    for (user, level) in modes(&["full"]) {
        for how in ["always", "once"] {
            let ground = ground(user, &[("race.py", &race)]);
            let exchange = format!("python3 race.py d/.git/info/exclude x {how}");
            let background = json!({"command": exchange, "is_background": true, "delay_ms": 1000});
            let mut replies = vec![calls("run_shell_command", background), shell("sleep 1")];
            replies.extend((0..30).map(|number| shell(&format!("grep -rh -e '' -e {number} d/.git/info"))));
            replies.push(calls("read_background_output", json!({"pid": "job1"})));
            replies.push(says("done"));
            run(&ground, level, &["run", "-p", "x"], &replies, &[]);
            let journal = journal(&ground);
            assert!(journal.contains("exchanged"), "{user:?} {how}: there was no link");
            // With the link in place there is no pattern to read.
            let is_read = how == "once" || journal.contains("a-pattern");
            assert!(is_read, "{user:?} {how}: nothing was read");
            assert!(!journal.contains(SECRET), "{user:?} {how}: a file outside was read");
        }
    }
}

/// A directory of the user's tree is mounted in an isolated one, at a path that a command can turn into a link.
#[test]
fn a_mount_in_the_workspace_creates_nothing_outside() {
    let recipe =
        "version: 1\nname: r\ndescription: d\nisolate: { keep: [web/deps] }\nsteps:\n  - { id: fix, prompt: do }\n";
    let swap = "import os\nos.rename('web', 'other')\nos.symlink('@OUTSIDE@', 'web')\nprint('swapped')\n";
    for (user, level) in modes(&["full"]) {
        let files = [
            ("swap.py", swap),
            ("web/a.txt", "one\n"),
            (".gitignore", "deps/\n"),
            ("web/deps/x", "x\n"),
        ];
        let ground = ground(user, &files);
        let recipe = ground.given("recipe.yaml", recipe);
        let replies = [
            shell("cat web/deps/x"),
            shell("python3 swap.py"),
            shell("cat swap.py"),
            says("done"),
        ];
        let (done, changed) = run(&ground, level, &["run", &recipe, "--isolate"], &replies, &[]);
        assert_eq!(changed, [""; 0], "{user:?}");
        assert!(journal(&ground).contains("swapped"), "{user:?}: {}", done.stderr);
        // With reflinks there is no mount.
        let is_mounted = done.stderr.contains("private overlay");
        if have_optional("a file system without reflinks", is_mounted) {
            assert_eq!(done.code, 8, "{user:?}: {}", done.stderr);
        }
    }
}

#[test]
fn a_toolchain_in_the_workspace_gives_no_right_outside_of_it() {
    let swap = "import os, sys\nos.makedirs('cargo', exist_ok=True)\nif sys.argv[1] == 'link':\n    os.rename('cargo/bin', 'cargo/was')\n    os.symlink('@OUTSIDE@', 'cargo/bin')\nelse:\n    os.rename('cargo', 'other')\n    os.symlink('@OUTSIDE@', 'cargo')\n";
    let read = "import sys\ntry:\n    print('read', open('cargo/bin/' + sys.argv[1]).read())\nexcept OSError as error:\n    print('refused', error.strerror)\n";
    for (user, level) in modes(&["full", "landlock"]) {
        for how in ["link", "above"] {
            let ground = ground(user, &[("swap.py", swap), ("read.py", read), ("cargo/bin/tool", "x\n")]);
            ground.prepare("mkdir @OUTSIDE@/bin; cp @OUTSIDE@/x @OUTSIDE@/bin/x");
            let env = [("CARGO_HOME".to_owned(), "@WS@/cargo".to_owned())];
            let replies = [
                shell("python3 read.py tool"),
                shell(&format!("python3 swap.py {how}")),
                shell("python3 read.py x"),
                says("done"),
            ];
            run(&ground, level, &["run", "-p", "x"], &replies, &env);
            let journal = journal(&ground);
            assert!(
                journal.contains("read x"),
                "{user:?} {level} {how}: the control was not read"
            );
            assert!(
                !journal.contains(SECRET),
                "{user:?} {level} {how}: a file outside was read"
            );
        }
    }
}

#[test]
fn a_name_that_is_not_utf_8_is_no_way_around_a_rule() {
    let policy = |level: &str| {
        format!(
            "version: 1\nextends: [builtin:read-only]\nrules:\n  - {{ allow: run_shell_command, commands: [cat] }}\n  \
             - {{ deny: '*', paths: ['private/**'] }}\nsandbox: {{ level: {level} }}\n"
        )
    };
    for (user, level) in modes(&["full", "landlock"]) {
        for (name, reads) in [(r"\xff", false), ("plain", true)] {
            let ground = ground(user, &[("private/a", "the-denied-text\n"), ("m/b", "open-text\n")]);
            let target = if reads { "b" } else { "../private/a" };
            ground.prepare(&format!(
                "python3 -c 'import os; os.symlink(\"{target}\", b\"m/{}\")'",
                name
            ));
            let names = std::fs::read_dir(ground.ws().join("m")).unwrap();
            assert_eq!(names.count(), 2, "{user:?} {level} {name}: the link is there");
            let policy = ground.given("policy.yaml", &policy(level));
            let replies = [shell("cat m/b"), shell("cat m/*"), says("done")];
            let model = format!("script:{}", ground.given("script.yaml", &script(&replies)));
            let out = ground.out().to_string_lossy().into_owned();
            ground.run(
                &["run", "-p", "x", "--policy", &policy, "--model", &model, "--out", &out],
                &[],
                None,
            );
            let journal = journal(&ground);
            assert!(journal.contains("open-text"), "{user:?} {level} {name}");
            assert!(!journal.contains("the-denied-text"), "{user:?} {level} {name}");
        }
    }
}
