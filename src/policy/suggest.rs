//! `policy suggest`: the smallest rules that, added to a run's own policies, would have allowed what it did. Accesses
//! that a person should decide about are listed in comments instead.

use super::decide::{Context, allow_rules_cover};
use super::files::PathPattern;
use super::hosts;
use super::load::DEFAULT;
use super::model::{KnownTools, PolicySet, RequestedLevel, RuleEffect, SHELL, Uses};
use super::needs::{Need, hides_subcommand, line, prefix_of, written};
use super::rule_match;
use super::shell::{self, Grants};
use crate::base::access::{Access, FsView};
use crate::base::call::{ToolKind, ToolOrigin};
use crate::base::event::Unruled;
use crate::base::grant::JudgedExec;
use crate::base::quote::{shell_word, yaml_string};
use crate::base::ruling::{Decision, PolicyInput, Ruling};
use crate::diag::render::escape;
use crate::diag::{SourceFiles, diagnostic};
use crate::tools::{CommandAccessKind, builtin_for};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

/// One call of a recorded run.
#[derive(Clone, Debug)]
pub struct RecordedCall {
    /// The canonical name.
    pub tool: String,
    pub kind: ToolKind,
    pub origin: ToolOrigin,
    pub args: Value,
    pub access: Access,
    pub ruling: Ruling,
}

/// What was found only while calls ran: programs that were denied at their exec, and changes that no rule allows.
#[derive(Clone, Debug, Default)]
pub struct ObservedEffects {
    pub execs: Vec<JudgedExec>,
    pub unruled: Vec<Unruled>,
}

/// What a run did, which the suggested rules are to cover.
#[derive(Clone, Debug, Default)]
pub struct RunToCover {
    /// The policies of the run, whose profiles and variables say how its commands are read; `None` if they are not
    /// known.
    pub policies: Option<PolicySet>,
    pub calls: Vec<RecordedCall>,
    pub shown: ObservedEffects,
}

/// What runs lacked, collected one run at a time.
#[derive(Default)]
pub struct Suggestion {
    reading: BTreeSet<String>,
    /// Tools that wrote, by directory.
    writes: BTreeMap<String, BTreeSet<String>>,
    commands: BTreeSet<String>,
    shell_writes: BTreeSet<String>,
    hosts: BTreeMap<String, BTreeSet<String>>,
    others: BTreeSet<String>,
    /// Why something is not suggested.
    left: BTreeSet<String>,
}

/// Codes of denials that a rule may lift: all others remain denied and are listed in comments.
const LIFTABLE_CODES: &[&str] = &[
    "allowed",
    "modify_rule",
    "suspend_rule",
    "no_rule",
    "redirect_write",
    "host_not_listed",
    "times_used_up",
];

/// The code of a program whose caller may not start it.
const NOT_GRANTED: &str = "exec_not_granted";

/// More files than this in one directory become `DIR/**`.
const MANY: usize = 3;

impl Suggestion {
    /// Adds what a run did beyond its own policies; `fs_view` is its workspace.
    pub fn note(&mut self, run: &RunToCover, fs_view: &FsView<'_>) {
        let policies = run.policies.as_ref();
        let granted = policies.map(PolicySet::env_pass).unwrap_or_default();
        let context = RunContext {
            policies,
            fs_view,
            grants: Grants {
                witness: policies.is_none_or(|set| set.sandbox().level != RequestedLevel::None),
                assignments: &granted,
                profiles: policies.and_then(PolicySet::profiles),
            },
        };
        let missed = run
            .calls
            .iter()
            .filter(|call| !policies.is_some_and(|set| is_allowed(set, call, fs_view)));
        for call in missed {
            note(call, &context, self);
        }
        for exec in &run.shown.execs {
            note_exec(exec, &context, self);
        }
        for unruled in &run.shown.unruled {
            note_change(unruled, self);
        }
    }

    /// The text of a policy file that allows it, as far as rules should. Deterministic; the text loads without an error.
    pub fn text(mut self) -> String {
        leave_unnameable(&mut self);
        render(&self)
    }
}

/// What the calls of a run are looked at with.
struct RunContext<'a> {
    policies: Option<&'a PolicySet>,
    fs_view: &'a FsView<'a>,
    grants: Grants<'a>,
}

impl RunContext<'_> {
    /// The same without the policies: everything is noted, whether a rule covers it or not.
    fn without_policies(&self) -> Self {
        Self {
            policies: None,
            ..*self
        }
    }

    /// Whether the run's own policies cover an access, so that no rule is missing for it.
    fn allow_rules_cover(&self, need: &Need<'_>, asked: &PolicyInput<'_>) -> bool {
        let uses = Uses::default();
        self.policies.is_some_and(|set| {
            let context = Context {
                set,
                asked,
                fs_view: self.fs_view,
                uses: &uses,
                witness: self.grants.witness,
            };
            allow_rules_cover(&context, need)
        })
    }
}

/// Whether the run's own policies, to which the rules are added, allowed the call and still do. An earlier version may
/// have allowed what this one denies.
fn is_allowed(policies: &PolicySet, call: &RecordedCall, fs_view: &FsView<'_>) -> bool {
    let runs = |ruling: &Ruling| ruling.decision.runs();
    let asked = PolicyInput {
        tool: &call.tool,
        kind: call.kind,
        origin: &call.origin,
        args: &call.args,
    };
    runs(&call.ruling)
        && runs(&super::decide(
            policies,
            &asked,
            &call.access,
            fs_view,
            &Uses::default(),
        ))
}

/// Moves the paths that no rule can name to what is not suggested.
fn leave_unnameable(used: &mut Suggestion) {
    let left = &mut used.left;
    let mut named = |tool: &str, paths: &mut BTreeSet<String>| {
        paths.retain(|path| match PathPattern::parse(&escape_glob(path)) {
            Ok(_) => true,
            Err(why) => {
                left.insert(format!("{tool}: `{path}` cannot be written in `paths`: {why}"));
                false
            }
        });
    };
    for (tool, paths) in &mut used.writes {
        named(tool, paths);
    }
    named(SHELL, &mut used.shell_writes);
    used.writes.retain(|_, paths| !paths.is_empty());
}

/// `, rule NAME` for the rule that decided; empty if there was none.
fn of_rule(rule: Option<&str>) -> String {
    rule.map(|rule| format!(", rule {rule}")).unwrap_or_default()
}

/// Codes of calls for which a rule is missing although other rules cover them.
const NEEDS_RULE_ALTHOUGH_COVERED: &[&str] = &["modify_rule", "suspend_rule", "times_used_up"];

/// Adds what is missing for a tool; nothing, if nothing is.
fn add(found: &mut BTreeMap<String, BTreeSet<String>>, tool: &str, missing: BTreeSet<String>) {
    if !missing.is_empty() {
        found.entry(tool.to_owned()).or_default().extend(missing);
    }
}

fn note(call: &RecordedCall, run: &RunContext<'_>, used: &mut Suggestion) {
    if call.ruling.decision != Decision::Allow && !LIFTABLE_CODES.contains(&call.ruling.code.as_str()) {
        let rule = of_rule(call.ruling.rule.as_deref());
        used.left.insert(format!(
            "{}: {} ({}{rule})",
            call.tool, call.ruling.reason, call.ruling.code
        ));
        return;
    }
    let access = &call.access;
    let run = match NEEDS_RULE_ALTHOUGH_COVERED.contains(&call.ruling.code.as_str()) {
        true => &run.without_policies(),
        false => run,
    };
    let asked = PolicyInput {
        tool: &call.tool,
        kind: call.kind,
        origin: &call.origin,
        args: &call.args,
    };
    for command in &access.commands {
        note_command(command, run, &asked, used);
    }
    for url in access
        .urls
        .iter()
        .filter(|url| !run.allow_rules_cover(&Need::Url(url), &asked))
    {
        if let Ok(target) = hosts::target(url) {
            add(&mut used.hosts, &call.tool, BTreeSet::from([target.to_string()]));
        }
    }
    if !access.writes.is_empty() {
        let writes = access.writes.iter();
        let missing = writes.filter(|place| !run.allow_rules_cover(&Need::Write(place), &asked));
        let missing = missing.map(|place| written(place, &place.path));
        add(&mut used.writes, &call.tool, missing.collect());
    } else if !access.reads.is_empty() {
        used.reading.insert(call.tool.clone());
    } else if access.commands.is_empty() && access.urls.is_empty() && !super::model::needs_no_rule(&call.tool) {
        used.others.insert(match call.origin {
            ToolOrigin::Discovered if !call.tool.starts_with("discovered_tool_") => {
                format!("discovered_tool_{}", call.tool)
            }
            _ => call.tool.clone(),
        });
    }
}

/// Suggests what no rule granted at an exec, as if its words had been written out, but not what a rule or a bound forbids,
/// nor a program that its caller may not start: a rule for the caller decides that.
fn note_exec(exec: &JudgedExec, run: &RunContext<'_>, used: &mut Suggestion) {
    let Some(denial) = &exec.denied else { return };
    let is_open = denial
        .ruling
        .as_deref()
        .is_some_and(|code| LIFTABLE_CODES.contains(&code));
    if !is_open {
        let rule = of_rule(denial.rule.as_deref());
        let words = exec.argv.join(" ");
        let fix = match denial.code.as_str() {
            NOT_GRANTED => format!(": {}", denial.fix),
            _ => String::new(),
        };
        used.left.insert(format!(
            "{SHELL}: `{words}`: {} ({}{rule}){fix}",
            denial.reason, denial.code
        ));
        return;
    }
    let is_covered = denial
        .ruling
        .as_deref()
        .is_some_and(|code| NEEDS_RULE_ALTHOUGH_COVERED.contains(&code));
    let run = match is_covered {
        true => &run.without_policies(),
        false => run,
    };
    let asked = exec.argv.first().map_or("", String::as_str);
    let file = exec.path.rsplit('/').next().unwrap_or_default();
    // A program's name (`argv[0]`) can be anything; a path that was written out identifies the file.
    let is_path = asked.contains('/') && !asked.starts_with('/') && asked.ends_with(file);
    let program = if is_path { asked } else { file };
    let words = std::iter::once(program).chain(exec.argv.iter().skip(1).map(String::as_str));
    let command = crate::base::access::CommandAccess {
        text: words.map(shell_word).collect::<Vec<_>>().join(" "),
        dir: exec.cwd.clone(),
    };
    let shell = builtin_for(CommandAccessKind::Runs);
    let asked = PolicyInput {
        tool: &shell.name,
        kind: shell.kind,
        origin: &shell.origin,
        args: &Value::Null,
    };
    note_command(&command, run, &asked, used);
}

/// Suggests writing a restored file. A new file that was left out of the patch is only mentioned, because it may belong
/// into `.gitignore`.
fn note_change(unruled: &Unruled, used: &mut Suggestion) {
    if unruled.code == "no_rule" && !unruled.left {
        used.shell_writes.insert(unruled.path.clone());
        return;
    }
    let what = match unruled.left {
        true => format!(
            "was left out of the patch; allow `{}` on it, or let git ignore it",
            builtin_for(CommandAccessKind::Writes).name
        ),
        false => "was put back".to_owned(),
    };
    let rule = of_rule(unruled.rule.as_deref());
    used.left
        .insert(format!("{}: {what} ({}{rule})", unruled.path, unruled.code));
}

fn note_command(
    command: &crate::base::access::CommandAccess,
    run: &RunContext<'_>,
    asked: &PolicyInput<'_>,
    used: &mut Suggestion,
) {
    let reading = match shell::read(&command.text, &command.dir, run.fs_view, &run.grants) {
        Ok(reading) => reading,
        Err(refusal) => {
            used.left
                .insert(format!("{SHELL}: {} ({})", refusal.reason, refusal.code));
            return;
        }
    };
    let outer = reading.writes.iter().map(|file| (file, None));
    let of_command = |simple| move |file| (file, Some(simple));
    let own = reading
        .commands
        .iter()
        .flat_map(|simple| simple.writes.iter().map(of_command(simple)));
    for (file, simple) in outer.chain(own) {
        if let Some(place) = &file.place
            && !run.allow_rules_cover(&Need::ShellWrite(file, simple), asked)
        {
            used.shell_writes.insert(written(place, &place.path));
        }
    }
    for simple in reading.commands.iter().filter(|simple| !simple.state_only) {
        match simple.concern() {
            _ if run.allow_rules_cover(&Need::Command(simple), asked) => {}
            Some(concern) => {
                used.left
                    .insert(format!("{SHELL}: {} ({})", concern.reason, concern.code));
            }
            None if hides_subcommand(simple) => {
                let what = "its subcommand is known only when it runs";
                used.left.insert(format!("{SHELL}: `{}`: {what}", line(simple)));
            }
            None => {
                used.commands.insert(prefix_of(simple));
            }
        }
        let targets = simple
            .hosts
            .iter()
            .filter(|url| !run.allow_rules_cover(&Need::ShellHost(url, simple), asked))
            .filter_map(|url| hosts::target(&rule_match::with_scheme(url)).ok());
        add(
            &mut used.hosts,
            SHELL,
            targets.map(|target| target.to_string()).collect(),
        );
    }
}

/// The comment above the suggested rules: where they go, and how to check them. `policies` are those of the runs, by
/// their names on the command line.
pub fn header(policies: &BTreeSet<String>) -> String {
    let (shipped, own): (Vec<&str>, Vec<&str>) = policies
        .iter()
        .map(String::as_str)
        .partition(|name| name.starts_with("builtin:"));
    let place = match (own.as_slice(), shipped.as_slice()) {
        ([], []) => "a policy file that `--policy` names".to_owned(),
        ([], _) => format!(
            "a policy file of your own that extends {}, and that `--policy` names in its place",
            diagnostic::list(&shipped)
        ),
        ([one], []) => format!("`{one}`"),
        (_, shipped) => format!(
            "each policy of the runs, because all must allow a call: {}{}",
            diagnostic::list(&own.iter().chain(shipped).copied().collect::<Vec<_>>()),
            match shipped.is_empty() {
                true => "",
                false => "; instead of a shipped one, a file of your own that extends it",
            }
        ),
    };
    let place = escape(&place);
    format!(
        "# What these runs lacked: rules for what their policies do not allow. Read it before you use it.\n\
         # It goes into {place}:\n\
         # - the entries of `rules` into the list `rules` there, and those of `extends` into `extends`;\n\
         # - the hosts of `sandbox.network`, if any are suggested, into `sandbox: {{ network: [HOST] }}` there.\n\
         # Then check the file, test it with your cases, and see which rulings of a run it changes:\n\
         #   overnight policy check FILE\n\
         #   overnight policy test FILE --cases CASES\n\
         #   overnight policy explain FILE --run RUN\n"
    )
}

/// The policy that applies when none is given, whose rules are extended rather than repeated.
struct Preset(Option<PolicySet>);

impl Preset {
    fn read_only() -> Self {
        let loaded = super::load(&mut SourceFiles::new(), &[], &KnownTools::builtin());
        Self(loaded.ok().map(|(set, _)| set))
    }

    /// Whether a rule of it allows the built-in tool: on paths, or calls that access nothing.
    fn allows(&self, tool: &str, on_paths: bool) -> bool {
        let rules = self.0.iter().flat_map(|set| &set.files).flat_map(|file| &file.rules);
        let mut allows = rules.filter(|rule| rule.effect == RuleEffect::Allow && rule.is_narrowed() == on_paths);
        allows.any(|rule| rule.is_about_builtin(tool))
    }
}

fn render(used: &Suggestion) -> String {
    let mut out = "version: 1\n".to_owned();
    let preset = Preset::read_only();
    let (plain, other): (Vec<&String>, Vec<&String>) = used.reading.iter().partition(|tool| preset.allows(tool, true));
    let (plain_others, others): (Vec<&String>, Vec<&String>) =
        used.others.iter().partition(|tool| preset.allows(tool, false));
    if !plain.is_empty() || !plain_others.is_empty() {
        let _ = writeln!(out, "extends: [\"{DEFAULT}\"]");
    }
    let mut rules = String::new();
    for tool in other {
        rule(&mut rules, &yaml_string(tool), &[]);
    }
    let mut writes: BTreeMap<Vec<String>, Vec<String>> = BTreeMap::new();
    for (tool, paths) in &used.writes {
        writes.entry(patterns(paths)).or_default().push(yaml_string(tool));
    }
    for (paths, tools) in writes {
        rule(&mut rules, &format!("[{}]", tools.join(", ")), &[("paths", paths)]);
    }
    if !used.shell_writes.is_empty() {
        let writes = &builtin_for(CommandAccessKind::Writes).name;
        rule(&mut rules, writes, &[("paths", patterns(&used.shell_writes))]);
    }
    if !used.commands.is_empty() {
        rule(
            &mut rules,
            SHELL,
            &[("commands", used.commands.iter().cloned().collect())],
        );
    }
    for (tool, hosts) in &used.hosts {
        rule(
            &mut rules,
            &yaml_string(tool),
            &[("hosts", hosts.iter().cloned().collect())],
        );
    }
    for tool in others {
        rule(&mut rules, &yaml_string(tool), &[]);
    }
    if !rules.is_empty() {
        out.push_str("rules:\n");
        out.push_str(&rules);
    }
    // A rule for a command lets it start; it reaches a host only if the sandbox has that host, too.
    if let Some(hosts) = used.hosts.get(SHELL) {
        let hosts: Vec<String> = hosts.iter().map(|host| yaml_string(host)).collect();
        out.push_str("sandbox:\n  # Every command can send what it can read to these hosts.\n");
        let _ = writeln!(out, "  network: [{}]", hosts.join(", "));
    }
    if rules.is_empty() && used.left.is_empty() && !out.contains("extends:") {
        out.push_str("# Nothing is missing.\n");
    }
    if !used.left.is_empty() {
        out.push_str("# Not suggested; a person should look at these:\n");
    }
    for left in &used.left {
        let _ = writeln!(out, "# - {}", escape(left));
    }
    out
}

fn rule(out: &mut String, tools: &str, narrowing: &[(&str, Vec<String>)]) {
    let _ = writeln!(out, "  - allow: {tools}");
    for (key, texts) in narrowing {
        let texts: Vec<String> = texts.iter().map(|text| yaml_string(text)).collect();
        let _ = writeln!(out, "    {key}: [{}]", texts.join(", "));
    }
}

/// Exact paths, `DIR/` for directories, or `DIR/**` for many files in one. Wildcards in names are escaped.
fn patterns(paths: &BTreeSet<String>) -> Vec<String> {
    let dirs: Vec<&String> = paths.iter().filter(|path| path.ends_with('/')).collect();
    let is_below = |path: &String| dirs.iter().any(|dir| *dir != path && path.starts_with(dir.as_str()));
    let mut by_dir: BTreeMap<&str, Vec<&String>> = BTreeMap::new();
    for path in paths.iter().filter(|path| !is_below(path)) {
        by_dir
            .entry(path.rsplit_once('/').map_or("", |(dir, _)| dir))
            .or_default()
            .push(path);
    }
    let mut out = Vec::new();
    for (dir, files) in by_dir {
        let all = format!("{}/**", escape_glob(dir));
        if files.len() > MANY && !dir.is_empty() && PathPattern::parse(&all).is_ok() {
            out.push(all);
        } else {
            out.extend(files.into_iter().map(|file| escape_glob(file)));
        }
    }
    out
}

/// A pattern that matches only this path: wildcards are escaped, and so is what no pattern may begin with.
fn escape_glob(path: &str) -> String {
    let mut out = String::new();
    for (at, character) in path.char_indices() {
        match character {
            '*' | '?' | '[' | ']' | '{' | '}' | '\\' => out.extend(['\\', character]),
            '!' | '~' if at == 0 => out.extend(['\\', character]),
            c => out.push(c),
        }
    }
    out
}

#[cfg(test)]
mod tests;
