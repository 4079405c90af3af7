//! Argument profiles: which options and operands of a program are harmless, and which name files, programs or hosts.
//! Built-in profiles are in `tables/*.yaml`, a policy adds more under `profiles:`, and `shell::operands` applies them.

mod read;
mod table;
#[cfg(test)]
mod tests;

use crate::base::grant::Starts;
use crate::diag::reader::Problems;
use crate::diag::{SourceFiles, Span, parse as parse_yaml};
use std::collections::BTreeMap;
use std::sync::OnceLock;

pub use read::profile as read;

/// How far a program writes, from the least to the most.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum WriteExtent {
    /// Only what its operands and options name.
    #[default]
    NamedPaths,
    /// Any file that a rule for writing allows. Which ones is unknown, because the program has no profile.
    RuledPaths,
    /// Anywhere in the workspace, as build tools, test runners and interpreters do.
    Tree,
}

/// What a program does besides what its operands say.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct SideEffects {
    pub writes: WriteExtent,
    pub starts: Starts,
}

/// The meaning of a value for the program that takes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ValueClass {
    /// Text without any effect.
    Free,
    /// A file or directory that is read.
    In,
    /// A file that is written, created, changed or removed.
    Out,
    /// A name that is removed, renamed or replaced, and not what a symbolic link of that name leads to.
    Entry,
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
    /// A mode of `tar` that lists (`tzf`).
    Listing,
    /// A format of `date` (`+%F`).
    Format,
    /// A plain word that is no path.
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
    /// A text for a shell, judged on its own.
    ShellText,
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
    /// A word after `--` that a build tool or formatter passes on: a number of jobs, or an output option.
    Behind,
    /// The name of a git setting that holds no credential.
    Setting,
    /// A git setting with a value (`color.ui=false`) that changes only what git shows, and starts no pager.
    DisplaySetting,
    /// An argument of a test harness that names no log file.
    Harness,
    /// A lint level or the name of a lint, but no other option of the compiler.
    Lint,
    /// A Go package of this repository or one that it already requires; never one that is fetched by version.
    Module,
    /// A package in a registry, by name: no URL, no file.
    Package,
    /// `owner/name` or a number, without another host.
    Slug,
    /// A git refspec: what is fetched from or pushed to a remote.
    Refspec,
    /// The name of a branch or tag, which git writes in its own directory.
    Ref,
    /// A Maven phase or a well-known goal.
    Goal,
    /// A plugin to turn off (`no:NAME`).
    Off,
    /// A format that curl prints at the end, without output to a file.
    Writeout,
    /// `key=value` of `dd`, whose files are read and written.
    Dd,
    /// A jq program, or the only file if nothing else is named.
    JqOrFile,
    /// SQL for a client, without the client's own commands, which run programs and write files.
    Sql,
    /// A database, by its name, or by a URL or settings that name a host.
    Database,
    /// A file that is read, or one on another machine (`host:path`), which a rule must grant; `s3://…` is no file.
    Source,
    /// The place where such files are written.
    Destination,
    /// A compiler flag: no file, no plugin, nothing for the linker.
    CompilerFlag,
}

/// Every class: its name in tables, and a description of its values.
pub const CLASSES: &[(&str, ValueClass, &str)] = &[
    ("value", ValueClass::Free, "text that touches nothing"),
    ("input", ValueClass::In, "a file or directory that is read"),
    (
        "output",
        ValueClass::Out,
        "a file that is written, created, changed or removed",
    ),
    (
        "entry",
        ValueClass::Entry,
        "a name that is removed, renamed or replaced: of a symbolic link, the link itself",
    ),
    ("new-dir", ValueClass::Dir, "a directory that is created"),
    (
        "destination",
        ValueClass::Into,
        "a file to write, or a directory to write the other operands into",
    ),
    (
        "url",
        ValueClass::Url,
        "an http or https URL, or a host: a rule must grant the host",
    ),
    (
        "network",
        ValueClass::Host,
        "a host, or a URL of any scheme: a rule must grant the host",
    ),
    (
        "revision",
        ValueClass::Rev,
        "a revision of git, a path in one, or a path",
    ),
    ("sed-program", ValueClass::Sed, "a sed program"),
    ("awk-program", ValueClass::Awk, "an awk program"),
    (
        "program",
        ValueClass::Program,
        "a program or code: only where a rule spells the option out",
    ),
    (
        "build-target",
        ValueClass::Target,
        "a target of a build, or a harmless `NAME=value`",
    ),
    (
        "any",
        ValueClass::Loose,
        "anything; what looks like a path must be inside the workspace",
    ),
    ("tar-listing", ValueClass::Listing, "the mode of tar that lists (`tzf`)"),
    ("date-format", ValueClass::Format, "a format of date (`+%F`)"),
    ("word", ValueClass::Label, "letters, digits, `-` and `_`"),
    ("jq-program", ValueClass::Jq, "a jq program"),
    ("git-remote", ValueClass::Remote, "the name of a git remote, not a URL"),
    (
        "http-header",
        ValueClass::Header,
        "an HTTP header, but neither `@file` nor `Host`",
    ),
    ("standard-output", ValueClass::Stdout, "`-` or `/dev/null`"),
    (
        "command",
        ValueClass::Command,
        "a command up to `;` or `+`, judged on its own",
    ),
    (
        "shell-text",
        ValueClass::ShellText,
        "a text for a shell, judged on its own",
    ),
    (
        "name-pattern",
        ValueClass::Name,
        "a pattern of file names that matches no secret-like ones",
    ),
    (
        "formatted",
        ValueClass::Formatted,
        "a file that a formatter reads and may write unless it is protected",
    ),
    (
        "git-change",
        ValueClass::Change,
        "a revision of git, or a path that is written",
    ),
    ("git-format", ValueClass::Show, "a format of git log without `%G`"),
    (
        "file-mode",
        ValueClass::Mode,
        "a file mode without set-id and sticky bits",
    ),
    ("archive", ValueClass::Archive, "a file, not `host:file`"),
    (
        "build-argument",
        ValueClass::Behind,
        "what a build tool takes after `--`: a number of jobs, or an output option",
    ),
    (
        "git-setting",
        ValueClass::Setting,
        "the name of a git setting that holds no credential",
    ),
    (
        "git-display-setting",
        ValueClass::DisplaySetting,
        "`NAME=VALUE` of a git setting that changes only what git shows",
    ),
    (
        "test-argument",
        ValueClass::Harness,
        "an argument of a test harness, not a log file",
    ),
    ("lint-level", ValueClass::Lint, "a lint or its level"),
    (
        "go-package",
        ValueClass::Module,
        "a Go package of this repository or its list",
    ),
    (
        "package",
        ValueClass::Package,
        "a package by its name, not a URL or file",
    ),
    ("repository", ValueClass::Slug, "`owner/name` or a number"),
    ("git-refspec", ValueClass::Refspec, "what git fetches or pushes"),
    (
        "git-ref",
        ValueClass::Ref,
        "the name of a branch or tag, which git writes in its own directory",
    ),
    ("maven-goal", ValueClass::Goal, "a phase or well-known goal of Maven"),
    ("disabled-plugin", ValueClass::Off, "`no:NAME`, a plugin to turn off"),
    (
        "curl-format",
        ValueClass::Writeout,
        "what curl prints at the end, not a file",
    ),
    ("dd-operand", ValueClass::Dd, "`key=value` of dd"),
    (
        "jq-program-or-file",
        ValueClass::JqOrFile,
        "a jq program, or the only file if nothing else is named",
    ),
    (
        "sql",
        ValueClass::Sql,
        "SQL, without the client's own commands where nothing is judged at exec",
    ),
    (
        "database",
        ValueClass::Database,
        "a database by its name, or a URL whose host a rule must grant",
    ),
    (
        "transfer-source",
        ValueClass::Source,
        "a file that is read, or `host:path`, whose host a rule must grant",
    ),
    (
        "transfer-destination",
        ValueClass::Destination,
        "a file that is written, or `host:path`, whose host a rule must grant",
    ),
    (
        "compiler-flag",
        ValueClass::CompilerFlag,
        "a compiler flag without a file, a plugin or linker arguments",
    ),
];

/// The package ecosystem of a program: determines which runners and directories provide it.
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
    /// The ecosystem with this name in tables.
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

/// Whether and how an option takes a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Arity {
    Flag,
    /// In the next word, or attached.
    Value(ValueClass),
    /// Only attached.
    Attached(ValueClass),
    /// Two words: a name, then a value.
    Pair(ValueClass),
}

/// The arguments of a program or of one of its subcommands.
#[derive(Clone, Debug, Default)]
pub struct ArgumentSpec {
    pub options: BTreeMap<String, Arity>,
    /// Classes of the first operands, in order.
    pub first: Vec<ValueClass>,
    /// Class of every further operand.
    pub more: Option<ValueClass>,
    /// Class of the last operand, if it is a different one.
    pub last: Option<ValueClass>,
    /// If one of these options is given, the first operand class is skipped.
    pub unless: Vec<String>,
    /// Whether no option, known or not, runs a program or writes a file.
    pub harmless: bool,
    /// Whether `-5` is an option.
    pub numbers: bool,
    /// Whether long options have one dash, so that short ones cannot be combined.
    pub single: bool,
    /// Class of all words after `--`.
    pub rest: Option<ValueClass>,
    /// Whether it runs its standard input if there are no operands.
    pub runs_input: bool,
    /// Flags that turn input operands into outputs (`sed -i`).
    pub in_place: Vec<String>,
    /// Options of which one must be given.
    pub needs: Vec<String>,
    /// Flags that turn output operands into inputs.
    pub reading: Vec<String>,
    /// Whether the first operand is a script that receives all following words.
    pub script: bool,
    /// Whether a rule grants it only if it spells out the subcommand.
    pub spelled: bool,
    /// Whether a rule's prefix may skip the words of this subcommand, and what follows is another one.
    pub skipped: bool,
    /// Whether words that begin with `+` are options.
    pub plus: bool,
    /// With fewer operands than this it writes files with names of its own choice.
    pub least: usize,
    /// Options that a rule's prefix may skip.
    pub passed: Vec<String>,
    /// Options whose value may begin with a dash: the program takes the next word whatever it is.
    pub dashed: Vec<String>,
    /// Whether the program replaces each word that begins with `@` by the words in that file, wherever the word is.
    pub response_files: bool,
    /// Whether it writes the git directory: index, refs, objects.
    pub repository: bool,
    /// Whether it writes anywhere in the workspace; `None` means as the program's own table says.
    pub tree: Option<bool>,
    /// What it may start; `None` means as the program's own table says.
    pub starts: Option<Starts>,
}

impl ArgumentSpec {
    /// The program's effects besides its operands.
    pub(crate) fn effect(&self) -> SideEffects {
        SideEffects {
            writes: match self.tree {
                Some(true) => WriteExtent::Tree,
                Some(false) | None => WriteExtent::NamedPaths,
            },
            starts: self.starts.clone().unwrap_or_default(),
        }
    }

    /// The same for a subcommand with its own settings.
    pub(crate) fn own_effect(&self) -> Option<SideEffects> {
        (self.tree.is_some() || self.starts.is_some()).then(|| self.effect())
    }
}

/// The profile of a program.
#[derive(Clone, Debug, Default)]
pub struct Profile {
    /// Programs that share it, as named in the table; empty for a policy's own profile, which its key names.
    pub names: Vec<String>,
    /// Where it is defined.
    pub span: Option<Span>,
    pub top: ArgumentSpec,
    /// The subcommands: their words, and their arguments.
    pub subs: Vec<(Vec<String>, ArgumentSpec)>,
    /// Ecosystems that install it as a package, so that a rule for it covers `npx NAME` or `.venv/bin/NAME`.
    pub installed_by: Vec<Ecosystem>,
    /// For a runner: programs that a rule naming only the runner covers (`python` covers `python -m pytest`).
    pub covers: Vec<String>,
    /// Whether it runs only its own code: no plugin, no configuration that is code, no script of the tree.
    pub only_itself: bool,
    /// Further words that only ask for the version if given alone (`-V`, `version`); `--version` always does.
    pub version: Vec<String>,
}

/// A policy file's own profiles, by program.
pub type OwnProfiles = BTreeMap<String, Profile>;

/// The profile of a program, by its bare name: the policy's own one if there is one, otherwise the built-in one.
pub fn of<'a>(own: Option<&'a OwnProfiles>, program: &str) -> Option<&'a Profile> {
    own.and_then(|own| own.get(program)).or_else(|| builtin(program))
}

/// The number of words of the `passed-over` subcommand with which these words begin (`yarn workspace NAME`). `None` if
/// they do not begin with one.
pub fn passed_subcommand(profile: &Profile, words: &[&str]) -> Option<usize> {
    let fits = |name: &[String]| {
        name.len() <= words.len()
            && name.iter().zip(words).all(|(wanted, word)| match wanted.as_str() {
                "*" => !word.starts_with('-') && !word.is_empty(),
                wanted => wanted == *word,
            })
    };
    let mut passed = profile.subs.iter().filter(|(_, section)| section.skipped);
    passed.find(|(name, _)| fits(name)).map(|(name, _)| name.len())
}

/// A table, parsed at first use.
struct Table {
    file: &'static str,
    text: &'static str,
    profile: OnceLock<Profile>,
}

/// The built-in profile of a program.
pub fn builtin(program: &str) -> Option<&'static Profile> {
    let (tables, index) = all();
    let table = tables.get(*index.get(program)?)?;
    // For an invalid table (a test ensures that there is none) the profile accepts nothing.
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

/// All tables, and the index of the table of each program. Names come from the `programs:` line, so that no table is
/// parsed before it is needed.
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

/// The words of `programs:`, on its line and on the indented lines below it.
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

/// Parses a built-in table.
///
/// # Errors
/// Its problems, one per line.
fn parse(file: &str, text: &str) -> Result<Profile, String> {
    let mut files = SourceFiles::new();
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
