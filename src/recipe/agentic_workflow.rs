//! Converts an agentic workflow of GitHub (gh-aw: Markdown with YAML front matter) to a recipe. What would change the
//! result and cannot be converted is an error; what the run can do without is a warning. Keys that only say when and on
//! which machine it runs are ignored, because the caller decides that.
//!
//! The Markdown becomes the prompt, `steps` and `post-steps` become steps, `create-pull-request` becomes `deliver`, each
//! plain expression (`${{ github.repository }}`) becomes a parameter (`github_repository`).

use super::gemini_command::literal;
use super::goose::recipe_name;
use super::model::{
    BudgetSpec, DeliverSpec, Parameter, ParameterType, Recipe, ServerSpec, Step, StepSource, ToolsSpec,
};
use super::plan::Expect;
use crate::base::call::{ArgumentTarget, Offered, ToolSpec};
use crate::base::server_name::is_server_name;
use crate::diag::reader::{self, Problems};
use crate::diag::{
    Diagnostic, FrontMatter, MapEntry, Reader, Shape, SourceFiles, SourceId, Span, Spanned, YamlNode, front_matter,
};
use crate::tools::builtin_specs;
use serde_json::Value;

/// The file name's extension.
pub(super) const EXTENSION: &str = ".md";
/// Default time limit of gh-aw, in minutes.
const MINUTES: u64 = 20;

/// Keys about triggers, machines and people, which the caller of `overnight` decides.
const OF_THE_CALLER: [&str; 22] = [
    "on",
    "if",
    "run-name",
    "runs-on",
    "runs-on-slim",
    "concurrency",
    "roles",
    "bots",
    "skip-roles",
    "source",
    "strict",
    "tracker-id",
    "labels",
    "github-token",
    "metadata",
    "features",
    "emoji",
    "private",
    "rate-limit",
    "user-rate-limit",
    "checkout",
    "observability",
];
/// Keys without effect here, each with what decides instead.
const ELSEWHERE: [(&str, &str); 8] = [
    (
        "permissions",
        "the run gets no token; the policy decides what it may do",
    ),
    ("network", "the policy names the hosts: `sandbox: { network: […] }`"),
    ("sandbox", "the policy names the sandbox"),
    (
        "runtimes",
        "the programs of the machine are used; the policy names `toolchains`",
    ),
    ("container", "the programs of the machine are used"),
    ("cache", "the caches of toolchains are kept by `overnight` itself"),
    ("environment", "the caller decides where the run takes place"),
    ("threat-detection", "the policy rules on the patch"),
];
/// Whether a tool is meant.
type IsTool = fn(&ToolSpec) -> bool;

/// Tools of gh-aw that exist here, as far as the policy allows them: key, and which tools they are here.
const TOOLS: [(&str, IsTool); 4] = [
    ("edit", |tool| tool.effects.touches == ArgumentTarget::WrittenFile),
    ("bash", |tool| tool.effects.touches == ArgumentTarget::Commands),
    ("web-fetch", |tool| tool.effects.touches == ArgumentTarget::Urls),
    ("web-search", |tool| tool.effects.offered == Offered::WithSearch),
];
/// Settings of `safe-outputs` that are not outputs.
const OF_OUTPUTS: [&str; 14] = [
    "staged",
    "github-token",
    "github-app",
    "runs-on",
    "messages",
    "mentions",
    "allowed-domains",
    "allowed-github-references",
    "max-patch-size",
    "noop",
    "missing-tool",
    "missing-data",
    "report-incomplete",
    "threat-detection",
];

/// The parts of the file if it is an agentic workflow, as [`crate::diag::FileKind`] recognises it.
pub(super) fn of<'a>(files: &'a SourceFiles, file: SourceId) -> Option<FrontMatter<'a>> {
    files
        .name(file)
        .ends_with(EXTENSION)
        .then(|| front_matter(files.text(file)))?
}

/// The recipe for a file of `files`.
///
/// # Errors
/// Every problem of the file.
pub(super) fn read(
    files: &SourceFiles,
    file: SourceId,
    parts: FrontMatter<'_>,
    problems: &mut Problems,
) -> Result<Option<Recipe>, Vec<Diagnostic>> {
    // The same file with everything but the front matter blanked out, so that positions stay the same.
    let blank = |text: &str| {
        text.chars()
            .map(|c| {
                if c == '\n' {
                    "\n".to_owned()
                } else {
                    " ".repeat(c.len_utf8())
                }
            })
            .collect::<String>()
    };
    let before = files.text(file).get(..parts.head_at).map(blank).unwrap_or_default();
    let head_files = files.with_text(file, before + parts.head);
    let root = crate::diag::parse(&head_files, file)?;
    let body_span = Span {
        file,
        start: parts.body_at,
        end: files.text(file).len(),
    };
    Ok(recipe(files, file, &root, (parts.body, body_span), problems))
}

fn at<T>(span: Span, value: T) -> Spanned<T> {
    Spanned { value, span }
}

fn cannot(span: Span, what: &str, help: &str) -> Diagnostic {
    Diagnostic::error("agentic-workflow", span, format!("{what} cannot be converted")).help(help)
}

fn recipe(
    files: &SourceFiles,
    file: SourceId,
    root: &YamlNode,
    (body, body_span): (&str, Span),
    problems: &mut Problems,
) -> Option<Recipe> {
    let mut reader = Reader::open(root, "the front matter", problems)?;
    let head = reader.head();
    if let Some(entry) = reader.entry("redirect") {
        let help = "fetch the file that `redirect` names and run that one";
        problems.push(cannot(entry.key_span, "a workflow that only names another file", help));
    }
    let stem = files.name(file).rsplit('/').next().unwrap_or_default();
    let name = reader.text("name", problems);
    let name = name.map_or_else(
        || at(head, recipe_name(stem.strip_suffix(EXTENSION).unwrap_or(stem))),
        |name| name.map(|name| recipe_name(&name)),
    );
    let description = reader
        .text("description", problems)
        .map(|text| text.value.trim().to_owned());
    for key in OF_THE_CALLER {
        reader.node(key);
    }
    let inputs = inputs(root, problems);
    for (key, why) in ELSEWHERE {
        if let Some(entry) = reader.entry(key) {
            let message = format!("`{key}` has no effect here: {why}");
            problems.push(Diagnostic::warning("agentic-workflow", entry.key_span, message));
        }
    }
    let (models, engine_turns) = engine(&mut reader, problems);
    let turns = reader
        .whole("max-turns", problems)
        .map(|turns| turns.value)
        .or(engine_turns);
    let minutes = reader
        .whole("timeout-minutes", problems)
        .or_else(|| reader.whole("timeout_minutes", problems))
        .map_or(MINUTES, |minutes| minutes.value.max(1));
    let (deliver, expect) = outputs(&mut reader, &name.value, problems);
    let (tools, memory) = tools(&mut reader, deliver.is_some(), problems);
    let mut parameters = inputs;
    let mut expressions = Expressions {
        parameters: &mut parameters,
    };
    let mut steps = Vec::new();
    for key in ["pre-steps", "steps"] {
        own_steps(&mut reader, key, &mut steps, &mut expressions, problems);
    }
    let prompt = expressions.prompt(files, body, body_span, problems);
    steps.push(Step::plain(
        at(head, "task".to_owned()),
        StepSource::Prompt(at(body_span, prompt)),
    ));
    own_steps(&mut reader, "post-steps", &mut steps, &mut expressions, problems);
    for (key, help) in [
        (
            "imports",
            "put the text of the imported files into this file, and their tools into its `tools`",
        ),
        ("jobs", "run them as jobs of the workflow that starts `overnight`"),
        (
            "env",
            "give values as parameters: `${{ inputs.NAME }}` in the text, `--param NAME=VALUE`",
        ),
        ("services", "start them in the workflow that starts `overnight`"),
        (
            "secrets",
            "no secret is given to a run; servers get variables by `env: { NAME: \"${NAME}\" }`",
        ),
        ("skills", "name them in a recipe of your own: `skills: [DIR]`"),
    ] {
        if let Some(entry) = reader.entry(key).filter(|entry| !is_empty(&entry.value)) {
            problems.push(cannot(entry.key_span, &format!("`{key}`"), help));
        }
    }
    reader.finish(problems);
    if body.trim().is_empty() && root.get("redirect").is_none() {
        problems.push(Diagnostic::error(
            "agentic-workflow",
            body_span.point(),
            "there is no text below the front matter, so the agent has no task",
        ));
    }
    Some(Recipe {
        description: description.unwrap_or_default(),
        parameters,
        models,
        expect,
        budget: BudgetSpec {
            turns,
            wall_ms: Some(minutes.saturating_mul(60_000)),
            ..BudgetSpec::default()
        },
        memory,
        tools,
        deliver,
        ..Recipe::foreign(name, steps, head)
    })
}

fn is_empty(node: &YamlNode) -> bool {
    match &node.shape {
        Shape::List(items) => items.is_empty(),
        Shape::Map(entries) => entries.is_empty(),
        Shape::Scalar(scalar) => scalar.is_null(),
    }
}

/// The inputs of `workflow_dispatch` as parameters.
fn inputs(root: &YamlNode, problems: &mut Problems) -> Vec<Parameter> {
    let dispatch = root.get("on").and_then(|on| on.get("workflow_dispatch"));
    let Some(Shape::Map(entries)) = dispatch.and_then(|node| node.get("inputs")).map(|node| &node.shape) else {
        return Vec::new();
    };
    entries.iter().filter_map(|entry| input(entry, problems)).collect()
}

fn input(entry: &MapEntry, problems: &mut Problems) -> Option<Parameter> {
    let text = |key: &str| match entry.value.get(key).map(|node| &node.shape) {
        Some(Shape::Scalar(scalar)) if !scalar.is_null() => Some(scalar.text.clone()),
        _ => None,
    };
    let name = parameter_name(&entry.key);
    if !super::params::is_name(&name) {
        let message = format!("an input cannot be called `{}`", entry.key);
        problems.push(Diagnostic::error("bad-name", entry.key_span, message).help("rename it"));
        return None;
    }
    let options = entry.value.get("options").map(|node| &node.shape);
    let choices: Vec<Value> = match options {
        Some(Shape::List(items)) => items
            .iter()
            .filter_map(|item| reader::text(item, "options", problems))
            .map(|text| Value::String(text.value))
            .collect(),
        _ => Vec::new(),
    };
    let kind = match text("type").as_deref() {
        Some("boolean") => ParameterType::Boolean,
        Some("number") => ParameterType::Number,
        Some("choice") if !choices.is_empty() => ParameterType::Enum,
        _ => ParameterType::String,
    };
    let required = text("required").as_deref() == Some("true");
    let default = match (text("default"), kind) {
        (Some(text), ParameterType::Boolean | ParameterType::Number) => serde_json::from_str(&text).ok(),
        (Some(text), _) => Some(Value::String(text)),
        (None, ParameterType::String) if !required => Some(Value::String(String::new())),
        (None, ParameterType::Boolean) if !required => Some(Value::Bool(false)),
        _ => None,
    };
    Some(Parameter {
        name: at(entry.key_span, name),
        kind,
        description: text("description").unwrap_or_default(),
        default,
        choices,
    })
}

/// The model, if the engine names one that is known here, and its limit of turns.
fn engine(reader: &mut Reader<'_>, problems: &mut Problems) -> (Vec<Spanned<String>>, Option<u64>) {
    let Some(node) = reader.node("engine") else {
        return (Vec::new(), None);
    };
    let (id, model, turns) = match &node.shape {
        Shape::Map(_) => {
            let Some(mut map) = Reader::open(node, "`engine`", problems) else {
                return (Vec::new(), None);
            };
            let id = map.text("id", problems);
            let model = map.text("model", problems);
            let turns = map.whole("max-turns", problems).map(|turns| turns.value);
            for key in ["version", "concurrency", "user-agent", "permission-mode"] {
                map.node(key);
            }
            map.finish(problems);
            (id, model, turns)
        }
        _ => (reader::text(node, "engine", problems), None, None),
    };
    let Some(id) = id else {
        return (Vec::new(), turns);
    };
    let wire = match id.value.as_str() {
        "claude" => Some("anthropic"),
        "codex" => Some("openai"),
        "gemini" => Some("gemini"),
        "copilot" => None,
        other => {
            let help = "write one of `claude`, `codex`, `gemini` and `copilot`";
            problems.push(cannot(id.span, &format!("the engine `{other}`"), help));
            return (Vec::new(), turns);
        }
    };
    match (wire, model) {
        (Some(wire), Some(model)) => (vec![at(model.span, format!("{wire}/{}", model.value))], turns),
        _ => {
            let message = format!(
                "the engine `{}` names no model that is known here: give --model PROVIDER/NAME",
                id.value
            );
            problems.push(Diagnostic::warning("agentic-workflow", id.span, message));
            (Vec::new(), turns)
        }
    }
}

/// `safe-outputs`: a merge request is delivered; everything else would be lost.
fn outputs(reader: &mut Reader<'_>, name: &str, problems: &mut Problems) -> (Option<DeliverSpec>, Expect) {
    let Some(node) = reader.node("safe-outputs") else {
        return (None, Expect::Any);
    };
    let Shape::Map(entries) = &node.shape else {
        problems.push(reader::wrong_type(node, "`safe-outputs`", "a map of outputs"));
        return (None, Expect::Any);
    };
    let (mut deliver, mut expect) = (None, Expect::Any);
    for entry in entries {
        match entry.key.as_str() {
            "create-pull-request" => (deliver, expect) = request(entry, name, problems),
            key if OF_OUTPUTS.contains(&key) => {}
            key => {
                let help = "only `create-pull-request` is delivered (`overnight deliver`); put the rest into the answer (`response:` in a recipe of your \
                            own) and post it in a later job";
                problems.push(cannot(entry.key_span, &format!("the output `{key}`"), help));
            }
        }
    }
    (deliver, expect)
}

fn request(entry: &MapEntry, name: &str, problems: &mut Problems) -> (Option<DeliverSpec>, Expect) {
    if entry.value.is_null() {
        return (
            Some(DeliverSpec {
                draft: true,
                ..DeliverSpec::default()
            }),
            Expect::Any,
        );
    }
    let Some(mut map) = Reader::open(&entry.value, "`create-pull-request`", problems) else {
        return (None, Expect::Any);
    };
    let prefix = map.text("title-prefix", problems);
    let labels = map.one_or_more("labels", problems).unwrap_or_default();
    let reviewers = map.one_or_more("reviewers", problems).unwrap_or_default();
    let base = map.text("base-branch", problems);
    // gh-aw opens drafts by default.
    let draft = map.bool("draft", problems).is_none_or(|flag| flag.value);
    let expect = match map.text("if-no-changes", problems).map(|word| word.value).as_deref() {
        Some("error") => Expect::Change,
        _ => Expect::Any,
    };
    if let Some(max) = map.whole("max", problems).filter(|max| max.value > 1) {
        let message = "`max` has no effect here: a run makes one merge request";
        problems.push(Diagnostic::warning("agentic-workflow", max.span, message));
    }
    for key in [
        "protected-files",
        "allowed-files",
        "max-patch-size",
        "max-patch-files",
        "excluded-files",
    ] {
        if let Some(entry) = map.entry(key) {
            let message = format!(
                "`{key}` has no effect here: the policy says which files may change (`paths`, `deliver: {{ max_files, max_lines }}`)"
            );
            problems.push(Diagnostic::warning("agentic-workflow", entry.key_span, message));
        }
    }
    for key in [
        "auto-merge",
        "expires",
        "github-token",
        "github-token-for-extra-empty-commit",
        "fallback-as-issue",
        "auto-close-issue",
        "footer",
        "preserve-branch-name",
    ] {
        if let Some(entry) = map.entry(key) {
            let message = format!("`{key}` has no effect here");
            problems.push(Diagnostic::warning("agentic-workflow", entry.key_span, message));
        }
    }
    map.finish(problems);
    let deliver = DeliverSpec {
        title: prefix.map(|prefix| prefix.map(|prefix| format!("{}{name}", literal(&prefix)))),
        labels,
        reviewers,
        base,
        draft,
        ..DeliverSpec::default()
    };
    (Some(deliver), expect)
}

/// The tools, and whether the run gets notes of earlier runs.
fn tools(reader: &mut Reader<'_>, delivers: bool, problems: &mut Problems) -> (ToolsSpec, bool) {
    let mut spec = ToolsSpec::default();
    let mut memory = false;
    let mut named: Vec<&str> = Vec::new();
    let mut no_bash = false;
    if delivers {
        named.push("edit");
    }
    let entries = reader.entries("tools", problems).unwrap_or_default();
    for entry in entries {
        let off = matches!(&entry.value.shape, Shape::Scalar(scalar) if scalar.plain && scalar.text == "false");
        match entry.key.as_str() {
            "bash" if off => no_bash = true,
            _ if off => {}
            "bash" => {
                named.push("bash");
                spec.commands = commands(&entry.value, problems);
            }
            "edit" | "web-fetch" | "web-search" => {
                named.extend(TOOLS.iter().map(|(key, _)| *key).find(|key| *key == entry.key));
            }
            "github" => {
                let message = "the tools of GitHub's server are not available: name the server in `mcp-servers`, or give the model what it needs as a parameter";
                problems.push(Diagnostic::warning("agentic-workflow", entry.key_span, message));
            }
            "cache-memory" => memory = true,
            "timeout" | "startup-timeout" | "cli-proxy" => {
                let message = format!("`{}` has no effect here", entry.key);
                problems.push(Diagnostic::warning("agentic-workflow", entry.key_span, message));
            }
            other => {
                let help = "name an MCP server with such tools in `mcp-servers`";
                problems.push(cannot(entry.key_span, &format!("the tool `{other}`"), help));
            }
        }
    }
    // Without `tools`, gh-aw offers its default set, so nothing is left out.
    if !entries.is_empty() {
        let at_tools = entries.first().map_or(reader.head(), |entry| entry.key_span);
        // A workflow that does not name `bash` gets a default set of commands.
        let left_out = |key: &str| !named.contains(&key) && (key != "bash" || no_bash);
        for (_, is_it) in TOOLS.iter().filter(|(key, _)| left_out(key)) {
            let tools = builtin_specs().iter().filter(|tool| is_it(tool));
            spec.exclude.extend(tools.map(|tool| at(at_tools, tool.name.clone())));
        }
    }
    for entry in reader.entries("mcp-servers", problems).unwrap_or_default() {
        spec.mcp_servers.extend(server(entry, problems));
    }
    (spec, memory)
}

/// The commands of `bash: [...]`: the only ones of the run, if the policy allows them.
fn commands(node: &YamlNode, problems: &mut Problems) -> Option<Vec<String>> {
    let Shape::List(items) = &node.shape else {
        return None;
    };
    let mut only = Vec::new();
    for item in items {
        let text = reader::text(item, "bash", problems)?;
        let plain = text
            .value
            .trim()
            .trim_end_matches(":*")
            .trim_end_matches('*')
            .trim()
            .to_owned();
        if plain.is_empty() {
            return None;
        }
        only.push(plain);
    }
    Some(only)
}

fn server(entry: &MapEntry, problems: &mut Problems) -> Option<ServerSpec> {
    let mut map = Reader::open(&entry.value, "this server", problems)?;
    if !is_server_name(&entry.key) {
        let message = format!("a server cannot be called `{}`", entry.key);
        problems.push(Diagnostic::error("bad-name", entry.key_span, message).help("use letters, digits and `-`"));
    }
    if let Some(image) = map.entry("container") {
        problems.push(cannot(
            image.key_span,
            "a server in a container",
            "name a `command` that starts it, or its `url`",
        ));
    }
    let command = map.text("command", problems);
    let url = map.text("url", problems);
    let args = map.texts("args", problems).unwrap_or_default();
    let allowed = map.one_or_more("allowed", problems).unwrap_or_default();
    let pairs = |pairs: Option<Vec<(String, Spanned<String>)>>| {
        let secret = |text: String| {
            let inner = text.trim().strip_prefix("${{").and_then(|rest| rest.strip_suffix("}}"));
            let name = inner
                .map(str::trim)
                .and_then(|inner| inner.strip_prefix("secrets.").or_else(|| inner.strip_prefix("env.")));
            name.map_or(text.clone(), |name| format!("${{{name}}}"))
        };
        pairs
            .unwrap_or_default()
            .into_iter()
            .map(|(name, text)| (name, text.map(secret)))
            .collect::<Vec<_>>()
    };
    let env = pairs(map.text_map("env", problems));
    let headers = pairs(map.text_map("headers", problems));
    for key in [
        "type",
        "registry",
        "mode",
        "toolsets",
        "version",
        "network",
        "entrypointArgs",
    ] {
        map.node(key);
    }
    map.finish(problems);
    let everything = allowed.iter().any(|tool| tool.value == "*");
    Some(ServerSpec {
        name: at(entry.key_span, entry.key.clone()),
        command,
        args,
        env,
        cwd: None,
        url,
        transport: None,
        headers,
        required: true,
        timeout_ms: None,
        include_tools: (!allowed.is_empty() && !everything)
            .then(|| allowed.into_iter().map(|tool| tool.value).collect()),
        exclude_tools: Vec::new(),
        network: Vec::new(),
        writes_tree: false,
        oauth: None,
    })
}

/// The steps under a key. Actions that check out the repository or install programs are left to the caller.
fn own_steps(
    reader: &mut Reader<'_>,
    key: &'static str,
    steps: &mut Vec<Step>,
    expressions: &mut Expressions<'_>,
    problems: &mut Problems,
) {
    for node in reader.items(key, problems).unwrap_or_default() {
        let Some(mut map) = Reader::open(node, "this step", problems) else {
            continue;
        };
        let head = map.head();
        map.node("name");
        map.node("id");
        let goes_on = map.bool("continue-on-error", problems).is_some_and(|flag| flag.value);
        let command = map.text("run", problems);
        let uses = map.text("uses", problems);
        map.node("with").filter(|_| uses.is_some());
        if let Some(uses) = &uses {
            let plain = uses.value.starts_with("actions/checkout") || uses.value.starts_with("actions/setup-");
            match plain {
                true => {
                    let message = format!("`{}` is left to the workflow that starts `overnight`", uses.value);
                    problems.push(Diagnostic::warning("agentic-workflow", uses.span, message));
                }
                false => problems.push(cannot(
                    uses.span,
                    &format!("the action `{}`", uses.value),
                    "run it before `overnight`, or write what it does as `run`",
                )),
            }
        }
        for (key, help) in [
            ("env", "set the variables in the command"),
            ("if", "test it in the command"),
            ("shell", "commands run in bash"),
            ("working-directory", "change the directory in the command"),
            ("timeout-minutes", "the whole run has `timeout-minutes`"),
        ] {
            if let Some(entry) = map.entry(key).filter(|_| command.is_some()) {
                problems.push(cannot(entry.key_span, &format!("`{key}` of a step"), help));
            }
        }
        map.finish(problems);
        let Some(command) = command else { continue };
        let span = command.span;
        let text = expressions.command(&command, problems);
        let id = format!("step_{}", steps.len() + 1);
        steps.push(Step::plain(
            at(head, id),
            StepSource::Run {
                command: at(span, text),
                timeout_ms: None,
                allow_failure: goes_on,
            },
        ));
    }
}

/// The expressions of the texts, as parameters.
struct Expressions<'a> {
    parameters: &'a mut Vec<Parameter>,
}

impl Expressions<'_> {
    /// The Markdown as a template.
    fn prompt(&mut self, files: &SourceFiles, body: &str, span: Span, problems: &mut Problems) -> String {
        let mut out = String::new();
        let mut open_ifs = 0_usize;
        let mut at_byte = 0;
        let within = |start: usize, end: usize| Span {
            file: span.file,
            start: (span.start + start).min(files.text(span.file).len()),
            end: (span.start + end).min(files.text(span.file).len()),
        };
        while let Some(rest) = body.get(at_byte..).filter(|rest| !rest.is_empty()) {
            let next = ["${{", "{{#", "{{/", "@include", "@import"]
                .into_iter()
                .filter_map(|mark| Some((rest.find(mark)?, mark)))
                .min();
            let Some((begin, mark)) = next else {
                out.push_str(&literal(rest));
                break;
            };
            out.push_str(&literal(rest.get(..begin).unwrap_or_default()));
            let start = at_byte + begin;
            let from = body.get(start..).unwrap_or_default();
            if mark.starts_with('@') {
                let line_begins =
                    begin == 0 && at_byte == 0 || body.get(..start).is_some_and(|before| before.ends_with('\n'));
                if line_begins {
                    let end = from.find('\n').unwrap_or(from.len());
                    problems.push(cannot(
                        within(start, start + end),
                        "an import of another file",
                        "put its text here",
                    ));
                }
                out.push_str(mark);
                at_byte = start + mark.len();
                continue;
            }
            // `{{#if ${{ x }} }}` contains a second pair of braces.
            let inner_close = from.find("}}").unwrap_or(from.len());
            let nested = mark == "{{#" && from.get(..inner_close).is_some_and(|inner| inner.contains("${{"));
            let close = match nested {
                true => from
                    .get(inner_close + 2..)
                    .and_then(|after| Some(inner_close + 2 + after.find("}}")?)),
                false => from.find("}}"),
            };
            let Some(close) = close else {
                problems.push(Diagnostic::error(
                    "agentic-workflow",
                    within(start, start + mark.len()),
                    format!("`{mark}` without its `}}}}`"),
                ));
                break;
            };
            let inner = from.get(mark.len()..close).unwrap_or_default().trim();
            let place = within(start, start + close + 2);
            match (mark, inner) {
                ("{{/", _) if open_ifs > 0 => {
                    open_ifs -= 1;
                    out.push_str("{% endif %}");
                }
                ("{{#", inner) if inner.starts_with("if ") => {
                    let condition = inner
                        .trim_start_matches("if ")
                        .trim()
                        .trim_start_matches("${{")
                        .trim_end_matches("}}")
                        .trim();
                    match self.parameter(condition, place, true) {
                        Some(name) => {
                            open_ifs += 1;
                            out.push_str(&format!("{{% if {name} %}}"));
                        }
                        None => problems.push(cannot(
                            place,
                            &format!("the condition `{condition}`"),
                            "name one value, for example `github.event.issue.number`",
                        )),
                    }
                }
                ("{{#", inner) => {
                    problems.push(cannot(
                        place,
                        &format!("`{}`", inner.split_whitespace().next().unwrap_or_default()),
                        "put the text of the file here",
                    ));
                }
                ("{{/", _) => problems.push(Diagnostic::error("agentic-workflow", place, "this closes no block")),
                (_, inner) => match self.parameter(inner, place, false) {
                    Some(name) => out.push_str(&format!("{{{{ {name} }}}}")),
                    None => problems.push(cannot(
                        place,
                        &format!("the expression `{inner}`"),
                        "name one value, for example `github.repository`, or give it as an input: `${{ inputs.NAME }}`",
                    )),
                },
            }
            at_byte = start + close + 2;
        }
        if open_ifs > 0 {
            problems.push(Diagnostic::error(
                "agentic-workflow",
                span.point(),
                "an `{{#if …}}` of this text is not closed",
            ));
        }
        out.trim_start_matches('\n').to_owned()
    }

    /// A command whose expressions become quoted values.
    fn command(&mut self, command: &Spanned<String>, problems: &mut Problems) -> String {
        let mut out = String::new();
        let mut rest = command.value.as_str();
        while let Some((before, after)) = rest.split_once("${{") {
            out.push_str(&super::gemini_command::raw(before));
            let Some((inner, behind)) = after.split_once("}}") else {
                let message = "`${{` without its `}}`".to_owned();
                problems.push(Diagnostic::error("agentic-workflow", command.span, message));
                rest = after;
                break;
            };
            match self.parameter(inner.trim(), command.span, false) {
                Some(name) => out.push_str(&format!("{{{{ {name} }}}}")),
                None => problems.push(cannot(
                    command.span,
                    &format!("the expression `{}`", inner.trim()),
                    "name one value, for example `github.repository`",
                )),
            }
            rest = behind;
        }
        out + &super::gemini_command::raw(rest)
    }

    /// The parameter for an expression that names one value; `None` for any other expression, and for secrets.
    fn parameter(&mut self, expression: &str, span: Span, optional: bool) -> Option<String> {
        let plain = !expression.is_empty()
            && expression
                .chars()
                .all(|c| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-'));
        if !plain || expression.starts_with("secrets.") || expression == "github.token" {
            return None;
        }
        let input = ["github.event.inputs.", "inputs."]
            .iter()
            .find_map(|prefix| expression.strip_prefix(prefix));
        let name = parameter_name(input.unwrap_or(expression));
        if !super::params::is_name(&name) {
            return None;
        }
        let known = self
            .parameters
            .iter_mut()
            .find(|parameter| parameter.name.value == name);
        match known {
            Some(parameter) if optional && parameter.default.is_none() && parameter.kind == ParameterType::String => {
                parameter.default = Some(Value::String(String::new()));
            }
            Some(_) => {}
            None => self.parameters.push(Parameter {
                name: at(span, name.clone()),
                kind: ParameterType::String,
                description: format!("the value of `{expression}`"),
                default: optional.then(|| Value::String(String::new())),
                choices: Vec::new(),
            }),
        }
        Some(name)
    }
}

/// An expression as the name of a parameter.
fn parameter_name(expression: &str) -> String {
    expression
        .chars()
        .map(|c| {
            if c.is_ascii_alphanumeric() {
                c.to_ascii_lowercase()
            } else {
                '_'
            }
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::super::parse::parse;
    use super::*;

    fn parsed(text: &str) -> (Result<Recipe, Vec<Diagnostic>>, Vec<String>) {
        let mut files = SourceFiles::default();
        let file = files.add("flows/update notes.md".to_owned(), text.to_owned());
        let mut warnings = Vec::new();
        let result = parse(&files, file, &mut warnings);
        (result, warnings.into_iter().map(|warning| warning.message).collect())
    }

    const WHOLE: &str = "---\non:\n  schedule: daily\n  workflow_dispatch:\n    inputs:\n      depth: { description: how deep, default: shallow }\n\
permissions:\n  contents: read\nengine: { id: claude, model: claude-sonnet-4-5, max-turns: 30 }\ntimeout-minutes: 15\n\
safe-outputs:\n  create-pull-request:\n    title-prefix: \"[docs] \"\n    labels: [docs]\n    draft: false\n    if-no-changes: error\n\
tools:\n  edit:\n  bash: [\"git log:*\", \"ls\"]\n  cache-memory: true\nmcp-servers:\n  notes: { command: notes-mcp, env: { KEY: \"${{ secrets.NOTES_KEY }}\" }, allowed: [read] }\n\
steps:\n  - uses: actions/checkout@v5\n  - name: list\n    run: git log --oneline -5 ${{ inputs.depth }}\n---\n\n# Notes\n\nLook at `${{ github.repository }}`, {{ braces }}, depth ${{ inputs.depth }}.\n{{#if github.event.issue.number}}Issue ${{ github.event.issue.number }}.{{/if}}\n";

    #[test]
    fn a_workflow_becomes_a_recipe() {
        let (recipe, warnings) = parsed(WHOLE);
        let recipe = recipe.unwrap();
        assert_eq!(recipe.name.value, "update-notes");
        assert_eq!(recipe.models[0].value, "anthropic/claude-sonnet-4-5");
        assert_eq!((recipe.budget.turns, recipe.budget.wall_ms), (Some(30), Some(900_000)));
        assert_eq!(recipe.expect, Expect::Change);
        let deliver = recipe.deliver.unwrap();
        assert_eq!(deliver.title.unwrap().value, "[docs] update-notes");
        assert_eq!((deliver.labels[0].value.as_str(), deliver.draft), ("docs", false));
        assert!(recipe.memory);
        assert_eq!(recipe.tools.commands, Some(vec!["git log".to_owned(), "ls".to_owned()]));
        let excluded: Vec<&str> = recipe.tools.exclude.iter().map(|name| name.value.as_str()).collect();
        assert_eq!(excluded, ["web_fetch", "google_web_search"]);
        assert_eq!(recipe.tools.mcp_servers[0].env[0].1.value, "${NOTES_KEY}");
        let names: Vec<(&str, bool)> = recipe
            .parameters
            .iter()
            .map(|parameter| (parameter.name.value.as_str(), parameter.default.is_some()))
            .collect();
        assert_eq!(
            names,
            [
                ("depth", true),
                ("github_repository", false),
                ("github_event_issue_number", true)
            ]
        );
        let StepSource::Run { command, .. } = &recipe.steps[0].work else {
            panic!("no command")
        };
        assert_eq!(command.value, "git log --oneline -5 {{ depth }}");
        let StepSource::Prompt(prompt) = &recipe.steps[1].work else {
            panic!("no prompt")
        };
        for part in [
            "# Notes",
            "`{{ github_repository }}`",
            "{{ \"{{\" }} braces }}",
            "{% if github_event_issue_number %}Issue {{ github_event_issue_number }}.{% endif %}",
        ] {
            assert!(prompt.value.contains(part), "{part}: {}", prompt.value);
        }
        for said in ["permissions", "actions/checkout"] {
            assert!(
                warnings.iter().any(|warning| warning.contains(said)),
                "{said}: {warnings:?}"
            );
        }
    }

    #[test]
    fn a_workflow_without_bash_has_no_commands() {
        let excluded = |tools: &str| -> Vec<String> {
            let text = format!("---\non: push\nengine: claude\ntools: {tools}\n---\nDo it.\n");
            let recipe = parsed(&text).0.unwrap();
            recipe.tools.exclude.into_iter().map(|name| name.value).collect()
        };
        assert!(excluded("{ bash: false, edit: }").contains(&"run_shell_command".to_owned()));
        assert!(!excluded("{ bash: null, edit: }").contains(&"run_shell_command".to_owned()));
        assert!(!excluded("{ edit: }").contains(&"run_shell_command".to_owned()));
    }

    #[test]
    fn a_step_that_may_fail_may_fail() {
        let text = "---\non: push\nengine: claude\nsteps:\n  - run: make lint\n    continue-on-error: true\n  - run: make\n---\nDo it.\n";
        let recipe = parsed(text).0.unwrap();
        let may_fail: Vec<bool> = recipe
            .steps
            .iter()
            .filter_map(|step| match &step.work {
                StepSource::Run { allow_failure, .. } => Some(*allow_failure),
                _ => None,
            })
            .collect();
        assert_eq!(may_fail, [true, false]);
    }

    #[test]
    fn an_expression_of_a_command_that_is_not_closed_is_an_error() {
        let text = "---\non: push\nengine: claude\nsteps:\n  - run: echo ${{ github.repository\n---\nDo it.\n";
        let problems = parsed(text).0.unwrap_err();
        assert!(
            problems.iter().any(|problem| problem.message.contains("without its")),
            "{problems:?}"
        );
    }

    #[test]
    fn what_cannot_be_kept_is_named_at_its_place() {
        let text = "---\non: push\nengine: custom\nsafe-outputs:\n  create-issue:\n  add-comment: { max: 1 }\ntools:\n  playwright:\nimports: [shared/a.md]\n\
                    jobs: { a: {} }\nsteps:\n  - uses: some/action@v1\nnonsense: 1\n---\nDo ${{ a || b }} and ${{ secrets.X }}.\n{{#runtime-import x.md}}\n";
        let (result, _) = parsed(text);
        let mut files = SourceFiles::default();
        files.add("x", text);
        let problems = result.unwrap_err();
        let said: Vec<(usize, &str)> = problems
            .iter()
            .map(|problem| (files.place(problem.span.unwrap()).line, problem.message.as_str()))
            .collect();
        for (line, part) in [
            (3, "the engine `custom`"),
            (5, "the output `create-issue`"),
            (6, "the output `add-comment`"),
            (8, "the tool `playwright`"),
            (9, "`imports`"),
            (10, "`jobs`"),
            (12, "the action `some/action@v1`"),
            (13, "unknown key `nonsense`"),
            (15, "the expression `a || b`"),
            (15, "the expression `secrets.X`"),
            (16, "`runtime-import`"),
        ] {
            assert!(
                said.iter().any(|(at, text)| *at == line && text.contains(part)),
                "{line} {part}: {said:?}"
            );
        }
    }
}
