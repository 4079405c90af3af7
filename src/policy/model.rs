//! The policy as values: files, rules, what a rule is narrowed to. Reads no text and decides nothing.

use super::files::PathPattern;
use super::hosts::HostPattern;
use super::names::wild;
use super::profiles::Own;
use super::shell::PrefixWord;
use crate::base::budget::Budget;
use crate::base::call::{Kind, Origin};
use crate::base::event::PolicyText;
use crate::base::ruling::{Decision, Ruling};
use crate::diag::Span;
use globset::GlobMatcher;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Several policy files that must all agree.
#[derive(Clone, Debug)]
pub struct PolicySet {
    pub(super) files: Vec<Policy>,
    /// Further workspace paths that are never written: the policy and recipe files of this run.
    pub(super) protect: Vec<String>,
    /// Workspace paths that no call may see: run directories.
    pub(super) hidden: Vec<String>,
}

/// One policy file with the rules of the presets that it extends.
#[derive(Clone, Debug)]
pub struct Policy {
    pub(super) source: PolicyText,
    /// What is ruled when nothing matches: [`Decision::Deny`] or [`Decision::Suspend`].
    pub(super) default: Decision,
    pub(super) rules: Vec<Rule>,
    pub(super) sandbox: Sandbox,
    pub(super) limits: Budget,
    pub(super) delivery: DeliveryLimits,
    pub(super) env_pass: Option<Vec<String>>,
    /// Argument profiles of this file, by program.
    pub(super) profiles: Option<Arc<Own>>,
    /// A recipe's own policy: what it does not speak of, it leaves as it is.
    pub(super) narrows: bool,
}

/// The `deliver` block: how large a change may be that `overnight deliver` takes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DeliveryLimits {
    pub max_files: Option<u64>,
    /// Added and removed lines together.
    pub max_lines: Option<u64>,
}

impl DeliveryLimits {
    /// The lower figure of each limit.
    pub fn lowered_by(self, other: Self) -> Self {
        let lower = |a: Option<u64>, b: Option<u64>| match (a, b) {
            (Some(a), Some(b)) => Some(a.min(b)),
            (a, b) => a.or(b),
        };
        Self {
            max_files: lower(self.max_files, other.max_files),
            max_lines: lower(self.max_lines, other.max_lines),
        }
    }
}

/// The `sandbox` block as it was written.
#[derive(Clone, Debug, Default)]
pub struct Sandbox {
    pub level: Option<WishedLevel>,
    pub network: Option<Vec<HostPattern>>,
    pub toolchains: Option<Vec<String>>,
    /// `caches: keep`, or `discard`.
    pub keep_caches: Option<bool>,
}

/// The sandbox level asked for, from the mildest to the strictest.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum WishedLevel {
    None,
    Landlock,
    /// The best that can be had, at least `Landlock`.
    #[default]
    Auto,
    Full,
}

impl WishedLevel {
    /// The word used in policies.
    pub fn as_str(self) -> &'static str {
        match self {
            WishedLevel::None => "none",
            WishedLevel::Landlock => "landlock",
            WishedLevel::Auto => "auto",
            WishedLevel::Full => "full",
        }
    }
}

/// What all files together ask of the sandbox.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SandboxWish {
    pub level: WishedLevel,
    /// Hosts that commands may reach; empty for none.
    pub network: Vec<String>,
    /// Names of toolchain presets.
    pub toolchains: Vec<String>,
    /// Whether what commands add to the caches of toolchains stays for the next run in the same repository.
    pub keep_caches: bool,
}

/// What a rule does with what it matches.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Effect {
    Allow,
    Deny,
    Suspend,
    Modify { pipe: String },
}

impl Effect {
    /// As a decision.
    pub fn decision(&self) -> Decision {
        match self {
            Effect::Allow => Decision::Allow,
            Effect::Deny => Decision::Deny,
            Effect::Suspend => Decision::Suspend,
            Effect::Modify { .. } => Decision::Modify,
        }
    }
}

/// One rule.
#[derive(Clone, Debug)]
pub struct Rule {
    /// Its `id`, or `FILE:LINE`.
    pub name: String,
    pub span: Span,
    pub effect: Effect,
    pub tools: Vec<ToolPattern>,
    pub paths: Option<Vec<PathPattern>>,
    pub commands: Option<Vec<Prefix>>,
    pub hosts: Option<Vec<HostPattern>>,
    pub with: Vec<(String, ValuePattern)>,
    pub except: Except,
    pub times: Option<u64>,
    pub because: Option<String>,
    /// `args: any`: the argument profile is lifted.
    pub any_args: bool,
    /// `writes`: what its commands may write, in place of what their profiles say.
    pub writes: Option<RuleWrites>,
    /// `runs`: whether its commands may start any program, in place of what their profiles say.
    pub runs: Option<RuleRuns>,
    /// Options of programs without a profile must be spelled out in `commands`: hosts are granted, or `writes` or `runs` is lifted.
    pub spells_options: bool,
    pub examples: Examples,
}

/// The word behind `writes` on a rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RuleWrites {
    Nothing,
    /// Operands and redirects that rules for writing allow.
    Paths,
    /// The workspace, but for protected and denied paths.
    Tree,
}

/// The word behind `runs` on a rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RuleRuns {
    Nothing,
    Anything,
}

/// What a rule does not mean.
#[derive(Clone, Debug, Default)]
pub struct Except {
    pub paths: Vec<PathPattern>,
    pub commands: Vec<Prefix>,
    pub hosts: Vec<HostPattern>,
}

/// Calls that are tried when the file is loaded.
#[derive(Clone, Debug, Default)]
pub struct Examples {
    pub matching: Vec<(String, Span)>,
    pub not_matching: Vec<(String, Span)>,
}

/// One entry of `commands`.
#[derive(Clone, Debug)]
pub struct Prefix {
    pub text: String,
    pub words: Vec<PrefixWord>,
    pub span: Span,
}

/// What a rule says of an argument.
#[derive(Clone, Debug)]
pub struct ValuePattern {
    pub text: String,
    pub glob: GlobMatcher,
}

/// One entry of the tools that a rule is about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ToolPattern {
    Any,
    Name(String),
    /// A name with `*`, as `docs__*`.
    Glob(String),
    Kind(Kind),
    /// `builtin`, `discovered` or `mcp`.
    Origin(&'static str),
}

impl ToolPattern {
    /// Whether a tool is meant. `discovered_tool_NAME` means the discovered tool `NAME` too.
    pub fn fits(&self, tool: &str, kind: Kind, origin: &Origin) -> bool {
        let bare = |name: &str| name == tool || (*origin == Origin::Discovered && discovered(name) == discovered(tool));
        match self {
            ToolPattern::Any => true,
            ToolPattern::Name(name) => bare(name),
            ToolPattern::Glob(pattern) => {
                wild(pattern, tool)
                    || (*origin == Origin::Discovered && wild(pattern, &format!("discovered_tool_{tool}")))
            }
            ToolPattern::Kind(wanted) => *wanted == kind,
            ToolPattern::Origin(word) => *word == origin_word(origin),
        }
    }

    /// As it is written in a file.
    pub fn text(&self) -> String {
        match self {
            ToolPattern::Any => "*".to_owned(),
            ToolPattern::Name(name) | ToolPattern::Glob(name) => name.clone(),
            ToolPattern::Kind(kind) => format!("kind:{}", kind.as_str()),
            ToolPattern::Origin(word) => format!("origin:{word}"),
        }
    }
}

fn discovered(name: &str) -> &str {
    name.strip_prefix("discovered_tool_").unwrap_or(name)
}

/// The word of an origin in policies.
pub fn origin_word(origin: &Origin) -> &'static str {
    match origin {
        Origin::Builtin => "builtin",
        Origin::Discovered => "discovered",
        Origin::Mcp(_) => "mcp",
    }
}

impl Rule {
    /// Whether the rule is about a tool.
    pub fn is_about(&self, tool: &str, kind: Kind, origin: &Origin) -> bool {
        self.tools.iter().any(|pattern| pattern.fits(tool, kind, origin))
    }

    /// Whether the rule is about one of the built-in tools.
    pub fn is_about_builtin(&self, name: &str) -> bool {
        builtin_kind(name).is_some_and(|kind| self.is_about(name, kind, &Origin::Builtin))
    }

    /// Whether it is narrowed by what a call touches.
    pub fn is_narrowed(&self) -> bool {
        self.paths.is_some() || self.commands.is_some() || self.hosts.is_some()
    }
}

/// The name of the tool that runs shell text.
pub const SHELL: &str = "run_shell_command";

/// Tools that need no rule: they see only what this run started itself.
pub const FREE_TOOLS: &[&str] = &["list_background_processes", "read_background_output"];

/// One tool that policies may name.
#[derive(Clone, Debug)]
pub struct KnownTool {
    pub name: String,
    pub kind: Kind,
    pub aliases: Vec<String>,
}

/// The tools that a policy may name without `__` and `discovered_tool_`.
#[derive(Clone, Debug)]
pub struct KnownTools {
    tools: Vec<KnownTool>,
}

const BUILTIN: &[(&str, Kind, &[&str])] = &[
    ("list_directory", Kind::Read, &["ls"]),
    ("read_file", Kind::Read, &[]),
    ("read_many_files", Kind::Read, &[]),
    ("glob", Kind::Search, &[]),
    ("grep_search", Kind::Search, &["grep", "search_file_content"]),
    ("write_file", Kind::Edit, &[]),
    ("replace", Kind::Edit, &["edit"]),
    (SHELL, Kind::Execute, &[]),
    ("web_fetch", Kind::Fetch, &[]),
    ("google_web_search", Kind::Search, &["web_search"]),
    ("save_memory", Kind::Edit, &[]),
    ("write_todos", Kind::Plan, &[]),
    ("list_background_processes", Kind::Read, &[]),
    ("read_background_output", Kind::Read, &[]),
    ("list_mcp_resources", Kind::Read, &[]),
    ("read_mcp_resource", Kind::Read, &[]),
];

/// What a built-in tool does.
pub fn builtin_kind(name: &str) -> Option<Kind> {
    BUILTIN.iter().find(|tool| tool.0 == name).map(|tool| tool.1)
}

impl KnownTools {
    /// The built-in tools with the aliases of the documentation.
    pub fn builtin() -> Self {
        let tools = BUILTIN.iter().map(|(name, kind, aliases)| KnownTool {
            name: (*name).to_owned(),
            kind: *kind,
            aliases: aliases.iter().map(|alias| (*alias).to_owned()).collect(),
        });
        Self { tools: tools.collect() }
    }

    /// The tools of a registry.
    pub fn new(tools: Vec<KnownTool>) -> Self {
        Self { tools }
    }

    /// The canonical name of a name or alias.
    pub fn canonical(&self, name: &str) -> Option<&str> {
        let by_name = self.tools.iter().find(|tool| tool.name == name);
        let by_alias = || {
            self.tools
                .iter()
                .find(|tool| tool.aliases.iter().any(|alias| alias == name))
        };
        by_name.or_else(by_alias).map(|tool| tool.name.as_str())
    }

    /// What a tool does, by its canonical name.
    pub fn kind(&self, name: &str) -> Option<Kind> {
        self.tools.iter().find(|tool| tool.name == name).map(|tool| tool.kind)
    }

    /// All names, without aliases.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.tools.iter().map(|tool| tool.name.as_str())
    }
}

/// How often each counted rule was used so far: its name and the number of calls. A fold of `Ruling::uses`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Uses {
    pub counts: BTreeMap<String, u64>,
}

impl Uses {
    /// Counts what a ruling uses up. For calls that run, in the order of the journal.
    pub fn count(&mut self, ruling: &Ruling) {
        for rule in &ruling.uses {
            *self.counts.entry(rule.clone()).or_default() += 1;
        }
    }
}
