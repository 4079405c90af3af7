//! Argument profiles: which options and operands of a program are harmless, which name files or hosts. Tables only; `shell::operands` applies them.

mod table;

use super::shell::Effect;
use crate::base::grant::Starts;
use std::collections::BTreeMap;
use std::sync::OnceLock;

/// What a value is to the program that takes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Class {
    /// Text that touches nothing.
    Free,
    /// A file or directory that is read.
    In,
    /// A file that is written, made, changed or removed.
    Out,
    /// A directory that is made.
    Dir,
    /// A file to write, or a directory to write the other operands into.
    Into,
    /// A URL or host.
    Url,
    /// A revision of git, which may name a path after a colon, or a path.
    Rev,
    /// A sed program.
    Sed,
    /// An awk program.
    Awk,
    /// A program or code: always a concern.
    Program,
    /// A target of a build: no setting (`CC=…`).
    Target,
    /// Whatever: paths in it must lie inside.
    Loose,
    /// The mode of `tar` that lists (`tzf`).
    Listing,
    /// A format of `date` (`+%F`).
    Format,
    /// A plain word, no path.
    Label,
    /// A jq program.
    Jq,
    /// A remote of git: a name, no URL.
    Remote,
    /// A header: no file (`@name`).
    Header,
    /// A file that may only be standard output (`-`).
    Stdout,
    /// A command up to `;` or `+`, judged on its own.
    Command,
    /// A pattern of file names: none of secret-like files.
    Name,
    /// A file that a formatter reads and may write, as far as it is not protected.
    Formatted,
    /// A revision of git, or a path that is written.
    Change,
    /// A format of git's log: nothing that makes git run a verifier (`%G?`).
    Show,
    /// A mode without set-id or sticky bits.
    Mode,
    /// A file, and no other machine's (`host:file`).
    Archive,
    /// What a build tool or formatter hands on behind `--`: a number of jobs, or how it talks.
    Behind,
    /// The name of a setting of git that holds no credential.
    Setting,
    /// An argument of a test harness: no file to log to.
    Harness,
    /// The level of a lint or its name: no other option of the compiler.
    Lint,
    /// A package of Go: of this repository or already in its list, never fetched by version.
    Module,
    /// A package of a registry by its name: no URL, no file.
    Package,
    /// `owner/name`, or a number: no other host.
    Slug,
    /// What is fetched or pushed of a remote.
    Refspec,
    /// A phase or a well-known goal of Maven.
    Goal,
    /// A plugin that is switched off (`no:NAME`).
    Off,
    /// What curl prints at the end: no file.
    Writeout,
    /// `key=value` of dd: its files are read and written.
    Dd,
    /// A jq program, or the only file when nothing else is named.
    JqOrFile,
}

/// How an option takes its value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Arity {
    Flag,
    /// The next word, or attached.
    Value(Class),
    /// Attached only.
    Attached(Class),
    /// A name, then a value.
    Pair(Class),
}

/// The arguments of a program or of one of its subcommands.
#[derive(Clone, Debug, Default)]
pub struct Section {
    pub options: BTreeMap<String, Arity>,
    /// Classes of the first operands, in order.
    pub first: Vec<Class>,
    /// Class of every operand after those.
    pub more: Option<Class>,
    /// Class of the last operand, when it is another.
    pub last: Option<Class>,
    /// With one of these options the first operand class is left out.
    pub unless: Vec<String>,
    /// No option, known or not, runs a program or writes a file.
    pub harmless: bool,
    /// `-5` is an option.
    pub numbers: bool,
    /// Long options have one dash; short ones are not joined.
    pub single: bool,
    /// Class of all words after `--`.
    pub rest: Option<Class>,
    /// Without operands it runs what comes in on standard input.
    pub runs_input: bool,
    /// Flags with which the files that would be read are written (`sed -i`).
    pub in_place: Vec<String>,
    /// One of these must be given.
    pub needs: Vec<String>,
    /// With one of these the files that would be written are read.
    pub reading: Vec<String>,
    /// The first operand is a script, and all words behind it are its own.
    pub script: bool,
    /// A rule grants it only when it spells the subcommand out.
    pub spelled: bool,
    /// Words that begin with `+` are options.
    pub plus: bool,
    /// With fewer operands it writes files of its own choice.
    pub least: usize,
    /// Options that a rule's prefix passes over.
    pub passed: Vec<String>,
    /// It writes git's own directory: index, references, objects.
    pub repository: bool,
    /// It writes wherever it likes in the workspace; `None` says what the program's own table says.
    pub tree: Option<bool>,
    /// What it may start; `None` says what the program's own table says.
    pub starts: Option<Starts>,
}

impl Section {
    /// What the program does beside its operands.
    pub(crate) fn effect(&self) -> Effect {
        Effect {
            tree: self.tree.unwrap_or(false),
            starts: self.starts.clone().unwrap_or(Starts::Nothing),
        }
    }

    /// The same for a subcommand that has its own.
    pub(crate) fn own_effect(&self) -> Option<Effect> {
        (self.tree.is_some() || self.starts.is_some()).then(|| self.effect())
    }
}

/// The arguments of a program.
#[derive(Clone, Debug, Default)]
pub struct Profile {
    pub top: Section,
    /// By the words of the subcommand.
    pub subs: Vec<(Vec<String>, Section)>,
}

/// The profile of a program, by its bare name.
pub fn of(program: &str) -> Option<&'static Profile> {
    static ALL: OnceLock<BTreeMap<&'static str, Profile>> = OnceLock::new();
    ALL.get_or_init(|| {
        let mut all = BTreeMap::new();
        for (names, text) in table::ALL {
            // A table that is wrong (a test sees to it that none is) leaves a profile that accepts nothing.
            let profile = parse(text).unwrap_or_default();
            for name in names.split(' ') {
                all.insert(name, profile.clone());
            }
        }
        all
    })
    .get(program)
}

/// Reads a table: one `key: words` a line, `#` begins a comment. `sub:` begins a subcommand (several, with `|`), `like:` copies another's
/// options and operands.
///
/// # Errors
/// The line that is wrong.
fn parse(text: &str) -> Result<Profile, String> {
    let mut profile = Profile::default();
    let mut names: Vec<Vec<String>> = Vec::new();
    let mut section = Section::default();
    let mut in_sub = false;
    for line in text
        .lines()
        .map(|line| line.split("# ").next().unwrap_or_default().trim())
        .filter(|line| !line.is_empty() && *line != "#")
    {
        let (key, value) = line.split_once(':').ok_or_else(|| format!("no key in `{line}`"))?;
        if key == "sub" {
            close(&mut profile, &names, std::mem::take(&mut section), in_sub);
            names = value
                .split('|')
                .map(|name| name.split_whitespace().map(str::to_owned).collect())
                .collect();
            if names.iter().any(Vec::is_empty) {
                return Err(format!("a subcommand without words in `{line}`"));
            }
            in_sub = true;
        } else if key == "like" {
            let wanted: Vec<&str> = value.split_whitespace().collect();
            let found = profile.subs.iter().find(|(name, _)| *name == wanted);
            section = found
                .map(|(_, section)| section.clone())
                .ok_or_else(|| format!("nothing to copy for `{line}`"))?;
        } else {
            entry(&mut section, key, value)?;
        }
    }
    close(&mut profile, &names, section, in_sub);
    Ok(profile)
}

fn close(profile: &mut Profile, names: &[Vec<String>], section: Section, in_sub: bool) {
    if in_sub {
        profile
            .subs
            .extend(names.iter().map(|name| (name.clone(), section.clone())));
    } else {
        profile.top = section;
    }
}

fn entry(section: &mut Section, key: &str, value: &str) -> Result<(), String> {
    let words: Vec<&str> = value.split_whitespace().collect();
    let owned = || words.iter().map(|word| (*word).to_owned());
    match key.split_whitespace().collect::<Vec<_>>().as_slice() {
        ["flags"] => section.options.extend(owned().map(|name| (name, Arity::Flag))),
        ["pass"] => {
            section.options.extend(owned().map(|name| (name, Arity::Flag)));
            section.passed.extend(owned());
        }
        ["in-place"] => {
            section.options.extend(owned().map(|name| (name, Arity::Flag)));
            section.in_place.extend(owned());
        }
        ["opts", name] => {
            let class = class(name)?;
            section.options.extend(owned().map(|name| (name, Arity::Value(class))));
        }
        ["maybe", name] => {
            let class = class(name)?;
            section
                .options
                .extend(owned().map(|name| (name, Arity::Attached(class))));
        }
        ["pairs", name] => {
            let class = class(name)?;
            section.options.extend(owned().map(|name| (name, Arity::Pair(class))));
        }
        ["operands"] => operands(section, &words)?,
        ["needs"] => section.needs.extend(owned()),
        ["read-with"] => section.reading.extend(owned()),
        ["writes"] => match value.trim() {
            "tree" => section.tree = Some(true),
            "operands" => section.tree = Some(false),
            "repository" => section.repository = true,
            other => return Err(format!("unknown write grant `{other}`")),
        },
        ["starts"] => {
            section.starts = Some(match words.as_slice() {
                ["nothing"] => Starts::Nothing,
                ["judged"] => Starts::Judged,
                ["anything"] => Starts::Anything,
                ["helpers", name] if super::helpers::of(name).is_some() => Starts::Helpers((*name).to_owned()),
                _ => return Err(format!("`{value}` is not what a program may start")),
            })
        }
        ["least"] => section.least = value.trim().parse().map_err(|_| format!("no number in `{value}`"))?,
        ["unless"] => section.unless.extend(owned()),
        ["rest"] => section.rest = Some(class(value.trim())?),
        ["is"] => {
            for word in words {
                match word {
                    "harmless" => section.harmless = true,
                    "numbers" => section.numbers = true,
                    "single" => section.single = true,
                    "script" => section.script = true,
                    "spelled" => section.spelled = true,
                    "plus" => section.plus = true,
                    "runs-input" => section.runs_input = true,
                    _ => return Err(format!("unknown word `{word}`")),
                }
            }
        }
        _ => return Err(format!("unknown key `{key}`")),
    }
    Ok(())
}

/// `free in*`: first classes, then one that repeats, then perhaps a last one.
fn operands(section: &mut Section, words: &[&str]) -> Result<(), String> {
    for word in words {
        if let Some(name) = word.strip_suffix('*') {
            section.more = Some(class(name)?);
        } else if section.more.is_some() {
            section.last = Some(class(word)?);
        } else {
            section.first.push(class(word)?);
        }
    }
    Ok(())
}

fn class(name: &str) -> Result<Class, String> {
    Ok(match name {
        "free" => Class::Free,
        "in" => Class::In,
        "out" => Class::Out,
        "dir" => Class::Dir,
        "into" => Class::Into,
        "url" => Class::Url,
        "rev" => Class::Rev,
        "sed" => Class::Sed,
        "awk" => Class::Awk,
        "program" => Class::Program,
        "target" => Class::Target,
        "loose" => Class::Loose,
        "listing" => Class::Listing,
        "format" => Class::Format,
        "label" => Class::Label,
        "jq" => Class::Jq,
        "remote" => Class::Remote,
        "header" => Class::Header,
        "stdout" => Class::Stdout,
        "command" => Class::Command,
        "name" => Class::Name,
        "formatted" => Class::Formatted,
        "change" => Class::Change,
        "show" => Class::Show,
        "mode" => Class::Mode,
        "archive" => Class::Archive,
        "behind" => Class::Behind,
        "setting" => Class::Setting,
        "harness" => Class::Harness,
        "lint" => Class::Lint,
        "module" => Class::Module,
        "package" => Class::Package,
        "slug" => Class::Slug,
        "refspec" => Class::Refspec,
        "goal" => Class::Goal,
        "off" => Class::Off,
        "writeout" => Class::Writeout,
        "dd" => Class::Dd,
        "jq-or-file" => Class::JqOrFile,
        _ => return Err(format!("unknown class `{name}`")),
    })
}

#[cfg(test)]
mod tests {
    use super::{Arity, Class, of, parse, table};

    #[test]
    fn every_table_parses_and_no_program_has_two() {
        for (names, text) in table::ALL {
            if let Err(wrong) = parse(text) {
                panic!("{names}: {wrong}");
            }
        }
        let mut all: Vec<&str> = table::ALL.iter().flat_map(|(names, _)| names.split(' ')).collect();
        let count = all.len();
        all.sort_unstable();
        all.dedup();
        assert_eq!(all.len(), count, "a program has two tables");
        assert!(count >= 40);
    }

    #[test]
    fn a_table_reads_as_it_is_written() {
        let profile = of("git").unwrap();
        let (_, diff) = profile.subs.iter().find(|(name, _)| name == &["diff"]).unwrap();
        assert_eq!(diff.options.get("--stat"), Some(&Arity::Attached(Class::Free)));
        assert_eq!(diff.options.get("--output"), None);
        assert!(parse("flags -a").is_err());
        assert!(parse("sub: x\nopts nothing: -a").is_err());
    }
}
