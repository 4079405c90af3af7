//! What the shell knows while a text is walked: directories, variables, what comes in on standard input. Walks nothing.

use super::{Grants, Range, Reading, Refusal, Tame};
use crate::base::access::Terrain;
use std::collections::BTreeMap;

/// Texts inside texts (`bash -c` in `bash -c`).
pub const MAX_TEXTS: usize = 2;
/// Substitutions inside substitutions, wrappers inside wrappers.
pub const MAX_NESTED: usize = 8;
/// Directories in which a command may start, when `cd` may have failed.
const MAX_DIRS: usize = 6;

/// One reading under way: where it looks, and what it has found.
pub struct Walk<'a> {
    pub terrain: Terrain<'a>,
    pub grants: Grants<'a>,
    /// The text that is walked; a variable set more than once in it is never known.
    pub text: &'a str,
    /// How many `bash -c` this text lies in.
    pub texts: usize,
    /// Wrappers outside this text.
    pub via: Vec<String>,
    pub reading: Reading,
    /// Source of every command name, for the second opinion.
    pub names: Vec<String>,
    /// Source of every redirect target, for the second opinion.
    pub targets: Vec<String>,
    pub heredocs: usize,
}

/// What a command finds when it starts.
#[derive(Clone)]
pub struct State {
    /// Every directory it may start in, relative to the workspace's root.
    pub dirs: Vec<String>,
    pub vars: BTreeMap<String, Range>,
    /// What standard input brings; `None` for nothing that was made in this text.
    pub input: Option<Range>,
    /// Substitutions that this lies in.
    pub nested: usize,
    /// Standard output goes to another command of a pipe or into a substitution.
    pub feeds: bool,
    /// What stands here runs whenever the text does: no branch, loop or `&&` before it.
    pub sure: bool,
    /// In the condition of `while`: `read` is accepted.
    pub reads_lines: bool,
}

impl State {
    /// The start of a text in these directories.
    pub fn new(dirs: Vec<String>) -> Self {
        Self {
            dirs,
            vars: BTreeMap::new(),
            input: None,
            nested: 0,
            feeds: false,
            sure: true,
            reads_lines: false,
        }
    }

    /// What `$name` may be.
    pub fn var(&self, name: &str) -> Range {
        match name {
            "?" | "#" | "$" | "RANDOM" | "SECONDS" | "LINENO" | "UID" | "EUID" | "PPID" | "BASHPID" => Range {
                many: false,
                ..Range::of(Tame::Token)
            },
            "PWD" => Range::one_of(vec![".".to_owned()]),
            "HOME" => Range::one_of(vec!["~".to_owned()]),
            // Several words even when quoted; the head marks it.
            "@" | "*" => Range {
                head: "@".to_owned(),
                ..Range::wild()
            },
            _ => self.vars.get(name).cloned().unwrap_or_else(Range::wild),
        }
    }
}

/// Where a list may leave the shell: the directories after it succeeded and after it failed, and what it printed.
pub struct Ends {
    pub ok: Vec<String>,
    pub failed: Vec<String>,
    pub output: Range,
}

impl Ends {
    /// Every directory it may end in.
    ///
    /// # Errors
    /// `limit:directories`.
    pub fn all(&self) -> Result<Vec<String>, Refusal> {
        union(&self.ok, &self.failed)
    }
}

/// Both lists, without repeats.
///
/// # Errors
/// `limit:directories` for more than six.
pub fn union(first: &[String], second: &[String]) -> Result<Vec<String>, Refusal> {
    let mut all = first.to_vec();
    all.extend(second.iter().filter(|dir| !first.contains(dir)).cloned());
    if all.len() > MAX_DIRS {
        return Err(Refusal::new(
            "limit:directories",
            "the command may run in too many directories",
            "join each `cd` to its command with `&&`, or use `dir_path`",
        ));
    }
    Ok(all)
}
