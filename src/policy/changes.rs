//! Rules on a changed path as if a tool had written it.

use super::bounds::{protects, refuse};
use super::lexical_access::without_tree;
use super::model::{Policy, PolicySet, Rule, RuleEffect, SHELL};
use super::needs::Need;
use super::rule_match::{file_fits, forbids, path_fits};
use super::shell::{CommandRefusal, FileUse};
use crate::base::access::ResolvedPath;
use crate::base::call::{ArgumentTarget, ToolSpec};
use crate::base::ruling::PolicyInput;
use crate::tools::{CommandAccessKind, builtin_for, builtin_spec, file_writers};
use serde_json::Value;

/// The author of a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Author {
    /// The model, by a tool call; also servers, discovered tools and steps of an untrusted recipe.
    Call,
    /// The recipe's author, by a `run` step of a trusted recipe: deny rules and protected paths apply, allow rules are
    /// not required.
    TrustedStep,
    /// The person who approved a suspended call: the same rules apply as to a trusted step.
    Approved,
}

/// The ruling on a change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ChangeRuling {
    Allowed,
    /// A deny rule that names the path, or its protection, forbids the change.
    Denied {
        rule: Option<String>,
        code: String,
    },
    /// No rule allows it and none denies it.
    Unruled {
        rule: Option<String>,
        code: String,
    },
}

/// The tools that could have made a change: first the one that writes whole files, last the one for commands.
fn writers() -> impl Iterator<Item = &'static ToolSpec> {
    file_writers().chain([builtin_for(CommandAccessKind::Runs)])
}

/// A call of a tool of which the arguments are not known.
fn call_of(tool: &'static ToolSpec) -> PolicyInput<'static> {
    PolicyInput::of(tool, &Value::Null)
}

/// Rules on one changed path, relative to the workspace, as on a write of that path by a tool that writes files, or
/// by a command whose rule covers it by its `paths`. The change is allowed if one of these tools may make it under all
/// files; a deny rule with `paths` counts whichever tool it names. `times` and conditions on arguments, except on the
/// path, are ignored.
pub fn rule_change(set: &PolicySet, path: &str, by: Author) -> ChangeRuling {
    let place = ResolvedPath::of_tree(path);
    let used = FileUse::of_tree(path);
    let of = |tool: &'static ToolSpec| Writer {
        asked: call_of(tool),
        need: match tool.effects.touches {
            ArgumentTarget::Commands => Need::ShellWrite(&used, None),
            _ => Need::Write(&place),
        },
    };
    let by_tool: Vec<Writer<'_>> = writers().map(of).collect();
    if by_tool.iter().all(|writer| writer.is_protected(set, &place)) {
        return ChangeRuling::Denied {
            rule: None,
            code: "protected_path".to_owned(),
        };
    }
    let named = |effect: RuleEffect| by_tool.iter().find_map(|writer| writer.named(set, &effect));
    if let Some(rule) = named(RuleEffect::Deny) {
        return ChangeRuling::Denied {
            rule: Some(rule.name.clone()),
            code: "deny_rule".to_owned(),
        };
    }
    if by != Author::Call {
        return ChangeRuling::Allowed;
    }
    let unruled = |rule: Option<&Rule>, code: &str| ChangeRuling::Unruled {
        rule: rule.map(|rule| rule.name.clone()),
        code: code.to_owned(),
    };
    if let Some(rule) = named(RuleEffect::Suspend) {
        return unruled(Some(rule), "suspend_rule");
    }
    let refusals: Vec<Option<CommandRefusal>> = by_tool.iter().map(|writer| writer.refused(set)).collect();
    let may = |(writer, refusal): (&Writer<'_>, &Option<CommandRefusal>)| {
        refusal.is_none() && set.files.iter().all(|policy| writer.is_allowed(policy))
    };
    if by_tool.iter().zip(&refusals).any(may) {
        return ChangeRuling::Allowed;
    }
    match refusals.into_iter().flatten().next() {
        Some(refusal) => unruled(None, &refusal.code),
        None => unruled(None, "no_rule"),
    }
}

/// Rules on one changed path in a git repository that is not named `.git`, whose directory is `repository`: it is allowed
/// only where every file has a rule that names the repository, since its configuration can run programs.
pub fn rule_repository(set: &PolicySet, repository: &str, path: &str) -> ChangeRuling {
    let place = ResolvedPath::of_tree(path);
    let opened = set
        .files
        .iter()
        .all(|policy| policy.opens_repository_dir(repository, &place));
    match opened {
        true => ChangeRuling::Allowed,
        false => ChangeRuling::Denied {
            rule: None,
            code: "protected_path".to_owned(),
        },
    }
}

/// Rules on the target of a changed symbolic link: a patch with the link would let whoever uses it read what the policy
/// withholds, or write what it protects. `target`: where the link leads, with links followed.
pub fn rule_link(set: &PolicySet, target: &ResolvedPath, by: Author) -> ChangeRuling {
    let reader = Writer {
        asked: call_of(builtin_for(CommandAccessKind::Reads)),
        need: Need::Read(target),
    };
    let writer = Writer {
        asked: call_of(builtin_for(CommandAccessKind::Writes)),
        need: Need::Write(target),
    };
    if target.inside && writer.is_protected(set, target) {
        return ChangeRuling::Denied {
            rule: None,
            code: "protected_path".to_owned(),
        };
    }
    if let Some(rule) = reader.named(set, &RuleEffect::Deny) {
        return ChangeRuling::Denied {
            rule: Some(rule.name.clone()),
            code: "deny_rule".to_owned(),
        };
    }
    match reader.refused(set) {
        Some(refusal) if by == Author::Call => ChangeRuling::Unruled {
            rule: None,
            code: refusal.code,
        },
        _ => ChangeRuling::Allowed,
    }
}

/// One tool and the access that it would have made.
struct Writer<'a> {
    asked: PolicyInput<'a>,
    need: Need<'a>,
}

impl Writer<'_> {
    /// Why the bounds refuse the access under some policy file, whatever the rules say.
    fn refused(&self, set: &PolicySet) -> Option<CommandRefusal> {
        // The tree is looked up only for what lies below a directory, and this is a file.
        without_tree(|fs_view| {
            set.files
                .iter()
                .find_map(|policy| refuse(&self.need, policy, set, &self.asked, fs_view))
        })
    }

    /// Whether some file protects the path from the tool.
    fn is_protected(&self, set: &PolicySet, place: &ResolvedPath) -> bool {
        let by = |policy| protects(place, &self.need, policy, set, &self.asked).is_some() || set.is_hidden(&place.path);
        set.files.iter().any(by)
    }

    /// The first rule with this effect that names the path.
    fn named<'s>(&self, set: &'s PolicySet, effect: &RuleEffect) -> Option<&'s Rule> {
        let rules = set.files.iter().flat_map(|policy| &policy.rules);
        rules
            .filter(|rule| rule.effect == *effect && rule.paths.is_some())
            .find(|rule| forbids(rule, &self.need, &self.asked).is_ok())
    }

    /// Whether a file allows the tool to make the write.
    fn is_allowed(&self, policy: &Policy) -> bool {
        let held = policy
            .restricting()
            .any(|rule| forbids(rule, &self.need, &self.asked).is_ok());
        !held && policy.allowing().any(|rule| self.is_covered(rule))
    }

    fn is_covered(&self, rule: &Rule) -> bool {
        let (true, Need::ShellWrite(used, _)) = (self.asked.tool == SHELL, &self.need) else {
            let about = rule.is_about(self.asked.tool, self.asked.kind, self.asked.origin);
            let place = self.need.place().map(|(place, _)| place);
            let met =
                |place: &ResolvedPath| file_fits(rule, place, true).is_ok() && may_be_met(rule, self.asked.tool, place);
            return about && place.is_some_and(met);
        };
        // It is unknown which command made the change: a rule for some commands allows it, since one of them could have
        // made it.
        let speaks =
            rule.is_about_builtin(SHELL) && rule.paths.is_some() && rule.hosts.is_none() && rule.with.is_empty();
        let place = used.place.as_ref();
        speaks && place.is_some_and(|place| path_fits(rule, place, true).is_ok())
    }
}

/// Whether a call of the tool that wrote the path may have met the conditions of a rule on arguments: only the path is
/// known afterwards. An argument that the tool does not have is never given, so a condition on it is not met.
fn may_be_met(rule: &Rule, tool: &str, place: &ResolvedPath) -> bool {
    let properties = builtin_spec(tool).and_then(|spec| spec.parameters.get("properties"));
    rule.with.iter().all(|(name, pattern)| match name.as_str() {
        "file_path" => pattern.glob.is_match(&place.path),
        name => properties.is_some_and(|properties| properties.get(name).is_some()),
    })
}

#[cfg(test)]
pub(super) mod tests;
