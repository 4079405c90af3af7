//! Warnings on valid policies: rules that allow more, or less, than they seem to.

mod ineffective;

use super::files::PathPattern;
use super::installed::writer_by_tool;
use super::model::{
    CommandPrefix, Policy, PolicySet, RequestedLevel, Rule, RuleEffect, RuleRuns, SHELL, ToolPattern, builtin_touches,
    path_readers,
};
use super::profiles::ValueClass;
use super::rule::is_later;
use super::rule_match::file_fits;
use super::secrets_like::secret_like;
use super::shell::{self, PrefixWord};
use crate::base::access::{PathStatus, ResolvedPath};
use crate::base::call::{ArgumentTarget, ToolSpec};
use crate::base::secret::is_secret_name;
use crate::diag::Diagnostic;
use crate::diag::diagnostic::{list, sort};
use crate::tools::{CommandAccessKind, builtin_for};
use ineffective::shadowed;

/// Programs that run whatever code or file they are given.
const RUNNERS: &[&str] = &[
    "bash",
    "bun",
    "busybox",
    "dash",
    "deno",
    "docker",
    "eval",
    "gdb",
    "ksh",
    "lua",
    "make",
    "node",
    "npx",
    "osascript",
    "parallel",
    "perl",
    "php",
    "podman",
    "pwsh",
    "python",
    "python3",
    "ruby",
    "script",
    "setsid",
    "sh",
    "strace",
    "sudo",
    "tclsh",
    "uvx",
    "vi",
    "vim",
    "watch",
    "zsh",
    "cmake",
    "just",
    "tox",
    "nox",
];

/// Commands that build or test: they run code of the repository.
const BUILDERS: &[&str] = &[
    "cargo build",
    "cargo run",
    "cargo test",
    "cargo clippy",
    "cargo check",
    "cargo bench",
    "npm test",
    "npm run",
    "npm install",
    "npm ci",
    "npm start",
    "yarn",
    "pnpm",
    "pytest",
    "go test",
    "go run",
    "go generate",
    "mvn",
    "gradle",
    "./gradlew",
    "./mvnw",
    "make",
    "pip install",
    "cargo install",
];

/// Programs that use the network.
const NETWORK: &[&str] = &[
    "aws",
    "az",
    "curl",
    "dig",
    "docker",
    "ftp",
    "gcloud",
    "gh",
    "git clone",
    "git fetch",
    "git pull",
    "git push",
    "git remote",
    "host",
    "nc",
    "ncat",
    "nslookup",
    "npm publish",
    "ping",
    "rsync",
    "scp",
    "sftp",
    "socat",
    "ssh",
    "telnet",
    "wget",
    "cargo publish",
    "twine",
];

/// All warnings, sorted by position. Rules of presets are not checked.
pub fn lint(set: &PolicySet) -> Vec<Diagnostic> {
    warnings(set, true)
}

/// The warnings on what could be read of policies that have errors: on their sound rules, and none that another rule
/// might answer.
pub fn lint_sound(set: &PolicySet) -> Vec<Diagnostic> {
    warnings(set, false)
}

fn warnings(set: &PolicySet, whole: bool) -> Vec<Diagnostic> {
    let mut found = Vec::new();
    for policy in &set.files {
        let own = || {
            let rules = policy.rules.iter().filter(|rule| rule.sound);
            rules.filter(|rule| !rule.is_of_preset())
        };
        for rule in own() {
            code_execution(rule, &mut found);
            network(rule, &mut found);
            never(rule, &mut found);
            unmatched(rule, &mut found);
            patterns(rule, &mut found);
            profile(rule, &mut found);
            programs(policy, rule, &mut found);
            other_readers(policy, rule, &mut found);
            shadowed(policy, rule, &mut found);
            if whole {
                closed_repository(policy, rule, &mut found);
                no_commands(policy, rule, &mut found);
                unused_modify(policy, rule, &mut found);
            }
        }
        environment(policy, &mut found);
        unconfined(policy, &mut found);
        every_host(policy, &mut found);
        if whole {
            profiles(policy, &mut found);
        }
    }
    sort(&mut found);
    found
}

/// What rules of presets grant that the same rule of a file would be warned about: programs that run any code, one line
/// for each rule. They are notes and no warnings, since a policy names its presets on purpose.
pub fn notes(set: &PolicySet) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for rule in set.files.iter().flat_map(|policy| &policy.rules) {
        let free = rule.effect == RuleEffect::Allow && rule.any_args && rule.is_about_builtin(SHELL);
        if !free || !rule.is_of_preset() {
            continue;
        }
        let runs_code = |prefix: &&CommandPrefix| {
            rule.runs == Some(RuleRuns::Anything)
                || begins(prefix, RUNNERS).is_some_and(|program| bare(prefix, program))
        };
        let commands = rule.commands.iter().flatten().filter(runs_code);
        let programs: Vec<String> = commands.map(|prefix| format!("`{}`", prefix.text)).collect();
        if programs.is_empty() {
            continue;
        }
        let line = format!(
            "Note: `{}` runs {} with any arguments: whoever may write a file may run anything in the sandbox.",
            rule.name,
            programs.join(", ")
        );
        if !lines.contains(&line) {
            lines.push(line);
        }
    }
    lines
}

fn warn(found: &mut Vec<Diagnostic>, code: &'static str, span: crate::diag::Span, message: String, help: &str) {
    found.push(Diagnostic::warning(code, span, message).help(help));
}

fn begins(prefix: &CommandPrefix, list: &[&'static str]) -> Option<&'static str> {
    let text = prefix.text.as_str();
    let known =
        |known: &&&'static str| text == **known || text.strip_prefix(**known).is_some_and(|rest| rest.starts_with(' '));
    list.iter().find(known).copied()
}

fn code_execution(rule: &Rule, found: &mut Vec<Diagnostic>) {
    if rule.effect != RuleEffect::Allow || !rule.is_about_builtin(SHELL) {
        return;
    }
    let Some(prefixes) = &rule.commands else {
        if !rule.is_narrowed() {
            let message = "this rule allows every command, which is the same as no policy for commands".to_owned();
            warn(
                found,
                "code-execution",
                rule.span,
                message,
                "list `commands`; only the sandbox confines them otherwise",
            );
        }
        return;
    };
    for prefix in prefixes {
        // `git` alone has dozens of subcommands; a program with a listed subcommand is specific enough.
        if let Some(program) = begins(prefix, RUNNERS).filter(|program| bare(prefix, program)) {
            let message = format!("`{program}` runs any code that it is given");
            warn(
                found,
                "code-execution",
                prefix.span,
                message,
                "allow the exact commands that it should run, with all their words",
            );
        } else if let Some(command) = begins(prefix, BUILDERS) {
            let message = format!("`{command}` runs code of the repository: builds and tests are code");
            warn(
                found,
                "runs-repository-code",
                prefix.span,
                message,
                "only the sandbox confines it; keep `network: none` and pass no secrets",
            );
        }
    }
}

/// Whether no word after the program says what it runs, unlike in `python -m pytest` and `node --test`.
fn bare(prefix: &CommandPrefix, program: &str) -> bool {
    let rest: Vec<&str> = prefix
        .text
        .split_whitespace()
        .skip(program.split(' ').count())
        .collect();
    match rest.as_slice() {
        [] | ["-c" | "-e" | "-m" | "-lc"] => true,
        [first, ..] => matches!(*first, "-c" | "-e" | "-lc"),
    }
}

fn network(rule: &Rule, found: &mut Vec<Diagnostic>) {
    if rule.effect != RuleEffect::Allow {
        return;
    }
    for prefix in rule.commands.iter().flatten() {
        if let Some(program) = begins(prefix, NETWORK) {
            let message = format!("`{program}` uses the network and can send data out");
            warn(
                found,
                "network-program",
                prefix.span,
                message,
                &format!(
                    "prefer `{}` with `hosts`, or keep `sandbox: {{ network: none }}`",
                    builtin_for(CommandAccessKind::Fetches).name
                ),
            );
        }
    }
    let all = rule
        .hosts
        .as_ref()
        .is_some_and(|hosts| hosts.iter().any(super::hosts::HostPattern::is_all));
    let unnarrowed = !rule.is_narrowed() && names_tool(rule, ArgumentTarget::Urls);
    if all || unnarrowed {
        let message = "this rule allows every host: a URL can send data out".to_owned();
        warn(
            found,
            "every-host",
            rule.span,
            message,
            "list the hosts that are needed",
        );
    }
}

/// Whether a rule names a built-in tool whose arguments name this.
fn names_tool(rule: &Rule, touches: ArgumentTarget) -> bool {
    rule.tools
        .iter()
        .any(|pattern| matches!(pattern, ToolPattern::Name(name) if builtin_touches(name) == Some(touches)))
}

/// The words of a prefix behind assignments and wrappers, if it begins with these: then it matches no command.
pub fn behind(prefix: &CommandPrefix) -> Option<Vec<&str>> {
    let words: Vec<&str> = prefix
        .words
        .iter()
        .filter_map(|word| match word {
            PrefixWord::Text(text) => Some(text.as_str()),
            PrefixWord::End => None,
        })
        .collect();
    let mut rest = words.as_slice();
    while let Some(at) = shell::behind(rest) {
        rest = rest.get(at..).unwrap_or_default();
    }
    (rest.len() < words.len()).then(|| rest.to_vec())
}

/// Warns about prefixes of an allow rule that begin with what is taken off before rules are looked up.
fn unmatched(rule: &Rule, found: &mut Vec<Diagnostic>) {
    if rule.effect != RuleEffect::Allow {
        return;
    }
    for prefix in rule.commands.iter().flatten() {
        let Some(command) = behind(prefix) else { continue };
        let message = format!(
            "`{}` matches no command: assignments and wrappers such as `timeout` are taken off before rules are looked up",
            prefix.text
        );
        let help = match (command.as_slice(), prefix.text.contains('=')) {
            ([], _) => "write the first words of the command".to_owned(),
            (words, false) => format!("write `{}`", words.join(" ")),
            (words, true) => format!(
                "write `{}`; variables that are not harmless are listed under `env: {{ pass: [NAME] }}`",
                words.join(" ")
            ),
        };
        warn(found, "never-matches", prefix.span, message, &help);
    }
}

/// Warns about a rule that is to allow commands on paths where no rule lets a program start.
fn no_commands(policy: &Policy, rule: &Rule, found: &mut Vec<Diagnostic>) {
    let is_shell = |tool: &ToolPattern| matches!(tool, ToolPattern::Name(name) if name == SHELL);
    let only_opens = rule.paths.is_some() && rule.commands.is_none() && rule.tools.iter().all(is_shell);
    let starts = |other: &Rule| {
        let is_open = other.commands.is_some() || other.paths.is_none();
        other.effect == RuleEffect::Allow && other.is_about_builtin(SHELL) && is_open
    };
    if rule.effect == RuleEffect::Allow && only_opens && !policy.rules.iter().any(starts) {
        let message = "no program may start: this rule only opens paths to commands, and no rule lists `commands`";
        let help = "list `commands`, such as `commands: [ls, cat]`";
        warn(found, "no-commands", rule.span, message.to_owned(), help);
    }
}

fn never(rule: &Rule, found: &mut Vec<Diagnostic>) {
    let help = "no call of these tools can match it; correct the tools or leave it out";
    let takes = |touches: ArgumentTarget| touches.is_path() || touches == ArgumentTarget::Commands;
    let later = rule.tools.iter().all(|tool| match tool {
        ToolPattern::Glob(_) | ToolPattern::Origin("mcp" | "discovered") => true,
        ToolPattern::Name(name) => is_later(name),
        _ => false,
    });
    if rule.commands.is_some() && !rule.is_about_builtin(SHELL) {
        warn(
            found,
            "never-matches",
            rule.span,
            format!("`commands` applies only to {SHELL}"),
            help,
        );
    }
    let reaches = |tool: &ToolSpec| matches!(tool.effects.touches, ArgumentTarget::Urls | ArgumentTarget::Commands);
    if rule.hosts.is_some() && !rule.is_about_any(reaches) {
        warn(
            found,
            "never-matches",
            rule.span,
            format!(
                "`hosts` applies only to {} and commands",
                builtin_for(CommandAccessKind::Fetches).name
            ),
            help,
        );
    }
    if rule.paths.is_some() && !rule.is_about_any(|tool| takes(tool.effects.touches)) {
        let help = if later {
            "use `with: { ARGUMENT: PATTERN }` for tools of servers"
        } else {
            help
        };
        warn(
            found,
            "never-matches",
            rule.span,
            "`paths` applies to no call of these tools".to_owned(),
            help,
        );
    }
}

/// Warns about patterns that mean less than they seem to, or that open what is otherwise closed.
fn patterns(rule: &Rule, found: &mut Vec<Diagnostic>) {
    for pattern in rule.paths.iter().flatten() {
        let text = pattern.text();
        if rule.effect == RuleEffect::Deny
            && text.starts_with('*')
            && !text.contains('/')
            && text != "**"
            && text != "*"
        {
            let message = format!("`{text}` matches only at the top of the workspace");
            warn(
                found,
                "only-at-the-top",
                rule.span,
                message,
                "write `**/` before it to match at any depth",
            );
        }
        let protected = super::protected::entry_of(text).is_some_and(|entry| pattern.names_protected(entry));
        if rule.effect == RuleEffect::Allow && (protected || pattern.names_secret()) {
            let what = if text == ".git" {
                "only this name, and nothing for git commands"
            } else if secret_like(text).is_some() {
                "a secret-like file"
            } else {
                "a protected path"
            };
            let help = match text {
                ".git" => "for git commands, list `.git/**` in the `paths` of the rule that allows them",
                _ => "keep it only if the task needs it",
            };
            warn(
                found,
                "opens-protected",
                rule.span,
                format!("`{text}` opens {what}"),
                help,
            );
        }
        if rule.effect == RuleEffect::Allow && pattern.opens_repository() && !protected && !rule.is_about_builtin(SHELL)
        {
            warn(
                found,
                "opens-nothing",
                rule.span,
                format!("`{text}` opens nothing here: only the rule of a git command opens `.git` with it"),
                "list it in the `paths` of the rule that allows the git commands, or leave it out",
            );
        }
    }
}

/// Warns about git commands that write `.git` where no rule opens it: they are denied, whatever the rule says.
fn closed_repository(policy: &Policy, rule: &Rule, found: &mut Vec<Diagnostic>) {
    let suspends = rule.effect == RuleEffect::Suspend;
    if (!suspends && rule.effect != RuleEffect::Allow) || !rule.is_about_builtin(SHELL) {
        return;
    }
    for prefix in rule.commands.iter().flatten() {
        if !writes_repository(prefix, suspends) || is_repository_open(policy, prefix) {
            continue;
        }
        let (message, help) = match suspends {
            true => (
                format!("`{}` is denied where it writes `.git`, and not suspended", prefix.text),
                "add an `allow` rule for it with `.git/**` in `paths`, which this rule then suspends",
            ),
            false => (
                format!(
                    "`{}` writes `.git`, which this rule does not open: it is denied",
                    prefix.text
                ),
                "add `.git/**` to the `paths` of this rule, or leave the command out",
            ),
        };
        warn(found, "closed-repository", prefix.span, message, help);
    }
}

/// Whether the git command that a rule names writes the repository's own directory; `with_names`: also one that does so
/// only where it is given the name of a branch or tag.
fn writes_repository(prefix: &CommandPrefix, with_names: bool) -> bool {
    let words: Vec<&str> = prefix.text.split_whitespace().collect();
    let (Some((&"git", rest)), Some(profile)) = (words.split_first(), super::profiles::builtin("git")) else {
        return false;
    };
    let fits = |name: &[String]| name.len() <= rest.len() && name.iter().zip(rest).all(|(one, other)| one == other);
    let subs = profile.subs.iter().filter(|(name, _)| fits(name));
    subs.max_by_key(|(name, _)| name.len())
        .is_some_and(|(_, section)| section.repository || (with_names && section.more == Some(ValueClass::Ref)))
}

/// Whether an allow rule for the command, or for a wider or narrower one, opens `.git` to git.
fn is_repository_open(policy: &Policy, prefix: &CommandPrefix) -> bool {
    let related =
        |other: &CommandPrefix| prefix.words.starts_with(&other.words) || other.words.starts_with(&prefix.words);
    let mut allow = policy.allowing();
    allow.any(|rule| {
        rule.is_about_builtin(SHELL)
            && rule.paths.iter().flatten().any(PathPattern::opens_repository)
            && rule
                .commands
                .as_ref()
                .is_none_or(|prefixes| prefixes.iter().any(related))
    })
}

fn profile(rule: &Rule, found: &mut Vec<Diagnostic>) {
    if rule.any_args && rule.effect == RuleEffect::Allow {
        let message =
            "`args: any` turns off the argument profile: every option is allowed; what the command may write and start \
             stays as `writes` and `runs` say"
                .to_owned();
        warn(
            found,
            "any-arguments",
            rule.span,
            message,
            "name the option in `commands` instead, as in `git diff --stat`",
        );
    }
}

/// Warns about programs without a profile, and programs of the workspace that the model may write itself.
fn programs(policy: &Policy, rule: &Rule, found: &mut Vec<Diagnostic>) {
    if rule.effect != RuleEffect::Allow {
        return;
    }
    for prefix in rule.commands.iter().flatten() {
        let Some(PrefixWord::Text(program)) = prefix.words.first().filter(|_| behind(prefix).is_none()) else {
            continue;
        };
        if program.contains('/') && !program.starts_with('/') {
            let path = super::files::tidy(program);
            let closing = [RuleEffect::Deny, RuleEffect::Suspend];
            if let Some(writer) = writer_by_tool(policy, &ResolvedPath::of_tree(&path), &closing, |_| true) {
                let message =
                    format!("`{path}` may start and write anything, and rule {writer} lets the model write it");
                let help =
                    "exclude the script from the rule for writing, or run a program that the model cannot change";
                warn(found, "writable-program", rule.span, message, help);
            }
        } else if super::profiles::of(policy.profiles.as_deref(), program).is_none() && !is_builtin(program) {
            let lifted = rule.writes.is_some() || rule.runs.is_some();
            let (message, help) = match (rule.spells_options, lifted) {
                (true, _) if !rule.any_args => (
                    format!(
                        "`{program}` has no profile: its options are allowed only where `commands` spells them out"
                    ),
                    "spell the options out, or set `args: any`",
                ),
                (false, false) => (
                    format!("`{program}` has no profile: it may read, but neither write nor start a program"),
                    "add `writes: paths` or `writes: tree`, and `runs: anything`, where it must do more",
                ),
                _ => continue,
            };
            warn(found, "no-profile", rule.span, message, help);
        }
    }
}

/// Whether it is a shell builtin and not a program.
fn is_builtin(program: &str) -> bool {
    ["cd", "wait", "type", "read", "set", "exit", "return", "[["].contains(&program)
}

/// The tools that show the content of files, searches last.
fn readers() -> impl Iterator<Item = &'static ToolSpec> {
    path_readers().into_iter().filter(|tool| tool.effects.shows_contents)
}

/// Warns about a denial of some readers of a path that leaves another one allowed there.
fn other_readers(policy: &Policy, rule: &Rule, found: &mut Vec<Diagnostic>) {
    let named = rule.is_about_any(|tool| tool.effects.shows_contents);
    if rule.effect != RuleEffect::Deny || rule.is_about_arguments() || !named {
        return;
    }
    for pattern in rule.paths.iter().flatten() {
        let open: Vec<&str> = readers()
            .filter(|tool| reads(policy, tool, pattern))
            .map(|tool| tool.name.as_str())
            .collect();
        if open.is_empty() {
            continue;
        }
        let message = format!("{} may still read `{}`", list(&open), pattern.text());
        let help = "deny `['kind:read', 'kind:search']` to close the files to every tool that reads";
        warn(found, "other-readers", rule.span, message, help);
    }
}

/// Whether a rule lets a built-in tool read what a pattern matches, and no rule denies or suspends that.
fn reads(policy: &Policy, tool: &ToolSpec, pattern: &PathPattern) -> bool {
    let mut place = ResolvedPath::of_tree(pattern.text());
    if !pattern.is_literal() {
        place = ResolvedPath {
            found: PathStatus::Dir,
            ..ResolvedPath::of_tree(&pattern.directory())
        };
    }
    let is_same = |rule: &Rule| {
        let mut patterns = rule.paths.iter().flatten();
        patterns.any(|other| other.text() == pattern.text())
    };
    let touches = |patterns: &[PathPattern]| patterns.iter().any(|other| other.touches(&place, false));
    let closes = |rule: &Rule| {
        let fits = || rule.paths.as_deref().is_none_or(touches) && !touches(&rule.except.paths);
        rule.is_restricting() && !rule.is_about_arguments() && (is_same(rule) || fits())
    };
    let allows =
        |rule: &Rule| rule.effect == RuleEffect::Allow && (is_same(rule) || file_fits(rule, &place, false).is_ok());
    let of_tool = || policy.rules.iter().filter(|rule| rule.is_about_tool(tool));
    of_tool().any(allows) && !of_tool().any(closes)
}

fn unused_modify(policy: &Policy, rule: &Rule, found: &mut Vec<Diagnostic>) {
    if !matches!(rule.effect, RuleEffect::Modify { .. }) {
        return;
    }
    let allows = policy.allowing();
    let mut useful = allows.filter(|other| {
        let mine = |tool: &ToolPattern| match tool {
            ToolPattern::Name(name) => other.tools.contains(tool) || other.is_about_builtin(name),
            _ => true,
        };
        rule.tools.iter().any(mine)
    });
    if useful.next().is_none() {
        let message = "nothing that this rule would rewrite is allowed".to_owned();
        warn(
            found,
            "unused-modify",
            rule.span,
            message,
            "`modify` grants nothing: add an `allow` rule for the same calls",
        );
    }
}

/// Warns about a file's own profiles that no rule uses, or that replace a built-in one.
fn profiles(policy: &Policy, found: &mut Vec<Diagnostic>) {
    for (name, profile) in policy.profiles.iter().flat_map(|own| own.iter()) {
        let Some(span) = profile.span else { continue };
        let names = |prefix: &CommandPrefix| {
            let first = prefix.words.first();
            matches!(first, Some(PrefixWord::Text(program)) if program.rsplit('/').next() == Some(name))
        };
        let starts_it = |prefix: &CommandPrefix| prefix.text.split_whitespace().any(|word| word == name);
        let mut allows = policy.allowing();
        let used = allows.any(|rule| match &rule.commands {
            Some(prefixes) => prefixes.iter().any(|prefix| names(prefix) || starts_it(prefix)),
            None => rule.is_about_builtin(SHELL),
        });
        if !used {
            let message = format!("no rule allows `{name}`, so its profile is never used");
            warn(
                found,
                "unused-profile",
                span,
                message,
                "add a rule with its name under `commands`, or leave it out",
            );
        }
        if super::profiles::builtin(name).is_some() {
            let message = format!("`{name}` has a built-in profile, which this one replaces");
            let help = "keep it only if it covers what the built-in one does not";
            warn(found, "replaces-profile", span, message, help);
        }
    }
}

fn environment(policy: &Policy, found: &mut Vec<Diagnostic>) {
    for name in policy.env_pass.iter().flatten() {
        let upper = name.to_uppercase();
        let secret = is_secret_name(name);
        let loader = upper.starts_with("LD_")
            || upper.starts_with("DYLD_")
            || ["PATH", "BASH_ENV", "ENV", "NODE_OPTIONS", "PYTHONPATH"].contains(&upper.as_str());
        if secret || loader {
            let why = if secret {
                "looks like a secret"
            } else {
                "decides which code runs"
            };
            let Some((_, span)) = policy.env_at.iter().find(|(known, _)| known == name) else {
                continue;
            };
            warn(
                found,
                "risky-variable",
                *span,
                format!("`env.pass` passes `{name}` to commands: it {why}"),
                "leave it out unless a command must have it",
            );
        }
    }
}

fn unconfined(policy: &Policy, found: &mut Vec<Diagnostic>) {
    if policy.sandbox.level == Some(RequestedLevel::None)
        && let Some(span) = policy.sandbox.level_at
    {
        warn(
            found,
            "no-sandbox",
            span,
            "without a sandbox, an allowed command can do whatever this user can, and use the network".to_owned(),
            "leave `level` out, or use this policy only where something else confines the run",
        );
    }
}

/// Warns about a sandbox that lets commands reach every host.
fn every_host(policy: &Policy, found: &mut Vec<Diagnostic>) {
    let hosts = policy.sandbox.network.iter().flatten();
    if let Some(span) = policy.sandbox.network_at
        && hosts.into_iter().any(super::hosts::HostPattern::is_all)
    {
        warn(
            found,
            "every-host",
            span,
            "every command, also code of the tree, reaches every host and can send data out".to_owned(),
            "list the hosts that are needed",
        );
    }
}

#[cfg(test)]
mod tests;
