//! What one value of a given class does: files, hosts, programs, and what speaks against it. Knows no option.

use super::scope::{State, Walk};
use super::{FileUse, Refusal, Tame, Word, WordKind, awk, jq, place, sed, simple};
use crate::base::access::Found;
use crate::policy::profiles::Class;

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
pub struct Pass<'a, 'b> {
    pub walk: &'a Walk<'b>,
    pub state: &'a State,
    pub words: &'a [Word],
    pub used: Used,
    /// Operands, with the index of their word.
    pub operands: Vec<(usize, Word)>,
    /// Names of the options that were given.
    pub given: Vec<String>,
}

/// Notes what speaks against the word at `at`.
pub fn concern(pass: &mut Pass<'_, '_>, at: usize, code: &str, reason: &str) {
    let refusal = Refusal::new(code, reason, "use another form, or set `args: any` on the rule");
    pass.used.concerns.push((at, refusal));
}

/// Notes that the word at `at` is not known.
pub fn opaque(pass: &mut Pass<'_, '_>, at: usize) {
    let text = pass.words.get(at).map_or("", |word| word.text.as_str());
    let reason = format!("what `{text}` becomes is not known before the command runs");
    concern(pass, at, "opaque_argument", &reason);
}

/// A target of copies: the file itself, or the names below it when it is a directory.
pub fn into(pass: &mut Pass<'_, '_>, at: usize, word: &Word, sources: &[Word]) {
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
pub fn take(pass: &mut Pass<'_, '_>, class: Class, at: usize, word: &Word) {
    match class {
        Class::Free | Class::Into => {}
        Class::Program | Class::Command => concern(
            pass,
            at,
            "program_argument",
            &format!("`{}` names a program or code to run", word.text),
        ),
        Class::Loose => loose(pass, at, word),
        Class::Listing
        | Class::Format
        | Class::Label
        | Class::Target
        | Class::Header
        | Class::Stdout
        | Class::Remote => {
            if !is_plain(class, word) {
                let reason = format!("`{}` sets more than the profile knows to be harmless", word.text);
                concern(pass, at, "program_argument", &reason);
            } else if class == Class::Remote && word.text.starts_with(['/', '.', '~']) {
                read(pass, at, word);
            }
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
            Some(values) if !word.range.glob && values.iter().all(|url| is_web(url)) => {
                pass.used.hosts.extend(values.iter().cloned())
            }
            _ => opaque(pass, at),
        },
        Class::Sed => program(pass, at, word, "sed", sed::check),
        Class::Awk => program(pass, at, word, "awk", awk::check),
        Class::Jq => program(pass, at, word, "jq", jq::check),
    }
}

/// Whether a known word of a narrow class is what the class allows.
fn is_plain(class: Class, word: &Word) -> bool {
    let Some(text) = word.exact() else {
        return false;
    };
    match class {
        Class::Listing => text.starts_with('t') && text.chars().all(|next| "tvzjJf".contains(next)),
        Class::Format => text.starts_with('+'),
        Class::Target => !text.contains('=') || matches!(text, "V=1" | "VERBOSE=1" | "CI=1" | "DEBUG=1"),
        Class::Label => text
            .chars()
            .all(|next| next.is_ascii_alphanumeric() || "-_".contains(next)),
        Class::Header => !text.starts_with('@'),
        Class::Stdout => text == "-",
        Class::Remote => !text.contains("::") && !text.contains("://") && !text.contains('@'),
        _ => false,
    }
}

/// `http`, `https`, or no scheme at all.
fn is_web(url: &str) -> bool {
    url.split_once("://")
        .is_none_or(|(scheme, _)| scheme.eq_ignore_ascii_case("http") || scheme.eq_ignore_ascii_case("https"))
}

/// A program in a language that has a reader of its own.
fn program(pass: &mut Pass<'_, '_>, at: usize, word: &Word, name: &str, check: fn(&str) -> Result<(), String>) {
    let unknown = || "it is not known before the command runs".to_owned();
    if let Err(reason) = word.exact().ok_or_else(unknown).and_then(check) {
        concern(
            pass,
            at,
            &format!("script:{name}"),
            &format!("the {name} program is not accepted: {reason}"),
        );
    }
}

/// A file that is read.
pub fn read(pass: &mut Pass<'_, '_>, at: usize, word: &Word) {
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

/// A file that is written.
pub fn write(pass: &mut Pass<'_, '_>, at: usize, word: &Word) {
    match place::uses(pass.walk, pass.state, word) {
        Some(uses) if uses.iter().all(|found| !found.opaque) => simple::add(&mut pass.used.writes, uses),
        _ => opaque(pass, at),
    }
}

/// A word of which only this is known: where it names a path, alone or behind an option, that is read.
pub fn loose(pass: &mut Pass<'_, '_>, at: usize, word: &Word) {
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
    if word.range.glob
        && let Some(uses) = place::uses(pass.walk, pass.state, word)
    {
        simple::add(&mut pass.used.reads, uses);
    }
}
