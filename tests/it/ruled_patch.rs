//! The patch is ruled: what no rule lets a tool write is in no patch, whichever way it came about, and what is denied ends the run.
//! Everything is judged by what lies in the tree and in the patch afterwards.

use super::harness::{Done, World, calls, git_in, have, hindered, large_pack, says, script, shell, writes};
use super::patch::{apply, copy, tree};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

/// `src` may be edited, `tests` is frozen, anything may be run. The sandbox is off where only the ruling on the patch is looked at.
fn policy(level: &str) -> String {
    format!(
        "version: 1
extends: [builtin:read-only]
rules:
  - {{ allow: [write_file, replace], paths: ['src/**'] }}
  - {{ id: frozen, deny: write_file, paths: ['tests/**'] }}
  - {{ allow: run_shell_command, commands: [bash fix.sh, cargo fmt, rustfmt] }}
sandbox: {{ level: {level}, toolchains: [rust] }}
"
    )
}

const FILES: &[(&str, &str)] = &[
    ("src/a.txt", "one\n"),
    ("lib/b.txt", "two\n"),
    ("lib/run.sh", "echo x\n"),
    ("lib/deep/c.txt", "three\n"),
    ("tests/x.txt", "frozen\n"),
    (".gitignore", "/ignored\n"),
];

fn world(fix: &str) -> World {
    let mut files = FILES.to_vec();
    files.push(("fix.sh", fix));
    let world = World::repo(&files);
    copy(&world.ws(), &world.path().join("base"));
    world
}

/// Runs the script by a call of the model.
fn fixed(world: &World, level: &str) -> Done {
    world.run(
        &script(&[shell("bash fix.sh"), says("done")]),
        &policy(level),
        &["-p", "x"],
    )
}

/// What the patch makes of the base.
fn patched(world: &World) -> BTreeMap<String, (String, Vec<u8>)> {
    let (base, made) = (world.path().join("base"), world.path().join("made"));
    let _ = std::fs::remove_dir_all(&made);
    copy(&base, &made);
    let patch = world.out().join("changes.patch");
    if patch.exists() {
        apply(&made, &patch);
    }
    tree(&made)
}

fn content(tree: &BTreeMap<String, (String, Vec<u8>)>, path: &str) -> Option<String> {
    tree.get(path)
        .map(|(_, bytes)| String::from_utf8_lossy(bytes).into_owned())
}

/// `path change rule code` and what became of it, of each entry of `unruled`.
fn unruled(result: &Value) -> Vec<String> {
    let one = |entry: &Value| {
        let became = match (entry["left"] == json!(true), entry["restored"] == json!(true)) {
            (true, _) => "left",
            (false, true) => "restored",
            (false, false) => "not restored",
        };
        let word = |key: &str| entry[key].as_str().unwrap_or("-").to_owned();
        format!(
            "{} {} {} {} {became}",
            word("path"),
            word("change"),
            word("rule"),
            word("code")
        )
    };
    result["unruled"].as_array().unwrap().iter().map(one).collect()
}

fn report(world: &World, name: &str) -> String {
    std::fs::read_to_string(world.out().join(name)).unwrap()
}

#[test]
fn a_change_of_a_denied_path_ends_the_run_and_is_in_no_patch() {
    for script in [
        "echo changed > tests/x.txt; echo ok > src/a.txt",
        "rm tests/x.txt",
        "mv tests/x.txt src/x.txt",
        "chmod +x tests/x.txt",
        "echo new > tests/new.txt",
        "mkdir -p tests/deep; echo new > tests/deep/new.txt",
        "echo new > tests/new.txt; echo '*' > tests/.gitignore",
        "rm tests/x.txt; ln -s ../src/a.txt tests/x.txt",
        "rm -r tests; ln -s src tests; echo x > tests/x.txt",
        "rm -r tests; echo now a file > tests",
        "mv tests TESTS",
        "for n in 1 2 3; do echo $n >> tests/x.txt; done",
    ] {
        let world = world(script);
        fixed(&world, "none").exits(4);
        let result = world.result();
        assert_eq!(result["verdict"], json!("denied"), "{script}: {result}");
        assert!(
            result["message"].as_str().unwrap().to_lowercase().contains("tests"),
            "{result}"
        );
        let (base, now, made) = (tree(&world.path().join("base")), tree(&world.ws()), patched(&world));
        for tree in [&now, &made] {
            for (path, was) in base.iter().filter(|(path, _)| path.starts_with("tests")) {
                assert_eq!(tree.get(path), Some(was), "{script}: {path}");
            }
            let new = tree
                .keys()
                .find(|path| path.to_lowercase().starts_with("tests") && !base.contains_key(*path));
            assert_eq!(new, None, "{script}");
        }
        let denied = unruled(&result);
        assert!(
            denied.iter().any(|line| line.ends_with("frozen deny_rule restored")) || result["denied"] != json!([]),
            "{script}: {denied:?}"
        );
        assert!(
            report(&world, "junit.xml").contains("type=\"policy.denied\""),
            "{script}"
        );
    }
}

#[test]
fn with_a_sandbox_a_denied_path_is_unchanged_or_the_run_ends_4() {
    for level in ["full", "landlock"] {
        let world = world("echo changed > tests/x.txt; echo ok > src/a.txt");
        let done = fixed(&world, level);
        if done.code == 8 && !have(&format!("sandbox level {level}"), false) {
            continue;
        }
        assert_eq!(world.read("tests/x.txt"), "frozen\n", "{level}");
        assert_eq!(content(&patched(&world), "tests/x.txt").unwrap(), "frozen\n", "{level}");
        assert!(done.code == 4 || done.code == 0, "{level}: {}", done.stderr);
    }
}

#[test]
fn a_change_that_is_kept_out_for_its_name_is_told_with_the_reason() {
    let world = World::repo(&[
        ("src/-d", "d\n"),
        ("src/a.txt", "one\n"),
        (
            "fix.sh",
            "echo x >> src/-d; echo ONE > src/a.txt; echo z > 'src/z\u{200b}'\n",
        ),
    ]);
    fixed(&world, "none").exits(0);
    assert_eq!(world.read("src/-d"), "d\n");
    let result = world.result();
    assert_eq!(
        unruled(&result)[0],
        "src/-d modified - leading_dash restored",
        "{result}"
    );
    let warnings = result["warnings"].as_array().unwrap();
    let told = |code: &str| {
        let mut found = warnings.iter().filter(|told| told["code"] == code);
        let message = found.next().and_then(|told| told["message"].as_str());
        message.unwrap_or_default().to_owned()
    };
    let back = told("unruled");
    assert!(
        back.contains("begins with a dash") && back.contains("(leading_dash): src/-d;"),
        "{result}"
    );
    let left = told("unruled_left");
    assert!(
        left.contains("bytes that are not UTF-8 (deceptive_name): src/z"),
        "{result}"
    );
}

#[test]
fn what_no_rule_allows_is_put_back_and_the_rest_is_the_patch() {
    let world = world(
        "echo ONE > src/a.txt; echo TWO > lib/b.txt; chmod +x lib/run.sh; rm -r lib/deep; echo instead > lib/deep; \
         echo log > built.log; mkdir -p out/deep; echo o > out/deep/o; echo i > ignored",
    );
    let done = fixed(&world, "none").exits(0);
    let (base, now, made) = (tree(&world.path().join("base")), tree(&world.ws()), patched(&world));
    for (path, was) in base.iter().filter(|(path, _)| path.starts_with("lib")) {
        assert_eq!(now.get(path), Some(was), "{path} is back");
    }
    assert_eq!(content(&now, "src/a.txt").unwrap(), "ONE\n");
    assert_eq!(content(&now, "built.log").unwrap(), "log\n", "a new file stays");
    let mut wanted = base.clone();
    wanted.insert("src/a.txt".to_owned(), ("file".to_owned(), b"ONE\n".to_vec()));
    assert_eq!(made, wanted, "the patch holds what is allowed and nothing else");
    let result = world.result();
    let mut told = unruled(&result);
    told.sort();
    let expected = [
        "built.log added - no_rule left",
        "lib/b.txt modified - no_rule restored",
        "lib/deep added - no_rule restored",
        "lib/deep/c.txt deleted - no_rule restored",
        "lib/run.sh mode - no_rule restored",
        "out/deep/o added - no_rule left",
    ];
    assert_eq!(told, expected);
    assert!(
        done.stderr.contains("warning[unruled]") && done.stderr.contains("warning[unruled_left]"),
        "{}",
        done.stderr
    );
    let junit = report(&world, "junit.xml");
    assert!(
        junit.contains("name=\"unruled.lib/b.txt\" value=\"put back: modified (no_rule)\""),
        "{junit}"
    );
    assert!(junit.contains("failures=\"0\" errors=\"0\""), "{junit}");
    let summary = report(&world, "summary.md");
    let line = summary
        .lines()
        .find(|line| line.contains("Changes that no rule allows"))
        .unwrap();
    assert!(line.contains("lib/b.txt") && line.contains("built.log"), "{line}");
    assert!(report(&world, "report.html").contains("changes that no rule allows"));
    let transcript: Value = serde_json::from_str(&report(&world, "transcript.json")).unwrap();
    assert_eq!(transcript["extra"]["overnight"]["unruled"], result["unruled"]);
}

/// What no patch can contain, in the place of a directory, must not take the files of the directory out of the ruling.
#[test]
fn files_whose_directory_was_replaced_by_what_no_patch_contains_are_put_back() {
    let recipe = "version: 1
name: r
steps:
  - { id: fix, prompt: Fix., checks: [{ name: there, run: test -d lib/deep }] }
";
    for instead in ["mkfifo lib/deep", "truncate -s 33M lib/deep"] {
        let world = world(&format!("echo ONE > src/a.txt; rm -r lib/deep; {instead}"));
        let replies = script(&[shell("bash fix.sh"), says("done")]);
        world.recipe(recipe, &replies, &policy("none"), &[]).exits(0);
        let expected = [
            "lib/deep added - no_rule restored",
            "lib/deep/c.txt deleted - no_rule restored",
        ];
        assert_eq!(unruled(&world.result()), expected, "{instead}");
        let mut wanted = tree(&world.path().join("base"));
        wanted.insert("src/a.txt".to_owned(), ("file".to_owned(), b"ONE\n".to_vec()));
        assert_eq!(tree(&world.ws()), wanted, "{instead}");
        assert_eq!(patched(&world), wanted, "{instead}");
    }
}

#[test]
fn files_in_the_place_of_what_no_patch_contains_are_ruled() {
    let world = world(
        "if [ -p src/gen ]; then rm src/gen; mkdir src/gen; echo evil > src/gen/evil.txt; \
         else echo ONE > src/a.txt; mkfifo src/gen; fi",
    );
    let policy = "version: 1
extends: [builtin:read-only]
rules:
  - { allow: [write_file, replace], paths: ['src/*'] }
  - { allow: run_shell_command, commands: [bash fix.sh] }
sandbox: { level: none }
";
    let recipe = "version: 1
name: r
steps:
  - { id: fix, prompt: Fix., retry: { max: 1 }, checks: [{ name: there, run: test -d src/gen }] }
";
    let replies = [shell("bash fix.sh"), says("one"), shell("bash fix.sh"), says("two")];
    world.recipe(recipe, &script(&replies), policy, &[]).exits(0);
    assert_eq!(unruled(&world.result()), ["src/gen/evil.txt added - no_rule left"]);
    let mut wanted = tree(&world.path().join("base"));
    wanted.insert("src/a.txt".to_owned(), ("file".to_owned(), b"ONE\n".to_vec()));
    assert_eq!(patched(&world), wanted);
}

/// A run of `fix.sh` by a user without the right to read everything.
fn hindered_run(world: &World) -> Option<Done> {
    let model = world.beside("script.json", script(&[shell("bash fix.sh"), says("done")]));
    let (model, policy) = (format!("script:{model}"), world.beside("policy.yaml", policy("none")));
    let out = world.out().display().to_string();
    hindered(&world.command(&["run", "--model", &model, "--policy", &policy, "--out", &out, "-p", "x"]))
}

/// Files that nobody can look at are not deleted. Root without the right to read everything is like any other user.
#[test]
fn a_directory_that_a_command_has_closed_is_no_deletion() {
    for close in ["chmod 0 lib/deep src", "chmod 444 lib/deep src"] {
        let world = world(&format!("echo ONE > src/a.txt; echo TWO > lib/b.txt; {close}"));
        let Some(done) = hindered_run(&world) else {
            return;
        };
        done.exits(0);
        assert_eq!(
            unruled(&world.result()),
            ["lib/b.txt modified - no_rule restored"],
            "{close}"
        );
        let mut wanted = tree(&world.path().join("base"));
        wanted.insert("src/a.txt".to_owned(), ("file".to_owned(), b"ONE\n".to_vec()));
        assert_eq!(tree(&world.ws()), wanted, "{close}");
        assert_eq!(patched(&world), wanted, "{close}");
        let is_as_before = |path: &str| {
            let mode = |top: &Path| std::fs::metadata(top.join(path)).unwrap().permissions();
            mode(&world.ws()) == mode(&world.path().join("base"))
        };
        assert!(is_as_before("src") && is_as_before("lib/deep"), "{close}");
    }
}

/// A new protected file does not stay because the command closed a directory above it.
#[test]
fn a_protected_file_below_a_directory_that_a_command_has_closed_is_removed() {
    for close in ["chmod 100 .github", "chmod 0 .github"] {
        let make = "mkdir -p .github/workflows; echo x > .github/workflows/e.yml";
        let world = world(&format!("{make}; {close}"));
        let Some(done) = hindered_run(&world) else {
            return;
        };
        let journal = std::fs::read_to_string(world.out().join("journal.jsonl")).unwrap();
        assert!(journal.contains("denied (protected_path)"), "{}{journal}", done.stderr);
        assert!(!journal.contains("could not be undone"), "{}{journal}", done.stderr);
        let opened = Command::new("chmod")
            .args(["-R", "u+rwX", "."])
            .current_dir(world.ws())
            .status();
        assert!(opened.unwrap().success());
        assert_eq!(tree(&world.ws()), tree(&world.path().join("base")), "{close}");
    }
}

#[test]
fn what_is_put_back_has_the_mode_that_it_had() {
    use std::os::unix::fs::PermissionsExt;
    let close = "echo TWO > lib/b.txt; chmod 0 lib/b.txt; echo evil > lib/run.sh; chmod 777 lib/run.sh";
    let world = world(close);
    let mode = |path: &str| std::fs::metadata(world.ws().join(path)).unwrap().permissions().mode();
    let before = ["lib/b.txt", "lib/run.sh"].map(mode);
    fixed(&world, "none").exits(0);
    assert_eq!(["lib/b.txt", "lib/run.sh"].map(mode), before);
    assert_eq!(tree(&world.ws()), tree(&world.path().join("base")));
}

#[test]
fn an_ignore_file_that_no_rule_allows_hides_nothing() {
    let world = world(
        "echo evil > lib/evil.txt; echo '*' > lib/.gitignore; echo x > hidden.txt; echo hidden.txt >> .gitignore; \
         mkdir cache; echo '*' > cache/.gitignore; echo c > cache/c; echo i > ignored",
    );
    fixed(&world, "none").exits(0);
    let mut told = unruled(&world.result());
    told.sort();
    let expected = [
        ".gitignore modified - no_rule restored",
        "cache/.gitignore added - no_rule left",
        "cache/c added - no_rule left",
        "hidden.txt added - no_rule left",
        "lib/.gitignore added - no_rule left",
        "lib/evil.txt added - no_rule left",
    ];
    assert_eq!(told, expected);
    assert_eq!(world.read(".gitignore"), "/ignored\n");
    assert_eq!(patched(&world), tree(&world.path().join("base")));
}

#[test]
fn an_ignore_file_that_a_rule_allows_counts_and_is_in_the_patch() {
    let world = world(
        "echo ONE > src/a.txt; printf 'build/\\n.gitignore\\n' > src/.gitignore; mkdir src/build src/cache; \
         echo o > src/build/o; echo '*' > src/cache/.gitignore; echo c > src/cache/c",
    );
    fixed(&world, "none").exits(0);
    assert_eq!(unruled(&world.result()), Vec::<String>::new());
    let mut wanted = tree(&world.path().join("base"));
    for (path, text) in [("src/a.txt", "ONE\n"), ("src/.gitignore", "build/\n.gitignore\n")] {
        wanted.insert(path.to_owned(), ("file".to_owned(), text.as_bytes().to_vec()));
    }
    assert_eq!(patched(&world), wanted, "what is built is in no patch");
}

#[test]
fn an_honest_change_passes_with_its_patch() {
    let world = world("echo ONE > src/a.txt; echo new > src/new.txt; echo x > ignored");
    fixed(&world, "none").exits(0);
    let made = patched(&world);
    assert_eq!(content(&made, "src/a.txt").unwrap(), "ONE\n");
    assert_eq!(content(&made, "src/new.txt").unwrap(), "new\n");
    let result = world.result();
    assert_eq!((&result["verdict"], unruled(&result)), (&json!("passed"), vec![]));
    assert_eq!(result["warnings"], json!([]));
}

/// A preset lets commands remove the output of a build, so a rule allows its paths.
#[test]
fn what_a_build_leaves_is_in_no_patch_unless_git_tracks_it() {
    let fix = "mkdir -p target/debug web/build cache web/target new/target old/target
echo x > target/debug/x; echo x > web/build/x; echo x > cache/x; echo x > web/target/x; echo x >> kept/target/x
echo x > new/Cargo.toml; echo x > new/target/x; echo x >> old/target/x; echo x > old/target/y; rm old/target/z
printf 'Signature: 8a477f597d28d172789f06886806bc55\\n' > cache/CACHEDIR.TAG
echo fixed > src/a.txt";
    let files = [
        ("Cargo.toml", ""),
        ("web/build.gradle", ""),
        ("kept/Cargo.toml", ""),
        ("old/Cargo.toml", ""),
        ("kept/target/x", "x\n"),
        ("src/a.txt", "one\n"),
        ("fix.sh", fix),
    ];
    let policy = "version: 1\nextends: [builtin:edit]\nrules: [{ allow: run_shell_command, commands: [bash fix.sh] }]\n\
         sandbox: { level: none }\n";
    let world = World::repo(&files);
    // Somebody's files, which git does not know.
    world.file("old/target/x", "mine\n");
    world.file("old/target/z", "mine\n");
    let replies = script(&[
        shell("bash fix.sh"),
        writes("target/named.txt", "asked for\n"),
        says("done"),
    ]);
    let recipe = "version: 1\nname: x\nexpect: change\nsteps:\n  - id: fix\n    prompt: x\n    checks:\n      \
         - { name: small, changed: { only: [src/**, kept/**, web/target/**, target/named.txt, cache/*, new/**, old/**] } }\n";
    world.recipe(recipe, &replies, policy, &[]).exits(0);
    let result = world.result();
    let mut changed: Vec<&str> = result["changes"]["files"]
        .as_array()
        .unwrap()
        .iter()
        .filter_map(|file| file["path"].as_str())
        .collect();
    changed.sort_unstable();
    assert_eq!(
        changed,
        [
            "cache/CACHEDIR.TAG",
            "cache/x",
            "kept/target/x",
            "new/Cargo.toml",
            "new/target/x",
            "old/target/x",
            "old/target/y",
            "old/target/z",
            "src/a.txt",
            "target/named.txt",
            "web/target/x"
        ]
    );
    assert_eq!(
        unruled(&result),
        [
            "target/ added - build_output left",
            "web/build/ added - build_output left",
        ]
    );
    assert_eq!(world.read("target/debug/x"), "x\n");
    let told = report(&world, "summary.md");
    assert!(told.contains("target/, web/build/; let git ignore"), "{told}");
}

/// The same where there is no repository.
#[test]
fn files_that_were_there_before_a_build_are_in_the_patch_without_git_too() {
    let fix = "echo x >> build/a; rm build/b; echo x > build/c; mkdir target; echo x > target/x\n";
    let world = World::new();
    world.file("build.gradle", "").file("pom.xml", "").file("fix.sh", fix);
    world.file("build/a", "a\n").file("build/b", "b\n");
    let policy = "version: 1\nextends: [builtin:edit]\nrules: [{ allow: run_shell_command, commands: [bash fix.sh] }]\n\
         sandbox: { level: none }\n";
    let recipe = "version: 1\nname: x\nsteps:\n  - id: fix\n    prompt: x\n    checks: [{ name: none, changed: { max_files: 0 } }]\n";
    let replies = script(&[shell("bash fix.sh"), says("done")]);
    world.recipe(recipe, &replies, policy, &[]).exits(1);
    let result = world.result();
    let files = result["changes"]["files"].as_array().unwrap();
    let changed: Vec<&str> = files.iter().filter_map(|file| file["path"].as_str()).collect();
    assert_eq!(changed, ["build/a", "build/b", "build/c"]);
    assert_eq!(unruled(&result), ["target/ added - build_output left"]);
}

#[test]
fn a_write_that_a_rule_on_its_arguments_allows_stays() {
    let world = world("");
    let policy = "version: 1
extends: [builtin:read-only]
rules:
  - { allow: write_file, paths: ['docs/**'], with: { content: '*hello*' } }
sandbox: { level: none }
";
    let replies = script(&[writes("docs/a.md", "say hello"), says("done")]);
    world.run(&replies, policy, &["-p", "x"]).exits(0);
    assert_eq!(world.read("docs/a.md"), "say hello");
    let result = world.result();
    assert_eq!((&result["verdict"], unruled(&result)), (&json!("passed"), vec![]));
}

#[test]
fn a_run_whose_every_change_is_put_back_has_changed_nothing() {
    let world = world("echo TWO > lib/b.txt");
    fixed(&world, "none").exits(0);
    let result = world.result();
    assert_eq!(
        (&result["verdict"], &result["patch"]),
        (&json!("no_change"), &Value::Null)
    );
    assert_eq!(world.git(&["status", "--porcelain"]), "");
}

#[test]
fn checks_see_the_tree_without_what_no_rule_allows() {
    let world = world("echo ONE > src/a.txt; echo TWO > lib/b.txt");
    let recipe = "version: 1
name: r
steps:
  - id: fix
    prompt: Fix.
    checks:
      - { name: by-command, run: grep -q two lib/b.txt }
      - { name: by-look, file: lib/b.txt, contains: two }
      - { name: bounds, changed: { only: ['src/**'] } }
";
    world
        .recipe(
            recipe,
            &script(&[shell("bash fix.sh"), says("done")]),
            &policy("none"),
            &[],
        )
        .exits(0);
    assert_eq!(unruled(&world.result()), ["lib/b.txt modified - no_rule restored"]);
}

#[test]
fn what_a_step_of_the_author_changes_is_in_the_patch_and_later_commands_do_not_change_it() {
    let world = world("echo stray > lib/b.txt; echo ONE > src/a.txt");
    let recipe = "version: 1
name: r
steps:
  - id: first
    prompt: Fix.
  - { id: author, run: 'echo TWO > lib/b.txt; echo new > lib/new.txt; rm lib/deep/c.txt' }
  - id: second
    prompt: Fix again.
";
    let replies = [
        writes("src/b.txt", "b\n"),
        says("done"),
        shell("bash fix.sh"),
        says("done"),
    ];
    world.recipe(recipe, &script(&replies), &policy("none"), &[]).exits(0);
    let made = patched(&world);
    assert_eq!(
        content(&made, "lib/b.txt").unwrap(),
        "TWO\n",
        "put back as the author left it"
    );
    assert_eq!(content(&made, "lib/new.txt").unwrap(), "new\n");
    assert_eq!(content(&made, "lib/deep/c.txt"), None);
    assert_eq!(content(&made, "src/a.txt").unwrap(), "ONE\n");
    assert_eq!(content(&made, "src/b.txt").unwrap(), "b\n");
    assert_eq!(tree(&world.ws()), made);
    assert_eq!(unruled(&world.result()), ["lib/b.txt modified - no_rule restored"]);
}

#[test]
fn a_step_of_the_author_is_bound_by_denials() {
    let world = world("");
    let recipe = "version: 1
name: r
steps:
  - { id: author, run: 'echo TWO > lib/b.txt; echo x > tests/x.txt' }
";
    world.recipe(recipe, &script(&[]), &policy("none"), &[]).exits(4);
    let result = world.result();
    assert!(result["message"].as_str().unwrap().contains("tests/x.txt"), "{result}");
    assert_eq!(world.read("tests/x.txt"), "frozen\n");
    assert_eq!(content(&patched(&world), "lib/b.txt").unwrap(), "TWO\n");
}

#[test]
fn new_files_that_stay_are_never_taken_for_the_authors() {
    let world = world("echo stray > stray.txt; echo ONE > src/a.txt");
    let recipe = "version: 1
name: r
steps:
  - id: first
    prompt: Fix.
  - { id: author, run: 'echo TWO > lib/b.txt' }
";
    world
        .recipe(
            recipe,
            &script(&[shell("bash fix.sh"), says("done")]),
            &policy("none"),
            &[],
        )
        .exits(0);
    let made = patched(&world);
    assert_eq!(content(&made, "stray.txt"), None);
    assert_eq!(content(&made, "lib/b.txt").unwrap(), "TWO\n");
    assert_eq!(unruled(&world.result()), ["stray.txt added - no_rule left"]);
}

#[test]
fn what_a_person_approved_is_in_the_patch() {
    let world = world("");
    let held = format!(
        "{}  - {{ id: held, suspend: write_file, paths: ['lib/**'] }}\n",
        policy("none").replace("sandbox:", "#")
    ) + "sandbox: { level: none }\n";
    let replies = [writes("lib/b.txt", "TWO\n"), says("done")];
    world.run(&script(&replies), &held, &["-p", "x"]).exits(5);
    let out = world.out().to_string_lossy().into_owned();
    let model = format!("script:{}", world.path().join("script.yaml").display());
    world
        .call(&["resume", &out, "--model", &model, "--approve", "c1"])
        .exits(0);
    assert_eq!(content(&patched(&world), "lib/b.txt").unwrap(), "TWO\n");
    assert_eq!(unruled(&world.result()), Vec::<String>::new());
}

#[test]
fn what_runs_on_in_the_background_is_ended_and_ruled_at_the_end() {
    let world = world("echo ONE > src/a.txt; while sleep 0.05; do echo more >> lib/b.txt; echo x > tests/x.txt; done");
    let start = super::harness::calls(
        "run_shell_command",
        json!({"command": "bash fix.sh", "is_background": true, "delay_ms": 400}),
    );
    world
        .run(&script(&[start, says("done")]), &policy("none"), &["-p", "x"])
        .exits(4);
    assert_eq!(world.read("tests/x.txt"), "frozen\n");
    assert_eq!(world.read("lib/b.txt"), "two\n");
    let made = patched(&world);
    assert_eq!(content(&made, "lib/b.txt").unwrap(), "two\n");
    assert_eq!(content(&made, "tests/x.txt").unwrap(), "frozen\n");
}

/// What a run that called `bash fix.sh` with these arguments came to: its exit code, what result and journal tell of the
/// command, and whether `junit.xml` names a path.
fn of_command(fix: &str, on_deny: &str, args: Value) -> (i32, Vec<String>, Vec<Value>, bool) {
    let world = World::repo(&[("src/a.txt", "one\n"), ("tests/x.txt", "frozen\n"), ("fix.sh", fix)]);
    // Too large for a copy to put back.
    large_pack(&world.ws().join(".git/objects/pack/large.pack"));
    let policy = "version: 1
extends: [builtin:read-only]
rules:
  - { allow: [write_file, replace], paths: ['src/**'] }
  - { id: frozen, deny: '*', paths: ['tests/**'] }
  - { id: named, deny: run_shell_command, commands: [uname] }
  - { allow: run_shell_command, commands: [bash fix.sh], writes: tree, runs: anything }
sandbox: { level: landlock }
";
    let recipe = format!(
        "version: 1
name: r
on_deny: {on_deny}
steps:
  - {{ id: a, prompt: go, checks: [{{ name: c, run: 'true' }}] }}
"
    );
    let mut asked = json!({ "command": "bash fix.sh" });
    asked.as_object_mut().unwrap().extend(args.as_object().unwrap().clone());
    let replies = [super::harness::calls("run_shell_command", asked), says("done")];
    let done = world.recipe(&recipe, &script(&replies), policy, &[]);
    let journal = std::fs::read_to_string(world.out().join("journal.jsonl")).unwrap();
    // Without its number and its time.
    let entry = |line| {
        let mut entry = serde_json::from_str::<Value>(line).unwrap()["entry"].take();
        for key in ["seq", "at"] {
            entry.as_object_mut().unwrap().remove(key);
        }
        entry
    };
    let told = |event: &Value| event["event"] == "undone" || event["event"] == "executed";
    let events = journal.lines().map(entry).filter(told).collect();
    let junit = std::fs::read_to_string(world.out().join("junit.xml")).unwrap();
    (
        done.code,
        unruled(&world.result()),
        events,
        junit.contains("tests/x.txt"),
    )
}

/// It is recorded and ruled as for a command that is waited for, whether it has ended by itself, which the model need not
/// read, or is ended before the checks.
#[test]
fn what_a_command_in_the_background_did_counts_as_if_it_was_waited_for() {
    let (ends, runs_on) = (
        json!({ "is_background": true, "delay_ms": 10_000 }),
        json!({ "is_background": true, "delay_ms": 900 }),
    );
    let damage = "echo ONE > src/a.txt; printf X | dd of=.git/objects/pack/large.pack bs=1 conv=notrunc status=none";
    let denied = "echo ONE > src/a.txt; echo x > tests/x.txt";
    let program = "echo ONE > src/a.txt; uname";
    for (fix, on_deny, code) in [
        (damage, "tell", 4),
        (denied, "tell", 0),
        (denied, "stop", 4),
        (program, "stop", 4),
    ] {
        let waited = of_command(fix, on_deny, json!({}));
        assert_eq!(waited.0, code, "the control: {fix}: {waited:?}");
        assert_eq!(of_command(fix, on_deny, ends.clone()), waited, "{fix}");
    }
    for (fix, code) in [(damage, 4), (denied, 0)] {
        let waited = of_command(fix, "tell", json!({}));
        let ended = of_command(&format!("{fix}; sleep 30"), "tell", runs_on.clone());
        let changes = |events: &[Value]| -> Vec<Value> {
            let undone = events.iter().filter(|event| event["event"] == "undone");
            undone.cloned().collect()
        };
        assert_eq!((ended.0, &ended.1, ended.3), (code, &waited.1, waited.3), "{fix}");
        assert_eq!(changes(&ended.2), changes(&waited.2), "{fix}");
        assert_eq!(ended.2[0]["call"], "c1", "{:?}", ended.2);
    }
}

#[test]
fn a_run_that_ended_for_a_denied_change_cannot_be_resumed_into_a_pass() {
    let world = world("echo changed > tests/x.txt; echo ok > src/a.txt");
    fixed(&world, "none").exits(4);
    let out = world.out().to_string_lossy().into_owned();
    let model = format!("script:{}", world.path().join("script.yaml").display());
    let again = world.call(&["resume", &out, "--model", &model]);
    assert_ne!(again.code, 0, "{}", again.stderr);
    assert_eq!(content(&patched(&world), "tests/x.txt").unwrap(), "frozen\n");
}

#[test]
fn below_the_top_of_the_repository_paths_are_the_workspaces() {
    let world = World::new();
    for (path, text) in FILES {
        world.file(&format!("sub/{path}"), text);
    }
    world.file(
        "sub/fix.sh",
        "echo ONE > src/a.txt; echo TWO > lib/b.txt; echo n > new.txt",
    );
    world.git(&["init", "-q", "-b", "main"]);
    world.commit("base");
    let model = format!(
        "script:{}",
        world.beside("s.yaml", script(&[shell("bash fix.sh"), says("done")]))
    );
    let (rules, out) = (
        world.beside("p.yaml", policy("none")),
        world.out().to_string_lossy().into_owned(),
    );
    let done = world
        .command(&["run", "--model", &model, "--policy", &rules, "--out", &out, "-p", "x"])
        .current_dir(world.ws().join("sub"))
        .output()
        .unwrap();
    Done::of(done).exits(0);
    let told = unruled(&world.result());
    assert_eq!(
        told,
        ["lib/b.txt modified - no_rule restored", "new.txt added - no_rule left"]
    );
    assert_eq!(world.read("sub/lib/b.txt"), "two\n");
    assert_eq!(world.read("sub/src/a.txt"), "ONE\n");
    assert_eq!(
        world.git(&["status", "--porcelain"]),
        " M sub/src/a.txt\n?? sub/new.txt\n"
    );
}

#[test]
fn a_workspace_in_a_protected_directory_opens_nothing() {
    let rules = "version: 1
extends: [builtin:edit]
rules:
  - { allow: [write_file, replace], paths: ['ci.yml', '*.yml', 'workflows/ci.yml'] }
  - { allow: run_shell_command, commands: [bash fix.sh] }
sandbox: { level: none }
";
    let fix = "for f in ci.yml workflows/ci.yml; do [ -e $f ] && echo 'name: other' > $f; done; true\n";
    for (workspace, file) in [(".github/workflows", "ci.yml"), (".github", "workflows/ci.yml")] {
        for reply in [writes(file, "name: other\n"), shell("bash fix.sh")] {
            let world = World::repo(&[
                (".github/workflows/ci.yml", "name: ci\n"),
                (".github/fix.sh", fix),
                (".github/workflows/fix.sh", fix),
            ]);
            world.run(
                &script(&[reply, says("done")]),
                rules,
                &["-p", "x", "--workspace", workspace],
            );
            let result = world.result();
            assert!(result.to_string().contains("protected_path"), "{workspace}: {result}");
            assert_ne!(result["verdict"], json!("passed"), "{workspace}: {result}");
            assert_eq!(
                world.read(".github/workflows/ci.yml"),
                "name: ci\n",
                "{workspace}: {result}"
            );
        }
    }
}

#[test]
fn a_formatter_changes_only_what_may_be_changed() {
    if !have(
        "rustfmt",
        Command::new("rustfmt")
            .arg("--version")
            .output()
            .is_ok_and(|done| done.status.success()),
    ) {
        return;
    }
    let ugly = "pub   fn  f( ) { }\n";
    let world = World::repo(&[
        (
            "Cargo.toml",
            "[package]\nname = \"c\"\nversion = \"0.1.0\"\nedition = \"2021\"\n",
        ),
        (
            "Cargo.lock",
            "version = 3\n\n[[package]]\nname = \"c\"\nversion = \"0.1.0\"\n",
        ),
        ("src/lib.rs", ugly),
        ("tests/x.rs", ugly),
        ("benches/b.rs", ugly),
    ]);
    copy(&world.ws(), &world.path().join("base"));
    for level in ["none", "full", "landlock"] {
        git_in(&world.ws(), &["checkout", "-q", "."]);
        let _ = std::fs::remove_dir_all(world.out());
        let done = world.run(
            &script(&[shell("cargo fmt"), says("done")]),
            &policy(level),
            &["-p", "x"],
        );
        if done.code == 8 && !have(&format!("sandbox level {level}"), false) {
            continue;
        }
        assert_eq!(world.read("tests/x.rs"), ugly, "{level}: {}", done.stderr);
        let made = patched(&world);
        assert_eq!(content(&made, "tests/x.rs").unwrap(), ugly, "{level}");
        assert_eq!(content(&made, "benches/b.rs").unwrap(), ugly, "{level}");
        if level == "none" {
            assert_eq!(done.code, 4, "{}", done.stderr);
            assert_eq!(content(&made, "src/lib.rs").unwrap(), "pub fn f() {}\n");
            assert_eq!(world.read("benches/b.rs"), ugly, "put back");
        }
    }
}

#[test]
fn what_a_patch_makes_without_a_rule_is_gone_before_a_check_looks() {
    let have_patch = Command::new("patch").arg("--version").output();
    if !have("patch", have_patch.is_ok_and(|done| done.status.success())) {
        return;
    }
    let stray =
        "--- /dev/null\n+++ b/m.py\n@@ -0,0 +1 @@\n+made\n--- /dev/null\n+++ b/new/m.py\n@@ -0,0 +1 @@\n+made\n";
    let ruled = "--- a/docs/a.md\n+++ b/docs/a.md\n@@ -1 +1 @@\n-one\n+ONE\n--- /dev/null\n+++ b/docs/new/b.md\n@@ -0,0 +1 @@\n+made\n";
    let gone = "--- a/old/c.md\n+++ /dev/null\n@@ -1 +0,0 @@\n-three\n";
    let (evil, honest) = (format!("{ruled}{stray}"), format!("{ruled}{gone}"));
    let world = World::repo(&[
        ("docs/a.md", "one\n"),
        ("old/c.md", "three\n"),
        ("evil.patch", evil.as_str()),
        ("honest.patch", honest.as_str()),
    ]);
    let recipe = "version: 1
name: r
expect: change
steps:
  - id: a
    prompt: Apply it.
    checks:
      - { name: sees, run: test -e m.py }
";
    for (level, paths) in [("full", "**/*.md"), ("landlock", "docs/**")] {
        let rules = format!(
            "version: 1
extends: [builtin:look, builtin:files]
rules:
  - {{ allow: [write_file, replace], paths: ['{paths}', 'old/**'] }}
sandbox: {{ level: {level} }}
"
        );
        git_in(&world.ws(), &["checkout", "-q", "."]);
        git_in(&world.ws(), &["clean", "-qfd"]);
        let _ = std::fs::remove_dir_all(world.out());
        let evil = script(&[shell("patch -p1 < evil.patch"), says("done")]);
        let done = world.recipe(recipe, &evil, &rules, &[]);
        if done.code == 8 && !have(&format!("sandbox level {level}"), false) {
            continue;
        }
        assert_ne!(done.code, 0, "{level}: {}", done.stderr);
        assert!(
            !world.ws().join("m.py").exists() && !world.ws().join("new").exists(),
            "{level}"
        );
        let result = world.result().to_string();
        assert!(!result.contains("unruled_left"), "{level}: {result}");
        git_in(&world.ws(), &["checkout", "-q", "."]);
        git_in(&world.ws(), &["clean", "-qfd"]);
        let _ = std::fs::remove_dir_all(world.out());
        let honest = script(&[shell("patch -p1 < honest.patch"), says("done")]);
        let done = world.run(&honest, &rules, &["-p", "x"]).exits(0);
        assert_eq!(world.read("docs/a.md"), "ONE\n", "{level}: {}", done.stderr);
        assert_eq!(world.read("docs/new/b.md"), "made\n", "{level}");
        assert!(!world.ws().join("old/c.md").exists(), "{level}");
        assert_eq!(unruled(&world.result()), Vec::<String>::new(), "{level}");
    }
}

/// Git takes a directory with `HEAD`, `objects` and `refs` for a repository whatever its name, and its settings run programs.
#[test]
fn a_repository_of_another_name_is_neither_made_nor_changed() {
    let policy = "version: 1\nextends: [builtin:edit]\nrules: [{ allow: run_shell_command, commands: [bash fix.sh] }]\nsandbox: { level: none }\n";
    let config = "[core]\n\tworktree = .\n\tfsmonitor = touch MARK;:\n";
    let made = [
        writes("docs/HEAD", "ref: refs/heads/main\n"),
        writes("docs/config", config),
        writes("docs/objects/x", "x\n"),
        writes("docs/refs/x", "x\n"),
        writes("bare/config", config),
        says("done"),
    ];
    let bare = [
        ("bare/HEAD", "ref: refs/heads/main\n"),
        ("bare/config", "[core]\n"),
        ("bare/objects/x", "x\n"),
        ("bare/refs/x", "x\n"),
    ];
    let world = World::repo(&bare);
    world.run(&script(&made), policy, &["-p", "x"]);
    let denied = world.result()["denied"].to_string();
    assert!(denied.contains("protected_path"), "{denied}");
    assert!(!world.ws().join("docs/refs/x").exists() && world.read("bare/config") == "[core]\n");

    // Written by a command, the whole is seen only afterwards; empty directories count.
    let world = World::repo(&bare);
    let fix = "mkdir -p docs/objects docs/refs; echo 'ref: refs/heads/main' > docs/HEAD; echo '[core]' > docs/config; echo '[diff]' > bare/config";
    world.file("fix.sh", fix);
    world
        .run(&script(&[shell("bash fix.sh"), says("done")]), policy, &["-p", "x"])
        .exits(4);
    let unruled = unruled(&world.result()).join("\n");
    for path in ["bare/config", "docs/HEAD", "docs/config"] {
        assert!(unruled.contains(path), "{path}: {unruled}");
    }
    assert!(!world.ws().join("docs/config").exists() && world.read("bare/config") == "[core]\n");
}

/// A workspace that is itself a repository without a tree holds only what git owns.
#[test]
fn a_bare_repository_is_no_workspace() {
    let world = World::new();
    git_in(&world.ws(), &["init", "-q", "--bare", "."]);
    let done = world
        .run(&script(&[says("done")]), &policy("none"), &["-p", "x"])
        .exits(8);
    assert!(done.stderr.contains("bare git repository"), "{}", done.stderr);
}

/// A link in the patch leads whoever applies it where no tool could have led.
#[test]
fn links_that_lead_where_the_policy_does_not_are_put_back() {
    let policy = "version: 1\nextends: [builtin:read-only]\nrules:\n  - { allow: write_file, paths: ['src/**'] }\n  - { id: hidden, deny: '*', paths: ['docs/**'] }\n  - { allow: run_shell_command, commands: [bash fix.sh] }\nsandbox: { level: none }\n";
    let outside = "ln -s /etc/passwd src/pw; ln -s ../../../../x src/up; ln -s a.txt src/fine";
    for (fix, code, wanted) in [
        (
            outside,
            0,
            vec![
                "src/pw added - outside_path restored",
                "src/up added - outside_path restored",
            ],
        ),
        (
            "ln -s ../.git/config src/gc",
            4,
            vec!["src/gc added - protected_path restored"],
        ),
        (
            "ln -s ../docs/d src/dd",
            4,
            vec!["src/dd added hidden deny_rule restored"],
        ),
    ] {
        let world = World::repo(&[("src/a.txt", "one\n"), ("docs/d", "two\n"), ("fix.sh", fix)]);
        world
            .run(&script(&[shell("bash fix.sh"), says("done")]), policy, &["-p", "x"])
            .exits(code);
        assert_eq!(unruled(&world.result()), wanted, "{fix}");
        let gone = ["pw", "up", "gc", "dd"]
            .iter()
            .all(|name| !world.ws().join("src").join(name).is_symlink());
        assert!(gone, "{fix}");
        assert_eq!(world.ws().join("src/fine").is_symlink(), fix == outside);
    }
}

/// What the model edits with tools while a background command lives is no change of that command.
#[test]
fn edits_beside_a_background_command_stay() {
    for level in ["full", "landlock"] {
        let world = World::repo(&[("src/a", "1\n"), ("AGENTS.md", "1\n")]);
        let policy = format!(
            "version: 1\nextends: [builtin:look]\nsandbox: {{ level: {level} }}\nrules:\n  - {{ allow: run_shell_command, commands: \
             [sleep, tee] }}\n  - {{ allow: write_file, paths: [\"src/**\", AGENTS.md, .vscode/settings.json] }}\n"
        );
        let wait = "sleep 2 | tee src/log";
        let replies = script(&[
            calls("run_shell_command", json!({ "command": wait, "is_background": true })),
            writes("src/a", "2\n"),
            writes("src/new/b", "2\n"),
            writes("AGENTS.md", "2\n"),
            writes(".vscode/settings.json", "{}\n"),
            shell("sleep 3"),
            says("done"),
        ]);
        let done = world.run(&replies, &policy, &["-p", "x"]).exits(0);
        assert!(!done.stderr.contains("DENIED"), "{level}: {}", done.stderr);
        let read = |path: &str| std::fs::read_to_string(world.ws().join(path)).unwrap_or_default();
        for (path, content) in [
            ("src/a", "2\n"),
            ("src/new/b", "2\n"),
            ("AGENTS.md", "2\n"),
            (".vscode/settings.json", "{}\n"),
        ] {
            assert_eq!(read(path), content, "{level}: {path}\n{}", done.stderr);
        }
    }
}

/// A policy that lets the model write `src`, and suspends a command until a person approves it.
fn beside_policy(level: &str) -> String {
    format!(
        "version: 1\nextends: [builtin:read-only]\nsandbox: {{ level: {level} }}\nrules:\n  - {{ allow: [write_file, replace, \
         run_shell_command], paths: ['src/**'] }}\n  - {{ suspend: run_shell_command, commands: [bash ask.sh] }}\n  - {{ allow: \
         run_shell_command, commands: [bash ask.sh, bash job.sh], writes: tree, runs: anything }}\n"
    )
}

/// The command of a step or of an approved call. It makes a change that no rule allows, while another process tries to
/// write `lib/b.txt`.
const BESIDE: &str = "echo made > lib/made.txt; touch src/go.txt; n=0; until grep -q by lib/b.txt || [ $n = 40 ]; do sleep 0.01; \
                      n=$((n+1)); done";

/// The author's or approved change is in the patch, and what a server wrote at the same time is put back.
fn assert_only_the_server_is_put_back(world: &World, what: &str) {
    let made = patched(world);
    assert_eq!(content(&made, "lib/made.txt").as_deref(), Some("made\n"), "{what}");
    assert_eq!(content(&made, "lib/b.txt").as_deref(), Some("two\n"), "{what}");
    assert_eq!(world.read("lib/b.txt"), "two\n", "{what}");
    // The server may write again afterwards, before it is ended.
    let told = unruled(&world.result());
    let is_put_back = told == ["lib/b.txt modified - no_rule restored"];
    assert!(told.is_empty() || is_put_back, "{what}: {told:?}");
}

/// A repository with these files, and a copy of it to apply the patch to.
fn repository(files: &[(&str, &str)]) -> World {
    let world = World::repo(files);
    copy(&world.ws(), &world.path().join("base"));
    world
}

/// The author and a reviewer may change files without a rule, but a server that writes at the same time may not.
#[test]
fn a_server_that_writes_during_a_step_or_an_approved_call_needs_its_own_rule() {
    let Some(server) = super::mcp::small("beside") else {
        return;
    };
    let files = [
        ("src/a.txt", "one\n"),
        ("lib/b.txt", "two\n"),
        ("ask.sh", BESIDE),
        (".gitignore", "starts.txt\n"),
    ];
    for level in ["full", "landlock"] {
        let policy = format!("{}  - {{ allow: 's__*' }}\n", beside_policy(level));
        let world = repository(&files);
        let recipe = json!({
            "version": 1, "name": "beside", "tools": { "mcp_servers": { "s": server } },
            "steps": [{ "id": "ask", "prompt": "go" }, { "id": "own", "run": BESIDE }],
        });
        let replies = script(&[super::harness::calls("s__echo", json!({})), says("done")]);
        world.recipe(&recipe.to_string(), &replies, &policy, &[]).exits(0);
        assert_only_the_server_is_put_back(&world, level);

        let world = repository(&files);
        let recipe = json!({
            "version": 1, "name": "beside", "tools": { "mcp_servers": { "s": server } },
            "steps": [{ "id": "ask", "prompt": "go" }],
        });
        let replies = script(&[shell("bash ask.sh"), says("done")]);
        world.recipe(&recipe.to_string(), &replies, &policy, &[]).exits(5);
        let out = world.out().to_string_lossy().into_owned();
        world.call(&["resume", &out, "--approve", "c1"]).exits(0);
        assert_only_the_server_is_put_back(&world, level);
    }
}

/// When the step ends and the tree is read, the command has ended except for a remaining process, which gets a moment
/// to exit. The tree is large, so that reading it takes longer than that moment.
#[test]
fn a_command_that_ends_while_the_tree_is_read_made_its_own_changes() {
    let job = "until [ -e src/go.txt ]; do sleep 0.01; done; echo evil > lib/b.txt; touch src/written.txt; sleep 60 &";
    let world = repository(&[("src/a.txt", "one\n"), ("lib/b.txt", "two\n"), ("job.sh", job)]);
    let recipe = json!({
        "version": 1, "name": "beside",
        "steps": [
            { "id": "ask", "prompt": "go" },
            { "id": "own", "run": "head -c 6000000 /dev/urandom > src/large.bin; echo made > src/made.txt; touch src/go.txt; \
                                   until [ -e src/written.txt ]; do sleep 0.002; done" },
        ],
    });
    let start = super::harness::calls(
        "run_shell_command",
        json!({ "command": "bash job.sh", "is_background": true }),
    );
    world
        .recipe(
            &recipe.to_string(),
            &script(&[start, says("done")]),
            &beside_policy("full"),
            &[],
        )
        .exits(0);
    let made = patched(&world);
    assert_eq!(content(&made, "src/made.txt").as_deref(), Some("made\n"), "the control");
    assert_eq!(content(&made, "lib/b.txt").as_deref(), Some("two\n"));
    assert_eq!(unruled(&world.result()), ["lib/b.txt modified - no_rule restored"]);
}
