//! Determines what one value of a given class means: files, hosts, programs, and concerns.

use super::plain::is_plain;
use super::scope::{State, Walk};
use super::{Effect, FileUse, Reach, Refusal, Word, WordKind, awk, jq, place, sed, simple};
use crate::base::access::{Found, Place};
use crate::policy::profiles::Class;
use crate::policy::protected;
use crate::policy::secrets_like::secret_like;

/// What the words of a command name.
#[derive(Default)]
pub struct Used {
    pub reads: Vec<FileUse>,
    pub writes: Vec<FileUse>,
    pub hosts: Vec<String>,
    /// Concerns, with the index of their word.
    pub concerns: Vec<(usize, Refusal)>,
    /// Embedded commands (`find -exec`).
    pub inner: Vec<Vec<Word>>,
    pub passed_over: Vec<usize>,
    pub reach: Reach,
    /// Why the command can be ruled on only at its exec.
    pub deferred: Option<Refusal>,
    pub effect: Effect,
    /// Indices of the targets of a build tool.
    pub targets: Vec<usize>,
    /// Indices of the options of a program without a profile.
    pub options: Vec<usize>,
}

/// The state of one pass over the words.
pub struct Pass<'a, 'b> {
    pub walk: &'a Walk<'b>,
    pub state: &'a State,
    pub words: &'a [Word],
    pub used: Used,
    /// Operands with the index of their word.
    pub operands: Vec<(usize, Word)>,
    /// Names of the options that were given.
    pub given: Vec<String>,
}

/// The index of a concern that no word of a rule can lift, only `args: any`.
pub const NEVER_SPELLED: usize = usize::MAX;

/// Records a concern about the word at `at`.
pub fn concern(pass: &mut Pass<'_, '_>, at: usize, code: &str, reason: &str) {
    let refusal = Refusal::new(code, reason, "use another form, or set `args: any` on the rule");
    pass.used.concerns.push((at, refusal));
}

/// Records that the word at `at` is unknown: the command is ruled on at its exec, or refused if execs are not judged.
pub fn defer(pass: &mut Pass<'_, '_>, at: usize) {
    let text = pass.words.get(at).map_or("", |word| word.text.as_str());
    let reason = format!("what `{text}` becomes is not known before the command runs");
    let refusal = Refusal::new(
        "opaque_argument",
        reason,
        "write the argument out, or set `args: any` on the rule",
    );
    match pass.walk.grants.witness {
        true => pass.used.deferred = pass.used.deferred.take().or(Some(refusal)),
        false => pass.used.concerns.push((at, refusal)),
    }
}

/// The target of copies: the file itself, or the names below it if it is a directory.
pub fn into(pass: &mut Pass<'_, '_>, at: usize, word: &Word, sources: &[Word]) {
    take(pass, Class::Out, at, word);
    if remote(&word.text) {
        take(pass, Class::Archive, at, word);
    }
    let Some(target) = word.exact().map(str::to_owned) else {
        return;
    };
    let places = place::of_text(pass.walk, pass.state, &target).unwrap_or_default();
    let is_dir = places
        .iter()
        .any(|found| found.place.as_ref().is_some_and(|place| place.found == Found::Dir));
    if !is_dir && sources.len() < 2 && !target.ends_with('/') {
        return;
    }
    for source in sources {
        let name = source
            .exact()
            .map(|text| text.trim_end_matches('/').rsplit('/').next().unwrap_or_default());
        match name {
            Some(name) if !matches!(name, "" | "." | "..") => {
                let uses = place::of_text(pass.walk, pass.state, &format!("{target}/{name}")).unwrap_or_default();
                simple::add(&mut pass.used.writes, uses);
            }
            _ => unknown_write(pass, at, word),
        }
    }
}

/// A write whose place is known only at exec.
fn unknown_write(pass: &mut Pass<'_, '_>, at: usize, word: &Word) {
    defer(pass, at);
    if pass.walk.grants.witness {
        let used = FileUse {
            place: None,
            asked: word.text.clone(),
            opaque: true,
            in_place: false,
        };
        simple::add(&mut pass.used.writes, vec![used]);
    }
}

/// Handles one value of the given class.
pub fn take(pass: &mut Pass<'_, '_>, class: Class, at: usize, word: &Word) {
    match class {
        // A glob reveals the names that it matches, whatever the program does with them.
        Class::Free if word.kind == WordKind::Glob && leaves(word) => read(pass, at, word),
        Class::Free | Class::Into => {}
        // For many programs `@file` contains further arguments.
        Class::In | Class::Formatted | Class::Archive if word.text.starts_with('@') => {
            concern(
                pass,
                at,
                "program_argument",
                &format!("`{}` may hold more arguments", word.text),
            );
        }
        Class::Name => name_pattern(pass, at, word),
        Class::Formatted => {
            read(pass, at, word);
            guarded(pass, word);
        }
        Class::Change => change(pass, at, word),
        Class::Archive if remote(&word.text) => {
            let reason = format!("`{}` may name another machine", word.text);
            concern(pass, at, "program_argument", &reason);
        }
        Class::Archive => read(pass, at, word),
        Class::Harness if !word.text.starts_with("--log") => loose(pass, at, word),
        Class::Program | Class::Command => concern(
            pass,
            at,
            "program_argument",
            &format!("`{}` names a program or code to run", word.text),
        ),
        Class::Loose => loose(pass, at, word),
        Class::In if word.text.contains("://") => pass.used.hosts.push(word.text.clone()),
        Class::In => read(pass, at, word),
        Class::Rev => revision(pass, at, word),
        Class::Out => write(pass, at, word),
        Class::Dir => made(pass, at, word),
        Class::Host => host(pass, at, word),
        Class::Database => database(pass, at, word),
        Class::Source | Class::Destination => transferred(pass, class, at, word),
        Class::Sql => program(pass, at, word, "sql", plain_sql),
        Class::Url => match word.exact() {
            Some(url) if is_web(url) => pass.used.hosts.push(url.to_owned()),
            Some(_) => concern(
                pass,
                at,
                "program_argument",
                "only http and https URLs are known to be harmless",
            ),
            None => defer(pass, at),
        },
        Class::Sed => program(pass, at, word, "sed", sed::check),
        Class::Awk => program(pass, at, word, "awk", awk::check),
        Class::Jq | Class::JqOrFile => program(pass, at, word, "jq", jq::check),
        Class::Dd => copied(pass, at, word),
        Class::Slug if word.text.contains("://") => pass.used.hosts.push(word.text.clone()),
        _ => plain(pass, class, at, word),
    }
}

/// A value that is judged by its text alone.
fn plain(pass: &mut Pass<'_, '_>, class: Class, at: usize, word: &Word) {
    match class {
        _ if word.exact().is_none() => defer(pass, at),
        _ if !is_plain(class, word) => {
            let reason = format!("`{}` sets more than the profile knows to be harmless", word.text);
            concern(pass, at, "program_argument", &reason);
        }
        Class::Remote | Class::Module | Class::Package if word.text.starts_with(['/', '.', '~']) => {
            read(pass, at, word);
        }
        _ => {}
    }
}

/// A database: its name, a URL, or settings of which `host=` names a host.
fn database(pass: &mut Pass<'_, '_>, at: usize, word: &Word) {
    let Some(text) = word.exact() else {
        return defer(pass, at);
    };
    if text.contains("://") {
        return host(pass, at, word);
    }
    for setting in text.split_whitespace() {
        match setting.split_once('=') {
            Some(("host" | "hostaddr", value)) => host(pass, at, &Word::known(value.trim_matches('\''))),
            Some(("service" | "passfile" | "sslcert" | "sslkey" | "sslrootcert", value)) => {
                loose(pass, at, &Word::known(value))
            }
            _ => {}
        }
    }
}

/// What a copying program reads or writes: locally, on another machine, or in an object store.
fn transferred(pass: &mut Pass<'_, '_>, class: Class, at: usize, word: &Word) {
    let text = word.exact().unwrap_or_default();
    match text.split_once("://") {
        Some(("s3" | "gs" | "az", _)) => {}
        Some(_) => host(pass, at, word),
        None if remote(text) => host(pass, at, word),
        None if class == Class::Source => read(pass, at, word),
        None => write(pass, at, word),
    }
}

/// Refuses the client's own commands, which begin with a backslash or a dot, and can run programs and write files.
fn plain_sql(text: &str) -> Result<(), String> {
    let dotted = text.lines().any(|line| line.trim_start().starts_with('.'));
    let into = text.to_ascii_lowercase();
    match () {
        () if text.contains('\\') => Err("a backslash begins a command of the client".to_owned()),
        () if dotted => Err("a dot at the start of a line begins a command of the client".to_owned()),
        () if [
            "readfile",
            "writefile",
            "edit(",
            "load_extension",
            "attach ",
            "outfile",
            "dumpfile",
            "infile",
        ]
        .iter()
        .any(|word| into.contains(word)) =>
        {
            Err("it reads or writes files".to_owned())
        }
        () => Ok(()),
    }
}

/// The host that a word names: in a URL of any scheme, in `user@host:path`, or the word itself.
fn host(pass: &mut Pass<'_, '_>, at: usize, word: &Word) {
    let Some(text) = word.exact() else {
        return defer(pass, at);
    };
    let rest = text.split_once("://").map_or(text, |(_, rest)| rest);
    let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
    let host = authority.rsplit_once('@').map_or(authority, |(_, host)| host);
    let host = host.split(':').next().unwrap_or_default();
    match host.is_empty() {
        // `/run/postgresql`, `unix:///…`: a socket, which is a file.
        true => loose(pass, at, word),
        // Rules grant hosts in the form of https URLs, whatever protocol the program uses.
        false => pass.used.hosts.push(format!("https://{host}")),
    }
}

/// `http`, `https`, or no scheme at all.
fn is_web(url: &str) -> bool {
    url.split_once("://")
        .is_none_or(|(scheme, _)| scheme.eq_ignore_ascii_case("http") || scheme.eq_ignore_ascii_case("https"))
}

/// A program in a language that has its own reader here.
fn program(pass: &mut Pass<'_, '_>, at: usize, word: &Word, name: &str, check: fn(&str) -> Result<(), String>) {
    let Some(text) = word.exact() else {
        return defer(pass, at);
    };
    // The programs that it starts are judged at their exec, and it can write only what is granted, so its text need not
    // be read.
    if pass.walk.grants.witness && name != "jq" {
        return;
    }
    if let Err(reason) = check(text) {
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
        None => defer(pass, at),
    }
}

/// `HEAD:path` and `a..b` as well as plain paths.
fn revision(pass: &mut Pass<'_, '_>, at: usize, word: &Word) {
    let Some(text) = word.exact() else {
        return read(pass, at, word);
    };
    let text = text.strip_prefix('^').unwrap_or(text);
    // `:0:path` and `-L :function:path` have two colons; a path may contain one itself.
    let first = text.split_once(':').map_or(text, |(_, path)| path);
    let last = text.rsplit_once(':').map_or(text, |(_, path)| path);
    for path in [first, last] {
        match place::of_text(pass.walk, pass.state, path) {
            Some(uses) => simple::add(&mut pass.used.reads, uses),
            None => defer(pass, at),
        }
    }
}

/// An argument that git restores if it is a path, and reads if it is a revision.
fn change(pass: &mut Pass<'_, '_>, at: usize, word: &Word) {
    let there = |found: &FileUse| {
        let known = |place: &Place| place.found != Found::Nothing || protected::entry_of(&place.path).is_some();
        found.place.as_ref().is_some_and(known)
    };
    match place::uses(pass.walk, pass.state, word) {
        Some(uses) if !uses.iter().any(there) && word.kind == WordKind::Known => revision(pass, at, word),
        _ => write(pass, at, word),
    }
}

/// A protected operand of a formatter counts as a file that it writes.
fn guarded(pass: &mut Pass<'_, '_>, word: &Word) {
    let uses = place::uses(pass.walk, pass.state, word).unwrap_or_default();
    let held = |found: &FileUse| {
        let place = found.place.as_ref();
        place.is_some_and(|place| protected::entry_of(&place.path).is_some())
    };
    simple::add(&mut pass.used.writes, uses.into_iter().filter(held).collect());
}

/// A pattern of file names reads the secret-like names that it is made for; an excluding pattern reads nothing.
fn name_pattern(pass: &mut Pass<'_, '_>, at: usize, word: &Word) {
    let before = at
        .checked_sub(2)
        .and_then(|at| pass.words.get(at))
        .and_then(Word::exact);
    let left_out = matches!(before, Some("!" | "-not")) && word.kind == WordKind::Known;
    let text = word.text.as_str();
    if left_out || text.starts_with('!') || word.kind == WordKind::Unknown {
        return;
    }
    let plain = text.replace(['*', '?', '[', ']', '^', '{', '}', '\\', '$'], "");
    let named = [plain.as_str(), text]
        .into_iter()
        .find(|name| secret_like(name).is_some());
    let last = text.rsplit('/').next().unwrap_or_default();
    let reached = (plain.len() > 2 || plain.len() == 2 && plain.starts_with('.'))
        .then(|| {
            [".env", ".netrc", ".npmrc", "id_rsa"]
                .into_iter()
                .find(|name| place::matches(last, name))
        })
        .flatten();
    if let Some(name) = named.or(reached) {
        let uses = place::of_text(pass.walk, pass.state, name).unwrap_or_default();
        simple::add(&mut pass.used.reads, uses);
    }
}

/// Whether a pattern is, or may be, outside the directory of the command.
fn leaves(word: &Word) -> bool {
    word.text.starts_with(['/', '~']) || word.text.contains("..")
}

/// `if=FILE` is read, `of=FILE` is written.
fn copied(pass: &mut Pass<'_, '_>, at: usize, word: &Word) {
    const DEVICES: [&str; 2] = ["/dev/random", "/dev/urandom"];
    match word.exact().and_then(|text| text.split_once('=')) {
        Some(("if", device)) if DEVICES.contains(&device) => {}
        Some(("if", name)) => read(pass, at, &Word::known(name)),
        Some(("of", name)) => write(pass, at, &Word::known(name)),
        Some(("bs" | "ibs" | "obs" | "cbs" | "count" | "seek" | "skip" | "status" | "conv" | "iflag" | "oflag", _)) => {
        }
        Some(_) => concern(pass, at, "program_argument", "dd knows more settings than the profile"),
        None => defer(pass, at),
    }
}

/// Whether it has the form `host:path` of archivers and copying programs.
fn remote(text: &str) -> bool {
    text.split('/').next().is_some_and(|first| first.contains(':'))
}

/// A file that is written.
pub fn write(pass: &mut Pass<'_, '_>, at: usize, word: &Word) {
    match place::uses(pass.walk, pass.state, word) {
        Some(uses) => simple::add(&mut pass.used.writes, uses),
        None => unknown_write(pass, at, word),
    }
}

/// A directory that is created: a rule for its contents (`build/**`) covers it.
fn made(pass: &mut Pass<'_, '_>, at: usize, word: &Word) {
    let before = pass.used.writes.len();
    write(pass, at, word);
    for place in pass.used.writes[before..]
        .iter_mut()
        .filter_map(|used| used.place.as_mut())
    {
        if place.found == Found::Nothing {
            place.found = Found::NewDir;
        }
    }
}

/// A word without a known meaning: if it is a path, alone or attached to an option, that path is read.
pub fn loose(pass: &mut Pass<'_, '_>, at: usize, word: &Word) {
    let Some(text) = word.exact() else {
        return read(pass, at, word);
    };
    if text.contains("://") {
        pass.used.hosts.push(text.to_owned());
        return;
    }
    let value = text.split_once('=').map_or(text, |(_, value)| value);
    // `-I/usr/include`: a path may be attached to its option.
    let glued = || value.find(['/', '~']).map_or("", |slash| &value[slash..]);
    let value = if value.starts_with('-') { glued() } else { value };
    let exists = |found: &FileUse| found.place.as_ref().is_some_and(|place| place.found != Found::Nothing);
    let path = value.contains('/') || value.starts_with('~') || value.starts_with("..");
    match place::of_text(pass.walk, pass.state, value) {
        Some(uses) if path || uses.iter().any(exists) => simple::add(&mut pass.used.reads, uses),
        Some(_) => {}
        None if path => defer(pass, at),
        None => {}
    }
}
