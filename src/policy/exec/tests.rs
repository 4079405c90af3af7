//! Rulings on execs.

use super::*;
use crate::base::access::{Access, CommandAccess};
use crate::base::call::{ToolKind, ToolOrigin};
use crate::diag::SourceFiles;
use crate::policy::load::{PolicySource, load};
use crate::policy::model::KnownTools;
use crate::policy::shell::corpus::FS_VIEW;
use crate::policy::{decide_with, ruled_commands};
use proptest::prelude::*;
use serde_json::json;

const POLICY: &str = r#"
version: 1
rules:
  - { id: look, allow: run_shell_command, commands: [git diff, git log, sort, cat, rg, find, sed, awk, tar, zcat, wc, ls, env] }
  - { id: build, allow: run_shell_command, commands: [make, python3, ./gen.sh] }
  - { id: bare, allow: run_shell_command, commands: [nosuchtool] }
  - { id: lifted, allow: run_shell_command, commands: [othertool go], runs: anything, writes: tree }
  - { id: free, allow: run_shell_command, commands: [bash], args: any }
  - { id: push, suspend: run_shell_command, commands: [git push] }
  - { id: never, deny: run_shell_command, commands: [rm, curl] }
  - { id: write, allow: write_file, paths: ["src/**"] }
"#;

fn set(text: &str) -> PolicySet {
    let mut files = SourceFiles::new();
    let source = PolicySource {
        name: "p.yaml".to_owned(),
        text: text.to_owned(),
    };
    load(&mut files, &[source], &KnownTools::builtin()).unwrap().0
}

fn setting() -> ExecContext {
    ExecContext {
        root: PathBuf::from("/ws"),
        path: vec![PathBuf::from("/home/u/.cargo/bin"), PathBuf::from("/usr/local/bin")],
        tree_path: Vec::new(),
        machine: MachinePrograms::default(),
        trees: vec![PathBuf::from("/ws")],
        writable: vec![PathBuf::from("/private/home")],
        read_only: vec![PathBuf::from("/private/home/.cargo/bin")],
        ruled: Vec::new(),
        activates: false,
        masks: false,
    }
}

fn asked(args: &serde_json::Value) -> PolicyInput<'_> {
    PolicyInput {
        tool: "run_shell_command",
        kind: ToolKind::Execute,
        origin: &ToolOrigin::Builtin,
        args,
    }
}

fn exec(caller: Starts, path: &str, words: &[&str], cwd: &str) -> Exec {
    let name = path.rsplit('/').next().unwrap();
    Exec {
        caller,
        path: PathBuf::from(path),
        real: PathBuf::from(path),
        argv: std::iter::once(name)
            .chain(words.iter().copied())
            .map(str::to_owned)
            .collect(),
        cwd: PathBuf::from(cwd),
        interpreters: Vec::new(),
        is_unread: false,
    }
}

fn answer(exec: &Exec) -> ExecAnswer {
    let args = json!({});
    judge(&set(POLICY), &asked(&args), &setting(), exec, &FS_VIEW, &mut |_| {})
}

fn by_shell(path: &str, words: &[&str]) -> ExecAnswer {
    answer(&exec(Starts::Judged, path, words, "/ws"))
}

fn code(answer: &ExecAnswer) -> &str {
    match answer {
        ExecAnswer::Allow { .. } => "allowed",
        ExecAnswer::Deny(denial) => &denial.code,
    }
}

fn starts(answer: &ExecAnswer) -> Option<Starts> {
    match answer {
        ExecAnswer::Allow { starts, .. } => Some(starts.clone()),
        ExecAnswer::Deny(_) => None,
    }
}

#[test]
fn words_are_ruled_as_they_really_are() {
    for (path, words, wanted) in [
        ("/usr/bin/sort", &["src/a.txt"][..], "allowed"),
        ("/usr/bin/sort", &["src/z", "-o", "build.rs"], "exec_denied"),
        ("/usr/bin/sort", &["-o", "src/a.txt", "src/b.txt"], "allowed"),
        ("/usr/bin/git", &["diff", "--output=build.rs"], "exec_denied"),
        ("/usr/bin/git", &["diff", "main"], "allowed"),
        ("/usr/bin/git", &["push"], "exec_denied"),
        ("/usr/bin/git", &["status"], "exec_denied"),
        ("/usr/bin/cat", &["../out/secret"], "exec_denied"),
        ("/usr/bin/cat", &[".env"], "exec_denied"),
        ("/usr/bin/cat", &["/etc/passwd"], "exec_denied"),
        ("/usr/bin/rm", &["x"], "exec_denied"),
        ("/usr/bin/find", &["src", "-exec", "rm", "{}", ";"], "exec_denied"),
        ("/usr/bin/id", &[], "exec_denied"),
    ] {
        let found = by_shell(path, words);
        assert_eq!(code(&found), wanted, "{path} {words:?}: {found:?}");
    }
}

/// A denial names the ruling on the words, also where they would have waited for approval.
#[test]
fn what_would_wait_for_approval_is_denied_with_that_code() {
    let policy = "version: 1\nrules:\n  - { allow: run_shell_command, commands: [git push] }\n  - { id: push, suspend: run_shell_command, commands: [git push] }\n";
    let args = json!({});
    let exec = exec(Starts::Judged, "/usr/bin/git", &["push"], "/ws");
    let found = judge(&set(policy), &asked(&args), &setting(), &exec, &FS_VIEW, &mut |_| {});
    let ExecAnswer::Deny(denial) = found else {
        panic!("{found:?}");
    };
    assert_eq!(denial.code, "exec_denied");
    assert_eq!(denial.ruling.as_deref(), Some("suspend_rule"));
    assert_eq!(denial.rule.as_deref(), Some("push"));
}

#[test]
fn operands_of_which_the_sandbox_shows_nothing_do_no_harm() {
    let args = json!({});
    let hides = ExecContext {
        masks: true,
        ..setting()
    };
    for (words, wanted) in [
        (&[".env"][..], "allowed"),
        (&["src/a.txt", ".git/config", "sub/.git/config", "k/a.pem"], "allowed"),
        (&[".git/refs/heads/a.pem"], "exec_denied"),
        (&["../out/secret"], "exec_denied"),
    ] {
        let exec = exec(Starts::Judged, "/usr/bin/cat", words, "/ws");
        let found = judge(&set(POLICY), &asked(&args), &hides, &exec, &FS_VIEW, &mut |_| {});
        assert_eq!(code(&found), wanted, "{words:?}: {found:?}");
        let elsewhere = judge(&set(POLICY), &asked(&args), &setting(), &exec, &FS_VIEW, &mut |_| {});
        assert_eq!(code(&elsewhere), "exec_denied", "{words:?}");
    }
}

#[test]
fn installed_programs_and_runners_are_what_they_start() {
    const RULES: &str = "version: 1\nrules:\n  - { id: tools, allow: run_shell_command, commands: [pytest, ruff check, eslint, cat, rg] }\n  - { id: write, allow: write_file, paths: ['**'] }\n";
    let set = set(RULES);
    let args = json!({});
    let ask = |path: &str, words: &[&str]| {
        let exec = exec(Starts::Judged, path, words, "/ws");
        judge(&set, &asked(&args), &setting(), &exec, &FS_VIEW, &mut |_| {})
    };
    for (path, words) in [
        ("/ws/.venv/bin/pytest", &["-q"][..]),
        ("/ws/sub/venv/bin/pytest", &["tests"]),
        ("/ws/.venv/bin/ruff", &["check"]),
        ("/ws/node_modules/.bin/eslint", &["."]),
        ("/usr/bin/python3", &["-m", "pytest", "-q"]),
        ("/ws/.venv/bin/python3", &["-m", "pytest"]),
        ("/usr/local/bin/uv", &["run", "pytest"]),
    ] {
        assert_eq!(starts(&ask(path, words)), Some(Starts::Anything), "{path} {words:?}");
    }
    for (path, words) in [
        // A program of the tree with the name of a system program, or outside the directories of installed programs.
        ("/ws/.venv/bin/cat", &["src/a.txt"][..]),
        ("/ws/node_modules/.bin/rg", &["x"]),
        ("/ws/node_modules/.bin/pytest", &[]),
        ("/ws/bin/pytest", &[]),
        ("/ws/.venv/pytest", &[]),
        ("/private/home/.venv/bin/pytest", &[]),
        ("/opt/x/.venv/bin/pytest", &[]),
        ("/ws/.venv/bin/ruff", &["format"]),
        ("/ws/.venv/bin/pytest", &["-p", "evil"]),
        ("/ws/.venv/bin/python3", &["x.py"]),
        // Not installed here, so it would be fetched.
        ("/usr/local/bin/npx", &["eslint", "."]),
        ("/usr/local/bin/uvx", &["pytest"]),
        ("/usr/local/bin/uv", &["run", "bash", "-c", "pytest"]),
        // `pyproject.toml` is writable and decides what `ruff` is.
        ("/usr/local/bin/uv", &["run", "ruff", "check"]),
    ] {
        assert_eq!(code(&ask(path, words)), "exec_denied", "{path} {words:?}");
    }
    // The system programs that `activate` starts.
    let uname = exec(Starts::Judged, "/usr/bin/uname", &[], "/ws");
    assert_eq!(
        code(&judge(&set, &asked(&args), &setting(), &uname, &FS_VIEW, &mut |_| {})),
        "exec_denied"
    );
    let active = ExecContext {
        activates: true,
        ..setting()
    };
    assert_eq!(
        starts(&judge(&set, &asked(&args), &active, &uname, &FS_VIEW, &mut |_| {})),
        Some(Starts::Nothing)
    );
}

#[test]
fn a_program_is_known_by_its_place() {
    for (path, wanted) in [
        // A repository's own `git`, and one that a command put into its home or temporary directory.
        ("/ws/1/git", "exec_denied"),
        ("/private/home/git", "exec_denied"),
        ("/tmp/git", "exec_denied"),
        ("/opt/x/git", "exec_denied"),
        ("/usr/bin/git", "allowed"),
        ("/home/u/.cargo/bin/git", "allowed"),
    ] {
        assert_eq!(code(&by_shell(path, &["log"])), wanted, "{path}");
    }
    let script = by_shell("/ws/gen.sh", &[]);
    assert_eq!(starts(&script), Some(Starts::Anything));
    // The name that the caller gives does not matter.
    let mut lying = exec(Starts::Judged, "/usr/bin/id", &["log"], "/ws");
    lying.argv[0] = "git".to_owned();
    assert_eq!(code(&answer(&lying)), "exec_denied");
}

/// Programs of the tree on the search path: a rule for a bare name is meant for the machine's program.
#[test]
fn programs_of_the_tree_do_not_go_by_names_of_the_machine() {
    const RULES: &str = "version: 1\nrules:\n  - { allow: run_shell_command, commands: [cat, git log, env, rg, pytest, mytool, owntool, ./tools/cat] }\n";
    let set = set(RULES);
    let args = json!({});
    let dirs = [
        "/ws/.venv/bin",
        "/ws/tools",
        "/ws/node_modules/.bin",
        "/repo/bin",
        "/link/bin",
    ];
    let find = |name: &str| {
        let path = PathBuf::from(format!("/usr/bin/{name}"));
        let there = ["cat", "git", "env", "mytool", "pytest"].contains(&name);
        there.then(|| MachineProgram {
            real: path.clone(),
            path,
        })
    };
    let setting = ExecContext {
        path: dirs.map(PathBuf::from).to_vec(),
        tree_path: dirs.map(PathBuf::from).to_vec(),
        machine: MachinePrograms::new(find),
        trees: ["/ws", "/repo", "/declared"].map(PathBuf::from).to_vec(),
        ..setting()
    };
    let ask = |path: &str, real: &str, words: &[&str]| {
        let exec = Exec {
            real: PathBuf::from(real),
            ..exec(Starts::Judged, path, words, "/ws")
        };
        judge(&set, &asked(&args), &setting, &exec, &FS_VIEW, &mut |_| {})
    };
    for (path, words) in [
        ("/ws/.venv/bin/cat", &["src/a.txt"][..]),
        ("/ws/.venv/bin/git", &["log"]),
        ("/ws/tools/git", &["log"]),
        ("/ws/.venv/bin/env", &["CI=1", "cat", "src/a.txt"]),
        // No profile says who installs it, and the machine has one.
        ("/ws/.venv/bin/mytool", &[]),
        ("/ws/tools/mytool", &[]),
        // The machine has none, but a profile knows it and no package manager installs it.
        ("/ws/.venv/bin/rg", &["x"]),
        ("/ws/node_modules/.bin/pytest", &[]),
        ("/repo/bin/cat", &["src/a.txt"]),
    ] {
        let found = ask(path, path, words);
        assert_eq!(code(&found), "exec_denied", "{path} {words:?}: {found:?}");
    }
    // A link under another name than the one of the program that it leads to.
    for path in ["/ws/.venv/bin/cat", "/link/bin/cat"] {
        assert_eq!(code(&ask(path, "/usr/bin/python3.12", &["src/a.txt"])), "exec_denied");
        assert_eq!(code(&ask(path, "/usr/bin/cat", &["src/a.txt"])), "allowed");
    }
    // A link out of the tree to another program of its name, as devbox and pixi make them; not into another tree, nor to
    // where a command can write.
    for (real, wanted) in [
        ("/nix/store/x-coreutils/bin/cat", "allowed"),
        ("/nix/store/x-coreutils/bin/tac", "exec_denied"),
        ("/repo/tools/cat", "exec_denied"),
        ("/declared/bin/cat", "exec_denied"),
        ("/private/home/bin/cat", "exec_denied"),
        ("/home/u/.virtualenvs/p/bin/cat", "exec_denied"),
        ("/home/u/p/node_modules/.bin/cat", "exec_denied"),
    ] {
        for path in ["/ws/.venv/bin/cat", "/ws/node_modules/.bin/cat"] {
            let found = ask(path, real, &["src/a.txt"]);
            assert_eq!(code(&found), wanted, "{path} {real}: {found:?}");
        }
    }
    for (path, words) in [
        ("/ws/.venv/bin/pytest", &["-q"][..]),
        ("/ws/tools/pytest", &["-q"]),
        ("/ws/.venv/bin/python3", &["-m", "pytest"]),
        ("/ws/.venv/bin/owntool", &[]),
        ("/ws/tools/owntool", &[]),
        // The rule names this one.
        ("/ws/tools/cat", &["src/a.txt"]),
    ] {
        let found = ask(path, path, words);
        assert_eq!(code(&found), "allowed", "{path} {words:?}: {found:?}");
    }
    let ExecAnswer::Deny(denial) = ask("/ws/.venv/bin/cat", "/ws/.venv/bin/cat", &["src/a.txt"]) else {
        panic!("it was allowed");
    };
    assert!(
        denial.reason.contains("`.venv/bin/cat` shadows /usr/bin/cat: "),
        "{denial:?}"
    );
    assert!(
        denial.fix.starts_with("write `/usr/bin/cat`") && denial.fix.ends_with("let a rule name `./.venv/bin/cat`"),
        "{denial:?}"
    );
}

#[test]
fn what_a_program_may_start() {
    let of = |path: &str, words: &[&str]| starts(&by_shell(path, words));
    assert_eq!(of("/usr/bin/sort", &["a"]), Some(Starts::Nothing));
    assert_eq!(of("/usr/bin/sed", &["e", "src/a.txt"]), Some(Starts::Nothing));
    assert_eq!(of("/usr/bin/find", &["src"]), Some(Starts::Judged));
    assert_eq!(of("/usr/bin/env", &["CI=1", "sort"]), Some(Starts::Judged));
    assert_eq!(of("/usr/bin/bash", &["-c", "sort a"]), Some(Starts::Judged));
    assert_eq!(of("/usr/bin/git", &["log"]), Some(Starts::Helpers("git".to_owned())));
    assert_eq!(of("/usr/bin/make", &[]), Some(Starts::Anything));
    assert_eq!(of("/usr/bin/nosuchtool", &["--any", "option"]), Some(Starts::Nothing));
    assert_eq!(of("/usr/bin/othertool", &["go"]), Some(Starts::Anything));
    assert_eq!(
        of("/usr/bin/othertool", &["go", "--exec=x"]),
        None,
        "an option that no rule spells out"
    );
}

/// A deny rule applies whichever of its names a program is called by.
#[test]
fn parts_of_a_program_are_known_by_each_of_their_names() {
    let policy = "version: 1\nrules:\n  - { allow: run_shell_command, commands: [make] }\n  - { deny: run_shell_command, commands: [git push, rm] }\n";
    let judged = |path: &str, real: &str, argv: &[&str]| {
        let exec = Exec {
            real: PathBuf::from(real),
            argv: argv.iter().map(|word| (*word).to_owned()).collect(),
            ..exec(Starts::Anything, path, &[], "/ws")
        };
        let args = json!({});
        code(&judge(
            &set(policy),
            &asked(&args),
            &setting(),
            &exec,
            &FS_VIEW,
            &mut |_| {},
        ))
        .to_owned()
    };
    for (path, real, argv) in [
        (
            "/usr/lib/git-core/git-push",
            "/usr/bin/git",
            &["git-push", "origin"][..],
        ),
        (
            "/usr/lib/git-core/git-push",
            "/usr/lib/git-core/git-push",
            &["x", "origin"],
        ),
        ("/usr/bin/git", "/usr/bin/git", &["git-push", "origin"]),
        ("/usr/bin/git", "/usr/bin/git", &["/x/git-push"]),
        ("/ws/git-push", "/usr/bin/git", &["./git-push"]),
        ("/bin/busybox", "/bin/busybox", &["busybox", "rm", "x"]),
        ("/bin/rm", "/bin/busybox", &["x", "y"]),
        ("/bin/busybox", "/bin/busybox.static", &["rm", "x"]),
        (
            "/bin/coreutils",
            "/bin/coreutils",
            &["coreutils", "--coreutils-prog=rm", "x"],
        ),
    ] {
        assert_eq!(judged(path, real, argv), "exec_denied", "{path} {argv:?}");
    }
    for (path, real, argv) in [
        ("/usr/lib/git-core/git-log", "/usr/bin/git", &["git-log"][..]),
        ("/usr/bin/git", "/usr/bin/git", &["git", "log", "git-push"]),
        ("/usr/bin/cat", "/usr/bin/cat", &["git-push", "x"]),
        ("/bin/busybox", "/bin/busybox", &["busybox", "ls", "rm"]),
    ] {
        assert_eq!(judged(path, real, argv), "allowed", "{path} {argv:?}");
    }
}

/// The kernel starts the programs that first lines name without another exec.
#[test]
fn a_script_counts_as_the_programs_of_its_first_lines() {
    let policy = "version: 1\nrules:\n  - { allow: run_shell_command, commands: [./run.sh] }\n  - { deny: run_shell_command, commands: [git push, rm, python3 setup.py upload] }\n";
    let set = set(policy);
    let args = json!({});
    let of = |caller: &Starts, lines: &[&[&str]]| {
        let mut exec = exec(caller.clone(), "/ws/run.sh", &[], "/ws");
        let as_line =
            |words: &&[&str]| as_interpreter(words[0], words[1..].iter().map(|word| (*word).to_owned()).collect());
        exec.interpreters = lines.iter().map(as_line).collect();
        code(&judge(&set, &asked(&args), &setting(), &exec, &FS_VIEW, &mut |_| {})).to_owned()
    };
    for caller in [Starts::Anything, Starts::Judged] {
        let denied: [&[&[&str]]; 7] = [
            &[&["/usr/bin/rm", "./run.sh"]],
            &[&["/usr/bin/git", "push", "./run.sh"]],
            &[&["/bin/busybox", "rm", "./run.sh"]],
            &[&["/usr/bin/env", "rm", "./run.sh"]],
            &[&["/lib64/ld-linux-x86-64.so.2", "/usr/bin/rm", "./run.sh"]],
            &[&["/usr/bin/python3", "setup.py", "upload"]],
            &[&["/ws/i", "./run.sh"], &["/usr/bin/rm", "/ws/i", "./run.sh"]],
        ];
        for lines in denied {
            assert_eq!(of(&caller, lines), "exec_denied", "{caller:?} {lines:?}");
        }
        let allowed: [&[&[&str]]; 4] = [
            &[&["/bin/sh", "./run.sh"]],
            &[&["/bin/cat", "rm", "./run.sh"]],
            &[&["/usr/bin/git", "log", "./run.sh"]],
            &[&["/usr/bin/python3", "setup.py", "build"]],
        ];
        for lines in allowed {
            assert_eq!(of(&caller, lines), "allowed", "{caller:?} {lines:?}");
        }
        let unread = |policy: &str| {
            let mut exec = exec(caller.clone(), "/ws/run.sh", &[], "/ws");
            exec.is_unread = true;
            code(&judge(
                &self::set(policy),
                &asked(&args),
                &setting(),
                &exec,
                &FS_VIEW,
                &mut |_| {},
            ))
            .to_owned()
        };
        assert_eq!(unread(policy), "exec_denied");
        assert_eq!(unread(policy.split("  - { deny").next().unwrap()), "allowed");
    }
}

#[test]
fn callers_are_held_to_what_they_may_start() {
    let nothing = answer(&exec(Starts::Nothing, "/usr/bin/sort", &[], "/ws"));
    assert_eq!(code(&nothing), "exec_not_granted");
    let anything = answer(&exec(Starts::Anything, "/usr/bin/id", &[], "/nowhere"));
    assert_eq!(starts(&anything), Some(Starts::Anything));
    let denied = answer(&exec(Starts::Anything, "/usr/bin/curl", &["x"], "/nowhere"));
    assert_eq!(code(&denied), "exec_denied");
    let git = |path: &str| answer(&exec(Starts::Helpers("git".to_owned()), path, &[], "/ws"));
    assert_eq!(code(&git("/usr/lib/git-core/git-merge-base")), "allowed");
    for path in ["/usr/bin/less", "/bin/sh", "/ws/hook", "/usr/bin/id"] {
        assert_eq!(code(&git(path)), "exec_not_granted", "{path}");
    }
    assert!(asks_below_anything(&set(POLICY)));
    assert!(!asks_below_anything(&set(
        "version: 1\nrules: [{ allow: run_shell_command, commands: [make] }]\n"
    )));
}

#[test]
fn writes_are_granted_by_the_rules_for_writing() {
    let policy = set(&POLICY.replace("sort,", "sort, cp, tee,"));
    let args = json!({});
    let ask = |words: &[&str], path: &str| {
        judge(
            &policy,
            &asked(&args),
            &setting(),
            &exec(Starts::Judged, path, words, "/ws"),
            &FS_VIEW,
            &mut |_| {},
        )
    };
    match ask(&["src/a.txt", "src/c.txt"], "/usr/bin/cp") {
        ExecAnswer::Allow { writes, .. } => assert_eq!(writes[0].path, "src/c.txt"),
        other => panic!("{other:?}"),
    }
    assert_eq!(code(&ask(&["src/a.txt", "build.rs"], "/usr/bin/cp")), "exec_denied");
}

#[test]
fn what_was_ruled_before_is_not_ruled_again() {
    let policy = set(POLICY);
    let args = json!({});
    let access = Access {
        commands: vec![CommandAccess {
            text: "env CI=1 git push && sort src/a.txt $(cat list)".to_owned(),
            dir: String::new(),
        }],
        ..Access::none()
    };
    let asked = asked(&args);
    let (ruled, _) = ruled_commands(&policy, &asked, &access, &FS_VIEW);
    let names: Vec<&str> = ruled.iter().map(|one| one.program.as_str()).collect();
    assert_eq!(names, ["git", "env", "cat"], "{ruled:?}");
    let setting = ExecContext { ruled, ..setting() };
    // The push was held and approved before the command started.
    let approved = exec(Starts::Judged, "/usr/bin/git", &["push"], "/ws");
    assert_eq!(
        code(&judge(&policy, &asked, &setting, &approved, &FS_VIEW, &mut |_| {})),
        "allowed"
    );
    let elsewhere = exec(Starts::Judged, "/usr/bin/git", &["push"], "/ws/src");
    assert_eq!(
        code(&judge(&policy, &asked, &setting, &elsewhere, &FS_VIEW, &mut |_| {})),
        "exec_denied"
    );
    let other = exec(Starts::Judged, "/usr/bin/git", &["push", "-f"], "/ws");
    assert_eq!(
        code(&judge(&policy, &asked, &setting, &other, &FS_VIEW, &mut |_| {})),
        "exec_denied"
    );
}

#[test]
fn a_ruling_says_what_is_left_to_the_exec_and_what_may_be_written() {
    use crate::base::grant::Writes;
    let policy = set(&POLICY.replace("sort,", "sort, tee, cp,"));
    let args = json!({});
    let rule = |text: &str| {
        let access = Access {
            commands: vec![CommandAccess {
                text: text.to_owned(),
                dir: String::new(),
            }],
            ..Access::none()
        };
        decide_with(
            &policy,
            &asked(&args),
            &access,
            &FS_VIEW,
            &crate::policy::Uses::default(),
            true,
        )
    };
    let deferred = rule("git diff $(cat list)");
    assert_eq!(deferred.decision, Decision::Allow, "{}", deferred.reason);
    assert_eq!(deferred.deferred[0].program, "git");
    assert_eq!(deferred.deferred[0].rule.as_deref(), Some("look"));
    assert_eq!(deferred.writes, Writes::Nothing);
    assert_eq!(rule("sort src/a.txt | wc -l").writes, Writes::Nothing);
    assert_eq!(rule("make all").writes, Writes::Tree);
    match rule("sort src/a.txt > src/b.txt").writes {
        Writes::Paths { paths, maybe } => {
            assert_eq!((paths[0].path.as_str(), maybe.len()), ("src/b.txt", 0));
            assert_eq!(paths[0].kind, crate::base::grant::WriteKind::InPlace);
        }
        other => panic!("{other:?}"),
    }
    match rule("cp src/a.txt \"src/$x\"").writes {
        Writes::Paths { maybe, .. } => assert_eq!(maybe, ["src"]),
        other => panic!("{other:?}"),
    }
    // A suspend rule about other commands never holds a command that is only unknown.
    assert_eq!(rule("python3 - <<'E'\nprint(1)\nE").decision, Decision::Deny);
    assert_eq!(rule("git \"$x\"").decision, Decision::Deny);
    assert_eq!(rule("git push").decision, Decision::Suspend);
}

/// Programs that [`POLICY`] grants, and what may start others.
const GRANTED: [&str; 15] = [
    "git",
    "sort",
    "cat",
    "rg",
    "find",
    "sed",
    "awk",
    "tar",
    "zcat",
    "wc",
    "ls",
    "env",
    "make",
    "python3",
    "nosuchtool",
];

fn any_path() -> impl Strategy<Value = String> {
    let names = prop::sample::select(vec![
        "git",
        "sort",
        "cat",
        "rm",
        "curl",
        "sh",
        "bash",
        "env",
        "make",
        "python3",
        "gen.sh",
        "othertool",
        "xargs",
        "nosuchtool",
        "git-remote-https",
        "a b",
        "..",
        "-x",
        "\u{ff0e}git",
    ]);
    let dirs = prop::sample::select(vec![
        "/usr/bin",
        "/bin",
        "/usr/local/bin",
        "/ws",
        "/ws/target",
        "/tmp",
        "/private/home/bin",
        "/usr/bin/../../ws",
        "/usr/lib/git-core",
        "",
    ]);
    prop_oneof![
        4 => (dirs, names).prop_map(|(dir, name)| format!("{dir}/{name}")),
        1 => any::<String>(),
    ]
}

fn as_interpreter(path: &str, words: Vec<String>) -> Interpreter {
    Interpreter {
        path: PathBuf::from(path),
        real: PathBuf::from(path),
        argv: std::iter::once(path.to_owned()).chain(words).collect(),
    }
}

fn any_word() -> impl Strategy<Value = String> {
    prop_oneof![
        3 => prop::sample::select(vec![
            "-o", "src/x", "../x", "/etc/passwd", "--output=x", "-c", "rm x", "e", "push", "diff", "--ext-diff", "-exec", "{}", ";", "-i", "go",
            "--", "-", "src/../../x", "--pager=sh", "$(x)", "*.rs",
        ]).prop_map(str::to_owned),
        1 => any::<String>(),
    ]
}

proptest! {
    /// Every exec gets an answer, whatever its path, words and parent are, and only granted programs may run.
    #[test]
    fn no_exec_is_let_go_that_nothing_grants(
        path in any_path(),
        words in prop::collection::vec(any_word(), 0..6),
        caller in prop::sample::select(vec![
            Starts::Nothing, Starts::Judged, Starts::Anything, Starts::Helpers("git".to_owned()), Starts::Helpers("none".to_owned()),
        ]),
        cwd in prop::sample::select(vec!["/ws", "/ws/src", "/", "/tmp", "/ws/../etc"]),
        line in prop::option::of((any_path(), prop::collection::vec(any_word(), 0..3))),
    ) {
        let interpreters: Vec<Interpreter> = line.into_iter().map(|(path, words)| as_interpreter(&path, words)).collect();
        let exec = Exec {
            caller: caller.clone(),
            path: PathBuf::from(&path),
            real: PathBuf::from(&path),
            argv: std::iter::once(path.clone()).chain(words).collect(),
            cwd: PathBuf::from(cwd),
            interpreters: interpreters.clone(),
            is_unread: false,
        };
        let name = path.rsplit('/').next().unwrap_or_default();
        let found = answer(&exec);
        match (&caller, &found) {
            (Starts::Nothing, ExecAnswer::Allow { .. }) => prop_assert!(false, "{exec:?}"),
            (Starts::Helpers(list), ExecAnswer::Allow { .. }) => prop_assert!(list == "git", "{exec:?}"),
            (Starts::Judged, ExecAnswer::Allow { writes, .. }) => {
                let granted = GRANTED.contains(&name) || ["bash", "othertool", "gen.sh", "xargs"].contains(&name);
                prop_assert!(granted, "{exec:?}");
                prop_assert!(exec.cwd.starts_with("/ws"), "{exec:?}");
                prop_assert!(writes.iter().all(|write| write.path.starts_with("src")), "{exec:?} {writes:?}");
            }
            (_, ExecAnswer::Deny(denial)) => prop_assert!(!denial.reason.is_empty() && !denial.fix.is_empty()),
            (Starts::Anything, ExecAnswer::Allow { .. }) => {}
        }
        // No process may run what a deny rule names, nor a script of it.
        let never = ["/usr/bin/rm", "/bin/rm", "/usr/bin/curl", "/usr/local/bin/curl"].map(Path::new);
        let mut run = interpreters.iter().map(|one| one.path.as_path()).chain([Path::new(&path)]);
        if run.any(|path| never.contains(&path)) {
            prop_assert!(matches!(found, ExecAnswer::Deny(_)), "{exec:?}");
        }
    }
}
