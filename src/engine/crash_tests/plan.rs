//! Plans in which prompts with a check alternate with commands, and simulated worlds for them.

use super::{Act, World};
use crate::base::budget::Budget;
use crate::base::event::{PathChange, Unruled};
use crate::base::ids::StepId;
use crate::recipe::Plan;
use crate::recipe::plan::{Check, CheckWhat, Expect, OnDeny, PlanStep, StepWork, ToolPlan};
use proptest::prelude::*;
use std::collections::BTreeMap;

/// A plan with this many steps, the even ones prompts; the first has a check that may fail for some attempts.
pub fn plan(steps: usize, retries: u32) -> Plan {
    let step = |n: usize| PlanStep {
        id: StepId(format!("s{n}")),
        // The fourth step is skipped by its condition.
        when: (n == 3).then(|| "steps.s0.status == \"skipped\"".to_owned()),
        findings: false,
        work: if n % 2 == 1 {
            StepWork::Run {
                command: "true".to_owned(),
                timeout_ms: 1,
                allow_failure: false,
            }
        } else {
            StepWork::Prompt {
                template: "do".to_owned(),
                mcp: None,
            }
        },
        checks: if n == 0 {
            vec![Check {
                name: "c".to_owned(),
                what: CheckWhat::Run {
                    command: "check".to_owned(),
                    timeout_ms: 1,
                },
            }]
        } else {
            Vec::new()
        },
        retries,
        // With an odd number of retries, attempts are fresh.
        fresh: retries % 2 == 1,
        expect: Expect::Any,
        skip_if_green: false,
        budget: None,
    };
    Plan {
        name: "p".to_owned(),
        description: String::new(),
        steps: (0..steps).map(step).collect(),
        budget: Budget {
            turns: Some(20),
            ..Budget::default()
        },
        on_deny: OnDeny::Tell,
        expect: Expect::Any,
        context: Vec::new(),
        required_context: Vec::new(),
        skills: Vec::new(),
        memory: false,
        tools: ToolPlan::default(),
        response: None,
        response_retries: 0,
        isolate_keep: Vec::new(),
        model: None,
        fallback: Vec::new(),
        model_settings: crate::recipe::plan::ModelSettings::default(),
        values: BTreeMap::new(),
        input: None,
        input_format: crate::recipe::plan::InputFormat::Json,
        deliver: None,
    }
}

/// A change that no rule allows.
pub fn stray() -> Unruled {
    Unruled {
        path: "stray".to_owned(),
        change: PathChange::Modified,
        rule: None,
        code: "no_rule".to_owned(),
        denied: false,
        left: false,
        restored: false,
    }
}

/// Worlds with random acts of the model and a random number of failing checks.
pub fn worlds() -> impl Strategy<Value = World> {
    let act = prop_oneof![
        4 => Just(Act::Read),
        4 => Just(Act::Write),
        2 => Just(Act::Stray),
        1 => Just(Act::Denied),
        1 => Just(Act::Suspended),
        1 => Just(Act::Unknown),
    ];
    let replies = prop::collection::vec(prop::collection::vec(act, 0..4), 0..5);
    (replies, 0..3_u32).prop_map(|(replies, red)| World {
        replies,
        red,
        done: BTreeMap::new(),
        asked: 0,
        writes: 0,
        stray: false,
        put_back: 0,
    })
}

/// The act that a tool name stands for.
pub fn act(tool: &str) -> Act {
    [Act::Read, Act::Write, Act::Stray, Act::Denied, Act::Suspended]
        .into_iter()
        .find(|act| format!("{act:?}") == tool)
        .unwrap_or(Act::Unknown)
}
