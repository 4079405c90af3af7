//! Suggested policies load, allow what was done, and open nothing that a rule or bound closes.

use super::*;
use crate::base::ruling::PolicyInput;
use crate::diag::SourceFiles;
use crate::policy::load::{PolicySource, load};
use crate::policy::model::{KnownTools, PolicySet, Uses};
use crate::policy::{decide, lexical_access};
use serde_json::{Value, json};

fn set(text: &str) -> PolicySet {
    let source = PolicySource {
        name: "s.yaml".to_owned(),
        text: text.to_owned(),
    };
    load(&mut SourceFiles::new(), &[source], &KnownTools::builtin())
        .unwrap()
        .0
}

fn seen(set: &PolicySet, tool: &str, args: &Value) -> RecordedCall {
    let (tool, kind, origin, access) = lexical_access::by_name(tool, args);
    let asked = PolicyInput {
        tool: &tool,
        kind,
        origin: &origin,
        args,
    };
    let ruling = lexical_access::without_tree(|fs_view| decide(set, &asked, &access, fs_view, &Uses::default()));
    RecordedCall {
        tool,
        kind,
        origin,
        args: args.clone(),
        access,
        ruling,
    }
}

fn text_for(run: &RunToCover) -> String {
    let mut found = Suggestion::default();
    lexical_access::without_tree(|fs_view| found.note(run, fs_view));
    found.text()
}

fn suggested(done: &[RecordedCall], shown: &ObservedEffects) -> String {
    let run = RunToCover {
        policies: None,
        calls: done.to_vec(),
        shown: shown.clone(),
    };
    text_for(&run)
}

#[test]
fn commands_are_read_as_the_run_read_them() {
    let policy = set("version: 1\nprofiles:\n  lister: { operands: input* }\nenv: { pass: [MODE] }\n");
    let commands = ["grep -c foo $(ls)", "MODE=fast lister a"];
    let done = commands.map(|command| seen(&policy, SHELL, &json!({ "command": command })));
    let run = RunToCover {
        policies: Some(policy.clone()),
        calls: done.to_vec(),
        shown: ObservedEffects::default(),
    };
    let text = text_for(&run);
    assert!(!text.contains("Not suggested") && text.contains("lister"), "{text}");
    let ruling = seen(&set(&text), SHELL, &json!({ "command": commands[0] })).ruling;
    assert_eq!(ruling.decision, Decision::Allow, "{}\n{text}", ruling.reason);
    let hidden = seen(&policy, SHELL, &json!({ "command": "git $(cat a) b" }));
    let text = suggested(&[hidden], &ObservedEffects::default());
    assert!(text.contains("Not suggested") && !text.contains("git b"), "{text}");
}

#[test]
fn what_is_suggested_allows_what_was_done() {
    let done = [
        ("read_file", json!({ "file_path": "src/a.rs" })),
        ("write_file", json!({ "file_path": "src/[a]*.rs" })),
        ("replace", json!({ "file_path": "docs/\"b\".md" })),
        (
            "run_shell_command",
            json!({ "command": "cargo test --lib && npm run lint" }),
        ),
        ("run_shell_command", json!({ "command": "ls > out.txt" })),
        (
            "run_shell_command",
            json!({ "command": "mkdir -p out/new && cp a.txt out/new/b.txt" }),
        ),
        ("web_fetch", json!({ "url": "https://docs.rs/serde" })),
        ("web_fetch", json!({ "url": "https://x.example:8443/" })),
        ("docs__search", json!({ "query": "x" })),
        ("lint", json!({})),
        ("write_todos", json!({})),
        ("google_web_search", json!({ "query": "x" })),
    ];
    let closed = set("version: 1\n");
    let calls_seen: Vec<RecordedCall> = done.iter().map(|(tool, args)| seen(&closed, tool, args)).collect();
    let text = suggested(&calls_seen, &ObservedEffects::default());
    let opened = set(&text);
    for (tool, args) in &done {
        let ruling = seen(&opened, tool, args).ruling;
        assert_eq!(
            ruling.decision,
            Decision::Allow,
            "{tool} {args}: {}\n{text}",
            ruling.reason
        );
    }
    for (tool, args) in [
        ("write_file", json!({ "file_path": "src/ab.rs" })),
        ("run_shell_command", json!({ "command": "cargo publish" })),
        ("web_fetch", json!({ "url": "https://evil.example/" })),
    ] {
        assert_eq!(
            seen(&opened, tool, &args).ruling.decision,
            Decision::Deny,
            "{tool} {args}\n{text}"
        );
    }
}

#[test]
fn paths_of_any_name_are_suggested_or_listed() {
    let closed = set("version: 1\n");
    let long = format!("src/{}", "n".repeat(600));
    let paths = ["!note.md", "~x.md", "~/!a.md", "src/!b~.md"];
    let mut calls_seen: Vec<RecordedCall> = paths
        .iter()
        .map(|path| seen(&closed, "write_file", &json!({ "file_path": path })))
        .collect();
    calls_seen.push(seen(&closed, "replace", &json!({ "file_path": long })));
    let text = suggested(&calls_seen, &ObservedEffects::default());
    let opened = set(&text);
    for path in paths {
        let ruling = seen(&opened, "write_file", &json!({ "file_path": path })).ruling;
        assert_eq!(ruling.decision, Decision::Allow, "{path}: {}\n{text}", ruling.reason);
    }
    assert!(
        text.contains("longer than 512 bytes") && !text.contains("replace]"),
        "{text}"
    );
    let other = seen(&opened, "write_file", &json!({ "file_path": "note.md" })).ruling;
    assert_eq!(other.decision, Decision::Deny, "{text}");
}

#[test]
fn what_was_closed_for_a_reason_stays_closed() {
    let policy =
        set("version: 1\nrules:\n  - { allow: '*' }\n  - { id: no-rm, deny: run_shell_command, commands: [rm] }\n");
    let calls_seen = [
        seen(&policy, "read_file", &json!({ "file_path": ".env" })),
        seen(&policy, "write_file", &json!({ "file_path": ".git/config" })),
        seen(&policy, "run_shell_command", &json!({ "command": "rm x" })),
        seen(&policy, "run_shell_command", &json!({ "command": "eval x" })),
    ];
    let text = suggested(&calls_seen, &ObservedEffects::default());
    assert!(!text.contains("allow") && text.matches("# - ").count() == 4, "{text}");
    assert!(text.contains("rule no-rm"), "{text}");
    set(&text);
}

#[test]
fn a_command_gets_the_hosts_that_it_names_in_rules_and_sandbox() {
    let closed = set("version: 1\n");
    let commands = [
        "curl -s https://docs.rs/serde",
        "curl -s http://x.example:8080/a",
        "curl -s plain.example",
    ];
    let calls_seen = commands.map(|command| seen(&closed, "run_shell_command", &json!({ "command": command })));
    let text = suggested(&calls_seen, &ObservedEffects::default());
    let opened = set(&text);
    for command in commands {
        let ruling = seen(&opened, "run_shell_command", &json!({ "command": command })).ruling;
        assert_eq!(ruling.decision, Decision::Allow, "{command}: {}\n{text}", ruling.reason);
    }
    let hosts: Vec<String> = opened.network().iter().map(ToString::to_string).collect();
    assert_eq!(
        hosts,
        ["docs.rs", "http://plain.example", "http://x.example:8080"],
        "{text}"
    );
}

#[test]
fn the_header_is_a_comment_that_names_the_policies() {
    let cases: [(&[&str], &str); 4] = [
        (&[], "into a policy file that `--policy` names:"),
        (&["ci/policy.yaml"], "into `ci/policy.yaml`:"),
        (
            &["builtin:node"],
            "a policy file of your own that extends `builtin:node`",
        ),
        (
            &["a\nb.yaml", "builtin:node"],
            "`a\\u{a}b.yaml` and `builtin:node`; instead of a shipped one",
        ),
    ];
    for (names, told) in cases {
        let text = header(&names.iter().map(|name| (*name).to_owned()).collect());
        assert!(text.contains(told), "{text}");
        assert!(text.lines().all(|line| line.starts_with('#')), "{text}");
    }
}

#[test]
fn many_files_of_one_directory_become_one_pattern() {
    let closed = set("version: 1\n");
    let calls_seen: Vec<RecordedCall> = ["a", "b", "c", "d"]
        .iter()
        .map(|name| seen(&closed, "write_file", &json!({ "file_path": format!("src/{name}.rs") })))
        .collect();
    let text = suggested(&calls_seen, &ObservedEffects::default());
    assert_eq!(
        text,
        "version: 1\nrules:\n  - allow: [write_file]\n    paths: [\"src/**\"]\n"
    );
}

#[test]
fn what_showed_while_commands_ran_is_suggested() {
    let exec = |path: &str, argv: &[&str], denied: Option<(&str, Option<&str>)>| JudgedExec {
        path: path.to_owned(),
        argv: argv.iter().map(|word| (*word).to_owned()).collect(),
        cwd: String::new(),
        denied: denied.map(|(code, ruling)| crate::base::grant::ExecDenial {
            rule: (ruling == Some("deny_rule")).then(|| "no-push".to_owned()),
            code: code.to_owned(),
            ruling: ruling.map(str::to_owned),
            reason: "because".to_owned(),
            fix: "add `runs: anything`".to_owned(),
        }),
    };
    let change = |path: &str, code: &str, left: bool| Unruled {
        path: path.to_owned(),
        change: crate::base::event::PathChange::Modified,
        rule: None,
        code: code.to_owned(),
        denied: false,
        left,
        restored: !left,
    };
    let shown = ObservedEffects {
        execs: vec![
            exec(
                "/usr/bin/cargo",
                &["cargo", "fmt", "--all"],
                Some(("exec_denied", Some("no_rule"))),
            ),
            exec(
                "/usr/bin/grep",
                &["innocent", "-n", "it's", "src/a.rs"],
                Some(("exec_denied", Some("no_rule"))),
            ),
            exec(
                "/usr/bin/sed",
                &["sed", "-i", "s/a/b/", "README.md"],
                Some(("exec_denied", Some("redirect_write"))),
            ),
            exec("/usr/bin/sort", &["sort", "a"], None),
            exec(
                "/usr/bin/git",
                &["git", "push"],
                Some(("exec_denied", Some("deny_rule"))),
            ),
            exec(
                "/usr/bin/gh",
                &["gh", "pr", "list"],
                Some(("exec_denied", Some("suspend_rule"))),
            ),
            // By a journal of an earlier version.
            exec("/usr/bin/rm", &["rm", "b"], Some(("exec_denied", None))),
            exec("/usr/bin/id", &["id"], Some(("exec_not_granted", None))),
        ],
        unruled: vec![
            change("lib/a.rs", "no_rule", false),
            change("out.log", "no_rule", true),
            change(".env", "secret_like_path", false),
        ],
    };
    let text = suggested(&[], &shown);
    let opened = set(&text);
    for (tool, args, allowed) in [
        ("run_shell_command", json!({ "command": "cargo fmt --all" }), true),
        ("run_shell_command", json!({ "command": "grep -n it src/a.rs" }), true),
        (
            "run_shell_command",
            json!({ "command": "sed -i s/a/b/ README.md" }),
            true,
        ),
        ("run_shell_command", json!({ "command": "gh pr list" }), true),
        ("run_shell_command", json!({ "command": "sort a" }), false),
        ("run_shell_command", json!({ "command": "rm b" }), false),
        ("run_shell_command", json!({ "command": "id" }), false),
        ("run_shell_command", json!({ "command": "git push" }), false),
        ("write_file", json!({ "file_path": "lib/a.rs" }), true),
        ("write_file", json!({ "file_path": "out.log" }), false),
        ("write_file", json!({ "file_path": ".env" }), false),
    ] {
        let ruling = seen(&opened, tool, &args).ruling;
        assert_eq!(
            ruling.decision == Decision::Allow,
            allowed,
            "{args}: {ruling:?}\n{text}"
        );
    }
    for comment in [
        "# - run_shell_command: `git push`",
        "# - run_shell_command: `id`: because (exec_not_granted): add `runs: anything`",
        "# - out.log: was left out",
        "# - .env: was put back",
    ] {
        assert!(text.contains(comment), "{comment}\n{text}");
    }
}

#[test]
fn what_the_policies_of_a_run_allow_is_not_suggested() {
    let policy = set("version: 1\nextends: [builtin:edit]\n");
    let done = [
        seen(&policy, "read_file", &json!({ "file_path": "src/a.rs" })),
        seen(&policy, "write_file", &json!({ "file_path": "src/a.rs" })),
        seen(&policy, "web_fetch", &json!({ "url": "https://docs.rs/serde" })),
    ];
    let suggested = |calls_seen: &[RecordedCall]| {
        let run = RunToCover {
            policies: Some(policy.clone()),
            calls: calls_seen.to_vec(),
            shown: ObservedEffects::default(),
        };
        text_for(&run)
    };
    assert_eq!(
        suggested(&done),
        "version: 1\nrules:\n  - allow: web_fetch\n    hosts: [\"docs.rs\"]\n"
    );
    assert_eq!(suggested(&done[..2]), "version: 1\n# Nothing is missing.\n");
    // A version that allowed more left records of what is denied now.
    let mut older = done[2].clone();
    older.ruling = done[0].ruling.clone();
    assert!(suggested(&[older]).contains("docs.rs"));
}

/// A recorded call that only another rule denies now lacks no rule; one that would be held at its exec lacks one.
#[test]
fn an_access_that_is_covered_leaves_no_rule_without_paths() {
    let done = seen(
        &set("version: 1\nrules:\n  - { allow: write_file, paths: ['src/**'] }\n"),
        "write_file",
        &json!({ "file_path": "src/a.rs" }),
    );
    let policy = set(
        "version: 1\nrules:\n  - { allow: write_file, paths: ['src/**'] }\n  - { deny: write_file, paths: ['src/a.rs'] }\n",
    );
    let run = RunToCover {
        policies: Some(policy),
        calls: vec![done],
        shown: ObservedEffects::default(),
    };
    let text = text_for(&run);
    assert_eq!(text, "version: 1\n# Nothing is missing.\n");
    let policy = set(
        "version: 1\nrules:\n  - { allow: run_shell_command, commands: [gh] }\n  - { suspend: run_shell_command, commands: [gh pr] }\n",
    );
    let held = JudgedExec {
        path: "/usr/bin/gh".to_owned(),
        argv: ["gh", "pr", "list"].map(str::to_owned).to_vec(),
        cwd: String::new(),
        denied: Some(crate::base::grant::ExecDenial {
            rule: None,
            code: "exec_denied".to_owned(),
            ruling: Some("suspend_rule".to_owned()),
            reason: "because".to_owned(),
            fix: String::new(),
        }),
    };
    let run = RunToCover {
        policies: Some(policy),
        calls: Vec::new(),
        shown: ObservedEffects {
            execs: vec![held],
            unruled: Vec::new(),
        },
    };
    assert!(text_for(&run).contains("commands: [\"gh pr\"]"), "{}", text_for(&run));
}

/// Only what is missing is suggested: a rule for a command that the policy allows already would allow more of it.
#[test]
fn what_a_denied_line_may_do_already_is_not_suggested() {
    let policy = set(
        "version: 1\nrules:\n  - allow: run_shell_command\n    commands: [cat, ls, sort]\n    except: { paths: ['internal/**'] }\n  - { allow: write_file, paths: ['src/**'] }\n",
    );
    for (command, rules) in [
        (
            "sort -o out.txt data.csv",
            "  - allow: write_file\n    paths: [\"out.txt\"]\n",
        ),
        (
            "ls && cd src && touch z.py && cat z.py",
            "  - allow: run_shell_command\n    commands: [\"touch\"]\n",
        ),
        (
            "cat a > src/b && make CC=gcc all",
            "  - allow: run_shell_command\n    commands: [\"make\"]\n",
        ),
    ] {
        let done = seen(&policy, SHELL, &json!({ "command": command }));
        assert_eq!(done.ruling.decision, Decision::Deny, "{command}");
        let run = RunToCover {
            policies: Some(policy.clone()),
            calls: vec![done],
            shown: ObservedEffects::default(),
        };
        assert_eq!(text_for(&run), format!("version: 1\nrules:\n{rules}"), "{command}");
    }
}
