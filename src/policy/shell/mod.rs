//! Reads a shell command: every simple command in it, its words, the files and hosts that it names, and any concerns
//! about them. The policy decides on the result.

mod agree;
mod assign;
mod awk;
mod braces;
mod builtins;
mod chdir;
mod extended;
mod history;
mod jq;
mod npm_names;
mod operands;
mod params;
mod parse;
mod place;
mod prefix_match;
mod redirect;
mod runners;
mod scan;
mod scope;
mod searched;
mod sed;
mod shown;
mod simple;
mod spelling_match;
mod spellings;
mod unit;
mod units;
mod value_checks;
mod values;
mod variables;
mod walk;
mod words;
mod wrappers;

#[cfg(test)]
pub(super) mod corpus;
#[cfg(test)]
mod properties;
#[cfg(test)]
mod tests;

use crate::base::access::ResolvedPath;
use crate::policy::profiles::{OwnProfiles, SideEffects};

pub(crate) use builtins::activates;
pub(crate) use prefix_match::{Match, best_match, names_program, shell_around, unvouched};
pub use prefix_match::{PrefixWord, covers, deny_covers, matched, open_concern, parse_prefix, surely_covers, texts};
pub(crate) use runners::{INSTALLED_DIRS, Launch, ecosystem_of, installed_name, unprofiled};
pub use scan::MAX_BYTES;
pub(crate) use searched::{
    descends, leads_elsewhere, look_below, look_below_moved, may_hold, searched, searched_unnamed,
};
pub(crate) use shown::ShownHistory;
pub use walk::{read, read_argv};
pub use wrappers::{behind, is_wrapper};

/// The effects of a command, as far as its text shows them.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct CommandReading {
    /// Every simple command: in lists, pipelines, groups, loops, branches and substitutions, and behind wrappers.
    pub commands: Vec<Simple>,
    /// Redirections that belong to no simple command (of groups and loops, or a line with only a redirection).
    pub writes: Vec<FileUse>,
    pub reads: Vec<FileUse>,
    /// Files that `[[ … ]]` asks about: whether they are there, not what they contain.
    pub tested: Vec<FileUse>,
    /// The words of shells whose text was read (`bash -c TEXT`), with the directories in which they may start.
    pub(crate) shells: Vec<(Vec<ShellWord>, Option<Vec<String>>)>,
}

/// One simple command, without its wrappers.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Simple {
    /// The words after quote removal; the first is the program.
    pub words: Vec<ShellWord>,
    /// The wrappers that were removed, outermost first, for example `["env", "timeout"]`.
    pub via: Vec<String>,
    /// The program's identity: a bare name (`/bin/ls` is `ls`), or `./` and the path from the workspace's root.
    pub program: String,
    /// Files that operands and redirections of this command read. The place is missing if its name is unknown before
    /// the command runs.
    pub reads: Vec<FileUse>,
    /// Files that operands and redirections of this command write. Never includes `/dev/null` and similar devices.
    pub writes: Vec<FileUse>,
    /// URLs (or bare hosts) in positions where the profile expects one.
    pub hosts: Vec<String>,
    /// The argument profile's objections to the command, each with the index of the word that caused it: a rule that
    /// spells the word out lifts one, `args: any` lifts all.
    pub(crate) concerns: Vec<(usize, CommandRefusal)>,
    /// Whether it only reads or changes the shell's own state (`cd`, `true`, `test`, a plain `echo`) and needs no rule.
    pub state_only: bool,
    /// The words with each wrapper still in front, for deny rules.
    pub(crate) wrapped: Vec<Vec<ShellWord>>,
    /// The words of the shells whose text it is in (`bash -c TEXT`), also with each wrapper in front, for rules that
    /// restrict.
    pub(crate) within: Vec<Vec<ShellWord>>,
    /// Indices of words that a prefix may skip (`--no-pager` in `git --no-pager diff`).
    pub(crate) passed_over: Vec<usize>,
    /// What else it may run, for deny rules if execs are not judged.
    pub(crate) reach: CommandReach,
    /// The directories in which it may start, relative to the workspace's root; `None` if they are unknown.
    pub(crate) dirs: Option<Vec<String>>,
    /// The directories in which the program works, if one of its own options changes them (`git -C`).
    pub(crate) entered: Option<Vec<String>>,
    /// Its words that git takes for revisions, which are among `reads` too.
    pub(crate) revisions: Vec<String>,
    /// What it may show of the contents of files, if it is git.
    pub(crate) shown: ShownHistory,
    /// Why it can be ruled on only at its exec: a word or the directory is unknown before.
    pub(crate) deferred: Option<CommandRefusal>,
    /// The programs that it starts and the files that it writes besides its operands, according to its profile.
    pub(crate) effect: SideEffects,
    /// Whether it is judged again at its exec.
    pub(crate) judged_at_exec: bool,
    /// Whether its program has a profile.
    pub(crate) profiled: bool,
    /// For a program without a profile: the indices of its options.
    pub(crate) options: Vec<usize>,
    /// How it is actually started, outermost first: `npx eslint` and `.venv/bin/ruff` are commands of `eslint` and
    /// `ruff`.
    pub(crate) launches: Vec<Launch>,
    /// Whether the program runs code of the tree anyway (tests, configuration that is code). Then replacing the program
    /// would gain an attacker nothing.
    pub(crate) runs_tree_code: bool,
    /// Indices of the targets of a build tool: a rule that names one target does not grant others.
    pub(crate) targets: Vec<usize>,
    /// What in its program (of sed, awk, jq, SQL) may open files that its words do not name.
    pub(crate) opens_more: Option<String>,
    /// Whether it only asks for the program's version.
    pub(crate) asks_version: bool,
    /// Whether an operand names what the program reads, according to its profile.
    pub(crate) names_place: bool,
    /// Whether its standard input is certainly a pipe or a file.
    pub(crate) piped: bool,
    /// The directories that it searches, each with the paths below it that exceptions of rules may fit; `None` if those
    /// are not known.
    pub(crate) below: Vec<(String, Option<Vec<String>>)>,
}

impl Simple {
    /// The first objection of the argument profile.
    pub fn concern(&self) -> Option<&CommandRefusal> {
        self.concern_from(0)
    }

    /// The first objection that is not about one of the first `end` words.
    pub(crate) fn concern_from(&self, end: usize) -> Option<&CommandRefusal> {
        let mut open = self.concerns.iter().filter(|(at, _)| *at >= end);
        open.next().map(|(_, refusal)| refusal)
    }
}

/// What a command may run besides its own program, according to its profile.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum CommandReach {
    #[default]
    Nothing,
    /// Possibly what its operands or options name.
    Operands,
    /// Its input, whatever that contains.
    Anything,
}

/// A word after quote removal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ShellWord {
    /// The exact value if known, the pattern of a glob, otherwise the source text.
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
    /// The pattern is known; what it matches may change before the command runs.
    Glob,
    /// It comes from a variable, a substitution, standard input or a search.
    Unknown,
}

/// The name of an option, without a value that follows `=`.
fn option_name(text: &str) -> &str {
    text.split_once('=').map_or(text, |(name, _)| name)
}

/// Whether a word may be this long option, which many programs let be shortened.
fn may_be_long(word: &str, option: &str) -> bool {
    let name = option_name(word);
    name.len() > 2 && option.starts_with(name)
}

/// The letters of a group of short options, which may end with a value.
fn short_group(word: &str) -> Option<&str> {
    word.strip_prefix('-').filter(|rest| !rest.starts_with('-'))
}

impl ShellWord {
    /// A word with this exact value.
    pub(crate) fn known(text: impl Into<String>) -> Self {
        let text = text.into();
        Self {
            head: text.clone(),
            text,
            kind: WordKind::Known,
        }
    }

    /// An unknown word; `source` is shown, `head` is its literal prefix.
    pub(crate) fn unknown(source: impl Into<String>, head: impl Into<String>) -> Self {
        Self {
            text: source.into(),
            kind: WordKind::Unknown,
            head: head.into(),
        }
    }

    /// The exact value, if there is only one.
    pub(crate) fn exact(&self) -> Option<&str> {
        (self.kind == WordKind::Known).then_some(self.text.as_str())
    }

    /// Whether it is a whole number.
    pub(crate) fn is_number(&self) -> bool {
        self.exact().is_some_and(|text| {
            let digits = text.strip_prefix('-').unwrap_or(text);
            !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit())
        })
    }

    /// Whether it may begin with `-` and so be an option.
    pub(crate) fn may_be_option(&self) -> bool {
        match self.kind {
            WordKind::Known => self.text.starts_with('-'),
            WordKind::Glob => self.text.starts_with(['-', '*', '?', '[']),
            WordKind::Unknown => self.head.is_empty() || self.head.starts_with('-'),
        }
    }
}

/// Stands in `asked` for files that only a command's input names. No unknown word has this text.
const OF_INPUT: &str = "what its input names";

/// A file that a command names.
#[derive(Clone, Debug, PartialEq)]
pub struct FileUse {
    /// Its place, with links followed; `None` if the value is unknown before the command runs.
    pub place: Option<ResolvedPath>,
    /// The symbolic link that was named, if it leads to the place: its own path, with links in its directory followed.
    pub(crate) link: Option<ResolvedPath>,
    /// As written.
    pub asked: String,
    /// Whether the value is unknown.
    pub opaque: bool,
    /// Whether an existing file is opened and written in place (a redirection) instead of being replaced.
    pub in_place: bool,
    /// For a directory that is removed, moved or filled: the paths below it that rules restrict; `None` if they are not known.
    pub(crate) below: Option<Vec<String>>,
}

impl FileUse {
    /// The files that the input of a command names, which are not known before it runs.
    pub(crate) fn of_input() -> Self {
        Self {
            place: None,
            link: None,
            asked: OF_INPUT.to_owned(),
            opaque: true,
            in_place: false,
            below: None,
        }
    }

    /// For a name that is removed or replaced: the symbolic link itself, not what it leads to.
    pub(crate) fn unfollowed(self) -> Self {
        Self {
            place: self.link.or(self.place),
            link: None,
            ..self
        }
    }

    /// Whether it stands for what the input of a command names.
    pub(crate) fn is_of_input(&self) -> bool {
        self.opaque && self.place.is_none() && self.asked == OF_INPUT
    }

    /// A file of the tree, given by its path.
    pub(crate) fn of_tree(path: &str) -> Self {
        Self {
            place: Some(ResolvedPath::of_tree(path)),
            link: None,
            asked: path.to_owned(),
            opaque: false,
            in_place: false,
            below: None,
        }
    }
}

/// Why a command is not accepted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CommandRefusal {
    /// A code from the closed list: `limit:*`, `control_character`, `parse_error`, `parse_disagree`,
    /// `refused_construct:*`, `unknown_option:*`, `opaque_argument`, `program_argument`, `outside_path`,
    /// `assignment:*`, `redirect_opaque`, `script:*`.
    pub code: String,
    pub reason: String,
    pub fix: String,
}

impl CommandRefusal {
    pub(crate) fn new(code: impl Into<String>, reason: impl Into<String>, fix: impl Into<String>) -> Self {
        Self {
            code: code.into(),
            reason: reason.into(),
            fix: fix.into(),
        }
    }

    /// The refusal of a construct that no rule can allow.
    pub(crate) fn construct(name: &str, fix: &str) -> Self {
        Self::new(
            format!("refused_construct:{name}"),
            format!("`{name}` in a command is refused whatever the rules say"),
            fix,
        )
    }
}

/// What a policy grants beyond the built-in lists, and whether execs are judged.
#[derive(Clone, Copy, Debug, Default)]
pub struct Grants<'a> {
    /// Whether each program is judged again at its exec, so that unknown words may be left to that.
    pub witness: bool,
    /// Variables that may be set before a command (`NAME=value cargo test`) besides the harmless ones.
    pub assignments: &'a [String],
    /// The policy's own profiles.
    pub profiles: Option<&'a OwnProfiles>,
}

/// Whether both bash parsers reject a text. A text that one of them accepts may be valid, and so may one that is beyond the
/// limits of a command, which is not parsed: its nesting could exhaust the parser's stack.
pub fn is_broken(text: &str) -> bool {
    let Ok(openers) = scan::scan(text) else { return false };
    parse::parse(text, openers).is_err_and(|refusal| refusal.code == "parse_error") && agree::look(text).is_err()
}

/// A command with these words for deny rules, used if the arguments cannot be interpreted.
pub(crate) fn plain_words(argv: &[String], program: &str) -> Simple {
    // `argv[0]` can be anything, so the program's identity replaces it.
    let words = std::iter::once(program).chain(argv.iter().skip(1).map(String::as_str));
    Simple {
        words: words.map(ShellWord::known).collect(),
        program: program.to_owned(),
        judged_at_exec: true,
        profiled: true,
        ..Simple::default()
    }
}
