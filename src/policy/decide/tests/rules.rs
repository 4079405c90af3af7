//! Rules: strictest wins, coverage, counts, several files, commands with files and hosts.

use super::*;
use crate::base::access::FsView;
use crate::policy::shell::corpus::FS_VIEW;

/// Each entry of the table: policies, a call, and the expected ruling. A group with `tree` is ruled on in the tree of the
/// corpora, the others without one.
#[test]
fn rules_as_the_table_says() {
    let table = fixture(include_str!("../../../../fixtures/policy/rules/cases.yaml"));
    let mut wrong = Vec::new();
    for group in table["groups"].as_array().unwrap() {
        let policies: Vec<String> = group["policies"]
            .as_array()
            .unwrap()
            .iter()
            .map(Value::to_string)
            .collect();
        let set = set_of(&policies.iter().map(String::as_str).collect::<Vec<_>>());
        for case in group["cases"].as_array().unwrap() {
            let args = case.get("args").cloned().unwrap_or_else(|| json!({}));
            let (name, args) = match case.get("command") {
                Some(command) => ("run_shell_command", json!({ "command": command })),
                None => (case["tool"].as_str().unwrap(), args),
            };
            let (tool, kind, origin, access) = crate::policy::lexical_access::by_name(name, &args);
            let asked = PolicyInput {
                tool: &tool,
                kind,
                origin: &origin,
                args: &args,
            };
            let ruled = |fs_view: &FsView<'_>| decide(&set, &asked, &access, fs_view, &Uses::default());
            let ruling = match group.get("tree") {
                Some(_) => ruled(&FS_VIEW),
                None => crate::policy::lexical_access::without_tree(ruled),
            };
            let rule = case.get("rule").map(|rule| rule.as_str().unwrap());
            let code = case.get("code").map(|code| code.as_str().unwrap());
            let right = ruling.decision.as_str() == case["expect"].as_str().unwrap()
                && rule.is_none_or(|rule| ruling.rule.as_deref() == Some(rule))
                && code.is_none_or(|code| ruling.code == code);
            if !right {
                wrong.push(format!(
                    "{case}: {} {} {:?} {}",
                    ruling.decision.as_str(),
                    ruling.code,
                    ruling.rule,
                    ruling.reason
                ));
            }
            assert!(crate::policy::codes::find(&ruling.code).is_some(), "{}", ruling.code);
            assert!(
                ruling.decision == Decision::Allow || ruling.decision == Decision::Modify || !ruling.fix.is_empty()
            );
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn the_nearest_rule_says_which_paths_and_arguments_it_is_for() {
    let set = set_of(&[
        "version: 1\nrules:\n  - { id: cats, allow: run_shell_command, commands: [cat], paths: ['src/**'] }\n  - { id: dirs, allow: run_shell_command, commands: [ls], with: { dir_path: src } }\n",
    ]);
    for (command, told) in [
        (
            "cat README.md",
            "rule cats allows `cat` only on src/**; `cat README.md` touches README.md",
        ),
        (
            "ls -l",
            "rule dirs allows `ls -l` only with the arguments `dir_path: src`",
        ),
        ("cat --nosuch README.md", "`--nosuch` is not among the options"),
    ] {
        let args = json!({ "command": command });
        let (tool, kind, origin, access) = crate::policy::lexical_access::by_name("run_shell_command", &args);
        let asked = PolicyInput {
            tool: &tool,
            kind,
            origin: &origin,
            args: &args,
        };
        let ruling = crate::policy::lexical_access::without_tree(|fs_view| {
            decide(&set, &asked, &access, fs_view, &Uses::default())
        });
        assert!(ruling.reason.starts_with(told), "{command}: {ruling:?}");
    }
}

#[test]
fn counted_rules_run_out_and_uncounted_ones_go_first() {
    let set = set_of(&[
        "version: 1\nrules:\n  - { id: once, allow: write_file, paths: [a.txt], times: 1 }\n  - { id: free, allow: write_file, paths: [b.txt] }\n",
    ]);
    let write =
        |path: &str, uses: &Uses| ruled(&set, "write_file", ToolKind::Edit, &Access::write(lexical(path)), uses);
    let first = write("a.txt", &Uses::default());
    assert_eq!(
        (first.decision, first.uses.as_slice()),
        (Decision::Allow, ["once".to_owned()].as_slice())
    );
    let mut uses = Uses::default();
    uses.count(&first);
    let second = write("a.txt", &uses);
    assert_eq!(
        (second.decision, second.code.as_str()),
        (Decision::Deny, "times_used_up")
    );
    assert!(write("b.txt", &uses).uses.is_empty());
}

#[test]
fn a_fix_names_the_real_path() {
    let set = set_of(&["version: 1\nrules:\n  - { allow: run_shell_command, commands: [ls] }\n"]);
    let ruling = command(&set, "ls > out.txt");
    assert_eq!(ruling.code, "redirect_write");
    assert!(
        ruling.fix.contains("`> out.txt`") && ruling.fix.contains("allows write_file on out.txt"),
        "{}",
        ruling.fix
    );
    assert!(command(&set, "cargo test").fix.contains("`cargo test`"));
    let curl = set_of(&["version: 1\nrules:\n  - { allow: run_shell_command, commands: [curl] }\n"]);
    for (url, listed) in [
        ("http://Docs.rs:8080/a?b", "with `http://docs.rs:8080` under"),
        ("https://docs.rs/a", "with the host of https://docs.rs/a under"),
    ] {
        let fix = command(&curl, &format!("curl '{url}'")).fix;
        assert!(fix.contains(listed), "{url}: {fix}");
    }
}

#[test]
fn without_a_policy_read_only_holds() {
    let set = set_of(&[]);
    assert_eq!(
        ruled(
            &set,
            "read_file",
            ToolKind::Read,
            &Access::read(lexical("a.rs")),
            &Uses::default()
        )
        .rule
        .as_deref(),
        Some("builtin:read")
    );
    assert_eq!(command(&set, "true").decision, Decision::Deny);
    assert_eq!(
        ruled(
            &set,
            "write_file",
            ToolKind::Edit,
            &Access::write(lexical("a.rs")),
            &Uses::default()
        )
        .decision,
        Decision::Deny
    );
}

#[test]
fn a_result_of_this_run_is_free_to_read() {
    let set = set_of(&["version: 1\nrules: [{ allow: read_file, paths: [a] }]"]);
    let asked = "overnight:result/c12-0";
    let place = ResolvedPath {
        asked: asked.to_owned(),
        path: asked.to_owned(),
        inside: true,
        found: PathStatus::File,
    };
    assert_eq!(
        ruled(
            &set,
            "read_file",
            ToolKind::Read,
            &Access::read(place),
            &Uses::default()
        )
        .decision,
        Decision::Allow
    );
    let other = ResolvedPath {
        asked: "overnight:result/../x".to_owned(),
        path: "x".to_owned(),
        inside: true,
        found: PathStatus::File,
    };
    assert_eq!(
        ruled(
            &set,
            "read_file",
            ToolKind::Read,
            &Access::read(other),
            &Uses::default()
        )
        .decision,
        Decision::Deny
    );
    let args = json!({ "file_path": asked });
    let read = |tool: &str, args: &Value| {
        let call = PolicyInput {
            tool,
            kind: ToolKind::Read,
            origin: &ToolOrigin::Builtin,
            args,
        };
        crate::policy::lexical_access::without_tree(|fs_view| {
            decide(&set, &call, &Access::none(), fs_view, &Uses::default()).decision
        })
    };
    assert_eq!(read("read_file", &args), Decision::Allow);
    assert_eq!(read("read_many_files", &args), Decision::Deny);
    assert_eq!(
        read("read_file", &json!({ "file_path": "overnight:result/../x" })),
        Decision::Deny
    );
}

/// Which paths it writes is unknown, so each file is ruled on after the command.
#[test]
fn a_program_without_a_profile_writes_what_rules_for_writing_allow() {
    let rules = |writes: &str| {
        format!(
            "version: 1\nrules:\n  - {{ allow: run_shell_command, commands: [fallocate -l 10, ./w.sh, sort], writes: {writes} }}\n  - {{ allow: write_file, paths: ['src/**'] }}\n"
        )
    };
    let below_src = Writes::Paths {
        paths: vec![WritePath {
            path: "src".to_owned(),
            kind: WriteKind::Ruled,
        }],
        maybe: Vec::new(),
    };
    let (paths, tree, nothing) = (rules("paths"), rules("tree"), rules("nothing"));
    for (texts, command_text, writes) in [
        (vec![paths.as_str()], "fallocate -l 10 src/x", &below_src),
        (vec![paths.as_str()], "./w.sh src/x", &below_src),
        (vec![paths.as_str()], "sort README.md", &Writes::Nothing),
        (vec![nothing.as_str()], "./w.sh src/x", &Writes::Nothing),
        (vec![tree.as_str()], "./w.sh src/x", &Writes::Tree),
        (vec![tree.as_str(), paths.as_str()], "./w.sh src/x", &below_src),
        (vec![paths.as_str(), nothing.as_str()], "./w.sh src/x", &Writes::Nothing),
    ] {
        let ruling = command(&set_of(&texts), command_text);
        assert_eq!(ruling.decision, Decision::Allow, "{command_text}: {}", ruling.reason);
        assert_eq!(&ruling.writes, writes, "{command_text} {texts:?}");
    }
}
