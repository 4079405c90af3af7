//! Parses one rule of a policy file.

use super::files::{MAX_BRACES, MAX_BYTES, PathPattern};
use super::hosts::HostPattern;
pub use super::model::Rule;
use super::model::{
    CommandPrefix, Examples, Except, KnownTools, RuleEffect, RuleRuns, RuleWrites, ToolPattern, ValuePattern,
    builtin_touches,
};
use super::shell::parse_prefix;
use super::text_values::{string, strings};
use crate::base::call::{ArgumentTarget, ToolKind, ToolSpec};
use crate::base::glob::has_odd_backslash;
use crate::base::quote::yaml_string;
use crate::diag::diagnostic::{any_error, list};
use crate::diag::reader::{Problems, wrong_type};
use crate::diag::{
    Diagnostic, Reader, Shape, SourceFiles, SourceId, Spanned, YamlNode, did_you_mean, file_line, similar_word,
};
use crate::tools::{args, builtin_spec, field_names};
use globset::GlobBuilder;

/// Where a rule is written and which names it may use.
pub struct Home<'a> {
    pub file: SourceId,
    pub known: &'a KnownTools,
}

const EFFECTS: [&str; 4] = ["allow", "deny", "suspend", "modify"];

/// Reads one entry of `rules`.
pub fn parse(files: &SourceFiles, node: &YamlNode, home: &Home<'_>, problems: &mut Problems) -> Option<Rule> {
    let before = problems.len();
    let mut reader = Reader::open(node, "this rule", problems)?;
    let head = reader.head();
    let tools_of = EFFECTS.map(|effect| (effect, reader.node(effect)));
    let given: Vec<_> = tools_of
        .iter()
        .filter_map(|(effect, node)| node.map(|node| (*effect, node)))
        .collect();
    let texts = |reader: &mut Reader<'_>, key: &'static str, problems: &mut Problems| {
        reader.node(key).map(|node| strings(node, key, problems))
    };
    let paths = texts(&mut reader, "paths", problems).map(|list| path_list(&list, problems));
    let commands = texts(&mut reader, "commands", problems).map(|list| command_list(&list, problems));
    let hosts = texts(&mut reader, "hosts", problems).map(|list| host_list(&list, problems));
    let conditions = reader.node("with");
    let mut with = conditions.map(|node| with(node, problems)).unwrap_or_default();
    let except = reader.node("except");
    let times = reader.whole("times", problems);
    let pipe = reader.node("pipe").and_then(|node| string(node, "pipe", problems));
    let because = reader.text("because", problems);
    let id = reader.node("id").and_then(|node| string(node, "id", problems));
    let args = reader.choice("args", &[("any", true), ("profile", false)], problems);
    let writes = reader.choice(
        "writes",
        &[
            ("nothing", RuleWrites::Nothing),
            ("paths", RuleWrites::Paths),
            ("tree", RuleWrites::Tree),
        ],
        problems,
    );
    let runs = reader.choice(
        "runs",
        &[("nothing", RuleRuns::Nothing), ("anything", RuleRuns::Anything)],
        problems,
    );
    let examples = Examples {
        matching: pairs(texts(&mut reader, "match", problems)),
        not_matching: pairs(texts(&mut reader, "not_match", problems)),
    };
    reader.finish(problems);
    let [(word, tools)] = given.as_slice() else {
        problems.push(effect_problem(head, &given));
        return None;
    };
    let effect = effect(word, head, pipe, problems)?;
    if let Some(times) = &times {
        check_times(times, &effect, problems);
    }
    let of_commands = [
        ("args", args.as_ref().map(|args| args.span)),
        ("writes", writes.as_ref().map(|writes| writes.span)),
        ("runs", runs.as_ref().map(|runs| runs.span)),
    ];
    for (key, span) in of_commands {
        if let Some(span) = span.filter(|_| commands.is_none() || (key != "args" && effect != RuleEffect::Allow)) {
            problems.push(misplaced(key, span));
        }
    }
    let tools: Vec<_> = strings(tools, word, problems)
        .iter()
        .filter_map(|text| tool(text, home.known, problems))
        .collect();
    if let Some(node) = conditions {
        known_arguments(node, &tools, &mut with, problems);
    }
    let name = name(files, head, id, home, problems);
    let mut rule = Rule {
        name,
        span: head,
        effect,
        tools,
        paths,
        commands,
        hosts,
        with,
        except: Except::default(),
        times: times.map(|times| times.value),
        because: because.map(|text| text.value),
        any_args: args.is_some_and(|args| args.value),
        spells_options: writes
            .as_ref()
            .is_some_and(|writes| writes.value != RuleWrites::Nothing)
            || runs.as_ref().is_some_and(|runs| runs.value == RuleRuns::Anything),
        writes: writes.map(|writes| writes.value),
        runs: runs.map(|runs| runs.value),
        examples,
        sound: true,
    };
    rule.except = except.map(|node| except_of(&rule, node, problems)).unwrap_or_default();
    rule.sound = !any_error(problems.get(before..).unwrap_or_default());
    Some(rule)
}

fn misplaced(key: &str, span: crate::diag::Span) -> Diagnostic {
    let message = format!("`{key}` belongs to an `allow` rule with `commands`");
    Diagnostic::error("misplaced-key", span, message).help(format!("add `commands`, or leave `{key}` out"))
}

fn pairs(texts: Option<Vec<Spanned<String>>>) -> Vec<(String, crate::diag::Span)> {
    texts
        .unwrap_or_default()
        .into_iter()
        .map(|text| (text.value, text.span))
        .collect()
}

fn effect_problem(head: crate::diag::Span, given: &[(&str, &YamlNode)]) -> Diagnostic {
    let help = "write one of `allow`, `deny`, `suspend` and `modify` with the tools it is about";
    match given {
        [] => Diagnostic::error(
            "rule-without-effect",
            head,
            "this rule has none of `allow`, `deny`, `suspend` and `modify`",
        )
        .help(help),
        [_, (second, node), ..] => {
            let message = format!(
                "this rule has both `{}` and `{second}`",
                given.first().map_or("", |(first, _)| first)
            );
            Diagnostic::error("rule-with-two-effects", node.span, message).help(help)
        }
        [_] => Diagnostic::error("rule-without-effect", head, "this rule is empty").help(help),
    }
}

fn effect(
    word: &str,
    head: crate::diag::Span,
    pipe: Option<Spanned<String>>,
    problems: &mut Problems,
) -> Option<RuleEffect> {
    if let Some(pipe) = pipe.as_ref().filter(|_| word != "modify") {
        let problem = Diagnostic::error("misplaced-key", pipe.span, "`pipe` belongs to a `modify` rule");
        problems.push(problem.help(format!("leave it out, or write `modify` instead of `{word}`")));
    }
    match word {
        "allow" => Some(RuleEffect::Allow),
        "deny" => Some(RuleEffect::Deny),
        "suspend" => Some(RuleEffect::Suspend),
        _ => match pipe {
            Some(pipe) if !pipe.value.trim().is_empty() => Some(RuleEffect::Modify { pipe: pipe.value }),
            _ => {
                let problem = Diagnostic::error("missing-key", head, "a `modify` rule needs the program that rewrites");
                problems.push(problem.help("add `pipe: PROGRAM`"));
                None
            }
        },
    }
}

fn check_times(times: &Spanned<u64>, effect: &RuleEffect, problems: &mut Problems) {
    if *effect != RuleEffect::Allow {
        let problem = Diagnostic::error("misplaced-key", times.span, "`times` belongs to an `allow` rule");
        problems.push(problem.help("leave it out"));
    } else if times.value == 0 {
        let problem = Diagnostic::error("bad-number", times.span, "`times: 0` allows nothing");
        problems.push(problem.help("write 1 or more, or remove the rule"));
    }
}

fn name(
    files: &SourceFiles,
    head: crate::diag::Span,
    id: Option<Spanned<String>>,
    home: &Home<'_>,
    problems: &mut Problems,
) -> String {
    let Some(id) = id else {
        return file_line(files, head);
    };
    let ours = files.name(home.file).starts_with("builtin:");
    let odd =
        id.value.is_empty() || id.value.len() > 100 || id.value.chars().any(|c| c.is_whitespace() || c.is_control());
    if odd || (id.value.starts_with("builtin:") && !ours) {
        let problem = Diagnostic::error("bad-id", id.span, format!("`{}` cannot be an id", id.value));
        problems.push(problem.help("use up to 100 characters without blanks that do not begin with `builtin:`"));
    }
    id.value
}

/// Parses paths. Warns of those that are written with the separator of Windows: they match nothing.
fn path_list(texts: &[Spanned<String>], problems: &mut Problems) -> Vec<PathPattern> {
    for text in texts.iter().filter(|text| has_odd_backslash(&text.value)) {
        let message = format!("in `{}`, a backslash takes the next character literally", text.value);
        problems.push(Diagnostic::warning("backslash", text.span, message).help("write `/` between directories"));
    }
    let parse = |text: &Spanned<String>| {
        PathPattern::parse(&text.value)
            .map_err(|why| {
                problems.push(
                    Diagnostic::error("bad-path", text.span, format!("`{}`: {why}", text.value))
                        .help("write, for example, `src/**` or `docs/a.md`"),
                )
            })
            .ok()
    };
    texts.iter().filter_map(parse).collect()
}

fn command_list(texts: &[Spanned<String>], problems: &mut Problems) -> Vec<CommandPrefix> {
    let mut list = Vec::new();
    for text in texts {
        match parse_prefix(&text.value) {
            Ok(words) => list.push(CommandPrefix {
                text: text.value.clone(),
                words,
                span: text.span,
            }),
            Err(why) => {
                let problem = Diagnostic::error("bad-command", text.span, format!("`{}`: {why}", text.value));
                problems.push(problem.help(prefix_help(&text.value)));
            }
        }
    }
    list
}

/// What to write for a prefix that cannot be parsed.
fn prefix_help(text: &str) -> String {
    let stem = text
        .trim_end()
        .strip_suffix('*')
        .map(|stem| stem.trim_end_matches([' ', ':']));
    match stem.filter(|stem| !stem.is_empty() && parse_prefix(stem).is_ok()) {
        Some(stem) => format!("write `{stem}`, which covers every command that begins with these words"),
        None => "write the first words of one command, such as `cargo test`".to_owned(),
    }
}

fn host_list(texts: &[Spanned<String>], problems: &mut Problems) -> Vec<HostPattern> {
    texts.iter().filter_map(|text| host(text, problems)).collect()
}

/// One host pattern.
pub fn host(text: &Spanned<String>, problems: &mut Problems) -> Option<HostPattern> {
    HostPattern::parse(&text.value)
        .map_err(|why| {
            let problem = Diagnostic::error("bad-host", text.span, format!("`{}`: {why}", text.value));
            problems.push(problem.help("write, for example, `docs.rs` or `*.rust-lang.org`"));
        })
        .ok()
}

fn with(node: &YamlNode, problems: &mut Problems) -> Vec<(String, ValuePattern)> {
    let Shape::Map(entries) = &node.shape else {
        problems.push(wrong_type(node, "`with`", "a map from arguments to patterns"));
        return Vec::new();
    };
    let mut list = Vec::new();
    for entry in entries {
        let Shape::Scalar(scalar) = &entry.value.shape else {
            problems.push(wrong_type(&entry.value, &format!("`{}`", entry.key), "a pattern"));
            continue;
        };
        if scalar.text.len() > MAX_BYTES || scalar.text.matches('{').count() > MAX_BRACES {
            let message = format!("the pattern is longer than {MAX_BYTES} bytes or has more than {MAX_BRACES} braces");
            problems.push(Diagnostic::error("bad-pattern", entry.value.span, message).help("write a shorter one"));
            continue;
        }
        let glob = GlobBuilder::new(&scalar.text)
            .literal_separator(false)
            .backslash_escape(true)
            .build();
        match glob {
            Ok(glob) => list.push((
                entry.key.clone(),
                ValuePattern {
                    text: scalar.text.clone(),
                    glob: glob.compile_matcher(),
                },
            )),
            Err(error) => {
                let message = format!("`{}`: {}", scalar.text, error.kind());
                problems
                    .push(Diagnostic::error("bad-pattern", entry.value.span, message).help("`*` stands for any text"));
            }
        }
    }
    list
}

/// Gives arguments in `with` their current names, if all tools are built in. Reports those that none of the tools has,
/// and those that have different names in them: such a rule would never match, or not for every tool that it names.
fn known_arguments(
    node: &YamlNode,
    tools: &[ToolPattern],
    with: &mut [(String, ValuePattern)],
    problems: &mut Problems,
) {
    let spec = |tool: &ToolPattern| match tool {
        ToolPattern::Name(name) => builtin_spec(name),
        _ => None,
    };
    let specs: Option<Vec<_>> = tools.iter().map(spec).collect();
    let (Shape::Map(entries), Some(specs)) = (&node.shape, specs.filter(|specs| !specs.is_empty())) else {
        return;
    };
    for entry in entries {
        let name = entry.key.as_str();
        let has = |spec: &ToolSpec| args::names(spec).any(|known| known == name);
        let meant: Vec<(&str, &str)> = specs
            .iter()
            .copied()
            .filter_map(|spec| {
                let current = if has(spec) {
                    Some(name)
                } else {
                    args::newer_name(spec, name)
                };
                current.map(|current| (current, spec.name.as_str()))
            })
            .collect();
        let Some((current, _)) = meant.first() else {
            let of: Vec<&str> = specs.iter().map(|spec| spec.name.as_str()).collect();
            let message = format!("`{name}` is no argument of {}", list(&of));
            let help = did_you_mean(name, specs.iter().copied().flat_map(args::names));
            let problem = Diagnostic::error("unknown-argument", entry.key_span, message);
            problems.push(problem.help(help.unwrap_or_else(|| "leave it out: the tool has no arguments".to_owned())));
            continue;
        };
        if meant.iter().any(|(other, _)| other != current) {
            let of: Vec<String> = meant
                .iter()
                .map(|(current, tool)| format!("`{current}` of `{tool}`"))
                .collect();
            let message = format!(
                "`{name}` is not the same argument in all these tools: {}",
                of.join(", ")
            );
            let problem = Diagnostic::error("unknown-argument", entry.key_span, message);
            problems.push(problem.help("write one rule for the tools of each of these arguments"));
            continue;
        }
        for (older, _) in with.iter_mut().filter(|(older, _)| older == name) {
            (*current).clone_into(older);
        }
    }
}

/// Parses `except`: a list has the type of the rule's own narrowing; a map names the type.
fn except_of(rule: &Rule, node: &YamlNode, problems: &mut Problems) -> Except {
    if let Shape::Map(_) = node.shape {
        let Some(mut reader) = Reader::open(node, "`except`", problems) else {
            return Except::default();
        };
        let mut texts = |key: &'static str| {
            reader
                .node(key)
                .map(|node| strings(node, key, &mut *problems))
                .unwrap_or_default()
        };
        let (paths, commands, hosts) = (texts("paths"), texts("commands"), texts("hosts"));
        reader.finish(problems);
        return Except {
            paths: path_list(&paths, problems),
            commands: command_list(&commands, problems),
            hosts: host_list(&hosts, problems),
        };
    }
    let texts = strings(node, "except", problems);
    let mut except = Except::default();
    match (rule.paths.is_some(), rule.commands.is_some(), rule.hosts.is_some()) {
        (true, false, false) => except.paths = path_list(&texts, problems),
        (false, true, false) => except.commands = command_list(&texts, problems),
        (false, false, true) => except.hosts = host_list(&texts, problems),
        (false, false, false) if only(rule, ArgumentTarget::Commands) => {
            except.commands = command_list(&texts, problems)
        }
        (false, false, false) if only(rule, ArgumentTarget::Urls) => except.hosts = host_list(&texts, problems),
        (false, false, false) => except.paths = path_list(&texts, problems),
        _ => {
            let problem = Diagnostic::error(
                "ambiguous-except",
                node.span.point(),
                "the rule is narrowed in more than one way",
            );
            problems
                .push(problem.help("name the type: `except: { paths: […] }`, `{ commands: […] }` or `{ hosts: […] }`"));
        }
    }
    except
}

/// Whether the rule names one built-in tool, and its arguments name this.
fn only(rule: &Rule, touches: ArgumentTarget) -> bool {
    matches!(rule.tools.as_slice(), [ToolPattern::Name(name)] if builtin_touches(name) == Some(touches))
}

/// Parses one entry of a rule's tools.
fn tool(text: &Spanned<String>, known: &KnownTools, problems: &mut Problems) -> Option<ToolPattern> {
    let word = text.value.as_str();
    if word == "*" {
        return Some(ToolPattern::Any);
    }
    if let Some(kind) = word.strip_prefix("kind:") {
        const KINDS: [ToolKind; 7] = [
            ToolKind::Read,
            ToolKind::Search,
            ToolKind::Edit,
            ToolKind::Execute,
            ToolKind::Fetch,
            ToolKind::Plan,
            ToolKind::Other,
        ];
        let found = KINDS.into_iter().find(|known| known.as_str() == kind);
        if found.is_none() {
            let problem = Diagnostic::error("unknown-kind", text.span, format!("there is no kind `{kind}`"));
            problems.push(problem.help(did_you_mean(kind, KINDS.iter().map(|kind| kind.as_str())).unwrap_or_default()));
        }
        return found.map(ToolPattern::Kind);
    }
    if let Some(origin) = word.strip_prefix("origin:") {
        const ORIGINS: [&str; 3] = ["builtin", "discovered", "mcp"];
        let found = ORIGINS.into_iter().find(|known| *known == origin);
        if found.is_none() {
            let problem = Diagnostic::error("unknown-origin", text.span, format!("there is no origin `{origin}`"));
            problems.push(problem.help(did_you_mean(origin, ORIGINS).unwrap_or_default()));
        }
        return found.map(ToolPattern::Origin);
    }
    if let Some(ours) = field_names::of_server(word) {
        let message = format!("`{word}` is a tool of a server that is itself called `mcp`");
        let problem = Diagnostic::warning("later-tool", text.span, message);
        problems.push(problem.help(format!("tools of servers are `SERVER__TOOL` here: write `{ours}`")));
    }
    if word.contains('*') && is_later(word) {
        return Some(ToolPattern::Glob(word.to_owned()));
    }
    tool_name(text, known, problems).map(ToolPattern::Name)
}

/// Whether a name is one that becomes known only after startup.
pub fn is_later(name: &str) -> bool {
    name.contains("__") || name.starts_with("discovered_tool_")
}

/// What to write for a tool with its arguments in brackets, such as `Bash(git:*)`.
fn with_arguments(name: &str, known: &KnownTools) -> Option<String> {
    let (tool, rest) = name.split_once('(')?;
    let ours = known.canonical(tool).or_else(|| field_names::meant(tool))?;
    let inner = rest.trim_end_matches(')').trim();
    let inner = inner.strip_prefix("domain:").unwrap_or(inner);
    let inner = inner
        .strip_suffix(":*")
        .or_else(|| inner.strip_suffix(" *"))
        .unwrap_or(inner);
    let key = match builtin_touches(ours)? {
        ArgumentTarget::Commands => "commands",
        ArgumentTarget::Urls => "hosts",
        ArgumentTarget::Directory | ArgumentTarget::File | ArgumentTarget::Patterns | ArgumentTarget::WrittenFile => {
            "paths"
        }
        ArgumentTarget::Nothing => return Some(format!("write `{ours}`")),
    };
    let inner = match inner {
        "" => "…".to_owned(),
        inner => yaml_string(inner),
    };
    Some(format!("write `{ours}`, and on a line of its own `{key}: [{inner}]`"))
}

/// The canonical name of a tool; reports a problem if there is none.
pub fn tool_name(text: &Spanned<String>, known: &KnownTools, problems: &mut Problems) -> Option<String> {
    let name = text.value.as_str();
    if let Some(canonical) = known.canonical(name) {
        return Some(canonical.to_owned());
    }
    if is_later(name) && !name.contains('*') && !name.chars().any(char::is_whitespace) {
        return Some(name.to_owned());
    }
    if let Some(help) = with_arguments(name, known) {
        let problem = Diagnostic::error("unknown-tool", text.span, format!("there is no tool `{name}`"));
        problems.push(problem.help(help));
        return None;
    }
    if let Some(ours) = field_names::meant(name) {
        let problem = Diagnostic::error("unknown-tool", text.span, format!("there is no tool `{name}`"));
        problems.push(problem.help(format!(
            "write `{ours}`, or `discovered_tool_{name}` for a discovered tool of this name"
        )));
        return None;
    }
    let mut problem = Diagnostic::error("unknown-tool", text.span, format!("there is no tool `{name}`"));
    problem.help = did_you_mean(name, known.names());
    let is_similar = similar_word(name, known.names()).is_some();
    let is_near = |known: &str| known.starts_with(name) || name.starts_with(known);
    let is_typo = is_similar || known.names().any(is_near);
    let is_plain = name
        .chars()
        .all(|letter| letter.is_ascii_alphanumeric() || "_-.".contains(letter));
    if is_plain && !is_typo && !name.is_empty() {
        // Discovered tools are named by their authors; whether one of this name exists is known only after discovery.
        let message = format!("no built-in tool is named `{name}`; it is assumed to be a discovered tool");
        let problem = Diagnostic::warning("later-tool", text.span, message);
        problems.push(problem.help(format!("write `discovered_tool_{name}` to make that explicit")));
        return Some(name.to_owned());
    }
    if let Some(help) = problem.help.as_mut().filter(|_| !is_similar) {
        help.push_str("; MCP tools are `SERVER__TOOL`, discovered ones `discovered_tool_NAME`");
    }
    problems.push(problem);
    None
}
