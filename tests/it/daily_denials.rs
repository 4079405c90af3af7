//! How many denials a model meets that types what models type every day: the commands of `fixtures/policy/daily`, one file for each
//! kind of repository, under the policy that is shipped for it. All are ruled on by their text; those that may start run in
//! scripted runs, and what is denied while they run counts too. Programs that are not installed are not found then, which is no denial.
//!
//! The files say how many were denied when the lists were made and how many may be now. `OVERNIGHT_LIST_DENIALS=1` prints each denial.

use super::attacks::ground::{Ground, level_found, users};
use super::corpus_effects::furnish;
use super::harness::{project, says, script, shell};
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// What a session met.
#[derive(Default)]
struct Met {
    commands: usize,
    /// Denials and held commands by their code.
    codes: BTreeMap<String, usize>,
    lines: Vec<String>,
}

impl Met {
    fn denied(&mut self, command: &str, code: &str, reason: &str) {
        // `unknown_option:--pre` counts as `unknown_option`.
        let code = code.split(':').next().unwrap_or(code);
        *self.codes.entry(code.to_owned()).or_default() += 1;
        self.lines.push(format!("{command:?}: {code}: {reason:.160}"));
    }

    fn count(&self) -> usize {
        self.codes.values().sum()
    }
}

/// The first policy of the list that this program knows.
fn policy(ground: &Ground, session: &Value) -> String {
    let names = session["policies"].as_array().unwrap().iter();
    let found = names
        .map(|name| match name.as_str().unwrap() {
            builtin if builtin.starts_with("builtin:") => builtin.to_owned(),
            path => project().join(path).to_string_lossy().into_owned(),
        })
        .find(|name| ground.run(&["policy", "check", name], &[], None).code == 0);
    found.unwrap()
}

fn met(session: &Value) -> Met {
    let ground = Ground::new(users()[0]);
    furnish(&ground);
    let policy = policy(&ground, session);
    let commands: Vec<&str> = session["commands"]
        .as_array()
        .unwrap()
        .iter()
        .map(|command| command.as_str().unwrap())
        .collect();
    let mut met = Met {
        commands: commands.len(),
        ..Met::default()
    };
    let calls: String = commands
        .iter()
        .map(|command| json!({"tool": "run_shell_command", "args": {"command": command}}).to_string() + "\n")
        .collect();
    let explained = ground.run(&["policy", "explain", &policy, "--calls", "-"], &[], Some(&calls));
    let rulings: Vec<Value> = explained
        .stdout
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    assert_eq!(rulings.len(), commands.len(), "{}", explained.stderr);
    let mut replies = Vec::new();
    for (command, ruling) in commands.iter().zip(&rulings) {
        let text = |key: &str| ruling[key].as_str().unwrap_or_default();
        match text("decision") {
            "deny" | "suspend" => met.denied(command, text("code"), text("reason")),
            _ => replies.push(shell(command)),
        }
    }
    // In several runs, so that a slow machine ends none of them by its patience.
    for (n, part) in replies.chunks(15).enumerate() {
        let said: Vec<Value> = part.iter().cloned().chain([says("done")]).collect();
        let model = format!("script:{}", ground.given(&format!("script-{n}.yaml"), &script(&said)));
        let dir = ground.at("run").join(n.to_string());
        let out = dir.to_string_lossy().into_owned();
        let args = ["run", "-p", "x", "--policy", &policy, "--model", &model, "--out", &out];
        let done = ground.run(&args, &[], None);
        let result = std::fs::read_to_string(dir.join("result.json")).unwrap_or_default();
        let result: Value = serde_json::from_str(&result).unwrap_or_else(|error| panic!("{error}: {}", done.stderr));
        let asked = result["usage"]["turns"].as_u64().unwrap_or(0) as usize;
        assert_eq!(asked, said.len(), "the session ended early: {}", done.stderr);
        for denied in result["denied"].as_array().into_iter().flatten() {
            let text = |key: &str| denied[key].as_str().unwrap_or_default();
            met.denied(text("call"), text("code"), text("reason"));
        }
    }
    met
}

fn session(name: &str) {
    let user = users()[0];
    if !level_found("full", user) && !level_found("landlock", user) {
        return;
    }
    let path = project().join("fixtures/policy/daily").join(format!("{name}.yaml"));
    let session: Value = serde_saphyr::from_str(&std::fs::read_to_string(path).unwrap()).unwrap();
    let met = met(&session);
    assert!(met.commands >= 70, "{} commands", met.commands);
    let list = std::env::var_os("OVERNIGHT_LIST_DENIALS").is_some();
    let lines = if list { met.lines.join("\n") } else { String::new() };
    let codes: Vec<String> = met
        .codes
        .iter()
        .map(|(code, count)| format!("{code} {count}"))
        .collect();
    let mut err = std::io::stderr().lock();
    let _ = std::io::Write::write_fmt(
        &mut err,
        format_args!(
            "{name}: {} of {} commands denied, {} when the list was made; {}\n{lines}\n",
            met.count(),
            met.commands,
            session["before"],
            codes.join(", ")
        ),
    );
    let most = session["most"].as_u64().unwrap() as usize;
    assert!(
        met.count() <= most,
        "{} denials, {most} may be\n{}",
        met.count(),
        met.lines.join("\n")
    );
}

#[test]
fn a_session_in_a_rust_repository() {
    session("rust");
}

#[test]
fn a_session_in_a_node_repository() {
    session("node");
}

#[test]
fn a_session_in_a_python_repository() {
    session("python");
}

#[test]
fn a_session_in_a_go_repository() {
    session("go");
}
