//! The closed list of reason codes: what each means and what to do about it.

/// One reason code. A code with `detail` is followed by `:` and a value, such as `unknown_option:--pre`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Code {
    /// The code, without the value after it.
    pub code: &'static str,
    /// Whether a value follows.
    pub detail: bool,
    /// What it says about the call, without a capital letter and a full stop.
    pub meaning: &'static str,
    /// What to do about it, in the same form.
    pub fix: &'static str,
}

const fn plain(code: &'static str, meaning: &'static str, fix: &'static str) -> Code {
    Code {
        code,
        detail: false,
        meaning,
        fix,
    }
}

const fn detailed(code: &'static str, meaning: &'static str, fix: &'static str) -> Code {
    Code {
        code,
        detail: true,
        meaning,
        fix,
    }
}

/// Every code that a ruling or the denial of a call can have.
pub const CODES: &[Code] = &[
    plain(
        "allowed",
        "every access is covered by an allow rule, or needs none",
        "nothing to do",
    ),
    plain(
        "modify_rule",
        "allowed, and a modify rule rewrites the call first",
        "nothing to do",
    ),
    plain(
        "deny_rule",
        "a deny rule matched",
        "narrow the rule with `except`, or use another approach",
    ),
    plain(
        "suspend_rule",
        "a suspend rule matched",
        "approve with `overnight resume RUN --approve CALL`",
    ),
    plain(
        "no_rule",
        "no allow rule covers an access",
        "add an allow rule that covers it",
    ),
    plain(
        "redirect_write",
        "a command writes a file that no rule lets `write_file` write",
        "allow `write_file` on that path",
    ),
    plain(
        "times_used_up",
        "the only rules that cover it have reached their `times`",
        "raise `times`",
    ),
    plain(
        "modify_conflict",
        "two modify rules with different programs matched",
        "narrow one of them",
    ),
    plain(
        "protected_path",
        "the path is protected and no rule names it literally",
        "name the path itself in `paths`; for git commands, list `.git/**` in their own rule",
    ),
    plain(
        "secret_like_path",
        "the path looks like a secret and no rule names it literally",
        "name the path itself in `paths`",
    ),
    plain(
        "outside_path",
        "the path lies outside the workspace",
        "use a path inside the workspace",
    ),
    plain(
        "installed_path",
        "a tool, or a command that names the file, would write where package managers install programs (`node_modules`, `.venv`)",
        "let the package manager do it; a rule that spells the directory out in `paths` opens it",
    ),
    plain(
        "build_output",
        "a build wrote into its output directory, which git does not track",
        "let git ignore the directory, or track it with `git add` if it belongs to the project",
    ),
    plain(
        "hidden_path",
        "the path belongs to a run directory",
        "read results as `overnight:result/ID`",
    ),
    plain(
        "special_file",
        "the path is a device, socket or pipe",
        "use a regular file",
    ),
    plain(
        "hard_link",
        "the file to be written has another hard link, which may be outside the workspace",
        "replace the file with a copy first",
    ),
    plain(
        "deceptive_name",
        "the name contains control, bidirectional or invisible characters, or bytes that are not UTF-8",
        "use a plain name",
    ),
    plain(
        "leading_dash",
        "the name to be written begins with a dash and could be taken for an option",
        "use another name",
    ),
    plain(
        "opaque_write",
        "where the command writes is not known before it runs",
        "write the path out",
    ),
    detailed(
        "url_refused",
        "the URL is not in the accepted form",
        "use a plain https URL with a host name",
    ),
    plain(
        "host_not_listed",
        "no rule lists the host",
        "list the host under `hosts`",
    ),
    plain("empty_command", "the command contains no program", "write a command"),
    plain(
        "control_character",
        "the command contains a character that shells and people read differently",
        "use plain text",
    ),
    plain(
        "parse_error",
        "the command is not valid shell text",
        "correct the syntax",
    ),
    plain(
        "parse_disagree",
        "two parsers read the command differently",
        "write it more plainly",
    ),
    detailed(
        "refused_construct",
        "a shell construct that is refused whatever the rules say",
        "write it without the construct",
    ),
    detailed(
        "unknown_option",
        "the program's argument profile does not know the option",
        "leave the option out, or set `args: any` on the rule",
    ),
    plain(
        "unknown_subcommand",
        "the program's argument profile does not know the subcommand",
        "use another one, or set `args: any` on the rule",
    ),
    plain(
        "unknown_operand",
        "the program's argument profile does not know an operand here",
        "leave it out, or set `args: any` on the rule",
    ),
    plain(
        "opaque_program",
        "which program runs is not known before the command runs",
        "write the program out",
    ),
    plain(
        "opaque_argument",
        "an argument that is not known could become a dangerous one",
        "write the argument out",
    ),
    plain(
        "program_argument",
        "an argument names a program to run",
        "leave it out, or set `args: any` on the rule",
    ),
    detailed(
        "assignment",
        "a variable that must not be set before a command",
        "leave the assignment out",
    ),
    plain(
        "redirect_opaque",
        "the target of a redirect is not known before it runs",
        "write the path out",
    ),
    detailed(
        "script",
        "a script for sed, awk or jq does more than transform text",
        "use only printing and substitution",
    ),
    plain(
        "exec_denied",
        "a program was about to be executed with words that no rule allows or that a rule denies",
        "write the words out to see which, or add a rule that covers them",
    ),
    plain(
        "exec_not_granted",
        "a program that may start no other was about to start one",
        "run it as a separate command, or add `runs: anything` to the rule",
    ),
    plain(
        "not_granted",
        "a command changed a path that its ruling did not let it write; the change was undone",
        "name the path as an operand, or add `writes: tree` to the rule",
    ),
    plain(
        "not_restored",
        "a command changed a path that its ruling did not let it write, and the change could not be undone",
        "look at the paths that the reason names before the next run",
    ),
    plain(
        "not_approved",
        "a person reviewed the call and denied it",
        "nothing to do; the model was told",
    ),
    plain(
        "modify_failed",
        "the program of a modify rule failed, or printed output that is not a valid call",
        "change the content so that the program accepts it, or fix the rule",
    ),
    detailed("limit", "a limit was reached", "make it smaller, or raise the limit"),
    plain("secret_hit", "outgoing data contains a secret", "leave the secret out"),
    plain(
        "not_judged",
        "only in explanations: the tool or its arguments are wrong, which in a run is the tool's error and no denial",
        "correct the call",
    ),
];

/// The entry for a code with or without its detail.
pub fn find(code: &str) -> Option<&'static Code> {
    let base = code.split(':').next().unwrap_or_default();
    CODES
        .iter()
        .find(|known| known.code == base && known.detail == code.contains(':'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_are_found_once() {
        for code in CODES {
            assert_eq!(
                CODES.iter().filter(|other| other.code == code.code).count(),
                1,
                "{}",
                code.code
            );
            assert!(!code.fix.is_empty() && !code.meaning.is_empty());
        }
        assert_eq!(
            find("unknown_option:--pre").map(|code| code.code),
            Some("unknown_option")
        );
        assert!(find("no_rule:x").is_none() && find("unknown_option").is_none() && find("nonsense").is_none());
    }
}
