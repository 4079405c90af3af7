//! The corpora of attack and everyday commands through the whole ruling.

use super::*;
use crate::policy::load::lexical;

const TREE: [&str; 24] = [
    "README.md",
    "Cargo.toml",
    "Cargo.lock",
    "package.json",
    "tsconfig.json",
    "Makefile",
    "gradlew",
    "src/lib.rs",
    "src/main.rs",
    "src/a.txt",
    "src/b.txt",
    "src/list.txt",
    "docs/guide.md",
    "sub/package.json",
    "tests/test_a.py",
    "scripts/check.sh",
    "scripts/lint.sh",
    ".git/config",
    ".env",
    ".gitignore",
    ".github/workflows/ci.yml",
    "target/debug/app",
    "build.log",
    "list",
];

/// A place in a made-up workspace `/ws`; `link` leads outside.
fn locate(asked: &str) -> Place {
    let relative = match asked.strip_prefix("/ws") {
        Some("") => "",
        Some(rest) if rest.starts_with('/') => rest.trim_start_matches('/'),
        _ => asked,
    };
    let place = lexical(relative);
    let path = place.path.clone();
    let outside = !place.inside || path == "link" || path.starts_with("link/");
    let dir = format!("{path}/");
    let found = if TREE.contains(&path.as_str()) {
        Found::File
    } else if path.is_empty() || TREE.iter().any(|name| name.starts_with(&dir)) {
        Found::Dir
    } else {
        Found::Nothing
    };
    Place {
        asked: asked.to_owned(),
        path: if outside { format!("/outside/{asked}") } else { path },
        inside: !outside,
        found: if outside { Found::Nothing } else { found },
    }
}

fn expand(pattern: &str) -> Vec<String> {
    let glob = globset::GlobBuilder::new(pattern.trim_start_matches("./"))
        .literal_separator(true)
        .build();
    let Ok(matcher) = glob.map(|glob| glob.compile_matcher()) else {
        return Vec::new();
    };
    let tops = TREE
        .iter()
        .flat_map(|name| [*name, name.split('/').next().unwrap()])
        .chain(["link", "link/passwd"]);
    let mut names: Vec<String> = tops
        .filter(|name| matcher.is_match(name) && (!name.starts_with('.') || pattern.starts_with('.')))
        .map(ToOwned::to_owned)
        .collect();
    names.sort();
    names.dedup();
    names
}

/// A policy of the corpus as a policy file.
fn policy_of(policy: &Value) -> String {
    let mut all = json!({ "id": "commands", "allow": "run_shell_command" });
    if policy["commands"].is_array() {
        all["commands"] = policy["commands"].clone();
    }
    let mut rules = vec![all];
    if policy["deny"].is_array() {
        rules.push(json!({ "id": "deny", "deny": "run_shell_command", "commands": policy["deny"] }));
    }
    if policy["write"].as_array().is_some_and(|list| !list.is_empty()) {
        rules.push(json!({ "id": "write", "allow": "write_file", "paths": policy["write"] }));
    }
    if policy["hosts"].as_array().is_some_and(|list| !list.is_empty()) {
        rules.push(json!({ "id": "hosts", "allow": "web_fetch", "hosts": policy["hosts"] }));
    }
    json!({ "version": 1, "rules": rules }).to_string()
}

/// The commands of a corpus that are ruled otherwise than `expected`.
fn ruled_otherwise(text: &str, allow: bool) -> (usize, Vec<String>) {
    let corpus = fixture(text);
    let policies: std::collections::BTreeMap<&str, PolicySet> = corpus["policies"]
        .as_array()
        .unwrap()
        .iter()
        .map(|policy| (policy["name"].as_str().unwrap(), set_of(&[&policy_of(policy)])))
        .collect();
    let terrain = Terrain {
        locate: &locate,
        expand: &expand,
    };
    let (mut total, mut wrong) = (0, Vec::new());
    for case in corpus["cases"].as_array().unwrap() {
        let set = &policies[case["policy"].as_str().unwrap()];
        for text in case["commands"].as_array().unwrap() {
            let text = text.as_str().unwrap();
            let access = Access {
                commands: vec![CommandAccess {
                    text: text.to_owned(),
                    dir: String::new(),
                }],
                ..Access::none()
            };
            let args = json!({ "command": text });
            let asked = Asked {
                tool: "run_shell_command",
                kind: Kind::Execute,
                origin: &Origin::Builtin,
                args: &args,
            };
            let ruling = decide(set, &asked, &access, &terrain, &Uses::default());
            total += 1;
            if (ruling.decision == Decision::Allow) != allow {
                wrong.push(format!("{text:?}: {} {}", ruling.code, ruling.reason));
            }
            assert!(
                crate::policy::codes::find(&ruling.code).is_some(),
                "{text:?}: unknown code {}",
                ruling.code
            );
        }
    }
    (total, wrong)
}

#[test]
fn no_attack_is_allowed() {
    let (total, wrong) = ruled_otherwise(include_str!("../../../../fixtures/policy/commands/attacks.yaml"), false);
    assert!(total >= 300 && wrong.is_empty(), "{total}\n{}", wrong.join("\n"));
}

#[test]
fn everyday_commands_are_allowed() {
    let (total, wrong) = ruled_otherwise(include_str!("../../../../fixtures/policy/commands/benign.yaml"), true);
    assert!(total >= 150 && wrong.is_empty(), "{total}\n{}", wrong.join("\n"));
}

#[test]
fn no_attack_is_allowed_where_rules_name_whole_programs() {
    let corpus = include_str!("../../../../fixtures/policy/commands/attacks-by-program.yaml");
    let (total, wrong) = ruled_otherwise(corpus, false);
    assert!(total >= 2000 && wrong.is_empty(), "{total}\n{}", wrong.join("\n"));
}

#[test]
fn what_ci_runs_is_allowed_where_rules_name_whole_programs() {
    let corpus = include_str!("../../../../fixtures/policy/commands/benign-by-program.yaml");
    let (total, wrong) = ruled_otherwise(corpus, true);
    assert!(total >= 700 && wrong.is_empty(), "{total}\n{}", wrong.join("\n"));
}
