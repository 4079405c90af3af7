//! From the text of one policy file to its values, all problems at once. Tries no example and decides nothing.

use super::hosts::HostPattern;
use super::model::{DeliveryLimits, KnownTools, Policy, Sandbox, WishedLevel};
use super::presets;
use super::rule::{self, Home};
use crate::base::budget::Budget;
use crate::base::event::PolicyText;
use crate::base::ruling::Decision;
use crate::base::secret::is_model_key;
use crate::diag::reader::{Problems, wrong_type};
use crate::diag::{
    Diagnostic, FileId, Files, Node, Reader, Scalar, Shape, Spanned, did_you_mean, file_line, parse as parse_yaml,
};
use serde_json::Value;
use sha2::{Digest, Sha256};

/// Reads one file; `None` when nothing sensible is left of it. Problems are added, in no order.
pub fn policy(files: &mut Files, file: FileId, known: &KnownTools, problems: &mut Problems) -> Option<Policy> {
    let root = match parse_yaml(files, file) {
        Ok(root) => root,
        Err(mut found) => {
            problems.append(&mut found);
            return None;
        }
    };
    refuse_empty(&root, problems);
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
    let nodes = reader.items("rules", problems).unwrap_or_default();
    reader.finish(problems);
    let home = Home { file, known };
    let mut rules: Vec<_> = nodes
        .iter()
        .filter_map(|node| rule::parse(files, node, &home, problems))
        .collect();
    tell_apart(files, &mut rules);
    let networked = sandbox.network.as_ref().is_some_and(|hosts| !hosts.is_empty());
    rules.iter_mut().for_each(|rule| rule.spells_options |= networked);
    let toolchains = sandbox.toolchains.clone().unwrap_or_default();
    for name in extends {
        extend(files, &mut rules, &name, &toolchains, known, problems);
    }
    let text = files.text(file).to_owned();
    Some(Policy {
        source: PolicyText {
            name: files.name(file).to_owned(),
            digest: digest(&text),
            text,
            narrows: false,
        },
        default: default.map_or(Decision::Deny, |default| default.value),
        rules,
        sandbox,
        limits: limits.unwrap_or_default(),
        delivery: delivery.unwrap_or_default(),
        env_pass: env,
        narrows: false,
    })
}

fn digest(text: &str) -> String {
    Sha256::digest(text.as_bytes())
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect()
}

/// Rules without an `id` that share a line with an earlier one are named `FILE:LINE:COLUMN`.
fn tell_apart(files: &Files, rules: &mut [rule::Rule]) {
    let mut last = String::new();
    for rule in rules {
        let line = file_line(files, rule.span);
        if rule.name == line && line == last {
            rule.name = files.place(rule.span).to_string();
        }
        last = line;
    }
}

/// Adds the rules of a preset, those that are not there yet.
fn extend(
    files: &mut Files,
    rules: &mut Vec<rule::Rule>,
    name: &Spanned<String>,
    toolchains: &[String],
    known: &KnownTools,
    problems: &mut Problems,
) {
    let Some(text) = presets::text(&name.value, toolchains) else {
        let problem = Diagnostic::error(
            "unknown-preset",
            name.span,
            format!("there is no preset `{}`", name.value),
        );
        let help = did_you_mean(&name.value, presets::NAMES.iter().copied()).unwrap_or_default();
        problems.push(problem.help(help));
        return;
    };
    let file = files.add(name.value.clone(), text);
    let Ok(root) = parse_yaml(files, file) else { return };
    let nodes = match root.get("rules").map(|node| &node.shape) {
        Some(Shape::List(nodes)) => nodes.as_slice(),
        _ => &[],
    };
    let home = Home { file, known };
    for rule in nodes
        .iter()
        .filter_map(|node| rule::parse(files, node, &home, problems))
    {
        if !rules.iter().any(|other| other.name == rule.name) {
            rules.push(rule);
        }
    }
}

/// A key without a value would silently widen a rule: it is an error anywhere.
fn refuse_empty(node: &Node, problems: &mut Problems) {
    match &node.shape {
        Shape::Scalar(_) => {}
        Shape::List(items) => items.iter().for_each(|item| refuse_empty(item, problems)),
        Shape::Map(entries) => {
            for entry in entries {
                if entry.value.is_null() {
                    let problem =
                        Diagnostic::error("empty-value", entry.key_span, format!("`{}` has no value", entry.key));
                    problems.push(problem.help("write a value, or leave the key out"));
                }
                refuse_empty(&entry.value, problems);
            }
        }
    }
}

/// One text or a list of texts. Numbers and booleans must be quoted to be text.
pub fn strings(node: &Node, key: &str, problems: &mut Problems) -> Vec<Spanned<String>> {
    let items = match &node.shape {
        Shape::List(items) => items.as_slice(),
        _ => std::slice::from_ref(node),
    };
    if items.is_empty() {
        let problem = Diagnostic::error("empty-list", node.span, format!("`{key}` lists nothing"));
        problems.push(problem.help("write at least one entry, or leave the key out"));
    }
    items.iter().filter_map(|item| string(item, key, problems)).collect()
}

/// Text, not a number or a boolean without quotes.
pub fn string(node: &Node, key: &str, problems: &mut Problems) -> Option<Spanned<String>> {
    match &node.shape {
        Shape::Scalar(scalar) if is_text(scalar) => Some(Spanned {
            value: scalar.text.clone(),
            span: node.span,
        }),
        Shape::Scalar(scalar) if !scalar.is_null() => {
            let problem = wrong_type(node, &format!("`{key}`"), "a text");
            problems.push(problem.help(format!("put it in quotes: \"{}\"", scalar.text)));
            None
        }
        _ => {
            problems.push(wrong_type(node, &format!("an entry of `{key}`"), "a text"));
            None
        }
    }
}

fn is_text(scalar: &Scalar) -> bool {
    matches!(scalar.value(), Value::String(_))
}

fn sandbox(mut block: Reader<'_>, problems: &mut Problems) -> Sandbox {
    let words = [
        ("auto", WishedLevel::Auto),
        ("full", WishedLevel::Full),
        ("landlock", WishedLevel::Landlock),
        ("none", WishedLevel::None),
    ];
    let level = block.choice("level", &words, problems).map(|level| level.value);
    let network = block.node("network").map(|node| network(node, problems));
    let toolchains = block.node("toolchains").map(|node| match &node.shape {
        Shape::List(items) if items.is_empty() => Vec::new(),
        _ => toolchains(strings(node, "toolchains", problems), problems),
    });
    block.finish(problems);
    Sandbox {
        level,
        network,
        toolchains,
    }
}

fn network(node: &Node, problems: &mut Problems) -> Vec<HostPattern> {
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
        if !presets::TOOLCHAINS.contains(&name.value.as_str()) {
            let problem = Diagnostic::error(
                "unknown-toolchain",
                name.span,
                format!("there is no toolchain `{}`", name.value),
            );
            let help = did_you_mean(&name.value, presets::TOOLCHAINS.iter().copied()).unwrap_or_default();
            problems.push(problem.help(help));
        }
    }
    names.into_iter().map(|name| name.value).collect()
}

fn limits(mut block: Reader<'_>, known: &KnownTools, problems: &mut Problems) -> Budget {
    let mut budget = Budget {
        turns: block.whole("turns", problems).map(|turns| turns.value),
        tokens: block.whole("tokens", problems).map(|tokens| tokens.value),
        cost_micros: block.amount("cost", problems).map(|cost| micros(cost.value)),
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

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "the amount is finite and not negative; a cast saturates"
)]
fn micros(dollars: f64) -> u64 {
    (dollars * 1_000_000.0).round() as u64
}

fn env(mut block: Reader<'_>, problems: &mut Problems) -> Option<Vec<String>> {
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
            let message = format!("`{}` is no name of a variable", name.value);
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
            let help = "leave it out; a command that asks a model needs a key of its own, in a variable of its own";
            problems.push(Diagnostic::error("model-key", name.span, message).help(help));
        }
    }
    Some(names.into_iter().map(|name| name.value).collect())
}
