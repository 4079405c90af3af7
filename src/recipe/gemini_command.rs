//! Converts a custom command of Gemini CLI (TOML with `prompt` and `description`) to a recipe.
//!
//! `{{args}}` becomes the parameter `args`, quoted for the shell inside `!{…}` as Gemini CLI does, where no arguments are
//! no word; each `!{command}` becomes a step before the prompt, which gets its output in that position; `@{path}` becomes
//! a file reference. Everything else that looks like a template is plain text.

use super::model::{Parameter, ParameterType, Recipe, Step, StepSource};
use crate::diag::{Diagnostic, SourceFiles, SourceId, Span, Spanned};
use serde::Deserialize;
use serde_json::Value;

/// The file name's extension.
pub(super) const EXTENSION: &str = ".toml";
/// The placeholder for the arguments.
const ARGS: &str = "{{args}}";

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct CommandFile {
    prompt: toml::Spanned<String>,
    #[serde(default)]
    description: String,
}

/// The recipe for a file of `files`, named after the file.
///
/// # Errors
/// Every problem of the file.
pub(super) fn read(files: &SourceFiles, file: SourceId) -> Result<Recipe, Vec<Diagnostic>> {
    let head = Span { file, start: 0, end: 0 };
    let parsed: CommandFile = toml::from_str(files.text(file)).map_err(|error| {
        let range = error.span().unwrap_or(0..0);
        let span = Span {
            file,
            start: range.start,
            end: range.end,
        };
        let problem = Diagnostic::error("gemini-command", span, error.message().to_owned());
        vec![problem.help("a custom command of Gemini CLI has `prompt` and `description`")]
    })?;
    let range = parsed.prompt.span();
    let span = Span {
        file,
        start: range.start,
        end: range.end,
    };
    let at = |text: String| Spanned { value: text, span };
    let written = parsed.prompt.into_inner();
    let pieces = pieces(&written).map_err(|why| vec![Diagnostic::error("gemini-command", span, why)])?;
    let mut prompt = String::new();
    let mut steps: Vec<Step> = Vec::new();
    for piece in pieces {
        match piece {
            Piece::Text(text) => prompt.push_str(&literal(&text)),
            Piece::Args => prompt.push_str("{{ args }}"),
            Piece::File(path) => prompt.push_str(&format!("@{path}")),
            Piece::Shell(command) => {
                let id = format!("shell_{}", steps.len() + 1);
                prompt.push_str(&format!("{{{{ steps.{id}.output }}}}"));
                steps.push(Step::plain(
                    at(id),
                    StepSource::Run {
                        command: at(shell(&command)),
                        timeout_ms: None,
                        // Gemini CLI shows the output of a failing command, too.
                        allow_failure: true,
                    },
                ));
            }
        }
    }
    if !written.contains(ARGS) {
        prompt.push_str("{% if args %}{{ \"\\n\\n\" }}{{ args }}{% endif %}");
    }
    steps.push(Step::plain(at("task".to_owned()), StepSource::Prompt(at(prompt))));
    let args = Parameter {
        name: at("args".to_owned()),
        kind: ParameterType::String,
        description: "the arguments of the command".to_owned(),
        default: Some(Value::String(String::new())),
        choices: Vec::new(),
    };
    let name = Spanned {
        value: name(files.name(file)),
        span: head,
    };
    Ok(Recipe {
        description: parsed.description,
        parameters: vec![args],
        ..Recipe::foreign(name, steps, head)
    })
}

/// The file name without its extension, with only the characters of a recipe name.
fn name(file: &str) -> String {
    let stem = file.rsplit('/').next().unwrap_or(file);
    let stem = stem.strip_suffix(EXTENSION).unwrap_or(stem);
    let plain = |c: char| {
        if c.is_alphanumeric() || matches!(c, '-' | '_' | '.') {
            c
        } else {
            '-'
        }
    };
    let name: String = stem.chars().map(plain).take(60).collect();
    match name.trim_start_matches(['-', '_', '.']) {
        "" => "command".to_owned(),
        name => name.to_owned(),
    }
}

/// A part of a prompt.
#[derive(Debug, PartialEq, Eq)]
enum Piece {
    Text(String),
    Args,
    Shell(String),
    File(String),
}

/// Splits a prompt into parts. The error says what cannot be parsed.
fn pieces(text: &str) -> Result<Vec<Piece>, String> {
    let mut found = Vec::new();
    let mut plain = String::new();
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        let piece = if let Some(after) = rest.strip_prefix(ARGS) {
            Some((Piece::Args, after))
        } else if let Some(after) = rest.strip_prefix("!{") {
            let (inner, after) = balanced(after).ok_or("`!{` without its `}`")?;
            Some((Piece::Shell(inner.trim().to_owned()), after))
        } else if let Some(after) = rest.strip_prefix("@{") {
            let (inner, after) = balanced(after).ok_or("`@{` without its `}`")?;
            let path = inner.trim();
            if path.is_empty() || path.contains(char::is_whitespace) || path.contains(['{', '}']) {
                return Err(format!(
                    "`@{{{inner}}}` cannot be converted: name one path without blanks"
                ));
            }
            Some((Piece::File(path.to_owned()), after))
        } else {
            None
        };
        match piece {
            Some((piece, after)) => {
                if !plain.is_empty() {
                    found.push(Piece::Text(std::mem::take(&mut plain)));
                }
                found.push(piece);
                rest = after;
            }
            None => {
                plain.push(first);
                rest = rest.get(first.len_utf8()..).unwrap_or_default();
            }
        }
    }
    if !plain.is_empty() {
        found.push(Piece::Text(plain));
    }
    Ok(found)
}

/// The text before and the text after the closing brace.
fn balanced(text: &str) -> Option<(&str, &str)> {
    let mut depth = 0_usize;
    for (at, c) in text.char_indices() {
        match c {
            '{' => depth += 1,
            '}' if depth == 0 => return Some((text.get(..at)?, text.get(at + 1..)?)),
            '}' => depth -= 1,
            _ => {}
        }
    }
    None
}

/// What begins a tag or a comment of a template.
const BEGINNINGS: [&str; 3] = ["{{", "{%", "{#--"];

/// Escapes braces in text, so that they are not parsed as a template.
pub(super) fn literal(text: &str) -> String {
    escaped(text, "")
}

/// The text with each beginning of a tag as a string in a value, with this filter. A raw block would not keep the line
/// break after it and the blanks before it.
fn escaped(text: &str, filter: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find('{') {
        out.push_str(rest.get(..at).unwrap_or_default());
        let from = rest.get(at..).unwrap_or_default();
        let length = match BEGINNINGS.iter().find(|beginning| from.starts_with(**beginning)) {
            Some(beginning) => {
                out.push_str(&format!("{{{{ \"{beginning}\"{filter} }}}}"));
                beginning.len()
            }
            None => {
                out.push('{');
                1
            }
        };
        rest = from.get(length..).unwrap_or_default();
    }
    out + rest
}

/// A command with its arguments as a value; all other braces belong to the shell or a program.
fn shell(command: &str) -> String {
    let parts: Vec<String> = command.split(ARGS).map(raw).collect();
    parts.join("{% if args %}{{ args }}{% endif %}")
}

/// Escapes braces in a command.
pub(super) fn raw(text: &str) -> String {
    escaped(text, " | raw")
}

#[cfg(test)]
mod tests {
    use super::super::parse::parse;
    use super::*;

    fn parsed(text: &str) -> Result<Recipe, Vec<Diagnostic>> {
        let mut files = SourceFiles::default();
        let file = files.add("a/git/my commit.toml".to_owned(), text.to_owned());
        parse(&files, file, &mut Vec::new())
    }

    #[test]
    fn a_command_becomes_steps() {
        let recipe = parsed(
            "description = \"Writes a message\"\nprompt = \"\"\"\nLook at:\n```diff\n!{git diff --staged -- {{args}}}\n```\nby @{docs/style.md} and {{args}}. Keep {{ this }} and !{docker ps --format '{{.Names}}'}.\n\"\"\"\n",
        )
        .unwrap();
        assert_eq!(recipe.name.value, "my-commit");
        assert_eq!(recipe.description, "Writes a message");
        let commands: Vec<&str> = recipe
            .steps
            .iter()
            .filter_map(|step| match &step.work {
                StepSource::Run { command, .. } => Some(command.value.as_str()),
                _ => None,
            })
            .collect();
        assert_eq!(
            commands,
            [
                "git diff --staged -- {% if args %}{{ args }}{% endif %}",
                "docker ps --format '{{ \"{{\" | raw }}.Names}}'"
            ]
        );
        let Some(StepSource::Prompt(prompt)) = recipe.steps.last().map(|step| &step.work) else {
            panic!("no prompt")
        };
        for part in [
            "{{ steps.shell_1.output }}",
            "@docs/style.md",
            "and {{ args }}.",
            "{{ \"{{\" }} this }}",
            "{{ steps.shell_2.output }}",
        ] {
            assert!(prompt.value.contains(part), "{part}: {}", prompt.value);
        }
    }

    #[test]
    fn escaped_text_is_rendered_as_it_was() {
        use super::super::template::{TemplateScope, check_command, render, render_command};
        let (values, steps) = (std::collections::BTreeMap::new(), super::super::StepOutputs::new());
        let scope = TemplateScope {
            values: &values,
            input: None,
            steps: &steps,
        };
        for text in [
            "a {{ b }} {% c %} {#-- d --#} {{{ e }}}",
            "  {{\n  {%\n  {#--\n",
            "jq '{a: {b: 1}}' \"{{\"\n{",
            "{# plain #} é{",
        ] {
            assert_eq!(render(&literal(text), &scope).as_deref(), Ok(text));
            assert_eq!(check_command(&raw(text)), Ok(()), "{text}");
            assert_eq!(render_command(&raw(text), &scope).as_deref(), Ok(text));
        }
    }

    #[test]
    fn arguments_that_nothing_names_stand_below() {
        let recipe = parsed("prompt = \"Review.\"").unwrap();
        let StepSource::Prompt(prompt) = &recipe.steps[0].work else {
            panic!("no prompt")
        };
        assert!(prompt.value.starts_with("Review.{% if args %}"), "{}", prompt.value);
    }

    #[test]
    fn what_is_wrong_has_its_place() {
        for (text, said) in [
            ("prompt = 1", "invalid type"),
            ("description = \"x\"", "prompt"),
            ("prompt = \"x\"\nmodel = \"y\"", "model"),
            ("prompt = \"!{open\"", "without its"),
            ("prompt = \"@{a b}\"", "cannot be converted"),
            ("prompt = ", ""),
        ] {
            let problems = parsed(text).unwrap_err();
            assert!(problems[0].message.contains(said), "{text}: {}", problems[0].message);
        }
    }
}
