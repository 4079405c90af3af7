//! A change is ruled on like a write of the same path: by table, and for random rules.

use super::*;
use crate::base::access::{Access, PathStatus};
use crate::base::call::{ToolKind, ToolOrigin};
use crate::base::ruling::Decision;
use crate::diag::SourceFiles;
use crate::policy::load::{PolicySource, load};
use crate::policy::model::{KnownTools, Uses};
use proptest::prelude::*;

pub(in crate::policy) fn set_of(rules: &[&[&str]]) -> PolicySet {
    let source = |(index, rules): (usize, &&[&str])| PolicySource {
        name: format!("p{index}.yaml"),
        text: match rules.is_empty() {
            true => "version: 1\n".to_owned(),
            false => {
                let lines: String = rules.iter().map(|rule| format!("  - {rule}\n")).collect();
                format!("version: 1\nrules:\n{lines}")
            }
        },
    };
    let sources: Vec<PolicySource> = rules.iter().enumerate().map(source).collect();
    let mut files = SourceFiles::new();
    match load(&mut files, &sources, &KnownTools::builtin()) {
        Ok((set, _)) => set,
        Err(problems) => panic!("{}", crate::diag::render_all(&files, &problems)),
    }
}

/// `allowed`, or the word, the rule and the code.
fn said(ruling: &ChangeRuling) -> String {
    match ruling {
        ChangeRuling::Allowed => "allowed".to_owned(),
        ChangeRuling::Denied { rule, code } => format!("denied {} {code}", rule.as_deref().unwrap_or("-")),
        ChangeRuling::Unruled { rule, code } => format!("unruled {} {code}", rule.as_deref().unwrap_or("-")),
    }
}

#[test]
fn by_table() {
    let edit = "{ allow: [write_file, replace], paths: ['src/**'], except: ['src/gen/**'] }";
    let frozen = "{ id: frozen, deny: write_file, paths: ['tests/**', 'src/lock*'], except: ['tests/new/**'] }";
    let fmt = "{ allow: run_shell_command, commands: [cargo fmt], paths: ['docs/**'] }";
    let cases: &[(&[&str], &str, &str)] = &[
        (&[edit], "src/a.rs", "allowed"),
        (&[edit], "src/gen/a.rs", "unruled - no_rule"),
        (&[edit], "lib/a.rs", "unruled - no_rule"),
        (&[edit], ".github/workflows/ci.yml", "denied - protected_path"),
        (&[edit], "src/.npmrc", "denied - protected_path"),
        (&[edit, frozen], "tests/a.rs", "denied frozen deny_rule"),
        (&[edit, frozen], "Tests/a.rs", "denied frozen deny_rule"),
        (&[edit, frozen], "tests/new/a.rs", "unruled - no_rule"),
        (&[edit, frozen], "src/lock.rs", "denied frozen deny_rule"),
        (&[fmt], "docs/a.md", "allowed"),
        (&[fmt], "src/a.rs", "unruled - no_rule"),
        (
            &["{ allow: run_shell_command, commands: [cargo fmt] }"],
            "src/a.rs",
            "unruled - no_rule",
        ),
        (&["{ allow: replace, paths: ['a'] }"], "a", "allowed"),
        (&["{ allow: '*' }"], "a", "allowed"),
        (&["{ allow: '*' }"], ".env", "unruled - secret_like_path"),
        (&["{ allow: '*' }"], "-rf", "unruled - leading_dash"),
        (
            &["{ allow: '*' }", "{ id: d, deny: replace, paths: [a] }"],
            "a",
            "denied d deny_rule",
        ),
        (
            &["{ allow: '*' }", "{ id: d, deny: run_shell_command, paths: [a] }"],
            "a",
            "denied d deny_rule",
        ),
        (
            &["{ allow: '*' }", "{ id: d, deny: read_file, paths: [a] }"],
            "a",
            "allowed",
        ),
        (
            &["{ allow: '*' }", "{ id: s, suspend: write_file, paths: [a] }"],
            "a",
            "unruled s suspend_rule",
        ),
        (
            &[
                "{ allow: '*' }",
                "{ deny: run_shell_command, commands: [rm], paths: [a] }",
            ],
            "a",
            "allowed",
        ),
        (&["{ allow: '*' }", "{ deny: replace }"], "a", "allowed"),
        (
            &["{ allow: '*' }", "{ deny: [write_file, replace, run_shell_command] }"],
            "a",
            "unruled - no_rule",
        ),
        (&["{ allow: write_file, paths: [a], times: 1 }"], "a", "allowed"),
        (
            &["{ allow: write_file, paths: [a], with: { content: '*hello*' } }"],
            "a",
            "allowed",
        ),
        (
            &["{ allow: write_file, with: { file_path: 'docs/*' } }"],
            "docs/a",
            "allowed",
        ),
        (
            &["{ allow: write_file, with: { file_path: 'docs/*' } }"],
            "src/a",
            "unruled - no_rule",
        ),
        (
            // An older name of `file_path`.
            &["{ allow: write_file, with: { path: 'docs/**' } }"],
            "docs/a",
            "allowed",
        ),
        (
            &["{ allow: '*', with: { command: 'npm *' } }"],
            "a",
            "unruled - no_rule",
        ),
        (&["{ allow: write_file, paths: [.npmrc] }"], ".npmrc", "allowed"),
        (&["{ allow: read_file }"], "a", "unruled - no_rule"),
        (&["{ allow: '*' }"], "sp\u{fffd}", "unruled - deceptive_name"),
    ];
    for (rules, path, wanted) in cases {
        let set = set_of(&[rules]);
        assert_eq!(
            said(&rule_change(&set, path, Author::Call)),
            *wanted,
            "{path} by {rules:?}"
        );
    }
}

#[test]
fn every_file_must_agree() {
    let open = "{ allow: [write_file, replace] }";
    let narrow = "{ allow: write_file, paths: ['src/**'] }";
    let set = set_of(&[&[open], &[narrow]]);
    assert_eq!(said(&rule_change(&set, "src/a", Author::Call)), "allowed");
    assert_eq!(said(&rule_change(&set, "doc/a", Author::Call)), "unruled - no_rule");
    // What one file lets only `replace` do and the other only `write_file`, no call can do.
    let set = set_of(&[&["{ allow: replace }"], &["{ allow: write_file }"]]);
    assert_eq!(said(&rule_change(&set, "a", Author::Call)), "unruled - no_rule");
}

#[test]
fn the_author_is_bound_by_denials_only() {
    let mut set = set_of(&[&["{ id: frozen, deny: write_file, paths: ['tests/**'] }"]]);
    set.protect(["ci/policy.yaml".to_owned()]);
    for author in [Author::TrustedStep, Author::Approved] {
        assert_eq!(said(&rule_change(&set, "src/a", author)), "allowed");
        assert_eq!(said(&rule_change(&set, "tests/a", author)), "denied frozen deny_rule");
        for path in ["ci/policy.yaml", ".git/config", "CODEOWNERS"] {
            assert_eq!(said(&rule_change(&set, path, author)), "denied - protected_path");
        }
    }
}

#[test]
fn a_workspace_in_a_protected_directory_opens_nothing() {
    let mut set = set_of(&[&["{ allow: [write_file, replace], paths: ['ci.yml', '*.yml'] }"]]);
    assert_eq!(said(&rule_change(&set, "ci.yml", Author::Call)), "allowed");
    set.place_in_repository(".github/workflows");
    for author in [Author::Call, Author::TrustedStep, Author::Approved] {
        assert_eq!(said(&rule_change(&set, "ci.yml", author)), "denied - protected_path");
    }
    let access = Access::write(ResolvedPath::of_tree("ci.yml"));
    let asked = PolicyInput {
        tool: "write_file",
        kind: ToolKind::Edit,
        origin: &ToolOrigin::Builtin,
        args: &Value::Null,
    };
    let ruling = crate::policy::lexical_access::without_tree(|fs_view| {
        crate::policy::decide(&set, &asked, &access, fs_view, &Uses::default())
    });
    assert_eq!(
        (ruling.decision, ruling.code.as_str()),
        (Decision::Deny, "protected_path")
    );
}

const RULES: [&str; 14] = [
    "{ allow: write_file, paths: ['src/**'] }",
    "{ allow: replace, paths: ['docs/**'] }",
    "{ allow: 'kind:edit', except: ['src/gen/**'] }",
    "{ allow: '*' }",
    "{ allow: run_shell_command, paths: ['lib/**'] }",
    "{ allow: run_shell_command, commands: [x], paths: ['docs/**'] }",
    "{ allow: write_file, paths: [.npmrc, '**/.env'] }",
    "{ deny: write_file, paths: ['src/a*'] }",
    "{ deny: '*', paths: ['**/*.pem'], except: ['docs/**'] }",
    "{ deny: run_shell_command, paths: [lib/] }",
    "{ deny: write_file }",
    "{ suspend: '*', paths: ['docs/**'] }",
    "{ suspend: write_file }",
    "{ modify: write_file, paths: ['**/*.rs'], pipe: rustfmt }",
];

const PATHS: [&str; 16] = [
    "src/a.rs",
    "src/b.rs",
    "src/gen/x",
    "SRC/a.rs",
    "docs/x",
    "docs/k.pem",
    "lib/x",
    "lib/k.PEM",
    ".npmrc",
    "x/.env",
    ".git/config",
    ".github/workflows/a",
    "-x",
    "top",
    "src/\u{200b}a",
    "src/a.rs.",
];

proptest! {
    #[test]
    fn the_ruling_is_that_of_decide(
        first in prop::collection::vec(0..RULES.len(), 0..5),
        second in prop::option::of(prop::collection::vec(0..RULES.len(), 0..4)),
        path in prop::sample::select(&PATHS[..]),
    ) {
        let texts = |rules: &[usize]| rules.iter().map(|rule| RULES[*rule]).collect::<Vec<_>>();
        let all: Vec<Vec<&str>> = std::iter::once(texts(&first)).chain(second.as_deref().map(texts)).collect();
        let set = set_of(&all.iter().map(Vec::as_slice).collect::<Vec<_>>());
        let ruling = rule_change(&set, path, Author::Call);
        let decided = |tool: &str| {
            let asked = PolicyInput { tool, kind: ToolKind::Edit, origin: &ToolOrigin::Builtin, args: &Value::Null };
            let access = Access::write(ResolvedPath {
                asked: path.to_owned(),
                path: path.to_owned(),
                inside: true,
                found: PathStatus::File,
            });
            crate::policy::lexical_access::without_tree(|fs_view| {
                crate::policy::decide(&set, &asked, &access, fs_view, &Uses::default())
            })
        };
        let (written, replaced) = (decided("write_file"), decided("replace"));
        let runs = |decision| matches!(decision, Decision::Allow | Decision::Modify);
        let by_edit = runs(written.decision) || runs(replaced.decision);
        match &ruling {
            ChangeRuling::Allowed => {
                // Only a rule on commands can allow what no edit tool may do.
                let by_shell = all.iter().flatten().any(|rule| rule.contains("run_shell_command, ") || rule.contains("'*' }"));
                prop_assert!(by_edit || by_shell, "{written:?}");
            }
            ChangeRuling::Denied { code, .. } => {
                let of_shell = |rule: &&str| rule.starts_with("{ deny: run_shell");
                let elsewhere = all.iter().flatten().any(of_shell);
                let same = written.code == *code || replaced.code == *code || written.decision == Decision::Deny;
                prop_assert!(same || elsewhere, "{ruling:?}, {written:?}");
            }
            ChangeRuling::Unruled { .. } => {
                let named = all.iter().flatten().any(|rule| rule.contains("suspend") && rule.contains("paths"));
                prop_assert!(!by_edit || named, "{ruling:?}, {written:?}");
            }
        }
        // What is closed to commands covers all that ends a run.
        if matches!(ruling, ChangeRuling::Denied { .. }) {
            prop_assert!(set.closed().closed(path, false), "{ruling:?}");
        }
        // A trusted author is bound by exactly the denials.
        let author = rule_change(&set, path, Author::TrustedStep);
        let denied = |ruling: &ChangeRuling| matches!(ruling, ChangeRuling::Denied { .. });
        prop_assert_eq!(denied(&author), denied(&ruling));
    }
}
