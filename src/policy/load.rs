//! Builds the set of policies from their texts: rule ids, examples, and names of tools that are known only later. Pure:
//! the caller reads the files.

use super::extends::{Extended, depends_on_tree, looks_at_tree};
use super::lexical_access::{lexical, without_tree};
use super::model::{KnownTools, Policy, PolicySet, Rule, RuleEffect, SHELL, ToolPattern, Uses, path_readers};
use super::needs::gather;
use super::parse;
use super::rule_match::{forbids, modifies};
use super::shell::{self, Grants};
use crate::base::access::{Access, CommandAccess, FsView};
use crate::base::call::{ArgumentTarget, ToolKind, ToolOrigin, ToolSpec};
use crate::base::ruling::{Decision, PolicyInput};
use crate::diag::diagnostic::{any_error, sort};
use crate::diag::{Diagnostic, SourceFiles, Span};
use crate::tools::{CommandAccessKind, builtin_for, file_writers};
use serde_json::{Value, json};

/// A policy text and its name: the path as it was given on the command line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PolicySource {
    pub name: String,
    pub text: String,
}

/// The name of the policy that applies when none is given.
pub(super) const DEFAULT: &str = "builtin:read-only";

/// Loads all policies; without any, `builtin:read-only` applies. A source that is given twice counts once.
///
/// Adds the texts to `files`, so that problems can be rendered. Warnings are returned with the set.
///
/// # Errors
/// All problems of all files, sorted, if any of them is an error.
pub fn load(
    files: &mut SourceFiles,
    sources: &[PolicySource],
    known: &KnownTools,
) -> Result<(PolicySet, Vec<Diagnostic>), Vec<Diagnostic>> {
    load_with(files, sources, known, &Extended::default())
}

/// Like [`load`], with the files that the sources extend and the properties of the tree.
///
/// # Errors
/// Like [`load`].
pub fn load_with(
    files: &mut SourceFiles,
    sources: &[PolicySource],
    known: &KnownTools,
    extended: &Extended,
) -> Result<(PolicySet, Vec<Diagnostic>), Vec<Diagnostic>> {
    let (set, problems) = check_with(files, sources, known, extended);
    match any_error(&problems) {
        true => Err(problems),
        false => Ok((set, problems)),
    }
}

/// Like [`load_with`], for a check that reports everything at once: all problems, sorted, and the set as far as it could
/// be read. If one of the problems is an error, nothing may be ruled by the set.
pub fn check_with(
    files: &mut SourceFiles,
    sources: &[PolicySource],
    known: &KnownTools,
    extended: &Extended,
) -> (PolicySet, Vec<Diagnostic>) {
    let builtin = [PolicySource {
        name: DEFAULT.to_owned(),
        text: super::presets::text(DEFAULT, None, &[]).unwrap_or_default(),
    }];
    let sources = if sources.is_empty() { &builtin } else { sources };
    let mut problems = Vec::new();
    let mut policies: Vec<Policy> = Vec::new();
    for (index, source) in sources.iter().enumerate() {
        if sources.iter().take(index).any(|earlier| earlier == source) {
            continue;
        }
        let file = files.add(source.name.clone(), source.text.clone());
        let policy = parse::policy(files, file, known, extended, &mut problems);
        problems.extend(
            policy
                .as_ref()
                .and_then(|policy| without_toolchain(files.whole(file).point(), policy)),
        );
        policies.extend(policy);
    }
    duplicate_ids(files, &policies, &mut problems);
    let set = PolicySet::of(policies);
    for policy in &set.files {
        // The examples of a rule with an error would only repeat it.
        let sound = policy.rules.iter().filter(|rule| rule.sound);
        problems.extend(sound.flat_map(|rule| failed_examples(policy, rule)));
    }
    sort(&mut problems);
    (set, problems)
}

impl PolicySet {
    /// Denies commands that begin with the words of an entry of `never` and, if `only` is set, those that begin with
    /// the words of none of its entries. Used for the settings of a recipe.
    ///
    /// # Errors
    /// An entry is not a list of plain words. The error is a phrase for people.
    pub fn limit_commands(&mut self, only: Option<&[String]>, never: &[String]) -> Result<(), String> {
        let quoted = |entries: &[String]| serde_json::to_string(entries).unwrap_or_default();
        let mut text = "version: 1\nrules:\n".to_owned();
        let because = "because: the settings of the recipe leave the command out";
        if let Some(only) = only {
            let except = quoted(only);
            text.push_str(&format!(
                "  - {{ id: 'settings:core', deny: {SHELL}, except: {except}, {because} }}\n"
            ));
        }
        if !never.is_empty() {
            let commands = quoted(never);
            text.push_str(&format!(
                "  - {{ id: 'settings:exclude', deny: {SHELL}, commands: {commands}, {because} }}\n"
            ));
        }
        let source = PolicySource {
            name: "settings".to_owned(),
            text,
        };
        let loaded = load(&mut SourceFiles::new(), &[source], &KnownTools::builtin());
        let (limits, _) = loaded.map_err(|problems| {
            let first = problems.into_iter().map(|problem| problem.message).next();
            first.unwrap_or_default()
        })?;
        if let Some(first) = self.files.first_mut() {
            first.rules.extend(limits.files.into_iter().flat_map(|file| file.rules));
        }
        Ok(())
    }
}

/// A warning for a policy that depends on the tree's toolchains if none is recognised in the tree.
fn without_toolchain(span: Span, policy: &Policy) -> Option<Diagnostic> {
    let asks = depends_on_tree(&policy.source.name) || looks_at_tree(&policy.source.text);
    if !asks
        || policy
            .sandbox
            .toolchains
            .as_ref()
            .is_some_and(|named| !named.is_empty())
    {
        return None;
    }
    let message = "no toolchain was recognised in the tree, so no build command is allowed".to_owned();
    let help = "name them, as in `sandbox: { toolchains: [rust] }` with `extends: [builtin:build]`, or extend `builtin:rust`, `builtin:node` …";
    Some(Diagnostic::warning("no-toolchain", span, message).help(help))
}

fn duplicate_ids(files: &SourceFiles, policies: &[Policy], problems: &mut Vec<Diagnostic>) {
    let mut seen: Vec<(&str, Span)> = Vec::new();
    for rule in policies.iter().flat_map(|policy| &policy.rules) {
        if rule.is_of_preset() {
            continue;
        }
        match seen.iter().find(|(name, _)| *name == rule.name) {
            // Two policies may extend the same file.
            Some((_, first)) if files.place(*first) == files.place(rule.span) => {}
            Some((_, first)) => {
                let problem = Diagnostic::error(
                    "duplicate-id",
                    rule.span,
                    format!("two rules have the id `{}`", rule.name),
                );
                problems.push(
                    problem
                        .label(*first, "first used here")
                        .help("give one of them another `id`"),
                );
            }
            None => seen.push((&rule.name, rule.span)),
        }
    }
}

/// Errors for names of MCP and discovered tools that no tool has. Call it when all tools are known, before the first
/// request. Tools of the servers in `absent` cannot be checked.
pub fn check_names(set: &PolicySet, tools: &[(String, ToolKind, ToolOrigin)], absent: &[String]) -> Vec<Diagnostic> {
    let mut problems = Vec::new();
    for rule in set.files.iter().flat_map(|policy| &policy.rules) {
        for pattern in &rule.tools {
            let later = matches!(pattern, ToolPattern::Name(_) | ToolPattern::Glob(_));
            if later
                && !tools
                    .iter()
                    .any(|(name, kind, origin)| pattern.fits(name, *kind, origin))
                && !is_builtin(pattern)
                && !absent
                    .iter()
                    .any(|server| pattern.text().starts_with(&format!("{server}__")))
            {
                let text = pattern.text();
                let problem = Diagnostic::error("unknown-tool", rule.span, format!("no tool is named `{text}`"));
                let server = text.split("__").next().unwrap_or_default();
                let near = tools
                    .iter()
                    .map(|(name, ..)| name.as_str())
                    .filter(|name| name.starts_with(server));
                let help = crate::diag::did_you_mean(&text, near);
                problems
                    .push(problem.help(help.unwrap_or_else(|| "see `overnight tools list` for the names".to_owned())));
            }
        }
    }
    problems
}

/// Built-in names were checked at load; a recipe may exclude the tool.
fn is_builtin(pattern: &ToolPattern) -> bool {
    matches!(pattern, ToolPattern::Name(name) if KnownTools::builtin().canonical(name).is_some())
}

fn failed_examples(policy: &Policy, rule: &Rule) -> Vec<Diagnostic> {
    let mut problems = Vec::new();
    let examples = &rule.examples;
    let wanted = examples.matching.iter().map(|example| (example, true));
    for ((text, span), wanted) in wanted.chain(examples.not_matching.iter().map(|example| (example, false))) {
        match example(policy, rule, text) {
            Ok(()) if wanted => {}
            Err(_) if !wanted => {}
            Ok(()) => {
                let problem = Diagnostic::error("example-matches", *span, format!("the rule matches `{text}`"));
                problems.push(problem.help("narrow the rule, or move the example to `match`"));
            }
            Err(why) => {
                let problem = Diagnostic::error(
                    "example-does-not-match",
                    *span,
                    format!("the rule does not match `{text}`: {why}"),
                );
                problems.push(problem.help("widen the rule, or move the example to `not_match`"));
            }
        }
    }
    problems
}

/// Whether a rule alone matches an example; the error says why not.
fn example(policy: &Policy, rule: &Rule, text: &str) -> Result<(), String> {
    without_tree(|fs_view| example_on(policy, rule, text, fs_view))
}

fn example_on(policy: &Policy, rule: &Rule, text: &str, fs_view: &FsView<'_>) -> Result<(), String> {
    let (tool, access, args) = example_call(rule, text);
    let asked = PolicyInput::of(tool, &args);
    if rule.effect == RuleEffect::Allow {
        let alone = PolicySet::of(vec![Policy {
            rules: vec![Rule {
                times: None,
                ..rule.clone()
            }],
            default: Decision::Deny,
            ..policy.clone()
        }]);
        let ruling = super::decide::decide(&alone, &asked, &access, fs_view, &Uses::default());
        return if ruling.decision == Decision::Allow {
            Ok(())
        } else {
            Err(ruling.reason)
        };
    }
    let granted = policy.env_pass.clone().unwrap_or_default();
    let grants = Grants {
        witness: true,
        assignments: &granted,
        profiles: policy.profiles.as_deref(),
    };
    let mut readings = Vec::new();
    for command in &access.commands {
        readings.push(shell::read(&command.text, &command.dir, fs_view, &grants).map_err(|refusal| refusal.reason)?);
    }
    let needs = gather(&access, &readings);
    let hit = match rule.effect {
        RuleEffect::Modify { .. } => modifies(rule, &needs, &asked),
        _ => needs.iter().any(|need| forbids(rule, need, &asked).is_ok()),
    };
    if hit {
        Ok(())
    } else {
        Err("no access of the call matches the rule".to_owned())
    }
}

/// The call that an example stands for: a command, a URL or a path, depending on what narrows the rule.
fn example_call(rule: &Rule, text: &str) -> (&'static ToolSpec, Access, Value) {
    let (runs, fetches) = (
        builtin_for(CommandAccessKind::Runs),
        builtin_for(CommandAccessKind::Fetches),
    );
    if rule.commands.is_some() || (!rule.is_narrowed() && rule.is_about_tool(runs)) {
        let command = CommandAccess {
            text: text.to_owned(),
            dir: String::new(),
        };
        let access = Access {
            commands: vec![command],
            ..Access::none()
        };
        return (runs, access, json!({ "command": text }));
    }
    if (rule.hosts.is_some() && rule.paths.is_none()) || (!rule.is_narrowed() && rule.is_about_tool(fetches)) {
        let access = Access {
            urls: vec![text.to_owned()],
            ..Access::none()
        };
        return (fetches, access, json!({ "url": text }));
    }
    let place = lexical(text);
    if let Some(tool) = path_readers().into_iter().find(|tool| rule.is_about_tool(tool)) {
        let args = match tool.effects.touches {
            ArgumentTarget::Directory => json!({ "dir_path": text }),
            ArgumentTarget::Patterns => json!({ "include": [text] }),
            _ => json!({ "file_path": text }),
        };
        return (tool, Access::read(place), args);
    }
    let writes = builtin_for(CommandAccessKind::Writes);
    let tool = file_writers().find(|tool| rule.is_about_tool(tool)).unwrap_or(writes);
    (tool, Access::write(place), json!({ "file_path": text }))
}

#[cfg(test)]
mod tests;
