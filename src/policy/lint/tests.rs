//! Each warning, with the smallest rules that cause it.

use super::*;
use crate::diag::SourceFiles;
use crate::policy::load::{PolicySource, load};
use crate::policy::model::KnownTools;

fn codes(rules: &str) -> Vec<&'static str> {
    let text = format!("version: 1\nrules:\n{rules}");
    let source = PolicySource {
        name: "p.yaml".to_owned(),
        text,
    };
    let (set, _) = load(&mut SourceFiles::new(), &[source], &KnownTools::builtin()).unwrap();
    lint(&set).iter().map(|problem| problem.code).collect()
}

#[test]
fn a_program_of_the_tree_is_writable_unless_a_rule_keeps_it() {
    for (rules, is_writable) in [
        ("  - { allow: write_file }\n", true),
        ("  - { allow: replace }\n", true),
        ("  - { allow: 'kind:edit', paths: ['ci/**'] }\n", true),
        ("  - { allow: write_file, except: [ci/run.sh] }\n", false),
        ("  - { allow: write_file, paths: ['src/**'] }\n", false),
        (
            "  - { allow: 'kind:edit' }\n  - { deny: 'kind:edit', paths: ['ci/**'] }\n",
            false,
        ),
        (
            "  - { allow: 'kind:edit' }\n  - { suspend: 'kind:edit', paths: ['ci/**'] }\n",
            false,
        ),
        (
            "  - { allow: 'kind:edit' }\n  - { deny: write_file, paths: [ci/run.sh] }\n",
            true,
        ),
        (
            "  - { allow: 'kind:edit' }\n  - { deny: 'kind:edit', paths: ['ci/**'], except: [ci/run.sh] }\n",
            true,
        ),
        (
            "  - { allow: write_file }\n  - { deny: write_file, paths: ['src/**'] }\n",
            true,
        ),
    ] {
        let found = codes(&format!(
            "  - {{ allow: run_shell_command, commands: [ci/run.sh] }}\n{rules}"
        ));
        assert_eq!(found.contains(&"writable-program"), is_writable, "{rules}: {found:?}");
    }
}

#[test]
fn readers_are_those_that_show_contents() {
    let names: Vec<&str> = readers().map(|tool| tool.name.as_str()).collect();
    assert_eq!(names, ["read_file", "read_many_files", "grep_search"]);
}

#[test]
fn a_denial_that_leaves_other_readers_is_told() {
    let all = "  - { allow: ['kind:read', 'kind:search'] }\n";
    for (rules, told) in [
        ("  - { deny: read_file, paths: ['private/**'] }\n", true),
        ("  - { deny: read_file, paths: [private.txt] }\n", true),
        ("  - { deny: [read_file, grep_search], paths: ['**/*.key'] }\n", true),
        (
            "  - { deny: ['kind:read', 'kind:search'], paths: ['private/**'] }\n",
            false,
        ),
        ("  - { deny: '*', paths: ['private/**'] }\n", false),
        ("  - { deny: write_file, paths: ['private/**'] }\n", false),
        (
            "  - { deny: read_file, paths: ['private/**'] }\n  - { deny: [read_many_files, grep_search] }\n",
            false,
        ),
    ] {
        let found = codes(&format!("{all}{rules}"));
        assert_eq!(found.contains(&"other-readers"), told, "{rules}: {found:?}");
        let narrow = codes(&format!("  - {{ allow: '*', paths: ['src/**'] }}\n{rules}"));
        assert!(!narrow.contains(&"other-readers"), "{rules}: {narrow:?}");
    }
}

#[test]
fn profiles_that_are_not_used_or_replace_one() {
    let with = |rules: &str| {
        let text = format!(
            "version: 1\nprofiles:\n  lister: {{ operands: input* }}\n  kubectl: {{ operands: value* }}\nrules:\n{rules}"
        );
        let source = PolicySource {
            name: "p.yaml".to_owned(),
            text,
        };
        let (set, _) = load(&mut SourceFiles::new(), &[source], &KnownTools::builtin()).unwrap();
        lint(&set).iter().map(|problem| problem.code).collect::<Vec<_>>()
    };
    let used = with("  - { allow: run_shell_command, commands: [lister, kubectl] }\n");
    assert_eq!(used, ["replaces-profile"]);
    let unused = with("  - { allow: run_shell_command, commands: [cat] }\n");
    assert_eq!(unused, ["unused-profile", "unused-profile", "replaces-profile"]);
}

#[test]
fn a_policy_without_a_sandbox_says_so() {
    for (level, expected) in [("none", &["no-sandbox"][..]), ("auto", &[]), ("landlock", &[])] {
        let source = PolicySource {
            name: "p.yaml".to_owned(),
            text: format!("version: 1\nextends: [builtin:look]\nsandbox: {{ level: {level} }}\n"),
        };
        let (set, _) = load(&mut SourceFiles::new(), &[source], &KnownTools::builtin()).unwrap();
        let found: Vec<_> = lint(&set).iter().map(|problem| problem.code).collect();
        assert_eq!(found, expected);
    }
}

#[test]
fn each_warning() {
    for (rules, expected) in [
        ("  - allow: run_shell_command\n", vec!["code-execution"]),
        (
            "  - { allow: run_shell_command, commands: [python3] }\n",
            vec!["code-execution"],
        ),
        (
            "  - { allow: run_shell_command, commands: ['bash -c'] }\n",
            vec!["code-execution"],
        ),
        (
            "  - { allow: run_shell_command, commands: [python3 -m pytest] }\n",
            vec![],
        ),
        (
            "  - { allow: run_shell_command, commands: [cargo test] }\n",
            vec!["runs-repository-code"],
        ),
        (
            "  - { allow: run_shell_command, commands: [curl] }\n",
            vec!["network-program"],
        ),
        (
            "  - { allow: run_shell_command, commands: [git diff], args: any }\n",
            vec!["any-arguments"],
        ),
        ("  - { allow: read_file, commands: [ls] }\n", vec!["never-matches"]),
        (
            "  - { allow: run_shell_command, commands: [FOO=1 ls, timeout 60 ls -l, nice -n 5 ls, time -p ls, env A=b ls, nohup ls, env timeout 5 ls] }\n",
            vec!["never-matches"; 7],
        ),
        ("  - { deny: run_shell_command, commands: [timeout 60 ls] }\n", vec![]),
        (
            "  - { allow: run_shell_command, paths: ['src/**'] }\n",
            vec!["no-commands"],
        ),
        (
            "  - { allow: run_shell_command, paths: ['src/**'] }\n  - { allow: run_shell_command, commands: [ls] }\n",
            vec![],
        ),
        ("  - { allow: 's__t', paths: [a] }\n", vec!["never-matches"]),
        ("  - { allow: write_file, hosts: [docs.rs] }\n", vec!["never-matches"]),
        (
            "  - { modify: replace, pipe: x }\n  - { allow: write_file, paths: [a] }\n",
            vec!["unused-modify"],
        ),
        (
            "  - { allow: write_file, paths: [a] }\n  - { deny: write_file }\n",
            vec!["shadowed"],
        ),
        (
            "  - { allow: write_file, paths: ['**'] }\n  - { allow: write_file, paths: [a] }\n",
            vec!["shadowed"],
        ),
        (
            "  - { allow: write_file, paths: [a], times: 1 }\n  - { allow: write_file, paths: [b] }\n",
            vec![],
        ),
        ("  - { deny: '*', paths: ['*.pem'] }\n", vec!["only-at-the-top"]),
        (
            "  - { allow: write_file, paths: [.github/workflows/ci.yml] }\n",
            vec!["opens-protected"],
        ),
        ("  - { allow: write_file, paths: ['.git/**'] }\n", vec!["opens-nothing"]),
        (
            "  - { allow: run_shell_command, commands: [git add, git tag] }\n",
            vec!["closed-repository"],
        ),
        (
            "  - { suspend: run_shell_command, commands: [git tag] }\n",
            vec!["closed-repository"],
        ),
        (
            "  - { allow: run_shell_command, commands: [git tag, git add], paths: ['.git/**'] }\n  \
             - { suspend: run_shell_command, commands: [git tag -a] }\n",
            vec![],
        ),
        ("  - allow: web_fetch\n", vec!["every-host"]),
        ("  - { allow: web_fetch, hosts: [docs.rs] }\n", vec![]),
    ] {
        assert_eq!(codes(rules), expected, "{rules}");
    }
}

#[test]
fn a_network_without_limits_is_told_where_it_is_given() {
    for (hosts, expected) in [
        ("['*']", vec!["every-host"]),
        ("[docs.rs, '*']", vec!["every-host"]),
        ("['*.docs.rs']", vec![]),
        ("none", vec![]),
    ] {
        let text = format!("version: 1\nsandbox:\n  network: {hosts}\n");
        let source = PolicySource {
            name: "p.yaml".to_owned(),
            text,
        };
        let mut files = SourceFiles::new();
        let (set, _) = load(&mut files, &[source], &KnownTools::builtin()).unwrap();
        let found = lint(&set);
        let codes: Vec<&str> = found.iter().map(|one| one.code).collect();
        assert_eq!(codes, expected, "{hosts}");
        for one in &found {
            assert!(
                files.place(one.span.unwrap()).to_string().starts_with("p.yaml:3:"),
                "{hosts}"
            );
        }
    }
}

#[test]
fn what_a_preset_lets_run_any_code_is_noted() {
    let noted = |text: &str| {
        let source = PolicySource {
            name: "p.yaml".to_owned(),
            text: format!("version: 1\n{text}"),
        };
        let (set, _) = load(&mut SourceFiles::new(), &[source], &KnownTools::builtin()).unwrap();
        assert!(lint(&set).is_empty(), "{text}");
        notes(&set)
    };
    let python = noted("extends: [builtin:python]\n");
    assert!(
        python
            .iter()
            .any(|line| line.contains("`python`, `python3` with any arguments")),
        "{python:?}"
    );
    assert_eq!(noted("extends: [builtin:look]\n"), Vec::<String>::new());
}
