//! Summarises a policy for the model in a few lines of the system prompt, so that it need not discover the policy
//! through denials.
//!
//! Equal policies give equal text, whatever the names and paths of their files, so that requests of a run share their
//! prefix (prompt caching) and a recording can be replayed elsewhere. It is only a summary: each call is ruled on
//! separately.

use super::files::PathPattern;
use super::intersect::intersection;
use super::model::{Policy, PolicySet, Rule, RuleEffect, SHELL, builtin_touches, needs_no_rule};
use super::shell;
use crate::base::call::{ArgumentTarget, ToolKind, ToolOrigin, ToolSpec};
use crate::base::ruling::Decision;
use crate::base::secret;
use crate::diag::render::escape;
use crate::tools::{CommandAccessKind, builtin_for};
use std::borrow::Cow;
use std::fmt::Write as _;

/// The most bytes in one list of names; the text says how many more there are.
const LIST_BYTES: usize = 700;

/// What the files grant together, in one category.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Granted {
    /// Anything.
    Any,
    /// These entries; nothing if empty.
    Some(Vec<String>),
}

impl Granted {
    fn is_nothing(&self) -> bool {
        matches!(self, Granted::Some(list) if list.is_empty())
    }
}

impl PolicySet {
    /// Whether any call of a tool could be allowed or suspended for a person, so that declaring the tool to the model
    /// is useful.
    ///
    /// An undeclared tool can still be called; the call is ruled on like any other.
    pub fn may_allow(&self, tool: &str, kind: ToolKind, origin: &ToolOrigin) -> bool {
        if *origin == ToolOrigin::Builtin && needs_no_rule(tool) {
            // These tools show commands that this run left running.
            return self.may_allow(SHELL, ToolKind::Execute, &ToolOrigin::Builtin);
        }
        self.files.iter().all(|policy| may_allow(policy, tool, kind, origin))
    }

    /// The lines of the system prompt that say what is allowed. Bounded in length.
    pub fn brief(&self) -> String {
        let commits = |text: &String| ["git commit", "git push", "git add"].contains(&text.as_str()) || text == "git";
        let may_commit = match self.granted_commands() {
            Granted::Any => true,
            Granted::Some(list) => list.iter().any(commits),
        };
        let commit = if may_commit { "." } else { ": do not commit or push." };
        let mut out = format!("- The runner makes the patch from the changed files{commit}\n");
        out.push_str("- A policy rules on every call; what it does not allow is denied with a reason: then use another approach. It allows:\n");
        let _ = writeln!(out, "  commands: {}", self.brief_commands());
        let _ = writeln!(out, "  writing: {}", self.brief_paths(CommandAccessKind::Writes));
        let read = self.granted_paths(CommandAccessKind::Reads);
        if read != Granted::Any {
            let _ = writeln!(out, "  reading: {}", self.brief_paths(CommandAccessKind::Reads));
        }
        let _ = writeln!(out, "  network: {}", self.brief_network());
        out
    }

    fn brief_commands(&self) -> String {
        match self.granted_commands() {
            Granted::Any => "any".to_owned(),
            Granted::Some(list) if list.is_empty() => "none".to_owned(),
            Granted::Some(list) => format!("{}; also in pipes and lists", limited(&grouped(&list))),
        }
    }

    fn brief_paths(&self, access: CommandAccessKind) -> String {
        match self.granted_paths(access) {
            Granted::Any => match access {
                CommandAccessKind::Writes => "anywhere but version control, CI, agent and editor settings".to_owned(),
                _ => "anything but secrets".to_owned(),
            },
            Granted::Some(list) if list.is_empty() => "nothing".to_owned(),
            Granted::Some(list) => limited(&list),
        }
    }

    fn brief_network(&self) -> String {
        let hosts = |hosts: Vec<String>| match hosts.as_slice() {
            [] => None,
            _ => Some(limited(&hosts)),
        };
        let commands = hosts(self.network().iter().map(ToString::to_string).collect());
        let fetch = match self.granted_hosts() {
            Granted::Any => Some("any host".to_owned()),
            Granted::Some(list) => hosts(list),
        };
        match (fetch, commands) {
            (None, None) => "none".to_owned(),
            (fetch, commands) => {
                let fetch = fetch.map(|hosts| format!("{}: {hosts}", builtin_for(CommandAccessKind::Fetches).name));
                let commands = Some(format!("commands: {}", commands.unwrap_or_else(|| "none".to_owned())));
                fetch.into_iter().chain(commands).collect::<Vec<_>>().join("; ")
            }
        }
    }

    /// Command prefixes that every file allows; if one extends another, the longer one counts.
    fn granted_commands(&self) -> Granted {
        self.agreed_on(
            |policy| {
                of_rules(policy, builtin_for(CommandAccessKind::Runs), |rule| {
                    let prefixes = rule.commands.as_ref()?;
                    Some(prefixes.iter().map(|prefix| prefix.text.clone()).collect())
                })
            },
            |narrow, wide| narrow == wide || narrow.starts_with(&format!("{wide} ")),
        )
    }

    fn granted_paths(&self, access: CommandAccessKind) -> Granted {
        self.agreed_on(
            |policy| {
                of_rules(policy, builtin_for(access), |rule| {
                    let except = rule
                        .except
                        .paths
                        .iter()
                        .map(PathPattern::text)
                        .collect::<Vec<_>>()
                        .join(", ");
                    let named = |text: &str| match except.as_str() {
                        "" => text.to_owned(),
                        except => format!("{text} but not {except}"),
                    };
                    match &rule.paths {
                        Some(paths) if !paths.iter().any(|path| path.text() == "**") || !except.is_empty() => {
                            Some(paths.iter().map(|path| named(path.text())).collect())
                        }
                        None if !except.is_empty() => Some(vec![named("**")]),
                        _ => None,
                    }
                })
            },
            |narrow, wide| {
                let below = wide
                    .strip_suffix("**")
                    .filter(|stem| stem.is_empty() || stem.ends_with('/'));
                narrow == wide || below.is_some_and(|stem| !stem.contains('*') && narrow.starts_with(stem))
            },
        )
    }

    fn granted_hosts(&self) -> Granted {
        self.agreed_on(
            |policy| {
                of_rules(policy, builtin_for(CommandAccessKind::Fetches), |rule| {
                    let hosts = rule.hosts.as_ref()?;
                    Some(hosts.iter().map(ToString::to_string).collect())
                })
            },
            |narrow, wide| narrow == wide || wide.strip_prefix('*').is_some_and(|end| narrow.ends_with(end)),
        )
    }

    /// What all files grant, as by [`intersection`]; a file with [`Granted::Any`] narrows nothing.
    fn agreed_on(&self, of: impl Fn(&Policy) -> Granted, within: impl Fn(&str, &str) -> bool) -> Granted {
        let lists: Vec<Vec<String>> = self
            .files
            .iter()
            .filter_map(|file| match of(file) {
                Granted::Any => None,
                Granted::Some(list) => Some(list),
            })
            .collect();
        match lists.is_empty() && !self.files.is_empty() {
            true => Granted::Any,
            false => Granted::Some(intersection(lists, |one, other| within(one, other))),
        }
    }

    /// Allowed programs, prefixes or places that are most similar to the request, for the answer to a denied call.
    pub(super) fn allowed_like(&self, command: &str) -> Vec<String> {
        let Granted::Some(all) = self.granted_commands() else {
            return Vec::new();
        };
        let all: Vec<String> = all.into_iter().filter(|text| !self.denies_prefix(text)).collect();
        let program = |text: &str| text.split_whitespace().next().unwrap_or_default().to_owned();
        let wanted = program(command);
        let mut same: Vec<String> = all.iter().filter(|text| program(text) == wanted).cloned().collect();
        same.dedup();
        if !same.is_empty() {
            return same;
        }
        let mut programs: Vec<String> = Vec::new();
        for name in all.iter().map(|text| program(text)) {
            if !programs.contains(&name) {
                programs.push(name);
            }
        }
        // The most similar first: `python` for `python3`.
        let score = |name: &String| (strsim::jaro_winkler(name, &wanted) * 1000.0).round() as u64;
        let near = |name: &String| score(name) > 900;
        programs.sort_by_key(|name| std::cmp::Reverse(if near(name) { score(name) } else { 0 }));
        programs
    }

    /// Whether a rule denies every command that begins with these words.
    fn denies_prefix(&self, prefix: &str) -> bool {
        let Ok(words) = shell::parse_prefix(prefix) else {
            return false;
        };
        let denies = |rule: &Rule| {
            let by_commands_alone = rule.effect == RuleEffect::Deny
                && rule.is_unconditional()
                && rule.paths.is_none()
                && rule.hosts.is_none();
            let mut denied = rule.commands.iter().flatten();
            by_commands_alone && denied.any(|denied| denied.includes(&words))
        };
        let mut rules = self.files.iter().flat_map(|file| &file.rules);
        rules.any(denies)
    }

    /// The places that may be written or read, as patterns; empty if there are none or if all are allowed.
    pub(super) fn allowed_places(&self, access: CommandAccessKind) -> Vec<String> {
        match self.granted_paths(access) {
            Granted::Any => Vec::new(),
            Granted::Some(list) => list,
        }
    }

    /// The hosts that `web_fetch` may request.
    pub(super) fn allowed_hosts(&self) -> Vec<String> {
        match self.granted_hosts() {
            Granted::Any => Vec::new(),
            Granted::Some(list) => list,
        }
    }

    /// Whether no command is allowed at all.
    pub(super) fn allows_no_command(&self) -> bool {
        self.granted_commands().is_nothing()
    }
}

fn may_allow(policy: &Policy, tool: &str, kind: ToolKind, origin: &ToolOrigin) -> bool {
    let about = |rule: &&Rule| rule.is_about(tool, kind, origin);
    let mut rules = policy.rules.iter().filter(about);
    let whole_denial = |rule: &Rule| {
        let except = &rule.except;
        rule.effect == RuleEffect::Deny
            && !rule.is_narrowed()
            && rule.with.is_empty()
            && except.paths.is_empty()
            && except.commands.is_empty()
            && except.hosts.is_empty()
    };
    if rules.clone().any(whole_denial) {
        return false;
    }
    if policy.default == Decision::Suspend {
        return true;
    }
    rules.any(|rule| matches!(rule.effect, RuleEffect::Allow | RuleEffect::Suspend) && could_fit(rule, tool, origin))
}

/// Whether a rule's narrowing can apply to what the tool touches. For tools that are not built in this is unknown.
fn could_fit(rule: &Rule, tool: &str, origin: &ToolOrigin) -> bool {
    if *origin != ToolOrigin::Builtin || !rule.is_narrowed() {
        return true;
    }
    match builtin_touches(tool).unwrap_or(ArgumentTarget::Nothing) {
        ArgumentTarget::Commands => true,
        ArgumentTarget::Urls => rule.hosts.is_some(),
        ArgumentTarget::Nothing => false,
        _ => rule.paths.is_some(),
    }
}

/// What the allow rules of a file grant for a built-in tool; `None` from `entries` means anything.
fn of_rules(policy: &Policy, tool: &ToolSpec, entries: impl Fn(&Rule) -> Option<Vec<String>>) -> Granted {
    let mut all = Vec::new();
    let allows = policy.allowing().filter(|rule| rule.is_about_tool(tool));
    for rule in allows.filter(|rule| could_fit(rule, &tool.name, &tool.origin)) {
        match entries(rule) {
            None => return Granted::Any,
            Some(more) => {
                for one in more {
                    if !all.contains(&one) {
                        all.push(one);
                    }
                }
            }
        }
    }
    Granted::Some(all)
}

/// Combines prefixes of one program into one entry: `cargo build|check|test`.
fn grouped(prefixes: &[String]) -> Vec<String> {
    let mut groups: Vec<(String, Vec<String>)> = Vec::new();
    for prefix in prefixes {
        let (program, rest) = prefix.split_once(char::is_whitespace).unwrap_or((prefix, ""));
        let rest = rest.trim().to_owned();
        match groups.iter_mut().find(|(known, _)| known == program) {
            Some((_, rests)) => rests.push(rest),
            None => groups.push((program.to_owned(), vec![rest])),
        }
    }
    let entry = |(program, rests): (String, Vec<String>)| {
        if rests.iter().any(String::is_empty) {
            return program;
        }
        format!("{program} {}", rests.join("|"))
    };
    groups.into_iter().map(entry).collect()
}

/// As many entries on one line as fit.
pub(super) fn limited(entries: &[String]) -> String {
    let mut out = String::new();
    for (n, entry) in entries.iter().enumerate() {
        let entry = escape(entry);
        if !out.is_empty() && out.len() + entry.len() > LIST_BYTES {
            let _ = write!(out, " and {} more", entries.len() - n);
            break;
        }
        if n > 0 {
            out.push_str(", ");
        }
        // A single entry that is too long is cut, so that the text is bounded whatever a file contains.
        let safe = match entry.len() <= LIST_BYTES {
            true => Cow::Borrowed(entry.as_str()),
            false => secret::start(&entry, LIST_BYTES),
        };
        out.push_str(&safe[..safe.floor_char_boundary(LIST_BYTES)]);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::diag::SourceFiles;
    use crate::policy::load::{PolicySource, load};
    use crate::policy::model::KnownTools;

    fn set(files: &[&str]) -> PolicySet {
        let sources: Vec<PolicySource> = files
            .iter()
            .enumerate()
            .map(|(n, text)| PolicySource {
                name: format!("/somewhere/{n}.yaml"),
                text: format!("version: 1\n{text}"),
            })
            .collect();
        load(&mut SourceFiles::new(), &sources, &KnownTools::builtin())
            .unwrap()
            .0
    }

    fn declared(set: &PolicySet) -> Vec<&'static str> {
        let known = KnownTools::builtin();
        let names = [
            "list_directory",
            "read_file",
            "write_file",
            "replace",
            SHELL,
            "read_background_output",
            "web_fetch",
            "google_web_search",
            "save_memory",
            "write_todos",
        ];
        let told = |name: &&str| set.may_allow(name, known.kind(name).unwrap(), &ToolOrigin::Builtin);
        names.into_iter().filter(told).collect()
    }

    #[test]
    fn the_brief_of_a_policy() {
        let rust = set(&["extends: [builtin:read-only]
rules:
  - { allow: [write_file, replace], paths: ['src/**', 'docs/**'], except: ['src/gen/**'] }
  - { allow: run_shell_command, commands: [cargo build, cargo test, git diff, ls] }
  - { suspend: run_shell_command, commands: [git push] }
  - { allow: web_fetch, hosts: [docs.rs] }
"]);
        assert_eq!(
            rust.brief(),
            "- The runner makes the patch from the changed files: do not commit or push.
- A policy rules on every call; what it does not allow is denied with a reason: then use another approach. It allows:
  commands: cargo build|test, git diff, ls; also in pipes and lists
  writing: src/** but not src/gen/**, docs/** but not src/gen/**
  network: web_fetch: docs.rs; commands: none
"
        );
        assert_eq!(
            set(&["extends: [builtin:read-only]"]).brief(),
            "- The runner makes the patch from the changed files: do not commit or push.
- A policy rules on every call; what it does not allow is denied with a reason: then use another approach. It allows:
  commands: none
  writing: nothing
  network: none
"
        );
        let open = set(&[
            "extends: [builtin:edit]\nrules: [{ allow: run_shell_command }, { allow: web_fetch }]\nsandbox: { network: [crates.io] }",
        ]);
        let text = open.brief();
        assert!(
            text.contains("commands: any\n") && !text.contains("do not commit"),
            "{text}"
        );
        assert!(
            text.contains("network: web_fetch: any host; commands: crates.io\n"),
            "{text}"
        );
        assert!(!text.contains("somewhere"), "{text}");
    }

    #[test]
    fn of_several_files_the_narrower_is_told() {
        let both = set(&[
            "extends: [builtin:edit]\nrules: [{ allow: run_shell_command, commands: [cargo, git diff] }]",
            "rules:\n  - { allow: read_file, paths: ['src/**'] }\n  - { allow: [write_file], paths: ['src/a/**'] }\n  - { allow: run_shell_command, commands: [cargo test, git] }",
        ]);
        let text = both.brief();
        for line in [
            "commands: git diff, cargo test;",
            "writing: src/a/**\n",
            "reading: src/**\n",
        ] {
            assert!(text.contains(line), "{line}: {text}");
        }
        assert!(both.brief() == both.brief());
    }

    #[test]
    fn the_brief_is_bounded() {
        let many: Vec<String> = (0..5_000).map(|n| format!("prog{n}")).collect();
        let text = set(&[&format!(
            "rules: [{{ allow: run_shell_command, commands: [{}] }}]",
            many.join(", ")
        )])
        .brief();
        assert!(
            text.len() < 2_000 && text.contains(" more; also in pipes"),
            "{}",
            text.len()
        );
    }

    #[test]
    fn tools_that_no_rule_could_allow_are_not_declared() {
        assert_eq!(
            declared(&set(&["extends: [builtin:read-only]"])),
            ["list_directory", "read_file", "write_todos"]
        );
        assert_eq!(
            declared(&set(&[
                "extends: [builtin:edit]\nrules: [{ suspend: run_shell_command, commands: [git push] }]"
            ])),
            [
                "list_directory",
                "read_file",
                "write_file",
                "replace",
                SHELL,
                "read_background_output",
                "write_todos"
            ]
        );
        // A rule that is narrowed to another kind of access does not apply to a tool.
        assert_eq!(declared(&set(&["rules: [{ allow: '*', paths: ['src/**'] }]"])).len(), 6);
        assert_eq!(
            declared(&set(&["rules: [{ allow: '*', hosts: [docs.rs] }]"])),
            [SHELL, "read_background_output", "web_fetch"]
        );
        assert_eq!(
            declared(&set(&[
                "extends: [builtin:edit]\nrules: [{ deny: replace }, { deny: write_file, paths: [x] }]"
            ])),
            ["list_directory", "read_file", "write_file", "write_todos"]
        );
        assert_eq!(
            declared(&set(&["default: suspend\nrules: [{ deny: web_fetch }]"])).len(),
            9
        );
        // All files must agree.
        assert_eq!(
            declared(&set(&["extends: [builtin:edit]", "rules: [{ allow: read_file }]"])),
            ["read_file"]
        );
        let mcp = ToolOrigin::Mcp("docs".to_owned());
        let docs = set(&["rules: [{ allow: 'docs__*' }]"]);
        assert!(
            docs.may_allow("docs__find", ToolKind::Other, &mcp) && !docs.may_allow("git__log", ToolKind::Other, &mcp)
        );
    }
}
