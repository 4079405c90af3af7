//! Plans of prompts with a check and commands in turn.

use crate::base::budget::Budget;
use crate::base::ids::StepId;
use crate::recipe::Plan;
use crate::recipe::plan::{Check, CheckWhat, Expect, OnDeny, PlanStep, StepWork, ToolPlan};
use std::collections::BTreeMap;

/// So many steps, the even ones prompts; the first has a check that may be red for some attempts.
pub fn plan(steps: usize, retries: u32) -> Plan {
    let step = |n: usize| PlanStep {
        id: StepId(format!("s{n}")),
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
        skills: Vec::new(),
        memory: false,
        tools: ToolPlan::default(),
        response: None,
        response_retries: 0,
        model: None,
        fallback: Vec::new(),
        values: BTreeMap::new(),
        input: None,
    }
}
