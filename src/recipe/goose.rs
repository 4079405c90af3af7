//! Converts a goose recipe (format 1.0.0). What cannot be converted is an error; what has no effect in a run without a
//! person is ignored; what the run can do without is a warning.
//!
//! Parameters, prompt, instructions, response schema, checks, servers and model are converted. The texts are parsed
//! first and filled in afterwards, so that a value can never change the document; in goose it can.

use super::model::{
    BudgetSpec, CheckKind, CheckSpec, Parameter, ParameterType, RESPONSE_RETRIES, Recipe, ResponseSpec, SchemaSpec,
    ServerSpec, Step, StepSource, SubRecipe, ToolsSpec,
};
use super::params;
use crate::diag::reader::{self, Problems};
use crate::diag::{self, Diagnostic, Reader, Shape, SourceFiles, Span, Spanned, YamlNode};
use serde_json::Value;

/// Keys without effect in a run without a person.
const IGNORED: [&str; 6] = ["version", "author", "activities", "id", "tags", "name"];
/// Extensions whose functions the built-in tools have.
const COVERED: [&str; 5] = ["developer", "todo", "analyze", "code_execution", "skills"];
/// Limit of a check's time in goose, in seconds.
const CHECK_SECONDS: u64 = 300;

/// The map of a goose recipe, if the document is one: it has a `title` and no key that only recipes of `overnight`
/// have. The desktop application nests the map under `recipe`.
pub(super) fn of(root: &YamlNode) -> Option<&YamlNode> {
    let own = root.get("steps").is_some();
    let is_one = |node: &YamlNode| {
        let says = node.get("prompt").is_some() || node.get("instructions").is_some();
        node.get("title").is_some() && says
    };
    match root.get("recipe").filter(|inner| is_one(inner)) {
        Some(inner) if !own => Some(inner),
        _ => (!own && is_one(root)).then_some(root),
    }
}

/// Converts a goose recipe.
///
/// `file` is the recipe's name as it was given; goose knows its directory as `recipe_dir`.
pub(super) fn read(root: &YamlNode, file: &str, problems: &mut Problems) -> Option<Recipe> {
    let mut reader = Reader::open(root, "the goose recipe", problems)?;
    let head = reader.head();
    let title = reader.need_text("title", problems);
    let description = reader
        .text("description", problems)
        .map(|text| text.value)
        .unwrap_or_default();
    let instructions = reader.text("instructions", problems);
    let prompt = reader.text("prompt", problems);
    let parameters = parameters(&mut reader, problems);
    let mut tools = ToolsSpec::default();
    let mut memory = false;
    for node in reader.items("extensions", problems).unwrap_or_default() {
        extension(node, &mut tools, &mut memory, problems);
    }
    let (models, turns) = settings(&mut reader, problems);
    let response = response(&mut reader, problems);
    let (mut checks, retries) = retry(&mut reader, problems);
    let parts: &[YamlNode] = match reader.node("sub_recipes") {
        Some(node) if !is_empty(node) => reader.items("sub_recipes", problems).unwrap_or_default(),
        _ => &[],
    };
    tools.sub_recipes = parts.iter().filter_map(|node| sub_recipe(node, problems)).collect();
    for key in IGNORED {
        reader.node(key);
    }
    // Published recipes contain keys that goose itself does not know; `overnight` is strict only about its own recipes.
    if let Shape::Map(entries) = &root.shape {
        for entry in entries {
            if KEYS.contains(&entry.key.as_str()) || IGNORED.contains(&entry.key.as_str()) {
                continue;
            }
            let message = format!("goose has no key `{}`; it is ignored", entry.key);
            let help = match diag::similar_word(&entry.key, KEYS) {
                Some(near) => format!("did you mean `{near}`?"),
                None => "remove it".to_owned(),
            };
            problems.push(Diagnostic::warning("goose", entry.key_span, message).help(help));
        }
    }
    for server in &mut tools.mcp_servers {
        for word in server.command.iter_mut().chain(&mut server.args) {
            in_directory(word, file, problems);
        }
    }
    for check in &mut checks {
        if let CheckKind::Run { command, .. } = &mut check.what {
            in_directory(command, file, problems);
        }
    }
    let text = text(instructions, prompt, head, problems)?;
    let text = with_files(with_directory(text, file, problems), &parameters, problems);
    let title = title?;
    let step = Step {
        checks,
        retries,
        ..Step::plain(at(head, "task".to_owned()), StepSource::Prompt(text))
    };
    let name = at(title.span, recipe_name(&title.value));
    Some(Recipe {
        description,
        parameters,
        models,
        budget: BudgetSpec {
            turns,
            ..BudgetSpec::default()
        },
        memory,
        tools,
        response,
        ..Recipe::foreign(name, vec![step], head)
    })
}

/// The keys that are converted.
const KEYS: [&str; 10] = [
    "title",
    "description",
    "instructions",
    "prompt",
    "parameters",
    "extensions",
    "settings",
    "response",
    "retry",
    "sub_recipes",
];

fn at<T>(span: Span, value: T) -> Spanned<T> {
    Spanned { value, span }
}

fn is_empty(node: &YamlNode) -> bool {
    node.is_null() || matches!(&node.shape, Shape::List(items) if items.is_empty())
}

/// A title as a recipe name.
pub(super) fn recipe_name(title: &str) -> String {
    let mut name = String::new();
    for c in title.chars().flat_map(char::to_lowercase) {
        match c {
            c if c.is_alphanumeric() => name.push(c),
            _ if name.ends_with('-') || name.is_empty() => {}
            _ => name.push('-'),
        }
    }
    let name: String = name.chars().take(60).collect();
    let name = name.trim_matches('-').to_owned();
    if name.is_empty() { "goose".to_owned() } else { name }
}

/// Instructions and prompt, joined with a blank line.
fn text(
    instructions: Option<Spanned<String>>,
    prompt: Option<Spanned<String>>,
    head: Span,
    problems: &mut Problems,
) -> Option<Spanned<String>> {
    let text = match (instructions, prompt) {
        (Some(above), Some(below)) => at(below.span, format!("{}\n\n{}", above.value.trim_end(), below.value)),
        (Some(only), None) | (None, Some(only)) => only,
        (None, None) => {
            problems.push(Diagnostic::error(
                "goose",
                head,
                "this goose recipe has neither `prompt` nor `instructions`",
            ));
            return None;
        }
    };
    Some(at(text.span, literal(&text.value)))
}

/// The byte ranges of `{{ NAME }}` for one name, blanks aside.
fn uses(text: &str, name: &str) -> Vec<std::ops::Range<usize>> {
    let mut found = Vec::new();
    let mut at = 0;
    while let Some(open) = text.get(at..).and_then(|rest| rest.find("{{")) {
        let begin = at + open;
        let Some(length) = text.get(begin..).and_then(|rest| rest.find("}}")) else {
            break;
        };
        let end = begin + length + 2;
        let inner = text.get(begin + 2..end - 2).unwrap_or_default();
        if inner.trim_matches('-').trim() == name {
            found.push(begin..end);
        }
        at = end;
    }
    found
}

/// Whether an expression or a statement of the template names this value.
fn is_in_a_tag(text: &str, name: &str) -> bool {
    [("{{", "}}"), ("{%", "%}")].iter().any(|(begin, end)| {
        text.split(begin).skip(1).any(|after| {
            let inner = after.split_once(end).map_or("", |(inner, _)| inner);
            let is_name = |c: char| c.is_alphanumeric() || c == '_';
            inner.split(|c| !is_name(c)).any(|word| word == name)
        })
    })
}

/// The recipe's directory in place of `{{ recipe_dir }}`.
fn with_directory(mut text: Spanned<String>, file: &str, problems: &mut Problems) -> Spanned<String> {
    if let Some(dir) = put_directory(&mut text, file) {
        let message = format!("`recipe_dir` is `{dir}`; the model can read it only if it is inside the workspace");
        problems.push(
            Diagnostic::warning("goose", text.span, message).help("keep files that the model needs in the workspace"),
        );
    }
    text
}

/// As [`with_directory`], for a part of a command of the recipe.
fn in_directory(text: &mut Spanned<String>, file: &str, problems: &mut Problems) {
    if let Some(dir) = put_directory(text, file) {
        let message = format!("`recipe_dir` is `{dir}`, which commands take as relative to the workspace");
        problems.push(
            Diagnostic::warning("goose", text.span, message)
                .help("give the recipe's path from the top of the workspace"),
        );
    }
}

/// Fills in `{{ recipe_dir }}`; returns the directory if the text contains the placeholder.
fn put_directory<'a>(text: &mut Spanned<String>, file: &'a str) -> Option<&'a str> {
    let places = uses(&text.value, "recipe_dir");
    let dir = file.rsplit_once('/').map_or(".", |(dir, _)| dir);
    let plain = super::gemini_command::literal(dir);
    let found = (!places.is_empty()).then_some(dir);
    for place in places.into_iter().rev() {
        text.value.replace_range(place, &plain);
    }
    found
}

/// Replaces each use of a `file` parameter by a reference to the file, because goose inserts the file's text there.
fn with_files(text: Spanned<String>, parameters: &[Parameter], problems: &mut Problems) -> Spanned<String> {
    let span = text.span;
    text.map(|mut value| {
        for parameter in parameters
            .iter()
            .filter(|parameter| parameter.kind == ParameterType::Path)
        {
            let name = &parameter.name.value;
            let places = uses(&value, name);
            if places.is_empty() && is_in_a_tag(&value, name) {
                let message = format!("in an expression, `{name}` is the file's path, not its text");
                problems.push(Diagnostic::warning("goose", span, message));
            }
            for place in places.into_iter().rev() {
                // A file reference must begin a word.
                let before = value.get(..place.start).and_then(|before| before.chars().next_back());
                let blank = before.is_some_and(|c| !c.is_whitespace() && !matches!(c, '(' | '[' | '"' | '\'' | '`'));
                let reference = format!("{}@{{{{ {name} }}}}", if blank { " " } else { "" });
                value.replace_range(place, &reference);
            }
        }
        value
    })
}

/// Escapes braces around several words, which goose treats as text.
fn literal(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some((before, after)) = rest.split_once("{{") {
        out.push_str(before);
        let Some((inner, behind)) = after.split_once("}}") else {
            out.push_str("{{");
            rest = after;
            continue;
        };
        let words: Vec<&str> = inner.trim_matches('-').split_whitespace().collect();
        let plain = |word: &&str| {
            word.chars()
                .all(|c| c.is_alphanumeric() || matches!(c, '_' | '-' | '\'' | '.'))
        };
        let operators = ["if", "else", "is", "not", "in", "and", "or"];
        let several = words.len() > 1
            && words
                .iter()
                .all(|word| plain(word) && !operators.contains(word) && !word.starts_with('\''));
        match several || words.is_empty() {
            true => out.push_str(&super::gemini_command::literal(&format!("{{{{{inner}}}}}"))),
            false => out.push_str(&format!("{{{{{inner}}}}}")),
        }
        rest = behind;
    }
    out + rest
}

fn parameters(reader: &mut Reader<'_>, problems: &mut Problems) -> Vec<Parameter> {
    let nodes: &[YamlNode] = match reader.node("parameters") {
        Some(node) if !is_empty(node) => reader.items("parameters", problems).unwrap_or_default(),
        _ => &[],
    };
    nodes.iter().filter_map(|node| parameter(node, problems)).collect()
}

fn parameter(node: &YamlNode, problems: &mut Problems) -> Option<Parameter> {
    let mut reader = Reader::open(node, "this parameter", problems)?;
    let name = reader.need_text("key", problems)?;
    let input = reader.text("input_type", problems);
    let requirement = reader
        .text("requirement", problems)
        .map(|word| word.value)
        .unwrap_or_default();
    let description = reader
        .text("description", problems)
        .map(|text| text.value)
        .unwrap_or_default();
    let options = reader.items("options", problems).unwrap_or_default();
    let default = reader.node("default").filter(|node| !node.is_null());
    if !params::is_name(&name.value) {
        let message = format!("a parameter cannot be called `{}`", name.value);
        problems.push(Diagnostic::error("bad-name", name.span, message).help("rename it in the recipe and its texts"));
        return None;
    }
    let word = input.as_ref().map_or("string", |word| word.value.as_str());
    let kind = match word {
        // goose treats a date as a string, too.
        "string" | "date" => ParameterType::String,
        "number" => ParameterType::Number,
        "boolean" => ParameterType::Boolean,
        "select" => ParameterType::Enum,
        "file" => ParameterType::Path,
        other => {
            let span = input.as_ref().map_or(name.span, |word| word.span);
            let message = format!("a parameter of type `{other}` cannot be converted");
            let help = "make it a `string`, or use `--input` instead";
            problems.push(Diagnostic::error("goose", span, message).help(help));
            return None;
        }
    };
    let choices: Vec<Value> = options
        .iter()
        .filter_map(|option| reader::text(option, "options", problems))
        .map(|option| Value::String(option.value))
        .collect();
    let default = match (default, requirement.as_str()) {
        (Some(node), _) => given(node, kind, &choices, &name.value, problems),
        // In goose, using an optional parameter without a default is an error; authors mean an empty value.
        (None, "optional") if kind == ParameterType::String => Some(Value::String(String::new())),
        _ => None,
    };
    Some(Parameter {
        name,
        kind,
        description,
        default,
        choices,
    })
}

/// A default value, which goose always writes as a string, converted to the parameter's type.
fn given(
    node: &YamlNode,
    kind: ParameterType,
    choices: &[Value],
    name: &str,
    problems: &mut Problems,
) -> Option<Value> {
    match kind {
        ParameterType::String | ParameterType::Enum | ParameterType::Path => {
            let text = reader::text(node, "default", problems)?;
            let value = Value::String(text.value.clone());
            if kind == ParameterType::Enum && !choices.contains(&value) {
                let message = format!("the default of `{name}` is not one of its options");
                problems.push(Diagnostic::error("goose", text.span, message));
                return None;
            }
            Some(value)
        }
        _ => {
            let text = reader::text(node, "default", problems)?;
            let parsed: Result<Value, _> = serde_json::from_str(text.value.trim());
            match parsed {
                Ok(value @ (Value::Number(_) | Value::Bool(_))) => Some(value),
                _ => {
                    let message = format!("the default of `{name}` is not of type `{}`", kind.as_str());
                    problems.push(Diagnostic::error("goose", text.span, message));
                    None
                }
            }
        }
    }
}

fn sub_recipe(node: &YamlNode, problems: &mut Problems) -> Option<SubRecipe> {
    let mut reader = Reader::open(node, "this sub-recipe", problems)?;
    let name = reader.need_text("name", problems);
    let path = reader.need_text("path", problems);
    let values = reader.text_map("values", problems).unwrap_or_default();
    let description = reader
        .text("description", problems)
        .map(|text| text.value)
        .unwrap_or_default();
    Some(SubRecipe {
        name: name?,
        path: path?,
        values: values.into_iter().map(|(name, text)| (name, text.value)).collect(),
        description,
    })
}

/// The text of a sub-recipe as a part of the task, and warnings about what is left out. Values that the recipe gives
/// are filled in; other parameters appear in angle brackets for the model to choose.
///
/// # Errors
/// A sentence for people: the file is not a goose recipe.
pub(super) fn part(part: &SubRecipe, text: &str) -> Result<(String, Vec<String>), String> {
    let mut files = SourceFiles::new();
    let file = files.add(part.path.value.clone(), text);
    let root = crate::diag::parse(&files, file).map_err(|problems| {
        problems
            .into_iter()
            .next()
            .map(|problem| problem.message)
            .unwrap_or_default()
    })?;
    let recipe = of(&root).ok_or("it is not a goose recipe: `title` and `prompt` or `instructions` are missing")?;
    let text = |key: &str| match recipe.get(key).map(|node| &node.shape) {
        Some(Shape::Scalar(scalar)) if !scalar.is_null() => Some(scalar.text.clone()),
        _ => None,
    };
    let mut body: Vec<String> = ["instructions", "prompt"].iter().filter_map(|key| text(key)).collect();
    let names = match recipe.get("parameters").map(|node| &node.shape) {
        Some(Shape::List(items)) => items
            .iter()
            .filter_map(|item| match item.get("key").map(|node| &node.shape) {
                Some(Shape::Scalar(scalar)) => Some(scalar.text.clone()),
                _ => None,
            })
            .collect(),
        _ => Vec::new(),
    };
    for name in &names {
        let given = part.values.iter().find(|(known, _)| known == name);
        let value = given.map_or_else(|| format!("<{name}>"), |(_, value)| value.clone());
        for text in &mut body {
            for place in uses(text, name).into_iter().rev() {
                text.replace_range(place, &value);
            }
        }
    }
    let mut warnings = Vec::new();
    for (key, what) in [
        (
            "extensions",
            "its extensions are not started beside those of the recipe that names it",
        ),
        ("sub_recipes", "its own sub-recipes are left out"),
        ("response", "its `response` does not restrict its result"),
        ("retry", "its `retry` checks are not run"),
    ] {
        let own = recipe.get(key).filter(|node| !is_empty(node));
        let covered = key == "extensions" && own.is_some_and(only_covered);
        if own.is_some() && !covered {
            warnings.push(what.to_owned());
        }
    }
    let purpose = match part.description.trim() {
        "" => text("description").unwrap_or_default(),
        own => own.to_owned(),
    };
    let whole = format!(
        "\n## {}\n\n{}\n\n{}\n",
        part.name.value,
        purpose.trim(),
        body.join("\n\n").trim()
    );
    Ok((super::gemini_command::literal(&whole), warnings))
}

/// Whether the built-in tools have the functions of all extensions.
fn only_covered(node: &YamlNode) -> bool {
    let Shape::List(items) = &node.shape else { return false };
    items.iter().all(|item| match item.get("name").map(|node| &node.shape) {
        Some(Shape::Scalar(scalar)) => COVERED.contains(&scalar.text.as_str()),
        _ => false,
    })
}

fn extension(node: &YamlNode, tools: &mut ToolsSpec, memory: &mut bool, problems: &mut Problems) {
    let Some(mut reader) = Reader::open(node, "this extension", problems) else {
        return;
    };
    let head = reader.head();
    let kind = reader.text("type", problems).map(|word| word.value).unwrap_or_default();
    let Some(name) = reader.text("name", problems) else {
        return;
    };
    let cannot = |what: &str, help: &str, problems: &mut Problems| {
        problems.push(
            Diagnostic::error("goose", head, format!("the extension `{}` {what}", name.value)).help(help.to_owned()),
        );
    };
    match kind.as_str() {
        "builtin" | "platform" if COVERED.contains(&name.value.as_str()) => {}
        "builtin" | "platform" if name.value == "memory" => *memory = true,
        "builtin" | "platform" => {
            let message = format!(
                "the extension `{}` is part of goose and is left out: its tools are not offered",
                name.value
            );
            problems.push(Diagnostic::warning("goose", head, message).help("name an MCP server that has its tools"));
        }
        "stdio" => {
            let command = reader.need_text("cmd", problems);
            let args = reader.texts("args", problems).unwrap_or_default();
            let mut server = server(&name, &mut reader, problems);
            server.command = command;
            server.args = args;
            tools.mcp_servers.push(server);
        }
        "streamable_http" => {
            let url = reader.need_text("uri", problems);
            let headers = reader.text_map("headers", problems).unwrap_or_default();
            let mut server = server(&name, &mut reader, problems);
            server.url = url;
            server.headers = headers;
            server.transport = Some("http");
            tools.mcp_servers.push(server);
        }
        "sse" => cannot(
            "uses SSE, which goose itself no longer supports",
            "name its streamable HTTP address",
            problems,
        ),
        other => cannot(
            &format!("has the type `{other}`, which cannot be converted"),
            "make it an MCP server",
            problems,
        ),
    }
}

fn server(name: &Spanned<String>, reader: &mut Reader<'_>, problems: &mut Problems) -> ServerSpec {
    let mut env = reader.text_map("envs", problems).unwrap_or_default();
    // Names of environment variables that are passed on.
    for key in reader.texts("env_keys", problems).unwrap_or_default() {
        env.push((key.value.clone(), at(key.span, format!("${{{}}}", key.value))));
    }
    let only = reader.texts("available_tools", problems).unwrap_or_default();
    let timeout = reader
        .whole("timeout", problems)
        .map(|seconds| seconds.value.saturating_mul(1000));
    ServerSpec {
        name: at(name.span, recipe_name(&name.value)),
        command: None,
        args: Vec::new(),
        env,
        cwd: None,
        url: None,
        transport: None,
        headers: Vec::new(),
        required: true,
        timeout_ms: timeout,
        include_tools: (!only.is_empty()).then(|| only.into_iter().map(|tool| tool.value).collect()),
        exclude_tools: Vec::new(),
        network: Vec::new(),
        oauth: None,
        writes_tree: false,
    }
}

fn settings(reader: &mut Reader<'_>, problems: &mut Problems) -> (Vec<Spanned<String>>, Option<u64>) {
    let Some(mut map) = reader.map("settings", "`settings`", problems) else {
        return (Vec::new(), None);
    };
    let provider = map.text("goose_provider", problems);
    let model = map.text("goose_model", problems);
    let turns = map.whole("max_turns", problems).map(|turns| turns.value);
    if let Some(entry) = map.entry("temperature") {
        let message = "`temperature` is ignored: the service's default applies";
        problems.push(Diagnostic::warning("goose", entry.key_span, message));
    }
    let models = match (provider, model) {
        (Some(provider), Some(model)) => {
            let ours = match provider.value.as_str() {
                "google" | "gemini" => Some("gemini"),
                "openai" => Some("openai"),
                "anthropic" => Some("anthropic"),
                _ => None,
            };
            match ours {
                Some(ours) => vec![at(model.span, format!("{ours}/{}", model.value))],
                None => {
                    let message = format!(
                        "the provider `{}` is not known here: name a model with --model",
                        provider.value
                    );
                    problems.push(Diagnostic::warning("goose", provider.span, message));
                    Vec::new()
                }
            }
        }
        _ => Vec::new(),
    };
    (models, turns)
}

fn response(reader: &mut Reader<'_>, problems: &mut Problems) -> Option<ResponseSpec> {
    let mut map = reader.map("response", "`response`", problems)?;
    let schema = map.node("json_schema")?.clone();
    Some(ResponseSpec {
        schema: SchemaSpec::Inline(schema),
        retries: RESPONSE_RETRIES,
    })
}

fn retry(reader: &mut Reader<'_>, problems: &mut Problems) -> (Vec<CheckSpec>, u32) {
    let Some(mut map) = reader.map("retry", "`retry`", problems) else {
        return (Vec::new(), 0);
    };
    let retries = map.whole("max_retries", problems).map_or(0, |most| most.value);
    let seconds = map
        .whole("timeout_seconds", problems)
        .map_or(CHECK_SECONDS, |seconds| seconds.value);
    if let Some(span) = map.entry("on_failure").map(|entry| entry.key_span) {
        let prints = map
            .text("on_failure", problems)
            .is_some_and(|command| only_prints(&command.value));
        let problem = match prints {
            true => Diagnostic::warning(
                "goose",
                span,
                "`on_failure` only prints and is ignored: the failed checks are sent to the model",
            ),
            false => Diagnostic::error(
                "goose",
                span,
                "`on_failure` cannot be converted: a failed check is sent back to the model, and the tree is left unchanged",
            ),
        };
        problems.push(problem.help("turn it into a step, or remove it"));
    }
    let mut checks = Vec::new();
    for (index, node) in map.items("checks", problems).unwrap_or_default().iter().enumerate() {
        let Some(mut check) = Reader::open(node, "this check", problems) else {
            continue;
        };
        let head = check.head();
        let kind = check.text("type", problems).map(|word| word.value).unwrap_or_default();
        let Some(command) = check.need_text("command", problems) else {
            continue;
        };
        if kind != "shell" {
            problems.push(Diagnostic::error(
                "goose",
                head,
                format!("a check of type `{kind}` cannot be converted"),
            ));
            continue;
        }
        checks.push(CheckSpec {
            name: at(head, format!("check-{}", index + 1)),
            what: CheckKind::Run {
                command,
                timeout_ms: Some(seconds.saturating_mul(1000)),
            },
        });
    }
    (checks, u32::try_from(retries.min(100)).unwrap_or(100))
}

/// Whether a command has no effect but its output.
fn only_prints(command: &str) -> bool {
    let mut quoted = false;
    let mut plain = String::new();
    for c in command.trim().chars() {
        match c {
            '\'' => quoted = !quoted,
            _ if quoted => {}
            _ => plain.push(c),
        }
    }
    let prints = plain == "true"
        || ["echo", "printf"]
            .iter()
            .any(|word| plain.split(' ').next() == Some(word));
    prints && !quoted && !plain.contains(['|', '&', ';', '<', '>', '$', '`', '(', '\n'])
}

#[cfg(test)]
mod tests {
    use super::super::parse::parse;
    use super::*;

    fn parsed(text: &str) -> (Result<Recipe, Vec<Diagnostic>>, Vec<String>) {
        let mut files = SourceFiles::default();
        let file = files.add("r.yaml".to_owned(), text.to_owned());
        let mut warnings = Vec::new();
        let result = parse(&files, file, &mut warnings);
        (result, warnings.into_iter().map(|warning| warning.message).collect())
    }

    const WHOLE: &str = r#"
version: 1.0.0
title: "Audit the Crate!"
description: what it does
author: { contact: somebody, name: x }
activities: [one]
unknown_key: 1
instructions: |
  You audit {{ crate }}.
prompt: |
  Begin with {{ level | default('low') }}.
  {% if deep == true %}Go deep.{% endif %}
  Write {{ the report here }} as it is.
parameters:
  - { key: crate, input_type: string, requirement: required, description: which }
  - { key: level, input_type: select, requirement: optional, default: "low", options: [low, high] }
  - { key: deep, input_type: boolean, requirement: optional, default: "true" }
  - { key: note, input_type: string, requirement: optional, description: "{{ unused }}" }
extensions:
  - { type: builtin, name: developer, display_name: Developer, timeout: 300, bundled: true }
  - { type: builtin, name: memory }
  - { type: builtin, name: autovisualiser }
  - { type: stdio, name: My Files, cmd: npx, args: ["-y", "server", "{{ crate }}"], env_keys: [FILES_TOKEN], timeout: 30, available_tools: [read] }
  - { type: streamable_http, name: docs, uri: "https://docs.example.org/mcp", headers: { X-A: b } }
settings: { goose_provider: google, goose_model: gemini-2.5-pro, temperature: 0.2, max_turns: 40 }
response: { json_schema: { type: object, required: [summary] } }
retry:
  max_retries: 2
  timeout_seconds: 60
  checks: [{ type: shell, command: "cargo test" }]
"#;

    #[test]
    fn a_whole_recipe_is_read() {
        let (recipe, warnings) = parsed(WHOLE);
        let recipe = recipe.unwrap();
        assert_eq!(recipe.name.value, "audit-the-crate");
        let StepSource::Prompt(text) = &recipe.steps[0].work else {
            panic!()
        };
        assert!(
            text.value.starts_with("You audit {{ crate }}.\n\nBegin with"),
            "{}",
            text.value
        );
        assert!(text.value.contains("{{ \"{{\" }} the report here }}"), "{}", text.value);
        let defaults: Vec<Option<Value>> = recipe
            .parameters
            .iter()
            .map(|parameter| parameter.default.clone())
            .collect();
        assert_eq!(defaults, [None, Some("low".into()), Some(true.into()), Some("".into())]);
        assert_eq!(recipe.models[0].value, "gemini/gemini-2.5-pro");
        assert_eq!(recipe.budget.turns, Some(40));
        assert!(recipe.memory && recipe.response.is_some());
        let servers = &recipe.tools.mcp_servers;
        assert_eq!(servers[0].name.value, "my-files");
        assert_eq!(servers[0].env[0].1.value, "${FILES_TOKEN}");
        assert_eq!(
            (servers[0].timeout_ms, servers[0].include_tools.clone()),
            (Some(30_000), Some(vec!["read".to_owned()]))
        );
        assert_eq!(servers[1].url.as_ref().unwrap().value, "https://docs.example.org/mcp");
        assert_eq!((recipe.steps[0].retries, recipe.steps[0].checks.len()), (2, 1));
        let all = warnings.join("\n");
        for said in ["autovisualiser", "temperature", "unknown_key", "`note` is not used"] {
            assert!(all.contains(said), "{said}: {all}");
        }
    }

    #[test]
    fn the_form_of_the_desktop_application_is_one_too() {
        let (recipe, _) = parsed("name: x\nrecipe:\n  title: T\n  description: d\n  prompt: p\n");
        assert_eq!(recipe.unwrap().name.value, "t");
    }

    #[test]
    fn what_cannot_be_kept_is_named() {
        for (key, said) in [
            (
                "retry: { max_retries: 1, on_failure: 'git stash', checks: [] }",
                "on_failure",
            ),
            (
                "parameters: [{ key: f, input_type: object, requirement: required }]",
                "`object`",
            ),
            (
                "extensions: [{ type: inline_python, name: py, code: x }]",
                "inline_python",
            ),
            ("extensions: [{ type: sse, name: s, uri: 'https://x' }]", "SSE"),
        ] {
            let (recipe, _) = parsed(&format!(
                "title: T\ndescription: d\nprompt: 'p {{{{ f | default(1) }}}}'\n{key}\n"
            ));
            let problems: Vec<String> = recipe.unwrap_err().into_iter().map(|problem| problem.message).collect();
            assert!(
                problems.iter().any(|problem| problem.contains(said)),
                "{key}: {problems:?}"
            );
        }
    }

    #[test]
    fn a_message_on_failure_is_left_away() {
        for (command, prints) in [
            ("echo 'Checks failed; look again > above'", true),
            ("echo \"Checks failed — look again\"", true),
            ("true", true),
            ("echo x > failed.txt", false),
            ("echo \"$(git stash)\"", false),
            ("echo x; git stash", false),
            ("echo 'x", false),
            ("git stash", false),
            ("echos x", false),
        ] {
            assert_eq!(only_prints(command), prints, "{command}");
        }
        let (recipe, warnings) = parsed(
            "title: T\ndescription: d\nprompt: p\nretry: { max_retries: 1, on_failure: echo again, checks: [] }\n",
        );
        assert_eq!(recipe.unwrap().steps[0].retries, 1);
        assert!(warnings.join("\n").contains("only prints"), "{warnings:?}");
    }

    #[test]
    fn a_sub_recipe_is_a_part_of_the_task() {
        let (recipe, _) = parsed(
            "title: T\ndescription: d\nprompt: p\nsub_recipes: [{ name: look, path: ./look.yaml, values: { depth: 3 } }]\n",
        );
        let recipe = recipe.unwrap();
        let theirs = "title: L\ndescription: Looks.\ninstructions: Look {{ depth }} deep at {{ what }}{% if x %}!{% endif %}.\n\
                      parameters: [{ key: depth, input_type: string, requirement: required }, { key: what, input_type: string, requirement: required }]\n\
                      extensions: [{ type: builtin, name: developer }]\nretry: { max_retries: 1 }\n";
        let (text, warnings) = part(&recipe.tools.sub_recipes[0], theirs).unwrap();
        assert!(text.contains("## look\n\nLooks.\n\nLook 3 deep at <what>"), "{text}");
        assert!(text.contains("{{ \"{%\" }} if x"), "other braces are text: {text}");
        assert_eq!(warnings, ["its `retry` checks are not run"]);
        assert!(part(&recipe.tools.sub_recipes[0], "version: 1\n").is_err());
    }

    #[test]
    fn files_and_the_directory_are_references() {
        let mut files = SourceFiles::default();
        let text = "title: T\ndescription: d\nprompt: 'Read {{ doc }} (see:{{doc}}) and {{ recipe_dir }}/style.md.'\n\
                    parameters: [{ key: doc, input_type: file, requirement: required }]\n\
                    extensions: [{ type: stdio, name: s, cmd: '{{ recipe_dir }}/serve', args: ['{{recipe_dir}}/../rules.json'] }]\n\
                    retry: { max_retries: 1, checks: [{ type: shell, command: 'bash {{ recipe_dir }}/check.sh' }] }\n";
        let file = files.add("recipes/r.yaml", text);
        let recipe = parse(&files, file, &mut Vec::new()).unwrap();
        let StepSource::Prompt(prompt) = &recipe.steps[0].work else {
            panic!("no prompt")
        };
        assert_eq!(prompt.value, "Read @{{ doc }} (see: @{{ doc }}) and recipes/style.md.");
        assert_eq!(recipe.parameters[0].kind, ParameterType::Path);
        let server = &recipe.tools.mcp_servers[0];
        assert_eq!(server.command.as_ref().unwrap().value, "recipes/serve");
        assert_eq!(server.args[0].value, "recipes/../rules.json");
        let CheckKind::Run { command, .. } = &recipe.steps[0].checks[0].what else {
            panic!("no command")
        };
        assert_eq!(command.value, "bash recipes/check.sh");
    }

    /// Only an expression that names the parameter inserts the path instead of the text.
    #[test]
    fn a_file_in_an_expression_is_told() {
        for (prompt, warned) in [
            ("Write for {{ version }} of it", false),
            ("f and {{ off }}", false),
            ("{{ f | upper }}", true),
            ("{% if f %}x{% endif %}", true),
        ] {
            let mut files = SourceFiles::default();
            let text = format!(
                "title: T\ndescription: d\nprompt: '{prompt}'\nparameters:\n  - {{ key: f, input_type: file, requirement: required }}\n"
            );
            let file = files.add("r.yaml", text.as_str());
            let mut warnings = Vec::new();
            let read = parse(&files, file, &mut warnings);
            let told = format!("{warnings:?} {:?}", read.err());
            assert_eq!(told.contains("in an expression, `f`"), warned, "{prompt}: {told}");
        }
    }

    #[test]
    fn braces_around_words_are_text() {
        for (text, expected) in [
            ("{{ a }}", "{{ a }}"),
            ("{{ a b }}", "{{ \"{{\" }} a b }}"),
            ("{{ a if b else c }}", "{{ a if b else c }}"),
            ("{{ a | indent(2) }}", "{{ a | indent(2) }}"),
            ("{{}}", "{{ \"{{\" }}}}"),
            ("{{ open", "{{ open"),
        ] {
            assert_eq!(literal(text), expected);
        }
    }
}
