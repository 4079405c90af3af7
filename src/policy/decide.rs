//! Decides one call: from its accesses, the policies and the counted uses it computes the ruling. Pure, total and
//! bounded.

mod coverage;

use super::alternatives;
use super::bounds::refuse;
use super::changes::{Author, ChangeRuling, rule_change};
use super::files::PathPattern;
use super::model::{Policy, PolicySet, Rule, RuleEffect, RuleRuns, RuleWrites, RuledCommand, Uses};
use super::needs::{MAX_NEEDS, Need, gather, line, prefix_of, typed_line, written};
use super::profiles::{SideEffects, WriteExtent};
use super::rule_match::{OTHER_TOOL, allows, forbids, modifies, only_searches, with_scheme};
use super::shell::{self, CommandReading, CommandRefusal, FileUse, Simple};
use super::{hosts, installed};
use crate::base::access::{Access, FsView, PathStatus};
use crate::base::grant::{Starts, WriteKind, WritePath, Writes};
use crate::base::ruling::{Considered, Decision, Deferred, PolicyInput, Ruling};
use crate::tools::{CommandAccessKind, builtin_for};
use coverage::Coverage;

/// Rules on one call like [`decide_with`]; programs count as judged at their exec unless a file requests the sandbox
/// level `none`.
pub fn decide(set: &PolicySet, asked: &PolicyInput<'_>, access: &Access, fs_view: &FsView<'_>, uses: &Uses) -> Ruling {
    let witness = set.sandbox().level != super::RequestedLevel::None;
    decide_with(set, asked, access, fs_view, uses, witness)
}

/// Rules on one call.
///
/// Each access must be covered by an allow rule of every file; a deny or suspend rule matches if any access does.
/// Accesses that the bounds refuse (outside, secret-like, protected …) are denied whatever the rules say. The strictest
/// ruling of all files wins. `witness` says whether each program is judged again at its exec, so that words that are
/// unknown before can be left to that.
pub fn decide_with(
    set: &PolicySet,
    asked: &PolicyInput<'_>,
    access: &Access,
    fs_view: &FsView<'_>,
    uses: &Uses,
    witness: bool,
) -> Ruling {
    let one = |set: &PolicySet| {
        let context = Context {
            set,
            asked,
            fs_view,
            uses,
            witness,
        };
        match read_commands(&context, access) {
            Ok(readings) => rule_on(&context, access, &readings),
            Err(refusal) => denied(refusal),
        }
    };
    let ruling = match set.by_profiles() {
        Some(groups) => agreed(groups.iter().map(one).collect()),
        None => one(set),
    };
    match (fs_view.over_limit)() {
        true => denied(too_many_names()),
        false => ruling,
    }
}

/// The globs of a command were not all looked up, so what it touches is not known.
fn too_many_names() -> CommandRefusal {
    CommandRefusal::new(
        "limit:globs",
        "the globs of the command match, or search, too many names",
        "write fewer globs, or name a directory",
    )
}

/// Combines the rulings of groups of files with different profiles: the strictest ruling, and the intersection of their
/// grants.
fn agreed(rulings: Vec<Ruling>) -> Ruling {
    let writes = rulings
        .iter()
        .map(|ruling| ruling.writes.clone())
        .reduce(Writes::intersection);
    let mut deferred: Vec<Deferred> = Vec::new();
    for next in rulings.iter().flat_map(|ruling| &ruling.deferred) {
        if !deferred.contains(next) {
            deferred.push(next.clone());
        }
    }
    let words = rulings.first().map(|ruling| ruling.words.clone()).unwrap_or_default();
    let ruling = strictest(rulings);
    let runs = matches!(ruling.decision, Decision::Allow | Decision::Modify | Decision::Suspend);
    Ruling {
        words,
        writes: writes.filter(|_| runs).unwrap_or_default(),
        deferred: if runs { deferred } else { Vec::new() },
        ..ruling
    }
}

/// The commands of a call that are ruled on before it starts, for [`super::exec::Setting::ruled`]: those without
/// unknown words. Empty if the text cannot be read. Also returns whether the text activates a virtual environment
/// (`source .venv/bin/activate`).
pub fn ruled_commands(
    set: &PolicySet,
    asked: &PolicyInput<'_>,
    access: &Access,
    fs_view: &FsView<'_>,
) -> (Vec<RuledCommand>, bool) {
    let Some(groups) = set.by_profiles() else {
        return ruled_by(set, asked, access, fs_view);
    };
    let mut found = groups.iter().map(|set| ruled_by(set, asked, access, fs_view));
    let first = found.next().unwrap_or_default();
    found.fold(first, |(ours, active), (theirs, also)| {
        let both = ours.into_iter().filter_map(|mine| {
            let other = theirs
                .iter()
                .find(|other| other.program == mine.program && other.rest == mine.rest && other.dirs == mine.dirs)?;
            Some(RuledCommand {
                starts: mine.starts.stricter(&other.starts),
                launched: mine.launched || other.launched,
                ..mine
            })
        });
        (both.collect(), active && also)
    })
}

fn ruled_by(
    set: &PolicySet,
    asked: &PolicyInput<'_>,
    access: &Access,
    fs_view: &FsView<'_>,
) -> (Vec<RuledCommand>, bool) {
    let uses = Uses::default();
    let context = Context {
        set,
        asked,
        fs_view,
        uses: &uses,
        witness: true,
    };
    let readings = read_commands(&context, access).unwrap_or_default();
    let mut ruled = Vec::new();
    let exact = |words: &[shell::ShellWord]| -> Option<Vec<String>> {
        words.iter().map(|word| word.exact().map(str::to_owned)).collect()
    };
    let wrapper = |words: &[shell::ShellWord], dirs: &Option<Vec<String>>, ruled: &mut Vec<RuledCommand>| {
        let (Some(words), Some(dirs)) = (exact(words), dirs.clone()) else {
            return;
        };
        let name = words.first().map_or("", String::as_str);
        ruled.push(RuledCommand {
            program: name.rsplit('/').next().unwrap_or_default().to_owned(),
            rest: words.into_iter().skip(1).collect(),
            dirs,
            starts: Starts::Judged,
            launched: false,
        });
    };
    for reading in &readings {
        for simple in &reading.commands {
            if let (Some(words), Some(dirs), None) = (exact(&simple.words), simple.dirs.clone(), &simple.deferred) {
                let starts = effect_by_rules(set, asked, simple).starts;
                let (program, words, launched) = match simple.launches.first() {
                    Some(launch) => {
                        // An unvouched command was allowed by the runner's own words, so the exec needs no second
                        // check.
                        let vouched = simple.launches.iter().all(|launch| launch.unvouched.is_none());
                        (&launch.program, exact(&launch.words).unwrap_or_default(), vouched)
                    }
                    None => (&simple.program, words, false),
                };
                ruled.push(RuledCommand {
                    rest: words.into_iter().skip(1).collect(),
                    program: program.clone(),
                    dirs,
                    starts,
                    launched,
                });
            }
            for words in &simple.wrapped {
                wrapper(words, &simple.dirs, &mut ruled);
            }
        }
        for (words, dirs) in &reading.shells {
            wrapper(words, dirs, &mut ruled);
        }
    }
    let activates = readings
        .iter()
        .flat_map(|reading| &reading.commands)
        .any(|simple| shell::activates(&simple.words));
    (ruled, activates)
}

/// The inputs of a ruling besides the call's accesses.
#[derive(Clone, Copy)]
pub(super) struct Context<'a> {
    pub set: &'a PolicySet,
    pub asked: &'a PolicyInput<'a>,
    pub fs_view: &'a FsView<'a>,
    pub uses: &'a Uses,
    pub witness: bool,
}

/// Whether the allow rules of every file cover an access, whatever its other rules say.
pub(super) fn allow_rules_cover(context: &Context<'_>, need: &Need<'_>) -> bool {
    let judge = Judge {
        set: context.set,
        asked: context.asked,
        needs: std::slice::from_ref(need),
        fs_view: context.fs_view,
        uses: context.uses,
    };
    let mut files = context.set.files.iter();
    files.all(|policy| judge.coverage(policy, None).open.is_none())
}

/// Rules on accesses whose commands have already been read.
pub(super) fn rule_on(context: &Context<'_>, access: &Access, readings: &[CommandReading]) -> Ruling {
    let words: Vec<Vec<String>> = readings.iter().flat_map(shell::texts).collect();
    let mut needs = gather(access, readings);
    if !readings.is_empty() {
        // At an exec only the command itself is judged, not the tool.
        needs.retain(|need| !matches!(need, Need::Tool));
    }
    if needs.len() > MAX_NEEDS {
        return denied(CommandRefusal::new(
            "limit:accesses",
            format!("the call touches {} places; {MAX_NEEDS} are judged", needs.len()),
            "split it into several calls",
        ));
    }
    let judge = Judge {
        set: context.set,
        asked: context.asked,
        needs: &needs,
        fs_view: context.fs_view,
        uses: context.uses,
    };
    let rulings = context.set.files.iter().map(|policy| judge.by(policy)).collect();
    let ruling = strictest(rulings);
    let runs = matches!(ruling.decision, Decision::Allow | Decision::Modify | Decision::Suspend);
    Ruling {
        words,
        writes: match runs {
            true => writes(context, readings),
            false => Writes::Nothing,
        },
        deferred: match runs {
            true => deferred(context, readings),
            false => Vec::new(),
        },
        ..ruling
    }
}

/// What the commands may write together, computed for each from its profile, its operands and redirects, and the rules
/// that cover it.
fn writes(context: &Context<'_>, readings: &[CommandReading]) -> Writes {
    let mut all = Writes::Nothing;
    for reading in readings {
        for simple in reading.commands.iter() {
            match effect_by_rules(context.set, context.asked, simple).writes {
                WriteExtent::Tree => return Writes::Tree,
                WriteExtent::RuledPaths => {
                    all = all.union(Writes::Paths {
                        paths: ruled_places(context),
                        maybe: Vec::new(),
                    });
                }
                WriteExtent::NamedPaths => {}
            }
            all = all.union(places(context, &simple.writes));
            all = all.union(beside(context, simple));
        }
        all = all.union(places(context, &reading.writes));
    }
    all
}

/// What rules for writing allow, judged for each file after the command.
fn ruled_places(context: &Context<'_>) -> Vec<WritePath> {
    let dirs = context.set.writable_dirs(context.asked).into_iter();
    dirs.map(|path| WritePath {
        path,
        kind: WriteKind::Ruled,
    })
    .collect()
}

fn places(context: &Context<'_>, uses: &[FileUse]) -> Writes {
    if uses.is_empty() {
        return Writes::Nothing;
    }
    let known = uses
        .iter()
        .filter_map(|used| Some((used.place.as_ref()?, used.in_place)));
    let mut paths: Vec<WritePath> = known
        .filter(|(place, _)| place.inside)
        .map(|(place, in_place)| WritePath {
            path: place.path.clone(),
            kind: match in_place && place.found == PathStatus::File {
                true => WriteKind::InPlace,
                false => WriteKind::Entry,
            },
        })
        .collect();
    // The program may replace a link instead of writing what it leads to.
    let links = uses.iter().filter(|used| !used.in_place);
    let links = links.filter_map(|used| used.link.as_ref()).filter(|link| link.inside);
    let allowed = links.filter(|link| rule_change(context.set, &link.path, Author::Call) == ChangeRuling::Allowed);
    paths.extend(allowed.map(|link| WritePath {
        path: link.path.clone(),
        kind: WriteKind::Entry,
    }));
    // What only the input names is judged by the rules for each file, after the command.
    if uses.iter().any(FileUse::is_of_input) {
        paths.extend(ruled_places(context));
    }
    let maybe = match uses.iter().any(|used| used.opaque && !used.is_of_input()) {
        true => context.set.writable_dirs(context.asked),
        false => Vec::new(),
    };
    Writes::Paths { paths, maybe }
}

/// The `.orig` and `.rej` files that `patch` writes next to its targets, where a rule allows writing them.
fn beside(context: &Context<'_>, simple: &Simple) -> Writes {
    if simple.program != "patch" {
        return Writes::Nothing;
    }
    let places = simple.writes.iter().filter_map(|used| used.place.as_ref());
    let files = places.filter(|place| place.inside && place.found != PathStatus::Dir);
    let names = files.flat_map(|place| [".orig", ".rej"].map(|suffix| format!("{}{suffix}", place.path)));
    let paths: Vec<WritePath> = names
        .filter(|path| rule_change(context.set, path, Author::Call) == ChangeRuling::Allowed)
        .map(|path| WritePath {
            path,
            kind: WriteKind::Entry,
        })
        .collect();
    match paths.is_empty() {
        true => Writes::Nothing,
        false => Writes::Paths {
            paths,
            maybe: Vec::new(),
        },
    }
}

/// The commands that are ruled on at their exec.
fn deferred(context: &Context<'_>, readings: &[CommandReading]) -> Vec<Deferred> {
    let mut found = Vec::new();
    for simple in readings.iter().flat_map(|reading| &reading.commands) {
        let Some(refusal) = &simple.deferred else { continue };
        let rule = context.set.files.iter().find_map(|policy| {
            policy
                .allowing()
                .find(|rule| allows(rule, &Need::Command(simple), context.asked).is_ok())
        });
        found.push(Deferred {
            program: simple.program.clone(),
            rule: rule.map(|rule| rule.name.clone()),
            reason: refusal.reason.clone(),
        });
    }
    found
}

/// What a command does besides its operands: according to its profile, as lifted or narrowed by the covering rules of
/// every file.
pub(super) fn effect_by_rules(set: &PolicySet, asked: &PolicyInput<'_>, simple: &Simple) -> SideEffects {
    let mut least: Option<SideEffects> = None;
    for policy in &set.files {
        let mut here = simple.effect.clone();
        let covering = policy
            .allowing()
            .filter(|rule| allows(rule, &Need::Command(simple), asked).is_ok());
        for rule in covering {
            let launched = launched_as(rule, simple);
            if launched && !simple.profiled {
                here = shell::unprofiled();
            } else if launched && simple.launches.iter().any(|launch| launch.runner) {
                here.starts = Starts::Anything;
            }
            let shell = matches!(simple.program.as_str(), "bash" | "sh" | "dash" | "zsh")
                && (rule.any_args || spells_script(rule, simple));
            match rule.writes {
                Some(RuleWrites::Tree) => here.writes = WriteExtent::Tree,
                None if shell => here.writes = WriteExtent::Tree,
                // Without a profile no word says which paths the program writes.
                Some(RuleWrites::Paths) if !simple.profiled => here.writes = WriteExtent::RuledPaths,
                Some(RuleWrites::Nothing | RuleWrites::Paths) => here.writes = WriteExtent::NamedPaths,
                None => {}
            }
            match rule.runs {
                Some(RuleRuns::Anything) => here.starts = Starts::Anything,
                None if shell => here.starts = Starts::Anything,
                Some(RuleRuns::Nothing) => here.starts = Starts::Nothing,
                None => {}
            }
        }
        least = Some(match least {
            None => here,
            Some(before) => SideEffects {
                writes: before.writes.min(here.writes),
                starts: before.starts.stricter(&here.starts),
            },
        });
    }
    least.unwrap_or_else(|| simple.effect.clone())
}

/// Whether a rule names the runner or path of an installed program (`npx eslint`, `.venv/bin/ruff`), not only the
/// program.
fn launched_as(rule: &Rule, simple: &Simple) -> bool {
    let prefixes = rule.commands.iter().flatten();
    prefixes
        .filter_map(|prefix| shell::best_match(&prefix.words, simple, rule.any_args))
        .any(|by| by.launch)
}

/// Whether a rule names the script that a shell runs: `bash fix.sh` grants what `./fix.sh` would.
fn spells_script(rule: &Rule, simple: &Simple) -> bool {
    let prefixes = rule.commands.iter().flatten();
    let mut spelled = prefixes.filter_map(|prefix| shell::matched(&prefix.words, simple));
    let script = simple.words.get(1);
    script.is_some_and(|script| !script.text.starts_with('-')) && spelled.any(|words| words >= 2)
}

fn read_commands(context: &Context<'_>, access: &Access) -> Result<Vec<CommandReading>, CommandRefusal> {
    let granted = context.set.env_pass();
    let grants = context.set.grants(&granted, context.witness);
    let mut readings = Vec::new();
    for command in &access.commands {
        let mut reading = shell::read(&command.text, &command.dir, context.fs_view, &grants)?;
        if reading.commands.is_empty() && reading.writes.is_empty() {
            return Err(CommandRefusal::new(
                "empty_command",
                "the command contains no program",
                "write a command",
            ));
        }
        shell::look_below(&mut reading, &exceptions(context.set, context.asked), context.fs_view);
        shell::look_below_moved(&mut reading, &restricted(context.set), context.fs_view);
        readings.push(reading);
    }
    Ok(readings)
}

/// The patterns that restrict single commands for which the tree must be looked at, because they may fit anywhere:
/// exceptions of rules about commands, and paths of rules that deny or suspend certain commands.
pub(super) fn exceptions<'a>(set: &'a PolicySet, asked: &PolicyInput<'_>) -> Vec<&'a PathPattern> {
    let rules = set.files.iter().flat_map(|policy| &policy.rules);
    let about = rules.filter(|rule| rule.is_about(asked.tool, asked.kind, asked.origin));
    let paths = about.flat_map(|rule| {
        let excepted = (rule.effect == RuleEffect::Allow).then_some(&rule.except.paths);
        let restricted = rule.paths.as_ref();
        let restricted = restricted.filter(|_| rule.is_restricting() && rule.commands.is_some());
        excepted.into_iter().chain(restricted).flatten()
    });
    paths.filter(|pattern| pattern.fits_anywhere()).collect()
}

/// The patterns of all paths that rules restrict.
pub(super) fn restricted(set: &PolicySet) -> Vec<&PathPattern> {
    let rules = set.files.iter().flat_map(|policy| &policy.rules);
    let patterns = rules.flat_map(|rule| {
        let own = rule.paths.iter().flatten().filter(move |_| rule.is_restricting());
        let excepted = rule.except.paths.iter().filter(move |_| !rule.is_restricting());
        own.chain(excepted)
    });
    patterns.collect()
}

fn denied(refusal: CommandRefusal) -> Ruling {
    Ruling::denied(refusal.code, refusal.reason, refusal.fix)
}

/// The strictest ruling of all files, with the rules that all of them considered. If two files rewrite the call with
/// different programs, it is denied.
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
        denied(CommandRefusal::new(
            "no_rule",
            "there is no policy",
            "name one with --policy",
        ))
    });
    if ruling.decision == Decision::Modify && pipes.len() > 1 {
        ruling = conflict(&pipes);
    }
    let runs = ruling.decision.runs();
    Ruling {
        considered,
        uses: if runs { uses } else { Vec::new() },
        ..ruling
    }
}

fn conflict(pipes: &[String]) -> Ruling {
    denied(CommandRefusal::new(
        "modify_conflict",
        format!("modify rules with different programs match: `{}`", pipes.join("`, `")),
        "narrow the modify rules so that one matches",
    ))
}

/// The inputs for judging one file's rules.
struct Judge<'a> {
    set: &'a PolicySet,
    asked: &'a PolicyInput<'a>,
    needs: &'a [Need<'a>],
    fs_view: &'a FsView<'a>,
    uses: &'a Uses,
}

impl Judge<'_> {
    fn by(&self, policy: &Policy) -> Ruling {
        let refused = self.needs.iter().find_map(|need| {
            let refusal =
                refuse(need, policy, self.set, self.asked, self.fs_view).or_else(|| installed::refuse(need, policy))?;
            Some((need, refusal))
        });
        let (deny, mut considered) = self.forbidding(policy, &RuleEffect::Deny);
        let (suspend, more) = self.forbidding(policy, &RuleEffect::Suspend);
        considered.extend(more);
        let coverage = self.coverage(policy, suspend.map(|(rule, _)| rule));
        considered.extend(coverage.considered.iter().cloned());
        let ruling = if let Some((need, refusal)) = refused {
            let ruling = denied(with_instead(refusal, alternatives::known(self.set, need)));
            let by_path = deny.filter(|(rule, _)| rule.paths.is_some() && need.place().is_some());
            match by_path.filter(|(_, denied)| denied.place() == need.place()) {
                Some((rule, _)) => Ruling {
                    rule: Some(rule.name.clone()),
                    fix: format!("{}, and rule {} denies it, too", ruling.fix, rule.name),
                    ..ruling
                },
                None => ruling,
            }
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

    /// The first deny (or suspend) rule that matches, with the access, and the result of matching each of them.
    fn forbidding<'p>(
        &self,
        policy: &'p Policy,
        effect: &RuleEffect,
    ) -> (Option<(&'p Rule, Need<'_>)>, Vec<Considered>) {
        let mut first = None;
        let mut considered = Vec::new();
        for rule in policy.rules.iter().filter(|rule| rule.effect == *effect) {
            let mut why = OTHER_TOOL.to_owned();
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
        let what = around(rule, &need)
            .or_else(|| held_below(rule, &need))
            .or_else(|| by_search(rule, &need))
            .unwrap_or_else(|| need.describe(self.asked));
        let suspends = rule.effect == RuleEffect::Suspend;
        let reason = match (&rule.because, suspends) {
            (Some(because), _) => format!("{what}: {because}"),
            (None, true) => format!("{what} waits for approval by rule {}", rule.name),
            (None, false) => format!("{what} is denied by rule {}", rule.name),
        };
        let fix = if suspends {
            "a person approves it with `overnight resume RUN --approve CALL`".to_owned()
        } else {
            let instead = alternatives::instead(self.set, &need).unwrap_or_else(|| "use another approach".to_owned());
            format!("{instead}; or narrow rule {} with `except`", rule.name)
        };
        Ruling {
            decision: rule.effect.decision(),
            rule: Some(rule.name.clone()),
            ..denied(CommandRefusal::new(
                if suspends { "suspend_rule" } else { "deny_rule" },
                reason,
                fix,
            ))
        }
    }

    fn uncovered(&self, policy: &Policy, need: &Need<'_>, near: Option<CommandRefusal>) -> Ruling {
        let what = need.describe(self.asked);
        // The model reads this text, and a recording should not depend on where the file is: only the file name is
        // shown.
        let file = policy.source.name.rsplit('/').next().unwrap_or_default();
        let instead = match &near {
            // A problem with the words of a known program is more useful than suggesting another command.
            Some(_) => alternatives::known(self.set, need),
            None => alternatives::instead(self.set, need),
        };
        let refusal = near.unwrap_or_else(|| {
            CommandRefusal::new(
                uncovered_code(need),
                format!("no rule of {file} allows: {what}"),
                self.missing_rule(need),
            )
        });
        let refusal = with_instead(refusal, instead.filter(|_| policy.default == Decision::Deny));
        Ruling {
            decision: policy.default,
            ..denied(refusal)
        }
    }

    /// A sentence that says which rule is missing.
    fn missing_rule(&self, need: &Need<'_>) -> String {
        let tool = self.asked.tool;
        let path = match need.place() {
            Some((place, true)) => written(place, place.shown()),
            Some((place, _)) => place.shown().to_owned(),
            None => ".".to_owned(),
        };
        match need {
            Need::Tool => format!("needs a rule `allow: {tool}`"),
            Need::Read(_) | Need::Write(_) => format!("needs a rule that allows {tool} on {path}"),
            Need::Url(url) | Need::ShellHost(url, _) => {
                match hosts::target(&with_scheme(url)) {
                    // A listed host alone allows https only.
                    Ok(target) if !target.secure => {
                        format!("needs a rule that allows {tool} with `{target}` under `hosts`")
                    }
                    _ => format!("needs a rule that allows {tool} with the host of {url} under `hosts`"),
                }
            }
            Need::Command(simple) | Need::State(simple) => {
                format!(
                    "needs a rule that allows {tool} with `{}` under `commands`",
                    prefix_of(simple)
                )
            }
            Need::ShellRead(..) => format!("needs a rule that allows {tool} with {path} among its `paths`"),
            Need::ShellWrite(_, simple) => {
                let dirs = simple.and_then(|simple| simple.dirs.as_ref());
                let cd = match dirs.is_some_and(|dirs| dirs.len() > 1) {
                    true => "; a `cd` before it may fail, and then it runs where it was: write `cd DIR && …`",
                    false => "",
                };
                let write = &builtin_for(CommandAccessKind::Writes).name;
                format!("writing {path} from a command (`> {path}`) needs a rule that allows {write} on {path}{cd}")
            }
        }
    }

    fn allowed(&self, policy: &Policy, coverage: &Coverage<'_>, considered: &mut Vec<Considered>) -> Ruling {
        let mut pipes: Vec<(&Rule, &String)> = Vec::new();
        for rule in &policy.rules {
            let RuleEffect::Modify { pipe } = &rule.effect else {
                continue;
            };
            let matched = modifies(rule, self.needs, self.asked);
            let why = if matched {
                format!("rewritten by `{pipe}`")
            } else {
                "nothing matches".to_owned()
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
            ..denied(CommandRefusal::new("allowed", reason, String::new()))
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

/// The shell that a rule names (`bash -c TEXT`), if it matches a command only because that is in the text.
fn around(rule: &Rule, need: &Need<'_>) -> Option<String> {
    let (Need::Command(simple) | Need::State(simple)) = need else {
        return None;
    };
    let mut prefixes = rule.commands.iter().flatten();
    let words = prefixes.find_map(|prefix| shell::shell_around(&prefix.words, simple))?;
    Some(format!("run `{}`", typed_line(words)))
}

/// What a rule forbids if it is not a written directory itself, but what lies below.
fn held_below(rule: &Rule, need: &Need<'_>) -> Option<String> {
    let (place, _) = need.place().filter(|(_, writing)| *writing)?;
    let patterns = rule.paths.as_ref()?;
    if patterns.iter().any(|pattern| pattern.touches_itself(place)) {
        return None;
    }
    let known = need.below();
    let found = known.and_then(|paths| patterns.iter().find_map(|pattern| pattern.first_of(paths)));
    Some(match found {
        Some(path) => format!("write {}, which contains {path}", place.shown()),
        None => format!(
            "write {}, below which there may be paths that the rule names",
            place.shown()
        ),
    })
}

/// A command that a rule forbids only because of a directory that it searches.
fn by_search(rule: &Rule, need: &Need<'_>) -> Option<String> {
    let (Need::Command(simple) | Need::State(simple)) = need else {
        return None;
    };
    let line = line(simple);
    only_searches(rule, simple)
        .then(|| format!("run `{line}`, which searches a directory that may hold paths of the rule"))
}

/// A refusal that names first what the model can do, then what the policy's author could write.
fn with_instead(refusal: CommandRefusal, instead: Option<String>) -> CommandRefusal {
    let fix = match (instead, refusal.fix.as_str()) {
        (None, _) => return refusal,
        (Some(instead), "") => instead,
        (Some(instead), fix) => format!("{instead}; {fix}"),
    };
    CommandRefusal { fix, ..refusal }
}

fn uncovered_code(need: &Need<'_>) -> &'static str {
    match need {
        Need::ShellWrite(..) => "redirect_write",
        Need::Url(_) | Need::ShellHost(..) => "host_not_listed",
        _ => "no_rule",
    }
}

/// Keeps the most specific reason: [`OTHER_TOOL`] is replaced by any other.
fn keep_nearest(why: &mut String, new: &str) {
    if why == OTHER_TOOL {
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
