//! Tests of `extends`: names, order, limits, and the positions of problems.

use super::{Extended, MAX_DEPTH, files_of, resolve};
use crate::base::event::PolicyText;
use crate::diag::{SourceFiles, render_all};
use crate::policy::describe;
use crate::policy::load::{PolicySource, load_with};
use crate::policy::model::{KnownTools, PolicySet};

fn extended(texts: &[(&str, &str)], tree: &[&str]) -> Extended {
    Extended {
        texts: texts
            .iter()
            .map(|(name, text)| ((*name).to_owned(), Ok((*text).to_owned())))
            .collect(),
        tree: tree.iter().map(|name| (*name).to_owned()).collect(),
    }
}

fn loaded(text: &str, extended: &Extended) -> Result<PolicySet, String> {
    let mut files = SourceFiles::new();
    let source = PolicySource {
        name: "ci/p.yaml".to_owned(),
        text: text.to_owned(),
    };
    load_with(&mut files, &[source], &KnownTools::builtin(), extended)
        .map(|(set, _)| set)
        .map_err(|problems| render_all(&files, &problems))
}

fn text(set: &PolicySet) -> PolicyText {
    set.texts().remove(0)
}

#[test]
fn names_are_relative_to_the_file_that_writes_them() {
    for (of, written, wanted) in [
        ("p.yaml", "base.yaml", Some("base.yaml")),
        ("ci/p.yaml", "base.yaml", Some("ci/base.yaml")),
        ("ci/p.yaml", "../base.yaml", Some("base.yaml")),
        ("ci/p.yaml", "../../base.yaml", Some("../base.yaml")),
        ("/etc/o/p.yaml", "base.yaml", Some("/etc/o/base.yaml")),
        ("p.yaml", "/etc/o/base.yaml", Some("/etc/o/base.yaml")),
        ("-", "base.yaml", Some("base.yaml")),
        ("ci/p.yaml", "builtin:node", Some("builtin:node")),
        (
            "git:origin/main:ci/p.yaml",
            "base.yaml",
            Some("git:origin/main:ci/base.yaml"),
        ),
        (
            "git:origin/main:ci/p.yaml",
            "../base.yaml",
            Some("git:origin/main:base.yaml"),
        ),
        ("git:origin/main:ci/p.yaml", "../../base.yaml", None),
        ("git:origin/main:ci/p.yaml", "/etc/base.yaml", None),
    ] {
        assert_eq!(resolve(of, written).as_deref(), wanted, "{of} {written}");
    }
    assert_eq!(
        files_of("ci/p.yaml", "version: 1\nextends: [builtin:node, a.yaml, ../b.yaml]\n"),
        ["ci/a.yaml", "b.yaml"]
    );
    assert_eq!(files_of("p.yaml", "extends: a.yaml\n"), ["a.yaml"]);
    assert!(files_of("p.yaml", "extends: [\n").is_empty());
}

#[test]
fn rules_and_toolchains_add_up_and_what_the_file_says_itself_wins() {
    let base = "version: 1\ndefault: suspend\nextends: [builtin:node]\nrules:\n  - { id: of-base, allow: web_fetch, hosts: [docs.rs] }\n\
                sandbox: { level: landlock, network: [docs.rs] }\nlimits: { turns: 10 }\nenv: { pass: [A] }\n";
    let policy = "version: 1\nextends: [base.yaml, builtin:rust]\nrules:\n  - { id: own, deny: '*', paths: [x] }\n\
                  sandbox: { level: full }\nlimits: { turns: 50, wall: 1m }\n";
    let set = loaded(policy, &extended(&[("ci/base.yaml", base)], &[])).unwrap();
    let said = describe::describe(&set);
    for part in [
        "[own]",
        "[of-base]",
        "[builtin:node]",
        "[builtin:rust]",
        "[builtin:look]",
        "waits for a person",
        "sandbox level full",
        "network to docs.rs",
        "variables A",
        "10 turns",
        "1m",
    ] {
        assert!(said.contains(part), "{part} is not in\n{said}");
    }
    assert_eq!(
        said.matches("[builtin:look]").count(),
        1,
        "a preset that is reached twice counts once:\n{said}"
    );
    let mut toolchains = set.sandbox().toolchains;
    toolchains.sort();
    assert_eq!(toolchains, ["node", "rust"]);
}

#[test]
fn what_is_extended_is_recorded_and_changes_the_digest() {
    let policy = "version: 1\nextends: [a.yaml, b.yaml]\n";
    let a = "version: 1\nextends: [b.yaml]\n";
    let b = "version: 1\nrules:\n  - { id: b, deny: '*' }\n";
    let one = text(&loaded(policy, &extended(&[("ci/a.yaml", a), ("ci/b.yaml", b)], &[])).unwrap());
    let names: Vec<&str> = one.extends.iter().map(|part| part.name.as_str()).collect();
    assert_eq!(names, ["ci/a.yaml", "ci/b.yaml"]);
    let other = b.replace("deny", "suspend");
    let two = text(&loaded(policy, &extended(&[("ci/a.yaml", a), ("ci/b.yaml", &other)], &[])).unwrap());
    assert_ne!(one.digest, two.digest);
    // Without any, the digest is that of the text, as in older journals.
    let alone = text(&loaded("version: 1\n", &Extended::default()).unwrap());
    assert_eq!(alone.digest, crate::base::ids::sha256_hex(&[b"version: 1\n"]));
    assert_eq!(serde_json::to_value(&alone).unwrap().as_object().unwrap().len(), 4);
}

#[test]
fn mixed_and_build_go_by_the_tree_unless_toolchains_are_named() {
    let tree = extended(&[], &["node", "go"]);
    let says = |policy: &str| describe::describe(&loaded(policy, &tree).unwrap());
    let mixed = says("version: 1\nextends: [builtin:mixed]\n");
    assert!(
        mixed.contains("[builtin:node]") && mixed.contains("[builtin:go-sources]") && !mixed.contains("[builtin:rust]")
    );
    assert!(mixed.contains("[builtin:docs-sources]"));
    let build = says("version: 1\nextends: [builtin:build]\n");
    assert!(
        build.contains("[builtin:go]") && build.contains("Toolchains: node, go"),
        "{build}"
    );
    let named = says("version: 1\nextends: [builtin:build]\nsandbox: { toolchains: [rust] }\n");
    assert!(named.contains("[builtin:rust]") && !named.contains("[builtin:node]"));
    let set = loaded("version: 1\nextends: [builtin:mixed]\n", &tree).unwrap();
    assert_eq!(text(&set).tree, ["node", "go"]);
    let set = loaded(
        "version: 1\nextends: [builtin:mixed]\nsandbox: { toolchains: [rust] }\n",
        &tree,
    )
    .unwrap();
    assert!(text(&set).tree.is_empty(), "the tree did not matter");
}

#[test]
fn nothing_known_in_the_tree_is_told() {
    let mut files = SourceFiles::new();
    let source = PolicySource {
        name: "p.yaml".to_owned(),
        text: "version: 1\nextends: [builtin:build]\n".to_owned(),
    };
    let (_, warnings) = load_with(&mut files, &[source], &KnownTools::builtin(), &Extended::default()).unwrap();
    let codes: Vec<&str> = warnings.iter().map(|warning| warning.code).collect();
    assert_eq!(codes, ["no-toolchain"]);
}

#[test]
fn every_problem_is_told_with_its_place() {
    let policy = "version: 1\nextends:\n  - a.yaml\n  - builtin:nodes\n  - gone.yaml\n  - pyhton\nrules:\n  - { allow: write_fle }\n";
    let a = "version: 1\nextends: [p.yaml]\nrules:\n  - { allow: write_file, pahts: [a] }\n";
    let said = loaded(policy, &extended(&[("ci/a.yaml", a)], &[])).unwrap_err();
    for part in [
        "ci/p.yaml:4:5: error[unknown-preset]",
        "did you mean `builtin:node`?",
        "ci/p.yaml:5:5: error[no-file]",
        "ci/p.yaml:6:5: error[no-file]",
        "did you mean `builtin:python`?",
        "ci/p.yaml:8:14: error[unknown-tool]",
        "ci/a.yaml:2:11: error[extends-itself]",
        "ci/p.yaml, then ci/a.yaml, then ci/p.yaml",
        "ci/a.yaml:4:26: error[unknown-key]",
    ] {
        assert!(said.contains(part), "{part} is not in\n{said}");
    }
}

#[test]
fn depth_is_bounded() {
    let texts: Vec<(String, String)> = (0..=MAX_DEPTH)
        .map(|n| {
            (
                format!("ci/{n}.yaml"),
                format!("version: 1\nextends: [{}.yaml]\n", n + 1),
            )
        })
        .collect();
    let borrowed: Vec<(&str, &str)> = texts
        .iter()
        .map(|(name, text)| (name.as_str(), text.as_str()))
        .collect();
    let said = loaded("version: 1\nextends: [0.yaml]\n", &extended(&borrowed, &[])).unwrap_err();
    assert!(said.contains("error[extends-too-deep]"), "{said}");
}

#[test]
fn two_policies_may_extend_one_file() {
    let source = |name: &str| PolicySource {
        name: name.to_owned(),
        text: "version: 1\nextends: [base.yaml]\n".to_owned(),
    };
    let base = "version: 1\nrules:\n  - { id: keys, deny: '*', paths: ['**/*.pem'] }\n";
    let texts = extended(&[("base.yaml", base)], &[]);
    let mut files = SourceFiles::new();
    let both = [source("a.yaml"), source("b.yaml")];
    assert!(load_with(&mut files, &both, &KnownTools::builtin(), &texts).is_ok());
}
