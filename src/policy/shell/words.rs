//! Evaluates the source of words: what is literal, what is a glob, and what is known only when the shell expands it.

use super::scope::{CommandWalk, ShellState};
use super::unit::Unit;
use super::units::split;
use super::{CommandRefusal, ShellWord, WordKind, braces};
use crate::base::secret::is_secret_name;

/// The words that result from the source of one word (braces can make several).
///
/// # Errors
/// A refused construct, or a refusal of a command inside a substitution.
pub fn evaluate(
    walk: &mut CommandWalk<'_>,
    state: &ShellState,
    source: &str,
) -> Result<Vec<ShellWord>, CommandRefusal> {
    let units = resolve(walk, state, split(source)?)?;
    Ok(braces::expand(units)?.iter().map(|units| word(units, source)).collect())
}

/// The single word in a position without brace expansion: assignment values, redirection targets, patterns.
///
/// # Errors
/// Like [`evaluate`].
pub fn evaluate_one(walk: &mut CommandWalk<'_>, state: &ShellState, source: &str) -> Result<ShellWord, CommandRefusal> {
    let units = resolve(walk, state, split(source)?)?;
    Ok(word(&units, source))
}

/// Checks each expansion in `units`, and reads the commands of substitutions.
///
/// # Errors
/// Like [`evaluate`].
pub fn resolve(walk: &mut CommandWalk<'_>, state: &ShellState, units: Vec<Unit>) -> Result<Vec<Unit>, CommandRefusal> {
    let mut resolved = Vec::with_capacity(units.len());
    for unit in units {
        resolved.push(match unit {
            Unit::Substitution { text } => {
                let read = walk.inner.substitution;
                read(walk, state, &text)?;
                Unit::Expansion
            }
            Unit::Param { name } => {
                if looks_secret(&name) && !walk.is_own_variable(&name) {
                    return Err(CommandRefusal::new(
                        "refused_construct:secret_variable",
                        format!("`${name}` looks like a secret"),
                        "leave the variable to the program that needs it",
                    ));
                }
                Unit::Expansion
            }
            other => other,
        });
    }
    Ok(resolved)
}

/// Whether a command may not expand a variable: one that is redacted, and, since nothing is lost by it, some more.
fn looks_secret(name: &str) -> bool {
    let upper = name.to_ascii_uppercase();
    is_secret_name(name) || upper.contains("PRIVATE") || upper.starts_with("AWS_")
}

/// Makes one word of resolved units.
fn word(units: &[Unit], source: &str) -> ShellWord {
    let is_expansion = |unit: &Unit| matches!(unit, Unit::Expansion);
    let glob = is_glob(units);
    // Matchers disagree on a pattern with a quoted backslash.
    let backslash = |unit: &Unit| matches!(unit, Unit::Char { value: '\\', .. });
    if units.iter().any(is_expansion) || (glob && units.iter().any(backslash)) {
        let literal = units.iter().take_while(|unit| !is_expansion(unit));
        let head: String = literal.filter_map(character).collect();
        return ShellWord::unknown(source, head);
    }
    let text = literal(units, glob);
    ShellWord {
        kind: if glob { WordKind::Glob } else { WordKind::Known },
        ..ShellWord::known(text)
    }
}

fn character(unit: &Unit) -> Option<char> {
    match unit {
        Unit::Char { value, .. } => Some(*value),
        _ => None,
    }
}

fn is_glob(units: &[Unit]) -> bool {
    let plain = |unit: &Unit| match unit {
        Unit::Char { value, quoted: false } => Some(*value),
        _ => None,
    };
    let mut bracket = false;
    units.iter().filter_map(plain).any(|value| {
        bracket |= value == '[';
        matches!(value, '*' | '?') || (bracket && value == ']')
    })
}

/// The text; in a pattern, quoted special characters are put in brackets.
fn literal(units: &[Unit], glob: bool) -> String {
    let mut text = String::new();
    for unit in units {
        match unit {
            Unit::Char { value, quoted: true } if glob && "*?[".contains(*value) => {
                text.extend(['[', *value, ']']);
            }
            Unit::Char { value, .. } => text.push(*value),
            _ => {}
        }
    }
    text
}
