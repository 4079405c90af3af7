//! Renders rulings for people and scripts: a trace, a JSON line, and the differences between two policies.

use crate::base::grant::{WriteKind, Writes};
use crate::base::quote::shell_word;
use crate::base::ruling::{Deferred, PolicyInput, Ruling};
use serde_json::{Value, json};
use std::fmt::Write as _;

/// One call of a `--calls` file.
#[derive(Clone, Debug, PartialEq)]
pub struct CallLine {
    /// The name of the tool.
    pub tool: String,
    /// The arguments, a JSON object.
    pub args: Value,
}

/// Parses one line of a `--calls` file: `{"tool": …, "args": {…}}`; `args` may be absent.
///
/// # Errors
/// The problem with the line, as a phrase for people.
pub fn call_line(line: &str) -> Result<CallLine, String> {
    let value: Value = serde_json::from_str(line).map_err(|error| format!("not JSON: {error}"))?;
    let tool = value
        .get("tool")
        .and_then(Value::as_str)
        .ok_or("`tool` is missing or not a string")?;
    let args = value.get("args").cloned().unwrap_or_else(|| json!({}));
    if !args.is_object() {
        return Err("`args` is not an object".to_owned());
    }
    Ok(CallLine {
        tool: tool.to_owned(),
        args,
    })
}

/// For a call that may start: the first of its commands that is ruled on at its exec.
fn at_exec(ruling: &Ruling) -> Option<&Deferred> {
    ruling.decision.runs().then(|| ruling.deferred.first()).flatten()
}

/// The word for a ruling in listings: its decision, or `at_exec` if one of its commands is ruled on at its exec.
pub fn decision_word(ruling: &Ruling) -> &'static str {
    match at_exec(ruling) {
        Some(_) => "at_exec",
        None => ruling.decision.as_str(),
    }
}

/// The JSON line for scripts, without a newline: `decision`, `rule`, `code`, `reason`, and for `at_exec` the `program`.
pub fn json_line(ruling: &Ruling) -> String {
    short(ruling).to_string()
}

fn short(ruling: &Ruling) -> Value {
    match at_exec(ruling) {
        Some(deferred) => json!({
            "decision": "at_exec",
            "rule": deferred.rule,
            "code": ruling.code,
            "reason": deferred.reason,
            "program": deferred.program,
        }),
        None => json!({
            "decision": ruling.decision.as_str(),
            "rule": ruling.rule,
            "code": ruling.code,
            "reason": ruling.reason,
        }),
    }
}

/// Everything that [`render`] shows, as one JSON object: the keys of [`json_line`], and `call`, `fix`, `writes`, `at_exec`,
/// `runs` and `considered`.
pub fn json_object(title: &str, ruling: &Ruling) -> Value {
    let mut object = short(ruling);
    let may_start = ruling.decision.runs() && !ruling.words.is_empty();
    object["call"] = json!(title);
    object["fix"] = json!(ruling.fix);
    object["writes"] = json!(may_start.then(|| writes(&ruling.writes)));
    let deferred = ruling.deferred.iter();
    object["at_exec"] = deferred
        .map(|one| json!({ "program": one.program, "rule": one.rule, "reason": one.reason }))
        .collect();
    object["runs"] = json!(ruling.words);
    let considered = ruling.considered.iter();
    object["considered"] = considered
        .map(|one| json!({ "matched": one.matched, "decision": one.decision.as_str(), "rule": one.rule, "why": one.why }))
        .collect();
    object
}

/// The JSON line for a call that could not be judged. It does not run; its code says that no policy denied it.
pub fn json_error(why: &str) -> String {
    let reason = format!("the call cannot be judged: {why}");
    json!({ "decision": "deny", "rule": null, "code": "not_judged", "reason": reason }).to_string()
}

/// The ruling and how it was reached. `title` describes the call; ends with a newline.
pub fn render(title: &str, ruling: &Ruling) -> String {
    let mut out = String::new();
    let _ = writeln!(out, "{}: {}", decision_word(ruling), plain(title));
    let _ = writeln!(out, "  rule:   {}", plain(ruling.rule.as_deref().unwrap_or("none")));
    let _ = writeln!(out, "  code:   {}", plain(&ruling.code));
    let _ = writeln!(out, "  reason: {}", plain(&ruling.reason));
    if !ruling.fix.is_empty() {
        let _ = writeln!(out, "  fix:    {}", plain(&ruling.fix));
    }
    if let Some(pipe) = &ruling.pipe {
        let _ = writeln!(out, "  pipe:   {}", plain(pipe));
    }
    if ruling.decision.runs() && !ruling.words.is_empty() {
        let _ = writeln!(out, "  writes: {}", plain(&writes(&ruling.writes)));
    }
    for deferred in &ruling.deferred {
        let _ = writeln!(
            out,
            "  at exec: {}: {}",
            plain(&deferred.program),
            plain(&deferred.reason)
        );
    }
    for words in &ruling.words {
        let words: Vec<String> = words.iter().map(|word| shell_word(word)).collect();
        let _ = writeln!(out, "  runs:   {}", plain(&words.join(" ")));
    }
    if !ruling.considered.is_empty() {
        out.push_str("  considered:\n");
    }
    for considered in &ruling.considered {
        let mark = if considered.matched { "x" } else { " " };
        let (decision, rule, why) = (
            considered.decision.as_str(),
            plain(&considered.rule),
            plain(&considered.why),
        );
        let _ = writeln!(out, "    [{mark}] {decision:<7} {rule}: {why}");
    }
    out
}

/// A short description of what a command may write.
fn writes(writes: &Writes) -> String {
    match writes {
        Writes::Nothing => "nothing".to_owned(),
        Writes::Tree => "the workspace, except protected and denied paths".to_owned(),
        Writes::Paths { paths, maybe } => {
            let known = paths.iter().map(|path| match (path.kind, path.path.as_str()) {
                (WriteKind::Ruled, "") => "what rules let be written".to_owned(),
                (WriteKind::Ruled, dir) => format!("what rules let be written below {dir}"),
                (_, path) => path.to_owned(),
            });
            let later = maybe.iter().map(|dir| match dir.as_str() {
                "" => "what is granted at exec".to_owned(),
                dir => format!("what is granted at exec below {dir}"),
            });
            known.chain(later).collect::<Vec<_>>().join(", ")
        }
    }
}

fn plain(text: &str) -> String {
    crate::diag::render::escape(text)
}

/// A title for a call: the command, path or URL of its arguments.
pub fn title(asked: &PolicyInput<'_>) -> String {
    let what = ["command", "file_path", "dir_path", "url", "pattern", "prompt"];
    match what.iter().find_map(|key| asked.args.get(key).and_then(Value::as_str)) {
        Some(what) => format!("{} {what}", asked.tool),
        None => asked.tool.to_owned(),
    }
}

/// One call of a recorded run on which another policy decides differently.
#[derive(Clone, Debug, PartialEq)]
pub struct RulingDifference {
    /// The id of the call.
    pub call: String,
    /// What it does, in one line.
    pub title: String,
    /// The recorded ruling.
    pub was: Ruling,
    /// The ruling by the other policy.
    pub now: Ruling,
}

/// The calls whose decision or code differs, in order. Rule names are not compared, since they may differ between
/// files.
pub fn differs(calls: impl IntoIterator<Item = (String, String, Ruling, Ruling)>) -> Vec<RulingDifference> {
    calls
        .into_iter()
        .filter(|(_, _, was, now)| was.decision != now.decision || was.code != now.code)
        .map(|(call, title, was, now)| RulingDifference { call, title, was, now })
        .collect()
}

/// The differences for people, three lines each.
pub fn render_differences(differences: &[RulingDifference]) -> String {
    if differences.is_empty() {
        return "every call gets the same ruling\n".to_owned();
    }
    let mut out = String::new();
    for RulingDifference { call, title, was, now } in differences {
        let _ = writeln!(out, "{}: {}", plain(call), plain(title));
        for (mark, ruling) in [("-", was), ("+", now)] {
            let rule = ruling.rule.as_deref().unwrap_or("no rule");
            let (decision, code) = (ruling.decision.as_str(), &ruling.code);
            let _ = writeln!(
                out,
                "  {mark} {decision} ({}, {}): {}",
                plain(rule),
                plain(code),
                plain(&ruling.reason)
            );
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::ruling::Considered;
    use crate::base::ruling::Decision;

    fn ruling(decision: Decision, code: &str) -> Ruling {
        Ruling {
            decision,
            rule: Some("p.yaml:4".to_owned()),
            code: code.to_owned(),
            reason: "run `rm x`: no\u{1b}[0m".to_owned(),
            fix: "use another approach".to_owned(),
            considered: vec![Considered {
                rule: "p.yaml:4".to_owned(),
                decision: Decision::Deny,
                matched: true,
                why: "run `rm x`".to_owned(),
            }],
            words: vec![vec!["rm".to_owned(), "a b".to_owned()]],
            pipe: None,
            uses: Vec::new(),
            writes: crate::base::grant::Writes::Nothing,
            deferred: Vec::new(),
        }
    }

    #[test]
    fn a_trace_and_a_line() {
        let deny = ruling(Decision::Deny, "deny_rule");
        let text = render("run_shell_command rm", &deny);
        assert!(
            text.starts_with("deny: run_shell_command rm\n  rule:   p.yaml:4\n"),
            "{text}"
        );
        assert!(
            text.contains("runs:   rm 'a b'") && text.contains("[x] deny    p.yaml:4: run `rm x`"),
            "{text}"
        );
        assert!(!text.contains('\u{1b}'));
        let line: Value = serde_json::from_str(&json_line(&deny)).unwrap();
        assert_eq!(
            (&line["decision"], &line["rule"], &line["code"]),
            (&json!("deny"), &json!("p.yaml:4"), &json!("deny_rule"))
        );
    }

    #[test]
    fn a_call_that_cannot_be_judged_has_a_code_of_its_own() {
        let line: Value = serde_json::from_str(&json_error("there is no tool `x`")).unwrap();
        assert_eq!((&line["decision"], &line["rule"]), (&json!("deny"), &Value::Null));
        let code = line["code"].as_str().unwrap();
        assert_eq!(code, "not_judged");
        assert!(crate::policy::codes::find(code).is_some());
    }

    #[test]
    fn calls_are_read_strictly() {
        assert_eq!(call_line(r#"{"tool":"glob"}"#).unwrap().args, json!({}));
        assert!(
            call_line("{").is_err()
                && call_line(r#"{"args":{}}"#).is_err()
                && call_line(r#"{"tool":"x","args":[]}"#).is_err()
        );
    }

    #[test]
    fn only_other_decisions_and_codes_differ() {
        let (deny, allow) = (ruling(Decision::Deny, "deny_rule"), ruling(Decision::Allow, "allowed"));
        let call = |was: &Ruling, now: &Ruling| ("c1".to_owned(), "t".to_owned(), was.clone(), now.clone());
        let found = differs([call(&deny, &deny), call(&deny, &allow)]);
        assert_eq!(found.len(), 1);
        assert!(render_differences(&found).contains("  - deny (p.yaml:4, deny_rule)"));
        assert_eq!(render_differences(&[]), "every call gets the same ruling\n");
    }
}
