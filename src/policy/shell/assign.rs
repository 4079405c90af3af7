//! Assignments: which variables may be set, before a command or on their own, and to which values.

use super::scope::{CommandWalk, ShellState};
use super::value_checks::is_lint;
use super::variables::{is_harmless, is_never, may_be_set};
use super::{CommandRefusal, ShellWord, words};
use brush_parser::ast::{Assignment, AssignmentName, AssignmentValue};

/// Checks `name=value` before a command. Returns whether it makes the program load code of the tree.
///
/// # Errors
/// `assignment:NAME`.
pub fn before(walk: &CommandWalk<'_>, name: &str, value: &ShellWord) -> Result<bool, CommandRefusal> {
    match known_value(name, value.exact()) {
        Some(Known::Harmless) => return Ok(false),
        Some(Known::LeadsCode) => {
            let parts = value
                .exact()
                .unwrap_or_default()
                .split(':')
                .filter(|part| !part.is_empty());
            let inside = |part: &str| (walk.fs_view.locate)(part).inside;
            if parts.into_iter().all(inside) {
                return Ok(true);
            }
        }
        None => {}
    }
    let granted = walk.grants.assignments.iter().any(|grant| grant == name);
    let harmless = is_harmless(name) || granted;
    if is_never(name) || !harmless {
        return Err(refused(name));
    }
    let Some(text) = value.exact() else {
        return Err(CommandRefusal::new(
            format!("assignment:{name}"),
            format!("the value of `{name}` is not known before the command runs"),
            "write the value itself",
        ));
    };
    let leads = text.starts_with(['/', ':', '~', '.']) || text.contains("..");
    let location = matches!(name, "TZ" | "TERM") || name.starts_with("LANG") || name.starts_with("LC_");
    if location && leads {
        return Err(CommandRefusal::new(
            format!("assignment:{name}"),
            format!("`{name}` would name a file"),
            "write a plain name",
        ));
    }
    Ok(false)
}

/// The verdict on a variable that is accepted only with certain values.
enum Known {
    Harmless,
    /// A search path for code that leads into the workspace: accepted only before programs that run code of the tree
    /// anyway.
    LeadsCode,
}

/// Accepts some common values (of models and CI scripts) of variables that are refused otherwise.
fn known_value(name: &str, value: Option<&str>) -> Option<Known> {
    let value = value?;
    let relative = |part: &str| !part.starts_with(['/', '~', '-']) && !part.split('/').any(|part| part == "..");
    let fine = match name {
        "PYTHONPATH" | "MYPYPATH" => {
            return value.split(':').all(relative).then_some(Known::LeadsCode);
        }
        "PYTHONDONTWRITEBYTECODE"
        | "PYTHONUNBUFFERED"
        | "PYTHONUTF8"
        | "PYTHONHASHSEED"
        | "PYTHONFAULTHANDLER"
        | "PYTHONNOUSERSITE"
        | "PYTHONSAFEPATH"
        | "GIT_OPTIONAL_LOCKS"
        | "GIT_TERMINAL_PROMPT"
        | "HUSKY"
        | "CGO_ENABLED" => value.bytes().all(|byte| byte.is_ascii_digit()),
        "PYTHONIOENCODING" | "GOOS" | "GOARCH" | "RUST_MIN_STACK" => {
            value.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
        }
        "PAGER" | "GIT_PAGER" | "MANPAGER" | "GH_PAGER" | "AWS_PAGER" => matches!(value, "" | "cat"),
        "EDITOR" | "GIT_EDITOR" => matches!(value, "true" | ":"),
        // Where cargo, which may write anywhere in the workspace, puts what it builds.
        "CARGO_TARGET_DIR" => relative(value) && (value == "target" || value.starts_with("target/")),
        "RUSTFLAGS" | "RUSTDOCFLAGS" => value.split_whitespace().all(is_lint),
        _ => false,
    };
    fine.then_some(Known::Harmless)
}

/// The refusal of a search path for code before any other program.
pub fn leads_code(program: &str) -> CommandRefusal {
    CommandRefusal::new(
        "assignment:PYTHONPATH",
        format!("the variable makes `{program}` load code of the tree, which it may not run"),
        "leave it out",
    )
}

fn refused(name: &str) -> CommandRefusal {
    CommandRefusal::new(
        format!("assignment:{name}"),
        format!("setting `{name}` is not on the list of harmless names"),
        match (is_never(name), name) {
            (true, "PYTHONPATH") => "give directories of the workspace, as in `PYTHONPATH=src pytest`".to_owned(),
            (true, _) => "leave it out: it can change which program runs".to_owned(),
            (false, _) => format!("leave it out, or grant the name in the policy: `env: {{ pass: [{name}] }}`"),
        },
    )
}

/// Checks `name=value` on its own.
///
/// # Errors
/// `assignment:NAME`, and refusals of commands in the value.
pub fn alone(walk: &mut CommandWalk<'_>, state: &ShellState, assignment: &Assignment) -> Result<(), CommandRefusal> {
    let (name, _) = parts(walk, state, assignment)?;
    if !may_be_set(&name) {
        return Err(CommandRefusal::new(
            format!("assignment:{name}"),
            format!("`{name}` may not be set: only lower-case names, which programs do not read, are allowed"),
            "use a lower-case name",
        ));
    }
    walk.variables.push(name);
    Ok(())
}

/// The name, and the value as a word.
///
/// # Errors
/// `refused_construct:array`, and refusals of commands in the value.
pub fn parts(
    walk: &mut CommandWalk<'_>,
    state: &ShellState,
    assignment: &Assignment,
) -> Result<(String, ShellWord), CommandRefusal> {
    let array = || CommandRefusal::construct("array", "use plain variables");
    match (&assignment.name, &assignment.value) {
        (AssignmentName::VariableName(name), AssignmentValue::Scalar(value)) => {
            let word = words::evaluate_one(walk, state, &value.value)?;
            Ok((name.clone(), word))
        }
        _ => Err(array()),
    }
}

/// Whether `env -u` may remove a variable: variables that select programs, libraries or settings must keep the values
/// that commands get.
///
/// # Errors
/// `assignment:NAME`.
pub fn may_be_removed(name: &str) -> Result<(), CommandRefusal> {
    match is_never(name) || name == "OVERNIGHT" || name.starts_with("CARGO_NET_") {
        true => Err(removed(name)),
        false => Ok(()),
    }
}

/// The refusal of removing a variable.
pub fn removed(name: &str) -> CommandRefusal {
    CommandRefusal::new(
        format!("assignment:{name}"),
        format!("removing `{name}` from the environment is refused: programs could then read other settings"),
        "run the command with the environment as it is",
    )
}
