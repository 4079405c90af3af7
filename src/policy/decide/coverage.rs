//! Whether the allow rules of one file cover every access of a call.

use super::{Judge, entry, keep_nearest, launched_as};
use crate::base::call::{ArgumentTarget, ToolOrigin};
use crate::base::ruling::{Considered, PolicyInput, shown_rule};
use crate::policy::installed::replaceable;
use crate::policy::model::{Policy, Rule, needs_no_rule};
use crate::policy::needs::{Need, ShellReader, is_result_name};
use crate::policy::rule_match::{Mismatch, NO_RULE, OTHER_TOOL, allows, forbids};
use crate::policy::shell::{CommandRefusal, Simple};
use crate::tools::builtin_spec;
use serde_json::Value;

/// How the allow rules of one file cover the call.
#[derive(Default)]
pub(super) struct Coverage<'a> {
    /// The rule that covers the first access.
    pub by: Option<&'a str>,
    pub counted: Vec<String>,
    /// The first access that nothing covers, and why.
    pub open: Option<(Need<'a>, Option<CommandRefusal>)>,
    pub considered: Vec<Considered>,
}

impl Judge<'_> {
    pub(super) fn coverage<'p>(&'p self, policy: &'p Policy, suspend: Option<&Rule>) -> Coverage<'p> {
        let mut coverage = Coverage::default();
        let rules: Vec<&Rule> = policy.allowing().collect();
        let mut whys: Vec<(bool, String)> = vec![(false, OTHER_TOOL.to_owned()); rules.len()];
        for need in self.needs {
            let mut near = None;
            let mut best: Option<&Rule> = None;
            // A read of an allowed command needs no rule, so none is shown as the one that grants it.
            let shown = !matches!(need, Need::ShellRead(..));
            for (rule, (matched, why)) in rules.iter().zip(&mut whys) {
                match self.fits(policy, rule, need) {
                    Ok(()) => {
                        if !*matched && shown {
                            (*matched, *why) = (true, need.describe(self.asked));
                        }
                        best = Some(better(best, rule));
                    }
                    Err(miss) => {
                        if !*matched {
                            keep_nearest(why, &miss.why);
                        }
                        near = nearer(near, miss.near);
                    }
                }
            }
            let speaks = !need.is_shell()
                || rules
                    .iter()
                    .any(|rule| rule.is_about(self.asked.tool, self.asked.kind, self.asked.origin));
            let free = match need {
                // No command's rule has judged the file.
                Need::ShellRead(used, ShellReader::Shell) => used.place.is_none() || best.is_some(),
                _ => is_free(need, self.asked),
            };
            match best {
                _ if free && speaks => {}
                Some(rule) if speaks => {
                    coverage.by = coverage.by.or(Some(&rule.name));
                    if rule.times.is_some() && !coverage.counted.contains(&rule.name) {
                        coverage.counted.push(rule.name.clone());
                    }
                }
                _ if suspend.is_some_and(|rule| self.awaits(rule, need)) => {}
                _ => coverage.open = coverage.open.take().or(Some((*need, near))),
            }
        }
        coverage.considered = rules
            .iter()
            .zip(whys)
            .map(|(rule, (matched, why))| entry(rule, matched, why))
            .collect();
        coverage
    }

    /// Whether a rule covers an access and has uses left.
    fn fits(&self, policy: &Policy, rule: &Rule, need: &Need<'_>) -> Result<(), Mismatch> {
        allows(rule, need, self.asked)?;
        if let Need::Command(simple) = need
            && !simple.launches.is_empty()
            && !launched_as(rule, simple)
            && let Some(refusal) = replaceable(policy, simple)
        {
            return Err(Mismatch::of(refusal));
        }
        let used = self.uses.counts.get(&rule.name).copied().unwrap_or(0);
        match rule.times {
            Some(times) if used >= times => {
                let reason = format!("{} was used {used} of {times} times", shown_rule(&rule.name));
                Err(Mismatch::of(CommandRefusal::new(
                    "times_used_up",
                    reason,
                    format!("raise `times` of {}", shown_rule(&rule.name)),
                )))
            }
            _ => Ok(()),
        }
    }

    /// Whether approving a suspend rule also approves this access: the suspended one, or one of the same command.
    fn awaits(&self, rule: &Rule, need: &Need<'_>) -> bool {
        let of_command = |simple: &Simple| forbids(rule, &Need::Command(simple), self.asked).is_ok();
        forbids(rule, need, self.asked).is_ok()
            || match need {
                Need::ShellWrite(_, Some(simple)) | Need::ShellHost(_, simple) => of_command(simple),
                _ => false,
            }
    }
}

/// The more useful refusal: that a rule is about other places says less than what is wrong with the words.
fn nearer(so_far: Option<CommandRefusal>, next: Option<CommandRefusal>) -> Option<CommandRefusal> {
    match (so_far, next) {
        (Some(old), Some(new)) if old.code == NO_RULE && new.code != NO_RULE => Some(new),
        (None, next) => next,
        (old, _) => old,
    }
}

/// Accesses that need no rule: reads of an allowed command, the shell's own state (if some rule allows commands at
/// all), and the tools that only show this run's own child processes.
fn is_free(need: &Need<'_>, asked: &PolicyInput<'_>) -> bool {
    match need {
        Need::ShellRead(..) | Need::State(_) => true,
        // A place that is known only at exec is judged there.
        Need::ShellWrite(used, _) if used.opaque => true,
        Need::Tool => *asked.origin == ToolOrigin::Builtin && (needs_no_rule(asked.tool) || reads_result(asked)),
        _ => false,
    }
}

/// Whether the call reads a stored result of this run, which touches nothing in the tree.
fn reads_result(asked: &PolicyInput<'_>) -> bool {
    let reads = builtin_spec(asked.tool).is_some_and(|tool| tool.effects.touches == ArgumentTarget::File);
    let path = asked.args.get("file_path").and_then(Value::as_str);
    reads && path.is_some_and(is_result_name)
}

/// Prefers a rule without `times`; among rules with `times`, the one that sorts first, so that the order of rules does
/// not matter.
fn better<'r>(so_far: Option<&'r Rule>, rule: &'r Rule) -> &'r Rule {
    match so_far {
        None => rule,
        Some(old) if old.times.is_none() => old,
        Some(old) if rule.times.is_some() && old.name <= rule.name => old,
        Some(_) => rule,
    }
}
