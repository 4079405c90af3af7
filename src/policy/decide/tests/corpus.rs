//! Rulings on the corpora of attacks and of everyday commands.

use super::*;
use crate::policy::shell::corpus::FS_VIEW;

/// The text of a policy file for a policy of the corpus.
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

/// The number of commands in a corpus, and those whose ruling is not the expected one.
fn ruled_otherwise(text: &str, allow: bool) -> (usize, Vec<String>) {
    let corpus = fixture(text);
    let policies: std::collections::BTreeMap<&str, PolicySet> = corpus["policies"]
        .as_array()
        .unwrap()
        .iter()
        .map(|policy| (policy["name"].as_str().unwrap(), set_of(&[&policy_of(policy)])))
        .collect();
    let (mut total, mut wrong) = (0, Vec::new());
    for case in corpus["cases"].as_array().unwrap() {
        let set = &policies[case["policy"].as_str().unwrap()];
        for text in case["commands"].as_array().unwrap() {
            let text = text.as_str().unwrap();
            // Everyday commands may leave unknown words to the exec. An attack must be refused by its text alone, as
            // where execs are not judged.
            let ruling = shell_ruling(set, text, &FS_VIEW, allow);
            total += 1;
            if (ruling.decision == Decision::Allow) != allow {
                wrong.push(format!("{text:?}: {} {}", ruling.code, ruling.reason));
            }
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
