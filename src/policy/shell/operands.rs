//! Applies a program's argument profile to its words: files, hosts, embedded commands, and what speaks against it. Knows no program by itself.

use super::scope::{State, Walk};
use super::{FileUse, Range, Refusal, Tame, Word, WordKind, awk, jq, place, sed, simple};
use crate::base::access::Found;
use crate::policy::profiles::{self, Arity, Class, Profile, Section};

/// What the words of a command name.
#[derive(Default)]
pub struct Used {
    pub reads: Vec<FileUse>,
    pub writes: Vec<FileUse>,
    pub hosts: Vec<String>,
    /// By index of the word.
    pub concerns: Vec<(usize, Refusal)>,
    /// Commands inside (`find -exec`).
    pub inner: Vec<Vec<Word>>,
    pub passed_over: Vec<usize>,
}

/// One pass over the words.
struct Pass<'a, 'b> {
    walk: &'a Walk<'b>,
    state: &'a State,
    words: &'a [Word],
    used: Used,
    /// Operands, with the index of their word.
    operands: Vec<(usize, Word)>,
    /// Names of the options that were given.
    given: Vec<String>,
}

/// Looks at the arguments of `program`.
pub fn apply(walk: &Walk<'_>, state: &State, words: &[Word], program: &str, redirected: bool) -> Used {
    let mut pass = Pass {
        walk,
        state,
        words,
        used: Used::default(),
        operands: Vec::new(),
        given: Vec::new(),
    };
    let known = program
        .rsplit('/')
        .next()
        .filter(|name| matches!(*name, "gradlew" | "mvnw"))
        .unwrap_or(program);
    match profiles::of(known) {
        Some(profile) => {
            if profile.subs.is_empty() {
                arguments(&mut pass, &profile.top, 1);
            } else {
                with_subcommand(&mut pass, profile);
            }
            if profile.top.runs_input
                && (redirected || state.input.is_some() || pass.words.len() == 1)
                && pass.operands.is_empty()
            {
                concern(
                    &mut pass,
                    0,
                    "program_argument",
                    "it would run what comes in on standard input",
                );
            }
        }
        None => unprofiled(&mut pass, 1),
    }
    pass.used
}

fn concern(pass: &mut Pass<'_, '_>, at: usize, code: &str, reason: &str) {
    let refusal = Refusal::new(code, reason, "use another form, or set `args: any` on the rule");
    pass.used.concerns.push((at, refusal));
}

fn opaque(pass: &mut Pass<'_, '_>, at: usize) {
    let text = pass.words.get(at).map_or("", |word| word.text.as_str());
    let reason = format!("what `{text}` becomes is not known before the command runs");
    concern(pass, at, "opaque_argument", &reason);
}

/// A program that has no profile: the author named it, so its options are his choice; paths must still lie inside.
fn unprofiled(pass: &mut Pass<'_, '_>, start: usize) {
    for at in start..pass.words.len() {
        let word = pass.words[at].clone();
        loose(pass, at, &word);
    }
}

/// A word of which only this is known: where it names a path, alone or behind an option, that is read.
fn loose(pass: &mut Pass<'_, '_>, at: usize, word: &Word) {
    if word.kind == WordKind::Opaque
        && word.range.values.is_none()
        && (word.range.tame == Tame::Wild || word.range.dash)
    {
        return opaque(pass, at);
    }
    for text in word.range.values.clone().unwrap_or_default() {
        if text.contains("://") {
            pass.used.hosts.push(text);
            continue;
        }
        let value = text.split_once('=').map_or(text.as_str(), |(_, value)| value);
        // `-I/usr/include`: a path may be glued to its option.
        let glued = || value.find(['/', '~']).map_or("", |slash| &value[slash..]);
        let value = if value.starts_with('-') { glued() } else { value };
        let exists = |found: &FileUse| found.place.as_ref().is_some_and(|place| place.found != Found::Nothing);
        let uses = place::of_text(pass.walk, pass.state, value);
        if value.contains('/') || value.starts_with('~') || value.starts_with("..") || uses.iter().any(exists) {
            simple::add(&mut pass.used.reads, uses);
        }
    }
    if word.range.glob {
        if let Some(uses) = place::uses(pass.walk, pass.state, word) {
            simple::add(&mut pass.used.reads, uses);
        }
    }
}

/// Global options, then the subcommand's words, then its own arguments.
fn with_subcommand(pass: &mut Pass<'_, '_>, profile: &Profile) {
    let mut at = 1;
    while let Some(text) = pass.words.get(at).and_then(Word::exact) {
        if !text.starts_with(['-', '+']) || text.len() < 2 || subcommand(pass.words, profile, at).is_some() {
            break;
        }
        let text = text.to_owned();
        let before = at;
        at = option(pass, &profile.top, at, &text);
        let name = text.split_once('=').map_or(text.as_str(), |(name, _)| name);
        if profile.top.passed.iter().any(|passed| passed == name) {
            pass.used.passed_over.extend(before..at);
        }
    }
    let Some(next) = pass.words.get(at) else {
        return;
    };
    match subcommand(pass.words, profile, at) {
        Some((name, section)) => arguments(pass, section, at + name.len()),
        None if !profile.top.first.is_empty() || profile.top.more.is_some() => arguments(pass, &profile.top, at),
        None => {
            let reason = format!("the subcommand `{}` is not in the program's profile", next.text);
            concern(pass, at, "unknown_subcommand", &reason);
            unprofiled(pass, at + 1);
        }
    }
}

/// The subcommand whose words stand at `at`; the longest when several do.
fn subcommand<'a>(words: &[Word], profile: &'a Profile, at: usize) -> Option<&'a (Vec<String>, Section)> {
    let fits = |name: &[String]| {
        let is = |(offset, wanted): (usize, &String)| words.get(at + offset).and_then(Word::exact) == Some(wanted);
        name.iter().enumerate().all(is)
    };
    profile
        .subs
        .iter()
        .filter(|(name, _)| fits(name))
        .max_by_key(|(name, _)| name.len())
}

/// The options and operands from `start` on.
fn arguments(pass: &mut Pass<'_, '_>, section: &Section, start: usize) {
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
        } else if let Some(text) = option_text(&word) {
            at = option(pass, section, at, &text);
        } else {
            if word.range.dash && !section.harmless && word.kind != WordKind::Known {
                opaque(pass, at);
            }
            pass.operands.push((at, word));
            at += 1;
        }
    }
    classify(pass, section);
}

/// The text of a word that is surely an option.
fn option_text(word: &Word) -> Option<String> {
    let text = if word.kind == WordKind::Opaque {
        &word.range.head
    } else {
        &word.text
    };
    (text.starts_with('-') && text.len() > 1).then(|| text.clone())
}

/// Reads the option at `at`; gives the index behind it and its value.
fn option(pass: &mut Pass<'_, '_>, section: &Section, at: usize, text: &str) -> usize {
    if section.numbers && text.len() > 1 && text[1..].bytes().all(|byte| byte.is_ascii_digit()) && is_exact(pass, at) {
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
            None => unknown(pass, section, at, name),
        };
    }
    cluster(pass, section, at, text)
}

fn is_exact(pass: &Pass<'_, '_>, at: usize) -> bool {
    pass.words.get(at).is_some_and(|word| word.kind == WordKind::Known)
}

/// `-rn`, `-n5`: short options joined, the last with its value.
fn cluster(pass: &mut Pass<'_, '_>, section: &Section, at: usize, text: &str) -> usize {
    for (offset, flag) in text.char_indices().skip(1) {
        let name = format!("-{flag}");
        let after = offset + flag.len_utf8();
        match section.options.get(&name) {
            // What follows in the word would be a suffix, not another option.
            Some(Arity::Flag) if section.in_place.contains(&name) && after < text.len() => {
                return unknown(pass, section, at, text);
            }
            Some(Arity::Flag) => pass.given.push(name),
            Some(arity) => {
                let attached = (after < text.len() || !is_exact(pass, at)).then_some(after);
                return valued(pass, section, at, &name, *arity, attached);
            }
            None => return unknown(pass, section, at, &name),
        }
    }
    if !is_exact(pass, at) {
        opaque(pass, at);
    }
    at + 1
}

fn unknown(pass: &mut Pass<'_, '_>, section: &Section, at: usize, name: &str) -> usize {
    let _ = section;
    let reason = format!(
        "`{name}` is not among the options that the profile of `{}` knows to be harmless",
        pass.words[0].text
    );
    concern(pass, at, &format!("unknown_option:{name}"), &reason);
    at + 1
}

/// Takes the value of an option; `attached` is where it begins in the word itself.
fn valued(
    pass: &mut Pass<'_, '_>,
    section: &Section,
    at: usize,
    name: &str,
    arity: Arity,
    attached: Option<usize>,
) -> usize {
    pass.given.push(name.to_owned());
    let word = pass.words[at].clone();
    match (arity, attached) {
        (Arity::Flag, Some(_)) => unknown(pass, section, at, &word.text),
        (Arity::Flag | Arity::Attached(_), None) => {
            if !is_exact(pass, at) {
                opaque(pass, at);
            }
            at + 1
        }
        (Arity::Value(class) | Arity::Attached(class), Some(from)) => {
            take(pass, class, at, &tail(&word, from));
            at + 1
        }
        (Arity::Value(Class::Command), None) => embedded(pass, at),
        (Arity::Value(class), None) => {
            if let Some(value) = pass.words.get(at + 1).cloned() {
                if value.range.many && !section.harmless && value.kind == WordKind::Opaque {
                    opaque(pass, at + 1);
                }
                take(pass, class, at + 1, &value);
            }
            at + 2
        }
    }
}

/// The rest of a word from byte `from` of its literal head.
fn tail(word: &Word, from: usize) -> Word {
    let cut = |text: &String| text.get(from..).unwrap_or_default().to_owned();
    if word.kind == WordKind::Known {
        return Word::known(cut(&word.text));
    }
    let head = cut(&word.range.head);
    let outside = head.starts_with(['/', '~']);
    Word {
        text: word.text.clone(),
        kind: word.kind,
        range: Range {
            values: word.range.values.as_ref().map(|all| all.iter().map(cut).collect()),
            tame: if outside { Tame::Wild } else { word.range.tame },
            dash: false,
            many: false,
            glob: word.range.glob,
            head,
        },
    }
}

/// `-exec WORDS ;` or `+`: a command of its own.
fn embedded(pass: &mut Pass<'_, '_>, at: usize) -> usize {
    let length = pass.words[at + 1..]
        .iter()
        .position(|word| matches!(word.exact(), Some(";" | "+")));
    let Some(length) = length else {
        concern(pass, at, "program_argument", "the embedded command has no end");
        return pass.words.len();
    };
    // With links followed it finds what lies outside too.
    let follows = pass.words[..at]
        .iter()
        .any(|word| matches!(word.text.as_str(), "-L" | "-follow" | "-H"));
    let found = Range::of(if follows { Tame::Wild } else { Tame::Inside });
    let inner: Vec<Word> = pass.words[at + 1..at + 1 + length]
        .iter()
        .map(|word| super::wrappers::filled(word, "{}", &found))
        .collect();
    if inner.is_empty() {
        concern(pass, at, "program_argument", "the embedded command is empty");
    } else {
        pass.used.inner.push(inner);
    }
    at + length + 2
}

/// Gives each operand its class.
fn classify(pass: &mut Pass<'_, '_>, section: &Section) {
    let operands = std::mem::take(&mut pass.operands);
    let left_out = usize::from(section.unless.iter().any(|name| pass.given.contains(name)));
    let mut first = section.first.iter().skip(left_out);
    let last = operands.len().saturating_sub(1);
    let sources: Vec<Word> = operands.iter().take(last).map(|(_, word)| word.clone()).collect();
    for (index, (at, word)) in operands.iter().enumerate() {
        let class = match first.next() {
            Some(class) => Some(*class),
            None if index == last && index > 0 && section.last.is_some() => section.last,
            None => section.more,
        };
        let in_place = section.in_place.iter().any(|name| pass.given.contains(name));
        match class {
            Some(Class::In) if in_place => {
                read(pass, *at, word);
                write(pass, *at, word);
            }
            Some(Class::Into) => into(pass, *at, word, &sources),
            Some(class) => take(pass, class, *at, word),
            None => {
                let reason = format!("the profile of `{}` knows no operand here", pass.words[0].text);
                concern(pass, *at, "unknown_operand", &reason);
            }
        }
    }
    pass.operands = operands;
}

/// A target of copies: the file itself, or the names below it when it is a directory.
fn into(pass: &mut Pass<'_, '_>, at: usize, word: &Word, sources: &[Word]) {
    take(pass, Class::Out, at, word);
    let Some(target) = word.exact().map(str::to_owned) else {
        return;
    };
    let places = place::of_text(pass.walk, pass.state, &target);
    let is_dir = places
        .iter()
        .any(|found| found.place.as_ref().is_some_and(|place| place.found == Found::Dir));
    if !is_dir && sources.len() < 2 && !target.ends_with('/') {
        return;
    }
    for source in sources {
        for text in source.range.values.clone().unwrap_or_default() {
            let name = text
                .trim_end_matches('/')
                .rsplit('/')
                .next()
                .unwrap_or_default()
                .to_owned();
            if source.range.glob || matches!(name.as_str(), "" | "." | "..") {
                opaque(pass, at);
            } else {
                let uses = place::of_text(pass.walk, pass.state, &format!("{target}/{name}"));
                simple::add(&mut pass.used.writes, uses);
            }
        }
    }
}

/// Takes one value of the given class.
fn take(pass: &mut Pass<'_, '_>, class: Class, at: usize, word: &Word) {
    match class {
        Class::Free | Class::Into => {}
        Class::Program | Class::Command => concern(
            pass,
            at,
            "program_argument",
            &format!("`{}` names a program or code to run", word.text),
        ),
        Class::Loose => loose(pass, at, word),
        Class::Jq => {
            if let Err(reason) = word
                .exact()
                .ok_or_else(|| "it is not known before the command runs".to_owned())
                .and_then(jq::check)
            {
                concern(
                    pass,
                    at,
                    "script:jq",
                    &format!("the jq program is not accepted: {reason}"),
                );
            }
        }
        Class::Remote
            if word.kind == WordKind::Known
                && !word.text.contains("::")
                && !word.text.contains("://")
                && !word.text.contains('@') =>
        {
            if word.text.starts_with(['/', '.', '~']) {
                read(pass, at, word);
            }
        }
        Class::Target if matches!(word.exact(), Some("V=1" | "VERBOSE=1" | "CI=1" | "DEBUG=1")) => {}
        Class::Target if !word.text.contains('=') && word.kind == WordKind::Known => {}
        Class::Header if !word.text.starts_with('@') && word.kind == WordKind::Known => {}
        Class::Stdout if word.exact() == Some("-") => {}
        Class::Target | Class::Header | Class::Stdout | Class::Remote => {
            concern(
                pass,
                at,
                "program_argument",
                &format!("`{}` sets more than the profile knows to be harmless", word.text),
            );
        }
        // `@file` holds more arguments for many programs.
        Class::In if word.text.starts_with('@') => {
            concern(
                pass,
                at,
                "program_argument",
                &format!("`{}` may hold more arguments", word.text),
            );
        }
        Class::In => read(pass, at, word),
        Class::Rev => revision(pass, at, word),
        Class::Out => write(pass, at, word),
        Class::Url => match &word.range.values {
            Some(values) if !word.range.glob => pass.used.hosts.extend(values.iter().cloned()),
            _ => opaque(pass, at),
        },
        Class::Sed | Class::Awk => {
            let checked = match word.exact() {
                Some(text) if class == Class::Sed => sed::check(text),
                Some(text) => awk::check(text),
                None => Err("it is not known before the command runs".to_owned()),
            };
            if let Err(reason) = checked {
                let name = if class == Class::Sed { "sed" } else { "awk" };
                concern(
                    pass,
                    at,
                    &format!("script:{name}"),
                    &format!("the {name} program is not accepted: {reason}"),
                );
            }
        }
    }
}

fn read(pass: &mut Pass<'_, '_>, at: usize, word: &Word) {
    match place::uses(pass.walk, pass.state, word) {
        Some(uses) => simple::add(&mut pass.used.reads, uses),
        None => opaque(pass, at),
    }
}

/// `HEAD:path` and `a..b` as well as plain paths.
fn revision(pass: &mut Pass<'_, '_>, at: usize, word: &Word) {
    let Some(values) = word.range.values.clone().filter(|_| !word.range.glob) else {
        return read(pass, at, word);
    };
    for text in values {
        let text = text.strip_prefix('^').unwrap_or(&text);
        let path = text.split_once(':').map_or(text, |(_, path)| path);
        let uses = place::of_text(pass.walk, pass.state, path);
        simple::add(&mut pass.used.reads, uses);
    }
}

fn write(pass: &mut Pass<'_, '_>, at: usize, word: &Word) {
    match place::uses(pass.walk, pass.state, word) {
        Some(uses) if uses.iter().all(|found| !found.opaque) => simple::add(&mut pass.used.writes, uses),
        _ => opaque(pass, at),
    }
}
