//! `cd`: computes the directories in which the shell may be afterwards. An unknown operand leads to an unknown
//! directory.

use super::scope::{Dirs, Ends, State, Walk};
use super::{Refusal, Word, WordKind, place};
use crate::base::access::Found;

/// The directories after `cd`.
///
/// # Errors
/// `outside_path`, `refused_construct:cd`, `refused_construct:cd_link`.
pub fn change(walk: &Walk<'_>, state: &State, words: &[Word]) -> Result<Ends, Refusal> {
    let refused = |fix: &str| Refusal::construct("cd", fix);
    let unknown = |state: &State| Ends {
        ok: Dirs::Unknown,
        failed: state.dirs.clone(),
    };
    let operands: Vec<&Word> = words
        .iter()
        .skip(1)
        .filter(|word| word.text != "--" && word.text != "-P")
        .collect();
    let [operand] = operands.as_slice() else {
        return Err(refused("name one directory inside the workspace"));
    };
    let Some(value) = operand.exact() else {
        // Each later program is judged in the directory in which it actually runs.
        return match walk.grants.witness && operand.kind == WordKind::Unknown {
            true => Ok(unknown(state)),
            false => Err(refused("write the directory itself")),
        };
    };
    if value.is_empty() {
        return Ok(Ends::stay(state));
    }
    if value.starts_with(['-', '~']) {
        return Err(refused("write the directory itself"));
    }
    let Some(known) = state.dirs.known() else {
        return Ok(unknown(state));
    };
    let mut dirs: Vec<String> = Vec::new();
    for dir in known {
        let next = enter(walk, dir, value)?;
        if !dirs.contains(&next) {
            dirs.push(next);
        }
    }
    Ok(Ends {
        ok: Dirs::Of(dirs),
        failed: state.dirs.clone(),
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
    // The shell keeps a link's name in its logical working directory, so `..` would lead elsewhere.
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
