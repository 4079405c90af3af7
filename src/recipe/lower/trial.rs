//! Renders every template of a recipe once before the run, so that errors appear before anything is paid for.

use super::Render;
use crate::recipe::model::{CheckKind, Recipe, StepSource};
use crate::recipe::names::problem;
use crate::recipe::template::{self, StepOutputs, TemplateError, TemplateScope};

/// Whether an error may be caused by the placeholder for a step's output rather than by the values.
fn of_stand_in(text: &str, error: &TemplateError) -> bool {
    let of_steps = |names: Vec<template::FreeName>| {
        names
            .iter()
            .any(|name| name.path.first().is_some_and(|first| first == "steps"))
    };
    let at = error
        .range
        .clone()
        .and_then(|range| text.get(range))
        .unwrap_or_default();
    template::names(text).is_ok_and(of_steps) && !at.trim_start().starts_with("input")
}

/// Renders every prompt and command once, with a placeholder for each earlier step.
pub(super) fn try_templates(recipe: &Recipe, render: &mut Render<'_>) {
    let mut steps = StepOutputs::new();
    for step in &recipe.steps {
        let scope = TemplateScope {
            steps: &steps,
            ..render.scope
        };
        let mut tried = Vec::new();
        match &step.work {
            StepSource::Prompt(text) | StepSource::Mcp { text: Some(text), .. } => {
                tried.push((text, template::render(&text.value, &scope)));
            }
            // The arguments were rendered with the plan.
            StepSource::Mcp { text: None, .. } => {}
            StepSource::Run { command, .. } => tried.push((command, template::render_command(&command.value, &scope))),
        }
        for check in &step.checks {
            if let CheckKind::Run { command, .. } = &check.what {
                tried.push((command, template::render_command(&command.value, &scope)));
            }
        }
        for (text, result) in tried {
            match result {
                Err(error) if !of_stand_in(&text.value, &error) => {
                    render.problems.push(problem(render.files, text, error));
                }
                _ => {}
            }
        }
        steps.insert(step.id.value.clone(), format!("(output of step {})", step.id.value));
    }
}
