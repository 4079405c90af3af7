//! Warns about rules that have no effect because another rule covers them. Only the texts of rules are compared.

use crate::diag::Diagnostic;
use crate::policy::model::{Policy, Rule, RuleEffect, SHELL, ToolPattern};

/// Warns if another rule makes this one ineffective: an equal or wider deny next to an allow, or a wider rule with the
/// same effect.
pub fn shadowed(policy: &Policy, rule: &Rule, found: &mut Vec<Diagnostic>) {
    let others = policy
        .rules
        .iter()
        .filter(|other| other.sound && other.name != rule.name);
    for other in others {
        let stricter =
            other.effect.decision() > rule.effect.decision() && !matches!(rule.effect, RuleEffect::Modify { .. });
        let same =
            other.effect == rule.effect && other.times.is_none() && (other.span < rule.span || !includes(rule, other));
        if (stricter || same) && includes(other, rule) {
            let message = format!(
                "rule {} matches all that this one matches, so this one decides nothing",
                other.name
            );
            found.push(
                Diagnostic::warning("shadowed", rule.span, message)
                    .label(other.span, "the other rule")
                    .help("remove one of them, or narrow the other with `except`"),
            );
            return;
        }
    }
}

/// Whether, by its text, `wide` certainly matches everything that `narrow` matches.
fn includes(wide: &Rule, narrow: &Rule) -> bool {
    let tools = narrow.tools.iter().all(|tool| {
        wide.tools.contains(&ToolPattern::Any)
            || wide.tools.contains(tool)
            || matches!(tool, ToolPattern::Name(name) if wide.is_about_builtin(name))
    });
    wide.is_unconditional()
        && tools
        && (!narrow.any_args || wide.any_args || wide.commands.is_none())
        && narrowing_includes(wide, narrow)
}

fn narrowing_includes(wide: &Rule, narrow: &Rule) -> bool {
    if !wide.is_narrowed() {
        // An allow without narrowing covers no file that a command writes; one with `paths` for commands does.
        return !(narrow.paths.is_some() && narrow.is_about_builtin(SHELL) && wide.effect == RuleEffect::Allow);
    }
    let paths = match (&wide.paths, &narrow.paths) {
        (None, None) => true,
        (Some(wide), Some(narrow)) => {
            let fits = |text: &str| {
                wide.iter()
                    .any(|pattern| pattern.text() == text || pattern.text() == "**")
            };
            narrow.iter().all(|pattern| fits(pattern.text()))
        }
        _ => false,
    };
    let commands = match (&wide.commands, &narrow.commands) {
        (None, None) => true,
        (Some(wide), Some(narrow)) => narrow
            .iter()
            .all(|prefix| wide.iter().any(|other| other.includes(&prefix.words))),
        _ => false,
    };
    let hosts = match (&wide.hosts, &narrow.hosts) {
        (None, None) => true,
        (Some(wide), Some(narrow)) => narrow.iter().all(|host| wide.iter().any(|other| other.includes(host))),
        _ => false,
    };
    paths && commands && hosts
}
