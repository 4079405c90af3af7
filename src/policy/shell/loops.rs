//! Loops: what their variables may hold, and that their bodies end in the directory they start in. Walks bodies through `walk`.

use super::scope::{Ends, State, Walk};
use super::walk::{list, stay};
use super::{Range, Refusal, Tame, Word, assign, words};
use brush_parser::ast::{ForClauseCommand, WhileOrUntilClauseCommand};

/// `for name in words`.
///
/// # Errors
/// A [`Refusal`].
pub fn over_words(walk: &mut Walk<'_>, state: &mut State, clause: &ForClauseCommand) -> Result<Ends, Refusal> {
    let name = clause.variable_name.as_str();
    if state.vars.contains_key(name) || !assign::may_be_set(name) {
        return Err(Refusal::construct(
            "for",
            "use a fresh lower-case name for each loop variable",
        ));
    }
    let mut values: Vec<Word> = Vec::new();
    for value in clause.values.iter().flatten() {
        values.extend(words::evaluate(walk, state, &value.value)?);
    }
    let set_elsewhere = assign::times_set(walk.text, name) > 0;
    let range = if clause.values.is_none() || set_elsewhere {
        Range::wild()
    } else {
        any_of(&values)
    };
    state.vars.insert(name.to_owned(), range);
    let ends = list(walk, state, &clause.body.list)?;
    state.vars.insert(name.to_owned(), Range::wild());
    in_place(state, ends)
}

/// What a variable may hold that takes each of these words in turn.
fn any_of(words: &[Word]) -> Range {
    let mut joined = Range {
        many: false,
        ..Range::of(Tame::Token)
    };
    let mut values = Vec::new();
    let mut complete = true;
    for word in words {
        joined.dash |= word.range.dash;
        joined.glob |= word.range.glob;
        match &word.range.values {
            Some(all) => values.extend(all.iter().cloned()),
            None => {
                complete = false;
                joined.tame = joined.tame.max(word.range.tame);
            }
        }
    }
    if complete && values.len() <= 64 {
        joined.values = Some(values);
    } else if !values.is_empty() {
        return Range::wild();
    }
    joined
}

/// A loop whose body leaves another directory than it started in would start anywhere.
fn in_place(state: &State, ends: Ends) -> Result<Ends, Refusal> {
    if ends.all()?.iter().all(|dir| state.dirs.contains(dir)) {
        return Ok(stay(state, Range::wild()));
    }
    Err(Refusal::construct(
        "cd_in_loop",
        "put the body into a subshell: `(cd x && …)`",
    ))
}

/// `while` and `until`.
///
/// # Errors
/// A [`Refusal`].
pub fn on_condition(
    walk: &mut Walk<'_>,
    state: &mut State,
    clause: &WhileOrUntilClauseCommand,
) -> Result<Ends, Refusal> {
    let mut condition = State {
        reads_lines: true,
        ..state.clone()
    };
    let tested = list(walk, &mut condition, &clause.0)?;
    in_place(state, tested)?;
    state.vars = condition.vars;
    let ends = list(walk, state, &clause.1.list)?;
    in_place(state, ends)
}
