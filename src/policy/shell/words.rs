//! Makes words of their source: looks at each expansion and says what the word may become. Knows no program.

use super::scope::{State, Walk};
use super::units::{Form, Unit, split};
use super::{Range, Refusal, Tame, Word, WordKind, braces, walk};

/// The most values that one word is followed through.
const MAX_VALUES: usize = 64;

/// The words that the source of one word becomes (braces make several).
///
/// # Errors
/// A refused construct, or a refusal of a command inside a substitution.
pub fn evaluate(walk: &mut Walk<'_>, state: &State, source: &str) -> Result<Vec<Word>, Refusal> {
    let units = resolve(walk, state, split(source)?)?;
    Ok(braces::expand(units)?.iter().map(|units| word(units, source)).collect())
}

/// The single word that a position without brace expansion holds: assignment values, redirect targets, patterns.
///
/// # Errors
/// As [`evaluate`].
pub fn evaluate_one(walk: &mut Walk<'_>, state: &State, source: &str) -> Result<Word, Refusal> {
    let units = resolve(walk, state, split(source)?)?;
    Ok(word(&units, source))
}

/// Looks at each expansion in `units`, walking substitutions.
///
/// # Errors
/// As [`evaluate`].
pub fn resolve(walk: &mut Walk<'_>, state: &State, units: Vec<Unit>) -> Result<Vec<Unit>, Refusal> {
    units
        .into_iter()
        .map(|unit| {
            let (range, quoted) = match unit {
                Unit::Substitution { text, quoted } => (walk::substitution(walk, state, &text)?, quoted),
                Unit::Number { quoted } => (state.var("?"), quoted),
                Unit::Param { name, form, quoted } => (param(state, &name, form)?, quoted),
                other => return Ok(other),
            };
            Ok(Unit::Hole { range, quoted })
        })
        .collect()
}

fn param(state: &State, name: &str, form: Form) -> Result<Range, Refusal> {
    if !state.vars.contains_key(name) && looks_secret(name) {
        return Err(Refusal::new(
            "refused_construct:secret_variable",
            format!("`${name}` looks like a secret"),
            "leave the variable to the program that needs it",
        ));
    }
    let range = state.var(name);
    Ok(match (form, range.values) {
        (Form::Plain, values) => Range { values, ..range },
        (Form::Else(text), Some(mut values)) => {
            values.push(text);
            Range::one_of(values)
        }
        (Form::Trimmed, values) => {
            let plain = |text: &String| !text.contains("..") && !text.starts_with(['/', '~']);
            let tame = values.map_or(range.tame, |all| {
                if all.iter().all(plain) {
                    Tame::Inside
                } else {
                    Tame::Wild
                }
            });
            Range {
                values: None,
                many: true,
                tame,
                ..range
            }
        }
        (Form::Else(_) | Form::Changed, _) => Range::wild(),
    })
}

/// Whether a variable's name says that its value is a secret.
pub fn looks_secret(name: &str) -> bool {
    const MARKS: [&str; 8] = [
        "TOKEN",
        "SECRET",
        "PASSWORD",
        "PASSWD",
        "API_KEY",
        "APIKEY",
        "CREDENTIAL",
        "PRIVATE",
    ];
    let name = name.to_ascii_uppercase();
    MARKS.iter().any(|mark| name.contains(mark)) || name.ends_with("_KEY") || name == "KEY" || name.starts_with("AWS_")
}

/// One word of resolved units.
fn word(units: &[Unit], source: &str) -> Word {
    let holes = units.iter().any(|unit| matches!(unit, Unit::Hole { .. }));
    let glob = is_glob(units);
    if !holes {
        let text = literal(units, glob);
        let mut word = Word::known(text.clone());
        if glob {
            word.kind = WordKind::Glob;
            word.range = Range {
                values: Some(vec![text.clone()]),
                glob: true,
                many: true,
                dash: text.starts_with(['-', '*', '?', '[']),
                ..Range::wild()
            };
        }
        return word;
    }
    Word::opaque(source, range_of(units, glob))
}

fn range_of(units: &[Unit], glob: bool) -> Range {
    let (mut values, mut many, mut globs, mut worst) = (Some(vec![String::new()]), glob, glob, Tame::Token);
    for unit in units {
        match unit {
            Unit::Char { value, .. } => values.iter_mut().flatten().for_each(|text| text.push(*value)),
            Unit::Hole { range, quoted } => {
                let known = range.values.as_deref();
                let splits = known.is_none_or(|all| all.iter().any(|text| text.contains([' ', '\t', '\n'])));
                let patterns = known
                    .unwrap_or_default()
                    .iter()
                    .any(|text| text.contains(['*', '?', '[']));
                globs |= range.glob || (!quoted && patterns);
                many |= if *quoted {
                    range.head == "@"
                } else {
                    range.many || splits || may_be_empty(range)
                };
                worst = worst.max(if known.is_some() { Tame::Token } else { range.tame });
                values = values.zip(known).and_then(|(left, right)| product(&left, right));
                if !quoted && splits && known.is_some() {
                    values = None;
                    worst = Tame::Wild;
                }
            }
            _ => {}
        }
    }
    let dash = values
        .as_ref()
        .map_or_else(|| may_dash(units), |all| all.iter().any(|text| text.starts_with('-')));
    // With all values known, how tame they are is not asked.
    let tame = if values.is_some() {
        Tame::Wild
    } else {
        tamed(units, worst)
    };
    Range {
        tame,
        values,
        dash,
        many,
        glob: globs,
        head: head(units),
    }
}

/// Literal text before the first expansion.
fn head(units: &[Unit]) -> String {
    let literal = units.iter().take_while(|unit| !matches!(unit, Unit::Hole { .. }));
    let chars = literal.filter_map(|unit| match unit {
        Unit::Char { value, .. } => Some(*value),
        _ => None,
    });
    chars.collect()
}

/// How tame a word is whose values are not all known, given the wildest of its expansions.
fn tamed(units: &[Unit], mut worst: Tame) -> Tame {
    let plain = |text: &String| !text.contains("..") && !text.starts_with(['/', '~', '-']);
    let known = units.iter().filter_map(|unit| match unit {
        Unit::Hole { range, .. } => range.values.as_ref(),
        _ => None,
    });
    for values in known {
        // A part with known values may be a path of any kind: only plain names keep the word tame.
        worst = if values.iter().all(plain) {
            worst.max(Tame::Inside)
        } else {
            Tame::Wild
        };
    }
    let literals: String = literal(units, false);
    // A token holds no slash: `$id..HEAD` is a range of revisions.
    let range = worst == Tame::Token && !literals.contains('/') && !literals.trim_matches('.').is_empty();
    if worst == Tame::Wild || (literals.contains("..") && !range) || literals_leave(units) {
        return Tame::Wild;
    }
    if literals.contains('/') { Tame::Inside } else { worst }
}

/// Whether the word begins at the root or in a home directory.
fn literals_leave(units: &[Unit]) -> bool {
    let head = head(units);
    // An empty value in front would make `$x/etc` begin at the root.
    let first = units.iter().find(|unit| !matches!(unit, Unit::Nothing));
    let empty_first = matches!(first, Some(Unit::Hole { range, .. }) if may_be_empty(range));
    head.starts_with(['/', '~']) || (empty_first && literal(units, false).starts_with('/'))
}

fn may_be_empty(range: &Range) -> bool {
    range
        .values
        .as_ref()
        .map_or(range.many, |all| all.iter().any(String::is_empty))
}

fn product(left: &[String], right: &[String]) -> Option<Vec<String>> {
    if left.len() * right.len() > MAX_VALUES {
        return None;
    }
    let joined = left
        .iter()
        .flat_map(|head| right.iter().map(move |tail| format!("{head}{tail}")));
    Some(joined.collect())
}

/// Whether the first thing in the word may be a dash.
fn may_dash(units: &[Unit]) -> bool {
    for unit in units {
        match unit {
            Unit::Char { value, .. } => return *value == '-',
            Unit::Hole { range, .. } if range.dash => return true,
            Unit::Hole { range, .. } if !may_be_empty(range) => return false,
            _ => {}
        }
    }
    false
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

/// The text; in a pattern, quoted pattern characters stand in brackets.
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
