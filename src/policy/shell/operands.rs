//! Applies a program's argument profile to its words: files, hosts, embedded commands, and concerns.

use super::history::GLOBAL_OPTIONS_WITH_VALUE;
use super::scope::{CommandWalk, Dirs, ShellState};
use super::values::{
    NEVER_SPELLED, Pass, WordUse, concern, defer, into, loose, read, read_if_there, remote, take, write,
};
use super::{CommandReach, CommandRefusal, FileUse, ShellWord, WordKind, chdir, option_name};
use crate::base::access::PathStatus;
use crate::policy::profiles::{self, ArgumentSpec, Arity, Profile, ValueClass};
use crate::policy::protected;
use std::borrow::Cow;

/// Examines the arguments of `program`.
pub fn apply(
    walk: &CommandWalk<'_>,
    state: &ShellState,
    words: &[ShellWord],
    program: &str,
    redirected: bool,
) -> WordUse {
    let mut inside = Cow::Borrowed(state);
    let concerns = match program {
        // With a policy's own profile too: whatever it says of the option, git enters the directory.
        "git" => enter(walk, inside.to_mut(), words),
        _ => Vec::new(),
    };
    let state = &*inside;
    let entered = (program == "git").then(|| state.dirs.known().map(<[String]>::to_vec));
    let mut pass = Pass {
        walk,
        state,
        words,
        used: WordUse {
            concerns,
            entered: entered.flatten(),
            ..WordUse::default()
        },
        operands: Vec::new(),
        given: Vec::new(),
        has_code: false,
        suffix: None,
    };
    match profiles::of(walk.grants.profiles, program) {
        Some(profile) => {
            pass.used.effect = profile.top.effect();
            let whole = profile.subs.is_empty() || !with_subcommand(&mut pass, profile, 1);
            if profile.subs.is_empty() {
                arguments(&mut pass, &profile.top, 1);
            }
            // A policy's own profile says itself what the program does.
            if !profile.names.is_empty() {
                match program {
                    "patch" => patched(&mut pass),
                    "ln" => linked(&mut pass),
                    "tar" => archived(&mut pass),
                    "gzip" | "gunzip" | "bzip2" | "xz" | "zstd" | "zip" => packed(&mut pass, program),
                    _ => {}
                }
            }
            if whole
                && profile.top.runs_input
                && !pass.has_code
                && (redirected || state.fed || pass.words.len() == 1)
                && pass.operands.first().is_none_or(|(_, word)| is_input(word))
            {
                pass.used.reach = CommandReach::Anything;
                pass.used
                    .concerns
                    .push((NEVER_SPELLED, given_code(program, "on standard input")));
            }
        }
        None => {
            pass.used.reach = CommandReach::Operands;
            unprofiled(&mut pass, 1);
        }
    }
    if let Some(profile) = profiles::of(walk.grants.profiles, program).filter(|profile| profile.top.response_files) {
        // The words after a script are arguments of the script.
        let script = pass.operands.first().filter(|_| profile.top.script);
        let end = script.map_or(pass.words.len(), |(at, _)| *at);
        response_files(&mut pass, end);
    }
    if super::runners::hands_to_shell(program, pass.words) {
        let reason = "with `-c` before the command it runs the words as a text for a shell";
        concern(&mut pass, NEVER_SPELLED, "program_argument", reason);
    }
    // In an unknown directory no path can be judged.
    if state.dirs.known().is_none() && pass.words.len() > 1 && !is_harmless(program) {
        defer(&mut pass, 1);
    }
    if program == "git" {
        pass.used.shown = super::history::shown(&pass);
    }
    pass.used
}

/// Refuses words that the program replaces by the words in a file, wherever they are (`gcc -D @file`).
fn response_files(pass: &mut Pass<'_, '_>, end: usize) {
    for at in 1..end {
        let is_named = pass.words[at].head.starts_with('@') || pass.words[at].text.starts_with('@');
        let is_told = pass.used.concerns.iter().any(|(told, _)| *told == at);
        if is_named && !is_told {
            let reason = format!("`{}` may contain more arguments", pass.words[at].text);
            concern(pass, at, "program_argument", &reason);
        }
    }
}

/// The option of git that is a `cd` for this command.
const ENTERS: &str = "-C";

/// The state in the directories that git's `-C DIR` enters; they must be exact words before the subcommand. Returns
/// concerns about directories that cannot be entered.
fn enter(walk: &CommandWalk<'_>, state: &mut ShellState, words: &[ShellWord]) -> Vec<(usize, CommandRefusal)> {
    let mut at = 1;
    while let Some(text) = words.get(at).and_then(ShellWord::exact)
        && text.starts_with('-')
    {
        if text == ENTERS
            && let Some(dir) = words.get(at + 1)
        {
            match chdir::change(walk, state, &[ShellWord::known("cd"), dir.clone()]) {
                Ok(entered) => state.dirs = entered.ok,
                Err(refusal) => {
                    state.dirs = Dirs::Unknown;
                    return vec![(NEVER_SPELLED, refusal)];
                }
            }
            at += 1;
        } else if GLOBAL_OPTIONS_WITH_VALUE.contains(&text) {
            at += 1;
        }
        at += 1;
    }
    Vec::new()
}

/// Rules on `patch`: unless a file is named, its input decides which files it writes, and whether it starts `ed`. After an
/// unknown option, an operand may be that option's value.
fn patched(pass: &mut Pass<'_, '_>) {
    const CHANGES_NOTHING: [&str; 4] = ["--dry-run", "--version", "-v", "--help"];
    if pass.given.iter().any(|name| CHANGES_NOTHING.contains(&name.as_str())) {
        return;
    }
    if !pass.walk.grants.witness {
        let reason = "without --dry-run it writes what its input says";
        concern(pass, NEVER_SPELLED, "program_argument", reason);
    } else if pass.operands.is_empty() || !pass.used.concerns.is_empty() {
        super::place::add(&mut pass.used.writes, vec![FileUse::of_input()]);
    }
    if pass.given.iter().any(|name| name == "-b" || name == "--backup") {
        let kept = |used: &FileUse| {
            let place = used.place.as_ref().filter(|place| place.inside)?;
            Some(FileUse {
                place: Some((pass.walk.fs_view.locate)(&format!("{}.orig", place.path))),
                link: None,
                asked: format!("{}.orig", used.asked),
                opaque: false,
                in_place: false,
                below: None,
            })
        };
        let copies = pass.used.writes.iter().filter_map(kept).collect();
        super::place::add(&mut pass.used.writes, copies);
    }
}

/// Rules on `ln -s`: what a link leads to is named from the directory of the link, and only the link is written.
fn linked(pass: &mut Pass<'_, '_>) {
    let symbolic = pass.given.iter().any(|name| name == "-s" || name == "--symbolic");
    let operands = pass.operands.clone();
    let texts: Option<Vec<&str>> = operands.iter().map(|(_, word)| word.exact()).collect();
    let (true, Some(texts)) = (symbolic, texts) else {
        return;
    };
    pass.used.writes.clear();
    let mut dirs: Vec<String> = Vec::new();
    let targets = match (operands.as_slice(), texts.as_slice()) {
        ([(at, _)], [target]) => {
            let name = target.trim_end_matches('/').rsplit('/').next().unwrap_or_default();
            write(pass, *at, &ShellWord::known(name));
            dirs.push(String::new());
            &operands[..]
        }
        ([targets @ .., (at, word)], [.., link]) => {
            let sources: Vec<ShellWord> = targets.iter().map(|(_, word)| word.clone()).collect();
            into(pass, *at, word, &sources);
            let places = super::place::of_text(pass.walk, pass.state, link).unwrap_or_default();
            let is_dir = |used: &FileUse| used.place.as_ref().is_some_and(|place| place.found == PathStatus::Dir);
            let holds_links = targets.len() > 1 || link.ends_with('/');
            // A link to a directory is then replaced itself.
            let is_replaced = pass.given.iter().any(|name| name == "-n" || name == "--no-dereference");
            if holds_links || places.iter().any(is_dir) {
                dirs.push((*link).to_owned());
            }
            if !holds_links && (is_replaced || !places.iter().all(is_dir)) {
                dirs.push(link.rsplit_once('/').map_or("", |(dir, _)| dir).to_owned());
            }
            targets
        }
        _ => return,
    };
    for (at, word) in targets {
        for dir in &dirs {
            let target = match dir.as_str() {
                // In the top directory of the machine.
                "" if texts
                    .last()
                    .is_some_and(|link| operands.len() > 1 && link.starts_with('/')) =>
                {
                    super::place::join("/", &word.text)
                }
                dir => super::place::join(dir, &word.text),
            };
            let Some(uses) = super::place::of_text(pass.walk, pass.state, &target) else {
                defer(pass, *at);
                continue;
            };
            let protected = |used: &&FileUse| {
                let place = used.place.as_ref();
                place.is_some_and(|place| place.inside && protected::entry_of(&place.path).is_some())
            };
            let written = uses.iter().filter(protected).cloned().collect();
            super::place::add(&mut pass.used.writes, written);
            super::place::add(&mut pass.used.reads, uses);
        }
    }
}

/// Refuses an archive on another machine, which tar would write with a remote shell.
fn archived(pass: &mut Pass<'_, '_>) {
    if pass.used.writes.iter().any(|used| remote(&used.asked)) {
        let reason = "the archive that it writes may be on another machine";
        concern(pass, NEVER_SPELLED, "program_argument", reason);
    }
}

/// Adds the files that a compressor writes beside those that it is given, whose names it makes itself.
fn packed(pass: &mut Pass<'_, '_>, program: &str) {
    let unpacks = program == "gunzip" || pass.given.iter().any(|name| name == "-d" || name == "--decompress");
    let derived = |name: &str| {
        let last = name.rsplit('/').next().unwrap_or_default();
        match program {
            "zip" => (!last.contains('.')).then(|| format!("{name}.zip")),
            _ if unpacks => unpacked(program, name),
            _ => Some(format!("{name}{}", suffix_of(program))),
        }
    };
    let beside = |used: &FileUse| {
        let place = used
            .place
            .as_ref()
            .filter(|place| place.inside && place.found != PathStatus::Dir)?;
        Some(FileUse {
            place: Some((pass.walk.fs_view.locate)(&derived(&place.path)?)),
            link: None,
            asked: derived(&used.asked)?,
            opaque: false,
            in_place: false,
            below: None,
        })
    };
    let made = pass.used.writes.iter().filter_map(beside).collect();
    super::place::add(&mut pass.used.writes, made);
}

/// The suffix that a compressor adds.
fn suffix_of(program: &str) -> &'static str {
    match program {
        "bzip2" => ".bz2",
        "xz" => ".xz",
        "zstd" => ".zst",
        _ => ".gz",
    }
}

/// The further name that is written or removed when `name` is unpacked; `None` where the program refuses the name.
fn unpacked(program: &str, name: &str) -> Option<String> {
    const TAR: [&str; 7] = [".tgz", ".taz", ".tbz2", ".tbz", ".txz", ".tlz", ".tzst"];
    const PLAIN: [&str; 12] = [
        ".gz", ".bz2", ".bz", ".xz", ".lzma", ".zst", ".lz4", ".Z", ".z", "-gz", "-z", "_z",
    ];
    let of_tar = TAR.iter().find_map(|suffix| name.strip_suffix(suffix));
    let plain = || PLAIN.iter().find_map(|suffix| name.strip_suffix(suffix));
    of_tar
        .map(|stem| format!("{stem}.tar"))
        .or_else(|| plain().map(str::to_owned))
        .or_else(|| match program {
            "bzip2" => Some(format!("{name}.out")),
            "gzip" | "gunzip" => Some(format!("{name}.gz")),
            _ => None,
        })
}

/// The concern about an interpreter that is given code.
fn given_code(program: &str, how: &str) -> CommandRefusal {
    CommandRefusal::new(
        "program_argument",
        format!("`{program}` would run code that it is given {how}"),
        format!(
            "write the code to a file and run `{program} FILE`; or the policy sets `args: any` on the rule for `{program}`"
        ),
    )
}

/// Whether no argument of the program has any effect.
fn is_harmless(program: &str) -> bool {
    matches!(program, "echo" | "printf" | "true" | "false" | "pwd" | "test" | "[")
}

/// Whether the name of a script means standard input.
fn is_input(word: &ShellWord) -> bool {
    matches!(word.text.as_str(), "-" | "/dev/stdin" | "/proc/self/fd/0" | "/dev/fd/0")
}

/// A program without a profile: the policy's author named it, so its options are accepted; paths must still be inside.
fn unprofiled(pass: &mut Pass<'_, '_>, start: usize) {
    for at in start..pass.words.len() {
        let word = pass.words[at].clone();
        if word.may_be_option() && word.text != "-" {
            pass.used.options.push(at);
        }
        loose(pass, at, &word);
    }
}

/// Handles the options before the subcommand; returns the index after them.
fn global_options(pass: &mut Pass<'_, '_>, profile: &Profile, start: usize) -> usize {
    let mut at = start;
    while let Some(text) = pass.words.get(at).and_then(ShellWord::exact) {
        if pass.has_code
            || !text.starts_with(['-', '+'])
            || text == "-"
            || text.len() < 2
            || subcommand(pass.words, profile, at).is_some()
        {
            break;
        }
        // A policy's own profile says itself what kind of value it is.
        if text == ENTERS && profile.names.iter().any(|name| name == "git") && at + 1 < pass.words.len() {
            pass.used.passed_over.extend([at, at + 1]);
            at += 2;
            continue;
        }
        let text = text.to_owned();
        let (before, concerns) = (at, pass.used.concerns.len());
        at = option(pass, &profile.top, at, &text);
        let name = option_name(&text);
        // A value that raises a concern must be spelled out in the rule.
        let is_harmless = pass.used.concerns.len() == concerns;
        if is_harmless && profile.top.passed.iter().any(|passed| passed == name) {
            pass.used.passed_over.extend(before..at);
        }
    }
    at
}

/// Handles global options, then the words of the subcommand, then its own arguments. Returns whether there was a
/// subcommand.
fn with_subcommand(pass: &mut Pass<'_, '_>, profile: &Profile, start: usize) -> bool {
    let mut at = global_options(pass, profile, start);
    while let Some((name, _)) = subcommand(pass.words, profile, at).filter(|(_, section)| section.skipped)
        && !pass.has_code
    {
        let behind = at + name.len();
        pass.used.passed_over.extend(at..behind);
        at = global_options(pass, profile, behind);
    }
    if pass.has_code {
        arguments(pass, &profile.top, at);
        return false;
    }
    let Some(next) = pass.words.get(at) else {
        return false;
    };
    let found = subcommand(pass.words, profile, at);
    match found {
        Some((name, section)) => {
            if let Some(effect) = section.own_effect() {
                pass.used.effect = effect;
            }
            if section.repository {
                repository(pass);
            }
            if section.spelled {
                let reason = format!("`{}` must be spelled out in the rule", name.join(" "));
                concern(pass, at + name.len() - 1, "program_argument", &reason);
            }
            arguments(pass, section, at + name.len());
        }
        None if !profile.top.first.is_empty() || profile.top.more.is_some() => arguments(pass, &profile.top, at),
        None => {
            let reason = format!("the subcommand `{}` is not in the program's profile", next.text);
            // For a group of subcommands like `pr` the rule must spell out the member.
            let group = profile
                .subs
                .iter()
                .any(|(name, _)| name.len() > 1 && name[0] == next.text);
            concern(pass, at + usize::from(group), "unknown_subcommand", &reason);
            unprofiled(pass, at + 1);
        }
    }
    found.is_some()
}

/// Records that git writes its own directory.
fn repository(pass: &mut Pass<'_, '_>) {
    let uses = super::place::of_text(pass.walk, pass.state, ".git").unwrap_or_default();
    super::place::add(&mut pass.used.writes, uses);
}

/// The subcommand whose words are at `at`; the longest if several match.
fn subcommand<'a>(words: &[ShellWord], profile: &'a Profile, at: usize) -> Option<&'a (Vec<String>, ArgumentSpec)> {
    let fits = |name: &[String]| {
        let is = |(offset, wanted): (usize, &String)| {
            let word = words.get(at + offset).and_then(ShellWord::exact);
            word.is_some_and(|word| match wanted.contains('*') {
                // `describe-*`, `*`: never matches an option, and a star needs at least one character.
                true => !word.starts_with('-') && !word.is_empty() && super::place::matches(wanted, word),
                false => word == wanted,
            })
        };
        name.iter().enumerate().all(is)
    };
    profile
        .subs
        .iter()
        .filter(|(name, _)| fits(name))
        .max_by_key(|(name, _)| (name.len(), name.iter().filter(|word| !word.contains('*')).count()))
}

/// Handles the options and operands from `start` on.
fn arguments(pass: &mut Pass<'_, '_>, section: &ArgumentSpec, start: usize) {
    let mut at = start;
    let mut dashes = false;
    while let Some(word) = pass.words.get(at).cloned() {
        if dashes {
            match section.rest {
                Some(class) => take(pass, class, at, &word),
                None => pass.operands.push((at, word)),
            }
            at += 1;
        } else if word.exact() == Some("--") {
            dashes = true;
            at += 1;
        } else if section.script && (!pass.operands.is_empty() || pass.has_code && !is_code(section, &word.text)) {
            loose(pass, at, &word);
            at += 1;
        } else if let Some(text) = option_text(&word, section.plus) {
            at = option(pass, section, at, &text);
        } else {
            if word.may_be_option()
                && !section.harmless
                && word.kind != WordKind::Known
                && has_option_names(pass, &word)
            {
                defer(pass, at);
            }
            pass.operands.push((at, word));
            at += 1;
        }
    }
    if !section.needs.is_empty() && !section.needs.iter().any(|name| pass.given.contains(name)) {
        let reason = format!("without one of {} it does more than read", section.needs.join(" "));
        concern(pass, NEVER_SPELLED, "program_argument", &reason);
    }
    if pass.operands.len() < section.least {
        concern(
            pass,
            NEVER_SPELLED,
            "program_argument",
            "it would choose file names itself",
        );
    }
    classify(pass, section);
}

/// Whether an unknown word may become an option: a glob can only where a file name begins with a dash.
fn has_option_names(pass: &Pass<'_, '_>, word: &ShellWord) -> bool {
    if pass.walk.grants.witness || word.kind == WordKind::Unknown {
        return true;
    }
    let dirs = pass.state.dirs.known().unwrap_or_default();
    let names = dirs
        .iter()
        .flat_map(|dir| (pass.walk.fs_view.expand)(&super::place::join(dir, &word.text)));
    names.into_iter().any(|name| {
        let name = name.rsplit('/').next().unwrap_or_default();
        name.starts_with('-') && !word.text.contains('/')
    })
}

/// The text of a word that is certainly an option.
fn option_text(word: &ShellWord, plus: bool) -> Option<String> {
    let text = match word.kind {
        WordKind::Unknown => &word.head,
        WordKind::Known | WordKind::Glob => &word.text,
    };
    ((text.starts_with('-') || plus && text.starts_with('+')) && text.len() > 1).then(|| text.clone())
}

/// Handles the option at `at` and its value; returns the index after them.
fn option(pass: &mut Pass<'_, '_>, section: &ArgumentSpec, at: usize, text: &str) -> usize {
    if section.numbers && text.len() > 1 && text[1..].bytes().all(|byte| byte.is_ascii_digit()) && is_exact(pass, at) {
        return at + 1;
    }
    if is_exact(pass, at) && section.options.get(text) == Some(&Arity::Flag) {
        pass.given.push(text.to_owned());
        return at + 1;
    }
    let (name, attached) = match text.split_once('=') {
        Some((name, _)) => (name, Some(name.len() + 1)),
        None => (text, None),
    };
    if text.starts_with("--")
        || section.single
        || section.options.contains_key(name) && name.len() > 2
        || text.starts_with('+')
    {
        return match section.options.get(name) {
            Some(arity) => valued(pass, section, at, name, *arity, attached),
            None if is_code(section, name) => code(pass, at, name, attached.is_some()),
            None => unknown(pass, at, name),
        };
    }
    cluster(pass, section, at, text)
}

fn is_exact(pass: &Pass<'_, '_>, at: usize) -> bool {
    pass.words.get(at).is_some_and(|word| word.kind == WordKind::Known)
}

/// `-rn`, `-n5`: combined short options, the last one with its value.
fn cluster(pass: &mut Pass<'_, '_>, section: &ArgumentSpec, at: usize, text: &str) -> usize {
    for (offset, flag) in text.char_indices().skip(1) {
        let name = format!("-{flag}");
        let after = offset + flag.len_utf8();
        match section.options.get(&name) {
            // The rest of the word would be a suffix, not another option.
            Some(Arity::Flag) if section.in_place.contains(&name) && after < text.len() => {
                return with_copies(pass, section, at, &name, after);
            }
            Some(Arity::Flag) => pass.given.push(name),
            Some(arity) => {
                let attached = (after < text.len() || !is_exact(pass, at)).then_some(after);
                return valued(pass, section, at, &name, *arity, attached);
            }
            None if is_exact(pass, at) && ends_in_code(section, text) => return code(pass, at, &name, false),
            None if is_code(section, &name) => {
                let attached = after < text.len() || !is_exact(pass, at);
                return code(pass, at, &name, attached);
            }
            None => return unknown(pass, at, &name),
        }
    }
    if !is_exact(pass, at) {
        defer(pass, at);
    }
    at + 1
}

/// Options of interpreters whose value is code. Some of them are flags of other interpreters.
const CODE: [&str; 7] = ["-c", "-e", "-E", "-p", "-r", "--eval", "--print"];

/// Whether an option that the profile does not know may take code.
fn is_code(section: &ArgumentSpec, name: &str) -> bool {
    section.runs_input && CODE.contains(&name)
}

/// Whether the last of combined options may take code: `perl -0777pe`, `node -pe`.
fn ends_in_code(section: &ArgumentSpec, text: &str) -> bool {
    let flags = text.strip_prefix('-').unwrap_or_default();
    let is_combined = flags
        .bytes()
        .all(|flag| flag.is_ascii_lowercase() || flag.is_ascii_digit());
    let last = flags.get(flags.len().saturating_sub(1)..).unwrap_or_default();
    is_combined && is_code(section, &format!("-{last}"))
}

/// An option that takes code, in the next word unless it is attached. Code names no file, whatever it looks like; what
/// it does is bounded when it runs.
fn code(pass: &mut Pass<'_, '_>, at: usize, name: &str, attached: bool) -> usize {
    let mut refusal = given_code(&pass.words[0].text, "in a word");
    refusal.code = format!("unknown_option:{name}");
    pass.used.concerns.push((at, refusal));
    pass.has_code = true;
    if attached {
        return at + 1;
    }
    if let Some(value) = pass.words.get(at + 1).cloned() {
        // If the option is a flag of this interpreter, the word is its script.
        read_if_there(pass, at + 1, &value);
    }
    at + 2
}

fn unknown(pass: &mut Pass<'_, '_>, at: usize, name: &str) -> usize {
    let reason = format!(
        "`{name}` is not among the options that the profile of `{}` knows to be harmless",
        pass.words[0].text
    );
    concern(pass, at, &format!("unknown_option:{name}"), &reason);
    at + 1
}

/// `sed -i.bak`: each file is kept under its name with a suffix, which begins at `from`. Where execs are not judged, and
/// with what is no plain suffix, the option counts as unknown.
fn with_copies(pass: &mut Pass<'_, '_>, section: &ArgumentSpec, at: usize, name: &str, from: usize) -> usize {
    let text = pass.words[at].text.clone();
    let suffix = text.get(from..).unwrap_or_default();
    let is_plain = suffix.starts_with(['.', '~'])
        && suffix
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || b".~_-".contains(&byte));
    let is_sed = section.first.contains(&ValueClass::Sed);
    if !(is_sed && is_plain && is_exact(pass, at) && pass.walk.grants.witness) {
        return unknown(pass, at, &text);
    }
    pass.given.push(name.to_owned());
    pass.suffix = Some(suffix.to_owned());
    at + 1
}

/// Handles the value of an option; `attached` is its start in the word itself.
fn valued(
    pass: &mut Pass<'_, '_>,
    section: &ArgumentSpec,
    at: usize,
    name: &str,
    arity: Arity,
    attached: Option<usize>,
) -> usize {
    pass.given.push(name.to_owned());
    let word = pass.words[at].clone();
    match (arity, attached) {
        (Arity::Flag, Some(from)) if section.in_place.iter().any(|flag| flag == name) => {
            with_copies(pass, section, at, name, from)
        }
        (Arity::Flag, Some(_)) => unknown(pass, at, &word.text),
        (Arity::Flag | Arity::Attached(_), None) => {
            if !is_exact(pass, at) {
                defer(pass, at);
            }
            at + 1
        }
        (Arity::Value(class) | Arity::Attached(class), Some(from)) => {
            let value = tail(&word, from);
            take(pass, class, at, &value);
            // Some programs leave out the sign in `-f=FILE`, others take it as part of the value.
            if name.len() == 2 && value.head.len() > 1 && value.head.starts_with('=') {
                take(pass, class, at, &tail(&word, from + 1));
            }
            at + 1
        }
        (Arity::Value(ValueClass::Command), None) => embedded(pass, at),
        (Arity::Pair(_), Some(_)) => unknown(pass, at, name),
        (Arity::Pair(class), None) => {
            for (at, class) in [(at + 1, ValueClass::Label), (at + 2, class)] {
                if let Some(value) = pass.words.get(at).cloned() {
                    if value.kind != WordKind::Known {
                        defer(pass, at);
                    }
                    take(pass, class, at, &value);
                }
            }
            at + 3
        }
        (Arity::Value(ValueClass::Program), None) if pass.words.get(at + 1).is_none() => {
            let text = pass.words[at].clone();
            take(pass, ValueClass::Program, at, &text);
            at + 1
        }
        (Arity::Value(class), None) => {
            if let Some(value) = pass.words.get(at + 1).cloned() {
                if !section.harmless && value.kind == WordKind::Unknown {
                    defer(pass, at + 1);
                }
                // If the program did not take the next word as a value, that word could be a hidden option. A dash alone
                // is none, but it could be the script of an interpreter.
                let hidden = value
                    .text
                    .strip_prefix('-')
                    .is_some_and(|rest| match rest.chars().next() {
                        // An option does not begin with a blank, a digit or another punctuation mark.
                        Some(next) => next.is_ascii_alphabetic() || next == '-' || !next.is_ascii(),
                        None => section.runs_input,
                    });
                let hidden = hidden && !section.dashed.iter().any(|option| option == name);
                if hidden && !section.harmless && !section.single {
                    unknown(pass, at + 1, &value.text);
                }
                take(pass, class, at + 1, &value);
            }
            at + 2
        }
    }
}

/// The rest of a word from byte `from` of its literal head.
fn tail(word: &ShellWord, from: usize) -> ShellWord {
    let cut = |text: &String| text.get(from..).unwrap_or_default().to_owned();
    if word.kind == WordKind::Known {
        return ShellWord::known(cut(&word.text));
    }
    ShellWord {
        text: word.text.clone(),
        kind: WordKind::Unknown,
        head: cut(&word.head),
    }
}

/// `-exec WORDS ;` or `+`: an embedded command.
fn embedded(pass: &mut Pass<'_, '_>, at: usize) -> usize {
    let rest = &pass.words[at + 1..];
    // `+` ends the command only after `{}`.
    let ends = |index: usize, word: &ShellWord| match word.exact() {
        Some(";") => true,
        Some("+") => index > 0 && rest[index - 1].exact() == Some("{}"),
        _ => false,
    };
    let length = rest.iter().enumerate().position(|(index, word)| ends(index, word));
    let Some(length) = length else {
        concern(pass, at, "program_argument", "the embedded command has no end");
        return pass.words.len();
    };
    let inner: Vec<ShellWord> = rest[..length]
        .iter()
        .map(|word| super::wrappers::filled(word, "{}"))
        .collect();
    if inner.is_empty() {
        concern(pass, at, "program_argument", "the embedded command is empty");
    } else {
        pass.used.inner.push(inner);
    }
    at + length + 2
}

/// Whether an operand of this class names what the program reads, so that the program does not choose a directory
/// itself.
fn names_place(class: ValueClass) -> bool {
    matches!(
        class,
        ValueClass::In | ValueClass::Formatted | ValueClass::Archive | ValueClass::Loose | ValueClass::Rev
    )
}

/// Options of copying programs that name the directory to copy into.
const TARGET_DIRECTORY_OPTIONS: [&str; 2] = ["-t", "--target-directory"];

/// Assigns a class to each operand.
fn classify(pass: &mut Pass<'_, '_>, section: &ArgumentSpec) {
    let operands = std::mem::take(&mut pass.operands);
    let left_out = usize::from(section.unless.iter().any(|name| pass.given.contains(name)));
    let mut first = section.first.iter().skip(left_out);
    let last = operands.len().saturating_sub(1);
    // All operands are then copied into the directory that the option names.
    let is_directed = TARGET_DIRECTORY_OPTIONS.iter().any(|name| {
        section.options.get(*name) == Some(&Arity::Value(ValueClass::Dir))
            && pass.given.iter().any(|given| given == name)
    });
    let sources: Vec<ShellWord> = operands.iter().take(last).map(|(_, word)| word.clone()).collect();
    for (index, (at, word)) in operands.iter().enumerate() {
        let class = match first.next() {
            Some(class) => Some(*class),
            None if index == last && index > 0 && section.last.is_some() && !is_directed => section.last,
            None => section.more,
        };
        pass.used.names_place |= class.is_some_and(names_place);
        let in_place = section.in_place.iter().any(|name| pass.given.contains(name));
        let only_read = section.reading.iter().any(|name| pass.given.contains(name));
        match class {
            Some(ValueClass::In) if in_place => {
                read(pass, *at, word);
                write(pass, *at, word);
                if let Some(suffix) = pass.suffix.clone() {
                    let copy = ShellWord {
                        text: format!("{}{suffix}", word.text),
                        ..word.clone()
                    };
                    write(pass, *at, &copy);
                }
            }
            Some(ValueClass::Out | ValueClass::Entry) if only_read => read(pass, *at, word),
            Some(ValueClass::Ref) => {
                if !only_read {
                    repository(pass);
                }
                take(pass, ValueClass::Ref, *at, word);
            }
            Some(ValueClass::JqOrFile) if operands.len() == 1 => {
                take(pass, ValueClass::Jq, *at, word);
                read(pass, *at, word);
                if in_place {
                    write(pass, *at, word);
                }
            }
            Some(ValueClass::Into) => into(pass, *at, word, &sources),
            Some(class) => {
                if matches!(class, ValueClass::Target | ValueClass::Goal) && !word.text.contains('=') {
                    pass.used.targets.push(*at);
                }
                take(pass, class, *at, word);
            }
            None => {
                let reason = format!("the profile of `{}` does not allow an operand here", pass.words[0].text);
                concern(pass, *at, "unknown_operand", &reason);
            }
        }
    }
    pass.operands = operands;
}
