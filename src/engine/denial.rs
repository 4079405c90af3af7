//! What the model reads of a denial, and the ruling that a secret brings. Rules on nothing else.

use crate::base::ruling::{Decision, Ruling};

/// The text that answers a call that a reviewer refused.
pub const REFUSED: &str = "Denied (not_approved): a reviewer refused this call.\nGo another way, or say in your final answer \
     what could not be done.";

/// The text that answers a denied call: rule, code, reason, and what would be allowed. A rule is named without the
/// directories of its file: where a policy lies on this machine is nothing that a recording should hold.
pub fn told(ruling: &Ruling) -> String {
    let rule = ruling.rule.as_deref().unwrap_or_default();
    let name = rule.rsplit_once('/').map_or(rule, |(_, name)| name);
    let by = if rule.is_empty() {
        String::new()
    } else {
        format!(" by rule {name}")
    };
    let (reason, fix) = match rule.is_empty() {
        true => (ruling.reason.clone(), ruling.fix.clone()),
        false => (ruling.reason.replace(rule, name), ruling.fix.replace(rule, name)),
    };
    let word = match ruling.decision {
        Decision::Suspend => "Held",
        _ => "Denied",
    };
    let text = format!("{word}{by} ({}): {reason}\n{fix}", ruling.code);
    text.trim_end().to_owned()
}

/// The ruling on a call that would carry a secret out.
pub fn secret() -> Ruling {
    Ruling {
        decision: Decision::Deny,
        rule: None,
        code: "secret_hit".to_owned(),
        reason: "the arguments hold a secret value of this run's environment".to_owned(),
        fix: "keep secret values out of files, commands and requests".to_owned(),
        considered: Vec::new(),
        words: Vec::new(),
        pipe: None,
        uses: Vec::new(),
    }
}
