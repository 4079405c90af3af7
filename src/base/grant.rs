//! What a ruling grants one command: the places it may write, the programs it may start, and the questions that are asked at each
//! `execve`. Made by `policy`, enforced by `process`; pure data and two traits, no I/O.

use super::unruled::Change;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::path::PathBuf;

/// What one command line may write in the workspace. Its private temporary directory and home are always writable.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Writes {
    /// Nothing: the workspace is read-only for the command.
    #[default]
    Nothing,
    /// Only these places. `maybe` are directories (relative, `""` for the root) in which an operand that becomes known at exec may
    /// be granted; what was not granted in the end is undone.
    Paths {
        paths: Vec<WritePath>,
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        maybe: Vec<String>,
    },
    /// The whole workspace, but for what is closed (see [`ClosedPaths`]).
    Tree,
}

impl Writes {
    /// What both grant together.
    #[must_use]
    pub fn union(self, other: Writes) -> Writes {
        match (self, other) {
            (Writes::Tree, _) | (_, Writes::Tree) => Writes::Tree,
            (Writes::Nothing, other) | (other, Writes::Nothing) => other,
            (
                Writes::Paths { mut paths, mut maybe },
                Writes::Paths {
                    paths: more,
                    maybe: also,
                },
            ) => {
                paths.extend(
                    more.into_iter()
                        .filter(|path| !paths.contains(path))
                        .collect::<Vec<_>>(),
                );
                maybe.extend(also.into_iter().filter(|dir| !maybe.contains(dir)).collect::<Vec<_>>());
                Writes::Paths { paths, maybe }
            }
        }
    }
}

impl Writes {
    /// What both grant.
    #[must_use]
    pub fn intersection(self, other: Writes) -> Writes {
        match (self, other) {
            (Writes::Tree, other) | (other, Writes::Tree) => other,
            (Writes::Nothing, _) | (_, Writes::Nothing) => Writes::Nothing,
            (
                Writes::Paths { paths, maybe },
                Writes::Paths {
                    paths: theirs,
                    maybe: also,
                },
            ) => Writes::Paths {
                paths: paths.into_iter().filter(|path| theirs.contains(path)).collect(),
                maybe: maybe.into_iter().filter(|dir| also.contains(dir)).collect(),
            },
        }
    }
}

/// One place that a command may write.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WritePath {
    /// Relative to the workspace, `/`-separated, links followed.
    pub path: String,
    pub kind: WriteKind,
}

/// How a place may be written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum WriteKind {
    /// An existing regular file, opened and written in place.
    InPlace,
    /// The entry and everything below it may be made, replaced, renamed or removed.
    Entry,
}

/// Which paths of the workspace no command may write, whoever grants what: protected paths, and paths that a rule denies for
/// writing. Asked for every name of a tree, so answers must be cheap.
pub trait ClosedPaths: Send + Sync + fmt::Debug {
    /// Whether nothing is closed, so that no one needs to look.
    fn is_empty(&self) -> bool;
    /// Whether this path (relative, `/`-separated) is closed. For a directory: whether it and all below it are.
    fn closed(&self, path: &str, is_dir: bool) -> bool;
    /// Whether a name that [`ClosedPaths::is_ordinary`] passes is never closed in this directory (relative, `""` for the root), which
    /// is not closed itself. Saves the whole question for most names of a tree; `false` is always right.
    fn has_ordinary_names(&self, _dir: &str) -> bool {
        false
    }
    /// Whether a name alone (no path) closes nothing, be it a file's or a directory's.
    fn is_ordinary(&self, _name: &str) -> bool {
        false
    }
    /// Why it is closed, as a reason code: `protected_path` or `deny_rule`, and the rule where there is one.
    fn why(&self, path: &str) -> (&'static str, Option<String>);
}

/// Closes nothing.
#[derive(Clone, Copy, Debug, Default)]
pub struct NothingClosed;

impl ClosedPaths for NothingClosed {
    fn is_empty(&self) -> bool {
        true
    }

    fn closed(&self, _path: &str, _is_dir: bool) -> bool {
        false
    }

    fn why(&self, _path: &str) -> (&'static str, Option<String>) {
        ("protected_path", None)
    }
}

/// A change of a command that was not granted.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Undone {
    /// Relative to the workspace; `.` when it cannot be said where (a limit was reached).
    pub path: String,
    /// `protected_path`, `deny_rule`, `not_granted` (outside the command's write grant) or `limit:*` (a limit of the comparison).
    pub code: String,
    /// The rule that closes the path.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rule: Option<String>,
    /// Whether the old state is back. When it is not, the run must end.
    pub restored: bool,
    /// What had happened to the path.
    #[serde(default)]
    pub change: Change,
}

/// The code of a denial whose change could not be undone: it ends the run.
pub const NOT_RESTORED: &str = "not_restored";

/// How many paths of one kind a sentence names.
const NAMED: usize = 20;

/// The codes of changes that were not granted, each once: what denies before what was only not granted.
pub fn codes(undone: &[Undone]) -> Vec<&str> {
    let rank = |code: &str| match code {
        "deny_rule" => 0,
        "suspend_rule" => 1,
        "protected_path" => 2,
        "not_granted" => 4,
        _ => 3,
    };
    let mut codes: Vec<&str> = undone.iter().map(|undone| undone.code.as_str()).collect();
    codes.sort_unstable_by_key(|code| (rank(code), *code));
    codes.dedup();
    codes
}

/// Changes that were not granted and what became of them, for people: `tests/a.py (deny_rule, rule ci.yaml:4), b (not_granted);
/// this was undone`. At most 20 paths of each kind are named.
pub fn described(undone: &[Undone]) -> String {
    let mut kinds: Vec<(&str, Option<&str>, bool)> = Vec::new();
    for code in codes(undone) {
        for one in undone.iter().filter(|one| one.code == code) {
            let kind = (code, one.rule.as_deref(), one.restored);
            if !kinds.contains(&kind) {
                kinds.push(kind);
            }
        }
    }
    let restored = undone.iter().all(|undone| undone.restored);
    let plain = matches!(kinds.as_slice(), [(_, None, true)]);
    let parts = kinds.iter().map(|kind| {
        let fits = |one: &&Undone| (one.code.as_str(), one.rule.as_deref(), one.restored) == *kind;
        let paths: Vec<&str> = undone.iter().filter(fits).map(|one| one.path.as_str()).collect();
        let mut text = paths.get(..NAMED).unwrap_or(&paths).join(", ");
        if let Some(more) = paths.len().checked_sub(NAMED).filter(|more| *more > 0) {
            text.push_str(&format!(" and {more} more"));
        }
        let (code, rule, back) = kind;
        if !plain {
            let rule = rule.map_or(String::new(), |rule| format!(", rule {rule}"));
            let back = if *back { "" } else { ", could not be undone" };
            text.push_str(&format!(" ({code}{rule}{back})"));
        }
        text
    });
    let parts: Vec<String> = parts.collect();
    let end = if restored {
        "this was undone"
    } else {
        "not all of it could be undone"
    };
    format!("{}; {end}", parts.join(", "))
}

/// What a program that is let go may execute itself.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Starts {
    /// Nothing: any exec of its processes is denied.
    Nothing,
    /// Programs that are judged like the shell's own (wrappers, `bash`, `xargs`, `find -exec`).
    Judged,
    /// The helpers of one program, by the name under which `policy` knows the list (`git`, `tar`, `gcc`, …); each is judged.
    Helpers(String),
    /// Whatever it likes, and so do they; only deny rules on commands hold.
    Anything,
}

/// A program that is about to be executed, as the kernel sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Exec {
    /// What the process that asks may start.
    pub caller: Starts,
    /// Absolute path of the file as the caller sees it; links are not followed.
    pub path: PathBuf,
    /// The same with links followed, `path` where that is not possible.
    pub real: PathBuf,
    /// All arguments, the program's name (which may lie) included; lossy UTF-8.
    pub argv: Vec<String>,
    /// Absolute working directory of the caller.
    pub cwd: PathBuf,
    /// The first line of the file when it is a script (`/usr/bin/env python3`, without `#!`); `None` for a binary.
    pub interpreter: Option<String>,
}

/// The answer to an exec.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ExecAnswer {
    /// It runs. `writes` are granted in addition to the command's own.
    Allow {
        starts: Starts,
        writes: Vec<WritePath>,
    },
    Deny(ExecDenial),
}

/// Why a program was not executed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExecDenial {
    /// The rule that decided; `None` when none granted it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rule: Option<String>,
    /// `exec_denied` (a rule or bound speaks against it) or `exec_not_granted` (the caller may start nothing of the kind).
    pub code: String,
    /// One sentence for the model and for people.
    pub reason: String,
    /// One line: what to write or do instead.
    pub fix: String,
}

/// Judges each program of one command at the moment it is executed. Called from a thread of its own; must not block.
pub trait ExecJudge: Send + Sync {
    /// The answer to one exec.
    fn judge(&self, exec: &Exec) -> ExecAnswer;
    /// Whether execs below [`Starts::Anything`] must be asked about at all (some rule denies a command).
    fn asks_below_anything(&self) -> bool;
}

/// The programs of a command that were judged at their exec, in order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Judged {
    pub execs: Vec<JudgedExec>,
    /// Further ones that are not listed.
    pub omitted: u64,
}

/// An exec that was judged, for the journal.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct JudgedExec {
    pub path: String,
    pub argv: Vec<String>,
    /// Relative to the workspace where it lies inside, else absolute.
    pub cwd: String,
    /// `None` when it was allowed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub denied: Option<ExecDenial>,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn one(path: &str, code: &str, rule: Option<&str>, restored: bool) -> Undone {
        Undone {
            path: path.to_owned(),
            code: code.to_owned(),
            rule: rule.map(str::to_owned),
            restored,
            change: Change::Modified,
        }
    }

    #[test]
    fn each_kind_is_named_with_its_rule() {
        assert_eq!(described(&[one("a", "not_granted", None, true)]), "a; this was undone");
        let all = [
            one("new", "not_granted", None, true),
            one("tests/a", "deny_rule", Some("p:4"), true),
            one(".envrc", "protected_path", None, false),
        ];
        assert_eq!(codes(&all), ["deny_rule", "protected_path", "not_granted"]);
        assert_eq!(
            described(&all),
            "tests/a (deny_rule, rule p:4), .envrc (protected_path, could not be undone), new (not_granted); not all of it could \
             be undone"
        );
        let many: Vec<Undone> = (0..30)
            .map(|at| one(&format!("f{at}"), "not_granted", None, true))
            .collect();
        assert!(described(&many).ends_with("f19 and 10 more; this was undone"));
    }
}
