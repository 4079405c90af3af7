//! Tests of the transcript that do not need the format's own validator; `tests/it` runs that one.

use super::build::{self, Run};
use crate::base::call::{ToolKind, ToolOrigin, ToolOutput, ToolSpec};
use crate::base::content::{Media, ToolContent};
use crate::report::result::OutputFacts;
use crate::report::summary::RunSummary;
use crate::report::transcript::{self, DeclaredPrompt};
use proptest::prelude::*;
use serde_json::{Value, json};

fn document(run: &Run) -> Value {
    let text = transcript::json(
        &RunSummary::fold(&run.events),
        DeclaredPrompt::default(),
        &OutputFacts::default(),
    );
    let value: Value = serde_json::from_str(&text).unwrap();
    keeps_the_rules(&value);
    value
}

/// The rules of the format that go beyond field names.
fn keeps_the_rules(document: &Value) {
    let steps = document["steps"].as_array().unwrap();
    assert!(!steps.is_empty());
    for (i, step) in steps.iter().enumerate() {
        assert_eq!(step["step_id"], i + 1);
        if step["source"] != "agent" {
            for field in ["model_name", "reasoning_content", "tool_calls", "metrics"] {
                assert!(step.get(field).is_none(), "{field} is the agent's alone");
            }
        }
        let ids: Vec<&Value> = step["tool_calls"]
            .as_array()
            .into_iter()
            .flatten()
            .map(|call| &call["tool_call_id"])
            .collect();
        for result in step["observation"]["results"].as_array().into_iter().flatten() {
            if let Some(id) = result.get("source_call_id") {
                assert!(ids.contains(&id), "{id} is no call of step {}", i + 1);
            }
        }
    }
    assert_eq!(document["final_metrics"]["total_steps"], steps.len());
}

#[test]
fn a_good_run_in_the_open_format() {
    let run = build::good();
    let tool = ToolSpec {
        name: "glob".to_owned(),
        display_name: "Glob".to_owned(),
        description: "finds files".to_owned(),
        kind: ToolKind::Search,
        origin: ToolOrigin::Builtin,
        parameters: json!({"type": "object"}),
        effects: crate::base::call::ToolEffects::default(),
        aliases: Vec::new(),
    };
    let declared = DeclaredPrompt {
        system: Some("You work alone."),
        tools: &[tool],
    };
    let text = transcript::json(&RunSummary::fold(&run.events), declared, &OutputFacts::default());
    keeps_the_rules(&serde_json::from_str(&text).unwrap());
    build::snapshot("transcript_good", &text);
}

#[test]
fn every_end_gives_a_document() {
    for run in [build::good(), build::denied(), build::suspended()] {
        for n in 0..=run.events.len() {
            let sum = RunSummary::fold(&run.events[..n]);
            let text = transcript::json(&sum, DeclaredPrompt::default(), &OutputFacts::default());
            keeps_the_rules(&serde_json::from_str(&text).unwrap());
        }
    }
}

#[test]
fn a_ruling_stands_beside_its_call() {
    let document = document(&build::denied());
    let call = &document["steps"][1]["tool_calls"][0];
    assert_eq!(call["extra"]["overnight"]["decision"], "deny");
    assert_eq!(call["extra"]["overnight"]["code"], "protected_path");
    assert_eq!(document["extra"]["overnight"]["denied"][0]["call"], "c1");
}

#[test]
fn media_are_named_and_not_carried() {
    let mut run = Run::start();
    run.step("fix", None).attempt("fix", 1, "x");
    let ids = run.reply("", &[("read_file", json!({"file_path": "logo.png"}))]);
    let mut output = ToolOutput::text("", "an image");
    output.content = vec![ToolContent::Media(Media {
        mime: "image/png".to_owned(),
        data: "QUJD".repeat(100),
        name: Some("logo.png".to_owned()),
    })];
    run.done(&ids[0], "read_file", "logo.png", output);
    let document = document(&run);
    assert!(!document.to_string().contains("QUJD"));
    let told = &document["steps"][1]["observation"]["results"][0]["content"];
    assert_eq!(told, "[image/png, about 300 bytes: logo.png]");
}

proptest! {
    #[test]
    fn any_text_gives_a_document(text in ".*", args in prop_oneof![Just(json!(null)), Just(json!([1])), Just(json!({"a": 1}))]) {
        let mut run = Run::start();
        run.step(&text, None).attempt(&text, 1, &text);
        let ids = run.reply(&text, &[(&text, args)]);
        run.shell(&ids[0], &text, &text);
        run.check(&text, 1, &text, false, &text);
        document(&run);
    }
}
