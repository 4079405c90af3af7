//! Describes for the model how a command ended, and builds the failure of a command that changed forbidden paths.

use crate::base::call::{ExitInfo, ToolFailure};
use crate::base::grant::{self, ADDED_EMPTY, ADDED_EMPTY_FIX, NOT_RESTORED, Undone, Writes, codes, described};
use crate::base::ruling::shown_rule;

/// Lines about any end other than plain success.
pub(super) fn ends(exit: &ExitInfo) -> Vec<String> {
    let mut lines = Vec::new();
    if exit.timed_out {
        lines.push("[time ran out: the command and all processes that it started were killed]".to_owned());
    }
    match (exit.code, exit.signal) {
        (Some(0), _) | (None, None) => {}
        (Some(_), _) => lines.push(format!("[{}]", exit.ending())),
        (None, Some(_)) => lines.push(format!("[ended by {}]", exit.ending())),
    }
    if let Some(limit) = exit.memory_limit {
        lines.push(format!(
            "[memory limit of {} MiB reached: the command and all processes that it started were killed]",
            limit >> 20
        ));
    }
    match exit.leftovers {
        0 => {}
        1 => lines.push("[1 process was still running at the end and was killed]".to_owned()),
        many => lines.push(format!(
            "[{many} processes were still running at the end and were killed]"
        )),
    }
    lines
}

/// A line about a command that failed at a write that it had no right to, with the key that grants it. `output` is what it
/// printed, `bound` what it may write, `more` whether its programs were granted further places.
pub(super) fn may_not_write(exit: &ExitInfo, output: &str, bound: &Writes, more: bool) -> Option<String> {
    const REFUSED: [&str; 4] = ["Read-only file system", "Permission denied", "EROFS", "EACCES"];
    if exit.code == Some(0) || !REFUSED.iter().any(|text| output.contains(text)) {
        return None;
    }
    let what = match bound {
        Writes::Tree => return None,
        Writes::Nothing if !more => "nothing in the workspace",
        _ => "only the files that its words name and rules for writing allow",
    };
    Some(format!(
        "[the command may write {what}; if it failed for that, `writes: tree` on the rule that allows the command grants it]"
    ))
}

/// The failure of a command that changed forbidden paths; its message is a line for the model. Its code is the most
/// severe one: a change that could not be undone comes before one that a rule denies.
pub fn undone_failure(undone: &[Undone]) -> Option<ToolFailure> {
    let kind = match grant::strictest(undone)? {
        "protected_path" => "protected_path".to_owned(),
        code => format!("denied:{code}"),
    };
    let in_git = |undone: &Undone| undone.path.split('/').any(|name| name == ".git");
    let closing = undone
        .iter()
        .find(|undone| matches!(undone.code.as_str(), "deny_rule" | "suspend_rule"));
    let fix = match closing.map(|closing| closing.rule.as_deref().map_or("a rule", shown_rule)) {
        Some(rule) => format!("It is closed by {rule}: use another approach, or narrow that rule with `except`."),
        None if undone.iter().all(|undone| undone.code == ADDED_EMPTY) => format!("Note: {ADDED_EMPTY_FIX}."),
        None if undone.iter().any(in_git) => {
            "In `.git`, an `allow` rule for the git command that lists `.git/**` in `paths` would allow it, except for \
             configuration, hooks and info; elsewhere, a rule that names the path."
                .to_owned()
        }
        None => "A rule that names the path would allow it.".to_owned(),
    };
    let told: Vec<Undone> = undone.iter().cloned().map(without_place).collect();
    let message = format!(
        "[denied ({}): the command changed {}. {fix}]",
        codes(undone).join(", "),
        described(&told)
    );
    Some(ToolFailure { kind, message })
}

/// The failure of a command that was denied a program, or changed forbidden paths, or both: that a change could not be
/// undone comes first, then the program.
pub(super) fn strictest(denied: Option<ToolFailure>, undone: Option<ToolFailure>) -> Option<ToolFailure> {
    match undone {
        Some(undone) if undone.denial() == Some(NOT_RESTORED) => Some(undone),
        undone => denied.or(undone),
    }
}

/// The change with the name of its rule as the model reads it.
fn without_place(undone: Undone) -> Undone {
    Undone {
        rule: undone.rule.as_deref().map(|rule| shown_rule(rule).to_owned()),
        ..undone
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::event::PathChange;

    #[test]
    fn a_failed_write_without_a_grant_names_the_key() {
        let ended = |code| ExitInfo {
            code: Some(code),
            ..ExitInfo::default()
        };
        let refused = "sort: open failed: src/s: Read-only file system";
        let told = may_not_write(&ended(2), refused, &Writes::Nothing, false).unwrap();
        assert!(
            told.contains("nothing in the workspace") && told.contains("writes: tree"),
            "{told}"
        );
        assert!(may_not_write(&ended(2), refused, &Writes::Nothing, true).is_some());
        assert!(may_not_write(&ended(0), refused, &Writes::Nothing, false).is_none());
        assert!(may_not_write(&ended(2), "no such file", &Writes::Nothing, false).is_none());
        assert!(may_not_write(&ended(2), refused, &Writes::Tree, false).is_none());
    }

    #[test]
    fn a_denial_in_git_names_the_entry_that_opens_it() {
        let told = |path: &str, code: &str, rule: Option<&str>| {
            let undone = Undone {
                path: path.to_owned(),
                code: code.to_owned(),
                rule: rule.map(str::to_owned),
                restored: true,
                change: PathChange::Modified,
            };
            undone_failure(&[undone]).unwrap().message
        };
        assert!(told(".git/refs/tags/v1", "protected_path", None).contains("lists `.git/**` in `paths`"));
        assert!(told("AGENTS.md", "protected_path", None).contains("A rule that names the path would allow it.]"));
        assert_eq!(
            told("src/no/a", "deny_rule", Some("/home/ci/pol.yaml:3")),
            "[denied (deny_rule): the command changed src/no/a (deny_rule, rule pol.yaml:3); this was undone. It is closed \
             by pol.yaml:3: use another approach, or narrow that rule with `except`.]"
        );
    }
}
