//! The text that the model receives when a program was denied at its `execve`.

use crate::base::call::ToolFailure;
use crate::base::grant::{ExecDenial, JudgedExec};
use crate::base::quote::shell_word;
use crate::base::ruling::shown_rule;
use crate::base::secret::shortened;

/// Upper limit for the programs that are listed as run before.
const MAX_LISTED: usize = 20;
/// Upper limit in characters for one program with its arguments.
const MOST_WORDS: usize = 500;

/// The denial as a failed call.
pub(super) fn failure(denied: &(JudgedExec, ExecDenial), execs: &[JudgedExec], omitted: u64) -> ToolFailure {
    ToolFailure {
        kind: format!("denied:{}", denied.1.code),
        message: denial_text(denied, execs, omitted),
    }
}

/// Rule, program, directory, the programs that ran before, and what to write instead. `execs`: all judged programs, in
/// order.
pub(super) fn denial_text((exec, denial): &(JudgedExec, ExecDenial), execs: &[JudgedExec], omitted: u64) -> String {
    let name = denial.rule.as_deref().map(|rule| (rule, shown_rule(rule)));
    let rule = name.map_or_else(String::new, |(_, shown)| format!(" by rule `{shown}`"));
    // The reason names the rule as the journal does.
    let told = |text: &str| match name {
        Some((rule, shown)) => text.replace(rule, shown),
        None => text.to_owned(),
    };
    let place = match exec.cwd.as_str() {
        "." => String::new(),
        dir => format!(" in {dir}"),
    };
    format!(
        "[denied ({}){rule}: `{}`{place} was not executed: {}. The command was ended there. {} Instead: {}.]",
        denial.code,
        line(exec),
        told(&denial.reason).trim_end_matches('.'),
        before(execs, omitted),
        told(&denial.fix).trim_end_matches('.'),
    )
}

fn before(execs: &[JudgedExec], omitted: u64) -> String {
    let ran: Vec<&JudgedExec> = execs.iter().filter(|exec| exec.denied.is_none()).collect();
    if ran.is_empty() {
        return "No other program had run before.".to_owned();
    }
    let told: Vec<String> = ran
        .iter()
        .take(MAX_LISTED)
        .map(|exec| format!("`{}`", line(exec)))
        .collect();
    let more = (ran.len() - told.len()) as u64 + omitted;
    let more = match more {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    format!("Programs that ran before it: {}{more}.", told.join(", "))
}

/// A program with its arguments, escaped so that it cannot forge a line.
fn line(exec: &JudgedExec) -> String {
    let mut text = exec.path.clone();
    for word in exec.argv.iter().skip(1) {
        text.push(' ');
        text.push_str(&shell_word(word));
    }
    let text: String = text
        .chars()
        .map(|c| if c.is_control() { '\u{fffd}' } else { c })
        .collect();
    shortened(&text, MOST_WORDS)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn exec(words: &[&str], cwd: &str) -> JudgedExec {
        JudgedExec {
            path: format!("/usr/bin/{}", words[0]),
            argv: words.iter().map(|word| (*word).to_owned()).collect(),
            cwd: cwd.to_owned(),
            denied: None,
        }
    }

    fn denial(rule: Option<&str>) -> ExecDenial {
        ExecDenial {
            rule: rule.map(str::to_owned),
            code: "exec_denied".to_owned(),
            ruling: None,
            reason: "`rm` is denied".to_owned(),
            fix: "leave the file alone".to_owned(),
        }
    }

    #[test]
    fn all_that_matters_is_told() {
        let denied = (exec(&["rm", "-rf", "a b", "it's\n"], "src"), denial(Some("no-rm")));
        let before = [exec(&["git", "status"], "."), exec(&["date"], ".")];
        assert_eq!(
            denial_text(&denied, &before, 0),
            "[denied (exec_denied) by rule `no-rm`: `/usr/bin/rm -rf 'a b' 'it'\\''s\u{fffd}'` in src was not executed: `rm` is denied. \
             The command was ended there. \
             Programs that ran before it: `/usr/bin/git status`, `/usr/bin/date`. Instead: leave the file alone.]"
        );
        assert_eq!(failure(&denied, &before, 0).denial(), Some("exec_denied"));
        let rule = "/home/ci/pol.yaml:3";
        let by_file = ExecDenial {
            reason: format!("read k/a is denied by rule {rule}"),
            fix: format!("narrow rule {rule}"),
            ..denial(Some(rule))
        };
        let text = denial_text(&(exec(&["cat", "k/a"], "."), by_file), &[], 0);
        assert!(
            text.contains("rule `pol.yaml:3`") && !text.contains("/home/ci"),
            "{text}"
        );
    }

    #[test]
    fn no_more_than_twenty_and_no_long_ones() {
        let denied = (exec(&["rm"], "."), denial(None));
        let many = vec![exec(&["date"], "."); 30];
        let text = denial_text(&denied, &many, 5);
        assert_eq!(text.matches("date").count(), 20);
        assert!(text.contains(" and 15 more."), "{text}");
        assert!(denial_text(&denied, &[], 0).contains("No other program had run before."));
        let long = line(&exec(&["x", &"y".repeat(9_000)], "."));
        assert_eq!(long.chars().count(), MOST_WORDS + 1);
    }
}
