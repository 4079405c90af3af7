//! Determines what one value of a given class means: files, hosts, programs, and concerns.

use super::scope::{CommandWalk, ShellState};
use super::shown::ShownHistory;
use super::value_checks::is_plain;
use super::{CommandReach, CommandRefusal, FileUse, ShellWord, WordKind, awk, jq, place, sed};
use crate::base::access::{PathStatus, ResolvedPath};
use crate::policy::profiles::{SideEffects, ValueClass};
use crate::policy::protected;
use crate::policy::secrets_like::secret_like;

/// What the words of a command name.
#[derive(Default)]
pub struct WordUse {
    pub reads: Vec<FileUse>,
    pub writes: Vec<FileUse>,
    pub hosts: Vec<String>,
    /// Concerns, with the index of their word.
    pub concerns: Vec<(usize, CommandRefusal)>,
    /// Embedded commands (`find -exec`).
    pub inner: Vec<Vec<ShellWord>>,
    pub passed_over: Vec<usize>,
    pub reach: CommandReach,
    /// Why the command can be ruled on only at its exec.
    pub deferred: Option<CommandRefusal>,
    pub effect: SideEffects,
    /// Indices of the targets of a build tool.
    pub targets: Vec<usize>,
    /// Indices of the options of a program without a profile.
    pub options: Vec<usize>,
    /// What in a program that is given as a word (of sed, awk, jq, SQL) may open files that no word names.
    pub opens_more: Option<String>,
    /// Whether an operand names what the program reads: a place, or `-` for its standard input.
    pub names_place: bool,
    /// The directories in which the program works, if an option changes them from those of the shell.
    pub entered: Option<Vec<String>>,
    /// Words that git takes for revisions; they are among the reads too, in case one is a path when git runs.
    pub revisions: Vec<String>,
    /// What a git command may show of the contents of files.
    pub shown: ShownHistory,
}

/// The state of one pass over the words.
pub struct Pass<'a, 'b> {
    pub walk: &'a CommandWalk<'b>,
    pub state: &'a ShellState,
    pub words: &'a [ShellWord],
    pub used: WordUse,
    /// Operands with the index of their word.
    pub operands: Vec<(usize, ShellWord)>,
    /// Names of the options that were given.
    pub given: Vec<String>,
    /// Whether an interpreter is given code in a word; the words after it are arguments of that code.
    pub has_code: bool,
    /// With which suffix files that are changed in place are kept.
    pub suffix: Option<String>,
}

/// The index of a concern that no word of a rule can lift, only `args: any`.
pub const NEVER_SPELLED: usize = usize::MAX;

/// Records a concern about the word at `at`.
pub fn concern(pass: &mut Pass<'_, '_>, at: usize, code: &str, reason: &str) {
    let refusal = CommandRefusal::new(code, reason, "use another form, or set `args: any` on the rule");
    pass.used.concerns.push((at, refusal));
}

/// Records that the word at `at` is unknown: the command is ruled on at its exec, or refused if execs are not judged.
pub fn defer(pass: &mut Pass<'_, '_>, at: usize) {
    let text = pass.words.get(at).map_or("", |word| word.text.as_str());
    let reason = format!("what `{text}` becomes is not known before the command runs");
    let refusal = CommandRefusal::new(
        "opaque_argument",
        reason,
        "write the argument out, or set `args: any` on the rule",
    );
    match pass.walk.grants.witness {
        true => pass.used.deferred = pass.used.deferred.take().or(Some(refusal)),
        false => pass.used.concerns.push((at, refusal)),
    }
}

/// The target of copies: the file itself, or the names below it if it is, or becomes, a directory.
pub fn into(pass: &mut Pass<'_, '_>, at: usize, word: &ShellWord, sources: &[ShellWord]) {
    if remote(&word.text) {
        take(pass, ValueClass::Archive, at, word);
    }
    let Some(target) = word.exact().map(str::to_owned) else {
        take(pass, ValueClass::Out, at, word);
        return;
    };
    let places = place::of_text(pass.walk, pass.state, &target).unwrap_or_default();
    if replaces_links(pass) && !places.is_empty() && places.iter().all(|found| found.link.is_some()) {
        take(pass, ValueClass::Entry, at, word);
        return;
    }
    let leads_to_dir = |found: &FileUse| found.place.as_ref().is_some_and(|place| place.found == PathStatus::Dir);
    let is_dir = places.iter().any(leads_to_dir);
    let is_made = !places.is_empty() && places.iter().all(|found| is_made_before(pass.walk, found));
    let holds_names = is_dir || is_made || sources.len() > 1 || target.ends_with('/');
    // Of a directory that is there only the new entries are written.
    let puts = is_dir && places.iter().all(leads_to_dir) && puts_files(pass, sources);
    if !is_dir && (holds_names || copies_dir(pass, sources)) {
        made(pass, at, word);
    } else if !puts {
        take(pass, ValueClass::Out, at, word);
    }
    if !holds_names {
        return;
    }
    for source in sources {
        let name = source
            .exact()
            .map(|text| text.trim_end_matches('/').rsplit('/').next().unwrap_or_default());
        match name {
            Some(name) if !matches!(name, "" | "." | "..") => {
                let mut uses = place::of_text(pass.walk, pass.state, &format!("{target}/{name}")).unwrap_or_default();
                if copies_dir(pass, std::slice::from_ref(source)) {
                    uses.iter_mut().for_each(become_dir);
                }
                place::add(&mut pass.used.writes, uses);
            }
            _ => unknown_write(pass, at, word),
        }
    }
}

/// Whether an earlier command of the text makes a directory at a place where nothing is yet.
fn is_made_before(walk: &CommandWalk<'_>, found: &FileUse) -> bool {
    let below = |made: &String, path: &str| {
        made.strip_prefix(path)
            .is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
    };
    let place = found.place.as_ref().filter(|place| place.found == PathStatus::Nothing);
    place.is_some_and(|place| place.inside && walk.made.iter().any(|made| below(made, &place.path)))
}

/// Whether the command copies or moves a directory, so that a target which is not there becomes one. A link to a
/// directory is none.
fn copies_dir(pass: &Pass<'_, '_>, sources: &[ShellWord]) -> bool {
    let is_dir = |found: FileUse| found.place.is_some_and(|place| place.found == PathStatus::Dir);
    let names_dir = |source: &ShellWord| {
        let found = source
            .exact()
            .and_then(|text| place::of_text(pass.walk, pass.state, text));
        found.is_some_and(|found| found.into_iter().any(is_dir))
    };
    program_of(pass) != "ln" && sources.iter().any(names_dir)
}

fn program_of<'a>(pass: &Pass<'a, '_>) -> &'a str {
    let program = pass.words.first().map_or("", |word| word.text.as_str());
    program.rsplit('/').next().unwrap_or_default()
}

/// Whether the command replaces a link at its target, even one that leads to a directory.
fn replaces_links(pass: &Pass<'_, '_>) -> bool {
    let options: &[&str] = match program_of(pass) {
        "ln" => &["-n", "--no-dereference"],
        "mv" => &["-T"],
        _ => &[],
    };
    pass.given.iter().any(|name| options.contains(&name.as_str()))
}

/// Whether the command certainly copies or moves only files, each of which becomes an entry of a directory that exists.
fn puts_files(pass: &Pass<'_, '_>, sources: &[ShellWord]) -> bool {
    const COPY_PROGRAMS: [&str; 4] = ["cp", "git", "install", "mv"];
    const NOT_INTO_DIRECTORY: [&str; 6] = ["-D", "-T", "-d", "--directory", "-t", "--target-directory"];
    let is_file = |found: &FileUse| {
        let place = found.place.as_ref();
        place.is_some_and(|place| matches!(place.found, PathStatus::File | PathStatus::HardLinked))
    };
    let are_files = |source: &ShellWord| {
        let text = source.exact().filter(|text| !text.ends_with('/'));
        let found = text.and_then(|text| place::of_text(pass.walk, pass.state, text));
        found.is_some_and(|found| !found.is_empty() && found.iter().all(is_file))
    };
    COPY_PROGRAMS.contains(&program_of(pass))
        && !pass
            .given
            .iter()
            .any(|name| NOT_INTO_DIRECTORY.contains(&name.as_str()))
        && !sources.is_empty()
        && sources.iter().all(are_files)
}

/// A write whose place is known only at exec.
fn unknown_write(pass: &mut Pass<'_, '_>, at: usize, word: &ShellWord) {
    defer(pass, at);
    if pass.walk.grants.witness {
        let used = FileUse {
            place: None,
            link: None,
            asked: word.text.clone(),
            opaque: true,
            in_place: false,
            below: None,
        };
        place::add(&mut pass.used.writes, vec![used]);
    }
}

/// Handles one value of the given class.
pub fn take(pass: &mut Pass<'_, '_>, class: ValueClass, at: usize, word: &ShellWord) {
    match class {
        // A glob reveals the names that it matches, whatever the program does with them.
        ValueClass::Free | ValueClass::Ref if word.kind == WordKind::Glob && leaves(word) => read(pass, at, word),
        ValueClass::Free | ValueClass::Ref | ValueClass::Into => {}
        // For many programs `@file` contains further arguments.
        ValueClass::In | ValueClass::Formatted | ValueClass::Archive if word.text.starts_with('@') => {
            concern(
                pass,
                at,
                "program_argument",
                &format!("`{}` may contain more arguments", word.text),
            );
        }
        ValueClass::Name => name_pattern(pass, at, word),
        ValueClass::In | ValueClass::Formatted if word.text.contains("://") => {
            pass.used.hosts.push(word.text.clone());
        }
        ValueClass::Formatted => {
            read(pass, at, word);
            guarded(pass, word);
        }
        ValueClass::Change => change(pass, at, word),
        ValueClass::Archive if remote(&word.text) => {
            let reason = format!("`{}` may name another machine", word.text);
            concern(pass, at, "program_argument", &reason);
        }
        ValueClass::Archive => read(pass, at, word),
        ValueClass::Harness if !word.text.starts_with("--log") => loose(pass, at, word),
        ValueClass::Program | ValueClass::Command => concern(
            pass,
            at,
            "program_argument",
            &format!("`{}` names a program or code to run", word.text),
        ),
        ValueClass::ShellText => match word.exact() {
            Some(text) => {
                let words = ["sh", "-c", text].into_iter().map(ShellWord::known);
                pass.used.inner.push(words.collect());
            }
            None => concern(pass, at, "program_argument", "a shell would run what is not known"),
        },
        ValueClass::Loose => loose(pass, at, word),
        ValueClass::In => read(pass, at, word),
        ValueClass::Rev => revision(pass, at, word),
        ValueClass::Out => write(pass, at, word),
        ValueClass::Entry => entry(pass, at, word),
        ValueClass::Dir => made(pass, at, word),
        ValueClass::Host => host(pass, at, word),
        ValueClass::Database => database(pass, at, word),
        ValueClass::Source | ValueClass::Destination => transferred(pass, class, at, word),
        ValueClass::Sql => program(pass, at, word, "sql", plain_sql),
        ValueClass::Url => match word.exact() {
            Some(url) if is_web(url) => pass.used.hosts.push(url.to_owned()),
            Some(_) => concern(
                pass,
                at,
                "program_argument",
                "only http and https URLs are known to be harmless",
            ),
            None => defer(pass, at),
        },
        ValueClass::Sed => program(pass, at, word, "sed", sed::check),
        ValueClass::Awk => program(pass, at, word, "awk", awk::check),
        ValueClass::Jq | ValueClass::JqOrFile => program(pass, at, word, "jq", jq::check),
        ValueClass::Dd => copied(pass, at, word),
        ValueClass::Slug if word.text.contains("://") => pass.used.hosts.push(word.text.clone()),
        _ => plain(pass, class, at, word),
    }
}

/// A value that is judged by its text alone.
fn plain(pass: &mut Pass<'_, '_>, class: ValueClass, at: usize, word: &ShellWord) {
    match class {
        _ if word.exact().is_none() => defer(pass, at),
        _ if !is_plain(class, word) => {
            let reason = format!("`{}` is not a value that the profile accepts as harmless", word.text);
            let code = match (class, pass.given.last()) {
                // As for every option that may start a program.
                (ValueClass::DisplaySetting, Some(option)) => format!("unknown_option:{option}"),
                _ => "program_argument".to_owned(),
            };
            concern(pass, at, &code, &reason);
        }
        ValueClass::Remote | ValueClass::Module | ValueClass::Package if word.text.starts_with(['/', '.', '~']) => {
            read(pass, at, word);
        }
        _ => {}
    }
}

/// A database: its name, a URL, or settings of which `host=` names a host.
fn database(pass: &mut Pass<'_, '_>, at: usize, word: &ShellWord) {
    let Some(text) = word.exact() else {
        return defer(pass, at);
    };
    if text.contains("://") {
        return host(pass, at, word);
    }
    for setting in text.split_whitespace() {
        match setting.split_once('=') {
            Some(("host" | "hostaddr", value)) => host(pass, at, &ShellWord::known(value.trim_matches('\''))),
            Some(("service" | "passfile" | "sslcert" | "sslkey" | "sslrootcert", value)) => {
                loose(pass, at, &ShellWord::known(value))
            }
            _ => {}
        }
    }
}

/// What a copying program reads or writes: locally, on another machine, or in an object store.
fn transferred(pass: &mut Pass<'_, '_>, class: ValueClass, at: usize, word: &ShellWord) {
    let text = word.exact().unwrap_or_default();
    match text.split_once("://") {
        Some(("s3" | "gs" | "az", _)) => {}
        Some(_) => host(pass, at, word),
        None if remote(text) => host(pass, at, word),
        None if class == ValueClass::Source => read(pass, at, word),
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
fn host(pass: &mut Pass<'_, '_>, at: usize, word: &ShellWord) {
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
fn program(pass: &mut Pass<'_, '_>, at: usize, word: &ShellWord, name: &str, check: fn(&str) -> Result<(), String>) {
    let Some(text) = word.exact() else {
        return defer(pass, at);
    };
    let Err(reason) = check(text) else { return };
    let refused = format!("the {name} program is not accepted: {reason}");
    // The programs that it starts are judged at their exec, and it can write only what is granted, so its text counts
    // only for rules that are narrowed to paths.
    if !pass.walk.grants.witness || name == "jq" {
        concern(pass, at, &format!("script:{name}"), &refused);
    }
    pass.used.opens_more.get_or_insert(refused);
}

/// A file that is read.
pub fn read(pass: &mut Pass<'_, '_>, at: usize, word: &ShellWord) {
    match place::uses(pass.walk, pass.state, word) {
        Some(uses) => place::add(&mut pass.used.reads, uses),
        None => defer(pass, at),
    }
}

/// `HEAD:path` and `a..b` as well as plain paths.
fn revision(pass: &mut Pass<'_, '_>, at: usize, word: &ShellWord) {
    let Some(text) = word.exact() else {
        return read(pass, at, word);
    };
    // It leaves paths out.
    if [":!", ":^", ":(exclude)"].iter().any(|start| text.starts_with(start)) {
        return;
    }
    let text = text.strip_prefix('^').unwrap_or(text);
    let (first, last) = (text.split_once(':'), text.rsplit_once(':'));
    let (Some((_, first)), Some((_, last))) = (first, last) else {
        let Some(uses) = place::of_text(pass.walk, pass.state, text) else {
            return defer(pass, at);
        };
        if pass.words.iter().skip(at + 1).any(|word| word.text == "--") || !uses.iter().any(is_there) {
            pass.used.revisions.push(text.to_owned());
        }
        return place::add(&mut pass.used.reads, uses);
    };
    let is_range = |word: Option<&ShellWord>| word.is_some_and(|word| word.text.starts_with("-L"));
    let before = at.checked_sub(1).and_then(|at| pass.words.get(at));
    let found = match is_range(pass.words.get(at)) || is_range(before.filter(|word| word.text == "-L")) {
        // `-L :function:path` has two colons; a path may contain one itself.
        true => [first, last]
            .into_iter()
            .map(|path| place::of_text(pass.walk, pass.state, path))
            .collect::<Option<Vec<_>>>()
            .map(|found| found.concat()),
        false => {
            let parts = place::range_of(text).into_iter().filter(|part| part.contains(':'));
            let places = parts.map(|part| place::of_revision(pass.walk, pass.state, part));
            places.collect::<Option<Vec<_>>>().map(|found| found.concat())
        }
    };
    let Some(uses) = found else { return defer(pass, at) };
    place::add(&mut pass.used.reads, uses);
    // A file of the tree may have such a name.
    let whole = place::of_text(pass.walk, pass.state, text).unwrap_or_default();
    place::add(&mut pass.used.reads, whole.into_iter().filter(is_there).collect());
}

/// An argument that git restores if it is a path, and reads if it is a revision.
fn change(pass: &mut Pass<'_, '_>, at: usize, word: &ShellWord) {
    let there = |found: &FileUse| {
        let known =
            |place: &ResolvedPath| place.found != PathStatus::Nothing || protected::entry_of(&place.path).is_some();
        found.place.as_ref().is_some_and(known)
    };
    match place::uses(pass.walk, pass.state, word) {
        Some(uses) if !uses.iter().any(there) && word.kind == WordKind::Known => revision(pass, at, word),
        _ => write(pass, at, word),
    }
}

/// A protected operand of a formatter counts as a file that it writes.
fn guarded(pass: &mut Pass<'_, '_>, word: &ShellWord) {
    let uses = place::uses(pass.walk, pass.state, word).unwrap_or_default();
    let held = |found: &FileUse| {
        let place = found.place.as_ref();
        place.is_some_and(|place| protected::entry_of(&place.path).is_some())
    };
    place::add(&mut pass.used.writes, uses.into_iter().filter(held).collect());
}

/// A pattern of file names counts as a read of the secret-like names that it matches, unless it excludes names.
fn name_pattern(pass: &mut Pass<'_, '_>, at: usize, word: &ShellWord) {
    let before = at
        .checked_sub(2)
        .and_then(|at| pass.words.get(at))
        .and_then(ShellWord::exact);
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
        place::add(&mut pass.used.reads, uses);
    }
}

/// Whether a pattern is, or may be, outside the directory of the command.
fn leaves(word: &ShellWord) -> bool {
    word.text.starts_with(['/', '~']) || word.text.contains("..")
}

/// `if=FILE` is read, `of=FILE` is written.
fn copied(pass: &mut Pass<'_, '_>, at: usize, word: &ShellWord) {
    const DEVICES: [&str; 2] = ["/dev/random", "/dev/urandom"];
    match word.exact().and_then(|text| text.split_once('=')) {
        Some(("if", device)) if DEVICES.contains(&device) => {}
        Some(("if", name)) => read(pass, at, &ShellWord::known(name)),
        Some(("of", name)) => write(pass, at, &ShellWord::known(name)),
        Some(("bs" | "ibs" | "obs" | "cbs" | "count" | "seek" | "skip" | "status" | "conv" | "iflag" | "oflag", _)) => {
        }
        Some(_) => concern(
            pass,
            at,
            "program_argument",
            "the profile of dd does not know this operand",
        ),
        None => defer(pass, at),
    }
}

/// Whether it has the form `host:path` of archivers and copying programs.
pub(super) fn remote(text: &str) -> bool {
    text.split('/').next().is_some_and(|first| first.contains(':'))
}

/// A file that is written.
pub fn write(pass: &mut Pass<'_, '_>, at: usize, word: &ShellWord) {
    match place::uses(pass.walk, pass.state, word) {
        Some(uses) => place::add(&mut pass.used.writes, uses),
        None => unknown_write(pass, at, word),
    }
}

/// A name that is removed or replaced: of a symbolic link, the link itself.
fn entry(pass: &mut Pass<'_, '_>, at: usize, word: &ShellWord) {
    match place::uses(pass.walk, pass.state, word) {
        Some(uses) => {
            let entries = uses.into_iter().map(FileUse::unfollowed).collect();
            place::add(&mut pass.used.writes, entries);
        }
        None => unknown_write(pass, at, word),
    }
}

/// A directory that is created: a rule for its contents (`build/**`) covers it.
fn made(pass: &mut Pass<'_, '_>, at: usize, word: &ShellWord) {
    let before = pass.used.writes.len();
    write(pass, at, word);
    pass.used.writes[before..].iter_mut().for_each(become_dir);
}

/// Counts a place where nothing is yet as a directory that is created.
fn become_dir(used: &mut FileUse) {
    if let Some(place) = used.place.as_mut().filter(|place| place.found == PathStatus::Nothing) {
        place.found = PathStatus::NewDir;
    }
}

/// A word without a known meaning: if it is a path, alone or attached to an option, that path is read.
pub fn loose(pass: &mut Pass<'_, '_>, at: usize, word: &ShellWord) {
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
    // Text of several lines is a path only if it is the name of a file.
    let path = !value.contains('\n') && (value.contains('/') || value.starts_with('~') || value.starts_with(".."));
    match place::of_text(pass.walk, pass.state, value) {
        Some(uses) if path || uses.iter().any(is_there) => place::add(&mut pass.used.reads, uses),
        Some(_) => {}
        None if path => defer(pass, at),
        None => {}
    }
}

/// A word that is a file only if a file has that name.
pub fn read_if_there(pass: &mut Pass<'_, '_>, at: usize, word: &ShellWord) {
    let Some(text) = word.exact() else {
        return defer(pass, at);
    };
    let uses = place::of_text(pass.walk, pass.state, text).unwrap_or_default();
    if uses.iter().any(is_there) {
        place::add(&mut pass.used.reads, uses);
    }
}

fn is_there(found: &FileUse) -> bool {
    let place = found.place.as_ref();
    place.is_some_and(|place| place.found != PathStatus::Nothing)
}
