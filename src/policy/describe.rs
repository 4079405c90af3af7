//! Describes a policy in plain words.

use super::lint::behind;
use super::model::{
    CommandPrefix, Policy, PolicySet, RequestedLevel, Rule, RuleEffect, RuleRuns, RuleWrites, SHELL, ToolPattern,
};
use crate::base::budget::Budget;
use crate::base::quote::counted;
use crate::base::ruling::Decision;
use crate::diag::render::escape;
use crate::diag::units::show_duration;
use std::fmt::Write as _;

/// One paragraph per file: what it allows, what it suspends for a person, what it denies, and its sandbox and limits.
pub fn describe(set: &PolicySet) -> String {
    let mut out = String::new();
    // A file that is given with `--policy` and in the recipe is described once.
    let known = |at: usize, policy: &Policy| {
        let same =
            |other: &Policy| (&other.source.name, &other.source.digest) == (&policy.source.name, &policy.source.digest);
        set.files.iter().take(at).any(same)
    };
    let own = || set.files.iter().enumerate().filter(|(at, policy)| !known(*at, policy));
    for (_, policy) in own() {
        file(&mut out, policy);
    }
    if own().count() > 1 {
        out.push_str("All of these files must agree; the strictest wins.\n");
    }
    let requested = set.sandbox();
    let network = if requested.network.is_empty() {
        "no network".to_owned()
    } else {
        format!("network to {}", requested.network.join(", "))
    };
    match requested.level {
        RequestedLevel::None => {
            out.push_str("Commands run without a sandbox: they can use the network and do whatever this user can.\n");
        }
        level => {
            let level = level.as_str();
            let _ = writeln!(out, "Commands run in sandbox level {level} with {}.", escape(&network));
        }
    }
    if !requested.toolchains.is_empty() {
        let _ = writeln!(out, "Toolchains: {}.", requested.toolchains.join(", "));
        if requested.keep_caches {
            let _ = writeln!(
                out,
                "What commands add to the caches of toolchains is kept for the next run in this repository."
            );
        }
    }
    let pass = set.env_pass();
    if !pass.is_empty() {
        let _ = writeln!(out, "Commands see the variables {}.", pass.join(", "));
    }
    limits(&mut out, &set.limits());
    out
}

/// A heading and the rules that belong under it.
type Section = (&'static str, fn(&RuleEffect) -> bool);

fn file(out: &mut String, policy: &Policy) {
    let _ = writeln!(out, "{}", escape(&policy.source.name));
    let sections: [Section; 4] = [
        ("allowed", |effect| *effect == RuleEffect::Allow),
        ("rewritten before it runs", |effect| {
            matches!(effect, RuleEffect::Modify { .. })
        }),
        ("waits for a person", |effect| *effect == RuleEffect::Suspend),
        ("denied", |effect| *effect == RuleEffect::Deny),
    ];
    for (title, wanted) in sections {
        let rules: Vec<&Rule> = policy.rules.iter().filter(|rule| wanted(&rule.effect)).collect();
        if !rules.is_empty() {
            let _ = writeln!(out, "  {title}:");
        }
        for rule in rules {
            let _ = writeln!(out, "    - {} [{}]", escape(&sentence(rule)), escape(&rule.name));
        }
    }
    out.push_str(if policy.default == Decision::Suspend {
        "  everything else waits for a person\n"
    } else {
        "  everything else is denied\n"
    });
}

/// One rule as a phrase.
fn sentence(rule: &Rule) -> String {
    let mut out = match (&rule.commands, &rule.hosts, &rule.paths) {
        (Some(_), ..) if !rule.is_about_builtin(SHELL) => {
            format!("no call of {}, since only {SHELL} has `commands`", tools(rule))
        }
        (Some(commands), ..) => {
            // What no command matches is not allowed by the rule, either.
            let matched = |prefix: &&CommandPrefix| rule.effect != RuleEffect::Allow || behind(prefix).is_none();
            let texts: Vec<&str> = commands
                .iter()
                .filter(matched)
                .map(|prefix| prefix.text.as_str())
                .collect();
            let any = if rule.any_args { " with any arguments" } else { "" };
            let writes = match rule.writes {
                None => "",
                Some(RuleWrites::Nothing) => ", writing nothing",
                Some(RuleWrites::Paths) => ", writing only what rules for writing allow",
                Some(RuleWrites::Tree) => ", writing anywhere but protected and denied paths",
            };
            let runs = match rule.runs {
                None => "",
                Some(RuleRuns::Nothing) => ", starting no program",
                Some(RuleRuns::Anything) => ", starting any program",
            };
            match texts.is_empty() {
                true => "no command".to_owned(),
                false => format!("the commands {}{any}{writes}{runs}", ticked(&texts)),
            }
        }
        _ => tools(rule),
    };
    if let Some(paths) = &rule.paths {
        let texts: Vec<&str> = paths.iter().map(super::files::PathPattern::text).collect();
        let _ = write!(
            out,
            " on {}",
            if texts == ["**"] {
                "any path".to_owned()
            } else {
                ticked(&texts)
            }
        );
    }
    if let Some(hosts) = &rule.hosts {
        let texts: Vec<String> = hosts.iter().map(ToString::to_string).collect();
        let _ = write!(
            out,
            " at {}",
            ticked(&texts.iter().map(String::as_str).collect::<Vec<_>>())
        );
    }
    for (name, pattern) in &rule.with {
        let _ = write!(out, " where {name} is `{}`", pattern.text);
    }
    let mut except: Vec<String> = rule.except.paths.iter().map(|path| path.text().to_owned()).collect();
    except.extend(rule.except.commands.iter().map(|prefix| prefix.text.clone()));
    except.extend(rule.except.hosts.iter().map(ToString::to_string));
    if !except.is_empty() {
        let _ = write!(
            out,
            ", but not {}",
            ticked(&except.iter().map(String::as_str).collect::<Vec<_>>())
        );
    }
    if let RuleEffect::Modify { pipe } = &rule.effect {
        let _ = write!(out, ", through `{pipe}`");
    }
    if let Some(times) = rule.times {
        let _ = write!(out, ", at most {}", counted(times, "time"));
    }
    if let Some(because) = &rule.because {
        let _ = write!(out, " ({because})");
    }
    out
}

fn tools(rule: &Rule) -> String {
    let words: Vec<String> = rule
        .tools
        .iter()
        .map(|tool| match tool {
            ToolPattern::Any => "every tool".to_owned(),
            ToolPattern::Kind(kind) => format!("tools that {}", kind.as_str()),
            ToolPattern::Origin(origin) => format!("{origin} tools"),
            ToolPattern::Name(name) if name == SHELL && !rule.is_narrowed() => "every command".to_owned(),
            ToolPattern::Name(name) | ToolPattern::Glob(name) => name.clone(),
        })
        .collect();
    words.join(", ")
}

fn ticked(texts: &[&str]) -> String {
    texts
        .iter()
        .map(|text| format!("`{text}`"))
        .collect::<Vec<_>>()
        .join(", ")
}

fn limits(out: &mut String, limits: &Budget) {
    let mut parts: Vec<String> = Vec::new();
    parts.extend(limits.turns.map(|turns| counted(turns, "turn")));
    parts.extend(limits.tokens.map(|tokens| counted(tokens, "token")));
    parts.extend(
        limits
            .cost_micros
            .map(|micros| format!("{}.{:02} USD", micros / 1_000_000, micros % 1_000_000 / 10_000)),
    );
    parts.extend(limits.wall_ms.map(show_duration));
    parts.extend(
        limits
            .calls
            .iter()
            .map(|(tool, calls)| format!("{} of {tool}", counted(*calls, "call"))),
    );
    if !parts.is_empty() {
        let _ = writeln!(out, "At most {}.", escape(&parts.join(", ")));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::diag::SourceFiles;
    use crate::policy::load::{PolicySource, load};
    use crate::policy::model::KnownTools;

    #[test]
    fn a_policy_in_plain_words() {
        let text = "version: 1
rules:
  - { allow: [write_file, replace], paths: ['src/**'], except: ['src/gen/**'] }
  - { allow: run_shell_command, commands: [cargo test], times: 3 }
  - { deny: '*', paths: ['**/*.pem'], because: keys stay unread }
  - { suspend: run_shell_command, commands: [git push] }
limits: { turns: 60, wall: 30m }
";
        let source = PolicySource {
            name: "p.yaml".to_owned(),
            text: text.to_owned(),
        };
        let (set, _) = load(&mut SourceFiles::new(), &[source], &KnownTools::builtin()).unwrap();
        let expected = "p.yaml
  allowed:
    - write_file, replace on `src/**`, but not `src/gen/**` [p.yaml:3]
    - the commands `cargo test`, at most 3 times [p.yaml:4]
  waits for a person:
    - the commands `git push` [p.yaml:6]
  denied:
    - every tool on `**/*.pem` (keys stay unread) [p.yaml:5]
  everything else is denied
Commands run in sandbox level auto with no network.
At most 60 turns, 30m.
";
        assert_eq!(describe(&set), expected);
        // The same file in the recipe and under `--policy`.
        let twice = set.clone().narrowed_by(&set);
        assert_eq!(describe(&twice), expected);
    }

    #[test]
    fn no_sandbox_is_no_absence_of_a_network() {
        let source = PolicySource {
            name: "p.yaml".to_owned(),
            text: "version: 1\nextends: [builtin:read-only]\nsandbox: { level: none }\n".to_owned(),
        };
        let (set, _) = load(&mut SourceFiles::new(), &[source], &KnownTools::builtin()).unwrap();
        let said = describe(&set);
        assert!(
            said.contains("run without a sandbox") && !said.contains("no network"),
            "{said}"
        );
    }
}
