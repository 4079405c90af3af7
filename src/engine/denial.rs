//! What the model reads of a denial, and the ruling that a secret brings. Rules on nothing else.

use crate::base::ruling::{Decision, Ruling};

/// The text that answers a denied call: rule, code, reason, and what would be allowed.
pub fn told(ruling: &Ruling) -> String {
    let rule = ruling.rule.as_deref().map(|rule| format!(" by rule {rule}")).unwrap_or_default();
    let text = format!("Denied{rule} ({}): {}\n{}", ruling.code, ruling.reason, ruling.fix);
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
