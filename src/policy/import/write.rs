//! Prints a converted policy as YAML.

use super::ApprovalMode;
use super::convert::{Converted, Scope, TargetRule};
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
    let _ = writeln!(out, "  - id: {}", quoted(&rule.id));
    let tools: Vec<String> = rule.tools.iter().map(|tool| quoted(tool)).collect();
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
            let _ = writeln!(out, "    with: {{ {}: {} }}", quoted(argument), quoted(glob));
        }
    }
    if !rule.except.is_empty() {
        list(out, "except", &rule.except);
    }
    if let Some(because) = &rule.because {
        let _ = writeln!(out, "    because: {}", quoted(because));
    }
}

/// A list on one line, or one entry a line where that would be long.
fn list(out: &mut String, key: &str, texts: &[String]) {
    let texts: Vec<String> = texts.iter().map(|text| quoted(text)).collect();
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

/// A YAML double-quoted string, or the plain word where that is safe.
fn quoted(text: &str) -> String {
    let word = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
    let begins = text.as_bytes().first().is_some_and(u8::is_ascii_alphabetic);
    if begins && text.len() > 5 && text.bytes().all(word) {
        return text.to_owned();
    }
    let mut out = String::from("\"");
    for character in text.chars() {
        match character {
            '"' | '\\' => out.extend(['\\', character]),
            c if c.is_control() || matches!(c, '\u{2028}' | '\u{2029}' | '\u{feff}') => {
                let _ = write!(out, "\\u{:04x}", u32::from(c));
            }
            c => out.push(c),
        }
    }
    out.push('"');
    out
}
