//! The one entry: a call, what it touches, the policies, what was used so far; out comes the ruling. Pure, total, bounded.

mod coverage;

use super::bounds::refuse;
use super::fit::{forbids, modifies};
use super::model::{Effect, Policy, PolicySet, Rule, Uses};
use super::needs::{MAX_NEEDS, Need, gather, prefix_of, shown};
use super::shell::{self, Grants, Reading, Refusal};
use crate::base::access::{Access, Terrain};
use crate::base::ruling::{Asked, Considered, Decision, Ruling};
use coverage::Coverage;

/// Rules on one call.
///
/// Each access must be covered by an allow rule of every file; a deny or suspend rule matches if any access does; what
/// the bounds refuse (outside, secret-like, protected …) is denied whatever the rules say. The strictest of all files wins.
pub fn decide(set: &PolicySet, asked: &Asked<'_>, access: &Access, terrain: &Terrain<'_>, uses: &Uses) -> Ruling {
    let readings = match read_commands(set, access, terrain) {
        Ok(readings) => readings,
        Err(refusal) => return denied(refusal),
    };
    let words: Vec<Vec<String>> = readings.iter().flat_map(shell::texts).collect();
    let needs = gather(access, &readings);
    if needs.len() > MAX_NEEDS {
        return denied(Refusal {
            code: "limit:accesses".to_owned(),
            reason: format!("the call touches {} places; {MAX_NEEDS} are judged", needs.len()),
            fix: "do it in several calls".to_owned(),
        });
    }
    let judge = Judge {
        set,
        asked,
        needs: &needs,
        terrain,
        uses,
    };
    let rulings = set.files.iter().map(|policy| judge.by(policy)).collect();
    Ruling {
        words,
        ..strictest(rulings)
    }
}

fn read_commands(set: &PolicySet, access: &Access, terrain: &Terrain<'_>) -> Result<Vec<Reading>, Refusal> {
    let granted = set.env_pass();
    let grants = Grants { assignments: &granted };
    let mut readings = Vec::new();
    for command in &access.commands {
        let reading = shell::read(&command.text, &command.dir, terrain, &grants)?;
        if reading.commands.is_empty() && reading.writes.is_empty() {
            return Err(Refusal {
                code: "empty_command".to_owned(),
                reason: "the command holds no program".to_owned(),
                fix: "write a command".to_owned(),
            });
        }
        readings.push(reading);
    }
    Ok(readings)
}

fn denied(refusal: Refusal) -> Ruling {
    Ruling {
        decision: Decision::Deny,
        rule: None,
        code: refusal.code,
        reason: refusal.reason,
        fix: refusal.fix,
        considered: Vec::new(),
        words: Vec::new(),
        pipe: None,
        uses: Vec::new(),
        writes: crate::base::grant::Writes::Nothing,
        deferred: Vec::new(),
    }
}

/// The strictest of the files' rulings, with what all of them considered. Two different programs to rewrite a call deny it.
fn strictest(rulings: Vec<Ruling>) -> Ruling {
    let mut considered = Vec::new();
    let mut uses: Vec<String> = Vec::new();
    let mut pipes: Vec<String> = Vec::new();
    let mut found: Option<Ruling> = None;
    for mut ruling in rulings {
        considered.append(&mut ruling.considered);
        uses.append(&mut ruling.uses);
        pipes.extend(ruling.pipe.clone());
        let stricter = found.as_ref().is_none_or(|so_far| ruling.decision > so_far.decision);
        if stricter {
            found = Some(ruling);
        }
    }
    uses.sort();
    uses.dedup();
    pipes.sort();
    pipes.dedup();
    let mut ruling = found.unwrap_or_else(|| {
        denied(Refusal {
            code: "no_rule".to_owned(),
            reason: "there is no policy".to_owned(),
            fix: "name one with --policy".to_owned(),
        })
    });
    if ruling.decision == Decision::Modify && pipes.len() > 1 {
        ruling = conflict(&pipes);
    }
    let runs = matches!(ruling.decision, Decision::Allow | Decision::Modify);
    Ruling {
        considered,
        uses: if runs { uses } else { Vec::new() },
        ..ruling
    }
}

fn conflict(pipes: &[String]) -> Ruling {
    denied(Refusal {
        code: "modify_conflict".to_owned(),
        reason: format!("modify rules with different programs match: `{}`", pipes.join("`, `")),
        fix: "narrow the modify rules so that one matches".to_owned(),
    })
}

/// What one file is judged with.
struct Judge<'a> {
    set: &'a PolicySet,
    asked: &'a Asked<'a>,
    needs: &'a [Need<'a>],
    terrain: &'a Terrain<'a>,
    uses: &'a Uses,
}

impl Judge<'_> {
    fn by(&self, policy: &Policy) -> Ruling {
        let refused = self
            .needs
            .iter()
            .find_map(|need| refuse(need, policy, self.set, self.asked, self.terrain));
        let (deny, mut considered) = self.forbidding(policy, &Effect::Deny);
        let (suspend, more) = self.forbidding(policy, &Effect::Suspend);
        considered.extend(more);
        let coverage = self.coverage(policy, suspend.map(|(rule, _)| rule));
        considered.extend(coverage.considered.iter().cloned());
        let ruling = if let Some(refusal) = refused {
            denied(refusal)
        } else if let Some((rule, need)) = deny {
            self.forbidden(rule, need)
        } else if let Some((need, near)) = &coverage.open {
            self.uncovered(policy, need, near.clone())
        } else if let Some((rule, need)) = suspend {
            self.forbidden(rule, need)
        } else {
            self.allowed(policy, &coverage, &mut considered)
        };
        Ruling { considered, ..ruling }
    }

    /// The first deny (or suspend) rule that matches, with the access, and how all of them fared.
    fn forbidding<'p>(&self, policy: &'p Policy, effect: &Effect) -> (Option<(&'p Rule, Need<'_>)>, Vec<Considered>) {
        let mut first = None;
        let mut considered = Vec::new();
        for rule in policy.rules.iter().filter(|rule| rule.effect == *effect) {
            let mut why = "another tool".to_owned();
            let hit = self.needs.iter().find(|need| match forbids(rule, need, self.asked) {
                Ok(()) => true,
                Err(miss) => {
                    keep_nearest(&mut why, &miss.why);
                    false
                }
            });
            if let Some(need) = hit {
                why = need.describe(self.asked);
                first = first.or(Some((rule, *need)));
            }
            considered.push(entry(rule, hit.is_some(), why));
        }
        (first, considered)
    }

    fn forbidden(&self, rule: &Rule, need: Need<'_>) -> Ruling {
        let what = need.describe(self.asked);
        let suspends = rule.effect == Effect::Suspend;
        let reason = match (&rule.because, suspends) {
            (Some(because), _) => format!("{what}: {because}"),
            (None, true) => format!("{what} waits for approval by rule {}", rule.name),
            (None, false) => format!("{what} is denied by rule {}", rule.name),
        };
        let fix = if suspends {
            "a person approves it with `overnight resume RUN --approve CALL`".to_owned()
        } else {
            format!("go another way, or narrow rule {} with `except`", rule.name)
        };
        Ruling {
            decision: rule.effect.decision(),
            rule: Some(rule.name.clone()),
            ..denied(Refusal {
                code: if suspends { "suspend_rule" } else { "deny_rule" }.to_owned(),
                reason,
                fix,
            })
        }
    }

    fn uncovered(&self, policy: &Policy, need: &Need<'_>, near: Option<Refusal>) -> Ruling {
        let what = need.describe(self.asked);
        // The model reads this: where the file lies is nothing that a recording should hold.
        let file = policy.source.name.rsplit('/').next().unwrap_or_default();
        let refusal = near.unwrap_or_else(|| Refusal {
            code: uncovered_code(need).to_owned(),
            reason: format!("no rule of {file} allows: {what}"),
            fix: self.missing_rule(need),
        });
        Ruling {
            decision: policy.default,
            ..denied(refusal)
        }
    }

    /// The line that says which rule is missing.
    fn missing_rule(&self, need: &Need<'_>) -> String {
        let tool = self.asked.tool;
        let path = need.place().map_or(".", |(place, _)| shown(place));
        match need {
            Need::Tool => format!("needs a rule `allow: {tool}`"),
            Need::Read(_) | Need::Write(_) => format!("needs a rule that allows {tool} on {path}"),
            Need::Url(url) | Need::ShellHost(url, _) => {
                format!("needs a rule that allows {tool} with the host of {url} under `hosts`")
            }
            Need::Command(simple) | Need::State(simple) => {
                format!(
                    "needs a rule that allows {tool} with `{}` under `commands`",
                    prefix_of(simple)
                )
            }
            Need::ShellRead(_) => format!("needs a rule that allows read_file on {path}"),
            Need::ShellWrite(..) => {
                format!("writing {path} from a command (`> {path}`) needs a rule that allows write_file on {path}")
            }
        }
    }

    fn allowed(&self, policy: &Policy, coverage: &Coverage<'_>, considered: &mut Vec<Considered>) -> Ruling {
        let mut pipes: Vec<(&Rule, &String)> = Vec::new();
        for rule in &policy.rules {
            let Effect::Modify { pipe } = &rule.effect else {
                continue;
            };
            let matched = modifies(rule, self.needs, self.asked);
            let why = if matched {
                format!("rewritten by `{pipe}`")
            } else {
                "nothing fits".to_owned()
            };
            considered.push(entry(rule, matched, why));
            if matched {
                pipes.push((rule, pipe));
            }
        }
        let by = coverage.by.map(ToOwned::to_owned);
        let reason = match &by {
            Some(rule) => format!("allowed by {rule}"),
            None => "it needs no rule".to_owned(),
        };
        let base = Ruling {
            decision: Decision::Allow,
            rule: by,
            uses: coverage.counted.clone(),
            ..denied(Refusal {
                code: "allowed".to_owned(),
                reason,
                fix: String::new(),
            })
        };
        match pipes.first() {
            None => base,
            Some((_, pipe)) if pipes.iter().any(|(_, other)| other != pipe) => {
                conflict(&pipes.iter().map(|(_, pipe)| (*pipe).clone()).collect::<Vec<_>>())
            }
            Some((rule, pipe)) => Ruling {
                decision: Decision::Modify,
                rule: Some(rule.name.clone()),
                code: "modify_rule".to_owned(),
                reason: format!("allowed, after `{pipe}` has rewritten it"),
                pipe: Some((*pipe).clone()),
                ..base
            },
        }
    }
}

fn uncovered_code(need: &Need<'_>) -> &'static str {
    match need {
        Need::ShellWrite(..) => "redirect_write",
        Need::Url(_) | Need::ShellHost(..) => "host_not_listed",
        _ => "no_rule",
    }
}

/// The reason that says most: "another tool" gives way to any other.
fn keep_nearest(why: &mut String, new: &str) {
    if why == "another tool" {
        new.clone_into(why);
    }
}

fn entry(rule: &Rule, matched: bool, why: String) -> Considered {
    Considered {
        rule: rule.name.clone(),
        decision: rule.effect.decision(),
        matched,
        why,
    }
}

#[cfg(test)]
mod tests;
