use super::*;
use crate::policy::{KnownTools, PolicySource, load};

fn imported(text: &str) -> ImportedPolicy {
    let mut files = SourceFiles::new();
    let file = files.add("p.toml", text);
    gemini(&files, file, ApprovalMode::Default).unwrap()
}

fn codes(imported: &ImportedPolicy) -> Vec<&'static str> {
    imported.report.iter().map(|difference| difference.code).collect()
}

#[test]
fn every_result_loads() {
    for text in [
        "[[rule]]\ntoolName = \"*\"\ndecision = \"deny\"\npriority = 0\n",
        "[[rule]]\ntoolName = \"grep_search\"\nargsPattern = '(\\.env|id_rsa)'\ndecision = \"deny\"\npriority = 200\n",
        "[[rule]]\ntoolName = \"run_shell_command\"\ncommandPrefix = [\"git log\", \"echo \\\"a\"]\ndecision = \"allow\"\npriority = 1\n",
        "[[rule]]\ntoolName = \"*\"\nmcpName = \"my server\"\ndecision = \"ask_user\"\npriority = 1\ndenyMessage = \"a\\n\\\"b\\\"\"\n",
        "[[rule]]\ntoolName = \"run_shell_command\"\ndecision = \"allow\"\npriority = 1\n",
    ] {
        let imported = imported(text);
        let source = PolicySource {
            name: "p.yaml".to_owned(),
            text: imported.policy.clone(),
        };
        let loaded = load(&mut SourceFiles::new(), &[source], &KnownTools::builtin());
        assert!(loaded.is_ok(), "{text}\n{}\n{:?}", imported.policy, loaded.err());
    }
}

#[test]
fn a_name_that_the_original_matches_with_no_tool_allows_nothing() {
    for named in [
        "toolName = \"mcp_srv_get*\"",
        "toolName = \"mcp_s*_get\"",
        "toolName = \"mcp_srv_bad name\"",
        "toolName = \"discovered_tool_foo*\"",
        "toolName = \"discovered_tool_bad name\"",
        "toolName = \"srv__*\"",
        "mcpName = \"sr*\"\ntoolName = \"*\"",
        "mcpName = \"srv\"\ntoolName = \"list*\"",
    ] {
        let rule = |decision: &str| imported(&format!("[[rule]]\n{named}\ndecision = \"{decision}\"\npriority = 1\n"));
        let allowed = rule("allow");
        assert!(
            codes(&allowed).contains(&"never-matches"),
            "{named}: {:?}",
            allowed.report
        );
        assert!(!allowed.policy.contains(", priority 1"), "{named}\n{}", allowed.policy);
        let denied = rule("deny");
        let source = PolicySource {
            name: "p.yaml".to_owned(),
            text: denied.policy.clone(),
        };
        let loaded = load(&mut SourceFiles::new(), &[source], &KnownTools::builtin());
        assert!(loaded.is_ok(), "{named}\n{}\n{:?}", denied.policy, loaded.err());
        assert!(denied.policy.contains(", priority 1"), "{named}\n{}", denied.policy);
    }
    let widened = imported("[[rule]]\ntoolName = \"mcp_srv_bad name\"\ndecision = \"deny\"\npriority = 1\n");
    assert!(widened.policy.contains("srv__*"), "{}", widened.policy);
    assert!(codes(&widened).contains(&"tool-name"), "{:?}", widened.report);
}

#[test]
fn an_outranked_denial_stays_and_is_reported() {
    let text = "[[rule]]\ntoolName = \"run_shell_command\"\ncommandPrefix = \"git\"\ndecision = \"allow\"\npriority = 200\n\
                [[rule]]\ntoolName = \"run_shell_command\"\ncommandPrefix = \"git push\"\ndecision = \"deny\"\npriority = 100\n";
    let imported = imported(text);
    assert!(
        imported.policy.contains("deny: run_shell_command"),
        "{}",
        imported.policy
    );
    assert!(codes(&imported).contains(&"outranked"), "{:?}", imported.report);
}

#[test]
fn a_question_that_outranks_a_denial_is_called_one() {
    let text = "[[rule]]\ntoolName = \"run_shell_command\"\ncommandPrefix = \"git\"\ndecision = \"ask_user\"\npriority = 200\n\
                [[rule]]\ntoolName = \"run_shell_command\"\ncommandPrefix = \"git push\"\ndecision = \"deny\"\npriority = 100\n";
    let imported = imported(text);
    let outranked = imported.report.iter().find(|difference| difference.code == "outranked");
    let told = &outranked.unwrap().message;
    assert!(told.contains("the `ask_user` rule in line"), "{told}");
}

#[test]
fn a_denial_below_an_allow_list_is_the_default() {
    let text = "[[rule]]\ntoolName = \"read_file\"\ndecision = \"allow\"\npriority = 100\n\
                [[rule]]\ntoolName = \"*\"\ndecision = \"deny\"\npriority = 1\n";
    let imported = imported(text);
    assert!(!imported.policy.contains("deny: \"*\""), "{}", imported.policy);
    assert!(
        !imported.policy.contains("glob"),
        "the denial outranks what is built in"
    );
    assert!(codes(&imported).contains(&"default"), "{:?}", imported.report);
}

#[test]
fn every_problem_of_a_file_is_named_at_once() {
    let mut files = SourceFiles::new();
    let text = "[[rule]]\ntoolName = \"read_file\"\ndecision = \"alow\"\npriority = 1000\n[[rule]]\ndecision = \"deny\"\nmodes = [\"fast\"]\n";
    let file = files.add("p.toml", text);
    let problems = gemini(&files, file, ApprovalMode::Default).unwrap_err();
    let all: Vec<&str> = problems.iter().map(|problem| problem.message.as_str()).collect();
    assert!(problems.len() >= 5, "{all:?}");
}
