//! Parses the text of one policy file and of the files that it extends; reports all problems at once.

use super::extends::{Body, Extended, MAX_DEPTH, depends_on_tree, record, resolve};
use super::hosts::HostPattern;
use super::model::{DeliveryLimits, KnownTools, Policy, RequestedLevel, SandboxSection};
use super::presets;
use super::profiles::OwnProfiles;
use super::rule::{self, Home};
use super::text_values::strings;
use crate::base::budget::{Budget, micros};
use crate::base::event::PolicyPart;
use crate::base::ruling::Decision;
use crate::base::secret::is_model_key;
use crate::base::toolchain;
use crate::diag::diagnostic::{any_error, list};
use crate::diag::reader::{Problems, refuse_empty, wrong_type};
use crate::diag::{
    Diagnostic, FileKind, MapEntry, Reader, Shape, SourceFiles, SourceId, Spanned, YamlNode, file_line,
    parse as parse_yaml,
};
use std::sync::Arc;

/// Parses one file and all that it extends; `None` if no usable part is left. Problems are appended in no particular
/// order.
pub fn policy(
    files: &mut SourceFiles,
    file: SourceId,
    known: &KnownTools,
    extended: &Extended,
    problems: &mut Problems,
) -> Option<Policy> {
    let name = files.name(file).to_owned();
    let mut walk = Walk {
        known,
        extended,
        chain: vec![name.clone()],
        seen: Vec::new(),
        parts: Vec::new(),
        tree: depends_on_tree(&name),
    };
    let body = body(files, file, None, &mut walk, problems)?;
    let tree = if walk.tree { extended.tree.clone() } else { Vec::new() };
    Some(Policy {
        source: record(&name, files.text(file), walk.parts, tree),
        default: body.default.unwrap_or(Decision::Deny),
        rules: body.rules,
        sandbox: body.sandbox,
        limits: body.limits.unwrap_or_default(),
        env_pass: body.env_pass,
        env_at: body.env_at,
        profiles: body.profiles,
        delivery: body.delivery,
        narrows: false,
    })
}

/// The state of following `extends`.
struct Walk<'a> {
    known: &'a KnownTools,
    extended: &'a Extended,
    /// The names from the policy itself to the file that is being parsed.
    chain: Vec<String>,
    /// Files that were parsed already, with the toolchains that were named for them.
    seen: Vec<(String, Option<Vec<String>>)>,
    parts: Vec<PolicyPart>,
    /// Whether a preset depends on the tree.
    tree: bool,
}

/// Parses one file and what it extends. `named`: the toolchains that a file above it names.
fn body(
    files: &mut SourceFiles,
    file: SourceId,
    named: Option<&[String]>,
    walk: &mut Walk<'_>,
    problems: &mut Problems,
) -> Option<Body> {
    if let Some(problem) = FileKind::unlike(files, file, FileKind::Policy) {
        problems.push(problem);
        return None;
    }
    let root = match parse_yaml(files, file) {
        Ok(root) => root,
        Err(mut found) => {
            problems.append(&mut found);
            return None;
        }
    };
    let known = walk.known;
    if root.is_null() {
        problems.push(
            Diagnostic::error("missing-key", files.whole(file).point(), "the policy is empty")
                .help("begin with `version: 1`, and list what is allowed under `rules` or `extends`"),
        );
        return None;
    }
    refuse_empty(&root, &[], problems);
    let mut reader = Reader::open(&root, "the policy", problems)?;
    reader.version(problems);
    let default = reader.choice(
        "default",
        &[("deny", Decision::Deny), ("suspend", Decision::Suspend)],
        problems,
    );
    let sandbox = reader
        .map("sandbox", "`sandbox`", problems)
        .map(|block| sandbox(block, problems));
    let sandbox = sandbox.unwrap_or_default();
    let limits = reader
        .map("limits", "`limits`", problems)
        .map(|block| limits(block, known, problems));
    let delivery = reader
        .map("deliver", "`deliver`", problems)
        .map(|block| delivery(block, problems));
    let env = reader
        .map("env", "`env`", problems)
        .and_then(|block| env(block, problems));
    let extends = reader
        .node("extends")
        .map(|node| strings(node, "extends", problems))
        .unwrap_or_default();
    let entries = reader.entries("profiles", problems).unwrap_or_default();
    let nodes = reader.items("rules", problems).unwrap_or_default();
    reader.finish(problems);
    let home = Home { file, known };
    let mut rules: Vec<_> = nodes
        .iter()
        .filter_map(|node| rule::parse(files, node, &home, problems))
        .collect();
    let before = problems.len();
    let profiles = profiles(files, entries, problems);
    if any_error(problems.get(before..).unwrap_or_default()) {
        // What the rules mean depends on the profiles.
        rules.iter_mut().for_each(|rule| rule.sound = false);
    }
    tell_apart(files, &mut rules);
    let mut body = Body {
        default: default.map(|default| default.value),
        rules,
        sandbox,
        limits,
        delivery: delivery.unwrap_or_default(),
        env_at: env
            .iter()
            .flatten()
            .map(|name| (name.value.clone(), name.span))
            .collect(),
        env_pass: env.map(|names| names.into_iter().map(|name| name.value).collect()),
        profiles,
    };
    let own = body.sandbox.toolchains.clone();
    let named = own.as_deref().or(named);
    let mut inherited = Vec::new();
    for name in extends {
        inherited.extend(extend(files, &name, named, walk, problems));
    }
    body.inherit(inherited);
    let networked = body.sandbox.network.as_ref().is_some_and(|hosts| !hosts.is_empty());
    body.rules.iter_mut().for_each(|rule| rule.spells_options |= networked);
    Some(body)
}

/// Resolves one entry of `extends`; `None` if it was parsed already or is invalid.
fn extend(
    files: &mut SourceFiles,
    written: &Spanned<String>,
    named: Option<&[String]>,
    walk: &mut Walk<'_>,
    problems: &mut Problems,
) -> Option<Body> {
    let mut wrong = |code: &'static str, message: String, help: &str| {
        problems.push(Diagnostic::error(code, written.span, message).help(help));
    };
    let of = walk.chain.last().cloned().unwrap_or_default();
    let Some(name) = resolve(&of, &written.value) else {
        let message = format!(
            "`{}` leads out of the commit that this policy is read from",
            written.value
        );
        wrong(
            "outside-path",
            message,
            "name a file of the same repository, relative to this one",
        );
        return None;
    };
    if walk.chain.contains(&name) {
        let way: Vec<&str> = walk.chain.iter().map(String::as_str).chain([name.as_str()]).collect();
        wrong(
            "extends-itself",
            format!("this policy extends itself: {}", way.join(", then ")),
            "leave one of these entries out",
        );
        return None;
    }
    if walk.chain.len() > MAX_DEPTH {
        wrong(
            "extends-too-deep",
            format!("the chain of `extends` is longer than {MAX_DEPTH} files"),
            "extend the files from one policy, side by side",
        );
        return None;
    }
    let key = (name.clone(), named.map(<[String]>::to_vec));
    if walk.seen.contains(&key) {
        return None;
    }
    let again = walk.seen.iter().any(|(seen, _)| *seen == name);
    walk.seen.push(key);
    let text = if name.starts_with("builtin:") {
        walk.tree |= depends_on_tree(&name) && named.is_none();
        let Some(text) = presets::text(&name, named, &walk.extended.tree) else {
            wrong(
                "unknown-preset",
                format!("there is no preset `{name}`"),
                &presets::did_you_mean(&name),
            );
            return None;
        };
        text
    } else {
        // A file's text is the same whichever toolchains are named above it.
        if again {
            return None;
        }
        match walk.extended.texts.get(&name) {
            Some(Ok(text)) => {
                walk.parts.push(PolicyPart {
                    name: name.clone(),
                    text: text.clone(),
                });
                text.clone()
            }
            other => {
                let why = match other {
                    Some(Err(why)) => why.as_str(),
                    _ => "it was not read",
                };
                let help = match written.value.contains(['/', '.']) {
                    true => "files are named relative to this one".to_owned(),
                    false => presets::did_you_mean(&format!("builtin:{}", written.value)),
                };
                wrong("no-file", format!("`{name}` cannot be extended: {why}"), &help);
                return None;
            }
        }
    };
    let file = files.add(name.clone(), text);
    walk.chain.push(name);
    let body = body(files, file, named, walk, problems);
    walk.chain.pop();
    body
}

/// Rules without an `id` that share a line with an earlier one are named `FILE:LINE:COLUMN`.
fn tell_apart(files: &SourceFiles, rules: &mut [rule::Rule]) {
    let mut last = String::new();
    for rule in rules {
        let line = file_line(files, rule.span);
        if rule.name == line && line == last {
            rule.name = files.place(rule.span).to_string();
        }
        last = line;
    }
}

fn sandbox(mut block: Reader<'_>, problems: &mut Problems) -> SandboxSection {
    let words = [
        ("auto", RequestedLevel::Auto),
        ("full", RequestedLevel::Full),
        ("landlock", RequestedLevel::Landlock),
        ("none", RequestedLevel::None),
    ];
    let level = block.choice("level", &words, problems);
    let network = block.node("network").map(|node| (network(node, problems), node.span));
    let toolchains = block.node("toolchains").map(|node| match &node.shape {
        Shape::List(items) if items.is_empty() => Vec::new(),
        _ => toolchains(strings(node, "toolchains", problems), problems),
    });
    let caches = block.choice("caches", &[("keep", true), ("discard", false)], problems);
    block.finish(problems);
    SandboxSection {
        level_at: level.as_ref().map(|level| level.span),
        level: level.map(|level| level.value),
        network_at: network.as_ref().map(|(_, span)| *span),
        network: network.map(|(hosts, _)| hosts),
        toolchains,
        keep_caches: caches.map(|caches| caches.value),
    }
}

fn network(node: &YamlNode, problems: &mut Problems) -> Vec<HostPattern> {
    match &node.shape {
        Shape::Scalar(scalar) if scalar.text == "none" => return Vec::new(),
        Shape::List(items) if items.is_empty() => return Vec::new(),
        Shape::List(_) => {}
        _ => {
            problems.push(wrong_type(node, "`network`", "`none` or a list of hosts"));
            return Vec::new();
        }
    }
    let texts = strings(node, "network", problems);
    texts.iter().filter_map(|text| rule::host(text, problems)).collect()
}

fn toolchains(names: Vec<Spanned<String>>, problems: &mut Problems) -> Vec<String> {
    for name in &names {
        if !toolchain::NAMES.contains(&name.value.as_str()) {
            let problem = Diagnostic::error(
                "unknown-toolchain",
                name.span,
                format!("there is no toolchain `{}`", name.value),
            );
            problems.push(problem.help(format!("write one of {}", list(&toolchain::NAMES))));
        }
    }
    names.into_iter().map(|name| name.value).collect()
}

fn limits(mut block: Reader<'_>, known: &KnownTools, problems: &mut Problems) -> Budget {
    let mut budget = Budget {
        turns: block.limit("turns", problems).map(|turns| turns.value),
        tokens: block.limit("tokens", problems).map(|tokens| tokens.value),
        cost_micros: block.amount_limit("cost", problems).map(|cost| micros(cost.value)),
        wall_ms: block.duration("wall", problems).map(|wall| wall.value),
        ..Budget::default()
    };
    for entry in block.entries("calls", problems).unwrap_or_default() {
        let key = Spanned {
            value: entry.key.clone(),
            span: entry.key_span,
        };
        let tool = rule::tool_name(&key, known, problems);
        let limit = crate::diag::reader::whole(&entry.value, &entry.key, problems);
        if let (Some(tool), Some(limit)) = (tool, limit) {
            let least = budget
                .calls
                .get(&tool)
                .map_or(limit.value, |other| limit.value.min(*other));
            budget.calls.insert(tool, least);
        }
    }
    block.finish(problems);
    budget
}

fn delivery(mut block: Reader<'_>, problems: &mut Problems) -> DeliveryLimits {
    let limits = DeliveryLimits {
        max_files: block.whole("max_files", problems).map(|files| files.value),
        max_lines: block.whole("max_lines", problems).map(|lines| lines.value),
    };
    block.finish(problems);
    limits
}

fn env(mut block: Reader<'_>, problems: &mut Problems) -> Option<Vec<Spanned<String>>> {
    let node = block.node("pass");
    block.finish(problems);
    let names = match node.map(|node| &node.shape) {
        Some(Shape::List(items)) if items.is_empty() => Vec::new(),
        _ => strings(node?, "pass", problems),
    };
    for name in &names {
        let letters = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
        if name.value.is_empty()
            || !name.value.bytes().all(letters)
            || name.value.as_bytes().first().is_some_and(u8::is_ascii_digit)
        {
            let message = format!("`{}` is not the name of a variable", name.value);
            problems.push(
                Diagnostic::error("bad-variable", name.span, message)
                    .help("write each name out; there are no patterns"),
            );
        }
        if is_model_key(&name.value) {
            let message = format!(
                "`{}` is the key of a model service, and no command may have it",
                name.value
            );
            let help = "leave it out; a command that uses a model needs its own key in another variable";
            problems.push(Diagnostic::error("model-key", name.span, message).help(help));
        }
    }
    Some(names)
}

/// `profiles`: one or more program names and the profile that they share.
fn profiles(files: &SourceFiles, entries: &[MapEntry], problems: &mut Problems) -> Option<Arc<OwnProfiles>> {
    let mut own = OwnProfiles::new();
    for entry in entries {
        let names: Vec<&str> = entry.key.split('|').map(str::trim).collect();
        let plain = |name: &&str| !name.is_empty() && !name.contains(|next: char| next == '/' || next.is_whitespace());
        if let Some(wrong) = names.iter().find(|name| !plain(name)) {
            let message = format!("`{wrong}` is not the name of a program");
            let help = "write the program's bare name; separate several that share the profile with ` | `";
            problems.push(Diagnostic::error("bad-program", entry.key_span, message).help(help));
            continue;
        }
        let not_seen = names.iter().find(|name| super::shell::is_wrapper(name));
        if let Some(name) = not_seen {
            let message =
                format!("`{name}` runs other commands, which are judged; it cannot have a profile of its own");
            problems.push(Diagnostic::error("bad-program", entry.key_span, message).help("leave the profile out"));
            continue;
        }
        let Some(profile) = super::profiles::read(files, &entry.value, problems) else {
            continue;
        };
        if !profile.names.is_empty() {
            let message = "`programs` is only for the built-in tables: here the key names the programs".to_owned();
            problems.push(Diagnostic::error("misplaced-key", entry.key_span, message).help("leave `programs` out"));
        }
        for name in names {
            if own.insert(name.to_owned(), profile.clone()).is_some() {
                let message = format!("`{name}` has two profiles");
                problems.push(Diagnostic::error("duplicate-profile", entry.key_span, message).help("leave one out"));
            }
        }
    }
    (!own.is_empty()).then(|| Arc::new(own))
}
