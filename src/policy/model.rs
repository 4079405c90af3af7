//! The data model of policies: files, rules, and what narrows a rule. Pure data.

use super::files::PathPattern;
use super::hosts::HostPattern;
use super::name_folding::wild;
use super::profiles::OwnProfiles;
use super::shell::PrefixWord;
use crate::base::budget::{Budget, least};
use crate::base::call::{ArgumentTarget, Offered, ToolKind, ToolOrigin, ToolSpec};
use crate::base::event::PolicyText;
use crate::base::grant::Starts;
use crate::base::ruling::{Decision, Ruling};
use crate::diag::Span;
use crate::tools::{self, CommandAccessKind, builtin_for};
use globset::GlobMatcher;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Several policy files that must all agree.
#[derive(Clone, Debug)]
pub struct PolicySet {
    pub(super) files: Vec<Policy>,
    /// Further workspace paths that are never written: this run's policy and recipe files.
    pub(super) protect: Vec<String>,
    /// Workspace paths that no call may access: run directories.
    pub(super) hidden: Vec<String>,
    /// Folded components of the workspace's path from the top of its repository; empty at the top.
    pub(super) above: Vec<String>,
    /// Whether the sandbox masks secret-like files for commands, so that one among the operands of a program, which the
    /// model did not write out, does no harm.
    pub(super) masked: bool,
}

/// One policy file with the rules of the presets that it extends.
#[derive(Clone, Debug)]
pub struct Policy {
    pub(super) source: PolicyText,
    /// The decision when no rule matches: [`Decision::Deny`] or [`Decision::Suspend`].
    pub(super) default: Decision,
    pub(super) rules: Vec<Rule>,
    pub(super) sandbox: SandboxSection,
    pub(super) limits: Budget,
    pub(super) delivery: DeliveryLimits,
    pub(super) env_pass: Option<Vec<String>>,
    /// The positions of the entries of `env.pass`, for warnings.
    pub(super) env_at: Vec<(String, Span)>,
    /// Argument profiles of this file, by program.
    pub(super) profiles: Option<Arc<OwnProfiles>>,
    /// Whether it is a recipe's own policy, which can only restrict: whatever it does not mention is unchanged.
    pub(super) narrows: bool,
}

impl Policy {
    /// The rules that allow.
    pub(super) fn allowing(&self) -> impl Iterator<Item = &Rule> {
        self.rules.iter().filter(|rule| rule.effect == RuleEffect::Allow)
    }

    /// The rules that deny or suspend.
    pub(super) fn restricting(&self) -> impl Iterator<Item = &Rule> {
        self.rules.iter().filter(|rule| rule.is_restricting())
    }
}

/// The `deliver` block: limits on the size of a change that `overnight deliver` accepts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DeliveryLimits {
    /// Changed files.
    pub max_files: Option<u64>,
    /// Added and removed lines together.
    pub max_lines: Option<u64>,
}

impl DeliveryLimits {
    /// The lower of the two limits, field by field.
    pub fn lowered_by(self, other: Self) -> Self {
        Self {
            max_files: least(self.max_files, other.max_files),
            max_lines: least(self.max_lines, other.max_lines),
        }
    }
}

/// The `sandbox` block as it was written.
#[derive(Clone, Debug, Default)]
pub struct SandboxSection {
    pub level: Option<RequestedLevel>,
    /// The position of the level in the file.
    pub level_at: Option<Span>,
    pub network: Option<Vec<HostPattern>>,
    /// The position of the hosts in the file.
    pub network_at: Option<Span>,
    pub toolchains: Option<Vec<String>>,
    /// `caches: keep`, or `discard`.
    pub keep_caches: Option<bool>,
}

/// The requested sandbox level, from the mildest to the strictest.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum RequestedLevel {
    None,
    Landlock,
    /// The strongest available level, at least `Landlock`.
    #[default]
    Auto,
    Full,
}

impl RequestedLevel {
    /// The word used in policies.
    pub fn as_str(self) -> &'static str {
        match self {
            RequestedLevel::None => "none",
            RequestedLevel::Landlock => "landlock",
            RequestedLevel::Auto => "auto",
            RequestedLevel::Full => "full",
        }
    }
}

/// The combined sandbox requirements of all files.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RequestedSandbox {
    pub level: RequestedLevel,
    /// Hosts that commands may reach; empty means none.
    pub network: Vec<String>,
    /// Names of toolchain presets.
    pub toolchains: Vec<String>,
    /// Whether additions to toolchain caches stay for the next run in the same repository.
    pub keep_caches: bool,
}

/// The effect of a rule on matching calls.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RuleEffect {
    Allow,
    Deny,
    Suspend,
    Modify { pipe: String },
}

impl RuleEffect {
    /// As a decision.
    pub fn decision(&self) -> Decision {
        match self {
            RuleEffect::Allow => Decision::Allow,
            RuleEffect::Deny => Decision::Deny,
            RuleEffect::Suspend => Decision::Suspend,
            RuleEffect::Modify { .. } => Decision::Modify,
        }
    }
}

/// One rule.
#[derive(Clone, Debug)]
pub struct Rule {
    /// Its `id`, or `FILE:LINE`.
    pub name: String,
    pub span: Span,
    pub effect: RuleEffect,
    pub tools: Vec<ToolPattern>,
    pub paths: Option<Vec<PathPattern>>,
    pub commands: Option<Vec<CommandPrefix>>,
    pub hosts: Option<Vec<HostPattern>>,
    pub with: Vec<(String, ValuePattern)>,
    pub except: Except,
    /// How often it may match in one run; `None`: any number of times.
    pub times: Option<u64>,
    /// The reason that a denial gives.
    pub because: Option<String>,
    /// `args: any`: the argument profile is not applied.
    pub any_args: bool,
    /// `writes`: replaces what profiles say about the files that its commands write.
    pub writes: Option<RuleWrites>,
    /// `runs`: replaces what profiles say about the programs that its commands start.
    pub runs: Option<RuleRuns>,
    /// Whether options of programs without a profile must be spelled out in `commands`: true if the rule grants hosts,
    /// or lifts `writes` or `runs`.
    pub spells_options: bool,
    pub examples: Examples,
    /// Whether it was read without an error. A policy with another rule is refused, after every problem has been found.
    pub sound: bool,
}

/// The value of `writes` on a rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RuleWrites {
    Nothing,
    /// Operands and redirects that write rules allow.
    Paths,
    /// The workspace except for protected and denied paths.
    Tree,
}

/// The value of `runs` on a rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RuleRuns {
    Nothing,
    Anything,
}

/// Exceptions of a rule.
#[derive(Clone, Debug, Default)]
pub struct Except {
    pub paths: Vec<PathPattern>,
    pub commands: Vec<CommandPrefix>,
    pub hosts: Vec<HostPattern>,
}

/// Example calls that are checked when the file is loaded.
#[derive(Clone, Debug, Default)]
pub struct Examples {
    /// Calls that the rule must match: a command line, URL or path, and its position in the file.
    pub matching: Vec<(String, Span)>,
    /// Calls that it must not match, likewise.
    pub not_matching: Vec<(String, Span)>,
}

/// One entry of `commands`.
#[derive(Clone, Debug)]
pub struct CommandPrefix {
    pub text: String,
    pub words: Vec<PrefixWord>,
    pub span: Span,
}

impl CommandPrefix {
    /// Whether every command that begins with these words begins with the prefix.
    pub(super) fn includes(&self, words: &[PrefixWord]) -> bool {
        words.starts_with(&self.words)
    }
}

/// The condition of a rule on an argument.
#[derive(Clone, Debug)]
pub struct ValuePattern {
    pub text: String,
    pub glob: GlobMatcher,
}

/// One entry of a rule's tools.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ToolPattern {
    Any,
    Name(String),
    /// A name with `*`, such as `docs__*`.
    Glob(String),
    Kind(ToolKind),
    /// `builtin`, `discovered` or `mcp`.
    Origin(&'static str),
}

impl ToolPattern {
    /// Whether the pattern matches a tool. `discovered_tool_NAME` also matches the discovered tool `NAME`.
    pub fn fits(&self, tool: &str, kind: ToolKind, origin: &ToolOrigin) -> bool {
        let bare =
            |name: &str| name == tool || (*origin == ToolOrigin::Discovered && discovered(name) == discovered(tool));
        match self {
            ToolPattern::Any => true,
            ToolPattern::Name(name) => bare(name),
            ToolPattern::Glob(pattern) => {
                wild(pattern, tool)
                    || (*origin == ToolOrigin::Discovered && wild(pattern, &format!("discovered_tool_{tool}")))
            }
            ToolPattern::Kind(wanted) => *wanted == kind,
            ToolPattern::Origin(word) => *word == origin_word(origin),
        }
    }

    /// As written in a policy file.
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

/// The name of an origin in policies.
fn origin_word(origin: &ToolOrigin) -> &'static str {
    match origin {
        ToolOrigin::Builtin => "builtin",
        ToolOrigin::Discovered => "discovered",
        ToolOrigin::Mcp(_) => "mcp",
    }
}

impl Rule {
    /// Whether the rule applies to a tool.
    pub fn is_about(&self, tool: &str, kind: ToolKind, origin: &ToolOrigin) -> bool {
        self.tools.iter().any(|pattern| pattern.fits(tool, kind, origin))
    }

    /// Whether commands must not write the paths that it names, because it denies or suspends writing them.
    pub(super) fn closes_paths(&self) -> bool {
        self.closes_paths_of(tools::builtin_specs())
    }

    /// The same, where these are the built-in tools.
    fn closes_paths_of(&self, tools: &[ToolSpec]) -> bool {
        self.is_restricting()
            && self.paths.is_some()
            && self.commands.is_none()
            && self.with.is_empty()
            && tools
                .iter()
                .any(|tool| tool.effects.can_write() && self.is_about_tool(tool))
    }

    /// Whether the rule applies to one of the built-in tools.
    pub fn is_about_builtin(&self, name: &str) -> bool {
        builtin_kind(name).is_some_and(|kind| self.is_about(name, kind, &ToolOrigin::Builtin))
    }

    /// Whether the rule applies to the tool with this declaration.
    pub fn is_about_tool(&self, tool: &ToolSpec) -> bool {
        self.is_about(&tool.name, tool.kind, &tool.origin)
    }

    /// Whether the rule applies to a built-in tool of this sort.
    pub fn is_about_any(&self, of: impl Fn(&ToolSpec) -> bool) -> bool {
        tools::builtin_specs()
            .iter()
            .any(|tool| of(tool) && self.is_about_tool(tool))
    }

    /// Whether the rule applies to the tool whose rules also decide this access of commands.
    pub fn is_about_access(&self, access: CommandAccessKind) -> bool {
        self.is_about_tool(builtin_for(access))
    }

    /// Whether the rule denies or suspends.
    pub(super) fn is_restricting(&self) -> bool {
        matches!(self.effect, RuleEffect::Deny | RuleEffect::Suspend)
    }

    /// Whether the rule is about writing files with a tool, or about commands, which write files too.
    pub(super) fn is_about_writing(&self) -> bool {
        self.is_about_access(CommandAccessKind::Writes) || self.is_about_builtin(SHELL)
    }

    /// Whether the rule comes from a built-in policy (`builtin:edit`).
    pub(super) fn is_of_preset(&self) -> bool {
        self.name.starts_with("builtin:")
    }

    /// Whether the rule is only about calls with certain arguments.
    pub(super) fn is_about_arguments(&self) -> bool {
        self.commands.is_some() || self.hosts.is_some() || !self.with.is_empty()
    }

    /// Whether the rule applies to all that its tools, paths, commands and hosts name: no condition on an argument, no
    /// exception.
    pub(super) fn is_unconditional(&self) -> bool {
        let except = &self.except;
        self.with.is_empty() && except.paths.is_empty() && except.commands.is_empty() && except.hosts.is_empty()
    }

    /// Whether the rule is narrowed by what a call touches.
    pub fn is_narrowed(&self) -> bool {
        self.paths.is_some() || self.commands.is_some() || self.hosts.is_some()
    }
}

/// The name of the tool that runs shell text.
pub use crate::tools::SHELL;

/// Whether a built-in tool needs no rule, because it shows only what this run started itself.
pub fn needs_no_rule(tool: &str) -> bool {
    tools::builtin_spec(tool).is_some_and(|spec| spec.effects.offered == Offered::WithCommands)
}

/// One tool that policies may name.
#[derive(Clone, Debug)]
pub struct KnownTool {
    pub name: String,
    pub kind: ToolKind,
    pub aliases: Vec<String>,
}

/// The tools that a policy may name without the prefixes `SERVER__` and `discovered_tool_`.
#[derive(Clone, Debug)]
pub struct KnownTools {
    tools: Vec<KnownTool>,
}

/// The kind of a built-in tool.
pub fn builtin_kind(name: &str) -> Option<ToolKind> {
    tools::builtin_spec(name).map(|spec| spec.kind)
}

/// What the arguments of a built-in tool name.
pub(super) fn builtin_touches(name: &str) -> Option<ArgumentTarget> {
    tools::builtin_spec(name).map(|spec| spec.effects.touches)
}

/// The built-in tools that read paths: first those of one file, then those that show contents of several, then searches.
pub(super) fn path_readers() -> Vec<&'static ToolSpec> {
    let reads =
        |tool: &&ToolSpec| tool.effects.touches.is_path() && tool.effects.touches != ArgumentTarget::WrittenFile;
    let mut found: Vec<&ToolSpec> = tools::builtin_specs().iter().filter(reads).collect();
    found.sort_by_key(|tool| (tool.kind != ToolKind::Read, !tool.effects.shows_contents));
    found
}

impl KnownTools {
    /// The built-in tools with the aliases of the documentation.
    pub fn builtin() -> Self {
        let tools = tools::builtin_specs().iter().map(|spec| KnownTool {
            name: spec.name.clone(),
            kind: spec.kind,
            aliases: spec.aliases.clone(),
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

    /// The kind of a tool, by its canonical name.
    pub fn kind(&self, name: &str) -> Option<ToolKind> {
        self.tools.iter().find(|tool| tool.name == name).map(|tool| tool.kind)
    }

    /// All names, without aliases.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.tools.iter().map(|tool| tool.name.as_str())
    }
}

/// How often each counted rule was used so far, by rule name. Computed from `Ruling::uses`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Uses {
    pub counts: BTreeMap<String, u64>,
}

impl Uses {
    /// Counts the uses of a ruling. For calls that run, in the order of the journal.
    pub fn count(&mut self, ruling: &Ruling) {
        for rule in &ruling.uses {
            *self.counts.entry(rule.clone()).or_default() += 1;
        }
    }
}

/// A command with only known words that was allowed (or approved) before it started.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RuledCommand {
    /// The words after the program's name.
    pub rest: Vec<String>,
    /// Identity of the program: a bare name, an absolute path, or `./` and a path from the workspace's root.
    pub program: String,
    /// Directories for which it was ruled on, relative to the workspace's root.
    pub dirs: Vec<String>,
    pub starts: Starts,
    /// Whether it starts an installed program by name; which program that is, is checked again at exec.
    pub launched: bool,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::call::{ArgumentTarget, ToolEffects};
    use crate::diag::SourceFiles;
    use crate::policy::load::{PolicySource, load};

    fn made_up(effects: ToolEffects) -> ToolSpec {
        ToolSpec {
            name: "append_file".to_owned(),
            display_name: String::new(),
            description: String::new(),
            kind: ToolKind::Edit,
            origin: ToolOrigin::Builtin,
            parameters: serde_json::json!({ "type": "object" }),
            aliases: Vec::new(),
            effects,
        }
    }

    #[test]
    fn a_new_tool_that_writes_files_closes_paths() {
        let text = "version: 1\nrules: [{ deny: write_file, paths: [a] }]";
        let source = PolicySource {
            name: "p.yaml".to_owned(),
            text: text.to_owned(),
        };
        let (set, _) = load(&mut SourceFiles::new(), &[source], &KnownTools::builtin()).unwrap();
        let rule = Rule {
            tools: vec![ToolPattern::Name("append_file".to_owned())],
            ..set.files[0].rules[0].clone()
        };
        for (effects, closes) in [
            (ToolEffects::writes(ArgumentTarget::WrittenFile), true),
            (ToolEffects::writes(ArgumentTarget::Commands), true),
            (ToolEffects::shows(ArgumentTarget::File), false),
            (ToolEffects::reaches_outside(ArgumentTarget::Urls), false),
            (ToolEffects::default(), false),
        ] {
            assert_eq!(rule.closes_paths_of(&[made_up(effects)]), closes, "{effects:?}");
        }
        assert!(!rule.closes_paths());
        let by_kind = Rule {
            tools: vec![ToolPattern::Kind(ToolKind::Edit)],
            ..rule
        };
        assert!(
            by_kind.closes_paths_of(&[made_up(ToolEffects::writes(ArgumentTarget::WrittenFile))])
                && by_kind.closes_paths()
        );
    }
}
