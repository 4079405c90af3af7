//! The text that the model receives for a denied call, and the ruling for a call that contains a secret.

use crate::base::ruling::{Decision, Ruling, shown_rule};

/// The result of a call that a reviewer refused.
pub const REFUSED: &str = "Denied (not_approved): a reviewer refused this call.\nTry another way, or say in your final answer \
     what could not be done.";

/// The result of a denied call: rule, code, reason, and what would be allowed. It names the policy file without its
/// directory, because the text must be the same when a recording is replayed elsewhere.
pub fn denial_text<'a>(ruling: &Ruling, policies: impl IntoIterator<Item = &'a str>) -> String {
    let name = ruling.rule.as_deref();
    let rule = name.map_or_else(String::new, |rule| format!(" by rule {rule}"));
    let word = match ruling.decision {
        Decision::Suspend => "Held",
        _ => "Denied",
    };
    let mut text = format!("{word}{rule} ({}): {}\n{}", ruling.code, ruling.reason, ruling.fix);
    // The rule may be one of a file that a policy extends.
    if let Some(rule) = name {
        text = text.replace(rule, shown_rule(rule));
    }
    for policy in policies {
        if let Some((_, file)) = policy.rsplit_once('/') {
            text = text.replace(policy, file);
        }
    }
    text.trim_end().to_owned()
}

/// The ruling for a call whose arguments contain a secret and would leave the run.
pub fn secret() -> Ruling {
    Ruling::denied(
        "secret_hit",
        "the arguments contain a secret value of this run's environment",
        "keep secret values out of files, commands and requests",
    )
}

/// The ruling for a call whose ruling takes too long.
pub fn too_slow() -> Ruling {
    Ruling::denied(
        "limit:time",
        "the ruling on this call takes too long",
        "split it into several calls",
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_place_of_a_policy_is_not_told() {
        let ruling = Ruling {
            rule: Some("/home/ci/policies/rust.yaml:7".to_owned()),
            reason: "denied by /home/ci/policies/rust.yaml:7".to_owned(),
            ..secret()
        };
        let text = denial_text(&ruling, ["builtin:edit", "/home/ci/policies/rust.yaml"]);
        assert!(
            text.starts_with("Denied by rule rust.yaml:7 (secret_hit): denied by rust.yaml:7\n"),
            "{text}"
        );
        let extended = denial_text(&ruling, ["/home/ci/policies/main.yaml"]);
        assert_eq!(extended, text);
        let plain = denial_text(&secret(), []);
        assert!(plain.starts_with("Denied (secret_hit): "), "{plain}");
    }
}
