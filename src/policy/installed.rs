//! Programs that package managers install into the workspace. Nothing else may write their directories, so that a rule
//! for `eslint` can cover `node_modules/.bin/eslint`.

use super::files::PathPattern;
use super::model::{Policy, Rule, RuleEffect, SHELL};
use super::needs::Need;
use super::rule_match::{file_fits, path_fits};
use super::shell::{CommandRefusal, INSTALLED_DIRS, Simple};
use crate::base::access::ResolvedPath;
use crate::base::call::ArgumentTarget;
use crate::tools::builtin_specs;

/// The package managers' directory that is, or contains, a path. Caches below `node_modules` contain no programs.
fn is_installed(path: &str) -> Option<&'static str> {
    let mut parts = path.split('/');
    let dir = parts.find_map(|part| INSTALLED_DIRS.into_iter().find(|dir| part.eq_ignore_ascii_case(dir)))?;
    (parts.next() != Some(".cache")).then_some(dir)
}

/// Refuses writes into such a directory by an editing tool, or by a command that names the file. Removing is allowed,
/// and so are writes by a package manager. A rule whose pattern names the directory (`node_modules/x/**`) opens it.
pub(super) fn refuse(need: &Need<'_>, policy: &Policy) -> Option<CommandRefusal> {
    let (place, true) = need.place()? else {
        return None;
    };
    if let Need::ShellWrite(_, Some(simple)) = need
        && matches!(simple.program.as_str(), "rm" | "rmdir" | "unlink")
    {
        return None;
    }
    let dir = is_installed(&place.path)?;
    if policy.allowing().any(|rule| opens(rule, dir, place)) {
        return None;
    }
    let path = place.shown();
    Some(CommandRefusal::new(
        "installed_path",
        format!("{path} is in {dir}, which package managers fill: programs there run under the rules for their names"),
        format!("let the package manager install it; only a rule that spells `{dir}` out in `paths` opens {path}"),
    ))
}

fn opens(rule: &Rule, dir: &str, place: &ResolvedPath) -> bool {
    let spells = |text: &str| text.split('/').any(|part| part.eq_ignore_ascii_case(dir));
    rule.is_about_writing()
        && rule
            .paths
            .iter()
            .flatten()
            .any(|pattern| spells(pattern.text()) && pattern.covers(place, true))
}

/// Why a rule for an installed program does not cover the way in which it is started here: this policy's own rules
/// allow writing a file that decides what runs. Irrelevant for programs that run code of the tree anyway.
pub(super) fn replaceable(policy: &Policy, simple: &Simple) -> Option<CommandRefusal> {
    let runs_code = simple.runs_tree_code && simple.effect.starts == crate::base::grant::Starts::Anything;
    if runs_code {
        return None;
    }
    let paths = simple.launches.iter().flat_map(|launch| &launch.relies_on);
    let (path, rule) = paths.filter_map(|path| Some((path, writer(policy, path)?))).next()?;
    let started = simple.launches.first().map_or("", |launch| launch.program.as_str());
    let name = &simple.program;
    Some(CommandRefusal::new(
        "program_argument",
        format!("`{path}` decides what `{started}` starts as `{name}`, and rule {rule} allows writing it"),
        format!("run `{name}` itself, or name the command in the rule exactly as typed"),
    ))
}

/// The rule that lets the model write a path, with a tool or with a command.
fn writer<'p>(policy: &'p Policy, path: &str) -> Option<&'p str> {
    let place = ResolvedPath::of_tree(path);
    let dir = is_installed(path);
    let is_open = |rule: &Rule| dir.is_none_or(|dir| opens(rule, dir, &place));
    writer_by_tool(policy, &place, &[RuleEffect::Deny], is_open).or_else(|| writer_by_command(policy, &place, is_open))
}

/// The rule for which `is_open` holds that lets a built-in tool write a path, unless a rule with one of the effects
/// `closing` closes the path to that tool: a denial of one tool leaves the others as they are.
pub(super) fn writer_by_tool<'p>(
    policy: &'p Policy,
    place: &ResolvedPath,
    closing: &[RuleEffect],
    is_open: impl Fn(&Rule) -> bool,
) -> Option<&'p str> {
    let allows =
        |rule: &Rule| rule.effect == RuleEffect::Allow && file_fits(rule, place, true).is_ok() && is_open(rule);
    // A rule about arguments may leave other calls of the same tool as they are.
    let closes = |rule: &Rule| closing.contains(&rule.effect) && !rule.is_about_arguments() && touches(rule, place);
    let writers = builtin_specs()
        .iter()
        .filter(|spec| spec.effects.touches == ArgumentTarget::WrittenFile);
    for spec in writers {
        let of_tool: Vec<&Rule> = policy.rules.iter().filter(|rule| rule.is_about_tool(spec)).collect();
        if of_tool.iter().any(|rule| closes(rule)) {
            continue;
        }
        if let Some(rule) = of_tool.into_iter().find(|rule| allows(rule)) {
            return Some(&rule.name);
        }
    }
    None
}

/// The rule about commands for which `is_open` holds that lets one write a path, unless the path is denied to commands.
fn writer_by_command<'p>(policy: &'p Policy, place: &ResolvedPath, is_open: impl Fn(&Rule) -> bool) -> Option<&'p str> {
    let closes = |rule: &Rule| rule.effect == RuleEffect::Deny && rule.closes_paths() && touches(rule, place);
    if policy.rules.iter().any(closes) {
        return None;
    }
    let writes = |rule: &&Rule| {
        rule.is_about_builtin(SHELL) && rule.paths.is_some() && path_fits(rule, place, true).is_ok() && is_open(rule)
    };
    policy.allowing().find(writes).map(|rule| rule.name.as_str())
}

/// Whether a restricting rule is about writing this path.
fn touches(rule: &Rule, place: &ResolvedPath) -> bool {
    let named = |patterns: &Vec<PathPattern>| patterns.iter().any(|pattern| pattern.touches(place, true));
    rule.paths.as_ref().is_none_or(named) && !rule.except.paths.iter().any(|pattern| pattern.covers(place, true))
}
