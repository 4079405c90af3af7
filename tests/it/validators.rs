//! The outputs before the judges that others use: harbor's trajectory validator and junitparser, both Python.
//!
//! `OVERNIGHT_VALIDATORS` names a directory with both (`pip install --target`, harbor's wheel unpacked); without it the
//! modules of the host's Python are tried. Missing ones skip the test, or fail it under `OVERNIGHT_REQUIRE=all`.

use super::harness::{World, have, open_policy, says, script, shell, writes};
use overnight::base::event::{Event, EventKind};
use overnight::report::junit;
use overnight::report::result::{self, OutputFacts};
use overnight::report::summary::RunSummary;
use overnight::report::transcript::{self, DeclaredPrompt};
use serde_json::Value;
use std::path::Path;
use std::process::{Command, Output};

const JUNIT: &str = "
import sys
from junitparser import JUnitXml
report = JUnitXml.fromfile(sys.argv[1])
for suite in report:
    names = [case.name for case in suite]
    assert 'completed' in names, names
    assert len(names) == len(set(names)), names
    for case in suite:
        for entry in case.result:
            assert entry.type, case.name
report.update_statistics()
print(report.tests, report.failures, report.errors, report.skipped)
";

/// Python with the validators on its path.
pub fn python(arguments: &[&str]) -> Command {
    let mut command = Command::new("python3");
    command.args(arguments).env("PYTHONDONTWRITEBYTECODE", "1");
    if let Some(directory) = std::env::var_os("OVERNIGHT_VALIDATORS") {
        command.env("PYTHONPATH", directory);
    }
    command
}

/// Whether the module is there. Says so when it is not, and fails where nothing may be skipped.
pub fn has(module: &str) -> bool {
    let found = python(&["-c", &format!("import {module}")]).output();
    let found = found.is_ok_and(|output| output.status.success());
    have(&format!("the Python module {module}"), found)
}

fn shown(output: &Output) -> String {
    let (out, err) = (
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr),
    );
    format!("{out}{err}")
}

fn events(name: &str) -> Vec<Event> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("fixtures/report/{name}.jsonl"));
    let text = std::fs::read_to_string(path).unwrap();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// Every character up to U+00FF and some that XML or terminals do not like, wherever a tool or a check can put them.
fn nasty(mut events: Vec<Event>) -> Vec<Event> {
    let text: String = ('\0'..='\u{ff}')
        .chain("\u{fffe}\u{ffff}\u{202e}]]>&<\u{1b}[2J\u{1b}]0;".chars())
        .collect();
    for event in &mut events {
        match &mut event.kind {
            EventKind::Checked { check, .. } => {
                check.output.clone_from(&text);
                check.message.clone_from(&text);
            }
            EventKind::Ran { output, .. } => output.clone_from(&text),
            EventKind::Decided(decided) => decided.title.clone_from(&text),
            EventKind::RunFinished { outcome, .. } => outcome.message.clone_from(&text),
            _ => {}
        }
    }
    events
}

/// Whole runs, runs of nasty text, and a run cut off in the middle.
fn runs() -> Vec<(String, Vec<Event>)> {
    let mut runs = Vec::new();
    for name in ["good", "denied", "suspended", "at_exec"] {
        let whole = events(name);
        let half = whole[..whole.len() / 2].to_vec();
        runs.push((format!("{name}-half"), half));
        runs.push((format!("{name}-nasty"), nasty(whole.clone())));
        runs.push((name.to_owned(), whole));
    }
    runs
}

#[test]
fn harbor_accepts_every_transcript() {
    if !has("harbor.utils.trajectory_validator") {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    for (name, events) in runs() {
        let file = dir.path().join(format!("{name}.json"));
        let text = transcript::json(
            &RunSummary::fold(&events),
            DeclaredPrompt::default(),
            &OutputFacts::default(),
        );
        std::fs::write(&file, text).unwrap();
        let output = python(&["-m", "harbor.utils.trajectory_validator"])
            .arg(&file)
            .output()
            .unwrap();
        assert!(output.status.success(), "{name}: {}", shown(&output));
    }
}

#[test]
fn junitparser_reads_every_report() {
    if !has("junitparser") {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    for (name, events) in runs() {
        let file = dir.path().join(format!("{name}.xml"));
        let sum = RunSummary::fold(&events);
        std::fs::write(&file, junit::xml(&sum, &OutputFacts::default()).unwrap()).unwrap();
        let output = python(&["-c", JUNIT]).arg(&file).output().unwrap();
        assert!(output.status.success(), "{name}: {}", shown(&output));
        let passed = result::result(&sum, &OutputFacts::default()).verdict.is_success();
        let counts = shown(&output);
        let counts: Vec<u32> = counts.split_whitespace().map(|n| n.parse().unwrap()).collect();
        assert_eq!(passed, counts[1..].iter().sum::<u32>() == 0, "{name}: {counts:?}");
    }
}

/// Run directories that the program itself made: passed, failed, denied, suspended, out of budget, killed and refused.
fn made() -> Vec<(&'static str, World)> {
    let weird = "printf '\\000\\001\\033[31m]]>&<\\377\\376\\302'; exit 3";
    let check = format!(
        "version: 1\nname: r\nsteps:\n  - {{ id: one, prompt: go, retry: {{ max: 1 }}, checks: [{{ name: 'x < y', run: {weird:?} }}] }}\n"
    );
    let policy = open_policy(&["printf", "exit"]);
    let ask = "version: 1\nextends: [builtin:edit]\nrules: [{ suspend: write_file }]\nsandbox: { level: none }\n";
    let nasty = [shell(weird), writes("b.txt", "\u{1}]]>"), says("\u{1b}[2J<&>")];
    let waiting = [writes("b.txt", "x"), says("done")];
    let make = |replies: &[Value], recipe: Option<&str>, policy: &str, more: &[&str]| {
        let world = World::repo(&[("a.txt", "one\n")]);
        let replies = script(replies);
        match recipe {
            Some(recipe) => world.recipe(recipe, &replies, policy, more),
            None => world.run(&replies, policy, &[&["-p", "x \u{7}"], more].concat()),
        };
        world
    };
    let wrong = Some("version: 1\nname: r\nstep: []\n");
    vec![
        ("passed", make(&nasty, None, &policy, &[])),
        ("failed", make(&nasty, Some(&check), &policy, &[])),
        (
            "denied",
            make(&nasty, None, "version: 1\nextends: [builtin:read-only]\n", &[]),
        ),
        ("suspended", make(&waiting, None, ask, &[])),
        ("budget", make(&waiting, None, &policy, &["--max-turns", "1"])),
        ("refused", make(&waiting, wrong, &policy, &[])),
    ]
}

#[test]
fn what_the_program_leaves_is_accepted() {
    let (transcripts, reports) = (has("harbor.utils.trajectory_validator"), has("junitparser"));
    if !transcripts && !reports {
        return;
    }
    for (name, world) in made() {
        let result = world.result();
        assert_eq!(
            result["verdict"],
            if name == "refused" { "invalid" } else { name },
            "{}",
            result["message"]
        );
        let transcript = world.out().join("transcript.json");
        assert_eq!(transcript.is_file(), name != "refused", "{name}");
        if transcripts && name != "refused" {
            let output = python(&["-m", "harbor.utils.trajectory_validator"])
                .arg(&transcript)
                .output()
                .unwrap();
            assert!(output.status.success(), "{name}: {}", shown(&output));
        }
        if reports {
            let output = python(&["-c", JUNIT])
                .arg(world.out().join("junit.xml"))
                .output()
                .unwrap();
            assert!(output.status.success(), "{name}: {}", shown(&output));
        }
    }
}
