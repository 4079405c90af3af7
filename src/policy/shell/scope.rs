//! The state while a text is read: directories, and the commands found so far.

use super::{CommandReading, CommandRefusal, Grants};
use crate::base::access::FsView;

/// The most shell texts inside each other (`bash -c` in `bash -c`).
pub const MAX_TEXTS: usize = 2;
/// The most substitutions, or wrappers, inside each other.
pub const MAX_NESTED: usize = 8;
/// The most directories in which a command may start, which multiply when `cd` may fail.
const MAX_DIRS: usize = 6;

/// How the texts inside a command are read. A list contains words, and the substitution in a word contains a list, so
/// `walk` passes its functions down to the readers of words and commands.
#[derive(Clone, Copy)]
pub struct InnerReaders {
    /// Reads the text of `$(…)`.
    pub substitution: fn(&mut CommandWalk<'_>, &ShellState, &str) -> Result<(), CommandRefusal>,
    /// Reads the walk's own text, that of an inner shell (`bash -c`).
    pub whole: fn(&mut CommandWalk<'_>, &ShellState) -> Result<(), CommandRefusal>,
}

/// The state of reading one text: its context and its results.
pub struct CommandWalk<'a> {
    pub fs_view: FsView<'a>,
    pub grants: Grants<'a>,
    pub inner: InnerReaders,
    /// The text.
    pub text: &'a str,
    /// The number of `bash -c` around this text.
    pub texts: usize,
    /// The wrappers around this text.
    pub via: Vec<String>,
    pub reading: CommandReading,
    /// Source of every command name, for the comparison with the second parser.
    pub names: Vec<String>,
    /// Source of every redirection target, for the comparison with the second parser.
    pub targets: Vec<String>,
    pub heredocs: usize,
    /// Variables that the text itself has set.
    pub variables: Vec<String>,
    /// The directories that earlier commands of the text make, from the workspace's root.
    pub made: Vec<String>,
    /// At an exec: the identity of the program, until it has been examined.
    pub executed: Option<String>,
}

impl<'a> CommandWalk<'a> {
    /// A new state for `text` without results.
    pub fn new(text: &'a str, fs_view: FsView<'a>, grants: Grants<'a>, inner: InnerReaders) -> Self {
        Self {
            fs_view,
            grants,
            inner,
            text,
            texts: 0,
            via: Vec::new(),
            reading: CommandReading::default(),
            names: Vec::new(),
            targets: Vec::new(),
            heredocs: 0,
            variables: Vec::new(),
            made: Vec::new(),
            executed: None,
        }
    }

    /// Whether the text has set the variable before.
    pub fn is_own_variable(&self, name: &str) -> bool {
        self.variables.iter().any(|own| own == name)
    }
}

/// The conditions under which a command starts.
#[derive(Clone)]
pub struct ShellState {
    /// Every directory in which it may start, relative to the workspace's root.
    pub dirs: Dirs,
    /// The number of substitutions around it.
    pub nested: usize,
    /// Whether its input is something other than the empty standard input of the whole command.
    pub fed: bool,
    /// Whether the text of the command shows that standard input is a pipe or a file.
    pub piped: bool,
    /// Whether it is in the condition of `while`, where `read` is accepted.
    pub reads_lines: bool,
    /// Whether a variable set around this text makes programs load code of the tree (`PYTHONPATH=src bash -c TEXT`).
    pub leads_code: bool,
}

impl ShellState {
    /// The state at the start of a text in this directory.
    pub fn new(dirs: Dirs) -> Self {
        Self {
            dirs,
            nested: 0,
            fed: false,
            piped: false,
            reads_lines: false,
            leads_code: false,
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
    /// The list, if it is known.
    pub fn known(&self) -> Option<&[String]> {
        match self {
            Dirs::Of(dirs) => Some(dirs),
            Dirs::Unknown => None,
        }
    }

    /// The union without duplicates.
    ///
    /// # Errors
    /// `limit:directories` if there are more than six.
    pub fn union(&self, other: &Dirs) -> Result<Dirs, CommandRefusal> {
        let (Dirs::Of(first), Dirs::Of(second)) = (self, other) else {
            return Ok(Dirs::Unknown);
        };
        let mut all = first.clone();
        all.extend(second.iter().filter(|dir| !first.contains(dir)).cloned());
        if all.len() > MAX_DIRS {
            return Err(CommandRefusal::new(
                "limit:directories",
                "the command may run in too many directories",
                "join each `cd` to its command with `&&`, or use `dir_path`",
            ));
        }
        Ok(Dirs::Of(all))
    }

    /// Whether nothing runs here (after an `exit`).
    pub fn is_nowhere(&self) -> bool {
        matches!(self, Dirs::Of(dirs) if dirs.is_empty())
    }
}

/// The directories in which a list may leave the shell: after success, and after failure.
#[derive(Clone)]
pub struct ExitDirectories {
    pub ok: Dirs,
    pub failed: Dirs,
}

impl ExitDirectories {
    /// Every directory in which it may end.
    ///
    /// # Errors
    /// `limit:directories`.
    pub fn all(&self) -> Result<Dirs, CommandRefusal> {
        self.ok.union(&self.failed)
    }

    /// Ends in the directories in which it started.
    pub fn stay(state: &ShellState) -> Self {
        Self {
            ok: state.dirs.clone(),
            failed: state.dirs.clone(),
        }
    }
}
