//! Matches one rule against one access: strictly for allow rules (it must cover the access), broadly for deny rules (a
//! possible match counts).

use super::files::PathPattern;
use super::hosts::{self, HostPattern, UrlRefused};
use super::model::{CommandPrefix, Except, Rule, RuleEffect, RuleRuns};
use super::needs::{Need, ShellReader, line};
use super::shell::{
    self, CommandRefusal, FileUse, ShownHistory, Simple, best_match, covers, deny_covers, matched, may_hold,
    names_program, open_concern, searched, searched_unnamed, surely_covers, unvouched,
};
use crate::base::access::{PathStatus, ResolvedPath};
use crate::base::call::ArgumentTarget;
use crate::base::grant::Starts;
use crate::base::ruling::{PolicyInput, shown_rule};
use crate::tools::{CommandAccessKind, builtin_for};
use serde_json::Value;
use std::borrow::Cow;

/// Why a rule does not match.
#[derive(Clone, Debug)]
pub struct Mismatch {
    pub why: Cow<'static, str>,
    /// Set if the rule would match except for this.
    pub near: Option<CommandRefusal>,
}

impl Mismatch {
    /// The rule would match except for this, and `why` says so in short.
    fn near(why: &'static str, refusal: CommandRefusal) -> Self {
        Self {
            why: Cow::Borrowed(why),
            near: Some(refusal),
        }
    }

    /// The rule would match except for this.
    pub(super) fn of(refusal: CommandRefusal) -> Self {
        Self {
            why: Cow::Owned(refusal.reason.clone()),
            near: Some(refusal),
        }
    }
}

/// Why a rule does not match calls of other tools than its own.
pub(super) const OTHER_TOOL: &str = "another tool";
/// Why a rule does not match a call with other arguments.
const OTHER_ARGUMENT: &str = "an argument does not match `with`";
/// The code of an access that no rule covers.
pub(super) const NO_RULE: &str = "no_rule";

fn miss<T>(why: &'static str) -> Result<T, Mismatch> {
    Err(Mismatch {
        why: Cow::Borrowed(why),
        near: None,
    })
}

/// Whether a rule allows (or, for `modify`, rewrites) an access. Strict: unknown values are not covered.
///
/// # Errors
/// Why it does not.
pub fn allows(rule: &Rule, need: &Need<'_>, asked: &PolicyInput<'_>) -> Result<(), Mismatch> {
    let about = rule.is_about(asked.tool, asked.kind, asked.origin);
    let called = || match about {
        true => arguments(rule, asked, false),
        false => miss(OTHER_TOOL),
    };
    match need {
        Need::ShellWrite(used, by) => allows_shell_write(rule, used, *by, about, asked),
        Need::ShellHost(url, by) => allows_shell_host(rule, url, by, about, asked),
        Need::Tool if rule.is_narrowed() => {
            called().and_then(|()| miss("the call accesses nothing that the rule is narrowed to"))
        }
        Need::ShellRead(used, ShellReader::Shell) => called().and_then(|()| match &used.place {
            Some(place) => left_to_shell(rule, place),
            None => Ok(()),
        }),
        Need::Tool | Need::ShellRead(_, ShellReader::Command) => called(),
        Need::Read(place) => called().and_then(|()| file_fits(rule, place, false)),
        Need::Write(place) => called().and_then(|()| file_fits(rule, place, true)),
        Need::Url(url) => called().and_then(|()| url_fits(rule, url)),
        Need::Command(simple) | Need::State(simple) => match called() {
            Ok(()) => command(rule, simple),
            Err(_) if about && command(rule, simple).is_ok() => Err(other_argument(rule, simple)),
            Err(other) => Err(other),
        },
    }
}

/// Whether a rule about commands lets the shell itself read a file, whatever the commands.
fn left_to_shell(rule: &Rule, place: &ResolvedPath) -> Result<(), Mismatch> {
    match opens_only_repository(rule) {
        true => path_not_touched(rule, place),
        false => path_fits(rule, place, false),
    }
}

/// Whether an allow rule covers a file that a tool reads or writes.
pub(super) fn file_fits(rule: &Rule, place: &ResolvedPath, writing: bool) -> Result<(), Mismatch> {
    if rule.paths.is_none() && rule.is_narrowed() {
        return miss("narrowed to something other than paths");
    }
    path_fits(rule, place, writing)
}

/// Whether an allow rule opens the repository's own directory to this git command: it names the command and lists
/// `.git/**` in its own `paths`.
pub(super) fn opens_repository(rule: &Rule, simple: &Simple, asked: &PolicyInput<'_>) -> bool {
    let names_it = |prefixes: &Vec<CommandPrefix>| {
        let mut prefixes = prefixes.iter();
        prefixes.any(|prefix| best_match(&prefix.words, simple, rule.any_args).is_some())
    };
    rule.is_about(asked.tool, asked.kind, asked.origin)
        && rule.paths.iter().flatten().any(PathPattern::opens_repository)
        && rule.commands.as_ref().is_none_or(names_it)
}

/// Whether all `paths` of a rule only open the repository to git.
fn opens_only_repository(rule: &Rule) -> bool {
    let opens = |patterns: &Vec<PathPattern>| patterns.iter().all(PathPattern::opens_repository);
    rule.paths.as_ref().is_some_and(opens)
}

fn path_not_touched(rule: &Rule, place: &ResolvedPath) -> Result<(), Mismatch> {
    match rule.except.paths.iter().any(|pattern| pattern.touches(place, false)) {
        true => miss("excepted"),
        false => Ok(()),
    }
}

/// Whether the `paths` of an allow rule cover a place and its `except` does not touch it.
pub(super) fn path_fits(rule: &Rule, place: &ResolvedPath, writing: bool) -> Result<(), Mismatch> {
    path_fits_with(rule, place, writing, None)
}

/// Like [`path_fits`], with the restricted paths below a directory that is removed or moved, if they are known.
fn path_fits_with(rule: &Rule, place: &ResolvedPath, writing: bool, below: Option<&[String]>) -> Result<(), Mismatch> {
    let mut except = rule.except.paths.iter();
    if except.any(|pattern| pattern.touches_with(place, writing, below)) {
        return miss("excepted");
    }
    match &rule.paths {
        Some(patterns) if !patterns.iter().any(|pattern| pattern.covers(place, writing)) => miss("no path matches"),
        _ => Ok(()),
    }
}

fn url_fits(rule: &Rule, url: &str) -> Result<(), Mismatch> {
    if rule.hosts.is_none() && rule.is_narrowed() {
        return miss("narrowed to something other than hosts");
    }
    let all = [HostPattern::everywhere()];
    let patterns = rule.hosts.as_deref().unwrap_or(&all);
    let target = match hosts::judge(url, patterns) {
        Ok(target) => target,
        Err(UrlRefused::NotListed) => return miss("no host matches"),
        Err(why) => {
            return Err(Mismatch {
                why: Cow::Owned(why.to_string()),
                near: None,
            });
        }
    };
    if rule.except.hosts.iter().any(|pattern| pattern.touches(&target)) {
        return miss("excepted");
    }
    Ok(())
}

fn command(rule: &Rule, simple: &Simple) -> Result<(), Mismatch> {
    let Some(prefixes) = &rule.commands else {
        if rule.is_narrowed() {
            return miss("narrowed to something other than commands");
        }
        if excepted(&rule.except, simple) {
            return miss("excepted");
        }
        return places_fit(rule, simple);
    };
    if simple.asks_version
        && simple.launches.iter().all(|launch| launch.unvouched.is_none())
        && prefixes.iter().any(|prefix| names_program(&prefix.words, simple))
    {
        return match excepted(&rule.except, simple) {
            true => miss("excepted"),
            false => Ok(()),
        };
    }
    let found: Vec<_> = prefixes
        .iter()
        .filter_map(|prefix| Some((prefix, best_match(&prefix.words, simple, rule.any_args)?)))
        .collect();
    if found.is_empty() {
        let near = prefixes.iter().find_map(|prefix| unvouched(&prefix.words, simple));
        return Err(Mismatch {
            why: near.map_or(Cow::Borrowed("no command matches"), |near| {
                Cow::Owned(near.reason.clone())
            }),
            near: near.cloned(),
        });
    }
    if excepted(&rule.except, simple) {
        return miss("excepted");
    }
    if !found.iter().any(|(_, by)| by.launch)
        && let Some(refusal) = may_not_start(rule, simple)
    {
        return Err(Mismatch::of(refusal));
    }
    if !rule.any_args
        && let Some(concern) = open_concern(found.iter().map(|(prefix, _)| prefix.words.as_slice()), simple)
    {
        return Err(Mismatch {
            why: Cow::Owned(format!("the command matches, but {}", concern.reason)),
            near: Some(concern.clone()),
        });
    }
    if let Some(option) = unspelled_option(rule, prefixes, simple) {
        return Err(option);
    }
    if !rule.any_args
        && let Some(at) = further_target(&found, simple)
    {
        let target = simple.words.get(at).map_or("", |word| word.text.as_str());
        let reason = format!("the rule names a target, and `{target}` is a different one");
        return Err(Mismatch::of(CommandRefusal::new(
            "program_argument",
            reason,
            "run one target at a time, each in a separate command",
        )));
    }
    places_fit(rule, simple)?;
    match &rule.hosts {
        Some(patterns) if !simple.hosts.iter().all(|url| shell_url_fits(url, patterns)) => miss("no host matches"),
        _ => Ok(()),
    }
}

/// Whether every file that a command names, and every directory that it searches, is within the `paths` of a rule and
/// outside its exceptions.
fn places_fit(rule: &Rule, simple: &Simple) -> Result<(), Mismatch> {
    if rule.paths.is_none() && rule.except.paths.is_empty() {
        return Ok(());
    }
    if let Some(reason) = opens_more(simple) {
        return Err(opens_unnamed(rule, simple, reason));
    }
    let files = simple
        .reads
        .iter()
        .map(|used| (used, false))
        .chain(simple.writes.iter().map(|used| (used, true)));
    for (used, writing) in files {
        let Some(place) = &used.place else {
            // With a deferred command it is judged with its real path at its exec.
            if simple.deferred.is_none() {
                return Err(not_known(rule, simple));
            }
            continue;
        };
        if simple.program == "git" && writing && place.path == ".git" {
            continue;
        }
        // What git shows of a revision is judged below.
        if !writing && simple.revisions.contains(&used.asked) {
            continue;
        }
        // `.git/**` opens the repository to git; alone it does not narrow what git reads.
        let fits = match !writing && simple.program == "git" && opens_only_repository(rule) {
            true => path_not_touched(rule, place),
            false => path_fits_with(rule, place, writing, used.below.as_deref()),
        };
        fits.map_err(|why| off_limits(rule, simple, place.shown(), why))?;
        let is_dir = place.found == PathStatus::Dir || place.path.is_empty();
        if !writing && is_dir && shell::descends(simple) && !covers_below(rule, place) {
            return Err(reaches_below(rule, simple, place));
        }
    }
    if rule.except.paths.is_empty() && opens_only_repository(rule) {
        return Ok(());
    }
    // Without a judge nothing asks again what the unknown words have become.
    if let Some(concern) = simple.concern().filter(|concern| concern.code == "opaque_argument") {
        return Err(Mismatch::of(concern.clone()));
    }
    if !opens_only_repository(rule) {
        chooses_within(rule, simple)?;
        shows_within(rule, simple)?;
    }
    if rule.except.paths.is_empty() {
        return Ok(());
    }
    let held = |dir: &&str| rule.except.paths.iter().any(|pattern| may_hold(simple, dir, pattern));
    match searched(simple).into_iter().find(held) {
        None => Ok(()),
        Some(dir) => {
            let shown = if dir.is_empty() { "." } else { dir };
            let why = Mismatch {
                why: Cow::Borrowed("it searches a directory that may hold excepted paths"),
                near: None,
            };
            Err(off_limits(rule, simple, shown, why))
        }
    }
}

/// Checks that the directories which a command searches without naming them are within the `paths` of a rule.
fn chooses_within(rule: &Rule, simple: &Simple) -> Result<(), Mismatch> {
    let Some(patterns) = &rule.paths else {
        return Ok(());
    };
    // `*` and `.` fit the top as a path, and what lies deeper is searched as well.
    let shows_names = !shell::descends(simple);
    let is_within = |dir: &&str| {
        let place = ResolvedPath {
            found: PathStatus::Dir,
            ..ResolvedPath::of_tree(dir)
        };
        patterns.iter().any(|pattern| pattern.covers(&place, !shows_names))
    };
    let Some(dir) = searched_unnamed(simple).into_iter().find(|dir| !is_within(dir)) else {
        return Ok(());
    };
    let (name, program) = (shown_rule(&rule.name), &simple.program);
    let shown = if dir.is_empty() { "." } else { dir };
    Err(Mismatch::near(
        "it searches a directory that no path covers",
        CommandRefusal::new(
            NO_RULE,
            format!(
                "rule {name} allows `{program}` only on {}; `{}` names no place, so it searches {shown}",
                limits(rule),
                line(simple)
            ),
            format!("name what it searches within these paths, or change `paths` of rule {name}"),
        ),
    ))
}

/// Whether the `paths` of a rule cover everything below a directory.
fn covers_below(rule: &Rule, dir: &ResolvedPath) -> bool {
    let whole = ResolvedPath {
        found: PathStatus::Dir,
        ..dir.clone()
    };
    let covers = |patterns: &Vec<PathPattern>| patterns.iter().any(|pattern| pattern.covers(&whole, true));
    rule.paths.as_ref().is_none_or(covers)
}

/// A rule that covers a directory, but not what lies below it, which the command reads too.
fn reaches_below(rule: &Rule, simple: &Simple, dir: &ResolvedPath) -> Mismatch {
    let (name, program) = (shown_rule(&rule.name), &simple.program);
    let shown = dir.shown();
    let pattern = match dir.path.as_str() {
        "" => "**".to_owned(),
        path => format!("{path}/**"),
    };
    Mismatch::near(
        "it reads everything below a directory that no path covers as a whole",
        CommandRefusal::new(
            NO_RULE,
            format!(
                "rule {name} allows `{program}` only on {}; `{}` reads everything below {shown}",
                limits(rule),
                line(simple)
            ),
            format!("name files instead of {shown}, or add `{pattern}` to `paths` of rule {name}"),
        ),
    )
}

/// Checks that what a command may read or show besides its operands is within the `paths` of a rule: what links and lists lead
/// to, and what git takes from its history.
fn shows_within(rule: &Rule, simple: &Simple) -> Result<(), Mismatch> {
    let (name, program) = (shown_rule(&rule.name), &simple.program);
    let everything = |why: &str, fix: &str| {
        Mismatch::near(
            "it may show files that no path covers",
            CommandRefusal::new(
                NO_RULE,
                format!(
                    "rule {name} allows `{program}` only on {}; `{}` may show others: {why}",
                    limits(rule),
                    line(simple)
                ),
                fix,
            ),
        )
    };
    let root = ResolvedPath {
        found: PathStatus::Dir,
        ..ResolvedPath::of_tree("")
    };
    let is_whole = covers_below(rule, &root);
    if let Some(why) = shell::leads_elsewhere(simple).filter(|_| !is_whole) {
        return Err(everything(
            why,
            "leave that option out, and name the files or directories themselves",
        ));
    }
    match &simple.shown {
        ShownHistory::Everything(fix) if !is_whole => Err(everything("git keeps every file of every revision", fix)),
        ShownHistory::Within(places) if !is_whole || !rule.except.paths.is_empty() => {
            places.iter().try_for_each(|shown| {
                let Some(place) = &shown.used.place else {
                    return Err(not_known(rule, simple));
                };
                path_fits(rule, place, false).map_err(|why| off_limits(rule, simple, place.shown(), why))?;
                // What is not there may have been a directory.
                let is_file = matches!(place.found, PathStatus::File | PathStatus::HardLinked);
                let is_spelled = |pattern: &PathPattern| pattern.is_literal() && pattern.covers(place, false);
                let spelled = place.found == PathStatus::Nothing && rule.paths.iter().flatten().any(is_spelled);
                match shown.deep && !is_file && !spelled && !covers_below(rule, place) {
                    true => Err(reaches_below(rule, simple, place)),
                    false => Ok(()),
                }
            })
        }
        _ => Ok(()),
    }
}

/// Programs with options that name a file of further program text (`-f`), which nobody reads here.
const SCRIPTED: [&str; 6] = ["awk", "gawk", "gsed", "mawk", "nawk", "sed"];

/// What in a command may open files that its words do not name: its program, or an option that is not known (`-f`).
fn opens_more(simple: &Simple) -> Option<&str> {
    let unknown = || {
        let concern = simple.concern()?;
        // An unknown word is judged at its exec.
        let scripted = SCRIPTED.contains(&simple.program.as_str()) && concern.code != "opaque_argument";
        scripted.then_some(concern.reason.as_str())
    };
    simple.opens_more.as_deref().or_else(unknown)
}

/// The most patterns that a message names.
const NAMED: usize = 8;

/// A rule that covers the words of a command and is narrowed to paths, while the command does not say which it touches.
fn not_known(rule: &Rule, simple: &Simple) -> Mismatch {
    let (name, program) = (shown_rule(&rule.name), &simple.program);
    let instead = match program.as_str() {
        "patch" => "name the file that it changes, as in `patch FILE CHANGES.patch`",
        _ => "write the paths out",
    };
    Mismatch::near(
        "a path is not known before the command runs",
        CommandRefusal::new(
            NO_RULE,
            format!(
                "rule {name} allows `{program}` only on {}; which files `{}` touches is not known before it runs",
                limits(rule),
                line(simple)
            ),
            format!("{instead}, or leave `paths` and `except` out of rule {name}"),
        ),
    )
}

/// A rule that is narrowed to paths, while the program of the command may open files that are not among its words.
fn opens_unnamed(rule: &Rule, simple: &Simple, reason: &str) -> Mismatch {
    let (name, program) = (shown_rule(&rule.name), &simple.program);
    Mismatch::near(
        "its program may open other files than its words name",
        CommandRefusal::new(
            NO_RULE,
            format!(
                "rule {name} allows `{program}` only on {}, and `{}` may open other files: {reason}",
                limits(rule),
                line(simple)
            ),
            format!(
                "name the files as operands and leave them out of the program, or leave `paths` and `except` out of rule {name}"
            ),
        ),
    )
}

/// The paths that a rule is narrowed to, for messages.
fn limits(rule: &Rule) -> String {
    let texts = |patterns: &[PathPattern]| -> String {
        let shown: Vec<&str> = patterns.iter().take(NAMED).map(PathPattern::text).collect();
        let more = if patterns.len() > NAMED { ", …" } else { "" };
        format!("{}{more}", shown.join(", "))
    };
    let on = rule.paths.as_deref().map_or_else(|| "any path".to_owned(), texts);
    match rule.except.paths.as_slice() {
        [] => on,
        except => format!("{on} but not {}", texts(except)),
    }
}

/// A rule that covers the words of a command, but not what they do with a place.
fn off_limits(rule: &Rule, simple: &Simple, place: &str, why: Mismatch) -> Mismatch {
    let (bounds, program) = (limits(rule), &simple.program);
    Mismatch {
        near: Some(CommandRefusal::new(
            NO_RULE,
            format!(
                "rule {} allows `{program}` only on {bounds}; `{}` touches {place}",
                shown_rule(&rule.name),
                line(simple)
            ),
            format!(
                "name other paths, or change `paths` or `except` of rule {}",
                shown_rule(&rule.name)
            ),
        )),
        ..why
    }
}

/// A rule that covers a command, but not the arguments of the call.
fn other_argument(rule: &Rule, simple: &Simple) -> Mismatch {
    let wanted: Vec<String> = rule
        .with
        .iter()
        .map(|(name, pattern)| format!("{name}: {}", pattern.text))
        .collect();
    Mismatch::near(
        OTHER_ARGUMENT,
        CommandRefusal::new(
            NO_RULE,
            format!(
                "rule {} allows `{}` only with the arguments `{}`",
                shown_rule(&rule.name),
                line(simple),
                wanted.join("`, `")
            ),
            format!(
                "call it with these arguments, or change `with` of rule {}",
                shown_rule(&rule.name)
            ),
        ),
    )
}

/// A further build target that the matching rule does not name (`make test evil` under `make test`).
fn further_target(found: &[(&CommandPrefix, shell::Match)], simple: &Simple) -> Option<usize> {
    let open = |end: usize| simple.targets.iter().copied().find(|at| *at >= end);
    let names_one = |end: usize| simple.targets.iter().any(|at| *at < end);
    // One entry that names no target, or all of them, is enough.
    let fine = found.iter().any(|(_, by)| !names_one(by.end) || open(by.end).is_none());
    match fine {
        true => None,
        false => found.iter().find_map(|(_, by)| open(by.end)),
    }
}

/// A runner must start other programs, so a rule for the started program covers it only if that program may start
/// anything too.
fn may_not_start(rule: &Rule, simple: &Simple) -> Option<CommandRefusal> {
    let runner = simple.launches.iter().find(|launch| launch.runner)?;
    let granted = match rule.runs {
        Some(RuleRuns::Anything) => true,
        Some(RuleRuns::Nothing) => false,
        None => simple.effect.starts == Starts::Anything,
    };
    let name = &simple.program;
    (!granted).then(|| {
        CommandRefusal::new(
            "program_argument",
            format!(
                "`{}` would start `{name}`, and the rule for `{name}` does not let it start programs",
                runner.program
            ),
            format!("run `{name}` by its name or its path, or set `runs: anything` on the rule"),
        )
    })
}

/// An option of a program without a profile that the rule does not spell out, where such a program could do more than
/// read.
fn unspelled_option(rule: &Rule, prefixes: &[CommandPrefix], simple: &Simple) -> Option<Mismatch> {
    if simple.profiled || simple.state_only || rule.any_args || !rule.spells_options {
        return None;
    }
    let spelled = prefixes
        .iter()
        .filter_map(|prefix| matched(&prefix.words, simple))
        .max()
        .unwrap_or(0);
    let at = *simple.options.iter().find(|at| **at >= spelled)?;
    let option = simple.words.get(at).map_or("", |word| word.text.as_str());
    let reason = format!(
        "`{}` has no profile, and the rule does not spell out `{option}`",
        simple.program
    );
    Some(Mismatch::of(CommandRefusal::new(
        format!("unknown_option:{option}"),
        reason,
        "spell the option out under `commands`, or set `args: any` on the rule",
    )))
}

fn excepted(except: &Except, simple: &Simple) -> bool {
    except.commands.iter().any(|prefix| may_be_meant(prefix, simple))
}

/// Whether a restricting prefix matches: if the rest is judged at exec, by known words only; otherwise by any possible
/// value.
fn may_be_meant(prefix: &CommandPrefix, simple: &Simple) -> bool {
    match simple.judged_at_exec {
        true => surely_covers(&prefix.words, simple),
        false => deny_covers(&prefix.words, simple),
    }
}

fn shell_url_fits(url: &str, patterns: &[HostPattern]) -> bool {
    hosts::judge(&with_scheme(url), patterns).is_ok()
}

/// Commands name hosts with and without a scheme; without one, they use `http`.
pub(super) fn with_scheme(url: &str) -> Cow<'_, str> {
    if url.contains("://") {
        Cow::Borrowed(url)
    } else {
        Cow::Owned(format!("http://{url}"))
    }
}

fn allows_shell_write(
    rule: &Rule,
    used: &FileUse,
    by: Option<&Simple>,
    about: bool,
    asked: &PolicyInput<'_>,
) -> Result<(), Mismatch> {
    let Some(place) = &used.place else {
        return miss("the path is not known before the command runs");
    };
    let below = used.below.as_deref();
    if about && rule.paths.is_some() && arguments(rule, asked, false).is_ok() {
        let command_fits = match (&rule.commands, by) {
            (None, _) => rule.hosts.is_none(),
            (Some(_), Some(simple)) => command(rule, simple).is_ok(),
            (Some(_), None) => false,
        };
        let fits = match by.filter(|simple| simple.program == "git" && place.path == ".git") {
            Some(simple) => opens_repository(rule, simple, asked),
            None => path_fits_with(rule, place, true, below).is_ok(),
        };
        if command_fits && fits {
            return Ok(());
        }
    }
    if by.is_some_and(|simple| simple.program == "git") && place.path == ".git" {
        // The sandbox opens the repository for the rules of commands only.
        return miss("does not list `.git/**` in the rule for the git command");
    }
    let writes = builtin_for(CommandAccessKind::Writes);
    if !rule.is_about_tool(writes) {
        return Err(Mismatch {
            why: Cow::Owned(format!("does not allow `{}`", writes.name)),
            near: None,
        });
    }
    if rule.is_about_arguments() {
        return miss("narrowed to something other than paths");
    }
    path_fits_with(rule, place, true, below)
}

fn allows_shell_host(
    rule: &Rule,
    url: &str,
    by: &Simple,
    about: bool,
    asked: &PolicyInput<'_>,
) -> Result<(), Mismatch> {
    let unnarrowed = about && !rule.is_narrowed();
    if unnarrowed && arguments(rule, asked, false).is_ok() && !excepted(&rule.except, by) {
        return Ok(());
    }
    let Some(patterns) = &rule.hosts else {
        return miss("lists no hosts");
    };
    let by_shell =
        about && arguments(rule, asked, false).is_ok() && (rule.commands.is_none() || command(rule, by).is_ok());
    let by_fetch = rule.is_about_access(CommandAccessKind::Fetches) && rule.commands.is_none() && rule.with.is_empty();
    if (!by_shell && !by_fetch) || !shell_url_fits(url, patterns) {
        return miss("no host matches");
    }
    match hosts::target(&with_scheme(url)) {
        Ok(target) if !rule.except.hosts.iter().any(|pattern| pattern.touches(&target)) => Ok(()),
        _ => miss("excepted"),
    }
}

/// Whether a deny or suspend rule matches an access. A possible match counts.
///
/// # Errors
/// Why it does not.
pub fn forbids(rule: &Rule, need: &Need<'_>, asked: &PolicyInput<'_>) -> Result<(), Mismatch> {
    let about = rule.is_about(asked.tool, asked.kind, asked.origin);
    let place = need.place();
    let writing = place.is_some_and(|(_, writing)| writing);
    let by_path = place.is_some() && need.is_shell() && concerns_by_path(rule, need, asked, writing);
    if !about && !by_path {
        return miss(OTHER_TOOL);
    }
    if about {
        arguments(rule, asked, true)?;
    } else if !rule.with.is_empty() {
        return miss("is about the arguments of another tool");
    }
    if let Some(prefixes) = &rule.commands {
        return forbids_command(rule, prefixes, need);
    }
    if let Some(patterns) = &rule.hosts
        && rule.paths.is_none()
    {
        return forbids_host(rule, patterns, need);
    }
    match (place, &rule.paths) {
        (Some((place, _)), Some(patterns))
            if patterns
                .iter()
                .any(|pattern| pattern.touches_with(place, writing, need.below())) =>
        {
            path_not_excepted(rule, place, writing)
        }
        (_, Some(_)) => miss("no path matches"),
        (Some((place, _)), None) => {
            path_not_excepted(rule, place, writing)?;
            unnarrowed(rule, need)
        }
        (None, None) => unnarrowed(rule, need),
    }
}

/// Whether a rule applies to an access: to the called tool or, for a command's files, to the tool with the same effect.
pub(super) fn concerns(rule: &Rule, need: &Need<'_>, asked: &PolicyInput<'_>, writing: bool) -> bool {
    let same = match writing {
        true => CommandAccessKind::Writes,
        false => CommandAccessKind::Reads,
    };
    rule.is_about(asked.tool, asked.kind, asked.origin) || (need.is_shell() && rule.is_about_access(same))
}

fn concerns_by_path(rule: &Rule, need: &Need<'_>, asked: &PolicyInput<'_>, writing: bool) -> bool {
    if writing {
        concerns(rule, need, asked, true)
            || rule.is_about_any(|tool| tool.effects.touches == ArgumentTarget::WrittenFile)
    } else {
        rule.paths.is_some() && rule.is_about_any(|tool| tool.effects.shows_contents)
    }
}

fn path_not_excepted(rule: &Rule, place: &ResolvedPath, writing: bool) -> Result<(), Mismatch> {
    if rule.except.paths.iter().any(|pattern| pattern.covers(place, writing)) {
        return miss("excepted");
    }
    Ok(())
}

fn unnarrowed(rule: &Rule, need: &Need<'_>) -> Result<(), Mismatch> {
    let excepted = match need {
        Need::Command(simple) | Need::State(simple) => {
            rule.except.commands.iter().any(|prefix| covers(&prefix.words, simple))
        }
        Need::Url(url) => shell_url_fits(url, &rule.except.hosts),
        // A rule with exceptions matches everything that is not excepted, but it does not apply to calls without that
        // kind of access.
        Need::ShellRead(..) | Need::ShellHost(..) | Need::ShellWrite(..) => !rule.except.commands.is_empty(),
        _ => false,
    };
    if excepted { miss("excepted") } else { Ok(()) }
}

fn forbids_command(rule: &Rule, prefixes: &[CommandPrefix], need: &Need<'_>) -> Result<(), Mismatch> {
    let (Need::Command(simple) | Need::State(simple)) = need else {
        return miss("narrowed to commands");
    };
    // A suspension happens before a command starts, so only known words can cause it.
    let fits = |prefix: &CommandPrefix| match rule.effect {
        RuleEffect::Suspend => surely_covers(&prefix.words, simple),
        _ => may_be_meant(prefix, simple),
    };
    if !prefixes.iter().any(fits) {
        return miss("no command matches");
    }
    if rule.except.commands.iter().any(|prefix| covers(&prefix.words, simple)) {
        return miss("excepted");
    }
    let touched = |patterns: &[PathPattern]| names_place(patterns, simple) || searches_place(patterns, simple);
    match (&rule.paths, &rule.hosts) {
        (Some(patterns), _) if !touched(patterns) => miss("no path matches"),
        (_, Some(patterns)) if !simple.hosts.iter().any(|url| host_touched(url, patterns)) => miss("no host matches"),
        _ => Ok(()),
    }
}

/// Whether a command names a place that one of these patterns of a restricting rule touches.
fn names_place(patterns: &[PathPattern], simple: &Simple) -> bool {
    let reads = simple.reads.iter().map(|used| (used, false));
    let mut places = reads.chain(simple.writes.iter().map(|used| (used, true)));
    places.any(|(used, writing)| match &used.place {
        Some(place) => patterns
            .iter()
            .any(|pattern| pattern.touches_with(place, writing, used.below.as_deref())),
        None => !simple.judged_at_exec,
    })
}

/// Whether a command searches a directory that may hold a place which one of these patterns touches.
fn searches_place(patterns: &[PathPattern], simple: &Simple) -> bool {
    let held = |dir: &str| patterns.iter().any(|pattern| may_hold(simple, dir, pattern));
    searched(simple).into_iter().any(held)
}

/// Whether a restricting rule for commands and paths matches a command only because of the directories that it searches.
pub(super) fn only_searches(rule: &Rule, simple: &Simple) -> bool {
    let patterns = rule.paths.as_deref().filter(|_| rule.commands.is_some());
    patterns.is_some_and(|patterns| !names_place(patterns, simple) && searches_place(patterns, simple))
}

fn forbids_host(rule: &Rule, patterns: &[HostPattern], need: &Need<'_>) -> Result<(), Mismatch> {
    let (Need::Url(url) | Need::ShellHost(url, _)) = need else {
        return miss("narrowed to hosts");
    };
    if !host_touched(url, patterns) {
        return miss("no host matches");
    }
    if shell_url_fits(url, &rule.except.hosts) {
        return miss("excepted");
    }
    Ok(())
}

fn host_touched(url: &str, patterns: &[HostPattern]) -> bool {
    match hosts::target(&with_scheme(url)) {
        Ok(target) => patterns.iter().any(|pattern| pattern.touches(&target)),
        Err(_) => true,
    }
}

/// Whether the arguments satisfy `with`. For a list, every item must match to allow, one is enough to deny.
fn arguments(rule: &Rule, asked: &PolicyInput<'_>, generous: bool) -> Result<(), Mismatch> {
    for (name, pattern) in &rule.with {
        let value = asked.args.get(name);
        let fits = |value: &Value| {
            let text = match value {
                Value::String(text) => text.clone(),
                other => other.to_string(),
            };
            pattern.glob.is_match(&text) || (generous && pattern.glob.is_match(text.to_lowercase()))
        };
        let fine = match value {
            None | Some(Value::Null) => false,
            Some(Value::Array(items)) if generous => items.iter().any(fits),
            Some(Value::Array(items)) => !items.is_empty() && items.iter().all(fits),
            Some(value) => fits(value),
        };
        if !fine {
            return miss(OTHER_ARGUMENT);
        }
    }
    Ok(())
}

/// Whether a rule that modifies rewrites the call: it must apply to the tool, and some access must match. A command that
/// needs no rule matches as for a rule that denies, since no rule covers it.
pub fn modifies(rule: &Rule, needs: &[Need<'_>], asked: &PolicyInput<'_>) -> bool {
    needs.iter().any(|need| match need {
        // They only accompany another access of the same call.
        Need::ShellRead(..) | Need::ShellWrite(..) | Need::ShellHost(..) => false,
        Need::State(_) => forbids(rule, need, asked).is_ok(),
        _ => allows(rule, need, asked).is_ok(),
    })
}
