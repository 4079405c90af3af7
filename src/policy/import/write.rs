//! Prints a converted policy as YAML.

use super::ApprovalMode;
use super::convert::{Converted, Scope, TargetRule};
use crate::base::quote::yaml_string;
use crate::diag::render::escape;
use crate::diag::{SourceFiles, SourceId};
use std::fmt::Write as _;

/// The text of the policy file.
pub(super) fn text(files: &SourceFiles, file: SourceId, mode: ApprovalMode, converted: &Converted) -> String {
    let mut out = String::new();
    let name = files.name(file).rsplit('/').next().unwrap_or_default();
    let _ = writeln!(
        out,
        "# Converted from {}, a policy of Gemini CLI, for a run without a person in mode {}.",
        escape(name),
        mode.as_str()
    );
    out.push_str("version: 1\n");
    out.push_str(match converted.suspend_by_default {
        true => "default: suspend\n",
        false => "default: deny\n",
    });
    if !converted.rules.is_empty() {
        out.push_str("rules:\n");
    }
    for next in &converted.rules {
        rule(&mut out, next);
    }
    out
}

fn rule(out: &mut String, rule: &TargetRule) {
    let _ = writeln!(out, "  # {}", rule.comment);
    let _ = writeln!(out, "  - id: {}", yaml_string(&rule.id));
    let tools: Vec<String> = rule.tools.iter().map(|tool| yaml_string(tool)).collect();
    match tools.as_slice() {
        [only] => {
            let _ = writeln!(out, "    {}: {only}", rule.effect);
        }
        tools => {
            let _ = writeln!(out, "    {}: [{}]", rule.effect, tools.join(", "));
        }
    }
    match &rule.scope {
        Scope::All => {}
        Scope::Commands(commands) => list(out, "commands", commands),
        Scope::Paths(paths) => list(out, "paths", paths),
        Scope::With(argument, glob) => {
            let _ = writeln!(out, "    with: {{ {}: {} }}", yaml_string(argument), yaml_string(glob));
        }
    }
    if !rule.except.is_empty() {
        list(out, "except", &rule.except);
    }
    if let Some(because) = &rule.because {
        let _ = writeln!(out, "    because: {}", yaml_string(because));
    }
}

/// A list on one line, or one entry a line where that would be long.
fn list(out: &mut String, key: &str, texts: &[String]) {
    let texts: Vec<String> = texts.iter().map(|text| yaml_string(text)).collect();
    let joined = texts.join(", ");
    if joined.len() <= 100 {
        let _ = writeln!(out, "    {key}: [{joined}]");
        return;
    }
    let _ = writeln!(out, "    {key}:");
    for text in texts {
        let _ = writeln!(out, "      - {text}");
    }
}
