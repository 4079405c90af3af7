//! Tests of loading: accepted and refused files, positions of problems, names known only later, several files.

use super::*;
use crate::base::budget::Budget;
use crate::policy::model::RequestedLevel;
use crate::policy::secrets_like::is_masked_by_name;

fn source(text: &str) -> PolicySource {
    PolicySource {
        name: "p.yaml".to_owned(),
        text: text.to_owned(),
    }
}

fn loaded(texts: &[&str]) -> PolicySet {
    let sources: Vec<PolicySource> = texts
        .iter()
        .enumerate()
        .map(|(index, text)| PolicySource {
            name: format!("p{index}.yaml"),
            text: (*text).to_owned(),
        })
        .collect();
    load(&mut SourceFiles::new(), &sources, &KnownTools::builtin())
        .unwrap()
        .0
}

#[test]
fn an_example_is_a_call_as_the_tool_takes_it() {
    let of = |rule: &str| loaded(&[&format!("version: 1\nrules:\n  - {rule}\n")]);
    of("{ allow: list_directory, with: { dir_path: src }, match: [src], not_match: [lib] }");
    of("{ allow: read_many_files, with: { include: a.rs }, match: [a.rs], not_match: [b.rs] }");
    of("{ allow: replace, with: { file_path: a.rs }, match: [a.rs], not_match: [b.rs] }");
}

/// What is written for a tool with arguments in brackets loads as it stands, whatever the arguments are.
#[test]
fn the_key_that_a_tool_with_arguments_needs_is_yaml() {
    for (written, inner) in [
        ("Read(**/*.ts)", "**/*.ts"),
        (r#"Bash(git log --format="%H, %s")"#, r#"git log --format="%H, %s""#),
        ("Edit(src/{a,b}.ts)", "src/{a,b}.ts"),
    ] {
        let policy = format!("version: 1\nrules:\n  - allow: '{written}'\n");
        let problems = load(&mut SourceFiles::new(), &[source(&policy)], &KnownTools::builtin());
        let help = problems.unwrap_err()[0].help.clone().unwrap();
        let (tool, key) = help
            .strip_prefix("write `")
            .and_then(|rest| rest.strip_suffix('`'))
            .and_then(|rest| rest.split_once("`, and on a line of its own `"))
            .unwrap();
        let set = loaded(&[&format!("version: 1\nrules:\n  - allow: {tool}\n    {key}\n")]);
        let rule = &set.files[0].rules[0];
        let paths = rule.paths.iter().flatten().map(|pattern| pattern.text().to_owned());
        let commands = rule.commands.iter().flatten().map(|prefix| prefix.text.clone());
        assert_eq!(paths.chain(commands).collect::<Vec<_>>(), [inner], "{help}");
    }
}

#[test]
fn problems_have_code_and_place() {
    let mut files = SourceFiles::new();
    let table = files.add(
        "invalid.yaml",
        include_str!("../../../fixtures/policy/rules/invalid.yaml"),
    );
    let table = crate::diag::parse(&files, table).unwrap().to_json();
    let mut wrong = Vec::new();
    for case in table["cases"].as_array().unwrap() {
        let mut files = SourceFiles::new();
        let policy = case["policy"].as_str().unwrap();
        let problems = load(&mut files, &[source(policy)], &KnownTools::builtin())
            .err()
            .unwrap_or_default();
        let found: Vec<String> = problems
            .iter()
            .map(|problem| {
                let place = files.place(problem.span.unwrap());
                assert!(
                    problem.help.is_some() || problem.code.starts_with("yaml"),
                    "{problem:?} helps nobody"
                );
                format!(
                    "{}:{} {}[{}]",
                    place.line,
                    place.column,
                    problem.severity.as_str(),
                    problem.code
                )
            })
            .collect();
        let expected: Vec<&str> = case["problems"]
            .as_array()
            .unwrap()
            .iter()
            .map(|line| line.as_str().unwrap())
            .collect();
        if found != expected {
            wrong.push(format!("{policy}\nexpected {expected:?}\nfound    {found:?}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n\n"));
}

/// Every list of paths is looked at, however it is written; other lists name no directories.
#[test]
fn paths_with_the_separator_of_windows_are_told() {
    for (rule, warned) in [
        (r#"{ allow: write_file, paths: ["src\\gen"] }"#, true),
        (r#"{ allow: write_file, except: ["src\\gen"] }"#, true),
        (r#"{ allow: write_file, except: { paths: ["src\\gen"] } }"#, true),
        (r#"{ allow: write_file, paths: ["src/**"], except: "src\\gen" }"#, true),
        (r#"{ allow: run_shell_command, except: ["grep \\d"] }"#, false),
        (r#"{ allow: write_file, paths: ["src/\\[a]"] }"#, false),
    ] {
        let text = format!("version: 1\nrules:\n  - {rule}\n");
        let (_, warnings) = load(&mut SourceFiles::new(), &[source(&text)], &KnownTools::builtin()).unwrap();
        let told = warnings.iter().filter(|warning| warning.code == "backslash").count();
        assert_eq!(told, usize::from(warned), "{rule}: {warnings:?}");
    }
}

#[test]
fn the_policy_of_the_design_loads() {
    let text = r#"
version: 1
extends: [builtin:read-only]
default: deny
rules:
  - allow: [write_file, replace]
    paths: ["src/**", "docs/**"]
    except: ["src/generated/**"]
  - allow: run_shell_command
    commands: [cargo test, cargo clippy, git diff, git status]
    match: ["cargo test --lib", "git diff HEAD~1 -- src"]
    not_match: ["cargo test; rm -rf /", "git diff --output=/etc/x"]
  - suspend: run_shell_command
    commands: [git push]
    because: pushing needs a person
  - deny: "*"
    paths: ["**/*.pem"]
    because: keys stay unread
  - modify: [write_file, replace]
    paths: ["**/*.rs"]
    pipe: rustfmt --edition 2024
  - allow: "docs__*"
  - allow: web_fetch
    hosts: [docs.rs, "*.rust-lang.org"]
sandbox: { level: auto, network: none, toolchains: [rust] }
limits: { turns: 60, wall: 30m, calls: { run_shell_command: 40 } }
env: { pass: [CARGO_HOME] }
"#;
    let set = loaded(&[text]);
    let requested = set.sandbox();
    assert_eq!(
        (requested.level, requested.network.len(), requested.toolchains),
        (RequestedLevel::Auto, 0, vec!["rust".to_owned()])
    );
    assert_eq!(set.limits().wall_ms, Some(1_800_000));
    assert_eq!(set.limits().calls.get("run_shell_command"), Some(&40));
    assert_eq!(set.env_pass(), ["CARGO_HOME"]);
    assert_eq!(set.texts()[0].digest.len(), 64);
}

#[test]
fn names_that_turn_up_later() {
    let set = loaded(&["version: 1\nrules:\n  - allow: [docs__*, db__query, discovered_tool_lint, read_file]\n"]);
    let tool = |name: &str, origin: ToolOrigin| (name.to_owned(), ToolKind::Other, origin);
    let docs = tool("docs__search", ToolOrigin::Mcp("docs".to_owned()));
    let found = [
        docs.clone(),
        tool("db__query", ToolOrigin::Mcp("db".to_owned())),
        tool("lint", ToolOrigin::Discovered),
    ];
    assert!(check_names(&set, &found, &[]).is_empty());
    let missing = check_names(&set, &[docs], &[]);
    let messages: Vec<&str> = missing.iter().map(|problem| problem.message.as_str()).collect();
    assert_eq!(
        messages,
        [
            "no tool is named `db__query`",
            "no tool is named `discovered_tool_lint`"
        ]
    );
}

#[test]
fn caches_are_kept_where_every_file_says_so() {
    let said = |caches: &str| format!("version: 1\nsandbox: {{ toolchains: [rust]{caches} }}\n");
    let (keep, discard, silent) = (said(", caches: keep"), said(", caches: discard"), said(""));
    for (files, expected) in [
        (vec![&keep], true),
        (vec![&silent], false),
        (vec![&discard], false),
        (vec![&keep, &keep], true),
        (vec![&keep, &silent], false),
        (vec![&keep, &discard], false),
    ] {
        let texts: Vec<&str> = files.iter().map(|text| text.as_str()).collect();
        assert_eq!(loaded(&texts).sandbox().keep_caches, expected, "{texts:?}");
    }
    for (recipe, expected) in [(&silent, true), (&keep, true), (&discard, false)] {
        let both = loaded(&[&keep]).narrowed_by(&loaded(&[recipe]));
        assert_eq!(both.sandbox().keep_caches, expected, "{recipe}");
        let widened = loaded(&[&silent]).narrowed_by(&loaded(&[recipe]));
        assert!(!widened.sandbox().keep_caches, "{recipe}");
    }
}

#[test]
fn several_files_grant_only_what_all_grant() {
    let wide = "version: 1\nsandbox: { level: none, network: ['*.example.org', docs.rs], toolchains: [rust, node] }\nlimits: { turns: 9 }\nenv: { pass: [A, B] }\n";
    let narrow = "version: 1\nsandbox: { level: landlock, network: [a.example.org], toolchains: [node] }\nlimits: { turns: 5, cost: 0.5 }\nenv: { pass: [B] }\n";
    let silent = "version: 1\n";
    let both = loaded(&[wide, narrow]);
    let requested = both.sandbox();
    assert_eq!(
        (requested.level, requested.network, requested.toolchains),
        (
            RequestedLevel::Landlock,
            vec!["a.example.org".to_owned()],
            vec!["node".to_owned()]
        )
    );
    assert_eq!(both.env_pass(), ["B"]);
    let limits = Budget {
        turns: Some(5),
        cost_micros: Some(500_000),
        ..Budget::default()
    };
    assert_eq!(both.limits(), limits);
    let ceiling = loaded(&[wide, silent]);
    assert_eq!(
        (
            ceiling.sandbox().level,
            ceiling.sandbox().network.len(),
            ceiling.env_pass().len()
        ),
        (RequestedLevel::Auto, 0, 0)
    );
    let recipe = loaded(&[wide]).narrowed_by(&loaded(&[silent]));
    assert_eq!(
        (
            recipe.sandbox().level,
            recipe.sandbox().network.len(),
            recipe.env_pass().len()
        ),
        (RequestedLevel::None, 2, 2)
    );
}

#[test]
fn what_stays_unread_and_unwritten() {
    let mut set = loaded(&[
        "version: 1\nrules:\n  - { allow: [grep_search, write_file], paths: ['**', .vscode/settings.json], except: ['private/**'] }\n  - { deny: read_file, paths: [hush/**] }\n",
    ]);
    set.hide(["out".to_owned()]);
    let unread = |tool: &str, path: &str| set.unreadable(tool, ToolKind::Search, path);
    assert!(
        unread("grep_search", ".env")
            && unread("grep_search", "private/x")
            && unread("grep_search", "out/journal.jsonl")
    );
    assert!(!unread("grep_search", "src/a.rs"));
    let masked = |path: &str| set.masks(path, is_masked_by_name);
    assert!(
        ["hush/a", "hush/\ta", "k.pem", "\t/k.pem", "out/x"]
            .into_iter()
            .all(masked)
    );
    assert!(!masked("private/x") && !masked("\ta.txt") && !masked("\u{202e}a.txt"));
    assert!(unread("grep_search", "\ta.txt"));
    let closed = set.closed();
    assert!(closed.closed(".git/x", false) && closed.closed(".github/workflows/a.yml", false));
    assert!(!closed.closed(".vscode/settings.json", false));
}

#[test]
fn what_an_allowed_call_found_is_judged_by_paths_only() {
    let set = loaded(&[
        "version: 1\nrules:\n  - { allow: glob, paths: ['src/**'], with: { pattern: '*.rs' } }\n  - { allow: read_many_files, with: { include: '*.rs' } }\n",
    ]);
    let withheld = |tool: &str, path: &str| set.is_withheld(tool, ToolKind::Search, path);
    assert!(!withheld("glob", "src/a.rs") && withheld("glob", "docs/a.rs"));
    assert!(!withheld("read_many_files", "docs/a.rs") && withheld("read_many_files", ".env"));
    assert!(withheld("grep_search", "src/a.rs"));
    assert!(set.unreadable("glob", ToolKind::Search, "src/a.rs"));
}

/// The examples are checked when a file is loaded.
#[test]
fn a_rule_for_git_refs_covers_deletion_and_force_only_where_it_spells_them() {
    loaded(&[
        "version: 1\nrules:\n  - { allow: run_shell_command, commands: [git tag, git branch], paths: ['.git/**'], \
         match: [git tag v1, git branch x], not_match: [git tag -d v1, git tag -f v1, git branch -D x, \
         git branch --force x HEAD~1] }\n  - { allow: run_shell_command, commands: [git branch -D], paths: ['.git/**'], \
         match: [git branch -D x] }\n",
    ]);
}

#[test]
fn a_source_given_twice_counts_once() {
    let twice = source("version: 1\nrules: [{ id: a, allow: glob }]\n");
    let (set, _) = load(&mut SourceFiles::new(), &[twice.clone(), twice], &KnownTools::builtin()).unwrap();
    assert_eq!(set.files.len(), 1);
}

#[test]
fn every_problem_is_told_at_once() {
    let check = |text: &str| {
        let mut files = SourceFiles::new();
        let (set, mut problems) = check_with(
            &mut files,
            &[source(text)],
            &KnownTools::builtin(),
            &Extended::default(),
        );
        problems.extend(crate::policy::lint::lint_sound(&set));
        let place = |problem: &Diagnostic| format!("{} {}", files.place(problem.span.unwrap()), problem.code);
        problems.iter().map(place).collect::<Vec<_>>()
    };
    let found = check(
        "version: 1\nrules:\n  - { allow: raed_file, match: [a] }\n  - { allow: run_shell_command, commands: [cargo test], \
         match: [cargo build] }\nenv: { pass: [HOME, MY_TOKEN, GH_PAT, COMPASS] }\n",
    );
    assert_eq!(
        found,
        [
            "p.yaml:3:14 unknown-tool",
            "p.yaml:4:65 example-does-not-match",
            "p.yaml:4:44 runs-repository-code",
            "p.yaml:5:21 risky-variable",
            "p.yaml:5:31 risky-variable",
        ]
    );
    let mut files = SourceFiles::new();
    for (text, told) in [("", "the policy is empty"), ("rules: []\n", "add `version: 1`")] {
        let problems = load(&mut files, &[source(text)], &KnownTools::builtin()).unwrap_err();
        assert!(crate::diag::render_all(&files, &problems).contains(told), "{text}");
    }
}
