//! Replaces "the first rule by priority decides" by "the strictest rule decides", so that no call is allowed
//! that the original does not allow.
//!
//! - What no rule allows is denied in both, so a denial below an allow list (`deny "*"` under a few allowed tools) is
//!   not written.
//! - A denial that an allow rule outranks in any other way stays: it denies more than the original, and is reported.
//! - A question to a person becomes a suspension, with the same two cases.

use super::pattern::{Pattern, Value, is_refused};
use super::rules::{Narrowing, SourceDecision, SourceRule, ToolGroup};
use super::{ApprovalMode, DifferenceKind, ImportDifference};
use crate::diag::{SourceFiles, Span};
use crate::policy::files::{MAX_BRACES, MAX_BYTES};
use crate::policy::model::SHELL;
use crate::policy::shell::parse_prefix;

/// One rule of the result.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct TargetRule {
    pub id: String,
    /// `allow`, `deny` or `suspend`.
    pub effect: &'static str,
    pub tools: Vec<String>,
    pub scope: Scope,
    /// Commands that the rule is not about.
    pub except: Vec<String>,
    pub because: Option<String>,
    /// A line of explanation.
    pub comment: String,
}

/// The result.
#[derive(Clone, Debug)]
pub(super) struct Converted {
    pub suspend_by_default: bool,
    pub rules: Vec<TargetRule>,
}

/// What narrows a rule of the result.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Scope {
    All,
    Commands(Vec<String>),
    Paths(Vec<String>),
    /// A glob on one argument.
    With(String, String),
}

/// A rule for one group of tools, in the order of priority.
struct Entry {
    /// Position in the list of rules; `None` for what Gemini CLI allows by default.
    rule: Option<usize>,
    tool: ToolGroup,
    verdict: SourceDecision,
    /// Whether it fits every call of these tools.
    whole: bool,
    /// The word prefixes of the commands that it fits, if it fits nothing else.
    commands: Option<Vec<String>>,
    /// What it fits: for an allow rule possibly less, otherwise possibly more.
    scopes: Vec<Scope>,
    /// Whether `scopes` is what the original fits, as far as calls can be told apart.
    exact: bool,
    /// Further globs for a regular expression that fits part of a word.
    wide: Vec<Scope>,
    /// Whether an earlier rule decides all its calls.
    dead: bool,
}

/// Tools that Gemini CLI allows in every run without a person.
const READS: [&str; 8] = [
    "list_directory",
    "read_file",
    "read_many_files",
    "glob",
    "grep_search",
    "google_web_search",
    "list_mcp_resources",
    "read_mcp_resource",
];
/// Tools that it also allows in mode `autoEdit`.
const EDITS: [&str; 3] = ["write_file", "replace", "web_fetch"];
/// Tools of `READS` whose rule names paths.
const BY_PATH: [&str; 5] = ["list_directory", "read_file", "read_many_files", "glob", "grep_search"];

/// Names of the arguments of the built-in tools that may hold text, with their older names.
pub(super) const ARGUMENTS: [(&str, &[&str]); 14] = [
    ("list_directory", &["dir_path", "path", "ignore"]),
    ("read_file", &["file_path", "absolute_path", "path"]),
    ("read_many_files", &["include", "paths", "exclude"]),
    ("glob", &["pattern", "dir_path", "path"]),
    (
        "grep_search",
        &[
            "pattern",
            "dir_path",
            "path",
            "include_pattern",
            "include",
            "exclude_pattern",
        ],
    ),
    ("write_file", &["file_path", "absolute_path", "path", "content"]),
    (
        "replace",
        &[
            "file_path",
            "absolute_path",
            "path",
            "old_string",
            "new_string",
            "instruction",
        ],
    ),
    (SHELL, &["command", "description", "dir_path", "directory"]),
    ("web_fetch", &["url", "prompt"]),
    ("google_web_search", &["query"]),
    ("save_memory", &["fact", "scope", "key", "value"]),
    ("write_todos", &["todos"]),
    ("list_mcp_resources", &["server", "serverName"]),
    ("read_mcp_resource", &["server", "uri"]),
];

/// Arguments that are paths, with their older names.
const PATHS: [&[&str]; 2] = [
    &["file_path", "absolute_path", "path"],
    &["dir_path", "path", "directory"],
];

/// Converts the rules of a file.
pub(super) fn convert(
    files: &SourceFiles,
    rules: &[SourceRule],
    mode: ApprovalMode,
    report: &mut Vec<ImportDifference>,
) -> Converted {
    let mut job = Conversion {
        files,
        rules,
        mode,
        report,
        entries: Vec::new(),
        out: Vec::new(),
        suspend_by_default: false,
    };
    job.entries();
    for at in 0..job.entries.len() {
        job.entry(at);
    }
    job.shell_bounds();
    job.notes();
    Converted {
        suspend_by_default: job.suspend_by_default,
        rules: grouped(job.out),
    }
}

struct Conversion<'a> {
    files: &'a SourceFiles,
    rules: &'a [SourceRule],
    mode: ApprovalMode,
    report: &'a mut Vec<ImportDifference>,
    entries: Vec<Entry>,
    /// The rules of the result, each with the rule that it comes from.
    out: Vec<(Option<usize>, TargetRule)>,
    suspend_by_default: bool,
}

impl Conversion<'_> {
    fn say(&mut self, kind: DifferenceKind, code: &'static str, span: Option<Span>, message: impl Into<String>) {
        let next = ImportDifference {
            kind,
            code,
            span,
            message: message.into(),
        };
        if !self.report.contains(&next) {
            self.report.push(next);
        }
    }

    fn line(&self, at: Option<usize>) -> usize {
        at.and_then(|at| self.rules.get(at))
            .map_or(0, |rule| self.files.place(rule.span).line)
    }

    /// All entries by priority, the built-in rules last.
    fn entries(&mut self) {
        let mut order: Vec<usize> = (0..self.rules.len()).collect();
        order.sort_by_key(|at| std::cmp::Reverse(self.rules.get(*at).map_or(0, |rule| rule.priority)));
        for at in order {
            let Some(rule) = self.rules.get(at) else { continue };
            for tool in &rule.tools {
                let entry = self.translated(at, rule, tool);
                self.entries.extend(entry);
            }
        }
        let edits = match self.mode {
            ApprovalMode::AutoEdit => &EDITS[..],
            _ => &[],
        };
        for name in READS.iter().chain(edits) {
            let by_path = BY_PATH.contains(name) || matches!(*name, "write_file" | "replace");
            self.entries.push(Entry {
                rule: None,
                tool: ToolGroup::Builtin((*name).to_owned()),
                verdict: SourceDecision::Allow,
                whole: true,
                commands: None,
                scopes: vec![match by_path {
                    true => Scope::Paths(vec!["**".to_owned()]),
                    false => Scope::All,
                }],
                exact: true,
                wide: Vec::new(),
                dead: false,
            });
        }
        for at in 0..self.entries.len() {
            let (before, rest) = self.entries.split_at_mut(at);
            if let Some(entry) = rest.first_mut() {
                entry.dead = before.iter().any(|above| above.whole && above.tool.covers(&entry.tool));
            }
        }
    }

    /// What a rule says about one group of tools. `None` if nothing of it can be kept, or it never applies.
    fn translated(&mut self, at: usize, rule: &SourceRule, tool: &ToolGroup) -> Option<Entry> {
        let allows = rule.verdict == SourceDecision::Allow;
        if tool.fits_nothing() && allows {
            let text = format!(
                "Gemini CLI matches no tool by `{}`, which it compares as it is written: this allows nothing there, and \
                 is left out",
                tool.text()
            );
            self.say(DifferenceKind::Same, "never-matches", Some(rule.span), text);
            return None;
        }
        let wider = tool.wider();
        if let Some(wider) = &wider {
            let text = format!(
                "no policy can name `{}`: the rule is widened to `{}`",
                tool.text(),
                wider.text()
            );
            self.say(DifferenceKind::Narrower, "tool-name", Some(rule.span), text);
        }
        let mut entry = Entry {
            rule: Some(at),
            exact: wider.is_none(),
            tool: wider.unwrap_or_else(|| tool.clone()),
            verdict: rule.verdict,
            whole: false,
            commands: None,
            scopes: Vec::new(),
            wide: Vec::new(),
            dead: false,
        };
        let regex = match &rule.narrowing {
            Narrowing::CommandRegex(regex) | Narrowing::ArgsPattern(regex) => Some(regex),
            _ => None,
        };
        if regex.is_some_and(|regex| is_refused(regex)) && allows {
            let text = "Gemini CLI refuses this regular expression (too long, or a repeated group with a repetition), so the rule \
                        allows nothing there, and is left out";
            self.say(DifferenceKind::Same, "refused-regex", Some(rule.span), text);
            return None;
        }
        match &rule.narrowing {
            Narrowing::None => {
                entry.whole = !rule.some_tools;
                entry.scopes = vec![Scope::All];
            }
            Narrowing::Prefixes(prefixes) => self.by_prefixes(rule, prefixes, &mut entry),
            Narrowing::CommandRegex(regex) => {
                let value = Pattern::parse(regex).map(|pattern| pattern.value());
                self.by_command(rule, value, "commandRegex", &mut entry);
            }
            Narrowing::ArgsPattern(regex) => self.by_arguments(rule, regex, &mut entry),
        }
        if rule.some_tools {
            entry.exact = false;
            if allows {
                let text =
                    "`toolAnnotations` are not known before a call is ruled on: what the rule allows is left out";
                self.say(DifferenceKind::Narrower, "annotations", Some(rule.span), text);
                return None;
            }
        }
        (!entry.scopes.is_empty() || !allows).then_some(entry)
    }

    fn by_prefixes(&mut self, rule: &SourceRule, prefixes: &[String], entry: &mut Entry) {
        let mut commands: Vec<String> = Vec::new();
        let mut complete = true;
        for prefix in prefixes {
            let plain = prefix.trim();
            // A last `$` is a word there and the end of a command here.
            let sound = !plain.is_empty() && !plain.ends_with(" $") && parse_prefix(plain).is_ok();
            if sound {
                if !commands.iter().any(|known| known == plain) {
                    commands.push(plain.to_owned());
                }
                continue;
            }
            complete = false;
            if rule.verdict == SourceDecision::Allow {
                let text = format!("`{prefix}` is not a list of plain words: what it allows is left out");
                self.say(DifferenceKind::Narrower, "prefix", Some(rule.span), text);
                continue;
            }
            entry.exact = false;
            let first = leading_words(plain);
            match first {
                Some(first) => {
                    let text = format!(
                        "`{prefix}` is not a list of plain words: the rule is widened to all commands that begin with `{first}`"
                    );
                    self.say(DifferenceKind::Narrower, "prefix", Some(rule.span), text);
                    commands.push(first);
                }
                None => {
                    let text = format!("`{prefix}` is not a list of plain words: the rule is widened to all commands");
                    self.say(DifferenceKind::Narrower, "prefix", Some(rule.span), text);
                    entry.scopes = vec![Scope::All];
                    return;
                }
            }
        }
        if !commands.is_empty() {
            entry.scopes = vec![Scope::Commands(commands.clone())];
        }
        entry.commands = (complete && !commands.is_empty()).then_some(commands);
    }

    /// A regular expression on the command.
    fn by_command(&mut self, rule: &SourceRule, value: Option<Value>, key: &str, entry: &mut Entry) {
        let (commands, cut) = value.as_ref().map_or((Vec::new(), true), Value::commands);
        if commands.iter().any(String::is_empty) {
            // It fits every command.
            entry.whole = !rule.some_tools;
            entry.scopes = vec![Scope::All];
            return;
        }
        if rule.verdict == SourceDecision::Allow {
            let text = match (commands.is_empty(), cut) {
                (true, _) => {
                    format!("`{key}` cannot be written as the first words of commands: what it allows is left out")
                }
                (false, true) => format!(
                    "`{key}` is kept for {} only: the rest cannot be written as the first words of commands",
                    ticked(&commands)
                ),
                (false, false) => format!(
                    "`{key}` is written as {}, each ending with a whole word",
                    ticked(&commands)
                ),
            };
            let kind = match cut {
                true => DifferenceKind::Narrower,
                false => DifferenceKind::Same,
            };
            self.say(kind, "regex", Some(rule.span), text);
        } else {
            match value.as_ref().and_then(Value::command_globs) {
                Some(globs) => {
                    let globs = globs.into_iter().map(|glob| Scope::With("command".to_owned(), glob));
                    entry.wide = globs.collect();
                }
                None => {
                    let text = format!("`{key}` cannot be kept: the rule is widened to all commands");
                    self.say(DifferenceKind::Narrower, "regex", Some(rule.span), text);
                    entry.exact = false;
                    entry.scopes = vec![Scope::All];
                    return;
                }
            }
            entry.exact = !cut;
        }
        if !commands.is_empty() {
            entry.scopes = vec![Scope::Commands(commands.clone())];
            entry.commands = (!cut).then_some(commands);
        }
    }

    /// A regular expression on the JSON of all arguments.
    fn by_arguments(&mut self, rule: &SourceRule, regex: &str, entry: &mut Entry) {
        let pattern = Pattern::parse(regex);
        let keyed = pattern.as_ref().and_then(Pattern::keyed).unwrap_or_default();
        let key = keyed.first().map(|first| first.key.clone()).unwrap_or_default();
        let same = !keyed.is_empty() && keyed.iter().all(|one| one.key == key);
        let value = keyed
            .into_iter()
            .map(|one| one.value)
            .reduce(Value::with)
            .filter(|_| same);
        let tool = match &entry.tool {
            ToolGroup::Builtin(name) => Some(name.clone()),
            _ => None,
        };
        if tool.as_deref() == Some(SHELL) && key == "command" && value.is_some() {
            self.by_command(rule, value, "argsPattern", entry);
            return;
        }
        let arguments = tool
            .as_deref()
            .and_then(|tool| ARGUMENTS.iter().find(|(name, _)| *name == tool))
            .map(|(_, arguments)| *arguments);
        let synonyms = PATHS
            .iter()
            .find(|names| names.contains(&key.as_str()) && arguments.is_some());
        let by_path = synonyms.is_some() && tool.as_deref() != Some(SHELL);
        if rule.verdict == SourceDecision::Allow {
            let (scopes, cut) = match (&value, by_path) {
                (Some(value), true) => {
                    let (paths, cut) = value.paths();
                    let scopes = if paths.is_empty() {
                        Vec::new()
                    } else {
                        vec![Scope::Paths(paths)]
                    };
                    (scopes, cut)
                }
                (Some(value), false) if !matches!(entry.tool, ToolGroup::Any) => {
                    let (globs, cut) = value.exact_globs();
                    (
                        globs.into_iter().map(|glob| Scope::With(key.clone(), glob)).collect(),
                        cut,
                    )
                }
                _ => (Vec::new(), true),
            };
            if cut || scopes.is_empty() {
                let text = match scopes.is_empty() {
                    true => {
                        "`argsPattern` cannot be written as paths or globs of an argument: what it allows is left out"
                    }
                    false => {
                        "only a part of `argsPattern` can be written as paths or globs of an argument: the rest is left out"
                    }
                };
                self.say(DifferenceKind::Narrower, "regex", Some(rule.span), text);
            }
            entry.scopes = scopes;
            return;
        }
        let mut scopes = Vec::new();
        let known = value.as_ref().and_then(Value::wide_globs);
        let globs = match (known, arguments) {
            (Some(globs), _) => {
                let names: Vec<&str> = synonyms.map_or(vec![key.as_str()], |names| names.to_vec());
                Some(crossed(&names, &globs))
            }
            (None, Some(arguments)) => {
                let found = pattern.as_ref().and_then(|pattern| pattern.anywhere(arguments));
                found.map(|globs| crossed(arguments, &globs))
            }
            (None, None) => None,
        };
        if let (Some(value), true) = (&value, by_path) {
            let (paths, _) = value.paths();
            if !paths.is_empty() {
                scopes.push(Scope::Paths(paths));
            }
        }
        match globs {
            Some(globs) => scopes.extend(globs),
            None => {
                let text = format!(
                    "`argsPattern` cannot be kept: the rule is widened to all calls of `{}`",
                    entry.tool.text()
                );
                self.say(DifferenceKind::Narrower, "regex", Some(rule.span), text);
                entry.exact = false;
                scopes = vec![Scope::All];
            }
        }
        entry.scopes = scopes;
    }

    /// Whether a later rule would allow some calls that this one fits.
    fn is_needed(&self, at: usize) -> bool {
        let Some(entry) = self.entries.get(at) else {
            return false;
        };
        let later = self.entries.iter().skip(at + 1);
        later
            .filter(|below| below.verdict < entry.verdict && !below.dead)
            .any(|below| overlaps(entry, below))
    }

    fn entry(&mut self, at: usize) {
        let Some(entry) = self.entries.get(at) else { return };
        let (verdict, rule, tool) = (entry.verdict, entry.rule, entry.tool.clone());
        if verdict == SourceDecision::Allow {
            if !entry.dead {
                self.push(at, "allow", entry.scopes.clone(), Vec::new());
            } else if let Some(rule) = rule.and_then(|rule| self.rules.get(rule)) {
                let text = format!(
                    "a rule of higher priority decides all calls of `{}`: this one is left out",
                    tool.text()
                );
                self.say(DifferenceKind::Same, "never-reached", Some(rule.span), text);
            }
            return;
        }
        let stricter_above = |above: &Entry| above.whole && above.tool.covers(&tool) && above.verdict >= verdict;
        if self.entries.iter().take(at).any(stricter_above) {
            return;
        }
        let higher: Vec<usize> = (0..at)
            .filter(|above| {
                let above = self.entries.get(*above);
                above.is_some_and(|above| above.verdict < verdict && !above.dead && overlaps(entry, above))
            })
            .collect();
        let span = rule.and_then(|rule| self.rules.get(rule)).map(|rule| rule.span);
        let background = higher
            .iter()
            .filter_map(|above| self.entries.get(*above))
            .all(|above| is_broader(entry, above));
        let needed = self.is_needed(at);
        let whole_shell = entry.whole && tool == ToolGroup::Builtin(SHELL.to_owned());
        if higher.is_empty() || !background {
            if !higher.is_empty() {
                let lines = self.lines(&higher);
                let (what, then) = match verdict {
                    SourceDecision::Deny => ("denial", "denied"),
                    _ => ("question", "held for a person"),
                };
                let above = self.kind(&higher);
                let text = format!(
                    "in Gemini CLI the {above} in line {lines} has a higher priority than this {what}; here the strictest rule decides, so \
                     a call that both fit is {then}"
                );
                self.say(DifferenceKind::Narrower, "outranked", span, text);
            }
            self.restrict(at, needed, span);
            return;
        }
        let mut excepted: Vec<String> = Vec::new();
        let by_commands = higher.iter().filter_map(|above| self.entries.get(*above)).all(|above| {
            let Some(commands) = above.commands.as_ref().filter(|_| whole_shell) else {
                return false;
            };
            excepted.extend(commands.iter().cloned());
            true
        });
        excepted.dedup();
        match verdict {
            SourceDecision::Deny if !needed => {
                let text = format!(
                    "what no rule allows of `{}` is denied by `default: deny`, so this rule is not written",
                    tool.text()
                );
                self.say(DifferenceKind::Same, "default", span, text);
            }
            SourceDecision::Ask if tool == ToolGroup::Any && entry.whole => {
                self.suspend_by_default = true;
                let text = "written as `default: suspend`: what no rule allows is held for a person";
                self.say(DifferenceKind::Same, "default", span, text);
            }
            _ if by_commands => {
                let effect = if verdict == SourceDecision::Deny {
                    "deny"
                } else {
                    "suspend"
                };
                self.asks(verdict, span);
                self.known_safe(at, span);
                self.push(at, effect, vec![Scope::All], excepted);
            }
            SourceDecision::Ask if !needed => {
                let text = format!(
                    "calls of `{}` that no other rule allows are denied instead of held for a person",
                    tool.text()
                );
                self.say(DifferenceKind::Narrower, "denied-not-asked", span, text);
            }
            _ => {
                let lines = self.lines(&higher);
                let above = self.kind(&higher);
                let text = format!(
                    "in Gemini CLI the {above} in line {lines} has a higher priority; here the strictest rule decides, so it decides nothing \
                     that this rule fits"
                );
                self.say(DifferenceKind::Narrower, "outranked", span, text);
                self.restrict(at, needed, span);
            }
        }
    }

    /// What to call these rules.
    fn kind(&self, entries: &[usize]) -> &'static str {
        let verdict = |at: &usize| self.entries.get(*at).map(|entry| entry.verdict);
        let all = |wanted: SourceDecision| entries.iter().all(|at| verdict(at) == Some(wanted));
        if all(SourceDecision::Allow) {
            "allow rule"
        } else if all(SourceDecision::Ask) {
            "`ask_user` rule"
        } else {
            "rule"
        }
    }

    fn lines(&self, entries: &[usize]) -> String {
        let mut lines: Vec<usize> = entries
            .iter()
            .filter_map(|at| self.entries.get(*at))
            .map(|entry| self.line(entry.rule))
            .collect();
        lines.sort_unstable();
        lines.dedup();
        let shown: Vec<String> = lines.iter().map(usize::to_string).collect();
        shown.join(", ")
    }

    fn asks(&mut self, verdict: SourceDecision, span: Option<Span>) {
        if verdict == SourceDecision::Ask {
            let text =
                "a question to a person becomes `suspend`: the run ends with code 5 and waits for `resume --approve`";
            self.say(DifferenceKind::Same, "suspend", span, text);
        }
    }

    /// Reports that Gemini CLI runs some commands without asking, although a rule asks about all commands.
    fn known_safe(&mut self, at: usize, span: Option<Span>) {
        let shell = ToolGroup::Builtin(SHELL.to_owned());
        let about = |entry: &Entry| entry.verdict == SourceDecision::Ask && entry.whole && entry.tool.covers(&shell);
        if self.entries.get(at).is_some_and(about) {
            let text = "Gemini CLI runs commands that it considers harmless (`cat`, `ls`, `git status` …) without this question; here they \
                        are held as well, unless a rule allows them";
            self.say(DifferenceKind::Narrower, "harmless", span, text);
        }
    }

    /// Writes a denial or a question as it is.
    fn restrict(&mut self, at: usize, needed: bool, span: Option<Span>) {
        let Some(entry) = self.entries.get(at) else { return };
        let (verdict, exact) = (entry.verdict, entry.exact);
        let (scopes, wide) = (entry.scopes.clone(), entry.wide.clone());
        match verdict {
            SourceDecision::Ask if exact => {
                // A glob may fit calls that the original denies, so it is written only where they would be allowed.
                let all = scopes.into_iter().chain(wide.into_iter().filter(|_| needed)).collect();
                self.asks(verdict, span);
                self.known_safe(at, span);
                self.push(at, "suspend", all, Vec::new());
            }
            SourceDecision::Ask if !needed => {
                let text = "what it asks about cannot be told apart from other calls: these are denied instead of held for a person";
                self.say(DifferenceKind::Narrower, "denied-not-asked", span, text);
            }
            SourceDecision::Ask => {
                let text = "what it asks about cannot be told apart from other calls: all of these are denied";
                self.say(DifferenceKind::Narrower, "denied-not-asked", span, text);
                self.push(at, "deny", scopes.into_iter().chain(wide).collect(), Vec::new());
            }
            _ => self.push(at, "deny", scopes.into_iter().chain(wide).collect(), Vec::new()),
        }
    }

    fn push(&mut self, at: usize, effect: &'static str, scopes: Vec<Scope>, except: Vec<String>) {
        let Some(entry) = self.entries.get(at) else { return };
        let (rule, tool) = (entry.rule, entry.tool.text());
        let source = rule.and_then(|rule| self.rules.get(rule));
        let because = source
            .filter(|_| effect != "allow")
            .and_then(|rule| rule.message.clone())
            .filter(|message| !message.trim().is_empty());
        let comment = match source {
            Some(rule) if rule.checker.is_some() => format!("line {}, a safety checker", self.line(entry.rule)),
            Some(rule) => format!("line {}, priority {}", self.line(entry.rule), rule.priority),
            None => "what Gemini CLI allows by itself".to_owned(),
        };
        let id = match source {
            Some(_) => format!("gemini:{}", self.line(entry.rule)),
            None => "gemini:built-in".to_owned(),
        };
        for scope in scopes {
            let next = TargetRule {
                id: id.clone(),
                effect,
                tools: vec![tool.clone()],
                scope,
                except: except.clone(),
                because: because.clone(),
                comment: comment.clone(),
            };
            self.out.push((rule, next));
        }
    }

    /// Rules for what Gemini CLI asks about although a rule allows the command: redirections, and where the rule allows
    /// all commands some options that write or start programs.
    fn shell_bounds(&mut self) {
        let shell = ToolGroup::Builtin(SHELL.to_owned());
        let allowing: Vec<&Entry> = self
            .entries
            .iter()
            .filter(|entry| entry.verdict == SourceDecision::Allow && !entry.dead && entry.tool.covers(&shell))
            .collect();
        let strict = |entry: &&Entry| {
            let rule = entry.rule.and_then(|rule| self.rules.get(rule));
            rule.is_some_and(|rule| !rule.redirection)
        };
        let redirection =
            allowing.iter().any(strict) && !matches!(self.mode, ApprovalMode::AutoEdit | ApprovalMode::Yolo);
        let open = allowing.iter().any(|entry| entry.whole) && self.mode != ApprovalMode::Yolo;
        let rule = |id: &str, scope: Scope, comment: &str| TargetRule {
            id: format!("gemini:{id}"),
            effect: "deny",
            tools: vec![SHELL.to_owned()],
            scope,
            except: Vec::new(),
            because: Some("Gemini CLI asks a person about it, and there is none".to_owned()),
            comment: comment.to_owned(),
        };
        let with = |glob: &str| Scope::With("command".to_owned(), glob.to_owned());
        if redirection {
            self.out.push((
                None,
                rule(
                    "redirections",
                    with("*[<>]*"),
                    "no rule allows redirections; remove it to allow those that a write rule covers, and `2>&1`",
                ),
            ));
            let text = "commands with `<` or `>` are denied, also where it is quoted: no rule, or not every one, has \
                        `allowRedirection`; see the rule `gemini:redirections`";
            self.say(DifferenceKind::Narrower, "redirections", None, text);
        }
        if open {
            let words = [
                "rm -f",
                "rm -rf",
                "rm -fr",
                "sudo",
                "git -c",
                "git --config-env",
                "git branch",
                "base64 -o",
                "base64 --output",
            ];
            self.out.push((
                None,
                rule(
                    "dangerous-words",
                    Scope::Commands(words.iter().map(|word| (*word).to_owned()).collect()),
                    "asked about by Gemini CLI where a rule allows all commands",
                ),
            ));
            for (program, options) in [
                ("find", "-exec,-ok,-delete,-fls,-fprint"),
                ("rg", "--pre,--hostname-bin,--search-zip,-z"),
                (
                    "git",
                    "--output,--ext-diff,--textconv,--exec,--paginate,-c,--config-env",
                ),
                ("base64", "-o,--output"),
            ] {
                let glob = format!("*{program}*{{{options}}}*");
                self.out.push((
                    None,
                    rule(
                        &format!("dangerous-{program}"),
                        with(&glob),
                        "options that write or start programs",
                    ),
                ));
            }
            let text = "a rule allows all commands; what Gemini CLI still asks about is denied, as in its runs without a person; see the rules \
                        `gemini:dangerous-…`";
            self.say(DifferenceKind::Same, "dangerous", None, text);
        }
        if !allowing_is_empty(&self.out) {
            let text = "a command may read inside the workspace only, and write only what a rule for `write_file` allows; options that the \
                        profile of its program does not know need `args: any` on the rule";
            self.say(DifferenceKind::Narrower, "commands", None, text);
        }
        let text = "commands are told apart by their words, whatever their quotes and blanks (`git 'log'` is `git log`), also inside `bash -c`; \
                    what only prints or changes the shell's directory (`echo`, `cd`) needs no rule";
        self.say(DifferenceKind::Note, "spelling", None, text);
    }

    fn notes(&mut self) {
        let built_in: Vec<&str> = READS
            .iter()
            .copied()
            .filter(|name| {
                self.out.iter().any(|(rule, out)| {
                    rule.is_none() && out.effect == "allow" && out.tools.iter().any(|tool| tool == name)
                })
            })
            .collect();
        if !built_in.is_empty() {
            let text = format!(
                "Gemini CLI allows {} in every run by default; the rule `gemini:built-in` does the same here",
                crate::diag::diagnostic::list(&built_in)
            );
            self.say(DifferenceKind::Note, "built-in", None, text);
        }
        if self.mode == ApprovalMode::Yolo {
            let text = "in mode yolo Gemini CLI allows what no rule names; here it is denied";
            self.say(DifferenceKind::Narrower, "yolo", None, text);
        }
        let servers: Vec<String> = self
            .entries
            .iter()
            .filter_map(|entry| match &entry.tool {
                ToolGroup::Server(name) | ToolGroup::ServerTool(name, _) => Some(name.clone()),
                _ => None,
            })
            .collect::<std::collections::BTreeSet<_>>()
            .into_iter()
            .collect();
        if !servers.is_empty() {
            let names: Vec<&str> = servers.iter().map(String::as_str).collect();
            let text = format!(
                "the rules name tools of {}: the recipe must start these servers, since a name that no tool has is an error",
                crate::diag::diagnostic::list(&names)
            );
            self.say(DifferenceKind::Note, "servers", None, text);
        }
        let text = "nothing outside the workspace can be reached, files that look like secrets stay closed, and protected names (`.git`, CI \
                    definitions, agent settings …) are written only where a rule names them literally";
        self.say(DifferenceKind::Narrower, "workspace", None, text);
    }
}

fn allowing_is_empty(out: &[(Option<usize>, TargetRule)]) -> bool {
    let about_shell = |tool: &String| tool == SHELL || tool == "*";
    !out.iter()
        .any(|(_, rule)| rule.effect == "allow" && rule.tools.iter().any(about_shell))
}

/// Scopes for each argument with each of the globs.
fn crossed(names: &[&str], globs: &[String]) -> Vec<Scope> {
    let together = format!("{{{}}}", globs.join(","));
    let short = together.len() <= MAX_BYTES && together.matches('{').count() <= MAX_BRACES;
    let globs = match (short, globs) {
        (_, [only]) => vec![only.clone()],
        (true, _) => vec![together],
        (false, globs) => globs.to_vec(),
    };
    names
        .iter()
        .flat_map(|name| globs.iter().map(|glob| Scope::With((*name).to_owned(), glob.clone())))
        .collect()
}

fn ticked(words: &[String]) -> String {
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    crate::diag::diagnostic::list(&words)
}

/// The plain words that a text begins with, except the last one, which may be incomplete.
fn leading_words(text: &str) -> Option<String> {
    let words: Vec<&str> = text.split_whitespace().collect();
    let plain = |word: &&&str| {
        word.chars()
            .all(|c| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.' | '/' | '+' | ':' | '@' | '%'))
    };
    let sound = words.iter().take_while(plain).copied().collect::<Vec<&str>>();
    let prefix = sound.join(" ");
    (!prefix.is_empty() && parse_prefix(&prefix).is_ok()).then_some(prefix)
}

/// Whether some call fits both, as far as is known.
fn overlaps(one: &Entry, other: &Entry) -> bool {
    if !one.tool.overlaps(&other.tool) {
        return false;
    }
    match (&one.commands, &other.commands) {
        (Some(ours), Some(theirs)) => ours
            .iter()
            .any(|mine| theirs.iter().any(|other| begins(mine, other) || begins(other, mine))),
        _ => true,
    }
}

/// Whether the first rule fits all calls of the second, and more.
fn is_broader(one: &Entry, other: &Entry) -> bool {
    if !one.tool.covers(&other.tool) {
        return false;
    }
    if one.whole {
        return one.tool != other.tool || !other.whole;
    }
    match (&one.commands, &other.commands) {
        (Some(ours), Some(theirs)) => theirs
            .iter()
            .all(|narrow| ours.iter().any(|wide| begins(narrow, wide) && narrow != wide)),
        _ => false,
    }
}

/// Whether a command prefix begins with the words of another one.
fn begins(narrow: &str, wide: &str) -> bool {
    let wide: Vec<&str> = wide.split_whitespace().collect();
    let narrow: Vec<&str> = narrow.split_whitespace().collect();
    narrow.starts_with(&wide)
}

/// Joins rules that differ only in their tools, and gives each its own id.
fn grouped(out: Vec<(Option<usize>, TargetRule)>) -> Vec<TargetRule> {
    let mut rules: Vec<TargetRule> = Vec::new();
    for (_, next) in out {
        let same = rules.iter_mut().find(|rule| {
            rule.id == next.id
                && rule.effect == next.effect
                && rule.scope == next.scope
                && rule.except == next.except
                && rule.because == next.because
        });
        match same {
            Some(rule) => rule.tools.extend(next.tools),
            None => rules.push(next),
        }
    }
    let names: Vec<String> = rules.iter().map(|rule| rule.id.clone()).collect();
    for (at, rule) in rules.iter_mut().enumerate() {
        let before = names.iter().take(at).filter(|name| **name == rule.id).count();
        if before > 0 {
            rule.id = format!("{}-{}", rule.id, before + 1);
        }
    }
    rules
}
