//! Tests of plans: defaults, overrides, what values may and may not do, prompts without a recipe.

use super::*;
use crate::recipe::{StepValues, parse, policy_needed, template};
use serde_json::json;

fn plan(text: &str, params: &[&str], overrides: Overrides) -> Result<Plan, String> {
    let mut files = SourceFiles::new();
    let id = files.add("r.yaml", format!("version: 1\nname: x\n{text}"));
    let mut warnings = Vec::new();
    let shown = |problems: Vec<Diagnostic>| diag::render_all(&files, &problems);
    let recipe = parse(&files, id, &mut warnings).map_err(shown)?;
    let params: Vec<String> = params.iter().map(|param| (*param).to_owned()).collect();
    let given = RecipeArguments {
        params: &params,
        overrides,
        ..RecipeArguments::default()
    };
    lower(
        &files,
        &recipe,
        &given,
        &|_, _| Err("no such file".to_owned()),
        &mut warnings,
    )
    .map_err(shown)
}

const ONE: &str = "steps: [{id: a, prompt: x}]\n";

#[test]
fn defaults_and_flags() {
    let plain = plan(ONE, &[], Overrides::default()).unwrap();
    assert_eq!(plain.budget.turns, Some(200));
    assert_eq!(plain.budget.tokens, Some(2_000_000));
    assert_eq!(plain.budget.wall_ms, Some(1_800_000));
    assert_eq!(plain.budget.cost_micros, None);
    let overrides = Overrides {
        model: Some("script:x".to_owned()),
        budget: Budget {
            turns: Some(500),
            ..Budget::default()
        },
        ..Overrides::default()
    };
    let text = format!("{ONE}budget: {{turns: 40, cost: 2.00, wall: 20m, calls: {{glob: 3}}}}\nmodel: [a/b, c/d]\n");
    let lifted = plan(&text, &[], overrides).unwrap();
    assert_eq!(lifted.budget.turns, Some(500));
    assert_eq!(lifted.budget.cost_micros, Some(2_000_000));
    assert_eq!(lifted.budget.wall_ms, Some(1_200_000));
    assert_eq!(lifted.budget.calls["glob"], 3);
    assert_eq!((lifted.model.as_deref(), lifted.fallback.len()), (Some("script:x"), 0));
    let written = plan(&text, &[], Overrides::default()).unwrap();
    assert_eq!(written.model.as_deref(), Some("a/b"));
    assert_eq!(written.fallback, ["c/d"]);
}

#[test]
fn steps_take_what_the_recipe_says() {
    let text = "expect: change\nskip_if_green: true\nsteps:\n  - {id: a, prompt: x, checks: [{run: 'true'}], retry: {max: 2}}\n  - {id: b, run: ls, expect: any, timeout: 5s}\n";
    let plan = plan(text, &[], Overrides::default()).unwrap();
    let [a, b] = plan.steps.as_slice() else { unreachable!() };
    assert!(a.skip_if_green && !b.skip_if_green);
    assert_eq!(
        (plan.expect, a.expect, b.expect),
        (Expect::Change, Expect::Any, Expect::Any)
    );
    assert_eq!(a.retries, 2);
    assert!(matches!(
        &a.checks[0].what,
        CheckWhat::Run {
            timeout_ms: COMMAND_MS,
            ..
        }
    ));
    assert!(matches!(
        &b.work,
        StepWork::Run {
            timeout_ms: 5000,
            allow_failure: false,
            ..
        }
    ));
}

#[test]
fn a_value_changes_neither_document_nor_command() {
    let text = "parameters: [{name: p}]\nsteps:\n  - {id: a, run: 'ls {{ p }}'}\n  - {id: b, prompt: '{{ p }} {{ steps.a.output }}'}\n";
    let evil = "x\nsteps: []\n{{ steps.a.output }}'; rm -rf / #$(id)";
    let plan = plan(text, &[&format!("p={evil}")], Overrides::default()).unwrap();
    assert_eq!(plan.steps.len(), 2);
    let outputs = StepOutputs::from([("a".to_owned(), StepValues::of_output("{{ p }}"))]);
    let StepWork::Prompt { template, .. } = &plan.steps[1].work else {
        unreachable!()
    };
    assert_eq!(
        template::render(template, &plan.scope(&outputs)).unwrap(),
        format!("{evil} {{{{ p }}}}")
    );
    let StepWork::Run { command, .. } = &plan.steps[0].work else {
        unreachable!()
    };
    let quoted = template::render_command(command, &plan.scope(&outputs)).unwrap();
    assert_eq!(quoted, format!("ls '{}'", evil.replace('\'', "'\\''")));
}

#[test]
fn a_path_cannot_be_led_outside_by_a_value() {
    let text = "parameters: [{name: p}]\nsteps: [{id: a, prompt: x}]\ncontext: ['docs/{{ p }}']\n";
    assert_eq!(
        plan(text, &["p=a.md"], Overrides::default()).unwrap().context,
        ["docs/a.md"]
    );
    let shown = plan(text, &["p=../../etc/passwd"], Overrides::default()).unwrap_err();
    assert!(shown.starts_with("r.yaml:5:11: error[outside-path]"), "{shown}");
}

#[test]
fn a_prompt_is_no_template() {
    let text = "fix {{ this }} {% raw %}";
    let plan = Plan::from_prompt(text, None, &Overrides::default());
    assert_eq!(plan.steps[0].id.as_str(), "prompt");
    let StepWork::Prompt { template, .. } = &plan.steps[0].work else {
        unreachable!()
    };
    let none = StepOutputs::new();
    assert_eq!(template::render(template, &plan.scope(&none)).unwrap(), text);
    let plan = Plan::from_prompt("do it", Some(json!({"a": "{{ b }}"})), &Overrides::default());
    let StepWork::Prompt { template, .. } = &plan.steps[0].work else {
        unreachable!()
    };
    let shown = template::render(template, &plan.scope(&none)).unwrap();
    assert_eq!(shown, "do it\n\nInput, as JSON:\n{\"a\": \"{{ b }}\"}");
}

#[test]
fn a_change_needs_a_policy() {
    let needed = |text: &str| {
        let mut files = SourceFiles::new();
        let id = files.add("r.yaml", format!("version: 1\nname: x\n{text}"));
        let recipe = parse(&files, id, &mut Vec::new()).unwrap();
        policy_needed(&recipe).map(|problem| files.place(problem.span.unwrap()).to_string())
    };
    assert_eq!(needed(ONE), None);
    assert_eq!(needed(&format!("expect: change\n{ONE}")).as_deref(), Some("r.yaml:3:9"));
    assert_eq!(
        needed("steps: [{id: a, prompt: x, expect: change}]").as_deref(),
        Some("r.yaml:3:14")
    );
    assert_eq!(needed(&format!("expect: no_change\n{ONE}")), None);
}

#[test]
fn a_stand_in_for_an_output_makes_no_error_but_a_missing_input_does() {
    let text = "steps:\n  - {id: a, run: ls}\n  - {id: b, prompt: '{{ steps.a.output | int }} {{ (steps.a.output | lines)[7] }}'}\n";
    assert!(plan(text, &[], Overrides::default()).is_ok());
    let mut files = SourceFiles::new();
    let id = files.add(
        "r.yaml",
        "version: 1\nname: x\ninput: {}\nsteps:\n  - {id: a, run: ls}\n  - {id: b, prompt: '{{ steps.a.output }} {{ input.b }}'}\n",
    );
    let recipe = parse(&files, id, &mut Vec::new()).unwrap();
    let given = RecipeArguments {
        input: Some(&json!({"a": 1})),
        ..RecipeArguments::default()
    };
    let problems = lower(&files, &recipe, &given, &|_, _| Err(String::new()), &mut Vec::new()).unwrap_err();
    assert_eq!(files.place(problems[0].span.unwrap()).to_string(), "r.yaml:6:46");
}

#[test]
fn a_plan_has_one_digest() {
    let one = plan(ONE, &[], Overrides::default()).unwrap();
    let again: Plan = serde_json::from_str(&serde_json::to_string(&one).unwrap()).unwrap();
    assert_eq!(one.digest(), again.digest());
    assert_eq!(one.digest().len(), 64);
    let other = plan("steps: [{id: a, prompt: y}]", &[], Overrides::default()).unwrap();
    assert_ne!(one.digest(), other.digest());
}

#[test]
fn a_sketch_shows_what_is_missing_as_written() {
    let mut files = SourceFiles::new();
    let text = "version: 1\nname: x\ninput: {}\nparameters:\n  - {name: p, type: integer}\nsteps:\n  - {id: a, run: 'ls {{ p }}'}\n  - {id: b, prompt: 'do {{ input.b }}'}\n";
    let id = files.add("r.yaml", text);
    let recipe = parse(&files, id, &mut Vec::new()).unwrap();
    let given = RecipeArguments {
        sketch: true,
        ..RecipeArguments::default()
    };
    let plan = lower(&files, &recipe, &given, &|_, _| Err(String::new()), &mut Vec::new()).unwrap();
    let shown = crate::recipe::show::text(&plan);
    assert!(
        shown.contains("ls '{{ p }}'") && shown.contains("do {{ input.b }}"),
        "{shown}"
    );
}
