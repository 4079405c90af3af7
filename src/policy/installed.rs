//! Programs that package managers install into the workspace. Nothing else may write their directories, so that a rule
//! for `eslint` can cover `node_modules/.bin/eslint`.

use super::model::{Policy, Rule, RuleEffect, SHELL};
use super::needs::Need;
use super::shell::{CommandRefusal, INSTALLED_DIRS, Simple};
use crate::base::access::{PathStatus, ResolvedPath};

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
    if policy.rules.iter().any(|rule| opens(rule, dir, place)) {
        return None;
    }
    let path = place.shown();
    Some(CommandRefusal {
        code: "installed_path".to_owned(),
        reason: format!(
            "{path} is in {dir}, which package managers fill: programs there run under the rules for their names"
        ),
        fix: format!("let the package manager install it; only a rule that spells `{dir}` out in `paths` opens {path}"),
    })
}

fn opens(rule: &Rule, dir: &str, place: &ResolvedPath) -> bool {
    let spells = |text: &str| text.split('/').any(|part| part.eq_ignore_ascii_case(dir));
    rule.effect == RuleEffect::Allow
        && (rule.is_about_builtin("write_file") || rule.is_about_builtin(SHELL))
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
    Some(CommandRefusal {
        code: "program_argument".to_owned(),
        reason: format!("`{path}` decides what `{started}` starts as `{name}`, and rule {rule} allows writing it"),
        fix: format!("run `{name}` itself, or name the command in the rule exactly as typed"),
    })
}

/// The rule that allows a tool or a command to write a path.
fn writer<'p>(policy: &'p Policy, path: &str) -> Option<&'p str> {
    let place = ResolvedPath {
        asked: path.to_owned(),
        path: path.to_owned(),
        inside: true,
        found: PathStatus::File,
    };
    let dir = is_installed(path);
    let writes = |rule: &&Rule| {
        let about = rule.is_about_builtin("write_file") || rule.is_about_builtin("replace");
        let by_command = rule.is_about_builtin(SHELL) && rule.paths.is_some();
        rule.effect == RuleEffect::Allow
            && (about && rule.commands.is_none() && rule.hosts.is_none() || by_command)
            && !rule.except.paths.iter().any(|pattern| pattern.touches(&place, true))
            && match (&rule.paths, dir) {
                (_, Some(dir)) => opens(rule, dir, &place),
                (Some(patterns), None) => patterns.iter().any(|pattern| pattern.covers(&place, true)),
                (None, None) => true,
            }
    };
    let denied = policy.rules.iter().any(|rule| {
        rule.effect == RuleEffect::Deny
            && rule.is_about_builtin("write_file")
            && rule.with.is_empty()
            && rule.commands.is_none()
            && rule
                .paths
                .as_ref()
                .is_some_and(|patterns| patterns.iter().any(|pattern| pattern.touches(&place, true)))
            && rule.except.paths.is_empty()
    });
    if denied {
        return None;
    }
    policy.rules.iter().find(writes).map(|rule| rule.name.as_str())
}
