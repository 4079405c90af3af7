//! What is known while a text is walked: directories, and the commands found so far. Walks nothing.

use super::{Grants, Reading, Refusal};
use crate::base::access::Terrain;

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
    /// The text that is walked.
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
    /// Variables that the text itself sets.
    pub variables: Vec<String>,
    /// A variable before the command leads a program to code of the tree (`PYTHONPATH=src`).
    pub leads_code: bool,
    /// For a program that is executed: its identity, until it was looked at.
    pub executed: Option<String>,
}

impl<'a> Walk<'a> {
    /// A reading of `text` that has found nothing yet.
    pub fn new(text: &'a str, terrain: Terrain<'a>, grants: Grants<'a>) -> Self {
        Self {
            terrain,
            grants,
            text,
            texts: 0,
            via: Vec::new(),
            reading: Reading::default(),
            names: Vec::new(),
            targets: Vec::new(),
            heredocs: 0,
            variables: Vec::new(),
            leads_code: false,
            executed: None,
        }
    }

    /// Whether the text set the variable before.
    pub fn is_own_variable(&self, name: &str) -> bool {
        self.variables.iter().any(|own| own == name)
    }
}

/// What a command finds when it starts.
#[derive(Clone)]
pub struct State {
    /// Every directory it may start in, relative to the workspace's root.
    pub dirs: Dirs,
    /// Substitutions that this lies in.
    pub nested: usize,
    /// Something other than the empty standard input of the whole command line comes in.
    pub fed: bool,
    /// In the condition of `while`: `read` is accepted.
    pub reads_lines: bool,
}

impl State {
    /// The start of a text in this directory.
    pub fn new(dirs: Dirs) -> Self {
        Self {
            dirs,
            nested: 0,
            fed: false,
            reads_lines: false,
        }
    }
}

/// The directories in which a command may start.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Dirs {
    /// One of these.
    Of(Vec<String>),
    /// Known only when it runs.
    Unknown,
}

impl Dirs {
    /// The list, when it is known.
    pub fn known(&self) -> Option<&[String]> {
        match self {
            Dirs::Of(dirs) => Some(dirs),
            Dirs::Unknown => None,
        }
    }

    /// Both together, without repeats.
    ///
    /// # Errors
    /// `limit:directories` for more than six.
    pub fn union(&self, other: &Dirs) -> Result<Dirs, Refusal> {
        let (Dirs::Of(first), Dirs::Of(second)) = (self, other) else {
            return Ok(Dirs::Unknown);
        };
        let mut all = first.clone();
        all.extend(second.iter().filter(|dir| !first.contains(dir)).cloned());
        if all.len() > MAX_DIRS {
            return Err(Refusal::new(
                "limit:directories",
                "the command may run in too many directories",
                "join each `cd` to its command with `&&`, or use `dir_path`",
            ));
        }
        Ok(Dirs::Of(all))
    }

    /// Whether nothing runs here (behind an `exit`).
    pub fn is_nowhere(&self) -> bool {
        matches!(self, Dirs::Of(dirs) if dirs.is_empty())
    }
}

/// Where a list may leave the shell: the directories after it succeeded and after it failed.
#[derive(Clone)]
pub struct Ends {
    pub ok: Dirs,
    pub failed: Dirs,
}

impl Ends {
    /// Every directory it may end in.
    ///
    /// # Errors
    /// `limit:directories`.
    pub fn all(&self) -> Result<Dirs, Refusal> {
        self.ok.union(&self.failed)
    }

    /// Ends where it started.
    pub fn stay(state: &State) -> Self {
        Self {
            ok: state.dirs.clone(),
            failed: state.dirs.clone(),
        }
    }
}
