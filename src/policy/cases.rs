//! `policy test`: a table of calls with their expected rulings.
//!
//! ```yaml
//! version: 1
//! cases:
//!   - { command: cargo test, expect: allow }
//!   - { write: .github/workflows/ci.yml, expect: deny, code: protected_path }
//!   - { fetch: "https://docs.rs/", expect: allow, rule: docs }
//!   - { tool: replace, args: { file_path: src/a.rs, old_string: a, new_string: b }, expect: modify, name: rustfmt runs }
//! ```
//!
//! Each case has exactly one of `command`, `read`, `write`, `list`, `fetch` and `tool` (with `args`; `command` may have
//! a `dir`), and `expect`; `rule` (an id or `FILE:LINE`) and `code` (with or without its detail) are compared if
//! present.

use super::model::SHELL;
use super::text_values::string;
use crate::base::ruling::Ruling;
use crate::diag::diagnostic::{any_error, sort};
use crate::diag::reader::{Problems, wrong_type};
use crate::diag::{Diagnostic, Reader, Shape, SourceFiles, SourceId, Span, YamlNode, parse as parse_yaml};
use serde_json::{Value, json};

/// One case of the table.
#[derive(Clone, Debug)]
pub struct PolicyCase {
    /// For people: its `name`, or else the call.
    pub title: String,
    pub tool: String,
    /// A JSON object.
    pub args: Value,
    /// `allow`, `modify`, `suspend`, `deny` or `at_exec`.
    pub expect: &'static str,
    pub rule: Option<String>,
    pub code: Option<String>,
    pub span: Span,
}

/// The result of a table.
#[derive(Clone, Debug, Default)]
pub struct Report {
    pub total: usize,
    /// One error for each case with a different ruling.
    pub failed: Vec<Diagnostic>,
}

impl Report {
    /// One line: `12 cases, 1 failed`.
    pub fn summary(&self) -> String {
        let cases = if self.total == 1 { "case" } else { "cases" };
        match self.failed.len() {
            0 => format!("{} {cases}, all as expected", self.total),
            failed => format!("{} {cases}, {failed} failed", self.total),
        }
    }
}

const DECISIONS: [(&str, &str); 5] = [
    ("allow", "allow"),
    ("modify", "modify"),
    ("suspend", "suspend"),
    ("deny", "deny"),
    ("at_exec", "at_exec"),
];

/// Parses a table.
///
/// # Errors
/// All problems of the file.
pub fn parse(files: &SourceFiles, file: SourceId) -> Result<Vec<PolicyCase>, Vec<Diagnostic>> {
    let root = parse_yaml(files, file)?;
    let mut problems = Vec::new();
    let mut cases = Vec::new();
    if !matches!(root.shape, Shape::Map(_)) {
        let problem = wrong_type(&root, "the table", "a map with the key `cases`");
        problems.push(problem.help("write `version: 1`, and the cases as a list below `cases:`"));
    } else if let Some(mut reader) = Reader::open(&root, "the table", &mut problems) {
        reader.version(&mut problems);
        if let Some(list) = reader.need("cases", &mut problems)
            && let Some(nodes) = reader.items("cases", &mut problems)
        {
            if nodes.is_empty() {
                let problem = Diagnostic::error(
                    "no-cases",
                    list.span,
                    "the table has no cases, so it would test nothing",
                );
                problems.push(problem.help("write a case, for example `- { read: README.md, expect: allow }`"));
            }
            cases.extend(nodes.iter().filter_map(|node| case(node, &mut problems)));
        }
        reader.finish(&mut problems);
    }
    sort(&mut problems);
    if any_error(&problems) { Err(problems) } else { Ok(cases) }
}

const CALLS: [&str; 6] = ["command", "read", "write", "list", "fetch", "tool"];

fn case(node: &YamlNode, problems: &mut Problems) -> Option<PolicyCase> {
    let mut reader = Reader::open(node, "this case", problems)?;
    let head = reader.head();
    let calls = CALLS.map(|key| (key, reader.node(key)));
    let given: Vec<_> = calls
        .into_iter()
        .filter_map(|(key, node)| node.map(|node| (key, node)))
        .collect();
    let owned = [(reader.entry("args"), "tool"), (reader.entry("dir"), "command")];
    let args = reader.object("args", problems);
    let dir = reader.text("dir", problems).map(|dir| dir.value);
    let expect = match reader.need("expect", problems) {
        Some(_) => reader.choice("expect", &DECISIONS, problems),
        None => None,
    };
    let rule = reader.text("rule", problems).map(|rule| rule.value);
    let code = reader.text("code", problems).map(|code| code.value);
    let name = reader.text("name", problems).map(|name| name.value);
    reader.finish(problems);
    let [(key, node)] = given.as_slice() else {
        let message = format!("this case has {} calls", given.len());
        problems.push(
            Diagnostic::error("bad-case", head, message)
                .help("write one of command, read, write, list, fetch and tool"),
        );
        return None;
    };
    for (entry, owner) in owned {
        if let Some(entry) = entry.filter(|_| *key != owner) {
            let message = format!("`{}` belongs to a case with `{owner}`", entry.key);
            let problem = Diagnostic::error("misplaced-key", entry.key_span, message);
            problems.push(problem.help(format!(
                "leave `{}` out, or write `{owner}` in place of `{key}`",
                entry.key
            )));
        }
    }
    let text = string(node, key, problems)?.value;
    let title = name.unwrap_or_else(|| format!("{key} {text}"));
    let (tool, args) = match *key {
        "command" => (SHELL, json!({ "command": text, "dir_path": dir.unwrap_or_default() })),
        "read" => ("read_file", json!({ "file_path": text })),
        "write" => ("write_file", json!({ "file_path": text, "content": "" })),
        "list" => ("list_directory", json!({ "dir_path": text })),
        "fetch" => ("web_fetch", json!({ "url": text })),
        _ => (text.as_str(), args.unwrap_or_else(|| json!({}))),
    };
    Some(PolicyCase {
        title,
        tool: tool.to_owned(),
        args,
        expect: expect?.value,
        rule,
        code,
        span: head,
    })
}

/// Judges every case. A case that the judge cannot prepare (an unknown tool, bad arguments) fails.
pub fn run(cases: &[PolicyCase], mut judge: impl FnMut(&PolicyCase) -> Result<Ruling, String>) -> Report {
    let failed = cases.iter().filter_map(|case| match judge(case) {
        Ok(ruling) => mismatch(case, &ruling),
        Err(why) => {
            let message = format!("{}: the call cannot be prepared: {why}", case.title);
            Some(Diagnostic::error("case-not-judged", case.span, message).help("correct the call"))
        }
    });
    Report {
        total: cases.len(),
        failed: failed.collect(),
    }
}

fn mismatch(case: &PolicyCase, ruling: &Ruling) -> Option<Diagnostic> {
    let found = ruling.rule.as_deref().unwrap_or("no rule");
    let word = super::explain::decision_word(ruling);
    let wrong = if word != case.expect {
        format!("expected {}, ruled {word}", case.expect)
    } else if let Some(rule) = case.rule.as_deref().filter(|rule| *rule != found) {
        format!("expected rule {rule}, ruled by {found}")
    } else if let Some(code) = case.code.as_deref().filter(|code| !code_fits(code, &ruling.code)) {
        format!("expected code {code}, got {}", ruling.code)
    } else {
        return None;
    };
    let message = format!("{}: {wrong} ({}: {})", case.title, ruling.code, ruling.reason);
    let problem = Diagnostic::error("case-failed", case.span, message);
    Some(if ruling.fix.is_empty() {
        problem
    } else {
        problem.help(ruling.fix.clone())
    })
}

fn code_fits(expected: &str, code: &str) -> bool {
    expected == code || code.strip_prefix(expected).is_some_and(|rest| rest.starts_with(':'))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::ruling::Decision;

    fn table(text: &str) -> Result<Vec<PolicyCase>, Vec<Diagnostic>> {
        let mut files = SourceFiles::new();
        let id = files.add("c.yaml", text);
        parse(&files, id)
    }

    fn ruling(decision: Decision, code: &str) -> Ruling {
        Ruling {
            decision,
            rule: Some("r".to_owned()),
            code: code.to_owned(),
            reason: "because".to_owned(),
            fix: String::new(),
            considered: Vec::new(),
            words: Vec::new(),
            pipe: None,
            uses: Vec::new(),
            writes: crate::base::grant::Writes::Nothing,
            deferred: Vec::new(),
        }
    }

    #[test]
    fn calls_are_written_out() {
        let cases = table(
            "version: 1\ncases:\n  - { command: ls, dir: sub, expect: allow }\n  - { tool: glob, args: { pattern: a }, expect: deny }\n",
        );
        let cases = cases.unwrap();
        assert_eq!(cases[0].args, json!({ "command": "ls", "dir_path": "sub" }));
        assert_eq!(
            (cases[1].tool.as_str(), &cases[1].args),
            ("glob", &json!({ "pattern": "a" }))
        );
    }

    #[test]
    fn a_table_is_strict() {
        for (text, code) in [
            ("version: 1\n", "missing-key"),
            ("- { read: a, expect: allow }\n", "wrong-type"),
            ("version: 1\ncases: []\n", "no-cases"),
            ("version: 1\ncases: [{ expect: allow }]\n", "bad-case"),
            (
                "version: 1\ncases: [{ read: a, write: b, expect: allow }]\n",
                "bad-case",
            ),
            ("version: 1\ncases: [{ read: a }]\n", "missing-key"),
            ("version: 1\ncases: [{ read: a, expect: yes }]\n", "unknown-word"),
            (
                "version: 1\ncases: [{ red: a, read: b, expect: deny }]\n",
                "unknown-key",
            ),
            (
                "version: 1\ncases: [{ read: a, args: { file_path: b }, expect: deny }]\n",
                "misplaced-key",
            ),
            (
                "version: 1\ncases: [{ write: a, dir: b, expect: deny }]\n",
                "misplaced-key",
            ),
            (
                "version: 1\ncases: [{ tool: glob, args: [a], expect: deny }]\n",
                "wrong-type",
            ),
        ] {
            let problems = table(text).unwrap_err();
            assert!(
                problems.iter().any(|problem| problem.code == code),
                "{text}: {problems:?}"
            );
        }
    }

    #[test]
    fn a_plain_list_is_told_its_key() {
        let problems = table("- { read: a, expect: allow }\n").unwrap_err();
        let help = problems[0].help.as_deref().unwrap();
        assert!(help.contains("below `cases:`"), "{problems:?}");
    }

    #[test]
    fn decision_rule_and_code_are_compared() {
        let cases = table(
            "version: 1\ncases:\n  - { read: a, expect: deny }\n  - { read: a, expect: deny, rule: r, code: unknown_option }\n  - { read: a, expect: allow }\n  - { read: a, expect: deny, rule: s }\n  - { read: a, expect: deny, code: no_rule }\n",
        );
        let report = run(&cases.unwrap(), |_| Ok(ruling(Decision::Deny, "unknown_option:--x")));
        let messages: Vec<&str> = report.failed.iter().map(|problem| problem.message.as_str()).collect();
        assert_eq!(report.summary(), "5 cases, 3 failed");
        assert!(
            messages[0].contains("expected allow, ruled deny") && messages[1].contains("expected rule s"),
            "{messages:?}"
        );
        assert!(
            messages[2].contains("expected code no_rule, got unknown_option:--x"),
            "{messages:?}"
        );
    }
}
