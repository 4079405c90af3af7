//! `cd`: where the shell is after it. Refuses what cannot be followed.

use super::scope::{Ends, State, Walk, union};
use super::{Refusal, Word, place, walk as walking};
use crate::base::access::Found;

/// The directories after `cd`.
///
/// # Errors
/// `outside_path`, `refused_construct:cd`, `refused_construct:cd_link`.
pub fn change(walk: &Walk<'_>, state: &State, words: &[Word]) -> Result<Ends, Refusal> {
    let refused = |fix: &str| Refusal::construct("cd", fix);
    let operands: Vec<&Word> = words
        .iter()
        .skip(1)
        .filter(|word| word.text != "--" && word.text != "-P")
        .collect();
    let [operand] = operands.as_slice() else {
        return Err(refused("name one directory inside the workspace"));
    };
    let values = operand
        .range
        .values
        .as_ref()
        .filter(|_| !operand.range.glob && !operand.range.many);
    let Some(values) = values else {
        return Err(refused("write the directory itself"));
    };
    let mut dirs: Vec<String> = Vec::new();
    for value in values.iter().filter(|value| !value.is_empty()) {
        if value.starts_with('-') || value.starts_with('~') {
            return Err(refused("write the directory itself"));
        }
        for dir in &state.dirs {
            let next = enter(walk, dir, value)?;
            if !dirs.contains(&next) {
                dirs.push(next);
            }
        }
    }
    Ok(Ends {
        ok: if dirs.is_empty() {
            state.dirs.clone()
        } else {
            union(&dirs, &[])?
        },
        failed: state.dirs.clone(),
        output: walking::silent(),
    })
}

fn enter(walk: &Walk<'_>, dir: &str, value: &str) -> Result<String, Refusal> {
    let joined = place::join(dir, value);
    let found = (walk.terrain.locate)(&joined);
    if !found.inside {
        return Err(Refusal::new(
            "outside_path",
            format!("`cd {value}` leaves the workspace"),
            "stay inside the workspace",
        ));
    }
    // The shell keeps the name of a link in its own idea of the directory, and `..` then leads elsewhere.
    let straight = if joined.starts_with('/') {
        joined.trim_end_matches('/').ends_with(&found.path)
    } else {
        place::normal(&joined) == found.path
    };
    if !straight || matches!(found.found, Found::Special) {
        return Err(Refusal::construct(
            "cd_link",
            "name the directory that the link leads to",
        ));
    }
    Ok(found.path)
}
