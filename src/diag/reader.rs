//! Reads the keys of a YAML map into typed values and collects every problem.
//!
//! A key counts as known once it was requested: [`Reader::finish`] reports all others. So request every key before
//! calling it.

use super::diagnostic::{Diagnostic, did_you_mean, list};
use super::source::{Span, Spanned};
use super::tree::{MapEntry, Scalar, Shape, YamlNode};
use super::{units, yaml};
use serde_json::Value;
use std::collections::BTreeSet;

/// A reader of one map's keys.
#[derive(Debug)]
pub struct Reader<'a> {
    entries: &'a [MapEntry],
    /// Position of the whole map.
    pub span: Span,
    /// How messages name the map: `the recipe`, `this rule`.
    what: &'static str,
    asked: Vec<&'static str>,
}

/// Where problems are collected.
pub type Problems = Vec<Diagnostic>;

impl<'a> Reader<'a> {
    /// A reader of a map; reports a problem when `node` is something else.
    pub fn open(node: &'a YamlNode, what: &'static str, problems: &mut Problems) -> Option<Self> {
        match &node.shape {
            Shape::Map(entries) => Some(Self {
                entries,
                span: node.span,
                what,
                asked: Vec::new(),
            }),
            _ => {
                problems.push(no_map(node, what));
                None
            }
        }
    }

    /// The position for problems of the whole map: its first key.
    pub fn head(&self) -> Span {
        self.entries.first().map_or(self.span.point(), |entry| entry.key_span)
    }

    /// The entry of a key. A key without a value counts as absent.
    pub fn entry(&mut self, key: &'static str) -> Option<&'a MapEntry> {
        if !self.asked.contains(&key) {
            self.asked.push(key);
        }
        let entry = self.entries.iter().find(|entry| entry.key == key)?;
        (!entry.value.is_null()).then_some(entry)
    }

    /// The value of a key.
    pub fn node(&mut self, key: &'static str) -> Option<&'a YamlNode> {
        self.entry(key).map(|entry| &entry.value)
    }

    /// The value of a required key.
    pub fn need(&mut self, key: &'static str, problems: &mut Problems) -> Option<&'a YamlNode> {
        let found = self.node(key);
        if found.is_none() {
            self.missing(key, problems);
        }
        found
    }

    /// Reports a missing key.
    pub fn missing(&self, key: &str, problems: &mut Problems) {
        let message = format!("`{key}` is missing in {}", self.what);
        problems.push(Diagnostic::error("missing-key", self.head(), message).help(format!("add `{key}: …`")));
    }

    /// The map under a key.
    pub fn map(&mut self, key: &'static str, what: &'static str, problems: &mut Problems) -> Option<Reader<'a>> {
        Reader::open(self.node(key)?, what, problems)
    }

    /// A string. Unquoted numbers and booleans are taken as written.
    pub fn text(&mut self, key: &'static str, problems: &mut Problems) -> Option<Spanned<String>> {
        text(self.node(key)?, key, problems)
    }

    /// A required string.
    pub fn need_text(&mut self, key: &'static str, problems: &mut Problems) -> Option<Spanned<String>> {
        text(self.need(key, problems)?, key, problems)
    }

    /// `true` or `false`.
    pub fn bool(&mut self, key: &'static str, problems: &mut Problems) -> Option<Spanned<bool>> {
        let node = self.node(key)?;
        match scalar(node).map(Scalar::value) {
            Some(Value::Bool(value)) => Some(at(node, value)),
            _ => {
                problems.push(wrong_type(node, &ticked(key), "`true` or `false`"));
                None
            }
        }
    }

    /// A whole number, 0 or more; underscores may group digits: `2_000_000`.
    pub fn whole(&mut self, key: &'static str, problems: &mut Problems) -> Option<Spanned<u64>> {
        whole(self.node(key)?, key, problems)
    }

    /// A limit: a whole number, 1 or more.
    pub fn limit(&mut self, key: &'static str, problems: &mut Problems) -> Option<Spanned<u64>> {
        let limit = self.whole(key, problems)?;
        if limit.value == 0 {
            problems.push(nothing_runs(limit.span, "write 1 or more, or remove the key"));
            return None;
        }
        Some(limit)
    }

    /// A limit: a number above 0.
    pub fn amount_limit(&mut self, key: &'static str, problems: &mut Problems) -> Option<Spanned<f64>> {
        let limit = self.amount(key, problems)?;
        if limit.value <= 0.0 {
            problems.push(nothing_runs(limit.span, "write a number above 0, or remove the key"));
            return None;
        }
        Some(limit)
    }

    /// A number, 0 or more.
    fn amount(&mut self, key: &'static str, problems: &mut Problems) -> Option<Spanned<f64>> {
        let node = self.node(key)?;
        let value = plain(node).and_then(units::decimal).filter(|value| *value >= 0.0);
        if value.is_none() {
            problems.push(wrong_type(node, &ticked(key), "a number of 0 or more, such as `2.00`"));
        }
        value.map(|value| at(node, value))
    }

    /// A duration above zero, in milliseconds.
    pub fn duration(&mut self, key: &'static str, problems: &mut Problems) -> Option<Spanned<u64>> {
        let node = self.node(key)?;
        let value = scalar(node).and_then(|scalar| units::duration_ms(&scalar.text));
        match value {
            Some(value) if value > 0 => Some(at(node, value)),
            _ => {
                problems.push(wrong_type(
                    node,
                    &ticked(key),
                    "a duration such as `5s`, `20m` or `1h30m`",
                ));
                None
            }
        }
    }

    /// One word of a fixed set.
    pub fn choice<T: Copy>(
        &mut self,
        key: &'static str,
        words: &[(&'static str, T)],
        problems: &mut Problems,
    ) -> Option<Spanned<T>> {
        choice(self.node(key)?, key, words, problems)
    }

    /// A list of strings. `None` when the key is absent or not a list.
    pub fn texts(&mut self, key: &'static str, problems: &mut Problems) -> Option<Vec<Spanned<String>>> {
        let node = self.node(key)?;
        match &node.shape {
            Shape::List(items) => Some(items.iter().filter_map(|item| text(item, key, problems)).collect()),
            _ => {
                problems.push(wrong_type(node, &ticked(key), "a list such as `[one, two]`"));
                None
            }
        }
    }

    /// A list of strings; a single string counts as a list of one.
    pub fn one_or_more(&mut self, key: &'static str, problems: &mut Problems) -> Option<Vec<Spanned<String>>> {
        let node = self.node(key)?;
        match &node.shape {
            Shape::Scalar(_) => text(node, key, problems).map(|only| vec![only]),
            Shape::List(_) => self.texts(key, problems),
            Shape::Map(_) => {
                problems.push(wrong_type(node, &ticked(key), "a string or a list of strings"));
                None
            }
        }
    }

    /// The items of a list.
    pub fn items(&mut self, key: &'static str, problems: &mut Problems) -> Option<&'a [YamlNode]> {
        let node = self.node(key)?;
        match &node.shape {
            Shape::List(items) => Some(items),
            _ => {
                let problem = wrong_type(node, &ticked(key), "a list");
                let form = LIST_FORMS
                    .iter()
                    .find(|(name, of, _)| *name == key && is_of(of, self.what));
                problems.push(match form {
                    Some((.., form)) => problem.help(format!("write a list: `{key}: {form}`")),
                    None => problem,
                });
                None
            }
        }
    }

    /// The entries of a map whose keys the user chooses.
    pub fn entries(&mut self, key: &'static str, problems: &mut Problems) -> Option<&'a [MapEntry]> {
        let node = self.node(key)?;
        match &node.shape {
            Shape::Map(entries) => Some(entries),
            _ => {
                let problem = wrong_type(node, &ticked(key), "a map");
                problems.push(match MAP_FORMS.iter().find(|(name, _)| *name == key) {
                    Some((_, form)) => problem.help(format!("write `{key}: {form}`")),
                    None => problem,
                });
                None
            }
        }
    }

    /// A map of any content.
    pub fn object(&mut self, key: &'static str, problems: &mut Problems) -> Option<Value> {
        self.entries(key, problems)?;
        self.node(key).map(YamlNode::to_json)
    }

    /// A map from names that the user chooses to strings.
    pub fn text_map(&mut self, key: &'static str, problems: &mut Problems) -> Option<Vec<(String, Spanned<String>)>> {
        let entries = self.entries(key, problems)?;
        let pairs = entries.iter().filter_map(|entry| {
            let value = text(&entry.value, &entry.key, problems)?;
            Some((entry.key.clone(), value))
        });
        Some(pairs.collect())
    }

    /// Reports every key that was not requested.
    pub fn finish(self, problems: &mut Problems) {
        for entry in self.entries {
            if !self.asked.contains(&entry.key.as_str()) {
                let message = format!("unknown key `{}` in {}", entry.key, self.what);
                let mut problem = Diagnostic::error("unknown-key", entry.key_span, message);
                problem.help = yaml::spaced(&entry.key)
                    .map(|meant| yaml::space_help(&meant))
                    .or_else(|| self.habit(&entry.key))
                    .or_else(|| did_you_mean(&entry.key, self.asked.iter().copied()));
                problems.push(problem);
            }
        }
    }

    /// What to write for a key of another tool, where the key that does the same is known here and not yet given.
    fn habit(&self, key: &str) -> Option<String> {
        let (_, ours, of, help) = HABITS
            .iter()
            .find(|(other, ours, of, _)| *other == key && self.asked.contains(ours) && is_of(of, self.what))?;
        // The entries of a list do not exclude another one.
        let is_given = *ours != "run" && of.is_empty() && self.entries.iter().any(|entry| entry.key == *ours);
        (!is_given).then(|| (*help).to_owned())
    }

    /// Checks `version: 1`, the only version.
    pub fn version(&mut self, problems: &mut Problems) {
        let Some(node) = self.node("version") else {
            let message = format!("`version` is missing in {}", self.what);
            problems.push(Diagnostic::error("missing-key", self.head(), message).help("add `version: 1`"));
            return;
        };
        if plain(node) != Some("1") {
            let message = format!("this program reads version 1, not {}", node.describe());
            problems.push(Diagnostic::error("unknown-version", node.span, message).help("write `version: 1`"));
        }
    }
}

/// The problem of a limit of 0.
fn nothing_runs(span: Span, help: &str) -> Diagnostic {
    Diagnostic::error("out-of-range", span, "a limit of 0 allows nothing to run").help(help)
}

/// Whether a row of a table is about a map that messages call `what`: `of` is empty, or this name.
fn is_of(of: &str, what: &str) -> bool {
    of.is_empty() || of == what
}

/// What to write for a list of tools.
const OF_TOOLS: &str =
    "write `tools: { include: [read_file] }`; what a tool may do is in a policy: `rules: [{ allow: read_file }]`";

/// Keys of other formats, or at another place of this one, each with the key to use instead, what that is in if it has
/// the entries of a list, and what to write.
const HABITS: &[(&str, &str, &str, &str)] = &[
    ("command", "run", "", "write `run: COMMAND`"),
    ("retries", "retry", "", "write `retry: { max: 2 }`"),
    ("time", "wall", "", "write `wall: 20m`"),
    (
        "params",
        "parameters",
        "",
        "write `parameters: [{ name: NAME, type: string }]`",
    ),
    ("ask", "suspend", "", "write `suspend`"),
    ("reason", "because", "", "write `because: TEXT`"),
    ("url", "repo", "", "write `repo: URL`"),
    ("branch", "ref", "", "write `ref: NAME`"),
    ("dir", "path", "", "write `path: DIR`"),
    ("cmd", "command", "", "write `command: COMMAND`"),
    (
        "prompt",
        "steps",
        "the recipe",
        "write it in a step: `steps: [{ id: fix, prompt: … }]`",
    ),
    (
        "instructions",
        "steps",
        "the recipe",
        "write them in the prompt of a step: `steps: [{ id: fix, prompt: … }]`, or in a file: `context: [FILE]`",
    ),
    (
        "system",
        "steps",
        "the recipe",
        "write it in the prompt of a step: `steps: [{ id: fix, prompt: … }]`, or in a file: `context: [FILE]`",
    ),
    (
        "retry",
        "steps",
        "the recipe",
        "write it in a step: `steps: [{ id: fix, prompt: …, retry: { max: 2 } }]`",
    ),
    ("max_turns", "budget", "the recipe", "write `budget: { turns: 40 }`"),
    (
        "timeout",
        "budget",
        "the recipe",
        "write `budget: { wall: 20m }`; `timeout` belongs to a step or a check with `run`",
    ),
    (
        "mcp_servers",
        "tools",
        "the recipe",
        "write `tools: { mcp_servers: … }`",
    ),
    ("mcpServers", "tools", "the recipe", "write `tools: { mcp_servers: … }`"),
    ("allowed_tools", "tools", "the recipe", OF_TOOLS),
    ("allowed-tools", "tools", "the recipe", OF_TOOLS),
    (
        "permissions",
        "policy",
        "the recipe",
        "what a run may do is in a policy, a file of its own: `overnight run RECIPE --policy FILE`; `overnight init` writes one",
    ),
    (
        "uses",
        "run",
        "this step",
        "actions of GitHub are not run here: write the command, `run: COMMAND`",
    ),
    ("script", "run", "this step", "write `run: COMMAND`"),
    (
        "model",
        "prompt",
        "this step",
        "all steps have the model of the recipe: write `model: PROVIDER/NAME` beside `steps`",
    ),
    (
        "output_schema",
        "response",
        "the recipe",
        "write `response: { schema: FILE }`",
    ),
    (
        "required",
        "default",
        "this parameter",
        "leave it out: a parameter without `default` is required",
    ),
    (
        "allow",
        "rules",
        "the policy",
        "write it in a rule: `rules: [{ allow: read_file }]`",
    ),
    (
        "deny",
        "rules",
        "the policy",
        "write it in a rule: `rules: [{ deny: read_file }]`",
    ),
    (
        "suspend",
        "rules",
        "the policy",
        "write it in a rule: `rules: [{ suspend: write_file }]`",
    ),
    ("repos", "targets", "the manifest", "write `targets: [{ repo: URL }]`"),
    (
        "jobs",
        "targets",
        "the manifest",
        "it is a flag: `overnight batch MANIFEST --jobs N`",
    ),
    ("name", "id", "", "write `id`"),
    ("if", "when", "", "write `when: EXPRESSION`"),
    ("working-directory", "run", "", "begin the command with `cd DIR &&`"),
    (
        "env",
        "run",
        "",
        "set the variable in the command, as in `NAME=value program`; a policy passes those of the environment: `env: { pass: [NAME] }`",
    ),
    ("continue-on-error", "allow_failure", "", "write `allow_failure: true`"),
    ("timeout-minutes", "timeout", "", "write `timeout: 10m`"),
];

fn ticked(key: &str) -> String {
    format!("`{key}`")
}

fn at<T>(node: &YamlNode, value: T) -> Spanned<T> {
    Spanned { value, span: node.span }
}

fn scalar(node: &YamlNode) -> Option<&Scalar> {
    match &node.shape {
        Shape::Scalar(scalar) => Some(scalar),
        _ => None,
    }
}

fn plain(node: &YamlNode) -> Option<&str> {
    scalar(node)
        .filter(|scalar| scalar.plain)
        .map(|scalar| scalar.text.as_str())
}

/// The problem of a value of the wrong type. `what` comes first in the message.
pub fn wrong_type(node: &YamlNode, what: &str, expected: &str) -> Diagnostic {
    let span = match node.shape {
        Shape::Scalar(_) => node.span,
        _ => node.span.point(),
    };
    let message = format!("{what} must be {expected}, found {}", node.describe());
    Diagnostic::error("wrong-type", span, message).help(format!("write {expected}"))
}

/// How lists are written, by their keys, and what they are in; empty if the key means the same everywhere.
const LIST_FORMS: [(&str, &str, &str); 7] = [
    ("context", "", "[AGENTS.md]"),
    ("steps", "", "[{ id: fix, prompt: … }]"),
    ("rules", "", "[{ allow: read_file }]"),
    ("targets", "", "[{ path: ../a }]"),
    ("replies", "", "[{ text: done }]"),
    ("checks", "this step", "[{ run: ./run-tests }]"),
    ("parameters", "the recipe", "[{ name: NAME, type: string }]"),
];

/// How maps with keys of the user's own are written, by the keys that they are under.
const MAP_FORMS: [(&str, &str); 2] = [
    ("calls", "{ run_shell_command: 40 }"),
    ("mcp_servers", "{ docs: { command: docs-server } }"),
];

/// How maps are written that people often write as something else, by what messages call them.
const FORMS: [(&str, &str); 20] = [
    ("`changed`", "`changed: { only: [src/**] }`"),
    ("the recipe", "`version: 1`, `name: NAME` and `steps: […]`, a line each"),
    ("the policy", "`version: 1` and `rules: […]`, a line each"),
    (
        "the manifest",
        "`version: 1`, `recipe: FILE` and `targets: […]`, a line each",
    ),
    ("the script", "`replies: [{ text: done }]`"),
    ("the table", "`version: 1` and `cases: […]`, a line each"),
    ("this step", "`{ id: fix, prompt: … }` or `{ id: lint, run: … }`"),
    ("this check", "`{ run: ./run-tests }`"),
    ("this parameter", "`{ name: NAME, type: string }`"),
    ("this target", "`{ path: ../a }`"),
    ("this rule", "`{ allow: read_file }`"),
    ("`retry`", "`retry: { max: 2 }`"),
    (
        "`isolate`",
        "`isolate: { keep: [node_modules] }`; the flag `--isolate` isolates a run",
    ),
    ("`tools`", "`tools: { include: [read_file] }`"),
    ("`input`", "`input: { format: json }`"),
    ("`response`", "`response: { schema: … }`"),
    ("`budget`", "`budget: { turns: 40 }`"),
    ("`rate`", "`rate: { requests: 300/m }`"),
    ("`sandbox`", "`sandbox: { network: none }`"),
    ("`env`", "`env: { pass: [NAME] }`"),
];

/// The problem of a value that must be a map of keys. `what` comes first in the message.
fn no_map(node: &YamlNode, what: &str) -> Diagnostic {
    let problem = wrong_type(node, what, "a map of keys");
    if let Some(meant) = plain(node).and_then(yaml::spaced) {
        return problem.help(yaml::space_help(&meant));
    }
    match FORMS.iter().find(|(name, _)| *name == what) {
        Some((_, form)) => problem.help(format!("write {form}")),
        None => problem,
    }
}

/// Reports keys without a value, in maps within maps and lists too. A reader takes such a key for absent: a check or a limit
/// that was meant would silently be none. `free`: keys whose values are the user's own, such as a JSON Schema. A value that
/// another problem is about is not reported again.
pub fn refuse_empty(node: &YamlNode, free: &[&str], problems: &mut Problems) {
    let told: BTreeSet<Span> = problems.iter().filter_map(|problem| problem.span).collect();
    empty_keys(node, free, &mut |entry: &MapEntry| {
        if !told.contains(&entry.key_span) && !told.contains(&entry.value.span) {
            let message = format!("`{}` has no value", entry.key);
            let problem = Diagnostic::error("empty-value", entry.key_span, message);
            problems.push(problem.help("write a value, or leave the key out"));
        }
    });
}

fn empty_keys(node: &YamlNode, free: &[&str], report: &mut dyn FnMut(&MapEntry)) {
    match &node.shape {
        Shape::Scalar(_) => {}
        Shape::List(items) => {
            for item in items {
                empty_keys(item, free, report);
            }
        }
        Shape::Map(entries) => {
            for entry in entries {
                if entry.value.is_null() {
                    report(entry);
                }
                if !free.contains(&entry.key.as_str()) {
                    empty_keys(&entry.value, free, report);
                }
            }
        }
    }
}

/// The string of a node; reports a problem when it is a list, a map or empty.
pub fn text(node: &YamlNode, key: &str, problems: &mut Problems) -> Option<Spanned<String>> {
    match scalar(node) {
        Some(scalar) if !scalar.is_null() => Some(at(node, scalar.text.clone())),
        _ => {
            let problem = wrong_type(node, &ticked(key), "a string");
            problems.push(match (&node.shape, key) {
                (Shape::List(_), "policy") => {
                    problem.help("write one policy, as in `policy: FILE`; a policy joins several with `extends`")
                }
                _ => problem,
            });
            None
        }
    }
}

/// The whole number of a node.
pub fn whole(node: &YamlNode, key: &str, problems: &mut Problems) -> Option<Spanned<u64>> {
    let value = plain(node).and_then(units::whole);
    if value.is_none() {
        problems.push(wrong_type(
            node,
            &ticked(key),
            "a whole number such as `40` or `2000000`",
        ));
    }
    value.map(|value| at(node, value))
}

/// The word of a node, if it is one of `words`.
pub fn choice<T: Copy>(
    node: &YamlNode,
    key: &str,
    words: &[(&'static str, T)],
    problems: &mut Problems,
) -> Option<Spanned<T>> {
    if scalar(node).is_none_or(Scalar::is_null) {
        let names: Vec<&str> = words.iter().map(|(name, _)| *name).collect();
        problems.push(wrong_type(node, &ticked(key), &format!("one of {}", list(&names))));
        return None;
    }
    let word = text(node, key, problems)?;
    let found = words.iter().find(|(name, _)| *name == word.value);
    if found.is_none() {
        let message = format!("`{key}` cannot be `{}`", word.value);
        let mut problem = Diagnostic::error("unknown-word", node.span, message);
        // A beginning such as `str` or `int` is too short for `did_you_mean`.
        let begun = words
            .iter()
            .find(|(name, _)| word.value.len() > 2 && name.starts_with(&word.value));
        problem.help = match begun {
            Some((name, _)) => Some(format!("did you mean `{name}`?")),
            None => did_you_mean(&word.value, words.iter().map(|(name, _)| *name)),
        };
        problems.push(problem);
    }
    found.map(|(_, value)| at(node, *value))
}

/// The text, if it is not blank.
pub fn not_blank(text: Spanned<String>, key: &str, problems: &mut Problems) -> Option<Spanned<String>> {
    if text.value.trim().is_empty() {
        problems.push(Diagnostic::error("empty-text", text.span, format!("`{key}` is empty")).help("write something"));
        return None;
    }
    Some(text)
}

/// The text of a command or of what a command gets, if a program can receive it: without NUL.
pub fn without_nul(text: Spanned<String>, key: &str, problems: &mut Problems) -> Option<Spanned<String>> {
    (!has_nul(&text, key, problems)).then_some(text)
}

/// Whether the text has a NUL, so that no program can receive it; adds the problem.
pub fn has_nul(text: &Spanned<String>, key: &str, problems: &mut Problems) -> bool {
    let found = text.value.contains('\0');
    if found {
        let message = format!("`{key}` contains a NUL byte, which no program can receive");
        let problem = Diagnostic::error("nul-byte", text.span, message);
        problems.push(problem.help(
            "remove it; a command that prints one is `printf '\\000'`, without the double quotes of YAML around it",
        ));
    }
    found
}

#[cfg(test)]
mod tests;
