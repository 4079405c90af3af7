//! Reads a shell command: every simple command in it, its words, the files and hosts it names, and what speaks against it. Decides nothing.

mod agree;
mod assign;
mod awk;
mod braces;
mod builtins;
mod chdir;
mod cover;
mod extended;
mod flow;
mod flow_git;
mod jq;
mod loops;
mod operands;
mod params;
mod parse;
mod place;
mod plain;
mod redirect;
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

pub use cover::{PrefixWord, covers, deny_covers, lifts, parse_prefix, texts};
pub use scan::MAX_BYTES;

/// All that a command does, as far as its text tells.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Reading {
    /// Every simple command: in lists, pipes, groups, loops, branches, substitutions, behind wrappers.
    pub commands: Vec<Simple>,
    /// Redirects that belong to no simple command (groups, loops, a line that is only a redirect).
    pub writes: Vec<FileUse>,
    pub reads: Vec<FileUse>,
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
    /// Files that operands and redirects of this command read. A place is missing when the value is not known but tame.
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
    /// What else it may run, for deny rules.
    pub(crate) reach: Reach,
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
#[derive(Clone, Debug, PartialEq)]
pub struct Word {
    /// The exact value when known, the pattern of a glob, else the source text.
    pub text: String,
    pub kind: WordKind,
    /// What a word that is not known may become.
    pub(crate) range: Range,
}

/// How much of a word is known before the command runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WordKind {
    Known,
    Glob,
    Opaque,
}

/// What a word may become when the shell expands it.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Range {
    /// Every possible value, when the list is complete.
    pub values: Option<Vec<String>>,
    pub tame: Tame,
    /// May begin with `-`, and so be an option.
    pub dash: bool,
    /// May become no word, or several.
    pub many: bool,
    /// The values are patterns, still to be expanded.
    pub glob: bool,
    /// Literal text before the first expansion.
    pub head: String,
}

impl Range {
    /// The output of something that nothing is known of.
    pub(crate) fn wild() -> Self {
        Self {
            values: None,
            tame: Tame::Wild,
            dash: true,
            many: true,
            glob: false,
            head: String::new(),
        }
    }

    /// Output of the given kind that begins with no `-` and may be empty.
    pub(crate) fn of(tame: Tame) -> Self {
        Self {
            tame,
            dash: false,
            ..Self::wild()
        }
    }

    /// One of these words.
    pub(crate) fn one_of(values: Vec<String>) -> Self {
        Self {
            dash: values.iter().any(|value| value.starts_with('-')),
            many: false,
            values: Some(values),
            ..Self::wild()
        }
    }
}

impl Word {
    /// A word with this exact value.
    pub(crate) fn known(text: impl Into<String>) -> Self {
        let text = text.into();
        Self {
            range: Range::one_of(vec![text.clone()]),
            text,
            kind: WordKind::Known,
        }
    }

    /// A word that is not known; `source` is shown.
    pub(crate) fn opaque(source: impl Into<String>, range: Range) -> Self {
        Self {
            text: source.into(),
            kind: WordKind::Opaque,
            range,
        }
    }

    /// The exact value, when there is only one.
    pub(crate) fn exact(&self) -> Option<&str> {
        (self.kind == WordKind::Known).then_some(self.text.as_str())
    }
}

/// What is known of a value that comes from the output of a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Tame {
    /// Numbers, object names: no path, no option.
    Token,
    /// Names of files that lie inside the workspace.
    Inside,
    /// Anything.
    Wild,
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

/// What a policy grants beyond the built-in lists.
#[derive(Clone, Copy, Debug, Default)]
pub struct Grants<'a> {
    /// Names that may be set before a command (`NAME=value cargo test`) besides the harmless ones.
    pub assignments: &'a [String],
}

/// Reads `text`, to be run by bash in `dir` (relative to the workspace's root, `""` for the root).
///
/// Total and bounded: any text gives an answer.
///
/// # Errors
/// A [`Refusal`] for what is denied whatever the rules say: limits, what cannot be parsed, refused constructs, a directory outside.
pub fn read(text: &str, dir: &str, terrain: &Terrain<'_>, grants: &Grants<'_>) -> Result<Reading, Refusal> {
    walk::read(text, dir, terrain, grants)
}
