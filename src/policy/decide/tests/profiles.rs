//! The built-in profiles and the runners, by the tables under `fixtures/policy/profiles`.

use super::*;
use crate::policy::shell::corpus::FS_VIEW;

/// A table of the fixtures, read when the test runs.
fn table(name: &str) -> Value {
    let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("fixtures/policy/profiles")
        .join(name);
    fixture(&std::fs::read_to_string(path).unwrap())
}

fn texts<'v>(value: &'v Value, key: &str) -> Vec<&'v str> {
    let list = value.get(key).and_then(Value::as_array);
    list.into_iter().flatten().map(|text| text.as_str().unwrap()).collect()
}

/// A policy that allows the programs, and optionally writing files and reaching a host.
fn policy(programs: &[&str], writes: bool, host: bool) -> PolicySet {
    let mut rules = vec![json!({ "id": "program", "allow": "run_shell_command", "commands": programs })];
    if writes {
        rules.push(json!({ "id": "write", "allow": "write_file", "paths": ["src/**", "out/**"] }));
    }
    if host {
        rules.push(json!({ "id": "host", "allow": "web_fetch", "hosts": ["ok.example"] }));
    }
    set_of(&[&json!({ "version": 1, "rules": rules }).to_string()])
}

#[test]
fn programs_are_judged_as_their_profiles_say() {
    let table = table("programs.yaml");
    let programs = table.as_object().unwrap();
    let (mut wrong, mut total) = (Vec::new(), 0);
    for (program, cases) in programs {
        let mut names: Vec<&str> = cases
            .as_object()
            .unwrap()
            .values()
            .flat_map(|list| list.as_array().unwrap())
            .filter_map(|text| text.as_str().unwrap().split(' ').next())
            .collect();
        names.sort_unstable();
        names.dedup();
        assert!(names.contains(&program.as_str()), "{program} has no case of its own");
        let (all, no_writes, no_hosts) = (
            policy(&names, true, true),
            policy(&names, false, true),
            policy(&names, true, false),
        );
        let mut check = |text: &str, set: &PolicySet, witness: bool, allow: bool, what: &str| {
            let ruling = shell_ruling(set, text, &FS_VIEW, witness);
            total += 1;
            if (ruling.decision == Decision::Allow) != allow {
                wrong.push(format!("{what} {text:?}: {} {}", ruling.code, ruling.reason));
            }
        };
        for text in texts(cases, "harmless") {
            check(text, &no_writes, true, true, "harmless without rules for writing");
            check(text, &no_hosts, true, true, "harmless without hosts");
        }
        for text in texts(cases, "writes") {
            check(text, &all, true, true, "writes");
            check(text, &no_writes, true, false, "writes without a rule");
        }
        for text in texts(cases, "network") {
            check(text, &all, true, true, "network");
            check(text, &no_hosts, true, false, "network without a host");
        }
        for key in ["programs", "denied"] {
            for text in texts(cases, key) {
                check(text, &all, true, false, key);
                check(text, &all, false, false, key);
            }
        }
        for text in texts(cases, "unwatched") {
            check(text, &all, false, false, "unwatched");
        }
        let count: usize = cases
            .as_object()
            .unwrap()
            .values()
            .map(|list| list.as_array().unwrap().len())
            .sum();
        assert!(count >= 6, "{program} has {count} cases");
    }
    assert!(
        programs.len() >= 40 && total >= 500,
        "{} programs, {total} rulings",
        programs.len()
    );
    assert!(wrong.is_empty(), "{} of {total}\n{}", wrong.len(), wrong.join("\n"));
}

/// A fictional tree of files.
struct Tree(Vec<String>);

impl Tree {
    fn place(&self, asked: &str) -> ResolvedPath {
        let place = lexical(asked);
        let below = format!("{}/", place.path);
        let found = if self.0.contains(&place.path) {
            PathStatus::File
        } else if place.path.is_empty() || self.0.iter().any(|path| path.starts_with(&below)) {
            PathStatus::Dir
        } else {
            PathStatus::Nothing
        };
        ResolvedPath { found, ..place }
    }

    fn with<R>(&self, use_it: impl FnOnce(&FsView<'_>) -> R) -> R {
        let locate = |asked: &str| self.place(asked);
        let expand = |pattern: &str| {
            let glob = globset::GlobBuilder::new(pattern)
                .literal_separator(true)
                .build()
                .unwrap()
                .compile_matcher();
            self.0.iter().filter(|path| glob.is_match(path)).cloned().collect()
        };
        use_it(&FsView {
            locate: &locate,
            expand: &expand,
            over_limit: &|| false,
            below: &|_| None,
        })
    }
}

/// What is wrong with the rulings on a table of groups, and how many rulings there are.
fn judged(name: &str) -> (Vec<String>, usize) {
    let table = table(name);
    let (mut wrong, mut total) = (Vec::new(), 0);
    for group in table["groups"].as_array().unwrap() {
        let set = set_of(&[group["policy"].as_str().unwrap()]);
        let tree = Tree(texts(group, "tree").into_iter().map(str::to_owned).collect());
        for (key, expected) in [
            ("allowed", Decision::Allow),
            ("denied", Decision::Deny),
            ("suspended", Decision::Suspend),
        ] {
            for text in texts(group, key) {
                let ruling = tree.with(|fs_view| shell_ruling(&set, text, fs_view, true));
                total += 1;
                if ruling.decision != expected {
                    wrong.push(format!(
                        "{key} {text:?}: {:?} {} {}",
                        ruling.decision, ruling.code, ruling.reason
                    ));
                }
                if ruling.decision == Decision::Deny && ruling.fix.is_empty() {
                    wrong.push(format!("{text:?}: a denial without a way out"));
                }
            }
        }
    }
    (wrong, total)
}

#[test]
fn runners_are_judged_by_what_they_run() {
    let (wrong, total) = judged("runners.yaml");
    assert!(total >= 150, "{total}");
    assert!(wrong.is_empty(), "{} of {total}\n{}", wrong.len(), wrong.join("\n"));
}

/// Under a rule with `paths`, neither history nor a directory nor a link leads a command to the contents of other files.
#[test]
fn what_is_read_is_bounded_by_the_paths_of_a_rule() {
    let (wrong, total) = judged("bounded.yaml");
    assert!(total >= 150, "{total}");
    assert!(wrong.is_empty(), "{} of {total}\n{}", wrong.len(), wrong.join("\n"));
}

#[test]
fn a_profile_of_one_file_loosens_no_other() {
    const OWN: &str = r#"
version: 1
profiles:
  lister | lister2:
    options: { harmless: -q --quiet, input: -f, output: -o, program: --hook }
    operands: input*
  builder:
    writes: tree
    starts: anything
    operands: input*
rules:
  - { id: tools, allow: run_shell_command, commands: [lister, lister2, builder] }
  - { id: write, allow: write_file, paths: ["out/**"] }
"#;
    const OTHER: &str = "version: 1\nrules:\n  - { id: theirs, allow: run_shell_command, commands: [lister, builder] }\n  - { id: out, allow: write_file, paths: ['out/**'] }\n";
    let own = set_of(&[OWN]);
    let allowed = |set: &PolicySet, text: &str| shell_ruling(set, text, &FS_VIEW, true).decision == Decision::Allow;
    for text in [
        "lister -q src",
        "lister2 --quiet src/a.txt",
        "lister -o out/x src",
        "builder src",
    ] {
        assert!(allowed(&own, text), "{text}");
    }
    for text in [
        "lister -o src/a.txt src",
        "lister --hook ./x",
        "lister -x src",
        "lister ../x",
        "builder -x",
    ] {
        assert!(!allowed(&own, text), "{text}");
    }
    assert_eq!(shell_ruling(&own, "builder src", &FS_VIEW, true).writes, Writes::Tree);
    // The other file, which must agree, does not have the profile: under it the program may only read.
    let both = set_of(&[OWN, OTHER]);
    assert!(allowed(&both, "builder src"));
    assert_eq!(
        shell_ruling(&both, "builder src", &FS_VIEW, true).writes,
        Writes::Nothing
    );
    assert!(!allowed(&both, "lister --hook ./x"));
}

/// The directory that git enters holds for a policy's own profile of git as well, which may take `-C` for any value.
#[test]
fn paths_of_an_own_profile_of_git_are_in_the_directory_that_it_enters() {
    let profile = "  git: { options: { value: [-C] }, subcommands: { add: { operands: output* } } }";
    let rule = "  - { allow: run_shell_command, commands: [git], paths: [\"src/**\"] }";
    let set = set_of(&[&format!("version: 1\nprofiles:\n{profile}\nrules:\n{rule}\n")]);
    let code = |text: &str| shell_ruling(&set, text, &FS_VIEW, true).code;
    assert_eq!(code("git -C src add a.txt"), "allowed");
    assert_ne!(code("git add a.txt"), "allowed");
    assert_ne!(code("git -C .. add a.txt"), "allowed");
}

#[test]
fn a_program_starts_only_the_helpers_that_every_file_grants() {
    let of = |list: &str| {
        format!(
            "version: 1\nprofiles:\n  lister:\n    starts: helpers {list}\n    operands: input*\nrules:\n  - {{ allow: run_shell_command, commands: [lister] }}\n"
        )
    };
    let starts = |lists: &[&str]| -> Vec<Starts> {
        let texts: Vec<String> = lists.iter().map(|list| of(list)).collect();
        let set = set_of(&texts.iter().map(String::as_str).collect::<Vec<_>>());
        let args = json!({ "command": "lister src" });
        let (tool, kind, origin, access) = by_name("run_shell_command", &args);
        let asked = PolicyInput {
            tool: &tool,
            kind,
            origin: &origin,
            args: &args,
        };
        let (ruled, _) = ruled_commands(&set, &asked, &access, &FS_VIEW);
        ruled.into_iter().map(|one| one.starts).collect()
    };
    assert_eq!(starts(&["git", "git"]), [Starts::Helpers("git".to_owned())]);
    assert_eq!(starts(&["git", "scripts"]), [Starts::Nothing]);
}
