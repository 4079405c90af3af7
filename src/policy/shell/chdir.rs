//! `cd`: computes the directories in which the shell may be afterwards. An unknown operand leads to an unknown
//! directory.

use super::scope::{CommandWalk, Dirs, ExitDirectories, ShellState};
use super::{CommandRefusal, ShellWord, WordKind, place};
use crate::base::access::PathStatus;
use crate::policy::name_folding::tidy;

/// The code of a directory outside the workspace.
const OUTSIDE: &str = "outside_path";

/// The directories after `cd`. If only some of the possible ones lie outside the workspace, it is unknown where the shell
/// is, and each later program is judged in its own directory.
///
/// # Errors
/// `outside_path`, `refused_construct:cd`, `refused_construct:cd_link`.
pub fn change(
    walk: &CommandWalk<'_>,
    state: &ShellState,
    words: &[ShellWord],
) -> Result<ExitDirectories, CommandRefusal> {
    let refused = |fix: &str| CommandRefusal::construct("cd", fix);
    let unknown = |state: &ShellState| ExitDirectories {
        ok: Dirs::Unknown,
        failed: state.dirs.clone(),
    };
    let operands: Vec<&ShellWord> = words
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
        return Ok(ExitDirectories::stay(state));
    }
    if value.starts_with(['-', '~']) {
        return Err(refused("write the directory itself"));
    }
    let Some(known) = state.dirs.known() else {
        return Ok(unknown(state));
    };
    let mut dirs: Vec<String> = Vec::new();
    let mut leaves = None;
    for dir in known {
        match enter(walk, dir, value) {
            Ok(next) if dirs.contains(&next) => {}
            Ok(next) => dirs.push(next),
            Err(refusal) if refusal.code == OUTSIDE => leaves = Some(refusal),
            Err(refusal) => return Err(refusal),
        }
    }
    if let Some(refusal) = leaves {
        // `cd src; ls; cd ..`: it leaves only if an earlier `cd` failed.
        return match walk.grants.witness && !dirs.is_empty() {
            true => Ok(unknown(state)),
            false => Err(refusal),
        };
    }
    Ok(ExitDirectories {
        ok: Dirs::Of(dirs),
        failed: state.dirs.clone(),
    })
}

fn enter(walk: &CommandWalk<'_>, dir: &str, value: &str) -> Result<String, CommandRefusal> {
    let joined = place::join(dir, value);
    let found = (walk.fs_view.locate)(&joined);
    if !found.inside {
        return Err(CommandRefusal::new(
            OUTSIDE,
            format!("`cd {value}` leaves the workspace"),
            "stay inside the workspace",
        ));
    }
    // The shell keeps a link's name in its logical working directory, so `..` would lead elsewhere.
    let straight = if joined.starts_with('/') {
        joined.trim_end_matches('/').ends_with(&found.path)
    } else {
        tidy(&joined) == found.path
    };
    if !straight || matches!(found.found, PathStatus::Special) {
        return Err(CommandRefusal::construct(
            "cd_link",
            "name the directory that the link leads to",
        ));
    }
    Ok(found.path)
}
