//! Argument profiles: which options and operands of a program are harmless, and which name files, programs or hosts.
//! Built-in profiles are in `tables/*.yaml`, a policy adds more under `profiles:`, and `shell::operands` applies them.

mod read;
mod table;
#[cfg(test)]
mod tests;

use super::shell::Effect;
use crate::base::grant::Starts;
use crate::diag::reader::Problems;
use crate::diag::{Files, Span, parse as parse_yaml};
use std::collections::BTreeMap;
use std::sync::OnceLock;

pub use read::profile as read;

/// The meaning of a value for the program that takes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Class {
    /// Text without any effect.
    Free,
    /// A file or directory that is read.
    In,
    /// A file that is written, created, changed or removed.
    Out,
    /// A directory that is created.
    Dir,
    /// A file to write, or a directory to write the other operands into.
    Into,
    /// A URL or host, over http or https.
    Url,
    /// A host, or a URL of any scheme: a rule must grant the host.
    Host,
    /// A git revision, which may name a path after a colon, or a path.
    Rev,
    /// A sed program.
    Sed,
    /// An awk program.
    Awk,
    /// A program or code: always a concern.
    Program,
    /// A build target, not a setting (`CC=…`).
    Target,
    /// Anything: paths in it must be inside the workspace.
    Loose,
    /// The mode of `tar` that lists (`tzf`).
    Listing,
    /// A format of `date` (`+%F`).
    Format,
    /// A plain word, no path.
    Label,
    /// A jq program.
    Jq,
    /// A git remote: a name, not a URL.
    Remote,
    /// An HTTP header, not a file (`@name`).
    Header,
    /// A file that may only be standard output (`-`).
    Stdout,
    /// A command up to `;` or `+`, judged on its own.
    Command,
    /// A pattern of file names, which must not match secret-like files.
    Name,
    /// A file that a formatter reads, and may write unless it is protected.
    Formatted,
    /// A git revision, or a path that is written.
    Change,
    /// A format of git's log that does not make git run a signature verifier (`%G?`).
    Show,
    /// A mode without set-user-ID, set-group-ID or sticky bits.
    Mode,
    /// A local file, not one on another machine (`host:file`).
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
    /// SQL for a client: none of the client's own commands, which run programs and write files.
    Sql,
    /// A database by its name, or by a URL or settings that name a host.
    Database,
    /// A file that is read, or one of another machine (`host:path`), which must be granted; `s3://…` is no file.
    Source,
    /// Where such files are written.
    Destination,
    /// A flag of a compiler: no file, no plugin, nothing for its linker.
    CompilerFlag,
}

/// Every class: its name in tables, and what a value of it is.
pub const CLASSES: &[(&str, Class, &str)] = &[
    ("value", Class::Free, "text that touches nothing"),
    ("input", Class::In, "a file or directory that is read"),
    ("output", Class::Out, "a file that is written, made, changed or removed"),
    ("new-dir", Class::Dir, "a directory that is made"),
    (
        "destination",
        Class::Into,
        "a file to write, or a directory to write the other operands into",
    ),
    (
        "url",
        Class::Url,
        "an http or https URL, or a host: a rule must grant the host",
    ),
    (
        "network",
        Class::Host,
        "a host, or a URL of any scheme: a rule must grant the host",
    ),
    ("revision", Class::Rev, "a revision of git, a path in one, or a path"),
    ("sed-program", Class::Sed, "a sed program"),
    ("awk-program", Class::Awk, "an awk program"),
    (
        "program",
        Class::Program,
        "a program or code: only where a rule spells the option out",
    ),
    (
        "build-target",
        Class::Target,
        "a target of a build, or a harmless `NAME=value`",
    ),
    (
        "any",
        Class::Loose,
        "anything; what looks like a path must lie inside the workspace",
    ),
    ("tar-listing", Class::Listing, "the mode of tar that lists (`tzf`)"),
    ("date-format", Class::Format, "a format of date (`+%F`)"),
    ("word", Class::Label, "letters, digits, `-` and `_`"),
    ("jq-program", Class::Jq, "a jq program"),
    ("git-remote", Class::Remote, "the name of a git remote, no URL"),
    ("http-header", Class::Header, "an HTTP header, no `@file`, no `Host`"),
    ("standard-output", Class::Stdout, "`-` or `/dev/null`"),
    (
        "command",
        Class::Command,
        "a command up to `;` or `+`, judged on its own",
    ),
    (
        "name-pattern",
        Class::Name,
        "a pattern of file names, of no secret-like ones",
    ),
    (
        "formatted",
        Class::Formatted,
        "a file that a formatter reads and may write, as far as it is not protected",
    ),
    (
        "git-change",
        Class::Change,
        "a revision of git, or a path that is written",
    ),
    ("git-format", Class::Show, "a format of git log without `%G`"),
    ("file-mode", Class::Mode, "a file mode without set-id and sticky bits"),
    ("archive", Class::Archive, "a file, and no `host:file`"),
    (
        "build-argument",
        Class::Behind,
        "what a build tool takes behind `--`: a number of jobs, or how it talks",
    ),
    (
        "git-setting",
        Class::Setting,
        "the name of a git setting that holds no credential",
    ),
    (
        "test-argument",
        Class::Harness,
        "an argument of a test harness, no file to log to",
    ),
    ("lint-level", Class::Lint, "a lint or its level"),
    (
        "go-package",
        Class::Module,
        "a Go package of this repository or its list",
    ),
    ("package", Class::Package, "a package by its name: no URL, no file"),
    ("repository", Class::Slug, "`owner/name` or a number"),
    ("git-refspec", Class::Refspec, "what git fetches or pushes"),
    ("maven-goal", Class::Goal, "a phase or well-known goal of Maven"),
    (
        "disabled-plugin",
        Class::Off,
        "`no:NAME`, a plugin that is switched off",
    ),
    ("curl-format", Class::Writeout, "what curl prints at the end, no file"),
    ("dd-operand", Class::Dd, "`key=value` of dd"),
    (
        "jq-program-or-file",
        Class::JqOrFile,
        "a jq program, or the only file when nothing else is named",
    ),
    (
        "sql",
        Class::Sql,
        "SQL, without the client's own commands where nothing is judged at exec",
    ),
    (
        "database",
        Class::Database,
        "a database by its name, or a URL whose host a rule must grant",
    ),
    (
        "transfer-source",
        Class::Source,
        "a file that is read, or `host:path`, whose host a rule must grant",
    ),
    (
        "transfer-destination",
        Class::Destination,
        "a file that is written, or `host:path`, whose host a rule must grant",
    ),
    (
        "compiler-flag",
        Class::CompilerFlag,
        "a flag of a compiler: no file, no plugin, nothing for the linker",
    ),
];

/// The package world of a program: which runners and directories hold installed programs of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ecosystem {
    /// `.venv/bin`, `python -m`, `uv run`, `poetry run`.
    Python,
    /// `node_modules/.bin`, `npx`, `pnpm exec`, `yarn`.
    Node,
    /// `bundle exec`.
    Ruby,
    /// `go tool`.
    Go,
}

impl Ecosystem {
    /// By its name in tables.
    pub fn of(name: &str) -> Option<Self> {
        Some(match name {
            "python" => Self::Python,
            "node" => Self::Node,
            "ruby" => Self::Ruby,
            "go" => Self::Go,
            _ => return None,
        })
    }
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
    /// Programs that share it, as the table names them; empty where a policy's own key does.
    pub names: Vec<String>,
    /// Where it is written.
    pub span: Option<Span>,
    pub top: Section,
    /// By the words of the subcommand.
    pub subs: Vec<(Vec<String>, Section)>,
    /// Where it is installed as a package, so that a rule for it covers `npx NAME` or `.venv/bin/NAME`.
    pub installed_by: Vec<Ecosystem>,
    /// For a runner: programs that a rule naming only the runner covers (`python` covers `python -m pytest`).
    pub covers: Vec<String>,
    /// It runs nothing but itself: no plugin, no configuration that is code, no script of the tree.
    pub only_itself: bool,
    /// Further words that, alone, ask only for the version (`-V`, `version`); `--version` always does.
    pub version: Vec<String>,
}

/// Profiles that a policy file brings along, by program.
pub type Own = BTreeMap<String, Profile>;

/// The profile of a program, by its bare name: the policy's own before the built-in one.
pub fn of<'a>(own: Option<&'a Own>, program: &str) -> Option<&'a Profile> {
    own.and_then(|own| own.get(program)).or_else(|| builtin(program))
}

/// A table, read when it is first asked for.
struct Table {
    file: &'static str,
    text: &'static str,
    profile: OnceLock<Profile>,
}

/// The built-in profile of a program.
pub fn builtin(program: &str) -> Option<&'static Profile> {
    let (tables, index) = all();
    let table = tables.get(*index.get(program)?)?;
    // A table that is wrong (a test sees to it that none is) leaves a profile that accepts nothing.
    Some(
        table
            .profile
            .get_or_init(|| parse(table.file, table.text).unwrap_or_default()),
    )
}

/// The names of all programs that have a built-in profile, sorted.
pub fn names() -> impl Iterator<Item = &'static str> {
    all().1.keys().copied()
}

/// All tables, and the one of each program. Names are taken from the `programs:` line, so that no table is parsed before it is needed.
fn all() -> &'static (Vec<Table>, BTreeMap<&'static str, usize>) {
    static ALL: OnceLock<(Vec<Table>, BTreeMap<&'static str, usize>)> = OnceLock::new();
    ALL.get_or_init(|| {
        let mut index = BTreeMap::new();
        for (at, (_, text)) in table::ALL.iter().enumerate() {
            index.extend(listed(text).map(|name| (name, at)));
        }
        let tables = table::ALL.iter().map(|(file, text)| Table {
            file,
            text,
            profile: OnceLock::new(),
        });
        (tables.collect(), index)
    })
}

/// The words behind `programs:`, on its line and on the indented ones below it.
fn listed(text: &'static str) -> impl Iterator<Item = &'static str> {
    let mut lines = text.lines().skip_while(|line| !line.starts_with("programs:"));
    let first = lines
        .next()
        .and_then(|line| line.strip_prefix("programs:"))
        .unwrap_or_default();
    std::iter::once(first)
        .chain(lines.take_while(|line| line.starts_with(' ')))
        .flat_map(str::split_whitespace)
        .filter(|word| *word != ">-")
}

/// Reads a built-in table.
///
/// # Errors
/// Its problems, one a line.
fn parse(file: &str, text: &str) -> Result<Profile, String> {
    let mut files = Files::new();
    let id = files.add(file, text);
    let mut problems: Problems = Vec::new();
    let profile = match parse_yaml(&files, id) {
        Ok(root) => read(&files, &root, &mut problems),
        Err(mut found) => {
            problems.append(&mut found);
            None
        }
    };
    match profile {
        Some(profile) if problems.is_empty() => Ok(profile),
        _ => Err(problems
            .iter()
            .map(|problem| format!("{}: {}", file, problem.message))
            .collect::<Vec<_>>()
            .join("\n")),
    }
}
