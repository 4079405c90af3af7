//! The data model of a recipe as written, with source positions and without defaults.

use super::plan::{Expect, InputFormat, OnDeny};
use crate::diag::{Span, Spanned, YamlNode};
use serde_json::Value;

/// Default limit of how often an answer that does not match its schema is sent back.
pub const RESPONSE_RETRIES: u32 = 2;
/// The name of the check that `findings: true` adds.
pub(super) const FINDINGS: &str = "findings";

/// A whole recipe file.
#[derive(Clone, Debug)]
pub struct Recipe {
    pub name: Spanned<String>,
    pub description: String,
    pub parameters: Vec<Parameter>,
    pub input: Option<InputSpec>,
    /// `files`: files and directories beside the recipe that commands get, relative to the recipe's directory.
    pub files: Vec<Spanned<String>>,
    /// The model, and the models to use when it fails permanently.
    pub models: Vec<Spanned<String>>,
    pub model_settings: super::plan::ModelSettings,
    /// Path of a policy, relative to the recipe's directory, `builtin:NAME` or `git:REF:PATH`.
    pub policy: Option<Spanned<String>>,
    pub on_deny: OnDeny,
    pub expect: Expect,
    /// Position of `expect`, when it is written.
    pub expect_at: Option<Span>,
    pub skip_if_green: bool,
    pub budget: BudgetSpec,
    /// Context files, relative to the workspace, still with `@`.
    pub context: Vec<Spanned<String>>,
    /// The context files that are required.
    pub required_context: Vec<Spanned<String>>,
    /// Skill files or folders, relative to the workspace.
    pub skills: Vec<Spanned<String>>,
    /// Whether saved memory is added to the context.
    pub memory: bool,
    /// `isolate.keep`: directories relative to the workspace.
    pub isolate_keep: Vec<Spanned<String>>,
    pub tools: ToolsSpec,
    pub steps: Vec<Step>,
    pub response: Option<ResponseSpec>,
    pub deliver: Option<DeliverSpec>,
    /// Position of the file's first key.
    pub head: Span,
}

/// A declared parameter.
#[derive(Clone, Debug)]
pub struct Parameter {
    pub name: Spanned<String>,
    pub kind: ParameterType,
    pub description: String,
    /// `None`: a value is required.
    pub default: Option<Value>,
    /// Unless empty, the only allowed values.
    pub choices: Vec<Value>,
}

/// The type of a parameter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ParameterType {
    String,
    Number,
    Integer,
    Boolean,
    /// One of the texts in `choices`.
    Enum,
    /// A path inside the workspace.
    Path,
    /// A list of strings.
    List,
}

impl ParameterType {
    /// The type names in recipes.
    pub const WORDS: [(&'static str, ParameterType); 7] = [
        ("string", ParameterType::String),
        ("number", ParameterType::Number),
        ("integer", ParameterType::Integer),
        ("boolean", ParameterType::Boolean),
        ("enum", ParameterType::Enum),
        ("path", ParameterType::Path),
        ("list", ParameterType::List),
    ];

    /// The type name in recipes.
    pub fn as_str(self) -> &'static str {
        Self::WORDS
            .iter()
            .find(|(_, kind)| *kind == self)
            .map_or("", |(word, _)| word)
    }
}

/// The input that a run gets from `--input`.
#[derive(Clone, Debug)]
pub struct InputSpec {
    pub format: InputFormat,
    /// The schema of the input; for JSON Lines, of each line.
    pub schema: Option<SchemaSpec>,
    pub span: Span,
}

/// A JSON Schema: written in place, or the path of a JSON or YAML file relative to the recipe's directory.
#[derive(Clone, Debug)]
pub enum SchemaSpec {
    Inline(YamlNode),
    File(Spanned<String>),
}

impl SchemaSpec {
    /// Position of the schema or its path.
    pub fn span(&self) -> Span {
        match self {
            Self::Inline(node) => node.span.point(),
            Self::File(path) => path.span,
        }
    }
}

/// Limits as written.
#[derive(Clone, Debug, Default)]
pub struct BudgetSpec {
    pub turns: Option<u64>,
    pub tokens: Option<u64>,
    pub cost_micros: Option<u64>,
    pub wall_ms: Option<u64>,
    /// Limits of the calls of single tools.
    pub calls: Vec<(Spanned<String>, u64)>,
}

/// The `tools` section.
#[derive(Clone, Debug, Default)]
pub struct ToolsSpec {
    pub include: Option<Vec<Spanned<String>>>,
    pub exclude: Vec<Spanned<String>>,
    pub ignore: Vec<String>,
    pub mcp_servers: Vec<ServerSpec>,
    pub discovery: Option<(Spanned<String>, Spanned<String>)>,
    /// A `settings.json` to import from.
    pub settings: Option<Spanned<String>>,
    /// When set, the only allowed commands, as word prefixes.
    pub commands: Option<Vec<String>>,
    /// Recipes of goose whose texts are a part of the task.
    pub sub_recipes: Vec<SubRecipe>,
}

/// A recipe of goose that another one names.
#[derive(Clone, Debug)]
pub struct SubRecipe {
    pub name: Spanned<String>,
    /// Relative to the recipe's directory.
    pub path: Spanned<String>,
    /// Values that the recipe gives to its parameters.
    pub values: Vec<(String, String)>,
    pub description: String,
}

/// An MCP server; its texts may be templates.
#[derive(Clone, Debug)]
pub struct ServerSpec {
    pub name: Spanned<String>,
    pub command: Option<Spanned<String>>,
    pub args: Vec<Spanned<String>>,
    pub env: Vec<(String, Spanned<String>)>,
    pub cwd: Option<Spanned<String>>,
    pub url: Option<Spanned<String>>,
    pub transport: Option<&'static str>,
    pub headers: Vec<(String, Spanned<String>)>,
    pub required: bool,
    pub timeout_ms: Option<u64>,
    pub include_tools: Option<Vec<String>>,
    pub exclude_tools: Vec<String>,
    pub network: Vec<Spanned<String>>,
    pub writes_tree: bool,
    pub oauth: Option<Spanned<super::plan::ClientCredentials>>,
}

/// A step.
#[derive(Clone, Debug)]
pub struct Step {
    pub id: Spanned<String>,
    /// An expression; the step is skipped where it is false.
    pub when: Option<Spanned<String>>,
    pub work: StepSource,
    /// Whether the step's answer or output must be findings.
    pub findings: bool,
    pub checks: Vec<CheckSpec>,
    pub retries: u32,
    /// `retry: { fresh: true }`.
    pub fresh: bool,
    pub expect: Option<Expect>,
    pub skip_if_green: Option<bool>,
    pub budget: Option<BudgetSpec>,
}

impl Step {
    /// A step with only its work. A field that is added to `Step` stays at its default in recipes of other programs until
    /// a converter sets it.
    pub(super) fn plain(id: Spanned<String>, work: StepSource) -> Self {
        Self {
            id,
            when: None,
            work,
            findings: false,
            checks: Vec::new(),
            retries: 0,
            fresh: false,
            expect: None,
            skip_if_green: None,
            budget: None,
        }
    }
}

impl Recipe {
    /// A recipe of another program, with what that program's format has no word for left at its default. A field that is
    /// added to `Recipe` stays at its default there too, until a converter sets it.
    pub(super) fn foreign(name: Spanned<String>, steps: Vec<Step>, head: Span) -> Self {
        Self {
            name,
            description: String::new(),
            parameters: Vec::new(),
            input: None,
            files: Vec::new(),
            models: Vec::new(),
            model_settings: super::plan::ModelSettings::default(),
            policy: None,
            on_deny: OnDeny::default(),
            expect: Expect::Any,
            expect_at: None,
            skip_if_green: false,
            budget: BudgetSpec::default(),
            context: Vec::new(),
            required_context: Vec::new(),
            skills: Vec::new(),
            memory: false,
            isolate_keep: Vec::new(),
            tools: ToolsSpec::default(),
            steps,
            response: None,
            deliver: None,
            head,
        }
    }

    /// What the changes of the whole run are judged by: `expect` of the recipe, unless every step has one of its own. A
    /// `run` step without one counts only for `no_change`: it is not asked for the change that a recipe expects.
    pub fn expect_of_run(&self) -> Expect {
        let is_run = |step: &Step| matches!(step.work, StepSource::Run { .. });
        let all_count = self.expect == Expect::NoChange || self.steps.iter().all(is_run);
        let mut counting = self.steps.iter().filter(|step| all_count || !is_run(step));
        match counting.all(|step| step.expect.is_some()) {
            true => Expect::Any,
            false => self.expect,
        }
    }
}

/// The action of a step; its texts are templates.
#[derive(Clone, Debug)]
pub enum StepSource {
    Prompt(Spanned<String>),
    /// A prompt of an MCP server. Its arguments cannot refer to steps.
    Mcp {
        server: Spanned<String>,
        name: Spanned<String>,
        arguments: Vec<(String, Spanned<String>)>,
        /// Text that is appended to it.
        text: Option<Spanned<String>>,
    },
    Run {
        command: Spanned<String>,
        timeout_ms: Option<u64>,
        allow_failure: bool,
    },
}

/// A check; its texts are templates.
#[derive(Clone, Debug)]
pub struct CheckSpec {
    pub name: Spanned<String>,
    pub what: CheckKind,
}

/// The kinds of checks.
#[derive(Clone, Debug)]
pub enum CheckKind {
    Run {
        command: Spanned<String>,
        timeout_ms: Option<u64>,
    },
    Changed {
        only: Vec<Spanned<String>>,
        never: Vec<Spanned<String>>,
        max_files: Option<u64>,
        max_lines: Option<u64>,
    },
    File {
        path: Spanned<String>,
        contains: Option<Spanned<String>>,
    },
    /// A command that gets the step's answer on stdin.
    AnswerRun {
        command: Spanned<String>,
        timeout_ms: Option<u64>,
    },
    /// A JSON Schema that the step's answer must match.
    AnswerSchema(SchemaSpec),
}

impl CheckKind {
    /// Whether the check is about the step's answer.
    pub fn is_of_answer(&self) -> bool {
        matches!(self, Self::AnswerRun { .. } | Self::AnswerSchema(_))
    }

    /// The command of the check, if it has one.
    pub fn command(&self) -> Option<&Spanned<String>> {
        match self {
            Self::Run { command, .. } | Self::AnswerRun { command, .. } => Some(command),
            Self::Changed { .. } | Self::File { .. } | Self::AnswerSchema(_) => None,
        }
    }
}

/// How `overnight deliver` presents a change; the texts are templates.
#[derive(Clone, Debug, Default)]
pub struct DeliverSpec {
    pub title: Option<Spanned<String>>,
    pub body: Option<Spanned<String>>,
    pub commit: Option<Spanned<String>>,
    pub branch: Option<Spanned<String>>,
    pub base: Option<Spanned<String>>,
    pub labels: Vec<Spanned<String>>,
    pub reviewers: Vec<Spanned<String>>,
    pub draft: bool,
}

/// The required form of the final answer.
#[derive(Clone, Debug)]
pub struct ResponseSpec {
    pub schema: SchemaSpec,
    pub retries: u32,
}
