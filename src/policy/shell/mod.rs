//! Reads a shell command: every simple command in it, its words, the files and hosts it names, and what speaks against it. Decides nothing.

mod agree;
mod assign;
mod awk;
mod braces;
mod builtins;
mod chdir;
mod cover;
mod extended;
mod jq;
mod operands;
mod params;
mod parse;
mod place;
mod plain;
mod redirect;
mod runners;
mod scan;
mod scope;
mod sed;
mod simple;
mod units;
mod values;
mod walk;
mod words;
mod wrappers;

#[cfg(test)]
pub(super) mod corpus;
#[cfg(test)]
mod properties;
#[cfg(test)]
mod tests;

use crate::base::access::{Place, Terrain};
use crate::base::grant::Starts;
use crate::policy::profiles::Own;

pub(crate) use builtins::activates;
pub(crate) use cover::{Match, best_match, names_program, unvouched};
pub use cover::{PrefixWord, covers, deny_covers, lifts, matched, parse_prefix, surely_covers, texts};
pub(crate) use runners::{INSTALLED_DIRS, Launch, installed_name, unprofiled};
pub use scan::MAX_BYTES;
pub use wrappers::is_wrapper;

/// All that a command does, as far as its text tells.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Reading {
    /// Every simple command: in lists, pipes, groups, loops, branches, substitutions, behind wrappers.
    pub commands: Vec<Simple>,
    /// Redirects that belong to no simple command (groups, loops, a line that is only a redirect).
    pub writes: Vec<FileUse>,
    pub reads: Vec<FileUse>,
    /// The words of shells whose text was read (`bash -c TEXT`), with the directories in which they may start.
    pub(crate) shells: Vec<(Vec<Word>, Option<Vec<String>>)>,
}

/// One simple command, wrappers taken off.
#[derive(Clone, Debug, PartialEq)]
pub struct Simple {
    /// After quote removal; the first is the program.
    pub words: Vec<Word>,
    /// Wrappers that were seen through, outermost first, for example `["env", "timeout"]`.
    pub via: Vec<String>,
    /// Identity of the program: a bare name (`/bin/ls` is `ls`), or `./` and the path from the workspace's root.
    pub program: String,
    /// Files that operands and redirects of this command read. A place is missing when its name is not known before the command runs.
    pub reads: Vec<FileUse>,
    /// Files that operands and redirects of this command write. `/dev/null` and its like are never here.
    pub writes: Vec<FileUse>,
    /// URLs (or bare hosts) that it names where its profile expects one.
    pub hosts: Vec<String>,
    /// What the argument profile says against it; `args: any` on a rule lifts it.
    pub concern: Option<Refusal>,
    /// It only asks or changes the shell's own state (`cd`, `true`, `test`, a plain `echo`) and needs no rule.
    pub state_only: bool,
    /// The words that speak against it, by index into `words`: a rule that spells them out lifts the concern.
    pub(crate) concern_words: Vec<usize>,
    /// The words with each wrapper still on, for deny rules.
    pub(crate) wrapped: Vec<Vec<Word>>,
    /// Words that a prefix may pass over (`--no-pager` of `git --no-pager diff`), by index.
    pub(crate) passed_over: Vec<usize>,
    /// What else it may run, for deny rules where nothing is judged at exec.
    pub(crate) reach: Reach,
    /// The directories in which it may start, relative to the workspace's root; `None` when they are not known.
    pub(crate) dirs: Option<Vec<String>>,
    /// Why it can be ruled only at its exec: a word or the directory is not known before.
    pub(crate) deferred: Option<Refusal>,
    /// What its profile says of the programs that it starts and the files that it writes beside its operands.
    pub(crate) effect: Effect,
    /// Whether it is judged again when it is executed.
    pub(crate) judged_at_exec: bool,
    /// Whether its program has a profile.
    pub(crate) profiled: bool,
    /// For a program without a profile: its option words, by index.
    pub(crate) options: Vec<usize>,
    /// How it is really started, outermost first: `npx eslint` and `.venv/bin/ruff` are commands of `eslint` and `ruff`.
    pub(crate) launches: Vec<Launch>,
    /// Whether the program runs code of the tree anyway (tests, configuration that is code): then it does not matter who could have
    /// put another program in its place.
    pub(crate) runs_tree_code: bool,
    /// What a build tool is asked to make, by index: a rule that names one target grants no other.
    pub(crate) targets: Vec<usize>,
    /// It asks only for the program's version.
    pub(crate) asks_version: bool,
}

/// What a command may run besides itself, as far as its profile tells.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Reach {
    #[default]
    Nothing,
    /// Perhaps what its operands or options say.
    Operands,
    /// Its input, whatever that is.
    Anything,
}

/// A word after quote removal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Word {
    /// The exact value when known, the pattern of a glob, else the source text.
    pub text: String,
    pub kind: WordKind,
    /// Literal text before the first expansion.
    pub(crate) head: String,
}

/// How much of a word is known before the command runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WordKind {
    /// Its exact value.
    Known,
    /// The pattern; what it matches may change until the command runs.
    Glob,
    /// It comes from a variable, a substitution, standard input or a search.
    Unknown,
}

impl Word {
    /// A word with this exact value.
    pub(crate) fn known(text: impl Into<String>) -> Self {
        let text = text.into();
        Self {
            head: text.clone(),
            text,
            kind: WordKind::Known,
        }
    }

    /// A word that is not known; `source` is shown, `head` is the literal text that it begins with.
    pub(crate) fn unknown(source: impl Into<String>, head: impl Into<String>) -> Self {
        Self {
            text: source.into(),
            kind: WordKind::Unknown,
            head: head.into(),
        }
    }

    /// The exact value, when there is only one.
    pub(crate) fn exact(&self) -> Option<&str> {
        (self.kind == WordKind::Known).then_some(self.text.as_str())
    }

    /// Whether it may begin with `-`, and so be an option.
    pub(crate) fn may_be_option(&self) -> bool {
        match self.kind {
            WordKind::Known => self.text.starts_with('-'),
            WordKind::Glob => self.text.starts_with(['-', '*', '?', '[']),
            WordKind::Unknown => self.head.is_empty() || self.head.starts_with('-'),
        }
    }
}

/// What a program does beside what its operands say.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Effect {
    /// It writes wherever it likes in the workspace: build tools, test runners, interpreters.
    pub tree: bool,
    pub starts: Starts,
}

impl Default for Effect {
    fn default() -> Self {
        Self {
            tree: false,
            starts: Starts::Nothing,
        }
    }
}

/// A file that a command names.
#[derive(Clone, Debug, PartialEq)]
pub struct FileUse {
    /// Where it lies; `None` when the value is not known before the command runs.
    pub place: Option<Place>,
    /// As written.
    pub asked: String,
    /// The value is not known.
    pub opaque: bool,
    /// An existing file is opened and written as it is (a redirect), not replaced.
    pub in_place: bool,
}

impl FileUse {
    /// A file of the tree that is known by its path.
    pub(crate) fn of_tree(path: &str) -> Self {
        Self {
            place: Some(Place::of_tree(path)),
            asked: path.to_owned(),
            opaque: false,
            in_place: false,
        }
    }
}

/// Why a command is not accepted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// From the closed list: `limit:*`, `control_character`, `parse_error`, `parse_disagree`, `refused_construct:*`, `unknown_option:*`,
    /// `opaque_argument`, `program_argument`, `outside_path`, `assignment:*`, `redirect_opaque`, `script:*`.
    pub code: String,
    pub reason: String,
    pub fix: String,
}

impl Refusal {
    pub(crate) fn new(code: impl Into<String>, reason: impl Into<String>, fix: impl Into<String>) -> Self {
        Self {
            code: code.into(),
            reason: reason.into(),
            fix: fix.into(),
        }
    }

    /// A construct that is refused whatever the rules say.
    pub(crate) fn construct(name: &str, fix: &str) -> Self {
        Self::new(
            format!("refused_construct:{name}"),
            format!("`{name}` in a command is refused whatever the rules say"),
            fix,
        )
    }
}

/// What a policy grants beyond the built-in lists, and what will be known later.
#[derive(Clone, Copy, Debug, Default)]
pub struct Grants<'a> {
    /// Whether each program is judged again at its exec, so that words that are not known before may be left to that.
    pub witness: bool,
    /// Names that may be set before a command (`NAME=value cargo test`) besides the harmless ones.
    pub assignments: &'a [String],
    /// Profiles that the policy brings along.
    pub profiles: Option<&'a Own>,
}

/// Reads `text`, to be run by bash in `dir` (relative to the workspace's root, `""` for the root).
///
/// Total and bounded: any text gives an answer.
///
/// # Errors
/// A [`Refusal`] for what is denied whatever the rules say: limits, what cannot be parsed, refused constructs, a directory outside.
/// Whether two parsers of bash agree that a text is none. A text that only one of them takes may be bash.
pub fn is_broken(text: &str) -> bool {
    parse::parse(text, usize::MAX).is_err_and(|refusal| refusal.code == "parse_error") && agree::look(text).is_err()
}

pub fn read(text: &str, dir: &str, terrain: &Terrain<'_>, grants: &Grants<'_>) -> Result<Reading, Refusal> {
    walk::read(text, dir, terrain, grants)
}

/// Reads the words of a program as the kernel executes it, in `dir` (relative to the workspace's root). `program` is its identity: a
/// bare name, `./` and a path from the workspace's root, or an absolute path.
///
/// # Errors
/// As [`read`].
pub fn read_argv(
    argv: &[String],
    program: &str,
    dir: &str,
    terrain: &Terrain<'_>,
    grants: &Grants<'_>,
) -> Result<Reading, Refusal> {
    walk::read_argv(argv, program, dir, terrain, grants)
}

/// A command of these words that nobody could read, for deny rules.
pub(crate) fn plain_words(argv: &[String], program: &str) -> Simple {
    // The first word may lie.
    let words = std::iter::once(program).chain(argv.iter().skip(1).map(String::as_str));
    Simple {
        words: words.map(Word::known).collect(),
        via: Vec::new(),
        program: program.to_owned(),
        reads: Vec::new(),
        writes: Vec::new(),
        hosts: Vec::new(),
        concern: None,
        state_only: false,
        concern_words: Vec::new(),
        wrapped: Vec::new(),
        passed_over: Vec::new(),
        reach: Reach::Nothing,
        dirs: None,
        deferred: None,
        effect: Effect::default(),
        judged_at_exec: true,
        profiled: true,
        options: Vec::new(),
        launches: Vec::new(),
        runs_tree_code: false,
        targets: Vec::new(),
        asks_version: false,
    }
}
