//! Tests of the result object.

use super::build;
use crate::base::event::EventKind;
use crate::base::outcome::{RunOutcome, Verdict};
use crate::report::result::{self, OutputFacts, RunResult};
use crate::report::summary::RunSummary;
use serde_json::{Value, json};

fn ending(exit_code: i32) -> OutputFacts {
    OutputFacts {
        exit_code,
        artefacts: [("patch".to_owned(), ".overnight/runs/x/changes.patch".to_owned())].into(),
        ..OutputFacts::default()
    }
}

#[test]
fn the_object_of_a_good_run_is_as_promised() {
    let run = build::good();
    let result = result::result(&RunSummary::fold(&run.events), &ending(0));
    build::snapshot("result_good", &result.to_pretty());
}

#[test]
fn a_program_denied_at_its_exec_is_listed_with_what_had_run() {
    let run = build::at_exec();
    let value = result::result(&RunSummary::fold(&run.events), &OutputFacts::default()).to_value();
    let denied = &value["denied"][0];
    assert_eq!(
        (&denied["status"], &denied["code"]),
        (&json!("denied"), &json!("exec_denied"))
    );
    assert_eq!(denied["argv"], json!(["rm", "src/a.rs", "tests/<a>.rs"]));
    assert_eq!((&denied["cwd"], &denied["rule"]), (&json!("."), &json!("rust.yaml:12")));
    let ran = json!([{"argv": ["rg", "-l", "foo"], "cwd": "."}, {"argv": ["xargs", "rm"], "cwd": "."}]);
    assert_eq!(denied["ran"], ran);
    let unruled = json!([
        {"path": "lib/*b*.rs", "change": "modified", "rule": null, "code": "no_rule", "restored": true},
        {"path": "out/", "change": "added", "rule": null, "code": "no_rule", "left": true, "restored": false},
    ]);
    assert_eq!((&value["unruled"], &value["unruled_omitted"]), (&unruled, &json!(3)));
}

#[test]
fn denied_and_suspended_calls_are_listed_with_rule_and_reason() {
    let run = build::denied();
    let value = result::result(&RunSummary::fold(&run.events), &ending(4)).to_value();
    assert_eq!(value["verdict"], "denied");
    assert_eq!(value["exit_code"], 4);
    let denied = &value["denied"][0];
    assert_eq!((&denied["call"], &denied["tool"]), (&json!("c1"), &json!("write_file")));
    assert_eq!(denied["code"], "protected_path");
    assert_eq!(denied["rule"], "rust.yaml:7");
    assert_eq!(value["patch"], Value::Null);

    let run = build::suspended();
    let value = result::result(&RunSummary::fold(&run.events), &ending(5)).to_value();
    let waiting = &value["suspended"][0];
    assert_eq!(waiting["args"], json!({"command": "git push"}));
    assert_eq!(waiting["reason"], "pushing needs a person");
    assert_eq!(value["partial"], true);
}

#[test]
fn the_answer_is_the_validated_json_where_there_is_one() {
    let mut run = build::good();
    run.push(EventKind::ResponseJudged {
        ok: true,
        errors: Vec::new(),
        output: Some(json!({"summary": "x"})),
    });
    let result = result::result(&RunSummary::fold(&run.events), &ending(0));
    assert_eq!(result::text(&result), "{\"summary\":\"x\"}\n");
    assert_eq!(result.response, "Fixed the warning in `src/lib.rs`.");
}

#[test]
fn a_run_that_never_started_has_the_same_keys() {
    let never = {
        let outcome = RunOutcome::new(Verdict::Invalid, "", "recipe.yaml:1:1: unknown key");
        result::unstarted(&outcome, "", &ending(3)).to_value()
    };
    let run = build::good();
    let whole = result::result(&RunSummary::fold(&run.events), &ending(0)).to_value();
    let keys = |value: &Value| value.as_object().unwrap().keys().cloned().collect::<Vec<_>>();
    assert_eq!(keys(&never), keys(&whole));
    assert_eq!((&never["verdict"], &never["response"]), (&json!("invalid"), &json!("")));
}

#[test]
fn the_object_reads_back() {
    let run = build::good();
    let result = result::result(&RunSummary::fold(&run.events), &ending(0));
    let again: RunResult = serde_json::from_str(&result.to_line()).unwrap();
    assert_eq!(again, result);
}
