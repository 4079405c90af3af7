//! The schemas of outputs equal those generated from the types, and what the program writes matches them.

use super::{SchemaKind, problems, schema};
use crate::base::event::{Event, EventKind};
use crate::batch::result::BatchResult;
use crate::batch::rows::RunRow;
use crate::cli::refusal::{Refusal, RefusalObject};
use crate::cli::schemas::BASE;
use crate::deliver::{DeliverFault, DeliverOutcome, Delivered, DeliveredLine, Preview};
use crate::report::findings::Finding;
use crate::report::result::{self, OutputFacts, RunResult};
use crate::report::summary::RunSummary;
use schemars::JsonSchema;
use schemars::generate::SchemaSettings;
use serde_json::{Map, Value, json};
use std::path::Path;

/// The schema of a type as it is written.
fn of<T: JsonSchema>() -> Value {
    let settings = SchemaSettings::draft07().for_serialize();
    let mut schema = settings.into_generator().into_root_schema_for::<T>().to_value();
    tidy(&mut schema);
    schema
}

/// Keys that a reader fills in when they are absent are not required, so that files of older versions match too.
/// Formats that only Rust knows are left out. A `$ref` with siblings is wrapped, because draft 7 ignores the siblings
/// otherwise. A description is one paragraph, without links into the code.
fn tidy(schema: &mut Value) {
    match schema {
        Value::Array(items) => items.iter_mut().for_each(tidy),
        Value::Object(keys) => {
            keys.values_mut().for_each(tidy);
            if let Some(format) = keys.get("format").and_then(Value::as_str)
                && format != "date-time"
            {
                keys.shift_remove("format");
            }
            let optional: Vec<String> = keys
                .get("properties")
                .and_then(Value::as_object)
                .into_iter()
                .flatten()
                .filter(|(_, property)| property.get("default").is_some())
                .map(|(name, _)| name.clone())
                .collect();
            if let Some(required) = keys.get_mut("required").and_then(Value::as_array_mut) {
                required.retain(|name| !optional.iter().any(|optional| name == optional));
            }
            if keys.len() > 1
                && let Some(reference) = keys.shift_remove("$ref")
            {
                keys.insert("allOf".to_owned(), json!([{ "$ref": reference }]));
            }
            if let Some(text) = keys.get_mut("description")
                && let Some(words) = text.as_str()
            {
                let plain = words.split_whitespace().collect::<Vec<_>>().join(" ");
                *text = plain.replace("[`", "`").replace("`]", "`").into();
            }
        }
        _ => {}
    }
}

/// A whole document: `$schema`, `$id`, title and description first.
fn published(kind: SchemaKind, title: &str, description: &str, mut schema: Value) -> Value {
    let keys = schema.as_object_mut().unwrap();
    for key in ["$schema", "title", "description"] {
        keys.shift_remove(key);
    }
    let mut whole = Map::new();
    whole.insert("$schema".to_owned(), "http://json-schema.org/draft-07/schema#".into());
    whole.insert("$id".to_owned(), format!("{BASE}{}", kind.file_name()).into());
    whole.insert("title".to_owned(), title.into());
    whole.insert("description".to_owned(), description.into());
    whole.append(keys);
    Value::Object(whole)
}

/// Takes the definitions out of a schema, to put them at the top of another.
fn definitions(schema: &mut Value) -> Map<String, Value> {
    let taken = schema.as_object_mut().unwrap().shift_remove("definitions");
    taken.and_then(|value| value.as_object().cloned()).unwrap_or_default()
}

/// An event with its envelope: a line of the journal has it under `entry`; a line of the stream has `type` instead of
/// `event`. The stream's first and last lines have their own schemas.
fn event() -> Value {
    let mut event = of::<Event>();
    let mut all = definitions(&mut event);
    event.as_object_mut().unwrap().shift_remove("$schema");
    for variant in event["oneOf"].as_array_mut().unwrap() {
        let mut tag = variant["properties"]["event"].clone();
        tag["description"] = "The kind of the event, in the journal.".into();
        variant["properties"]["event"] = tag.clone();
        tag["description"] = "The kind of the event, in the stream.".into();
        variant["properties"]["type"] = tag;
        variant["required"]
            .as_array_mut()
            .unwrap()
            .retain(|name| name != "event");
    }
    event["anyOf"] = json!([{ "required": ["event"] }, { "required": ["type"] }]);
    all.insert("Event".to_owned(), event);
    let hash = |text: &str| json!({ "description": text, "type": "string", "pattern": "^[0-9a-f]{64}$" });
    let line = json!({
        "description": "A line of `journal.jsonl`.",
        "type": "object",
        "additionalProperties": false,
        "properties": {
            "chain": hash("SHA-256 over the previous line's hash (64 hex digits; empty for the first line) and the bytes of `entry`."),
            "mac": hash("With a key (`OVERNIGHT_JOURNAL_KEY`), instead of `chain`: HMAC-SHA256 over the same bytes."),
            "entry": { "description": "The event.", "allOf": [{ "$ref": "#/definitions/Event" }, { "required": ["event"] }] },
        },
        "required": ["entry"],
        "oneOf": [{ "required": ["chain"] }, { "required": ["mac"] }],
    });
    let head = json!({
        "description": "The first line of a stream.",
        "type": "object",
        "properties": {
            "type": { "description": "The first line of a stream.", "const": "stream" },
            "schema": { "description": "The format of the stream.", "const": crate::report::stream::SCHEMA },
        },
        "required": ["type", "schema"],
    });
    let last = json!({
        "description": "The last line of a stream: the result. Its other keys are those of the schema `result`.",
        "type": "object",
        "properties": {
            "type": { "description": "The last line of a stream.", "const": "result" },
            "schema": { "description": "The format of the result.", "const": result::SCHEMA },
        },
        "required": ["type", "schema", "verdict", "exit_code"],
    });
    all.insert("JournalLine".to_owned(), line);
    all.insert("StreamHead".to_owned(), head);
    all.insert("StreamResult".to_owned(), last);
    let either = ["Event", "JournalLine", "StreamHead", "StreamResult"]
        .map(|name| json!({ "$ref": format!("#/definitions/{name}") }));
    json!({ "anyOf": either, "definitions": all })
}

fn findings() -> Value {
    let mut finding = of::<Finding>();
    let mut all = definitions(&mut finding);
    finding.as_object_mut().unwrap().shift_remove("$schema");
    // Constraints that the type cannot express and `report::findings` checks.
    let required = finding["required"].as_array_mut().unwrap();
    required.retain(|key| key != "fix");
    for key in ["path", "rule", "message"] {
        finding["properties"][key]["minLength"] = json!(1);
    }
    let edits = &mut all["SuggestedFix"]["properties"]["edits"];
    edits["minItems"] = json!(1);
    for schema in [&mut finding, &mut all["LineEdit"]] {
        for key in ["line", "end_line", "column", "end_column"] {
            if let Some(number) = schema["properties"].get_mut(key) {
                number["minimum"] = json!(1);
            }
        }
    }
    all.insert("Finding".to_owned(), finding);
    json!({
        "type": "object",
        "properties": {
            "findings": {
                "description": "The findings, in any order; the first 5000 by severity are kept.",
                "type": "array",
                "items": { "$ref": "#/definitions/Finding" },
            },
        },
        "required": ["findings"],
        "definitions": all,
    })
}

fn made(kind: SchemaKind) -> Option<Value> {
    let (title, description, schema) = match kind {
        SchemaKind::Result => (
            "Result of an overnight run",
            "`result.json` of a run; `run --format json` prints the same object. Times are RFC 3339, durations are milliseconds, costs are US dollars. Keys are only ever added.",
            of::<RunResult>(),
        ),
        SchemaKind::BatchResult => (
            "Result of an overnight batch",
            "`result.json` of a batch or a merge. Times are RFC 3339, costs are US dollars. Keys are only ever added.",
            of::<BatchResult>(),
        ),
        SchemaKind::Runs => (
            "A line of runs.jsonl",
            "One finished attempt at a job of a batch. Paths except `source` are relative to the batch directory, costs are US dollars, times are RFC 3339. The last line of a job counts. Keys are only ever added.",
            of::<RunRow>(),
        ),
        SchemaKind::Deliver => (
            "A delivery of overnight",
            "One line that `overnight deliver --format json` prints: the outcome for one run.",
            of::<DeliveredLine>(),
        ),
        SchemaKind::Findings => (
            "Findings of an overnight run",
            "What a validated answer, or a step whose output is JSON, reports under `findings`. Other keys may stand beside. Lines and columns count from 1; `end_line` is inclusive, `end_column` is exclusive.",
            findings(),
        ),
        SchemaKind::Event => (
            "Event of an overnight run",
            "What happened in a run: one event (`event` says which), a line of `journal.jsonl`, which has it under `entry` with its link in the hash chain, or a line of `--format stream-json`, in which `type` says which. Kinds and keys are only ever added.",
            event(),
        ),
        SchemaKind::Error => (
            "Error of an overnight command",
            "What a command that cannot be carried out prints on stdout with `--format json`, in place of its output. `run` and `resume` print a result instead. Keys are only ever added.",
            of::<RefusalObject>(),
        ),
        SchemaKind::Recipe
        | SchemaKind::Policy
        | SchemaKind::Profile
        | SchemaKind::Batch
        | SchemaKind::Job
        | SchemaKind::Cases
        | SchemaKind::Script => {
            return None;
        }
    };
    Some(published(kind, title, description, schema))
}

#[test]
fn schemas_of_outputs_are_those_of_the_types() {
    use clap::ValueEnum;
    for kind in SchemaKind::value_variants() {
        let Some(made) = made(*kind) else { continue };
        let text = format!("{made:#}\n");
        if std::env::var_os("OVERNIGHT_BLESS").is_some() {
            let path = Path::new(env!("CARGO_MANIFEST_DIR"))
                .join("src/cli/schemas")
                .join(format!("{}.json", kind.as_str()));
            std::fs::write(path, &text).unwrap();
            continue;
        }
        // Compared as values first, because their difference is shorter.
        assert_eq!(schema(*kind), made, "{kind:?}: OVERNIGHT_BLESS=1 writes it anew");
        assert_eq!(kind.text(), text, "{kind:?}");
    }
}

fn recorded() -> Vec<(String, Vec<Event>)> {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures/report");
    let mut all = Vec::new();
    for entry in std::fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_some_and(|extension| extension == "jsonl") {
            let text = std::fs::read_to_string(&path).unwrap();
            let events = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
            all.push((path.display().to_string(), events));
        }
    }
    assert!(all.len() >= 4);
    all
}

#[test]
fn recorded_runs_match() {
    for (name, events) in recorded() {
        for event in &events {
            let value = serde_json::to_value(event).unwrap();
            assert_eq!(problems(SchemaKind::Event, &value), [""; 0], "{name}: {value}");
            let line = json!({ "chain": "0".repeat(64), "entry": value });
            assert_eq!(problems(SchemaKind::Event, &line), [""; 0], "{name}: {line}");
        }
        let result = result::result(&RunSummary::fold(&events), &OutputFacts::default());
        assert_eq!(problems(SchemaKind::Result, &result.to_value()), [""; 0], "{name}");
        let last: Value = serde_json::from_str(&crate::report::stream::last(&result)).unwrap();
        assert_eq!(problems(SchemaKind::Event, &last), [""; 0], "{name}");
        assert_eq!(problems(SchemaKind::Result, &last), [""; 0], "{name}");
    }
}

#[test]
fn what_is_no_event_does_not_match() {
    let event = Event {
        seq: 1,
        at: "2026-11-01T00:00:00Z".parse().unwrap(),
        kind: EventKind::Warned {
            code: "c".to_owned(),
            message: "m".to_owned(),
        },
    };
    let good = serde_json::to_value(event).unwrap();
    assert_eq!(problems(SchemaKind::Event, &good), [""; 0]);
    for (key, value) in [
        ("event", json!("unheard_of")),
        ("seq", json!("1")),
        ("code", json!(7)),
        ("at", Value::Null),
    ] {
        let mut bad = good.clone();
        bad[key] = value;
        assert!(!problems(SchemaKind::Event, &bad).is_empty(), "{bad}");
    }
}

#[test]
fn deliveries_match() {
    let outcomes = [
        None,
        Some(DeliverOutcome::Opened),
        Some(DeliverOutcome::ClosedByPerson),
        Some(DeliverOutcome::HeldBack),
    ];
    for outcome in outcomes {
        let done = Delivered {
            run: "r".to_owned(),
            job: outcome.map(|_| "j".to_owned()),
            outcome,
            fault: DeliverFault::None,
            preview: outcome.map(|_| Preview::default()),
            ..Delivered::default()
        };
        let line = done.to_value();
        assert_eq!(problems(SchemaKind::Deliver, &line), [""; 0], "{line}");
    }
    assert!(!problems(SchemaKind::Deliver, &json!({ "run": "r", "outcome": "sent" })).is_empty());
}

#[test]
fn refusals_match() {
    for (refusal, verdict, code) in [
        (Refusal::Usage("x".to_owned()), "usage", 2),
        (Refusal::Invalid("x".to_owned()), "invalid", 3),
        (Refusal::Environment("x".to_owned()), "environment", 8),
        (Refusal::Output("x".to_owned()), "output", 9),
    ] {
        let object = refusal.object();
        let wanted = json!({ "schema": "overnight/error/v1", "verdict": verdict, "exit_code": code, "message": "x" });
        assert_eq!(object, wanted);
        assert_eq!(problems(SchemaKind::Error, &object), [""; 0], "{object}");
    }
    assert!(!problems(SchemaKind::Error, &json!({ "schema": "overnight/error/v1" })).is_empty());
}

#[test]
fn findings_match_as_they_are_read() {
    let full = json!({ "path": "a.rs", "line": 1, "end_line": 2, "column": 1, "end_column": 3, "rule": "r",
        "level": "note", "message": "m", "fix": { "description": "d", "edits": [{ "line": 1, "end_line": 2, "text": "x" }] } });
    let cases = [
        (json!({}), true),
        (json!({ "fix": null, "end_line": null }), true),
        (json!({ "fix": { "edits": [] } }), false),
        (json!({ "line": 0 }), false),
        (json!({ "column": 0 }), false),
        (json!({ "message": "" }), false),
        (json!({ "fix": { "edits": [{ "line": 0, "text": "" }] } }), false),
        (json!({ "level": "fatal" }), false),
        (json!({ "line": "1" }), false),
        (json!({ "colour": "red" }), false),
        (json!({ "fix": { "edits": [{ "line": 1 }] } }), false),
        (json!({ "message": null }), false),
    ];
    let changed = cases.into_iter().map(|(change, good)| {
        let mut finding = full.clone();
        for (key, value) in change.as_object().unwrap() {
            finding[key] = value.clone();
        }
        (finding, good)
    });
    let keys = full.as_object().unwrap().keys();
    let without = keys.map(|key| {
        let mut finding = full.clone();
        finding.as_object_mut().unwrap().shift_remove(key);
        let good = ["end_line", "column", "end_column", "fix"].contains(&key.as_str());
        (finding, good)
    });
    // The schema of the check that `findings: true` makes.
    let check: Value = serde_json::from_str(include_str!("../../../recipe/findings.schema.json")).unwrap();
    let check = jsonschema::validator_for(&check).unwrap();
    for (finding, good) in changed.chain(without) {
        assert_eq!(crate::report::findings::read(&finding).is_ok(), good, "{finding}");
        let document = json!({ "findings": [finding] });
        assert_eq!(check.is_valid(&document), good, "{document}");
        let found = problems(SchemaKind::Findings, &document);
        assert_eq!(found.is_empty(), good, "{found:?}");
    }
}
