//! Reads the rules of a policy file of Gemini CLI, as its own loader accepts them, and leaves out those that have no
//! effect in a run without a person.

use super::{ApprovalMode, DifferenceKind, ImportDifference};
use crate::base::server_name::{is_server_name, sound_server_name};
use crate::diag::reader::{Problems, wrong_type};
use crate::diag::{Diagnostic, Reader, Shape, Span, Spanned, YamlNode, did_you_mean, similar_word};
use crate::policy::model::KnownTools;

/// Most rules in one file: more are refused, because each is compared with each.
const MAX_RULES: usize = 2_000;
/// Highest priority.
const MAX_PRIORITY: u64 = 999;

/// The decisions of the original.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum SourceDecision {
    Allow,
    Ask,
    Deny,
}

/// A tool or group of tools that a rule is about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum ToolGroup {
    Any,
    /// A tool of this program, by its canonical name.
    Builtin(String),
    AnyServer,
    Server(String),
    ServerTool(String, String),
    /// A tool of this name on every server.
    AnyServersTool(String),
    AnyDiscovered,
    Discovered(String),
}

impl ToolGroup {
    /// Whether every tool of `other` is in this group.
    pub fn covers(&self, other: &ToolGroup) -> bool {
        use ToolGroup::{Any, AnyDiscovered, AnyServer, AnyServersTool, Discovered, Server, ServerTool};
        match (self, other) {
            (Any, _)
            | (AnyServer, AnyServer | Server(_) | ServerTool(..) | AnyServersTool(_))
            | (AnyDiscovered, AnyDiscovered | Discovered(_)) => true,
            (Server(ours), ServerTool(theirs, _)) => ours == theirs,
            (AnyServersTool(ours), ServerTool(_, theirs)) => ours == theirs,
            _ => self == other,
        }
    }

    /// Whether some tool is in both groups.
    pub fn overlaps(&self, other: &ToolGroup) -> bool {
        use ToolGroup::{AnyServersTool, Server};
        let crossing = matches!(
            (self, other),
            (Server(_), AnyServersTool(_)) | (AnyServersTool(_), Server(_))
        );
        crossing || self.covers(other) || other.covers(self)
    }

    /// Whether the original matches no tool by it: it knows `*` only for everything, all servers and all tools of one
    /// server, compares every other name as it is written, and no tool has a name with `*` or blanks.
    pub fn fits_nothing(&self) -> bool {
        let of_no_tool = |name: &str| name.contains(|c: char| c == '*' || c.is_whitespace());
        match self {
            ToolGroup::AnyDiscovered | ToolGroup::AnyServersTool(_) => true,
            ToolGroup::Server(server) => of_no_tool(server),
            ToolGroup::ServerTool(server, tool) => of_no_tool(server) || of_no_tool(tool),
            ToolGroup::Discovered(tool) => of_no_tool(tool),
            ToolGroup::Any | ToolGroup::AnyServer | ToolGroup::Builtin(_) => false,
        }
    }

    /// The next wider group, if a policy cannot name this one: only its patterns can contain blanks.
    pub fn wider(&self) -> Option<ToolGroup> {
        let refused = self.text().contains(char::is_whitespace) && !self.text().contains('*');
        match self {
            ToolGroup::ServerTool(server, _) if refused => Some(ToolGroup::Server(server.clone())),
            ToolGroup::Discovered(_) if refused => Some(ToolGroup::AnyDiscovered),
            _ => None,
        }
    }

    /// As a policy names it.
    pub fn text(&self) -> String {
        match self {
            ToolGroup::Any => "*".to_owned(),
            ToolGroup::Builtin(name) => name.clone(),
            ToolGroup::AnyServer => "origin:mcp".to_owned(),
            ToolGroup::Server(server) => format!("{server}__*"),
            ToolGroup::ServerTool(server, tool) => format!("{server}__{tool}"),
            ToolGroup::AnyServersTool(tool) => format!("*__{tool}"),
            ToolGroup::AnyDiscovered => "origin:discovered".to_owned(),
            ToolGroup::Discovered(name) => format!("discovered_tool_{name}"),
        }
    }
}

/// What narrows a rule, as it is written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Narrowing {
    None,
    Prefixes(Vec<String>),
    /// Matched from the start of the command.
    CommandRegex(String),
    /// Matched anywhere in the JSON of the arguments.
    ArgsPattern(String),
}

/// A rule that has an effect in the chosen mode.
#[derive(Clone, Debug)]
pub(super) struct SourceRule {
    pub span: Span,
    pub tools: Vec<ToolGroup>,
    pub narrowing: Narrowing,
    /// `toolAnnotations`: only some of these tools are meant, and which is not known here.
    pub some_tools: bool,
    pub verdict: SourceDecision,
    pub priority: u64,
    pub redirection: bool,
    pub message: Option<String>,
    /// A safety checker that is not known here; it can only restrict.
    pub checker: Option<String>,
}

/// Tools of Gemini CLI that do not exist here: about people, plans, agents and the display.
const ABSENT: [&str; 20] = [
    "activate_skill",
    "ask_user",
    "browser_agent",
    "cli_help",
    "codebase_investigator",
    "complete_task",
    "enter_plan_mode",
    "exit_plan_mode",
    "generalist",
    "get_internal_docs",
    "invoke_agent",
    "tracker_add_dependency",
    "tracker_create_task",
    "tracker_get_task",
    "tracker_list_tasks",
    "tracker_update_task",
    "tracker_visualize",
    "update_topic",
    "wait_for_agent",
    "create_new_topic",
];

/// The rules of a file that have an effect, in file order.
pub(super) fn read(
    root: &YamlNode,
    mode: ApprovalMode,
    report: &mut Vec<ImportDifference>,
    problems: &mut Problems,
) -> Vec<SourceRule> {
    let Some(mut reader) = Reader::open(root, "the policy of Gemini CLI", problems) else {
        return Vec::new();
    };
    let head = reader.head();
    let rules = reader.items("rule", problems).unwrap_or_default();
    let checkers = reader.items("safety_checker", problems).unwrap_or_default();
    if let Some(entry) = reader.entry("rules") {
        let message = "Gemini CLI reads `[[rule]]`, so this table has no effect there";
        problems.push(Diagnostic::error("unknown-key", entry.key_span, message).help("write `[[rule]]`"));
    }
    reader.finish(problems);
    if rules.is_empty() && checkers.is_empty() {
        let problem = Diagnostic::error("no-rules", head, "this policy has no `[[rule]]`");
        problems.push(problem.help("name a policy file of Gemini CLI, with `[[rule]]` tables"));
    }
    if rules.len() + checkers.len() > MAX_RULES {
        let message = format!("more than {MAX_RULES} rules in one file");
        problems.push(Diagnostic::error("too-many-rules", head, message).help("split the file"));
        return Vec::new();
    }
    let mut found = Vec::new();
    for node in rules {
        found.extend(rule(node, mode, report, problems));
    }
    for node in checkers {
        found.extend(checker(node, mode, report, problems));
    }
    found
}

fn note(
    report: &mut Vec<ImportDifference>,
    kind: DifferenceKind,
    code: &'static str,
    span: Span,
    message: impl Into<String>,
) {
    report.push(ImportDifference {
        kind,
        code,
        span: Some(span),
        message: message.into(),
    });
}

/// The fields that rules and checkers share.
struct Common {
    span: Span,
    tools: Vec<ToolGroup>,
    narrowing: Narrowing,
    some_tools: bool,
    active: bool,
}

fn rule(
    node: &YamlNode,
    mode: ApprovalMode,
    report: &mut Vec<ImportDifference>,
    problems: &mut Problems,
) -> Option<SourceRule> {
    let mut reader = Reader::open(node, "this rule", problems)?;
    let verdict = reader.choice(
        "decision",
        &[
            ("allow", SourceDecision::Allow),
            ("deny", SourceDecision::Deny),
            ("ask_user", SourceDecision::Ask),
        ],
        problems,
    );
    if reader.node("decision").is_none() {
        reader.missing("decision", problems);
    }
    let priority = reader.whole("priority", problems);
    if reader.node("priority").is_none() {
        reader.missing("priority", problems);
    }
    if let Some(priority) = priority.as_ref().filter(|priority| priority.value > MAX_PRIORITY) {
        let message = format!("`priority` is {}, more than {MAX_PRIORITY}", priority.value);
        problems.push(Diagnostic::error("out-of-range", priority.span, message).help("write 0 to 999"));
    }
    let interactive = reader.bool("interactive", problems);
    let subagent = reader.text("subagent", problems);
    let redirection = reader
        .bool("allowRedirection", problems)
        .or_else(|| reader.bool("allow_redirection", problems))
        .is_some_and(|flag| flag.value);
    let message = reader
        .text("denyMessage", problems)
        .or_else(|| reader.text("deny_message", problems));
    reader.node("deny_message");
    reader.node("allow_redirection");
    reader.node("name");
    let dead = reader.entry("safety_checker");
    let common = common(&mut reader, mode, report, problems)?;
    let span = common.span;
    let unknown = unknown_keys(node, reader);
    if let Some(entry) = dead {
        let text = "`safety_checker` inside a rule has no effect in Gemini CLI, and none here";
        note(report, DifferenceKind::Same, "dead-checker", entry.key_span, text);
    }
    let verdict = verdict?.value;
    let priority = priority?.value;
    let mut active = common.active;
    for key in &unknown {
        let text = format!(
            "Gemini CLI ignores the unknown key `{}`, so the rule may be wider than intended{}",
            key.value,
            match verdict {
                SourceDecision::Allow => ": it is left out",
                _ => "; it is kept without it",
            }
        );
        let kind = match verdict {
            SourceDecision::Allow => DifferenceKind::Narrower,
            _ => DifferenceKind::Note,
        };
        note(report, kind, "unknown-key", key.span, text);
    }
    active &= unknown.is_empty() || verdict != SourceDecision::Allow;
    if let Some(flag) = interactive.filter(|flag| flag.value && active) {
        let text = "the rule applies only in interactive sessions: it is left out";
        note(report, DifferenceKind::Same, "interactive-only", flag.span, text);
        active = false;
    }
    if let Some(agent) = subagent.filter(|_| active) {
        let text = format!(
            "the rule is about calls of the sub-agent `{}`, and there are no sub-agents here: it is left out",
            agent.value
        );
        note(report, DifferenceKind::Same, "sub-agent", agent.span, text);
        active = false;
    }
    active.then(|| SourceRule {
        span,
        tools: common.tools,
        narrowing: common.narrowing,
        some_tools: common.some_tools,
        verdict,
        priority,
        redirection,
        message: message.map(|text| text.value),
        checker: None,
    })
}

/// A safety checker. It can only deny or ask, so one that is not known here denies.
fn checker(
    node: &YamlNode,
    mode: ApprovalMode,
    report: &mut Vec<ImportDifference>,
    problems: &mut Problems,
) -> Option<SourceRule> {
    let mut reader = Reader::open(node, "this safety checker", problems)?;
    reader.whole("priority", problems);
    let inner = reader.map("checker", "`checker`", problems);
    let name = inner.and_then(|mut map| map.text("name", problems));
    if name.is_none() {
        reader.missing("checker", problems);
    }
    let common = common(&mut reader, mode, report, problems)?;
    let span = common.span;
    unknown_keys(node, reader);
    let name = name?;
    if !common.active {
        return None;
    }
    if name.value == "allowed-path" {
        let text = "the checker `allowed-path` is not needed: nothing outside the workspace can be reached here";
        note(report, DifferenceKind::Same, "allowed-path", span, text);
        return None;
    }
    let text = format!(
        "the checker `{}` cannot be asked here: the calls that it would check are denied",
        name.value
    );
    note(report, DifferenceKind::Narrower, "checker", span, text);
    Some(SourceRule {
        span,
        tools: common.tools,
        narrowing: common.narrowing,
        some_tools: common.some_tools,
        verdict: SourceDecision::Deny,
        // A checker runs whatever rule allowed the call.
        priority: MAX_PRIORITY + 1,
        redirection: false,
        message: Some(format!("the safety checker `{}` is not available", name.value)),
        checker: Some(name.value),
    })
}

/// Keys that the reader did not take.
fn unknown_keys(node: &YamlNode, reader: Reader<'_>) -> Vec<Spanned<String>> {
    let mut all = Vec::new();
    reader.finish(&mut all);
    let spans: Vec<Span> = all.iter().filter_map(|problem| problem.span).collect();
    let Shape::Map(entries) = &node.shape else {
        return Vec::new();
    };
    let unknown = entries.iter().filter(|entry| spans.contains(&entry.key_span));
    unknown
        .map(|entry| Spanned {
            value: entry.key.clone(),
            span: entry.key_span,
        })
        .collect()
}

fn common(
    reader: &mut Reader<'_>,
    mode: ApprovalMode,
    report: &mut Vec<ImportDifference>,
    problems: &mut Problems,
) -> Option<Common> {
    let span = reader.head();
    let names = reader.one_or_more("toolName", problems);
    let server = reader.text("mcpName", problems);
    let prefixes_at = reader.entry("commandPrefix").map(|entry| entry.key_span);
    let prefixes = reader.one_or_more("commandPrefix", problems);
    let regex = reader.text("commandRegex", problems);
    let args = reader.text("argsPattern", problems);
    let some_tools = match reader.node("toolAnnotations") {
        None => false,
        Some(node) => match &node.shape {
            Shape::Map(entries) => !entries.is_empty(),
            _ => {
                problems.push(wrong_type(node, "`toolAnnotations`", "a table"));
                false
            }
        },
    };
    let modes = modes(reader, problems);
    if names.is_none() && server.is_none() && reader.node("toolName").is_none() {
        let problem = Diagnostic::error("missing-key", span, "`toolName` is missing in this rule");
        problems.push(problem.help("add `toolName = \"…\"`, or `mcpName` for all tools of a server"));
    }
    let shell = names
        .as_ref()
        .is_some_and(|names| matches!(names.as_slice(), [only] if only.value == "run_shell_command"));
    if let Some(at) = prefixes_at
        .or(regex.as_ref().map(|regex| regex.span))
        .filter(|_| !shell)
    {
        let message = "`commandPrefix` and `commandRegex` belong to a rule with `toolName = \"run_shell_command\"`";
        problems.push(Diagnostic::error("misplaced-key", at, message).help("give the rule that tool alone"));
    }
    let given = [prefixes_at.is_some(), regex.is_some(), args.is_some()];
    if given.iter().filter(|given| **given).count() > 1 {
        let message = "`commandPrefix`, `commandRegex` and `argsPattern` are mutually exclusive";
        problems.push(Diagnostic::error("misplaced-key", span, message).help("keep one of them"));
    }
    let narrowing = match (prefixes, regex, args) {
        // As in Gemini CLI, an empty string is no condition.
        (Some(list), ..) => match list.as_slice() {
            [only] if only.value.is_empty() => Narrowing::None,
            _ => Narrowing::Prefixes(list.into_iter().map(|prefix| prefix.value).collect()),
        },
        (None, Some(regex), _) if !regex.value.is_empty() => Narrowing::CommandRegex(regex.value),
        (None, None, Some(args)) if !args.value.is_empty() => Narrowing::ArgsPattern(args.value),
        _ => Narrowing::None,
    };
    let mut active = true;
    if !modes.is_empty() && !modes.contains(&mode) {
        let words: Vec<&str> = modes.iter().map(|mode| mode.as_str()).collect();
        let text = format!(
            "the rule applies only in mode {}, and this is mode {}: it is left out",
            words.join(", "),
            mode.as_str()
        );
        note(report, DifferenceKind::Same, "other-mode", span, text);
        active = false;
    }
    let tools = tools(names, server, active, span, report);
    active &= !tools.is_empty();
    Some(Common {
        span,
        tools,
        narrowing,
        some_tools,
        active,
    })
}

fn modes(reader: &mut Reader<'_>, problems: &mut Problems) -> Vec<ApprovalMode> {
    let mut found = Vec::new();
    for word in reader.texts("modes", problems).unwrap_or_default() {
        match ApprovalMode::WORDS.iter().find(|(known, _)| *known == word.value) {
            Some((_, mode)) => found.push(*mode),
            None => {
                let message = format!("there is no mode `{}`", word.value);
                let mut problem = Diagnostic::error("unknown-mode", word.span, message);
                problem.help = did_you_mean(&word.value, ApprovalMode::WORDS.iter().map(|(known, _)| *known));
                problems.push(problem);
            }
        }
    }
    found
}

/// The tools of a rule. Those that do not exist here are left out and reported.
fn tools(
    names: Option<Vec<Spanned<String>>>,
    server: Option<Spanned<String>>,
    active: bool,
    span: Span,
    report: &mut Vec<ImportDifference>,
) -> Vec<ToolGroup> {
    let names = names.unwrap_or_else(|| {
        vec![Spanned {
            value: "*".to_owned(),
            span,
        }]
    });
    let mut found = Vec::new();
    let mut silent = Vec::new();
    let report = if active { report } else { &mut silent };
    for name in names {
        let group = match &server {
            Some(server) if server.value == "*" => match name.value.as_str() {
                "*" => Some(ToolGroup::AnyServer),
                tool => Some(ToolGroup::AnyServersTool(tool.to_owned())),
            },
            Some(server) => {
                let known = server_name(server, report);
                match name.value.as_str() {
                    "*" => Some(ToolGroup::Server(known)),
                    tool => Some(ToolGroup::ServerTool(known, bare(tool, &server.value))),
                }
            }
            None => alone(&name, report),
        };
        found.extend(group.filter(|group| !found.contains(group)));
    }
    found
}

/// The tool's own name, even if the full name was written beside `mcpName`.
fn bare(tool: &str, server: &str) -> String {
    let whole = format!("mcp_{server}_");
    tool.strip_prefix(&whole).unwrap_or(tool).to_owned()
}

fn server_name(server: &Spanned<String>, report: &mut Vec<ImportDifference>) -> String {
    // Without its `*` it would be the name of another server.
    if server.value.contains('*') {
        return server.value.clone();
    }
    let known = sound_server_name(&server.value);
    if known != server.value {
        let text = format!("the server `{}` is called `{known}` here", server.value);
        note(report, DifferenceKind::Note, "server-name", server.span, text);
    }
    known
}

/// A name without `mcpName`.
fn alone(name: &Spanned<String>, report: &mut Vec<ImportDifference>) -> Option<ToolGroup> {
    let text = name.value.as_str();
    if text == "*" {
        return Some(ToolGroup::Any);
    }
    if let Some(tool) = text.strip_prefix("discovered_tool_") {
        return Some(match tool {
            "*" => ToolGroup::AnyDiscovered,
            tool => ToolGroup::Discovered(tool.to_owned()),
        });
    }
    if let Some(rest) = text.strip_prefix("mcp_") {
        if rest == "*" {
            return Some(ToolGroup::AnyServer);
        }
        if let Some(tool) = rest.strip_prefix("*_") {
            return Some(ToolGroup::AnyServersTool(tool.to_owned()));
        }
        // Gemini CLI splits at the first underscore, too.
        if let Some((server, tool)) = rest.split_once('_').filter(|(server, _)| !server.is_empty()) {
            let server = Spanned {
                value: server.to_owned(),
                span: name.span,
            };
            let known = server_name(&server, report);
            return Some(match tool {
                "*" => ToolGroup::Server(known),
                tool => ToolGroup::ServerTool(known, tool.to_owned()),
            });
        }
    }
    if let Some((server, tool)) = text.split_once("__").filter(|(server, _)| is_server_name(server)) {
        let text = "Gemini CLI no longer reads names as `SERVER__TOOL`; here the name stands for that tool";
        note(report, DifferenceKind::Note, "older-name", name.span, text);
        return Some(ToolGroup::ServerTool(server.to_owned(), tool.to_owned()));
    }
    let known = KnownTools::builtin();
    if let Some(canonical) = known.canonical(text) {
        return Some(ToolGroup::Builtin(canonical.to_owned()));
    }
    match ABSENT.contains(&text) {
        true => {
            let message = format!("there is no tool `{text}` here: it is left out");
            note(report, DifferenceKind::Same, "no-such-tool", name.span, message);
        }
        false => {
            let near = similar_word(text, known.names());
            let message = format!(
                "no tool is called `{text}`, so it is left out{}",
                near.map(|near| format!(" (did you mean `{near}`?)"))
                    .unwrap_or_default()
            );
            note(report, DifferenceKind::Note, "unknown-tool", name.span, message);
        }
    }
    None
}
