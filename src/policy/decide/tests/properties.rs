//! Properties that hold for any rules: removing allow rules, adding deny rules, reordering rules or adding files never
//! allows more.

use super::*;
use proptest::prelude::*;

const RULES: [&str; 14] = [
    "{ allow: [read_file, write_file], paths: ['src/**'] }",
    "{ allow: '*' }",
    "{ allow: run_shell_command, commands: [cargo test, cat] }",
    "{ allow: run_shell_command }",
    "{ allow: 'kind:edit', paths: ['**'], except: ['docs/**'] }",
    "{ deny: write_file, paths: ['src/a*'] }",
    "{ deny: run_shell_command, commands: [cargo test x] }",
    "{ suspend: '*', paths: ['docs/**'] }",
    "{ suspend: run_shell_command, commands: [git push] }",
    "{ deny: '*', hosts: [evil.example] }",
    "{ allow: web_fetch, hosts: [docs.rs, evil.example] }",
    "{ allow: run_shell_command, commands: [sort], paths: ['docs/**'] }",
    "{ deny: 'kind:fetch' }",
    "{ modify: write_file, paths: ['**/*.rs'], pipe: rustfmt }",
];

const CALLS: [(&str, &str); 16] = [
    ("read_file", "src/a.rs"),
    ("read_file", "docs/x"),
    ("read_file", ".env"),
    ("write_file", "src/a.rs"),
    ("write_file", "docs/x"),
    ("write_file", ".git/config"),
    ("write_file", "../x"),
    ("run_shell_command", "cargo test"),
    ("run_shell_command", "cargo test x"),
    ("run_shell_command", "cat docs/x > src/b"),
    ("run_shell_command", "sort docs/a > docs/b"),
    ("run_shell_command", "git push && cargo test"),
    ("run_shell_command", "rm x"),
    ("web_fetch", "https://docs.rs/"),
    ("web_fetch", "https://evil.example/"),
    ("write_todos", ""),
];

fn policy(rules: &[usize]) -> String {
    let lines: String = rules
        .iter()
        .map(|index| format!("  - {}\n", RULES[index % RULES.len()]))
        .collect();
    format!("version: 1\nrules:\n{lines}")
}

fn decided(policies: &[String], call: usize) -> Decision {
    let set = set_of(&policies.iter().map(String::as_str).collect::<Vec<_>>());
    let (tool, what) = CALLS[call % CALLS.len()];
    let args = json!({ "command": what, "file_path": what, "url": what });
    let (name, kind, origin, access) = crate::policy::lexical_access::by_name(tool, &args);
    let asked = PolicyInput {
        tool: &name,
        kind,
        origin: &origin,
        args: &args,
    };
    crate::policy::lexical_access::without_tree(|fs_view| {
        decide(&set, &asked, &access, fs_view, &Uses::default()).decision
    })
}

fn runs(decision: Decision) -> bool {
    matches!(decision, Decision::Allow | Decision::Modify)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 100, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn removing_an_allow_rule_allows_no_more(rules in prop::collection::vec(0usize..14, 1..7), at in 0usize..7, call in 0usize..16) {
        let at = at % rules.len();
        let mut fewer = rules.clone();
        let removed = fewer.remove(at);
        prop_assume!(RULES[removed].contains("{ allow") && !fewer.is_empty());
        let (more, less) = (decided(&[policy(&rules)], call), decided(&[policy(&fewer)], call));
        prop_assert!(less >= more || runs(more), "{rules:?} {more:?} {less:?}");
        prop_assert!(!runs(less) || runs(more));
    }

    #[test]
    fn adding_a_strict_rule_allows_no_more(rules in prop::collection::vec(0usize..14, 1..7), extra in 0usize..14, call in 0usize..16) {
        prop_assume!(RULES[extra].contains("{ deny"));
        let mut more = rules.clone();
        more.push(extra);
        prop_assert!(decided(&[policy(&more)], call) >= decided(&[policy(&rules)], call));
    }

    #[test]
    fn order_never_matters(rules in prop::collection::vec(0usize..14, 1..7), call in 0usize..16) {
        let mut turned = rules.clone();
        turned.reverse();
        prop_assert_eq!(decided(&[policy(&rules)], call), decided(&[policy(&turned)], call));
    }

    #[test]
    fn several_files_are_never_looser_than_each(a in prop::collection::vec(0usize..14, 1..5), b in prop::collection::vec(0usize..14, 1..5), call in 0usize..16) {
        let both = decided(&[policy(&a), policy(&b)], call);
        prop_assert!(both >= decided(&[policy(&a)], call) && both >= decided(&[policy(&b)], call));
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 500, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_pattern_is_read_or_refused(text in r"[\[\]{}*?!,\\/a.^-]{0,40}", path in r"[a./*\[-]{0,12}") {
        if let Ok(pattern) = crate::policy::files::PathPattern::parse(&text) {
            let place = lexical(&path);
            let covered = pattern.covers(&place, false);
            prop_assert!(!covered || pattern.touches(&place, false), "{text} covers {path} and does not touch it");
        }
    }

    #[test]
    fn any_host_is_read_or_refused(url in r"(https?://)?[a-zA-Z0-9.:@/%\[\]\\ *-]{0,30}") {
        let pattern = HostPattern::parse(&url);
        if let (Ok(pattern), Ok(target)) = (pattern, crate::policy::hosts::target(&url)) {
            prop_assert!(pattern.fits(&target), "{url}");
        }
    }

    #[test]
    fn any_policy_text_is_read_or_refused(at in 0usize..400, put in r#"[\[\]{}:,\-'"*&!\n a0]{0,4}"#, cut in 0usize..6) {
        let whole = policy(&[0, 1, 2, 3, 4, 5, 6, 7, 8]);
        let at = at % whole.len();
        let rest = whole.get((at + cut).min(whole.len())..).unwrap();
        let text = format!("{}{put}{rest}", &whole[..at]);
        let source = PolicySource { name: "p.yaml".to_owned(), text };
        let mut files = SourceFiles::new();
        if let Err(problems) = load(&mut files, &[source], &KnownTools::builtin()) {
            prop_assert!(!problems.is_empty() && !crate::diag::render_all(&files, &problems).is_empty());
        }
    }
}
