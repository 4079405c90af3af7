//! Tests the presets and the shipped policies with their case tables.

use crate::base::ruling::{Decision, PolicyInput};
use crate::base::toolchain;
use crate::diag::{SourceFiles, render_all};
use crate::policy::cases::{self, PolicyCase};
use crate::policy::load::{PolicySource, load};
use crate::policy::model::{KnownTools, PolicySet, Uses};
use crate::policy::{lexical_access, lint};

fn loaded(name: &str, text: &str) -> PolicySet {
    let source = PolicySource {
        name: name.to_owned(),
        text: text.to_owned(),
    };
    let mut files = SourceFiles::new();
    match load(&mut files, &[source], &KnownTools::builtin()) {
        Ok((set, _)) => set,
        Err(problems) => panic!("{}", render_all(&files, &problems)),
    }
}

fn judged(set: &PolicySet, case: &PolicyCase) -> crate::base::ruling::Ruling {
    let (tool, kind, origin, access) = lexical_access::by_name(&case.tool, &case.args);
    let asked = PolicyInput {
        tool: &tool,
        kind,
        origin: &origin,
        args: &case.args,
    };
    lexical_access::without_tree(|fs_view| crate::policy::decide(set, &asked, &access, fs_view, &Uses::default()))
}

fn table(set: &PolicySet, text: &str) {
    let mut files = SourceFiles::new();
    let id = files.add("cases.yaml", text);
    let cases = cases::parse(&files, id).unwrap_or_else(|problems| panic!("{}", render_all(&files, &problems)));
    assert!(cases.len() > 10);
    let report = cases::run(&cases, |case| Ok(judged(set, case)));
    assert!(
        report.failed.is_empty(),
        "{}\n{}",
        report.summary(),
        render_all(&files, &report.failed)
    );
}

#[test]
fn read_only() {
    let set = loaded("p.yaml", "version: 1\nextends: builtin:read-only\n");
    table(&set, include_str!("../../../fixtures/policy/presets/read-only.yaml"));
}

#[test]
fn edit() {
    let set = loaded("p.yaml", "version: 1\nextends: [builtin:edit, builtin:read-only]\n");
    table(&set, include_str!("../../../fixtures/policy/presets/edit.yaml"));
}

#[test]
fn build() {
    let set = loaded(
        "p.yaml",
        "version: 1\nextends: [builtin:build]\nsandbox: { toolchains: [rust] }\n",
    );
    table(&set, include_str!("../../../fixtures/policy/presets/build.yaml"));
}

#[test]
fn frozen_tests() {
    let set = loaded(
        "p.yaml",
        "version: 1\nextends: [builtin:edit, builtin:files, builtin:look, builtin:frozen-tests]\n",
    );
    table(&set, include_str!("../../../fixtures/policy/presets/frozen-tests.yaml"));
}

#[test]
fn every_toolchain_is_a_preset_of_its_own() {
    for (toolchain, command) in [
        ("rust", "cargo test"),
        ("node", "npm test"),
        ("python", "pytest"),
        ("go", "go test"),
        ("java", "mvn test"),
    ] {
        let with = loaded(
            "p.yaml",
            &format!("version: 1\nextends: [builtin:build]\nsandbox: {{ toolchains: [{toolchain}] }}\n"),
        );
        let without = loaded("p.yaml", "version: 1\nextends: [builtin:build]\n");
        let access = lexical_access::by_name("run_shell_command", &serde_json::json!({ "command": command }));
        let decision = |set: &PolicySet| {
            let args = serde_json::json!({ "command": command });
            let asked = PolicyInput {
                tool: &access.0,
                kind: access.1,
                origin: &access.2,
                args: &args,
            };
            lexical_access::without_tree(|fs_view| {
                crate::policy::decide(set, &asked, &access.3, fs_view, &Uses::default()).decision
            })
        };
        assert_eq!(
            (decision(&with), decision(&without)),
            (Decision::Allow, Decision::Deny),
            "{toolchain}"
        );
    }
}

#[test]
fn every_preset_loads_without_a_warning() {
    let tree: Vec<String> = toolchain::NAMES.iter().map(|name| (*name).to_owned()).collect();
    for name in super::names() {
        let source = PolicySource {
            name: name.to_owned(),
            text: super::text(name, None, &tree).unwrap(),
        };
        let extended = crate::policy::Extended {
            tree: tree.clone(),
            ..crate::policy::Extended::default()
        };
        let mut files = SourceFiles::new();
        match crate::policy::load_with(&mut files, &[source], &KnownTools::builtin(), &extended) {
            Ok((set, warnings)) => {
                assert!(warnings.is_empty(), "{name}: {}", render_all(&files, &warnings));
                assert!(lint::lint(&set).is_empty(), "{name}");
                assert!(
                    set.files[0].rules.iter().all(|rule| rule.name.starts_with("builtin:")),
                    "{name}"
                );
            }
            Err(problems) => panic!("{name}: {}", render_all(&files, &problems)),
        }
    }
}

#[test]
fn a_wrong_name_gets_the_right_one() {
    for (wrong, right) in [
        ("builtin:nod", "builtin:node"),
        ("builtin:pyton", "builtin:python"),
        ("builtin:frozen-test", "builtin:frozen-tests"),
    ] {
        assert_eq!(super::did_you_mean(wrong), format!("did you mean `{right}`?"));
    }
    assert!(super::did_you_mean("builtin:x").contains("`builtin:docs`"));
}

#[test]
fn the_policies_beside_the_recipes_load_without_a_warning() {
    for (name, text) in [
        ("rust.yaml", include_str!("../../../recipes/policies/rust.yaml")),
        ("node.yaml", include_str!("../../../recipes/policies/node.yaml")),
        ("python.yaml", include_str!("../../../recipes/policies/python.yaml")),
    ] {
        let set = loaded(name, text);
        assert!(lint::lint(&set).is_empty(), "{name}");
    }
}
