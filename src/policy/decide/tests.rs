//! Rulings on calls: by table, and properties that hold for any rules.

use super::*;
use crate::base::access::{CommandAccess, PathStatus, ResolvedPath};
use crate::base::call::{ToolKind, ToolOrigin};
use crate::diag::{SourceFiles, parse as parse_yaml};
use crate::policy::hosts::{HostPattern, judge as judge_url};
use crate::policy::lexical_access::{by_name, lexical};
use crate::policy::load::{PolicySource, load};
use crate::policy::model::KnownTools;
use serde_json::{Value, json};

mod corpus;
mod profiles;
mod properties;
mod rules;

pub(super) fn fixture(text: &str) -> Value {
    let mut files = SourceFiles::new();
    let id = files.add("fixture", text);
    parse_yaml(&files, id).unwrap().to_json()
}

/// A set from texts; JSON is YAML.
pub(super) fn set_of(texts: &[&str]) -> PolicySet {
    let sources: Vec<PolicySource> = texts
        .iter()
        .enumerate()
        .map(|(index, text)| PolicySource {
            name: format!("p{index}.yaml"),
            text: (*text).to_owned(),
        })
        .collect();
    let mut files = SourceFiles::new();
    match load(&mut files, &sources, &KnownTools::builtin()) {
        Ok((set, _)) => set,
        Err(problems) => panic!("{}", crate::diag::render_all(&files, &problems)),
    }
}

/// Rules on a call of a built-in tool.
pub(super) fn ruled(set: &PolicySet, tool: &str, kind: ToolKind, access: &Access, uses: &Uses) -> Ruling {
    let args = json!({});
    let asked = PolicyInput {
        tool,
        kind,
        origin: &ToolOrigin::Builtin,
        args: &args,
    };
    crate::policy::lexical_access::without_tree(|fs_view| decide(set, &asked, access, fs_view, uses))
}

/// Rules on a command of the shell tool. `witness`: whether programs are judged at their exec.
pub(super) fn shell_ruling(set: &PolicySet, text: &str, fs_view: &FsView<'_>, witness: bool) -> Ruling {
    let args = json!({ "command": text });
    let (tool, kind, origin, access) = by_name("run_shell_command", &args);
    let asked = PolicyInput {
        tool: &tool,
        kind,
        origin: &origin,
        args: &args,
    };
    let ruling = decide_with(set, &asked, &access, fs_view, &Uses::default(), witness);
    assert!(
        crate::policy::codes::find(&ruling.code).is_some(),
        "{text:?}: unknown code {}",
        ruling.code
    );
    ruling
}

pub(super) fn command(set: &PolicySet, text: &str) -> Ruling {
    let access = Access {
        commands: vec![CommandAccess {
            text: text.to_owned(),
            dir: String::new(),
        }],
        ..Access::none()
    };
    ruled(set, "run_shell_command", ToolKind::Execute, &access, &Uses::default())
}

fn place_of(case: &Value, asked: &str) -> ResolvedPath {
    let found = match case.get("found").and_then(Value::as_str) {
        None => PathStatus::File,
        Some(found) => serde_json::from_value(json!(found)).unwrap(),
    };
    let to = case.get("to").and_then(Value::as_str).unwrap_or(asked);
    let inside = case.get("inside").and_then(Value::as_bool);
    let place = lexical(to);
    ResolvedPath {
        asked: asked.to_owned(),
        inside: inside.unwrap_or(place.inside),
        found,
        ..place
    }
}

/// Renders `protected.md` from the tables of protected and secret-like names.
fn page() -> String {
    use crate::policy::{protected, secrets_like};
    let mut page = include_str!("../protected.md")
        .split_inclusive("| --- | --- | --- |\n")
        .next()
        .unwrap()
        .to_owned();
    for entry in protected::LIST {
        let name = match (entry.prefix, entry.ending) {
            (true, _) => format!("{}*", entry.path),
            (false, true) => format!("*{}", entry.path),
            (false, false) => entry.path.to_owned(),
        };
        let at = if entry.anywhere { "**/" } else { "" };
        page.push_str(&format!("| `{at}{name}` | {} | {} |\n", entry.what, entry.why));
    }
    page.push_str("\n## Secret-like names\n\n| name | what it holds |\n| --- | --- |\n");
    for (name, what) in secrets_like::table() {
        page.push_str(&format!("| `{name}` | {what} |\n"));
    }
    page
}

#[test]
fn the_page_of_protected_names_is_the_table() {
    assert_eq!(include_str!("../protected.md"), page());
}

#[test]
fn every_protected_and_secret_like_name_has_a_reason_and_a_case() {
    use crate::policy::{protected, secrets_like};
    let table = fixture(include_str!("../../../fixtures/policy/paths/cases.yaml"));
    let cases = table["cases"].as_array().unwrap();
    let denied = |key: &str, code: &str| -> Vec<String> {
        let fits = |case: &&Value| case["expect"] == "deny" && case["code"] == code;
        let paths = cases.iter().filter(fits).filter_map(|case| case[key].as_str());
        paths.map(str::to_owned).collect()
    };
    let (written, read) = (denied("write", "protected_path"), denied("read", "secret_like_path"));
    let mut missing = Vec::new();
    for entry in protected::LIST {
        assert!(entry.why.len() > 8 && !entry.what.is_empty(), "{}", entry.path);
        let own = |path: &String| entry.holds(&crate::policy::name_folding::fold_path(path));
        if !written.iter().any(own) {
            missing.push(entry.path.to_owned());
        }
    }
    for (name, what) in secrets_like::table() {
        assert!(!what.is_empty(), "{name}");
        let bare = name.trim_matches(['*', '/', '.']).to_lowercase();
        if !read.iter().any(|path| path.to_lowercase().contains(&bare)) {
            missing.push(name);
        }
    }
    assert!(missing.is_empty(), "no case in the table for {missing:?}");
}

#[test]
fn paths_are_ruled_as_the_table_says() {
    let table = fixture(include_str!("../../../fixtures/policy/paths/cases.yaml"));
    let mut sets = std::collections::BTreeMap::new();
    for (name, policy) in table["policies"].as_object().unwrap() {
        let mut set = set_of(&[&policy.to_string()]);
        set.protect(["ci/policy.yaml".to_owned()]);
        sets.insert(name.clone(), set);
    }
    let cases = table["cases"].as_array().unwrap();
    assert!(cases.len() >= 100);
    let mut wrong = Vec::new();
    for case in cases {
        let set = &sets[case["policy"].as_str().unwrap()];
        let ruling = match (case.get("read"), case.get("write")) {
            (Some(path), None) => {
                let access = Access::read(place_of(case, path.as_str().unwrap()));
                ruled(set, "read_file", ToolKind::Read, &access, &Uses::default())
            }
            (None, Some(path)) => {
                let access = Access::write(place_of(case, path.as_str().unwrap()));
                ruled(set, "write_file", ToolKind::Edit, &access, &Uses::default())
            }
            _ => panic!("{case}"),
        };
        let code = case.get("code").map_or("allowed", |code| code.as_str().unwrap());
        if ruling.decision.as_str() != case["expect"].as_str().unwrap() || ruling.code != code {
            wrong.push(format!(
                "{case}: {} {} {}",
                ruling.decision.as_str(),
                ruling.code,
                ruling.reason
            ));
        }
        assert!(crate::policy::codes::find(&ruling.code).is_some(), "{}", ruling.code);
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn urls_are_granted_as_the_table_says() {
    let table = fixture(include_str!("../../../fixtures/policy/urls/grants.yaml"));
    let hosts = table["hosts"].as_array().unwrap();
    let patterns: Vec<HostPattern> = hosts
        .iter()
        .map(|host| HostPattern::parse(host.as_str().unwrap()).unwrap())
        .collect();
    let cases = table["cases"].as_array().unwrap();
    assert!(cases.len() >= 60);
    for case in cases {
        let url = case["url"].as_str().unwrap();
        let refused = judge_url(url, &patterns).err().map(|why| why.as_str());
        assert_eq!(refused, case.get("refused").map(|why| why.as_str().unwrap()), "{case}");
    }
}

#[test]
fn host_patterns_are_strict() {
    let table = fixture(include_str!("../../../fixtures/policy/urls/patterns.yaml"));
    for good in table["good"].as_array().unwrap() {
        assert!(HostPattern::parse(good.as_str().unwrap()).is_ok(), "{good}");
    }
    for bad in table["bad"].as_array().unwrap() {
        assert!(HostPattern::parse(bad.as_str().unwrap()).is_err(), "{bad}");
    }
}

#[test]
fn only_rules_that_grant_something_are_shown_as_matching() {
    let set = set_of(&["version: 1
rules:
  - { id: tests, allow: run_shell_command, commands: [cargo test] }
  - { id: look, allow: run_shell_command, commands: [cat] }
"]);
    let matching = |command: &str| {
        let ruling = crate::policy::lexical_access::without_tree(|fs_view| shell_ruling(&set, command, fs_view, true));
        let shown = ruling.considered.into_iter().filter(|one| one.matched);
        shown
            .map(|one| format!("{}: {}", one.rule, one.why))
            .collect::<Vec<_>>()
    };
    assert_eq!(matching("cat README.md"), ["look: run `cat README.md`"]);
    assert_eq!(matching("sed -n 1p README.md"), Vec::<String>::new());
}
