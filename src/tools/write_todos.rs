//! The tool `write_todos`: the model's task list, shown to people. Has no other effect.

use super::args::{Args, invalid};
use super::builtin::{Builtin, OtherNames, ToolFacts};
use super::schema::object;
use super::{PreparedCall, ToolError};
use crate::base::access::Access;
use crate::base::call::{ArgumentTarget, Display, Todo, ToolEffects, ToolKind, ToolOutput};
use crate::workspace::Workspace;
use serde_json::{Value, json};
use std::sync::Arc;

const MAX_TODOS: usize = 100;

const MAX_DESCRIPTION: usize = 500;

/// Defines the tool.
pub fn tool() -> Builtin {
    Builtin::new(
        &ToolFacts {
            name: "write_todos",
            display: "WriteTodos",
            aliases: &[],
            kind: ToolKind::Plan,
            effects: ToolEffects::reads(ArgumentTarget::Nothing),
            other_names: OtherNames {
                agents: &["todowrite", "update_plan"],
                settings: &["WriteTodosTool", "write_todos_list"],
                ..OtherNames::default()
            },
        },
        "Writes your list of sub-tasks in place of the one before. At most one is in_progress.",
        object(
            [(
                "todos",
                json!({
                    "type": "array",
                    "maxItems": MAX_TODOS,
                                        "items": {
                        "type": "object",
                        "properties": {
                            "description": { "type": "string", "maxLength": MAX_DESCRIPTION },
                            "status": {
                                "type": "string",
                                "enum": ["pending", "in_progress", "completed", "cancelled", "blocked"],
                            },
                        },
                        "required": ["description", "status"],
                        "additionalProperties": false,
                    },
                }),
            )],
            &["todos"],
        ),
        prepare,
    )
}

fn prepare(args: &Args<'_>, _workspace: &Arc<Workspace>) -> Result<PreparedCall, ToolError> {
    let list = args
        .value("todos")
        .and_then(Value::as_array)
        .ok_or_else(|| invalid("`todos` is missing"))?;
    let todos: Vec<Todo> = list.iter().map(todo).collect::<Result<_, _>>()?;
    let running = todos.iter().filter(|todo| todo.status == "in_progress").count();
    if running > 1 {
        return Err(invalid(format!("{running} todos are in_progress; only one may be")));
    }
    Ok(PreparedCall {
        title: format!("plan of {} todos", todos.len()),
        access: Access::none(),
        preview: None,
        work: Box::new(move |_| Box::pin(async move { Ok(output_of(todos)) })),
    })
}

fn todo(value: &Value) -> Result<Todo, ToolError> {
    let text = |name: &str| {
        value
            .get(name)
            .and_then(Value::as_str)
            .unwrap_or_default()
            .trim()
            .to_owned()
    };
    let todo = Todo {
        description: text("description"),
        status: text("status"),
    };
    if todo.description.is_empty() {
        return Err(invalid("a todo without a `description`"));
    }
    Ok(todo)
}

fn output_of(todos: Vec<Todo>) -> ToolOutput {
    let done = todos.iter().filter(|todo| todo.status == "completed").count();
    let summary = format!("{done} of {} done", todos.len());
    let text = if todos.is_empty() {
        "The list of todos is empty now.".to_owned()
    } else {
        let lines: Vec<String> = todos
            .iter()
            .enumerate()
            .map(|(n, todo)| format!("{}. [{}] {}", n + 1, todo.status, todo.description))
            .collect();
        format!("The list of todos is now:\n{}", lines.join("\n"))
    };
    ToolOutput {
        display: Display::Todos { todos },
        ..ToolOutput::text(text, summary)
    }
}
