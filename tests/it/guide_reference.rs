//! The reference pages of the guide, made from the program: its command line, its tables and its shipped files.
//!
//! `UPDATE_EXPECT=1 cargo test --test it guide_reference` writes them; without it a page that differs fails.

use super::harness::{World, project};
use clap::{Arg, Command};
use overnight::base::exit;
use overnight::cli::{manual, variables};
use overnight::deliver::DeliverTarget;
use overnight::policy::{codes, presets};
use overnight::report::export::ReportFile;
use serde_json::Value;
use std::collections::BTreeSet;
use std::fmt::Write;
use std::path::Path;

const NOTE: &str = "<!-- Generated from the program by tests/it/guide_reference.rs. Do not edit. -->\n\n";

/// Text of a table cell.
fn cell(text: &str) -> String {
    text.replace('|', "\\|")
        .split_whitespace()
        .collect::<Vec<_>>()
        .join(" ")
}

/// Text of help as Markdown: what looks like HTML there is a placeholder.
fn prose(text: &str) -> String {
    cell(text).replace('<', "&lt;")
}

fn page(title: &str, intro: &str, body: &str) -> String {
    format!("# {title}\n\n{NOTE}{intro}\n\n{}\n", body.trim_end())
}

/// Compares a page with its file, or writes it.
fn compare(name: &str, text: &str) -> Option<String> {
    let path = project().join(".github/docs/src/reference").join(name);
    if std::env::var_os("UPDATE_EXPECT").is_some() {
        std::fs::write(&path, text).unwrap();
    }
    let kept = std::fs::read_to_string(&path).unwrap_or_default();
    (kept != text).then(|| name.to_owned())
}

fn values(arg: &Arg) -> String {
    let names: Vec<String> = arg
        .get_value_names()
        .unwrap_or_default()
        .iter()
        .map(ToString::to_string)
        .collect();
    names.join(" ")
}

fn flag(arg: &Arg) -> String {
    let takes = arg.get_action().takes_values();
    let mut names = Vec::new();
    names.extend(arg.get_short().map(|short| format!("-{short}")));
    names.extend(arg.get_long().map(|long| format!("--{long}")));
    let value = match takes {
        true => format!(" {}", values(arg)),
        false => String::new(),
    };
    match names.is_empty() {
        true => format!("`{}`", values(arg)),
        false => format!("`{}{}`", names.join("`, `"), value.trim_end()),
    }
}

fn meaning(arg: &Arg) -> String {
    let mut text = prose(&arg.get_help().map(ToString::to_string).unwrap_or_default());
    let possible: Vec<String> = arg
        .get_possible_values()
        .iter()
        .filter(|value| !value.is_hide_set())
        .map(|value| format!("`{}`", value.get_name()))
        .collect();
    if arg.get_action().takes_values() && !possible.is_empty() {
        let _ = write!(text, "; one of {}", possible.join(", "));
    }
    let default: Vec<String> = arg
        .get_default_values()
        .iter()
        .map(|value| value.to_string_lossy().into_owned())
        .collect();
    if arg.get_action().takes_values() && !default.is_empty() && !text.contains("default") {
        let _ = write!(text, "; default `{}`", default.join(" "));
    }
    text
}

fn command(command: &Command, path: &str, text: &mut String) {
    if command.is_hide_set() || path == "help" {
        return;
    }
    let depth = if path.contains(' ') { "###" } else { "##" };
    let about = command.get_about().map(ToString::to_string).unwrap_or_default();
    let _ = write!(text, "{depth} `overnight {path}`\n\n{}.\n\n", prose(&about));
    let usage = command.clone().render_usage().to_string();
    let usage = usage.trim_start_matches("Usage: ");
    let _ = write!(text, "```text\n{usage}\n```\n\n");
    let own =
        |arg: &&Arg| !arg.is_hide_set() && !matches!(arg.get_id().as_str(), "help" | "version" | "directory" | "color");
    let mut rows = String::new();
    for arg in command.get_positionals().filter(own) {
        let _ = writeln!(rows, "| {} | {} |", flag(arg), meaning(arg));
    }
    for arg in command.get_opts().chain(
        command
            .get_arguments()
            .filter(|arg| !arg.is_positional() && !arg.get_action().takes_values()),
    ) {
        if own(&arg) {
            let _ = writeln!(rows, "| {} | {} |", flag(arg), meaning(arg));
        }
    }
    if !rows.is_empty() {
        let _ = write!(text, "| argument | meaning |\n| --- | --- |\n{rows}\n");
    }
    let after = command.get_after_help().map(ToString::to_string).unwrap_or_default();
    if let Some((_, examples)) = after.split_once("Examples:\n") {
        let lines: Vec<&str> = examples
            .lines()
            .take_while(|line| line.starts_with("    "))
            .map(str::trim)
            .collect();
        let _ = write!(text, "```text\n{}\n```\n\n", lines.join("\n"));
    }
    for one in command.get_subcommands() {
        self::command(one, &format!("{path} {}", one.get_name()), text);
    }
}

fn commands() -> String {
    let mut root = manual::command();
    root.build();
    let mut text = String::from("| for every command | meaning |\n| --- | --- |\n");
    for arg in root
        .get_arguments()
        .filter(|arg| matches!(arg.get_id().as_str(), "directory" | "color" | "help"))
    {
        let _ = writeln!(text, "| {} | {} |", flag(arg), meaning(arg));
    }
    text.push('\n');
    for one in root.get_subcommands() {
        command(one, one.get_name(), &mut text);
    }
    page(
        "Commands",
        "Every command with its arguments. `overnight help COMMAND` and `overnight man COMMAND` print the same, `overnight --version` the version.",
        &text,
    )
}

fn environment() -> String {
    let mut text = String::from("| variable | meaning |\n| --- | --- |\n");
    for (names, what) in variables::ALL {
        let _ = writeln!(text, "| {} | {} |", cell(&names.replace(", ", "<br>")), prose(what));
    }
    let intro = "Every variable that changes what `overnight` does. A flag has precedence over its variable; an empty variable counts as unset.\n\
                 Commands of a run do not see these variables: their environment is empty but for what the policy passes on (`env: { pass: […] }`).";
    page("Environment variables", intro, &text)
}

fn exit_codes() -> String {
    let mut text = String::from("| code | meaning |\n| --- | --- |\n");
    let mut seen = 0;
    for line in exit::TABLE.lines().skip(1) {
        let (code, what) = line.trim().split_once("  ").unwrap();
        let _ = writeln!(text, "| {code} | {} |", prose(what));
        seen += 1;
    }
    assert!(seen > 10);
    let mut order: Vec<u8> = (0..=143)
        .filter(|code| *code <= 10 || [70, 129, 130, 143].contains(code))
        .collect();
    order.sort_by(|a, b| match (a == b, exit::stronger(*a, *b) == *a) {
        (true, _) => std::cmp::Ordering::Equal,
        (_, true) => std::cmp::Ordering::Less,
        (_, false) => std::cmp::Ordering::Greater,
    });
    let order: Vec<String> = order.iter().map(ToString::to_string).collect();
    let _ = write!(
        text,
        "\nWhen several apply, the first of these is the code: {}.\n",
        order.join(", ")
    );
    let intro = "How a command ended. A run writes `result.json` and the file of `--junit` with every code but 2; with `--format json` every code\n\
                 has its object on stdout: a result, or what the command prints, or for a command that cannot be carried out one with `schema`,\n\
                 `verdict`, `exit_code` and `message` (`overnight schema error`).";
    page("Exit codes", intro, &text)
}

fn reason_codes() -> String {
    let mut text = String::from("| code | meaning | what to do |\n| --- | --- | --- |\n");
    for code in codes::CODES {
        let detail = if code.detail { ":…" } else { "" };
        let _ = writeln!(
            text,
            "| `{}{detail}` | {} | {} |",
            code.code,
            prose(code.meaning),
            prose(code.fix)
        );
    }
    let intro = "Each ruling on a call carries one of these codes: in the journal, in `transcript.json`, in `result.json` and in the output of\n\
                 `overnight policy explain`. The list is closed. A code with `:…` is followed by a value, as `unknown_option:--pre`.";
    page("Reason codes of rulings", intro, &text)
}

fn protected() -> String {
    let text = std::fs::read_to_string(project().join("src/policy/protected.md")).unwrap();
    let body = text.split_once('\n').unwrap().1;
    let (intro, tables) = body.trim().split_once("\n\n## ").unwrap();
    page(
        "Protected and secret-like names",
        intro.trim_end_matches(
            " A test compares this\npage with the tables in `protected/table.rs` and `secrets_like.rs`.",
        ),
        &format!("## {tables}"),
    )
}

/// What `policy check` prints of a policy, as a list. What is allowed by a policy that it extends is named by that policy.
fn allowance(name: &str, said: &str) -> String {
    let mut text = String::new();
    let mut extended: Vec<String> = Vec::new();
    for line in said.lines().skip(1).filter(|line| *line != name) {
        let tag = line.rsplit_once(" [").map(|(_, tag)| tag.trim_end_matches(']'));
        let other = tag.filter(|tag| *tag != name && presets::names().any(|known| known == *tag));
        if let Some(other) = other {
            if !extended.iter().any(|one| one == other) {
                let _ = writeln!(text, "- what [`{other}`](#{}) allows", other.replace(':', ""));
                extended.push(other.to_owned());
            }
        } else if let Some(item) = line.strip_prefix("    - ") {
            let item = item.rsplit_once(" [").map_or(item, |(item, _)| item);
            let _ = writeln!(text, "- {}", prose(item));
        } else if line.ends_with(':') {
            let mut words = line.trim().to_owned();
            words[..1].make_ascii_uppercase();
            let _ = write!(text, "\n{words}\n\n");
        } else {
            let mut words = prose(line);
            words[..1].make_ascii_uppercase();
            let _ = write!(text, "\n{}.\n", words.trim_end_matches('.'));
        }
    }
    text.trim().to_owned()
}

fn shipped_policies(world: &World) -> String {
    let mut text = String::new();
    for name in presets::names() {
        let said = world.call(&["policy", "check", name]).exits(0).stdout;
        let _ = write!(text, "## `{name}`\n\n{}\n\n", allowance(name, &said));
    }
    let intro = "The policies inside the program. `--policy` and `extends` take these names; `overnight policy check NAME` prints what each allows.\n\
                 `builtin:build` and `builtin:mixed` are made for the toolchains that the tree needs; here there are none.";
    page("Shipped policies", intro, &text)
}

fn shipped_recipes(world: &World) -> String {
    let list = world.call(&["recipe", "list", "--format", "json"]).exits(0).json();
    let list = list.as_array().unwrap();
    assert!(list.len() > 10);
    let mut text = String::new();
    for recipe in list {
        let name = recipe["name"].as_str().unwrap();
        let _ = write!(
            text,
            "## `{name}`\n\n{}\n\n",
            prose(recipe["description"].as_str().unwrap())
        );
        let parameters = recipe["parameters"].as_array().unwrap();
        if !parameters.is_empty() {
            text.push_str("| parameter | type | default | meaning |\n| --- | --- | --- | --- |\n");
        }
        for one in parameters {
            let default = match &one["default"] {
                Value::Null => "required".to_owned(),
                Value::String(value) if value.is_empty() => "empty".to_owned(),
                Value::String(value) => format!("`{}`", cell(value)),
                value => format!("`{}`", cell(&value.to_string())),
            };
            let word = |key: &str| prose(one[key].as_str().unwrap_or_default());
            let _ = writeln!(
                text,
                "| `{}` | {} | {default} | {} |",
                word("name"),
                word("type"),
                word("description")
            );
        }
        let said = world.call(&["recipe", "doc", name]).exits(0).stdout;
        let sections = said.find("## What it does").map_or("", |at| &said[at..]);
        let sections = sections.split("\n## Parameters").next().unwrap();
        assert!(!sections.is_empty(), "{name} has no page:\n{said}");
        let _ = write!(
            text,
            "\n{}\n\n",
            sections.trim().replace("\n## ", "\n### ").replacen("## ", "### ", 1)
        );
    }
    let intro = "The recipes inside the program: `overnight run builtin:NAME`, `overnight recipe new FILE --from builtin:NAME`. Each has a sample:\n\
                 `overnight run builtin:NAME --sample` runs it on a copy of a small repository with recorded replies, without a key.";
    page("Shipped recipes", intro, &text)
}

fn tools(world: &World) -> String {
    let list = world.call(&["tools", "list", "--format", "json"]).exits(0).json();
    let list = list
        .as_array()
        .cloned()
        .or_else(|| list["tools"].as_array().cloned())
        .unwrap();
    assert!(list.len() > 8);
    let mut text = String::new();
    for tool in &list {
        let word = |key: &str| prose(tool[key].as_str().unwrap_or_default());
        let _ = write!(
            text,
            "## `{}`\n\n{}\n\nKind `{}`.",
            word("name"),
            word("description"),
            word("kind")
        );
        let aliases: Vec<String> = tool["aliases"]
            .as_array()
            .into_iter()
            .flatten()
            .filter_map(|alias| alias.as_str().map(|alias| format!("`{alias}`")))
            .collect();
        if !aliases.is_empty() {
            let _ = write!(text, " Also called as {}.", aliases.join(", "));
        }
        text.push_str("\n\n");
        let Some(properties) = tool["parameters"]["properties"]
            .as_object()
            .filter(|all| !all.is_empty())
        else {
            continue;
        };
        let required = tool["parameters"]["required"].as_array().cloned().unwrap_or_default();
        text.push_str("| argument | type | meaning |\n| --- | --- | --- |\n");
        for (name, schema) in properties {
            let must = if required.contains(&Value::from(name.as_str())) {
                ", required"
            } else {
                ""
            };
            let kind = match &schema["type"] {
                Value::String(kind) => kind.clone(),
                _ => "any".to_owned(),
            };
            let what = prose(schema["description"].as_str().unwrap_or_default());
            let _ = writeln!(text, "| `{name}` | {kind}{must} | {what} |");
        }
        text.push('\n');
    }
    let intro = "The built-in tools as `overnight tools list` shows them. Tools of MCP servers are called `SERVER__TOOL`. What a model may call is\n\
                 decided by the policy; only tools that some rule could allow are declared to it.";
    page("Tools", intro, &text)
}

fn reports() -> String {
    let mut text = String::from("| format | file of the run directory |\n| --- | --- |\n");
    for format in ReportFile::ALL {
        let file = format
            .file()
            .map_or_else(|| "only printed".to_owned(), |file| format!("`{file}`"));
        let _ = writeln!(text, "| `{}` | {file} |", format.as_str());
    }
    let intro = "`overnight report RUN --format FORMAT` prints any of these again from the journal.\n[What comes back](../outputs.md) describes the files.";
    page("Report formats", intro, &text)
}

#[derive(serde::Deserialize)]
struct Known {
    model: String,
    #[serde(default)]
    window: Option<u64>,
    #[serde(default)]
    price: Option<Value>,
}

fn models() -> String {
    let path = project().join("src/provider/pricing/models.json");
    let all: Vec<Known> = serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap();
    let mut text = String::from(
        "| model | window, tokens | input, cached, output: US dollars for a million tokens |\n| --- | ---: | --- |\n",
    );
    for one in &all {
        let window = one
            .window
            .map_or_else(|| "unknown".to_owned(), |window| window.to_string());
        let price = one.price.as_ref().map_or_else(
            || "unknown".to_owned(),
            |price| {
                let of = |key: &str| match &price[key] {
                    Value::Null => "–".to_owned(),
                    value => value.to_string(),
                };
                format!("{}, {}, {}", of("input"), of("cached"), of("output"))
            },
        );
        let _ = writeln!(text, "| `{}` | {window} | {price} |", one.model);
    }
    let intro = "What the program knows of models: a limit on cost needs a price, and compaction a window. A name followed by\n\
                 `-` or `@` and three or more digits, `latest` or `preview…` means the same model. The file that `OVERNIGHT_PRICES` names goes before this table. The list price of a service may have changed since.";
    page("Known models", intro, &text)
}

/// What a parser takes as text is written as one word; nothing said means anything.
fn plain(mut kinds: Vec<String>) -> Vec<String> {
    let scalar = ["string", "number", "boolean"];
    if scalar.iter().all(|kind| kinds.iter().any(|one| one == kind)) {
        kinds.retain(|kind| !scalar.contains(&kind.as_str()));
        kinds.insert(0, "text".to_owned());
    }
    if kinds.is_empty() {
        kinds.push("any".to_owned());
    }
    kinds
}

/// A JSON Schema as tables of keys.
struct Keys<'a> {
    root: &'a Value,
    rows: String,
    /// Definitions that are being described, so that a recursive one ends.
    open: Vec<String>,
}

impl<'a> Keys<'a> {
    /// The schemas that one stands for: itself, what it refers to, its alternatives.
    fn parts(&self, schema: &'a Value) -> Vec<(Option<String>, &'a Value)> {
        let mut all = vec![(None, schema)];
        if let Some(path) = schema["$ref"].as_str().and_then(|path| path.strip_prefix('#')) {
            let target = self
                .root
                .pointer(path)
                .unwrap_or_else(|| panic!("{path} leads nowhere"));
            for (name, part) in self.parts(target) {
                all.push((name.or(Some(path.to_owned())), part));
            }
        }
        for key in ["allOf", "anyOf", "oneOf"] {
            for part in schema[key].as_array().into_iter().flatten() {
                all.extend(self.parts(part));
            }
        }
        all
    }

    fn kinds(&self, schema: &'a Value) -> Vec<String> {
        let mut found: Vec<String> = Vec::new();
        let mut add = |kind: String| {
            if !kind.is_empty() && !found.contains(&kind) {
                found.push(kind);
            }
        };
        for (_, part) in self.parts(schema) {
            let quoted = |value: &Value| match value {
                Value::String(text) => format!("`{text}`"),
                value => format!("`{value}`"),
            };
            if let Some(value) = part.get("const") {
                add(quoted(value));
            } else if let Some(values) = part["enum"].as_array() {
                values.iter().map(quoted).for_each(&mut add);
            } else {
                let types = part["type"]
                    .as_array()
                    .cloned()
                    .unwrap_or_else(|| vec![part["type"].clone()]);
                for kind in types.iter().filter_map(Value::as_str) {
                    let items = part.get("items").map(|items| self.kinds(items).join(" or "));
                    add(match (kind, items) {
                        ("array", Some(items)) if !items.is_empty() => format!("list of {items}"),
                        ("array", _) => "list".to_owned(),
                        ("object", _) => "mapping".to_owned(),
                        (kind, _) => kind.to_owned(),
                    });
                }
            }
        }
        plain(found)
    }

    fn described(&self, schema: &'a Value, key: &str) -> Option<String> {
        let parts = self.parts(schema);
        parts.iter().find_map(|(_, part)| match &part[key] {
            Value::Null => None,
            Value::String(text) => Some(text.clone()),
            value => Some(value.to_string()),
        })
    }

    /// Rows for what lies below `path`.
    fn below(&mut self, schema: &'a Value, path: &str) {
        for (name, part) in self.parts(schema) {
            if let Some(name) = &name {
                if self.open.contains(name) {
                    continue;
                }
                self.open.push(name.clone());
            }
            let required = part["required"].as_array().cloned().unwrap_or_default();
            for (key, value) in part["properties"].as_object().into_iter().flatten() {
                let longer = if path.is_empty() {
                    key.clone()
                } else {
                    format!("{path}.{key}")
                };
                let must = if required.contains(&Value::from(key.as_str())) {
                    ", required"
                } else {
                    ""
                };
                let default = self
                    .described(value, "default")
                    .map(|value| format!("; default `{value}`"));
                let meaning = prose(&self.described(value, "description").unwrap_or_default());
                let row = format!(
                    "| `{longer}` | {}{must}{} | {meaning} |\n",
                    cell(&self.kinds(value).join(", ")),
                    default.unwrap_or_default()
                );
                if !self.rows.contains(&row) {
                    self.rows.push_str(&row);
                }
                self.below(value, &longer);
            }
            if part["items"].is_object() {
                self.below(&part["items"], &format!("{path}[]"));
            }
            if part["additionalProperties"].is_object() {
                self.below(&part["additionalProperties"], &format!("{path}.NAME"));
            }
            if name.is_some() {
                self.open.pop();
            }
        }
    }
}

/// The word of an alternative that says which one it is, as the kind of an event.
fn distinction(alternative: &Value) -> Option<&str> {
    let properties = alternative["properties"].as_object()?;
    properties.values().find_map(|value| value["const"].as_str())
}

/// A schema of alternatives that each say which one they are, wherever it stands: what they share, and each of them.
fn alternatives(root: &Value) -> (Value, Vec<Value>) {
    let definitions = root["definitions"].as_object().into_iter().flat_map(|all| all.values());
    let lists = std::iter::once(root)
        .chain(definitions)
        .filter_map(|holder| Some((holder, holder["oneOf"].as_array()?)));
    let distinct = lists.filter(|(_, list)| list.len() > 2 && list.iter().all(|one| distinction(one).is_some()));
    // Of several the longest: a part of an event has kinds too.
    if let Some((holder, list)) = distinct.max_by_key(|(_, list)| list.len()) {
        let mut common = holder.clone();
        common["oneOf"] = Value::Null;
        return (common, list.clone());
    }
    (root.clone(), Vec::new())
}

fn table(root: &Value, schema: &Value) -> String {
    let mut keys = Keys {
        root,
        rows: String::new(),
        open: Vec::new(),
    };
    keys.below(schema, "");
    format!("| key | value | meaning |\n| --- | --- | --- |\n{}\n", keys.rows)
}

fn keys(world: &World, title: &str, intro: &str, kinds: &[&str]) -> String {
    let mut text = String::new();
    for kind in kinds {
        let schema = world.call(&["schema", kind]).exits(0).json();
        let what = prose(schema["description"].as_str().unwrap_or_default());
        let _ = write!(text, "## `overnight schema {kind}`\n\n{what}\n\n");
        let (common, alternatives) = alternatives(&schema);
        text.push_str(&table(&schema, &common));
        for one in &alternatives {
            let what = prose(one["description"].as_str().unwrap_or_default());
            let _ = write!(text, "### `{}`\n\n{what}\n\n", distinction(one).unwrap());
            text.push_str(&table(&schema, one));
        }
    }
    page(title, intro, &text)
}

/// The pages of keys, where this program prints schemas.
fn key_pages(world: &World) -> Vec<(&'static str, &'static str, String)> {
    if world.call(&["schema", "recipe"]).code != 0 {
        return Vec::new();
    }
    let files = "A key that is not here is an error. `a.b` is the key `b` below `a`, `a[].b` that of each entry of the list `a`.\n\
                 The same as a JSON Schema for editors: `overnight schema KIND`.";
    let outputs = "Keys are added, and keep name, type and meaning; ignore those that you do not know. The same as a JSON Schema:\n\
                   `overnight schema KIND`.";
    vec![
        (
            "Keys of a recipe",
            "recipe-keys.md",
            keys(world, "Keys of a recipe", files, &["recipe"]),
        ),
        (
            "Keys of a policy",
            "policy-keys.md",
            keys(world, "Keys of a policy", files, &["policy", "profile"]),
        ),
        (
            "Keys of a manifest",
            "batch-keys.md",
            keys(world, "Keys of a manifest", files, &["batch", "job"]),
        ),
        (
            "Keys of a table of cases",
            "cases-keys.md",
            keys(world, "Keys of a table of cases", files, &["cases"]),
        ),
        (
            "Keys of a script",
            "script-keys.md",
            keys(world, "Keys of a script", files, &["script"]),
        ),
        (
            "Keys of results",
            "result-keys.md",
            keys(
                world,
                "Keys of results",
                outputs,
                &["result", "batch-result", "runs", "deliver", "findings", "error"],
            ),
        ),
        (
            "Keys of events",
            "event-keys.md",
            keys(world, "Keys of events", outputs, &["event"]),
        ),
    ]
}

/// The part of the summary that names the reference pages, compared or written.
fn summary(pages: &[(&str, &str, String)]) -> Option<String> {
    let path = project().join(".github/docs/src/SUMMARY.md");
    let text = std::fs::read_to_string(&path).unwrap();
    let (head, _) = text.split_once("# Reference\n").unwrap();
    let list: String = pages
        .iter()
        .map(|(title, name, _)| format!("- [{title}](reference/{name})\n"))
        .collect();
    let wanted = format!("{head}# Reference\n\n{list}");
    if std::env::var_os("UPDATE_EXPECT").is_some() {
        std::fs::write(&path, &wanted).unwrap();
        return None;
    }
    (text != wanted).then(|| "SUMMARY.md".to_owned())
}

#[test]
fn the_reference_is_that_of_this_program() {
    let world = World::new();
    let mut pages = vec![
        ("Commands", "commands.md", commands()),
        ("Environment variables", "variables.md", environment()),
        ("Exit codes", "exit-codes.md", exit_codes()),
    ];
    pages.extend(key_pages(&world));
    pages.extend([
        ("Report formats", "reports.md", reports()),
        ("Reason codes of rulings", "reason-codes.md", reason_codes()),
        ("Protected and secret-like names", "protected.md", protected()),
        ("Shipped policies", "policies.md", shipped_policies(&world)),
        ("Shipped recipes", "recipes.md", shipped_recipes(&world)),
        ("Tools", "tools.md", tools(&world)),
        ("Known models", "models.md", models()),
    ]);
    let mut stale: Vec<String> = pages.iter().filter_map(|(_, name, text)| compare(name, text)).collect();
    stale.extend(summary(&pages));
    assert!(
        stale.is_empty(),
        "the guide's reference is not that of this program: {stale:?}; UPDATE_EXPECT=1 cargo test --test it guide_reference"
    );
    let written = std::fs::read_dir(project().join(".github/docs/src/reference")).unwrap();
    for entry in written {
        let name = entry.unwrap().file_name().to_string_lossy().into_owned();
        assert!(
            pages.iter().any(|(_, known, _)| *known == name),
            "{name} is made by nobody"
        );
    }
}

/// Names that the sources read and no page lists, each with a reason.
const UNLISTED: [(&str, &str); 3] = [
    (
        "MCP_CONFORMANCE_CONTEXT",
        "of a hidden command, for the conformance tests of MCP",
    ),
    ("OVERNIGHT_LONG", "of a unit test"),
    ("file_path", "an argument of a tool, not a variable"),
];

/// The names in quotes that follow one of these texts.
fn names_after<'a>(text: &'a str, starts: &[&str]) -> Vec<&'a str> {
    let found = starts.iter().flat_map(|start| text.split(start).skip(1));
    let names = found.filter_map(|rest| rest.split('"').next());
    let plain = |name: &&str| !name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
    names.filter(plain).collect()
}

/// The variables that the sources name where one is read: in calls, and in the tables whose entries are looked up.
fn variables_read(dir: &Path, found: &mut BTreeSet<String>) {
    const CALLS: [&str; 7] = [
        "variable(\"",
        "var_os(\"",
        "env::var(\"",
        "read(\"",
        "set(\"",
        ".place(\"",
        ".var(\"",
    ];
    const TABLES: [&str; 7] = [
        "const CONVENTIONS:",
        "const ENDPOINTS:",
        "const EVENTS:",
        "const KEPT:",
        "const RUNNERS:",
        "const TARGETS:",
        "const WRITE_TOKENS:",
    ];
    const FILES: [&str; 6] = [
        "batch/shard.rs",
        "cli/committed.rs",
        "cli/out.rs",
        "cli/privileged_event.rs",
        "net/objects/cloud.rs",
        "process/user_git.rs",
    ];
    for entry in std::fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        let name = path.strip_prefix(project()).unwrap().to_string_lossy().into_owned();
        if path.is_dir() {
            variables_read(&path, found);
        } else if name.ends_with(".rs") && !name.contains("tests") {
            let text = std::fs::read_to_string(&path).unwrap();
            let code = text.split("#[cfg(test)]").next().unwrap();
            found.extend(names_after(code, &CALLS).into_iter().map(str::to_owned));
            if !FILES.iter().any(|file| name.ends_with(file)) {
                continue;
            }
            for table in TABLES.iter().filter_map(|start| code.split(start).nth(1)) {
                let rows = table.split("];").next().unwrap();
                let quoted = rows.split('"').skip(1).step_by(2);
                let is_name =
                    |name: &&str| name.contains('_') && !name.contains(|c: char| !c.is_ascii_uppercase() && c != '_');
                found.extend(quoted.filter(is_name).map(str::to_owned));
            }
        }
    }
}

#[test]
fn every_variable_that_is_read_is_on_the_page() {
    let mut read = BTreeSet::new();
    variables_read(&project().join("src"), &mut read);
    for wire in overnight::provider::wire::ALL {
        let service = wire.service();
        read.extend(
            service
                .key_names
                .iter()
                .chain([&service.base_variable])
                .map(|name| (*name).to_owned()),
        );
    }
    for target in [DeliverTarget::Github, DeliverTarget::Gitlab, DeliverTarget::Forgejo] {
        let names = target.token_variables().iter().copied().chain(target.api_variable());
        read.extend(names.map(str::to_owned));
    }
    assert!(read.len() > 80, "{read:?}");
    let listed: BTreeSet<&str> = variables::ALL
        .iter()
        .flat_map(|(names, _)| names.split([',', ' ']))
        .collect();
    let is_listed = |name: &str| {
        let whole_family = |prefix: &&str| prefix.len() > 3 && prefix.ends_with('_') && name.starts_with(*prefix);
        listed.contains(name) || listed.iter().any(whole_family) || UNLISTED.iter().any(|(known, _)| *known == name)
    };
    read.retain(|name| !is_listed(name));
    assert!(read.is_empty(), "add these to src/cli/variables.rs: {read:?}");
}
