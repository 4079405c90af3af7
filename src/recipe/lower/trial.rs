//! Renders every template of a recipe once before the run, so that errors appear before anything is paid for.

use super::Render;
use crate::diag::{Diagnostic, Spanned};
use crate::recipe::model::{Recipe, StepSource};
use crate::recipe::names::problem;
use crate::recipe::template::{self, StepOutputs, StepValues, TemplateError, TemplateScope};

/// Exit code of the placeholder for a step with a command.
const STAND_IN_CODE: i32 = 0;

/// Whether an error may be caused by the placeholder for a step's output rather than by the values.
fn of_stand_in(text: &str, error: &TemplateError) -> bool {
    let at = error
        .range
        .clone()
        .and_then(|range| text.get(range))
        .unwrap_or_default();
    template::names(text).is_ok_and(|names| of_steps(&names)) && !at.trim_start().starts_with("input")
}

fn of_steps(names: &[template::FreeName]) -> bool {
    names
        .iter()
        .any(|name| name.path.first().is_some_and(|first| first == "steps"))
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
        // Only texts without outputs of steps are judged here: an output may be empty, but its placeholder is not.
        let is_blank = |text: &Spanned<String>, is_empty: bool| {
            is_empty
                && !text.value.trim().is_empty()
                && !template::names(&text.value).is_ok_and(|names| of_steps(&names))
        };
        let mut blank = Vec::new();
        match &step.work {
            StepSource::Prompt(text) => {
                let filled = template::render(&text.value, &scope);
                let is_empty = filled.as_ref().is_ok_and(|filled| filled.trim().is_empty());
                blank.extend(is_blank(text, is_empty).then_some((text, "prompt")));
                tried.push((text, filled));
            }
            StepSource::Mcp { text: Some(text), .. } => tried.push((text, template::render(&text.value, &scope))),
            // The arguments have already been rendered for the plan.
            StepSource::Mcp { text: None, .. } => {}
            StepSource::Run { .. } => {}
        }
        let own = match &step.work {
            StepSource::Run { command, .. } => Some(command),
            StepSource::Prompt(_) | StepSource::Mcp { .. } => None,
        };
        for command in own
            .into_iter()
            .chain(step.checks.iter().filter_map(|check| check.what.command()))
        {
            let filled = template::render_command(&command.value, &scope);
            let is_empty = filled.as_ref().is_ok_and(|filled| template::is_empty_command(filled));
            blank.extend(is_blank(command, is_empty).then_some((command, "command")));
            tried.push((command, filled));
        }
        // A step that may be skipped is judged only when it runs.
        for (text, what) in blank.into_iter().filter(|_| step.when.is_none()) {
            let message = format!("this {what} is empty once its values are filled in");
            let problem = Diagnostic::error("empty-text", text.span, message);
            render
                .problems
                .push(problem.help(
                "give other values, write `when` so that the step is skipped then, or `true` where nothing is to be run",
            ));
        }
        if let Some(when) = &step.when {
            let names_steps = template::condition_names(&when.value).is_ok_and(|names| of_steps(&names));
            if let (Err(error), false) = (template::condition(&when.value, &scope), names_steps) {
                render.problems.push(problem(render.files, when, error));
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
        let stand_in = StepValues {
            exit_code: matches!(step.work, StepSource::Run { .. }).then_some(STAND_IN_CODE),
            ..StepValues::of_output(format!("(output of step {})", step.id.value))
        };
        steps.insert(step.id.value.clone(), stand_in);
    }
}
