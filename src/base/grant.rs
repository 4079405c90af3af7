//! What a ruling grants to one command: the places it may write, the programs it may start, and the judge that decides
//! each `execve`. Filled in by `policy`, enforced by `process`. Pure: data and two traits, no I/O.

use super::unruled::PathChange;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::path::PathBuf;

/// What one command line may write in the workspace. Its private temporary directory and home are always writable.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Writes {
    /// Nothing: the workspace is read-only for the command.
    #[default]
    Nothing,
    /// Only these places. `maybe` lists directories (relative, `""` for the root) in which a path that becomes known
    /// only at exec may still be granted; writes that were never granted are undone.
    Paths {
        /// The places.
        paths: Vec<WritePath>,
        /// Places that are granted only at an exec.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        maybe: Vec<String>,
    },
    /// The whole workspace except for closed paths (see [`ClosedPaths`]).
    Tree,
}

impl Writes {
    /// The union of both grants.
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
    /// Only the places that both grants name exactly; a place below a directory of the other grant is left out.
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
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct WritePath {
    /// Relative to the workspace, `/`-separated, links followed.
    pub path: String,
    pub kind: WriteKind,
}

/// In which way a place may be written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum WriteKind {
    /// An existing regular file, opened and written in place.
    InPlace,
    /// The entry and everything below it may be created, replaced, renamed or removed.
    Entry,
    /// The files below this directory that a rule lets the model write.
    Ruled,
}

/// Paths of the workspace that no command may write, whatever its grant says: protected paths, and paths that a rule
/// denies for writing. All but `is_ruled` and `why` are called for every name of a tree, so they must be cheap.
pub trait ClosedPaths: Send + Sync + fmt::Debug {
    /// Whether no path is closed, so that the tree need not be searched.
    fn is_empty(&self) -> bool;
    /// Whether this path (relative, `/`-separated) is closed. A closed directory closes everything below it.
    fn closed(&self, path: &str, is_dir: bool) -> bool;
    /// Whether names for which [`ClosedPaths::is_ordinary`] is true are never closed in this directory (relative, `""`
    /// for the root; the directory itself is not closed). Lets callers skip `closed` for most names of a tree; `false`
    /// is always correct.
    fn has_ordinary_names(&self, _dir: &str) -> bool {
        false
    }
    /// Whether an entry of this name is never closed because of the name alone, whether it is a file or a directory.
    fn is_ordinary(&self, _name: &str) -> bool {
        false
    }
    /// Whether a rule lets the model write this file (relative, `/`-separated). May ask every rule, so it is called only
    /// for files that a command changed.
    fn is_ruled(&self, _path: &str) -> bool {
        false
    }
    /// Why the path is closed: the reason code `protected_path` or `deny_rule`, and the rule if there is one.
    fn why(&self, path: &str) -> (&'static str, Option<String>);
}

/// An implementation with no closed paths.
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

/// A change made by a command without a grant.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Undone {
    /// Relative to the workspace; `.` when the path is unknown because a limit was reached.
    pub path: String,
    /// `protected_path`, `deny_rule`, `not_granted` (outside the command's write grant), `secret_like_path` (commands see
    /// the file as empty, and git recorded it so), `kept_aside` (what the command moved to a path that it may not write, kept
    /// under this name because something else has taken its place) or `limit:*` (a limit of the comparison).
    pub code: String,
    /// The rule that closes the path.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rule: Option<String>,
    /// Whether the previous state was restored. If not, the run must end.
    pub restored: bool,
    /// What had been done to the path.
    #[serde(default)]
    pub change: PathChange,
}

impl Undone {
    /// One line: what would let a command make the change, or what to do instead.
    pub fn fix(&self) -> &'static str {
        match self.code.as_str() {
            "deny_rule" | "suspend_rule" => "use another approach, or narrow the rule with `except`",
            "protected_path" => {
                "name the path itself in `paths`; for git commands, list `.git/**` in `paths` of their own rule"
            }
            ADDED_EMPTY => ADDED_EMPTY_FIX,
            KEPT_ASIDE => {
                "the command moved this away, and its place is taken: it is kept under this name; move it where it belongs"
            }
            "not_granted" => "name the path as an operand, or add a rule that names the path",
            _ => "change fewer files in one command",
        }
    }
}

/// The code of a file that commands see as empty, and that git was made to record so.
pub const ADDED_EMPTY: &str = "secret_like_path";

/// The code of a file or directory that a command had moved to a place that it may not write, and whose own place something
/// else has taken: it may be the only copy, so it is kept under this name.
pub const KEPT_ASIDE: &str = "kept_aside";

/// What to do about [`ADDED_EMPTY`].
pub const ADDED_EMPTY_FIX: &str = "commands see this file as empty, and git recorded it so: add files by their names; if a \
                                   commit has it, undo that with `git reset --soft HEAD~1` before anybody checks it out";

/// The first of the changes for which a command failed with this code.
pub fn cause<'a>(undone: &'a [Undone], code: &str) -> Option<&'a Undone> {
    let is_cause = |one: &&Undone| one.code == code || (code == NOT_RESTORED && !one.restored);
    undone.iter().find(is_cause)
}

/// The code of a denial whose change could not be undone: it ends the run.
pub const NOT_RESTORED: &str = "not_restored";

/// The most paths of one kind that a message names.
const NAMED: usize = 20;

/// The distinct reason codes of the changes; codes of denials come before `not_granted`.
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

/// The code for which a command with these changes failed: that one could not be undone comes before every denial. `None`
/// without changes.
pub fn strictest(undone: &[Undone]) -> Option<&str> {
    match undone.iter().all(|one| one.restored) {
        true => codes(undone).first().copied(),
        false => Some(NOT_RESTORED),
    }
}

/// A message for people about changes that were not granted and whether they were undone: `tests/a.py (deny_rule, rule
/// ci.yaml:4), b (not_granted); this was undone`. Names at most 20 paths of each kind.
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
            let back = match (*back, *code) {
                (true, _) => "",
                (false, KEPT_ASIDE) => {
                    ": moved away by the command and kept under this name, because its place is taken"
                }
                (false, _) => ", could not be undone",
            };
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

/// Which programs a program that was allowed to run may execute itself.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Starts {
    /// None: any exec by its processes is denied.
    #[default]
    Nothing,
    /// Programs that are judged like those that the shell starts (wrappers, `bash`, `xargs`, `find -exec`).
    Judged,
    /// The helpers of one program, by the name of their list in `policy` (`git`, `tar`, `gcc`, …); each exec is judged.
    Helpers(String),
    /// Any program, and so may its children; only deny rules on commands still apply.
    Anything,
}

impl Starts {
    /// What both allow to start: of the helpers of two different programs, none.
    #[must_use]
    pub fn stricter(&self, other: &Self) -> Self {
        let rank = |starts: &Self| match starts {
            Self::Nothing => 0,
            Self::Helpers(_) => 1,
            Self::Judged => 2,
            Self::Anything => 3,
        };
        match (self, other) {
            (Self::Helpers(ours), Self::Helpers(theirs)) if ours != theirs => Self::Nothing,
            _ if rank(self) <= rank(other) => self.clone(),
            _ => other.clone(),
        }
    }
}

/// A program that is about to be executed, as the kernel sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Exec {
    /// What the calling process may start.
    pub caller: Starts,
    /// Absolute path of the file as the caller sees it; links are not followed.
    pub path: PathBuf,
    /// The same path with links followed; equal to `path` if they cannot be resolved.
    pub real: PathBuf,
    /// All arguments, including `argv[0]`, which need not be the program's real name. Lossy UTF-8.
    pub argv: Vec<String>,
    /// Absolute working directory of the caller.
    pub cwd: PathBuf,
    /// The programs that run in its place when it is a script, in the order in which their lines name each other: the
    /// kernel starts them without another exec. Empty for a binary.
    pub interpreters: Vec<Interpreter>,
    /// Whether it may be a script of any program: its first line cannot be read, and the caller may have written it.
    pub is_unread: bool,
}

/// A program that the kernel starts in place of a script, because the first line of the script names it (`#!`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Interpreter {
    /// Absolute path as the line names it; links are not followed.
    pub path: PathBuf,
    /// The same path with links followed.
    pub real: PathBuf,
    /// The words that the kernel gives it: its name, the rest of the line as one word, the script, and the arguments of
    /// the exec.
    pub argv: Vec<String>,
}

/// The decision on one exec.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ExecAnswer {
    /// The program runs. `writes` are granted in addition to the command's own grant.
    Allow {
        starts: Starts,
        writes: Vec<WritePath>,
    },
    Deny(ExecDenial),
}

/// Why a program was not executed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct ExecDenial {
    /// The rule that decided; null when the denial is that no rule grants the program.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rule: Option<String>,
    /// `exec_denied` (a rule or a built-in bound forbids it) or `exec_not_granted` (the caller may not start such a
    /// program).
    pub code: String,
    /// The code of the ruling on its words, such as `no_rule` or `redirect_write`; null when the words were not ruled on:
    /// a deny rule on commands forbids the program, or the caller may not start it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ruling: Option<String>,
    /// One sentence for the model and for people.
    pub reason: String,
    /// One line: which rule to write or what to do instead.
    pub fix: String,
}

impl ExecAnswer {
    /// The program runs and gets no further places to write.
    pub fn allow(starts: Starts) -> Self {
        Self::Allow {
            starts,
            writes: Vec::new(),
        }
    }
}

impl ExecDenial {
    /// A denial by a built-in bound (`exec_denied`), without a rule.
    pub fn denied(reason: impl Into<String>, fix: impl Into<String>) -> Self {
        Self {
            rule: None,
            code: "exec_denied".to_owned(),
            ruling: None,
            reason: reason.into(),
            fix: fix.into(),
        }
    }
}

/// Judges each program of one command when it is executed. Called from a dedicated thread while the caller waits in
/// `execve`; must not block.
pub trait ExecJudge: Send + Sync {
    /// Decides on one exec.
    fn judge(&self, exec: &Exec) -> ExecAnswer;
    /// Whether execs below [`Starts::Anything`] must be judged too (true if some rule denies a command).
    fn asks_below_anything(&self) -> bool;
    /// A sentence for each secret-like file that programs were let run on because the sandbox withholds its content.
    fn masked(&self) -> Vec<String> {
        Vec::new()
    }
}

/// The programs of one command that were judged at their exec, in order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct JudgedPrograms {
    pub execs: Vec<JudgedExec>,
    /// Number of further programs that are not listed.
    pub omitted: u64,
}

impl JudgedPrograms {
    /// The programs of a command that has ended, including the denied one.
    pub fn of(execs: &[JudgedExec], omitted: u64, denied: Option<&(JudgedExec, ExecDenial)>) -> Self {
        let mut execs = execs.to_vec();
        if let Some((exec, denial)) = denied
            && execs.iter().all(|exec| exec.denied.is_none())
        {
            execs.push(JudgedExec {
                denied: Some(denial.clone()),
                ..exec.clone()
            });
        }
        Self { execs, omitted }
    }
}

/// An exec that was judged, for the journal.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct JudgedExec {
    /// The program's real path.
    pub path: String,
    /// All its arguments; the first names the program.
    pub argv: Vec<String>,
    /// Relative to the workspace if inside it, else absolute.
    pub cwd: String,
    /// Null if it was allowed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub denied: Option<ExecDenial>,
}

#[cfg(test)]
impl JudgedExec {
    /// A program that no rule allows, with these words.
    pub(crate) fn denied(argv: &[&str]) -> Self {
        Self {
            path: "/usr/bin/rm".to_owned(),
            argv: argv.iter().map(|word| (*word).to_owned()).collect(),
            cwd: String::new(),
            denied: Some(ExecDenial::denied("no", "")),
        }
    }
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
            change: PathChange::Modified,
        }
    }

    #[test]
    fn the_stricter_of_two() {
        use Starts::{Anything, Judged, Nothing};
        let helpers = |name: &str| Starts::Helpers(name.to_owned());
        let order = [Nothing, helpers("git"), Judged, Anything];
        for (at, one) in order.iter().enumerate() {
            for (beside, other) in order.iter().enumerate() {
                assert_eq!(one.stricter(other), order[at.min(beside)]);
            }
        }
        assert_eq!(helpers("git").stricter(&helpers("tar")), Nothing);
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
        assert_eq!(strictest(&all), Some(NOT_RESTORED));
        assert_eq!(strictest(&all[..2]), Some("deny_rule"));
        assert_eq!(strictest(&[]), None);
        assert_eq!(
            described(&all),
            "tests/a (deny_rule, rule p:4), .envrc (protected_path, could not be undone), new (not_granted); not all of it could \
             be undone"
        );
        assert_eq!(
            described(&[one("overnight-kept-7-0", KEPT_ASIDE, None, false)]),
            "overnight-kept-7-0 (kept_aside: moved away by the command and kept under this name, because its place is taken); not \
             all of it could be undone"
        );
        let many: Vec<Undone> = (0..30)
            .map(|at| one(&format!("f{at}"), "not_granted", None, true))
            .collect();
        assert!(described(&many).ends_with("f19 and 10 more; this was undone"));
    }
}
