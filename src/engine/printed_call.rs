//! Detects a tool call that a model wrote as plain text, in the formats of common chat templates. Pure: such a call is
//! never run; the model only gets a warning.
//!
//! The formats are those that the tool parsers of vLLM ("Tool Calling": hermes, llama3_json, mistral, pythonic,
//! qwen3_xml) and of llama.cpp (`docs/function-calling.md`) accept: JSON with a name and arguments, bare, in a list, in
//! a fence, between `<tool_call>` tags or after `[TOOL_CALLS]` or `<|python_tag|>`; `<function=NAME>`; and `NAME({…})`.

use serde_json::Value;
use std::collections::BTreeSet;

/// Longest text that is searched, in bytes. A longer answer is no call.
const LONGEST: usize = 64 << 10;
/// Upper limit for JSON values that are parsed in one text.
const VALUES: usize = 40;

/// The tool of the first call written in the text, if any. `tools`: the names and aliases that the model was given.
///
/// JSON counts only if the text ends with it, or if it is fenced or tagged, because an answer may mention a call.
pub fn printed_call(text: &str, tools: &BTreeSet<String>) -> Option<String> {
    let text = text.trim();
    if text.is_empty() || text.len() > LONGEST {
        return None;
    }
    tagged(text, tools).or_else(|| {
        let pieces = fenced(text).into_iter().chain(ending(text)).take(VALUES);
        pieces.into_iter().find_map(|piece| {
            let value: Value = serde_json::from_str(piece.trim()).ok()?;
            call(&value, tools)
        })
    })
}

/// Markers that begin a call in a chat template and do not occur in normal text.
fn tagged(text: &str, tools: &BTreeSet<String>) -> Option<String> {
    for mark in [
        "<tool_call>",
        "[TOOL_CALLS]",
        "<|python_tag|>",
        "<|tool_call|>",
        "<tools>",
    ] {
        let Some((_, rest)) = text.split_once(mark) else {
            continue;
        };
        let mut values = serde_json::Deserializer::from_str(rest.trim_start()).into_iter::<Value>();
        if let Some(Ok(value)) = values.next()
            && let Some(tool) = call(&value, tools)
        {
            return Some(tool);
        }
        // Mistral's newer form: the name, then the arguments.
        let name: String = rest.trim_start().chars().take_while(|c| is_name(*c)).collect();
        if tools.contains(&name) {
            return Some(name);
        }
    }
    let named = |mark: &str, end: char| {
        let (_, rest) = text.split_once(mark)?;
        let name = rest.split(end).next()?.trim().trim_matches(['"', '\'']);
        tools.contains(name).then(|| name.to_owned())
    };
    named("<function=", '>')
        .or_else(|| named("<invoke name=", '>'))
        .or_else(|| written(text, tools))
}

/// `NAME({…})` or `functions.NAME({…})` at the end of the text.
fn written(text: &str, tools: &BTreeSet<String>) -> Option<String> {
    let line = text.lines().last()?.trim().trim_matches('`');
    let (name, rest) = line.split_once('(')?;
    let name = name.rsplit(['.', ' ']).next()?;
    let args = rest.trim_end_matches(';').strip_suffix(')')?.trim();
    let is_object = args.is_empty() || serde_json::from_str::<Value>(args).is_ok_and(|value| value.is_object());
    // The line must contain nothing but the call: `use read_file()` is a sentence.
    let alone = line.split_whitespace().next()?.contains('(');
    (is_object && alone && tools.contains(name)).then(|| name.to_owned())
}

fn is_name(c: char) -> bool {
    c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.')
}

/// The contents of fenced blocks.
fn fenced(text: &str) -> Vec<&str> {
    let mut blocks = Vec::new();
    let mut rest = text;
    while let Some((_, after)) = rest.split_once("```") {
        let body = after.split_once('\n').map_or(after, |(_, body)| body);
        let Some((block, after)) = body.split_once("```") else {
            // The closing fence is often forgotten.
            blocks.push(body);
            break;
        };
        blocks.push(block);
        rest = after;
    }
    blocks
}

/// Candidates for JSON at the end of the text: from each line that begins with a brace or bracket, and from the first
/// brace of the last line.
fn ending(text: &str) -> Vec<&str> {
    let mut starts: Vec<usize> = text
        .match_indices(['{', '['])
        .map(|(at, _)| at)
        .filter(|at| text[..*at].ends_with('\n') || *at == 0)
        .collect();
    let last = text.rfind('\n').map_or(0, |at| at + 1);
    starts.extend(text[last..].find(['{', '[']).map(|at| last + at));
    starts.into_iter().map(|at| &text[at..]).collect()
}

/// The tool, if the value is a call or a list of calls.
fn call(value: &Value, tools: &BTreeSet<String>) -> Option<String> {
    match value {
        Value::Array(list) if !list.is_empty() => {
            let mut names = list.iter().map(|one| call(one, tools));
            let first = names.next()??;
            names.all(|name| name.is_some()).then_some(first)
        }
        Value::Object(object) => {
            if let Some(calls) = object.get("tool_calls") {
                return call(calls, tools);
            }
            if let Some(function @ Value::Object(_)) = object.get("function") {
                return call(function, tools);
            }
            let name = ["name", "tool", "tool_name", "function", "function_name", "action"];
            let name = name.iter().find_map(|key| object.get(*key)?.as_str())?;
            let name = name.strip_prefix("functions.").unwrap_or(name);
            let arguments = [
                "arguments",
                "parameters",
                "args",
                "input",
                "tool_input",
                "action_input",
                "params",
            ];
            let has_arguments = arguments.iter().any(|key| match object.get(*key) {
                Some(Value::Object(_)) => true,
                Some(Value::String(text)) => serde_json::from_str::<Value>(text).is_ok_and(|value| value.is_object()),
                _ => false,
            });
            // An object without arguments is a call only if it contains nothing but the name.
            (tools.contains(name) && (has_arguments || object.len() == 1)).then(|| name.to_owned())
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tools() -> BTreeSet<String> {
        ["read_file", "run_shell_command", "replace", "list_directory"]
            .map(str::to_owned)
            .into()
    }

    #[test]
    fn calls_in_the_forms_of_many_templates_are_found() {
        for (text, tool) in [
            (
                r#"{"name": "read_file", "arguments": {"file_path": "a.rs"}}"#,
                "read_file",
            ),
            (
                r#"{"name": "read_file", "parameters": {"file_path": "a.rs"}}"#,
                "read_file",
            ),
            (r#"{"tool": "replace", "args": {}}"#, "replace"),
            (r#"{"name": "list_directory"}"#, "list_directory"),
            (
                "I will look.\n\n{\"name\": \"read_file\", \"arguments\": {}}",
                "read_file",
            ),
            ("I will look: {\"name\": \"read_file\", \"arguments\": {}}", "read_file"),
            (
                "```json\n{\"name\": \"read_file\", \"arguments\": {}}\n```\nThis reads it.",
                "read_file",
            ),
            ("```\n{\"name\": \"read_file\",\n \"arguments\": {}}", "read_file"),
            (
                "<tool_call>\n{\"name\": \"read_file\", \"arguments\": {}}\n</tool_call>",
                "read_file",
            ),
            (
                "Sure.<tool_call>{\"name\": \"read_file\", \"arguments\": {}}",
                "read_file",
            ),
            (
                "[TOOL_CALLS][{\"name\": \"read_file\", \"arguments\": {}}]",
                "read_file",
            ),
            ("[TOOL_CALLS]read_file{\"file_path\": \"a\"}", "read_file"),
            (
                "<|python_tag|>{\"name\": \"read_file\", \"parameters\": {}}",
                "read_file",
            ),
            (
                "<function=run_shell_command>{\"command\": \"ls\"}</function>",
                "run_shell_command",
            ),
            (
                "<tool_call><function=replace><parameter=file_path>a</parameter></function></tool_call>",
                "replace",
            ),
            (
                "[{\"name\": \"read_file\", \"arguments\": {}}, {\"name\": \"replace\", \"arguments\": {}}]",
                "read_file",
            ),
            (
                r#"{"type": "function", "function": {"name": "read_file", "arguments": "{\"file_path\": \"a\"}"}}"#,
                "read_file",
            ),
            (
                r#"{"tool_calls": [{"function": {"name": "read_file", "arguments": "{}"}}]}"#,
                "read_file",
            ),
            (r#"read_file({"file_path": "a.rs"})"#, "read_file"),
            (r#"functions.read_file({"file_path": "a.rs"})"#, "read_file"),
        ] {
            assert_eq!(printed_call(text, &tools()).as_deref(), Some(tool), "{text}");
        }
    }

    #[test]
    fn answers_that_speak_of_calls_are_answers() {
        for text in [
            "",
            "Done.",
            "I called read_file with {\"file_path\": \"a\"} and then it worked.",
            r#"{"name": "Anna", "arguments": {"age": 3}}"#,
            r#"{"name": "read_file", "description": "reads a file", "kind": "read"}"#,
            r#"{"summary": "done", "fixed": ["a"]}"#,
            "[]",
            "{",
            "Use read_file() to look at it.",
            r#"The log has {"name": "read_file", "arguments": {}} in it, which is fine."#,
            "```sh\nls\n```",
        ] {
            assert_eq!(printed_call(text, &tools()), None, "{text}");
        }
        let long = format!(
            "{} {{\"name\": \"read_file\", \"arguments\": {{}}}}",
            "x".repeat(LONGEST)
        );
        assert_eq!(printed_call(&long, &tools()), None, "the length is bounded");
    }

    proptest::proptest! {
        #[test]
        fn any_text_is_looked_at_without_a_panic(text in "(\\PC|[{}\\[\\]\"<>`\n]){0,200}") {
            let _ = printed_call(&text, &tools());
        }
    }
}
